"""The small dense solves: one lane (LAPACK) and many (written out) agree, pivot, differentiate, and never hang."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32

import pbad_jax as pbad
from pbad_jax.math import batched

EPS = float(jnp.finfo(DTYPE).eps)


def systems(n, lanes, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(lanes, n, n))
    return jnp.asarray(A, DTYPE), jnp.asarray(rng.normal(size=(lanes, n)), DTYPE)


@pytest.mark.parametrize("n", [1, 2, 8, 9, 20, 70])
def test_lanes_are_solved_as_one_lane_is(n):
    A, b = systems(n, 5)
    one = jnp.stack([batched.solve(A_i, b_i) for A_i, b_i in zip(A, b)])
    many = jax.vmap(batched.solve)(A, b)
    for x in (one, many):
        size = jnp.linalg.norm(A, axis=(1, 2)) * jnp.linalg.norm(x, axis=1)
        assert jnp.max(jnp.linalg.norm(jnp.einsum("bij,bj->bi", A, x) - b, axis=1) / size) < 50 * n * EPS


def test_pivots_are_chosen_and_rows_come_back_in_order():
    A = jnp.asarray([[[0, 2, 0], [0, 0, 3], [1, 0, 0]], [[1e-30, 1, 0], [1, 1, 0], [0, 0, 1]]], DTYPE)
    b = jnp.asarray([[2, 6, 5], [1, 2, 3]], DTYPE)
    np.testing.assert_allclose(jax.vmap(batched.solve)(A, b), [[5, 1, 2], [1, 1, 3]], rtol=10 * EPS)


@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1e3, 1e8])
@pytest.mark.parametrize("n", [1, 3, 20])
def test_the_unit_of_a_system_does_not_matter(n, unit):
    """Large pivots cancel nothing: tonnes are solved as well as grams."""
    A, b = systems(n, 4)
    A = A + 3 * n * jnp.eye(n, dtype=DTYPE)[None]
    x, y = jax.vmap(batched.solve)(A, b), jax.vmap(batched.solve)(unit * A, unit * b)
    np.testing.assert_allclose(y, x, rtol=0, atol=20 * EPS * float(jnp.max(jnp.abs(x))))


def test_a_singular_lane_is_not_finite_and_touches_no_other():
    A, b = systems(6, 3)
    sick = A.at[1, :, 2].set(0.0)
    x, y = jax.vmap(batched.solve)(A, b), jax.vmap(batched.solve)(sick, b)
    assert not np.all(np.isfinite(y[1]))
    np.testing.assert_array_equal(x[np.array([0, 2])], y[np.array([0, 2])])
    assert not np.all(np.isfinite(batched.solve(sick[1], b[1])))


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_one_matrix_or_one_right_side_for_all_lanes(axes):
    A, b = systems(5, 4)
    args = (A if axes[0] == 0 else A[0], b if axes[1] == 0 else b[0])
    x = jax.vmap(batched.solve, axes)(*args)
    full = np.broadcast_to(np.asarray(args[0], float), A.shape), np.broadcast_to(np.asarray(args[1], float), b.shape)
    np.testing.assert_allclose(
        x, np.linalg.solve(full[0], full[1][..., None])[..., 0], rtol=2000 * EPS, atol=2000 * EPS
    )


def test_lanes_of_lanes():
    A, b = systems(7, 6)
    nested = jax.vmap(jax.vmap(batched.solve))(A.reshape(2, 3, 7, 7), b.reshape(2, 3, 7))
    np.testing.assert_allclose(nested.reshape(6, 7), jax.vmap(batched.solve)(A, b), rtol=2000 * EPS, atol=2000 * EPS)


@pytest.mark.float64
@pytest.mark.parametrize("many", [False, True])
def test_derivatives_of_a_solve_in_both_directions(many):
    A, b = systems(4, 2)
    dA, db = systems(4, 2, seed=1)
    f = jax.vmap(batched.solve) if many else batched.solve
    if not many:
        A, b, dA, db = A[0], b[0], dA[0], db[0]
    x, dx = jax.jvp(f, (A, b), (dA, db))
    expected = jnp.linalg.solve(A, (db - jnp.einsum("...ij,...j->...i", dA, x))[..., None])[..., 0]
    np.testing.assert_allclose(dx, expected, rtol=1e-10, atol=1e-12)
    w = jnp.cos(jnp.arange(x.size, dtype=DTYPE)).reshape(x.shape)
    A_bar, b_bar = jax.vjp(f, A, b)[1](w)
    np.testing.assert_allclose(jnp.sum(A_bar * dA) + jnp.sum(b_bar * db), jnp.sum(w * dx), rtol=1e-10)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_cholesky_factors(n):
    A, _ = systems(n, 3)
    M = A @ jnp.swapaxes(A, 1, 2) + jnp.eye(n, dtype=DTYPE)[None]
    tolerance = 1e-3 if FLOAT32 else 1e-10
    for found in (
        jax.vmap(batched.cholesky)(M),
        batched.CholeskyFactor(*map(jnp.stack, zip(*(batched.cholesky(m) for m in M)))),
    ):
        np.testing.assert_allclose(found.factor @ jnp.swapaxes(found.factor, 1, 2), M, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found.inverse @ found.factor, np.broadcast_to(np.eye(n), M.shape), atol=tolerance)
        np.testing.assert_array_equal(jnp.triu(found.factor, 1), 0)
    assert not np.all(np.isfinite(jax.vmap(batched.cholesky)(-M).factor))


def test_rarely_is_right_in_every_lane_and_left_out_where_no_lane_wants_it():
    calls = []

    def seldom(x):
        jax.debug.callback(lambda: calls.append(1))
        return -x

    f = jax.jit(jax.vmap(lambda w, x: batched.cond_if_any(w, lambda x: 2 * x, seldom, x)))
    x = jnp.arange(3, dtype=DTYPE)
    np.testing.assert_array_equal(f(jnp.array([False, False, False]), x), 2 * x)
    jax.effects_barrier()
    assert not calls
    np.testing.assert_array_equal(f(jnp.array([False, True, False]), x), [0, -1, 4])
    jax.effects_barrier()
    assert calls
    np.testing.assert_array_equal(batched.cond_if_any(jnp.array(True), lambda x: 2 * x, seldom, x), -x)


@pytest.mark.parametrize("shared", [False, True])
def test_what_takes_long_is_computed_for_the_lanes_that_want_it_and_no_others(shared):
    calls = []

    def seldom(x, y):
        jax.debug.callback(lambda x: calls.append(float(x)), x)
        return {"of": -x * y}

    def one(w, x, y):
        return batched.cond_if_any(w, lambda x, y: {"of": 2 * x}, seldom, x, y, takes_long=True)

    x, y = jnp.arange(4, dtype=DTYPE), jnp.asarray(3.0, DTYPE)
    f = jax.jit(jax.vmap(one, (0, 0, None if shared else 0)))
    found = f(jnp.array([False, True, False, True]), x, y if shared else jnp.broadcast_to(y, 4))
    np.testing.assert_array_equal(found["of"], [0, -3, 4, -9])
    jax.effects_barrier()
    assert jax.default_backend() != "cpu" or sorted(calls) == [1, 3]


@pytest.mark.parametrize("n, columns", [(5, 3), (40, 1), (40, 40), (61, 20)])
def test_large_systems_with_many_right_hand_sides(n, columns):
    """Substitution by halves, or OpenBLAS wakes its threads."""
    rng = np.random.default_rng(n)
    A, b = rng.normal(size=(n, n)) + np.sqrt(n) * np.eye(n), rng.normal(size=(n, columns))
    A, b = jnp.asarray(A, DTYPE), jnp.asarray(b, DTYPE)
    tolerance = 2e-3 if FLOAT32 else 1e-11
    np.testing.assert_allclose(batched.solve(A, b), np.linalg.solve(A, b), rtol=tolerance, atol=tolerance)


def test_hundreds_of_vmapped_lanes_return_and_equal_single_ones():
    """jaxlib's batched LAPACK calls stopped for ever here, with 48 lanes or more on two cores."""
    model = pbad.chain(6)
    step = pbad.make_step(pbad.Options(dt=0.05, scheme="radau1"))
    angles = np.random.default_rng(3).uniform(-1.5, 1.5, (300, model.nq))
    states = jax.vmap(lambda q: pbad.make_state(model, q))(jnp.asarray(angles, DTYPE))
    many, info = jax.jit(jax.vmap(lambda s: step(model, s)))(states)
    one, _ = jax.jit(lambda s: jax.lax.map(lambda s: step(model, s), s))(states)
    assert np.all(info.status == pbad.Status.CONVERGED)
    np.testing.assert_allclose(many.q, one.q, atol=1e-4 if FLOAT32 else 1e-9)


