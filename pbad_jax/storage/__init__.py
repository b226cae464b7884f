"""What outlives a process: trajectories on disk, and long rollouts that go on after a crash."""

from pbad_jax.storage.long_rollouts import long_rollout
from pbad_jax.storage.trajectories import load_trajectory, save_trajectory

__all__ = ["load_trajectory", "long_rollout", "save_trajectory"]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
