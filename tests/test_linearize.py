"""A and B of a step: against differences of the step, chained, in lanes, and what they cost."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, assert_close, central_difference, move

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, Status

quick: Any = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # compiling is the cost
ROUNDING = 1e-4 if FLOAT32 else 1e-12


@functools.cache
def creature() -> pbad.Model:
    """A free torso, an arm on a ball, a forearm on a driven hinge; nv = 10."""

    def body(name, parent, joint):
        return Body(
            name, 1.0, (0.02, 0.01, -0.1), np.diag([2.0, 3.0, 4.0]) * 1e-2, parent, (0.1, 0, -0.2), joints=[joint]
        )

    bodies = [
        body("torso", None, Joint("free", name="root")),
        body("arm", "torso", Joint("ball", name="shoulder", stiffness=3.0, damping=0.3)),
        body("forearm", "arm", Joint("hinge", (0, 1, 0), name="elbow", damping=0.1)),
    ]
    return pbad.build_model(bodies, actuators=[Actuator("elbow", gain=2.0, bias=(0.1, -1.0, -0.2))], dtype=DTYPE)


def options(scheme: str) -> pbad.Options:
    return pbad.Options(dt=0.05, scheme=scheme, tolerance=None if FLOAT32 else 1e-14)


def start(seed: int = 0) -> tuple[pbad.State, jax.Array]:
    model, rng = creature(), np.random.default_rng(seed)
    q = pbad.retract(model, model.q0, jnp.asarray(rng.normal(size=model.nv), DTYPE))
    return pbad.make_state(model, q, rng.normal(size=model.nv)), jnp.asarray(rng.normal(size=model.nu), DTYPE)


@functools.cache
def compiled(scheme: str):
    """What is under test, inside a jit of the caller; its state is also the step of the differences."""
    how = options(scheme)
    return quick(lambda model, state, u: pbad.linearize(model, state, u, how))


def by_differences(scheme: str, state, u, h: float) -> np.ndarray:
    """(n,n + nu), fourth order, moved and compared in numpy's own tangent space."""
    model, linearized = creature(), compiled(scheme)
    nv, history = model.nv, "legendre" in scheme
    n = (3 if history else 2) * nv
    there = linearized(model, state, u).state

    def at(y):
        q, v = move(model, state.q, y[:nv]), np.asarray(state.v) + y[nv : 2 * nv]
        moved = dataclasses.replace(state, q=jnp.asarray(q, DTYPE), v=jnp.asarray(v, DTYPE))
        if history:
            moved = dataclasses.replace(moved, history=jnp.asarray(move(model, state.history, y[2 * nv : n]), DTYPE))
        end = linearized(model, moved, u + jnp.asarray(y[n:], DTYPE)).state
        x = [pbad.difference(model, there.q, end.q), end.v]
        x += [pbad.difference(model, there.history, end.history)] if history else []
        return np.concatenate(x)

    return central_difference(at, n + model.nu, h)


@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau1", "radau2", pytest.param("legendre3", marks=pytest.mark.slow)])
def test_equals_differences(scheme):
    """A free joint, a ball, a driven hinge; of legendre3 the second step, whose history is a state of its own."""
    linearized = compiled(scheme)
    state, u = start()
    if "legendre" in scheme:
        state = linearized(creature(), state, u).state
    got = linearized(creature(), state, u)
    assert got.info.status == Status.CONVERGED
    J = by_differences(scheme, state, u, 1e-3)
    found = np.concatenate([got.A, got.B], axis=1)
    print(scheme, "worst entry", np.abs(found - J).max() / np.abs(J).max())
    assert_close(found, J, 1e-6)
    assert np.abs(got.B).max() > 1e-3


def test_lanes_and_dt():
    """Under vmap what it is alone; another dt reaches the step; a lane that failed before is zero, alone."""
    model, how = creature(), options("radau1")
    states, controls = jax.tree.map(lambda *x: jnp.stack(x), *(start(seed) for seed in range(3)))
    states = dataclasses.replace(states, status=states.status.at[2].set(int(Status.FROZEN)))
    dt = jnp.asarray([0.05, 0.02, 0.05], DTYPE)
    lanes = quick(jax.vmap(lambda s, u, dt: pbad.linearize(model, s, u, how, dt)))(states, controls, dt)
    alone = compiled("radau1")(model, *start(0))
    assert_close(lanes.A[0], alone.A, ROUNDING)
    assert_close(lanes.B[0], alone.B, ROUNDING)
    assert np.abs(lanes.A[1, :6, 10:16] - 0.02 * np.eye(6)).max() < 0.01  # δq' ≈ δq + dt δv
    assert not lanes.A[2].any() and not lanes.B[2].any()
    assert lanes.info.status.tolist() == [Status.CONVERGED, Status.CONVERGED, Status.FROZEN]


def solves(jaxpr, inside: tuple[str, ...] = ()):
    """The linear solves, (primitives around them, shape of the right side), and the shapes of all matrices factored."""
    systems, factored = [], []
    for e in jaxpr.eqns:
        if e.primitive.name == "custom_linear_solve":
            systems.append((inside, e.outvars[0].aval.shape))
        if e.primitive.name == "lu":
            factored.append(e.invars[0].aval.shape)
        for part in jax.tree.leaves(
            tuple(e.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                more, matrices = solves(part, (*inside, e.primitive.name))
                systems, factored = systems + more, factored + matrices
    return systems, factored


def test_newtons_matrix_is_factored_once_for_all_directions():
    """One solve outside the solver's loop has as many right sides as directions; no matrix has lanes."""
    model, how = creature(), options("radau2")
    jaxpr = jax.make_jaxpr(lambda s, u: pbad.linearize(model, s, u, how))(*start()).jaxpr
    systems, factored = solves(jaxpr)
    unknowns, directions = 2 * model.nv, 2 * model.nv + model.nu
    outside = [shape for inside, shape in systems if "while" not in inside]
    assert [s for s in outside if unknowns in s] == [(directions, unknowns)]
    assert set(factored) <= {(unknowns, unknowns), (model.nv, model.nv)}


def test_wrong_calls():
    model, (state, _) = creature(), start()
    with pytest.raises(pbad.OptionError, match="linearize needs options"):
        pbad.linearize(model, state)
    with pytest.raises(pbad.StateError, match="control has shape"):
        pbad.linearize(model, state, jnp.zeros(3, DTYPE), options("radau1"))
    with pytest.raises(pbad.StateError, match="q has shape"):
        pbad.linearize(pbad.chain(5), pbad.make_state(pbad.chain(5, joint="hinge")), None, options("radau1"))
