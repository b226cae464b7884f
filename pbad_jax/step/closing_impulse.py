"""How radau(2) and radau(3) give what acts once a step: mostly all along it, and a share at its two ends.

The force F at the end of the step acts as one impulse dt F. All of it at the start, what lies still would fly up and
fall through every step, and tell −½ g dt for its velocity; all of it along the step, what hits the ground would bounce
back. So 0.8 dt F acts along the step, as a constant force at all stages, and SHARE dt F = 0.1 dt F at its start. The
last SHARE belongs to the end of the step and to the velocities v⁺ after it, by which the law looks one step ahead:

    M̂ (v⁺ − v⁻) = SHARE dt F(q ⊕ dt v⁻ ⊕ dt (v⁺ − v⁻)),   M̂ = M − dt ∂τ/∂v − dt² ∂τ/∂q,

M, the slopes of the other forces τ and the levers of F those at the end of the step: what radau(1) would make of F, the
other forces in a straight line about what they are. That takes away the velocity with which a stiff law would be met,
as nonsmooth schemes do (Brüls, Acary, Cardona 2014), so that there is nothing to bounce. At rest the three shares make
no motion: v = 0, also where a stiff servo holds a heavy body above the light foot that is hit. Where no such force acts
v⁺ = v⁻ is a root at once. Ends with an inertia have a law of their own in that blow (laws/soft_end.py).
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.dynamics import point_forces
from pbad_jax.dynamics.instant import generalised_force
from pbad_jax.errors import Status
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Slopes
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import acting, acts_at, total_load
from pbad_jax.laws.load import Load, field_beyond, scaled
from pbad_jax.laws.soft_end import has_inertia
from pbad_jax.math import batched
from pbad_jax.model.model import Model
from pbad_jax.schemes import Scheme
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import equation
from pbad_jax.stage import guide as guides
from pbad_jax.stage.fields import StageFields, stages
from pbad_jax.stage.guide import StageGuide
from pbad_jax.stage.problem import StageProblem, relative_residual, solve
from pbad_jax.stage.result import StepResult
from pbad_jax.stage.sparse_loads import SparseLoads
from pbad_jax.stage.start import StepStart, first_instant, metric_of, step_start
from pbad_jax.stage.work import counted, power
from pbad_jax.step.impulse import rates_without_others

SHARE = 0.1  # of the impulse, at each end of the step
NEAR = 0.5  # of what an impulse changes


def is_closed_by_one(model: Model, scheme: Scheme) -> bool:
    """Whether the scheme divides its impulse: that of radau(1) is at the end in any case."""
    return scheme.m > 1 and bool(acting(model, "step"))


class ClosingTerms(NamedTuple):
    """What its residual and its matrix are made of: the forces' Load one step further, times (h dt)²."""

    z: jax.Array  # (1,nq)
    change: jax.Array  # (nq,) of it, from where v⁻ leads
    frames: Frames  # there, leading axis 1
    load: Load
    sparse: SparseLoads  # what of it goes by parts, at the levers of the step's end
    duals: tuple


