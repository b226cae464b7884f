"""Many steps of one lane in one compiled loop."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts.inputs import checked_rollout
from pbad_jax.rollouts.progress import report_progress
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, check_options, without_dt
from pbad_jax.step.step import make_step


class Trajectory(NamedTuple):
    """`time` (T,) s, `q` (T,nq), `v` (T,nv) after every step; the initial state is not repeated."""

    time: jax.Array
    q: jax.Array
    v: jax.Array


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
    options = check_options(options, "rollout")
    controls, n_steps = checked_rollout(model, state, controls, n_steps)
    dt, told = jnp.asarray(options.dt, model.dtype), bool(report_progress.wanted(progress))
    return _rollout(model, state, controls, dt, n_steps, without_dt(options), told)


@functools.partial(jax.jit, static_argnames=("n_steps", "options", "progress"))
def _rollout(model, state, controls, dt, n_steps: int, options: Options, progress: bool):
    step = make_step(options)

    def body(state, inputs):
        i, control = inputs
        state, info = step(model, state, control, dt)
        if progress:
            report_progress(i, n_steps)
        return state, (state.q, state.v, info)

    t0 = state.time
    _, (q, v, info) = jax.lax.scan(body, state, (jnp.arange(n_steps), controls), length=n_steps)
    return Trajectory(_times(t0, dt, n_steps), q, v), info


def _times(t0: jax.Array, dt: jax.Array, n: int) -> jax.Array:
    return t0 + dt * jnp.arange(1, n + 1, dtype=dt.dtype)


CHUNK = 64  # steps


def chunk_program(options: Options) -> jax.stages.Wrapped:
    """Up to CHUNK steps without controls, by one program for every dt and number of steps; jitted.

    (model, state, dt () s, n () int32) -> the state after n steps, and q, v, StepInfo (CHUNK,...), of which n count.
    """
    step = jax.jit(make_step(without_dt(options)))  # traced once, for its shapes and for the loop

    @jax.jit
    def run(model: Model, state: State, dt: jax.Array, n: jax.Array):
        def body(k, carry):
            state, out = carry
            state, info = step(model, state, None, dt)
            return state, jax.tree.map(lambda all, x: all.at[k].set(x), out, (state.q, state.v, info))

        after, info = jax.eval_shape(lambda: step(model, state, None, dt))
        rows = jax.tree.map(lambda x: jnp.zeros((CHUNK, *x.shape), x.dtype), (after.q, after.v, info))
        return jax.lax.fori_loop(0, n, body, (state, rows))

    return run


def chunk_arguments(model: Model, state: State, options: Options) -> tuple:
    """What a `chunk_program` is compiled for."""
    return model, state, jnp.asarray(options.dt, model.dtype), jnp.asarray(CHUNK, jnp.int32)


def chunked_rollout(
    program: Callable, model: Model, state: State, n_steps: int, options: Options, *, progress: bool | None = None
) -> tuple[Trajectory, StepInfo]:
    """`rollout` without controls by a compiled `chunk_program`, chunk after chunk; not inside jit."""
    *given, _ = chunk_arguments(model, state, options)
    t0, parts, began, told = state.time, [], time.monotonic(), report_progress.wanted(progress)
    for k in range(0, max(n_steps, 1), CHUNK):
        n = min(CHUNK, n_steps - k)
        given[1], rows = program(*given, jnp.asarray(n, jnp.int32))
        parts.append(jax.tree.map(lambda x, n=n: np.asarray(x)[:n], rows))
        if told and n:
            report_progress.show(k + n, n_steps, began)
    q, v, info = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    return Trajectory(_times(t0, given[2], n_steps), q, v), info
