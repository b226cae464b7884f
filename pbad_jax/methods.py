"""One step of each family of schemes, from what is known at time k to an Outcome: tables, solves, end velocity.

Collocations (radau, legendre) solve all stages together; dirk solves them one after another; the variational scheme
solves one equation at q_k. Nothing here decides what becomes of a failed step: stepping.py does.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import continuation, joint_fields, joints, lanes, lbfgs, objectives, tree_solve
from pbad_jax import kinematics as kin
from pbad_jax import levenberg_marquardt as lm
from pbad_jax.errors import Status
from pbad_jax.forces import Point
from pbad_jax.joints import matmul
from pbad_jax.model import Model, State
from pbad_jax.objectives import Equation, Field, Here
from pbad_jax.schemes import Dirk, Scheme, Variational, extrapolation, radau

LONGEST_TURN = 1.5  # rad that one Newton correction may turn a joint


class Solver(NamedTuple):
    """How equations are solved: static."""

    tolerance: float  # relative to the model's size
    max_iterations: int
    method: str  # "lm" or "lbfgs"
    objective: str  # "root", "energy" or "squared"
    twin: str
    dense: bool  # (nv,nv) matrices, or sweeps over the tree; False for one unknown configuration at a time only
    retry: bool  # another guess where the first failed, for schemes with history
    account: bool  # the work of each force


class Outcome(NamedTuple):
    """What a method found; only `status` says whether it can be used."""

    z: jax.Array  # (nq,) increment to the end of the step
    v: jax.Array  # (nv,) there
    history: jax.Array  # (nq,) configuration at the history node of the next step
    status: jax.Array  # () int8, RUNNING never
    iterations: jax.Array  # () int32
    residual: jax.Array  # () relative
    reached: jax.Array  # () fraction of the step that could be solved
    damping: jax.Array  # () λ of the last iteration
    worst: jax.Array  # () int32, the degree of freedom that the last correction moves most
    work: jax.Array  # (nforces,) J; (0,) unless asked for


def step(model: Model, scheme, solver: Solver, dt, state: State, control, status) -> Outcome:
    """One step of length dt by any scheme. `status`: RUNNING, or why there is nothing to solve."""
    method = {Scheme: _collocate, Dirk: _dirk, Variational: _variational}[type(scheme)]
    s = objectives.here(model, state, control, twin=solver.twin, dense=solver.dense)
    return method(model, scheme, solver, dt, s, state, status)


def find(
    model: Model,
    solver: Solver,
    s: Here,
    evaluate,
    nodes,
    direction,
    status,
    *,
    continuous: bool = True,
    energy=None,
    det_C: float = 1.0,
) -> continuation.State:
    """The increments z (m,nq) where the residual vanishes, by continuation.State.

    Args:
        model: the model. solver: how. s: time k.
        evaluate: (z (m,nq), h) -> residual (m·nv,) and matrix.
        nodes: (m,) of the stages, for extrapolation along h.
        direction: (m,nv) guess of the displacements at h = 1.
        status: RUNNING, or a Status to be passed through.
        continuous: whether h → 0 is trivial.
        energy: (z, h) -> () whose gradient is the residual, where the objective is the energy.
        det_C: of the scheme's table.
    """
    if solver.method == "lbfgs":
        return _by_lbfgs(model, solver, s, evaluate, energy, direction, status, det_C)
    identity = kin.identity_increment(model)

    def retract(z, delta):
        return jax.vmap(lambda z_j, d: kin.retract(model, z_j, d))(z, delta.reshape(direction.shape))

    def guess(z, h_done, h):
        """The first attempt goes on as `direction` says; later ones extrapolate the stages that are solved."""
        delta = h * direction
        if z is not None:
            done = jax.vmap(lambda z_j: kin.difference(model, identity, z_j))(z)
            weights = extrapolation(nodes, h / jnp.where(h_done > 0, h_done, 1.0))
            delta = jnp.where(h_done > 0, weights @ done, delta)
        delta = jnp.where(status == lm.RUNNING, delta, 0.0)
        return jax.vmap(lambda d: kin.retract(model, identity, d))(delta)

    longest = jnp.where(kin.tree(model.topology).dof_slide, jnp.inf, LONGEST_TURN).astype(s.q.dtype)
    algebra = tree_algebra(model, s) if s.metric is None else lm.dense(s.metric, energy=energy is not None)
    accept = functools.partial(_on_the_branch, det_C)
    family = continuation.Family(evaluate, retract, guess, algebra, continuous, longest, energy, accept, model)
    settings = lm.Settings(solver.tolerance * objectives.residual_scale(model), solver.max_iterations)
    return continuation.solve(family, settings, status=status)


def tree_algebra(model: Model, s: Here) -> lm.Algebra:
    """J as a tree_solve.Matrix, lengths in the mass matrix at time k; the damped step is −(J + λ mass)⁻¹ r."""

    def solve(data, J, b):
        return tree_solve.solve(data[0], J.f, J.c, J.A, J.d, J.blocks, b)

    def norm(data, r):
        return jnp.sqrt(jnp.maximum(tree_solve.inverse_quadratic(data[0], data[1], r), 0.0))

    def length(data, delta):
        return jnp.sqrt(jnp.maximum(tree_solve.quadratic(data[0], data[1], delta), 0.0))

    def damped(data, J, r, damping):
        return -solve(data, J._replace(c=J.c + damping, d=J.d + damping * data[0].armature), r)

    return lm.Algebra((model, tree_solve.mass(model, s.frames)), solve, damped, norm, length)


def _by_lbfgs(
    model: Model, solver: Solver, s: Here, evaluate, energy, direction, status, det_C: float
) -> continuation.State:
    """The same, by L-BFGS on the energy or on ½‖L⁻¹ r‖², in whitened exponential coordinates about the first guess."""
    t, m, metric = kin.tree(model.topology), direction.shape[0], s.metric
    assert metric is not None
    direction = jnp.where(status == lm.RUNNING, direction, 0.0)
    origin = jax.vmap(lambda d: kin.retract(model, kin.identity_increment(model), d))(direction)

    def point(y):
        delta = lm.blockwise(metric.inverse.T, y[:, None]).reshape(m, -1)
        return jax.vmap(lambda z_j, d: kin.retract(model, z_j, d))(origin, delta), delta

    def in_chart(covector, delta):
        """Along y: L⁻¹ Jrᵀ, Jr the right Jacobian of the balls' exponentials."""
        g = covector.reshape(m, -1)
        if t.balls.size:
            Jr = joints.right_jacobian(delta[:, t.ball_v])
            g = g.at[:, t.ball_v].set(joints.matvec(joints.transpose(Jr), g[:, t.ball_v]))
        return lm.whiten(metric, g.reshape(-1))

    def objective(y):
        z, delta = point(y)
        r, J = evaluate(z, 1.0)
        if energy is not None:
            return energy(z, 1.0), in_chart(r, delta)
        white = lm.whiten(metric, r)
        return 0.5 * white @ white, in_chart(J.T @ lm.blockwise(metric.inverse.T, white[:, None])[:, 0], delta)

    def norm(y):
        return jnp.linalg.norm(lm.whiten(metric, evaluate(point(y)[0], 1.0)[0]))

    tolerance = solver.tolerance * objectives.residual_scale(model)
    y = jnp.zeros(direction.size, s.q.dtype)
    found = lbfgs.minimise(objective, norm, tolerance, solver.max_iterations, y, status=status)
    z, _ = point(found.y)
    _, J = evaluate(z, 1.0)
    one, zero = jnp.ones((), s.q.dtype), jnp.zeros((), s.q.dtype)
    on_branch = _on_the_branch(det_C, model, z, J)
    ended = jnp.where((found.status == Status.CONVERGED) & ~on_branch, jnp.int8(Status.BRANCH), found.status)
    solved = ended == Status.CONVERGED
    at = lm.SolveState(z, found.y, J, norm(found.y), found.value, z, found.gradient, zero, found.iterations, ended)
    return continuation.State(at, one, jnp.where(solved, one, zero), z, one, found.iterations, ended)


