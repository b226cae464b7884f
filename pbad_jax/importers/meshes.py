"""Triangle meshes for drawing: STL and OBJ files, and COLLADA (.dae) where trimesh and pycollada are there."""

import importlib.util
import io
import re
from pathlib import Path
from xml.parsers import expat

import numpy as np

from pbad_jax.importers.nodes import MAX_BYTES
from pbad_jax.model.model import Mesh

_VERTEX = re.compile(r"^[ \t]*v[ \t]+(\S+)[ \t]+(\S+)[ \t]+(\S+)", re.MULTILINE)
_FACE = re.compile(r"^[ \t]*f[ \t]", re.MULTILINE)
_TRIANGLE = re.compile(r"^[ \t]*f[ \t]+(\d+)(?:/\S*)?[ \t]+(\d+)(?:/\S*)?[ \t]+(\d+)(?:/\S*)?[ \t]*$", re.MULTILINE)
COLLADA = ("trimesh", "collada")  # the packages that read it


def read_mesh(path: Path, scale=(1.0, 1.0, 1.0)) -> Mesh:
    """A mesh in metres times `scale`.

    Raises:
        ValueError: with a reason, for anything that is not a usable STL, OBJ or COLLADA file.
    """
    # a format that can be read, with the packages that it takes
    suffix = path.suffix.lower()
    reader = {".stl": _read_stl, ".obj": _read_obj, ".dae": _read_dae}.get(suffix)
    if reader is None:
        raise ValueError(f"{path.suffix or 'no suffix'} is not a format that is read; convert it to .stl or .obj")
    if suffix == ".dae" and not all(map(importlib.util.find_spec, COLLADA)):
        raise ValueError('.dae needs trimesh and pycollada: pip install "pbad_jax[viz]", or convert it to .stl or .obj')

    # a file that is there and not too large
    if not path.is_file():
        raise ValueError("no such file")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MB")
    try:
        vertices, faces = reader(path.read_bytes())
    except OSError as e:
        raise ValueError(e.strerror or "unreadable") from None

    # in metres; finite vertices and faces that name them, whichever file they are from
    vertices = vertices * np.asarray(scale, np.float32)
    if not len(faces) or not np.all(np.isfinite(vertices)):
        raise ValueError("no triangles" if not len(faces) else "holds NaN or inf")
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise ValueError("a face names a vertex that does not exist")
    if np.prod(np.sign(scale)) < 0:  # a mirror turns every triangle inside out
        faces = faces[:, ::-1]
    return Mesh(vertices.astype(np.float32), np.ascontiguousarray(faces))


def _read_stl(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    count = int.from_bytes(data[80:84], "little")
    if len(data) >= 84 and len(data) >= 84 + 50 * count and not (data[:5] == b"solid" and b"facet" in data[:512]):
        record = np.dtype([("normal", "<f4", 3), ("points", "<f4", (3, 3)), ("attribute", "<u2")])
        points = np.frombuffer(data, record, count, offset=84)["points"].reshape(-1, 3)
    elif data[:5] == b"solid":
        lines = (line.split() for line in data.decode("ascii", "replace").splitlines() if "vertex" in line)
        points = np.array([words[1:4] for words in lines if len(words) == 4], np.float32).reshape(-1, 3)
        if len(points) % 3:
            raise ValueError("a triangle of the STL file is not complete")
    else:
        raise ValueError(f"an STL file of {len(data)} bytes cannot hold the {count} triangles that it announces")
    return points, np.arange(len(points), dtype=np.int32).reshape(-1, 3)


def _read_obj(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    text = "\n".join(data.decode("utf-8", "replace").splitlines())
    faces = _TRIANGLE.findall(text)
    if len(faces) != len(_FACE.findall(text)):  # polygons, numbers counted from the end
        return _read_obj_by_lines(text)
    vertices = _VERTEX.findall(text)
    return np.array(vertices, np.float32).reshape(-1, 3), np.array(faces, np.int32).reshape(-1, 3) - np.int32(1)


def _read_obj_by_lines(text: str) -> tuple[np.ndarray, np.ndarray]:
    vertices: list[list[str]] = []
    faces: list[tuple[int, int, int]] = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if words[0] == "v":
            vertices.append(words[1:4])
        elif words[0] == "f":
            corners = [int(w.split("/")[0]) for w in words[1:]]
            corners = [c - 1 if c > 0 else len(vertices) + c for c in corners]
            faces.extend((corners[0], corners[i], corners[i + 1]) for i in range(1, len(corners) - 1))
    return np.array(vertices, np.float32).reshape(-1, 3), np.array(faces, np.int32).reshape(-1, 3)


def _read_dae(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """All triangles of the scene, in metres by the file's own unit. Its up axis is not applied, as RViz does it.

    Entities could fetch files and grow without end, so a file with a document type is refused. Textures are not read.
    """

    def refuse(*_):
        raise ValueError("document types and entities are not read")

    # a pass of the bare parser, to find document types before anything acts on them
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        raise ValueError(f"not well-formed XML ({expat.ErrorString(e.code)})") from None

    # the scene as one mesh of triangles
    import trimesh

    try:
        scene = trimesh.load_scene(io.BytesIO(data), file_type="dae")
        mesh = scene.convert_units("meters").to_mesh() if scene.geometry else trimesh.Trimesh()
    except Exception as e:  # whatever a package finds wrong with a picture is no reason to give up a model
        raise ValueError(f"unreadable COLLADA ({type(e).__name__})") from None
    return np.asarray(mesh.vertices, np.float32).reshape(-1, 3), np.asarray(mesh.faces, np.int32).reshape(-1, 3)
