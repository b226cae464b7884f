"""Fixed tendons: lengths that are sums of joint coordinates, ℓ = c · q of hinges and slides, and what acts along them.

A force f along a tendon is τ = cᵀ f in the joints. c is constant, so the slopes are those of the law of one length
between c's: ∂τ/∂q = cᵀ (∂f/∂ℓ) c, ∂τ/∂v = cᵀ (∂f/∂ℓ̇) c. Actuators of tendons are made by `Actuator`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces.drives import actuator_force, held_energy
from pbad_jax.forces.force import Instant, Load
from pbad_jax.forces.joint_laws import quartic
from pbad_jax.forces.one_sided import Tangent, excesses, expected_of, led, no_tangent, one_sided
from pbad_jax.forces.regularised import Sliding, no_sliding, primal_dual_coulomb, ramp, smooth_coulomb
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.joints import JointInfo
from pbad_jax.model.model import Model, check_model

Tendon = Mapping[str, float]  # joint -> coefficient
TINY = 1e-30  # the least of what must be above zero


def lengths(model: Model, coefficient: jax.Array, q: jax.Array) -> jax.Array:
    """ℓ (m,) of tendons with coefficients (m,nv), those of balls unused."""
    t = tree(model.topology)
    return coefficient[:, t.scalar_v] @ q[t.scalar_q]


def _between(coefficient: jax.Array, slope: jax.Array, other: jax.Array | None = None) -> jax.Array:
    """cᵀ diag(slope) c, (nv,nv)."""
    return coefficient.T @ (slope[:, None] * (coefficient if other is None else other))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TendonSpring:
    """Springs and dampers, f = −k x − d ℓ̇, x by how much ℓ is beyond the range `rest`; made by `tendon_spring`.

    Example:
        >>> forces.tendon_spring(arm, {"joint0": 1.0, "joint1": 1.0}, stiffness=5.0).coefficient
        Array([[1., 1.]], dtype=float64)
    """

    coefficient: jax.Array  # (m,nv) of ℓ: rad or m by rad or m
    stiffness: jax.Array  # (m,) N/m, or N m where lengths are angles
    rest: jax.Array  # (m,2) where the spring is slack
    damping: jax.Array  # (m,) N s/m
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its slopes; one of zero where the spring is slack."""
        x, c = self._beyond(model, at), self.coefficient
        f = -self.stiffness * x - self.damping * (c @ at.v)
        taut = (x != 0).astype(f.dtype)
        return Load(tau=c.T @ f, dtau_dq=_between(c, -self.stiffness * taut), dtau_dv=_between(c, -self.damping))

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k x², J."""
        return 0.5 * jnp.sum(self.stiffness * self._beyond(model, at) ** 2)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "TendonSpring", f"{len(self.stiffness)} tendons"

    def _beyond(self, model: Model, at: Instant) -> jax.Array:
        length = lengths(model, self.coefficient, at.q)
        return jnp.maximum(length - self.rest[:, 1], 0.0) + jnp.minimum(length - self.rest[:, 0], 0.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TendonFriction:
    """Dry friction, f = −F ℓ̇/√(ℓ̇² + s²), as that of joints; made by `tendon_friction`.

    Example:
        >>> forces.tendon_friction(arm, {"joint0": 1.0, "joint1": 1.0}, 0.2).loss
        Array([0.2], dtype=float64)
    """

    coefficient: jax.Array  # (m,nv)
    loss: jax.Array  # (m,) F, N
    stick_speed: jax.Array  # (m,) s, m/s
    at: str = dataclasses.field(default="step", metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its slope by v."""
        c, dual = self.coefficient, None
        w, speed = (c @ at.v)[:, None], self.stick_speed[:, None]
        if at.guide is None:
            direction, slope = smooth_coulomb(w, speed)
        else:
            direction, slope, dual = primal_dual_coulomb(w, speed, at.guide.dual, at.guide.trust)
        by_v = _between(c, -self.loss * slope[:, 0, 0])
        return Load(tau=-c.T @ (self.loss * direction[:, 0]), dtau_dv=by_v, dual=dual)

    def dual(self, model: Model) -> Sliding:
        """A sliding direction of every tendon."""
        return no_sliding((len(self.loss), 1), model.dtype)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "TendonFriction", f"{len(self.loss)} tendons"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TendonLimit:
    """Soft ends of the lengths' ranges, by the law of `JointLimit`; made by `tendon_limit`.

    Example:
        >>> forces.tendon_limit(arm, {"joint0": 1.0, "joint1": 1.0}, (-1.0, 1.0), stiffness=100.0).range
        Array([[-1.,  1.]], dtype=float64)
    """

    coefficient: jax.Array  # (m,nv)
    range: jax.Array  # (m,2) rad or m, ±inf = free
    stiffness: jax.Array  # (m,) N/m
    width: jax.Array  # (m,) m, of the smooth start
    damping: jax.Array  # (m,) χ, s/m
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its slopes; the law at either end, led to its root as in one_sided.py."""
        c, rate = self.coefficient, self.coefficient @ at.v
        f, beyond, by_length, by_rate = (jnp.zeros_like(rate) for _ in range(4))
        duals, began = [], excesses(lengths(model, self.coefficient, at.start.q), self.range)
        for k, (side, excess) in enumerate(excesses(lengths(model, self.coefficient, at.q), self.range)):
            if at.guide is None:
                end = one_sided(self, excess, side * rate)
            else:
                mass = 1.0 / (c * c @ (1.0 / at.guide.inertia))  # of the joints, each alone
                last = at.guide.dual[k]
                expected = expected_of(last, began[k][1], excess)
                end = led(self, excess, side * rate, expected, last, at.guide.rate, mass)
                assert end.modelled is not None
                beyond = beyond - side * (end.modelled - end.force)
            f, by_length, by_rate = f - side * end.force, by_length - end.by_depth, by_rate - end.by_rate
            duals.append(end.tangent)
        dual, modelled = (None, None) if at.guide is None else (tuple(duals), c.T @ beyond)
        by_q, by_v = _between(c, by_length), _between(c, by_rate)
        return Load(tau=c.T @ f, dtau_dq=by_q, dtau_dv=by_v, modelled_tau=modelled, dual=dual)

    def dual(self, model: Model) -> tuple[Tangent, Tangent]:
        """A tangent of either end of every tendon."""
        free = no_tangent((len(self.stiffness),), model.dtype)
        return free, free

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp, J."""
        parts = [
            jnp.sum(self.stiffness * ramp(x, self.width)[0])
            for _, x in excesses(lengths(model, self.coefficient, at.q), self.range)
        ]
        return parts[0] + parts[1]

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "TendonLimit", f"{len(self.stiffness)} tendons"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TendonCoupling:
    """A stiff spring between the lengths of two tendons: gap = ℓ₁ − o₁ − Σ_k p_k (ℓ₂ − o₂)^k; by `tendon_coupling`.

    f = k gap + d ġap, τ = −G f with G = ∂gap/∂q = c₁ − p'(ℓ₂) c₂.

    Example:
        >>> gear = forces.tendon_coupling(arm, {"joint0": 1.0}, {"joint1": 2.0}, stiffness=100.0)
        >>> gear.stiffness
        Array([100.], dtype=float64)
    """

    coefficient: jax.Array  # (e,nv) of ℓ₁
    other: jax.Array  # (e,nv) of ℓ₂
    offset: jax.Array  # (e,2)
    polynomial: jax.Array  # (e,5)
    stiffness: jax.Array  # (e,)
    damping: jax.Array  # (e,)
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def gap(self, model: Model, at: Instant) -> jax.Array:
        """(e,) rad or m."""
        return self._terms(model, at.q)[0]

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its full derivatives; ∂G/∂q = −p'' c₂ c₂ᵀ."""
        gap, slope, curve = self._terms(model, at.q)
        G = self.coefficient - slope[:, None] * self.other
        f = self.stiffness * gap + self.damping * (G @ at.v)
        bent = curve * (self.other @ at.v)  # ġap = G v changes by −p'' ℓ̇₂ c₂
        by_q = _between(self.other, f * curve) - _between(G, self.stiffness)
        by_q = by_q + _between(G, self.damping * bent, self.other)
        return Load(tau=-G.T @ f, dtau_dq=by_q, dtau_dv=_between(G, -self.damping))

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k gap², J."""
        return 0.5 * jnp.sum(self.stiffness * self._terms(model, at.q)[0] ** 2)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "TendonCoupling", f"{len(self.stiffness)} tendons"

    def _terms(self, model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The gap, and slope and curvature of the polynomial."""
        x = lengths(model, self.other, q) - self.offset[:, 1]
        value, slope, curve = quartic(self.polynomial, x)
        return lengths(model, self.coefficient, q) - self.offset[:, 0] - value, slope, curve


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TendonActuation:
    """Actuators of tendons, by the law of drives.py with the lengths g ℓ; made by `Actuator`.

    Example:
        >>> driven = pbad.with_actuators(arm, pbad.Actuator({"joint0": 1.0, "joint1": -0.5}, name="cable"))
        >>> driven.forces[-1].coefficient
        Array([[ 1. , -0.5]], dtype=float64)
    """

    coefficient: jax.Array  # (n,nv)
    gear: jax.Array  # (n,)
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3)
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its slopes."""
        pull = self.gear[:, None] * self.coefficient
        f, open_ = actuator_force(self, at.control, self.extent(model, at.q), self.speed(model, at.q, at.v))
        by_q, by_v = (_between(pull, open_ * self.bias[:, k]) for k in (1, 2))
        return Load(tau=pull.T @ f, dtau_dq=by_q, dtau_dv=by_v)

    def held_potential(self, model: Model, at: Instant) -> jax.Array:
        """J, see drives.held_energy."""
        return held_energy(self, at.control, self.extent(model, at.q))

    def extent(self, model: Model, q: jax.Array) -> jax.Array:
        """The lengths g ℓ at q, (n,)."""
        return self.gear * lengths(model, self.coefficient, q)

    def speed(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """Their rates at (q, v), (n,)."""
        return self.gear * (self.coefficient @ v)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "TendonActuation", f"by {len(self.u_index)} actuators"


# --- made from joints' names ----------------------------------------------------------------------------------


def tendon_spring(
    model: Model, tendons: Tendon | Sequence[Tendon], *, stiffness: Any = 0.0, rest: Any = 0.0, damping: Any = 0.0
) -> TendonSpring:
    """Springs and dampers along tendons.

    Args:
        model: the model.
        tendons: one, or a list of m: {joint: coefficient} of hinges and slides.
        stiffness, damping: N/m and N s/m, ≥ 0: one number, or (m,).
        rest: the length at which it is slack: one number, or (m,2), a range for each.

    Raises:
        ModelError: an unknown joint, one that is neither hinge nor slide, bad numbers.

    Example:
        >>> sprung = pbad.with_forces(arm, forces.tendon_spring(arm, {"joint0": 1.0, "joint1": 1.0}, stiffness=5.0))
        >>> bent = pbad.make_state(sprung, [0.2, 0.4])
        >>> round(float(pbad.potential_energy(sprung, bent) - pbad.potential_energy(arm, bent)), 3)
        0.9
    """
    check_model(model)
    c = tendon_rows(model.topology.joints, tendons, "tendon_spring")
    k, d = (_each(x, len(c), f"{n} of tendon_spring") for x, n in ((stiffness, "stiffness"), (damping, "damping")))
    ends = _ranges(rest, len(c), "rest of tendon_spring")
    leaf = checks.leaf(model.dtype)
    return TendonSpring(leaf(c), leaf(k), leaf(ends), leaf(d), not d.any())


def tendon_friction(
    model: Model, tendons: Tendon | Sequence[Tendon], loss, *, stick_speed: Any = 1e-2
) -> TendonFriction:
    """Dry friction along tendons; see `tendon_spring`.

    loss: N, ≥ 0. stick_speed: m/s, > 0, below which it is viscous.

    Example:
        >>> pbad.with_forces(arm, forces.tendon_friction(arm, {"joint0": 1.0}, 0.2)).forces[-1].coefficient
        Array([[1., 0.]], dtype=float64)
    """
    check_model(model)
    c = tendon_rows(model.topology.joints, tendons, "tendon_friction")
    speed = _each(stick_speed, len(c), "stick_speed of tendon_friction", least=TINY)
    leaf = checks.leaf(model.dtype)
    return TendonFriction(leaf(c), leaf(_each(loss, len(c), "loss of tendon_friction")), leaf(speed))


def tendon_limit(
    model: Model, tendons: Tendon | Sequence[Tendon], range, *, stiffness, width: Any = 0.01, damping: Any = 1.0
) -> TendonLimit:
    """Soft ends of tendons; see `tendon_spring`.

    range: (low, high), or (m,2); ±inf = free. stiffness: N/m. width: m, > 0, over which it comes in. damping: χ, s/m.

    Example:
        >>> limit = forces.tendon_limit(arm, {"joint0": 1.0, "joint1": 1.0}, (-1.0, 1.0), stiffness=100.0)
        >>> ended = pbad.with_forces(arm, limit)
        >>> ended.forces[-1].range
        Array([[-1.,  1.]], dtype=float64)
    """
    check_model(model)
    c = tendon_rows(model.topology.joints, tendons, "tendon_limit")
    ends = _ranges(range, len(c), "range of tendon_limit")
    k, d = (_each(x, len(c), f"{n} of tendon_limit") for x, n in ((stiffness, "stiffness"), (damping, "damping")))
    w = _each(width, len(c), "width of tendon_limit", least=TINY)
    leaf = checks.leaf(model.dtype)
    return TendonLimit(leaf(c), leaf(ends), leaf(k), leaf(w), leaf(d))


def tendon_coupling(
    model: Model,
    tendons: Tendon | Sequence[Tendon],
    others: Tendon | Sequence[Tendon] | None = None,
    *,
    stiffness,
    damping: Any = 0.0,
    polynomial: Any = (0.0, 1.0, 0.0, 0.0, 0.0),
    offset: Any = (0.0, 0.0),
) -> TendonCoupling:
    """Stiff springs between the lengths of two tendons; see the class and `tendon_spring`.

    others: as many tendons; None holds the first ones at offset₁ + polynomial₀. stiffness: N/m. damping: N s/m.
    polynomial: (5,) or (e,5). offset: (2,) or (e,2).

    Example:
        >>> gear = forces.tendon_coupling(arm, {"joint0": 1.0}, {"joint1": 2.0}, stiffness=100.0)
        >>> geared = pbad.with_forces(arm, gear)
        >>> type(geared.forces[-1]).__name__
        'TendonCoupling'
    """
    check_model(model)
    what = "tendon_coupling"
    c = tendon_rows(model.topology.joints, tendons, what)
    d = np.zeros_like(c) if others is None else tendon_rows(model.topology.joints, others, f"others of {what}")
    if len(d) != len(c):
        raise ModelError(f"{what}: {len(c)} tendons and {len(d)} others; give as many of both")
    p = _table(polynomial, (len(c), 5), f"polynomial of {what}")
    o = _table(offset, (len(c), 2), f"offset of {what}")
    if others is None:
        p = p * np.eye(5)[0]
    k, b = (_each(x, len(c), f"{n} of {what}") for x, n in ((stiffness, "stiffness"), (damping, "damping")))
    leaf = checks.leaf(model.dtype)
    return TendonCoupling(leaf(c), leaf(d), leaf(o), leaf(p), leaf(k), leaf(b), conservative=not b.any())


def tendon_rows(joints: Sequence[JointInfo], tendons, what: str) -> np.ndarray:
    """Coefficients (m,nv) of one tendon or m.

    Raises:
        ModelError: no {joint: coefficient}, an unknown joint, one that is neither hinge nor slide, no finite number.
    """
    tendons = [tendons] if isinstance(tendons, Mapping) else tendons
    if not isinstance(tendons, list | tuple) or not tendons:
        raise ModelError(f"tendons of {what} are {tendons!r:.60}; wanted {{joint: coefficient}}, or a list of them")
    rows = np.zeros((len(tendons), sum(j.nv for j in joints)))
    for row, tendon in zip(rows, tendons):
        if not isinstance(tendon, Mapping) or not tendon:
            raise ModelError(f"tendon of {what} is {tendon!r:.60}; wanted {{joint: coefficient}} of at least one joint")
        for name, c in tendon.items():
            joint = joints[checks.known(name, [j.name for j in joints], f"joint in a tendon of {what}")]
            if joint.type not in ("hinge", "slide"):
                raise ModelError(
                    f"tendon of {what}: joint {name!r} is of type {joint.type}; a tendon is of hinges and slides"
                )
            row[joint.v] = checks.number(c, f"coefficient of joint {name!r} in a tendon of {what}")
    return rows


def _each(x, count: int, what: str, least: float = 0.0) -> np.ndarray:
    """One number for each tendon, ≥ least."""
    x = _table(x, (count,), what)
    for value in x[x < least][:1]:
        raise ModelError(f"{what} is {value:g}; it must be {'above' if least else 'at least'} zero")
    return x


def _ranges(x, count: int, what: str) -> np.ndarray:
    """(m,2), low ≤ high; of one number, both."""
    x = checks.array(x, what, "numbers")
    x = _table(np.stack([x, x], axis=-1) if x.ndim == 0 else x, (count, 2), what, finite=False)
    for low, high in x[~(x[:, 0] <= x[:, 1])][:1]:
        raise ModelError(f"{what} is ({low:g}, {high:g}); low must not exceed high. Swap them.")
    return x


def _table(x, shape: tuple[int, ...], what: str, finite: bool = True) -> np.ndarray:
    """Numbers of that shape, or one row of them for all."""
    x = checks.array(x, what, "numbers")
    if x.shape not in (shape, shape[1:]):
        raise ModelError(f"{what} has shape {x.shape}; wanted {shape[1:]} for all, or {shape}")
    if finite and not np.all(np.isfinite(x)):
        raise ModelError(f"{what} is {x.tolist()!r:.60}; every entry must be finite")
    return np.broadcast_to(x, shape).copy()
