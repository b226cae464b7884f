"""The crowned distance of the axes of spheres and capsules on two bodies.

A sphere or capsule of radius r is an axis C + σ h, −1 ≤ σ ≤ 1, of its centre C and half h, 0 for a sphere. With d the
crowned distance of two axes (axes.py), c² = CROWN (r_a + r_b)², δ = r_a + r_b − d. By the crown a capsule is thinner at
its ends than in its middle, by 5e-4 (r_a + r_b), and where two are parallel their point wanders within an angle of
about CROWN (r_a + r_b)/‖h‖.

P = (C_a, h_a, C_b, h_b) are generalised points of the two links, and F n, n = ∂d/∂P, forces on them that have no sum
and no moment.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from pbad_jax.contact.gap import Place, links_of, points_of, unit
from pbad_jax.contact.law import below
from pbad_jax.geometry import axes
from pbad_jax.geometry.surfaces import safe_norm
from pbad_jax.laws.instant import Instant
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matvec, small_sum, transpose

CROWN = 1e-3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AxisGap:
    """The crowned distance of two axes, negative where they have passed one another in the step and overlap; a Gap."""

    u: jax.Array  # (c,4,4) centre (p, 1) and half axis (h, 0) of the first, and of the second
    radius: jax.Array  # (c,2) m
    links: tuple = dataclasses.field(metadata=STATIC)  # c tuples of four
    where: jax.Array | None = None  # (c,4) int, during a step
    bodies: ClassVar[slice] = slice(0, None, 2)

    @property
    def reach(self) -> jax.Array:
        """(c,) m."""
        return small_sum(self.radius)

    @property
    def soft(self) -> jax.Array:
        """c² of axes.py, (c,) m²."""
        return CROWN * self.reach**2

    def distance(self, P: jax.Array, at: Instant) -> jax.Array:
        """d (c,) m, with its side."""
        d, n, _ = self.nearest(P)
        return self.side(at, d, n[:, 0]) * d

    def slopes(self, P: jax.Array, at: Instant) -> tuple[jax.Array, jax.Array, jax.Array]:
        """By hand, see axes.py."""
        d, n, curvature = jax.vmap(axes.slopes)(P, self.soft)
        side, k = self.side(at, d, n[:, 0]), 3 * P.shape[1]
        return side * d, side[:, None, None] * n, side[:, None, None] * curvature.reshape(-1, k, k)

    def nearest(self, P: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """d ≥ 0, its gradient (c,4,3), and where along both axes, (c,2) from −1 to 1."""
        return jax.vmap(axes.gap)(P, self.soft)

    def side(self, at: Instant, d: jax.Array, n: jax.Array) -> jax.Array:
        """(c,) −1 where the axes have passed one another since the start of the step and overlap, else 1."""
        passed = small_sum(self.nearest(points_of(self, at.start.T))[1][:, 0] * n) < 0
        return jnp.where(passed & (d < self.reach), -1.0, 1.0).astype(d.dtype)

    def touching(self, at: Instant) -> Place:
        """In the middle of the overlap."""
        d, n, along = self.nearest(points_of(self, at.start.T))
        depth = self.reach - d

        # from the axes along the normal, in the links' frames
        arm = 0.5 * (self.reach - d * safe_norm(n[:, 0]))[:, None] - self.radius
        arm = arm * jnp.asarray([[1.0, -1.0]], n.dtype)
        turned = transpose(at.start.T[links_of(self)[:, self.bodies]][..., :3])
        inside = matvec(turned, arm[..., None] * unit(n[:, 0])[:, None])
        u = self.u[:, ::2] + along[..., None] * self.u[:, 1::2]
        return Place(depth, n[:, 0], u + jnp.concatenate([inside, jnp.zeros_like(arm)[..., None]], axis=-1))

    def pushed(self, P: jax.Array, f: jax.Array) -> jax.Array:
        """On both surfaces."""
        along = jax.vmap(axes.nearest)(P, self.soft)
        return below(P[:, ::2] + along[..., None] * P[:, 1::2], f[:, ::2], self.radius)
