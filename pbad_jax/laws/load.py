"""What a force adds to the stage equation, and its sums.

A Load has three kinds of entries, each with the derivatives that keep the Newton matrix exact:

* `point_forces`, forces at points of the links: f (N) and ∂f/∂P, ∂f/∂V by the points' positions and velocities. Because
  the transforms are affine, so is every point: P = T u with u = (p, 1) fixed in the link; u = (p, 0) is a direction.
* `tau` (nv,), forces in the joints, and their derivatives, each a diagonal (nv,) or a full (nv,nv) matrix; by q along
  q ⊕ δ (body-frame rotation vectors for ball and free joints).
* `field` (N,3,4), ∂Q/∂T^l where it does not depend on the state (gravity): the entrywise product with a virtual
  displacement δT is minus its work.

`point_forces` writes f and both derivatives from a law of a few points, by autodiff of that law alone.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.laws.instant import Instant
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.rotations import hat
from pbad_jax.math.small import identity_like, small_sum

AT_A_TIME = 8  # places of a force that are looked at together, see `Parts`


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PointForces:
    """Forces at c clusters of n points each; within a cluster every force may depend on every point.

    Attributes:
        links: the link of every cluster (c numbers), or of every point (c tuples of n numbers). Clusters on one link
            cost little and fit the O(N) solve; the others couple links.
        u: (c,n,4) points in their links' frames: (p, 1) m, or (p, 0) for a direction.
        force: (c,n,3) N.
        df_dP, df_dV: (c,n,3,n,3) N/m and N s/m, or None for zero.
        modelled: (c,n,3) N, what the next linear model has for `force`, or None for the same; see `Guide`.
        curving: (c,n,3) N, the force whose product with the curvature of P(q) the matrix has, or None for `force`.
        where: (c,n) instead of `links`, where only a step knows the links of its points; they couple links.
        by_normal, normal: (c,n,3) ∂F/∂N, and the normal forces N that these follow, as friction does; None: none.

    Example:
        >>> tip = jnp.array([[[0.0, 0.0, -1.0, 1.0]]])
        >>> (pull,) = forces.point_forces(at, (1,), tip, lambda P, V: -3.0 * V).point_forces
        >>> pull.force.shape, pull.df_dV[0, 0, :, 0, :]
        ((1, 1, 3), Array([[-3., -0., -0.],
               [-0., -3., -0.],
               [-0., -0., -3.]], dtype=float64))
    """

    links: tuple = dataclasses.field(metadata=STATIC)
    u: jax.Array
    force: jax.Array
    df_dP: jax.Array | None = None
    df_dV: jax.Array | None = None
    modelled: jax.Array | None = None
    curving: jax.Array | None = None
    where: jax.Array | None = None
    by_normal: jax.Array | None = None
    normal: "NormalForce | None" = None

    @property
    def couples(self) -> bool:
        """Whether its clusters join several links."""
        return self.where is not None or (bool(self.links) and not isinstance(self.links[0], int))

    @property
    def point_links(self) -> np.ndarray | jax.Array:
        """The link of every point, (c,n)."""
        return each_link(self.links, self.u) if self.where is None else self.where


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NormalForce:
    """How the normal forces N of c clusters follow their own k points, for what follows N: ∂F/∂P = ∂F/∂N ∂N/∂P."""

    links: tuple = dataclasses.field(metadata=STATIC)  # as of PointForces
    u: jax.Array  # (c,k,4)
    by_P: jax.Array  # (c,k,3) N/m
    by_V: jax.Array  # (c,k,3) N s/m
    where: jax.Array | None = None

    @property
    def point_links(self) -> np.ndarray | jax.Array:
        """The link of every point, (c,k)."""
        return each_link(self.links, self.u) if self.where is None else self.where


class Load(NamedTuple):
    """What a force adds; None where it has nothing to say.

    Example:
        >>> forces.Load(tau=jnp.array([0.0, -2.0]), dtau_dq=jnp.zeros(2)).tau
        Array([ 0., -2.], dtype=float64)
    """

    field: jax.Array | None = None  # (N,3,4) ∂Q/∂T
    tau: jax.Array | None = None  # (nv,) N or N m
    dtau_dq: jax.Array | None = None  # (nv,) or (nv,nv)
    dtau_dv: jax.Array | None = None  # (nv,) or (nv,nv)
    point_forces: tuple[PointForces, ...] = ()
    modelled_tau: jax.Array | None = None  # (nv,) what the next linear model has beside `tau`; None: nothing
    dual: Any = None  # what `at.guide.dual` will be at the next iterate; of total_load, those of all forces


class Parts(NamedTuple):
    """A force of many places of which few act, as p forces of some of its places each; see `Force`."""

    load: Callable[[Any, Instant], Load]  # of one of `places`; its points couple links, and that is all it has
    places: Any  # arrays (p,...), what `load` needs of each
    act: jax.Array  # (p,) bool, whether it may do anything
    duals: Any  # arrays (p,...) of the guide's; `at` has those of one
    idle: Any  # arrays (p,...), what a Load that was not made leaves for them


def in_parts(x: jax.Array) -> jax.Array:
    """(c,...) as (p,c/p,...): AT_A_TIME of them, or all where they do not come out even."""
    some = AT_A_TIME if len(x) % AT_A_TIME == 0 else len(x)
    return x.reshape(-1, some, *x.shape[1:])


def place(T: jax.Array, links, u: jax.Array) -> jax.Array:
    """T u of points u (...,4) on links (...): positions (...,3), or with V for T their velocities."""
    links = links if isinstance(links, jax.Array) else np.asarray(links, int)
    return small_sum(T[links] * u[..., None, :])


def arms(T: jax.Array, links, u: jax.Array) -> jax.Array:
    """a = [−[P], u₄ E] (...,3,6) of points u (...,4) on links (...) at T: how P = T u moves with their twists."""
    P = place(T, links, u)
    return jnp.concatenate([-hat(P), u[..., 3, None, None] * identity_like(P)], axis=-1)


def each_link(links: tuple | jax.Array, u: jax.Array) -> np.ndarray | jax.Array:
    """The link of every point of u (c,n,4), from those of the clusters or of the points: (c,n)."""
    if isinstance(links, jax.Array):
        return links
    given = np.asarray(links, int)
    return given if given.ndim == 2 else np.broadcast_to(given[:, None], u.shape[:2])


def point_forces(at: Instant, links: tuple, u: jax.Array, law: Callable, *parameters) -> Load:
    """The Load of a law for clusters of points; its derivatives are autodiff of the law alone.

    Args:
        at: the instant.
        links: c links, or c tuples of n links.
        u: (c,n,4) points in their links' frames.
        law: `(P (n,3) m, V (n,3) m/s, *parameters) -> forces (n,3) N`, of one cluster.
        *parameters: arrays with a leading axis of clusters, or scalars.

    Example:
        >>> tip = jnp.array([[[0.0, 0.0, -1.0, 1.0]]])
        >>> load = forces.point_forces(at, (1,), tip, lambda P, V, k: -k * P, 100.0)
        >>> load.point_forces[0].force.round(2)
        Array([[[ -0.  , -84.15,  54.03]]], dtype=float64)
    """
    where = each_link(links, u)
    P, V = place(at.T, where, u), place(at.V, where, u)
    axes = (0, 0, *(0 if jnp.ndim(p) else None for p in parameters))

    def with_slopes(P, V, *parameters):
        return law(P, V, *parameters), jax.jacfwd(law, (0, 1))(P, V, *parameters)

    force, (df_dP, df_dV) = jax.vmap(with_slopes, axes)(P, V, *parameters)
    return Load(point_forces=(PointForces(links, u, force, df_dP, df_dV),))


def sum_of(a: jax.Array | None, b: jax.Array | None) -> jax.Array | None:
    """a + b of what there is; a diagonal and a full matrix are a full one."""
    if a is None:
        return b
    if b is None:
        return a
    if (a.ndim, b.ndim) == (1, 2):  # a diagonal and a full matrix
        return jnp.diag(a) + b
    if (a.ndim, b.ndim) == (2, 1):
        return a + jnp.diag(b)
    return a + b


def scaled(load: Load, dt) -> Load:
    """A Load times dt²; what is divided by a velocity, times dt."""

    def times(x, factor):
        return None if x is None else factor * x

    def pulled(p: PointForces) -> PointForces:
        forces = {name: times(getattr(p, name), dt**2) for name in ("force", "modelled", "curving", "df_dP")}
        N = p.normal and dataclasses.replace(p.normal, by_P=times(p.normal.by_P, dt**2), by_V=times(p.normal.by_V, dt))
        return dataclasses.replace(p, **forces, df_dV=times(p.df_dV, dt), normal=N)

    return Load(
        field=times(load.field, dt**2),
        tau=times(load.tau, dt**2),
        dtau_dq=times(load.dtau_dq, dt**2),
        dtau_dv=times(load.dtau_dv, dt),
        point_forces=tuple(map(pulled, load.point_forces)),
        modelled_tau=times(load.modelled_tau, dt**2),
        dual=load.dual,
    )


def field_of(load: Load, n_links: int) -> jax.Array | None:
    """All that a Load does to the links as one field (N,3,4): −Σ f ⊗ u beside its own."""
    field = load.field
    for p in load.point_forces:
        field = sum_of(field, _field(p, p.force, n_links))
    return field


def field_beyond(load: Load, n_links: int, name: str) -> jax.Array | None:
    """What `field_of` would have more if every point force were its `modelled` or `curving` one; None: nothing."""
    field = None
    for p in load.point_forces:
        other = getattr(p, name)
        field = field if other is None else sum_of(field, _field(p, other - p.force, n_links))
    return field


def _field(p: PointForces, force: jax.Array, n_links: int) -> jax.Array:
    """−Σ f ⊗ u over the points of each link."""
    return on_links(p.point_links, -force[..., :, None] * p.u[..., None, :], n_links)


def on_links(links: np.ndarray | jax.Array, x: jax.Array, n_links: int) -> jax.Array:
    """The sum of x over each link, its leading axes those of `links`: (N,...). By a product: a scatter is slow."""
    return jnp.tensordot(_hot(links, n_links, x), x.reshape(links.size, *x.shape[links.ndim :]), axes=1)


def _hot(links: np.ndarray | jax.Array, n_links: int, like: jax.Array) -> jax.Array:
    """(N, points), 1 where a point is on a link."""
    return jnp.asarray(np.arange(n_links)[:, None] == links.reshape(1, -1), like.dtype)
