"""What drawing needs and an installation may lack."""

import importlib
from types import ModuleType

INSTALL = 'pip install "pbad_jax[viz]"'


def need(module: str, install: str = INSTALL) -> ModuleType:
    """Import an optional module.

    Raises:
        ImportError: it is missing; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}); drawing needs it: {install}") from error
