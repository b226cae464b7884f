"""What drives joints: actuators, PD drives, constant forces.

An actuator pushes one joint along its gear g, in MuJoCo's terms. From a length ℓ and a speed s = g · v of the joint and
its control u,

    f = clip(gain clip(u) + bias · (1, ℓ, s)),   τ = g f:

motors, position and velocity servos, general actuators with an affine bias. ℓ = g q of hinges and slides, g · w of a
ball turned by the rotation vector w, 0 of a free joint. A PD drive is τ = clip(−kp d − kd v), d from its target to q.
All are implicit in position and velocity; where f or τ is clipped its derivatives are zero.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces.force import Instant, Load, dofs
from pbad_jax.forces.joint_laws import difference_slope
from pbad_jax.kinematics.manifold import difference
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import rotations
from pbad_jax.math.precision import made_once
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matvec, take, transpose
from pbad_jax.model.joints import BALL, JOINTS, JointInfo
from pbad_jax.model.model import Model, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Actuation:
    """Actuators of single hinges and slides: n of them, each with its control u[u_index].

    Example:
        >>> driven = pbad.with_actuators(arm, *pbad.motors(arm))
        >>> stronger = dataclasses.replace(driven.forces[-1], gear=3 * driven.forces[-1].gear)
        >>> stronger.gear
        Array([3., 3.], dtype=float64)
    """

    gear: jax.Array  # (n,)
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3)
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    q_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    v_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its diagonal derivatives."""
        vi = jnp.asarray(self.v_index)
        f, open_ = actuator_force(self, at.control, self.extent(model, at.q), self.speed(model, at.q, at.v))
        slope = open_ * self.gear**2
        zero = jnp.zeros(model.nv, f.dtype)
        return Load(
            tau=zero.at[vi].add(self.gear * f),
            dtau_dq=zero.at[vi].add(slope * self.bias[:, 1]),
            dtau_dv=zero.at[vi].add(slope * self.bias[:, 2]),
        )

    def held_potential(self, model: Model, at: Instant) -> jax.Array:
        """J, see `held_energy`."""
        return held_energy(self, at.control, self.extent(model, at.q))

    def extent(self, model: Model, q: jax.Array) -> jax.Array:
        """The lengths ℓ at q, (n,) rad or m."""
        return self.gear * q[jnp.asarray(self.q_index)]

    def speed(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """The speeds s at (q, v), (n,) rad/s or m/s."""
        return self.gear * v[jnp.asarray(self.v_index)]

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "Actuation", f"by {len(self.u_index)} actuators"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class VectorActuation:
    """Actuators of joints with several degrees of freedom: n of them, each with its control u[u_index].

    `gear` has three places for sliding and hinges, three for a ball: those of a ball or of a free joint's rotation are
    in the body's axes, or in those of its parent; a joint does not look at the others.

    Example:
        >>> balls = pbad.chain(1, joint="ball")
        >>> turned = pbad.with_actuators(balls, pbad.Actuator("joint0", name="turn", gear=(1, 0, 0)))
        >>> turned.forces[-1].gear
        Array([[0., 0., 0., 1., 0., 0.]], dtype=float64)
    """

    gear: jax.Array  # (n,6)
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3)
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    # type, first index in q, in v, whether in the parent's axes
    joints: tuple[tuple[str, int, int, bool], ...] = dataclasses.field(metadata=STATIC)

    @property
    def couples_joints(self) -> bool:
        """Whether the slopes join links: not on balls."""
        return any(kind != "ball" for kind, *_ in self.joints)

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its derivatives (nv,nv), one block a joint. In the parent's axes g turns: ∂g/∂δ = [g]."""
        s = _slots(self.joints)
        g, v, w = self._pull(at.q), at.v[s.v], self._turn(at.q)
        turned, slide, turn = g[:, 3:], g[:, :3], jnp.where(s.used, self.gear, 0)[:, 3:]

        f, open_ = actuator_force(self, at.control, self.extent(model, at.q), self.speed(model, at.q, at.v))
        by_length = jnp.concatenate([slide, matvec(transpose(rotations.right_jacobian_inverse(w)), turn)], axis=1)
        by_turn = jnp.where(s.in_parent, jnp.cross(v[:, 3:], turned), 0)  # ∂s/∂δ
        df_dq = self.bias[:, 1:2] * jnp.where(s.measured, by_length, 0)
        df_dq = df_dq.at[:, 3:].add(self.bias[:, 2:] * by_turn)

        push = g * open_[:, None]
        by_q = push[:, :, None] * df_dq[:, None, :]
        by_q = by_q.at[:, 3:, 3:].add(jnp.where(s.in_parent[:, :, None], f[:, None, None] * rotations.hat(turned), 0))
        by_v = (self.bias[:, 2:] * push)[:, :, None] * g[:, None, :]
        zero, block = jnp.zeros((model.nv, model.nv), f.dtype), (s.v[:, :, None], s.v[:, None, :])
        tau = zero[0].at[s.v].add(g * f[:, None])
        return Load(tau=tau, dtau_dq=zero.at[block].add(by_q), dtau_dv=zero.at[block].add(by_v))

    def extent(self, model: Model, q: jax.Array) -> jax.Array:
        """The lengths ℓ at q, (n,) rad or m."""
        s = _slots(self.joints)
        parts = jnp.where(s.used, self.gear, 0) * jnp.concatenate([q[s.q], self._turn(q)], axis=1)
        return jnp.sum(jnp.where(s.measured, parts, 0), axis=1)

    def speed(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """The speeds s at (q, v), (n,) rad/s or m/s."""
        return jnp.sum(self._pull(q) * v[_slots(self.joints).v], axis=1)

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

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "VectorActuation", f"by {len(self.u_index)} actuators"


def actuator_force(a: Any, control: jax.Array, length: jax.Array, speed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The force f (n,) of actuators a, and 1 where it is not clipped, else 0."""
    u = jnp.clip(take(control, np.array(a.u_index)), a.control_range[:, 0], a.control_range[:, 1])
    f = a.gain * u + a.bias[:, 0] + a.bias[:, 1] * length + a.bias[:, 2] * speed
    low, high = a.force_range[:, 0], a.force_range[:, 1]
    return jnp.clip(f, low, high), ((f > low) & (f < high)).astype(f.dtype)


def held_energy(a: Any, control: jax.Array, length: jax.Array) -> jax.Array:
    """−Σ ∫ f dℓ from ℓ = 0, without what the speeds add, () J: what actuators a give back, their control held.

    f is clip(x) with x linear in ℓ, so that ∫ f dℓ is ℓ times the mean of clip between both ends of x. A share
    bias₂ s that opposes the speed takes energy, since clip rises with x; where one drives on, it is infinite.
    """
    u = jnp.clip(take(control, np.array(a.u_index)), a.control_range[:, 0], a.control_range[:, 1])
    begin = a.gain * u + a.bias[:, 0]
    end = begin + a.bias[:, 1] * length
    low, high = a.force_range[:, 0], a.force_range[:, 1]

    def risen(x):
        """∫ clip dx."""
        f = jnp.clip(x, low, high)
        return f * (x - 0.5 * f)

    # between ends that nearly agree the mean is that of the middle, without the cancellation
    apart = jnp.abs(end - begin) > 1e-3 * (jnp.abs(end) + jnp.abs(begin))
    mean = (risen(end) - risen(begin)) / jnp.where(apart, end - begin, 1.0)
    mean = jnp.where(apart, mean, jnp.clip(0.5 * (begin + end), low, high))
    return jnp.where(jnp.any(a.bias[:, 2] > 0), jnp.inf, -jnp.sum(mean * length))


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


# --- without a control -------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PDDrive:
    """τ = clip(−kp d − kd v) of k degrees of freedom, d from `target` to q, a rotation vector on balls.

    Made by `pd_drive`. Every number is a leaf: learn the gains, move the target, by `dataclasses.replace`.

    Example:
        >>> drive = forces.pd_drive(arm, None, kp=20.0, kd=2.0, target=[0.5, -0.5])
        >>> moved = dataclasses.replace(drive, target=jnp.array([0.0, 0.0]))
        >>> drive.kp
        Array([20., 20.], dtype=float64)
    """

    kp: jax.Array  # (k,) N/m or N m/rad
    kd: jax.Array  # (k,) N s/m or N m s/rad
    target: jax.Array  # (kq,) rad, m, quaternions (w,x,y,z) of any length
    force_limit: jax.Array  # (k,) N or N m, inf = unlimited
    q_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)  # of the target in q
    v_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)  # of the degrees of freedom in v
    couples_joints: ClassVar[bool] = False  # its matrices are blocks of the balls

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its slopes; ∂τ/∂q is a full matrix only where a ball is driven."""
        qi, vi = np.array(self.q_index), np.array(self.v_index)
        d = difference(model, model.q0.at[qi].set(self.target), at.q)
        f = -self.kp * d[vi] - self.kd * at.v[vi]
        open_ = (jnp.abs(f) < self.force_limit).astype(f.dtype)
        zero = jnp.zeros_like(at.v)
        by_d = zero.at[vi].set(-open_ * self.kp)
        turns = np.isin(tree(model.topology).ball_v, vi).any()
        return Load(
            tau=zero.at[vi].set(jnp.clip(f, -self.force_limit, self.force_limit)),
            dtau_dq=difference_slope(model, by_d, d) if turns else by_d,
            dtau_dv=zero.at[vi].set(-open_ * self.kd),
        )

    def held_potential(self, model: Model, at: Instant) -> jax.Array | None:
        """Σ ∫ clip(kp d) dd, J; None where a ball is driven, whose gains may differ from axis to axis."""
        qi, vi = np.array(self.q_index), np.array(self.v_index)
        if np.isin(tree(model.topology).ball_v, vi).any():
            return None
        d = difference(model, model.q0.at[qi].set(self.target), at.q)[vi]
        f = jnp.clip(self.kp * d, -self.force_limit, self.force_limit)
        return jnp.sum(f * (d - 0.5 * f / jnp.where(self.kp == 0, 1.0, self.kp)))

    def describe(self, model: Model) -> tuple[str, str]:
        """Where it is stiff."""
        return "PDDrive", dofs(self.kp)


def pd_drive(model: Model, joints: str | Sequence[str] | None, kp, kd, *, target=None, force_limit=None) -> PDDrive:
    """A PD drive of some joints to a target, implicit in position and velocity: stiff gains take large steps.

    For targets that a control sets, take `Actuator(joint, gain=kp, bias=(0, -kp, -kd))`.

    Args:
        model: the model.
        joints: a name or names; None = all that move.
        kp: N/m or N m/rad, ≥ 0: one number, one for each of the joints, or one for each of their degrees of freedom.
        kd: N s/m or N m s/rad, ≥ 0, likewise.
        target: (kq,) what q of these joints shall be, one after the other: rad, m, unit quaternions (w,x,y,z) of balls;
            default `model.q0`.
        force_limit: N or N m, ≥ 0, like kp: a bound of each component of τ; None = unlimited.

    Raises:
        ModelError: an unknown or fixed joint, a negative gain, wrong shapes, NaN.

    Example:
        >>> held = pbad.with_forces(arm, forces.pd_drive(arm, ["joint0"], kp=50.0, kd=5.0, target=[0.3]))
        >>> held.forces[-1].target
        Array([0.3], dtype=float64)
    """
    check_model(model)
    which = chosen(model, joints, "pd_drive")
    q = [i for j in which for i in range(j.q, j.q + j.nq)]
    v = [i for j in which for i in range(j.v, j.v + j.nv)]

    gains = [_gains(x, which, f"{name} of pd_drive") for x, name in ((kp, "kp"), (kd, "kd"))]
    wanted = checks.of_model(model, "q0")[q] if target is None else _target(target, which, len(q))
    limit = np.full(len(v), np.inf) if force_limit is None else _gains(force_limit, which, "force_limit of pd_drive")
    kp, kd, wanted, limit = (jnp.asarray(x, model.dtype) for x in (*gains, wanted, limit))
    return PDDrive(kp, kd, wanted, limit, tuple(q), tuple(v))


def chosen(model: Model, names: str | Sequence[str] | None, what: str) -> list[JointInfo]:
    """The joints of these names, all of which move; None = all that do.

    Raises:
        ModelError: no name, or one that is unknown, given twice, or of a fixed joint.
    """
    every = model.topology.joints
    if names is None:
        return [j for j in every if j.nv]
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not names:
        raise ModelError(f"joints of {what} is {names!r:.60}; wanted a name, or a list of them")
    found = [every[checks.known(n, [j.name for j in every], f"joint of {what}")] for n in names]
    for k, joint in enumerate(found):
        if not joint.nv:
            raise ModelError(f"joint of {what}: {joint.name!r} is fixed; give joints that move")
        if joint in found[:k]:
            raise ModelError(f"joint of {what}: {joint.name!r} is given twice; name each joint once")
    return found


def _gains(x, which: list[JointInfo], what: str) -> np.ndarray:
    """One number for each degree of freedom, ≥ 0."""
    sizes = [j.nv for j in which]
    n, k = len(sizes), sum(sizes)
    x = checks.array(x, what, "numbers")
    if x.shape not in ((), (n,), (k,)):
        raise ModelError(
            f"{what} has shape {x.shape}; wanted one number, ({n},) one a joint, or ({k},): {_spans(which)}"
        )
    x = np.repeat(x, sizes) if x.shape == (n,) else np.broadcast_to(x, k)
    for i in np.flatnonzero(~(np.isfinite(x) & (x >= 0)))[:1]:
        raise ModelError(f"{what} of joint {_joint_of(which, i, 'nv')!r} is {x[i]}; it must be finite and ≥ 0")
    return x


def _spans(which: list[JointInfo], size: str = "nv") -> str:
    """How many numbers each of the joints takes."""
    shown = [f"{getattr(j, size)} of {j.name!r}" for j in which]
    return ", ".join(shown[:8]) + (f", ... ({len(shown)} joints)" if len(shown) > 8 else "")


def _joint_of(which: list[JointInfo], i: int, size: str) -> str:
    """The joint that number i of all of theirs belongs to."""
    ends = np.cumsum([getattr(j, size) for j in which])
    return which[int(np.searchsorted(ends, i, side="right"))].name


def _target(x, which: list[JointInfo], size: int) -> np.ndarray:
    """(kq,) with unit quaternions."""
    what = "target of pd_drive"
    x = np.atleast_1d(checks.array(x, what, f"{size} numbers")).copy()
    if x.shape != (size,):
        raise ModelError(f"{what} has shape {x.shape}; wanted ({size},): {_spans(which, 'nq')}")
    for i in np.flatnonzero(~np.isfinite(x))[:1]:
        raise ModelError(f"{what}, joint {_joint_of(which, i, 'nq')!r}: {x[i]} is not finite")
    first = 0
    for j in which:
        if j.nq > j.nv:  # its last four are a quaternion
            p = x[first + j.nq - 4 : first + j.nq]
            checks.unit_quaternion(p, f"{what}, joint {j.name!r}")
            p /= np.linalg.norm(p)
        first += j.nq
    return x


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointForce:
    """A constant generalised force; a leaf, so it can be learnt, or set anew at every step.

    Example:
        >>> forces.joint_force(arm, [1.0, 0.0]).tau
        Array([1., 0.], dtype=float64)
    """

    tau: jax.Array  # (nv,) N or N m

    def load(self, model: Model, at: Instant) -> Load:
        """Itself."""
        return Load(tau=self.tau)

    def describe(self, model: Model) -> tuple[str, str]:
        """Where it is not zero."""
        return "JointForce", dofs(self.tau)


def joint_force(model: Model, tau) -> JointForce:
    """A constant generalised force tau (nv,) N or N m in the order of v, MuJoCo's qfrc_applied.

    A ball's three are a torque in the axes of its body; a free joint's first three a force in those of the world. For
    forces that a control sets, take `with_actuators(model, *motors(model))`.

    Raises:
        ModelError: a wrong length, NaN.

    Example:
        >>> pushed = pbad.with_forces(arm, forces.joint_force(arm, [1.0, 0.0]))
        >>> newton_euler.acceleration(pushed, pbad.make_state(pushed)).round(3)
        Array([ 1.607, -3.933], dtype=float64)
    """
    check_model(model)
    return JointForce(jnp.asarray(checks.vector(tau, model.nv, "tau of joint_force"), model.dtype))
