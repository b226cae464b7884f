"""`info.error`: what a step says of its error, judged by the same time in many small steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_model, random_q
from motions import free_tree

import pbad_jax as pbad
from pbad_jax import Body, Joint, Status
from pbad_jax.kinematics.transforms import length_scale
from pbad_jax.kinematics.tree import tree

LANES = 16


def states(model, q, v):
    return jax.vmap(lambda q, v: pbad.make_state(model, q, v))(jnp.asarray(q), jnp.asarray(v))


def spread(model, fast: float, n: int = LANES):
    rng = np.random.default_rng(3)
    q = np.stack([random_q(model, rng) for _ in range(n)])
    return states(model, q, fast * rng.normal(size=(n, model.nv)))


@functools.cache
def steps(scheme: str, parts: int):
    """dt in parts, of many lanes: the last state and all infos. Compiled once for a shape."""
    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme))

    def lane(model, state, dt, control):
        return jax.lax.scan(lambda s, _: step(model, s, control, dt / parts), state, None, length=parts)

    return jax.jit(jax.vmap(lane, in_axes=(None, 0, None, 0)))


def ratios(model, begun, dt, scheme, controls=None, judge="radau3", parts=16):
    """info.error over the true one, of every lane; and the true one."""
    controls = jnp.zeros((len(begun.q), model.nu), model.dtype) if controls is None else jnp.asarray(controls)
    after, info = steps(scheme, 1)(model, begun, dt, controls)
    right, infos = steps(judge, parts)(model, begun, dt, controls)
    assert bool(jnp.all(info.ok)) and bool(jnp.all(infos.ok))
    far = np.abs(jax.vmap(lambda a, b: pbad.difference(model, a, b))(right.q, after.q))
    far[:, tree(model.topology).dof_slide] /= float(length_scale(model))
    true = far.max(axis=1)
    return np.asarray(info.error)[:, 0] / true, true


def near(ratio, factor: float) -> float:
    return float(np.mean((ratio < factor) & (ratio > 1 / factor)))


@pytest.mark.float64
@pytest.mark.thorough
@pytest.mark.parametrize("scheme, order", [("radau1", 2), ("radau2", 4)])
def test_of_smooth_motion_it_is_the_leading_term(scheme, order):
    """Of a floating tree with a ball, a hinge and a slide: right in small steps, and falling by the scheme's order."""
    model = free_tree()
    begun, found = spread(model, 1.0), {}
    for dt in (0.04, 0.01):
        ratio, true = ratios(model, begun, dt, scheme)
        found[dt] = np.median(true)
        print(scheme, dt, found[dt], np.quantile(ratio, [0, 0.5, 1]))
        assert near(ratio, 1.6 if dt == 0.04 else 1.25) == 1
    assert abs(np.log(found[0.04] / found[0.01]) / np.log(4) - order) < 0.3


@pytest.mark.thorough
@pytest.mark.float64
@pytest.mark.slow
def test_of_random_trees():
    for topology in ("balls", "slides and hinges"):
        model = random_model(topology, 2)
        ratio, _ = ratios(model, spread(model, 0.5), 0.01, "radau2")
        print(topology, np.quantile(ratio, [0, 0.5, 1]))
        assert near(ratio, 3) >= 0.9


ARM = """<mujoco><compiler angle="radian"/><worldbody>{bodies}</worldbody><actuator>{drives}</actuator></mujoco>"""


def arm() -> pbad.Model:
    """Three joints with servos, about ten times as stiff as a step is long."""
    bodies, drives = "", ""
    for i, axis in reversed(list(enumerate(("0 1 0", "0 0 1", "0 1 0")))):
        geom = '<geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1" contype="0" conaffinity="0"/>'
        bodies = f'<body pos="{0.3 if i else 0} 0 0"><joint name="j{i}" axis="{axis}"/>{geom}{bodies}</body>'
        drives = f'<position joint="j{i}" kp="2000" kv="60"/>{drives}'
    return pbad.load(ARM.format(bodies=bodies, drives=drives), dtype=jnp.float64)


@pytest.mark.float64
@pytest.mark.thorough
def test_of_stiff_servos():
    """Told to go 0.3 rad away, which decays within the step: right within 3 in the median."""
    model = arm()
    begun = spread(model, 1.0, 32)
    goals = begun.q + 0.3 * np.random.default_rng(1).normal(size=begun.q.shape)
    for scheme in ("radau1", "radau2"):
        for dt in (0.05, 0.005):
            ratio, true = ratios(model, begun, dt, scheme, goals, "radau2", 64)
            print(scheme, dt, np.median(true), np.quantile(ratio, [0.05, 0.5, 0.95]), near(ratio, 3))
            assert 1 / 3 < np.median(ratio) < 3 and near(ratio, 8) >= 0.9


