"""Steps and rollouts: joins the stage equation, the solver and the honest status."""

import dataclasses
import functools
import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import (
    accounts,
    energy,
    implicit,
    objectives,
    step_collocation,
    step_dirk,
    step_info,
    step_variational,
    substeps,
)
from pbad_jax import kinematics as kin
from pbad_jax import levenberg_marquardt as lm
from pbad_jax.branch import is_continuous
from pbad_jax.errors import OptionError, StateError, Status
from pbad_jax.model import Model, State
from pbad_jax.options import Options, solver
from pbad_jax.progress import report_progress
from pbad_jax.schemes import Dirk, Scheme, Variational
from pbad_jax.solving import Outcome, Solver
from pbad_jax.step_info import StepInfo

METHODS = {Scheme: step_collocation.step, Dirk: step_dirk.step, Variational: step_variational.step}


class Trajectory(NamedTuple):
    """`time` (T,) s, `q` (T,nq), `v` (T,nv) after every step; the initial state is not repeated."""

    time: jax.Array
    q: jax.Array
    v: jax.Array


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
            another model, or a tolerance below what the dtype resolves.
    """
    if not isinstance(options, Options):
        raise OptionError(f"make_step takes Options; got {type(options).__name__}: write Options(dt=0.05)")

    def step(model: Model, state: State, control: jax.Array | None = None, dt=None) -> tuple[State, StepInfo]:
        control, how = _checked(model, state, control), solver(options, model)
        attempt = implicit.checkpointed(functools.partial(_attempt, options.scheme, how, options.failed_gradient))
        dt = jnp.asarray(options.dt if dt is None else dt, model.dtype)
        if options.on_failure == "freeze":
            return attempt(model, control, dt, state)
        return substeps.in_parts(attempt, options.failed_gradient, model, control, dt, state)

    return step


def _checked(model: Model, state: State, control) -> jax.Array:
    """The control as an array; shapes, dtypes and the model's fingerprint are looked at while tracing."""
    if state.fingerprint != model.fingerprint:
        raise StateError(
            f"the state belongs to a model with fingerprint {state.fingerprint}, but this model has "
            f"{model.fingerprint}: make it with make_state(model, q, v)"
        )
    for name, x, size in (("q", state.q, model.nq), ("v", state.v, model.nv)):
        if x.shape != (size,):
            batch = x.ndim > 1 and x.shape[-1] == size
            hint = "it looks like a batch: use jax.vmap or rollout_batch" if batch else "make it with make_state"
            raise StateError(f"state.{name} has shape {x.shape}; wanted ({size},): {hint}")
        if x.dtype != model.dtype:
            raise StateError(
                f"state.{name} is {x.dtype} but the model is {model.dtype}: make_state casts to the model's"
            )
    if control is None:
        return jnp.zeros(model.nu, model.dtype)
    control = jnp.asarray(control)
    if control.shape != (model.nu,):
        names = ", ".join(model.topology.actuator_names[:8]) or "none"
        raise StateError(f"control has shape {control.shape}; wanted ({model.nu},), one for each actuator: {names}")
    return control.astype(model.dtype)


def _attempt(scheme, how: Solver, failed: str, model: Model, control, dt, state: State) -> tuple[State, StepInfo]:
    """One step of length dt: solve, judge, and keep the last good state where it failed."""
    given, before = state, _status_before(model, state, control)
    model, state, control = _sound(model, state, control)
    here = objectives.here(model, state, control, twin=how.twin, dense=how.dense)
    found = METHODS[type(scheme)](model, scheme, how, dt, here, state, before)
    status = _continuity(model, dt, state.v, found)
    good = implicit.keep(status == Status.CONVERGED)  # or reverse mode would solve again to know it

    def new(x, last):
        """`last` where the step failed: a constant."""
        return jnp.where(good, x, implicit.constant(last, good, failed))

    after = dataclasses.replace(
        given,
        q=new(kin.compose_increment(model, state.q, found.z), given.q),
        v=new(found.v, given.v),
        time=new(state.time + dt, given.time),
        history=new(found.history, given.history),
        has_history=state.has_history | good,
        status=status,
    )
    work = numerical = None
    if how.account:
        work = accounts.exact_where_known(model, state, after, jnp.where(good, found.work, 0.0), control)
        gained = energy.kinetic_energy(model, after) - energy.kinetic_energy(model, state)
        numerical = gained - jnp.sum(work)
    info = StepInfo(
        status=status,
        iterations=found.iterations,
        residual=found.residual,
        reached=found.reached,
        damping=found.damping,
        substeps=jnp.ones((), jnp.int32),
        worst=found.worst,
        grad_ok=step_info.has_gradient(status, found.condition),
        work=work,
        numerical_work=numerical,
        condition=found.condition if how.condition else None,
        **step_info.names(model),
    )
    return after, info


