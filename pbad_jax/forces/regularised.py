"""The scalar functions that make one-sided laws smooth: values and slopes by hand, no division by zero."""

import jax
import jax.numpy as jnp

from pbad_jax.math.small import identity_like, small_sum

FAR = 30.0  # stick speeds from which on sticking is not tried


def ramp(x: jax.Array, width: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """∫ramp, ramp and its slope: 0 below 0, x²/2w up to the width w > 0, x − w/2 beyond. The integral is C²."""
    y = jnp.clip(x, 0.0, width)
    over = jnp.maximum(x - width, 0.0)
    energy = y**3 / (6 * width) + over * (0.5 * width + 0.5 * over)
    return energy, y * y / (2 * width) + over, y / width


def smooth_positive_part(y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """y where y ≥ 1, 0 where y ≤ 0, y²(2 − y) between, and its slope: a positive part that is C¹ and exact at rest."""
    x = jnp.clip(y, 0.0, 1.0)
    over = jnp.maximum(y - 1.0, 0.0)
    return x * x * (2 - x) + over, jnp.where(y > 1.0, 1.0, x * (4 - 3 * x))


def smooth_coulomb(w: jax.Array, speed: jax.Array, regime: str = "tangent") -> tuple[jax.Array, jax.Array]:
    """w/√(w² + s²) of vectors w (...,k), and its slope (...,k,k): Coulomb's direction, smooth below the speed s > 0.

    regime: "tangent"; "secant", the slope of the secant from zero instead; "stick", w/s where w is below FAR s, as if
    the middle went on for ever.
    """
    eye = identity_like(w)
    size = jnp.sqrt(small_sum(w * w, keepdims=True) + speed**2)
    direction = w / size
    secant = eye / size[..., None]
    if regime == "secant":
        return direction, secant
    slope = (eye - direction[..., :, None] * direction[..., None, :]) / size[..., None]
    if regime == "tangent":
        return direction, slope
    near = size < FAR * speed
    return jnp.where(near, w / speed, direction), jnp.where(near[..., None], eye / speed[..., None], slope)
