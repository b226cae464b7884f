"""Derivatives of a user's own model and forces, against differences of their own rollout, as a readable report."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.analysis import finite_differences, force_jacobians
from pbad_jax.analysis.force_jacobians import JacobianRow
from pbad_jax.checks import integer
from pbad_jax.errors import GradientError, Status
from pbad_jax.kinematics import manifold
from pbad_jax.math import loops
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State, led_to, make_state
from pbad_jax.rollouts.inputs import checked_rollout
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, check_options, scheme_of
from pbad_jax.step.step import make_step

TOLERANCE = {"float64": 1e-6, "float32": 5e-2}
SOLVED = 1e-14  # tolerance of the solves in float64: below what differences see

compiled = functools.partial(  # in half the time, which is what a check costs
    jax.jit, static_argnames="options", compiler_options={"xla_backend_optimization_level": 0}
)


@dataclasses.dataclass(frozen=True)
class GradientRow:
    """The end of a rollout, (q, v), along a random change of one array that it depends on.

    forward: by jax.jvp. reverse: by jax.grad. difference: of the rollout. All three are projected on one random vector;
    `error` is that of the whole, relative: forward against difference or against reverse, whichever is worse.
    """

    name: str
    forward: float
    reverse: float
    difference: float
    error: float
    ok: bool


@dataclasses.dataclass(frozen=True)
class GradientReport:
    """What `check_gradients` found. `print` it, or call `assert_ok()`.

    Attributes:
        rows: one for every array of the model and its forces, and for q, v, time, controls and dt.
        slopes: one for every force and kind of argument (positions, velocities, q, v) that it answers to.
        info: how the steps ended; the derivative of a failed or divided step is not that of the motion.
        tolerance: of the relative errors. title: what was rolled out.

    Example:
        >>> report = pbad.check_gradients(arm, options=pbad.Options(0.05), n_steps=1)
        >>> report.ok
        True
        >>> report.assert_ok()
    """

    rows: tuple[GradientRow, ...]
    slopes: tuple[JacobianRow, ...]
    info: StepInfo
    tolerance: float
    title: str

    @property
    def steps_ok(self) -> bool:
        """Whether every step converged and has a derivative."""
        return bool(np.all(self.info.status == Status.CONVERGED) and np.all(np.asarray(self.info.grad_ok)))

    @property
    def ok(self) -> bool:
        """Whether all of it agrees."""
        return self.steps_ok and all(row.ok for row in (*self.rows, *self.slopes))

    @property
    def suspects(self) -> tuple[str, ...]:
        """The forces whose slopes are wrong: what to correct first."""
        return tuple(dict.fromkeys(row.name for row in self.slopes if not row.ok))

    def assert_ok(self) -> None:
        """Raise the whole report where something is wrong.

        Raises:
            GradientError: naming the forces and arrays.
        """
        if not self.ok:
            raise GradientError(str(self))

    def __str__(self) -> str:
        lines = [
            f"{'OK' if self.ok else 'WRONG'}: {self.title}, relative tolerance {self.tolerance:g}",
            *self._advice(),
        ]
        if self.slopes:
            lines += ["", _line("slopes of forces by", "declared", "autodiff", "difference", "error", "")]
            for s in self.slopes:
                verdict = "" if s.ok else "WRONG " + ("slope" if not s.declared_ok else "autodiff")
                lines.append(_line(f"{s.name} by {s.by}", s.declared, s.autodiff, s.difference, s.error, verdict))
        lines += ["", _line("rollout by", "forward", "reverse", "difference", "error", "")]
        felt = [r for r in self.rows if r.forward or r.reverse or r.difference or not r.ok]
        for r in felt:
            lines.append(_line(r.name, r.forward, r.reverse, r.difference, r.error, "" if r.ok else "WRONG"))
        rest = [r.name for r in self.rows if r not in felt]
        return "\n".join([*lines, *(["", "No influence: " + ", ".join(rest)] if rest else [])])

    def _advice(self) -> list[str]:
        """A line for everything that went wrong, the causes first."""
        # a step that was not solved has no derivative to compare
        out = []
        if not self.steps_ok:
            out.append(f"Not every step was solved whole, so its derivative is not that of the motion: {self.info!r}")

        # forces whose slopes are wrong as declared, or by autodiff
        declared = dict.fromkeys(s.name for s in self.slopes if not s.declared_ok)
        hidden = dict.fromkeys(s.name for s in self.slopes if s.declared_ok and not s.autodiff_ok)
        if declared:
            out.append(
                f"{', '.join(declared)}: the slopes in the Load (df_dP, df_dV, dtau_dq, dtau_dv; a field has none) are "
                "not those of the force. Newton's matrix needs them, and so does every derivative below. Correct them, "
                "or let pbad.forces.point_forces differentiate the law."
            )
        if hidden:
            out.append(
                f"{', '.join(hidden)}: autodiff of `load` is not its derivative: look for stop_gradient, custom "
                "derivatives, rounding or integers in it."
            )

        # wrong without such a cause: where to look
        wrong = [r.name for r in self.rows if not r.ok]
        if wrong and not out:
            out.append(
                "Look first for stop_gradient and custom derivatives in how a force uses these. A one-sided law whose "
                "corner the motion meets, or chaos, also makes differences of a long rollout useless: try n_steps=1."
            )
        return out


def _line(name: str, *figures) -> str:
    *numbers, error, verdict = figures
    shown = "".join(f"{x:>14.6g}" if isinstance(x, float) else f"{x:>14}" for x in numbers)
    last = f"{error:>10.1e}" if isinstance(error, float) else f"{error:>10}"
    return f"{name:<42}{shown}{last}  {verdict}".rstrip()


def check_gradients(
    model: Model,
    state: State | None = None,
    controls=None,
    *,
    options: Options,
    n_steps: int = 3,
    seed: int = 0,
    tolerance: float | None = None,
) -> GradientReport:
    """Derivatives of a rollout of your model with your forces, forward and reverse, against differences of it.

    By a random direction in every array of the model and its forces, in q (tangent), v, time, controls and dt; and,
    of every force, the slopes that it declares, which are what Newton's matrix is made of. Differences are of fourth
    order, of several widths, the best of which counts. The steps are solved by Levenberg–Marquardt to 1e-14, whatever
    the options say: the root and its derivatives are the same, differences see further.

    In float32 differences resolve about two digits: the default tolerance is 5e-2, which finds a wrong derivative but
    no inaccurate one. Check in float64.

    Args:
        model: the model with its forces.
        state: where the rollout starts; default a random one near `model.q0`, moving. Contacts are judged only if they
            touch.
        controls: (n_steps,nu); default random.
        options: see Options.
        n_steps: steps of the rollout, unless `controls` say.
        seed: of the random directions, state and controls.
        tolerance: of relative errors; default 1e-6 in float64, 5e-2 in float32.

    Returns:
        GradientReport; its `assert_ok()` is for tests. Nothing is raised for a wrong derivative.

    Raises:
        OptionError: no options, or n_steps < 1. StateError: a state or controls that do not fit.

    Example:
        >>> report = pbad.check_gradients(arm, options=pbad.Options(0.05), n_steps=1)
        >>> report.ok
        True
    """
    # what is asked for, and a random start and random controls where none are given
    check_model(model)
    check_options(options, "check_gradients")
    n_steps = integer(n_steps, "n_steps", 1)
    precision = jnp.dtype(model.dtype).name
    tolerance = TOLERANCE[precision] if tolerance is None else float(tolerance)
    rng = np.random.default_rng(seed)
    start = _random_state(model, rng) if state is None else state
    if controls is None:
        controls = 0.3 * rng.normal(size=(n_steps, model.nu))
    controls = jnp.asarray(checked_rollout(model, start, controls, None)[0], model.dtype)

    # solved as far as the precision goes, or differences would see the tolerance
    how = dataclasses.replace(
        options, solver="lm", objective="auto", tolerance=None if precision == "float32" else SOLVED
    )

    # all that the end depends on; configurations vary in their tangent space, from zero
    arguments = {
        "model": model,
        "q": jnp.zeros(model.nv, model.dtype),
        "v": start.v,
        "time": start.time,
        "controls": controls,
        "dt": jnp.asarray(options.dt, model.dtype),
    }
    if bool(start.has_history):
        arguments["history"] = jnp.zeros(model.nv, model.dtype)
    if start.activation is not None:
        arguments["activation"] = start.activation

    # derivatives of the rollout
    rows, info, ends = _rollout_rows(how, arguments, start, seed, tolerance)

    # slopes of the forces, at its start and at the end of its last step
    instants = [
        force_jacobians.instant(model, before, after, control, options.dt)
        for before, after, control in ((start, start, controls[0]), (*ends, controls[-1]))
    ]
    slopes = force_jacobians.check(model, instants, seed, tolerance)

    # the report, with what was checked as its title
    by = scheme_of(options).name
    title = f"{len(controls)} steps of {options.dt:g} s of {model.topology.name!r} by {by}, {precision}"
    return GradientReport(tuple(rows), tuple(slopes), info, tolerance, title)


def _random_state(model: Model, rng) -> State:
    delta = jnp.asarray(0.2 * rng.normal(size=model.nv), model.dtype)
    return make_state(model, manifold.retract(model, model.q0, delta), 0.5 * rng.normal(size=model.nv))


def _rollout_rows(options: Options, arguments, start: State, seed: int, tolerance: float):
    """The rows, the StepInfo of the steps, and the states at both ends of the last."""
    # the end at the arrays as they are, and the gradient of one random projection w of it
    x = finite_differences.named_arrays(arguments)
    zero = {name: jnp.zeros_like(a) for name, a in x.items()}
    end, _, info, ends = _push(options, arguments, start, x, zero)
    w = jnp.asarray(np.random.default_rng([seed, 1]).normal(size=end.shape), end.dtype)
    gradient = _pull(options, arguments, start, x, w)
    weights, floor = np.asarray(w, float), finite_differences.noise_floor(end)

    # the end as a function of the arrays, by the program that is compiled already
    def value(x):
        return _push(options, arguments, start, x, zero)[0]

    rows = []
    for name, d in finite_differences.directions(x, seed).items():
        # forward mode along one array, against the closest of the differences
        move = zero | {name: d}
        along = np.asarray(_push(options, arguments, start, x, move)[1], float)
        found = finite_differences.of_all_step_sizes(value, x, move)
        by_difference, error = finite_differences.closest(found, along, floor, enough=0.1 * tolerance)

        # and against reverse mode, both projected: w · (J d) = (Jᵀ w) · d
        forward, reverse = (
            float(weights @ along),
            float(np.sum(np.asarray(gradient[name], float) * np.asarray(d, float))),
        )
        size = float(np.abs(weights) @ np.abs(along)) + floor
        twin = 0.0 if forward == reverse else abs(forward - reverse) / size if size > 0 else float("inf")
        worst = max(error, twin) if np.isfinite(twin) else float("inf")
        rows.append(GradientRow(name, forward, reverse, float(weights @ by_difference), worst, worst <= tolerance))
    return rows, info, ends


@compiled
def _push(options: Options, arguments, start: State, x: dict, d: dict):
    """(q, v) at the end, its change along d, the StepInfo of all steps, and the states at both ends of the last."""
    end, along, (info, ends) = jax.jvp(lambda x: _end(options, arguments, start, x), (x,), (d,), has_aux=True)
    return end, along, info, ends


@compiled
def _pull(options: Options, arguments, start: State, x: dict, w: jax.Array) -> dict:
    """The gradient of w · (q, v) at the end."""
    return jax.grad(lambda x: w @ _end(options, arguments, start, x)[0])(x)


def _end(options: Options, arguments, start: State, x: dict):
    """(q, v) (nq + nv,) at the end of the rollout of these arguments with the arrays x."""
    a = finite_differences.replaced(arguments, x)
    model, step = a["model"], make_step(options)
    state = dataclasses.replace(led_to(start, manifold.retract(model, start.q, a["q"]), a["v"]), time=a["time"])
    if "history" in a:
        state = dataclasses.replace(state, history=manifold.retract(model, start.history, a["history"]))
    if "activation" in a:
        state = dataclasses.replace(state, activation=a["activation"])

    def body(carry, control):
        state, _ = carry
        after, info = step(model, state, control, a["dt"])
        return (after, state), info

    (last, before), info = loops.scan(body, (state, state), a["controls"])
    return jnp.concatenate([last.q, last.v]), (info, (before, last))
