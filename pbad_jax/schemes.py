"""Time-integration schemes as tables.

Collocations (radau, legendre): a step from k to k+1 has m unknown stages at the nodes α_1 < ... < α_m = 1 (in units
of dt), solved together. The field of every link is interpolated, and its rates at the nodes are linear in the unknown
fields. Because a rate of a constant field is zero, only increments ΔT_j = T_j − T_k appear (which keeps float32
accurate):

    rate          V_i = (Σ_j D_ij ΔT_j + d_i ΔT_h) / dt
    acceleration  A_i = (Σ_j C_ij ΔT_j + c_i ΔT_h + e_i dt V_k) / dt²

with T_h the field at the history node (schemes that have one) and V_k the velocity field at k.

Diagonally implicit schemes (dirk) solve their stages one after another, each with one unknown configuration:

    V_i = V_k + dt Σ_{j≤i} a_ij A_j,    T_i = T_k + dt Σ_{j≤i} a_ij V_j.

| scheme        | unknowns | order | state         | linear stability                              |
|---------------|----------|-------|---------------|-----------------------------------------------|
| radau(1)      | 1        | 1     | q, v          | A- and L-stable                               |
| radau(2)      | 2        | 3     | q, v          | A- and L-stable                               |
| radau(3)      | 3        | 5     | q, v          | A- and L-stable                               |
| dirk(2)       | 1, twice | 2     | q, v          | A- and L-stable                               |
| dirk(3)       | 1, 3×    | 3     | q, v          | A- and L-stable                               |
| dirk(4)       | 1, 5×    | 4     | q, v          | A- and L-stable                               |
| legendre(2)   | 1        | 1     | q, v, history | A- and L-stable, very dissipative             |
| legendre(3)   | 2        | 2     | q, v, history | A-stable                                      |
| legendre(4)   | 3        | 3     | q, v, history | unstable for ω dt below 3.2, and 6.0 to 6.8   |
| legendre(5)   | 4        | 4     | q, v, history | unstable for ω dt below 6.8, and 9.9 to 12.5  |
| variational() | 1        | 2     | q, v          | symplectic; stable for ω dt < 2, small steps  |

Read next: kinematics/transforms.py.
"""

import dataclasses
import functools
import numbers
import warnings
from typing import ClassVar

import numpy as np

from pbad_jax.errors import OptionError

