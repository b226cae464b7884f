"""Contact of convex shapes on bodies with one another: boxes, cylinders, ellipsoids, convex meshes, spheres, capsules.

At the start of a step the shapes of every pair are held apart by the plane that separates them best (convex.py), and by
up to four places in which they would touch. For the length of the step the plane stays on the flatter body B, and the
places on theirs: with C_a and x_b generalised points of the two links and n the plane's normal, carried by B,

    d = n · (C_a − x_b),   δ = reach − d;

all else is the law of contact_law.py. C_a is a point of A or, where A is round, the middle of what rolls there, and
its radius is part of `reach`. P = (C_a, x_b, n) and ∂d/∂P = (n, −n, C_a − x_b): the forces have no sum and no moment,
and the curvature of d is constant.

What does not bend within a step is simple to solve for, and nobody passes through a plane that has no end. The price is
of first order in the step: what slides past a corner within one step still meets its plane, and a pair that separates
along another plane than it began with is held by the first one until the next step. That takes energy and never gives
any, because of all planes the best one has the shapes overlap least. Where the plane itself turns, on a body that spins
fast, `passed` looks at the energy that it gives, and the step is BRANCH.

Four places of which all lie on one side would not hold a box. So one shape is tilted to four sides by TILT about where
it touches, and each time the shapes are asked again where they are nearest: at the ends of what they have in common, if
that is a face or an edge, and four times at the same point, if it is a corner. Each place has a quarter of the
stiffness.

A force looks at `max_contacts` pairs at a time, the nearest at the start of the step by the axes of the shapes, and
takes as many of their places, again the nearest, so that its cost in the equations is theirs. Where other pairs or
places overlap at the end of a step, `passed` says so: BRANCH.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.forces import convex
from pbad_jax.forces.contact_law import (
    TAU,
    Led,
    Touch,
    below,
    contact_duals,
    contact_load,
    contact_parts,
    coulomb_friction,
    distances_at,
    is_elastic,
    mobility_along,
    normal_force,
    parameters,
    turning_numbers,
)
from pbad_jax.forces.convex import Convex
from pbad_jax.forces.convex_shapes import convex_shapes, flatter
from pbad_jax.forces.force import Instant, Load, Parts, PointForces, Start, place
from pbad_jax.forces.one_sided import spring
from pbad_jax.forces.pairs import lighter_masses, of_one_tree
from pbad_jax.forces.passing import gains_energy, middles_cross, rests
from pbad_jax.math import rotations
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matmul, matvec, small_sum, transpose
from pbad_jax.math.spatial import compose
from pbad_jax.model.model import Model

TILT = 0.1  # rad
TURN = 0.55  # rad, between the tilts and the axes of B, so that they are not along the edges of boxes
CORNERS = 4
OF_ALL = ("stick_speed", "conservative")  # of the fields of _Met
BENT = np.zeros((3, 3, 3, 3))  # ∂²d/∂P²: of n with C_a, and less of n with x_b
for _i, _sign in ((0, 1.0), (1, -1.0)):
    BENT[_i, :, 2, :] = BENT[2, :, _i, :] = _sign * np.eye(3)


class Planes(NamedTuple):
    """What holds the nearest pairs apart during a step: c places; where not all can be taken, the nearest first."""

    pair: jax.Array  # (c,) int
    links: jax.Array  # (c,3) int, of A, B, B
    u: jax.Array  # (c,3,4) C_a, x_b and n in their links' frames
    reach: jax.Array  # (c,) m
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
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """The normal forces, and friction."""
        return contact_load(self._entering(model, at), at)

    def by_parts(self, model: Model, at: Instant) -> Parts:
        """Some of the places at a time, in the order of how near they were."""
        met = self._entering(model, at)
        places = {f.name: getattr(met, f.name) for f in dataclasses.fields(_Met) if f.name not in OF_ALL}
        depths = [met.reach - _distance(place(T, met.links, met.u)) for T in distances_at(at)]

        def load(places: dict, at: Instant) -> Load:
            return contact_load(_Met(**places, conservative=self.conservative), at)

        return contact_parts(load, met, places, depths, at)

    def dual(self, model: Model) -> tuple:
        """A tangent and a sliding direction of every place."""
        return contact_duals(self, model, self._slots)

    def near(self, model: Model, start: Start) -> Planes:
        """The planes of the nearest pairs at the start of a step."""
        del model
        pair = jnp.arange(len(self.pairs))
        if self._taken < len(self.pairs):
            bounds = self.margin - self._bounds(start.T)
            pair = jax.lax.top_k(jax.lax.stop_gradient(bounds), self._taken)[1]
        A, B, R, t = self._both(start.T, pair)
        found = jax.vmap(functools.partial(_touching, places=self.places))(A, B, R, t)
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
        reach, room, through = (x + self.margin[pair][:, None] for x in (found.reach, found.room, found.through))
        held = self._held(pair)[:, None]
        room, through = jnp.where(held, jnp.inf, room), jnp.where(held, jnp.inf, through)
        along = jnp.broadcast_to(links[:, None, [0, 1, 1]], (*u.shape[:2], 3))
        flat = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
        planes = Planes(jnp.repeat(pair, self.places), *map(flat, (along, u, reach, room, through)))
        if self._slots == len(planes.reach):
            return planes
        depths = planes.reach - _distance(place(start.T, planes.links, planes.u))
        order = jax.lax.top_k(jax.lax.stop_gradient(depths), len(depths))[1]
        return jax.tree.map(lambda x: x[order], planes)

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp(δ), J, and what the stop has, of the planes at the start of the step."""
        met = self._met(self._planes(model, at))
        return jnp.sum(spring(met, met.depth(model, at))[0])

    def depth(self, model: Model, at: Instant) -> jax.Array:
        """δ of every place, m; negative where they are apart."""
        return self._met(self._planes(model, at)).depth(model, at)

    def passed(self, model: Model, at: Instant) -> jax.Array:
        """Whether shapes are past one another's middles, planes that have turned gave energy, one rests in another, or
        what was not among the nearest overlaps.
        """
        planes = self._planes(model, at)
        met = self._met(planes)
        depth = met.depth(model, at)
        gained = met.gains(model, at) | jnp.any(depth > met.through) | jnp.any(depth[self._slots :] > 0)
        gained = gained | middles_cross(*self._middles(at, planes.pair))
        if self._taken == len(self.pairs):
            return gained
        seen = jnp.any(jnp.arange(len(self.pairs))[:, None] == planes.pair[None, :], axis=1)
        return gained | jnp.any(~seen & (self._bounds(at.T) < self.margin))

    def touching(self, model: Model, at: Instant) -> Touch:
        """Where the shapes push on one another: the places on A, then those on B."""
        met = self._entering(model, at)
        P, f = place(at.T, met.links, met.u), met._normal(at)[0].force
        on_a = below(P[:, 0], f[:, 0], met.reach)
        links, points = (jnp.concatenate(x) for x in ((met.links[:, 0], met.links[:, 1]), (on_a, P[:, 1])))
        return Touch(links, points, jnp.concatenate([f[:, 0], f[:, 1]]))

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

    def _entering(self, model: Model, at: Instant) -> "_Met":
        """The places that enter the equations."""
        return self._met(jax.tree.map(lambda x: x[: self._slots], self._planes(model, at)))

    def _met(self, p: Planes) -> "_Met":
        own = (self.stiffness / self.places, self.width, self.damping, self.friction, self.turning)
        k, width, damping, mu, turning = jax.tree.map(lambda x: x[p.pair], own)
        return _Met(
            p.links,
            p.u,
            p.reach,
            p.room,
            p.through,
            k,
            width,
            damping,
            mu,
            turning,
            self.stick_speed,
            self.conservative,
        )

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


