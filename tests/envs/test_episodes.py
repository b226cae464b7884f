"""Rules of an environment: ends, resets, repeated actions, delays, failed steps, and what is refused, by name."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, part

import pbad_jax as pbad
from pbad_jax.envs import Params, Task, Transition

pytestmark = pytest.mark.float64

HOW = pbad.Options(dt=0.05, scheme="radau1", on_failure="freeze", max_iterations=8)
LIMIT = 5


@functools.cache
def task() -> Task:
    """gymnasium's pendulum, with an end of its own at great speed, and half its reward as a term."""
    t = pbad.envs.make("pendulum", dtype=DTYPE).task
    terms = lambda m: (t.reward(m), {"half": 0.5 * t.reward(m)})  # noqa: E731
    return dataclasses.replace(t, reward=terms, terminated=lambda m: jnp.abs(m.sim.v[0]) > 6.0, name="swing")


@functools.cache
def plain() -> pbad.envs.Env:
    return pbad.envs.make(task(), options=HOW)


@functools.cache
def limited() -> pbad.envs.Env:
    return pbad.envs.wrap(plain(), time_limit=LIMIT, autoreset="same_step", max_delay=2)


@functools.cache
def stepping(env):
    """Reset and step of 4 lanes, jitted."""
    own = jax.vmap(lambda p: env.params._replace(delay=p))(jnp.zeros(4, jnp.int32))
    axes = jax.tree.map(lambda _: None, env.params)._replace(delay=0)
    each = jax.jit(jax.vmap(env.step, (0, 0, axes)))

    def step(state, action, params=None):
        params = env.params._replace(delay=own.delay) if params is None else params
        return each(state, action, params)

    return jax.jit(jax.vmap(env.reset)), step


KEYS = jax.random.split(jax.random.key(3), 4)


def act(u: float) -> jax.Array:
    """The same action for all lanes."""
    return jnp.full((4, 1), u, DTYPE)


def pushed(state, v):
    """The lanes with other speeds."""
    return state._replace(sim=dataclasses.replace(state.sim, v=jnp.asarray(v, DTYPE)[:, None]))


def test_time_limit_reset_and_the_last_observation():
    """After LIMIT steps all lanes are truncated, and begin anew with the end in their hands."""
    env = limited()
    reset, step = stepping(env)
    state, seen = reset(KEYS), []
    for _ in range(LIMIT + 1):
        state = step(state, act(0.5))
        seen.append(state)
    cut = np.array([s.truncated for s in seen])
    np.testing.assert_array_equal(cut, np.repeat(np.arange(1, LIMIT + 2) == LIMIT, 4).reshape(-1, 4))
    last, after = seen[LIMIT - 1], seen[LIMIT]
    assert not np.any(last.terminated) and np.abs(last.obs - last.info["final_obs"]).max() > 0.01
    np.testing.assert_array_equal(seen[LIMIT - 2].obs, seen[LIMIT - 2].info["final_obs"])
    np.testing.assert_allclose(last.obs[:, 0], jnp.cos(last.sim.q[:, 0]), rtol=1e-6)
    np.testing.assert_array_equal(last.metrics.length, 0)
    np.testing.assert_array_equal(last.metrics.last_length, LIMIT)
    np.testing.assert_allclose(last.metrics.last_total, sum(s.reward for s in seen[:LIMIT]), rtol=1e-6)
    np.testing.assert_array_equal(after.metrics.episodes, 1)
    np.testing.assert_array_equal(after.sim.time, last.sim.time + HOW.dt)
    assert len(np.unique(np.asarray(last.obs[:, 0]))) == 4, "every lane starts at its own"


def test_an_end_of_its_own():
    """Lane 1 is fast: terminated, not truncated, and reset; the others go on."""
    reset, step = stepping(limited())
    state = step(pushed(reset(KEYS), [0.1, 7.5, 0.2, 0.0]), act(0.0))
    np.testing.assert_array_equal(state.terminated, [False, True, False, False])
    assert not np.any(state.truncated)
    assert abs(state.info["final_obs"][1, 2]) > 6 > abs(state.obs[1, 2])
    assert state.reward[1] < -0.1 * 7.5**2 / 2


