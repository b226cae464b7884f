"""MJCF and URDF through `load`, against MuJoCo's own numbers."""

import dataclasses
import importlib
import json
import pathlib
import re
import subprocess
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanics import joint_acceleration
from mjcf import POLYNOMIALS

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.atom import parallel
from pbad_jax.importers import features, meshes, mjcf
from pbad_jax.importers.load import LoadReport
from pbad_jax.kinematics import transforms
from pbad_jax.laws.instant import instant
from pbad_jax.math import rotations

mujoco: Any = importlib.import_module("mujoco")  # it has no types
pytestmark = pytest.mark.float64

SEVERAL_JOINTS = """
<mujoco model="several">
  <compiler angle="degree" eulerseq="zyx"/>
  <default>
    <joint damping="0.3" armature="0.02"/>
    <geom density="700"/>
    <default class="stiff"><joint stiffness="4" springref="20" damping="0.1"/></default>
  </default>
  <worldbody>
    <geom type="plane" size="3 3 .1"/>
    <body name="a" pos="0.1 0.2 0.3" euler="10 20 30">
      <joint name="a1" type="hinge" axis="0 1 1" pos="0.1 0 0.2" ref="25"/>
      <joint name="a2" type="slide" axis="1 0 2" ref="0.3" class="stiff"/>
      <joint name="a3" type="hinge" axis="1 0 0" pos="0 0.3 0" range="-40 60"/>
      <geom type="capsule" fromto="0 0 0 0.1 0.2 0.6" size="0.05"/>
      <body name="weld" pos="0 0 0.2" xyaxes="0 1 0 -1 0 0">
        <geom type="box" size="0.1 0.05 0.02" pos="0.1 0 0"/>
        <body pos="0 0 0.4" axisangle="1 1 0 40">
          <joint type="ball" name="b" pos="0 0 0.1" stiffness="2" damping="0.4"/>
          <geom type="ellipsoid" size="0.1 0.05 0.2" mass="1.3"/>
          <body name="tip" pos="0.3 0 0" zaxis="1 0 1">
            <inertial pos="0 0.01 0" mass="0.4" diaginertia="0.01 0.02 0.025" euler="5 6 7"/>
            <joint name="t" type="hinge" axis="0 0 1" ref="-15" springref="10" stiffness="1"/>
          </body>
        </body>
      </body>
    </body>
    <body name="free" pos="0 1 2" quat="1 2 3 4">
      <freejoint/>
      <geom type="cylinder" size="0.1 0.3" pos="0.1 0 0" euler="20 0 0"/>
      <body name="leg" pos="0 0 -0.3">
        <joint name="hip" axis="0 1 0" stiffness="3"/>
        <geom type="sphere" size="0.1" pos="0 0 -0.2"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="m" joint="a1" gear="3" ctrlrange="-1 1"/>
    <position name="p" joint="a3" kp="20" kv="2"/>
    <velocity name="v" joint="hip" kv="5" gear="-2" forcerange="-4 4"/>
    <general name="g" joint="t" gainprm="2" biastype="affine" biasprm="0.5 -3 -0.2" gear="1.5"/>
    <motor name="s" joint="a2" gear="7"/>
  </actuator>
</mujoco>"""

FREE_SPRUNG = """
<mujoco>
  <option gravity="0.3 -1 -8"/>
  <worldbody>
    <body name="f" pos="0 0 1" quat="1 0 0.3 0">
      <joint name="free" type="free" stiffness="2" damping="0.5" armature="0.1"/>
      <geom type="box" size="0.3 0.2 0.1" pos="0.02 0 0"/>
      <body name="ball" pos="0.3 0 0">
        <joint type="ball" name="b" stiffness="1.5" damping="0.2" armature="0.05"/>
        <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.04"/>
      </body>
    </body>
  </worldbody>
</mujoco>"""

RADIAN = """
<mujoco>
  <compiler angle="radian" autolimits="true" inertiafromgeom="true"/>
  <worldbody>
    <frame pos="0.1 0 0" euler="0.3 0 0">
      <body name="x" euler="0.1 0.2 0.3">
        <inertial pos="9 9 9" mass="77" diaginertia="1 1 1"/>
        <joint name="j" axis="0.2 0.3 0.4" range="-1.5 1.5" ref="0.4"/>
        <geom type="box" size="0.1 0.2 0.3" mass="2"/>
        <geom type="sphere" size="0.1" pos="0.3 0 0" mass="0"/>
      </body>
    </frame>
  </worldbody>
</mujoco>"""

MODELS = {"several": SEVERAL_JOINTS, "free": FREE_SPRUNG, "radian": RADIAN}
QUIET = (
    mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS
)


