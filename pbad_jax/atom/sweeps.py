"""One exact Newton step in O(N): J x = b for the matrix J of a stage equation, without forming J. Beyond the paper.

    J = c ∂²I/∂q_a∂q_b (at a = b) + Σ_l <∂²T^l/∂q∂q, A^l> + joint terms,

which is parallel.py's c mixed_hess(f, f) + pullback_hess(f, A) + diag(d), and 3 by 3 blocks on the balls. With
G_l = T^l M^l (T^l)ᵀ, b_l = A^l (T^l)ᵀ (4,4) and ν_l = Σ_{x above l} s_x δ_x, the twist that a step δ gives link l,
the quadratic form of J is

    Σ_l <ν̂_l, ν̂_l E_l> + Σ_y <[ν̂_p, ŝ_y], B_y> δ_y + joint terms,      E_l = c G_l − (b_l + b_lᵀ)/2,

p the parent of y's link and B_y = Σ_{l below y} b_l. Here <ν̂ν̂, b> = −<ν̂, ν̂ (b + bᵀ)/2> because ω̂ is antisymmetric;
the commutators are what the order of second derivatives (ŝ_x ŝ_y, x above y) leaves. Only the wrench w of B_y enters
them: ½<[ŝ_x, ŝ_y], B_y> = s_x · Λ_y s_y with Λ antisymmetric.

The dofs are eliminated link by link, children first. A link with screws S hands its parent

    P − U D⁻¹ Vᵀ,   U = (P + Λ) S,   V = (Pᵀ + Λ) S,   D = Sᵀ P S + joint terms,

P starting as the (6,6) form of E_l; then one sweep outward gives δ = D⁻¹ (e − Vᵀ ν_p). Left and right rows differ only
below a ball with an unsymmetric block. For A = 0 this is the articulated-body algorithm (Featherstone 2008, 7.3).

Links that do not wait for one another are eliminated together, in rows of ⌈N/depth⌉ links: at most 2 depth rows, O(N)
work, and on a chain one link a row. The number of operations that XLA compiles does not depend on N.
"""

import heapq
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kinematics.transforms import Frames, transforms_parallel
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import loops, rotations
from pbad_jax.math.precision import made_once
from pbad_jax.math.rotations import hat
from pbad_jax.math.small import matmul, matvec, small_sum, take, transpose
from pbad_jax.math.spatial import homogeneous, wrench
from pbad_jax.model.model import Model, Topology


class EliminationOrder(NamedTuple):
    """Constant index tables of a topology, numpy. Link N is the world, link N+1 padding; dof nv is padding."""

    link: np.ndarray  # (rows,width) links, children before parents
    parent: np.ndarray  # (rows,width) their parents
    dofs: np.ndarray  # (N+2,slots) the degrees of freedom of a link; slots is 3 if there are balls, else 1
    place: np.ndarray  # (nv,) where a degree of freedom lies in a flattened (rows,width,slots)


