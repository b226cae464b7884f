"""What is s times as large, of the same material, moves alike in √s of the time: no law has a size of its own."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import pbad_jax as pbad
from pbad_jax import forces


def robot(s: float) -> str:
    """A box that falls on the ground, with a leg that hits its ends and its trunk, a rod that slides to its end, a
    rope and dry friction: lengths go as s, times as √s, masses as s³, forces as s³, torques as s⁴.
    """
    t = s**0.5
    soft = f'solref="{0.02 * t} 1" solimp=".9 .95 {0.001 * s}"'
    ends = f'solreflimit="{0.02 * t} 1" solreffriction="{0.02 * t} 1" solimplimit=".9 .95 {0.001 * s}"'
    rope = ends.replace("solimplimit", "solimpfriction")
    return f"""<mujoco>
    <compiler inertiafromgeom="true" angle="radian"/>
    <option timestep="{0.001 * t}"/>
    <default>
      <geom {soft} condim="6" friction="0.8 {0.01 * s} {0.002 * s}"/>
    </default>
    <worldbody>
      <geom type="plane" size="{5 * s} {5 * s} 1"/>
      <body pos="0 0 {0.15 * s}">
        <freejoint/>
        <geom type="box" size="{0.1 * s} {0.08 * s} {0.03 * s}"/>
        <site name="at" pos="0 0 {0.1 * s}"/>
        <body pos="{0.15 * s} 0 0">
          <joint axis="0 1 0" range="-0.3 0.3" limited="true" frictionloss="{0.1 * s**4}" {ends}/>
          <geom type="capsule" fromto="0 0 0 {0.2 * s} 0 {-0.1 * s}" size="{0.02 * s}"/>
          <body pos="{0.2 * s} 0 {-0.1 * s}">
            <joint axis="0 1 0"/>
            <geom type="box" pos="{-0.1 * s} 0 {0.1 * s}" size="{0.03 * s} {0.03 * s} {0.03 * s}"/>
          </body>
        </body>
        <body pos="{-0.15 * s} 0 0">
          <joint type="slide" axis="1 0 0" range="{-0.02 * s} {0.02 * s}" limited="true" frictionloss="{s**3}" {ends}/>
          <geom type="sphere" size="{0.04 * s}"/>
          <site name="end"/>
        </body>
      </body>
    </worldbody>
    <tendon>
      <spatial range="0 {0.182 * s}" limited="true" frictionloss="{0.3 * s**3}" {rope}>
        <site site="at"/>
        <site site="end"/>
      </spatial>
    </tendon>
    </mujoco>"""


@pytest.mark.thorough
@pytest.mark.float64
def test_a_robot_of_another_size_moves_alike():
    ways = []
    for s in (1.0, 0.1, 0.01):
        model = pbad.load(robot(s))
        assert {"ShapeContact", "JointLimit", "SpatialTendonLimit", "JointFriction"} <= set(
            map(forces.name_of, model.forces)
        )
        length = np.r_[np.full(3, s), np.ones(6), s]  # of q: a place, a turn, two angles, a way
        speed = np.r_[np.full(3, s), np.ones(5), s] / s**0.5
        v = speed * np.array([0.5, 0, -1, 0, 1, 0, 3, -2, 1.0])
        run, info = pbad.rollout(
            model, pbad.make_state(model, v=v), n_steps=40, options=pbad.Options(dt=0.01 * s**0.5, scheme="radau1")
        )
        assert bool(jnp.all(info.ok)), info
        ways.append(np.asarray(run.q) / length)
    assert np.ptp(ways[0][:, 7]) > 0.3  # it moves, to its ends
    for other in ways[1:]:
        assert_close(other, ways[0], 1e-9)
