"""Constant index tables of a topology, which every sum over the tree is made of."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.math.precision import made_once
from pbad_jax.math.small import joined, take
from pbad_jax.model import joints
from pbad_jax.model.model import Model, Topology


class Tree(NamedTuple):
    """Constant index tables of a topology, numpy; -1 is replaced by N, a padded world link."""

    jumps: tuple[np.ndarray, ...]  # (N,) the 2^k-th ancestor, for each k
    above: np.ndarray  # (N,N) bool, above[i,j]: i is j or an ancestor of j
    roots: np.ndarray  # (trees,) links without a parent
    of_root: np.ndarray  # (trees,N) bool, the links of each tree
    dof_link: np.ndarray  # (nv,) link of each degree of freedom
    dof_slide: np.ndarray  # (nv,) bool
    dof_ball: np.ndarray  # (nv,) -1, or which of a ball's three it is
    dof_order: np.ndarray  # (nv,nv) 1 where x lies above y, 1/2 on the same link, else 0
    dof_above_link: np.ndarray  # (nv,N) 1 where the dof moves the link
    ancestors: np.ndarray  # (N,depth) i, parent(i), ... padded with N
    link_q: np.ndarray  # (N,) index of a hinge's or slide's q, else 0
    hinge: np.ndarray  # (N,) bool
    slide: np.ndarray  # (N,) bool
    balls: np.ndarray  # links that are balls
    no_balls: np.ndarray  # the other links
    ball_q: np.ndarray  # (nball,4) indices in q
    ball_v: np.ndarray  # (nball,3) indices in v
    scalar_links: np.ndarray  # links that are hinges or slides
    scalar_q: np.ndarray  # indices in q of hinges and slides
    scalar_v: np.ndarray  # and in v


@made_once
def tree(topology: Topology) -> Tree:
    """The index tables of a topology; made once."""
    # ancestors by doubling: 1, 2, 4, ... links up, until all are at the world
    n = topology.n_links
    parent = np.array([p if p >= 0 else n for p in topology.link_parent] + [n])
    jumps, jump = [], parent.copy()
    while np.any(jump[:n] != n):
        jumps.append(jump[:n].copy())
        jump = jump[jump]

    # the chain of links from each to its root, which says what lies above what
    above = np.zeros((n, n), bool)
    chains = []
    for i in range(n):
        chain, j = [], i
        while j != n:
            above[j, i] = True
            chain.append(j)
            j = parent[j]
        chains.append(chain)
    depth = max(map(len, chains))

    # the link of each degree of freedom, in the order of v
    kinds = np.array(topology.link_type)
    dofs = [(i, k) for i, t in enumerate(kinds) for k in range(joints.PRIMITIVES[t])]
    dofs.sort(key=lambda d: topology.link_v[d[0]] + d[1])
    link = np.array([d[0] for d in dofs], int)
    same = link[:, None] == link[None, :]

    # links whose q is a quaternion, and links whose q is one number
    balls = np.flatnonzero(kinds == joints.BALL)
    scalar = np.flatnonzero((kinds == joints.HINGE) | (kinds == joints.SLIDE))
    link_q, link_v = np.array(topology.link_q), np.array(topology.link_v)

    # what lies above what for degrees of freedom follows from their links
    return Tree(
        jumps=tuple(jumps),
        above=above,
        roots=np.flatnonzero(parent[:n] == n),
        of_root=above[parent[:n] == n],
        dof_link=link,
        dof_slide=kinds[link] == joints.SLIDE,
        dof_ball=np.array([k if kinds[i] == joints.BALL else -1 for i, k in dofs], int),
        dof_order=np.where(same, 0.5, above[link][:, link].astype(float)),
        dof_above_link=above[link].astype(float),
        ancestors=np.array([c + [n] * (depth - len(c)) for c in chains]),
        link_q=np.where((kinds == joints.HINGE) | (kinds == joints.SLIDE), link_q, 0),
        hinge=kinds == joints.HINGE,
        slide=kinds == joints.SLIDE,
        balls=balls,
        no_balls=np.flatnonzero(kinds != joints.BALL),
        ball_q=link_q[balls][:, None] + np.arange(4),
        ball_v=link_v[balls][:, None] + np.arange(3),
        scalar_links=scalar,
        scalar_q=link_q[scalar],
        scalar_v=link_v[scalar],
    )


# --- what hinges and slides have, and what balls have ---------------------------------------------------------


def on_dofs(model: Model, scalar: jax.Array, balls: Callable[[], jax.Array]) -> jax.Array:
    """(nv,) of hinges and slides (n,) and of balls (nball,3), which are asked for only where there are some."""
    t = tree(model.topology)
    if not t.balls.size:
        return scalar
    return _with_balls(scalar, t.scalar_v, balls(), t.ball_v)


def on_q(model: Model, scalar: jax.Array, balls: Callable[[], jax.Array]) -> jax.Array:
    """(nq,) of hinges and slides (n,) and of balls (nball,4), which are asked for only where there are some."""
    t = tree(model.topology)
    if not t.balls.size:
        return scalar
    return _with_balls(scalar, t.scalar_q, balls(), t.ball_q)


def change_balls(model: Model, x: jax.Array, f: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """x (...,nv) with f of the balls' entries (...,nball,3) in their place."""
    t = tree(model.topology)
    if not t.balls.size:
        return x
    return _with_balls(take(x, t.scalar_v, -1), t.scalar_v, f(take(x, t.ball_v, -1)), t.ball_v)


def _with_balls(scalar: jax.Array, scalar_at: np.ndarray, balls: jax.Array, balls_at: np.ndarray) -> jax.Array:
    """Both where they belong along the last axis, in the precision of what hinges and slides have."""
    balls = jnp.broadcast_to(balls, (*scalar.shape[:-1], *balls_at.shape)).reshape(*scalar.shape[:-1], -1)
    return joined((scalar, balls.astype(scalar.dtype)), (scalar_at, balls_at.reshape(-1)), -1)


def ball_blocks(model: Model, diagonal: jax.Array, blocks: Callable[[], jax.Array]) -> jax.Array:
    """A diagonal (nv,) where there are no balls, else a matrix (nv,nv) with blocks (nball,3,3) on them."""
    balls = tree(model.topology).ball_v
    if not balls.size:
        return diagonal
    return jnp.diag(diagonal).at[balls[:, :, None], balls[:, None, :]].set(blocks())
