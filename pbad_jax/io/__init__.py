"""Files: models (MJCF, URDF), trajectories, and rollouts that outlive their process."""

from pbad_jax.io.load import LoadReport, load
from pbad_jax.io.long_rollouts import long_rollout
from pbad_jax.io.trajectories import load_trajectory, save_trajectory

__all__ = ["LoadReport", "load", "load_trajectory", "long_rollout", "save_trajectory"]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
