"""Contact of convex shapes on bodies with one another: boxes, cylinders, ellipsoids, convex meshes, spheres, capsules.

At the start of a step the shapes of every pair are held apart by the plane that separates them best (convex.py), and by
up to four places in which they would touch (places.py). For the length of the step the plane stays on the flatter body,
and the places on theirs (plane_gap.py); all else is the law of law.py.

What does not bend within a step is simple to solve for, and nobody passes through a plane that has no end. The price is
of first order in the step: what slides past a corner within one step still meets its plane, and a pair that separates
along another plane than it began with is held by the first one until the next step. That takes energy and never gives
any, because of all planes the best one has the shapes overlap least. Where the plane itself turns, on a body that spins
fast, `passed` looks at the energy that it gives, and the step is BRANCH.

A force looks at `max_contacts` pairs at a time, the nearest at the start of the step by the axes of the shapes, and
takes as many of their places, again the nearest, so that its cost in the equations is theirs. Where other pairs or
places overlap at the end of a step, `passed` says so: BRANCH.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.contact.gap import depths, points_of
from pbad_jax.contact.law import (
    TAU,
    Material,
    Touch,
    contact_duals,
    contact_load,
    contact_parts,
    energy_of_spring,
    is_elastic,
    is_spring,
    material,
    parameters,
    stored_energy,
    touches,
    turning_numbers,
)
from pbad_jax.contact.pairs import lighter_masses, of_one_tree
from pbad_jax.contact.places import touching as places_of
from pbad_jax.contact.plane_gap import PlaneGap
from pbad_jax.contact.tunnelling import gains_energy, middles_cross, rests
from pbad_jax.geometry import convex
from pbad_jax.geometry.convex import Convex
from pbad_jax.geometry.convex_shapes import convex_shapes, flatter
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.load import Load, Parts
from pbad_jax.laws.soft_end import SoftEnd
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matmul, matvec, small_sum, transpose
from pbad_jax.math.spatial import compose
from pbad_jax.model.model import Model

CORNERS = 4


class Planes(NamedTuple):
    """What holds the nearest pairs apart during a step: c places; where not all can be taken, the nearest first."""

    pair: jax.Array  # (c,) int
    gap: PlaneGap
    room: jax.Array  # (c,) m, how deep the middle of the smaller shape is at the other's side
    through: jax.Array  # (c,) m, how deep the middles of both meet


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShapeContact:
    """Contact of c pairs of g shapes; see the module. Made by `contact_between`. It couples links.

    Example:
        >>> brick = dataclasses.replace(bead, geoms=[pbad.Geom("box", (0.1, 0.1, 0.1))])
        >>> boxes = [dataclasses.replace(brick, name=name) for name in ("a", "b")]
        >>> two = pbad.build_model(boxes)
        >>> [type(law).__name__ for law in forces.contact_between(two, [("a", "b")])]
        ['ShapeContact']
    """

    points: jax.Array  # (g,V,3) m, of a shape, see convex.Convex
    axes: jax.Array  # (g,3) m
    radius: jax.Array  # (g,) m
    frame: jax.Array  # (g,3,4) of every shape in its link
    margin: jax.Array  # (c,) m, at which they begin to touch
    stiffness: jax.Array  # (c,) N/m
    width: jax.Array  # (c,) m, of the smooth start
    damping: jax.Array  # (c,) χ, s/m
    friction: jax.Array  # (c,) μ
    stick_speed: jax.Array  # () m/s
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)  # of every shape
    pairs: tuple[tuple[int, int], ...] = dataclasses.field(metadata=STATIC)  # of shapes, the flatter one last
    most: int = dataclasses.field(metadata=STATIC)  # pairs and places at a time
    places: int = dataclasses.field(metadata=STATIC)  # of every pair, 1 or CORNERS
    # of every pair, whether joints connect them: then nothing is known of `room`
    held: tuple[bool, ...] = dataclasses.field(metadata=STATIC)
    turning: jax.Array | None = None  # (c,2) m, torsional and rolling friction
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    end: SoftEnd | None = None  # what pushes instead of stiffness, width and damping
    pyramid: bool = dataclasses.field(default=False, metadata=STATIC)  # friction by the edges of pyramid.py; of `end`

    def load(self, model: Model, at: Instant) -> Load:
        """The normal forces, and friction."""
        return contact_load(*self._entering(model, at), at)

    def by_parts(self, model: Model, at: Instant) -> Parts:
        """Some of the places at a time, in the order of how near they were."""
        return contact_parts(*self._entering(model, at), at)

    def dual(self, model: Model) -> tuple:
        """A tangent and a sliding direction of every place."""
        return contact_duals(material(self, None), self._slots)

    def near(self, model: Model, start: Start) -> Planes:
        """The planes of the nearest pairs at the start of a step."""
        del model
        # the pairs whose bounding balls are nearest, and where each of them may touch
        pair = jnp.arange(len(self.pairs))
        if self._taken < len(self.pairs):
            bounds = self.margin - self._bounds(start.T)
            pair = jax.lax.top_k(jax.lax.stop_gradient(bounds), self._taken)[1]
        A, B, R, t = self._both(start.T, pair)
        found = jax.vmap(functools.partial(places_of, places=self.places))(A, B, R, t)
        # the plane as moving points: one on each shape, and the normal, in frames of their links
        g = jnp.asarray(np.array(self.pairs))[pair]  # (m,2)
        links = jnp.asarray(np.array(self.links))[g]
        F_a, F_b = (self.frame[g[:, k], None] for k in range(2))
        ones = jnp.ones_like(found.reach)[..., None]
        u = [F_a @ jnp.concatenate([found.on_a, ones], axis=-1)[..., None]]
        u += [
            F_b @ jnp.concatenate([x, one], axis=-1)[..., None] for x, one in ((found.on_b, ones), (found.n, 0 * ones))
        ]
        u = jnp.stack([x[..., 0] for x in u], axis=2)  # (m,places,3,3)
        u = jnp.concatenate([u, jnp.stack([ones, ones, 0 * ones], axis=2)], axis=-1)
        # margins; shapes that are held together have any room
        reach, room, through = (x + self.margin[pair][:, None] for x in (found.reach, found.room, found.through))
        held = self._held(pair)[:, None]
        room, through = jnp.where(held, jnp.inf, room), jnp.where(held, jnp.inf, through)
        # one row a place, the deepest first where not all have a slot
        along = jnp.broadcast_to(links[:, None, [0, 1, 1]], (*u.shape[:2], 3))
        flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
        gap = PlaneGap(*map(flat, (along, u, reach)))
        planes = Planes(jnp.repeat(pair, self.places), gap, flat(room), flat(through))
        if self._slots == len(gap.reach):
            return planes
        deep = gap.reach - gap.distance(points_of(gap, start.T))
        order = jax.lax.top_k(jax.lax.stop_gradient(deep), len(deep))[1]
        return jax.tree.map(lambda x: x[order], planes)

    dissipates, potential = property(is_spring), property(energy_of_spring)

    def stored(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp(δ), J, and what the stop has, of the planes at the start of the step."""
        planes = self._planes(model, at)
        return stored_energy(planes.gap, self._law_of(planes), at)

    def depth(self, model: Model, at: Instant) -> jax.Array:
        """δ of every place, m; negative where they are apart."""
        return depths(self._planes(model, at).gap, at)

    def passed(self, model: Model, at: Instant) -> jax.Array:
        """Whether shapes are past one another's middles, planes that have turned gave energy, one rests in another, or
        what was not among the nearest overlaps.
        """
        planes = self._planes(model, at)
        depth, law = depths(planes.gap, at), self._law_of(planes)
        gained = _gains(model, planes, law, at) | jnp.any(depth > planes.through) | jnp.any(depth[self._slots :] > 0)
        gained = gained | middles_cross(*self._middles(at, planes.pair))
        if self._taken == len(self.pairs):
            return gained
        seen = jnp.any(jnp.arange(len(self.pairs))[:, None] == planes.pair[None, :], axis=1)
        return gained | jnp.any(~seen & (self._bounds(at.T) < self.margin))

    def touching(self, model: Model, at: Instant) -> Touch:
        """Where the shapes push on one another: the places on A, then those on B."""
        return touches(*self._entering(model, at), at)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many pairs, and of how many at a time."""
        del model
        return "ShapeContact", f"{len(self.pairs)} pairs, {self._taken} at a time"

    @property
    def _taken(self) -> int:
        return min(self.most, len(self.pairs))

    @property
    def _slots(self) -> int:
        """How many places enter the equations."""
        return min(self.most, self.places * self._taken)

    def _planes(self, model: Model, at: Instant) -> Planes:
        return self.near(model, at.start) if at.start.near is None else at.start.near

    def _entering(self, model: Model, at: Instant) -> tuple[PlaneGap, Material]:
        """The places that enter the equations."""
        planes = jax.tree.map(lambda x: x[: self._slots], self._planes(model, at))
        return planes.gap, self._law_of(planes)

    def _law_of(self, planes: Planes) -> Material:
        """Of their pairs, which share their stiffness among their places."""
        law = jax.tree.map(lambda x: x[planes.pair], material(self, None, 1 / self.places))
        return dataclasses.replace(law, room=planes.room)

    def _both(self, T: jax.Array, pair: jax.Array) -> tuple[Convex, Convex, jax.Array, jax.Array]:
        """The shapes of pairs (m,), and A as seen from B: R (m,3,3) and t (m,3) m."""
        X = compose(T[np.array(self.links)], self.frame)
        g = jnp.asarray(np.array(self.pairs))[pair]
        points, axes, radius = jax.lax.stop_gradient((self.points, self.axes, self.radius))
        size = jnp.sqrt(jnp.max(small_sum(points**2), axis=1)) + jnp.max(axes, axis=1) + radius
        A, B = (Convex(*(x[g[:, k]] for x in (self.points, self.axes, self.radius, size))) for k in range(2))
        X_a, X_b = X[g[:, 0]], X[g[:, 1]]
        turned = transpose(X_b[..., :3])
        return A, B, matmul(turned, X_a[..., :3]), matvec(turned, X_a[..., 3] - X_b[..., 3])

    def _held(self, pair: jax.Array) -> jax.Array:
        return jnp.asarray(np.array(self.held))[pair]

    def _middles(self, at: Instant, pair: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """From B's middle to A's at the start and at the end, (c,3) m, and half of both sizes together, (c,) m."""
        low, high = jnp.min(self.points, axis=1), jnp.max(self.points, axis=1)  # (g,3) m
        size = jnp.min(0.5 * (high - low) + self.axes, axis=1) + self.radius
        centre = jnp.concatenate([0.5 * (low + high), jnp.ones_like(low[:, :1])], axis=1)
        in_link = jnp.concatenate([matvec(self.frame, centre), jnp.ones_like(low[:, :1])], axis=1)
        g = jnp.asarray(np.array(self.pairs))[pair]
        where = [matvec(T[np.array(self.links)], in_link)[g] for T in (at.start.T, at.T)]
        both = jnp.where(self._held(pair), 0.0, jnp.sum(size[g], axis=1))
        return where[0][:, 0] - where[0][:, 1], where[1][:, 0] - where[1][:, 1], both

    def _bounds(self, T: jax.Array) -> jax.Array:
        """(c,) m, at most the distance of every pair."""
        return jax.vmap(convex.best_axis)(*self._both(T, jnp.arange(len(self.pairs))))[1]


def _gains(model: Model, planes: Planes, law: Material, at: Instant) -> jax.Array:
    """Whether planes that have turned gave energy, or one rests in another, () bool."""
    gap = planes.gap
    start, end = (points_of(gap, T) for T in (at.start.T, at.T))
    inside = [gap.reach - gap.distance(P) for P in (start, end)]

    def along(n: jax.Array, moved: jax.Array) -> jax.Array:
        return small_sum((n * moved).reshape(len(n), -1))

    rate = -along(gap.gradient(start), points_of(gap, at.start.V))
    lies = (inside[1] > planes.room) & rests(law.width, inside, rate, at.dt)
    way = along(gap.gradient(end), end - start)
    return gains_energy(law, model, at, start[:, 2], end[:, 2], inside, way) | jnp.any(lies)


# --- checked constructors --------------------------------------------------------------------------------


def convex_contact(
    model: Model,
    geoms: Sequence[tuple[int, int]],
    tau,
    friction=None,
    *,
    places: int = CORNERS,
    margin=0.0,
    max_contacts: int = 32,
    stiffness=None,
    smoothing=None,
    damping=None,
    stick_speed=None,
    unit=TAU,
    turning=None,
) -> ShapeContact:
    """Of c pairs of shapes by their places in the model's geometry, each with one that is no sphere and no capsule.

    Args:
        model: the model. geoms: the pairs. tau: time constant, () or (c,) s. friction: (), (c,) or None.
        places: 1 for pairs with a sphere, else CORNERS. margin: () or (c,) m. turning: (2,) or (c,2) m. The others
            as in `contact_between`.
    """
    # each shape once, and the flatter one of a pair first: its planes are asked
    t = model.topology
    pairs = [(i, j) if flatter(t.geom_types[j], t.geom_types[i]) else (j, i) for i, j in geoms]
    used = sorted({g for pair in pairs for g in pair})
    shapes = convex_shapes(model, used)
    at = {g: k for k, g in enumerate(used)}
    numbered = tuple((at[i], at[j]) for i, j in pairs)
    # numbers of every pair: what it weighs, how it gives way, how it rubs
    mass = lighter_masses(model, [(shapes.links[a], shapes.links[b]) for a, b in numbered])
    slip = model.geometry.friction[:, 0]
    mu = [max(slip[i], slip[j]) for i, j in pairs] if friction is None else friction
    numbers = parameters("contact_between", mass, tau, mu, stiffness, smoothing, damping, stick_speed, unit)
    turning = turning_numbers("contact_between", turning, len(pairs))

    leaf = checks.leaf(model.dtype)
    return ShapeContact(
        points=leaf(shapes.points),
        axes=leaf(shapes.axes),
        radius=leaf(shapes.radius),
        frame=leaf(shapes.frame),
        margin=leaf(margin * np.ones(len(pairs))),
        stiffness=leaf(numbers["stiffness"]),
        width=leaf(numbers["width"]),
        damping=leaf(numbers["damping"]),
        friction=leaf(numbers["friction"]),
        stick_speed=leaf(numbers["stick_speed"]),
        links=shapes.links,
        pairs=numbered,
        held=of_one_tree(model, [(shapes.links[a], shapes.links[b]) for a, b in numbered]),
        most=max_contacts,
        places=places,
        turning=None if turning is None else leaf(turning),
        conservative=is_elastic(numbers, turning),
    )
