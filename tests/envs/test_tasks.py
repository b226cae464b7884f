"""Tasks against the environments whose names they bear, state by state: what is seen, rewarded, over. No step."""

import functools
import importlib
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_legs import four_legs
from helpers import DTYPE

import pbad_jax as pbad
from pbad_jax.envs import TASKS, Transition, sensors
from pbad_jax.envs.randomise import randomised
from pbad_jax.envs.state import Params
from pbad_jax.envs.task import control_range

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("ignore")]

MUJOCO = {  # ours: gymnasium's
    "swimmer": "Swimmer-v5",
    "half_cheetah": "HalfCheetah-v5",
    "hopper": "Hopper-v5",
    "walker2d": "Walker2d-v5",
    "ant": "Ant-v5",
    "humanoid": "Humanoid-v5",
    "reacher": "Reacher-v5",
}
CONTACT = {"ant": 78, "humanoid": 78}  # numbers at the end of an observation that are contact forces


@functools.cache
def env(name: str) -> pbad.envs.Env:
    return pbad.envs.make(name, dtype=DTYPE)


def theirs(name: str) -> Any:
    gymnasium: Any = importlib.import_module("gymnasium")
    return gymnasium.make(name).unwrapped


@functools.cache
def looked_at(name: str):
    """What our task says of a moment: jitted, without a step."""
    task = env(name).task

    def told(m: Transition):
        reward = task.reward(m)
        return task.observe(m), reward if isinstance(reward, tuple) else (reward, {}), task.terminated(m)

    return jax.jit(told)


def moment(name: str, before, after, action) -> Transition:
    """From (q, v) to (q, v) under an action."""
    e, rest = env(name), jnp.zeros(env(name).task.model.nv)
    states = [
        pbad.make_state(e.task.model, pbad.retract(e.task.model, jnp.asarray(q), rest), v) for q, v in (before, after)
    ]
    action = jnp.asarray(action)
    return Transition(e.task.model, *states, action, e.task.control(e.task.model, action), jnp.asarray(e.dt), None)


def random_states(name: str, n: int, seed: int = 0):
    """Pairs of states a step apart, high in the air and low, upright and falling, and actions."""
    model, rng = env(name).task.model, np.random.default_rng(seed)
    for k in range(n):
        q = np.array(model.q0) + rng.normal(size=model.nq) * (0.02, 0.1, 1.0)[k % 3]
        if model.nq > model.nv:
            q[3:7] /= np.linalg.norm(q[3:7])
            q[2] = (1.5, 0.9, 0.25)[k % 3] if name == "ant" else (1.4, 1.9, 0.9)[k % 3]
        v = rng.normal(size=model.nv) * (0.3, 3.0, 30.0)[k % 3]
        after = np.array(pbad.retract(model, jnp.asarray(q), jnp.asarray(env(name).dt * v)))
        low, high = control_range(model)
        yield (q, v), (after, v + 0.1 * rng.normal(size=model.nv)), 1.2 * rng.uniform(low, high)


@pytest.mark.robots
@pytest.mark.parametrize("name", MUJOCO)
def test_as_gymnasium_says(name):
    """Their q and v are set to ours, before and after; what they then say of the step."""
    their = theirs(MUJOCO[name])
    np.testing.assert_allclose(env(name).dt, their.dt, rtol=1e-12)
    assert env(name).observation_size == their.observation_space.shape[0]
    np.testing.assert_allclose(np.stack(env(name).action_bounds), [their.action_space.low, their.action_space.high])
    ends = set()
    for before, after, action in random_states(name, 6):
        obs, (reward, terms), ended = looked_at(name)(moment(name, before, after, action))
        their.reset(seed=0)
        their.set_state(*before)
        their.do_simulation = functools.partial(arrive, their, after)
        their_obs, their_reward, their_end, cut, info = their.step(action)
        seen = len(obs) - CONTACT.get(name, 0)
        np.testing.assert_allclose(obs[:seen], their_obs[:seen], rtol=1e-7, atol=1e-7)
        for term, value in terms.items():
            if term != "reward_contact":
                np.testing.assert_allclose(value, info[term], rtol=1e-7, atol=1e-9, err_msg=term)
        ours = reward - terms.get("reward_contact", 0.0)
        np.testing.assert_allclose(ours, their_reward - info.get("reward_contact", 0.0), rtol=1e-7, atol=1e-9)
        assert bool(ended) == bool(their_end) and not cut
        ends.add(bool(ended))
    assert ends == ({True, False} if name in ("hopper", "walker2d", "ant", "humanoid") else {False})


