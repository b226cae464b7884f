"""The links, degrees of freedom and shapes of a mechanism, row by row, from the descriptions of its bodies; numpy."""

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np

from pbad_jax.builders.descriptions import GEOM_TYPES, IDENTITY, Body, Geom, Joint
from pbad_jax.checks import above_zero, all_of, array, interval, number, vector
from pbad_jax.errors import ModelError
from pbad_jax.math import rotations
from pbad_jax.model import inertia, joints
from pbad_jax.model.joints import JOINTS, JointInfo
from pbad_jax.model.model import Mesh


class BodyRow(NamedTuple):
    """What the user named, its parent (-1 is the world), and the link that carries its frame."""

    name: str
    parent: int
    link: int


class LinkRow(NamedTuple):
    """A link and the primitive joint that it moves by."""

    parent: int  # -1 is the world
    type: str
    q: int  # first index in q, -1 where it is fixed
    v: int
    body: str
    placement: np.ndarray  # (3,4)
    axis: np.ndarray  # (3,)
    anchor: np.ndarray  # (3,) m
    moment: np.ndarray  # (4,4)


class DofRow(NamedTuple):
    """What one degree of freedom feels, SI units."""

    stiffness: float
    damping: float
    armature: float
    friction_loss: float
    range: tuple[float, float]
    limit_time_constant: float
    limit_width: float
    limit_damping: float
    stick_speed: float


class GeomRow(NamedTuple):
    """A shape on a body, -1 the world; see Geom."""

    type: str
    body: int
    mesh: Mesh | None
    size: np.ndarray  # (3,) m
    position: np.ndarray  # (3,) m
    quaternion: np.ndarray  # (4,)
    rgba: np.ndarray  # (4,)
    friction: np.ndarray  # (3,)
    touches: bool


class Mount(NamedTuple):
    """Where the next link is put: a pose (3,4) in the frame of a link, -1 the world."""

    link: int
    pose: np.ndarray


class Draft:
    """Rows that grow while the bodies are walked; numpy only."""

    def __init__(self):
        self.bodies: list[BodyRow] = []
        self.links: list[LinkRow] = []
        self.dofs: list[DofRow] = []
        self.geoms: list[GeomRow] = []
        self.joints: list[JointInfo] = []
        self.q0: list[float] = []
        self.spring_reference: list[float] = []  # in the layout of q; NaN: as q0


def add_body(draft: Draft, body: Body, parent: int, fix_inertia: str) -> None:
    """Append the links of one body: one a primitive joint, the last with the mass."""
    where = f"body {body.name!r}"
    M = _body_moment(body, where, fix_inertia)
    mount = Mount(-1 if parent < 0 else draft.bodies[parent].link, _pose(body.position, body.quaternion, where))
    own = all_of(body.joints, Joint, f"joints of {where}")
    if not own:
        mount = _add_link(draft, body, joints.FIXED, mount, np.zeros(3), np.zeros(3))
    for k, joint in enumerate(own):
        label = joint.name or (f"{body.name}_joint{k}" if len(own) > 1 else f"{body.name}_joint")
        _check(joint, f"joint {label!r} of {where}", parent, len(own))
        mount = _add_joint(draft, body, dataclasses.replace(joint, name=label), mount)
    draft.links[mount.link] = draft.links[mount.link]._replace(moment=M)
    draft.bodies.append(BodyRow(body.name, parent, mount.link))
    for geom in all_of(body.geoms, Geom, f"geoms of {where}"):
        add_geom(draft, len(draft.bodies) - 1, geom, where)


def _check(joint: Joint, where: str, parent: int, count: int) -> None:
    """One of `count` joints of a body: its type, and what only some types have."""
    if joint.type not in JOINTS:
        raise ModelError(f"{where}: type {joint.type!r} is not one of {', '.join(JOINTS)}")
    if joint.type == "free" and (parent >= 0 or count > 1):
        raise ModelError(
            f"{where}: a free joint must be the only joint of a body whose parent is the world; this one has "
            f"{f'parent {parent}' if parent >= 0 else f'{count} joints'}. Use a ball joint, or move the body."
        )
    reference = number(joint.reference, f"reference of {where}")
    if reference and joint.type not in ("hinge", "slide"):
        raise ModelError(
            f"reference of {where} is {reference:g}; only a hinge or a slide has one. "
            "Change the body's position or quaternion instead."
        )


