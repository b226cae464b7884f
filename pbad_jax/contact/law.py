"""Contact: the one-sided law along a gap, and smooth Coulomb friction across it.

A gap is a distance d of what touches, a function of a few points P of the links with the gradient n = ∂d/∂P: of a point
from a surface of the world (world.py), of two axes (bodies.py), of a point from a plane that another body
carries (shapes.py). With the reach r, below which the two overlap,

    δ = r − d(P),  δ̇ = −n · V,   normal force  F n,  F = k ramp(δ) g(1 + χ δ̇),

by the law of one_sided.py: C¹ forces, nothing pulls, and damping acts only under pressure (Hunt and Crossley). So soft
a law carries what rests; what is small and fast it would let through. So it has a stop, one_sided.spring: from half of
the depth on at which the middle of one would be in the other it is soon 1e4 times as stiff.
Friction is Coulomb's, by all of the normal force of the same instant (coulomb.py),

    f = −μ N w/√(w² + s²),   w the tangential velocity of the touching point,

of which only the point and the normal across which it slides are those of the start of the step. Nothing depends on
dt: a block on a slope tan θ < μ creeps at s tan θ/√(μ² − tan² θ).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.contact.cluster import Following, followers, turning_under
from pbad_jax.contact.coulomb import Expected, Rubbing, Slip, led_rubbing, no_slip, rubbing
from pbad_jax.contact.gap import Gap, depth_at, depths, links_of, points_of, unit
from pbad_jax.contact.pyramid import EDGES, expected_push, pushed
from pbad_jax.contact.torsion import Duals, no_turning, turning_friction
from pbad_jax.errors import ModelError
from pbad_jax.geometry.surfaces import safe_norm
from pbad_jax.laws.instant import Guide, Instant
from pbad_jax.laws.load import Load, Parts, PointForces, in_parts, place
from pbad_jax.laws.one_sided import Tangent, expected_force, led, no_tangent, one_sided, spring
from pbad_jax.laws.pulls import Along, pulled
from pbad_jax.laws.soft_end import SoftEnd, in_step
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.rotations import hat
from pbad_jax.math.small import identity_like, matmul, matvec, small_sum, transpose
from pbad_jax.model.model import Model

G0 = 9.81  # m/s², for the smooth start of the penalty
TAU = 0.01  # s, the time constant at which χ is 1 s/m and the stick speed 1 mm/s
STICK = 1e-3  # m/s


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Material:
    """What c contacts are made of; see the module."""

    stiffness: jax.Array  # (c,) N/m
    width: jax.Array  # (c,) m, of the smooth start
    damping: jax.Array  # (c,) χ, s/m
    friction: jax.Array  # (c,) μ
    stick_speed: jax.Array  # (c,) m/s
    turning: jax.Array | None  # (c,2) m, torsional and rolling friction
    room: jax.Array | None  # (c,) m, the depth at which the middle of one is in the other; None: nobody knows
    end: SoftEnd | None  # what the normal force is of instead of stiffness, width and damping; None: of these
    pyramid: bool = dataclasses.field(default=False, metadata=STATIC)  # friction by the edges of pyramid.py
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)


class Touch(NamedTuple):
    """Where normal forces push on bodies at one instant: c places."""

    links: Any  # (c,) of each, int
    place: jax.Array  # (c,3) m, about where the surfaces meet
    push: jax.Array  # (c,3) N


def material(contact: Any, room: jax.Array | None, share: float = 1.0) -> Material:
    """Of a contact's own fields; `share` of the stiffness where it is divided among places."""
    slow = jnp.broadcast_to(contact.stick_speed, contact.stiffness.shape)
    own = contact.width, contact.damping, contact.friction, slow, contact.turning, room
    pyramid = contact.pyramid and contact.end is not None
    return Material(share * contact.stiffness, *own, contact.end, pyramid, contact.conservative)


def pressing(gap: Gap, law: Material, at: Instant) -> tuple[jax.Array | float, Any]:
    """By how much an end has given way, (c,) m or 0, and the law of one_sided.py beyond that; none pulls."""
    if law.end is None:
        return 0.0, law
    given_way, pushes, held = in_step(law.end, lambda start: depth_at(gap, start, at), at)
    return given_way + held / pushes.stiffness, pushes