def random_state(m, seed=0, spread=0.7):
    """A generic qpos and qvel near qpos0."""
    rng = np.random.default_rng(seed)
    q = np.array(m.qpos0)
    mujoco.mj_integratePos(m, q, rng.normal(size=m.nv) * spread, 1.0)
    return q, rng.normal(size=m.nv)


def full_mass_matrix(m, d):
    """(nv,nv), by columns: mj_fullM takes other arguments in other versions."""
    M = np.zeros((m.nv, m.nv))
    for row, unit in zip(M, np.eye(m.nv)):
        mujoco.mj_mulM(m, d, row, unit)
    return M


def compare_kinematics(model, m, q, tolerance=1e-10):
    """Poses, mass, centre of mass and mass matrix of both; returns the worst relative error."""
    d = mujoco.MjData(m)
    d.qpos[:] = q
    mujoco.mj_fwdPosition(m, d)
    M = full_mass_matrix(m, d)
    poses = pbad.forward_kinematics(model, jnp.asarray(q))
    f = transforms.frames(model, jnp.asarray(q))
    pairs = [
        (poses.position, d.xpos[1:]),
        (poses.rotation, d.xmat[1:].reshape(-1, 3, 3)),
        (transforms.total_mass(model), m.body_mass[1:].sum()),
        (transforms.center_of_mass(model, f.T), (m.body_mass[1:] @ d.xipos[1:]) / m.body_mass[1:].sum()),
        (parallel.mass_matrix(model, f), M),
    ]
    worst = max(np.abs(np.asarray(a) - b).max(initial=0) / max(1.0, np.abs(b).max(initial=0)) for a, b in pairs)
    assert worst < tolerance, worst
    return worst


