"""Levenberg–Marquardt for a square system r(x) = 0 on a manifold. Knows no physics.

The residual is measured in a metric: it consists of m blocks of b numbers, and its norm is ‖L⁻¹ r_i‖ over all
blocks, L a lower-triangular (b,b) factor. The matrix J is the full one (∂r along the retraction), so with λ = 0 an
iteration is Newton's. λ > 0 only after a rejected step, and it drops out again quickly; the damped step is

    min_y ‖J̃ y + r̃‖² + λ ‖y‖²,   J̃ = L⁻¹ J L⁻ᵀ, r̃ = L⁻¹ r, δ = L⁻ᵀ y.

(The paper's LM step pairs the gradient 2Jᵀr with JᵀJ, twice a Gauss–Newton step; not so here.)

`init` evaluates, `iterate` is exactly one iteration (one linear solve, one evaluation), `solve` loops.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax.linalg import triangular_solve

from pbad_jax.errors import Status

RUNNING = -1  # status of an unfinished solve

LAMBDA_FIRST = 0.1  # of the whitened matrix, whose entries are of order one
LAMBDA_UP, LAMBDA_DOWN = 8.0, 0.05
LAMBDA_MIN, LAMBDA_MAX = 1e-3, 1e9
ROUNDING = 100.0  # a residual within this factor of the tolerance is accepted when nothing reduces it


class Problem(NamedTuple):
    """A square system and its metric.

    evaluate: x -> (r (n,), J (n,n)). retract: (x, δ (n,)) -> x. factor: L (b,b), n a multiple of b.
    """

    evaluate: Callable
    retract: Callable
    factor: jax.Array


class Settings(NamedTuple):
    """When to stop: the norm to reach, and how many iterations at most."""

    tolerance: jax.Array | float
    max_iterations: int


class SolveState(NamedTuple):
    """An unfinished or finished solve; a pytree, so that it can be carried and batched."""

    x: jax.Array
    r: jax.Array  # (n,)
    J: jax.Array  # (n,n)
    norm: jax.Array  # ()
    damping: jax.Array  # () λ
    iterations: jax.Array  # () int32
    status: jax.Array  # () int8, RUNNING or a Status


def init(problem: Problem, settings: Settings, x, *, status: jax.Array | None = None) -> SolveState:
    """Evaluate at the first guess x. `status` other than RUNNING starts a finished solve."""
    r, J = problem.evaluate(x)
    norm = _norm(problem.factor, r)
    found = jnp.where(
        _finite(norm, J),
        jnp.where(norm <= settings.tolerance, int(Status.CONVERGED), RUNNING),
        int(Status.NONFINITE_EVAL),
    ).astype(jnp.int8)
    if status is not None:
        found = jnp.where(status == RUNNING, found, status).astype(jnp.int8)
    return SolveState(x, r, J, norm, jnp.zeros_like(norm), jnp.zeros((), jnp.int32), found)


def iterate(problem: Problem, settings: Settings, s: SolveState) -> SolveState:
    """Exactly one iteration: solve, try, accept or damp. A finished solve is returned unchanged."""
    delta = jax.lax.cond(s.damping > 0, _damped_step, _newton_step, problem.factor, s)
    x = problem.retract(s.x, delta)
    r, J = problem.evaluate(x)
    norm = _norm(problem.factor, r)
    accept = _finite(norm, J) & (norm < s.norm)

    iterations = s.iterations + 1
    best = jnp.where(accept, norm, s.norm)
    lower = jnp.where(s.damping * LAMBDA_DOWN < LAMBDA_MIN, 0.0, s.damping * LAMBDA_DOWN)
    higher = jnp.maximum(s.damping * LAMBDA_UP, LAMBDA_FIRST)
    damping = jnp.where(accept, lower, higher)

    at_rounding = ~accept & (best <= ROUNDING * settings.tolerance)
    status = jnp.where(
        (best <= settings.tolerance) | at_rounding,
        int(Status.CONVERGED),
        jnp.where(
            damping > LAMBDA_MAX,
            int(Status.STALLED),
            jnp.where(iterations >= settings.max_iterations, int(Status.MAX_ITER), RUNNING),
        ),
    ).astype(jnp.int8)

    def pick(new, old):
        return jnp.where(accept, new, old)

    after = SolveState(pick(x, s.x), pick(r, s.r), pick(J, s.J), best, damping, iterations, status)
    running = s.status == RUNNING
    return jax.tree.map(lambda new, old: jnp.where(running, new, old), after, s)


def solve(problem: Problem, settings: Settings, x, *, status: jax.Array | None = None) -> SolveState:
    """Iterate until no longer RUNNING. Under vmap this waits for the slowest lane."""
    return jax.lax.while_loop(
        lambda s: s.status == RUNNING,
        lambda s: iterate(problem, settings, s),
        init(problem, settings, x, status=status),
    )


def _finite(norm: jax.Array, J: jax.Array) -> jax.Array:
    return jnp.isfinite(norm) & jnp.isfinite(jnp.sum(J))


def _whiten(factor: jax.Array, r: jax.Array) -> jax.Array:
    """L⁻¹ on every block of r (n,) or of the rows of a matrix (n,k)."""
    b = factor.shape[0]
    blocks = r.reshape(-1, b, *r.shape[1:])
    columns = jnp.moveaxis(blocks, 1, 0).reshape(b, -1)
    y = triangular_solve(factor, columns, left_side=True, lower=True)
    return jnp.moveaxis(y.reshape(b, *blocks.shape[:1], *r.shape[1:]), 0, 1).reshape(r.shape)


def _norm(factor: jax.Array, r: jax.Array) -> jax.Array:
    return jnp.linalg.norm(_whiten(factor, r))


def _newton_step(factor: jax.Array, s: SolveState) -> jax.Array:
    """−J⁻¹ r by LU with pivoting."""
    return -jnp.linalg.solve(s.J, s.r)


def _damped_step(factor: jax.Array, s: SolveState) -> jax.Array:
    """The Levenberg–Marquardt step in the metric of the factor."""
    r = _whiten(factor, s.r)
    J = _whiten(factor, _whiten(factor, s.J).T).T
    A = J.T @ J + s.damping * jnp.eye(J.shape[0], dtype=J.dtype)
    C = jnp.linalg.cholesky(A)
    y = jax.scipy.linalg.cho_solve((C, True), -(J.T @ r))
    b = factor.shape[0]
    blocks = y.reshape(-1, b).T
    return triangular_solve(factor, blocks, left_side=True, lower=True, transpose_a=True).T.reshape(-1)
