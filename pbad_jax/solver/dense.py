"""Lengths in a metric of blocks, and the damped steps, for matrices that are arrays. Knows no physics."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.math.batched import CholeskyFactor
from pbad_jax.math.pytree import STATIC


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DenseMetric:
    """A problem.Metric of vectors (n,) of m blocks of b numbers: the factor L (b,b) of the matrix M = L Lᵀ of each."""

    L: CholeskyFactor
    # (m,m): r grows as C ⊗ M; of one block its sign is all that is asked
    C: tuple[tuple[float, ...], ...] = dataclasses.field(default=((1.0,),), metadata=STATIC)
    by_inertia: bool = dataclasses.field(default=False, metadata=STATIC)  # damped by C ⊗ M, not as least squares

    def whiten(self, r: jax.Array) -> jax.Array:
        """L⁻¹ on every block of r (n,)."""
        return blockwise(self.L.inverse, r[:, None])[:, 0]

    def unwhiten(self, y: jax.Array) -> jax.Array:
        """L⁻ᵀ on every block of y (n,)."""
        return blockwise(self.L.inverse.T, y[:, None])[:, 0]

    def norm(self, r: jax.Array) -> jax.Array:
        """‖L⁻¹ r_i‖ over all blocks, ()."""
        return jnp.linalg.norm(self.whiten(r))

    def length(self, delta: jax.Array) -> jax.Array:
        """‖Lᵀ δ_i‖ over all blocks, ()."""
        return jnp.linalg.norm(delta.reshape(-1, self.L.factor.shape[0]) @ self.L.factor)

    def slope(self, r: jax.Array, delta: jax.Array) -> jax.Array:
        """<C⁻¹ r, δ>, ()."""
        m = len(self.C)
        if m == 1:
            return r @ delta
        return jnp.sum(jnp.asarray(np.linalg.inv(self.C), r.dtype) @ r.reshape(m, -1) * delta.reshape(m, -1))

    def damped(self, J: jax.Array, r: jax.Array, damping: jax.Array) -> tuple[jax.Array, jax.Array]:
        """J + λ C ⊗ M and r; or the normal equations of Levenberg and Marquardt, Jᵀ W J + λ M and Jᵀ W r, W = M⁻¹."""
        M = self.L.factor @ self.L.factor.T
        if self.by_inertia:
            C = jnp.asarray(self.C, r.dtype) if len(self.C) > 1 else jnp.ones((1, 1), r.dtype)
            return J + damping * jnp.kron(C, M), r
        white = blockwise(self.L.inverse, jnp.concatenate([J, r[:, None]], axis=1))
        A = white[:, :-1].T @ white
        return A[:, :-1] + damping * jnp.kron(jnp.eye(len(r) // len(M), dtype=J.dtype), M), A[:, -1]

    def zeros(self, r: jax.Array, made: Callable) -> jax.Array:
        """Zeros (n,n)."""
        del made
        return jnp.zeros((r.size, r.size), r.dtype)


def blockwise(A: jax.Array, x: jax.Array) -> jax.Array:
    """A (b,b) on every block of the rows of x (n,k)."""
    return (A @ x.reshape(-1, A.shape[0], x.shape[1])).reshape(x.shape)
