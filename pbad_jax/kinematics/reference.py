"""What is where and what moves with what at one configuration, in numpy: for what is made of a model, outside jit.

The reference configuration is q0: stiffnesses of contacts, ties and drives come from the masses that they hold there.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.model import joints
from pbad_jax.model.model import Model


def reference_transforms(model: Model) -> np.ndarray:
    """The links at q0, (N,3,4).

    Raises:
        ModelError: the model is traced.
    """
    checks.not_traced(model, "the model")
    with jax.ensure_compile_time_eval():
        return np.asarray(_at_q0(dataclasses.replace(model, forces=())), float)


@jax.jit
def _at_q0(model: Model) -> jax.Array:
    return transforms.transforms(model, model.q0)


def moments(model: Model, T: np.ndarray) -> np.ndarray:
    """The second moments in the world (N,4,4) of links at T (N,3,4)."""
    square = np.concatenate([T, np.broadcast_to([0, 0, 0, 1.0], (len(T), 1, 4))], axis=1)
    return square @ checks.of_model(model, "second_moment") @ square.swapaxes(1, 2)


def carried(model: Model, link: int) -> np.ndarray | None:
    """Second moment (4,4) in the world at q0 of all that moves with a link; None where it cannot move."""
    t = model.topology
    while t.link_type[link] == joints.FIXED:
        link = t.link_parent[link]
        if link < 0:
            return None
    return moments(model, reference_transforms(model))[tree(t).above[link]].sum(axis=0)


def tree_masses(model: Model) -> np.ndarray:
    """The mass of the whole tree that each link belongs to, (N,) kg."""
    t = model.topology
    root = list(range(t.n_links))
    for i, p in enumerate(t.link_parent):
        root[i] = root[p] if p >= 0 else i
    mass = checks.of_model(model, "second_moment")[:, 3, 3]
    return np.bincount(root, mass, t.n_links)[root]


def effective_inertia(model: Model, q: np.ndarray) -> np.ndarray:
    """What a drive of each degree of freedom has to move, alone, at q: (nv,) kg m² or kg.

    All that hangs below it. In a tree that floats, what is above it too, if that is more: with its foot on the ground
    a leg carries the trunk. A ball's three are its largest.
    """
    # second moments in the world at q, and which trees float
    t, index = model.topology, tree(model.topology)
    T = np.asarray(transforms.transforms(model, jnp.asarray(q)), float)
    moment = moments(model, T)
    floating = {j.v for j in t.joints if j.type == "free"}
    out = np.zeros(model.nv)
    for link, (kind, v) in enumerate(zip(t.link_type, t.link_v)):
        if kind == joints.FIXED:
            continue

        # what hangs below the joint, and in a tree that floats what lies on its other side
        below = index.above[link]
        root = next(i for i in np.flatnonzero(index.above[:, link]) if t.link_parent[i] < 0)
        sides = [moment[below].sum(axis=0)]
        if t.link_v[root] in floating:
            sides.append(moment[index.above[root] & ~below].sum(axis=0))

        # mass along the axis, or moment of inertia about it, of the heavier side
        point = T[link, :, :3] @ np.asarray(model.anchor[link], float) + T[link, :, 3]
        axis = T[link, :, :3] @ np.asarray(model.axis[link], float)
        out[v : v + joints.PRIMITIVES[kind]] = max(_about(S, kind, point, axis) for S in sides)
    return out + np.asarray(model.armature, float)


def _about(S: np.ndarray, kind: str, point: np.ndarray, axis: np.ndarray) -> float:
    """Mass (slide), or moment of inertia about an axis through a point, of a second moment (4,4)."""
    if kind == joints.SLIDE:
        return float(S[3, 3])
    C = S[:3, :3] - np.outer(S[:3, 3], point) - np.outer(point, S[:3, 3]) + S[3, 3] * np.outer(point, point)
    I = np.trace(C) * np.eye(3) - C
    return float(axis @ I @ axis) if kind == joints.HINGE else float(np.linalg.eigvalsh(I)[-1])
