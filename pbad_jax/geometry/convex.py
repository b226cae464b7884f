"""Convex shapes and how far they are apart: one description for all kinds, one program for all pairs.

A shape is a core, the convex hull of at most V points plus an ellipsoid with semi-axes S (both may be flat), and a
radius r about it: a sphere is a point, a capsule a segment, a cylinder a segment plus a disk. All that is asked of it
is its support in a direction m, the point of the core that is farthest that way,

    x(m) = argmax over the points of v · m, plus S² m/|S m|.

Shapes A and B are separated along a unit n by s(n) = n · (x_A(−n) − x_B(n)) − r_A − r_B, and the signed distance of
both is the largest s. It is found by the algorithm of Gilbert, Johnson and Keerthi, which wants them apart: A is first
moved away along a good n by L, which changes n, but never for a worse one, because the n' that it finds has the
largest s(n') + L n · n'. At the best n nothing changes. Where shapes overlap deeply there may be several such n, and
the one that is found need not be that of the least depth (one-off: in 4 of 1,500 random poses of shapes that overlap).

Frames: all is seen from B, where A is at x -> R x + t.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.math import loops
from pbad_jax.math.small import matmul, matvec, small_sum

ITERATIONS = 40
APART = 0.02  # of the sizes: how far A is moved from B before a search
ROUNDS = 3
POLISHED = 4
FLAT = 1e3  # roundings, of a triangle
LYING = 2e-3  # rad between a normal and the axis of a disk below which that is the normal
TINY = 1e-12  # of the size, below which a width is none
SMALL = 1e-4  # of the size, where a direction along a flat ellipsoid ends


class Convex(NamedTuple):
    """A shape in its own frame; leading axes as one likes."""

    points: jax.Array  # (V,3) m
    axes: jax.Array  # (3,) m, S
    radius: jax.Array  # () m
    size: jax.Array  # () m, of a sphere about the origin that holds it


class Simplex(NamedTuple):
    """At most four corners of A and of B that a search has left, without what the ellipsoids add to them."""

    a: jax.Array  # (4,3) m in A
    b: jax.Array  # (4,3) m in B
    used: jax.Array  # (4,) bool


class Meeting(NamedTuple):
    """Where two cores are nearest to one another."""

    normal: jax.Array  # (3,) from B to A, in B
    on_a: jax.Array  # (3,) m in A
    on_b: jax.Array  # (3,) m in B


SUBSETS = [s for k in (1, 2, 3) for s in itertools.combinations(range(4), k)]
ABOUT = np.array([way for way in itertools.product((-1, 0, 1), repeat=3) if any(way)], float)
ABOUT /= np.linalg.norm(ABOUT, axis=1)[:, None]
MEMBER = np.array([[x in s for x in range(4)] for s in SUBSETS])
PAIRS, TRIPLES = (np.array([s for s in SUBSETS if len(s) == k]) for k in (2, 3))


# --- one shape -------------------------------------------------------------------------------------------


def corner(shape: Convex, m: jax.Array) -> jax.Array:
    """The point (3,) m of the polyhedron that is farthest along m."""
    return shape.points[jnp.argmax(small_sum(shape.points * m[None]))]


def rounding(shape: Convex, m: jax.Array) -> jax.Array:
    """S² m/|S m|, (3,) m; none along a flat axis."""
    return shape.axes**2 * m / _stretch(shape, m)


def _stretch(shape: Convex, m: jax.Array) -> jax.Array:
    return jnp.sqrt(small_sum((shape.axes * m) ** 2) + (SMALL * shape.size) ** 2)


def curvature(shape: Convex, m: jax.Array) -> jax.Array:
    """∂x/∂m (3,3) m."""
    x = rounding(shape, m)
    return (jnp.diag(shape.axes**2) - x[:, None] * x[None, :]) / _stretch(shape, m)


def rolls_about(shape: Convex, m: jax.Array) -> jax.Array:
    """() m, how far inside the point lies about which a core rolls: at the mean radius of curvature, of a disk as far
    as its axis where it stands upright, and nowhere where it lies.
    """
    widest = jnp.max(shape.axes)
    disk = small_sum((shape.axes * m) ** 2) / jnp.where(widest > 0, widest, 1.0)
    return jnp.where(jnp.min(shape.axes) > 0, 0.5 * jnp.trace(curvature(shape, m)), disk)


# --- two of them -----------------------------------------------------------------------------------------


def separation(A: Convex, B: Convex, R: jax.Array, t: jax.Array, n: jax.Array) -> jax.Array:
    """s(n), () m: at most the signed distance."""
    m = -matvec(R.T, n)
    apart = small_sum(n * t) - small_sum(m * corner(A, m)) - small_sum(n * corner(B, n))
    return apart - _width(A, m) - _width(B, n)


def _width(shape: Convex, m: jax.Array) -> jax.Array:
    """|S m| + r, m."""
    return jnp.sqrt(small_sum((shape.axes * m) ** 2) + (TINY * shape.size) ** 2) + shape.radius


def extent(shape: Convex, m: jax.Array) -> jax.Array:
    """() m along m (3,) unit."""
    return small_sum(m * (corner(shape, m) - corner(shape, -m))) + 2 * _width(shape, m)


def best_axis(A: Convex, B: Convex, R: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best of the axes of both and of the line of centres: n (3,) and s(n)."""
    length = jnp.sqrt(small_sum(t * t))
    across = jnp.where(length > 0, t / jnp.where(length > 0, length, 1.0), jnp.asarray([0.0, 0.0, 1.0], t.dtype))
    E = jnp.eye(3, dtype=t.dtype)
    return _best(A, B, R, t, jnp.concatenate([E, -E, R.T, -R.T, across[None]]))


