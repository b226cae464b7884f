"""Many steps of one lane in one compiled loop."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pbad_jax.math import loops
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts import padded
from pbad_jax.rollouts.devices import together
from pbad_jax.rollouts.inputs import checked_rollout
from pbad_jax.rollouts.progress import report_progress
from pbad_jax.rollouts.trajectory import Trajectory, row_of, trajectory_of
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, check_options, looks_back, without_dt
from pbad_jax.step.step import make_step


def rollout(
    model: Model,
    state: State,
    controls: Any = None,
    n_steps: int | None = None,
    options: Options | None = None,
    *,
    progress: bool | None = None,
) -> tuple[Trajectory, StepInfo]:
    """Many steps in one compiled loop: inside jit, vmap or grad a `lax.scan`.

    Elsewhere another dt, other numbers of the model and any number of steps up to 256 (then 1024, 4096, ...) compile
    nothing.

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

    Example:
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> traj.q.shape
        (2, 2)
        >>> bool(info.ok)
        True
    """
    options = check_options(options, "rollout")
    controls, n_steps = checked_rollout(model, state, controls, n_steps)
    told = bool(report_progress.wanted(progress))
    if padded.is_traced((model, state, controls)):
        dt = jnp.asarray(options.dt, model.dtype)
        return _rollout(model, state, controls, dt, n_steps, without_dt(options), told)
    model, state, controls = together((model, state, controls))
    arguments = padded.given(model, state, controls, n_steps, options)
    return padded.rolled_out(arguments, n_steps, options, told)


@functools.partial(jax.jit, static_argnames=("n_steps", "options", "progress"))
def _rollout(model, state, controls, dt, n_steps: int, options: Options, progress: bool):
    step = make_step(options)

    def body(state, inputs):
        i, control = inputs
        state, info = step(model, state, control, dt)
        if progress:
            report_progress(i, n_steps)
        return state, (row_of(state, looks_back(options)), info)

    _, (row, info) = loops.scan(body, state, (jnp.arange(n_steps), controls), length=n_steps)
    return trajectory_of(state, dt, row, info.status, 0, n_steps), info
