"""The folders from which a model may take files: paths that stay inside them."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pbad_jax.errors import ModelFileError
from pbad_jax.importers import packages
from pbad_jax.importers.nodes import Node, cut

MESH_FOLDERS = ("assets", "meshes", "mesh", "stls", "objs")  # which packages of robots have beside that of the model
MESH_SUFFIXES = (".stl", ".obj", ".msh", ".dae")


class Roots:
    """The folders from which a model may take files: its own, and those of `package_dirs`.

    A model may come from a stranger, and what it names ends up in animations and messages: it gets nothing that was
    not given with it. Packages of robots often have their meshes beside the model's folder, though, as `../meshes`:
    from such a folder, by the names of MESH_FOLDERS, it may take meshes too, by their suffixes. The folder must be
    there itself, no link to another, and not below the root of the file system. And where the model is part of a
    package it may take the models and meshes of that, see packages.py.
    """

    def __init__(self, folder: Path | None, package_dirs: Iterable[str | os.PathLike] = ()):
        self.folder = None if folder is None else folder.resolve()
        self.packages = [Path(p).resolve() for p in package_dirs]
        self.allowed = ([] if self.folder is None else [self.folder]) + self.packages
        self.own_package = None if self.folder is None else packages.package_of(self.folder)

    def _beside(self) -> list[Path]:
        """The folders of meshes beside the model's."""
        above = None if self.folder is None else self.folder.parent
        if above is None or above == above.parent:
            return []
        return [above / x for x in MESH_FOLDERS if (above / x).is_dir() and not (above / x).is_symlink()]

    def resolve(self, written: str, node: Node, base: Path | None = None, *, mesh: bool = False) -> Path:
        """The real path of a file that the model names.

        Args:
            written: as in the file; relative to `base`.
            node: whose attribute it is.
            base: default the model's folder.
            mesh: whether it is to be a mesh, which may lie beside the model's folder; see the class.

        Raises:
            ModelFileError: a URI, or a path that leads outside the allowed folders once links are followed.
        """
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]", written) or "\0" in written:
            raise ModelFileError(
                f"{node.where}: {cut(written, 200)!r}: only files are read, no URIs. Copy it beside the model."
            )
        try:
            more = self._beside() if mesh and written.lower().endswith(MESH_SUFFIXES) else []
            return self._resolved(written, node, base if base is not None else self.folder, more)
        except OSError as e:  # a name that is too long, a folder that may not be read
            raise _cannot(written, node, e) from None

    def _resolved(self, written: str, node: Node, base: Path | None, more: list[Path]) -> Path:
        if base is None:
            base = next(
                (p for p in self.packages if (p / written).exists()), self.packages[0] if self.packages else None
            )
        if base is None:
            raise ModelFileError(
                f"{node.where}: the path {cut(written, 200)!r} has nothing to be relative to, because the model "
                "is text: load it from a file, or pass package_dirs=(folder,)"
            )
        return self._inside(base / written, self.allowed + more, written, node, self.own_package)

    def package(self, written: str, node: Node) -> Path | None:
        """The real path of `package://NAME/...` (or `model://`), None where no such package is found.

        A package is a folder NAME among or in `package_dirs`, above the model, beside it, or beside a folder
        above it if it holds a package.xml.

        Raises:
            ModelFileError: the path leads outside the package.
        """
        name, _, rest = written.split("://", 1)[1].lstrip("/").partition("/")
        if not re.fullmatch(r"[\w.-]*\w[\w.-]*", name):
            raise ModelFileError(f"{node.where}: {cut(written, 200)!r} names no package")
        if os.path.normpath(rest).startswith(".."):
            raise ModelFileError(f"{node.where}: the path {cut(written, 200)!r} leads outside its package")
        try:
            folder = self._find(name)
            return None if folder is None else self._inside(folder / rest, [folder], written, node)
        except OSError as e:
            raise _cannot(written, node, e) from None

    def _find(self, name: str) -> Path | None:
        for p in self.packages:
            if p.name == name:
                return p
            if (p / name).is_dir():
                return (p / name).resolve()
        above = [] if self.folder is None else [self.folder, *self.folder.parents]
        for p in above:
            if p.name == name and (len(p.parts) > 2 or (p / "package.xml").is_file()):
                return p
            if (p / name).is_dir() and (p == self.folder or (p / name / "package.xml").is_file()):
                return (p / name).resolve()
        return None

    def _inside(self, path: Path, allowed: list[Path], written: str, node: Node, also: Path | None = None) -> Path:
        try:
            real = Path(os.path.realpath(path))
        except (OSError, ValueError):
            real = None
        inside = real is not None and any(real.is_relative_to(root) for root in allowed)
        if real is None or not (inside or (also is not None and packages.given(real, also))):
            raise ModelFileError(
                f"{node.where}: the path {cut(written, 200)!r} leads outside "
                f"{', '.join(map(str, allowed)) or 'every folder'}. Move the file there, or allow another folder: "
                "package_dirs=(folder,), or --package-dir. Without that, ../ reaches the models and meshes of the "
                "model's own package: a folder above it with package.xml, pyproject.toml, setup.py or __init__.py."
            )
        real.exists()  # or OSError: whoever takes the path can ask it
        return real


def _cannot(written: str, node: Node, error: OSError) -> ModelFileError:
    return ModelFileError(f"{node.where}: {cut(written, 200)!r} cannot be read: {error.strerror}")
