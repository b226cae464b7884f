"""Masses and inertias of a URDF's links, as the file has them.

MuJoCo turns inertias into principal axes and knows bounds in kg and kg m², which a small robot falls below. So the
model gets its numbers from here, and MuJoCo a copy. No bound here is absolute: what is missing is filled by a share of
the model's largest.
"""

from typing import NamedTuple

import numpy as np

from pbad_jax.errors import ModelFileError
from pbad_jax.importers.mjcf import Inertial, Prepared
from pbad_jax.importers.nodes import Node, cut
from pbad_jax.importers.urdf_shapes import pose
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.inertia import inertia_from_central_moment

SHARE = 1e-9  # of the largest mass and inertia, which links get that move and have none


class Scale(NamedTuple):
    """kg and kg m²."""

    mass: float
    inertia: float


def inertials(
    links: dict[str, Node], joints: dict[str, Node], above: dict[str, tuple[str, str]], out: Prepared
) -> dict[str, Inertial]:
    """Of every link. Links without mass or inertia that a joint moves get a small one, and are named."""
    own = {name: _inertial(link, out) for name, link in links.items()}
    bare = {name for name, x in own.items() if not x.mass}
    scale = _scale(own, [*joints.values()])
    moved = [name for name, (_, joint) in above.items() if joints[joint].attrib.get("type") != "fixed"]
    for name in moved:
        x = own[name]
        if not x.inertia.any():
            mass, inertia = x.mass or SHARE * scale.mass, SHARE * scale.inertia * np.eye(3)
            own[name] = Inertial(mass, x.com, inertia)
    _note_missing(links, above, moved, own, bare, scale, out)
    return own


def _scale(own: dict[str, Inertial], joints: list[Node]) -> Scale:
    """The largest mass; the largest inertia of a link about its frame, or about the joint that is farthest off."""
    mass = max((x.mass for x in own.values()), default=0.0)
    places = [*(x.com for x in own.values()), *map(_place, joints)]
    reach = max(float(np.linalg.norm(p)) for p in places)
    inertia = max([mass * reach**2, *(float(np.trace(x.inertia)) for x in own.values())])
    return Scale(mass or 1.0, inertia or mass or 1.0)


def _place(joint: Node) -> np.ndarray:
    return np.array(pose(joint.first("origin"))[0])


def _inertial(link: Node, out: Prepared) -> Inertial:
    """The checked <inertial> in the link's axes; zeros for links without mass."""
    # an <inertial> must say its mass; its inertia may be missing, as of a point
    node, name = link.first("inertial"), link.attrib["name"]
    none = Inertial(0.0, np.zeros(3), np.zeros((3, 3)))
    if node is None:
        return none
    mass_node, inertia_node = node.first("mass"), node.first("inertia")
    if mass_node is None:
        raise ModelFileError(f"{node.where}: <inertial> of link {cut(name)!r} has no <mass value=.../>")
    mass = mass_node.number("value")
    if mass < 0:
        raise ModelFileError(f"{mass_node.where}: mass of link {cut(name)!r} is {mass:g} kg; it must be ≥ 0")

    # a link without mass has no inertia either
    position, turn = pose(node.first("origin"))
    I = np.zeros((3, 3)) if inertia_node is None else _physical(inertia_node, name, turn, out)
    if not mass:
        if I.any():
            out.notes.append(f"link {cut(name)!r}: its mass is 0 kg, left out with its inertia")
        return none
    return Inertial(mass, np.array(position), I)


def _physical(node: Node, name: str, turn: np.ndarray, out: Prepared) -> np.ndarray:
    """The inertia (3,3) in the link's axes, moved to the nearest that obeys A + B ≥ C where it does not.

    It is turned here, by the quaternion `turn`, because some versions of MuJoCo forget the rpy of an inertial.
    """
    # the matrix of the file, turned into the link's axes
    xx, xy, xz, yy, yz, zz = (node.number(k, 0.0) for k in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
    R = rotation_numpy(turn)
    I = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    size = np.abs(I).max()
    if size > 1e100:
        raise ModelFileError(f"{node.where}: inertia of link {cut(name)!r} is {size:g} kg m²; that overflows")
    I = I if np.array_equal(R, np.eye(3)) else R @ I @ R.T

    # A + B ≥ C: this matrix has no negative eigenvalue; such ones are raised, and named beyond rounding
    moment = 0.5 * np.trace(I) * np.eye(3) - I  # ∫ρ r rᵀ, positive semidefinite for a real body
    values, vectors = np.linalg.eigh(moment)
    floor = max(1e-8 * values[2], 1e-11 * size)
    if values[0] >= floor:
        return I
    if values[0] < -1e-6 * size:  # smaller ones are rounding
        kept = "is not positive definite" if np.linalg.eigvalsh(I)[0] <= 0 else "breaks A + B ≥ C"
        out.notes.append(f"link {cut(name)!r}: its inertia {kept} (by {-2 * values[0]:.3g} kg m²) and was projected")
    return inertia_from_central_moment(vectors @ np.diag(np.maximum(values, floor)) @ vectors.T)


def _note_missing(links, above, moved: list[str], own: dict[str, Inertial], bare: set[str], scale: Scale, out) -> None:
    """Name the joints that move nothing but placeholders, whose motion means little; the links that touch without
    having any mass, which may have been forgotten; and all others that were given a mass or an inertia.
    """
    # from the leaves up: how many links with a mass each one carries, itself included
    carried = {name: float(name not in bare) for name in links}
    for link, (parent, _) in reversed(above.items()):
        carried[parent] += carried[link]

    # joints that move no mass, links whose mass may be forgotten, and others that got a small one
    given = f"{SHARE * scale.mass:.2g} kg"
    others, points = [], []
    for name in moved:
        if not carried[name]:
            out.notes.append(
                f"joint {cut(above[name][1])!r} moves no mass; each of its links was given {given}. Add an <inertial>"
            )
        elif links[name].first("inertial") is None and links[name].first("collision") is not None:
            out.notes.append(f"link {cut(name)!r} has a <collision> and no <inertial>: it weighs {given} by itself")
        elif name in bare:
            others.append(cut(name))
        elif np.array_equal(own[name].inertia, SHARE * scale.inertia * np.eye(3)):
            points.append(cut(name))

    # of the last two kinds, one line each
    for who, what in ((others, f"no mass: given {given}"), (points, "no inertia: given")):
        if who:
            also = "" if who is points else " and"
            names = ", ".join(map(repr, who[:6])) + ", ..." * (len(who) > 6)
            out.notes.append(f"links that move and have {what}{also} {SHARE * scale.inertia:.2g} kg m² each: {names}")


def written(x: Inertial, where: tuple[str, int]) -> list[Node]:
    """The <inertial> for MuJoCo, or none."""
    if not x.mass:
        return []
    I = x.inertia
    entries = {"ixx": I[0, 0], "ixy": I[0, 1], "ixz": I[0, 2], "iyy": I[1, 1], "iyz": I[1, 2], "izz": I[2, 2]}
    children = [
        Node("origin", {"xyz": " ".join(repr(float(p)) for p in x.com)}, *where),
        Node("mass", {"value": repr(float(x.mass))}, *where),
        Node("inertia", {k: repr(float(v)) for k, v in entries.items()}, *where),
    ]
    return [Node("inertial", {}, *where, children)]
