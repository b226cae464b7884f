"""What is learnt in how long: the trainers of `examples`, with their curves.

    python benchmarks/training.py [--quick] [--only TEXT] [--name training] [--out DIR]

`paper_swimmer`: CMA-ES (examples/train_swimmer_cma.py, the package cma), the paper's 2 million steps. The others: PPO
or a policy gradient (examples/ppo.py), `repeat` steps of the simulation for each action; or the same PPO `in`
gymnasium's own environment, MuJoCo. A row is a run with one seed; its `curve` has a point an iteration, times are
without compiling, in one thread. `failed`: steps of the simulation that had no certificate, `certified` the share of
the others; `judged` is the policy without noise, from fresh starts, `in_small_steps` the same with five steps of the
simulation for each action, `in_mujoco` in MuJoCo C, the same task and file (in_mujoco.py), `in_mujoco_finer` there in
steps FINER times as small as the file's: what it owes to MuJoCo's own large steps. The machine's load is in
`environment`; CPU seconds grow with it too, for two cores share their caches.

A run of PPO keeps what it has learnt in OUT/TASK_SEED_....npz (without --out in benchmarks/runs) every 10 updates
and goes on from there.
"""

import dataclasses
import functools
import importlib
import importlib.util
import json
import os
import pathlib
import re
import sys
import time
from typing import Any, NamedTuple

import common

common.one_thread()

import jax  # noqa: E402  after the word about threads
import numpy as np  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))


FINER = 16  # times as many steps of MuJoCo's as its file asks for

# what must see the same here and there: no contact forces, which are of another law
MORE: dict[str, dict] = {"ant": {"contact_forces": False}}
GYMNASIUM: dict[str, tuple[str, dict]] = {
    "half_cheetah": ("HalfCheetah-v5", {}),
    "hopper": ("Hopper-v5", {}),
    "walker2d": ("Walker2d-v5", {}),
    "ant": ("Ant-v5", {"include_cfrc_ext_in_observation": False}),
}
FILES = {"walker2d": "walker2d_v5"}
POINTS = 40  # of a curve that is written
PACE = 0.6  # m/s, forward, what the quadruped is told


def task_of(name: str, **law) -> Any:
    """In single precision; law: the constraints of its file."""
    pbad: Any = importlib.import_module("pbad_jax")
    more = {"dtype": jax.numpy.float32} | law
    if name != "barkour":
        return pbad.envs.make(name, **more, **MORE.get(name, {})).task
    text, folder = level_barkour()
    model = pbad.load(text, package_dirs=(folder,), **more)
    task = pbad.envs.make("quadruped", model=model, scale=0.5).task

    def reward(m):
        total, terms = task.reward(m)
        return total, terms | {"reward_forward": along_command(m)}

    return dataclasses.replace(task, reward=reward, goal=lambda key: jax.numpy.array([PACE, 0.0, 0.0], model.dtype))


