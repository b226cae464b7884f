"""One step of a diagonally implicit Runge–Kutta scheme: its stages are solved one after another."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.atom.operator import Operator
from pbad_jax.dynamics.instant import acceleration_field, damped, damping_of, generalised_force
from pbad_jax.errors import Status
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.laws.force import total_load
from pbad_jax.math.small import matmul
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import Dirk
from pbad_jax.solver import continuation, implicit
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.branch import is_continuous
from pbad_jax.stage.coasting import coasting, less_dirk
from pbad_jax.stage.equation import StageEquation
from pbad_jax.stage.fields import StageFields, stages
from pbad_jax.stage.problem import SolverConfig, StageProblem, root
from pbad_jax.stage.result import Roots, StepResult, none_solved, step_result
from pbad_jax.stage.start import StepStart, instant_at
from pbad_jax.stage.work import counted, stage_work
from pbad_jax.step import impulse
from pbad_jax.step.impulse import Impulse, apply_impulses
from pbad_jax.step.method import Leg, Method

OWN_ERROR = 0.1  # of the energy at stake in a step, what such a scheme may add by itself; it does in steps of a radian


class _Table(NamedTuple):
    """The scheme's coefficients as arrays, γ apart."""

    A: jax.Array  # (s,s) below the diagonal
    nodes: jax.Array  # (s,)
    last: jax.Array  # (s,) the node before
    weights: jax.Array  # (s,)
    gamma: float


class _Done(NamedTuple):
    """What the stages done so far leave; fields carry a leading axis of stages."""

    rates: Field  # dt V_j, projected
    accelerations: Field  # dt² A_j, consistent
    z: jax.Array
    v: jax.Array
    a: jax.Array
    roots: jax.Array  # (s,1,nq)
    outcome: StepResult


class _Memory(NamedTuple):
    """What goes on from stage to stage."""

    kick: Impulse
    coast: tuple[Field, Field, jax.Array]  # what it adds to accelerations and rates of the stages, and what `coasts`
    done: _Done


def begin(
    model: Model, scheme: Dirk, config: SolverConfig, dt, start: StepStart, state: State, status, known=None
) -> Leg:
    """The first stage."""
    del state
    kick = apply_impulses(model, config, dt, start, status, known and known.before)
    table, kicked = _table(scheme, start.q.dtype), impulse.after(start, kick)
    coast = coasting(model, kicked, dt, table.nodes)
    added = less_dirk(coast, table.A, table.gamma)
    done = _before(model, kicked, kick, len(scheme.A))
    return _leg(model, scheme, dt, start, _Memory(kick, (*added, coast.angles), done), jnp.zeros((), jnp.int32))


def _leg(model: Model, scheme: Dirk, dt, start: StepStart, memory: _Memory, i: jax.Array) -> Leg:
    kick, coast, done = memory
    table = _table(scheme, start.q.dtype)
    eq = _equation(table, dt, impulse.after(start, kick), i, coast, done)
    direction = predictor.after_last_stage(model, (table.nodes[i] - table.last[i]) * dt, done.z, done.v, done.a)
    return Leg(eq, direction, done.outcome.status, memory, i)


def problem(model: Model, scheme: Dirk, config: SolverConfig, start: StepStart, leg: Leg) -> StageProblem:
    """The stage whose turn it is."""
    del scheme
    return StageProblem(model, impulse.after(start, leg.memory.kick), leg.eq, leg.direction, config)


def more(
    model: Model, scheme: Dirk, config: SolverConfig, start: StepStart, leg: Leg, found: continuation.State
) -> Leg:
    """The next stage; after the last one there is nothing to be solved in it."""
    kick, coast, done = leg.memory
    table, stage = _table(scheme, start.q.dtype), problem(model, scheme, config, start, leg)
    done = _after_stage(stage, table, leg.index, done, found)
    return _leg(model, scheme, leg.eq.dt, start, _Memory(kick, coast, done), leg.index + 1)


def end(
    model: Model,
    scheme: Dirk,
    config: SolverConfig,
    start: StepStart,
    leg: Leg,
    found: continuation.State | None,
    known: Roots | None = None,
) -> StepResult:
    """After the last stage, or one that failed; found: None where it has been noted."""
    del known
    kick, _, done = (leg if found is None else more(model, scheme, config, start, leg, found)).memory
    out, st = done.outcome, stages(model, start, done.roots[-1])
    status = jnp.where(out.status == lm.RUNNING, jnp.int8(Status.CONVERGED), out.status)
    return out._replace(status=status, roots=Roots(kick.root, done.roots), stages=st)


METHOD = Method(begin, problem, end, lambda *_: OWN_ERROR, settles=True, more=more, legs=lambda scheme: len(scheme.A))


def _table(scheme: Dirk, dtype) -> _Table:
    nodes = jnp.asarray(scheme.nodes, dtype)
    last = jnp.concatenate([jnp.zeros(1, dtype), nodes[:-1]])
    lower, weights = jnp.asarray(np.tril(scheme.A, -1), dtype), jnp.asarray(scheme.A[-1], dtype)
    return _Table(lower, nodes, last, weights, scheme.gamma)


def _before(model: Model, s: StepStart, kick: Impulse, n: int) -> _Done:
    dtype = s.q.dtype
    fields = jax.tree.map(lambda x: jnp.zeros((n, *x.shape), dtype), s.V)
    identity = manifold.identity_increment(model)
    figures = none_solved(dtype)._replace(iterations=kick.iterations, reached=jnp.ones((), dtype))
    none = StepResult(identity, s.v, s.q, kick.status, figures, kick.work)
    roots = jnp.zeros((n, 1, model.nq), dtype)
    return _Done(fields, fields, identity, s.v, jnp.zeros_like(s.v), roots, none)


