"""Ends that give way as MuJoCo's constraints do: an inertia on a spring and a damper, which goes with what pushes.

Of what is at the excess x beyond an end, and as fast, the end takes an inertia m along, and pushes back with

    F = (k x + d ẋ + m ẍ)₊,   d = k T.

At rest it gives way as the spring alone; a blow it takes as slowly as the three move together. In a step, the end by
itself is an oscillator that begins with x₀ and ẋ₀. Left alone it would be at x̂ after the time t; pushed all the time by
F it is at x̂ + F/κ. So the law of a step is a spring κ from where the end would be, or from its rest where that is not
beyond it,

    F = κ (x − max(0, x̂))₊,

a function of positions that asks for no acceleration. The end is stepped as what pushes it: exactly where a force acts
all along the step,

    x̂ = e(t) x₀ + h(t) ẋ₀,   κ = k/(1 − e(t)),

e and h the motions of the oscillator from 1 and 0, and from 0 and 1, for the time t since x₀, or since it would be
there at the speed ẋ₀ where it is not yet (then x₀ = 0); and by Euler's implicit rule where it acts as a blow at the
start of the step, as with radau(1), or as a blow of a share s of its impulse,

    κ = k + d/t + m/(s t²),   κ x̂ = (d/t + m/(s t²)) x₀ + m ẋ₀/(s t).

An even force that leaves x where the end is leaves it with another velocity: F is large at first. So the blow at the
end of a step (step/closing_impulse.py) makes that good. It is the same, with the velocity of the end ẋ̂ + F h/m for ẋ₀,
less what its inertia has of the share s of F; and where F pushed, the blow may pull, by what is left of half of F: that
half, at the start of the step, would have moved x as far.

    ẋ₀ → (1 − s) (ẋ̂ + F h/m) + s ẋ₀,   F' = κ (x − x̂ + H/κ)₊ − H,   H = F (½ − s)/s.

Resting, x₀ = x and ẋ₀ = 0, every one of them is k x, whatever the step.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.one_sided import spring

START = 0.1  # m/s² or rad/s², of the inertia: over which the force begins
NEAR = 1e-4  # of (ω t)², below which both ends of a motion that hardly swings are the same


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SoftEnd:
    """The numbers of n ends.

    Example:
        >>> end = forces.SoftEnd(stiffness=jnp.array([500.0]), relaxation=jnp.array([0.04]), inertia=jnp.array([0.2]))
        >>> float(end.inertia[0])
        0.2
    """

    stiffness: jax.Array  # (n,) k, N/m or N m/rad
    relaxation: jax.Array  # (n,) T, s
    inertia: jax.Array  # (n,) m, kg or kg m²


def has_inertia(force: Any) -> bool:
    """Whether a force, or its law, has such ends."""
    return isinstance(getattr(getattr(force, "law", force), "end", None), SoftEnd)


class Pressing(NamedTuple):
    """The law of a step as one_sided.py has it, of depths beyond x̂."""

    stiffness: jax.Array  # (n,) κ
    width: jax.Array  # (n,), of the smooth start
    damping: jax.Array  # (n,) 0


class Motion(NamedTuple):
    """How ends move in a step by themselves, and when pushed."""

    there: jax.Array  # (n,) max(0, x̂)
    rate: jax.Array  # (n,) its velocity
    began: jax.Array  # (n,) ẋ₀
    kappa: jax.Array  # (n,) κ, N/m: a force moves them by 1/κ
    gains: jax.Array  # (n,) 1/kg s, by how much their velocity follows a force
    drawn: jax.Array  # (n,) c: drawn along evenly by 1 by what the spring does not feel, they come to where c would be


class InStep(NamedTuple):
    """The law of a step: F = κ (x − given way)₊ − held."""

    given_way: jax.Array  # (n,) less half of the smooth start, so that what presses presses as much
    law: Pressing
    held: jax.Array  # (n,) N


def in_step(end: SoftEnd, was: Callable[[Start], tuple[jax.Array, jax.Array]], at: Instant) -> InStep:
    """The law at an instant of a step, and that of the blow at its end.

    Args:
        was: of the start of a step, x and ẋ (n,).
    """
    began, rate = was(at.start)
    if at.before is None:
        return along_step(end, motion(end, began, rate, at))
    by = motion(end, *was(at.before.start), at.before)
    step = along_step(end, by)
    return closing(end, by, spring(step.law, began - step.given_way)[1], began, rate, at)


def along_step(end: SoftEnd, by: Motion) -> InStep:
    """Where nothing is held."""
    law = _law(end, by.kappa)
    return InStep(by.there - 0.5 * law.width, law, jnp.zeros_like(by.there))


def closing(end: SoftEnd, by: Motion, F: jax.Array, x: jax.Array, rate: jax.Array, at: Instant) -> InStep:
    """The law of the blow at the end of a step: what was pushed by F comes along with the end.

    Args:
        by: of the step. F: (n,) what it pushed with. x, rate: (n,) at its end, before the blow.
    """
    assert at.kick is not None
    # where it goes, less what its inertia has of the share of F that is this blow
    follows, goes = F > 0, by.rate + by.gains * F
    after = _kicked(end, x, jnp.where(follows, goes - at.kick * (goes - by.began), rate), at)
    held = jnp.where(follows, F * (0.5 - at.kick) / at.kick, 0.0)
    there = jnp.where(follows, after.there, jnp.maximum(after.there, 0.0)) - held / after.kappa
    law = _law(end, after.kappa)
    return InStep(there - 0.5 * law.width, law, held)


def _law(end: SoftEnd, kappa: jax.Array) -> Pressing:
    """The law beyond x̂."""
    return Pressing(kappa, START * end.inertia / kappa, jnp.zeros_like(kappa))


def motion(end: SoftEnd, began: jax.Array, rate: jax.Array, at: Instant) -> Motion:
    """Of the step to an instant, from x₀ and ẋ₀ (n,) at its start; in no step as it rests."""
    if at.elapsed is None:
        zero = jnp.zeros_like(began + rate)
        return Motion(zero, zero, zero, end.stiffness, zero, zero)
    by = _exactly(end, began, rate, at.elapsed) if at.kick is None else _kicked(end, began, rate, at)
    beyond = by.there > 0
    return by._replace(there=jnp.where(beyond, by.there, 0.0), rate=jnp.where(beyond, by.rate, 0.0))


def _kicked(end: SoftEnd, began: jax.Array, rate: jax.Array, at: Instant) -> Motion:
    """By Euler's rule, under a blow; x̂ as it is."""
    t, share = at.elapsed, at.kick
    assert t is not None and share is not None
    by_rate, by_acceleration = end.stiffness * end.relaxation / t, end.inertia / (share * t**2)
    kappa = end.stiffness + by_rate + by_acceleration
    there = ((by_rate + by_acceleration) * began + by_acceleration * t * rate) / kappa
    return Motion(there, (there - began) / t, rate, kappa, 1 / (kappa * t), (by_rate + by_acceleration) / kappa)


