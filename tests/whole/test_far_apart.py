"""Trees of one model that are far from one another and from the world's origin, in single precision.

Every tree is worked about a point of its own, so that it moves as it does alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import error

import pbad_jax as pbad
from pbad_jax.atom import operator
from pbad_jax.kinematics import transforms

pytestmark = pytest.mark.float64  # single precision is asked for by name

INERTIA = np.diag([0.1, 0.2, 0.25])
FAR = (0.0, 200.0, 1000.0)


def rods_and_tops(dtype):
    """Two free bodies and a pendulum; nothing joins them."""
    tops = [pbad.Body(n, 1.0, inertia=INERTIA, joints=[pbad.Joint("free", name=f"j{n}")]) for n in "ab"]
    hinge = pbad.Joint("hinge", (1, 0, 0), name="hinge")
    rod = pbad.Body("rod", 1.0, (0, 0, -0.5), np.diag([1 / 12, 1 / 12, 1e-3]), position=(5, 0, 0), joints=[hinge])
    return pbad.build_model([*tops, rod], gravity=(0, 0, 0), dtype=dtype)


def test_a_speck_turns_and_falls():
    """The determinant of its inertia, 1e-39 kg³ m⁶, is no number in single precision."""
    joint = pbad.Joint("free", name="free")
    m, L = 1e-6, 1e-3
    speck = pbad.Body("speck", m, (0, 0, 0), m * L**2 * np.diag([0.1, 0.2, 0.25]), joints=[joint])
    model = pbad.build_model([speck], dtype=np.float32)
    state = pbad.make_state(model, v=[0, 0, 0, 3.0, -20.0, 5.0])
    traj, info = pbad.rollout(model, state, n_steps=20, options=pbad.Options(dt=1e-3))
    assert info.ok.all()
    assert float(traj.q[-1, 2]) == pytest.approx(-9.81 * 0.02**2 / 2, rel=1e-4)
    I = np.array([0.1, 0.2, 0.25])
    spin = np.linalg.norm(np.asarray(traj.v[:, 3:]) * I, axis=1)
    np.testing.assert_allclose(spin, np.linalg.norm([0.3, -4.0, 1.25]), rtol=1e-4)


def test_trees_far_apart_turn_as_they_do_alone():
    model = rods_and_tops("float32")
    spins = np.array([[1.0, 2.0, 3.0], [-2.0, 0.1, 0.2]])

    def start(x):
        q = [x, 0, 0, 1, 0, 0, 0, 0, -x, 0, 1, 0, 0, 0, 0.3]
        return pbad.make_state(model, q, [0, 0, 0, *spins[0], 0, 0, 0, *spins[1], 1.0])

    states = jax.tree.map(lambda *x: jnp.stack(x), *map(start, FAR))
    options = pbad.Options(dt=0.01)
    traj, info = jax.jit(jax.vmap(lambda s: pbad.rollout(model, s, n_steps=100, options=options)))(states)
    assert info.ok.all()
    v = np.asarray(traj.v, float)
    for k, spin in enumerate(spins):
        w = v[:, :, 6 * k + 3 : 6 * k + 6]
        np.testing.assert_allclose(np.einsum("lti,ij,ltj->lt", w, INERTIA, w), spin @ INERTIA @ spin, rtol=1e-3)
        np.testing.assert_allclose(np.linalg.norm(w @ INERTIA, axis=-1), np.linalg.norm(INERTIA @ spin), rtol=1e-3)
    np.testing.assert_allclose(v[:, :, -1], 1.0, rtol=1e-3)
    np.testing.assert_allclose(v[1:], np.broadcast_to(v[:1], v[1:].shape), atol=1e-3)


def test_origins_change_nothing():
    """Momenta, mass and second derivatives are those about one point, which double precision shows."""
    model, rng = rods_and_tops("float64"), np.random.default_rng(0)
    q = jnp.asarray(pbad.retract(model, model.q0, jnp.asarray(rng.normal(size=model.nv))))
    f = transforms.frames(model, q)
    own = transforms.origins(model, f.T)
    links = np.array(model.topology.body_link)
    np.testing.assert_allclose(own[links[:2]], f.T[links[:2], :, 3], atol=1e-12)  # whose centres are at their frames
    np.testing.assert_allclose(own[links[2]], f.T[links[2], :, 3] - 0.5 * f.T[links[2], :, 2], atol=1e-12)
    g, A = transforms.frames(model, q, own), jnp.asarray(rng.normal(size=f.T.shape))
    assert error(operator.mass(model, g), operator.mass(model, f)) < 1e-13
    assert error(operator.pullback(model, g, A), operator.pullback(model, f, A)) < 1e-13
    for name in ("parallel", "serial"):
        way = operator.RECURRENCES[name]
        assert error(way.pullback_hess(model, g, A), way.pullback_hess(model, f, A)) < 1e-12
    v = jnp.asarray(rng.normal(size=model.nv))
    assert error(transforms.velocity_field(model, g, v), transforms.velocity_field(model, f, v)) < 1e-13


@pytest.mark.thorough
def test_far_apart_balls_come_to_rest_on_the_ground():
    """As one does at the origin: at the same height, pressed by their weights."""
    sphere = pbad.Geom("sphere", (0.1,))
    balls = [
        pbad.Body(n, 1.0, inertia=0.004 * np.eye(3), joints=[pbad.Joint("free", name=f"j{n}")], geoms=[sphere])
        for n in "ab"
    ]
    model = pbad.with_ground(pbad.build_model(balls, dtype="float32"))

    def start(x):
        return pbad.make_state(model, [x, 0, 0.15, 1, 0, 0, 0, -x, 0.5, 0.12, 1, 0, 0, 0])

    states = jax.tree.map(lambda *x: jnp.stack(x), *map(start, FAR))
    options = pbad.Options(dt=0.01)
    traj, info = jax.jit(jax.vmap(lambda s: pbad.rollout(model, s, n_steps=100, options=options)))(states)
    assert info.ok.all()
    heights = np.asarray(traj.q, float)[:, -1, [2, 9]]
    np.testing.assert_allclose(heights, heights[0, 0], atol=1e-4)
    np.testing.assert_allclose(traj.v[:, -1], 0.0, atol=2e-3)
