"""The work of the forces over a step: what the change of kinetic energy is compared with."""

import jax
import jax.numpy as jnp

from pbad_jax.dynamics.instant import instant_of
from pbad_jax.kinematics import joint_field, manifold
from pbad_jax.laws.force import acts_at, is_conservative, of_force
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, field_of
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.stage import equation
from pbad_jax.stage.equation import StageEquation
from pbad_jax.stage.fields import StageFields
from pbad_jax.stage.start import StepStart, instant_at


def counted(model: Model, start: StepStart, account: bool) -> tuple[int, ...]:
    """The forces whose work a step has to know: all for an `account`, else those that two ends do not tell it of."""
    return tuple(range(len(model.forces))) if account else start.driven


def stage_work(model: Model, start: StepStart, eq: StageEquation, st: StageFields, which: tuple[int, ...]) -> jax.Array:
    """dt × the power at every stage of the forces that act there, (m,nforces) J; of those in `which`, else zero."""
    if not any(acts_at(model.forces[k]) == "stages" for k in which):
        return jnp.zeros((len(eq.nodes), len(model.forces)), start.q.dtype)
    V = equation.stage_rates(eq, st)
    v = jax.vmap(lambda z_i, u: joint_field.pullback(model, z_i, u))(st.z, V.joint) / eq.dt
    q = jax.vmap(lambda z_i: manifold.compose_increment(model, start.q, z_i))(st.z)

    def at_stage(q, v, f, V, elapsed):
        return power(model, instant_at(model, start, q, v, f, V, elapsed, eq.dt), "stages", which)

    return eq.dt * jax.vmap(at_stage)(q, v, st.frames, V.T / eq.dt, eq.nodes * eq.dt)


def impulse_work(
    model: Model, start: StepStart, eq: StageEquation, st: StageFields, which: tuple[int, ...]
) -> jax.Array:
    """The work of the forces that act once a step, over the displacements of the step, (nforces,) J."""
    return eq.dt * power(model, equation.end_instant(model, start, eq.nodes[-1], st, eq.dt), "step", which)


def power(
    model: Model,
    at: Instant,
    where: str,
    which: tuple[int, ...],
    rates: tuple[jax.Array, jax.Array] | None = None,
) -> jax.Array:
    """τ·v − <∂Q/∂T, V> of every force in `which` that acts `where`, at the "stages" or once a "step"; else zero.

    (nforces,) W.

    `rates`: v (nv,) and V (N,3,4) that the forces are paired with, by default those of the instant.
    """
    v, V = (at.v, at.V) if rates is None else rates

    def one(load: Load) -> jax.Array:
        field = field_of(load, model.topology.n_links)
        total = jnp.zeros((), at.q.dtype) if load.tau is None else load.tau @ v
        return total if field is None else total - jnp.sum(field * V)

    out = jnp.zeros(len(model.forces), at.q.dtype)
    for k in which:
        if acts_at(model.forces[k]) == where:
            out = out.at[k].set(one(model.forces[k].load(model, of_force(at, k))))
    return out


def exact_where_known(model: Model, before: State, after: State, work: jax.Array, control) -> jax.Array:
    """The work of every force (nforces,): the fall of its potential where that is all, else the quadrature given."""
    a, b = (instant_of(model, state, control) for state in (before, after))
    exact = [f.potential(model, a) - f.potential(model, b) if is_conservative(f) else None for f in model.forces]
    return jnp.stack([w if x is None else x for w, x in zip(work, exact)]) if exact else work
