"""The shapes of a model as convex ones, see convex.py: once, in numpy."""

from typing import NamedTuple

import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.geometry.points import spread
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.model import Mesh, Model

KINDS = ("box", "mesh", "cylinder", "ellipsoid", "capsule", "sphere")  # the flatter ones first
ROUND = ("sphere", "capsule")
HULL_POINTS = 48  # of a mesh
WAYS = 2048  # in which hulls are compared
MOVES = 16  # of the points that are kept
COARSE = 1e-3  # of its size: how far outside a vertex must be where there are too many anyway


class ConvexShapes(NamedTuple):
    """g shapes; the fields of convex.Convex, and where they are."""

    points: np.ndarray  # (g,V,3) m; the first again and again where there are less
    axes: np.ndarray  # (g,3) m
    radius: np.ndarray  # (g,) m
    frame: np.ndarray  # (g,3,4) in their links
    links: tuple[int, ...]


def convex_shapes(model: Model, geoms: list[int]) -> ConvexShapes:
    """Of geoms on bodies, by their places in the model's geometry; meshes by at most HULL_POINTS of their hull.

    Raises:
        ModelError: a kind that has no inside, or a mesh without one.
    """
    t, g = model.topology, model.geometry
    hulls: dict[Mesh, np.ndarray] = {}  # of every mesh once
    parts = []
    for i in geoms:
        mesh, body = t.geom_meshes[i], t.body_names[t.geom_bodies[i]]
        if mesh is not None and mesh not in hulls:
            hulls[mesh] = hull_points(np.asarray(mesh.vertices, float), body)
        parts.append(_shape(t.geom_types[i], g.size[i], None if mesh is None else hulls[mesh], body))
    most = max(len(points) for points, _, _ in parts)
    points = np.stack([np.concatenate([p, np.repeat(p[:1], most - len(p), axis=0)]) for p, _, _ in parts])
    frame = np.stack([np.c_[rotation_numpy(g.quaternion[i]), g.position[i]] for i in geoms])
    links = tuple(t.body_link[t.geom_bodies[i]] for i in geoms)
    return ConvexShapes(points, np.stack([s for _, s, _ in parts]), np.array([r for _, _, r in parts]), frame, links)


def flatter(a: str, b: str) -> bool:
    """Whether kind a comes before b."""
    return KINDS.index(a) < KINDS.index(b)


def _shape(kind: str, size: np.ndarray, hull: np.ndarray | None, body: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Corners (V,3), semi-axes (3,) and radius."""
    middle, none = np.zeros((1, 3)), np.zeros(3)
    ends = np.array([[0, 0, size[1]], [0, 0, -size[1]]])
    if kind == "sphere":
        return middle, none, float(size[0])
    if kind == "capsule":
        return ends, none, float(size[0])
    if kind == "cylinder":
        return ends, np.array([size[0], size[0], 0.0]), 0.0
    if kind == "ellipsoid":
        return middle, np.array(size, float), 0.0
    if kind == "box":
        return np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]) * size, none, 0.0
    if hull is not None:
        return hull, none, 0.0
    raise ModelError(f"contact between bodies: a {kind} on body {body!r}; it must be one of {', '.join(KINDS)}")


def hull_points(vertices: np.ndarray, body: str, most: int = HULL_POINTS) -> np.ndarray:
    """The vertices (n,3) of the convex hull, n ≤ `most`; of a hull with more of them, those that keep it nearly whole.

    Raises:
        ModelError: they lie in a plane.
    """
    checks.array(vertices, f"vertices of the mesh on {body!r}", "(V, 3) numbers")
    flat = ModelError(f"contact between bodies: the mesh on body {body!r} is flat; give it a volume, or a box")
    if len(vertices) < 4:
        raise flat
    away = vertices - vertices.mean(axis=0)
    _, extent, axes = np.linalg.svd(np.linalg.qr(away, mode="r"))
    if extent[-1] <= 1e-9 * max(extent[0], 1e-300):
        raise flat
    if len(vertices) <= most:
        return vertices
    wide = away @ axes.T * (np.sqrt(len(vertices)) / extent)  # the same in all directions
    corners = vertices[_corners(wide, f"Qt W{COARSE}")]
    return _telling(corners if len(corners) > most else vertices[_corners(wide, "Qt")], most)


def _corners(points: np.ndarray, how: str = "Qt") -> np.ndarray:
    """Which points (n,3) are the vertices of their hull; `how` is for Qhull, see http://www.qhull.org."""
    from scipy.spatial import ConvexHull  # here, because it takes a while and few models need it

    return ConvexHull(points, qhull_options=how).vertices


def _telling(corners: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the corners (n,3) of a hull, so that the hull of these is nearly the whole.

    A hull lacks in a direction as much as its support function is too small. Tried are: corners far from one another;
    again and again the one that is lacked most, which suits flat hulls; and these moved a few times, each to the middle
    of the directions in which it is the farthest, which suits round ones. The best is taken.
    """
    if len(corners) <= most:
        return corners

    # along many directions: how far the whole hull reaches, and which corner does
    ways = _ways()  # (3,WAYS); everything below is (.., corners), so that maxima run along memory
    along = ways.T @ corners.T
    farthest = along.argmax(axis=1)
    whole = np.take_along_axis(along, farthest[:, None], axis=1)[:, 0]

    # the corner that is lacked most, again and again
    chosen = [int(farthest[0])]
    reached = along[:, chosen[0]]
    while len(chosen) < most:
        chosen.append(int(farthest[np.argmax(whole - reached)]))
        reached = np.maximum(reached, along[:, chosen[-1]])

    # also corners far from one another, and these moved: each to the middle of where it is farthest
    tried = [spread(corners, most), corners[chosen]]
    for _ in range(MOVES):
        owner = (ways.T @ tried[-1].T).argmax(axis=1)
        middle = np.stack([ways[:, owner == i].sum(axis=1) for i in range(len(tried[-1]))])
        tried.append(corners[np.unique((middle @ corners.T).argmax(axis=1))])

    # the hull that lacks least in its worst direction
    return min(tried, key=lambda some: np.max(whole - (ways.T @ some.T).max(axis=1)))


def _ways() -> np.ndarray:
    """Directions (3,WAYS), evenly over the sphere."""
    k = np.arange(WAYS) + 0.5
    z, turn = 1 - 2 * k / WAYS, np.pi * (1 + 5**0.5) * k
    level = np.sqrt(1 - z * z)
    return np.stack([level * np.cos(turn), level * np.sin(turn), z])
