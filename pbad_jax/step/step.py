"""One step as a pure function: joins the stage equation, the solver and the honest status.

Read next: rollouts/rollout.py.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.checks import given_step_size, is_step_size
from pbad_jax.dynamics import energy
from pbad_jax.errors import Status
from pbad_jax.kinematics import manifold
from pbad_jax.math import loops
from pbad_jax.math.precision import with_all_bits
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, activated, checked, driven, later
from pbad_jax.schemes import AnyScheme
from pbad_jax.solver import implicit
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage.branch import adds_energy, is_continuous, passes_through
from pbad_jax.stage.problem import SolverConfig, find
from pbad_jax.stage.result import Roots, StepResult
from pbad_jax.stage.start import StepStart, step_start
from pbad_jax.stage.work import exact_where_known
from pbad_jax.step import collocation, dirk, history, in_parts, still, variational
from pbad_jax.step.info import StepInfo, has_gradient, reported
from pbad_jax.step.method import Leg, Method
from pbad_jax.step.options import Options, check_options, resolve, rule_of, scheme_of, solved_for


def make_step(options: Options):
    """One step as a pure function (model, state, control=None, dt=None) -> (state, info).

    It is not jitted: wrap it in `jax.jit`, `jax.vmap`, `jax.lax.scan` as you like; it compiles once per shape. It can
    be differentiated, forward and reverse and again, by every array of its arguments (docs/gradients.md); reverse mode
    keeps the state and the stages of every step, whatever the number of iterations.

    Args:
        options: see Options.

    Returns:
        step: model, State, control (nu,) or None (zeros), dt () s or None (that of the options), to the State at
        time + dt and a StepInfo. A step that fails returns the last good state with its status, and later steps of
        that state do nothing (FROZEN); its derivative is zero, or on request NaN (Options.failed_gradient).

    Raises:
        OptionError, StateError: from the returned function while it is traced, for shapes, dtypes, a state of
            another model, a dt ≤ 0 (traced: NONFINITE_INPUT), or a tolerance below what the dtype resolves.

    Example:
        >>> step = jax.jit(pbad.make_step(options))
        >>> after, info = step(arm, pbad.make_state(arm, [1.0, 0.0]))
        >>> bool(info.ok), float(after.time)
        (True, 0.05)
    """
    check_options(options, "make_step")

    @with_all_bits
    def step(model: Model, state: State, control: jax.Array | None = None, dt=None) -> tuple[State, StepInfo]:
        control, model = checked(model, state, control), solved_for(options, model)
        config, dt = resolve(options, model), given_step_size(dt, options.dt, model.dtype)
        once = functools.partial(step_once, scheme_of(options), config, options.failed_gradient)
        given = loops.alike((model, control, dt, state))
        if (rule := rule_of(options)) is None:
            return loops.alike(implicit.checkpointed(lambda *given: once(*given)[:2])(*given))
        return loops.alike(in_parts.whole_or_in_parts(once, config, rule, options.failed_gradient, *given))

    return step


METHODS = {"collocation": collocation.METHOD, "dirk": dirk.METHOD, "variational": variational.METHOD}


def method_of(scheme: AnyScheme, model: Model) -> Method:
    """How it makes a step."""
    return METHODS[scheme.kind] if model.nv else still.METHOD


class Prepared(NamedTuple):
    """A step before its solve; `model`, `state`, `control` and `dt` with harmless numbers where they were not."""

    model: Model
    state: State
    control: jax.Array  # (nu,)
    dt: jax.Array  # ()
    start: StepStart
    status: jax.Array  # RUNNING, or why this step is not to be solved


def step_once(
    scheme: AnyScheme, config: SolverConfig, failed_gradient: str, model: Model, control, dt, state: State, known=None
) -> tuple[State, StepInfo, Roots]:
    """One step of length dt: solve, judge, and keep the last good state where it failed; and what was solved for.

    known: the Roots that an earlier call has found, and whether they are good, () bool: nothing is solved or judged.
    """
    s, roots = prepare(scheme, config, model, control, dt, state), None
    if known is not None:
        roots, good = known
        s = s._replace(status=jnp.where(good, s.status, jnp.int8(Status.FROZEN)))
        config = config._replace(retry=False)
    found = run(scheme, config, s, roots)
    return *finish(scheme, config, failed_gradient, state, s, found, judged=known is not None), found.roots


def run(scheme: AnyScheme, config: SolverConfig, s: Prepared, known: Roots | None = None) -> StepResult:
    """A step as its Method says: begin, solve, end. known: the Roots, where nothing is to be solved."""
    method, given = method_of(scheme, s.model), (s.model, scheme, config, s.start)
    problem_of, more, legs = method.problem, method.more, method.legs
    leg = method.begin(s.model, scheme, config, s.dt, s.start, s.state, s.status, known)

    def found(leg: Leg, root):
        return find(problem_of(*given, leg), leg.status, root) if problem_of else still.solved(leg.status)

    # all stages at once
    if more is None or legs is None:
        return method.end(*given, leg, found(leg, known and known.stages), known)

    # or one after another, in one compiled loop
    def solved(i, leg: Leg) -> Leg:
        return more(*given, leg, found(leg, known and known.stages[i]))

    return method.end(*given, loops.fori_loop(0, legs(scheme), solved, leg), None, known)


def prepare(scheme: AnyScheme, config: SolverConfig, model: Model, control, dt, state: State) -> Prepared:
    """All that comes before the solve."""
    status = _status_before(model, state, control, dt)
    model, state, control, dt = _sound_inputs(model, state, control, dt)
    kick = 1.0 if scheme.kind == "collocation" and scheme.m == 1 else None  # radau(1) gives all of it at the start
    start = step_start(model, state, driven(model, state, control, dt), config.recurrence, kick)
    return Prepared(model, state, control, dt, start, status)


def prepare_again(model: Model, control, dt, state: State, start: StepStart, status) -> Prepared:
    """What `prepare` returned, where only `start` and `status` were kept of it."""
    return Prepared(*_sound_inputs(model, state, control, dt), start, status)


def finish(
    scheme: AnyScheme,
    config: SolverConfig,
    failed_gradient: str,
    given: State,
    s: Prepared,
    found: StepResult,
    judged: bool = False,
) -> tuple[State, StepInfo]:
    """The state after the step, `given` itself where it failed, and its StepInfo. judged: the status is final."""
    model, state, control, dt = s.model, s.state, s.control, s.dt
    status = found.status if judged else _judged(scheme, s, found)
    good = implicit.keep(status == Status.CONVERGED)  # or reverse mode would solve again to know it

    def new(x, last):
        """`last` where the step failed: a constant."""
        return jnp.where(good, x, implicit.constant(last, good, failed_gradient))

    # q ⊕ z and v, and what the scheme keeps of them for the next step
    q, v = manifold.compose_increment(model, state.q, found.z), found.v
    left = history.left_by(scheme, dt, q, v)
    q, v = left.get("history_q", q), left.get("history_v", v)  # the state's own to the last bit
    # every leaf of the state is that after the step where it was solved, else the one before
    after = dataclasses.replace(
        given,
        q=new(q, given.q),
        v=new(v, given.v),
        **{name: new(x, getattr(given, name)) for name, x in later(state, dt).items()},
        **{name: new(x, getattr(given, name)) for name, x in activated(model, state, control, dt).items()},
        history=new(found.history, given.history),
        has_history=state.has_history | good,
        **{name: new(x, getattr(given, name)) for name, x in left.items()},
        status=status,
    )
    # the account of the work: of every force, and of the scheme what is left
    work = numerical = None
    if config.account:
        work = exact_where_known(model, state, after, jnp.where(good, found.work, 0.0), s.start.control)
        gained = energy.kinetic_energy(model, after) - energy.kinetic_energy(model, state)
        numerical = gained - jnp.sum(work)
    # how the step went
    error = jnp.where(good, found.figures.error, jnp.nan)
    info = StepInfo(
        status=status,
        substeps=jnp.ones((), jnp.int32),
        grad_ok=has_gradient(status, found.figures.condition),
        work=work,
        numerical_work=numerical,
        **reported(model, found.figures._replace(error=error), config.condition),
    )
    return after, info


def _sound_inputs(model: Model, state: State, control: jax.Array, dt: jax.Array) -> tuple[Model, State, Any, Any]:
    """The same with harmless numbers where there are NaN, for whatever is computed on the way to a failure.

    Their derivatives would be 0 · NaN, and reach other lanes through what these share.
    """
    sound = _has_no_nan(model)
    model = jax.tree.map(lambda x: jnp.where(sound, x, jnp.ones_like(x)), model)
    finite = _is_finite(state, control)
    still = {"q": model.q0, "v": 0.0, "time": 0.0, "time_rest": 0.0}
    still |= {"history": model.q0, "history_q": model.q0, "history_v": 0.0}
    still |= {} if state.activation is None else {"activation": 0.0}
    state = dataclasses.replace(state, **{k: jnp.where(finite, getattr(state, k), x) for k, x in still.items()})
    return model, state, jnp.where(finite, control, 0.0), jnp.where(is_step_size(dt), dt, 1.0)


def _has_no_nan(model: Model) -> jax.Array:
    leaves = [x.reshape(-1) for x in jax.tree.leaves(model) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return ~jnp.any(jnp.isnan(jnp.concatenate(leaves)))  # one kernel, not one for each


def _is_finite(state: State, control: jax.Array) -> jax.Array:
    """Whether q, v, history and time are finite and the control is not NaN."""
    known = jnp.where(state.has_history, state.history, 0.0)
    parts = [state.q, state.v, known, state.time[None], state.time_rest[None]]
    parts += [] if state.activation is None else [state.activation]
    return jnp.all(jnp.isfinite(jnp.concatenate(parts))) & ~jnp.any(jnp.isnan(control))


def _status_before(model: Model, state: State, control: jax.Array, dt: jax.Array) -> jax.Array:
    """RUNNING, or why this step is not to be solved."""
    finite = _is_finite(state, control) & _has_no_nan(model) & is_step_size(dt)
    status = jnp.where(finite, lm.RUNNING, int(Status.NONFINITE_INPUT))
    return jnp.where(state.status == Status.CONVERGED, status, int(Status.FROZEN)).astype(jnp.int8)


def _judged(scheme: AnyScheme, s: Prepared, found: StepResult) -> jax.Array:
    """BRANCH where a converged root is not continuous with the start, went through something, or has energy that no
    force explains; NONFINITE_EVAL where its rates are not finite.
    """
    # the energy, beyond what the scheme adds by itself
    model, dt, method = s.model, s.dt, method_of(scheme, s.model)
    error, gains = method.own_error(model, scheme, found), jnp.zeros((), bool)
    if error is not None:
        gains = adds_energy(model, s.start, dt, found.stages, found.v, found.work, error, method.settles)

    # the way; what did not converge keeps its status
    smooth = is_continuous(model, dt, s.state.v, found.z, found.v) & ~passes_through(model, dt, s.start, found.z)
    status = jnp.where(smooth & ~gains, found.status, int(Status.BRANCH))
    status = jnp.where(jnp.all(jnp.isfinite(found.v)), status, int(Status.NONFINITE_EVAL))
    return jnp.where(found.status == Status.CONVERGED, status, found.status).astype(jnp.int8)
