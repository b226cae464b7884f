"""The stage equation: one residual for every scheme, and its Newton matrix.

Every scheme is linear in the bodies' transforms T^l and in the joints' own coordinates; both together are a Field.
With stages q_1..q_m and a table C, D (schemes.py),

    r_i = Σ_l <∂T^l(q_i)/∂q_i, A_i^l> + armature ∘ a_i − τ_i = 0
    A_i^l = (Σ_j C_ij ΔT_j^l + Y_i^l) M^l / dt² + ∂Q/∂T^l

where Y is known, made from the past: e_i dt V_k + c_i ΔT_h for a collocation. For m = 1 this is the gradient of the
paper's energy (eq. 5); for m > 1 the collocation equations (eq. 6). Its matrix has the blocks

    J_ij = C_ij/dt² ∂²I(q_i,q_j)/∂q_i∂q_j + [i = j] Σ_l <∂²T^l, A_i^l> + joint terms.

Unknowns are increments z_j, from q_k, in the layout of q (a quaternion for balls). The residual is multiplied by
dt², so that it stays finite in float32. Second derivatives are taken in exponential coordinates about the iterate,
which makes the matrix of a conservative system symmetric; at a root every choice of coordinates gives the same.

The equation is written for a step of length h dt, 0 < h ≤ 1 (continuation.py follows its root from h = 0): what is
known is a polynomial in h, and h = 1 is the step itself.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import atom, atom_parallel, joint_fields, joints, lanes, tree_solve
from pbad_jax import kinematics as kin
from pbad_jax.forces import Load, Point, total_load, total_potential
from pbad_jax.joints import matmul, matvec
from pbad_jax.model import Model, State
from pbad_jax.schemes import Scheme

TWINS = {"parallel": atom_parallel, "serial": atom}


class Field(NamedTuple):
    """Something linear: transforms (...,N,3,4), or their differences and rates, and joint coordinates (...,k)."""

    T: jax.Array
    joint: jax.Array


class Here(NamedTuple):
    """Everything at the start of a step, time k."""

    q: jax.Array  # (nq,) q_k
    v: jax.Array  # (nv,) v_k
    L: jax.Array  # (N,3,4) local transforms
    frames: kin.Frames  # about `origin`
    origin: jax.Array  # (3,) m, the centre of mass
    V: Field  # rates
    mass: jax.Array | None  # (nv,nv) mass matrix
    metric: lanes.Factors | None  # of the mass matrix
    potential: jax.Array  # () J, of all forces that have one
    time: jax.Array
    control: jax.Array  # (nu,)


class Equation(NamedTuple):
    """A table and the past: what one solve needs besides `Here`. Leading axis m; h-polynomials as lists by power."""

    dt: jax.Array
    nodes: jax.Array  # (m,)
    C: jax.Array  # (m,m)
    D: jax.Array  # (m,m)
    accel: tuple[Field | None, Field | None, Field | None]  # dt² A without the unknowns: Y
    rate: tuple[Field | None, Field | None]  # dt V without the unknowns


class Stages(NamedTuple):
    """All stages at one iterate; leading axis m."""

    z: jax.Array  # (m,nq)
    delta: Field  # from q_k
    frames: kin.Frames


def here(model: Model, state: "State | Here", control, *, twin: str = "parallel", dense: bool = True) -> Here:
    """What is constant during a step from `state` (its q, v and time); without `dense` no (nv,nv) matrix is made."""
    L = kin.local_transforms(model, state.q)
    T = TWINS[twin].world_transforms(model, L)
    origin = kin.center_of_mass(model, T)
    f = kin.with_screws(model, kin.shift(T, origin), L)
    V = Field(kin.velocity_field(model, f, state.v), joint_fields.rate(model, state.v))
    mass = TWINS[twin].mass_matrix(model, f) if dense else None
    metric = None if mass is None else lanes.cholesky(mass)
    at = Point(q=state.q, v=state.v, T=T, time=state.time, control=control)
    U = total_potential(model, at)
    return Here(state.q, state.v, L, f, origin, V, mass, metric, U, state.time, control)


def collocation(model: Model, scheme: Scheme, dt, s: Here, z_h: jax.Array | None) -> Equation:
    """The Equation of radau and legendre; z_h (nq,) is the increment to the history node, where there is one."""
    dtype = s.q.dtype
    nodes, C, D = (jnp.asarray(x, dtype) for x in (scheme.nodes, scheme.C, scheme.D))
    on = _outer(scheme.e, jax.tree.map(lambda x: dt * x, s.V)) if any(scheme.e) else None
    if z_h is None:
        return Equation(dt, nodes, C, D, (None, on, None), (None, None))
    past = Field(kin.increments(model, s.L, z_h), joint_fields.difference(model, z_h))
    return Equation(dt, nodes, C, D, (_outer(scheme.c, past), on, None), (_outer(scheme.d, past), None))


def _outer(weights, field: Field) -> Field:
    """(m,) ⊗ field."""
    return jax.tree.map(lambda x: jnp.multiply.outer(jnp.asarray(weights, x.dtype), x), field)


def _known(parts: tuple[Field | None, ...], h, like: Field) -> Field:
    """The polynomial Σ h^p parts_p."""
    total = None
    for power, part in enumerate(parts):
        if part is not None:
            term = jax.tree.map(lambda x, power=power: h**power * x, part)
            total = term if total is None else jax.tree.map(jnp.add, total, term)
    return jax.tree.map(jnp.zeros_like, like) if total is None else total


def stages(model: Model, s: Here, z: jax.Array) -> Stages:
    """ΔT and frames of the stages at the increments z (m,nq)."""
    dT = jax.vmap(lambda z_j: kin.increments(model, s.L, z_j))(z)
    motion = jax.vmap(lambda z_j: kin.joint_motion(model, z_j))(z)
    dT, L = kin.fused(dT, s.L + joints.tangent_compose(s.L, motion))
    f = jax.vmap(lambda T, L_j: kin.with_screws(model, T, L_j))(s.frames.T + dT, L)
    delta = Field(dT, jax.vmap(lambda z_j: joint_fields.difference(model, z_j))(z))
    return Stages(z, delta, kin.Frames(*kin.fused(*f)))


class _Terms(NamedTuple):
    """The parts of a residual and its matrix, times dt²; leading axis m."""

    frames: kin.Frames
    A: jax.Array  # (m,N,3,4)
    joint_r: jax.Array  # (m,nv) what the joints add to the residual
    accel: joint_fields.Slopes
    rate: joint_fields.Slopes
    load: Load  # dt² τ, dt² ∂τ/∂q, dt ∂τ/∂v


def _terms(model: Model, s: Here, eq: Equation, z: jax.Array, h) -> _Terms:
    dt, st = h * eq.dt, stages(model, s, z)
    Y, R = _known(eq.accel, h, st.delta), _known(eq.rate, h, st.delta)
    inertial = matmul(jnp.tensordot(eq.C, st.delta.T, axes=1) + Y.T, model.second_moment)
    rates, rate_slopes = joint_fields.table(model, eq.D, z, st.delta.joint, R.joint)
    load = _loads(model, s, eq, st, rates / dt, dt)
    (A,) = kin.fused(inertial if load.field is None else inertial + dt**2 * load.field)
    accel, accel_slopes = joint_fields.table(model, eq.C, z, st.delta.joint, Y.joint)
    joint_r = model.armature * accel - (0.0 if load.tau is None else dt**2 * load.tau)
    by_q = None if load.dtau_dq is None else dt**2 * load.dtau_dq
    by_v = None if load.dtau_dv is None else dt * load.dtau_dv
    load = Load(tau=load.tau, dtau_dq=by_q, dtau_dv=by_v)
    return _Terms(st.frames, A, joint_r, accel_slopes, rate_slopes, load)


def residual_and_matrix(
    model: Model, s: Here, eq: Equation, z: jax.Array, h: Any = 1.0, *, twin: str = "parallel"
) -> tuple[jax.Array, jax.Array]:
    """(h dt)² r (m·nv,) and (h dt)² J (m·nv, m·nv) at the increments z (m,nq). kg m² or kg."""
    recurrence, (m, nv) = TWINS[twin], (z.shape[0], model.nv)
    t = _terms(model, s, eq, z, h)
    r = jax.vmap(lambda f, A_i: recurrence.pullback(model, f, A_i))(t.frames, t.A)
    blocks = _inertial_blocks(model, recurrence, eq.C, t.frames, t.A)
    blocks = blocks + _rows(model.armature, joint_fields.full(model, t.accel))
    if t.load.dtau_dq is not None:
        blocks = blocks - jnp.eye(m, dtype=z.dtype)[:, :, None, None] * _full(t.load.dtau_dq)[:, None]
    if t.load.dtau_dv is not None:
        blocks = blocks - _product(t.load.dtau_dv, joint_fields.full(model, t.rate))
    blocks = _exponential_coordinates(model, blocks, t.joint_r)
    J = jnp.moveaxis(blocks, 2, 1).reshape(m * nv, m * nv)
    return (r + t.joint_r).reshape(-1), J


def residual_and_tree(
    model: Model, s: Here, eq: Equation, z: jax.Array, h: Any = 1.0
) -> tuple[jax.Array, tree_solve.Matrix]:
    """The same for one stage, (h dt)² r (nv,) and (h dt)² J as a tree_solve.Matrix, in O(N).

    Of a force's derivatives it takes the diagonal and the blocks of the balls: exact for every force of this library;
    one of your own that couples joints converges more slowly, to the same root.
    """
    t, tree = _terms(model, s, eq, z, h), kin.tree(model.topology)
    f, A, joint_r = jax.tree.map(lambda x: x[0], (t.frames, t.A, t.joint_r))
    r = tree_solve.pullback(model, f, A) + joint_r
    zero = jnp.zeros_like(joint_r)
    by_q, by_q_balls = _on_joints(tree, t.load.dtau_dq, zero)
    by_v, by_v_balls = _on_joints(tree, t.load.dtau_dv, zero)
    d = model.armature * t.accel.scalar[0, 0] - by_q - by_v * t.rate.scalar[0, 0]
    if t.accel.balls is None or t.rate.balls is None:
        return r, tree_solve.Matrix(f, eq.C[0, 0], A, d, None)
    blocks = model.armature[tree.ball_v][..., None] * t.accel.balls[0, 0] - 0.5 * joints.hat(joint_r[tree.ball_v])
    blocks = blocks - by_q_balls - matmul(by_v_balls, t.rate.balls[0, 0])
    return r, tree_solve.Matrix(f, eq.C[0, 0], A, d.at[tree.ball_v].set(0.0), blocks)


def _on_joints(tree: kin.Tree, slope: jax.Array | None, zero: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The diagonal (nv,) and the blocks of the balls (nball,3,3) of a force's derivative (1,nv) or (1,nv,nv)."""
    slope = zero[None] if slope is None else slope
    if slope.ndim == 3:
        return jnp.diagonal(slope[0]), slope[0][tree.ball_v[:, :, None], tree.ball_v[:, None, :]]
    return slope[0], slope[0][tree.ball_v][..., None] * jnp.eye(3, dtype=zero.dtype)