class ClosingEquation(NamedTuple):
    """What the closing impulse is made of beside the end of the step; one node, as in a StageEquation."""

    dt: jax.Array
    nodes: jax.Array  # (1,)
    impulse: jax.Array  # (1,)
    mass: jax.Array  # (nv,nv) M̂

    has_branches = False
    takes_guide = True

    def evaluate(self, model: Model, start: StepStart, z: jax.Array, h: Any, guide: StageGuide | None = None):
        """h dt (M̂ (v⁺ − v⁻) − SHARE h dt F) (nv,), F at the levers of the step's end, and the ClosingTerms."""
        dt, st = h * self.dt, stages(model, start, z)
        here = jax.tree.map(lambda x: x[None], start.frames)
        load, rare = equation.end_terms(model, start, 1.0, st, here, dt, guide)
        force = generalised_force(model, start.frames, load, rare.field, recurrence=start.recurrence)
        change = _change(model, start, dt, z)
        terms = ClosingTerms(z, change, st.frames, load, rare, load.dual)
        return self.mass @ _gained(model, change) - SHARE * force, terms

    def mobility(self, model: Model, start: StepStart) -> operator.Mobility:
        """By M̂, under its share of the impulse."""
        return guides.mobility_of(model, start, self.mass, SHARE)

    def matrix(self, model: Model, start: StepStart, t: ClosingTerms) -> jax.Array:
        """M̂ − SHARE dt² ∂F/∂δ, all by z ⊕ δ."""
        there = jax.tree.map(lambda x: x[0], t.frames)
        J = _by_increment(model, self.mass, t.change) - SHARE * _slope(model, start.frames, there, t.load, t.z[0])
        return J if t.sparse.slope is None else J - SHARE * t.sparse.slope[0]

    def modelled(self, model: Model, start: StepStart, t: ClosingTerms, r: jax.Array) -> jax.Array:
        """The residual (nv,) that the next linear model has instead of r."""
        field = field_beyond(t.load, model.topology.n_links, "modelled")
        more = t.load._replace(field=field, tau=t.load.modelled_tau, point_forces=())
        return r - SHARE * generalised_force(model, start.frames, more, t.sparse.modelled, recurrence=start.recurrence)


def divided(impulse: jax.Array) -> jax.Array:
    """The weights (m,) at the stages of an impulse at the start, less what is given along the step and at its end."""
    return SHARE * impulse + (1 - 2 * SHARE)


def after_closing_impulse(
    problem: StageProblem, found: StepResult, st: StageFields, pushes: Load, known: Any = None
) -> StepResult:
    """What was found of a step with the stages st, with the velocities after the share of the impulse at its end.

    pushes: what acts once a step, at its end.
    """
    # the end of the step, where a solve starts that knows what acts once a step alone
    model, dt = problem.model, problem.eq.dt
    good = found.status == Status.CONVERGED
    q = manifold.compose_increment(model, problem.start.q, found.z)
    before = dataclasses.replace(problem.start, q=q, v=found.v, time=problem.start.time + dt)
    start = step_start(model, before, problem.start.control, problem.start.recurrence, SHARE)

    # the equation for v⁺, its guess and its root
    eq = ClosingEquation(dt, jnp.ones(1, q.dtype), jnp.ones(1, q.dtype), effective_mass(model, start, dt))
    guess = dt * _guess(model, start, eq, pushes, problem.start.v)
    once = dataclasses.replace(model, forces=tuple(acting(model, "step")))
    newton = problem.config._replace(method="lm", objective="root", condition=False)
    if any(map(has_inertia, once.forces)):
        told, ended = (
            rates_without_others(model, start, SHARE * dt),
            equation.end_instant(model, problem.start, 1.0, st, dt),
        )
        start = dataclasses.replace(start, told=told, before=ended)
    near = None if start.near is None else tuple(x for x, f in zip(start.near, model.forces) if acts_at(f) == "step")
    closing = StageProblem(once, dataclasses.replace(start, near=near), eq, guess[None], newton)
    ended, z = solve(closing, jnp.where(good, jnp.int8(lm.RUNNING), found.status), known)
    v = start.v + _gained(model, _change(model, start, dt, z)) / dt

    # its work, by the mean of both velocities
    work = found.work
    which = counted(model, problem.start, problem.config.account)
    if any(acts_at(model.forces[k]) == "step" for k in which):
        st = stages(model, start, z)
        work = work + SHARE * dt * _power(model, start, dt, st, _felt(start, eq.mass, 0.5 * (start.v + v)), which)

    # what of it is taken over where the step before it was solved
    figures, residual = found.figures, relative_residual(closing, ended.attempt)
    figures = figures._replace(
        iterations=figures.iterations + ended.iterations,
        residual=jnp.where(good, jnp.maximum(figures.residual, residual), figures.residual),
    )
    return found._replace(
        v=jnp.where(good, v, found.v),
        status=jnp.where(good, ended.status, found.status),
        figures=figures,
        work=work,
        roots=found.roots._replace(closing=ended.attempt.x),
    )


