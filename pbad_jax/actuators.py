"""Actuators: what a control drives, described in Python and checked."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pbad_jax.checks import interval, known, number, vector
from pbad_jax.errors import ModelError
from pbad_jax.forces.drives import Actuation
from pbad_jax.model import JointInfo


@dataclasses.dataclass(frozen=True)
class Actuator:
    """force = clip(gain · clip(control) + bias · (1, gear q, gear v)); the joint feels gear · force.

    MuJoCo's motor (gain 1, bias 0), position servo (gain kp, bias (0, −kp, −kv)), velocity servo and general
    affine actuator, on a hinge or a slide. Ranges None = unlimited.
    """

    joint: str
    name: str = ""
    gear: float = 1.0
    gain: float = 1.0
    bias: Any = (0.0, 0.0, 0.0)
    control_range: Any = None
    force_range: Any = None


class Drive(NamedTuple):
    """A checked Actuator."""

    name: str
    q: int
    v: int
    gear: float
    gain: float
    bias: np.ndarray
    control_range: tuple[float, float]
    force_range: tuple[float, float]


def check_actuator(a: Actuator, joints: Sequence[JointInfo]) -> Drive:
    """An actuator of one of these joints.

    Raises:
        ModelError: an unknown joint or one of several degrees of freedom, bad numbers.
    """
    name = a.name or f"{a.joint}_actuator"
    where = f"actuator {name!r}"
    joint = joints[known(a.joint, [j.name for j in joints], f"joint of {where}")]
    if joint.nv != 1:
        raise ModelError(f"{where}: joint {a.joint!r} is {joint.type}; an actuator drives a hinge or a slide")
    return Drive(
        name, joint.q, joint.v, number(a.gear, f"gear of {where}"), number(a.gain, f"gain of {where}"),
        vector(a.bias, 3, f"bias of {where}"), interval(a.control_range, f"control_range of {where}"),
        interval(a.force_range, f"force_range of {where}"),
    )  # fmt: skip


def actuation(drives: Sequence[Drive], leaf: Callable) -> Actuation:
    """The force of these actuators; leaf makes (array, *shape) an array of the model's dtype."""
    n = len(drives)
    return Actuation(
        gear=leaf([d.gear for d in drives], n),
        gain=leaf([d.gain for d in drives], n),
        bias=leaf([d.bias for d in drives], n, 3),
        control_range=leaf([d.control_range for d in drives], n, 2),
        force_range=leaf([d.force_range for d in drives], n, 2),
        q_index=tuple(d.q for d in drives),
        v_index=tuple(d.v for d in drives),
    )
