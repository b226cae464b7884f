"""`build_model`: from plain Python descriptions to a checked `Model`.

Everything a user or a file can get wrong about a mechanism is caught here, once, before anything is traced:
the file importers come through this door too.
"""

import numbers
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from pbad_jax import forces as force_laws
from pbad_jax.builders.actuators import Actuator, actuation, check_actuator
from pbad_jax.builders.descriptions import Body, Geom
from pbad_jax.builders.joint_inertia import check_joint_inertia, joint_inertia
from pbad_jax.builders.link_rows import Draft, add_body, add_geom
from pbad_jax.checks import float_dtype, unique, vector
from pbad_jax.errors import ModelError, OptionError
from pbad_jax.model import joints
from pbad_jax.model.model import Geometry, Model, Topology


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
    dtype = float_dtype(dtype)
    gravity = vector(gravity, 3, "gravity", OptionError)
    if fix_inertia not in ("error", "project"):
        raise OptionError(f"fix_inertia={fix_inertia!r}: choose 'error' or 'project'")
    bodies = list(bodies)
    if not bodies:
        raise ModelError("the model has no bodies: give build_model at least one Body")
    parents = _parents(bodies)
    draft = Draft()
    for index, (body, parent) in enumerate(zip(bodies, parents)):
        add_body(draft, index, body, parent, fix_inertia)
    unique([j.name for j in draft.joints], "joint")
    drives = [check_actuator(a, draft.joints) for a in actuators]
    unique([d.name for d in drives], "actuator")
    for geom in world_geoms:
        add_geom(draft, -1, geom, "the world")

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
    check_joint_inertia(draft, topology)
    feels = [np.diag(block) for block, _ in joint_inertia(draft, topology, q_ref)]

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


LIMIT_WIDTH = 0.01  # rad or m over which the stiffness of a limit comes in


LIMIT_DAMPING = 1.0  # s/rad or s/m


def _limits(draft: Draft, topology: Topology, feels: np.ndarray, leaf) -> force_laws.JointLimit:
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
