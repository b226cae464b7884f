"""The scalar functions that make one-sided laws smooth: values and slopes by hand, no division by zero."""

import jax
import jax.numpy as jnp

from pbad_jax.math.small import short_sum

FAR = 30.0  # stick speeds from which on sticking is not tried


def ramp(x: jax.Array, width: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """∫ramp, ramp and its slope: 0 below 0, x²/2w up to the width w > 0, x − w/2 beyond. The integral is C²."""
    y = jnp.clip(x, 0.0, width)
    over = jnp.maximum(x - width, 0.0)
    energy = y**3 / (6 * width) + over * (0.5 * width + 0.5 * over)
    return energy, y * y / (2 * width) + over, y / width


def positive(y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Y where y ≥ 1, 0 where y ≤ 0, y²(2 − y) between, and its slope: a positive part that is C¹ and exact at rest."""
    x = jnp.clip(y, 0.0, 1.0)
    over = jnp.maximum(y - 1.0, 0.0)
    return x * x * (2 - x) + over, jnp.where(y > 1.0, 1.0, x * (4 - 3 * x))


def sliding(w: jax.Array, speed: jax.Array, bend: str = "exact") -> tuple[jax.Array, jax.Array]:
    """W/√(w² + s²) of vectors w (...,k), and its slope (...,k,k): Coulomb's direction, smooth below the speed s > 0.

    bend: "exact"; "chord", the slope of the chord from zero instead; "straight", w/s where w is below FAR s, as if the
    middle went on for ever.
    """
    eye = jnp.eye(w.shape[-1], dtype=w.dtype)
    size = jnp.sqrt(short_sum(w * w, keepdims=True) + speed**2)
    direction = w / size
    chord = eye / size[..., None]
    if bend == "chord":
        return direction, chord
    slope = (eye - direction[..., :, None] * direction[..., None, :]) / size[..., None]
    if bend == "exact":
        return direction, slope
    near = size < FAR * speed
    return jnp.where(near, w / speed, direction), jnp.where(near[..., None], eye / speed[..., None], slope)
