"""Every attribute of MuJoCo's schema: read, named, or of no effect; and the numbers of those that are read in part."""

import functools
import pathlib
import warnings
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax.importers import LoadReport, attributes
from pbad_jax.importers.attributes import NAMED, PART, READ, STILL

pytestmark = pytest.mark.float64

BASE = """<mujoco>
  <compiler/><option/>
  <asset>
    <mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1 1 1 1" scale="0.1 0.1 0.1"/>
    <hfield name="h" nrow="4" ncol="4" size="1 1 0.2 0.1" elevation="0 1 0 1 0 2 0 1 0 1 0 1 0 1 3 1"/>
  </asset>
  <worldbody>
    <geom type="hfield" hfield="h" pos="9 0 0"/><geom type="plane" size="1 1 1"/>
    <body name="a" pos="0 0 1">
      <joint name="j" axis="0 1 0" range="-40 50" stiffness="1" damping="0.1" frictionloss="0.1"/>
      <geom name="g" type="box" size="0.1 0.2 0.3" condim="6" mass="1.3" conaffinity="0"/>
      <site name="s" pos="0.1 0 0.3"/>
      <body name="b" pos="0.1 0.2 0.9">
        <inertial mass="2" pos="0 0 0" diaginertia="0.1 0.2 0.15"/>
        <joint name="k" axis="1 0 0" pos="0 0 0.1"/>
        <geom name="e" type="capsule" size="0.1 0.2"/><site name="t"/>
      </body>
    </body>
    <body name="f" pos="2 0 1"><freejoint/><geom name="d" type="mesh" mesh="m"/></body>
    <body name="c" pos="2 1 1"><freejoint/><geom name="i" size="0.1"/><site name="r"/></body>
    <body name="spare" pos="3 3 3"><joint name="sj"/><geom size="0.1"/></body>
  </worldbody>
  <contact>
    <pair geom1="g" geom2="d" condim="6" friction="1 1 0.1 0.01 0.01"/><exclude body1="a" body2="c"/>
  </contact>
  <tendon>
    <spatial name="rope" range="0 1" limited="true" stiffness="2" springlength="0.1 0.2">
      <site site="s"/><site site="t"/><pulley divisor="2"/><site site="s"/><site site="t"/></spatial>
    <fixed name="belt" range="-1 1" limited="true" stiffness="2" frictionloss="0.1">
      <joint joint="j" coef="1"/><joint joint="k" coef="-1"/></fixed>
  </tendon>
  <equality>
    <connect body1="f" body2="c" anchor="0 0 0"/><weld body1="spare" body2="c"/>
    <joint joint1="j" joint2="k"/><tendon tendon1="belt"/>
  </equality>
  <actuator>
    <general name="u" joint="j" dyntype="filter" dynprm="0.2" gainprm="3" biastype="affine" biasprm="0.1 -2 -0.3"/>
    <position name="p" joint="k" kp="3"/><velocity name="v" joint="k" kv="2"/>
    <intvelocity name="q" joint="j" kp="2" actrange="-1 1"/><cylinder name="o" joint="k" timeconst="1"/>
    <motor name="w" joint="k" ctrlrange="-1 1"/>
  </actuator>
  <keyframe><key name="home"/></keyframe>
</mujoco>"""
TURNS = {"axisangle": "1 0 0 30", "euler": "10 20 30", "quat": "1 0.2 0 0", "xyaxes": "0 1 0 -1 0 0", "zaxis": "1 0 1"}
SOLVER = {"solref": "0.1 1", "solimp": "0.5 0.95 0.001 0.5 2"}
FRICTION = {"solreffriction": "0.1 1", "solimpfriction": "0.5 0.6 0.1 0.5 2"}
LIMIT = {"solreflimit": "0.1 1", "solimplimit": "0.5 0.95 0.001 0.5 2"}
ACTUATOR = {
    "ctrlrange": "-1 2", "forcerange": "-3 4", "gear": "2", "armature": "0.1", "damping": "0.3", "delay": "0.01",
}  # fmt: skip
EXAMPLES = {  # path: attribute: another value than in BASE
    "compiler": {
        "angle": "radian", "balanceinertia": None, "boundinertia": "1", "boundmass": "3", "eulerseq": None,
        "inertiafromgeom": "true", "inertiagrouprange": None, "settotalmass": "77", "autolimits": None,
        "alignfree": "true",
    },
    "option": {
        "gravity": "0 0 -3", "density": "1.2", "viscosity": "1", "timestep": "0.03", "impratio": "3",
        "actuatorgroupdisable": "0", "o_friction": None, "o_margin": None, "o_solimp": None, "o_solref": None,
    },
    "option/flag": {
        **dict.fromkeys(
            "actuation clampctrl constraint contact damper equality filterparent frictionloss gravity limit passive "
            "spring".split(), "disable"), "refsafe": None, "override": "enable",
    },
    "asset/mesh": {"scale": "0.2 0.1 0.1", "refpos": "0.1 0 0", "refquat": "1 1 0 0",
        "vertex": "0 0 0 2 0 0 0 1 0 0 0 1"},
    "asset/hfield": {
        "size": "1 2 0.2 0.1", "elevation": "0 1 0 1 0 2 0 1 0 1 3 1 0 1 0 1", "ncol": None, "nrow": None,
    },
    "body": {"pos": "1 0 1", "gravcomp": "0.5", "mocap": None, **TURNS},
    "body/inertial": {
        "pos": "0.1 0 0", "mass": "3", "diaginertia": "0.1 0.2 0.25", "fullinertia": None, **TURNS,
    },
    "body/joint": {
        "type": None, "pos": "0 0 0.1", "axis": "0 1 1", "ref": "10", "range": "-30 50", "limited": "false",
        "margin": "0.1", "stiffness": "2", "springref": "5", "springdamper": "0.1 1", "damping": "0.2",
        "armature": "0.1", "frictionloss": "0.3", "actuatorfrcrange": "-1 2", "actuatorfrclimited": None,
        "actuatorgravcomp": None, "springyield": "0.4", **LIMIT, **FRICTION,
    },
    "body/geom": {
        "pos": "0.1 0 0", "type": "ellipsoid", "size": "0.1 0.2 0.4", "mass": "3", "density": None, "condim": "1",
        "contype": "0", "conaffinity": None, "priority": None, "friction": "0.5 0.2 0.1", "margin": "0.1",
        "gap": None, "solmix": None, "adhesion": "1", "surfacevel": "1 0 0 0 0 0", "fluidshape": None,
        "shellinertia": "true", **SOLVER, **TURNS,
    },
    "body/site": {"pos": "0 0 0", "type": "box", "size": "0.3 0.3 0.3", **TURNS},
    "contact/pair": {
        "geom2": "e", "geom1": "i", "condim": "3", "friction": "1 1 0.2 0.01 0.01", "margin": "0.1", "gap": None,
        "adhesion": "1", "solreffriction": "0.1 1", **SOLVER,
    },
    "contact/exclude": {"body2": "f"},
    "tendon/spatial": {
        "range": "0 2", "limited": "false", "margin": "0.1", "stiffness": "3", "springlength": "0.1 0.3",
        "damping": "1", "frictionloss": "1", "armature": "1", "actuatorfrcrange": "-1 1", "springyield": "1", **LIMIT,
    },
    "tendon/fixed": {
        "range": "-1 2", "limited": "false", "margin": "0.1", "stiffness": "3", "springlength": "0.1 0.3",
        "damping": "1", "frictionloss": "1", "armature": "1", "actuatorfrcrange": "-1 1", "springyield": "1", **LIMIT,
        **FRICTION,
    },
    "tendon/fixed/joint": {"coef": "2", "joint": "sj"},
    "tendon/spatial/site": {"site": "r"},
    "tendon/spatial/pulley": {"divisor": "3"},
    "equality/connect": {"active": "false", "anchor": "1 0 0", "body2": "spare", **SOLVER},
    "equality/weld": {"active": "false", "body1": "b", "relpose": "0 0 1 1 0 0 0", "torquescale": "2", **SOLVER},
    "equality/joint": {"active": "false", "polycoef": "0 1 0 0 0.5", "joint2": "sj", **SOLVER},
    "equality/tendon": {"active": "false", "polycoef": "1 0 0 0 0", "tendon2": None, **SOLVER},
    "actuator/general": {
        **ACTUATOR, "dyntype": "integrator", "dynprm": "0.3", "gainprm": "4", "gaintype": "affine", "biastype": "none",
        "biasprm": "0.1 -2 -0.4", "actearly": "true", "actrange": "-1 1", "joint": "k",
    },
    "actuator/position": {**ACTUATOR, "kp": "4", "kv": "1", "timeconst": "1", "dampratio": "1"},
    "actuator/velocity": {**ACTUATOR, "kv": "1"},
    "actuator/intvelocity": {**ACTUATOR, "kp": "1", "kv": "1", "dampratio": "1", "actrange": "-1 2"},
    "actuator/cylinder": {**ACTUATOR, "area": "2", "diameter": "2", "timeconst": "3", "bias": "1 2 3"},
    "actuator/motor": ACTUATOR,
    "keyframe/key": {"time": "1", "qpos": None, "qvel": None},
}  # fmt: skip


