"""How honest `info.error` is: the local error that a step says it has, over that which it has; float64.

    python benchmarks/error.py [--quick] [--name error] [--out DIR]

A row is a system, a scheme and a step: 64 typical states, of each one step, and its error against PARTS steps of
radau(2) over the same time. `true`: its median, rad, or m over the model's length. `close`: the share of lanes whose
`info.error` is right within a factor of 3; `low`, `high`: below a third, above three times. `ratio`: 5, 50 and 95 % of
`info.error` over the true one. `failed`: lanes that did not converge, which are left out.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import systems
from common import digits, run

import pbad_jax as pbad
from pbad_jax.kinematics.transforms import length_scale
from pbad_jax.kinematics.tree import tree

LANES, PARTS, SCHEMES, STEPS = 64, 64, ("radau1", "radau2"), (0.05, 0.02, 0.005)
BALL = (
    '<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.5"/><body pos="0 0 0.2"><freejoint/>'
    '<geom type="{shape}" size="{size}" mass="1" friction="0.5"/></body></worldbody></mujoco>'
)


def states(model: pbad.Model, q: np.ndarray, v: np.ndarray) -> pbad.State:
    return jax.vmap(lambda q, v: pbad.make_state(model, q, v))(jnp.asarray(q), jnp.asarray(v))


def at_rest_or_moving(model: pbad.Model, far: float, fast: float) -> pbad.State:
    """About q0, random."""
    rng = np.random.default_rng(0)
    q = jax.vmap(lambda d: pbad.retract(model, model.q0, d))(jnp.asarray(rng.uniform(-far, far, (LANES, model.nv))))
    return states(model, np.asarray(q), fast * rng.normal(size=(LANES, model.nv)))


def chain(dt: float):
    """Five links, thrown: smooth."""
    model = pbad.chain(5, dtype=jnp.float64)
    return model, at_rest_or_moving(model, 2.0, 1.0), jnp.zeros((LANES, 0))


def arm(dt: float):
    """Seven joints with stiff servos, told to go 0.3 rad away: stiff."""
    model = pbad.load(systems.arm(kp=1000.0, kd=60.0).xml, dtype=jnp.float64)
    begun = at_rest_or_moving(model, 1.0, 1.0)
    return model, begun, begun.q + 0.3 * np.random.default_rng(1).normal(size=(LANES, model.nu))


def landing(shape: str, size: str, dt: float):
    """Thrown so that it may land within the step, from 1 to 6 m/s: a blow."""
    model, rng = pbad.load(BALL.format(shape=shape, size=size), dtype=jnp.float64), np.random.default_rng(2)
    q, v = np.tile(np.asarray(model.q0), (LANES, 1)), rng.normal(size=(LANES, 6))
    v[:, 2] = -rng.uniform(1, 6, LANES)
    turn = rng.normal(size=(LANES, 4)) if shape == "box" else np.tile([1.0, 0, 0, 0], (LANES, 1))
    q[:, 3:7] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    lowest = 0.1
    if shape == "box":
        up = np.asarray(jax.vmap(lambda q: pbad.forward_kinematics(model, q).rotation[0, 2])(jnp.asarray(q)))
        lowest = np.abs(up) @ np.array([0.15, 0.1, 0.05])
    q[:, 2] = lowest - v[:, 2] * dt * rng.uniform(0, 1.2, LANES)
    return model, states(model, q, v), jnp.zeros((LANES, 0))


def robot(name: str, dt: float, **more):
    """Of `envs`, under random actions of the whole range: states on its way in steps of 20 ms."""
    env = pbad.envs.make(name, **more)
    model, task = env.task.model, env.task
    low, high = env.action_bounds
    u = jax.random.uniform(jax.random.key(1), (16, 40, len(low)), jnp.float64) * (high - low) + low
    u = jax.vmap(jax.vmap(lambda a: task.control(model, a)))(u)
    begun = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 16)).sim
    options = pbad.Options(dt=0.02, scheme="radau2", on_failure="substep")
    path, _ = pbad.rollout_batch(model, begun, u, options=options)
    taken = jax.tree.map(lambda x: x[:, 8:-1:10].reshape(-1, *x.shape[2:]), pbad.states_of(model, path))
    return model, taken, u[:, 9::10].reshape(LANES, -1)


SYSTEMS = {
    "chain": chain,
    "arm": arm,
    "ball": functools.partial(landing, "sphere", "0.1"),
    "box": functools.partial(landing, "box", "0.15 0.1 0.05"),
    "half-cheetah": functools.partial(robot, "half_cheetah"),
    "ant": functools.partial(robot, "ant"),
    "spider": functools.partial(robot, "spider"),
}


@functools.cache
def stepped(scheme: str, parts: int):
    """Many steps of many lanes, compiled once a model: the last state and the infos."""
    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme))

    def lane(model, state, control, dt):
        return jax.lax.scan(lambda s, _: step(model, s, control, dt / parts), state, None, length=parts)

    return jax.jit(jax.vmap(lane, in_axes=(None, 0, 0, None)))


def distance(model: pbad.Model, q: jax.Array, other: jax.Array) -> np.ndarray:
    """In the norm of `info.error`."""
    far = np.asarray(jax.vmap(lambda a, b: pbad.difference(model, a, b))(q, other))
    return np.max(np.abs(far) / np.where(tree(model.topology).dof_slide, float(length_scale(model)), 1.0), axis=1)


def rows(name: str, scheme: str) -> list[dict]:
    """Of all step sizes."""
    out = []
    stepped.cache_clear()
    jax.clear_caches()  # programs of robots take more memory maps than Linux gives a process
    for dt in STEPS:
        model, begun, controls = SYSTEMS[name](dt)
        after, info = stepped(scheme, 1)(model, begun, controls, jnp.asarray(dt))
        right, infos = stepped("radau2", PARTS)(model, begun, controls, jnp.asarray(dt))
        good = np.asarray(info.ok) & np.asarray(infos.ok)
        true = distance(model, right.q, after.q)[good]
        ratio = np.asarray(info.error)[good, 0] / true
        row = {"system": name, "scheme": scheme, "dt": dt, "true": digits(np.median(true))}
        row |= {"close": digits(np.mean((ratio > 1 / 3) & (ratio < 3)))}
        row |= {"low": digits(np.mean(ratio <= 1 / 3)), "high": digits(np.mean(ratio >= 3))}
        row |= {"ratio": [digits(x) for x in np.quantile(ratio, (0.05, 0.5, 0.95))], "failed": int((~good).sum())}
        out.append(row)
    return out


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(next(iter(SYSTEMS)), SCHEMES[0])]
    return [(name, scheme) for name in SYSTEMS for scheme in SCHEMES]


def picture(rows: list[dict], path, title: str) -> None:
    """The middle 90 % of what a step says of its error, over what it is."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(r["system"] for r in rows))
    figure, axes = plt.subplots(1, len(SCHEMES), figsize=(8, 3.4), sharey=True)
    for axis, scheme in zip(axes, SCHEMES):
        axis.axhspan(1 / 3, 3, color="0.92")
        axis.axhline(1, color="black", linewidth=0.8)
        for k, (dt, color) in enumerate(zip(STEPS, ("C3", "C1", "C0"))):
            own = [(names.index(r["system"]), r["ratio"]) for r in rows if (r["scheme"], r["dt"]) == (scheme, dt)]
            x = np.array([i for i, _ in own]) + 0.2 * (k - 1)
            low, mid, high = (np.array([r[j] for _, r in own]) for j in range(3))
            label = f"{1e3 * dt:g} ms"
            axis.errorbar(x, mid, (mid - low, high - mid), fmt="o", markersize=3, color=color, label=label)
        axis.set_yscale("log")
        axis.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize=8)
        axis.set_title(scheme, fontsize=9)
    axes[0].set_ylabel("info.error over the true error")
    axes[0].legend(fontsize=8)
    figure.suptitle(title, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    run("error", __doc__, plan, rows, picture, dtype="float64", lanes=LANES, parts=PARTS)


if __name__ == "__main__":
    main()
