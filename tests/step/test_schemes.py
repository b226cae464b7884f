"""The tables of schemes.py against independent formulas, their stability, and what a step makes of them."""

import dataclasses
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, assert_close, spring_constant, sprung_slide, thorough

import pbad_jax as pbad
from pbad_jax import schemes

pytestmark = pytest.mark.float64

# Radau IIA, Hairer & Wanner, Solving ODEs II, tables IV.5.5 and 5.6, typed in from the book
R6 = np.sqrt(6)
BUTCHER = {
    1: np.array([[1.0]]),
    2: np.array([[5 / 12, -1 / 12], [3 / 4, 1 / 4]]),
    3: np.array([
        [(88 - 7 * R6) / 360, (296 - 169 * R6) / 1800, (-2 + 3 * R6) / 225],
        [(296 + 169 * R6) / 1800, (88 + 7 * R6) / 360, (-2 - 3 * R6) / 225],
        [(16 - R6) / 36, (16 + R6) / 36, 1 / 9],
    ]),
}  # fmt: skip
# reliability.md M2
LEGENDRE2 = {1e-2: 0.99504, 0.1: 0.95346, 1: 0.70711, 4: 0.44721, 10: 0.30151, 100: 0.09950, 1e4: 0.0100, 1e8: 1.0e-4}
SWEEP = [*LEGENDRE2, 1e3, 1e6, 25.0, 0.5]
SCHEMES = {
    **{f"radau{s}": pbad.radau(s) for s in (1, 2, 3)},
    "legendre2": pbad.legendre(2),
    **{f"dirk{p}": pbad.dirk(p) for p in (2, 3, 4)},
}
COLLOCATIONS = {**SCHEMES, **{f"legendre{K}": pbad.legendre(K) for K in (3, 4, 5)}}
COLLOCATIONS = {name: s for name, s in COLLOCATIONS.items() if isinstance(s, pbad.Scheme)}


@pytest.mark.parametrize("s", [1, 2, 3])
def test_radau_is_radau_iia(s):
    scheme, A = pbad.radau(s), BUTCHER[s]
    Dn, C, e = np.array(scheme.D), np.array(scheme.C), np.array(scheme.e)
    assert_close(Dn, np.linalg.inv(A), 1e-14, "Dn = A⁻¹")
    assert_close(C, np.linalg.inv(A @ A), 2e-14, "C = A⁻²")
    assert_close(e, -np.linalg.inv(A) @ np.ones(s), 1e-14, "d0 = −A⁻¹ 1: the rate of a constant is zero")
    assert_close(scheme.nodes, A.sum(1), 1e-14, "nodes are the row sums of A")
    assert scheme.order == 2 * s - 1 and scheme.m == s and not scheme.has_history and scheme.nodes[-1] == 1


@pytest.mark.parametrize("p", [2, 3, 4])
def test_dirk_tables_satisfy_the_order_conditions(p):
    """All trees up to order p (Hairer, Norsett, Wanner II.2), stiff accuracy, and R(∞) = 0."""
    A = np.array(pbad.dirk(p).A)
    b, c, one = A[-1], A.sum(1), np.ones(len(A))
    conditions = {
        1: [(b @ one, 1)],
        2: [(b @ c, 1 / 2)],
        3: [(b @ c**2, 1 / 3), (b @ A @ c, 1 / 6)],
        4: [(b @ c**3, 1 / 4), (b * c @ A @ c, 1 / 8), (b @ A @ c**2, 1 / 12), (b @ A @ A @ c, 1 / 24)],
    }
    for order in range(1, p + 1):
        for got, want in conditions[order]:
            assert abs(got - want) < 1e-13, (order, got, want)
    assert p == 4 or any(abs(got - want) > 1e-3 for got, want in conditions[p + 1])
    assert_close(pbad.dirk(p).nodes, c, 1e-14)
    assert np.ptp(np.diag(A)) < 1e-15 and not np.triu(A, 1).any() and abs(c[-1] - 1) < 1e-14
    assert abs(1 - b @ np.linalg.inv(A) @ one) < 1e-12  # R(∞)
    y = np.logspace(-3, 3, 400)
    radius = [abs(1 + 1j * w * b @ np.linalg.solve(np.eye(len(A)) - 1j * w * A, one)) for w in y]
    assert max(radius) <= 1 + 1e-12


