"""Error over wall time: position-based and explicit steps, MuJoCo C, MJX, Brax, jaxsim and Pinocchio, float64.

    python benchmarks/work_precision.py [--quick] [--name work_precision] [--out DIR]

One second of each (`systems.py`), so short that motions can be told in advance:
- chain: 10 links (20 degrees of freedom), straight and horizontal, at rest; smooth.
- arm: 7 hinges, drives of 1e4 N m/rad and 100 N m s/rad take it from 0.3 rad a joint to its pose.
- beam: 10 links, joint springs of 1e5 N m/rad with 100 N m s/rad, bent and let go.
- drop: a tilted box falls on the ground and slides.
- chain, 128 lanes: starts within 0.05 rad; the library by rollout_batch, MuJoCo C on two threads.

`error` is the largest entry of q ⊖ q_ref (rad, m) at ten moments (of a batch: of all lanes at the end),
`energy_error` the largest difference of energies, as MuJoCo C computes them, by m g L / 2 (drop: m g times the height).
The reference is DOP853 of scipy, rtol 1e-12, on MuJoCo C's accelerations; rows with `gap` say how far the looser 1e-10
is from it, and others' accelerations from MuJoCo's. Contact models differ, so in `drop` each engine is held against
itself at a quarter of its smallest step: that says how it converges, not whether it is right.

Engines run in processes of their own and wait for each other, in JAX with one thread but for the batch; repeats go
round, the least counts. A run is one call, its states are not kept (batches: as users call them); every engine halves
its steps until a run takes too long. Steps that fail are counted, and such runs are not drawn. Pinocchio's RK4 is a
loop in Python, so the calls of ABA alone are a line too. MuJoCo's springs are in its energies, its drives are not.
Rivals: pip install mujoco-mjx brax jaxsim pin scipy.
"""

import functools
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import systems
from common import compile_sums, digits, run
from engines import Mujoco, worker_of
from remotes import Remote, compile_all
from systems import System

SPAN, SAMPLES, REPEATS = 1.0, 10, 3
LADDER = tuple(0.1 / 2**k for k in range(12))  # s
LONGEST, LONGEST_BATCH, COMPILING = 0.5, 8.0, 200.0  # s for a run, s for that of a batch, s for one compilation
LANES, BATCH_LADDER = 128, tuple(0.1 / 2**k for k in (1, 3, 5, 7))
OURS = ("radau1", "radau2", "radau3", "dirk2", "dirk3", "dirk4", "legendre2", "legendre3")
BASELINE = tuple(f"newton_euler {m}" for m in ("semi_implicit_euler", "rk2", "rk4"))
MUJOCO = tuple(f"mujoco {m}" for m in ("Euler", "implicitfast", "implicit", "discrete", "RK4"))
MJX = ("mjx Euler", "mjx implicitfast")
OTHERS = ("brax Euler", "jaxsim SemiImplicitEuler", "jaxsim RungeKutta4", "pinocchio RK4")
ABA = ", calls of ABA alone"


def left_out(names: tuple[str, ...], why: str) -> dict[str, str]:
    return {name: f"not run: {why}" for name in names}


DEEP = left_out(MJX, "on a CPU XLA recomputes the kinematics of ten links, about a second a step")
CHAIN_ONLY = left_out(OTHERS[1:3], "jaxsim is given the chain without springs only")
NO_CONTACT = left_out(OTHERS[3:], "the loop has no contact")
EVERY = OURS + BASELINE + MUJOCO + MJX + OTHERS
CASES: dict[str, tuple[Callable[[], System], tuple[str, ...], dict[str, str]]] = {
    "chain": (functools.partial(systems.chain, 10), EVERY, DEEP),
    "arm": (systems.arm, EVERY, CHAIN_ONLY),
    "beam": (systems.beam, EVERY, DEEP | CHAIN_ONLY),
    "drop": (systems.drop, EVERY, CHAIN_ONLY | NO_CONTACT),
    "small": (functools.partial(systems.chain, 2), ("radau1", "mujoco RK4"), {}),
}
BATCH = ("radau1", "radau2", "dirk4", *BASELINE[::2], "mujoco Euler", "mujoco RK4", *OTHERS[:3])


def exact(judge: Mujoco, q, v, rtol: float = 1e-12) -> dict:
    """Reference states (SAMPLES,nq), (SAMPLES,nv) of a tree of hinges."""
    from scipy.integrate import solve_ivp

    n = len(v)

    def rate(_, y):
        return np.concatenate([y[n:], judge.acceleration(y[:n], y[n:])["acceleration"]])

    moments = np.linspace(0, SPAN, SAMPLES + 1)[1:]
    found = solve_ivp(rate, (0, SPAN), np.concatenate([q, v]), "DOP853", moments, rtol=rtol, atol=rtol)
    assert found.success, found.message
    return {"q": found.y[:n].T, "v": found.y[n:].T}


