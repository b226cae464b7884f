"""Sites, sensors, Jacobians and the centre of mass, against MuJoCo's own numbers and against differences."""

import dataclasses
import functools
import importlib
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32

import pbad_jax as pbad
from pbad_jax import Body, Joint, Sensor, Site
from pbad_jax.dynamics import newton_euler
from pbad_jax.kinematics import manifold
from pbad_jax.math import rotations
from pbad_jax.model.sensors import KINDS, NO_SENSORS
from pbad_jax.sensing.sensors import READERS
from pbad_jax.sensing.touch import sees

mujoco: Any = importlib.import_module("mujoco")  # it has no types
EXACT = 5e-4 if FLOAT32 else 1e-10  # relative to the largest entry
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
    + ['<jointpos name="cut" joint="elbow" cutoff="0.1"/>', '<clock name="clock"/>']
    + ['<e_kinetic name="moving"/>', '<e_potential name="stored"/>']
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


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "touch"])
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


@pytest.mark.thorough
@pytest.mark.float64
def test_derivatives():
    """Of every kind of sensor against differences; accelerations of sites as the second ones of their poses."""
    loaded, _ = robot()
    last = {s.kind: s for s in loaded.sensors.values() if s.cutoff == np.inf}
    model = pbad.with_sensors(dataclasses.replace(loaded, sensors=NO_SENSORS), last)
    d, rng = moments()[0], np.random.default_rng(1)
    q, v, a, control = (jnp.asarray(x) for x in (d.qpos, d.qvel, d.qacc, d.ctrl))
    way = [jnp.asarray(rng.normal(size=model.nv)) for _ in range(2)]
    zero, h = jnp.zeros(model.nv), 1e-4

    def values(delta, dv):
        s = pbad.make_state(model, manifold.retract(model, q, delta), v + dv)
        read = pbad.read_sensors(model, s, control, a)
        return jnp.concatenate([read[name] for name in model.sensors])

    def moved(t):  # q along v and a; exact to t² because exp is
        s = pbad.make_state(model, manifold.retract(model, q, t * v + 0.5 * t * t * a), v)
        return pbad.site_poses(model, s).position

    @jax.jit
    def all_of_them():
        forward = jax.jvp(values, (zero, zero), tuple(way))[1]
        back = jax.vjp(values, zero, zero)[1](jnp.ones(len(forward)))
        near = jax.vmap(lambda t: values(t * way[0], t * way[1]))(h * jnp.asarray([-2.0, -1.0, 1.0, 2.0]))
        state = pbad.make_state(model, q, v)
        J = jnp.stack([pbad.site_jacobian(model, state, name).linear for name in model.sites])
        found = [pbad.site_accelerations(model, state, x).linear for x in (a, None)]
        return forward, back, near, jax.jacfwd(jax.jacfwd(moved))(0.0), found, J @ a

    forward, back, near, second, (whole, bias), driven = all_of_them()
    wanted = (8 * (near[2] - near[1]) - (near[3] - near[0])) / (12 * h)
    np.testing.assert_allclose(forward, wanted, atol=1e-6 * float(jnp.abs(wanted).max()))
    np.testing.assert_allclose(sum(x @ w for x, w in zip(back, way)), jnp.sum(forward), rtol=1e-9)
    np.testing.assert_allclose(whole, second, atol=1e-10)
    np.testing.assert_allclose(bias + driven, second, atol=1e-10)


# --- touch ---------------------------------------------------------------------------------------------------

STACK = """
<mujoco><compiler angle="radian"/><worldbody>
  <geom name="floor" type="plane" size="3 3 .1"/>
  <body name="ball" pos="0 0 0.099"><joint name="a" type="slide" axis="0 0 1"/><geom size="0.1"/>
    <site name="all" size="0.2"/><site name="top" type="box" pos="0 0 0.1" size="0.05 0.05 0.02"/></body>
  <body name="bar" pos="0 0 0.297"><joint name="b" type="slide" axis="0 0 1"/>
    <geom type="capsule" size="0.1 0.1" euler="1.5708 0 0"/>
    <site name="belly" type="capsule" size="0.11 0.1" euler="1.5708 0 0"/>
    <site name="back" type="ellipsoid" pos="0 0 0.1" size="0.1 0.2 0.03"/></body>
  <body name="crate" pos="0 0 0.496"><joint name="c" type="slide" axis="0 0 1"/><geom type="box" size="0.2 0.2 0.1"/>
    <site name="side" pos="0.2 0 0"/><site name="foot" type="cylinder" pos="0 0 -0.1" size="0.3 0.02"/></body>
</worldbody>
<sensor><touch name="all" site="all"/><touch name="top" site="top"/><touch name="belly" site="belly"/>
  <touch name="back" site="back"/><touch name="side" site="side"/><touch name="foot" site="foot"/>
  <touch name="cut" site="foot" cutoff="0.5"/></sensor>
<contact><exclude body1="ball" body2="crate"/></contact></mujoco>"""


