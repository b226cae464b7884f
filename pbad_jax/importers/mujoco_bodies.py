"""What MuJoCo moves as one, and the makers of forces that need the finished model."""

from collections.abc import Callable

import numpy as np

from pbad_jax.forces import Force
from pbad_jax.model.model import Model

Maker = Callable[[Model], Force | tuple[Force, ...]]


def joined_to(m) -> np.ndarray:
    """Of every body the first that it moves as one with; 0, the world, for mocap bodies too, which stand still here."""
    still = np.flatnonzero(m.body_mocapid >= 0)
    return np.where(np.isin(welded(m), still), 0, m.body_weldid)


def welded(m) -> np.ndarray:
    """`body_weldid`, where mocap bodies stand for themselves; before MuJoCo 3.12 they count as the world."""
    out = m.body_weldid.copy()
    for b in range(1, m.nbody):
        if m.body_mocapid[b] >= 0:
            out[b] = b
        elif m.body_jntnum[b] == 0:
            out[b] = out[m.body_parentid[b]]
    return out
