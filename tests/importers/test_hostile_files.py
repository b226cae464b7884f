"""Files that are broken, wrong or meant to harm: a ModelFileError with the place and the reason, soon, or a model."""

import importlib
import os
import pathlib
import random
import warnings
from typing import Any

import pytest

import pbad_jax as pbad
from pbad_jax.importers import nodes, packages, roots

pytestmark = pytest.mark.float64

mujoco: Any = importlib.import_module("mujoco")  # it has no types

MJCF = """<mujoco model="m">
  <compiler angle="radian"/>
  <default><default class="arm"><joint damping="0.1"/></default></default>
  <asset><mesh name="tri" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/><material name="red" rgba="1 0 0 1"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 0.1"/>
    <body name="upper" pos="0 0 1" quat="1 0 0 0">
      <joint name="shoulder" class="arm" type="hinge" axis="0 1 0" range="-2 2" stiffness="1" springref="0.1" ref="0"/>
      <geom name="g" type="capsule" fromto="0 0 0 0 0 -0.5" size="0.05" mass="1.5" material="red"/>
      <body name="lower" pos="0 0 -0.5" euler="0.1 0 0">
        <inertial pos="0 0 -0.2" mass="0.7" diaginertia="0.01 0.01 0.002"/>
        <joint name="elbow" type="slide" axis="0 0 1" armature="0.01" frictionloss="0.1"/>
        <geom type="mesh" mesh="tri"/>
      </body>
    </body>
    <body name="ball"><freejoint name="free"/><geom type="sphere" size="0.1"/></body>
  </worldbody>
  <actuator><position name="servo" joint="shoulder" kp="10" kv="1" ctrlrange="-1 1" gear="2"/></actuator>
</mujoco>"""

URDF = """<robot name="r">
  <link name="base"><visual><geometry><box size="1 1 1"/></geometry></visual></link>
  <link name="arm"><inertial><origin xyz="0 0 1" rpy="0 0 0"/><mass value="1"/>
    <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
    <visual><geometry><mesh filename="package://r/mesh.stl" scale="1 1 1"/></geometry></visual>
    <collision><geometry><cylinder radius="0.1" length="1"/></geometry></collision></link>
  <link name="hand"><inertial><mass value="1"/>
    <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="arm"/><origin xyz="0 0 1" rpy="0 0 1"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/><dynamics damping="1" friction="0"/></joint>
  <joint name="wrist" type="prismatic"><parent link="arm"/><child link="hand"/><axis xyz="1 0 0"/>
    <limit lower="0" upper="1" effort="1" velocity="1"/></joint>
</robot>"""


def refused(source, *words, error: Any = pbad.ModelFileError) -> Any:
    """The error, after checking its type and its words."""
    with pytest.raises(error) as e:
        pbad.load(source)
    for word in words:
        assert word in str(e.value), str(e.value)
    assert len(str(e.value)) < 5000
    return e.value


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The first model pays for imports and compilation, not the first bad file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pbad.load(MJCF)
        pbad.load(URDF)


# --- the table of bad inputs, rows 15, 19, 42-51 -----------------------------------------------------------


