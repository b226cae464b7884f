"""An ant under random actions: `unroll` by iterations beside the vmap of its steps, and what both take to compile.

    python benchmarks/unroll.py [--quick] [--name unroll] [--out DIR]

gymnasium's ant, radau(1) in steps of 0.05 s, float32. `by` iterations no lane waits for another's hard steps; by steps
it is `vmap` and `scan` of `env.step`. Both take turns, the least CPU time counts: microseconds of a control step of one
lane, resets, observations and rewards included. `compile_cpu_s` is tracing, lowering and compiling, all threads, with a
cold cache; of the gradient of the mean reward by the policy's parameters, over 8 steps, nothing else is measured.
"""

import time

import common

common.one_thread()

import jax  # noqa: E402  after the word about threads
import jax.numpy as jnp  # noqa: E402

import pbad_jax as pbad  # noqa: E402

LENGTH, HORIZON, ROUNDS = 20, 8, 3
BY = {"iterations": "iteration", "steps": "step"}


def policy(weights: jax.Array, obs: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
    noise = jax.random.uniform(key, weights.shape[:1], minval=-1.0, maxval=1.0)
    return jnp.clip(noise + weights @ obs, -1.0, 1.0), None


def compiled(f, *given) -> tuple:
    """What it has become, and the CPU seconds of that."""
    began = time.process_time()
    done = jax.jit(f).lower(*given).compile()
    return done, common.digits(time.process_time() - began)


def measure(lanes: int, length: int, task: str = "ant") -> list[dict]:
    env = pbad.envs.make(task)
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), lanes))
    weights = jnp.zeros((env.action_size, state.obs.shape[-1]), state.obs.dtype)
    case = {"task": task, "lanes": lanes, "length": length}
    rows, calls = [], {}
    for by, schedule in BY.items():
        run = lambda w, s, schedule=schedule: pbad.envs.unroll(env, policy, w, s, length, schedule=schedule)  # noqa: E731
        calls[by], seconds = compiled(run, weights, state)
        rows.append({**case, "by": by, "compile_cpu_s": seconds})
    seen, found = {by: [] for by in BY}, {}
    for _ in range(ROUNDS):
        for by, call in calls.items():
            began = time.process_time()
            found[by] = jax.block_until_ready(call(weights, state))
            seen[by].append(time.process_time() - began)
    for row in rows:
        row["us_a_step"] = common.digits(1e6 * min(seen[row["by"]]) / (lanes * length))
        row["failed"] = int(found[row["by"]][0].metrics.failed.sum())
    return [*rows, {**case, "length": HORIZON, "by": "steps, gradient", "compile_cpu_s": gradient(env, weights, state)}]


def gradient(env, weights: jax.Array, state) -> float:
    def reward(w, s):
        return pbad.envs.unroll(env, policy, w, s, HORIZON, schedule="step")[1].reward.mean()

    return compiled(jax.grad(reward), weights, state)[1]


def plan(quick: bool) -> list[tuple]:
    return [(2, 2, "pendulum")] if quick else [(64, LENGTH), (1024, LENGTH)]


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", False)
    common.run("unroll", __doc__, plan, measure, rounds=ROUNDS, dtype="float32", threads="1")
