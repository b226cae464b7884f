"""The stage equation: one residual for every scheme, and its Newton matrix.

With stage configurations q_1..q_m, a scheme's table (schemes.py) and T linear in everything,

    r_i = Σ_l <∂T^l(q_i)/∂q_i, A_i^l> + armature ∘ a_i − τ_i = 0
    A_i^l = (Σ_j C_ij ΔT_j^l + Y_i^l) M^l / dt² + ∂Q/∂T^l,      Y_i = e_i dt V_k + c_i ΔT_h

where Y is the known field made from the past. For m = 1 this is the gradient of the paper's energy (eq. 5); for
m > 1 the collocation equations (eq. 6). Its matrix has the blocks

    J_ij = C_ij/dt² ∂²I(q_i,q_j)/∂q_i∂q_j + [i = j] Σ_l <∂²T^l, A_i^l> + joint terms.

Unknowns are increments z_j, from q_k, in the layout of q (a quaternion for balls). The residual is multiplied by
dt², so that it stays finite in float32. Second derivatives are taken in exponential coordinates about the iterate,
which makes the matrix of a conservative system symmetric; at a root every choice of coordinates gives the same.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import atom, atom_parallel, joints, lanes
from pbad_jax import kinematics as kin
from pbad_jax.forces import Load, Point, total_load
from pbad_jax.joints import matmul, matvec
from pbad_jax.model import Model, State
from pbad_jax.schemes import Scheme

TWINS = {"parallel": atom_parallel, "serial": atom}


class Start(NamedTuple):
    """What one step knows before it solves: everything at time k, and the known fields."""

    q: jax.Array  # (nq,) q_k
    L: jax.Array  # (N,3,4) local transforms at q_k
    T: jax.Array  # (N,3,4) T_k about `origin`
    origin: jax.Array  # (3,) m, the centre of mass at q_k
    V: jax.Array  # (N,3,4) velocity field V_k
    dT_h: jax.Array  # (N,3,4) ΔT of the history node (zero without one)
    z_h: jax.Array  # (nq,) its increment
    v: jax.Array  # (nv,) v_k
    metric: lanes.Factors  # Cholesky factors of the mass matrix at q_k
    dt: jax.Array
    time: jax.Array
    control: jax.Array  # (nu,)

    def known_field(self, scheme: Scheme) -> jax.Array:
        """Y_i = e_i dt V_k + c_i ΔT_h, (m,N,3,4)."""
        Y = jnp.asarray(scheme.e, self.V.dtype)[:, None, None, None] * (self.dt * self.V)
        if scheme.has_history:
            Y = Y + jnp.asarray(scheme.c, self.V.dtype)[:, None, None, None] * self.dT_h
        return Y


def start(model: Model, scheme: Scheme, dt, state: State, control, *, twin: str = "parallel") -> Start:
    """Everything that is constant during the solve of one step from `state`."""
    q, v = state.q, state.v
    L = kin.local_transforms(model, q)
    T = TWINS[twin].world_transforms(model, L)
    origin = kin.center_of_mass(model, T)
    f = kin.with_screws(model, kin.shift(T, origin), L)
    V = kin.velocity_field(model, f, v)
    metric = lanes.cholesky(TWINS[twin].mass_matrix(model, f))
    z_h, dT_h = kin.identity_increment(model), jnp.zeros_like(L)
    if scheme.has_history:
        z_h, dT_h = _history(model, scheme, dt, state, control, L, f, V, twin)
    return Start(q, L, f.T, origin, V, dT_h, z_h, v, metric, dt, state.time, control)


def _history(model: Model, scheme: Scheme, dt, state: State, control, L, f: kin.Frames, V, twin: str):
    """Increment (nq,) and field (N,3,4) of the history node: the state's, or before the first step made from (q, v).

    "matched": the field T + h V + h²/2 A, h = node · dt, with A the acceleration field at the start, so that a
    quadratic path is continued exactly. "linear": the configuration q + h v, as the paper's figures would have it.
    """
    h = scheme.history_node * dt
    if scheme.start == "linear":
        z_0 = kin.retract(model, kin.identity_increment(model), h * state.v)
        dT_0 = kin.increments(model, L, z_0)
    else:
        a = acceleration(model, state.q, state.v, state.time, control, twin=twin)
        A = kin.velocity_field(model, f, a) + kin.centripetal_field(model, f, state.v)
        z_0 = kin.retract(model, kin.identity_increment(model), h * state.v + 0.5 * h**2 * a)
        dT_0 = h * V + 0.5 * h**2 * A
    z_h = kin.increment_between(model, state.q, state.history)
    known = state.has_history
    return jnp.where(known, z_h, z_0), jnp.where(known, kin.increments(model, L, z_h), dT_0)


class Stages(NamedTuple):
    """All stages at one iterate; leading axis m."""

    z: jax.Array  # (m,nq)
    dT: jax.Array  # (m,N,3,4)
    frames: kin.Frames


def stages(model: Model, s: Start, z: jax.Array) -> Stages:
    """ΔT and frames of the stages at the increments z (m,nq)."""
    dT = jax.vmap(lambda z_j: kin.increments(model, s.L, z_j))(z)
    motion = jax.vmap(lambda z_j: kin.joint_motion(model, z_j))(z)
    dT, L = kin.fused(dT, s.L + joints.tangent_compose(s.L, motion))
    f = jax.vmap(lambda T, L_j: kin.with_screws(model, T, L_j))(s.T + dT, L)
    return Stages(z, dT, kin.Frames(*kin.fused(*f)))


def residual_and_matrix(
    model: Model, scheme: Scheme, s: Start, z: jax.Array, *, twin: str = "parallel"
) -> tuple[jax.Array, jax.Array]:
    """dt² r (m·nv,) and dt² J (m·nv, m·nv) at the increments z (m,nq). kg m² or kg m."""
    recurrence, m, nv = TWINS[twin], scheme.m, model.nv
    C = jnp.asarray(scheme.C, z.dtype)
    st = stages(model, s, z)

    inertial = matmul(jnp.tensordot(C, st.dT, axes=1) + s.known_field(scheme), model.second_moment)
    rates, rates_by_z = joint_table(model, scheme.D, st.z, scheme.d, s.z_h)
    load = _loads(model, scheme, s, st, rates / s.dt)
    (A,) = kin.fused(inertial if load.field is None else inertial + s.dt**2 * load.field)
    accel, accel_by_z = joint_table(model, scheme.C, st.z, scheme.c, s.z_h, scheme.e, s.dt * s.v)

    r = jax.vmap(lambda f, A_i: recurrence.pullback(model, f, A_i))(st.frames, A)
    joint_r = model.armature * accel - (0.0 if load.tau is None else s.dt**2 * load.tau)

    blocks = _inertial_blocks(model, recurrence, scheme, st.frames, A)
    blocks = blocks + _rows(model.armature, accel_by_z)
    if load.dtau_dq is not None:
        blocks = blocks - jnp.eye(m, dtype=z.dtype)[:, :, None, None] * _full(s.dt**2 * load.dtau_dq)[:, None]
    if load.dtau_dv is not None:
        blocks = blocks - _product(s.dt * load.dtau_dv, rates_by_z)
    blocks = _exponential_coordinates(model, blocks, joint_r)
    J = jnp.moveaxis(blocks, 2, 1).reshape(m * nv, m * nv)
    return (r + joint_r).reshape(-1), J


def _inertial_blocks(model: Model, recurrence, scheme: Scheme, f: kin.Frames, A: jax.Array) -> jax.Array:
    """C_ij ∂²I(q_i,q_j)/∂q_i∂q_j + [i = j] Σ <∂²T, A_i>, (m,m,nv,nv); blocks below the diagonal by transposition."""
    m = scheme.m
    pairs = [(i, j) for i in range(m) for j in range(i, m)]
    f_a = jax.tree.map(lambda x: jnp.stack([x[i] for i, _ in pairs]), f)
    f_b = jax.tree.map(lambda x: jnp.stack([x[j] for _, j in pairs]), f)
    H = jax.vmap(lambda a, b: recurrence.mixed_hess(model, a, b))(f_a, f_b)
    K = jax.vmap(lambda f_i, A_i: recurrence.pullback_hess(model, f_i, A_i))(f, A)
    place = {p: H[k] for k, p in enumerate(pairs)}
    rows = []
    for i in range(m):
        row = [scheme.C[i][j] * (place[i, j] if i <= j else place[j, i].T) for j in range(m)]
        row[i] = row[i] + K[i]
        rows.append(jnp.stack(row))
    return jnp.stack(rows)


def _loads(model: Model, scheme: Scheme, s: Start, st: Stages, rates: jax.Array) -> Load:
    """The model's forces at every stage."""
    q = jax.vmap(lambda z_j: kin.compose_increment(model, s.q, z_j))(st.z)
    T = kin.shift(st.frames.T, -s.origin)
    time = s.time + jnp.asarray(scheme.nodes, s.dt.dtype) * s.dt
    at = Point(q=q, v=rates, T=T, time=time, control=jnp.broadcast_to(s.control, (scheme.m, *s.control.shape)))
    return jax.vmap(lambda point: total_load(model, point))(at)


