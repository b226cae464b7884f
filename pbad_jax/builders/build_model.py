"""`build_model`: from plain Python descriptions to a checked `Model`.

Everything a user or a file can get wrong about a mechanism is caught here, once, before anything is traced:
the file importers come through this door too.
"""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pbad_jax import checks
from pbad_jax.builders.actuators import Actuator, Drive, activation, actuation, check_actuator
from pbad_jax.builders.descriptions import Body, Geom
from pbad_jax.builders.joint_inertia import check_joint_inertia, joint_inertia
from pbad_jax.builders.link_rows import Draft, add_body, add_geom
from pbad_jax.builders.sites import with_sensors, with_sites
from pbad_jax.checks import float_dtype, unique, vector
from pbad_jax.errors import ModelError, OptionError
from pbad_jax.laws.balls import BallLimit, BallSpring
from pbad_jax.laws.gravity import Gravity
from pbad_jax.laws.lengths import Joints
from pbad_jax.laws.line_force import LineForce
from pbad_jax.laws.line_laws import Damping, Friction, Limit, Spring
from pbad_jax.model import joints
from pbad_jax.model.keyframes import Keyframe, Keyframes
from pbad_jax.model.model import Geometry, Model, Topology
from pbad_jax.model.sensors import Sensor
from pbad_jax.model.sites import Site


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
    keyframes: Mapping[str, Keyframe] | None = None,
    sites: Mapping[str, Site] | None = None,
    sensors: Mapping[str, Sensor] | None = None,
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
        keyframes: named moments, for `make_state(model, key=...)`.
        sites: frames on the bodies by name, see `with_sites`.
        sensors: what `read_sensors` gives, by name.

    Returns:
        The model with its own forces: gravity, and springs, dampers, dry friction, limits, actuators where there are
        any.

    Raises:
        ModelError: naming the body or joint, the value, the rule and the fix.
        OptionError: for gravity, dtype or fix_inertia.

    Example:
        >>> upper = pbad.Body("upper", 1.0, (0, 0, -0.5), np.diag([0.08, 0.08, 0.001]), joints=[pbad.Joint("ball")])
        >>> elbow = pbad.Joint("hinge", (1, 0, 0), name="elbow")
        >>> lower = dataclasses.replace(upper, name="lower", parent="upper", position=(0, 0, -1), joints=[elbow])
        >>> pbad.build_model([upper, lower], actuators=[pbad.Actuator("elbow")], name="double")
        Model('double': 2 bodies, 2 joints, nq=5, nv=4, nu=1, float64)
    """
    # options of the model as a whole
    dtype = float_dtype(dtype)
    gravity = vector(gravity, 3, "gravity", OptionError)
    if fix_inertia not in ("error", "project"):
        raise OptionError(f"fix_inertia={fix_inertia!r}: choose 'error' or 'project'")

    # the bodies, row by row, every number checked
    draft = _drafted(checks.all_of(bodies, Body, "bodies"), world_geoms, fix_inertia, dtype)
    links = {row.name: row.link for row in draft.bodies}

    # actuators, which may name any joint, site or tendon of these bodies
    drives = [
        check_actuator(a, draft.joints, links, sites or {}) for a in checks.all_of(actuators, Actuator, "actuators")
    ]
    unique([d.name for d in drives], "actuator")
    q_ref = np.array(draft.q0) if q0 is None else vector(q0, len(draft.q0), "q0", ModelError)

    # the rows as arrays, and the forces that joints and actuators ask for
    leaf = checks.leaf(dtype)
    n, nv = len(draft.links), len(draft.dofs)
    model = Model(
        topology=_topology(draft, name, drives, inactive),
        placement=leaf([row.placement for row in draft.links], n, 3, 4),
        axis=leaf([row.axis for row in draft.links], n, 3),
        anchor=leaf([row.anchor for row in draft.links], n, 3),
        second_moment=leaf([row.moment for row in draft.links], n, 4, 4),
        gravity=leaf(gravity, 3),
        armature=leaf([row.armature for row in draft.dofs], nv),
        q0=leaf(q_ref, len(q_ref)),
        geometry=_geometry(draft),
        forces=(Gravity(), *_joint_forces(draft, q_ref, leaf), *actuation(drives, leaf, links)),
        keyframes=_keyframes(keyframes or {}, {"q": len(q_ref), "v": nv, "control": len(drives)}, drives),
        activation=activation(drives, leaf),
    )

    # sites and sensors last: they name what the finished model has
    return with_sensors(with_sites(model, sites or {}), sensors or {})


def _keyframes(given: Mapping[str, Keyframe], sizes: dict[str, int], drives: Sequence[Drive]) -> Keyframes:
    """Of the right lengths, all numbers finite; what a quaternion may be is `make_state`'s to say."""
    out = {}
    for name, key in given.items():
        where = f"of keyframe {name!r}"
        q, v = (vector(getattr(key, k), sizes[k], f"{k} {where}") for k in "qv")
        u = None if key.control is None else vector(key.control, sizes["control"], f"control {where}")
        na = sum(d.activation is not None for d in drives)
        a = None if key.activation is None else vector(key.activation, na, f"activation {where}")
        out[name] = Keyframe(q, v, u, checks.number(key.time, f"time {where}"), a)
    return Keyframes(out)


