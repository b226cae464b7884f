"""Torsional and rolling friction: what they do to balls, MuJoCo's rules for them, wrong input."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, assert_refused

import pbad_jax as pbad
from pbad_jax import forces

R, G = 0.1, 9.81
BALL = """<mujoco><worldbody><geom type="plane" size="5 5 .1" {}/>
  <body pos="0 0 0.0995"><freejoint/><geom size="0.1" mass="2" {}/></body></worldbody></mujoco>"""
OPTIONS = pbad.Options(dt=0.02, scheme="radau2")


@functools.cache
def ball() -> pbad.Model:
    """It presses the ground with its weight; μ_t = 0.004 m, μ_r = 0.002 m."""
    same = 'condim="6" friction="1 0.004 0.002"'
    return pbad.load(BALL.format(same, same), dtype=DTYPE)


def motion(model, v, n: int = 50):
    traj, info = pbad.rollout(model, pbad.make_state(model, v=v), n_steps=n, options=OPTIONS, progress=False)
    info.assert_ok()
    return traj


@pytest.mark.float64
@pytest.mark.optimised
def test_a_top_slows_at_a_constant_rate_and_stands_still():
    """I ω̇ = −μ_t m g with I = ⅖ m R²; radau(2) turns it back a little, once."""
    rate = 0.004 * G / (0.4 * R**2)
    spin = np.asarray(motion(ball(), [0, 0, 0, 0, 0, 5.0]).v)[:, 5]
    slows = np.diff(spin)[(spin > 0.3)[1:]][3:]  # once it has settled
    assert len(slows) > 15
    np.testing.assert_allclose(slows, -rate * OPTIONS.dt, rtol=0.01)
    assert np.abs(spin[-20:]).max() < 1e-3 and spin.min() > -0.03


@pytest.mark.optimised
def test_a_rolling_ball_slows_at_a_constant_rate_and_stands_still():
    """About where it touches, ⁷⁄₅ m R² ω̇ = −μ_r m g; without rolling friction it rolls on."""
    rate = 0.002 * G / (1.4 * R)  # of its velocity, m/s²
    v = np.asarray(motion(ball(), [0.08, 0, 0, 0, 0.8, 0.0]).v)
    there = 0.08 - rate * OPTIONS.dt * np.arange(1, 51)
    np.testing.assert_allclose(v[there > 0.01, 0], there[there > 0.01], rtol=0.1)
    np.testing.assert_allclose(v[:, 4] * R, v[:, 0], atol=2e-3)
    assert np.abs(v[-10:]).max() < 1e-3


def test_balls_that_touch_turn_one_another_by_equal_and_opposite_torques():
    """μ_t N along the normal, where one spins on the other; and what is across it, by μ_r."""
    free = [pbad.Body(n, 2.0, (0, 0, 0), 0.008 * np.eye(3), position=(0, 0, z), joints=[pbad.Joint("free")],
                      geoms=[pbad.Geom("sphere", (R, 0, 0))]) for n, z in (("a", 0.0), ("b", 0.19))]  # fmt: skip
    model = pbad.build_model(free, gravity=(0, 0, 0), dtype=DTYPE)
    how = {"stiffness": 1e3, "smoothing": 1e-3, "damping": 0.0, "friction": 0.0, "turning": (0.04, 0.01)}
    model = pbad.with_forces(model, *forces.contact_between(model, [("a", "b")], **how))
    N = 1e3 * (0.01 - 0.0005)
    for omega, torque in (((0, 0, 30.0), (0, 0, 0.04)), ((0, 20.0, 0), (0, 0.01, 0)), ((15, 0, -20), (0.01, 0, -0.04))):
        on_a, on_b = np.asarray(pbad.contact_forces(model, pbad.make_state(model, v=[0, 0, 0, *omega] + 6 * [0])))
        np.testing.assert_allclose(on_b[:3], N * np.array(torque), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(on_a[:3], -on_b[:3], atol=1e-6)


@pytest.mark.thorough
@pytest.mark.optimised
@pytest.mark.float64
def test_gradients():
    """Of the spin at the end by both coefficients, against differences."""
    model = ball()
    contact = [f for f in model.forces if isinstance(f, forces.Contact)][0]
    others = [f for f in model.forces if f is not contact]

    @jax.jit
    def spin(turning):
        other = dataclasses.replace(model, forces=(*others, dataclasses.replace(contact, turning=turning[None])))
        traj, _ = pbad.rollout(other, pbad.make_state(other, v=[0.1, 0, 0, 0, 1.0, 5.0]), n_steps=5, options=OPTIONS)
        return traj.v[-1, 4] + traj.v[-1, 5]

    x, e = jnp.asarray([0.004, 0.002]), 1e-6 * jnp.eye(2)
    got = jax.jit(jax.grad(spin))(x)
    np.testing.assert_allclose(got, [(spin(x + d) - spin(x - d)) / 2e-6 for d in e], rtol=1e-5)


@pytest.mark.float64
def test_which_friction_acts_is_as_in_mujoco():
    """By condim, of the geom with priority, else by the larger of both; of an explicit pair its own."""

    def turning(floor: str, shape: str):
        found = [f for f in pbad.load(BALL.format(floor, shape)).forces if isinstance(f, forces.Contact)]
        return found[0].turning

    assert turning("", "") is None and turning('condim="1"', "") is None
    np.testing.assert_allclose(turning('condim="4"', ""), [[0.005, 0]])
    np.testing.assert_allclose(turning('condim="6"', 'friction="1 .02 .001"'), [[0.02, 0.001]])
    assert turning('condim="6"', 'condim="3" priority="1"') is None
    np.testing.assert_allclose(turning('condim="6" priority="1" friction="1 .3 .2"', 'friction="1 5 5"'), [[0.3, 0.2]])
    pair = '<contact><pair geom1="a" geom2="b" condim="6" friction="1 1 0.3 0.2 0.2"/></contact>'
    text = BALL.format('name="a"', 'name="b"').replace("</mujoco>", pair + "</mujoco>")
    (contact,) = [f for f in pbad.load(text).forces if isinstance(f, forces.Contact)]
    np.testing.assert_allclose(contact.turning, [[0.3, 0.2]])


@pytest.mark.parametrize("turning", [(0.1,), (0.1, -0.1), [[0.1, 0.1]] * 2, (float("nan"), 0.1)])
def test_wrong_input(turning):
    assert_refused(lambda: forces.contact(ball(), turning=turning), ["turning", "contact", "torsional", "≥ 0"])
