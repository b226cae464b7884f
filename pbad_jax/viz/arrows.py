"""Contact forces as arrows: one a body, on the line along which they act together, from where that meets the body."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pbad_jax.errors import OptionError, StateError
from pbad_jax.model.model import Model
from pbad_jax.model.state import make_state
from pbad_jax.sensing.center_of_mass import center_of_mass, total_mass
from pbad_jax.sensing.touch import contact_forces
from pbad_jax.viz.frames import CHUNK, Frames
from pbad_jax.viz.shapes import Shape, outermost, rotations

SHOWN = 1e-3  # of the longest arrow; what is shorter is not drawn
LONGEST, WIDTH = 1.5, 0.8  # sizes of the model


@dataclasses.dataclass(frozen=True, eq=False)
class Arrows:
    """Of F frames, B lanes and N bodies."""

    start: np.ndarray  # (F,B,N,3) m
    along: np.ndarray  # (F,B,N,3) N
    scale: float  # m/N
    width: float  # m, of an arrow, in its own measures


def arrows_of(
    model: Model, motion: Any, frames: Frames, wanted: bool | float, size: float, shapes: Sequence[Shape]
) -> Arrows | None:
    """The arrows, or None where none are wanted.

    Between the rows of a motion the forces are those of the row before, carried along by the bodies.

    Args:
        model: the model. motion: a Trajectory, q and v of one lane or many. frames: where the bodies are drawn.
        wanted: m/N; True: the weight of the model is as long as the model is large, `size` m, or shorter, so that the
            longest arrow is no longer than LONGEST of it.
        shapes: what is drawn, in which an arrow begins where it is pushed.

    Raises:
        OptionError: a length that is none. StateError: a motion without velocities, or with bad ones.
    """
    # a valid length, and a motion with velocities, of one lane or many
    if wanted is False or wanted is None:
        return None
    if not isinstance(wanted, bool) and not (math.isfinite(wanted) and wanted > 0):
        raise OptionError(f"contact_forces is {wanted}; it must be True, False, or m/N, positive and finite")
    if not (hasattr(motion, "v") and hasattr(motion, "time")):
        raise StateError("contact_forces depend on velocities: give a Trajectory, which has v, instead of a bare q")
    q, v = (np.asarray(x) for x in (motion.q, motion.v))
    q, v = (x[None] if x.ndim == 2 else x for x in (q, v))
    if v.shape != (*q.shape[:2], model.nv) or not np.isfinite(v).all():
        raise StateError(f"v has shape {np.shape(motion.v)}; wanted finite numbers, {model.nv} for every row of q")

    # the contact wrenches at those rows of the motion that frames show
    rows = np.floor(frames.row + 1e-9).astype(int)
    used, of_frame = np.unique(rows, return_inverse=True)
    lanes = q.shape[0]
    states = (x[:, used].reshape(-1, x.shape[-1]).astype(model.dtype) for x in (q, v))
    wrench, centre = (np.asarray(x, float) for x in _wrenches(model, *states))
    torque, force = np.split(wrench.reshape(lanes, len(used), -1, 6), 2, axis=-1)

    # where each force meets its body; between rows that point moves along with the body
    first = np.searchsorted(rows, used)  # a frame at each row, where the bodies are about as the forces found them
    body, turn = frames.position[first].swapaxes(0, 1), rotations(frames.quaternion[first].swapaxes(0, 1))
    start = _pushed(centre.reshape(lanes, len(used), 1, 3), torque, force, body, turn, corners(shapes, model.n_bodies))
    offset = (start - body)[:, of_frame].swapaxes(0, 1)
    force = force[:, of_frame].swapaxes(0, 1)

    # the length of a newton
    scale = _scale(model, force, size) if wanted is True else float(wanted)
    return Arrows(frames.position + offset, force, scale, WIDTH * size)


def corners(shapes: Sequence[Shape], n_bodies: int) -> list[np.ndarray]:
    """Of every body the outermost points (K,3) m of its shapes, in its frame; its origin where it has none."""
    found: list[list[np.ndarray]] = [[] for _ in range(n_bodies)]
    for s in shapes:
        if s.body >= 0:
            found[s.body].append(outermost(s.mesh) * s.scale @ rotations(s.quaternion).T + s.position)
    return [np.concatenate(x) if x else np.zeros((1, 3)) for x in found]


def _pushed(
    centre: np.ndarray,
    torque: np.ndarray,
    force: np.ndarray,
    body: np.ndarray,
    turn: np.ndarray,
    ends: list[np.ndarray],
) -> np.ndarray:
    """(B,T,N,3) m on the lines on which `force` acts, with `torque` about `centre`, as far back as the bodies reach."""
    size = np.linalg.norm(force, axis=-1, keepdims=True)
    along = force / np.where(size > 0, size, 1.0)
    on_line = centre + np.cross(along, torque) / np.where(size > 0, size, 1.0)
    reach = [np.einsum("btij,kj,bti->btk", turn[:, :, n], x, along[:, :, n]).min(-1) for n, x in enumerate(ends)]
    height = np.sum(along * (body - on_line), axis=-1) + np.stack(reach, axis=-1)
    return np.where(size > 0, on_line + along * height[..., None], body)


def _scale(model: Model, force: np.ndarray, size: float) -> float:
    """m/N."""
    weight = float(total_mass(model)) * float(np.linalg.norm(np.asarray(model.gravity, float)))
    longest = float(np.linalg.norm(force, axis=-1).max(initial=0.0))
    return size / max(weight, longest / LONGEST, 1e-30)


@jax.jit
def _wrenches(model: Model, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Torques and forces (M,N,6) at states (M,nq), (M,nv), and the centres of mass (M,3) m."""

    def one(state):
        at = make_state(model, *state)
        return contact_forces(model, at), center_of_mass(model, at)

    return jax.lax.map(one, (q, v), batch_size=min(CHUNK, q.shape[0]))
