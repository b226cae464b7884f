"""Where bodies and sites are, how they move, and the Jacobians of their points: what a controller needs.

All of the screws: a link's twist is ν = Σ s_x v_x over the degrees of freedom that move it, so its point P has the
velocity v + ω × P, and one column of its Jacobian is v_x + ω_x × P. Everything is in the world's axes. Twists are taken
about the centre of mass, so that float32 does not suffer far from the world's origin.

v is the library's and MuJoCo's (a free joint's translation in the world, a ball's rotation in the body), and so are the
Jacobians: J v is the velocity.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.checks import known, vector
from pbad_jax.dynamics import newton_euler
from pbad_jax.errors import StateError
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.transforms import Frames, Poses
from pbad_jax.kinematics.tree import tree
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.math.small import matvec, take
from pbad_jax.math.spatial import compose, cross_motion
from pbad_jax.model.model import Model
from pbad_jax.model.sites import Site
from pbad_jax.model.state import State, check_state, row_of


class Rates(NamedTuple):
    """Velocities or accelerations of n frames in the world's axes, of their origins and of their rotations.

    Example:
        >>> pbad.body_velocities(model, state).linear.shape
        (2, 3)
    """

    linear: jax.Array  # (n,3) m/s or m/s²
    angular: jax.Array  # (n,3) rad/s or rad/s²


class Jacobian(NamedTuple):
    """Of one frame: linear @ v is the velocity of its origin, angular @ v its angular velocity, in the world's axes.

    Example:
        >>> J = pbad.site_jacobian(hand, state, "hand")
        >>> (J.linear @ state.v).round(3)
        Array([-1.,  0.,  0.], dtype=float64)
    """

    linear: jax.Array  # (3,nv)
    angular: jax.Array  # (3,nv)


# --- frames and what they are on ------------------------------------------------------------------------------


class Placed(NamedTuple):
    """n frames on links: constant."""

    links: np.ndarray  # (n,) N is the world
    offset: np.ndarray  # (n,3,4) of every frame in its link


def placed(model: Model, frames: tuple[Site, ...]) -> Placed:
    """Sites, of a model or not, on its links."""
    t = model.topology
    links = [t.n_links if s.body is None else t.body_link[t.body_names.index(s.body)] for s in frames]
    offset = [np.c_[rotation_numpy(s.quaternion), s.position] for s in frames]
    return Placed(np.array(links, int), np.array(offset, float).reshape(-1, 3, 4))


def bodies(model: Model) -> Placed:
    """The frames of all bodies."""
    links = np.array(model.topology.body_link)
    return Placed(links, np.tile(np.eye(4)[:3], (len(links), 1, 1)))


def transforms_of(p: Placed, T: jax.Array, world: jax.Array) -> jax.Array:
    """(n,3,4) of frames, from those of the links T (N,3,4) and the world's `world` (3,4)."""
    return compose(jnp.concatenate([T, world[None]])[p.links], jnp.asarray(p.offset, T.dtype))


class Motion(NamedTuple):
    """The links at one moment, about the centre of mass."""

    origin: jax.Array  # (3,) m, the centre of mass
    f: Frames
    twist: jax.Array  # (N,6)

    @property
    def world(self) -> jax.Array:
        """The world's frame as seen from the origin, (3,4)."""
        return jnp.concatenate([jnp.eye(3, dtype=self.origin.dtype), -self.origin[:, None]], axis=1)


def motion(model: Model, state: State) -> Motion:
    """Transforms, screws and twists of all links."""
    T, f = newton_euler.frames(model, state.q)
    moves = jnp.asarray(tree(model.topology).dof_above_link.T, f.s.dtype)
    return Motion(transforms.center_of_mass(model, T), f, moves @ (f.s * state.v[:, None]))


def rates_of(p: Placed, m: Motion) -> Rates:
    """Of frames."""
    twist = _padded(m.twist)[p.links]
    P = transforms_of(p, m.f.T, m.world)[..., 3]
    return Rates(twist[:, 3:] + jnp.cross(twist[:, :3], P), twist[:, :3])


def second_rates_of(model: Model, p: Placed, m: Motion, v: jax.Array, acceleration: jax.Array) -> Rates:
    """Accelerations of frames, at velocity v and joint acceleration (nv,).

    The twists of links change by Σ s_x v̇_x + ν × s_x v_x; P̈ = a + α × P + ω × Ṗ.
    """
    t = tree(model.topology)
    moves = jnp.asarray(t.dof_above_link.T, v.dtype)
    turning = cross_motion(take(m.twist, t.dof_link), m.f.s * v[:, None])
    a = _padded(moves @ (m.f.s * acceleration[:, None] + turning))[p.links]
    P, now = transforms_of(p, m.f.T, m.world)[..., 3], rates_of(p, m)
    return Rates(a[:, 3:] + jnp.cross(a[:, :3], P) + jnp.cross(now.angular, now.linear), a[:, :3])


def _padded(x: jax.Array) -> jax.Array:
    """With a row of zeros for the world."""
    return jnp.concatenate([x, jnp.zeros_like(x[:1])])


def jacobian_of(model: Model, f: Frames, link: int, P: jax.Array) -> Jacobian:
    """Of a point P (3,) of a link (N: the world) at frames f, both about one origin."""
    t = tree(model.topology)
    moves = np.zeros(model.nv) if link == model.topology.n_links else t.dof_above_link[:, link]
    s = f.s * jnp.asarray(moves, f.s.dtype)[:, None]
    return Jacobian((s[:, 3:] + jnp.cross(s[:, :3], P[None])).T, s[:, :3].T)


