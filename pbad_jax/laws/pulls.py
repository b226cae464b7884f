"""How a force along a length is felt: its pull on joints or on points of the links, with the slopes.

n lengths ℓ with the gradients G = ∂ℓ/∂x by what they depend on, x: joints, or the points of the links that a path runs
through. A force f along a length does the work f dℓ, so it is felt as Gᵀ f, with the slopes

    by x: Gᵀ (∂f/∂ℓ G + ∂f/∂ℓ̇ ∂ℓ̇/∂x) + f ∇²ℓ,    by ẋ: Gᵀ ∂f/∂ℓ̇ G,    ℓ̇ = G ẋ,  ∂ℓ̇/∂x = ∇²ℓ ẋ.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import ModelError
from pbad_jax.laws.instant import Start
from pbad_jax.laws.load import Load, PointForces
from pbad_jax.math.small import joined, matvec, transpose


class Along(NamedTuple):
    """A force along n lengths, and its slopes; None for zero. What a law makes of lengths.

    Example:
        >>> @jax.tree_util.register_dataclass
        ... @dataclasses.dataclass(frozen=True)
        ... class Hardening:
        ...     strength: jax.Array  # (n,) N/m³
        ...     conservative = False
        ...     def along(self, x, at):
        ...         return forces.Along(-self.strength * x.value**3, by_length=-3 * self.strength * x.value**2)
        >>> own = forces.LineForce(forces.Joints(), Hardening(jnp.array([5.0, 0.0])))
        >>> pbad.with_forces(arm, own).forces[-1].name
        'JointHardening'
    """

    force: jax.Array  # (n,) N or N m
    by_length: jax.Array | None = None  # (n,)
    by_rate: jax.Array | None = None  # (n,)
    modelled: jax.Array | None = None  # (n,) what the next linear model has for `force`, None: the same; see `Guide`
    curving: jax.Array | None = None  # (n,) the force whose product with the curvatures the matrix has, None: `force`
    dual: Any = None


class Led(NamedTuple):
    """What leads a solve to one-sided laws of n lengths, see one_sided.led; only where there is a guide."""

    expected: jax.Array | None  # (n,) what the last linear model expected; None: what is there, ℓ is linear
    mass: jax.Array  # (n,) kg or kg m², that each length has to move by itself


class Lengths(NamedTuple):
    """n lengths at one instant; what a law is given. `led` has what leads a solve, where `at.guide` is there.

    Example:
        >>> forces.Lengths._fields
        ('value', 'rate', 'pull', 'led', 'was')
    """

    value: jax.Array  # (n,) ℓ, m or rad
    rate: jax.Array  # (n,) ℓ̇
    pull: Any  # how a force along each is felt: its `load(Along)` is a Load
    led: Callable[[], Led]
    was: Callable[[Start], tuple[jax.Array, jax.Array]]  # (n,) ℓ and ℓ̇ at the start of a step


def no_length(*_: Any) -> Any:
    """Of lengths that have only a rate."""
    raise ModelError("a law with ends needs a length: joints, tendons or paths; a ball has forces.BallLimit")


class DofPull(NamedTuple):
    """By degrees of freedom themselves: those of `v_index`, or all."""

    v_index: tuple[int, ...] | None
    nv: int

    def load(self, f: Along) -> Load:
        """τ and diagonal slopes."""
        beyond = None if f.modelled is None else self._spread(f.modelled - f.force)
        tau, by_q, by_v = (self._spread(x) for x in (f.force, f.by_length, f.by_rate))
        return Load(tau=tau, dtau_dq=by_q, dtau_dv=by_v, modelled_tau=beyond, dual=f.dual)

    def _spread(self, x: jax.Array | None) -> jax.Array | None:
        if x is None or self.v_index is None:
            return x
        own, zero = np.array(self.v_index, int), jnp.zeros(self.nv, x.dtype)
        others = np.setdiff1d(np.arange(self.nv), own)
        if len(own) + len(others) > self.nv:  # several on one
            return zero.at[own].add(x)
        return joined((x, zero[: len(others)]), (own, others))


class JointPull(NamedTuple):
    """By rows G of the joints; curvature None: G is constant."""

    gradient: jax.Array  # (n,nv) G
    v: jax.Array  # (nv,)
    curvature: jax.Array | None = None  # (n,nv,nv) ∇²ℓ

    def load(self, f: Along) -> Load:
        """τ and full slopes."""
        G = self.gradient
        by_q, by_v = (None if x is None else G.T @ (x[:, None] * G) for x in (f.by_length, f.by_rate))
        if self.curvature is not None:
            bent = jnp.tensordot(f.force, self.curvature, 1)
            by_q = bent if by_q is None else by_q + bent
            if f.by_rate is not None:
                by_q = by_q + G.T @ (f.by_rate[:, None] * (self.curvature @ self.v))
        beyond = None if f.modelled is None else G.T @ (f.modelled - f.force)
        return Load(tau=G.T @ f.force, dtau_dq=by_q, dtau_dv=by_v, modelled_tau=beyond, dual=f.dual)

    def minus(self, other: "JointPull", slope: jax.Array, curve: jax.Array) -> "JointPull":
        """That of ℓ − p(ℓ'), of p' and p'' (n,)."""
        G, d = other.gradient, self.gradient - slope[:, None] * other.gradient
        return JointPull(d, self.v, -curve[:, None, None] * G[:, :, None] * G[:, None, :])


class PointPull(NamedTuple):
    """By k points of each of n clusters, see `PointForces`."""

    links: tuple
    u: jax.Array  # (n,k,4)
    gradient: jax.Array  # (n,k,3)
    curvature: jax.Array  # (n,3k,3k) ∂gradient/∂P
    V: jax.Array  # (n,k,3) m/s

    def load(self, f: Along) -> Load:
        """Forces at the points."""
        shape, n = self.gradient.shape, self.gradient.reshape(len(self.u), -1)
        turning = matvec(transpose(self.curvature), self.V.reshape(n.shape))
        force, by_P, by_V, modelled, curving = pulled(f, n, self.curvature, turning)
        force, modelled, curving = (None if x is None else x.reshape(shape) for x in (force, modelled, curving))
        by_P, by_V = (None if x is None else x.reshape(*shape, *shape[1:]) for x in (by_P, by_V))
        assert force is not None
        points = PointForces(self.links, self.u, force, by_P, by_V, modelled, curving)
        return Load(point_forces=(points,), dual=f.dual)

    def minus(self, other: "PointPull", slope: jax.Array, curve: jax.Array) -> "PointPull":
        """That of ℓ − p(ℓ'), of p' and p'' (n,), by the points of both."""
        n = other.gradient.reshape(len(other.u), -1)
        bent = slope[:, None, None] * other.curvature + curve[:, None, None] * n[:, :, None] * n[:, None, :]
        sizes, both = (self.curvature.shape[-1], bent.shape[-1]), [self.curvature, -bent]
        padded = [
            jnp.pad(x, ((0, 0), room, room)) for x, room in zip(both, ((0, sizes[1]), (sizes[0], 0)))
        ]  # of either, zero by the points of the other
        parts = (self.u, other.u), (self.gradient, -slope[:, None, None] * other.gradient), (self.V, other.V)
        u, gradient, V = (jnp.concatenate(x, axis=1) for x in parts)
        links = tuple(a + b for a, b in zip(self.links, other.links))
        return PointPull(links, u, gradient, padded[0] + padded[1], V)


def pulled(f: Along, n: jax.Array, curvature: jax.Array, turning: jax.Array) -> tuple[jax.Array | None, ...]:
    """Forces (c,k) along lengths with gradients n (c,k) by k coordinates, and their slopes; see the module.

    Args:
        f: along the lengths.
        n: (c,k). curvature: (c,k,k) ∇²ℓ. turning: (c,k) ∂ℓ̇/∂P.

    Returns:
        Force (c,k), its slopes by P and V (c,k,k), and what is modelled and curving (c,k), as PointForces has them.
    """
    through = f.force if f.curving is None else f.curving
    by_P, by_V = through[:, None, None] * curvature, None
    if f.by_length is not None:
        by_P = by_P + f.by_length[:, None, None] * (n[:, :, None] * n[:, None, :])
    if f.by_rate is not None:
        by_P = by_P + f.by_rate[:, None, None] * (n[:, :, None] * turning[:, None, :])
        by_V = f.by_rate[:, None, None] * (n[:, :, None] * n[:, None, :])
    modelled, curving = (None if x is None else x[:, None] * n for x in (f.modelled, f.curving))
    return f.force[:, None] * n, by_P, by_V, modelled, curving
