"""The law of everything that pushes one way only, contact and joint limits, and how a solve is led to its root.

    F(δ, δ̇) = k ramp(δ) g(1 + χ δ̇)

of a depth δ; ramp and g of smoothing.py. It is stiff: linearised where a trial happens to be, it is enormous as soon
as the curvature of the motion has carried a light leg a millimetre into the ground, and zero where it has carried it
out: Newton's method falls in and out of contact. So kinematics and law are linearised at different places (Moreau;
primal-dual active sets; the method of multipliers). The last linear model expected a depth and, by the law's tangent,
a force λ; before the first of a step what lies still is expected to press as it did, and of the rest nothing. The law
is linearised at the depth y where a mass m would come to rest that λ presses on from the depth δ,

    y + F(y)/σ = δ + λ/σ,   σ = m/dt²,   λ = max(0, the last tangent at the expected depth),

m the mass that the point has by itself. The linear model has F(y) + F'(y) (δ − y) for the force, which is F(δ) at the
root, where y = δ; and in the curvature of the motion F(y): the force that will act, not the one that would act here.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.laws.smoothing import ramp, smooth_positive_part

ITERATIONS = 4  # of Newton's method for y
BELOW = 4 / 27  # by which s exceeds g(s) at most
STILL = 0.25  # of the law's width, by how much the first guess moves what lies still
STOP = 1e4  # how many times as stiff is what has used up its room
FREE = 0.5  # of the room, what the soft law has to itself
SOFT = 0.125  # of the room, after which it is


class Tangent(NamedTuple):
    """The dual: the last tangent of the law, F ≈ offset + slope δ, each (c,); slope inf: there was none."""

    offset: jax.Array
    slope: jax.Array


def excesses(x: jax.Array, bounds: jax.Array) -> list[tuple[float, jax.Array]]:
    """Of both ends (..., 2) of a range the side, and by how much x (...) is beyond: −1 where the end is ±inf."""
    out = []
    for side, end in ((-1.0, bounds[..., 0]), (1.0, bounds[..., 1])):
        free = jnp.isinf(end)
        out.append((side, jnp.where(free, -1.0, side * (x - jnp.where(free, 0.0, end)))))
    return out


class OneSided(NamedTuple):
    """A force (c,) and its slopes by depth and rate; and where a solve is led, those of its linear model."""

    force: jax.Array  # F(δ)
    by_depth: jax.Array
    by_rate: jax.Array
    modelled: jax.Array | None = None  # F(y) + F'(y) (δ − y)
    curving: jax.Array | None = None  # F(y)
    tangent: Tangent | None = None

    def less(self, held: jax.Array) -> "OneSided":
        """The same force less (c,) N, whatever moves."""
        modelled, curving = (None if f is None else f - held for f in (self.modelled, self.curving))
        return self._replace(force=self.force - held, modelled=modelled, curving=curving)


def spring(law: Any, depth: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Energy, elastic force and its slope at depths (c,) of a law with stiffness and width, (c,).

    k ramp(δ), which is made for what rests. Where the law has a `room` (c,) m, the depth at which the middle of one is
    in the other (inf or 0: nobody knows), a parabola is added from half of it on, an eighth later STOP times as stiff.
    """
    k, room = law.stiffness, getattr(law, "room", None)
    energy, force, slope = ramp(depth, law.width)
    if room is not None:
        room = jnp.where(room > 0, room, jnp.inf)
        y, stiff = jnp.maximum(depth - FREE * room, 0.0), STOP / (SOFT * room)
        energy, force, slope = energy + stiff * y**3 / 6, force + stiff * y * y / 2, slope + stiff * y
    return k * energy, k * force, k * slope


def no_tangent(shape: tuple[int, ...], dtype) -> Tangent:
    """Before the first iterate."""
    return Tangent(jnp.zeros(shape, dtype), jnp.full(shape, jnp.inf, dtype))


def expected_of(last: Tangent, began: jax.Array, depth: jax.Array) -> jax.Array:
    """What was expected of a depth that is linear in the unknowns: what is there; at first what it `began` with."""
    return jnp.where(jnp.isinf(last.slope), began, depth)


