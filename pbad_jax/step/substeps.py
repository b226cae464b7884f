"""A step in parts where it cannot be made whole: the fallback `on_failure="substep"`.

The first part is the whole step, so that an easy step costs what it costs without. After a failure the next part is
half as long, after a success it may double again. A scheme with history starts afresh in the parts, because its nodes
must be equidistant.
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

FINEST = 64  # a substep is at least dt/64
MOST_TRIES = 128  # parts of one step, failed ones included


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
    length = jnp.where(good, wider, jnp.where(hopeless, 0, p.length // 2))
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
        reached=jnp.where(p.tries > 1, p.done / FINEST, p.info.reached).astype(dt.dtype),
    )
    return after, info


def _together(done: StepInfo, part: StepInfo) -> StepInfo:
    """The account of all parts so far: the last one's status, sums of iterations, parts and work."""

    def joined(f, a, b):
        return None if b is None else f(a, b)

    return dataclasses.replace(
        part,
        iterations=done.iterations + part.iterations,
        substeps=done.substeps + jnp.where(part.status == Status.CONVERGED, 1, 0).astype(jnp.int32),
        work=joined(jnp.add, done.work, part.work),
        numerical_work=joined(jnp.add, done.numerical_work, part.numerical_work),
        condition=joined(jnp.maximum, done.condition, part.condition),
    )
