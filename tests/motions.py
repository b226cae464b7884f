"""Motions for tests: a tree that moves, a model in units of its step, and rollouts that compile once for every dt."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from helpers import changed, part

import pbad_jax as pbad
from pbad_jax.kinematics import manifold

CHUNK = 25  # steps a compilation


def free_tree(gravity=(0, 0, -9.81)):
    """A floating body with a ball-jointed arm, a hinged arm and a slide: everything moves, nothing drives it."""
    I = np.diag([0.2, 0.25, 0.3])
    return pbad.build_model(
        [
            pbad.Body("root", 2.0, (0.1, 0, 0.05), I, joints=[pbad.Joint("free")]),
            pbad.Body("arm", 1.0, (0, 0, -0.3), I / 4, "root", (0.2, 0.1, 0), joints=[pbad.Joint("ball")]),
            pbad.Body("leg", 0.7, (0.2, 0, 0), I / 5, "root", (-0.2, 0, 0.1), joints=[pbad.Joint("hinge", (1, 1, 0))]),
            pbad.Body("piston", 0.5, (0, 0, 0.1), I / 9, "arm", (0, 0, -0.5), joints=[pbad.Joint("slide", (1, 0, 1))]),
        ],
        gravity=gravity,
    )


def moving(model, seed=0):
    rng = np.random.default_rng(seed)
    q = manifold.retract(model, model.q0, jnp.asarray(rng.normal(size=model.nv) * 0.5, model.dtype))
    return pbad.make_state(model, q, rng.normal(size=model.nv))


def in_steps(model, state, dt):
    """The same motion with dt as the unit of time: gravity and stiffness by dt², damping and rates by dt."""

    def force(f):
        if law := part(f, "stiffness"):
            return changed(f, stiffness=law.stiffness * dt**2)
        if law := part(f, "coefficient"):
            return changed(f, coefficient=law.coefficient * dt)
        assert type(f).__name__ == "Gravity"
        return f

    model = dataclasses.replace(model, gravity=model.gravity * dt**2, forces=tuple(map(force, model.forces)))
    return model, dataclasses.replace(state, v=state.v * dt)


class Run(NamedTuple):
    """States from the first on: n + 1 rows; status of the step that led to each, iterations of that which follows."""

    time: np.ndarray
    q: np.ndarray
    v: np.ndarray
    status: np.ndarray
    energy: np.ndarray
    iterations: np.ndarray


@functools.partial(jax.jit, static_argnames="options")
def _chunk(model, state, controls, dt, options):
    """A piece of a rollout; of `rollout` only dt is static, which would compile for every dt."""

    step = pbad.make_step(options)

    def body(state, control):
        energy = pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)
        after, info = step(model, state, control, dt)
        return after, (state.time, state.q, state.v, state.status, energy, info.iterations)

    return jax.lax.scan(body, state, controls)


def run(model, state, dt, seconds, scheme, controls=None) -> Run:
    """`controls`: (n,nu) held over a step each, (nu,) for all, or None."""
    n = round(seconds / dt)
    u = np.zeros(model.nu) if controls is None else np.asarray(controls, float)
    chunks = n // CHUNK + 1
    u = np.broadcast_to(u, (n, model.nu)) if u.ndim == 1 else u
    u = np.concatenate([u, np.zeros((chunks * CHUNK - n, model.nu))])
    rows = []
    options = pbad.Options(dt=1.0, scheme=scheme)
    for i in range(chunks):
        state, row = _chunk(model, state, jnp.asarray(u[i * CHUNK : (i + 1) * CHUNK]), jnp.asarray(dt), options)
        rows.append(row)
    return Run(*(np.concatenate(x)[: n + 1] for x in zip(*rows)))


def failed(r: Run) -> int:
    return int(np.sum(r.status != 0))
