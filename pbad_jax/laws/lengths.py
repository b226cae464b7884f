"""What laws act along: lengths of a configuration, m or rad. Here those of joints; paths.py has those of points.

`Joints`, `Tendons` (fixed ones), `Paths` (straight between sites), `Sites` (which have a rate only), and the `Coupling`
of two, by how much they disagree; balls.py has `Gears`. Laws are in line_laws.py, line_force.py joins them. A Length
is a pytree with

    word, noun              what it is called in the name of a force, "Joint", and how many of it are, "tendons"
    exact                   whether ℓ̇ is the rate of ℓ, so that a law along it has an energy
    couples_joints          as in `Force`
    at(model, at)           its `Lengths`, whose `pull` has `load(Along) -> Load`
    value(model, q)         ℓ (n,), where it has one without an instant
    dofs(model)             (n,nv) bool, which degrees of freedom change it
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kinematics.tree import on_dofs, tree
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.pulls import DofPull, JointPull, Led, Lengths
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import take
from pbad_jax.model.model import Model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Joints:
    """Hinges and slides by themselves, those of `q_index` and `v_index`; None: all degrees of freedom.

    Those of balls have rates, and the value 0.

    Example:
        >>> damped = forces.LineForce(forces.Joints(), forces.Damping(jnp.array([0.3, 0.1])))
        >>> damped.name, damped.length.value(arm, jnp.array([1.0, 0.5]))
        ('JointDamping', Array([1. , 0.5], dtype=float64))
    """

    q_index: tuple[int, ...] | None = dataclasses.field(default=None, metadata=STATIC)
    v_index: tuple[int, ...] | None = dataclasses.field(default=None, metadata=STATIC)
    word: ClassVar[str] = "Joint"
    noun: ClassVar[str] = "degrees of freedom"
    exact: ClassVar[bool] = True
    couples_joints: ClassVar[bool] = False

    def at(self, model: Model, at: Instant) -> Lengths:
        """q and v."""

        def led() -> Led:
            assert at.guide is not None
            return Led(None, self._own(at.guide.inertia))

        pull = DofPull(self.v_index, model.nv)

        def was(start: Start) -> tuple[jax.Array, jax.Array]:
            return self.value(model, start.q), self._own(start.v)

        return Lengths(self.value(model, at.q), self._own(at.v), pull, led, was)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) rad or m."""
        if self.q_index is not None:
            return take(q, np.array(self.q_index))
        t = tree(model.topology)
        return on_dofs(model, take(q, t.scalar_q), lambda: jnp.zeros(t.ball_v.shape, q.dtype))

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), each its own."""
        every = np.eye(model.nv, dtype=bool)
        return every if self.v_index is None else every[list(self.v_index)]

    def _own(self, x: jax.Array) -> jax.Array:
        return x if self.v_index is None else take(x, np.array(self.v_index))


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

    @property
    def noun(self) -> str:
        """Of several."""
        return self.of.lower() + "s"

    def at(self, model: Model, at: Instant) -> Lengths:
        """c · q and c · v."""
        c = self.coefficient

        def led() -> Led:
            assert at.guide is not None
            return Led(None, 1.0 / (c * c @ (1.0 / at.guide.inertia)))  # joints alone

        def was(start: Start) -> tuple[jax.Array, jax.Array]:
            return self.value(model, start.q), c @ start.v

        return Lengths(self.value(model, at.q), c @ at.v, JointPull(c, at.v), led, was)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) rad or m."""
        t = tree(model.topology)
        return self.coefficient[:, t.scalar_v] @ take(q, t.scalar_q)

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), where c is not zero."""
        return np.asarray(self.coefficient) != 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Coupling:
    """By how much two lengths disagree: gap = ℓ − o₁ − Σ_k p_k (ℓ' − o₂)^k, of two Tendons or two Paths.

    MuJoCo's equalities of joints and tendons and URDF's mimic are a stiff spring along it; by `tendon_coupling`.

    Example:
        >>> gear = forces.tendon_coupling(arm, {"joint0": 1.0}, {"joint1": 2.0}, stiffness=100.0)
        >>> gear.name, gear.length.polynomial
        ('TendonCouplingSpring', Array([[0., 1., 0., 0., 0.]], dtype=float64))
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
    def noun(self) -> str:
        """Of several."""
        return self.one.noun

    @property
    def exact(self) -> bool:
        """Of both."""
        return self.one.exact and self.other.exact

    def at(self, model: Model, at: Instant) -> Lengths:
        """∂gap = ∂ℓ − p' ∂ℓ', with the curvature ∇²ℓ − p' ∇²ℓ' − p'' ∂ℓ' ∂ℓ'ᵀ."""
        a, b = self.one.at(model, at), self.other.at(model, at)
        gap, slope, curve = self._gap(a.value, b.value)

        def led() -> Led:
            x, y = a.led(), b.led()
            ends = [first if then is None else then for first, then in ((a.value, x.expected), (b.value, y.expected))]
            mass = 1.0 / (1.0 / x.mass + slope**2 / y.mass)
            return Led(self._gap(*ends)[0], mass)

        def was(start: Start) -> tuple[jax.Array, jax.Array]:
            (first, first_rate), (other, other_rate) = a.was(start), b.was(start)
            gap, slope, _ = self._gap(first, other)
            return gap, first_rate - slope * other_rate

        return Lengths(gap, a.rate - slope * b.rate, a.pull.minus(b.pull, slope, curve), led, was)

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), what changes one of both."""
        return self.one.dofs(model) | self.other.dofs(model)

    def _gap(self, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The gap, and slope and curvature of the polynomial."""
        x, c = b - self.offset[:, 1], self.polynomial
        value = c[:, 0] + x * (c[:, 1] + x * (c[:, 2] + x * (c[:, 3] + x * c[:, 4])))
        slope = c[:, 1] + x * (2 * c[:, 2] + x * (3 * c[:, 3] + x * 4 * c[:, 4]))
        curve = 2 * c[:, 2] + x * (6 * c[:, 3] + x * 12 * c[:, 4])
        return a - self.offset[:, 0] - value, slope, curve
