"""The distance of two axes, crowned: where it is least, and how that follows their ends.

An axis is C + σ h, −1 ≤ σ ≤ 1, its centre and half of it, h = 0 for the centre of a sphere. Of two,
P = (C_a, h_a, C_b, h_b) and x = C_a + σ h_a − C_b − τ h_b; the distance is

    d = min over σ and τ of √(‖x‖² + c² (σ² + τ²)).

c adds a crown, as rollers have it. A plain distance has a kink where axes are parallel, and its point jumps from end to
end; here it wanders, within an angle of about c²/(r_a + r_b)/‖h‖. n = ∂d/∂P = (x, σ x, −x, −τ x)/d because σ and τ are
where the minimum is.
"""

import jax
import jax.numpy as jnp

from pbad_jax.geometry.surfaces import TINY
from pbad_jax.math.small import small_sum


def gap(P: jax.Array, soft: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """d () and n (4,3) of P (4,3), and (σ, τ); `soft` is c², m². No direction where d = 0."""
    along = nearest(P, soft)
    x = P[0] - P[2] + along[0] * P[1] - along[1] * P[3]
    square = x @ x + soft * (along @ along)
    apart = square > TINY**2
    d = jnp.sqrt(jnp.where(apart, square, 1.0))
    weights = jnp.stack([jnp.ones_like(d), along[0], -jnp.ones_like(d), -along[1]])
    return jnp.where(apart, d, 0.0), jnp.where(apart, weights[:, None] * x[None] / d, 0.0), along


def slopes(P: jax.Array, soft: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """d () and, with w = (1, σ, −1, −τ), n (4,3) and

        ∂n/∂P (4,3,4,3) = (w wᵀ ⊗ E − Σ_kl F_k (M⁻¹)_kl F_lᵀ − n nᵀ)/d,   F_k = ∂w/∂s_k ⊗ x + w ⊗ e_k,

    s = (σ, τ) where they are free, not at an end, e = ∂x/∂s = (h_a, −h_b) and M = eᵀe + c² E: how the minimum follows.
    """
    # where the minimum is, with x = Σ w_i P_i there
    d, n, s = gap(P, soft)
    w = jnp.stack([jnp.ones_like(d), s[0], -jnp.ones_like(d), -s[1]])
    x, one = small_sum(w[:, None] * P, axis=0), jnp.eye(3, dtype=P.dtype)

    # an end does not move on: only what is free follows, by F_k = ∂w/∂s_k ⊗ x + w ⊗ e_k
    free = jnp.abs(s) < 1.0
    e = jnp.where(free[:, None], jnp.stack([P[1], -P[3]]), 0.0)
    turns = jnp.where(free[:, None], jnp.asarray([[0, 1, 0, 0], [0, 0, 0, -1]], P.dtype), 0.0)  # ∂w/∂s
    F = turns[:, :, None] * x[None, None] + jnp.where(free[:, None, None], w[None, :, None] * e[:, None, :], 0.0)

    # M⁻¹ in closed form, its determinant from a cross product, which does not cancel
    (a, b), g, across = small_sum(e * e) + soft, small_sum(e[0] * e[1]), jnp.cross(e[0], e[1])
    determinant = across @ across + soft * (a + b - soft)
    inverse = jnp.stack([jnp.stack([b, -g]), jnp.stack([-g, a])]) / determinant
    lead = small_sum(inverse[:, :, None, None] * F[None], axis=1)  # M⁻¹ F
    follow = small_sum(F[:, :, :, None, None] * lead[:, None, None, :, :], axis=0)

    # the formula; zero where d = 0, which has no direction
    both = w[:, None, None, None] * w[None, None, :, None] * one[None, :, None, :]
    apart = d > 0
    curved = (both - follow - n[:, :, None, None] * n[None, None]) / jnp.where(apart, d, 1.0)
    return d, n, jnp.where(apart, curved, 0.0)


def nearest(P: jax.Array, soft: jax.Array) -> jax.Array:
    """(σ, τ) of the least ‖x‖² + c² (σ² + τ²) in the square −1 ≤ σ, τ ≤ 1.

    Clipped one after the other (Ericson, Real-Time Collision Detection, 5.1.9), which is exact because the function is
    convex; determinants as cross products, which keep their sign in float32. c² > 0 is all that degenerate axes need.
    """
    x, h, e = P[0] - P[2], P[1], P[3]
    hh, ee, across = h @ h + soft, e @ e + soft, jnp.cross(h, e)
    determinant = across @ across + soft * (hh + ee - soft)
    sigma = jnp.clip(-(across @ jnp.cross(x, e) + soft * (x @ h)) / determinant, -1.0, 1.0)
    tau = jnp.clip((sigma * (h @ e) + x @ e) / ee, -1.0, 1.0)
    return jnp.stack([jnp.clip((tau * (h @ e) - x @ h) / hh, -1.0, 1.0), tau])
