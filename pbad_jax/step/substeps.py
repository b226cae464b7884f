"""A step in parts where it cannot be made whole: the fallback `on_failure="substep"`.

The first part is the whole step, so that an easy step costs what it costs without. After a failure the next part is
half as long, after a success it may double again: so the moment of an impact is found by bisection, for as long as what
fails is a part that would go through something (BRANCH). A scheme with history starts afresh in the parts, because its
nodes must be equidistant.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.math import loops
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, later
from pbad_jax.solver import implicit
from pbad_jax.stage.problem import SolverConfig
from pbad_jax.step.info import StepInfo, nothing_yet

FINEST = 4096  # a substep is at least dt/4096
LEAST = 64  # of these units; shorter ones are made after BRANCH alone
MOST_TRIES = 128  # parts of one step, failed ones included
CHANGING = ("q", "v", "time", "time_rest", "history", "history_q", "history_v", "activation")  # have derivatives


def whole_or_in_parts(
    once: Callable, config: SolverConfig, model: Model, control, dt, state: State
) -> tuple[State, StepInfo]:
    """A step, in parts where it cannot be made whole; in one loop, so that a step is compiled once.

    The derivative of a whole step is taken at its roots; that of a step in parts is that of a failed one.

    Args:
        once: (model, control, length, state, known=None) -> State, StepInfo, Roots; one attempt, see step.step_once.
    """
    given = jax.lax.stop_gradient((model, control, dt, state))
    attempt = jax.jit(once)  # traced once

    def part(carry):
        p, first = carry
        model, control, dt, state = given
        start, length = next_part(state, dt, p)
        after, info, roots = attempt(model, control, length, start)
        roots = jax.tree.map(lambda a, b: jnp.where(p.tries == 0, a, b), roots, first)
        return joined(p, after, info), roots

    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(attempt, *given)[2])
    begun = _in_lanes(given[3], (none_yet(given[0], config, given[3]), none))
    p, roots = loops.while_loop(lambda carry: go_on(carry[0]), part, begun)
    after, info = outcome(given[3], given[2], p)
    at_root = functools.partial(_at_root, once)
    theta = (model, control, dt, state, implicit.keep((roots, is_whole(p))))
    changing = implicit.known(at_root, theta, implicit.keep(_changing(after, info)))
    return _with(after, info, changing)


def _in_lanes(state: State, x: Any) -> Any:
    """x, under vmap in as many lanes as the state: or JAX would batch a loop that begins with x once more."""
    always = state.status == state.status
    return jax.tree.map(lambda leaf: jnp.where(always, leaf, leaf), x)


def _at_root(once: Callable, theta) -> tuple:
    """What changes in a step with all that it depends on, where its roots are known."""
    model, control, dt, state, known = theta
    step = implicit.checkpointed(lambda *given: _changing(*once(*given, known=known)[:2]))
    return step(model, control, dt, state)


def _changing(after: State, info: StepInfo) -> tuple:
    work = () if info.work is None else (info.work, info.numerical_work)
    return {name: getattr(after, name) for name in CHANGING}, work


def _with(after: State, info: StepInfo, changing: tuple) -> tuple[State, StepInfo]:
    fields, work = changing
    after = dataclasses.replace(after, **fields)
    return after, dataclasses.replace(info, work=work[0], numerical_work=work[1]) if work else info


class Parts(NamedTuple):
    """A step that is being made, whole or in parts; lengths in units of dt/FINEST."""

    state: State  # after what is done
    info: StepInfo  # of all that was tried
    done: jax.Array  # () int32
    length: jax.Array  # () int32, of the next part
    tries: jax.Array  # () int32


def none_yet(model: Model, config: SolverConfig, state: State) -> Parts:
    """Before the first try."""
    zero = jnp.int32(0)
    return Parts(state, nothing_yet(model, config.account, config.condition), zero, jnp.int32(FINEST), zero)


def go_on(p: Parts) -> jax.Array:
    """Whether there is a part to be made, () bool."""
    return (p.done < FINEST) & (p.length > 0) & (p.tries < MOST_TRIES)


def next_part(state: State, dt: jax.Array, p: Parts) -> tuple[State, jax.Array]:
    """What the next part starts from and its length, s; FROZEN where there is none. state, dt: of the whole step."""
    wanted = go_on(p)
    start = dataclasses.replace(
        p.state,
        status=jnp.where(wanted, state.status, jnp.int8(Status.FROZEN)),
        has_history=state.has_history & (p.tries == 0),
    )
    return start, dt * (p.length / FINEST).astype(dt.dtype)


def joined(p: Parts, after: State, info: StepInfo) -> Parts:
    """With what became of the next part."""
    good = info.status == Status.CONVERGED
    hopeless = (info.status == Status.FROZEN) | (info.status == Status.NONFINITE_INPUT)
    done = jnp.where(good, p.done + p.length, p.done)
    wider = jnp.where(good & (done < FINEST) & (done % (2 * p.length) == 0), 2 * p.length, p.length)
    least = jnp.where(info.status == Status.BRANCH, 1, LEAST)
    half = jnp.where(p.length >= 2 * least, p.length // 2, 0)
    length = jnp.where(good, wider, jnp.where(hopeless, 0, half))
    return Parts(after, _together(p.info, info), done.astype(jnp.int32), length.astype(jnp.int32), p.tries + 1)


def is_whole(p: Parts) -> jax.Array:
    """Whether the step was made in one piece, () bool."""
    return (p.done == FINEST) & (p.tries == 1)


def outcome(state: State, dt: jax.Array, p: Parts) -> tuple[State, StepInfo]:
    """The State after the step and its StepInfo, once there is nothing to `go_on` with."""
    complete, whole = p.done == FINEST, is_whole(p)
    tired = ~complete & (p.info.status == Status.CONVERGED)  # MOST_TRIES
    status = jnp.where(tired, jnp.int8(Status.MAX_ITER), p.info.status)

    def where(good, x, y):
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), x, y)

    after = dataclasses.replace(
        where(complete, p.state, state),
        **where(complete, later(state, dt), {"time": state.time, "time_rest": state.time_rest}),
        history=where(whole, p.state.history, state.history),
        has_history=jnp.where(complete, whole & p.state.has_history, state.has_history),
        status=status,
    )
    info = dataclasses.replace(
        p.info,
        status=status,
        substeps=jnp.maximum(p.info.substeps, 1),
        grad_ok=p.info.grad_ok & whole,
        error=jnp.where(complete, p.info.error, jnp.nan),
        reached=jnp.where(p.tries > 1, p.done / FINEST, p.info.reached).astype(dt.dtype),
    )
    return after, info


def _together(done: StepInfo, part: StepInfo) -> StepInfo:
    """The account of all parts so far: the last one's status, sums of iterations, parts and work."""

    def both(f, a, b):
        return None if b is None else f(a, b)

    return dataclasses.replace(
        part,
        iterations=done.iterations + part.iterations,
        error=done.error + jnp.where(part.status == Status.CONVERGED, part.error, 0.0),
        substeps=done.substeps + jnp.where(part.status == Status.CONVERGED, 1, 0).astype(jnp.int32),
        work=both(jnp.add, done.work, part.work),
        numerical_work=both(jnp.add, done.numerical_work, part.numerical_work),
        condition=both(jnp.maximum, done.condition, part.condition),
    )
