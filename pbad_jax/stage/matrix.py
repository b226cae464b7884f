"""The Newton matrix of the stage equation, from the StageTerms of its residual: dense, or as what the sweeps take."""

from typing import Any

import jax
import jax.numpy as jnp

from pbad_jax.atom import sweeps
from pbad_jax.atom.operator import TWINS
from pbad_jax.dynamics import point_forces
from pbad_jax.forces.force import Load
from pbad_jax.kinematics import joint_field, transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import rotations
from pbad_jax.math.small import matmul
from pbad_jax.model.model import Model
from pbad_jax.stage.equation import StageEquation, StageTerms, StepStart, evaluate


def residual_and_matrix(
    model: Model,
    start: StepStart,
    eq: StageEquation,
    z: jax.Array,
    h: Any = 1.0,
    *,
    twin: str = "parallel",
    regime: str = "tangent",
) -> tuple[jax.Array, jax.Array]:
    """`evaluate`, and the `matrix`."""
    r, terms = evaluate(model, start, eq, z, h, twin=twin, regime=regime)
    return r, matrix(model, eq, terms, twin=twin)


def residual_and_tree(
    model: Model, start: StepStart, eq: StageEquation, z: jax.Array, h: Any = 1.0, *, regime: str = "tangent"
) -> tuple[jax.Array, sweeps.NewtonMatrix]:
    """`evaluate` for one stage, and the `tree_matrix`, in O(N)."""
    r, terms = evaluate(model, start, eq, z, h, dense=False, regime=regime)
    return r, tree_matrix(model, eq, terms)


def matrix(model: Model, eq: StageEquation, t: StageTerms, *, twin: str = "parallel") -> jax.Array:
    """(h dt)² J (m·nv, m·nv), kg m² or kg."""
    m, nv = len(t.z), model.nv
    blocks = _inertial_blocks(model, TWINS[twin], eq.C, t.frames, t.A)
    blocks = blocks + _rows(model.armature, joint_field.full(model, t.accel))
    if t.load.dtau_dq is not None:
        blocks = blocks - jnp.eye(m, dtype=t.z.dtype)[:, :, None, None] * _full(t.load.dtau_dq)[:, None]
    if t.load.dtau_dv is not None:
        blocks = blocks - _product(t.load.dtau_dv, joint_field.full(model, t.rate))
    if t.load.point_forces:
        blocks = blocks + _pull_blocks(model, eq.D, t)
    if t.end is not None:
        blocks = blocks.at[:, -1].add(_impulse_blocks(model, t))
    blocks = _exponential_coordinates(model, blocks, t.joint_r)
    return jnp.moveaxis(blocks, 2, 1).reshape(m * nv, m * nv)


def _pull_blocks(model: Model, D: jax.Array, t: StageTerms) -> jax.Array:
    """What the points' forces add at the stages: −([i = j] ∂f/∂P + D_ij ∂f/∂V), (m,m,nv,nv)."""
    m = len(D)

    def block(i: int, j: int) -> jax.Array:
        f_i, f_j = (jax.tree.map(lambda x, k=k: x[k], t.frames) for k in (i, j))
        here = [jax.tree.map(lambda x: x[i], p) for p in t.load.point_forces]
        slopes = [weighted_jacobian(p.df_dP if i == j else None, p.df_dV, D[i, j]) for p in here]
        return -point_forces.total_matrix(model, f_i, f_j, here, slopes)

    return jnp.stack([jnp.stack([block(i, j) for j in range(m)]) for i in range(m)])


def weighted_jacobian(df_dP: jax.Array | None, df_dV: jax.Array | None, weight) -> jax.Array | None:
    """∂f/∂P + weight ∂f/∂V, of what there is."""
    if df_dV is None:
        return df_dP
    return weight * df_dV if df_dP is None else df_dP + weight * df_dV


def _impulse_blocks(model: Model, t: StageTerms) -> jax.Array:
    """What acts once a step adds to the last column: by the end of the step only. (m,nv,nv)."""
    end, m = t.end, len(t.impulse)
    assert end is not None
    last = jax.tree.map(lambda x: x[-1], t.frames)
    slopes = [weighted_jacobian(p.df_dP, p.df_dV, 1.0) for p in end.point_forces]
    out = []
    for i in range(m):
        f = jax.tree.map(lambda x, i=i: x[i], t.frames)
        out.append(-point_forces.total_matrix(model, f, last, list(end.point_forces), slopes))
    joint = _joint_jacobian(model, end, t.z[-1])
    return t.impulse[:, None, None] * (jnp.stack(out) - joint[None])


def _joint_jacobian(model: Model, end: Load, z: jax.Array) -> jax.Array:
    """∂τ/∂q + ∂τ/∂v̄ ∂v̄/∂q (nv,nv) at the mean rates v̄ = log(z)/dt."""
    slope = jnp.zeros((model.nv, model.nv), z.dtype)
    if end.dtau_dq is not None:
        slope = slope + joint_field.as_matrix(end.dtau_dq)
    if end.dtau_dv is not None:
        slope = slope + joint_field.as_matrix(end.dtau_dv) @ _log_jacobian(model, z)
    return slope


