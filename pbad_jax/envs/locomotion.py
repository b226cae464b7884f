"""The robots of gymnasium's MuJoCo environments, version 5: their files, observations, rewards and ends.

What their `env.step` says of a state is what these functions say of the same q and v (tests/envs); the simulation
between two states is this library's, one implicit step a control step. Contact forces are those of its contact, which
differ from MuJoCo's; with constraints="MuJoCo" contact, friction and limits are by MuJoCo's own law (see `load`).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.envs import sensors
from pbad_jax.envs.assets import gymnasium_model
from pbad_jax.envs.task import Task, Transition, never
from pbad_jax.kinematics.manifold import retract
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, make_state
from pbad_jax.sensing.center_of_mass import center_of_mass


def near_rest(noise: float, speeds: str = "uniform") -> Callable[[Model, jax.Array], State]:
    """A start at q0 and rest, each number off by up to `noise`; speeds "uniform" or "normal"."""

    def start(model: Model, key: jax.Array) -> State:
        place, speed = jax.random.split(key)
        q = model.q0 + jax.random.uniform(place, (model.nq,), model.dtype, -noise, noise)
        draw = jax.random.normal(speed, (model.nv,), model.dtype)
        if speeds == "uniform":
            draw = jax.random.uniform(speed, (model.nv,), model.dtype, -1.0, 1.0)
        return placed(model, q, noise * draw)

    return start


def placed(model: Model, q: jax.Array, v: jax.Array) -> State:
    """A State at q, whose quaternions may have any length, as MuJoCo's."""
    return make_state(model, retract(model, q, jnp.zeros(model.nv, model.dtype)), v)


def effort(m: Transition, weight: float) -> jax.Array:
    """weight Σ action²."""
    return weight * jnp.sum(m.action**2)


def speed(m: Transition) -> jax.Array:
    """The mean of ẋ over the step, m/s, x the first coordinate."""
    return (m.sim.q[0] - m.before.q[0]) / m.dt


