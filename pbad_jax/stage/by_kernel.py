"""The stage equations' residual and matrix where kernels/ makes them, for many lanes on a GPU.

Kernels take forces at points as they are; so the fields of StageTerms have there only what is no such force, and what
acts at points that only a step knows (`where`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.dynamics.point_forces import Slope, slope_of
from pbad_jax.kernels import pullback as kernel
from pbad_jax.kernels.rows import Forces
from pbad_jax.kernels.tree_matrix import Curvature, Points, tree_matrix
from pbad_jax.laws.load import Load, PointForces
from pbad_jax.model.model import Model
from pbad_jax.stage.terms import StageTerms


def fields_of(load: Load) -> Load:
    """What of a load is laid out on the links."""
    return load._replace(point_forces=tuple(p for p in load.point_forces if p.where is not None))


def coupling(load: Load) -> Load:
    """What of a load's slopes is left for JAX: of points that couple links."""
    return load._replace(point_forces=tuple(p for p in load.point_forces if p.couples))


def pullback(model: Model, t: StageTerms, A: jax.Array, name: str) -> jax.Array:
    """(m,nv) of the field A (m,N,3,4) and of the forces at points; name: "force", or "modelled", what that has more."""
    f = t.frames
    each = [kernel.pullback(model, f.T[i], f.s[i], A[i], _forces(t, i, name)) for i in range(len(A))]
    return jnp.stack(each)


def blocks(model: Model, C: jax.Array, D: jax.Array, t: StageTerms) -> jax.Array:
    """The inertial blocks less those of all points that do not couple links, (m,m,nv,nv)."""
    m, f = len(t.z), t.frames

    def block(i: int, j: int) -> jax.Array:
        curvature = Curvature(t.curving[i], _forces(t, i, "curving")) if i == j else None
        points = _points(_stage(t.load, i), D[i, j], 1.0, by_P=i == j)
        if t.end is not None and j == m - 1:
            points += _points(t.end, 1.0, t.impulse[i], by_P=True)
        return tree_matrix(model, (f.T[i], f.T[j]), (f.s[i], f.s[j]), C[i, j], curvature, points)

    return jnp.stack([jnp.stack([block(i, j) for j in range(m)]) for i in range(m)])


def _stage(load: Load, i: int) -> Load:
    return jax.tree.map(lambda x: x[i], load)


def _forces(t: StageTerms, i: int, name: str) -> list[Forces]:
    """At the points of the links that act on stage i, those of the end of the step by its weight."""
    acting = [(p, 1.0) for p in _stage(t.load, i).point_forces]
    acting += [(p, t.impulse[i]) for p in (() if t.end is None else t.end.point_forces)]
    found = []
    for p, weight in acting:
        force = getattr(p, name)
        if name == "modelled" and force is not None:
            force = force - p.force
        if name == "curving" and force is None:
            force = p.force
        if force is not None and p.where is None and p.u.size:
            u = jnp.asarray(p.u, force.dtype)
            found.append(Forces(_links(p).ravel(), u.reshape(-1, 4), (weight * force).reshape(-1, 3)))
    return found


def _points(load: Load, rate: Any, weight: Any, *, by_P: bool) -> list[Points]:
    """weight (∂f/∂P, where it is asked for, + rate ∂f/∂V) of what does not couple links."""
    alone = [p for p in load.point_forces if p.links and not p.couples]
    slopes = [(p, slope_of(p, rate, by_P=by_P)) for p in alone]
    return [_merged(p, S, weight) for p, S in slopes if S is not None]


def _merged(p: PointForces, S: Slope, weight: Any) -> Points:
    """Own points and those of the normal force that is followed, as points that forces depend on."""
    by, slopes = ([], []) if S.own is None else ([p.u], [S.own])
    if p.normal is not None and p.by_normal is not None and S.of_normal is not None:
        follows = p.by_normal[..., None, None] * S.of_normal[:, None, None]
        by, slopes = [*by, p.normal.u], [*slopes, follows]
    S_ = weight * jnp.concatenate(slopes, axis=3)
    by = [jnp.asarray(u, S_.dtype) for u in by]
    return Points(_links(p)[:, 0], jnp.asarray(p.u, S_.dtype), jnp.concatenate(by, axis=1), S_)


def _links(p: PointForces) -> np.ndarray:
    """Of every point, where they are known before a step."""
    assert isinstance(p.point_links, np.ndarray)
    return p.point_links
