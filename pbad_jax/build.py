"""`build_model`: from plain Python descriptions to a checked `Model`.

Everything a user or a file can get wrong about a mechanism is caught here, once, before anything is traced:
the file importers come through this door too.
"""

import dataclasses
import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from pbad_jax import forces as force_laws
from pbad_jax import inertia, joints
from pbad_jax.actuators import Actuator, actuation, check_actuator
from pbad_jax.checks import above_zero, array, interval, number, unique, vector
from pbad_jax.errors import ModelError, OptionError
from pbad_jax.model import JOINT_PRIMITIVES, Geometry, JointInfo, Mesh, Model, Topology

GEOM_TYPES = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
IDENTITY = (1.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Joint:
    """One joint of a body.

    Attributes:
        type: fixed, hinge, slide, universal, ball, planar or free.
        axis: hinge, slide: (3,). universal: (2,3), the outer axis first, default x then y. planar: (2,3), the
            two directions of sliding, default x and y; it turns about their normal. In the body's frame.
        anchor: (3,) m, the point of the body that the rotation holds still.
        reference: rad or m; the value of q at which the body sits at its `position` and `quaternion`.
        damping, stiffness, armature, friction_loss: one number for all its degrees of freedom, SI units. Dry friction
            is smooth below stick_speed.
        spring_reference: the q at which the spring is at rest; None = the configuration `q0`.
        range: (low, high) rad or m, None = free. Hinges, slides and universals; a ball's turn may reach `high` ≥ 0.
        limit_time_constant: s; the soft end of a range has the stiffness inertia/limit_time_constant², the inertia
            that the joint feels at q0.
        stick_speed: rad/s or m/s.
    """

    type: str
    axis: Any = None
    name: str = ""
    anchor: Any = (0.0, 0.0, 0.0)
    reference: float = 0.0
    damping: float = 0.0
    stiffness: float = 0.0
    spring_reference: Any = None
    armature: float = 0.0
    friction_loss: float = 0.0
    range: Any = None
    limit_time_constant: float = 0.02
    stick_speed: float = 1e-2


@dataclasses.dataclass(frozen=True)
class Geom:
    """A shape fixed to a body; sizes as in `model.Geometry`, pose in the body's frame."""

    type: str
    size: Any = (0.0, 0.0, 0.0)
    position: Any = (0.0, 0.0, 0.0)
    quaternion: Any = IDENTITY
    rgba: Any = (0.62, 0.66, 0.72, 1.0)
    friction: Any = (1.0, 0.005, 0.0001)
    mesh: Mesh | None = None
    touches: bool = True  # whether contact takes it, or it is only drawn


@dataclasses.dataclass(frozen=True)
class Body:
    """One rigid body.

    Attributes:
        name: unique.
        mass: kg. Zero is allowed where something massive hangs below.
        com: (3,) m, centre of mass in the body's frame.
        inertia: (3,3) kg m² about the centre of mass, in the body's axes.
        parent: name or index of an earlier body; None = the world.
        position, quaternion: the body's frame in its parent's at q = reference; (3,) m and (w,x,y,z).
        joints: what lets it move against its parent, outermost first; none = welded.
        geoms: its shapes.
    """

    name: str
    mass: float = 0.0
    com: Any = (0.0, 0.0, 0.0)
    inertia: Any = ((0.0, 0.0, 0.0),) * 3
    parent: str | int | None = None
    position: Any = (0.0, 0.0, 0.0)
    quaternion: Any = IDENTITY
    joints: Sequence[Joint] = ()
    geoms: Sequence[Geom] = ()


def build_model(
    bodies: Sequence[Body],
    *,
    actuators: Sequence[Actuator] = (),
    gravity: Any = (0.0, 0.0, -9.81),
    q0: Any = None,
    name: str = "model",
    world_geoms: Sequence[Geom] = (),
    fix_inertia: str = "error",
    dtype: Any = None,
    inactive: Sequence[str] = (),
) -> Model:
    """A `Model` from bodies in parent-first order, every input checked.

    Args:
        bodies: parents before children; several roots are fine.
        actuators: they define the order of a control.
        gravity: (3,) m/s².
        q0: (nq,) reference configuration; default every joint at its `reference`.
        name: for messages and files.
        world_geoms: shapes that do not move.
        fix_inertia: "error" refuses an inertia that breaks A + B ≥ C; "project" clamps it and warns.
        dtype: float32 or float64; default float64 where JAX has it enabled, else float32.
        inactive: features that the model carries without a force (importers fill this).

    Returns:
        The model with its own forces: gravity, and springs, dampers, dry friction, limits, actuators where there are
        any.

    Raises:
        ModelError: naming the body or joint, the value, the rule and the fix.
        OptionError: for gravity, dtype or fix_inertia.
    """
    dtype = _dtype(dtype)
    gravity = vector(gravity, 3, "gravity", OptionError)
    if fix_inertia not in ("error", "project"):
        raise OptionError(f"fix_inertia={fix_inertia!r}: choose 'error' or 'project'")
    bodies = list(bodies)
    if not bodies:
        raise ModelError("the model has no bodies: give build_model at least one Body")
    parents = _parents(bodies)
    draft = _Draft()
    for index, (body, parent) in enumerate(zip(bodies, parents)):
        _add_body(draft, index, body, parent, fix_inertia)
    unique([j.name for j in draft.joints], "joint")
    drives = [check_actuator(a, draft.joints) for a in actuators]
    unique([d.name for d in drives], "actuator")
    for geom in world_geoms:
        _add_geom(draft, -1, geom, "the world")

    topology = Topology(
        name=name,
        body_names=tuple(b.name for b in bodies),
        body_parent=tuple(parents),
        body_link=tuple(draft.body_link),
        link_parent=tuple(draft.link_parent),
        link_type=tuple(draft.link_type),
        link_q=tuple(draft.link_q),
        link_v=tuple(draft.link_v),
        joints=tuple(draft.joints),
        actuator_names=tuple(d.name for d in drives),
        geom_types=tuple(g[0] for g in draft.geoms),
        geom_bodies=tuple(g[1] for g in draft.geoms),
        geom_meshes=tuple(g[2] for g in draft.geoms),
        geom_touches=tuple(g[8] for g in draft.geoms),
        inactive=tuple(inactive),
    )
    default_q0 = np.array(draft.q0)
    q_ref = default_q0 if q0 is None else vector(q0, topology.nq, "q0", ModelError)
    _check_joint_inertia(draft, topology)
    feels = [np.diag(block) for block, _ in _joint_inertia(draft, topology, q_ref)]

    def leaf(x, *shape):
        return jnp.asarray(np.asarray(x, float).reshape(shape), dtype)

    nv, n, g = topology.nv, topology.n_links, len(draft.geoms)
    model_forces: list[Any] = [force_laws.Gravity()]
    if any(draft.stiffness):
        rest = np.where(np.isnan(draft.spring_reference), q_ref, draft.spring_reference)
        model_forces.append(force_laws.JointSpring(leaf(draft.stiffness, nv), leaf(rest, topology.nq)))
    if any(draft.damping):
        model_forces.append(force_laws.JointDamping(leaf(draft.damping, nv)))
    if any(draft.friction_loss):
        model_forces.append(force_laws.JointFriction(leaf(draft.friction_loss, nv), leaf(draft.stick_speed, nv)))
    if np.isfinite(draft.range).any():
        model_forces.append(_limits(draft, topology, np.concatenate(feels), leaf))
    if drives:
        model_forces.extend(actuation(drives, leaf))
    return Model(
        topology=topology,
        placement=leaf(draft.placement, n, 3, 4),
        axis=leaf(draft.axis, n, 3),
        anchor=leaf(draft.anchor, n, 3),
        second_moment=leaf(draft.moment, n, 4, 4),
        gravity=leaf(gravity, 3),
        armature=leaf(draft.armature, nv),
        joint_range=leaf(draft.range, nv, 2),
        friction_loss=leaf(draft.friction_loss, nv),
        q0=leaf(q_ref, topology.nq),
        geometry=Geometry(
            size=leaf([x[3] for x in draft.geoms], g, 3),
            position=leaf([x[4] for x in draft.geoms], g, 3),
            quaternion=leaf([x[5] for x in draft.geoms], g, 4),
            rgba=leaf([x[6] for x in draft.geoms], g, 4),
            friction=leaf([x[7] for x in draft.geoms], g, 3),
        ),
        forces=tuple(model_forces),
    )


class _Draft:
    """Lists that grow while the bodies are walked; numpy only."""

    def __init__(self):
        self.body_link: list[int] = []
        self.link_parent: list[int] = []
        self.link_type: list[str] = []
        self.link_q: list[int] = []
        self.link_v: list[int] = []
        self.link_body: list[str] = []
        self.placement: list[np.ndarray] = []
        self.axis: list[np.ndarray] = []
        self.anchor: list[np.ndarray] = []
        self.moment: list[np.ndarray] = []
        self.joints: list[JointInfo] = []
        self.q0: list[float] = []
        self.spring_reference: list[float] = []
        self.stiffness: list[float] = []
        self.damping: list[float] = []
        self.armature: list[float] = []
        self.friction_loss: list[float] = []
        self.range: list[tuple[float, float]] = []
        self.limit_time_constant: list[float] = []
        self.stick_speed: list[float] = []
        self.geoms: list[tuple] = []


def _add_body(draft: _Draft, index: int, body: Body, parent: int, fix_inertia: str) -> None:
    """Append the links of one body: one a primitive joint, the last with the mass."""
    where = f"body {body.name!r}"
    M = _body_moment(body, where, fix_inertia)
    pose = _pose(body.position, body.quaternion, where)
    parent_link = -1 if parent < 0 else draft.body_link[parent]
    if not body.joints:
        parent_link = _add_link(draft, body.name, parent_link, joints.FIXED, pose)
    for k, joint in enumerate(body.joints):
        label = joint.name or (f"{body.name}_joint{k}" if len(body.joints) > 1 else f"{body.name}_joint")
        parent_link, pose = _add_joint(draft, index, body, joint, label, parent, parent_link, pose)
    draft.moment[parent_link] = M
    draft.body_link.append(parent_link)
    for geom in body.geoms:
        _add_geom(draft, index, geom, where)


def _add_link(draft, body_name, parent_link, kind, pose, axis=(0, 0, 0), anchor=(0, 0, 0)) -> int:
    draft.link_parent.append(parent_link)
    draft.link_type.append(kind)
    draft.link_q.append(len(draft.q0) if kind != joints.FIXED else -1)
    draft.link_v.append(len(draft.damping) if kind != joints.FIXED else -1)
    draft.link_body.append(body_name)
    draft.placement.append(pose)
    draft.axis.append(np.asarray(axis, float))
    draft.anchor.append(np.asarray(anchor, float))
    draft.moment.append(np.zeros((4, 4)))
    return len(draft.link_parent) - 1


def _add_joint(draft, index, body, joint, label, parent, parent_link, pose):
    """Append one user's joint; returns its last link and the placement for what follows in the body."""
    where = f"joint {label!r} of body {body.name!r}"
    if joint.type not in JOINT_PRIMITIVES:
        raise ModelError(f"{where}: type {joint.type!r} is not one of {', '.join(JOINT_PRIMITIVES)}")
    if joint.type == "free" and (parent >= 0 or len(body.joints) > 1):
        raise ModelError(
            f"{where}: a free joint must be the only joint of a body whose parent is the world; this one has "
            f"{'parent ' + repr(parent) if parent >= 0 else str(len(body.joints)) + ' joints'}. "
            "Use a ball joint, or move the body."
        )
    axes = _axes(joint, where)
    anchor = vector(joint.anchor, 3, f"anchor of {where}", ModelError)
    reference = number(joint.reference, f"reference of {where}")
    if reference and joint.type not in ("hinge", "slide"):
        raise ModelError(
            f"reference of {where} is {reference:g}; only a hinge or a slide has one. "
            "Change the body's position or quaternion instead."
        )
    nq0, nv0 = len(draft.q0), len(draft.damping)
    start = np.hstack([pose[:, 3], _unit_quaternion(body.quaternion, where)])
    if joint.type == "free":  # its q is the pose itself
        pose, anchor = np.eye(4)[:3], np.zeros(3)
    for kind, axis in zip(JOINT_PRIMITIVES[joint.type], axes):
        if kind in (joints.HINGE, joints.SLIDE) and reference:
            pose = _undo(pose, kind, axis, anchor, reference)
        parent_link = _add_link(draft, body.name, parent_link, kind, pose, axis, anchor)
        dofs = joints.PRIMITIVES[kind]
        draft.q0.extend(IDENTITY if kind == joints.BALL else [reference] * dofs)
        _add_dofs(draft, joint, dofs, where)
        pose = np.eye(4)[:3]
    if joint.type == "free":
        draft.q0[nq0:] = start.tolist()
    nq, nv = len(draft.q0) - nq0, len(draft.damping) - nv0
    rest = np.full(nq, np.nan)  # NaN: the configuration q0
    if joint.spring_reference is not None:
        what = f"spring_reference of {where}"
        rest = np.atleast_1d(array(joint.spring_reference, what, f"{nq} numbers"))
        if rest.shape != (nq,):
            raise ModelError(f"{what} has shape {rest.shape}; its q has {nq} entries")
        if not np.all(np.isfinite(rest)):
            raise ModelError(f"{what} is {rest.tolist()}; every entry must be finite")
    draft.spring_reference.extend(rest.tolist())
    draft.joints.append(JointInfo(label, joint.type, index, nq0, nq, nv0, nv))
    return parent_link, pose


def _add_dofs(draft: _Draft, joint: Joint, dofs: int, where: str) -> None:
    for field in ("stiffness", "damping", "armature", "friction_loss"):
        value = number(getattr(joint, field), f"{field} of {where}")
        if value < 0:
            raise ModelError(f"{field} of {where} is {value:g}; it must be ≥ 0, or energy is created. Change its sign.")
        getattr(draft, field).extend([value] * dofs)
    low, high = interval(joint.range, f"range of {where}")
    draft.range.extend([(low, high)] * dofs)
    for field in ("limit_time_constant", "stick_speed"):
        getattr(draft, field).extend([above_zero(getattr(joint, field), f"{field} of {where}")] * dofs)
    if joint.type == "ball" and joint.range is not None and not high > 0:
        raise ModelError(f"range of {where} is ({low:g}, {high:g}); a ball turns up to `high`, which must be > 0")


def _add_geom(draft: _Draft, body: int, geom: Geom, where: str) -> None:
    where = f"geom {geom.type!r} on {where}"
    if geom.type not in GEOM_TYPES:
        raise ModelError(f"{where}: type must be one of {', '.join(GEOM_TYPES)}")
    if (geom.type == "mesh") != (geom.mesh is not None):
        raise ModelError(f"{where}: a mesh belongs to type 'mesh', and only there")
    size = np.zeros(3)
    given = np.atleast_1d(array(geom.size, f"size of {where}", "up to three numbers"))
    if given.size > 3 or not np.all(given >= 0):
        raise ModelError(f"size of {where} is {given.tolist()}; it needs up to three numbers ≥ 0, m")
    size[: given.size] = given
    draft.geoms.append(
        (
            geom.type, body, geom.mesh, size, vector(geom.position, 3, f"position of {where}", ModelError),
            _unit_quaternion(geom.quaternion, where), vector(geom.rgba, 4, f"rgba of {where}", ModelError),
            vector(geom.friction, 3, f"friction of {where}", ModelError), bool(geom.touches),
        )
    )  # fmt: skip


def _parents(bodies: list[Body]) -> list[int]:
    """Parent indices, after checks of names, cycles and order."""
    names = [b.name for b in bodies]
    unique(names, "body")
    index = {n: i for i, n in enumerate(names)}

    def resolve(i: int, parent) -> int:
        where = f"body {names[i]!r} (index {i})"
        if parent is None:
            return -1
        if isinstance(parent, str):
            if parent not in index:
                raise ModelError(f"{where}: no body is called {parent!r}; known: {', '.join(names[:8])}")
            return index[parent]
        if isinstance(parent, bool) or not isinstance(parent, numbers.Integral):
            raise ModelError(f"{where}: parent is {parent!r:.60}; it must be a name, an index or None")
        if not -1 <= int(parent) < len(bodies):
            raise ModelError(f"{where}: parent index {parent} is outside 0..{len(bodies) - 1}")
        return int(parent)

    parents = [resolve(i, b.parent) for i, b in enumerate(bodies)]
    ordered = all(p < i for i, p in enumerate(parents))  # then there is no cycle, and no need to walk
    for i in range(0 if ordered else len(bodies)):
        path, j = [i], parents[i]
        while j >= 0 and j not in path:
            path.append(j)
            j = parents[j]
        if j >= 0:
            cycle = path[path.index(j) :] + [j]
            raise ModelError("the parents form a cycle: " + " -> ".join(names[k] for k in cycle))
    for i, p in enumerate(parents):
        if p >= i:
            raise ModelError(
                f"body {names[i]!r} (index {i}): its parent {names[p]!r} has index {p}; "
                "parents must come first. Reorder the list."
            )
    return parents


def _body_moment(body: Body, where: str, fix_inertia: str) -> np.ndarray:
    """The checked second moment (4,4) of one body."""
    mass = number(body.mass, f"mass of {where}")
    if mass < 0:
        raise ModelError(f"mass of {where} is {mass:g} kg; it must be ≥ 0")
    com = vector(body.com, 3, f"com of {where}", ModelError)
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
        values, vectors = np.linalg.eigh(inertia.central_moment(I))
        I = inertia.inertia_from_central_moment(vectors @ np.diag(np.maximum(values, 0)) @ vectors.T)
        warnings.warn(f"inertia of {where} broke A + B ≥ C by {gap:.3g} kg m² and was projected", stacklevel=4)
    return inertia.second_moment(mass, com, I)


def _check_joint_inertia(draft: _Draft, topology: Topology) -> None:
    """Refuse joints that move no mass, at a generic configuration (a zero there is a zero everywhere)."""
    rng = np.random.default_rng(0)
    q = rng.uniform(0.3, 1.2, topology.nq)
    moving = [i for i, kind in enumerate(topology.link_type) if kind != joints.FIXED]
    for i, (block, size) in zip(moving, _joint_inertia(draft, topology, q)):
        kind, first = topology.link_type[i], topology.link_v[i]
        least = np.linalg.eigvalsh(block)[0]
        if least <= 1e-12 * (size + np.trace(block)):
            joint = next(j.name for j in draft.joints if j.v <= first < j.v + j.nv)
            raise ModelError(
                f"body {draft.link_body[i]!r}, joint {joint!r} ({kind}): it moves no "
                f"{'mass' if kind == joints.SLIDE else 'inertia'} ({least:.3g}), so its acceleration is undefined. "
                "Give the body or one below it a mass and an inertia, or the joint an armature."
            )


def _joint_inertia(draft: _Draft, topology: Topology, q: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """The block of the mass matrix of every link that moves, armature included, and its scale, at q; numpy."""
    n = topology.n_links
    T, S = np.zeros((n, 4, 4)), np.zeros((n, 4, 4))
    for i, kind in enumerate(topology.link_type):
        L, at = np.vstack([draft.placement[i], [0, 0, 0, 1.0]]), topology.link_q[i]
        if kind in (joints.HINGE, joints.SLIDE):
            L[:3] = _undo(L[:3], kind, draft.axis[i], draft.anchor[i], -q[at])
        elif kind == joints.BALL:
            R = np.eye(3) + _rotation_minus_identity(q[at : at + 4] / np.linalg.norm(q[at : at + 4]))
            L = L @ np.block(
                [[R, (draft.anchor[i] - R @ draft.anchor[i])[:, None]], [np.zeros((1, 3)), np.ones((1, 1))]]
            )
        p = topology.link_parent[i]
        T[i] = L if p < 0 else T[p] @ L
    for i in reversed(range(n)):
        S[i] += T[i] @ draft.moment[i] @ T[i].T
        if topology.link_parent[i] >= 0:
            S[topology.link_parent[i]] += S[i]
    out = []
    for i, kind in enumerate(topology.link_type):
        if kind == joints.FIXED:
            continue
        screws = [T[i] @ s @ np.linalg.inv(T[i]) for s in _local_screws(kind, draft.axis[i], draft.anchor[i])]
        block = np.array([[np.sum((a @ S[i]) * b) for b in screws] for a in screws])
        first = topology.link_v[i]
        out.append((block + np.diag(draft.armature[first : first + len(screws)]), np.trace(S[i])))
    return out


def _local_screws(kind: str, axis, anchor) -> list[np.ndarray]:
    """The constant screws σ (4,4) of a primitive joint, numpy."""
    out = []
    for a in np.eye(3) if kind == joints.BALL else [axis]:
        s = np.zeros((4, 4))
        if kind == joints.SLIDE:
            s[:3, 3] = a
        else:
            s[:3, :3] = np.cross(np.eye(3), a) * -1
            s[:3, 3] = -s[:3, :3] @ anchor
        out.append(s)
    return out


LIMIT_WIDTH = 0.01  # rad or m over which the stiffness of a limit comes in
LIMIT_DAMPING = 1.0  # s/rad or s/m


def _limits(draft: _Draft, topology: Topology, feels: np.ndarray, leaf) -> force_laws.JointLimit:
    """The soft ends of all ranges; `feels` (nv,) is the inertia at q0 of every degree of freedom, by links."""
    nv = topology.nv
    moving = [i for i, kind in enumerate(topology.link_type) if kind != joints.FIXED]
    order = np.concatenate([topology.link_v[i] + np.arange(joints.PRIMITIVES[topology.link_type[i]]) for i in moving])
    inertia_felt = np.empty(nv)
    inertia_felt[order] = feels
    bounds = np.array(draft.range, float).reshape(nv, 2)
    balls = [topology.link_v[i] for i in moving if topology.link_type[i] == joints.BALL]
    angle = np.array([bounds[v, 1] for v in balls])
    stiffness = inertia_felt / np.array(draft.limit_time_constant) ** 2
    for v in balls:
        bounds[v : v + 3] = (-np.inf, np.inf)
        stiffness[v : v + 3] = stiffness[v : v + 3].max()
    return force_laws.JointLimit(
        range=leaf(bounds, nv, 2),
        angle=leaf(angle, len(balls)),
        stiffness=leaf(stiffness, nv),
        width=leaf(np.full(nv, LIMIT_WIDTH), nv),
        damping=leaf(np.full(nv, LIMIT_DAMPING), nv),
    )


def _axes(joint: Joint, where: str) -> list[np.ndarray]:
    """One unit axis for each primitive joint (zero where it has none)."""
    zero = np.zeros(3)
    if joint.type in ("fixed", "ball"):
        return [zero]
    if joint.type == "free":
        return [*np.eye(3), zero]
    if joint.type in ("hinge", "slide"):
        return [_unit(joint.axis if joint.axis is not None else (0, 0, 1), f"axis of {where}")]
    given = ((1, 0, 0), (0, 1, 0)) if joint.axis is None else joint.axis
    given = array(given, f"axis of {where}", "two axes, (2, 3)")
    if given.shape != (2, 3):
        raise ModelError(f"axis of {where} has shape {given.shape}; a {joint.type} joint wants two axes, (2, 3)")
    a, b = (_unit(x, f"axis of {where}") for x in given)
    angle = np.degrees(np.arccos(np.clip(abs(a @ b), 0, 1)))
    if angle < 1e-3:
        raise ModelError(
            f"axes of {where} are parallel (angle {angle:.2g}°); a {joint.type} joint needs two directions"
        )
    if joint.type == "universal":
        return [a, b]
    return [a, b, np.cross(a, b) / np.linalg.norm(np.cross(a, b))]


def _undo(pose: np.ndarray, kind: str, axis, anchor, reference: float) -> np.ndarray:
    """Pose J(−reference), so that q = reference leaves the body at its placement. (3,4)"""
    J = np.eye(4)
    if kind == joints.SLIDE:
        J[:3, 3] = -reference * np.asarray(axis)
    else:
        half = -0.5 * reference
        D = _rotation_minus_identity(np.array([np.cos(half), *(np.sin(half) * np.asarray(axis))]))
        J[:3, :3] += D
        J[:3, 3] = -D @ anchor
    return (np.vstack([pose, [0, 0, 0, 1.0]]) @ J)[:3]


def _pose(position, quaternion, where: str) -> np.ndarray:
    p = _unit_quaternion(quaternion, where)
    R = np.eye(3) + _rotation_minus_identity(p)
    return np.hstack([R, vector(position, 3, f"position of {where}", ModelError)[:, None]])


def _rotation_minus_identity(p: np.ndarray) -> np.ndarray:
    """joints.rotation_minus_identity in numpy's float64, whatever JAX's precision."""
    w, u = p[0], p[1:]
    U = np.array([[0, -u[2], u[1]], [u[2], 0, -u[0]], [-u[1], u[0], 0]])
    return 2 * (w * U + U @ U)


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
        warnings.warn(f"{where} has length {norm:.6g} and was normalised", stacklevel=5)
    return a / norm


def _dtype(dtype) -> np.dtype:
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    dtype = np.dtype(dtype if dtype is not None else (np.float64 if x64 else np.float32))
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise OptionError(f"dtype {dtype} is not float32 or float64")
    if dtype == np.float64 and not x64:
        raise OptionError(
            "dtype float64 was asked for, but JAX has it switched off: call jax.config.update('jax_enable_x64', True) "
            "before anything else, or set JAX_ENABLE_X64=1"
        )
    return dtype
