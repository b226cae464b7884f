"""What schemes with a history node need besides: the node before the first step, and a second way to a root.

Such a scheme (legendre) joins its stages to a configuration of the step before. Its equation does not become trivial as
dt goes to zero, so that there is no continuation to fall back on.
"""

import dataclasses

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.kinematics import manifold
from pbad_jax.math import loops
from pbad_jax.math.batched import cond_if_any
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import Scheme, radau
from pbad_jax.solver import continuation
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.branch import is_continuous
from pbad_jax.stage.problem import SolverConfig, StageProblem, find, problem_of, root
from pbad_jax.stage.start import StepStart, step_start


def history_node(
    model: Model, scheme: Scheme, config: SolverConfig, dt, start: StepStart, state: State, status, known_roots
):
    """Increment (nq,) of the history node: the state's, or before the first step made from (q, v); status and root.

    "matched": a step backwards to the node with radau, of at least the scheme's order. "linear": q + h v, literally.
    """
    known = manifold.increment_between(model, state.q, state.history)
    h = scheme.history_node * dt
    apart = state.has_history & ~is_continuous(model, h, state.v, known, state.v)
    status = jnp.where(apart & (status == lm.RUNNING), jnp.int8(Status.BRANCH), status)
    if scheme.start == "linear":
        plus = manifold.retract(model, manifold.identity_increment(model), h * state.v)
        return jnp.where(state.has_history, known, plus), status, ()
    backwards = radau(3 if scheme.order > 3 else 2)
    dense = "parallel" if config.recurrence == "sweeps" else config.recurrence
    newton = config._replace(method="lm", objective="root", recurrence=dense)

    def problem_at(model, start, h):
        eq = equation.collocation(model, backwards, h, start, None)
        return problem_of(model, backwards, newton, start, eq, predictor.straight(eq.nodes, h, start.v))

    def made(model, start, status, h):
        start = step_start(model, start, start.control, dense)
        found = find(problem_at(model, start, h), status)
        return found.attempt.x, jnp.where(found.status == Status.CONVERGED, status, found.status)

    def none(model, start, status, h):
        del start, h
        return jnp.broadcast_to(manifold.identity_increment(model), (backwards.m, model.nq)), status

    missing = ~state.has_history & (status == lm.RUNNING)
    if known_roots is None:
        z, after = cond_if_any(missing, none, made, *jax.lax.stop_gradient((model, start, status, h)))
    else:
        z, after = known_roots.before, status
    begun = dataclasses.replace(start, recurrence=dense)
    attached = lambda z: root(problem_at(model, begun, h), z, after == status)[-1]  # noqa: E731
    return loops.cond(missing, attached, lambda z: known, z), after, z


def from_radau(problem: StageProblem, found: continuation.State) -> continuation.State:
    """A second attempt where the first failed, from the stages of radau(2) as the guess."""

    def again(problem: StageProblem, found: continuation.State) -> continuation.State:
        model, start, eq = problem.model, problem.start, problem.eq
        first, running = radau(2), jnp.int8(lm.RUNNING)
        other = equation.collocation(model, first, eq.dt, start, None)
        line = predictor.straight(other.nodes, eq.dt, start.v)
        path = find(problem_of(model, first, problem.config, start, other, line), running)
        direction = predictor.at_other_nodes(model, other.nodes, path.attempt.x, eq.nodes)
        second = find(dataclasses.replace(problem, direction=direction), running)
        better = jax.tree.map(lambda a, b: jnp.where(second.status == Status.CONVERGED, a, b), second, found)
        return better._replace(iterations=found.iterations + path.iterations + second.iterations)

    retry = (found.status != Status.CONVERGED) & (found.iterations > 0)
    return cond_if_any(retry, lambda problem, found: found, again, jax.lax.stop_gradient(problem), found)
