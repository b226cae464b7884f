"""A policy that learnt here, judged in MuJoCo C: the same file and task, whose observations are of MuJoCo's q and v."""

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad


def judged(task: Any, mj_model: Any, act: Callable, steps: int, finer: int = 1, episodes: int = 16) -> dict:
    """Means over episodes: speed (m/s, `reward_forward`), reward of a control step, control steps until the end.

    Args:
        task: a Task of the same file, whose actuators are all of it and have no state of their own.
        mj_model: its mjModel, which makes steps `finer` times as small as the file's.
        act: observation -> action, without noise. steps: control steps of an episode at most.
    """
    mujoco: Any = importlib.import_module("mujoco")  # it has no types
    timestep = mj_model.opt.timestep / finer
    parts = round(task.dt / timestep)
    assert abs(parts * timestep - task.dt) < 1e-9, "a control step is a whole number of MuJoCo's"
    model, dt = task.model, jnp.asarray(task.dt, task.model.dtype)
    actions = pbad.envs.make(task).action_size

    @jax.jit
    def chosen(m):
        action = act(task.observe(m))
        return action, task.control(model, action)

    @jax.jit
    def told(m):
        reward, terms = task.reward(m)
        return terms["reward_forward"], reward, task.terminated(m)

    place, start = jax.jit(lambda q, v: pbad.make_state(model, q, v)), jax.jit(task.start)
    found, d, usual = [], mujoco.MjData(mj_model), mj_model.opt.timestep
    mj_model.opt.timestep = timestep
    for episode in range(episodes):
        # a start as the task draws it
        at_start, for_goal = jax.random.split(jax.random.key(3000 + episode))
        state, still = start(model, at_start), (jnp.zeros(actions, model.dtype), jnp.zeros(model.nu, model.dtype))
        m = pbad.envs.Transition(model, state, state, *still, dt, task.goal(for_goal))
        mujoco.mj_resetData(mj_model, d)
        d.qpos[:], d.qvel[:] = np.asarray(state.q), np.asarray(state.v)

        # control steps of MuJoCo's
        ended, sums = False, np.zeros(3)
        while not ended and sums[0] < steps:
            action, control = chosen(m)
            d.ctrl[:] = np.asarray(control)
            mujoco.mj_step(mj_model, d, parts)
            after = place(jnp.asarray(d.qpos, model.dtype), jnp.asarray(d.qvel, model.dtype))
            m = m._replace(before=m.sim, sim=after, action=action, control=control)
            speed, reward, ended = told(m)
            sums += 1, float(speed), float(reward)
        found.append([sums[0], *sums[1:] / sums[0]])
    mj_model.opt.timestep = usual
    lasted, speeds, rewards = np.transpose(found)
    said = {"m_s": float(np.mean(speeds)), "reward": float(np.mean(rewards)), "steps": float(np.mean(lasted))}
    return said | {"episodes": episodes, "of_steps": steps}
