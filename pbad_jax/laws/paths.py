"""Lengths of points of the links: spatial tendons, straight between sites and over pulleys, and gears of sites."""

import dataclasses
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.geometry.surfaces import safe_norm
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.instant import Guide, Instant, Start
from pbad_jax.laws.load import Load, each_link, place
from pbad_jax.laws.pulls import Along, Led, Lengths, PointPull, no_length
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.math.small import identity_like, matvec
from pbad_jax.model.model import Model
from pbad_jax.model.sites import Site

Path = Sequence[Any]  # names of sites or Sites; a number begins a branch beyond a pulley of that divisor


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Paths:
    """Spatial tendons, ℓ = Σ w_i |P_{i+1} − P_i|, w one over the divisor of the branch; made by `paths`.

    There is no wrapping about shapes. Shorter ones stay at their last point.

    Example:
        >>> band = forces.tendon_spring(hand, ("hand", "wall"), stiffness=50.0, rest=2.0)
        >>> band.length.value(hand, hand.q0).round(3)
        Array([2.236], dtype=float64)
    """

    u: jax.Array  # (n,k,4) points (p, 1) in their links' frames, m; those in the world as they are
    weight: jax.Array  # (n,k-1) of every piece, 0 between branches
    links: tuple[tuple[int, ...], ...] = dataclasses.field(metadata=STATIC)  # of every point; of those in the world any
    in_world: tuple[tuple[bool, ...], ...] = dataclasses.field(metadata=STATIC)
    word: ClassVar[str] = "SpatialTendon"
    noun: ClassVar[str] = "tendons"
    exact: ClassVar[bool] = True
    couples_joints: ClassVar[bool] = True

    def at(self, model: Model, at: Instant) -> Lengths:
        """With gradients and curvatures by hand: d along a piece of length s, and (1 − d dᵀ)/s."""
        length, d, over = self._pieces(at.T)
        n, V = self._gradient(d), self._velocity(at.V)
        across = (identity_like(d) - d[..., :, None] * d[..., None, :]) * (self.weight * over)[..., None, None]
        ends = jnp.asarray(self._ends, d.dtype)
        k = 3 * self.u.shape[1]
        curvature = jnp.einsum("cij,cil,ciab->cjalb", ends, ends, across).reshape(-1, k, k)

        def led() -> Led:
            assert at.guide is not None
            return Led(self._length(at.guide.T), self._mass(at.guide, at.start.T))

        def was(start: Start) -> tuple[jax.Array, jax.Array]:
            first, d, _ = self._pieces(start.T)
            return first, jnp.sum(self._gradient(d) * self._velocity(start.V), axis=(1, 2))

        rate = jnp.sum(n * V, axis=(1, 2))
        return Lengths(length, rate, PointPull(self.links, self.u, n, curvature, V), led, was)

    def value(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) m."""
        return self._length(transforms.transforms(model, q))

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), what moves some of the points; of those in the world nothing does."""
        above, still = tree(model.topology).dof_above_link, np.array(self.in_world)
        return np.stack([above[:, np.array(l)[~s]].any(axis=1) for l, s in zip(self.links, still)])

    @property
    def _ends(self) -> np.ndarray:
        """(n,k-1,k): −1 where a piece begins, 1 where it ends, 0 at points in the world."""
        k = self.u.shape[1]
        return (np.eye(k)[1:] - np.eye(k)[:-1])[None] * ~np.array(self.in_world)[:, None, :]

    def _pieces(self, T: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """ℓ (n,), the directions of the pieces (n,k-1,3), and 1 over their lengths; 0 where one has none."""
        P = jnp.where(
            np.array(self.in_world)[..., None], self.u[..., :3], place(T, each_link(self.links, self.u), self.u)
        )
        piece = P[:, 1:] - P[:, :-1]
        size = safe_norm(piece)
        over = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
        return jnp.sum(self.weight * size, axis=-1), piece * over[..., None], over

    def _length(self, T: jax.Array) -> jax.Array:
        return self._pieces(T)[0]

    def _gradient(self, d: jax.Array) -> jax.Array:
        """∂ℓ/∂P (n,k,3)."""
        return jnp.einsum("cij,cia->cja", jnp.asarray(self._ends, d.dtype), self.weight[..., None] * d)

    def _velocity(self, V: jax.Array) -> jax.Array:
        """(n,k,3) m/s."""
        return place(V, each_link(self.links, self.u), self.u)

    def _mass(self, guide: Guide, T: jax.Array) -> jax.Array:
        """Of the links, each alone: 1/Σ wᵀ M w, w the wrench on a link of a force of 1 N, M its mobility; (n,) kg."""
        links = each_link(self.links, self.u)
        n, P = self._gradient(self._pieces(T)[1]), place(T, links, self.u)
        each = jnp.concatenate([jnp.cross(P - guide.origin[links], n), n], axis=-1)
        same = jnp.asarray(links[:, :, None] == links[:, None, :], each.dtype)
        moved = matvec(guide.mobility[links], jnp.einsum("cij,cja->cia", same, each))
        return 1.0 / jnp.maximum(jnp.sum(each * moved, axis=(1, 2)), jnp.finfo(n.dtype).tiny ** 0.5)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sites:
    """On sites, along a gear: a force and a torque in a site's axes. They have a rate, gear · (V, ω), and no length.

    The torque is a couple at three directions e, as in wrench.py, and ω = ½ Σ e × ė. Made by `Actuator(Site(...))`.

    Example:
        >>> pushed = pbad.with_actuators(hand, pbad.Actuator(hand.sites["hand"], name="jet", gear=(0, 0, 1, 0, 0, 0)))
        >>> pushed.forces[-1].name, pushed.forces[-1].length.gear
        ('SiteActuation', Array([[0., 0., 1., 0., 0., 0.]], dtype=float64))
    """

    u: jax.Array  # (n,4,4) the site's origin (p, 1) and its axes (e, 0), in its link's frame
    gear: jax.Array  # (n,6) force and torque by f
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    word: ClassVar[str] = "Site"
    noun: ClassVar[str] = "sites"
    exact: ClassVar[bool] = False
    couples_joints: ClassVar[bool] = True

    def at(self, model: Model, at: Instant) -> Lengths:
        """Its gradient is of ℓ̇, not of the length, which is zero."""
        P, V = (place(x, each_link(self.links, self.u), self.u) for x in (at.T, at.V))
        n, curvature = jax.vmap(_of_site)(P, self.gear), jax.vmap(jax.jacfwd(_of_site))(P, self.gear)
        pull = _SitePull(PointPull(self.links, self.u, n, curvature.reshape(-1, 12, 12), V))
        return Lengths(jnp.zeros_like(self.gear[:, 0]), jnp.sum(n * V, axis=(1, 2)), pull, no_length, no_length)

    def dofs(self, model: Model) -> np.ndarray:
        """(n,nv), what moves the site."""
        return tree(model.topology).dof_above_link[:, list(self.links)].T > 0


class _SitePull(NamedTuple):
    points: PointPull

    def load(self, f: Along) -> Load:
        return self.points.load(f._replace(by_length=None))


def _of_site(P: jax.Array, gear: jax.Array) -> jax.Array:
    """(4,3) the forces on the origin and the axes of a site P (4,3)."""
    axes = P[1:].T
    return jnp.concatenate([(axes @ gear[:3])[None], 0.5 * jnp.cross((axes @ gear[3:])[None], P[1:])])


# --- made from sites ----------------------------------------------------------------------------------------------


def paths(model: Model, tendons: Path | Sequence[Path], what: str) -> Paths:
    """Where tendons of a model run."""
    t = model.topology
    one = isinstance(tendons, tuple) and not isinstance(tendons[0] if tendons else None, tuple)
    given = [tendons] if one else tendons
    if not isinstance(given, list | tuple) or not given:
        raise ModelError(f"tendons of {what} are {tendons!r:.60}; wanted a tuple of sites, or a list of such tuples")
    links = dict(zip(t.body_names, t.body_link))
    return paths_of([checked_path(p, model.sites, links, what) for p in given], links, checks.leaf(model.dtype))


def checked_path(path: Any, sites: Mapping[str, Site], links: Mapping[str, int], what: str) -> tuple:
    """A path as Sites and divisors.

    Raises:
        ModelError: see `tendon_spring`.
    """
    if not isinstance(path, tuple) or not path:
        raise ModelError(f"tendon of {what} is {path!r:.60}; wanted a tuple of sites, ('hand', 'wall')")

    # run counts the sites of a branch, which needs two of them
    out, run = [], 0
    for item in path:
        # a number begins a branch beyond a pulley
        if isinstance(item, numbers.Real) and not isinstance(item, bool):
            out.append(checks.above_zero(item, f"divisor of a pulley in a tendon of {what}"))
            if run == 1:
                raise ModelError(f"tendon of {what}: a branch has only one site; give it two or more")
            run = 0
            continue

        # a site by name or as it is, on a body of the model or in the world
        site = item
        if isinstance(item, str):
            checks.known(item, sites, f"site in a tendon of {what}")
            site = sites[item]
        if not isinstance(site, Site):
            raise ModelError(f"tendon of {what}: {item!r:.60} is no site; give a name, a Site, or a pulley's divisor")
        if site.body is not None:
            checks.known(site.body, links, f"body of a site in a tendon of {what}")
        checks.vector(site.position, 3, f"position of a site in a tendon of {what}")
        out.append(site)
        run += 1

    # so does the last branch
    if run < 2:
        raise ModelError(f"tendon of {what}: {'it' if run == len(out) else 'a branch'} has fewer than two sites")
    return tuple(out)


def paths_of(checked: Sequence[tuple], links: Mapping[str, int], leaf: Callable) -> Paths:
    """Of checked paths."""
    rows = [_row(path, links) for path in checked]
    n = max(len(points) for points, *_ in rows)
    u, weight, on, still = [], [], [], []
    for points, w, l, s in rows:
        more = n - len(points)
        u.append(points + [points[-1]] * more)
        weight.append(w + [0.0] * more)
        on.append(tuple(l + [l[-1]] * more))
        still.append(tuple(s + [s[-1]] * more))
    return Paths(leaf(u), leaf(weight), tuple(on), tuple(still))


def _row(path: tuple, links: Mapping[str, int]) -> tuple[list, list[float], list[int], list[bool]]:
    """Points, weights of the pieces between them, links, and whether they are in the world."""
    points, weights, on, still, divisor, joined = [], [], [], [], 1.0, False
    for item in path:
        if not isinstance(item, Site):
            divisor, joined = item, False
            continue
        if points:
            weights.append(1.0 / divisor if joined else 0.0)
        points.append([*item.position, 1.0])
        on.append(0 if item.body is None else links[item.body])
        still.append(item.body is None)
        joined = True
    return points, weights, on, still


def points_of(site: Site) -> np.ndarray:
    """(4,4) the origin of a site and its axes, in its body's frame."""
    axes = np.c_[rotation_numpy(site.quaternion).T, np.zeros(3)]
    return np.r_[np.r_[site.position, 1.0][None], axes]
