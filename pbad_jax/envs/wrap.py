"""Time limits, resets and repeated actions: other rules for the same task, no tower of wrappers."""

import dataclasses

from pbad_jax.envs.env import Env
from pbad_jax.errors import OptionError


def wrap(
    env: Env,
    *,
    time_limit: int | None = None,
    autoreset: str | None = None,
    repeat: int | None = None,
    failed_step: str | None = None,
    max_delay: int | None = None,
) -> Env:
    """The environment under other rules; what is left out stays as it is.

    Args:
        env: of `make`, or of `wrap`.
        time_limit: control steps after which an episode is truncated; `env.task.time_limit` is the task's own.
        autoreset: "same_step": the step that ends an episode returns the start of the next one, with the reward and
            the flags of the last and with `info["final_obs"]`, what was seen at its end.
        repeat: steps of the simulation for each action, rewards summed up; an end within ends the control step.
        failed_step: "truncate" (of `make`): a step that could not be solved cuts the episode, and what follows may be
            estimated from the last good state; "terminate": it ends it, and a policy learns to keep away from it.
        max_delay: control steps that `Params.delay` may come to.

    Raises:
        OptionError: another value than these.

    Example:
        >>> limited = envs.wrap(env, time_limit=200, autoreset="same_step", repeat=2)
        >>> limited.dt
        0.1
    """
    given = {"time_limit": time_limit, "autoreset": autoreset, "repeat": repeat}
    given |= {"failed_step": failed_step, "max_delay": max_delay}
    if not isinstance(env, Env):
        raise OptionError(f"wrap: env is {type(env).__name__}; wanted what make() returns")
    return Env(dataclasses.replace(env.rules, **{k: x for k, x in given.items() if x is not None}))