def one_sided(law: Any, depth: jax.Array, rate: jax.Array) -> OneSided:
    """F and its slopes; `law` has stiffness, width and damping, (c,) as depth (m, rad) and rate, and perhaps `room`."""
    _, elastic, slope = spring(law, depth)
    g, g_slope = smooth_positive_part(1 + law.damping * rate)
    return OneSided(elastic * g, slope * g, elastic * g_slope * law.damping)


def led(law: Any, depth: jax.Array, rate: jax.Array, expected: jax.Array, last: Tangent, follows, mass) -> OneSided:
    """The same with the linear model of the module.

    Args:
        law, depth, rate: as in `one_sided`.
        expected: (c,) the depth that the last linear model expected; before the first, that at the start of the step.
        last: its tangent.
        follows: () 1/s, by how much the rate follows the depth. mass: (c,) kg or kg m².
    """
    # y + F(y)/σ = δ + λ/σ: where m comes to rest under λ; the rate follows the depth
    sigma = mass * follows**2
    target = depth + expected_force(law, depth, expected, last) / sigma

    def law_at(y: jax.Array) -> OneSided:
        return one_sided(law, y, rate + follows * (y - depth))

    def too_far(y: jax.Array, f: OneSided) -> jax.Array:
        return y + f.force / sigma - target

    # begin just beyond y, or at the expected depth, whichever is nearer: at a root that is y
    y = _from_above(law, depth, rate, target, sigma, follows)
    near = jnp.abs(too_far(expected, law_at(expected))) < jnp.abs(too_far(y, law_at(y)))
    y = jnp.where(near, expected, y)  # as it is at a root, to rounding

    # Newton's method for y
    for _ in range(ITERATIONS):
        f = law_at(y)
        y = y - too_far(y, f) / (1 + (f.by_depth + follows * f.by_rate) / sigma)
    f = law_at(y)

    # the tangent at y, from which the next iterate expects its force
    slope = f.by_depth + follows * f.by_rate
    tangent = Tangent(f.force - slope * y, slope)

    # F(δ) for the residual; for the linear model F(y) + F'(y) (δ − y), and F(y) in the curvature
    here = one_sided(law, depth, rate)
    return OneSided(here.force, f.by_depth, f.by_rate, f.force + slope * (depth - y), f.force, tangent)


def expected_force(law: Any, depth: jax.Array, expected: jax.Array, last: Tangent) -> jax.Array:
    """λ ≥ 0."""
    first, lies = jnp.isinf(last.slope), jnp.abs(depth - expected) < STILL * law.width
    pressed = jnp.where(lies, spring(law, expected)[1], 0.0)
    led_to = last.offset + jnp.where(first, 0.0, last.slope) * expected
    return jnp.where(first, pressed, jnp.maximum(0.0, led_to))


def _from_above(law: Any, depth, rate, target, sigma, follows) -> jax.Array:
    """At least y, mostly little more: the lesser of two in closed form, whose forces are at most F."""
    p, stiff, more = jnp.maximum(target, 0.0), law.stiffness / sigma, law.damping * follows
    c = 1.0 + law.damping * (rate - follows * depth)  # 1 + χ δ̇ at δ = 0
    a = stiff * smooth_positive_part(c)[0]  # g as at δ = 0
    within = 2.0 * p / (1.0 + jnp.sqrt(1.0 + 2.0 * a * p / law.width))
    one = jnp.where(within < law.width, within, (p + 0.5 * a * law.width) / (1.0 + a))
    c = c - BELOW  # no smooth starts: k (y − w/2) (c + χ δ̇)
    a, half = stiff * more, 0.5 * law.width
    b, d = 1.0 + stiff * (c - more * half), p + stiff * c * half
    root = jnp.sqrt(jnp.maximum(b * b + 4.0 * a * d, 0.0))
    other = jnp.where(b > 0, 2.0 * d / (b + root), (root - b) / jnp.where(a > 0, 2.0 * a, 1.0))
    other = jnp.maximum(other, jnp.maximum(half, jnp.where(a > 0, -c / jnp.where(more > 0, more, 1.0), 0.0)))
    return jnp.where(target > 0, jnp.minimum(jnp.minimum(one, other), p), target)
