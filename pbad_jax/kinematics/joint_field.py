"""The joints' own coordinates as a linear field: what the transforms are for the bodies.

Hinges and slides count as their coordinate, a ball as the nine entries of its rotation R relative to q_k: so that the
table of a scheme acts on them as on the transforms, with no chart and no singular angle. The armature and the rates
that joint forces see come from here. A field is (k,), k = scalars + 9 balls, zero at q_k.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.kinematics.manifold import identity_increment
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import rotations
from pbad_jax.math.small import identity_like, matmul, transpose
from pbad_jax.model.model import Model


class Field(NamedTuple):
    """Something linear: transforms (...,N,3,4), or their differences and rates, and joint coordinates (...,k)."""

    T: jax.Array
    joint: jax.Array


class Slopes(NamedTuple):
    """Derivatives of m values by m increments: `scalar` (m,m) of hinges and slides, `balls` (m,m,nball,3,3) or None."""

    scalar: jax.Array
    balls: jax.Array | None


def _join(scalar: jax.Array, balls: jax.Array | None) -> jax.Array:
    return scalar if balls is None else jnp.concatenate([scalar, balls.reshape(-1)])


def _split(model: Model, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scalars (...,n) and rotations (...,nball,3,3)."""
    n = len(tree(model.topology).scalar_q)
    return u[..., :n], u[..., n:].reshape(*u.shape[:-1], -1, 3, 3)


def _rotations(model: Model, z: jax.Array) -> jax.Array:
    """R(z) (...,nball,3,3) of increments z (...,nq)."""
    dR = rotations.rotation_minus_identity(z[..., tree(model.topology).ball_q])
    return dR + identity_like(dR[..., 0])


def difference(model: Model, z: jax.Array) -> jax.Array:
    """The field (k,) at the increment z (nq,): z itself, R(z) − E."""
    t = tree(model.topology)
    balls = rotations.rotation_minus_identity(z[t.ball_q]) if t.balls.size else None
    return _join(z[t.scalar_q], balls)


def rate(model: Model, v: jax.Array, z: jax.Array | None = None) -> jax.Array:
    """The rate (k,) of the field at velocity v (nv,) and increment z (nq,), default none: v, R [ω]."""
    t = tree(model.topology)
    if not t.balls.size:
        return v[t.scalar_v]
    R = _rotations(model, identity_increment(model) if z is None else z)
    return _join(v[t.scalar_v], matmul(R, rotations.hat(v[t.ball_v])))


def second_rate(model: Model, v: jax.Array, a: jax.Array, z: jax.Array) -> jax.Array:
    """Its second rate (k,): a, R ([ω̇] + [ω]²)."""
    t = tree(model.topology)
    if not t.balls.size:
        return a[t.scalar_v]
    w = rotations.hat(v[t.ball_v])
    return _join(a[t.scalar_v], matmul(_rotations(model, z), rotations.hat(a[t.ball_v]) + matmul(w, w)))


def pullback(model: Model, z: jax.Array, u: jax.Array) -> jax.Array:
    """A field's rate u (k,) as a velocity (nv,) at z: u, and the body vector of Rᵀ u (half its antisymmetric part)."""
    t = tree(model.topology)
    scalar, balls = _split(model, u)
    if not t.balls.size:
        return scalar
    out = jnp.zeros(model.nv, u.dtype).at[t.scalar_v].set(scalar)
    return out.at[t.ball_v].set(0.5 * rotations.vee(matmul(transpose(_rotations(model, z)), balls)))


def weights(model: Model, armature: jax.Array) -> jax.Array:
    """(k,) such that ½ Σ weights u² is the armature's energy at rate u; a ball's three must be equal."""
    t = tree(model.topology)
    balls = jnp.repeat(0.5 * armature[t.ball_v[:, :1]], 9, axis=1) if t.balls.size else None
    return _join(armature[t.scalar_v], balls)


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


def full(model: Model, slopes: Slopes) -> jax.Array:
    """Slopes as (m,m) where there is no ball (the same for every degree of freedom), else (m,m,nv,nv)."""
    if slopes.balls is None:
        return slopes.scalar
    t, W = tree(model.topology), slopes.scalar
    by_z = jnp.zeros((*W.shape, model.nv, model.nv), W.dtype).at[:, :, t.scalar_v, t.scalar_v].set(W[:, :, None])
    return by_z.at[:, :, t.ball_v[:, :, None], t.ball_v[:, None, :]].set(slopes.balls)


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