def test_row_15_two_parents():
    text = URDF.replace(
        "</robot>", '<joint name="twin" type="fixed"><parent link="base"/><child link="hand"/></joint></robot>'
    )
    refused(text, "'hand' has two parents", "'wrist'", "'twin'", "<text>:")


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('joint="shoulder"', 'joint="sholder"', ["sholder", "did you mean 'shoulder'"]),
        ('mesh="tri"', 'mesh="try"', ["'try'", "did you mean 'tri'", "<text>:13"]),
        ('class="arm" type', 'class="amr" type', ["'amr'", "did you mean 'arm'", "<text>:8"]),
        ('material="red"', 'material="rad"', ["'rad'", "did you mean 'red'", "<text>:9"]),
    ],
)
def test_row_19_unknown_reference_in_mjcf(old, new, words):
    refused(MJCF.replace(old, new), *words)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('<parent link="arm"/>', '<parent link="amr"/>', ["'wrist'", "'amr'", "did you mean 'arm'"]),
        ('<child link="hand"/>', '<child link="hnad"/>', ["'wrist'", "'hnad'", "did you mean 'hand'"]),
        ('<axis xyz="1 0 0"/>', '<mimic joint="shoudler"/>', ["'shoudler'", "did you mean 'shoulder'"]),
        ('<parent link="arm"/>', '<parent link="hand"/>', ["cycle", "hand <- hand"]),
        ('<parent link="arm"/>', "", ["'wrist'", "<parent"]),
        ('type="prismatic"', 'type="prismatik"', ["'prismatik'", "did you mean 'prismatic'"]),
        ('<link name="hand">', '<link name="arm">', ["two links are called 'arm'"]),
        ('<joint name="wrist"', '<joint name="shoulder"', ["two joints are called 'shoulder'"]),
        ('<mass value="1"/>', '<mass value="-1"/>', ["mass of link 'arm' is -1"]),
        ('<axis xyz="1 0 0"/>', '<axis xyz="0 0 0"/>', ["axis of joint 'wrist' is zero"]),
        ('<axis xyz="1 0 0"/>', '<axis xyz="0 0"/>', ["xyz='0 0' of <axis> has 2 numbers"]),
        ('damping="1"', 'damping="-1"', ["damping of joint 'shoulder' is -1"]),
        ('lower="-1" upper="1"', 'lower="1" upper="-1"', ["lower of joint 'shoulder' is 1, its upper -1", "Swap them"]),
        ('lower="0" upper="1"', 'upper="-1"', ["lower of joint 'wrist' is 0, its upper -1"]),
    ],
)
def test_urdf_that_cannot_be(old, new, words):
    refused(URDF.replace(old, new, 1), *words)


def test_row_42_missing_folder_unreadable(tmp_path, monkeypatch):
    refused(tmp_path / "absent.xml", "absent.xml", error=FileNotFoundError)
    refused("no/such/model.urdf", "no/such/model.urdf", error=FileNotFoundError)
    refused(tmp_path, str(tmp_path), "is a folder")
    refused("x" * 5000, "xxx", error=(pbad.ModelFileError, FileNotFoundError))
    refused("a\0b", error=pbad.ModelFileError)
    refused(3, "int")
    os.mkfifo(tmp_path / "pipe.xml")
    refused(tmp_path / "pipe.xml", "not a regular file")
    locked = tmp_path / "locked.xml"
    locked.write_text(MJCF)
    monkeypatch.setattr(
        type(locked), "read_bytes", lambda self: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    refused(locked, "locked.xml", "Permission denied")


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", ["the file is empty"]),
        (b"  \n ", ["the file is empty"]),
        (MJCF[:600].encode(), ["not well-formed"]),
        (b"<mujoco>\n\n<worldbody>\n</mujoco>", [":4:", "mismatched tag"]),
        (b'<?xml version="1.0" encoding="utf-16"?>' + MJCF.encode(), ["not well-formed XML"]),
        (b'<?xml version="1.0" encoding="klingon"?>' + MJCF.encode(), ["m.xml:1"]),
        (b"<mujoco model='\xff\xfe'/>", ["m.xml:1", "not well-formed"]),
        (b'{"bodies": []}', ["m.xml:1", '{"bodies"']),
        (b"solid part\nfacet normal 0 0 1\n", ["m.xml:1", "solid part"]),
        (b"\0" * 84 + b"\1\2\3", ["m.xml:1"]),
        (b"<svg><g/></svg>", ["the root element is <svg>", "<mujoco>", "<robot>"]),
        (b"<sdf version='1.6'><model name='a'/></sdf>", ["the root element is <sdf>"]),
        (b"<mujocoinclude/>", ["the root element is <mujocoinclude>"]),
        (b"<mujoco/>", ["no bodies"]),
        (b"<robot name='a'/>", ["no links"]),
    ],
)
def test_rows_43_and_44_not_a_model(tmp_path, data, words):
    path = tmp_path / "m.xml"
    path.write_bytes(data)
    refused(path, *words)


