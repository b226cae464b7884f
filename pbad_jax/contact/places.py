"""Where two convex shapes touch: a plane between them, and up to four places in it.

Four places of which all lie on one side would not hold a box. So one shape is tilted to four sides by TILT about where
it touches, and each time the shapes are asked again where they are nearest: at the ends of what they have in common, if
that is a face or an edge, and four times at the same point, if it is a corner. Each place has a quarter of the
stiffness.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.geometry import convex
from pbad_jax.geometry.convex import Convex
from pbad_jax.math import rotations
from pbad_jax.math.small import matmul, matvec, small_sum

TILT = 0.1  # rad
TURN = 0.55  # rad, between the tilts and the axes of B, so that they are not along the edges of boxes


class Touching(NamedTuple):
    """Places of one pair, in the shapes' own frames."""

    n: jax.Array  # (places,3) in B
    on_a: jax.Array  # (places,3) m, C_a in A
    on_b: jax.Array  # (places,3) m, in B
    reach: jax.Array  # (places,) m
    room: jax.Array  # (places,) m
    through: jax.Array  # (places,) m


def touching(A: Convex, B: Convex, R: jax.Array, t: jax.Array, *, places: int) -> Touching:
    """A plane and some places: the choice has no derivatives, what is chosen has them."""
    n, simplex, far = convex.search(*jax.lax.stop_gradient((A, B, R, t)))
    middle = convex.meeting(A, B, R, t, simplex, far, jnp.zeros_like(t), n)
    n, m = middle.normal, -matvec(R.T, middle.normal)
    inside = convex.rolls_about(A, m)
    reach = A.radius + B.radius + inside
    if places == 1:
        on_a, on_b = middle.on_a[None], middle.on_b[None]
    else:
        on_a, on_b = jax.vmap(lambda way: _tilted(A, B, R, t, middle, way))(jnp.arange(places, dtype=t.dtype))
    sizes = 0.5 * jnp.stack([convex.extent(A, m), convex.extent(B, n)])
    found = (n, reach, jnp.min(sizes), jnp.sum(sizes))
    n, reach, room, through = (jnp.broadcast_to(x, (places, *x.shape)) for x in found)
    return Touching(n, on_a - (inside * m)[None], on_b, reach, room, through)


def _tilted(
    A: Convex, B: Convex, R: jax.Array, t: jax.Array, middle: convex.Meeting, way
) -> tuple[jax.Array, jax.Array]:
    """Where they are nearest when A is tilted about the middle to one of four sides: in A, and in B."""
    # an axis across the normal, one of several round it
    n = middle.normal
    e = jnp.asarray(np.eye(3), n.dtype)[jnp.argmin(jnp.abs(jax.lax.stop_gradient(n)))]
    side = jnp.cross(n, e)
    side = side / jnp.sqrt(small_sum(side * side))
    angle = TURN + 0.5 * np.pi * way
    about = jnp.cos(angle) * side + jnp.sin(angle) * jnp.cross(n, side)
    # turn B a little about it, its foot on A held
    Q = rotations.rotation(jnp.concatenate([jnp.ones(1, n.dtype), np.tan(TILT / 2) * about]))
    m = -matvec(R.T, n)
    below = -n * small_sum(m * (convex.corner(A, m) + convex.rounding(A, m)))  # from the centre of A to its foot
    R, t = matmul(Q, R), t + below - matvec(Q, below)
    # where the two meet then
    far = convex.away(A, B, R, t, n)
    none, moved = jnp.zeros_like(far), far * n
    A_, B_, R_, t_, moved_, n_ = jax.lax.stop_gradient((A, B, R, t, moved, n))
    simplex, v = convex.gjk(A_, B_, R_, t_ + moved_, n_)
    normal = convex.polished(A_, B_, R_, t_, simplex, none, moved_, v / jnp.sqrt(small_sum(v * v)))
    there = convex.meeting(A, B, R, t, simplex, none, moved, normal)
    return there.on_a, there.on_b