def changed(path: str, name: str, value: str) -> str:
    """BASE with one attribute of the first element of that path."""
    root = ElementTree.fromstring(BASE)
    *above, last = path.split("/")
    place = root
    for tag in above:
        place = place.find(f".//{tag}")
        assert place is not None
    element = place.find(f".//{last}")
    if element is None:
        element = ElementTree.SubElement(place, last)
    if name in attributes.POSE.split()[1:]:
        for other in attributes.POSE.split()[1:]:
            element.attrib.pop(other, None)
    element.set(name, value)
    if name == "delay":
        element.set("nsample", "5")
    return ElementTree.tostring(root, "unicode")


def told(text: str) -> tuple:
    """All that a model holds, and all that is said of it; or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model, report = pbad.load(text, unsupported="warn")
        except pbad.ModelFileError as e:
            return (str(e),)
    numbers = [np.asarray(x).tobytes() for x in jax.tree.leaves(model)]
    tables = [dict(t.items()) for t in (model.sites, model.sensors)]
    return numbers, jax.tree.structure(model), report, tables, repr([*model.keyframes.items()])


@functools.cache
def base() -> tuple:
    return told(BASE)


def test_the_table_knows_every_attribute():
    """Of MuJoCo's schema; and names none that is in no MuJoCo."""
    known = attributes.schema()
    assert len(known) > 100
    missing = []
    for path, names in known.items():
        for name in names:
            try:
                attributes.state_of(path, name)
            except KeyError as e:
                missing.append(str(e))
    assert not missing
    with pytest.raises(KeyError, match="'nonsense' of 'body/joint'"):
        attributes.state_of("body/joint", "nonsense")


