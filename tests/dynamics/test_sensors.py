"""Sites, sensors, Jacobians and the centre of mass, against MuJoCo's own numbers and against differences."""

import dataclasses
import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32

import pbad_jax as pbad
from pbad_jax import Body, Joint, Sensor, Site
from pbad_jax.dynamics import newton_euler
from pbad_jax.dynamics.sensors import READERS
from pbad_jax.kinematics import manifold
from pbad_jax.math import rotations
from pbad_jax.model.sensors import KINDS

mujoco: Any = importlib.import_module("mujoco")  # it has no types
EXACT = 1e-4 if FLOAT32 else 1e-10  # relative to the largest entry
STATES = 8

FRAMES = {"tip": 'objtype="site" objname="tip"', "hand": 'objtype="xbody" objname="hand"',
          "inertia": 'objtype="body" objname="hand"', "shape": 'objtype="geom" objname="palm"',
          "eye": 'objtype="camera" objname="eye"'}  # fmt: skip
FRAME_KINDS = [k for k in KINDS if k.startswith("frame")]
SEEN = [k for k in FRAME_KINDS if not k.endswith("acc")]
AT_SITE = ("accelerometer", "velocimeter", "gyro", "force", "torque", "magnetometer")
SENSORS = "\n".join(
    [f'<{k} name="{k} {n}" {of}/>' for k in FRAME_KINDS for n, of in FRAMES.items()]
    + [f'<{k} name="{k} seen" {FRAMES["tip"]} reftype="site" refname="imu"/>' for k in SEEN]
    + [f'<{k} name="{k} {s}" site="{s}"/>' for k in AT_SITE for s in ("tip", "imu")]
    + [f'<{k} name="{k} {b}" body="{b}"/>' for k in ("subtreecom", "subtreelinvel", "subtreeangmom")
       for b in ("trunk", "arm")]
    + [f'<{k} name="{k} {j}" joint="{j}"/>' for k in ("jointpos", "jointvel", "jointactuatorfrc")
       for j in ("elbow", "rail")]
    + [f'<{k} name="{k}" joint="shoulder"/>' for k in ("ballquat", "ballangvel")]
    + [f'<{k} name="{k}" tendon="both"/>' for k in ("tendonpos", "tendonvel")]
    + [f'<{k} name="{k} {a}" actuator="{a}"/>' for k in ("actuatorpos", "actuatorvel", "actuatorfrc")
       for a in ("servo", "twist", "pull", "jet")]
    + ['<jointpos name="cut" joint="elbow" cutoff="0.1"/>', '<e_kinetic name="energy"/>', '<clock name="clock"/>']
)  # fmt: skip
ROBOT = f"""
<mujoco model="robot">
  <compiler angle="radian"/>
  <option gravity="0.3 -1 -8" magnetic="0.1 0.2 -0.4"><flag contact="disable"/></option>
  <worldbody>
    <site name="mark" pos="1 2 3" euler="0.1 0.2 0.3"/>
    <body name="trunk" pos="0 0 1">
      <freejoint name="float"/>
      <geom type="box" size="0.3 0.2 0.1" pos="0.02 0 0.01"/>
      <site name="imu" pos="0.1 -0.05 0.2" quat="1 2 -1 0.5"/>
      <body name="arm" pos="0.3 0 0" quat="1 0.2 0 0.1">
        <joint name="shoulder" type="ball" pos="0.02 0 0.03" damping="0.2" armature="0.02"/>
        <geom type="capsule" fromto="0 0 0 0.1 0.2 0.4" size="0.04"/>
        <body name="hand" pos="0.1 0.2 0.4">
          <joint name="elbow" axis="0 1 1" pos="0 0.01 0" stiffness="2"/>
          <joint name="rail" type="slide" axis="1 0 2" armature="0.1"/>
          <geom name="palm" type="ellipsoid" size="0.1 0.05 0.07" pos="0.05 0 0.02" euler="0.3 0.2 0.1"/>
          <camera name="eye" pos="0.1 0 0" euler="1 0.2 0.3"/>
          <site name="tip" pos="0.2 0.1 -0.05" euler="0.4 -0.7 1.1"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="both"><joint joint="elbow" coef="0.7"/><joint joint="rail" coef="-1.3"/></fixed></tendon>
  <actuator>
    <position name="servo" joint="elbow" kp="20" kv="2" gear="1.5" forcerange="-3 3"/>
    <general name="twist" jointinparent="shoulder" gear="1 2 3" gainprm="2" biastype="affine" biasprm="0.1 -2 -0.3"/>
    <general name="pull" tendon="both" gear="2" gainprm="3" biastype="affine" biasprm="0.2 -1 -0.1"/>
    <motor name="jet" joint="float" gear="1 2 3 0.1 0.2 0.3"/>
  </actuator>
  <sensor>{SENSORS}</sensor>
</mujoco>"""


