"""A plan by sampling: many noisy plans are tried, the better ones count for more.

Model-predictive path integral control (Williams et al. 2017), with returns in units of their own spread, so that the
temperature needs no tuning. All plans are lanes of one `unroll`: by iterations none waits for another's hard steps.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.checks import above_zero, integer
from pbad_jax.envs.env import Env
from pbad_jax.envs.state import EnvState, Params
from pbad_jax.envs.unroll import unroll
from pbad_jax.errors import OptionError, TaskError


class Sampled(NamedTuple):
    """actions: (T, na) the plan. best: () the largest return of the samples. mean: () of all. failed: () int32, lanes
    that a failed step ended; they count with what they had until then.

    Example:
        >>> found = control.mppi(env, start, jnp.zeros((5, 1)), jax.random.key(1), samples=8)
        >>> bool(found.best >= found.mean), int(found.failed)
        (True, 0)
    """

    actions: jax.Array
    best: jax.Array
    mean: jax.Array
    failed: jax.Array


def mppi(
    env: Env,
    state: EnvState,
    actions: Any,
    key: jax.Array,
    *,
    samples: int = 64,
    noise: float = 0.3,
    temperature: float = 0.3,
    params: Params | None = None,
    tile: int | None = None,
    schedule: str = "iteration",
) -> Sampled:
    """A better plan of T control steps from `state`.

    For control call it again at every step, from the plan that is left over: `mppi(env, state, shifted(actions), key)`.

    Args:
        env: without autoreset: what comes after an end is not rewarded.
        state: of one lane. actions: (T, na) the last plan; zeros to begin with. key: of the noise.
        samples: plans that are tried; the first is `actions` itself.
        noise: standard deviation, in units of half the range of the actions; smooth over about three steps.
        temperature: in units of the spread of the returns; towards 0 the best plan alone counts.
        params, tile, schedule: as in `unroll`.

    Raises:
        TaskError: a state that is not one lane, actions that do not fit, unbounded actions. OptionError: numbers.

    Example:
        >>> found = control.mppi(env, start, jnp.zeros((5, 1)), jax.random.key(1), samples=8)
        >>> found.actions.shape
        (5, 1)
    """
    samples = integer(samples, "samples", 2)
    above_zero(noise, "noise of mppi")
    above_zero(temperature, "temperature of mppi")
    actions = checked_plan(env, state, actions, "mppi")
    low, high = (jnp.asarray(x, actions.dtype) for x in env.action_bounds)
    if not bool(jnp.all(jnp.isfinite(high - low))):
        raise TaskError(f"mppi: actions of task {env.task.name!r} are not bounded; give it low and high")
    plans = _noisy(actions, low, high, noise, key, samples)
    lanes = jax.tree.map(lambda x: jnp.broadcast_to(x, (samples, *x.shape)), state)
    _, rows = unroll(env, plans, None, lanes, len(actions), params=params, tile=tile, schedule=schedule)
    failed = jnp.sum(jnp.any(rows.info["status"] != 0, axis=1))
    better, best, mean = _weighed(plans, rows.reward, rows.terminated | rows.truncated, temperature)
    return Sampled(better, best, mean, failed)


def shifted(actions: jax.Array) -> jax.Array:
    """The plan (T, na) that is left over after its first step; the last action is held.

    Example:
        >>> control.shifted(jnp.array([[1.0], [2.0], [3.0]])).ravel()
        Array([2., 3., 3.], dtype=float64)
    """
    return jnp.concatenate([actions[1:], actions[-1:]])


def checked_plan(env: Any, state: Any, actions: Any, who: str) -> jax.Array:
    """The actions (T, na) as an array, if they and the state of one lane fit the environment."""
    if not isinstance(env, Env) or env.rules.autoreset is not None:
        given = f"resets itself ({env.rules.autoreset!r})" if isinstance(env, Env) else f"is {type(env).__name__}"
        raise OptionError(f"{who}: env {given}; wanted an Env without autoreset, whose plan has one beginning")
    nq = env.task.model.nq
    if not isinstance(state, EnvState) or state.sim.q.shape != (nq,):
        given = f"sim.q of shape {state.sim.q.shape}" if isinstance(state, EnvState) else type(state).__name__
        raise TaskError(f"{who}: state is {given}; wanted one lane of EnvState, sim.q ({nq},): env.reset(key)")
    actions = jnp.asarray(actions, env.task.model.dtype)
    if actions.ndim != 2 or not len(actions) or actions.shape[1] != env.action_size:
        raise TaskError(f"{who}: actions have shape {actions.shape}; wanted (T, {env.action_size}), T ≥ 1")
    return actions


@functools.partial(jax.jit, static_argnames="samples")
def _noisy(actions: jax.Array, low, high, noise, key: jax.Array, samples: int) -> jax.Array:
    """(samples, T, na), the first without noise, all within bounds."""
    draw = jax.random.normal(key, (samples, len(actions) + 2, actions.shape[1]), actions.dtype)
    smooth = (draw[:, :-2] + draw[:, 1:-1] + draw[:, 2:]) / jnp.sqrt(jnp.asarray(3, actions.dtype))
    change = (noise * 0.5 * (high - low))[None, None] * smooth
    return jnp.clip(actions[None] + change.at[0].set(0.0), low[None, None], high[None, None])


@jax.jit
def _weighed(plans: jax.Array, reward: jax.Array, done: jax.Array, temperature):
    """The mean plan, and the largest and the mean return."""
    before = jnp.cumsum(done, axis=1) - done == 0  # the step that ends an episode still counts
    returns = jnp.sum(jnp.where(before, reward, 0.0), axis=1)
    spread = jnp.std(returns)
    weight = jax.nn.softmax(returns / (temperature * jnp.where(spread > 0, spread, 1.0)))
    return jnp.einsum("s,sti->ti", weight, plans), jnp.max(returns), jnp.mean(returns)
