"""PPO on any environment: python examples/ppo.py spider --steps 1000000 [--html FILE] [--lanes 128] [--repeat 1]

For MuJoCo: `python examples/ppo.py ant --constraints MuJoCo --repeat 5 --scheme radau1` (docs/environments.md).

Or on a Task of your own, `python examples/ppo.py mine.py:stand`, where stand() gives it. `--set discount=0.99 spread=1`
turns any number of `Settings`: what has to be planned over seconds, as a swing-up, wants to look farther ahead.

Many lanes of `unroll`, which do not wait for one another's hard steps; generalised advantages (Schulman et al. 2016)
that bootstrap from the last observation where an episode was cut, and several epochs on a clipped objective (Schulman
et al. 2017), whose rate keeps the policy's change near a wanted one. With --policy-gradient there is one epoch, of one
batch, without a clip: the paper's method, with a baseline.
"""

import argparse
import dataclasses
import functools
import importlib.util
import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import pbad_jax as pbad


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a person may turn. `change`: the wanted mean KL divergence of an update."""

    lanes: int = 128
    length: int = 16  # control steps of a lane in an update
    time_limit: int = 200
    repeat: int = 1  # steps of the simulation that make up a control step of the task's length
    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 5
    batches: int = 4
    rate: float = 1e-3
    change: float = 0.01
    clip: float = 0.2
    discount: float = 0.97
    trace: float = 0.95
    entropy: float = 0.0
    spread: float = 0.5  # standard deviation of actions to begin with, of half their range


LEARNT = ("actor", "critic", "log_spread")
POLICY_GRADIENT = {"epochs": 1, "batches": 1, "clip": np.inf}


class Norm(NamedTuple):
    """Running mean and mean square of what was seen, with how many they were."""

    number: jax.Array
    mean: jax.Array
    square: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        """x in units of its spread, within ±5."""
        spread = jnp.sqrt(jnp.maximum(self.square - self.mean**2, 1e-6))
        return jnp.clip((x - self.mean) / spread, -5.0, 5.0)

    def seen(self, x: jax.Array) -> "Norm":
        """With x (lanes, length, ...) too."""
        n = x.shape[0] * x.shape[1]
        w = n / (self.number + n)
        new = jnp.mean(x, axis=(0, 1)), jnp.mean(x**2, axis=(0, 1))
        mean, square = (old + w * (y - old) for old, y in zip((self.mean, self.square), new))
        return Norm(self.number + n, mean, square)


def layers(key: jax.Array, sizes: tuple[int, ...], last: float) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and offsets; the last layer is scaled by `last`."""
    out, scales = [], [1.0] * (len(sizes) - 2) + [last]
    for k, (n, m, scale) in zip(jax.random.split(key, len(scales)), zip(sizes, sizes[1:], scales)):
        weights = jax.nn.initializers.orthogonal(scale)(k, (n, m), jnp.float32)
        out.append((weights, jnp.zeros(m, jnp.float32)))
    return out


def applied(net: Any, x: jax.Array) -> jax.Array:
    """Of a network with elu."""
    for w, b in net[:-1]:
        x = jax.nn.elu(x @ w + b)
    return x @ net[-1][0] + net[-1][1]


def log_density(x: jax.Array, mean: jax.Array, log_spread: jax.Array) -> jax.Array:
    """Of a normal distribution, but for a constant."""
    return -jnp.sum(0.5 * ((x - mean) / jnp.exp(log_spread)) ** 2 + log_spread, axis=-1)


def policy(p: dict, obs: jax.Array, key: jax.Array):
    """The action; with `loud` 0 the mean one. Extras: what it is of, before it is put into the actions' range."""
    mean = applied(p["actor"], p["norm"](obs))
    x = mean + p["loud"] * jnp.exp(p["log_spread"]) * jax.random.normal(key, mean.shape, mean.dtype)
    return p["middle"] + p["half"] * jnp.clip(x, -1.0, 1.0), {"x": x, "density": log_density(x, mean, p["log_spread"])}


