"""Control by gradients through a rollout: a cart-pole swings up from random starts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint

pytestmark = [pytest.mark.slow, pytest.mark.float64, pytest.mark.optimised]
STARTS, STEPS, DT, UPDATES = 20, 60, 0.05, 200


def cart_pole() -> pbad.Model:
    """A cart of 1 kg, pushed by at most 10 N; a pole of 0.2 kg and 1 m, which hangs at 0 and stands at π."""
    rail = Joint("slide", (1, 0, 0), name="rail", damping=0.1)
    pivot = Joint("hinge", (0, 1, 0), name="pivot", damping=0.002)
    rod = 0.2 * np.diag([1 / 12, 1 / 12, 1e-3])
    bodies = [
        Body("cart", 1.0, inertia=0.01 * np.eye(3), joints=[rail]),
        Body("pole", 0.2, (0, 0, -0.5), rod, "cart", joints=[pivot]),
    ]
    return pbad.build_model(bodies, actuators=[Actuator("rail", gear=10.0)])


def cost(model, w, q, v):
    """Of controls tanh(w) (T,): end upright, near the origin, at rest. Also the last q and v, and all statuses."""
    u = jnp.tanh(w)
    state, options = pbad.make_state(model, q, v), pbad.Options(dt=DT)
    traj, info = pbad.rollout(model, state, u[:, None], options=options, progress=False)
    below = 1 + jnp.cos(traj.q[:, 1])
    rest = 10 * below[-1] + traj.q[-1, 0] ** 2 + 0.5 * jnp.sum(traj.v[-1] ** 2)
    total = rest + jnp.mean(below + 0.1 * traj.q[:, 0] ** 2 + 0.01 * u**2)
    return total, (traj.q[-1], traj.v[-1], info.status)


@pytest.mark.thorough
def test_a_cart_pole_swings_up_from_random_starts():
    """Adam on 60 forces, 3 s: within 0.1 rad of upright, slower than 0.3 rad/s and m/s, from ≥ 19 of 20 starts
    that hang within 1 rad and move."""
    model, rng = cart_pole(), np.random.default_rng(0)
    q = jnp.asarray(rng.uniform((-0.5, -1.0), (0.5, 1.0), (STARTS, 2)))
    v = jnp.asarray(rng.uniform(-0.5, 0.5, (STARTS, 2)))
    w = jnp.asarray(rng.normal(0, 0.3, (STARTS, STEPS)))
    optimiser = optax.chain(optax.normalize_by_update_norm(), optax.adam(optax.cosine_decay_schedule(0.1, UPDATES)))

    def update(w, memory, q, v):
        (_, end), slope = jax.value_and_grad(cost, argnums=1, has_aux=True)(model, w, q, v)
        change, memory = optimiser.update(slope, memory)
        return optax.apply_updates(w, change), memory, end

    lanes = jax.jit(jax.vmap(update))
    memory = jax.vmap(optimiser.init)(w)
    for _ in range(UPDATES):
        w, memory, (q_end, v_end, status) = lanes(w, memory, q, v)

    tilt = np.abs(np.asarray(q_end[:, 1]) % (2 * np.pi) - np.pi)
    speed, away = np.abs(v_end).max(axis=1), np.abs(q_end[:, 0])
    solved = (tilt < 0.1) & (speed < 0.3) & (away < 0.5)
    print(
        f"{solved.sum()} of {STARTS}; worst tilt {tilt.max():.3f} rad, speed {speed.max():.3f}, away {away.max():.3f} m"
    )
    assert np.all(status == pbad.Status.CONVERGED)
    assert solved.sum() >= 19
