"""One step of the variational scheme: an equation at q_k, and half kicks of the forces at both ends."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.dynamics.instant import damped, damping_of, generalised_force
from pbad_jax.errors import Status
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import total_load
from pbad_jax.math.small import matmul
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import Variational
from pbad_jax.solver import continuation
from pbad_jax.stage import predictor
from pbad_jax.stage.fields import stages
from pbad_jax.stage.problem import SolverConfig, StageProblem, root
from pbad_jax.stage.result import Roots, StepResult, step_result
from pbad_jax.stage.start import StepStart, first_instant, instant_at
from pbad_jax.stage.work import counted, power
from pbad_jax.step import impulse
from pbad_jax.step.impulse import apply_impulses
from pbad_jax.step.method import Leg, Method

OWN_ERROR = 1.0  # of the energy at stake in a step, what it may add: 0.8 at the end of its stability, ω dt = 2


class MomentumEquation(NamedTuple):
    """What p_k = <∂T_k/∂q, (T_{k+1} − T_k) M>/dt − dt τ_k/2 has beside the unknown q_{k+1}."""

    dt: jax.Array
    nodes: jax.Array  # (1,)
    momentum: jax.Array  # (nv,) p_k
    tau: jax.Array  # (nv,) τ_k

    has_branches = True
    takes_guide = False
    coasts = None

    def evaluate(self, model: Model, start: StepStart, z: jax.Array, h, guide: None = None):
        """(nv,) of p_k = ..., times h dt, and z, which its matrix is made of."""
        del guide
        delta = jax.tree.map(lambda x: x[0], stages(model, start, z).delta)
        known = h * self.dt * self.momentum + 0.5 * (h * self.dt) ** 2 * self.tau
        identity = manifold.identity_increment(model)
        return _tested_at(model, start.frames, identity, delta, start.recurrence) - known, z

    def matrix(self, model: Model, start: StepStart, z: jax.Array) -> jax.Array:
        """Of the residual's derivative by z ⊕ δ, (nv,nv)."""
        f = jax.tree.map(lambda x: x[0], stages(model, start, z).frames)
        mixed = operator.RECURRENCES[start.recurrence].mixed_hess(model, start.frames, f)
        return mixed + _joint_matrix(model, z)


def begin(
    model: Model, scheme: Variational, config: SolverConfig, dt, start: StepStart, state: State, status, known=None
) -> Leg:
    """p_k = <∂T_k/∂q, (T_{k+1} − T_k) M>/dt − dt τ_k/2 for q_{k+1}; it remembers the impulse before it."""
    del scheme, state
    kick = apply_impulses(model, config, dt, start, status, known and known.before)
    start, recurrence = impulse.after(start, kick), config.recurrence
    first = first_instant(model, start, dt)
    tau = generalised_force(model, start.frames, total_load(model, first, "stages"), recurrence=recurrence)
    eq = MomentumEquation(dt, jnp.ones(1, start.q.dtype), operator.times(model, start.mass, start.v), tau)
    return Leg(eq, predictor.straight(eq.nodes, dt, start.v), kick.status, kick)


def problem(model: Model, scheme: Variational, config: SolverConfig, start: StepStart, leg: Leg) -> StageProblem:
    """p_k = ... as a square system."""
    del scheme
    return StageProblem(model, impulse.after(start, leg.memory), leg.eq, leg.direction, config)


def end(
    model: Model,
    scheme: Variational,
    config: SolverConfig,
    start: StepStart,
    leg: Leg,
    found: continuation.State,
    known: Roots | None = None,
) -> StepResult:
    """p_{k+1} from the same at q_{k+1}, half the kick included."""
    del known
    # q_{k+1}, and the momentum there as a velocity
    solved, kick = problem(model, scheme, config, start, leg), leg.memory
    start, dt, recurrence = solved.start, leg.eq.dt, config.recurrence
    z = root(solved, found.attempt.x, found.status == Status.CONVERGED)
    st = stages(model, start, z)
    delta, f = jax.tree.map(lambda x: x[0], (st.delta, st.frames))
    mass = operator.mass(model, f, recurrence)
    free = operator.solve(model, mass, _tested_at(model, f, z[0], delta, recurrence) / dt)

    # the other half of the kick
    q = manifold.compose_increment(model, start.q, z[0])
    v = _half_kick(model, start, q, free, f, mass, dt)

    # the work by both ends
    work, which = kick.work, counted(model, start, config.account)
    if which:
        V = transforms.velocity_field(model, f, v)
        first = first_instant(model, start, dt)
        last = instant_at(model, start, q, v, f, V, dt, dt)
        work = work + sum(0.5 * dt * power(model, at, "stages", which) for at in (first, last))

    # with what the impulse before it has taken
    out = step_result(solved, found, st, v, start.q, work, Roots(kick.root, found.attempt.x))
    return out._replace(figures=out.figures._replace(iterations=out.figures.iterations + kick.iterations))


METHOD = Method(begin, problem, end, lambda *_: OWN_ERROR, settles=True)


def _tested_at(model: Model, f: Frames, z: jax.Array, delta: Field, recurrence: str) -> jax.Array:
    """<∂T/∂q at frames f and increment z, ΔT M> and the joints' part, (nv,)."""
    r = operator.pullback(model, f, matmul(delta.T, model.second_moment), recurrence)
    return r + model.armature * joint_field.pullback(model, z, delta.joint)


def _joint_matrix(model: Model, z: jax.Array) -> jax.Array:
    """∂/∂z of armature ∘ the joints' part, tested at q_k: a ball's ½(tr(R) E − Rᵀ)."""
    balls = tree(model.topology).ball_v
    one = jnp.stack([manifold.identity_increment(model), z[0]])
    u = jax.vmap(lambda x: joint_field.difference(model, x))(one)
    pick = jnp.zeros((2, 2), z.dtype).at[0, 1].set(1.0)
    _, by_z = joint_field.table(model, pick, one, u, jnp.zeros_like(u))
    blocks = None if by_z.balls is None else model.armature[balls][..., None] * by_z.balls[0, 1]
    return joint_field.with_ball_blocks(model, jnp.diag(model.armature), blocks)


def _half_kick(model: Model, start: StepStart, q, v, f: Frames, mass, dt) -> jax.Array:
    """The v (nv,) with mass (v − v_free) = dt τ(q, v)/2, by one Newton step: exact for forces linear in v."""
    at = instant_at(model, start, q, v, f, transforms.velocity_field(model, f, v), dt, dt)
    load = total_load(model, at, "stages")
    damping = damping_of(model, f, load, 0.5 * dt)
    matrix = mass if damping is None else damped(model, f, mass, damping)
    force = generalised_force(model, f, load, recurrence=start.recurrence)
    return v + operator.solve(model, matrix, 0.5 * dt * force)
