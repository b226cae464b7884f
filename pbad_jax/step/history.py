"""What schemes with a history node need besides: the node before the first step, and a second way to a root.

Such a scheme (legendre) joins its stages to a configuration of the step before. Its equation does not become trivial as
dt goes to zero, so that there is no continuation to fall back on.
"""

import dataclasses

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.kinematics import manifold
from pbad_jax.math.batched import cond_if_any
from pbad_jax.math.small import computed_once
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import AnyScheme, Scheme, radau
from pbad_jax.solver import continuation, implicit
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.branch import is_continuous
from pbad_jax.stage.problem import SolverConfig, StageProblem, find, problem_of, root
from pbad_jax.stage.start import StepStart, step_start


def history_span(scheme: AnyScheme) -> float:
    """From the history that a step leaves to its end, in steps: the node of legendre, else the last interior stage."""
    if not isinstance(scheme, Scheme):
        return 1.0
    return -scheme.history_node if scheme.has_history else 1.0 - sum(scheme.nodes[-2:-1])


def left_by(scheme: AnyScheme, dt, q: jax.Array, v: jax.Array) -> dict[str, jax.Array]:
    """What a State says of the history that a step of length dt leaves, which leads to q and v; fields by name.

    Only schemes with history write q and v; after a step of another scheme they are those of before, or of no step.
    """
    span = {"history_span": jax.lax.stop_gradient(history_span(scheme) * dt)}
    if not isinstance(scheme, Scheme) or not scheme.has_history:
        return span
    q, v = computed_once(q, v)  # to be compared with the state's own
    return span | {"history_q": q, "history_v": v}


def _remembered(scheme: Scheme, dt, state: State) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether the state's history is that of this step, () bool; the q (nq,) and v (nv,) that it led to.

    It is where it spans what this step needs, and q and v are still those.
    """
    needed = -scheme.history_node * dt
    by_hand = state.history_span == 0
    fits = jnp.abs(state.history_span - needed) <= 8 * jnp.finfo(dt.dtype).eps * needed
    untouched = jnp.all(state.q == state.history_q) & jnp.all(state.v == state.history_v)
    q = jnp.where(by_hand, state.q, state.history_q)
    v = jnp.where(by_hand, state.v, state.history_v)
    return state.has_history & (by_hand | (fits & untouched)), q, v


def history_node(
    model: Model, scheme: Scheme, config: SolverConfig, dt, start: StepStart, state: State, status, known_roots
):
    """Increment (nq,) of the history node: the state's, or where it has none for this step made from (q, v); status and
    root.

    A history that is used has the derivative of a new one by what q and v do that the step which left it did not: a
    kick of zero has the derivative of a kick.
    """
    # the node that the last step left, if it is of this scheme and dt and explains the rates
    usable, q, v = _remembered(scheme, dt, state)
    known = manifold.increment_between(model, q, state.history)
    h = scheme.history_node * dt
    apart = usable & ~is_continuous(model, h, state.v, known, state.v)
    status = jnp.where(apart & (status == lm.RUNNING), jnp.int8(Status.BRANCH), status)
    missing = ~usable & (status == lm.RUNNING)
    # a new one where there is none
    make = _straight if scheme.start == "linear" else _matched
    made, derivative, found, after, z = make(model, scheme, config, h, start, known, missing, status, known_roots)

    # its derivative, by q and v beyond what the step that left it made of them
    def alone(x, left):
        """x, with the derivative of x − left where the history is used."""
        return jnp.where(missing, x, jax.lax.stop_gradient(x) + (x - left))

    def fixed(x):
        return jnp.where(missing, x, jax.lax.stop_gradient(x))

    there = dataclasses.replace(state, q=alone(state.q, q), v=alone(state.v, v), time=fixed(state.time))
    theta = (*jax.tree.map(fixed, (model, start.control, h)), there, found)
    change = implicit.known(derivative, theta, jnp.zeros_like(known))
    return jnp.where(missing, jax.lax.stop_gradient(made), known) + change, after, z


def _straight(model: Model, scheme: Scheme, config, h, start: StepStart, known, missing, status, known_roots):
    """q + h v, literally; as `_matched`, without a root."""
    del scheme, config, known, missing, known_roots

    def node(theta):
        model, _, h, there, _ = theta
        return manifold.retract(model, manifold.identity_increment(model), h * there.v)

    return manifold.retract(model, manifold.identity_increment(model), h * start.v), node, (), status, ()


def _matched(model: Model, scheme: Scheme, config: SolverConfig, h, start: StepStart, known, missing, status, roots):
    """A step backwards to the node with radau, of at least the scheme's order.

    Returns:
        the node where it is missing, a function of θ that has its derivative, what that is taken at (where the node is
        known the stages of the parabola through it), status and root.
    """
    backwards = radau(3 if scheme.order > 3 else 2)
    dense = "parallel" if config.recurrence == "sweeps" else config.recurrence
    newton = config._replace(method="lm", objective="root", recurrence=dense)

    # the equation of a step of −h from the start, as any other step has it
    def still(model):
        return jnp.broadcast_to(manifold.identity_increment(model), (backwards.m, model.nq))

    def problem_at(model, start, h):
        eq = equation.collocation(model, backwards, h, start, None)
        return problem_of(model, backwards, newton, start, eq, predictor.straight(eq.nodes, h, start.v))

    def solved(model, start, status, h):
        start = step_start(model, start, start.control, dense)
        found = find(problem_at(model, start, h), status)
        return found.attempt.x, jnp.where(found.status == Status.CONVERGED, status, found.status)

    def none(model, start, status, h):
        del start, h
        return still(model), status

    # solved where it is missing; where a derivative is taken, the roots that the step found
    if roots is None:
        z, after = cond_if_any(missing, none, solved, *jax.lax.stop_gradient((model, start, status, h)))
    else:
        z, after = roots.before, status
    # the node is a root of that equation, or on the parabola through the node that is known
    good = (status == lm.RUNNING) & (after == status)
    seen = predictor.through_node(model, jnp.asarray(backwards.nodes, h.dtype), h * start.v, known)

    def node(theta):
        model, control, h, there, (z, good) = theta
        return root(problem_at(model, step_start(model, there, control, dense), h), z, good)[-1]

    return jnp.where(good, z, still(model))[-1], node, implicit.keep((jnp.where(missing, z, seen), good)), after, z


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
