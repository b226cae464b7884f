"""Small matrices in a kernel: numpy's arrays of objects, each entry a row of lanes. And a model's links as integers."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kernels.lanes import LANES
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.precision import made_once
from pbad_jax.model.model import Topology

loop = jax.lax.fori_loop


class Tables(NamedTuple):
    """Integers of a topology. Of every dof those above it, and those beside it on its link, with offsets."""

    parent: np.ndarray  # (N,) of a link; N is the world
    link: np.ndarray  # (nv,) of a dof
    above_from: np.ndarray  # (nv+1,)
    above: np.ndarray
    beside_from: np.ndarray  # (nv+1,)
    beside: np.ndarray


@made_once
def tables(topology: Topology) -> Tables:
    """Made once."""
    n, t = topology.n_links, tree(topology)

    def offsets(wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the rows where a column is true."""
        found = [np.flatnonzero(column) for column in wanted.T]
        return np.cumsum([0, *map(len, found)]), np.concatenate([*found, [0]])

    parent = np.array([p if p >= 0 else n for p in topology.link_parent])
    return Tables(parent, t.dof_link, *offsets(t.dof_order == 1.0), *offsets(t.dof_order == 0.5))


class Forces(NamedTuple):
    """Forces at points of given links."""

    links: np.ndarray  # (c,)
    u: jax.Array  # (c,4) points in the links' frames
    force: jax.Array  # (c,3) N, times dt²


def matrix(make: Callable, *shape: int) -> np.ndarray:
    """Of rows of lanes, by their indices."""
    out = np.empty(shape, object)
    for index in np.ndindex(*shape):
        out[index] = make(*index)
    return out


def transform(T, l) -> np.ndarray:
    """Of link l, (3,4)."""
    return matrix(lambda i, k: T[l, i, k, :], 3, 4)


def vector(x, *index) -> np.ndarray:
    """The last axis of a ref before its lanes."""
    return matrix(lambda i: x[(*index, i, slice(None))], x.shape[len(index)])


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a × b, (3,) and (3,...)."""
    a, on, back = a.reshape(3, *(1,) * (b.ndim - 1)), [1, 2, 0], [2, 0, 1]
    return a[on] * b[back] - a[back] * b[on]


def full(x) -> jax.Array:
    """A row of lanes of what they may share."""
    return jnp.broadcast_to(x, (LANES,))


def put(ref, values: np.ndarray, *index) -> None:
    """ref[index, i] = values[i]; a matrix as it is, or its entries in a row."""
    as_it_is = values.ndim > 1 and len(ref.shape) == len(index) + values.ndim + 1
    for k, where in enumerate(np.ndindex(*values.shape)):
        at = where if as_it_is else (k,)
        ref[(*index, *at)] = full(jnp.asarray(values[where], ref.dtype))


def add(ref, values: np.ndarray, l) -> None:
    """values (...) to the row of link l."""
    for i, x in enumerate(values.ravel()):
        if not isinstance(x, (int, float)):  # zeros of a form are no rows of lanes
            ref[l, i] = ref[l, i, :] + full(x)


def wrench(B: np.ndarray, last: np.ndarray) -> np.ndarray:
    """(6,) of b = [B, last]: vee B and last, as math/spatial.py has it."""
    turn = matrix(lambda i: B[(i + 2) % 3, (i + 1) % 3] - B[(i + 1) % 3, (i + 2) % 3], 3)
    return np.concatenate([turn, last])


def sum_inward(parent, n: int, *refs) -> None:
    """Adds to every link's row of refs (N+1,size,LANES) those of its children, from the last link on."""

    def inward(step, _):
        l = n - 1 - step
        p = parent[l]
        for x in refs:
            loop(0, x.shape[1], lambda k, _, x=x: x.__setitem__((p, k), x[p, k, :] + x[l, k, :]), None)

    loop(0, n, inward, None)