@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_eigenvalues_to_the_left(n):
    """Also of matrices whose eigenvalues are of very different sizes, and nearly on the axis."""
    rng = np.random.default_rng(n)
    A = rng.normal(size=(24, n, n)) + np.linspace(0, 1.5 * np.sqrt(n), 24)[:, None, None] * np.eye(n)
    A[::3] = A[::3] @ np.diag(np.geomspace(1, 1e4, n))
    values = np.linalg.eigvals(A)
    want = np.sum(values.real < 0, axis=1)
    sure = np.min(np.abs(values.real) / np.abs(values), axis=1) > 1e-4
    assert sure.sum() > 20 and {0, 1} <= set(want)
    A = jnp.asarray(A, DTYPE)
    np.testing.assert_allclose(jax.vmap(batched.eigenvalues_to_the_left)(A)[sure], want[sure], atol=0.1)
    one = jax.jit(batched.eigenvalues_to_the_left)
    np.testing.assert_allclose(np.array([one(a) for a in A])[sure], want[sure], atol=0.1)
    assert not one(jnp.zeros((n, n), DTYPE)) < 0.5, "a singular matrix passes no test"


def test_tangents_of_one_lane_share_a_factorisation():
    """Many right sides of one matrix are one LU, in lanes of lanes too; so is the Jacobian of a solve."""
    A, b = systems(6, 4)
    right = jnp.asarray(np.random.default_rng(1).normal(size=(4, 9, 6)), DTYPE)
    text = str(jax.make_jaxpr(jax.vmap(batched.solve, (None, 0)))(A[0], right[0]))
    assert "f64[6,6]" in text or "f32[6,6]" in text
    assert "[9,6,6]" not in text, "the matrix is copied for every right side"
    each = jax.vmap(jax.vmap(batched.solve, (None, 0)))(A, right)
    want = np.linalg.solve(np.asarray(A, float)[:, None], np.asarray(right, float)[..., None])[..., 0]
    np.testing.assert_allclose(each, want, rtol=2000 * EPS, atol=2000 * EPS)
    for jacobian in (jax.jacfwd, jax.jacrev):
        by_b = jacobian(batched.solve, 1)(A[0], b[0])
        np.testing.assert_allclose(by_b, np.linalg.inv(np.asarray(A[0], float)), rtol=2000 * EPS, atol=2000 * EPS)
        lanes_by_b = jax.vmap(jacobian(batched.solve, 1))(A, b)
        np.testing.assert_allclose(lanes_by_b, np.linalg.inv(np.asarray(A, float)), rtol=2000 * EPS, atol=2000 * EPS)


def test_the_positive_part_is_that_of_the_eigenvalues():
    """Of random symmetric matrices, singular ones and none, one lane and many: the negative eigenvalues become zero."""
    rng = np.random.default_rng(5)
    turns = np.linalg.qr(rng.normal(size=(6, 7, 7)))[0]
    values = rng.normal(size=(6, 7))
    values[1, :3], values[2], values[3], values[4] = 0.0, np.abs(values[2]), -np.abs(values[3]), 0.0
    A = np.einsum("kij,kj,klj->kil", turns, values, turns)
    want = np.einsum("kij,kj,klj->kil", turns, np.maximum(values, 0.0), turns)
    tolerance = 1e-5 if FLOAT32 else 1e-9
    many = jax.jit(jax.vmap(batched.positive_part))(jnp.asarray(A, DTYPE))
    np.testing.assert_allclose(many, want, atol=tolerance)
    np.testing.assert_allclose(jax.jit(batched.positive_part)(jnp.asarray(A[0], DTYPE)), want[0], atol=tolerance)
