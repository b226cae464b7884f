"""Which steps are small enough: ten seconds of chains and robots at every step size of a ladder, float64.

    python benchmarks/stability.py [--quick] [--name stability] [--out DIR]

Chains of 10, 40 and 100 links (universal joints) start straight, horizontal and at rest; gymnasium's ant and humanoid
and the quadruped A1 fall on the ground without control, their joints moving at random, up to about 1 rad/s. A row's
`level`: 0 fails (not finite, or a step failed), 1 reaches the end, finite and without a failed step, 2 besides gains at
most 10 % of energy, 3 keeps it within 10 %, 4 within 1 %; none, where the time allowed did not suffice to tell.

Energy is MuJoCo C's of (q, v) at about 200 moments, and the rule is in each row. Chains: |E − E0| ≤ 1 % or 10 % of
m g L / 2. Robots lose energy as they should, so only E − E0 counts, by m g times the height of the centre of mass at
the start. Springs of contacts and limits are not counted. MuJoCo's robots also touch themselves, the library's only
the ground. Energy does not tell who sinks into the ground: `lowest_m` is the lowest place of the trunk. "substep"
makes a step that fails again in parts; the others stop there.

Two runs share the cores, from the largest step down; one that would take longer than PATIENCE (100 links: three times
that) by the last one's pace is not begun. `largest` is the largest step of each level, `all_smaller` that up to which
all that were tried have it.
Needs gymnasium, pin, example-robot-data; MJX and Brax (ant only) need mujoco-mjx and brax.
"""

import functools
import pathlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import systems
from common import compile_sums, digits, run
from engines import SAMPLES, Mujoco, strides, worker_of
from remotes import Remote
from systems import System

LADDER = (0.0005, 0.001, 0.002, 0.0025, 0.004, 0.005, 0.008, 0.01, 0.016, 0.02, 0.032, 0.05, 0.064, 0.1, 0.128)  # s
SPAN, COMPILING = 10.0, 200.0  # s
PATIENCE, OF_LONG_CHAINS = 5.0, 15.0  # s for a run
LEVELS = {1: "finite", 2: "gain 10 %", 3: "10 %", 4: "1 %"}
OURS = (
    "radau1",
    "radau1 substep",
    "radau2",
    "radau2 substep",
    "dirk2",
    "dirk4",
    "legendre2",
    "newton_euler semi_implicit_euler",
    "newton_euler rk4",
)
MUJOCO = tuple(f"mujoco {m}" for m in ("Euler", "implicitfast", "implicit", "discrete", "RK4"))
IN_JAX = ("mjx Euler", "brax Euler", "jaxsim SemiImplicitEuler", "jaxsim RungeKutta4")
SAME = (
    "not run: the integrator of mujoco Euler (RungeKutta4: of mujoco RK4), only slower; a chain of 40 links did not "
    "compile in MJX within 240 s"
)
SYSTEMS: dict[str, Callable[[], System]] = {f"chain:{n}": functools.partial(systems.chain, n) for n in (2, 10, 40, 100)}
SYSTEMS |= {name: functools.partial(systems.robot, name) for name in ("ant", "humanoid", "a1")}


def energy_errors(system: System, energies: np.ndarray, first: float) -> dict:
    """The largest gain, and the error by the rule of the system; NaN where a state is not finite."""
    change = (energies - first) / system.scale
    gain = float(np.max(change))
    return {"gain": gain, "energy_error": float(np.max(np.abs(change))) if system.links else gain}


def level(found: dict, gain: float, energy_error: float) -> int | None:
    """0 to 4, see above; None where it cannot be told."""
    if found.get("failed_steps", 0) or not np.isfinite(energy_error):
        return 0
    if not found["finished"]:
        return None
    return 4 if energy_error <= 0.01 else 3 if energy_error <= 0.1 else 2 if gain <= 0.1 else 1


def climb(remote: Remote, system: System, judge: Mujoco, first: float, ladder: tuple[float, ...]) -> list[dict]:
    """One engine at all step sizes, the largest first."""
    rule = "|E - E0| / (m g L / 2)" if system.links else "(E - E0) / (m g h)"
    common = {"system": system.name, "engine": remote.name, "rule": rule}
    patience = OF_LONG_CHAINS if system.links >= 100 else PATIENCE
    remote.ask("compile", 1, 0.001)
    made, rows, pace = remote.answer(COMPILING), [], 0.0  # pace: s a step
    for dt in sorted(ladder, reverse=True):
        if pace * SPAN / dt > patience:
            rows.append(common | {"dt": dt, "level": None})
            continue
        remote.ask("path", system.q, system.v, dt, SPAN, SAMPLES, patience)
        began, found = time.perf_counter(), remote.answer()
        if remote.failure:
            return [*rows, common | {"failure": remote.failure}]
        s, steps = time.perf_counter() - began, len(found["q"]) * strides(dt, SPAN, SAMPLES)[1]
        errors = energy_errors(system, judge.energies(found["q"], found["v"]), first)
        row = common | {"dt": dt, "level": level(found, **errors), "finished": found["finished"], "s": round(s, 3)}
        rows.append(row | {"failed_steps": found.get("failed_steps", 0)} | {k: digits(x) for k, x in errors.items()})
        if not system.links:
            rows[-1]["lowest_m"] = digits(found["q"][:, 2].min())
        pace = s / max(steps, 1) if row["level"] != 0 else pace  # a failed run is quick
    return [common | {"largest": largest(rows), "all_smaller": up_to(rows)} | made, *rows]


