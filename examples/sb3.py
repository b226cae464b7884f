"""PPO of stable-baselines3 on any environment: python examples/sb3.py half_cheetah [--steps 300000] [--lanes 64]

Needs `pip install "pbad_jax[models,rl]" stable-baselines3`. One lane is three lines:

    import stable_baselines3 as sb3
    from pbad_jax.envs.gymnasium import PbadEnv
    sb3.PPO("MlpPolicy", PbadEnv("pendulum")).learn(10_000)

Many lanes, one compiled program, go by `Lanes`, which says what a PbadVectorEnv does in the words of its trainers.
"""

import argparse
import importlib
import time
from typing import Any

import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad
from pbad_jax.envs.gymnasium import PbadVectorEnv

sb3: Any = importlib.import_module("stable_baselines3")  # no dependency of ours
torch: Any = importlib.import_module("torch")
vec_env: Any = importlib.import_module("stable_baselines3.common.vec_env")


class Lanes(vec_env.VecEnv):
    """stable-baselines3's VecEnv of a PbadVectorEnv; both begin anew in the step that ends an episode."""

    def __init__(self, envs: PbadVectorEnv, seed: int = 0):
        self.envs, self.first, self.actions, self.failed = envs, seed, np.zeros(()), 0
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self):
        """What all lanes see first."""
        return self.envs.reset(seed=self.first)[0]

    def step_async(self, actions: np.ndarray):
        """Keep the actions."""
        self.actions = actions

    def step_wait(self):
        """One control step of all lanes; failed ones are truncated, and counted."""
        obs, reward, terminated, truncated, info = self.envs.step(self.actions)
        self.failed += int(np.sum(info["status"] != 0))
        told: list[dict] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(terminated | truncated):
            told[i] = {"terminal_observation": info["final_obs"][i], "TimeLimit.truncated": not terminated[i]}
        return obs, reward, terminated | truncated, told

    def close(self):
        """Nothing is open."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None):
        """Of every lane."""
        return [getattr(self.envs, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None):
        """Is refused."""
        raise NotImplementedError("lanes are one program; make another environment")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any):
        """Is refused."""
        raise NotImplementedError("lanes are one program; they have no methods of their own")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None):
        """None is."""
        return [False] * self.num_envs


def main() -> None:
    """Train, and say how the last episodes went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--lanes", type=int, default=64)
    a = parser.parse_args()
    torch.set_num_threads(1)  # its networks are small: threads would only wait for one another
    env = pbad.envs.wrap(pbad.envs.make(a.task, dtype=jnp.float32), time_limit=200)
    lanes = Lanes(PbadVectorEnv(env, a.lanes))
    learner = sb3.PPO(
        "MlpPolicy", vec_env.VecNormalize(vec_env.VecMonitor(lanes)), n_steps=32, batch_size=512, n_epochs=5,
        gamma=0.97, verbose=1,
    )  # fmt: skip
    began = time.process_time()
    learner.learn(a.steps, log_interval=10)
    lately = [episode["r"] for episode in learner.ep_info_buffer or ()]
    print(f"{learner.num_timesteps} steps, {time.process_time() - began:.0f} s of CPU with compiling", end=", ")
    print(f"the last {len(lately)} episodes returned {np.mean(lately):.1f}; {lanes.failed} steps failed")


if __name__ == "__main__":
    main()