@pytest.mark.parametrize("rule", ["truncate", "terminate"])
def test_a_failed_step(rule):
    """No reward, the last good state to bootstrap from, counted; and the other lanes have the same bits."""
    env = limited() if rule == "truncate" else pbad.envs.wrap(limited(), failed_step=rule)
    reset, step = stepping(env)
    start = reset(KEYS)
    action = act(0.3)
    well, sick = step(start, action), step(start, action.at[2].set(jnp.nan))
    np.testing.assert_array_equal(sick.truncated, [False, False, rule == "truncate", False])
    np.testing.assert_array_equal(sick.terminated, [False, False, rule == "terminate", False])
    np.testing.assert_array_equal(sick.info["status"], [0, 0, pbad.Status.NONFINITE_INPUT, 0])
    np.testing.assert_array_equal(sick.metrics.failed, [0, 0, 1, 0])
    np.testing.assert_array_equal(sick.info["final_obs"][2], start.obs[2])
    assert sick.reward[2] == 0 and np.isfinite(sick.obs).all() and sick.metrics.episodes[2] == 1
    for a, b in zip(
        jax.tree.leaves((well.sim, well.obs, well.reward)), jax.tree.leaves((sick.sim, sick.obs, sick.reward))
    ):
        np.testing.assert_array_equal(a[jnp.asarray([0, 1, 3])], b[jnp.asarray([0, 1, 3])])
    again = step(sick, action)
    assert not np.any(again.done) and np.all(again.info["status"] == 0), "it was reset"


def test_without_a_reset_a_failed_lane_stays():
    reset, step = stepping(plain())
    state = step(reset(KEYS), act(jnp.nan).at[0].set(0.0))
    after = step(state, act(0.0))
    np.testing.assert_array_equal(after.truncated, [False, True, True, True])
    np.testing.assert_array_equal(after.info["status"][1:], pbad.Status.FROZEN)
    np.testing.assert_array_equal(after.metrics.failed, [0, 1, 1, 1])
    np.testing.assert_array_equal(after.reward[1:], 0)
    np.testing.assert_array_equal(after.sim.q[1:], state.sim.q[1:])


def test_late_actions():
    """With a delay of d an action acts d steps later; before the first one nothing does."""
    env = limited()
    reset, step = stepping(env)
    params = env.params._replace(delay=jnp.asarray([0, 1, 2, 2], jnp.int32))
    same = jax.tree.map(lambda x: jnp.repeat(x[:1], 4, 0), reset(KEYS))
    late, prompt = same, [same] * 3
    for k, u in enumerate([2.0, -1.0, 0.5, 0.0]):
        late = step(late, act(u), params)
        for d in range(3):
            acts = [2.0, -1.0, 0.5, 0.0][k - d] if k >= d else 0.0
            prompt[d] = step(prompt[d], act(acts))
            np.testing.assert_allclose(late.sim.v[d], prompt[d].sim.v[d], atol=1e-6)
    assert np.ptp(late.sim.v[:3]) > 0.03
    np.testing.assert_array_equal(late.sim.v[2], late.sim.v[3])


def test_repeated_actions_end_early():
    """Three steps for each action, rewards and their terms summed; an end within is kept, and what comes after it does
    not count.
    """
    env = pbad.envs.wrap(plain(), repeat=3)
    assert env.dt == pytest.approx(0.15)
    (reset, step), (_, once) = stepping(env), stepping(plain())
    start = pushed(reset(KEYS), [0.0, 5.0, 7.5, 0.5])
    action = act(1.0)
    got, one, rewards, lengths = step(start, action), start, np.zeros(4), np.zeros(4, int)
    over = np.zeros(4, bool)
    for _ in range(3):
        one = once(one, action)
        rewards += np.where(over, 0, one.reward)
        lengths += ~over
        over |= np.asarray(one.terminated)
    np.testing.assert_allclose(got.reward, rewards, rtol=1e-6)
    np.testing.assert_allclose(got.info["half"], 0.5 * got.reward, rtol=1e-5)
    np.testing.assert_array_equal(got.terminated, over)
    np.testing.assert_allclose(got.sim.time, HOW.dt * lengths, rtol=1e-6)
    np.testing.assert_array_equal(got.metrics.steps, 1)
    assert over.any() and not over.all() and lengths.min() == 1


# --- other params ------------------------------------------------------------------------------------------------


