"""Environments by name."""

from collections.abc import Callable
from typing import Any

import jax

from pbad_jax.checks import did_you_mean
from pbad_jax.envs import classic, locomotion, paper, quadruped
from pbad_jax.envs.env import Env
from pbad_jax.envs.episode import Rules
from pbad_jax.envs.task import Task
from pbad_jax.errors import TaskError
from pbad_jax.step.options import Options

TASKS: dict[str, Callable[..., Task]] = {
    "pendulum": classic.pendulum,
    "cartpole": classic.cartpole,
    "acrobot": classic.acrobot,
    "reacher": locomotion.reacher,
    "swimmer": locomotion.swimmer,
    "paper_swimmer": paper.swimmer,
    "spider": paper.spider,
    "ant": locomotion.ant,
    "half_cheetah": locomotion.half_cheetah,
    "hopper": locomotion.hopper,
    "walker2d": locomotion.walker2d,
    "humanoid": locomotion.humanoid,
    "quadruped": quadruped.quadruped,
}


def make(
    task: str | Task, *, dt: float | None = None, scheme: Any = None, options: Options | None = None, **more
) -> Env:
    """An environment: a task under the plainest rules. `wrap` adds a time limit, resets, repeated actions.

    Args:
        task: one of TASKS, or a Task of your own.
        dt: s, of a control step, which is one step of the simulation; default the task's.
        scheme: default the task's.
        options: whole Options instead of dt and scheme. Default: `on_failure="substep"`, a step that cannot be solved
            is made in parts before it is given up.
        **more: of the task by that name, such as `dtype`, `model`, `path`, `contact_forces`, `constraints`.

    Raises:
        TaskError: an unknown name; a task whose functions do not fit one another; gymnasium's file is not there.
        OptionError: dt, scheme or options.

    Example:
        >>> envs.make("pendulum", dt=0.02).dt
        0.02
    """
    with jax.ensure_compile_time_eval():  # made inside somebody's jit, the model's numbers are numbers still
        task = _found(task, more)
    if options is None:
        dt, scheme = task.dt if dt is None else dt, task.scheme if scheme is None else scheme
        options = Options(dt=dt, scheme=scheme, on_failure="substep")
    elif dt is not None or scheme is not None:
        raise TaskError("make: options are given, and dt or scheme too; say it once")
    return Env(Rules(task, options))


def _found(task: Any, more: dict[str, Any]) -> Task:
    if isinstance(task, Task):
        if more:
            raise TaskError(f"make: {', '.join(more)} given for a Task of your own; make the task with it")
        return task
    if task not in TASKS:
        there = ", ".join(map(repr, TASKS))
        raise TaskError(f"there is no environment {task!r:.60}; there are {there}.{did_you_mean(task, TASKS)}")
    try:
        return TASKS[task](**more)
    except TypeError as e:
        raise TaskError(f"make({task!r}): {e}") from None
