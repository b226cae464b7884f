"""What touches: a gap, its points, and how far apart they are."""

from typing import ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.geometry.surfaces import safe_norm
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.load import each_link, place
from pbad_jax.math.small import small_sum


class Place(NamedTuple):
    """Where c pairs touch at the start of a step, on each of b bodies: one, on the world, or two."""

    depth: jax.Array  # (c,) m
    n: jax.Array  # (c,3) the gradient of the distance by the first one's place; a unit where the distance is exact
    u: jax.Array  # (c,b,4) the points that touch, in their links' frames


class Gap(Protocol):
    """c distances, a pytree of arrays (c,...); of one's own: see `contact_load`.

    A gap knows its links when the model is built, or finds them in a step; see PointForces.
    """

    bodies: ClassVar[slice]  # of the k points one on each of the b bodies

    @property
    def links(self) -> tuple:
        """c links, or c tuples of k."""
        ...

    @property
    def where(self) -> jax.Array | None:
        """(c,k) instead."""
        ...

    @property
    def u(self) -> jax.Array:
        """(c,k,4) the points of which the distance is a function."""
        ...

    @property
    def reach(self) -> jax.Array:
        """(c,) m, the distance below which they overlap."""
        ...

    def distance(self, P: jax.Array, at: Instant) -> jax.Array:
        """d (c,) m at the points P (c,k,3)."""
        ...

    def slopes(self, P: jax.Array, at: Instant) -> tuple[jax.Array, jax.Array, jax.Array]:
        """d (c,), its gradient (c,k,3), its curvature (c,3k,3k) 1/m."""
        ...

    def touching(self, at: Instant) -> Place:
        """Where they touch at the start of the step."""
        ...

    def pushed(self, P: jax.Array, f: jax.Array) -> jax.Array:
        """(c,b,3) m, where the forces f (c,k,3) on the points P act on the surfaces of the bodies, for a picture."""
        ...


def depths(gap: Gap, at: Instant) -> jax.Array:
    """δ (c,) m; negative where they are apart."""
    return gap.reach - gap.distance(points_of(gap, at.T), at)


def depth_at(gap: Gap, start: Start, at: Instant) -> tuple[jax.Array, jax.Array]:
    """δ (c,) m and its rate at the start of a step."""
    P, V = points_of(gap, start.T), points_of(gap, start.V)
    d, n, _ = gap.slopes(P, at)
    return gap.reach - d, -small_sum((n * V).reshape(len(P), -1))


def links_of(gap: Gap) -> np.ndarray | jax.Array:
    """The link of every point, (c,k)."""
    return each_link(gap.links if gap.where is None else gap.where, gap.u)


def points_of(gap: Gap, T: jax.Array) -> jax.Array:
    """(c,k,3) m; with V for T their rates."""
    return place(T, links_of(gap), gap.u)


def unit(n: jax.Array) -> jax.Array:
    """Of gradients (c,3), which are units only where the distance is exact; zero of zero."""
    size = safe_norm(n)
    return n / jnp.where(size > 0, size, 1.0)[:, None]
