"""Simulated seconds per second: batches of chains and ants, beside MuJoCo C, MJX, Brax and jaxsim.

    python benchmarks/throughput.py [--quick | --full] [--name throughput] [--out DIR]

The chain of 10 links (universal joints, 20 degrees of freedom), float64, planar (straight, horizontal, at rest) and in
three dimensions (with a small sideways swing). Every engine runs at the largest step size of its ladder up to which
every one keeps the energy of 10 s `within` 10 % of m g L / 2, one lane also at that for 1 %; MuJoCo C computes the
energies of all from (q, v). One lane starts there, and has one thread of JAX; with more lanes, and all cores, they
start from states that MuJoCo C with RK4, 0.0005 s, passes through in these 10 s, the same for all engines, so that
gentle and whipping moments are mixed.

The ant of gymnasium falls from random poses, no control: no energy to compare by, so every engine runs at the file's
0.01 s and the library at 0.05 s as well; rows say whether all stayed finite.

Engines run in processes of their own; while one is timed the others wait, repeats go round. XLA compiles all engines'
sums (`common.compile_sums`). Rivals: pip install mujoco-mjx brax jaxsim gymnasium.
"""

import functools
import importlib.util
import pathlib
import sys

import numpy as np
import systems
from common import compile_sums, digits, run
from engines import SAMPLES, Mujoco, worker_of
from remotes import Remote, compile_all
from systems import System

LINKS, SPAN, WINDOW = 10, 10.0, 1.0
WITHIN = (0.1, 0.01)
LANES_SECONDS = 256.0  # of motion, of all lanes together
LADDER = (0.000125, 0.00025, 0.0005, 0.001, 0.002, 0.0025, 0.004, 0.005, 0.008, 0.01, 0.016)  # s
LADDER += (0.02, 0.032, 0.05, 0.064, 0.1, 0.128)
REPEATS, COMPILING = 3, 100.0  # s for one compilation
OURS = ("radau1", "radau2", "radau3", "dirk4")
BASELINE = ("newton_euler rk4", "newton_euler semi_implicit_euler")
MUJOCO = ("mujoco Euler", "mujoco RK4")
IN_JAX = ("mjx Euler", "brax Euler", "jaxsim SemiImplicitEuler", "jaxsim RungeKutta4")
LOOKS: dict[str, tuple[str, str]] = dict.fromkeys(OURS, ("black", "-"))
LOOKS |= dict.fromkeys(BASELINE, ("tab:green", "-."))
LOOKS |= dict.fromkeys(MUJOCO, ("tab:blue", "--")) | dict.fromkeys(IN_JAX, ("tab:gray", ":"))
WITHOUT_MJX = OURS + BASELINE + MUJOCO + IN_JAX[1:]  # MJX takes a second a step with ten links


def system_of(case: str) -> System:
    return systems.robot("ant") if case == "ant" else systems.chain(LINKS, 0.2 if case == "3d" else 0.0)