def test_randomise():
    """Masses with their inertias, frictions, gains and delays within their bounds; of spheres on the ground too."""
    spider = pbad.envs.wrap(pbad.envs.make("spider", dtype=DTYPE), max_delay=3)
    draw = jax.vmap(lambda key: spider.randomise(key, mass=(0.5, 2.0), friction=(0.1, 1.0), gain=(0.9, 1.1)))
    params, own = draw(jax.random.split(jax.random.key(0), 64)), spider.params.model
    ratio = (
        params.model.second_moment[:, :, 3, 3]
        / jnp.where(own.second_moment[:, 3, 3] > 0, own.second_moment[:, 3, 3], 1)[None]
    )
    ratio = np.asarray(ratio)[:, np.asarray(own.topology.body_link)]
    assert 0.5 <= ratio.min() < 0.6 and 1.9 < ratio.max() <= 2.0 and np.ptp(ratio, axis=1).min() > 0.1
    links = np.asarray(own.topology.body_link)
    shape = params.model.second_moment[:, links] / params.model.second_moment[:, links, 3:, 3:]
    wanted = (own.second_moment[links] / own.second_moment[links, 3:, 3:])[None]
    np.testing.assert_allclose(shape, np.broadcast_to(wanted, shape.shape), atol=1e-6)
    for kind, name, low, high in (("Contact", "friction", 0.1, 1.0), ("VectorActuation", "gain", 0.9, 1.1)):
        i = [pbad.forces.name_of(f) for f in own.forces].index(kind)
        factor = getattr(part(params.model.forces[i], name), name) / getattr(part(own.forces[i], name), name)[None]
        assert low <= factor.min() and factor.max() <= high and np.ptp(factor, axis=0).min() > 0.5 * (high - low)
    assert set(np.asarray(params.delay).tolist()) == {0, 1, 2, 3}
    again = draw(jax.random.split(jax.random.key(0), 64))
    np.testing.assert_array_equal(again.model.second_moment, params.model.second_moment)


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({"mass": (2, 1)}, "mass"),
        ({"gain": 1.0}, "gain"),
        ({"friction": (-1, 1)}, "friction"),
        ({"delay": (0, 1)}, "delay"),
    ],
)
def test_bad_ranges(ranges, words):
    with pytest.raises(pbad.OptionError, match=words):
        plain().randomise(jax.random.key(0), **ranges)


def with_other(params: Params, **more) -> Params:
    """Params whose model is changed."""
    return params._replace(model=dataclasses.replace(params.model, **more))


# --- bad input ---------------------------------------------------------------------------------------------------


def changed(**more) -> Task:
    return dataclasses.replace(task(), **more)


def grows(m: Transition):
    return m.sim.q if m.before is m.sim else jnp.concatenate([m.sim.q, m.sim.v])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"observe": grows}, r"observe of task 'swing'.*\(2,\) after a step.*\(1,\) at the start"),
        ({"observe": lambda m: m.sim.q[0]}, r"observe.*\(\)"),
        ({"observe": lambda m: jnp.zeros(3, int)}, "observe.*int"),
        ({"reward": lambda m: m.sim.q}, r"reward of task 'swing' has shape \(1,\).*scalar"),
        ({"reward": lambda m: (m.sim.q[0], {"effort": m.sim.q})}, "term 'effort'"),
        ({"reward": lambda m: (m.sim.q[0], {"status": m.sim.q[0]})}, "term 'status'.*rename"),
        ({"terminated": lambda m: m.sim.q > 0}, r"terminated.*\(1,\)"),
        ({"terminated": lambda m: 1.0}, "terminated.*float"),
        ({"control": lambda model, a: jnp.zeros(4)}, r"control.*\(4,\)"),
        ({"low": [1.0], "high": [0.0]}, "low"),
    ],
)
def test_a_task_that_does_not_fit(more, words):
    """Named where the environment is made, before anything is compiled."""
    with pytest.raises(pbad.TaskError, match=words):
        pbad.envs.make(changed(**more), options=HOW)


def test_a_start_of_another_model():
    other = pbad.chain(2, dtype=DTYPE)
    with pytest.raises(pbad.StateError, match="start of task 'swing'.*fingerprint"):
        pbad.envs.make(changed(start=lambda model, key: pbad.make_state(other)), options=HOW)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (lambda own: own.model, "wanted Params"),
        (lambda own: own._replace(model=pbad.chain(1)), "another model.*'chain:1'.*'pendulum'"),
        (lambda own: with_other(own, forces=own.model.forces[:1]), "structure.*Gravity"),
        (lambda own: jax.vmap(lambda g: with_other(own, gravity=g))(jnp.zeros((5, 3))), r"\(5, 1, 3, 4\).*jax.vmap"),
    ],
)
def test_params_of_another_model(params, words):
    env = plain()
    with pytest.raises(pbad.TaskError, match=words):
        jax.eval_shape(lambda: env.reset(KEYS[0], params(env.params)))


@pytest.mark.parametrize(
    ("rules", "words"),
    [({"time_limit": 0}, "time_limit"), ({"autoreset": "later"}, "'later'"), ({"repeat": 1.5}, "repeat"),
     ({"failed_step": "ignore"}, "'ignore'"), ({"max_delay": -1}, "max_delay")],
)  # fmt: skip
def test_bad_rules(rules, words):
    with pytest.raises(pbad.OptionError, match=words):
        pbad.envs.wrap(plain(), **rules)


def test_an_action_that_does_not_fit():
    with pytest.raises(pbad.TaskError, match=r"action has shape \(4, 1\).*batch"):
        jax.eval_shape(lambda: plain().step(plain().reset(KEYS[0]), jnp.zeros((4, 1))))
    assert isinstance(plain().params, Params)
