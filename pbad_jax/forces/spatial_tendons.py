"""Spatial tendons: lengths of straight pieces between sites, over pulleys if wanted, and what acts along them.

ℓ = Σ w_i |P_{i+1} − P_i|, w one over the divisor of the branch. A force f along ℓ is f ∂ℓ/∂P at the points, so it
couples links; its slopes are autodiff of the law of one tendon. There is no wrapping about shapes.
"""

import dataclasses
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces.drives import held_energy
from pbad_jax.forces.force import Instant, Load, each_link, place, point_forces
from pbad_jax.forces.one_sided import excesses, one_sided
from pbad_jax.forces.regularised import ramp
from pbad_jax.forces.surfaces import safe_norm
from pbad_jax.kinematics import transforms
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.sites import Site

Path = Sequence[Any]  # names of sites or Sites; a number begins a branch beyond a pulley of that divisor


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Course:
    """Where c tendons run; made by `course`. Shorter ones stay at their last point."""

    u: jax.Array  # (c,n,4) points (p, 1) in their links' frames, m; those in the world as they are
    weight: jax.Array  # (c,n-1) of every piece, 0 between branches
    links: tuple[tuple[int, ...], ...] = dataclasses.field(metadata=STATIC)  # of every point; of those in the world any
    in_world: tuple[tuple[bool, ...], ...] = dataclasses.field(metadata=STATIC)

    @property
    def still(self) -> np.ndarray:
        """(c,n,1) bool, which points are in the world."""
        return np.array(self.in_world)[..., None]

    def points(self, T: jax.Array) -> jax.Array:
        """(c,n,3) m in the world."""
        return jnp.where(self.still, self.u[..., :3], place(T, each_link(self.links, self.u), self.u))

    def lengths(self, T: jax.Array) -> jax.Array:
        """ℓ (c,) m."""
        return jax.vmap(_length)(self.points(T), self.weight)

    def rates(self, T: jax.Array, V: jax.Array) -> jax.Array:
        """Their rates (c,) m/s."""
        moving = jnp.where(self.still, 0.0, place(V, each_link(self.links, self.u), self.u))
        return jnp.sum(jax.vmap(jax.grad(_length))(self.points(T), self.weight) * moving, axis=(1, 2))


def _length(P: jax.Array, weight: jax.Array) -> jax.Array:
    return jnp.sum(weight * safe_norm(P[1:] - P[:-1]))


def _pulled(at: Instant, course: Course, law: Callable, *parameters) -> Load:
    """The Load of forces f = law(ℓ, ℓ̇, *parameters) along tendons."""

    def forces(P, V, u, weight, still, *parameters):
        P, V = jnp.where(still, u[:, :3], P), jnp.where(still, 0.0, V)
        length, along = jax.value_and_grad(_length)(P, weight)
        return jnp.where(still, 0.0, law(length, jnp.sum(along * V), *parameters) * along)

    still = jnp.asarray(course.still)
    return point_forces(at, course.links, course.u, forces, course.u, course.weight, still, *parameters)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SpatialTendonSpring:
    """Springs and dampers, f = −k x − d ℓ̇, x by how much ℓ is beyond the range `rest`; by `spatial_tendon_spring`.

    Example:
        >>> band = forces.spatial_tendon_spring(hand, ("hand", "wall"), stiffness=50.0, rest=2.0)
        >>> band.rest
        Array([[2., 2.]], dtype=float64)
    """

    course: Course
    stiffness: jax.Array  # (c,) N/m
    rest: jax.Array  # (c,2) m, where the spring is slack
    damping: jax.Array  # (c,) N s/m
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """Forces at the points."""
        return _pulled(at, self.course, _spring, self.stiffness, self.rest, self.damping)

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k x², J."""
        return 0.5 * jnp.sum(self.stiffness * _beyond(self.course.lengths(at.T), self.rest.T) ** 2)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "SpatialTendonSpring", f"{len(self.stiffness)} tendons"


def _beyond(length: jax.Array, rest: jax.Array) -> jax.Array:
    return jnp.maximum(length - rest[1], 0.0) + jnp.minimum(length - rest[0], 0.0)


def _spring(length, rate, stiffness, rest, damping) -> jax.Array:
    return -stiffness * _beyond(length, rest) - damping * rate


class _End(NamedTuple):
    stiffness: jax.Array
    width: jax.Array
    damping: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SpatialTendonLimit:
    """Soft ends of the lengths' ranges, by the law of `JointLimit`; by `spatial_tendon_limit`.

    Example:
        >>> rope = forces.spatial_tendon_limit(hand, ("hand", "wall"), (0.0, 2.5), stiffness=1e4)
        >>> rope.range
        Array([[0. , 2.5]], dtype=float64)
    """

    course: Course
    range: jax.Array  # (c,2) m, ±inf = free
    stiffness: jax.Array  # (c,) N/m
    width: jax.Array  # (c,) m, of the smooth start
    damping: jax.Array  # (c,) χ, s/m
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """Forces at the points."""
        return _pulled(at, self.course, _ends, self.range, self.stiffness, self.width, self.damping)

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp, J."""
        low, high = (ramp(x, self.width)[0] for _, x in excesses(self.course.lengths(at.T), self.range))
        return jnp.sum(self.stiffness * (low + high))

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "SpatialTendonLimit", f"{len(self.stiffness)} tendons"


