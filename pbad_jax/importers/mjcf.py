"""MJCF before MuJoCo's compiler: includes, paths, numbers.

`prepare` makes the text safe to compile: nothing that the compiler then opens has not been checked.
"""

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pbad_jax.builders.descriptions import Geom
from pbad_jax.errors import ModelFileError, UnsupportedFeatureError
from pbad_jax.importers.features import refused
from pbad_jax.importers.nodes import (
    MAX_BODIES,
    MAX_BYTES,
    MAX_ELEMENTS,
    MAX_RESERVED,
    Budget,
    Node,
    cut,
    numbers,
    parse,
    read_bytes,
)
from pbad_jax.importers.roots import Roots

MAX_INCLUDES = 16  # deep
MAX_EXPANDED_DEPTH = 512
# dropped before compiling: they have no physics, and may open files or reserve memory
_DROPPED = {"size", "texture", "skin", "custom", "layer"}
_NUMERIC = frozenset(
    """pos quat axisangle xyaxes zaxis euler fromto size mass density diaginertia fullinertia axis range ref springref
    damping stiffness armature frictionloss margin gear ctrlrange forcerange actrange lengthrange actuatorfrcrange
    kp kv gainprm biasprm dynprm dampratio timeconst area diameter gravity timestep viscosity wind magnetic rgba
    friction solref solimp solreflimit solimplimit solreffriction solimpfriction boundmass boundinertia settotalmass
    inertiagrouprange springdamper springlength coef gravcomp condim contype conaffinity group user scale refpos
    refquat vertex normal face polycoef relpose qpos qvel ctrl act mpos mquat delay cranklength gap solmix
    fluidcoef fitscale count offset spacing radius""".split()
)
_RANGES = {  # and what switches each of them
    "range": "limited",
    "ctrlrange": "ctrllimited",
    "forcerange": "forcelimited",
    "actrange": "actlimited",
    "actuatorfrcrange": "actuatorfrclimited",
}
_RESERVING = ("dim", "nsample", "actdim")
_FILE_ATTRIBUTES = ("file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")


def mujoco_module() -> Any:
    """The mujoco package, which only the importer needs.

    Raises:
        ImportError: it is not installed; says how to.
    """
    try:
        import mujoco
    except ImportError as e:
        raise ImportError(f'loading model files needs MuJoCo: pip install "pbad_jax[models]" ({e})') from e
    return mujoco


class Inertial(NamedTuple):
    """Mass (kg), centre of mass (3,) m and inertia about it (3,3) kg m², in the link's axes."""

    mass: float
    com: np.ndarray
    inertia: np.ndarray


@dataclasses.dataclass
class Prepared:
    """A document ready for MuJoCo's compiler, and what is already known of it."""

    root: Node
    name: str
    unsupported: list[str] = dataclasses.field(default_factory=list)
    inactive: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    shapes: dict[str, list[Geom]] | None = None  # URDF: the geoms of each link
    inertials: dict[str, Inertial] | None = None  # URDF: of each link
    mimics: list[tuple[str, str, float, float]] = dataclasses.field(default_factory=list)  # URDF, see `urdf._mimic`


def prepare(root: Node, roots: Roots, budget: Budget) -> Prepared:
    """Inline the includes, drop what has no physics, and check numbers, paths and sizes.

    Raises:
        ModelFileError: with file:line.
        UnsupportedFeatureError: for models attached from other files.
    """
    # one document, from its own files alone
    _inline(root, roots, budget, (root.file,), 0)
    attached = [f"{n.where}: <{n.tag}>" for n in root.walk() if n.tag in ("attach", "model")]
    if attached:
        raise UnsupportedFeatureError(
            "models attached from other files are not read: " + "; ".join(attached) + ". Write the combined file with "
            "MuJoCo (MjSpec.to_xml) and load that.",
            tuple(attached),
        )

    # what the compiler would open lies in the given folders, and nothing grows beyond the limits
    _check_paths(root, roots)
    _drop(root)
    _check_expansion(root)
    _check_reserved(root)

    # numbers are finite and decimal, and no range ends before it begins
    for node in root.walk():
        for name in node.attrib if node.tag != "flag" else ():  # <flag gravity="disable"/>
            if name in _NUMERIC:
                numbers(node, name)
        _check_ranges(node)

    # plugins act by code that is not here
    plugins = [
        refused("plugin", f" {n.attrib.get('plugin', n.attrib.get('instance', ''))!r} ({n.where})")
        for n in root.walk()
        if n.tag == "plugin"
    ]
    return Prepared(root, root.attrib.get("model", ""), unsupported=plugins)


