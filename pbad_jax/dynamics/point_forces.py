"""What forces at points of the links add to the Newton matrix.

A point P = T u of a link moves with the link's twist ν = (ω, v) as ω × P + u₄ v = a ν, its arm a = [−[P], u₄ E] (3,6).
So clusters on one link sum up to one (6,6) form B_l = Σ aᵀ S a of the link, S the derivative of the forces, and

    Σ_l (∂ν_l/∂q_x)ᵀ B_l (∂ν_l/∂q_y) = s_x · B_m s_y,   B_m the sum over the links below the deeper of x and y,

as in the mixed Hessian of the atom. Clusters that couple links go through the Jacobians of their points. Forces that
follow a normal force N add products of two vectors: S = ∂F/∂N ⊗ ∂N/∂P, between their points and those of N.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom.parallel import twist_form
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws import load
from pbad_jax.laws.load import Load, NormalForce, PointForces, on_links
from pbad_jax.math.small import matmul, matvec, transpose
from pbad_jax.model.model import Model


class Slope(NamedTuple):
    """Of the forces of c clusters."""

    own: jax.Array | None  # (c,n,3,n,3) by their own points
    of_normal: jax.Array | None  # (c,k,3) of the normal force that they follow, by its points


def weighted(given: Load, weight) -> list:
    """∂f/∂P + weight ∂f/∂V of every part of a load, of what there is."""
    return [slope_of(p, weight, by_P=True) for p in given.point_forces]


def rates(given: Load) -> list:
    """∂f/∂V of every part."""
    return [slope_of(p, 1.0, by_P=False) for p in given.point_forces]


def slope_of(p: PointForces, weight, *, by_P: bool) -> Slope | None:
    """∂f/∂P, where it is asked for, + weight ∂f/∂V; None where there is nothing."""

    def one(position: jax.Array | None, rate: jax.Array | None) -> jax.Array | None:
        if rate is None or position is None or not by_P:
            return (position if by_P else None) if rate is None else weight * rate
        return position + weight * rate

    own, of_normal = one(p.df_dP, p.df_dV), None if p.normal is None else one(p.normal.by_P, p.normal.by_V)
    return None if own is None and of_normal is None else Slope(own, of_normal)


def arms(f: Frames, p: PointForces | NormalForce) -> jax.Array:
    """A (c,n,3,6) of every point at frames f."""
    return load.arms(f.T, p.point_links, p.u)


def link_form(model: Model, f_a: Frames, f_b: Frames, p: PointForces, S: Slope) -> jax.Array:
    """Σ a(q_a)ᵀ S a(q_b) over the clusters of each link, (N,6,6), for clusters on one link."""
    c, n = p.point_links.shape
    B = jnp.zeros((c, 6, 6), f_a.T.dtype)
    a, b = (arms(f, p).reshape(c, 3 * n, 6) for f in (f_a, f_b))
    if S.own is not None:
        B = matmul(transpose(a), matmul(S.own.reshape(c, 3 * n, 3 * n), b))
    if p.normal is not None and p.by_normal is not None and S.of_normal is not None:
        along = matvec(transpose(a), p.by_normal.reshape(c, 3 * n))
        across = arms(f_b, p.normal).reshape(c, -1, 6)
        B = B + along[:, :, None] * matvec(transpose(across), S.of_normal.reshape(c, -1))[:, None, :]
    return on_links(p.point_links[:, 0], B, model.topology.n_links)


def point_jacobian(model: Model, f: Frames, p: PointForces | NormalForce) -> jax.Array:
    """∂P/∂q of every point, (c,n,3,nv)."""
    moves = jnp.asarray(tree(model.topology).dof_above_link, f.s.dtype)[:, p.point_links]  # (nv,c,n)
    return jnp.einsum("cnai,xi,xcn->cnax", arms(f, p), f.s, moves)


def coupled_matrix(model: Model, f_a: Frames, f_b: Frames, p: PointForces, S: Slope) -> jax.Array:
    """Σ ∂P/∂q(q_a)ᵀ S ∂P/∂q(q_b), (nv,nv), of clusters that couple links."""
    total, J = jnp.zeros((model.nv, model.nv), f_a.T.dtype), point_jacobian(model, f_a, p)
    if S.own is not None:
        total = total + jnp.einsum("cnax,cnamb,cmby->xy", J, S.own, point_jacobian(model, f_b, p))
    if p.normal is not None and p.by_normal is not None and S.of_normal is not None:
        along = jnp.einsum("cnax,cna->cx", J, p.by_normal)
        across = jnp.einsum("cmby,cmb->cy", point_jacobian(model, f_b, p.normal), S.of_normal)
        total = total + along.T @ across
    return total


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
