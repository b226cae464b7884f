"""Coasting: the motion that goes on if nothing acts, which a scheme's table need not describe.

A polynomial in time is a poor turn: a wheel that turns by φ in a step of radau(1) ends at tan θ = φ, and loses a share
φ²/2 of its speed. So the tables describe what is left of T(t) once w T_c(t) is taken away, T_c a known motion that
starts with q_k and v_k: every joint keeps its rate, and a tree that turns freely (kinematics/turning.py) turns as the
rigid body that it is with its joints held, its centre of mass going straight on. For a collocation (schemes.py)

    Y_i  gains  w (dt² A_c(t_i) − Σ_j C_ij ΔT_c(t_j) − e_i dt V_k),
    V_i  gains  w (V_c(t_i) − Σ_j D_ij ΔT_c(t_j) / dt),

both known before the solve, so that the equation of one stage is still the gradient of an energy. Wheels on axles and
free bodies turn as they do, at every dt, and because w T_c is smooth in t no scheme loses an order.

Where joints swing one another, as in a chain, T_c is not how it goes on. w says how much it is, for every tree by
itself. The joints hold a part of the acceleration A_c of T_c; what they do not hold moves them, by M⁻¹ b with
b = <∂T/∂q, A_c M>. With ρ = bᵀ M⁻¹ b / <A_c, A_c M>, at the start of the step and between 0 and 1,

    w = 1 / (1 + (ρ/HELD)²).

Read next: equation.py.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.dynamics.instant import acceleration_field
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.kinematics.tree import tree
from pbad_jax.kinematics.turning import locked_inertia, straightened, turning
from pbad_jax.math import loops, rotations
from pbad_jax.math.small import matmul, matvec
from pbad_jax.model.model import Model
from pbad_jax.stage.fields import stages
from pbad_jax.stage.start import StepStart

HELD = 0.0001  # ρ at which half of coasting is taken away
PARTS = 4  # steps of Runge and Kutta's method for the turn of a body up to a node


class Coasting(NamedTuple):
    """w T_c at n times, in units of dt; leading axis n."""

    delta: Field  # w ΔT_c
    rate: Field  # w dt V_c
    accel: Field  # w dt² A_c
    begun: Field  # w dt V_k; no leading axis
    first: Field  # w dt² A_c at the start; no leading axis
    angles: jax.Array  # (hinges and slides,) of that


def coasting(model: Model, start: StepStart, dt, nodes: jax.Array) -> Coasting:
    """From the start of a step to its nodes (n,) in units of dt."""
    times = jnp.concatenate([jnp.zeros(1, nodes.dtype), nodes])
    z, u, a = _joints(model, start, times, dt * start.v)
    st = stages(model, start, z)

    def rates(f, z, u, a):
        V = Field(transforms.velocity_field(model, f, u), joint_field.rate(model, u, z))
        return V, acceleration_field(model, f, z, u, a)

    V, A = jax.vmap(rates)(st.frames, z, u, a)

    # centres of mass that go straight on
    straight = jax.vmap(lambda x: straightened(model, x))
    on = times[:, None, None, None] * V.T[:1]
    delta = st.delta._replace(T=on + straight(st.delta.T - on))
    V = V._replace(T=V.T[:1] + straight(V.T - V.T[:1]))
    A = A._replace(T=straight(A.T))

    # the share of every tree
    w = share(model, start, A.T[0], a[0])
    delta, V, A = (_times(model, w, x) for x in (delta, V, A))
    begun, first = jax.tree.map(lambda x: x[0], (V, A))
    delta, rate, accel = jax.tree.map(lambda x: x[1:], (delta, V, A))
    return Coasting(delta, rate, accel, begun, first, begun.joint[: len(tree(model.topology).scalar_q)])


def share(model: Model, start: StepStart, A: jax.Array, a: jax.Array) -> jax.Array:
    """w (trees,), from the acceleration A_c (N,3,4) at the start of the step and that of the joints in it, a (nv,)."""
    t = tree(model.topology)
    AM = matmul(A, model.second_moment)
    b = operator.pullback(model, start.frames, AM, start.recurrence) + model.armature * a
    own = jnp.asarray(t.of_root, b.dtype)
    left = own[:, t.dof_link] @ (b * operator.solve(model, start.mass, b))
    whole = own @ jnp.sum(A * AM, axis=(1, 2))
    rho = left / jnp.where(whole > 0, whole, 1.0)
    return 1 / (1 + (rho / HELD) ** 2)


def _times(model: Model, w: jax.Array, x: Field) -> Field:
    """w (trees,) times fields (n,...), each tree's own."""
    t = tree(model.topology)
    of_link = np.argmax(t.of_root, axis=0)
    of_joint = np.concatenate([of_link[t.scalar_links], np.repeat(of_link[t.balls], 9)])
    return Field(w[of_link][None, :, None, None] * x.T, w[of_joint][None] * x.joint)


