"""Many lanes under a policy for some control steps: what learning is made of."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.checks import integer, one_of
from pbad_jax.envs import episode
from pbad_jax.envs.env import Env, axes_of
from pbad_jax.envs.state import EnvState, Params
from pbad_jax.errors import OptionError, TaskError
from pbad_jax.math import loops
from pbad_jax.rollouts import interleaved
from pbad_jax.rollouts.batch import SCHEDULES, width_of
from pbad_jax.rollouts.devices import on_each_device, placed, share_of
from pbad_jax.rollouts.lane import Callbacks, Ended
from pbad_jax.step.options import scheme_of, without_dt

Policy = Callable[[Any, jax.Array, jax.Array], tuple[Any, Any]]


class Rows(NamedTuple):
    """A control step of one lane; of `unroll` with leading axes (lanes, length).

    obs: (nobs,) what the policy saw. action: (na,). extras: what else the policy returned. reward: (). terminated,
    truncated: () bool. next_obs: (nobs,) what was seen after it, before a reset: bootstrap from it where the episode
    was not terminated. info: of EnvState, without its "final_obs", which is `next_obs`.

    Example:
        >>> starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 8))
        >>> ends, rows = envs.unroll(env, jnp.zeros((8, 5, 1)), None, starts, 5)
        >>> rows.reward.shape
        (8, 5)
    """

    obs: jax.Array
    action: jax.Array
    extras: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: jax.Array
    info: dict[str, Any]


class _Each(NamedTuple):
    """Parameters of a policy (lanes, ...), each lane its own."""

    params: Any


class _Request(NamedTuple):
    """What goes with the State of a lane: the rest of its EnvState, and the control step that is being made."""

    state: EnvState  # whose sim is None
    obs: jax.Array  # that the policy saw
    action: jax.Array
    extras: Any
    control: jax.Array
    part: jax.Array  # () int32, steps of the simulation made of this control step
    delay: jax.Array


def unroll(
    env: Env,
    policy: Policy | jax.Array,
    policy_params: Any,
    state: EnvState,
    length: int,
    *,
    params: Params | None = None,
    population: bool = False,
    tile: int | None = None,
    schedule: str = "iteration",
) -> tuple[EnvState, Rows]:
    """`length` control steps of many lanes under a policy.

    By iterations no lane waits for another's hard steps, as in `rollout_batch`: a lane whose step is solved is judged,
    reset where its episode is over, asks the policy, and goes on. Numbers are those of its own steps to rounding.
    With the same `tile` those of a lane are the same bit for bit whatever the others do.

    Args:
        env: of `make` or `wrap`; with autoreset="same_step" lanes begin a new episode where one is over.
        policy: (policy_params, obs (nobs,), key) -> action (na,), extras (a pytree of arrays, or None). It is compiled
            in: pass the same function again. Where it returns NaN, the step fails, and only that lane's. Or actions
            (lanes, length, na) themselves, with None for policy_params.
        policy_params: a pytree of arrays, the same for all lanes, or of `population`.
        state: lanes of EnvState, `jax.vmap(env.reset)(keys)`, or what was returned; `pbad.spread` puts them on several
            devices, each of which works on its own.
        length: control steps.
        params: one for all lanes, or of any array one for each, `jax.vmap(env.randomise)(keys)`.
        population: every lane has policy_params of its own: all arrays have a leading axis of lanes.
        tile: lanes side by side; see `rollout_batch`.
        schedule: "iteration", as above; "step": `vmap` and `scan` of `env.step`, which reverse mode goes through.

    Returns:
        The state to go on from, and Transitions (lanes, length, ...).

    Raises:
        TaskError: no lanes, an action that does not fit, params of another model, a population of another size.
        OptionError: length, tile, schedule.

    Example:
        >>> starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 8))
        >>> ends, rows = envs.unroll(env, lambda p, obs, key: (-p * obs[-1:], None), 0.1, starts, 5)
        >>> rows.action.shape, int(ends.metrics.failed.sum())
        ((8, 5, 1), 0)
    """
    # what does not fit is named before anything is compiled
    if not isinstance(env, Env):
        raise OptionError(f"unroll: env is {type(env).__name__}; wanted what make() returns")
    lanes = _lanes(env, state)
    length, options = integer(length, "length", 1), env.rules.options
    params = env.checked(params, lanes)

    # how lanes share the machine
    by = one_of(schedule, SCHEDULES, "schedule", OptionError)
    model = env.task.model
    share = share_of(state.sim.q, "state.sim.q")
    width = width_of(tile, lanes // (1 if share is None else share.devices), scheme_of(options).m * model.nv)
    dt = jnp.asarray(options.dt, model.dtype)

    # actions instead of a policy go where its parameters would, with an axis of lanes
    asked = policy if callable(policy) else None
    if asked is None:
        policy_params = _actions(env, policy, policy_params, lanes, length)
    elif population:
        policy_params = _each(policy_params, lanes)
    given = placed(
        share, _with_lanes(asked, policy_params, axes_of(env, params, lanes)), policy_params, params, state, dt
    )
    return _unroll(*given, env, asked, length, width, by, share)


def _lanes(env: Env, state: Any) -> int:
    size = env.task.model.nq
    if not isinstance(state, EnvState) or state.sim.q.ndim != 2 or state.sim.q.shape[1] != size:
        given = f"sim.q of shape {state.sim.q.shape}" if isinstance(state, EnvState) else type(state).__name__
        raise TaskError(
            f"unroll: state is {given}; task {env.task.name!r} wants lanes of EnvState, sim.q (lanes, {size}): "
            "jax.vmap(env.reset)(jax.random.split(key, lanes))"
        )
    return state.sim.q.shape[0]


def _actions(env: Env, actions: Any, policy_params: Any, lanes: int, length: int) -> jax.Array:
    """Actions (lanes, length, na) instead of a policy."""
    if policy_params is not None:
        raise TaskError(
            f"unroll: policy is {type(actions).__name__}, no function, and so takes no policy_params: give None"
        )
    actions, wanted = jnp.asarray(actions), (lanes, length, env.action_size)
    if actions.shape != wanted:
        raise TaskError(f"unroll: actions have shape {actions.shape}; wanted {wanted}, (lanes, length, na)")
    return actions


def _each(policy_params: Any, lanes: int) -> _Each:
    """A population, if it has one set of parameters for each lane."""
    for path, x in jax.tree_util.tree_leaves_with_path(policy_params):
        if not jnp.ndim(x) or len(x) != lanes:
            raise TaskError(
                f"unroll: policy_params{jax.tree_util.keystr(path)} has shape {jnp.shape(x)}; with population=True "
                f"wanted ({lanes}, ...), parameters of each lane"
            )
    return _Each(jax.tree.map(jnp.asarray, policy_params))


@functools.partial(jax.jit, static_argnames=("env", "policy", "length", "width", "by", "share"))
def _unroll(policy_params, params: Params, state: EnvState, dt, env: Env, policy, length, width, by, share):
    axes = axes_of(env, params, state.sim.q.shape[0])

    def here(policy_params, params, state, dt):
        if by == "iteration":
            return _by_iterations(env, policy, policy_params, params, axes, state, dt, length, width)
        return _by_steps(env, policy, policy_params, params, axes, state, length)

    return on_each_device(here, share, _with_lanes(policy, policy_params, axes))(policy_params, params, state, dt)


def _with_lanes(policy, policy_params, axes: Params) -> tuple:
    """Which of policy_params, params, state and dt have an axis of lanes."""
    own_params = jax.tree.map(lambda axis: axis is not None, axes, is_leaf=lambda axis: axis is None)
    return policy is None or isinstance(policy_params, _Each), own_params, True, False


def _by_steps(env: Env, policy, policy_params, params: Params, axes: Params, state: EnvState, length: int):
    """All lanes make a control step, then the next."""

    def one(params: Params, state: EnvState, lane, k):
        obs = state.obs
        state, action, extras = _asked(env, policy, policy_params, params, state, lane, k)
        state = env.step(state, action, params)
        return state, _row(state, obs, action, extras)

    each, lanes = jax.vmap(one, (axes, 0, 0, None)), jnp.arange(state.sim.q.shape[0])
    state, rows = loops.scan(lambda state, k: each(params, state, lanes, k), state, jnp.arange(length))
    return state, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)


def _by_iterations(env: Env, policy, policy_params, params: Params, axes: Params, state: EnvState, dt, length, width):
    """Every pass is one iteration of all lanes; one whose step is solved is judged, and asks the policy again."""
    rules = env.rules

    # before a step: the policy is asked, unless the last action goes on
    def begin(model, lane, k, sim, f: _Request):
        own = Params(model, f.delay)
        state = f.state._replace(sim=sim)
        asked, action, extras = _asked(env, policy, policy_params, own, state, lane, k)
        asked, control = episode.acted(rules, own, asked, action)
        new = _Request(asked._replace(sim=None), state.obs, action, extras, control, f.part, f.delay)
        if rules.repeat > 1:  # the last action goes on
            new = episode.chosen(f.part == 0, new, f)
        return new.control, new

    # after it: judge it; a control step is complete at its last repetition, or with the episode
    def end(model, lane, k, before, control, after, info, f: _Request) -> Ended:
        own = Params(model, f.delay)
        state = f.state._replace(sim=before)
        state = episode.judged(rules, own, state, f.action, control, before, after, info)
        over = concluded = episode.concluded(rules, own, state)
        complete, part = jnp.ones((), bool), f.part
        if rules.repeat > 1:
            complete = (f.part + 1 == rules.repeat) | state.done
            over = episode.chosen(complete, concluded, state)
            part = jnp.where(complete, 0, f.part + 1)
        row = _row(concluded, f.obs, f.action, f.extras)
        return Ended(over.sim, f._replace(state=over._replace(sim=None), part=part), row, complete)

    # the schedule of rollouts, in which the rest of a lane's EnvState goes with its State
    carry = _at_rest(env, policy, policy_params, params, axes, state)
    model_axes = axes.model if jax.tree.leaves(axes.model) else None
    given = (params.model, model_axes, state.sim, carry, Callbacks(begin, end, stops=False), dt, length)
    rows, sim, carry, _ = interleaved.run(*given, without_dt(rules.options), width)
    return carry.state._replace(sim=sim), rows


def _asked(env: Env, policy, policy_params, params: Params, state: EnvState, lane, k):
    """The policy's action and extras, and the state with its next key; without a policy the lane's own k-th action."""
    if policy is None:
        action = episode.checked_action(env.rules, params, policy_params[lane, k])
        return state, action, None
    if isinstance(policy_params, _Each):
        policy_params = jax.tree.map(lambda x: x[lane], policy_params.params)
    key, own = jax.random.split(state.key)
    out = policy(policy_params, state.obs, own)
    if not isinstance(out, tuple) or len(out) != 2:
        raise TaskError(f"the policy returns {type(out).__name__}; wanted (action, extras), extras may be None")
    action = episode.checked_action(env.rules, params, out[0], "the policy's action")
    return state._replace(key=key), action, jax.tree.map(jnp.asarray, out[1])


def _row(state: EnvState, obs, action, extras) -> Rows:
    info = dict(state.info)
    next_obs = info.pop("final_obs")
    return Rows(obs, action, extras, state.reward, state.terminated, state.truncated, next_obs, info)


def _at_rest(env: Env, policy, policy_params, params: Params, axes: Params, state: EnvState) -> _Request:
    """The lanes before their first control step."""
    lanes = state.sim.q.shape[0]

    def shapes(params, state):
        _, action, extras = _asked(env, policy, policy_params, params, state, 0, 0)
        return action, extras, jnp.zeros(env.task.model.nu, params.model.dtype)

    found = jax.eval_shape(jax.vmap(shapes, (axes, 0)), params, state)
    action, extras, control = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), found)
    delay = jnp.broadcast_to(params.delay, (lanes,))
    part = jnp.zeros(lanes, jnp.int32)
    return _Request(state._replace(sim=None), state.obs, action, extras, control, part, delay)
