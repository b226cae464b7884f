"""A creature in contact, its stage equations without a guide, with one, and where that has come to rest."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from force_cases import creature, retract
from helpers import DTYPE

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.atom import operator
from pbad_jax.kinematics import manifold
from pbad_jax.stage import equation
from pbad_jax.stage import guide as guides
from pbad_jax.stage.start import step_start

DT = 0.05


@functools.cache
def touching(at: str) -> pbad.Model:
    """The creature on the ground and against itself; limits and dry friction in its joints."""
    model = creature()
    ground = forces.contact(model, friction=0.7, stick_speed=0.05, at=at)
    return pbad.with_forces(model, ground, forces.body_contact(model, [("trunk", "cart")], friction=0.5, at=at))


def first(model, start, m):
    free = operator.mobility(model, start.frames, start.mass, start.factor)
    return guides.first(model, m, True, start.frames.T, free)


def following(model, guide, t, delta, trust):
    return guides.after(model, guide, t.duals, t.frames, delta, trust)


@functools.partial(jax.jit, static_argnames=("scheme", "recurrence"))
def evaluations(model, scheme, state, z, move, recurrence="parallel"):
    """r, the model's r, and J: without a guide, with the first, with that after a step; and as it comes to rest."""
    start = step_start(model, state, jnp.zeros(model.nu, model.dtype), recurrence)
    eq = equation.collocation(model, scheme, jnp.asarray(DT, model.dtype), start, None)
    guide, one = first(model, start, scheme.m), jnp.ones((), model.dtype)

    def led(guide):
        r, t = eq.evaluate(model, start, z, 1.0, guide)
        return r, eq.modelled(model, start, t, r), eq.matrix(model, start, t), t

    r, t = eq.evaluate(model, start, z)
    out = [(r, r, eq.matrix(model, start, t)), led(guide)[:3]]
    guide = following(model, guide, led(guide)[3], move, 0.3 * one)
    out.append(led(guide)[:3])
    rest = jax.lax.fori_loop(0, 100, lambda _, g: following(model, g, led(g)[3], jnp.zeros_like(move), one), guide)
    return out, led(rest)[:3]


def case(model, scheme, seed=0):
    """A state in the ground and beyond a limit, and stages that move on."""
    rng = np.random.default_rng(seed)
    q = np.array(retract(model, model.q0, jnp.asarray(0.3 * rng.normal(size=model.nv), DTYPE)))
    q[2] += 0.05 - 0.3 * rng.random()
    state = pbad.make_state(model, q=jnp.asarray(q, DTYPE), v=jnp.asarray(rng.normal(size=model.nv), DTYPE))
    d = 0.05 * rng.normal(size=(scheme.m, model.nv))
    z = jax.vmap(lambda d: retract(model, manifold.identity_increment(model), d))(jnp.asarray(d, DTYPE))
    return state, z, jnp.asarray(0.1 * rng.normal(size=scheme.m * model.nv), DTYPE)