def _inline(node: Node, roots: Roots, budget: Budget, files: tuple[str, ...], depth: int) -> None:
    """Put the children of included files where the <include> stands."""
    if depth > MAX_EXPANDED_DEPTH:
        raise ModelFileError(f"{node.where}: elements are nested more than {MAX_EXPANDED_DEPTH} deep after <include>")
    children = []
    for child in node.children:
        if child.tag == "include":
            included, chain = _included(child, roots, budget, files)
            _inline(included, roots, budget, chain, depth)
            children.extend(included.children)
        else:
            _inline(child, roots, budget, files, depth + 1)
            children.append(child)
    node.children = children


def _included(node: Node, roots: Roots, budget: Budget, files: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    written = node.attrib.get("file", "")
    if not written:
        raise ModelFileError(f"{node.where}: <include> needs file=")
    path = roots.resolve(written, node)
    if not path.exists():
        path = roots.resolve(written, node, Path(files[-1]).parent) if roots.folder else path
    if str(path) in files:
        cycle = files[files.index(str(path)) :] + (str(path),)
        raise ModelFileError(f"{node.where}: <include> goes in a cycle: " + " -> ".join(Path(f).name for f in cycle))
    if len(files) > MAX_INCLUDES:
        raise ModelFileError(f"{node.where}: <include> is nested more than {MAX_INCLUDES} deep; that is the limit")
    if not path.exists():
        raise ModelFileError(f"{node.where}: included file {cut(written, 200)!r} does not exist")
    return parse(read_bytes(path, budget), str(path), budget), files + (str(path),)


def _check_paths(root: Node, roots: Roots) -> None:
    """Replace every path by the absolute one that was checked, so that the compiler opens nothing else."""
    settings: dict[str, str] = {}
    for compiler in root.all("compiler"):
        settings.update(compiler.attrib)
    for node in root.walk():
        if node.tag == "compiler":
            for key in ("meshdir", "texturedir", "assetdir", "strippath"):
                node.attrib.pop(key, None)
        for key in _FILE_ATTRIBUTES if node.tag not in _DROPPED else ():
            if node.attrib.get(key):
                path = _asset(node, key, settings, roots)
                _check_file(path, node, key)
                node.attrib.setdefault("name", Path(node.attrib[key]).stem)
                node.attrib[key] = str(path)


def _asset(node: Node, key: str, settings: dict[str, str], roots: Roots) -> Path:
    written = node.attrib[key]
    folder, mesh = settings.get("meshdir", settings.get("assetdir", "")), node.tag == "mesh"
    if settings.get("strippath") == "true":
        return roots.resolve(str(Path(folder) / Path(written).name), node, mesh=mesh)
    return roots.resolve(written if re.match(r"\w+:", written) else str(Path(folder) / written), node, mesh=mesh)


def _check_file(path: Path, node: Node, key: str) -> None:
    """Refuse files that are missing, huge, or shorter than they announce."""
    what = f"{node.where}: {key}={cut(node.attrib[key], 200)!r} of <{node.tag}>"
    if not path.is_file():
        raise ModelFileError(f"{what}: no such file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ModelFileError(f"{what}: {size >> 20} MB; the limit is {MAX_BYTES >> 20} MB")
    if path.suffix.lower() == ".stl":
        with path.open("rb") as f:
            head = f.read(84)
        if head[:5] != b"solid" and (size < 84 or size < 84 + 50 * int.from_bytes(head[80:84], "little")):
            raise ModelFileError(f"{what}: {size} bytes cannot hold the triangles that the file announces")


def _drop(root: Node) -> None:
    for node in root.walk():
        node.children = [c for c in node.children if c.tag not in _DROPPED]
        if node.tag in ("material", "light"):
            node.attrib.pop("texture", None)


def _check_expansion(root: Node) -> None:
    """Refuse counts that multiply into more than the limits."""
    # every element counts as often as those around it are repeated
    bodies = 0.0
    stack: list[tuple[Node, float]] = [(root, 1.0)]
    total = 0.0
    while stack:
        node, factor = stack.pop()
        if node.tag in ("replicate", "composite", "flexcomp") and "count" in node.attrib:
            for x in numbers(node, "count"):
                factor *= max(1.0, abs(x))

        # refused as soon as either sum is too large, before the compiler makes them
        total += factor
        bodies += factor if node.tag in ("body", "composite", "flexcomp") else 0
        if total > MAX_ELEMENTS or bodies > MAX_BODIES:
            raise ModelFileError(
                f"{node.where}: <{node.tag}>: the model has more than {MAX_BODIES} bodies or "
                f"{MAX_ELEMENTS} elements; that is the limit"
            )
        stack.extend((c, factor) for c in node.children)


def _check_reserved(root: Node) -> None:
    """Refuse height fields, sensors and actuators that set aside more numbers than any model needs."""
    total = 0.0
    for node in root.walk():
        sizes = [abs(x) for name in _RESERVING if name in node.attrib for x in numbers(node, name)]
        if node.tag == "hfield":
            file = node.attrib.get("file", "")
            rows, columns = _size_of_image(Path(file)) if file else (node.number(k, 0.0) for k in ("nrow", "ncol"))
            sizes = [abs(rows * columns)]
        total += sum(sizes)
        if total > MAX_RESERVED:
            raise ModelFileError(
                f"{node.where}: <{node.tag}> {cut(node.attrib.get('name', ''))!r} sets aside {sum(sizes):.3g} numbers; "
                f"the limit is {MAX_RESERVED} for one model. Take fewer rows, columns or dimensions."
            )


def _size_of_image(path: Path) -> tuple[float, float]:
    """Height and width that a PNG announces; zeros of other files, which are as large as their content."""
    with path.open("rb") as f:
        head = f.read(24)
    if head[:8] != b"\x89PNG\r\n\x1a\n":
        return 0.0, 0.0
    return float(int.from_bytes(head[20:24], "big")), float(int.from_bytes(head[16:20], "big"))


def _check_ranges(node: Node) -> None:
    """Refuse a range that ends before it begins: the compiler takes it for no range at all."""
    for name, switch in _RANGES.items():
        values = numbers(node, name) if name in node.attrib else []
        if len(values) != 2 or node.attrib.get(switch) == "false" or values == [0, 0] or values[0] < values[1]:
            continue
        raise ModelFileError(
            f"{node.where}: {name}={cut(node.attrib[name])!r} of <{node.tag}> {cut(node.attrib.get('name', ''))!r}: "
            f'the first number must be below the second. Swap them, or write {switch}="false".'
        )


# --- what a file may say -----------------------------------------------------------------------------------


@functools.cache
def vocabulary() -> dict[str, set[str]]:
    """The attributes of every MJCF element that this MuJoCo knows; elements of one name are merged."""
    mujoco = mujoco_module()
    words: dict[str, set[str]] = {"include": {"file"}}
    tag = ""
    for line in mujoco.mj_printSchema(False, False).splitlines():
        found = re.match(r" *(\S+) \(\S+\)(.*)", line)
        if found:
            tag = found[1]
            line = found[2]
        words.setdefault(tag, set()).update(line.replace("|", " ").split())
    return words


def unknown_elements(root: Node) -> list[str]:
    """`<tag> (file:line)` for all tags that no MJCF element has."""
    known = vocabulary().keys() | {"body", "frame", "worldbody", "replicate", "composite", "freejoint", "default"}
    return [refused("element", f" <{cut(n.tag)}> ({n.where})") for n in root.walk() if n.tag not in known]
