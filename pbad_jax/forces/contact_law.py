"""Contact of points and spheres of the bodies with a surface of the world: smooth penalty, smooth Coulomb friction.

For a sphere of radius r about P (r = 0: a point), with d(P) the signed distance and n its gradient,

    δ = r − d(P),  δ̇ = −n · V,   normal force  F n,  F = k ramp(δ) g(1 + χ δ̇),

by the law of one_sided.py: C¹ forces, nothing pulls, and damping acts only under pressure (Hunt and Crossley). So soft
a law carries what rests; what is small and fast it would let through. So it has a stop, one_sided.spring: from half of
the depth on at which the middle of one would be in the other it is soon 1e4 times as stiff.
Friction is lagged: with the elastic normal force N, the normal n and the touching point of the body all taken at the
start of the step,

    f = −μ N w/√(w² + s²),   w the tangential velocity of that point,

which is minus the gradient of a dissipation, so the Newton matrix of one stage stays symmetric (Li et al. 2020, IPC).
Nothing depends on dt: a block on a slope tan θ < μ creeps at s tan θ/√(μ² − tan² θ).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces import surfaces
from pbad_jax.forces.force import Guide, Instant, Load, Parts, in_parts
from pbad_jax.forces.one_sided import Tangent, expected_force, led, no_tangent, one_sided, spring
from pbad_jax.forces.pulls import Along, pulled
from pbad_jax.forces.regularised import Sliding, no_sliding, primal_dual_coulomb, smooth_coulomb
from pbad_jax.forces.turning import Duals, no_turning, turning_friction
from pbad_jax.math.small import identity_like, matmul, matvec, small_sum
from pbad_jax.model.model import Model

G0 = 9.81  # m/s², for the smooth start of the penalty
TAU = 0.01  # s, the time constant at which χ is 1 s/m and the stick speed 1 mm/s
STICK = 1e-3  # m/s


class Law(NamedTuple):
    """A force that depends on c clusters of k coordinates, and its slopes; see PointForces."""

    force: jax.Array  # (c,k)
    df_dP: jax.Array | None  # (c,k,k)
    df_dV: jax.Array
    modelled: jax.Array | None
    curving: jax.Array | None
    dual: Any


class Touch(NamedTuple):
    """Where normal forces push on bodies at one instant: c places."""

    links: Any  # (c,) of each, int
    place: jax.Array  # (c,3) m, about where the surfaces meet
    push: jax.Array  # (c,3) N


class Led(NamedTuple):
    """What leads a solve to the normal forces, see one_sided.led; each (c,), but () for `follows`."""

    expected: jax.Array  # m, distance
    last: Tangent
    follows: jax.Array
    mass: jax.Array


def normal_force(
    law: Any, reach: jax.Array, d: jax.Array, n: jax.Array, hessian: jax.Array, V: jax.Array, way: Led | None
) -> Law:
    """The normal forces F n where a distance d falls below `reach`, and their slopes.

    Args:
        law: whatever has stiffness, width and damping, (c,).
        reach: (c,) m. d: (c,) m, distances as functions of the k coordinates of what takes part.
        n: (c,k) their gradients. hessian: (c,k,k) their curvatures, 1/m. V: (c,k) the rates of the coordinates, m/s.
        way: on the way to a root.
    """
    depth, rate = reach - d, -small_sum(n * V)
    if way is None:
        f = one_sided(law, depth, rate)
    else:
        f = led(law, depth, rate, reach - way.expected, way.last, way.follows, way.mass)
    along = Along(f.force, -f.by_depth, -f.by_rate, f.modelled, f.curving)
    force, df_dP, df_dV, modelled, curving = pulled(along, n, hessian, matvec(hessian, V))
    assert force is not None and df_dV is not None
    return Law(force, df_dP, df_dV, modelled, curving, f.tangent)


def mobility_along(guide: Guide, links: np.ndarray | jax.Array, P: jax.Array, n: jax.Array) -> jax.Array:
    """(c,) 1/kg: how easily links (c,) by themselves are pushed at the points P (c,3) along n (c,3)."""
    wrench = jnp.concatenate([jnp.cross(P - guide.origin[links], n), n], axis=-1)
    return small_sum(wrench * matvec(guide.mobility[links], wrench))


def elastic_normal_force(law: Any, depth: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
    """N (c,) of penetrations (c,) without damping, and the unit normals of gradients n (c,3); see `normal_force`."""
    size = surfaces.safe_norm(n)  # 1 only where the distance is exact
    return spring(law, depth)[1] * size, n / jnp.where(size > 0, size, 1.0)[:, None]


def coulomb_friction(law: Any, N: jax.Array, n: jax.Array, V: jax.Array, guide: Guide | None, last) -> Law:
    """Smooth Coulomb friction under normal forces N (c,) along n (c,3) at relative velocities V (c,3), and its slope.

    `law` has friction (c,) and stick_speed (); `last` is the dual where there is a guide.
    """
    flat = identity_like(n) - n[:, :, None] * n[:, None, :]
    w, speed = matvec(flat, V), law.stick_speed[None, None]
    if guide is None:
        (direction, slope), dual = smooth_coulomb(w, speed), None
    else:
        direction, slope, dual = primal_dual_coulomb(w, speed, last, guide.trust)
    strength = -law.friction * N
    curving = None if dual is None else strength[:, None] * dual.u
    df_dV = strength[:, None, None] * matmul(slope, flat)
    return Law(strength[:, None] * direction, None, df_dV, None, curving, dual)


def contact_load(contact: Any, at: Instant) -> Load:
    """Of whatever has `conservative` and makes its normal forces and friction, each with its dual.

    Its `pressing(at)` are N (c,), n (c,3) and links (c,1) or (c,2), of which friction against turning is made where it
    has `turning`.
    """
    normal, tangent = contact._normal(at)
    if contact.conservative:
        return Load(point_forces=(normal,), dual=(tangent, None, None))
    friction, sliding = contact._friction(at)
    if contact.turning is None:
        return Load(point_forces=(normal, friction), dual=(tangent, sliding, None))
    last = None if at.guide is None else at.guide.dual[2]
    N, n, links = contact.pressing(at)
    turning, spinning = turning_friction(contact, N, n, links, at, last)
    return Load(point_forces=(normal, friction, turning), dual=(tangent, sliding, spinning))


def contact_duals(contact: Any, model: Model, c: int | None = None) -> tuple[Tangent, Sliding | None, Duals | None]:
    """A tangent, and directions of sliding and turning, of c pairs or points, by default of all, at the beginning."""
    c, dtype = len(contact.links) if c is None else c, model.dtype
    sliding = None if contact.conservative else no_sliding((c, 3), dtype)
    return no_tangent((c,), dtype), sliding, None if contact.turning is None else no_turning(c, dtype)


def distances_at(at: Instant) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The T of which `contact_parts` wants the depths: where it is, where the step began, what the guide expects."""
    assert at.guide is not None
    return at.T, at.start.T, at.guide.T


def contact_parts(load, law: Any, places: dict, depths: list[jax.Array], at: Instant) -> Parts:
    """Of a law of c places, arrays (c,...), that all have its `stick_speed`; `load(places, at)` is that of some.

    None acts of which all are apart, were so at the start of the step, and are not expected to push.
    """
    assert at.guide is not None
    here, began, expected = depths
    pushed = expected_force(law, here, expected, at.guide.dual[0])
    acts = ~((here < 0) & (began < 0) & (pushed <= 0))  # also what is no number
    places, duals, acts = jax.tree.map(in_parts, (places, at.guide.dual, acts))
    places["stick_speed"] = jnp.broadcast_to(law.stick_speed, len(acts))
    still = Tangent(*(jnp.zeros_like(x) for x in duals[0]))
    return Parts(load, places, jnp.any(acts, axis=1), duals, (still, *duals[1:]))


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


def below(P: jax.Array, push: jax.Array, radius: jax.Array) -> jax.Array:
    """Where a ball of that radius about P (c,3) touches what pushes it: P itself where nothing does."""
    size = surfaces.safe_norm(push)
    return P - (radius / jnp.where(size > 0, size, 1.0))[:, None] * push


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
