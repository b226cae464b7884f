"""Continuation: r(x; h) = 0 at h = 1 by way of smaller h, when the direct attempt fails. Knows no physics.

The problem is such that h → 0 is trivial (a time step of length h dt). If Levenberg–Marquardt does not converge from
the plain guess, or to a root that is not accepted, solve for h = 1/2, extrapolate that root to a larger h, and so on,
halving the stride where an attempt fails. So the root at h = 1 is approached along the branch that starts at h = 0, the
physical one. An attempt that leaps to another branch is noticed as far as `is_on_branch` can tell, and where roots are
near one another by Newton's method, which then does not contract.

Where laws have duals, a direct attempt that fails mostly wanders: its steps stay long, from law to law. Whether it
does is nearly chance: of six first guesses (`STARTS`), most of them with less motion than the plain one, each solves
about half of what those before it have left. They come before smaller h. Where the plain guess moves little, it is
the first: there it is good, and nothing wanders.

A root that is refused may be asked of once more, by another matrix (`asks_twice`): the next pass evaluates it again.

Everything is one loop with one evaluation in its body, so it costs no compile time and, where the first attempt
converges, nothing at all.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.math.queue import run_until_done
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.solver.problem import Problem

ATTEMPT = 15  # iterations one attempt may take
GUIDED_ATTEMPT = 30  # where laws have duals, which settle as x does
WANDERING, FAR = 10, 0.33  # iterations of it after which a step must not be longer, as a fraction of the longest
STARTS = ((0.6, 0.5), (0.0, 0.3), (0.5, 0.1), (1.0, 1.0), (0.5, 1.0), (0.25, 0.1))  # h of its first guess, and trust
PLAIN = 3  # of these, where the guess goes not far; those after it follow, and then those before it
SMALLEST_STRIDE = 1 / 64
GROW, SHRINK = 1.5, 0.5


class State(NamedTuple):
    """Where the continuation stands; `status` is RUNNING or final, `iterations` counts all attempts."""

    attempt: lm.SolveState
    h: jax.Array  # being solved
    h_done: jax.Array  # solved
    x_done: Any
    stride: jax.Array
    starts: jax.Array  # () int32, how many direct attempts have ended
    iterations: jax.Array
    status: jax.Array
    again: jax.Array | None  # () bool: what comes next is a second look at a root; None: the problem has none


def init(problem: Problem, *, status: jax.Array | int) -> State:
    """Before the first attempt, at h = 1. `status` other than RUNNING: nothing will be done."""
    guided = problem.follows_from_zero and problem.first_guide() is not None
    near, trust = _start(problem, 0) if guided else (1.0, 1.0)
    x = problem.guess(None, 0.0, near)
    dtype = jax.tree.leaves(x)[0].dtype
    one, zero, none = jnp.ones((), dtype), jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
    attempt = lm.init(problem, x, trust, status=status)
    again = jnp.zeros((), bool) if problem.asks_twice else None
    return State(attempt, one, zero, x, 0.5 * one, none, none, jnp.asarray(status, jnp.int8), again)


def iterate(problem: Problem, settings: lm.Settings, s: State) -> State:
    """One Levenberg–Marquardt iteration, and where it ended an attempt, the choice of the next."""
    attempt_limit = ATTEMPT if s.attempt.guide is None else GUIDED_ATTEMPT
    limit = attempt_limit if problem.follows_from_zero else settings.max_iterations
    settings_of_one = settings._replace(max_iterations=limit)
    attempt, J = lm.iterate(problem, s.h, settings_of_one, s.attempt, s.again)

    # where it has ended the root is judged; the first guess is no iteration, nor is a second look
    attempt, again = _judged(problem, s, attempt, J)
    attempt = _given_up(problem, attempt, again)
    counts = s.attempt.iterations >= 0 if s.again is None else (s.attempt.iterations >= 0) & ~s.again
    after = s._replace(attempt=attempt, iterations=s.iterations + counts, again=again)
    after = (_next_attempt if problem.follows_from_zero else _only_attempt)(problem, settings, after)
    return jax.tree.map(lambda new, old: jnp.where(s.status == lm.RUNNING, new, old), after, s)


def _start(problem: Problem, k) -> jax.Array:
    """h of the first guess and trust of direct attempt k, (2,)."""
    first = jnp.where(problem.goes_far(), 0, PLAIN)
    return jnp.asarray(STARTS, problem.max_correction.dtype)[(first + k) % len(STARTS)]


def _given_up(problem: Problem, attempt: lm.SolveState, again: jax.Array | None) -> lm.SolveState:
    """MAX_ITER instead of RUNNING where a guided attempt still wanders: from elsewhere it will take fewer."""
    if attempt.guide is None or not problem.follows_from_zero:
        return attempt
    wanders = (attempt.iterations >= WANDERING) & (lm.reach(problem, attempt.step) > FAR)
    runs = attempt.status == lm.RUNNING if again is None else (attempt.status == lm.RUNNING) & ~again
    status = jnp.where(wanders & runs, jnp.int8(Status.MAX_ITER), attempt.status)
    return attempt._replace(status=status)


def _only_attempt(problem: Problem, settings: lm.Settings, s: State) -> State:
    del problem, settings
    solved = s.attempt.status == Status.CONVERGED
    return s._replace(h_done=jnp.where(solved, s.h, s.h_done), status=s.attempt.status)


def _next_attempt(problem: Problem, settings: lm.Settings, s: State) -> State:
    """No change while the attempt goes on; once it has ended, the next h and the guess there, or the end."""
    # how the attempt has ended, and whether another first guess at h = 1 is left to try
    attempt = s.attempt
    ended, solved = attempt.status != lm.RUNNING, attempt.status == Status.CONVERGED
    direct = (s.h_done == 0) & (s.h >= 1)  # the first attempt says nothing about the stride
    starts = s.starts + (ended & direct)
    elsewhere = direct & ~solved & (starts < (1 if attempt.guide is None else len(STARTS)))

    # strides grow from root to root and are halved at a failure; the direct attempt changes none
    factor = jnp.where(solved, GROW, jnp.where(direct, 1.0, SHRINK))
    stride = factor * jnp.minimum(s.stride, jnp.where(direct, 1.0, s.h - s.h_done))
    h_done = jnp.where(solved, s.h, s.h_done)
    x_done = jax.tree.map(lambda a, b: jnp.where(solved, a, b), attempt.x, s.x_done)
    h = jnp.where(elsewhere, 1.0, jnp.minimum(1.0, h_done + stride))

    # the end: a root at h = 1, a stride too small, or no iterations left
    status = jnp.where(
        solved & (s.h >= 1),
        jnp.int8(Status.CONVERGED),
        jnp.where(~solved & (stride < SMALLEST_STRIDE), attempt.status, jnp.int8(lm.RUNNING)),
    )
    status = jnp.where(ended, status, jnp.int8(lm.RUNNING))
    tired = (status == lm.RUNNING) & (s.iterations >= settings.max_iterations)
    tired = tired if s.again is None else tired & ~s.again
    status = jnp.where(tired, jnp.int8(Status.MAX_ITER), status)

    # else the next guess: another one of STARTS at h = 1, or the last root extrapolated to h
    again = ended & (status == lm.RUNNING)
    near, trust = _start(problem, starts)
    near, trust = jnp.where(elsewhere, near, h), jnp.where(elsewhere, trust, 1.0)
    fresh = lm.restart(problem, attempt, problem.guess(x_done, h_done, near), trust)
    done = jax.tree.map(
        lambda new, old: jnp.where(ended, new, old), (h_done, x_done, stride), (s.h_done, s.x_done, s.stride)
    )

    # an attempt that goes on keeps its h and its stride
    return State(
        attempt=jax.tree.map(lambda a, b: jnp.where(again, a, b), fresh, attempt),
        h=jnp.where(again, h, s.h),
        h_done=done[0],
        x_done=done[1],
        stride=done[2],
        starts=starts,
        iterations=s.iterations,
        status=status,
        again=s.again,
    )


def _judged(problem: Problem, s: State, attempt: lm.SolveState, J: Any) -> tuple[lm.SolveState, jax.Array | None]:
    """BRANCH instead of CONVERGED where the root is not on the branch that starts at h = 0, as J says.

    Where it `asks_twice` the attempt runs on when it is refused, and it is CONVERGED or BRANCH after that second look.
    Returns the attempt, and whether a second look is to come.
    """
    found, on_the_way = attempt.status == Status.CONVERGED, (s.h_done > 0) | (s.h < 1)
    found = (found if s.again is None else found | s.again) & (s.status == lm.RUNNING)
    good = problem.is_on_branch(s.h, attempt, J, found, s.again, on_the_way)
    status = jnp.where(found & ~good, jnp.int8(Status.BRANCH), attempt.status)
    if s.again is None:
        return attempt._replace(status=status), None
    again = found & ~good & ~s.again
    status = jnp.where(again, jnp.int8(lm.RUNNING), jnp.where(found & good, jnp.int8(Status.CONVERGED), status))
    return attempt._replace(status=status), again


def of_one_attempt(problem: Problem, attempt: lm.SolveState) -> State:
    """What has been found at h = 1 by a solver of its own, judged."""
    one, none = jnp.ones_like(attempt.norm), jnp.zeros((), jnp.int32)
    running = State(attempt, one, 0.0 * one, attempt.x, one, none, none, jnp.int8(lm.RUNNING), None)
    attempt, _ = _judged(problem, running, attempt, attempt.J)
    done = jnp.where(attempt.status == Status.CONVERGED, one, 0.0)
    return running._replace(attempt=attempt, h_done=done, iterations=attempt.iterations, status=attempt.status)


def ended(problem: Problem, x: Any, *, status: jax.Array | int) -> State:
    """As after a solve whose root x is known; `status` other than RUNNING: as after one that did not run."""
    status = jnp.where(status == lm.RUNNING, jnp.int8(Status.CONVERGED), status)
    attempt = lm.init(problem, x, status=status)
    attempt = attempt._replace(norm=jnp.zeros_like(attempt.norm), iterations=jnp.zeros_like(attempt.iterations))
    s = init(problem, status=status)
    return s._replace(attempt=attempt, h_done=jnp.where(status == Status.CONVERGED, s.h, s.h_done))


def solve(problem: Problem, settings: lm.Settings, *, status: jax.Array | int) -> State:
    """Iterate until no longer RUNNING; of many lanes (vmap) none waits for the slowest."""

    def one(given, s: State) -> State:
        problem, tolerance, rounding = given
        return iterate(problem, settings._replace(tolerance=tolerance, rounding=rounding), s)

    given = problem, jnp.asarray(settings.tolerance), jnp.asarray(settings.rounding)
    return run_until_done(one, lambda s: s.status == lm.RUNNING, given, init(problem, status=status))
