"""The paper's figures of time per step, against the number of links and against the step size, with the iterations.

    python benchmarks/paper_scaling.py [--quick | --full] [--name paper_scaling] [--out DIR]

One second of the chain of universal joints, straight and horizontal, at rest: 10 to 100 links with dense matrices
("dense"), 100 to 1000 with sweeps over the tree ("tree", schemes with one unknown configuration), at 0.01 and 0.05 s;
10 and 40 links at 0.001 to 0.128 s. legendre(2) is the paper's scheme; semi-implicit Euler (`newton_euler`, by the mass
matrix or by ABA as it chooses) beside it. One program for all step sizes; least of up to three runs. Rows with failed
steps are not drawn: after a failure nothing is computed.

The paper (fig. OPTProf c, d): from 10 to 40 links the time grows almost linearly, iterations hardly depend on the
number of links, and the time of a step is almost the same for every step size.
"""

import pathlib
import time

import jax
import jax.numpy as jnp
from common import one_thread, run, timed

import pbad_jax as pbad
from pbad_jax.rollouts import explicit

SPAN = 1.0  # s
BOTH = (0.01, 0.05)  # s
SIZES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)  # s
BASELINE = "semi_implicit_euler"
DENSE, TREE = (10, 20, 40, 60, 80, 100), (100, 200, 400, 1000)


def program(model, method: str, algebra: str):
    """(state, dt, steps) -> the last state, the iterations of all steps, how many failed."""
    if method == BASELINE:
        step = explicit.make_step(0.001, method)
    else:
        step = pbad.make_step(pbad.Options(0.001, method, linear_solver=algebra))

    def whole(state, dt, steps):
        def one(_, carry):
            state, iterations, failed = carry
            state, info = step(model, state, None, dt)
            return state, iterations + info.iterations, failed + ~info.ok

        return jax.lax.fori_loop(0, steps, one, (state, 0, 0))

    return jax.jit(whole)


def measure(links: int, method: str, algebra: str, sizes: tuple[float, ...], span: float = SPAN) -> list[dict]:
    model = pbad.chain(links)
    state = pbad.make_state(model, q=jnp.zeros(model.nq).at[0].set(jnp.pi / 2))
    began = time.perf_counter()
    call = program(model, method, algebra).lower(state, jnp.asarray(0.01), 1).compile()
    compile_s, rows = round(time.perf_counter() - began, 2), []
    for dt in sizes:
        steps = round(span / dt)
        spent = timed(call, state, jnp.asarray(dt), steps, repeats=3, budget=2.0)
        _, iterations, failed = call(state, jnp.asarray(dt), steps)
        rows.append(
            {
                "links": links,
                "method": method,
                "linear_solver": algebra,
                "dt": dt,
                "steps": steps,
                "us_per_step": round(1e6 * spent["least"] / steps, 2),
                "us_per_step_median": round(1e6 * spent["median"] / steps, 2),
                "iterations_per_step": round(int(iterations) / steps, 2),
                "failed_steps": int(failed),
                "compile_s": compile_s,
            }
        )
    return rows


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(2, "legendre2", "dense", BOTH, 0.2)]
    return [case for case in full() if case[0] in (10, 100, 200)]


def full() -> list[tuple]:
    cases = []
    for n in DENSE:
        sizes = tuple(sorted(BOTH + SIZES)) if n in (10, 40) else BOTH
        cases += [(n, method, "dense", sizes) for method in ("legendre2", "radau1", "radau2")]
        cases.append((n, BASELINE, "auto", sizes))
    for n in TREE:
        cases += [(n, method, "tree", BOTH) for method in ("legendre2", "radau1")]
        cases += [(n, BASELINE, "auto", BOTH)] if n not in DENSE else []
    return cases


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    marks = {"legendre2": "o", "radau1": "s", "radau2": "^", BASELINE: "x"}
    lines = {"dense": "-", "tree": "--", "auto": ":"}
    good = [r for r in rows if not r["failed_steps"]]
    for (method, algebra), dt in ((pair, dt) for dt in BOTH for pair in pairs(good)):
        own = [r for r in good if (r["method"], r["linear_solver"], r["dt"]) == (method, algebra, dt)]
        label = f"{method}, {algebra}".replace("_", " ").replace(", auto", "") + f", {dt} s"
        draw(left, own, "links", marks[method], lines[algebra], dt == BOTH[0], label)
    for (method, algebra), links in ((pair, n) for n in (10, 40) for pair in pairs(good)):
        own = [r for r in good if (r["method"], r["linear_solver"], r["links"]) == (method, algebra, links)]
        label = f"{method}, {links} links".replace("_", " ")
        draw(right, own, "dt", marks[method], lines[algebra], links == 10, label)
    left.set(xlabel="links (2 degrees of freedom each)", ylabel="time per step, µs")
    right.set(xlabel="dt, s")
    for axes in (left, right):
        axes.grid(alpha=0.3, which="both")
        if axes.lines:
            axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=110)


def pairs(rows: list[dict]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r["method"], r["linear_solver"]) for r in rows))


def draw(axes, rows: list[dict], x: str, mark: str, line: str, filled: bool, label: str) -> None:
    """Filled marks for the first of two cases, open ones for the second."""
    rows = sorted(rows, key=lambda r: r[x])
    if len({r[x] for r in rows}) > 1 or len(rows) == 1:
        how = {"color": "black" if filled else "tab:gray", "mfc": None if filled else "white", "ms": 5, "lw": 1}
        axes.loglog([r[x] for r in rows], [r["us_per_step"] for r in rows], line + mark, label=label, **how)


def main() -> None:
    one_thread()
    run("paper_scaling", __doc__, plan, measure, picture, full, dtype="float64", span=SPAN)


if __name__ == "__main__":
    main()
