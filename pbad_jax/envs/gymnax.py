"""Gymnax's `Environment` of an environment; needs gymnax, which is in none of the extras. Tried with gymnax 1.0.1.

Gymnax resets by itself in the step that ends an episode and tells `terminated` from `truncated`; a failed step
truncates. What was seen last is `info["final_observation"]`. Gradients through steps are stopped unless they are asked
for: `GymnaxEnv("ant").with_transition_gradients()`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from gymnax.environments import environment, spaces

from pbad_jax.envs.catalogue import make
from pbad_jax.envs.env import Env
from pbad_jax.envs.state import Params
from pbad_jax.envs.task import Task
from pbad_jax.envs.wrap import wrap
from pbad_jax.errors import OptionError

__all__ = ["GymnaxEnv"]


class GymnaxEnv(environment.Environment):
    """One lane: `GymnaxEnv("ant")`, or of any Env or Task without autoreset; the task's time limit where it has none.

    Its params are those of `env.params`, a model and a delay; its states are EnvStates.
    """

    _supports_transition_gradients = True

    def __init__(self, env: str | Task | Env):
        env = env if isinstance(env, Env) else make(env)
        if env.rules.autoreset is not None:
            raise OptionError("GymnaxEnv: gymnax resets by itself; wanted an Env without autoreset")
        self.env = wrap(env, time_limit=env.rules.time_limit or env.task.time_limit)

    @property
    def default_params(self) -> Any:
        """The task's own model, and no delay."""
        return self.env.params

    def reset_env(self, key: jax.Array, params: Params) -> tuple[jax.Array, Any]:
        """The start of an episode."""
        state = self.env.reset(key, params)
        return state.obs, state

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Params):
        """One control step."""
        del key  # the state has its own
        state = self.env.step(state, action, params)
        info = {k: x for k, x in state.info.items() if k != "final_obs"}
        obs, state = self._apply_transition_gradient_policy(state.obs, state)
        return obs, state, state.reward, state.terminated, info

    def is_truncated(self, state: Any, params: Params) -> jax.Array:
        """Whether the time limit or a failed step cut the episode."""
        del params
        return state.truncated

    def is_terminated(self, state: Any, params: Params) -> jax.Array:
        """Whether the episode has come to an end of its own."""
        del params
        return state.terminated

    @property
    def name(self) -> str:
        """Of the task."""
        return self.env.task.name

    @property
    def num_actions(self) -> int:
        """How many numbers an action has."""
        return self.env.action_size

    def action_space(self, params: Params | None = None) -> spaces.Box:
        """The range of actions."""
        del params
        low, high = (jnp.asarray(x, self.env.task.model.dtype) for x in self.env.action_bounds)
        return spaces.Box(low, high, low.shape, low.dtype)

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        """What is seen, without bounds."""
        del params
        return spaces.Box(-jnp.inf, jnp.inf, (self.env.observation_size,), self.env.task.model.dtype)
