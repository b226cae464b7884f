"""The stage equations of a step as a problem for the solvers, and the root that they find."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.atom.operator import KERNEL
from pbad_jax.errors import Status
from pbad_jax.kernels import linear_solve
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.kinematics.tree import change_balls, tree
from pbad_jax.math import rotations
from pbad_jax.math.batched import cond_if_any
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import matvec, small_sum, transpose
from pbad_jax.model.model import Model
from pbad_jax.schemes import Scheme
from pbad_jax.solver import continuation, implicit, lbfgs
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.solver.dense import DenseMetric
from pbad_jax.stage import branch, equation, predictor
from pbad_jax.stage import guide as guides
from pbad_jax.stage.equation import StageEquation
from pbad_jax.stage.guide import StageGuide
from pbad_jax.stage.start import StepStart, SweepsMetric, metric_of
from pbad_jax.stage.terms import StageTerms

LONGEST_TURN = 1.5  # rad that one Newton correction may turn a joint
FAR_TURN = 0.1  # rad of a first guess
SOFT = 0.5  # of what inertia alone would be
STILL = 1e-6  # of the model's size, what counts as no motion
ROUNDINGS = 4.0  # of q, in a correction that may be nothing else


class SolverConfig(NamedTuple):
    """How equations are solved: static."""

    tolerance: float  # relative to the model's size, or to the way of the step
    max_iterations: int
    method: str  # "lm" or "lbfgs"
    objective: str  # "root", "energy" or "squared"
    recurrence: str  # of atom/operator.py
    retry: bool  # another guess where the first failed, for schemes with history
    account: bool  # the work of each force
    condition: bool  # the condition of the Newton matrix
    kernel: bool = False  # whether kernels/ looks for roots, where lanes are many


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StageProblem:
    """A solver.problem.Problem: the increments z (m,nq) from q_k at which the equations of m stages vanish."""

    model: Model
    start: StepStart
    eq: Any  # a StageEquation, or another with `dt`, `nodes`, its methods and what it says of itself
    direction: jax.Array  # (m,nv) guess of the displacements at h = 1
    config: SolverConfig = dataclasses.field(metadata=STATIC)
    # of the scheme's table; one stage: its sign is all that is asked
    C: tuple[tuple[float, ...], ...] = dataclasses.field(default=((1.0,),), metadata=STATIC)
    follows_from_zero: bool = dataclasses.field(default=True, metadata=STATIC)

    @property
    def metric(self) -> DenseMetric | SweepsMetric:
        """The mass matrix at time k, () kg^½ m; an energy is damped by it."""
        by_inertia = self.config.objective == "energy"
        return metric_of(self.model, self.start.mass, self.start.factor, C=self.C, by_inertia=by_inertia)

    @property
    def max_correction(self) -> jax.Array:
        """(nv,) rad; slides any distance."""
        return jnp.where(tree(self.model.topology).dof_slide, jnp.inf, LONGEST_TURN).astype(self.model.dtype)

    def residual(self, x: jax.Array, h, guide: Any = None):
        """(h dt)² r (m·nv,), kg m² or kg, and the terms of its matrix."""
        return self.eq.evaluate(self.model, self.start, x, h, guide)

    def zeros(self, x: jax.Array):
        """(m·nv,) and (m·nv, m·nv), or what the sweeps take for it."""
        r = jnp.zeros(x.shape[0] * self.model.nv, x.dtype)
        return r, self.metric.zeros(r, lambda: self.matrix(self.residual(x, 1.0, self.first_guide())[1]))

    @property
    def _is_guided(self) -> bool:
        """Where forces with duals act; an energy is minimised without."""
        newton = self.config.method == "lm" and self.config.objective == "root"
        return newton and self.eq.takes_guide and guides.has_duals(self.model, self.eq.impulse is not None)

    def first_guide(self, old: StageGuide | None = None) -> StageGuide | None:
        """Before the first iterate."""
        if not self._is_guided:
            return None
        start, once = self.start, self.eq.impulse is not None
        free = self.eq.mobility(self.model, start) if old is None else old.free
        return guides.first(self.model, len(self.eq.nodes), once, start.frames.T, free)

    def next_guide(self, guide: StageGuide, terms: StageTerms, delta: jax.Array, trust: jax.Array) -> StageGuide:
        """Where the linear model expects the links after δ, and the duals."""
        return guides.after(self.model, guide, terms.duals, terms.frames, delta, trust)

    def modelled(self, terms, r: jax.Array) -> jax.Array:
        """What the linear model has for r."""
        return self.eq.modelled(self.model, self.start, terms, r) if self._is_guided else r

    def matrix(self, terms):
        """(h dt)² J."""
        return self.eq.matrix(self.model, self.start, terms)

    def retract(self, x: jax.Array, delta: jax.Array) -> jax.Array:
        """z ⊕ δ of m increments, (m,nq) and (m·nv,)."""
        delta = delta.reshape(x.shape[0], -1)
        return jax.vmap(lambda z_j, d: manifold.retract(self.model, z_j, d))(x, delta)

    def solve(self, J, b: jax.Array) -> jax.Array:
        """J⁻¹ b (m·nv,)."""
        return linear_solve.solve(J, b) if self.start.recurrence == KERNEL else operator.solve(self.model, J, b)

    def solve_at_root(self, x: jax.Array, good: jax.Array, b: jax.Array) -> jax.Array:
        """J⁻¹ b at a root; where it is not `good` J is the identity."""
        return self.solve(operator.where(good, self.matrix(self.residual(x, 1.0)[1])), b)

    def way(self, x: jax.Array) -> jax.Array:
        """What the increments x (m,nq) make, in the mass matrix at time k, () kg^½ m."""
        return self.metric.length(predictor.displacements(self.model, x).reshape(-1))

    def merit(self, x: jax.Array, h) -> jax.Array | None:
        """The energy, where that is the objective."""
        if self.config.objective != "energy":
            return None
        return equation.energy(self.model, self.start, self.eq, x, h)

    def guess(self, x_done: jax.Array | None, h_done, h) -> jax.Array:
        """The first attempt goes on as `direction` says; later ones extrapolate the stages that are solved."""
        delta = h * self.direction
        if x_done is not None:
            ratio = h / jnp.where(h_done > 0, h_done, 1.0)
            done = predictor.along_h(self.model, self.eq.nodes, x_done, ratio)
            delta = jnp.where(h_done > 0, done, delta)
        identity = manifold.identity_increment(self.model)
        return jax.vmap(lambda d: manifold.retract(self.model, identity, d))(delta)

    def goes_far(self) -> jax.Array:
        """Whether the first guess turns a joint by more than FAR_TURN."""
        return self._guessed_turn() > FAR_TURN

    def _guessed_turn(self) -> jax.Array:
        """The largest of the plain guess, rad."""
        return jnp.max(jnp.where(tree(self.model.topology).dof_slide, 0.0, jnp.abs(self.direction)))

    @property
    def asks_twice(self) -> bool:
        """Where friction follows a normal force: it may jam what slides, a jump of the motion, no leap of a solver."""
        return self._is_guided and self.eq.has_branches

    def second_guide(self, guide: StageGuide, again: jax.Array) -> StageGuide:
        """Where `again` without trust: the matrix is as if friction did not follow."""
        return guide._replace(trust=jnp.where(again, 0.0, guide.trust))

    def is_on_branch(
        self, h, attempt: lm.SolveState, J, asked: jax.Array, again: jax.Array | None, on_the_way: jax.Array
    ) -> jax.Array:
        """Whether a root is connected with h = 0 as J says, if it is suspect, and none is nearby that is leapt to."""
        if not self.eq.has_branches:
            return jnp.ones((), bool)
        suspect = self._is_suspect(attempt.x, J)
        suspect = suspect if again is None else suspect | again
        judge = lambda problem, *found: problem._is_connected(*found)  # noqa: E731
        good = cond_if_any(asked & suspect, _yes, judge, self, attempt.x, J, h, takes_long=True)
        return good & ~(attempt.leaps & self._has_roots_nearby(on_the_way))

    def _has_roots_nearby(self, on_the_way: jax.Array) -> jax.Array:
        """Whether the rates alone turn a joint far, or the root is approached by smaller h; not asked of contact, whose
        guide leads its own way, nor where there is no smaller h to go by.
        """
        if self._is_guided or not self.follows_from_zero:
            return jnp.zeros((), bool)
        return on_the_way | (self._guessed_turn() > branch.LARGE_TURN)

    def _is_suspect(self, x: jax.Array, J) -> jax.Array:
        """Whether a joint has turned far, or J is soft along the way: half of what inertia alone would be, or less."""
        moved = predictor.displacements(self.model, x)
        delta = moved.reshape(-1)
        inertia = self.metric.length(delta)
        along = self.metric.slope(operator.times(self.model, J, delta), delta)
        soft = along < SOFT * (self.C[0][0] if len(self.C) == 1 else 1.0) * inertia**2
        moves = inertia > STILL * size_of(self.model, self.eq.dt)
        return moves & (soft | (branch.largest_turn(self.model, moved) >= branch.LARGE_TURN))

    def _is_connected(self, x: jax.Array, J, h) -> jax.Array:
        """Whether J says that the root is connected with h = 0, and whether its turns can be counted."""
        D = self.eq.D if len(self.C) > 1 else jnp.ones((1, 1), x.dtype)
        connected = branch.is_connected(self.model, self.start.factor, D, J)
        coasted = None if self.eq.coasts is None else jnp.multiply.outer(h * self.eq.nodes, self.eq.coasts)
        return branch.counts_turns(self.model, x, coasted) & connected

    def in_chart(self, covector: jax.Array, delta: jax.Array) -> jax.Array:
        """Jrᵀ of the balls' exponentials."""
        balls, nv = tree(self.model.topology).ball_v, self.model.nv
        w = delta.reshape(-1, nv)[:, balls]
        by_w = lambda g: matvec(transpose(rotations.right_jacobian(w)), g)  # noqa: E731
        return change_balls(self.model, covector.reshape(-1, nv), by_w).reshape(-1)


