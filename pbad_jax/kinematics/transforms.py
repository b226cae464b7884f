"""T(q), its increments, its velocity field, and the screws that are its derivatives by joint.

Two ways down the tree, equal to rounding: `transforms_serial` is the paper's forward pass, one `lax.scan`
over the links; `transforms` and `increments` jump pointers, so their depth is O(log N).

Work is done about an origin near the bodies, so that float32 does not suffer far from zero: `Frames.T` holds T with it
subtracted from the translations, and the screws are taken about it. All links of a tree have one origin; in a step each
tree has its own (`origins`), because they may be far from one another and nothing but forces at points joins them. What
two trees do to one another is computed from positions in the world, which single precision knows to 1e-7 of themselves.

Read next: atom/serial.py.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kinematics.tree import tree
from pbad_jax.math import loops, rotations
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.small import joined, matmul, matvec, small_sum, take
from pbad_jax.math.spatial import compose, homogeneous, tangent_compose, translation_only, twist_matrix
from pbad_jax.model.model import Model
from pbad_jax.model.state import row_of


class Poses(NamedTuple):
    """Body poses in the world: position (nbody,3) m, rotation (nbody,3,3).

    Example:
        >>> poses = pbad.forward_kinematics(model, state.q)
        >>> poses.position.round(3)
        Array([[ 0.   ,  0.   ,  0.   ],
               [ 0.   ,  0.841, -0.54 ]], dtype=float64)
    """

    position: jax.Array
    rotation: jax.Array


class Frames(NamedTuple):
    """One configuration, ready for the recurrences of atom/.

    T: (N,3,4) world transforms about the origin; L: (N,3,4) local transforms T^{p(i)} L^i = T^i (a root's L
    holds its T); s: (nv,6) world screws (ω, v) of every degree of freedom about the origin, ∂T^l/∂q_x = ŝ_x T^l.
    """

    T: jax.Array
    L: jax.Array
    s: jax.Array


# --- local transforms ------------------------------------------------------------------------------------


def joint_motion(model: Model, z: jax.Array) -> jax.Array:
    """J(z) − identity of every link, (N,3,4), exact to rounding also for tiny z (nq,)."""
    t = tree(model.topology)
    n = model.topology.n_links
    value = take(z, t.link_q) if model.nq else jnp.zeros(n, model.dtype)
    half = jnp.where(t.hinge, 0.5 * value, 0.0)
    p = jnp.concatenate([jnp.cos(half)[:, None], jnp.sin(half)[:, None] * model.axis], axis=1)
    if t.balls.size:
        p = joined((take(p, t.no_balls), take(z, t.ball_q)), (t.no_balls, t.balls))
    dR = rotations.rotation_minus_identity(p)
    slide = jnp.where(t.slide, value, 0.0)[:, None] * model.axis
    return jnp.concatenate([dR, (slide - matvec(dR, model.anchor))[..., None]], axis=-1)


def local_transforms(model: Model, q: jax.Array) -> jax.Array:
    """L^i(q), the transform of link i in its parent, (N,3,4)."""
    return model.placement + tangent_compose(model.placement, joint_motion(model, q))


def joint_screws(model: Model) -> jax.Array:
    """The constant screws σ_x (nv,3,4), each in its own link's frame: ∂L/∂q_x = L σ_x."""
    axis, moment = _axis_moment(model)
    t = tree(model.topology)
    w = jnp.where(t.dof_slide[:, None], 0.0, axis)
    v = jnp.where(t.dof_slide[:, None], axis, moment)
    return jnp.concatenate([rotations.hat(w), v[..., None]], axis=-1)


def _axis_moment(model: Model) -> tuple[jax.Array, jax.Array]:
    """Axis (nv,3) of every degree of freedom in its link's frame, and anchor × axis (nv,3)."""
    t = tree(model.topology)
    axis = take(model.axis, t.dof_link)
    if t.balls.size:
        unit = np.eye(3)[np.maximum(t.dof_ball, 0)]
        axis = jnp.where((t.dof_ball >= 0)[:, None], jnp.asarray(unit, model.dtype), axis)
    return axis, jnp.cross(take(model.anchor, t.dof_link), axis)


