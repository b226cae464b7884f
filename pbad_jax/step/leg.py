"""What is solved at a time in a step: all its stages, or one of those that are solved in turn."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Leg(NamedTuple):
    """One solve of a step; a pytree without the model and the step's start, so that many can be carried."""

    eq: Any  # what the problem's `evaluate` needs
    direction: jax.Array  # (m,nv) guess of the displacements
    status: jax.Array  # () int8, RUNNING, or why it is not to be solved
    memory: Any = ()  # of what came before in the step


class Method(NamedTuple):
    """How the schemes of a kind make a step, for those that solve for many lanes at once (rollouts/interleaved.py).

    begin: (model, scheme, config, dt, start, state, status) -> the first Leg. problem: (model, scheme, config, start,
    leg) -> its StageProblem. end: (model, scheme, config, start, leg, found) -> StepResult, after the last one's solve.
    more: (model, scheme, config, start, leg, found) -> the next Leg, and is_last: (scheme, leg) -> () bool whether
    there is none; None where a step is one solve.
    """

    begin: Callable
    problem: Callable
    end: Callable
    more: Callable | None = None
    is_last: Callable | None = None
