"""L-BFGS: the paper's other optimiser, for an energy or a sum of squared residuals. Knows no physics.

optax keeps the history and gives the direction. The search along it goes back by halves, because under vmap one that
zooms costs every lane its worst case. Stops on the norm, or when rounding lets nothing decrease any more, which is near
the square root of the dtype's precision.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pbad_jax.errors import Status
from pbad_jax.math import loops
from pbad_jax.solver.dense import DenseMetric
from pbad_jax.solver.levenberg_marquardt import RUNNING, Settings, SolveState
from pbad_jax.solver.problem import Problem

MEMORY = 10  # pairs of differences kept
BACKTRACKS = 25  # of one line search
ENOUGH = 1e-4  # of the decrease that the slope promises
LONGER = 1.5  # times the last length, what is tried first
STUCK = 2  # iterations in a row without any decrease: one with the memory, one along the gradient


class State(NamedTuple):
    """Where the minimisation stands."""

    y: jax.Array  # (n,)
    memory: Any  # optax's
    length: jax.Array  # () of the last step along its direction
    value: jax.Array
    gradient: jax.Array  # (n,)
    norm: jax.Array
    stuck: jax.Array  # () int32
    iterations: jax.Array  # () int32
    status: jax.Array  # () int8


def solve(problem: Problem, settings: Settings, *, status: jax.Array | int) -> SolveState:
    """The root of a problem at h = 1, by its merit where it has one, else by ½‖L⁻¹ r‖².

    In whitened exponential coordinates y about the first guess. In what comes back `newton` is what Newton's method
    would correct at the end.
    """
    # whitened coordinates: x is the first guess ⊕ L⁻ᵀ y
    origin, metric = problem.guess(None, 0.0, 1.0), problem.metric
    assert isinstance(metric, DenseMetric)

    def point(y):
        delta = metric.unwhiten(y)
        return problem.retract(origin, delta), delta

    # the energy, of which r is the gradient, or ½‖L⁻¹ r‖², whose gradient is Jᵀ L⁻ᵀ L⁻¹ r
    def objective(y):
        x, delta = point(y)
        r, terms = problem.residual(x, 1.0)
        value = problem.merit(x, 1.0)
        if value is not None:
            return value, metric.whiten(problem.in_chart(r, delta))
        white = metric.whiten(r)
        slope = problem.matrix(terms).T @ metric.unwhiten(white)
        return 0.5 * white @ white, metric.whiten(problem.in_chart(slope, delta))

    # it ends where the norm of r is within the tolerance, or within a fraction of the way
    def limit(x):
        return jnp.maximum(settings.tolerance, settings.relative * problem.way(x))

    def excess(y, value):
        """The norm over its limit."""
        x, _ = point(y)
        of_energy = problem.merit(x, 1.0) is not None
        norm = metric.norm(problem.residual(x, 1.0)[0]) if of_energy else jnp.sqrt(2.0 * value)
        return jnp.where(norm == 0, 0.0, norm / limit(x))

    # minimise from the first guess, y = 0
    y, _ = problem.zeros(origin)
    found = minimise(objective, excess, 1.0, settings.max_iterations, y, status=status)

    # residual and matrix at the end, and what Newton's method would still correct
    x, _ = point(found.y)
    r, terms = problem.residual(x, 1.0)
    J, zero = problem.matrix(terms), jnp.zeros((), r.dtype)
    newton = -problem.solve(J, r)
    no = jnp.zeros((), bool)

    # as an attempt of Levenberg–Marquardt, so that continuation can judge it
    return SolveState(
        x=x,
        r=r,
        J=J,
        norm=jnp.where(found.norm == 0, 0.0, found.norm * limit(x)),
        limit=limit(x),
        merit=found.value,
        trial=x,
        newton=newton,
        length=metric.length(newton),
        damping=zero,
        guide=None,
        step=newton,
        slope=zero,
        trust=zero,
        leaps=no,
        iterations=found.iterations,
        status=found.status,
    )


def minimise(
    objective: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    norm: Callable,
    tolerance,
    max_iterations: int,
    y: jax.Array,
    *,
    status: jax.Array | int,
) -> State:
    """Iterate from y (n,) until norm(y, value) ≤ tolerance. Under vmap this waits for the slowest lane.

    Args:
        objective: y -> value (), gradient (n,); neither is differentiated.
        norm: y, its value -> what must fall below the tolerance.
        tolerance: of the norm. max_iterations: at most. y: (n,) the guess.
        status: RUNNING, or a Status to be passed through.
    """
    method = optax.scale_by_lbfgs(MEMORY)

    def iterate(s: State) -> State:
        # the direction from the differences in memory, and the search along it
        ahead, memory = method.update(s.gradient, s.memory, s.y)
        y, length, value, gradient = searched(objective, s, -jnp.asarray(ahead))

        # nothing lower STUCK times in a row: rounding lets nothing decrease any more
        finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
        lower = value < s.value
        stuck = jnp.where(lower, 0, s.stuck + 1).astype(jnp.int32)
        reached = norm(y, value)

        # without a decrease it stays, and forgets: the next direction is along the gradient
        there = (y, memory, length, value, gradient, reached)
        back = (s.y, method.init(s.y), jnp.ones_like(length), s.value, s.gradient, s.norm)

        # of all that ends it the last line counts most
        status = jnp.int8(RUNNING)
        status = jnp.where(s.iterations + 1 >= max_iterations, jnp.int8(Status.MAX_ITER), status)
        status = jnp.where(stuck >= STUCK, jnp.int8(Status.STALLED), status)
        status = jnp.where(~finite, jnp.int8(Status.NONFINITE_EVAL), status)
        status = jnp.where(finite & (reached <= tolerance), jnp.int8(Status.CONVERGED), status)

        # lanes that have ended stay as they are
        y, memory, length, value, gradient, reached = jax.tree.map(lambda a, b: jnp.where(lower, a, b), there, back)
        after = State(y, memory, length, value, gradient, reached, stuck, s.iterations + 1, status)
        return jax.tree.map(lambda new, old: jnp.where(s.status == RUNNING, new, old), after, s)

    # where the guess gives no finite numbers, there is nothing to iterate from
    value, gradient = objective(y)
    zero = jnp.zeros((), jnp.int32)
    status = jnp.asarray(status, jnp.int8)
    bad = ~(jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)))
    status = jnp.where((status == RUNNING) & bad, jnp.int8(Status.NONFINITE_EVAL), status)
    first = State(y, method.init(y), jnp.ones_like(value), value, gradient, norm(y, value), zero, zero, status)
    return loops.while_loop(lambda s: s.status == RUNNING, iterate, first)


def searched(objective: Callable, s: State, direction: jax.Array):
    """The point y along a direction (n,) from a state, how far along it is, and its value and gradient.

    Where no length is found that is finite, it is that of the state.
    """
    slope = direction @ s.gradient

    # by halves until the value has fallen by ENOUGH of what the slope promises (Armijo)
    def goes_on(found):
        *_, excess, count = found
        return (excess > 0) & (count <= BACKTRACKS)

    def shorter(found):
        _, length, _, _, _, count = found
        length = jnp.where(count > 0, 0.5 * length, length)
        y = s.y + length * direction
        value, gradient = objective(y)
        excess = value - s.value - ENOUGH * length * slope
        return y, length, value, gradient, jnp.where(jnp.isnan(excess), jnp.inf, excess), count + 1

    # first somewhat longer than the last step, but not beyond the direction itself
    first = jnp.minimum(LONGER * s.length, 1.0)
    start = s.y, first, s.value, s.gradient, jnp.full_like(s.value, jnp.inf), jnp.zeros((), jnp.int32)
    *found, excess, _ = loops.while_loop(goes_on, shorter, start)
    none = (s.y, jnp.zeros_like(first), s.value, s.gradient)

    # nothing finite along it: stay
    return jax.tree.map(lambda a, b: jnp.where(jnp.isinf(excess), b, a), tuple(found), none)
