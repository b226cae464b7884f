"""The one-sided law and where it is linearised: at the depth where a mass would come to rest against it."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32

from pbad_jax.laws import one_sided
from pbad_jax.laws.one_sided import Tangent, led, no_tangent

N = 20000


def laws(seed):
    """Laws, steps and masses over many decades; starts and depths on both sides."""
    rng = np.random.default_rng(seed)

    def decades(a, b):
        return jnp.asarray(10 ** rng.uniform(a, b, N), DTYPE)

    law = types.SimpleNamespace(stiffness=decades(2, 7), width=decades(-4, -1.5), damping=decades(-2, 1))
    follows, side = 1 / decades(-3, -0.7), [jnp.asarray(rng.choice([-1.0, 1.0], N), DTYPE) for _ in range(2)]
    begun = side[0] * decades(-5, -0.5)
    depth = begun + side[1] * decades(-5, -0.5)
    push = jnp.asarray(rng.random(N) < 0.7, DTYPE) * decades(-5, 0.5)
    return law, depth, (depth - begun) * follows, depth + push, follows, decades(-3, 1)


@pytest.mark.float64
def test_the_first_y_is_never_too_small_and_newtons_method_goes_down_to_it():
    law, depth, rate, target, follows, mass = laws(0)
    sigma = mass * follows**2

    def too_far(y):
        return y + one_sided.one_sided(law, y, rate + follows * (y - depth)).force / sigma - target

    y = one_sided._from_above(law, depth, rate, target, sigma, follows)
    assert np.all(too_far(y) >= -1e-12 * (1 + jnp.abs(target)))
    low, high = jnp.minimum(target, 0.0), jnp.maximum(target, 0.0)
    for _ in range(100):
        middle = 0.5 * (low + high)
        over = too_far(middle) > 0
        low, high = jnp.where(over, low, middle), jnp.where(over, middle, high)
    error = np.asarray(jnp.where(target > 0, y - high, 0.0) / law.width)
    print("y beyond the root, in widths:", np.percentile(error, [50, 90, 99]).round(4))
    assert np.percentile(error, 50) < 0.02 and np.percentile(error, 90) < 2


@pytest.mark.parametrize("seed", [0, 1])
def test_where_the_force_is_what_was_expected_the_law_is_linearised_where_it_is(seed):
    """At a root y = δ to rounding: the model is the law, whatever the mass."""
    law, depth, rate, _, follows, mass = laws(seed)
    f = one_sided.one_sided(law, depth, rate)
    slope = f.by_depth + follows * f.by_rate
    got = led(law, depth, rate, depth, Tangent(f.force - slope * depth, slope), follows, mass)
    scale = jnp.abs(f.force) + slope * (jnp.abs(depth) + law.width)
    eps = float(jnp.finfo(DTYPE).eps)
    for a in (got.force, got.modelled, got.curving):
        assert np.all(jnp.abs(a - f.force) <= 200 * eps * scale)
    for a, b in ((got.by_depth, f.by_depth), (got.by_rate, f.by_rate)):
        np.testing.assert_allclose(a, b, rtol=1e-2 if FLOAT32 else 1e-6, atol=1e-6 * float(jnp.max(jnp.abs(b))))


def test_what_lies_still_is_expected_to_press_as_it_did():
    """In the first guess of a step that leaves it where it is the model is the law; what moves is met by nothing."""
    law, depth, _, _, follows, mass = laws(4)
    none, still, eps = no_tangent((N,), DTYPE), jnp.zeros(N, DTYPE), float(jnp.finfo(DTYPE).eps)
    got = led(law, depth, still, depth, none, follows, mass)
    scale = got.force + (got.by_depth + follows * got.by_rate) * (jnp.abs(depth) + law.width)
    assert np.all(jnp.abs(got.modelled - got.force) <= 200 * eps * scale)
    moved = led(law, depth, still, depth + 0.3 * law.width, none, follows, mass)
    first = Tangent(still, still)
    for a, b in zip(moved, led(law, depth, still, depth + 0.3 * law.width, first, follows, mass)):
        np.testing.assert_array_equal(a, b)


def test_a_mass_thrown_against_it_is_stopped_in_few_steps():
    """m (x − x_free) + F(x)/follows² = 0 in one unknown: by its own mass the first y is all but the root."""
    law, depth, rate, free, follows, mass = laws(2)
    sigma, begun = mass * follows**2, depth - rate / follows
    x, last = depth, no_tangent((N,), DTYPE)
    for _ in range(6):
        f = led(law, x, (x - begun) * follows, x, last, follows, mass)
        slope = f.by_depth + follows * f.by_rate
        x = x - (sigma * (x - free) + f.modelled) / (sigma + slope)
        last = f.tangent
    f = one_sided.one_sided(law, x, (x - begun) * follows)
    scale = sigma * (jnp.abs(free) + law.width) + f.by_depth * law.width
    left = np.asarray(jnp.abs(sigma * (x - free) + f.force) / scale)
    print("left:", np.percentile(left, [50, 99, 100]))
    assert np.mean(left < (1e-4 if FLOAT32 else 1e-9)) > 0.98


def test_nothing_pulls_and_nothing_is_infinite():
    law, depth, rate, _, follows, mass = laws(3)
    f = jax.jit(lambda *x: led(law, *x, no_tangent((N,), DTYPE), follows, mass))(depth, rate, depth)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(f))
    assert np.all(f.force >= 0) and np.all(f.curving >= 0) and np.all(f.by_depth >= 0) and np.all(f.by_rate >= 0)
    far = depth < 0
    assert not np.any(np.where(far, f.modelled, 0.0))


@pytest.mark.float64
def test_the_stop_is_smooth_and_stiff_and_of_what_is_known():
    """Energy, force and slope are one another's derivatives, below, in and beyond where it comes in."""
    depth, rooms = jnp.linspace(-0.1, 0.4, 501), [0.2, jnp.inf, 0.0]

    def law(room):
        return types.SimpleNamespace(
            **{k: jnp.asarray(x) for k, x in {"stiffness": 3.0, "width": 0.01, "room": room}.items()}
        )

    def part(k, room):
        return jax.vmap(jax.value_and_grad(lambda x: one_sided.spring(law(room), x)[k]))(depth)

    for room in rooms:
        _, force, slope = one_sided.spring(law(room), depth)
        np.testing.assert_allclose(part(0, room)[1], force, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(part(1, room)[1], slope, rtol=1e-12, atol=1e-9)
        assert np.all(np.diff(force) >= 0) and jnp.isfinite(
            jax.grad(lambda r: jnp.sum(part(1, r)[0]))(jnp.asarray(room))
        )
    soft = one_sided.spring(law(jnp.inf), depth)[1]
    np.testing.assert_array_equal(soft, one_sided.spring(law(0.0), depth)[1])
    stopped = one_sided.spring(law(0.2), depth)
    assert np.all((stopped[1] == soft) == (np.asarray(depth) <= 0.1))
    assert stopped[2][depth > 0.126].min() > 1e4 * 3.0
