"""Steps and rollouts: joins the stage equation, the solver and the honest status."""

import dataclasses
import difflib
import functools
import math
import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax import continuation, objectives
from pbad_jax import kinematics as kin
from pbad_jax import levenberg_marquardt as lm
from pbad_jax.errors import OptionError, StateError, Status
from pbad_jax.model import Model, State
from pbad_jax.progress import report_progress
from pbad_jax.schemes import NAMES, Scheme, extrapolation, radau

LONGEST_TURN = 1.5  # rad that one Newton correction may turn a joint
DEFAULT_TOLERANCE = {"float64": 1e-11, "float32": 2e-6}


@dataclasses.dataclass(frozen=True)
class Options:
    """How to step. Hashable, so static under jit; checked when made.

    Attributes:
        dt: step, s.
        scheme: a table of schemes.py, e.g. radau(2), or its name "radau2".
        tolerance: of the residual, which estimates the position error of the solve as a fraction of the model's
            size. Default 1e-11 in float64, 2e-6 in float32.
        max_iterations: Levenberg–Marquardt iterations a step may take, all attempts of its continuation together.
        solver: "lm".
        on_failure: "freeze": a failed step keeps the last good state, and later steps of the lane do nothing.
        linear_solver: "auto" or "dense": LU of the Newton matrix.
        recurrence: "parallel" (O(log N) deep, the default) or "serial" (the paper's Algorithms 1-3).

    Raises:
        OptionError: naming the option, the value and what is allowed.
    """

    dt: float
    scheme: Scheme | str = dataclasses.field(default_factory=radau)
    tolerance: float | None = None
    max_iterations: int = 400
    solver: str = "lm"
    on_failure: str = "freeze"
    linear_solver: str = "auto"
    recurrence: str = "parallel"

    def __post_init__(self):
        if isinstance(self.dt, bool) or not isinstance(self.dt, numbers.Real):
            raise OptionError(f"dt is {self.dt!r} ({type(self.dt).__name__}); it must be one number, s")
        if not (math.isfinite(self.dt) and self.dt > 0):
            raise OptionError(f"dt is {self.dt}; it must be positive and finite, s")
        object.__setattr__(self, "dt", float(self.dt))
        if isinstance(self.scheme, str):
            object.__setattr__(self, "scheme", NAMES[_choice("scheme", self.scheme, tuple(NAMES))]())
        if not isinstance(self.scheme, Scheme):
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
        _choice("solver", self.solver, ("lm",))
        _choice("on_failure", self.on_failure, ("freeze",))
        _choice("linear_solver", self.linear_solver, ("auto", "dense"))
        _choice("recurrence", self.recurrence, tuple(objectives.TWINS))


