"""Control steps of reinforcement learning: robots on the ground under random actions, beside MuJoCo C, MJX and Brax.

    python benchmarks/environments.py [--quick | --full] [--only TEXT] [--name environments] [--out DIR]

Every lane starts near the model's standing pose; uniform random actions of the whole control range are held over a
control step, which we take in one step (on_failure="substep": in parts where need be) and MuJoCo C in as many of the
file's own steps as fit. MJX runs the same files, Brax its own environments of the same names. Everyone has one thread:
XLA's two took more CPU seconds and hardly fewer others (one-off). A lane that fails or is not finite begins anew.

Rows: control steps per CPU second and per second; iterations of a step, their mean, 99th percentile, most, and the mean
of the slowest lane of each batch step; the share of steps that failed, and that were made in parts; CPU seconds of
compiling. `penetration_mm`: the deepest at the end of a control step, its mean over steps and the 99th percentile.
`drift`: the error of one control step at the end of the run, beside the same engine with steps 16 times smaller:
the median over the lanes of the largest entry of q − q', m and rad. Iterations and shares do not depend on the machine.

Rivals: pip install mujoco-mjx brax. Spot is in the folder of the environment variable
PBAD_ROBOTS (see survey.py), A1 in example-robot-data; both stand on servos whose targets are within 0.3 rad of home.
"""

import importlib
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import digits, one_thread, run
from environment_rivals import BRAX, FINER, Engine, Rival, depths, figures
from remotes import Remote

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
    ("a1", 0.02),
    ("spot", 0.02),
)
SERVOS = {"a1": "example-robot-data/a1", "spot": "mink/boston_dynamics_spot/scene"}  # of survey.py
SWAY = 0.3  # rad, of position servos about their home
A1 = {"hip": 0.0, "thigh": 0.8, "calf": -1.6, "height": 0.28, "kp": 60.0, "kv": 2.0}  # a pose, rad, m; gains, N m
STANDS = {"ant": (2, 0.6), "humanoid": (2, 1.3)}  # coordinate of the height, m
LIMIT, PATIENCE = 60.0, 400.0  # s of a case; of a rival with all it compiles
PIPELINES = ("generalized", "spring", "positional")


def xml(name: str) -> pathlib.Path | None:
    """The robot's file; None: it is not here, or has none."""
    if name in SERVOS:
        from survey import files

        found = files().get(SERVOS[name])
        return found.with_name("spot.xml") if found is not None and name == "spot" else found  # not the scene's mocaps
    gym: Any = importlib.import_module("gymnasium")
    path = pathlib.Path(gym.__file__).parent / "envs" / "mujoco" / "assets" / f"{name}.xml"
    return path if path.exists() else None


def robot(name: str, precision: str) -> pbad.Model:
    dtype = jnp.dtype(precision)
    if name == "spider":
        return pbad.spider(dtype=dtype)
    path = xml(name)
    if path is None:
        raise FileNotFoundError(f"{name}: set PBAD_ROBOTS, see survey.py")
    model = pbad.load(path, unsupported="warn", floating_base=path.suffix == ".urdf", dtype=dtype)[0]
    if name in SERVOS:
        model = pbad.with_forces(model, pbad.forces.contact(model))  # their files have no ground
    if name == "a1":
        legs = [j.name for j in model.topology.joints if j.type == "hinge"]
        servo = {"gain": A1["kp"], "bias": (0.0, -A1["kp"], -A1["kv"])}
        model = pbad.with_actuators(model, *(pbad.Actuator(j, name=f"{j} servo", **servo) for j in legs))
    return model


