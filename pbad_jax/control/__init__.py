"""Control of any task of `pbad_jax.envs`: plans by iLQR and by sampling (MPPI), for model-predictive control too."""

from pbad_jax.control.ilqr import Plan, ilqr
from pbad_jax.control.mppi import Sampled, mppi, shifted

__all__ = ["Plan", "Sampled", "ilqr", "mppi", "shifted"]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
