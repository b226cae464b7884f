"""Levenberg–Marquardt for a square system r(x; h) = 0 on a manifold, at one h. Knows no physics.

The residual is measured in a metric (dense.py): it consists of blocks of b numbers, and its norm is ‖L⁻¹ r_i‖ over all
blocks, L a (b,b) factor. The matrix J is the full one (∂r along the retraction), so with λ = 0 an iteration
is Newton's. λ > 0 only after a rejected step, and it drops out again quickly; the damped step is

    min_y ‖J̃ y + r̃‖² + λ ‖y‖²,   J̃ = L⁻¹ J L⁻ᵀ, r̃ = L⁻¹ r, δ = L⁻ᵀ y.

Two judges say what a trial is worth, by its residual alone: `judge_smooth`, and `judge_led` of problems that hand out a
guide. So of a trial that is rejected, and of the root itself, unless it is the first guess, no matrix is made.

Converged is a residual within the tolerance, or a Newton correction within it that has just been made: a stiff system's
residual has rounding errors of its own size, the correction has not. So is a residual that is nearly within it where no
step reduces it any more, and one that a Newton correction of no more than the unknowns' rounding has not halved. The
tolerance is absolute or, where that is more, a fraction of the way from h = 0 to the point: what goes fast has rounding
errors of its way's size. The first guess is never believed: at least one correction is made, because a guess within a
loose tolerance (float32) would carry its error from step to step. And a root is corrected once more, by its residual
and the matrix of the point before, where that correction is shorter than the last: it costs one substitution, and what
is left of the error is no longer the tolerance times the matrix's condition.

One iteration is one residual, one matrix and one linear solve, the same program for every lane: `iterate` evaluates the
trial point that the last call left, judges it, and leaves the next one; continuation.py loops.

Read next: step/collocation.py.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.math.batched import cond_if_any
from pbad_jax.solver.problem import Problem

RUNNING = -1  # status of an unfinished solve

LAMBDA_FIRST = 0.1  # of the whitened matrix, whose entries are of order one
LAMBDA_UP, LAMBDA_DOWN = 8.0, 0.05
LAMBDA_MIN, LAMBDA_MAX = 1e-3, 1e9
DECREASE = 1 - 1e-3  # what counts as lower
CROSSING = 100  # iterations in which the norm may rise; after them only what lowers it is accepted
PATIENCE = 3  # iterations of a guided solve in which nothing is held against a step
TURNED, SHORT = 2.0, 0.5  # of the slope at the start of a step: at its end against it, or with it still
MISTRUST, REGAIN = 0.7, 1.3  # factors of the trust
LEAST, TO_AND_FRO, BACK = 1e-4, 10, 0.5  # trust; iterations after which it counts how much of a step is taken back
LONG, CONTRACTION = 0.05, 0.5  # reach of a correction whose share of the one before is looked at, and that share
ROUNDING = 5.0  # a residual within this factor of the tolerance is accepted when nothing reduces it
HALVED = 0.5  # of the residual, what Newton's method leaves at most where rounding does not matter


class Settings(NamedTuple):
    """When to stop: the norm to reach, and how many iterations at most.

    relative: the norm to reach as a fraction of the way, if that is more. rounding: of the unknowns, in the same unit.
    keeps_matrix: whether the matrix of the root is wanted in any case.
    """

    tolerance: jax.Array | float
    max_iterations: int
    relative: float = 0.0
    rounding: jax.Array | float = 0.0
    keeps_matrix: bool = False


class SolveState(NamedTuple):
    """An unfinished or finished solve; a pytree, so that it can be carried and batched."""

    x: Any  # the best point so far
    r: jax.Array  # (n,) its residual
    J: Any  # its matrix; of a root, unless it was wanted, that of the point before
    norm: jax.Array  # () its norm
    limit: jax.Array  # () what that is measured by, the tolerance there; 1 before the first guess is evaluated
    merit: jax.Array  # () what must fall: the norm, or the problem's merit
    trial: Any  # the point to evaluate next
    newton: jax.Array  # (n,) the correction at x, Newton's −J⁻¹ r or damped; of a guided problem, with its model's r
    length: jax.Array  # () its length
    damping: jax.Array  # () λ
    guide: Any  # None: the problem has none
    step: jax.Array  # (n,) what led to the trial
    slope: jax.Array  # () the model's residual along it, at its start
    trust: jax.Array  # () of the guide
    leaps: jax.Array  # () bool: Newton's method did not contract from the first guess to where it is
    iterations: jax.Array  # () int32; -1 until the first guess has been evaluated
    status: jax.Array  # () int8, RUNNING or a Status


def init(problem: Problem, x, trust: jax.Array | float = 1.0, *, status: jax.Array | int = RUNNING) -> SolveState:
    """A solve whose first guess x is still to be evaluated. `status` other than RUNNING: a finished one."""
    dtype = jax.tree.leaves(x)[0].dtype
    r, J = problem.zeros(x)
    infinite = jnp.asarray(jnp.inf, dtype)
    return SolveState(
        # the guess stands for the best point; of infinite norm until it is evaluated
        x=x,
        r=r,
        J=J,
        norm=infinite,
        limit=jnp.ones((), dtype),
        merit=infinite,
        # the first trial is the guess itself: no correction, no damping, no step has led to it
        trial=x,
        newton=r,
        length=jnp.zeros((), dtype),
        damping=jnp.zeros((), dtype),
        guide=problem.first_guide(),
        step=r,
        slope=jnp.zeros((), dtype),
        trust=jnp.asarray(trust, dtype),
        leaps=jnp.zeros((), bool),
        # the evaluation of the guess is no iteration
        iterations=jnp.asarray(-1, jnp.int32),
        status=jnp.asarray(status, jnp.int8),
    )


def restart(problem: Problem, s: SolveState, x, trust: jax.Array | float = 1.0) -> SolveState:
    """A new solve from the guess x in the buffers of an old one."""
    return s._replace(
        x=x,
        trial=x,
        norm=jnp.full_like(s.norm, jnp.inf),
        merit=jnp.full_like(s.merit, jnp.inf),
        damping=jnp.zeros_like(s.damping),
        guide=problem.first_guide(s.guide),
        step=jnp.zeros_like(s.step),
        slope=jnp.zeros_like(s.slope),
        trust=jnp.full_like(s.trust, trust),
        leaps=jnp.zeros_like(s.leaps),
        iterations=jnp.full_like(s.iterations, -1),
        status=jnp.full_like(s.status, RUNNING),
    )


def iterate(problem: Problem, h, settings: Settings, s: SolveState, again: Any = None) -> tuple[SolveState, Any]:
    """Exactly one iteration: evaluate the trial, judge it, solve once. A finished solve is returned unchanged.

    So is one where `again` () bool: its best point is evaluated for another matrix. Returns the state, and J or that.
    """
    judge, go_on = (judge_smooth, _corrected_once_more) if s.guide is None else (judge_led, _led_on)
    runs, given, looks = s.status == RUNNING, s, jnp.zeros((), bool) if again is None else again
    if again is not None:
        there = jax.tree.map(lambda a, b: jnp.where(again, a, b), s.x, s.trial)
        s = s._replace(trial=there, guide=problem.second_guide(s.guide, again))

    # the residual alone judges the trial; a matrix is made where the solve goes on from there
    r, terms = problem.residual(s.trial, h, s.guide)
    norm = problem.metric.norm(r)
    t = _Trial(r, terms, norm, _limit(problem, settings, s, norm))
    verdict = judge(problem, h, s, t)
    first = s.iterations < 0  # a guess that is a root to the bit needs a matrix too: its branch is told by it
    wanted = verdict.better & (settings.keeps_matrix | first | ~_is_root(s, t, verdict.tiny, verdict.better))
    J, finite = _matrix(problem, s, t, wanted & runs | looks)

    # accept or reject: λ follows from that, and whether the solve ends, and how
    accept = verdict.better & finite
    root = _is_root(s, t, verdict.tiny, accept)
    damping = jnp.where(first, 0.0, jnp.where(accept, verdict.less, verdict.more))
    status = _status(
        root,
        (first & ~(verdict.finite & finite), Status.NONFINITE_EVAL),
        (~accept & verdict.stalls, Status.STALLED),
        (s.iterations + 1 >= settings.max_iterations, Status.MAX_ITER),
    )

    # the point to go on from: the trial, or the one before it
    there, here = (s.trial, t.r, t.norm, verdict.merit), (s.x, s.r, s.norm, s.merit)
    x, r, norm, merit = jax.tree.map(lambda a, b: jnp.where(accept, a, b), there, here)

    # Newton's correction there, or the damped one, and as much of it as the trust allows
    model_r = r if verdict.model_r is None else verdict.model_r
    newton = _correction(problem, s, J, r, damping) if s.guide is None else -problem.solve(J, model_r)
    length = problem.metric.length(newton)
    step = _bounded(problem, newton, jnp.sqrt(verdict.trust))
    if s.guide is not None:
        step = jnp.where(_goes_to_and_fro(s, newton), 0.5, 1.0) * step
    slope, trial = problem.metric.slope(model_r, step), problem.retract(x, step)

    # what the next call goes on from, evaluates, and judges that by
    limit = jnp.where(accept | verdict.tiny, t.limit, s.limit)
    after = s._replace(x=x, r=r, J=J, norm=norm, limit=limit, merit=merit, damping=damping, status=status)
    after = after._replace(trial=trial, newton=newton, length=length, step=step, slope=slope, trust=verdict.trust)
    after = after._replace(iterations=s.iterations + 1)
    after = go_on(problem, s, t, after, model_r, root & accept)

    # a finished solve stays as it is, and one that is looked at again
    after = jax.tree.map(lambda new, old: jnp.where(runs & ~looks, new, old), after, given)
    return after, after.J if again is None else jax.tree.map(lambda a, b: jnp.where(again, a, b), J, after.J)


class _Trial(NamedTuple):
    """What is found of the trial point before it is judged."""

    r: jax.Array
    terms: Any
    norm: jax.Array
    limit: jax.Array


class Verdict(NamedTuple):
    """What a judge says of the trial, and of what follows."""

    finite: jax.Array  # () bool
    better: jax.Array  # () bool, finite, and better than the point before
    tiny: jax.Array  # () bool, the correction that led to it was within the tolerance, and the model is the residual's
    merit: jax.Array  # () what must fall
    model_r: jax.Array | None  # (n,) the residual of the linear model there; None: the residual where it goes on from
    less: jax.Array  # () λ where it is accepted
    more: jax.Array  # () λ where it is not
    stalls: jax.Array  # () bool, where it is not the solve ends
    trust: jax.Array  # () of the guide


# --- smooth laws -----------------------------------------------------------------------------------------
# What judges a step δ is the slope along it, <r, δ>, from its start to its end: where it points back at the end more
# than twice as strongly as it pointed forward, the linear model does not reach that far. Accepted is a step that does
# not turn so, or that lowers the norm; after a hundred iterations only what lowers it, or the solve would go round a
# minimum of the norm that is no root. So Newton's method may cross the ridges that a nearly singular mechanism raises
# in any fixed norm, for the cost of one product; Deuflhard's natural test, which does the same, needs one more solve.


def judge_smooth(problem: Problem, h, s: SolveState, t: _Trial) -> Verdict:
    """By the slope, the norm, or the energy where that is the merit; λ rises where a trial is rejected."""
    # where a whole Newton correction within the tolerance led here, r is no more than rounding
    first, finite, merit = s.iterations < 0, jnp.isfinite(t.norm), problem.merit(s.trial, h)
    tiny = (s.length <= t.limit) & (s.damping == 0)

    # better is lower, or for CROSSING iterations not turned; of an energy what has not risen, to its rounding
    if merit is None:
        turned = jnp.abs(problem.metric.slope(t.r, s.step)) > TURNED * jnp.abs(s.slope)
        merit, better = t.norm, first | (t.norm < DECREASE * s.norm) | (~turned & (s.iterations < CROSSING))
    else:
        finite &= jnp.isfinite(merit)
        better = first | (merit <= s.merit + 8 * jnp.finfo(merit.dtype).eps * jnp.abs(s.merit))

    more = jnp.maximum(s.damping * LAMBDA_UP, LAMBDA_FIRST)
    less = jnp.where(s.damping * LAMBDA_DOWN < LAMBDA_MIN, 0.0, s.damping * LAMBDA_DOWN)
    return Verdict(finite, finite & better, tiny, merit, None, less, more, more > LAMBDA_MAX, s.trust)


def _corrected_once_more(problem: Problem, s: SolveState, t: _Trial, after: SolveState, model_r, root) -> SolveState:
    """A root by a correction that is shorter than the last; and whether the solve leaps.

    It does where a long correction is not shorter than half of the one before, Kantorovich's bound of a contraction.
    While that holds, the root is the only one nearby, and the one that grows out of the root the guess was made from.
    """
    del t, model_r
    last = root & (after.length < s.length)
    now, before = reach(problem, after.newton), reach(problem, s.newton)
    leaps = (s.iterations >= 0) & (now > LONG) & (now > CONTRACTION * before)
    x = jax.tree.map(lambda a, b: jnp.where(last, a, b), after.trial, after.x)
    return after._replace(x=x, leaps=s.leaps | leaps)


# --- laws with kinks -------------------------------------------------------------------------------------
# Of dry friction and contact the linear model may be good although the residual rises, since a step that is right to
# first order still ends a little too deep in something stiff. Such a problem hands out a guide, the duals of its laws,
# from which the next linear model is made, and every finite trial is taken; one that is not ends the solve. Here the
# slope, with the residual of the model at the step's end, says how far a model is trusted: where it points back too
# strongly, the trust falls. Steps are bounded by its square root, dry friction goes by it from tangents to secants,
# which do not overshoot, and so much is believed of how friction follows a normal force, the gradient of nothing. Where
# after ten iterations a step takes back most of the one before, some law is in and out, and half of it is made.


def judge_led(problem: Problem, h, s: SolveState, t: _Trial) -> Verdict:
    """By being finite; the slope makes the trust."""
    del h  # no energy is minimised
    # a correction within the tolerance counts only where model and residual agree
    model_r = problem.modelled(t.terms, t.r)
    beyond, finite = problem.metric.norm(model_r - t.r), jnp.isfinite(t.norm)
    tiny = (s.length <= t.limit) & (s.damping == 0) & (beyond <= ROUNDING * t.limit)

    # the trust falls where the slope turns, and grows faster where it goes on as it began
    end, begin = problem.metric.slope(model_r, s.step), jnp.abs(s.slope)
    turned = (end > TURNED * begin) & (s.iterations >= PATIENCE)
    gain = jnp.where(end < -SHORT * begin, 1 / MISTRUST, REGAIN)
    trust = jnp.where(turned, jnp.maximum(LEAST, MISTRUST * s.trust), jnp.minimum(1.0, gain * s.trust))

    none, better = jnp.zeros_like(s.damping), finite & jnp.isfinite(beyond)
    return Verdict(finite, better, tiny, t.norm, model_r, none, none, s.iterations >= 0, trust)


def _led_on(problem: Problem, s: SolveState, t: _Trial, after: SolveState, model_r, root) -> SolveState:
    """With new duals for the next linear model."""
    del model_r, root
    return after._replace(guide=problem.next_guide(s.guide, t.terms, after.step, after.trust))


def _goes_to_and_fro(s: SolveState, newton: jax.Array) -> jax.Array:
    """Whether a correction takes back most of the one before, and is mostly that."""
    back, before = -(newton @ s.newton), s.newton @ s.newton
    return (s.iterations >= TO_AND_FRO) & (back > BACK * before) & (back**2 > BACK * before * (newton @ newton))


def _limit(problem: Problem, settings: Settings, s: SolveState, norm: jax.Array) -> jax.Array:
    """The tolerance at the trial, (): rounding's, where a Newton correction of its size has not halved the residual."""
    limit = jnp.maximum(settings.tolerance, settings.relative * problem.way(s.trial))
    rounded = (s.length <= settings.rounding) & (s.damping == 0) & (norm >= HALVED * s.norm)
    return jnp.where(rounded, jnp.maximum(limit, settings.rounding), limit)


