"""What is drawn: shapes fixed to bodies, and triangle meshes for them.

Shapes that differ by a scale share one mesh, so that a viewer gets few meshes with many instances.
"""

import dataclasses
import itertools

import jax
import numpy as np

from pbad_jax.builders.descriptions import Geom
from pbad_jax.kinematics.transforms import forward_kinematics, length_scale
from pbad_jax.math.rotations import z_to
from pbad_jax.model.model import Mesh, Model

SIDES = 32  # of a circle
COLORS = np.array([[0.13, 0.35, 0.65, 1.0], [0.93, 0.55, 0.14, 1.0]])  # of bodies in turn, where none is given
UNCOLORED = np.array(Geom("sphere").rgba)


@dataclasses.dataclass(frozen=True, eq=False)
class Shape:
    """One geom as it is drawn: a mesh, scaled, at a pose in the frame of a body (-1 is the world)."""

    body: int
    mesh: Mesh
    scale: np.ndarray  # (3,)
    position: np.ndarray  # (3,) m
    quaternion: np.ndarray  # (4,) w, x, y, z
    rgba: np.ndarray  # (4,)

    @property
    def radius(self) -> float:
        """Of the sphere about the shape's own origin that holds it, m."""
        return float(np.linalg.norm(self.mesh.vertices * self.scale, axis=1).max(initial=0.0))


def shapes_of(model: Model) -> list[Shape]:
    """The visible shapes of a model, planes excluded; bones between the joints where it has none."""
    g, t = model.geometry, model.topology
    shapes = []
    for i, kind in enumerate(t.geom_types):
        if kind == "plane" or g.rgba[i, 3] <= 0:
            continue
        mesh, scale = _mesh_and_scale(kind, g.size[i], t.geom_meshes[i])
        shapes.append(
            Shape(t.geom_bodies[i], mesh, scale, g.position[i], g.quaternion[i], _color(g.rgba[i], t.geom_bodies[i]))
        )
    return shapes if any(s.body >= 0 for s in shapes) else shapes + _bones(model)


def _color(rgba: np.ndarray, body: int) -> np.ndarray:
    """The colour (4,) of the geom; links that were given none differ from their neighbours."""
    return COLORS[body % 2] if body >= 0 and np.allclose(rgba, UNCOLORED, atol=1e-6) else rgba


def planes_of(model: Model) -> list[Shape]:
    """The visible planes of a model, as shapes of a flat unit square; scale 0 is an infinite plane."""
    g, t = model.geometry, model.topology
    square = Mesh(np.zeros((0, 3)), np.zeros((0, 3), int))
    return [
        Shape(t.geom_bodies[i], square, g.size[i], g.position[i], g.quaternion[i], g.rgba[i])
        for i, kind in enumerate(t.geom_types)
        if kind == "plane" and g.rgba[i, 3] > 0
    ]


def _mesh_and_scale(kind: str, size: np.ndarray, mesh: Mesh | None) -> tuple[Mesh, np.ndarray]:
    """A mesh of the geom's proportions, and the scale that gives it its size."""
    if kind == "mesh":
        assert mesh is not None
        return mesh, np.ones(3)
    if kind == "sphere":
        return capsule(0.0), np.full(3, size[0])
    if kind == "ellipsoid":
        return capsule(0.0), size
    if kind == "cylinder":
        return cylinder(), np.array([size[0], size[0], size[1]])
    if kind == "box":
        return box(), size
    if size[0] <= 0:
        return capsule(0.0), np.zeros(3)
    return capsule(float(f"{size[1] / size[0]:.6g}")), np.full(3, size[0])


