"""The system at one instant: mass matrix, generalised forces, accelerations; by dense matrices or by sweeps in O(N).

`how`, wherever it stands: `twin`, which of the recurrences, and `dense`, whether (nv,nv) matrices are wanted.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import atom, atom_parallel, joint_fields, lanes, pulls, tree_solve
from pbad_jax import kinematics as kin
from pbad_jax.forces.law import Load, Point, field_of, instant, total_load
from pbad_jax.joint_fields import Field
from pbad_jax.joints import matmul
from pbad_jax.model import Model, State

TWINS = {"parallel": atom_parallel, "serial": atom}

Mass = jax.Array | tree_solve.Matrix  # the mass matrix (nv,nv), or what the sweeps take for it


class Damping(NamedTuple):
    """−∂(generalised force)/∂v: of the joints (nv,) or (nv,nv), and of the links' points, a form (N,6,6)."""

    joints: jax.Array
    links: jax.Array | None


def mass(model: Model, f: kin.Frames, *, twin: str = "parallel", dense: bool = True) -> Mass:
    """The mass matrix at frames f, armature included."""
    return TWINS[twin].mass_matrix(model, f) if dense else tree_solve.mass(model, f)


def damped(model: Model, f: kin.Frames, M: Mass, damping: Damping) -> Mass:
    """M + damping."""
    if isinstance(M, tree_solve.Matrix):
        t = kin.tree(model.topology)
        d, blocks = joint_fields.on_joints(model, damping.joints)
        return M._replace(d=M.d + d.at[t.ball_v].set(0.0), blocks=blocks, form=damping.links)
    total = M + joint_fields.as_matrix(damping.joints)
    return total if damping.links is None else total + pulls.twist_form(model, f, f, damping.links)


def solve(model: Model, M: Mass, b: jax.Array) -> jax.Array:
    """M⁻¹ b (nv,)."""
    return tree_solve.solve(model, M, b) if isinstance(M, tree_solve.Matrix) else lanes.solve(M, b)


def times(model: Model, M: Mass, x: jax.Array) -> jax.Array:
    """M x (nv,)."""
    return tree_solve.multiply(model, M, x) if isinstance(M, tree_solve.Matrix) else M @ x


def damping_of(model: Model, f: kin.Frames, load: Load, scale) -> Damping | None:
    """Scale × the Damping of a load at frames f, couplings of links left out; None if nothing depends on velocities."""
    alone = [p for p in load.pulls if not p.couples]
    links = pulls.total_link_form(model, f, f, alone, [p.by_V for p in alone])
    if load.dtau_dv is None and links is None:
        return None
    joint = jnp.zeros_like(model.armature) if load.dtau_dv is None else -scale * load.dtau_dv
    return Damping(joint, None if links is None else -scale * links)


def pullback(model: Model, f: kin.Frames, A: jax.Array, *, twin: str = "parallel", dense: bool = True) -> jax.Array:
    """Σ_l <∂T^l/∂q_x, A^l> (nv,): Alg. 4, by masks (quick for few links) or by sweeps (O(N))."""
    return TWINS[twin].pullback(model, f, A) if dense else tree_solve.pullback(model, f, A)


def generalised_force(model: Model, f: kin.Frames, load: Load, A=None, **how) -> jax.Array:
    """τ − ∂T/∂q · (∂Q/∂T + A) (nv,), N or N m: the forces of a Load, less an inertial field A."""
    tau = jnp.zeros(model.nv, f.T.dtype) if load.tau is None else load.tau
    for field in (A, field_of(load, model.topology.n_links)):
        tau = tau if field is None else tau - pullback(model, f, field, **how)
    return tau


def instant_of(model: Model, state: State, control: jax.Array) -> Point:
    """A state by itself as a Point."""
    f = kin.frames(model, state.q)
    return instant(state.q, state.v, f.T, kin.velocity_field(model, f, state.v), state.time, control)


def coupling(model: Model) -> list[str]:
    """The forces that couple links or joints, which makes a loop of the tree. Nothing is computed."""

    def loads(model: Model) -> list[Load]:
        q, v = model.q0, jnp.zeros_like(model.armature)
        T = kin.transforms(model, q)
        at = instant(q, v, T, T, jnp.zeros((), model.dtype), jnp.zeros(model.nu, model.dtype))
        return [f.load(model, at) for f in model.forces]

    def couples(force, load: Load) -> bool:
        full = any(x is not None and x.ndim == 2 for x in (load.dtau_dq, load.dtau_dv))
        return any(p.couples for p in load.pulls) or (full and not getattr(force, "alone", False))

    return [type(f).__name__ for f, load in zip(model.forces, jax.eval_shape(loads, model)) if couples(f, load)]


def acceleration(model: Model, q, v, time, control, **how) -> jax.Array:
    """Joint acceleration (nv,) of the continuous system at (q, v): what a step tends to as dt → 0."""
    L = kin.local_transforms(model, q)
    T = TWINS[how.get("twin", "parallel")].world_transforms(model, L)
    f = kin.with_screws(model, kin.shift(T, kin.center_of_mass(model, T)), L)
    load = total_load(model, instant(q, v, T, kin.velocity_field(model, f, v), jnp.asarray(time, model.dtype), control))
    A = matmul(kin.centripetal_field(model, f, v), model.second_moment)
    return solve(model, mass(model, f, **how), generalised_force(model, f, load, A, **how))


def acceleration_field(model: Model, f: kin.Frames, z: jax.Array, v: jax.Array, a: jax.Array) -> Field:
    """Second time derivative of the field at frames f, increment z, velocity v, joint acceleration a."""
    T = kin.velocity_field(model, f, a) + kin.centripetal_field(model, f, v)
    return Field(T, joint_fields.second_rate(model, v, a, z))