@made_once
def elimination_order(topology: Topology) -> EliminationOrder:
    """The index tables of a topology; made once. Deepest links first, as many at a time as the mean level has."""
    t, n, nv = tree(topology), topology.n_links, topology.nv
    parents = topology.link_parent

    # depth of every link, and how many children it waits for
    depth = [0] * n
    waiting = [0] * (n + 1)
    for i, p in enumerate(parents):
        depth[i] = depth[p] + 1 if p >= 0 else 1
        waiting[p] += 1

    # rows of at most ⌈N/depth⌉ links, the deepest first, each once its children are eliminated
    width = -(-n // max(depth))
    ready = [(-depth[i], i) for i in range(n) if not waiting[i]]
    heapq.heapify(ready)
    rows = []
    while ready:
        rows.append([heapq.heappop(ready)[1] for _ in range(min(width, len(ready)))])
        for p in (parents[i] for i in rows[-1]):
            waiting[p] -= 1
            if p >= 0 and not waiting[p]:
                heapq.heappush(ready, (-depth[p], p))

    # the rows and their parents as tables, short rows padded with link N+1
    link = np.array([r + [n + 1] * (width - len(r)) for r in rows], np.int32)
    up = np.array([p if p >= 0 else n for p in parents] + [n, n + 1], np.int32)

    # the degrees of freedom of each link, nv where a slot is empty
    slots = 3 if t.balls.size else 1
    slot = np.maximum(t.dof_ball, 0)
    dofs = np.full((n + 2, slots), nv, np.int32)
    dofs[t.dof_link, slot] = np.arange(nv)

    # where each degree of freedom comes out of the rows
    position = np.zeros(n + 2, np.int32)
    position[link.ravel()] = np.arange(link.size)
    return EliminationOrder(link, up[link], dofs, position[t.dof_link] * slots + slot)


# --- sums over the tree ----------------------------------------------------------------------------------


def subtree_sum(model: Model, x: jax.Array) -> jax.Array:
    """Σ over the links below each link, itself included: (N,...) to (N,...), in O(N)."""
    s = elimination_order(model.topology)

    def row(x, links):
        link, parent = links
        return _add(x, parent, _get(x, link)), None

    x, _ = loops.scan(row, _padded(x, 2), (s.link, s.parent))
    return x[:-2]


def ancestor_sum(model: Model, x: jax.Array) -> jax.Array:
    """Σ over the links above each link, itself included: (N,...) to (N,...), in O(N)."""
    s = elimination_order(model.topology)

    def row(x, links):
        link, parent = links
        return _add(x, link, _get(x, parent)), None

    x, _ = loops.scan(row, _padded(x, 2), (s.link, s.parent), reverse=True)
    return x[:-2]


def _padded(x: jax.Array, rows: int) -> jax.Array:
    """x with rows of zeros behind."""
    return jnp.concatenate([x, jnp.zeros((rows, *x.shape[1:]), x.dtype)])


def _get(x: jax.Array, index: jax.Array) -> jax.Array:
    return x.at[index].get(mode="promise_in_bounds")


def _add(x: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    return x.at[index].add(value, mode="promise_in_bounds")


# --- the matrix ------------------------------------------------------------------------------------------


def world_transforms(model: Model, L: jax.Array) -> jax.Array:
    """T (N,3,4) from the local transforms L (N,3,4); O(log N) deep."""
    return transforms_parallel(model, L)


def pullback(model: Model, f: Frames, A: jax.Array) -> jax.Array:
    """Σ_l <∂T^l/∂q_x, A^l> (nv,) by one sweep, in O(N); parallel.pullback. A: (N,3,4) field."""
    B = subtree_sum(model, matmul(A, transpose(homogeneous(f.T))))
    return small_sum(f.s * take(wrench(B), tree(model.topology).dof_link))


class NewtonMatrix(NamedTuple):
    """J = c ∂²I + Σ <∂²T, A> + link terms + joint terms, never formed."""

    f: Frames  # about any origin
    c: jax.Array | float  # factor of the mass matrix, e.g. 1/s²; its armature is not added
    A: jax.Array  # (N,3,4) field, e.g. kg/s² · (kg m, kg)
    d: jax.Array  # (nv,) diagonal of the joint terms
    blocks: jax.Array | None = None  # (nball,3,3) joint terms of the balls beside d, in the order of `Tree.balls`
    form: jax.Array | None = None  # (N,6,6) of the links' own forces, on twists; need not be symmetric


def mass_matrix(model: Model, f: Frames) -> NewtonMatrix:
    """The mass matrix, armature included; parallel.mass_matrix."""
    return NewtonMatrix(f, jnp.ones((), f.T.dtype), jnp.zeros_like(f.T), model.armature)


def link_terms(model: Model, J: NewtonMatrix) -> tuple[jax.Array, jax.Array]:
    """The (N,6,6) forms of E_l on twists (ω, v) with the links' own, and the (N,6) wrenches of b_l."""
    T = homogeneous(J.f.T)
    B = matmul(J.A, transpose(T))
    w = jnp.concatenate([rotations.vee(B[..., :3]), B[..., 3]], axis=-1)
    B = homogeneous(B, last=0.0)
    E = J.c * matmul(matmul(T, model.second_moment), transpose(T)) - 0.5 * (B + transpose(B))
    eye = jnp.eye(3, dtype=E.dtype)[None]
    upper = jnp.trace(E[:, :3, :3], axis1=1, axis2=2)[:, None, None] * eye - E[:, :3, :3]
    mixed = hat(E[:, :3, 3])
    lower = E[:, 3, 3, None, None] * eye
    E = jnp.block([[upper, mixed], [-mixed, lower]])
    return (E if J.form is None else E + J.form), w


def commutator(w: jax.Array, s: jax.Array) -> jax.Array:
    """Λ s (...,6) with s' · Λ s = ½<[ŝ', ŝ], B> for every screw s'; w (...,6) the wrench of B."""
    z, b, omega, v = w[..., :3], w[..., 3:], s[..., :3], s[..., 3:]
    return 0.5 * jnp.concatenate([jnp.cross(omega, z) + jnp.cross(v, b), jnp.cross(omega, b)], axis=-1)


def multiply(model: Model, J: NewtonMatrix, x: jax.Array) -> jax.Array:
    """J x, (nv,), in O(N); x (nv,) rad or m."""
    t, f = tree(model.topology), J.f
    E, w = link_terms(model, J)
    L = commutator(take(subtree_sum(model, w), t.dof_link), f.s)

    def per_link(y):
        return jnp.zeros_like(w).at[t.dof_link].add(y * x[:, None])

    twist = ancestor_sum(model, per_link(f.s))
    force = subtree_sum(model, matvec(E, twist) + per_link(L))
    # a link's own share of both sums with L cancels: Λ is antisymmetric
    y = J.d * x + small_sum(f.s * take(force, t.dof_link) + L * take(twist, t.dof_link))
    return y.at[t.ball_v].add(matvec(J.blocks, x[t.ball_v])) if J.blocks is not None and t.balls.size else y


def transposed(J: NewtonMatrix) -> NewtonMatrix:
    """Jᵀ."""
    blocks, form = (None if x is None else transpose(x) for x in (J.blocks, J.form))
    return J._replace(blocks=blocks, form=form)


def solve(model: Model, J: NewtonMatrix, b: jax.Array) -> jax.Array:
    """The x (nv,) rad or m with J x = b (nv,) N m or N, in O(N); design.md section 4, last paragraph.

    There is no pivoting between links. Where J is positive definite (small dt) none is needed; where A makes J
    indefinite a pivot D may be small by chance and the answer inaccurate, or not finite where it is zero. `multiply`
    tells. A hinge or slide that moves no mass needs its d. Differentiable in both directions.
    """
    if not model.nv:
        return b
    J, b = loops.alike((J, b))
    return jax.lax.custom_linear_solve(
        lambda x: multiply(model, J, x),
        b,
        solve=lambda _, y: _solve(model, J, y),
        transpose_solve=lambda _, y: _solve(model, transposed(J), y),
    )


def diagonal(model: Model, J: NewtonMatrix) -> jax.Array:
    """Of a symmetric J, (nv,), without what blocks of the balls add."""
    E = take(subtree_sum(model, link_terms(model, J)[0]), tree(model.topology).dof_link)
    return small_sum(J.f.s * matvec(E, J.f.s)) + J.d


def quadratic(model: Model, J: NewtonMatrix, x: jax.Array) -> jax.Array:
    """xᵀ J x (), in O(N), for a mass matrix (A = 0)."""
    E, _ = link_terms(model, J)
    twist = ancestor_sum(model, _on_links(model, J.f.s * x[:, None]))
    return jnp.sum(twist * matvec(E, twist)) + jnp.sum(J.d * x * x)


def inverse_quadratic(model: Model, J: NewtonMatrix, b: jax.Array) -> jax.Array:
    """bᵀ J⁻¹ b (), in O(N) and one sweep, for a mass matrix: Σ e² / D over the eliminated dofs.

    NaN where J is not positive definite, as a Cholesky factor would be.
    """
    gain, e, positive = _inward(model, J, b)
    return jnp.where(jnp.all(positive), jnp.sum(gain[..., 6] * e), jnp.nan)


def is_positive_definite(model: Model, J: NewtonMatrix) -> jax.Array:
    """Whether every pivot of the elimination is positive, () bool: where J is symmetric, it is positive definite."""
    return jnp.all(_inward(model, J, jnp.zeros_like(J.d))[2])


def _on_links(model: Model, x: jax.Array) -> jax.Array:
    """The sum of (nv,...) over the degrees of freedom of every link, (N,...)."""
    out = jnp.zeros((model.topology.n_links, *x.shape[1:]), x.dtype)
    return out.at[tree(model.topology).dof_link].add(x)


def _solve(model: Model, J: NewtonMatrix, b: jax.Array) -> jax.Array:
    """The two sweeps."""
    s = elimination_order(model.topology)
    gain, _, _ = _inward(model, J, b)
    S = _padded(J.f.s, 1)[s.dofs[s.link]]

    def outward(twist, row):
        """Twist (N+2,6) holds ν."""
        link, parent, S, gain = row
        nu = _get(twist, parent)
        delta = gain[..., 6] - matvec(gain[..., :6], nu)
        return _add(twist, link, nu + small_sum(S * delta[..., None], axis=-2)), delta

    zero = jnp.zeros((model.topology.n_links + 2, 6), b.dtype)
    _, delta = loops.scan(outward, zero, (s.link, s.parent, S, gain), reverse=True)
    return delta.reshape(-1)[s.place]


def _inward(model: Model, J: NewtonMatrix, b: jax.Array):
    """D⁻¹ [Vᵀ, e] (rows,width,slots,7), the eliminated right-hand sides e (rows,width,slots), and whether D > 0."""
    # what each row needs: screws S, joint terms, right-hand sides
    s = elimination_order(model.topology)
    dofs = s.dofs[s.link]
    S = _padded(J.f.s, 1)[dofs]  # (rows,width,slots,6)
    joint = _joint_terms(model, J.d, J.blocks)[s.link]
    rhs = _padded(b, 1)[dofs]

    # Z = [P, −force, w] begins as E_l, zero, and the wrench of b_l (the header's letters)
    E, w = link_terms(model, J)
    Z = _padded(jnp.concatenate([E, jnp.zeros_like(w)[..., None], w[..., None]], axis=-1), 2)

    def inward(Z, row):
        """Z (N+2,6,8) holds P, minus the force that eliminated links exert, and the wrench w of B."""
        link, parent, dofs, S, joint, rhs = row

        # P and w of links below which all is eliminated, and Λ S
        here = _get(Z, link)
        P, w = here[..., :6], here[..., 7]
        L = commutator(w[..., None, :], S)

        # pivot D = Sᵀ P S + joint terms, right-hand side e, and D⁻¹ [Vᵀ, e]
        SZ = matmul(S, here[..., :7])
        D = matmul(SZ[..., :6], transpose(S)) + joint
        e = SZ[..., 6] + rhs
        gain = _small_solve(D, dofs == model.nv, jnp.concatenate([SZ[..., :6] + L, e[..., None]], axis=-1))

        # to the parent: P − U D⁻¹ Vᵀ, −force − U D⁻¹ e, and w as it is
        U = matmul(S, transpose(P)) + L
        change = matmul(transpose(U), gain)
        change = jnp.concatenate([change, jnp.zeros_like(w)[..., None]], axis=-1)
        return _add(Z, parent, here - change), (gain, e, _has_positive_pivots(D, dofs == model.nv))

    return loops.scan(inward, Z, (s.link, s.parent, dofs, S, joint, rhs))[1]


def _joint_terms(model: Model, d: jax.Array, blocks: jax.Array | None) -> jax.Array:
    """(N+2,slots,slots)."""
    dofs, balls = elimination_order(model.topology).dofs, tree(model.topology).balls
    joint = _padded(d, 1)[dofs][..., None] * np.eye(dofs.shape[1], dtype=d.dtype)[None]
    return joint.at[balls].add(blocks) if blocks is not None and balls.size else joint


def _scaled(D: jax.Array, absent: jax.Array) -> tuple[jax.Array, jax.Array]:
    """D of one row with entries of order one, the identity where a slot is `absent`; and its scale."""
    scale = jnp.max(jnp.abs(D), axis=(-2, -1), keepdims=True)
    scale = jnp.where(scale > 0, scale, 1.0)
    return D / scale + jnp.where(absent[..., None], np.eye(3, dtype=D.dtype), 0.0), scale


def _has_positive_pivots(D: jax.Array, absent: jax.Array) -> jax.Array:
    """Whether D of one row is positive definite over the slots that are not `absent`, (width,): its minors say so."""
    if D.shape[-1] == 1:
        return absent[..., 0] | (D[..., 0, 0] > 0)
    D, _ = _scaled(D, absent)
    normal = jnp.cross(D[..., 0, :], D[..., 1, :])
    return (D[..., 0, 0] > 0) & (normal[..., 2] > 0) & (small_sum(normal * D[..., 2, :]) > 0)


def _small_solve(D: jax.Array, absent: jax.Array, R: jax.Array) -> jax.Array:
    """D⁻¹ R of one row; D (width,slots,slots), zero where `absent` (width,slots), R (width,slots,7)."""
    if D.shape[-1] == 1:
        return R / jnp.where(absent[..., None], 1.0, D)
    D, scale = _scaled(D, absent)
    rows = D[..., 0, :], D[..., 1, :], D[..., 2, :]
    adjugate = jnp.stack([jnp.cross(rows[k - 2], rows[k - 1]) for k in range(3)], axis=-1)
    inverse = adjugate / small_sum(rows[0] * adjugate[..., 0])[..., None, None]
    X = matmul(inverse, R)
    return (X + matmul(inverse, R - matmul(D, X))) / scale  # refined once: as accurate as elimination with pivots
