"""The manifold of configurations: q ⊕ δ, its inverse, and increments in the layout of q."""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kinematics.tree import on_dofs, on_q, tree
from pbad_jax.math.rotations import normalise, quaternion_exp, quaternion_inverse, quaternion_log, quaternion_product
from pbad_jax.math.small import take
from pbad_jax.model.model import Model
from pbad_jax.model.state import row_of


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

    Example:
        >>> pbad.retract(model, state.q, jnp.array([0.1, 0.0, 0.0, 0.0])).round(3)
        Array([1.1, 0. , 0. , 0. ], dtype=float64)
    """
    q, delta = row_of(model, q, "q"), row_of(model, delta, "v", "delta")
    t = tree(model.topology)

    def balls():
        return normalise(quaternion_product(take(q, t.ball_q), quaternion_exp(take(delta, t.ball_v))))

    return on_q(model, take(q, t.scalar_q) + take(delta, t.scalar_v), balls)


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

    Example:
        >>> q = pbad.retract(model, state.q, jnp.array([0.0, 0.1, 0.0, 0.0]))
        >>> pbad.difference(model, state.q, q).round(3)
        Array([0. , 0.1, 0. , 0. ], dtype=float64)
    """
    q_a, q_b = row_of(model, q_a, "q", "q_a"), row_of(model, q_b, "q", "q_b")
    t = tree(model.topology)

    def balls():
        return quaternion_log(quaternion_product(quaternion_inverse(take(q_a, t.ball_q)), take(q_b, t.ball_q)))

    return on_dofs(model, take(q_b, t.scalar_q) - take(q_a, t.scalar_q), balls)


def identity_increment(model: Model) -> jax.Array:
    """The increment z (nq,) of no motion: zeros, and (1,0,0,0) for quaternions."""
    t = tree(model.topology)
    z = np.zeros(model.nq)
    z[t.ball_q[:, 0]] = 1
    return jnp.asarray(z, model.dtype)


def compose_increment(model: Model, q: jax.Array, z: jax.Array) -> jax.Array:
    """q followed by the increment z, both in the layout of q: q + z, and q ⊗ z for quaternions."""
    t = tree(model.topology)

    def balls():
        return normalise(quaternion_product(take(q, t.ball_q), take(z, t.ball_q)))

    return on_q(model, take(q, t.scalar_q) + take(z, t.scalar_q), balls)


def increment_between(model: Model, q_a: jax.Array, q_b: jax.Array) -> jax.Array:
    """The increment z (nq,) that leads from q_a to q_b."""
    t = tree(model.topology)

    def balls():
        return quaternion_product(quaternion_inverse(take(q_a, t.ball_q)), take(q_b, t.ball_q))

    return on_q(model, (take(q_b, t.scalar_q) - take(q_a, t.scalar_q)).astype(q_b.dtype), balls)
