"""The centre of mass of a model, or of a body with all that it carries: place, velocity, Jacobian, momentum."""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.checks import known
from pbad_jax.dynamics import newton_euler
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.small import matvec, take
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State, check_state
from pbad_jax.sensing.task_space import Jacobian, motion


def carried_by(model: Model, body: str | None) -> np.ndarray:
    """(N,) 1 of the links of a body and of all that it carries, None: of all; else 0."""
    t = model.topology
    if body is None:
        return np.ones(t.n_links)
    return tree(t).above[t.body_link[known(body, model.body_names, "body")]].astype(float)


def first_moments(model: Model, T: jax.Array, body: str | None) -> tuple[jax.Array, jax.Array]:
    """m (N,) kg and ∫ρP (N,3) kg m of the links that the body carries, zero of the others."""
    weight = jnp.asarray(carried_by(model, body), T.dtype)
    M = weight[:, None, None] * model.second_moment
    return M[:, 3, 3], matvec(T, M[:, :, 3])


@with_all_bits
def total_mass(model: Model, body: str | None = None) -> jax.Array:
    """() kg, of all bodies, or of one with all that it carries.

    Raises:
        ModelError: an unknown body; so do all of these.

    Example:
        >>> float(pbad.total_mass(model)), float(pbad.total_mass(model, "link1"))
        (2.0, 1.0)
    """
    check_model(model)
    return jnp.sum(jnp.asarray(carried_by(model, body), model.dtype) * model.second_moment[:, 3, 3])


@with_all_bits
def center_of_mass(model: Model, state: State, body: str | None = None) -> jax.Array:
    """(3,) m in the world, of all bodies, or of one with all that it carries; NaN where that has no mass.

    Example:
        >>> pbad.center_of_mass(model, state).round(3)
        Array([ 0.   ,  0.841, -0.54 ], dtype=float64)
    """
    check_state(model, state)
    mass, first = first_moments(model, transforms.transforms(model, state.q), body)
    return jnp.sum(first, axis=0) / jnp.sum(mass)


@with_all_bits
def center_of_mass_velocity(model: Model, state: State, body: str | None = None) -> jax.Array:
    """(3,) m/s in the world; see `center_of_mass`.

    Example:
        >>> pbad.center_of_mass_velocity(model, state).round(3)
        Array([-0.5,  0. ,  0. ], dtype=float64)
    """
    check_state(model, state)
    m = motion(model, state)
    mass, first = first_moments(model, m.f.T, body)
    flow = mass[:, None] * m.twist[:, 3:] + jnp.cross(m.twist[:, :3], first)
    return jnp.sum(flow, axis=0) / jnp.sum(mass)


@with_all_bits
def center_of_mass_jacobian(model: Model, state: State, body: str | None = None) -> jax.Array:
    """(3,nv) of the centre of mass: times v, its velocity. One column is (m_x v_x + ω_x × ∫ρP)/m of what x moves.

    Example:
        >>> (pbad.center_of_mass_jacobian(model, state) @ state.v).round(3)
        Array([-0.5,  0. ,  0. ], dtype=float64)
    """
    check_state(model, state)
    _, f = newton_euler.frames(model, state.q)
    mass, first = first_moments(model, f.T, body)
    moves = jnp.asarray(tree(model.topology).dof_above_link, f.s.dtype)
    flow = (moves @ mass)[:, None] * f.s[:, 3:] + jnp.cross(f.s[:, :3], moves @ first)
    return flow.T / jnp.sum(mass)


@with_all_bits
def centroidal_momentum_matrix(model: Model, state: State) -> Jacobian:
    """`.linear` (3,nv) kg and `.angular` (3,nv) kg m: times v, the momentum and that about the centre of mass.

    Orin and Goswami 2008: the composite inertias times the screws, about the centre of mass. Without the armature.

    Example:
        >>> A = pbad.centroidal_momentum_matrix(model, state)
        >>> (A.linear @ state.v).round(3)
        Array([-1.,  0.,  0.], dtype=float64)
    """
    check_state(model, state)
    _, f = newton_euler.frames(model, state.q)
    t, n = tree(model.topology), model.topology.n_links
    above = jnp.asarray(t.above, f.s.dtype)
    composite = (above @ newton_euler.spatial_inertia(model, f.T).reshape(n, 36)).reshape(n, 6, 6)
    momentum = matvec(take(composite, t.dof_link), f.s)
    return Jacobian(momentum[:, 3:].T, momentum[:, :3].T)
