"""A robot that holds a pose, from Python and from the command line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint

pytestmark = pytest.mark.float64


def arm() -> pbad.Model:
    """Two hinges and a ball, of which a servo moves the first."""
    rod = np.diag([0.01, 0.084, 0.084])
    bodies = [
        Body("upper", 1.0, (0.5, 0, 0), rod, joints=[Joint("hinge", (0, 1, 0), name="a", range=(-1, 1))]),
        Body("lower", 1.0, (0.5, 0, 0), rod, "upper", (1, 0, 0), joints=[Joint("hinge", (0, 1, 0), name="b")]),
        Body("hand", 0.3, (0.1, 0, 0), 0.01 * np.eye(3), "lower", (1, 0, 0), joints=[Joint("ball", name="wrist")]),
    ]
    return pbad.build_model(bodies, actuators=[Actuator("a", name="s", gain=4e3, bias=(0, -4e3, -400.0))])


def test_a_pose_is_held_by_servos_and_drives():
    """One second of gravity moves no joint by more than its sag, 30 rad/s or the servo's own."""
    model = arm()
    state = pbad.make_state(model, [0.6, -0.9, 1, 0, 0, 0])
    held, begun, control = pbad.hold(model, state)
    np.testing.assert_allclose(control, [0.6])
    assert held.nu == model.nu and len(held.forces) == len(model.forces) + 1
    traj, info = pbad.rollout(held, begun, jnp.tile(control, (50, 1)), options=pbad.Options(0.02), progress=False)
    assert not np.asarray(info.status).any()
    away = pbad.difference(held, begun.q, traj.q[-1])
    assert np.abs(away).max() < 0.03 and np.abs(traj.v[-1]).max() < 1e-3
    falls, _ = pbad.rollout(model, begun, n_steps=50, options=pbad.Options(0.02), progress=False)
    assert np.abs(pbad.difference(model, begun.q, falls.q[-1])).max() > 0.5


def test_beyond_the_range_it_begins_at_the_end():
    model = arm()
    _, begun, control = pbad.hold(model, pbad.make_state(model, [1.5, 0, 1, 0, 0, 0], time=3.0))
    np.testing.assert_allclose([begun.q[0], control[0]], 1.0)
    assert begun.time == 3.0


def test_bad_input_is_told():
    model = arm()
    with pytest.raises(pbad.ModelError, match="give a Model"):
        pbad.hold(None)
    with pytest.raises(pbad.StateError):
        pbad.hold(model, pbad.make_state(pbad.chain(1)))
    with pytest.raises(pbad.ModelError, match="traced"):
        jax.jit(lambda s: pbad.hold(model, s)[1].q)(pbad.make_state(model))