def test_quadrature_weights():
    for scheme in COLLOCATIONS.values():
        a, w = np.array(scheme.nodes), np.array(scheme.weights)
        for n in range(scheme.m):
            assert abs(w @ a**n - 1 / (n + 1)) < 1e-12, scheme


@pytest.mark.parametrize("K, why", [(4, "3.2"), (5, "6.8")])
def test_unstable_schemes_warn_once(K, why):
    schemes._warn_once.cache_clear()
    with pytest.warns(UserWarning, match=rf"legendre\({K}\).*{why}"):
        pbad.legendre(K)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pbad.legendre(K)


@pytest.mark.parametrize("name", COLLOCATIONS)
def test_polynomials_of_low_degree_are_exact(name):
    """Rates and accelerations of 1, t, t² at the nodes, from increments alone (the zero-sum rule is their form)."""
    s = COLLOCATIONS[name]
    a, D, C, e = (np.array(x) for x in (s.nodes, s.D, s.C, s.e))
    d, c = (np.array(s.d), np.array(s.c)) if s.has_history else (np.zeros(s.m), np.zeros(s.m))
    h = s.history_node
    degree = s.m + (1 if s.has_history else 0)
    for n in range(1, degree + 1):  # T = t^n has increments t^n, velocity at 0 of δ_{n1}
        assert_close(D @ a**n + d * h**n, n * a ** (n - 1), 1e-12, f"rate of t^{n}")
        want = n * (n - 1) * a ** (n - 2.0) if n > 1 else 0 * a
        got = C @ a**n + c * h**n + e * (n == 1)
        assert np.abs(got - want).max() < 1e-11, f"acceleration of t^{n}"


def test_legendre_2_is_equation_5_of_the_paper():
    s = pbad.legendre(2)
    # (T_{k+1} − 2 T_k + T_{k−1})/dt² from increments ΔT_{k+1} and ΔT_{k−1}
    assert_close(s.C, [[1.0]], 1e-15)
    assert_close(s.c, [1.0], 1e-15)
    assert s.e == (0.0,) and s.history_node == -1.0
    assert_close([*np.ravel(s.D), *s.d], [1.5, 0.5], 1e-15)  # (3T₊ − 4T + T₋)/2dt


@functools.cache
def stepper(name):
    """Steps of 1 s: other steps are other springs."""
    return jax.jit(pbad.make_step(pbad.Options(dt=1.0, scheme=SCHEMES[name])))


def state_matrix(name, step, w2dt2):
    """The library's linear map: (q, v) -> (q, v), or for legendre (q_k, q_{k−1}) -> (q_{k+1}, q_k); dt = 1."""
    model = spring_constant(sprung_slide(), w2dt2)
    columns = []
    for x in np.eye(2):
        if SCHEMES[name].has_history:
            state = pbad.make_state(model, x[:1])
            state = dataclasses.replace(state, history=jnp.asarray(x[1:], DTYPE), has_history=jnp.asarray(True))
            new, info = step(model, state)
            columns.append([float(new.q[0]), float(new.history[0])])
        else:
            new, info = step(model, pbad.make_state(model, x[:1], x[1:]))
            columns.append([float(new.q[0]), float(new.v[0])])
        assert info.status == pbad.Status.CONVERGED, (name, w2dt2, info)
    return np.array(columns).T


def exact_matrix(name, w2dt2):
    """The companion matrix from the Butcher table: y' = [[0,1],[−w²,0]] y, dt = 1."""
    if name == "legendre2":
        return np.array([[2.0, -1.0], [1 + w2dt2, 0.0]]) / (1 + w2dt2)
    A = np.array(SCHEMES[name].A) if name.startswith("dirk") else BUTCHER[int(name[-1])]
    s, F = len(A), np.array([[0, 1.0], [-w2dt2, 0]])
    stages = np.linalg.solve(np.eye(2 * s) - np.kron(A, F), np.kron(np.ones((s, 1)), np.eye(2)))
    return stages[-2:]


IN_CI = ("radau1", "radau2", "legendre2")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n in (*IN_CI, "dirk2") else thorough(n) for n in SCHEMES])
def test_stability_of_the_librarys_own_steps(name):
    step = stepper(name)
    for w2dt2 in SWEEP:
        check_state_matrix(name, step, w2dt2)


