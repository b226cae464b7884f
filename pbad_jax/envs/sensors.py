"""What tasks see beside q and v, in MuJoCo's terms: contact, inertias, velocities and actuation, body by body.

MuJoCo gives the last three about the centre of mass of a body's tree; here it is that of the whole model, so they agree
where the model has one tree.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.dynamics.instant import instant_of
from pbad_jax.envs.task import Moment
from pbad_jax.forces.contact_between import CONTACTS
from pbad_jax.forces.force import field_of
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.small import matmul, transpose
from pbad_jax.model.model import Model
from pbad_jax.model.state import State


def contact_forces(m: Moment) -> jax.Array:
    """(nbody,6) torque about the centre of mass, N m, and force, N, by which contact acts on every body: cfrc_ext.

    Of the state at the end of the step by itself: friction by the normal force there.
    """
    at, n_links = instant_of(m.model, m.sim, m.control), m.model.topology.n_links
    field = jnp.zeros((n_links, 3, 4), m.model.dtype)
    for force in m.model.forces:
        if isinstance(force, CONTACTS):
            more = field_of(force.load(m.model, at), n_links)
            field = field if more is None else field - more  # of Σ f ⊗ u
    T = transforms.shift(at.T, transforms.center_of_mass(m.model, at.T))
    # f × is antisymmetric: Σ (T u) × f from T (Σ f ⊗ u)ᵀ
    moment = matmul(T, transpose(field))
    torque = jnp.stack([moment[:, 1, 2] - moment[:, 2, 1], moment[:, 2, 0] - moment[:, 0, 2],
                        moment[:, 0, 1] - moment[:, 1, 0]], axis=-1)  # fmt: skip
    return of_bodies(m.model, jnp.concatenate([torque, field[..., 3]], axis=-1))


def inertias(m: Moment) -> jax.Array:
    """(nbody,10) about the centre of mass, world axes: Ixx, Iyy, Izz, Ixy, Ixz, Iyz, m d (3), m; MuJoCo's cinert."""
    T = transforms.transforms(m.model, m.sim.q)
    T = transforms.shift(T, transforms.center_of_mass(m.model, T))
    M = m.model.second_moment
    S = matmul(matmul(T, M), transpose(T))
    I = jnp.trace(S, axis1=1, axis2=2)[:, None, None] * jnp.eye(3, dtype=S.dtype)[None] - S
    first = jnp.einsum("lij,lj->li", T, M[:, :, 3])
    parts = [I[:, 0, 0], I[:, 1, 1], I[:, 2, 2], I[:, 0, 1], I[:, 0, 2], I[:, 1, 2]]
    return of_bodies(m.model, jnp.stack([*parts, *first.T, M[:, 3, 3]], axis=-1))


def velocities(m: Moment) -> jax.Array:
    """(nbody,6) rad/s and m/s of every body, as if it went on to the centre of mass, world axes: MuJoCo's cvel."""
    T = transforms.transforms(m.model, m.sim.q)
    f = transforms.frames(m.model, m.sim.q, transforms.center_of_mass(m.model, T))
    moves = jnp.asarray(tree(m.model.topology).dof_above_link.T, m.model.dtype)
    return of_bodies(m.model, moves @ (f.s * m.sim.v[:, None]))


def actuation(m: Moment) -> jax.Array:
    """(nv,) N m or N, the generalised force of all actuators: MuJoCo's qfrc_actuator."""
    at, total = instant_of(m.model, m.sim, m.control), jnp.zeros(m.model.nv, m.model.dtype)
    for force in m.model.forces:
        if hasattr(force, "u_index"):
            tau = force.load(m.model, at).tau
            total = total if tau is None else total + tau
    return total


def center_of_mass(model: Model, state: State) -> jax.Array:
    """(3,) m, of all bodies."""
    return transforms.center_of_mass(model, transforms.transforms(model, state.q))


def body_position(model: Model, state: State, body: str) -> jax.Array:
    """(3,) m, of a body's frame."""
    link = model.topology.body_link[model.body_names.index(body)]
    return transforms.transforms(model, state.q)[link, :, 3]


def rotation(model: Model, state: State, body: str) -> jax.Array:
    """(3,3) from a body's axes to the world's."""
    link = model.topology.body_link[model.body_names.index(body)]
    return transforms.transforms(model, state.q)[link, :, :3]


def of_bodies(model: Model, x: jax.Array) -> jax.Array:
    """The rows of x (N,...) that are bodies."""
    return x[np.asarray(model.topology.body_link)]
