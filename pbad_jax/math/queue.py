"""Loops of many lanes in which none waits for the slowest. Knows no model.

A `while_loop` under vmap goes on for all lanes until the last is done. Here some of the lanes are side by side in
slots, and those that are done make room for others: the work follows the sum of all lanes' iterations, and not their
number times the most that one of them takes. (An accelerator begins with all of them, and has slots for the last.)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from pbad_jax.math import loops
from pbad_jax.math.batched import lanes_are_here
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.traced import traced_once

ROOM = 0.25  # share of the slots that must be free before others move in
CACHE_CPU = 96 * 1024  # bytes of the states that are side by side on a CPU
FEWEST_CPU, MOST_CPU = 8, 32  # of them: many small ones share what starting a kernel costs, few wait for the slowest
SHARE, SLOTS = 16, 64  # elsewhere: one slot for so many lanes, and at least so many slots


def run_until_done(step: Callable, is_running: Callable, given: Any, state: Any) -> Any:
    """state = step(given, state) while is_running(state); both are pytrees of arrays, `given` does not change."""
    # trace the step once for all the loops below
    given, state = loops.alike((given, state))
    step = traced_once(step, given, state)

    # one lane: a plain loop
    @custom_vmap
    def run(given, state):
        return loops.while_loop(is_running, lambda s: step(given, s), state)

    # many lanes: some are side by side in slots, others wait for one (see the header)
    @run.def_vmap
    @with_all_bits
    def _(axis_size, in_batched, given, state):
        # every lane has a state of its own; `given` may be shared
        state = jax.tree.map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (axis_size, *x.shape)), state, in_batched[1]
        )
        axes = jax.tree.map(lambda batched: 0 if batched else None, in_batched[0])

        # slots: none where all lanes fit side by side, or where they lie on several devices
        on_cpu = jax.default_backend() == "cpu"
        slots = slots_on_cpu(state, axis_size) if on_cpu else max(SLOTS, axis_size // SHARE)
        if slots >= axis_size or not lanes_are_here():
            slots = 0

        # a CPU queues from the start, an accelerator only the last lanes that are running
        if not (on_cpu and slots):  # an accelerator takes as long for few lanes as for many
            state = _side_by_side(step, is_running, axes, given, state, slots)
        if slots:
            state = _in_turn(step, is_running, axes, given, state, slots)
        return state, jax.tree.map(lambda _: True, state)

    return run(given, state)


def slots_on_cpu(state: Any, lanes: int) -> int:
    """How many of these lanes are side by side."""
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state)) // max(1, lanes)
    return min(MOST_CPU, max(FEWEST_CPU, CACHE_CPU // max(1, size)))


def _side_by_side(step: Callable, is_running: Callable, axes, given, state, left: int):
    """All lanes until no more than `left` are running; `step` leaves one that is done as it is."""
    each = jax.vmap(step, (axes, 0))
    return loops.while_loop(lambda s: jnp.sum(jax.vmap(is_running)(s)) > left, lambda s: each(given, s), state)


def _in_turn(step: Callable, is_running: Callable, axes, given, state, slots: int):
    """Take the lanes that are running to their end, `slots` at a time: each, in its order, as a slot comes free."""
    # the queue: lanes that are running, in their order; places from `waiting` on are empty
    lanes = len(jax.tree.leaves(state)[0])
    running = jax.vmap(is_running)(state)
    order = jnp.argsort(~running, stable=True).astype(jnp.int32)  # those that run first
    waiting = jnp.sum(running).astype(jnp.int32)

    def at(tree, lane):
        return jax.tree.map(lambda x: x[lane], tree)

    def admit(place):
        """The lanes (slots,) of these places in the queue; past the last lane where there is none."""
        return jnp.where(place < waiting, order[jnp.minimum(place, lanes - 1)], lanes)

    def some_end(carry):
        all_states, lane, next_place = carry

        # the lanes in the slots; an empty slot holds number `lanes`, and reads the last lane instead
        own = jnp.minimum(lane, lanes - 1)
        here = jax.tree.map(lambda x, axis: x if axis is None else x[own], given, axes)

        # step all slots until enough are free for others to move in, or all are done where none waits
        taken = lane < lanes
        flying, wanted = jnp.sum(taken), jnp.where(next_place < waiting, ROOM, 1.0)
        each = jax.vmap(step, (axes, 0))

        def go_on(s):
            still = jnp.sum(jax.vmap(is_running)(s) & taken)
            return (still > 0) & (flying - still < wanted * flying)

        states = loops.while_loop(go_on, lambda s: each(here, s), at(all_states, own))

        # results go back to their lanes, those of empty slots nowhere
        all_states = jax.tree.map(lambda x, new: x.at[lane].set(new, mode="drop"), all_states, states)

        # the next in the queue move into the free slots
        free = ~(jax.vmap(is_running)(states) & taken)
        place = next_place + jnp.cumsum(free).astype(jnp.int32) - 1
        return all_states, jnp.where(free, admit(place), lane), next_place + jnp.sum(free).astype(jnp.int32)

    # the head of the queue takes the slots; the end is when no slot holds a lane
    first = admit(jnp.arange(slots, dtype=jnp.int32))
    carry = state, first, jnp.asarray(slots, jnp.int32)
    return loops.while_loop(lambda c: jnp.any(c[1] < lanes), some_end, carry)[0]