def mujoco_file(name: str) -> tuple[str, dict[str, bytes]] | None:
    """Text and meshes of the file whose robot learns."""
    if name == "barkour":
        text, folder = level_barkour()
        return text, {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    if name not in GYMNASIUM or importlib.util.find_spec("gymnasium") is None:
        return None
    environments: Any = importlib.import_module("environments")
    return environments.xml(FILES.get(name, name)).read_text(), {}


def level_barkour() -> tuple[str, pathlib.Path]:
    """The quadruped of MuJoCo's wheel, its rough ground made level; and the folder of its meshes."""
    found = importlib.util.find_spec("mujoco")
    assert found is not None and found.submodule_search_locations, "pip install mujoco-mjx"
    folder = pathlib.Path(found.submodule_search_locations[0], "mjx/test_data/barkour_v0/assets")
    text = re.sub(r"<hfield[^>]*/>", "", (folder / "barkour_v0_mjx.xml").read_text())
    level = '<geom name="floor" type="plane" size="0 0 1" contype="1" conaffinity="1" friction="0.8"/>'
    return re.sub(r"<geom[^>]*hfield_floor[^>]*/>", level, text), folder


def along_command(m: Any) -> jax.Array:
    """m/s of the torso where the command points, which no reward is of."""
    pbad: Any = importlib.import_module("pbad_jax")
    R = pbad.forward_kinematics(m.model, m.sim.q).rotation[0]
    way = m.goal[:2] / jax.numpy.sqrt(jax.numpy.sum(m.goal[:2] ** 2))
    return (R.T @ m.sim.v[:3])[:2] @ way


def rounded(row: dict) -> dict:
    return {k: common.digits(x, 4) if isinstance(x, float) else x for k, x in row.items()}


def swimmer(seed: int, iterations: int, steps: int) -> dict:
    if importlib.util.find_spec("cma") is None:
        return {"task": "paper_swimmer", "trainer": "CMA-ES", "seed": seed, "missing": "cma is not installed"}
    trainer: Any = importlib.import_module("train_swimmer_cma")
    curve, best = trainer.train(seed, iterations, steps)
    last = curve[-1]
    return {
        "task": "paper_swimmer", "trainer": "CMA-ES", "seed": seed, "precision": "float32",
        "env_steps": last["env_steps"],
        "best_m_s": common.digits(max(r["best_m"] for r in curve) / (0.05 * steps)),
        "failed": sum(r["failed"] for r in curve), "cpu_s": common.digits(last["cpu_s"]),
        "wall_s": common.digits(last["wall_s"]), "best": [common.digits(x, 6) for x in best],
        "curve": thinned(curve),
    }  # fmt: skip


class Run(NamedTuple):
    """A training by `examples/ppo.py`. place: where its steps are made, "here" or in "MuJoCo"."""

    task: str
    seed: int
    steps: int
    lanes: int = 128
    repeat: int = 1
    trainer: str = "PPO"  # or "policy gradient"
    place: str = "here"
    constraints: str = "spring"  # or "MuJoCo", see `load`
    scheme: str | None = None  # of the steps, default the task's

    @property
    def file(self) -> str:
        words = [self.task, self.seed, self.repeat]
        usual = self._field_defaults
        words += [x for k in ("trainer", "place", "constraints", "scheme") if (x := getattr(self, k)) != usual[k]]
        return "_".join(map(str, words)).replace(" ", "_") + ".npz"


def learnt(run: Run, folder: pathlib.Path) -> dict:
    """The row of a run, which goes on from what its file has kept."""
    trainer: Any = importlib.import_module("ppo")
    more = trainer.POLICY_GRADIENT if run.trainer == "policy gradient" else {}
    s = trainer.Settings(lanes=run.lanes, repeat=run.repeat, **more)
    law = {} if run.constraints == "spring" else {"constraints": run.constraints}
    env = trainer.environment(task_of(run.task, **law), s, run.scheme)
    key, size = jax.random.key(run.seed), run.lanes * s.length
    file, learner, curve = folder / run.file, trainer.begun(env, s, run.seed), []
    lanes = theirs(run, s.time_limit) if run.place == "MuJoCo" else None
    if file.exists():
        learner, curve = kept(file, learner)
    updates = max(2, round(run.steps / size))
    spent = curve[-1] if curve else {"cpu_s": 0.0, "wall_s": 0.0}
    cpu = wall = 0.0
    for k in range(len(curve), updates):
        again = jax.random.fold_in(key, k)
        update = functools.partial(trainer.update, env) if lanes is None else functools.partial(lanes.update, trainer)
        learner, row = update(s, learner, again)
        if not cpu:  # the first one compiled
            cpu, wall = time.process_time() - spent["cpu_s"], time.perf_counter() - spent["wall_s"]
        row |= {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        curve.append({"env_steps": (k + 1) * size} | row)
        if (k + 1) % 10 == 0 or k + 1 == updates:
            keep(file, learner, curve)
        print(k + 1, rounded(curve[-1]), flush=True)
    return told(run, curve) | {
        "judged": rounded(trainer.judged(env, learner.p, s, max(1, s.time_limit // s.length))),
        "in_small_steps": in_small_steps(trainer, env, learner.p, s) if run.repeat == 1 else None,
        "in_mujoco": in_mujoco(trainer, run.task, env.task, learner.p, s.time_limit),
        "in_mujoco_finer": in_mujoco(trainer, run.task, env.task, learner.p, s.time_limit, FINER),
        "curve": thinned(curve),
    }


def thinned(curve: list[dict]) -> list[dict]:
    """At most POINTS of its points, evenly, and the last one: as many as a figure shows."""
    every = -(-len(curve) // POINTS)
    return [rounded(r) for r in curve[::-1][::every][::-1]]


def told(run: Run, curve: list[dict]) -> dict:
    """What a training took and what became of its steps."""
    taken, last = curve[-1]["env_steps"], curve[-1]
    found = {
        "task": run.task, "trainer": run.trainer, "in": run.place, "seed": run.seed, "precision": "float32",
        "lanes": run.lanes, "repeat": run.repeat, "constraints": run.constraints, "scheme": run.scheme,
        "env_steps": taken,
        "cpu_s": common.digits(last["cpu_s"]), "wall_s": common.digits(last["wall_s"]),
    }  # fmt: skip
    if run.place != "here":
        return found
    failed = sum(r["failed"] for r in curve)
    certified = 1 - failed / (taken * run.repeat)
    return found | {"failed": failed, "certified": certified, "divided": sum(r["divided"] for r in curve)}


def theirs(run: Run, time_limit: int) -> Any:
    """Lanes of gymnasium's environment."""
    lanes: Any = importlib.import_module("mujoco_lanes")
    name, more = GYMNASIUM[run.task]
    return lanes.Lanes(name, more, run.lanes, time_limit, run.seed)


def in_small_steps(trainer: Any, env: Any, p: dict, s: Any, parts: int = 5, lanes: int = 16) -> dict:
    """The policy without noise where every control step is made in parts: how much it owes to large steps."""
    pbad: Any = importlib.import_module("pbad_jax")
    fine = pbad.envs.wrap(pbad.envs.make(env.task, dt=env.dt / parts, scheme=env.task.scheme), repeat=parts)
    begun = jax.jit(jax.vmap(fine.reset))(jax.random.split(jax.random.key(2000), lanes))
    state, rows = pbad.envs.unroll(fine, trainer.policy, p | {"loud": jax.numpy.float32(0.0)}, begun, s.time_limit)
    over = np.asarray(rows.terminated | rows.truncated)
    on = np.cumsum(over, axis=1) - over == 0  # until an episode is over

    def mean(x) -> float:
        """Of a step of the simulation, whose rewards a control step sums up."""
        return float(np.mean(np.sum(on * np.asarray(x), axis=1) / np.sum(on, axis=1))) / parts

    speed = rows.info.get("reward_forward", rows.reward)
    said = {"m_s": mean(speed), "reward": mean(rows.reward), "steps": float(on.sum(1).mean())}
    fell, failed = float(np.mean(np.any(np.asarray(rows.terminated), axis=1))), int(state.metrics.failed.sum())
    return rounded(said) | {"fell": fell, "failed": failed, "parts": parts}


def in_mujoco(trainer: Any, name: str, task: Any, p: dict, steps: int, finer: int = 1) -> dict | None:
    """The policy without noise in MuJoCo C, in steps `finer` times as small as the file's."""
    file = mujoco_file(name)
    if file is None:
        return None
    mujoco: Any = importlib.import_module("mujoco")
    judge: Any = importlib.import_module("in_mujoco")
    act = lambda obs: trainer.policy(p | {"loud": 0.0}, obs, jax.random.key(0))[0]  # noqa: E731
    model = mujoco.MjModel.from_xml_string(*file)
    return rounded(judge.judged(task, model, act, steps, finer))


def is_key(x: Any) -> bool:
    return jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)


def keep(file: pathlib.Path, learner: Any, curve: list[dict]) -> None:
    leaves = [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in jax.tree.leaves(learner)]
    part = file.with_suffix(".part.npz")
    np.savez(part, *leaves, curve=json.dumps(curve))
    os.replace(part, file)  # whole, or not at all


def kept(file: pathlib.Path, like: Any) -> tuple[Any, list[dict]]:
    leaves, tree = jax.tree.flatten(like)
    with np.load(file) as had:
        found = [had[f"arr_{i}"] for i in range(len(leaves))]
        curve = json.loads(str(had["curve"]))
    new = [jax.random.wrap_key_data(x) if is_key(y) else jax.numpy.asarray(x) for x, y in zip(found, leaves)]
    return jax.tree.unflatten(tree, new), curve


def measure(task: str, seed: int, steps: int, size: int, *more: Any) -> dict:
    jax.config.update("jax_enable_x64", False)
    if task == "paper_swimmer":
        return swimmer(seed, steps, size)
    out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else common.RESULTS.parent / "runs")
    out.mkdir(parents=True, exist_ok=True)
    return learnt(Run(task, seed, steps, size, *more), out)


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("paper_swimmer", 0, 2, 20), ("pendulum", 0, 256, 4)]
    runs = [
        ("paper_swimmer", 100, 1000),
        ("spider", 400_000, 128),
        ("spider", 500_000, 128, 1, "policy gradient"),
        ("half_cheetah", 400_000, 128),
        ("half_cheetah", 400_000, 128, 5),
        ("half_cheetah", 400_000, 128, 1, "PPO", "MuJoCo"),
        ("ant", 500_000, 128),
        ("ant", 500_000, 128, 5),
        ("ant", 500_000, 128, 1, "PPO", "MuJoCo"),
        ("half_cheetah", 300_000, 128, 1, "PPO", "here", "MuJoCo", "radau2"),
        ("half_cheetah", 250_000, 128, 2, "PPO", "here", "MuJoCo", "radau2"),
        ("ant", 290_000, 128, 5, "PPO", "here", "MuJoCo", "radau1"),
        ("barkour", 400_000, 128, 2, "PPO", "here", "MuJoCo", "radau1"),
    ]
    return [(task, seed, *size) for task, *size in runs for seed in range(3)]


def named(r: dict) -> str:
    """What a curve is of."""
    parts = f", {r['repeat']} steps an action" if r.get("repeat", 1) > 1 else ""
    place = ", in MuJoCo" if r.get("in") == "MuJoCo" else ""
    place += ", MuJoCo's constraints" if r.get("constraints") == "MuJoCo" else ""
    return f"{r['trainer']}, seed {r['seed']}{parts}{place}, {r['cpu_s']:.0f} s of CPU"


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    rows = [r for r in rows if "curve" in r]
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    fig, axes = plt.subplots(1, len(tasks), figsize=(5 * len(tasks), 3.5), squeeze=False)
    for ax, task in zip(axes[0], tasks):
        for r in (r for r in rows if r["task"] == task):
            x = [p["env_steps"] / 1e6 for p in r["curve"]]
            figure = "median_m" if "median_m" in r["curve"][0] else "m_s"
            ax.plot(x, [p[figure] for p in r["curve"]], label=named(r))
            ylabel = "m, median of an iteration" if figure == "median_m" else "m/s, with noise"
            ax.set(title=task, xlabel="million steps", ylabel=ylabel)
        ax.legend()
    fig.suptitle(title, fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main() -> None:
    common.run("training", __doc__, plan, measure, picture, threads="1")


if __name__ == "__main__":
    main()