def summed(**terms: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    """A reward and its terms."""
    return sum(terms.values(), jnp.zeros(())), terms  # type: ignore[return-value]


# --- without contact, and the cheetah, which cannot fall ----------------------------------------------------------


def swimmer(model: Model | None = None, dtype=None, constraints="spring") -> Task:
    """Three links in water; forward."""
    model = gymnasium_model("swimmer.xml", model, dtype, constraints)

    def reward(m: Transition):
        return summed(reward_forward=speed(m), reward_ctrl=-effort(m, 1e-4))

    return Task(model, near_rest(0.1), _seen(2), reward, dt=0.04, name="swimmer")


def half_cheetah(model: Model | None = None, dtype=None, constraints="spring") -> Task:
    """A runner in the plane; forward."""
    model = gymnasium_model("half_cheetah.xml", model, dtype, constraints)

    def reward(m: Transition):
        return summed(reward_forward=speed(m), reward_ctrl=-effort(m, 0.1))

    return Task(model, near_rest(0.1, "normal"), _seen(1), reward, dt=0.05, name="half_cheetah")


def _seen(left_out: int, clipped: bool = False) -> Callable[[Transition], jax.Array]:
    """Observe q but for its first numbers, and v, of which no more than ±10 is seen where `clipped`."""

    def observe(m: Transition) -> jax.Array:
        v = jnp.clip(m.sim.v, -10, 10) if clipped else m.sim.v
        return jnp.concatenate([m.sim.q[left_out:], v])

    return observe


# --- in the plane, which must not fall -----------------------------------------------------------------------------


def hopper(model: Model | None = None, dtype=None, constraints="spring") -> Task:
    """One leg; forward, upright."""
    model = gymnasium_model("hopper.xml", model, dtype, constraints)

    def stands(m: Transition) -> jax.Array:
        z, angle = m.sim.q[1], m.sim.q[2]
        sane = jnp.all(jnp.abs(jnp.concatenate([m.sim.q[2:], m.sim.v])) < 100)
        return sane & (z > 0.7) & (jnp.abs(angle) < 0.2)

    return _walker_in_the_plane(model, stands, "hopper")


def walker2d(model: Model | None = None, dtype=None, constraints="spring") -> Task:
    """Two legs; forward, upright."""
    model = gymnasium_model("walker2d_v5.xml", model, dtype, constraints)

    def stands(m: Transition) -> jax.Array:
        z, angle = m.sim.q[1], m.sim.q[2]
        return (z > 0.8) & (z < 2.0) & (jnp.abs(angle) < 1.0)

    return _walker_in_the_plane(model, stands, "walker2d")


def _walker_in_the_plane(model: Model, stands: Callable[[Transition], jax.Array], name: str) -> Task:
    def reward(m: Transition):
        alive = stands(m).astype(m.sim.q.dtype)
        return summed(reward_forward=speed(m), reward_ctrl=-effort(m, 1e-3), reward_survive=alive)

    return Task(
        model, near_rest(5e-3), _seen(1, clipped=True), reward, lambda m: ~stands(m), dt=0.008, name=name
    )  # fmt: skip


# --- in space ------------------------------------------------------------------------------------------------------


def ant(model: Model | None = None, dtype=None, contact_forces: bool = True, constraints="spring") -> Task:
    """Four legs; forward. contact_forces: whether they are seen (78 of 105 numbers)."""
    model = gymnasium_model("ant.xml", model, dtype, constraints)

    # contact forces within ±1, seen and paid for
    def felt(m: Transition) -> jax.Array:
        return jnp.clip(sensors.contact_forces(m), -1, 1)

    def observe(m: Transition) -> jax.Array:
        parts = [m.sim.q[2:], m.sim.v]
        return jnp.concatenate([*parts, felt(m).reshape(-1)] if contact_forces else parts)

    # neither fallen nor thrown into the air
    def stands(m: Transition) -> jax.Array:
        return (m.sim.q[2] >= 0.2) & (m.sim.q[2] <= 1.0)

    # forward, with little effort and gentle feet
    def reward(m: Transition):
        return summed(
            reward_forward=speed(m),
            reward_ctrl=-effort(m, 0.5),
            reward_contact=-5e-4 * jnp.sum(felt(m) ** 2),
            reward_survive=stands(m).astype(m.sim.q.dtype),
        )

    start = near_rest(0.1, "normal")
    return Task(model, start, observe, reward, lambda m: ~stands(m), dt=0.05, name="ant")


def humanoid(model: Model | None = None, dtype=None, constraints="spring") -> Task:
    """Two legs, two arms; forward, upright. It sees 348 numbers, inertias and contact forces too."""
    model = gymnasium_model("humanoid.xml", model, dtype, constraints)

    # no place in the plane is seen; of bodies inertia, velocity, actuation and contact forces
    def observe(m: Transition) -> jax.Array:
        bodies = [sensors.inertias(m), sensors.velocities(m), sensors.actuation(m)[6:], sensors.contact_forces(m)]
        return jnp.concatenate([m.sim.q[2:], m.sim.v, *(x.reshape(-1) for x in bodies)])

    # neither fallen nor thrown up: the height of the torso, m
    def stands(m: Transition) -> jax.Array:
        return (m.sim.q[2] > 1.0) & (m.sim.q[2] < 2.0)

    # forward is the motion of the centre of mass; contact costs 10 at most
    def reward(m: Transition):
        moved = center_of_mass(m.model, m.sim) - center_of_mass(m.model, m.before)
        return summed(
            reward_forward=1.25 * moved[0] / m.dt,
            reward_ctrl=-effort(m, 0.1),
            reward_contact=-jnp.minimum(5e-7 * jnp.sum(sensors.contact_forces(m) ** 2), 10.0),
            reward_survive=5.0 * stands(m),
        )

    return Task(model, near_rest(1e-2), observe, reward, lambda m: ~stands(m), dt=0.015, name="humanoid")


def reacher(model: Model | None = None, dtype=None, constraints="spring") -> Task:
    """An arm of two links in the plane; its tip to a target that is drawn anew in every episode."""
    model = gymnasium_model("reacher.xml", model, dtype, constraints)

    # a target, evenly over a disk of 0.2 m, and the arm near its rest
    def start(model: Model, key: jax.Array) -> State:
        angle, radius, place, speed = jax.random.split(key, 4)
        a = jax.random.uniform(angle, (), model.dtype, -np.pi, np.pi)
        r = 0.2 * jnp.sqrt(jax.random.uniform(radius, (), model.dtype))
        q = model.q0.at[:2].add(jax.random.uniform(place, (2,), model.dtype, -0.1, 0.1))
        q = q.at[2:].set(r * jnp.stack([jnp.cos(a), jnp.sin(a)]))
        v = jnp.zeros(4, model.dtype).at[:2].set(jax.random.uniform(speed, (2,), model.dtype, -0.005, 0.005))
        return make_state(model, q, v)

    # from the target to the tip, m
    def miss(m: Transition) -> jax.Array:
        tip = sensors.body_position(m.model, m.sim, "fingertip")
        return tip - sensors.body_position(m.model, m.sim, "target")

    def observe(m: Transition) -> jax.Array:
        q, v = m.sim.q, m.sim.v
        return jnp.concatenate([jnp.cos(q[:2]), jnp.sin(q[:2]), q[2:], v[:2], miss(m)[:2]])

    # distance and effort; 1e-30 keeps the slope finite at the target
    def reward(m: Transition):
        d = miss(m)
        return summed(reward_dist=-jnp.sqrt(jnp.sum(d**2) + 1e-30), reward_ctrl=-effort(m, 1.0))

    return Task(model, start, observe, reward, never, dt=0.02, time_limit=50, name="reacher")
