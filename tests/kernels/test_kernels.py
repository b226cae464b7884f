"""Kernels of a GPU, interpreted on a CPU, beside what JAX has in their place: all entries, random trees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from guide_cases import DT, case, first, touching
from helpers import DTYPE, FEW, FLOAT32, assert_close, random_model, random_q, slow, thorough

import pbad_jax as pbad
from pbad_jax.errors import OptionError
from pbad_jax.kernels import increments, lanes, linear_solve, pullback, tree_matrix
from pbad_jax.kernels.rows import Forces
from pbad_jax.kernels.tree_matrix import Curvature, Points
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.stage import equation
from pbad_jax.stage.start import step_start
from pbad_jax.step.options import resolve

LANES = 3
TIGHT = 2e-5 if FLOAT32 else 1e-12


@pytest.fixture
def interpreted(monkeypatch):
    """The kernels run on this CPU."""
    monkeypatch.setattr(lanes, "INTERPRETED", True)


# --- one after the other ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7])
def test_a_system_a_lane(interpreted, n):
    rng = np.random.default_rng(n)
    A, b = rng.normal(size=(2, LANES, n, n)) + 3 * np.eye(n), rng.normal(size=(2, LANES, n))
    A[0, 0, 0, 0] = 0.0 if n > 1 else 1.0  # no pivot where elimination looks first
    want = np.linalg.solve(A, b[..., None])[..., 0]
    solve = linear_solve.solve
    assert_close(jax.jit(jax.vmap(jax.vmap(solve)))(jnp.asarray(A, DTYPE), jnp.asarray(b, DTYPE)), want, TIGHT)
    shared = jax.jit(jax.vmap(solve, (None, 0)))(jnp.asarray(A[1, 1], DTYPE), jnp.asarray(b[1], DTYPE))
    assert_close(shared, np.linalg.solve(A[1, 1], b[1].T).T, TIGHT)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_a_system_of_any_size(interpreted, size):
    """Squares of its entries are beyond what single precision has."""
    A = np.array([[[0.0, 2.0], [-1.0, 3.0]]], np.float32) * np.float32(size)
    x = jax.jit(jax.vmap(linear_solve.solve))(jnp.asarray(A), jnp.asarray(A[:, :, 0] + A[:, :, 1]))
    assert_close(x, [[1.0, 1.0]], 2e-5)


def test_a_singular_system_is_not_finite_and_its_neighbours_are(interpreted):
    A = np.stack([np.eye(3), np.zeros((3, 3)), np.diag([1.0, 2.0, 4.0])])
    x = jax.jit(jax.vmap(linear_solve.solve))(jnp.asarray(A, DTYPE), jnp.ones((3, 3), DTYPE))
    np.testing.assert_array_equal(np.isfinite(x).all(axis=1), [True, False, True])
    assert_close(x[2], [1, 0.5, 0.25], TIGHT)


def drawn(topology: str):
    """A random tree, and of every lane frames at two configurations, a field, forces and slopes."""
    model, rng = random_model(topology, 3, spread=1.0), np.random.default_rng(4)
    n = model.topology.n_links

    def some(*shape):
        return jnp.asarray(rng.normal(size=(LANES, *shape)), DTYPE)

    q = jnp.asarray([[random_q(model, rng) for _ in range(2)] for _ in range(LANES)], DTYPE)
    f = jax.jit(jax.vmap(jax.vmap(lambda q: transforms.frames(model, q))))(q)
    links, u = rng.integers(0, n, size=4), rng.normal(size=(4, 2, 4))
    u[:, :, 3] = 1.0
    u[1, 0, 3] = 0.0  # a direction
    return model, f, links, jnp.asarray(u, DTYPE), some


TREES = [FEW[0], *map(slow, FEW[1:])]


@pytest.mark.parametrize("topology", TREES)
@pytest.mark.parametrize("same", [True, slow(False)])
def test_the_matrix_of_a_tree(interpreted, topology, same):
    """At one configuration with its curvature, and between two."""
    model, f, links, u, some = drawn(topology)
    n = model.topology.n_links
    given = (f.T, f.s, some(), some(n, 3, 4), some(4, 3), some(4, 2, 3, 1, 3))

    def of(make, T, s, c, A, force, S):
        b = 0 if same else 1
        curvature = Curvature(A, [Forces(links, u[:, 1], force)]) if same else None
        return make(model, (T[0], T[b]), (s[0], s[b]), c, curvature, [Points(links, u, u[:, :1], S)])

    got, want = (
        jax.jit(jax.vmap(functools.partial(of, make)))(*given) for make in (tree_matrix.tree_matrix, tree_matrix.by_jax)
    )
    assert_close(got, want, TIGHT)


@pytest.mark.parametrize("topology", TREES)
def test_the_sums_of_a_residual(interpreted, topology):
    model, f, links, u, some = drawn(topology)

    def both(T, s, A, force):
        acting = [Forces(links, u[:, 0], force)]
        plain = transforms.Frames(T, T, s)
        want = tree_matrix.parallel.pullback(model, plain, tree_matrix.with_forces(A, acting))
        return pullback.pullback(model, T, s, A, acting), want

    given = (f.T[:, 0], f.s[:, 0], some(model.topology.n_links, 3, 4), some(4, 3))
    got, want = jax.jit(jax.vmap(both))(*given)
    assert_close(got, want, TIGHT)


@pytest.mark.parametrize("topology", TREES)
def test_how_far_links_come(interpreted, topology):
    """Also by a hair, where nothing may be lost to rounding."""
    model, rng = random_model(topology, 3, spread=1.0), np.random.default_rng(5)
    q = jnp.asarray([random_q(model, rng) for _ in range(LANES)], DTYPE)
    size = jnp.asarray([1.0, 1e-3, 1e-9], DTYPE)[:, None]
    delta = size * jnp.asarray(rng.normal(size=(LANES, model.nv)), DTYPE)

    def both(q, delta):
        L = transforms.local_transforms(model, q)
        T = transforms.shift(transforms.transforms_parallel(model, L), jnp.asarray([1.0, 2.0, 3.0], DTYPE))
        z = manifold.retract(model, manifold.identity_increment(model), delta)
        motion = transforms.joint_motion(model, z)
        dT = transforms.increments(model, L, motion)
        got = increments.increments(model, L, T, motion)
        return *got, dT, transforms.with_screws(model, T + dT, L).s

    dT, s, want_dT, want_s = jax.jit(jax.vmap(both))(q, delta)
    for lane in range(LANES):
        assert_close(dT[lane], want_dT[lane], TIGHT)
        assert_close(s[lane], want_s[lane], TIGHT)


# --- together --------------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("scheme", "recurrence"))
def evaluated(model, scheme, state, z, move, duals, recurrence):
    """r, the linear model's r and J; and the duals that it leaves: without them, at the first iterate."""

    def one(state, z, move, duals):
        start = step_start(model, state, jnp.zeros(model.nu, model.dtype), recurrence)
        eq = equation.collocation(model, scheme, jnp.asarray(DT, model.dtype), start, None)
        guide = first(model, start, scheme.m)
        guide = guide if duals is None else guide._replace(duals=duals, T=guide.T + 0.01)
        r, t = eq.evaluate(model, start, z, 1.0, guide)
        return (r, eq.modelled(model, start, t, r), eq.matrix(model, start, t)), t.duals

    return jax.vmap(one)(state, z, move, duals)


