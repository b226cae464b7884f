"""What a force is: a small pytree with one method, `load`, evaluated at every stage of a step, or once a step.

`Force` names all that it may have besides; `with_forces` gives it to a model, and refuses a name that is nearly one of
these.

Where in the step. "stages": at every stage, which keeps the scheme's order; for everything smooth. "step": one impulse
at the start of the step, evaluated implicitly at its end with the mean rates of the step (radau(2) and radau(3): most
of it along the step); for what is stiff and one-sided (contact, limits), which inside a step longer than the
contact would let high orders make energy.
"""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import ModelError, OptionError
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.load import Load, sum_of
from pbad_jax.model.model import Model, check_model


class Force(Protocol):
    """A frozen dataclass registered as a pytree, with a method `load`; nothing is inherited.

    What else it may have, as class attributes, static fields, properties or methods of exactly these names::

        at: str = "stages"             or "step": one implicit impulse a step, see the module
        conservative: bool = True      whether the force is minus the gradient of its `potential`, no more
        dissipates: bool = False       whether what it does beside its potential, if it has one, only takes energy
        couples_joints: bool = True    whether a full (nv,nv) slope joins joints; False: it is blocks of the balls
        potential(model, at)           () J: enters `potential_energy`; without it a force is not conservative
        held_potential(model, at)      () J: of a drive, what its work is the fall of, or less, while control and time
                                       stand still; inf where it is not so. Without it a step knows that work by a
                                       quadrature alone. None (static): as without
        gap(model, at)                 (c,3) or (e,), m or rad: by how much it is open, for `loop_gaps`
        depth(model, at)               (c,) m: how deep what it holds apart overlaps
        passed(model, at)              () bool, at the end of a step: what it holds apart went through one another
        near(model, start)             arrays: found once at the Start of a step, then in `at.start.near`; where that
                                       is None, at an instant by itself, a force has to look for it
        dual(model)                    arrays: what `load` finds in `at.guide.dual` at the first iterate of a solve
        by_parts(model, at)            its Parts, at "step" and with a dual: on the way to a root `load` is not asked,
                                       but of those parts that may act
        describe(model)                (its name, on how much of the model it acts), two strings for `pbad-jax info`
        name: str                      what reports call it; otherwise the name of its class

    A method may be a property, which is None where there is none.

    Example:
        >>> @jax.tree_util.register_dataclass
        ... @dataclasses.dataclass(frozen=True)
        ... class Cubic:
        ...     strength: jax.Array
        ...     def load(self, model, at):
        ...         return forces.Load(tau=-self.strength * at.q**3, dtau_dq=-3 * self.strength * at.q**2)
        >>> springy = pbad.with_forces(model, Cubic(jnp.asarray(5.0)))
        >>> forces.total_load(springy, at).tau
        Array([-5., -0., -0., -0.], dtype=float64)
    """

    def load(self, model: Model, at: Instant) -> Load:
        """What it does at one instant."""
        ...


WHERE = ("stages", "step")
FLAGS = ("conservative", "dissipates", "couples_joints")
METHODS = ("potential", "held_potential", "gap", "depth", "passed", "near", "dual", "by_parts", "describe")
OPTIONAL = ("at", *FLAGS, *METHODS)


def offers(force: Any, name: str) -> bool:
    """Whether it has something of that name, which is not None."""
    return getattr(force, name, None) is not None


def name_of(force: Any) -> str:
    """What reports call it: its `name`, a str, or else that of its class.

    Example:
        >>> [forces.name_of(force) for force in felt.forces]
        ['Gravity', 'JointSpring', 'JointDamping', 'JointFriction', 'JointLimit']
    """
    name = getattr(force, "name", None)
    return name if isinstance(name, str) else type(force).__name__


def acts_at(force: Force) -> str:
    """Where the force acts: at the "stages", or once a "step"."""
    return getattr(force, "at", "stages")


def at_stages(force: Any) -> Any:
    """The same force at every stage.

    Raises:
        OptionError: it acts once a step, and has no field `at` that says so.
    """
    if acts_at(force) == "stages":
        return force
    fields = getattr(force, "__dataclass_fields__", ())
    if "at" in fields:
        return dataclasses.replace(force, at="stages")
    if "law" in fields:
        return dataclasses.replace(force, law=at_stages(force.law))
    raise OptionError(
        f"force {name_of(force)} acts once a step, and with an accuracy all forces act at the stages: give it a field "
        "`at` that can be 'stages', or use accuracy=None"
    )


def goes_by_parts(force: Force) -> bool:
    """Whether on the way to a root only those of its places are asked that may act."""
    return offers(force, "by_parts") and acts_at(force) == "step"


def is_conservative(force: Force) -> bool:
    """Whether the force is minus the gradient of its `potential`, no more.

    Example:
        >>> spring = forces.joint_polynomial(arm, stiffness=(0.0, 2.0))
        >>> forces.is_conservative(spring), forces.is_conservative(forces.drag(0.1))
        (True, False)
    """
    return offers(force, "potential") and getattr(force, "conservative", True)


def makes_no_energy(force: Force) -> bool:
    """Whether a force adds nothing to the energy beside what its `potential` gives back."""
    return is_conservative(force) or getattr(force, "dissipates", False)


