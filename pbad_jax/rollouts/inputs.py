"""What a rollout is given, checked before anything is compiled."""

import numbers
from typing import Any

import jax
import jax.numpy as jnp

from pbad_jax.errors import OptionError, StateError
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, checked


def checked_rollout(model: Model, state: State, controls: Any, n_steps: Any) -> tuple[jax.Array | None, int]:
    """The controls (n_steps,nu) or None, and n_steps; clear errors before anything is compiled."""
    if controls is None and n_steps is None:
        raise OptionError("rollout needs n_steps, or controls of shape (T, nu)")
    if controls is not None:
        controls = jnp.asarray(controls)
        if controls.ndim != 2 or controls.shape[1] != model.nu:
            raise StateError(f"controls have shape {controls.shape}; wanted (T, {model.nu}) for this model")
        n_steps = controls.shape[0] if n_steps is None else n_steps
    if isinstance(n_steps, bool) or not isinstance(n_steps, numbers.Integral) or int(n_steps) < 0:
        raise OptionError(f"n_steps is {n_steps!r}; it must be an integer ≥ 0")
    if controls is not None and controls.shape[0] < n_steps:
        raise StateError(f"controls cover {controls.shape[0]} steps but n_steps is {n_steps}: give one row a step")
    if controls is not None:
        controls = controls[:n_steps]
    checked(model, state, None)
    return controls, int(n_steps)
