"""Surfaces of the world that bodies touch, each a signed distance: `distance(P (3,)) -> ()` m, positive outside.

Contact needs the distance, its gradient and its curvature; `slopes` takes them from the distance by autodiff, of three
numbers. A surface of one's own is any pytree with `distance`, twice differentiable near zero, or `SignedDistance`; a
norm in it is `safe_norm`, whose gradient where all directions are as near is zero, and not NaN. With `thickness` too,
() m from a side to the middle, the least where it varies, contact has a stop before anything goes through; what has no
other side says `one_sided = True`. At an edge sharper than a right angle a blow may be BRANCH in steps that are large
for it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.checks import array, check_names, is_number, number, vector
from pbad_jax.errors import ModelError
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.math.small import small_sum

TINY = 1e-12  # m, below which a direction is none


def check_surface(surface: Any, what: str) -> None:
    """That contact can ask it: a pytree of numbers with a `distance` of one point.

    Raises:
        ModelError: `what` and what is wrong with it.
    """
    of = f"surface of {what} is a {type(surface).__name__}"
    if isinstance(surface, type) or not callable(getattr(surface, "distance", None)):
        raise ModelError(f"surface of {what} is {surface!r:.60}; it has no distance(P). Make one, as by half_space()")
    if jax.tree_util.all_leaves([surface]):
        raise ModelError(f"{of}, no pytree; make it a frozen dataclass under @jax.tree_util.register_dataclass")
    for path, x in jax.tree_util.tree_leaves_with_path(surface):
        if not is_number(x):
            raise ModelError(f"{of}: {jax.tree_util.keystr(path).lstrip('.')} is {x!r:.60}; wanted numbers")
    check_names(surface, ("distance", "thickness", "one_sided"), "a surface", what)
    try:
        found = jax.eval_shape(surface.distance, jnp.zeros(3)).shape
    except (TypeError, ValueError, AttributeError) as e:
        raise ModelError(f"{of}: distance(P) of one point P (3,): {e}") from e
    if found != ():
        raise ModelError(f"{of}: distance(P) of one point P (3,) has shape {found}; it must be one number, ()")


def slopes(surface, P: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Distance (c,), its gradient (c,3) and its curvature (c,3,3) at the points P (c,3)."""

    def one(p):
        d, n = jax.value_and_grad(surface.distance)(p)
        return d, n, jax.jacfwd(jax.grad(surface.distance))(p)

    return jax.vmap(one)(P)


