"""Control steps of reinforcement learning: robots on the ground under random actions, beside MuJoCo C.

    python benchmarks/environments.py [--quick | --full] [--only TEXT] [--name environments] [--out DIR]

Every lane starts near the model's standing pose; uniform random actions of the whole control range are held over a
control step, which we take in one step (on_failure="substep": in parts where need be) and MuJoCo C in as many of the
file's own steps as fit (`mujoco.rollout`, two threads). A lane that fails, or whose speed is no longer finite, begins
anew. Rows: control steps per CPU second and per second; iterations of a step, their mean, 99th percentile, most, and
the mean of the slowest lane of each batch step; the share of steps that failed, and
that were made in parts; CPU seconds of compiling. `penetration_mm`: the deepest at the end of a control step, its mean
over steps and the 99th percentile. Iterations and shares do not depend on the machine, times do.
"""

import importlib
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import digits, run

import pbad_jax as pbad

LANES, SCHEME = (1, 64, 1024), "radau1"
CASES = (
    ("swimmer", 0.04),
    ("half_cheetah", 0.05),
    ("ant", 0.02),
    ("ant", 0.05),
    ("humanoid", 0.02),
    ("spider", 0.02),
    ("spider", 0.05),
)
STANDS = {"ant": (2, 0.6), "humanoid": (2, 1.3)}  # coordinate of the height, m
LIMIT = 60.0  # s of a case


def xml(name: str) -> pathlib.Path:
    gym: Any = importlib.import_module("gymnasium")
    return pathlib.Path(gym.__file__).parent / "envs" / "mujoco" / "assets" / f"{name}.xml"


def robot(name: str, precision: str) -> pbad.Model:
    dtype = jnp.dtype(precision)
    if name == "spider":
        return pbad.spider(dtype=dtype)
    return pbad.load(xml(name), unsupported="warn", dtype=dtype)[0]


def ranges(model: pbad.Model) -> tuple[np.ndarray, np.ndarray]:
    """Of the controls, (nu,) each; ±1 where there are none."""
    for f in model.forces:
        if hasattr(f, "control_range"):
            low, high = np.asarray(f.control_range).T
            return np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
    raise ValueError(f"{model!r} has no actuators")


def starts(model: pbad.Model, name: str, lanes: int) -> pbad.State:
    rng = np.random.default_rng(0)
    q = np.repeat(np.asarray(model.q0, float)[None], lanes, 0)
    if name in STANDS:
        q[:, STANDS[name][0]] = STANDS[name][1]
    if name == "ant":
        q[:, 7:] = [0, 1, 0, -1, 0, -1, 0, 1]
    free = 7 if model.nq > model.nv else 3
    q[:, free:] += rng.uniform(-0.1, 0.1, (lanes, model.nq - free))
    v = 0.1 * rng.normal(size=(lanes, model.nv))
    return jax.vmap(lambda q, v: pbad.make_state(model, q, v))(jnp.asarray(q, model.dtype), jnp.asarray(v, model.dtype))


def deepest(model: pbad.Model, state: pbad.State) -> jax.Array:
    """m, () of a state."""
    from pbad_jax.dynamics.instant import instant_of

    at = instant_of(model, state, jnp.zeros(model.nu, model.dtype))
    depths = [f.depth(model, at) for f in model.forces if hasattr(f, "depth")]
    return jnp.max(jnp.concatenate([jnp.zeros(1, model.dtype), *depths]))


def ours(name: str, dt: float, lanes: int, precision: str, steps: int) -> dict:
    model = robot(name, precision)
    low, high = ranges(model)
    step, begun = pbad.make_step(pbad.Options(dt=dt, scheme=SCHEME, on_failure="substep")), starts(model, name, lanes)

    def control_step(state, key):
        u = jax.random.uniform(key, (lanes, model.nu), model.dtype, low, high)
        after, info = jax.vmap(step, (None, 0, 0))(model, state, u)
        bad = (info.status != 0) | ~jnp.all(jnp.isfinite(after.v), axis=-1)
        after = jax.tree.map(lambda a, b: jnp.where(bad.reshape(-1, *(1,) * (a.ndim - 1)), b, a), after, begun)
        return after, (info.iterations, bad, info.substeps > 1, jax.vmap(lambda s: deepest(model, s))(after))

    began = time.process_time()
    program = jax.jit(control_step).lower(begun, jax.random.key(0)).compile()
    compiling = time.process_time() - began
    state, _ = jax.block_until_ready(program(begun, jax.random.key(1)))
    keys, out = jax.random.split(jax.random.key(2), steps), []
    began, wall = time.process_time(), time.perf_counter()
    for key in keys:
        state, figures = program(state, key)
        out.append(jax.tree.map(np.asarray, figures))
        if time.perf_counter() - wall > LIMIT:
            break
    cpu, wall = time.process_time() - began, time.perf_counter() - wall
    iterations, failed, parts, depth = map(np.stack, zip(*out))
    return {
        "robot": name, "dt": dt, "lanes": lanes, "engine": f"pbad {SCHEME}", "precision": precision,
        "control_steps": int(iterations.size),
        "per_cpu_s": digits(iterations.size / cpu), "per_s": digits(iterations.size / wall),
        "iterations_mean": digits(iterations.mean()), "iterations_p99": digits(np.percentile(iterations, 99)),
        "iterations_most": int(iterations.max()), "iterations_slowest_lane": digits(iterations.max(1).mean()),
        "failed_share": digits(failed.mean()), "parts_share": digits(parts.mean()),
        "penetration_mm": digits(1e3 * depth.mean()), "penetration_mm_p99": digits(1e3 * np.percentile(depth, 99)),
        "compile_cpu_s": digits(compiling),
    }  # fmt: skip


