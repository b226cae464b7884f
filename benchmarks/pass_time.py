"""What one pass of the solver takes: an iteration of many lanes beside what it cannot do without.

    python benchmarks/pass_time.py [--quick] [--only TEXT] [--name pass_time] [--out DIR]

Rows: a robot, scheme, precision and as many lanes side by side as on a CPU the solver takes by itself, and 64; in
microseconds a lane, one thread: `residual`, `residual_and_matrix`, `solve` (one system), and `iteration`, of lanes that
are all on their way, and of `mixed` ones: each has made another number of iterations, some of them are solved, damped,
or on their way back. `ratio` and `ratio_mixed`: the iteration over residual, matrix and one solve.

`alone`: a step of one lane of ten links, `batch`: of 128 lanes, on one thread; dt 0.008 s, from states of a whipping
chain. `pairs`: a step of gymnasium's humanoid that falls with its joints at random and touches nothing, with all pairs
of its shapes that could touch, and `without`.
"""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import digits, one_thread, run, timed

import pbad_jax as pbad
from pbad_jax.math import queue
from pbad_jax.solver import continuation
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.problem import problem_of, settings
from pbad_jax.stage.start import step_start
from pbad_jax.step.options import resolve, scheme_of

STATES = 6  # iterations that mixed lanes have made, at most


def model_and_states(name: str, precision: str, lanes: int):
    """A robot and states in which it is on its way."""
    if name != "chain":
        from environments import robot, starts

        model = robot(name, precision)
        return model, starts(model, name, lanes)
    model, rng = pbad.chain(10, dtype=jnp.dtype(precision)), np.random.default_rng(0)
    q, v = 0.3 * rng.normal(size=(lanes, model.nq)), 2.0 * rng.normal(size=(lanes, model.nv))
    return model, jax.vmap(lambda q, v: pbad.make_state(model, q, v))(*(jnp.asarray(x, model.dtype) for x in (q, v)))


def pieces(model: pbad.Model, options: pbad.Options, loops: int) -> dict[str, Any]:
    """Functions of a state and of the iterations that it has made: each does its work `loops` times."""
    config, scheme = resolve(options, model), scheme_of(options)
    assert isinstance(scheme, pbad.Scheme)

    def begun(state, count):
        dt = jnp.asarray(options.dt, model.dtype)
        start = step_start(model, state, jnp.zeros(model.nu, model.dtype), config.recurrence)
        eq = equation.collocation(model, scheme, dt, start, None)
        problem = problem_of(model, scheme, config, start, eq, predictor.straight(eq.nodes, dt, state.v))
        problem = jax.lax.stop_gradient(problem)
        s = continuation.init(problem, status=-1)
        one = functools.partial(continuation.iterate, problem, settings(problem))
        return problem, jax.lax.fori_loop(0, count, lambda _, s: one(s), s), one

    def repeated(piece):
        def run(state, count):
            problem, s, one = begun(state, count)

            def body(_, made):  # a tiny dependence, so that nothing can be hoisted or dropped
                trial = s.attempt.trial + 1e-30 * jax.tree.leaves(made)[0].reshape(-1)[0].astype(model.dtype)
                return piece(problem, one, s._replace(attempt=s.attempt._replace(trial=trial)))

            return jax.lax.fori_loop(0, loops, body, piece(problem, one, s))

        return run

    def residual(problem, one, s):
        return problem.residual(s.attempt.trial, s.h, s.attempt.guide)[0]

    def residual_and_matrix(problem, one, s):
        r, terms = problem.residual(s.attempt.trial, s.h, s.attempt.guide)
        return r, problem.matrix(terms)

    def solve(problem, one, s):
        return problem.solve(s.attempt.J, s.attempt.r + s.attempt.trial.sum())

    def iteration(problem, one, s):
        return one(s)

    every = (residual, residual_and_matrix, solve, iteration)
    return {piece.__name__: repeated(piece) for piece in every}


