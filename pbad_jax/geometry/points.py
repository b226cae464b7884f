"""Which points of a model touch: from its geometry, once, in numpy."""

import dataclasses
import functools

import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.model import Mesh, Model, check_model

RIM = 8  # points on each rim of a cylinder


@dataclasses.dataclass(frozen=True)
class ContactPoints:
    """Points (radius 0) and spheres on links.

    Attributes:
        links: the link of each.
        position: (c,3) m in the link's frame.
        radius: (c,) m.
        friction: (c,) μ.
        names: the body of each.

    Example:
        >>> points = forces.contact_points(ball)
        >>> points.names, points.radius
        (('bead',), array([0.1]))
    """

    links: tuple[int, ...]
    position: np.ndarray
    radius: np.ndarray
    friction: np.ndarray
    names: tuple[str, ...] = ()

    def only(self, *bodies: str) -> "ContactPoints":
        """The points of these bodies.

        Raises:
            ModelError: a body without points.
        """
        for body in bodies:
            checks.known(body, sorted(set(self.names)), "body with contact points")
        keep = [i for i, n in enumerate(self.names) if n in bodies]
        return ContactPoints(
            tuple(self.links[i] for i in keep), self.position[keep], self.radius[keep], self.friction[keep],
            tuple(self.names[i] for i in keep),
        )  # fmt: skip


def points_on(model: Model, body: str, position, *, radius=0.0, friction: float = 1.0) -> ContactPoints:
    """Points of one's own on a body: position (c,3) or (3,) m in its frame, radius () or (c,) m.

    Raises:
        ModelError: an unknown body, a wrong shape, a negative radius or friction.

    Example:
        >>> forces.points_on(model, "link1", (0, 0, -1), radius=0.05).radius
        array([0.05])
    """
    check_model(model)
    link = model.topology.body_link[checks.known(body, model.body_names, "body of a contact point")]
    p = np.atleast_2d(checks.array(position, f"contact points on {body!r}", "(c, 3) numbers"))
    if p.ndim != 2 or p.shape[1] != 3 or not np.all(np.isfinite(p)):
        raise ModelError(f"contact points on {body!r} have shape {p.shape}; wanted (c, 3) finite numbers, m")
    r = checks.array(radius, f"radius of the points on {body!r}", "numbers")
    if r.shape not in ((), (len(p),)) or not np.all((r >= 0) & np.isfinite(r)):
        raise ModelError(f"radius of contact points on {body!r} is {r.tolist()}; it must be one or {len(p)} ≥ 0, m")
    mu = checks.at_least_zero(friction, f"friction of the points on {body!r}", "or it would drive")
    return ContactPoints((link,) * len(p), p, np.full(len(p), r), np.full(len(p), mu), (body,) * len(p))


def check_points(model: Model, points: ContactPoints) -> None:
    """There are some, and they are on this model.

    Raises:
        ModelError: if not.
    """
    _points_only(points, "points of contact")
    name, n = model.topology.name, model.topology.n_links
    if not points.links:
        raise ModelError(f"contact: model {name!r} has no points that could touch; give its bodies geoms")
    if not all(0 <= l < n for l in points.links):
        raise ModelError(f"contact: a point is on link {max(points.links)}; model {name!r} has links 0 to {n - 1}")


def _points_only(x, what: str) -> None:
    if not isinstance(x, ContactPoints):
        raise ModelError(f"{what}: {x!r:.60} holds no contact points; make some with contact_points or points_on")


def joined(*parts: ContactPoints) -> ContactPoints:
    """All of them.

    Raises:
        ModelError: nothing to join, or something that is not ContactPoints.

    Example:
        >>> tip = forces.points_on(model, "link1", (0, 0, -1), radius=0.05)
        >>> two = forces.joined(forces.points_on(model, "link0", (0, 0, 0)), tip)
        >>> two.names
        ('link0', 'link1')
    """
    if not parts:
        raise ModelError("joined: there is nothing to join; give it one or more ContactPoints")
    for k, part in enumerate(parts):
        _points_only(part, f"argument {k} of joined")
    return ContactPoints(
        tuple(l for p in parts for l in p.links),
        np.concatenate([p.position for p in parts]),
        np.concatenate([p.radius for p in parts]),
        np.concatenate([p.friction for p in parts]),
        tuple(n for p in parts for n in p.names),
    )