@pytest.mark.slow
def test_touch_is_the_normal_force_within_a_sites_volume():
    """A ball on the floor, a capsule on it and a crate on that: three kinds of contact, all pressed in."""
    model = pbad.load(STACK, dtype=DTYPE)
    assert {type(f).__name__ for f in model.forces[1:]} == {"Contact", "BodyContact", "ShapeContact"}

    round_ = dataclasses.replace(model, forces=tuple(f for f in model.forces if type(f).__name__ != "ShapeContact"))

    @jax.jit
    def read():
        s = pbad.make_state(model)
        return pbad.read_sensors(model, s), newton_euler.inverse_dynamics(round_, s, jnp.zeros(model.nv))

    found, missing = read()
    values = {name: float(x[0]) for name, x in found.items()}
    weight = 9.81 * np.array([pbad.total_mass(model, b) for b in ("ball", "bar", "crate")])
    push = weight - np.asarray(missing)  # what the floor and round shapes do to each of them
    close(values["top"], push[1])
    close(values["all"] - values["top"], push[0] + push[1])
    close(values["belly"] - values["top"], values["back"])
    close(values["foot"], values["back"])
    assert values["foot"] > 10 and values["side"] == 0 and values["cut"] == 0.5


@pytest.mark.float64
def test_volumes_are_seen_as_mujoco_sees_them():
    rng, size = np.random.default_rng(2), (0.3, 0.2, 0.4)
    kinds = {"sphere": 2, "capsule": 3, "ellipsoid": 4, "cylinder": 5, "box": 6}
    start, way = rng.normal(size=(2, 400, 3)) * [[[0.4]], [[1.0]]]
    way[:60] = np.eye(3)[np.arange(60) % 3]
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    for kind, number in kinds.items():
        found = np.asarray(sees(kind, size, jnp.asarray(start), jnp.asarray(way)))
        frame = np.zeros(3), np.eye(3).reshape(9)
        hit = [mujoco.mju_rayGeom(*frame, np.array(size), p, d, number, None) >= 0 for p, d in zip(start, way)]
        assert (found == hit).all() and 0 < np.sum(hit) < 400, kind


# --- made by hand, and bad input -----------------------------------------------------------------------------


def arm() -> pbad.Model:
    joint = Joint("hinge", (0, 1, 0), name="elbow")
    body = Body("arm", 1.0, (0.5, 0, 0), 0.1 * np.eye(3), joints=[joint])
    return pbad.build_model([body], actuators=[pbad.Actuator("elbow", "motor")], dtype=DTYPE)


def test_sites_and_sensors_are_given_in_python():
    model = pbad.with_sites(arm(), {"tip": Site("arm", (1, 0, 0), (2, 0, 0, 0))})
    model = pbad.with_sensors(model, {
        "speed": Sensor("velocimeter", "tip"), "up": Sensor("framezaxis", Site("arm")), "com": Sensor("subtreecom"),
        "angle": Sensor("tendonpos", {"elbow": 3.0}), "push": Sensor("actuatorfrc", "motor", cutoff=1.5),
    })  # fmt: skip
    state = pbad.make_state(model, q=[0.2], v=[2.0])
    read = jax.jit(pbad.read_sensors)(model, state, jnp.asarray([2.0], DTYPE))
    assert model.sites["tip"].quaternion == (1.0, 0.0, 0.0, 0.0) and sorted(read) == sorted(model.sensors)
    close(read["speed"], [0, 0, -2.0])
    close(read["up"], [np.sin(0.2), 0, np.cos(0.2)])
    close(read["com"], [0.5 * np.cos(0.2), 0, -0.5 * np.sin(0.2)])
    close(read["angle"], [0.6])
    close(read["push"], [1.5])
    again = pbad.with_sites(arm(), {"tip": Site("arm", (1, 0, 0))})
    other = pbad.with_sites(arm(), {"tip": Site("arm", (1, 0, 1e-9))})
    assert again.sites == model.sites != other.sites and hash(again.sites) == hash(model.sites)
    assert jax.tree.structure(again) != jax.tree.structure(arm()) and jax.tree.leaves(again.sites) == [again.sites]
    none = pbad.site_poses(arm(), pbad.make_state(arm()))
    assert none.position.shape == (0, 3) and none.rotation.shape == (0, 3, 3)


