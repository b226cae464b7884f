"""One Levenberg–Marquardt iteration with dense matrices and with sweeps over the tree, against the number of links.

One lane, radau(1), float64, chains of universal joints near horizontal at dt = 0.05: evaluation, one solve, one norm.
Both are timed in turn in one run; `us_per_link` of the tree should be flat.
"""

import pathlib

import jax
import jax.numpy as jnp
from common import run, timed
from step_time import start_states

import pbad_jax as pbad
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.problem import StageProblem
from pbad_jax.stage.start import step_start
from pbad_jax.step.options import resolve

LINKS = (5, 10, 20, 40, 60, 100, 200, 400, 1000)
LARGEST_DENSE = 100
LOOPS = 10


def iterations(model, dense: bool):
    """LOOPS iterations from the same guess, each on what the last one found so that nothing is hoisted."""

    options = pbad.Options(dt=0.05, scheme="radau1", linear_solver="dense" if dense else "tree")
    config = resolve(options, model)

    def run(state):
        start = step_start(model, state, jnp.zeros(model.nu, model.dtype), config.recurrence)
        eq = equation.collocation(model, pbad.radau(1), jnp.asarray(0.05, model.dtype), start, None)
        problem = StageProblem(model, start, eq, predictor.straight(eq.nodes, 0.05, state.v), config)
        settings = lm.Settings(1e-30, 1000)
        first, _ = lm.iterate(problem, 1.0, settings, lm.init(problem, problem.guess(None, 0.0, 1.0)))

        def body(_, norm):  # of the next trial too, or the solve that leads to it would be dropped
            after, _ = lm.iterate(problem, 1.0, settings, first._replace(trial=first.trial + 1e-30 * norm))
            return after.norm + 1e-30 * jnp.sum(after.trial)

        return jax.lax.fori_loop(0, LOOPS, body, jnp.zeros((), model.dtype))

    return jax.jit(run)


def measure(n: int) -> dict:
    model = pbad.chain(n)
    state = jax.tree.map(lambda x: x[0], start_states(model, n, 1))
    row: dict = {"links": n, "dofs": model.nv}
    for name in ("tree", "dense"):
        if name == "dense" and n > LARGEST_DENSE:
            continue
        row[f"{name}_us"] = round(1e6 * timed(iterations(model, name == "dense"), state)["least"] / LOOPS, 2)
    return row | {"tree_us_per_link": round(row["tree_us"] / n, 3)}


def picture(rows: list[dict], path: pathlib.Path, device: str) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, mark in (("dense", "o-"), ("tree", "s-")):
        some = [r for r in rows if f"{name}_us" in r]
        axes.loglog([r["links"] for r in some], [r[f"{name}_us"] for r in some], mark, label=name)
    axes.set(xlabel="links", ylabel="one iteration, µs", title=f"radau(1), one lane, float64\n{device}")
    ticks = [r["links"] for r in rows]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    run("linear_solver", __doc__, lambda quick: [(n,) for n in (LINKS[:1] if quick else LINKS)], measure, picture)


if __name__ == "__main__":
    main()
