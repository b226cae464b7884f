"""Forces that act once a step, for the schemes whose stages are not solved together: dirk and variational.

A step of radau(2), or where no matrices are wanted of radau(1), with all forces finds the force at the end of the step;
its impulse then changes V_k, and the scheme goes on without it. The end that radau finds is not quite the scheme's, so
that here, unlike with radau, the force belongs to a configuration nearby: to O(dt³) or O(dt²).
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.dynamics.instant import generalised_force
from pbad_jax.errors import Status
from pbad_jax.kinematics import joint_field, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.laws.force import acting, total_load
from pbad_jax.laws.soft_end import has_inertia
from pbad_jax.math.small import matmul
from pbad_jax.model.model import Model
from pbad_jax.schemes import radau
from pbad_jax.stage import equation, predictor
from pbad_jax.stage.fields import stages
from pbad_jax.stage.problem import SolverConfig, StageProblem, solve
from pbad_jax.stage.start import StepStart, first_instant
from pbad_jax.stage.work import counted, impulse_work


class Impulse(NamedTuple):
    """What the impulse changes at time k, and how it was found."""

    rates: tuple[jax.Array, Field] | None  # v_k (nv,) and V_k after it; None where there is none
    status: jax.Array
    iterations: jax.Array
    work: jax.Array  # (nforces,) J, of those that are `counted`
    root: Any  # () where nothing was solved


def after(start: StepStart, kick: Impulse) -> StepStart:
    """Time k after the impulse."""
    return start if kick.rates is None else dataclasses.replace(start, v=kick.rates[0], V=kick.rates[1])


def apply_impulses(model: Model, config: SolverConfig, dt, start: StepStart, status, known: Any = None) -> Impulse:
    """V_k changed by the forces that act once a step; nothing where there are none."""
    if not acting(model, "step"):
        none = jnp.zeros(len(model.forces), start.q.dtype)
        return Impulse(None, jnp.asarray(status, jnp.int8), jnp.zeros((), jnp.int32), none, ())
    # the equation of a step in which what acts once a step acts whole (kick = 1)
    scheme = radau(1) if config.recurrence == "sweeps" else radau(2)
    eq = equation.collocation(model, scheme, dt, start, None)
    told = None if scheme.m == 1 else rates_without_others(model, start, 0.5 * dt)  # which move it ½ dt² a, F dt² F
    start = dataclasses.replace(start, kick=1.0, told=told)
    # solve it; of the root only the force at its end is used
    newton, direction = config._replace(method="lm", objective="root"), predictor.straight(eq.nodes, dt, start.v)
    found, z = solve(StageProblem(model, start, eq, direction, newton, scheme.C), status, known)
    st = stages(model, start, z)
    load = equation.end_load(model, start, eq.nodes[-1], st, dt)
    force = generalised_force(model, start.frames, load, recurrence=config.recurrence)
    v = start.v + dt * operator.solve(model, start.mass, force)
    work = impulse_work(model, start, eq, st, counted(model, start, config.account))
    # the step begins with this velocity
    V = Field(transforms.velocity_field(model, start.frames, v), joint_field.rate(model, v))
    solved = found.status == Status.CONVERGED
    status = jnp.where(solved, jnp.asarray(status, jnp.int8), found.status)
    return Impulse((v, V), status, found.iterations, work, found.attempt.x)


def rates_without_others(model: Model, start: StepStart, dt) -> tuple[jax.Array, jax.Array] | None:
    """v_k (nv,), V_k less what the forces at the stages give in dt, for ends whose inertia feels all accelerations.

    None where there are no such ends.
    """
    if not any(map(has_inertia, acting(model, "step"))):
        return None
    load = total_load(model, first_instant(model, start, dt), "stages")
    inertial = matmul(transforms.centripetal_field(model, start.frames, start.v), model.second_moment)
    force = generalised_force(model, start.frames, load, inertial, recurrence=start.recurrence)
    v = start.v - dt * operator.solve(model, start.mass, force)
    return v, transforms.velocity_field(model, start.frames, v)
