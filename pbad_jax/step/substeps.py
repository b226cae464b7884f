"""A step in parts where it cannot be made whole: the fallback `on_failure="substep"`."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, later
from pbad_jax.solver import implicit
from pbad_jax.step.info import StepInfo

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
    attempt: Callable[..., tuple[State, StepInfo]],
    failed: str,
    model: Model,
    control,
    dt: jax.Array,
    state: State,
    whole: tuple[State, StepInfo],
) -> tuple[State, StepInfo]:
    """The `whole` step if it was solved, else parts of it: halved after a failure, doubled again after a success.

    An easy step costs what it costs without. A scheme with history starts afresh in the parts, because its nodes must
    be equidistant. The derivative of a step in parts is that of a failed one: zero, or poisoned.

    Args:
        attempt: (model, control, length, state) -> one step. failed: the derivative where it fails, "zero" or "nan".
        dt: the whole length, s. state: at its start. whole: what `attempt` made of it.
    """

    def go_on(p: _Parts) -> jax.Array:
        return (p.done < FINEST) & (p.length > 0) & (p.tries < MOST_TRIES)

    def part(model, control, dt, p: _Parts) -> _Parts:
        before = dataclasses.replace(p.state, status=state.status, has_history=jnp.zeros((), bool))
        after, info = attempt(model, control, dt * (p.length / FINEST).astype(dt.dtype), before)
        good = info.status == Status.CONVERGED
        done = jnp.where(good, p.done + p.length, p.done)
        wider = jnp.where(good & (done % (2 * p.length) == 0), 2 * p.length, p.length)
        length = jnp.where(good, wider, p.length // 2).astype(jnp.int32)
        return _Parts(after, _together(p.info, info), done.astype(jnp.int32), length, p.tries + 1)

    after, info = whole
    solved = info.status == Status.CONVERGED
    hopeless = (info.status == Status.FROZEN) | (info.status == Status.NONFINITE_INPUT)
    first = _Parts(
        state=dataclasses.replace(after, status=state.status),
        info=dataclasses.replace(info, substeps=jnp.where(solved, 1, 0).astype(jnp.int32)),
        done=jnp.where(solved, FINEST, 0).astype(jnp.int32),
        length=jnp.where(hopeless, 0, FINEST // 2).astype(jnp.int32),
        tries=jnp.int32(1),
    )
    fixed = jax.lax.stop_gradient((model, control, dt))
    last = jax.lax.while_loop(go_on, lambda p: part(*fixed, p), jax.lax.stop_gradient(first))
    complete, divided = last.done == FINEST, last.tries > 1
    tired = ~complete & (last.info.status == Status.CONVERGED)  # MOST_TRIES
    status = jnp.where(tired, jnp.int8(Status.MAX_ITER), last.info.status)
    made = divided & complete

    def there(x, y):
        return jnp.where(made, implicit.constant(x, ~divided, failed), y)

    after = dataclasses.replace(
        after,
        q=there(last.state.q, after.q),
        v=there(last.state.v, after.v),
        **{name: there(x, getattr(after, name)) for name, x in later(state, dt).items()},
        has_history=after.has_history & ~made,
        status=status,
    )
    info = dataclasses.replace(
        last.info,
        status=status,
        substeps=jnp.maximum(last.info.substeps, 1),
        grad_ok=last.info.grad_ok & ~divided,
        reached=jnp.where(divided, last.done / FINEST, last.info.reached).astype(dt.dtype),
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
