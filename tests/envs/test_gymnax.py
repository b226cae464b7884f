"""The gymnax adapter under gymnax's own step; where gymnax is installed, which it is in none of the extras."""

import importlib
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE

import pbad_jax as pbad

if os.environ.get("PBAD_TEST_ADAPTERS") != "1":  # CI has an environment for them
    pytest.importorskip("gymnax.environments")
adapter = importlib.import_module("pbad_jax.envs.gymnax")

HOW = pbad.Options(dt=0.05, scheme="radau1", max_iterations=8)


def swing(**more) -> pbad.envs.Env:
    return pbad.envs.wrap(pbad.envs.make(pbad.envs.make("pendulum", dtype=DTYPE).task, options=HOW), **more)


def test_under_gymnaxs_step():
    """Episodes of 4 steps, two lanes, a model for each; a lane that fails is truncated and begins anew."""
    env = adapter.GymnaxEnv(swing(time_limit=4))
    assert (env.name, env.num_actions) == ("pendulum", 1)
    np.testing.assert_array_equal([env.action_space().low[0], env.action_space().high[0]], [-2, 2])
    keys = jax.random.split(jax.random.key(0), 2)
    params = jax.vmap(lambda key: env.env.randomise(key))(keys)
    obs, state = jax.vmap(env.reset)(keys, params)
    assert obs.shape == (2, *env.observation_space().shape) and env.observation_space().contains(obs)
    step = jax.jit(jax.vmap(env.step))
    for k in range(4):
        action = jnp.full((2, 1), 0.5, DTYPE)
        obs, state, reward, terminated, truncated, info = step(
            keys, state, action.at[1].set(jnp.nan) if k == 1 else action, params
        )
        np.testing.assert_array_equal(truncated, [k == 3, k == 1])
        assert not np.any(terminated) and np.isfinite(obs).all() and reward.shape == (2,)
        over = np.asarray(truncated)
        moved = np.abs(np.asarray(info["final_observation"]) - np.asarray(obs)).max(axis=1)
        np.testing.assert_array_equal(moved > 0, over)


def test_gradients_where_asked_for():
    """gymnax stops them; with its own switch they are those of env.step."""
    env = adapter.GymnaxEnv(swing())
    obs, state = env.reset(jax.random.key(0))

    def seen(e):
        return lambda u: e.step(jax.random.key(1), state, u, None)[0][2]

    u = jnp.full(1, 0.3, DTYPE)
    assert jax.grad(seen(env))(u) == 0
    wanted = jax.grad(lambda u: env.env.step(state, u).obs[2])(u)
    np.testing.assert_allclose(jax.grad(seen(env.with_transition_gradients()))(u), wanted)
    assert abs(float(wanted[0])) > 0.05


def test_what_it_refuses():
    with pytest.raises(pbad.OptionError, match="resets by itself"):
        adapter.GymnaxEnv(swing(autoreset="same_step"))
