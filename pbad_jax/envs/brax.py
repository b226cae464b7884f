"""Brax's `Env` of an environment; needs brax, which is in none of the extras. Tried with brax 0.14.2.

Brax's trainers wrap what they are given: lanes, episodes and resets are theirs, so this is one lane without a time
limit of its own. Two things are Brax's: a reset goes back to the lane's first start, and an episode that a failed step
cut is `done` as if it had ended, for its trainers know no truncation but that of their own time limit. With jax 0.10 or
newer its PPO, SAC and APG call `jax.device_put_replicated`, which is gone; give it back before training:

    jax.device_put_replicated = lambda x, devices: jax.tree.map(lambda y: jnp.stack([y] * len(devices)), x)
"""

from typing import Any

import jax
import jax.numpy as jnp
from brax.envs import base

from pbad_jax.envs.catalogue import make
from pbad_jax.envs.env import Env
from pbad_jax.envs.task import Task
from pbad_jax.errors import OptionError

__all__ = ["BraxEnv"]


class BraxEnv(base.Env):
    """One lane: `BraxEnv("ant")`, or of any Env or Task without autoreset.

    Actions are those of Brax, within ±1, and are spread over the range of the task's; an action without bounds stays.
    """

    def __init__(self, env: str | Task | Env):
        self.env = env if isinstance(env, Env) else make(env)
        if self.env.rules.autoreset is not None or self.env.rules.time_limit is not None:
            raise OptionError("BraxEnv: Brax's trainers reset and limit episodes; wanted an Env without either")

    def reset(self, rng: jax.Array) -> base.State:
        """The start of an episode."""
        state: Any = self.env.reset(rng)
        zero = jnp.zeros((), state.obs.dtype)
        return base.State(state, state.obs, zero, zero, self._metrics(state), {})

    def step(self, state: base.State, action: jax.Array) -> base.State:
        """One control step."""
        before: Any = state.pipeline_state
        low, high = (jnp.asarray(x, before.obs.dtype) for x in self.env.action_bounds)
        bounded = jnp.isfinite(high - low)
        middle, half = jnp.where(bounded, 0.5 * (low + high), 0.0), jnp.where(bounded, 0.5 * (high - low), 1.0)
        after = self.env.step(before, middle + half * action)
        done = after.done.astype(after.obs.dtype)
        state.metrics.update(self._metrics(after))
        return state.replace(pipeline_state=after, obs=after.obs, reward=after.reward, done=done)

    def _metrics(self, state: Any) -> dict[str, jax.Array]:
        """The terms of the reward, and whether the step failed."""
        terms = {k: x for k, x in state.info.items() if k.startswith("reward_")}
        return terms | {"failed": (state.info["status"] != 0).astype(state.obs.dtype)}

    @property
    def observation_size(self) -> int:
        """How many numbers are seen."""
        return self.env.observation_size

    @property
    def action_size(self) -> int:
        """How many numbers an action has."""
        return self.env.action_size

    @property
    def backend(self) -> str:
        """Not one of Brax's."""
        return "pbad_jax"
