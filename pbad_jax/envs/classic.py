"""The small tasks of control: a pendulum, a cart with a pole, an acrobot. Made of Python alone.

Pendulum and acrobot have the numbers, observations and rewards of gymnasium's Pendulum-v1 and Acrobot-v1; here the
acrobot's torque is continuous, no speed is clipped, and steps are implicit. The cart with a pole is the swing-up of the
DeepMind control suite.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.builders.actuators import Actuator
from pbad_jax.builders.build_model import build_model
from pbad_jax.builders.descriptions import Body, Geom, Joint
from pbad_jax.envs.task import Task, Transition
from pbad_jax.model.inertia import solid_capsule
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, make_state


def uniform(model: Model, key: jax.Array, low, high, *shape: int) -> jax.Array:
    """Numbers drawn between two bounds, of the model's dtype."""
    return jax.random.uniform(key, shape, model.dtype, low, high)


# --- pendulum ------------------------------------------------------------------------------------------------


def pendulum(dtype=None) -> Task:
    """A rod that is to stand up: θ from the top, torque up to 2 N m, which lifts it only by swinging."""
    # a uniform rod of 1 kg and 1 m on a hinge, with a weak motor
    rod = Body(
        "rod", 1.0, (0, 0, 0.5), np.eye(3) / 12, joints=[Joint("hinge", (0, 1, 0), name="hinge")],
        geoms=[Geom("capsule", (0.05, 0.5), (0, 0, 0.5))],
    )  # fmt: skip
    motor = Actuator("hinge", name="motor", control_range=(-2, 2))
    model = build_model([rod], actuators=[motor], gravity=(0, 0, -10.0), name="pendulum", dtype=dtype)

    # any angle, up to 1 rad/s
    def start(model: Model, key: jax.Array) -> State:
        angle, speed = jax.random.split(key)
        return make_state(model, uniform(model, angle, -np.pi, np.pi, 1), uniform(model, speed, -1.0, 1.0, 1))

    # judged is the state before the step, its angle within ±π, as in Pendulum-v1
    def reward(m: Transition):
        angle, u = (m.before.q[0] + np.pi) % (2 * np.pi) - np.pi, jnp.clip(m.action[0], -2.0, 2.0)
        return -(angle**2 + 0.1 * m.before.v[0] ** 2 + 0.001 * u**2)

    # cosine and sine of an angle do not jump where it comes round
    def observe(m: Transition):
        return jnp.stack([jnp.cos(m.sim.q[0]), jnp.sin(m.sim.q[0]), m.sim.v[0]])

    return Task(model, start, observe, reward, dt=0.05, time_limit=200, name="pendulum")


# --- cart with a pole ------------------------------------------------------------------------------------------


def cartpole(dtype=None) -> Task:
    """A pole that hangs from a cart is to be swung up and held in the middle; θ from the top, force up to 10 N."""
    # a cart on a rail of ±1.8 m, and a pole of 1 m that hangs from it
    inertia = solid_capsule(0.1, 0.045, 1.0)
    rail = Joint("slide", (1, 0, 0), name="slider", range=(-1.8, 1.8), damping=5e-4)
    cart = Body("cart", 1.0, inertia=np.eye(3), joints=[rail], geoms=[Geom("box", (0.2, 0.15, 0.1), touches=False)])
    pole = Body(
        "pole", 0.1, (0, 0, 0.5), inertia, "cart", joints=[Joint("hinge", (0, 1, 0), name="hinge", damping=2e-6)],
        geoms=[Geom("capsule", (0.045, 0.5), (0, 0, 0.5), touches=False)],
    )  # fmt: skip
    force = Actuator("slider", name="force", gear=10.0, control_range=(-1, 1))
    model = build_model([cart, pole], actuators=[force], name="cartpole", dtype=dtype)

    # hanging in the middle, a little off
    def start(model: Model, key: jax.Array) -> State:
        place, speed = jax.random.split(key)
        q = jnp.asarray([0.0, np.pi], model.dtype)
        return make_state(model, q + 0.01 * jax.random.normal(place, (2,), model.dtype),
                          0.01 * jax.random.normal(speed, (2,), model.dtype))  # fmt: skip

    def observe(m: Transition):
        x, angle = m.sim.q
        return jnp.stack([x, jnp.cos(angle), jnp.sin(angle), *m.sim.v])

    # a product, so that all have to be good: upright, near the middle, with little force, slow
    def reward(m: Transition):
        x, angle = m.sim.q
        upright = 0.5 * (jnp.cos(angle) + 1)
        centred = 0.5 * (1 + gaussian(x / 2.0))
        gentle = 0.2 * (4 + jnp.maximum(0.0, 1 - m.action[0] ** 2))
        slow = 0.5 * (1 + gaussian(m.sim.v[1] / 5.0))
        return upright * gentle * slow * centred

    return Task(model, start, observe, reward, dt=0.02, time_limit=500, name="cartpole")


def gaussian(x: jax.Array) -> jax.Array:
    """1 at 0, 0.1 at ±1: dm_control's tolerance with a margin of 1."""
    return jnp.exp(np.log(0.1) * x**2)


# --- acrobot -----------------------------------------------------------------------------------------------------


def acrobot(dtype=None) -> Task:
    """Two links that hang; a torque up to 1 N m between them is to bring the tip a link's length above the hinge."""
    # two links of 1 kg, 1 m and gymnasium's 1 kg m², with a motor between them
    inertia = np.diag([1.0, 1.0, 1.0])
    hinges = [Joint("hinge", (0, 1, 0), name=f"hinge{i}") for i in range(2)]
    rod = [Geom("capsule", (0.05, 0.5), (0, 0, -0.5), touches=False)]
    bodies = [
        Body("upper", 1.0, (0, 0, -0.5), inertia, joints=hinges[:1], geoms=rod),
        Body("lower", 1.0, (0, 0, -0.5), inertia, "upper", (0, 0, -1.0), joints=hinges[1:], geoms=rod),
    ]
    motor = Actuator("hinge1", name="motor", control_range=(-1, 1))
    model = build_model(bodies, actuators=[motor], gravity=(0, 0, -9.8), name="acrobot", dtype=dtype)

    # hanging, nearly at rest
    def start(model: Model, key: jax.Array) -> State:
        x = uniform(model, key, -0.1, 0.1, 4)
        return make_state(model, x[:2], x[2:])

    def observe(m: Transition):
        a, b = m.sim.q
        return jnp.stack([jnp.cos(a), jnp.sin(a), jnp.cos(b), jnp.sin(b), *m.sim.v])

    # the height of the tip over the hinge, in links
    def is_up(m: Transition):
        a, b = m.sim.q
        return -jnp.cos(a) - jnp.cos(a + b) > 1.0

    # each step costs 1 until it is up
    def reward(m: Transition):
        return jnp.where(is_up(m), 0.0, -1.0)

    return Task(model, start, observe, reward, is_up, dt=0.2, time_limit=500, name="acrobot")
