"""What a method has found for one step, in figures that a StepInfo is made of."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.errors import Status
from pbad_jax.math import loops
from pbad_jax.model.model import Model
from pbad_jax.solver import continuation
from pbad_jax.stage.branch import adds_energy
from pbad_jax.stage.equation import StageFields
from pbad_jax.stage.problem import StageProblem, relative_residual
from pbad_jax.stage.start import StepStart

POWER_ITERATIONS = 8


class Roots(NamedTuple):
    """All that was solved for in a step, increments (m,nq) each, or (): what its derivative is taken at."""

    before: Any = ()  # the history node, or the step that finds the impulse
    stages: Any = ()
    closing: Any = ()  # the impulse at the end


class StepResult(NamedTuple):
    """What a method found for one step; only `status` says whether it can be used."""

    z: jax.Array  # (nq,) increment to the end of the step
    v: jax.Array  # (nv,) there
    history: jax.Array  # (nq,) configuration at the history node of the next step
    status: jax.Array  # () int8, RUNNING never
    iterations: jax.Array  # () int32
    residual: jax.Array  # () relative
    reached: jax.Array  # () fraction of the step that could be solved
    damping: jax.Array  # () λ of the last iteration
    worst: jax.Array  # () int32, the degree of freedom that the last Newton correction moves most
    work: jax.Array  # (nforces,) J, of those that are `counted`
    condition: jax.Array  # () of the Newton matrix; NaN unless asked for
    roots: Roots


def step_result(problem: StageProblem, found: continuation.State, z, v, history, work, roots: Roots) -> StepResult:
    """The StepResult of a step that needed one solve."""
    attempt = found.attempt
    move = jnp.max(jnp.abs(attempt.newton.reshape(-1, problem.model.nv)), axis=0)
    unknown = jnp.full_like(attempt.norm, jnp.nan)
    residual = relative_residual(problem, attempt)
    unmeasured = (found.status == Status.CONVERGED) & ~jnp.isfinite(residual)  # a total mass that is not positive
    return StepResult(
        z=z,
        v=v,
        history=history,
        status=jnp.where(unmeasured, jnp.int8(Status.NONFINITE_EVAL), found.status),
        iterations=found.iterations,
        residual=residual,
        reached=found.h_done,
        damping=attempt.damping,
        worst=jnp.argmax(move).astype(jnp.int32),
        work=work,
        condition=_condition(problem, attempt.J, attempt.r.size) if problem.config.condition else unknown,
        roots=roots,
    )


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


def without_gain(
    model: Model, start: StepStart, dt, st: StageFields, result: StepResult, own_error, settles: bool = False
) -> StepResult:
    """BRANCH where a converged step has energy that no force explains; see branch.adds_energy."""
    gains = adds_energy(model, start, dt, st, result.v, result.work, own_error, settles)
    wrong = gains & (result.status == Status.CONVERGED)
    return result._replace(status=jnp.where(wrong, jnp.int8(Status.BRANCH), result.status))