def _equation(table: _Table, dt, start: StepStart, i, coast, done: _Done) -> StageEquation:
    """Stage i minimises ‖T(q_i) − X‖²_M/2γ²dt² + Q, sums over j < i:

    X = T_k + dt Σ a_ij V_j + γ dt V_p,  V_p = V_k + dt Σ a_ij A_j, and what is known of coasting (stage/coasting.py).
    """
    gamma, (accel, rate, coasts) = table.gamma, coast
    # Σ a_ij V_j and Σ a_ij A_j of the stages before
    V = jax.tree.map(lambda x: jnp.tensordot(table.A[i], x, axes=1), done.rates)
    W = jax.tree.map(lambda x: jnp.tensordot(table.A[i], x, axes=1), done.accelerations)
    return StageEquation(
        dt=dt,
        nodes=table.nodes[i][None],
        C=jnp.full((1, 1), 1 / gamma**2, start.q.dtype),
        D=jnp.full((1, 1), 1 / gamma, start.q.dtype),
        accel=(
            None,
            jax.tree.map(lambda v, v_k: -(v + gamma * dt * v_k)[None] / gamma**2, V, start.V),
            jax.tree.map(lambda w, x: -w[None] / gamma + x[i][None], W, accel),
        ),
        rate=(None, jax.tree.map(lambda v: -v[None] / gamma, V), jax.tree.map(lambda x: x[i][None], rate)),
        coasts=coasts,
    )


def _after_stage(problem: StageProblem, table: _Table, i, done: _Done, found: continuation.State) -> _Done:
    """Note the rate and the acceleration of stage i, which has been solved, for those that follow."""
    model, start, eq, config, dt = problem.model, problem.start, problem.eq, problem.config, problem.eq.dt
    stage = root(problem, found.attempt.x, found.status == Status.CONVERGED)
    st, z = stages(model, start, stage), stage[0]
    v, f, mass = equation.end_velocity(model, start, eq, st)
    a = _acceleration(model, table.gamma * dt, start, eq, st, v, mass)
    rate = Field(transforms.velocity_field(model, f, v), joint_field.rate(model, v, z))
    second = acceleration_field(model, f, z, v, a)

    which = counted(model, start, config.account)
    work = done.outcome.work + table.weights[i] * stage_work(model, start, eq, st, which)[0]
    smooth = is_continuous(model, table.nodes[i] * dt, start.v, z, v)
    result = step_result(problem, found, st, v, start.q, work, Roots())._replace(stages=())
    ended = _together(done.outcome, result, smooth)
    rates, accelerations = _put(done.rates, i, rate, dt), _put(done.accelerations, i, second, dt**2)
    return _Done(rates, accelerations, z, v, a, done.roots.at[i].set(found.attempt.x), ended)


def _acceleration(
    model: Model, gamma_dt, start: StepStart, eq: StageEquation, st: StageFields, v: jax.Array, mass: Operator
) -> jax.Array:
    """The joint acceleration (nv,) at the projected rates v: M a = τ(v) − <∂T/∂q, Γ M>.

    The stage was solved with τ(u) at the scheme's own rates u, which differ from v by O(dt²). A stiff damper would make
    much of that, so a = a(u) + (1 − (1 − W)³) M⁻¹(τ(v) − τ(u)), W = (M − γ dt ∂τ/∂v)⁻¹ M: a(v) but for terms of third
    order in dt ∂τ/∂v where they are small, and bounded where they are large.
    """
    z, elapsed, f = st.z[0], eq.nodes[0] * eq.dt, jax.tree.map(lambda x: x[0], st.frames)
    q, rate = manifold.compose_increment(model, start.q, z), equation.stage_rates(eq, st)

    def load(v, V):
        return total_load(model, instant_at(model, start, q, v, f, V, elapsed, eq.dt), "stages")

    # M a = τ at the rates that the stage was solved with
    solved = load(joint_field.pullback(model, z, rate.joint[0]) / eq.dt, rate.T[0] / eq.dt)
    inertial = matmul(transforms.centripetal_field(model, f, v), model.second_moment)
    taken = generalised_force(model, f, solved, inertial, recurrence=start.recurrence)
    a = operator.solve(model, mass, taken)
    damping = damping_of(model, f, solved, gamma_dt)
    if damping is None:
        return a
    # what a damper makes of the true rates, three times by W
    exact, matrix = load(v, transforms.velocity_field(model, f, v)), damped(model, f, mass, damping)
    left = generalised_force(model, f, exact, inertial, recurrence=start.recurrence) - taken
    for _ in range(3):
        more = operator.solve(model, matrix, left)
        left, a = left - operator.times(model, mass, more), a + more
    return a


def _put(fields: Field, i, field: Field, scale) -> Field:
    return jax.tree.map(lambda all, x: all.at[i].set(scale * x), fields, field)


def _together(done: StepResult, new: StepResult, smooth) -> StepResult:
    """The StepResult of the stages so far: RUNNING while they converge; nothing more after one that does not."""
    going_on = jnp.where(smooth, jnp.int8(lm.RUNNING), jnp.int8(Status.BRANCH))
    a, b = done.figures, new.figures
    figures = b._replace(
        iterations=a.iterations + b.iterations,
        residual=jnp.maximum(a.residual, b.residual),
        damping=jnp.maximum(a.damping, b.damping),
        condition=jnp.maximum(a.condition, b.condition),
    )
    status = jnp.where(new.status == Status.CONVERGED, going_on, new.status)
    new = new._replace(status=status, figures=figures)
    so_far_good = implicit.keep(done.status == lm.RUNNING)  # or reverse mode would solve again to know it
    return jax.tree.map(lambda a, b: jnp.where(so_far_good, a, b), new, done)