def _is_root(s: SolveState, t: _Trial, tiny, accept) -> jax.Array:
    """Whether the solve ends with the trial, or with the point before, where that is not accepted."""
    best, limit = jnp.where(accept, t.norm, s.norm), jnp.where(accept, t.limit, s.limit)
    at_rounding = tiny | (~accept & (best <= ROUNDING * limit))
    return ((s.iterations >= 0) & ((best <= limit) | at_rounding)) | (best == 0)


def _matrix(problem: Problem, s: SolveState, t: _Trial, wanted):
    """The matrix of the point that was evaluated where it is wanted, else the old one; whether it is finite."""
    as_before = lambda problem, terms, J: (J, jnp.ones((), bool))  # noqa: E731

    def anew(problem, terms, J_old):
        J = problem.matrix(terms)
        finite = jnp.all(jnp.stack([jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(J)]))
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), J, J_old), finite

    return cond_if_any(wanted, as_before, anew, problem, t.terms, s.J)


def _correction(problem: Problem, s: SolveState, J, r: jax.Array, damping) -> jax.Array:
    """Newton's, −J⁻¹ r, or where λ > 0 the damped one: one solve."""

    def plain(problem, J, r, damping):
        del problem, damping
        return J, r

    wanted = (damping > 0) & (s.status == RUNNING)
    A, b = cond_if_any(wanted, plain, lambda problem, *a: problem.metric.damped(*a), problem, J, r, damping)
    return -problem.solve(A, b)


def reach(problem: Problem, delta: jax.Array) -> jax.Array:
    """The largest |δ| of an unknown over what its linear model can be trusted with, ()."""
    longest = problem.max_correction
    return jnp.max(jnp.abs(delta.reshape(-1, longest.size)) / jnp.reshape(longest, (1, -1)))


def _bounded(problem: Problem, delta: jax.Array, trust: jax.Array) -> jax.Array:
    """A step that no unknown is moved further by than `trust` of that."""
    return delta / jnp.maximum(1.0, reach(problem, delta) / trust)


def _status(converged: jax.Array, *failures: tuple[jax.Array, Status]) -> jax.Array:
    """CONVERGED, else the first failure that applies, else RUNNING; int8."""
    status = jnp.asarray(RUNNING, jnp.int8)
    for applies, code in reversed(failures):
        status = jnp.where(applies, jnp.int8(code), status)
    return jnp.where(converged, jnp.int8(Status.CONVERGED), status)
