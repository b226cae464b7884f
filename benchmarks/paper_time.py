"""The paper's figure of total time: ten seconds of the chain over the step size, position-based and semi-implicit.

    python benchmarks/paper_time.py [--quick | --full] [--name paper_time] [--out DIR]

10 links, straight and horizontal, at rest. legendre(2) is the paper's scheme; radau(1) and radau(2) are ours. Steps are
compiled once, whole runs are timed in turn, the least of three. A run is said to work where it reaches the end and
never gains more energy than 10 % of m g L / 2. The semi-implicit baseline is tried by the mass matrix and by ABA.

The paper: position-based steps take 1.5 to 2.1 times as long at 0.001 and 0.0025 s, the largest step of semi-implicit
Euler; at 0.05 s they take 0.21 of its time there.
"""

import functools
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import digits, one_thread, run

import pbad_jax as pbad
from pbad_jax.rollouts import explicit

GRAVITY, REPEATS, ALLOWED = 9.81, 3, 0.1
SIZES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1)  # s
USUAL = (0.001, 0.0025, 0.01, 0.05, 0.1)
METHODS = ("legendre2", "radau1", "radau2", "semi_implicit_euler", "semi_implicit_euler aba", "rk4")


def program(model, method: str, steps: int):
    """(state, dt) -> q, v, whether it was solved, and iterations, of every step."""
    name, _, algorithm = method.partition(" ")
    if name in explicit.METHODS:
        step = explicit.make_step(0.001, name, algorithm=algorithm or "auto")
    else:
        step = pbad.make_step(pbad.Options(0.001, name))

    def whole(state, dt):
        def one(s, _):
            s, info = step(model, s, None, dt)
            return s, (s.q, s.v, info.ok, info.iterations)

        return jax.lax.scan(one, state, None, length=steps)[1]

    return jax.jit(whole)


def measure(links: int, span: float, sizes: tuple[float, ...], methods: tuple[str, ...]) -> list[dict]:
    model = pbad.chain(links)
    state = pbad.make_state(model, q=jnp.zeros(model.nq).at[0].set(jnp.pi / 2))

    def energy(q, v):
        s = pbad.make_state(model, q, v)
        return pbad.kinetic_energy(model, s) + pbad.potential_energy(model, s)

    energies = jax.jit(jax.vmap(energy))
    first = float(energies(state.q[None], state.v[None])[0])
    rows = []
    for dt in sizes:
        steps = round(span / dt)
        calls, samples, out = {}, {m: [] for m in methods}, {}
        for method in methods:
            began = time.perf_counter()
            calls[method] = program(model, method, steps).lower(state, jnp.asarray(dt)).compile()
            rows.append({"links": links, "method": method, "dt": dt, "steps": steps})
            rows[-1]["compile_s"] = round(time.perf_counter() - began, 2)
        for _ in range(REPEATS):
            for method, call in calls.items():
                began = time.perf_counter()
                out[method] = jax.block_until_ready(call(state, jnp.asarray(dt)))
                samples[method].append(time.perf_counter() - began)
        for row in rows[-len(methods) :]:
            q, v, ok, iterations = out[row["method"]]
            gained = (np.asarray(energies(q, v)) - first) / (links * GRAVITY * links / 2)
            row |= {
                "s": round(min(samples[row["method"]]), 5),
                "us_per_step": round(1e6 * min(samples[row["method"]]) / steps, 2),
                "iterations": round(float(np.mean(iterations)), 2),
                "failed_steps": int(np.sum(~np.asarray(ok))),
                "gain": digits(gained.max()),
                "loss": digits(-gained.min()),
            }
            row["works"] = row["failed_steps"] == 0 and bool(gained.max() <= ALLOWED)
    return rows


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(functools.partial(measure, 2, 0.2, (0.01,), ("radau1", "semi_implicit_euler")),)]
    return [case for dt, case in zip(SIZES, full()) if dt in USUAL]


def full() -> list[tuple]:
    return [(functools.partial(measure, 10, 10.0, (dt,), METHODS),) for dt in SIZES]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.5, 4.5))
    marks = dict(zip(METHODS, ("o", "s", "^", "D", "v", "x")))
    for method in dict.fromkeys(r["method"] for r in rows):
        own = [r for r in rows if r["method"] == method]
        ours = method.split()[0] not in explicit.METHODS
        color = "black" if ours else "tab:orange"
        axis.plot([r["dt"] for r in own], [r["s"] for r in own], color=color, lw=0.6, ls=":")
        good = [r for r in own if r["works"]]
        label = method.replace("_", " ")
        axis.plot([r["dt"] for r in good], [r["s"] for r in good], color=color, marker=marks[method], label=label)
    axis.set(xscale="log", yscale="log", xlabel="dt, s", ylabel="time for ten seconds of motion, s")
    axis.set_title("lines with marks: runs that work", fontsize=9)
    axis.grid(True, which="both", alpha=0.2)
    axis.legend(fontsize=8)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    one_thread()
    run("paper_time", __doc__, plan, lambda case: case(), picture, full, repeats=REPEATS, dtype="float64")


if __name__ == "__main__":
    main()
