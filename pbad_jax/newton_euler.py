"""The paper's baseline: Newton–Euler dynamics with explicit integrators, on the same models and forces.

Featherstone 2008 in world coordinates: spatial vectors (ω, v), (n, f) about one fixed point, the centre of mass of the
moment. It shares the model, the kinematics and the forces with the position-based steps, none of their recurrences,
so that each is a check of the other.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import joints, lanes
from pbad_jax import kinematics as kin
from pbad_jax.checks import one_of, step_size
from pbad_jax.errors import OptionError, StateError, Status
from pbad_jax.forces.law import field_of, instant, total_load
from pbad_jax.joints import hat, homogeneous, matmul, matvec, transpose
from pbad_jax.model import Model, State
from pbad_jax.short_sums import short_sum
from pbad_jax.step_info import StepInfo, names
from pbad_jax.stepping import Trajectory, checked, checked_rollout

ALGORITHMS = ("auto", "aba", "crba")
# degrees of freedom up to which the mass matrix and LU are quicker than the articulated-body algorithm: a step of
# semi-implicit Euler on a chain took 96 against 105 µs at 60, 197 against 178 at 80
DENSE = 60


class Moment(NamedTuple):
    """One instant of the tree.

    s: (nv,6) world screws. inertia: (N,6,6). bias: (N,6) acceleration of the links at zero joint acceleration.
    wrench: (N,6) what has to act on a link for that, less what forces do. tau: (nv,) what forces do in the joints.
    """

    s: jax.Array
    inertia: jax.Array
    bias: jax.Array
    wrench: jax.Array
    tau: jax.Array


# --- spatial vectors ---------------------------------------------------------------------------------------


def cross_motion(a: jax.Array, b: jax.Array) -> jax.Array:
    """Of twists (ω, v) (...,6), a × b: the rate of b as it moves with a."""
    wa, va, wb, vb = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    return jnp.concatenate([jnp.cross(wa, wb), jnp.cross(wa, vb) + jnp.cross(va, wb)], axis=-1)


def cross_force(a: jax.Array, h: jax.Array) -> jax.Array:
    """The product a ×* h of a twist a and a wrench or momentum h = (n, f), (...,6)."""
    w, v, n, f = a[..., :3], a[..., 3:], h[..., :3], h[..., 3:]
    return jnp.concatenate([jnp.cross(w, n) + jnp.cross(v, f), jnp.cross(w, f)], axis=-1)


def spatial_inertia(model: Model, T: jax.Array) -> jax.Array:
    """(N,6,6) about the origin of T, from the second moments: [[tr Σ E − Σ, ĥ], [−ĥ, m E]], Σ = ∫ρ P Pᵀ, h = ∫ρ P."""
    G = matmul(matmul(homogeneous(T), model.second_moment), transpose(homogeneous(T)))
    sigma, h, m = G[:, :3, :3], hat(G[:, :3, 3]), G[:, 3, 3]
    eye = jnp.eye(3, dtype=T.dtype)
    top = jnp.trace(sigma, axis1=1, axis2=2)[:, None, None] * eye - sigma
    rows = [jnp.concatenate([top, h], -1), jnp.concatenate([-h, m[:, None, None] * eye], -1)]
    return jnp.concatenate(rows, axis=-2)


def frames(model: Model, q: jax.Array) -> tuple[jax.Array, kin.Frames]:
    """Transforms in the world (N,3,4), and Frames about the centre of mass of the moment."""
    L = kin.local_transforms(model, q)
    T = kin.transforms_parallel(model, L)
    return T, kin.with_screws(model, kin.shift(T, kin.center_of_mass(model, T)), L)


def moment(model: Model, state: State, control: jax.Array) -> Moment:
    """Twists, bias accelerations and wrenches: the outward half of RNEA at zero joint acceleration."""
    t, v = kin.tree(model.topology), state.v
    T, f = frames(model, state.q)
    moves = jnp.asarray(t.dof_above_link.T, v.dtype)
    sv = f.s * v[:, None]
    twist = moves @ sv
    bias = moves @ cross_motion(kin.take(twist, t.dof_link), sv)
    inertia = spatial_inertia(model, f.T)
    wrench = matvec(inertia, bias) + cross_force(twist, matvec(inertia, twist))
    V = matmul(kin.twist_matrix(twist), homogeneous(f.T))
    load = total_load(model, instant(state.q, v, T, V, state.time, control))
    field = field_of(load, model.topology.n_links)
    if field is not None:  # its work on a twist is −<ν̂ T, field>
        torque = joints.vee(matmul(field, transpose(f.T)))
        wrench = wrench + jnp.concatenate([torque, field[..., 3]], axis=-1)
    return Moment(f.s, inertia, bias, wrench, jnp.zeros_like(v) if load.tau is None else load.tau)


def onto_joints(model: Model, s: jax.Array, wrench: jax.Array) -> jax.Array:
    """s_x · Σ of the wrenches (N,6) of the links that x moves: (nv,)."""
    moves = jnp.asarray(kin.tree(model.topology).dof_above_link, s.dtype)
    return short_sum(s * (moves @ wrench))


# --- the three algorithms ----------------------------------------------------------------------------------


def inverse_dynamics(model: Model, state: State, acceleration: jax.Array, control=None) -> jax.Array:
    """The generalised forces that are missing for an acceleration: RNEA (Featherstone 2008, table 5.1).

    Args:
        model: the model with its forces, gravity among them.
        state: q and v.
        acceleration: (nv,) rad/s², m/s².
        control: (nu,) or None, zeros.

    Returns:
        (nv,) N m, N: mass_matrix · acceleration + Coriolis − all forces of the model.

    Raises:
        StateError: shapes, dtypes, a state of another model (while tracing).
    """
    control = checked(model, state, control)
    acceleration = jnp.asarray(acceleration, model.dtype)
    if acceleration.shape != (model.nv,):
        raise StateError(f"acceleration has shape {acceleration.shape}; wanted ({model.nv},)")
    m = moment(model, state, control)
    moves = jnp.asarray(kin.tree(model.topology).dof_above_link.T, model.dtype)
    wrench = m.wrench + matvec(m.inertia, moves @ (m.s * acceleration[:, None]))
    return onto_joints(model, m.s, wrench) + model.armature * acceleration - m.tau


def mass_matrix(model: Model, q: jax.Array) -> jax.Array:
    """The joint-space inertia (nv,nv), armature included: CRBA (Featherstone 2008, table 6.2).

    Args:
        model: the model.
        q: (nq,) configuration.
    """
    _, f = frames(model, q)
    return _mass_matrix(model, f.s, spatial_inertia(model, f.T))


def _mass_matrix(model: Model, s: jax.Array, inertia: jax.Array) -> jax.Array:
    """H_xy = s_x · Iᶜ_l(y) s_y for x above y, Iᶜ the inertia of all that l(y) carries."""
    t = kin.tree(model.topology)
    n = model.topology.n_links
    composite = (jnp.asarray(t.above, s.dtype) @ inertia.reshape(n, 36)).reshape(n, 6, 6)
    momentum = matvec(kin.take(composite, t.dof_link), s)
    half = jnp.asarray(t.dof_order, s.dtype) * (s @ momentum.T)
    return half + half.T + jnp.diag(model.armature)


def acceleration(model: Model, state: State, control=None, *, algorithm: str = "auto") -> jax.Array:
    """The joint acceleration under all forces of the model.

    Args:
        model: the model.
        state: q and v.
        control: (nu,) or None, zeros.
        algorithm: "aba", O(N); "crba", by the mass matrix and LU; "auto": "crba" up to DENSE degrees of freedom.

    Returns:
        (nv,) rad/s², m/s².

    Raises:
        StateError: shapes, dtypes, a state of another model (while tracing). OptionError: another algorithm.
    """
    one_of(algorithm, ALGORITHMS, "algorithm", OptionError)
    m = moment(model, state, checked(model, state, control))
    if algorithm == "aba" or (algorithm == "auto" and model.nv > DENSE):
        return _articulated_bodies(model, m)
    missing = m.tau - onto_joints(model, m.s, m.wrench)
    return lanes.solve(_mass_matrix(model, m.s, m.inertia), missing)


class Swept(NamedTuple):
    """What the inward sweep of one link leaves for the outward one."""

    S: jax.Array  # (6,k)
    U: jax.Array  # (6,k) Iᴬ S
    inverse: jax.Array  # (k,k) of Sᵀ U + armature
    u: jax.Array  # (k,)


def _articulated_bodies(model: Model, m: Moment) -> jax.Array:
    """ABA (Featherstone 2008, table 7.1); accelerations are those beyond the bias, which the wrenches hold already."""
    t, n, nv = kin.tree(model.topology), model.topology.n_links, model.nv
    slots = 3 if t.balls.size else 1
    of_link = np.full((n, slots), nv)  # dof nv is padding: a screw of zeros with an armature of one
    of_link[t.dof_link, np.maximum(t.dof_ball, 0)] = np.arange(nv)
    parent = np.array([p if p >= 0 else n for p in model.topology.link_parent])
    s = jnp.concatenate([m.s, jnp.zeros((1, 6), m.s.dtype)])[of_link]
    armature = jnp.append(model.armature, 1.0)[of_link]
    tau = jnp.append(m.tau, 0.0)[of_link]
    pad = functools.partial(jnp.pad, mode="constant")

    def inward(carry, link):
        I, p = carry
        i, up, s, armature, tau = link
        S = s.T
        U = I[i] @ S
        inverse = _inverse(S.T @ U + jnp.diag(armature))
        u = tau - S.T @ p[i]
        I = I.at[up].add(I[i] - U @ inverse @ U.T)
        p = p.at[up].add(p[i] + U @ (inverse @ u))
        return (I, p), Swept(S, U, inverse, u)

    def outward(a, link):
        i, up, s = link
        rates = s.inverse @ (s.u - s.U.T @ a[up])
        return a.at[i].set(a[up] + s.S @ rates), rates

    rows = (np.arange(n), parent)
    start = pad(m.inertia, ((0, 1), (0, 0), (0, 0))), pad(m.wrench, ((0, 1), (0, 0)))
    _, swept = jax.lax.scan(inward, start, (*rows, s, armature, tau), reverse=True)
    _, rates = jax.lax.scan(outward, jnp.zeros((n + 1, 6), m.s.dtype), (*rows, swept))
    return rates[t.dof_link, np.maximum(t.dof_ball, 0)]


def _inverse(D: jax.Array) -> jax.Array:
    """Of a (1,1) or (3,3) matrix: by cofactors, so that lanes need no LAPACK."""
    if D.shape == (1, 1):
        return 1.0 / D
    a, b, c = D
    cofactors = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)], axis=-1)
    return cofactors / (a @ cofactors[:, 0])


# --- explicit steps ----------------------------------------------------------------------------------------


class Tableau(NamedTuple):
    """An explicit Runge–Kutta method: rows of A below the diagonal, and the weights b."""

    A: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]


METHODS: dict[str, Tableau | None] = {
    "forward_euler": Tableau(((),), (1.0,)),
    "semi_implicit_euler": None,  # the velocity first, then the position with the new velocity
    "rk2": Tableau(((), (1 / 2,)), (0.0, 1.0)),  # the midpoint rule
    "rk3": Tableau(((), (1 / 2,), (-1.0, 2.0)), (1 / 6, 2 / 3, 1 / 6)),  # Kutta
    "rk4": Tableau(((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}


def make_step(dt: float, method: str = "rk4", *, algorithm: str = "auto"):
    """One explicit step as a pure function (model, state, control=None, dt=None) -> (state, info).

    It can be jitted, batched, scanned and differentiated as `pbad.make_step`'s. Balls turn in exponential coordinates
    about the start of the step (Runge–Kutta–Munthe-Kaas), which keeps the order. Forces that act once a step there
    (contact, limits) act here at every evaluation, as what they are at that instant.

    Args:
        dt: s.
        method: "forward_euler", "semi_implicit_euler", "rk2", "rk3", "rk4".
        algorithm: see `acceleration`.

    Returns:
        step: as `pbad.make_step`'s; StepInfo.status is CONVERGED, or, where what comes of the step is not finite,
        NONFINITE_EVAL, and the state stays the last good one (FROZEN from then on). Unlike the library's own steps a
        failed one may pass NaN to a gradient; `grad_ok` says where.

    Raises:
        OptionError: dt, method, algorithm. The step: StateError, as `pbad.make_step`'s.
    """
    default, tableau = step_size(dt), METHODS[one_of(method, tuple(METHODS), "method", OptionError)]
    one_of(algorithm, ALGORITHMS, "algorithm", OptionError)

    def step(model: Model, state: State, control: jax.Array | None = None, dt=None) -> tuple[State, StepInfo]:
        control = checked(model, state, control)
        h = jnp.asarray(default if dt is None else dt, model.dtype)

        def rate(q, v, time):
            here = dataclasses.replace(state, q=q, v=v, time=time)
            return acceleration(model, here, control, algorithm=algorithm)

        if tableau is None:
            v = state.v + h * rate(state.q, state.v, state.time)
            q = kin.retract(model, state.q, h * v)
        else:
            q, v = _runge_kutta(model, tableau, rate, state, h)
        return _ended(model, state, q, v, h)

    return step


def _runge_kutta(model: Model, tableau: Tableau, rate, state: State, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(q, v) after a step; k_i = (rate of the increment, acceleration) of stage i."""
    k: list[tuple[jax.Array, jax.Array]] = []

    def moved(weights) -> tuple[jax.Array, jax.Array]:
        """The sum h Σ w_j k_j; zeros for no weights."""
        zero = jnp.zeros_like(state.v)
        used = [(w, kj) for w, kj in zip(weights, k) if w]
        return h * sum((w * kj[0] for w, kj in used), zero), h * sum((w * kj[1] for w, kj in used), zero)

    for row in tableau.A:
        delta, dv = moved(row)
        q, v = kin.retract(model, state.q, delta), state.v + dv
        k.append((_increment_rate(model, delta, v), rate(q, v, state.time + sum(row) * h)))
    delta, dv = moved(tableau.b)
    return kin.retract(model, state.q, delta), state.v + dv


