"""A swimmer learns to swim by gradients through the simulation: python examples/train_swimmer.py

The paper's chain of four links in water. A gait is three sines, one a joint: amplitudes, phases and a frequency are
learnt by gradient ascent (Adam) through 100 steps of 0.05 s, from eight gaits at once, by `unroll(schedule="step")`,
which reverse mode goes through.
"""

import argparse
import dataclasses
import time

import jax
import jax.numpy as jnp
import optax

import pbad_jax as pbad


def gait(p: dict, obs: jax.Array, key: jax.Array):
    """The actions (3,); the clock is the last number that the task shows."""
    phase = jnp.exp(p["log_frequency"]) * obs[-1] + jnp.cumsum(p["lag"])
    return jnp.tanh(p["size"]) * jnp.sin(phase), None


def main() -> None:
    """Learn, and say how far it swims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    task = pbad.envs.make("paper_swimmer").task
    clocked = dataclasses.replace(task, observe=lambda m: jnp.append(task.observe(m), m.sim.time))
    # no step of these is hard: without parts (on_failure="substep") it compiles sooner
    env = pbad.envs.make(clocked, options=pbad.Options(dt=0.05, scheme="radau1"))
    start = jax.vmap(env.reset)(jax.random.key(0)[None])
    normal = jax.random.normal(jax.random.key(1), (8, 7))
    gaits = {"size": 0.5 + 0.3 * normal[:, :3], "lag": normal[:, 3:6], "log_frequency": 1.0 + 0.3 * normal[:, 6]}
    optimiser = optax.adam(0.05)

    def distance(p):
        return jnp.sum(pbad.envs.unroll(env, gait, p, start, arguments.steps, schedule="step")[1].reward) * env.dt

    @jax.jit
    def update(gaits, memory):
        far, slope = jax.vmap(jax.value_and_grad(distance))(gaits)
        change, memory = optimiser.update(jax.tree.map(jnp.negative, slope), memory)
        return optax.apply_updates(gaits, change), memory, far

    memory, began = optimiser.init(gaits), time.process_time()
    for k in range(arguments.updates):
        gaits, memory, far = update(gaits, memory)
        if k % 10 == 0 or k == arguments.updates - 1:
            spent = f"{time.process_time() - began:.0f} s of CPU"
            print(f"{k:3d}: median {jnp.median(far):+.2f} m, best {far.max():+.2f} m, {spent}")


if __name__ == "__main__":
    main()