# --- the same table on the joint coordinates -------------------------------------------------------------


def joint_table(model: Model, weights, z, history, z_h, velocity=(), dt_v: Any = None) -> tuple[jax.Array, jax.Array]:
    """Σ_j w_ij z_j + h_i z_h + e_i dt v_k on the joint coordinates, and its derivative by z.

    For hinges and slides z is a number. For a ball it is the rotation R_j = R(z_j) relative to q_k, and the table
    acts on the rotation matrices, Φ_i = Σ_j w_ij (R_j − E) + h_i (R_h − E) + e_i [dt v_k]; the value is the body
    vector of R_iᵀ Φ_i (half its antisymmetric part), as V and A of a body are. No chart, no singular angle.

    Returns:
        (m,nv) values, and derivatives along z_j ⊕ δ: (m,m) where there is no ball (the same for every
        degree of freedom), else (m,m,nv,nv).
    """
    t = kin.tree(model.topology)
    W = jnp.asarray(weights, z.dtype)
    scalar = W @ z[:, t.scalar_q]
    if history:
        scalar = scalar + jnp.asarray(history, z.dtype)[:, None] * z_h[t.scalar_q]
    if velocity:
        scalar = scalar + jnp.asarray(velocity, z.dtype)[:, None] * dt_v[t.scalar_v]
    if not t.balls.size:
        return scalar, W
    value = jnp.zeros((z.shape[0], model.nv), z.dtype).at[:, t.scalar_v].set(scalar)
    dR = joints.rotation_minus_identity(z[:, t.ball_q])  # (m,nball,3,3)
    Phi = jnp.tensordot(W, dR, axes=1)
    if history:
        Phi = Phi + jnp.asarray(history, z.dtype)[:, None, None, None] * joints.rotation_minus_identity(z_h[t.ball_q])
    if velocity:
        Phi = Phi + jnp.asarray(velocity, z.dtype)[:, None, None, None] * joints.hat(dt_v[t.ball_v])
    R = dR + jnp.eye(3, dtype=z.dtype)
    P = matmul(joints.transpose(R), Phi)
    value = value.at[:, t.ball_v].set(0.5 * joints.vee(P))
    # by z_j: ½(tr(P) E − Pᵀ) of P = R_iᵀ R_j; by z_i through R_iᵀ: −½(tr(P) E − P)
    m = z.shape[0]
    through_j = W[:, :, None, None, None] * _half_trace(matmul(joints.transpose(R)[:, None], R[None]), transposed=True)
    through_i = jnp.eye(m, dtype=z.dtype)[:, :, None, None, None] * -_half_trace(P, transposed=False)[:, None]
    by_z = jnp.zeros((m, m, model.nv, model.nv), z.dtype)
    by_z = by_z.at[:, :, t.scalar_v, t.scalar_v].set(W[:, :, None])
    rows, columns = t.ball_v[:, :, None], t.ball_v[:, None, :]
    return value, by_z.at[:, :, rows, columns].set(through_j + through_i)