def energy(model: Model, s: Here, eq: Equation, z: jax.Array, h: Any = 1.0) -> jax.Array:
    """(h dt)² times the energy, (), whose gradient is the residual of one stage: eq. (5) of the paper where Y is its.

    ½ C ‖ΔT‖²_M + <Y, ΔT>_M + (h dt)² Q, and the same for the armature (equal on the three axes of a ball). Every force
    must have a potential.
    """
    st, dt = stages(model, s, z), h * eq.dt
    Y = _known(eq.accel, h, st.delta)
    q = kin.compose_increment(model, s.q, z[0])
    T = kin.shift(st.frames.T[0], -s.origin)
    at = Point(q=q, v=jnp.zeros_like(s.v), T=T, time=s.time + eq.nodes[0] * dt, control=s.control)
    weight = joint_fields.weights(model, model.armature)
    inertial = jnp.sum(matmul(0.5 * eq.C[0, 0] * st.delta.T + Y.T, model.second_moment) * st.delta.T)
    joint = jnp.sum(weight * (0.5 * eq.C[0, 0] * st.delta.joint + Y.joint) * st.delta.joint)
    return inertial + joint + dt**2 * (total_potential(model, at) - s.potential)


def _inertial_blocks(model: Model, recurrence, C: jax.Array, f: kin.Frames, A: jax.Array) -> jax.Array:
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


