"""The shapes of a model as convex ones, see convex.py: once, in numpy."""

from typing import NamedTuple

import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces.contact_points import spread
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.model import Model

KINDS = ("box", "mesh", "cylinder", "ellipsoid", "capsule", "sphere")  # the flatter ones first
ROUND = ("sphere", "capsule")
HULL_POINTS = 48  # of a mesh
WAYS = 4096  # in which its hull is looked for


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
    parts = [_shape(t.geom_types[i], g.size[i], t.geom_meshes[i], t.body_names[t.geom_bodies[i]]) for i in geoms]
    most = max(len(points) for points, _, _ in parts)
    points = np.stack([np.concatenate([p, np.repeat(p[:1], most - len(p), axis=0)]) for p, _, _ in parts])
    frame = np.stack([np.c_[rotation_numpy(g.quaternion[i]), g.position[i]] for i in geoms])
    links = tuple(t.body_link[t.geom_bodies[i]] for i in geoms)
    return ConvexShapes(points, np.stack([s for _, s, _ in parts]), np.array([r for _, _, r in parts]), frame, links)


def flatter(a: str, b: str) -> bool:
    """Whether kind a comes before b."""
    return KINDS.index(a) < KINDS.index(b)


def _shape(kind: str, size: np.ndarray, mesh, body: str) -> tuple[np.ndarray, np.ndarray, float]:
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
    if kind == "mesh":
        return hull_points(np.asarray(mesh.vertices, float), body), none, 0.0
    raise ModelError(f"contact between bodies: a {kind} on body {body!r}; it must be one of {', '.join(KINDS)}")


def hull_points(vertices: np.ndarray, body: str, most: int = HULL_POINTS) -> np.ndarray:
    """At most `most` vertices of the convex hull, far from one another: those that are farthest in one of many ways.

    Raises:
        ModelError: they lie in a plane.
    """
    checks.array(vertices, f"vertices of the mesh on {body!r}", "(V, 3) numbers")
    extent = np.linalg.svd(vertices - vertices.mean(axis=0), compute_uv=False) if len(vertices) > 3 else np.zeros(3)
    if extent[-1] <= 1e-9 * max(extent[0], 1e-300):
        raise ModelError(f"contact between bodies: the mesh on body {body!r} is flat; give it a volume, or a box")
    if len(vertices) <= most:
        return vertices
    k = np.arange(WAYS) + 0.5
    z, turn = 1 - 2 * k / WAYS, np.pi * (1 + 5**0.5) * k
    level = np.sqrt(1 - z * z)
    ways = np.stack([level * np.cos(turn), level * np.sin(turn), z])
    return spread(vertices[np.unique(np.argmax(vertices @ ways, axis=0))], most)
