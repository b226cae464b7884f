"""The O(N) solve against the dense matrix that atom/parallel.py makes, and its sums against dense masks."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, NAMES, TOPOLOGIES, assert_close, error, random_model, random_q, thorough

import pbad_jax as pbad
from pbad_jax.atom import parallel, sweeps
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree

CASES = ["balls", thorough("free"), "three roots", thorough("massless"), "twelve", thorough("chain:10"), "chain:100"]
CLOSE = 1e-4 if FLOAT32 else 1e-10
BACKWARD = 1e-5 if FLOAT32 else 1e-13  # |J x − b| over |J| |x|


@functools.lru_cache
def model_of(name: str, seed: int = 0) -> pbad.Model:
    return pbad.chain(int(name[6:])) if name.startswith("chain:") else random_model(name, seed, spread=1.0)


frames, solve, multiply = jax.jit(transforms.frames), jax.jit(sweeps.solve), jax.jit(sweeps.multiply)


@jax.jit
def parts(model, f, A):
    return parallel.mixed_hess(model, f, f), parallel.pullback_hess(model, f, A)


def dense(model, M):
    """J as the docstring of sweeps.py defines it; the links' own form by their Jacobians."""
    mass, K = parts(model, M.f, M.A)
    J = M.c * mass + K + jnp.diag(M.d)
    if M.form is not None:
        t = tree(model.topology)
        twists = jnp.asarray(t.dof_above_link.T)[:, :, None] * M.f.s[None]  # (N,nv,6)
        J = J + jnp.einsum("lxi,lij,lyj->xy", twists, M.form, twists)
    v = tree(model.topology).ball_v
    return J.at[v[:, :, None], v[:, None, :]].add(M.blocks) if v.size and M.blocks is not None else J


def problem(name: str, seed: int = 0):
    """Model, Matrix and right-hand side, with c such that neither the mass matrix nor what A makes is small."""
    model, rng = model_of(name, seed), np.random.default_rng([seed, 7])
    q = random_q(model, rng) if name in NAMES else rng.normal(size=model.nq) * 0.5
    f = frames(model, jnp.asarray(q, DTYPE), jnp.asarray(rng.normal(size=3), DTYPE))
    n, balls = model.topology.n_links, len(tree(model.topology).balls)
    A = jnp.asarray(rng.normal(size=(n, 3, 4)), DTYPE)
    mass, K = parts(model, f, A)
    stiff = np.abs(K).max()
    c = DTYPE(stiff / np.abs(mass).max())
    d = stiff * rng.uniform(1, 3, model.nv)
    blocks = 0.3 * stiff * rng.normal(size=(balls, 3, 3))
    form = 0.1 * rng.normal(size=(n, 6, 6))
    d, blocks, form, b = (jnp.asarray(x, DTYPE) for x in (d, blocks, form, rng.normal(size=model.nv)))
    return model, sweeps.NewtonMatrix(f, c, A, d, blocks, form), b


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_equals_the_dense_solve(name):
    model, M, b = problem(name)
    J = np.asarray(dense(model, M), float)
    K = np.asarray(parts(model, M.f, M.A)[1], float)
    assert np.abs(K).max() > 0.1 * np.abs(J).max(), "K does not matter here"
    assert error(J.T, J) > 1e-3, "not unsymmetric"
    assert error(dense(model, M._replace(form=None)), J) > 1e-3, "the form does not matter here"
    x = np.asarray(solve(model, M, b), float)
    assert_close(x, np.linalg.solve(J, np.asarray(b, float)), CLOSE, "solution")
    assert np.abs(J @ x - b).max() <= BACKWARD * np.abs(J).max() * np.abs(x).max()
    assert_close(multiply(model, M, b), J @ np.asarray(b, float), 10 * BACKWARD, "product")


@pytest.mark.parametrize("name", ["twelve", "massless", "chain:100"])
def test_mass_matrix_and_indefinite_matrix(name):
    """Two ends: no A, no blocks, little d (articulated bodies); and d so small that J is indefinite."""
    model, M, b = problem(name)
    inertia = M.c * jnp.diag(parts(model, M.f, M.A)[0])
    for field, diagonal in ((0 * M.A, 1e-3 * inertia + 1e-6 * M.d), (M.A, 1e-3 * M.d)):
        plain = M._replace(A=field, d=diagonal, blocks=None, form=None)
        J = np.asarray(dense(model, plain), float)
        x = np.asarray(solve(model, plain, b), float)
        assert np.abs(J @ x - b).max() <= 100 * BACKWARD * np.abs(J).max() * np.abs(x).max()
    assert np.linalg.eigvalsh(J).min() < 0


