"""A force is a law along a length: `LineForce`, and what is asked of all of them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from pbad_jax.errors import ModelError
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.balls import BallLimit
from pbad_jax.laws.force import offers
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.lengths import Coupling, Joints
from pbad_jax.laws.line_laws import Limit
from pbad_jax.laws.load import Load
from pbad_jax.laws.pulls import Along
from pbad_jax.model.model import Model, check_model

ACTUATOR = ("control_range", "geared", "force")  # what the law of an actuator has
LAW = ("along", "at", "conservative", "dissipates", "energy", "held_energy", "first_dual", "acts", "u_index")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LineForce:
    """A law of line_laws.py along lengths of lengths.py, or one's own of the same methods; a `Force`.

    Example:
        >>> band = forces.LineForce(forces.Joints(), forces.Spring(jnp.array([0.0, 5.0]), arm.q0))
        >>> band.name, forces.is_conservative(band)
        ('JointSpring', True)
    """

    length: Any  # n lengths
    law: Any  # of n numbers

    def __post_init__(self):
        """An energy wants a length that is the integral of its rate, and an actuator what is asked of it.

        JAX makes some of placeholders, which have neither.
        """
        missing = [x for x in ACTUATOR if not hasattr(self.law, x)] if offers(self.law, "u_index") else []
        if missing:
            raise ModelError(
                f"{self.name} is an actuator, because its law has a u_index; it needs {', '.join(missing)}, see "
                "pbad_jax.forces.Actuation"
            )
        if offers(self.law, "energy") and not getattr(self.length, "exact", True):
            raise ModelError(
                f"{self.name}: {type(self.length).__name__} have a rate but no length, which a "
                f"{type(self.law).__name__} needs; give joints, tendons or paths, for balls BallSpring or BallLimit"
            )

    @property
    def name(self) -> str:
        """As in "JointLimit": of the length, and of the law."""
        return self.length.word + type(self.law).__name__

    @property
    def at(self) -> str:
        """Where in a step the law acts."""
        return getattr(self.law, "at", "stages")

    @property
    def conservative(self) -> bool:
        """Whether the law is minus the gradient of its energy."""
        return getattr(self.law, "conservative", True)

    @property
    def dissipates(self) -> bool:
        """Whether the law only takes energy, beside its own."""
        return getattr(self.law, "dissipates", False)

    @property
    def couples_joints(self) -> bool:
        """Whether the length's slopes join joints."""
        return self.length.couples_joints

    def changed(self, **numbers: Any) -> "LineForce":
        """The same with other numbers of the law or of the length, by their names.

        Example:
            >>> driven = pbad.with_actuators(arm, *pbad.motors(arm))
            >>> driven.forces[-1].changed(gear=jnp.array([3.0, 1.0])).law.gear
            Array([3., 1.], dtype=float64)
        """
        own = {f.name for f in dataclasses.fields(self.law)}
        law = dataclasses.replace(self.law, **{k: x for k, x in numbers.items() if k in own})
        length = dataclasses.replace(self.length, **{k: x for k, x in numbers.items() if k not in own})
        return LineForce(length, law)

    def load(self, model: Model, at: Instant) -> Load:
        """The force along each length, as it is felt.

        Raises:
            ModelError: the law cannot be asked for it, or gives something else; while tracing.
        """
        lengths = self.length.at(model, at)
        try:
            found = self.law.along(lengths, at)
        except (TypeError, ValueError, AttributeError) as e:
            raise ModelError(f"{self.name}: along(lengths, at) of its law, of {len(lengths.value)} lengths: {e}") from e
        if not isinstance(found, Along):
            raise ModelError(f"{self.name}: along of its law gave {type(found).__name__}; it must be forces.Along")
        return lengths.pull.load(found)

    @property
    def dual(self) -> Callable[[Model], Any] | None:
        """Of laws that have one."""
        first = getattr(self.law, "first_dual", None)
        return None if first is None else lambda model: first(model.dtype)

    @property
    def potential(self) -> Callable[[Model, Instant], jax.Array] | None:
        """Of laws with an energy."""
        energy = getattr(self.law, "energy", None)
        return None if energy is None else lambda model, at: energy(self.length.at(model, at).value)

    @property
    def held_potential(self) -> Callable[[Model, Instant], jax.Array] | None:
        """Of drives."""
        energy = getattr(self.law, "held_energy", None)
        if energy is None or not self.length.exact:
            return None
        return lambda model, at: energy(at.control, self.length.at(model, at).value)

    @property
    def gap(self) -> Callable[[Model, Instant], jax.Array] | None:
        """Of couplings, (n,) m or rad."""
        return (lambda model, at: self.length.at(model, at).value) if isinstance(self.length, Coupling) else None

    def check(self, model: Model) -> None:
        """That the law has as many numbers as there are lengths, and no energy of what is no number.

        Raises:
            ModelError: no `along`; an array of one number in the law of several lengths; an energy along the rates of a
                ball.
        """
        if not callable(getattr(self.law, "along", None)):
            raise ModelError(f"{self.name}: its law has no method along(lengths, at) -> forces.Along")
        on = self.length.dofs(model)
        for path, x in jax.tree_util.tree_leaves_with_path(self.law):
            if len(path) == 1 and np.shape(x) == (1,) != (len(on),):
                raise ModelError(
                    f"{self.name}: {jax.tree_util.keystr(path).lstrip('.')} has shape (1,), and there are {len(on)} "
                    f"{self.length.noun}; give ({len(on)},), or () for all"
                )
        balls = on[:, tree(model.topology).ball_v.reshape(-1)].any(axis=1)
        if isinstance(self.length, Joints) and self._has_energy_of(balls):
            raise ModelError(
                f"{self.name}: the law has an energy of joint coordinates, and balls and free joints have none; give "
                "Joints(v_index) of hinges and slides, for balls BallSpring or BallLimit"
            )

    def _has_energy_of(self, some: np.ndarray) -> bool:
        """Whether the energy changes with any of some lengths (n,) bool; not asked while it is being traced."""
        traced = any(isinstance(x, Tracer) for x in jax.tree.leaves(self.law))
        if traced or not some.any() or not offers(self.law, "energy"):
            return False
        with jax.ensure_compile_time_eval():
            found = [float(self.law.energy(jnp.asarray(x * some))) for x in (0.0, 0.3, -0.5)]
        return found != 3 * found[:1]

    def describe(self, model: Model) -> tuple[str, str]:
        """On how many of the lengths it acts."""
        if is_actuator(self):
            return self.name, f"by {len(self.law.u_index)} actuators"
        acts = self.law.acts() if offers(self.law, "acts") else self.length.dofs(model).any(axis=1)
        return self.name, f"{np.count_nonzero(acts)} {self.length.noun}"


