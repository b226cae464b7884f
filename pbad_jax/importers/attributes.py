"""Every attribute of MJCF and URDF that can change a motion, and how many of its numbers are used.

What is left over of those that are read in part is named by left_over.py where it is not what the format has by
default. `docs/what_acts.md` has `page()`; a test walks MuJoCo's own schema, and asks of every attribute that changing
it changes the model or the report, or that it is one of those that move nothing.
"""

import functools
import re
from typing import NamedTuple

from pbad_jax.importers.mjcf import mujoco_module

READ, PART, NAMED, STILL = "all its numbers", "some", "named", "moves nothing"


class Row(NamedTuple):
    """Attributes of one state.

    of: the elements, as paths in the schema. names: of the attributes, * for all others. state: READ, PART (`more`
    says which numbers), NAMED (not used, and said), STILL. more: for the page.
    """

    of: str
    names: str
    state: str
    more: str = ""


POSE = "pos quat axisangle euler xyaxes zaxis"
TENDON = "tendon/spatial tendon/fixed"
DRIVES = "general motor position velocity intvelocity cylinder"
AFFINE = " ".join(f"actuator/{name}" for name in DRIVES.split())
OTHER_DRIVES = " ".join(f"actuator/{name}" for name in "orientation pid damper muscle adhesion dcmotor plugin".split())
MJCF = (
    Row("*", "name class childclass user group rgba material", STILL),
    Row("size statistic visual custom default sensor", "*", STILL),
    Row("asset/texture asset/material asset/skin deformable/skin body/camera body/light", "*", STILL),
    Row("extension deformable body/flexcomp body/plugin body/geom/plugin", "*", NAMED, "refused whole"),
    Row("asset/mesh/plugin asset/model body/attach equality/flex equality/flexstrain", "*", NAMED, "refused whole"),
    Row(OTHER_DRIVES, "*", NAMED, "refused whole"),
    Row("mujoco", "model", STILL),
    Row(
        "compiler",
        "alignfree angle assetdir autolimits balanceinertia boundinertia boundmass coordinate eulerseq fitaabb "
        "fusestatic inertiafromgeom inertiagrouprange meshdir settotalmass strippath",
        READ,
        "by MuJoCo's compiler",
    ),
    Row("compiler compiler/lengthrange", "*", STILL),
    Row("option", "gravity density viscosity wind magnetic", READ),
    Row("option", "timestep", PART, "only as the least that a solref may say, with the flag refsafe"),
    Row("option", "actuatorgroupdisable o_friction o_margin o_solimp o_solref impratio", NAMED),
    Row("option", "*", STILL, "they steer MuJoCo's solver; friction is always a circular cone"),
    Row(
        "option/flag",
        "actuation clampctrl constraint contact damper equality filterparent frictionloss gravity limit override "
        "passive refsafe spring",
        READ,
    ),
    Row("option/flag", "*", STILL),
    Row("asset/mesh", "builtin face file inertia params refpos refquat scale vertex", READ, "by MuJoCo's compiler"),
    Row("asset/mesh", "*", STILL),
    Row("asset/hfield", "file elevation ncol nrow", READ),
    Row("asset/hfield", "size", PART, "3 of 4: it is solid all the way down"),
    Row("asset/hfield", "*", STILL),
    Row("body", f"{POSE} gravcomp mocap", READ),
    Row("body", "fuse simple sleep", STILL),
    Row("body/inertial", f"{POSE} mass diaginertia fullinertia", READ),
    Row(
        "body/joint",
        "type pos axis ref range limited margin stiffness springref springdamper damping armature frictionloss "
        "actuatorfrcrange actuatorfrclimited actuatorgravcomp",
        READ,
    ),
    Row(f"body/joint {TENDON}", "springyield", NAMED),
    Row(f"body/joint {TENDON}", "solreflimit", PART, "2 of 2 in one: how soft, not how damped"),
    Row(f"body/joint {TENDON}", "solimplimit", PART, "2 of 5: how soft at first and at last"),
    Row(f"body/joint {TENDON}", "solreffriction solimpfriction", NAMED),
    Row("body/freejoint", "align", READ),
    Row(
        "body/geom",
        f"{POSE} type size fromto mesh hfield fitscale mass density shellinertia contype conaffinity condim priority "
        "friction margin gap solmix",
        READ,
    ),
    Row("body/geom contact/pair equality/connect equality/weld equality/joint equality/tendon", "solref", PART,
        "2 of 2 in one: how soft, not how damped"),
    Row("body/geom contact/pair equality/connect equality/weld equality/joint equality/tendon", "solimp", PART,
        "2 of 5: how soft at first and at last"),
    Row("body/geom", "fluidshape fluidcoef adhesion surfacevel", NAMED),
    Row("body/geom", "castshadow", STILL),
    Row("body/site", f"{POSE} type size fromto mesh", READ, "where sensors, tendons or actuators use it"),
    Row("contact/pair", "geom1 geom2 condim margin gap", READ),
    Row("contact/pair", "friction", PART, "3 of 5: the second sliding and rolling ones are named where they differ"),
    Row("contact/pair", "solreffriction adhesion", NAMED),
    Row("contact/exclude", "body1 body2", READ),
    Row(TENDON, "range limited margin stiffness springlength damping frictionloss", READ),
    Row(TENDON, "armature actuatorfrcrange actuatorfrclimited", NAMED),
    Row("tendon/spatial", "width", STILL),
    Row("tendon/spatial/site tendon/spatial/pulley tendon/fixed/joint", "site divisor joint coef", READ),
    Row("tendon/spatial/geom", "geom sidesite", NAMED),
    Row("equality/connect", "active body1 body2 anchor", READ),
    Row("equality/connect equality/weld", "site1 site2", NAMED),
    Row("equality/weld", "active body1 body2 relpose", READ),
    Row("equality/weld", "torquescale", NAMED),
    Row("equality/weld", "anchor", STILL, "of a weld that holds the pose of qpos0; others are refused"),
    Row("equality/joint equality/tendon", "active joint1 joint2 tendon1 tendon2 polycoef", READ),
    Row(AFFINE, "ctrlrange ctrllimited forcerange forcelimited actrange actlimited inheritrange joint jointinparent "
        "tendon site kp kv dampratio timeconst area diameter", READ),
    Row(AFFINE, "gear", PART, "as many of 6 as the joint has degrees of freedom, all of a site: MuJoCo's use"),
    Row(AFFINE, "gaintype biastype dyntype", READ),
    Row(AFFINE, "gainprm dynprm", PART, "1 of 10: MuJoCo's use of them"),
    Row(AFFINE, "biasprm bias", PART, "3 of 10: MuJoCo's use of them"),
    Row(AFFINE, "actearly armature body cranklength cranksite slidersite damping delay refsite", NAMED),
    Row(AFFINE, "actdim interp nsample lengthrange", STILL, "where there is no muscle, delay or plugin"),
    Row(AFFINE, "input ffrange velrange", STILL, "of other kinds of actuators"),
    Row("keyframe/key", "time qpos qvel ctrl act", READ),
    Row("keyframe/key", "mpos mquat plastic", NAMED),
)  # fmt: skip
URDF = (
    Row("link", "name", STILL),
    Row("origin", "xyz rpy", READ),
    Row("mass inertia", "value ixx ixy ixz iyy iyz izz", READ),
    Row("joint", "type", READ),
    Row("parent child axis", "link xyz", READ),
    Row("limit", "lower upper", READ, "of revolute and prismatic joints"),
    Row("limit", "effort", PART, "bounds the motors of pbad.motors, and is named"),
    Row("limit", "velocity", NAMED),
    Row("dynamics", "damping friction", READ),
    Row("mimic", "joint multiplier offset", READ),
    Row("box sphere cylinder capsule mesh", "size radius length filename scale", READ, "shapes, no masses"),
    Row("drake:collision_filter_group", "name", NAMED),
    Row("safety_controller calibration transmission gazebo and other extensions", "*", NAMED),
)


