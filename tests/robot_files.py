"""The files of real robots that come with example-robot-data, gymnasium, dm_control and mujoco-mjx."""

import functools
import importlib
import importlib.util
import pathlib
from typing import Any

from pbad_jax.importers.load import _load

pin: Any = importlib.import_module("pinocchio")  # it has no types
GYMNASIUM, SUITE = "envs/mujoco/assets", "suite"


def example_robots() -> pathlib.Path:
    # the wheels share one prefix
    return pathlib.Path(pin.__file__).parents[4] / "share" / "example-robot-data" / "robots"


def package(name: str) -> pathlib.Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations, f"{name} is not installed"
    return pathlib.Path(spec.submodule_search_locations[0])


@functools.cache
def urdfs() -> dict[str, pathlib.Path]:
    files = sorted(example_robots().rglob("*.urdf"))
    names = [f.stem for f in files]
    return {f.stem if names.count(f.stem) == 1 else f"{f.parts[-3]}/{f.stem}": f for f in files}


def load_quietly(path, **options):
    return _load(path, **options)[:2]


@functools.cache
def mjcfs() -> dict[str, pathlib.Path]:
    folders = {"gymnasium": package("gymnasium") / GYMNASIUM, "dm_control": package("dm_control") / SUITE}
    return {f"{k}/{f.stem}": f for k, folder in folders.items() for f in sorted(folder.glob("*.xml"))}


def shadow_hand() -> pathlib.Path:
    """A ball above the Shadow hand, one of the models with which MJX is tested."""
    return package("mujoco") / "mjx" / "test_data" / "shadow_hand" / "scene_right.xml"