Row = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A collocation. Tuples, so that a scheme is static under jit.

    Attributes:
        name: as on the command line.
        order: order of accuracy of q and v.
        nodes: (m,) α.
        C: (m,m), acceleration weights of the stages.
        e: (m,), acceleration weights of dt V_k.
        c: (m,), acceleration weights of the history; empty without one.
        D: (m,m), rate weights of the stages.
        d: (m,), rate weights of the history; empty without one.
        history_node: α of the history node, in [-1, 0); 0 without one.
        start: how legendre's history is made from (q, v): "matched" or "linear".

    Example:
        >>> pbad.radau(2).nodes
        (0.3333333333333333, 1.0)
    """

    name: str
    order: int
    nodes: Row
    C: tuple[Row, ...]
    e: Row
    D: tuple[Row, ...]
    c: Row = ()
    d: Row = ()
    history_node: float = 0.0
    start: str = "matched"
    kind: ClassVar[str] = "collocation"  # which method makes the step; its m stages are solved together

    @property
    def m(self) -> int:
        """Unknown stages."""
        return len(self.nodes)

    @property
    def has_history(self) -> bool:
        """Whether a step needs a configuration before q_k."""
        return bool(self.c)

    @property
    def has_energy(self) -> bool:
        """Whether each solve minimises an energy, by one unknown configuration: what the sweeps can do, too."""
        return self.m == 1

    @property
    def weights(self) -> Row:
        """(m,) of the quadrature on the nodes that is exact for polynomials of degree m − 1."""
        powers = np.arange(self.m)
        return tuple(np.linalg.solve(np.vander(self.nodes, increasing=True).T, 1 / (powers + 1)).tolist())

    def __repr__(self) -> str:
        return f"<scheme {self.name}: {self.m} stages, order {self.order}>"


def _derivative_matrix(points: np.ndarray) -> np.ndarray:
    """D[i,j]: derivative at points[i] of the Lagrange polynomial of points[j]."""
    n = len(points)
    gap = points[:, None] - points[None, :] + np.eye(n)
    w = 1 / gap.prod(axis=1)
    D = (w[None, :] / w[:, None]) / gap
    np.fill_diagonal(D, 0.0)
    np.fill_diagonal(D, -D.sum(axis=1))
    return D


def _rows(a) -> tuple[Row, ...]:
    return tuple(tuple(float(x) for x in row) for row in np.atleast_2d(a))


_RADAU_NODES = {
    1: (1.0,),
    2: (1 / 3, 1.0),
    3: ((4 - np.sqrt(6)) / 10, (4 + np.sqrt(6)) / 10, 1.0),
}


def projected(name: str, order: int, nodes: Row) -> Scheme:
    """A collocation whose state is (q, v), from its nodes (m,) in (0, 1], the last of them 1.

    With [d0 Dn] the derivative matrix at the nodes of the polynomial through (0, nodes):
    V = (d0 T_k + Dn T)/dt and A = (d0 V_k + Dn V)/dt, so C = Dn², e = d0. The end velocity is projected to the
    tangent space (Ascher & Petzold, Projected implicit Runge-Kutta methods, 1991).

    Args:
        name: as on the command line. order: what it is known to have. nodes: increasing.
    """
    D = _derivative_matrix(np.array((0.0, *nodes)))[1:]
    d0, Dn = D[:, 0], D[:, 1:]
    return Scheme(name, order, tuple(map(float, nodes)), C=_rows(Dn @ Dn), e=tuple(d0.tolist()), D=_rows(Dn))


def radau(stages: int = 2) -> Scheme:
    """Projected Radau IIA in positions: order 2s − 1, A- and L-stable, state (q, v). The default is s = 2.

    Args:
        stages: 1, 2 or 3.

    Raises:
        OptionError: for another number.

    Example:
        >>> pbad.radau(3)
        <scheme radau3: 3 stages, order 5>
    """
    if isinstance(stages, bool) or not isinstance(stages, numbers.Integral) or stages not in _RADAU_NODES:
        raise OptionError(f"radau({stages!r}): the number of stages must be 1, 2 or 3")
    return projected(f"radau{int(stages)}", 2 * int(stages) - 1, _RADAU_NODES[int(stages)])


def legendre(order: int = 2, *, start: str = "matched") -> Scheme:
    """The paper's position-based collocation of order K (section 3): accuracy K − 1.

    One polynomial of degree K through the last interior node of the previous step, q_k and the new nodes, which are
    the roots of the shifted Legendre polynomial of degree K − 2 and the end point; its second derivative is the
    acceleration. K = 2 is eq. (5) of the paper, (T_{k+1} − 2 T_k + T_{k−1})/dt². Forces act at its stages only; what
    acts once a step, as contact does by default, is refused.

    Where a body turns far in a step, the transforms that the polynomial joins bend too much for it: the equations of
    K = 3 have no root near the motion of a free body that turns by more than 0.768 rad a step, and a step that is
    STALLED there is to be made shorter, by itself with `on_failure="substep"`.

    Args:
        order: K = 2, 3, 4 or 5.
        start: how the first history point is made from (q, v): "matched" solves for it backwards with radau, which
            keeps the order; "linear" is the literal q0 + node · dt · v0, which does not.

    Raises:
        OptionError: for another order or start.

    Warns:
        UserWarning: once, for K = 4 and 5, which are unstable for a band of ω dt.

    Example:
        >>> pbad.legendre(3)
        <scheme legendre3: 2 stages, order 2>
    """
    if isinstance(order, bool) or not isinstance(order, numbers.Integral) or not 2 <= order <= 5:
        raise OptionError(f"legendre({order!r}): the order K must be 2, 3, 4 or 5")
    if start not in ("matched", "linear"):
        raise OptionError(f"legendre start={start!r}: choose 'matched' or 'linear'")
    if order in _UNSTABLE:
        _warn_once(int(order))

    # the nodes of this step; of the step before its last interior one, seen from the start of this step
    interior = (np.polynomial.legendre.leggauss(int(order) - 2)[0] + 1) / 2 if order > 2 else np.zeros(0)
    nodes = (*interior.tolist(), 1.0)
    history = (interior[-1] if interior.size else 0.0) - 1.0

    # V from D, A from D² (see the header): the column of T_k falls away, and V_k plays no part
    D = _derivative_matrix(np.array([history, 0.0, *nodes]))
    DD = D @ D
    return Scheme(
        name=f"legendre{int(order)}",
        order=int(order) - 1,
        nodes=nodes,
        C=_rows(DD[2:, 2:]),
        e=(0.0,) * len(nodes),
        c=tuple(DD[2:, 0].tolist()),
        D=_rows(D[2:, 2:]),
        d=tuple(D[2:, 0].tolist()),
        history_node=float(history),
        start=start,
    )


_UNSTABLE = {
    4: "it amplifies oscillations of ω dt below 3.2 and between 6.0 and 6.8, by up to 1.28 a step",
    5: "it amplifies oscillations of ω dt below 6.8 and between 9.9 and 12.5, by up to 2.32 a step",
}


@functools.cache
def _warn_once(order: int) -> None:
    warnings.warn(
        f"legendre({order}) is here as the paper has it, but {_UNSTABLE[order]}; radau(2) and radau(3) are stable",
        UserWarning,
        stacklevel=3,
    )


@dataclasses.dataclass(frozen=True)
class Dirk:
    """A diagonally implicit Runge–Kutta scheme; stiffly accurate, so that the last stage is the step.

    Attributes:
        name: as on the command line.
        order: order of accuracy of q and v.
        A: (s,s) lower triangular, all diagonal entries equal.

    Example:
        >>> pbad.dirk(2).A[0][0]
        0.2928932188134524
    """

    name: str
    order: int
    A: tuple[Row, ...]

    @property
    def nodes(self) -> Row:
        """(s,) α, the row sums of A."""
        return tuple(map(sum, self.A))

    @property
    def gamma(self) -> float:
        """The diagonal entry."""
        return self.A[0][0]

    kind: ClassVar[str] = "dirk"
    m, has_history, has_energy = 1, False, True

    def __repr__(self) -> str:
        return f"<scheme {self.name}: {len(self.A)} stages in turn, order {self.order}>"


def _dirk_tables() -> dict[int, tuple[Row, ...]]:
    """A by order; see `dirk`."""
    # the γ that makes order 2, and order 3, L-stable
    g2, g3 = 1 - np.sqrt(0.5), 0.43586652150845899942
    return {
        2: ((g2, 0.0), (1 - g2, g2)),
        3: (
            (g3, 0.0, 0.0),
            ((1 - g3) / 2, g3, 0.0),
            (-(6 * g3**2 - 16 * g3 + 1) / 4, (6 * g3**2 - 20 * g3 + 5) / 4, g3),
        ),
        4: (
            (1 / 4, 0.0, 0.0, 0.0, 0.0),
            (1 / 2, 1 / 4, 0.0, 0.0, 0.0),
            (17 / 50, -1 / 25, 1 / 4, 0.0, 0.0),
            (371 / 1360, -137 / 2720, 15 / 544, 1 / 4, 0.0),
            (25 / 24, -49 / 48, 125 / 16, -85 / 12, 1 / 4),
        ),
    }


def dirk(order: int = 2) -> Dirk:
    """High order as a sequence of energy minimisations, each of the size of one configuration.

    Order 2: Ellsiepen's, γ = 1 − 1/√2. Order 3: Alexander (1977). Order 4: SDIRK4 of Hairer and Wanner, Solving
    Ordinary Differential Equations II, table IV.6.5. All L-stable. Between the stages velocities are projected and
    accelerations are those of the equation of motion, without which the order falls to 1.

    Args:
        order: 2, 3 or 4.

    Raises:
        OptionError: for another order.

    Example:
        >>> pbad.dirk(4)
        <scheme dirk4: 5 stages in turn, order 4>
    """
    if isinstance(order, bool) or not isinstance(order, numbers.Integral) or order not in _dirk_tables():
        raise OptionError(f"dirk({order!r}): the order must be 2, 3 or 4")
    A = tuple(tuple(float(a) for a in row) for row in _dirk_tables()[int(order)])
    return Dirk(f"dirk{int(order)}", int(order), A)


@dataclasses.dataclass(frozen=True)
class Variational:
    """The variational scheme: no table, one unknown configuration a step.

    Example:
        >>> pbad.Options(dt=0.01, scheme=pbad.variational()).scheme
        <scheme variational: symplectic, order 2>
    """

    name: str = "variational"
    order: int = 2
    kind: ClassVar[str] = "variational"
    m, has_history, has_energy, nodes = 1, False, False, (1.0,)

    def __repr__(self) -> str:
        return "<scheme variational: symplectic, order 2>"


def variational() -> Variational:
    """A symplectic step from the same atoms, for small steps and long times.

    The discrete Lagrangian L_d(q_k, q_{k+1}) = ‖T_{k+1} − T_k‖²_M/2dt − dt (U_k + U_{k+1})/2 and its Legendre
    transforms (Marsden and West 2001): ∂I(q_k, ·) is tested at q_k, so the Newton matrix is the mixed atom. Momenta of
    symmetries are exact. Stable only while ω dt < 2, and solvable only while a link turns by less than about a quarter
    turn a step.

    Example:
        >>> pbad.variational()
        <scheme variational: symplectic, order 2>
    """
    return Variational()


AnyScheme = Scheme | Dirk | Variational

NAMES = {
    **{f"radau{s}": functools.partial(radau, s) for s in (1, 2, 3)},
    **{f"dirk{p}": functools.partial(dirk, p) for p in (2, 3, 4)},
    **{f"legendre{K}": functools.partial(legendre, K) for K in (2, 3, 4, 5)},
    "variational": variational,
}
