"""The solver alone: no bodies, no steps. Textbook problems, every status, and lanes that do not touch each other."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32
from toy_problem import Toy, iterate, metric_of, solve
from toy_problem import toy as problem_of

from pbad_jax.errors import Status
from pbad_jax.laws.smoothing import no_sliding, primal_dual_coulomb, smooth_coulomb
from pbad_jax.math import rotations
from pbad_jax.solver import levenberg_marquardt as lm

pytestmark = pytest.mark.optimised

TIGHT = 1e-5 if FLOAT32 else 1e-11


def rosenbrock(x):
    return jnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])


def powell(x):
    """Badly scaled function of Powell: root (1.0981593e-5, 9.106146738)."""
    return jnp.stack([1e4 * x[0] * x[1] - 1, jnp.exp(-x[0]) + jnp.exp(-x[1]) - 1.0001])


def cubic(x):
    """Newton takes many steps from afar."""
    return x**3 - 1


def starts(*x):
    return jnp.asarray(x, DTYPE)


def coarse(x):
    """Its root 1.3 is known only to a grid of 0.01, as a force is by a position that is rounded."""
    return (jnp.floor(x * 100) + 0.5) / 100 - 1.3


@pytest.mark.parametrize("rounding", [0.0, 0.02])
def test_a_correction_that_is_all_rounding_ends_a_solve(rounding):
    """Where it does not halve the residual; without being told of the rounding the solve fails."""
    problem = problem_of(coarse, n=1, jacobian=lambda terms: jnp.eye(1, dtype=DTYPE))
    found = solve(problem, lm.Settings(0.0, 30, rounding=rounding), starts(5.0))
    assert (found.status == Status.CONVERGED) == (rounding > 0)
    if rounding:
        assert abs(float(found.x[0]) - 1.3) < 0.02
        assert found.norm <= found.limit and float(found.limit) == pytest.approx(rounding)


def test_a_tolerance_grows_with_the_way():
    """Of what goes 1e8 m no more than a fraction can be asked; where the way is short, the tolerance stays."""
    far = solve(problem_of(lambda x: jnp.cbrt(x) - 464.0, n=1), lm.Settings(TIGHT, 50, 1e-5), starts(9e7))
    assert far.status == Status.CONVERGED and abs(float(far.norm)) <= float(far.limit)
    np.testing.assert_allclose(far.limit, 1e-5 * 464.0**3, rtol=1e-2)
    near = solve(problem_of(cubic, n=1), lm.Settings(TIGHT, 50, 0.1 * TIGHT), starts(1.5))
    assert near.status == Status.CONVERGED and float(near.limit) == pytest.approx(TIGHT)


@pytest.mark.parametrize("x0", [(-1.2, 1.0), (3.0, -4.0), (-5.0, 20.0)])
def test_rosenbrock(x0):
    found = solve(problem_of(rosenbrock, n=2), lm.Settings(TIGHT, 100), starts(*x0))
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.x, [1, 1], atol=10 * TIGHT)
    correction = np.linalg.norm(np.linalg.solve(np.asarray(found.J, float), np.asarray(found.r, float)))
    assert min(float(found.norm), correction) <= TIGHT and 0 < int(found.iterations) < 100
    np.testing.assert_allclose(found.r, rosenbrock(found.x), atol=TIGHT)


@pytest.mark.float64
def test_powell_badly_scaled_against_scipy():
    from scipy.optimize import root

    x = solve(problem_of(powell, n=2), lm.Settings(1e-10, 300), starts(1.2e-5, 8.5))
    want = root(lambda x: np.asarray(powell(jnp.asarray(x))), [0.0, 1.0], method="hybr", tol=1e-14)  # from afar
    assert x.status == Status.CONVERGED and want.success
    np.testing.assert_allclose(x.x, want.x, rtol=1e-6)


@pytest.mark.float64
def test_against_optimistix():
    import optimistix as optx

    def f(x, args=None):
        return jnp.stack([x[0] ** 2 + x[1] ** 2 - 4, jnp.exp(x[0]) + x[1] - 1, x[2] ** 3 - x[0]])

    x0 = starts(1.0, -1.7, 0.9)
    want = optx.least_squares(f, optx.LevenbergMarquardt(1e-12, 1e-12), x0, max_steps=300).value
    found = solve(problem_of(f, n=3), lm.Settings(1e-12, 100), x0)
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.x, want, atol=1e-9)


def test_linear_system_takes_one_iteration():
    rng = np.random.default_rng(0)
    A, b = jnp.asarray(rng.normal(size=(6, 6)), DTYPE), jnp.asarray(rng.normal(size=6), DTYPE)
    L = np.tril(rng.normal(size=(3, 3))) + 3 * np.eye(3)
    problem = problem_of(lambda x: A @ x - b, factor=L)
    found = solve(problem, lm.Settings(1e-4 if FLOAT32 else 1e-10, 30), jnp.zeros(6, DTYPE))
    assert found.status == Status.CONVERGED and int(found.iterations) == 1
    np.testing.assert_allclose(found.x, np.linalg.solve(A, b), rtol=1e-3 if FLOAT32 else 1e-9, atol=1e-4)
    # the norm is that of L⁻¹ r, block by block
    start = iterate(problem, lm.Settings(1e-12, 30), lm.init(problem, jnp.zeros(6, DTYPE)))
    assert int(start.iterations) == 0
    white = np.linalg.solve(L, np.asarray(-b, float).reshape(2, 3).T)
    np.testing.assert_allclose(start.norm, np.linalg.norm(white), rtol=1e-5 if FLOAT32 else 1e-12)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_root_has_the_matrix_of_the_point_before_unless_its_own_is_wanted(wanted):
    """log x = 1 from afar, where some trials are rejected: they leave the matrix of the best point."""

    def residual(x):
        return jnp.log(x) - 1

    problem = Toy(
        evaluate=lambda x, h: (residual(x), x),
        metric=metric_of(jnp.eye(1)),
        jacobian=jax.jacfwd(residual),
    )
    s, rejected, before = lm.init(problem, starts(30.0)), 0, None
    one = jax.jit(functools.partial(iterate, problem, lm.Settings(TIGHT, 100, keeps_matrix=wanted)))
    while s.status == lm.RUNNING:
        last, s = s, one(s)
        moved = s.x[0] != last.x[0]
        rejected += not moved and int(s.iterations) > 0
        before = last.x if moved else before
        at = s.x if s.status == lm.RUNNING or wanted else before
        np.testing.assert_allclose(s.J, [1 / at], rtol=1e-5)
    assert s.status == Status.CONVERGED and rejected > 0 and moved


def rotation_problem(target):
    """log(target* ⊗ x) = 0 over unit quaternions."""

    def residual(x):
        return rotations.quaternion_log(rotations.quaternion_product(rotations.quaternion_inverse(target), x))

    def retract(x, d):
        return rotations.normalise(rotations.quaternion_product(x, rotations.quaternion_exp(d)))

    def evaluate(x, h):
        return residual(x), jax.jacfwd(lambda d: residual(retract(x, d)))(jnp.zeros(3, DTYPE))

    return Toy(evaluate, metric_of(jnp.eye(3)), plus=retract)


def test_on_quaternions():
    target = rotations.quaternion_exp(starts(0.5, -1.0, 2.0))
    found = solve(rotation_problem(target), lm.Settings(TIGHT, 50), starts(1.0, 0, 0, 0))
    assert found.status == Status.CONVERGED and int(found.iterations) <= 10
    np.testing.assert_allclose(abs(float(found.x @ target)), 1, atol=TIGHT)
    np.testing.assert_allclose(float(jnp.linalg.norm(found.x)), 1, atol=TIGHT)


def test_max_iterations():
    for limit in (1, 2, 3):
        found = solve(problem_of(cubic, n=2), lm.Settings(TIGHT, limit), starts(30.0, 20.0))
        assert found.status == Status.MAX_ITER and int(found.iterations) == limit


def test_stationary_point_that_is_no_root_is_stalled():
    """x² + 1 = 0: ‖r‖² has a minimum at 0 with residual 1."""
    found = solve(problem_of(lambda x: x**2 + 1, n=1), lm.Settings(TIGHT, 400), starts(0.7))
    assert found.status == Status.STALLED
    assert float(found.norm) >= 1 and np.all(np.isfinite(found.x))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_nonfinite_at_the_start(bad):
    def evaluate(x, h):
        return x + bad, jnp.eye(2, dtype=DTYPE)

    problem = Toy(evaluate, metric_of(jnp.eye(2)))
    found = solve(problem, lm.Settings(TIGHT, 20), starts(1.0, 2.0))
    assert found.status == Status.NONFINITE_EVAL and int(found.iterations) == 0
    np.testing.assert_array_equal(found.x, [1, 2])


def test_nonfinite_trials_are_rejected():
    """√x − 2 has no value where Newton first lands; the solve must come back, not stop or return NaN."""
    found = solve(problem_of(lambda x: jnp.log(x) - 1, n=1), lm.Settings(TIGHT, 200), starts(30.0))
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.x, [np.e], rtol=1e-4 if FLOAT32 else 1e-9)


def test_singular_matrix_recovers_or_says_so():
    found = solve(problem_of(lambda x: jnp.stack([x[0] ** 2, x[1]]), n=2), lm.Settings(TIGHT, 200), starts(0.0, 1.0))
    assert found.status in (Status.CONVERGED, Status.STALLED, Status.MAX_ITER)
    assert np.all(np.isfinite(found.x))
    if found.status == Status.CONVERGED:
        assert abs(float(found.x[1])) <= 100 * TIGHT


@pytest.mark.parametrize("x0", [(-1.2, 1.0), (3.0, -4.0)])
def test_accepted_steps_lower_the_norm_or_do_not_turn_back(x0):
    """The slope along the step, by numpy; a rejected trial leaves the point alone and raises λ."""
    problem, settings = problem_of(rosenbrock, n=2), lm.Settings(TIGHT, 100)
    s = iterate(problem, settings, lm.init(problem, starts(*x0)))
    assert int(s.iterations) == 0 and float(s.damping) == 0
    np.testing.assert_array_equal(s.x, starts(*x0))
    rose = 0
    while s.status == lm.RUNNING:
        old, s = s, iterate(problem, settings, s)
        r, step = np.asarray(old.r, float), np.asarray(old.trial, float) - np.asarray(old.x, float)
        at_trial = np.asarray(rosenbrock(old.trial), float)
        good = np.linalg.norm(at_trial) < np.linalg.norm(r) or abs(at_trial @ step) <= 2.0 * abs(r @ step)
        if np.array_equal(s.x, old.x):
            assert not good and float(s.damping) > float(old.damping) and float(s.norm) == float(old.norm)
            continue
        if s.status == lm.RUNNING:  # a root is corrected once more
            np.testing.assert_array_equal(s.x, old.trial)
        assert good
        rose += float(s.norm) > float(old.norm)
    assert s.status == Status.CONVERGED
    assert rose or x0 != (-1.2, 1.0), "from there Newton's first step raises the norm, and is right"


def test_a_root_is_corrected_by_its_residual():
    """A matrix so small that the tolerance allows any x: the first correction leaves 0.08, the last one 0.013."""
    problem, root = problem_of(lambda x: 1e-4 * (x + 0.1 * x**2 - 1.0), n=2), (np.sqrt(1.4) - 1.0) / 0.2
    found = solve(problem, lm.Settings(1e-3, 100), starts(2.0, 2.0))
    assert found.status == Status.CONVERGED and int(found.iterations) == 1
    np.testing.assert_allclose(found.x, [root, root], atol=0.02)


def test_one_evaluation_per_iteration():
    calls = []

    def residual(x):
        jax.debug.callback(lambda: calls.append(1))
        return cubic(x)

    jac = jax.jacfwd(cubic)
    problem = Toy(lambda x, h: (residual(x), jac(x)), metric_of(jnp.eye(2)))
    settings = lm.Settings(TIGHT, 100)
    s = lm.init(problem, starts(30.0, 20.0))
    jax.effects_barrier()
    assert not calls and int(s.iterations) == -1 and s.status == lm.RUNNING
    for n in range(4):
        s = iterate(problem, settings, s)
        jax.effects_barrier()
        assert len(calls) == n + 1 and int(s.iterations) == n


def test_a_step_is_not_longer_than_its_model_can_be_trusted():
    problem = problem_of(lambda x: x - starts(10.0, 1.0, -3.0, 0.5), n=3)
    problem = dataclasses.replace(problem, metric=metric_of(jnp.eye(1)), max_correction=starts(2.0))
    s = iterate(problem, lm.Settings(TIGHT, 20), lm.init(problem, jnp.zeros(4, DTYPE)))
    np.testing.assert_allclose(s.trial, [2.0, 0.2, -0.6, 0.1], rtol=1e-5)  # shortened, not bent
    one = dataclasses.replace(problem, metric=metric_of(jnp.eye(2)), max_correction=starts(jnp.inf, 0.5))
    s = iterate(one, lm.Settings(TIGHT, 20), lm.init(one, jnp.zeros(4, DTYPE)))
    np.testing.assert_allclose(s.trial, [5.0, 0.5, -1.5, 0.25], rtol=1e-5)  # by the second of each block alone
    found = solve(problem, lm.Settings(TIGHT, 20), jnp.zeros(4, DTYPE))
    assert found.status == Status.CONVERGED and int(found.iterations) == 5
    np.testing.assert_allclose(found.x, [10, 1, -3, 0.5], rtol=1e-5)


def test_a_newton_correction_within_the_tolerance_is_converged():
    """A stiff residual's own rounding is larger than the tolerance, its correction is not."""
    stiff = 1e12 if not FLOAT32 else 1e6
    found = solve(problem_of(lambda x: stiff * (x - 1) + 1, n=2), lm.Settings(TIGHT, 20), jnp.ones(2, DTYPE))
    assert found.status == Status.CONVERGED and int(found.iterations) == 1  # the first guess is never believed
    assert FLOAT32 or float(found.norm) > TIGHT
    np.testing.assert_allclose(found.x, 1, rtol=2 / stiff)
    if not FLOAT32:  # in the metric of the factor the same correction counts 10⁴ times as much
        far = solve(
            problem_of(lambda x: stiff * (x - 1) + 1, factor=1e4 * np.eye(2)), lm.Settings(TIGHT, 1), jnp.ones(2, DTYPE)
        )
        assert far.status == Status.MAX_ITER


