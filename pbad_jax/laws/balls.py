"""What is of balls, and of joints with several degrees of freedom: springs, limits, gears. No length is in them.

A ball's spring and its limit are laws of its rotation vector d, from rest to where it is: right_jacobian_inverse(d)
is ∂d/∂δ along q ⊕ δ. `Gears` are lengths for the law of actuators, ℓ = g · d with the rate s = g · ω.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kinematics.tree import ball_blocks, tree
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load
from pbad_jax.laws.pulls import Along, Lengths, no_length
from pbad_jax.laws.smoothing import ramp
from pbad_jax.math import rotations
from pbad_jax.math.precision import made_once
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import identity_like, matmul, matvec, small_sum, transpose
from pbad_jax.model.joints import BALL, JOINTS
from pbad_jax.model.model import Model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BallSpring:
    """Linear springs of the balls, free joints' rotations among them: ½ Σ k |d|², d from `rest`. As in MuJoCo.

    Example:
        >>> ball = pbad.Body("bob", 1.0, (0, 0, -1), np.eye(3), joints=[pbad.Joint("ball", stiffness=2.0)])
        >>> pbad.build_model([ball]).forces[-1].stiffness
        Array([2.], dtype=float64)
    """

    stiffness: jax.Array  # (nball,) N m/rad
    rest: jax.Array  # (nball,4) quaternions (w,x,y,z)
    couples_joints: ClassVar[bool] = False  # its matrices are blocks of the balls

    def load(self, model: Model, at: Instant) -> Load:
        """τ = −k d; ∂τ/∂δ = −k ∂d/∂δ."""
        d, balls, k = self._turn(model, at), tree(model.topology).ball_v, self.stiffness[:, None]
        slope = -k[..., None] * rotations.right_jacobian_inverse(d)
        zero = jnp.zeros_like(at.v)
        return Load(tau=zero.at[balls].set(-k * d), dtau_dq=ball_blocks(model, zero, lambda: slope))

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k |d|², J."""
        return 0.5 * jnp.sum(self.stiffness[:, None] * self._turn(model, at) ** 2)

    def describe(self, model: Model) -> tuple[str, str]:
        """Where it is stiff."""
        return "BallSpring", f"{np.count_nonzero(np.asarray(self.stiffness))} balls"

    def _turn(self, model: Model, at: Instant) -> jax.Array:
        p = at.q[tree(model.topology).ball_q]
        return rotations.quaternion_log(rotations.quaternion_product(rotations.quaternion_inverse(self.rest), p))


