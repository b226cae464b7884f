"""Robots on the ground under random actions: an Engine a simulator, measured alike. For environments.py.

MJX runs gymnasium's files, Brax its own environments of the same names as it ships them: its masses, gears and steps.
Both are imported when they are asked for, in processes of their own.
"""

import contextlib
import importlib
import io
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import digits

FINER = 16  # what a control step is compared with: that many times smaller steps of the same engine
BRAX = {"ant": "ant", "half_cheetah": "halfcheetah", "humanoid": "humanoid", "swimmer": "swimmer"}


class Engine(NamedTuple):
    """A batch of robots. States and figures are pytrees of arrays with the lanes in front."""

    begun: Any
    ranges: tuple[np.ndarray, np.ndarray]  # of the controls, (nu,) each
    advance: Callable  # (states, controls (lanes,nu), share) -> states after that share of a control step, dict of info
    q: Callable  # states -> (lanes,nq) m and rad
    depth: Callable  # states -> (lanes,) m, of the deepest contact
    dtype: Any


def mjx(xml: str, starts: tuple[np.ndarray, np.ndarray], dt: float) -> tuple[Engine, str]:
    mujoco: Any = importlib.import_module("mujoco")
    X: Any = importlib.import_module("mujoco.mjx")
    m = mujoco.MjModel.from_xml_path(xml)
    model, data, h = X.put_model(m), X.make_data(m), m.opt.timestep
    held = max(1, round(dt / h))

    def advance(states, u, share):
        sized = model.tree_replace({"opt.timestep": jnp.asarray(h * share, model.opt.timestep.dtype)})

        def one(s, u):
            return jax.lax.fori_loop(0, held, lambda _, d: X.step(sized, d), s.replace(ctrl=u))

        return jax.vmap(one)(states, u), {}

    begun = jax.vmap(lambda q, v: X.forward(model, data.replace(qpos=q, qvel=v)))(*map(jnp.asarray, starts))

    def depth(s):
        return jnp.max(-s._impl.contact.dist, axis=-1, initial=0.0)

    ranges = m.actuator_ctrlrange[:, 0], m.actuator_ctrlrange[:, 1]
    return Engine(begun, ranges, advance, lambda s: s.qpos, depth, begun.qpos.dtype), f"{held} steps of {h:g} s"


def brax(name: str, pipeline: str, lanes: int) -> tuple[Engine, str, float]:
    """And the seconds of a control step, which are the environment's own."""
    envs: Any = importlib.import_module("brax.envs")
    contact: Any = importlib.import_module("brax.contact")
    env = envs.get_environment(BRAX[name], backend=pipeline)
    system, h, held = env.sys, float(env.sys.opt.timestep), env._n_frames

    def advance(states, u, share):
        sized = system.tree_replace({"opt.timestep": jnp.asarray(h * share, states.q.dtype)})

        def one(s, u):
            return jax.lax.fori_loop(0, held, lambda _, p: env._pipeline.step(sized, p, u), s)

        return jax.vmap(one)(states, u), {}

    def depth(s):
        found = jax.vmap(lambda s: contact.get(system, s.x))(s)
        return jnp.zeros(lanes) if found is None else jnp.max(-found.dist, axis=-1, initial=0.0)

    begun = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), lanes)).pipeline_state
    ones = np.ones(env.action_size)
    said = f"{held} steps of {h:.4g} s"
    return Engine(begun, (-ones, ones), advance, lambda s: s.q, depth, begun.q.dtype), said, float(env.dt)


class Rival:
    """One of them in a process of its own: `measure` gives a row of environments.py."""

    def __init__(self, engine: str, precision: str):
        warnings.filterwarnings("ignore")
        jax.config.update("jax_enable_x64", precision == "float64")
        self.engine, self.precision = engine, precision

    def measure(self, name: str, xml: str, starts, dt: float, lanes: int, steps: int, limit: float) -> dict:
        with contextlib.redirect_stdout(io.StringIO()):  # what is not installed that nobody asked for
            if self.engine == "mjx":
                engine, said = mjx(xml, starts, dt)
            else:
                engine, said, dt = brax(name, self.engine.split()[1], lanes)
        row = {"robot": name, "dt": round(dt, 4), "lanes": lanes, "engine": f"{self.engine}, {said}"}
        return row | {"precision": self.precision} | figures(engine, lanes, steps, limit)


def figures(engine: Engine, lanes: int, steps: int, limit: float) -> dict:
    """Control steps of random actions until `limit` seconds are over; a lane that fails begins anew.

    What an engine says of its steps: `failed` (lanes,) bool, `iterations` (lanes,), `parts` (lanes,) bool.
    """

    def control_step(states, key, share):
        low, high = (jnp.asarray(x, engine.dtype) for x in engine.ranges)
        u = jax.random.uniform(key, (lanes, len(low)), engine.dtype, low, high)
        after, info = engine.advance(states, u, share)
        failed = info.pop("failed", False) | ~jnp.all(jnp.isfinite(engine.q(after)), axis=-1)
        back = jax.tree.map(lambda a, b: jnp.where(failed.reshape(-1, *(1,) * (a.ndim - 1)), b, a), after, engine.begun)
        return back, {"failed": failed, "depth": engine.depth(back), "q": engine.q(back)} | info

    began, whole = time.process_time(), jnp.ones((), engine.dtype)
    program = jax.jit(control_step).lower(engine.begun, jax.random.key(0), whole).compile()
    compiling = time.process_time() - began
    states, _ = jax.block_until_ready(program(engine.begun, jax.random.key(1), whole))
    keys, out = jax.random.split(jax.random.key(2), steps), []
    began, wall = time.process_time(), time.perf_counter()
    for key in keys:
        states, said = program(states, key, whole)
        out.append({k: np.asarray(x) for k, x in said.items() if k != "q"})
        if time.perf_counter() - wall > limit:
            break
    cpu, wall = time.process_time() - began, time.perf_counter() - wall
    seen = {k: np.stack([row[k] for row in out]) for k in out[0]}
    row = {"control_steps": seen["failed"].size}
    row |= {"per_cpu_s": digits(seen["failed"].size / cpu), "per_s": digits(seen["failed"].size / wall)}
    if "iterations" in seen:
        k = seen["iterations"]
        row |= {"iterations_mean": digits(k.mean()), "iterations_p99": digits(np.percentile(k, 99))}
        row |= {"iterations_most": int(k.max()), "iterations_slowest_lane": digits(k.max(1).mean())}
        row |= {"parts_share": digits(seen["parts"].mean())}
    row |= {"failed_share": digits(seen["failed"].mean())} | depths(seen["depth"])
    return row | {"drift": digits(drift(program, states, whole)), "compile_cpu_s": digits(compiling)}


def depths(depth: np.ndarray) -> dict:
    return {"penetration_mm": digits(1e3 * depth.mean()), "penetration_mm_p99": digits(1e3 * np.percentile(depth, 99))}


def drift(program: Callable, states, whole: jax.Array) -> float:
    """Of one control step: the median over the lanes of the largest entry of q − q', m and rad, q' with finer steps."""
    key, fine, exact = jax.random.key(3), states, None
    q = np.asarray(program(states, key, whole)[1]["q"])
    for _ in range(FINER):
        fine, said = program(fine, key, whole / FINER)
        exact = np.asarray(said["q"])
    return float(np.median(np.max(np.abs(q - exact), axis=-1)))
