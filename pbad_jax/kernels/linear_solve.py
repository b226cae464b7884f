"""J x = b of many lanes, one a thread: Householder's reflections, which need no pivots."""

import jax
import jax.numpy as jnp

from pbad_jax.kernels.lanes import LANES, in_lanes, run
from pbad_jax.math import batched


def solve(A: jax.Array, b: jax.Array) -> jax.Array:
    """A⁻¹ b, (n,), of A (n,n) and b (n,): as math.batched.solve. Not finite where A is singular. Not differentiable."""
    return _solve(A, b)[0]


def _together(A: jax.Array, b: jax.Array) -> list[jax.Array]:
    """Of lanes (B,n,n), (B,n)."""
    n = b.shape[-1]
    return run(_kernel(n), (), (A, b), [(n,)], [(n, n + 1)])


_solve = in_lanes(lambda A, b: [batched.solve(A, b)], _together)


def _kernel(n: int):
    """Golub and Van Loan, Matrix Computations, algorithm 5.2.1, and substitution; W = (A b) is worked on."""
    loop = jax.lax.fori_loop

    def kernel(A, b, x, W):
        # squares of entries of order one neither overflow nor vanish
        def largest(i, m):
            return loop(0, n, lambda j, m: jnp.maximum(m, jnp.abs(A[i, j, :])), m)

        size = loop(0, n, largest, jnp.zeros(LANES, x.dtype))
        scale = 1 / jnp.where(size > 0, size, 1.0)

        def copy(i, _):
            loop(0, n, lambda j, _: W.__setitem__((i, j), scale * A[i, j, :]), None)
            W[i, n] = scale * b[i, :]

        loop(0, n, copy, None)

        def reflect(k, _):
            """Column k to (..., R_kk, 0, ...): v is what stands from the diagonal on, its first entry less R_kk."""
            square = loop(k, n, lambda i, s: s + W[i, k, :] * W[i, k, :], jnp.zeros_like(x[0, :]))
            first = W[k, k, :]
            R_kk = jnp.where(first > 0, -jnp.sqrt(square), jnp.sqrt(square))
            W[k, k] = first - R_kk
            beta = 1 / (square - first * R_kk)

            def column(j, _):
                dot = beta * loop(k, n, lambda i, s: s + W[i, k, :] * W[i, j, :], jnp.zeros_like(beta))
                loop(k, n, lambda i, _: W.__setitem__((i, j), W[i, j, :] - dot * W[i, k, :]), None)

            loop(k + 1, n + 1, column, None)
            x[k] = R_kk  # until it is the unknown

        loop(0, n, reflect, None)

        def substitute(t, _):
            i = n - 1 - t
            x[i] = loop(i + 1, n, lambda j, s: s - W[i, j, :] * x[j, :], W[i, n, :]) / x[i, :]

        loop(0, n, substitute, None)

    return kernel
