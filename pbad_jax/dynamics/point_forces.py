"""What forces at points of the links add to the Newton matrix.

A point P = T u of a link moves with the link's twist ν = (ω, v) as ω × P + u₄ v = a ν, its arm a = [−[P], u₄ E] (3,6).
So clusters on one link sum up to one (6,6) form B_l = Σ aᵀ S a of the link, S the derivative of the forces, and

    Σ_l (∂ν_l/∂q_x)ᵀ B_l (∂ν_l/∂q_y) = s_x · B_m s_y,   B_m the sum over the links below the deeper of x and y,

as in the mixed Hessian of the atom. Clusters that couple links go through the Jacobians of their points.
"""

import jax
import jax.numpy as jnp

from pbad_jax.atom.parallel import twist_form
from pbad_jax.forces.force import Load, PointForces, on_links, place
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.rotations import hat
from pbad_jax.math.small import identity_like, matmul, transpose
from pbad_jax.model.model import Model


def weighted(load: Load, weight) -> list:
    """∂f/∂P + weight ∂f/∂V of every part of a load, of what there is."""

    def one(df_dP: jax.Array | None, df_dV: jax.Array | None) -> jax.Array | None:
        if df_dV is None:
            return df_dP
        return weight * df_dV if df_dP is None else df_dP + weight * df_dV

    return [one(p.df_dP, p.df_dV) for p in load.point_forces]


def arms(f: Frames, p: PointForces) -> jax.Array:
    """A (c,n,3,6) of every point at frames f."""
    P = place(f.T, p.point_links, p.u)
    return jnp.concatenate([-hat(P), p.u[..., 3, None, None] * identity_like(P)], axis=-1)


def link_form(model: Model, f_a: Frames, f_b: Frames, p: PointForces, S: jax.Array) -> jax.Array:
    """Σ a(q_a)ᵀ S a(q_b) over the clusters of each link, (N,6,6); S (c,n,3,n,3), for clusters on one link."""
    c, n = p.point_links.shape
    rows = [x.reshape(c, 3 * n, 6) for x in (arms(f_a, p), arms(f_b, p))]
    B = matmul(transpose(rows[0]), matmul(S.reshape(c, 3 * n, 3 * n), rows[1]))
    return on_links(p.point_links[:, 0], B, model.topology.n_links)


def point_jacobian(model: Model, f: Frames, p: PointForces) -> jax.Array:
    """∂P/∂q of every point, (c,n,3,nv)."""
    moves = jnp.asarray(tree(model.topology).dof_above_link, f.s.dtype)[:, p.point_links]  # (nv,c,n)
    return jnp.einsum("cnai,xi,xcn->cnax", arms(f, p), f.s, moves)


def coupled_matrix(model: Model, f_a: Frames, f_b: Frames, p: PointForces, S: jax.Array) -> jax.Array:
    """Σ ∂P/∂q(q_a)ᵀ S ∂P/∂q(q_b), (nv,nv), of clusters that couple links."""
    return jnp.einsum("cnax,cnamb,cmby->xy", point_jacobian(model, f_a, p), S, point_jacobian(model, f_b, p))


def total_link_form(model: Model, f_a: Frames, f_b: Frames, parts: list[PointForces], slopes: list) -> jax.Array | None:
    """The sum of the link forms of all parts whose slope is not None, (N,6,6)."""
    total = None
    for p, S in zip(parts, slopes):
        if S is not None and p.links:
            form = link_form(model, f_a, f_b, p, S)
            total = form if total is None else total + form
    return total


def total_matrix(model: Model, f_a: Frames, f_b: Frames, parts: list[PointForces], slopes: list) -> jax.Array:
    """Σ ∂P/∂q(q_a)ᵀ S ∂P/∂q(q_b) of all parts, (nv,nv)."""
    total = jnp.zeros((model.nv, model.nv), f_a.T.dtype)
    alone = [(p, S) for p, S in zip(parts, slopes) if not p.couples]
    form = total_link_form(model, f_a, f_b, [p for p, _ in alone], [S for _, S in alone])
    if form is not None:
        total = total + twist_form(model, f_a, f_b, form)
    for p, S in zip(parts, slopes):
        if p.couples and S is not None:
            total = total + coupled_matrix(model, f_a, f_b, p, S)
    return total
