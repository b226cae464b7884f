"""One step of a collocation, radau or legendre: all stages are solved together.

Read next: step/step.py.
"""

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.kinematics import manifold
from pbad_jax.laws.force import acting
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import Scheme
from pbad_jax.solver import continuation
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.branch import LITTLE_TURN, largest_turn, turns_little
from pbad_jax.stage.fields import stages
from pbad_jax.stage.problem import SolverConfig, StageProblem, problem_of, root
from pbad_jax.stage.result import Roots, StepResult, step_result
from pbad_jax.stage.start import StepStart
from pbad_jax.stage.work import counted, impulse_work, stage_work
from pbad_jax.step.closing_impulse import after_closing_impulse, divided, impulse_work_before, is_closed_by_one
from pbad_jax.step.error import local_error
from pbad_jax.step.history import from_radau, history_node
from pbad_jax.step.method import Leg, Method

OWN_ERROR = 0.01  # of the energy at stake in a step, what radau may add by itself
OVER_A_HILL = 0.1  # radau(1) where joints turn little: what falls by λ gains up to (λ dt)² on its way over the top
TURNED = 0.09  # and where a joint turns far: by a radian, which meets a force that turns with it late; radau(1) by less


def begin(
    model: Model, scheme: Scheme, config: SolverConfig, dt, start: StepStart, state: State, status, known=None
) -> Leg:
    """What is to be solved; it remembers what was solved before it."""
    z_h, before = None, ()
    if scheme.has_history:
        z_h, status, before = history_node(model, scheme, config, dt, start, state, status, known)
    eq = equation.collocation(model, scheme, dt, start, z_h)
    if is_closed_by_one(model, scheme):
        assert eq.impulse is not None
        eq = eq._replace(impulse=divided(eq.impulse))
    return Leg(eq, predictor.along_last_step(model, scheme, eq, state), status, before)


def problem(model: Model, scheme: Scheme, config: SolverConfig, start: StepStart, leg: Leg) -> StageProblem:
    """The equations of all stages."""
    return problem_of(model, scheme, config, start, leg.eq, leg.direction)


def end(
    model: Model,
    scheme: Scheme,
    config: SolverConfig,
    start: StepStart,
    leg: Leg,
    found: continuation.State,
    known: Roots | None = None,
) -> StepResult:
    """All that comes after the solve."""
    # the stages, if need be from another guess
    eq, solved = leg.eq, problem(model, scheme, config, start, leg)
    if scheme.has_history and config.retry and config.method == "lm":
        found = from_radau(solved, found)
    z = root(solved, found.attempt.x, found.status == Status.CONVERGED)
    st = stages(model, start, z)

    # the velocity at the end, and where the next step's history is
    v, _, mass = equation.end_velocity(model, start, eq, st)
    history = manifold.compose_increment(model, start.q, z[-2]) if scheme.m > 1 else start.q

    # the work at the stages, and of what acts once a step
    which, closed = counted(model, start, config.account), is_closed_by_one(model, scheme)
    work = jnp.asarray(scheme.weights, start.q.dtype) @ stage_work(model, start, eq, st, which)
    once = impulse_work_before(model, start, eq.dt, st, which) if closed else impulse_work(model, start, eq, st, which)

    # how far it is from the motion
    J, pushes = found.attempt.J if config.method == "lm" else None, None
    if eq.impulse is not None and acting(model, "step"):
        pushes = jax.lax.stop_gradient(equation.end_load(model, start, 1.0, st, eq.dt))
    error = local_error(model, scheme, start, eq, st, pushes, mass, J)

    # all of it, with the impulse at the end of schemes that divide theirs
    roots = Roots(leg.memory, found.attempt.x)
    result = step_result(solved, found, st, v, history, work + once, roots)
    result = result._replace(figures=result.figures._replace(error=error))
    if not closed or pushes is None:
        return result
    return after_closing_impulse(solved, result, st, pushes, known and known.closing)


def own_error(model: Model, scheme: Scheme, result: StepResult) -> jax.Array | None:
    """None with a history, which the energy of one step says little about."""
    if scheme.has_history:
        return None
    moved = manifold.difference(model, manifold.identity_increment(model), result.z)
    turn = largest_turn(model, moved[None])
    if scheme.m > 1:
        return OWN_ERROR + TURNED * jnp.minimum(turn, 1.0) ** 4
    far = OWN_ERROR + TURNED * jnp.minimum(turn / LITTLE_TURN, 1.0)
    return jnp.where(turns_little(model, result.z), OVER_A_HILL, far)


METHOD = Method(begin, problem, end, own_error)