@pytest.mark.parametrize("status", [Status.CONVERGED, Status.STALLED, Status.FROZEN, Status.NONFINITE_EVAL])
def test_finished_solves_do_not_change(status):
    problem, settings = problem_of(rosenbrock, n=2), lm.Settings(TIGHT, 100)
    s = lm.init(problem, starts(-1.2, 1.0), status=jnp.asarray(int(status), jnp.int8))
    assert s.status == status
    for a, b in zip(jax.tree.leaves(s), jax.tree.leaves(iterate(problem, settings, s))):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    assert int(solve(problem, settings, s.x, status=s.status).iterations) == -1


def test_restart_is_a_new_solve():
    problem, settings = problem_of(rosenbrock, n=2), lm.Settings(TIGHT, 100)
    old = solve(problem, settings, starts(3.0, -4.0))
    again = lm.restart(problem, old, starts(-1.2, 1.0))
    while again.status == lm.RUNNING:
        again = iterate(problem, settings, again)
    want = solve(problem, settings, starts(-1.2, 1.0))
    np.testing.assert_allclose(again.x, want.x, rtol=1e-6)
    assert int(again.iterations) == int(want.iterations) and again.status == want.status


def solve_lane(x):
    return solve(problem_of(rosenbrock, n=2), lm.Settings(TIGHT, 100), x)


