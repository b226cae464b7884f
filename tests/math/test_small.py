"""small_sum is jnp.sum, with its derivatives, in lanes, for NaN and infinities; and XLA does not hand it over.

take is indexing, joined its inverse.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE

from pbad_jax.math.small import joined, small_sum, take


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_equals_sum(axis):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 5)), DTYPE)
    tolerance = 10 * jnp.finfo(DTYPE).eps
    for f in (small_sum, jax.jit(small_sum, static_argnums=1)):
        np.testing.assert_allclose(f(x, axis), jnp.sum(x, axis), atol=tolerance)
    np.testing.assert_allclose(
        small_sum(x, axis, keepdims=True), jnp.sum(x, axis, keepdims=True), atol=tolerance, strict=True
    )
    for lanes in (0, 1, 2):
        each, wanted = (jax.vmap(lambda y, g=g: g(y, axis), lanes)(x) for g in (small_sum, jnp.sum))
        np.testing.assert_allclose(each, wanted, atol=tolerance)


def test_derivatives():
    """Forward, reverse and again, under vmap."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(6, 3)), DTYPE)

    def of(total):
        return jax.vmap(jax.hessian(lambda y: jnp.sin(total(y * y, -1))))(x)

    def pushed(total):
        return jax.jvp(lambda y: total(y, 0), (x,), (x,))[1]

    for derivative in (of, pushed):
        np.testing.assert_allclose(
            derivative(small_sum), derivative(jnp.sum), atol=1e-5 if DTYPE == np.float32 else 1e-13
        )


@pytest.mark.parametrize("row", [[np.nan, 1, 2], [1, 2, np.nan], [np.inf, 1, 2], [np.inf, -np.inf, 0], [0, -np.inf, 1]])
def test_what_is_not_finite_stays_so(row):
    np.testing.assert_array_equal(jax.jit(small_sum)(jnp.asarray(row, DTYPE)), jnp.sum(jnp.asarray(row, DTYPE)))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="about XLA on CPUs")
def test_it_is_compiled_and_not_handed_to_a_library():
    """What the module is for; where jnp.sum is not handed over either, the module can go."""
    x = jnp.ones((256, 20, 3, 4), DTYPE)

    def fused_by_library(total):
        return "ynn_fusion" in jax.jit(lambda x: total(x * x, -1)).lower(x).compile().as_text()

    assert not fused_by_library(small_sum)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("index", [[0, 1, 2], [1, 2], [2, 0, 1], [1, 1, 0], [[0, 1], [2, 3]], [], [*range(11, -1, -1)]])
def test_take_is_indexing(axis, index):
    """As it is, by a slice and by a gather; with its derivative."""
    index = np.array(index, int)
    x = jnp.asarray(np.random.default_rng(2).normal(size=(12, 12, 12)), DTYPE)
    wanted = jnp.take(x, index, axis=axis)
    np.testing.assert_array_equal(take(x, index, axis), wanted, strict=True)
    weights = jnp.asarray(np.random.default_rng(3).normal(size=wanted.shape), DTYPE)
    slopes = [jax.grad(lambda x, f=f: jnp.sum(weights * f(x, index, axis)))(x) for f in (take, jnp.take)]
    np.testing.assert_array_equal(slopes[0], slopes[1])
    operations = str(jax.make_jaxpr(lambda x: take(x, index, axis))(x))
    assert ("gather" in operations) == (index.size > 0 and bool(np.any(np.diff(index.reshape(-1)) != 1)))


@pytest.mark.parametrize("axis", [0, -1])
def test_joined_puts_parts_where_they_belong(axis):
    x = jnp.asarray(np.random.default_rng(4).normal(size=(7, 7)), DTYPE)
    places = np.array([4, 1, 6]), np.array([], int), np.array([0, 2, 3, 5])
    np.testing.assert_array_equal(joined(tuple(take(x, k, axis) for k in places), places, axis), x, strict=True)
