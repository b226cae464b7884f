"""Rollouts of many trajectories: checks, controls, how wide, and which schedule."""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from pbad_jax.checks import integer, one_of
from pbad_jax.errors import OptionError
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State, check_state
from pbad_jax.rollouts import interleaved
from pbad_jax.rollouts.devices import on_each_device, placed, share_of
from pbad_jax.rollouts.inputs import checked_batch, lanes_of, one_lane, row, shared_row
from pbad_jax.rollouts.lane import Callbacks, Ended
from pbad_jax.rollouts.padded import first_rows, padded, room_of_many
from pbad_jax.rollouts.trajectory import Trajectory, row_of, trajectory_of
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, check_options, looks_back, scheme_of, without_dt

CPU_TILE = 16  # quicker than 32 for uneven lanes, ants and chains (1.4 and 1.6 times), as quick for even ones
LARGE_SYSTEM = 80  # unknowns from which on a CPU lanes side by side take longer than one after another
SCHEDULES = ("iteration", "step")


class Schedule(NamedTuple):
    """What a batch took.

    by: "iteration" or "step". width: trajectories side by side. passes: () int32, Levenberg–Marquardt iterations of all
    of them at once. rounds: () int32, commits. busy: (), the share of width · passes in which a step was being solved;
    otherwise a lane waited for the next commit, or for the last trajectories.

    Example:
        >>> states = jax.vmap(lambda v: pbad.make_state(arm, v=v))(jnp.eye(2))
        >>> traj, info, schedule = pbad.rollout_batch(arm, states, n_steps=2, options=options, report=True)
        >>> schedule.by
        'iteration'
    """

    by: str
    width: int
    passes: jax.Array
    rounds: jax.Array
    busy: jax.Array


class Batch(NamedTuple):
    """All that comes of a batch; `ends` are the States (lanes, ...) after the last step."""

    trajectory: Trajectory
    info: StepInfo
    schedule: Schedule
    ends: State


@overload
def rollout_batch(
    model: Model,
    states: State,
    controls: Any = ...,
    n_steps: int | None = ...,
    options: Options | None = ...,
    *,
    queue: State | None = ...,
    tile: int | None = ...,
    schedule: str = ...,
    report: Literal[False] = ...,
) -> tuple[Trajectory, StepInfo]: ...


@overload
def rollout_batch(
    model: Model,
    states: State,
    controls: Any = ...,
    n_steps: int | None = ...,
    options: Options | None = ...,
    *,
    queue: State | None = ...,
    tile: int | None = ...,
    schedule: str = ...,
    report: Literal[True],
) -> tuple[Trajectory, StepInfo, Schedule]: ...


def rollout_batch(
    model: Model,
    states: State,
    controls: Any = None,
    n_steps: int | None = None,
    options: Options | None = None,
    *,
    queue: State | None = None,
    tile: int | None = None,
    schedule: str = "iteration",
    report: bool = False,
):
    """Rollouts from many states: no lane waits for the harder steps of another.

    Every pass over the lanes is one Levenberg–Marquardt iteration of each; a lane whose step is solved goes on with its
    next one (the paper's scheme for GPUs). Steps are those of the lanes' own rollouts, to rounding.
    For gradients use `jax.vmap(rollout)`: reverse mode through this loop is refused by JAX. Where the first axis of
    `states` is spread over devices (`spread`, or any mesh of jax.sharding), every device works on its own lanes, and so
    is the result spread; the cores of a CPU may be devices.

    Args:
        model: the model, the same for all; or one for each lane, every array with a leading axis of lanes (those of
            the queue included), e.g. `jax.vmap(changed)(numbers)`.
        states: leading axis of lanes, e.g. `jax.vmap(lambda q, v: make_state(model, q, v))(qs, vs)`.
        controls: (lanes, T, nu), or (T, nu) for all lanes; or a policy, State -> (nu,), of the lane's own state at the
            start of each step. A policy is compiled in: pass the same function again, and what changes between calls
            as `jax.tree_util.Partial(policy, parameters)`. None: zeros.
        n_steps: T; may be left out where controls give it.
        options: see Options.
        queue: states of more trajectories. They follow those of `states` in the result and start as lanes come free.
        tile: how many trajectories are side by side, at any time; the others wait. With the same `tile` the result of
            a trajectory is the same bit for bit whatever the others are, how many, and in which order. On several
            devices, per device. Default: as many as `states` has; by iterations on a CPU at most 16, and 1 where a
            step has 80 or more unknowns (stages times degrees of freedom).
        schedule: "iteration", as above; "step": all lanes of a tile make a step, then the next, as vmap(rollout) does.
            (L-BFGS solves a step at once, which counts as no pass.)
        report: whether to return a Schedule too.

    Returns:
        Trajectory and StepInfo with leading axes (lanes, T); with `report`, a Schedule.

    Raises:
        StateError: shapes, dtypes, states of another model. OptionError: no options, n_steps, tile or schedule.
        ModelError: models of which some arrays have an axis of lanes, and some have none or another.

    Example:
        >>> states = jax.vmap(lambda v: pbad.make_state(arm, v=v))(jnp.eye(2))
        >>> traj, info = pbad.rollout_batch(arm, states, n_steps=2, options=options)
        >>> traj.q.shape
        (2, 2, 2)
    """
    out = run(model, states, controls, n_steps, options, queue, tile, schedule)
    return (out.trajectory, out.info, out.schedule) if report else (out.trajectory, out.info)


