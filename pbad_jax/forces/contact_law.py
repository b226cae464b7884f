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

    def _pressure(self, P: jax.Array, V: jax.Array):
        """F and its slopes by δ and δ̇ (c,); n (c,3) and ∂n/∂P (c,3,3)."""
        d, n, bend = surfaces.slopes(self.surface, P)
        _, elastic, slope = ramp(self.radius - d, self.width)
        g, g_slope = positive(1 - self.damping * jnp.sum(n * V, axis=-1))
        k = self.stiffness
        return k * elastic * g, k * slope * g, k * elastic * g_slope * self.damping, n, bend

    def _normal(self, at: Point) -> Pull:
        P, V = place(at.T, self.links, self.u), place(at.V, self.links, self.u)
        F, by_depth, by_rate, n, bend = self._pressure(P, V)
        nn = n[:, :, None] * n[:, None, :]
        turning = n[:, :, None] * matvec(bend, V)[:, None, :]
        by_P = F[:, None, None] * bend - by_depth[:, None, None] * nn - by_rate[:, None, None] * turning
        by_V = -by_rate[:, None, None] * nn
        return _single(self.links, self.u, F[:, None] * n, by_P, by_V)

    def _friction(self, at: Point) -> Pull:
        start, here = at.start, np.asarray(self.links, int)
        d, n, _ = surfaces.slopes(self.surface, place(start.T, here, self.u))
        N = self.stiffness * ramp(self.radius - d, self.width)[1]
        size = surfaces.safe_norm(n)  # 1 only where the distance is exact
        N, n = N * size, n / jnp.where(size > 0, size, 1.0)[:, None]
        touching = -self.radius[:, None] * matvec(transpose(start.T[here][..., :3]), n)  # from the centre, in the link
        u = self.u + jnp.concatenate([touching, jnp.zeros_like(N)[:, None]], axis=-1)
        flat = jnp.eye(3, dtype=n.dtype) - n[:, :, None] * n[:, None, :]
        direction, slope = sliding(matvec(flat, place(at.V, here, u)), self.stick_speed[None, None], at.bend)
        strength = -self.friction * N
        by_V = strength[:, None, None] * jnp.einsum("cij,cjk->cik", slope, flat)
        return _single(self.links, u, strength[:, None] * direction, None, by_V)


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
    k = mass / tau**2 if stiffness is None else np.full(len(mass), checks.above_zero(stiffness, "stiffness of contact"))
    width = G0 * mass / k if smoothing is None else np.full(len(mass), checks.above_zero(smoothing, "smoothing"))
    given = points.friction if friction is None else np.full(len(mass), checks.number(friction, "friction of contact"))
    mu = np.asarray(given, float)
    if not np.all(mu >= 0):
        raise ModelError(f"friction of contact is {np.min(mu):g}; it must be ≥ 0, or it would drive. Change its sign.")
    chi = checks.at_least_zero(damping, "damping of contact", "or it makes energy")

    def leaf(x):
        return jnp.asarray(x, model.dtype)

    return Contact(
        surface=jax.tree.map(leaf, surfaces.half_space() if surface is None else surface),
        u=leaf(np.c_[points.position, np.ones(len(mass))]),
        radius=leaf(points.radius),
        stiffness=leaf(k),
        width=leaf(width),
        damping=leaf(np.full(len(mass), chi)),
        friction=leaf(mu),
        stick_speed=leaf(checks.above_zero(stick_speed, "stick_speed of contact")),
        links=tuple(points.links),
        at=at,
        conservative=bool(chi == 0 and not mu.any()),
    )


def _tree_masses(model: Model) -> np.ndarray:
    """The mass of the whole tree that each link belongs to, (N,) kg."""
    t = model.topology
    root = list(range(t.n_links))
    for i, p in enumerate(t.link_parent):
        root[i] = root[p] if p >= 0 else i
    mass = np.asarray(model.second_moment[:, 3, 3], float)
    return np.bincount(root, mass, t.n_links)[root]
