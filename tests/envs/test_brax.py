"""The Brax adapter under Brax's own wrappers; where brax is installed, which it is in none of the extras."""

import dataclasses
import importlib
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE

import pbad_jax as pbad

if os.environ.get("PBAD_TEST_ADAPTERS") != "1":  # CI has an environment for them
    pytest.importorskip("brax.envs")
adapter = importlib.import_module("pbad_jax.envs.brax")
training = importlib.import_module("brax.envs.wrappers.training")

HOW = pbad.Options(dt=0.05, scheme="radau1", max_iterations=8)


def task(**more) -> pbad.envs.Task:
    return dataclasses.replace(pbad.envs.make("pendulum", dtype=DTYPE).task, **more)


def test_under_braxs_wrappers():
    """Episodes of 4 steps, two lanes; a lane that fails is done and starts again; actions are spread over ±2 N m."""
    env = adapter.BraxEnv(pbad.envs.make(task(), options=HOW))
    assert (env.observation_size, env.action_size) == (3, 1)
    wrapped = training.wrap(env, episode_length=4, action_repeat=1)
    state = jax.jit(wrapped.reset)(jax.random.split(jax.random.PRNGKey(0), 2))
    first, step = state.obs, jax.jit(wrapped.step)
    for k in range(4):
        action = jnp.full((2, 1), 0.5, DTYPE)
        state = step(state, action.at[1].set(jnp.nan) if k == 1 else action)
        np.testing.assert_array_equal(state.done, [k == 3, k in (1,)])
        np.testing.assert_array_equal(state.metrics["failed"], [0, k == 1])
    np.testing.assert_array_equal(state.info["truncation"], [1, 0])
    np.testing.assert_allclose(state.obs[0], first[0])


def test_what_it_refuses():
    with pytest.raises(pbad.OptionError, match="without either"):
        adapter.BraxEnv(pbad.envs.wrap(pbad.envs.make(task(), options=HOW), time_limit=4))