def difference_slope(model: Model, weight: jax.Array, d: jax.Array) -> jax.Array:
    """weight (nv,) times ∂d/∂δ at the difference d: a diagonal (nv,), a matrix (nv,nv) where there are balls."""
    balls = tree(model.topology).ball_v
    blocks = lambda: weight[balls][..., None] * rotations.right_jacobian_inverse(d[balls])  # noqa: E731
    return ball_blocks(model, weight, blocks)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BallLimit:
    """Soft ends of the balls' whole turns: k ramp(x) of the angle's excess x beyond `angle`, without damping.

    Example:
        >>> ball = pbad.Body("bob", 1.0, (0, 0, -1), np.eye(3), joints=[pbad.Joint("ball", range=(0, 0.5))])
        >>> pbad.build_model([ball]).forces[-1].angle
        Array([0.5], dtype=float64)
    """

    angle: jax.Array  # (nball,) rad, inf = free
    stiffness: jax.Array  # (nball,) N m/rad
    width: jax.Array  # (nball,) rad, of the smooth start
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    couples_joints: ClassVar[bool] = False  # its matrices are blocks of the balls
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """−k ramp(θ − limit) d/θ and its slope along the rotation; d turns into itself, so Jrᵀ d = d."""
        (d, turn), k = self._rotation(model, at.q), self.stiffness
        _, F, slope = ramp(turn - self.angle, self.width)
        axis = d / jnp.where(turn > 0, turn, 1.0)[:, None]
        along = axis[:, :, None] * axis[:, None, :]
        across = (identity_like(d) - along) * (F / jnp.where(turn > 0, turn, 1.0))[:, None, None]
        by_d = -k[:, None, None] * (slope[:, None, None] * along + across)
        blocks, zero = matmul(by_d, rotations.right_jacobian_inverse(d)), jnp.zeros_like(at.v)
        tau = zero.at[tree(model.topology).ball_v].set(-(k * F)[:, None] * axis)
        return Load(tau=tau, dtau_dq=ball_blocks(model, zero, lambda: blocks))

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp, J."""
        return jnp.sum(self.stiffness * ramp(self._rotation(model, at.q)[1] - self.angle, self.width)[0])

    def describe(self, model: Model) -> tuple[str, str]:
        """Where there is an end."""
        return "BallLimit", f"{np.count_nonzero(np.isfinite(np.asarray(self.angle)))} balls"

    def _rotation(self, model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Rotation vectors (nball,3) and their length (nball,), with a finite slope at zero."""
        d = rotations.quaternion_log(q[tree(model.topology).ball_q])
        square = small_sum(d * d)
        small = square < 1e-12
        return d, jnp.where(small, 0.0, jnp.sqrt(jnp.where(small, 1.0, square)))


# --- lengths of joints with several degrees of freedom ----------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gears:
    """Lengths of n joints with several degrees of freedom, along gears; for actuators.

    `gear` has three places for sliding and hinges, three for a ball: those of a ball or of a free joint's rotation are
    in the body's axes, or in those of its parent; a joint does not look at the others. ℓ = g · q of hinges and slides,
    g · w of a ball turned by the rotation vector w, 0 of a free joint.

    Example:
        >>> balls = pbad.chain(1, joint="ball")
        >>> turned = pbad.with_actuators(balls, pbad.Actuator("joint0", name="turn", gear=(1, 0, 0)))
        >>> turned.forces[-1].length.gear
        Array([[0., 0., 0., 1., 0., 0.]], dtype=float64)
    """

    gear: jax.Array  # (n,6)
    # type, first index in q, in v, whether in the parent's axes
    joints: tuple[tuple[str, int, int, bool], ...] = dataclasses.field(metadata=STATIC)
    word: ClassVar[str] = "Vector"
    noun: ClassVar[str] = "joints"
    exact: ClassVar[bool] = False  # of a ball, s is not the rate of g · w

    @property
    def couples_joints(self) -> bool:
        """Whether the slopes join links: not on balls."""
        return any(kind != "ball" for kind, *_ in self.joints)

    def at(self, model: Model, at: Instant) -> Lengths:
        """ℓ and s."""
        g = self._pull(at.q)
        rate = jnp.sum(g * at.v[_slots(self.joints).v], axis=1)
        return Lengths(self.value(model, at.q), rate, _GearPull(self, at.q, at.v, g), no_length, no_length)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) rad or m."""
        s = _slots(self.joints)
        parts = jnp.where(s.used, self.gear, 0) * jnp.concatenate([q[s.q], self._turn(q)], axis=1)
        return jnp.sum(jnp.where(s.measured, parts, 0), axis=1)

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), all of each joint."""
        own = np.zeros((len(self.joints), model.nv), bool)
        for row, (_, _, v, _) in zip(own, self.joints):
            row[v : v + next(j.nv for j in model.topology.joints if j.nv and j.v == v)] = True
        return own

    def _turn(self, q: jax.Array) -> jax.Array:
        """The rotation vectors of the balls (n,3), zero where there is none."""
        return rotations.quaternion_log(self._quaternion(q))

    def _quaternion(self, q: jax.Array) -> jax.Array:
        s = _slots(self.joints)
        return jnp.where(s.ball, q[s.p], jnp.asarray([1, 0, 0, 0], q.dtype))

    def _pull(self, q: jax.Array) -> jax.Array:
        """The gear g at q, (n,6)."""
        s = _slots(self.joints)
        gear = jnp.where(s.used, self.gear, 0)
        slide, turn = gear[:, :3], gear[:, 3:]
        back = transpose(rotations.rotation(self._quaternion(q)))
        return jnp.concatenate([slide, jnp.where(s.in_parent, matvec(back, turn), turn)], axis=1)


