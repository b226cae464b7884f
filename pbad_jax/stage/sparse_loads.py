"""What forces of many places of which few act add to the equations, on the way to a root.

A humanoid has a hundred pairs of limbs that may touch in a step, and most of the time none does. Their forces come as
Parts (laws/load.py), and the sums of a part are made only where one of its places may act in some lane: nothing is
laid out, scaled or multiplied of the others. At the root their Load has all places, so that derivatives know them.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.dynamics.point_forces import total_matrix, weighted
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.laws.force import goes_by_parts, of_force, total_load
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, Parts, field_beyond, field_of, scaled
from pbad_jax.math import loops
from pbad_jax.math.batched import cond_if_any
from pbad_jax.model.model import Model


class SparseLoads(NamedTuple):
    """Times dt²; None where no force goes by parts."""

    field: jax.Array | None = None  # (N,3,4) ∂Q/∂T, as of a Load
    curving: jax.Array | None = None  # (N,3,4) what `curving` has beyond it, see PointForces
    modelled: jax.Array | None = None  # (N,3,4) what `modelled` has beyond it
    slope: jax.Array | None = None  # (m,nv,nv) ∂/∂q of what acts `there`, at the levers of m frames `here`


def end_of_step(model: Model, at: Instant, here: Frames, there: Frames, dt) -> tuple[Load, SparseLoads]:
    """What acts once a step, times dt²: on the way to a root without what goes by parts, and that.

    Args:
        at: the end of the step. here: of the levers, leading axis m. there: at `at`, about the same origin. dt: s.
    """
    load, total = scaled(total_load(model, at, "step"), dt), SparseLoads()
    duals: list = [None] * len(model.forces)
    for k, force in enumerate(model.forces):
        if at.guide is not None and goes_by_parts(force):
            own = of_force(at, k)
            parts = force.by_parts(model, own)  # type: ignore[attr-defined]
            total = _nothing(model, here) if total.field is None else total
            total, duals[k] = _plus(model, total, parts, own, here, there, dt)
    return load._replace(dual=either(load.dual, duals)), total


def either(duals, others) -> tuple:
    """Of every force the duals that there are."""
    return tuple(a if b is None else b for a, b in zip(duals, others))


def _nothing(model: Model, here: Frames) -> SparseLoads:
    m, dtype = len(here.T), here.T.dtype
    field = jnp.zeros((model.topology.n_links, 3, 4), dtype)
    return SparseLoads(field, field, field, jnp.zeros((m, model.nv, model.nv), dtype))


def _plus(
    model: Model, total: SparseLoads, parts: Parts, at: Instant, here: Frames, there: Frames, dt
) -> tuple[SparseLoads, Any]:
    """total and those parts that may act, and the duals of all."""
    # each part has places and duals of its own
    n_links = model.topology.n_links
    assert at.guide is not None
    alone = dataclasses.replace(at, start=at.start._replace(near=None), guide=at.guide._replace(dual=None))

    def as_before(total, places, dual, idle, *_):
        del places, dual
        return total, idle

    def with_part(total, places, dual, idle, at, here, there, dt):
        del idle
        load = parts.load(places, dataclasses.replace(at, guide=at.guide._replace(dual=dual)))
        load = scaled(load, dt)
        points, slopes = list(load.point_forces), weighted(load, 1.0)
        more = SparseLoads(
            field_of(load, n_links),
            field_beyond(load, n_links, "curving"),
            field_beyond(load, n_links, "modelled"),
            jax.vmap(lambda f: total_matrix(model, f, there, points, slopes))(here),
        )
        return jax.tree.map(jnp.add, total, more), load.dual

    # one after the other; one in which no lane acts costs nothing
    def one(total, given):
        act, *own = given
        return cond_if_any(act, as_before, with_part, total, *own, alone, here, there, dt)

    total, duals = loops.scan(one, total, (parts.act, parts.places, parts.duals, parts.idle))
    return total, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), duals)