def couples_joints(force: Force) -> bool:
    """Whether a full (nv,nv) slope of the force joins joints; blocks of the balls do not."""
    return getattr(force, "couples_joints", True)


def description(force: Force, model: Model) -> tuple[str, str]:
    """The force's name, and on how much of the model it acts."""
    describe = getattr(force, "describe", None)
    return (name_of(force), "") if describe is None else describe(model)


def dofs(numbers) -> str:
    """How many of the numbers, one a degree of freedom, are not zero; in words."""
    return f"{np.count_nonzero(np.asarray(numbers))} degrees of freedom"


def acting(model: Model, where: str) -> list:
    """The forces that act at the stages, or once a step."""
    return [f for f in model.forces if acts_at(f) == where]


# --- over all forces of a model ------------------------------------------------------------------------------


def total_load(model: Model, at: Instant, where: str | None = None) -> Load:
    """The sum of the model's forces that act at the "stages", or once a "step"; None, of all.

    On the way to a root, what goes by parts is left out of the latter (stage/sparse_loads.py has it).

    Example:
        >>> forces.total_load(model, at).field.shape
        (4, 3, 4)
    """
    check_model(model)
    total, duals = Load(), []
    for k, force in enumerate(model.forces):
        if (where is not None and acts_at(force) != where) or (at.guide is not None and goes_by_parts(force)):
            duals.append(None)
            continue
        load = _of_right_shapes(model, force, force.load(model, of_force(at, k)))
        sums = (sum_of(a, b) for a, b in zip(total[:4], load[:4]))
        extra = sum_of(total.modelled_tau, load.modelled_tau)
        total = Load(*sums, point_forces=total.point_forces + load.point_forces, modelled_tau=extra)
        duals.append(load.dual)
    return total._replace(dual=tuple(duals))


def of_force(at: Instant, k: int) -> Instant:
    """With what force k found near at the start of the step, and its dual, instead of what all did and have."""
    guide, near = at.guide, at.start.near
    if guide is not None:
        own = guide.dual[k]
        guide = None if own is None else guide._replace(dual=own)
    return dataclasses.replace(at, start=at.start._replace(near=None if near is None else near[k]), guide=guide)


def nearby(model: Model, start: Start) -> tuple:
    """Of every force what it finds near at the start of a step; None where it does not look."""
    return tuple(f.near(model, start) if offers(f, "near") else None for f in model.forces)


def first_duals(model: Model, where: str) -> tuple:
    """Of every force that acts there what it finds at the first iterate; None where it has no dual."""
    return tuple(f.dual(model) if acts_at(f) == where and offers(f, "dual") else None for f in model.forces)


def _of_right_shapes(model: Model, force: "Force", load: Load) -> Load:
    """The Load itself; what does not fit the model is named while tracing."""
    nv = model.nv
    parts = [("field", load.field, [(model.topology.n_links, 3, 4)]), ("tau", load.tau, [(nv,)])]
    parts += [("modelled_tau", load.modelled_tau, [(nv,)])]
    parts += [(name, getattr(load, name), [(nv,), (nv, nv)]) for name in ("dtau_dq", "dtau_dv")]
    for k, p in enumerate(load.point_forces):
        c, n = p.u.shape[:2]
        shapes = {"u": (c, n, 4), "df_dP": (c, n, 3, n, 3), "df_dV": (c, n, 3, n, 3)}
        shapes |= dict.fromkeys(("force", "modelled", "curving", "by_normal"), (c, n, 3))
        parts += [(f"point_forces[{k}].{name}", getattr(p, name), [shape]) for name, shape in shapes.items()]
    for name, x, allowed in parts:
        if x is not None and jnp.shape(x) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise ModelError(f"load of {name_of(force)}: {name} has shape {jnp.shape(x)}; wanted {wanted}")
    return load


def total_potential(model: Model, at: Instant) -> jax.Array:
    """Potential energy of all forces that have one, J.

    Example:
        >>> round(float(forces.total_potential(model, at)), 3)
        -10.601
    """
    check_model(model)
    parts = [f.potential(model, of_force(at, k)) for k, f in enumerate(model.forces) if offers(f, "potential")]
    return sum(parts, jnp.zeros((), model.dtype))


def stored(model: Model, at: Instant) -> list[jax.Array | None]:
    """Of every force what it can give back, () J, the control and the time standing still; see `Force.held_potential`.

    Zero of what only takes energy, infinite where no two ends tell its work; None (static): only a quadrature does.
    """
    return [_stored(f, model, of_force(at, k)) for k, f in enumerate(model.forces)]


def _stored(force: Any, model: Model, at: Instant) -> jax.Array | None:
    if makes_no_energy(force):
        return force.potential(model, at) if offers(force, "potential") else jnp.zeros((), model.dtype)
    return force.held_potential(model, at) if offers(force, "held_potential") else None


def gaps(model: Model, at: Instant) -> tuple[jax.Array, ...]:
    """The gaps of all forces that have some, in their order; see `Force`."""
    return tuple(f.gap(model, at) for f in model.forces if offers(f, "gap"))


def passed(model: Model, at: Instant) -> jax.Array:
    """Whether a force says that in the step that ends here something went through something, () bool."""
    parts = [f.passed(model, of_force(at, k)) for k, f in enumerate(model.forces) if offers(f, "passed")]
    return jnp.any(jnp.stack([jnp.zeros((), bool), *parts]))