BAD_SITES = {
    "known: arm": Site("leg"),
    "must have a direction": Site("arm", quaternion=(0, 0, 0, 0)),
    "must be finite": Site("arm", (np.nan, 0, 0)),
    r"wanted \(3,\)": Site("arm", (0, 0)),
    "choose one of 'sphere'": Site("arm", volume="plane"),
    "must be ≥ 0": Site("arm", size=(-1, 0, 0)),
    "make one with Site": "arm",
}
BAD_SENSORS = {
    "choose one of 'touch'": Sensor("gyroscope", "tip"),
    "there is no site 'toe'; known: 'tip'": Sensor("gyro", "toe"),
    "is no frame": Sensor("gyro"),
    "known: arm": Sensor("subtreecom", "leg"),
    "of type hinge; wanted ball": Sensor("ballquat", "elbow"),
    "known: elbow": Sensor("jointpos", "knee"),
    "known: motor": Sensor("actuatorpos", "servo"),
    r"wanted \{joint: coefficient\}": Sensor("tendonpos", "elbow"),
    "has no reference": Sensor("gyro", "tip", reference="tip"),
    "must be > 0": Sensor("gyro", "tip", cutoff=-1.0),
    "is of nothing": Sensor("clock", "tip"),
    "make one with Sensor": "tip",
}


@pytest.mark.parametrize("words", [*BAD_SITES, *BAD_SENSORS])
def test_bad_sites_and_sensors(words):
    model = pbad.with_sites(arm(), {"tip": Site("arm")})
    with pytest.raises(pbad.ModelError, match=words):
        if words in BAD_SITES:
            pbad.with_sites(model, {"bad": BAD_SITES[words]})
        if words in BAD_SENSORS:
            pbad.with_sensors(model, {"bad": BAD_SENSORS[words]})


def test_bad_names_and_calls():
    model = pbad.with_sites(arm(), {"tip": Site("arm")})
    state = pbad.make_state(model)
    for call, words in (
        (lambda: pbad.with_sites(model, {"tip": Site("arm")}), "two sites are called 'tip'"),
        (lambda: pbad.with_sites(model, {"": Site("arm")}), "non-empty"),
        (lambda: pbad.site_jacobian(model, state, "toe"), "no site 'toe'; known: 'tip'"),
        (lambda: pbad.body_jacobian(model, state, "leg"), "known: arm"),
        (lambda: pbad.center_of_mass(model, state, "leg"), "known: arm"),
    ):
        with pytest.raises(pbad.ModelError, match=words):
            call()
    for call, words in (
        (lambda: pbad.site_poses(pbad.chain(2, dtype=DTYPE), state), "fingerprint"),
        (lambda: pbad.read_sensors(model, state, jnp.zeros(3)), r"wants \(1,\)"),
        (lambda: pbad.site_accelerations(model, state, jnp.zeros(3)), r"shape \(3,\)"),
    ):
        with pytest.raises(pbad.StateError, match=words):
            call()


def test_sensors_that_are_not_read_are_named():
    text = STACK.replace("<sensor>", "<sensor><rangefinder site='top'/><rangefinder site='all'/><user dim='3'/>")
    inactive = "sensors that are not read: rangefinder (2), user (1)"
    assert pbad.load(text).topology.inactive == (inactive,)


def test_quaternions_of_rotations():
    p = np.random.default_rng(3).normal(size=(200, 4)) * 10.0 ** np.random.default_rng(4).uniform(-6, 0, (200, 4))
    p = np.r_[p, np.eye(4), [[0, 1, 1, 0], [1e-12, 1, 0, 0]]]
    p /= np.linalg.norm(p, axis=1, keepdims=True)
    found = np.asarray(rotations.quaternion_of(rotations.rotation(jnp.asarray(p, DTYPE))))
    assert (found[:, 0] >= 0).all()
    np.testing.assert_allclose(np.abs(np.sum(found * p, axis=1)), 1.0, atol=1e-6 if FLOAT32 else 1e-14)
    close(rotations.rotation(jnp.asarray(found)), rotations.rotation(jnp.asarray(p, DTYPE)), 1e-6 if FLOAT32 else 1e-14)


@pytest.mark.float64
def test_the_page_runs():
    """docs/robots.md: the tip comes to its goal, and what rests there feels gravity upwards."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "robots.md"
    blocks = re.findall(r"<!-- robot -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 3
    there: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), there)
        there.setdefault("felt", there["read"]["felt"][-1])
    np.testing.assert_allclose(there["tip"], there["goal"], atol=2e-3)
    assert (there["status"] == pbad.Status.CONVERGED).all()
    np.testing.assert_allclose(np.linalg.norm(there["felt"]), 9.81, atol=0.05)
    assert set(there["values"]) == set(there["model"].sensors) and there["read"]["gyro"].shape == (20, 3)
    kinds = re.findall(
        r"`([a-z_]+)`", page.read_text().split("## Sites and sensors")[1].split("The others of a file")[0]
    )
    assert set(KINDS) <= set(kinds)
