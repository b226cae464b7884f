"""What inertia every joint moves, in numpy: joints that move none are refused, limits take their stiffness from it."""

import numpy as np

from pbad_jax.builders.link_rows import Draft, rotation_minus_identity, undo
from pbad_jax.errors import ModelError
from pbad_jax.model import joints
from pbad_jax.model.model import Topology


def check_joint_inertia(draft: Draft, topology: Topology) -> None:
    """Refuse joints that move no mass, at a generic configuration (a zero there is a zero everywhere)."""
    rng = np.random.default_rng(0)
    q = rng.uniform(0.3, 1.2, topology.nq)
    moving = [i for i, kind in enumerate(topology.link_type) if kind != joints.FIXED]
    for i, (block, size) in zip(moving, joint_inertia(draft, topology, q)):
        kind, first = topology.link_type[i], topology.link_v[i]
        least = np.linalg.eigvalsh(block)[0]
        if least <= 1e-12 * (size + np.trace(block)):
            joint = next(j.name for j in draft.joints if j.v <= first < j.v + j.nv)
            raise ModelError(
                f"body {draft.link_body[i]!r}, joint {joint!r} ({kind}): it moves no "
                f"{'mass' if kind == joints.SLIDE else 'inertia'} ({least:.3g}), so its acceleration is undefined. "
                "Give the body or one below it a mass and an inertia, or the joint an armature."
            )


def joint_inertia(draft: Draft, topology: Topology, q: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """The block of the mass matrix of every link that moves, armature included, and its scale, at q; numpy."""
    n = topology.n_links
    T, S = np.zeros((n, 4, 4)), np.zeros((n, 4, 4))
    for i, kind in enumerate(topology.link_type):
        L, at = np.vstack([draft.placement[i], [0, 0, 0, 1.0]]), topology.link_q[i]
        if kind in (joints.HINGE, joints.SLIDE):
            L[:3] = undo(L[:3], kind, draft.axis[i], draft.anchor[i], -q[at])
        elif kind == joints.BALL:
            R = np.eye(3) + rotation_minus_identity(q[at : at + 4] / np.linalg.norm(q[at : at + 4]))
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
