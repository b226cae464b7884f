"""Environments for learning and control: tasks, resets, many lanes under a policy. Pure functions of pytrees.

`make` and `wrap` give an `Env`; `unroll` runs many lanes of it. Adapters, imported where they are wanted:
`pbad_jax.envs.gymnasium`, `pbad_jax.envs.brax`, `pbad_jax.envs.gymnax`.
"""

from pbad_jax.envs.catalogue import TASKS, make
from pbad_jax.envs.env import Env
from pbad_jax.envs.state import EnvState, Metrics, Params
from pbad_jax.envs.task import Task, Transition
from pbad_jax.envs.unroll import Rows, unroll
from pbad_jax.envs.wrap import wrap

__all__ = ["TASKS", "Env", "EnvState", "Metrics", "Transition", "Params", "Task", "Rows", "make", "unroll", "wrap"]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