def home(model: pbad.Model, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Where a robot with servos stands, (nq,), and what holds it there, (nu,)."""
    if name != "a1":
        key = model.keyframes["home"]
        assert key.control is not None
        return np.asarray(key.q), np.asarray(key.control)
    q, u = np.array(model.q0, float), np.zeros(model.nu)
    q[2] = A1["height"]
    for j in model.topology.joints:
        if j.type == "hinge":
            q[j.q] = next(A1[part] for part in ("hip", "thigh", "calf") if part in j.name)
            u[model.topology.actuator_names.index(f"{j.name} servo")] = q[j.q]
    return q, u


def ranges(model: pbad.Model, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Of the controls, (nu,) each; ±1 where there are none."""
    if name in SERVOS:
        u = home(model, name)[1]
        return u - SWAY, u + SWAY
    for f in pbad.forces.actuators(model):
        low, high = np.asarray(f.law.control_range).T
        return np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
    raise ValueError(f"{model!r} has no actuators")


def starts(model: pbad.Model, name: str, lanes: int) -> pbad.State:
    rng = np.random.default_rng(0)
    q = np.repeat(np.asarray(home(model, name)[0] if name in SERVOS else model.q0, float)[None], lanes, 0)
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
    step = jax.vmap(pbad.make_step(pbad.Options(dt=dt, scheme=SCHEME, on_failure="substep")), (None, 0, 0, None))

    def advance(states, u, share):
        after, info = step(model, states, u, dt * share)
        failed = (info.status != 0) | ~jnp.all(jnp.isfinite(after.v), axis=-1)
        return after, {"failed": failed, "iterations": info.iterations, "parts": info.substeps > 1}

    def depth(states):
        return jax.vmap(lambda s: deepest(model, s))(states)

    engine = Engine(starts(model, name, lanes), ranges(model, name), advance, lambda s: s.q, depth, model.dtype)
    row = {"robot": name, "dt": dt, "lanes": lanes, "engine": f"pbad {SCHEME}", "precision": precision}
    return row | figures(engine, lanes, steps, LIMIT)


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
    low, high = ranges(model, name)
    deep: list[float] = []
    with rollout.Rollout(nthread=1) as engine:
        datas = [mujoco.MjData(m)]
        began, wall, taken = time.process_time(), time.perf_counter(), 0
        for _ in range(steps):
            u = rng.uniform(low, high, (lanes, 1, m.nu)).repeat(held, axis=1)
            states, _ = engine.rollout([m] * lanes, datas, state, u)
            state, taken = np.array(states[:, -1]), taken + lanes
            if time.perf_counter() - wall > LIMIT:
                break
        cpu, wall = time.process_time() - began, time.perf_counter() - wall
        u, ends = rng.uniform(low, high, (lanes, 1, m.nu)), []
        for finer in (1, FINER):
            m.opt.timestep /= finer
            states, _ = engine.rollout([m] * lanes, datas, state, u.repeat(held * finer, axis=1))
            ends.append(np.array(states[:, -1, 1 : 1 + m.nq]))
    m.opt.timestep *= FINER
    for k in range(min(lanes, 64)):
        mujoco.mj_setState(m, data, state[k], mujoco.mjtState.mjSTATE_FULLPHYSICS)
        mujoco.mj_forward(m, data)
        deep.append(max([0.0, *(-c.dist for c in data.contact)]))
    return {
        "robot": name, "dt": dt, "lanes": lanes, "engine": f"mujoco C, {held} steps of {m.opt.timestep:g} s",
        "precision": "float64", "control_steps": taken,
        "per_cpu_s": digits(taken / cpu), "per_s": digits(taken / wall),
        "drift": digits(float(np.median(np.max(np.abs(ends[0] - ends[1]), axis=1)))),
    } | depths(np.array(deep))  # fmt: skip


def rival(engine: str, name: str, dt: float, lanes: int, precision: str, steps: int) -> dict:
    begun = starts(robot(name, precision), name, lanes)
    remote = Remote(Rival, engine, precision, threads=1)
    remote.ask("measure", name, str(xml(name)), (np.asarray(begun.q), np.asarray(begun.v)), dt, lanes, steps, LIMIT)
    row = remote.answer(PATIENCE)
    remote.stop()
    named = {"robot": name, "dt": dt, "lanes": lanes, "engine": engine, "precision": precision}
    return named | row


def measure(name: str, dt: float, lanes: int, precision: str, steps: int, rivals: tuple[str, ...]) -> list[dict]:
    if name != "spider" and xml(name) is None:
        return [{"robot": name, "dt": dt, "lanes": lanes, "engine": f"pbad {SCHEME}", "precision": precision,
                 "failure": "the file is not here: set PBAD_ROBOTS, see survey.py"}]  # fmt: skip
    rows = [ours(name, dt, lanes, precision, steps)]
    if precision == "float64" and name not in ("spider", *SERVOS):
        rows.append(mujoco_c(name, dt, lanes, steps))
    return rows + [rival(engine, name, dt, lanes, precision, steps) for engine in rivals]


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("spider", 0.02, 2, "float64", 2, ("brax positional",))]
    cases: list[tuple] = [(name, dt, 64, "float64", 157, ()) for name, dt in CASES]
    cases += [("ant", 0.05, 1, "float32", 500, ()), ("ant", 0.05, 64, "float32", 157, ("mjx",))]
    cases += [("ant", 0.05, 1024, "float32", 20, rivals_of("ant")[1:])]
    return cases + [("half_cheetah", 0.05, 1024, "float32", 20, rivals_of("half_cheetah")[1:])]


def full() -> list[tuple]:
    """Rivals where lanes are 64 and more: one at a time they take longer to start than to step."""
    return [
        (name, dt, lanes, precision, {1: 500, 64: 157, 1024: 40}[lanes], rivals_of(name) if lanes > 1 else ())
        for name, dt in CASES
        for lanes in LANES
        for precision in ("float64", "float32")
    ]


def rivals_of(name: str) -> tuple[str, ...]:
    return (("mjx",) if name not in ("spider", *SERVOS) else ()) + tuple(f"brax {p}" for p in PIPELINES if name in BRAX)


COLOURS = {"pbad": "C0", "mujoco": "C1", "mjx": "C2", "brax": "C7"}


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    rows = [r for r in rows if "failure" not in r]
    kinds = [r["engine"].split(",")[0] for r in rows]
    names = [f"{r['robot']} {r['dt']:g} s, {r['lanes']} × {r['precision'][5:]} bit, {k}" for r, k in zip(rows, kinds)]
    fig, ax = plt.subplots(1, 2, figsize=(12, 0.28 * len(rows) + 1.5), sharey=True, width_ratios=(3, 2))
    at = np.arange(len(rows))
    ax[0].barh(at, [r["per_cpu_s"] for r in rows], color=[COLOURS[k.split()[0]] for k in kinds])
    ax[0].set(xscale="log", xlabel="control steps per CPU second", yticks=at, yticklabels=names)
    for figure, mark in (("iterations_mean", "o"), ("iterations_p99", "|"), ("iterations_slowest_lane", "x")):
        known = [(r[figure], y) for r, y in zip(rows, at) if figure in r]
        ax[1].plot(*zip(*known), mark, label=figure.replace("_", " "))
    ax[1].set(xscale="log", xlabel="iterations of a step")
    ax[1].set_xticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
    ax[1].xaxis.minorticks_off()
    ax[1].legend()
    ax[0].invert_yaxis()
    fig.suptitle(title)
    fig.tight_layout()
    fig.savefig(path, dpi=100)


def main() -> None:
    one_thread()
    run("environments", __doc__, plan, measure, picture, full=full)


if __name__ == "__main__":
    main()