def arrive(their, after, control, frames) -> None:
    """Instead of their simulation: the state after, with all that MuJoCo says of it."""
    mujoco: Any = importlib.import_module("mujoco")
    their.data.qpos[:], their.data.qvel[:], their.data.ctrl[:] = *after, control
    mujoco.mj_forward(their.model, their.data)
    mujoco.mj_rnePostConstraint(their.model, their.data)


@pytest.mark.slow
@pytest.mark.robots
def test_contact_of_every_kind_is_sensed_and_randomised():
    """A ball and a box in a box, a capsule in the ball: all three kinds between bodies."""
    kinds = {"box": (0.1, 0.1, 0.1), "plate": (0.1, 0.1, 0.1), "ball": (0.1,), "rod": (0.1, 0.1)}
    shape = dict(zip(kinds, ("box", "box", "sphere", "capsule")))
    bodies = [
        pbad.Body(n, 1.0, inertia=np.eye(3), position=(0.17 * i, 0, 0.02 * i), joints=[pbad.Joint("free")],
                  geoms=[pbad.Geom(shape[n], kinds[n])])
        for i, n in enumerate(kinds)
    ]  # fmt: skip
    model = pbad.build_model(bodies, dtype=DTYPE)
    pairs = [("box", "plate"), ("plate", "ball"), ("ball", "rod")]
    apart = [pbad.forces.contact_between(model, [pair], stiffness=500.0)[0] for pair in pairs]
    state, none = pbad.make_state(model), jnp.zeros(0, DTYPE)
    for force, pair in zip(apart, pairs):
        own = pbad.with_forces(model, force)
        now = Transition(own, state, state, none, none, jnp.ones((), DTYPE), None)
        wrench = np.asarray(jax.jit(sensors.contact_forces)(now))
        touched = [model.body_names.index(n) for n in pair]
        assert (np.linalg.norm(wrench[touched, 3:], axis=1) > 1.0).all(), pair
        np.testing.assert_allclose(wrench.sum(0), 0, atol=1e-9)
        other = randomised(Params(own, jnp.zeros((), jnp.int32)), 0, jax.random.key(0), friction=(0.5, 0.5))
        np.testing.assert_allclose(other.model.forces[-1].friction, 0.5 * np.asarray(force.friction))


def test_contact_forces_are_mujocos_wrenches():
    """Our forces, given to MuJoCo as forces on its bodies high in the air, are what its cfrc_ext says."""
    mujoco: Any = importlib.import_module("mujoco")
    their, model = theirs("Ant-v5"), env("ant").task.model
    (q, v), *_ = next(random_states("ant", 1))
    q[2] = 0.05  # its body and legs are in the ground
    m = moment("ant", (q, v), (q, v), np.zeros(8))
    wrench = np.asarray(jax.jit(sensors.contact_forces)(m))
    assert np.abs(wrench[:, 5]).max() > 10 and np.abs(wrench[:, :2]).max() > 0.1
    np.testing.assert_array_less(-1e-9, wrench[:, 5])
    mass_centre = np.asarray(pbad.center_of_mass(model, m.sim))
    data = their.data
    data.qpos[:], data.qvel[:] = q, v
    data.qpos[2] += 10
    mujoco.mj_forward(their.model, data)
    lift = np.array([0, 0, 10.0])
    np.testing.assert_allclose(mass_centre + lift, data.subtree_com[1], atol=1e-9)
    for i, (torque, force) in enumerate(zip(wrench[:, :3], wrench[:, 3:])):
        arm = data.xipos[i + 1] - data.subtree_com[1]
        data.xfrc_applied[i + 1] = [*force, *(torque - np.cross(arm, force))]
    mujoco.mj_forward(their.model, data)
    mujoco.mj_rnePostConstraint(their.model, data)
    np.testing.assert_allclose(wrench, data.cfrc_ext[1:], atol=1e-8 * np.abs(wrench).max())
    np.testing.assert_allclose(data.cfrc_ext[0], 0, atol=1e-9)


