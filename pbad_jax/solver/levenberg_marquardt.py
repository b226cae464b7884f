"""Levenberg–Marquardt for a square system r(x) = 0 on a manifold. Knows no physics.

The residual is measured in a metric: it consists of blocks of b numbers, and its norm is ‖L⁻¹ r_i‖ over all blocks,
L a (b,b) factor. The matrix J is the full one (∂r along the retraction), so with λ = 0 an iteration
is Newton's. λ > 0 only after a rejected step, and it drops out again quickly; the damped step is

    min_y ‖J̃ y + r̃‖² + λ ‖y‖²,   J̃ = L⁻¹ J L⁻ᵀ, r̃ = L⁻¹ r, δ = L⁻ᵀ y.

(The paper's LM step pairs the gradient 2Jᵀr with JᵀJ, twice a Gauss–Newton step; not so here.)

A step is accepted when it lowers the norm, or when it passes Deuflhard's natural monotonicity test: the simplified
Newton correction J⁻¹ r(x_new), with the old J, is shorter than the Newton correction J⁻¹ r(x). That test does not
depend on how the equations are scaled, and it lets Newton's method cross the ridges that a nearly singular mechanism
raises in any fixed norm.

Where a law has a kink (dry friction: all but constant on both sides of a steep middle) Newton's method oscillates
across the middle, but from within it converges. So a rejected Newton step is answered, before damping, by the Newton
step of a `simplified` problem: first with every such law that is not far out as the straight line of its middle (it
sticks), then with all as their secants from the origin, which for a convex law falls short of the minimum but never
crosses the kink.

Converged is a residual within the tolerance, or a Newton correction within it that has just been made: a stiff system's
residual has rounding errors of its own size, the correction has not. So is a residual that is nearly within it where no
step reduces it any more. The first guess is never believed: at least one correction is made, because a guess within a
loose tolerance (float32) would carry its error from step to step.

One iteration is one residual, one matrix and one linear solve, two or three solves where the norm does not fall:
`iterate` evaluates the trial point that the last call left, judges it, and leaves the next one. `solve` loops. A trial
is judged by its residual alone, so that of one that is rejected, and of the root itself, no matrix is made.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.math import batched

RUNNING = -1  # status of an unfinished solve


TANGENT, STICK, SECANT = range(3)  # what leads to the trial: Newton's step, damped or not, or a simplification's


SECANTS = 4  # steps along secants in a row, SECANT to SECANT + SECANTS − 1


LAMBDA_FIRST = 0.1  # of the whitened matrix, whose entries are of order one


LAMBDA_UP, LAMBDA_DOWN = 8.0, 0.05


LAMBDA_MIN, LAMBDA_MAX = 1e-3, 1e9


DECREASE = 1 - 1e-3  # what counts as lower


ROUNDING = 100.0  # a residual within this factor of the tolerance is accepted when nothing reduces it


class Algebra(NamedTuple):
    """How matrices are solved with and lengths are measured; `data` is a pytree that every function gets first.

    solve: (data, J, b (n,)) -> J⁻¹ b. damped: (data, J, r, λ) -> δ. norm: (data, r) -> (). length: (data, δ) -> ().
    """

    data: Any
    solve: Callable
    damped: Callable
    norm: Callable
    length: Callable


class Problem(NamedTuple):
    """A square system.

    evaluate: x -> (r (n,), parts), the residual and what its matrix is made of. matrix: (data, parts) -> J, an (n,n)
    array or whatever the algebra understands; None, `parts` are J. wanted: (data, x) -> () bool, whether the matrix of
    a root is needed too; None, never. retract: (x, δ (n,)) -> x.
    longest: (b,) the largest |δ| that a linear model of each unknown of a block can be trusted with, inf where any; a
    longer step is shortened. merit: x -> () what must fall, where r is its gradient; None, the norm of r.
    simplified: (regime, data, x) -> (r, J) of the laws' regimes "stick" or "secant"; None, there are none. data: a
    pytree for all that get it.
    """

    evaluate: Callable
    retract: Callable
    algebra: Algebra
    matrix: Callable | None = None
    wanted: Callable | None = None
    longest: jax.Array | float = float("inf")
    merit: Callable | None = None
    simplified: Callable | None = None
    data: Any = None


class Settings(NamedTuple):
    """When to stop: the norm to reach, and how many iterations at most."""

    tolerance: jax.Array | float
    max_iterations: int


class SolveState(NamedTuple):
    """An unfinished or finished solve; a pytree, so that it can be carried and batched."""

    x: jax.Array  # the best point so far
    r: jax.Array  # (n,) its residual
    J: Any  # its matrix; of a root, unless it was wanted, that of the point before
    norm: jax.Array  # () its norm
    merit: jax.Array  # () what must fall: the norm, or the problem's merit
    trial: jax.Array  # the point to evaluate next
    newton: jax.Array  # (n,) −J⁻¹ r, the Newton correction, or that of a simplified problem if that leads to the trial
    damping: jax.Array  # () λ
    regime: jax.Array  # () int32, what leads to the trial: TANGENT, STICK or SECANT and more
    iterations: jax.Array  # () int32; -1 until the first guess has been evaluated
    status: jax.Array  # () int8, RUNNING or a Status


def init(problem: Problem, x, *, status: jax.Array | int = RUNNING) -> SolveState:
    """A solve whose first guess x is still to be evaluated. `status` other than RUNNING: a finished one."""
    leaf = jax.tree.leaves(x)[0]
    shapes = jax.eval_shape(functools.partial(_residual_and_matrix, problem), x)
    r, J = jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), shapes)
    assert r.shape[0] % jnp.size(problem.longest) == 0
    return SolveState(
        x=x,
        r=r,
        J=J,
        norm=jnp.asarray(jnp.inf, leaf.dtype),
        merit=jnp.asarray(jnp.inf, leaf.dtype),
        trial=x,
        newton=r,
        damping=jnp.zeros((), leaf.dtype),
        regime=jnp.zeros((), jnp.int32),
        iterations=jnp.asarray(-1, jnp.int32),
        status=jnp.asarray(status, jnp.int8),
    )


def restart(s: SolveState, x) -> SolveState:
    """A new solve from the guess x in the buffers of an old one."""
    return s._replace(
        x=x,
        trial=x,
        norm=jnp.full_like(s.norm, jnp.inf),
        merit=jnp.full_like(s.merit, jnp.inf),
        damping=jnp.zeros_like(s.damping),
        regime=jnp.zeros_like(s.regime),
        iterations=jnp.full_like(s.iterations, -1),
        status=jnp.full_like(s.status, RUNNING),
    )


def iterate(problem: Problem, settings: Settings, s: SolveState) -> SolveState:
    """Exactly one iteration: evaluate the trial, accept or damp, step. A finished solve is returned unchanged."""
    algebra, first = problem.algebra, s.iterations < 0
    r, parts = problem.evaluate(s.trial)
    norm = algebra.norm(algebra.data, r)
    merit, finite, lower = _judged(problem, s, r, norm)
    tiny = algebra.length(algebra.data, s.newton) <= settings.tolerance  # the correction that led to the trial

    accept = finite & lower
    ends = _is_root(settings, s, norm, accept, tiny)
    if problem.wanted is not None:
        ends &= ~problem.wanted(problem.data, s.trial)
    linearise = functools.partial(_linearised, problem.matrix, algebra.solve)
    operands = (problem.data, algebra.data, parts, r, s.J, s.newton)
    J, newton, sound = batched.cond_if_any(accept & ~ends & (s.status == RUNNING), _as_before, linearise, *operands)
    finite, accept = finite & sound, accept & sound

    iterations = s.iterations + 1
    best = jnp.where(accept, norm, s.norm)
    less = jnp.where(s.damping * LAMBDA_DOWN < LAMBDA_MIN, 0.0, s.damping * LAMBDA_DOWN)
    more = jnp.maximum(s.damping * LAMBDA_UP, LAMBDA_FIRST)
    damping = jnp.where(first, 0.0, jnp.where(accept, less, more))
    regime = jnp.zeros_like(s.regime)
    if problem.simplified is not None:
        rejected = ~first & ~accept & (s.damping == 0)
        goes_on = accept & (s.regime >= SECANT) & (s.regime < SECANT + SECANTS - 1)
        regime = jnp.where((rejected & (s.regime < SECANT)) | goes_on, s.regime + 1, TANGENT)
        damping = jnp.where(regime == TANGENT, damping, 0.0)
    status = _status(
        _is_root(settings, s, norm, accept, tiny),
        (first & ~finite, Status.NONFINITE_EVAL),
        (damping > LAMBDA_MAX, Status.STALLED),
        (iterations >= settings.max_iterations, Status.MAX_ITER),
    )

    def pick(new, old):
        return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old)

    x, r, merit = pick((s.trial, r, merit), (s.x, s.r, s.merit))
    damped = (damping > 0) & (s.status == RUNNING)
    operands = (algebra.data, J, r, damping, newton)
    delta = batched.cond_if_any(damped, lambda *a: a[-1], lambda *a: algebra.damped(*a[:-1]), *operands)
    if problem.simplified is not None:
        for kinds, name in ((regime == STICK, "stick"), (regime >= SECANT, "secant")):
            wanted = kinds & (s.status == RUNNING)
            step = functools.partial(_simplified_step, algebra.solve, functools.partial(problem.simplified, name))
            delta = batched.cond_if_any(wanted, lambda *a: a[-1], step, problem.data, algebra.data, x, delta)
            newton = jnp.where(wanted, delta, newton)
    size = jnp.max(jnp.abs(delta.reshape(-1, jnp.size(problem.longest))) / jnp.reshape(problem.longest, (1, -1)))
    trial = problem.retract(x, delta / jnp.maximum(1.0, size))
    after = SolveState(x, r, J, best, merit, trial, newton, damping, regime, iterations, status)
    return jax.tree.map(lambda new, old: jnp.where(s.status == RUNNING, new, old), after, s)


def solve(problem: Problem, settings: Settings, x, *, status: jax.Array | int = RUNNING) -> SolveState:
    """Iterate until no longer RUNNING. Under vmap this waits for the slowest lane."""
    return jax.lax.while_loop(
        lambda s: s.status == RUNNING,
        lambda s: iterate(problem, settings, s),
        init(problem, x, status=status),
    )


def _status(converged: jax.Array, *failures: tuple[jax.Array, Status]) -> jax.Array:
    """CONVERGED, else the first failure that applies, else RUNNING; int8."""
    status = jnp.asarray(RUNNING, jnp.int8)
    for applies, code in reversed(failures):
        status = jnp.where(applies, jnp.int8(code), status)
    return jnp.where(converged, jnp.int8(Status.CONVERGED), status)


def _residual_and_matrix(problem: Problem, x):
    r, parts = problem.evaluate(x)
    return r, parts if problem.matrix is None else problem.matrix(problem.data, parts)


def _judged(problem: Problem, s: SolveState, r: jax.Array, norm: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The merit of the trial, whether it is finite, and whether the trial is better than the point before."""
    algebra, first, finite = problem.algebra, s.iterations < 0, jnp.isfinite(norm)
    if problem.merit is None:
        merit, lower = norm, first | (norm < DECREASE * s.norm)
        doubtful = finite & ~lower & (s.status == RUNNING)
        test = functools.partial(_naturally_monotone, algebra)
        lower |= batched.cond_if_any(doubtful, _never, test, algebra.data, s.J, r, s.newton)
    else:
        merit = problem.merit(s.trial)
        finite &= jnp.isfinite(merit)
        lower = first | (merit <= s.merit + 8 * jnp.finfo(merit.dtype).eps * jnp.abs(s.merit))
    if problem.simplified is not None:  # for their steps it is enough that r does not turn round along them
        lower |= (s.regime != TANGENT) & (jnp.abs(r @ s.newton) <= jnp.abs(s.r @ s.newton))
    return merit, finite, lower


