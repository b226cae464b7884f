"""One lane of many: what a trajectory does before, in and after a step, as programs that schedules call.

The schedule that serves many lanes at a time is in interleaved.py.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.math.precision import with_all_bits
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import AnyScheme
from pbad_jax.solver import continuation
from pbad_jax.stage.problem import SolverConfig, find, searched, settings
from pbad_jax.stage.start import StepStart
from pbad_jax.step import step, still, substeps
from pbad_jax.step.info import StepInfo
from pbad_jax.step.method import Leg, Method
from pbad_jax.step.options import Options, resolve, rule_of, scheme_of


class Ended(NamedTuple):
    """What has become of a step: the State that the next one starts from, and what goes on with it."""

    state: State
    carry: Any
    row: Any  # what is written
    complete: jax.Array  # () bool, whether it is, and the row's number goes on


class Callbacks(NamedTuple):
    """What is done between the steps of a trajectory; `lane` is its number, k that of the row.

    begin: (model, lane, k, state, carry) -> control (nu,), carry. end: (model, lane, k, state, control, after, info,
    carry) -> Ended. stops: whether a trajectory is over once its step is FROZEN; the rest of its rows are as that one.
    """

    begin: Callable
    end: Callable
    stops: bool = True


class Request(NamedTuple):
    """One trajectory, and the step that it is about to make."""

    lane: jax.Array  # () int32, which; past the last one where there is none
    k: jax.Array  # () int32, rows it has written
    state: State
    carry: Any
    control: jax.Array
    parts: substeps.Parts | None  # where the step may be made in parts


class Slot(NamedTuple):
    """A trajectory, and a step or a part of one that is being solved; no array of the model."""

    request: Request
    start: StepStart
    leg: Leg
    solve: Any  # of the leg, a continuation.State


class Programs(NamedTuple):
    """A Lane's, each traced once."""

    begin: Callable
    admit: Callable
    iterated: Callable
    goes_on: Callable
    advanced: Callable | None  # None: a step is one leg
    end: Callable


