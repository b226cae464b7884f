"""Robots on the ground under random actions: what a reinforcement learning batch waits for, in iterations."""

import functools
import importlib
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import thorough

import pbad_jax as pbad

pytestmark = [pytest.mark.float64, pytest.mark.slow, pytest.mark.optimised]

LANES, STEPS = 16, 20


@functools.cache
def robot(name: str) -> tuple[pbad.Model, np.ndarray]:
    """The model and a standing configuration."""
    if name == "spider":
        model = pbad.spider()
        return model, np.array(model.q0)
    gymnasium: Any = importlib.import_module("gymnasium")
    assets = pathlib.Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    model = pbad.load(assets / f"{name}.xml", unsupported="warn")[0]
    q = np.array(model.q0)
    if name == "ant":
        q[2], q[7:] = 0.6, [0, 1, 0, -1, 0, -1, 0, 1]
    return model, q


@pytest.mark.robots
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name, scheme, dt, gear, mean, p99",
    [
        thorough("ant", "radau1", 0.05, 1.0, 9, 25),
        thorough("ant", "radau2", 0.02, 1.0, 9, 15),  # of both solves: its stages, and the impulse that closes it
        thorough("humanoid", "radau1", 0.02, 0.4, 10, 30),
        thorough("spider", "radau1", 0.05, 0.2, 12, 40),
        thorough("spider", "radau1", 0.05, 1.0, 13, 70),  # of ten thousand steps 11.2 and 47
        thorough("spider", "radau2", 0.02, 1.0, 12, 40),
    ],
)
def test_random_actions_are_solved_in_few_iterations(name, scheme, dt, gear, mean, p99):
    """No step fails. Without duals: the ant 25 iterations at 0.05 s, 45 % of the spider's steps failed."""
    model, q0 = robot(name)
    rng = np.random.RandomState(0)
    q = np.repeat(q0[None], LANES, 0)
    q[:, 7:] += rng.uniform(-0.1, 0.1, (LANES, model.nq - 7))
    v = 0.1 * rng.randn(LANES, model.nv)
    states = jax.vmap(lambda q, v: pbad.make_state(model, q, v))(jnp.asarray(q), jnp.asarray(v))
    u = gear * jnp.asarray(rng.uniform(-1, 1, (LANES, STEPS, model.nu)))
    _, info = pbad.rollout_batch(model, states, u, options=pbad.Options(dt=dt, scheme=scheme))
    iterations = np.asarray(info.iterations)
    print(info, "mean", iterations.mean(), "p99", np.percentile(iterations, 99))
    assert np.all(info.ok)
    assert iterations.mean() <= mean and np.percentile(iterations, 99) <= p99