class _GearPull(NamedTuple):
    gears: Gears
    q: jax.Array
    v: jax.Array
    g: jax.Array  # (n,6)

    def load(self, f: Along) -> Load:
        """τ and its derivatives (nv,nv), one block a joint. In the parent's axes g turns: ∂g/∂δ = [g]."""
        # ∂ℓ/∂δ, of a ball by its rotation vector, and ∂s/∂δ, where the gear turns under the velocity
        s, g = _slots(self.gears.joints), self.g
        v, w, turned = self.v[s.v], self.gears._turn(self.q), g[:, 3:]
        assert f.by_length is not None and f.by_rate is not None
        turn = jnp.where(s.used, self.gears.gear, 0)[:, 3:]
        by_length = jnp.concatenate([g[:, :3], matvec(transpose(rotations.right_jacobian_inverse(w)), turn)], axis=1)
        by_turn = jnp.where(s.in_parent, jnp.cross(v[:, 3:], turned), 0)  # ∂s/∂δ

        # how the force along each gear follows from both
        df_dq = f.by_length[:, None] * jnp.where(s.measured, by_length, 0)
        df_dq = df_dq.at[:, 3:].add(f.by_rate[:, None] * by_turn)

        # of τ = g f the force changes, and g itself where it is in the parent's axes
        by_q, push = g[:, :, None] * df_dq[:, None, :], f.force[:, None, None]
        by_q = by_q.at[:, 3:, 3:].add(jnp.where(s.in_parent[:, :, None], push * rotations.hat(turned), 0))
        by_v = f.by_rate[:, None, None] * g[:, :, None] * g[:, None, :]

        # every joint has a block of its own
        nv = len(self.v)
        zero, block = jnp.zeros((nv, nv), g.dtype), (s.v[:, :, None], s.v[:, None, :])
        tau = zero[0].at[s.v].add(g * f.force[:, None])
        return Load(tau=tau, dtau_dq=zero.at[block].add(by_q), dtau_dv=zero.at[block].add(by_v))


class _Slots(NamedTuple):
    """Where the six places of a gear are in q and v; constant. Unused places point to the first entry."""

    used: np.ndarray  # (n,6) bool
    q: np.ndarray  # (n,3) of the first three
    p: np.ndarray  # (n,4) of the quaternion
    v: np.ndarray  # (n,6)
    ball: np.ndarray  # (n,1) bool, whether there is one
    measured: np.ndarray  # (n,1) bool, whether there is a length
    in_parent: np.ndarray  # (n,1) bool


@made_once
def _slots(which: tuple[tuple[str, int, int, bool], ...]) -> _Slots:
    parts = [JOINTS[kind].primitives for kind, *_ in which]
    q, v = (np.array([w[i] for w in which])[:, None] for i in (1, 2))
    ball = np.array([BALL in p for p in parts])[:, None]
    count = np.array([len(p) for p in parts])[:, None] - ball  # of hinges and slides
    place = np.arange(6)
    used = np.where(place < 3, place < count, ball)
    return _Slots(
        used=used,
        q=np.where(used[:, :3], q + place[:3], 0),
        p=np.where(ball, q + count + place[:4], 0),
        v=np.where(used, np.where(place < 3, v + place, v + count + place - 3), 0),
        ball=ball,
        measured=~ball | (count == 0),
        in_parent=np.array([w[3] for w in which])[:, None] & ball,
    )