@functools.partial(jax.jit, static_argnames="s")
def learn(s: Settings, p: dict, memory, rows: Any, key: jax.Array):
    """An update by Transitions (lanes, length): new parameters, the optimiser's memory, figures."""
    scale = jnp.sqrt(jnp.maximum(p["return"].square, 1e-6))  # of discounted returns: rewards are in its units
    value = lambda net, obs: applied(net, p["norm"](obs))[..., 0]  # noqa: E731
    before, after = value(p["critic"], rows.obs), value(p["critic"], rows.next_obs)
    done = rows.terminated | rows.truncated
    delta = rows.reward / scale + s.discount * jnp.where(rows.terminated, 0.0, after) - before
    decay = jnp.where(done, 0.0, s.discount * s.trace)

    def back(total, x):
        total = x[0] + x[1] * total
        return total, total

    advantage = jax.lax.scan(back, jnp.zeros_like(delta[:, 0]), (delta.T, decay.T), reverse=True)[1].T
    returned = advantage + before
    advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
    data = (p["norm"](rows.obs), rows.extras["x"], rows.extras["density"], advantage, returned)
    data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data)

    def loss(weights, batch):
        obs, x, density, advantage, returned = batch
        now = log_density(x, applied(weights["actor"], obs), weights["log_spread"])
        ratio = jnp.exp(now - density)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - s.clip, 1 + s.clip) * advantage)
        miss = (applied(weights["critic"], obs)[..., 0] - returned) ** 2
        change = jnp.mean(ratio - 1 - (now - density))  # an estimate of the divergence that is never negative
        return -jnp.mean(gain) + 0.5 * jnp.mean(miss) - s.entropy * jnp.sum(weights["log_spread"]), change

    def epoch(carry, key):
        order = jax.random.permutation(key, rows.reward.size).reshape(s.batches, -1)
        return jax.lax.scan(one, carry, order)

    def one(carry, part):
        weights, memory = carry
        slope, change = jax.grad(loss, has_aux=True)(weights, jax.tree.map(lambda x: x[part], data))
        step, memory = optimiser(s.rate).update(slope, memory, weights)
        rate = memory.hyperparams["learning_rate"]
        if s.batches * s.epochs > 1:  # where there is a change to look at
            rate = jnp.where(change > 2 * s.change, rate / 1.2, jnp.where(change < 0.5 * s.change, 1.2 * rate, rate))
        memory = memory._replace(hyperparams={"learning_rate": jnp.clip(rate, 1e-5, 3e-3)})
        return (optax.apply_updates(weights, step), memory), change

    carry: Any = ({k: p[k] for k in LEARNT}, memory)
    carry, change = jax.lax.scan(epoch, carry, jax.random.split(key, s.epochs))
    weights, memory = carry
    p = p | weights | {"norm": p["norm"].seen(rows.obs), "return": p["return"].seen(returned * scale)}
    rate, spread = memory.hyperparams["learning_rate"], jnp.mean(jnp.exp(weights["log_spread"]))
    return p, memory, {"change": jnp.mean(change), "spread": spread, "rate": rate}


def beginning(env: pbad.envs.Env, s: Settings, key: jax.Array) -> dict:
    """Parameters of a policy that does next to nothing, with its noise."""
    low, high = env.action_bounds
    if not np.all(np.isfinite(high - low)):
        raise ValueError(f"the actions of {env.task.name!r} are not bounded")
    a, b = jax.random.split(key)
    none = lambda *n: Norm(jnp.float32(1e-3), jnp.zeros(n, jnp.float32), jnp.ones(n, jnp.float32))  # noqa: E731
    return {
        "actor": layers(a, (env.observation_size, *s.hidden, len(low)), 0.01),
        "critic": layers(b, (env.observation_size, *s.hidden, 1), 1.0),
        "log_spread": jnp.full(len(low), np.log(s.spread), jnp.float32),
        "norm": none(env.observation_size), "return": none(), "loud": jnp.float32(1.0),
        "middle": jnp.asarray(0.5 * (low + high), jnp.float32), "half": jnp.asarray(0.5 * (high - low), jnp.float32),
    }  # fmt: skip


