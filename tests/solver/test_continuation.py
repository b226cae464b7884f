"""Following a root from h = 0 where the plain guess fails: families without physics, whose branches are known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32
from toy_problem import Toy, metric_of, solve

from pbad_jax.errors import Status
from pbad_jax.solver import continuation
from pbad_jax.solver import levenberg_marquardt as lm

pytestmark = pytest.mark.optimised

TIGHT = 1e-5 if FLOAT32 else 1e-11
SETTINGS = lm.Settings(TIGHT, 400)
RUNNING = jnp.asarray(lm.RUNNING, jnp.int8)


def family_of(residual, n, *, start=None, continuous=True, data=()):
    """r(x; h) with its Jacobian by autodiff; the guess goes on along the straight line from the start."""
    x_0 = jnp.zeros(n, DTYPE) if start is None else jnp.asarray(start, DTYPE)

    def guess(x, h_done, h):
        if x is None:
            return x_0
        return x_0 + (x - x_0) * jnp.where(h_done > 0, h / jnp.where(h_done > 0, h_done, 1.0), 0.0)

    return Toy(
        evaluate=lambda x, h, *data: (residual(x, h, *data), jax.jacfwd(residual)(x, h, *data)),
        metric=metric_of(jnp.eye(n)),
        first=guess,
        follows_from_zero=continuous,
        max_correction=jnp.full(n, 2.0, DTYPE),  # none leaps by luck out of a minimum, whose root is 3 or 4 away
        data=data,
    )


def path(h, reach=4.3):
    """Where the branch is; not straight, so that extrapolation errs."""
    return -reach * (h + 0.3 * h * (1 - h))


def trapped(x, h, reach=4.3):
    """Roots at path(h) and path(h) + 8, and between them a minimum of |r| of 8 that catches the plain guess."""
    u = x - path(h, reach) - 4
    return (16 - u**2) * (u**2 + 0.5)


def spiral(x, h):
    """Two dimensions: the root runs outwards and round the origin, at an angle of 3 h."""
    c, s = jnp.cos(3 * h), jnp.sin(3 * h)
    y = jnp.stack([c * x[0] + s * x[1] + 4.3 * h, -s * x[0] + c * x[1]])
    u = y[0] - 2.1038034027355364  # one root, at y = 0, and a minimum of |r| at u = 1
    return jnp.stack([u**3 - 3 * u + 3, y[1] + 0.1 * y[0] ** 2])


def follow(residual, n, settings=SETTINGS, **options):
    return continuation.solve(family_of(residual, n, **options), settings, status=RUNNING)


def direct(residual, n, **options):
    family = family_of(residual, n, **options)
    return solve(family, SETTINGS, family.guess(None, None, None))


def test_a_branch_is_followed_where_the_plain_guess_fails():
    assert direct(trapped, 1).status != Status.CONVERGED, "the test would not notice"
    found = follow(trapped, 1)
    assert found.status == Status.CONVERGED and float(found.h) == float(found.h_done) == 1
    np.testing.assert_allclose(found.attempt.x, [path(1.0)], atol=10 * TIGHT)
    np.testing.assert_array_equal(found.attempt.x, found.x_done)
    assert int(found.iterations) > int(found.attempt.iterations), "all attempts are counted"
    assert int(found.iterations) <= SETTINGS.max_iterations


def test_what_wanders_begins_anew_from_elsewhere():
    """From 0 the steps are ±1 for ever, as a law's dual may have it; from 4 the root 5 is one step away."""

    def guided(x, dual, trust):
        del trust
        return jnp.where(x > 2, x - 5, 1 + 2 * x), jnp.eye(1, dtype=x.dtype), dual

    def first(x_done, h_done, h):
        return jnp.full(1, jnp.where(h == continuation.STARTS[0][0], 0.0, 4.0), DTYPE)

    family = dataclasses.replace(family_of(path, 1), first=first, guided=(lambda: jnp.zeros(1, DTYPE), guided))
    found = continuation.solve(family, SETTINGS, status=RUNNING)
    assert found.status == Status.CONVERGED and float(found.h_done) == 1 and found.starts == 2
    np.testing.assert_allclose(found.attempt.x, 5.0)
    assert found.iterations <= continuation.WANDERING + 4


@pytest.mark.parametrize("believed", [0.5, 1.5, 2.5])
def test_a_root_that_is_refused_is_looked_at_once_more(believed):
    """By the matrix without trust, 2 instead of 1: it costs no iteration, and the root keeps its own matrix."""

    def guided(x, dual, trust):
        J = jnp.where(trust > 0, 1.0, 2.0) * jnp.eye(1, dtype=x.dtype)
        return x - 5, J, dual

    family = dataclasses.replace(family_of(path, 1), guided=(lambda: jnp.zeros(1, DTYPE), guided))
    plain = continuation.solve(family, SETTINGS, status=RUNNING)
    found = continuation.solve(
        dataclasses.replace(family, believes=lambda J: J[0, 0] > believed), SETTINGS, status=RUNNING
    )
    if believed > 2:
        assert found.status == Status.BRANCH and float(found.h_done) == 0
        return
    assert found.status == Status.CONVERGED and not found.again
    assert int(found.iterations) == int(plain.iterations) > 0
    for a, b in zip(jax.tree.leaves(plain.attempt), jax.tree.leaves(found.attempt)):
        np.testing.assert_array_equal(a, b)


def test_in_two_dimensions():
    assert direct(spiral, 2).status != Status.CONVERGED, "the test would not notice"
    found = follow(spiral, 2)
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.attempt.x, [-4.3 * np.cos(3), -4.3 * np.sin(3)], atol=10 * TIGHT)


