"""Activations: the states of actuators whose control is filtered or summed up before it acts.

With a control u that is held over a step, the activation a goes its own way, whatever the bodies do:

    filter:      a(t) = u + (a − u) exp(−t/τ)
    integrator:  a(t) = a + u t, held within its range

so a step knows it beforehand. The actuator's force takes the mean of a over the step for its control; after the step
a is that of its end, exactly. An actuator without one acts by its control as it is.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.math.pytree import STATIC


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Activation:
    """The laws of n activations, of the controls u[u_index]."""

    time_constant: jax.Array  # (n,) s, τ of filters; integrators do not look at theirs
    control_range: jax.Array  # (n,2) what u is held within, ±inf = unlimited
    range: jax.Array  # (n,2) the same of a
    u_index: tuple[int, ...] = dataclasses.field(metadata=STATIC)
    integrates: tuple[bool, ...] = dataclasses.field(metadata=STATIC)  # which are integrators

    @property
    def size(self) -> int:
        """n."""
        return len(self.u_index)

    def after(self, a: jax.Array, control: jax.Array, dt) -> jax.Array:
        """a (n,) once the control (nu,) has acted for dt () s."""
        u = self._input(control)
        filtered = a - (u - a) * jnp.expm1(-dt / self.time_constant)
        return self._within(jnp.where(np.array(self.integrates), a + u * dt, filtered))

    def mean(self, a: jax.Array, control: jax.Array, dt) -> jax.Array:
        """The mean of a (n,) over these dt () s; that of an integrator as if it met its range only afterwards."""
        u = self._input(control)
        decay = -jnp.expm1(-dt / self.time_constant) * self.time_constant / dt
        filtered = u + (a - u) * decay
        return self._within(jnp.where(np.array(self.integrates), a + 0.5 * u * dt, filtered))

    def put(self, a: jax.Array, control: jax.Array) -> jax.Array:
        """The control (nu,) with a (n,) in the places of those that are filtered: what actuators act by."""
        return control.at[np.array(self.u_index)].set(a)

    def _input(self, control: jax.Array) -> jax.Array:
        return jnp.clip(control[np.array(self.u_index)], self.control_range[:, 0], self.control_range[:, 1])

    def _within(self, a: jax.Array) -> jax.Array:
        return jnp.clip(a, self.range[:, 0], self.range[:, 1])


def joined(first: Activation | None, more: Activation | None) -> Activation | None:
    """Both, one after the other."""
    if first is None or more is None:
        return more if first is None else first
    both = {
        k: jnp.concatenate([getattr(first, k), getattr(more, k)]) for k in ("time_constant", "control_range", "range")
    }
    return Activation(**both, u_index=first.u_index + more.u_index, integrates=first.integrates + more.integrates)