@pytest.mark.parametrize(
    "text, words",
    [
        (
            MJCF.replace('type="slide" axis', 'type="slide" axsi'),
            ["<text>:12", "<joint>", "'axsi'", "did you mean 'axis'"],
        ),
        (MJCF.replace("fromto", "fromtoo"), ["<text>:9", "<geom>", "did you mean 'fromto'"]),
        (URDF.replace("rpy", "ryp", 1), ["<text>:3", "'ryp'", "did you mean 'rpy'"]),
        (URDF.replace('damping="1"', 'dampign="1"'), ["<dynamics>", "did you mean 'damping'"]),
    ],
)
def test_row_45_unknown_attribute(text, words):
    refused(text, *words)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('range="-2 2"', 'range="30 -30"', ["range='30 -30' of <joint> 'shoulder'", "Swap them", 'limited="false"']),
        ('range="-2 2"', 'actuatorfrcrange="2 2"', ["actuatorfrcrange='2 2' of <joint> 'shoulder'", "below"]),
        ('ctrlrange="-1 1"', 'ctrlrange="1 -1"', ["ctrlrange='1 -1' of <position> 'servo'", "Swap them"]),
        ('ctrlrange="-1 1"', 'forcerange="1 -1"', ["forcerange='1 -1' of <position> 'servo'", "Swap them"]),
        ('damping="0.1"', 'range="1 -1"', ["range='1 -1' of <joint> ''"]),
    ],
)
def test_ranges_that_end_before_they_begin(old, new, words):
    """MuJoCo takes them for none at all; what says so itself is fine, and so is its way to write no range."""
    assert MJCF.count(old)
    refused(MJCF.replace(old, new, 1), "<text>:", *words)
    for fine in ('range="2 -2" limited="false"', 'range="0 0"'):
        assert pbad.load(MJCF.replace('range="-2 2"', fine)).n_bodies == 3


def test_row_46_unknown_element():
    text = MJCF.replace("<freejoint", "<freejiont").replace('<inertial pos="0 0 -0.2"', '<interial pos="0 0 -0.2"')
    e = refused(text, "<freejiont>", "<interial>", "did you mean", error=pbad.UnsupportedFeatureError)
    assert len(e.features) == 2
    e = refused(
        URDF.replace("<axis", "<axsi"), "<axsi> of <joint>", "did you mean 'axis'", error=pbad.UnsupportedFeatureError
    )
    assert len(e.features) == 2
    refused(
        URDF.replace("<link", "<xacro:link").replace("</link", "</xacro:link"),
        "expand",
        error=pbad.UnsupportedFeatureError,
    )


# rows 47-50 are in test_load.py


@pytest.mark.parametrize(
    "number", ["1e400", "-1e999", "nan", "NAN", "inf", "0x10", "1,5", "1" * 100_000, "1_0", "١", "one"]
)
@pytest.mark.parametrize("where", ["mjcf mass", "mjcf range", "mjcf gear", "urdf mass", "urdf origin"])
def test_row_51_numbers(number, where):
    text = {
        "mjcf mass": MJCF.replace('mass="1.5"', f'mass="{number}"'),
        "mjcf range": MJCF.replace('range="-2 2"', f'range="-2 {number}"', 1),
        "mjcf gear": MJCF.replace('gear="2"', f'gear="{number}"'),
        "urdf mass": URDF.replace('mass value="1"', f'mass value="{number}"', 1),
        "urdf origin": URDF.replace('xyz="0 0 1"', f'xyz="0 {number} 1"', 1),
    }[where]
    name = {"mass": "value" if "urdf" in where else "mass", "origin": "xyz"}.get(where.split()[1], where.split()[1])
    e = refused(text, f"{name}=", number[:30], "<text>:")
    assert len(str(e)) < 400


@pytest.mark.parametrize(
    "old, new", [('mass="1.5"', 'mass="1e300"'), ('size="0.05"', 'size="1e200"'), ('"0 0 1"', '"1e308 1e308 0"')]
)
def test_huge_numbers_that_overflow(old, new):
    assert MJCF.count(old)
    try:
        pbad.load(MJCF.replace(old, new, 1))
    except pbad.ModelFileError:
        pass