def is_actuator(force: Any) -> bool:
    """Whether controls drive it: a LineForce whose law has a `u_index`.

    Example:
        >>> driven = pbad.with_actuators(arm, *pbad.motors(arm))
        >>> [forces.is_actuator(force) for force in driven.forces]
        [False, True]
    """
    return isinstance(force, LineForce) and offers(force.law, "u_index")


def actuators(model: Model) -> list[LineForce]:
    """The forces that controls drive.

    Example:
        >>> [force.law.u_index for force in forces.actuators(pbad.with_actuators(arm, *pbad.motors(arm)))]
        [(0, 1)]
    """
    check_model(model)
    return [force for force in model.forces if is_actuator(force)]


def joint_ranges(model: Model) -> np.ndarray:
    """Where the joints' limits are, (nv,2) rad or m, ±inf = free; of a ball's three 0 to its angle.

    Example:
        >>> forces.joint_ranges(felt)
        array([[-1.,  1.]])
    """
    check_model(model)
    out, balls = np.tile([-np.inf, np.inf], (model.nv, 1)), tree(model.topology).ball_v
    for force in model.forces:
        if isinstance(force, LineForce) and isinstance(force.length, Joints) and isinstance(force.law, Limit):
            own = slice(None) if force.length.v_index is None else list(force.length.v_index)
            low, high = np.asarray(force.law.range, float).T
            out[own, 0], out[own, 1] = np.maximum(out[own, 0], low), np.minimum(out[own, 1], high)
        elif isinstance(force, BallLimit):
            angle = np.asarray(force.angle, float)[:, None]
            out[balls, 0], out[balls, 1] = np.where(np.isfinite(angle), 0.0, -np.inf), angle
    return out
