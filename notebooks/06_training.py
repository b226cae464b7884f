# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Training
#
# Takes 110 s of CPU on two busy cores. The paper's swimmer learns to swim twice: by trying gaits and keeping the better
# ones, and by gradients through the simulation. The first counts what the solver did meanwhile.

# %%
import dataclasses
import os
import time

import jax

SMALL = os.environ.get("PBAD_NOTEBOOK_SMALL") == "1"  # for a quick check of this notebook
jax.config.update("jax_disable_most_optimizations", SMALL)  # compiling is what takes the time there

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import pbad_jax as pbad

STEPS, ITERATIONS, UPDATES = (10, 3, 2) if SMALL else (200, 15, 25)

# %% [markdown]
# ## A task and a gait
#
# The task is four links in water, three torques between them, and the speed of the centre of mass as its reward. We let
# it show the time too, so that a gait of sines is a policy: sizes, lags and a frequency are seven numbers.

# %%
task = pbad.envs.make("paper_swimmer", dtype=jnp.float32).task
clocked = dataclasses.replace(task, observe=lambda m: jnp.append(task.observe(m), m.sim.time))
env = pbad.envs.make(clocked, options=pbad.Options(dt=0.05, scheme="radau1"))


def gait(p, obs, key):
    phase = jnp.exp(p[6]) * obs[-1] + jnp.cumsum(p[3:6])
    return jnp.tanh(p[:3]) * jnp.sin(phase), None


start = jax.vmap(env.reset)(jnp.repeat(jax.random.key(0)[None], 64, 0))
middle, spread = np.r_[0.5, 0.5, 0.5, 0, 0, 0, 1.0], 0.5

# %% [markdown]
# ## By trying
#
# Every lane has a gait of its own, `population=True`. The cross-entropy method is three lines: the better eighth gives
# the next mean and spread. (CMA-ES, the paper's: `examples/train_swimmer_cma.py`.)

# %%
rng, began, tried = np.random.default_rng(0), time.process_time(), []
mean, deviation = middle, np.full(7, spread)
for _ in range(ITERATIONS):
    gaits = jnp.asarray(mean + deviation * rng.normal(size=(64, 7)), jnp.float32)
    state, rows = pbad.envs.unroll(env, gait, gaits, start, STEPS, population=True, schedule="step")
    far = np.asarray(rows.info["reward_forward"].sum(axis=1) * env.dt)
    best = np.asarray(gaits)[np.argsort(-far)[:8]]
    mean, deviation = best.mean(0), best.std(0) + 0.02
    tried.append((64 * STEPS * (len(tried) + 1), np.median(far), far.max()))
tried = np.array(tried)
print(f"{time.process_time() - began:.0f} s of CPU with compiling; the median gait comes {tried[-1, 1]:.2f} m")
failed, iterations = int(state.metrics.failed.sum()), float(rows.info["iterations"].mean())
print(f"steps without a certificate: {failed}; iterations a step: {iterations:.1f}")

# %% [markdown]
# ## By gradients
#
# `schedule="step"` is `vmap` and `scan` of `env.step`, which reverse mode goes through. Eight gaits at once, Adam.

# %%
one = jax.tree.map(lambda x: x[:8], start)


def distance(gaits):
    rows = pbad.envs.unroll(env, gait, gaits, one, STEPS, population=True, schedule="step")[1]
    return rows.info["reward_forward"].sum(axis=1) * env.dt


@jax.jit
def update(gaits, memory):
    far, back = jax.vjp(distance, gaits)
    change, memory = optimiser.update(-back(jnp.ones_like(far))[0], memory)
    return optax.apply_updates(gaits, change), memory, far


began, climbed = time.process_time(), []
gaits = jnp.asarray(middle + spread * rng.normal(size=(8, 7)), jnp.float32)
optimiser = optax.adam(0.1)
memory = optimiser.init(gaits)
for _ in range(UPDATES):
    gaits, memory, far = update(gaits, memory)
    climbed.append((8 * STEPS * (len(climbed) + 1), np.median(far), far.max()))
climbed = np.array(climbed)
print(f"{time.process_time() - began:.0f} s of CPU with compiling; the median gait comes {climbed[-1, 1]:.2f} m")

# %%
fig, ax = plt.subplots(figsize=(6, 3.5))
for name, found, colour in (("trying", tried, "C0"), ("gradients", climbed, "C1")):
    ax.plot(found[:, 0] / 1e3, found[:, 1], colour, label=f"{name}, median")
    ax.plot(found[:, 0] / 1e3, found[:, 2], colour + ":", label=f"{name}, best")
ax.set(xlabel="thousand steps", ylabel=f"m in {STEPS * env.dt:g} s")
ax.legend()

# %% [markdown]
# ## A policy that looks
#
# `examples/ppo.py` trains any environment; docs/environments.md has its curves: a spider that walks, a half-cheetah
# that runs.
