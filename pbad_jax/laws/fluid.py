"""Fluid around the bodies: linear drag, resistive drag of slender links, MuJoCo's inertia boxes. None depends on dt."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, PointForces, each_link, place, point_forces
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.math.small import identity_like, small_sum
from pbad_jax.model.model import Model, check_model


def mass_pull(model: Model, weight: jax.Array, W: jax.Array) -> tuple[PointForces, jax.Array]:
    """Forces with the field `weight` W M of W (N,3,4), such as rates, and ∂f/∂W (N,4,3,4,3).

    The four generalised points of a link are the columns of its transform, u = e_1..e_4.
    """
    n = model.topology.n_links
    M = weight * model.second_moment
    u = jnp.broadcast_to(jnp.eye(4, dtype=M.dtype), (n, 4, 4))
    slope = -jnp.einsum("lkj,ab->lkajb", M, jnp.eye(3, dtype=M.dtype))
    return PointForces(tuple(range(n)), u, -jnp.einsum("lkj,laj->lka", M, W)), slope


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Drag:
    """Linear drag in proportion to mass: a force −c ρ Ṗ on every point, c = `rate` (1/s).

    What falls freely ends at g/c. It is isotropic and in proportion to mass, so it cannot propel a swimmer.

    Example:
        >>> forces.drag(0.1).rate
        Array(0.1, dtype=float64, weak_type=True)
    """

    rate: jax.Array  # () 1/s
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """The field c V M."""
        p, slope = mass_pull(model, self.rate, at.V)
        return Load(point_forces=(dataclasses.replace(p, df_dV=slope),))

    def describe(self, model: Model) -> tuple[str, str]:
        """Everywhere."""
        return "Drag", "all bodies"


def drag(rate: float) -> Drag:
    """Linear drag; see `Drag`.

    Args:
        rate: 1/s, ≥ 0.

    Raises:
        ModelError: a negative rate.

    Example:
        >>> pbad.with_forces(model, forces.drag(0.1)).forces[-1].at
        'stages'
    """
    return Drag(jnp.asarray(checks.at_least_zero(rate, "rate of drag", "or it makes energy")))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Fluid:
    """Resistive drag of slender links: per length, −c_n on the velocity across the link and −c_t along it.

    Each cluster is one rod: two Gauss points, which integrate a rigid rod exactly, and its direction. With c_n > c_t a
    travelling wave swims (Gray and Hancock 1955).

    Example:
        >>> forces.fluid(model, normal=2.0, tangential=1.0).normal
        Array(2., dtype=float64)
    """

    u: jax.Array  # (c,3,4) two points and the axis (t, 0)
    length: jax.Array  # (c,) m
    normal: jax.Array  # () N s/m² per metre of rod
    tangential: jax.Array  # ()
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """−½ l (c_n V + (c_t − c_n) t (t·V)) at both points, and its slopes by V and by the direction t."""
        where = each_link(self.links, self.u)
        t, V = place(at.T, where, self.u)[:, 2], place(at.V, where, self.u)[:, :2]
        half, extra = 0.5 * self.length[:, None, None], self.tangential - self.normal
        along = small_sum(t[:, None] * V, keepdims=True)
        force = -half * (self.normal * V + extra * along * t[:, None])
        by_v = -half * (self.normal * identity_like(t) + extra * t[:, :, None] * t[:, None, :])
        by_t = -half[..., None] * extra * (along[..., None] * identity_like(V) + t[:, None, :, None] * V[:, :, None, :])
        c = len(self.length)
        none = jnp.zeros((c, 3, 3, 3, 3), t.dtype)
        df_dV = none.at[:, 0, :, 0].set(by_v).at[:, 1, :, 1].set(by_v)
        df_dP = none.at[:, 0, :, 2].set(by_t[:, 0]).at[:, 1, :, 2].set(by_t[:, 1])
        still = jnp.zeros_like(t)[:, None]
        return Load(
            point_forces=(PointForces(self.links, self.u, jnp.concatenate([force, still], axis=1), df_dP, df_dV),)
        )

    def describe(self, model: Model) -> tuple[str, str]:
        """How many rods."""
        return "Fluid", f"{len(self.links)} points"


def fluid(model: Model, normal: float = 2.0, tangential: float = 1.0, *, bodies=None) -> Fluid:
    """Resistive drag on the capsules and cylinders of a model.

    Args:
        model: the model.
        normal, tangential: N s/m² per metre of rod, ≥ 0; slender bodies have about 2 to 1.
        bodies: names; default all that carry such a shape.

    Raises:
        ModelError: a negative coefficient, an unknown body, or nothing slender.

    Example:
        >>> wet = pbad.with_forces(model, forces.fluid(model, normal=2.0))
        >>> wet.forces[-1].length
        Array([1.1, 1.1], dtype=float64)
    """
    # drag that takes energy, on bodies that exist
    check_model(model)
    c_n = checks.at_least_zero(normal, "normal of fluid", "or it makes energy")
    c_t = checks.at_least_zero(tangential, "tangential of fluid", "or it makes energy")
    t, g = model.topology, model.geometry
    wanted = set(t.body_names if bodies is None else bodies)
    for body in wanted:
        checks.known(body, t.body_names, "body of fluid")

    # every rod: its axis and half its length, a capsule's with its caps
    links, u, length = [], [], []
    for i, (kind, body) in enumerate(zip(t.geom_types, t.geom_bodies)):
        if kind not in ("capsule", "cylinder") or body < 0 or t.body_names[body] not in wanted:
            continue
        axis = rotation_numpy(g.quaternion[i])[:, 2]
        half = g.size[i, 1] + (g.size[i, 0] if kind == "capsule" else 0.0)
        # two Gauss points, and the direction along the rod
        ends = [np.r_[g.position[i] + s * half / np.sqrt(3) * axis, 1.0] for s in (-1, 1)]
        links.append(t.body_link[body])
        u.append(np.stack([*ends, np.r_[axis, 0.0]]))
        length.append(2 * half)
    if not links:
        raise ModelError(f"fluid: model {t.name!r} has no capsule or cylinder on {sorted(wanted)[:8]}; give it geoms")

    leaf = checks.leaf(model.dtype)
    return Fluid(leaf(u), leaf(length), leaf(c_n), leaf(c_t), tuple(links))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class InertiaBoxes:
    """MuJoCo's fluid model for files with density and viscosity: every body as the box of its inertia.

    In the box's axes, with sides b: −½ ρ b_j b_k |v_i| v_i and −ρ b_i (b_j⁴ + b_k⁴) |ω_i| ω_i/64, and with the
    viscosity β, −3π β d v and −π β d³ ω, d the mean side. Each cluster is the centre of mass and three directions.

    Example:
        >>> forces.inertia_boxes(ball, density=1.2, viscosity=2e-5).density
        Array(1.2, dtype=float64)
    """

    u: jax.Array  # (c,4,4) the centre (p, 1) and the box's axes (e, 0)
    size: jax.Array  # (c,3) m
    density: jax.Array  # () kg/m³
    viscosity: jax.Array  # () Pa s
    wind: jax.Array  # (3,) m/s
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    at: str = dataclasses.field(default="stages", metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """By autodiff of the law of one box."""
        return point_forces(at, self.links, self.u, self._law, self.size)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many boxes."""
        return "InertiaBoxes", f"{len(self.links)} bodies"

    def _law(self, P: jax.Array, V: jax.Array, b: jax.Array) -> jax.Array:
        R, spin = P[1:].T, V[1:]
        omega = R.T @ (0.5 * jnp.sum(jnp.cross(P[1:], spin), axis=0))
        v = R.T @ (V[0] - self.wind)
        others = jnp.prod(b) / b
        quartic = jnp.sum(b**4) - b**4
        mean = jnp.mean(b)
        force = -0.5 * self.density * others * jnp.abs(v) * v - 3 * jnp.pi * self.viscosity * mean * v
        torque = -self.density * b * quartic * jnp.abs(omega) * omega / 64 - jnp.pi * self.viscosity * mean**3 * omega
        couple = 0.5 * jnp.cross(R @ torque, P[1:])  # at the three directions: Σ e × ½ τ × e = τ
        return jnp.concatenate([(R @ force)[None], couple])