BALL = """<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.5"/><body pos="0 0 0.2"><freejoint/>
<geom type="sphere" size="0.1" mass="1" friction="0.5"/></body></worldbody></mujoco>"""


@pytest.mark.float64
@pytest.mark.thorough
def test_of_a_ball_that_lands_within_the_step():
    """The impulse is known and its moment is not: a size, right within 3 in the median and in half of the lanes."""
    model, rng = pbad.load(BALL, dtype=jnp.float64), np.random.default_rng(2)
    q, v = np.tile(np.asarray(model.q0), (32, 1)), rng.normal(size=(32, 6))
    v[:, 2] = -rng.uniform(1, 5, 32)
    q[:, 2] = 0.1 - 0.02 * v[:, 2] * rng.uniform(0.05, 0.95, 32)
    for scheme in ("radau1", "radau2"):
        ratio, true = ratios(model, states(model, q, v), 0.02, scheme, None, "radau2", 64)
        print(scheme, np.median(true), np.quantile(ratio, [0.05, 0.5, 0.95]), near(ratio, 3))
        assert near(ratio, 3) >= 0.5 and 1 / 3 < np.median(ratio) < 3


@pytest.mark.float64
def test_what_coasts_has_none():
    """A wheel on its axle, 3 rad a step: the step is exact, and says so."""
    body = Body("wheel", 1.0, inertia=0.005 * np.eye(3), joints=[Joint("hinge", (0, 1, 0))])
    model = pbad.build_model([body], gravity=(0, 0, 0))
    _, info = steps("radau2", 1)(model, states(model, [[0.0]], [[150.0]]), 0.02, jnp.zeros((1, 0)))
    assert float(info.error[0, 0]) < 1e-12


@pytest.mark.float64
def test_where_it_is_not_known():
    """NaN of other schemes, and of steps that fail; its derivative is zero."""
    model = pbad.chain(1, dtype=jnp.float64)
    state = pbad.make_state(model, [0.5, 0.3], [1.0, -2.0])
    for scheme in ("radau3", "dirk2", "legendre2", "variational"):
        _, info = jax.jit(pbad.make_step(pbad.Options(dt=0.01, scheme=scheme)))(model, state)
        assert bool(info.ok) and np.isnan(float(info.error)), scheme
    hard = pbad.Options(dt=0.5, scheme="radau2", max_iterations=1)
    _, info = jax.jit(pbad.make_step(hard))(model, state)
    assert int(info.status) == Status.MAX_ITER and np.isnan(float(info.error))

    def told(v):
        _, info = pbad.make_step(pbad.Options(dt=0.05))(model, pbad.make_state(model, [0.5, 0.3], v))
        return info.error

    value, slope = jax.jit(jax.value_and_grad(told))(jnp.asarray([1.0, -2.0]))
    assert float(value) > 0 and float(jnp.abs(slope).max()) == 0


@pytest.mark.thorough
@pytest.mark.float64
@pytest.mark.slow
def test_of_a_step_in_parts_it_is_the_sum():
    """And the same of lanes that go by iterations as of those that go together."""
    model = pbad.chain(2, dtype=jnp.float64)
    begun = spread(model, 3.0)
    options = pbad.Options(dt=0.1, max_iterations=4, on_failure="substep")
    path, info = pbad.rollout_batch(model, begun, n_steps=3, options=options, schedule="iteration")
    _, other = pbad.rollout_batch(model, begun, n_steps=3, options=options, schedule="step")
    np.testing.assert_allclose(info.error, other.error, rtol=1e-9)
    parts = np.asarray(info.substeps)
    assert (parts > 1).any() and np.isfinite(info.error[np.asarray(info.status) == 0]).all()

    # two halves of one step
    lane, row = np.argwhere(parts == 2)[0]
    state = jax.tree.map(lambda x: x[lane], begun)
    if row:
        state = pbad.states_of(model, jax.tree.map(lambda x: x[lane, row - 1], path))
    one = jax.jit(pbad.make_step(pbad.Options(dt=0.05)))
    middle, first = one(model, state)
    _, second = one(model, middle)
    np.testing.assert_allclose(info.error[lane, row], first.error + second.error, rtol=1e-6)
