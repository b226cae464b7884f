"""Forces along tendons and joints, made from names and checked.

A tendon is a fixed one, {joint: coefficient} of hinges and slides, or a path straight between sites.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pbad_jax import checks
from pbad_jax.checks import each, ranges, table
from pbad_jax.errors import ModelError
from pbad_jax.laws.drives import chosen
from pbad_jax.laws.lengths import Coupling, Joints, Tendons
from pbad_jax.laws.line_force import LineForce
from pbad_jax.laws.line_laws import Friction, Limit, Polynomial, Spring
from pbad_jax.laws.paths import Path, Paths, paths
from pbad_jax.model.joints import JointInfo
from pbad_jax.model.model import Model, check_model

Tendon = Mapping[str, float]  # joint -> coefficient
Some = Tendon | Path | Sequence[Tendon] | Sequence[Path]
TINY = 1e-30  # the least of what must be above zero


def lengths(model: Model, tendons: Some, what: str = "lengths") -> Tendons | Paths:
    """The lengths of tendons, for a law of one's own. (All joints of a model are `Joints()`, of (nv,) numbers.)

    Args:
        model: the model. tendons: as in `tendon_spring`; a hinge or slide by itself is {joint: 1.0}.
        what: the maker that asks, for its errors.

    Raises:
        ModelError: as in `tendon_spring`.

    Example:
        >>> law = forces.Damping(jnp.array([0.3]))
        >>> forces.LineForce(forces.lengths(hand, ("hand", "wall")), law).name
        'SpatialTendonDamping'
    """
    return _lengths(model, tendons, what)[0]


def tendon_spring(
    model: Model, tendons: Some, *, stiffness: Any = 0.0, rest: Any = 0.0, damping: Any = 0.0
) -> LineForce:
    """Springs and dampers along tendons; see `Spring`.

    Args:
        model: the model.
        tendons: one, or a list of n, all of one kind. A fixed one is {joint: coefficient} of hinges and slides. A path
            is a tuple of names of sites, or Sites, one after the other; a number in it begins a new branch beyond a
            pulley, whose length counts one over that divisor.
        stiffness, damping: N/m and N s/m, ≥ 0: one number, or (n,).
        rest: the length at which it is slack: one number, or (n,2), a range for each.

    Raises:
        ModelError: an unknown joint, one that is neither hinge nor slide, an unknown site or body, fewer than two sites
            in a row, a divisor ≤ 0, bad numbers.

    Example:
        >>> sprung = pbad.with_forces(arm, forces.tendon_spring(arm, {"joint0": 1.0, "joint1": 1.0}, stiffness=5.0))
        >>> bent = pbad.make_state(sprung, [0.2, 0.4])
        >>> round(float(pbad.potential_energy(sprung, bent) - pbad.potential_energy(arm, bent)), 3)
        0.9
        >>> band = forces.tendon_spring(hand, ("hand", "wall"), stiffness=50.0, rest=2.0)
        >>> banded = pbad.with_forces(hand, band)
        >>> round(float(pbad.potential_energy(banded, pbad.make_state(banded))), 3)
        -18.227
    """
    along, n = _lengths(model, tendons, "tendon_spring")
    k, d = (each(x, n, f"{name} of tendon_spring") for x, name in ((stiffness, "stiffness"), (damping, "damping")))
    ends, leaf = rest_lengths(along, rest, n, "rest of tendon_spring"), checks.leaf(model.dtype)
    return LineForce(along, Spring(leaf(k), leaf(ends), leaf(d), conservative=not d.any()))


def tendon_polynomial(
    model: Model, tendons: Some, *, stiffness=(0.0, 0.0), damping=(0.0, 0.0), rest: Any = 0.0
) -> LineForce:
    """Springs and dampers of second and third degree along tendons; see `Polynomial` and `tendon_spring`.

    stiffness, damping: (2,) or (n,2); damping ≥ 0.

    Example:
        >>> bow = forces.tendon_polynomial(hand, ("hand", "wall"), stiffness=(0.0, 20.0), rest=2.0)
        >>> bow.name, pbad.with_forces(hand, bow).forces[-1].law.rest
        ('SpatialTendonPolynomial', Array([[2., 2.]], dtype=float64))
    """
    what = "tendon_polynomial"
    along, n = _lengths(model, tendons, what)
    k, d = (table(x, (n, 2), f"{name} of {what}") for x, name in ((stiffness, "stiffness"), (damping, "damping")))
    if np.any(d < 0):
        raise ModelError(f"damping of {what} is {d.min():g}; it must be ≥ 0, or it would drive. Change its sign.")
    ends, leaf = rest_lengths(along, rest, n, f"rest of {what}"), checks.leaf(model.dtype)
    return LineForce(along, Polynomial(leaf(k), leaf(ends), leaf(d), not d.any()))


def tendon_friction(model: Model, tendons: Some, loss, *, stick_speed: Any = 1e-2) -> LineForce:
    """Dry friction along tendons; see `Friction` and `tendon_spring`.

    loss: N, ≥ 0. stick_speed: m/s, > 0, below which it is viscous.

    Example:
        >>> pbad.with_forces(arm, forces.tendon_friction(arm, {"joint0": 1.0}, 0.2)).forces[-1].length.coefficient
        Array([[1., 0.]], dtype=float64)
        >>> forces.tendon_friction(hand, ("hand", "wall"), 0.2).law.loss
        Array([0.2], dtype=float64)
    """
    along, n = _lengths(model, tendons, "tendon_friction")
    speed = each(stick_speed, n, "stick_speed of tendon_friction", least=TINY)
    leaf = checks.leaf(model.dtype)
    return LineForce(along, Friction(leaf(each(loss, n, "loss of tendon_friction")), leaf(speed)))


def tendon_limit(model: Model, tendons: Some, range, *, stiffness, width: Any = 0.01, damping: Any = 1.0) -> LineForce:
    """Soft ends of tendons, which are ropes where they are paths; see `Limit` and `tendon_spring`.

    range: (low, high), or (n,2); ±inf = free. stiffness: N/m. width: m, > 0, over which it comes in. damping: χ, s/m.

    Example:
        >>> limit = forces.tendon_limit(arm, {"joint0": 1.0, "joint1": 1.0}, (-1.0, 1.0), stiffness=100.0)
        >>> ended = pbad.with_forces(arm, limit)
        >>> ended.forces[-1].law.range
        Array([[-1.,  1.]], dtype=float64)
        >>> rope = forces.tendon_limit(hand, ("hand", "wall"), (0.0, 2.5), stiffness=1e4)
        >>> pbad.with_forces(hand, rope).forces[-1].name
        'SpatialTendonLimit'
    """
    along, n = _lengths(model, tendons, "tendon_limit")
    ends = ranges(range, n, "range of tendon_limit")
    k, d = (each(x, n, f"{name} of tendon_limit") for x, name in ((stiffness, "stiffness"), (damping, "damping")))
    w = each(width, n, "width of tendon_limit", least=TINY)
    leaf = checks.leaf(model.dtype)
    return LineForce(along, Limit(leaf(ends), leaf(k), leaf(w), leaf(d)))


def tendon_coupling(
    model: Model,
    tendons: Some,
    others: Some | None = None,
    *,
    stiffness,
    damping: Any = 0.0,
    polynomial: Any = (0.0, 1.0, 0.0, 0.0, 0.0),
    offset: Any = (0.0, 0.0),
) -> LineForce:
    """Stiff springs between the lengths of two tendons; see `Coupling` and `tendon_spring`.

    others: as many tendons, of the same kind; None holds the first ones at offset₁ + polynomial₀. stiffness: N/m.
    damping: N s/m. polynomial: (5,) or (n,5). offset: (2,) or (n,2).

    Example:
        >>> gear = forces.tendon_coupling(arm, {"joint0": 1.0}, {"joint1": 2.0}, stiffness=100.0)
        >>> geared = pbad.with_forces(arm, gear)
        >>> geared.forces[-1].name
        'TendonCouplingSpring'
    """
    what = "tendon_coupling"
    one, n = _lengths(model, tendons, what)
    other, m = (one, n) if others is None else _lengths(model, others, f"others of {what}")
    if m != n:
        raise ModelError(f"{what}: {n} tendons and {m} others; give as many of both")
    if type(one) is not type(other):
        raise ModelError(f"{what}: fixed tendons and paths between sites; couple two of one kind")
    p, o = table(polynomial, (n, 5), f"polynomial of {what}"), table(offset, (n, 2), f"offset of {what}")
    if others is None:
        p = p * np.eye(5)[0]
    k, d = (each(x, n, f"{name} of {what}") for x, name in ((stiffness, "stiffness"), (damping, "damping")))
    return coupled(one, other, leaf=checks.leaf(model.dtype), offset=o, polynomial=p, stiffness=k, damping=d)


def coupled(one: Any, other: Any, *, leaf, offset, polynomial, stiffness, damping) -> LineForce:
    """A stiff spring along the Coupling of two lengths; numbers (n,...) become leaves."""
    spring = Spring(leaf(stiffness), leaf(np.zeros(len(offset))), leaf(damping), conservative=not np.any(damping))
    return LineForce(Coupling(one, other, leaf(offset), leaf(polynomial)), spring)


spatial_tendon_spring, spatial_tendon_limit = tendon_spring, tendon_limit  # one function for either kind


def joint_polynomial(
    model: Model, joints: str | Sequence[str] | None = None, *, stiffness=(0.0, 0.0), damping=(0.0, 0.0), rest=None
) -> LineForce:
    """Springs and dampers of second and third degree; see the class.

    Args:
        model: the model.
        joints: a name or names; None: all that move.
        stiffness, damping: (2,) for all of them, or one row for each of the joints, of second and third degree.
        rest: one number for each of the joints, rad or m, where its spring is at rest; default what `model.q0` has.

    Raises:
        ModelError: an unknown or fixed joint, a spring on a joint that is neither hinge nor slide, negative damping,
            bad numbers.

    Example:
        >>> spring = forces.joint_polynomial(arm, "joint1", stiffness=(0.0, 2.0), damping=(0.1, 0.0))
        >>> stiff = pbad.with_forces(arm, spring)
        >>> stiff.forces[-1].name
        'JointPolynomial'
    """
    check_model(model)
    what, which = "joint_polynomial", chosen(model, joints, "joint_polynomial")
    # coefficients of every joint, and where its spring is at rest
    k, d = (_rows(x, len(which), f"{n} of {what}") for x, n in ((stiffness, "stiffness"), (damping, "damping")))
    if np.any(d < 0):
        raise ModelError(f"damping of {what} is {d.min():g}; it must be ≥ 0, or it would drive. Change its sign.")
    q0 = checks.of_model(model, "q0")
    given = [q0[j.q] for j in which] if rest is None else checks.vector(rest, len(which), f"rest of {what}")
    # spread over the degrees of freedom
    springs, dampers, at_rest = np.zeros((model.nv, 2)), np.zeros((model.nv, 2)), np.zeros(model.nv)
    for i, joint in enumerate(which):
        if k[i].any() and joint.type not in ("hinge", "slide"):
            raise ModelError(
                f"stiffness of {what}: joint {joint.name!r} is of type {joint.type}; wanted hinge or slide"
            )
        own = slice(joint.v, joint.v + joint.nv)
        springs[own], dampers[own], at_rest[own] = k[i], d[i], given[i]
    leaf = checks.leaf(model.dtype)
    return LineForce(Joints(), Polynomial(leaf(springs), leaf(at_rest), leaf(dampers), not dampers.any()))


# --- checked ---------------------------------------------------------------------------------------------------


def _lengths(model: Model, tendons: Some, what: str) -> tuple[Tendons | Paths, int]:
    """One tendon or n, fixed or between sites; and n."""
    check_model(model)
    one = isinstance(tendons, Mapping | tuple) and not isinstance(next(iter(tendons), None), Mapping | tuple)
    given = [tendons] if one and tendons else tendons
    if not isinstance(given, list | tuple) or not given:
        wanted = "{joint: coefficient}, a tuple of sites, or a list of either"
        raise ModelError(f"tendons of {what} are {tendons!r:.60}; wanted {wanted}")
    if all(isinstance(x, tuple) for x in given):
        return paths(model, list(given), what), len(given)
    if any(isinstance(x, tuple) for x in given):
        raise ModelError(f"tendons of {what} are of both kinds; give {{joint: coefficient}} and paths of sites apart")
    return Tendons(checks.leaf(model.dtype)(tendon_rows(model.topology.joints, given, what))), len(given)


def tendon_rows(joints: Sequence[JointInfo], tendons, what: str) -> np.ndarray:
    """Coefficients (m,nv) of one tendon or m.

    Raises:
        ModelError: no {joint: coefficient}, an unknown joint, one that is neither hinge nor slide, no finite number.
    """
    tendons = [tendons] if isinstance(tendons, Mapping) else tendons
    if not isinstance(tendons, list | tuple) or not tendons:
        raise ModelError(f"tendons of {what} are {tendons!r:.60}; wanted {{joint: coefficient}}, or a list of them")
    rows = np.zeros((len(tendons), sum(j.nv for j in joints)))
    for row, tendon in zip(rows, tendons):
        if not isinstance(tendon, Mapping) or not tendon:
            raise ModelError(f"tendon of {what} is {tendon!r:.60}; wanted {{joint: coefficient}} of at least one joint")
        for name, c in tendon.items():
            joint = joints[checks.known(name, [j.name for j in joints], f"joint in a tendon of {what}")]
            if joint.type not in ("hinge", "slide"):
                raise ModelError(
                    f"tendon of {what}: joint {name!r} is of type {joint.type}; a tendon is of hinges and slides"
                )
            row[joint.v] = checks.number(c, f"coefficient of joint {name!r} in a tendon of {what}")
    return rows


def rest_lengths(along: Tendons | Paths, rest: Any, n: int, what: str) -> np.ndarray:
    """(n,2), of paths at least zero."""
    ends = ranges(rest, n, what)
    if isinstance(along, Paths) and np.any(ends < 0):
        raise ModelError(f"{what} is {ends.min():g}; the length of a path is at least zero")
    return ends


def _rows(x, count: int, what: str) -> np.ndarray:
    """(count,2) of one row for all, or of one for each."""
    x = checks.array(x, what, "two numbers")
    if x.shape not in ((2,), (count, 2)) or not np.all(np.isfinite(x)):
        raise ModelError(f"{what} is {x.tolist()!r:.60}; wanted (2,) or ({count}, 2) finite numbers")
    return np.broadcast_to(x, (count, 2))
