"""Model-predictive control: python examples/mpc.py cartpole|arm|quadruped [--planner ilqr|mppi] [--html FILE]

At every control step the plan that is left over is made better, and its first action is taken. A cartpole swings up and
stands; an arm reaches targets that are drawn anew every second; a robot dog trots, its diagonal legs in phase. Steps of
the plan are those of the simulation, implicit and 0.02 to 0.05 s long; iLQR asks for their exact derivatives.
"""

import argparse
import dataclasses
import importlib.util
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad
from pbad_jax import control, forces, viz


@dataclasses.dataclass(frozen=True)
class Scene:
    """A task, and how it is planned. change: what a second begins with. left: the plan after its first step."""

    env: pbad.envs.Env
    horizon: int  # control steps
    iterations: int  # of iLQR
    samples: int  # of MPPI
    noise: float
    seconds: float
    begun: float  # spread of the first plan
    verdict: Callable[[pbad.Model, Any], str]
    change: Callable[[Any, jax.Array], Any] = lambda state, key: state
    left: Callable[[jax.Array], jax.Array] = control.shifted


def made(task: pbad.envs.Task, dt: float) -> pbad.envs.Env:
    """The environment, by implicit Euler's steps; one that is hard to solve fails soon, and its plan is not taken."""
    return pbad.envs.make(task, options=pbad.Options(dt=dt, scheme="radau1", max_iterations=20))


# --- a cart with a pole ----------------------------------------------------------------------------------------


def cartpole() -> Scene:
    """From where it hangs, upwards; the reward is dm_control's."""

    def verdict(model: pbad.Model, sims: pbad.State) -> str:
        away = np.abs((np.asarray(sims.q[:, 1]) + np.pi) % (2 * np.pi) - np.pi)
        stands = len(away) - np.max(np.nonzero(away > 0.1)[0], initial=-1) - 1
        return f"it stood within 0.1 rad for the last {stands} of {len(away)} steps"

    env = made(pbad.envs.make("cartpole", dtype=jnp.float32).task, 0.05)
    return Scene(env, 50, 3, 128, 0.5, 6.0, 0.3, verdict)


# --- an arm ------------------------------------------------------------------------------------------------------


def arm() -> Scene:
    """Gymnasium's Reacher, with a reward that has no kink; its target is drawn anew every second."""
    task = pbad.envs.make("reacher", dtype=jnp.float32).task

    def miss(model: pbad.Model, sim: pbad.State) -> jax.Array:
        at = dict(zip(model.body_names, pbad.forward_kinematics(model, sim.q).position))
        return (at["fingertip"] - at["target"])[:2]

    def reward(m: pbad.envs.Transition):
        far = jnp.sum(miss(m.model, m.sim) ** 2)
        return -100 * far - 1e-3 * jnp.sum(m.sim.v[:2] ** 2) - 0.01 * jnp.sum(m.action**2)

    def change(state: Any, key: jax.Array) -> Any:
        drawn = task.start(task.model, key).q[2:]
        return state._replace(sim=dataclasses.replace(state.sim, q=state.sim.q.at[2:].set(drawn)))

    def verdict(model: pbad.Model, sims: pbad.State) -> str:
        far = np.linalg.norm(jax.vmap(lambda s: miss(model, s))(sims), axis=1)
        return f"mm from the target at the end of every second: {np.round(1e3 * far[49::50], 1)}"

    env = made(dataclasses.replace(task, reward=reward), 0.02)
    return Scene(env, 15, 2, 64, 0.3, 6.0, 0.1, verdict, change)


# --- a robot dog ---------------------------------------------------------------------------------------------------

FEET = ("front_right", "front_left", "hind_right", "hind_left")
OFFSETS = np.asarray([0.0, 0.5, 0.5, 0.0])  # of a period: diagonal legs go together
SPEED, PERIOD, LIFT, HEIGHT, SCALE = 0.5, 0.5, 0.04, 0.19, 0.6  # m/s, s, m, m of the torso's frame, rad an action


