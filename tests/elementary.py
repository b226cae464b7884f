"""What the tests of elementary systems share: steps, their programs, Runge and Kutta's trajectories, and bounds."""

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbad_jax as pbad

DT, N = 0.01, 50
G = 9.81
ORDER = {"radau1": 1, "radau2": 3, "radau3": 5, "dirk2": 2, "dirk3": 3, "dirk4": 4, "variational": 2}
ORDER |= {f"legendre{K}": K - 1 for K in (2, 3, 4, 5)}
BOUND = {1: 0.2, 2: 2e-3, 3: 1e-4, 4: 1e-5, 5: 1e-6}  # of what moves, in half a second of motion at ω dt ≤ 0.15
SINGLE = 2e-4


def options(scheme, solver="lm", linear="dense"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pbad.Options(DT, scheme, solver=solver, linear_solver=linear)


@functools.cache
def many(options):
    """Rollouts of stacked models and states, one program."""
    return jax.jit(jax.vmap(lambda m, s: pbad.rollout(m, s, n_steps=N, options=options)))


def stacked(trees):
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def bound(scheme, solver, dtype) -> float:
    """Of the error, as a fraction of what moves."""
    solved = 1e-4 if solver == "lbfgs" else 0.0
    return BOUND[ORDER[scheme]] + (max(SINGLE, 100 * solved) if dtype == "float32" else solved)


def reference(rate, y, n=100):
    """Runge and Kutta's trajectory of y' = rate(y), (N, ...): n steps for each of DT."""
    h, out = DT / n, []
    for _ in range(N):
        for _ in range(n):
            a = rate(y)
            b = rate(y + 0.5 * h * a)
            c = rate(y + 0.5 * h * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + rate(y + h * c))
        out.append(y)
    return np.array(out)


class Lane(NamedTuple):
    """One system: its model by dtype, its start, and (N,nq) and (N,nv) of what it does."""

    model: Callable
    q: list
    v: list
    at: Callable


SINGLES = ("radau2", "radau3", "dirk2", "dirk3", "legendre3")  # schemes that both precisions are tried by


def cells(systems, schemes, quick, slow, trees=None) -> list:
    """Every system, scheme and linear solver, most in both precisions; thorough but for those named quick or slow.

    trees: the systems for which there is linear_solver="tree", default all.
    """
    out = []
    for system in systems:
        for scheme in schemes:
            by_tree = scheme.startswith("dirk") or scheme in ("radau1", "legendre2")
            by_tree = by_tree and (trees is None or system in trees)
            for linear in ("dense", "tree")[: 1 + by_tree]:
                for dtype in ("float64", "float32")[: 1 + (scheme in SINGLES)]:
                    cell = (system, scheme, linear, dtype)
                    mark = () if cell in quick else pytest.mark.slow if cell in slow else pytest.mark.thorough
                    out.append(pytest.param(*cell, marks=mark))
    return out


def compare(lanes: dict[str, Lane], scheme, linear, dtype, turns=False) -> None:
    """All lanes, as one program, with what they should do; turns: q is a unit quaternion."""
    models = [lane.model(dtype) for lane in lanes.values()]
    states = [pbad.make_state(m, lane.q, lane.v) for m, lane in zip(models, lanes.values())]
    traj, info = many(options(scheme, linear=linear))(stacked(models), stacked(states))
    share, least = min(5 * bound(scheme, "lm", dtype), 0.5), 1e-3 if dtype == "float64" else 1e-2
    for i, (name, lane) in enumerate(lanes.items()):
        status = np.asarray(info.status[i])
        assert not status.any(), (name, status)
        q, v = lane.at()
        got = np.asarray(traj.q[i], float)
        if turns:  # p and −p are one
            got = got * np.sign(np.sum(got * q, axis=1, keepdims=True))
        way, speed = np.ptp(np.vstack([q, [lane.q]]), axis=0).max(), np.abs(np.vstack([v, [lane.v]])).max()
        np.testing.assert_allclose(got, q, rtol=0, atol=share * max(way, least), err_msg=name)
        np.testing.assert_allclose(traj.v[i], v, rtol=0, atol=share * max(speed, least), err_msg=name)


def three_are_three_times_one(model, states, options, near) -> None:
    """A batch of three against each of them alone, to `near` m or rad and ten times that a second."""
    traj, info = pbad.rollout_batch(model, stacked(states), n_steps=N, options=options)
    assert info.ok.all()
    alone = jax.jit(lambda s: pbad.rollout(model, s, n_steps=N, options=options))
    for i, state in enumerate(states):
        one, _ = alone(state)
        np.testing.assert_allclose(traj.q[i], one.q, rtol=0, atol=near)
        np.testing.assert_allclose(traj.v[i], one.v, rtol=0, atol=10 * near)