def _add_joint(draft: Draft, body: Body, joint: Joint, mount: Mount) -> Mount:
    """Append one joint of a body, link by link from `mount` on; where the next one is mounted."""
    # what the joint turns about, and what each of its degrees of freedom feels
    where = f"joint {joint.name!r} of body {body.name!r}"
    axes, row, reference = _axes(joint, where), _dof_row(joint, where), float(joint.reference)
    anchor = vector(joint.anchor, 3, f"anchor of {where}", ModelError)

    # where its first link is put, and its first entries in q and v
    q, v, start = len(draft.q0), len(draft.dofs), mount.pose[:, 3]
    if joint.type == "free":  # its q is the pose itself
        mount, anchor = Mount(mount.link, np.eye(4)[:3]), np.zeros(3)

    # a link for each primitive; with q at the reference the body is at its placement
    for kind, axis in zip(JOINTS[joint.type].primitives, axes):
        if reference:
            mount = Mount(mount.link, undo(mount.pose, kind, axis, anchor, reference))
        mount = _add_link(draft, body, kind, mount, axis, anchor)
        dofs = joints.PRIMITIVES[kind]
        draft.q0.extend(IDENTITY if kind == joints.BALL else [reference] * dofs)
        draft.dofs.extend([row] * dofs)

    # a free joint begins at the pose that the body is given
    if joint.type == "free":
        draft.q0[q:] = [*start.tolist(), *_unit_quaternion(body.quaternion, where).tolist()]

    # the joint as users know it: its entries in q and v, and where its spring rests
    nq, nv = len(draft.q0) - q, len(draft.dofs) - v
    draft.spring_reference.extend(_rest(joint, nq, where))
    effort = None if joint.effort is None else above_zero(joint.effort, f"effort of {where}")
    draft.joints.append(JointInfo(joint.name, joint.type, len(draft.bodies), q, nq, v, nv, effort))
    return mount


def _add_link(draft: Draft, body: Body, kind: str, mount: Mount, axis, anchor) -> Mount:
    q, v = (-1, -1) if kind == joints.FIXED else (len(draft.q0), len(draft.dofs))
    draft.links.append(LinkRow(mount.link, kind, q, v, body.name, mount.pose, axis, anchor, np.zeros((4, 4))))
    return Mount(len(draft.links) - 1, np.eye(4)[:3])


def _dof_row(joint: Joint, where: str) -> DofRow:
    """What every degree of freedom of the joint feels, checked."""
    feels = {}
    for field in ("stiffness", "damping", "armature", "friction_loss", "limit_damping"):
        feels[field] = value = number(getattr(joint, field), f"{field} of {where}")
        if value < 0:
            raise ModelError(f"{field} of {where} is {value:g}; it must be ≥ 0, or energy is created. Change its sign.")
    low, high = interval(joint.range, f"range of {where}")
    for field in ("limit_time_constant", "limit_width", "stick_speed"):
        feels[field] = above_zero(getattr(joint, field), f"{field} of {where}")
    if joint.type == "ball" and joint.range is not None and not high > 0:
        raise ModelError(f"range of {where} is ({low:g}, {high:g}); a ball turns up to `high`, which must be > 0")
    return DofRow(range=(low, high), **feels)


def _rest(joint: Joint, nq: int, where: str) -> list[float]:
    """Where the spring is at rest, nq numbers; NaN as q0."""
    if joint.spring_reference is None:
        return [np.nan] * nq
    what = f"spring_reference of {where}"
    rest = np.atleast_1d(array(joint.spring_reference, what, f"{nq} numbers"))
    if rest.shape != (nq,):
        raise ModelError(f"{what} has shape {rest.shape}; its q has {nq} entries")
    if not np.all(np.isfinite(rest)):
        raise ModelError(f"{what} is {rest.tolist()}; every entry must be finite")
    return rest.tolist()


def add_geom(draft: Draft, body: int, geom: Geom, where: str) -> None:
    """Append one checked shape of a body, or of the world (-1)."""
    # a known type, and a mesh exactly where the type is mesh
    where = f"geom {geom.type!r} on {where}"
    if geom.type not in GEOM_TYPES:
        raise ModelError(f"{where}: type must be one of {', '.join(GEOM_TYPES)}")
    if (geom.type == "mesh") != (geom.mesh is not None):
        raise ModelError(f"{where}: a mesh belongs to type 'mesh', and only there")

    # up to three lengths; those that the type does not have are zero
    size = np.zeros(3)
    given = np.atleast_1d(array(geom.size, f"size of {where}", "up to three numbers"))
    if given.size > 3 or not np.all(given >= 0):
        raise ModelError(f"size of {where} is {given.tolist()}; it needs up to three numbers ≥ 0, m")
    size[: given.size] = given

    # pose, colour and friction, checked as they are put in
    draft.geoms.append(
        GeomRow(
            geom.type, body, geom.mesh, size, vector(geom.position, 3, f"position of {where}", ModelError),
            _unit_quaternion(geom.quaternion, where), vector(geom.rgba, 4, f"rgba of {where}", ModelError),
            vector(geom.friction, 3, f"friction of {where}", ModelError), bool(geom.touches),
        )
    )  # fmt: skip


