"""Quaternions, exp and log, and the right Jacobian: at every angle, small and near π included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, assert_close, cross_matrix, exp_rotation, rotation_of

from pbad_jax.math import rotations
from pbad_jax.math.small import matmul, matvec
from pbad_jax.math.spatial import compose, homogeneous, tangent_compose

EPS = float(np.finfo(DTYPE).eps)
ANGLES = [0.0, 1e-300, 1e-9, 1e-6, 1e-4, 1e-3, 1.2e-3, 0.01, 0.1, 0.22, 0.23, 0.5, 1.0, 2.0, 3.0, 3.14, np.pi - 1e-6]


def vectors(angle, n=5):
    rng = np.random.default_rng(3)
    axes = np.concatenate([np.eye(3), rng.normal(size=(n, 3))])
    return jnp.asarray(angle * axes / np.linalg.norm(axes, axis=1, keepdims=True), DTYPE)


def reference_exp(w):
    """Half-angle formula in extended precision."""
    w = np.asarray(w, np.longdouble)
    theta = np.sqrt(np.sum(w * w, -1, keepdims=True))
    sinc = np.where(theta > 1e-150, np.sin(theta / 2) / np.where(theta > 1e-150, theta, 1), np.longdouble(0.5))
    return np.concatenate([np.cos(theta / 2), sinc * w], -1)


@pytest.mark.parametrize("angle", [*ANGLES, np.pi, 5.0, 10 * np.pi])
def test_exp(angle):
    w = vectors(angle)
    p = rotations.quaternion_exp(w)
    # exp of a large angle feels the rounding of the angle itself
    assert_close(p, reference_exp(w), 4 * EPS * max(1, angle))
    # the small vector part is exact relative to itself, not only relative to 1
    if 0 < angle < 1:
        assert_close(p[:, 1:], reference_exp(w)[:, 1:], 4 * EPS)


@pytest.mark.parametrize("angle", ANGLES)
def test_log_inverts_exp(angle):
    w = vectors(angle)
    if float(jnp.max(jnp.abs(w))) == 0:
        assert float(jnp.max(jnp.abs(rotations.quaternion_log(rotations.quaternion_exp(w))))) == 0
        return
    assert_close(rotations.quaternion_log(rotations.quaternion_exp(w)), w, 8 * EPS)
    assert_close(rotations.quaternion_log(-rotations.quaternion_exp(w)), w, 8 * EPS, "the double cover")


def test_log_of_half_turn_and_beyond():
    for axis in np.eye(3):
        w = rotations.quaternion_log(jnp.asarray([0.0, *axis], DTYPE))
        assert_close(np.abs(w), np.pi * axis, 4 * EPS)
    p = rotations.quaternion_exp(jnp.asarray([0.0, 5.0, 0.0], DTYPE))
    assert_close(rotations.quaternion_log(p), [0, 5 - 2 * np.pi, 0], 8 * EPS, "the shortest rotation")


@pytest.mark.parametrize("name", ["quaternion_exp", "quaternion_log", "right_jacobian_inverse"])
def test_derivatives_are_finite_at_zero(name):
    f = getattr(rotations, name)
    x = jnp.asarray([1.0, 0, 0, 0] if name == "quaternion_log" else [0.0, 0, 0], DTYPE)
    first, reverse, second = jax.jit(lambda x: (jax.jacfwd(f)(x), jax.jacrev(f)(x), jax.jacfwd(jax.jacfwd(f))(x)))(x)
    assert np.all(np.isfinite(first)) and np.all(np.isfinite(second))
    assert_close(first, reverse, 2 * EPS)
    if name == "quaternion_exp":
        assert_close(first, np.vstack([np.zeros(3), 0.5 * np.eye(3)]), 2 * EPS)
        hess = np.zeros((4, 3, 3))
        hess[0] = -np.eye(3) / 4  # cos(θ/2) = 1 − θ²/8
        assert_close(second, hess, 4 * EPS)
    if name == "quaternion_log":
        assert_close(first[:, 1:], 2 * np.eye(3), 2 * EPS)
    if name == "right_jacobian_inverse":
        for k in range(3):
            assert_close(first[..., k], 0.5 * cross_matrix(np.eye(3)[k]), 2 * EPS)


def log_rotation(R, guess):
    """log by Newton on exp(−w) R = E, independent of the closed form."""
    w = np.array(guess, float)
    for _ in range(5):
        D = np.asarray(exp_series(-w) @ R)
        twice = np.array([D[2, 1] - D[1, 2], D[0, 2] - D[2, 0], D[1, 0] - D[0, 1]])
        w = w + right_jacobian_inverse_numeric(w) @ (0.5 * twice)
    return w


def exp_series(w, *, minus_identity=False):
    W = np.cross(np.eye(3, dtype=np.longdouble), w)
    term = np.eye(3, dtype=np.longdouble)
    total = 0 * term if minus_identity else term
    for k in range(1, 60):
        term = term @ W / k
        total = total + term
    return total


def right_jacobian(w):
    """∫₀¹ exp(−s[w]) ds = Σ (−W)^k/(k+1)!, longdouble: exp(w + δ) = exp(w) exp(Jr δ)."""
    W = np.cross(np.eye(3, dtype=np.longdouble), np.asarray(w, np.longdouble))
    term, total = np.eye(3, dtype=np.longdouble), np.eye(3, dtype=np.longdouble)
    for k in range(1, 60):
        term = term @ (-W) / (k + 1)
        total = total + term
    return total


def right_jacobian_inverse_numeric(w):
    return np.linalg.inv(right_jacobian(w).astype(float))


@pytest.mark.parametrize("angle", [*ANGLES, np.pi, 4.0])
def test_right_jacobian_inverse(angle):
    w = vectors(angle)
    want = [right_jacobian_inverse_numeric(np.asarray(x, float)) for x in w]
    assert_close(rotations.right_jacobian_inverse(w), want, 60 * EPS)


@jax.jit
@jax.vmap
def log_derivative(w):
    p = rotations.quaternion_exp(w)
    along = jax.jacfwd(lambda d: rotations.quaternion_log(rotations.quaternion_product(p, rotations.quaternion_exp(d))))
    return along(jnp.zeros(3, DTYPE))


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-3, 0.3, 2.0, 3.1])
def test_right_jacobian_inverse_is_the_derivative_of_log(angle):
    w = vectors(angle)
    assert_close(log_derivative(w), rotations.right_jacobian_inverse(w), 1e-5 if FLOAT32 else 1e-13)


def test_rotation_of_quaternions():
    rng = np.random.default_rng(0)
    p, r = rng.normal(size=(2, 20, 4))
    p, r = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (p, r))
    P = np.stack([rotation_of(jnp.asarray(x, DTYPE)) for x in p])
    R = np.stack([rotation_of(jnp.asarray(x, DTYPE)) for x in r])
    a, b = jnp.asarray(p, DTYPE), jnp.asarray(r, DTYPE)
    assert_close(rotations.rotation(a), P, 8 * EPS)
    assert_close(rotations.rotation(3 * a), P, 8 * EPS, "not normalised")
    assert_close([rotations.rotation_numpy(3 * x) for x in p], P, 8 * EPS, "numpy")
    assert_close(rotations.rotation(rotations.quaternion_product(a, b)), P @ R, 16 * EPS)
    assert_close(rotations.rotation(rotations.quaternion_inverse(a)), np.swapaxes(P, 1, 2), 8 * EPS)
    assert_close(jnp.linalg.norm(rotations.normalise(7 * a), axis=-1), np.ones(20), 4 * EPS)


@pytest.mark.parametrize("angle", [1e-12, 1e-7, 1e-3, 0.1, 1.0])
def test_rotation_minus_identity_does_not_cancel(angle):
    w = vectors(angle)
    for got, w_i in zip(np.asarray(rotations.rotation_minus_identity(rotations.quaternion_exp(w)), float), w):
        want = exp_series(np.asarray(w_i, np.longdouble), minus_identity=True)
        assert_close(got, want, 8 * EPS)
        assert_close(np.diag(got), np.diag(want), 8 * EPS, "the diagonal, which is of second order")


def test_small_matrix_products():
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(2, 5, 4, 4)).astype(DTYPE)
    A[:, 3], B[:, 3] = (0, 0, 0, 1), (0, 0, 0, 1)
    x = rng.normal(size=(5, 4)).astype(DTYPE)
    assert_close(matmul(A, B), A @ B, 8 * EPS)
    assert_close(matvec(jnp.asarray(A), jnp.asarray(x)), np.einsum("bij,bj->bi", A, x), 8 * EPS)
    assert_close(compose(A[:, :3], B[:, :3]), (A @ B)[:, :3], 8 * EPS)
    assert_close(homogeneous(jnp.asarray(A[:, :3])), A, 0)
    D = B.copy()
    D[:, 3] = 0
    assert_close(tangent_compose(A[:, :3], D[:, :3]), (A @ D)[:, :3], 8 * EPS)
    assert_close(homogeneous(jnp.asarray(D[:, :3]), last=0.0), D, 0)


def test_hat_and_vee():
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 3)).astype(DTYPE)
    A = rng.normal(size=(3, 3)).astype(DTYPE)
    assert_close(rotations.hat(jnp.asarray(a)) @ b, np.cross(a, b), 4 * EPS)
    assert_close(np.sum(rotations.hat(jnp.asarray(a)) * A), a @ rotations.vee(jnp.asarray(A)), 20 * EPS)


def test_dense_exp_is_a_rotation():
    """The judge of the other files is judged here."""
    w = np.array([0.3, -0.2, 0.1])
    assert_close(exp_rotation(jnp.asarray(w, DTYPE)), exp_series(w), 1e-6 if FLOAT32 else 1e-9)
    assert_close(log_rotation(exp_series(w).astype(float), w + 0.01), w, 1e-12)


@jax.jit
def jacobian_by_autodiff(w):
    """exp(w)⁻¹ ∂exp(w)/∂w: twice the vector part of p* ⊗ ∂p."""
    p, dp = rotations.quaternion_exp(w), jax.jacfwd(rotations.quaternion_exp)(w)
    columns = jax.vmap(lambda d: rotations.quaternion_product(rotations.quaternion_inverse(p), d))(dp.T)
    return 2 * columns[:, 1:].T


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-20, 1e-9, 1e-4, 5e-3, 0.0099999, 0.0100001, 0.3, 1.0, 3.1, 6.2, 30.0])
def test_right_jacobian(size):
    w = np.random.default_rng(int(size * 100)).normal(size=(6, 3))
    w = jnp.asarray(size * w / np.linalg.norm(w, axis=1)[:, None], DTYPE)
    want = np.stack([jacobian_by_autodiff(x) for x in w])
    got = rotations.right_jacobian(w)
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(got, want, atol=1e-11 if not FLOAT32 else 1e-4)
    if size < 3:  # the two functions of joints.py are each other's inverses
        both = matmul(got, rotations.right_jacobian_inverse(w))
        np.testing.assert_allclose(both, np.broadcast_to(np.eye(3), both.shape), atol=1e-11 if not FLOAT32 else 1e-4)


def test_right_jacobian_is_differentiable_at_zero():
    slope = jax.jacfwd(rotations.right_jacobian)(jnp.zeros(3, DTYPE))
    want = -0.5 * np.stack([np.asarray(rotations.hat(jnp.asarray(e, DTYPE))) for e in np.eye(3)], axis=-1)
    np.testing.assert_allclose(slope, want, atol=1e-7)