def _half_trace(P: jax.Array, *, transposed: bool) -> jax.Array:
    """½ (tr(P) E − P), or with Pᵀ."""
    trace = jnp.trace(P, axis1=-2, axis2=-1)[..., None, None]
    return 0.5 * (trace * jnp.eye(3, dtype=P.dtype) - (joints.transpose(P) if transposed else P))


def _full(d: jax.Array) -> jax.Array:
    """Diagonals (m,nv) to matrices (m,nv,nv); matrices unchanged."""
    return d if d.ndim == 3 else d[..., None] * jnp.eye(d.shape[-1], dtype=d.dtype)


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
        return by_z[:, :, None, None] * jnp.diag(armature)
    return armature[:, None] * by_z


def _exponential_coordinates(model: Model, blocks: jax.Array, joint_r: jax.Array) -> jax.Array:
    """Joint forces on balls give derivatives of body components; in exponential coordinates: − ½ [r]."""
    t = kin.tree(model.topology)
    if not t.balls.size:
        return blocks
    m = blocks.shape[0]
    stage = jnp.arange(m)[:, None, None, None]
    rows, columns = t.ball_v[None, :, :, None], t.ball_v[None, :, None, :]
    return blocks.at[stage, stage, rows, columns].add(-0.5 * joints.hat(joint_r[:, t.ball_v]))


