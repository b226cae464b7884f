"""Mechanics that only tests need, made of the library's own parts: all entries of what it never forms whole."""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.dynamics.instant import generalised_force
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import total_load
from pbad_jax.laws.instant import instant
from pbad_jax.math.small import matmul
from pbad_jax.math.spatial import homogeneous, twist_matrix
from pbad_jax.model import inertia
from pbad_jax.model.model import Model


def residual_and_matrix(model: Model, start, eq, z: jax.Array, h=1.0, guide=None):
    """(h dt)² r (m·nv,) and (h dt)² J of a stage equation, J as `start.recurrence` has it."""
    r, terms = eq.evaluate(model, start, z, h, guide)
    return r, eq.matrix(model, start, terms)


def joint_acceleration(model: Model, q, v, time, control, recurrence: str = "parallel") -> jax.Array:
    """(nv,) of the continuous system at (q, v): what a step tends to as dt → 0."""
    L = transforms.local_transforms(model, q)
    T = operator.world_transforms(model, L, recurrence)
    f = transforms.with_screws(model, transforms.shift(T, transforms.center_of_mass(model, T)), L)
    V = transforms.velocity_field(model, f, v)
    load = total_load(model, instant(q, v, T, V, jnp.asarray(time, model.dtype), control))
    A = matmul(transforms.centripetal_field(model, f, v), model.second_moment)
    force = generalised_force(model, f, load, A, recurrence=recurrence)
    return operator.solve(model, operator.mass(model, f, recurrence), force)


def transforms_derivative(model: Model, q: jax.Array) -> jax.Array:
    """∂T^l/∂q_x, all entries, (N,nv,3,4); the recurrences never form it."""
    f = transforms.frames(model, q)
    dT = matmul(twist_matrix(f.s)[None], homogeneous(f.T)[:, None])
    return dT * tree(model.topology).dof_above_link.T[:, :, None, None].astype(dT.dtype)


def transforms_second_derivative(model: Model, q: jax.Array) -> jax.Array:
    """∂²T^l/∂q_x∂q_y in exponential coordinates about q, all entries, (N,nv,nv,3,4).

    ŝ_x ŝ_y T^l for x above y; on one link (a ball) the symmetric half of both orders.
    """
    f = transforms.frames(model, q)
    t = tree(model.topology)
    s = homogeneous(twist_matrix(f.s), last=0.0)
    P = matmul(s[:, None], s[None, :])  # ŝ_x ŝ_y
    W = jnp.asarray(t.dof_order, P.dtype)[..., None, None]
    both = W * P + jnp.swapaxes(W * P, 0, 1)
    moved = np.minimum(t.dof_above_link[:, None], t.dof_above_link[None, :])  # (nv,nv,N)
    ddT = matmul(both[None], homogeneous(f.T)[:, None, None])[..., :3, :]
    return ddT * jnp.asarray(np.moveaxis(moved, -1, 0), P.dtype)[..., None, None]


def mass_com_inertia(M) -> tuple[float, np.ndarray, np.ndarray]:
    """The inverse of `second_moment`: mass (kg), centre of mass (3,) m, inertia (3,3) kg m² about it."""
    M = np.asarray(M, float)
    mass = float(M[3, 3])
    com = M[:3, 3] / mass if mass > 0 else np.zeros(3)
    return mass, com, inertia.inertia_from_central_moment(M[:3, :3] - mass * np.outer(com, com))