class Learner(NamedTuple):
    """What an update changes: the policy's parameters, the optimiser's memory, the lanes."""

    p: dict
    memory: Any
    state: pbad.envs.EnvState


def environment(task: Any, s: Settings, scheme: str | None = None, **more) -> pbad.envs.Env:
    """The task under a time limit, by its own scheme or another; `more` as for `make`."""
    env = pbad.envs.make(task, **({"dtype": jnp.float32} if isinstance(task, str) else {}), **more)
    if s.repeat > 1 or scheme is not None:
        env = pbad.envs.make(env.task, dt=env.dt / s.repeat, scheme=scheme)
    return pbad.envs.wrap(env, time_limit=s.time_limit, autoreset="same_step", repeat=s.repeat)


@functools.cache
def optimiser(rate: float) -> Any:
    """Adam, of slopes no longer than 1; its rate is a number of its memory."""
    both = lambda learning_rate: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))  # noqa: E731
    return optax.inject_hyperparams(both)(rate)


def started(env: pbad.envs.Env, s: Settings, seed: int) -> tuple[dict, pbad.envs.EnvState]:
    """Parameters and lanes before the first update."""
    starts, nets, ages = jax.random.split(jax.random.key(seed), 3)
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(starts, s.lanes))
    old = jax.random.randint(ages, (s.lanes,), 0, s.time_limit)  # or all lanes would end their episodes together
    return beginning(env, s, nets), state._replace(metrics=state.metrics._replace(length=old))


def begun(env: pbad.envs.Env, s: Settings, seed: int) -> Learner:
    """Before the first update, the lanes spread over the cores."""
    p, state = started(env, s, seed)
    if s.lanes % jax.device_count() == 0:
        state = pbad.spread(state)
    if jax.device_count() > 1:  # one of them learns, from the first update on, or it would be compiled twice
        p = jax.device_put(p, jax.devices()[0])
    memory = optimiser(s.rate).init({k: p[k] for k in LEARNT})
    return Learner(p, jax.device_put(memory, jax.devices()[0]) if jax.device_count() > 1 else memory, state)


def update(env: pbad.envs.Env, s: Settings, learner: Learner, key: jax.Array) -> tuple[Learner, dict[str, float]]:
    """Lanes make `length` steps, and the policy learns from them; figures."""
    state, found = pbad.envs.unroll(env, policy, learner.p, learner.state, s.length)
    if jax.device_count() > 1:  # which step a share of the lanes each; one of them learns
        found = jax.device_put(found, jax.devices()[0])
    p, memory, figures = learn(s, learner.p, learner.memory, found, key)
    told = {name: float(x) for name, x in figures.items()} | summary(state, found, s.repeat)
    return Learner(p, memory, state), told


def summary(state: Any, found: Any, repeat: int = 1) -> dict[str, float]:
    """Of an update: reward of a step of the simulation, speed, the solver's certificates, ends."""
    over, info = state.metrics.episodes > 0, found.info
    speed = info.get("reward_forward", jnp.zeros(()))
    return {
        "reward": float(found.reward.mean()) / repeat, "m_s": float(speed.mean()) / repeat,
        "episode": float(jnp.sum(state.metrics.last_length * over) / jnp.maximum(jnp.sum(over), 1)),
        "ended": float(found.terminated.mean()), "failed": int(jnp.sum(info["status"] != 0)),
        "divided": int(jnp.sum(info["substeps"] > 1)), "iterations": float(info["iterations"].mean()),
    }  # fmt: skip