def checks(case: str, system: System, judge: Mujoco, remotes: list[Remote], want: dict) -> list[dict]:
    """How sure the reference is, and whether the library's and Pinocchio's accelerations there are MuJoCo's."""
    looser = exact(judge, system.q, system.v, 1e-10)
    rows = [
        {
            "case": case,
            "engine": "reference",
            "what": "states",
            "gap": digits(judge.apart(want["q"], looser["q"]).max()),
        }
    ]
    for remote in [r for r in remotes if r.name in OURS][:1] + [r for r in remotes if r.name in OTHERS[3:]]:
        gaps = []
        for q, v in zip(want["q"], want["v"]):
            remote.ask("acceleration", q, v)
            found, here = remote.answer(), judge.acceleration(q, v)["acceleration"]
            gaps.append(np.max(np.abs(found.get("acceleration", np.nan) - here)) / np.max(np.abs(here)))
        rows.append({"case": case, "engine": remote.name, "what": "accelerations", "gap": digits(max(gaps))})
    return rows


def repeated(live: list[Remote], method: str, *arguments, repeats: int, longest: float) -> dict[str, list[dict]]:
    """Answers of the engines in turn, round after round; one that takes too long is asked once."""
    seen: dict[str, list[dict]] = {r.name: [] for r in live}
    for i in range(repeats):
        for remote in live:
            if i and (remote.failure or seen[remote.name][0]["s"] > longest):
                continue
            remote.ask(method, *arguments)
            found = remote.answer()
            if "failure" not in found:
                seen[remote.name].append(found)
    return seen


def points(case: str, system: System, remotes: list[Remote], ladder: tuple[float, ...]) -> tuple[list[dict], dict]:
    """Rows of single runs without their errors, and the states of each by (engine, dt)."""
    rows, paths = [], {}
    live = [r for r in remotes if not r.failure]
    for dt in ladder:
        for remote in live:
            remote.ask("path", system.q, system.v, dt, SPAN, SAMPLES, np.inf)
            found = remote.answer()
            if "failure" not in found:
                paths[remote.name, dt] = found
        seen = repeated(live, "run", system.q, system.v, dt, SPAN, repeats=REPEATS, longest=LONGEST)
        for name in [n for n, s in seen.items() if s]:
            best = min(seen[name], key=lambda s: s["s"])
            row = {"case": case, "engine": name, "dt": dt, "s": digits(best["s"], 4), "repeats": len(seen[name])}
            rows.append(row | {"failed_steps": paths[name, dt].get("failed_steps", 0)})
            if "s_aba" in best:
                alone = min(s["s_aba"] for s in seen[name])
                rows.append(rows[-1] | {"engine": name + ABA, "s": digits(alone, 4)})
        live = [r for r in live if not r.failure and seen.get(r.name) and seen[r.name][0]["s"] < LONGEST]
    return rows, paths


def own_reference(system: System, remotes: list[Remote], paths: dict) -> dict[str, dict]:
    """Of every engine its states at a quarter of its smallest step."""
    found = {}
    for remote in [r for r in remotes if not r.failure]:
        finest = min(dt for name, dt in paths if name == remote.name)
        remote.ask("path", system.q, system.v, finest / 4, SPAN, SAMPLES, np.inf)
        found[remote.name] = remote.answer()
    return {name: states for name, states in found.items() if "failure" not in states}


def errors(judge: Mujoco, system: System, states: dict, want: dict) -> dict:
    energy = judge.energies(states["q"], states["v"]) - judge.energies(want["q"], want["v"])
    finite = bool(np.isfinite(states["q"]).all())
    apart = judge.apart(states["q"], want["q"]).max() if finite else np.nan
    return {"error": digits(apart), "energy_error": digits(np.max(np.abs(energy)) / system.scale)}


def measure(case: str, ladder: tuple[float, ...]) -> list[dict]:
    make, names, skipped = CASES[case]
    system = make()
    judge = Mujoco("mujoco RK4", system)
    remotes = [Remote(worker_of(n), n, system, threads=1) for n in names if n not in skipped]
    made = dict(zip((r.name for r in remotes), compile_all(remotes, 1, 0.001, COMPILING)))
    rows, paths = points(case, system, remotes, ladder)
    if case == "drop":
        wanted = own_reference(system, remotes, paths)
    else:
        wanted = dict.fromkeys((r.name for r in remotes), exact(judge, system.q, system.v))
        rows += checks(case, system, judge, remotes, wanted[remotes[0].name])
    for row in [r for r in rows if "dt" in r]:
        name = row["engine"].removesuffix(ABA)
        if name in wanted:
            row |= errors(judge, system, paths[name, row["dt"]], wanted[name])
    for remote in remotes:
        if remote.failure:
            rows.append({"case": case, "engine": remote.name, "failure": remote.failure})
        elif "compile_s" in made[remote.name]:
            rows.append({"case": case, "engine": remote.name} | made[remote.name])
        remote.stop()
    return rows + [{"case": case, "engine": name, "failure": why} for name, why in skipped.items()]