def capsule(half_length: float) -> Mesh:
    """A capsule of radius 1 along z; a sphere where `half_length` is 0."""
    arc = np.linspace(0, np.pi / 2, SIDES // 4 + 1)
    cap = np.stack([np.cos(arc), np.sin(arc) + half_length], axis=1)
    low = cap[::-1] * (1, -1)
    return _lathe(np.concatenate([low, cap if half_length > 0 else cap[1:]]))


def cylinder() -> Mesh:
    """A cylinder of radius 1 and half length 1 along z; rims are doubled, so that they stay sharp."""
    return _lathe(np.array([[0, -1], [1, -1], [1, -1], [1, 1], [1, 1], [0, 1.0]]))


def box() -> Mesh:
    """The cube from -1 to 1, four vertices a face, so that its edges stay sharp."""
    square = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1.0]])
    flip = np.array([[1, 0, 0], [0, -1, 0], [0, 0, -1.0]])
    sides = [turn for k in range(3) for turn in (np.roll(np.eye(3), k, axis=0), np.roll(np.eye(3), k, axis=0) @ flip)]
    vertices = np.concatenate([square @ turn.T for turn in sides])
    faces = np.concatenate([np.array([[0, 1, 2], [0, 2, 3]]) + 4 * k for k in range(6)])
    return Mesh(vertices, faces)


def arrow() -> Mesh:
    """An arrow from the origin to (0, 0, 1)."""
    return _lathe(np.array([[0, 0], [0.035, 0], [0.035, 0], [0.035, 0.75], [0.1, 0.75], [0.1, 0.75], [0, 1.0]]))


def _lathe(profile: np.ndarray) -> Mesh:
    """The surface of revolution about z of points (K,2) = (radius, z), from the lower pole to the upper."""
    angle = 2 * np.pi * np.arange(SIDES) / SIDES
    rows = [np.stack([r * np.cos(angle), r * np.sin(angle), np.full(SIDES, z)], axis=1) for r, z in profile]
    i, j = np.meshgrid(np.arange(len(profile) - 1), np.arange(SIDES), indexing="ij")
    a, b = i * SIDES + j, i * SIDES + (j + 1) % SIDES
    c, d = a + SIDES, b + SIDES
    faces = np.stack([np.stack([a, b, d], -1), np.stack([a, d, c], -1)], axis=2).reshape(-1, 3)
    vertices = np.concatenate(rows)
    x, y, z = vertices[faces].transpose(1, 0, 2)
    area = np.linalg.norm(np.cross(y - x, z - x), axis=1)
    return Mesh(vertices, faces[area > 1e-12])


def _bones(model: Model) -> list[Shape]:
    """Thin capsules from every body's frame to its children's, or to its centre of mass where it has none."""
    poses = jax.jit(forward_kinematics)(model, model.q0)
    position, rotation = np.asarray(poses.position, float), np.asarray(poses.rotation, float)
    moment = np.asarray(model.second_moment, float)[np.array(model.topology.body_link)]
    parents = model.topology.body_parent
    thin = 0.06 * max(float(length_scale(model)), 1e-3)
    shapes = []
    for body in range(model.n_bodies):
        children = [position[c] for c, p in enumerate(parents) if p == body]
        tips = [rotation[body].T @ (x - position[body]) for x in children]
        if not tips and moment[body, 3, 3] > 0:
            tips = [moment[body, :3, 3] / moment[body, 3, 3]]
        shapes.extend(_bone(body, tip, thin) for tip in tips)
    return shapes


def _bone(body: int, tip: np.ndarray, thin: float) -> Shape:
    """A capsule from the body's origin to `tip` (3,); a ball where they are the same point."""
    length = float(np.linalg.norm(tip))
    if length < thin:
        mesh, quaternion, scale = capsule(0.0), np.array([1.0, 0, 0, 0]), 2 * thin
    else:
        mesh, quaternion, scale = capsule(float(f"{length / (2 * thin):.6g}")), z_to(tip / length), thin
    return Shape(body, mesh, np.full(3, scale), tip / 2, quaternion, COLORS[body % 2])


def outermost(mesh: Mesh) -> np.ndarray:
    """The vertices (K,3) of a mesh that lie farthest in some 26 directions."""
    directions = np.array([d for d in itertools.product((-1, 0, 1), repeat=3) if any(d)], float)
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    vertices = np.asarray(mesh.vertices, float)
    return vertices[np.unique(np.argmax(vertices @ directions.T, axis=0))]


def rotations(q: np.ndarray) -> np.ndarray:
    """The matrices (...,3,3) of unit quaternions (...,4)."""
    w, x, y, z = np.moveaxis(np.asarray(q, float), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
