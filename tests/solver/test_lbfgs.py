"""L-BFGS alone: lanes that end as they should and do not touch each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, assert_close

from pbad_jax.errors import Status as S
from pbad_jax.solver import lbfgs


def rosenbrock(y, steep):
    """Its least value is 1, at (1, 1, 1); the last term keeps rounding from finding a gradient of zero."""
    value = 1 + jnp.sum(steep * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2)
    return jnp.where(jnp.any(y > 100), jnp.nan, value)


@functools.partial(jax.jit, static_argnames="most")
def minimised(y, steep, tolerance, status, most=400):
    def value_and_gradient(x):
        return jax.value_and_grad(rosenbrock)(x, steep)

    def norm(x, _):
        return jnp.linalg.norm(value_and_gradient(x)[1])

    return lbfgs.minimise(value_and_gradient, norm, tolerance, most, y, status=status)


@functools.partial(jax.jit, static_argnames="most")
def minimised_lanes(y, steep, tolerance, status, most=400):
    return jax.vmap(lambda *lane: minimised(*lane, most=most))(y, steep, tolerance, status)


GENTLE = 1e-6 if not FLOAT32 else 1e-2


def lanes():
    """Starts, steepness, tolerances and statuses, and how each should end."""
    rng = np.random.default_rng(4)
    rows = [(rng.normal(size=3), 10.0, GENTLE, lbfgs.RUNNING, S.CONVERGED) for _ in range(5)]
    rows += [
        (np.array([0.5, 0.4, 0.3]), 1.0, GENTLE, lbfgs.RUNNING, S.CONVERGED),
        (rng.normal(size=3), 10.0, 0.0, lbfgs.RUNNING, S.STALLED),  # nothing is good enough
        (np.full(3, np.nan), 10.0, GENTLE, lbfgs.RUNNING, S.NONFINITE_EVAL),
        (np.array([0, 200.0, 0]), 10.0, GENTLE, lbfgs.RUNNING, S.NONFINITE_EVAL),
        (np.full(3, np.inf), 10.0, GENTLE, lbfgs.RUNNING, S.NONFINITE_EVAL),
        (rng.normal(size=3), 10.0, GENTLE, int(S.FROZEN), S.FROZEN),
        (np.full(3, np.nan), 10.0, GENTLE, int(S.NONFINITE_INPUT), S.NONFINITE_INPUT),
    ]
    y, steep, tolerance, status, ends = zip(*rows)
    return (*(jnp.asarray(x, DTYPE) for x in (y, steep, tolerance)), jnp.asarray(status, jnp.int8)), np.array(ends)


def test_lanes_end_as_they_should():
    args, ends = lanes()
    found = minimised_lanes(*args)
    np.testing.assert_array_equal(found.status, ends)
    assert_close(np.asarray(found.y)[ends == S.CONVERGED], np.ones((6, 3)), 1e-5 if not FLOAT32 else 1e-1)
    stalled = ends == S.STALLED
    assert_close(np.asarray(found.y)[stalled], np.ones((1, 3)), 1e-6 if not FLOAT32 else 1e-1)
    assert np.all(np.asarray(found.iterations)[(ends == S.FROZEN) | (ends == S.NONFINITE_INPUT)] == 0)
    untouched = (ends == S.FROZEN) | (ends == S.NONFINITE_EVAL)
    np.testing.assert_array_equal(np.asarray(found.y)[untouched], np.asarray(args[0])[untouched])
    assert np.all(np.asarray(found.iterations)[ends == S.CONVERGED] > 2)


@pytest.mark.float64
@pytest.mark.parametrize("steep", [1.0, 10.0, 100.0])
def test_stalls_only_where_it_is_flat(steep):
    """A smooth function with one minimum and no saddle: STALLED may not be said where the gradient is 1 and more."""
    n = 200
    y = jnp.asarray(np.random.default_rng(1).normal(size=(n, 3)))
    found = minimised_lanes(y, jnp.full(n, steep), jnp.full(n, 1e-6), jnp.full(n, lbfgs.RUNNING, jnp.int8))
    stalled = np.asarray(found.status) == S.STALLED
    slope = np.linalg.norm(found.gradient, axis=1)
    assert not np.any(stalled & (slope > 1e-2)), f"{stalled.sum()} of {n}, |gradient| {slope[stalled][:5]}"


def test_iteration_limit():
    (y, steep, tolerance, status), _ = lanes()
    found = minimised(y[0], steep[0], tolerance[0], status[0], most=3)
    assert found.status == S.MAX_ITER and found.iterations == 3
    assert found.value < rosenbrock(y[0], steep[0])


@pytest.mark.float64
def test_lanes_do_not_see_each_other():
    """Every lane alone, and all in another order: the same iterations and the same end."""
    args, ends = lanes()
    together = minimised_lanes(*args)
    order = np.random.default_rng(0).permutation(len(ends))
    shuffled = minimised_lanes(*(x[order] for x in args))
    for field in ("y", "iterations", "status"):
        np.testing.assert_array_equal(np.asarray(getattr(together, field))[order], getattr(shuffled, field))
    for i in range(len(ends)):
        alone = minimised(*(x[i] for x in args))
        assert alone.status == together.status[i], i
        if ends[i] == S.CONVERGED:
            np.testing.assert_allclose(alone.y, together.y[i], atol=1e-5)
