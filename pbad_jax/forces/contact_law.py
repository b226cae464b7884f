"""Contact of points and spheres of the bodies with a surface of the world: smooth penalty, smooth Coulomb friction.

For a sphere of radius r about P (r = 0: a point), with d(P) the signed distance and n its gradient,

    δ = r − d(P),  δ̇ = −n · V,   normal force  F n,  F = k ramp(δ) g(1 + χ δ̇),

ramp and g of smooth.py: C¹ forces, nothing pulls, and damping acts only under pressure (Hunt and Crossley). Friction is
lagged: with the elastic normal force N, the normal n and the touching point of the body all taken at the start of the
step,

    f = −μ N w/√(w² + s²),   w the tangential velocity of that point,

which is minus the gradient of a dissipation, so the Newton matrix of one stage stays symmetric (Li et al. 2020, IPC).
Nothing depends on dt: a block on a slope tan θ < μ creeps at s tan θ/√(μ² − tan² θ).
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces import surfaces
from pbad_jax.forces.law import Load, Point, Pull, place
from pbad_jax.forces.smooth import positive, ramp, sliding
from pbad_jax.forces.touching_points import ContactPoints, check_points, contact_points
from pbad_jax.joints import matvec, transpose
from pbad_jax.model import Model
from pbad_jax.short_sums import short_sum

G0 = 9.81  # m/s², for the smooth start of the penalty


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["surface", "u", "radius", "stiffness", "width", "damping", "friction", "stick_speed"],
    meta_fields=["links", "at", "conservative"],
)
@dataclasses.dataclass(frozen=True)
class Contact:
    """Contact of c points with one surface; see the module. Made by `contact`."""

    surface: Any
    u: jax.Array  # (c,4) the points, (p, 1) in their links' frames
    radius: jax.Array  # (c,) m
    stiffness: jax.Array  # (c,) N/m
    width: jax.Array  # (c,) m, of the smooth start
    damping: jax.Array  # (c,) χ, s/m
    friction: jax.Array  # (c,) μ
    stick_speed: jax.Array  # () m/s
    links: tuple[int, ...]
    at: str = "step"
    conservative: bool = False
    bends: ClassVar[bool] = True

    def load(self, model: Model, at: Point) -> Load:
        """The normal forces, and friction."""
        return Load(pulls=(self._normal(at), self._friction(at)) if not self.conservative else (self._normal(at),))

    def potential(self, model: Model, at: Point) -> jax.Array:
        """K ∫ramp(δ), J."""
        d = jax.vmap(self.surface.distance)(place(at.T, self.links, self.u))
        return jnp.sum(self.stiffness * ramp(self.radius - d, self.width)[0])

    def depth(self, model: Model, at: Point) -> jax.Array:
        """δ of every point, (c,) m; negative in the air."""
        return self.radius - jax.vmap(self.surface.distance)(place(at.T, self.links, self.u))

    def _normal(self, at: Point) -> Pull:
        P, V = place(at.T, self.links, self.u), place(at.V, self.links, self.u)
        return _single(self.links, self.u, *pressure(self, self.radius, *surfaces.slopes(self.surface, P), V))

    def _friction(self, at: Point) -> Pull:
        start, here = at.start, np.asarray(self.links, int)
        d, n, _ = surfaces.slopes(self.surface, place(start.T, here, self.u))
        N, n = elastic_force(self, self.radius - d, n)
        touching = -self.radius[:, None] * matvec(transpose(start.T[here][..., :3]), n)  # from the centre, in the link
        u = self.u + jnp.concatenate([touching, jnp.zeros_like(N)[:, None]], axis=-1)
        f, by_V = rubbing(self, N, n, place(at.V, here, u), at.bend)
        return _single(self.links, u, f, None, by_V)


def pressure(law: Any, reach: jax.Array, d: jax.Array, n: jax.Array, bend: jax.Array, V: jax.Array):
    """The normal forces where a distance d falls below `reach`, and their slopes.

    Args:
        law: whatever has stiffness, width and damping, (c,).
        reach: (c,) m. d: (c,) m, distances as functions of the k coordinates of what takes part.
        n: (c,k) their gradients. bend: (c,k,k) their curvatures, 1/m. V: (c,k) the rates of the coordinates, m/s.

    Returns:
        F n (c,k) N, and its derivatives by the coordinates and by their rates, (c,k,k).
    """
    _, elastic, slope = ramp(reach - d, law.width)
    g, g_slope = positive(1 - law.damping * short_sum(n * V))
    F, by_depth = law.stiffness * elastic * g, law.stiffness * slope * g
    by_rate = law.stiffness * elastic * g_slope * law.damping
    nn = n[:, :, None] * n[:, None, :]
    turning = n[:, :, None] * matvec(bend, V)[:, None, :]
    by_P = F[:, None, None] * bend - by_depth[:, None, None] * nn - by_rate[:, None, None] * turning
    return F[:, None] * n, by_P, -by_rate[:, None, None] * nn


def elastic_force(law: Any, depth: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
    """N (c,) of the penetrations (c,) without damping, and the unit normals of gradients n (c,3); see `pressure`."""
    size = surfaces.safe_norm(n)  # 1 only where the distance is exact
    return law.stiffness * ramp(depth, law.width)[1] * size, n / jnp.where(size > 0, size, 1.0)[:, None]


def rubbing(law: Any, N: jax.Array, n: jax.Array, V: jax.Array, bend: str) -> tuple[jax.Array, jax.Array]:
    """Smooth Coulomb friction under normal forces N (c,) along n (c,3) at relative velocities V (c,3), and its slope.

    `law` has friction (c,) and stick_speed (); `bend` as in `Point`.
    """
    flat = jnp.eye(3, dtype=n.dtype) - n[:, :, None] * n[:, None, :]
    direction, slope = sliding(matvec(flat, V), law.stick_speed[None, None], bend)
    strength = -law.friction * N
    return strength[:, None] * direction, strength[:, None, None] * jnp.einsum("cij,cjk->cik", slope, flat)


def _single(links, u, force, by_P, by_V) -> Pull:
    """A Pull of clusters of one point."""
    wide = (None if x is None else x[:, None, :, None, :] for x in (by_P, by_V))
    return Pull(links, u[:, None], force[:, None], *wide)


def contact(
    model: Model,
    surface: Any = None,
    *,
    points: ContactPoints | None = None,
    stiffness: float | None = None,
    time_constant: float = 0.01,
    smoothing: float | None = None,
    damping: float = 1.0,
    friction: float | None = None,
    stick_speed: float = 1e-3,
    at: str = "step",
) -> Contact:
    """The model's geometry against one surface of the world.

    Args:
        model: the model; its masses set the stiffness.
        surface: of surfaces.py, or anything with `distance(P)`; default the ground z ≤ 0.
        points: which points touch; default all that `contact_points(model)` finds.
        stiffness: N/m of every point; default mass/time_constant², the mass of its whole tree, so that a body resting
            on one point sinks g · time_constant² (1 mm).
        time_constant: s.
        smoothing: m of penetration over which the stiffness comes in; default what the weight of the tree presses in.
        damping: χ in s/m; at an approach of 1/χ the force doubles, at a retreat of 1/χ it is gone.
        friction: μ; default that of the geometry.
        stick_speed: m/s below which friction is viscous.
        at: "step", one implicit impulse a step, for large steps; "stages" for dt of a tenth of a bounce or less.

    Raises:
        ModelError: negative or zero values, no surface, no points, points on links that the model has not.
    """
    if surface is not None and not callable(getattr(surface, "distance", None)):
        raise ModelError(f"surface of contact is {surface!r:.60}; it has no distance(P). Make one, as by half_space()")
    points = contact_points(model) if points is None else points
    checks.one_of(at, ("step", "stages"), "at of contact")
    check_points(model, points)
    mass = _tree_masses(model)[np.asarray(points.links)]
    tau = checks.above_zero(time_constant, "time_constant of contact")
    mu = points.friction if friction is None else checks.number(friction, "friction of contact")
    numbers = parameters("contact", mass, tau, mu, stiffness, smoothing, damping, stick_speed)

    def leaf(x):
        return jnp.asarray(x, model.dtype)

    return Contact(
        surface=jax.tree.map(leaf, surfaces.half_space() if surface is None else surface),
        u=leaf(np.c_[points.position, np.ones(len(mass))]),
        radius=leaf(points.radius),
        **{k: leaf(x) for k, x in numbers.items()},
        links=tuple(points.links),
        at=at,
        conservative=is_elastic(numbers),
    )


def parameters(
    kind: str, mass: np.ndarray, tau, friction, stiffness, smoothing, damping, stick_speed
) -> dict[str, np.ndarray]:
    """The numbers of a contact as the fields of Contact: (c,) each, and stick_speed ().

    Args:
        kind: the maker's name, for the errors.
        mass: (c,) kg. tau: () or (c,) s, > 0; both set the stiffness where it is None.
        friction: () or (c,). The others as in `contact`.

    Raises:
        ModelError: negative or zero values.
    """
    one = np.ones(len(mass))
    k = mass / (tau * one) ** 2 if stiffness is None else one * checks.above_zero(stiffness, f"stiffness of {kind}")
    width = G0 * mass / k if smoothing is None else one * checks.above_zero(smoothing, f"smoothing of {kind}")
    mu = one * np.asarray(friction, float)
    if not np.all(mu >= 0):
        raise ModelError(f"friction of {kind} is {np.min(mu):g}; it must be ≥ 0, or it would drive. Change its sign.")
    chi = one * checks.at_least_zero(damping, f"damping of {kind}", "or it makes energy")
    slow = np.asarray(checks.above_zero(stick_speed, f"stick_speed of {kind}"))
    return {"stiffness": k, "width": width, "damping": chi, "friction": mu, "stick_speed": slow}


def is_elastic(numbers: dict[str, np.ndarray]) -> bool:
    """Whether a contact with these parameters is conservative: without damping and friction."""
    return not numbers["damping"].any() and not numbers["friction"].any()


def _tree_masses(model: Model) -> np.ndarray:
    """The mass of the whole tree that each link belongs to, (N,) kg."""
    t = model.topology
    root = list(range(t.n_links))
    for i, p in enumerate(t.link_parent):
        root[i] = root[p] if p >= 0 else i
    mass = np.asarray(model.second_moment[:, 3, 3], float)
    return np.bincount(root, mass, t.n_links)[root]