def _exactly(end: SoftEnd, began: jax.Array, rate: jax.Array, t: jax.Array) -> Motion:
    """Under an even force; x̂ as it is, what is not there yet beginning with ẋ₀ when it would arrive."""
    comes = (began < 0) & (rate > 0)
    since = jnp.maximum(t + began / jnp.where(comes, rate, 1.0), 0.0)
    late, meets = jnp.where(began < 0, jnp.where(comes, since, 0.0), t), jnp.maximum(began, 0.0)
    e, h, _, slows = _swing(end, late)
    square = end.stiffness / end.inertia
    there, moving = e * meets + h * rate, slows * rate - square * h * meets
    _, whole, left, _ = _swing(end, jnp.broadcast_to(t, late.shape))
    drawn = end.relaxation * left / t + whole / t
    return Motion(jnp.where(late > 0, there, 0.0), moving, rate, end.stiffness / left, whole / end.inertia, drawn)


def _swing(end: SoftEnd, t: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """e, h in s, 1 − e and ḣ at the times t (n,): exp(−a t) times cos, cosh or neither of √|ω² − a²| t."""
    square = end.stiffness / end.inertia  # ω², 1/s²
    a = 0.5 * square * end.relaxation  # 1/s
    swing = (square - a**2) * t**2
    angle = jnp.sqrt(jnp.where(jnp.abs(swing) > NEAR, jnp.abs(swing), NEAR))

    # exp(−a t) times cos and sin, or cosh and sinh, by the angle; none of them overflows
    fast, slow = jnp.exp(-a * t - angle), jnp.exp(-a * t + jnp.where(swing < 0, angle, 0.0))
    even = jnp.exp(-a * t)
    c = jnp.where(swing > NEAR, even * jnp.cos(angle), 0.5 * (slow + fast))
    s = jnp.where(swing > NEAR, even * jnp.sin(angle), 0.5 * (slow - fast)) / angle
    c = jnp.where(jnp.abs(swing) > NEAR, c, even * (1 - swing / 2))
    s = jnp.where(jnp.abs(swing) > NEAR, s, even * (1 - swing / 6))

    e, h = c + a * t * s, t * s
    left = jnp.where(square * t**2 > NEAR, 1 - e, 0.5 * square * t**2 * (1 - 2 * a * t / 3))
    return e, h, left, e - 2 * a * h
