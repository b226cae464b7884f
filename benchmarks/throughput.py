"""Simulated seconds per second: batches of chains and ants, beside MuJoCo C, MJX, Brax and jaxsim.

    python benchmarks/throughput.py [--quick | --full] [--name throughput] [--out DIR]

The chain of 10 links (universal joints, 20 degrees of freedom), float64, planar (straight, horizontal, at rest) and in
three dimensions (with a small sideways swing). Every engine runs at the largest step size of its ladder up to which
every one keeps the energy of 10 s within 10 % of m g L / 2; MuJoCo C computes the energies of all from (q, v).
A row's first lane starts there; with more lanes they start from states that MuJoCo C with RK4, 0.0005 s, passes through
in these 10 s, the same for all engines, so that gentle and whipping moments are mixed.

The ant of gymnasium falls from random poses, no control: no energy to compare by, so every engine runs at the file's
0.01 s and the library at 0.05 s as well; rows say whether all stayed finite.

Engines run in processes of their own; while one is timed the others wait, repeats go round. XLA compiles all engines'
sums (`common.compile_sums`). Rivals: pip install mujoco-mjx brax jaxsim gymnasium.
"""

import functools
import importlib
import importlib.util
import pathlib
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rivals
from common import compile_sums, digits, run
from remotes import Remote

import pbad_jax as pbad
from pbad_jax import newton_euler

LINKS, SPAN, WINDOW, ALLOWED, SAMPLES = 10, 10.0, 1.0, 0.1, 200
LADDER = (0.0005, 0.001, 0.002, 0.0025, 0.004, 0.005, 0.008, 0.01, 0.016, 0.02, 0.032, 0.05, 0.064, 0.1, 0.128)  # s
REPEATS, PATIENCE, COMPILING = 3, 3.0, 100.0  # s for one run of a rival, s for one compilation
OURS = ("radau1", "radau2", "radau3", "dirk4")
BASELINE = ("newton_euler rk4", "newton_euler semi_implicit_euler")
MUJOCO = ("mujoco Euler", "mujoco RK4")
IN_JAX = ("mjx Euler", "brax Euler", "jaxsim SemiImplicitEuler", "jaxsim RungeKutta4")
WITHOUT_MJX = OURS + BASELINE + MUJOCO + IN_JAX[1:]  # MJX takes a second a step with ten links


def ant_xml() -> str:
    import gymnasium

    path = pathlib.Path(gymnasium.__file__).parent / "envs/mujoco/assets/ant.xml"
    return path.read_text().replace(' coordinate="local"', "")