def _is_root(settings: Settings, s: SolveState, norm, accept, tiny) -> jax.Array:
    """Whether the solve ends with the trial, of this norm, or with the point before, where that is not accepted."""
    best = jnp.where(accept, norm, s.norm)
    at_rounding = tiny | (~accept & (best <= ROUNDING * settings.tolerance))
    return ((s.iterations >= 0) & ((best <= settings.tolerance) | at_rounding)) | (best == 0)


def _linearised(matrix: Callable | None, solve: Callable, data, metric, parts, r, J_old, newton_old):
    """The matrix and the Newton correction of a point that is accepted; the old ones where J is not finite."""
    J = parts if matrix is None else matrix(data, parts)
    finite = jnp.all(jnp.stack([jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(J)]))
    new = J, -solve(metric, J, r)
    return *jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, (J_old, newton_old)), finite


def _as_before(data, metric, parts, r, J, newton):
    del data, metric, parts, r
    return J, newton, jnp.ones((), bool)


def _never(data, J, r, newton) -> jax.Array:
    del data, J, r, newton
    return jnp.zeros((), bool)


def _simplified_step(solve: Callable, simplified: Callable, data, metric, x, delta) -> jax.Array:
    del delta
    r, J = simplified(data, x)
    return -solve(metric, J, r)


def _naturally_monotone(algebra: Algebra, data, J, r, newton) -> jax.Array:
    return algebra.length(data, algebra.solve(data, J, r)) < algebra.length(data, newton)
