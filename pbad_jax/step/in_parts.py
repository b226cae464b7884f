"""A step of one lane, whole or in parts, in one loop; and its derivative, at the roots of the parts that were taken.

Read next: substeps.py, which says what the parts are.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from pbad_jax.math import loops
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.solver import implicit
from pbad_jax.stage.problem import SolverConfig
from pbad_jax.step import substeps
from pbad_jax.step.info import StepInfo
from pbad_jax.step.substeps import Parts, Rule

CHANGING = ("q", "v", "time", "time_rest", "history", "history_q", "history_v", "activation")  # have derivatives


class Taken(NamedTuple):
    """What the derivative of a step needs of its parts, with a leading axis for as many as are remembered."""

    roots: Any
    length: jax.Array  # (most,) int32


def whole_or_in_parts(
    once: Callable, config: SolverConfig, rule: Rule, failed_gradient: str, model: Model, control, dt, state: State
) -> tuple[State, StepInfo]:
    """A step, in parts where it cannot be made whole, or as accurately as is asked; in one loop, compiled once.

    With an accuracy its derivative is that of the parts that were taken, at their lengths. Without, that of a whole
    step; one that had to be divided has that of a failed one.

    Args:
        once: (model, control, length, state, known=None) -> State, StepInfo, Roots; one attempt, see step.step_once.
    """
    given = jax.lax.stop_gradient((model, control, dt, state))
    attempt = jax.jit(once)  # traced once

    def part(carry: tuple[Parts, Taken]) -> tuple[Parts, Taken]:
        p, before = carry
        model, control, dt, state = given
        start, length = substeps.next_part(state, dt, p, rule)
        after, info, roots = attempt(model, control, length, start)
        then = substeps.joined(p, after, info, rule)
        made = p.info.substeps
        place = jnp.where(then.info.substeps > made, made, len(before.length))  # what is past the room is forgotten
        here = jax.tree.map(lambda all, x: all.at[place].set(x, mode="drop"), before, Taken(roots, p.length))
        return then, here

    # make the parts
    shapes = jax.eval_shape(attempt, *given)[2]
    none = substeps.none_yet(given[0], config, given[3], given[2], rule)
    begun = _in_lanes(given[3], (none, _none_taken(rule, shapes)))
    p, taken = loops.while_loop(lambda carry: substeps.go_on(carry[0], rule), part, begun)
    after, info = substeps.outcome(given[3], given[2], p, rule)

    # what changes has a derivative
    if rule.accuracy is None:
        known, at_roots = (taken, substeps.is_whole(p)), functools.partial(_at_root, once)
    else:
        known = taken, p.done == substeps.FINEST, p.info.substeps, _most_of_lanes(p.info.substeps)
        at_roots = functools.partial(_at_roots, once, failed_gradient)
    theta = (model, control, dt, state, implicit.keep(known))
    changing = implicit.known(at_roots, theta, implicit.keep(_changing(after, info)))
    return _with(after, info, changing)


def _none_taken(rule: Rule, shapes: Any) -> Taken:
    room = 1 if rule.accuracy is None else rule.most
    roots = jax.tree.map(lambda x: jnp.zeros((room, *x.shape), x.dtype), shapes)
    return Taken(roots, jnp.zeros(room, jnp.int32))


def _in_lanes(state: State, x: Any) -> Any:
    """x, under vmap in as many lanes as the state: or JAX would batch a loop that begins with x once more."""
    always = state.status == state.status
    return jax.tree.map(lambda leaf: jnp.where(always, leaf, leaf), x)


@custom_vmap
def _most_of_lanes(count: jax.Array) -> jax.Array:
    """The largest of all lanes, and the same for all of them: what is made for some is left out where none has it."""
    return count


@_most_of_lanes.def_vmap
def _(axis_size, in_batched, count):
    del axis_size, in_batched
    return _most_of_lanes(jnp.max(count)), False


def _at_root(once: Callable, theta) -> tuple:
    """What changes in a whole step with all that it depends on, where its roots are known."""
    model, control, dt, state, (taken, good) = theta
    roots = jax.tree.map(lambda x: x[0], taken.roots)
    step = implicit.checkpointed(lambda *given: _changing(*once(*given, known=(roots, good))[:2]))
    return step(model, control, dt, state)


def _at_roots(once: Callable, failed_gradient: str, theta) -> tuple:
    """The same of a step in parts: one after another, as many as any lane has."""
    model, control, dt, state, (taken, good, made, most) = theta
    begun = _changing(state)[0]

    # one part at its root: what changes of the state, and the work
    @implicit.checkpointed
    def part(model, control, dt, fields, roots, length, wanted):
        start = dataclasses.replace(state, **fields)
        after, info, _ = once(model, control, substeps.length_of(length, dt), start, known=(roots, wanted))
        fields_after, work = _changing(after, info)
        none = jax.tree.map(jnp.zeros_like, work)
        return jax.tree.map(functools.partial(jnp.where, wanted), (fields_after, work), (fields, none))

    # all parts that the search kept, one after the other
    def body(fields, given):
        k, roots, length = given
        operands = (model, control, dt, fields, roots, length, good & (k < made))
        none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(part, *operands)[1])
        return loops.cond(k < most, part, lambda *_: (fields, none), *operands)

    rows = jnp.arange(len(taken.length)), taken.roots, taken.length
    fields, work = loops.scan(body, begun, rows)
    # a lane that failed keeps where it began
    fields = jax.tree.map(functools.partial(jnp.where, good), fields, implicit.constant(begun, good, failed_gradient))
    return fields, jax.tree.map(lambda x: jnp.sum(x, axis=0), work)


def _changing(after: State, info: StepInfo | None = None) -> tuple:
    work = () if info is None or info.work is None else (info.work, info.numerical_work)
    return {name: getattr(after, name) for name in CHANGING}, work


def _with(after: State, info: StepInfo, changing: tuple) -> tuple[State, StepInfo]:
    fields, work = changing
    after = dataclasses.replace(after, **fields)
    return after, dataclasses.replace(info, work=work[0], numerical_work=work[1]) if work else info
