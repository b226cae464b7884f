"""unroll: the lanes' own steps, by either schedule; policies, lanes of models, gradients, and what is refused."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, thorough

import pbad_jax as pbad

pytestmark = pytest.mark.float64

HOW = pbad.Options(dt=0.05, scheme="radau1", max_iterations=8)
LANES, T = 6, 9


@functools.cache
def env() -> pbad.envs.Env:
    """gymnasium's pendulum, reset after 4 steps; actions may come late."""
    task = pbad.envs.make("pendulum", dtype=DTYPE).task
    task = dataclasses.replace(task, terminated=lambda m: jnp.abs(m.sim.v[0]) > 2.0)
    return pbad.envs.wrap(pbad.envs.make(task, options=HOW), time_limit=4, autoreset="same_step", max_delay=1)


def policy(gain, obs, key):
    """Some noise; NaN where the pendulum hangs to the left of what the parameters say."""
    noise = 0.3 * jax.random.normal(key, (1,), obs.dtype)
    action = gain["p"] * obs[1:2] + noise
    return jnp.where(obs[1] < gain["sick below"], jnp.nan, action), {"noise": noise[0]}


def gain(sick_below: float = -9.0):
    return {"p": jnp.asarray(-1.5, DTYPE), "sick below": jnp.asarray(sick_below, DTYPE)}


@functools.cache
def plain() -> pbad.envs.Env:
    """Without resets."""
    return pbad.envs.wrap(pbad.envs.make(env().task, options=HOW), max_delay=1)


@functools.cache
def start():
    return jax.jit(jax.vmap(env().reset))(jax.random.split(jax.random.key(0), LANES))


@functools.cache
def params():
    """Every lane with a model and a delay of its own."""
    return jax.vmap(lambda key: env().randomise(key, mass=(0.5, 2.0)))(jax.random.split(jax.random.key(1), LANES))


def unrolled(schedule="iteration", **how):
    given = {"policy_params": gain(), "state": start(), "params": params(), "tile": 4} | how
    return pbad.envs.unroll(env(), policy, length=T, schedule=schedule, **given)


def leaves(tree):
    return [
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in jax.tree.leaves(tree)
    ]


def taken(tree, lanes):
    return jax.tree.map(lambda x: x[lanes], tree)


def test_both_schedules_are_the_lanes_own_steps():
    """With resets, delays and a model for every lane: to rounding the same numbers, the same keys and flags."""
    by_iteration, by_step = unrolled(), unrolled("step")
    for a, b in zip(leaves(by_iteration), leaves(by_step), strict=True):
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), atol=1e-8)
    state, rows = by_iteration
    assert (
        rows.obs.shape == (LANES, T, 3) and rows.reward.shape == (LANES, T) and rows.extras["noise"].shape == (LANES, T)
    )
    assert rows.truncated.any() and rows.terminated.any()
    np.testing.assert_array_equal(state.metrics.steps, T)
    np.testing.assert_array_equal(state.metrics.episodes, np.sum(rows.terminated | rows.truncated, axis=1))
    going = ~np.asarray(rows.terminated | rows.truncated)[:, :-1]
    np.testing.assert_array_equal(np.asarray(rows.next_obs)[:, :-1][going], np.asarray(rows.obs)[:, 1:][going])
    assert np.abs(np.asarray(rows.next_obs)[:, :-1][~going] - np.asarray(rows.obs)[:, 1:][~going]).min() > 1e-6
    np.testing.assert_array_equal(state.obs[going[:, -1] & ~state.done], rows.next_obs[going[:, -1] & ~state.done, -1])
    assert len(np.unique(rows.extras["noise"])) == LANES * T
    assert set(np.asarray(params().delay).tolist()) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [thorough("iteration"), "step"])
def test_a_population(schedule):
    """Parameters of its own for every lane: lane 2 does what all do with its parameters, and differs from the rest."""
    p = jnp.linspace(-1.5, 1.5, LANES, dtype=DTYPE)
    each = {"p": p, "sick below": jnp.full(LANES, -9.0, DTYPE)}
    own = unrolled(schedule, policy_params=each, population=True)[1]
    same = unrolled(schedule, policy_params={"p": p[2], "sick below": each["sick below"][2]})[1]
    np.testing.assert_allclose(own.action[2], same.action[2], atol=1e-8)
    assert np.abs(own.action - same.action)[[0, 1, 3, 4, 5], 0].min() > 1e-3


def test_a_sick_lane_leaves_the_others_alone():
    """A policy that returns NaN: its lane is truncated, without reward, and begins anew; the others keep their bits."""
    worst = np.asarray(start().obs[:, 1])
    lane = int(np.argmin(worst))
    limit = float(np.sort(worst)[:2].mean())
    well, sick = unrolled()[1], unrolled(policy_params=gain(limit))[1]
    bad = np.asarray(np.isnan(sick.action[..., 0]))
    assert bad[lane, 0] and not bad[np.arange(LANES) != lane, 0].any()
    never = np.flatnonzero(~bad.any(axis=1))
    assert len(never)
    for a, b in zip(leaves(taken(well, never)), leaves(taken(sick, never)), strict=True):
        np.testing.assert_array_equal(a, b)
    failed = np.asarray(sick.info["status"]) == pbad.Status.NONFINITE_INPUT
    np.testing.assert_array_equal(failed, bad)  # also where actions come late
    assert np.asarray(sick.truncated)[failed].all() and not np.asarray(sick.terminated)[failed].any()
    np.testing.assert_array_equal(np.asarray(sick.reward)[failed], 0)
    assert np.isfinite(sick.obs).all() and np.isfinite(sick.next_obs).all() and np.isfinite(sick.reward).all()


