"""One step of a collocation, radau or legendre: all stages are solved together."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.errors import Status
from pbad_jax.forces.force import acting
from pbad_jax.kinematics import manifold
from pbad_jax.math import batched
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import Scheme, extrapolation, radau
from pbad_jax.solver import continuation
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation
from pbad_jax.stage.equation import StageEquation, StepStart
from pbad_jax.stage.problem import (
    Equations,
    SolverConfig,
    StepResult,
    displacements,
    find,
    is_small,
    of_stages,
    root,
    step_result,
)
from pbad_jax.stage.work import impulse_work, stage_work


class Begun(NamedTuple):
    """A step whose equation is set up: what its solve needs besides time k."""

    eq: StageEquation
    direction: jax.Array  # (m,nv) guess of the displacements
    status: jax.Array  # RUNNING, or a Status to be passed through


def step(model: Model, scheme: Scheme, config: SolverConfig, dt, start: StepStart, state: State, status) -> StepResult:
    """All stages at once; before them, at the first step, the history node of schemes that have one."""
    begun = begin(model, scheme, config, dt, start, state, status)
    found = find(model, config, start, equations(model, scheme, config, start, begun.eq), begun.direction, begun.status)
    return end(model, scheme, config, start, begun.eq, found)


def begin(model: Model, scheme: Scheme, config: SolverConfig, dt, start: StepStart, state: State, status) -> Begun:
    """All that comes before the solve."""
    z_h = None
    if scheme.has_history:
        z_h, status = _history(model, scheme, config, dt, start, state, status)
    eq = equation.collocation(model, scheme, dt, start, z_h)
    return Begun(eq, _guess(model, scheme, eq, state), status)


def end(
    model: Model, scheme: Scheme, config: SolverConfig, start: StepStart, eq: StageEquation, found: continuation.State
) -> StepResult:
    """All that comes after it."""
    if scheme.has_history and config.retry and config.method == "lm":
        found = _from_radau(model, scheme, config, start, eq, found)
    z = root(equations(model, scheme, config, start, eq), found.attempt.x, found.status == Status.CONVERGED)
    st = equation.stages(model, start, z)
    how = {"twin": config.twin, "dense": config.dense}
    mass = operator.mass(model, jax.tree.map(lambda x: x[-1], st.frames), **how)
    v = equation.end_velocity(model, eq, st, mass, **how)
    history = manifold.compose_increment(model, start.q, z[-2]) if scheme.m > 1 else start.q
    work = jnp.zeros(0, start.q.dtype)
    if config.account:
        work = jnp.asarray(scheme.weights, start.q.dtype) @ stage_work(model, start, eq, st)
        work = work + impulse_work(model, start, eq, st)
    return step_result(model, config, start, found, z[-1], v, history, work)


def _guess(model: Model, scheme: Scheme, eq: StageEquation, state: State) -> jax.Array:
    """The displacements (m,nv) of the stages that the solve starts from: c dt v, or what the last step suggests.

    p is the parabola through the last interior stage and q_k with the slope dt v at q_k, b its curvature. Smooth motion
    goes on along it, c dt v + c² b, where b is small: after a step of another length, or where it whips, it is not.
    Where impulses act at the start of the step, v at its end does not say what comes: at rest it is −dt a/2, a what the
    impulse balances. There the guess is what the last step did: p(c) − p(0) = c dt v + ((c − 1)² − 1) b.
    """
    c, line = eq.nodes[:, None], eq.dt * state.v
    plain = c * line[None]
    if scheme.has_history or scheme.m == 1:
        return plain
    left = 1.0 - scheme.nodes[-2]
    b = (manifold.difference(model, state.q, state.history) + left * line) / left**2
    known = state.has_history
    if acting(model, "step"):
        return jnp.where(known, plain + ((c - 1.0) ** 2 - 1.0) * b[None], plain)
    return jnp.where(known & is_small(b, line), plain + c**2 * b[None], plain)


def equations(model: Model, scheme: Scheme, config: SolverConfig, start: StepStart, eq: StageEquation) -> Equations:
    """What is to be solved."""
    det_C = float(np.linalg.det(scheme.C))
    return of_stages(model, config, start, eq, det_C=det_C, continuous=not scheme.has_history)


def _history(model: Model, scheme: Scheme, config: SolverConfig, dt, start: StepStart, state: State, status):
    """Increment (nq,) of the history node: the state's, or before the first step made from (q, v); and the status.

    "matched": a step backwards to the node with radau, of at least the scheme's order. "linear": q + h v, literally.
    """
    known = manifold.increment_between(model, state.q, state.history)
    h = scheme.history_node * dt
    if scheme.start == "linear":
        return jnp.where(state.has_history, known, _plus(model, h * state.v)), status
    backwards = radau(3 if scheme.order > 3 else 2)
    newton = config._replace(method="lm", objective="root", dense=True)

    def made(model, s, status, h):
        s = equation.step_start(model, s, s.control, twin=config.twin)
        eq = equation.collocation(model, backwards, h, s, None)
        found = find(
            model, newton, s, equations(model, backwards, newton, s, eq), eq.nodes[:, None] * (h * s.v)[None], status
        )
        return found.attempt.x, jnp.where(found.status == Status.CONVERGED, status, found.status)

    def none(model, s, status, h):
        del s, h
        return jnp.broadcast_to(manifold.identity_increment(model), (backwards.m, model.nq)), status

    missing = ~state.has_history & (status == lm.RUNNING)
    operands = jax.lax.stop_gradient((model, start, status, h))
    z, after = batched.cond_if_any(missing, none, made, *operands)

    def attached(z):
        eq = equation.collocation(model, backwards, h, start, None)
        return root(equations(model, backwards, newton, start, eq), z, after == status)[-1]

    return jax.lax.cond(missing, attached, lambda z: known, z), after


def _from_radau(
    model: Model, scheme: Scheme, config: SolverConfig, start: StepStart, eq: StageEquation, found: continuation.State
):
    """A second attempt where the first failed, from the stages of radau(2) as the guess."""

    def again(model, s, eq, found):
        first = radau(2)
        other = equation.collocation(model, first, eq.dt, s, None)
        running = jnp.int8(lm.RUNNING)
        line = other.nodes[:, None] * (eq.dt * s.v)[None]
        path = find(model, config, s, equations(model, first, config, s, other), line, running)
        weights = extrapolation(other.nodes, jnp.ones((), s.q.dtype), at=eq.nodes)
        direction = weights @ displacements(model, path.attempt.x)
        second = find(model, config, s, equations(model, scheme, config, s, eq), direction, running)
        better = jax.tree.map(lambda a, b: jnp.where(second.status == Status.CONVERGED, a, b), second, found)
        return better._replace(iterations=found.iterations + path.iterations + second.iterations)

    model, start, eq = jax.lax.stop_gradient((model, start, eq))
    retry = (found.status != Status.CONVERGED) & (found.iterations > 0)
    return batched.cond_if_any(retry, lambda model, s, eq, found: found, again, model, start, eq, found)


def _plus(model: Model, delta: jax.Array) -> jax.Array:
    """The increment (nq,) of a displacement (nv,)."""
    return manifold.retract(model, manifold.identity_increment(model), delta)
