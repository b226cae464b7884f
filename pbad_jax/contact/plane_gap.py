"""The distance of points on one body from planes on another, by which shapes are held apart for a step.

For the length of the step the plane stays on the flatter body B, and the places on theirs: with C_a and x_b generalised
points of the two links and n the plane's normal, carried by B,

    d = n · (C_a − x_b),   δ = reach − d.

C_a is a point of A or, where A is round, the middle of what rolls there, and its radius is part of `reach`.
P = (C_a, x_b, n) and ∂d/∂P = (n, −n, C_a − x_b): the forces have no sum and no moment, and the curvature of d is
constant.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.contact.gap import Place, links_of, points_of
from pbad_jax.contact.law import below
from pbad_jax.laws.instant import Instant
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matvec, small_sum, transpose

BENT = np.zeros((3, 3, 3, 3))  # ∂²d/∂P²: of n with C_a, and less of n with x_b
for _i, _sign in ((0, 1.0), (1, -1.0)):
    BENT[_i, :, 2, :] = BENT[2, :, _i, :] = _sign * np.eye(3)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PlaneGap:
    """The distance of c points on A from planes on B; see the module; a Gap."""

    where: jax.Array  # (c,3) int, of A, B, B
    u: jax.Array  # (c,3,4) C_a, x_b and n in their links' frames
    reach: jax.Array  # (c,) m
    links: tuple = dataclasses.field(default=(), metadata=STATIC)
    bodies: ClassVar[slice] = slice(0, 2)

    def distance(self, P: jax.Array, at: Any = None) -> jax.Array:
        """d (c,) m of P (c,3,3)."""
        return small_sum(P[:, 2] * (P[:, 0] - P[:, 1]))

    def gradient(self, P: jax.Array) -> jax.Array:
        """∂d/∂P (c,3,3)."""
        return jnp.stack([P[:, 2], -P[:, 2], P[:, 0] - P[:, 1]], axis=1)

    def slopes(self, P: jax.Array, at: Instant) -> tuple[jax.Array, jax.Array, jax.Array]:
        """d is bilinear."""
        curvature = jnp.broadcast_to(jnp.asarray(BENT.reshape(1, 9, 9), P.dtype), (len(P), 9, 9))
        return self.distance(P), self.gradient(P), curvature

    def touching(self, at: Instant) -> Place:
        """In the middle of the overlap."""
        P = points_of(self, at.start.T)
        depth, n = self.reach - self.distance(P), P[:, 2]
        middle = P[:, 0] - (self.reach - 0.5 * depth)[:, None] * n
        frames = at.start.T[links_of(self)[:, self.bodies]]
        inside = matvec(transpose(frames[..., :3]), middle[:, None] - frames[..., 3])
        return Place(depth, n, jnp.concatenate([inside, jnp.ones_like(inside[..., :1])], axis=-1))

    def pushed(self, P: jax.Array, f: jax.Array) -> jax.Array:
        """On A, and on the plane."""
        return jnp.stack([below(P[:, 0], f[:, 0], self.reach), P[:, 1]], axis=1)
