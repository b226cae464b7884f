"""The manifold of configurations: q ⊕ δ, its inverse, and increments in the layout of q."""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import StateError
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import rotations
from pbad_jax.model.model import Model


def retract(model: Model, q: jax.Array, delta: jax.Array) -> jax.Array:
    """q ⊕ δ: addition, and q ⊗ exp(δ) for quaternions, normalised. Smooth in both, also at δ = 0.

    Args:
        model: the model.
        q: (nq,) configuration.
        delta: (nv,) rad, m, in the layout of v: body-frame rotation vectors for ball and free joints.

    Returns:
        (nq,) configuration.

    Raises:
        StateError: another shape (while tracing).
    """
    q, delta = _of_size(q, model.nq, "q"), _of_size(delta, model.nv, "delta")
    t = tree(model.topology)
    if not t.balls.size:
        return q + delta
    p = rotations.quaternion_product(q[t.ball_q], rotations.quaternion_exp(delta[t.ball_v]))
    return q.at[t.scalar_q].add(delta[t.scalar_v]).at[t.ball_q].set(rotations.normalise(p))


def difference(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """The δ with q_a ⊕ δ = q_b, the shortest rotation for quaternions: the inverse of `retract`.

    Smooth in both where no ball or free joint turns by half a turn, also at q_a = q_b.

    Args:
        model: the model.
        q_a, q_b: (nq,) configurations.

    Returns:
        (nv,) rad, m, in the layout of v; |δ| ≤ π for each rotation.

    Raises:
        StateError: another shape (while tracing).
    """
    q_a, q_b = _of_size(q_a, model.nq, "q_a"), _of_size(q_b, model.nq, "q_b")
    t = tree(model.topology)
    if not t.balls.size:
        return q_b - q_a
    out = jnp.zeros(model.nv, q_b.dtype).at[t.scalar_v].set(q_b[t.scalar_q] - q_a[t.scalar_q])
    p = rotations.quaternion_product(rotations.quaternion_inverse(q_a[t.ball_q]), q_b[t.ball_q])
    return out.at[t.ball_v].set(rotations.quaternion_log(p))


def _of_size(x, size: int, name: str) -> jax.Array:
    """x (size,) as an array; one that fits by broadcasting alone is refused."""
    x = jnp.asarray(x)
    if x.shape != (size,):
        hint = ": it looks like a batch, use jax.vmap" if x.ndim == 2 and x.shape[1] == size else ""
        raise StateError(f"{name} has shape {x.shape}; wanted ({size},){hint}")
    return x


def identity_increment(model: Model) -> jax.Array:
    """The increment z (nq,) of no motion: zeros, and (1,0,0,0) for quaternions."""
    t = tree(model.topology)
    z = np.zeros(model.nq)
    z[t.ball_q[:, 0] if t.balls.size else []] = 1
    return jnp.asarray(z, model.dtype)


def compose_increment(model: Model, q: jax.Array, z: jax.Array) -> jax.Array:
    """q followed by the increment z, both in the layout of q: q + z, and q ⊗ z for quaternions."""
    t = tree(model.topology)
    if not t.balls.size:
        return q + z
    p = rotations.quaternion_product(q[t.ball_q], z[t.ball_q])
    return q.at[t.scalar_q].add(z[t.scalar_q]).at[t.ball_q].set(rotations.normalise(p))


def increment_between(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """The increment z (nq,) that leads from q_a to q_b."""
    t = tree(model.topology)
    out = (q_b - q_a).astype(q_b.dtype)
    if t.balls.size:
        out = out.at[t.ball_q].set(
            rotations.quaternion_product(rotations.quaternion_inverse(q_a[t.ball_q]), q_b[t.ball_q])
        )
    return out
