"""What torture_steps.py has no systems of: slides, tendons, actuators under control, and trees that are far apart."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from judges import Steps
from torture_system import System, rod, sizes, thrown

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, Site, forces

ALONG = np.linspace(0, 1, 257)  # of a length, for the work of a drive


class Law(NamedTuple):
    """clip(gain u + bias · (1, ℓ, s)) along ℓ = a · q, as an actuator has it."""

    a: tuple[float, ...]
    gain: float
    bias: tuple[float, float, float]
    most: float = np.inf


def drive_energy(laws: list[Law], model: pbad.Model, q, u):
    """−Σ ∫ (the law without its damping) dℓ from ℓ = 0, J, by the trapezoidal rule; u (n,) of the laws."""
    total = jnp.zeros((), model.dtype)
    for law, control in zip(laws, u):
        length = jnp.asarray(law.a, model.dtype) @ q
        f = jnp.clip(law.gain * control + law.bias[0] + law.bias[1] * length * ALONG, -law.most, law.most)
        total = total - length * jnp.sum(f[1:] + f[:-1]) / (2 * (len(ALONG) - 1))
    return total


def nothing(s: Steps, x: Any, e: Any, loose: float) -> dict[str, np.ndarray]:
    """The energy is asked of every system; here there is no more to ask."""
    del s, x, e, loose
    return {}


def beads(dtype) -> System:
    """A point on two slides and a rod on it, between three springs of which each has two wells and a hill."""
    cart = Body("cart", 1.0, inertia=0.01 * np.eye(3), joints=[Joint("slide", (1, 0, 0), name="x")])
    lift = Body("lift", 0.5, (0, 0, 0), 0.01 * np.eye(3), "cart", joints=[Joint("slide", (0, 0, 1), name="z")])
    bare = pbad.build_model([cart, lift, rod("rod", "lift", Joint("hinge", (0, 1, 0), name="h"))], dtype=dtype)
    wall = [Site(None, p) for p in ((0, 0.3, 0), (0.5, 0, 0.4), (-0.5, 0, -2.0))]
    paths = [(Site("cart"), wall[0]), (Site("lift"), wall[1]), (Site("rod", (0, 0, -1)), wall[2])]
    model = pbad.with_forces(bare, forces.tendon_spring(bare, paths, stiffness=1000.0, rest=0.5))

    def numbers(rng, n):
        return {"spring": rng.choice([0.0, 30.0, 1e3, 3e4], (n, 3)), "weight": rng.choice([0.0, 1.0], n),
                "rest": rng.uniform(0.0, 0.8, (n, 3))}  # fmt: skip

    def lane(model, x):
        spring = model.forces[-1]
        spring = spring.changed(stiffness=x["spring"], rest=jnp.stack([x["rest"]] * 2, axis=-1))
        return dataclasses.replace(model, forces=(*model.forces[:-1], spring), gravity=model.gravity * x["weight"])

    def start(rng, n, _):
        away, v, dt = thrown(rng, n, model.nv, 1.0, 0.5, 0.2)
        return away, v * rng.choice([0.0, 1.0, 1.0], n)[:, None], dt

    return System(model, numbers, lane, start, nothing, 0.01, has_one_root=False)


def arm(dtype, ranges: bool) -> System:
    """Three hinges and a slide with motors, servos and a cable, tied to a point; with ranges, or without."""
    hinges = [Joint("hinge", (0, 1, 0), name=f"j{k}", range=(-1.0, 1.0) if ranges else None) for k in range(3)]
    parts = [rod(f"l{k}", f"l{k - 1}" if k else None, joint) for k, joint in enumerate(hinges)]
    slide = Joint("slide", (0, 0, 1), name="s", range=(-0.3, 0.3) if ranges else None)
    hand = Body("hand", 0.2, inertia=0.01 * np.eye(3), parent="l2", position=(0, 0, -1), joints=[slide])
    laws = [
        Law((2.0, 0, 0, 0), 1.0, (0.0, 0.0, 0.0)),
        Law((0, 1.0, 0, 0), 300.0, (0.0, -300.0, -5.0), 40.0),
        Law((0, 0, 1.0, 0), 3e3, (0.0, -3e3, -60.0)),
        Law((0, 0, 0, 1.0), 5.0, (0.0, 0.0, -5.0)),
        Law((1.0, -0.5, 0, 0), 50.0, (1.0, -50.0, 0.0), 30.0),
    ]
    names = ("j0", "j1", "j2", "s", {"j0": 1.0, "j1": -0.5})
    actuators = [
        Actuator(at, name=f"a{k}", gear=max(law.a) if k == 0 else 1.0, gain=law.gain, bias=law.bias,
                 force_range=None if np.isinf(law.most) else (-law.most, law.most))
        for k, (at, law) in enumerate(zip(names, laws))
    ]  # fmt: skip
    bare = pbad.build_model([*parts, hand], actuators=actuators, dtype=dtype)
    tie = forces.connect(bare, "l1", point=(0, 0, -1), other_point=(0.3, 0, -1.7), damping=0.0)
    drive = forces.pd_drive(bare, "j0", kp=20.0, kd=1.0, target=[0.2])
    model = pbad.with_forces(bare, tie, drive)

    def numbers(rng, n):
        return {"u": rng.normal(size=(n, 5)) * [5.0, 1.0, 0.5, 1.0, 0.5] * rng.choice([0.0, 1.0], n)[:, None],
                "tie": rng.choice([0.0, 1e-3, 1e-2], n), "weight": rng.choice([0.0, 1.0], n)}  # fmt: skip

    def lane(model, x):
        tied = dataclasses.replace(model.forces[-2], stiffness=model.forces[-2].stiffness * x["tie"])
        changed = (*model.forces[:-2], tied, model.forces[-1])
        return dataclasses.replace(model, forces=changed, gravity=model.gravity * x["weight"])

    def start(rng, n, _):
        return thrown(rng, n, model.nv, 1.5, 0.3 if ranges else 0.7, 0.2)

    def drives(x, q):
        spring = 10.0 * (q[0] - 0.2) ** 2
        return spring + drive_energy(laws, model, q, x["u"])

    return System(model, numbers, lane, start, nothing, 0.301 if ranges else 0.01, False, drives)


def far_apart(dtype) -> System:
    """A free body and a swinging rod that nothing joins, up to 1000 m from one another."""
    free = Body("free", 1.0, inertia=np.diag([0.1, 0.2, 0.25]), joints=[Joint("free", name="f")])
    bodies = [free, rod("rod", None, Joint("hinge", (0, 1, 0), name="h"))]
    model = pbad.build_model(bodies, gravity=(0, 0, 0), dtype=dtype)

    def lane(model, x):
        del x
        return model

    def start(rng, n, _):
        away, v, dt = thrown(rng, n, model.nv, 0.5, 1.0, 0.1)
        way = rng.normal(size=(n, 3))
        away[:, :3] = way / np.linalg.norm(way, axis=1)[:, None] * sizes(rng, n, 1.0, 1000.0)[:, None]
        v[:, :3] = rng.normal(size=(n, 3))
        return away, v, dt

    def judge(s, x, e, loose):
        del x, e
        T = [
            np.einsum("ni,ni->n", v[:, 3:6] ** 2, np.broadcast_to([0.1, 0.2, 0.25], (len(v), 3))) for v in (s.v0, s.v1)
        ]
        rates = [np.linalg.norm(v[:, 3:6], axis=1) for v in (s.v0, s.v1)]
        own = 0.5 * (s.dt * np.maximum(*rates)) ** 4  # what a scheme of second order errs by itself
        return {"spins up": T[1] > T[0] * (1 + 10 * loose + own) + loose}

    return System(model, lambda rng, n: {"weight": np.zeros(n)}, lane, start, judge, 0.01)


SYSTEMS = {
    "beads": beads,
    "driven arm": lambda dtype: arm(dtype, False),
    "driven arm with ranges": lambda dtype: arm(dtype, True),
    "far apart": far_apart,
}