def test_every_attribute_that_acts_has_an_example():
    """All that the table calls read, read in part or named; some need another base, some elements are refused whole."""
    elsewhere = {
        ("asset/mesh", "builtin"), ("asset/mesh", "face"), ("asset/mesh", "inertia"), ("asset/mesh", "params"),
        ("compiler", "coordinate"), ("compiler", "fitaabb"), ("compiler", "fusestatic"), ("body/freejoint", "align"),
        ("option", "wind"), ("option", "magnetic"), ("body/geom", "fitscale"), ("body/geom", "fluidcoef"),
        ("body/site", "mesh"), ("keyframe/key", "act"), ("keyframe/key", "ctrl"), ("keyframe/key", "mpos"),
        ("keyframe/key", "mquat"), ("keyframe/key", "plastic"), ("contact/exclude", "body1"),
        ("actuator/cylinder", "bias"),
        ("equality/connect", "body1"), ("equality/weld", "body2"), ("equality/joint", "joint1"),
        ("equality/tendon", "tendon1"), ("asset/hfield", "file"), ("asset/mesh", "file"), ("compiler", "meshdir"),
        ("compiler", "assetdir"), ("compiler", "strippath"),
    }  # fmt: skip
    targets = "geom sidesite joint jointinparent tendon site body cranklength cranksite slidersite refsite ctrllimited "
    targets += "forcelimited "
    targets += "actlimited inheritrange site1 site2 actuatorfrclimited mesh hfield fromto solreffriction solimpfriction"
    lacking = []
    for path, names in attributes.schema().items():
        for name in names:
            if attributes.state_of(path, name) == STILL or whole(path) or (path, name) in elsewhere:
                continue
            if name not in EXAMPLES.get(path, {}) and name not in targets.split():
                lacking.append((path, name))
    assert not lacking


def whole(path: str) -> bool:
    """Whether an element is refused as such."""
    return any(r.names == "*" and r.state == NAMED and attributes._covers(r, path) for r in attributes.MJCF)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES)