def contact_points(model: Model, *, geoms: list[int] | None = None, mesh_points: int = 32) -> ContactPoints:
    """The points of the model's own shapes.

    Spheres and the two ends of capsules are spheres; boxes give their corners, cylinders 8 points on each rim,
    ellipsoids 26 points, meshes at most `mesh_points` vertices, chosen far from one another. Planes give none.

    Args:
        model: the model. geoms: indices of the shapes to take; default all that are on bodies and are not only drawn.
        mesh_points: ≥ 4.

    Raises:
        ModelError: mesh_points below 4, or an index that no shape has.

    Example:
        >>> forces.contact_points(model).names
        ('link0', 'link0', 'link1', 'link1')
    """
    check_model(model)
    if not isinstance(mesh_points, int) or mesh_points < 4:
        raise ModelError(f"mesh_points is {mesh_points!r}; it must be an integer ≥ 4")
    # shape by shape, in the frames of their links
    t, g = model.topology, model.geometry
    links, where, radius, mu, names = [], [], [], [], []
    touching = [i for i, touches in enumerate(t.geom_touches) if touches]
    for i in touching if geoms is None else _indices(model, geoms):
        body = t.geom_bodies[i]
        if body < 0:
            continue
        points, r = _of_shape(t.geom_types[i], g.size[i], t.geom_meshes[i], mesh_points)
        points = points @ rotation_numpy(g.quaternion[i]).T + g.position[i]
        links += [t.body_link[body]] * len(points)
        names += [t.body_names[body]] * len(points)
        where.append(points)
        radius.append(np.full(len(points), r))
        mu.append(np.full(len(points), g.friction[i, 0]))
    if not links:
        return ContactPoints((), np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    return ContactPoints(tuple(links), np.concatenate(where), np.concatenate(radius), np.concatenate(mu), tuple(names))


def _indices(model: Model, geoms) -> list[int]:
    """The given indices of shapes, all of them there."""
    name, n = model.topology.name, len(model.topology.geom_types)
    if not isinstance(geoms, list | tuple | range | np.ndarray):
        raise ModelError(f"geoms of contact_points is {geoms!r:.60}; wanted a list of indices, such as [0, 2]")
    for i in geoms:
        whole = isinstance(i, int | np.integer) and not isinstance(i, bool)
        if not whole or not 0 <= i < n:
            there = f"0 to {n - 1}" if n else "none"
            raise ModelError(f"geoms of contact_points has {i!r:.60}; the shapes of model {name!r} are {there}")
    return [int(i) for i in geoms]


def _of_shape(kind: str, size: np.ndarray, mesh, most: int) -> tuple[np.ndarray, float]:
    """Points (c,3) in the shape's frame and their radius."""
    signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)], float)
    if kind == "sphere":
        return np.zeros((1, 3)), size[0]
    if kind == "capsule":
        return np.array([[0, 0, size[1]], [0, 0, -size[1]]]), size[0]
    if kind == "box":
        return signs * size, 0.0
    if kind == "cylinder":
        a = 2 * np.pi * np.arange(RIM) / RIM
        rim = np.c_[size[0] * np.cos(a), size[0] * np.sin(a)]
        return np.vstack([np.c_[rim, np.full(RIM, h)] for h in (size[1], -size[1])]), 0.0
    if kind == "ellipsoid":
        grid = np.array([[a, b, c] for a in (-1, 0, 1) for b in (-1, 0, 1) for c in (-1, 0, 1)], float)
        grid = grid[np.any(grid != 0, axis=1)]
        return grid / np.linalg.norm(grid, axis=1, keepdims=True) * size, 0.0
    if kind == "mesh":
        return _of_mesh(mesh, most), 0.0
    return np.zeros((0, 3)), 0.0


@functools.lru_cache(maxsize=64)  # many shapes have the same mesh
def _of_mesh(mesh: Mesh, most: int) -> np.ndarray:
    return spread(np.asarray(mesh.vertices, float), most)


def spread(vertices: np.ndarray, most: int) -> np.ndarray:
    """At most `most` vertices, each the farthest from those before; first the farthest from the middle."""
    vertices = np.unique(vertices, axis=0)
    if len(vertices) <= most:
        return vertices
    chosen = [int(np.argmax(np.linalg.norm(vertices - vertices.mean(axis=0), axis=1)))]
    gap = np.linalg.norm(vertices - vertices[chosen[0]], axis=1)
    while len(chosen) < most:
        chosen.append(int(np.argmax(gap)))
        gap = np.minimum(gap, np.linalg.norm(vertices - vertices[chosen[-1]], axis=1))
    return vertices[chosen]