def inertia_boxes(model: Model, density: float, viscosity: float, wind=(0.0, 0.0, 0.0)) -> InertiaBoxes:
    """MuJoCo's inertia-box drag on every link that has mass.

    Args:
        model: the model. density: kg/m³ and viscosity: Pa s, ≥ 0. wind: (3,) m/s.

    Example:
        >>> aired = pbad.with_forces(ball, forces.inertia_boxes(ball, density=1.2, viscosity=2e-5, wind=(1, 0, 0)))
        >>> aired.forces[-1].wind
        Array([1., 0., 0.], dtype=float64)
    """
    # a fluid that takes energy
    check_model(model)
    rho = checks.at_least_zero(density, "density of the fluid", "or it makes energy")
    beta = checks.at_least_zero(viscosity, "viscosity of the fluid", "or it makes energy")

    # of every link with mass: the centre, and the principal axes of its second moment about that
    links, u, size = [], [], []
    for l, M in enumerate(checks.of_model(model, "second_moment")):
        if M[3, 3] <= 0:
            continue
        com = M[:3, 3] / M[3, 3]
        values, axes = np.linalg.eigh(M[:3, :3] / M[3, 3] - np.outer(com, com))
        links.append(l)
        u.append(np.r_[np.r_[com, 1.0][None], np.c_[axes.T, np.zeros(3)]])
        size.append(np.sqrt(12 * np.maximum(values, 0)))  # a box of side b has the central moment b²/12

    leaf = checks.leaf(model.dtype)
    wind = checks.vector(wind, 3, "wind", ModelError)
    return InertiaBoxes(leaf(u), leaf(size), leaf(rho), leaf(beta), leaf(wind), tuple(links))
