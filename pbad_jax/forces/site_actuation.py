"""Actuators on sites: a force and a torque in a site's axes, such as rotors and jets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.forces.force import Instant, Load, place, point_forces
from pbad_jax.kinematics import transforms
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.model import Model
from pbad_jax.model.sites import Site


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SiteActuation:
    """f = clip(gain clip(u) + bias · (1, 0, s)) times a gear, n of them; s = gear · (velocity, angular velocity).

    The gear is a force and a torque in the site's axes, and so are these velocities. The torque is a couple at three
    directions e, as in external.py. Made by `Actuator(Site(...), name, gear=...)`.

    Example:
        >>> pushed = pbad.with_actuators(hand, pbad.Actuator(hand.sites["hand"], name="jet", gear=(0, 0, 1, 0, 0, 0)))
        >>> type(pushed.forces[-1]).__name__, pushed.nu
        ('SiteActuation', 1)
    """

    u: jax.Array  # (n,4,4) the site's origin (p, 1) and its axes (e, 0), in its link's frame
    gear: jax.Array  # (n,6) force and torque by f
    gain: jax.Array  # (n,)
    bias: jax.Array  # (n,3) force, force by length (there is none), force by speed
    control_range: jax.Array  # (n,2), ±inf = unlimited
    force_range: jax.Array  # (n,2)
    u_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    links: tuple[int, ...] = dataclasses.field(metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """The forces at the points; slopes by autodiff of the law of one actuator."""
        u = jnp.clip(at.control[np.array(self.u_index)], self.control_range[:, 0], self.control_range[:, 1])
        return point_forces(at, self.links, self.u, _law, self.gear, self.gain * u, self.bias, self.force_range)

    def extent(self, model: Model, q: jax.Array) -> jax.Array:
        """(n,) zeros: a site has no length."""
        return jnp.zeros_like(self.gain)

    def speed(self, model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
        """The speeds s at (q, v), (n,)."""
        f, links = transforms.frames(model, q), np.array(self.links)[:, None]
        V = transforms.velocity_field(model, f, v)
        return jax.vmap(_speed)(place(f.T, links, self.u), place(V, links, self.u), self.gear)

    def describe(self, model: Model) -> tuple[str, str]:
        """How many they are."""
        return "SiteActuation", f"by {len(self.u_index)} actuators"


def _law(P: jax.Array, V: jax.Array, gear: jax.Array, pushed: jax.Array, bias: jax.Array, bounds: jax.Array):
    """Of one actuator: (4,3) N."""
    axes = P[1:].T
    f = _push(pushed, bias, bounds, _speed(P, V, gear))
    torque = axes @ gear[3:]
    return f * jnp.concatenate([(axes @ gear[:3])[None], 0.5 * jnp.cross(torque[None], P[1:])])


def _speed(P: jax.Array, V: jax.Array, gear: jax.Array) -> jax.Array:
    """Gear · velocities of the site in its own axes; ω = ½ Σ e × ė."""
    turning = 0.5 * jnp.sum(jnp.cross(P[1:], V[1:]), axis=0)
    return gear[:3] @ (P[1:] @ V[0]) + gear[3:] @ (P[1:] @ turning)


def _push(pushed: jax.Array, bias: jax.Array, bounds: jax.Array, speed: jax.Array) -> jax.Array:
    return jnp.clip(pushed + bias[0] + bias[2] * speed, bounds[0], bounds[1])


def points_of(site: Site) -> np.ndarray:
    """(4,4) the origin of a site and its axes, in its body's frame."""
    axes = np.c_[rotation_numpy(site.quaternion).T, np.zeros(3)]
    return np.r_[np.r_[site.position, 1.0][None], axes]