@pytest.mark.parametrize("name", MODELS)
def test_geometry_of_motion_is_mujocos(name):
    m = mujoco.MjModel.from_xml_string(MODELS[name])
    model = pbad.load(MODELS[name])
    assert (model.nq, model.nv, model.nu) == (m.nq, m.nv, m.nu)
    np.testing.assert_allclose(model.q0, m.qpos0, atol=1e-15)
    compare_kinematics(model, m, np.array(m.qpos0))
    compare_kinematics(model, m, random_state(m)[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_acceleration_is_mujocos(name):
    m = mujoco.MjModel.from_xml_string(MODELS[name])
    m.opt.disableflags |= QUIET
    model = pbad.load(MODELS[name])
    left = ("JointLimit", "BallLimit", "Contact")
    kept = [f for f in model.forces if forces.name_of(f) not in left]
    model = dataclasses.replace(model, forces=tuple(kept))  # as QUIET: these are not MuJoCo's law
    acceleration = jax.jit(joint_acceleration)
    for seed in range(3):
        d = mujoco.MjData(m)
        q, v = random_state(m, seed)
        control = np.random.default_rng(seed + 9).normal(size=m.nu)
        d.qpos[:], d.qvel[:], d.ctrl[:] = q, v, control
        mujoco.mj_forward(m, d)
        ours = acceleration(model, jnp.asarray(q), jnp.asarray(v), 0.0, jnp.asarray(control))
        np.testing.assert_allclose(ours, d.qacc, rtol=1e-8, atol=1e-8)


def ranges(model) -> np.ndarray:
    """(nv,2) by the limits of the joints."""
    return forces.joint_ranges(model)


def test_actuators_without_a_name_have_that_of_what_they_move():
    """The first of each; a name that the file gives to another is left to that one."""
    extra = (
        '<tendon><fixed name="rope"><joint joint="ja" coef="1"/></fixed></tendon><actuator><motor joint="ja"/>'
        '<position joint="ja"/><motor name="jb" joint="ja"/><motor joint="jb"/><motor tendon="rope"/></actuator>'
    )
    names = pbad.load(arm(extra=extra)).topology.actuator_names
    assert names == ("ja", "actuator1", "jb", "actuator3", "rope")


def test_names_order_and_ranges_are_the_files():
    model = pbad.load(SEVERAL_JOINTS)
    t = model.topology
    assert t.name == "several"
    assert t.body_names == ("a", "weld", "body2", "tip", "free", "leg")
    assert t.body_parent == (-1, 0, 1, 2, -1, 4)
    assert [j.name for j in t.joints] == ["a1", "a2", "a3", "b", "t", "joint5", "hip"]
    assert t.actuator_names == ("m", "p", "v", "g", "s")
    np.testing.assert_allclose(ranges(model)[2], np.radians([-40, 60]))
    assert np.isinf(ranges(model)[0]).all()
    assert t.geom_types == ("capsule", "box", "ellipsoid", "cylinder", "sphere", "plane")
    assert t.geom_bodies == (0, 1, 2, 4, 5, -1)
    assert t.geom_touches == (True,) * 6
    assert t.inactive == ()
    assert [forces.name_of(f) for f in model.forces] == [
        "Gravity", "JointSpring", "BallSpring", "JointDamping", "JointLimit", "JointActuation", "Contact",
        "BodyContact", "ShapeContact", "ShapeContact",
    ]  # fmt: skip
    apart = pbad.load(SEVERAL_JOINTS, body_contact=False)
    assert list(map(forces.name_of, apart.forces)) == list(map(forces.name_of, model.forces[:-3]))
    assert apart.topology.inactive == ("contact between bodies (body_contact=False)",)
    with pytest.raises(pbad.OptionError, match="body_contact=0: choose True or False"):
        pbad.load(SEVERAL_JOINTS, body_contact=0)  # type: ignore[call-overload]


@pytest.mark.thorough
def test_disabled_flags_are_honoured():
    passive = 'spring="disable" damper="disable"' if "spring" in mjcf.vocabulary()["flag"] else 'passive="disable"'
    flags = f'<option><flag gravity="disable" clampctrl="disable" {passive}/></option>'
    text = SEVERAL_JOINTS.replace("<default>", flags + "<default>", 1)
    m = mujoco.MjModel.from_xml_string(text)
    m.opt.disableflags |= QUIET
    model = pbad.load(text)
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = random_state(m)
    d.ctrl[:] = 3.0
    mujoco.mj_forward(m, d)
    ours = joint_acceleration(model, jnp.asarray(d.qpos), jnp.asarray(d.qvel), 0.0, jnp.asarray(d.ctrl))
    np.testing.assert_allclose(ours, d.qacc, rtol=1e-8, atol=1e-8)


def test_actuator_force_range_of_a_joint_is_folded_in():
    text = """<mujoco><worldbody><body><joint name="j" axis="0 1 0" actuatorfrcrange="-2 3"/><geom size="0.1"/></body>
    </worldbody><actuator><motor joint="j" gear="-4"/></actuator></mujoco>"""
    m = mujoco.MjModel.from_xml_string(text)
    model = pbad.load(text)
    for u in (-5.0, 0.3, 5.0):
        d = mujoco.MjData(m)
        d.ctrl[:] = u
        mujoco.mj_forward(m, d)
        zero = jnp.zeros(1)
        np.testing.assert_allclose(joint_acceleration(model, zero, zero, 0.0, jnp.array([u])), d.qacc, rtol=1e-9)


TETRAHEDRON = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def test_mjcf_meshes_includes_and_defaults_from_files(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "tet.obj").write_text(TETRAHEDRON)
    (tmp_path / "parts.xml").write_text(
        '<mujocoinclude><asset><mesh file="tet.obj" scale="0.1 0.2 0.3"/></asset></mujocoinclude>'
    )
    (tmp_path / "m.xml").write_text(
        """<mujoco model="with mesh"><compiler meshdir="assets"/><include file="parts.xml"/>
        <asset><texture name="t" type="2d" file="wood.png"/><material name="w" texture="t" rgba="1 0 0 1"/></asset>
        <worldbody><body name="b"><joint/><geom type="mesh" mesh="tet" material="w"/></body></worldbody></mujoco>"""
    )
    model = pbad.load(tmp_path / "m.xml")
    mesh = model.topology.geom_meshes[0]
    assert mesh is not None and mesh.faces.shape == (4, 3)
    volume = 0.1 * 0.2 * 0.3 / 6
    np.testing.assert_allclose(transforms.total_mass(model), 1000 * volume, rtol=1e-6)
    world = mesh.vertices @ rotations.rotation_numpy(model.geometry.quaternion[0]).T + model.geometry.position[0]
    np.testing.assert_allclose(np.sort(world.max(0)), [0.1, 0.2, 0.3], atol=1e-6)
    np.testing.assert_allclose(model.geometry.rgba[0], [1, 0, 0, 1])


def test_float32(tmp_path):
    model = pbad.load(RADIAN, dtype=np.float32)
    assert model.dtype == np.float32


def test_byte_order_mark_and_carriage_returns_are_fine(tmp_path):
    path = tmp_path / "m.xml"
    path.write_bytes(b"\xef\xbb\xbf" + RADIAN.strip().replace("\n", "\r\n").encode())
    assert pbad.load(path).nq == 1
    assert pbad.load("\ufeff" + RADIAN).nq == 1


def test_import_does_not_import_mujoco():
    code = "import sys, pbad_jax; print([m for m in ('mujoco', 'gymnasium', 'viser') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_missing_mujoco_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match=re.escape('pip install "pbad_jax[models]"')):
        pbad.load(RADIAN)


def test_mujocos_warnings_are_not_printed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = RADIAN.replace('angle="radian"', 'angle="radian" settotalmass="5"')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, report = pbad.load(text, unsupported="warn")
    np.testing.assert_allclose(transforms.total_mass(model), 5)
    assert any("settotalmass" in n for n in report.notes) or mujoco.mj_version() < 4_000_000
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


# --- what is not there -------------------------------------------------------------------------------------

ARM = """<mujoco>{option}<worldbody>
  <body name="a"><joint name="ja" axis="0 1 0"/><geom size="0.1"/><site name="s"/>
    <body name="b" pos="0 0 0.5"><joint name="jb" axis="0 1 0"/><geom size="0.1"/></body></body>
  <body name="ball" pos="1 0 0"><joint type="ball" name="jball"/><geom size="0.1" pos="0.2 0 0"/></body>{bodies}
</worldbody>{extra}</mujoco>"""

LACKING = {
    "equality": (
        {"extra": '<equality><weld name="w" body1="a" body2="ball" relpose="0 0 1 1 0 0 0"/></equality>'},
        "equality 'w' (weld)",
    ),
    "equality of sites": (
        {"extra": '<equality><connect site1="s" site2="s2"/></equality>', "bodies": '<site name="s2"/>'},
        "equality 0 (connect)",
    ),
    "tendon": (
        {"extra": '<tendon><fixed name="t" armature="3"><joint joint="ja" coef="1"/></fixed></tendon>'},
        "tendon 't' (armature)",
    ),
    "site actuator": (
        {
            "bodies": '<body name="g"><joint/><geom size="0.1"/><site name="t"/></body>',
            "extra": '<actuator><motor name="x" site="s" refsite="t"/></actuator>',
        },
        "actuator 'x': transmission through a site of the world, or with a reference",
    ),
    "muscle": ({"extra": '<actuator><muscle name="x" joint="ja"/></actuator>'}, "actuator 'x': activation dynamics"),
    "fluid": (
        {
            "option": '<option density="1.2" viscosity="2e-5" wind="1 0 0"/>',
            "bodies": '<body><joint/><geom size="0.1" fluidshape="ellipsoid"/></body>',
        },
        "fluid by ellipsoids (1 geoms), density 1.2, viscosity 2e-05",
    ),
    "mocap, touched": (
        {"bodies": '<body name="hand" mocap="true"><geom size="0.1"/></body>'},
        "mocap body 'hand' (others touch it; it stands still here)",
    ),
    "mocap, touched by name": (
        {
            "bodies": '<body name="hand" mocap="true"><geom name="h" size="0.1" contype="0" conaffinity="0"/></body>'
            '<body><freejoint/><geom name="g" size="0.1"/></body>',
            "extra": '<contact><pair geom1="g" geom2="h"/></contact>',
        },
        "mocap body 'hand' (others touch it; it stands still here)",
    ),
    "gravcomp": (
        {
            "bodies": '<body name="g" gravcomp="1"><joint name="jg" axis="1 0 0" actuatorgravcomp="true" '
            'actuatorfrcrange="-1 1"/><geom size="0.1"/></body>'
        },
        "gravity compensation through joint 'jg' with a force range",
    ),
    "polynomial": (
        {"bodies": '<body name="g"><joint name="jg" type="ball" stiffness="1 2"/><geom size="0.1"/></body>'},
        "polynomial stiffness of joint 'jg'",
    ),
}


def arm(**parts):
    return ARM.format(**{"option": "", "bodies": "", "extra": "", **parts})


@pytest.mark.parametrize("name", [n for n in LACKING if POLYNOMIALS or n != "polynomial"])
def test_what_changes_the_motion_is_refused_by_name(name):
    parts, feature = LACKING[name]
    with pytest.raises(pbad.UnsupportedFeatureError) as e:
        pbad.load(arm(**parts))
    assert any(feature in f for f in e.value.features)
    assert feature in str(e.value)
    with pytest.warns(pbad.UnsupportedFeatureWarning) as caught:
        model, report = pbad.load(arm(**parts), unsupported="warn")
    assert len(caught) == 1
    assert isinstance(report, LoadReport) and feature in str(report)
    assert model.nv >= 5


def test_all_of_them_are_listed_at_once():
    extra = (
        '<equality><weld name="w" body1="a" body2="ball" relpose="0 0 1 1 0 0 0"/></equality>'
        '<tendon><fixed name="t" armature="3"><joint joint="ja" coef="1"/></fixed></tendon>'
        '<actuator><adhesion name="x" body="b" ctrlrange="0 1"/><muscle name="y" joint="ja"/>'
        '<motor name="fine" joint="jb"/></actuator>'
    )
    with pytest.raises(pbad.UnsupportedFeatureError) as e:
        pbad.load(arm(extra=extra, bodies=LACKING["gravcomp"][0]["bodies"]))
    assert len(e.value.features) == 5
    with pytest.warns(pbad.UnsupportedFeatureWarning):
        model, report = pbad.load(arm(extra=extra), unsupported="warn")
    assert model.topology.actuator_names == ("fine",) and len(report.unsupported) == 4


def test_what_has_no_effect_is_fine():
    extra = (
        '<tendon><spatial name="t"><site site="s"/><site site="s2"/></spatial></tendon>'
        '<sensor><jointpos joint="ja"/></sensor><keyframe><key qpos="0 0 1 0 0 0"/></keyframe>'
        '<contact><exclude body1="a" body2="ball"/></contact><custom><text name="n" data="x"/></custom>'
    )
    text = arm(extra=extra, bodies='<site name="s2"/><light pos="0 0 3"/><camera pos="0 0 3"/>')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pbad.load(text).nq == 6


KEYED = """<mujoco><worldbody><body name="a" pos="0 0 1"><freejoint/><geom size="0.1"/>
  <body name="b" pos="0 0 0.5"><joint name="jb" axis="0 1 0"/><geom size="0.1"/></body></body></worldbody>
  <actuator><muscle joint="jb"/><position name="servo" joint="jb" kp="3"/></actuator>
  <keyframe><key name="home" qpos="1 2 3 2 0 0 0 0.5" qvel="1 2 3 4 5 6 7" ctrl="9 0.25" time="4"/><key/></keyframe>
</mujoco>"""


def test_keyframes_are_the_files():
    """In our layout, which is MuJoCo's, with the controls of the actuators that are there; by name, or by number."""
    with pytest.warns(pbad.UnsupportedFeatureWarning):
        model, _ = pbad.load(KEYED, unsupported="warn")
    assert list(model.keyframes) == ["home", "key1"]
    home = model.keyframes["home"]
    np.testing.assert_allclose(home.v, np.arange(1, 8))
    assert home.control is not None and home.control.tolist() == [0.25] and model.keyframes["key1"].control is None
    state = pbad.make_state(model, key="home")
    np.testing.assert_allclose(state.q, [1, 2, 3, 1, 0, 0, 0, 0.5], rtol=1e-6)
    assert float(state.time) == 4 and not np.any(pbad.make_state(model, v=np.zeros(7), key="home").v)
    np.testing.assert_allclose(pbad.make_state(model, key="key1").q, model.q0, rtol=1e-6)
    with pytest.raises(pbad.StateError, match=r"key='hom': model .* has no keyframe .*; it has 'home', 'key1'"):
        pbad.make_state(model, key="hom")
    with pytest.raises(pbad.StateError, match="it has none; give q and v"):
        pbad.make_state(pbad.chain(1), key="home")


def test_keyframes_do_not_fit_a_base_that_was_let_loose():
    text = KEYED.replace("<freejoint/>", "").replace("<muscle", "<motor")
    text = text.replace("1 2 3 2 0 0 0 0.5", "0.5").replace("1 2 3 4 5 6 7", "1")
    assert float(pbad.make_state(pbad.load(text), key="home").v[0]) == 1
    model, report = pbad.load(text, floating_base=True, unsupported="warn")
    assert not model.keyframes and any("keyframes (2): left out" in x for x in report.notes)


def test_a_mocap_body_that_nothing_touches_is_fixed():
    """Marks of targets: in their place, without a word, and no contact is missed for them."""
    bare = pbad.load(arm(), unsupported="warn")[1]
    for mark in ('contype="0" conaffinity="0"', 'contype="4" conaffinity="2"'):
        geom = f'<geom size="0.1" {mark}/>'
        text = arm(bodies=f'<body name="hand" mocap="true" pos="1 2 3">{geom}<body>{geom}</body></body>')
        model, report = pbad.load(text, unsupported="warn")
        assert report == bare and model.nv == 5
        link = model.topology.body_link[model.body_names.index("hand")]
        np.testing.assert_allclose(model.placement[link, :, 3], [1, 2, 3])


@pytest.mark.parametrize(
    "tie", ['<weld body1="hand" body2="ball"/>', '<connect body1="ball" body2="hand" anchor="1 0 2"/>']
)
def test_a_mocap_body_holds_by_a_target_that_can_be_moved(tie):
    """Where MuJoCo has it at qpos0; the weld's target is a point and three directions."""
    text = arm(bodies='<body name="hand" mocap="true" pos="1 2 3"/>', extra=f"<equality>{tie}</equality>")
    model, report = pbad.load(text, unsupported="warn")
    assert not report.unsupported
    [anchor] = [f for f in model.forces if isinstance(f, pbad.forces.Anchor)]
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    b = m.body("ball").id
    u = np.asarray(anchor.u)
    here = u[:, :3] @ d.xmat[b].reshape(3, 3).T + u[:, 3:] * d.xpos[b]
    np.testing.assert_allclose(anchor.target, here, atol=1e-10)
    assert anchor.target.shape == ((4, 3) if "weld" in tie else (1, 3))


def test_options_are_checked():
    with pytest.raises(pbad.OptionError, match="unsupported='ignore'"):
        pbad.load(RADIAN, unsupported="ignore")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(pbad.OptionError, match="int32"):
        pbad.load(RADIAN, dtype=np.int32)


# --- URDF --------------------------------------------------------------------------------------------------

URDF = """<robot name="pair">
  <material name="blue"><color rgba="0 0 1 1"/></material>
  <link name="base"><visual><geometry><box size="0.2 0.4 0.6"/></geometry><material name="blue"/></visual>
    <inertial><mass value="3"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
  <link name="arm">
    <inertial><origin xyz="0 0 -0.5" rpy="{rpy}"/><mass value="2"/>
      <inertia ixx="1" ixy="0" ixz="0" iyy="2" iyz="0" izz="2.5"/></inertial>
    <visual><origin xyz="0 0 -0.5" rpy="0 1.5707963267948966 0"/>
      <geometry><cylinder radius="0.1" length="1"/></geometry></visual>
    <collision><origin xyz="0 0 -0.5"/><geometry><sphere radius="0.3"/></geometry></collision>
  </link>
  <link name="tool"/>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="arm"/><origin xyz="0 0 0.3"/>
    <axis xyz="1 0 0"/><limit lower="-1" upper="2" effort="10" velocity="3"/>
    <dynamics damping="0.7" friction="0.1"/></joint>
  <joint name="flange" type="fixed"><parent link="arm"/><child link="tool"/><origin xyz="0 0 -1"/></joint>
  {extra}
</robot>"""


def urdf(rpy="0 0 0", extra=""):
    return URDF.format(rpy=rpy, extra=extra)


def test_urdf_joint_body_and_shapes():
    model, report = pbad.load(urdf(), unsupported="warn")
    t = model.topology
    assert t.body_names == ("base", "arm", "tool") and model.nv == 1
    np.testing.assert_allclose(ranges(model), [[-1, 2]])
    assert t.geom_types == ("box", "cylinder", "sphere")
    np.testing.assert_allclose(model.geometry.size[0], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(model.geometry.rgba[0], [0, 0, 1, 1])
    assert float(model.geometry.rgba[2, 3]) == 0  # collision shapes are there, but hidden
    assert [m.control_range for m in pbad.motors(model)] == [(-10.0, 10.0)]
    assert any("effort limits" in x for x in report.inactive) and any("velocity limits" in x for x in report.inactive)
    z, one = jnp.zeros(1), jnp.ones(1)
    base = joint_acceleration(model, z, z, 0.0, jnp.zeros(0))
    damped = joint_acceleration(model, z, one, 0.0, jnp.zeros(0)) - base
    inertia = 1 + 2 * 0.25
    friction = 0.1 / np.sqrt(1 + 1e-4)  # at 1 rad/s, with a stick speed of 0.01 rad/s
    np.testing.assert_allclose(damped, -(0.7 + friction) / inertia, rtol=1e-6)


def test_rotated_inertial_is_honoured():
    """diag(1, 2, 2.5) turned by 90° about z resists rotation about x with 2, not 1. Row 49."""
    for rpy, moment in (("0 0 0", 1.0), ("0 0 1.5707963267948966", 2.0)):
        model = pbad.load(urdf(rpy))
        M = parallel.mass_matrix(model, transforms.frames(model, jnp.zeros(1)))
        np.testing.assert_allclose(M[0, 0], moment + 2 * 0.25, rtol=1e-8)


def test_floating_base():
    model = pbad.load(urdf(), floating_base=True)
    assert model.topology.joints[0].name == "floating_base"
    assert [j.type for j in model.topology.joints] == ["free", "hinge"] and model.nq == 8
    np.testing.assert_allclose(transforms.total_mass(model), 5, atol=1e-7)
    with pytest.raises(pbad.ModelFileError, match="already has the joint"):
        pbad.load(RADIAN, floating_base=True)


def test_two_roots_are_fine():
    model = pbad.load(urdf(extra='<link name="other"/>'))
    assert model.n_bodies == 4


def test_unphysical_inertia_is_projected_and_noted():
    text = urdf().replace('izz="2.5"', 'izz="9"')
    with pytest.warns(UserWarning, match="link 'arm': its inertia breaks A"):
        model = pbad.load(text)
    M = np.asarray(model.second_moment)
    assert np.linalg.eigvalsh(M).min() > -1e-9


def test_joint_without_mass_is_noted():
    extra = """<link name="pointer"/><joint name="turn" type="continuous"><parent link="tool"/><child link="pointer"/>
      </joint>"""
    with pytest.warns(UserWarning, match="joint 'turn' moves no mass"):
        assert pbad.load(urdf(extra=extra)).nv == 2


def test_a_link_that_touches_and_weighs_nothing_is_noted():
    extra = """<link name="rod"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
      <joint name="turn" type="continuous"><parent link="tool"/><child link="rod"/></joint>
      <link name="end"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
      </link><joint name="flange2" type="fixed"><parent link="rod"/><child link="end"/></joint>"""
    with pytest.warns(UserWarning, match="link 'rod' has a <collision> and no <inertial>"):
        assert pbad.load(urdf(extra=extra)).nv == 2


FINGER = """<link name="finger"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>
  </inertial></link>
  <joint name="finger" type="continuous"><parent link="tool"/><child link="finger"/><axis xyz="0 0 1"/>
  <mimic joint="shoulder" multiplier="2" offset="0.1"/></joint>"""


@pytest.mark.parametrize(
    "leader, kind, q, pair",
    [
        ("shoulder", "continuous", [0.3, 0.7], (1, 0)),  # 0.1 + 2 · 0.3
        ("shoulder", "prismatic", [0.3, 0.7], (1, 0)),
        ("flange", "continuous", [0.3, 0.1], (1, -1)),  # what is fixed stays at 0
    ],
)
def test_mimic(leader, kind, q, pair):
    extra = FINGER.replace('mimic joint="shoulder"', f'mimic joint="{leader}"').replace("continuous", kind)
    if kind == "prismatic":
        extra = extra.replace("<mimic", '<limit lower="0" upper="1"/><mimic')
    model = pbad.load(urdf(extra=extra))
    (coupling,) = [f for f in model.forces if forces.name_of(f) == "JointCouplingSpring"]
    one, other = coupling.length.one.dofs(model), coupling.length.other.dofs(model)
    assert [np.flatnonzero(x).tolist() for x in (one, other)] == [[v] if v >= 0 else [] for v in pair]
    at = instant(jnp.asarray(q), jnp.zeros(2), None, None, None, None)
    np.testing.assert_allclose(coupling.gap(model, at), 0, atol=1e-15)
    np.testing.assert_allclose(
        coupling.gap(model, dataclasses.replace(at, q=jnp.asarray(q) + jnp.asarray([0, 0.25]))), 0.25
    )


@pytest.mark.parametrize("leader", ["finger", "nowhere"])
def test_mimic_of_nothing_is_refused(leader):
    extra = FINGER.replace('mimic joint="shoulder"', f'mimic joint="{leader}"')
    with pytest.raises(pbad.UnsupportedFeatureError, match=f"mimic: joint 'finger' follows '{leader}'"):
        pbad.load(urdf(extra=extra))
    with pytest.warns(pbad.UnsupportedFeatureWarning):
        model, _ = pbad.load(urdf(extra=extra), unsupported="warn")
    assert model.nv == 2 and not any(forces.name_of(f) == "JointCouplingSpring" for f in model.forces)


def test_planar_and_floating():
    planar = re.sub("<mimic.*?/>", "", FINGER.replace("continuous", "planar"))
    assert [j.type for j in pbad.load(urdf(extra=planar)).topology.joints] == ["hinge", "slide", "slide", "hinge"]
    with pytest.raises(pbad.UnsupportedFeatureError, match="floating joint|'finger' is floating"):
        pbad.load(urdf(extra=planar.replace("planar", "floating")))


def test_urdf_extensions_are_reported_not_refused():
    extra = '<transmission name="t"><type>x</type></transmission><gazebo/><gazebo/>'
    _, report = pbad.load(urdf(extra=extra), unsupported="warn")
    assert any("gazebo (2), transmission (1)" in x for x in report.inactive)


def stl(triangles):
    body = b"".join(np.array([0, 0, 1, *np.ravel(t)], np.float32).tobytes() + b"\0\0" for t in triangles)
    return b"\0" * 80 + len(triangles).to_bytes(4, "little") + body


def test_urdf_meshes_packages_and_the_unreadable(tmp_path):
    package = tmp_path / "my_robot"
    (package / "urdf").mkdir(parents=True)
    (package / "meshes").mkdir()
    (package / "meshes" / "good.stl").write_bytes(stl([[[0, 0, 0], [1, 0, 0], [0, 1, 0]]]))
    (package / "meshes" / "good.obj").write_text(TETRAHEDRON)
    (package / "meshes" / "bad.stl").write_bytes(b"\0" * 80 + b"\xff\xff\xff\xff" + b"\0" * 50)
    names = ("good.stl", "good.obj", "bad.stl", "painted.dae", "absent.stl")
    visuals = "".join(
        f'<visual><geometry><mesh filename="package://my_robot/meshes/{n}" scale="2 2 -2"/></geometry></visual>'
        for n in names
    )
    (package / "urdf" / "r.urdf").write_text(urdf(extra=f'<link name="m">{visuals}</link>'))
    model, report = pbad.load(package / "urdf" / "r.urdf", unsupported="warn")
    meshes = [m for m in model.topology.geom_meshes if m is not None]
    assert [len(m.faces) for m in meshes] == [1, 4] and meshes[0].vertices.max() == 2
    notes = "\n".join(report.notes)
    assert "cannot hold the 4294967295 triangles" in notes and "painted.dae" in notes and "no such file" in notes
    with pytest.warns(UserWarning, match="painted.dae"):
        pbad.load(package / "urdf" / "r.urdf")
    elsewhere = tmp_path / "elsewhere" / "r.urdf"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes((package / "urdf" / "r.urdf").read_bytes())
    _, report = pbad.load(elsewhere, unsupported="warn")
    assert "package not found" in "\n".join(report.notes)
    model, _ = pbad.load(elsewhere, unsupported="warn", package_dirs=[tmp_path])
    assert len([m for m in model.topology.geom_meshes if m is not None]) == 2


COLLADA = """<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">
  <asset><created>2026-01-01T00:00:00</created><modified>2026-01-01T00:00:00</modified>
    <unit name="centimeter" meter="0.01"/><up_axis>Y_UP</up_axis></asset>
  <library_geometries><geometry id="g"><mesh>
    <source id="s"><float_array id="f" count="9">0 0 0 100 0 0 0 100 0</float_array>
      <technique_common><accessor source="#f" count="3" stride="3">
        <param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/>
      </accessor></technique_common></source>
    <vertices id="v"><input semantic="POSITION" source="#s"/></vertices>
    <triangles count="1"><input semantic="VERTEX" source="#v" offset="0"/><p>0 1 2</p></triangles>
  </mesh></geometry></library_geometries>
  <library_visual_scenes><visual_scene id="scene"><node id="n">
    <matrix>1 0 0 50 0 1 0 0 0 0 1 0 0 0 0 1</matrix><instance_geometry url="#g"/>
  </node></visual_scene></library_visual_scenes>
  <scene><instance_visual_scene url="#scene"/></scene>
</COLLADA>
"""


def test_collada_is_read_in_metres_with_its_scene(tmp_path, monkeypatch):
    path = tmp_path / "a.dae"
    path.write_text(COLLADA)
    mesh = meshes.read_mesh(path, (1, 1, 2))
    np.testing.assert_allclose(np.sort(mesh.vertices, axis=0), [[0.5, 0, 0], [0.5, 0, 0], [1.5, 1, 0]])
    for text, why in (
        ("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>" + COLLADA.split("?>")[1], "document types"),
        ("<COLLADA", "not well-formed"),
        ("<COLLADA/>", "unreadable COLLADA"),
        (COLLADA.replace('<instance_geometry url="#g"/>', ""), "no triangles"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=why):
            meshes.read_mesh(path)
    monkeypatch.setattr(meshes, "COLLADA", ("trimesh", "no_such_package"))
    path.write_text(COLLADA)
    with pytest.raises(ValueError, match=r"pip install .pbad_jax\[viz\]"):
        meshes.read_mesh(path)


def test_json_is_not_a_model(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"links": 3}))
    with pytest.raises(pbad.ModelFileError, match="not well-formed XML.*'{\"links"):
        pbad.load(path)


def test_the_page_has_the_table_of_features():
    """docs/what_acts.md shows what the loader's words come from; unknown words are a mistake of the loader."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "what_acts.md").read_text()
    assert page.split("<!-- features -->\n")[1].split("\n\n")[0] + "\n" == features.page()
    assert features.refused("flex", " 3") == "flex 3" and features.idle("contact pairs", " (2)") == "contact pairs (2)"
    for state in (features.refused, features.idle):
        with pytest.raises(KeyError, match="features.py has no 'gravity'"):
            state("gravity")
    sources = [p.read_text() for p in pathlib.Path(features.__file__).parent.glob("*.py")]
    said = {w for text in sources for w in re.findall(r'\b(?:refused|idle)\(f?"([^"]*)"', text)}
    said |= {f"{key} limits" for key in ("effort", "velocity")}
    said |= {"damping", "friction", "stiffness", "armature"}  # below 0
    table = {f.words for f in features.FEATURES if f.state != features.ACTS}
    assert said - {"{key} limits"} == table