def safe_norm(x: jax.Array) -> jax.Array:
    """‖x‖ with the gradient 0 at zero, where `jnp.linalg.norm` has NaN: for surfaces of one's own.

    Example:
        >>> jax.grad(forces.safe_norm)(jnp.zeros(3))
        Array([0., 0., 0.], dtype=float64)
    """
    square = small_sum(x * x)
    small = square < TINY**2
    return jnp.where(small, 0.0, jnp.sqrt(jnp.where(small, 1.0, square)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plane:
    """A half-space: n · P ≤ offset is inside. `normal` (3,) unit, `offset` () m."""

    normal: jax.Array
    offset: jax.Array
    one_sided: ClassVar[bool] = True

    def distance(self, P: jax.Array) -> jax.Array:
        """n · P − offset."""
        return self.normal @ P - self.offset


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sphere:
    """A sphere: `center` (3,) m, `radius` () m."""

    center: jax.Array
    radius: jax.Array

    def distance(self, P: jax.Array) -> jax.Array:
        """‖P − center‖ − radius."""
        return safe_norm(P - self.center) - self.radius

    @property
    def thickness(self) -> jax.Array:
        """() m, from a side to the middle."""
        return self.radius


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Capsule:
    """A capsule: `ends` (2,3) m of its axis, `radius` () m."""

    ends: jax.Array
    radius: jax.Array

    def distance(self, P: jax.Array) -> jax.Array:
        """To the nearest point of the axis, less the radius."""
        a, d = self.ends[0], self.ends[1] - self.ends[0]
        s = jnp.clip((P - a) @ d / jnp.maximum(d @ d, TINY**2), 0.0, 1.0)
        return safe_norm(P - a - s * d) - self.radius

    @property
    def thickness(self) -> jax.Array:
        """() m, from a side to the middle."""
        return self.radius


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Box:
    """A box with rounded edges: `position` (3,) m, `rotation` (3,3), `half` sizes (3,) m, `round` () m."""

    position: jax.Array
    rotation: jax.Array
    half: jax.Array
    round: jax.Array

    def distance(self, P: jax.Array) -> jax.Array:
        """Of the box smaller by `round`, less `round`; inside, to the nearest face."""
        y = jnp.abs(self.rotation.T @ (P - self.position)) - (self.half - self.round)
        outside = safe_norm(jnp.maximum(y, 0.0))
        return outside + jnp.minimum(jnp.max(y), 0.0) - self.round

    @property
    def thickness(self) -> jax.Array:
        """() m, from a side to the middle."""
        return jnp.min(self.half)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cylinder:
    """A cylinder: `position` of its middle (3,) m, unit `axis` (3,), `radius` and `half` its length () m."""

    position: jax.Array
    axis: jax.Array
    radius: jax.Array
    half: jax.Array

    def distance(self, P: jax.Array) -> jax.Array:
        """To the nearest point of its side, its ends or its edges; inside, to the side or the nearest end."""
        x = P - self.position
        along = self.axis @ x
        y = jnp.stack([safe_norm(x - along * self.axis) - self.radius, jnp.abs(along) - self.half])
        return safe_norm(jnp.maximum(y, 0.0)) + jnp.minimum(jnp.max(y), 0.0)

    @property
    def thickness(self) -> jax.Array:
        """() m, from a side to the middle."""
        return jnp.minimum(self.radius, self.half)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HeightField:
    """Ground z = h(x, y), a bicubic spline, level beyond its rim. `control` (nx,ny) m are its control points.

    The distance is (z − h)/√(1 + ‖∇h‖²) with the slope at P: of first order, exact where the ground is plane.
    """

    control: jax.Array
    origin: jax.Array  # (2,) m, x and y of the first height
    spacing: jax.Array  # (2,) m
    one_sided: ClassVar[bool] = True

    def distance(self, P: jax.Array) -> jax.Array:
        """(z − h)/√(1 + ‖∇h‖²)."""
        h, slope = self.height(P[:2])
        return (P[2] - h) / jnp.sqrt(1.0 + slope @ slope)

    def height(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """h and its gradient at x (2,) m."""
        grid = jnp.asarray(self.control.shape)
        g = jnp.clip((x - self.origin) / self.spacing, 0.0, grid - 1.0)
        cell = jnp.clip(jnp.floor(jax.lax.stop_gradient(g)).astype(jnp.int32), 0, grid - 2)
        index = [jnp.clip(cell[k] + jnp.arange(-1, 3), 0, self.control.shape[k] - 1) for k in range(2)]
        patch = self.control[index[0][:, None], index[1][None, :]]
        (a, da), (b, db) = (_spline(g[k] - cell[k]) for k in range(2))
        return a @ patch @ b, jnp.stack([da @ patch @ b, a @ patch @ db]) / self.spacing


def _spline(s: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The four cubic B-splines that are not zero at s in [0,1], and their slopes."""
    r = 1 - s
    value = jnp.stack([r**3, 3 * s**3 - 6 * s**2 + 4, 3 * r**3 - 6 * r**2 + 4, s**3]) / 6
    slope = jnp.stack([-(r**2), 3 * s**2 - 4 * s, -3 * r**2 + 4 * r, s**2]) / 2
    return value, slope


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SignedDistance:
    """Any function (P (3,), parameters) -> () m, positive outside, twice differentiable near zero.

    Example:
        >>> dome = forces.SignedDistance(lambda P, r: forces.safe_norm(P) - r, jnp.asarray(2.0))
        >>> dome.distance(jnp.array([0.0, 0.0, 3.0]))
        Array(1., dtype=float64)
        >>> contact = forces.contact(ball, dome)
    """

    function: Callable[[jax.Array, Any], jax.Array] = dataclasses.field(metadata=STATIC)
    parameters: Any = None

    def distance(self, P: jax.Array) -> jax.Array:
        """What the function says."""
        return self.function(P, self.parameters)


# --- checked constructors --------------------------------------------------------------------------------


def half_space(normal=(0.0, 0.0, 1.0), offset: float = 0.0) -> Plane:
    """The ground: normal · P ≤ offset is inside; normal (3,) of any length, offset m.

    Raises:
        ModelError: a zero normal.

    Example:
        >>> forces.half_space(normal=(0, 0, 2), offset=0.5).distance(jnp.array([0.0, 0.0, 2.0]))
        Array(1.5, dtype=float64)
    """
    n = vector(normal, 3, "normal of the half-space", ModelError)
    size = np.linalg.norm(n)
    if size < TINY:
        raise ModelError("normal of the half-space is zero; it must have a direction, up for the ground: (0, 0, 1)")
    return Plane(jnp.asarray(n / size), jnp.asarray(number(offset, "offset of the half-space")))


def sphere(center, radius: float) -> Sphere:
    """A sphere, m.

    Raises:
        ModelError: a radius that is not positive.

    Example:
        >>> forces.sphere((0, 0, 0), 0.5).distance(jnp.array([0.0, 0.0, 2.0]))
        Array(1.5, dtype=float64)
    """
    what = "radius of the sphere"
    return Sphere(jnp.asarray(vector(center, 3, "center of the sphere", ModelError)), _positive(radius, what))


def capsule(start, end, radius: float) -> Capsule:
    """A capsule between two points, m.

    Raises:
        ModelError: a radius that is not positive.

    Example:
        >>> forces.capsule((0, 0, 0), (0, 0, 1), 0.1).distance(jnp.array([1.0, 0.0, 0.5])).round(3)
        Array(0.9, dtype=float64)
    """
    ends = [vector(x, 3, f"{name} of the capsule", ModelError) for x, name in ((start, "start"), (end, "end"))]
    return Capsule(jnp.asarray(np.stack(ends)), _positive(radius, "radius of the capsule"))


def box(position, half, *, quaternion=(1.0, 0.0, 0.0, 0.0), round: float = 0.0) -> Box:
    """A box by its centre and half sizes, m, with edges rounded by `round`.

    Raises:
        ModelError: a half size that is not positive, a zero quaternion, or a `round` beyond the least half size.

    Example:
        >>> forces.box((0, 0, -0.5), (1, 1, 0.5), round=0.05).distance(jnp.array([0.0, 0.0, 0.2])).round(3)
        Array(0.2, dtype=float64)
    """
    half = vector(half, 3, "half sizes of the box", ModelError)
    p = vector(quaternion, 4, "quaternion of the box", ModelError)
    rim = number(round, "round of the box")
    if not np.all(half > 0) or not 0 <= rim <= half.min():
        raise ModelError(f"box with half sizes {half.tolist()} and round {rim:g}: sizes must be > 0, 0 ≤ round ≤ least")
    if np.linalg.norm(p) < TINY:
        raise ModelError("quaternion of the box is zero; it must be a rotation, identity = (1, 0, 0, 0)")
    R = rotation_numpy(p)
    centre = vector(position, 3, "position of the box", ModelError)
    return Box(jnp.asarray(centre), jnp.asarray(R), jnp.asarray(half), jnp.asarray(rim))


def height_field(heights, *, origin=(0.0, 0.0), spacing=(1.0, 1.0)) -> HeightField:
    """Ground through heights (nx,ny) m on a grid that starts at `origin` (2,) m with `spacing` (2,) m.

    Raises:
        ModelError: less than 4 by 4 heights, or a spacing that is not positive.

    Example:
        >>> hills = forces.height_field(np.full((5, 5), 0.3), spacing=(0.5, 0.5))
        >>> hills.distance(jnp.array([1.0, 1.0, 1.0])).round(3)
        Array(0.7, dtype=float64)
    """
    h = array(heights, "heights of the height field", "a grid of numbers")
    gap = vector(spacing, 2, "spacing of the height field", ModelError)
    if h.ndim != 2 or min(h.shape) < 4 or not np.all(np.isfinite(h)) or not np.all(gap > 0):
        raise ModelError(
            f"height field of shape {h.shape} with spacing {gap.tolist()}: it needs at least 4 by 4 finite heights and "
            "positive spacings"
        )
    h = np.linalg.solve(_interpolation(h.shape[0]), h)
    h = np.linalg.solve(_interpolation(h.shape[1]), h.T).T
    start = vector(origin, 2, "origin of the height field", ModelError)
    return HeightField(jnp.asarray(h), jnp.asarray(start), jnp.asarray(gap))


def _interpolation(n: int) -> np.ndarray:
    """Heights at the knots from control points (n,n); the rim's is repeated, as `height` does."""
    B = (4 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)) / 6
    B[0, 0] = B[-1, -1] = 5 / 6
    return B


def _positive(x, what: str) -> jax.Array:
    value = number(x, what)
    if value <= 0:
        raise ModelError(f"{what} is {value:g}; it must be positive, m")
    return jnp.asarray(value)
