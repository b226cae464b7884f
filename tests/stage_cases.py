"""The stage equation of random trees: residual and matrix, dense and by tree sweeps."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from helpers import DTYPE, FLOAT32, random_model, random_q
from mechanics import residual_and_matrix

import pbad_jax as pbad
from pbad_jax.atom import sweeps
from pbad_jax.kinematics import manifold
from pbad_jax.stage import equation
from pbad_jax.stage.start import step_start

SCHEMES = {s.name: s for s in (pbad.radau(1), pbad.radau(2), pbad.radau(3), pbad.legendre(2), pbad.legendre(3))}


def ball_slices(model):
    t = model.topology
    return [(x, d) for kind, x, d in zip(t.link_type, t.link_q, t.link_v) if kind == "ball"]


def right_jacobian_transposed(w, x):
    """Jr(w)ᵀ x to second order in w: exp(w + ε) = exp(w) exp(Jr ε)."""
    return x + 0.5 * jnp.cross(w, x) + jnp.cross(w, jnp.cross(w, x)) / 6


@functools.partial(jax.jit, static_argnames=("scheme", "twin"))
def library(model, scheme, dt, q, v, q_h, z, control, twin):
    """Residual and matrix, and the matrix by jacfwd of the residual covector in exponential coordinates."""
    state = dataclasses.replace(pbad.make_state(model), q=q, v=v, history=q_h, has_history=jnp.asarray(True))
    z_h = manifold.increment_between(model, q, q_h) if scheme.has_history else None
    s = step_start(model, state, control, twin)
    eq = equation.collocation(model, scheme, dt, s, z_h)
    r, J = residual_and_matrix(model, s, eq, z)

    def covector(delta):
        delta = delta.reshape(scheme.m, -1)
        moved = jax.vmap(lambda z_i, d: manifold.retract(model, z_i, d))(z, delta)
        r = residual_and_matrix(model, s, eq, moved)[0].reshape(scheme.m, -1)
        for _, y in ball_slices(model):
            r = r.at[:, y : y + 3].set(jax.vmap(right_jacobian_transposed)(delta[:, y : y + 3], r[:, y : y + 3]))
        return r.reshape(-1)

    judge = jax.jacfwd(covector)(jnp.zeros(scheme.m * model.nv, q.dtype)) if twin == "parallel" else J
    return r, J, judge


def draw(case, scheme, step):
    """A model, a state, stage increments of about `step` rad or m, and a control."""
    model, rng = random_model(case.topology, case.seed, spread=1.5), case.rng
    q = jnp.asarray(random_q(model, rng, case.pose_a), DTYPE)
    one = manifold.identity_increment(model)
    q = q if not FLOAT32 else retracted(model, one, 0.3 * jnp.ones(model.nv, DTYPE))
    v, dh = (jnp.asarray(rng.normal(size=model.nv), DTYPE) for _ in range(2))
    control = jnp.asarray(rng.normal(size=model.nu), DTYPE)
    delta = jnp.asarray(step * rng.normal(size=(scheme.m, model.nv)), DTYPE)
    z = jnp.stack([retracted(model, one, d) for d in delta])
    return model, (q, v, retracted(model, q, 0.1 * dh), z, control)


retracted = jax.jit(manifold.retract)


@functools.partial(jax.jit, static_argnames="scheme")
def both(model, scheme, dt, q, v, q_h, z, control):
    """Residual and matrix, dense and by the tree; and what the tree solves."""
    s = step_start(model, pbad.make_state(model, q, v), control)
    z_h = manifold.increment_between(model, q, q_h) if scheme.has_history else None
    eq = equation.collocation(model, scheme, dt, s, z_h)
    r, J = residual_and_matrix(model, s, eq, z)
    r_tree, M = residual_and_matrix(model, dataclasses.replace(s, recurrence="sweeps"), eq, z)
    J_tree = jax.vmap(lambda x: sweeps.multiply(model, M, x), out_axes=1)(jnp.eye(model.nv, dtype=r.dtype))
    return r, J, r_tree, J_tree, sweeps.solve(model, M, r)
