"""Bounds on masses and inertias, numbers below zero, contact filters: what acts is the file's, the rest is named."""

import importlib
import time
import warnings
from typing import Any

import numpy as np
import pytest
from mechanics import joint_acceleration

import pbad_jax as pbad
from pbad_jax import forces

mujoco: Any = importlib.import_module("mujoco")  # it has no types
pytestmark = pytest.mark.float64

ROD = """<link name="{name}"><inertial><origin xyz="{x} 0 0"/><mass value="{m}"/>
  <inertia ixx="{thin}" ixy="0" ixz="0" iyy="{I}" iyz="0" izz="{I}"/></inertial></link>"""
HINGE = """<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/>
  <origin xyz="{x} 0 0"/><axis xyz="0 1 0"/>{more}</joint>"""


def rod(name: str, m: float, l: float) -> str:
    return ROD.format(name=name, x=l / 2, m=m, I=m * l**2 / 12, thin=m * l**2 / 600)


def arm(m: float, l: float, *, tool: str = "", more: str = "") -> str:
    """Two rods of m and m/4, of length l, hanging on a base without mass."""
    joints = HINGE.format(name="j", parent="base", child="a", x=0, more=more)
    joints += HINGE.format(name="k", parent="a", child="b", x=l, more="")
    return f'<robot name="r"><link name="base"/>{rod("a", m, l)}{rod("b", m / 4, l)}{tool}{joints}</robot>'


@pytest.mark.parametrize("m, l", [(8e-6, 4e-3), (1e-9, 2e-4), (1e-12, 1e-5), (3.0, 0.5), (1e4, 30.0)])
def test_a_robot_of_any_size_has_the_masses_of_its_file(m, l):
    """From 1 ng and 10 µm to 10 t and 30 m: the mass matrix of two rods in line, by hand."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and nothing was changed
        model = pbad.load(arm(m, l))
    n = m / 4
    tip = n * l**2 / 3
    both = m * l**2 / 3 + n * l**2 / 12 + n * (1.5 * l) ** 2
    cross = n * l**2 / 12 + n * 1.5 * l * 0.5 * l
    M = pbad.newton_euler.mass_matrix(model, model.q0)
    np.testing.assert_allclose(M, [[both, cross], [cross, tip]], rtol=1e-12)


def test_inertias_are_turned_without_loss():
    """Off-diagonal entries of a fingertip of 1 g, far below MuJoCo's own rounding of principal axes."""
    I = np.array([[3e-10, 1e-13, -2e-13], [1e-13, 2.5e-10, 4e-14], [-2e-13, 4e-14, 2e-10]])
    entries = " ".join(f'{k}="{float(I[i, j])!r}"' for k, (i, j) in zip(
        ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))))  # fmt: skip
    text = f"""<robot name="r"><link name="base"/><link name="tip"><inertial><mass value="1e-3"/><inertia {entries}/>
      </inertial></link><joint name="j" type="floating"><parent link="base"/><child link="tip"/></joint></robot>"""
    model = pbad.load(text.replace('"base"', '"world"'))
    moment = np.asarray(model.second_moment)[-1, :3, :3]
    np.testing.assert_allclose(np.trace(moment) * np.eye(3) - moment, I, rtol=1e-10, atol=1e-22)


