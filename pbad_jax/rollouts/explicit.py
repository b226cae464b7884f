"""Explicit steps on Newton–Euler dynamics: what the position-based ones are compared with."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.checks import given_step_size, is_step_size, one_of, step_size
from pbad_jax.dynamics.newton_euler import ALGORITHMS, acceleration
from pbad_jax.errors import OptionError, Status
from pbad_jax.kinematics import manifold
from pbad_jax.kinematics.tree import change_balls, tree
from pbad_jax.math import loops, rotations
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.small import matvec
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, activated, checked, later
from pbad_jax.rollouts.inputs import checked_rollout
from pbad_jax.rollouts.trajectory import Trajectory, row_of, trajectory_of
from pbad_jax.stage.result import none_solved
from pbad_jax.step.info import StepInfo, reported


class Tableau(NamedTuple):
    """An explicit Runge–Kutta method: rows of A below the diagonal, and the weights b."""

    A: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]


METHODS: dict[str, Tableau | None] = {
    "forward_euler": Tableau(((),), (1.0,)),
    "semi_implicit_euler": None,  # the velocity first, then the position with the new velocity
    "rk2": Tableau(((), (1 / 2,)), (0.0, 1.0)),  # the midpoint rule
    "rk3": Tableau(((), (1 / 2,), (-1.0, 2.0)), (1 / 6, 2 / 3, 1 / 6)),  # Kutta
    "rk4": Tableau(((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}


def make_step(dt: float, method: str = "rk4", *, algorithm: str = "auto"):
    """One explicit step as a pure function (model, state, control=None, dt=None) -> (state, info).

    It can be jitted, batched, scanned and differentiated as `pbad.make_step`'s. Balls turn in exponential coordinates
    about the start of the step (Runge–Kutta–Munthe-Kaas), which keeps the order. Forces that act once a step there
    (contact, limits) act here at every evaluation, as what they are at that instant.

    Args:
        dt: s.
        method: "forward_euler", "semi_implicit_euler", "rk2", "rk3", "rk4".
        algorithm: see `acceleration`.

    Returns:
        step: as `pbad.make_step`'s; StepInfo.status is CONVERGED, or, where what comes of the step is not finite,
        NONFINITE_EVAL, and the state stays the last good one (FROZEN from then on). Unlike the library's own steps a
        failed one may pass NaN to a gradient; `grad_ok` says where.

    Raises:
        OptionError: dt, method, algorithm. The step: StateError, as `pbad.make_step`'s.

    Example:
        >>> step = newton_euler.make_step(0.001, "rk4")
        >>> after, info = step(arm, pbad.make_state(arm, [1.0, 0.0]))
        >>> float(after.time)
        0.001
    """
    # dt and names are checked here, what a step is given when it is traced
    default, tableau = step_size(dt), METHODS[one_of(method, tuple(METHODS), "method", OptionError)]
    one_of(algorithm, ALGORITHMS, "algorithm", OptionError)

    @with_all_bits
    def step(model: Model, state: State, control: jax.Array | None = None, dt=None) -> tuple[State, StepInfo]:
        control = checked(model, state, control)
        h = given_step_size(dt, default, model.dtype)

        # activations act by their mean over the step
        law, a = model.activation, state.activation
        mean = {} if law is None or a is None else {"activation": law.mean(a, control, h)}

        def rate(q, v, time):
            here = dataclasses.replace(state, q=q, v=v, time=time, **mean)
            return acceleration(model, here, control, algorithm=algorithm)

        # the velocity first and the position with it, or the stages of a Runge–Kutta method
        if tableau is None:
            v = state.v + h * rate(state.q, state.v, state.time)
            q = manifold.retract(model, state.q, h * v)
        else:
            q, v = _runge_kutta(model, tableau, rate, state, h)
        return _ended(model, state, q, v, h, activated(model, state, control, h))

    return step


def _runge_kutta(model: Model, tableau: Tableau, rate, state: State, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(q, v) after a step; k_i = (rate of the increment, acceleration) of stage i."""
    k: list[tuple[jax.Array, jax.Array]] = []

    def moved(weights) -> tuple[jax.Array, jax.Array]:
        """The sum h Σ w_j k_j; zeros for no weights."""
        zero = jnp.zeros_like(state.v)
        used = [(w, kj) for w, kj in zip(weights, k) if w]
        return h * sum((w * kj[0] for w, kj in used), zero), h * sum((w * kj[1] for w, kj in used), zero)

    for row in tableau.A:
        delta, dv = moved(row)
        q, v = manifold.retract(model, state.q, delta), state.v + dv
        k.append((_increment_rate(model, delta, v), rate(q, v, state.time + sum(row) * h)))
    delta, dv = moved(tableau.b)
    return manifold.retract(model, state.q, delta), state.v + dv


