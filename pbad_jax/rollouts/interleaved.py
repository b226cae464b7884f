"""Many trajectories: every pass over the lanes is one Levenberg–Marquardt iteration of each, not one step of each.

Lanes of a vmapped rollout wait in every step for the one that needs most iterations. Here (the paper's section on its
GPU) a lane whose iteration ends a step commits it and goes on with its next step, whatever the others do. `width` slots
are served side by side; a slot whose trajectory is over takes the next one that waits. So the work is the sum of the
iterations of all steps, and what a slot computes does not depend on the others.

A commit takes kinematics and a mass matrix of all slots, so a pass goes on until a part of the slots is ready for one:
READY, or all, which is a step of every lane at a time.
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
from pbad_jax.schemes import Scheme
from pbad_jax.solver import continuation
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage.equation import StageEquation, StepStart
from pbad_jax.stage.problem import searched, settings
from pbad_jax.step import collocation, step, substeps
from pbad_jax.step.collocation import problem_of
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, resolve, scheme_of

COMMIT_FRACTION = 0.25  # of the running slots; then they commit


class _Slot(NamedTuple):
    """One trajectory in flight; no array of the model, which all share."""

    lane: jax.Array  # () int32, which trajectory; past the last one where there is none
    k: jax.Array  # () int32, steps it has made
    state: State
    control: jax.Array
    start: StepStart
    eq: StageEquation
    direction: jax.Array  # (m,nv)
    before: jax.Array  # RUNNING, or why its step is not to be solved
    solve: continuation.State


class _BatchState(NamedTuple):
    """All slots, with a leading axis, and what has come of them."""

    slots: _Slot
    waiting: jax.Array  # () int32, the next trajectory without a slot
    written: tuple  # q, v, StepInfo: (lanes, T, ...)
    ends: State  # (lanes, ...) of the trajectories that are over
    last: jax.Array  # (lanes,) int32, the last step written
    passes: jax.Array
    rounds: jax.Array
    used: jax.Array  # (slots,) int32, iterations


def run(
    model: Model, states: State, control_of: Callable, dt, n_steps: int, options: Options, width: int, fraction: float
) -> tuple[jax.Array, jax.Array, StepInfo, State, jax.Array, jax.Array, jax.Array]:
    """Trajectories from `states` (lanes,...), `width` at a time, T ≥ 1.

    control_of: (model, lane, k, state) -> (nu,). dt: () s; that of the options does not count.
    fraction: of the running slots that is waited for.

    Returns:
        q, v (lanes,T,...), StepInfo, the States at the end; then passes, rounds and the busy share of the schedule.
    """
    scheme, config = scheme_of(options), resolve(options, model)
    assert isinstance(scheme, Scheme)
    part = functools.partial(step.step_once, scheme, config, options.failed_gradient)
    n = states.q.shape[0]

    @with_all_bits
    def iterated(slot: _Slot, s: continuation.State) -> continuation.State:
        problem = problem_of(model, scheme, config, slot.start, slot.eq, slot.direction)
        problem = searched(problem, slot.before)
        return continuation.iterate(problem, settings(problem), s)

    def begin(lane, k, state: State, wanted) -> _Slot:
        return begun(lane, k, state, control_of(model, jnp.minimum(lane, n - 1), k, state), wanted)

    @with_all_bits
    def begun(lane, k, state: State, control, wanted) -> _Slot:
        s = step.prepare(config, model, control, dt, state)
        status = jnp.where(wanted & (lane < n), s.status, jnp.int8(Status.FROZEN))
        problem, status = collocation.begin(s.model, scheme, config, s.dt, s.start, s.state, status)
        solve = continuation.init(searched(problem, status), status=status)
        return _Slot(lane, k, state, control, s.start, problem.eq, problem.direction, status, solve)

    @with_all_bits
    def end(slot: _Slot, ready) -> tuple[State, StepInfo]:
        s = step.prepare_again(model, slot.control, dt, slot.state, slot.start, slot.before)
        status = jnp.where(ready, slot.solve.status, jnp.int8(Status.FROZEN))
        found = slot.solve._replace(status=status, iterations=jnp.where(ready, slot.solve.iterations, 0))
        problem = problem_of(s.model, scheme, config, slot.start, slot.eq, slot.direction)
        ended = collocation.end(scheme, problem, found)
        whole = step.finish(config, options.failed_gradient, slot.state, s, ended)
        if options.on_failure == "freeze":
            return whole
        return substeps.in_parts(part, options.failed_gradient, model, slot.control, dt, slot.state, whole)

    def commit(f: _BatchState) -> _BatchState:
        slots, passes, used = _until_ready(iterated, f, n, fraction)
        ready = (slots.solve.status != lm.RUNNING) & (slots.lane < n)
        after, info = jax.vmap(end)(slots, ready)
        place = jnp.where(ready, slots.lane, n)

        def put(all, x):
            return all.at[place, slots.k].set(x, mode="drop")

        written = jax.tree.map(put, f.written, (after.q, after.v, info))
        k = slots.k + 1
        over = ready & ((k >= n_steps) | (info.status == Status.FROZEN))
        lane = jnp.where(over, jnp.minimum(f.waiting + jnp.cumsum(over) - 1, n), slots.lane).astype(jnp.int32)
        first = jax.tree.map(lambda x: x[jnp.minimum(lane, n - 1)], states)
        fresh = jax.vmap(begin)(lane, jnp.where(over, 0, k), where(over, first, after), ready)
        waiting = jnp.minimum(f.waiting + jnp.sum(over), n).astype(jnp.int32)
        last = f.last.at[place].set(slots.k, mode="drop")
        gone = jnp.where(over, slots.lane, n)
        ends = jax.tree.map(lambda all, x: all.at[gone].set(x, mode="drop"), f.ends, after)
        return _BatchState(where(ready, fresh, slots), waiting, written, ends, last, passes, f.rounds + 1, used)

    lane = jnp.minimum(jnp.arange(width, dtype=jnp.int32), n)
    first = jax.tree.map(lambda x: x[jnp.minimum(lane, n - 1)], states)
    slots = jax.vmap(begin)(lane, jnp.zeros_like(lane), first, jnp.ones(width, bool))
    shapes = jax.eval_shape(jax.vmap(end), slots, jnp.ones(width, bool))
    shapes = (shapes[0].q, shapes[0].v, shapes[1])
    written = jax.tree.map(lambda x: jnp.zeros((n, n_steps, *x.shape[1:]), x.dtype), shapes)
    none = jnp.zeros((), jnp.int32)
    waiting, last = jnp.minimum(none + width, n), jnp.zeros(n, jnp.int32)
    flight = _BatchState(slots, waiting, written, states, last, none, none, jnp.zeros(width, jnp.int32))
    flight = jax.lax.while_loop(lambda f: jnp.any(f.slots.lane < n), commit, flight)
    q, v, info = _filled(flight.written, flight.last, n_steps)
    busy = jnp.mean(flight.used.astype(model.dtype)) / jnp.maximum(1, flight.passes)
    return q, v, info, flight.ends, flight.passes, flight.rounds, busy


def _until_ready(iterated: Callable, f: _BatchState, n: int, fraction: float) -> tuple[_Slot, jax.Array, jax.Array]:
    """Iterate all slots until enough of them can commit: the slots, all passes so far, and iterations of each."""

    def go_on(c):
        running = jnp.sum(c[0].status == lm.RUNNING)
        flying = jnp.sum(f.slots.lane < n)
        return (running > 0) & (flying - running < fraction * flying)

    def one(c):
        s, passes, used = c
        return jax.vmap(iterated)(f.slots, s), passes + 1, used + (s.status == lm.RUNNING)

    s, passes, used = jax.lax.while_loop(go_on, one, (f.slots.solve, f.passes, f.used))
    return f.slots._replace(solve=s), passes, used


def where(wanted: jax.Array, new: Any, old: Any) -> Any:
    """Slot by slot."""
    return jax.tree.map(lambda a, b: jnp.where(wanted.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)


def _filled(written, last: jax.Array, n_steps: int):
    """A frozen trajectory ends with its first FROZEN step: the same again until n_steps."""

    def fill(x):
        k = jnp.minimum(jnp.arange(n_steps)[None], last[:, None])
        return jnp.take_along_axis(x, k.reshape(*k.shape, *(1,) * (x.ndim - 2)), axis=1)

    return jax.lax.cond(jnp.any(last < n_steps - 1), lambda w: jax.tree.map(fill, w), lambda w: w, written)