# --- hostile files -----------------------------------------------------------------------------------------

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE m [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{("&" + chr(97 + i) + ";") * 10}">' for i in range(12))
    + ']><mujoco model="&m;"/>'
)
QUADRATIC = '<!DOCTYPE m [<!ENTITY a "' + "x" * 100_000 + '">]><mujoco model="' + "&a;" * 50_000 + '"/>'


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        QUADRATIC,
        '<!DOCTYPE m SYSTEM "http://127.0.0.1:9/x.dtd"><mujoco/>',
        '<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/passwd">]><mujoco model="&x;"/>',
        '<!DOCTYPE m [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><mujoco/>',
    ],
)
def test_document_types_and_entities(text):
    refused(text, "document types and entities are refused")


@pytest.mark.parametrize("prefix", ["xi", "x"])
def test_xinclude(prefix):
    uri = "http://www.w3.org/2001/XInclude"
    refused(f'<mujoco xmlns:{prefix}="{uri}"><{prefix}:include href="/etc/passwd"/></mujoco>', "XInclude is refused")


def test_deep_nesting():
    refused("<mujoco>" + "<body>" * 200_000 + "</body>" * 200_000 + "</mujoco>", "nested more than 256")
    refused("<robot name='a'>" + "<link>" * 200_000, "nested more than 256")


def test_too_many_elements_and_too_long_attributes():
    refused("<mujoco>" + "<geom/>" * 200_000 + "</mujoco>", "more than 100000 elements")
    refused('<mujoco model="' + "x" * 2_000_000 + '"/>', "has 2000000 characters")
    links = "".join(f'<link name="l{i}"/>' for i in range(20_000))
    refused(f"<robot name='a'>{links}</robot>", "20000 links")
    bodies = "<body/>" * 20_000
    refused(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>", "more than 10000 bodies")


@pytest.mark.parametrize("count", ["1000000000", "1e30", "20000"])
def test_counts_that_multiply(count):
    inner = '<replicate count="300"><body><geom size="1"/></body></replicate>'
    text = f'<mujoco><worldbody><replicate count="{count}">{inner}</replicate></worldbody></mujoco>'
    refused(text, "that is the limit")


def test_reserved_memory_is_not_reserved():
    text = MJCF.replace("<worldbody>", '<size memory="900G" nuser_body="1000000000"/><worldbody>', 1)
    assert pbad.load(text).n_bodies == 3


def png(rows: int, columns: int) -> bytes:
    """The first bytes of an image."""
    return b"\x89PNG\r\n\x1a\n" + bytes([0, 0, 0, 13]) + b"IHDR" + columns.to_bytes(4) + rows.to_bytes(4)


def test_sizes_that_nothing_fills_are_not_reserved(tmp_path):
    """Height fields, by number or by an image that is to be unpacked, and the outputs of sensors."""
    for what in (
        '<asset><hfield name="h" nrow="30000" ncol="30000" size="1 1 1 1"/></asset>',
        '<sensor><user name="h" dim="300000000"/></sensor>',
    ):
        refused(MJCF.replace("<worldbody>", f"{what}<worldbody>", 1), "'h'", "sets aside", "20000000", "<text>:")
    (tmp_path / "h.png").write_bytes(png(30000, 30000))
    (tmp_path / "m.xml").write_text(
        MJCF.replace("<worldbody>", '<asset><hfield file="h.png" size="1 1 1 1"/></asset><worldbody>', 1)
    )
    refused(tmp_path / "m.xml", "<hfield> 'h'", "sets aside 9e+08")


def test_names_that_steer_a_terminal_are_written_out(tmp_path, capsys):
    """C1 control characters are allowed in XML, and terminals obey them."""
    from pbad_jax.cli import main

    path = tmp_path / "m.xml"
    path.write_text(
        MJCF.replace('"upper"', '"&#x9b;2J"').replace('"shoulder"', '"&#x9b;1m"').replace('"m"', '"&#x9b;m"')
    )
    with pytest.raises(pbad.StateError) as e:
        pbad.make_state(pbad.load(path), [0.0])
    assert main(["info", str(path)]) == 0
    for shown in (str(e.value), capsys.readouterr().out):
        assert "\x9b" not in shown and "\\x9b1m" in shown


def test_long_chain_of_links():
    links = "".join(f'<link name="l{i}"/>' for i in range(5000))
    joints = "".join(
        f'<joint name="j{i}" type="fixed"><parent link="l{i - 1}"/><child link="l{i}"/></joint>' for i in range(1, 5000)
    )
    refused(f"<robot name='a'>{links}{joints}</robot>", "more than 1000 joints from its root")


def test_huge_file(tmp_path):
    path = tmp_path / "huge.xml"
    with path.open("wb") as f:
        f.truncate(65 * 2**20)
    refused(path, "more than 64 MB")
    refused("<" + " " * (65 * 2**20), "more than 64 MB")


# --- paths -------------------------------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path):
    """tmp_path/secret is outside of tmp_path/robot."""
    (tmp_path / "robot").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "part.xml").write_text(
        "<mujoco><worldbody><body><geom size='1'/></body></worldbody></mujoco>"
    )
    (tmp_path / "secret" / "mesh.stl").write_bytes(b"secret")
    return tmp_path


