"""The Newton matrix of the stage equation (equation.py), from the StageTerms of its residual.

What forces and armature add in the joints is made once, as JointTerms; then it is laid out dense, or handed to the
sweeps, which take one stage and no coupling of joints or links (dynamics.instant.coupling).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom.operator import KERNEL, RECURRENCES, Operator
from pbad_jax.atom.sweeps import NewtonMatrix
from pbad_jax.dynamics import point_forces
from pbad_jax.kinematics import joint_field
from pbad_jax.kinematics.joint_field import Slopes
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.load import Load
from pbad_jax.math import rotations
from pbad_jax.math.small import identity_like, matmul
from pbad_jax.model.model import Model
from pbad_jax.stage import by_kernel
from pbad_jax.stage.terms import StageTerms


class JointTerms(NamedTuple):
    """What the joints add to the blocks J_ij: on the diagonal, on the balls, and between joints."""

    diagonal: jax.Array  # (m,m,nv)
    balls: jax.Array | None  # (m,m,nball,3,3); None: there are none
    full: jax.Array | None  # (m,m,nv,nv); None: nothing couples joints


def newton_matrix(model: Model, C: jax.Array, D: jax.Array, t: StageTerms, recurrence: str) -> Operator:
    """(h dt)² J (m·nv, m·nv), kg m² or kg, of the table C, D (m,m); for the sweeps as they take it, m = 1."""
    if recurrence == "sweeps":
        return _for_sweeps(model, C[0, 0], D[0, 0], t)
    m, nv = len(t.z), model.nv
    if recurrence == KERNEL:
        blocks = by_kernel.blocks(model, C, D, t)
        t = t._replace(load=by_kernel.coupling(t.load), end=None if t.end is None else by_kernel.coupling(t.end))
    else:
        blocks = _inertial_blocks(model, RECURRENCES[recurrence], C, t.frames, t.curving)
    blocks = blocks + _laid_out(model, _joint_terms(model, t, coupled=True))
    if t.load.point_forces:
        blocks = blocks - _point_blocks(model, D, t)
    if t.end is not None and t.end.point_forces:
        blocks = blocks.at[:, -1].add(-t.impulse[:, None, None] * _impulse_column(model, t, t.end))
    if t.sparse.slope is not None:
        blocks = blocks.at[:, -1].add(-t.impulse[:, None, None] * t.sparse.slope)
    return jnp.moveaxis(blocks, 2, 1).reshape(m * nv, m * nv)


def _for_sweeps(model: Model, c: jax.Array, d: jax.Array, t: StageTerms) -> NewtonMatrix:
    joint = jax.tree.map(lambda x: x[0, 0], _joint_terms(model, t, coupled=False))
    f, load = jax.tree.map(lambda x: x[0], (t.frames, t.load))
    parts, slopes = list(load.point_forces), point_forces.weighted(load, d)
    if t.end is not None:
        parts, slopes = parts + list(t.end.point_forces), slopes + point_forces.weighted(t.end, 1.0)
    form = point_forces.total_link_form(model, f, f, parts, slopes)
    diagonal = joint.diagonal.at[tree(model.topology).ball_v].set(0.0) if joint.balls is not None else joint.diagonal
    return NewtonMatrix(f, c, t.curving[0], diagonal, joint.balls, None if form is None else -form)


# --- joints ----------------------------------------------------------------------------------------------


def _joint_terms(model: Model, t: StageTerms, *, coupled: bool) -> JointTerms:
    """Armature, the slopes of joint forces, and what exponential coordinates add on balls, −½ [r]."""
    balls, same = tree(model.topology).ball_v, jnp.eye(len(t.z), dtype=t.z.dtype)
    # armature, and of balls the turning of what their residual pulls at
    terms = JointTerms(model.armature[None, None] * t.accel.scalar[..., None], None, None)
    if t.accel.balls is not None:
        curl = 0.5 * same[:, :, None, None, None] * rotations.hat(t.joint_r[:, balls])[:, None]
        terms = terms._replace(balls=model.armature[balls][None, None, ..., None] * t.accel.balls - curl)
    # less the slopes of forces along joints, at the stages
    terms = _less(model, terms, t.load.dtau_dq, _identity(model, same), coupled=coupled)
    terms = _less(model, terms, t.load.dtau_dv, t.rate, coupled=coupled)
    if t.end is None:
        return terms
    by_q, by_v = (None if x is None else x[None] for x in (t.end.dtau_dq, t.end.dtau_dv))
    column = (t.impulse[:, None] * same[-1:])[..., None]  # the end of the step acts on all stages
    rate = Slopes(column[..., 0], None)
    if terms.balls is not None:
        rate = rate._replace(balls=column[..., None, None] * joint_field.log_slopes(model, t.z[-1])[None, None])
    terms = _less(model, terms, by_q, _identity(model, column[..., 0]), coupled=coupled)
    return _less(model, terms, by_v, rate, coupled=coupled)


def _identity(model: Model, W: jax.Array) -> Slopes:
    """The derivative W_ij E of W_ij z_j."""
    nball = len(tree(model.topology).balls)
    eye = jnp.broadcast_to(jnp.eye(3, dtype=W.dtype), (1, 1, nball, 3, 3))
    return Slopes(W, W[:, :, None, None, None] * eye if nball else None)


def _less(model: Model, terms: JointTerms, slope: jax.Array | None, by_z: Slopes, *, coupled: bool) -> JointTerms:
    """terms − slope_i by_z_ij, of a joint force's derivative (m,nv) or (m,nv,nv).

    Of the latter, where joints are not `coupled`, the diagonal and the blocks of the balls.
    """
    if slope is None:
        return terms
    if slope.ndim == 3 and coupled:
        more = joint_field.chained(model, slope, by_z)
        return terms._replace(full=-more if terms.full is None else terms.full - more)
    diagonal, blocks = jax.vmap(lambda x: joint_field.on_joints(model, x))(slope)
    terms = terms._replace(diagonal=terms.diagonal - diagonal[:, None] * by_z.scalar[..., None])
    if terms.balls is None or by_z.balls is None:
        return terms
    return terms._replace(balls=terms.balls - matmul(blocks[:, None], by_z.balls))


def _laid_out(model: Model, terms: JointTerms) -> jax.Array:
    """As (m,m,nv,nv)."""
    blocks = terms.diagonal[..., None] * identity_like(terms.diagonal)
    blocks = joint_field.with_ball_blocks(model, blocks, terms.balls)
    return blocks if terms.full is None else blocks + terms.full


# --- points of the links ---------------------------------------------------------------------------------


def _point_blocks(model: Model, D: jax.Array, t: StageTerms) -> jax.Array:
    """What the points' forces add at the stages: [i = j] ∂f/∂P + D_ij ∂f/∂V, (m,m,nv,nv)."""
    m = len(D)

    def block(i: int, j: int) -> jax.Array:
        f_i, f_j = (_stage(t.frames, k) for k in (i, j))
        parts = list(_stage(t.load.point_forces, i))
        slopes = [point_forces.slope_of(p, D[i, j], by_P=i == j) for p in parts]
        return point_forces.total_matrix(model, f_i, f_j, parts, slopes)

    return jnp.stack([jnp.stack([block(i, j) for j in range(m)]) for i in range(m)])