def state_of(path: str, name: str) -> str:
    """How an attribute of an MJCF element is read.

    Raises:
        KeyError: the table has nothing of it.
    """
    rows = [r for r in MJCF if name in r.names.split() and _covers(r, path)]
    rows += [r for r in MJCF if r.names == "*" and _covers(r, path)]
    if not rows:
        raise KeyError(f"attributes.py has nothing of {name!r} of {path!r}")
    return rows[0].state


def _covers(row: Row, path: str) -> bool:
    below = row.names == "*" and any(path.startswith(f"{of}/") for of in row.of.split())
    return row.of == "*" or path in row.of.split() or below


@functools.cache
def schema() -> dict[str, tuple[str, ...]]:
    """The attributes of every MJCF element that this MuJoCo knows, by its path below <mujoco>."""
    found: dict[str, list[str]] = {}
    path: list[str] = []
    for line in mujoco_module().mj_printSchema(False, False).splitlines():
        element = re.match(r"( *)(\S+) \(\S+\)(.*)", line)
        if element:
            path = path[: len(element[1]) // 3] + [element[2].replace("(world)", "")]
            line = element[3]
        found.setdefault("/".join(path[1:]) or path[0], []).extend(line.replace("|", " ").split())
    return {k: tuple(names) for k, names in found.items()}


def page() -> str:
    """The tables of docs/what_acts.md."""
    out = []
    for title, rows in (("MJCF", MJCF), ("URDF", URDF)):
        out += [f"| {title} | attributes | used |", "|---|---|---|"]
        for r in rows:
            if r.state != STILL:
                used = r.more if r.state == PART else f"{r.state}{', ' * bool(r.more)}{r.more}"
                names = "everything" if r.names == "*" else r.names
                out.append(f"| {r.of} | {names} | {used} |")
        out.append("")
    return "\n".join(out[:-1]) + "\n"
