"""How right a control step is for its CPU time: one step, even parts, as many parts as an accuracy needs, MuJoCo C.

    python benchmarks/truth.py [--quick] [--only ROBOT] [--name truth] [--out DIR]

Every engine makes STEPS control steps under random actions, from the same 64 typical states of a robot. The first is
judged by a much finer one of the same engine: ours by radau(2) in FINE parts with all forces at the stages, MuJoCo C by
its file's integrator in steps FINER times as small. One thread, float64, lanes by iterations (`rollout_batch`).

Rows: `error`, `error_p90`: of q at the end of the first step, its largest coordinate, rad, or m over the model's length
(the norm of `info.error`), median and 90 % of the lanes; `cpu_us`: CPU time of a control step, the least of REPEATS;
`iterations` (mean, 99 %) and `parts` (mean) of a control step; `failed` lanes, which are left out. `kept`: of an
accuracy, the share of lanes whose error is at most three times what was asked. `laws`: of MuJoCo, the median and 90 %
of the distance of its fine step from ours: how far the laws of contact, friction and limits are apart.
"""

import dataclasses
import functools
import importlib
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import systems
from common import digits, one_thread, run
from environments import xml
from error import LANES, arm, distance, robot

import pbad_jax as pbad
from pbad_jax.laws import force as laws

FINE, FINER, STEPS, REPEATS, PARTS = 256, 64, 8, 3, (1, 2, 8)
ACCURACIES = (1e-2, 1e-3, 1e-4)
SCHEMES = ("radau1", "radau2")
BARKOUR = "mjx/test_data/barkour_v0/assets/barkour_v0_mjx.xml"  # in MuJoCo's wheel


def in_wheel(package: str, *path: str) -> pathlib.Path:
    found = importlib.import_module(package).__file__
    assert found is not None
    return pathlib.Path(found).parent.joinpath(*path)


def on_its_way(name: str, dt: float):
    """A robot of `envs`: model, states, controls, and MuJoCo's model of the same file or None."""
    more = {"path": str(in_wheel("mujoco", BARKOUR))} if name == "quadruped" else {}
    file = more.get("path") or xml(name)
    mujoco: Any = importlib.import_module("mujoco")
    return *robot(name, dt, **more), file and mujoco.MjModel.from_xml_path(str(file))


def reaching_arm(dt: float):
    mujoco: Any = importlib.import_module("mujoco")
    m = mujoco.MjModel.from_xml_string(systems.arm(kp=1000.0, kd=60.0).xml)
    return *arm(dt), m


ROBOTS = {  # and the time of a control step, s
    "swimmer": (on_its_way, 0.04),
    "half_cheetah": (on_its_way, 0.05),
    "ant": (on_its_way, 0.05),
    "humanoid": (on_its_way, 0.015),
    "spider": (on_its_way, 0.05),
    "quadruped": (on_its_way, 0.02),
    "arm": (lambda name, dt: reaching_arm(dt), 0.02),
}


@functools.cache
def system(name: str):
    """Model, states, the controls of STEPS steps, MuJoCo's model, and where the lanes are after the first, or NaN."""
    how, dt = ROBOTS[name]
    model, begun, control, m = how(name, dt)
    controls = jnp.stack([jnp.roll(control, k, axis=0) for k in range(STEPS)], axis=1)
    jax.clear_caches()  # programs of robots take more memory maps than Linux gives a process
    fine = dataclasses.replace(model, forces=tuple(map(laws.at_stages, model.forces)))
    options = pbad.Options(dt=dt / FINE, scheme="radau2", on_failure="substep")
    held = jnp.broadcast_to(control[:, None], (LANES, FINE, model.nu))
    path, info = pbad.rollout_batch(fine, begun, held, options=options)
    good = jnp.all(info.status == 0, axis=1)
    return model, begun, controls, m, jnp.where(good[:, None], path.q[:, -1], jnp.nan)


def even(name: str, scheme: str) -> list[dict]:
    """One step, and even parts of it."""
    dt, controls, rows = ROBOTS[name][1], system(name)[2], []
    for parts in PARTS:
        options = pbad.Options(dt=dt / parts, scheme=scheme, on_failure="substep")
        rows.append(figures(name, f"{scheme} in {parts}", options, jnp.repeat(controls, parts, axis=1)))
    return rows


def accurate(name: str, scheme: str, accuracy: float) -> dict:
    options = pbad.Options(dt=ROBOTS[name][1], scheme=scheme, accuracy=accuracy)
    return figures(name, f"{scheme} to {accuracy:g}", options, system(name)[2])


