"""Trees that turn freely as a whole, and the point about which they do.

Such a tree begins with a ball: alone, as a top, which turns about the ball's anchor; or below three slides, as a free
joint has them, which turns about the tree's centre of mass.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.precision import made_once
from pbad_jax.math.small import matmul, matvec, transpose
from pbad_jax.model import joints
from pbad_jax.model.model import Model, Topology


class Turning(NamedTuple):
    """The k trees that turn freely, numpy."""

    balls: np.ndarray  # (k,) which of the balls each begins with
    links: np.ndarray  # (k,) its link
    dofs: np.ndarray  # (k,3) its indices in v
    floats: np.ndarray  # (k,) bool, below three slides
    of_tree: np.ndarray  # (k,N) 1 for the links of the tree


@made_once
def turning(topology: Topology) -> Turning:
    """The trees of a topology that turn freely; made once."""
    t, slide = tree(topology), np.array(topology.link_type) == joints.SLIDE
    balls, floats, of_tree = [], [], []
    for k, ball in enumerate(t.balls):
        # above it nothing or three slides, and beside these and what it carries nothing in its tree
        above = t.above[:, ball].copy()
        above[ball] = False
        whole = t.of_root[t.of_root[:, ball]][0]
        if above.sum() in (0, 3) and slide[above].all() and np.array_equal(whole, above | t.above[ball]):
            balls.append(k)
            floats.append(above.any())
            of_tree.append(whole)
    k = np.array(balls, int)
    trees = np.array(of_tree, float).reshape(len(k), topology.n_links)
    return Turning(k, t.balls[k], t.ball_v[k], np.array(floats, bool), trees)


def centres(model: Model, T: jax.Array) -> jax.Array:
    """The point that each turns about, (k,3) m: the centre of mass of its tree, or its ball's anchor."""
    t = turning(model.topology)
    anchor = matvec(T[t.links, :, :3], model.anchor[t.links]) + T[t.links, :, 3]
    return jnp.where(t.floats[:, None], transforms.origins(model, T)[t.links], anchor)


def locked_inertia(model: Model, T: jax.Array) -> jax.Array:
    """The inertia (k,3,3) kg m² of each tree about its centre, its joints held, in the axes of its ball's link."""
    t = turning(model.topology)

    def one(centre, R, own):
        from_centre = matmul(transpose(R)[None], transforms.shift(T, centre))
        S = matmul(matmul(from_centre, model.second_moment), transpose(from_centre))
        total = jnp.tensordot(own, S, axes=1)
        return jnp.trace(total) * jnp.eye(3, dtype=T.dtype) - total

    return jax.vmap(one)(centres(model, T), T[t.links, :, :3], jnp.asarray(t.of_tree, T.dtype))


def straightened(model: Model, A: jax.Array) -> jax.Array:
    """A field A (N,3,4) less its mean over the masses of each tree that floats: its centre of mass is then at rest."""
    t = turning(model.topology)
    if not t.floats.any():
        return A
    floats = jnp.asarray(t.of_tree[t.floats].sum(axis=0), A.dtype)
    return transforms.shift(A, floats[:, None] * transforms.origins(model, A))
