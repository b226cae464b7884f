"""The package that a model file belongs to: from it `../` may take models, meshes and height fields.

Its folder is the nearest one above the model's that a package would have: it holds package.xml, pyproject.toml,
setup.py, setup.cfg or `__init__.py`, or its name is that of an installed distribution beside it (NAME-1.0.dist-info),
or it is called assets. A folder of Python code counts with the Python package around it. A model may come from a
stranger who knows nothing of the folders above it, so what is no package is never one: the root of the file system,
the folders right below it (/tmp, /home), home and what is above home; nor does a link make a package. Hidden files and
folders in it (.git, .ssh) are not given.
"""

import re
from pathlib import Path

FILES = ("package.xml", "pyproject.toml", "setup.py", "setup.cfg", "__init__.py")
FOLDERS = re.compile(r"assets(_v\d+)?")
LEVELS = 6  # how far above the model
SUFFIXES = (".xml", ".mjcf", ".urdf", ".stl", ".obj", ".msh", ".dae", ".png")


def package_of(folder: Path) -> Path | None:
    """The folder of the package, or None.

    Args:
        folder: that of the model, without links.
    """
    for place in [folder, *folder.parents][: LEVELS + 1]:
        if not _may_be(place):
            return None
        if _is_package(place):
            while _holds(place.parent, "__init__.py") and _may_be(place.parent):
                place = place.parent
            if place != folder:
                return place
    return None


def given(path: Path, package: Path | None) -> bool:
    """Whether a file, by its path without links, is one of the package's that a model may take."""
    if package is None or not path.is_relative_to(package) or path.suffix.lower() not in SUFFIXES:
        return False
    return not any(part.startswith(".") for part in path.relative_to(package).parts)


def _may_be(place: Path) -> bool:
    """Whether the folder could be a package: it is deep enough, and neither home nor above it."""
    try:
        home = Path.home().resolve()
    except (RuntimeError, OSError):
        home = Path("/")
    return len(place.parts) > 2 and place != home and place not in home.parents


def _is_package(place: Path) -> bool:
    if FOLDERS.fullmatch(place.name) or any(_holds(place, name) for name in FILES):
        return True
    return any(x.is_dir() and not x.is_symlink() for x in place.parent.glob(f"{_plain(place.name)}-*.dist-info"))


def _holds(place: Path, name: str) -> bool:
    """Whether a file of this name, no link, is there."""
    return (place / name).is_file() and not (place / name).is_symlink()


def _plain(name: str) -> str:
    """For a pattern of glob."""
    return re.sub(r"[^\w.-]", "?", name)
