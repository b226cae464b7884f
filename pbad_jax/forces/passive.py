"""Gravity compensation, and springs and dampers of higher degree."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces.drives import chosen
from pbad_jax.forces.force import Instant, Load, dofs
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matvec
from pbad_jax.model.model import Model, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GravityCompensation:
    """A share of the weight of some links, carried by a force against gravity; made by `gravity_compensation`.

    Example:
        >>> forces.gravity_compensation(model, {"link0": 1.0}).share
        Array([0., 1., 0., 0.], dtype=float64)
    """

    share: jax.Array  # (N,) 1: weightless

    def load(self, model: Model, at: Instant) -> Load:
        """∂Q/∂T^l = share g [∫ρp; m]ᵀ."""
        carried = self.share[:, None] * model.second_moment[:, :, 3]
        return Load(field=model.gravity[None, :, None] * carried[:, None])

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """Σ share m g · com, J."""
        return jnp.sum((self.share[:, None] * matvec(at.T, model.second_moment[:, :, 3])) @ model.gravity)

    def describe(self, model: Model) -> tuple[str, str]:
        """Whom it carries."""
        return "GravityCompensation", f"{np.count_nonzero(np.asarray(self.share))} bodies"


def gravity_compensation(model: Model, share: Mapping[str, float]) -> GravityCompensation:
    """Carry a share of the weight of some bodies, {name: share}; 1 makes a body weightless, more lets it rise.

    Raises:
        ModelError: an unknown body, no finite number.

    Example:
        >>> light = pbad.with_forces(model, forces.gravity_compensation(model, {"link0": 1.0, "link1": 1.0}))
        >>> abs(round(float(pbad.potential_energy(light, state)), 6))
        0.0
    """
    check_model(model)
    out = np.zeros(model.topology.n_links)
    for name, x in share.items():
        link = model.topology.body_link[checks.known(name, model.body_names, "body of gravity_compensation")]
        out[link] = checks.number(x, f"gravity_compensation of body {name!r}")
    return GravityCompensation(checks.leaf(model.dtype)(out))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointPolynomial:
    """What springs and dampers have beyond their linear part, τ = −p₁ x² − p₂ x³ − d₁ v|v| − d₂ v³, as MuJoCo's.

    x is the difference from `rest` to q of hinges and slides; others have no such springs. By `joint_polynomial`.

    Example:
        >>> forces.joint_polynomial(arm, "joint0", stiffness=(0.0, 2.0)).stiffness
        Array([[0., 2.],
               [0., 0.]], dtype=float64)
    """

    stiffness: jax.Array  # (nv,2) p₁, p₂: N/m², N/m³ or N m/rad², N m/rad³
    rest: jax.Array  # (nv,) rad or m
    damping: jax.Array  # (nv,2) d₁, d₂: N s²/m², N s³/m³ or N m s²/rad², N m s³/rad³
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """τ and its diagonal slopes."""
        x, v, (p, r), (d, e) = self._beyond(model, at), at.v, self.stiffness.T, self.damping.T
        tau = -(p + r * x) * x * x - (d * jnp.abs(v) + e * v * v) * v
        return Load(tau=tau, dtau_dq=-(2 * p + 3 * r * x) * x, dtau_dv=-2 * d * jnp.abs(v) - 3 * e * v * v)

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """Σ p₁ x³/3 + p₂ x⁴/4, J."""
        x, (p, r) = self._beyond(model, at), self.stiffness.T
        return jnp.sum((p / 3 + r * x / 4) * x**3)

    def describe(self, model: Model) -> tuple[str, str]:
        """Where it is not zero."""
        return "JointPolynomial", dofs(np.c_[np.asarray(self.stiffness), np.asarray(self.damping)].any(axis=1))

    def _beyond(self, model: Model, at: Instant) -> jax.Array:
        t = tree(model.topology)
        return jnp.zeros_like(at.v).at[t.scalar_v].set(at.q[t.scalar_q] - self.rest[t.scalar_v])


def joint_polynomial(
    model: Model, joints: str | Sequence[str] | None = None, *, stiffness=(0.0, 0.0), damping=(0.0, 0.0), rest=None
) -> JointPolynomial:
    """Springs and dampers of second and third degree; see the class.

    Args:
        model: the model.
        joints: a name or names; None: all that move.
        stiffness, damping: (2,) for all of them, or one row for each of the joints, of second and third degree.
        rest: one number for each of the joints, rad or m, where its spring is at rest; default what `model.q0` has.

    Raises:
        ModelError: an unknown or fixed joint, a spring on a joint that is neither hinge nor slide, negative damping,
            bad numbers.

    Example:
        >>> spring = forces.joint_polynomial(arm, "joint1", stiffness=(0.0, 2.0), damping=(0.1, 0.0))
        >>> stiff = pbad.with_forces(arm, spring)
        >>> type(stiff.forces[-1]).__name__
        'JointPolynomial'
    """
    check_model(model)
    what, which = "joint_polynomial", chosen(model, joints, "joint_polynomial")
    k, d = (_rows(x, len(which), f"{n} of {what}") for x, n in ((stiffness, "stiffness"), (damping, "damping")))
    if np.any(d < 0):
        raise ModelError(f"damping of {what} is {d.min():g}; it must be ≥ 0, or it would drive. Change its sign.")
    q0 = checks.of_model(model, "q0")
    given = [q0[j.q] for j in which] if rest is None else checks.vector(rest, len(which), f"rest of {what}")
    springs, dampers, at_rest = np.zeros((model.nv, 2)), np.zeros((model.nv, 2)), np.zeros(model.nv)
    for i, joint in enumerate(which):
        if k[i].any() and joint.type not in ("hinge", "slide"):
            raise ModelError(
                f"stiffness of {what}: joint {joint.name!r} is of type {joint.type}; wanted hinge or slide"
            )
        own = slice(joint.v, joint.v + joint.nv)
        springs[own], dampers[own], at_rest[own] = k[i], d[i], given[i]
    leaf = checks.leaf(model.dtype)
    return JointPolynomial(leaf(springs), leaf(at_rest), leaf(dampers), not dampers.any())


def _rows(x, count: int, what: str) -> np.ndarray:
    """(count,2) of one row for all, or of one for each."""
    x = checks.array(x, what, "two numbers")
    if x.shape not in ((2,), (count, 2)) or not np.all(np.isfinite(x)):
        raise ModelError(f"{what} is {x.tolist()!r:.60}; wanted (2,) or ({count}, 2) finite numbers")
    return np.broadcast_to(x, (count, 2))
