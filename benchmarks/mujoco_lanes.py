"""Lanes of gymnasium's own environments, MuJoCo, for examples/ppo.py: what is learnt there is judged here."""

import importlib
from typing import Any, NamedTuple

import jax
import numpy as np


class Rows(NamedTuple):
    """What `learn` wants of Transitions, (lanes, length, ...)."""

    obs: np.ndarray
    extras: dict
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: np.ndarray  # before a reset


class Lanes:
    """Environments side by side, which begin anew in the step that ends an episode."""

    def __init__(self, name: str, more: dict, lanes: int, time_limit: int, seed: int):
        gymnasium: Any = importlib.import_module("gymnasium")
        same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        self.envs = gymnasium.make_vec(
            name, lanes, "sync", vector_kwargs=same_step, max_episode_steps=time_limit, **more
        )
        self.obs = self.envs.reset(seed=seed)[0].astype(np.float32)
        self.key = jax.random.key(seed)
        self.act: Any = None

    def update(self, trainer: Any, s: Any, learner: Any, key: jax.Array) -> tuple[Any, dict[str, float]]:
        """Lanes make `length` steps, and the policy learns from them; figures."""
        if self.act is None:
            self.act = jax.jit(jax.vmap(trainer.policy, in_axes=(None, 0, 0)))
        made, speeds = [], []
        for _ in range(s.length):
            self.key, now = jax.random.split(self.key)
            action, extras = jax.device_get(self.act(learner.p, self.obs, jax.random.split(now, len(self.obs))))
            seen, reward, terminated, truncated, info = self.envs.step(action)
            ended = terminated | truncated
            after = seen.copy()
            for i in np.flatnonzero(ended):
                after[i] = info["final_obs"][i]
            made.append(Rows(self.obs, extras, reward, terminated, truncated, after))
            speeds.append(_speeds(info, ended))
            self.obs = seen.astype(np.float32)
        rows = jax.tree.map(
            lambda *x: np.stack(x, axis=1).astype(x[0].dtype if x[0].dtype == bool else np.float32), *made
        )
        p, memory, figures = trainer.learn(s, learner.p, learner.memory, rows, key)
        told: dict[str, float] = {name: float(x) for name, x in figures.items()}
        told |= {
            "reward": float(rows.reward.mean()),
            "ended": float(rows.terminated.mean()),
            "m_s": float(np.mean(speeds)),
        }
        return trainer.Learner(p, memory, learner.state), told


def _speeds(info: dict, ended: np.ndarray) -> np.ndarray:
    """ẋ (lanes,) m/s; of those that have begun anew what their last step had."""
    now = np.asarray(info.get("x_velocity", np.zeros(len(ended))), float)
    return np.where(ended, info["final_info"]["x_velocity"], now) if ended.any() else now