@pytest.mark.parametrize("m, at", [slow(1, "step"), thorough(2, "step"), thorough(2, "stages")])
def test_the_stage_equation_of_a_creature_in_contact(interpreted, m, at):
    """Its residual, what the linear model has for it, and the matrix, at the first iterate and as duals lead it."""
    model, scheme = touching(at), pbad.radau(m)
    given = jax.tree.map(lambda *x: jnp.stack(x), *(case(model, scheme, seed) for seed in range(LANES)))
    duals = None
    for _ in range(2):
        got, _ = evaluated(model, scheme, *given, duals, "kernel")
        want, duals = evaluated(model, scheme, *given, duals, "parallel")
        for a, b in zip(got, want):
            assert_close(a, b, 1e-4 if FLOAT32 else 1e-10)


@pytest.mark.parametrize("scheme", [slow("radau2"), thorough("radau1"), thorough("dirk3")])
def test_steps_are_the_same(interpreted, scheme):
    """Statuses, iterations, positions."""
    model = touching("step")
    q = jnp.stack([case(model, pbad.radau(1), seed)[0].q for seed in range(LANES)])
    states = jax.vmap(lambda q: pbad.make_state(model, q=q))(q.at[:, 2].add(0.5))  # out of the depth of the ground
    ended = {}
    for kernel in ("xla", "pallas"):
        step = pbad.make_step(pbad.Options(dt=0.02, scheme=scheme, kernel=kernel))
        ended[kernel] = jax.jit(jax.vmap(step, (None, 0, None)))(model, states, jnp.zeros(model.nu, DTYPE))
    (a, one), (b, other) = ended["xla"], ended["pallas"]
    easy = np.asarray(one.iterations) < 40  # of long ways rounding has a say
    assert easy.any()
    np.testing.assert_array_equal(one.status[easy], 0)
    np.testing.assert_array_equal(other.status[easy], 0)
    np.testing.assert_allclose(one.iterations[easy], other.iterations[easy], atol=1)
    assert_close(b.q[easy], a.q[easy], 1e-4 if FLOAT32 else 1e-9)


