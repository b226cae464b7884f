"""The three ways through the tree behind one face: serial.py, parallel.py, sweeps.py. Nothing else asks which it is.

`recurrence`, wherever it stands: "serial" (the paper's Algorithms 1-3), "parallel" (Algorithms 4-6; both with dense
(nv,nv) matrices), or "sweeps", O(N) without a matrix, for one unknown configuration at a time.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pbad_jax.atom import parallel, serial, sweeps
from pbad_jax.kinematics import joint_field
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import batched
from pbad_jax.model.model import Model

KERNEL = "kernel"  # the parallel ones, with what kernels/ has in their place while a root is looked for
RECURRENCES = {"parallel": parallel, "serial": serial, "sweeps": sweeps, KERNEL: parallel}

Operator = jax.Array | sweeps.NewtonMatrix  # a mass or Newton matrix: (n,n), or what the sweeps take for it


def world_transforms(model: Model, L: jax.Array, recurrence: str) -> jax.Array:
    """T (N,3,4) from the local transforms L (N,3,4)."""
    return RECURRENCES[recurrence].world_transforms(model, L)


def pullback(model: Model, f: Frames, A: jax.Array, recurrence: str = "parallel") -> jax.Array:
    """Σ_l <∂T^l/∂q_x, A^l> (nv,) of a field A (N,3,4)."""
    chex.assert_equal_shape([f.T, A])
    return RECURRENCES[recurrence].pullback(model, f, A)


def mass(model: Model, f: Frames, recurrence: str = "parallel") -> Operator:
    """The mass matrix at frames f, armature included; kg m² or kg."""
    return RECURRENCES[recurrence].mass_matrix(model, f)


def solve(model: Model, M: Operator, b: jax.Array) -> jax.Array:
    """M⁻¹ b (n,)."""
    return sweeps.solve(model, M, b) if isinstance(M, sweeps.NewtonMatrix) else batched.solve(M, b)


def times(model: Model, M: Operator, x: jax.Array) -> jax.Array:
    """M x (n,)."""
    return sweeps.multiply(model, M, x) if isinstance(M, sweeps.NewtonMatrix) else M @ x


def plus(model: Model, f: Frames, M: Operator, joints: jax.Array, links: jax.Array | None) -> Operator:
    """M (nv,nv) + a diagonal (nv,) or matrix (nv,nv) of the joints + forms (N,6,6) on the links' twists.

    The sweeps take of a matrix the diagonal and the blocks of the balls: what couples joints is not for them.
    """
    if isinstance(M, sweeps.NewtonMatrix):
        d, blocks = joint_field.on_joints(model, joints)
        return M._replace(d=M.d + d.at[tree(model.topology).ball_v].set(0.0), blocks=blocks, form=links)
    total = M + joint_field.as_matrix(joints)
    return total if links is None else total + parallel.twist_form(model, f, f, links)


class Mobility(NamedTuple):
    """How freely everything moves by itself; by the sweeps, every degree of freedom as if the others were held."""

    links: jax.Array  # (N,6,6) the twist that a unit wrench about the frames' origin gives a link
    inertia: jax.Array  # (nv,) of every degree of freedom


def mobility(model: Model, f: Frames, M: Operator, metric: batched.CholeskyFactor | None) -> Mobility:
    """At frames f with the mass matrix M and, where it is dense, its factor."""
    above = jnp.asarray(tree(model.topology).dof_above_link, f.s.dtype)  # (nv,N)
    if metric is None:
        assert isinstance(M, sweeps.NewtonMatrix)
        inertia = sweeps.diagonal(model, M)
        white = f.s / jnp.sqrt(inertia)[:, None]
        return Mobility(jnp.einsum("xl,xi,xj->lij", above, white, white), inertia)
    screws = above[:, :, None] * f.s[:, None, :]
    white = (metric.inverse @ screws.reshape(model.nv, -1)).reshape(screws.shape)
    links = jnp.einsum("xli,xlj->lij", white, white)
    return Mobility(links, 1 / jnp.sum(metric.inverse**2, axis=0))


def is_positive_definite(model: Model, M: Operator) -> jax.Array:
    """Whether the symmetric part of M is positive definite, () bool."""
    if isinstance(M, sweeps.NewtonMatrix):
        return sweeps.is_positive_definite(model, M)
    return jnp.all(jnp.isfinite(batched.cholesky(0.5 * (M + M.T)).factor))


def where(good: jax.Array, M: Operator) -> Operator:
    """M, or where it is not `good` an array the identity, which no solve fails with."""
    return M if isinstance(M, sweeps.NewtonMatrix) else jnp.where(good, M, jnp.eye(M.shape[0], dtype=M.dtype))