def largest(rows: list[dict]) -> dict:
    """The largest step size that has each level, or none."""
    return {name: max((r["dt"] for r in rows if (r["level"] or 0) >= k), default=None) for k, name in LEVELS.items()}


def up_to(rows: list[dict]) -> dict:
    """The largest step size up to which all that could be told have each level, or none."""
    known = [r for r in rows if r["level"] is not None]
    bad = {k: min((r["dt"] for r in known if r["level"] < k), default=np.inf) for k in LEVELS}
    return {name: max((r["dt"] for r in known if r["dt"] < bad[k]), default=None) for k, name in LEVELS.items()}


def measure(name: str, engines: tuple[str, ...], ladder: tuple[float, ...]) -> list[dict]:
    try:
        system = SYSTEMS[name]()
    except (ImportError, OSError) as e:
        return [{"system": name, "failure": f"{type(e).__name__}: {e}"}]

    def one(engine: str) -> list[dict]:
        judge, remote = Mujoco("mujoco RK4", system), Remote(worker_of(engine), engine, system, threads=1)
        found = climb(remote, system, judge, judge.energies(system.q[None], system.v[None])[0], ladder)
        remote.stop()
        return found

    with ThreadPoolExecutor(2) as pool:
        rows = [row for found in pool.map(one, engines) for row in found]
    why = SAME if system.links else "not run: of the robots only with the ant"
    left = [e for e in IN_JAX if e not in engines] if name != "chain:2" else []
    return rows + [{"system": name, "engine": e, "failure": why} for e in left]


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(functools.partial(measure, "chain:2", ("radau1", "mujoco RK4"), LADDER[-4:]),)]
    names = [name for name in SYSTEMS if name != "chain:2"]
    return [(functools.partial(measure, n, OURS + MUJOCO + IN_JAX[: 2 * (n == "ant")], LADDER),) for n in names]


MARKS = {  # level -> label and look
    4: ("energy within 1 %", {"marker": "o", "s": 42, "color": "black"}),
    3: ("within 10 %", {"marker": "o", "s": 42, "color": "0.65", "edgecolors": "black", "linewidths": 0.6}),
    2: ("gains at most 10 %", {"marker": "o", "s": 42, "color": "white", "edgecolors": "black", "linewidths": 0.6}),
    1: ("gains more", {"marker": "^", "s": 30, "color": "white", "edgecolors": "black", "linewidths": 0.6}),
    0: ("fails, or not finite", {"marker": "x", "s": 22, "color": "black", "linewidths": 0.8}),
    None: ("not run, or too slow to tell", {"marker": ".", "s": 4, "color": "0.4"}),
}


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    """A panel a system, a line an engine, a mark a step size."""
    import matplotlib.pyplot as plt

    rows = [r for r in rows if "dt" in r]
    names, sizes = list(dict.fromkeys(r["system"] for r in rows)), sorted({r["dt"] for r in rows})
    across = min(3, len(names))
    down = -(-len(names) // across)
    most = len({r["engine"] for r in rows})
    figure, axes = plt.subplots(
        down, across, figsize=(3.4 + 4.6 * across, 1.4 + (0.6 + 0.24 * most) * down), squeeze=False
    )
    for axis, name in zip(axes.flat, names):
        own = [r for r in rows if r["system"] == name]
        engines = list(dict.fromkeys(r["engine"] for r in own))[::-1]
        for k, (label, look) in MARKS.items():
            here = [(sizes.index(r["dt"]), engines.index(r["engine"])) for r in own if r["level"] == k]
            axis.scatter(*zip(*here) if here else ([], []), label=label, **look)
        axis.set_yticks(range(len(engines)), [e.replace("_", " ") for e in engines], fontsize=8)
        axis.set_xticks(range(len(sizes)), [f"{1e3 * dt:g}" for dt in sizes], fontsize=7)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("dt, ms", fontsize=8)
    for axis in axes.flat[len(names) :]:
        axis.remove()
    figure.suptitle(title, fontsize=9)
    handles = axes.flat[0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncols=2 * len(names[:3]), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    sys.setrecursionlimit(10000)
    compile_sums()
    more = {"span_s": SPAN, "patience_s": [PATIENCE, OF_LONG_CHAINS], "dtype": "float64"}
    run("stability", __doc__, plan, lambda case: case(), picture, **more)


if __name__ == "__main__":
    main()
