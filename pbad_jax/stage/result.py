"""What a method has found for one step, in figures that a StepInfo is made of."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.errors import Status
from pbad_jax.math import loops
from pbad_jax.solver import continuation
from pbad_jax.stage.fields import StageFields
from pbad_jax.stage.problem import StageProblem, relative_residual

POWER_ITERATIONS = 8


class Roots(NamedTuple):
    """All that was solved for in a step, increments (m,nq) each, or (): what its derivative is taken at."""

    before: Any = ()  # the history node, or the step that finds the impulse
    stages: Any = ()
    closing: Any = ()  # the impulse at the end


class Figures(NamedTuple):
    """How what was solved in a step went; fields of a StepInfo."""

    iterations: jax.Array  # () int32
    residual: jax.Array  # () relative
    reached: jax.Array  # () fraction of the step that could be solved
    damping: jax.Array  # () λ of the last iteration
    worst: jax.Array  # () int32, the degree of freedom that the last Newton correction moves most
    condition: jax.Array  # () of the Newton matrix; NaN unless asked for
    error: jax.Array  # () of q; NaN where it is not known


def none_solved(dtype) -> Figures:
    """All zero."""
    zero, count = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
    return Figures(count, zero, zero, zero, count, zero, zero)


class StepResult(NamedTuple):
    """What a method found for one step; only `status` says whether it can be used."""

    z: jax.Array  # (nq,) increment to the end of the step
    v: jax.Array  # (nv,) there
    history: jax.Array  # (nq,) configuration at the history node of the next step
    status: jax.Array  # () int8, RUNNING never
    figures: Figures
    work: jax.Array  # (nforces,) J, of those that are `counted`
    roots: Roots = Roots()
    stages: Any = ()  # StageFields, the last of which is the end of the step


def step_result(
    problem: StageProblem, found: continuation.State, st: StageFields, v, history, work, roots: Roots
) -> StepResult:
    """The StepResult of a step with the stages `st` that needed one solve."""
    attempt = found.attempt
    move = jnp.max(jnp.abs(attempt.newton.reshape(-1, problem.model.nv)), axis=0)
    unknown = jnp.full_like(attempt.norm, jnp.nan)
    residual = relative_residual(problem, attempt)
    unmeasured = (found.status == Status.CONVERGED) & ~jnp.isfinite(residual)  # a total mass that is not positive
    status = jnp.where(unmeasured, jnp.int8(Status.NONFINITE_EVAL), found.status)
    condition = _condition(problem, attempt.J, attempt.r.size) if problem.config.condition else unknown
    worst = jnp.argmax(move).astype(jnp.int32)
    figures = Figures(found.iterations, residual, found.h_done, attempt.damping, worst, condition, unknown)
    return StepResult(st.z[-1], v, history, status, figures, work, roots, st)


def _condition(problem: StageProblem, J: operator.Operator, n: int) -> jax.Array:
    """The condition of J (n,n) in the metric of the mass matrix M, (): of M⁻¹J, largest eigenvalue over smallest.

    Power iterations from a fixed vector, so an estimate from below; good to some per cent where J is nearly singular.
    """
    model, M = problem.model, problem.start.mass

    def stages(f, x):
        return jax.vmap(lambda b: f(model, M, b))(x.reshape(-1, model.nv)).reshape(-1)

    def largest(f):
        def more(_, known):
            y = f(known[0])
            size = jnp.linalg.norm(y)
            return y / size, size

        x = jnp.cos(jnp.arange(1, n + 1, dtype=model.dtype) ** 2)
        return loops.fori_loop(0, POWER_ITERATIONS, more, (x / jnp.linalg.norm(x), jnp.ones((), x.dtype)))[1]

    grows = largest(lambda x: stages(operator.solve, operator.times(model, J, x)))
    return jnp.maximum(1.0, grows * largest(lambda x: operator.solve(model, J, stages(operator.times, x))))
