"""Levenberg–Marquardt's algebra for matrices that are arrays, with lengths in a metric of blocks. Knows no physics."""

import jax
import jax.numpy as jnp

from pbad_jax.math import batched
from pbad_jax.solver.levenberg_marquardt import Algebra


def dense(metric: batched.CholeskyFactor, *, energy: bool = False) -> Algebra:
    """J (n,n) as an array, lengths in a metric L (b,b) of blocks.

    With `energy` J is the Hessian of a merit, and the damped step is −(J + λ L Lᵀ)⁻¹ r.
    """
    return Algebra(metric, _dense_solve, _energy_step if energy else _damped_step, _dense_norm, _dense_length)


def whiten(metric: batched.CholeskyFactor, r: jax.Array) -> jax.Array:
    """L⁻¹ on every block of r (n,)."""
    return blockwise(metric.inverse, r[:, None])[:, 0]


def unwhiten(metric: batched.CholeskyFactor, y: jax.Array) -> jax.Array:
    """L⁻ᵀ on every block of y (n,)."""
    return blockwise(metric.inverse.T, y[:, None])[:, 0]


def blockwise(A: jax.Array, x: jax.Array) -> jax.Array:
    """A (b,b) on every block of the rows of x (n,k)."""
    return (A @ x.reshape(-1, A.shape[0], x.shape[1])).reshape(x.shape)


def _dense_solve(metric: batched.CholeskyFactor, J: jax.Array, b: jax.Array) -> jax.Array:
    del metric
    return batched.solve(J, b)


def _dense_norm(metric: batched.CholeskyFactor, r: jax.Array) -> jax.Array:
    return jnp.linalg.norm(whiten(metric, r))


def _dense_length(metric: batched.CholeskyFactor, delta: jax.Array) -> jax.Array:
    """‖Lᵀ δ_i‖ over all blocks: the length of a correction in the metric."""
    return jnp.linalg.norm(delta.reshape(-1, metric.factor.shape[0]) @ metric.factor)


def _damped_step(metric: batched.CholeskyFactor, J: jax.Array, r: jax.Array, damping: jax.Array) -> jax.Array:
    """The Levenberg–Marquardt step δ = L⁻ᵀ y, (J̃ᵀJ̃ + λ) y = −J̃ᵀ r̃."""
    r = whiten(metric, r)
    J = blockwise(metric.inverse, blockwise(metric.inverse, J).T).T
    y = batched.solve(J.T @ J + damping * jnp.eye(J.shape[0], dtype=J.dtype), -(J.T @ r))
    return unwhiten(metric, y)


def _energy_step(metric: batched.CholeskyFactor, J: jax.Array, r: jax.Array, damping: jax.Array) -> jax.Array:
    """−(J + λ L Lᵀ)⁻¹ r, blockwise L."""
    eye = jnp.eye(J.shape[0], dtype=J.dtype)
    return -batched.solve(J + damping * blockwise(metric.factor, blockwise(metric.factor, eye).T).T, r)
