"""The shapes of a URDF's links, read here because MuJoCo has no use for them.

No mass comes from them, and a mesh that cannot be read is a note, not an error.
"""

import re
from pathlib import Path

import numpy as np

from pbad_jax.builders.descriptions import Geom
from pbad_jax.errors import ModelFileError, UnsupportedFeatureError
from pbad_jax.importers.features import idle
from pbad_jax.importers.meshes import read_mesh
from pbad_jax.importers.mjcf import Prepared
from pbad_jax.importers.nodes import Node, cut
from pbad_jax.importers.roots import Roots
from pbad_jax.model.model import Mesh


class Shapes:
    """Reads visuals and collisions. Where a link has visuals, its collision shapes get alpha 0.

    Their meshes are read where a robot has no other shapes to touch with, as they are dear: each has many points.
    """

    def __init__(self, root: Node, roots: Roots, out: Prepared, meshes: bool):
        self.roots, self.out, self.meshes = roots, out, meshes
        self.colours = {m.attrib.get("name", ""): _rgba(m) for m in root.all("material")}
        self.read: dict[tuple, Mesh | str] = {}
        self.problems: dict[str, dict[str, None]] = {}  # why -> meshes
        self.contacts = 0
        collisions = [_shape(x) for link in root.all("link") for x in link.all("collision")]
        self.only_meshes = all(x is None or x.tag == "mesh" for x in collisions)

    def of_link(self, link: Node) -> list[Geom]:
        """All that can be read."""
        shapes = [self._geom(x, visible=True, touches=False) for x in link.all("visual")]
        seen = any(g is not None for g in shapes)
        for x in link.all("collision"):
            self.contacts += 1
            shape = _shape(x)
            if not seen or self.only_meshes or (shape is not None and shape.tag != "mesh"):
                shapes.append(self._geom(x, visible=not seen, touches=True))
        return [g for g in shapes if g is not None]

    def report(self) -> None:
        """Write down what was dropped."""
        if self.contacts:
            self.out.inactive.append(
                idle("contact", f" ({self.contacts} geoms; a URDF has no ground: pbad.with_ground, --ground)")
            )
        for why, names in self.problems.items():
            shown = ", ".join(list(names)[:6]) + (", ..." if len(names) > 6 else "")
            self.out.notes.append(f"{len(names)} mesh{'es' * (len(names) > 1)} dropped, {why}: {shown}")

    def _geom(self, node: Node, visible: bool, touches: bool) -> Geom | None:
        """A shape with its pose and colour, or None where there is none that can be read."""
        # what only touches is not seen: alpha 0
        shape = _shape(node)
        if shape is None:
            return None
        position, quaternion = pose(node.first("origin"))
        rgba = self._colour(node.first("material"))
        colour = rgba if visible else (*rgba[:3], 0.0)
        common = {"position": position, "quaternion": quaternion, "rgba": colour, "touches": touches}

        # a mesh that cannot be read is noted by _mesh
        if shape.tag == "mesh":
            mesh = self._mesh(shape)
            return None if mesh is None else Geom("mesh", mesh=mesh, **common)

        # half sizes here, whole ones in a URDF; radii are the same
        size = {
            "box": lambda: [0.5 * x for x in shape.vector("size", 3, (0, 0, 0))],
            "sphere": lambda: [shape.number("radius"), 0, 0],
        }.get(shape.tag, lambda: [shape.number("radius"), 0.5 * shape.number("length"), 0])()
        if min(size) < 0:
            raise ModelFileError(f"{shape.where}: <{shape.tag}> has a negative size {size}; sizes are ≥ 0, m")
        return Geom(shape.tag, size=size, **common)

    def _colour(self, material: Node | None) -> tuple:
        default = Geom("sphere").rgba
        if material is None:
            return default
        return _rgba(material) or self.colours.get(material.attrib.get("name", "")) or default

    def _mesh(self, shape: Node) -> Mesh | None:
        """The mesh, or None with a note. Paths that leave their folders raise."""
        written = shape.attrib.get("filename", "")
        scale = shape.vector("scale", 3, (1, 1, 1))
        if not self.meshes:
            return None
        path = self._path(written, shape)
        mesh = path if isinstance(path, str) else self._read(path, tuple(scale))
        if isinstance(mesh, str):
            self.problems.setdefault(mesh, {})[cut(written, 120)] = None
            return None
        return mesh

    def _read(self, path: Path, scale: tuple) -> Mesh | str:
        """The mesh, or why there is none."""
        if (path, scale) not in self.read:
            try:
                self.read[path, scale] = read_mesh(path, scale)
            except (ValueError, OverflowError, IndexError) as e:
                self.read[path, scale] = str(e)
        return self.read[path, scale]

    def _path(self, written: str, shape: Node) -> Path | str:
        """The mesh's path, or why there is none."""
        if not written:
            return "without a filename"
        if written.startswith(("package://", "model://")):
            return self.roots.package(written, shape) or "package not found (pass package_dirs)"
        if self.roots.folder is None and not self.roots.packages and not re.match(r"/|\w+:", written):
            return "the model is text and has no folder (pass package_dirs)"
        return self.roots.resolve(written.removeprefix("file://"), shape, mesh=True)


def _shape(node: Node) -> Node | None:
    geometry = node.first("geometry")
    known = ("box", "sphere", "cylinder", "capsule", "mesh")
    for child in geometry.children if geometry is not None else ():
        if child.tag in known:
            return child
        raise UnsupportedFeatureError(
            f"{child.where}: shape <{cut(child.tag)}> is not one of {', '.join(known)}", (f"shape <{cut(child.tag)}>",)
        )
    return None


def _rgba(material: Node) -> tuple | None:
    colour = material.first("color")
    return None if colour is None else tuple(colour.vector("rgba", 4, (0.5, 0.5, 0.5, 1)))


def pose(origin: Node | None) -> tuple[list[float], np.ndarray]:
    """Position (m) and quaternion (w,x,y,z) of an <origin>: rotate about x, then y, then z of the fixed frame."""
    if origin is None:
        return [0.0, 0.0, 0.0], np.array([1.0, 0, 0, 0])
    r, p, y = 0.5 * np.array(origin.vector("rpy", 3, (0, 0, 0)))
    cr, sr, cp, sp, cy, sy = np.cos(r), np.sin(r), np.cos(p), np.sin(p), np.cos(y), np.sin(y)
    quaternion = np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )
    return origin.vector("xyz", 3, (0, 0, 0)), quaternion