# --- the forces ------------------------------------------------------------------------------------------


def contact_load(gap: Gap, law: Material, at: Instant) -> Load:
    """Normal forces, friction across them and against turning, each with its dual."""
    if law.pyramid:
        return _pyramid_load(gap, law, at)
    P, V = points_of(gap, at.T), points_of(gap, at.V)
    (d, n, curvature), flat = gap.slopes(P, at), (len(P), -1)
    given_way, normal_law = pressing(gap, law, at)
    reach = gap.reach - given_way
    depth, rate = reach - d, -small_sum((n * V).reshape(flat))
    expected = None if at.guide is None else reach - gap.distance(points_of(gap, at.guide.T), at)
    mass = None if at.guide is None else 1 / _mobility(gap, at.guide, n[:, 0], at)

    # the normal force and what follows it
    more: list[Following] = []
    if law.conservative:
        N = one_sided(normal_law, depth, rate)
        if at.guide is not None and expected is not None:
            N = led(normal_law, depth, rate, expected, at.guide.dual[0], at.guide.rate, mass)
        dual = N.tangent, None, None
    else:
        N, more, dual = _with_friction(gap, law, normal_law, depth, rate, expected, mass, at)

    # pulled back to the points
    along = Along(N.force, -N.by_depth, -N.by_rate, N.modelled, N.curving)
    turning = matvec(curvature, V.reshape(flat))
    pulls = pulled(along, n.reshape(flat), curvature, turning)
    force, modelled, curving = (None if x is None else x.reshape(P.shape) for x in (pulls[0], *pulls[3:]))
    df_dP, df_dV = (None if x is None else x.reshape(*P.shape, *P.shape[1:]) for x in pulls[1:3])
    assert force is not None and df_dP is not None and df_dV is not None
    normal = PointForces(gap.links, gap.u, force, df_dP, df_dV, modelled, curving, gap.where)
    if not more:
        return Load(point_forces=(normal,), dual=dual)
    by_P = (-N.by_depth[:, None] * n.reshape(flat) - N.by_rate[:, None] * turning).reshape(P.shape)
    by_V = -N.by_rate[:, None, None] * n
    return Load(point_forces=(normal, *followers(normal, more, by_P, by_V, gap.bodies)), dual=dual)


def _pyramid_load(gap: Gap, law: Material, at: Instant) -> Load:
    """The same where edges push."""
    assert law.end is not None
    edges = pushed(gap, law.friction, law.end, at)
    if law.turning is None:
        return Load(point_forces=(edges.points,), dual=(edges.tangent, None, None))
    n, links, guide = unit(gap.touching(at).n), links_of(gap)[:, gap.bodies], at.guide
    turns = turning_friction(law, n, links, at, None if guide is None else guide.dual[2])
    under = turning_under(turns, edges.normal, 1.0 if guide is None else guide.trust)
    follow = followers(edges.points, [under], edges.by_P, jnp.zeros_like(edges.by_P), gap.bodies)
    return Load(point_forces=(edges.points, *follow), dual=(edges.tangent, None, turns.dual))