def _ends(length, rate, bounds, stiffness, width, damping) -> jax.Array:
    law = _End(stiffness, width, damping)
    pushes = [-side * one_sided(law, x, side * rate).force for side, x in excesses(length, bounds)]
    return pushes[0] + pushes[1]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SpatialTendonActuation:
    """Actuators of spatial tendons, by the law of drives.py with the lengths g ℓ; by `Actuator(path, name)`.

    Example:
        >>> pulled = pbad.with_actuators(hand, pbad.Actuator((hand.sites["hand"], hand.sites["wall"]), name="winch"))
        >>> pulled.forces[-1].extent(pulled, jnp.zeros(4)).round(3)
        Array([2.236], dtype=float64)
    """

    course: Course
    gear: jax.Array  # (n,)
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3)
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """Forces at the points."""
        u = jnp.clip(at.control[np.array(self.u_index)], self.control_range[:, 0], self.control_range[:, 1])
        return _pulled(at, self.course, _drive, self.gear, self.gain * u, self.bias, self.force_range)

    def held_potential(self, model: Model, at: Instant) -> jax.Array:
        """J, see drives.held_energy."""
        return held_energy(self, at.control, self.gear * self.course.lengths(at.T))

    def extent(self, model: Model, q: jax.Array) -> jax.Array:
        """The lengths g ℓ at q, (n,)."""
        return self.gear * self.course.lengths(transforms.transforms(model, q))

    def speed(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """Their rates at (q, v), (n,)."""
        f = transforms.frames(model, q)
        return self.gear * self.course.rates(f.T, transforms.velocity_field(model, f, v))

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "SpatialTendonActuation", f"by {len(self.u_index)} actuators"


def _drive(length, rate, gear, pushed, bias, bounds) -> jax.Array:
    f = pushed + bias[0] + bias[1] * gear * length + bias[2] * gear * rate
    return gear * jnp.clip(f, bounds[0], bounds[1])


# --- made from sites ------------------------------------------------------------------------------------------


def spatial_tendon_spring(
    model: Model, tendons: Path | Sequence[Path], *, stiffness: Any = 0.0, rest: Any = 0.0, damping: Any = 0.0
) -> SpatialTendonSpring:
    """Springs and dampers along straight lines between sites.

    Args:
        model: the model.
        tendons: one path, or a list of c. A path is a tuple of names of sites, or Sites, one after the other; a number
            in it begins a new branch beyond a pulley, whose length counts one over that divisor.
        stiffness, damping: N/m and N s/m, ≥ 0: one number, or (c,).
        rest: m, the length at which it is slack: one number, or (c,2), a range for each.

    Raises:
        ModelError: an unknown site or body, fewer than two sites in a row, a divisor ≤ 0, bad numbers.

    Example:
        >>> band = forces.spatial_tendon_spring(hand, ("hand", "wall"), stiffness=50.0, rest=2.0)
        >>> banded = pbad.with_forces(hand, band)
        >>> round(float(pbad.potential_energy(banded, pbad.make_state(banded))), 3)
        -18.227
    """
    check_model(model)
    what = "spatial_tendon_spring"
    where = course(model, tendons, what)
    c = len(where.links)
    k, d = (_each(x, (c,), f"{n} of {what}") for x, n in ((stiffness, "stiffness"), (damping, "damping")))
    given = checks.array(rest, f"rest of {what}", "numbers")
    ends = _each(np.stack([given] * 2, axis=-1) if given.ndim == 0 else given, (c, 2), f"rest of {what}")
    leaf = checks.leaf(model.dtype)
    return SpatialTendonSpring(where, leaf(k), leaf(ends), leaf(d), not d.any())


def spatial_tendon_limit(
    model: Model, tendons: Path | Sequence[Path], range, *, stiffness, width: Any = 0.01, damping: Any = 1.0
) -> SpatialTendonLimit:
    """Soft ends of lengths; see `spatial_tendon_spring`.

    range: (low, high) m, or (c,2); ±inf = free. stiffness: N/m. width: m, > 0, over which it comes in. damping: χ, s/m.

    Example:
        >>> rope = forces.spatial_tendon_limit(hand, ("hand", "wall"), (0.0, 2.5), stiffness=1e4)
        >>> roped = pbad.with_forces(hand, rope)
        >>> type(roped.forces[-1]).__name__
        'SpatialTendonLimit'
    """
    check_model(model)
    what = "spatial_tendon_limit"
    where = course(model, tendons, what)
    c = len(where.links)
    ends = _each(range, (c, 2), f"range of {what}", least=-np.inf)
    if not np.all(ends[:, 0] <= ends[:, 1]):
        raise ModelError(f"range of {what} is {ends.tolist()}; low must not exceed high. Swap them.")
    k, d = (_each(x, (c,), f"{n} of {what}") for x, n in ((stiffness, "stiffness"), (damping, "damping")))
    w = _each(width, (c,), f"width of {what}", least=1e-30)
    leaf = checks.leaf(model.dtype)
    return SpatialTendonLimit(where, leaf(ends), leaf(k), leaf(w), leaf(d))


def _each(x, shape: tuple[int, ...], what: str, least: float = 0.0) -> np.ndarray:
    """Numbers of that shape, or one row for all, none below `least`."""
    x = checks.array(x, what, "numbers")
    if x.shape not in (shape, shape[1:]):
        raise ModelError(f"{what} has shape {x.shape}; wanted {shape[1:]} for all, or {shape}")
    if not np.all(x >= least):  # also catches NaN
        raise ModelError(f"{what} is {x.tolist()!r:.60}; every entry must be {'above' if least else 'at least'} zero")
    return np.broadcast_to(x, shape).copy()


def course(model: Model, tendons: Path | Sequence[Path], what: str) -> Course:
    """Where tendons of a model run."""
    t = model.topology
    one = isinstance(tendons, tuple) and not isinstance(tendons[0] if tendons else None, tuple)
    paths = [tendons] if one else tendons
    if not isinstance(paths, list | tuple) or not paths:
        raise ModelError(f"tendons of {what} are {tendons!r:.60}; wanted a tuple of sites, or a list of such tuples")
    links = dict(zip(t.body_names, t.body_link))
    return course_of([checked_path(p, model.sites, links, what) for p in paths], links, checks.leaf(model.dtype))


def checked_path(path: Any, sites: Mapping[str, Site], links: Mapping[str, int], what: str) -> tuple:
    """A path as Sites and divisors.

    Raises:
        ModelError: see `spatial_tendon_spring`.
    """
    if not isinstance(path, tuple) or not path:
        raise ModelError(f"tendon of {what} is {path!r:.60}; wanted a tuple of sites, ('hand', 'wall')")
    out, run = [], 0
    for item in path:
        if isinstance(item, numbers.Real) and not isinstance(item, bool):
            out.append(checks.above_zero(item, f"divisor of a pulley in a tendon of {what}"))
            if run == 1:
                raise ModelError(f"tendon of {what}: a branch has only one site; give it two or more")
            run = 0
            continue
        site = item
        if isinstance(item, str):
            checks.known(item, sites, f"site in a tendon of {what}")
            site = sites[item]
        if not isinstance(site, Site):
            raise ModelError(f"tendon of {what}: {item!r:.60} is no site; give a name, a Site, or a pulley's divisor")
        if site.body is not None:
            checks.known(site.body, links, f"body of a site in a tendon of {what}")
        checks.vector(site.position, 3, f"position of a site in a tendon of {what}")
        out.append(site)
        run += 1
    if run < 2:
        raise ModelError(f"tendon of {what}: {'it' if run == len(out) else 'a branch'} has fewer than two sites")
    return tuple(out)


def course_of(paths: Sequence[tuple], links: Mapping[str, int], leaf: Callable) -> Course:
    """Of checked paths."""
    rows = [_row(path, links) for path in paths]
    n = max(len(points) for points, *_ in rows)
    u, weight, on, still = [], [], [], []
    for points, w, l, s in rows:
        more = n - len(points)
        u.append(points + [points[-1]] * more)
        weight.append(w + [0.0] * more)
        on.append(tuple(l + [l[-1]] * more))
        still.append(tuple(s + [s[-1]] * more))
    return Course(leaf(u), leaf(weight), tuple(on), tuple(still))


def _row(path: tuple, links: Mapping[str, int]) -> tuple[list, list[float], list[int], list[bool]]:
    """Points, weights of the pieces between them, links, and whether they are in the world."""
    points, weights, on, still, divisor, joined = [], [], [], [], 1.0, False
    for item in path:
        if not isinstance(item, Site):
            divisor, joined = item, False
            continue
        if points:
            weights.append(1.0 / divisor if joined else 0.0)
        points.append([*item.position, 1.0])
        on.append(0 if item.body is None else links[item.body])
        still.append(item.body is None)
        joined = True
    return points, weights, on, still