def written(house, text, name="m.xml"):
    path = house / "robot" / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "path", ["../secret/part.xml", "{house}/secret/part.xml", "sub/../../secret/part.xml", "link.xml", "dir/part.xml"]
)
def test_include_stays_inside(house, path):
    (house / "robot" / "link.xml").symlink_to(house / "secret" / "part.xml")
    (house / "robot" / "dir").symlink_to(house / "secret")
    path = path.format(house=house)
    model = written(house, f'<mujoco><include file="{path}"/></mujoco>')
    refused(model, path, "leads outside", "m.xml:1")
    assert pbad.load(model, package_dirs=[house / "secret"]).n_bodies == 1


def test_include_cycle_depth_and_absence(house):
    robot = house / "robot"
    (robot / "b.xml").write_text('<mujocoinclude><include file="c.xml"/></mujocoinclude>')
    (robot / "c.xml").write_text('<mujocoinclude>\n<include file="b.xml"/></mujocoinclude>')
    refused(written(house, '<mujoco><include file="b.xml"/></mujoco>'), "cycle", "b.xml -> c.xml -> b.xml", "c.xml:2")
    refused(written(house, '<mujoco><include file="m.xml"/></mujoco>'), "m.xml -> m.xml")
    for i in range(40):
        (robot / f"d{i}.xml").write_text(f'<mujocoinclude><include file="d{i + 1}.xml"/></mujocoinclude>')
    refused(written(house, '<mujoco><include file="d0.xml"/></mujoco>'), "more than 16 deep")
    refused(written(house, '<mujoco><include file="nowhere.xml"/></mujoco>'), "nowhere.xml", "does not exist")
    refused(written(house, "<mujoco><include/></mujoco>"), "needs file=")


def test_includes_that_double(house):
    """2^16 inclusions without a cycle use up the budget, not the time."""
    for i in range(15):
        twice = f'<include file="e{i + 1}.xml"/>' * 2
        (house / "robot" / f"e{i}.xml").write_text(f"<mujocoinclude>{twice}</mujocoinclude>")
    (house / "robot" / "e15.xml").write_text("<mujocoinclude>" + "<worldbody/>" * 50 + "</mujocoinclude>")
    refused(written(house, '<mujoco><include file="e0.xml"/></mujoco>'), "more than 1000 files")