LARGE_TURN = 1.0  # rad a step from which a fold matters; below, an unstable force at a large dt may look like one


def _on_the_branch(det_C: float, model: Model, z: jax.Array, J) -> jax.Array:
    """Whether a root can be reached from dt = 0 without J becoming singular: a necessary condition, () bool.

    At dt = 0 J is C ⊗ mass. One unknown configuration: J has to be positive definite still (its symmetric part; that
    is, the root minimises the energy). Several: det J has to have the sign that it had there. Only asked where a joint
    has turned by more than LARGE_TURN: radau(1), say, has a root at which a fast rotor runs backwards.
    """
    if isinstance(J, tree_solve.Matrix):
        connected = tree_solve.positive(model, J)
    elif J.shape[0] == model.nv:
        connected = jnp.all(jnp.isfinite(lanes.cholesky(0.5 * (J + J.T)).factor))
    else:
        connected = lanes.sign_of_determinant(J) * np.sign(det_C) ** model.nv > 0
    return connected | (_largest_turn(model, z) < LARGE_TURN)


def is_continuous(model: Model, dt, v_old: jax.Array, z: jax.Array, v_new: jax.Array) -> jax.Array:
    """Whether no joint has turned further than its rates before and after can explain, () bool; z (nq,), v (nv,).

    A hinge may turn by the mean of both rates, plus half of each, plus half a turn; a ball likewise, plus a quarter of
    one, as far as its rotation (at most half a turn) can tell. A slide is not asked, because positions are not periodic
    and a far root would have a large residual energy.
    """
    t = kin.tree(model.topology)
    mean, slack = 0.5 * dt * (v_old + v_new), 0.5 * jnp.abs(dt) * (jnp.abs(v_old) + jnp.abs(v_new))
    hinge, dofs = t.scalar_q[t.hinge[t.scalar_links]], t.scalar_v[t.hinge[t.scalar_links]]
    smooth = ~jnp.any(jnp.abs(z[hinge] - mean[dofs]) > slack[dofs] + jnp.pi)
    if t.balls.size:
        p = joints.quaternion_product(joints.quaternion_exp(-mean[t.ball_v]), z[t.ball_q])
        angle = jnp.linalg.norm(joints.quaternion_log(p), axis=-1)
        smooth &= ~jnp.any(angle > jnp.linalg.norm(slack[t.ball_v], axis=-1) + jnp.pi / 2)
    return smooth