def _with_friction(gap: Gap, law: Material, normal_law: Any, depth, rate, expected, mass, at: Instant):
    """The normal force (OneSided), the forces that follow it, and the duals."""
    touch, links, guide = gap.touching(at), links_of(gap)[:, gap.bodies], at.guide
    n, rubs = unit(touch.n), Rubbing(law.friction * safe_norm(touch.n), law.stick_speed)

    # the tangential velocity of the first body against the second, where they touched at the start of the step
    sides = jnp.asarray([1.0, -1.0], n.dtype)[: touch.u.shape[1]]
    across = identity_like(n) - n[:, :, None] * n[:, None, :]

    def relative(T: jax.Array) -> jax.Array:
        return matvec(across, small_sum(sides[None, :, None] * place(T, links, touch.u), axis=1))

    w = relative(at.V)
    if guide is None:
        N, friction = rubbing(normal_law, rubs, depth, rate, w)
    else:
        w_expected = w + guide.rate * relative(guide.T - at.T)
        tangent, slip, _ = guide.dual
        sliding_mass = 1 / _sliding_mobility(links, touch.u, across, at)
        e = Expected(expected, w_expected, tangent, slip, mass, sliding_mass, guide.rate, guide.trust)
        N, friction = led_rubbing(normal_law, rubs, depth, rate, w, e)

    # the same on both bodies, with opposite signs
    def on_each(x: jax.Array) -> jax.Array:
        return sides[None, :, None] * x[:, None]

    by_V = jnp.einsum("i,j,cab->ciajb", sides, sides, matmul(friction.by_w, across))
    led_to = (None if x is None else on_each(x) for x in (friction.modelled, friction.curving))
    more = [Following(touch.u, on_each(friction.force), on_each(friction.by_normal), by_V, *led_to)]
    if law.turning is None:
        return N, more, (N.tangent, friction.dual, None)
    turns = turning_friction(law, n, links, at, None if guide is None else guide.dual[2])
    return (
        N,
        [*more, turning_under(turns, N, 1.0 if guide is None else guide.trust)],
        (N.tangent, friction.dual, turns.dual),
    )


def contact_duals(law: Material, c: int) -> tuple[Tangent, Slip | None, Duals | None]:
    """A tangent, the linear model of friction, and directions of turning, of c places, at the beginning."""
    dtype = law.stiffness.dtype
    tangent = no_tangent((c, EDGES) if law.pyramid else (c,), dtype)
    slip = None if law.conservative or law.pyramid else no_slip(c, dtype)
    return tangent, slip, None if law.turning is None else no_turning(c, dtype)


def contact_parts(gap: Any, law: Material, at: Instant) -> Parts:
    """Some of c places at a time.

    None acts of which all are apart, were so at the start of the step, and are not expected to push.
    """
    assert at.guide is not None
    gap = dataclasses.replace(gap, links=(), where=jnp.asarray(links_of(gap)))

    # where they are, where the step began, what the guide expects
    here, began, expected = (gap.reach - gap.distance(points_of(gap, T), at) for T in (at.T, at.start.T, at.guide.T))
    if law.pyramid:
        assert law.end is not None
        push = expected_push(gap, law.friction, law.end, at)
    else:
        given_way, normal_law = pressing(gap, law, at)
        push = expected_force(normal_law, here - given_way, expected - given_way, at.guide.dual[0])
    acts = ~((here < 0) & (began < 0) & (push <= 0))  # also what is no number

    some, duals, acts = jax.tree.map(in_parts, ((gap, law), at.guide.dual, acts))
    still = Tangent(*(jnp.zeros_like(x) for x in duals[0]))

    def load(some: tuple[Gap, Material], at: Instant) -> Load:
        gap, law = some
        return contact_load(gap, law, at)

    return Parts(load, some, jnp.any(acts, axis=1), duals, (still, *duals[1:]))


def stored_energy(gap: Gap, law: Material, at: Instant) -> jax.Array:
    """k ∫ramp(δ), J, and what the stop has."""
    return jnp.sum(spring(law, depths(gap, at))[0])


def is_spring(contact: Any) -> bool:
    """Whether a contact only takes energy beside its own, which of an end with an inertia nobody knows."""
    return contact.end is None


def energy_of_spring(contact: Any) -> Callable[[Model, Instant], jax.Array] | None:
    """Its `stored`, as the potential; None of an end with an inertia."""
    return contact.stored if contact.end is None else None


def touches(gap: Gap, law: Material, at: Instant) -> Touch:
    """Where the bodies are pushed, one after the other."""
    P, links = points_of(gap, at.T), links_of(gap)[:, gap.bodies]
    frictionless = law if law.pyramid else dataclasses.replace(law, conservative=True)
    f = contact_load(gap, frictionless, dataclasses.replace(at, guide=None)).point_forces[0].force[:, : P.shape[1]]
    in_order = lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])  # noqa: E731
    return Touch(in_order(jnp.asarray(links)), in_order(gap.pushed(P, f)), in_order(f[:, gap.bodies]))


