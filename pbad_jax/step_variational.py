"""One step of the variational scheme: an equation at q_k, and half kicks of the forces at both ends."""

import functools

import jax
import jax.numpy as jnp

from pbad_jax import accounts, dynamics, joint_fields, objectives
from pbad_jax import kinematics as kin
from pbad_jax.forces.law import total_load
from pbad_jax.impulses import kicked
from pbad_jax.joint_fields import Field
from pbad_jax.joints import matmul
from pbad_jax.model import Model, State
from pbad_jax.objectives import Here
from pbad_jax.schemes import Variational
from pbad_jax.solving import Equations, Outcome, Solver, outcome, solve


def step(model: Model, scheme: Variational, solver: Solver, dt, s: Here, state: State, status) -> Outcome:
    """Solve p_k = <∂T_k/∂q, (T_{k+1} − T_k) M>/dt − dt τ_k/2 for q_{k+1}; then p_{k+1} from the same at q_{k+1}."""
    del scheme, state
    kick = kicked(model, solver, dt, s, status)
    s = kick.here
    first = objectives.point(model, s, s.q, s.v, s.frames, s.V.T, s.time, dt)
    tau = dynamics.generalised_force(model, s.frames, total_load(model, first, "stages"), twin=solver.twin)
    assert s.mass is not None  # options.py sees to it
    equations = Equations(
        data=(model, s._replace(mass=None, metric=None), dt, s.mass @ s.v, tau),
        evaluate=functools.partial(_evaluate, solver.twin),
        matrix=functools.partial(_matrix, solver.twin),
        residual=functools.partial(_residual, solver.twin),
        nodes=jnp.ones(1, s.q.dtype),
    )
    found, z = solve(model, solver, s, equations, (dt * s.v)[None], kick.status)
    st = objectives.stages(model, s, z)
    delta, f = jax.tree.map(lambda x: x[0], (st.delta, st.frames))
    mass = dynamics.mass(model, f, twin=solver.twin)
    free = dynamics.solve(model, mass, _tested_at(model, f, z[0], delta, solver.twin) / dt)
    q = kin.compose_increment(model, s.q, z[0])
    v = _half_kick(model, s, q, free, f, mass, dt, solver.twin)
    work = kick.work
    if solver.account:
        V = kin.velocity_field(model, f, v)
        last = objectives.point(model, s, q, v, f, V, s.time + dt, dt)
        work = work + sum(0.5 * dt * accounts.power(model, end, "stages") for end in (first, last))
    out = outcome(model, solver, s, found, z[0], v, s.q, work)
    return out._replace(iterations=out.iterations + kick.iterations)


def _tested_at(model: Model, f: kin.Frames, z: jax.Array, delta: Field, twin: str) -> jax.Array:
    """<∂T/∂q at frames f and increment z, ΔT M> and the joints' part, (nv,)."""
    r = dynamics.pullback(model, f, matmul(delta.T, model.second_moment), twin=twin)
    return r + model.armature * joint_fields.pullback(model, z, delta.joint)


def _residual(twin: str, data, z: jax.Array, h=1.0) -> jax.Array:
    """(nv,) of p_k = ..., times h dt; data: the model, time k, dt, p_k, τ_k."""
    model, s, dt, momentum, tau = data
    delta = jax.tree.map(lambda x: x[0], objectives.stages(model, s, z).delta)
    known = h * dt * momentum + 0.5 * (h * dt) ** 2 * tau
    return _tested_at(model, s.frames, kin.identity_increment(model), delta, twin) - known


def _evaluate(twin: str, data, z: jax.Array, h) -> tuple[jax.Array, jax.Array]:
    return _residual(twin, data, z, h), z


def _matrix(twin: str, data, z: jax.Array) -> jax.Array:
    model, s = data[:2]
    f = jax.tree.map(lambda x: x[0], objectives.stages(model, s, z).frames)
    return dynamics.TWINS[twin].mixed_hess(model, s.frames, f) + _joint_matrix(model, z)


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
    at = objectives.point(model, s, q, v, f, kin.velocity_field(model, f, v), s.time + dt, dt)
    load = total_load(model, at, "stages")
    damping = dynamics.damping_of(model, f, load, 0.5 * dt)
    matrix = mass if damping is None else dynamics.damped(model, f, mass, damping)
    return v + dynamics.solve(model, matrix, 0.5 * dt * dynamics.generalised_force(model, f, load, twin=twin))