def robot() -> pbad.Model:
    """Barkour v0 as it comes with MuJoCo's wheel, on level ground, with a site at each foot."""
    spec = importlib.util.find_spec("mujoco")
    assert spec is not None and spec.submodule_search_locations, "pip install mujoco"
    folder = pathlib.Path(spec.submodule_search_locations[0], "mjx/test_data/barkour_v0/assets")
    model = pbad.load(folder / "barkour_v0_mjx.xml", dtype=jnp.float32)
    rough = next(f for f in model.forces if isinstance(f, forces.Contact))
    level = dataclasses.replace(model, forces=tuple(f for f in model.forces if f is not rough))
    level = pbad.with_forces(level, forces.contact(level, time_constant=0.02, friction=0.8, stick_speed=0.02))
    place = lambda side: (-0.191284, -0.0191638, 0.013 if side == "right" else -0.013)  # noqa: E731
    sites = {foot: pbad.Site(f"lower_leg_1to1_{foot}", place(foot.split("_")[1])) for foot in FEET}
    return pbad.with_sites(level, sites)


def heights(model: pbad.Model, sim: pbad.State) -> jax.Array:
    """Of the four feet above the ground, m."""
    return pbad.site_poses(model, sim).position[-4:, 2] - 0.014


def gait(model: pbad.Model) -> Callable[[jax.Array], jax.Array]:
    """The joints' way from home (12,) over time, to first order: feet go back on the ground, forth in the air."""
    home = pbad.make_state(model, model.keyframes["standing"].q)
    leg = lambda J: np.nonzero(np.abs(J[:, 6:]).max(axis=0) > 1e-6)[0]  # noqa: E731
    rows = np.zeros((12, 12), np.float32)
    for i, foot in enumerate(FEET):
        J = np.asarray(pbad.site_jacobian(model, home, foot)[0])
        rows[leg(J), 3 * i : 3 * i + 3] = np.linalg.inv(J[:, 6 + leg(J)])

    def joints(t: jax.Array) -> jax.Array:
        phase = 2 * np.pi * (t / PERIOD + OFFSETS)
        along, up = -SPEED * PERIOD / 4 * jnp.cos(phase), LIFT * jnp.maximum(jnp.sin(phase), 0.0) ** 2
        return jnp.asarray(rows) @ jnp.stack([along, jnp.zeros(4), up], axis=1).reshape(-1)

    return joints


def quadruped() -> Scene:
    """It trots: forward, level, the feet as high as the gait has them, the joints not far from it."""
    task = pbad.envs.make("quadruped", model=robot(), scale=SCALE, dtype=jnp.float32).task
    home, wanted = task.model.keyframes["standing"].q, gait(task.model)
    servos = forces.actuators(task.model)[0].length

    def reward(m: pbad.envs.Transition):
        q, v, joints = m.sim.q, m.sim.v, wanted(m.sim.time)
        up = LIFT * jnp.maximum(jnp.sin(2 * np.pi * (m.sim.time / PERIOD + OFFSETS)), 0.0) ** 2
        costs = (
            4.0 * jnp.sum((v[:2] - jnp.asarray([SPEED, 0.0])) ** 2) + 0.2 * v[2] ** 2,
            4.0 * q[1] ** 2 + 60.0 * (q[2] - HEIGHT) ** 2,
            8.0 * jnp.sum(q[4:7] ** 2) + 0.05 * jnp.sum(v[3:6] ** 2),  # level
            400.0 * jnp.sum((heights(m.model, m.sim) - up) ** 2),
            2.0 * jnp.sum((q[7:] - home[7:] - joints) ** 2) + 5e-4 * jnp.sum(v[6:] ** 2),
            0.1 * jnp.sum((m.action - joints[np.asarray(servos.q_index) - 7] / SCALE) ** 2),
        )
        return -sum(costs, jnp.zeros(()))

    def verdict(model: pbad.Model, sims: pbad.State) -> str:
        high = np.asarray(jax.vmap(lambda s: heights(model, s))(sims))
        x, z, t = np.asarray(sims.q[:, 0]), np.asarray(sims.q[:, 2]), np.asarray(sims.time)
        half = len(t) // 2
        rows = [f"{foot:>12} " + "".join("#" if h < 0.005 else "." for h in high[:, i]) for i, foot in enumerate(FEET)]
        rows += [f"highest, mm: {np.round(1e3 * high[half:].max(axis=0))}, together: {np.corrcoef(high[half:].T)[0]}"]
        rows += [f"{(x[-1] - x[0]) / (t[-1] - t[0]):.2f} m/s, torso {z.min():.3f} to {z.max():.3f} m high"]
        return "\n".join(["feet on the ground (#) and in the air (.):", *rows])

    env = made(dataclasses.replace(task, reward=reward), 0.05)
    return Scene(env, 10, 1, 64, 0.2, 6.0, 0.0, verdict, left=lambda plan: jnp.roll(plan, -1, axis=0))


