"""Continuation: r(x; h) = 0 at h = 1 by way of smaller h, when the direct attempt fails. Knows no physics.

The family is such that h → 0 is trivial (a time step of length h dt). If Levenberg–Marquardt does not converge from the
plain guess, or to a root that is not accepted, solve for h = 1/2, extrapolate that root to a larger h, and so on,
halving the stride where an attempt fails. So the root at h = 1 is approached along the branch that starts at h = 0, the
physical one. An attempt whose Newton step leaps to another branch is noticed only as far as `accept` can tell.

Everything is one loop with one evaluation in its body, so it costs no compile time and, where the first attempt
converges, nothing at all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.math import batched
from pbad_jax.solver import levenberg_marquardt as lm

ATTEMPT = 15  # iterations one attempt may take


ATTEMPT_WITH_KINKS = 45  # where laws have kinks, which takes Newton's method longer at any h


SMALLEST_STRIDE = 1 / 64


GROW, SHRINK = 1.5, 0.5


class Family(NamedTuple):
    """Problems r(x; h) = 0, 0 < h ≤ 1, and how to guess.

    evaluate: (x, h) -> (r, parts). matrix: (data, parts) -> J; None, `parts` are J. retract: (x, δ) -> x.
    guess: (x_done, h_done, h) -> x, an extrapolation; h_done = 0 means that nothing has been solved yet. algebra,
    longest, merit: as in levenberg_marquardt.Problem.
    continuous: False where only h = 1 makes sense; then there is one attempt with all iterations.
    accept: (data, x, J) -> () bool, whether a root is on the branch; None, always. doubtful: (data, x) -> () bool,
    cheap: whether `accept` has to be asked; None, always. matrix_kept: whether the matrix of a root is wanted anyhow.
    simplified: (regime, data, x, h) -> as in levenberg_marquardt.Problem; None, there is none. data: a pytree for all
    of them.
    """

    evaluate: Callable
    retract: Callable
    guess: Callable
    algebra: lm.Algebra
    continuous: bool
    matrix: Callable | None = None
    matrix_kept: bool = False
    longest: jax.Array | float = float("inf")
    merit: Callable | None = None
    accept: Callable | None = None
    doubtful: Callable | None = None
    simplified: Callable | None = None
    data: Any = None


class State(NamedTuple):
    """Where the continuation stands; `status` is RUNNING or final, `iterations` counts all attempts."""

    attempt: lm.SolveState
    h: jax.Array  # being solved
    h_done: jax.Array  # solved
    x_done: jax.Array
    stride: jax.Array
    iterations: jax.Array
    status: jax.Array


def init(family: Family, *, status: jax.Array) -> State:
    """Before the first attempt, at h = 1. `status` other than RUNNING: nothing will be done."""
    x = family.guess(None, 0.0, 1.0)
    dtype = jax.tree.leaves(x)[0].dtype
    one, zero = jnp.ones((), dtype), jnp.zeros((), dtype)
    attempt = lm.init(_problem(family, one), x, status=status)
    return State(attempt, one, zero, x, 0.5 * one, jnp.zeros((), jnp.int32), jnp.asarray(status, jnp.int8))


def iterate(family: Family, settings: lm.Settings, s: State) -> State:
    """One Levenberg–Marquardt iteration, and where it ended an attempt, the choice of the next."""
    attempt_limit = ATTEMPT if family.simplified is None else ATTEMPT_WITH_KINKS
    limit = attempt_limit if family.continuous else settings.max_iterations
    attempt = lm.iterate(_problem(family, s.h), settings._replace(max_iterations=limit), s.attempt)
    attempt = _judged(family, s, attempt)
    iterations = s.iterations + (s.attempt.iterations >= 0)
    ended = attempt.status != lm.RUNNING
    solved = attempt.status == Status.CONVERGED
    if not family.continuous:
        done = jnp.where(solved, s.h, s.h_done)
        after = s._replace(attempt=attempt, iterations=iterations, h_done=done, status=attempt.status)
        return _if_running(s, after)

    direct = (s.h_done == 0) & (s.h >= 1)  # the first attempt says nothing about the stride
    factor = jnp.where(solved, GROW, jnp.where(direct, 1.0, SHRINK))
    stride = factor * jnp.minimum(s.stride, jnp.where(direct, 1.0, s.h - s.h_done))
    h_done = jnp.where(solved, s.h, s.h_done)
    x_done = jnp.where(solved, attempt.x, s.x_done)
    h = jnp.minimum(1.0, h_done + stride)
    status = jnp.where(
        solved & (s.h >= 1),
        jnp.int8(Status.CONVERGED),
        jnp.where(~solved & (stride < SMALLEST_STRIDE), attempt.status, jnp.int8(lm.RUNNING)),
    )
    status = jnp.where(ended, status, jnp.int8(lm.RUNNING))
    tired = (status == lm.RUNNING) & (iterations >= settings.max_iterations)
    status = jnp.where(tired, jnp.int8(Status.MAX_ITER), status)
    again = ended & (status == lm.RUNNING)
    fresh = lm.restart(attempt, family.guess(x_done, h_done, h))
    after = State(
        attempt=jax.tree.map(lambda a, b: jnp.where(again, a, b), fresh, attempt),
        h=jnp.where(again, h, s.h),
        h_done=jnp.where(ended, h_done, s.h_done),
        x_done=jnp.where(ended, x_done, s.x_done),
        stride=jnp.where(ended, stride, s.stride),
        iterations=iterations,
        status=status,
    )
    return _if_running(s, after)


def _judged(family: Family, s: State, attempt: lm.SolveState) -> lm.SolveState:
    """BRANCH instead of CONVERGED where the root is not accepted."""
    if family.accept is None:
        return attempt
    found = (attempt.status == Status.CONVERGED) & (s.status == lm.RUNNING)
    if family.doubtful is not None:
        found &= family.doubtful(family.data, attempt.x)
    good = batched.cond_if_any(found, _yes, family.accept, family.data, attempt.x, attempt.J)
    return attempt._replace(status=jnp.where(found & ~good, jnp.int8(Status.BRANCH), attempt.status))


def _yes(data, x, J) -> jax.Array:
    del data, x, J
    return jnp.ones((), bool)


def _if_running(s: State, after: State) -> State:
    return jax.tree.map(lambda new, old: jnp.where(s.status == lm.RUNNING, new, old), after, s)


def solve(family: Family, settings: lm.Settings, *, status: jax.Array) -> State:
    """Iterate until no longer RUNNING. Under vmap this waits for the slowest lane."""
    return jax.lax.while_loop(
        lambda s: s.status == lm.RUNNING,
        lambda s: iterate(family, settings, s),
        init(family, status=status),
    )


def _problem(family: Family, h: jax.Array) -> lm.Problem:
    merit, simplified, matrix = family.merit, family.simplified, family.matrix
    return lm.Problem(
        evaluate=lambda x: family.evaluate(x, h),
        retract=family.retract,
        algebra=family.algebra,
        matrix=None if matrix is None else lambda data, parts: matrix(data[0], parts),
        wanted=_matrix_wanted(family),
        longest=family.longest,
        merit=None if merit is None else lambda x: merit(x, h),
        simplified=None if simplified is None else lambda regime, data, x: simplified(regime, data[0], x, data[1]),
        data=(family.data, h),
    )


def _matrix_wanted(family: Family) -> Callable | None:
    """When the matrix of a root is needed: to be asked whether it is on the branch, or by who asked for the solve."""
    accept, doubtful = family.accept, family.doubtful
    if family.matrix_kept or (accept is not None and doubtful is None):
        return lambda data, x: jnp.ones((), bool)
    if accept is None or doubtful is None:
        return None
    return lambda data, x: doubtful(data[0], x)
