"""A ground under a model that has none."""

import numpy as np
import pytest
from helpers import DTYPE, assert_refused

import pbad_jax as pbad
from pbad_jax import Body, Geom, Joint, forces

INERTIA = 0.01 * np.eye(3)


def brick(**more) -> pbad.Model:
    base = Body("brick", 1.0, inertia=INERTIA, joints=[Joint("free")], geoms=[Geom("box", (0.1, 0.1, 0.1))])
    return pbad.build_model([base], dtype=DTYPE, **more)


def test_the_ground_is_below_the_lowest_point_across_gravity():
    (touch,) = [f for f in pbad.with_ground(brick()).forces if isinstance(f, forces.Contact)]
    assert float(touch.surface.distance(np.array([3.0, 5.0, -0.1]))) == pytest.approx(0, abs=1e-6)
    high = pbad.make_state(brick(), q=[0.0, 0, 2, 1, 0, 0, 0])
    assert pbad.with_ground(brick(), high).geometry.position[-1, 2] == pytest.approx(1.9, abs=1e-6)
    sideways = pbad.with_ground(brick(gravity=(9.81, 0.0, 0.0)))
    assert sideways.geometry.position[-1] == pytest.approx([0.1, 0, 0], abs=1e-6)
    rough = pbad.with_ground(brick(), height=-1.0, friction=0.3)
    assert rough.geometry.position[-1, 2] == pytest.approx(-1) and float(rough.forces[-1].friction[0]) == pytest.approx(
        0.3
    )


def test_what_cannot_stand_is_refused():
    for model, said in (
        (pbad.with_ground(brick()), ["with_ground", "plane of its own"]),
        (brick(gravity=(0.0, 0.0, 0.0)), ["no direction is down"]),
        (
            pbad.build_model([Body("bead", 1.0, inertia=INERTIA, joints=[Joint("free")])]),
            ["no shapes that could touch"],
        ),
    ):
        assert_refused(lambda model=model: pbad.with_ground(model), said)


def test_motors_leave_a_free_base_alone_and_keep_to_an_effort():
    leg = Body("leg", 1.0, inertia=INERTIA, joints=[Joint("hinge", name="hip", effort=40.0)], parent="brick")
    base = Body("brick", 1.0, inertia=INERTIA, joints=[Joint("free", name="base")])
    model = pbad.build_model([base, leg], dtype=DTYPE)
    (motor,) = pbad.motors(model)
    assert motor.joint == "hip" and motor.control_range == (-40.0, 40.0)
    assert len(pbad.motors(model, ["base"])) == 6
    weak = Body("leg", 1.0, inertia=INERTIA, joints=[Joint("hinge", name="hip", effort=0.0)])
    assert_refused(lambda: pbad.build_model([weak]), ["effort of joint 'hip'", "> 0"])
