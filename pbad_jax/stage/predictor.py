"""First guesses of a solve: displacements (m,nv) of the stages from q_k, rad or m, in the layout of v."""

import jax
import jax.numpy as jnp

from pbad_jax.kinematics import manifold
from pbad_jax.laws.force import acting
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.schemes import Scheme
from pbad_jax.stage.equation import StageEquation

SMALL_CURVATURE = 0.25  # of what the rates move: a guess does not carry a larger curvature on


def straight(nodes: jax.Array, dt, v: jax.Array) -> jax.Array:
    """On with the velocity v: c dt v."""
    return nodes[:, None] * (dt * v)[None]


def along_last_step(model: Model, scheme: Scheme, eq: StageEquation, state: State) -> jax.Array:
    """c dt v, or what the last step suggests.

    p is the parabola through the last interior stage and q_k with the slope v at q_k, b its curvature over a step of
    this length. Smooth motion goes on along it, c dt v + c² b, where b is small: where it whips, it is not. Where
    impulses act, v at the end of a step does not say what comes after the impulse at its start. There the guess bulges
    from the line as the last step did: c dt v + c (1 − c) times what makes that the last interior stage.
    """
    c, line = eq.nodes[:, None], eq.dt * state.v
    plain = straight(eq.nodes, eq.dt, state.v)
    if scheme.has_history or scheme.m == 1:
        return plain
    left, span, known = 1.0 - scheme.nodes[-2], state.history_span, state.has_history & (state.history_span > 0)
    bulge = manifold.difference(model, state.q, state.history) + span * state.v
    share = eq.dt / jnp.where(known, span, 1.0)  # of this step in what the last stage is ago
    if acting(model, "step"):
        before = share * left  # of the last step in this one
        return jnp.where(known, plain + c * (1.0 - c) * before / (left * (1.0 - left)) * bulge[None], plain)
    b = share**2 * bulge
    return jnp.where(known & _is_small(b, line), plain + c**2 * b[None], plain)


def after_last_stage(model: Model, t, z: jax.Array, v: jax.Array, a: jax.Array) -> jax.Array:
    """z + t v + t²/2 a (1,nv), t after the stage at z (nq,), without a where that curves much."""
    line, curvature = t * v, 0.5 * t**2 * a
    return displacements(model, z[None]) + line[None] + jnp.where(_is_small(curvature, line), curvature, 0.0)[None]


def through_node(model: Model, nodes: jax.Array, line: jax.Array, z: jax.Array) -> jax.Array:
    """Increments (m,nq) at the nodes on the parabola with the slope `line` (nv,) at 0 that ends in the increment z."""
    c, end = nodes[:, None], displacements(model, z[None])[0]
    there = c * line[None] + c**2 * (end - line)[None]
    identity = manifold.identity_increment(model)
    return jax.vmap(lambda d: manifold.retract(model, identity, d))(there)


def along_h(model: Model, nodes: jax.Array, z: jax.Array, ratio) -> jax.Array:
    """The stages of a step that is `ratio` times as long as that of the stages z (m,nq), by their polynomial."""
    return extrapolation(nodes, ratio * nodes) @ displacements(model, z)


def at_other_nodes(model: Model, nodes: jax.Array, z: jax.Array, at: jax.Array) -> jax.Array:
    """The stages at the nodes `at` of another collocation, by the polynomial through the stages z at `nodes`."""
    return extrapolation(nodes, at) @ displacements(model, z)


def displacements(model: Model, z: jax.Array) -> jax.Array:
    """Logarithms (m,nv) of increments (m,nq)."""
    identity = manifold.identity_increment(model)
    return jax.vmap(lambda z_j: manifold.difference(model, identity, z_j))(z)


def extrapolation(nodes: jax.Array, at: jax.Array) -> jax.Array:
    """(n,m) weights: the polynomial through (0, 0) and (α_j, z_j), read at `at` (n,)."""
    nodes = jnp.concatenate([jnp.zeros(1, nodes.dtype), nodes])
    rows = []
    for j in range(1, len(nodes)):
        others = [k for k in range(len(nodes)) if k != j]
        factors = [(at - nodes[k]) / (nodes[j] - nodes[k]) for k in others]
        rows.append(jnp.prod(jnp.stack(factors), axis=0))
    return jnp.stack(rows, axis=1)


def _is_small(curvature: jax.Array, line: jax.Array) -> jax.Array:
    """Whether a guess may go on along a curvature of the line that the rates draw, () bool."""
    return jnp.sum(curvature * curvature) < SMALL_CURVATURE**2 * jnp.sum(line * line)