def test_links_without_mass_get_a_share_of_the_models_and_are_named():
    """Those that move; frames that are fixed weigh nothing."""
    frame = '<link name="frame"/><joint name="f" type="fixed"><parent link="b"/><child link="frame"/></joint>'
    model, report = pbad.load(arm(8e-6, 4e-3, tool=frame), unsupported="warn")
    assert not report.notes and model.second_moment[-1, 3, 3] == 0
    cross = f'<link name="x"/>{HINGE.format(name="c", parent="b", child="x", x=0, more="")}{rod("d", 1e-6, 4e-3)}'
    cross += HINGE.format(name="e", parent="x", child="d", x=0, more="").replace("0 1 0", "0 0 1")
    model, report = pbad.load(arm(8e-6, 4e-3, tool=cross), unsupported="warn")
    assert [x for x in report.notes if "no mass" in x and "8e-15 kg and" in x and "'x'" in x]
    point = '<link name="p"><inertial><origin xyz="1 0 0"/><mass value="2"/></inertial></link>'
    point += HINGE.format(name="c", parent="b", child="p", x=0, more="")
    model, report = pbad.load(arm(2.0, 1.0, tool=point), unsupported="warn")
    assert [x for x in report.notes if "no inertia" in x and "'p'" in x]
    M = np.asarray(pbad.newton_euler.mass_matrix(model, model.q0))
    np.testing.assert_allclose(M[2, 2], 2.0, rtol=1e-7)
    rotor = '<link name="w"><inertial><mass value="0"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>'
    rotor += '<joint name="f" type="fixed"><parent link="b"/><child link="w"/></joint>'
    assert (
        "link 'w': its mass is 0 kg, left out with its inertia"
        in pbad.load(arm(2.0, 1.0, tool=rotor), unsupported="warn")[1].notes
    )


BELOW = {  # a file, what is said of it, and the same without that
    "urdf damping": (arm(1.0, 1.0, more='<dynamics damping="-0.0132"/>'), "damping of joint 'j' is -0.0132"),
    "urdf friction": (arm(1.0, 1.0, more='<dynamics friction="-1" damping="0"/>'), "friction of joint 'j' is -1"),
    "joint": ('<joint name="j" damping="-0.0132"/>', "damping of joint 'j' is -0.0132"),
    "friction": ('<joint name="j" frictionloss="-2"/>', "friction of joint 'j' is -2"),
    "spring": ('<joint name="j" stiffness="-2"/>', "stiffness of joint 'j' is -2"),
    "rotor": ('<joint name="j" armature="-2"/>', "armature of joint 'j' is -2"),
    "ball": ('<joint name="j" type="ball" damping="-2"/>', "damping of joint 'j' is -2"),
    "free": ('<joint name="j" type="free" damping="-2"/>', "damping of joint 'j' is -2"),
    "tendon": ('<joint name="j"/>TENDONdamping="-2"', "damping of tendon 't' is -2"),
    "dry tendon": ('<joint name="j"/>TENDONfrictionloss="-2"', "friction of tendon 't' is -2"),
}


def with_joint(text: str) -> str:
    if text.startswith("<robot"):
        return text
    joint, _, tendon = text.partition("TENDON")
    fixed = f'<tendon><fixed name="t" {tendon}><joint joint="j" coef="1"/></fixed></tendon>' if tendon else ""
    return f'<mujoco><worldbody><body>{joint}<geom size="0.1" pos="1 0 0"/></body></worldbody>{fixed}</mujoco>'


@pytest.mark.parametrize("name", BELOW)
def test_what_would_create_energy_is_refused_or_left_out(name):
    text, words = with_joint(BELOW[name][0]), BELOW[name][1]
    with pytest.raises(pbad.UnsupportedFeatureError, match=words) as e:
        pbad.load(text)
    assert len(e.value.features) == 1
    with pytest.warns(pbad.UnsupportedFeatureWarning, match=words):
        model, report = pbad.load(text, unsupported="warn")
    assert len(report.unsupported) == 1 and [type(f) for f in model.forces] == [forces.Gravity]


FILTERS = """<drake:collision_filter_group name="{name}"><drake:member link="{link}"/>
  <drake:ignored_collision_filter_group name="{other}"/></drake:collision_filter_group>"""