def _log_jacobian(model: Model, z: jax.Array) -> jax.Array:
    """∂ log(z)/∂z (nv,nv): the identity, and Jr⁻¹ on the balls."""
    t, out = tree(model.topology), jnp.eye(model.nv, dtype=z.dtype)
    if not t.balls.size:
        return out
    return out.at[t.ball_v[:, :, None], t.ball_v[:, None, :]].set(_ball_log_jacobians(model, z))


def _ball_log_jacobians(model: Model, z: jax.Array) -> jax.Array:
    return rotations.right_jacobian_inverse(rotations.quaternion_log(z[tree(model.topology).ball_q]))


def tree_matrix(model: Model, eq: StageEquation, t: StageTerms) -> sweeps.NewtonMatrix:
    """(h dt)² J for one stage as a sweeps.Matrix, in O(N).

    No force may couple joints or links (dynamics.instant.coupling): of the derivatives of joint forces it takes the
    diagonal and the blocks of the balls, and points' forces have to stay on their link.
    """
    balls = tree(model.topology).ball_v
    f, A, joint_r, load = jax.tree.map(lambda x: x[0], (t.frames, t.A, t.joint_r, t.load))
    by_q, by_q_balls = joint_field.on_joints(model, load.dtau_dq)
    by_v, by_v_balls = joint_field.on_joints(model, load.dtau_dv)
    d = model.armature * t.accel.scalar[0, 0] - by_q - by_v * t.rate.scalar[0, 0]
    blocks = None
    if t.accel.balls is not None and t.rate.balls is not None:
        blocks = model.armature[balls][..., None] * t.accel.balls[0, 0]
        blocks = blocks - 0.5 * rotations.hat(joint_r[balls])
        blocks = blocks - by_q_balls - matmul(by_v_balls, t.rate.balls[0, 0])
    parts, slopes = (
        list(load.point_forces),
        [weighted_jacobian(p.df_dP, p.df_dV, eq.D[0, 0]) for p in load.point_forces],
    )
    if t.end is not None:
        parts, slopes = (
            parts + list(t.end.point_forces),
            slopes + [weighted_jacobian(p.df_dP, p.df_dV, 1.0) for p in t.end.point_forces],
        )
        by_q, by_q_balls = joint_field.on_joints(model, t.end.dtau_dq)
        by_v, by_v_balls = joint_field.on_joints(model, t.end.dtau_dv)
        d = d - by_q - by_v
        if blocks is not None:
            blocks = blocks - by_q_balls - matmul(by_v_balls, _ball_log_jacobians(model, t.z[0]))
    form = point_forces.total_link_form(model, f, f, parts, slopes)
    d = d if blocks is None else d.at[balls].set(0.0)
    return sweeps.NewtonMatrix(f, eq.C[0, 0], A, d, blocks, None if form is None else -form)


def _inertial_blocks(model: Model, recurrence, C: jax.Array, f: transforms.Frames, A: jax.Array) -> jax.Array:
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


def _full(d: jax.Array) -> jax.Array:
    """Diagonals (m,nv) to matrices (m,nv,nv); matrices unchanged."""
    return d if d.ndim == 3 else d[..., None] * jnp.eye(d.shape[-1], dtype=d.dtype)[None]


def _product(d: jax.Array, by_z: jax.Array) -> jax.Array:
    """∂τ_i/∂v_i ∂v_i/∂z_j, (m,m,nv,nv), for diagonal or full factors."""
    if by_z.ndim == 2:
        return by_z[:, :, None, None] * _full(d)[:, None]
    if d.ndim == 2:
        return d[:, None, :, None] * by_z
    return jnp.einsum("ixk,ijky->ijxy", d, by_z)


def _rows(armature: jax.Array, by_z: jax.Array) -> jax.Array:
    """Armature ∘ ∂a_i/∂z_j, (m,m,nv,nv)."""
    if by_z.ndim == 2:
        return by_z[:, :, None, None] * jnp.diag(armature)[None, None]
    return armature[None, None, :, None] * by_z


def _exponential_coordinates(model: Model, blocks: jax.Array, joint_r: jax.Array) -> jax.Array:
    """Joint forces on balls give derivatives of body components; in exponential coordinates: − ½ [r]."""
    t = tree(model.topology)
    if not t.balls.size:
        return blocks
    m = blocks.shape[0]
    stage = jnp.arange(m)[:, None, None, None]
    rows, columns = t.ball_v[None, :, :, None], t.ball_v[None, :, None, :]
    return blocks.at[stage, stage, rows, columns].add(-0.5 * rotations.hat(joint_r[:, t.ball_v]))