def _mobility(gap: Gap, guide: Guide, n: jax.Array, at: Instant) -> jax.Array:
    """(c,) 1/kg: how easily the bodies by themselves are pushed apart along n (c,3)."""
    P, links, total = points_of(gap, at.start.T), links_of(gap), jnp.zeros_like(n[:, 0])
    for k in range(P.shape[1])[gap.bodies]:
        wrench = jnp.concatenate([jnp.cross(P[:, k] - guide.origin[links[:, k]], n), n], axis=-1)
        total = total + small_sum(wrench * matvec(guide.mobility[links[:, k]], wrench))
    return total


def _sliding_mobility(links: np.ndarray | jax.Array, u: jax.Array, across: jax.Array, at: Instant) -> jax.Array:
    """(c,) 1/kg: how easily they are pushed along one another at u (c,b,4), ‖W‖ of W (3,3) across the normal."""
    assert at.guide is not None
    P, W = place(at.start.T, links, u) - at.guide.origin[links], jnp.zeros_like(across)
    for b in range(u.shape[1]):
        wrench = jnp.concatenate([-matmul(across, hat(P[:, b])), across], axis=-1)  # rows (P × e, e)
        W = W + matmul(wrench, matmul(at.guide.mobility[links[:, b]], transpose(wrench)))
    return jnp.sqrt(small_sum(small_sum(W * W)))


def below(P: jax.Array, push: jax.Array, radius: jax.Array) -> jax.Array:
    """Where a ball of that radius about P (...,3) touches what pushes it: P itself where nothing does."""
    size = safe_norm(push)
    return P - (radius / jnp.where(size > 0, size, 1.0))[..., None] * push


# --- numbers ---------------------------------------------------------------------------------------------


def parameters(
    kind: str, mass: np.ndarray, tau, friction, stiffness, smoothing, damping, stick_speed, unit: float = TAU
) -> dict[str, np.ndarray]:
    """The numbers of a contact as the fields of Contact: (c,) each, and stick_speed ().

    What moves alike at another size has speeds that go as its time constants: so do the defaults, χ as 1/τ.

    Args:
        kind: the maker's name, for the errors.
        mass: (c,) kg. tau: () or (c,) s, > 0; both set the stiffness where it is None.
        friction: () or (c,). unit: s, the τ at which χ is 1 s/m and the stick speed 1 mm/s. The others as in `contact`.

    Raises:
        ModelError: negative or zero values.
    """
    one = np.ones(len(mass))
    k = mass / (tau * one) ** 2 if stiffness is None else one * checks.above_zero(stiffness, f"stiffness of {kind}")
    width = G0 * mass / k if smoothing is None else one * checks.above_zero(smoothing, f"smoothing of {kind}")
    mu = one * np.asarray(friction, float)
    if not np.all(mu >= 0):
        raise ModelError(f"friction of {kind} is {np.min(mu):g}; it must be ≥ 0, or it would drive. Change its sign.")
    scale = tau * one / unit
    chi, slow = 1 / scale, np.asarray(STICK * np.mean(scale))
    if damping is not None:
        chi = one * checks.at_least_zero(damping, f"damping of {kind}", "or it makes energy")
    if stick_speed is not None:
        slow = np.asarray(checks.above_zero(stick_speed, f"stick_speed of {kind}"))
    return {"stiffness": k, "width": width, "damping": chi, "friction": mu, "stick_speed": slow}


def is_elastic(numbers: dict[str, np.ndarray], turning: np.ndarray | None) -> bool:
    """Whether a contact with these parameters is conservative: without damping and friction."""
    return not numbers["damping"].any() and not numbers["friction"].any() and turning is None


def turning_numbers(kind: str, turning: Any, c: int) -> np.ndarray | None:
    """Torsional and rolling friction, (2,) or (c,2) m or None, as the field of c places; None where all are 0.

    Raises:
        ModelError: another shape, negative values.
    """
    if turning is None:
        return None
    both = np.asarray(turning, float)
    if both.shape not in ((2,), (c, 2)) or not np.all(both >= 0):
        raise ModelError(f"turning of {kind} is {turning!r:.60}; it must be (torsional, rolling) friction, m, each ≥ 0")
    return np.broadcast_to(both, (c, 2)) if both.any() else None
