"""Whether a root is the one that grows out of the start of the step: tests of what was found, not ways to find it."""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.forces.force import passed
from pbad_jax.kinematics import manifold
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import batched, rotations
from pbad_jax.model.model import Model
from pbad_jax.stage import equation
from pbad_jax.stage.equation import StepStart

LARGE_TURN = 1.0  # rad a step from which a fold matters; below, an unstable force at a large dt may look like one


def turns_far(model: Model, z: jax.Array) -> jax.Array:
    """Whether a root z (m,nq) has turned some joint by so much that it may not be connected, () bool."""
    return _largest_turn(model, z) >= LARGE_TURN


def is_connected(det_C: float, model: Model, J) -> jax.Array:
    """Whether a root can be reached from dt = 0 without J becoming singular: a necessary condition, () bool.

    At dt = 0 J is C ⊗ mass. One unknown configuration: J has to be positive definite still (its symmetric part; that
    is, the root minimises the energy). Several: det J has to have the sign that it had there. Only asked where a joint
    has turned by more than LARGE_TURN: radau(1), say, has a root at which a fast rotor runs backwards.
    """
    if not isinstance(J, jax.Array) or J.shape[0] == model.nv:
        return operator.is_positive_definite(model, J)
    return batched.sign_of_determinant(J) * np.sign(det_C) ** model.nv > 0


def is_continuous(model: Model, dt, v_old: jax.Array, z: jax.Array, v_new: jax.Array) -> jax.Array:
    """Whether no joint has turned further than its rates before and after can explain, () bool; z (nq,), v (nv,).

    A hinge may turn by the mean of both rates, plus half of each, plus half a turn; a ball likewise, plus a quarter of
    one, as far as its rotation (at most half a turn) can tell. A slide is not asked, because positions are not periodic
    and a far root would have a large residual energy.
    """
    t = tree(model.topology)
    mean, slack = 0.5 * dt * (v_old + v_new), 0.5 * jnp.abs(dt) * (jnp.abs(v_old) + jnp.abs(v_new))
    hinge, dofs = t.scalar_q[t.hinge[t.scalar_links]], t.scalar_v[t.hinge[t.scalar_links]]
    smooth = ~jnp.any(jnp.abs(z[hinge] - mean[dofs]) > slack[dofs] + jnp.pi)
    if t.balls.size:
        p = rotations.quaternion_product(rotations.quaternion_exp(-mean[t.ball_v]), z[t.ball_q])
        angle = jnp.linalg.norm(rotations.quaternion_log(p), axis=-1)
        smooth &= ~jnp.any(angle > jnp.linalg.norm(slack[t.ball_v], axis=-1) + jnp.pi / 2)
    return smooth


def passes_through(model: Model, dt, start: StepStart, z: jax.Array) -> jax.Array:
    """Whether a force says that in a step to the increment z (nq,) something went through something, () bool."""
    if not any(hasattr(f, "passed") for f in model.forces):
        return jnp.zeros((), bool)
    model, dt, start, z = jax.lax.stop_gradient((model, dt, start, z))
    st = equation.stages(model, start, z[None])
    f, dT = jax.tree.map(lambda x: x[0], (st.frames, st.delta.T))
    v = manifold.difference(model, manifold.identity_increment(model), z) / dt
    q = manifold.compose_increment(model, start.q, z)
    return passed(model, equation.instant_at(model, start, q, v, f, dT / dt, start.time + dt, dt))


def _largest_turn(model: Model, z: jax.Array) -> jax.Array:
    """The largest angle (rad) that a hinge or ball has turned, of z (m,nq)."""
    t = tree(model.topology)
    turns = [jnp.zeros(1, z.dtype), jnp.abs(z[:, t.scalar_q[t.hinge[t.scalar_links]]]).reshape(-1)]
    if t.balls.size:
        turns.append(jnp.linalg.norm(rotations.quaternion_log(z[:, t.ball_q]), axis=-1).reshape(-1))
    return jnp.max(jnp.concatenate(turns))
