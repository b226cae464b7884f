"""The scalar functions that make one-sided laws smooth: values and slopes by hand, no division by zero."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.math.small import identity_like, small_sum, transpose


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


class Sliding(NamedTuple):
    """The dual of dry friction, at one iterate."""

    u: jax.Array  # (...,k) the direction that it stands for, |u| ≤ 1
    w: jax.Array  # (...,k) the velocity there
    size: jax.Array  # (...,1) √(w² + s²); inf: there was none


def no_sliding(shape: tuple[int, ...], dtype) -> Sliding:
    """Before the first iterate, of velocities of that shape."""
    zero = jnp.zeros(shape, dtype)
    return Sliding(zero, zero, jnp.full((*shape[:-1], 1), jnp.inf, dtype))


def smooth_coulomb(w: jax.Array, speed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """w/√(w² + s²) of vectors w (...,k), and its slope (...,k,k): Coulomb's direction, smooth below the speed s > 0."""
    size = jnp.sqrt(small_sum(w * w, keepdims=True) + speed**2)
    direction = w / size
    return direction, (identity_like(w) - direction[..., :, None] * direction[..., None, :]) / size[..., None]


def primal_dual_coulomb(
    w: jax.Array, speed: jax.Array, last: Sliding, trust: jax.Array
) -> tuple[jax.Array, jax.Array, Sliding]:
    """`smooth_coulomb` with the slope of the primal-dual method of Chan, Golub and Mulet (1999), and the next dual.

    Newton's method on w/|w|, |w| = √(w² + s²), crawls or cycles for small s. Linearised as a pair, |w| u = w with a u
    of its own, it does not:

        slope = (1 − ½ (u wᵀ + w uᵀ)/|w|)/|w|,   u⁺ = (w⁺ − u wᵀ(w⁺ − w)/|w|)/|w|, scaled back to |u⁺| ≤ 1,

    Newton's where u = w/|w|, as at a root; u = 0 gives the secant, which never overshoots. So `trust` u, with
    a trust () ≤ 1, stands for u where steps have been too long.
    """
    size = jnp.sqrt(small_sum(w * w, keepdims=True) + speed**2)
    along = small_sum(last.w * (w - last.w), keepdims=True)
    u = (w - last.u * along / last.size) / last.size
    u = u / jnp.maximum(1.0, jnp.sqrt(small_sum(u * u, keepdims=True)))
    uw = trust * u[..., :, None] * w[..., None, :]
    slope = (identity_like(w) - 0.5 * (uw + transpose(uw)) / size[..., None]) / size[..., None]
    return w / size, slope, Sliding(u, w, size)
