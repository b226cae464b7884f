"""Newton–Euler dynamics, the paper's baseline, on the same models and forces: RNEA, CRBA, ABA.

Featherstone 2008 in world coordinates: spatial vectors (ω, v), (n, f) about one fixed point, the centre of mass of the
moment. It shares the model, the kinematics and the forces with the position-based steps, none of their recurrences,
so that each is a check of the other.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.checks import one_of
from pbad_jax.errors import OptionError
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import total_load
from pbad_jax.laws.instant import instant
from pbad_jax.laws.load import field_of
from pbad_jax.math import batched, loops, rotations
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.rotations import hat
from pbad_jax.math.small import matmul, matvec, small_sum, take, transpose
from pbad_jax.math.spatial import cross_force, cross_motion, homogeneous, twist_matrix
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, checked, driven, row_of

ALGORITHMS = ("auto", "aba", "crba")


# degrees of freedom up to which the mass matrix and LU are quicker than the articulated-body algorithm: a step of
# semi-implicit Euler on a chain took 96 against 105 µs at 60, 197 against 178 at 80
DENSE = 60


class SpatialState(NamedTuple):
    """One instant of the tree.

    s: (nv,6) world screws. inertia: (N,6,6). bias: (N,6) acceleration of the links at zero joint acceleration.
    wrench: (N,6) what has to act on a link for that, less what forces do. tau: (nv,) what forces do in the joints.
    """

    s: jax.Array
    inertia: jax.Array
    bias: jax.Array
    wrench: jax.Array
    tau: jax.Array


def spatial_inertia(model: Model, T: jax.Array) -> jax.Array:
    """(N,6,6) about the origin of T, from the second moments: [[tr Σ E − Σ, ĥ], [−ĥ, m E]], Σ = ∫ρ P Pᵀ, h = ∫ρ P."""
    G = matmul(matmul(homogeneous(T), model.second_moment), transpose(homogeneous(T)))
    sigma, h, m = G[:, :3, :3], hat(G[:, :3, 3]), G[:, 3, 3]
    eye = jnp.eye(3, dtype=T.dtype)[None]
    top = jnp.trace(sigma, axis1=1, axis2=2)[:, None, None] * eye - sigma
    rows = [jnp.concatenate([top, h], -1), jnp.concatenate([-h, m[:, None, None] * eye], -1)]
    return jnp.concatenate(rows, axis=-2)


def frames(model: Model, q: jax.Array) -> tuple[jax.Array, transforms.Frames]:
    """Transforms in the world (N,3,4), and Frames about the centre of mass of the moment."""
    L = transforms.local_transforms(model, q)
    T = transforms.transforms_parallel(model, L)
    return T, transforms.with_screws(model, transforms.shift(T, transforms.center_of_mass(model, T)), L)


def spatial_state(model: Model, state: State, control: jax.Array) -> SpatialState:
    """Twists, bias accelerations and wrenches: the outward half of RNEA at zero joint acceleration."""
    t, v = tree(model.topology), state.v
    T, f = frames(model, state.q)
    moves = jnp.asarray(t.dof_above_link.T, v.dtype)
    sv = f.s * v[:, None]
    twist = moves @ sv
    bias = moves @ cross_motion(take(twist, t.dof_link), sv)
    inertia = spatial_inertia(model, f.T)
    wrench = matvec(inertia, bias) + cross_force(twist, matvec(inertia, twist))
    V = matmul(twist_matrix(twist), homogeneous(f.T))
    load = total_load(model, instant(state.q, v, T, V, state.time, control))
    field = field_of(load, model.topology.n_links)
    if field is not None:  # its work on a twist is −<ν̂ T, field>
        torque = rotations.vee(matmul(field, transpose(f.T)))
        wrench = wrench + jnp.concatenate([torque, field[..., 3]], axis=-1)
    return SpatialState(f.s, inertia, bias, wrench, jnp.zeros_like(v) if load.tau is None else load.tau)


def onto_joints(model: Model, s: jax.Array, wrench: jax.Array) -> jax.Array:
    """s_x · Σ of the wrenches (N,6) of the links that x moves: (nv,)."""
    moves = jnp.asarray(tree(model.topology).dof_above_link, s.dtype)
    return small_sum(s * (moves @ wrench))


# --- the three algorithms ----------------------------------------------------------------------------------


@with_all_bits
def inverse_dynamics(model: Model, state: State, acceleration: jax.Array, control=None) -> jax.Array:
    """The generalised forces that are missing for an acceleration: RNEA (Featherstone 2008, table 5.1).

    Args:
        model: the model with its forces, gravity among them.
        state: q and v.
        acceleration: (nv,) rad/s², m/s².
        control: (nu,) or None, zeros.

    Returns:
        (nv,) N m, N: mass_matrix · acceleration + Coriolis − all forces of the model.

    Raises:
        StateError: shapes, dtypes, a state of another model (while tracing).

    Example:
        >>> newton_euler.inverse_dynamics(arm, pbad.make_state(arm, [1.0, 0.0]), jnp.zeros(2)).round(3)
        Array([16.51 ,  4.127], dtype=float64)
    """
    control = driven(model, state, checked(model, state, control))
    acceleration = row_of(model, acceleration, "v", "acceleration")
    m = spatial_state(model, state, control)
    moves = jnp.asarray(tree(model.topology).dof_above_link.T, model.dtype)
    wrench = m.wrench + matvec(m.inertia, moves @ (m.s * acceleration[:, None]))
    return onto_joints(model, m.s, wrench) + model.armature * acceleration - m.tau


@with_all_bits
def mass_matrix(model: Model, q: jax.Array) -> jax.Array:
    """The joint-space inertia (nv,nv), armature included: CRBA (Featherstone 2008, table 6.2).

    Args:
        model: the model.
        q: (nq,) configuration.

    Raises:
        StateError: another shape (while tracing).

    Example:
        >>> newton_euler.mass_matrix(arm, jnp.zeros(2)).round(3)
        Array([[2.691, 0.846],
               [0.846, 0.346]], dtype=float64)
    """
    _, f = frames(model, row_of(model, q, "q"))
    return _mass_matrix(model, f.s, spatial_inertia(model, f.T))


def _mass_matrix(model: Model, s: jax.Array, inertia: jax.Array) -> jax.Array:
    """H_xy = s_x · Iᶜ_l(y) s_y for x above y, Iᶜ the inertia of all that l(y) carries."""
    t = tree(model.topology)
    n = model.topology.n_links
    composite = (jnp.asarray(t.above, s.dtype) @ inertia.reshape(n, 36)).reshape(n, 6, 6)
    momentum = matvec(take(composite, t.dof_link), s)
    half = jnp.asarray(t.dof_order, s.dtype) * (s @ momentum.T)
    return half + half.T + jnp.diag(model.armature)


@with_all_bits
def acceleration(model: Model, state: State, control=None, *, algorithm: str = "auto") -> jax.Array:
    """The joint acceleration under all forces of the model.

    Args:
        model: the model.
        state: q and v.
        control: (nu,) or None, zeros.
        algorithm: "aba", O(N); "crba", by the mass matrix and LU; "auto": "crba" up to DENSE degrees of freedom.

    Returns:
        (nv,) rad/s², m/s².

    Raises:
        StateError: shapes, dtypes, a state of another model (while tracing). OptionError: another algorithm.

    Example:
        >>> newton_euler.acceleration(arm, pbad.make_state(arm, [1.0, 0.0])).round(3)
        Array([-10.304,  13.269], dtype=float64)
    """
    one_of(algorithm, ALGORITHMS, "algorithm", OptionError)
    m = spatial_state(model, state, driven(model, state, checked(model, state, control)))
    if algorithm == "aba" or (algorithm == "auto" and model.nv > DENSE):
        return _articulated_bodies(model, m)
    missing = m.tau - onto_joints(model, m.s, m.wrench)
    return batched.solve(_mass_matrix(model, m.s, m.inertia), missing)


class ArticulatedFactors(NamedTuple):
    """What the inward sweep of one link leaves for the outward one."""

    S: jax.Array  # (6,k)
    U: jax.Array  # (6,k) Iᴬ S
    inverse: jax.Array  # (k,k) of Sᵀ U + armature
    u: jax.Array  # (k,)


def _articulated_bodies(model: Model, m: SpatialState) -> jax.Array:
    """ABA (Featherstone 2008, table 7.1); accelerations are those beyond the bias, which the wrenches hold already."""
    # tables by link, padded to as many slots for each: three where there are balls, else one
    t, n, nv = tree(model.topology), model.topology.n_links, model.nv
    slots = 3 if t.balls.size else 1
    of_link = np.full((n, slots), nv)  # dof nv is padding: a screw of zeros with an armature of one
    of_link[t.dof_link, np.maximum(t.dof_ball, 0)] = np.arange(nv)
    parent = np.array([p if p >= 0 else n for p in model.topology.link_parent])
    s = jnp.concatenate([m.s, jnp.zeros((1, 6), m.s.dtype)])[of_link]
    armature = jnp.append(model.armature, 1.0)[of_link]
    tau = jnp.append(m.tau, 0.0)[of_link]
    pad = functools.partial(jnp.pad, mode="constant")

    def inward(carry, link):
        I, p = carry
        i, up, s, armature, tau = link

        # Iᴬ and pᴬ are complete here: U = Iᴬ S, D = Sᵀ U + armature, u = τ − Sᵀ pᴬ
        S = s.T
        U = I[i] @ S
        inverse = _inverse(S.T @ U + jnp.diag(armature))
        u = tau - S.T @ p[i]

        # to the parent: Iᴬ − U D⁻¹ Uᵀ and pᴬ + U D⁻¹ u
        I = I.at[up].add(I[i] - U @ inverse @ U.T)
        p = p.at[up].add(p[i] + U @ (inverse @ u))
        return (I, p), ArticulatedFactors(S, U, inverse, u)

    def outward(a, link):
        i, up, s = link

        # q̈ = D⁻¹ (u − Uᵀ a_p), and the link's own a = a_p + S q̈
        rates = s.inverse @ (s.u - s.U.T @ a[up])
        return a.at[i].set(a[up] + s.S @ rates), rates

    # inward from the leaves, outward from the world, which is link n and stands still
    rows = (np.arange(n), parent)
    start = pad(m.inertia, ((0, 1), (0, 0), (0, 0))), pad(m.wrench, ((0, 1), (0, 0)))
    _, swept = loops.scan(inward, start, (*rows, s, armature, tau), reverse=True)
    _, rates = loops.scan(outward, jnp.zeros((n + 1, 6), m.s.dtype), (*rows, swept))
    return rates[t.dof_link, np.maximum(t.dof_ball, 0)]


def _inverse(D: jax.Array) -> jax.Array:
    """Of a (1,1) or (3,3) matrix: by cofactors, so that lanes need no LAPACK."""
    if D.shape == (1, 1):
        return 1.0 / D
    a, b, c = D
    cofactors = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)], axis=-1)
    return cofactors / (a @ cofactors[:, 0])