@pytest.mark.slow
@pytest.mark.thorough
def test_with_a_tile_the_others_do_not_matter():
    """The same bits of a lane in another order and company."""
    whole, order = unrolled()[1], np.asarray([4, 1, 5])
    part = unrolled(state=taken(start(), order), params=taken(params(), order))[1]
    for a, b in zip(leaves(taken(whole, order)), leaves(part), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_it_goes_on():
    """Twice T steps are T steps and then T, bit for bit: late actions, episodes and keys go on too."""
    state, first = unrolled()
    _, second = unrolled(state=state)
    one = pbad.envs.unroll(env(), policy, gain(), start(), 2 * T, params=params(), tile=4)[1]
    assert params().delay.any()
    np.testing.assert_array_equal(jnp.concatenate([first.obs, second.obs], axis=1), one.obs)


@pytest.mark.thorough
@pytest.mark.slow
def test_repeated_actions():
    """An action for two steps of the simulation; ends within. By iterations as step by step."""
    twice = pbad.envs.wrap(env(), repeat=2, time_limit=100)
    a, b = (pbad.envs.unroll(twice, policy, gain(), start(), 4, schedule=by) for by in ("iteration", "step"))
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x, float), np.asarray(y, float), atol=1e-8)
    assert a[1].terminated.any() and a[0].sim.time.max() > 0.1 * 3.9


@pytest.mark.thorough
@pytest.mark.slow
def test_actions_instead_of_a_policy():
    """Those that a policy gave lead to the same; by either schedule."""
    told = unrolled(params=None)[1]
    calm = ~np.asarray(told.terminated | told.truncated)[:, :2].any(axis=1)
    assert calm.any()
    for by in ("iteration", "step"):
        rows = pbad.envs.unroll(plain(), told.action[:, :3], None, start(), 3, schedule=by)[1]
        np.testing.assert_allclose(rows.next_obs[calm], told.next_obs[calm, :3], atol=1e-8)
        assert rows.extras is None


@pytest.mark.slow
def test_gradients():
    """Reverse mode through `schedule="step"`, of a return by the policy's parameters, against differences."""

    def calm(p, obs, key):
        return p * obs[1:3].sum(keepdims=True), None

    going, begun = pbad.envs.wrap(env(), time_limit=50), start()

    @jax.jit
    @jax.value_and_grad
    def total(p):
        return jnp.sum(pbad.envs.unroll(going, calm, p, begun, 3, schedule="step")[1].reward)

    p, h = jnp.asarray(-0.4, DTYPE), 1e-5
    wanted = (total(p + h)[0] - total(p - h)[0]) / (2 * h)
    np.testing.assert_allclose(total(p)[1], wanted, rtol=1e-6)
    with pytest.raises(ValueError, match="[Rr]everse"):
        jax.grad(lambda p: jnp.sum(pbad.envs.unroll(env(), calm, p, start(), 2)[1].reward))(p)


def three(p, obs, key):
    return jnp.zeros(3), None


def alone(p, obs, key):
    return jnp.zeros(1)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"policy": three}, pbad.TaskError, r"policy's action has shape \(3,\).*\(1,\)"),
        ({"policy": alone}, pbad.TaskError, "the policy returns.*extras"),
        ({"state": "one"}, pbad.TaskError, r"sim.q of shape \(1,\).*lanes"),
        ({"state": None}, pbad.TaskError, "NoneType"),
        ({"env": "pendulum"}, pbad.OptionError, "env is str"),
        ({"length": 0}, pbad.OptionError, "length is 0"),
        ({"schedule": "fast"}, pbad.OptionError, "'fast'"),
        ({"tile": 0}, pbad.OptionError, "tile"),
        ({"policy": np.zeros((6, 2, 1)), "policy_params": None}, pbad.TaskError, r"\(6, 2, 1\); wanted \(6, 3, 1\)"),
        ({"policy": np.zeros((6, 3, 1))}, pbad.TaskError, "takes no policy_params"),
        ({"population": True}, pbad.TaskError, r"policy_params\['p'\] has shape \(\).*wanted \(6, ...\)"),
        ({"params": "few"}, pbad.TaskError, r"placement.*\(4, 1, 3, 4\).*\(6, 1, 3, 4\)"),
    ],
)
def test_bad_input(change, error, words):
    known = {"one": taken(start(), 0), "few": taken(params(), slice(4))}
    given = {"env": env(), "policy": policy, "policy_params": gain(), "state": start(), "length": 3} | change
    given = {k: known.get(x, x) if isinstance(x, str) else x for k, x in given.items()}
    with pytest.raises(error, match=words):
        pbad.envs.unroll(**given)


@pytest.mark.thorough
@pytest.mark.robots
@pytest.mark.optimised
@pytest.mark.filterwarnings("ignore")
def test_the_ant():
    """Under random actions every step is solved, by iterations as step by step."""
    ant = pbad.envs.wrap(pbad.envs.make("ant", dtype=DTYPE), time_limit=8, autoreset="same_step")

    def any_action(p, obs, key):
        return jax.random.uniform(key, (8,), obs.dtype, -1, 1), None

    state = jax.jit(jax.vmap(ant.reset))(jax.random.split(jax.random.key(0), 16))
    state, rows = pbad.envs.unroll(ant, any_action, None, state, 12)
    assert not np.any(state.metrics.failed) and np.all(state.metrics.episodes == 1)
    assert np.asarray(rows.info["iterations"]).mean() < 10
    np.testing.assert_allclose(
        rows.reward, sum(rows.info[k] for k in rows.info if k.startswith("reward_")), rtol=1e-6, atol=1e-6
    )
