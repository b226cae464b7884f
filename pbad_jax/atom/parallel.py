"""The atom I(q_a, q_b) = Σ_i tr(T^i(q_a) M^i T^i(q_b)ᵀ) and its derivatives, O(log N) deep.

This is what the paper's appendix B (Alg. 4-6) aims at, in the world frame about one origin. With ŝ_x the world
screw of degree of freedom x, ∂T^l/∂q_x = ŝ_x T^l for every link l below x, so every recurrence becomes a sum
over descendants with no transform inside it. With <·,·> the entrywise product and A (N,3,4) a field:

    Alg. 4   Σ_l <∂T^l/∂q_x, A^l>        = <ŝ_x, B_x>          B_x = Σ_{l below x} A^l (T^l)ᵀ
    Alg. 5   Σ_l <∂²T^l/∂q_x∂q_y, A^l>   = <ŝ_x ŝ_y, B_y>      x above y
    Alg. 6   ∂²I/∂q_a,x ∂q_b,y           = <ŝ_x(q_a) G_m, ŝ_y(q_b)>,  G_m = Σ_{l below m} T^l(q_a) M^l T^l(q_b)ᵀ,
             m the deeper of x and y, zero on different branches.

`order[x,y]` is 1 where x lies above y, 1/2 on the same link, else 0. It mirrors Alg. 5 (the paper fills one
triangle) and halves the diagonal blocks of Alg. 6 (the paper adds them twice).

Same names and signatures as serial.py.

Read next: stage/equation.py.
"""

import jax
import jax.numpy as jnp

from pbad_jax.kinematics.transforms import Frames, frames, transforms_parallel
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.rotations import vee
from pbad_jax.math.small import computed_once, matmul, small_sum, transpose
from pbad_jax.math.spatial import homogeneous, twist_matrix, wrench
from pbad_jax.model.model import Model


def world_transforms(model: Model, L: jax.Array) -> jax.Array:
    """T (N,3,4) from the local transforms L (N,3,4)."""
    return transforms_parallel(model, L)


def sum_below_dofs(model: Model, x: jax.Array) -> jax.Array:
    """Σ over the links below each degree of freedom: (N,...) to (nv,...)."""
    mask = jnp.asarray(tree(model.topology).dof_above_link, x.dtype)
    return computed_once(jnp.tensordot(mask, x, axes=1))[0]


def pullback(model: Model, f: Frames, A: jax.Array) -> jax.Array:
    """Σ_l <∂T^l/∂q_x, A^l>, (nv,), in O(N). Alg. 4 (Alg. 1 with the scan taken out).

    Args:
        model: the model. f: frames at q. A: (N,3,4) field, e.g. kg/s² · (kg m, kg).
    """
    B = sum_below_dofs(model, matmul(A, transpose(homogeneous(f.T))))
    return small_sum(f.s * wrench(B))


def pullback_hess(model: Model, f: Frames, A: jax.Array) -> jax.Array:
    """Σ_l <∂²T^l/∂q_x∂q_y, A^l>, (nv,nv), symmetric, in O(N²). Alg. 5 (Alg. 2), A taken at q_b."""
    B = sum_below_dofs(model, matmul(A, transpose(homogeneous(f.T))))
    W = matmul(B[..., :3], transpose(twist_matrix(f.s)[..., :3])) + B[..., 3:] * f.s[..., None, 3:]
    return _mirrored(model, f.s @ second_order_wrench(W).T)


def second_order_wrench(W: jax.Array) -> jax.Array:
    """The wrench (...,6) of B ŝᵀ (...,3,3), whose fourth column is zero because a screw's last row is."""
    return jnp.concatenate([vee(W), jnp.zeros_like(W[..., 0])], axis=-1)


def mixed_hess(model: Model, f_a: Frames, f_b: Frames) -> jax.Array:
    """∂²I/∂q_a,x ∂q_b,y, (nv,nv), in O(N²). Alg. 6 (Alg. 3); its tensor collapses to the (4,4) G."""
    T_a, T_b = homogeneous(f_a.T), homogeneous(f_b.T)
    G = sum_below_dofs(model, matmul(matmul(T_a, model.second_moment), transpose(T_b)))
    F = wrench(matmul(twist_matrix(f_b.s), transpose(G)))  # ŝ_y(q_b) G_yᵀ
    E = wrench(matmul(twist_matrix(f_a.s), G))  # ŝ_x(q_a) G_x
    F, E = computed_once(F, E)
    order = jnp.asarray(tree(model.topology).dof_order, F.dtype)
    return order * (f_a.s @ F.T) + order.T * (E @ f_b.s.T)


def mass_matrix(model: Model, f: Frames) -> jax.Array:
    """∂²I/∂q_a∂q_b at a = b, plus armature: the joint-space mass matrix (nv,nv), kg m² or kg."""
    T = homogeneous(f.T)
    G = sum_below_dofs(model, matmul(matmul(T, model.second_moment), transpose(T)))
    H = _mirrored(model, f.s @ wrench(matmul(twist_matrix(f.s), G)).T)
    return H + jnp.diag(model.armature)


def twist_form(model: Model, f_a: Frames, f_b: Frames, B: jax.Array) -> jax.Array:
    """Σ_l (∂ν_l(q_a)/∂q_x)ᵀ B_l ∂ν_l(q_b)/∂q_y, (nv,nv), of the forms B (N,6,6)."""
    B = sum_below_dofs(model, B)
    order = jnp.asarray(tree(model.topology).dof_order, B.dtype)
    right = small_sum(B * f_b.s[:, None, :])  # B_y s_y
    left = small_sum(B * f_a.s[:, :, None], axis=-2)  # s_x B_x
    return order * (f_a.s @ right.T) + order.T * (left @ f_b.s.T)


def _mirrored(model: Model, P: jax.Array) -> jax.Array:
    """P[x,y], right where x lies above y, to the whole symmetric matrix."""
    half = jnp.asarray(tree(model.topology).dof_order, P.dtype) * P
    return half + half.T


# --- the atom itself, as the paper writes it -------------------------------------------------------------


def atom(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """I(q_a, q_b), kg m². `q_a` may be a configuration (nq,) or a field (N,3,4). Alg. 4."""
    return jnp.sum(matmul(_field(model, q_a), model.second_moment) * frames(model, q_b).T)


def atom_grad_b(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """∂I/∂q_b, (nv,). `q_a` may be a field (N,3,4). Alg. 4."""
    return pullback(model, frames(model, q_b), matmul(_field(model, q_a), model.second_moment))


def atom_hess_bb(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """∂²I/∂q_b∂q_b, (nv,nv). `q_a` may be a field (N,3,4). Alg. 5."""
    return pullback_hess(model, frames(model, q_b), matmul(_field(model, q_a), model.second_moment))


def atom_hess_ab(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """∂²I/∂q_a∂q_b, (nv,nv), rows by q_a. Alg. 6."""
    return mixed_hess(model, frames(model, q_a), frames(model, q_b))


def _field(model: Model, q_a: jax.Array) -> jax.Array:
    """T(q_a), or the field itself."""
    return q_a if q_a.ndim == 3 else frames(model, q_a).T
