"""What a rollout gives: the states after its steps, as far as anything reads them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.model.state import State, times

REST = ("time", "time_rest", "status", "history", "has_history", "history_span")  # of a State, see Trajectory.rest


class Trajectory(NamedTuple):
    """`time` (T,) s, `q` (T,nq), `v` (T,nv) after every step; the initial state is not repeated.

    `activation` (T,na) is that of actuators that have one, else None. `rest` is what else a next step reads of a State,
    by the names of its fields: the clock, the status, and the history of schemes that look at one. With it
    `states_of` gives states that go on as the rollout did, bit for bit; without (None) they begin anew.

    Example:
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> traj.time, traj.q.shape
        (Array([0.05, 0.1 ], dtype=float64), (2, 2))
    """

    time: jax.Array
    q: jax.Array
    v: jax.Array
    activation: jax.Array | None = None
    rest: dict[str, jax.Array] | None = None


class Row(NamedTuple):
    """What a Trajectory has of the State after a step, in few arrays: loops write each of them."""

    q: jax.Array
    v: jax.Array
    activation: jax.Array | None
    rest: jax.Array  # (2,) time and time_rest; (3 + nq,) also history_span, 0 where there is none, and history


def row_of(state: State, with_history: bool) -> Row:
    """Of the State after a step. with_history: whether the next one looks at it, see options.looks_back."""
    rest = [state.time[None], state.time_rest[None]]
    if with_history:
        rest += [jnp.where(state.has_history, state.history_span, 0.0)[None], state.history]
    return Row(state.q, state.v, state.activation, jnp.concatenate(rest))


def trajectory_of(states: State, dt, row: Row, status: jax.Array, first: int, last: int) -> Trajectory:
    """Of the rows (..., T) and the status of the steps from `first` to before `last` that began at states (...)."""
    rest = {"time": row.rest[..., 0], "time_rest": row.rest[..., 1], "status": status}
    if row.rest.shape[-1] > 2:
        span = row.rest[..., 2]
        rest |= {"history_span": span, "has_history": span > 0, "history": row.rest[..., 3:]}
    return Trajectory(clock(states, dt, rest, first, last), row.q, row.v, row.activation, rest)


def clock(states: State, dt, rest: dict[str, jax.Array], first: int, last: int) -> jax.Array:
    """Times of those steps: of the states; where a lane has failed and its clock stands, what they would have been."""
    stood = rest["status"] != Status.CONVERGED
    return jnp.where(stood, times(states, dt, first, last), rest["time"])


def as_arrays(traj: Trajectory) -> dict[str, Any]:
    """A Trajectory for a file: its arrays by name, "rest_NAME" for those of `rest`."""
    arrays = {name: x for name, x in traj._asdict().items() if name != "rest" and x is not None}
    return arrays | {f"rest_{name}": x for name, x in (traj.rest or {}).items()}


def from_arrays(arrays: dict[str, Any]) -> Trajectory:
    """The Trajectory of such arrays; others are passed over."""
    rest = {name: arrays[f"rest_{name}"] for name in REST if f"rest_{name}" in arrays}
    own = {name: arrays[name] for name in ("time", "q", "v", "activation") if name in arrays}
    return Trajectory(**own, rest=rest or None)
