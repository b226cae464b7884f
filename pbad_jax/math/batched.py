"""Small dense systems and rare branches, for one lane and for many. Knows no physics.

One lane is solved by LAPACK. Many lanes (vmap) are never handed to it together: jaxlib's batched LAPACK calls wait for
workers of the very thread pool they run in, so that two of them side by side stop for ever. Small systems are
eliminated side by side, written out here; larger ones go to LAPACK lane by lane on a CPU, where side by side they fall
out of the cache. On NVIDIA's devices, where what is written out would be hundreds of launches, cuBLAS and cuSOLVER have
calls for many small matrices at once (benchmarks/README.md has the figures).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.sharding import AxisType

from pbad_jax.math import loops
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.traced import traced_once

SOLVE_ALONE, CHOLESKY_ALONE = 6, 10  # unknowns from which on a CPU takes lanes one after another
LARGEST_SUBSTITUTION = 1024  # numbers on the right; beyond, OpenBLAS wakes threads, which spin longer than they work
PANELS = 8  # loops that the written-out elimination consists of, at most; finished columns are dropped between them
SMALLEST_PANEL = 8
SCHULZ_ITERATIONS = 60  # each makes what is small 1.5 times larger
SIGN_ITERATIONS, SETTLED = 20, 0.05  # of the matrix sign function: at most, and the relative change that ends them


def solve(A: jax.Array, b: jax.Array) -> jax.Array:
    """A⁻¹ b for A (n,n) and b (n,), with partial pivoting. Not finite where A is singular; n may be 0.

    Differentiable in both directions: the tangent is another solve with A, the cotangent one with Aᵀ.
    """
    if not b.size:
        return b
    A, b = loops.alike((A, b))
    return jax.lax.custom_linear_solve(
        lambda x: A @ x,
        b,
        solve=lambda _, y: _solve(A, y),
        transpose_solve=lambda _, y: _solve(A.T, y),
    )


@custom_vmap
def _solve(A: jax.Array, b: jax.Array) -> jax.Array:
    """Of (A b) = P L (U y) the last columns are y = L⁻¹ Pᵀ b: no permutation and no second substitution are left."""
    columns = b.reshape(A.shape[0], -1)
    lu, _, _ = jax.lax.linalg.lu(jnp.concatenate([A, columns], axis=1))
    U, y = jnp.split(lu, [A.shape[0]], axis=1)
    return _substituted(U, y).reshape(b.shape)


def _substituted(U: jax.Array, y: jax.Array) -> jax.Array:
    """U⁻¹ y for an upper triangular U (n,n) and y (n,k), by halves."""
    n, k = y.shape
    if n * k <= LARGEST_SUBSTITUTION or k == 1:
        return jax.lax.linalg.triangular_solve(U, y, left_side=True, lower=False)
    half = n // 2
    below = _substituted(U[half:, half:], y[half:])
    return jnp.concatenate([_substituted(U[:half, :half], y[:half] - U[:half, half:] @ below), below])


@_solve.def_vmap
@with_all_bits
def _solve_lanes(axis_size, in_batched, A, b):
    """Lanes of b (n,) or (n,k). Where all share one matrix, as the tangents of one lane do, it is factored once."""
    A_batched, b_batched = in_batched
    if not A_batched:
        columns = jnp.moveaxis(b, 0, -1)  # (n,B) or (n,k,B)
        x = _solve(A, columns.reshape(A.shape[0], -1)).reshape(columns.shape)
        return jnp.moveaxis(x, -1, 0), True
    b = b if b_batched else jnp.broadcast_to(b, (axis_size, *b.shape))
    return _quickest(SOLVE_ALONE, _solve, _by_square_lu, _eliminated, A, b), True


def _quickest(alone: int, one: Callable, by_library: Callable, at_once: Callable, *lanes):
    """`at_once` of all lanes (B,n,n), `one` after another (a CPU, n ≥ `alone`), or `by_library` (NVIDIA's devices)."""
    ways = {"cuda": jax.vmap(by_library)}
    if lanes[0].shape[-1] >= alone and lanes_are_here():
        ways["cpu"] = functools.partial(in_turn, one)
    return loops.platform_dependent(*lanes, **ways, default=at_once)


def _by_square_lu(A: jax.Array, b: jax.Array) -> jax.Array:
    """As _solve; the library factors square matrices side by side, others one after another."""
    lu, _, permutation = jax.lax.linalg.lu(A)
    columns = b.reshape(A.shape[0], -1)[permutation]
    y = jax.lax.linalg.triangular_solve(lu, columns, left_side=True, lower=True, unit_diagonal=True)
    return jax.lax.linalg.triangular_solve(lu, y, left_side=True, lower=False).reshape(b.shape)


def lanes_are_here() -> bool:
    """Whether all lanes that are being traced are on one device: a loop over lanes that are spread would gather them.

    There is no other device, or `jax.shard_map` has given each its own.
    """
    mesh = jax.sharding.get_abstract_mesh()
    return jax.device_count() == 1 or (not mesh.empty and all(t == AxisType.Manual for t in mesh.axis_types))


def in_turn(f: Callable, *lanes):
    """`f` of every lane, in a loop."""
    return jax.lax.map(lambda lane: f(*lane), lanes)


def _eliminated(A: jax.Array, b: jax.Array) -> jax.Array:
    """A⁻¹ b for lanes of b, (B,n) or (B,n,k)."""
    return eliminate(A, b) if b.ndim == 3 else eliminate(A, b[..., None])[..., 0]


def eigenvalues_to_the_left(A: jax.Array) -> jax.Array:
    """How many eigenvalues of A (n,n) have a negative real part, () of A's dtype; NaN where A is singular.

    By the trace of the matrix sign function: Newton's iteration X ← (X + X⁻¹)/2 takes every eigenvalue to ±1, scaled as
    in Higham, Functions of Matrices (2008), section 5.5. JAX has no general eigensolver that runs on every device.
    """
    n = A.shape[0]
    eye = jnp.eye(n, dtype=A.dtype)

    # counting takes few digits of the sign: end where X hardly changes
    def unsettled(state):
        _, change, count = state
        return (change > SETTLED) & (count < SIGN_ITERATIONS)

    def one(state):
        X, _, count = state

        # Newton's iteration on μX: μ² = ‖X⁻¹‖/‖X‖ brings large and small eigenvalues near ±1 sooner
        inverse = solve(X, eye)
        size = jnp.linalg.norm(X)
        scale = jnp.sqrt(jnp.linalg.norm(inverse) / size)
        new = 0.5 * (scale * X + inverse / scale)
        return new, jnp.linalg.norm(new - X) / size, count + 1

    # sign(A) has the eigenvalues ±1, so its trace is those on the right less those on the left
    X, _, _ = loops.while_loop(unsettled, one, (A, jnp.full((), jnp.inf, A.dtype), 0))
    return 0.5 * (n - jnp.trace(X))


def positive_part(A: jax.Array) -> jax.Array:
    """A symmetric A (n,n) with zeros for its negative eigenvalues: (A + |A|)/2.

    |A| = A sign(A), and the sign by Newton and Schulz's iteration X ← X (3 − X²)/2 (Higham, Functions of Matrices,
    section 5.3), products alone. Eigenvalues below 1e-10 of the largest may be left in part.
    """
    A = loops.alike(0.5 * (A + A.T))
    size = jnp.linalg.norm(A)
    X = A / jnp.where(size > 0, size, 1.0)
    X = loops.fori_loop(0, SCHULZ_ITERATIONS, lambda _, X: 1.5 * X - 0.5 * X @ (X @ X), X)
    part = 0.5 * (A + A @ X)
    return 0.5 * (part + part.T)


def eliminate(A: jax.Array, b: jax.Array) -> jax.Array:
    """A⁻¹ b (B,n,k) for lanes A (B,n,n), b (B,n,k), by Gauss-Jordan elimination.

    Pivots are the largest of their column. Rows are not exchanged: each keeps its place, and the order in which they
    were chosen is applied at the end.
    """
    lanes, n = A.shape[:2]
    if n == 0:
        return b

    # columns are taken in a few panels, between which the finished ones are dropped
    panel = max(SMALLEST_PANEL, -(-n // PANELS))
    W = jnp.concatenate([A, b], axis=-1)  # columns from the first unfinished one on

    # rows that have been pivots, and which row was the pivot of each column
    used = jnp.zeros((lanes, n), bool)
    order = jnp.zeros((lanes, n), jnp.int32)
    for first in range(0, n, panel):

        def column(k, state, first=first):
            W, used, order = state

            # pivot: the largest entry of the column among rows that have not been one yet
            c = jax.lax.dynamic_index_in_dim(W, k - first, 2, keepdims=False)
            p = jnp.argmax(jnp.where(used, -1.0, jnp.abs(c)), axis=1)
            chosen = jnp.arange(n)[None] == p[:, None]
            row = jnp.take_along_axis(W, p[:, None, None], axis=1)[:, 0]
            pivot = jax.lax.dynamic_index_in_dim(row, k - first, 1, keepdims=True)

            # Gauss-Jordan: divide the pivot's row by it, and clear the column in all others
            row = (row / pivot)[:, None, :]
            W = jnp.where(chosen[:, :, None], row, W - c[:, :, None] * row)
            order = jax.lax.dynamic_update_index_in_dim(order, p.astype(jnp.int32), k, 1)
            return W, used | chosen, order

        # finished columns are unit vectors and are needed no more
        last = min(n, first + panel)
        W, used, order = loops.fori_loop(first, last, column, (W, used, order))
        W = W[:, :, last - first :]

    # only b is left, solved but for the order of its rows: unknown k lies in the row of pivot k
    return jnp.take_along_axis(W, order[:, :, None], axis=1)


class CholeskyFactor(NamedTuple):
    """Of a positive definite matrix M = L Lᵀ: L (n,n) `factor`, lower triangular, and L⁻¹ `inverse`."""

    factor: jax.Array
    inverse: jax.Array


def cholesky(M: jax.Array) -> CholeskyFactor:
    """The Factors of M (n,n); NaN where M is not positive definite. Not differentiable in reverse."""
    return CholeskyFactor(*_cholesky(loops.alike(M)))


@custom_vmap
def _cholesky(M: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _cholesky_by_library(M)


def _cholesky_by_library(M: jax.Array) -> tuple[jax.Array, jax.Array]:
    L = jnp.linalg.cholesky(M)
    return L, _inverse_of_lower(L)


def _inverse_of_lower(L: jax.Array) -> jax.Array:
    """L⁻¹ of a lower triangular L (n,n), by halves."""
    n = L.shape[0]
    if n * n <= LARGEST_SUBSTITUTION:
        return jax.scipy.linalg.solve_triangular(L, jnp.eye(n, dtype=L.dtype), lower=True)
    half = n // 2
    A, C = _inverse_of_lower(L[:half, :half]), _inverse_of_lower(L[half:, half:])
    return jnp.block([[A, jnp.zeros_like(L[:half, half:])], [-C @ (L[half:, :half] @ A), C]])


@_cholesky.def_vmap
@with_all_bits
def _cholesky_lanes(axis_size, in_batched, M):
    del axis_size, in_batched
    return _quickest(CHOLESKY_ALONE, _cholesky, _cholesky_by_library, _cholesky_at_once, M), (True, True)


def _cholesky_at_once(M: jax.Array) -> tuple[jax.Array, jax.Array]:
    """L and L⁻¹ of lanes M (B,n,n), all lanes side by side, column by column."""
    n = M.shape[-1]

    def column(k, state):
        """Column k of L from what is left of M, and row k of L⁻¹ from the rows above it."""
        S, L, R = state

        # column k of L from the Schur complement S, zero above the diagonal
        c = jax.lax.dynamic_index_in_dim(S, k, 2, keepdims=False)
        root = jnp.sqrt(jax.lax.dynamic_index_in_dim(c, k, 1, keepdims=True))
        c = jnp.where(jnp.arange(n) >= k, c / root, 0.0)

        # take the part of this column out of what is left of M
        S = S - c[:, :, None] * c[:, None, :]

        # row k of L R = E by forward substitution, which makes R the inverse
        row = jax.lax.dynamic_index_in_dim(L, k, 1, keepdims=False)  # L_kj, j < k
        above = jnp.sum(row[:, :, None] * R, axis=1)
        R = jax.lax.dynamic_update_index_in_dim(R, ((jnp.arange(n) == k)[None] - above) / root, k, 1)
        return S, jax.lax.dynamic_update_index_in_dim(L, c, k, 2), R

    zero = jnp.zeros_like(M)
    _, L, R = loops.fori_loop(0, n, column, (M, zero, zero))
    return L, R


def cond_if_any(wanted: jax.Array, often: Callable, seldom: Callable, *operands, takes_long: bool = False):
    """`seldom(*operands)` where `wanted`, else `often(*operands)`; both return the same pytree of arrays.

    Under vmap a `lax.cond` computes both for every lane; here `seldom` is left out while no lane wants it. Where it
    takes long, a CPU computes it for the lanes that want it, one after another, and not for their neighbours.
    """
    # trace both branches once, however often they stand below
    wanted, operands = loops.alike((wanted, operands))
    often, seldom = (traced_once(f, *operands) for f in (often, seldom))

    # one lane: an ordinary branch
    @custom_vmap
    def choose(wanted, *operands):
        return loops.instead(wanted, seldom, often, *operands)

    # many lanes: one branch for all of them, on whether any wants `seldom`
    @choose.def_vmap
    @with_all_bits
    def _(axis_size, in_batched, wanted, *operands):
        # f of all lanes side by side; operands without an axis of lanes are shared
        def each(f):
            axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
            return jax.vmap(f, axes, axis_size=axis_size)

        # side by side both are computed, and each lane takes its own
        def select(w, *o):
            return jax.tree.map(lambda a, b: jnp.where(w, a, b), seldom(*o), often(*o))

        # lanes one after another, each of which computes only what it wants
        def alone(*every):
            def of_lane(k):
                w, *o = jax.tree.map(lambda x, batched: x[k] if batched else x, every, tuple(in_batched))
                return loops.instead(w, seldom, often, *o)

            return jax.lax.map(of_lane, jnp.arange(axis_size))

        def some(*every):
            ways = {"cpu": alone} if takes_long and axis_size and lanes_are_here() else {}
            return loops.platform_dependent(*every, **ways, default=each(select))

        # while no lane wants `seldom`, nothing of it is computed
        out = loops.instead(jnp.any(wanted), some, each(lambda _, *o: often(*o)), wanted, *operands)
        return out, jax.tree.map(lambda _: True, out)

    return choose(wanted, *operands)