def _loads(model: Model, s: Here, eq: Equation, st: Stages, rates: jax.Array, dt) -> Load:
    """The model's forces at every stage."""
    q = jax.vmap(lambda z_j: kin.compose_increment(model, s.q, z_j))(st.z)
    T = kin.shift(st.frames.T, -s.origin)
    control = jnp.broadcast_to(s.control, (len(eq.nodes), *s.control.shape))
    at = Point(q=q, v=rates, T=T, time=s.time + eq.nodes * dt, control=control)
    return jax.vmap(lambda point: total_load(model, point))(at)


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


def stage_rates(eq: Equation, st: Stages) -> Field:
    """Dt V_i of the stages."""
    known = _known(eq.rate, 1.0, st.delta)
    return jax.tree.map(lambda x, y: jnp.tensordot(eq.D, x, axes=1) + y, st.delta, known)


def mass_solve(
    model: Model, f: kin.Frames, b: jax.Array, damping=None, *, twin: str = "parallel", dense: bool = True
) -> jax.Array:
    """(mass_matrix + damping)⁻¹ b (nv,), damping (nv,) or (nv,nv); of a full one the sweeps take the joints' own."""
    damping = jnp.zeros_like(b) if damping is None else damping
    if dense:
        return lanes.solve(TWINS[twin].mass_matrix(model, f) + _full(damping[None])[0], b)
    d, blocks = _on_joints(kin.tree(model.topology), damping[None], jnp.zeros_like(b))
    d = d.at[kin.tree(model.topology).ball_v].set(0.0)
    return tree_solve.solve(model, f, 1.0, jnp.zeros_like(f.T), model.armature + d, blocks, b)


