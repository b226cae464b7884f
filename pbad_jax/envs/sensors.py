"""What tasks see beside q and v, in MuJoCo's terms: contact, inertias, velocities and actuation, body by body.

MuJoCo gives the last three about the centre of mass of a body's tree; here it is that of the whole model, so they agree
where the model has one tree.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.dynamics.instant import instant_of
from pbad_jax.envs.task import Transition
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.small import matmul, transpose
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.sensing.sensors import actuation as total_actuation
from pbad_jax.sensing.touch import contact_forces as forces_of_contact


def contact_forces(m: Transition) -> jax.Array:
    """(nbody,6) torque about the centre of mass, N m, and force, N, by which contact acts on every body: cfrc_ext."""
    return forces_of_contact(m.model, m.sim, m.control)


def inertias(m: Transition) -> jax.Array:
    """(nbody,10) about the centre of mass, world axes: Ixx, Iyy, Izz, Ixy, Ixz, Iyz, m d (3), m; MuJoCo's cinert."""
    T = transforms.transforms(m.model, m.sim.q)
    T = transforms.shift(T, transforms.center_of_mass(m.model, T))
    M = m.model.second_moment
    S = matmul(matmul(T, M), transpose(T))
    I = jnp.trace(S, axis1=1, axis2=2)[:, None, None] * jnp.eye(3, dtype=S.dtype)[None] - S
    first = jnp.einsum("lij,lj->li", T, M[:, :, 3])
    parts = [I[:, 0, 0], I[:, 1, 1], I[:, 2, 2], I[:, 0, 1], I[:, 0, 2], I[:, 1, 2]]
    return of_bodies(m.model, jnp.stack([*parts, *first.T, M[:, 3, 3]], axis=-1))


def velocities(m: Transition) -> jax.Array:
    """(nbody,6) rad/s and m/s of every body, as if it went on to the centre of mass, world axes: MuJoCo's cvel."""
    T = transforms.transforms(m.model, m.sim.q)
    f = transforms.frames(m.model, m.sim.q, transforms.center_of_mass(m.model, T))
    moves = jnp.asarray(tree(m.model.topology).dof_above_link.T, m.model.dtype)
    return of_bodies(m.model, moves @ (f.s * m.sim.v[:, None]))


def actuation(m: Transition) -> jax.Array:
    """(nv,) N m or N, the generalised force of all actuators: MuJoCo's qfrc_actuator."""
    return total_actuation(m.model, instant_of(m.model, m.sim, m.control))


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