def _largest_turn(model: Model, z: jax.Array) -> jax.Array:
    """The largest angle (rad) that a hinge or ball has turned, of z (m,nq)."""
    t = kin.tree(model.topology)
    turns = [jnp.zeros(1, z.dtype), jnp.abs(z[:, t.scalar_q[t.hinge[t.scalar_links]]]).reshape(-1)]
    if t.balls.size:
        turns.append(jnp.linalg.norm(joints.quaternion_log(z[:, t.ball_q]), axis=-1).reshape(-1))
    return jnp.max(jnp.concatenate(turns))


def _outcome(model: Model, found: continuation.State, z, v, history, work) -> Outcome:
    move = jnp.max(jnp.abs(found.attempt.newton.reshape(-1, model.nv)), axis=0)
    return Outcome(
        z=z,
        v=v,
        history=history,
        status=found.status,
        iterations=found.iterations,
        residual=found.attempt.norm / objectives.residual_scale(model),
        reached=found.h_done,
        damping=found.attempt.damping,
        worst=jnp.argmax(move).astype(jnp.int32),
        work=work,
    )


# --- collocations ----------------------------------------------------------------------------------------


def _collocate(model: Model, scheme: Scheme, solver: Solver, dt, s: Here, state: State, status) -> Outcome:
    z_h = None
    if scheme.has_history:
        z_h, status = _history(model, scheme, solver, dt, s, state, status)
    eq = objectives.collocation(model, scheme, dt, s, z_h)
    found = _solve_stages(model, scheme, solver, s, eq, eq.nodes[:, None] * (dt * state.v), status)
    if scheme.has_history and solver.retry and solver.method == "lm":
        found = _from_radau(model, scheme, solver, s, eq, found)
    z = found.attempt.x
    v = objectives.end_velocity(model, s, eq, z, twin=solver.twin, dense=solver.dense)
    history = kin.compose_increment(model, s.q, z[-2]) if scheme.m > 1 else s.q
    work = jnp.zeros(0, s.q.dtype)
    if solver.account:
        work = jnp.asarray(scheme.weights, s.q.dtype) @ _stage_work(model, s, eq, z)
    return _outcome(model, found, z[-1], v, history, work)


def _solve_stages(model, scheme, solver: Solver, s: Here, eq: Equation, direction, status) -> continuation.State:
    evaluate, energy = _stage_equation(model, solver, s, eq)
    det_C = float(np.linalg.det(scheme.C))
    how = {"continuous": not scheme.has_history, "energy": energy, "det_C": det_C}
    return find(model, solver, s, evaluate, eq.nodes, direction, status, **how)


