"""Friction against turning where bodies touch: about the normal (torsional), and across it (rolling).

With the normal force N and the normal n of the start of the step, as in contact_law.py, and ω the angular velocity of
the body against what it touches,

    torque = −N (μ_t w_n/√(w_n² + s²) n + μ_r w_r/√(|w_r|² + s²)),  w_n = n · ω,  w_r = ω − w_n n,

μ_t and μ_r in m, MuJoCo's condim 4 and 6. A torque is a force on directions: with the axes e_i of the link at the start
of the step, as generalised points whose rates are ė_i,

    ω = ½ Σ e_i × ė_i = Σ A_iᵀ ė_i,  F_i = A_i torque,  A_i = −½ [e_i],

so Σ e_i × F_i is the torque, and the slopes are A_i (∂torque/∂ω) A_jᵀ. Where both bodies move, the other one's A_i have
the other sign.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.forces.force import Instant, PointForces, place
from pbad_jax.forces.regularised import Sliding, no_sliding, primal_dual_coulomb, smooth_coulomb
from pbad_jax.math.rotations import hat
from pbad_jax.math.small import identity_like, matmul, matvec, small_sum, transpose

LEVER = 100.0  # widths of the law: below stick_speed over so much, rad/s, this friction is viscous

Duals = tuple[Sliding, Sliding]  # about the normal (c,1), across it (c,3)


def no_turning(c: int, dtype) -> Duals:
    """Before the first iterate."""
    return no_sliding((c, 1), dtype), no_sliding((c, 3), dtype)


def turning_friction(
    law: Any, N: jax.Array, n: jax.Array, links: np.ndarray | jax.Array, at: Instant, last: Duals | None
) -> tuple[PointForces, Duals | None]:
    """On c places with normal forces N (c,) along n (c,3).

    Args:
        law: whatever has `turning` (c,2), μ_t and μ_r in m, `width` (c,) m and `stick_speed` () m/s.
        links: (c,1) of a body on the world, or (c,2) of two.
        at: the instant. last: the duals of the last iterate, where there is a guide.
    """
    # A_i = −½ [e_i], with the other sign for the other body
    c, bodies = links.shape
    axes = jnp.swapaxes(at.start.T[links][..., :3], -1, -2)  # (c,bodies,3,3), rows e_i
    sign = jnp.asarray([1.0, -1.0], n.dtype)[:bodies]
    A = (-0.5 * sign[None, :, None, None, None] * hat(axes)).reshape(c, 3 * bodies, 3, 3)

    # axes as generalised points (e_i, 0), and ω = Σ A_iᵀ ė_i
    units = jnp.concatenate([jnp.eye(3, dtype=n.dtype), jnp.zeros((3, 1), n.dtype)], axis=1)
    u = jnp.broadcast_to(jnp.tile(units, (bodies, 1)), (c, 3 * bodies, 4))
    of_each = links.repeat(3, axis=1)
    omega = small_sum(matvec(transpose(A), place(at.V, of_each, u)), axis=1)

    # w_n along the normal and w_r across it, each with its own friction
    flat, along = identity_like(n) - n[:, :, None] * n[:, None, :], n[:, None, :]  # along (c,1,3)
    parts = [(matvec(along, omega), along, 0), (matvec(flat, omega), flat, 1)]
    torque, slope, curving, duals = jnp.zeros_like(n), jnp.zeros_like(flat), jnp.zeros_like(n), []
    speed = (law.stick_speed / (LEVER * law.width))[:, None]
    for w, onto, k in parts:
        # Coulomb's direction and its slope; where a solve is led, those of the primal-dual method
        strength = -law.turning[:, k] * N
        if at.guide is None or last is None:
            direction, bent = smooth_coulomb(w, speed)
        else:
            direction, bent, dual = primal_dual_coulomb(w, speed, last[k], at.guide.trust)
            curving = curving + strength[:, None] * matvec(transpose(onto), dual.u)
            duals.append(dual)
        torque = torque + strength[:, None] * matvec(transpose(onto), direction)
        slope = slope + strength[:, None, None] * matmul(transpose(onto), matmul(bent, onto))

    # F_i = A_i torque, and its slopes A_i (∂torque/∂ω) A_jᵀ
    df_dV = jnp.einsum("ciab,cbd,cjed->ciaje", A, slope, A)
    spread = [matvec(A, x[:, None]) for x in (torque, curving)]

    # links that are known while tracing, or arrays of them
    known, where = ((), of_each) if isinstance(of_each, jax.Array) else (_tuples(of_each), None)
    found = PointForces(known, u, spread[0], None, df_dV, None, spread[1] if duals else None, where)
    return found, (duals[0], duals[1]) if duals else None


def _tuples(links: np.ndarray) -> tuple:
    """Of clusters on one link a number each, else of every point one."""
    if (links == links[:, :1]).all():
        return tuple(int(l) for l in links[:, 0])
    return tuple(tuple(int(l) for l in row) for row in links)
