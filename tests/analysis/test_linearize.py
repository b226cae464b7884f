"""A and B of a step: against differences of the step, chained, in lanes, and what they cost."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, assert_close, move, thorough

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, Status


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


SLOW = ("dirk2", "legendre3")
H = 1e-3
AROUND = np.array([1, -1, 2, -2]) * H


def near(scheme: str, state, u) -> list[tuple[pbad.State, jax.Array]]:
    """States and controls around these, four along every entry of (x, u), moved in numpy's own tangent space."""
    model, history = creature(), "legendre" in scheme
    nv = model.nv
    n = (3 if history else 2) * nv
    out = []
    for y in (h * e for e in np.eye(n + model.nu) for h in AROUND):
        q, v = move(model, state.q, y[:nv]), np.asarray(state.v) + y[nv : 2 * nv]
        moved = dataclasses.replace(state, q=jnp.asarray(q, DTYPE), v=jnp.asarray(v, DTYPE))
        if history:  # which led to that q and v: they are no kick
            past = jnp.asarray(move(model, state.history, y[2 * nv : n]), DTYPE)
            moved = dataclasses.replace(moved, history=past, history_q=moved.q, history_v=moved.v)
        out.append((moved, u + jnp.asarray(y[n:], DTYPE)))
    return out


def by_differences(scheme: str, there: pbad.State, ends: list[pbad.State]) -> np.ndarray:
    """[A B], fourth order, from the ends of the steps from `near`."""
    columns = []
    for end in ends:
        x = [pbad.difference(creature(), there.q, end.q), end.v]
        x += [pbad.difference(creature(), there.history, end.history)] if "legendre" in scheme else []
        columns.append(np.concatenate(x))
    y = np.array(columns, float).reshape(len(columns) // 4, 4, -1)
    return ((8 * (y[:, 0] - y[:, 1]) - (y[:, 2] - y[:, 3])) / (12 * H)).T


def assert_is_derivative(got: pbad.Linearization, J: np.ndarray) -> None:
    found = np.concatenate([got.A, got.B], axis=1)
    print("worst entry", np.abs(found - J).max() / np.abs(J).max())
    assert_close(found, J, 1e-6)
    assert np.abs(got.B).max() > 1e-3


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau2", thorough("dirk2"), thorough("legendre3")])
def test_equals_differences(scheme):
    """A free joint, a ball, a driven hinge, in a jit; of legendre3 the second step, whose history is a state too."""
    model, how = creature(), options(scheme)
    linearized = jax.jit(lambda state, u: pbad.linearize(model, state, u, how))
    state, u = start()
    if "legendre" in scheme:
        state = linearized(state, u).state
    got = linearized(state, u)
    assert got.info.status == Status.CONVERGED
    ends = [linearized(*x).state for x in near(scheme, state, u)]
    assert_is_derivative(got, by_differences(scheme, got.state, ends))


@pytest.mark.thorough
def test_lanes():
    """Under vmap, the differences too; another dt reaches the step; a lane that failed before is zero, alone."""
    model, how = creature(), options("radau1")
    state, u = start()
    frozen = dataclasses.replace(state, status=jnp.int8(Status.FROZEN))
    given = [(state, u), (state, u), (frozen, u), *near("radau1", state, u)]
    states, controls = jax.tree.map(lambda *x: jnp.stack(x), *given)
    dt = jnp.asarray([0.05, 0.02] + [0.05] * (len(given) - 2), DTYPE)
    lanes = jax.jit(jax.vmap(lambda s, u, dt: pbad.linearize(model, s, u, how, dt)))(states, controls, dt)
    first, other, failed, *around = (jax.tree.map(lambda x, i=i: x[i], lanes) for i in range(len(given)))
    if not FLOAT32:
        assert_is_derivative(first, by_differences("radau1", first.state, [x.state for x in around]))
    assert np.abs(other.A[:6, 10:16] - 0.02 * np.eye(6)).max() < 0.01  # δq' ≈ δq + dt δv
    assert not failed.A.any() and not failed.B.any()
    assert [int(x.info.status) for x in (first, other, failed)] == [Status.CONVERGED, Status.CONVERGED, Status.FROZEN]


@pytest.mark.slow
def test_a_failed_step_is_zero_or_on_request_nan():
    model = pbad.chain(1, dtype=DTYPE)
    state = dataclasses.replace(pbad.make_state(model), v=jnp.full(model.nv, jnp.nan, DTYPE))
    for failed in ("zero", "nan"):
        got = pbad.linearize(model, state, None, pbad.Options(dt=0.05, scheme="radau1", failed_gradient=failed))
        assert got.info.status == Status.NONFINITE_INPUT and not got.info.grad_ok
        assert np.all(np.isnan(got.A)) if failed == "nan" else not got.A.any()


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
    assert {len(shape) for shape in factored} == {2}  # with their right sides as further columns
    assert {rows for rows, _ in factored} <= {unknowns, model.nv, 2}  # 2: the scheme's table, to judge the branch


def test_wrong_calls():
    model, (state, _) = creature(), start()
    with pytest.raises(pbad.OptionError, match="linearize needs options"):
        pbad.linearize(model, state)
    with pytest.raises(pbad.StateError, match="control has shape"):
        pbad.linearize(model, state, jnp.zeros(3, DTYPE), options("radau1"))
    with pytest.raises(pbad.StateError, match="belongs to a model"):
        pbad.linearize(pbad.chain(5), pbad.make_state(pbad.chain(5, joint="hinge")), None, options("radau1"))
