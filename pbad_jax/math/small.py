"""Small products and sums, written so that XLA fuses them. Knows no model.

A `dot` of 4 by 4 matrices would be one library call each, so small products are multiply-and-sum. And on CPUs jaxlib
(0.10) hands every sum to a library, YNNPACK, and starts its threads for it. For sums of three or four numbers that
costs a batch several times the sum; a single lane hardly notices. `small_sum` is the same sum in a form that XLA does
not hand over: it compiles the loop itself. To be dropped when a plain `jnp.sum` is as fast again (benchmarks/README.md
has the figures).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_sum_p = Primitive("small_sum")


def small_sum(x: jax.Array, axis: int = -1, *, keepdims: bool = False) -> jax.Array:
    """The sum of x along an axis; the same numbers as jnp.sum(x, axis) but for the order of rounding."""
    axis %= x.ndim
    total = _sum_p.bind(x, axis=axis)
    return jnp.expand_dims(total, axis) if keepdims else total


def _plain(x, *, axis):
    return jnp.sum(x, axis=axis)


def _own_loop(x, *, axis):
    """NaN stays NaN, as in a + b: the comparison only hides the addition from XLA."""

    def add(a, b):
        return jax.lax.select(a == a, a + b, a)

    return jax.lax.reduce(x, jnp.zeros((), x.dtype), add, (axis,))


def _abstract(x, *, axis):
    return x.update(shape=x.shape[:axis] + x.shape[axis + 1 :])


def _transpose(cotangent, x, *, axis):
    if type(cotangent) is ad.Zero:
        return [ad.Zero(x.aval)]
    return [jnp.broadcast_to(jnp.expand_dims(cotangent, axis), x.aval.shape)]


def _batch(leaves, axes, *, axis):
    (x,), (lane,) = leaves, axes
    x = jnp.moveaxis(x, lane, 0)
    return _sum_p.bind(x, axis=axis + 1), 0


_sum_p.def_impl(_plain)


_sum_p.def_abstract_eval(_abstract)


ad.deflinear2(_sum_p, _transpose)


batching.primitive_batchers[_sum_p] = _batch


mlir.register_lowering(_sum_p, mlir.lower_fun(_plain, multiple_results=False))


mlir.register_lowering(_sum_p, mlir.lower_fun(_own_loop, multiple_results=False), platform="cpu")


def matmul(A: jax.Array, B: jax.Array) -> jax.Array:
    """A B for small matrices (...,i,k), (...,k,j), as a fused multiply-and-sum; leading axes broadcast as numpy's."""
    A, B = (jax.lax.broadcast_to_rank(x, max(A.ndim, B.ndim)) for x in (A, B))
    return small_sum(A[..., :, :, None] * B[..., None, :, :], axis=-2)


def matvec(A: jax.Array, x: jax.Array) -> jax.Array:
    """A x for small matrices (...,i,k) and vectors (...,k)."""
    return small_sum(A * x[..., None, :])


def identity_like(x: jax.Array) -> jax.Array:
    """E (1,...,1,n,n) for vectors x (...,n), of one rank more."""
    return jnp.asarray(np.eye(x.shape[-1])[(None,) * (x.ndim - 1)], x.dtype)


def transpose(A: jax.Array) -> jax.Array:
    """The last two axes exchanged."""
    return jnp.swapaxes(A, -1, -2)


def take(x: jax.Array, index: np.ndarray, axis: int = 0) -> jax.Array:
    """x[..., index, ...] for a constant index ≥ 0 of any shape along an axis, with few operations.

    x itself where that changes nothing, a slice where it is one run, else a gather: slices one after another are fewer
    kernels still, but XLA's compiler for GPUs (jax 0.10) fails at some of their concatenations.
    """
    axis, flat = axis % x.ndim, index.reshape(-1)
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    if np.array_equal(flat, np.arange(x.shape[axis])):
        return x.reshape(shape)
    if len(flat) and np.all(np.diff(flat) == 1):
        return jax.lax.slice_in_dim(x, int(flat[0]), int(flat[-1]) + 1, axis=axis).reshape(shape)
    unique = len(np.unique(flat)) == len(flat)
    at = x.at[(slice(None),) * axis + (index,)]
    return at.get(mode="promise_in_bounds", wrap_negative_indices=False, unique_indices=unique)


def joined(parts: tuple[jax.Array, ...], places: tuple[np.ndarray, ...], axis: int = 0) -> jax.Array:
    """The array that has parts[k] at places[k] (n_k,) along an axis, which fill it: without a scatter."""
    return take(jnp.concatenate(parts, axis=axis), np.argsort(np.concatenate(places)), axis)


def computed_once(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The same arrays, behind a barrier for most of XLA's passes, which else compute them in several places.

    Fusion on a CPU is not stopped by it (jax 0.10): where bits must be those that are kept, go through a loop's carry.
    """
    return jax.lax.optimization_barrier(arrays)
