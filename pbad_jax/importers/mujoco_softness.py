"""How soft MuJoCo's constraints are, as time constants of springs that give way under a load by as much.

A constraint of MuJoCo's has a reference acceleration of x/(τ ζ d_max)² at the violation x, and leaves a share 1 − d of
the free acceleration a. At rest (1 − d) a = d x/(τ ζ d_max)², so that x is that of a spring mass/τ'² with
τ' = τ ζ d_max √((1 − d)/d). The impedance d grows with x from d₀ to d_max; here it is their mean. With MuJoCo's
defaults τ' is 0.27 τ.

`soft_ends` takes the whole of it, the damper and the inertia too: F = m (κ x + β ẋ + ẍ)₊ with m = d/(1 − d) of the
inertia that is felt, κ = 1/(d τ² ζ²), β = 2/(d τ) and d = d_max.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from pbad_jax import checks
from pbad_jax.builders.descriptions import Joint
from pbad_jax.contact.dispatch import CONTACTS
from pbad_jax.importers.mjcf import mujoco_module
from pbad_jax.laws.lengths import Joints
from pbad_jax.laws.line_force import LineForce
from pbad_jax.laws.line_laws import Limit
from pbad_jax.laws.soft_end import SoftEnd, has_inertia
from pbad_jax.model.model import Model

LEAST = 1e-15  # of what MuJoCo calls an inverse weight
DEFAULT = 0.02  # s, τ of what is neither of solref's two forms
USUAL = DEFAULT * 0.95 * np.sqrt(0.075 / 0.925)  # s, τ' of MuJoCo's defaults


def spring_time(m, solref: np.ndarray, solimp: np.ndarray) -> np.ndarray:
    """τ' (c,) s of c constraints.

    Args:
        m: mjModel; τ is at least two of its time steps, where its flag `refsafe` is not off.
        solref: (c,2) τ in s and ζ, or −stiffness in s⁻² and −damping, of which τ ζ = 1/√stiffness.
        solimp: (c,5), of which d₀ and d_max are used.
    """
    (first, second), (low, high) = np.reshape(solref, (-1, 2)).T, np.reshape(solimp, (-1, 5))[:, :2].T
    low, high = (np.clip(x, 1e-4, 0.9999) for x in (low, high))
    d = 0.5 * (low + high)
    by_time = np.maximum(first, _least_time(m)) * second
    by_stiffness = 1 / np.sqrt(np.maximum(-first, 1e-12))
    time = np.where((first > 0) & (second > 0), by_time, np.where((first < 0) & (second <= 0), by_stiffness, DEFAULT))
    return time * high * np.sqrt((1 - d) / d)


def soft_ends(m, solref: np.ndarray, solimp: np.ndarray, felt: np.ndarray) -> np.ndarray:
    """Stiffness, relaxation and inertia (c,3) of the SoftEnds of c constraints, of which `felt` (c,) is the inertia."""
    (first, second), high = np.reshape(solref, (-1, 2)).T, np.clip(np.reshape(solimp, (-1, 5))[:, 1], 1e-4, 0.9999)
    by_time, by_stiffness = (first > 0) & (second > 0), (first < 0) & (second <= 0)
    tau = np.where(by_time, np.maximum(first, _least_time(m)), DEFAULT)
    ratio = np.where(by_time, second, 1.0)

    # κ in 1/s² and β in 1/s, by times or as they stand
    spring = np.where(by_stiffness, -first, 1 / (tau * ratio) ** 2) / high
    damper = np.where(by_stiffness, -second, 2 / tau) / high
    inertia = high / (1 - high) * felt
    return np.stack([inertia * spring, damper / spring, inertia], axis=-1)


def with_end(force: Any, numbers: np.ndarray | None, leaf: Callable) -> Any:
    """A limit or contact with the SoftEnds of soft_ends, of all its numbers; None: as springs, damped by themselves."""
    end = None if numbers is None else SoftEnd(*map(leaf, numbers.T))
    if isinstance(force, LineForce):
        return dataclasses.replace(force, law=with_end(force.law, numbers, leaf))
    return dataclasses.replace(force, end=end, conservative=force.conservative and end is None)


def without_end(force: Any) -> Any:
    """A force as it is with springs."""
    return with_end(force, None, lambda x: x) if has_inertia(force) else force


def as_in_mujoco(m, model: Model) -> Model:
    """The model of an mjModel m with SoftEnds for the limits of hinges and slides too, and friction by pyramids."""
    joint, leaf = np.asarray(m.dof_jntid), checks.leaf(model.dtype)
    ends = soft_ends(m, m.jnt_solref[joint], m.jnt_solimp[joint], 1 / np.maximum(m.dof_invweight0, LEAST))
    pyramids = m.opt.cone == mujoco_module().mjtCone.mjCONE_PYRAMIDAL

    def changed(force: Any) -> Any:
        if pyramids and isinstance(force, CONTACTS):
            return dataclasses.replace(force, pyramid=bool(np.any(np.asarray(force.friction) > 0)))
        if not (isinstance(force, LineForce) and isinstance(force.length, Joints) and isinstance(force.law, Limit)):
            return force
        own = force.length.v_index
        return with_end(force, ends if own is None else ends[list(own)], leaf)

    return dataclasses.replace(model, forces=tuple(map(changed, model.forces)))


def _least_time(m) -> float:
    """Of a time constant, s: two of the file's time steps, where its flag `refsafe` is not off."""
    safe = not m.opt.disableflags & int(mujoco_module().mjtDisableBit.mjDSBL_REFSAFE)
    return 2 * m.opt.timestep if safe else 1e-6


def usual(time: np.ndarray | float, *, turns: bool) -> dict[str, np.ndarray | float]:
    """Width, damping and stick speed of a law with the time constant τ' in s, which MuJoCo's files do not give.

    They are those of a Joint at MuJoCo's default; what moves alike at another size, s times as large and √s times as
    slow, has them at that size: lengths go as τ'², their speeds as τ', angular speeds as 1/τ'.
    """
    scale = time / USUAL
    length, slow = (1.0, 1 / scale) if turns else (scale**2, scale)
    return {
        "width": Joint.limit_width * length,
        "damping": Joint.limit_damping / slow,
        "stick_speed": Joint.stick_speed * slow,
    }


def mixed(solref: np.ndarray, other: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The solref (c,2) of contacts between geoms of solref and other, of which the first has this share (c,)."""
    times = (solref[..., :1] > 0) & (other[..., :1] > 0)
    mean = share[:, None] * solref + (1 - share)[:, None] * other
    return np.where(times, mean, np.minimum(solref, other))