def _yes(*_) -> jax.Array:
    return jnp.ones((), bool)


def problem_of(
    model: Model, scheme: Scheme, config: SolverConfig, start: StepStart, eq: StageEquation, direction
) -> StageProblem:
    """The stage equations of a collocation, with a guess of the displacements (m,nv)."""
    return StageProblem(model, start, eq, direction, config, scheme.C, follows_from_zero=not scheme.has_history)


def size_of(model: Model, dt) -> jax.Array:
    """What a whitened residual is measured by at least, () kg^½ m: √(total mass) times a length of the model.

    Its typical length or, where that is more, what it falls in a step from rest: a point has no size, and hangs on its
    spring without a way. What moves faster is measured by its way (levenberg_marquardt.py).
    """
    return jnp.sqrt(transforms.total_mass(model)) * length_of(model, dt)


def length_of(model: Model, dt) -> jax.Array:
    """A length of the model, () m: the larger of its typical length and what it falls in a step from rest."""
    fall = 0.5 * dt * dt * jnp.sqrt(small_sum(model.gravity**2))
    return jnp.maximum(transforms.length_scale(model), fall)


def settings(problem: StageProblem) -> lm.Settings:
    """When its solve stops."""
    config, given = problem.config, (size_of(problem.model, problem.eq.dt), problem.start.rounding)
    size, rounding = jax.lax.stop_gradient(given)
    return lm.Settings(
        config.tolerance * size, config.max_iterations, config.tolerance, ROUNDINGS * rounding, config.condition
    )


