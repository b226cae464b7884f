"""The system at one instant: generalised forces, damping, accelerations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.atom.operator import Operator
from pbad_jax.dynamics import point_forces
from pbad_jax.kinematics import joint_field, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.laws.force import couples_joints, name_of
from pbad_jax.laws.instant import Instant, instant
from pbad_jax.laws.load import Load, field_of
from pbad_jax.model.model import Model
from pbad_jax.model.state import State


class Damping(NamedTuple):
    """−∂(generalised force)/∂v: of the joints (nv,), with all that couples (nv,nv); of single links, forms (N,6,6)."""

    joints: jax.Array
    links: jax.Array | None


def damped(model: Model, f: transforms.Frames, M: Operator, damping: Damping) -> Operator:
    """M + damping."""
    return operator.plus(model, f, M, damping.joints, damping.links)


def damping_of(model: Model, f: transforms.Frames, load: Load, scale) -> Damping | None:
    """scale × the Damping of a load at frames f; None if nothing depends on velocities."""
    by_V = [(p, S) for p, S in zip(load.point_forces, point_forces.rates(load)) if S is not None]
    alone, coupling = [x for x in by_V if not x[0].couples], [x for x in by_V if x[0].couples]
    links = point_forces.total_link_form(model, f, f, [p for p, _ in alone], [S for _, S in alone])
    if load.dtau_dv is None and links is None and not coupling:
        return None
    joints = jnp.zeros_like(model.armature) if load.dtau_dv is None else load.dtau_dv
    if coupling:
        between = point_forces.total_matrix(model, f, f, [p for p, _ in coupling], [S for _, S in coupling])
        joints = joint_field.as_matrix(joints) + between
    return Damping(-scale * joints, None if links is None else -scale * links)


def generalised_force(model: Model, f: transforms.Frames, load: Load, A=None, *, recurrence="parallel") -> jax.Array:
    """τ − ∂T/∂q · (∂Q/∂T + A) (nv,), N or N m: the forces of a Load, less an inertial field A."""
    tau = jnp.zeros(model.nv, f.T.dtype) if load.tau is None else load.tau
    for field in (A, field_of(load, model.topology.n_links)):
        tau = tau if field is None else tau - operator.pullback(model, f, field, recurrence)
    return tau


def instant_of(model: Model, state: State, control: jax.Array) -> Instant:
    """A state by itself as an Instant."""
    f = transforms.frames(model, state.q)
    return instant(state.q, state.v, f.T, transforms.velocity_field(model, f, state.v), state.time, control)


def coupling(model: Model) -> list[str]:
    """The forces that couple links or joints, which makes a loop of the tree. Nothing is computed."""

    def loads(model: Model) -> list[Load]:
        q, v = model.q0, jnp.zeros_like(model.armature)
        T = transforms.transforms(model, q)
        at = instant(q, v, T, T, jnp.zeros((), model.dtype), jnp.zeros(model.nu, model.dtype))
        return [f.load(model, at) for f in model.forces]

    def couples(force, load: Load) -> bool:
        full = any(x is not None and x.ndim == 2 for x in (load.dtau_dq, load.dtau_dv))
        return any(p.couples for p in load.point_forces) or (full and couples_joints(force))

    return [name_of(f) for f, load in zip(model.forces, jax.eval_shape(loads, model)) if couples(f, load)]


def acceleration_field(model: Model, f: transforms.Frames, z: jax.Array, v: jax.Array, a: jax.Array) -> Field:
    """Second time derivative of the field at frames f, increment z, velocity v, joint acceleration a."""
    T = transforms.velocity_field(model, f, a) + transforms.centripetal_field(model, f, v)
    return Field(T, joint_field.second_rate(model, v, a, z))
