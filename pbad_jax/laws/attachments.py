"""Loops and attachments: pairs of points, or of directions, that a stiff spring holds together.

Everything here is linear in the transforms: with P = T u of a generalised point u on each side, gap = P_a − P_b,

    Q = ½ k ‖gap‖²,   f_a = −k gap − c ġap,   f_b = −f_a.

A connection is one pair of points; a weld is one more pair of directions for each axis. What is attached to the world
has its P_b given. Soft: `gap` says by how much; stiffness is mass/time_constant².
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.kinematics.reference import carried, reference_transforms
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, PointForces, each_link, place
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import small_sum
from pbad_jax.model.model import Model, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Attachment:
    """Pairs of generalised points on two links, held together; made by `connect` and `weld`.

    Example:
        >>> held = forces.connect(model, "link0", "link1", stiffness=100.0, damping=1.0)
        >>> held.links
        ((1, 3),)
    """

    u: jax.Array  # (c,2,4)
    stiffness: jax.Array  # (c,) N/m, or N m for directions
    damping: jax.Array  # (c,) N s/m
    links: tuple[tuple[int, int], ...] = dataclasses.field(metadata=STATIC)
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def gap(self, model: Model, at: Instant) -> jax.Array:
        """P_a − P_b of every pair, (c,3): m, or for directions about rad."""
        P = place(at.T, each_link(self.links, self.u), self.u)
        return P[:, 0] - P[:, 1]

    def load(self, model: Model, at: Instant) -> Load:
        """Both forces of every pair."""
        where = each_link(self.links, self.u)
        P, V = place(at.T, where, self.u), place(at.V, where, self.u)
        pair = jnp.asarray([1.0, -1.0], P.dtype)
        f = -self.stiffness[:, None] * (P[:, 0] - P[:, 1]) - self.damping[:, None] * (V[:, 0] - V[:, 1])
        shape = jnp.einsum("i,j,ab->iajb", pair, pair, jnp.eye(3, dtype=P.dtype))[None]
        slopes = [-x[:, None, None, None, None] * shape for x in (self.stiffness, self.damping)]
        return Load(
            point_forces=(PointForces(self.links, self.u, pair[None, :, None] * f[:, None], slopes[0], slopes[1]),)
        )

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k ‖gap‖², J."""
        return 0.5 * jnp.sum(self.stiffness * small_sum(self.gap(model, at) ** 2))

    def describe(self, model: Model) -> tuple[str, str]:
        """Both bodies."""
        return "Attachment", " and ".join(_body(model, link) for link in self.links[0])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Anchor:
    """The same with one side fixed in the world at `target`; made by `connect` and `weld`.

    Example:
        >>> anchor = forces.connect(model, "link1", point=(0, 0, -1), stiffness=100.0, damping=1.0)
        >>> anchor.target
        Array([[ 0.,  0., -2.]], dtype=float64)
    """

    u: jax.Array  # (c,4)
    target: jax.Array  # (c,3) m, or directions
    stiffness: jax.Array  # (c,)
    damping: jax.Array  # (c,)
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    at: str = dataclasses.field(default="stages", metadata=STATIC)
    conservative: bool = dataclasses.field(default=False, metadata=STATIC)
    dissipates = True

    def gap(self, model: Model, at: Instant) -> jax.Array:
        """P − target, (c,3)."""
        return place(at.T, self.links, self.u) - self.target

    def load(self, model: Model, at: Instant) -> Load:
        """−k gap − c V."""
        V = place(at.V, self.links, self.u)
        f = -self.stiffness[:, None] * self.gap(model, at) - self.damping[:, None] * V
        eye = jnp.eye(3, dtype=f.dtype)[None, None, :, None, :]
        slopes = [-x[:, None, None, None, None] * eye for x in (self.stiffness, self.damping)]
        return Load(point_forces=(PointForces(self.links, self.u[:, None], f[:, None], slopes[0], slopes[1]),))

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """½ Σ k ‖gap‖², J."""
        return 0.5 * jnp.sum(self.stiffness * small_sum(self.gap(model, at) ** 2))

    def describe(self, model: Model) -> tuple[str, str]:
        """Its body."""
        return "Anchor", f"{_body(model, self.links[0])} and the world"


