"""What an environment carries: `EnvState`, its counts, and `Params`, which may be others for every lane."""

from typing import Any, NamedTuple

import jax

from pbad_jax.model.model import Model
from pbad_jax.model.state import State


class Params(NamedTuple):
    """What may differ from lane to lane. `jax.vmap` over it is domain randomisation.

    Example:
        >>> params = env.params._replace(model=dataclasses.replace(env.task.model, gravity=env.task.model.gravity / 6))
        >>> env.reset(jax.random.key(0), params).obs.shape
        (3,)
    """

    model: Model
    delay: jax.Array  # () int32, control steps by which actions come late; at most the environment's max_delay


class Metrics(NamedTuple):
    """Counts of a lane, over all its episodes; the last four of episodes.

    Example:
        >>> start.metrics.steps
        Array(0, dtype=int32)
    """

    steps: jax.Array  # () int32, control steps
    failed: jax.Array  # () int32, steps of the simulation that were not solved
    divided: jax.Array  # () int32, that had to be made in parts
    iterations: jax.Array  # () int32, of the solver
    episodes: jax.Array  # () int32, that are over
    length: jax.Array  # () int32, control steps of this episode so far
    total: jax.Array  # () reward of this episode so far
    last_length: jax.Array  # () int32, of the last whole episode
    last_total: jax.Array  # ()


class EnvState(NamedTuple):
    """An environment after `reset` or `step`; frozen, a pytree, one lane.

    Attributes:
        sim: the State of the simulation.
        obs: (nobs,).
        reward: () of the last control step.
        terminated: () bool, the episode has come to an end of its own: nothing follows, a value of zero.
        truncated: () bool, it was cut by the time limit, or by a step that failed: bootstrap from `info["final_obs"]`.
        info: "final_obs" (nobs,), what was seen after the last step, before a reset; "status", "iterations",
            "residual", "substeps" of its StepInfo; and the terms of the reward by name, which sum up as it does.
        key: for what is drawn next.
        metrics: counts.
        goal: what the task drew for this episode.
        late: (max_delay + 1, na) the last actions, the newest first.

    Example:
        >>> start.obs.shape, bool(start.terminated)
        ((3,), False)
    """

    sim: State
    obs: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: dict[str, Any]
    key: jax.Array
    metrics: Metrics
    goal: Any
    late: jax.Array

    @property
    def done(self) -> jax.Array:
        """Whether the episode is over, () bool."""
        return self.terminated | self.truncated