@functools.cache
def robot() -> tuple[pbad.Model, Any]:
    return pbad.load(ROBOT, dtype=DTYPE), mujoco.MjModel.from_xml_string(ROBOT)


@functools.cache
def moments() -> list:
    """MuJoCo's data at some random states."""
    _, m = robot()
    rng, out = np.random.default_rng(0), []
    for _ in range(STATES):
        d = mujoco.MjData(m)
        mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
        d.qvel[:], d.ctrl[:], d.time = rng.normal(size=m.nv), rng.normal(size=m.nu), rng.uniform()
        mujoco.mj_forward(m, d)
        out.append(d)
    return out


@functools.cache
def ours() -> dict[str, Any]:
    """The same of the library, all states in one program."""
    model, _ = robot()

    @jax.jit
    @jax.vmap
    def read(q, v, time, control, acceleration):
        s = pbad.make_state(model, q, v, time=time)
        return {
            "poses": pbad.site_poses(model, s),
            "velocities": pbad.site_velocities(model, s),
            "jacobians": [pbad.site_jacobian(model, s, name) for name in model.sites],
            "point": pbad.body_jacobian(model, s, "hand", (0.1, -0.2, 0.3)),
            "mass": pbad.total_mass(model, "arm"),
            "com": pbad.center_of_mass(model, s),
            "com jacobian": pbad.center_of_mass_jacobian(model, s, "arm"),
            "com velocity": pbad.center_of_mass_velocity(model, s),
            "momentum": pbad.centroidal_momentum_matrix(model, s),
            "sensors": pbad.read_sensors(model, s, control, acceleration),
            "free": pbad.read_sensors(model, s, control)["accelerometer tip"],
        }

    columns = [np.array([getattr(d, k) for d in moments()]) for k in ("qpos", "qvel", "time", "ctrl", "qacc")]
    return read(*(jnp.asarray(x, DTYPE) for x in columns))


def close(found, wanted, tolerance: float = EXACT, what: str = ""):
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(1.0, np.abs(wanted).max()), err_msg=what)


def test_sites_of_a_file_are_where_mujoco_has_them():
    model, m = robot()
    assert list(model.sites) == ["mark", "imu", "tip"] and not model.topology.inactive
    assert model.sites["mark"].body is None and model.sites["tip"].body == "hand"
    close(ours()["poses"].position, [d.site_xpos for d in moments()])
    close(ours()["poses"].rotation, [d.site_xmat.reshape(-1, 3, 3) for d in moments()])
    for d, linear, angular in zip(moments(), *ours()["velocities"]):
        for k in range(m.nsite):
            v = np.zeros(6)
            mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_SITE, k, v, 0)
            close(np.r_[angular[k], linear[k]], v)


