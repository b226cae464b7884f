"""How to step: checked where it is made."""

import dataclasses
import math
import numbers

import jax
import jax.numpy as jnp

from pbad_jax.checks import integer, one_of, step_size
from pbad_jax.dynamics.instant import coupling
from pbad_jax.errors import OptionError
from pbad_jax.kernels import lanes
from pbad_jax.laws.force import acting, at_stages, is_conservative, name_of
from pbad_jax.laws.soft_end import has_inertia
from pbad_jax.math.loops import inside
from pbad_jax.model.model import Model
from pbad_jax.schemes import NAMES, AnyScheme, Scheme, radau
from pbad_jax.stage.problem import SolverConfig
from pbad_jax.step.error import missing
from pbad_jax.step.history import history_span
from pbad_jax.step.substeps import Rule

DEFAULT_TOLERANCE = {
    "lm": {"float64": 1e-11, "float32": 2e-6},
    "lbfgs": {"float64": 1e-7, "float32": 1e-3},  # near the square root of the precision
}
LEAST_ACCURACY = 4  # times the tolerance
OF_A_PART = 10  # iterations, with an accuracy: a shorter part takes fewer


@dataclasses.dataclass(frozen=True)
class Options:
    """How to step. Hashable, so static under jit; checked when made.

    Attributes:
        dt: step, s.
        scheme: radau(s), dirk(p), legendre(K) or variational(), or a name such as "radau2".
        tolerance: of the residual, which estimates the position error of the solve as a fraction of the model's
            size or, where that is more, of the way of the step. Default 1e-11 in float64, 2e-6 in float32; for lbfgs
            1e-7 and 1e-3, because a minimum is flat.
        max_iterations: Levenberg–Marquardt iterations a step may take, all attempts of its continuation together.
        solver: "lm" (Levenberg–Marquardt, the default) or "lbfgs" (the paper's other one; slower, less accurate).
        objective: "root" (lm, the default: Newton's method on the equations, damped towards ‖r‖²), "squared" (lbfgs:
            ½‖r‖² of any scheme), "energy" (lm or lbfgs: the paper's eq. (5) and each stage of dirk; needs a scheme with
            one unknown at a time, and forces that all have a potential). "auto": root for lm; energy for lbfgs where
            there is one, else squared.
        on_failure: "freeze": a failed step keeps the last good state, and later steps of the lane do nothing.
            "substep": it is first tried again, legendre from the stages of radau(2), then any scheme in parts of dt,
            down to dt/64, and where it would go through something to dt/4096. The derivative of a step that had to be
            divided is that of a failed one.
        accuracy: None: dt is the step. A number, 1e-3 say: dt is the control step, and inside it each lane takes as
            many parts as keep the sum of their `info.error` at about it (rad, and m over the model's length); with
            radau(1) or radau(2). All forces act at the stages, a part has ten iterations, and a step that fails is made
            in parts too, whatever on_failure. The derivative is that of the parts that were taken. See docs/schemes.md.
        max_parts: with an accuracy, parts that a step may take; one that needs more fails as INACCURATE.
        failed_gradient: "zero": a failed step passes no derivative. "nan": it poisons what depends on it.
        account: whether `info.work` and `info.numerical_work` are computed.
        condition: whether `info.condition` is, at the cost of some solves; `info.grad_ok` then looks at it too.
        linear_solver: "dense": LU of the Newton matrix. "tree": one sweep inward and one outward, O(N), no matrix; for
            lm with one unknown configuration at a time (radau(1), legendre(2), dirk). "auto": tree for those from 120
            degrees of freedom on, where no force couples links or joints.
        recurrence: "parallel" (O(log N) deep, the default) or "serial" (the paper's Algorithms 1-3).
        kernel: what looks for the roots of many lanes. "xla": what JAX makes of it. "pallas": on NVIDIA's GPUs the sums
            over the tree, Newton matrices and linear solves are a kernel each; the derivative is JAX's all the same.
            "auto": xla, until kernels have been timed on a card. See docs/batches.md.

    Raises:
        OptionError: naming the option, the value and what is allowed.

    Example:
        >>> pbad.Options(dt=0.05, scheme="radau3", on_failure="substep").scheme
        <scheme radau3: 3 stages, order 5>
    """

    dt: float
    scheme: AnyScheme | str = dataclasses.field(default_factory=radau)
    tolerance: float | None = None
    max_iterations: int = 400
    solver: str = "lm"
    objective: str = "auto"
    on_failure: str = "freeze"
    accuracy: float | None = None
    max_parts: int = 64
    failed_gradient: str = "zero"
    linear_solver: str = "auto"
    recurrence: str = "parallel"
    kernel: str = "auto"
    account: bool = False
    condition: bool = False

    def __post_init__(self):
        # numbers, and the scheme by its name
        object.__setattr__(self, "dt", step_size(self.dt))
        if isinstance(self.scheme, str):
            object.__setattr__(self, "scheme", NAMES[one_of(self.scheme, tuple(NAMES), "scheme", OptionError)]())
        if not isinstance(self.scheme, AnyScheme):
            raise OptionError(f"scheme is {self.scheme!r}; pass radau(2) or one of the names {', '.join(NAMES)}")
        for name in ("tolerance", "accuracy"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _positive(value, name))
        for name in ("max_iterations", "max_parts"):
            integer(getattr(self, name), name, 1)
        self._check_accuracy()
        # words, and what goes with what
        one_of(self.solver, ("lm", "lbfgs"), "solver", OptionError)
        one_of(self.objective, ("auto", "root", "energy", "squared"), "objective", OptionError)
        self._check_objective()
        one_of(self.on_failure, ("freeze", "substep"), "on_failure", OptionError)
        one_of(self.failed_gradient, ("zero", "nan"), "failed_gradient", OptionError)
        one_of(self.linear_solver, ("auto", "dense", "tree"), "linear_solver", OptionError)
        self._check_linear_solver()
        for name in ("account", "condition"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {getattr(self, name)!r}; it must be True or False")
        one_of(self.recurrence, ("parallel", "serial"), "recurrence", OptionError)
        one_of(self.kernel, ("auto", "xla", "pallas"), "kernel", OptionError)

    def _check_objective(self) -> None:
        """Which objectives go with which solver and scheme."""
        if self.solver == "lm" and self.objective == "squared":
            raise OptionError("objective 'squared' is what lm's damping falls back on; use 'root', or solver='lbfgs'")
        if self.solver == "lbfgs" and self.objective == "root":
            raise OptionError("objective 'root' needs Newton's method; use 'energy' or 'squared', or solver='lm'")
        scheme = scheme_of(self)
        if scheme.kind == "variational" and (self.solver == "lbfgs" or self.objective not in ("auto", "root")):
            raise OptionError(
                "variational() has no energy to minimise; use solver='lm' with objective 'auto' or 'root'"
            )
        if self.objective == "energy" and scheme.m > 1:
            raise OptionError(
                f"objective 'energy' needs one unknown configuration at a time; {scheme.name} has "
                f"{scheme.m}: use 'squared', or dirk(p), whose stages have an energy"
            )

    def _check_accuracy(self) -> None:
        """It needs the error of a step."""
        scheme = scheme_of(self)
        if self.accuracy is not None and not (isinstance(scheme, Scheme) and missing(scheme)):
            raise OptionError(
                f"accuracy is {self.accuracy:g}, but a step of {scheme.name} does not say its error: use radau(2) or "
                "radau(1), or accuracy=None"
            )

    def _check_linear_solver(self) -> None:
        """The tree solve has its own conditions."""
        if self.linear_solver != "tree":
            return
        if not scheme_of(self).has_energy:
            raise OptionError(
                f"linear_solver 'tree' needs a scheme with one unknown configuration at a time that is tested there, "
                f"radau(1), legendre(2) or dirk(p); got {scheme_of(self).name}: use 'dense'"
            )
        if self.solver == "lbfgs" or self.recurrence == "serial":
            raise OptionError("linear_solver 'tree' goes with solver='lm' and recurrence='parallel'; use 'dense'")


def check_options(options, who: str) -> Options:
    """The options, if they are Options.

    Raises:
        OptionError: they are something else.
    """
    if not isinstance(options, Options):
        raise OptionError(f"{who} needs options=Options(dt=...); got {type(options).__name__} {options!r:.60}")
    return options


def scheme_of(options: Options) -> AnyScheme:
    """The scheme, never its name."""
    assert not isinstance(options.scheme, str)  # Options sees to it
    return options.scheme


def rule_of(options: Options) -> Rule | None:
    """Which parts of a step are made; None: it is made whole."""
    if options.accuracy is None and options.on_failure == "freeze":
        return None
    scheme = scheme_of(options)
    return Rule(options.accuracy, scheme.order, history_span(scheme), options.max_parts)


def looks_back(options: Options) -> bool:
    """Whether a step reads the history of the last one: in its equations, for a guess, or for the length of a part."""
    scheme = scheme_of(options)
    return scheme.has_history or scheme.m > 1 or options.accuracy is not None


def solved_for(options: Options, model: Model) -> Model:
    """The model whose steps are made: with an accuracy all forces act at the stages, as parts are as short as it takes.

    Raises:
        OptionError: a force that cannot.
    """
    if options.accuracy is None:
        return model
    soft = [name_of(force) for force in model.forces if has_inertia(force)]
    if soft:
        raise OptionError(
            f"{soft[0]} has ends with an inertia (SoftEnd, as of constraints='MuJoCo'), whose error in a step nobody "
            "knows: use accuracy=None, and more steps"
        )
    return dataclasses.replace(model, forces=tuple(map(at_stages, model.forces)))


def without_dt(options: Options) -> Options:
    """The options with a dt of 1 s, for programs that take dt as an argument: one for all of them."""
    return dataclasses.replace(options, dt=1.0)


def _positive(value, option: str) -> float:
    if not (isinstance(value, numbers.Real) and math.isfinite(value) and float(value) > 0):
        raise OptionError(f"{option} is {value!r}; it must be a positive number, or None")
    return float(value)


def resolve(options: Options, model: Model) -> SolverConfig:
    """What the options come to for this model.

    Raises:
        OptionError: a tolerance below what the dtype resolves, or an energy wanted of forces without one.
    """
    _check_impulses(options, model)
    tolerance = _tolerance(options, model.dtype)
    if options.accuracy is not None and options.accuracy < LEAST_ACCURACY * tolerance:
        raise OptionError(
            f"accuracy {options.accuracy:g} is too near to the tolerance of the solve, {tolerance:g} in "
            f"{jnp.dtype(model.dtype).name}; ask for {LEAST_ACCURACY * tolerance:.1g} or more"
        )
    most = options.max_iterations if options.accuracy is None else min(options.max_iterations, OF_A_PART)
    recurrence = _recurrence(options, model)
    return SolverConfig(
        tolerance=tolerance,
        max_iterations=most,
        method=options.solver,
        objective=_objective(options, model),
        recurrence=recurrence,
        retry=options.on_failure == "substep",
        account=options.account,
        condition=options.condition,
        kernel=_takes_kernels(options, recurrence),
    )


def _check_impulses(options: Options, model: Model) -> None:
    """Schemes with history have no velocity that an impulse could change: theirs is read off positions before and after
    it, and a body that has come to rest would be told to move on.
    """
    soft = [name_of(f) for f in acting(model, "stages") if has_inertia(f)]
    if soft:
        raise OptionError(f"{', '.join(soft)}: ends with an inertia (SoftEnd) act once a step; make it with at='step'")
    once, scheme = [name_of(f) for f in acting(model, "step")], scheme_of(options)
    if once and scheme.has_history:
        raise OptionError(
            f"{scheme.name} has no place for forces that act once a step (at='step'): {', '.join(once)}. Use "
            "radau(2), or make them with at='stages' and dt a tenth of a contact or less"
        )


def _tolerance(options: Options, dtype) -> float:
    """The tolerance for this dtype."""
    if options.tolerance is None:
        return DEFAULT_TOLERANCE[options.solver][jnp.dtype(dtype).name]
    smallest = 4 * float(jnp.finfo(dtype).eps)
    if options.tolerance < smallest:
        raise OptionError(
            f"tolerance {options.tolerance:g} is below what {jnp.dtype(dtype).name} resolves; the smallest sensible "
            f"value is {smallest:.1g}"
        )
    return options.tolerance


LARGE = 120  # degrees of freedom from which "auto" takes the tree solve


def _recurrence(options: Options, model: Model) -> str:
    """Of atom/operator.py."""
    fits = scheme_of(options).has_energy and options.solver == "lm" and options.recurrence == "parallel"
    small = options.linear_solver == "auto" and model.nv < LARGE
    if options.linear_solver == "dense" or small or not fits:
        return options.recurrence
    loops = coupling(model)
    if options.linear_solver == "tree" and loops:
        raise OptionError(
            f"linear_solver is 'tree', but {', '.join(loops)} couples links or joints, which makes a loop of the "
            "tree: use linear_solver='auto' or 'dense'"
        )
    return options.recurrence if loops else "sweeps"


def _takes_kernels(options: Options, recurrence: str) -> bool:
    """Whether kernels/ looks for roots; "auto" waits until a card has said what they bring.

    Raises:
        OptionError: they are asked for where there are none.
    """
    if options.kernel != "pallas":
        return False
    device = jax.default_backend()
    if device == "gpu" and "rocm" in jax.devices()[0].client.platform_version:
        device = "GPU of AMD"
    if device != "gpu" and not lanes.INTERPRETED:
        raise OptionError(
            f"kernel is 'pallas', but the device is a {device}: kernels are for NVIDIA's GPUs; use kernel='auto' or "
            "'xla'"
        )
    if jax.device_count() > 1 or inside():
        raise OptionError(
            f"kernel is 'pallas', which is for one GPU by itself; there are {jax.device_count()} devices, or a step is "
            "traced for jax.shard_map: use kernel='auto' or 'xla'"
        )
    if options.solver != "lm" or recurrence != "parallel":
        raise OptionError(
            f"kernel 'pallas' is for solver='lm' and the dense matrices of recurrence='parallel'; got solver="
            f"{options.solver!r}, recurrence={options.recurrence!r}, linear_solver={options.linear_solver!r}: use "
            "kernel='auto' or 'xla'"
        )
    return True


def _objective(options: Options, model: Model) -> str:
    """The objective that "auto" stands for; an energy needs a potential of every force."""
    bare = [name_of(f) for f in model.forces if not is_conservative(f)]
    if options.objective == "energy" and bare:
        raise OptionError(
            f"objective 'energy' needs a potential of every force; {', '.join(bare)} has none: use objective='auto'"
        )
    if options.objective != "auto":
        return options.objective
    if options.solver == "lm":
        return "root"
    return "energy" if scheme_of(options).m == 1 and not bare else "squared"
