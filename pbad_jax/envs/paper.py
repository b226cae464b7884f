"""The two trainings of the paper: a swimmer of four links, a spider of four legs with balls for hips."""

import jax
import jax.numpy as jnp

from pbad_jax.builders import presets
from pbad_jax.envs import sensors
from pbad_jax.envs.locomotion import effort, near_rest, placed, summed
from pbad_jax.envs.task import Task, Transition
from pbad_jax.laws.drives import pd_drive
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.sensing.center_of_mass import center_of_mass

POSTURE = 100.0  # N m/rad
STRENGTH = 200.0  # N m, of an action of 1; the 25 quickest of 256 random gaits, 0.13 to 0.28 m/s, had 150 to 575


def forward(m: Transition) -> jax.Array:
    """The mean of ẋ of the centre of mass over the step, m/s."""
    moved = center_of_mass(m.model, m.sim) - center_of_mass(m.model, m.before)
    return moved[0] / m.dt


def swimmer(links: int = 4, strength: float = STRENGTH, dtype=None) -> Task:
    """A chain in water, planar; forward. Actions are torques between links in units of `strength`, N m."""
    model = presets.swimmer(links, dtype=dtype)

    def observe(m: Transition) -> jax.Array:
        return jnp.concatenate([m.sim.q[2:], m.sim.v])

    def reward(m: Transition):
        return summed(reward_forward=forward(m), reward_ctrl=-effort(m, 1e-3))

    return Task(
        model, near_rest(0.1), observe, reward, control=lambda model, action: strength * jnp.clip(action, -1.0, 1.0),
        low=model.nu * [-1.0], high=model.nu * [1.0], dt=0.05, name="paper_swimmer",
    )  # fmt: skip


def spider(legs: int = 4, contact_forces: bool = False, posture: float = POSTURE, dtype=None) -> Task:
    """A ball on legs, each with a ball for its hip and a hinge for its knee; forward, on its feet.

    Actions are torques in units of 30 N m, beside springs that hold the legs' pose.

    Args:
        legs: how many. contact_forces: whether they are seen.
        posture: N m/rad, ≥ 0, of the springs; their dampers are a tenth of it, N m s/rad. With 0 the legs are limp,
            and under any torques at random it lies on its belly after six steps.
        dtype: of the model.
    """
    # springs and dampers hold the legs' pose: without them they are limp
    model = presets.spider(legs, hips="balls", dtype=dtype)
    joints = [j.name for j in model.topology.joints if j.type in ("ball", "hinge")]
    model = with_forces(model, pd_drive(model, joints, posture, posture / 10))

    # near that pose and at rest, over the origin
    def start(model: Model, key: jax.Array) -> State:
        q, v = jax.random.split(key)
        noise = jax.random.uniform(q, (model.nq,), model.dtype, -0.05, 0.05)
        speeds = jax.random.uniform(v, (model.nv,), model.dtype, -0.05, 0.05)
        return placed(model, (model.q0 + noise).at[:2].set(0.0), speeds)

    def observe(m: Transition) -> jax.Array:
        parts = [m.sim.q[2:], m.sim.v]
        felt = [jnp.clip(sensors.contact_forces(m), -1, 1).reshape(-1)] if contact_forces else []
        return jnp.concatenate(parts + felt)

    # on its feet: neither low nor thrown up, and not tipped over
    def stands(m: Transition) -> jax.Array:
        up = sensors.rotation(m.model, m.sim, "torso")[2, 2]
        return (m.sim.q[2] > 0.3) & (m.sim.q[2] < 1.5) & (up > 0.3)

    def reward(m: Transition):
        alive = 0.2 * stands(m).astype(m.sim.q.dtype)
        return summed(reward_forward=forward(m), reward_ctrl=-effort(m, 0.02), reward_survive=alive)

    return Task(model, start, observe, reward, lambda m: ~stands(m), dt=0.05, name="spider")