def test_lanes_and_derivatives():
    lanes = [problem("free", seed)[1:] for seed in range(3)]
    model = model_of("free")
    J = dense(model, lanes[0][0])
    batch = jax.tree.map(lambda *x: jnp.stack(x), *lanes)
    x = jax.jit(jax.vmap(functools.partial(sweeps.solve, model)))(*batch)
    for k, lane in enumerate(lanes):
        assert_close(x[k], solve(model, *lane), 10 * CLOSE)

    def of(solve):
        first, b = lanes[0]

        def value(rest, b):
            return jnp.sum(jnp.sin(solve(model, sweeps.NewtonMatrix(first.f, *rest), b)))

        return jax.jit(jax.grad(value, (0, 1)))(first[1:], b)

    got, want = of(sweeps.solve), of(lambda model, M, b: jnp.linalg.solve(dense(model, M), b))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        assert_close(a, b, CLOSE)
    assert error(J.T, J) > 1e-3


@pytest.mark.parametrize("name", ["twelve", "three roots", "chain:100"])
def test_sums_against_masks(name):
    model = model_of(name)
    above = tree(model.topology).above.astype(float)
    x = np.random.default_rng(0).normal(size=(len(above), 2, 3)).astype(DTYPE)
    tolerance = 1e-5 if FLOAT32 else 1e-14
    assert_close(jax.jit(sweeps.subtree_sum)(model, x), np.einsum("ij,jkl->ikl", above, x), tolerance)
    assert_close(jax.jit(sweeps.ancestor_sum)(model, x), np.einsum("ji,jkl->ikl", above, x), tolerance)


@pytest.mark.parametrize("name", [*TOPOLOGIES, "chain:100"])
def test_schedule(name):
    """Every link once, after its children, in O(N) places."""
    t = model_of(name).topology
    s, n = sweeps.elimination_order(t), t.n_links
    row = {i: r for r, links in enumerate(s.link.tolist()) for i in links if i < n}
    assert sorted(row) == list(range(n))
    assert np.sum(s.link < n) == n
    assert all(p < 0 or row[i] < row[p] for i, p in enumerate(t.link_parent))
    assert s.link.size <= 3 * n


def equations(jaxpr) -> int:
    """All equations of a jaxpr, those inside loops included."""
    count = 0
    for eqn in jaxpr.eqns:
        count += 1
        for p in jax.tree.leaves(eqn.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
            inner = getattr(p, "jaxpr", p)
            count += equations(inner) if hasattr(inner, "eqns") else 0
    return count


def test_program_does_not_grow_with_the_chain():
    def size(name):
        model, *arguments = problem(name)
        return [equations(jax.make_jaxpr(g)(model, *arguments).jaxpr) for g in (sweeps.solve, sweeps.multiply)]

    few = size("chain:10")
    assert few == size("chain:50")
    assert 100 < few[0] < 2000  # the product and the transposed solve, for derivatives, included


@pytest.mark.slow
@pytest.mark.parametrize("name", [thorough("free"), thorough("balls"), "many joints"])
def test_lengths_in_the_mass_matrix(name):
    model, rng = random_model(name, 31), np.random.default_rng(32)
    f = transforms.frames(model, jnp.asarray(random_q(model, rng), DTYPE))
    M, x = sweeps.mass_matrix(model, f), jnp.asarray(rng.normal(size=model.nv), DTYPE)
    dense = np.asarray(parallel.mass_matrix(model, f), float)
    assert_close(sweeps.quadratic(model, M, x), x @ dense @ x, 1e-4 if FLOAT32 else 1e-11)
    assert_close(sweeps.inverse_quadratic(model, M, x), x @ np.linalg.solve(dense, x), 1e-2 if FLOAT32 else 1e-9)


@pytest.mark.parametrize(
    ("moments", "positive"), [((1, 2, 3), True), ((-2, 1, 1), False), ((3, -1, -1), False), ((-1, -2, -3), False)]
)
def test_two_negative_inertias_of_a_ball_are_seen(moments, positive):
    """With a positive determinant, for which they were taken for a positive definite mass."""
    model = pbad.chain(1, joint="ball", dtype=DTYPE)
    S = jnp.diag(jnp.asarray([*moments, 1.0], DTYPE))[None]
    model = dataclasses.replace(model, second_moment=S, anchor=0 * model.anchor)
    M = sweeps.mass_matrix(model, frames(model, model.q0))
    assert bool(sweeps.is_positive_definite(model, M)) == positive
    assert bool(jnp.isnan(sweeps.inverse_quadratic(model, M, jnp.ones(3, DTYPE)))) != positive