# --- what a table makes of it --------------------------------------------------------------------------------


def less_collocation(c: Coasting, C: jax.Array, D: jax.Array, e: jax.Array) -> tuple[Field, Field]:
    """What Y (m,...) and dt V (m,...) gain, of a collocation's table."""
    on = jax.tree.map(lambda V_k: jnp.multiply.outer(e, V_k), c.begun)
    accel = jax.tree.map(lambda A, X, on: A - jnp.tensordot(C, X, axes=1) - on, c.accel, c.delta, on)
    return accel, jax.tree.map(lambda V, X: V - jnp.tensordot(D, X, axes=1), c.rate, c.delta)


def less_dirk(c: Coasting, A: jax.Array, gamma: float) -> tuple[Field, Field]:
    """The same of all stages (s,...) of a table A (s,s), here below the diagonal, with γ on it (step/dirk.py)."""

    def rate(X, V):
        return V - (X - jnp.tensordot(A, V, axes=1)) / gamma

    def accel(X, V, a, V_k):
        return a - (X - jnp.tensordot(A, V + gamma * a, axes=1) - gamma * V_k[None]) / gamma**2

    return jax.tree.map(accel, c.delta, c.rate, c.accel, c.begun), jax.tree.map(rate, c.delta, c.rate)


# --- joints at their rates, bodies that turn -----------------------------------------------------------------


def _joints(model: Model, start: StepStart, times: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Increments z (n,nq), rates (n,nv) and their rates (n,nv) in units of dt, of joints that start with u (nv,)."""
    t, identity = turning(model.topology), manifold.identity_increment(model)
    z = jax.vmap(lambda c: manifold.retract(model, identity, c * u))(times)
    u, a = jnp.broadcast_to(u, (len(times), model.nv)), jnp.zeros((len(times), model.nv), u.dtype)
    if not len(t.balls):
        return z, u, a
    p, w, change = _turned(model, start, times, u[0, t.dofs])
    q = tree(model.topology).ball_q[t.balls]
    return z.at[:, q].set(p), u.at[:, t.dofs].set(w), a.at[:, t.dofs].set(change)


def _turned(model: Model, start: StepStart, times: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Quaternions (n,k,4), rates and their rates (n,k,3) of what turns freely, as rigid bodies: I ω̇ = I ω × ω."""
    # inertia as a turn meets it, in units of its size, whose cube may be no number; what has none keeps its rate
    dtype, dofs = w.dtype, turning(model.topology).dofs
    I, armature = locked_inertia(model, start.frames.T), model.armature[dofs]
    size = jnp.trace(I, axis1=1, axis2=2) + jnp.sum(armature, axis=-1)
    size = jnp.where(size > 0, size, 1.0)[:, None]
    I, armature = I / size[..., None], armature / size
    floor = jnp.finfo(dtype).eps * jnp.trace(I, axis1=1, axis2=2) + jnp.finfo(dtype).tiny
    met = I + (floor[:, None] + armature)[..., None] * jnp.eye(3, dtype=dtype)[None]
    minors = jnp.stack([jnp.cross(met[:, i - 2], met[:, i - 1]) for i in range(3)], axis=1)
    inverse = minors / jnp.sum(met[:, 0] * minors[:, 0], axis=-1)[:, None, None]  # met is symmetric

    def euler(w):
        return matvec(inverse[None], jnp.cross(matvec(I[None], w), w))

    def slope(turn, w):
        return matvec(rotations.right_jacobian_inverse(turn), w), euler(w)

    # Runge and Kutta's method in the rotation vector of every part
    h = (times / PARTS)[:, None, None]
    w = jnp.broadcast_to(w, (len(times), *w.shape))
    p = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 0.0], dtype), (*w.shape[:-1], 4))

    def part(_, before):
        p, w = before
        k1 = slope(jnp.zeros_like(w), w)
        k2 = slope(h / 2 * k1[0], w + h / 2 * k1[1])
        k3 = slope(h / 2 * k2[0], w + h / 2 * k2[1])
        k4 = slope(h * k3[0], w + h * k3[1])
        turn, gained = (h / 6 * (a + 2 * b + 2 * c + d) for a, b, c, d in zip(k1, k2, k3, k4))
        return rotations.quaternion_product(p, rotations.quaternion_exp(turn)), w + gained

    p, w = loops.fori_loop(0, PARTS, part, (p, w))
    return p, w, euler(w)
