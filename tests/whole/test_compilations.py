"""No call compiles twice for the same shapes: trainings and rollouts go on from what they gave."""

import os
import pathlib
import subprocess
import sys

import pytest
from helpers import thorough

pytestmark = [pytest.mark.float64, pytest.mark.slow]
ROOT = pathlib.Path(__file__).parents[2]

COUNTED = r"""
import sys
import jax, jax.numpy as jnp
import ppo, shac
import pbad_jax as pbad

compiled = []

def listen(event, seconds, **more):
    if event == "/jax/core/compile/backend_compile_duration":
        compiled.append(str(more.get("fun_name", more)))

jax.monitoring.register_event_duration_secs_listener(listen)

def settles(what, call, given):
    # The first call compiles, those after it go on from what it gave and compile nothing.
    given = call(given)
    assert compiled, "nothing is counted"
    for again in (1, 2):
        compiled.clear()
        given = call(given)
        assert not compiled, f"{what}, {again}: {compiled}"

model, how = pbad.chain(1, joint="hinge"), pbad.Options(dt=0.05, scheme="radau1")
on = jax.jit(lambda q, v: pbad.make_state(model, q, v))
each = jax.jit(jax.vmap(lambda q, v: pbad.make_state(model, q, v)))
lanes = pbad.spread(each(jnp.zeros((4, 1)), jnp.ones((4, 1))))

def rollout(state):
    traj, _ = pbad.rollout(model, state, n_steps=3, options=how)
    return on(traj.q[-1], traj.v[-1])

def rollout_batch(states):
    traj, _ = pbad.rollout_batch(model, states, n_steps=3, options=how)
    return each(traj.q[:, -1], traj.v[:, -1])

env = pbad.envs.wrap(pbad.envs.make("pendulum"), autoreset="same_step")
policy = lambda p, obs, key: (p * obs[-1:], None)
better = jax.jit(lambda p, reward: p + jnp.mean(reward))

def unroll(given):
    p, state = given
    state, rows = pbad.envs.unroll(env, policy, p, state, 3)
    return better(p, jax.device_put(rows.reward, jax.devices()[0])), state

settles("rollout", rollout, on(jnp.zeros(1), jnp.ones(1)))
settles("rollout_batch", rollout_batch, lanes)
start = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4))
settles("unroll", unroll, (jax.device_put(jnp.float32(0.1), jax.devices()[0]), pbad.spread(start)))
small = {"lanes": 4, "length": 2, "hidden": (4,), "epochs": 1, "batches": 1}
s = ppo.Settings(**small)
task, key = ppo.environment("pendulum", s), jax.random.key(1)
settles("PPO", lambda learner: ppo.update(task, s, learner, key)[0], ppo.begun(task, s, 0))
s = shac.Settings(**small)
settles("SHAC", lambda learner: shac.learn(task, s, learner, key)[0], shac.begun(task, s, 0))
print("once each")
"""


@pytest.mark.parametrize("devices", [thorough(1), 2])
def test_once_for_all(devices):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "examples"), str(ROOT), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", COUNTED], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "once each" in done.stdout
