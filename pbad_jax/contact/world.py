"""Contact of points and spheres of the bodies with a surface of the world, by the law of law.py."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.contact.gap import Place, depths, points_of, unit
from pbad_jax.contact.law import (
    Material,
    Touch,
    below,
    contact_duals,
    contact_load,
    energy_of_spring,
    is_elastic,
    is_spring,
    material,
    parameters,
    stored_energy,
    touches,
    turning_numbers,
)
from pbad_jax.contact.pairs import borne
from pbad_jax.contact.tunnelling import crossing, gains_energy, on_another_side, rests
from pbad_jax.geometry import surfaces
from pbad_jax.geometry.points import ContactPoints, check_points, contact_points
from pbad_jax.kinematics.reference import reference_transforms, tree_masses
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, place
from pbad_jax.laws.one_sided import FREE
from pbad_jax.laws.soft_end import SoftEnd
from pbad_jax.math.batched import cond_if_any
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matvec, small_sum, transpose
from pbad_jax.model.model import Model, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SurfaceGap:
    """The distance of c points from a surface of the world, less the radius of a sphere about each; a Gap."""

    surface: Any
    u: jax.Array  # (c,1,4)
    reach: jax.Array  # (c,) m, the radius
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    where: jax.Array | None = None
    bodies: ClassVar[slice] = slice(0, 1)

    def distance(self, P: jax.Array, at: Any = None) -> jax.Array:
        """d (c,) m of points P (c,1,3)."""
        return jax.vmap(self.surface.distance)(P[:, 0])

    def slopes(self, P: jax.Array, at: Instant) -> tuple[jax.Array, jax.Array, jax.Array]:
        """By the surface's own hand, or by autodiff of its distance."""
        d, n, curvature = surfaces.slopes(self.surface, P[:, 0])
        return d, n[:, None], curvature

    def touching(self, at: Instant) -> Place:
        """From the centre of the sphere along the normal."""
        d, n, _ = surfaces.slopes(self.surface, points_of(self, at.start.T)[:, 0])
        turned = transpose(at.start.T[np.asarray(self.links)][..., :3])
        rim = -self.reach[:, None] * matvec(turned, unit(n))
        return Place(self.reach - d, n, self.u + jnp.concatenate([rim, jnp.zeros_like(rim[:, :1])], axis=1)[:, None])

    def pushed(self, P: jax.Array, f: jax.Array) -> jax.Array:
        """On the sphere."""
        return below(P, f, self.reach[:, None])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Contact:
    """Contact of c points with one surface; see the module. Made by `contact`.

    Example:
        >>> contact = forces.contact(ball, friction=0.5)
        >>> contact.friction
        Array([0.5], dtype=float64)
        >>> icy = dataclasses.replace(contact, friction=0 * contact.friction)
    """

    surface: Any
    u: jax.Array  # (c,4) the points, (p, 1) in their links' frames
    radius: jax.Array  # (c,) m
    stiffness: jax.Array  # (c,) N/m
    width: jax.Array  # (c,) m, of the smooth start
    damping: jax.Array  # (c,) χ, s/m
    friction: jax.Array  # (c,) μ
    stick_speed: jax.Array  # () m/s
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    turning: jax.Array | None = None  # (c,2) m, torsional and rolling friction
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    half: jax.Array | None = None  # (c,) m, half the least size of what each point belongs to; inf: unknown
    end: SoftEnd | None = None  # what pushes instead of stiffness, width and damping
    pyramid: bool = dataclasses.field(default=False, metadata=STATIC)  # friction by the edges of pyramid.py; of `end`

    def load(self, model: Model, at: Instant) -> Load:
        """The normal forces, and friction."""
        return contact_load(self._gap, self._law, at)

    def dual(self, model: Model) -> tuple:
        """A tangent and a sliding direction of every point."""
        return contact_duals(self._law, len(self.links))

    dissipates, potential = property(is_spring), property(energy_of_spring)

    def stored(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp(δ), J, and what the stop has."""
        return stored_energy(self._gap, self._law, at)

    def depth(self, model: Model, at: Instant) -> jax.Array:
        """δ of every point, (c,) m; negative in the air."""
        return depths(self._gap, at)

    def passed(self, model: Model, at: Instant) -> jax.Array:
        """Whether a point has gone through the surface, or is pushed out of another side of it, or a body sinks."""
        sinks = self._sinks(model, at)
        if getattr(self.surface, "one_sided", False):
            return sinks
        start, end = (place(T, self.links, self.u) for T in (at.start.T, at.T))
        moved, distance = end - start, jax.vmap(self.surface.distance)

        def on_way(t: jax.Array) -> jax.Array:
            return start + t[:, None] * moved

        way = crossing(lambda t: distance(on_way(t)) - self.radius, jnp.linalg.norm(moved, axis=-1))
        ends = [jax.vmap(jax.value_and_grad(self.surface.distance))(P) for P in (start, end)]
        n_in, n_out = (jax.vmap(jax.grad(self.surface.distance))(on_way(t)) for t in (way.enters, way.leaves))
        inside, n = [self.radius - d for d, _ in ends], ends[1][1]
        gains = gains_energy(self._law, model, at, n_in, n, inside, small_sum(n * moved))
        nearer = -at.dt * small_sum(n_in * place(at.start.V, self.links, self.u))
        return on_another_side(way, n_in, n_out, self.radius, nearer) | gains | sinks

    def _sinks(self, model: Model, at: Instant) -> jax.Array:
        """Whether a body goes under and nothing slows it, or lies there: it is pressed on by more than it can carry.

        Asked of bodies whose points surround their centre of mass: all of them and the centre have to be below. What is
        small and fast goes so deep for a while, but is slowed from the first touch on.
        """
        own = jnp.asarray(np.asarray(self.links)[None, :] == np.unique(self.links)[:, None])
        under = self._under(own, at.T)
        given = jax.lax.stop_gradient((model, self, at, under))
        return cond_if_any(jnp.any(under), lambda *_: jnp.zeros((), bool), _presses_under, *given)

    def _under(self, own: jax.Array, T: jax.Array) -> jax.Array:
        """(b,) bool, whether all points of a body are under the surface."""
        points = jax.vmap(self.surface.distance)(place(T, self.links, self.u))
        return jnp.all(~own | (points < 0)[None], axis=1)

    def touching(self, model: Model, at: Instant) -> Touch:
        """Where the surface pushes on the bodies."""
        return touches(self._gap, self._law, at)

    @property
    def _gap(self) -> SurfaceGap:
        """Between the points and the surface."""
        return SurfaceGap(self.surface, self.u[:, None], self.radius, self.links)

    @property
    def _law(self) -> Material:
        """Of all points."""
        return material(self, self.room)

    @property
    def room(self) -> jax.Array | None:
        """(c,) m, how deep the middle of a body is in what has one side, or a point's in the middle of others."""
        if getattr(self.surface, "one_sided", False):
            return self.half
        thickness = getattr(self.surface, "thickness", None)
        return None if thickness is None else self.radius + thickness

    def describe(self, model: Model) -> tuple[str, str]:
        """The surface, and how many points."""
        return f"Contact with a {type(self.surface).__name__}", f"{len(self.links)} points"


def _presses_under(model: Model, c: Contact, at: Instant, under: jax.Array) -> jax.Array:
    """Whether one of the bodies that are `under` (b,) has just gone, and nothing slows it, or lies there; () bool."""
    bodies, distance = np.unique(c.links), jax.vmap(c.surface.distance)
    own = jnp.asarray(np.asarray(c.links)[None, :] == bodies[:, None])
    moment = model.second_moment[bodies][:, :, 3]  # (b,4) of mass, and the mass
    u = moment / jnp.where(moment[:, 3:] > 0, moment[:, 3:], 1.0)  # the centre
    off, r = c.u[None, :, :3] - u[:, None, :3], c.radius[None, :, None]
    sides = (jnp.max(jnp.where(own[..., None], r + x, -jnp.inf), axis=1) for x in (off, -off))  # (b,3) each
    asked = jnp.all(jnp.concatenate([x >= 0 for x in sides], axis=1), axis=1) & (moment[:, 3] > 0) & under
    if c.half is not None:
        asked &= jnp.any(own & jnp.isfinite(c.half)[None], axis=1)

    # their centres: how deep, how fast
    centres = [matvec(T[bodies], u) for T in (at.start.T, at.T)]
    depths = [-distance(x) for x in centres]
    n = jax.vmap(jax.grad(c.surface.distance))(centres[1])
    rate, mean = (-small_sum(n * matvec(V[bodies], u)) for V in (at.start.V, at.V))
    gone = ~(c._under(own, at.start.T) & (depths[0] > 0)) & (mean >= rate)
    lies = rests(jnp.max(jnp.where(own, c.width[None], 0.0), axis=1), depths, rate, at.dt)
    return jnp.any(asked & (depths[1] > 0) & (gone | lies))


def contact(
    model: Model,
    surface: Any = None,
    *,
    points: ContactPoints | None = None,
    stiffness: float | None = None,
    time_constant: float = 0.01,
    smoothing: float | None = None,
    damping: float | None = None,
    friction: float | None = None,
    stick_speed: float | None = None,
    turning: Any = None,
    at: str = "step",
) -> Contact:
    """The model's geometry against one surface of the world.

    Args:
        model: the model; its masses set the stiffness.
        surface: of surfaces.py, or anything with `distance(P)`; default the ground z ≤ 0.
        points: which points touch; default all that `contact_points(model)` finds.
        stiffness: N/m of every point; default mass/time_constant², the mass of its whole tree, so that a body resting
            on one point sinks g · time_constant² (1 mm); at least a twentieth of the heaviest tree, that it may carry.
        time_constant: s.
        smoothing: m of penetration over which the stiffness comes in; default what the weight of the tree presses in.
        damping: χ in s/m; at an approach of 1/χ the force doubles, at a retreat of 1/χ it is gone. Default 1 s/m at a
            time constant of 10 ms, and in inverse proportion.
        friction: μ; default that of the geometry.
        stick_speed: m/s below which friction is viscous. Default 1 mm/s at a time constant of 10 ms, in proportion.
        turning: torsional and rolling friction, m, (2,) or (c,2) of every point: a torque of N times as much against
            turning about the normal, and across it. Default none.
        at: "step", one implicit impulse a step, for large steps; "stages" for dt of a tenth of a bounce or less.

    Raises:
        ModelError: negative or zero values, no surface, no points, points on links that the model has not.

    Example:
        >>> touching = pbad.with_forces(ball, forces.contact(ball, forces.half_space(offset=0.0), friction=0.8))
        >>> bool(pbad.contact_forces(touching, pbad.make_state(touching))[0, 5] > 0)  # N, upwards
        True
    """
    # what touches what
    check_model(model)
    if surface is not None:
        surfaces.check_surface(surface, "contact")
    points = contact_points(model) if points is None else points
    checks.one_of(at, ("step", "stages"), "at of contact")
    check_points(model, points)
    # how stiff: a point may have to carry its whole tree, and some of the heaviest one
    trees = tree_masses(model)
    mass = borne(trees, trees.max())[np.asarray(points.links)]
    tau = checks.above_zero(time_constant, "time_constant of contact")
    mu = points.friction if friction is None else checks.number(friction, "friction of contact")
    numbers = parameters("contact", mass, tau, mu, stiffness, smoothing, damping, stick_speed)
    turning = turning_numbers("contact", turning, len(mass))

    leaf = checks.leaf(model.dtype)
    half = _half_sizes(points)
    ground = jax.tree.map(leaf, surfaces.half_space() if surface is None else surface)
    return Contact(
        surface=ground,
        u=leaf(np.c_[points.position, np.ones(len(mass))]),
        radius=leaf(points.radius),
        **{k: leaf(x) for k, x in numbers.items()},
        links=tuple(points.links),
        turning=None if turning is None else leaf(turning),
        at=at,
        conservative=is_elastic(numbers, turning),
        end=None,
        pyramid=False,
        half=leaf(np.where(_begins_deep(model, points, ground, half), np.inf, half)),
    )


def _half_sizes(points: ContactPoints) -> np.ndarray:
    """Half of the least side of the box in a link's axes that holds its points, for each of these, (c,) m."""
    links, P, r = np.asarray(points.links), np.asarray(points.position), np.asarray(points.radius)[:, None]
    half = {
        k: (np.max((P + r)[links == k], axis=0) - np.min((P - r)[links == k], axis=0)).min() / 2 for k in set(links)
    }
    return np.array([half[k] for k in links])


def _begins_deep(model: Model, points: ContactPoints, surface: Any, half: np.ndarray) -> np.ndarray:
    """Whether points of its link are in the stop at q0, and joints hold it there, (c,) bool."""
    links, t = np.asarray(points.links), tree(model.topology)
    slides = np.sum(np.asarray(t.dof_slide)[:, None] & np.asarray(t.dof_above_link, bool), axis=0)
    P = np.einsum("cij,cj->ci", reference_transforms(model)[links], np.c_[points.position, np.ones(len(links))])
    with jax.ensure_compile_time_eval():
        d = np.asarray(jax.vmap(surface.distance)(jnp.asarray(P, model.dtype)))
    deep = np.asarray(points.radius) - d > FREE * half
    return np.array([slides[k] < 2 and np.any(deep[links == k]) for k in links])
