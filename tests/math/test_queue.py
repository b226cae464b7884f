"""Lanes leave a loop when they are done, and others take their place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbad_jax.math import queue


def run(weight, state):
    return queue.run_until_done(counted_down, lambda s: s[0] > 0, weight, state)


def counted_down(weight, state):
    n, total = state
    going = n > 0
    return jnp.where(going, n - 1, n), jnp.where(going, total + weight * n, total)


def expected(weights, n):
    return weights * n * (n + 1) // 2


@pytest.mark.parametrize("lanes", [1, 5, 16, 17, 200])
def test_every_lane_ends_as_it_would_alone(lanes):
    rng = np.random.default_rng(lanes)
    n, weights = rng.geometric(0.2, lanes) - 1, rng.integers(1, 9, lanes)
    left, total = jax.jit(jax.vmap(run))(
        jnp.asarray(weights, jnp.int32), (jnp.asarray(n, jnp.int32), jnp.zeros(lanes, jnp.int32))
    )
    assert not np.any(left)
    np.testing.assert_array_equal(total, expected(weights, n))


def test_on_an_accelerator_all_begin_and_the_last_go_on_alone(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(queue, "SLOTS", 8)
    test_every_lane_ends_as_it_would_alone(300)


def test_what_lanes_share_is_not_copied_to_them():
    n = np.arange(40)
    _, total = jax.vmap(run, (None, 0))(
        jnp.asarray(3, jnp.int32), (jnp.asarray(n, jnp.int32), jnp.zeros(40, jnp.int32))
    )
    np.testing.assert_array_equal(total, expected(3, n))


def test_lanes_of_lanes():
    n = np.random.default_rng(0).integers(0, 9, (3, 30))
    _, total = jax.vmap(jax.vmap(run, (None, 0)), (0, 0))(
        jnp.arange(3, dtype=jnp.int32), (jnp.asarray(n, jnp.int32), jnp.zeros((3, 30), jnp.int32))
    )
    np.testing.assert_array_equal(total, expected(np.arange(3)[:, None], n))


def test_none_waits_for_the_slowest():
    """The work is counted: 200 lanes of which one takes 100 times as long as the others."""
    passes = []

    def step(weight, state):
        jax.debug.callback(lambda w: passes.append(np.size(w)), weight, ordered=False)
        return counted_down(weight, state)

    n = np.full(200, 2)
    n[77] = 200
    go = jax.vmap(lambda w, s: queue.run_until_done(step, lambda s: s[0] > 0, w, s))
    jax.block_until_ready(go(jnp.ones(200, jnp.int32), (jnp.asarray(n, jnp.int32), jnp.zeros(200, jnp.int32))))
    jax.effects_barrier()
    assert len(passes) < (queue.MOST_CPU + 2) * 200  # not 200 · 200
