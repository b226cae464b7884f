"""What inertia every joint moves, in numpy: joints that move none are refused, limits take their stiffness from it."""

import numpy as np

from pbad_jax.builders.link_rows import Draft, LinkRow, turned, undo
from pbad_jax.errors import ModelError
from pbad_jax.model import joints


def check_joint_inertia(draft: Draft) -> None:
    """Refuse joints that move no mass, at a generic configuration (a zero there is a zero everywhere)."""
    q = np.random.default_rng(0).uniform(0.3, 1.2, len(draft.q0))
    moving = [row for row in draft.links if row.type != joints.FIXED]
    for row, (block, size) in zip(moving, joint_inertia(draft, q)):
        least = np.linalg.eigvalsh(block)[0]
        if least <= 1e-12 * (size + np.trace(block)):
            joint = next(j.name for j in draft.joints if j.v <= row.v < j.v + j.nv)
            raise ModelError(
                f"body {row.body!r}, joint {joint!r} ({row.type}): it moves no "
                f"{'mass' if row.type == joints.SLIDE else 'inertia'} ({least:.3g}), so its acceleration is undefined. "
                "Give the body or one below it a mass and an inertia, or the joint an armature."
            )


def joint_inertia(draft: Draft, q: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """The block of the mass matrix of every link that moves, armature included, and its scale, at q; numpy."""
    n = len(draft.links)
    T, S = np.zeros((n, 4, 4)), np.zeros((n, 4, 4))
    for i, row in enumerate(draft.links):
        T[i] = _transform(row, q) if row.parent < 0 else T[row.parent] @ _transform(row, q)
    for i, row in reversed(list(enumerate(draft.links))):
        S[i] += T[i] @ row.moment @ T[i].T
        if row.parent >= 0:
            S[row.parent] += S[i]
    out = []
    for i, row in enumerate(draft.links):
        if row.type == joints.FIXED:
            continue
        screws = [T[i] @ s @ np.linalg.inv(T[i]) for s in _local_screws(row.type, row.axis, row.anchor)]
        block = np.array([[np.sum((a @ S[i]) * b) for b in screws] for a in screws])
        armature = [dof.armature for dof in draft.dofs[row.v : row.v + len(screws)]]
        out.append((block + np.diag(armature), np.trace(S[i])))
    return out


def _transform(row: LinkRow, q: np.ndarray) -> np.ndarray:
    """The link's frame in its parent's at q, (4,4)."""
    pose = row.placement
    if row.type in (joints.HINGE, joints.SLIDE):
        pose = undo(pose, row.type, row.axis, row.anchor, -q[row.q])
    elif row.type == joints.BALL:
        pose = turned(pose, q[row.q : row.q + 4], row.anchor)
    return np.vstack([pose, [0, 0, 0, 1.0]])


def _local_screws(kind: str, axis, anchor) -> list[np.ndarray]:
    """The constant screws σ (4,4) of a primitive joint, numpy."""
    out = []
    for a in np.eye(3) if kind == joints.BALL else [axis]:
        s = np.zeros((4, 4))
        if kind == joints.SLIDE:
            s[:3, 3] = a
        else:
            s[:3, :3] = np.cross(np.eye(3), a)
            s[:3, 3] = -s[:3, :3] @ anchor
        out.append(s)
    return out