def test_jacobians_are_mujocos():
    _, m = robot()
    linear, angular = np.zeros((2, 3, m.nv))
    for i, d in enumerate(moments()):
        for k, J in enumerate(ours()["jacobians"]):
            mujoco.mj_jacSite(m, d, linear, angular, k)
            close(J.linear[i], linear)
            close(J.angular[i], angular)
        hand = m.body("hand").id
        point = d.xpos[hand] + d.xmat[hand].reshape(3, 3) @ [0.1, -0.2, 0.3]
        mujoco.mj_jac(m, d, linear, angular, point, hand)
        close(ours()["point"].linear[i], linear)
        close(ours()["point"].angular[i], angular)
        mujoco.mj_jacSubtreeCom(m, d, linear, m.body("arm").id)
        close(ours()["com jacobian"][i], linear)


def test_the_centre_of_mass_is_mujocos():
    _, m = robot()
    close(ours()["mass"], STATES * [m.body_subtreemass[m.body("arm").id]])
    close(ours()["com"], [d.subtree_com[0] for d in moments()])
    for i, d in enumerate(moments()):
        mujoco.mj_subtreeVel(m, d)
        close(ours()["com velocity"][i], d.subtree_linvel[0])
        close(ours()["momentum"].linear[i] @ d.qvel, m.body_subtreemass[0] * d.subtree_linvel[0])
        close(ours()["momentum"].angular[i] @ d.qvel, d.subtree_angmom[0])


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("touch", "e_potential")])
def test_sensors_read_what_mujocos_do(kind):
    model, m = robot()
    names = [name for name, s in model.sensors.items() if s.kind == kind]
    assert names
    for name in names:
        found = np.asarray(ours()["sensors"][name])
        wanted = np.array([d.sensor(name).data for d in moments()])
        assert found.shape == (STATES, KINDS[kind][1])
        if kind in ("framequat", "ballquat"):
            assert (found[:, 0] >= 0).all()
            wanted = np.where(wanted[:, :1] < 0, -wanted, wanted)
        close(found, wanted, what=name)
    assert set(READERS) == set(KINDS)


def test_an_accelerometer_follows_the_forces_of_the_model():
    close(ours()["free"], [d.sensor("accelerometer tip").data for d in moments()], 1e-3 if FLOAT32 else 1e-9)


@pytest.mark.float64
def test_derivatives():
    """Of all sensors along q and v against differences, and accelerations of sites as the second ones of their poses."""
    model, _ = robot()
    d = moments()[0]
    q, v, a = (jnp.asarray(x) for x in (d.qpos, d.qvel, d.qacc))
    control = jnp.asarray(d.ctrl)

    def values(delta, dv):
        s = pbad.make_state(model, manifold.retract(model, q, delta), v + dv)
        read = pbad.read_sensors(model, s, control, a)
        return jnp.concatenate([read[name] for name in model.sensors])

    zero, rng = jnp.zeros(model.nv), np.random.default_rng(1)
    way = [jnp.asarray(rng.normal(size=model.nv)) for _ in range(2)]
    found = jax.jit(lambda: jax.jvp(values, (zero, zero), tuple(way))[1])()
    along = jax.jit(lambda t: values(t * way[0], t * way[1]))
    h = 1e-4
    wanted = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
    np.testing.assert_allclose(found, wanted, atol=1e-6 * float(jnp.abs(wanted).max()))
    back = jax.jit(lambda: jax.vjp(values, zero, zero)[1](jnp.ones(len(found))))()
    np.testing.assert_allclose(sum(x @ w for x, w in zip(back, way)), jnp.sum(found), rtol=1e-9)

    def moved(t):  # q along v and a; exact to t² because exp is
        s = pbad.make_state(model, manifold.retract(model, q, t * v + 0.5 * t * t * a), v)
        return pbad.site_poses(model, s).position

    second = jax.jit(jax.jacfwd(jax.jacfwd(moved)))(0.0)
    state = pbad.make_state(model, q, v)
    np.testing.assert_allclose(pbad.site_accelerations(model, state, a).linear, second, atol=1e-10)
    bias = pbad.site_accelerations(model, state).linear
    J = jnp.stack([pbad.site_jacobian(model, state, name).linear for name in model.sites])
    np.testing.assert_allclose(bias + J @ a, second, atol=1e-10)