def _body_moment(body: Body, where: str, fix_inertia: str) -> np.ndarray:
    """The checked second moment (4,4) of one body."""
    # mass and centre of mass
    mass = number(body.mass, f"mass of {where}")
    if mass < 0:
        raise ModelError(f"mass of {where} is {mass:g} kg; it must be ≥ 0")
    com = vector(body.com, 3, f"com of {where}", ModelError)

    # inertia: nine finite numbers, symmetric but for rounding
    I = array(body.inertia, f"inertia of {where}", "(3, 3) numbers")
    if I.shape != (3, 3):
        raise ModelError(
            f"inertia of {where} has shape {I.shape}, wanted (3, 3): [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]] "
            "about the centre of mass, kg m²"
        )
    if not np.all(np.isfinite(I)):
        raise ModelError(f"inertia of {where} holds NaN or inf: {I.tolist()}")
    scale = np.abs(I).max()
    skew = np.abs(I - I.T)
    if skew.max() > 1e-9 * max(scale, 1e-300):
        a, b = np.unravel_index(skew.argmax(), (3, 3))
        raise ModelError(
            f"inertia of {where} is not symmetric: entry [{a},{b}] = {I[a, b]:.9g} but [{b},{a}] = {I[b, a]:.9g}"
        )

    # principal moments A ≤ B ≤ C: not negative, and A + B ≥ C as for every distribution of mass
    moments = np.linalg.eigvalsh(I)
    if moments[0] < -1e-9 * scale:
        raise ModelError(f"inertia of {where} has negative principal moments {moments.tolist()} kg m²; all must be ≥ 0")
    gap = moments[2] - moments[0] - moments[1]
    if gap > 1e-9 * scale:
        if fix_inertia == "error":
            raise ModelError(
                f"inertia of {where}: principal moments {moments.tolist()} break A + B ≥ C by {gap:.3g} kg m², so no "
                "mass distribution has it and the energy has no lower bound. Correct it, or pass fix_inertia='project'."
            )

        # projected: the central second moment without its negative eigenvalues
        values, vectors = np.linalg.eigh(inertia.central_moment(I))
        I = inertia.inertia_from_central_moment(vectors @ np.diag(np.maximum(values, 0)) @ vectors.T)
        warnings.warn(f"inertia of {where} broke A + B ≥ C by {gap:.3g} kg m² and was projected", stacklevel=5)
    return inertia.second_moment(mass, com, I)


def _axes(joint: Joint, where: str) -> list[np.ndarray]:
    """One unit axis for each primitive joint (zero where it has none)."""
    # types without axes of their own, or with one for all their primitives
    kind, zero = JOINTS[joint.type], np.zeros(3)
    if kind.axes == "none":
        return [zero]
    if kind.axes == "world":
        return [*np.eye(3), zero]
    if kind.axes == "one":
        axis = _unit(joint.axis if joint.axis is not None else (0, 0, 1), f"axis of {where}")
        return [axis] * len(kind.primitives)

    # two axes, by default x and y
    given = ((1, 0, 0), (0, 1, 0)) if joint.axis is None else joint.axis
    given = array(given, f"axis of {where}", "two axes, (2, 3)")
    if given.shape != (2, 3):
        raise ModelError(f"axis of {where} has shape {given.shape}; a {joint.type} joint wants two axes, (2, 3)")

    # two directions, so not parallel
    a, b = _unit(given[0], f"axis of {where}"), _unit(given[1], f"axis of {where}")
    angle = np.degrees(np.arccos(np.clip(abs(a @ b), 0, 1)))
    if angle < 1e-3:
        raise ModelError(
            f"axes of {where} are parallel (angle {angle:.2g}°); a {joint.type} joint needs two directions"
        )

    # a planar joint slides along both and turns about their normal
    if kind.axes == "two":
        return [a, b]
    return [a, b, np.cross(a, b) / np.linalg.norm(np.cross(a, b))]


def undo(pose: np.ndarray, kind: str, axis, anchor, reference: float) -> np.ndarray:
    """Pose J(−reference), so that q = reference leaves the body at its placement. (3,4)"""
    if kind == joints.SLIDE:
        return np.c_[pose[:, :3], pose[:, 3] - reference * pose[:, :3] @ axis]
    half = -0.5 * reference
    return turned(pose, np.r_[np.cos(half), np.sin(half) * axis], anchor)


def turned(pose: np.ndarray, quaternion: np.ndarray, anchor: np.ndarray) -> np.ndarray:
    """The pose (3,4) after a rotation about a point of its own."""
    R = rotations.rotation_numpy(quaternion)
    return np.c_[pose[:, :3] @ R, pose[:, 3] + pose[:, :3] @ (anchor - R @ anchor)]


def _pose(position, quaternion, where: str) -> np.ndarray:
    R = rotations.rotation_numpy(_unit_quaternion(quaternion, where))
    return np.hstack([R, vector(position, 3, f"position of {where}", ModelError)[:, None]])


def _unit_quaternion(p, where: str) -> np.ndarray:
    p = vector(p, 4, f"quaternion of {where}", ModelError)
    norm = np.linalg.norm(p)
    if norm < 1e-12:
        raise ModelError(f"quaternion of {where} is zero; it must be a rotation, identity = (1, 0, 0, 0)")
    return p / norm


def _unit(a, where: str) -> np.ndarray:
    a = vector(a, 3, where, ModelError)
    norm = np.linalg.norm(a)
    if norm < 1e-12:
        raise ModelError(f"{where} is the zero vector; it must have a direction")
    if abs(norm - 1) > 1e-3:
        warnings.warn(f"{where} has length {norm:.6g} and was normalised", stacklevel=7)
    return a / norm
