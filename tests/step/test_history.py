"""A history belongs to the step that left it: of another dt, another scheme, or a kicked state, it is begun anew."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, slow, thorough

import pbad_jax as pbad

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore:legendre:UserWarning")]

DT = 0.02
KICK = 0.5


@functools.cache
def model() -> pbad.Model:
    """A cart that nothing acts on, and a pendulum."""
    slide, hinge = pbad.Joint("slide", (1, 0, 0)), pbad.Joint("hinge", (0, 1, 0))
    bodies = [pbad.Body("cart", 2.0, inertia=np.eye(3), joints=[slide])]
    bodies += [pbad.Body("rod", 1.0, (0, 0, -0.5), np.eye(3) / 12, joints=[hinge])]
    return pbad.build_model(bodies, dtype=DTYPE)


@functools.cache
def stepped(scheme: str):
    """Steps of many lanes, each of its own dt."""
    step = pbad.make_step(pbad.Options(dt=DT, scheme=scheme))
    return jax.jit(jax.vmap(lambda s, dt: step(model(), s, None, dt)))


def lanes(*states: pbad.State) -> pbad.State:
    return jax.tree.map(lambda *x: jnp.stack(x), *states)


def started(n: int) -> pbad.State:
    state = pbad.make_state(model(), [0.0, 1.0], [1.0, 1.5])
    return lanes(*[state] * n)


def anew(states: pbad.State) -> pbad.State:
    """New states of the same q, v and time."""
    return jax.vmap(lambda q, v, time: pbad.make_state(model(), q, v, time=time))(states.q, states.v, states.time)


def disturbed(states: pbad.State) -> tuple[pbad.State, jax.Array]:
    """Six lanes: as it was; twice and half the dt; kicks of v, of q, and of v by its last digit."""
    v = states.v.at[3].add(KICK).at[5, 1].set(np.nextafter(float(states.v[5, 1]), 9.0))
    states = dataclasses.replace(states, v=v, q=states.q.at[4].add(KICK))
    return states, jnp.asarray([DT, 2 * DT, DT / 2, DT, DT, DT], DTYPE)


def close(a: pbad.State, b: pbad.State) -> np.ndarray:
    """Which lanes agree but for rounding: much less than what a stale history makes."""
    gap = np.maximum(np.abs(a.q - b.q), np.abs(a.v - b.v)).max(axis=1)
    print(gap)
    return gap < 1e-13


@pytest.mark.parametrize("scheme", ["legendre2", slow("legendre3"), thorough("legendre5")])
def test_what_no_longer_belongs_to_a_state_is_not_used(scheme):
    """A disturbed lane goes on as a new state does, its cart at its speed; one that was left alone as before.

    The steps after it are all of one dt again, each its own, and use what was left.
    """
    step = stepped(scheme)
    states, dt = disturbed(step(started(6), jnp.full(6, DT, DTYPE))[0])
    after, info = step(states, dt)
    assert not np.any(info.status)
    np.testing.assert_array_equal(close(after, step(anew(states), dt)[0]), [False, *[True] * 5])
    np.testing.assert_allclose(after.v[:, 0], [1, 1, 1, 1 + KICK, 1, 1], rtol=1e-10)
    np.testing.assert_allclose((after.q - states.q)[:, 0], dt * after.v[:, 0], rtol=1e-10)
    assert not close(step(after, dt)[0], step(anew(after), dt)[0]).any()


@pytest.mark.slow
@pytest.mark.thorough
def test_another_scheme_between():
    """legendre2, then legendre3, radau2 and an explicit step, and back: each time it begins from (q, v)."""
    dt = jnp.full(1, DT, DTYPE)
    explicit = pbad.newton_euler.make_step(DT)
    begun = stepped("legendre2")(started(1), dt)[0]
    between = {
        "legendre3": lambda s: stepped("legendre3")(s, dt)[0],
        "radau2": lambda s: stepped("radau2")(s, dt)[0],
        "rk4": jax.vmap(lambda s: explicit(model(), s)[0]),
    }
    for name, other in between.items():
        states = other(begun)
        assert close(states, other(anew(begun))).all(), name
        assert close(*(stepped("legendre2")(s, dt)[0] for s in (states, anew(states)))).all(), name


def test_a_history_put_in_by_hand_is_taken():
    """(T₊ − 2 T + T₋)/dt² = 0 where nothing acts: the cart goes on as it came, whatever v is said to be."""
    history = jnp.asarray([0.2, 0.0], DTYPE)
    state = dataclasses.replace(pbad.make_state(model(), [0.3, 0.0]), history=history, has_history=jnp.asarray(True))
    after, _ = stepped("legendre2")(lanes(*[state] * 6), jnp.full(6, DT, DTYPE))
    np.testing.assert_allclose(after.q[:, 0], 0.4, rtol=1e-10)


@pytest.mark.thorough
def test_the_derivative_of_a_kick_and_of_none():
    """By differences of kicked runs, also where the kick is zero; of a run left alone neither lost nor doubled."""
    creature, step = model(), pbad.make_step(pbad.Options(dt=0.01, scheme="legendre3", tolerance=1e-13))

    def end(kick, start):
        state = pbad.make_state(creature, 1.0 + start[:2], 1.5 + start[2:])

        def body(state, k):
            here = jnp.where(k == 8, kick, 0.0)
            state = dataclasses.replace(state, q=state.q + here[:2], v=state.v + here[2:])
            return step(creature, state)[0], None

        state = jax.lax.scan(body, state, jnp.arange(24))[0]
        return jnp.concatenate([state.q, state.v])

    run, change = jax.jit(end), jax.jit(jax.jacrev(end, (0, 1)))
    none, h = jnp.zeros(4, DTYPE), 1e-4
    for kick in (none, jnp.asarray([0.1, 0.1, 0.2, 0.4], DTYPE)):
        by_kick, by_start = (np.asarray(x) for x in change(kick, none))
        near = np.stack([(run(kick + h * e, none) - run(kick - h * e, none)) / (2 * h) for e in np.eye(4)])
        far = np.stack([(run(kick, h * e) - run(kick, -h * e)) / (2 * h) for e in np.eye(4)])
        print(np.abs(by_kick.T - near).max(), np.abs(by_start.T - far).max())
        np.testing.assert_allclose(by_kick.T, near, atol=2e-6)
        np.testing.assert_allclose(by_start.T, far, atol=1e-6)
