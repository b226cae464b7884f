"""Contact of points and spheres of the bodies with a surface of the world: smooth penalty, smooth Coulomb friction.

For a sphere of radius r about P (r = 0: a point), with d(P) the signed distance and n its gradient,

    δ = r − d(P),  δ̇ = −n · V,   normal force  F n,  F = k ramp(δ) g(1 + χ δ̇),

ramp and g of regularised.py: C¹ forces, nothing pulls, and damping acts only under pressure (Hunt and Crossley).
Friction is lagged: with the elastic normal force N, the normal n and the touching point of the body all taken at the
start of the step,

    f = −μ N w/√(w² + s²),   w the tangential velocity of that point,

which is minus the gradient of a dissipation, so the Newton matrix of one stage stays symmetric (Li et al. 2020, IPC).
Nothing depends on dt: a block on a slope tan θ < μ creeps at s tan θ/√(μ² − tan² θ).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces import surfaces
from pbad_jax.forces.regularised import ramp, smooth_coulomb, smooth_positive_part
from pbad_jax.math.small import identity_like, matvec, small_sum

G0 = 9.81  # m/s², for the smooth start of the penalty


def normal_force(law: Any, reach: jax.Array, d: jax.Array, n: jax.Array, hessian: jax.Array, V: jax.Array):
    """The normal forces where a distance d falls below `reach`, and their slopes.

    Args:
        law: whatever has stiffness, width and damping, (c,).
        reach: (c,) m. d: (c,) m, distances as functions of the k coordinates of what takes part.
        n: (c,k) their gradients. hessian: (c,k,k) their curvatures, 1/m. V: (c,k) the rates of the coordinates, m/s.

    Returns:
        F n (c,k) N, and its derivatives by the coordinates and by their rates, (c,k,k).
    """
    _, elastic, slope = ramp(reach - d, law.width)
    g, g_slope = smooth_positive_part(1 - law.damping * small_sum(n * V))
    F, by_depth = law.stiffness * elastic * g, law.stiffness * slope * g
    by_rate = law.stiffness * elastic * g_slope * law.damping
    nn = n[:, :, None] * n[:, None, :]
    turning = n[:, :, None] * matvec(hessian, V)[:, None, :]
    df_dP = F[:, None, None] * hessian - by_depth[:, None, None] * nn - by_rate[:, None, None] * turning
    return F[:, None] * n, df_dP, -by_rate[:, None, None] * nn


def elastic_normal_force(law: Any, depth: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
    """N (c,) of penetrations (c,) without damping, and the unit normals of gradients n (c,3); see `normal_force`."""
    size = surfaces.safe_norm(n)  # 1 only where the distance is exact
    return law.stiffness * ramp(depth, law.width)[1] * size, n / jnp.where(size > 0, size, 1.0)[:, None]


def coulomb_friction(law: Any, N: jax.Array, n: jax.Array, V: jax.Array, regime: str) -> tuple[jax.Array, jax.Array]:
    """Smooth Coulomb friction under normal forces N (c,) along n (c,3) at relative velocities V (c,3), and its slope.

    `law` has friction (c,) and stick_speed (); `regime` as in `Instant`.
    """
    flat = identity_like(n) - n[:, :, None] * n[:, None, :]
    direction, slope = smooth_coulomb(matvec(flat, V), law.stick_speed[None, None], regime)
    strength = -law.friction * N
    return strength[:, None] * direction, strength[:, None, None] * jnp.einsum("cij,cjk->cik", slope, flat)


def parameters(
    kind: str, mass: np.ndarray, tau, friction, stiffness, smoothing, damping, stick_speed
) -> dict[str, np.ndarray]:
    """The numbers of a contact as the fields of Contact: (c,) each, and stick_speed ().

    Args:
        kind: the maker's name, for the errors.
        mass: (c,) kg. tau: () or (c,) s, > 0; both set the stiffness where it is None.
        friction: () or (c,). The others as in `contact`.

    Raises:
        ModelError: negative or zero values.
    """
    one = np.ones(len(mass))
    k = mass / (tau * one) ** 2 if stiffness is None else one * checks.above_zero(stiffness, f"stiffness of {kind}")
    width = G0 * mass / k if smoothing is None else one * checks.above_zero(smoothing, f"smoothing of {kind}")
    mu = one * np.asarray(friction, float)
    if not np.all(mu >= 0):
        raise ModelError(f"friction of {kind} is {np.min(mu):g}; it must be ≥ 0, or it would drive. Change its sign.")
    chi = one * checks.at_least_zero(damping, f"damping of {kind}", "or it makes energy")
    slow = np.asarray(checks.above_zero(stick_speed, f"stick_speed of {kind}"))
    return {"stiffness": k, "width": width, "damping": chi, "friction": mu, "stick_speed": slow}


def is_elastic(numbers: dict[str, np.ndarray]) -> bool:
    """Whether a contact with these parameters is conservative: without damping and friction."""
    return not numbers["damping"].any() and not numbers["friction"].any()