def test_a_sick_lane_leaves_the_others_bit_equal():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(8, 2)) * 2
    sick = x.copy()
    sick[3] = np.nan
    solve = jax.jit(jax.vmap(solve_lane))
    one, two = solve(jnp.asarray(x, DTYPE)), solve(jnp.asarray(sick, DTYPE))
    healthy = np.arange(8) != 3
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        np.testing.assert_array_equal(np.asarray(a)[healthy], np.asarray(b)[healthy])
    assert two.status[3] == Status.NONFINITE_EVAL
    assert np.all(np.asarray(one.status) == Status.CONVERGED)
    assert len(set(np.asarray(one.iterations).tolist())) > 1, "lanes that stop at different times"


def test_lanes_are_those_of_single_solves_and_jit_changes_nothing():
    x = jnp.asarray(np.random.default_rng(5).normal(size=(5, 2)) * 2, DTYPE)
    batch = jax.jit(jax.vmap(solve_lane))(x)
    for k in range(5):
        single, jitted = solve_lane(x[k]), jax.jit(solve_lane)(x[k])
        assert int(single.iterations) == int(jitted.iterations) == int(batch.iterations[k])
        np.testing.assert_allclose(single.x, jitted.x, atol=10 * TIGHT)
        np.testing.assert_allclose(batch.x[k], jitted.x, atol=10 * TIGHT)


