"""From a trajectory to display frames: which times are drawn, and where every shape then is."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import OptionError, StateError
from pbad_jax.kinematics.manifold import difference, retract
from pbad_jax.kinematics.transforms import forward_kinematics
from pbad_jax.math.rotations import quaternion_product
from pbad_jax.model.model import Model
from pbad_jax.viz.shapes import Shape

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])
CHUNK = 1024  # configurations that are posed at once


@dataclasses.dataclass(frozen=True, eq=False)
class Frames:
    """Body poses at the display times: F frames of B lanes of N bodies."""

    seconds: float  # between two frames
    row: np.ndarray  # (F,) of the motion, with fractions
    position: np.ndarray  # (F,B,N,3) m
    quaternion: np.ndarray  # (F,B,N,4) w, x, y, z

    def poses(self, shapes: Sequence[Shape]) -> tuple[np.ndarray, np.ndarray]:
        """World positions (F,B,G,3) m and quaternions (F,B,G,4) of G shapes."""
        body = [s.body for s in shapes]  # -1, the world, is the last one
        p, u = _with_world(self.position, np.zeros(3))[:, :, body], _with_world(self.quaternion, IDENTITY)[:, :, body]
        offset, turn = np.stack([s.position for s in shapes]), np.stack([s.quaternion for s in shapes])
        w, r = u[..., :1], u[..., 1:]
        arm = 2 * np.cross(r, offset)
        product = quaternion_product(jnp.asarray(u), jnp.broadcast_to(turn, u.shape))
        return p + offset + w * arm + np.cross(r, arm), np.asarray(product)


def _with_world(x: np.ndarray, value) -> np.ndarray:
    """The same (F,B,N,k) with one more body that does not move."""
    return np.concatenate([x, np.broadcast_to(value, (*x.shape[:2], 1, x.shape[-1]))], axis=2)


def frames_of(model: Model, motion: Any, fps: float, dt: float | None) -> Frames:
    """Display frames of a `Trajectory`, or of q (T,nq) or (B,T,nq), `dt` seconds apart.

    In between, joints turn at a constant rate. Without `dt`, bare configurations are shown one a frame.

    Raises:
        OptionError: fps or dt is not positive. StateError: shapes that do not fit, no rows, NaN or inf.
    """
    for name, x in (("fps", fps), ("dt", 1.0 if dt is None else dt)):
        if not (math.isfinite(x) and x > 0):
            raise OptionError(f"{name} is {x}; it must be positive and finite")
    q, time = _configurations(model, motion, 1 / fps if dt is None else dt)
    n_frames = 1 + math.floor((time[-1] - time[0]) * fps + 1e-3)
    row = np.interp(time[0] + np.arange(n_frames) / fps, time, np.arange(len(time)))
    shown = _interpolate(model, jnp.asarray(q, model.dtype), jnp.asarray(row, model.dtype))
    position, quaternion = _poses(model, shown.reshape(-1, model.nq))
    lead = (q.shape[0], n_frames, model.n_bodies)
    return Frames(
        1 / fps,
        row,
        np.asarray(position, float).reshape(*lead, 3).swapaxes(0, 1),
        np.asarray(quaternion, float).reshape(*lead, 4).swapaxes(0, 1),
    )


def _configurations(model: Model, motion: Any, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Checked configurations (B,T,nq), and the times (T,) s of their rows."""
    # one lane or many, of the model's size, finite
    q = np.asarray(getattr(motion, "q", motion))
    if q.ndim == 2:
        q = q[None]
    if q.ndim != 3 or q.shape[-1] != model.nq:
        raise StateError(
            f"q has shape {np.shape(getattr(motion, 'q', motion))}; model {model.topology.name!r} wants a Trajectory, "
            f"(T, {model.nq}), or (B, T, {model.nq}) for a batch of lanes"
        )
    if not q.size:
        raise StateError(f"q has shape {q.shape}: there is nothing to draw; give at least one configuration")
    if not np.isfinite(q).all():
        lane, row, entry = np.argwhere(~np.isfinite(q))[0]
        raise StateError(f"q[{entry}] of lane {lane}, row {row} is {q[lane, row, entry]}; it must be finite")

    # a trajectory has its times, bare configurations are dt apart
    if hasattr(motion, "time"):
        return q, np.asarray(motion.time, float).reshape(-1, q.shape[1])[0]
    return q, dt * np.arange(q.shape[1])


@jax.jit
def _interpolate(model: Model, q: jax.Array, row: jax.Array) -> jax.Array:
    """Configurations (B,F,nq) at fractional rows (F,) of q (B,T,nq)."""
    a = jnp.clip(jnp.floor(row).astype(int), 0, max(q.shape[1] - 2, 0))
    b = jnp.minimum(a + 1, q.shape[1] - 1)

    def between(q_a, q_b, w):
        return retract(model, q_a, w * difference(model, q_a, q_b))

    return jax.vmap(jax.vmap(between), (0, 0, None))(q[:, a], q[:, b], (row - a).astype(q.dtype))


@jax.jit
def _poses(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Body positions (M,N,3) and quaternions (M,N,4) of configurations (M,nq)."""

    def one(q):
        poses = forward_kinematics(model, q)
        return poses.position, jax.vmap(_quaternion)(poses.rotation)

    return jax.lax.map(one, q, batch_size=min(CHUNK, q.shape[0]))


def _quaternion(R: jax.Array) -> jax.Array:
    """The unit quaternion (w,x,y,z) of a rotation (3,3): the largest column of 4 p pᵀ."""
    x, y, z = jnp.diag(R)
    a, b, c = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    d, e, f = R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1]
    P = jnp.array(
        [[1 + x + y + z, a, b, c], [a, 1 + x - y - z, d, e], [b, d, 1 - x + y - z, f], [c, e, f, 1 - x - y + z]]
    )
    p = P[jnp.argmax(jnp.diag(P))]
    return p / jnp.linalg.norm(p)
