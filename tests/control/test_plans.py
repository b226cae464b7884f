"""Plans of iLQR and by sampling: a pendulum swings up within its torque; what is refused, by name."""

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, changed

import pbad_jax as pbad
from pbad_jax import control

pytestmark = pytest.mark.float64

T = 60
plans = importlib.import_module("pbad_jax.control.ilqr")  # its name is also its function's


@functools.cache
def pendulum() -> pbad.envs.Env:
    """With 3 N m, of the 5 that would lift it, and a reward without a kink."""
    task = pbad.envs.make("pendulum", dtype=DTYPE).task
    bounds = jnp.asarray([[-3.0, 3.0]], DTYPE)
    forces = [changed(f, control_range=bounds) for f in task.model.forces]
    model = dataclasses.replace(task.model, forces=tuple(forces))
    task = dataclasses.replace(task, model=model, reward=upright)
    return pbad.envs.make(task, options=pbad.Options(dt=0.05, scheme="radau1"))


def upright(m: pbad.envs.Transition):
    return jnp.cos(m.sim.q[0]) - 0.01 * m.sim.v[0] ** 2 - 0.001 * m.action[0] ** 2


def hanging() -> pbad.envs.EnvState:
    state = pendulum().reset(jax.random.key(0))
    sim = pbad.make_state(pendulum().task.model, [np.pi - 0.01], [0.0])
    return state._replace(sim=sim, obs=jnp.asarray([-1.0, 0.01, 0.0], DTYPE))


def little() -> jax.Array:
    return 0.1 * jax.random.normal(jax.random.key(5), (T, 1), DTYPE)


@pytest.mark.slow
def test_ilqr_swings_up():
    """From where it hangs, by more than one swing; within the bounds; the plan is what env.step makes of it.

    Half way up is a saddle, where plans gain 1e-4 of the return an iteration for twenty iterations.
    """
    through = functools.partial(control.ilqr, pendulum(), hanging(), iterations=100, tolerance=1e-6)
    plan = through(little())
    assert bool(plan.improved) and np.abs(plan.actions).max() <= 3.0 and np.abs(plan.actions).max() > 2.99
    _, rows = pbad.envs.unroll(
        pendulum(), plan.actions[None], None, jax.tree.map(lambda x: x[None], hanging()), T, schedule="step"
    )
    np.testing.assert_allclose(jnp.sum(rows.reward), plan.total, rtol=1e-6)
    assert rows.next_obs[0, -1, 0] > 0.99, "it came up"
    again = through(plan.actions)
    assert again.total >= plan.total - 1e-9 and int(again.iterations) <= int(plan.iterations)


@pytest.mark.slow
def test_sampling_gets_better():
    """Plan after plan the return grows; the samples of a key are the same again; the old plan is one of them."""
    actions = jnp.zeros((30, 1), DTYPE)
    first = control.mppi(pendulum(), hanging(), actions, jax.random.key(0), noise=0.6)
    same = control.mppi(pendulum(), hanging(), actions, jax.random.key(0), noise=0.6)
    np.testing.assert_array_equal(first.actions, same.actions)
    best = [float(first.best)]
    for k in range(8):
        found = control.mppi(pendulum(), hanging(), actions, jax.random.key(k), noise=0.6)
        actions = found.actions
        best.append(float(found.best))
        assert np.abs(actions).max() <= 3.0 and int(found.failed) == 0 and found.mean < found.best
    assert best[-1] > best[0]
    np.testing.assert_array_equal(control.shifted(actions)[:-1], actions[1:])


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.optimised
def test_a_cartpole_swings_up_and_stays():
    """Model-predictive: three iterations of iLQR at every step of 0.05 s, the plan that is left over to begin with."""
    env = pbad.envs.make("cartpole", dtype=DTYPE, options=pbad.Options(dt=0.05, scheme="radau1"))
    state, step = env.reset(jax.random.key(0)), jax.jit(env.step)
    assert state.obs[1] < -0.99, "it hangs"
    actions, rewards = 0.3 * jax.random.normal(jax.random.key(0), (50, 1), DTYPE), []
    for _ in range(110):
        plan = control.ilqr(env, state, actions, iterations=3)
        state, actions = step(state, plan.actions[0]), control.shifted(plan.actions)
        rewards.append(float(state.reward))
    assert np.abs(plan.actions).max() <= 1 and int(state.metrics.failed) == 0
    assert min(rewards[-30:]) > 0.97, "it stands in the middle, 1.5 s long"
    assert abs(state.sim.q[0]) < 0.05 and state.obs[1] > 0.999


