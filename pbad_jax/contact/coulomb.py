"""Coulomb's friction by the normal force of the same instant, all of it, and how a solve is led to both.

    f = −μ N w/√(w² + s²),   N = F(δ, δ̇) of one_sided.py, w the tangential velocity, s the stick speed

In a blow the damping carries most of N, and what lands slides: with any N but this, friction is missing in the step of
landing. N is led to its root as in one_sided.py: linearised at a depth y. Friction is in the same way: with the force
λ that the last linear model expected, brought back into the cone |λ| ≤ μ λ_N, it is linearised at the velocity ω at
which a mass m would slide if friction acted on it instead of λ,

    ω + μ F(y) h/m ω/√(ω² + s²) = w − λ h/m,   h = 1/rate,

so that what sticks is expected to stick, and what slides to slide. At a root ω = w. By how much f follows N is part of
the linear model, and makes its matrix unsymmetric; a share `trust` of it is taken.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.laws.one_sided import OneSided, Tangent, expected_force, led, one_sided
from pbad_jax.laws.smoothing import smooth_coulomb
from pbad_jax.math.small import matvec, small_sum

ITERATIONS = 5  # of Newton's method for |ω|


class Slip(NamedTuple):
    """The dual: the last linear model, f ≈ offset + by_depth δ + by_w w."""

    offset: jax.Array  # (c,3) N
    by_depth: jax.Array  # (c,3) N/m
    by_w: jax.Array  # (c,3,3) N s/m


class Friction(NamedTuple):
    """A friction force (c,3), and its slopes; where a solve is led, those of its linear model."""

    force: jax.Array
    by_normal: jax.Array  # (c,3) ∂f/∂N
    by_w: jax.Array  # (c,3,3) N s/m
    modelled: jax.Array | None = None  # (c,3)
    curving: jax.Array | None = None  # (c,3)
    dual: Slip | None = None


class Expected(NamedTuple):
    """What the last linear model expected, and how a place moves by itself."""

    depth: jax.Array  # (c,) m
    w: jax.Array  # (c,3) m/s
    normal: Tangent
    slip: Slip
    mass: jax.Array  # (c,) kg, along the normal
    sliding_mass: jax.Array  # (c,) kg, across it
    rate: jax.Array  # () 1/s, by how much velocities follow positions
    trust: jax.Array  # ()


class Rubbing(NamedTuple):
    """What surfaces are across a normal force."""

    friction: jax.Array  # (c,) μ
    stick_speed: jax.Array  # (c,) m/s


def no_slip(c: int, dtype) -> Slip:
    """Before the first iterate."""
    zero = jnp.zeros((c, 3), dtype)
    return Slip(zero, zero, jnp.zeros((c, 3, 3), dtype))


def rubbing(law: Any, rubs: Rubbing, depth: jax.Array, rate: jax.Array, w: jax.Array) -> tuple[OneSided, Friction]:
    """Normal force by the `law` of one_sided.py, and friction."""
    N = one_sided(law, depth, rate)
    direction, slope = smooth_coulomb(w, rubs.stick_speed[:, None])
    by_normal = -rubs.friction[:, None] * direction
    return N, Friction(N.force[:, None] * by_normal, by_normal, -(rubs.friction * N.force)[:, None, None] * slope)


def led_rubbing(
    law: Any, rubs: Rubbing, depth: jax.Array, rate: jax.Array, w: jax.Array, e: Expected
) -> tuple[OneSided, Friction]:
    """The same with the linear model of the module."""
    N = led(law, depth, rate, e.depth, e.normal, e.rate, e.mass)
    assert N.curving is not None and N.tangent is not None
    here = N.force[:, None] * -rubs.friction[:, None] * smooth_coulomb(w, rubs.stick_speed[:, None])[0]

    # λ, in the cone of the normal force that was expected
    most = rubs.friction * expected_force(law, depth, e.depth, e.normal)
    expected = e.slip.offset + e.slip.by_depth * e.depth[:, None] + matvec(e.slip.by_w, e.w)
    size = jnp.sqrt(small_sum(expected * expected))
    expected = jnp.where(size > most, most / jnp.where(size > 0, size, 1.0), 1.0)[:, None] * expected

    # where it would slide under that
    gives = 1 / (e.rate * e.sliding_mass)
    grip = rubs.friction * N.curving
    omega = sliding(w - gives[:, None] * expected, gives * grip, rubs.stick_speed)
    direction, slope = smooth_coulomb(omega, rubs.stick_speed[:, None])

    # the linear model there
    by_normal, by_w = -rubs.friction[:, None] * direction, -grip[:, None, None] * slope
    f, by_normal = N.curving[:, None] * by_normal, e.trust * by_normal
    by_depth = N.tangent.slope[:, None] * by_normal
    y = (N.curving - N.tangent.offset) / jnp.where(N.tangent.slope > 0, N.tangent.slope, 1.0)
    dual = Slip(f - by_depth * y[:, None] - matvec(by_w, omega), by_depth, by_w)
    modelled = dual.offset + by_depth * depth[:, None] + matvec(by_w, w)
    return N, Friction(here, by_normal, by_w, modelled, f, dual)


def sliding(target: jax.Array, grip: jax.Array, speed: jax.Array) -> jax.Array:
    """ω (c,3) with ω + grip ω/√(ω² + s²) = target, for grip (c,) ≥ 0 and s > 0, all m/s.

    r + grip r/√(r² + s²) of its size r is concave: Newton's method rises to the root, from the lesser of two bounds.
    """
    square = small_sum(target * target)
    size = jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)
    least = jnp.maximum(size - grip, size * speed / (speed + grip))
    share = jnp.minimum(size, grip) / jnp.where(grip > 0, grip, 1.0)
    stuck = speed * share / jnp.sqrt(jnp.maximum(1 - share * share, 1e-30))  # r in the root is s at most
    r = jnp.clip(jnp.minimum(stuck, jnp.maximum(size - grip, 0.0) + jnp.cbrt(0.5 * grip * speed**2)), least, size)
    for _ in range(ITERATIONS):
        q = jnp.sqrt(r * r + speed**2)
        r = r - (r + grip * r / q - size) / (1 + grip * speed**2 / q**3)
        r = jnp.clip(r, least, size)
    return (r / jnp.where(size > 0, size, 1.0))[:, None] * target