def mixed(case: str, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts (lanes,nq), (lanes,nv), the same for all engines."""
    rng, system = np.random.default_rng(0), system_of(case)
    exact = Mujoco("mujoco RK4", system)
    if case == "ant":
        q = np.tile(exact.model.qpos0, (lanes, 1))
        q[:, 2] += rng.uniform(0, 0.5, lanes)
        q[:, 7:] += 0.3 * rng.normal(size=(lanes, q.shape[1] - 7))
        return q, np.zeros((lanes, exact.model.nv))
    if lanes == 1:
        return system.q[None], system.v[None]
    paths, q = [], system.q.copy()
    for _ in range(16):
        q[0] = np.pi / 2 + 0.05 * rng.normal()
        paths.append(exact.path(q, system.v, 0.0005, SPAN))
    pick = rng.permutation(16 * SAMPLES)[:lanes]
    return np.concatenate([p["q"] for p in paths])[pick], np.concatenate([p["v"] for p in paths])[pick]


def energy_errors(remote: Remote, case: str, judge: Mujoco, span: float) -> list[dict]:
    """Of a run, up the ladder until one is too large."""
    system = system_of(case)
    q, v = system.q, system.v
    first, seen = judge.energies(q[None], v[None])[0], []
    for dt in LADDER[2 if remote.name in OURS else 0 :]:  # the finest for Euler methods
        remote.ask("path", q, v, dt, span)
        found = remote.answer()
        if remote.failure:
            break
        error = float(np.max(np.abs(judge.energies(found["q"], found["v"]) - first))) / system.scale
        seen.append({"dt": dt, "error": digits(error), "failed_steps": found.get("failed_steps", 0)})
        if not error <= max(WITHIN) or seen[-1]["failed_steps"]:  # NaN is too large
            break
    return seen


@functools.cache
def ladder_of(case: str, name: str, span: float) -> list[dict]:
    """The energy errors of an engine. A rival in JAX has those of the same integrator of MuJoCo C."""
    if name in IN_JAX:
        return ladder_of(case, "mujoco RK4" if "R" in name else "mujoco Euler", span)
    system = system_of(case)
    remote = Remote(worker_of(name), name, system, threads=1)
    seen = energy_errors(remote, case, Mujoco("mujoco RK4", system), span)
    remote.stop()
    return seen


def step_size(case: str, name: str, within: float, span: float) -> dict:
    """What to run an engine at, and on what grounds; None where no step size will do."""
    if case == "ant":
        return {"dt": 0.01}
    seen, dt = ladder_of(case, name, span), None
    for e in seen:
        if e["error"] is None or e["error"] > within or e["failed_steps"]:
            break
        dt = e["dt"]
    return {"within": within, "dt": dt} | ({} if name in IN_JAX else {"energy": seen})


def measure(
    case: str,
    names: tuple[str, ...],
    lanes: tuple[int, ...],
    window: float,
    within: float = 0.1,
    span: float = SPAN,
) -> list[dict]:
    needed = ("mujoco", "gymnasium") if case == "ant" else ("mujoco",)
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:  # without which nobody has a start
        return [{"case": case, "engine": name, "failure": f"{missing[0]} is not installed"} for name in names]
    threads = 1 if lanes == (1,) else None
    remotes = [Remote(worker_of(n), n, system_of(case), threads=threads) for n in names]
    sizes = {name: step_size(case, name, within, span) for name in names}
    rows = []
    for n in lanes:
        q, v = mixed(case, n)
        runs = [(r, sizes[r.name]["dt"]) for r in remotes]
        if case == "ant":
            runs += [(r, 0.05) for r in remotes if r.name in OURS]
        made = [{"case": case, "engine": r.name, "lanes": n, **sizes[r.name], "dt": dt} for r, dt in runs]
        live = [(r, dt, row, []) for (r, dt), row in zip(runs, made) if dt is not None]
        wanted = {r.name: r for r, *_ in live}
        compiled = dict(zip(wanted, compile_all(list(wanted.values()), n, 0.001, COMPILING)))
        for remote, _, row, _ in live:
            row |= compiled[remote.name]
        for _ in range(REPEATS + 1):  # the first compiles, or warms up
            for remote, dt, row, seen in live:
                remote.ask("time", q, v, dt, span if n == 1 and case != "ant" else min(window, LANES_SECONDS / n))
                found = remote.answer(COMPILING)
                seen.append(found)
                row |= {} if "failure" not in found else found
        for _, _, row, seen in live:
            if "failure" not in row:
                best = min(seen[1:], key=lambda s: s["s"])
                row |= {k: x for k, x in best.items() if k not in ("s", "end")} | {"s": round(best["s"], 4)}
                row["simulated_s_per_s"] = digits(best["simulated_s"] / best["s"])
        for row in made:
            if row["dt"] is None:
                row["failure"] = f"no step size of the ladder keeps the energy within {within:.0%}"
        rows += made
        print(
            *(f"{r['engine']:26} {r['lanes']:5} {r.get('simulated_s_per_s', r.get('failure'))}" for r in made), sep="\n"
        )
        remotes = [r if not r.failure else stopped(r) for r in remotes]
    for remote in remotes:
        remote.stop()
    return rows


def stopped(remote: Remote) -> Remote:
    remote.failure = f"not tried: with fewer lanes {remote.failure}".replace("not tried: with fewer lanes not", "not")
    return remote


def plan(quick: bool) -> list[tuple]:
    """The usual plan is one lane; `full` has batches, also in three dimensions, and the ant, with MJX."""
    if quick:
        return [
            (functools.partial(measure, "planar", (BASELINE[1], "mujoco Euler", "brax Euler"), (1,), 0.1, 0.1, 0.1),)
        ]
    return [(case,) for case in alone("planar")]


def alone(case: str) -> list[functools.partial]:
    """One lane, within 10 and 1 %."""
    return [functools.partial(measure, case, WITHOUT_MJX, (1,), WINDOW, within) for within in WITHIN]


def full() -> list[tuple]:
    cases = [*alone("planar"), functools.partial(measure, "planar", WITHOUT_MJX, (16, 128, 1024), WINDOW)]
    cases += [*alone("3d"), functools.partial(measure, "3d", WITHOUT_MJX, (16, 128), WINDOW)]
    ant = ("radau1", "radau2", *MUJOCO, "mjx Euler", "brax Euler")
    cases += [functools.partial(measure, "ant", ant, lanes, WINDOW) for lanes in ((1,), (16, 128))]
    return [(case,) for case in cases]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    rows = [r for r in rows if r.get("within", 0.1) == 0.1]
    cases = list(dict.fromkeys(r["case"] for r in rows))
    figure, axes = plt.subplots(1, len(cases), figsize=(5 * len(cases), 6), squeeze=False)
    marks = dict(zip(OURS + BASELINE + MUJOCO + IN_JAX, "os^DxPvos^v<>"))
    for axis, case in zip(axes[0], cases):
        for name, mark in marks.items():
            for fine in (True, False):
                own = [r for r in rows if r["case"] == case and r["engine"] == name and "simulated_s_per_s" in r]
                own = [r for r in own if case != "ant" or (r["dt"] == 0.01) == fine]
                if not own or (case != "ant" and not fine):
                    continue
                color, line = LOOKS[name]
                how = {"color": color, "ls": line, "marker": mark, "ms": 5, "lw": 1, "mfc": color if fine else "white"}
                label = f"{name}, {own[0]['dt']} s"
                axis.plot([r["lanes"] for r in own], [r["simulated_s_per_s"] for r in own], label=label, **how)
        axis.set(xscale="log", yscale="log", xlabel="lanes", title=case)
        axis.grid(True, which="both", alpha=0.2)
        if axis.lines:
            axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    axes[0, 0].set(ylabel="simulated seconds per second")
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    sys.setrecursionlimit(10000)
    compile_sums()
    run("throughput", __doc__, plan, lambda case: case(), picture, full, repeats=REPEATS, dtype="float64")


if __name__ == "__main__":
    main()
