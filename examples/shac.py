"""Short-horizon actor-critic (Xu et al. 2022): python examples/shac.py paper_swimmer [--steps 115000] [--seed 0]
or half_cheetah --length 16, where slopes go through contact.

The actor climbs the slope, through the simulation, of the rewards of a short horizon and of what the critic says of
its end. Lanes go on from where they are, only the slope is cut there. The critic learns TD(λ) returns, with a copy of
itself that follows slowly for what comes after. Slopes of some lanes can be a hundred times as long as most: each is
shortened to the median lane's before they are averaged, and one that is not finite is left out and counted.
"""

import argparse
import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import ppo
from ppo import Learner, applied, environment, started, summary

import pbad_jax as pbad


@dataclasses.dataclass(frozen=True)
class Settings(ppo.Settings):
    """What a person may turn. Of those of PPO `change`, `clip` and `entropy` have no meaning here.

    epochs, batches, critic_rate: of the critic. follow: of the way to the critic its copy goes in an update.
    """

    lanes: int = 64
    length: int = 32  # control steps of the horizon
    epochs: int = 8
    rate: float = 2e-3
    critic_rate: float = 1e-3
    follow: float = 0.2


ACTOR = ("actor", "log_spread")


class Adams(NamedTuple):
    """Memories of the optimisers, and the critic's slow copy."""

    actor: Any
    critic: Any
    target: Any


def policy(p: dict, obs: jax.Array, key: jax.Array):
    """The action; with `loud` 0 the mean one. By tanh, not by a bound, beyond which there would be no slope."""
    mean = applied(p["actor"], p["norm"](obs))
    x = mean + p["loud"] * jnp.exp(p["log_spread"]) * jax.random.normal(key, mean.shape, mean.dtype)
    return p["middle"] + p["half"] * jnp.tanh(x), {"x": x}


def value(net: Any, p: dict, obs: jax.Array) -> jax.Array:
    """Of what is seen: the discounted rewards to come, in units of `unit`."""
    return applied(net, p["norm"](obs))[..., 0]


def unit(s: Settings, p: dict) -> jax.Array:
    """A reward of the usual size for ever. "return" is of rewards here: with values it and they would grow for ever."""
    return jnp.sqrt(jnp.maximum(p["return"].square, 1e-12)) / (1 - s.discount)


def returns(s: Settings, p: dict, target: Any, rows: Any, trace: float) -> jax.Array:
    """TD(trace) returns (lanes, length). The last observation stands for what was cut, zero for what was terminated."""
    after = jnp.where(rows.terminated, 0.0, value(target, p, rows.next_obs))
    over, rewards = rows.terminated | rows.truncated, rows.reward / unit(s, p)

    def back(total, x):
        reward, after, over = x
        total = reward + s.discount * jnp.where(over, after, (1 - trace) * after + trace * total)
        return total, total

    return jax.lax.scan(back, after[:, -1], (rewards.T, after.T, over.T), reverse=True)[1].T


def gain(weights: dict, env: pbad.envs.Env, s: Settings, p: dict, target: Any, state: pbad.envs.EnvState):
    """Of one lane: the return of its horizon, and of every episode that begins within it; its state and rows."""
    lanes = jax.tree.map(lambda x: x[None], jax.lax.stop_gradient(state))
    state, rows = pbad.envs.unroll(env, policy, p | weights, lanes, s.length, schedule="step")
    over = (rows.terminated | rows.truncated)[:, :-1]
    begins = jnp.concatenate([jnp.ones_like(over[:, :1]), over], axis=1)
    total = jnp.sum(jnp.where(begins, returns(s, p, target, rows, 1.0), 0.0))
    return total, jax.tree.map(lambda x: x[0], (state, rows))


def fitted(s: Settings, critic: Any, memory: Any, obs: jax.Array, wanted: jax.Array, key: jax.Array):
    """The critic after some epochs on the wanted values of normalised observations, and its memory."""
    obs, wanted = obs.reshape(-1, obs.shape[-1]), wanted.reshape(-1)

    def one(carry, part):
        critic, memory = carry
        miss = lambda net: jnp.mean((applied(net, obs[part])[..., 0] - wanted[part]) ** 2)  # noqa: E731
        step, memory = optimiser(s.critic_rate).update(jax.grad(miss)(critic), memory, critic)
        return (optax.apply_updates(critic, step), memory), None

    orders = jax.vmap(lambda k: jax.random.permutation(k, wanted.size))(jax.random.split(key, s.epochs))
    return jax.lax.scan(one, (critic, memory), orders.reshape(s.epochs * s.batches, -1))[0]


