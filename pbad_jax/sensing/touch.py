"""What contact does to bodies, and how hard they are touched within a volume that a site has."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.contact.dispatch import CONTACTS
from pbad_jax.contact.law import Touch
from pbad_jax.dynamics.instant import instant_of
from pbad_jax.geometry.surfaces import safe_norm
from pbad_jax.kinematics import transforms
from pbad_jax.laws.force import of_force
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import field_of
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.small import matmul, matvec, small_sum, transpose
from pbad_jax.math.spatial import compose
from pbad_jax.model.model import Model
from pbad_jax.model.sites import Site
from pbad_jax.model.state import State, checked, driven
from pbad_jax.sensing.task_space import Placed

TINY = 1e-30


@with_all_bits
def contact_forces(model: Model, state: State, control=None) -> jax.Array:
    """By what contact acts on every body, of this state by itself: friction by the normal force there.

    Args:
        model: the model.
        state: q and v.
        control: (nu,) or None, zeros.

    Returns:
        (nbody,6) torque about the centre of mass of the model, N m, and force, N: MuJoCo's cfrc_ext.

    Raises:
        StateError: shapes, dtypes, a state of another model (while tracing).

    Example:
        >>> touching = pbad.with_forces(ball, forces.contact(ball))
        >>> pbad.contact_forces(touching, pbad.make_state(touching)).round(1)
        Array([[ 0. ,  0. ,  0. ,  0. ,  0. , 95.1]], dtype=float64)
    """
    return _contact_forces(model, state, checked(model, state, control))


@functools.partial(jax.jit, inline=True)  # called by itself, hundreds of small programs take longer to compile
def _contact_forces(model: Model, state: State, control: jax.Array) -> jax.Array:
    at, n_links = instant_of(model, state, driven(model, state, control)), model.topology.n_links
    field = jnp.zeros((n_links, 3, 4), model.dtype)
    for force in model.forces:
        if isinstance(force, CONTACTS):
            more = field_of(force.load(model, at), n_links)
            field = field if more is None else field - more  # of Σ f ⊗ u
    T = transforms.shift(at.T, transforms.center_of_mass(model, at.T))
    # f × is antisymmetric: Σ (T u) × f from T (Σ f ⊗ u)ᵀ
    moment = matmul(T, transpose(field))
    torque = jnp.stack([moment[:, 1, 2] - moment[:, 2, 1], moment[:, 2, 0] - moment[:, 0, 2],
                        moment[:, 0, 1] - moment[:, 1, 0]], axis=-1)  # fmt: skip
    return jnp.concatenate([torque, field[..., 3]], axis=-1)[np.asarray(model.topology.body_link)]


def touches(model: Model, at: Instant) -> list[Touch]:
    """Where contact pushes on the bodies at one instant: of every contact force of the model."""
    found = [(k, force) for k, force in enumerate(model.forces) if isinstance(force, CONTACTS)]
    return [force.touching(model, of_force(at, k)) for k, force in found]


def felt(model: Model, site: Site, place: Placed, at: Instant, found: list[Touch]) -> jax.Array:
    """() N: the normal forces on the site's body that its volume feels, MuJoCo's `touch`.

    These are the places that lie within it, or from which it is seen along the outward normal.
    """
    total = jnp.zeros((), model.dtype)
    link = int(place.links[0])
    if link == model.topology.n_links:
        return total
    X = compose(at.T[link], jnp.asarray(place.offset[0], model.dtype))
    for touch in found:
        size = safe_norm(touch.push)
        out = -touch.push / jnp.where(size > 0, size, 1.0)[:, None]
        turned = transpose(X[:, :3])[None]
        inside = sees(site.volume, site.size, matvec(turned, touch.place - X[None, :, 3]), matvec(turned, out))
        total = total + jnp.sum(jnp.where(inside & (touch.links == link), size, 0.0))
    return total


def sees(volume: str, size: tuple[float, ...], start: jax.Array, way: jax.Array) -> jax.Array:
    """Whether rays from `start` (c,3) along unit vectors `way` (c,3) meet a volume about the origin, (c,) bool."""
    start, way = jax.lax.stop_gradient((start, way))
    r, h = np.array(size), np.array(size)[1]
    if volume in ("sphere", "ellipsoid"):
        return _meets(*_ball(start, way, np.full(3, r[0]) if volume == "sphere" else r))
    if volume == "box":
        return _meets(*_both(*(_slab(start[:, k], way[:, k], r[k]) for k in range(3))))
    side = _meets(*_both(_ball(start[:, :2], way[:, :2], np.full(2, r[0])), _slab(start[:, 2], way[:, 2], h)))
    if volume == "cylinder":
        return side
    ends = [_meets(*_ball(start - np.array([[0, 0, z]], start.dtype), way, np.full(3, r[0]))) for z in (-h, h)]
    return side | ends[0] | ends[1]


def _meets(first: jax.Array, last: jax.Array) -> jax.Array:
    return (first <= last) & (last >= 0)


def _both(*spans: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """What intervals of a ray have in common."""
    first, last = zip(*spans)
    return jnp.max(jnp.stack(first), axis=0), jnp.min(jnp.stack(last), axis=0)


def _slab(x: jax.Array, d: jax.Array, half: float) -> tuple[jax.Array, jax.Array]:
    """Where |x + t d| ≤ half."""
    d = jnp.where(jnp.abs(d) < TINY, TINY, d)
    ends = jnp.stack([(-half - x) / d, (half - x) / d])
    return jnp.min(ends, axis=0), jnp.max(ends, axis=0)


def _ball(x: jax.Array, d: jax.Array, radii: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Where |(x + t d)/radii| ≤ 1; nowhere: (1, −1)."""
    radii = np.maximum(radii, TINY).astype(x.dtype)[None]
    x, d = x / radii, d / radii
    a = jnp.maximum(small_sum(d * d), TINY)
    b, square = small_sum(x * d), small_sum(x * x)
    root = b * b - a * (square - 1)
    reach = jnp.sqrt(jnp.maximum(root, 0.0))
    there = root >= 0
    return jnp.where(there, (-b - reach) / a, 1.0), jnp.where(there, (-b + reach) / a, -1.0)
