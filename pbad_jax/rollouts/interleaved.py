"""Many trajectories: every pass over the lanes is one Levenberg–Marquardt iteration of each, not one step of each.

Lanes of a vmapped rollout wait in every step for the one that needs most iterations. Here (the paper's section on its
GPU) a lane whose iteration ends a step commits it and goes on with its next step, whatever the others do. `width` slots
are served side by side; a slot whose trajectory is over takes the next one that waits. So the work is the sum of the
iterations of all steps, and what a slot computes does not depend on the others.

A commit takes kinematics and a mass matrix of all slots, so a pass goes on until a part of the slots is ready for one:
COMMIT_FRACTION, or all, which is a step of every lane at a time. Schemes whose stages are solved in turn (step/leg.py)
go from one to the next likewise, between commits. L-BFGS, whose iterations are loops of their own, solves all at once.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.math.precision import with_all_bits
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.solver import continuation
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage.equation import StepStart
from pbad_jax.stage.problem import find, searched, settings
from pbad_jax.step import step, substeps
from pbad_jax.step.info import StepInfo
from pbad_jax.step.leg import Leg
from pbad_jax.step.options import Options, resolve, scheme_of

# of the running slots; then they commit. More where a solve takes few iterations beside what a commit takes
COMMIT_FRACTION = {"collocation": 0.25, "dirk": 0.6, "variational": 0.6}


class Ended(NamedTuple):
    """What has become of a step: the State that the next one starts from, and what goes on with it."""

    state: State
    carry: Any
    row: Any  # what is written
    complete: jax.Array  # () bool, whether it is, and the row's number goes on


class Drive(NamedTuple):
    """What is done between the steps of a trajectory; `lane` is its number, k that of the row.

    begin: (model, lane, k, state, carry) -> control (nu,), carry. end: (model, lane, k, state, control, after, info,
    carry) -> Ended. stops: whether a trajectory is over once its step is FROZEN; the rest of its rows are as that one.
    """

    begin: Callable
    end: Callable
    stops: bool = True


class _Flight(NamedTuple):
    """One trajectory, and the step that it is about to make."""

    lane: jax.Array  # () int32, which; past the last one where there is none
    k: jax.Array  # () int32, rows it has written
    state: State
    carry: Any
    control: jax.Array
    parts: substeps.Parts | None  # where the step may be made in parts


class _Slot(NamedTuple):
    """A trajectory, and a step or a part of one that is being solved; no array of the model."""

    flight: _Flight
    start: StepStart
    leg: Leg
    solve: continuation.State  # of the leg


class _BatchState(NamedTuple):
    """All slots, with a leading axis, and what has come of them."""

    slots: _Slot
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
    drive: Drive,
    dt,
    rows: int,
    options: Options,
    width: int,
    in_step: bool = False,
) -> tuple[Any, State, Any, tuple[jax.Array, jax.Array, jax.Array]]:
    """Trajectories from `states` (lanes,...), `width` at a time, until each has written `rows` of them.

    axes: of the model's leaves, 0 where every lane has its own and None where all share one; None: all shared.
    carry: (lanes,...) what goes with the states. dt: () s; that of the options does not count.
    in_step: whether all slots wait for one another in every step.

    Returns:
        what was written (lanes, rows, ...), the States and the carry at the end; then passes, rounds and the busy
        share of the schedule.
    """
    n = states.q.shape[0]

    def model_of(lane) -> Model:
        if axes is None:
            return model
        own = jnp.minimum(lane, n - 1)
        return jax.tree.map(lambda x, axis: x if axis is None else x[own], model, axes)

    scheme, config = scheme_of(options), resolve(options, model_of(0))
    method = step.METHODS[scheme.kind]
    fraction = 1.0 if in_step else COMMIT_FRACTION[scheme.kind]
    whole_only = options.on_failure == "freeze"

    def solving(model: Model, start: StepStart, leg: Leg) -> continuation.State:
        problem = method.problem(model, scheme, config, start, leg)
        if config.method == "lm":
            return continuation.init(searched(problem, leg.status), status=leg.status)
        return find(problem, leg.status)

    @with_all_bits
    def iterated(model: Model, slot: _Slot, s: continuation.State) -> continuation.State:
        problem = searched(method.problem(model, scheme, config, slot.start, slot.leg), slot.leg.status)
        return continuation.iterate(problem, settings(problem), s)

    def goes_on(slot: _Slot) -> jax.Array:
        """Whether there is another leg after one that has been solved."""
        if method.is_last is None:
            return jnp.zeros((), bool)
        return (slot.solve.status == Status.CONVERGED) & ~method.is_last(scheme, slot.leg)

    @with_all_bits
    def advanced(model: Model, slot: _Slot) -> _Slot:
        assert method.more is not None
        leg = method.more(model, scheme, config, slot.start, slot.leg, slot.solve)
        return slot._replace(leg=leg, solve=solving(model, slot.start, leg))

    def begin(lane, k, state: State, carry) -> _Flight:
        model = model_of(lane)
        control, carry = drive.begin(model, jnp.minimum(lane, n - 1), k, state, carry)
        parts = None if whole_only else substeps.none_yet(model, config, state)
        return _Flight(lane, k, state, carry, control, parts)

    def part_of(f: _Flight) -> tuple[State, jax.Array]:
        return (f.state, dt) if f.parts is None else substeps.next_part(f.state, dt, f.parts)

    @with_all_bits
    def seated(f: _Flight, wanted) -> _Slot:
        start, length = part_of(f)
        s = step.prepare(config, model_of(f.lane), f.control, length, start)
        status = jnp.where(wanted & (f.lane < n), s.status, jnp.int8(Status.FROZEN))
        leg = method.begin(s.model, scheme, config, s.dt, s.start, s.state, status)
        return _Slot(f, s.start, leg, solving(s.model, s.start, leg))

    @with_all_bits
    def attempted(model: Model, slot: _Slot, ready) -> tuple[State, StepInfo]:
        start, length = part_of(slot.flight)
        s = step.prepare_again(model, slot.flight.control, length, start, slot.start, slot.leg.status)
        status = jnp.where(ready, slot.solve.status, jnp.int8(Status.FROZEN))
        found = slot.solve._replace(status=status, iterations=jnp.where(ready, slot.solve.iterations, 0))
        ended = method.end(s.model, scheme, config, slot.start, slot.leg, found)
        return step.finish(config, options.failed_gradient, start, s, ended)

    def end(slot: _Slot, ready) -> tuple[Ended, jax.Array, Any, jax.Array]:
        """What has become of a step, whether its lane stops; its parts, and whether there are no more to make."""
        f, model, made = slot.flight, model_of(slot.flight.lane), jnp.ones((), bool)
        after, info = attempted(model, slot, ready)
        parts = None
        if f.parts is not None:
            parts = substeps.joined(f.parts, after, info)
            made = ~substeps.go_on(parts)
            after, info = substeps.outcome(f.state, dt, parts)
        ended = drive.end(model, jnp.minimum(f.lane, n - 1), f.k, f.state, f.control, after, info, f.carry)
        return ended, jnp.asarray(drive.stops) & (info.status == Status.FROZEN), parts, made

    traced_once = functools.partial(jax.jit, inline=True)
    begin, seated, end, iterated, advanced = map(traced_once, (begin, seated, end, iterated, advanced))
    until_ready = _Until(iterated, goes_on, None if method.more is None else advanced, fraction)

    def first_of(lane):
        return jax.tree.map(lambda x: x[jnp.minimum(lane, n - 1)], (states, carry))

    def commit(f: _BatchState) -> _BatchState:
        models, taken = model_of(f.slots.flight.lane), f.slots.flight.lane < n
        slots, passes, used = _until_ready(until_ready, models, axes, taken, f.slots, f.passes, f.used)
        old = slots.flight
        ready = _is_through(until_ready, slots) & taken
        ended, stopped, parts, made = jax.vmap(end)(slots, ready)
        made &= ready
        place = jnp.where(made & ended.complete, old.lane, n)

        def put(all, x):
            return all.at[place, old.k].set(x, mode="drop")

        written = jax.tree.map(put, f.written, ended.row)
        k = old.k + ended.complete
        over = made & ((k >= rows) | stopped)
        free = over | ~taken
        lane = jnp.where(free, jnp.minimum(f.waiting + jnp.cumsum(free) - 1, n), old.lane).astype(jnp.int32)
        after = (ended.state, ended.carry)
        going, carried = where(free, first_of(lane), after)
        next_step = jax.vmap(begin)(lane, jnp.where(free, 0, k), going, carried)
        flights = where(made | free, next_step, old._replace(parts=parts))
        fresh = jax.vmap(seated)(flights, ready | free)
        waiting = jnp.minimum(f.waiting + jnp.sum(free), n).astype(jnp.int32)
        last = f.last.at[place].set(old.k, mode="drop")
        gone = jnp.where(over, old.lane, n)
        ends = jax.tree.map(lambda all, x: all.at[gone].set(x, mode="drop"), f.ends, after)
        rounds = f.rounds + jnp.any(ready)
        return _BatchState(where(ready | free, fresh, slots), waiting, written, ends, last, passes, rounds, used)

    def all_free() -> _Slot:
        """Slots without a trajectory: the first commit gives them theirs, so that `begin` is compiled once."""
        lane = jnp.full(width, n, jnp.int32)
        state, first_carry = first_of(lane)
        one = jax.tree.map(lambda x: x[0], (lane, lane, state, first_carry))
        shapes = jax.eval_shape(lambda *x: seated(begin(*x), x[0] < n), *one)
        slots = jax.tree.map(lambda x: jnp.zeros((width, *x.shape), x.dtype), shapes)
        return slots._replace(flight=slots.flight._replace(lane=lane, state=state, carry=first_carry))

    slots = all_free()
    shapes = jax.eval_shape(end, jax.tree.map(lambda x: x[0], slots), jnp.ones((), bool))[0].row
    written = jax.tree.map(lambda x: jnp.zeros((n, rows, *x.shape), x.dtype), shapes)
    none, last = jnp.zeros((), jnp.int32), jnp.zeros(n, jnp.int32)
    flight = _BatchState(slots, none, written, (states, carry), last, none, none, jnp.zeros(width, jnp.int32))
    if not rows:
        return written, states, carry, (none, none, jnp.ones((), model.dtype))
    flight = jax.lax.while_loop(lambda f: (f.waiting < n) | jnp.any(f.slots.flight.lane < n), commit, flight)
    written = _filled(flight.written, flight.last, rows) if drive.stops else flight.written
    busy = jnp.mean(flight.used.astype(model.dtype)) / jnp.maximum(1, flight.passes)
    return written, *flight.ends, (flight.passes, flight.rounds, busy)


class _Until(NamedTuple):
    """What slots do until they commit."""

    iterated: Callable  # (model, slot, solve) -> solve
    goes_on: Callable  # slot -> whether there is another leg
    advanced: Callable | None  # (model, slot) -> the slot in its next leg
    fraction: float  # of those taken, that is waited for


def _is_through(until: _Until, slots: _Slot) -> jax.Array:
    """Which of the slots have solved all of a step, (slots,) bool."""
    return (slots.solve.status != lm.RUNNING) & ~jax.vmap(until.goes_on)(slots)


def _until_ready(until: _Until, models: Model, axes: Any, taken, slots: _Slot, passes, used):
    """Iterate all slots until enough of them can commit: the slots, all passes so far, and iterations of each."""
    flying = jnp.sum(taken)

    def some_solved(c):
        slots, passes, used = c
        each = jax.vmap(until.iterated, (axes, 0, 0))

        def go_on(c):
            running = jnp.sum(c[0].status == lm.RUNNING)
            return (running > 0) & (flying - running < until.fraction * flying)

        def one(c):
            s, passes, used = c
            return each(models, slots, s), passes + 1, used + (s.status == lm.RUNNING)

        s, passes, used = jax.lax.while_loop(go_on, one, (slots.solve, passes, used))
        return slots._replace(solve=s), passes, used

    def waits(c):
        through = jnp.sum(_is_through(until, c[0]) & taken)
        return (through < flying) & (through < until.fraction * flying)

    def some_on(c):
        slots, passes, used = some_solved(c)
        solved = (slots.solve.status != lm.RUNNING) & jax.vmap(until.goes_on)(slots)
        on = jax.vmap(until.advanced, (axes, 0))(models, slots)  # pyright: ignore[reportArgumentType]
        return where(solved, on, slots), passes, used

    if until.advanced is None:
        return some_solved((slots, passes, used))
    return jax.lax.while_loop(waits, some_on, (slots, passes, used))


def where(wanted: jax.Array, new: Any, old: Any) -> Any:
    """Slot by slot."""
    return jax.tree.map(lambda a, b: jnp.where(wanted.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)


def _filled(written, last: jax.Array, rows: int):
    """A frozen trajectory ends with its first FROZEN step: the same again until the last row."""

    def fill(x):
        k = jnp.minimum(jnp.arange(rows)[None], last[:, None])
        return jnp.take_along_axis(x, k.reshape(*k.shape, *(1,) * (x.ndim - 2)), axis=1)

    return jax.lax.cond(jnp.any(last < rows - 1), lambda w: jax.tree.map(fill, w), lambda w: w, written)
