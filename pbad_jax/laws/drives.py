"""What drives joints without a control: PD drives to a target, and constant forces. Actuators are in line_laws.py.

A PD drive is τ = clip(−kp d − kd v), d from its target to q, implicit in position and velocity; where it is clipped its
derivatives are zero.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.kinematics.manifold import difference
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.balls import difference_slope
from pbad_jax.laws.force import dofs
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.joints import JointInfo
from pbad_jax.model.model import Model, check_model


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
    # whether balls have the same gain about each axis, and no limit: then their torque has a potential
    even: bool = dataclasses.field(default=False, metadata=STATIC)
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
        """Σ ∫ clip(kp d) dd, J; None where the gains of a ball are not `even`, inf where they are not any more."""
        qi, vi = np.array(self.q_index), np.array(self.v_index)
        balls = [np.flatnonzero(np.isin(vi, own)) for own in tree(model.topology).ball_v if np.isin(own, vi).any()]
        if balls and not self.even:
            return None
        d = difference(model, model.q0.at[qi].set(self.target), at.q)[vi]
        f = jnp.clip(self.kp * d, -self.force_limit, self.force_limit)
        stored = jnp.sum(f * (d - 0.5 * f / jnp.where(self.kp == 0, 1.0, self.kp)))
        uneven = [jnp.any((self.kp[i] != self.kp[i[0]]) | jnp.isfinite(self.force_limit[i])) for i in balls]
        return jnp.where(jnp.any(jnp.stack(uneven)), jnp.inf, stored) if uneven else stored

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
    balls = [[v.index(i) for i in own] for own in tree(model.topology).ball_v.tolist() if own[0] in v]
    even = all(np.ptp(gains[0][i]) == 0 and np.all(np.isinf(limit[i])) for i in balls)
    kp, kd, wanted, limit = (jnp.asarray(x, model.dtype) for x in (*gains, wanted, limit))
    return PDDrive(kp, kd, wanted, limit, tuple(q), tuple(v), even)


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
