"""A rollout that goes on in two halves is the whole, bit for bit: a trajectory drops nothing that a step reads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, slow, thorough

import pbad_jax as pbad

pytestmark = [pytest.mark.filterwarnings("ignore:legendre:UserWarning"), pytest.mark.optimised]

HALF = 8
N = 2 * HALF
LANES = 3


@functools.cache
def model() -> pbad.Model:
    """A hinge whose actuator integrates its control, and a ball, whose quaternions round."""
    hinge, ball = pbad.Joint("hinge", (0, 1, 0), "h"), pbad.Joint("ball", name="b")
    bodies = [pbad.Body("arm", 1.0, (0, 0, -0.5), np.eye(3) / 9, joints=[hinge])]
    bodies += [pbad.Body("hand", 0.5, (0, 0, -0.2), np.eye(3) / 50, "arm", (0, 0, -1), joints=[ball])]
    motor = pbad.Actuator("h", "a", gain=5.0, bias=(0, -5.0, -1.0), integrates=True, activation_range=(-3, 3))
    return pbad.build_model(bodies, actuators=[motor], sensors={"f": pbad.Sensor("actuatorfrc", "a")}, dtype=DTYPE)


def begun() -> pbad.State:
    """Three lanes at a time whose digits a step of 0.03 s does not end on; the last one's steps fail."""
    v = jnp.asarray(np.random.default_rng(0).normal(size=(LANES, model().nv)), DTYPE).at[-1].multiply(600.0)
    return jax.vmap(lambda v: pbad.make_state(model(), v=v, time=1.1))(v)


def controls() -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).normal(size=(LANES, N, 1)), DTYPE)


def options(scheme: str) -> pbad.Options:
    scheme, _, accuracy = scheme.partition(" to ")
    return pbad.Options(dt=0.03, scheme=scheme, max_iterations=12, accuracy=float(accuracy) if accuracy else None)


def lane(tree, k: int):
    return jax.tree.map(lambda x: x[k], tree)


def assert_same(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def second_half(tree):
    return jax.tree.map(lambda x: x[..., HALF:, :] if x.ndim == 3 else x[..., HALF:], tree)


@pytest.mark.parametrize(
    "scheme", ["radau2", thorough("legendre3"), thorough("dirk2"), thorough("legendre2"), thorough("radau3")]
)
def test_of_many_lanes(scheme, tmp_path):
    """Through `states_of`, also of a trajectory that was cut, or saved; a lane that had failed stays FROZEN."""
    go = functools.partial(pbad.rollout_batch, model(), options=options(scheme), tile=LANES)
    whole, info = go(begun(), controls())
    assert (info.status[:2] == 0).all() and info.status[2, -1] == pbad.Status.FROZEN
    first, told = go(begun(), controls()[:, :HALF])
    assert_same(first, jax.tree.map(lambda x: x[:, :HALF], whole))
    pbad.save_trajectory(tmp_path / "first.npz", model(), first, told)
    for half in (first, pbad.load_trajectory(tmp_path / "first.npz"), jax.tree.map(lambda x: x[:, :HALF], whole)):
        ends = jax.tree.map(lambda x: x[:, -1], pbad.states_of(model(), half))
        assert (np.abs(ends.activation[:2]) > 0.01).all()
        second, _ = go(ends, controls()[:, HALF:])
        good = jax.tree.map(lambda x: x[:2], (second, second_half(whole)))
        assert_same(*good)
        assert_same(*((x.q, x.v, x.rest["status"]) for x in (second, second_half(whole))))


@pytest.mark.parametrize("scheme", ["radau1", thorough("legendre2"), slow("radau1 to 1e-3")])
def test_of_one_lane_and_its_sensors(scheme):
    """`rollout`, and the force of an actuator along it: kp (a − q) − kv v, a the integral of its control."""
    u = controls()[0]
    whole, info = pbad.rollout(model(), lane(begun(), 0), u, options=options(scheme))
    assert info.ok and (scheme == "radau1 to 1e-3") == (info.substeps > 2).any()
    states = pbad.states_of(model(), whole)
    read = jax.vmap(lambda s, u: pbad.read_sensors(model(), s, u)["f"])(states, u)
    a = 0.03 * np.cumsum(u[:, 0])
    rounding = 1e-4 if DTYPE == np.float32 else 1e-12
    np.testing.assert_allclose(whole.activation[:, 0], a, atol=rounding)
    np.testing.assert_allclose(read[:, 0], 5 * (a - whole.q[:, 0]) - whole.v[:, 0], atol=rounding)
    for k in (0, HALF - 1):
        rest, _ = pbad.rollout(model(), lane(states, k), u[k + 1 :], options=options(scheme))
        assert_same(rest, jax.tree.map(lambda x: x[k + 1 :], whole))  # noqa: B023


def test_of_explicit_steps():
    u = controls()[0]
    go = functools.partial(pbad.newton_euler.rollout, model(), dt=0.01)
    whole, _ = go(lane(begun(), 0), u)
    first, _ = go(lane(begun(), 0), u[:HALF])
    second, _ = go(lane(pbad.states_of(model(), first), -1), u[HALF:])
    assert_same(second, jax.tree.map(lambda x: x[HALF:], whole))


def test_a_trajectory_made_by_hand_gives_new_states():
    """Of q, v and time alone, as of a file of format version 1."""
    s = begun()
    states = pbad.states_of(model(), pbad.Trajectory(s.time, s.q, s.v))
    assert_same(states, s)
    assert not states.has_history.any()