@pytest.mark.parametrize("name, other", [("pendulum", "Pendulum-v1"), ("acrobot", "Acrobot-v1")])
def test_classic_control(name, other):
    """Of the same state the same is seen, rewarded and ended."""
    their, rng = theirs(other), np.random.default_rng(0)
    their.reset(seed=0)
    ends = set()
    for _ in range(20):
        n = env(name).task.model.nq
        q, v = rng.uniform(-4, 4, n), rng.uniform(-3, 3, n)
        u = rng.uniform(-2.5, 2.5, 1)
        obs, (reward, _), ended = looked_at(name)(moment(name, (q, v), (q, v), u))
        their.state = np.r_[q, v]
        if name == "pendulum":
            np.testing.assert_allclose(obs, their._get_obs(), atol=1e-6)
            np.testing.assert_allclose(reward, their.step(u)[1], rtol=1e-12)
            continue
        np.testing.assert_allclose(obs, their._get_ob(), atol=1e-6)
        assert bool(ended) == their._terminal() and reward == (0.0 if ended else -1.0)
        ends.add(bool(ended))
    assert name == "pendulum" or ends == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("name, other", [("pendulum", "Pendulum-v1"), ("acrobot", "Acrobot-v1")])
def test_classic_accelerations(name, other):
    """The models have gymnasium's masses, lengths and gravity."""
    their, model, rng = theirs(other), env(name).task.model, np.random.default_rng(1)
    if name == "acrobot":
        their.reset(seed=0)
    for _ in range(5):
        q, v, u = rng.uniform(-3, 3, model.nq), rng.uniform(-2, 2, model.nv), rng.uniform(-1, 1, 1)
        state = pbad.make_state(model, q, v)
        a = pbad.newton_euler.acceleration(model, state, u)
        if name == "acrobot":
            np.testing.assert_allclose(a, their._dsdt(np.r_[q, v, u])[2:4], rtol=1e-9)
        else:
            np.testing.assert_allclose(a, [15 * np.sin(q[0]) + 3 * u[0]], rtol=1e-9)


@pytest.mark.robots
def test_cartpole_is_dm_controls():
    """Masses and forces of its file, and its reward of the same states."""
    mujoco: Any = importlib.import_module("mujoco")
    suite = pathlib.Path(importlib.import_module("dm_control").__path__[0]) / "suite"
    tolerance = importlib.import_module("dm_control.utils.rewards").tolerance
    their, rng = mujoco.MjModel.from_xml_path(str(suite / "cartpole.xml")), np.random.default_rng(0)
    data, model = mujoco.MjData(their), env("cartpole").task.model
    for _ in range(5):
        q, v, u = rng.uniform(-1.5, 1.5, 2) * [1, 2], rng.uniform(-4, 4, 2), rng.uniform(-1, 1, 1)
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, v, u
        mujoco.mj_forward(their, data)
        state = pbad.make_state(model, q, v)
        np.testing.assert_allclose(pbad.newton_euler.acceleration(model, state, u), data.qacc, rtol=1e-6)
        obs, (reward, _), _ = looked_at("cartpole")(moment("cartpole", (q, v), (q, v), u))
        upright = (data.body("pole_1").xmat[8] + 1) / 2
        centred = (1 + tolerance(q[0], margin=2)) / 2
        gentle = (4 + tolerance(u, margin=1, value_at_margin=0, sigmoid="quadratic")[0]) / 5
        slow = (1 + tolerance(v[1:], margin=5).min()) / 2
        np.testing.assert_allclose(reward, upright.mean() * gentle * slow * centred, rtol=1e-9)
        np.testing.assert_allclose(obs, [q[0], np.cos(q[1]), np.sin(q[1]), *v], atol=1e-12)


@pytest.mark.parametrize("name", [n for n in TASKS if n != "quadruped"])
def test_starts(name):
    """Every task begins at another state with another key, in range, not over; and at the same with the same."""
    e = env(name)
    start = jax.jit(jax.vmap(e.reset))
    a = start(jax.random.split(jax.random.key(0), 8))
    b = start(jax.random.split(jax.random.key(0), 8))
    np.testing.assert_array_equal(a.obs, b.obs)
    assert a.obs.shape == (8, e.observation_size) and np.isfinite(a.obs).all() and np.ptp(a.obs, axis=0).max() > 0
    assert not np.any(a.done) and not np.any(a.reward)
    ended = jax.vmap(lambda s: e.task.terminated(Transition(e.task.model, s, s, 0.0, 0.0, 1.0, None)))(a.sim)
    assert not np.any(ended)


