"""Contact of bodies with one another: spheres and capsules of chosen pairs.

δ is how much the crowned distance of two axes (axis_gap.py) is less than both radii; all else is the law of law.py.
Friction acts where the two touch at the start of the step, on the point of each body that is there.
Until the end these move apart; where that is along the normal, friction leaves a moment of that distance times f.

Large steps: without friction no energy comes from steps in which two bodies approach by less than (r_a + r_b)/2.
Beyond, a blow off the centres may add some, as the normal turns within the step. Where the axes pass one another on the
way to a solution, d < 0 as long as the two overlap (by x · x_k, x_k at the start of the step), and they are pushed back
to where they came from. What is all through after one step, or has gained energy by such a turn, is told by `passed`
(tunnelling.py), and the step is BRANCH. Where d = 0 there is no direction and no force. With radau(1)
angular momentum changes by dt V × I in every step, V the relative velocity at its start and I the impulse: of first
order, and much where a step is as long as the bodies; with radau(2) by as much in steps as long as that.
There is one point for every pair of shapes. Of many pairs `most` take part in a step, the nearest at its start.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.contact.axis_gap import AxisGap
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
from pbad_jax.contact.pairs import checked_pairs, lighter_masses, of_one_tree
from pbad_jax.contact.tunnelling import crossing, gains_energy, on_another_side, rests
from pbad_jax.errors import ModelError
from pbad_jax.geometry.points import contact_points
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.load import Load, Parts
from pbad_jax.laws.soft_end import SoftEnd
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.model import Model, check_model

ROUND = ("sphere", "capsule")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BodyContact:
    """Contact of c pairs of spheres or capsules; see the module. Made by `body_contact`. It couples links.

    Example:
        >>> pair = forces.body_contact(model, [("link0", "link1")])
        >>> type(pair).__name__, pair.at
        ('BodyContact', 'step')
    """

    u: jax.Array  # (c,4,4) centre (p, 1) and half axis (h, 0) of the first, and of the second, in their links' frames
    radius: jax.Array  # (c,2) m
    stiffness: jax.Array  # (c,) N/m
    width: jax.Array  # (c,) m, of the smooth start
    damping: jax.Array  # (c,) χ, s/m
    friction: jax.Array  # (c,) μ
    stick_speed: jax.Array  # () m/s
    links: tuple = dataclasses.field(metadata=STATIC)  # c tuples of four
    turning: jax.Array | None = None  # (c,2) m, torsional and rolling friction
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    most: int | None = dataclasses.field(default=None, metadata=STATIC)  # pairs at a time; None: all
    # whether joints connect the bodies of each; (): none
    held: tuple[bool, ...] = dataclasses.field(default=(), metadata=STATIC)
    end: SoftEnd | None = None  # what pushes instead of stiffness, width and damping
    pyramid: bool = dataclasses.field(default=False, metadata=STATIC)  # friction by the edges of pyramid.py; of `end`

    def load(self, model: Model, at: Instant) -> Load:
        """The normal forces, and friction."""
        return contact_load(*self._nearest(at), at)

    def by_parts(self, model: Model, at: Instant) -> Parts:
        """Some of the pairs at a time, in the order of how near they were."""
        return contact_parts(*self._nearest(at), at)

    def dual(self, model: Model) -> tuple:
        """A tangent and a sliding direction of every pair that may touch in a step."""
        return contact_duals(self._law, self._taken)

    def near(self, model: Model, start: Start) -> jax.Array | None:
        """Which pairs overlap most, or almost do, at the start of a step; None for all."""
        return None if self._taken == len(self.links) else self._most(start)

    dissipates, potential = property(is_spring), property(energy_of_spring)

    def stored(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp(δ), J, and what the stop has."""
        return stored_energy(self._gap, self._law, at)

    def depth(self, model: Model, at: Instant) -> jax.Array:
        """δ of every pair, (c,) m; negative where they are apart."""
        return depths(self._gap, at)

    def passed(self, model: Model, at: Instant) -> jax.Array:
        """Whether two axes have gone past one another, or bodies are pushed out of another side; and whether pairs
        overlap that were not among the nearest.
        """
        through = _went_through(model, *self._nearest(at), at)
        if self._taken == len(self.links):
            return through
        seen = jnp.any(jnp.arange(len(self.links))[:, None] == self._chosen(at)[None, :], axis=1)
        return through | jnp.any(~seen & (self._gap.nearest(points_of(self._gap, at.T))[0] < self._gap.reach))

    def touching(self, model: Model, at: Instant) -> Touch:
        """Where the bodies push on one another, both sides of every pair one after the other."""
        return touches(*self._nearest(at), at)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many pairs, each of which touches at a point."""
        del model
        some = f", {self._taken} at a time" if self._taken < len(self.links) else ""
        return "BodyContact", f"{len(self.links)} points{some}"

    @property
    def _gap(self) -> AxisGap:
        """Of all pairs."""
        return AxisGap(self.u, self.radius, self.links)

    @property
    def _law(self) -> Material:
        """Of all pairs: so deep the axis of the thinner one is at the other's side, unless joints connect them."""
        held = np.array(self.held or [False] * len(self.links))
        return material(self, jnp.where(held, jnp.inf, jnp.min(self.radius, axis=-1)))

    @property
    def _taken(self) -> int:
        return len(self.links) if self.most is None else min(self.most, len(self.links))

    def _most(self, start: Start) -> jax.Array:
        T = jax.lax.stop_gradient(start.T)
        gaps = self._gap.nearest(points_of(self._gap, T))[0] - self._gap.reach
        return jax.lax.top_k(-jax.lax.stop_gradient(gaps), self._taken)[1]

    def _chosen(self, at: Instant) -> jax.Array:
        return self._most(at.start) if at.start.near is None else at.start.near

    def _nearest(self, at: Instant) -> tuple[AxisGap, Material]:
        """Those of `near` alone."""
        if self._taken == len(self.links):
            return self._gap, self._law
        everything = dataclasses.replace(self._gap, links=(), where=jnp.asarray(np.array(self.links))), self._law
        near = self._chosen(at)
        return jax.tree.map(lambda x: x[near], everything)


