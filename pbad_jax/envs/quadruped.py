"""A robot on legs from a file of the user's: go where a command says, at its velocity."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.checks import above_zero, vector
from pbad_jax.contact.world import Contact, contact
from pbad_jax.envs import sensors
from pbad_jax.envs.locomotion import summed
from pbad_jax.envs.task import Task, Transition, control_range
from pbad_jax.errors import TaskError
from pbad_jax.importers.load import load
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.model.keyframes import Keyframe
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, make_state


def quadruped(
    path: Any = None,
    *,
    model: Model | None = None,
    keyframe: str | None = None,
    scale: float = 0.3,
    fastest: Sequence[float] = (1.0, 0.5, 1.0),
    dt: float = 0.02,
    dtype=None,
    constraints: Any = "spring",
) -> Task:
    """A floating robot that follows a commanded velocity: forward, to its left, and turning.

    It begins at a keyframe. Where that gives the actuators a control, as for position servos, an action adds `scale` of
    itself to it; else the action goes from one end of the actuators' control ranges to the other. A file without a
    ground gets one.

    Args:
        path: the robot's MJCF file, its first joint free. model: a model instead.
        keyframe: its name; default `home`, or the first, or q0 where there is none.
        scale: what an action of 1 adds to a control, rad for position servos.
        fastest: (3,) the largest commands, m/s, m/s, rad/s; they are drawn between −fastest and fastest.
        dt: s, of a control step. dtype: of the model. constraints: of the file, as in `load`.

    Raises:
        TaskError: no file, a model that does not float, a motor without a range. What `load` raises.
    """
    # a robot that floats, over a ground
    if (path is None) == (model is None):
        raise TaskError("quadruped: give the path of the robot's MJCF file, make('quadruped', path=...), or a model")
    model = load(path, dtype=dtype, constraints=constraints) if model is None else model
    root = model.topology.joints[0]
    if root.type != "free":
        raise TaskError(
            f"quadruped: the first joint {root.name!r} of {model.topology.name!r} is {root.type}; wanted a free one"
        )
    if not any(isinstance(f, Contact) for f in model.forces):
        model = with_forces(model, contact(model))

    # where it begins, and how an action becomes a control
    home = _home(model, keyframe)
    torso, height = model.body_names[root.body], float(home.q[2])
    biggest = vector(fastest, 3, "fastest of the quadruped", TaskError)
    middle, half = _controls(model, home, above_zero(scale, "scale of the quadruped"))

    # the keyframe, each joint a little off
    def start(model: Model, key: jax.Array) -> State:
        return make_state(model, jnp.asarray(home.q, model.dtype).at[7:].add(
            jax.random.uniform(key, (model.nq - 7,), model.dtype, -0.05, 0.05)))  # fmt: skip

    # a command, held for an episode
    def goal(key: jax.Array) -> jax.Array:
        bound = jnp.asarray(biggest, model.dtype)
        return bound * jax.random.uniform(key, (3,), model.dtype, -1.0, 1.0)

    def control(model: Model, action: jax.Array) -> jax.Array:
        return jnp.asarray(middle, model.dtype) + jnp.asarray(half, model.dtype) * action

    def velocity(m: Transition) -> tuple[jax.Array, jax.Array]:
        """In the torso's axes: of its frame (3,) m/s, and its up direction."""
        R = sensors.rotation(m.model, m.sim, torso)
        return R.T @ m.sim.v[:3], R[2]

    # in the torso's axes and from home, so that place and heading do not matter
    def observe(m: Transition) -> jax.Array:
        joints = m.sim.q[7:] - jnp.asarray(home.q[7:], m.model.dtype)
        return jnp.concatenate([*velocity(m), m.sim.v[3:6], m.goal, joints, m.sim.v[6:], m.action])

    # follow the command, upright, without bouncing, with little action
    def reward(m: Transition):
        v, up = velocity(m)
        along, turning = jnp.sum((v[:2] - m.goal[:2]) ** 2), (m.sim.v[5] - m.goal[2]) ** 2
        return summed(
            reward_velocity=jnp.exp(-along / 0.25),
            reward_turning=0.5 * jnp.exp(-turning / 0.25),
            reward_upright=-(1 - up[2]),
            reward_bounce=-0.5 * v[2] ** 2,
            reward_ctrl=-0.01 * jnp.sum(m.action**2),
        )

    # tipped by more than 60°, or low
    def fallen(m: Transition) -> jax.Array:
        return (velocity(m)[1][2] < 0.5) | (m.sim.q[2] < 0.4 * height)

    ones = np.ones(model.nu)
    return Task(
        model, start, observe, reward, fallen, control, goal, -ones, ones, dt=dt, name="quadruped"
    )  # fmt: skip


def _home(model: Model, name: str | None) -> Keyframe:
    """The keyframe that it starts from."""
    if name is not None:
        return model.keyframes.find(name, model.topology.name)
    if not len(model.keyframes):
        return Keyframe(np.asarray(model.q0, float), np.zeros(model.nv))
    return model.keyframes["home" if "home" in model.keyframes else next(iter(model.keyframes))]


def _controls(model: Model, home: Keyframe, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The control of no action, and what an action of 1 adds, each (nu,)."""
    if home.control is not None:
        return home.control, np.full(model.nu, scale)
    low, high = control_range(model)
    for name, a, b in zip(model.topology.actuator_names, low, high):
        if not np.isfinite(a + b):
            raise TaskError(
                f"quadruped: actuator {name!r} has no control range, and the keyframe no control: give the file one of "
                "them"
            )
    return 0.5 * (low + high), 0.5 * (high - low)