def _sound(model: Model, state: State, control: jax.Array) -> tuple[Model, State, jax.Array]:
    """The same with harmless numbers where there are NaN, for whatever is computed on the way to a failure.

    Their derivatives would be 0 · NaN, and reach other lanes through what these share.
    """
    sound = _has_no_nan(model)
    model = jax.tree.map(lambda x: jnp.where(sound, x, jnp.ones_like(x)), dataclasses.replace(model, geometry=None))
    finite = _is_finite(state, control)
    q, v = jnp.where(finite, state.q, model.q0), jnp.where(finite, state.v, 0.0)
    history, time = jnp.where(finite, state.history, model.q0), jnp.where(finite, state.time, 0.0)
    state = dataclasses.replace(state, q=q, v=v, history=history, time=time)
    return model, state, jnp.where(finite, control, 0.0)


def _has_no_nan(model: Model) -> jax.Array:
    leaves = jax.tree.leaves(dataclasses.replace(model, geometry=None))
    return ~jnp.any(jnp.stack([jnp.any(jnp.isnan(leaf)) for leaf in leaves]))


def _is_finite(state: State, control: jax.Array) -> jax.Array:
    """Whether q, v, history and time are finite and the control is not NaN."""
    known = jnp.where(state.has_history, state.history, 0.0)
    parts = (state.q, state.v, known, state.time[None])
    return jnp.all(jnp.isfinite(jnp.concatenate(parts))) & ~jnp.any(jnp.isnan(control))


def _status_before(model: Model, state: State, control: jax.Array) -> jax.Array:
    """RUNNING, or why this step is not to be solved."""
    finite = _is_finite(state, control) & _has_no_nan(model)
    status = jnp.where(finite, lm.RUNNING, int(Status.NONFINITE_INPUT))
    return jnp.where(state.status == Status.CONVERGED, status, int(Status.FROZEN)).astype(jnp.int8)


def _continuity(model: Model, dt, v_old, found: Outcome) -> jax.Array:
    """BRANCH where a converged root is not continuous with the start, NONFINITE_EVAL where its rates are not finite."""
    smooth = is_continuous(model, dt, v_old, found.z, found.v)
    status = jnp.where(smooth, found.status, int(Status.BRANCH))
    status = jnp.where(jnp.all(jnp.isfinite(found.v)), status, int(Status.NONFINITE_EVAL))
    return jnp.where(found.status == Status.CONVERGED, status, found.status).astype(jnp.int8)


def rollout(
    model: Model,
    state: State,
    controls: Any = None,
    n_steps: int | None = None,
    options: Options | None = None,
    *,
    progress: bool | None = None,
) -> tuple[Trajectory, StepInfo]:
    """Many steps in one compiled `lax.scan`.

    Args:
        model: the model. state: the initial state.
        controls: (T,nu), held over a step each, or None for zeros.
        n_steps: T; may be left out where controls give it. Zero is allowed.
        options: see Options.
        progress: a progress bar on stderr; default None draws one where stderr is a terminal and the rollout
            takes longer than two seconds.

    Returns:
        Trajectory and StepInfo, all with a leading axis (T,).

    Raises:
        StateError: shapes; OptionError: no options, or a bad n_steps.
    """
    if not isinstance(options, Options):
        raise OptionError(f"rollout needs options=Options(dt=...); got {options!r:.60}")
    if controls is None and n_steps is None:
        raise OptionError("rollout needs n_steps, or controls of shape (T, nu)")
    if controls is not None:
        controls = jnp.asarray(controls)
        if controls.ndim != 2 or controls.shape[1] != model.nu:
            raise StateError(f"controls have shape {controls.shape}; wanted (T, {model.nu}) for this model")
        n_steps = controls.shape[0] if n_steps is None else n_steps
    if isinstance(n_steps, bool) or not isinstance(n_steps, numbers.Integral) or n_steps < 0:
        raise OptionError(f"n_steps is {n_steps!r}; it must be an integer ≥ 0")
    if controls is not None and controls.shape[0] < n_steps:
        raise StateError(f"controls cover {controls.shape[0]} steps but n_steps is {n_steps}: give one row a step")
    if controls is not None:
        controls = controls[:n_steps]
    _checked(model, state, None)  # a clear error before compiling
    return _rollout(model, state, controls, int(n_steps), options, bool(report_progress.wanted(progress)))


@functools.partial(jax.jit, static_argnames=("n_steps", "options", "progress"))
def _rollout(model, state, controls, n_steps: int, options: Options, progress: bool):
    step = make_step(options)

    def body(state, inputs):
        i, control = inputs
        state, info = step(model, state, control)
        if progress:
            report_progress(i, n_steps)
        return state, (state.q, state.v, info)

    t0 = state.time
    _, (q, v, info) = jax.lax.scan(body, state, (jnp.arange(n_steps), controls), length=n_steps)
    time = t0 + jnp.asarray(options.dt, model.dtype) * jnp.arange(1, n_steps + 1, dtype=model.dtype)
    return Trajectory(time, q, v), info
