"""Many trajectories: every pass over the lanes is one Levenberg–Marquardt iteration of each, not one step of each.

Lanes of a vmapped rollout wait in every step for the one that needs most iterations. Here (the paper's section on its
GPU) a lane whose iteration ends a step commits it and goes on with its next step, whatever the others do. `width` slots
are served side by side; a slot whose trajectory is over takes the next one that waits. So the work is the sum of the
iterations of all steps, and what a slot computes does not depend on the others.

A step begins with a turn of the loop and ends with it: what it begins from went through the loop's memory, whether it
is a lane's first or one that follows. Else XLA would compute the state anew where the next step reads it, with other
roundings than those of the row that is kept, and a rollout in two halves would not be the whole.

A commit takes kinematics and a mass matrix of all slots, about what a pass takes. So those that are ready wait for more
until they have wasted as much, COMMIT passes of all slots (as who rents skis until that has cost a pair): where lanes
are even, all are ready together, where they are not, nobody waits long. Or they wait for all, which is a step of every
lane at a time. Schemes whose stages are solved in turn (step/method.py) go from one to the next likewise, between
commits. L-BFGS, whose iterations are loops of their own, solves all at once.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.math import loops
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts.lane import Callbacks, Programs, Slot, lane_of
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.step.options import Options, solved_for

COMMIT = 1  # passes that a commit costs, about


class _BatchState(NamedTuple):
    """All slots, with a leading axis, and what has come of them."""

    slots: Slot
    complete: jax.Array  # (slots,) bool, whether a step begins
    through: jax.Array  # (slots,) bool, whether a step or the next part of one begins
    waiting: jax.Array  # () int32, the next trajectory without a slot
    written: Any  # (lanes, T, ...)
    ends: tuple  # State and carry (lanes, ...) of the trajectories that are over
    last: jax.Array  # (lanes,) int32, the last row written
    passes: jax.Array
    rounds: jax.Array
    used: jax.Array  # (slots,) int32, iterations


def run(
    model: Model,
    axes: Any,
    states: State,
    carry: Any,
    callbacks: Callbacks,
    dt,
    rows: Any,
    options: Options,
    width: int,
    in_step: bool = False,
    room: int | None = None,
) -> tuple[Any, State, Any, tuple[jax.Array, jax.Array, jax.Array]]:
    """Trajectories from `states` (lanes,...), `width` at a time, until each has written `rows` of them.

    axes: of the model's leaves, 0 where every lane has its own and None where all share one; None: all shared.
    carry: (lanes,...) what goes with the states. dt: () s; that of the options does not count.
    in_step: whether all slots wait for one another in every step. room: for so many rows at most, where their number
    is traced (and not 0).

    Returns:
        what was written (lanes, rows, ...), or room instead of rows, of which those count; the States and the carry at
        the end; then passes, rounds and the busy share of the schedule.
    """
    n, most = states.q.shape[0], rows if room is None else room
    model, axes = solved_for(options, model), None if axes is None else solved_for(options, axes)

    # what a lane does before, in and after a step, as programs that are traced once
    lane = lane_of(model, axes, n, callbacks, dt, options)
    lanes = lane.programs()

    def first_of(lane):
        return jax.tree.map(lambda x: x[jnp.minimum(lane, n - 1)], (states, carry))

    def turn(f: _BatchState) -> _BatchState:
        # slots whose last step is complete begin one, others whose part is solved begin the next part
        old, taken = f.slots.request, f.slots.request.lane < n
        requests = where(f.complete, jax.vmap(lanes.begin)(old.lane, old.k, old.state, old.carry), old)
        slots = where(f.through, jax.vmap(lanes.admit)(requests, f.through), f.slots)

        # pass by pass, until it is time for a commit
        models, old = lane.model_of(old.lane), slots.request
        slots, passes, used = _until_ready(lanes, in_step, models, axes, taken, slots, f.passes, f.used)

        # judge the steps that are solved; one that is made in parts may have more of them to make
        ready = _is_through(lanes, slots) & taken
        ended, stopped, parts, made = jax.vmap(lanes.end)(slots, ready)
        made &= ready

        # write the rows of complete steps; what is sent to place n, past the last lane, is dropped
        place = jnp.where(made & ended.complete, old.lane, n)
        written = jax.tree.map(lambda all, x: all.at[place, old.k].set(x, mode="drop"), f.written, ended.row)

        # retire trajectories that have all their rows, or froze; free slots admit those that wait, in order
        k = old.k + ended.complete
        over = made & ((k >= rows) | stopped)
        free = over | ~taken
        numbers = jnp.where(free, jnp.minimum(f.waiting + jnp.cumsum(free) - 1, n), old.lane).astype(jnp.int32)

        # a slot goes on with the next step, with the first one of a new lane, or with another part
        after = (ended.state, ended.carry)
        going, carried = where(free, first_of(numbers), after)
        going_on = old._replace(lane=numbers, k=jnp.where(free, 0, k), state=going, carry=carried)
        requests = where(made | free, going_on, where(ready, old._replace(parts=parts), old))

        # how far the queue and the rows are, and the ends of lanes that have retired
        waiting = jnp.minimum(f.waiting + jnp.sum(free), n).astype(jnp.int32)
        last = f.last.at[place].set(old.k, mode="drop")
        gone = jnp.where(over, old.lane, n)
        ends = jax.tree.map(lambda all, x: all.at[gone].set(x, mode="drop"), f.ends, after)
        counts = passes, f.rounds + jnp.any(ready), used
        return _BatchState(
            slots._replace(request=requests), made | free, ready | free, waiting, written, ends, last, *counts
        )

    # the first trajectories have slots, and nothing is written
    numbers = jnp.minimum(jnp.arange(width, dtype=jnp.int32), n)
    batch = _at_first(lanes, numbers, first_of(numbers), (states, carry), most)
    if not most:
        return batch.written, states, carry, (batch.passes, batch.rounds, jnp.ones((), model.dtype))

    # until no slot has a trajectory
    batch = loops.while_loop(lambda f: jnp.any(f.slots.request.lane < n), turn, batch)

    # rows after a frozen step repeat it; busy is the share of iterations that were of use
    written = _filled(batch.written, batch.last, rows, most) if callbacks.stops else batch.written
    busy = jnp.mean(batch.used.astype(model.dtype)) / jnp.maximum(1, batch.passes)
    return written, *batch.ends, (batch.passes, batch.rounds, busy)


def _at_first(lanes: Programs, numbers: jax.Array, firsts: tuple, every: tuple, room: int) -> _BatchState:
    """Slots of the first lanes, whose steps are about to begin, and room for the rows of all."""
    width, n = len(numbers), len(every[0].q)
    slots = _not_begun(lanes, n, numbers, *firsts)
    shapes = jax.eval_shape(lanes.end, jax.tree.map(lambda x: x[0], slots), jnp.ones((), bool))[0].row
    written = jax.tree.map(lambda x: jnp.zeros((n, room, *x.shape), x.dtype), shapes)
    none, begins = jnp.zeros((), jnp.int32), jnp.ones(width, bool)
    waiting, last, used = jnp.asarray(min(width, n), jnp.int32), jnp.zeros(n, jnp.int32), jnp.zeros(width, jnp.int32)
    return _BatchState(slots, begins, begins, waiting, written, every, last, none, none, used)


def _not_begun(lanes: Programs, n: int, lane: jax.Array, state: State, carry: Any) -> Slot:
    """Slots of these lanes: the loop begins their steps, so that `begin` and `admit` are compiled once."""
    one = jax.tree.map(lambda x: x[0], (lane, lane, state, carry))
    shapes = jax.eval_shape(lambda *x: lanes.admit(lanes.begin(*x), x[0] < n), *one)
    slots = jax.tree.map(lambda x: jnp.zeros((len(lane), *x.shape), x.dtype), shapes)
    return slots._replace(request=slots.request._replace(lane=lane, state=state, carry=carry))


def _is_through(lanes: Programs, slots: Slot) -> jax.Array:
    """Which of the slots have solved all of a step, (slots,) bool."""
    return (slots.solve.status != lm.RUNNING) & ~jax.vmap(lanes.goes_on)(slots)


def _until_ready(lanes: Programs, in_step: bool, models: Model, axes: Any, taken, slots: Slot, passes, used):
    """Iterate all slots until it is time for a commit: the slots, all passes so far, and iterations of each.

    in_step: until all have solved all of a step.
    """
    # a pass is one iteration of every slot
    flying, none = jnp.sum(taken), jnp.zeros((), jnp.int32)
    each = jax.vmap(lanes.iterated, (axes, 0, 0))

    def patient(wasted: jax.Array) -> jax.Array:
        """Whether those that wait go on waiting, after so many passes of a slot."""
        return jnp.ones((), bool) if in_step else wasted < COMMIT * flying

    def through(slots: Slot) -> jax.Array:
        return jnp.sum(_is_through(lanes, slots) & taken)

    def some_solved(slots: Slot, passes, used):
        """Pass by pass."""

        def go_on(c):
            return jnp.any(c[0].status == lm.RUNNING) & patient(c[1])

        def one(c):
            s, wasted, passes, used = c
            after = each(models, slots, s)

            # a slot that has nothing to solve has wasted this pass
            waiting = flying - jnp.sum(after.status == lm.RUNNING)
            return after, (wasted + waiting).astype(jnp.int32), passes + 1, used + (s.status == lm.RUNNING)

        s, _, passes, used = loops.while_loop(go_on, one, (slots.solve, none, passes, used))
        return slots._replace(solve=s), passes, used

    def waits(c):
        return (through(c[0]) < flying) & patient(c[1])

    def some_on(c):
        """Stage by stage."""
        slots, wasted, before, used = c
        slots, passes, used = some_solved(slots, before, used)

        # slots whose stage is solved go on with the next one, which counts as a pass of those that wait
        solved = (slots.solve.status != lm.RUNNING) & jax.vmap(lanes.goes_on)(slots)
        on = jax.vmap(lanes.advanced, (axes, 0))(models, slots)  # pyright: ignore[reportArgumentType]
        slots = where(solved, on, slots)
        wasted = wasted + (passes - before + 1) * through(slots)
        return slots, wasted.astype(jnp.int32), passes, used

    # a step in one leg, or in several, one after another
    if lanes.advanced is None:
        return some_solved(slots, passes, used)
    slots, _, passes, used = loops.while_loop(waits, some_on, (slots, none, passes, used))
    return slots, passes, used


def where(wanted: jax.Array, new: Any, old: Any) -> Any:
    """Slot by slot."""
    return jax.tree.map(lambda a, b: jnp.where(wanted.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)


def _filled(written, last: jax.Array, rows, room: int):
    """A frozen trajectory ends with its first FROZEN step: the same again until the last row."""

    def fill(x):
        k = jnp.minimum(jnp.arange(room)[None], last[:, None])
        return jnp.take_along_axis(x, k.reshape(*k.shape, *(1,) * (x.ndim - 2)), axis=1)

    return loops.cond(jnp.any(last < rows - 1), lambda w: jax.tree.map(fill, w), lambda w: w, written)
