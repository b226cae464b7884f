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

e and h the motions of the oscillator from 1 and 0, and from 0 and 1; and by Euler's implicit rule where it acts as a
blow at the start of the step, as with radau(1), or as a blow of a share s of its impulse,

    κ = k + d/t + m/(s t²),   κ x̂ = (d/t + m/(s t²)) x₀ + m ẋ₀/(s t).

Resting, x₀ = x and ẋ₀ = 0, every one of them is k x, whatever the step.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.laws.force import Instant

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


def in_step(end: SoftEnd, began: jax.Array, rate: jax.Array, at: Instant) -> tuple[jax.Array, Pressing]:
    """max(0, x̂) (n,), less half of the smooth start so that what presses presses as much, and the law beyond it.

    Args:
        began, rate: (n,) x₀ and ẋ₀ at the start of the step.
    """
    if at.elapsed is None:  # in no step: as it rests
        there, kappa = jnp.zeros_like(began), end.stiffness
    else:
        there, kappa = _exactly(end, began, rate, at.elapsed) if at.kick is None else _kicked(end, began, rate, at)
    width = START * end.inertia / kappa
    return jnp.maximum(there, 0.0) - 0.5 * width, Pressing(kappa, width, jnp.zeros_like(kappa))


def _kicked(end: SoftEnd, began: jax.Array, rate: jax.Array, at: Instant) -> tuple[jax.Array, jax.Array]:
    """x̂ and κ by Euler's rule, under a blow."""
    t, share = at.elapsed, at.kick
    assert t is not None and share is not None
    by_rate, by_acceleration = end.stiffness * end.relaxation / t, end.inertia / (share * t**2)
    kappa = end.stiffness + by_rate + by_acceleration
    return ((by_rate + by_acceleration) * began + by_acceleration * t * rate) / kappa, kappa


def _exactly(end: SoftEnd, began: jax.Array, rate: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """x̂ and κ under an even force: the motion exp(−a t) of cos, cosh or neither of √|ω² − a²| t."""
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
    return e * began + h * rate, end.stiffness / left
