"""Every task of `make` under random actions, sixteen lanes for fifty steps: solved, finite, ended where it should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_legs import four_legs
from helpers import thorough

import pbad_jax as pbad

pytestmark = [pytest.mark.robots, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LANES, STEPS = 16, 50
FALL = {"hopper", "walker2d", "humanoid"}  # sooner or later, all of them
MAY_FALL = {"quadruped"}  # three of them, five in eight times as many steps; its steps are hard


def any_action(bounds, obs, key):
    low, high = bounds
    return jax.random.uniform(key, low.shape, low.dtype, low, high), None


# CI has time for one; other tests step most of the rest
@pytest.mark.parametrize("name", [x if x == "acrobot" else thorough(x) for x in pbad.envs.TASKS])
def test_every_task(name):
    """No step fails or is lost to parts; what ends is what falls; rewards are the sum of their terms."""
    more = {"path": four_legs()} if name == "quadruped" else {}
    env = pbad.envs.make(name, dtype=np.float32, **more)
    env = pbad.envs.wrap(env, time_limit=env.task.time_limit, autoreset="same_step")
    assert np.isfinite(env.action_bounds).all()
    bounds = tuple(jnp.asarray(x, jnp.float32) for x in env.action_bounds)
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), LANES))
    state, rows = pbad.envs.unroll(env, any_action, bounds, state, STEPS)
    np.testing.assert_array_equal(rows.info["status"], pbad.Status.CONVERGED)
    assert np.mean(np.asarray(rows.info["substeps"]) > 1) <= 0.01
    assert np.mean(rows.info["iterations"]) < (20 if name in MAY_FALL else 15)
    for x in (rows.obs, rows.next_obs, rows.reward):
        assert x.dtype == jnp.float32 and np.isfinite(x).all()
    assert np.ptp(rows.reward) > 0 or name == "acrobot"  # −1 until it is up
    terms = [x for k, x in rows.info.items() if k.startswith("reward_")]
    if terms:
        np.testing.assert_allclose(sum(terms), rows.reward, rtol=1e-5, atol=1e-4)
    fell = np.any(rows.terminated, axis=1)
    assert fell.all() if name in FALL else name in MAY_FALL or not fell.any(), f"{fell.sum()} lanes ended"
    limit = env.task.time_limit == STEPS
    np.testing.assert_array_equal(np.asarray(rows.truncated).sum(axis=1), int(limit))
