"""A step in parts where it cannot be made whole: the fallback `on_failure="substep"`."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.model import State
from pbad_jax.step_info import StepInfo

FINEST = 64  # a substep is at least dt/64
MOST_TRIES = 128  # parts of one step, failed ones included


class _Parts(NamedTuple):
    """A step that is being made in parts; lengths in units of dt/FINEST."""

    state: State
    info: StepInfo
    done: jax.Array  # () int32
    length: jax.Array  # () int32, of the next part
    tries: jax.Array  # () int32


def in_parts(
    attempt: Callable[[jax.Array, State], tuple[State, StepInfo]], dt: jax.Array, state: State, none: StepInfo
) -> tuple[State, StepInfo]:
    """The whole step if it can be solved, else parts of it: halved after a failure, doubled again after a success.

    The first try is the whole step, so an easy step costs what it costs without; compiled once, in one loop.
    A scheme with history starts afresh in the parts, because its nodes must be equidistant.

    Args:
        attempt: (length, state) -> one step. dt: the whole length, s. state: at its start.
        none: the StepInfo of nothing.
    """

    def go_on(p: _Parts) -> jax.Array:
        return (p.done < FINEST) & (p.length > 0) & (p.tries < MOST_TRIES)

    def part(p: _Parts) -> _Parts:
        whole = p.length == FINEST
        before = dataclasses.replace(p.state, status=state.status, has_history=p.state.has_history & whole)
        after, info = attempt(dt * (p.length / FINEST).astype(dt.dtype), before)
        good = info.status == Status.CONVERGED
        done = jnp.where(good, p.done + p.length, p.done)
        wider = jnp.where(good & (done % (2 * p.length) == 0), 2 * p.length, p.length)
        hopeless = (info.status == Status.FROZEN) | (info.status == Status.NONFINITE_INPUT)
        length = jnp.where(good, wider, jnp.where(hopeless, 0, p.length // 2)).astype(jnp.int32)
        return _Parts(after, _together(p.info, info), done.astype(jnp.int32), length, p.tries + 1)

    first = _Parts(state, none, jnp.int32(0), jnp.int32(FINEST), jnp.int32(0))
    last = jax.lax.while_loop(go_on, part, first)
    complete, divided = last.done == FINEST, last.tries > 1
    after = jax.tree.map(lambda a, b: jnp.where(complete, a, b), last.state, state)
    tired = ~complete & (last.info.status == Status.CONVERGED)  # MOST_TRIES
    status = jnp.where(tired, jnp.int8(Status.MAX_ITER), last.info.status)
    after = dataclasses.replace(
        after,
        status=status,
        time=jnp.where(complete, state.time + dt, state.time),
        has_history=jnp.where(complete & divided, False, after.has_history),
    )
    info = dataclasses.replace(
        last.info,
        status=status,
        substeps=jnp.maximum(last.info.substeps, 1),
        reached=jnp.where(divided, last.done / FINEST, last.info.reached).astype(dt.dtype),
    )
    return after, info


def _together(done: StepInfo, part: StepInfo) -> StepInfo:
    """The account of all parts so far: the last one's status, sums of iterations, parts and work."""

    def plus(a, b):
        return None if b is None else a + b

    return dataclasses.replace(
        part,
        iterations=done.iterations + part.iterations,
        substeps=done.substeps + jnp.where(part.status == Status.CONVERGED, 1, 0).astype(jnp.int32),
        work=plus(done.work, part.work),
        numerical_work=plus(done.numerical_work, part.numerical_work),
    )