def test_every_attribute_changes_the_model_or_is_named(path):
    known = attributes.schema()
    assert len(base()) > 1 and not base()[2].unsupported
    silent = []
    for name, value in EXAMPLES[path].items():
        if value is None or name not in known[path]:  # other MuJoCos have other attributes
            continue
        assert attributes.state_of(path, name) in (READ, PART, NAMED), name
        if told(changed(path, name, value)) == base():
            silent.append(name)
    assert not silent


ARRAYS = [  # path, name, value of which one number at a time is changed
    ("contact/pair", "friction", "1 1 0.1 0.01 0.01"),
    ("contact/pair", "solref", "0.02 1"),
    ("contact/pair", "solimp", "0.9 0.95 0.001 0.5 2"),
    ("contact/pair", "solreffriction", "0 0"),
    ("body/geom", "friction", "1 0.005 0.0001"),
    ("body/geom", "solref", "-2500 -100"),
    ("body/geom", "solimp", "0.9 0.95 0.001 0.5 2"),
    ("body/geom", "surfacevel", "0 0 0 0 0 0"),
    ("body/joint", "solreflimit", "0.02 1"),
    ("body/joint", "solimplimit", "0.9 0.95 0.001 0.5 2"),
    ("body/joint", "solreffriction", "0.02 1"),
    ("body/joint", "solimpfriction", "0.9 0.95 0.001 0.5 2"),
    ("body/joint", "stiffness", "1 0 0"),
    ("body/joint", "damping", "1 0 0"),
    ("tendon/fixed", "springlength", "0.1 0.2"),
    ("tendon/fixed", "solreflimit", "0.02 1"),
    ("tendon/fixed", "damping", "1 0 0"),
    ("equality/connect", "solimp", "0.9 0.95 0.001 0.5 2"),
    ("equality/joint", "polycoef", "0 1 0 0 0"),
    ("equality/tendon", "polycoef", "0 1 0 0 0"),
    ("equality/weld", "solref", "0.02 1"),
    ("actuator/general", "ctrlrange", "-1 1"),
    ("actuator/general", "actrange", "-1 1"),
    ("actuator/general", "biasprm", "0.1 -2 -0.3"),
]


@pytest.mark.slow
@pytest.mark.parametrize("path, name, value", ARRAYS)
def test_every_number_of_an_attribute_acts_or_is_named(path, name, value):
    """A tendon that is tied by itself has a length of polycoef[0], and no use for the others."""
    numbers = [float(x) for x in value.split()]
    before = told(changed(path, name, value))
    if len(before) == 1:  # a MuJoCo of fewer numbers
        assert name in ("stiffness", "damping")
        return
    for k in range(1 if path == "equality/tendon" else len(numbers)):
        other = [x + 0.03 * (i == k) * (1 if abs(x) < 10 else x) for i, x in enumerate(numbers)]
        assert told(changed(path, name, " ".join(map(repr, other)))) != before, k


def test_what_is_left_over_is_said_and_what_is_default_is_not():
    assert base()[2] == LoadReport()
    for path, name, value, words in (
        ("contact/pair", "friction", "1 0.5 0.1 0.01 0.01", "friction in two directions (1 contact pairs"),
        ("contact/pair", "friction", "1 1 0.1 0.01 0.02", "friction in two directions (1 contact pairs"),
        ("contact/pair", "solimp", "0.9 0.95 0.01 0.5 2", "read in part: solimp of 1 pairs, 2 of 5 numbers"),
        ("body/joint", "solreflimit", "0.02 0.5", "read in part: solref of 1 joints, without its damping"),
        ("actuator/general", "actearly", "true", "actearly of 'u'"),
        ("option", "impratio", "10", "read in part: impratio 10, not read"),
    ):
        assert any(x.startswith(words) for x in told(changed(path, name, value))[2].inactive), words


def test_the_page_has_the_tables():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "what_acts.md").read_text()
    assert page.split("<!-- attributes -->\n")[1].split("<!--")[0].strip() == attributes.page().strip()


def test_a_keyframe_that_moves_a_mocap_body_is_named():
    text = """<mujoco><worldbody><body name="m" mocap="true" pos="1 2 3"/><body><joint/><geom size="0.1"/></body>
      </worldbody><keyframe><key name="k"{}/></keyframe></mujoco>"""
    assert pbad.load(text.format("")).topology.inactive == ()
    (said,) = pbad.load(text.format(' mpos="1 2 4"')).topology.inactive
    assert said == "read in part: mpos and mquat of keyframes, not read"
