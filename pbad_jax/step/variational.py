"""One step of the variational scheme: an equation at q_k, and half kicks of the forces at both ends."""

import functools

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.dynamics.instant import damped, damping_of, generalised_force
from pbad_jax.forces.force import total_load
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.small import matmul
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import Variational
from pbad_jax.stage import equation
from pbad_jax.stage.equation import StepStart
from pbad_jax.stage.problem import Equations, SolverConfig, StepResult, solve, step_result
from pbad_jax.stage.work import power
from pbad_jax.step.impulse import apply_impulses


def step(
    model: Model, scheme: Variational, config: SolverConfig, dt, start: StepStart, state: State, status
) -> StepResult:
    """Solve p_k = <∂T_k/∂q, (T_{k+1} − T_k) M>/dt − dt τ_k/2 for q_{k+1}; then p_{k+1} from the same at q_{k+1}."""
    del scheme, state
    kick = apply_impulses(model, config, dt, start, status)
    start = kick.start
    first = equation.instant_at(model, start, start.q, start.v, start.frames, start.V.T, start.time, dt)
    tau = generalised_force(model, start.frames, total_load(model, first, "stages"), twin=config.twin)
    assert start.mass is not None  # options.py sees to it
    equations = Equations(
        data=(model, start._replace(mass=None, metric=None), dt, start.mass @ start.v, tau),
        evaluate=functools.partial(_evaluate, config.twin),
        matrix=functools.partial(_matrix, config.twin),
        residual=functools.partial(_residual, config.twin),
        nodes=jnp.ones(1, start.q.dtype),
    )
    found, z = solve(model, config, start, equations, (dt * start.v)[None], kick.status)
    st = equation.stages(model, start, z)
    delta, f = jax.tree.map(lambda x: x[0], (st.delta, st.frames))
    mass = operator.mass(model, f, twin=config.twin)
    free = operator.solve(model, mass, _tested_at(model, f, z[0], delta, config.twin) / dt)
    q = manifold.compose_increment(model, start.q, z[0])
    v = _half_kick(model, start, q, free, f, mass, dt, config.twin)
    work = kick.work
    if config.account:
        V = transforms.velocity_field(model, f, v)
        last = equation.instant_at(model, start, q, v, f, V, start.time + dt, dt)
        work = work + sum(0.5 * dt * power(model, end, "stages") for end in (first, last))
    out = step_result(model, config, start, found, z[0], v, start.q, work)
    return out._replace(iterations=out.iterations + kick.iterations)


def _tested_at(model: Model, f: transforms.Frames, z: jax.Array, delta: Field, twin: str) -> jax.Array:
    """<∂T/∂q at frames f and increment z, ΔT M> and the joints' part, (nv,)."""
    r = operator.pullback(model, f, matmul(delta.T, model.second_moment), twin=twin)
    return r + model.armature * joint_field.pullback(model, z, delta.joint)


def _residual(twin: str, data, z: jax.Array, h=1.0) -> jax.Array:
    """(nv,) of p_k = ..., times h dt; data: the model, time k, dt, p_k, τ_k."""
    model, s, dt, momentum, tau = data
    delta = jax.tree.map(lambda x: x[0], equation.stages(model, s, z).delta)
    known = h * dt * momentum + 0.5 * (h * dt) ** 2 * tau
    return _tested_at(model, s.frames, manifold.identity_increment(model), delta, twin) - known


def _evaluate(twin: str, data, z: jax.Array, h) -> tuple[jax.Array, jax.Array]:
    return _residual(twin, data, z, h), z


def _matrix(twin: str, data, z: jax.Array) -> jax.Array:
    model, s = data[:2]
    f = jax.tree.map(lambda x: x[0], equation.stages(model, s, z).frames)
    return operator.TWINS[twin].mixed_hess(model, s.frames, f) + _joint_matrix(model, z)


def _joint_matrix(model: Model, z: jax.Array) -> jax.Array:
    """∂/∂z of armature ∘ the joints' part, tested at q_k: a ball's ½(tr(R) E − Rᵀ)."""
    t = tree(model.topology)
    out = jnp.diag(model.armature)
    if not t.balls.size:
        return out
    one = jnp.stack([manifold.identity_increment(model), z[0]])
    u = jax.vmap(lambda x: joint_field.difference(model, x))(one)
    pick = jnp.zeros((2, 2), z.dtype).at[0, 1].set(1.0)
    _, by_z = joint_field.table(model, pick, one, u, jnp.zeros_like(u))
    return model.armature[:, None] * joint_field.full(model, by_z)[0, 1]


def _half_kick(model: Model, start: StepStart, q, v, f, mass, dt, twin) -> jax.Array:
    """The v (nv,) with mass (v − v_free) = dt τ(q, v)/2, by one Newton step: exact for forces linear in v."""
    at = equation.instant_at(model, start, q, v, f, transforms.velocity_field(model, f, v), start.time + dt, dt)
    load = total_load(model, at, "stages")
    damping = damping_of(model, f, load, 0.5 * dt)
    matrix = mass if damping is None else damped(model, f, mass, damping)
    return v + operator.solve(model, matrix, 0.5 * dt * generalised_force(model, f, load, twin=twin))
