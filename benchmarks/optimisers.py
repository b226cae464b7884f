"""The paper's comparison of optimisers: iterations of LM and L-BFGS in every step, 10 and 40 links, both objectives.

The paper (fig. OPTProf): dt = 0.05, second-order scheme; L-BFGS takes about ten times the iterations of LM, ‖r‖² more
than the energy, and the counts hardly depend on the number of links. Here: legendre(2), the paper's scheme.
"""

import pathlib

import jax
import numpy as np
from common import run, timed
from step_time import start_states

import pbad_jax as pbad

CASES = [("lm", "root"), ("lm", "energy"), ("lbfgs", "energy"), ("lbfgs", "squared")]
DT = 0.05


def measure(links: int, solver: str, objective: str, seconds: float) -> dict:
    model = pbad.chain(links)
    state = jax.tree.map(lambda x: x[0], start_states(model, links, 1))
    options = pbad.Options(
        DT, "legendre2", tolerance=1e-7, solver=solver, objective=objective, max_iterations=3000, linear_solver="auto"
    )
    steps = round(seconds / DT)

    def run():
        return pbad.rollout(model, state, n_steps=steps, options=options, progress=False)

    _, info = jax.block_until_ready(run())
    spent = timed(run, repeats=2)["least"]
    ok = np.asarray(info.status) == pbad.Status.CONVERGED
    return {
        "links": links,
        "solver": solver,
        "objective": objective,
        "steps": steps,
        "failed_steps": int((~ok).sum()),
        "mean_iterations": round(float(np.mean(np.asarray(info.iterations)[ok])), 2),
        "us_per_step": round(1e6 * spent / steps, 1),
        "iterations": np.asarray(info.iterations).tolist(),
    }


def picture(rows: list[dict], path: pathlib.Path, device: str) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 3.5), layout="constrained")
    for axes, links in zip(figure.subplots(1, 2, sharey=True), sorted({r["links"] for r in rows})):
        for r, line in zip((r for r in rows if r["links"] == links), ("-", "--", "-.", ":")):
            time, iterations = DT * np.arange(1, r["steps"] + 1), np.array(r["iterations"], float)
            iterations[iterations == 0] = np.nan  # after a step that failed
            axes.semilogy(time, iterations, line, label=f"{r['solver']}, {r['objective']}")
        axes.set(xlabel="time (s)", ylabel="iterations a step", title=f"{links} links, legendre(2), dt = {DT} s")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(2, *case, 0.5) for case in CASES[-1:]]
    return [(n, *case, 10.0) for n in (10, 40) for case in CASES]


def main() -> None:
    run("optimisers", __doc__, plan, measure, picture)


if __name__ == "__main__":
    main()