def test_damped_step_is_the_documented_minimiser():
    """min_y ‖J̃ y + r̃‖² + λ‖y‖² with J̃ = L⁻¹ J L⁻ᵀ: by numpy's least squares on the stacked system."""
    rng = np.random.default_rng(6)
    L = np.tril(rng.normal(size=(2, 2))) + 2 * np.eye(2)
    A, b = rng.normal(size=(4, 4)), rng.normal(size=4)

    def evaluate(x, h):
        # larger everywhere but at the start: the first, undamped trial is rejected
        far = jnp.any(jnp.abs(x) > 0)
        return jnp.where(far, 1e6, 1.0) * (jnp.asarray(A, DTYPE) @ x - jnp.asarray(b, DTYPE)) + jnp.where(
            far, 1e6, 0.0
        ), jnp.asarray(A, DTYPE)

    trials = []

    def retract(x, d):
        trials.append(np.asarray(d, float))
        return x + d

    problem = Toy(evaluate, metric_of(L), plus=retract)
    settings = lm.Settings(TIGHT, 10)
    s = lm.init(problem, jnp.zeros(4, DTYPE))
    dampings = []
    for _ in range(4):  # the guess, then three rejected trials
        with jax.disable_jit():
            s = iterate(problem, settings, s)
        damping = float(s.damping)
        Linv = np.kron(np.eye(2), np.linalg.inv(L))
        white, r = Linv @ A @ Linv.T, Linv @ -b
        stacked = np.vstack([white, np.sqrt(damping) * np.eye(4)])
        y = np.linalg.lstsq(stacked, -np.append(r, np.zeros(4)), rcond=None)[0]
        want = Linv.T @ y
        np.testing.assert_allclose(
            trials[-1], want, rtol=1e-3 if FLOAT32 else 1e-8, atol=1e-5 if FLOAT32 else 1e-12, err_msg=f"λ = {damping}"
        )
        dampings.append(damping)
    assert dampings[0] == 0 < dampings[1] < dampings[2] < dampings[3], "λ rises after a rejected step"


