"""Gymnasium's `Env` and `VectorEnv` of an environment; needs gymnasium: `pip install "pbad_jax[rl]"`.

They inherit, because gymnasium's trainers ask for it. What they hand out is numpy; each call is one compiled program.
"""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode

from pbad_jax.checks import integer
from pbad_jax.envs.catalogue import make
from pbad_jax.envs.env import Env, axes_of
from pbad_jax.envs.state import EnvState, Params
from pbad_jax.envs.task import Task
from pbad_jax.envs.wrap import wrap

__all__ = ["PbadEnv", "PbadVectorEnv", "spaces"]


def spaces(env: Env) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Of what is seen, without bounds, and of actions."""
    low, high = (x.astype(np.float32) for x in env.action_bounds)
    dtype: Any = np.dtype(env.task.model.dtype).type
    return gymnasium.spaces.Box(-np.inf, np.inf, (env.observation_size,), dtype), gymnasium.spaces.Box(low, high)


def _limited(env: str | Task | Env, autoreset: str | None) -> Env:
    """The environment with a time limit, the task's own where it has none."""
    env = env if isinstance(env, Env) else make(env)
    limit = env.rules.time_limit or env.task.time_limit
    return wrap(env, time_limit=limit, autoreset=autoreset)


def _told(info: dict[str, Any]) -> dict[str, Any]:
    return {k: np.asarray(x) for k, x in info.items() if k != "final_obs"}


class PbadEnv(gymnasium.Env):
    """One lane: `PbadEnv("ant")`, or of any Env or Task.

    Args:
        env: a name, a Task, or an Env of `make` or `wrap`; where it has no time limit it gets the task's.
        params: a model and a delay instead of its own.
    """

    metadata = {"render_modes": []}

    def __init__(self, env: str | Task | Env, params: Params | None = None):
        self.env = _limited(env, None)
        self.params = self.env.checked(params)
        self.observation_space, self.action_space = spaces(self.env)
        self.render_mode = None
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)
        self.state: EnvState | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """A new episode; the same seed gives the same one."""
        super().reset(seed=seed)
        del options
        state = self._reset(jax.random.key(int(self.np_random.integers(2**31))), self.params)
        self.state = state
        return np.array(state.obs), {}

    def step(self, action: Any):
        """One control step; where it could not be solved it is truncated, and `info["status"]` says why."""
        if self.state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        state = self._step(self.state, jnp.asarray(action, self.env.task.model.dtype), self.params)
        self.state = state
        told = _told(state.info)
        return np.array(state.obs), float(state.reward), bool(state.terminated), bool(state.truncated), told


class PbadVectorEnv(gymnasium.vector.VectorEnv):
    """Many lanes as one compiled program; they begin anew in the step that ends an episode (AutoresetMode.SAME_STEP).

    Args:
        env: as for PbadEnv. num_envs: lanes.
        params: one for all lanes, or of any array one for each: `jax.vmap(env.randomise)(keys)`.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, env: str | Task | Env, num_envs: int, params: Params | None = None):
        self.env = _limited(env, "same_step")
        self.num_envs = integer(num_envs, "num_envs", 1)
        self.params = self.env.checked(params, self.num_envs)
        self.single_observation_space, self.single_action_space = spaces(self.env)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.render_mode = None
        axes = axes_of(self.env, self.params, self.num_envs)
        self._reset = jax.jit(jax.vmap(self.env.reset, (0, axes)))
        self._step = jax.jit(jax.vmap(self.env.step, (0, 0, axes)))
        self.state: EnvState | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """New episodes in all lanes; lanes of one seed differ from one another."""
        super().reset(seed=seed)
        del options
        key = jax.random.key(int(self.np_random.integers(2**31)))
        state = self._reset(jax.random.split(key, self.num_envs), self.params)
        self.state = state
        return np.array(state.obs), {}

    def step(self, actions: Any):
        """One control step of every lane; `info["final_obs"]` holds what ended episodes saw last."""
        if self.state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        state = self._step(self.state, jnp.asarray(actions, self.env.task.model.dtype), self.params)
        self.state = state
        info, over = _told(state.info), np.array(state.done)
        info |= {f"_{k}": np.ones(self.num_envs, bool) for k in info}
        if over.any():
            last = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(over):
                last[i] = np.array(state.info["final_obs"][i])
            info |= {"final_obs": last, "_final_obs": over}
        reward = np.array(state.reward, np.float64)
        return np.array(state.obs), reward, np.array(state.terminated), np.array(state.truncated), info
