"""One step to first order: the matrices that LQR, iLQR and Kalman filters ask for."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.kinematics import manifold
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, checked, led_to
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, check_options, scheme_of
from pbad_jax.step.step import make_step


class Linearization(NamedTuple):
    """δx' = A δx + B δu of one step, in tangent coordinates x = (δq, δv) about both its ends.

    A: (2nv,2nv). B: (2nv,nu). state: the State at the end of the step, about which δx' is measured. info: its StepInfo.
    For legendre x = (δq, δv, δh), h the configuration at the history node: A (3nv,3nv), B (3nv,nu). Where
    actuators have an activation, x has (na,) more entries at its end, δa.

    Example:
        >>> step = pbad.linearize(arm, pbad.make_state(arm, [1.0, 0.0]), options=options)
        >>> step.A.shape
        (4, 4)
    """

    A: jax.Array
    B: jax.Array
    state: State
    info: StepInfo


def linearize(model: Model, state: State, control=None, options: Options | None = None, dt=None) -> Linearization:
    """A step and its Jacobians by state and control, exact at the root; Newton's matrix is factored once for all.

    Perturbed states are q ⊕ δq (`retract`) and v + δv, and those at the end are measured the same way (`difference`):
    A is square also with quaternions; δq holds rad and m in the layout of v. All else that a step depends on is held
    fixed: the model, dt, and the time, for forces that depend on it. The stages of the last step, which radau keeps as
    a first guess, have no influence on its root.

    A scheme with history (legendre) has a larger state, and A is larger by it: see Linearization. So products of A over
    many steps are exact for every scheme. Where the step makes its history from (q, v), as the first one does, the
    columns of δh are zero.

    Compiled once per shape and options. It can be called inside jit and vmap, and be differentiated.

    Args:
        model: the model.
        state: where the step begins.
        control: (nu,), held over the step, or None for zeros.
        options: see Options.
        dt: () s; default that of the options.

    Returns:
        Linearization. Where the step failed (`info.status`) A and B are zero or NaN, see Options.failed_gradient.

    Raises:
        OptionError: no options. StateError: shapes, dtypes, a state of another model.

    Example:
        >>> A, B, after, info = pbad.linearize(arm, pbad.make_state(arm, [1.0, 0.0]), options=options)
        >>> A.shape, B.shape, bool(info.ok)
        ((4, 4), (4, 0), True)
    """
    control = checked(model, state, control)
    return _linearize(model, state, control, dt, check_options(options, "linearize"))


@functools.partial(jax.jit, static_argnames="options")
def _linearize(model: Model, state: State, control, dt, options: Options) -> Linearization:
    # x = (δq, δv), then δh for schemes with history, then δa of activations
    step, nv, history = make_step(options), model.nv, scheme_of(options).has_history
    moves = (3 if history else 2) * nv
    n = moves + model.na

    def end(y):
        """The x' of y = (x, δu), and the step."""
        # the start moved by x; its history stays in force, as in a step that goes on
        before = led_to(state, manifold.retract(model, state.q, y[:nv]), state.v + y[nv : 2 * nv])
        if history:
            before = dataclasses.replace(before, history=manifold.retract(model, state.history, y[2 * nv : moves]))
        if state.activation is not None:
            before = dataclasses.replace(before, activation=state.activation + y[moves:n])

        # the end, its configurations in their own tangent spaces
        after, info = step(model, before, control + y[n:], dt)
        x = [_about_itself(model, after.q), after.v]
        x += [_about_itself(model, after.history)] if history else []
        x += [] if after.activation is None else [after.activation]
        return jnp.concatenate(x), (after, info)

    # by forward mode the columns share the factored Newton matrix
    J, (after, info) = jax.jacfwd(end, has_aux=True)(jnp.zeros(n + control.size, model.dtype))
    return Linearization(J[:, :n], J[:, n:], after, info)


def _about_itself(model: Model, q: jax.Array) -> jax.Array:
    """Zero (nv,), whose derivative is that of q (nq,) in the tangent space at q."""
    return manifold.difference(model, jax.lax.stop_gradient(q), q)
