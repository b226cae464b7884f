"""An environment: pure functions of pytrees, one lane at a time; `jax.vmap` gives many."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.envs import episode
from pbad_jax.envs.episode import Rules
from pbad_jax.envs.randomise import randomised
from pbad_jax.envs.state import EnvState, Params
from pbad_jax.envs.task import Task, action_bounds
from pbad_jax.errors import Status, TaskError
from pbad_jax.laws.force import name_of
from pbad_jax.math import loops
from pbad_jax.step.info import nothing_yet
from pbad_jax.step.step import make_step


@dataclasses.dataclass(frozen=True)
class Env:
    """A task under rules; hashable, so static under jit. Made by `make` and `wrap`; all checks are made there.

    Example:
        >>> env.dt, env.action_size, env.observation_size
        (0.05, 1, 3)
    """

    rules: Rules

    def __post_init__(self):
        check(self.rules)

    @property
    def task(self) -> Task:
        """What is to be learnt."""
        return self.rules.task

    @property
    def params(self) -> Params:
        """The task's own model, and no delay."""
        return Params(self.task.model, jnp.zeros((), jnp.int32))

    @property
    def dt(self) -> float:
        """Of a control step, s."""
        return self.rules.options.dt * self.rules.repeat

    @property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest action, each (na,)."""
        return action_bounds(self.task)

    @property
    def action_size(self) -> int:
        """How many numbers an action has."""
        return len(self.action_bounds[0])

    @functools.cached_property
    def observation_size(self) -> int:
        """How many numbers are seen."""
        return jax.eval_shape(self.reset, jax.random.key(0)).obs.shape[0]

    def reset(self, key: jax.Array, params: Params | None = None) -> EnvState:
        """The start of an episode.

        Args:
            key: what is drawn: the start, the goal; and later the policy's noise and the next starts.
            params: the model and the delay of this lane; default `env.params`.

        Raises:
            TaskError: params of another model (while tracing).
        """
        return episode.fresh(self.rules, self.checked(params), key)

    def step(self, state: EnvState, action: Any, params: Params | None = None) -> EnvState:
        """One control step, not jitted; reverse mode goes through it as through `make_step`.

        A step of the simulation that fails keeps the last good state, ends the episode as truncated (see `wrap`), is
        counted in `metrics.failed` and gives no reward.

        Args:
            state: from `reset` or `step`. action: (na,). params: as for `reset`.

        Raises:
            TaskError: an action of another shape, params of another model (while tracing).
        """
        # the action, which may act late, becomes a control
        params, rules = self.checked(params), self.rules
        action = episode.checked_action(rules, params, action)
        state, control = episode.acted(rules, params, state, action)

        # one step of the simulation, and what the task says of it
        step, repeated = make_step(rules.options), rules.repeat > 1

        def part(state: EnvState, over) -> EnvState:
            before = state.sim
            if repeated:  # what is over does nothing
                status = jnp.where(over, jnp.int8(Status.FROZEN), before.status)
                before = dataclasses.replace(before, status=status)
            after, info = step(params.model, before, control)
            return episode.judged(rules, params, state, action, control, before, after, info)

        # an action that is repeated ends with its episode
        def body(state: EnvState, _):
            return episode.chosen(state.done, state, part(state, state.done)), None

        state = loops.scan(body, state, length=rules.repeat)[0] if repeated else part(state, None)
        return episode.concluded(rules, params, state)

    def randomise(self, key: jax.Array, **ranges) -> Params:
        """Params with masses, frictions, gains and delay drawn at random; see `pbad_jax.envs.randomise`."""
        return randomised(self.params, self.rules.max_delay, key, **ranges)

    def checked(self, params: Params | None, lanes: int | None = None) -> Params:
        """The params, if they are of this environment's model; None: its own."""
        if params is None:
            return self.params
        axes_of(self, params, lanes)
        return params


def axes_of(env: Env, params: Any, lanes: int | None = None) -> Params:
    """0 where a leaf of the params has an axis of `lanes`, None where all lanes share it.

    Raises:
        TaskError: they are no Params, or of another model.
    """
    # Params of this model: what is compiled in, and the structure of its arrays, must agree
    own, name = env.params, env.task.name
    if not isinstance(params, Params):
        raise TaskError(f"params are {type(params).__name__} {params!r:.60}; wanted Params, as env.params")
    if not hasattr(params.model, "fingerprint") or params.model.fingerprint != own.model.fingerprint:
        other = getattr(params.model, "topology", None)
        raise TaskError(
            f"params are of another model, {getattr(other, 'name', params.model)!r:.60}; task {name!r} has "
            f"{own.model.topology.name!r} (fingerprint {own.model.fingerprint}): change that one, env.params.model"
        )
    if jax.tree.structure(params) != jax.tree.structure(own):
        kinds = [[name_of(f) for f in m.forces] for m in (params.model, own.model)]
        raise TaskError(
            f"params have another structure than those of task {name!r}: forces {kinds[0]} for {kinds[1]}, or another "
            "geometry or keyframes; change only arrays, and make another task for another model"
        )

    # an array is as it is in the task, or has an axis of lanes before that
    def axis(path, x, wanted):
        if jnp.shape(x) == jnp.shape(wanted):
            return None
        if lanes is not None and jnp.shape(x) == (lanes, *jnp.shape(wanted)):
            return 0
        also = "" if lanes is None else f", or {(lanes, *jnp.shape(wanted))} for one of each lane"
        hint = ": use jax.vmap over them, or unroll" if lanes is None else ""
        raise TaskError(
            f"params{jax.tree_util.keystr(path)} has shape {jnp.shape(x)}; task {name!r} has "
            f"{jnp.shape(wanted)}{also}{hint}"
        )

    return jax.tree_util.tree_map_with_path(axis, params, own)


def check(rules: Rules) -> None:
    """Trace a start and a judgement: what does not fit is named before anything is compiled."""

    def both(key):
        params = Params(rules.task.model, jnp.zeros((), jnp.int32))
        state = episode.fresh(rules, params, key)
        state, control = episode.acted(rules, params, state, state.late[0])
        info = nothing_yet(params.model, account=False, condition=False)
        after = dataclasses.replace(state.sim)  # another one, for tasks that look whether it is
        return episode.judged(rules, params, state, state.late[0], control, state.sim, after, info)

    jax.eval_shape(both, jax.random.key(0))