def pull(model: Model, f: kin.Frames, A: jax.Array, *, twin: str = "parallel", dense: bool = True) -> jax.Array:
    """Σ_l <∂T^l/∂q_x, A^l> (nv,): Alg. 4, by masks (quick for few links) or by sweeps (O(N))."""
    return TWINS[twin].pullback(model, f, A) if dense else tree_solve.pullback(model, f, A)


def end_velocity(model: Model, eq: Equation, st: Stages, **how) -> jax.Array:
    """The rate of the field at the end node, projected: v_{k+1} = mass_matrix⁻¹ ∂I(V_end, q_{k+1})/∂q_b. (nv,).

    `how`: the twin, and whether dense matrices are wanted, as in `pull`.
    """
    V, f = jax.tree.map(lambda x: x[-1], (stage_rates(eq, st), st.frames))
    p = pull(model, f, matmul(V.T, model.second_moment), **how)
    p = p + model.armature * joint_fields.pullback(model, st.z[-1], V.joint)
    return mass_solve(model, f, p, **how) / eq.dt


def acceleration(model: Model, q, v, time, control, *, twin: str = "parallel", dense: bool = True) -> jax.Array:
    """Joint acceleration (nv,) of the continuous system at (q, v): what a step tends to as dt → 0."""
    L = kin.local_transforms(model, q)
    T = TWINS[twin].world_transforms(model, L)
    f = kin.with_screws(model, kin.shift(T, kin.center_of_mass(model, T)), L)
    load = total_load(model, Point(q=q, v=v, T=T, time=time, control=control))
    A = matmul(kin.centripetal_field(model, f, v), model.second_moment)
    tau = generalised_force(model, f, load, A, twin=twin, dense=dense)
    return mass_solve(model, f, tau, twin=twin, dense=dense)


def generalised_force(model: Model, f: kin.Frames, load: Load, A=None, **how) -> jax.Array:
    """τ − ∂T/∂q · (∂Q/∂T + A) (nv,), N or N m: the forces of a Load, less an inertial field A."""
    tau = jnp.zeros(model.nv, f.T.dtype) if load.tau is None else load.tau
    for field in (A, load.field):
        tau = tau if field is None else tau - pull(model, f, field, **how)
    return tau


def acceleration_field(model: Model, f: kin.Frames, z: jax.Array, v: jax.Array, a: jax.Array) -> Field:
    """Second time derivative of the field at frames f, increment z, velocity v, joint acceleration a."""
    T = kin.velocity_field(model, f, a) + kin.centripetal_field(model, f, v)
    return Field(T, joint_fields.second_rate(model, v, a, z))


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
