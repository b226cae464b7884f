"""Forces that follow a normal force, at points of their own.

With N(P, V) the normal force by its own k points and F_j = N φ_j at others, ∂F_j/∂P = φ_j ∂N/∂P: the matrix of a
contact with friction is not symmetric.
"""

from typing import NamedTuple

import jax
import numpy as np

from pbad_jax.contact.torsion import Turning
from pbad_jax.laws.load import NormalForce, PointForces
from pbad_jax.laws.one_sided import OneSided


class Following(NamedTuple):
    """Forces at p points of b bodies, p/b on each, that follow a normal force; see PointForces."""

    u: jax.Array  # (c,p,4)
    force: jax.Array  # (c,p,3) N
    by_normal: jax.Array  # (c,p,3) ∂F/∂N
    by_V: jax.Array  # (c,p,3,p,3) N s/m, by the velocities of their own points
    modelled: jax.Array | None  # (c,p,3) N
    curving: jax.Array | None  # (c,p,3) N


def turning_under(t: Turning, N: OneSided, trust: jax.Array | float) -> Following:
    """Friction against turning under a normal force (c,), led with it."""
    times = lambda N, x: N.reshape(-1, *(1,) * (x.ndim - 1)) * x  # noqa: E731
    if N.modelled is None or N.curving is None or t.curving is None:
        return Following(t.u, times(N.force, t.force), t.force, times(N.force, t.by_V), None, None)
    modelled = times(N.curving + trust * (N.modelled - N.curving), t.force)
    by_V, curving = times(N.curving, t.by_V), times(N.curving, t.curving)
    return Following(t.u, times(N.force, t.force), trust * t.force, by_V, modelled, curving)


def followers(normal: PointForces, others: list[Following], by_P: jax.Array, by_V: jax.Array, bodies: slice):
    """What follows the normal forces, as PointForces.

    Args:
        normal: the normal forces at their own k points. others: what follows them.
        by_P, by_V: (c,k,3) the gradients of the normal force by these. bodies: of the k points one on each body.
    """
    N = NormalForce(normal.links, normal.u, by_P, by_V, normal.where)
    ends = np.arange(normal.u.shape[1])[bodies]

    def one(x: Following) -> PointForces:
        which = np.repeat(ends, x.u.shape[1] // len(ends))
        links = tuple(l if isinstance(l, int) else tuple(l[i] for i in which) for l in normal.links)
        where = None if normal.where is None else normal.where[:, which]
        return PointForces(links, x.u, x.force, None, x.by_V, x.modelled, x.curving, where, x.by_normal, N)

    return tuple(map(one, others))
