"""The atom I(q_a, q_b) = Σ_i tr(T^i(q_a) M^i T^i(q_b)ᵀ) and its derivatives, by the paper's Algorithms 1-3.

One `lax.scan` from the leaves to the roots, O(N) for the gradient and O(N · depth) for the Hessians, in the
paper's letters: T^i = T^{p} L^i, A, B (3,4) and the carried matrix S (4,4). What differs from the page, with
the slip it mends:

- Alg. 1's recursion "A ← A L(q_b)ᵀ" is a carry per link, added to the parent's, so trees work (the paper has
  parent(i) = i−1).
- Alg. 2 accumulates ∂I/∂T(q_b) (printed: q_a), and its one triangle is mirrored.
- Alg. 3 skips the second term at j = i (printed: both are added, which doubles the diagonal blocks), and its
  4×4×4×4 tensor is one matrix: S ← L(q_a) S L(q_b)ᵀ + M.

Same names and signatures as parallel.py, the fast twin.

Read next: atom/parallel.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kinematics.transforms import Frames, frames, joint_screws, transforms_serial
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import loops
from pbad_jax.math.small import matmul, transpose
from pbad_jax.math.spatial import homogeneous
from pbad_jax.model.model import Model


def world_transforms(model: Model, L: jax.Array) -> jax.Array:
    """T (N,3,4) from the local transforms L (N,3,4). Forward pass of Alg. 1."""
    return transforms_serial(model, L)


def _parents(model: Model) -> jax.Array:
    """(N,) parent links, the world as N."""
    return jnp.asarray([p if p >= 0 else model.topology.n_links for p in model.topology.link_parent])


def _link_screws(model: Model) -> tuple[jax.Array, np.ndarray]:
    """σ (N,3,3,4): the up to three screws of every link, zero where it has fewer; and (nv,2) their places."""
    t = tree(model.topology)
    slot = np.maximum(t.dof_ball, 0)
    place = np.stack([t.dof_link, slot], axis=-1)
    sigma = jnp.zeros((model.topology.n_links, 3, 3, 4), model.dtype)
    return sigma.at[t.dof_link, slot].set(joint_screws(model)), place


def _parent_times(model: Model, f: Frames) -> tuple[jax.Array, jax.Array, np.ndarray]:
    """T^{p} ∂L^i/∂q (N,3,3,4) and the screws σ (N,3,3,4), with the places of the degrees of freedom."""
    sigma, place = _link_screws(model)
    return matmul(f.T[:, None, :, :3], sigma), sigma, place  # T^p L^i σ = T^i σ


def pullback(model: Model, f: Frames, A: jax.Array) -> jax.Array:
    """Σ_l <∂T^l/∂q_x, A^l>, (nv,), in O(N): the backward pass of Alg. 1.

    Args:
        model: the model. f: frames at q. A: (N,3,4) field.
    """
    n, parent = model.topology.n_links, _parents(model)
    TdL, _, place = _parent_times(model, f)
    carry = jnp.concatenate([A, jnp.zeros_like(A[:1])])

    def link(A, i):
        grad = jnp.sum(TdL[i] * A[i][None], axis=(-2, -1))  # (T^{p} ∂L) : A
        return A.at[parent[i]].add(matmul(A[i], transpose(homogeneous(f.L[i])))), grad  # A L^T to the parent

    _, grad = loops.scan(link, carry, jnp.arange(n), reverse=True)
    return grad[place[:, 0], place[:, 1]]


def pullback_hess(model: Model, f: Frames, A: jax.Array) -> jax.Array:
    """Σ_l <∂²T^l/∂q_x∂q_y, A^l>, (nv,nv), symmetric, in O(N · depth). Alg. 2, corrected."""
    t, n, parent = tree(model.topology), model.topology.n_links, _parents(model)
    TdL, sigma, place = _parent_times(model, f)

    # T^{p} ∂²L^i: both derivatives by coordinates of link i
    sigma4 = homogeneous(sigma, last=0.0)
    pair = matmul(sigma[:, :, None], sigma4[:, None])
    pair = 0.5 * (pair + jnp.swapaxes(pair, 1, 2))  # exponential coordinates: σ_x σ_y, symmetrised
    TddL = matmul(f.T[:, None, None, :, :3], pair)

    # what carries A from a link to its parent, Lᵀ, and its derivative
    LT = transpose(homogeneous(f.L))
    dLT = transpose(matmul(homogeneous(f.L)[:, None], sigma4))  # (N,3,4,4) ∂Lᵀ
    ancestors = jnp.asarray(t.ancestors)
    carry = jnp.concatenate([A, jnp.zeros_like(A[:1])])

    def link(A, i):
        # both x and y on link i
        own = jnp.sum(TddL[i] * A[i][None, None], axis=(-2, -1))  # (T^{p} ∂²L) : A
        B = matmul(A[i], dLT[i])  # (3,3,4): A ∂Lᵀ, one for each y of link i

        # y on link i, x on an ancestor j: carry A ∂Lᵀ up the branch
        def ancestor(B, j):
            k = jnp.minimum(j, n - 1)
            block = jnp.sum(TdL[k][:, None] * B[None], axis=(-2, -1))  # (T^{p(j)} ∂L^j) : B, x of j by y of i
            return matmul(B, LT[k]), jnp.where(j < n, block, 0.0)

        _, blocks = loops.scan(ancestor, B, ancestors[i, 1:])
        return A.at[parent[i]].add(matmul(A[i], LT[i])), (own, blocks)

    # leaves to roots; one triangle comes out, and is mirrored (Alg. 2 in the header)
    _, (own, blocks) = loops.scan(link, carry, jnp.arange(n), reverse=True)
    above = _spread(model, place, 0.5 * own, blocks)
    return above + above.T


def mixed_hess(model: Model, f_a: Frames, f_b: Frames) -> jax.Array:
    """∂²I/∂q_a,x ∂q_b,y, (nv,nv), in O(N · depth). Alg. 3, corrected."""
    # T^{p} ∂L^i at both configurations
    t, n, parent = tree(model.topology), model.topology.n_links, _parents(model)
    TdL_a, _, place = _parent_times(model, f_a)
    TdL_b, _, _ = _parent_times(model, f_b)
    L_a, L_b = homogeneous(f_a.L), homogeneous(f_b.L)

    # S begins as the second moment M of every link
    ancestors = jnp.asarray(t.ancestors)
    carry = jnp.concatenate([model.second_moment, jnp.zeros_like(model.second_moment[:1])])

    def link(S, i):
        # x and y both on link i: tr(∂T(q_a) S ∂T(q_b)ᵀ)
        F = matmul(TdL_a[i], S[i])  # (3,3,4): x of link i by q_a
        G = matmul(TdL_b[i], S[i].T)  # (3,3,4): y of link i by q_b
        own = jnp.sum(F[:, None] * TdL_b[i][None], axis=(-2, -1))  # j = i: one term only

        # one of them on link i, the other on an ancestor j: carry F and G up the branch
        def ancestor(FG, step):
            (F, G), (child, j) = FG, step
            c, k = jnp.minimum(child, n - 1), jnp.minimum(j, n - 1)
            F, G = matmul(F, L_b[c].T), matmul(G, L_a[c].T)
            ab = jnp.sum(F[None] * TdL_b[k][:, None], axis=(-2, -1))  # y of j by q_b, x of i by q_a
            ba = jnp.sum(TdL_a[k][:, None] * G[None], axis=(-2, -1))  # x of j by q_a, y of i by q_b
            return (F, G), (jnp.where(j < n, ab, 0.0), jnp.where(j < n, ba, 0.0))

        _, (ab, ba) = loops.scan(ancestor, (F, G), (ancestors[i, :-1], ancestors[i, 1:]))

        # S to the parent: S ← L(q_a) S L(q_b)ᵀ + M (Alg. 3 in the header)
        up = matmul(matmul(L_a[i], S[i]), L_b[i].T)
        return S.at[parent[i]].add(up), (own, ab, ba)

    # leaves to roots; for q_a ≠ q_b the triangles differ, and each has its own blocks
    _, (own, ab, ba) = loops.scan(link, carry, jnp.arange(n), reverse=True)
    return _spread(model, place, own, ba) + _spread(model, place, jnp.zeros_like(own), ab).T


def mass_matrix(model: Model, f: Frames) -> jax.Array:
    """∂²I/∂q_a∂q_b at a = b, plus armature: the joint-space mass matrix (nv,nv), kg m² or kg."""
    return mixed_hess(model, f, f) + jnp.diag(model.armature)


def _spread(model: Model, place: np.ndarray, own: jax.Array, blocks: jax.Array) -> jax.Array:
    """(nv,nv) from own (N,3,3) and blocks (N,depth−1,3,3) [ancestor's slot, own slot]; rows are ancestors."""
    t = tree(model.topology)
    link, slot = place[:, 0], place[:, 1]
    depth = (t.ancestors < model.topology.n_links).sum(1)
    level = depth[link][None, :] - depth[link][:, None]  # how far row's link lies above the column's
    lies_above = t.above[link][:, link]
    table = jnp.concatenate([own[:, None], blocks], axis=1)
    entry = table[link[None, :], np.where(lies_above, level, 0), slot[:, None], slot[None, :]]
    return jnp.where(lies_above, entry, 0.0)


# --- the atom itself, as the paper writes it -------------------------------------------------------------


def serial_frames(model: Model, q: jax.Array) -> Frames:
    """The frames at q, with T by the serial forward pass."""
    f = frames(model, q)
    return f._replace(T=transforms_serial(model, f.L))


def atom(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """I(q_a, q_b), kg m². `q_a` may be a configuration (nq,) or a field (N,3,4). Alg. 1, forward pass."""
    return jnp.sum(matmul(_field(model, q_a), model.second_moment) * serial_frames(model, q_b).T)


def atom_grad_b(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """∂I/∂q_b, (nv,). `q_a` may be a field (N,3,4). Alg. 1."""
    return pullback(model, serial_frames(model, q_b), matmul(_field(model, q_a), model.second_moment))


def atom_hess_bb(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """∂²I/∂q_b∂q_b, (nv,nv). `q_a` may be a field (N,3,4). Alg. 2."""
    return pullback_hess(model, serial_frames(model, q_b), matmul(_field(model, q_a), model.second_moment))


def atom_hess_ab(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """∂²I/∂q_a∂q_b, (nv,nv), rows by q_a. Alg. 3."""
    return mixed_hess(model, serial_frames(model, q_a), serial_frames(model, q_b))


def _field(model: Model, q_a: jax.Array) -> jax.Array:
    """T(q_a), or the field itself."""
    return q_a if q_a.ndim == 3 else serial_frames(model, q_a).T