def _choice(option: str, value, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        near = difflib.get_close_matches(str(value), allowed, 1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise OptionError(f"{option} is {value!r}; choose one of {', '.join(map(repr, allowed))}.{hint}")
    return value


class StepInfo(NamedTuple):
    """How a step ended; in a rollout every field has a leading axis of steps.

    `status` int8, a `Status`; `iterations` int32; `residual`, the estimated position error as a fraction of the
    model's size; `reached`, the fraction of dt up to which the equations could be solved (1 where it converged).
    """

    status: jax.Array
    iterations: jax.Array
    residual: jax.Array
    reached: jax.Array


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
        return _step(model, options, _tolerance(options, model.dtype), state, control)

    return step


def _tolerance(options: Options, dtype) -> float:
    """The tolerance for this dtype."""
    if options.tolerance is None:
        return DEFAULT_TOLERANCE[jnp.dtype(dtype).name]
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


def _step(model: Model, options: Options, tolerance: float, state: State, control) -> tuple[State, StepInfo]:
    scheme, twin = options.scheme, options.recurrence
    assert isinstance(scheme, Scheme)
    dt = jnp.asarray(options.dt, model.dtype)
    start = objectives.start(model, scheme, dt, state, control, twin=twin)

    def evaluate(z, h):
        return objectives.residual_and_matrix(model, scheme, start._replace(dt=h * dt), z, twin=twin)

    def retract(z, delta):
        return jax.vmap(lambda z_j, d: kin.retract(model, z_j, d))(z, delta.reshape(scheme.m, -1))

    def guess(z, h_done, h):
        """The first attempt goes on with v_k; later ones extrapolate the stages that are solved."""
        nodes = jnp.asarray(scheme.nodes, model.dtype)
        delta = nodes[:, None] * (h * dt * state.v)
        if z is not None:
            identity = kin.identity_increment(model)
            done = jax.vmap(lambda z_j: kin.difference(model, identity, z_j))(z)
            weights = extrapolation(scheme, h / jnp.where(h_done > 0, h_done, 1.0))
            delta = jnp.where(h_done > 0, weights @ done, delta)
        delta = jnp.where(before == lm.RUNNING, delta, 0.0)
        return jax.vmap(lambda d: kin.retract(model, kin.identity_increment(model), d))(delta)

    longest = jnp.where(kin.tree(model.topology).dof_slide, jnp.inf, LONGEST_TURN).astype(model.dtype)
    scale = objectives.residual_scale(model)
    before = _status_before(model, state, control)
    family = continuation.Family(evaluate, retract, guess, start.metric, not scheme.has_history, longest)
    settings = lm.Settings(tolerance * scale, options.max_iterations)
    found = continuation.solve(family, settings, status=before)

    v = objectives.end_velocity(model, scheme, start, found.attempt.x, twin=twin)
    status = _continuity(model, dt, state.v, v, found)
    return _commit(model, scheme, state, dt, found, v, status, scale)


def _status_before(model: Model, state: State, control: jax.Array) -> jax.Array:
    """RUNNING, or why this step is not to be solved."""
    finite = jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.v)) & ~jnp.any(jnp.isnan(control))
    for leaf in jax.tree.leaves(dataclasses.replace(model, geometry=None)):
        finite &= ~jnp.any(jnp.isnan(leaf))
    status = jnp.where(finite, lm.RUNNING, int(Status.NONFINITE_INPUT))
    return jnp.where(state.status == Status.CONVERGED, status, int(Status.FROZEN)).astype(jnp.int8)


def _continuity(model: Model, dt, v_old, v_new, found: continuation.State) -> jax.Array:
    """BRANCH where a converged root has turned a hinge further than its rates before and after can explain.

    A hinge may turn by the mean of both rates, plus half of each, plus half a turn; a slide is not asked, because
    positions are not periodic and a far root would have a large residual energy.
    """
    t = kin.tree(model.topology)
    hinge = t.scalar_q[t.hinge[_links_of(t)]]
    dofs = t.scalar_v[t.hinge[_links_of(t)]]
    turned = found.attempt.x[-1][hinge]
    mean = 0.5 * dt * (v_old[dofs] + v_new[dofs])
    slack = 0.5 * dt * (jnp.abs(v_old[dofs]) + jnp.abs(v_new[dofs])) + jnp.pi
    jumped = jnp.any(jnp.abs(turned - mean) > slack)
    broken = ~jnp.all(jnp.isfinite(v_new))
    status = jnp.where(jumped, int(Status.BRANCH), found.status)
    status = jnp.where(broken, int(Status.NONFINITE_EVAL), status)
    return jnp.where(found.status == Status.CONVERGED, status, found.status).astype(jnp.int8)


def _links_of(t: kin.Tree):
    """The links of the hinges and slides, in the order of `scalar_q`."""
    return (t.hinge | t.slide).nonzero()[0]


def _commit(model, scheme, state: State, dt, found: continuation.State, v, status, scale) -> tuple[State, StepInfo]:
    """The next state: the new one where the step converged, else the last good one with its status."""
    good = status == Status.CONVERGED
    q = kin.compose_increment(model, state.q, found.attempt.x[-1])
    state = dataclasses.replace(
        state,
        q=jnp.where(good, q, state.q),
        v=jnp.where(good, v, state.v),
        time=jnp.where(good, state.time + dt, state.time),
        history=jnp.where(good, state.q, state.history),
        has_history=state.has_history | good,
        status=status,
    )
    return state, StepInfo(status, found.iterations, found.attempt.norm / scale, found.h_done)


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