@dataclasses.dataclass(frozen=True, eq=False)
class Lane:
    """What all lanes have in common."""

    model: Model  # where lanes have their own, with a leading axis
    axes: Any  # of its leaves, 0 where every lane has its own; None: all shared
    n: int  # lanes
    callbacks: Callbacks
    dt: Any
    scheme: AnyScheme
    config: SolverConfig
    options: Options

    @property
    def rule(self) -> substeps.Rule | None:
        """Of parts of a step; None: it is made whole."""
        return rule_of(self.options)

    @property
    def method(self) -> Method:
        """Of the scheme."""
        return step.method_of(self.scheme, self.model)

    def programs(self) -> Programs:
        """For a schedule to call, under vmap or not."""
        once = functools.partial(jax.jit, inline=True)
        advanced = None if self.method.more is None else once(self.advanced)
        begin, admit, iterated, end = map(once, (self.begin, self.admit, self.iterated, self.end))
        return Programs(begin, admit, iterated, self.goes_on, advanced, end)

    def model_of(self, lane) -> Model:
        """Of one lane, or of lanes (slots,)."""
        return model_of(self.model, self.axes, self.n, lane)

    def begin(self, lane, k, state: State, carry) -> Request:
        """Before a step: what drives it."""
        control, carry = self.callbacks.begin(self.model_of(lane), jnp.minimum(lane, self.n - 1), k, state, carry)
        parts, rule = None, self.rule
        if rule is not None:
            parts = substeps.none_yet(self.model_of(lane), self.config, state, self.dt, rule)
        return Request(lane, k, state, carry, control, parts)

    @with_all_bits
    def admit(self, f: Request, wanted) -> Slot:
        """The step, or the next part of it, to be solved where it is `wanted`."""
        start, length = self._part_of(f)
        s = step.prepare(self.scheme, self.config, self.model_of(f.lane), f.control, length, start)
        status = jnp.where(wanted & (f.lane < self.n), s.status, jnp.int8(Status.FROZEN))
        leg = self.method.begin(s.model, self.scheme, self.config, s.dt, s.start, s.state, status)
        return Slot(f, s.start, leg, self._solving(s.model, s.start, leg))

    @with_all_bits
    def iterated(self, model: Model, slot: Slot, s: Any) -> Any:
        """One iteration more."""
        problem_of = self.method.problem
        if problem_of is None:
            return s
        problem = searched(problem_of(model, self.scheme, self.config, slot.start, slot.leg), slot.leg.status)
        return continuation.iterate(problem, settings(problem), s)

    def goes_on(self, slot: Slot) -> jax.Array:
        """Whether there is another leg after one that has been solved."""
        if self.method.legs is None:
            return jnp.zeros((), bool)
        return (slot.solve.status == Status.CONVERGED) & (slot.leg.index < self.method.legs(self.scheme) - 1)

    @with_all_bits
    def advanced(self, model: Model, slot: Slot) -> Slot:
        """In the next leg."""
        assert self.method.more is not None
        leg = self.method.more(model, self.scheme, self.config, slot.start, slot.leg, slot.solve)
        return slot._replace(leg=leg, solve=self._solving(model, slot.start, leg))

    def end(self, slot: Slot, ready) -> tuple[Ended, jax.Array, Any, jax.Array]:
        """What has become of a step, whether its lane stops; its parts, and whether there are no more to make."""
        f, model, made = slot.request, self.model_of(slot.request.lane), jnp.ones((), bool)
        after, info = self._attempted(model, slot, ready)
        parts = None
        if f.parts is not None and self.rule is not None:
            parts = substeps.joined(f.parts, after, info, self.rule)
            made = ~substeps.go_on(parts, self.rule)
            after, info = substeps.outcome(f.state, self.dt, parts, self.rule)
        lane = jnp.minimum(f.lane, self.n - 1)
        ended = self.callbacks.end(model, lane, f.k, f.state, f.control, after, info, f.carry)
        return ended, jnp.asarray(self.callbacks.stops) & (info.status == Status.FROZEN), parts, made

    def _solving(self, model: Model, start: StepStart, leg: Leg) -> continuation.State | still.Solved:
        problem_of = self.method.problem
        if problem_of is None:
            return still.solved(leg.status)
        problem = problem_of(model, self.scheme, self.config, start, leg)
        if self.config.method == "lm":
            return continuation.init(searched(problem, leg.status), status=leg.status)
        return find(problem, leg.status)

    def _part_of(self, f: Request) -> tuple[State, jax.Array]:
        if f.parts is None or self.rule is None:
            return f.state, self.dt
        return substeps.next_part(f.state, self.dt, f.parts, self.rule)

    @with_all_bits
    def _attempted(self, model: Model, slot: Slot, ready) -> tuple[State, StepInfo]:
        start, length = self._part_of(slot.request)
        s = step.prepare_again(model, slot.request.control, length, start, slot.start, slot.leg.status)
        status = jnp.where(ready, slot.solve.status, jnp.int8(Status.FROZEN))
        found = slot.solve._replace(status=status, iterations=jnp.where(ready, slot.solve.iterations, 0))
        ended = self.method.end(s.model, self.scheme, self.config, slot.start, slot.leg, found)
        return step.finish(self.scheme, self.config, self.options.failed_gradient, start, s, ended)


def lane_of(model: Model, axes: Any, n: int, callbacks: Callbacks, dt, options: Options) -> Lane:
    """What n lanes have in common; see interleaved.run."""
    config = resolve(options, model_of(model, axes, n, 0))
    return Lane(model, axes, n, callbacks, dt, scheme_of(options), config, options)


def model_of(model: Model, axes: Any, n: int, lane) -> Model:
    """Of one lane, or of lanes (slots,), of n; the last one's past it."""
    if axes is None:
        return model
    own = jnp.minimum(lane, n - 1)
    return jax.tree.map(lambda x, axis: x if axis is None else x[own], model, axes)
