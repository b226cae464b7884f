"""The parts of a control step, for one lane: begin an episode, act, judge what the simulation did, conclude.

`env.py` puts them round a step, `unroll.py` between the iterations of many lanes.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from pbad_jax.checks import integer, one_of
from pbad_jax.envs.state import EnvState, Metrics, Params
from pbad_jax.envs.task import Task, Transition, action_size
from pbad_jax.errors import OptionError, Status, TaskError
from pbad_jax.math.precision import with_all_bits
from pbad_jax.model.state import State, check_state
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, check_options

FAILED_STEPS = ("truncate", "terminate")
AUTORESETS = (None, "same_step")
OF_A_STEP = ("final_obs", "status", "iterations", "residual", "substeps")  # in info; all else is terms of the reward


@dataclasses.dataclass(frozen=True)
class Rules:
    """How a task is run, static. See `wrap` and `make`."""

    task: Task
    options: Options
    time_limit: int | None = None  # control steps
    autoreset: str | None = None
    repeat: int = 1  # steps of the simulation for each action
    failed_step: str = "truncate"
    max_delay: int = 0  # control steps

    def __post_init__(self):
        if not isinstance(self.task, Task):
            raise TaskError(f"task is {type(self.task).__name__} {self.task!r:.60}; wanted a Task")
        check_options(self.options, "an environment")
        if self.time_limit is not None:
            integer(self.time_limit, "time_limit", 1)
        integer(self.repeat, "repeat", 1)
        integer(self.max_delay, "max_delay", 0)
        one_of(self.failed_step, FAILED_STEPS, "failed_step", OptionError)
        if self.autoreset not in AUTORESETS:
            raise OptionError(f"autoreset is {self.autoreset!r}; choose None or 'same_step'")


def fresh(rules: Rules, params: Params, key: jax.Array, metrics: Metrics | None = None) -> EnvState:
    """The start of an episode; `metrics` go on from those of the last one."""
    # a start and a goal, each from a key of its own
    task, model = rules.task, params.model
    key, at_start, for_goal = jax.random.split(key, 3)
    sim = task.start(model, at_start)
    check_state(model, sim, f"start of task {task.name!r}: its state")
    goal = task.goal(for_goal)

    # what is seen at the start, as after a step of no action that has moved nothing
    action = jnp.zeros(action_size(task), model.dtype)
    control = jnp.zeros(model.nu, model.dtype)
    dt = jnp.asarray(rules.options.dt, model.dtype)
    moment = Transition(model, sim, sim, action, control, dt, goal)
    obs = observed(task, moment)

    # info has in every step the same entries, terms of the reward among them
    zero, none, no = jnp.zeros((), model.dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    names = jax.eval_shape(lambda: rewarded(task, moment)[1])
    info = {"final_obs": obs, "status": jnp.zeros((), jnp.int8), "iterations": none, "residual": zero, "substeps": none}
    info |= {name: jnp.zeros((), model.dtype) for name in names}

    # counts of all episodes go on, those of one begin anew; no action is on its way
    metrics = Metrics(none, none, none, none, none, none, zero, none, zero) if metrics is None else metrics
    metrics = metrics._replace(length=none, total=zero)
    late = jnp.zeros((rules.max_delay + 1, *action.shape), model.dtype)
    return EnvState(sim, obs, zero, no, no, info, key, metrics, goal, late)


def acted(rules: Rules, params: Params, state: EnvState, action: jax.Array) -> tuple[EnvState, jax.Array]:
    """The state at the begin of a control step, and the control (nu,) that an action leads to.

    An action that is not finite makes the control NaN, also where it would act late: the step fails.
    """
    task, model = rules.task, params.model
    late = jnp.concatenate([action[None], state.late[:-1]])
    control = jnp.asarray(task.control(model, late[jnp.clip(params.delay, 0, rules.max_delay)]))
    if control.shape != (model.nu,):
        raise TaskError(f"control of task {task.name!r} has shape {control.shape}; wanted ({model.nu},), as actuators")
    control = jnp.where(jnp.all(jnp.isfinite(action)), control, jnp.nan)
    no, zero = jnp.zeros((), bool), jnp.zeros((), model.dtype)
    info = {name: x if name in OF_A_STEP else zero for name, x in state.info.items()}
    state = state._replace(late=late, reward=zero, terminated=no, truncated=no, info=info)
    return state, control.astype(model.dtype)


def checked_action(rules: Rules, params: Params, action: Any, whose: str = "the action") -> jax.Array:
    """The action as an array (na,) of the model's dtype."""
    action, size = jnp.asarray(action), action_size(rules.task)
    if action.shape != (size,):
        hint = ": it looks like a batch, use jax.vmap or unroll" if action.ndim == 2 and action.shape[1] == size else ""
        raise TaskError(f"{whose} has shape {action.shape}; task {rules.task.name!r} wants ({size},){hint}")
    return action.astype(params.model.dtype)


