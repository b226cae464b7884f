"""Friction against turning where bodies touch: about the normal (torsional), and across it (rolling).

With the normal force N, the normal n of the start of the step, as in law.py, and ω the angular velocity of
the body against what it touches,

    torque = −N (μ_t w_n/√(w_n² + s²) n + μ_r w_r/√(|w_r|² + s²)),  w_n = n · ω,  w_r = ω − w_n n,

μ_t and μ_r in m, MuJoCo's condim 4 and 6. A torque is a force on directions: with the axes e_i of the link at the start
of the step, as generalised points whose rates are ė_i,

    ω = ½ Σ e_i × ė_i = Σ A_iᵀ ė_i,  F_i = A_i torque,  A_i = −½ [e_i],

so Σ e_i × F_i is the torque, and the slopes are A_i (∂torque/∂ω) A_jᵀ. Where both bodies move, the other one's A_i have
the other sign.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import place
from pbad_jax.laws.smoothing import Sliding, no_sliding, primal_dual_coulomb, smooth_coulomb
from pbad_jax.math.rotations import hat
from pbad_jax.math.small import identity_like, matmul, matvec, small_sum, transpose

LEVER = 100.0  # widths of the law: below stick_speed over so much, rad/s, this friction is viscous

Duals = tuple[Sliding, Sliding]  # about the normal (c,1), across it (c,3)


def no_turning(c: int, dtype) -> Duals:
    """Before the first iterate."""
    return no_sliding((c, 1), dtype), no_sliding((c, 3), dtype)


class Turning(NamedTuple):
    """Friction against turning under a normal force of 1 N, by the axes of b bodies, and its slope."""

    u: jax.Array  # (c,3b,4)
    force: jax.Array  # (c,3b,3) N
    by_V: jax.Array  # (c,3b,3,3b,3) N s
    curving: jax.Array | None  # (c,3b,3) N
    dual: Duals | None


def turning_friction(law: Any, n: jax.Array, links: np.ndarray | jax.Array, at: Instant, last: Duals | None) -> Turning:
    """On c places of normals n (c,3).

    Args:
        law: whatever has `turning` (c,2), μ_t and μ_r in m, `width` (c,) m and `stick_speed` (c,) m/s.
        links: (c,1) of a body on the world, or (c,2) of two.
        at: the instant. last: the duals of the last iterate, where there is a guide.
    """
    c, bodies = links.shape

    # the angular velocity by the rates of the axes
    axes = jnp.swapaxes(at.start.T[links][..., :3], -1, -2)  # (c,bodies,3,3), rows e_i
    sign = jnp.asarray([1.0, -1.0], n.dtype)[:bodies]
    A = (-0.5 * sign[None, :, None, None, None] * hat(axes)).reshape(c, 3 * bodies, 3, 3)
    units = jnp.concatenate([jnp.eye(3, dtype=n.dtype), jnp.zeros((3, 1), n.dtype)], axis=1)
    u = jnp.broadcast_to(jnp.tile(units, (bodies, 1)), (c, 3 * bodies, 4))
    omega = small_sum(matvec(transpose(A), place(at.V, links.repeat(3, axis=1), u)), axis=1)

    # the torque about the normal, and that across it
    flat, along = identity_like(n) - n[:, :, None] * n[:, None, :], n[:, None, :]  # along (c,1,3)
    parts = [(matvec(along, omega), along, 0), (matvec(flat, omega), flat, 1)]
    torque, slope, curving, duals = jnp.zeros_like(n), jnp.zeros_like(flat), jnp.zeros_like(n), []
    speed = (law.stick_speed / (LEVER * law.width))[:, None]
    for w, onto, k in parts:
        strength = -law.turning[:, k]
        if at.guide is None or last is None:
            direction, bent = smooth_coulomb(w, speed)
        else:
            direction, bent, dual = primal_dual_coulomb(w, speed, last[k], at.guide.trust)
            curving = curving + strength[:, None] * matvec(transpose(onto), dual.u)
            duals.append(dual)
        torque = torque + strength[:, None] * matvec(transpose(onto), direction)
        slope = slope + strength[:, None, None] * matmul(transpose(onto), matmul(bent, onto))

    # as forces on the axes
    by_V = jnp.einsum("ciab,cbd,cjed->ciaje", A, slope, A)
    force, through = (matvec(A, x[:, None]) for x in (torque, curving))
    return Turning(u, force, by_V, through if duals else None, (duals[0], duals[1]) if duals else None)