# --- what users ask for --------------------------------------------------------------------------------------


@with_all_bits
def site_poses(model: Model, state: State) -> Poses:
    """Poses of all sites in the world, in the order of `model.sites`: `.position` (n,3) m, `.rotation` (n,3,3).

    Raises:
        StateError: a state of another model, wrong shapes (while tracing); so do all of these.

    Example:
        >>> pbad.site_poses(hand, pbad.make_state(hand)).position
        Array([[ 0.,  0., -2.],
               [ 0.,  1.,  0.]], dtype=float64)
    """
    check_state(model, state)
    world = jnp.eye(4, dtype=model.dtype)[:3]
    X = transforms_of(placed(model, tuple(model.sites.values())), transforms.transforms(model, state.q), world)
    return Poses(X[..., 3], X[..., :3])


@with_all_bits
def site_velocities(model: Model, state: State) -> Rates:
    """Velocities of all sites, in the order of `model.sites`: `.linear` (n,3) m/s, `.angular` (n,3) rad/s.

    Example:
        >>> pbad.site_velocities(hand, pbad.make_state(hand, v=[0.0, 1.0, 0.0, 0.0])).linear.round(3)
        Array([[-2.,  0.,  0.],
               [ 0.,  0.,  0.]], dtype=float64)
    """
    check_state(model, state)
    return rates_of(placed(model, tuple(model.sites.values())), motion(model, state))


@with_all_bits
def site_accelerations(model: Model, state: State, acceleration=None) -> Rates:
    """Accelerations of all sites, in the order of `model.sites`: `.linear` (n,3) m/s², `.angular` (n,3) rad/s².

    Args:
        model: the model.
        state: q and v.
        acceleration: (nv,) of the joints, as of `newton_euler.acceleration`; None: zero, which gives J̇ v.

    Example:
        >>> pbad.site_accelerations(hand, pbad.make_state(hand)).linear.round(3)
        Array([[0., 0., 0.],
               [0., 0., 0.]], dtype=float64)
    """
    check_state(model, state)
    p = placed(model, tuple(model.sites.values()))
    return second_rates_of(model, p, motion(model, state), state.v, joint_acceleration(model, acceleration))


@with_all_bits
def body_velocities(model: Model, state: State) -> Rates:
    """Velocities of the frames of all bodies, in the file's order: `.linear` (nbody,3), `.angular` (nbody,3).

    Example:
        >>> pbad.body_velocities(model, state).linear.round(3)
        Array([[ 0. ,  0. ,  0. ],
               [-0.5,  0. ,  0. ]], dtype=float64)
    """
    check_state(model, state)
    return rates_of(bodies(model), motion(model, state))


@with_all_bits
def body_accelerations(model: Model, state: State, acceleration=None) -> Rates:
    """Accelerations of the frames of all bodies, (nbody,3) each; see `site_accelerations`.

    Example:
        >>> pbad.body_accelerations(model, state).linear.round(2)
        Array([[ 0.  ,  0.  ,  0.  ],
               [ 0.  , -0.21,  0.14]], dtype=float64)
    """
    check_state(model, state)
    m = motion(model, state)
    return second_rates_of(model, bodies(model), m, state.v, joint_acceleration(model, acceleration))


@with_all_bits
def site_jacobian(model: Model, state: State, site: str) -> Jacobian:
    """`.linear` (3,nv) and `.angular` (3,nv) of a site: times v, its velocities.

    Raises:
        ModelError: the model has no site of this name.

    Example:
        >>> pbad.site_jacobian(hand, pbad.make_state(hand), "hand").linear.round(3)
        Array([[ 0., -2.,  0., -1.],
               [ 2.,  0.,  1.,  0.],
               [ 0.,  0.,  0.,  0.]], dtype=float64)
    """
    check_state(model, state)
    p = placed(model, (model.sites.find(site, "site_jacobian"),))
    T, f = newton_euler.frames(model, state.q)
    origin = transforms.center_of_mass(model, T)
    world = jnp.concatenate([jnp.eye(3, dtype=T.dtype), -origin[:, None]], axis=1)
    return jacobian_of(model, f, int(p.links[0]), transforms_of(p, f.T, world)[0, :, 3])


@with_all_bits
def body_jacobian(model: Model, state: State, body: str, point=(0.0, 0.0, 0.0)) -> Jacobian:
    """`.linear` (3,nv) and `.angular` (3,nv) of a point of a body: times v, its velocities.

    Args:
        model: the model.
        state: q.
        body: its name.
        point: (3,) m in the body's frame; may be traced.

    Raises:
        ModelError: the model has no body of this name.

    Example:
        >>> J = pbad.body_jacobian(model, state, "link1", point=(0, 0, -1))
        >>> J.linear.shape, J.angular.shape
        ((3, 4), (3, 4))
    """
    check_state(model, state)
    link = model.topology.body_link[known(body, model.body_names, "body of body_jacobian")]
    point = jnp.asarray(point if isinstance(point, jax.Array) else vector(point, 3, "point of body_jacobian"))
    if point.shape != (3,):
        raise StateError(f"point of body_jacobian has shape {point.shape}; wanted (3,)")
    _, f = newton_euler.frames(model, state.q)
    P = matvec(f.T[link, :, :3], point.astype(model.dtype)) + f.T[link, :, 3]
    return jacobian_of(model, f, link, P)


def joint_acceleration(model: Model, acceleration) -> jax.Array:
    """(nv,) as an array, None as zeros."""
    if acceleration is None:
        return jnp.zeros(model.nv, model.dtype)
    return row_of(model, acceleration, "v", "acceleration")
