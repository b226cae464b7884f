"""Steps and rollouts: joins the stage equation, the solver and the honest status."""

import functools
import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import attempt, implicit, substeps
from pbad_jax.errors import OptionError, StateError
from pbad_jax.model import Model, State
from pbad_jax.options import Options, solver
from pbad_jax.progress import report_progress
from pbad_jax.step_info import StepInfo


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
        control, how = checked(model, state, control), solver(options, model)
        whole = implicit.checkpointed(functools.partial(attempt.whole, options.scheme, how, options.failed_gradient))
        dt = jnp.asarray(options.dt if dt is None else dt, model.dtype)
        if options.on_failure == "freeze":
            return whole(model, control, dt, state)
        return substeps.in_parts(whole, options.failed_gradient, model, control, dt, state)

    return step


def checked(model: Model, state: State, control) -> jax.Array:
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
    controls, n_steps = checked_rollout(model, state, controls, n_steps)
    return _rollout(model, state, controls, n_steps, options, bool(report_progress.wanted(progress)))


def checked_rollout(model: Model, state: State, controls: Any, n_steps: Any) -> tuple[jax.Array | None, int]:
    """The controls (n_steps,nu) or None, and n_steps; clear errors before anything is compiled."""
    if controls is None and n_steps is None:
        raise OptionError("rollout needs n_steps, or controls of shape (T, nu)")
    if controls is not None:
        controls = jnp.asarray(controls)
        if controls.ndim != 2 or controls.shape[1] != model.nu:
            raise StateError(f"controls have shape {controls.shape}; wanted (T, {model.nu}) for this model")
        n_steps = controls.shape[0] if n_steps is None else n_steps
    if isinstance(n_steps, bool) or not isinstance(n_steps, numbers.Integral) or int(n_steps) < 0:
        raise OptionError(f"n_steps is {n_steps!r}; it must be an integer ≥ 0")
    if controls is not None and controls.shape[0] < n_steps:
        raise StateError(f"controls cover {controls.shape[0]} steps but n_steps is {n_steps}: give one row a step")
    if controls is not None:
        controls = controls[:n_steps]
    checked(model, state, None)
    return controls, int(n_steps)


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