def _went_through(model: Model, gap: AxisGap, law: Material, at: Instant) -> jax.Array:
    """Whether axes have gone past one another, are pushed out of another side, or rest in one another; () bool."""
    start, end = (points_of(gap, T) for T in (at.start.T, at.T))
    moved = end - start

    def nearest(t: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return gap.nearest(start + t[:, None, None] * moved)

    # where the way goes in, and where it comes out
    sizes = jnp.linalg.norm(jnp.stack([moved[:, 0] - moved[:, 2], moved[:, 1], moved[:, 3]]), axis=-1)
    way = crossing(lambda t: nearest(t)[0] - gap.reach, jnp.sum(sizes, axis=0))
    g_in, g_out = (nearest(t)[1] for t in (way.enters, way.leaves))
    n_in, n_out = g_in[:, 0], g_out[:, 0]
    moving = points_of(gap, at.start.V)
    nearer = -at.dt * jnp.sum(g_in * moving, axis=(1, 2))
    other = on_another_side(way, n_in, n_out, jnp.min(gap.radius, axis=-1), nearer)

    # what the forces have given; what lies in one another
    d, n, _ = nearest(jnp.ones_like(way.leaves))
    side = gap.side(at, d, n[:, 0])
    along = side * jnp.sum(n * moved, axis=(1, 2))
    d_0, n_0, _ = nearest(jnp.zeros_like(d))
    inside = [gap.reach - x for x in (d_0, side * d)]
    gains = gains_energy(law, model, at, n_in, side[:, None] * n[:, 0], inside, along)
    rate = -jnp.sum(n_0 * moving, axis=(1, 2))
    assert law.room is not None
    lies = (inside[1] > law.room) & rests(law.width, inside, rate, at.dt)
    return other | gains | jnp.any(lies)


def body_contact(
    model: Model,
    pairs: Sequence[tuple[str, str]],
    *,
    stiffness: float | None = None,
    time_constant: float = 0.01,
    smoothing: float | None = None,
    damping: float | None = None,
    friction: float | None = None,
    stick_speed: float | None = None,
    turning: Any = None,
    at: str = "step",
) -> BodyContact:
    """Spheres and capsules of chosen pairs of bodies against one another; other shapes of theirs do not take part.

    Args:
        model: the model; its masses set the stiffness.
        pairs: names of bodies, every pair once.
        stiffness: N/m of every pair of shapes; default mass/time_constant², the mass of the lighter of both bodies with
            all they carry, but at least a twentieth of the other's.
        time_constant: s.
        smoothing: m of penetration over which the stiffness comes in; default what the weight of that mass presses in.
        damping: χ in s/m; at an approach of 1/χ the force doubles, at a retreat of 1/χ it is gone. Default 1 s/m at a
            time constant of 10 ms, and in inverse proportion.
        friction: μ; default the larger of the two shapes'.
        stick_speed: m/s below which friction is viscous. Default 1 mm/s at a time constant of 10 ms, in proportion.
        turning: torsional and rolling friction, m, of every pair; see `contact`. Default none.
        at: "step", one implicit impulse a step, for large steps; "stages" for dt of a tenth of a bounce or less.

    Raises:
        ModelError: unknown bodies, bodies without spheres and capsules, bodies that cannot move against one another, no
            pairs or the same twice, negative or zero values.

    Example:
        >>> touching = pbad.with_forces(model, forces.body_contact(model, [("link0", "link1")], friction=0.5))
        >>> type(touching.forces[-1]).__name__
        'BodyContact'
    """
    check_model(model)
    if not pairs:
        raise ModelError("body_contact: pairs is empty; give pairs of names, [('thigh', 'shin')]")
    shapes = [_shapes_of(model, *bodies) for bodies in checked_pairs(model, pairs)]
    geoms = [(i, j) for first, second in shapes for i in first for j in second]
    tau = checks.above_zero(time_constant, "time_constant of body_contact")
    mu = None if friction is None else checks.number(friction, "friction of body_contact")
    how: dict[str, Any] = {
        "stiffness": stiffness,
        "smoothing": smoothing,
        "damping": damping,
        "stick_speed": stick_speed,
    }
    return geom_contact(model, geoms, tau, mu, turning=turning, at=at, **how)


def geom_contact(
    model: Model,
    geoms: Sequence[tuple[int, int]],
    tau,
    friction=None,
    *,
    stiffness=None,
    smoothing=None,
    damping=None,
    stick_speed=None,
    unit=TAU,
    turning=None,
    at="step",
    margin=0.0,
    max_contacts=None,
) -> BodyContact:
    """The same for c pairs of shapes by their places in the model's geometry, all spheres and capsules on bodies.

    Args:
        model: the model. geoms: the pairs. tau: time constant, () or (c,) s. friction: (), (c,) or None.
        stiffness, smoothing, damping, stick_speed, turning, at: as in `body_contact`; turning may be (c,2).
        unit: s, the time constant at which the default damping is 1 s/m.
        margin: () or (c,) m, at which they begin to touch. max_contacts: pairs at a time; None: all.
    """
    checks.one_of(at, ("step", "stages"), "at of body_contact")
    # each shape as a segment with a radius
    rods = {g: _rod(model, g) for g in sorted({g for pair in geoms for g in pair})}
    both = [(rods[i], rods[j]) for i, j in geoms]
    # numbers of every pair
    mass = lighter_masses(model, [(a.link, b.link) for a, b in both])
    mu = [max(a.friction, b.friction) for a, b in both] if friction is None else friction
    numbers = parameters("body_contact", mass, tau, mu, stiffness, smoothing, damping, stick_speed, unit)
    turning = turning_numbers("body_contact", turning, len(both))

    leaf = checks.leaf(model.dtype)
    return BodyContact(
        u=leaf([np.concatenate([a.u, b.u]) for a, b in both]),
        radius=leaf(np.array([(a.radius, b.radius) for a, b in both]) + 0.5 * np.reshape(margin, (-1, 1))),
        **{k: leaf(x) for k, x in numbers.items()},
        links=tuple((a.link, a.link, b.link, b.link) for a, b in both),
        turning=None if turning is None else leaf(turning),
        at=at,
        end=None,
        pyramid=False,
        conservative=is_elastic(numbers, turning),
        most=max_contacts,
        held=of_one_tree(model, [(a.link, b.link) for a, b in both]),
    )


@dataclasses.dataclass(frozen=True)
class _Rod:
    """A sphere or capsule on a link: u (2,4) its centre (p, 1) and half axis (h, 0)."""

    link: int
    u: np.ndarray
    radius: float
    friction: float


def _rod(model: Model, geom: int) -> _Rod:
    """From the ends of its axis: of a sphere one, of a capsule two."""
    ends = contact_points(model, geoms=[geom])
    p = ends.position
    u = np.stack([np.r_[(p[0] + p[-1]) / 2, 1.0], np.r_[(p[0] - p[-1]) / 2, 0.0]])
    return _Rod(ends.links[0], u, float(ends.radius[0]), float(ends.friction[0]))


def _shapes_of(model: Model, *bodies: int) -> list[list[int]]:
    """Spheres and capsules of each body that touch, by their places in the geometry."""
    t, out = model.topology, []
    for body in bodies:
        own = [i for i, b in enumerate(t.geom_bodies) if b == body and t.geom_touches[i] and t.geom_types[i] in ROUND]
        if not own:
            kinds = sorted({t.geom_types[i] for i, b in enumerate(t.geom_bodies) if b == body and t.geom_touches[i]})
            raise ModelError(
                f"body_contact: body {t.body_names[body]!r} has no sphere or capsule that touches, it has "
                f"{', '.join(kinds) or 'no shapes'}; give it a Geom('sphere', ...) or Geom('capsule', ...)"
            )
        out.append(own)
    return out