def check_state_matrix(name, step, w2dt2):
    got, want = state_matrix(name, step, w2dt2), exact_matrix(name, w2dt2)
    scale = np.diag([1.0, 1.0 if name == "legendre2" else 1 / np.sqrt(w2dt2)])  # v in units of w
    got, want = scale @ got @ np.linalg.inv(scale), scale @ want @ np.linalg.inv(scale)
    assert np.abs(got - want).max() <= 1e-9, (name, w2dt2, got, want)
    radius = np.abs(np.linalg.eigvals(got)).max()
    assert radius <= 1 + 1e-12, f"{name} grows by {radius} at (w dt)² = {w2dt2}"
    if name == "legendre2" and w2dt2 in LEGENDRE2:
        assert abs(radius - LEGENDRE2[w2dt2]) <= max(0.6e-5, 0.01 * LEGENDRE2[w2dt2] * (w2dt2 >= 1e4))
    if name != "legendre2" and w2dt2 == 1.0:  # L-stable: the limit forgets
        assert np.abs(np.linalg.eigvals(exact_matrix(name, 1e8))).max() < 0.05


def test_the_sweep_would_notice_an_unstable_scheme():
    trapezoid_like = np.array([[0.0, 0.0], [0.5, 0.5]])  # its R(∞) is −1, explicit Euler's is unbounded
    for A, bound in ((np.array([[0.0]]), 1.004), (trapezoid_like, 1.0 - 1e-12)):
        F, s = np.array([[0, 1.0], [-0.01, 0]]), len(A)
        stages = np.linalg.solve(np.eye(2 * s) - np.kron(A, F), np.kron(np.ones((s, 1)), np.eye(2)))
        y = np.eye(2) + F if s == 1 else stages[-2:]
        assert np.abs(np.linalg.eigvals(y)).max() > bound


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n in IN_CI else thorough(n) for n in SCHEMES])
def test_order_on_an_oscillator(name):
    """x″ = −w² x from (1, 0.5) to t = 2, slope over three halvings; legendre with its matched start."""
    w, step = 1.7, stepper(name)
    exact = np.array([np.cos(2 * w) + 0.5 / w * np.sin(2 * w), -w * np.sin(2 * w) + 0.5 * np.cos(2 * w)])
    steps = {"radau1": 80, "radau2": 20, "radau3": 8, "legendre2": 80, "dirk2": 40, "dirk3": 20, "dirk4": 10}[name]
    errors = []
    for n in (steps, 2 * steps, 4 * steps):
        dt = 2.0 / n  # with dt as the unit of time
        model = spring_constant(sprung_slide(), (w * dt) ** 2)
        state = pbad.make_state(model, np.ones(1), 0.5 * dt * np.ones(1))
        for _ in range(n):
            state, info = step(model, state)
        assert int(state.status) == pbad.Status.CONVERGED  # a failure freezes the lane
        errors.append(np.hypot(float(state.q[0]) - exact[0], (float(state.v[0]) / dt - exact[1]) / w))
    slopes = np.log2(np.array(errors)[:-1] / np.array(errors)[1:])
    assert abs(slopes[-1] - SCHEMES[name].order) < 0.2, (name, slopes, errors)


def test_variational_is_the_leapfrog_on_an_oscillator():
    step = jax.jit(pbad.make_step(pbad.Options(dt=1.0, scheme="variational")))
    for w2 in (0.01, 1.0, 3.9):
        model, columns = spring_constant(sprung_slide(), w2), []
        for x in np.eye(2):
            new, info = step(model, pbad.make_state(model, x[:1], x[1:]))
            assert info.status == 0
            columns.append([float(new.q[0]), float(new.v[0])])
        want = [[1 - w2 / 2, 1.0], [-w2 * (1 - w2 / 4), 1 - w2 / 2]]
        assert_close(np.array(columns).T, want, 1e-5 if FLOAT32 else 1e-12)


@pytest.mark.parametrize("name", SCHEMES)
def test_names_and_hash(name):
    assert pbad.Options(dt=0.1, scheme=name).scheme == SCHEMES[name]
    assert hash(SCHEMES[name]) == hash(dataclasses.replace(SCHEMES[name]))