def connect(
    model: Model, body: str, other: str | None = None, *, point=(0.0, 0.0, 0.0), other_point=None, **how
) -> Attachment | Anchor:
    """A ball-and-socket between two bodies, or a body and the world.

    Args:
        model: the model.
        body, other: names; None = the world.
        point: (3,) m in the frame of `body`.
        other_point: (3,) m in the frame of `other`; default where `point` is at the reference configuration q0.
        **how: stiffness N/m or time_constant s (default 0.005; stiffness = mass/time_constant², of the lighter of both
            bodies with all they carry), damping N s/m (default critical), at: "stages" (default), where radau makes no
            energy at any stiffness; "step", one implicit impulse a step, which does in large steps, but which
            variational() needs beyond a dt of about time_constant/2.

    Raises:
        ModelError: unknown bodies, a body with itself, bad numbers.

    Example:
        >>> looped = pbad.with_forces(model, forces.connect(model, "link1", point=(0, 0, -1)))
        >>> pbad.loop_gaps(looped, pbad.make_state(looped))[0].round(3)
        Array([[0., 0., 0.]], dtype=float64)
    """
    check_model(model)
    return _attach(model, body, other, point, other_point, (), how)


def weld(
    model: Model, body: str, other: str | None = None, *, point=(0.0, 0.0, 0.0), other_point=None, lever=0.1, **how
) -> Attachment | Anchor:
    """Two bodies, or a body and the world, as one, in the relative pose that they have at q0; see `connect`.

    lever: m; the rotational stiffness is that of the point times lever².

    Example:
        >>> firm = pbad.with_forces(model, forces.weld(model, "link0", "link1"))
        >>> len(pbad.loop_gaps(firm, pbad.make_state(firm)))
        1
    """
    check_model(model)
    return _attach(model, body, other, point, other_point, (checks.above_zero(lever, "lever of the weld"),), how)


def _attach(model: Model, body, other, point, other_point, levers: tuple, how: dict) -> Attachment | Anchor:
    kind = "weld" if levers else "connect"
    # which two
    for option in how:
        checks.known(option, ("stiffness", "time_constant", "damping", "at"), f"option of {kind}")
    a, b = _link(model, body, kind), None if other is None else _link(model, other, kind)
    if a == b:
        raise ModelError(f"{kind}: body {body!r} with itself; give two bodies, or one and the world (None)")
    # where they meet at q0: the point, and for a weld levers along three axes, in both frames
    T = reference_transforms(model)
    p = checks.vector(point, 3, f"point of {kind}", ModelError)
    world = T[a][:, :3] @ p + T[a][:, 3]
    R_b, t_b = (np.eye(3), np.zeros(3)) if b is None else (T[b][:, :3], T[b][:, 3])
    there = R_b.T @ (world - t_b) if other_point is None else checks.vector(other_point, 3, f"other_point of {kind}")
    turn = R_b.T @ T[a][:, :3]
    u = [np.stack([np.r_[p, 1.0], np.r_[there, 1.0]])]
    u += [np.stack([np.r_[e, 0.0], np.r_[turn @ e, 0.0]]) for e in np.eye(3) for _ in levers]
    # how strong; turning has the stiffness of its lever
    k, c = _strength(model, a, b, how, kind)
    scale = np.array([1.0, *(l**2 / 2 for l in levers for _ in range(3))])

    leaf = checks.leaf(model.dtype)
    at = checks.one_of(how.get("at", "stages"), ("step", "stages"), f"at of {kind}")
    u, k, c, bare = np.stack(u), k * scale, c * scale, c == 0
    if b is None:
        return Anchor(leaf(u[:, 0]), leaf(u[:, 1, :3]), leaf(k), leaf(c), (a,) * len(u), at, bare)
    return Attachment(leaf(u), leaf(k), leaf(c), ((a, b),) * len(u), at, bare)


def _link(model: Model, body, kind: str) -> int:
    return model.topology.body_link[checks.known(body, model.body_names, f"body of {kind}")]


def _body(model: Model, link: int) -> str:
    """The name of the body whose frame is on a link."""
    t = model.topology
    return t.body_names[t.body_link.index(link)] if link in t.body_link else "?"


def _strength(model: Model, a: int, b: int | None, how: dict, kind: str) -> tuple[float, float]:
    """Stiffness N/m and damping N s/m."""
    sides = [carried(model, link) for link in (a, b) if link is not None]
    mass = min((S[3, 3] for S in sides if S is not None), default=None)
    if mass is None:
        raise ModelError(f"{kind}: neither side can move; give a body that has a joint, or hangs on one")
    tau = checks.above_zero(how.get("time_constant", 0.005), f"time_constant of {kind}")
    k = how.get("stiffness")
    k = mass / tau**2 if k is None else checks.above_zero(k, f"stiffness of {kind}")
    c = how.get("damping")
    if c is None:
        return k, 2 * np.sqrt(k * mass)
    return k, checks.at_least_zero(c, f"damping of {kind}", "or it makes energy")
