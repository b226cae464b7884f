"""The model files of gymnasium, found in its wheel; none of them is copied."""

import importlib.util
import pathlib
from typing import Any

from pbad_jax.errors import TaskError
from pbad_jax.importers.load import load
from pbad_jax.model.model import Model

NEEDS = 'pip install "pbad_jax[models,rl]"'


def gymnasium_model(file: str, model: Model | None = None, dtype=None, constraints: Any = "spring") -> Model:
    """The model of one of gymnasium's MuJoCo files, or the one that is given instead; constraints: as of `load`.

    Raises:
        TaskError: gymnasium is not installed, or has no such file.
    """
    if model is not None:
        if not isinstance(model, Model):
            raise TaskError(f"model is {type(model).__name__} {model!r:.60}; wanted a Model, or None for {file!r}")
        return model
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or not spec.submodule_search_locations:
        raise TaskError(f"{file!r} is a file of gymnasium, which is not installed: {NEEDS}")
    path = pathlib.Path(spec.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / file
    if not path.is_file():
        raise TaskError(f"gymnasium has no file {str(path)!r}; its version 1.2 or newer has: {NEEDS}")
    return load(path, unsupported="warn", dtype=dtype, constraints=constraints)[0]
