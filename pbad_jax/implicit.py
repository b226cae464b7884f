"""The derivative of a root, by the implicit function theorem. Knows no physics.

At r(x; θ) = 0 a change dθ moves the root along the retraction by

    δ = −J⁻¹ (∂r/∂θ) dθ,   J = ∂r(x ⊕ δ; θ)/∂δ at δ = 0.

How the root was found plays no part: no loop is unrolled, and what has to be kept does not depend on iterations. The
rule is linear in dθ, so JAX transposes it for reverse mode; and since the root inside the rule carries the rule again,
it can be differentiated as often as J and r can.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

KEPT = "root"  # the name of what reverse mode keeps of a solve, for jax.checkpoint policies


class Rule(NamedTuple):
    """A family of square systems; its functions may close over nothing that is traced.

    residual: (θ, x) -> r (n,). solve: (θ, x, b (n,)) -> J⁻¹ b, J differentiable. retract: (θ, x, δ (n,)) -> x.
    """

    residual: Callable
    solve: Callable
    retract: Callable


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def attach(rule: Rule, theta: Any, x: Any) -> Any:
    """The root x, found in whatever way, as a function of θ."""
    del rule, theta
    return x


@attach.defjvp
def _attach_jvp(rule: Rule, primals, tangents):
    theta, x = primals
    x = attach(rule, theta, x)
    _, change = jax.jvp(lambda t: rule.residual(t, x), (theta,), (tangents[0],))
    delta = -rule.solve(theta, x, change)
    return x, jax.jvp(lambda d: rule.retract(theta, x, d), (jnp.zeros_like(delta),), (delta,))[1]


def constant(x: Any, good: jax.Array, derivative: str) -> Any:
    """X where something failed: its derivative is "zero", or where not `good` "nan"."""
    if derivative == "zero":
        return jax.lax.stop_gradient(x)
    return jax.tree.map(functools.partial(_poisoned, good), x)


@jax.custom_jvp
def _poisoned(good: jax.Array, x: jax.Array) -> jax.Array:
    del good
    return x


@_poisoned.defjvp
def _poisoned_jvp(primals, tangents):
    good, x = primals
    return x, jnp.where(good, 1.0, jnp.nan).astype(x.dtype) * tangents[1]


def keep(x: Any) -> Any:
    """X without derivatives, marked as what reverse mode keeps."""
    return jax.tree.map(lambda leaf: checkpoint_name(jax.lax.stop_gradient(leaf), KEPT), x)


def checkpointed(step: Callable) -> Callable:
    """The same function; reverse mode keeps its arguments and what is marked by `keep`, and computes the rest again."""
    return jax.checkpoint(step, policy=jax.checkpoint_policies.save_only_these_names(KEPT))