def _best(A: Convex, B: Convex, R: jax.Array, t: jax.Array, ways: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of n (k,3) that with the largest s(n)."""
    s = jax.vmap(lambda n: separation(A, B, R, t, n))(ways)
    return ways[jnp.argmax(s)], jnp.max(s)


def _begun(A: Convex, B: Convex, R: jax.Array, t: jax.Array) -> jax.Array:
    """n (3,) to begin a search from. Where shapes overlap, s(n) has several maxima: so besides the axes those across
    one of each, as for edges of boxes, and all about.
    """
    E, about = jnp.eye(3, dtype=t.dtype), jnp.asarray(ABOUT, t.dtype)
    edges = jnp.cross(E[:, None], R.T[None]).reshape(9, 3)
    length = jnp.sqrt(small_sum(edges * edges))[:, None]
    edges = jnp.where(length > 1e-3, edges / jnp.where(length > 0, length, 1.0), E[2])
    n, s = best_axis(A, B, R, t)
    other, better = _best(A, B, R, t, jnp.concatenate([edges, -edges, about, matmul(about, R.T)]))
    return jnp.where(better > s, other, n)


def search(A: Convex, B: Convex, R: jax.Array, t: jax.Array) -> tuple[jax.Array, Simplex, jax.Array]:
    """The n (3,) of the largest s(n), what holds the cores where they meet, and L () m. It has no derivatives."""

    def once(_, found):
        n = found[0]
        far = away(A, B, R, t, n)
        simplex, v = gjk(A, B, R, t + far * n, n)
        return v / jnp.sqrt(small_sum(v * v)), simplex, far

    none = Simplex(jnp.zeros((4, 3), t.dtype), jnp.zeros((4, 3), t.dtype), jnp.zeros(4, bool))
    begun = (_begun(A, B, R, t), none, jnp.zeros((), t.dtype))
    n, simplex, far = loops.fori_loop(0, ROUNDS, once, begun)

    return polished(A, B, R, t, simplex, far, jnp.zeros_like(t), n), simplex, far


def polished(A, B, R, t, found: Simplex, far: jax.Array, moved: jax.Array, n: jax.Array) -> jax.Array:
    """n (3,) of a search after some of Newton's steps, which round shapes need; no derivatives. See `meeting`."""

    def once(_, n):
        other = _newton(A, B, R, t, found, far, moved, n)[0]
        better = separation(A, B, R, t + moved, other) > separation(A, B, R, t + moved, n)
        return jnp.where(better, other, n)

    return loops.fori_loop(0, POLISHED, once, n)


def away(A: Convex, B: Convex, R: jax.Array, t: jax.Array, n: jax.Array) -> jax.Array:
    """L () m, by which A has to move along n for the cores to be apart."""
    apart = separation(A, B, R, t, n) + A.radius + B.radius
    return jnp.maximum(APART * (A.size + B.size) - apart, 0.0)


def gjk(A: Convex, B: Convex, R: jax.Array, t: jax.Array, n: jax.Array) -> tuple[Simplex, jax.Array]:
    """Where two cores that are apart are nearest to one another, from a direction n; and the vector (3,) m between."""

    # the point of A − B that is farthest against v, and the corners that it is made of
    def farthest(v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        m = -matvec(R.T, v)
        a, b = corner(A, m), corner(B, v)
        length = jnp.sqrt(small_sum(v * v))
        return a, b, matvec(R, a + rounding(A, m / length)) + t - b - rounding(B, v / length)

    def better(s):
        # the new point takes a place that is free
        simplex, w, v, _, k = s
        a, b, new = farthest(v)
        slot = (jnp.arange(4) == jnp.argmin(simplex.used))[:, None]
        a, b, after = (jnp.where(slot, x[None], y) for x, y in ((a, simplex.a), (b, simplex.b), (new, w)))

        # the nearest point of the hull, and whether more than rounding can be gained, and something is
        nearer, weights = _nearest(after, simplex.used | slot[:, 0])
        square, scale = small_sum(v * v), jnp.maximum(small_sum(v * v), small_sum(new * new))
        on = square - small_sum(v * new) > 4 * jnp.finfo(v.dtype).eps * scale
        on &= small_sum(nearer * nearer) < square

        # corners without weight are dropped; where nothing is gained all stays as it is
        best = (Simplex(a, b, weights > 0), after, nearer)
        kept = jax.tree.map(lambda x, y: jnp.where(on, x, y), best, (simplex, w, v))
        return *kept, on, k + 1

    # from one point on, as long as something is gained
    a, b, w = farthest(n)
    first = Simplex(jnp.broadcast_to(a, (4, 3)), jnp.broadcast_to(b, (4, 3)), jnp.arange(4) == 0)
    start = (first, jnp.broadcast_to(w, (4, 3)), w, jnp.ones((), bool), 0)
    simplex, _, v, _, _ = loops.while_loop(lambda s: s[3] & (s[4] < ITERATIONS), better, start)
    return simplex, v


def meeting(
    A: Convex, B: Convex, R: jax.Array, t: jax.Array, found: Simplex, far: jax.Array, moved: jax.Array, n: jax.Array
) -> Meeting:
    """What a search has found, as a function of R and t, with the derivatives of n and of the points.

    Args:
        found, n: of a search, where A had been moved by `far` () m along the n to be found and by `moved` (3,) m.
    """
    n, weights = _newton(A, B, R, t, found, far, moved, n)
    (flat_a, axis_a), (flat_b, axis_b) = _lying(A, -matvec(R.T, n)), _lying(B, n)
    n = jnp.where(flat_a, -matvec(R, axis_a), jnp.where(flat_b, axis_b, n))
    m = -matvec(R.T, n)
    on_a = small_sum(weights[:, None] * found.a, axis=0) + rounding(A, m)
    on_b = small_sum(weights[:, None] * found.b, axis=0) + rounding(B, n)
    return Meeting(n, on_a, on_b)


def _lying(shape: Convex, m: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether a shape touches along m with a flat side of a disk, and the normal (3,) of that side."""
    m, axes = jax.lax.stop_gradient((m, shape.axes))
    widest = jnp.max(axes)
    flat = (jnp.min(axes) == 0) & (small_sum((axes * m) ** 2) < (LYING * widest) ** 2)
    return flat, jnp.where(jnp.arange(3) == jnp.argmin(axes), jnp.sign(m), 0.0)


def _newton(A, B, R, t, found: Simplex, far, moved, n) -> tuple[jax.Array, jax.Array]:
    """One step of Newton's method for n = F(W(n)), W what is between the corners when their ellipsoids add what they
    do at n; and the weights (4,) of the nearest point. With n a root given, n as a function of R and t.

    F is the direction of the nearest point v of W. Where all of it moves by w, v moves by w less its part along W.
    """
    # n as it was found is a number; how it follows R and t comes from the step alone
    given = jax.lax.stop_gradient(n)

    # W: what is between the corners, with what the ellipsoids add to them at n
    def between(n: jax.Array) -> jax.Array:
        shift = t + moved + far * n + matvec(R, rounding(A, -matvec(R.T, n))) - rounding(B, n)
        return matvec(R[None], found.a) + shift[None] - found.b

    # F, the direction of the nearest point; a corner that is there twice counts once
    W = between(given)
    used = found.used & ~_repeated(jax.lax.stop_gradient(W), found.used)
    v, weights = _nearest(W, used)
    length = jnp.sqrt(small_sum(v * v))
    F = v / length

    # M = E − ∂F/∂n: with n W moves by L E − C, and F by the part of that across v and the edges, over |v|
    frozen = jax.lax.stop_gradient
    E = jnp.eye(3, dtype=n.dtype)
    C = matmul(matmul(R, curvature(A, -matvec(R.T, given))), R.T) + curvature(B, given)
    across = _free(frozen(W), frozen(weights), frozen(F)) / length
    M = frozen(E - matmul(across, far * E - C))

    # Newton's step, whose derivative is that of the root; weights of the nearest point there
    n = given + _solve3(M, F - given)
    n = n / jnp.sqrt(small_sum(n * n))
    return n, _nearest(between(n), used, frozen(weights))[1]


def _repeated(W: jax.Array, used: jax.Array) -> jax.Array:
    """(4,) bool: whether a used point before this one is the same."""
    same = jnp.all(W[:, None] == W[None, :], axis=-1) & used[None, :]
    return jnp.any(same & (np.arange(4)[None, :] < np.arange(4)[:, None]), axis=1)


def _free(W: jax.Array, weights: jax.Array, n: jax.Array) -> jax.Array:
    """(3,3) the projection across n and across all edges of the points with weights."""
    E, on = jnp.eye(3, dtype=n.dtype), weights > 0
    first = W[jnp.argmax(on)]
    last = W[3 - jnp.argmax(on[::-1])]
    e = last - first
    e = e / jnp.sqrt(jnp.maximum(small_sum(e * e), jnp.finfo(e.dtype).tiny))
    count = jnp.sum(on)
    P = E - n[:, None] * n[None] - e[:, None] * e[None]
    return jnp.where(count > 2, 0.0, P)


def _solve3(M: jax.Array, b: jax.Array) -> jax.Array:
    """M⁻¹ b of a (3,3) by Cramer's rule."""
    x, y, z = (jnp.cross(M[i], M[j]) for i, j in ((1, 2), (2, 0), (0, 1)))
    return (x * b[0] + y * b[1] + z * b[2]) / small_sum(M[0] * x)


def _nearest(w: jax.Array, used: jax.Array, like: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """The point (3,) of the hull of the used of w (4,3) nearest to the origin, which is outside, and its weights (4,).

    Of every vertex, edge and triangle the nearest point of its plane, if it is inside. `like`: weights that say which.
    """
    # of every edge: how far along it its line is nearest
    i, j = PAIRS.T
    edge = w[j] - w[i]
    square = small_sum(edge * edge)
    along = -small_sum(w[i] * edge) / jnp.where(square > 0, square, 1.0)

    # of every triangle: the weights of its corners where its plane is nearest, unless it is flat
    p, q, r = TRIPLES.T
    sides = (w[q] - w[p], w[r] - w[p])
    normal = jnp.cross(sides[0], sides[1])
    area = small_sum(normal * normal)
    longest = jnp.maximum(*(small_sum(x * x) for x in sides))
    flat = area <= (FLAT * jnp.finfo(w.dtype).eps) * longest**2
    parts = jnp.stack([small_sum(normal * jnp.cross(w[x], w[y])) for x, y in ((q, r), (r, p), (p, q))], axis=-1)
    parts = parts / jnp.where(flat, 1.0, area)[:, None]

    # weights (subsets,4) and points of all vertices, edges and triangles
    solid = jnp.concatenate([jnp.ones(4, bool), square > 0, ~flat])
    hot = [jnp.asarray(np.eye(4)[k], w.dtype) for k in (i, j)]
    edges = hot[0] + along[:, None] * (hot[1] - hot[0])
    triangles = small_sum(parts[:, None, :] * jnp.asarray(np.eye(4)[TRIPLES].swapaxes(1, 2), w.dtype))
    rows = jnp.concatenate([jnp.eye(4, dtype=w.dtype), edges, triangles])  # (subsets, 4)
    points = small_sum(rows[:, None, :] * w.T[None])
    if like is None:
        # of those with positive weights, on points that are used, the nearest
        inside = jnp.all(jnp.where(MEMBER, used[None] & (rows > 0), True), axis=1)
        found = jnp.argmin(jnp.where(inside & solid, small_sum(points * points), jnp.inf))
    else:
        # the one that these weights belong to
        found = jnp.argmax(jnp.all(MEMBER == (like > 0)[None], axis=1))
    return points[found], rows[found]
