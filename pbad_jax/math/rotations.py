"""Rotations: quaternions (w,x,y,z), rotation vectors, and the matrices [a] of cross products. Knows no model.

Small products are written as multiply-and-sum (small.py), which XLA fuses; a `dot` of 4 by 4 matrices would be one
library call each.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.math.small import identity_like, matmul, small_sum


def hat(a: jax.Array) -> jax.Array:
    """[a] with [a] b = a × b; (...,3) to (...,3,3)."""
    x, y, z = a[..., 0], a[..., 1], a[..., 2]
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([o, -z, y], -1), jnp.stack([z, o, -x], -1), jnp.stack([-y, x, o], -1)], -2)


def vee(A: jax.Array) -> jax.Array:
    """Twice the vector of the antisymmetric part of A, such that <[w], A> = w · vee A for every w."""
    return jnp.stack([A[..., 2, 1] - A[..., 1, 2], A[..., 0, 2] - A[..., 2, 0], A[..., 1, 0] - A[..., 0, 1]], -1)


def rotation_minus_identity(p: jax.Array) -> jax.Array:
    """R(p) − E for quaternions p (...,4) = (w,x,y,z), without cancellation near the identity.

    R − E = s (w [u] + [u]²), s = 2/|p|², u the vector part; p need not be normalised.
    """
    w, u = p[..., :1, None], p[..., 1:]
    s = 2.0 / small_sum(p * p)[..., None, None]
    uu = u[..., :, None] * u[..., None, :]
    return s * (w * hat(u) + uu - small_sum(u * u)[..., None, None] * identity_like(u))


def rotation(p: jax.Array) -> jax.Array:
    """The rotation matrix (...,3,3) of quaternions (...,4) = (w,x,y,z)."""
    return rotation_minus_identity(p) + identity_like(p[..., 1:])


def rotation_numpy(p) -> np.ndarray:
    """`rotation` of one quaternion (4,) in numpy: float64, whatever JAX's precision."""
    p = np.asarray(p, float)
    w, x, y, z = p
    U = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 / (p @ p) * (w * U + U @ U)


def quaternion_product(p: jax.Array, r: jax.Array) -> jax.Array:
    """p ⊗ r, quaternions (...,4) in the order (w,x,y,z)."""
    a, u, b, v = p[..., :1], p[..., 1:], r[..., :1], r[..., 1:]
    return jnp.concatenate([a * b - small_sum(u * v, keepdims=True), a * v + b * u + jnp.cross(u, v)], axis=-1)


def quaternion_inverse(p: jax.Array) -> jax.Array:
    """The conjugate of unit quaternions (...,4)."""
    return p * jax.lax.broadcast_to_rank(jnp.array([1, -1, -1, -1], p.dtype), p.ndim)


def normalise(p: jax.Array) -> jax.Array:
    """p/|p| along the last axis."""
    return p / jnp.linalg.norm(p, axis=-1, keepdims=True)


def _small(square: jax.Array) -> jax.Array:
    """True where θ² is so small that the series below are exact to rounding."""
    return square < jnp.finfo(square.dtype).eps ** 0.5


def quaternion_exp(w: jax.Array) -> jax.Array:
    """The unit quaternion (...,4) of a rotation vector w (...,3) rad. Smooth at zero."""
    square = small_sum(w * w, keepdims=True)
    small = _small(square)
    theta = jnp.sqrt(jnp.where(small, 1.0, square))
    sinc = jnp.where(small, 0.5 - square / 48, jnp.sin(theta / 2) / theta)
    cos = jnp.where(small, 1 - square / 8 + square * square / 384, jnp.cos(theta / 2))
    return jnp.concatenate([cos, sinc * w], axis=-1)


def quaternion_log(p: jax.Array) -> jax.Array:
    """The rotation vector (...,3), |w| ≤ π, of unit quaternions (...,4). Smooth at the identity."""
    p = jnp.where(p[..., :1] < 0, -p, p)
    square = small_sum(p[..., 1:] ** 2, keepdims=True)
    small = _small(square)
    s = jnp.sqrt(jnp.where(small, 1.0, square))
    w = p[..., :1]
    safe = jnp.where(small, 1.0, w)  # w is near 1 in the small branch
    factor = jnp.where(small, 2 / jnp.where(small, w, 1.0) - (2 / 3) * square, 2 * jnp.arctan2(s, safe) / s)
    return factor * p[..., 1:]


def right_jacobian(w: jax.Array) -> jax.Array:
    """Jr (...,3,3) with exp(w + ε) = exp(w) exp(Jr ε): E − (1 − cos θ)/θ² [w] + (θ − sin θ)/θ³ [w]²."""
    square = small_sum(w * w)[..., None, None]
    small = square < 1e-4
    safe = jnp.where(small, 1.0, square)
    theta = jnp.sqrt(safe)
    a = jnp.where(small, 0.5 - square / 24 + square**2 / 720, (1 - jnp.cos(theta)) / safe)
    b = jnp.where(small, 1 / 6 - square / 120 + square**2 / 5040, (theta - jnp.sin(theta)) / (theta * safe))
    W = hat(w)
    return identity_like(w) - a * W + b * matmul(W, W)


def right_jacobian_inverse(w: jax.Array) -> jax.Array:
    """∂ log(exp(w) exp(δ))/∂δ at δ = 0, (...,3,3): E + [w]/2 + c(θ) [w]²."""
    square = small_sum(w * w)[..., None, None]
    small = square < 0.05  # the closed form cancels below; the series is exact to 1e-15 there
    theta = jnp.sqrt(jnp.where(small, 1.0, square))
    half = theta / 2
    s = jnp.where(small, square, 0.0)
    series = 1 / 12 + s * (1 / 720 + s * (1 / 30240 + s * (1 / 1209600 + s / 47900160)))
    c = jnp.where(small, series, (1 - half * jnp.cos(half) / jnp.sin(half)) / theta**2)
    W = hat(w)
    return identity_like(w) + 0.5 * W + c * matmul(W, W)


def quaternion_of(R: jax.Array) -> jax.Array:
    """The unit quaternion (...,4), w ≥ 0, of rotation matrices (...,3,3).

    A row of 4 p pᵀ, which is linear in R, the one with the largest diagonal entry: no cancellation anywhere.
    """
    d = jnp.stack([R[..., k, k] for k in range(3)], axis=-1)
    trace = small_sum(d, keepdims=True)
    u = vee(R)
    s = R + jnp.swapaxes(R, -1, -2)
    rows = [jnp.concatenate([1 + trace, u], axis=-1)]
    for k in range(3):
        own = (1 - trace + 2 * d[..., k : k + 1])[..., 0]
        entries = [own if j == k else s[..., k, j] for j in range(3)]
        rows.append(jnp.stack([u[..., k], *entries], axis=-1))
    table = jnp.stack(rows, axis=-2)
    largest = jnp.argmax(jnp.concatenate([trace, 2 * d - trace], axis=-1), axis=-1)
    p = jnp.take_along_axis(table, largest[..., None, None], axis=-2)[..., 0, :]
    p = p / jnp.sqrt(small_sum(p * p, keepdims=True))
    return jnp.where(p[..., :1] < 0, -p, p)


def z_to(u: np.ndarray) -> np.ndarray:
    """The quaternion (w,x,y,z) of the shortest turn from z to the unit vector u."""
    if u[2] < -1 + 1e-12:
        return np.array([0.0, 1.0, 0.0, 0.0])
    q = np.array([1 + u[2], -u[1], u[0], 0.0])
    return q / np.linalg.norm(q)