def figures(name: str, engine: str, options: pbad.Options, controls: jax.Array) -> dict:
    """Of our steps with these options."""
    # the steps, and their time
    model, begun, _, _, right = system(name)
    path, info = jax.block_until_ready(pbad.rollout_batch(model, begun, controls, options=options))
    busy = np.inf
    for _ in range(REPEATS):
        began = time.process_time()
        jax.block_until_ready(pbad.rollout_batch(model, begun, controls, options=options))
        busy = min(busy, time.process_time() - began)

    # how far the first control step is from what is right, where it went well
    parts = controls.shape[1] // STEPS
    good = np.all(np.asarray(info.status)[:, :parts] == 0, axis=1) & np.isfinite(np.asarray(right)[:, 0])
    far = distance(model, right, path.q[:, parts - 1])[good]
    iterations = np.asarray(info.iterations).reshape(-1, parts).sum(axis=1)
    row = {"robot": name, "dt": ROBOTS[name][1], "engine": engine, "error": digits(float(np.median(far)))}
    row |= {"error_p90": digits(float(np.quantile(far, 0.9))), "cpu_us": digits(1e6 * busy / (LANES * STEPS))}
    row |= {"iterations_mean": digits(iterations.mean()), "iterations_p99": digits(np.quantile(iterations, 0.99))}
    row |= {"parts": digits(float(np.mean(info.substeps)) * parts), "failed": int((~good).sum())}
    if options.accuracy is not None:
        row["kept"] = digits(float(np.mean(far <= 3 * options.accuracy)))
    return row


def mujoco_c(name: str) -> list[dict]:
    """By the file's integrator, in steps four times, once and a quarter of the file's."""
    model, begun, controls, m, right = system(name)
    if m is None:
        return []
    dt = ROBOTS[name][1]
    held = max(1, round(dt / m.opt.timestep))
    fine, _ = advanced(m, begun, controls[:, :1], dt, FINER * held)
    apart = distance(model, right, fine)[np.isfinite(np.asarray(right)[:, 0])]
    rows = []
    for steps in sorted({max(1, round(held / 4)), held, 4 * held}):
        q, cpu = advanced(m, begun, controls, dt, steps)
        far = distance(model, fine, q)
        row = {"robot": name, "dt": dt, "engine": f"MuJoCo C in {steps}", "error": digits(float(np.median(far)))}
        row |= {"error_p90": digits(float(np.quantile(far, 0.9))), "cpu_us": digits(1e6 * cpu)}
        row |= {"laws": digits(float(np.median(apart))), "laws_p90": digits(float(np.quantile(apart, 0.9)))}
        rows.append(row)
    return rows


def advanced(m, begun, controls, dt: float, steps: int):
    """q of MuJoCo's lanes after the first of some control steps, and CPU s of each: the least of REPEATS."""
    mujoco: Any = importlib.import_module("mujoco")
    rollout: Any = importlib.import_module("mujoco.rollout")
    data, states = mujoco.MjData(m), []
    for q, v in zip(np.asarray(begun.q), np.asarray(begun.v)):
        mujoco.mj_resetData(m, data)
        data.qpos[:], data.qvel[:] = q, v
        out = np.zeros(mujoco.mj_stateSize(m, mujoco.mjtState.mjSTATE_FULLPHYSICS))
        mujoco.mj_getState(m, data, out, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        states.append(out)
    u = np.asarray(controls).repeat(steps, axis=1)
    own, m.opt.timestep, busy, made = m.opt.timestep, dt / steps, np.inf, np.zeros(0)
    with rollout.Rollout(nthread=1) as engine:
        for _ in range(REPEATS):
            began = time.process_time()
            made, _ = engine.rollout([m] * LANES, [mujoco.MjData(m)], np.stack(states), u)
            busy = min(busy, time.process_time() - began)
    m.opt.timestep = own
    return jnp.asarray(made[:, steps - 1, 1 : 1 + m.nq]), busy / (LANES * controls.shape[1])


def rows(name: str, engine: str, *more) -> list[dict] | dict:
    return {"even": even, "accurate": accurate, "mujoco": mujoco_c}[engine](name, *more)


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("swimmer", "accurate", "radau2", 1e-2), ("swimmer", "mujoco")]
    cases: list[tuple] = []
    for name in ROBOTS:
        cases += [(name, "even", scheme) for scheme in SCHEMES]
        cases += [(name, "accurate", "radau2", eps) for eps in ACCURACIES]
        cases.append((name, "mujoco"))
    return cases


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    """Error over CPU time, a panel a robot."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(r["robot"] for r in rows))
    wide = min(4, len(names))
    figure, axes = plt.subplots(
        -(-len(names) // wide), wide, figsize=(3.3 * wide, 3 * -(-len(names) // wide)), squeeze=False
    )
    kinds = {"radau1 in": "C7", "radau2 in": "C0", "radau2 to": "C3", "MuJoCo C in": "C1"}
    for axis, name in zip(axes.flat, names):
        for kind, colour in kinds.items():
            own = [r for r in rows if r["robot"] == name and r["engine"].startswith(kind)]
            x, y = [r["cpu_us"] for r in own], [r["error"] for r in own]
            axis.plot(x, y, "o-", color=colour, markersize=3, linewidth=1, label=f"{kind} …")
        axis.tick_params(labelsize=7, which="both")
        axis.set(xscale="log", yscale="log", title=f"{name}, {1e3 * ROBOTS[name][1]:g} ms")
    for axis in list(axes.flat)[len(names) :]:
        axis.axis("off")
    axes[0, 0].legend(fontsize=7)
    figure.supxlabel("CPU time of a control step, µs", fontsize=10)
    figure.supylabel("error, rad or lengths", fontsize=10)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main() -> None:
    one_thread()
    run("truth", __doc__, plan, rows, picture, dtype="float64", lanes=LANES, fine=FINE, finer=FINER)


if __name__ == "__main__":
    main()
