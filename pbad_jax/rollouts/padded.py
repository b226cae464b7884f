"""Rollouts by one program for every dt and many numbers of steps: it has room for more of them than are made.

Outside jit, vmap and grad, where the number of steps is only a number, `rollout` goes this way, and `rollout_batch`
takes its room from here.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from pbad_jax.math import loops
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts.progress import report_progress
from pbad_jax.rollouts.trajectory import Trajectory, row_of, trajectory_of
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, looks_back, without_dt
from pbad_jax.step.step import make_step

LEAST, LEAST_OF_MANY = 256, 16  # steps that there is room for, of one lane and of each of many
GROWTH = 4  # of the room, until all fit
MANY = 2**16  # steps of all lanes together, from which on memory counts and there is room for those that are made
LOOK = 0.3  # s between two looks at a progress bar, about


class Programs(NamedTuple):
    """Jitted. rows: (model, state, control, dt, room) -> empty rows of a Trajectory and StepInfo, (room, ...).
    steps: (model, state, rows, controls (room,nu) or None, dt () s, first, last () int32) -> the state after the steps
    from `first` to before `last`, and the rows with theirs.
    """

    rows: Callable
    steps: jax.stages.Wrapped


def room_for(n_steps: int, least: int = LEAST) -> int:
    """Of steps, so that few programs are compiled."""
    room = least
    while room < n_steps:
        room *= GROWTH
    return room


def room_of_many(n_steps: int, lanes: int, *arguments: Any) -> int:
    """The same of steps of each of so many lanes; as many as are made where the arguments are traced."""
    exact = n_steps == 0 or n_steps * lanes > MANY or is_traced(arguments)
    return n_steps if exact else room_for(n_steps, LEAST_OF_MANY)


def is_traced(tree: Any) -> bool:
    """Whether it has tracers: what a program is given within jit, vmap or grad."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))


@functools.cache
def programs(options: Options) -> Programs:
    """Of options without dt."""
    with_history = looks_back(options)
    step = jax.jit(make_step(options))  # traced once, for its shapes and for the loop

    # empty rows: the shapes of one step, as often as there is room
    @functools.partial(jax.jit, static_argnames="room")
    def rows(model: Model, state: State, control, dt, room: int):
        def one(*given):
            after, info = step(*given)
            return row_of(after, with_history), info

        shapes = jax.eval_shape(one, model, state, control, dt)
        return jax.tree.map(lambda x: jnp.zeros((room, *x.shape), x.dtype), shapes)

    # the numbers of first and last step are arguments, so one program serves all; it writes in place
    @functools.partial(jax.jit, donate_argnames="rows")
    def steps(model: Model, state: State, rows, controls, dt, first, last):
        def body(k, carry):
            state, rows = carry
            state, info = step(model, state, None if controls is None else controls[k], dt)
            return state, jax.tree.map(lambda all, x: all.at[k].set(x), rows, (row_of(state, with_history), info))

        return loops.fori_loop(first, last, body, (state, rows))

    return Programs(rows, steps)


def given(model: Model, state: State, controls, n_steps: int, options: Options, least: int = LEAST) -> tuple:
    """What the program of steps is called with; `controls` (n_steps,nu) or None."""
    room, dt = room_for(n_steps, least), jnp.asarray(options.dt, model.dtype)
    one = None if controls is None else jnp.zeros(model.nu, model.dtype)
    rows = programs(without_dt(options)).rows(model, state, one, dt, room)
    if controls is not None:
        controls = padded(jnp.asarray(controls, model.dtype), n_steps, room)
    return model, state, rows, controls, dt, jnp.int32(0), jnp.int32(n_steps)


def rolled_out(
    arguments: tuple, n_steps: int, options: Options, told: bool, steps: Callable | None = None
) -> tuple[Trajectory, StepInfo]:
    """Trajectory and StepInfo, (n_steps, ...), by the arguments that are `given`.

    told: a progress bar. steps: the program, where it is compiled already.
    """
    steps = programs(without_dt(options)).steps if steps is None else steps
    model, state, rows, controls, dt, *_ = arguments
    at, done, piece, began = state, 0, 8 if told else n_steps, time.monotonic()
    while True:
        first, done, looked = done, min(done + piece, n_steps), time.monotonic()
        at, rows = steps(model, at, rows, controls, dt, jnp.int32(first), jnp.int32(done))
        if told and done and not is_traced(at):
            jax.block_until_ready(at.q)
            report_progress.show(done, n_steps, began)
            piece = max(1, min(8 * piece, int(piece * LOOK / max(1e-6, time.monotonic() - looked))))
        if done == n_steps:
            return _cut(rows, state, dt, n_steps)


@functools.partial(jax.jit, static_argnames=("n", "room"))
def padded(controls: jax.Array, n: int, room: int) -> jax.Array:
    """Controls (..., T, nu) of the first n steps as (..., room, nu)."""
    rows = jnp.zeros((*controls.shape[:-2], room, controls.shape[-1]), controls.dtype)
    return rows.at[..., :n, :].set(controls[..., :n, :])


@functools.partial(jax.jit, static_argnames="n")
def first_rows(tree: Any, n: int) -> Any:
    """Of (lanes, room, ...) what there is of n steps."""
    return jax.tree.map(lambda x: x[:, :n], tree)


@functools.partial(jax.jit, static_argnames="n")
def _cut(rows, state: State, dt, n: int):
    row, info = jax.tree.map(lambda x: x[:n], rows)
    return trajectory_of(state, dt, row, info.status, 0, n), info
