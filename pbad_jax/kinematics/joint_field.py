"""The joints' own coordinates as a linear field: what the transforms are for the bodies.

Hinges and slides count as their coordinate, a ball as the nine entries of its rotation R relative to q_k: so that the
table of a scheme acts on them as on the transforms, with no chart and no singular angle. The armature and the rates
that joint forces see come from here. A field is (k,), k = scalars + 9 balls, zero at q_k.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.kinematics.manifold import identity_increment
from pbad_jax.kinematics.tree import on_dofs, tree
from pbad_jax.math import rotations
from pbad_jax.math.small import identity_like, matmul, small_sum, take, transpose
from pbad_jax.model.model import Model


class Field(NamedTuple):
    """Something linear: transforms (...,N,3,4), or their differences and rates, and joint coordinates (...,k)."""

    T: jax.Array
    joint: jax.Array


class Slopes(NamedTuple):
    """Derivatives of m values by m increments: `scalar` (m,m) of hinges and slides, `balls` (m,m,nball,3,3) or None."""

    scalar: jax.Array
    balls: jax.Array | None


def _join(model: Model, scalar: jax.Array, balls: Callable[[], jax.Array]) -> jax.Array:
    if not tree(model.topology).balls.size:
        return scalar
    return jnp.concatenate([scalar, balls().reshape(-1)])


def _split(model: Model, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scalars (...,n) and rotations (...,nball,3,3)."""
    n = len(tree(model.topology).scalar_q)
    return u[..., :n], u[..., n:].reshape(*u.shape[:-1], -1, 3, 3)


def _rotations(model: Model, z: jax.Array) -> jax.Array:
    """R(z) (...,nball,3,3) of increments z (...,nq)."""
    dR = rotations.rotation_minus_identity(take(z, tree(model.topology).ball_q, -1))
    return dR + identity_like(dR[..., 0])


def difference(model: Model, z: jax.Array) -> jax.Array:
    """The field (k,) at the increment z (nq,): z itself, R(z) − E."""
    t = tree(model.topology)
    return _join(model, take(z, t.scalar_q), lambda: rotations.rotation_minus_identity(take(z, t.ball_q)))


def rate(model: Model, v: jax.Array, z: jax.Array | None = None) -> jax.Array:
    """The rate (k,) of the field at velocity v (nv,) and increment z (nq,), default none: v, R [ω]."""
    t = tree(model.topology)
    z = identity_increment(model) if z is None else z
    return _join(model, take(v, t.scalar_v), lambda: matmul(_rotations(model, z), rotations.hat(take(v, t.ball_v))))


def second_rate(model: Model, v: jax.Array, a: jax.Array, z: jax.Array) -> jax.Array:
    """Its second rate (k,): a, R ([ω̇] + [ω]²)."""
    t = tree(model.topology)

    def balls():
        w = rotations.hat(take(v, t.ball_v))
        return matmul(_rotations(model, z), rotations.hat(take(a, t.ball_v)) + matmul(w, w))

    return _join(model, take(a, t.scalar_v), balls)


def pullback(model: Model, z: jax.Array, u: jax.Array) -> jax.Array:
    """A field's rate u (k,) as a velocity (nv,) at z: u, and the body vector of Rᵀ u (half its antisymmetric part)."""
    scalar, balls = _split(model, u)
    return on_dofs(model, scalar, lambda: 0.5 * rotations.vee(matmul(transpose(_rotations(model, z)), balls)))


def weights(model: Model, armature: jax.Array) -> jax.Array:
    """(k,) such that ½ Σ weights u² is the armature's energy at rate u; a ball's three must be equal."""
    t = tree(model.topology)
    return _join(model, take(armature, t.scalar_v), lambda: jnp.repeat(0.5 * armature[t.ball_v[:, :1]], 9, axis=1))


def table(model: Model, W: jax.Array, z: jax.Array, u: jax.Array, known: jax.Array) -> tuple[jax.Array, Slopes]:
    """Σ_j W_ij u_j + known_i as velocities at z_i, and its derivative by z.

    Args:
        model: the model. W: (m,m). z: (m,nq). u: (m,k), the fields at z. known: (m,k).

    Returns:
        (m,nv) values, and derivatives along z_j ⊕ δ: W for every hinge and slide, (m,m,nball,3,3) for balls.
    """
    t, m = tree(model.topology), z.shape[0]
    total = W @ u + known
    value = jax.vmap(lambda z_i, u_i: pullback(model, z_i, u_i))(z, total)
    if not t.balls.size:
        return value, Slopes(W, None)
    R = _rotations(model, z)
    P = matmul(transpose(R), _split(model, total)[1])
    # by z_j: ½(tr(P) E − Pᵀ) of P = R_iᵀ R_j; by z_i through R_iᵀ: −½(tr(P) E − P)
    through_j = W[:, :, None, None, None] * _half_trace(matmul(transpose(R)[:, None], R[None]), transposed=True)
    through_i = jnp.eye(m, dtype=z.dtype)[:, :, None, None, None] * -_half_trace(P, transposed=False)[:, None]
    return value, Slopes(W, through_j + through_i)


def chained(model: Model, slope: jax.Array, by_z: Slopes) -> jax.Array:
    """slope_i by_z_ij (m,m,nv,nv), the chain rule for a joint force's derivative `slope` (m,nv,nv) or (1,nv,nv)."""
    balls = tree(model.topology).ball_v
    product = slope[:, None] * by_z.scalar[:, :, None, None]
    if by_z.balls is None:
        return product
    columns = slope[:, None][..., balls]  # (m,1,nv,nball,3)
    return product.at[..., balls].set(small_sum(columns[..., None] * by_z.balls[:, :, None], axis=-2))


def with_ball_blocks(model: Model, matrix: jax.Array, blocks: jax.Array | None) -> jax.Array:
    """A matrix (...,nv,nv) whose blocks on the balls are `blocks` (...,nball,3,3); None: there are none."""
    if blocks is None:
        return matrix
    balls = tree(model.topology).ball_v
    return matrix.at[..., balls[:, :, None], balls[:, None, :]].set(blocks)


def log_slopes(model: Model, z: jax.Array) -> jax.Array:
    """∂ log(z)/∂z of the balls at an increment z (nq,): Jr⁻¹, (nball,3,3)."""
    return rotations.right_jacobian_inverse(rotations.quaternion_log(take(z, tree(model.topology).ball_q)))


def as_matrix(slope: jax.Array) -> jax.Array:
    """A joint force's derivative, a diagonal (nv,) or a matrix (nv,nv), as (nv,nv)."""
    return slope if slope.ndim == 2 else jnp.diag(slope)


def on_joints(model: Model, slope: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Of a joint force's derivative (nv,), (nv,nv) or None: the diagonal (nv,) and the balls' blocks (nball,3,3)."""
    balls, dtype = tree(model.topology).ball_v, model.armature.dtype
    slope = jnp.zeros(model.nv, dtype) if slope is None else slope
    if slope.ndim == 2:
        return jnp.diagonal(slope), slope[balls[:, :, None], balls[:, None, :]]
    return slope, slope[balls][..., None] * identity_like(slope[balls])


def _half_trace(P: jax.Array, *, transposed: bool) -> jax.Array:
    """½ (tr(P) E − P), or with Pᵀ."""
    trace = jnp.trace(P, axis1=-2, axis2=-1)[..., None, None]
    return 0.5 * (trace * identity_like(P[..., 0]) - (transpose(P) if transposed else P))
