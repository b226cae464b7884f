"""Friction as MuJoCo's pyramids have it: four ends with an inertia, along the edges of a cone.

At a depth δ, sliding with w along an axis t across the normal n, an edge pushes along n ∓ μ t with

    F = (k δ + d (δ̇ ± μ w) + m (δ̈ ± μ ẇ))₊,

of two axes, each ±. Together they are the normal force; by their differences they slow what slides, no sooner than
their inertia lets them, and by no more than μ of what they push with. What slides is so pushed away too. There is no
law of friction beside them, and no stick speed. In a step with the slip σ = ∫w it is the law of soft_end.py,

    F = κ (ℓ − max(0, x̂))₊,   ℓ = δ ± μ c σ,   x₀ = δ₀,   ẋ₀ = δ̇₀ ± μ w₀,

where c is less than 1 since the spring acts on δ alone (`Motion.drawn`). As in MuJoCo, what was apart when the step
began does not rub in it: its edges all push along n.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.contact.gap import Gap, depth_at, links_of, points_of, unit
from pbad_jax.geometry.surfaces import safe_norm
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import PointForces, place
from pbad_jax.laws.one_sided import OneSided, Tangent, expected_force, led, one_sided, spring
from pbad_jax.laws.soft_end import InStep, SoftEnd, along_step, closing, motion
from pbad_jax.math.small import matvec, small_sum

SIGNS = np.array([[1.0, -1.0, 1.0, -1.0]])  # of the edges, two along each axis
EDGES = SIGNS.size


class Edges(NamedTuple):
    """The edges of c places in a step."""

    links: np.ndarray | jax.Array  # (c,b)
    u: jax.Array  # (c,b,4) where the bodies touch
    n: jax.Array  # (c,3) unit normals
    t: jax.Array  # (c,4,b,3) ± μ t, of the first body against the second
    drawn: jax.Array  # (c,1) c
    step: InStep  # (c,4)


class Pushed(NamedTuple):
    """What the edges push with."""

    points: PointForces  # on those of the gap, and on those that touch
    normal: OneSided  # all edges of a place together, each (c,)
    by_P: jax.Array  # (c,k+b,3) N/m, how that follows the points
    tangent: Tangent | None  # (c,4), the dual


def pushed(gap: Gap, friction: jax.Array, end: SoftEnd, at: Instant) -> Pushed:
    """The forces of all edges; μ (c,), and the ends (c,) of all edges of a place together."""
    edges = _edges(gap, friction, end, at)
    law, still = edges.step.law, jnp.zeros_like(edges.step.held)
    d, n, curvature = gap.slopes(points_of(gap, at.T), at)
    depth = gap.reach - d
    excess = _excess(edges, depth, at.T, at)
    if at.guide is None:
        F = one_sided(law, excess, still)
    else:
        expected = _excess(edges, gap.reach - gap.distance(points_of(gap, at.guide.T), at), at.guide.T, at)
        F = led(law, excess, still, expected, at.guide.dual[0], at.guide.rate, 1 / _mobility(edges, at))
    F = F.less(edges.step.held)

    # the directions g (c,4,3(k+b)) in which they push, and in which their lengths grow less
    rows, normal = (*still.shape, -1), jnp.broadcast_to(n[:, None], (*still.shape, *n.shape[1:]))
    g, less = (
        jnp.concatenate([normal, -x * edges.t], axis=2).reshape(rows) for x in (1.0, edges.drawn[..., None, None])
    )

    # how they follow the points
    by_depth, through = F.by_depth[..., None], small_sum(F.force if F.curving is None else F.curving)
    slopes, own = -small_sum((by_depth * g)[..., None] * less[:, :, None], axis=1), curvature.shape[-1]
    slopes = slopes.at[:, :own, :own].add(through[:, None, None] * curvature)

    # on the points of the gap, and on those that touch
    def on_points(f: jax.Array) -> jax.Array:
        return small_sum(f[..., None] * g, axis=1).reshape(len(g), -1, 3)

    force, slopes = on_points(F.force), slopes.reshape(len(g), -1, 3, g.shape[-1] // 3, 3)
    led_to = [None if f is None else on_points(f) for f in (F.modelled, F.curving)]
    links, u, where = _with_touching(gap, edges)
    points = PointForces(links, u, force, slopes, None, led_to[0], led_to[1], where)
    normal_force, by_P = _together(F, less)
    return Pushed(points, normal_force, by_P.reshape(force.shape), F.tangent)


def _together(F: OneSided, less: jax.Array) -> tuple[OneSided, jax.Array]:
    """All edges of a place as one normal force (c,), and how that follows the points (c,3(k+b)), for what turns.

    That feels nothing where they pull, as they may at the end of a step.
    """

    def total(f: jax.Array | None) -> jax.Array | None:
        return None if f is None else jnp.maximum(small_sum(f), 0.0)

    N = total(F.force)
    assert N is not None
    by_depth = (N > 0)[:, None] * F.by_depth
    by_P = -small_sum(by_depth[..., None] * less, axis=1)
    return OneSided(N, small_sum(by_depth), jnp.zeros_like(N), total(F.modelled), total(F.curving)), by_P


def expected_push(gap: Gap, friction: jax.Array, end: SoftEnd, at: Instant) -> jax.Array:
    """What the linear model expects of all edges of a place together, (c,) N."""
    assert at.guide is not None
    edges = _edges(gap, friction, end, at)
    here, expected = (
        _excess(edges, gap.reach - gap.distance(points_of(gap, T), at), T, at) for T in (at.T, at.guide.T)
    )
    return small_sum(expected_force(edges.step.law, here, expected, at.guide.dual[0]) + edges.step.held)


def _edges(gap: Gap, friction: jax.Array, end: SoftEnd, at: Instant) -> Edges:
    """As they are at an instant; for a blow at the end of a step those that pushed in it."""
    within = at if at.before is None else at.before
    touch, links = gap.touching(within), links_of(gap)[:, gap.bodies]
    (depth, rate), n = depth_at(gap, within.start, at), unit(touch.n)

    # of the axes, as MuJoCo has them, the first is along y, or z where that is the normal
    along = jnp.where(jnp.abs(n[:, 1:2]) < 0.5, *jnp.eye(3, dtype=n.dtype)[1:, None])
    first = unit(along - small_sum(n * along, keepdims=True) * n)
    axes = jnp.repeat(jnp.stack([first, jnp.cross(n, first)], axis=1), 2, axis=1)
    sides = jnp.asarray([1.0, -1.0], n.dtype)[None, None, : touch.u.shape[1], None]
    mu = jnp.where(depth < 0, 0.0, friction * safe_norm(touch.n))
    t = (jnp.asarray(SIGNS, n.dtype) * mu[:, None])[..., None, None] * sides * axes[:, :, None]

    # an equal part of the ends on each
    each = SoftEnd(end.stiffness[:, None] / EDGES, end.relaxation[:, None], end.inertia[:, None] / EDGES)
    by = motion(each, depth[:, None], rate[:, None] + _slid(links, touch.u, t, within.start.V), within)
    edges = Edges(links, touch.u, n, t, by.drawn, along_step(each, by))
    if at.before is None:
        return edges
    depth, rate = depth_at(gap, at.start, at)
    F = spring(edges.step.law, _excess(edges, depth, within.T, within))[1]
    rate = rate[:, None] + _slid(links, touch.u, t, at.start.V)
    drawn = motion(each, depth[:, None], rate, at).drawn
    return edges._replace(drawn=drawn, step=closing(each, by, F, depth[:, None], rate, at))


def _excess(edges: Edges, depth: jax.Array, T: jax.Array, at: Instant) -> jax.Array:
    """ℓ (c,4) m beyond where the ends have given way, at the depths (c,) of links at T."""
    slip = _slid(edges.links, edges.u, edges.t, T - at.start.T)
    return depth[:, None] + edges.drawn * slip - edges.step.given_way


def _slid(links: np.ndarray | jax.Array, u: jax.Array, t: jax.Array, moved: jax.Array) -> jax.Array:
    """(c,4) along ± μ t, of links that have moved by T − T' or move with V."""
    return small_sum(small_sum(t * place(moved, links, u)[:, None]))


def _with_touching(gap: Gap, edges: Edges) -> tuple[tuple, jax.Array, jax.Array | None]:
    """Links, u and where of the points of a gap, and of those that touch after them."""
    which = np.arange(gap.u.shape[1])[gap.bodies]
    links = tuple(l if isinstance(l, int) else (*l, *(l[i] for i in which)) for l in gap.links)
    where = None if gap.where is None else jnp.concatenate([gap.where, gap.where[:, gap.bodies]], axis=1)
    return links, jnp.concatenate([gap.u, edges.u], axis=1), where


def _mobility(edges: Edges, at: Instant) -> jax.Array:
    """(c,4) 1/kg: how easily the bodies by themselves are pushed along the edges."""
    assert at.guide is not None
    lever, total = place(at.start.T, edges.links, edges.u), jnp.zeros_like(edges.step.held)
    for b, side in zip(range(edges.u.shape[1]), (1.0, -1.0)):
        own, push = edges.links[:, b], side * edges.n[:, None] - edges.t[:, :, b]
        wrench = jnp.concatenate([jnp.cross((lever[:, b] - at.guide.origin[own])[:, None], push), push], axis=-1)
        total = total + small_sum(wrench * matvec(at.guide.mobility[own][:, None], wrench))
    return total
