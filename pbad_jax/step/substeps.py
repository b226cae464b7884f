"""A step in parts: where it cannot be made whole (`on_failure="substep"`), or not as accurately as asked (`accuracy`).

The first part is the whole step, so that an easy step costs what it costs without. After a failure the next part is
half as long; after a success it may double again: so the moment of an impact is found by bisection, for as long as what
fails is a part that would go through something (BRANCH).

With an accuracy ε a part of the length h of a step dt is taken if its error e (`info.error`) is at most what it is
allowed: its share ε h/dt, or a third of what the parts before it left of ε, if that is more, because a foot that lands
needs more than the flight before it. The next length follows from e and the order p of the scheme, as
h (2e/allowed)^(−1/(p+1)); after one that was not taken, since it was a contact that came between, by the square root.
The first one is the whole step again, or twice the last part of the step before, which the state's history spans:
where feet strike, whole steps would be tried in vain.

Here is which part comes next; in_parts.py makes them in one loop, rollouts/lane.py beside those of other lanes.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, later
from pbad_jax.stage.problem import SolverConfig
from pbad_jax.step.info import StepInfo, nothing_yet

FINEST = 4096  # a substep is at least dt/4096
LEAST = 64  # of these units; shorter ones are made after BRANCH, or for accuracy, alone
MOST_TRIES = 128  # parts of one step, failed ones included
TRIES_OF_A_PART = 3  # with an accuracy: so many times as many tries as parts

LEFT = 1 / 3  # of the accuracy that is left, what one part may take
AIM = 0.5  # of what a part is allowed, what its length is chosen for
AGAIN = 2  # times the last part of a step is tried in the next one
WIDER, NARROWER = 4.0, 0.1  # the next part is at most and at least so many times as long


class Rule(NamedTuple):
    """Which parts are taken, and how many there may be: static."""

    accuracy: float | None  # of q over dt; None: whatever converges
    order: int  # of the scheme
    span: float  # of its history, in steps
    most: int  # parts of a step

    @property
    def tries(self) -> int:
        """Parts of one step, failed ones included."""
        return MOST_TRIES if self.accuracy is None else TRIES_OF_A_PART * self.most


class Parts(NamedTuple):
    """A step that is being made, whole or in parts; lengths in units of dt/FINEST."""

    state: State  # after what is done
    info: StepInfo  # of all that was tried
    done: jax.Array  # () int32
    length: jax.Array  # () int32, of the next part
    tries: jax.Array  # () int32


def none_yet(model: Model, config: SolverConfig, state: State, dt, rule: Rule) -> Parts:
    """Before the first try."""
    zero = jnp.int32(0)
    info = dataclasses.replace(nothing_yet(model, config.account, config.condition), grad_ok=jnp.ones((), bool))
    return Parts(state, info, zero, _first_length(state, dt, rule), zero)


def _first_length(state: State, dt, rule: Rule) -> jax.Array:
    """Of the first part, () int."""
    whole = jnp.int32(FINEST)
    if rule.accuracy is None:
        return whole
    last = state.history_span / (rule.span * dt)  # part of the step before, in this step
    shorter = state.has_history & (last > 0) & (last < 1)
    units = (AGAIN * FINEST * jnp.where(shorter, last, 1.0)).astype(jnp.int32)
    return jnp.where(shorter, _of_what_is_left(_three_digits(units), whole), whole)


def go_on(p: Parts, rule: Rule) -> jax.Array:
    """Whether there is a part to be made, () bool."""
    more = (p.done < FINEST) & (p.length > 0) & (p.tries < rule.tries)
    return more if rule.accuracy is None else more & (p.info.substeps < rule.most)


def next_part(state: State, dt: jax.Array, p: Parts, rule: Rule) -> tuple[State, jax.Array]:
    """What the next part starts from and its length, s; FROZEN where there is none. state, dt: of the whole step."""
    start = dataclasses.replace(
        p.state,
        status=jnp.where(go_on(p, rule), state.status, jnp.int8(Status.FROZEN)),
        has_history=p.state.has_history & ((p.tries == 0) | (p.state.history_span > 0)),
    )
    return start, length_of(p.length, dt)


def length_of(units: jax.Array, dt: jax.Array) -> jax.Array:
    """Of a part, s."""
    return dt * (units / FINEST).astype(dt.dtype)


def joined(p: Parts, after: State, info: StepInfo, rule: Rule) -> Parts:
    """With what became of the next part."""
    taken, length = _is_taken(p, info, rule), _halved(p, info, rule)
    done = jnp.where(taken, p.done + p.length, p.done)

    # how long the next one is: by bisection, or by the error, where a part that is not taken leaves but its iterations
    solved = info.status == Status.CONVERGED
    if rule.accuracy is None:
        wider = (done < FINEST) & (done % (2 * p.length) == 0)
        length = jnp.where(solved, jnp.where(wider, 2, 1) * p.length, length)
    else:
        length = jnp.where(solved, _by_error(p, info.error, taken, FINEST - done, rule, rule.accuracy), length)
        after = jax.tree.map(lambda a, b: jnp.where(taken | ~solved, a, b), after, p.state)

    told = _together(p.info, info, taken)
    return Parts(after, told, done.astype(jnp.int32), length.astype(jnp.int32), p.tries + 1)


def _is_taken(p: Parts, info: StepInfo, rule: Rule) -> jax.Array:
    """Whether the next part, which ended so, is one of the step, () bool."""
    solved = info.status == Status.CONVERGED
    return solved if rule.accuracy is None else solved & (info.error <= _allowed(p, rule.accuracy))


def _allowed(p: Parts, accuracy: float) -> jax.Array:
    """The error that the next part may have, ()."""
    spent = p.info.error
    return jnp.maximum(accuracy * (p.length / FINEST).astype(spent.dtype), LEFT * (accuracy - spent))


def _halved(p: Parts, info: StepInfo, rule: Rule) -> jax.Array:
    """The next length after a failure, () int; 0: there is none."""
    hopeless = (info.status == Status.FROZEN) | (info.status == Status.NONFINITE_INPUT)
    least = jnp.where(info.status == Status.BRANCH, 1, LEAST if rule.accuracy is None else 1)
    return jnp.where((p.length >= 2 * least) & ~hopeless, p.length // 2, 0)


def _by_error(p: Parts, error: jax.Array, taken: jax.Array, left: jax.Array, rule: Rule, accuracy: float) -> jax.Array:
    """The next length after a part with this error, () int; there is so much `left` of the step."""
    off = jnp.maximum(error / (AIM * _allowed(p, accuracy)), 1e-9)
    off = jnp.where(jnp.isfinite(off), off, jnp.inf)
    factor = jnp.where(taken, off ** (-1 / (rule.order + 1)), jnp.minimum(off**-0.5, 0.7))
    length = _three_digits((p.length * jnp.clip(factor, NARROWER, WIDER)).astype(jnp.int32))
    return _of_what_is_left(jnp.where(~taken & (p.length == 1), 0, length), left)


def _of_what_is_left(length: jax.Array, left: jax.Array) -> jax.Array:
    """This length, and what remains after it is no sliver, () int."""
    return jnp.where(length >= left, left, jnp.where(2 * length > left, (left + 1) // 2, length))


def _three_digits(length: jax.Array) -> jax.Array:
    """No more than `length`, in three binary digits, and at least 1: so a small change of a state seldom changes it."""
    length = jnp.maximum(length, 1)
    past = jnp.maximum(29 - jax.lax.clz(length), 0)
    return jnp.left_shift(jnp.right_shift(length, past), past)


def is_whole(p: Parts) -> jax.Array:
    """Whether the step was made in one piece, () bool."""
    return (p.done == FINEST) & (p.tries == 1)


def outcome(state: State, dt: jax.Array, p: Parts, rule: Rule) -> tuple[State, StepInfo]:
    """The State after the step and its StepInfo, once there is nothing to `go_on` with."""
    # CONVERGED and not at the end is a lane that was out of tries
    complete, whole = p.done == FINEST, is_whole(p)
    tired = ~complete & (p.info.status == Status.CONVERGED)
    too_many = Status.MAX_ITER if rule.accuracy is None else Status.INACCURATE
    status = jnp.where(tired, jnp.int8(too_many), p.info.status)

    def where(good, x, y):
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), x, y)

    # the state at the end, or the one before, on the clock of whole steps
    after = dataclasses.replace(
        where(complete, p.state, state),
        **where(complete, later(state, dt), {"time": state.time, "time_rest": state.time_rest}),
        status=status,
    )
    # of its parts together; a derivative is of all parts, or of a step that was not divided
    has_gradient = whole if rule.accuracy is None else complete
    info = dataclasses.replace(
        p.info,
        status=status,
        substeps=jnp.maximum(p.info.substeps, 1),
        grad_ok=p.info.grad_ok & has_gradient,
        error=jnp.where(complete, p.info.error, jnp.nan),
        reached=jnp.where(p.tries > 1, p.done / FINEST, p.info.reached).astype(dt.dtype),
    )
    return after, info


def _together(done: StepInfo, part: StepInfo, taken: jax.Array) -> StepInfo:
    """The account of all parts so far: the last one's status, sums of iterations, and of what was taken."""

    def with_part(f, a, b):
        return None if b is None else jnp.where(taken, f(a, b), a)

    return dataclasses.replace(
        part,
        iterations=done.iterations + part.iterations,
        error=with_part(jnp.add, done.error, part.error),
        substeps=done.substeps + taken.astype(jnp.int32),
        grad_ok=done.grad_ok & (part.grad_ok | ~taken),
        work=with_part(jnp.add, done.work, part.work),
        numerical_work=with_part(jnp.add, done.numerical_work, part.numerical_work),
        condition=with_part(jnp.maximum, done.condition, part.condition),
    )