def _stage_equation(model: Model, solver: Solver, s: Here, eq: Equation):
    """(z, h) -> residual and matrix, and (z, h) -> energy where that is the objective."""

    def evaluate(z, h):
        if solver.dense:
            return objectives.residual_and_matrix(model, s, eq, z, h, twin=solver.twin)
        return objectives.residual_and_tree(model, s, eq, z, h)

    def energy(z, h):
        return objectives.energy(model, s, eq, z, h)

    return evaluate, energy if solver.objective == "energy" else None


def _history(model: Model, scheme: Scheme, solver: Solver, dt, s: Here, state: State, status):
    """Increment (nq,) of the history node: the state's, or before the first step made from (q, v); and the status.

    "matched": a step backwards to the node with radau, of at least the scheme's order. "linear": q + h v, literally.
    """
    known = kin.increment_between(model, state.q, state.history)
    h = scheme.history_node * dt
    if scheme.start == "linear":
        return jnp.where(state.has_history, known, _plus(model, h * state.v)), status
    backwards = radau(3 if scheme.order > 3 else 2)
    newton = solver._replace(method="lm", objective="root", dense=True)

    def made(model, s, known, status, h):
        del known
        s = objectives.here(model, s, s.control, twin=solver.twin)
        eq = objectives.collocation(model, backwards, h, s, None)
        found = _solve_stages(model, backwards, newton, s, eq, eq.nodes[:, None] * (h * s.v), status)
        solved = found.status == Status.CONVERGED
        return found.attempt.x[-1], jnp.where(solved, status, found.status)

    missing = ~state.has_history & (status == lm.RUNNING)
    return lanes.rarely(missing, lambda model, s, known, status, h: (known, status), made, model, s, known, status, h)


def _from_radau(model: Model, scheme: Scheme, solver: Solver, s: Here, eq: Equation, found: continuation.State):
    """A second attempt where the first failed, from the stages of radau(2) as the guess."""

    def again(model, s, eq, found):
        first = radau(2)
        other = objectives.collocation(model, first, eq.dt, s, None)
        running = jnp.int8(lm.RUNNING)
        path = _solve_stages(model, first, solver, s, other, other.nodes[:, None] * (eq.dt * s.v), running)
        identity = kin.identity_increment(model)
        done = jax.vmap(lambda z_j: kin.difference(model, identity, z_j))(path.attempt.x)
        direction = extrapolation(other.nodes, jnp.ones((), s.q.dtype), at=eq.nodes) @ done
        second = _solve_stages(model, scheme, solver, s, eq, direction, running)
        second = second._replace(iterations=found.iterations + path.iterations + second.iterations)
        return jax.tree.map(lambda a, b: jnp.where(second.status == Status.CONVERGED, a, b), second, found)

    retry = (found.status != Status.CONVERGED) & (found.iterations > 0)
    return lanes.rarely(retry, lambda model, s, eq, found: found, again, model, s, eq, found)


def _plus(model: Model, delta: jax.Array) -> jax.Array:
    """The increment (nq,) of a displacement (nv,)."""
    return kin.retract(model, kin.identity_increment(model), delta)


# --- diagonally implicit ---------------------------------------------------------------------------------


class _Stage(NamedTuple):
    """What the stages done so far leave; fields carry a leading axis of stages."""

    rates: Field  # dt V_j, projected
    accelerations: Field  # dt² A_j, consistent
    z: jax.Array
    v: jax.Array
    outcome: Outcome


