"""The paper's baseline: Newton–Euler dynamics (RNEA, CRBA, ABA) with explicit integrators.

`dynamics/newton_euler.py` has the algorithms, `rollouts/explicit.py` the steps.
"""

from pbad_jax.dynamics.newton_euler import acceleration, inverse_dynamics, mass_matrix
from pbad_jax.rollouts.explicit import METHODS, make_step, rollout

__all__ = ["METHODS", "acceleration", "inverse_dynamics", "make_step", "mass_matrix", "rollout"]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