# --- before and after the solve --------------------------------------------------------------------------


def end_velocity(model: Model, scheme: Scheme, s: Start, z: jax.Array, *, twin: str = "parallel") -> jax.Array:
    """The rate of the field at the end node, projected: v_{k+1} = mass_matrix⁻¹ ∂I(V_end, q_{k+1})/∂q_b. (nv,)."""
    recurrence = TWINS[twin]
    st = stages(model, s, z)
    D = jnp.asarray(scheme.D, z.dtype)
    V = jnp.tensordot(D[-1], st.dT, axes=1)
    if scheme.has_history:
        V = V + scheme.d[-1] * s.dT_h
    rates, _ = joint_table(model, scheme.D, z, scheme.d, s.z_h)
    f = jax.tree.map(lambda x: x[-1], st.frames)
    p = recurrence.pullback(model, f, matmul(V, model.second_moment)) + model.armature * rates[-1]
    return lanes.solve(recurrence.mass_matrix(model, f), p) / s.dt


def acceleration(model: Model, q, v, time, control, *, twin: str = "parallel") -> jax.Array:
    """Joint acceleration (nv,) of the continuous system at (q, v): what a step tends to as dt → 0."""
    recurrence = TWINS[twin]
    L = kin.local_transforms(model, q)
    T = recurrence.world_transforms(model, L)
    origin = kin.center_of_mass(model, T)
    f = kin.with_screws(model, kin.shift(T, origin), L)
    load = total_load(model, Point(q=q, v=v, T=T, time=time, control=control))
    A = matmul(kin.centripetal_field(model, f, v), model.second_moment)
    A = A if load.field is None else A + load.field
    force = -recurrence.pullback(model, f, A) + (0.0 if load.tau is None else load.tau)
    return lanes.solve(recurrence.mass_matrix(model, f), force)


def residual_scale(model: Model) -> jax.Array:
    """Divides a whitened residual (kg^½ m) into a relative position error: √(total mass) · typical length."""
    return jnp.sqrt(kin.total_mass(model)) * kin.length_scale(model)


def kinetic_energy(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """½ Σ tr(V M Vᵀ) + ½ armature v², J."""
    V = kin.velocity_field(model, kin.frames(model, q), v)
    return 0.5 * jnp.sum(matmul(V, model.second_moment) * V) + 0.5 * jnp.sum(model.armature * v**2)


def momentum(model: Model, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Linear momentum (3,) kg m/s and angular momentum (3,) kg m²/s about the world's origin."""
    f = kin.frames(model, q)
    V = kin.velocity_field(model, f, v)
    linear = jnp.sum(matvec(V, model.second_moment[:, :, 3]), axis=0)
    N = jnp.sum(matmul(matmul(V, model.second_moment), joints.transpose(f.T)), axis=0)
    return linear, joints.vee(N)