def _impulse_column(model: Model, t: StageTerms, end: Load) -> jax.Array:
    """What the points' forces at the end of the step do to every stage, by the end of the step, (m,nv,nv)."""
    parts, slopes, last = list(end.point_forces), point_forces.weighted(end, 1.0), _stage(t.frames, -1)
    each = [point_forces.total_matrix(model, _stage(t.frames, i), last, parts, slopes) for i in range(len(t.z))]
    return jnp.stack(each)


def _stage(x, i: int):
    return jax.tree.map(lambda leaf: leaf[i], x)


# --- inertia ---------------------------------------------------------------------------------------------


def _inertial_blocks(model: Model, recurrence, C: jax.Array, f: Frames, A: jax.Array) -> jax.Array:
    """C_ij ∂²I(q_i,q_j)/∂q_i∂q_j + [i = j] Σ <∂²T, A_i>, (m,m,nv,nv); blocks below the diagonal by transposition."""
    m = C.shape[0]
    pairs = [(i, j) for i in range(m) for j in range(i, m)]
    f_a = jax.tree.map(lambda x: jnp.stack([x[i] for i, _ in pairs]), f)
    f_b = jax.tree.map(lambda x: jnp.stack([x[j] for _, j in pairs]), f)
    H = jax.vmap(lambda a, b: recurrence.mixed_hess(model, a, b))(f_a, f_b)
    K = jax.vmap(lambda f_i, A_i: recurrence.pullback_hess(model, f_i, A_i))(f, A)
    place = {p: H[k] for k, p in enumerate(pairs)}
    rows = []
    for i in range(m):
        row = [C[i, j] * (place[i, j] if i <= j else place[j, i].T) for j in range(m)]
        row[i] = row[i] + K[i]
        rows.append(jnp.stack(row))
    return jnp.stack(rows)
