"""What inertia every joint moves, in numpy: joints that move none are refused, limits take their stiffness from it."""

import numpy as np

from pbad_jax.builders.link_rows import Draft, LinkRow, turned, undo
from pbad_jax.errors import ModelError
from pbad_jax.model import joints

TWISTS = np.zeros((6, 4, 4))  # three turns, three shifts
TWISTS[:3, :3, :3] = np.swapaxes(np.cross(np.eye(3)[:, None], np.eye(3)[None]), 1, 2)
TWISTS[3:, :3, 3] = np.eye(3)


def check_joint_inertia(draft: Draft, dtype) -> None:
    """Refuse joints that move no mass, at a generic configuration (a zero there is a zero everywhere).

    First with all below held, then with all below let go: hinges in one line around a massless link move it as one.
    """
    # a generic configuration, and the least that the dtype resolves
    q = np.random.default_rng(0).uniform(0.3, 1.2, len(draft.q0))
    floor = 1e3 * float(np.finfo(dtype).tiny)
    moving = [row for row in draft.links if row.type != joints.FIXED]

    # all below held: the diagonal block of the mass matrix must be positive definite
    held = joint_inertia(draft, q)
    for row, (block, size) in zip(moving, held):
        least = np.linalg.eigvalsh(block)[0]
        if least <= 1e-12 * (size + np.trace(block)) or least <= floor:
            raise ModelError(
                f"{_place(draft, row)}: it moves no {'mass' if row.type == joints.SLIDE else 'inertia'} ({least:.3g}), "
                "so its acceleration is undefined. Give the body or one below it a mass and an inertia, or the joint "
                "an armature."
            )

    # all below let go: so must its pivot in the elimination, by more than cancellation leaves
    for row, free, (block, size) in zip(moving, _released_inertia(draft, q), held):
        least = np.linalg.eigvalsh(free)[0]
        if least <= 1e-12 * np.trace(block) + 1e-15 * size or least <= floor:
            raise ModelError(
                f"{_place(draft, row)}: with the joints below it let go it moves no inertia ({least:.3g}), as hinges "
                "in one line around a massless body do, so that their accelerations are undefined. Give the bodies "
                "between them a mass and an inertia, turn an axis, or give one of the joints an armature."
            )

    # some mass at all: the residuals of steps are measured in it
    total = sum(row.moment[3, 3] for row in draft.links)
    if moving and total <= floor:
        raise ModelError(
            f"the masses of all bodies add up to {total:.3g} kg; what a step may miss is measured in them: give one of "
            f"the bodies a mass, as body {moving[0].body!r}"
        )


def _place(draft: Draft, row: LinkRow) -> str:
    joint = next(j.name for j in draft.joints if j.v <= row.v < j.v + j.nv)
    return f"body {row.body!r}, joint {joint!r} ({row.type})"


def _released_inertia(draft: Draft, q: np.ndarray) -> list[np.ndarray]:
    """As the blocks of `joint_inertia`, but all joints below follow freely: the pivots of the mass matrix."""
    T, S = _in_world(draft, q)
    P = np.einsum("kab,nbc,lac->nkl", TWISTS, S, TWISTS)
    out = []
    for i, row in reversed(list(enumerate(draft.links))):
        below = P[i]
        if row.type != joints.FIXED:
            s = np.array([_twist(x) for x in _screws(row, T[i])])
            armature = [dof.armature for dof in draft.dofs[row.v : row.v + len(s)]]
            D, U = s @ P[i] @ s.T + np.diag(armature), P[i] @ s.T
            out.append(D)
            below = P[i] - U @ np.linalg.pinv(D, hermitian=True) @ U.T
        if row.parent >= 0:
            P[row.parent] += below
    return out[::-1]


def _twist(s: np.ndarray) -> np.ndarray:
    """The six numbers (ω, v) of a screw (4,4)."""
    return np.array([s[2, 1], s[0, 2], s[1, 0], *s[:3, 3]])


def _screws(row: LinkRow, T: np.ndarray) -> list[np.ndarray]:
    """Of a link at T (4,4), in the world, (4,4) each."""
    return [T @ s @ np.linalg.inv(T) for s in _local_screws(row.type, row.axis, row.anchor)]


def _in_world(draft: Draft, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames and second moments of all links at q, (n,4,4) each."""
    T, S = np.zeros((2, len(draft.links), 4, 4))
    for i, row in enumerate(draft.links):
        T[i] = _transform(row, q) if row.parent < 0 else T[row.parent] @ _transform(row, q)
        S[i] = T[i] @ row.moment @ T[i].T
    return T, S


def joint_inertia(draft: Draft, q: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """The block of the mass matrix of every link that moves, armature included, and its scale, at q; numpy."""
    T, S = _in_world(draft, q)
    for i, row in reversed(list(enumerate(draft.links))):
        if row.parent >= 0:
            S[row.parent] += S[i]
    out = []
    for i, row in enumerate(draft.links):
        if row.type == joints.FIXED:
            continue
        screws = _screws(row, T[i])
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