def test_the_papers_spider():
    """18 degrees of freedom: a free body, four balls, four hinges."""
    model = env("spider").task.model
    kinds = [j.type for j in model.topology.joints]
    assert model.nv == 22 - 4 == 6 + 4 * 3 or model.nv == 6 + 4 * 3 + 4
    assert kinds == ["free"] + 4 * ["ball", "hinge"]
    assert env("paper_swimmer").task.model.nu == 3


def test_an_environment_made_while_a_function_is_traced():
    """Its numbers are numbers, in whatever jit of somebody's it is made."""

    @jax.jit
    def start(key):
        env = pbad.envs.make("pendulum", dtype=DTYPE)
        assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(env.task.model))
        return env.reset(key).obs

    np.testing.assert_array_equal(
        start(jax.random.key(0)), jax.jit(pbad.envs.make("pendulum", dtype=DTYPE).reset)(jax.random.key(0)).obs
    )


def test_quadruped():
    """From a file: the home pose and its control, a command in what is seen, a ground; rewards peak at the command."""
    e = pbad.envs.make("quadruped", path=four_legs(), dtype=DTYPE)
    model, task = e.task.model, e.task
    assert any(isinstance(f, pbad.forces.Contact) for f in model.forces)
    np.testing.assert_allclose(task.control(model, jnp.asarray([0.0, 1, -1, 0])), [0.1, 0.4, -0.2, 0.1])
    state = jax.jit(e.reset)(jax.random.key(1))
    np.testing.assert_array_equal(state.obs[9:12], state.goal)
    turned = pbad.make_state(model, jnp.asarray([0, 0, 0.3, np.sqrt(0.5), 0, 0, np.sqrt(0.5), 0.1, 0.1, 0.1, 0.1]))
    sim = [turned] * 2
    sim[1] = pbad.make_state(model, turned.q, jnp.zeros(10).at[1].set(0.7))  # to the north, which is forward
    told = [
        task.reward(Transition(model, sim[1], sim[1], jnp.zeros(4), jnp.zeros(4), e.dt, jnp.asarray(goal)))[1]
        for goal in ([0.7, 0, 0], [0, 0.7, 0])
    ]
    assert told[0]["reward_velocity"] > 0.999 and told[1]["reward_velocity"] < 0.1
    motors = '<motor joint="hip{k}" ctrlrange="-2 4" ctrllimited="true"/>'
    without = four_legs(motors, control="")
    driven = pbad.envs.make("quadruped", path=without).task
    np.testing.assert_allclose(driven.control(driven.model, jnp.asarray([-1.0, 0, 1, 0])), [-2, 1, 4, 1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pbad.envs.make("anr"), "no environment 'anr'.*'pendulum', 'cartpole'.*Did you mean 'ant'"),
        (lambda: pbad.envs.make("quadruped"), "path"),
        (lambda: pbad.envs.make("quadruped", model=pbad.chain(2)), "floating|free"),
        (lambda: pbad.envs.make("pendulum", legs=3), "pendulum.*legs"),
        (lambda: pbad.envs.make("ant", model=3), "int 3"),
        (
            lambda: pbad.envs.make("quadruped", path=four_legs('<motor joint="hip{k}"/>', control="")),
            "no control range",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(pbad.TaskError, match=words):
        call()


def test_without_gymnasium(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(pbad.TaskError, match=r'pip install "pbad_jax\[models,rl\]"'):
        pbad.envs.make("ant")


def test_constraints_of_its_file():
    """As `load` makes them: contact and limits by MuJoCo's own law, or springs."""
    ends = {how: pbad.envs.make("ant", constraints=how).task.model for how in ("spring", "MuJoCo")}
    for how, model in ends.items():
        touch = next(f for f in model.forces if isinstance(f, pbad.forces.Contact))
        assert (touch.end is not None) == touch.pyramid == (how == "MuJoCo")
    with pytest.raises(pbad.OptionError, match="constraints='soft'"):
        pbad.envs.make("ant", constraints="soft")