# --- laws with kinks --------------------------------------------------------------------------------------

SPEED = 1e-3


def sliding_problem(push, hold, coupling):
    """Bodies pushed to the velocities `push`, each held by dry friction `hold`, and drawn together by `coupling`."""
    push, hold = jnp.asarray(push, DTYPE), jnp.asarray(hold, DTYPE)
    n = len(push)
    K = coupling * (jnp.eye(n, dtype=DTYPE) - jnp.ones((n, n), DTYPE) / n) + jnp.eye(n, dtype=DTYPE)

    speed = jnp.full((n, 1), SPEED, DTYPE)

    def tangent(x, h):
        f, slope = smooth_coulomb(x[:, None], speed)
        return K @ (x - push) + hold * f[:, 0], K + jnp.diag(hold * slope[:, 0, 0])

    def primal_dual(x, last, trust):
        f, slope, dual = primal_dual_coulomb(x[:, None], speed, last, trust)
        return K @ (x - push) + hold * f[:, 0], K + jnp.diag(hold * slope[:, 0, 0]), dual

    exact = Toy(tangent, metric_of(jnp.eye(n)))
    return exact, dataclasses.replace(exact, guided=(lambda: no_sliding((n, 1), DTYPE), primal_dual))


@pytest.mark.parametrize(
    "push, hold, coupling",
    [
        ((0.3,), (30.0,), 0.0),  # sticks
        ((0.3,), (0.2,), 0.0),  # slows down
        ((0.3, 0.5, -2.0, 0.01), (3.0, 0.1, 1.5, 0.2), 2.0),  # some stick, some slide
        ((5.0, -5.0, 3.0), (4.9, 100.0, 0.5), 20.0),
    ],
)
def test_friction_is_solved_in_few_iterations(push, hold, coupling):
    plain, helped = sliding_problem(push, hold, coupling)
    x0 = jnp.asarray(push, DTYPE)
    found = solve(helped, lm.Settings(TIGHT, 200, keeps_matrix=True), x0)
    without = solve(plain, lm.Settings(TIGHT, 200), x0)
    print("iterations", int(found.iterations), "without", int(without.iterations), Status(int(without.status)).name)
    assert found.status == Status.CONVERGED and int(found.iterations) <= 30
    np.testing.assert_allclose(plain.evaluate(found.x, 1.0)[0], 0, atol=100 * TIGHT * (1 + max(hold)))
    J = plain.evaluate(found.x, 1.0)[1]
    np.testing.assert_allclose(
        found.J, J, rtol=1e-4 if FLOAT32 else 1e-6
    )  # the matrix of the law itself as far as its dual has settled, not of a secant


def test_a_guided_solve_ends_with_a_trial_that_is_not_finite():
    """Its duals would not be finite either; whoever called starts anew from elsewhere."""
    _, helped = sliding_problem((5.0,), (0.1,), 0.0)
    assert helped.guided is not None
    first, led = helped.guided

    def torn(x, last, trust):
        r, J, dual = led(x, last, trust)
        return jnp.where(x > 5.5, jnp.nan, r), J, dual

    ended = solve(dataclasses.replace(helped, guided=(first, torn)), lm.Settings(TIGHT, 50), starts(5.5))
    assert ended.status == Status.CONVERGED
    far = dataclasses.replace(helped, guided=(first, torn), plus=lambda x, delta: x + 1.0)
    ended = solve(far, lm.Settings(TIGHT, 50), starts(5.0))
    assert ended.status == Status.STALLED and int(ended.iterations) == 1 and np.all(np.isfinite(ended.x))
    assert solve(far, lm.Settings(TIGHT, 50), starts(6.0)).status == Status.NONFINITE_EVAL
