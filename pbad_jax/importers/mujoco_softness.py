"""How soft MuJoCo's constraints are, as time constants of springs that give way under a load by as much.

A constraint of MuJoCo's has a reference acceleration of x/(τ ζ d_max)² at the violation x, and leaves a share 1 − d of
the free acceleration a. At rest (1 − d) a = d x/(τ ζ d_max)², so that x is that of a spring mass/τ'² with
τ' = τ ζ d_max √((1 − d)/d). The impedance d grows with x from d₀ to d_max; here it is their mean. With MuJoCo's
defaults τ' is 0.27 τ.
"""

import numpy as np

from pbad_jax.builders.descriptions import Joint
from pbad_jax.importers.mjcf import mujoco_module

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
    safe = not m.opt.disableflags & int(mujoco_module().mjtDisableBit.mjDSBL_REFSAFE)
    by_time = np.maximum(first, 2 * m.opt.timestep if safe else 1e-6) * second
    by_stiffness = 1 / np.sqrt(np.maximum(-first, 1e-12))
    time = np.where((first > 0) & (second > 0), by_time, np.where((first < 0) & (second <= 0), by_stiffness, DEFAULT))
    return time * high * np.sqrt((1 - d) / d)


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
