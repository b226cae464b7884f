"""The Gymnasium adapters pass gymnasium's own checks."""

import dataclasses
import importlib
from typing import Any

import jax
import numpy as np
import pytest
from helpers import DTYPE

import pbad_jax as pbad

gymnasium: Any = importlib.import_module("gymnasium")
adapter = importlib.import_module("pbad_jax.envs.gymnasium")

HOW = pbad.Options(dt=0.05, scheme="radau1", max_iterations=8)


def swing() -> pbad.envs.Env:
    """A pendulum whose episodes have 5 steps; its actions are within ±1."""
    task = pbad.envs.make("pendulum", dtype=DTYPE).task
    task = dataclasses.replace(task, low=[-1.0], high=[1.0], control=lambda model, action: 2.0 * action)
    return pbad.envs.wrap(pbad.envs.make(task, options=HOW), time_limit=5)


def test_gymnasiums_checker():
    """Spaces, seeds, resets and steps, without a warning of its."""
    env = adapter.PbadEnv(swing())
    with pytest.warns() as heard:
        importlib.import_module("gymnasium.utils.env_checker").check_env(env, skip_render_check=True)
        importlib.import_module("warnings").warn("one at least", stacklevel=1)
    said = [str(w.message) for w in heard if "one at least" not in str(w.message)]
    assert not [w for w in said if "infinity" not in w], said


def test_an_episode():
    """As env.step says; truncated by the time limit, not before."""
    env, ours = adapter.PbadEnv(swing()), swing()
    obs, _ = env.reset(seed=7)
    np.testing.assert_array_equal(obs, env.reset(seed=7)[0])
    state, step = env.state, jax.jit(ours.step)
    for k in range(5):
        obs, reward, terminated, truncated, info = env.step(np.array([0.5], np.float32))
        state = step(state, np.array([0.5], DTYPE))
        np.testing.assert_allclose(obs, state.obs, rtol=1e-12)
        assert reward == pytest.approx(float(state.reward)) and not terminated and truncated == (k == 4)
        assert info["status"] == 0
    assert env.observation_space.contains(obs)


def test_a_vector():
    """Lanes differ, begin anew in the step that ends an episode, and keep what was seen last; a lane that fails too."""
    envs = adapter.PbadVectorEnv(swing(), 3)
    first, _ = envs.reset(seed=1)
    np.testing.assert_array_equal(first, envs.reset(seed=1)[0])
    assert envs.observation_space.contains(first) and len(np.unique(first[:, 0])) == 3
    ended = []
    for k in range(7):
        action = np.full((3, 1), 0.3, np.float32)
        if k == 1:
            action[2] = np.nan
        obs, reward, terminated, truncated, info = envs.step(action)
        ended.append(truncated)
        assert obs.shape == (3, 3) and reward.shape == (3,) and not terminated.any() and np.isfinite(obs).all()
        assert ("final_obs" in info) == truncated.any()
        for i in np.flatnonzero(truncated):
            assert info["_final_obs"][i] and np.abs(info["final_obs"][i] - obs[i]).max() > 1e-3
    np.testing.assert_array_equal(
        np.array(ended).T, np.array([[0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 1]])
    )


def test_wants_a_reset_first():
    with pytest.raises(gymnasium.error.ResetNeeded):
        adapter.PbadEnv(swing()).step([0.0])
