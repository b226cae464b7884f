"""Forces in the joints, and gravity."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.forces.force import Instant, Load, dofs
from pbad_jax.forces.one_sided import OneSided, Tangent, excesses, expected_of, led, no_tangent, one_sided
from pbad_jax.forces.regularised import Sliding, no_sliding, primal_dual_coulomb, ramp, smooth_coulomb
from pbad_jax.kinematics.manifold import difference
from pbad_jax.kinematics.tree import ball_blocks, tree
from pbad_jax.math import rotations
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import identity_like, matmul, matvec, small_sum
from pbad_jax.model.model import Model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gravity:
    """Uniform gravity, `model.gravity` (m/s²): Q = −Σ_l g · ∫ρ P. Linear in T, so it has no curvature.

    Example:
        >>> [type(force).__name__ for force in model.forces]
        ['Gravity']
    """

    def load(self, model: Model, at: Instant) -> Load:
        """∂Q/∂T^l = −g [∫ρp; m]ᵀ."""
        return Load(field=-model.gravity[None, :, None] * model.second_moment[:, None, :, 3])

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """−Σ m g · com, J; zero at the world's origin."""
        return -jnp.sum(matvec(at.T, model.second_moment[:, :, 3]) @ model.gravity)

    def describe(self, model: Model) -> tuple[str, str]:
        """Everywhere."""
        return "Gravity", "all bodies"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointSpring:
    """Linear springs, Q = ½ Σ k_x d_x², with d the rotation vector (ball) or difference from `rest` to q.

    A free joint's translation is sprung per axis, its rotation as a ball, both as in MuJoCo. On a ball the three
    stiffnesses must be equal for the energy to exist; `build_model` makes them so.

    Example:
        >>> law = next(force for force in felt.forces if isinstance(force, forces.JointSpring))
        >>> law.stiffness
        Array([2.], dtype=float64)
    """

    stiffness: jax.Array  # (nv,) N/m or N m/rad
    rest: jax.Array  # (nq,)
    couples_joints: ClassVar[bool] = False  # its matrices are blocks of the balls

    def load(self, model: Model, at: Instant) -> Load:
        """τ = −k d; ∂τ/∂δ = −k ∂d/∂δ."""
        d = difference(model, self.rest, at.q)
        return Load(tau=-self.stiffness * d, dtau_dq=difference_slope(model, -self.stiffness, d))

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k d², J."""
        return 0.5 * jnp.sum(self.stiffness * difference(model, self.rest, at.q) ** 2)

    def describe(self, model: Model) -> tuple[str, str]:
        """Where it is stiff."""
        return "JointSpring", dofs(self.stiffness)


def difference_slope(model: Model, weight: jax.Array, d: jax.Array) -> jax.Array:
    """weight (nv,) times ∂d/∂δ at the difference d: a diagonal (nv,), a matrix (nv,nv) where there are balls."""
    balls = tree(model.topology).ball_v
    blocks = lambda: weight[balls][..., None] * rotations.right_jacobian_inverse(d[balls])  # noqa: E731
    return ball_blocks(model, weight, blocks)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointDamping:
    """Linear joint damping, τ = −d v; independent of dt.

    Example:
        >>> law = next(force for force in felt.forces if isinstance(force, forces.JointDamping))
        >>> law.coefficient
        Array([0.3], dtype=float64)
    """

    coefficient: jax.Array  # (nv,) N s/m or N m s/rad
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """τ = −d v, evaluated at the stage: implicit."""
        return Load(tau=-self.coefficient * at.v, dtau_dv=-self.coefficient)

    def describe(self, model: Model) -> tuple[str, str]:
        """Where it damps."""
        return "JointDamping", dofs(self.coefficient)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointFriction:
    """Dry friction, τ = −f v/√(v² + s²): f above the stick speed s, viscous below; independent of dt.

    Held against a torque τ < f a joint creeps at s τ/√(f² − τ²).

    Example:
        >>> law = next(force for force in felt.forces if isinstance(force, forces.JointFriction))
        >>> law.loss
        Array([0.1], dtype=float64)
    """

    loss: jax.Array  # (nv,) N or N m
    stick_speed: jax.Array  # (nv,) m/s or rad/s
    at: str = dataclasses.field(default="step", metadata=STATIC)
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its slope by v."""
        w, speed, dual = at.v[:, None], self.stick_speed[:, None], None
        if at.guide is None:
            direction, slope = smooth_coulomb(w, speed)
        else:
            direction, slope, dual = primal_dual_coulomb(w, speed, at.guide.dual, at.guide.trust)
        return Load(tau=-self.loss * direction[:, 0], dtau_dv=-self.loss * slope[:, 0, 0], dual=dual)

    def dual(self, model: Model) -> Sliding:
        """A sliding direction of every degree of freedom."""
        return no_sliding((model.nv, 1), model.dtype)

    def describe(self, model: Model) -> tuple[str, str]:
        """Where it brakes."""
        return "JointFriction", dofs(self.loss)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointLimit:
    """Soft ends of the joints' ranges: k ramp(x) g(1 + χ ẋ) for an excess x; ramp and g as in regularised.py.

    Hinges and slides: x beyond `range`. Balls: x of the whole rotation's angle beyond `angle`, without damping.

    Example:
        >>> law = next(force for force in felt.forces if isinstance(force, forces.JointLimit))
        >>> law.range
        Array([[-1.,  1.]], dtype=float64)
    """

    range: jax.Array  # (nv,2) rad or m, ±inf = free; not used on balls
    angle: jax.Array  # (nball,) rad, inf = free
    stiffness: jax.Array  # (nv,) N/m or N m/rad
    width: jax.Array  # (nv,) m or rad, of the smooth start
    damping: jax.Array  # (nv,) χ, s/m or s/rad
    at: str = dataclasses.field(default="step", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    couples_joints: ClassVar[bool] = False  # its matrices are blocks of the balls
    dissipates = True

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its slopes; full matrices only where there are balls."""
        t, q = tree(model.topology), self._scalars(model, at.q)
        tau, beyond, by_q, by_v = (jnp.zeros_like(at.v) for _ in range(4))
        duals, began = [], excesses(self._scalars(model, at.start.q), self.range)
        for k, (side, x) in enumerate(excesses(q, self.range)):
            f = self._end(at, k, x, side * at.v, began[k][1])
            tau, by_q, by_v = tau - side * f.force, by_q - f.by_depth, by_v - f.by_rate
            if f.modelled is not None:
                beyond = beyond - side * (f.modelled - f.force)
            duals.append(f.tangent)
        dual, modelled = (None, None) if at.guide is None else (tuple(duals), beyond)
        if not t.balls.size:
            return Load(tau=tau, dtau_dq=by_q, dtau_dv=by_v, modelled_tau=modelled, dual=dual)
        torque, slope = self._ball_torque(model, at.q)
        by_q, tau = ball_blocks(model, by_q, lambda: slope), tau.at[t.ball_v].add(torque)
        return Load(tau=tau, dtau_dq=by_q, dtau_dv=by_v, modelled_tau=modelled, dual=dual)

    def dual(self, model: Model) -> tuple[Tangent, Tangent]:
        """A tangent of either end of every degree of freedom."""
        free = no_tangent((model.nv,), model.dtype)
        return free, free

    def _end(self, at: Instant, k: int, excess: jax.Array, rate: jax.Array, began: jax.Array) -> OneSided:
        """The law at end k, whose motion is linear."""
        if at.guide is None:
            return one_sided(self, excess, rate)
        last = at.guide.dual[k]
        return led(self, excess, rate, expected_of(last, began, excess), last, at.guide.rate, at.guide.inertia)

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """k ∫ramp, J."""
        t, q = tree(model.topology), self._scalars(model, at.q)
        total = jnp.zeros((), at.q.dtype)
        for _, x in excesses(q, self.range):
            total = total + jnp.sum(self.stiffness * ramp(x, self.width)[0])
        if t.balls.size:
            _, turn = self._rotation(model, at.q)
            energy, _, _ = ramp(turn - self.angle, self.width[t.ball_v[:, 0]])
            total = total + jnp.sum(self.stiffness[t.ball_v[:, 0]] * energy)
        return total

    def describe(self, model: Model) -> tuple[str, str]:
        """Where there is an end; a ball counts three times."""
        balls = np.repeat(np.isfinite(np.asarray(self.angle)), 3)
        return "JointLimit", dofs(np.r_[np.isfinite(np.asarray(self.range)).any(axis=-1), balls])

    def bounds(self, model: Model) -> np.ndarray:
        """The range of every degree of freedom, (nv,2) rad or m, ±inf = free; of a ball's three 0 to its angle."""
        t, out = tree(model.topology), np.array(self.range)
        angle = np.asarray(self.angle)[:, None]
        out[t.ball_v, 0], out[t.ball_v, 1] = np.where(np.isfinite(angle), 0.0, -np.inf), angle
        return out

    def _scalars(self, model: Model, q: jax.Array) -> jax.Array:
        t = tree(model.topology)
        return jnp.zeros(model.nv, q.dtype).at[t.scalar_v].set(q[t.scalar_q])

    def _rotation(self, model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Rotation vectors (nball,3) and their length (nball,), with a finite slope at zero."""
        d = rotations.quaternion_log(q[tree(model.topology).ball_q])
        square = small_sum(d * d)
        small = square < 1e-12
        return d, jnp.where(small, 0.0, jnp.sqrt(jnp.where(small, 1.0, square)))

    def _ball_torque(self, model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
        """−k ramp(θ − limit) d/θ and its slope along the rotation; d turns into itself, so Jrᵀ d = d."""
        t = tree(model.topology)
        d, turn = self._rotation(model, q)
        k, width = self.stiffness[t.ball_v[:, 0]], self.width[t.ball_v[:, 0]]
        _, F, slope = ramp(turn - self.angle, width)
        axis = d / jnp.where(turn > 0, turn, 1.0)[:, None]
        along = axis[:, :, None] * axis[:, None, :]
        across = (identity_like(d) - along) * (F / jnp.where(turn > 0, turn, 1.0))[:, None, None]
        by_d = -k[:, None, None] * (slope[:, None, None] * along + across)
        return -(k * F)[:, None] * axis, matmul(by_d, rotations.right_jacobian_inverse(d))


def quartic(c: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Σ_k c_k x^k of polynomials c (e,5) at x (e,), with slope and curvature."""
    value = c[:, 0] + x * (c[:, 1] + x * (c[:, 2] + x * (c[:, 3] + x * c[:, 4])))
    slope = c[:, 1] + x * (2 * c[:, 2] + x * (3 * c[:, 3] + x * 4 * c[:, 4]))
    return value, slope, 2 * c[:, 2] + x * (6 * c[:, 3] + x * 12 * c[:, 4])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointCoupling:
    """A stiff spring between two hinges or slides: gap = q₁ − o₁ − Σ_k c_k (q₂ − o₂)^k.

    MuJoCo's joint equality and URDF's mimic. An index of −1 for the second joint holds the first one still.
    τ = −(k gap + d ġap) ∂gap/∂q.

    Example:
        >>> text = '''
        ... <mujoco>
        ...   <worldbody>
        ...     <body><joint name="a"/><geom size="0.1"/></body>
        ...     <body><joint name="b"/><geom size="0.1"/></body>
        ...   </worldbody>
        ...   <equality><joint joint1="a" joint2="b" polycoef="0 2 0 0 0"/></equality>
        ... </mujoco>
        ... '''
        >>> law = next(force for force in pbad.load(text).forces if isinstance(force, forces.JointCoupling))
        >>> law.polynomial
        Array([[0., 2., 0., 0., 0.]], dtype=float64)
    """

    offset: jax.Array  # (e,2) rad or m
    polynomial: jax.Array  # (e,5)
    stiffness: jax.Array  # (e,)
    damping: jax.Array  # (e,)
    q_index: tuple[tuple[int, int], ...] = dataclasses.field(metadata=STATIC)
    v_index: tuple[tuple[int, int], ...] = dataclasses.field(metadata=STATIC)
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def gap(self, model: Model, at: Instant) -> jax.Array:
        """(e,) rad or m."""
        return self._terms(at.q)[0]

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its full derivatives."""
        gap, slope, curve = self._terms(at.q)
        one, two = (jnp.asarray(np.array(self.v_index)[:, k]) for k in range(2))
        present = jnp.asarray(np.array(self.v_index)[:, 1] >= 0, gap.dtype)
        G = jnp.zeros((len(self.v_index), model.nv), gap.dtype)
        row = jnp.arange(len(self.v_index))
        G = G.at[row, one].add(1.0).at[row, two].add(-slope * present)
        F = self.stiffness * gap + self.damping * (G @ at.v)
        bent = jnp.zeros_like(G).at[row, two].add(-curve * present)  # ∂G/∂q₂, on the diagonal of q₂
        by_q = -(G.T * self.stiffness[None]) @ G - jnp.diag(F @ bent) - (G.T * self.damping[None]) @ (bent * at.v[None])
        return Load(tau=-F @ G, dtau_dq=by_q, dtau_dv=-(G.T * self.damping[None]) @ G)

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k gap², J."""
        return 0.5 * jnp.sum(self.stiffness * self._terms(at.q)[0] ** 2)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many joints follow."""
        return "JointCoupling", f"{len(self.v_index)} joints"

    def _terms(self, q: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The gap, and slope and curvature of the polynomial."""
        index = np.array(self.q_index)
        x = jnp.where(jnp.asarray(index[:, 1] >= 0), q[index[:, 1]] - self.offset[:, 1], 0.0)
        value, slope, curve = quartic(self.polynomial, x)
        return q[index[:, 0]] - self.offset[:, 0] - value, slope, curve
