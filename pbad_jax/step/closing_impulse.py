"""The second half of what acts once a step: the impulse at its end, after which the velocities are told.

Of the impulse dt F of radau(2) and radau(3) half is given at the start of the step, where it decides how far the bodies
get, and half at its end, where it decides how fast they are then, as RATTLE does with constraints (Andersen 1983) and
nonsmooth schemes do with contact (Brüls, Acary, Cardona 2014). Both obey the same law, the second with the velocities
v⁺ that it leads to, one step further:

    M (v⁺ − v⁻) = ½ dt F(q ⊕ dt v⁺, v⁺),

M and the levers of F those at the end of the step: what radau(1) would make of these forces alone. So what lies still
has v = 0, and not −½ g dt; an impact is plastic; a connection's velocities obey it; and nothing here adds energy that
the law does not store. Where no such force acts v⁺ = v⁻ is a root at once.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.dynamics import point_forces
from pbad_jax.dynamics.instant import generalised_force
from pbad_jax.errors import Status
from pbad_jax.forces.force import Load, acting, acts_at, field_beyond
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Slopes
from pbad_jax.kinematics.tree import tree
from pbad_jax.model.model import Model
from pbad_jax.schemes import Scheme, radau
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation
from pbad_jax.stage.equation import StageEquation, StageFields, StepStart
from pbad_jax.stage.guide import StageGuide
from pbad_jax.stage.matrix import weighted
from pbad_jax.stage.problem import StageProblem, residual_scale, solve
from pbad_jax.stage.result import StepResult
from pbad_jax.stage.work import power

HALF = 0.5


def is_closed_by_one(model: Model, scheme: Scheme) -> bool:
    """Whether the scheme gives half of its impulse at the end: radau(1) acts there in any case."""
    return scheme.m > 1 and not scheme.has_history and bool(acting(model, "step"))


def after_closing_impulse(problem: StageProblem, found: StepResult) -> StepResult:
    """What was found of a step, with the velocities after the second half of its impulse."""
    model, eq = problem.model, problem.eq
    good = found.status == Status.CONVERGED
    q = manifold.compose_increment(model, problem.start.q, found.z)
    before = dataclasses.replace(problem.start, q=q, v=found.v, time=problem.start.time + eq.dt)
    start = equation.step_start(model, before, problem.start.control, problem.start.recurrence)
    closing = _problem(problem, start, eq.dt)
    ended, z = solve(closing, jnp.where(good, jnp.int8(lm.RUNNING), found.status))
    v = manifold.difference(model, manifold.identity_increment(model), z[0]) / eq.dt
    work = found.work
    if problem.config.account:
        same = dataclasses.replace(closing, model=model)  # all forces, for their places
        work = work + HALF * eq.dt * _power(same, equation.stages(model, start, z), 0.5 * (start.v + v))
    residual = jnp.maximum(found.residual, ended.attempt.norm / residual_scale(model))
    return found._replace(
        v=jnp.where(good, v, found.v),
        status=jnp.where(good, ended.status, found.status),
        iterations=found.iterations + ended.iterations,
        residual=jnp.where(good, residual, found.residual),
        work=work,
    )


def _problem(problem: StageProblem, start: StepStart, dt) -> StageProblem:
    """v⁺ as the increment dt v⁺, from the forces that act once a step alone."""
    model = problem.model
    once = dataclasses.replace(model, forces=tuple(f for f in model.forces if acts_at(f) == "step"))
    eq = equation.collocation(once, radau(1), dt, start, None)
    newton = problem.config._replace(method="lm", objective="root", condition=False)
    return StageProblem(
        once, start, eq, dt * start.v[None], newton, evaluate=_evaluate, matrix_of=_matrix, modelled_of=_modelled
    )


class ClosingTerms(NamedTuple):
    """What its residual and its matrix are made of: the forces' Load one step further, times half (h dt)²."""

    z: jax.Array  # (1,nq)
    frames: transforms.Frames  # there, leading axis 1
    load: Load
    duals: tuple


def _evaluate(model: Model, start: StepStart, eq: StageEquation, z: jax.Array, h: Any, guide: StageGuide | None):
    """h dt (M (v⁺ − v⁻) − ½ h dt F) (nv,), F at the levers of the step's end, and the ClosingTerms."""
    dt, st = h * eq.dt, equation.stages(model, start, z)
    load = equation.end_load(model, start, eq, st, dt, guide)
    force = generalised_force(model, start.frames, load, recurrence=start.recurrence)
    gained = manifold.difference(model, manifold.identity_increment(model), z[0]) - dt * start.v
    terms = ClosingTerms(z, st.frames, equation.scaled(load, dt), load.dual)
    return start.mass @ gained - HALF * dt**2 * force, terms


def _matrix(model: Model, start: StepStart, eq: StageEquation, t: ClosingTerms) -> jax.Array:
    """M − ½ dt² ∂F/∂δ, all by z ⊕ δ."""
    del eq
    balls = joint_field.log_slopes(model, t.z[0])[None, None] if len(tree(model.topology).balls) else None
    by_z = Slopes(jnp.ones((1, 1), t.z.dtype), balls)
    there = jax.tree.map(lambda x: x[0], t.frames)
    parts = list(t.load.point_forces)
    force = point_forces.total_matrix(model, start.frames, there, parts, weighted(t.load, 1.0))
    by_v = start.mass
    if t.load.dtau_dq is not None:
        force = force + joint_field.as_matrix(t.load.dtau_dq)
    if t.load.dtau_dv is not None:
        by_v = by_v - HALF * joint_field.as_matrix(t.load.dtau_dv)
    return joint_field.chained(model, by_v[None], by_z)[0, 0] - HALF * force


def _modelled(model: Model, start: StepStart, t: ClosingTerms, r: jax.Array) -> jax.Array:
    """The residual (nv,) that the next linear model has instead of r."""
    field = field_beyond(t.load, model.topology.n_links, "modelled")
    beyond = jnp.zeros_like(r) if t.load.modelled_tau is None else t.load.modelled_tau
    beyond = beyond if field is None else beyond - operator.pullback(model, start.frames, field, start.recurrence)
    return r - HALF * beyond


def opening_work(problem: StageProblem, st: StageFields) -> jax.Array:
    """The work (nforces,) J of the first half, at the mean of the velocities before and after it."""
    model, start, eq = problem.model, problem.start, problem.eq
    load = equation.end_load(model, start, eq, st, eq.dt)
    force = generalised_force(model, start.frames, load, recurrence=start.recurrence)
    mean = start.v + 0.5 * HALF * eq.dt * operator.solve(model, start.mass, force)
    return HALF * eq.dt * _power(problem, st, mean)


def _power(problem: StageProblem, st: StageFields, v: jax.Array) -> jax.Array:
    """Of the forces that act once a step (nforces,) W: as they are after the increments, with the rates v (nv,)."""
    model, start = problem.model, problem.start
    at = equation.end_instant(model, start, problem.eq, st, problem.eq.dt)
    return power(model, at, "step", (v, transforms.velocity_field(model, start.frames, v)))
