"""The states along a trajectory."""

import jax

from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State, make_state
from pbad_jax.rollouts.rollout import Trajectory


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
    check_model(model)

    def one(q: jax.Array, v: jax.Array, time: jax.Array) -> State:
        return make_state(model, q, v, time=time)

    for _ in trajectory.time.shape:
        one = jax.vmap(one)
    return one(trajectory.q, trajectory.v, trajectory.time)