def _increment_rate(model: Model, delta: jax.Array, v: jax.Array) -> jax.Array:
    """δ̇ of q(t) = q ⊕ δ(t) where the joints move with v: v itself but for balls."""
    ball = kin.tree(model.topology).ball_v
    if not ball.size:
        return v
    return v.at[ball].set(matvec(joints.right_jacobian_inverse(delta[ball]), v[ball]))


def _ended(model: Model, state: State, q: jax.Array, v: jax.Array, h: jax.Array) -> tuple[State, StepInfo]:
    """The state after a step, or the one before it, and how it went."""
    frozen = state.status != Status.CONVERGED
    begun = jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.v))
    well = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v))
    failed = jnp.where(begun, int(Status.NONFINITE_EVAL), int(Status.NONFINITE_INPUT))
    status = jnp.where(frozen, int(Status.FROZEN), jnp.where(well, int(Status.CONVERGED), failed)).astype(jnp.int8)
    ok = status == Status.CONVERGED
    worst = jnp.argmax(~jnp.isfinite(v)).astype(jnp.int32)
    q, v = jnp.where(ok, q, state.q), jnp.where(ok, v, state.v)
    time = state.time + jnp.where(ok, h, 0.0)
    after = dataclasses.replace(state, q=q, v=v, time=time, status=status, history=q, has_history=jnp.zeros_like(ok))
    nothing, none = jnp.zeros((), model.dtype), jnp.zeros((), jnp.int32)
    return after, StepInfo(
        status=status,
        iterations=none,
        residual=nothing,
        reached=jnp.where(ok, 1.0, 0.0).astype(model.dtype),
        damping=nothing,
        substeps=none + 1,
        worst=worst,
        grad_ok=ok,
        work=None,
        numerical_work=None,
        condition=None,
        **names(model),
    )


def rollout(
    model: Model, state: State, controls=None, n_steps: int | None = None, *, dt: float, method: str = "rk4"
) -> tuple[Trajectory, StepInfo]:
    """Many explicit steps in one compiled `lax.scan`; arguments and results as those of `pbad.rollout`.

    Raises:
        StateError: shapes. OptionError: n_steps, dt, method.
    """
    controls, n_steps = checked_rollout(model, state, controls, n_steps)
    make_step(dt, method)  # a clear error before compiling
    return _rollout(model, state, controls, n_steps, float(dt), method)


@functools.partial(jax.jit, static_argnames=("n_steps", "dt", "method"))
def _rollout(model: Model, state: State, controls, n_steps: int, dt: float, method: str):
    step = make_step(dt, method)

    def body(state, control):
        state, info = step(model, state, control)
        return state, (Trajectory(state.time, state.q, state.v), info)

    return jax.lax.scan(body, state, controls, length=n_steps)[1]