def mujoco_c(name: str, dt: float, lanes: int, steps: int) -> dict:
    mujoco: Any = importlib.import_module("mujoco")
    rollout: Any = importlib.import_module("mujoco.rollout")
    m = mujoco.MjModel.from_xml_path(str(xml(name)))
    held, rng = max(1, round(dt / m.opt.timestep)), np.random.default_rng(0)
    model = robot(name, "float64")
    begun = starts(model, name, lanes)
    data = mujoco.MjData(m)
    state = np.zeros((lanes, mujoco.mj_stateSize(m, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    for k in range(lanes):
        mujoco.mj_resetData(m, data)
        data.qpos[:], data.qvel[:] = np.asarray(begun.q[k]), np.asarray(begun.v[k])
        mujoco.mj_getState(m, data, state[k], mujoco.mjtState.mjSTATE_FULLPHYSICS)
    low, high = m.actuator_ctrlrange.T
    depths: list[float] = []
    with rollout.Rollout(nthread=2) as engine:
        datas = [mujoco.MjData(m) for _ in range(2)]
        began, wall, taken = time.process_time(), time.perf_counter(), 0
        for _ in range(steps):
            u = rng.uniform(low, high, (lanes, 1, m.nu)).repeat(held, axis=1)
            states, _ = engine.rollout([m] * lanes, datas, state, u)
            state, taken = np.array(states[:, -1]), taken + lanes
            if time.perf_counter() - wall > LIMIT:
                break
        cpu, wall = time.process_time() - began, time.perf_counter() - wall
    for k in range(min(lanes, 64)):
        mujoco.mj_setState(m, data, state[k], mujoco.mjtState.mjSTATE_FULLPHYSICS)
        mujoco.mj_forward(m, data)
        depths.append(max([0.0, *(-c.dist for c in data.contact)]))
    return {
        "robot": name, "dt": dt, "lanes": lanes, "engine": f"mujoco C, {held} steps of {m.opt.timestep:g} s",
        "precision": "float64", "control_steps": taken,
        "per_cpu_s": digits(taken / cpu), "per_s": digits(taken / wall),
        "penetration_mm": digits(1e3 * float(np.mean(depths))),
        "penetration_mm_p99": digits(1e3 * float(np.percentile(depths, 99))),
    }  # fmt: skip


def measure(name: str, dt: float, lanes: int, precision: str, steps: int) -> list[dict]:
    rows = [ours(name, dt, lanes, precision, steps)]
    if precision == "float64" and name != "spider":
        rows.append(mujoco_c(name, dt, lanes, steps))
    return rows


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("spider", 0.02, 2, "float64", 2), ("ant", 0.05, 2, "float32", 2)]
    return [(name, dt, 64, "float64", 157) for name, dt in CASES] + [("ant", 0.05, 1024, "float32", 20)]


def full() -> list[tuple]:
    return [
        (name, dt, lanes, precision, {1: 500, 64: 157, 1024: 40}[lanes])
        for name, dt in CASES
        for lanes in LANES
        for precision in ("float64", "float32")
    ]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    rows = [r for r in rows if r["lanes"] != 1]
    names = [f"{r['robot']} {r['dt']:g} s\n{r['lanes']} lanes, {r['precision'][5:]} bits" for r in rows]
    kinds = [r["engine"].split(",")[0] for r in rows]
    fig, ax = plt.subplots(1, 2, figsize=(11, 0.45 * len(rows) + 1.5), sharey=True)
    colours = ["C1" if k.startswith("mujoco") else "C0" for k in kinds]
    at = np.arange(len(rows))
    ax[0].barh(at, [r["per_cpu_s"] for r in rows], color=colours)
    ax[0].set(xscale="log", xlabel="control steps per CPU second (orange: MuJoCo C)", yticks=at, yticklabels=names)
    for figure, mark in (("iterations_mean", "o"), ("iterations_p99", "|"), ("iterations_slowest_lane", "x")):
        known = [(r[figure], y) for r, y in zip(rows, at) if figure in r]
        ax[1].plot(*zip(*known), mark, label=figure.replace("_", " "))
    ax[1].set(xscale="log", xlabel="iterations of a step")
    ax[1].legend()
    ax[0].invert_yaxis()
    fig.suptitle(title)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main() -> None:
    run("environments", __doc__, plan, measure, picture, full=full)


if __name__ == "__main__":
    main()