def _guess(model: Model, start: StepStart, eq: ClosingEquation, load: Load, began: jax.Array) -> jax.Array:
    """v⁺ (nv,) by the load that acted in the step; or v where the step began, if that is near, as it is at rest."""
    gained = SHARE * eq.dt * batched.solve(eq.mass, generalised_force(model, start.frames, load))
    length = metric_of(model, start.mass, start.factor).length
    off, long = (length(x) for x in (began - start.v - gained, gained))
    return jnp.where(off < NEAR * long, began, start.v + gained)


def impulse_work_before(model: Model, start: StepStart, dt, st: StageFields, which: tuple[int, ...]) -> jax.Array:
    """The work (nforces,) J of the share at the start, by the mean velocity there, and of that along the step."""
    if not any(acts_at(model.forces[k]) == "step" for k in which):
        return jnp.zeros(len(model.forces), start.q.dtype)
    force = generalised_force(model, start.frames, equation.end_load(model, start, 1.0, st, dt))
    mass = effective_mass(model, start, dt)
    mean = start.v + 0.5 * SHARE * dt * batched.solve(mass, force)
    along = power(model, equation.end_instant(model, start, 1.0, st, dt), "step", which)
    return dt * (SHARE * _power(model, start, dt, st, _felt(start, mass, mean), which) + (1 - 2 * SHARE) * along)


def _felt(start: StepStart, mass: jax.Array, v: jax.Array) -> jax.Array:
    """The rates (nv,) with which an impulse P makes the work that it changes the kinetic energy by, P · M̂⁻ᵀ M v."""
    assert isinstance(start.mass, jax.Array)
    return batched.solve(mass.T, start.mass @ v)


def effective_mass(model: Model, start: StepStart, dt) -> jax.Array:
    """M̂ (nv,nv), kg m² or kg: what an impulse meets that the forces at the stages answer for the length of a step."""
    at = first_instant(model, start, dt)
    load = scaled(total_load(model, at, "stages"), dt)
    felt = guides.felt_mass(model, start, load)
    assert isinstance(felt, jax.Array)  # schemes of several stages have no sweeps
    return felt


def _slope(model: Model, here: Frames, there: Frames, load: Load, z: jax.Array) -> jax.Array:
    """∂(dt² F)/∂δ (nv,nv), at the levers `here`, of a scaled load `there`; its rates are those of z."""
    slope = point_forces.total_matrix(model, here, there, list(load.point_forces), point_forces.weighted(load, 1.0))
    if load.dtau_dq is not None:
        slope = slope + joint_field.as_matrix(load.dtau_dq)
    if load.dtau_dv is not None:
        slope = slope + _by_increment(model, joint_field.as_matrix(load.dtau_dv), z)
    return slope


def _by_increment(model: Model, by_log: jax.Array, z: jax.Array) -> jax.Array:
    """A derivative (nv,nv) by log z, by z ⊕ δ."""
    if not len(tree(model.topology).balls):
        return by_log
    by_z = Slopes(jnp.ones((1, 1), z.dtype), joint_field.log_slopes(model, z)[None, None])
    return joint_field.chained(model, by_log[None], by_z)[0, 0]


def _change(model: Model, start: StepStart, dt, z: jax.Array) -> jax.Array:
    """From where v⁻ leads in dt to z (1,nq), an increment (nq,): it is small where v⁻ turns a ball right round."""
    free = manifold.retract(model, manifold.identity_increment(model), dt * start.v)
    return manifold.increment_between(model, free, z[0])


def _gained(model: Model, change: jax.Array) -> jax.Array:
    """dt (v⁺ − v⁻), (nv,)."""
    return manifold.difference(model, manifold.identity_increment(model), change)


def _power(model: Model, start: StepStart, dt, st: StageFields, v: jax.Array, which: tuple[int, ...]) -> jax.Array:
    """Of those in `which` that act once a step (nforces,) W: as they are after the increments, by the rates v (nv,)."""
    at = equation.end_instant(model, start, 1.0, st, dt)
    return power(model, at, "step", which, (v, transforms.velocity_field(model, start.frames, v)))
