"""Steps and rollouts: joins the stage equation, the solver and the honest status."""

import dataclasses
import difflib
import functools
import math
import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import kinematics as kin
from pbad_jax import levenberg_marquardt as lm
from pbad_jax import methods, objectives
from pbad_jax.errors import OptionError, StateError, Status
from pbad_jax.forces import Point
from pbad_jax.model import Model, State, Topology
from pbad_jax.progress import report_progress
from pbad_jax.schemes import NAMES, Dirk, Scheme, Variational, radau
from pbad_jax.step_info import StepInfo

DEFAULT_TOLERANCE = {
    "lm": {"float64": 1e-11, "float32": 2e-6},
    "lbfgs": {"float64": 1e-7, "float32": 1e-3},  # near the square root of the precision
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How to step. Hashable, so static under jit; checked when made.

    Attributes:
        dt: step, s.
        scheme: radau(s), dirk(p), legendre(K) or variational(), or a name such as "radau2".
        tolerance: of the residual, which estimates the position error of the solve as a fraction of the model's
            size. Default 1e-11 in float64, 2e-6 in float32; for lbfgs 1e-7 and 1e-3, because a minimum is flat.
        max_iterations: Levenberg–Marquardt iterations a step may take, all attempts of its continuation together.
        solver: "lm" (Levenberg–Marquardt, the default) or "lbfgs" (the paper's other one; slower, less accurate).
        objective: "root" (lm, the default: Newton's method on the equations, damped towards ‖r‖²), "squared" (lbfgs:
            ½‖r‖² of any scheme), "energy" (lm or lbfgs: the paper's eq. (5) and each stage of dirk; needs a scheme with
            one unknown at a time, and forces that all have a potential). "auto": root for lm; energy for lbfgs where
            there is one, else squared.
        on_failure: "freeze": a failed step keeps the last good state, and later steps of the lane do nothing.
            "substep": it is first tried again, legendre from the stages of radau(2), then any scheme in parts of dt,
            down to dt/64.
        account: whether `info.work` and `info.numerical_work` are computed.
        linear_solver: "dense": LU of the Newton matrix. "tree": one sweep inward and one outward, O(N), no matrix; for
            lm with one unknown configuration at a time (radau(1), legendre(2), dirk). "auto": tree for those from 100
            degrees of freedom on.
        recurrence: "parallel" (O(log N) deep, the default) or "serial" (the paper's Algorithms 1-3).

    Raises:
        OptionError: naming the option, the value and what is allowed.
    """

    dt: float
    scheme: Scheme | Dirk | Variational | str = dataclasses.field(default_factory=radau)
    tolerance: float | None = None
    max_iterations: int = 400
    solver: str = "lm"
    objective: str = "auto"
    on_failure: str = "freeze"
    linear_solver: str = "auto"
    recurrence: str = "parallel"
    account: bool = False

    def __post_init__(self):
        if isinstance(self.dt, bool) or not isinstance(self.dt, numbers.Real):
            raise OptionError(f"dt is {self.dt!r} ({type(self.dt).__name__}); it must be one number, s")
        if not (math.isfinite(self.dt) and self.dt > 0):
            raise OptionError(f"dt is {self.dt}; it must be positive and finite, s")
        object.__setattr__(self, "dt", float(self.dt))
        if isinstance(self.scheme, str):
            object.__setattr__(self, "scheme", NAMES[_choice("scheme", self.scheme, tuple(NAMES))]())
        if not isinstance(self.scheme, Scheme | Dirk | Variational):
            raise OptionError(f"scheme is {self.scheme!r}; pass radau(2) or one of the names {', '.join(NAMES)}")
        if self.tolerance is not None:
            if not (isinstance(self.tolerance, numbers.Real) and math.isfinite(self.tolerance) and self.tolerance > 0):
                raise OptionError(f"tolerance is {self.tolerance!r}; it must be a positive number, or None")
            object.__setattr__(self, "tolerance", float(self.tolerance))
        if (
            isinstance(self.max_iterations, bool)
            or not isinstance(self.max_iterations, numbers.Integral)
            or self.max_iterations < 1
        ):
            raise OptionError(f"max_iterations is {self.max_iterations!r}; it must be an integer ≥ 1")
        _choice("solver", self.solver, ("lm", "lbfgs"))
        _choice("objective", self.objective, ("auto", "root", "energy", "squared"))
        self._check_objective()
        _choice("on_failure", self.on_failure, ("freeze", "substep"))
        _choice("linear_solver", self.linear_solver, ("auto", "dense", "tree"))
        self._check_linear_solver()
        if not isinstance(self.account, bool):
            raise OptionError(f"account is {self.account!r}; it must be True or False")
        _choice("recurrence", self.recurrence, tuple(objectives.TWINS))

    def _check_objective(self) -> None:
        """Which objectives go with which solver and scheme."""
        if self.solver == "lm" and self.objective == "squared":
            raise OptionError("objective 'squared' is what lm's damping falls back on; use 'root', or solver='lbfgs'")
        if self.solver == "lbfgs" and self.objective == "root":
            raise OptionError("objective 'root' needs Newton's method; use 'energy' or 'squared', or solver='lm'")
        if isinstance(self.scheme, Variational) and (self.solver, self.objective) not in (
            ("lm", "auto"),
            ("lm", "root"),
        ):
            raise OptionError(
                "variational() has no energy to minimise; use solver='lm' with objective 'auto' or 'root'"
            )
        assert not isinstance(self.scheme, str)
        if self.objective == "energy" and self.scheme.m > 1:
            raise OptionError(
                f"objective 'energy' needs one unknown configuration at a time; {self.scheme.name} has "
                f"{self.scheme.m}: use 'squared', or dirk(p), whose stages have an energy"
            )

    def _check_linear_solver(self) -> None:
        """The tree solve has its own conditions."""
        assert not isinstance(self.scheme, str)
        if self.linear_solver != "tree":
            return
        if self.scheme.m > 1 or isinstance(self.scheme, Variational):
            raise OptionError(
                f"linear_solver 'tree' needs a scheme with one unknown configuration at a time that is tested there, "
                f"radau(1), legendre(2) or dirk(p); got {self.scheme.name}: use 'dense'"
            )
        if self.solver == "lbfgs" or self.recurrence == "serial":
            raise OptionError("linear_solver 'tree' goes with solver='lm' and recurrence='parallel'; use 'dense'")


LARGE = 100  # degrees of freedom from which "auto" takes the tree solve


def _dense(options: Options, model: Model) -> bool:
    """Whether (nv,nv) matrices are formed."""
    if options.linear_solver != "auto":
        return options.linear_solver == "dense"
    assert not isinstance(options.scheme, str)
    fits = options.scheme.m == 1 and not isinstance(options.scheme, Variational)
    return not (fits and options.solver == "lm" and options.recurrence == "parallel" and model.nv >= LARGE)


def _objective(options: Options, model: Model) -> str:
    """The objective that "auto" stands for; an energy needs a potential of every force."""
    bare = [type(f).__name__ for f in model.forces if not hasattr(f, "potential")]
    if options.objective == "energy" and bare:
        raise OptionError(
            f"objective 'energy' needs a potential of every force; {', '.join(bare)} has none: use objective='auto'"
        )
    if options.objective != "auto":
        return options.objective
    if options.solver == "lm":
        return "root"
    assert not isinstance(options.scheme, str)
    return "energy" if options.scheme.m == 1 and not bare else "squared"


def _choice(option: str, value, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, 1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise OptionError(f"{option} is {value!r}; choose one of {', '.join(map(repr, allowed))}.{hint}")
    return value


class Trajectory(NamedTuple):
    """`time` (T,) s, `q` (T,nq), `v` (T,nv) after every step; the initial state is not repeated."""

    time: jax.Array
    q: jax.Array
    v: jax.Array


def make_step(options: Options):
    """One step as a pure function (model, state, control=None) -> (state, info).

    It is not jitted: wrap it in `jax.jit`, `jax.vmap`, `jax.lax.scan` as you like; it compiles once per shape.

    Args:
        options: see Options.

    Returns:
        step: model, State, control (nu,) or None (zeros), to the State at time + dt and a StepInfo. A step that
        fails returns the last good state with its status, and later steps of that state do nothing (FROZEN).

    Raises:
        OptionError, StateError: from the returned function while it is traced, for shapes, dtypes, a state of
            another model, or a tolerance below what the dtype resolves.
    """
    if not isinstance(options, Options):
        raise OptionError(f"make_step takes Options; got {type(options).__name__}: write Options(dt=0.05)")

    def step(model: Model, state: State, control: jax.Array | None = None) -> tuple[State, StepInfo]:
        control = _checked(model, state, control)
        tolerance = _tolerance(options, model.dtype)
        if options.on_failure == "substep":
            return _in_parts(model, options, tolerance, state, control)
        return _attempt(model, options, tolerance, jnp.asarray(options.dt, model.dtype), state, control)

    return step


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


def _checked(model: Model, state: State, control) -> jax.Array:
    """The control as an array; shapes, dtypes and the model's fingerprint are looked at while tracing."""
    if state.fingerprint != model.fingerprint:
        raise StateError(
            f"the state belongs to a model with fingerprint {state.fingerprint}, but this model has "
            f"{model.fingerprint}: make it with make_state(model, q, v)"
        )
    for name, x, size in (("q", state.q, model.nq), ("v", state.v, model.nv)):
        if x.shape != (size,):
            batch = x.ndim > 1 and x.shape[-1] == size
            hint = "it looks like a batch: use jax.vmap or rollout_batch" if batch else "make it with make_state"
            raise StateError(f"state.{name} has shape {x.shape}; wanted ({size},): {hint}")
        if x.dtype != model.dtype:
            raise StateError(
                f"state.{name} is {x.dtype} but the model is {model.dtype}: make_state casts to the model's"
            )
    if control is None:
        return jnp.zeros(model.nu, model.dtype)
    control = jnp.asarray(control)
    if control.shape != (model.nu,):
        names = ", ".join(model.topology.actuator_names[:8]) or "none"
        raise StateError(f"control has shape {control.shape}; wanted ({model.nu},), one for each actuator: {names}")
    return control.astype(model.dtype)


def _attempt(model: Model, options: Options, tolerance: float, dt, state: State, control) -> tuple[State, StepInfo]:
    """One step of length dt: solve, judge, and keep the last good state where it failed."""
    solver = methods.Solver(
        tolerance=tolerance,
        max_iterations=options.max_iterations,
        method=options.solver,
        objective=_objective(options, model),
        twin=options.recurrence,
        dense=_dense(options, model),
        retry=options.on_failure == "substep",
        account=options.account,
    )
    before = _status_before(model, state, control)
    found = methods.step(model, options.scheme, solver, dt, state, control, before)
    status = _continuity(model, dt, state.v, found)
    good = status == Status.CONVERGED
    after = dataclasses.replace(
        state,
        q=jnp.where(good, kin.compose_increment(model, state.q, found.z), state.q),
        v=jnp.where(good, found.v, state.v),
        time=jnp.where(good, state.time + dt, state.time),
        history=jnp.where(good, found.history, state.history),
        has_history=state.has_history | good,
        status=status,
    )
    work = numerical = None
    if options.account:
        work = _exactly(model, state, after, jnp.where(good, found.work, 0.0), control)
        gained = objectives.kinetic_energy(model, after.q, after.v) - objectives.kinetic_energy(model, state.q, state.v)
        numerical = gained - jnp.sum(work)
    info = StepInfo(
        status=status,
        iterations=found.iterations,
        residual=found.residual,
        reached=found.reached,
        damping=found.damping,
        substeps=jnp.ones((), jnp.int32),
        worst=found.worst,
        work=work,
        numerical_work=numerical,
        dofs=_dof_names(model.topology),
        forces=tuple(type(f).__name__ for f in model.forces),
    )
    return after, info


def _exactly(model: Model, before: State, after: State, work: jax.Array, control) -> jax.Array:
    """The work of every force (nforces,): the fall of its potential where it has one, else the quadrature given."""

    def at(state):
        T = kin.transforms(model, state.q)
        return Point(q=state.q, v=state.v, T=T, time=state.time, control=control)

    a, b = at(before), at(after)
    exact = [f.potential(model, a) - f.potential(model, b) if hasattr(f, "potential") else None for f in model.forces]
    return jnp.stack([w if x is None else x for w, x in zip(work, exact)]) if exact else work


@functools.lru_cache(maxsize=256)
def _dof_names(topology: Topology) -> tuple[str, ...]:
    """The joint of every degree of freedom."""
    names = [""] * topology.nv
    for joint in topology.joints:
        names[joint.v : joint.v + joint.nv] = [joint.name] * joint.nv
    return tuple(names)


def _status_before(model: Model, state: State, control: jax.Array) -> jax.Array:
    """RUNNING, or why this step is not to be solved."""
    finite = jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.v)) & ~jnp.any(jnp.isnan(control))
    for leaf in jax.tree.leaves(dataclasses.replace(model, geometry=None)):
        finite &= ~jnp.any(jnp.isnan(leaf))
    status = jnp.where(finite, lm.RUNNING, int(Status.NONFINITE_INPUT))
    return jnp.where(state.status == Status.CONVERGED, status, int(Status.FROZEN)).astype(jnp.int8)


def _continuity(model: Model, dt, v_old, found: methods.Outcome) -> jax.Array:
    """BRANCH where a converged root is not continuous with the start, NONFINITE_EVAL where its rates are not finite."""
    smooth = methods.is_continuous(model, dt, v_old, found.z, found.v)
    status = jnp.where(smooth, found.status, int(Status.BRANCH))
    status = jnp.where(jnp.all(jnp.isfinite(found.v)), status, int(Status.NONFINITE_EVAL))
    return jnp.where(found.status == Status.CONVERGED, status, found.status).astype(jnp.int8)


class _Parts(NamedTuple):
    """A step that is being made in parts; lengths in units of dt/FINEST."""

    state: State
    info: StepInfo
    done: jax.Array  # () int32
    length: jax.Array  # () int32, of the next part
    tries: jax.Array  # () int32


FINEST = 64  # a substep is at least dt/64
MOST_TRIES = 128  # parts of one step, failed ones included


def _in_parts(model: Model, options: Options, tolerance: float, state: State, control) -> tuple[State, StepInfo]:
    """The whole step if it can be solved, else parts of it: halved after a failure, doubled again after a success.

    The first try is the whole step, so an easy step costs what it costs without; compiled once, in one loop.
    A scheme with history starts afresh in the parts, because its nodes must be equidistant.
    """
    dt = jnp.asarray(options.dt, model.dtype)

    def go_on(p: _Parts) -> jax.Array:
        return (p.done < FINEST) & (p.length > 0) & (p.tries < MOST_TRIES)

    def part(p: _Parts) -> _Parts:
        whole = p.length == FINEST
        before = dataclasses.replace(p.state, status=state.status, has_history=p.state.has_history & whole)
        after, info = _attempt(model, options, tolerance, dt * (p.length / FINEST), before, control)
        good = info.status == Status.CONVERGED
        done = jnp.where(good, p.done + p.length, p.done)
        wider = jnp.where(good & (done % (2 * p.length) == 0), 2 * p.length, p.length)
        hopeless = (info.status == Status.FROZEN) | (info.status == Status.NONFINITE_INPUT)
        length = jnp.where(good, wider, jnp.where(hopeless, 0, p.length // 2)).astype(jnp.int32)
        return _Parts(after, _together(p.info, info), done.astype(jnp.int32), length, p.tries + 1)

    none = jax.eval_shape(lambda: _attempt(model, options, tolerance, dt, state, control)[1])
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), none)
    first = _Parts(state, empty, jnp.int32(0), jnp.int32(FINEST), jnp.int32(0))
    last = jax.lax.while_loop(go_on, part, first)
    complete, divided = last.done == FINEST, last.tries > 1
    after = jax.tree.map(lambda a, b: jnp.where(complete, a, b), last.state, state)
    tired = ~complete & (last.info.status == Status.CONVERGED)  # MOST_TRIES
    status = jnp.where(tired, jnp.int8(Status.MAX_ITER), last.info.status)
    after = dataclasses.replace(
        after,
        status=status,
        time=jnp.where(complete, state.time + dt, state.time),
        has_history=jnp.where(complete & divided, False, after.has_history),
    )
    info = dataclasses.replace(
        last.info,
        status=status,
        substeps=jnp.maximum(last.info.substeps, 1),
        reached=jnp.where(divided, last.done / FINEST, last.info.reached).astype(model.dtype),
    )
    return after, info


def _together(done: StepInfo, part: StepInfo) -> StepInfo:
    """The account of all parts so far: the last one's status, sums of iterations, parts and work."""

    def plus(a, b):
        return None if b is None else a + b

    return dataclasses.replace(
        part,
        iterations=done.iterations + part.iterations,
        substeps=done.substeps + jnp.where(part.status == Status.CONVERGED, 1, 0).astype(jnp.int32),
        work=plus(done.work, part.work),
        numerical_work=plus(done.numerical_work, part.numerical_work),
    )


def rollout(
    model: Model,
    state: State,
    controls: Any = None,
    n_steps: int | None = None,
    options: Options | None = None,
    *,
    progress: bool | None = None,
) -> tuple[Trajectory, StepInfo]:
    """Many steps in one compiled `lax.scan`.

    Args:
        model: the model. state: the initial state.
        controls: (T,nu), held over a step each, or None for zeros.
        n_steps: T; may be left out where controls give it. Zero is allowed.
        options: see Options.
        progress: a progress bar on stderr; default None draws one where stderr is a terminal and the rollout
            takes longer than two seconds.

    Returns:
        Trajectory and StepInfo, all with a leading axis (T,).

    Raises:
        StateError: shapes; OptionError: no options, or a bad n_steps.
    """
    if not isinstance(options, Options):
        raise OptionError(f"rollout needs options=Options(dt=...); got {options!r:.60}")
    if controls is None and n_steps is None:
        raise OptionError("rollout needs n_steps, or controls of shape (T, nu)")
    if controls is not None:
        controls = jnp.asarray(controls)
        if controls.ndim != 2 or controls.shape[1] != model.nu:
            raise StateError(f"controls have shape {controls.shape}; wanted (T, {model.nu}) for this model")
        n_steps = controls.shape[0] if n_steps is None else n_steps
    if isinstance(n_steps, bool) or not isinstance(n_steps, numbers.Integral) or n_steps < 0:
        raise OptionError(f"n_steps is {n_steps!r}; it must be an integer ≥ 0")
    if controls is not None and controls.shape[0] < n_steps:
        raise StateError(f"controls cover {controls.shape[0]} steps but n_steps is {n_steps}: give one row a step")
    if controls is not None:
        controls = controls[:n_steps]
    _checked(model, state, None)  # a clear error before compiling
    return _rollout(model, state, controls, int(n_steps), options, bool(report_progress.wanted(progress)))


@functools.partial(jax.jit, static_argnames=("n_steps", "options", "progress"))
def _rollout(model, state, controls, n_steps: int, options: Options, progress: bool):
    step = make_step(options)

    def body(state, inputs):
        i, control = inputs
        state, info = step(model, state, control)
        if progress:
            report_progress(i, n_steps)
        return state, (state.q, state.v, info)

    t0 = state.time
    _, (q, v, info) = jax.lax.scan(body, state, (jnp.arange(n_steps), controls), length=n_steps)
    time = t0 + jnp.asarray(options.dt, model.dtype) * jnp.arange(1, n_steps + 1, dtype=model.dtype)
    return Trajectory(time, q, v), info