def measure_batch(lanes: int, ladder: tuple[float, ...]) -> list[dict]:
    system, rng = systems.chain(10), np.random.default_rng(0)
    judge = Mujoco("mujoco RK4", system)
    q, v = system.q + 0.05 * rng.normal(size=(lanes, len(system.q))), np.tile(system.v, (lanes, 1))
    want = np.stack([exact(judge, a, b)["q"][-1] for a, b in zip(q, v)])
    case, rows = f"chain, {lanes} lanes", []
    remotes = [Remote(worker_of(n), n, system) for n in BATCH]
    live = remotes
    for dt in ladder:
        compile_all(live, lanes, dt, COMPILING)
        compiling = [r for r in live if not r.failure and r.name in OURS + BASELINE]  # as they go, anew for every dt
        repeated(compiling, "time", q, v, dt, SPAN, np.inf, repeats=1, longest=np.inf)
        seen = repeated(
            [r for r in live if not r.failure],
            "time",
            q,
            v,
            dt,
            SPAN,
            np.inf,
            repeats=REPEATS,
            longest=LONGEST_BATCH / 2,
        )
        for name in [n for n, s in seen.items() if s]:
            best = min(seen[name], key=lambda s: s["s"])
            apart = judge.apart(best["end"], want) if best["finite"] else np.full(lanes, np.nan)
            row = {"case": case, "engine": name, "dt": dt, "s": digits(best["s"], 4), "repeats": len(seen[name])}
            row |= {"error": digits(apart.max()), "error_median": digits(np.median(apart))}
            rows.append(row | {"failed_steps": best.get("failed_steps", 0)})
        live = [r for r in live if not r.failure and seen.get(r.name) and seen[r.name][-1]["s"] < LONGEST_BATCH / 4]
    for remote in remotes:
        if remote.failure:
            rows.append({"case": case, "engine": remote.name, "failure": remote.failure})
        remote.stop()
    return rows


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(functools.partial(measure, "small", LADDER[2:5]),)]
    cases = [functools.partial(measure, case, LADDER) for case in CASES if case != "small"]
    return [(case,) for case in [*cases, functools.partial(measure_batch, LANES, BATCH_LADDER)]]


LEFT = 10.0  # rad: whoever errs more has left, and is not drawn
LOOKS: dict[str, dict] = {}
for names, line, marks in (
    (OURS[:3], "-", "os^"),
    (OURS[3:6], "--", "DvP"),
    (OURS[6:], ":", "*X"),
    (BASELINE, "-.", "s^o"),
    (MUJOCO, "--", "sDvPo"),
    (MJX, ":", "sD"),
    (OTHERS + (OTHERS[3] + ABA,), ":", "^v<>x"),
):
    hollow = {} if set(names) <= set(OURS) else {"mfc": "white"}
    LOOKS |= {name: {"ls": line, "marker": mark, "ms": 4.5, "lw": 1} | hollow for name, mark in zip(names, marks)}


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    """A column a system; position-based steps above, all others below, each before the other half in gray."""
    import matplotlib.pyplot as plt

    rows = [r for r in rows if r.get("error") and r["error"] < LEFT and not r["failed_steps"]]
    cases = list(dict.fromkeys(r["case"] for r in rows))
    figure, axes = plt.subplots(
        2, len(cases), figsize=(3.3 * len(cases) + 2.6, 7.5), squeeze=False, sharex="col", sharey="col"
    )
    for column, case in enumerate(cases):
        for half, axis in enumerate(axes[:, column]):
            for name, look in LOOKS.items():
                own = [r for r in rows if r["case"] == case and r["engine"] == name]
                xy = [r["s"] for r in own], [r["error"] for r in own]
                if own and (name in OURS) == (half == 0):
                    shade = "0.45" if name in BASELINE else "tab:blue" if name in MUJOCO else "black"
                    axis.plot(*xy, label=name.replace("_", " "), color=shade, zorder=3, **look)
                elif own:
                    axis.plot(*xy, color="0.85", lw=1, zorder=1)
            axis.set(xscale="log", yscale="log")
            axis.grid(True, alpha=0.2)
        axes[0, column].set_title(case, fontsize=10)
        axes[1, column].set_xlabel("wall time of 1 s of motion, s")
    for half, axis in enumerate(axes[:, 0]):
        axis.set_ylabel("largest error of q, rad (drop: or m)")
        known = {label: h for a in axes[half] for h, label in zip(*a.get_legend_handles_labels())}
        box = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5), "frameon": False, "fontsize": 8}
        axes[half, -1].legend(known.values(), known.keys(), title="position-based" if not half else "others", **box)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    sys.setrecursionlimit(10000)
    compile_sums()
    more = {"repeats": REPEATS, "span_s": SPAN, "dtype": "float64"}
    run("work_precision", __doc__, plan, lambda case: case(), picture, **more)


if __name__ == "__main__":
    main()