def _drafted(bodies: list[Body], world_geoms: Sequence[Geom], fix_inertia: str, dtype) -> Draft:
    """The rows of all bodies, checked."""
    if not bodies:
        raise ModelError("the model has no bodies: give build_model at least one Body")
    draft = Draft()
    for body, parent in zip(bodies, _parents(bodies)):
        add_body(draft, body, parent, fix_inertia)
    unique([j.name for j in draft.joints], "joint")
    for geom in checks.all_of(world_geoms, Geom, "world_geoms"):
        add_geom(draft, -1, geom, "the world")
    check_joint_inertia(draft, dtype)
    return draft


def _topology(draft: Draft, name: str, drives: Sequence[Drive], inactive: Sequence[str]) -> Topology:
    """What is static of a model: names, the tree, the layout of q and v, kinds of shapes."""
    # bodies are what the user named, links what moves, one for each primitive joint
    return Topology(
        name=name,
        body_names=tuple(row.name for row in draft.bodies),
        body_parent=tuple(row.parent for row in draft.bodies),
        body_link=tuple(row.link for row in draft.bodies),
        link_parent=tuple(row.parent for row in draft.links),
        link_type=tuple(row.type for row in draft.links),
        link_q=tuple(row.q for row in draft.links),
        link_v=tuple(row.v for row in draft.links),
        joints=tuple(draft.joints),
        actuator_names=tuple(d.name for d in drives),
        geom_types=tuple(row.type for row in draft.geoms),
        geom_bodies=tuple(row.body for row in draft.geoms),
        geom_meshes=tuple(row.mesh for row in draft.geoms),
        geom_touches=tuple(row.touches for row in draft.geoms),
        inactive=tuple(inactive),
    )


def _geometry(draft: Draft) -> Geometry:
    widths = {"size": 3, "position": 3, "quaternion": 4, "rgba": 4, "friction": 3}
    columns = {k: np.array([getattr(row, k) for row in draft.geoms], float).reshape(-1, n) for k, n in widths.items()}
    for x in columns.values():
        x.setflags(write=False)
    return Geometry(**columns)


def _parents(bodies: list[Body]) -> list[int]:
    """Parent indices, after checks of names, cycles and order."""
    # names that a parent can be found by
    names = [b.name for b in bodies]
    unique(names, "body")
    index = {n: i for i, n in enumerate(names)}

    # a parent by name or by index; None and −1 are the world
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

    # walk up from every body: one that is met again closes a cycle
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

    # without cycles there is an order with parents first, which the list must have
    for i, p in enumerate(parents):
        if p >= i:
            raise ModelError(
                f"body {names[i]!r} (index {i}): its parent {names[p]!r} has index {p}; "
                "parents must come first. Reorder the list."
            )
    return parents


def _joint_forces(draft: Draft, q_ref: np.ndarray, leaf) -> list[Any]:
    """Springs, dampers, dry friction and limits of the joints, where there are any."""
    dofs, nv, out = draft.dofs, len(draft.dofs), []
    if any(row.stiffness for row in dofs):
        out += _springs(draft, np.where(np.isnan(draft.spring_reference), q_ref, draft.spring_reference), leaf)
    if any(row.damping for row in dofs):
        out.append(LineForce(Joints(), Damping(leaf([row.damping for row in dofs], nv))))
    if any(row.friction_loss for row in dofs):
        loss, speed = [row.friction_loss for row in dofs], [row.stick_speed for row in dofs]
        out.append(LineForce(Joints(), Friction(leaf(loss, nv), leaf(speed, nv))))
    if np.isfinite([row.range for row in dofs]).any():
        out += _limits(draft, q_ref, leaf)
    return out


def _balls(draft: Draft) -> list[Any]:
    """The links that turn about balls."""
    return [row for row in draft.links if row.type == joints.BALL]


def _springs(draft: Draft, rest: np.ndarray, leaf) -> list[Any]:
    """Of hinges and slides, and of balls, where there are any; rest (nq,)."""
    stiffness, at_rest, out = np.array([row.stiffness for row in draft.dofs], float), np.zeros(len(draft.dofs)), []
    balls = _balls(draft)
    of_balls, quaternions = [stiffness[row.v] for row in balls], [rest[row.q : row.q + 4] for row in balls]
    for row in draft.links:
        if row.type in (joints.HINGE, joints.SLIDE):
            at_rest[row.v] = rest[row.q]
    for row in balls:
        stiffness[row.v : row.v + 3] = 0.0
    if stiffness.any():
        out.append(LineForce(Joints(), Spring(leaf(stiffness), leaf(at_rest))))
    if np.any(of_balls):
        out.append(BallSpring(leaf(of_balls), leaf(quaternions, len(balls), 4)))
    return out


def _limits(draft: Draft, q_ref: np.ndarray, leaf) -> list[Any]:
    """The soft ends of all ranges, their stiffness from the inertia at q_ref."""
    feels = np.concatenate([np.diag(block) for block, _ in joint_inertia(draft, q_ref)])
    stiffness = feels / np.array([row.limit_time_constant for row in draft.dofs]) ** 2
    bounds, width = np.array([row.range for row in draft.dofs]), np.array([row.limit_width for row in draft.dofs])
    balls = np.array([row.v for row in _balls(draft)], int)
    angle, out = bounds[balls, 1], []
    for v in balls:
        bounds[v : v + 3] = (-np.inf, np.inf)
        stiffness[v : v + 3] = stiffness[v : v + 3].max()
    if np.isfinite(bounds).any():
        damping = [row.limit_damping for row in draft.dofs]
        out.append(LineForce(Joints(), Limit(*(leaf(x) for x in (bounds, stiffness, width, damping)))))
    if np.isfinite(angle).any():
        out.append(BallLimit(leaf(angle), leaf(stiffness[balls]), leaf(width[balls])))
    return out
