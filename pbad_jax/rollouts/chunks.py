"""Rollouts chunk after chunk, by one program for every dt and number of steps: what a command line wants."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.model.model import Model
from pbad_jax.model.state import State, times
from pbad_jax.rollouts.progress import report_progress
from pbad_jax.rollouts.rollout import Trajectory
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, without_dt
from pbad_jax.step.step import make_step

CHUNK = 64  # steps


def chunk_program(options: Options) -> jax.stages.Wrapped:
    """Up to CHUNK steps under one control, by one program for every dt and number of steps; jitted.

    (model, state, control (nu,), dt () s, n () int32) -> the state after n steps, and q, v, StepInfo (CHUNK,...), of
    which n count.
    """
    step = jax.jit(make_step(without_dt(options)))  # traced once, for its shapes and for the loop

    @jax.jit
    def run(model: Model, state: State, control: jax.Array, dt: jax.Array, n: jax.Array):
        def body(k, carry):
            state, out = carry
            state, info = step(model, state, control, dt)
            return state, jax.tree.map(lambda all, x: all.at[k].set(x), out, (state.q, state.v, info))

        after, info = jax.eval_shape(lambda: step(model, state, control, dt))
        rows = jax.tree.map(lambda x: jnp.zeros((CHUNK, *x.shape), x.dtype), (after.q, after.v, info))
        return jax.lax.fori_loop(0, n, body, (state, rows))

    return run


def chunk_arguments(model: Model, state: State, options: Options, control=None) -> tuple:
    """What a `chunk_program` is compiled for; without a control, zeros."""
    control = jnp.zeros(model.nu, model.dtype) if control is None else jnp.asarray(control, model.dtype)
    return model, state, control, jnp.asarray(options.dt, model.dtype), jnp.asarray(CHUNK, jnp.int32)


def chunked_rollout(
    program: Callable,
    model: Model,
    state: State,
    n_steps: int,
    options: Options,
    control=None,
    *,
    progress: bool | None = None,
) -> tuple[Trajectory, StepInfo]:
    """`rollout` under one control (nu,) by a compiled `chunk_program`, chunk after chunk; not inside jit."""
    *given, _ = chunk_arguments(model, state, options, control)
    parts, began, told = [], time.monotonic(), report_progress.wanted(progress)
    for k in range(0, max(n_steps, 1), CHUNK):
        n = min(CHUNK, n_steps - k)
        given[1], rows = program(*given, jnp.asarray(n, jnp.int32))
        parts.append(jax.tree.map(lambda x, n=n: np.asarray(x)[:n], rows))
        if told and n:
            report_progress.show(k + n, n_steps, began)
    q, v, info = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    return Trajectory(times(state, options.dt, 0, n_steps), q, v), info
