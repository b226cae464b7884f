"""Laws of forces along lengths, functions of numbers alone: a length ℓ, its rate ℓ̇, a control.

A law is a pytree with `along(lengths, at) -> Along`; of the instant it looks at the control and the guide. What else it
may have, of exactly these names::

    at: str = "stages"                  or "step", as in `Force`; and so are
    conservative, dissipates: bool
    energy(value) -> () J               of lengths (n,): what `along` is minus the gradient of, at no rate
    held_energy(control, value) -> () J the same of a drive while its control stands still
    first_dual(dtype)                   arrays: what `along` finds in `at.guide.dual` at the first iterate
    acts() -> (n,) bool                 where it is more than zero, for `pbad-jax info`
    u_index: tuple[int, ...]            makes the force an actuator: of every length its control; then also, as
                                        `Actuation` has them, control_range (n,2), geared(x), force(control, ℓ, ℓ̇)
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.one_sided import OneSided, Tangent, excesses, expected_of, led, no_tangent, one_sided
from pbad_jax.laws.pulls import Along, Lengths
from pbad_jax.laws.smoothing import Sliding, no_sliding, primal_dual_coulomb, ramp, smooth_coulomb
from pbad_jax.laws.soft_end import SoftEnd, in_step
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import take


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Spring:
    """f = −k x − d ℓ̇, x by how much ℓ is off `rest`, or beyond it where that is a range.

    Example:
        >>> law = next(force for force in felt.forces if forces.name_of(force) == "JointSpring").law
        >>> law.stiffness
        Array([2.], dtype=float64)
    """

    stiffness: jax.Array  # (n,) N/m, N m/rad, or N m where lengths are of both
    rest: jax.Array  # (n,), or (n,2) where the spring is slack
    damping: jax.Array | None = None  # (n,) N s/m; None: none
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    conservative: bool = dataclasses.field(default=True, metadata=STATIC)  # whether there is no damping
    dissipates = True

    def along(self, x: Lengths, at: Instant) -> Along:
        """Of zero slope where the spring is slack."""
        beyond, taut = _beyond(x.value, self.rest)
        by_length = -self.stiffness if taut is None else -self.stiffness * taut
        if self.damping is None:
            return Along(-self.stiffness * beyond, by_length)
        return Along(-self.stiffness * beyond - self.damping * x.rate, by_length, -self.damping)

    def energy(self, value: jax.Array) -> jax.Array:
        """½ Σ k x²."""
        return 0.5 * jnp.sum(self.stiffness * _beyond(value, self.rest)[0] ** 2)

    def acts(self) -> np.ndarray:
        """Where it is stiff, or brakes."""
        parts = [self.stiffness] if self.damping is None else [self.stiffness, self.damping]
        return np.logical_or.reduce([np.asarray(x) != 0 for x in parts])


def _beyond(value: jax.Array, rest: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """ℓ − rest, or by how much it is beyond a range and 1 where it is, else 0."""
    if rest.ndim == 1:
        return value - rest, None
    low, high = rest[:, 0], rest[:, 1]
    taut = (value >= high) | (value <= low)
    return jnp.maximum(value - high, 0.0) + jnp.minimum(value - low, 0.0), taut.astype(value.dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Damping:
    """f = −d ℓ̇, implicit; independent of dt.

    Example:
        >>> law = next(force for force in felt.forces if forces.name_of(force) == "JointDamping").law
        >>> law.coefficient
        Array([0.3], dtype=float64)
    """

    coefficient: jax.Array  # (n,) N s/m or N m s/rad
    dissipates = True

    def along(self, x: Lengths, at: Instant) -> Along:
        """Of no slope by the length."""
        return Along(-self.coefficient * x.rate, None, -self.coefficient)

    def acts(self) -> np.ndarray:
        """Where it damps."""
        return np.asarray(self.coefficient) != 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Polynomial:
    """What springs and dampers have beyond their linear part, f = −p₁ x² − p₂ x³ − d₁ ℓ̇|ℓ̇| − d₂ ℓ̇³, as MuJoCo's.

    x is as that of `Spring`. By `joint_polynomial` and `tendon_polynomial`.

    Example:
        >>> forces.joint_polynomial(arm, "joint0", stiffness=(0.0, 2.0)).law.stiffness
        Array([[0., 2.],
               [0., 0.]], dtype=float64)
    """

    stiffness: jax.Array  # (n,2) p₁, p₂: N/m², N/m³ or N m/rad², N m/rad³
    rest: jax.Array  # (n,) or (n,2) rad or m
    damping: jax.Array  # (n,2) d₁, d₂: N s²/m², N s³/m³ or N m s²/rad², N m s³/rad³
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)

    def along(self, x: Lengths, at: Instant) -> Along:
        """Where the spring is slack, x = 0 and so are its slopes."""
        y, v, (p, r), (d, e) = _beyond(x.value, self.rest)[0], x.rate, self.stiffness.T, self.damping.T
        force = -(p + r * y) * y * y - (d * jnp.abs(v) + e * v * v) * v
        return Along(force, -(2 * p + 3 * r * y) * y, -2 * d * jnp.abs(v) - 3 * e * v * v)

    def energy(self, value: jax.Array) -> jax.Array:
        """Σ p₁ x³/3 + p₂ x⁴/4."""
        y, (p, r) = _beyond(value, self.rest)[0], self.stiffness.T
        return jnp.sum((p / 3 + r * y / 4) * y**3)

    def acts(self) -> np.ndarray:
        """Where it is not zero."""
        return np.c_[np.asarray(self.stiffness), np.asarray(self.damping)].any(axis=1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Friction:
    """Dry friction, f = −F ℓ̇/√(ℓ̇² + s²): F above the stick speed s, viscous below; independent of dt.

    Held against a force f < F it creeps at s f/√(F² − f²).

    Example:
        >>> law = next(force for force in felt.forces if forces.name_of(force) == "JointFriction").law
        >>> law.loss
        Array([0.1], dtype=float64)
    """

    loss: jax.Array  # (n,) F, N or N m
    stick_speed: jax.Array  # (n,) s, m/s or rad/s
    at: str = dataclasses.field(default="step", metadata=STATIC)
    dissipates = True

    def along(self, x: Lengths, at: Instant) -> Along:
        """On the way to a root with the slope of the primal-dual method, see smoothing.py."""
        w, speed = x.rate[:, None], self.stick_speed[:, None]
        if at.guide is None:
            direction, slope = smooth_coulomb(w, speed)
            return Along(-self.loss * direction[:, 0], None, -self.loss * slope[:, 0, 0])
        direction, slope, dual = primal_dual_coulomb(w, speed, at.guide.dual, at.guide.trust)
        curving = -self.loss * dual.u[:, 0]
        return Along(-self.loss * direction[:, 0], None, -self.loss * slope[:, 0, 0], None, curving, dual)

    def first_dual(self, dtype) -> Sliding:
        """A sliding direction of each."""
        return no_sliding((len(self.loss), 1), dtype)

    def acts(self) -> np.ndarray:
        """Where it brakes."""
        return np.asarray(self.loss) != 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Limit:
    """Soft ends of a range: k ramp(x) g(1 + χ ẋ) of the excess x beyond either; led to its root, see one_sided.py.

    Where there is a SoftEnd, both ends are of that instead.

    Example:
        >>> law = next(force for force in felt.forces if forces.name_of(force) == "JointLimit").law
        >>> law.range
        Array([[-1.,  1.]], dtype=float64)
    """

    range: jax.Array  # (n,2) rad or m, ±inf = free
    stiffness: jax.Array  # (n,) N/m or N m/rad
    width: jax.Array  # (n,) m or rad, of the smooth start
    damping: jax.Array  # (n,) χ, s/m or s/rad
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    end: SoftEnd | None = None  # instead of stiffness, width and damping

    @property
    def dissipates(self) -> bool:
        """Beside its own energy; of an end with an inertia nobody knows."""
        return self.end is None

    def along(self, x: Lengths, at: Instant) -> Along:
        """Of both ends: the low one pushes up, the high one down."""
        low, high = (self._end(x, at, k) for k in range(2))
        force, by_length, by_rate = low.force - high.force, -low.by_depth - high.by_depth, -low.by_rate - high.by_rate
        if low.modelled is None or high.modelled is None or low.curving is None or high.curving is None:
            return Along(force, by_length, by_rate)
        dual = (low.tangent, high.tangent)
        return Along(force, by_length, by_rate, low.modelled - high.modelled, low.curving - high.curving, dual)

    def first_dual(self, dtype) -> tuple[Tangent, Tangent]:
        """A tangent of either end of each."""
        free = no_tangent((len(self.stiffness),), dtype)
        return free, free

    @property
    def energy(self) -> Callable[[jax.Array], jax.Array] | None:
        """None of an end with an inertia."""
        return self._stored if self.end is None else None

    def _stored(self, value: jax.Array) -> jax.Array:
        """Σ k ∫ramp."""
        low, high = (jnp.sum(self.stiffness * ramp(x, self.width)[0]) for _, x in self._beyond(value))
        return low + high

    def acts(self) -> np.ndarray:
        """Where there is an end."""
        return np.logical_or.reduce(np.isfinite(np.asarray(self.range)), axis=-1)

    def _end(self, x: Lengths, at: Instant, k: int) -> OneSided:
        """The law at end k."""
        side, depth = self._beyond(x.value)[k]
        if self.end is None:
            return self._led(x, at, k, self, depth, side * x.rate, 0.0)

        # beyond where an end with an inertia has given way, less what it holds
        def was(start: Start) -> tuple[jax.Array, jax.Array]:
            length, speed = x.was(start)
            return self._beyond(length)[k][1], side * speed

        given_way, law, held = in_step(self.end, was, at)
        return self._led(x, at, k, law, depth - given_way, side * x.rate, given_way).less(held)

    def _led(self, x: Lengths, at: Instant, k: int, law: Any, depth, rate, given_way) -> OneSided:
        """The law of one_sided.py at end k, led to its root."""
        if at.guide is None:
            return one_sided(law, depth, rate)
        way, last = x.led(), at.guide.dual[k]
        if way.expected is None:
            expected = expected_of(last, self._beyond(x.was(at.start)[0])[k][1] - given_way, depth)
        else:
            expected = self._beyond(way.expected)[k][1] - given_way
        return led(law, depth, rate, expected, last, at.guide.rate, way.mass)

    def _beyond(self, value: jax.Array) -> list[tuple[float, jax.Array]]:
        return excesses(value, self.range)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Actuation:
    """Actuators, each with its control u[u_index]: f = clip(gain clip(u) + bias · (1, gℓ, gℓ̇)), felt g-fold along ℓ.

    MuJoCo's motors, position and velocity servos, general actuators with an affine bias; made by `Actuator`. Implicit
    in length and rate; where f is clipped its slopes are zero.

    Example:
        >>> driven = pbad.with_actuators(arm, *pbad.motors(arm))
        >>> law = driven.forces[-1].law
        >>> dataclasses.replace(law, gear=3 * law.gear).gear
        Array([3., 3.], dtype=float64)
    """

    gear: jax.Array | None  # (n,) g; None: 1, the length has a gear of its own
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3)
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)

    def along(self, x: Lengths, at: Instant) -> Along:
        """g f, and its slopes."""
        f, open_ = self._force(at.control, self.geared(x.value), self.geared(x.rate))
        slope = open_ if self.gear is None else open_ * self.gear**2
        return Along(self.geared(f), slope * self.bias[:, 1], slope * self.bias[:, 2])

    def force(self, control: jax.Array, value: jax.Array, rate: jax.Array) -> jax.Array:
        """f (n,) at lengths and rates (n,)."""
        return self._force(control, self.geared(value), self.geared(rate))[0]

    def geared(self, x: jax.Array) -> jax.Array:
        """g x of lengths, rates or forces (n,)."""
        return x if self.gear is None else self.gear * x

    def held_energy(self, control: jax.Array, value: jax.Array) -> jax.Array:
        """−Σ ∫ f d(gℓ) from ℓ = 0, without what the speeds add: what they give back, their control held.

        f is clip(x) with x linear in ℓ, so that ∫ f dℓ is ℓ times the mean of clip between both ends of x. A share
        bias₂ ℓ̇ that opposes the speed takes energy, since clip rises with x; where one drives on, it is infinite.
        """
        length, begin = self.geared(value), self.gain * self._clipped(control) + self.bias[:, 0]
        end = begin + self.bias[:, 1] * length
        low, high = self.force_range[:, 0], self.force_range[:, 1]

        def risen(x):
            """∫ clip dx."""
            f = jnp.clip(x, low, high)
            return f * (x - 0.5 * f)

        # between ends that nearly agree the mean is that of the middle, without the cancellation
        apart = jnp.abs(end - begin) > 1e-3 * (jnp.abs(end) + jnp.abs(begin))
        mean = (risen(end) - risen(begin)) / jnp.where(apart, end - begin, 1.0)
        mean = jnp.where(apart, mean, jnp.clip(0.5 * (begin + end), low, high))
        return jnp.where(jnp.any(self.bias[:, 2] > 0), jnp.inf, -jnp.sum(mean * length))

    def _clipped(self, control: jax.Array) -> jax.Array:
        return jnp.clip(take(control, np.array(self.u_index)), self.control_range[:, 0], self.control_range[:, 1])

    def _force(self, control: jax.Array, length: jax.Array, speed: jax.Array) -> tuple[jax.Array, jax.Array]:
        """f (n,), and 1 where it is not clipped, else 0."""
        f = self.gain * self._clipped(control) + self.bias[:, 0] + self.bias[:, 1] * length + self.bias[:, 2] * speed
        low, high = self.force_range[:, 0], self.force_range[:, 1]
        return jnp.clip(f, low, high), ((f > low) & (f < high)).astype(f.dtype)