@pytest.mark.thorough
@pytest.mark.robots
@pytest.mark.optimised
@pytest.mark.filterwarnings("ignore")
def test_a_reacher_reaches():
    """A plan of 0.6 s by iLQR from each of three starts: the tip comes to its target."""
    env = pbad.envs.make("reacher", dtype=DTYPE, options=pbad.Options(dt=0.02, scheme="radau1"))
    some = 0.1 * jax.random.normal(jax.random.key(0), (30, 2), DTYPE)  # seed 1 is straight, its target behind: a saddle
    starts = [env.reset(jax.random.key(seed)) for seed in range(3)]
    plans = jnp.stack([control.ilqr(env, s, some, iterations=40).actions for s in starts])
    lanes = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    rows = pbad.envs.unroll(env, plans, None, lanes, 30)[1]
    away = -np.asarray(rows.info["reward_dist"])
    assert away[:, 0].max() > 0.2
    np.testing.assert_array_less(away[:, -1], 0.01)  # m


def test_bounded_newton():
    """The bounded problem of a backward step against its definition: no better point on a grid."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        H = rng.normal(size=(2, 2))
        H, g = H @ H.T + 0.3 * np.eye(2), 2 * rng.normal(size=2)
        k, K = plans._bounded(*map(jnp.asarray, (g, H, np.eye(2), [-1.0, -0.5], [0.5, 1.0])))
        x = np.stack(np.meshgrid(np.linspace(-1, 0.5, 61), np.linspace(-0.5, 1, 61)), -1).reshape(-1, 2)
        costs = x @ g + 0.5 * np.einsum("si,ij,sj->s", x, H, x)
        assert g @ k + 0.5 * k @ H @ k <= costs.min() + 1e-9
        inside = (np.asarray(k) > [-1, -0.5]) & (np.asarray(k) < [0.5, 1])
        np.testing.assert_allclose(np.asarray(K)[~inside], 0, atol=1e-12)


@pytest.mark.parametrize("plan", [control.ilqr, lambda *a: control.mppi(*a, jax.random.key(0))])
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"env": "resets"}, pbad.OptionError, "resets itself"),
        ({"env": None}, pbad.OptionError, "NoneType"),
        ({"state": "lanes"}, pbad.TaskError, r"sim.q of shape \(1, 1\)"),
        ({"actions": np.zeros(5)}, pbad.TaskError, r"\(5,\)"),
        ({"actions": np.zeros((0, 1))}, pbad.TaskError, r"\(0, 1\)"),
    ],
)
def test_bad_input(plan, change, error, words):
    lanes = jax.tree.map(lambda x: x[None], hanging())
    known = {"resets": pbad.envs.wrap(pendulum(), autoreset="same_step"), "lanes": lanes}
    given = {"env": pendulum(), "state": hanging(), "actions": little()} | change
    given = {k: known.get(x, x) if isinstance(x, str) else x for k, x in given.items()}
    with pytest.raises(error, match=words):
        plan(*given.values())


def test_what_ilqr_cannot_take():
    env, free = pendulum(), dataclasses.replace(pendulum().task, low=[-np.inf], high=[np.inf])
    with pytest.raises(pbad.OptionError, match="repeat"):
        control.ilqr(pbad.envs.wrap(env, repeat=2), hanging(), little())
    with pytest.raises(pbad.OptionError, match="history"):
        control.ilqr(pbad.envs.make(env.task, dt=0.05, scheme="legendre2"), hanging(), little())
    with pytest.raises(pbad.TaskError, match="not bounded"):
        control.mppi(pbad.envs.make(free, dt=0.05), hanging(), little(), jax.random.key(0))
