"""Judges of steps: mechanics that knows nothing of the solver. Each says of n steps which claims are false, (n,) bool.

A step is judged by its two ends: what energy no force explains, what impulse and moment nothing can have given, how far
joints and bodies went. `followed` finds the root again by many small strides from a step of no length. What a scheme
errs by itself is allowed: it grows with the square of the turn that a step makes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from mechanics import residual_and_matrix

import pbad_jax as pbad
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.stage import equation
from pbad_jax.stage.start import step_start
from pbad_jax.step.closing_impulse import divided, is_closed_by_one

Array = np.ndarray
LEAP = 0.3  # rad or m
ALONG = np.linspace(0, 1, 51)[:, None, None]  # fractions of a way


class Mechanics(NamedTuple):
    """Of states; leading axes any."""

    T: Any  # () J
    U: Any  # () J, of all forces that have one
    P: Any  # (3,) kg m/s
    L: Any  # (3,) kg m²/s about the centre of mass
    com: Any  # (3,) m


class Steps(NamedTuple):
    """n steps by their ends."""

    dt: Array  # (n,) s
    mass: Array  # (n,) kg
    weight: Array  # (n,3) N, all that pulls on the whole from without
    before: Mechanics
    after: Mechanics
    v0: Array  # (n,nv)
    v1: Array  # (n,nv)
    moved: Array  # (n,nv) the increment of q


class Touching(NamedTuple):
    """How one free body touches what stands still, by round points of its own."""

    points: Array  # (c,3) m, in the body's frame
    radius: float  # m, of every point
    friction: Array  # (n,) μ
    is_level: Array  # (n,) whether it is ground, whose normal is z


def mechanics(model: pbad.Model, state: pbad.State) -> Mechanics:
    """Of one state."""
    P = pbad.linear_momentum(model, state)
    com = transforms.center_of_mass(model, transforms.transforms(model, state.q))
    L = pbad.angular_momentum(model, state) - jnp.cross(com, P)
    return Mechanics(pbad.kinetic_energy(model, state), pbad.potential_energy(model, state), P, L, com)


def size(x: Array) -> Array:
    return np.linalg.norm(x, axis=-1)


def gain(s: Steps) -> Array:
    """What no force explains, as a fraction of the energy that there was or that was set free."""
    a, b = s.before, s.after
    return (b.T + b.U - a.T - a.U) / (a.T + np.abs(b.U - a.U) + 1e-3 * s.mass)


def makes_energy(s: Steps, allowed: Array | float, loose: float, settles: bool = False) -> Array:
    """loose: of all energy there is, which is not known better. settles: what falls in a step is at stake, too."""
    a, b = s.before, s.after
    made = b.T + b.U - a.T - a.U - loose * (a.T + b.T + np.abs(a.U) + np.abs(b.U))
    fall = 0.5 * (size(s.weight) * s.dt) ** 2 / s.mass if settles else 0.0
    return made > allowed * (a.T + np.abs(b.U - a.U) + 1e-3 * s.mass + fall)


def changes_momentum(s: Steps, loose: float) -> Array:
    """Of the whole, beyond its weight; `loose`: relative."""
    J = s.after.P - s.before.P - s.weight * s.dt[:, None]
    return size(J) > loose * (size(s.before.P) + size(s.after.P) + size(s.weight) * s.dt + 1e-3 * s.mass)


def changes_spin(s: Steps, turn: Array, loose: float, swept: Array | float = 0.0) -> Array:
    """Of the whole about its centre of mass; turn (n,) rad, at most, of a body; swept (n,) kg m²/s: m v times a way."""
    allowed = (loose + turn**2) * np.maximum(size(s.before.L), size(s.after.L)) + swept
    grown = size(s.after.L) > 1.3 * size(s.before.L) + swept + loose * s.mass
    return (size(s.after.L - s.before.L) > allowed + loose * 1e-3 * s.mass) | grown


def turns_too_far(s: Steps, hinges: Array, loose: float) -> Array:
    """A hinge turns by its mean rate, ± half of both, ± half a turn, and by less than a turn."""
    a, b, moved = ((x * s.dt[:, None])[:, hinges] for x in (s.v0, s.v1, s.moved / s.dt[:, None]))
    off = np.abs(moved - (a + b) / 2) > (np.abs(a) + np.abs(b)) / 2 + np.pi * (1 + loose)
    return np.any(off | (np.abs(a + b) / 2 > 2 * np.pi * (1 + loose)), axis=-1)


def goes_through(a: Array, b: Array, distance: Callable[[Array], Array], radius: float, share: float) -> Array:
    """Whether a ball of `radius` goes straight from a to b (n,3) with its middle deeper than at both ends.

    distance: of points (..., n, 3). share: of the radius, by which it may be deeper (docs/mathematics.md).
    """
    way = distance(a + ALONG * (b - a))
    ends = np.minimum(np.minimum(way[0], way[-1]), radius)
    return ends - way.min(axis=0) > share * radius


def wrong_wrench(s: Steps, t: Touching, turn: Array, loose: float) -> dict[str, Array]:
    """What contact has given a body, against what it can give: one-sided, within its cone, from points that touch."""
    J = s.after.P - s.before.P - s.weight * s.dt[:, None]
    K = s.after.L - s.before.L
    some = loose * (size(s.before.P) + size(s.after.P) + size(s.weight) * s.dt + 1e-3 * s.mass)
    # friction by the normal force of the step: no more than μ times all that contact has given, on ground along z;
    # against what is bent friction may be across another normal than that force is along
    arm, reach = size(t.points).max(), size(t.points).max() + t.radius
    lever = (arm + (arm + t.radius) * t.friction) * size(J)
    own = turn**2 * np.maximum(size(s.before.L), size(s.after.L))
    plain = t.is_level | (t.friction == 0)
    found = {"moment": plain & (size(K) > (1 + loose) * lever + own + reach * some)}
    found["pulled"] = t.is_level & (J[:, 2] < -some)
    found["cone"] = t.is_level & (size(J[:, :2]) > (1 + loose) * t.friction * np.maximum(J[:, 2], 0) + some)
    if len(t.points) == 1 and not t.points.any():  # a ball: its moment is that of its friction
        down = np.array([0, 0, -t.radius])
        slip = np.c_[J[:, :2], 0 * s.dt]
        off = size(K - np.cross(down, slip))
        found["balance"] = t.is_level & (off > own + (2 * turn + loose) * t.radius * size(slip) + reach * some)
    return found


def followed(
    model: pbad.Model, scheme: pbad.Scheme, state: pbad.State, dt, strides, control=None
) -> tuple[jax.Array, jax.Array]:
    """The end (nq,) of a step, by so many strides in its length, and the last correction, rad or m: is it a root?

    For collocations without history; Newton's method as it is, no damping. Infinite where a stride had to be corrected
    by more than LEAP: there the root turns back, and what Newton's method finds beyond is some other.
    """
    s = step_start(model, state, jnp.zeros(model.nu, model.dtype) if control is None else control)
    still = jnp.broadcast_to(manifold.identity_increment(model), (scheme.m, model.nq))

    def corrected(z, h):
        eq = equation.collocation(model, scheme, jnp.asarray(h * dt, model.dtype), s, None)
        if is_closed_by_one(model, scheme) and eq.impulse is not None:
            eq = eq._replace(impulse=divided(eq.impulse))
        r, J = residual_and_matrix(model, s, eq, z)
        delta = -jnp.linalg.solve(J, r)
        moved = jax.vmap(lambda z, d: manifold.retract(model, z, d))(z, delta.reshape(scheme.m, -1))
        return moved, jnp.max(jnp.abs(delta))

    def stride(k, carry):
        last, z, _, leapt = carry
        on = jax.vmap(lambda a, b: manifold.retract(model, b, manifold.difference(model, a, b)))(last, z)
        h = (k + 1) / strides
        for _ in range(2):
            on, by = corrected(on, h)
            leapt |= ~(by < LEAP)
        return z, *corrected(on, h), leapt

    begun = (still, still, jnp.zeros((), model.dtype), jnp.zeros((), bool))
    _, z, by, leapt = jax.lax.fori_loop(0, strides, stride, begun)
    return manifold.compose_increment(model, state.q, z[-1]), jnp.where(leapt, jnp.inf, by)