def _dirk(model: Model, scheme: Dirk, solver: Solver, dt, s: Here, state: State, status) -> Outcome:
    """Each stage minimises ‖T(q_i) − X‖²_M/2γ²dt² + Q, sums over j < i:

    X = T_k + dt Σ a_ij V_j + γ dt V_p,  V_p = V_k + dt Σ a_ij A_j.
    """
    n, dtype, how = len(scheme.A), s.q.dtype, {"twin": solver.twin, "dense": solver.dense}
    A, nodes, gamma = jnp.asarray(np.tril(scheme.A, -1), dtype), jnp.asarray(scheme.nodes, dtype), scheme.gamma
    last = jnp.concatenate([jnp.zeros(1, dtype), nodes[:-1]])
    weights = jnp.asarray(scheme.A[-1], dtype)

    def stage(i, before: _Stage) -> _Stage:
        V = jax.tree.map(lambda x: jnp.tensordot(A[i], x, axes=1), before.rates)
        W = jax.tree.map(lambda x: jnp.tensordot(A[i], x, axes=1), before.accelerations)
        eq = Equation(
            dt=dt,
            nodes=nodes[i][None],
            C=jnp.full((1, 1), 1 / gamma**2, dtype),
            D=jnp.full((1, 1), 1 / gamma, dtype),
            accel=(
                None,
                jax.tree.map(lambda v, v_k: -(v + gamma * dt * v_k)[None] / gamma**2, V, s.V),
                jax.tree.map(lambda w: -w[None] / gamma, W),
            ),
            rate=(None, jax.tree.map(lambda v: -v[None] / gamma, V)),
        )
        start = kin.difference(model, kin.identity_increment(model), before.z)
        direction = (start + (nodes[i] - last[i]) * dt * before.v)[None]
        done = before.outcome

        evaluate, energy = _stage_equation(model, solver, s, eq)
        found = find(model, solver, s, evaluate, eq.nodes, direction, done.status, energy=energy)
        z = found.attempt.x[0]
        v = objectives.end_velocity(model, s, eq, found.attempt.x, **how)
        q = kin.compose_increment(model, s.q, z)
        a = objectives.acceleration(model, q, v, s.time + nodes[i] * dt, s.control, **how)
        f = jax.tree.map(lambda x: x[0], objectives.stages(model, s, found.attempt.x).frames)
        rate = Field(kin.velocity_field(model, f, v), joint_fields.rate(model, v, z))
        second = objectives.acceleration_field(model, f, z, v, a)
        work = done.work
        if solver.account:
            work = work + weights[i] * _stage_work(model, s, eq, found.attempt.x)[0]
        new = _outcome(model, found, z, v, s.q, work)
        smooth = is_continuous(model, nodes[i] * dt, s.v, z, v)
        going_on = jnp.where(smooth, jnp.int8(lm.RUNNING), jnp.int8(Status.BRANCH))
        new = new._replace(
            status=jnp.where(new.status == Status.CONVERGED, going_on, new.status),
            iterations=done.iterations + new.iterations,
            residual=jnp.maximum(done.residual, new.residual),
            damping=jnp.maximum(done.damping, new.damping),
        )
        new = jax.tree.map(lambda a, b: jnp.where(done.status == lm.RUNNING, a, b), new, done)
        put = lambda all, x, scale: jax.tree.map(lambda y, x_i: y.at[i].set(scale * x_i), all, x)  # noqa: E731
        return _Stage(put(before.rates, rate, dt), put(before.accelerations, second, dt**2), z, v, new)

    zero = jax.tree.map(lambda x: jnp.zeros((n, *x.shape), dtype), s.V)
    identity = kin.identity_increment(model)
    none = jnp.zeros(len(model.forces) if solver.account else 0, dtype)
    one, nothing, no_iterations = jnp.ones((), dtype), jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
    status = jnp.asarray(status, jnp.int8)
    empty = Outcome(identity, s.v, s.q, status, no_iterations, nothing, one, nothing, no_iterations, none)
    out = jax.lax.fori_loop(0, n, stage, _Stage(zero, zero, identity, s.v, empty)).outcome
    return out._replace(status=jnp.where(out.status == lm.RUNNING, jnp.int8(Status.CONVERGED), out.status))


# --- variational -----------------------------------------------------------------------------------------