WITH_MESH = """<mujoco><asset><mesh name="a" file="a.stl"/></asset>
<worldbody><body><geom type="mesh" mesh="a"/></body></worldbody></mujoco>"""
ESCAPES = [
    "../secret/mesh.stl",
    "../../../../../../etc/passwd.stl",
    "/etc/passwd",
    "http://127.0.0.1:9/a.stl",
    "https://x/a.stl",
    "ftp://x/a.stl",
    "link.stl",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_meshes_stay_inside(house, path):
    (house / "robot" / "link.stl").symlink_to(house / "secret" / "mesh.stl")
    refused(written(house, WITH_MESH.replace("a.stl", path)), path, "m.xml:1")
    refused(written(house, URDF.replace("package://r/mesh.stl", path), "r.urdf"), path, "r.urdf:5")


@pytest.mark.parametrize(
    "path",
    ["package://../secret/mesh.stl", "package://robot/../secret/mesh.stl", "package://etc/../../x.stl", "package:///"],
)
def test_packages_stay_inside(house, path):
    refused(written(house, URDF.replace("package://r/mesh.stl", path), "r.urdf"), path)


@pytest.mark.parametrize("path", ["package://etc/hostname.stl", "package://secret/mesh.stl", "package://usr/a.stl"])
def test_a_folder_is_not_a_package(house, path):
    with pytest.warns(UserWarning, match="package not found"):
        pbad.load(written(house, URDF.replace("package://r/mesh.stl", path), "r.urdf"))


def test_other_files_of_mjcf_stay_inside(house):
    text = MJCF.replace("<asset>", '<asset><hfield name="h" file="../secret/x.png"/>')
    refused(written(house, text), "../secret/x", "leads outside")
    refused(
        written(
            house,
            MJCF.replace("<compiler", '<compiler meshdir="../secret"').replace(
                "<asset>", '<asset><mesh file="mesh.stl"/>'
            ),
        ),
        "leads outside",
    )
    model = MJCF.replace("<asset>", '<asset><model name="o" file="../secret/part.xml"/>')
    refused(written(house, model), "<model>", error=pbad.UnsupportedFeatureError)


@pytest.mark.parametrize(
    "element",
    [
        '<texture name="t" type="2d" file="../secret/x.png"/>',
        '<texture name="t" type="cube" fileright="nowhere.png"/>',
        '<skin name="s" file="../secret/x.skn"/>',
    ],
)
def test_what_mechanics_does_not_need_is_not_looked_for(house, element, monkeypatch):
    text = MJCF.replace("<asset>", f"<asset>{element}")
    expected = pbad.load(written(house, MJCF))
    monkeypatch.setattr(roots.Roots, "resolve", lambda *args, **how: pytest.fail("it was looked for"))
    assert pbad.load(written(house, text)).fingerprint == expected.fingerprint


PYRAMID = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"


def test_meshes_may_lie_beside_the_model(house):
    """In a folder with a usual name; no includes, no other files, and no links from there or to there."""
    (house / "meshes").mkdir()
    (house / "meshes" / "a.obj").write_text(PYRAMID)
    (house / "meshes" / "part.xml").write_text((house / "secret" / "part.xml").read_text())
    text = WITH_MESH.replace("a.stl", "../meshes/a.obj")
    for model in (written(house, text), written(house, WITH_MESH.replace("a.stl", "a.obj").replace(
            "<asset>", '<compiler meshdir="../meshes"/><asset>'))):  # fmt: skip
        assert pbad.load(model).topology.geom_types == ("mesh",)
    beside = written(house, URDF.replace("package://r/mesh.stl", "../meshes/a.obj"), "r.urdf")
    assert "mesh" in pbad.load(beside).topology.geom_types
    refused(written(house, '<mujoco><include file="../meshes/part.xml"/></mujoco>'), "leads outside", "--package-dir")
    refused(written(house, WITH_MESH.replace("a.stl", "../meshes/part.xml")), "leads outside")
    refused(written(house, WITH_MESH.replace("a.stl", "../meshes/../secret/mesh.stl")), "leads outside")
    (house / "meshes" / "out.stl").symlink_to(house / "secret" / "mesh.stl")
    refused(written(house, WITH_MESH.replace("a.stl", "../meshes/out.stl")), "leads outside")
    (house / "assets").symlink_to(house / "secret")
    refused(written(house, WITH_MESH.replace("a.stl", "../assets/mesh.stl")), "leads outside")
    (house / "secret" / "a.obj").write_text(PYRAMID)
    elsewhere = written(house, WITH_MESH.replace("a.stl", "../secret/a.obj"))
    refused(elsewhere, "leads outside")
    assert pbad.load(elsewhere, package_dirs=house / "secret").topology.geom_types == ("mesh",)


# --- the model's own package -------------------------------------------------------------------------------

PART = "<mujocoinclude><worldbody><body><joint/><geom type='mesh' mesh='a'/></body></worldbody></mujocoinclude>"
SHARED = """<mujoco><compiler meshdir="../"/><include file="../objects/part.xml"/>
<asset><mesh name="a" file="objects/meshes/a.obj"/></asset></mujoco>"""


@pytest.fixture
def package(tmp_path):
    """The layout of Metaworld: models in sawyer_xyz, parts and meshes in objects, and a secret beside the package."""
    top = tmp_path / "world" / "parts"
    (top / "objects" / "meshes").mkdir(parents=True)
    (top / "sawyer_xyz").mkdir()
    (top / "objects" / "part.xml").write_text(PART)
    (top / "objects" / "meshes" / "a.obj").write_text(PYRAMID)
    (top / "sawyer_xyz" / "m.xml").write_text(SHARED)
    (tmp_path / "part.xml").write_text(PART)
    (top / ".git").mkdir()
    (top / ".git" / "part.xml").write_text(PART)
    (top / "notes.txt").write_text(PART)
    return tmp_path


@pytest.mark.parametrize(
    "sign",
    [
        "world/parts/package.xml",
        "world/pyproject.toml",
        "world/setup.py",
        "world/__init__.py",
        "world-2.0.dist-info/RECORD",
    ],
)
def test_files_of_the_models_own_package(package, sign):
    model = package / "world" / "parts" / "sawyer_xyz" / "m.xml"
    refused(model, "../objects/part.xml", "leads outside", "package_dirs", "pyproject.toml")
    (package / sign).parent.mkdir(exist_ok=True)
    (package / sign).write_text("")
    assert pbad.load(model).topology.geom_types == ("mesh",)
    for escape in ("../../../part.xml", "../.git/part.xml", "../notes.txt", "../link.xml", "/etc/passwd"):
        link = package / "world" / "parts" / "link.xml"
        if not link.is_symlink():
            link.symlink_to(package / "part.xml")
        model.write_text(SHARED.replace("../objects/part.xml", escape))
        refused(model, escape, "leads outside")


def test_a_folder_of_assets_is_one_package(package):
    (package / "world" / "parts").rename(package / "world" / "assets")
    assert pbad.load(package / "world" / "assets" / "sawyer_xyz" / "m.xml").topology.geom_types == ("mesh",)


def test_a_python_package_counts_with_the_one_around_it(package):
    for folder in ("world", "world/parts", "world/parts/sawyer_xyz"):
        (package / folder / "__init__.py").write_text("")
    assert packages.package_of(package / "world" / "parts" / "sawyer_xyz") == package / "world"
    (package / "world" / "parts" / "__init__.py").unlink()
    assert packages.package_of(package / "world" / "parts" / "sawyer_xyz") == package / "world"


@pytest.mark.parametrize("sign", ["package.xml", "pyproject.toml", "__init__.py"])
def test_what_was_planted_above_makes_no_package(package, sign, monkeypatch):
    """In home, above home, in a folder right below the root, far away, or as a link."""
    folder = package / "world" / "parts" / "sawyer_xyz"
    (package / sign).write_text("")
    for home in (package, package / "home", package / "world" / "home"):
        monkeypatch.setenv("HOME", str(home))
        refused(folder / "m.xml", "leads outside")
    monkeypatch.setenv("HOME", "/nonexistent")
    assert packages.package_of(folder) == package
    (package / sign).unlink()
    (package / "elsewhere").write_text("")
    (package / "world" / sign).symlink_to(package / "elsewhere")
    refused(folder / "m.xml", "leads outside")
    is_file = pathlib.Path.is_file
    for place in ("/", "/tmp", "/home", "/srv"):
        planted = pathlib.Path(place) / sign
        monkeypatch.setattr(pathlib.Path, "is_file", lambda self, own=planted: self == own or is_file(self))
        assert packages.package_of(pathlib.Path(place) / "robot" / "model") is None


def test_meshes_that_lie_or_are_missing(house):
    robot = house / "robot"
    text = WITH_MESH
    refused(written(house, text), "a.stl", "no such file")
    (robot / "a.stl").write_bytes(b"\0" * 80 + (4_000_000_000).to_bytes(4, "little") + b"\0" * 500)
    refused(written(house, text), "a.stl", "584 bytes cannot hold")
    (robot / "a.stl").write_bytes(os.urandom(84))
    refused(written(house, text), "a.stl")
    (robot / "a.stl").write_bytes(b"\0" * 80 + (3).to_bytes(4, "little") + b"\0" * 150)  # degenerate
    refused(written(house, text))


def test_text_has_no_folder():
    refused(WITH_MESH, "a.stl", "package_dirs")


def test_nothing_else_is_opened(house, monkeypatch):
    """No file outside the model's folder is opened by Python while a model loads."""
    import sys

    opened: list[str] = []
    active = [True]

    def hook(event, args):
        if active and event == "open" and isinstance(args[0], str):
            opened.append(args[0])

    sys.addaudithook(hook)
    path = written(house, URDF.replace("package://r/mesh.stl", "mesh.stl"), "r.urdf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pbad.load(path)
    active.clear()
    strange = [p for p in opened if str(house) in p and not p.startswith(str(house / "robot"))]
    assert not strange and any(p.endswith("r.urdf") for p in opened)


# --- fuzz --------------------------------------------------------------------------------------------------

VALUES = ["", " ", "0 0 0", "1 2 3 4 5 6 7", "\u2603", "<&>", "0 0 1e-300"] + (
    """0 -1 1e9 -1e-9 1e30 1e200 nan a true shoulder elbow arm upper free ball hinge box mesh ../x 2147483648 world
    tri plane cylinder 0.001 -2 ellipsoid motor auto""".split()
)


def mutate(root: nodes.Node, rng: random.Random) -> None:
    """One to three changes of structure or content, in place."""
    for _ in range(rng.randint(1, 3)):
        nodes = list(root.walk())
        node, other = rng.choice(nodes), rng.choice(nodes)
        kind = rng.randrange(8)
        if kind == 0 and node.attrib:
            node.attrib[rng.choice(list(node.attrib))] = rng.choice(VALUES)
        elif kind == 1 and node.attrib:
            node.attrib.pop(rng.choice(list(node.attrib)))
        elif kind == 2 and node.children:
            node.children.pop(rng.randrange(len(node.children)))
        elif kind == 3 and other is not root and node not in list(other.walk()):
            node.children.insert(rng.randint(0, len(node.children)), other)
        elif kind == 4:
            node.tag = other.tag
        elif kind == 5 and other.attrib:
            name = rng.choice(list(other.attrib))
            node.attrib[name] = other.attrib[name]
        elif kind == 6:
            rng.shuffle(node.children)
        elif kind == 7 and node.attrib:
            name = rng.choice(list(node.attrib))
            words = node.attrib[name].split() or [""]
            words[rng.randrange(len(words))] = rng.choice(VALUES)
            node.attrib[name] = " ".join(words)


def fuzz(text: str, seeds) -> int:
    """How many of the mutants still load; anything but a ModelFileError is a failure."""
    loaded = 0
    for seed in seeds:
        rng = random.Random(seed)
        root = nodes.parse(text, "fuzz", nodes.Budget())
        mutate(root, rng)
        mutant = nodes.serialise(root)[0]
        if rng.random() < 0.1:
            cut = rng.randrange(len(mutant))
            mutant = mutant[:cut] + rng.choice(["", "<", "&", "\0", '"', "\x1b"]) + mutant[cut + 1 :]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pbad.load(mutant, unsupported="warn")
            loaded += 1
        except (pbad.ModelFileError, FileNotFoundError):
            pass
        except Exception as e:
            raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\n{mutant}") from e
    return loaded


def test_what_mujoco_compiles_but_cannot_compute():
    """Found by tests.torture: it was MuJoCo's own FatalError; older versions get as far as an acceleration."""
    text = """<mujoco><asset><mesh name="tri" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
      <worldbody><geom type="plane" size="1 1 0.1"/><body pos="0 0 1"><joint axis="0 1 0"/>
      <geom type="mesh" mesh="tri"/></body><body><freejoint/><geom size="1e200"/></body></worldbody></mujoco>"""
    with pytest.raises(pbad.ModelFileError, match="far too large|huge value"):
        pbad.load(text)


@pytest.mark.parametrize("text", [MJCF, URDF], ids=["mjcf", "urdf"])
def test_fuzz(text):
    assert fuzz(text, range(300)) > 30


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("text", [MJCF, URDF], ids=["mjcf", "urdf"])
def test_fuzz_long(text):
    assert fuzz(text, range(1000, 3500)) > 100


def test_the_log_file_is_not_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = mujoco.get_mju_user_warning()
    fuzz(MJCF, range(20))
    assert mujoco.get_mju_user_warning() is before
    assert list(tmp_path.iterdir()) == []