# --- world transforms ------------------------------------------------------------------------------------


def transforms_serial(model: Model, L: jax.Array) -> jax.Array:
    """T^i = T^{p(i)} L^i by one scan over the links: the forward pass of the paper's Alg. 1. (N,3,4)."""
    n = model.topology.n_links
    parent = jnp.asarray([p if p >= 0 else n for p in model.topology.link_parent])
    world = jnp.eye(4, dtype=L.dtype)[:3]
    T0 = jnp.concatenate([jnp.zeros_like(L), world[None]])

    def link(T, i):
        return T.at[i].set(compose(T[parent[i]], L[i])), None

    T, _ = loops.scan(link, T0, jnp.arange(n))
    return T[:n]


def _world(x: jax.Array, value: jax.Array) -> jax.Array:
    """x with a padded last row for the world link."""
    return jnp.concatenate([x, value[None]])


def transforms_parallel(model: Model, L: jax.Array) -> jax.Array:
    """T^i = L^root ... L^i by pointer jumping: ⌈log₂ depth⌉ products. (N,3,4)."""
    world = jnp.eye(4, dtype=L.dtype)[:3]
    T = L
    for jump in tree(model.topology).jumps:
        T = compose(take(_world(T, world), jump), T)
    return T


def transforms(model: Model, q: jax.Array) -> jax.Array:
    """World transforms T(q) of all links, (N,3,4): rotation and translation (m). Paper, section 3."""
    return transforms_parallel(model, local_transforms(model, q))


def increments(model: Model, L: jax.Array, motion: jax.Array) -> jax.Array:
    """ΔT = T(q ⊕ z) − T(q) without subtracting transforms, (N,3,4), by the `joint_motion` J(z) − E.

    With L = L(q) and ΔL = L (J(z) − E): Δ(A B) = ΔA (B + ΔB) + A ΔB, composed by pointer jumping. Its
    relative error is that of one rounding, however small z is: what keeps float32 accurate at small dt.
    """
    dT = tangent_compose(L, motion)
    T = L
    zero, world = jnp.zeros((3, 4), L.dtype), jnp.eye(4, dtype=L.dtype)[:3]
    for jump in tree(model.topology).jumps:
        A, dA = take(_world(T, world), jump), take(_world(dT, zero), jump)
        new = T + dT
        dT = tangent_compose(dA, new) + translation_only(dA) + tangent_compose(A, dT)
        T = compose(A, T)
    return dT


def frames(model: Model, q: jax.Array, origin: jax.Array | None = None) -> Frames:
    """T, L and the screws at q. `origin` (3,) m, or (N,3), the same for all links of a tree; default the world's."""
    L = local_transforms(model, q)
    return with_screws(model, shift(transforms_parallel(model, L), origin), L)


def shift(T: jax.Array, origin: jax.Array | None) -> jax.Array:
    """T with its translations measured from `origin`, (3,) or (N,3)."""
    return T if origin is None else T - origin.reshape(-1, 3, 1) * np.array([[[0, 0, 0, 1]]], T.dtype)


def with_screws(model: Model, T: jax.Array, L: jax.Array) -> Frames:
    """The Frames of transforms T (N,3,4) about an origin and local transforms L (N,3,4).

    A hinge's or ball's axis a at anchor c gives ω = R a, v = (T c) × ω; a slide ω = 0, v = R a.
    """
    t = tree(model.topology)
    axis, _ = _axis_moment(model)
    Tx = take(T, t.dof_link)
    a = matvec(Tx[..., :3], axis)
    c = matvec(Tx[..., :3], take(model.anchor, t.dof_link)) + Tx[..., 3]
    slide = t.dof_slide[:, None]
    s = jnp.concatenate([jnp.where(slide, 0.0, a), jnp.where(slide, a, jnp.cross(c, a))], axis=-1)
    return Frames(T=T, L=L, s=s)