def _variational(model: Model, scheme: Variational, solver: Solver, dt, s: Here, state: State, status) -> Outcome:
    """Solve p_k = <∂T_k/∂q, (T_{k+1} − T_k) M>/dt − dt τ_k/2 for q_{k+1}; then p_{k+1} from the same at q_{k+1}."""
    del scheme
    recurrence = objectives.TWINS[solver.twin]
    tau = _force_at(model, s, s.q, s.v, s.frames, s.time, solver.twin)
    assert s.mass is not None  # stepping.py sees to it
    momentum = s.mass @ s.v

    def tested_at(f, z_at, z, delta: Field):
        """<∂T/∂q at f, ΔT M> and the joints' part, (nv,)."""
        r = recurrence.pullback(model, f, matmul(delta.T, model.second_moment))
        return r + model.armature * joint_fields.pullback(model, z_at, delta.joint)

    identity = kin.identity_increment(model)

    def evaluate(z, h):
        st = objectives.stages(model, s, z)
        delta, f = jax.tree.map(lambda x: x[0], (st.delta, st.frames))
        r = tested_at(s.frames, identity, z, delta) - h * dt * momentum - 0.5 * (h * dt) ** 2 * tau
        return r, recurrence.mixed_hess(model, s.frames, f) + _joint_matrix(model, z)

    nodes = jnp.ones(1, s.q.dtype)
    found = find(model, solver, s, evaluate, nodes, (dt * s.v)[None], status)
    z = found.attempt.x
    st = objectives.stages(model, s, z)
    delta, f = jax.tree.map(lambda x: x[0], (st.delta, st.frames))
    mass = recurrence.mass_matrix(model, f)
    free = lanes.solve(mass, tested_at(f, z[0], z, delta) / dt)
    q = kin.compose_increment(model, s.q, z[0])
    v = _half_kick(model, s, q, free, f, mass, dt, solver.twin)
    work = jnp.zeros(0, s.q.dtype)
    if solver.account:
        ends = ((s.q, s.v, s.frames, s.time), (q, v, f, s.time + dt))
        work = sum(0.5 * dt * _power(model, s, *end, kin.velocity_field(model, end[2], end[1])) for end in ends)
    return _outcome(model, found, z[0], v, s.q, work)


def _joint_matrix(model: Model, z: jax.Array) -> jax.Array:
    """∂/∂z of armature ∘ the joints' part, tested at q_k: a ball's ½(tr(R) E − Rᵀ)."""
    t = kin.tree(model.topology)
    out = jnp.diag(model.armature)
    if not t.balls.size:
        return out
    one = jnp.stack([kin.identity_increment(model), z[0]])
    u = jax.vmap(lambda x: joint_fields.difference(model, x))(one)
    pick = jnp.zeros((2, 2), z.dtype).at[0, 1].set(1.0)
    _, by_z = joint_fields.table(model, pick, one, u, jnp.zeros_like(u))
    return model.armature[:, None] * joint_fields.full(model, by_z)[0, 1]


def _half_kick(model: Model, s: Here, q, v, f, mass, dt, twin) -> jax.Array:
    """The v (nv,) with mass (v − v_free) = dt τ(q, v)/2, by one Newton step: exact for forces linear in v."""
    at = Point(q=q, v=v, T=kin.shift(f.T, -s.origin), time=s.time + dt, control=s.control)
    load = objectives.total_load(model, at)
    matrix = mass
    if load.dtau_dv is not None:
        matrix = mass - 0.5 * dt * (jnp.diag(load.dtau_dv) if load.dtau_dv.ndim == 1 else load.dtau_dv)
    return v + lanes.solve(matrix, 0.5 * dt * objectives.generalised_force(model, f, load, twin=twin))


def _force_at(model: Model, s: Here, q, v, f: kin.Frames, time, twin) -> jax.Array:
    at = Point(q=q, v=v, T=kin.shift(f.T, -s.origin), time=time, control=s.control)
    return objectives.generalised_force(model, f, objectives.total_load(model, at), twin=twin)


# --- energy accounts -------------------------------------------------------------------------------------


def _stage_work(model: Model, s: Here, eq: Equation, z: jax.Array) -> jax.Array:
    """Dt × the power of every force at every stage, (m,nforces) J."""
    st = objectives.stages(model, s, z)
    V = objectives.stage_rates(eq, st)
    v = jax.vmap(lambda z_i, u: joint_fields.pullback(model, z_i, u))(z, V.joint) / eq.dt
    q = jax.vmap(lambda z_i: kin.compose_increment(model, s.q, z_i))(z)
    power = jax.vmap(lambda q, v, f, time, V: _power(model, s, q, v, f, time, V))
    return eq.dt * power(q, v, st.frames, s.time + eq.nodes * eq.dt, V.T / eq.dt)


def _power(model: Model, s: Here, q, v, f: kin.Frames, time, V: jax.Array) -> jax.Array:
    """τ·v − <∂Q/∂T, V> of every force, (nforces,) W."""
    at = Point(q=q, v=v, T=kin.shift(f.T, -s.origin), time=time, control=s.control)
    out = []
    for force in model.forces:
        load, power = force.load(model, at), jnp.zeros((), q.dtype)
        power = power if load.tau is None else power + load.tau @ v
        out.append(power if load.field is None else power - jnp.sum(load.field * V))
    return jnp.stack(out) if out else jnp.zeros(0, q.dtype)