def relative_residual(problem: StageProblem, attempt: lm.SolveState) -> jax.Array:
    """What is left of the residual over what the attempt measured it by, (); where both are zero, 0."""
    measure = attempt.limit / problem.config.tolerance
    return attempt.norm / jnp.where(measure == 0, 1.0, measure)


def searched(problem: StageProblem, status) -> StageProblem:
    """What a solve looks at: no derivatives, and no motion where it will not run (`status` is not RUNNING)."""
    problem, status = jax.lax.stop_gradient((problem, status))
    start = dataclasses.replace(problem.start, recurrence=KERNEL) if problem.config.kernel else problem.start
    direction = jnp.where(status == lm.RUNNING, problem.direction, 0.0)
    return dataclasses.replace(problem, start=start, direction=direction)


def find(problem: StageProblem, status, known: Any = None) -> continuation.State:
    """The increments z (m,nq) at which the residual vanishes, without derivatives; see `root`.

    Args:
        problem: what. status: RUNNING, or a Status to be passed through. known: z where it has been found before.
    """
    problem = searched(problem, status)
    if known is not None:
        return continuation.ended(problem, known, status=status)
    if problem.config.method == "lbfgs":
        return continuation.of_one_attempt(problem, lbfgs.solve(problem, settings(problem), status=status))
    return continuation.solve(problem, settings(problem), status=status)


def root(problem: StageProblem, z: jax.Array, good: jax.Array) -> jax.Array:
    """The increments z (m,nq) that were found, as a function of all that the equations depend on.

    Where none were found (not `good`) there is no motion and no derivative.
    """
    still = jnp.broadcast_to(manifold.identity_increment(problem.model), z.shape)
    good = implicit.keep(good)
    z = implicit.keep(jnp.where(good, z, still))
    start = dataclasses.replace(problem.start, mass=None, factor=None)
    theta = dataclasses.replace(problem, start=start, direction=None)
    return jnp.where(good, implicit.root(theta, z, good), z)


def solve(problem: StageProblem, status, known: Any = None) -> tuple[continuation.State, jax.Array]:
    """`find`, and the `root` that was found."""
    found = find(problem, status, known)
    return found, root(problem, found.attempt.x, found.status == Status.CONVERGED)
