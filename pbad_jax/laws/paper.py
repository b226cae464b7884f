"""The paper's own drag, contact and friction, literally (its section 5, eq. FRI). They depend on dt: halving dt doubles
the drag and the friction, and the friction also pushes along the normal. For comparison; `drag` and `contact` do not.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.geometry import surfaces
from pbad_jax.geometry.points import ContactPoints, check_points, contact_points
from pbad_jax.laws.fluid import mass_pull
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, PointForces, place
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.model import Model, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PaperDrag:
    """Q = D ∫ρ ‖(P_{k+1} − P_k)/dt‖², appendix A: D/dt² (I(q,q) − 2 I(q,q_k) + I(q_k,q_k)).

    Example:
        >>> forces.paper_drag(0.1).at
        'stages'
    """

    D: jax.Array  # () s
    at: str = dataclasses.field(default="stages", metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """The field 2D/dt² (T − T_k) M."""
        p, slope = mass_pull(model, 2 * self.D / at.dt**2, at.T - at.start.T)
        return Load(point_forces=(dataclasses.replace(p, df_dP=slope),))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PaperContact:
    """Q = D₁ d² + D₂ d² ‖Π (P_{k+1} − P_k)/dt‖², with the depth d and the projection Π on the tangents at P_{k+1}.

    Example:
        >>> forces.paper_contact(ball, 1000.0).D1
        Array(1000., dtype=float64)
    """

    surface: Any
    u: jax.Array  # (c,4)
    radius: jax.Array  # (c,) m
    D1: jax.Array  # () N/m
    D2: jax.Array  # () N s²/m³
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """Minus the gradient of Q and its slope, by autodiff of Q at one point."""
        P, before = (place(T, np.asarray(self.links, int), self.u) for T in (at.T, at.start.T))
        energy = functools.partial(self._energy, at.dt)
        f = -jax.vmap(jax.grad(energy))(P, before, self.radius)
        df_dP = -jax.vmap(jax.jacfwd(jax.grad(energy)))(P, before, self.radius)
        return Load(point_forces=(PointForces(self.links, self.u[:, None], f[:, None], df_dP[:, None, :, None, :]),))

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """D₁ d², J: friction has none."""
        P = place(at.T, np.asarray(self.links, int), self.u)
        return self.D1 * jnp.sum(jax.vmap(self._depth)(P, self.radius) ** 2)

    def describe(self, model: Model) -> tuple[str, str]:
        """The surface, and how many points."""
        return f"PaperContact with a {type(self.surface).__name__}", f"{len(self.links)} points"

    def _depth(self, P: jax.Array, radius: jax.Array) -> jax.Array:
        return jnp.maximum(radius - self.surface.distance(P), 0.0)

    def _energy(self, dt, P: jax.Array, before: jax.Array, radius: jax.Array) -> jax.Array:
        n = jax.grad(self.surface.distance)(P)
        w = (P - before) / dt
        w = w - n * (n @ w)
        return self._depth(P, radius) ** 2 * (self.D1 + self.D2 * (w @ w))


def paper_drag(D: float) -> PaperDrag:
    """The paper's drag, D ≥ 0 in s (its D times the density); its strength depends on dt. Prefer `drag`.

    Example:
        >>> pbad.with_forces(model, forces.paper_drag(0.1)).forces[-1].D
        Array(0.1, dtype=float64)
    """
    return PaperDrag(jnp.asarray(checks.at_least_zero(D, "D of paper_drag", "or it makes energy")))


def paper_contact(model: Model, D1: float, surface: Any = None, *, points: ContactPoints | None = None) -> PaperContact:
    """The paper's penalty D₁ d², D₁ > 0 in N/m, without friction. Prefer `contact`.

    Example:
        >>> forces.paper_contact(ball, 1000.0, forces.half_space()).D1
        Array(1000., dtype=float64)
    """
    check_model(model)
    return _paper(model, checks.above_zero(D1, "D1 of paper_contact"), 0.0, surface, points)


def paper_friction(
    model: Model, D2: float, surface: Any = None, *, points: ContactPoints | None = None
) -> PaperContact:
    """The paper's friction D₂ d² ‖Π ΔP/dt‖², D₂ > 0 in N s²/m³, beside `paper_contact`. Prefer `contact`.

    Example:
        >>> forces.paper_friction(ball, 10.0).D2
        Array(10., dtype=float64)
    """
    check_model(model)
    return _paper(model, 0.0, checks.above_zero(D2, "D2 of paper_friction"), surface, points)


def _paper(model: Model, D1: float, D2: float, surface, points) -> PaperContact:
    points = contact_points(model) if points is None else points
    check_points(model, points)
    if surface is not None:
        surfaces.check_surface(surface, "paper_contact" if D2 == 0.0 else "paper_friction")

    leaf = checks.leaf(model.dtype)
    return PaperContact(
        surface=jax.tree.map(leaf, surfaces.half_space() if surface is None else surface),
        u=leaf(np.c_[points.position, np.ones(len(points.links))]),
        radius=leaf(points.radius),
        D1=leaf(D1),
        D2=leaf(D2),
        links=tuple(points.links),
        conservative=D2 == 0.0,
    )