def run(model: Model, states: State, controls, n_steps, options, queue, tile, schedule) -> Batch:
    """What rollout_batch describes, whole."""
    # one model for all lanes or one for each, and states of it, perhaps spread over devices
    check_model(model)
    options = check_options(options, "rollout_batch")
    one = one_lane(model)
    check_state(one, states, "states", lanes=True)
    side_by_side, share = states.q.shape[0], share_of(states.q, "states.q")
    devices = 1 if share is None else share.devices

    # those that wait follow those that begin
    if queue is not None:
        check_state(one, queue, "queue", lanes=True)
        if devices > 1:
            raise OptionError("states that are spread over devices take no queue: append it to them, and give a tile")
        states = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), states, queue)

    # what controls each lane, and how many lanes are side by side
    control_of, n_steps = checked_batch(model, states.q.shape[0], controls, n_steps)
    by, lanes = one_of(schedule, SCHEDULES, "schedule", OptionError), side_by_side // devices
    if tile is None and options.solver != "lm":
        width = lanes  # their solves are queues (math/queue.py)
    else:
        width = width_of(tile, lanes, scheme_of(options).m * model.nv)

    # one program for every dt and many numbers of steps: there is room for more rows than are made
    dt = jnp.asarray(options.dt, model.dtype)
    room = room_of_many(n_steps, states.q.shape[0], model, states, control_of)
    if control_of.func in (row, shared_row):
        control_of = Partial(control_of.func, padded(*control_of.args, n_steps, room))
    steps = jnp.asarray(n_steps, jnp.int32)

    # run, every device its own lanes, and keep the rows of the steps that were made
    given = placed(share, _with_lanes(model, control_of), model, states, control_of, dt, steps)
    rows, info, ends, work = _rollout(*given, room, without_dt(options), width, by, share)
    if room > n_steps:
        rows, info = first_rows((rows, info), n_steps)
    return Batch(
        trajectory_of(given[1], options.dt, rows, info.status, 0, n_steps), info, Schedule(by, width, *work), ends
    )


def checked(model: Model, states: State, controls, n_steps, options) -> tuple[Any, int]:
    """The controls, arrays as arrays, and the number of steps, after all checks of rollout_batch."""
    check_options(options, "rollout_batch")
    check_state(one_lane(model), states, "states", lanes=True)
    _, n_steps = checked_batch(model, states.q.shape[0], controls, n_steps)
    return controls if controls is None or callable(controls) else jnp.asarray(controls, model.dtype), n_steps


def steps_of(controls, first: int, last: int):
    """The controls of the steps from `first` to before `last`."""
    return controls if controls is None or callable(controls) else controls[..., first:last, :]


@functools.partial(jax.jit, static_argnames=("room", "options", "width", "by", "share"))
def _rollout(model, states: State, control_of, dt, steps, room: int, options: Options, width: int, by: str, share):
    batched = lanes_of(model) is not None

    def here(model, states, control_of, dt, steps):
        axes = jax.tree.map(lambda _: 0, model) if batched else None
        given = (model, axes, states, None, _callbacks(control_of, options), dt, steps, options, width)
        (rows, info), ends, _, work = interleaved.run(*given, in_step=by == "step", room=room)
        return rows, info, ends, tuple(jnp.asarray(x)[None] for x in work)

    here = on_each_device(here, share, _with_lanes(model, control_of))
    rows, info, ends, work = here(model, states, control_of, dt, steps)
    return rows, info, ends, (jnp.max(work[0]), jnp.max(work[1]), jnp.mean(work[2]))


def _with_lanes(model: Model, control_of: Partial) -> tuple[bool, ...]:
    """Which of model, states, control_of, dt and the number of steps have an axis of lanes."""
    return lanes_of(model) is not None, True, control_of.func is row, False, False


def _callbacks(control_of: Callable, options: Options) -> Callbacks:
    """Rows of a Trajectory and StepInfo under the controls."""
    with_history = looks_back(options)

    def begin(model, lane, k, state, carry):
        return control_of(model, lane, k, state), carry

    def end(model, lane, k, state, control, after, info, carry):
        return Ended(after, carry, (row_of(after, with_history), info), jnp.ones((), bool))

    return Callbacks(begin, end)


def width_of(tile: int | None, lanes: int, unknowns: int) -> int:
    """How many lanes are side by side, of a step with so many unknowns."""
    if tile is None:
        if jax.default_backend() != "cpu":
            return lanes
        return min(lanes, CPU_TILE if unknowns < LARGE_SYSTEM else 1)
    return integer(tile, "tile", 1)
