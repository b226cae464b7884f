"""Time-integration schemes as tables.

A step from k to k+1 has m unknown stages at the nodes α_1 < ... < α_m = 1 (in units of dt). The field of every
link is interpolated, and its rates at the nodes are linear in the unknown fields. Because a rate of a constant
field is zero, only increments ΔT_j = T_j − T_k appear (design: what keeps float32 accurate):

    rate          V_i = (Σ_j D_ij ΔT_j + d_i ΔT_h) / dt
    acceleration  A_i = (Σ_j C_ij ΔT_j + c_i ΔT_h + e_i dt V_k) / dt²

with T_h the field at the history node (schemes that have one) and V_k the velocity field at k.

| scheme      | unknowns | order | state   | linear stability |
|-------------|----------|-------|---------|------------------|
| radau(1)    | 1        | 1     | q, v    | A- and L-stable  |
| radau(2)    | 2        | 3     | q, v    | A- and L-stable  |
| radau(3)    | 3        | 5     | q, v    | A- and L-stable  |
| legendre(2) | 1        | 1     | q, v, q_{k-1} | A- and L-stable, very dissipative |
"""

import dataclasses
import numbers

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import OptionError

Row = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Scheme:
    """One row of the table above. Tuples, so that a scheme is static under jit.

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

    @property
    def m(self) -> int:
        """Unknown stages."""
        return len(self.nodes)

    @property
    def has_history(self) -> bool:
        """Whether a step needs a configuration before q_k."""
        return bool(self.c)

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


def radau(stages: int = 2) -> Scheme:
    """Projected Radau IIA in positions: order 2s − 1, A- and L-stable, state (q, v). The default is s = 2.

    With [d0 Dn] the derivative matrix at the nodes of the polynomial through (0, nodes):
    V = (d0 T_k + Dn T)/dt and A = (d0 V_k + Dn V)/dt, so C = Dn², e = d0. The end velocity is projected to the
    tangent space (Ascher & Petzold, Projected implicit Runge-Kutta methods, 1991).

    Args:
        stages: 1, 2 or 3.

    Raises:
        OptionError: for another number.
    """
    if isinstance(stages, bool) or not isinstance(stages, numbers.Integral) or stages not in _RADAU_NODES:
        raise OptionError(f"radau({stages!r}): the number of stages must be 1, 2 or 3")
    nodes = np.array((0.0, *_RADAU_NODES[int(stages)]))
    D = _derivative_matrix(nodes)[1:]
    d0, Dn = D[:, 0], D[:, 1:]
    return Scheme(
        name=f"radau{int(stages)}",
        order=2 * int(stages) - 1,
        nodes=tuple(nodes[1:].tolist()),
        C=_rows(Dn @ Dn),
        e=tuple(d0.tolist()),
        D=_rows(Dn),
    )


def legendre(order: int = 2, *, start: str = "matched") -> Scheme:
    """The paper's position-based collocation of order K (section 3): accuracy K − 1. Here K = 2.

    One polynomial of degree K through the last interior node of the previous step, q_k and the new nodes; its
    second derivative is the acceleration. K = 2 is eq. (5) of the paper, (T_{k+1} − 2 T_k + T_{k−1})/dt².

    Args:
        order: K = 2.
        start: how the first history point is made from (q, v): "matched" keeps the order, "linear" is the
            literal q0 + node · dt · v0.

    Raises:
        OptionError: for another order or start.
    """
    if isinstance(order, bool) or order != 2:
        raise OptionError(
            f"legendre({order!r}): the order K must be 2 in this version; radau(2) is the accurate choice"
        )
    if start not in ("matched", "linear"):
        raise OptionError(f"legendre start={start!r}: choose 'matched' or 'linear'")
    points = np.array([-1.0, 0.0, 1.0])
    D = _derivative_matrix(points)
    DD = D @ D
    return Scheme(
        name=f"legendre{int(order)}",
        order=1,
        nodes=(1.0,),
        C=_rows(DD[2:, 2:]),
        e=(0.0,),
        c=tuple(DD[2:, 0].tolist()),
        D=_rows(D[2:, 2:]),
        d=tuple(D[2:, 0].tolist()),
        history_node=-1.0,
        start=start,
    )


def extrapolation(scheme: Scheme, ratio: jax.Array) -> jax.Array:
    """(m,m) weights: the polynomial through (0, 0) and the stages (α_j, z_j), read at ratio · α_i."""
    nodes = jnp.asarray((0.0, *scheme.nodes), ratio.dtype)
    at = ratio * nodes[1:]
    rows = []
    for j in range(1, len(nodes)):
        others = [k for k in range(len(nodes)) if k != j]
        factors = [(at - nodes[k]) / (nodes[j] - nodes[k]) for k in others]
        rows.append(jnp.prod(jnp.stack(factors), axis=0))
    return jnp.stack(rows, axis=1)


NAMES = {
    "radau1": lambda: radau(1),
    "radau2": lambda: radau(2),
    "radau3": lambda: radau(3),
    "legendre2": lambda: legendre(2),
}
