"""The states along a trajectory."""

from typing import Any

import jax

from pbad_jax.errors import StateError
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State, make_state
from pbad_jax.rollouts.rollout import Trajectory


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


def states_of(model: Model, trajectory: Trajectory) -> State:
    """The state after every step, for what reads one: sensors, contact forces, energies.

    Args:
        model: the model that moved, one for all lanes.
        trajectory: `time` (..., T), `q` (..., T, nq), `v` (..., T, nv), of one lane or of many.

    Returns:
        States with as many leading axes: `jax.vmap` over each of them. Activations, which a trajectory does not have,
        are those of a new state.

    Raises:
        ModelError: no Model. StateError: the trajectory of another one.

    Example:
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> jax.vmap(lambda s: pbad.center_of_mass(arm, s))(pbad.states_of(arm, traj)).shape
        (2, 3)
    """
    check_trajectory(model, trajectory)

    def one(q: jax.Array, v: jax.Array, time: jax.Array) -> State:
        return make_state(model, q, v, time=time)

    for _ in trajectory.time.shape:
        one = jax.vmap(one)
    return one(trajectory.q, trajectory.v, trajectory.time)
