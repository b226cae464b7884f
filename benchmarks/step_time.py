"""Time of one Levenberg-Marquardt iteration and of one step, chains of 5 to 100 links.

    python benchmarks/step_time.py [--quick] [--full] [--name step_time] [--out DIR]

Every row says: links, scheme, recurrence (which twin), dtype, batch (lanes under vmap), seconds to compile one step,
microseconds a lane for one iteration (one evaluation of residual and matrix, one factorisation, one step) and for one
step of a rollout at dt = 0.05 (near horizontal, lanes perturbed), and the iterations that those steps took.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from common import compiled, run, timed

import pbad_jax as pbad
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.start import step_start
from pbad_jax.step.collocation import problem_of
from pbad_jax.step.options import resolve, scheme_of

DT, STEPS = 0.05, 20


def start_states(model, n: int, batch: int):
    """`batch` chains near horizontal, each a little different."""
    rng = np.random.default_rng(0)
    q = 0.02 * rng.normal(size=(batch, model.nq))
    v = 0.1 * rng.normal(size=(batch, model.nv))
    q[:, 0] += np.pi / 2
    v[:, 1] += 0.2 * np.sqrt(9.81 / n)
    return jax.vmap(lambda q, v: pbad.make_state(model, q, v))(jnp.asarray(q), jnp.asarray(v))


def one_iteration(model, options, loops: int):
    """state -> `loops` iterations, each of them the work of an accepted Newton step."""
    config, scheme = resolve(options, model), scheme_of(options)
    assert isinstance(scheme, pbad.Scheme)

    def run(state):
        dt = jnp.asarray(DT, model.dtype)
        start = step_start(model, state, jnp.zeros(model.nu, model.dtype), config.recurrence)
        eq = equation.collocation(model, scheme, dt, start, None)
        problem = problem_of(model, scheme, config, start, eq, predictor.straight(eq.nodes, dt, state.v))
        settings = lm.Settings(0.0, 10**6)
        first, _ = lm.iterate(problem, 1.0, settings, lm.init(problem, problem.guess(None, 0.0, 1.0)))

        def body(_, norm):  # a tiny dependence, so that nothing can be hoisted or dropped
            trial = first._replace(trial=first.trial + 1e-30 * norm)
            after, _ = lm.iterate(problem, 1.0, settings, trial)
            return after.norm + 1e-30 * jnp.sum(after.trial)

        return jax.lax.fori_loop(0, loops, body, first.norm)

    return run


def rollout(model, options):
    step = pbad.make_step(options)

    def run(state):
        def body(state, _):
            state, info = step(model, state)
            return state, (info.iterations, info.status)

        return jax.lax.scan(body, state, None, length=STEPS)[1]

    return run


def measure(n, scheme, twin, dtype, batch) -> dict:
    model = pbad.chain(n, dtype=dtype)
    options = pbad.Options(dt=DT, scheme=scheme, recurrence=twin)
    states = start_states(model, n, batch)
    if batch == 1:
        states = jax.tree.map(lambda x: x[0], states)

    def lanes(f):
        return f if batch == 1 else jax.vmap(f)

    _, compile_s = (
        compiled(lambda s: pbad.make_step(options)(model, s), jax.tree.map(lambda x: x, states))
        if (batch == 1)
        else (None, None)
    )
    loops = max(2, 400 // batch)
    iteration = timed(jax.jit(lanes(one_iteration(model, options, loops))), states)
    executable = jax.jit(lanes(rollout(model, options)))
    whole = timed(executable, states)
    iterations, status = executable(states)
    return {
        "links": n,
        "dofs": model.nv,
        "scheme": scheme,
        "recurrence": twin,
        "dtype": np.dtype(dtype).name,
        "batch": batch,
        "compile_s": compile_s and round(compile_s, 2),
        "us_per_iteration": round(1e6 * iteration["least"] / loops / batch, 2),
        "us_per_step": round(1e6 * whole["least"] / STEPS / batch, 2),
        "us_per_step_median": round(1e6 * whole["median"] / STEPS / batch, 2),
        "iterations_per_step": round(float(jnp.mean(iterations)), 2),
        "failed_steps": int(jnp.sum(status != 0)),
    }


def plan(quick: bool, gpu: bool) -> list[tuple]:
    """On a CPU what takes minutes: long chains and many lanes are left to `full`."""
    if quick:
        return [(2, "radau1", "parallel", np.float64, 1)]
    if gpu:
        return full(gpu)

    def short(n, scheme, twin, dtype, batch):
        if batch > 1:
            return n == 10 and batch == 128 and scheme != "radau3"
        return n in (5, 10) or (n, scheme, dtype) in ((40, "radau1", np.float64), (100, "radau1", np.float64))

    return [row for row in full(gpu) if short(*row)]


def full(gpu: bool) -> list[tuple]:
    f64, f32 = np.float64, np.float32
    main = f32 if gpu else f64
    rows = [(n, s, "parallel", main, 1) for n in (5, 10, 20, 40, 80, 100) for s in ("radau1", "radau2", "radau3")]
    rows += [(n, "radau2", "serial", main, 1) for n in (5, 10, 40)]
    rows += [(n, "radau2", "parallel", f64 if gpu else f32, 1) for n in (10, 40)]
    rows += [(10, s, "parallel", main, b) for s in ("radau1", "radau2", "radau3") for b in (128, 1024)]
    rows += [(10, s, "parallel", f64 if gpu else f32, b) for s in ("radau1", "radau2") for b in (128, 1024)]
    rows += [(40, s, "parallel", main, 128) for s in ("radau1", "radau2")]
    if gpu:
        rows += [(10, s, "parallel", f32, b) for s in ("radau1", "radau2") for b in (4096, 16384)]
    return rows


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    main = rows[0]["dtype"]
    style = {"radau1": "o-", "radau2": "s--", "radau3": "^:"}
    for scheme, line in style.items():
        for twin, colour in (("parallel", "black"), ("serial", "tab:gray")):
            keep = [
                r for r in rows
                if (r["scheme"], r["recurrence"], r["dtype"], r["batch"]) == (scheme, twin, main, 1)
            ]  # fmt: skip
            if keep:
                x, y = [r["links"] for r in keep], [r["us_per_iteration"] for r in keep]
                left.loglog(x, y, line, color=colour, label=f"{scheme}, {twin}")
    left.set(xlabel="links (2 degrees of freedom each)", ylabel="time per iteration, µs", title=f"one lane, {main}")
    left.legend(fontsize=8)
    for scheme, line in style.items():
        for dtype, colour in (("float64", "black"), ("float32", "tab:gray")):
            keep = [r for r in rows if (r["links"], r["scheme"], r["dtype"]) == (10, scheme, dtype)]
            keep = sorted((r for r in keep if r["recurrence"] == "parallel"), key=lambda r: r["batch"])
            if len(keep) > 1:
                x, y = [r["batch"] for r in keep], [r["us_per_iteration"] for r in keep]
                right.loglog(x, y, line, color=colour, label=f"{scheme}, {dtype}")
    right.set(xlabel="lanes under vmap", ylabel="time per iteration and lane, µs", title="10 links")
    if right.get_legend_handles_labels()[0]:
        right.legend(fontsize=8)
    for axes in (left, right):
        axes.grid(True, which="both", alpha=0.2)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    gpu = jax.default_backend() == "gpu"
    run("step_time", __doc__, lambda quick: plan(quick, gpu), measure, picture, lambda: full(gpu), dt=DT, steps=STEPS)


if __name__ == "__main__":
    main()
