"""What a system of torture_steps.py is, and what its systems share."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from helpers import changed, part
from judges import Steps

import pbad_jax as pbad
from pbad_jax import Body, Joint

Numbers = dict[str, np.ndarray]  # of every lane, (n, ...)
R = 0.1  # m, radius of all balls


class System(NamedTuple):
    """A model whose lanes differ in numbers, and what holds of it."""

    model: pbad.Model
    numbers: Callable[[np.random.Generator, int], Numbers]
    lane: Callable[[pbad.Model, Any], pbad.Model]  # the model of one lane's numbers
    start: Callable[[np.random.Generator, int, Numbers], tuple[np.ndarray, np.ndarray, np.ndarray]]  # away, v, dt
    judge: Callable[[Steps, Numbers, "Ends", float], dict[str, np.ndarray]]
    allowed: float  # gain of energy in a step
    has_one_root: bool = True  # near the start; what meets an edge may go to either side, by all laws there are
    drives: Callable[[Any, Any], Any] | None = None  # numbers, q -> J, what the drives give back under numbers["u"]


class Ends(NamedTuple):
    """Configurations before and after."""

    q0: np.ndarray
    q1: np.ndarray


def scaled(force, factor):
    """A force of other strength; its damping stays critical or what it is."""
    return changed(force, stiffness=part(force, "stiffness").stiffness * factor)


def sizes(rng, n: int, least: float, most: float) -> np.ndarray:
    """Evenly by their logarithm, (n,)."""
    return np.exp(rng.uniform(np.log(least), np.log(most), n))


def thrown(rng, n: int, nv: int, fastest: float, spread: float, longest: float = 1.0):
    """away (n,nv) from q0, v and dt (n,): joints move by up to `fastest` rad a step, half of the lanes by little."""
    dt, move = sizes(rng, n, 1e-3, longest), sizes(rng, n, 1e-3, fastest)
    return rng.normal(size=(n, nv)) * spread, rng.normal(size=(n, nv)) * (move / dt)[:, None], dt


def rod(name: str, parent: str | None, *joints: Joint, **how) -> Body:
    """1 kg, 1 m, hanging."""
    at = (0, 0, 0 if parent is None else -1.0)
    return Body(name, 1.0, (0, 0, -0.5), np.diag([1 / 12, 1 / 12, 1e-3]), parent, at, joints=joints, **how)
