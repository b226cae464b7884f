"""The work of the forces over a step: what the change of kinetic energy is compared with."""

import jax
import jax.numpy as jnp

from pbad_jax import joint_fields, objectives
from pbad_jax import kinematics as kin
from pbad_jax.forces import Point
from pbad_jax.model import Model, State
from pbad_jax.objectives import Equation, Here, Stages


def stage_work(model: Model, s: Here, eq: Equation, st: Stages) -> jax.Array:
    """Dt × the power of every force at every stage, (m,nforces) J."""
    V = objectives.stage_rates(eq, st)
    v = jax.vmap(lambda z_i, u: joint_fields.pullback(model, z_i, u))(st.z, V.joint) / eq.dt
    q = jax.vmap(lambda z_i: kin.compose_increment(model, s.q, z_i))(st.z)
    at_stages = jax.vmap(lambda q, v, f, time, V: power(model, s, q, v, f, time, V))
    return eq.dt * at_stages(q, v, st.frames, s.time + eq.nodes * eq.dt, V.T / eq.dt)


def power(model: Model, s: Here, q, v, f: kin.Frames, time, V: jax.Array) -> jax.Array:
    """τ·v − <∂Q/∂T, V> of every force, (nforces,) W."""
    at = Point(q=q, v=v, T=kin.shift(f.T, -s.origin), time=time, control=s.control)
    out = []
    for force in model.forces:
        load, total = force.load(model, at), jnp.zeros((), q.dtype)
        total = total if load.tau is None else total + load.tau @ v
        out.append(total if load.field is None else total - jnp.sum(load.field * V))
    return jnp.stack(out) if out else jnp.zeros(0, q.dtype)


def exact_where_known(model: Model, before: State, after: State, work: jax.Array, control) -> jax.Array:
    """The work of every force (nforces,): the fall of its potential where it has one, else the quadrature given."""

    def at(state):
        T = kin.transforms(model, state.q)
        return Point(q=state.q, v=state.v, T=T, time=state.time, control=control)

    a, b = at(before), at(after)
    exact = [f.potential(model, a) - f.potential(model, b) if hasattr(f, "potential") else None for f in model.forces]
    return jnp.stack([w if x is None else x for w, x in zip(work, exact)]) if exact else work