# --- the loop --------------------------------------------------------------------------------------------------------

SCENES = {"cartpole": cartpole, "arm": arm, "quadruped": quadruped}


class Clock(NamedTuple):
    """CPU and wall, s."""

    cpu: float
    wall: float

    @staticmethod
    def now() -> "Clock":
        """Since whenever."""
        return Clock(time.process_time(), time.perf_counter())

    def since(self, begin: "Clock") -> "Clock":
        """The difference."""
        return Clock(self.cpu - begin.cpu, self.wall - begin.wall)


def better(scene: Scene, planner: str, state: Any, actions: jax.Array, key: jax.Array, first: bool = False):
    """The plan (T, na) after one more call of the planner; the first one by iLQR may take its time."""
    if planner == "ilqr":
        return control.ilqr(scene.env, state, actions, iterations=100 if first else scene.iterations).actions
    return control.mppi(scene.env, state, actions, key, samples=scene.samples, noise=scene.noise).actions


def run(scene: Scene, planner: str, seconds: float, seed: int) -> tuple[pbad.State, list[Clock], Clock]:
    """The states after every control step, the time that each plan took, and the time to compile."""
    env, key, began = scene.env, jax.random.key(seed), Clock.now()
    world = pbad.envs.make(env.task, dt=env.dt, scheme="radau1")  # where a step that fails is made in parts
    state, step, a_second = env.reset(key), jax.jit(world.step), round(1 / env.dt)
    actions = scene.begun * jax.random.normal(key, (scene.horizon, env.action_size), state.obs.dtype)
    actions = better(scene, planner, state, actions, key, first=True)
    jax.block_until_ready((step(state, actions[0]), actions))
    compiled, clocks, sims, rewards = Clock.now().since(began), [], [], []
    for k in range(round(seconds / env.dt)):
        now = jax.random.fold_in(key, k)
        if k % a_second == 0:
            state = scene.change(state, now)
        began = Clock.now()
        actions = jax.block_until_ready(better(scene, planner, state, actions, now))
        clocks.append(Clock.now().since(began))
        state, actions = step(state, actions[0]), scene.left(actions)
        sims.append(state.sim)
        rewards.append(float(state.reward))
        if (k + 1) % a_second == 0:
            print(f"{(k + 1) * env.dt:5.2f} s: reward {np.mean(rewards[-a_second:]):+.3f} a step", flush=True)
    print(f"{int(state.metrics.failed)} of {len(sims)} steps failed, {int(state.metrics.divided)} made in parts")
    return jax.tree.map(lambda *x: jnp.stack(x), *sims), clocks, compiled


def main() -> None:
    """Control, say how it went, and how long planning took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=SCENES)
    parser.add_argument("--planner", choices=("ilqr", "mppi"), default="ilqr")
    parser.add_argument("--seconds", type=float, help="default: that of the task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--html", help="write an animation")
    a = parser.parse_args()
    scene = SCENES[a.task]()
    model, dt = scene.env.task.model, scene.env.dt
    sims, clocks, compiled = run(scene, a.planner, a.seconds or scene.seconds, a.seed)
    print(scene.verdict(model, sims))
    cpu, wall = (1e3 * np.asarray([getattr(c, name) for c in clocks]) for name in Clock._fields)
    print(
        f"{a.planner}, {scene.horizon} steps of {1e3 * dt:.0f} ms: a plan takes {cpu.mean():.1f} ms of CPU and "
        f"{wall.mean():.1f} ms ({np.median(wall):.1f} in the middle, {wall.max():.1f} at most): "
        f"{'faster' if wall.mean() < 1e3 * dt else 'slower'} than real time; "
        f"compiling, and the first plan, {compiled.cpu:.0f} s of CPU"
    )
    if a.html:
        viz.to_html(model, sims.q, a.html, dt=dt, title=f"{a.task}, {a.planner}")


if __name__ == "__main__":
    main()
