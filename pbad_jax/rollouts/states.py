"""The states along a trajectory."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from pbad_jax.errors import StateError
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State, make_state
from pbad_jax.rollouts.trajectory import Trajectory


def check_trajectory(model: Model, x: Any, name: str = "trajectory") -> None:
    """That there are a Model and something with the time, q and v of a motion.

    Raises:
        ModelError: no Model. StateError: no trajectory.
    """
    check_model(model)
    missing = [part for part in ("time", "q", "v") if not hasattr(getattr(x, part, None), "shape")]
    if missing:
        raise StateError(
            f"{name} is {type(x).__name__} {x!r:.60} without {', '.join(missing)}; give the Trajectory of a rollout"
        )


def states_of(model: Model, trajectory: Trajectory | Any) -> State:
    """The state after every step, for what reads one: sensors, contact forces, energies; and to go on from.

    Args:
        model: the model that moved, one for all lanes.
        trajectory: of a rollout, `time` (..., T), `q` (..., T, nq), `v` (..., T, nv), of one lane or of many; or what
            `load_trajectory` returns.

    Returns:
        States with as many leading axes: `jax.vmap` over each of them. A rollout that goes on from one of them is the
        rest of this one, bit for bit; a lane that had failed stays FROZEN. Where the trajectory has been made by hand,
        without `activation` and `rest`, they are new states of its q, v and time.

    Raises:
        ModelError: no Model. StateError: the trajectory of another one.

    Example:
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> states = pbad.states_of(arm, traj)
        >>> jax.vmap(lambda s: pbad.center_of_mass(arm, s))(states).shape
        (2, 3)
        >>> further, info = pbad.rollout(arm, jax.tree.map(lambda x: x[-1], states), n_steps=2, options=options)
    """
    check_trajectory(model, trajectory)

    def one(time, q, v, activation, rest) -> State:
        state = make_state(model, q, v, time=time, activation=activation)
        if rest is None:
            return state
        q, v = (jnp.asarray(x, model.dtype) for x in (q, v))  # quaternions to the last bit
        rest = {name: jnp.asarray(x, getattr(state, name).dtype) for name, x in rest.items()}
        return dataclasses.replace(state, q=q, v=v, history_q=q, history_v=v, **rest)

    for _ in trajectory.time.shape:
        one = jax.vmap(one)
    parts = (getattr(trajectory, name, None) for name in ("activation", "rest"))
    return one(trajectory.time, trajectory.q, trajectory.v, *parts)
