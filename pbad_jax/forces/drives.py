"""What drives joints."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from pbad_jax.forces.law import Load, Point
from pbad_jax.model import Model


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["gear", "gain", "bias", "control_range", "force_range"],
    meta_fields=["q_index", "v_index"],
)
@dataclasses.dataclass(frozen=True)
class Actuation:
    """Affine actuators on hinges and slides, implicit in position and velocity.

    f = clip(gain · clip(u) + bias · (1, gear q, gear v), force_range);  τ = gear f. MuJoCo's motor, position,
    velocity and general (affine bias) actuators. Where f is clipped its derivatives are zero.
    """

    gear: jax.Array  # (nu,)
    gain: jax.Array  # (nu,)
    bias: jax.Array  # (nu,3)
    control_range: jax.Array  # (nu,2), ±inf = unlimited
    force_range: jax.Array  # (nu,2)
    q_index: tuple[int, ...]
    v_index: tuple[int, ...]

    def load(self, model: Model, at: Point) -> Load:
        """τ and its diagonal derivatives."""
        qi, vi = jnp.asarray(self.q_index), jnp.asarray(self.v_index)
        u = jnp.clip(at.control, self.control_range[:, 0], self.control_range[:, 1])
        length, speed = self.gear * at.q[qi], self.gear * at.v[vi]
        f = self.gain * u + self.bias[:, 0] + self.bias[:, 1] * length + self.bias[:, 2] * speed
        low, high = self.force_range[:, 0], self.force_range[:, 1]
        slope = jnp.where((f > low) & (f < high), self.gear**2, 0.0)
        zero = jnp.zeros(model.nv, f.dtype)
        return Load(
            tau=zero.at[vi].add(self.gear * jnp.clip(f, low, high)),
            dtau_dq=zero.at[vi].add(slope * self.bias[:, 1]),
            dtau_dv=zero.at[vi].add(slope * self.bias[:, 2]),
        )