@functools.cache
def optimiser(rate: float) -> Any:
    """Adam, of slopes no longer than 1."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, b1=0.7, b2=0.95))


def together(slopes: Any) -> tuple[Any, dict[str, jax.Array]]:
    """The mean of the lanes' slopes, those too long shortened, those not finite left out and counted."""
    size = jnp.sqrt(sum(jnp.sum(x**2, axis=range(1, x.ndim)) for x in jax.tree.leaves(slopes)))
    good = jnp.isfinite(size)
    usual, longest = jnp.nanmedian(jnp.where(good, size, jnp.nan)), jnp.max(jnp.where(good, size, 0.0))
    share = jnp.minimum(1.0, usual / jnp.maximum(size, 1e-12)) / jnp.maximum(jnp.sum(good), 1)

    def mean(x):
        kept = good.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.tensordot(jnp.where(good, share, 0.0), jnp.where(kept, x, 0.0), 1)

    slope = jax.tree.map(mean, slopes)
    return slope, {"lost": jnp.sum(~good), "usual": usual, "longest": longest, "slope": optax.global_norm(slope)}


@functools.partial(jax.jit, static_argnames=("env", "s"))
def learn(env: pbad.envs.Env, s: Settings, learner: Learner, key: jax.Array):
    """An update, the actor by the slopes of all lanes, then the critic; the lanes' Transitions, figures."""
    p, adams, state = learner
    weights: Any = {k: p[k] for k in ACTOR}
    climb = jax.vmap(jax.grad(gain, has_aux=True), (None, None, None, None, None, 0))
    slopes, (state, rows) = climb(weights, env, s, p, adams.target, state)
    slope, figures = together(slopes)
    step, memory = optimiser(s.rate).update(jax.tree.map(jnp.negative, slope), adams.actor, weights)
    weights = optax.apply_updates(weights, step)
    before, wanted = value(p["critic"], p, rows.obs), returns(s, p, adams.target, rows, s.trace)
    critic, other = fitted(s, p["critic"], adams.critic, p["norm"](rows.obs), wanted, key)
    target = jax.tree.map(lambda old, new: old + s.follow * (new - old), adams.target, critic)
    figures |= {
        "spread": jnp.mean(jnp.exp(weights["log_spread"])), "value": jnp.mean(before) * unit(s, p),
        "saturated": jnp.mean(jnp.abs(rows.extras["x"]) > 1.5), "fit": 1 - jnp.var(wanted - before) / jnp.var(wanted),
    }  # fmt: skip
    p = p | weights | {"critic": critic, "norm": p["norm"].seen(rows.obs), "return": p["return"].seen(rows.reward)}
    return Learner(p, Adams(memory, other, target), state), rows, figures


def begun(env: pbad.envs.Env, s: Settings, seed: int) -> Learner:
    """Before the first update."""
    p, state = started(env, s, seed)
    memories = optimiser(s.rate).init({k: p[k] for k in ACTOR}), optimiser(s.critic_rate).init(p["critic"])
    return Learner(p, Adams(*memories, p["critic"]), state)


def judged(env: pbad.envs.Env, p: dict, s: Settings, parts: int, seed: int = 1000) -> dict[str, float]:
    """Of the mean action, without noise, from fresh starts."""
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(seed), s.lanes))
    found = []
    for _ in range(parts):
        state, rows = pbad.envs.unroll(env, policy, p | {"loud": jnp.float32(0.0)}, state, s.length)
        found.append(summary(state, rows))
    told = {k: sum(f[k] for f in found) / parts for k in ("reward", "m_s", "ended", "iterations")}
    return told | {"env_steps": parts * s.lanes * s.length, "failed": sum(f["failed"] for f in found)}


def main() -> None:
    """Train, say how it goes, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--steps", type=int, default=115_000)
    parser.add_argument("--lanes", type=int, default=Settings.lanes)
    parser.add_argument("--length", type=int, default=Settings.length, help="control steps of the horizon")
    parser.add_argument("--repeat", type=int, default=1, help="steps of the simulation in a control step")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    s = Settings(lanes=a.lanes, length=a.length, repeat=a.repeat)
    env, key = environment(a.task, s), jax.random.key(a.seed)
    learner, size = begun(env, s, a.seed), s.lanes * s.length
    start = time.process_time()
    step = learn.lower(env, s, learner, key).compile()
    print(f"compiled: {time.process_time() - start:.0f} s of CPU", flush=True)
    start = time.process_time()
    for k in range(max(1, round(a.steps / size))):
        learner, rows, figures = step(learner, jax.random.fold_in(key, k))
        row = {name: float(x) for name, x in figures.items()} | summary(learner.state, rows)
        print(
            "{:8d} steps: reward {reward:+.3f}, {m_s:+.3f} m/s, {failed} failed, {divided} in parts, "
            "slopes {usual:.2g}, longest {longest:.2g}, mean {slope:.2g}, {lost:.0f} lost, spread {spread:.2f}, "
            "saturated {saturated:.2f}, value {value:.2f}, explained {fit:.2f}, {:.0f} s of CPU".format(
                (k + 1) * size, time.process_time() - start, **row
            ), flush=True,
        )  # fmt: skip
    print("without noise:", judged(env, learner.p, s, max(1, s.time_limit // s.length)))


if __name__ == "__main__":
    main()