def velocity_field(model: Model, f: Frames, v: jax.Array) -> jax.Array:
    """V^l = Σ_x ∂T^l/∂q_x v_x, (N,3,4) rad/s, m/s: the twist of every link times its T."""
    twist = jnp.asarray(tree(model.topology).dof_above_link.T, v.dtype) @ (f.s * v[:, None])
    return matmul(twist_matrix(twist), homogeneous(f.T))


# --- what users ask for ----------------------------------------------------------------------------------


@with_all_bits
def forward_kinematics(model: Model, q: jax.Array) -> Poses:
    """Poses of all bodies in the world, in the file's order.

    Args:
        model: the model.
        q: (nq,) configuration.

    Returns:
        Poses: `.position` (nbody,3) m, `.rotation` (nbody,3,3).

    Raises:
        StateError: another shape (while tracing).

    Example:
        >>> pbad.forward_kinematics(model, state.q).position[1].round(3)
        Array([ 0.   ,  0.841, -0.54 ], dtype=float64)
    """
    T = transforms(model, row_of(model, q, "q"))[np.array(model.topology.body_link)]
    return Poses(position=T[..., 3], rotation=T[..., :3])


def total_mass(model: Model) -> jax.Array:
    """Mass of all links, kg."""
    return jnp.sum(model.second_moment[:, 3, 3])


def center_of_mass(model: Model, T: jax.Array) -> jax.Array:
    """Centre of mass (3,) m of all links, from their transforms (N,3,4)."""
    first = jnp.sum(matvec(T, model.second_moment[:, :, 3]), axis=0)
    return first / total_mass(model)


def origins(model: Model, T: jax.Array) -> jax.Array:
    """A point near each link, (N,3) m: the centre of mass of its tree or, where that has no mass, the tree's root."""
    t = tree(model.topology)
    if len(t.roots) == 1:
        return jnp.broadcast_to(center_of_mass(model, T), T[..., 3].shape)
    own = jnp.asarray(t.of_root, T.dtype)
    first, mass = own @ matvec(T, model.second_moment[:, :, 3]), own @ model.second_moment[:, 3, 3]
    none = (mass == 0)[:, None]
    centres = jnp.where(none, T[t.roots, :, 3], first / jnp.where(none, 1.0, mass[:, None]))
    return centres[np.argmax(t.of_root, axis=0)]


def length_scale(model: Model) -> jax.Array:
    """A typical length of the model, m: sizes of its links and of the offsets between them; 0 of a point.

    Where a root is placed in the world is no offset.
    """
    M, mass = model.second_moment, total_mass(model)
    spread = jnp.sum(jnp.trace(M[:, :3, :3], axis1=1, axis2=2)) / jnp.where(mass == 0, 1.0, mass)
    offsets = model.placement[..., 3] * (np.array(model.topology.link_parent) >= 0)[:, None]
    return jnp.sqrt(spread + jnp.mean(small_sum(offsets**2)))


def centripetal_field(model: Model, f: Frames, v: jax.Array) -> jax.Array:
    """Γ^l = Σ_xy ∂²T^l/∂q_x∂q_y v_x v_y: the acceleration field at zero joint acceleration, (N,3,4).

    A screw moves with its own link, ŝ̇_x = [ν̂, ŝ_x], so Γ = (ν̂̇ + ν̂ ν̂) T with ν the links' twists.
    """
    t = tree(model.topology)
    moves = jnp.asarray(t.dof_above_link.T, v.dtype)
    sv = f.s * v[:, None]
    twist = moves @ sv
    nu, w, u = take(twist, t.dof_link), sv[:, :3], sv[:, 3:]
    s_dot = jnp.concatenate([jnp.cross(nu[:, :3], w), jnp.cross(nu[:, :3], u) + jnp.cross(nu[:, 3:], w)], axis=-1)
    nu_hat = twist_matrix(twist)
    accel = twist_matrix(moves @ s_dot) + matmul(nu_hat, homogeneous(nu_hat, last=0.0))
    return matmul(accel, homogeneous(f.T))
