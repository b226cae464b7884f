"""The paper's figure of energy: explicit methods beside position-based steps, on a chain that swings down.

    python benchmarks/paper_energy.py [--quick] [--name paper_energy] [--out DIR]

10 links, dt = 0.0025 s, ten seconds: forward Euler, semi-implicit Euler, RK2, legendre(2), legendre(3), radau(2).
100 links, dt = 0.0025 s, ten seconds: RK2, RK3, legendre(2), legendre(3), radau(2). Straight and horizontal, at rest.

The paper: forward and semi-implicit Euler are not stable at 10 links, the second order scheme is stable and loses
energy, RK2 and the third order scheme keep it; with 100 links RK2 is not stable and RK3 is. A row says whether a run
reached the end, and the energy's largest gain and loss as fractions of m g L / 2 and its value at 200 moments.
"""

import dataclasses
import functools
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import digits, run

import pbad_jax as pbad
from pbad_jax.rollouts import explicit

DT, GRAVITY = 0.0025, 9.81
CASES = {
    10: ("forward_euler", "semi_implicit_euler", "rk2", "legendre2", "legendre3", "radau2"),
    100: ("rk2", "rk3", "legendre2", "legendre3", "radau2"),
}


def measure(links: int, method: str, span: float) -> dict:
    """Energies of one run, of what is left of it where it fails."""
    model, steps = pbad.chain(links), round(span / DT)
    state = pbad.make_state(model, q=jnp.zeros(model.nq).at[0].set(jnp.pi / 2))
    began = time.perf_counter()
    if method in explicit.METHODS:
        path, info = explicit.rollout(model, state, None, steps, dt=DT, method=method)
    else:
        path, info = pbad.rollout(model, state, None, steps, pbad.Options(DT, method))
    last = int(info.first_bad_step)
    good = last if last >= 0 else steps
    seconds = time.perf_counter() - began

    def energy(q, v):
        s = dataclasses.replace(state, q=q, v=v)
        return pbad.kinetic_energy(model, s) + pbad.potential_energy(model, s)

    every = max(1, steps // 200)
    energies = jax.jit(jax.vmap(energy))
    first = float(energies(state.q[None], state.v[None])[0])
    scale = links * GRAVITY * links / 2
    q, v, at = (np.asarray(x)[:good][every - 1 :: every] for x in (path.q, path.v, path.time))
    values = (np.asarray(energies(q, v)) - first) / scale
    return {
        "links": links, "method": method, "dt": DT, "steps": steps, "good_steps": good,
        "gain": digits(values.max(initial=0.0)), "loss": digits(-values.min(initial=0.0)),
        "seconds_with_compilation": round(seconds, 2),
        "time": [round(float(t), 4) for t in at], "energy": [digits(e, 5) for e in values],
    }  # fmt: skip


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(functools.partial(measure, 2, m, 0.5),) for m in ("semi_implicit_euler", "radau2")]
    return [(functools.partial(measure, n, m, 10.0),) for n, methods in CASES.items() for m in methods]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    sizes = list(dict.fromkeys(r["links"] for r in rows))
    figure, axes = plt.subplots(2, len(sizes), figsize=(6 * len(sizes), 7), squeeze=False, sharex=True)
    ours = {"legendre2": ("--", "o"), "legendre3": ("-.", "^"), "radau2": ("-", "s")}
    theirs = {
        "forward_euler": (":", "v"), "semi_implicit_euler": ("--", "x"), "rk2": ("-.", "D"), "rk3": ("-", "+"),
    }  # fmt: skip
    for (top, bottom), links in zip(axes.T, sizes):
        for i, row in enumerate(r for r in rows if r["links"] == links and r["time"]):
            own = row["method"] in ours
            line, mark = (ours | theirs)[row["method"]]
            how = {"ls": line, "marker": mark, "ms": 5, "lw": 1.2, "color": "black" if own else "tab:orange"}
            how |= {"mfc": None if own else "white", "markevery": (5 * i % 30, 30)}
            end = "" if row["good_steps"] == row["steps"] else f", ends at {row['good_steps'] * row['dt']:.2f} s"
            label, energy = row["method"].replace("_", " ") + end, np.array(row["energy"], float)
            top.plot(row["time"], energy, label=label, **how)
            bottom.semilogy(row["time"], np.maximum.accumulate(np.abs(energy)), label=label, **how)
        top.set(ylabel="energy − start, over m g L / 2", ylim=(-0.6, 1.0), title=f"{links} links")
        bottom.set(xlabel="time, s", ylabel="largest |difference| so far")
        top.grid(True, alpha=0.2)
        bottom.grid(True, alpha=0.2)
        top.legend(fontsize=8, loc="upper left")
    figure.suptitle(f"{title}, dt = {DT} s", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    run("paper_energy", __doc__, plan, lambda case: case(), picture, dtype="float64")


if __name__ == "__main__":
    main()
