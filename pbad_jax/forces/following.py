"""Forces that follow a normal force, and that: one cluster of points, so that the slopes of either by both are there.

With N(P, V) the normal force by its own k points and F_j = N φ_j at others, ∂F_j/∂P = φ_j ∂N/∂P: the matrix of a
contact with friction is not symmetric.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.forces.force import PointForces
from pbad_jax.forces.one_sided import OneSided
from pbad_jax.forces.turning import Turning


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


def joined(
    normal: PointForces, others: list[Following], by_P: jax.Array, by_V: jax.Array, bodies: slice
) -> PointForces:
    """One cluster of all points.

    Args:
        normal: the normal forces at their own k points. others: what follows them.
        by_P, by_V: (c,k,3) the gradients of the normal force by these.
        bodies: of the k points one on each body.
    """
    assert normal.df_dP is not None and normal.df_dV is not None
    all_of = lambda name: jnp.concatenate([getattr(x, name) for x in (normal, *others)], axis=1)  # noqa: E731
    k, sizes = normal.u.shape[1], [x.u.shape[1] for x in others]

    # all by the points of the normal force, and what follows it by its own velocities too
    def by_first(own: jax.Array, gradient: jax.Array) -> jax.Array:
        rest = [x.by_normal[:, :, :, None, None] * gradient[:, None, None] for x in others]
        columns = ((0, 0), (0, 0), (0, 0), (0, sum(sizes)), (0, 0))
        return jnp.pad(jnp.concatenate([own, *rest], axis=1), columns)

    df_dV = by_first(normal.df_dV, by_V)
    for x, before in zip(others, k + np.cumsum([0, *sizes])):
        room = (int(before), k + sum(sizes) - int(before) - x.u.shape[1])
        df_dV = df_dV + jnp.pad(x.by_V, ((0, 0), room, (0, 0), room, (0, 0)))

    # on the links of the bodies
    ends = np.arange(k)[bodies]
    which = np.concatenate([np.arange(k), *(np.repeat(ends, p // len(ends)) for p in sizes)])
    known = tuple(l if isinstance(l, int) else tuple(l[i] for i in which) for l in normal.links)
    where = None if normal.where is None else normal.where[:, which]
    led_to = (None, None) if normal.modelled is None else (all_of("modelled"), all_of("curving"))
    return PointForces(known, all_of("u"), all_of("force"), by_first(normal.df_dP, by_P), df_dV, *led_to, where)