@pytest.mark.parametrize("reach", [3.9, 4.1, 4.3, 4.9])
def test_the_root_is_the_one_connected_to_nothing(reach):
    """The other root is nearer to the plain guess than the physical one, from reach 4 on."""
    found = follow(lambda x, h: trapped(x, h, reach), 1)
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.attempt.x, [path(1.0, reach)], atol=10 * TIGHT)


def test_a_good_guess_costs_what_the_solver_costs():
    def easy(x, h):
        return x + 0.1 * jnp.sin(x) - h

    found, plain = follow(easy, 1), direct(easy, 1)
    assert found.status == Status.CONVERGED and float(found.h_done) == 1
    np.testing.assert_array_equal(found.attempt.x, plain.x)
    assert int(found.iterations) == int(plain.iterations)


def fold(x, h):
    """Two roots meet at h = 0.6, and beyond there is none."""
    return x**2 + h - 0.6


@pytest.mark.parametrize("limit", [7, 20, 60, 400])
def test_no_root_is_an_honest_failure(limit):
    found = follow(fold, 1, lm.Settings(TIGHT, limit), start=[0.6**0.5])
    assert int(found.status) in (Status.MAX_ITER, Status.STALLED)
    assert 0 <= float(found.h_done) < 0.6 and int(found.iterations) <= limit
    assert np.all(np.isfinite(found.x_done))
    if limit == 400:
        assert float(found.h_done) > 0.6 - 2 * continuation.SMALLEST_STRIDE, "it goes as far as there is a root"
        np.testing.assert_allclose(found.x_done, [np.sqrt(0.6 - float(found.h_done))], rtol=1e-3)
    if limit == 7:
        assert found.status == Status.MAX_ITER and int(found.iterations) == 7


def test_a_family_that_is_nan_somewhere_is_an_honest_failure():
    found = follow(lambda x, h: jnp.where(h > 0.3, jnp.nan, x - h), 1)
    assert found.status == Status.NONFINITE_EVAL
    assert 0 < float(found.h_done) <= 0.3 and int(found.iterations) < 50
    np.testing.assert_allclose(found.x_done, [float(found.h_done)], atol=10 * TIGHT)


def test_without_continuity_there_is_one_attempt():
    found, plain = follow(trapped, 1, continuous=False), direct(trapped, 1)
    assert int(found.status) == int(plain.status) != Status.CONVERGED
    assert int(found.iterations) > continuation.ATTEMPT
    if not FLOAT32:  # where rounding decides when a flat minimum has stalled, in each program by itself
        assert int(found.iterations) == int(plain.iterations)
    assert float(found.h) == 1 and float(found.h_done) == 0
    limited = follow(trapped, 1, lm.Settings(TIGHT, 3), continuous=False)
    assert limited.status == Status.MAX_ITER and int(limited.iterations) == 3


@pytest.mark.parametrize("continuous", [True, False])
def test_solved_is_solved_to_the_end(continuous):
    """`h_done` becomes StepInfo.reached: 1 where the step converged."""
    found = follow(lambda x, h: x - h, 1, continuous=continuous)
    assert found.status == Status.CONVERGED and float(found.h_done) == 1


@pytest.mark.parametrize("continuous", [True, False])
@pytest.mark.parametrize("status", [Status.CONVERGED, Status.NONFINITE_INPUT, Status.FROZEN])
def test_a_finished_status_does_nothing(status, continuous):
    family = family_of(trapped, 1, start=[0.25], continuous=continuous)
    found = continuation.solve(family, SETTINGS, status=jnp.asarray(int(status), jnp.int8))
    assert found.status == status and int(found.iterations) == 0
    np.testing.assert_array_equal(found.attempt.x, [0.25])
    assert_unchanged(family, found)


@pytest.mark.parametrize("continuous", [True, False])
@pytest.mark.parametrize("residual", [trapped, lambda x, h: x - h])
def test_what_has_ended_does_not_change(residual, continuous):
    """A lane that waits for others in a batch."""
    family = family_of(residual, 1, continuous=continuous)
    assert_unchanged(family, continuation.solve(family, SETTINGS, status=RUNNING))


def assert_unchanged(family, s):
    for a, b in zip(jax.tree.leaves(s), jax.tree.leaves(continuation.iterate(family, SETTINGS, s))):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@jax.jit
@jax.vmap
def lanes(reach, status):
    return continuation.solve(family_of(trapped, 1, data=(reach,)), SETTINGS, status=status)


def test_lanes_are_independent():
    """Easy, trapped, sick and finished lanes; what one does is nothing to the others, bit for bit."""
    reach = jnp.asarray([0.5, 4.3, 1.0, 4.9, 0.1, 4.1], DTYPE)
    status = jnp.full(6, lm.RUNNING, jnp.int8)
    one = lanes(reach, status)
    assert np.all(np.asarray(one.status) == Status.CONVERGED)
    np.testing.assert_allclose(one.attempt.x[:, 0], [path(1.0, r) for r in np.asarray(reach, float)], atol=10 * TIGHT)
    assert len(set(np.asarray(one.iterations).tolist())) > 2
    two = lanes(reach.at[2].set(jnp.nan), status.at[4].set(int(Status.FROZEN)))
    assert two.status[2] == Status.NONFINITE_EVAL and two.status[4] == Status.FROZEN and int(two.iterations[4]) == 0
    others = np.array([0, 1, 3, 5])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        np.testing.assert_array_equal(np.asarray(a)[others], np.asarray(b)[others])
    for k in others:
        alone = jax.tree.map(lambda x, k=k: x[0], lanes(reach[k : k + 1], status[k : k + 1]))
        assert int(alone.iterations) == int(one.iterations[k])
        np.testing.assert_allclose(alone.attempt.x, one.attempt.x[k], atol=10 * TIGHT)
