"""Whether something has gone through something else in a step: what a contact can say at the end of it.

A contact knows only the ends of a step. Between them its points are taken to go straight, and two things are asked:

* Does the way come out of another side than it went in? The normals are compared where it first and where it last
  touches: opposite sides are more than a right angle apart. Two sides of an edge are less, and any graze may cut one;
  they count where a sphere has been inside by half its radius. What comes nearer by more than that in the step has
  a blow, whose direction is that of its first touch: there 20° are another side. Conservative advancement finds both
  places (Mirtich 1996): as long as a distance is left, that much of the way is free.
* Where the normal has turned, has the force added energy? For the whole step it acts along its normal at the end. So
  F · ΔP + ΔU is at most zero where the potential U is convex along the way, as on a plane, and more where the force
  pushes out of a side by which nothing came in. Forces of the order of a weight are let be: what rolls over an edge of
  radius r is pushed too far by about g dt²/r of its energy, as in any step of a scheme of first order.

And slowly: what is pressed on by more than it can carry comes to rest in what it should lie on.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.contact.law import G0
from pbad_jax.geometry.surfaces import TINY
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.one_sided import one_sided, spring
from pbad_jax.math import loops
from pbad_jax.math.small import matmul, small_sum
from pbad_jax.model.model import Model

MARCHES = 12
INSET = 1e-3  # of the way inside
OPPOSITE = -0.1  # cosine between the normals where it goes in and out; the faces of a box have 0 and -1
EDGE = 0.5
DEEP = 0.5  # of a radius, of the sizes of two
TURNED = math.cos(math.radians(20))
SHARE = 0.01  # of the energy there is
SLOW = 0.1  # of a depth in a time constant
PUSHED = 0.5  # of what the force does to the lighter one if nothing presses
WEIGHTS = 2.0  # k w: w is what a weight presses in, unless chosen otherwise


class Crossing(NamedTuple):
    """Where ways are inside; each (c,)."""

    enters: jax.Array  # 0 to 1, the fraction of the way
    leaves: jax.Array
    depth: jax.Array  # m, midway between them; negative: never inside


def crossing(clear: Callable[[jax.Array], jax.Array], length: jax.Array) -> Crossing:
    """Of c ways on which `clear`, from fractions (c,) to m, changes by `length` (c,) m at most."""
    length = jnp.maximum(length, TINY)

    def march(_, ends):
        a, b = ends
        return a + jnp.maximum(clear(a), 0.0) / length, b - jnp.maximum(clear(b), 0.0) / length

    one = jnp.ones_like(length)
    a, b = (jnp.clip(t, 0.0, 1.0) for t in loops.fori_loop(0, MARCHES, march, (0 * one, one)))
    # a little inside, because on the side itself a point has no normal
    inset = INSET * jnp.maximum(b - a, 0.0)
    return Crossing(a + inset, b - inset, jnp.where(a < b, -clear(0.5 * (a + b)), -1.0))


def on_another_side(
    way: Crossing, n_in: jax.Array, n_out: jax.Array, radius: jax.Array, nearer: jax.Array
) -> jax.Array:
    """Whether a way leaves by another side than it enters, () bool.

    Args:
        n_in, n_out: (c,3) normals of any length. radius: (c,) m, of what is on the way, 0 for a point. nearer: (c,) m,
            by how much it would come nearer in the step by its velocity at the start, along n_in.
    """
    turn, ball = _cosine(n_in, n_out), radius > 0
    blow = (turn < TURNED) & ball & (nearer > DEEP * radius)
    other = (turn < OPPOSITE) | ((turn < EDGE) & ball & (way.depth > DEEP * radius)) | blow
    return jnp.any((way.depth > 0) & other)


def gains_energy(
    law: Any, model: Model, at: Instant, n_in: jax.Array, n_out: jax.Array, depths, along: jax.Array
) -> jax.Array:
    """Whether normal forces that have turned have given more than they had stored, () bool.

    Args:
        law: whatever has stiffness, width and damping, (c,). at: the end of the step.
        n_in, n_out: (c,3) normals of any length. depths: (c,) m at the start and at the end.
        along: (c,) m, the way along the normal force.
    """
    before, after = (spring(law, d)[0] for d in depths)
    force = one_sided(law, depths[1], -along / at.dt).force - WEIGHTS * law.stiffness * law.width
    made = force * along + after - before
    turned = _cosine(n_in, n_out) < TURNED
    V = at.start.V
    kinetic = 0.5 * jnp.sum(matmul(V, model.second_moment) * V)
    return jnp.sum(jnp.where(turned, made, 0.0)) > SHARE * (kinetic + jnp.sum(before))


def rests(width: jax.Array, depths, rate: jax.Array, dt: jax.Array) -> jax.Array:
    """Whether what touches has come to rest under a load, (c,) bool.

    What is merely fast and turns round is told apart by what the force then does to it: with the time constant t by
    which the law was made, it is pushed apart by δ/t² at least.

    Args:
        width: (c,) m, of the law. depths: (c,) m at the start and at the end. rate: (c,) m/s, of the depth at the
            start. dt: () s.
    """
    deep, mean, t = depths[1], (depths[1] - depths[0]) / dt, jnp.sqrt(width / G0)
    slow = jnp.abs(mean) < SLOW * deep / t
    return (deep > 0) & slow & (rate - mean < PUSHED * 0.5 * dt * deep / t**2)


def middles_cross(start: jax.Array, end: jax.Array, size: jax.Array) -> jax.Array:
    """Whether one middle went straight past the other, within half of their `size` (c,) m, however both have turned.

    start, end: (c,3) m from the one to the other. () bool.
    """
    moved = end - start
    fraction = -small_sum(start * moved) / jnp.maximum(small_sum(moved * moved), TINY**2)
    nearest = start + jnp.clip(fraction, 0.0, 1.0)[:, None] * moved
    return jnp.any((small_sum(start * end) < 0) & (small_sum(nearest * nearest) < (DEEP * size) ** 2))


def _cosine(a: jax.Array, b: jax.Array) -> jax.Array:
    """Of the angle between vectors (c,3); 0 where one of them is zero."""
    size = jnp.sqrt(small_sum(a * a) * small_sum(b * b))
    return small_sum(a * b) / jnp.where(size > 0, size, 1.0)
