"""The paper's swimmer by CMA-ES: python examples/train_swimmer_cma.py [--seed 0]   (pip install cma)

As in the paper, 20 trajectories of 1000 steps of 0.05 s an iteration, 100 iterations, 2 million steps. The paper does
not say what its controller is; here it is a gait of sines, whose sizes, offsets, lags and frequency are ten numbers.
They are rewarded by how far the centre of mass comes along x.
"""

import argparse
import dataclasses
import importlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad

LANES, ITERATIONS, STEPS = 20, 100, 1000


def gait(p: jax.Array, obs: jax.Array, key: jax.Array):
    """The actions (3,) of ten numbers; the clock is the last number that the task shows."""
    del key
    size, offset, lag, log_frequency = p[:3], p[3:6], p[6:9], p[9]
    return jnp.tanh(size) * jnp.sin(jnp.exp(log_frequency) * obs[-1] + jnp.cumsum(lag)) + offset, None


def environment(dtype: Any = jnp.float32) -> pbad.envs.Env:
    """The paper's swimmer, which sees the time too. No step of it is hard: without parts it compiles sooner."""
    task = pbad.envs.make("paper_swimmer", dtype=dtype).task
    clocked = dataclasses.replace(task, observe=lambda m: jnp.append(task.observe(m), m.sim.time))
    return pbad.envs.make(clocked, options=pbad.Options(dt=0.05, scheme="radau1"))


def train(seed: int = 0, iterations: int = ITERATIONS, steps: int = STEPS) -> tuple[list[dict], np.ndarray]:
    """What every iteration found, as rows, and the best gait (10,)."""
    cma: Any = importlib.import_module("cma")
    env = environment()
    start = jax.vmap(env.reset)(jnp.repeat(jax.random.key(seed)[None], LANES, 0))
    search = cma.CMAEvolutionStrategy(np.r_[np.full(3, 0.5), np.zeros(6), 1.0], 0.5,
                                      {"popsize": LANES, "seed": seed + 1, "verbose": -9})  # fmt: skip

    def tried(gaits) -> tuple[np.ndarray, int]:
        """Metres that each of the gaits (20,10) comes, and how many steps failed."""
        each = jnp.asarray(gaits, jnp.float32)  # whose steps are about equally hard: by steps is quicker
        state, rows = pbad.envs.unroll(env, gait, each, start, steps, population=True, schedule="step")
        far = jnp.sum(rows.info["reward_forward"], axis=1) * env.dt
        return np.asarray(far, float), int(state.metrics.failed.sum())

    tried(search.ask())  # compiles
    cpu, wall, found = time.process_time(), time.perf_counter(), []
    for k in range(iterations):
        gaits = search.ask()
        far, failed = tried(gaits)
        search.tell(gaits, list(-far))
        found.append({
            "env_steps": (k + 1) * LANES * steps, "median_m": float(np.median(far)), "best_m": float(far.max()),
            "failed": failed, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall,
        })  # fmt: skip
    return found, np.asarray(search.result.xbest)


def main() -> None:
    """Train, and say how far it swims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    rows, best = train(arguments.seed, arguments.iterations, arguments.steps)
    for row in rows[:: max(1, len(rows) // 10)] + rows[-1:]:
        print(
            "{env_steps:8d} steps: median {median_m:+.2f} m, best {best_m:+.2f} m, {cpu_s:.0f} s of CPU".format(**row)
        )
    print("the best gait:", np.array2string(best, precision=3))


if __name__ == "__main__":
    main()
