"""What becomes of MuJoCo's and URDF's features: one table, for the words of the loader's reports and for the docs.

A feature acts, or it is carried (the model loads, and says so in `topology.inactive`), or a file with it is refused,
unless `unsupported="warn"` leaves it out. `docs/what_acts.md` has `page()`, and a test compares them.
"""

from typing import NamedTuple

ACTS, CARRIED, REFUSED = "acts", "carried", "refused"
STATES = (ACTS, CARRIED, REFUSED)


class Feature(NamedTuple):
    """One entry.

    area: of the table. state: one of STATES. words: what reports begin with, where they name it. more: on the page,
    in brackets after the words.
    """

    area: str
    state: str
    words: str
    more: str = ""


FEATURES = (
    Feature("bodies", ACTS, "inertia, armature, gravity, gravity compensation"),
    Feature("bodies", ACTS, "mocap bodies that nothing touches", "they stand still"),
    Feature("bodies", REFUSED, "mocap body", "others touch it"),
    Feature(
        "bodies",
        REFUSED,
        "gravity compensation",
        "through joints with a force range, or partly through joints without an actuator",
    ),
    Feature(
        "bodies",
        CARRIED,
        "gravity compensation",
        "none above 0, or through joints without an actuator: MuJoCo has none",
    ),
    Feature("bodies", REFUSED, "flex"),
    Feature("joints", ACTS, "hinge, slide, ball, free, several on a body"),
    Feature("joints", ACTS, "springs, damping, dry friction, limits of all of them"),
    Feature("joints", ACTS, "polynomial springs and dampers", "springs of hinges and slides"),
    Feature("joints", REFUSED, "polynomial stiffness", "balls and free joints"),
    Feature("joints", REFUSED, "plasticity"),
    Feature("joints", REFUSED, "damping", "below 0, of tendons too"),
    Feature("joints", REFUSED, "friction", "below 0, of tendons too"),
    Feature("joints", REFUSED, "stiffness", "below 0, of tendons too"),
    Feature("joints", REFUSED, "armature", "below 0"),
    Feature("joints", CARRIED, "effort limits", "URDF"),
    Feature("joints", CARRIED, "velocity limits", "URDF"),
    Feature("actuators", ACTS, "motors, servos, affine actuators with ranges on joints, tendons, sites"),
    Feature("actuators", ACTS, "activations", "first-order filters, integrators"),
    Feature("actuators", REFUSED, "transmission", "through bodies, cranks, sites with a reference, tendons that wrap"),
    Feature("actuators", REFUSED, "activation dynamics", "muscles, motors, user"),
    Feature("actuators", REFUSED, "gain type", "affine, muscle, motor, pid, user"),
    Feature("actuators", REFUSED, "bias type", "muscle, motor, user"),
    Feature("actuators", REFUSED, "several controls or outputs"),
    Feature("actuators", REFUSED, "an actuator's own", "delay, damping or armature"),
    Feature("actuators", REFUSED, "actuatorfrcrange", "a joint that several actuators share, or tendons or sites pull"),
    Feature("actuators", REFUSED, "actuation switched off"),
    Feature("actuators", CARRIED, "actearly"),
    Feature("tendons", ACTS, "fixed tendons", "springs and dampers, polynomial too, dry friction, limits, actuators"),
    Feature("tendons", ACTS, "spatial tendons", "the same, straight between sites, over pulleys"),
    Feature("tendons", REFUSED, "tendon", "it wraps, has armature, a force range, springs that yield"),
    Feature("contact", ACTS, "spheres, capsules, boxes, cylinders, ellipsoids, hulls of meshes with one another"),
    Feature(
        "contact", ACTS, "the same with planes, spheres, capsules, cylinders, boxes and height fields of the world"
    ),
    Feature("contact", ACTS, "the same with all shapes of bodies that stand still"),
    Feature("contact", ACTS, "masks, exclusions, pairs, margins, friction, torsional and rolling too"),
    Feature("contact", REFUSED, "adhesion"),
    Feature("contact", REFUSED, "moving surfaces", "surfacevel"),
    Feature("contact", CARRIED, "friction in two directions", "the second numbers of `<pair>`, where they differ"),
    Feature("contact", CARRIED, "contact override", "o_solref and the like"),
    Feature("contact", CARRIED, "contact", "URDF files, which have no ground"),
    Feature(
        "contact", CARRIED, "contact filters", "Drake's groups in URDF files, whose bodies do not touch one another"
    ),
    Feature("contact", CARRIED, "contact with the", "other shapes of the world"),
    Feature("contact", CARRIED, "contact between bodies", "other shapes, or `body_contact=False`"),
    Feature("contact", CARRIED, "contact pairs", "other shapes, or they cannot meet"),
    Feature(
        "equality", ACTS, "connections and welds of bodies, couplings of joints, of fixed tendons, of spatial tendons"
    ),
    Feature("equality", ACTS, "ties to mocap bodies", "an `Anchor`; its `target` is a leaf that a program can move"),
    Feature("equality", CARRIED, "equality constraints that start inactive"),
    Feature(
        "equality",
        REFUSED,
        "equality",
        "sites, flexes, tendons that wrap, a fixed tendon and a spatial one, welds in another pose than at qpos0",
    ),
    Feature("fluid", ACTS, "inertia boxes"),
    Feature("fluid", REFUSED, "fluid by ellipsoids"),
    Feature("sensors", ACTS, "sites, keyframes, sensors", "[robots.md](robots.md)"),
    Feature("sensors", CARRIED, "sensors that are not read", "range finders, cameras, limits, distances, user"),
    Feature("files", ACTS, "includes, defaults, frames, composites, replicates"),
    Feature("files", CARRIED, "URDF extensions"),
    Feature("files", CARRIED, "read in part", "attributes of which numbers are left over, see below"),
    Feature("files", REFUSED, "plugin"),
    Feature("files", REFUSED, "element", "an unknown one"),
    Feature("files", REFUSED, "mimic", "joints that are neither hinges nor slides"),
)
_WORDS = {(f.state, f.words) for f in FEATURES}


def refused(words: str, detail: str = "") -> str:
    """What a report says of a feature that is refused; a KeyError where the table has none of these words."""
    return _said(REFUSED, words, detail)


def idle(words: str, detail: str = "") -> str:
    """The same of one that is carried."""
    return _said(CARRIED, words, detail)


def _said(state: str, words: str, detail: str) -> str:
    if (state, words) not in _WORDS:
        raise KeyError(f"features.py has no {words!r} that is {state}")
    return words + detail


def page() -> str:
    """The table of docs/what_acts.md: an area a row, a state a column."""
    lines = ["| | acts | carried, in `model.topology.inactive` | refused by name |", "|---|---|---|---|"]
    for area in dict.fromkeys(f.area for f in FEATURES):
        cells = []
        for state in STATES:
            own = [f for f in FEATURES if (f.area, f.state) == (area, state)]
            cells.append("; ".join(f"{f.words} ({f.more})" if f.more else f.words for f in own))
        lines.append(f"| {area} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