def one_pass(name: str, scheme: str, dt: float, precision: str, lanes: int | None) -> dict:
    options = pbad.Options(dt=dt, scheme=scheme)
    if lanes is None:
        lanes = own_width(name, options, precision)
    model, states = model_and_states(name, precision, lanes)
    loops, row = max(2, 4000 // lanes), {"robot": name, "scheme": scheme, "dt": dt, "precision": precision}
    row |= {"lanes": lanes}
    same, mixed = jnp.full(lanes, 2), jnp.arange(lanes) % (STATES + 1)
    for piece, f in pieces(model, options, loops).items():
        f = jax.jit(jax.vmap(f))
        for suffix, count in (("", same), ("_mixed", mixed)) if piece == "iteration" else (("", same),):
            row[piece + suffix] = digits(1e6 * timed(f, states, count)["least"] / loops / lanes)
    least = row["residual_and_matrix"] + row["solve"]
    ratios = {f"ratio{s}": digits(row[f"iteration{s}"] / least) for s in ("", "_mixed")}
    return row | ratios


def own_width(name: str, options: pbad.Options, precision: str) -> int:
    """As many lanes as a CPU has side by side."""
    model, states = model_and_states(name, precision, 1)

    def begun(state):
        start = step_start(model, state, jnp.zeros(model.nu, model.dtype))
        scheme: Any = scheme_of(options)
        eq = equation.collocation(model, scheme, jnp.asarray(options.dt, model.dtype), start, None)
        straight = predictor.straight(eq.nodes, eq.dt, state.v)
        return continuation.init(problem_of(model, scheme, resolve(options, model), start, eq, straight), status=-1)

    return queue.slots_on_cpu(jax.vmap(begun)(states), 1)


def lane(scheme: str) -> dict:
    """A lane alone, and one of 128."""
    model, states = model_and_states("chain", "float64", 128)
    options = pbad.Options(dt=0.008, scheme=scheme)

    def run(state):
        return pbad.rollout(model, state, n_steps=20, options=options, progress=False)[0].q

    each = jax.jit(lambda states: jax.lax.map(run, states))
    alone, batch = timed(each, states)["least"], timed(jax.jit(jax.vmap(run)), states)["least"]
    figures = {
        "alone": digits(1e6 * alone / 2560),
        "batch": digits(1e6 * batch / 2560),
        "of_alone": digits(batch / alone),
    }
    return {"robot": "chain", "scheme": scheme, "dt": 0.008, "precision": "float64", "lanes": 128} | figures


def pairs(scheme: str, dt: float = 0.02, steps: int = 20) -> dict:
    """What contact between its own limbs costs a robot whose limbs are apart."""
    from environments import robot

    model = robot("humanoid", "float64")
    touching = (pbad.forces.BodyContact, pbad.forces.ShapeContact)
    without = dataclasses.replace(model, forces=tuple(f for f in model.forces if not isinstance(f, touching)))
    speed = 0.3 * np.random.default_rng(0).normal(size=model.nv)
    high = pbad.make_state(model, model.q0.at[2].add(5.0), speed)
    options, row = pbad.Options(dt=dt, scheme=scheme), {}
    for name, m in (("pairs", model), ("without", without)):
        fall = jax.jit(lambda state, m=m: pbad.rollout(m, state, n_steps=steps, options=options, progress=False))
        assert fall(high)[1].ok
        row[name] = digits(1e6 * timed(fall, high)["least"] / steps)
        row[f"{name}_iterations"] = digits(float(np.mean(fall(high)[1].iterations)))
    case = {"robot": "humanoid", "scheme": scheme, "dt": dt, "precision": "float64", "lanes": 1}
    return case | row | {"of_without": digits(row["pairs"] / row["without"])}


def measure(what, *case) -> dict:
    return what(*case)


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(one_pass, "chain", "radau1", 0.05, "float64", 2)]
    cases = [
        ("chain", "radau1", 0.05, "float64"),
        ("ant", "radau1", 0.05, "float64"),
        ("ant", "radau1", 0.05, "float32"),
    ]
    passes = [(one_pass, *case, lanes) for case in cases for lanes in (None, 64)]
    return [
        *passes,
        (one_pass, "chain", "radau2", 0.02, "float64", None),
        (lane, "radau1"),
        (lane, "radau2"),
        (pairs, "radau1"),
    ]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    rows = [r for r in rows if "iteration" in r]
    names = [f"{r['robot']}, {r['scheme']}, {r['lanes']} × {r['precision'][5:]} bit" for r in rows]
    fig, ax = plt.subplots(figsize=(9, 0.4 * len(rows) + 1.5))
    at = np.arange(len(rows))
    ax.barh(at + 0.2, [r["residual_and_matrix"] for r in rows], 0.35, label="residual and matrix", color="C0")
    left = [r["residual_and_matrix"] for r in rows]
    ax.barh(at + 0.2, [r["solve"] for r in rows], 0.35, left=left, label="one solve", color="C1")
    ax.barh(at - 0.2, [r["iteration"] for r in rows], 0.35, label="an iteration", color="C7")
    ax.plot([r["iteration_mixed"] for r in rows], at - 0.2, "k|", label="of lanes in all states")
    ax.set(yticks=at, yticklabels=names, xlabel="microseconds a lane, one thread", title=title)
    ax.invert_yaxis()
    ax.legend()
    fig.tight_layout()
    fig.savefig(path, dpi=100)


def main() -> None:
    one_thread()
    run("pass_time", __doc__, plan, measure, picture)


if __name__ == "__main__":
    main()
