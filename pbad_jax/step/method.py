"""What is solved at a time in a step: all its stages, or one of those that are solved in turn."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Leg(NamedTuple):
    """One solve of a step; a pytree without the model and the step's start, so that many can be carried."""

    eq: Any  # of its problem
    direction: jax.Array  # (m,nv) guess of the displacements
    status: jax.Array  # () int8, RUNNING, or why it is not to be solved
    memory: Any = ()  # of what came before in the step
    index: Any = ()  # () int32, which leg; () where there is one


class Method(NamedTuple):
    """How the schemes of a kind make a step: alone (step.run), and for many lanes at once (rollouts/interleaved.py).

    begin: (model, scheme, config, dt, start, state, status, known) -> the first Leg; known: the Roots of the step where
    they have been found before, else None. problem: (model, scheme, config, start, leg) -> its StageProblem; None where
    nothing is to be solved. end: (model, scheme, config, start, leg, found, known) -> StepResult, after the last solve.
    own_error: (model, scheme, result) -> of the energy at stake in a step, what it may add by itself; None: anything.
    settles: see branch.adds_energy. more: (model, scheme, config, start, leg, found) -> the next Leg; after the last
    one, what `end` takes with found=None. legs: (scheme) -> how many; both None where a step is one solve.
    """

    begin: Callable
    problem: Callable | None
    end: Callable
    own_error: Callable
    settles: bool = False
    more: Callable | None = None
    legs: Callable | None = None
