"""What a rollout is given, of one lane or many: checked here, before anything is compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from pbad_jax.checks import integer
from pbad_jax.errors import ModelError, OptionError, StateError
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, check_state, one_each

MOST_STEPS = 2**31 - 2  # of 32 bits


def checked_rollout(model: Model, state: State, controls: Any, n_steps: Any) -> tuple[jax.Array | None, int]:
    """The controls (n_steps,nu) or None, and n_steps."""
    check_state(model, state)
    rows = None
    if controls is not None:
        controls = _array(controls)
        if controls.ndim != 2 or controls.shape[1] != model.nu:
            raise StateError(f"controls have shape {controls.shape}; wanted (T, {model.nu}), {one_each(model)}")
        rows = controls.shape[0]
    n_steps = _steps(n_steps, rows, "rollout needs n_steps, or controls of shape (T, nu)")
    return None if controls is None else controls[:n_steps], n_steps


def checked_batch(model: Model, lanes: int, controls: Any, n_steps: Any) -> tuple[Partial, int]:
    """Controls as a pytree (model, lane, k, state) -> (nu,), and the number of steps."""
    # one model for all lanes, or one for each of them
    if lanes_of(model) not in (None, lanes):
        raise ModelError(f"the model is a batch for {lanes_of(model)} lanes, but there are {lanes}, the queue included")

    # nothing, a policy of the lane's own state, or an array with a row a step
    rows = None
    if controls is None:
        control_of = Partial(_nothing)
    elif callable(controls):
        plain = jax.tree_util.all_leaves([controls])  # else a pytree: its arrays are arguments
        control_of = Partial(_policy, Partial(controls) if plain else controls)
    else:
        controls = _array(controls).astype(model.dtype)
        if controls.shape[-1:] != (model.nu,) or controls.ndim not in (2, 3):
            wanted = f"(lanes, T, {model.nu}) or (T, {model.nu}), {one_each(model)}"
            raise StateError(f"controls have shape {controls.shape}; wanted {wanted}")
        if controls.ndim == 3 and controls.shape[0] != lanes:
            raise StateError(f"controls are for {controls.shape[0]} lanes, but there are {lanes}, the queue included")
        rows = controls.shape[-2]
        control_of = Partial(row if controls.ndim == 3 else shared_row, controls)
    return control_of, _steps(n_steps, rows, "rollout_batch needs n_steps, or controls of shape (lanes, T, nu)")


_RANKS = {"placement": 3, "axis": 2, "anchor": 2, "second_moment": 3, "gravity": 1, "armature": 1, "q0": 1}


def lanes_of(model: Model) -> int | None:
    """How many lanes a batch of models is for; None: it is one model, for all lanes.

    Raises:
        ModelError: some of its arrays have an axis of lanes, and one has none or another; naming it.
    """
    counts = [jnp.shape(getattr(model, k))[0] for k, rank in _RANKS.items() if jnp.ndim(getattr(model, k)) == rank + 1]
    if not counts:
        return None
    for path, x in jax.tree_util.tree_leaves_with_path(model):
        rank = _RANKS.get(jax.tree_util.keystr(path)[1:], 0)
        if jnp.ndim(x) <= rank or jnp.shape(x)[0] != counts[0]:
            raise ModelError(
                f"model{jax.tree_util.keystr(path)} has shape {jnp.shape(x)}, but the model is a batch for {counts[0]} "
                "lanes: all of its arrays need that axis, the first. Make the batch by jax.vmap, or stack whole "
                "models with jax.tree.map(lambda *x: jnp.stack(x), *models)"
            )
    return counts[0]


def one_lane(model: Model) -> Model:
    """The first of a batch of models, or the model itself. Raises: see `lanes_of`."""
    return model if lanes_of(model) is None else jax.tree.map(lambda x: x[0], model)


def _array(controls: Any) -> jax.Array:
    try:
        controls = jnp.asarray(controls)
        if not (jnp.issubdtype(controls.dtype, jnp.floating) or jnp.issubdtype(controls.dtype, jnp.integer)):
            raise TypeError
        return controls
    except (TypeError, ValueError):
        raise StateError(
            f"controls are {type(controls).__name__} {controls!r:.60}; wanted an array of numbers"
        ) from None


def _steps(n_steps: Any, rows: int | None, needed: str) -> int:
    """The number of steps, of which the controls cover `rows`."""
    if n_steps is None and rows is None:
        raise OptionError(needed)
    n_steps = integer(rows if n_steps is None else n_steps, "n_steps", 0)
    if n_steps > MOST_STEPS:
        raise OptionError(
            f"n_steps is {n_steps}; a rollout keeps every step and counts to {MOST_STEPS}: make it in pieces, as "
            "long_rollout does"
        )
    if rows is not None and rows < n_steps:
        raise StateError(f"controls cover {rows} steps but n_steps is {n_steps}: give one row a step")
    return n_steps


def _nothing(model: Model, lane, k, state: State) -> jax.Array:
    del lane, k, state
    return jnp.zeros(model.nu, model.dtype)


def row(controls: jax.Array, model: Model, lane, k, state: State) -> jax.Array:
    """Row k of a lane's own controls (lanes,T,nu)."""
    del model, state
    return controls[lane, k]


def shared_row(controls: jax.Array, model: Model, lane, k, state: State) -> jax.Array:
    """Row k of the controls (T,nu) of all lanes."""
    del model, lane, state
    return controls[k]


def _policy(policy: Callable, model: Model, lane, k, state: State) -> jax.Array:
    del lane, k
    control = jnp.asarray(policy(state))
    if control.shape != (model.nu,):
        raise StateError(f"the policy returns shape {control.shape}; wanted ({model.nu},), {one_each(model)}")
    return control.astype(model.dtype)
