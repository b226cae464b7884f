"""The root of the stage equations at dt: what continuation, Levenberg–Marquardt or L-BFGS need to know of a tree."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator, sweeps
from pbad_jax.errors import Status
from pbad_jax.forces.force import has_kinks
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import batched, rotations
from pbad_jax.math.small import matvec, transpose
from pbad_jax.model.model import Model
from pbad_jax.schemes import extrapolation
from pbad_jax.solver import continuation, dense, implicit, lbfgs
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage import branch, equation
from pbad_jax.stage.equation import StageEquation, StepStart
from pbad_jax.stage.matrix import matrix, tree_matrix

LONGEST_TURN = 1.5  # rad that one Newton correction may turn a joint


class SolverConfig(NamedTuple):
    """How equations are solved: static."""

    tolerance: float  # relative to the model's size
    max_iterations: int
    method: str  # "lm" or "lbfgs"
    objective: str  # "root", "energy" or "squared"
    twin: str
    dense: bool  # (nv,nv) matrices, or sweeps over the tree; False for one unknown configuration at a time only
    retry: bool  # another guess where the first failed, for schemes with history
    account: bool  # the work of each force
    condition: bool  # the condition of the Newton matrix


class Equations(NamedTuple):
    """What is to vanish, of m unknown configurations. The functions close over nothing that is traced."""

    data: tuple  # the model, and what else the functions need
    evaluate: Callable  # (data, z (m,nq), h) -> residual (m·nv,), and what its matrix is made of
    matrix: Callable  # (data, what it is made of) -> matrix
    residual: Callable  # (data, z) -> residual at h = 1
    nodes: jax.Array  # (m,) for extrapolation along h
    energy: Callable | None = None  # (data, z, h) -> () whose gradient is the residual, where that is the objective
    det_C: float = 1.0  # of the scheme's table
    continuous: bool = True  # whether h → 0 is trivial
    simplified: Callable | None = None  # (regime, data, z, h) -> residual and matrix with the laws in another regime


class StepResult(NamedTuple):
    """What a method found for one step; only `status` says whether it can be used."""

    z: jax.Array  # (nq,) increment to the end of the step
    v: jax.Array  # (nv,) there
    history: jax.Array  # (nq,) configuration at the history node of the next step
    status: jax.Array  # () int8, RUNNING never
    iterations: jax.Array  # () int32
    residual: jax.Array  # () relative
    reached: jax.Array  # () fraction of the step that could be solved
    damping: jax.Array  # () λ of the last iteration
    worst: jax.Array  # () int32, the degree of freedom that the last correction moves most
    work: jax.Array  # (nforces,) J; (0,) unless asked for
    condition: jax.Array  # () of the Newton matrix; NaN unless asked for


def residual_scale(model: Model) -> jax.Array:
    """Divides a whitened residual (kg^½ m) into a relative position error: √(total mass) · typical length."""
    return jnp.sqrt(transforms.total_mass(model)) * transforms.length_scale(model)


def step_result(
    model: Model, config: SolverConfig, start: StepStart, found: continuation.State, z, v, history, work
) -> StepResult:
    """The StepResult of a step that needed one solve."""
    unknown = jnp.full((), jnp.nan, start.q.dtype)
    move = jnp.max(jnp.abs(found.attempt.newton.reshape(-1, model.nv)), axis=0)
    return StepResult(
        z=z,
        v=v,
        history=history,
        status=found.status,
        iterations=found.iterations,
        residual=found.attempt.norm / residual_scale(model),
        reached=found.h_done,
        damping=found.attempt.damping,
        worst=jnp.argmax(move).astype(jnp.int32),
        work=work,
        condition=_condition(model, config, start, found.attempt.J) if config.condition else unknown,
    )


POWER_ITERATIONS = 8


def _condition(model: Model, config: SolverConfig, start: StepStart, J) -> jax.Array:
    """The condition of J in the metric of the mass matrix M, (): of M⁻¹J, its largest eigenvalue over its smallest.

    Power iterations from a fixed vector, so an estimate from below; good to some per cent where J is nearly singular.
    """
    M = operator.mass(model, start.frames, twin=config.twin, dense=config.dense)

    def stages(f, x):
        return jax.vmap(lambda b: f(model, M, b))(x.reshape(-1, model.nv)).reshape(-1)

    def largest(f):
        def more(_, known):
            y = f(known[0])
            size = jnp.linalg.norm(y)
            return y / size, size

        n = model.nv if isinstance(J, sweeps.NewtonMatrix) else J.shape[0]
        x = jnp.cos(jnp.arange(1, n + 1, dtype=start.q.dtype) ** 2)
        return jax.lax.fori_loop(0, POWER_ITERATIONS, more, (x / jnp.linalg.norm(x), jnp.ones((), x.dtype)))[1]

    grows = largest(lambda x: stages(operator.solve, operator.times(model, J, x)))
    return jnp.maximum(1.0, grows * largest(lambda x: operator.solve(model, J, stages(operator.times, x))))


def of_stages(
    model: Model,
    config: SolverConfig,
    start: StepStart,
    eq: StageEquation,
    *,
    det_C: float = 1.0,
    continuous: bool = True,
) -> Equations:
    """The Equations of a stage equation."""
    return Equations(
        data=(model, start._replace(mass=None, metric=None), eq),
        evaluate=functools.partial(_evaluate, config),
        matrix=functools.partial(_matrix, config),
        residual=functools.partial(_residual, config),
        nodes=eq.nodes,
        energy=_energy if config.objective == "energy" else None,
        det_C=det_C,
        continuous=continuous,
        simplified=functools.partial(_simplified, config) if any(map(has_kinks, model.forces)) else None,
    )


def _evaluate(config: SolverConfig, data, z, h, regime: str = "tangent"):
    model, s, eq = data
    return equation.evaluate(model, s, eq, z, h, twin=config.twin, dense=config.dense, regime=regime)


def _matrix(config: SolverConfig, data, terms):
    model, _, eq = data
    if config.dense:
        return matrix(model, eq, terms, twin=config.twin)
    return tree_matrix(model, eq, terms)


def _simplified(config: SolverConfig, regime: str, data, z, h):
    r, terms = _evaluate(config, data, z, h, regime)
    return r, _matrix(config, data, terms)


def _residual(config: SolverConfig, data, z):
    model, s, eq = data
    return equation.residual(model, s, eq, z, twin=config.twin, dense=config.dense)


def _energy(data, z, h):
    model, s, eq = data
    return equation.energy(model, s, eq, z, h)


def solve(model: Model, config: SolverConfig, start: StepStart, equations: Equations, direction, status):
    """`find`, and the `root` that was found."""
    found = find(model, config, start, equations, direction, status)
    return found, root(equations, found.attempt.x, found.status == Status.CONVERGED)


def root(equations: Equations, z: jax.Array, good: jax.Array) -> jax.Array:
    """The increments z (m,nq) that were found, as a function of all that the equations depend on.

    Where none were found (not `good`) there is no motion and no derivative, and no matrix that could be singular: such
    a lane touches no other.
    """
    still = jnp.broadcast_to(manifold.identity_increment(equations.data[0]), z.shape)
    good = implicit.keep(good)
    z = implicit.keep(jnp.where(good, z, still))
    residual = functools.partial(_residual_of, equations.residual)
    solve = functools.partial(_solve_of, equations.evaluate, equations.matrix)
    rule = implicit.Rule(residual, solve, _retract_of)
    return jnp.where(good, implicit.attach(rule, (equations.data, good), z), z)


def _residual_of(residual: Callable, theta, z):
    return residual(theta[0], z)


def _solve_of(evaluate: Callable, matrix: Callable, theta, z, b):
    data, good = theta
    J = matrix(data, evaluate(data, z, 1.0)[1])
    if isinstance(J, sweeps.NewtonMatrix):
        return sweeps.solve(data[0], J, b)
    return batched.solve(jnp.where(good, J, jnp.eye(J.shape[0], dtype=J.dtype)), b)


def _retract_of(theta, z, delta):
    return _retract(theta[0][0], z, delta.reshape(z.shape[0], -1))


def _retract(model: Model, z: jax.Array, delta: jax.Array) -> jax.Array:
    """Z ⊕ δ of m increments, (m,nq) and (m,nv)."""
    return jax.vmap(lambda z_j, d: manifold.retract(model, z_j, d))(z, delta)


def find(
    model: Model, config: SolverConfig, start: StepStart, equations: Equations, direction, status
) -> continuation.State:
    """The increments z (m,nq) at which the residual vanishes, as a continuation.State without derivatives; see `root`.

    Args:
        model: the model. solver: how. s: time k. equations: what.
        direction: (m,nv) guess of the displacements at h = 1.
        status: RUNNING, or a Status to be passed through.
    """
    if config.method == "lbfgs":
        model, start, data, direction, status = jax.lax.stop_gradient((model, start, equations.data, direction, status))
        return _by_lbfgs(model, config, start, equations._replace(data=data), direction, status)
    problems, settings = family(model, config, start, equations, direction, status)
    return continuation.solve(problems, settings, status=status)


def family(model: Model, config: SolverConfig, start: StepStart, equations: Equations, direction, status):
    """What `find` iterates on: a continuation.Family without derivatives, and its Settings."""
    model, start, data, direction, status = jax.lax.stop_gradient((model, start, equations.data, direction, status))
    identity = manifold.identity_increment(model)

    def retract(z, delta):
        return _retract(model, z, delta.reshape(direction.shape))

    def guess(z, h_done, h):
        """The first attempt goes on as `direction` says; later ones extrapolate the stages that are solved."""
        delta = h * direction
        if z is not None:
            done = displacements(model, z)
            weights = extrapolation(equations.nodes, h / jnp.where(h_done > 0, h_done, 1.0))
            delta = jnp.where(h_done > 0, weights @ done, delta)
        delta = jnp.where(status == lm.RUNNING, delta, 0.0)
        return jax.vmap(lambda d: manifold.retract(model, identity, d))(delta)

    energy = equations.energy
    problems = continuation.Family(
        evaluate=functools.partial(equations.evaluate, data),
        retract=retract,
        guess=guess,
        algebra=algebra(model, start, symmetric=energy is not None),
        continuous=equations.continuous,
        matrix=functools.partial(_on_equations, equations.matrix),
        matrix_kept=config.condition,
        longest=longest_turns(model),
        merit=None if energy is None else functools.partial(energy, data),
        doubtful=_turns_far,
        accept=functools.partial(_is_connected, equations.det_C),
        simplified=None if equations.simplified is None else functools.partial(_simplified_of, equations.simplified),
        data=(model, data),
    )
    settings = lm.Settings(config.tolerance * residual_scale(model), config.max_iterations)
    return problems, settings


def _turns_far(data, z) -> jax.Array:
    return branch.turns_far(data[0], z)


def _is_connected(det_C: float, data, z, J) -> jax.Array:
    del z
    return branch.is_connected(det_C, data[0], J)


def _on_equations(matrix: Callable, data, parts):
    return matrix(data[1], parts)


def _simplified_of(simplified: Callable, regime: str, data, z, h):
    return simplified(regime, data[1], z, h)


def displacements(model: Model, z: jax.Array) -> jax.Array:
    """Logarithms (m,nv) of increments (m,nq)."""
    identity = manifold.identity_increment(model)
    return jax.vmap(lambda z_j: manifold.difference(model, identity, z_j))(z)


SMALL_CURVATURE = 0.25  # of what the rates move: a guess does not carry a larger curvature on


def is_small(curvature: jax.Array, line: jax.Array) -> jax.Array:
    """Whether a guess may go on along a curvature of the line that the rates draw, () bool."""
    return jnp.sum(curvature * curvature) < SMALL_CURVATURE**2 * jnp.sum(line * line)


def longest_turns(model: Model) -> jax.Array:
    """How far a correction may move each joint, (nv,): rad; slides any distance."""
    return jnp.where(tree(model.topology).dof_slide, jnp.inf, LONGEST_TURN).astype(model.dtype)


def algebra(model: Model, start: StepStart, *, symmetric: bool = False) -> lm.Algebra:
    """Dense, or where `s` has no mass matrix: J as a sweeps.Matrix, lengths in the mass matrix at time k."""
    if start.metric is not None:
        return dense.dense(start.metric, energy=symmetric)

    def solve(data, J, b):
        return sweeps.solve(data[0], J, b)

    def norm(data, r):
        return jnp.sqrt(jnp.maximum(sweeps.inverse_quadratic(data[0], data[1], r), 0.0))

    def length(data, delta):
        return jnp.sqrt(jnp.maximum(sweeps.quadratic(data[0], data[1], delta), 0.0))

    def damped(data, J, r, damping):
        """−(J + λ mass)⁻¹ r."""
        return -solve(data, J._replace(c=J.c + damping, d=J.d + damping * data[0].armature), r)

    return lm.Algebra((model, sweeps.mass(model, start.frames)), solve, damped, norm, length)


def _by_lbfgs(
    model: Model, config: SolverConfig, start: StepStart, equations: Equations, direction, status
) -> continuation.State:
    """The same, by L-BFGS on the energy or on ½‖L⁻¹ r‖², in whitened exponential coordinates about the first guess."""
    t, m, metric = tree(model.topology), direction.shape[0], start.metric
    assert metric is not None
    direction = jnp.where(status == lm.RUNNING, direction, 0.0)
    origin = jax.vmap(lambda d: manifold.retract(model, manifold.identity_increment(model), d))(direction)

    def point(y):
        delta = dense.unwhiten(metric, y).reshape(m, -1)
        return _retract(model, origin, delta), delta

    def in_chart(covector, delta):
        """Along y: L⁻¹ Jrᵀ, Jr the right Jacobian of the balls' exponentials."""
        g = covector.reshape(m, -1)
        if t.balls.size:
            Jr = rotations.right_jacobian(delta[:, t.ball_v])
            g = g.at[:, t.ball_v].set(matvec(transpose(Jr), g[:, t.ball_v]))
        return dense.whiten(metric, g.reshape(-1))

    def objective(y):
        z, delta = point(y)
        r, parts = equations.evaluate(equations.data, z, 1.0)
        if equations.energy is not None:
            return equations.energy(equations.data, z, 1.0), in_chart(r, delta)
        white = dense.whiten(metric, r)
        J = equations.matrix(equations.data, parts)
        return 0.5 * white @ white, in_chart(J.T @ dense.unwhiten(metric, white), delta)

    def norm(y, value):
        if equations.energy is None:
            return jnp.sqrt(2.0 * value)
        return jnp.linalg.norm(dense.whiten(metric, equations.evaluate(equations.data, point(y)[0], 1.0)[0]))

    tolerance = config.tolerance * residual_scale(model)
    y = jnp.zeros(direction.size, start.q.dtype)
    found = lbfgs.minimise(objective, norm, tolerance, config.max_iterations, y, status=status)
    z, _ = point(found.y)
    J = equations.matrix(equations.data, equations.evaluate(equations.data, z, 1.0)[1])
    one, zero = jnp.ones((), start.q.dtype), jnp.zeros((), start.q.dtype)
    connected = branch.is_connected(equations.det_C, model, J) | ~branch.turns_far(model, z)
    ended = jnp.where((found.status == Status.CONVERGED) & ~connected, jnp.int8(Status.BRANCH), found.status)
    reached = jnp.where(ended == Status.CONVERGED, one, zero)
    none = jnp.zeros((), jnp.int32)
    at = lm.SolveState(z, found.y, J, found.norm, found.value, z, found.gradient, zero, none, found.iterations, ended)
    return continuation.State(at, one, reached, z, one, found.iterations, ended)