def judged(
    rules: Rules, params: Params, state: EnvState, action, control, before: State, after: State, info: StepInfo
) -> EnvState:
    """What one step of the simulation comes to. One that failed gives no reward, whatever the task says."""
    # a step that failed is judged without its action, whose NaN would spread
    task, model = rules.task, params.model
    good = after.status == Status.CONVERGED
    sound = jnp.where(good, action, 0.0), jnp.where(good, control, 0.0)
    dt = jnp.asarray(rules.options.dt, model.dtype)
    moment = Transition(model, before, after, *sound, dt, state.goal)

    # what is seen then, in the same form as at the start
    obs = observed(task, moment)
    if obs.shape != state.obs.shape or obs.dtype != state.obs.dtype:
        raise TaskError(
            f"observe of task {task.name!r} gives {obs.dtype} {obs.shape} after a step, but {state.obs.dtype} "
            f"{state.obs.shape} at the start of an episode; it must always be the same"
        )

    # whether the task is over; a step that failed truncates the episode, or terminates it
    reward, terms = rewarded(task, moment)
    ended = jnp.asarray(task.terminated(moment))
    if ended.shape != () or ended.dtype != bool:
        raise TaskError(f"terminated of task {task.name!r} gives {ended.dtype} {ended.shape}; wanted one bool")
    lost = ~good
    cut, over = (lost, ended & good) if rules.failed_step == "truncate" else (jnp.zeros_like(lost), ended | lost)

    # counts, and what is told of the step
    m = state.metrics
    metrics = m._replace(
        failed=m.failed + (lost & (after.status != Status.FROZEN)),
        divided=m.divided + (good & (info.substeps > 1)),
        iterations=m.iterations + info.iterations,
    )
    told = {"final_obs": obs, "status": after.status, "iterations": info.iterations, "residual": info.residual}
    told |= {"substeps": info.substeps}

    # rewards and their terms are summed over all steps of one action
    told |= {name: state.info[name] + jnp.where(good, x, 0.0) for name, x in terms.items()}
    return state._replace(
        sim=after,
        obs=obs,
        reward=state.reward + jnp.where(good, reward, 0.0),
        terminated=over,
        truncated=cut,
        info=told,
        metrics=metrics,
    )


def concluded(rules: Rules, params: Params, state: EnvState) -> EnvState:
    """The end of a control step: the time limit, the counts, and where asked for, the start of the next episode."""
    # one control step more; the time limit truncates
    m = state.metrics
    length, total = m.length + 1, m.total + state.reward
    if rules.time_limit is not None:
        state = state._replace(truncated=state.truncated | (length >= rules.time_limit))
    done = state.done

    # counts, and of the last episode that is over its length and total
    metrics = m._replace(
        steps=m.steps + 1,
        episodes=m.episodes + done,
        length=length,
        total=total,
        last_length=jnp.where(done, length, m.last_length),
        last_total=jnp.where(done, total, m.last_total),
    )
    state = state._replace(metrics=metrics)

    # where asked for, the next start, which tells the reward and the end of the episode before it
    if rules.autoreset is None:
        return state
    key, again = jax.random.split(state.key)
    new = fresh(rules, params, again, metrics)
    state = state._replace(key=key)
    kept = {name: getattr(state, name) for name in ("reward", "terminated", "truncated", "info", "key")}
    return chosen(done, new._replace(**kept), state)


def chosen(wanted: jax.Array, new: Any, old: Any) -> Any:
    """One pytree or the other; `wanted` () bool."""
    return jax.tree.map(lambda a, b: jnp.where(wanted, a, b), new, old)


@with_all_bits
def observed(task: Task, moment: Transition) -> jax.Array:
    """What the task observes, (nobs,) of the model's dtype."""
    obs = jnp.asarray(task.observe(moment))
    if obs.ndim != 1 or not jnp.issubdtype(obs.dtype, jnp.floating):
        raise TaskError(f"observe of task {task.name!r} gives {obs.dtype} {obs.shape}; wanted one row of numbers")
    return obs


@with_all_bits
def rewarded(task: Task, moment: Transition) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The reward (), and its terms by name."""
    out = task.reward(moment)
    reward, terms = out if isinstance(out, tuple) else (out, {})
    taken = [name for name in terms if name in OF_A_STEP]
    if taken:
        raise TaskError(
            f"term {taken[0]!r} of the reward of task {task.name!r} is what info says of the step: rename it"
        )
    for name, x in {"reward": reward, **terms}.items():
        if jnp.shape(x) != ():
            what = "reward" if name == "reward" else f"term {name!r} of the reward"
            raise TaskError(f"{what} of task {task.name!r} has shape {jnp.shape(x)}; wanted a scalar: sum it up")
    dtype = moment.model.dtype
    return jnp.asarray(reward, dtype), {name: jnp.asarray(x, dtype) for name, x in terms.items()}