@pytest.mark.slow
def test_derivatives_are_those_of_jax(interpreted):
    """Of lanes side by side, in reverse mode; the linear solves and matrices of a root are JAX's own."""
    model = pbad.chain(2, dtype=DTYPE)
    v = jnp.asarray(np.random.default_rng(6).normal(size=(LANES, model.nv)), DTYPE)
    slopes = {}
    for kernel in ("xla", "pallas"):
        step = pbad.make_step(pbad.Options(dt=0.05, scheme="radau1", kernel=kernel))

        def far(v, step=step):
            after, _ = jax.vmap(lambda v: step(model, pbad.make_state(model, v=v)))(v)
            return jnp.sum(jnp.sin(after.q))

        slopes[kernel] = jax.jit(jax.grad(far))(v)
    assert np.abs(slopes["xla"]).max() > 0.01
    assert_close(slopes["pallas"], slopes["xla"], 1e-4 if FLOAT32 else 1e-9)


# --- where they run --------------------------------------------------------------------------------------


def test_a_step_for_a_gpu_has_kernels(monkeypatch):
    """And none where they are not asked for."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    model = pbad.chain(2, dtype=DTYPE)
    states = jax.vmap(lambda v: pbad.make_state(model, v=v))(jnp.zeros((2, model.nv), DTYPE))

    def kernels(kernel: str) -> int:
        step = jax.vmap(pbad.make_step(pbad.Options(dt=0.01, kernel=kernel)), (None, 0))
        return str(jax.make_jaxpr(step)(model, states)).count("pallas_call")

    assert kernels("pallas") >= 4
    assert kernels("auto") == kernels("xla") == 0


def refused(options: dict, words: list[str]):
    with pytest.raises(OptionError) as caught:
        resolve(pbad.Options(dt=0.01, **options), pbad.chain(2))
    assert all(word in str(caught.value) for word in words), caught.value


def test_of_several_gpus_none_has_kernels(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    refused({"kernel": "pallas"}, ["'pallas'", "8 devices", "'xla'"])


def test_on_this_cpu_there_are_none():
    assert not resolve(pbad.Options(dt=0.01), pbad.chain(2)).kernel
    refused({"kernel": "triton"}, ["kernel", "triton", "auto", "xla", "pallas"])
    refused({"kernel": "pallas"}, ["kernel", "'pallas'", "cpu", "'auto'"])


@pytest.mark.parametrize(
    "how", [{"linear_solver": "tree", "scheme": "radau1"}, {"recurrence": "serial"}, {"solver": "lbfgs"}]
)
def test_what_kernels_are_not_for(monkeypatch, how):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not resolve(pbad.Options(dt=0.01, **how), pbad.chain(2)).kernel
    refused({"kernel": "pallas"} | how, ["pallas", next(iter(how)), "'xla'"])
