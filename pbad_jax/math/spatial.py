"""Affine maps, twists and wrenches. Knows no model.

Affine maps are stored as (...,3,4), the last row [0 0 0 1] left out; screws and twists, their derivatives, as (...,3,4)
with a last row of zeros left out, or as six numbers (ω, v). A wrench is what a twist is paired with, (moment, force).
"""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.math import rotations
from pbad_jax.math.rotations import vee
from pbad_jax.math.small import matmul


def compose(A: jax.Array, B: jax.Array) -> jax.Array:
    """The affine map A∘B of two (...,3,4) maps."""
    return tangent_compose(A, B) + translation_only(A)


def tangent_compose(A: jax.Array, dB: jax.Array) -> jax.Array:
    """A dB, where dB (...,3,4) is a derivative or difference of affine maps (last row zero)."""
    return matmul(A[..., :3], dB)


def translation_only(A: jax.Array) -> jax.Array:
    """[0 | t] of a (...,3,4); a product with a constant, because a scatter would not fuse."""
    return A * jax.lax.broadcast_to_rank(np.array([0, 0, 0, 1], A.dtype), A.ndim)


def homogeneous(T: jax.Array, last: float = 1.0) -> jax.Array:
    """(...,3,4) with its last row [0 0 0 last] put back: (...,4,4)."""
    row = jnp.broadcast_to(np.array([[0, 0, 0, last]], T.dtype), (*T.shape[:-2], 1, 4))
    return jnp.concatenate([T, row], axis=-2)


def twist_matrix(s: jax.Array) -> jax.Array:
    """ŝ (...,3,4) of screws or twists s = (ω, v) (...,6)."""
    return jnp.concatenate([rotations.hat(s[..., :3]), s[..., 3:, None]], axis=-1)


def wrench(F: jax.Array) -> jax.Array:
    """The 6-vector w of a (...,3,4) with <ŝ, F> = s · w for every screw s."""
    return jnp.concatenate([vee(F[..., :3]), F[..., 3]], axis=-1)


def cross_motion(a: jax.Array, b: jax.Array) -> jax.Array:
    """Of twists (ω, v) (...,6), a × b: the rate of b as it moves with a."""
    wa, va, wb, vb = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    return jnp.concatenate([jnp.cross(wa, wb), jnp.cross(wa, vb) + jnp.cross(va, wb)], axis=-1)


def cross_force(a: jax.Array, h: jax.Array) -> jax.Array:
    """The product a ×* h of a twist a and a wrench or momentum h = (n, f), (...,6)."""
    w, v, n, f = a[..., :3], a[..., 3:], h[..., :3], h[..., 3:]
    return jnp.concatenate([jnp.cross(w, n) + jnp.cross(v, f), jnp.cross(w, f)], axis=-1)
