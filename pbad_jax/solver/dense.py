"""Lengths in a metric of blocks, and the damped steps, for matrices that are arrays. Knows no physics.

A vector (n,) consists of n/b blocks of b numbers; the metric is a factor L (b,b) of the matrix M = L Lᵀ of each.
"""

import jax
import jax.numpy as jnp

from pbad_jax.math.batched import CholeskyFactor


def whiten(metric: CholeskyFactor, r: jax.Array) -> jax.Array:
    """L⁻¹ on every block of r (n,)."""
    return blockwise(metric.inverse, r[:, None])[:, 0]


def unwhiten(metric: CholeskyFactor, y: jax.Array) -> jax.Array:
    """L⁻ᵀ on every block of y (n,)."""
    return blockwise(metric.inverse.T, y[:, None])[:, 0]


def blockwise(A: jax.Array, x: jax.Array) -> jax.Array:
    """A (b,b) on every block of the rows of x (n,k)."""
    return (A @ x.reshape(-1, A.shape[0], x.shape[1])).reshape(x.shape)


def norm(metric: CholeskyFactor, r: jax.Array) -> jax.Array:
    """‖L⁻¹ r_i‖ over all blocks, (): the norm of a residual."""
    return jnp.linalg.norm(whiten(metric, r))


def length(metric: CholeskyFactor, delta: jax.Array) -> jax.Array:
    """‖Lᵀ δ_i‖ over all blocks, (): the length of a correction."""
    return jnp.linalg.norm(delta.reshape(-1, metric.factor.shape[0]) @ metric.factor)


def damped(metric: CholeskyFactor, J: jax.Array, r: jax.Array, damping: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Jᵀ W J + λ M and Jᵀ W r, M of all blocks and W = M⁻¹: the normal equations of Levenberg and Marquardt."""
    white = blockwise(metric.inverse, jnp.concatenate([J, r[:, None]], axis=1))
    A = white[:, :-1].T @ white
    blocks = jnp.eye(len(r) // metric.factor.shape[0], dtype=J.dtype)
    return A[:, :-1] + damping * jnp.kron(blocks, metric.factor @ metric.factor.T), A[:, -1]


def regularised(metric: CholeskyFactor, J: jax.Array, r: jax.Array, damping: jax.Array, C: jax.Array):
    """J + λ C ⊗ L Lᵀ and r: C (m,m) of the stages, n = m b."""
    return J + damping * jnp.kron(C, metric.factor @ metric.factor.T), r