def _increment_rate(model: Model, delta: jax.Array, v: jax.Array) -> jax.Array:
    """δ̇ of q(t) = q ⊕ δ(t) where the joints move with v: v itself but for balls."""
    balls = tree(model.topology).ball_v
    return change_balls(model, v, lambda w: matvec(rotations.right_jacobian_inverse(delta[balls]), w))


def _ended(model: Model, state: State, q: jax.Array, v: jax.Array, h: jax.Array, kept: dict) -> tuple[State, StepInfo]:
    """The state after a step, or the one before it, and how it went."""
    # how it went: over before it, not finite to begin with, or not finite at its end
    frozen = state.status != Status.CONVERGED
    begun = jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.v)) & is_step_size(h)
    well = begun & jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v))
    failed = jnp.where(begun, int(Status.NONFINITE_EVAL), int(Status.NONFINITE_INPUT))
    status = jnp.where(frozen, int(Status.FROZEN), jnp.where(well, int(Status.CONVERGED), failed)).astype(jnp.int8)

    # the new state, or the last good one
    ok = status == Status.CONVERGED
    worst = jnp.argmax(~jnp.isfinite(v)).astype(jnp.int32) if model.nv else jnp.zeros((), jnp.int32)
    q, v = jnp.where(ok, q, state.q), jnp.where(ok, v, state.v)
    clock = later(state, jnp.where(ok, h, 0.0))
    kept = {name: jnp.where(ok, x, getattr(state, name)) for name, x in kept.items()}
    after = dataclasses.replace(
        state, q=q, v=v, **clock, **kept, status=status, history=q, has_history=jnp.zeros_like(ok)
    )

    # an explicit step has nothing to iterate, and keeps no account of work
    figures = none_solved(model.dtype)
    figures = figures._replace(reached=ok.astype(model.dtype), worst=worst, error=jnp.full_like(figures.error, jnp.nan))
    one = jnp.ones((), jnp.int32)
    return after, StepInfo(status=status, substeps=one, grad_ok=ok, **reported(model, figures, condition=False))


def rollout(
    model: Model, state: State, controls=None, n_steps: int | None = None, *, dt: float, method: str = "rk4"
) -> tuple[Trajectory, StepInfo]:
    """Many explicit steps in one compiled `lax.scan`; arguments and results as those of `pbad.rollout`.

    Raises:
        StateError: shapes. OptionError: n_steps, dt, method.

    Example:
        >>> traj, info = newton_euler.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=10, dt=0.001)
        >>> traj.q.shape
        (10, 2)
    """
    controls, n_steps = checked_rollout(model, state, controls, n_steps)
    make_step(dt, method)  # a clear error before compiling
    return _rollout(model, state, controls, jnp.asarray(dt, model.dtype), n_steps, method)


@functools.partial(jax.jit, static_argnames=("n_steps", "method"))
def _rollout(model: Model, state: State, controls, dt: jax.Array, n_steps: int, method: str):
    step = make_step(1.0, method)

    def body(state, control):
        state, info = step(model, state, control, dt)
        return state, (row_of(state, False), info)

    _, (row, info) = loops.scan(body, state, controls, length=n_steps)
    return trajectory_of(state, dt, row, info.status, 0, n_steps), info