def test_drakes_contact_filters_are_contact_filters():
    """They change nothing, as the bodies of a URDF do not touch one another; wrong names are errors."""
    group = FILTERS.format(name="one", link="a", other="two") + FILTERS.format(name="two", link="b", other="two")
    text = arm(1.0, 1.0, tool=group)
    bare = pbad.load(arm(1.0, 1.0))
    model = pbad.load(text)
    assert model.topology.inactive == (
        *bare.topology.inactive,
        "contact filters (2 groups; bodies of a URDF do not touch one another)",
    )
    np.testing.assert_array_equal(
        joint_acceleration(model, model.q0, 0 * model.q0, 0.0, np.zeros(0)),
        joint_acceleration(bare, bare.q0, 0 * bare.q0, 0.0, np.zeros(0)),
    )
    for old, new, words in (
        ('link="a"', 'link="c"', "no link is called 'c'"),
        ('group name="two"/>', 'group name="too"/>', "no group is called 'too'; did you mean 'two'"),
        ("drake:member ", "drake:membre ", "element <drake:membre>"),
    ):
        with pytest.raises(pbad.ModelFileError, match=words):
            pbad.load(text.replace(old, new, 1))


def test_extensions_within_a_collision_are_named():
    shape = '<collision><geometry><sphere radius="0.1"/></geometry><contact_coefficients mu="0"/></collision></link>'
    text = arm(1.0, 1.0).replace("</inertial></link>", f"</inertial>{shape}", 1)
    assert any("contact_coefficients (1)" in x for x in pbad.load(text).topology.inactive)


# --- the ground ----------------------------------------------------------------------------------------------------

ON_A_PLANE = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 1"><freejoint/><geom size="0.1" mass="1" {one}/></body>
  <body pos="1 0 1"><freejoint/><geom size="0.1" mass="1" {other}/></body></worldbody></mujoco>"""


def test_every_shape_has_its_own_softness_on_the_ground():
    """Not the mean of all: one that is mixed to a time of 0.04 sinks four times as deep as one of 0.02."""
    model = pbad.load(ON_A_PLANE.format(one="", other='solref="0.06 1"'))
    (found,) = [f for f in model.forces if isinstance(f, forces.Contact)]
    k = np.asarray(found.stiffness)
    np.testing.assert_allclose(k[0] / k[1], 4.0, rtol=1e-12)  # (0.02 + 0.06)/2 is twice 0.02
    np.testing.assert_allclose(k * np.asarray(found.width), 9.81, rtol=1e-3)


@pytest.mark.parametrize("pair", [False, True])
def test_a_margin_holds_off_the_ground(pair):
    """Contact begins as far off as MuJoCo's, of geoms and of explicit pairs."""
    text = ON_A_PLANE.format(one='margin="0.05"' * (not pair) + ' name="g"', other="")
    if pair:
        text = text.replace('type="plane"', 'type="plane" name="p"').replace(
            "</mujoco>", '<contact><pair geom1="p" geom2="g" margin="0.05"/></contact></mujoco>'
        )
    model = pbad.load(text)
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    d.qpos[2] = 0.12
    mujoco.mj_forward(m, d)
    begins = d.contact[0].includemargin - d.contact[0].dist
    radius = sorted(float(r) for f in model.forces if isinstance(f, forces.Contact) for r in f.radius)
    np.testing.assert_allclose(radius, [0.1, 0.15], rtol=1e-12)
    np.testing.assert_allclose(begins, 0.15 - 0.12, rtol=1e-9)


def test_a_margin_of_a_limit_moves_it_inwards():
    text = """<mujoco><compiler angle="radian"/><worldbody><body><joint name="j" range="-1 1" margin="0.2"/>
      <geom size="0.1"/></body></worldbody><tendon><fixed name="t" range="-2 2" margin="0.3" limited="true">
      <joint joint="j" coef="1"/></fixed></tendon></mujoco>"""
    model = pbad.load(text)
    np.testing.assert_allclose(forces.joint_ranges(model), [[-0.8, 0.8]])


def test_parents_and_children_touch_where_the_file_says_so():
    text = """<mujoco><option><flag filterparent="{}"/></option><worldbody><body><freejoint/><geom size="0.1"/>
      <body pos="0.3 0 0"><joint/><geom size="0.1"/></body></body></worldbody></mujoco>"""
    counts = [
        sum(isinstance(f, forces.BodyContact) for f in pbad.load(text.format(x)).forces) for x in ("enable", "disable")
    ]
    assert counts == [0, 1]


