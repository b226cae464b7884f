"""Models from files: MJCF and URDF, through MuJoCo's compiler."""

from pbad_jax.importers.load import LoadReport, load

__all__ = ["LoadReport", "load"]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