def judged(env: pbad.envs.Env, p: dict, s: Settings, parts: int, seed: int = 1000) -> dict[str, float]:
    """Of the mean action, without noise, from fresh starts: speed, share of steps that ended an episode, failures."""
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(seed), s.lanes))
    found = []
    for _ in range(parts):  # of the same length: the program is there
        state, rows = pbad.envs.unroll(env, policy, p | {"loud": jnp.float32(0.0)}, state, s.length)
        found.append(summary(state, rows, s.repeat))
    total = {k: float(np.mean([f[k] for f in found])) for k in ("reward", "m_s", "ended", "iterations")}
    return total | {"env_steps": parts * s.lanes * s.length, "failed": int(sum(f["failed"] for f in found))}


def play(env: pbad.envs.Env, p: dict, file: str, steps: int) -> None:
    """An animation of the mean action, from a fresh start; at most one episode."""
    from pbad_jax import viz

    def one(state, key):
        action, _ = policy(p | {"loud": jnp.float32(0.0)}, state.obs, key)
        state = env.step(state, action)
        return state, (state.sim.q, state.terminated | state.truncated)

    keys = jax.random.split(jax.random.key(2000), steps)
    _, (q, over) = jax.jit(lambda s: jax.lax.scan(one, s, keys))(jax.jit(env.reset)(jax.random.key(1000)))
    whole = int(jnp.argmax(over)) if bool(jnp.any(over)) else steps  # what comes after is of the next episode
    viz.to_html(env.task.model, q[: max(1, whole)], file, dt=env.dt)


def task_of(name: str) -> Any:
    """The name of a task, or what FILE.py:FUNCTION gives."""
    file, _, function = name.rpartition(":")
    if not file:
        return name
    found = importlib.util.spec_from_file_location("task", file)
    assert found is not None and found.loader is not None, f"{file} is no Python file"
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, function)()


def setting(text: str) -> tuple[str, float]:
    """NAME=NUMBER of `Settings`."""
    name, _, number = text.partition("=")
    kinds = {f.name: type(getattr(Settings, f.name)) for f in dataclasses.fields(Settings) if f.name != "hidden"}
    if name not in kinds:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(kinds)}")
    return name, kinds[name](number)


def main() -> None:
    """Train, say how it goes, judge, and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="a name, or FILE.py:FUNCTION that gives a Task")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--lanes", type=int, default=Settings.lanes)
    parser.add_argument("--repeat", type=int, default=1, help="steps of the simulation in a control step")
    parser.add_argument("--scheme", help="of these steps; default the task's")
    parser.add_argument("--constraints", choices=("spring", "MuJoCo"), help="of the task's file, see pbad.load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy-gradient", action="store_true")
    parser.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=NUMBER", help="of Settings")
    parser.add_argument("--html", help="a file for an animation of what was learnt")
    a = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", os.cpu_count())  # each core steps its share of the lanes
    method = POLICY_GRADIENT if a.policy_gradient else {}
    s = Settings(**{"lanes": a.lanes, "repeat": a.repeat, **method, **dict(a.set)})
    law = {} if a.constraints is None else {"constraints": a.constraints}
    env, key, began = environment(task_of(a.task), s, a.scheme, **law), jax.random.key(a.seed), time.process_time()
    learner, size = begun(env, s, a.seed), s.lanes * s.length
    for k in range(max(1, round(a.steps / size))):
        learner, row = update(env, s, learner, jax.random.fold_in(key, k))
        print(
            "{:8d} steps: reward {reward:+.3f}, {m_s:+.2f} m/s, episodes of {episode:.0f}, {failed} failed, {divided} "
            "in parts, {iterations:.1f} iterations, spread {spread:.2f}, change {change:.4f}, rate {rate:.0e}, "
            "{:.0f} s of CPU".format((k + 1) * size, time.process_time() - began, **row), flush=True,
        )  # fmt: skip
    print("without noise:", judged(env, learner.p, s, max(1, s.time_limit // s.length)))
    if a.html:
        play(env, learner.p, a.html, s.time_limit)
        print("wrote", a.html)


if __name__ == "__main__":
    main()