@pytest.mark.parametrize("pull", ['motor tendon="rope"', 'motor site="s"', 'motor tendon="belt"'])
def test_a_bound_on_what_tendons_pull_is_refused(pull):
    text = f"""<mujoco><worldbody><site name="o"/><body><joint name="j" actuatorfrcrange="-1 1"/><geom size="0.1"/>
      <site name="s" pos="0.1 0 1"/></body></worldbody><tendon><fixed name="belt"><joint joint="j" coef="1"/></fixed>
      <spatial name="rope"><site site="o"/><site site="s"/></spatial></tendon><actuator><{pull}/></actuator></mujoco>"""
    with pytest.raises(
        pbad.UnsupportedFeatureError, match="actuatorfrcrange of joint 'j', which tendons or sites pull"
    ):
        pbad.load(text)
    assert pbad.load(text.replace('actuatorfrcrange="-1 1"', "")).nu == 1


# --- time ----------------------------------------------------------------------------------------------------------


def stone(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A bumpy flat ellipsoid: vertices (V,3) m and triangles (F,3)."""
    polar, round_ = np.linspace(0.01, np.pi - 0.01, rows), np.linspace(0, 2 * np.pi, 2 * rows, endpoint=False)
    a, b = (x.ravel() for x in np.meshgrid(polar, round_, indexing="ij"))
    r = 0.1 * (1 + 0.1 * np.sin((5 + seed) * a) * np.sin(7 * b))
    vertices = np.stack([r * np.sin(a) * np.cos(b), 0.6 * r * np.sin(a) * np.sin(b), 0.3 * r * np.cos(a)], axis=1)
    i, j = (x.ravel() for x in np.meshgrid(np.arange(rows - 1), np.arange(2 * rows), indexing="ij"))
    k, n = (j + 1) % (2 * rows), 2 * rows
    sides = [
        np.stack([i * n + j, (i + 1) * n + j, (i + 1) * n + k], 1),
        np.stack([i * n + j, (i + 1) * n + k, i * n + k], 1),
    ]
    ends = [(0 * k[:n] + first, first + k[:n], first + j[:n]) for first in (0, (rows - 1) * n)]
    caps = [np.stack(ends[0], 1)[1:-1, ::-1][:, ::-1], np.stack(ends[1], 1)[1:-1, ::-1]]
    return vertices, np.concatenate([*sides, *caps])


@pytest.mark.slow
def test_large_meshes_load_nearly_as_fast_as_mujoco_compiles_them(tmp_path):
    """Four meshes of 50,000 vertices, one of them on three bodies: at most three times as long, above 2 s."""
    for k in range(4):
        vertices, faces = stone(158, k)
        record = np.zeros(len(faces), [("normal", "<f4", 3), ("points", "<f4", (3, 3)), ("attribute", "<u2")])
        record["points"] = vertices[faces]
        (tmp_path / f"{k}.stl").write_bytes(b"\0" * 80 + len(faces).to_bytes(4, "little") + record.tobytes())
    meshes = "".join(f'<mesh name="m{k}" file="{k}.stl" inertia="shell"/>' for k in range(4))
    body = '<body pos="{} 0 1"><freejoint/><geom type="mesh" mesh="m{}"/></body>'
    bodies = "".join(body.format(k, min(k, 3)) for k in range(6))
    path = tmp_path / "m.xml"
    path.write_text(
        f'<mujoco><asset>{meshes}</asset><worldbody><geom type="plane" size="9 9 1"/>{bodies}</worldbody></mujoco>'
    )
    start = time.process_time()
    mujoco.MjModel.from_xml_path(str(path))
    theirs, start = time.process_time() - start, time.process_time()
    assert pbad.load(path).n_bodies == 6
    ours = time.process_time() - start
    print(f"MuJoCo {theirs:.1f} s, here {ours:.1f} s")
    assert ours < max(3 * theirs, 2 + theirs)