class Mujoco:
    """MuJoCo C, its batches by its own threads."""

    def __init__(self, name: str, case: str):
        mujoco: Any = importlib.import_module("mujoco")
        integrator = name.split()[1]
        if case == "ant":
            xml = ant_xml().replace('integrator="RK4"', f'integrator="{integrator}"')
        else:
            xml = rivals.chain_mjcf(LINKS, integrator=integrator)
        self.mujoco, self.model = mujoco, mujoco.MjModel.from_xml_string(xml)
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET

    def compile(self, lanes: int, dt: float) -> dict:
        return {}

    def path(self, q, v, dt: float, span: float) -> dict:
        """States at about SAMPLES moments."""
        m, d = self.model, self.mujoco.MjData(self.model)
        m.opt.timestep, d.qpos[:], d.qvel[:] = dt, q, v
        steps, out = round(span / dt), []
        for i in range(steps):
            self.mujoco.mj_step(m, d)
            if (i + 1) % max(1, steps // SAMPLES) == 0:
                out.append((d.qpos.copy(), d.qvel.copy()))
        return {"q": np.stack([s[0] for s in out]), "v": np.stack([s[1] for s in out])}

    def energies(self, q, v) -> np.ndarray:
        """Of states (T,nq), (T,nv), in J."""
        m, d = self.model, self.mujoco.MjData(self.model)
        m.opt.enableflags |= self.mujoco.mjtEnableBit.mjENBL_ENERGY
        out = []
        for d.qpos[:], d.qvel[:] in zip(q, v):  # what is not finite stays so
            self.mujoco.mj_forward(m, d)
            out.append(d.energy.sum())
        return np.array(out)

    def time(self, q, v, dt: float, span: float) -> dict:
        rollout: Any = importlib.import_module("mujoco.rollout")
        threads = min(2, len(q))
        m, d = self.model, self.mujoco.MjData(self.model)
        m.opt.timestep = dt
        what = self.mujoco.mjtState.mjSTATE_FULLPHYSICS
        starts = np.zeros((len(q), self.mujoco.mj_stateSize(m, what)))
        for d.qpos[:], d.qvel[:], row in zip(q, v, starts):
            self.mujoco.mj_getState(m, d, row, what)
        datas, steps = [self.mujoco.MjData(m) for _ in range(threads)], round(span / dt)
        with rollout.Rollout(nthread=threads) as pool:
            began = time.perf_counter()
            states, _ = pool.rollout(m, datas, starts, None, nstep=steps)
            s = time.perf_counter() - began
        return {"s": s, "simulated_s": steps * dt * len(q), "finite": bool(np.isfinite(states[:, -1]).all())}


class InJax:
    """A rival in JAX: the model closed over, as its users do; the step size and the number of steps are arguments."""

    def __init__(self, name: str, case: str):
        rivals.quiet()
        library, integrator = name.split()
        xml = ant_xml() if case == "ant" else rivals.chain_mjcf(LINKS)
        xml = xml.replace('integrator="RK4"', 'integrator="Euler"').replace('"Euler"', f'"{integrator}"')
        if library == "jaxsim":
            self.engine = rivals.jaxsim(LINKS, integrator)
        else:
            self.engine = {"mjx": rivals.mjx, "brax": rivals.brax}[library](xml)
        self.programs: dict[int, Any] = {}
        self.start = jax.jit(jax.vmap(lambda q, v: self.engine.start(self.engine.model, q, v)))

    def compile(self, lanes: int, dt: float) -> dict:
        e = self.engine

        def whole(states, dt, steps):
            return jax.lax.fori_loop(0, steps, lambda _, s: jax.vmap(lambda x: e.step(e.model, x, dt))(s), states)

        began = time.perf_counter()
        q, v = (jnp.zeros((lanes, n)) for n in (e.nq, e.dofs))
        lowered = jax.jit(whole).lower(self.start(q, v), jnp.asarray(0.001), 1)
        self.programs[lanes] = lowered.compile()
        return {"compile_s": round(time.perf_counter() - began, 1)}

    def path(self, q, v, dt: float, span: float) -> dict:
        """States at about SAMPLES moments, of as much as there is patience for."""
        e, s, out = self.engine, self.start(q[None], v[None]), []
        steps = round(span / dt)
        each, began = max(1, steps // SAMPLES), time.perf_counter()
        for _ in range(steps // each):
            s = self.programs[1](s, jnp.asarray(dt), each)
            out.append(
                (np.asarray(e.q(jax.tree.map(lambda x: x[0], s))), np.asarray(e.v(jax.tree.map(lambda x: x[0], s))))
            )
            if time.perf_counter() - began > 5 * PATIENCE:
                break
        return {"q": np.stack([s[0] for s in out]), "v": np.stack([s[1] for s in out])}

    def time(self, q, v, dt: float, span: float) -> dict:
        """Its cost does not depend on the state, so a part of the span will do where it takes too long."""
        program, states = self.programs[len(q)], self.start(q, v)

        def run(steps: int):
            began = time.perf_counter()
            end = jax.block_until_ready(program(states, jnp.asarray(dt), steps))
            return time.perf_counter() - began, end

        s = run(1)[0]
        steps = int(np.clip(PATIENCE / s, 1, round(span / dt)))
        s, end = run(steps)
        finite = bool(np.isfinite(np.asarray(jax.vmap(self.engine.q)(end))).all())
        return {"s": s, "simulated_s": steps * dt * len(q), "finite": finite}


class Ours:
    """The library: rollout for one lane, rollout_batch for more; its explicit baseline. Whole trajectories are kept."""

    def __init__(self, name: str, case: str):
        jax.config.update("jax_enable_x64", True)
        self.scheme, _, self.method = name.rpartition(" ")
        self.model = pbad.load(ant_xml()) if case == "ant" else pbad.chain(LINKS)
        if self.scheme:
            step = newton_euler.make_step(0.001, self.method)
        else:
            self.scheme, step = name, pbad.make_step(pbad.Options(0.001, name))

        def advance(s, dt, steps):
            def one(_, c):
                s, bad = c
                s, info = step(self.model, s, None, dt)
                return s, bad + ~info.ok

            return jax.lax.fori_loop(0, steps, one, (s, 0))

        self.advance = jax.jit(advance)
        self.states = jax.jit(jax.vmap(lambda q, v: pbad.make_state(self.model, q, v)))

    def call(self, lanes: int, states, dt: float, steps: int):
        if self.scheme == "newton_euler":
            return self.many(states, dt, steps)
        options = pbad.Options(dt, self.scheme)
        if lanes > 1:
            return pbad.rollout_batch(self.model, states, None, steps, options)
        return pbad.rollout(self.model, jax.tree.map(lambda x: x[0], states), None, steps, options, progress=False)

    @functools.cached_property
    def many(self):
        """The baseline's rollouts of all lanes side by side."""

        def whole(states, dt, steps):
            return jax.vmap(lambda s: newton_euler.rollout(self.model, s, None, steps, dt=dt, method=self.method))(
                states
            )

        return jax.jit(whole, static_argnums=(1, 2))

    def compile(self, lanes: int, dt: float) -> dict:
        return {}

    def path(self, q, v, dt: float, span: float) -> dict:
        s, out, failed = pbad.make_state(self.model, jnp.asarray(q), jnp.asarray(v)), [], 0
        steps = round(span / dt)
        each = max(1, steps // SAMPLES)
        for _ in range(steps // each):
            s, bad = self.advance(s, dt, each)
            failed += int(bad)
            out.append((np.asarray(s.q), np.asarray(s.v)))
        return {"q": np.stack([s[0] for s in out]), "v": np.stack([s[1] for s in out]), "failed_steps": failed}

    def time(self, q, v, dt: float, span: float) -> dict:
        states, steps = self.states(jnp.asarray(q), jnp.asarray(v)), round(span / dt)
        began = time.perf_counter()
        trajectory, info = jax.block_until_ready(self.call(len(q), states, dt, steps))
        return {
            "s": time.perf_counter() - began,
            "simulated_s": steps * dt * len(q),
            "finite": bool(np.isfinite(np.asarray(trajectory.q)).all()),
            "failed_steps": int(np.sum(np.asarray(info.status) != 0)),
            "iterations": round(float(np.mean(np.asarray(info.iterations))), 2),
        }


def worker_of(name: str):
    return Mujoco if name in MUJOCO else InJax if name in IN_JAX else Ours


def start_of(case: str) -> tuple[np.ndarray, np.ndarray]:
    q, v = np.zeros(2 * LINKS), np.zeros(2 * LINKS)
    q[0] = np.pi / 2
    v[1] = 0.2 * np.sqrt(rivals.GRAVITY / LINKS) if case == "3d" else 0.0
    return q, v


def mixed(case: str, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts (lanes,nq), (lanes,nv), the same for all engines."""
    rng = np.random.default_rng(0)
    exact = Mujoco("mujoco RK4", case)
    if case == "ant":
        q = np.tile(exact.model.qpos0, (lanes, 1))
        q[:, 2] += rng.uniform(0, 0.5, lanes)
        q[:, 7:] += 0.3 * rng.normal(size=(lanes, q.shape[1] - 7))
        return q, np.zeros((lanes, exact.model.nv))
    q, v = start_of(case)
    if lanes == 1:
        return q[None], v[None]
    paths = []
    for _ in range(16):
        q[0] = np.pi / 2 + 0.05 * rng.normal()
        paths.append(exact.path(q, v, 0.0005, SPAN))
    pick = rng.permutation(16 * SAMPLES)[:lanes]
    return np.concatenate([p["q"] for p in paths])[pick], np.concatenate([p["v"] for p in paths])[pick]


def largest_step(remote: Remote, case: str, judge: Mujoco) -> list[dict]:
    """Energy errors of 10 s up the ladder until one is too large."""
    q, v = start_of(case)
    scale = LINKS * rivals.GRAVITY * LINKS / 2
    first, seen = judge.energies(q[None], v[None])[0], []
    for dt in LADDER:
        remote.ask("path", q, v, dt, SPAN)
        found = remote.answer()
        if remote.failure:
            break
        error = float(np.max(np.abs(judge.energies(found["q"], found["v"]) - first))) / scale
        seen.append({"dt": dt, "error": digits(error), "failed_steps": found.get("failed_steps", 0)})
        if not error <= ALLOWED or seen[-1]["failed_steps"]:  # NaN is too large
            break
    return seen


def step_sizes(case: str, remotes: list[Remote]) -> dict[str, dict]:
    """What to run each engine at. A rival in JAX takes the step size of the same integrator of MuJoCo C."""
    if case == "ant":
        return {r.name: {"dt": 0.01} for r in remotes}
    judge, known = Mujoco("mujoco RK4", case), {}
    for remote in [r for r in remotes if r.name not in IN_JAX]:
        seen = largest_step(remote, case, judge)
        good = [s for s in seen if s["error"] is not None and s["error"] <= ALLOWED and not s["failed_steps"]]
        known[remote.name] = {"dt": good[-1]["dt"] if good else None, "energy": seen}
    for remote in [r for r in remotes if r.name in IN_JAX]:
        known[remote.name] = {"dt": known["mujoco RK4" if "R" in remote.name else "mujoco Euler"]["dt"]}
    return known


def measure(case: str, names: tuple[str, ...], lanes: tuple[int, ...], window: float) -> list[dict]:
    needed = ("mujoco", "gymnasium") if case == "ant" else ("mujoco",)
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:  # without which nobody has a start
        return [{"case": case, "engine": name, "failure": f"{missing[0]} is not installed"} for name in names]
    remotes = [Remote(worker_of(n), n, case) for n in names]
    sizes = step_sizes(case, remotes)
    rows = []
    for n in lanes:
        q, v = mixed(case, n)
        runs = [(r, sizes[r.name]["dt"]) for r in remotes]
        if case == "ant":
            runs += [(r, 0.05) for r in remotes if r.name in OURS]
        made = [{"case": case, "engine": r.name, "lanes": n, **sizes[r.name], "dt": dt} for r, dt in runs]
        live = [(r, dt, row, []) for (r, dt), row in zip(runs, made) if dt is not None]
        for remote, dt, row, _ in live:
            remote.ask("compile", n, dt)
            row |= remote.answer(COMPILING)
        for _ in range(REPEATS + 1):  # the first compiles, or warms up
            for remote, dt, row, seen in live:
                remote.ask("time", q, v, dt, SPAN if n == 1 and case != "ant" else window)
                found = remote.answer(COMPILING)
                seen.append(found)
                row |= {} if "failure" not in found else found
        for _, _, row, seen in live:
            if "failure" not in row:
                best = min(seen[1:], key=lambda s: s["s"])
                row |= {k: x for k, x in best.items() if k != "s"} | {"s": round(best["s"], 4)}
                row["simulated_s_per_s"] = digits(best["simulated_s"] / best["s"])
        for row in made:
            if row["dt"] is None:
                row["failure"] = f"no step size of the ladder keeps the energy within {ALLOWED:.0%}"
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
    """The usual plan; `full` has more lanes, the swing in three dimensions and the ant, and MJX."""
    if quick:
        return [(functools.partial(measure, "planar", (BASELINE[1], "mujoco Euler", "brax Euler"), (1,), 0.1),)]
    return [(functools.partial(measure, "planar", WITHOUT_MJX, (1, 16, 128), WINDOW),)]


def full() -> list[tuple]:
    engines = OURS + BASELINE + MUJOCO + IN_JAX
    cases = [functools.partial(measure, "planar", engines, (1, 16, 128, 1024), WINDOW)]
    cases.append(functools.partial(measure, "3d", WITHOUT_MJX, (1, 16, 128), WINDOW))
    ant = ("radau1", "radau2", *MUJOCO, "mjx Euler", "brax Euler")
    cases.append(functools.partial(measure, "ant", ant, (1, 16, 128), WINDOW))
    return [(case,) for case in cases]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
                how = {
                    "color": "black"
                    if name in OURS
                    else "tab:green"
                    if name in BASELINE
                    else "tab:blue"
                    if name in MUJOCO
                    else "tab:gray"
                }
                how |= {
                    "ls": "-" if name in OURS else "-." if name in BASELINE else "--" if name in MUJOCO else ":",
                    "marker": mark,
                    "ms": 5,
                    "lw": 1,
                }
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