# --- where two shapes touch ------------------------------------------------------------------------------


class _Touching(NamedTuple):
    """Places of one pair, in the shapes' own frames."""

    n: jax.Array  # (places,3) in B
    on_a: jax.Array  # (places,3) m, C_a in A
    on_b: jax.Array  # (places,3) m, in B
    reach: jax.Array  # (places,) m
    room: jax.Array  # (places,) m
    through: jax.Array  # (places,) m


def _touching(A: Convex, B: Convex, R: jax.Array, t: jax.Array, *, places: int) -> _Touching:
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
    return _Touching(n, on_a - (inside * m)[None], on_b, reach, room, through)


def _tilted(
    A: Convex, B: Convex, R: jax.Array, t: jax.Array, middle: convex.Meeting, way
) -> tuple[jax.Array, jax.Array]:
    """Where they are nearest when A is tilted about the middle to one of four sides: in A, and in B."""
    n = middle.normal
    e = jnp.asarray(np.eye(3), n.dtype)[jnp.argmin(jnp.abs(jax.lax.stop_gradient(n)))]
    side = jnp.cross(n, e)
    side = side / jnp.sqrt(small_sum(side * side))
    angle = TURN + 0.5 * np.pi * way
    about = jnp.cos(angle) * side + jnp.sin(angle) * jnp.cross(n, side)
    Q = rotations.rotation(jnp.concatenate([jnp.ones(1, n.dtype), np.tan(TILT / 2) * about]))
    m = -matvec(R.T, n)
    below = -n * small_sum(m * (convex.corner(A, m) + convex.rounding(A, m)))  # from the centre of A to its foot
    R, t = matmul(Q, R), t + below - matvec(Q, below)
    far = convex.away(A, B, R, t, n)
    none, moved = jnp.zeros_like(far), far * n
    A_, B_, R_, t_, moved_, n_ = jax.lax.stop_gradient((A, B, R, t, moved, n))
    simplex, v = convex.gjk(A_, B_, R_, t_ + moved_, n_)
    normal = convex.polished(A_, B_, R_, t_, simplex, none, moved_, v / jnp.sqrt(small_sum(v * v)))
    there = convex.meeting(A, B, R, t, simplex, none, moved, normal)
    return there.on_a, there.on_b


