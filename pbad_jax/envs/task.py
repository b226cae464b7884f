"""What is to be learnt: a model, where it starts, what is seen of it, what is rewarded, and when it is over."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import TaskError
from pbad_jax.laws.line_force import actuators
from pbad_jax.math.precision import made_once
from pbad_jax.model.model import Model
from pbad_jax.model.state import State


class Transition(NamedTuple):
    """What a task looks at: a step, from `before` to `sim`. At the start of an episode both are one, and u is zero.

    A step that failed has its last good state for `sim`.

    Example:
        >>> upright = dataclasses.replace(env.task, reward=lambda m: -jnp.sum(m.sim.q**2))
        >>> envs.make(upright).action_size
        1
    """

    model: Model
    before: State
    sim: State
    action: jax.Array  # (na,) as the policy gave it
    control: jax.Array  # (nu,) what the actuators got
    dt: jax.Array  # () s, from `before` to `sim`
    goal: Any  # what the task drew for this episode


def never(moment: Transition) -> jax.Array:
    """For tasks that only a time limit ends."""
    del moment
    return jnp.zeros((), bool)


def as_it_is(model: Model, action: jax.Array) -> jax.Array:
    """An action that is the control itself."""
    del model
    return action


def no_goal(key: jax.Array) -> None:
    """For tasks that are the same in every episode."""
    del key


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A task is these functions of JAX. They see the model that the lane has, which may be another for every lane.

    Attributes:
        model: the model.
        start: (model, key) -> State.
        observe: Transition -> (nobs,) numbers, always as many.
        reward: Transition -> () or ((), {name: () of its terms}); of every step, never asked of one that failed.
        terminated: Transition -> () bool, whether the episode has come to an end of its own.
        control: (model, action (na,)) -> (nu,).
        goal: key -> arrays that an episode keeps, such as a commanded velocity.
        low, high: (na,) bounds of the actions; None: the control ranges of the actuators.
        dt: s, of a control step. scheme: of the integration. time_limit: control steps of an episode.
        name: for messages.

    Example:
        >>> swing = envs.Task(
        ...     pbad.with_actuators(arm, *pbad.motors(arm)),
        ...     start=lambda model, key: pbad.make_state(model, q=0.1 * jax.random.normal(key, (2,))),
        ...     observe=lambda m: jnp.concatenate([m.sim.q, m.sim.v]),
        ...     reward=lambda m: -jnp.sum(m.sim.q**2),
        ...     low=-1.0 * np.ones(2),
        ...     high=np.ones(2),
        ...     name="swing",
        ... )
        >>> envs.make(swing).observation_size
        4
    """

    model: Model
    start: Callable[[Model, jax.Array], State]
    observe: Callable[[Transition], jax.Array]
    reward: Callable[[Transition], Any]
    terminated: Callable[[Transition], jax.Array] = never
    control: Callable[[Model, jax.Array], jax.Array] = as_it_is
    goal: Callable[[jax.Array], Any] = no_goal
    low: Any = None
    high: Any = None
    dt: float = 0.05
    scheme: str = "radau2"
    time_limit: int = 1000
    name: str = "task"


@made_once
def action_bounds(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest action, each (na,); infinite where nothing bounds it.

    Raises:
        TaskError: only one of the two is given, or they do not fit.
    """
    if task.low is None and task.high is None:
        return control_range(task.model)
    low, high = np.asarray(task.low, float), np.asarray(task.high, float)
    if low.ndim != 1 or low.shape != high.shape or not np.all(low <= high):
        raise TaskError(
            f"task {task.name!r}: low is {task.low!r:.60} and high {task.high!r:.60}; wanted two rows, low ≤ high"
        )
    return low, high


def action_size(task: Task) -> int:
    """How many numbers an action has."""
    return len(action_bounds(task)[0])


def control_range(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """The range of every control, each (nu,); infinite where it has none."""
    low, high = np.full(model.nu, -np.inf), np.full(model.nu, np.inf)
    for law in (force.law for force in actuators(model)):
        low[list(law.u_index)], high[list(law.u_index)] = np.asarray(law.control_range).T
    return low, high
