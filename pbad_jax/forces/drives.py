"""Actuators: what a control does to a joint, in MuJoCo's terms.

Each pushes one joint along its gear g. From a length ℓ and a speed s = g · v of the joint and its control u,

    f = clip(gain clip(u) + bias · (1, ℓ, s)),   τ = g f:

motors, position and velocity servos, general actuators with an affine bias. ℓ = g q of hinges and slides, g · w of a
ball turned by the rotation vector w, 0 of a free joint. Where f is clipped its derivatives are zero.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import joints
from pbad_jax.forces.law import Load, Point
from pbad_jax.joints import matvec, transpose
from pbad_jax.kinematics import take
from pbad_jax.model import Model


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["gear", "gain", "bias", "control_range", "force_range"],
    meta_fields=["u_index", "q_index", "v_index"],
)
@dataclasses.dataclass(frozen=True)
class Actuation:
    """Actuators of single hinges and slides: n of them, each with its control u[u_index]."""

    gear: jax.Array  # (n,)
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3)
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...]
    q_index: tuple[int, ...]
    v_index: tuple[int, ...]

    def load(self, model: Model, at: Point) -> Load:
        """τ and its diagonal derivatives."""
        qi, vi = jnp.asarray(self.q_index), jnp.asarray(self.v_index)
        f, open_ = _force(self, at.control, self.gear * at.q[qi], self.gear * at.v[vi])
        slope = open_ * self.gear**2
        zero = jnp.zeros(model.nv, f.dtype)
        return Load(
            tau=zero.at[vi].add(self.gear * f),
            dtau_dq=zero.at[vi].add(slope * self.bias[:, 1]),
            dtau_dv=zero.at[vi].add(slope * self.bias[:, 2]),
        )


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["gear", "gain", "bias", "control_range", "force_range"],
    meta_fields=["u_index", "joints"],
)
@dataclasses.dataclass(frozen=True)
class VectorActuation:
    """Actuators of joints with several degrees of freedom: n of them, each with its control u[u_index].

    `gear` has three places for sliding and hinges, three for a ball: those of a ball or of a free joint's rotation are
    in the body's axes, or in those of its parent; a joint does not look at the others.
    """

    gear: jax.Array  # (n,6)
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3)
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...]
    joints: tuple[tuple[str, int, int, bool], ...]  # type, first index in q, in v, whether in the parent's axes

    def load(self, model: Model, at: Point) -> Load:
        """τ and its derivatives (nv,nv), one block a joint. In the parent's axes g turns: ∂g/∂δ = [g]."""
        s = _slots(self.joints)
        p = jnp.where(s.ball, at.q[s.p], jnp.asarray([1, 0, 0, 0], at.q.dtype))
        w, v = joints.quaternion_log(p), at.v[s.v]
        gear = jnp.where(s.used, self.gear, 0)
        slide, turn = gear[:, :3], gear[:, 3:]
        turned = jnp.where(s.in_parent, matvec(transpose(joints.rotation(p)), turn), turn)
        g = jnp.concatenate([slide, turned], axis=1)

        length = jnp.where(s.measured, gear * jnp.concatenate([at.q[s.q], w], axis=1), 0)
        f, open_ = _force(self, at.control, jnp.sum(length, axis=1), jnp.sum(g * v, axis=1))
        by_length = jnp.concatenate([slide, matvec(transpose(joints.right_jacobian_inverse(w)), turn)], axis=1)
        by_turn = jnp.where(s.in_parent, jnp.cross(v[:, 3:], turned), 0)  # ∂s/∂δ
        df_dq = self.bias[:, 1:2] * jnp.where(s.measured, by_length, 0)
        df_dq = df_dq.at[:, 3:].add(self.bias[:, 2:] * by_turn)

        push = g * open_[:, None]
        by_q = push[:, :, None] * df_dq[:, None, :]
        by_q = by_q.at[:, 3:, 3:].add(jnp.where(s.in_parent[:, :, None], f[:, None, None] * joints.hat(turned), 0))
        by_v = (self.bias[:, 2:] * push)[:, :, None] * g[:, None, :]
        zero, block = jnp.zeros((model.nv, model.nv), f.dtype), (s.v[:, :, None], s.v[:, None, :])
        tau = zero[0].at[s.v].add(g * f[:, None])
        return Load(tau=tau, dtau_dq=zero.at[block].add(by_q), dtau_dv=zero.at[block].add(by_v))


def _force(a: Actuation | VectorActuation, control: jax.Array, length: jax.Array, speed: jax.Array):
    """F (n,), and 1 where it is not clipped, else 0."""
    u = jnp.clip(take(control, np.array(a.u_index)), a.control_range[:, 0], a.control_range[:, 1])
    f = a.gain * u + a.bias[:, 0] + a.bias[:, 1] * length + a.bias[:, 2] * speed
    low, high = a.force_range[:, 0], a.force_range[:, 1]
    return jnp.clip(f, low, high), ((f > low) & (f < high)).astype(f.dtype)


class _Slots(NamedTuple):
    """Where the six places of a gear are in q and v; constant. Unused places point to the first entry."""

    used: np.ndarray  # (n,6) bool
    q: np.ndarray  # (n,3) of the first three
    p: np.ndarray  # (n,4) of the quaternion
    v: np.ndarray  # (n,6)
    ball: np.ndarray  # (n,1) bool, whether there is one
    measured: np.ndarray  # (n,1) bool, whether there is a length
    in_parent: np.ndarray  # (n,1) bool


@functools.lru_cache(maxsize=256)
def _slots(which: tuple[tuple[str, int, int, bool], ...]) -> _Slots:
    kind = np.array([k for k, *_ in which])[:, None]
    q, v = (np.array([w[i] for w in which])[:, None] for i in (1, 2))
    count = np.array([{"ball": 0, "universal": 2, "planar": 3, "free": 3}[k] for k, *_ in which])[:, None]
    place, ball = np.arange(6), (kind == "ball") | (kind == "free")
    used = np.where(place < 3, place < count, ball)
    return _Slots(
        used=used,
        q=np.where(used[:, :3], q + place[:3], 0),
        p=np.where(ball, q + count + place[:4], 0),
        v=np.where(used, np.where(place < 3, v + place, v + count + place - 3), 0),
        ball=ball,
        measured=kind != "free",
        in_parent=np.array([w[3] for w in which])[:, None] & ball,
    )