# --- the planes as a force -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Met:
    """c planes with their laws, during a step."""

    links: jax.Array  # (c,3)
    u: jax.Array  # (c,3,4)
    reach: jax.Array  # (c,)
    room: jax.Array  # (c,)
    through: jax.Array  # (c,)
    stiffness: jax.Array
    width: jax.Array
    damping: jax.Array
    friction: jax.Array
    turning: jax.Array | None
    stick_speed: jax.Array
    conservative: bool

    def depth(self, model: Model, at: Instant) -> jax.Array:
        """δ, (c,) m."""
        del model
        return self.reach - _distance(place(at.T, self.links, self.u))

    def gains(self, model: Model, at: Instant) -> jax.Array:
        """Whether planes that have turned gave energy, or one rests in another, () bool."""
        start, end = (place(T, self.links, self.u) for T in (at.start.T, at.T))
        along = small_sum(_gradient(end).reshape(len(end), -1) * (end - start).reshape(len(end), -1))
        depths = [self.reach - _distance(P) for P in (start, end)]
        rate = -small_sum((_gradient(start) * place(at.start.V, self.links, self.u)).reshape(len(end), -1))
        inside = (depths[1] > self.room) & rests(self.width, depths, rate, at.dt)
        return gains_energy(self, model, at, start[:, 2], end[:, 2], depths, along) | jnp.any(inside)

    def _normal(self, at: Instant) -> tuple[PointForces, Any]:
        P, V = place(at.T, self.links, self.u), place(at.V, self.links, self.u)
        c, n = len(P), _gradient(P)
        hessian = jnp.broadcast_to(jnp.asarray(BENT.reshape(1, 9, 9), P.dtype), (c, 9, 9))
        law = normal_force(
            self, self.reach, _distance(P), n.reshape(c, 9), hessian, V.reshape(c, 9), self._way(at, P[:, 2])
        )
        force, modelled, curving = (
            None if x is None else x.reshape(P.shape) for x in (law.force, law.modelled, law.curving)
        )
        df_dP, df_dV = (None if x is None else x.reshape(c, 3, 3, 3, 3) for x in (law.df_dP, law.df_dV))
        assert force is not None
        return PointForces((), self.u, force, df_dP, df_dV, modelled, curving, self.links), law.dual

    def _way(self, at: Instant, n: jax.Array) -> Led | None:
        if at.guide is None:
            return None
        expected = _distance(place(at.guide.T, self.links, self.u))
        P = place(at.start.T, self.links, self.u)
        mobility = sum(mobility_along(at.guide, self.links[:, k], P[:, k], n) for k in range(2))
        return Led(expected, at.guide.dual[0], at.guide.rate, 1 / jnp.asarray(mobility))

    def pressing(self, at: Instant) -> tuple[jax.Array, jax.Array, jax.Array]:
        """N and n at the start of the step, and the links; see `contact_load`."""
        P = place(at.start.T, self.links, self.u)
        return spring(self, self.reach - _distance(P))[1], P[:, 2], self.links[:, :2]

    def _friction(self, at: Instant) -> tuple[PointForces, Any]:
        """Where they touch at the start of the step, in the middle of the overlap."""
        T, (N, n, links) = at.start.T, self.pressing(at)
        P = place(T, self.links, self.u)
        depth = self.reach - _distance(P)
        middle = P[:, 0] - (self.reach - 0.5 * depth)[:, None] * n
        frames = T[links]
        inside = matvec(transpose(frames[..., :3]), middle[:, None] - frames[..., 3])
        u = jnp.concatenate([inside, jnp.ones_like(inside[..., :1])], axis=-1)
        V = place(at.V, links, u)
        last = None if at.guide is None else at.guide.dual[1]
        law = coulomb_friction(self, N, n, V[:, 0] - V[:, 1], at.guide, last)
        pair = jnp.asarray([1.0, -1.0], n.dtype)
        df_dV = jnp.einsum("i,j,cab->ciajb", pair, pair, law.df_dV)
        force, curving = (None if x is None else pair[None, :, None] * x[:, None] for x in (law.force, law.curving))
        assert force is not None
        return PointForces((), u, force, None, df_dV, None, curving, links), law.dual


def _distance(P: jax.Array) -> jax.Array:
    """d (c,) m of P (c,3,3)."""
    return small_sum(P[:, 2] * (P[:, 0] - P[:, 1]))


def _gradient(P: jax.Array) -> jax.Array:
    """∂d/∂P (c,3,3)."""
    return jnp.stack([P[:, 2], -P[:, 2], P[:, 0] - P[:, 1]], axis=1)


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
    t = model.topology
    pairs = [(i, j) if flatter(t.geom_types[j], t.geom_types[i]) else (j, i) for i, j in geoms]
    used = sorted({g for pair in pairs for g in pair})
    shapes = convex_shapes(model, used)
    at = {g: k for k, g in enumerate(used)}
    numbered = tuple((at[i], at[j]) for i, j in pairs)
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
