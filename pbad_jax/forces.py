"""Forces. Each is a small pytree with one method, `load`, evaluated at every stage of a step.

    class MyForce:                                   # a frozen dataclass registered as a pytree
        def load(self, model, at: Point) -> Load:    # what it does at one stage
        def potential(self, model, at: Point):       # optional, J: enters `potential_energy`

A body-wise force gives `field`, ∂Q/∂T^l (N,3,4) (N in the last column, N m in the others): the entrywise product
with a virtual displacement δT is minus its work. A joint-wise force gives `tau` (nv,) and its two derivatives,
which keep the Newton matrix exact; each may be a diagonal (nv,) or a full (nv,nv) matrix. Derivatives by q are
taken along q ⊕ δ (body-frame rotation vectors for ball and free joints).
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import joints
from pbad_jax.joints import matvec
from pbad_jax.kinematics import tree
from pbad_jax.model import Model


class Point(NamedTuple):
    """Where a force is evaluated: one stage of one lane."""

    q: jax.Array  # (nq,) rad, m
    v: jax.Array  # (nv,) rad/s, m/s: the rates of the scheme at this stage
    T: jax.Array  # (N,3,4) world transforms of the links, m
    time: jax.Array  # () s
    control: jax.Array  # (nu,)


class Load(NamedTuple):
    """What a force adds; None where it has nothing to say."""

    field: jax.Array | None = None  # (N,3,4) ∂Q/∂T
    tau: jax.Array | None = None  # (nv,) N or N m
    dtau_dq: jax.Array | None = None  # (nv,) or (nv,nv)
    dtau_dv: jax.Array | None = None  # (nv,) or (nv,nv)


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Gravity:
    """Uniform gravity, `model.gravity` (m/s²): Q = −Σ_l g · ∫ρ P. Linear in T, so it has no curvature."""

    def load(self, model: Model, at: Point) -> Load:
        """∂Q/∂T^l = −g [∫ρp; m]ᵀ."""
        return Load(field=-model.gravity[None, :, None] * model.second_moment[:, None, :, 3])

    def potential(self, model: Model, at: Point) -> jax.Array:
        """−Σ m g · com, J; zero at the world's origin."""
        return -jnp.sum(matvec(at.T, model.second_moment[:, :, 3]) @ model.gravity)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["stiffness", "rest"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class JointSpring:
    """Linear springs, Q = ½ Σ k_x d_x², with d the rotation vector (ball) or difference from `rest` to q.

    A free joint's translation is sprung per axis, its rotation as a ball, both as in MuJoCo. On a ball the three
    stiffnesses must be equal for the energy to exist; `build_model` makes them so.
    """

    stiffness: jax.Array  # (nv,) N/m or N m/rad
    rest: jax.Array  # (nq,)

    def load(self, model: Model, at: Point) -> Load:
        """τ = −k d; ∂τ/∂δ = −k ∂log/∂δ."""
        d = self._extension(model, at.q)
        t = tree(model.topology)
        curvature = -self.stiffness
        if t.balls.size:
            J = joints.right_jacobian_inverse(d[t.ball_v])
            curvature = jnp.diag(curvature)
            rows, columns = t.ball_v[:, :, None], t.ball_v[:, None, :]
            curvature = curvature.at[rows, columns].set(-self.stiffness[t.ball_v][..., None] * J)
        return Load(tau=-self.stiffness * d, dtau_dq=curvature)

    def potential(self, model: Model, at: Point) -> jax.Array:
        """½ Σ k d², J."""
        return 0.5 * jnp.sum(self.stiffness * self._extension(model, at.q) ** 2)

    def _extension(self, model: Model, q: jax.Array) -> jax.Array:
        t = tree(model.topology)
        d = jnp.zeros(model.nv, q.dtype).at[t.scalar_v].set(q[t.scalar_q] - self.rest[t.scalar_q])
        if t.balls.size:
            p = joints.quaternion_product(joints.quaternion_inverse(self.rest[t.ball_q]), q[t.ball_q])
            d = d.at[t.ball_v].set(joints.quaternion_log(p))
        return d


@functools.partial(jax.tree_util.register_dataclass, data_fields=["coefficient"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class JointDamping:
    """Linear joint damping, τ = −d v; independent of dt."""

    coefficient: jax.Array  # (nv,) N s/m or N m s/rad

    def load(self, model: Model, at: Point) -> Load:
        """τ = −d v, evaluated at the stage: implicit."""
        return Load(tau=-self.coefficient * at.v, dtau_dv=-self.coefficient)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["gear", "gain", "bias", "control_range", "force_range"],
    meta_fields=["q_index", "v_index"],
)
@dataclasses.dataclass(frozen=True)
class Actuation:
    """Affine actuators on hinges and slides, implicit in position and velocity.

    f = clip(gain · clip(u) + bias · (1, gear q, gear v), force_range);  τ = gear f. MuJoCo's motor, position,
    velocity and general (affine bias) actuators. Where f is clipped its derivatives are zero.
    """

    gear: jax.Array  # (nu,)
    gain: jax.Array  # (nu,)
    bias: jax.Array  # (nu,3)
    control_range: jax.Array  # (nu,2), ±inf = unlimited
    force_range: jax.Array  # (nu,2)
    q_index: tuple[int, ...]
    v_index: tuple[int, ...]

    def load(self, model: Model, at: Point) -> Load:
        """τ and its diagonal derivatives."""
        qi, vi = jnp.asarray(self.q_index), jnp.asarray(self.v_index)
        u = jnp.clip(at.control, self.control_range[:, 0], self.control_range[:, 1])
        length, speed = self.gear * at.q[qi], self.gear * at.v[vi]
        f = self.gain * u + self.bias[:, 0] + self.bias[:, 1] * length + self.bias[:, 2] * speed
        low, high = self.force_range[:, 0], self.force_range[:, 1]
        slope = jnp.where((f > low) & (f < high), self.gear**2, 0.0)
        zero = jnp.zeros(model.nv, f.dtype)
        return Load(
            tau=zero.at[vi].add(self.gear * jnp.clip(f, low, high)),
            dtau_dq=zero.at[vi].add(slope * self.bias[:, 1]),
            dtau_dv=zero.at[vi].add(slope * self.bias[:, 2]),
        )


def total_load(model: Model, at: Point) -> Load:
    """The sum of all forces of the model at one stage."""
    total = Load()
    for force in model.forces:
        total = Load(*(_plus(a, b) for a, b in zip(total, force.load(model, at))))
    return total


def _plus(a: jax.Array | None, b: jax.Array | None) -> jax.Array | None:
    if a is None:
        return b
    if b is None:
        return a
    if (a.ndim, b.ndim) == (1, 2):  # a diagonal and a full matrix
        return jnp.diag(a) + b
    if (a.ndim, b.ndim) == (2, 1):
        return a + jnp.diag(b)
    return a + b


def total_potential(model: Model, at: Point) -> jax.Array:
    """Potential energy of all forces that have one, J."""
    parts = [f.potential(model, at) for f in model.forces if hasattr(f, "potential")]
    return sum(parts, jnp.zeros((), model.dtype))
