"""What laws act along: lengths of a configuration, m or rad, and how a force along one is felt.

n lengths ℓ with the gradients G = ∂ℓ/∂x by what they depend on, x: rows of joints, or the points of the links that a
path runs through. A force f along a length does the work f dℓ, so it is felt as Gᵀ f, with the slopes

    by x: Gᵀ (∂f/∂ℓ G + ∂f/∂ℓ̇ ∂ℓ̇/∂x) + f ∇²ℓ,    by ẋ: Gᵀ ∂f/∂ℓ̇ G,    ℓ̇ = G ẋ,  ∂ℓ̇/∂x = ∇²ℓ ẋ.

`Joints`, `Tendons` (fixed ones), `Paths` (straight between sites), `Sites` (which have a rate only), and the `Coupling`
of two, by how much they disagree; of balls balls.py has one. Laws are in line_laws.py, line_force.py joins them. A
Length has, besides its fields,

    count                   n
    word                    what it is called in the name of a force: "Joint"
    exact                   whether ℓ̇ is the rate of ℓ, so that a law along it has an energy
    couples_joints          as in `Force`
    at(model, at)           its Lengths, whose `pull` has `load(Along) -> Load`
    value(model, q)         ℓ (n,), and rate(model, q, v): ℓ̇ (n,)
    dofs(model)             (n,nv) bool, which degrees of freedom change it
    many(acts)              of (n,) bool, where a law acts: on how much, in words
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import ModelError
from pbad_jax.forces.force import Guide, Instant, Load, PointForces, dofs, each_link, place
from pbad_jax.forces.surfaces import safe_norm
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import identity_like, matvec, take, transpose
from pbad_jax.model.model import Model


class Along(NamedTuple):
    """A force along n lengths, and its slopes; None for zero. What a law makes of lengths.

    Example:
        >>> @jax.tree_util.register_dataclass
        ... @dataclasses.dataclass(frozen=True)
        ... class Hardening:
        ...     strength: jax.Array  # (n,) N/m³
        ...     conservative = False
        ...     def along(self, x, at):
        ...         return forces.Along(-self.strength * x.value**3, by_length=-3 * self.strength * x.value**2)
        >>> own = forces.LineForce(forces.Joints(), Hardening(jnp.array([5.0, 0.0])))
        >>> pbad.with_forces(arm, own).forces[-1].name
        'JointHardening'
    """

    force: jax.Array  # (n,) N or N m
    by_length: jax.Array | None = None  # (n,)
    by_rate: jax.Array | None = None  # (n,)
    modelled: jax.Array | None = None  # (n,) what the next linear model has for `force`, None: the same; see `Guide`
    curving: jax.Array | None = None  # (n,) the force whose product with the curvatures the matrix has, None: `force`
    dual: Any = None


class Led(NamedTuple):
    """What leads a solve to one-sided laws of n lengths, see one_sided.led; only where there is a guide."""

    began: jax.Array  # (n,) the lengths at the start of the step
    expected: jax.Array | None  # (n,) what the last linear model expected; None: what is there, ℓ is linear
    mass: jax.Array  # (n,) kg or kg m², that each length has to move by itself


class Lengths(NamedTuple):
    """n lengths at one instant; what a law is given. `led` has what leads a solve, where `at.guide` is there.

    Example:
        >>> forces.Lengths._fields
        ('value', 'rate', 'pull', 'led')
    """

    value: jax.Array  # (n,) ℓ, m or rad
    rate: jax.Array  # (n,) ℓ̇
    pull: Any  # how a force along each is felt: its `load(Along)` is a Load
    led: Callable[[], Led]


# --- how it is felt ---------------------------------------------------------------------------------------------


class DofPull(NamedTuple):
    """By degrees of freedom themselves: those of `v_index`, or all."""

    v_index: tuple[int, ...] | None
    nv: int

    def load(self, f: Along) -> Load:
        """τ and diagonal slopes."""
        beyond = None if f.modelled is None else self._spread(f.modelled - f.force)
        tau, by_q, by_v = (self._spread(x) for x in (f.force, f.by_length, f.by_rate))
        return Load(tau=tau, dtau_dq=by_q, dtau_dv=by_v, modelled_tau=beyond, dual=f.dual)

    def _spread(self, x: jax.Array | None) -> jax.Array | None:
        if x is None or self.v_index is None:
            return x
        return jnp.zeros(self.nv, x.dtype).at[np.array(self.v_index)].add(x)


class JointPull(NamedTuple):
    """By rows G of the joints; curvature None: G is constant."""

    gradient: jax.Array  # (n,nv) G
    v: jax.Array  # (nv,)
    curvature: jax.Array | None = None  # (n,nv,nv) ∇²ℓ

    def load(self, f: Along) -> Load:
        """τ and full slopes."""
        G = self.gradient
        by_q, by_v = (None if x is None else G.T @ (x[:, None] * G) for x in (f.by_length, f.by_rate))
        if self.curvature is not None:
            bent = jnp.tensordot(f.force, self.curvature, 1)
            by_q = bent if by_q is None else by_q + bent
            if f.by_rate is not None:
                by_q = by_q + G.T @ (f.by_rate[:, None] * (self.curvature @ self.v))
        beyond = None if f.modelled is None else G.T @ (f.modelled - f.force)
        return Load(tau=G.T @ f.force, dtau_dq=by_q, dtau_dv=by_v, modelled_tau=beyond, dual=f.dual)

    def minus(self, other: "JointPull", slope: jax.Array, curve: jax.Array) -> "JointPull":
        """That of ℓ − p(ℓ'), of p' and p'' (n,)."""
        G, d = other.gradient, self.gradient - slope[:, None] * other.gradient
        return JointPull(d, self.v, -curve[:, None, None] * G[:, :, None] * G[:, None, :])


class PointPull(NamedTuple):
    """By k points of each of n clusters, see `PointForces`."""

    links: tuple
    u: jax.Array  # (n,k,4)
    gradient: jax.Array  # (n,k,3)
    curvature: jax.Array  # (n,3k,3k) ∂gradient/∂P
    V: jax.Array  # (n,k,3) m/s

    def load(self, f: Along) -> Load:
        """Forces at the points."""
        shape, n = self.gradient.shape, self.gradient.reshape(len(self.u), -1)
        turning = matvec(transpose(self.curvature), self.V.reshape(n.shape))
        force, by_P, by_V, modelled, curving = pulled(f, n, self.curvature, turning)
        force, modelled, curving = (None if x is None else x.reshape(shape) for x in (force, modelled, curving))
        by_P, by_V = (None if x is None else x.reshape(*shape, *shape[1:]) for x in (by_P, by_V))
        assert force is not None
        points = PointForces(self.links, self.u, force, by_P, by_V, modelled, curving)
        return Load(point_forces=(points,), dual=f.dual)

    def minus(self, other: "PointPull", slope: jax.Array, curve: jax.Array) -> "PointPull":
        """That of ℓ − p(ℓ'), of p' and p'' (n,), by the points of both."""
        n = other.gradient.reshape(len(other.u), -1)
        bent = slope[:, None, None] * other.curvature + curve[:, None, None] * n[:, :, None] * n[:, None, :]
        sizes, both = (self.curvature.shape[-1], bent.shape[-1]), [self.curvature, -bent]
        padded = [
            jnp.pad(x, ((0, 0), room, room)) for x, room in zip(both, ((0, sizes[1]), (sizes[0], 0)))
        ]  # of either, zero by the points of the other
        parts = (self.u, other.u), (self.gradient, -slope[:, None, None] * other.gradient), (self.V, other.V)
        u, gradient, V = (jnp.concatenate(x, axis=1) for x in parts)
        links = tuple(a + b for a, b in zip(self.links, other.links))
        return PointPull(links, u, gradient, padded[0] + padded[1], V)


def pulled(f: Along, n: jax.Array, curvature: jax.Array, turning: jax.Array) -> tuple[jax.Array | None, ...]:
    """Forces (c,k) along lengths with gradients n (c,k) by k coordinates, and their slopes; see the module.

    Args:
        f: along the lengths.
        n: (c,k). curvature: (c,k,k) ∇²ℓ. turning: (c,k) ∂ℓ̇/∂P.

    Returns:
        Force (c,k), its slopes by P and V (c,k,k), and what is modelled and curving (c,k), as PointForces has them.
    """
    through = f.force if f.curving is None else f.curving
    by_P, by_V = through[:, None, None] * curvature, None
    if f.by_length is not None:
        by_P = by_P + f.by_length[:, None, None] * (n[:, :, None] * n[:, None, :])
    if f.by_rate is not None:
        by_P = by_P + f.by_rate[:, None, None] * (n[:, :, None] * turning[:, None, :])
        by_V = f.by_rate[:, None, None] * (n[:, :, None] * n[:, None, :])
    modelled, curving = (None if x is None else x[:, None] * n for x in (f.modelled, f.curving))
    return f.force[:, None] * n, by_P, by_V, modelled, curving


# --- joints -----------------------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Joints:
    """Hinges and slides by themselves, those of `q_index` and `v_index`; None: all degrees of freedom.

    Those of balls have rates, and the value 0.

    Example:
        >>> damped = forces.LineForce(forces.Joints(), forces.Damping(jnp.array([0.3, 0.1])))
        >>> damped.name, damped.length.rate(arm, arm.q0, jnp.array([1.0, 0.5]))
        ('JointDamping', Array([1. , 0.5], dtype=float64))
    """

    q_index: tuple[int, ...] | None = dataclasses.field(default=None, metadata=STATIC)
    v_index: tuple[int, ...] | None = dataclasses.field(default=None, metadata=STATIC)
    word: ClassVar[str] = "Joint"
    exact: ClassVar[bool] = True
    couples_joints: ClassVar[bool] = False

    def count(self, model: Model) -> int:
        """Of degrees of freedom."""
        return model.nv if self.v_index is None else len(self.v_index)

    def at(self, model: Model, at: Instant) -> Lengths:
        """q and v."""

        def led() -> Led:
            assert at.guide is not None
            return Led(self.value(model, at.start.q), None, self._own(at.guide.inertia))

        pull = DofPull(self.v_index, model.nv)
        return Lengths(self.value(model, at.q), self.rate(model, at.q, at.v), pull, led)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) rad or m."""
        if self.q_index is not None:
            return q[np.array(self.q_index)]
        t = tree(model.topology)
        scalar = take(q, t.scalar_q)
        return jnp.zeros(model.nv, q.dtype).at[t.scalar_v].set(scalar) if t.balls.size else scalar

    def rate(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """(n,) rad/s or m/s."""
        return self._own(v)

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), each its own."""
        every = np.eye(model.nv, dtype=bool)
        return every if self.v_index is None else every[list(self.v_index)]

    def many(self, acts: np.ndarray) -> str:
        """How many of them."""
        return dofs(acts)

    def _own(self, x: jax.Array) -> jax.Array:
        return x if self.v_index is None else x[np.array(self.v_index)]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tendons:
    """Fixed tendons, ℓ = c · q of hinges and slides. `of` is what they are called: joints, if each is of one.

    Example:
        >>> forces.tendon_spring(arm, {"joint0": 1.0, "joint1": 1.0}, stiffness=5.0).length.coefficient
        Array([[1., 1.]], dtype=float64)
    """

    coefficient: jax.Array  # (n,nv) rad or m by rad or m; those of balls are not used
    of: str = dataclasses.field(default="Tendon", metadata=STATIC)
    exact: ClassVar[bool] = True
    couples_joints: ClassVar[bool] = True

    @property
    def word(self) -> str:
        """As in the names of forces."""
        return self.of

    def count(self, model: Model) -> int:
        """Of tendons."""
        return len(self.coefficient)

    def at(self, model: Model, at: Instant) -> Lengths:
        """c · q and c · v."""
        c = self.coefficient

        def led() -> Led:
            assert at.guide is not None
            return Led(self.value(model, at.start.q), None, 1.0 / (c * c @ (1.0 / at.guide.inertia)))  # joints alone

        return Lengths(self.value(model, at.q), c @ at.v, JointPull(c, at.v), led)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) rad or m."""
        t = tree(model.topology)
        return self.coefficient[:, t.scalar_v] @ q[t.scalar_q]

    def rate(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """(n,) rad/s or m/s."""
        return self.coefficient @ v

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), where c is not zero."""
        return np.asarray(self.coefficient) != 0

    def many(self, acts: np.ndarray) -> str:
        """How many they are."""
        return f"{len(acts)} {self.of.lower()}s"


# --- points of the links ----------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Paths:
    """Spatial tendons, ℓ = Σ w_i |P_{i+1} − P_i|, w one over the divisor of the branch; made by `paths`.

    There is no wrapping about shapes. Shorter ones stay at their last point.

    Example:
        >>> band = forces.tendon_spring(hand, ("hand", "wall"), stiffness=50.0, rest=2.0)
        >>> band.length.value(hand, hand.q0).round(3)
        Array([2.236], dtype=float64)
    """

    u: jax.Array  # (n,k,4) points (p, 1) in their links' frames, m; those in the world as they are
    weight: jax.Array  # (n,k-1) of every piece, 0 between branches
    links: tuple[tuple[int, ...], ...] = dataclasses.field(metadata=STATIC)  # of every point; of those in the world any
    in_world: tuple[tuple[bool, ...], ...] = dataclasses.field(metadata=STATIC)
    word: ClassVar[str] = "SpatialTendon"
    exact: ClassVar[bool] = True
    couples_joints: ClassVar[bool] = True

    def count(self, model: Model) -> int:
        """Of tendons."""
        return len(self.u)

    def at(self, model: Model, at: Instant) -> Lengths:
        """With gradients and curvatures by hand: d along a piece of length s, and (1 − d dᵀ)/s."""
        length, d, over = self._pieces(at.T)
        n, V = self._gradient(d), self._velocity(at.V)
        across = (identity_like(d) - d[..., :, None] * d[..., None, :]) * (self.weight * over)[..., None, None]
        ends = jnp.asarray(self._ends, d.dtype)
        k = 3 * self.u.shape[1]
        curvature = jnp.einsum("cij,cil,ciab->cjalb", ends, ends, across).reshape(-1, k, k)

        def led() -> Led:
            assert at.guide is not None
            return Led(self._length(at.start.T), self._length(at.guide.T), self._mass(at.guide, at.start.T))

        rate = jnp.sum(n * V, axis=(1, 2))
        return Lengths(length, rate, PointPull(self.links, self.u, n, curvature, V), led)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) m."""
        return self._length(transforms.transforms(model, q))

    def rate(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """(n,) m/s."""
        f = transforms.frames(model, q)
        n = self._gradient(self._pieces(f.T)[1])
        return jnp.sum(n * self._velocity(transforms.velocity_field(model, f, v)), axis=(1, 2))

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), what moves some of the points; of those in the world nothing does."""
        above, still = tree(model.topology).dof_above_link, np.array(self.in_world)
        return np.stack([above[:, np.array(l)[~s]].any(axis=1) for l, s in zip(self.links, still)])

    def many(self, acts: np.ndarray) -> str:
        """How many they are."""
        return f"{len(acts)} tendons"

    @property
    def _ends(self) -> np.ndarray:
        """(n,k-1,k): −1 where a piece begins, 1 where it ends, 0 at points in the world."""
        k = self.u.shape[1]
        return (np.eye(k)[1:] - np.eye(k)[:-1])[None] * ~np.array(self.in_world)[:, None, :]

    def _pieces(self, T: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """ℓ (n,), the directions of the pieces (n,k-1,3), and 1 over their lengths; 0 where one has none."""
        P = jnp.where(
            np.array(self.in_world)[..., None], self.u[..., :3], place(T, each_link(self.links, self.u), self.u)
        )
        piece = P[:, 1:] - P[:, :-1]
        size = safe_norm(piece)
        over = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
        return jnp.sum(self.weight * size, axis=-1), piece * over[..., None], over

    def _length(self, T: jax.Array) -> jax.Array:
        return self._pieces(T)[0]

    def _gradient(self, d: jax.Array) -> jax.Array:
        """∂ℓ/∂P (n,k,3)."""
        return jnp.einsum("cij,cia->cja", jnp.asarray(self._ends, d.dtype), self.weight[..., None] * d)

    def _velocity(self, V: jax.Array) -> jax.Array:
        """(n,k,3) m/s."""
        return place(V, each_link(self.links, self.u), self.u)

    def _mass(self, guide: Guide, T: jax.Array) -> jax.Array:
        """Of the links, each alone: 1/Σ wᵀ M w, w the wrench on a link of a force of 1 N, M its mobility; (n,) kg."""
        links = each_link(self.links, self.u)
        n, P = self._gradient(self._pieces(T)[1]), place(T, links, self.u)
        each = jnp.concatenate([jnp.cross(P - guide.origin[links], n), n], axis=-1)
        same = jnp.asarray(links[:, :, None] == links[:, None, :], each.dtype)
        moved = matvec(guide.mobility[links], jnp.einsum("cij,cja->cia", same, each))
        return 1.0 / jnp.maximum(jnp.sum(each * moved, axis=(1, 2)), jnp.finfo(n.dtype).tiny ** 0.5)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sites:
    """On sites, along a gear: a force and a torque in a site's axes. They have a rate, gear · (V, ω), and no length.

    The torque is a couple at three directions e, as in external.py, and ω = ½ Σ e × ė. Made by `Actuator(Site(...))`.

    Example:
        >>> pushed = pbad.with_actuators(hand, pbad.Actuator(hand.sites["hand"], name="jet", gear=(0, 0, 1, 0, 0, 0)))
        >>> pushed.forces[-1].name, pushed.forces[-1].length.gear
        ('SiteActuation', Array([[0., 0., 1., 0., 0., 0.]], dtype=float64))
    """

    u: jax.Array  # (n,4,4) the site's origin (p, 1) and its axes (e, 0), in its link's frame
    gear: jax.Array  # (n,6) force and torque by f
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    word: ClassVar[str] = "Site"
    exact: ClassVar[bool] = False
    couples_joints: ClassVar[bool] = True

    def count(self, model: Model) -> int:
        """Of sites."""
        return len(self.links)

    def at(self, model: Model, at: Instant) -> Lengths:
        """Its gradient is of ℓ̇, not of the length, which is zero."""
        P, V = (place(x, each_link(self.links, self.u), self.u) for x in (at.T, at.V))
        n, curvature = jax.vmap(_of_site)(P, self.gear), jax.vmap(jax.jacfwd(_of_site))(P, self.gear)
        pull = _SitePull(PointPull(self.links, self.u, n, curvature.reshape(-1, 12, 12), V))
        return Lengths(jnp.zeros_like(self.gear[:, 0]), jnp.sum(n * V, axis=(1, 2)), pull, _not_led)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) zeros."""
        return jnp.zeros_like(self.gear[:, 0])

    def rate(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """(n,) m/s, where the gear is 1."""
        f, links = transforms.frames(model, q), each_link(self.links, self.u)
        P, V = place(f.T, links, self.u), place(transforms.velocity_field(model, f, v), links, self.u)
        return jnp.sum(jax.vmap(_of_site)(P, self.gear) * V, axis=(1, 2))

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), what moves the site."""
        return tree(model.topology).dof_above_link[:, list(self.links)].T > 0

    def many(self, acts: np.ndarray) -> str:
        """How many they are."""
        return f"{len(acts)} sites"


class _SitePull(NamedTuple):
    points: PointPull

    def load(self, f: Along) -> Load:
        return self.points.load(f._replace(by_length=None))


def _of_site(P: jax.Array, gear: jax.Array) -> jax.Array:
    """(4,3) the forces on the origin and the axes of a site P (4,3)."""
    axes = P[1:].T
    return jnp.concatenate([(axes @ gear[:3])[None], 0.5 * jnp.cross((axes @ gear[3:])[None], P[1:])])


def _not_led() -> Led:
    raise ModelError("a law with ends needs a length that has a value: joints, tendons, or paths")


# --- two of them ------------------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Coupling:
    """By how much two lengths disagree: gap = ℓ − o₁ − Σ_k p_k (ℓ' − o₂)^k, of two Tendons or two Paths.

    MuJoCo's equalities of joints and tendons and URDF's mimic are a stiff spring along it; by `tendon_coupling`.

    Example:
        >>> gear = forces.tendon_coupling(arm, {"joint0": 1.0}, {"joint1": 2.0}, stiffness=100.0)
        >>> gear.name, gear.length.value(arm, jnp.array([0.2, 0.4])).round(2)
        ('TendonCouplingSpring', Array([-0.6], dtype=float64))
    """

    one: Any  # n lengths ℓ
    other: Any  # n lengths ℓ'
    offset: jax.Array  # (n,2) m or rad
    polynomial: jax.Array  # (n,5)
    couples_joints: ClassVar[bool] = True

    @property
    def word(self) -> str:
        """As in the names of forces."""
        return self.one.word + "Coupling"

    @property
    def exact(self) -> bool:
        """Of both."""
        return self.one.exact and self.other.exact

    def count(self, model: Model) -> int:
        """Of gaps."""
        return len(self.offset)

    def at(self, model: Model, at: Instant) -> Lengths:
        """∂gap = ∂ℓ − p' ∂ℓ', with the curvature ∇²ℓ − p' ∇²ℓ' − p'' ∂ℓ' ∂ℓ'ᵀ."""
        a, b = self.one.at(model, at), self.other.at(model, at)
        gap, slope, curve = self._gap(a.value, b.value)

        def led() -> Led:
            x, y = a.led(), b.led()
            ends = [first if then is None else then for first, then in ((a.value, x.expected), (b.value, y.expected))]
            mass = 1.0 / (1.0 / x.mass + slope**2 / y.mass)
            return Led(self._gap(x.began, y.began)[0], self._gap(*ends)[0], mass)

        return Lengths(gap, a.rate - slope * b.rate, a.pull.minus(b.pull, slope, curve), led)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) m or rad."""
        return self._gap(self.one.value(model, q), self.other.value(model, q))[0]

    def rate(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """(n,) m/s or rad/s."""
        slope = self._gap(self.one.value(model, q), self.other.value(model, q))[1]
        return self.one.rate(model, q, v) - slope * self.other.rate(model, q, v)

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), what changes one of both."""
        return self.one.dofs(model) | self.other.dofs(model)

    def many(self, acts: np.ndarray) -> str:
        """How many follow."""
        return self.one.many(acts)

    def _gap(self, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The gap, and slope and curvature of the polynomial."""
        x, c = b - self.offset[:, 1], self.polynomial
        value = c[:, 0] + x * (c[:, 1] + x * (c[:, 2] + x * (c[:, 3] + x * c[:, 4])))
        slope = c[:, 1] + x * (2 * c[:, 2] + x * (3 * c[:, 3] + x * 4 * c[:, 4]))
        curve = 2 * c[:, 2] + x * (6 * c[:, 3] + x * 12 * c[:, 4])
        return a - self.offset[:, 0] - value, slope, curve
