"""The derivative of a root, by the implicit function theorem. Knows no physics.

At r(x; θ) = 0 a change dθ moves the root along the retraction by

    δ = −J⁻¹ (∂r/∂θ) dθ,   J = ∂r(x ⊕ δ; θ)/∂δ at δ = 0.

How the root was found plays no part: no loop is unrolled, and what has to be kept does not depend on iterations. The
rule is linear in dθ, so JAX transposes it for reverse mode; and since the root inside the rule carries the rule again,
it can be differentiated as often as J and r can.

`attach` is a primitive of its own. With jax.custom_jvp second derivatives through jax.lax.scan would be wrong without a
word: what scan takes out of its loop is evaluated without the rule (JaxprTrace.process_custom_jvp_call, jax 0.10).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

KEPT = "root"  # the name of what reverse mode keeps of a solve, for jax.checkpoint policies


class Rule(NamedTuple):
    """A family of square systems; its functions may close over nothing that is traced.

    residual: (θ, x) -> r (n,). solve: (θ, x, b (n,)) -> J⁻¹ b, J differentiable. retract: (θ, x, δ (n,)) -> x.
    """

    residual: Callable
    solve: Callable
    retract: Callable


_attach_p = Primitive("implicit_root")


_attach_p.multiple_results = True


def attach(rule: Rule, theta: Any, x: Any) -> Any:
    """The root x, found in whatever way, as a function of θ."""
    leaves, tree = jax.tree.flatten((theta, x))
    n = len(jax.tree.leaves(x))
    return jax.tree.unflatten(jax.tree.structure(x), _attach_p.bind(*leaves, rule=rule, tree=tree, n=n))


def _root_of(*leaves, rule, tree, n):
    """The last n leaves: those of x."""
    del rule, tree
    return list(leaves[len(leaves) - n :])


def _jvp(leaves, tangents, *, rule, tree, n):
    found = _attach_p.bind(*leaves, rule=rule, tree=tree, n=n)
    theta, _ = jax.tree.unflatten(tree, leaves)
    x = jax.tree.unflatten(tree.children()[1], found)
    change = [ad.instantiate_zeros(t) for t in tangents[: len(leaves) - n]]
    _, change = jax.jvp(lambda t: rule.residual(t, x), (theta,), (jax.tree.unflatten(tree.children()[0], change),))
    delta = -rule.solve(theta, x, change)
    _, moved = jax.jvp(lambda d: rule.retract(theta, x, d), (jnp.zeros_like(delta),), (delta,))
    return found, jax.tree.leaves(moved)


def _batch(leaves, axes, *, rule, tree, n):
    """Lanes: the same family with its functions mapped over them."""
    size = next(x.shape[a] for x, a in zip(leaves, axes) if a is not None)
    leaves = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(leaves, axes)]
    k = len(leaves) - n
    leaves[k:] = [jnp.broadcast_to(x, (size, *x.shape)) if a is None else x for x, a in zip(leaves[k:], axes[k:])]
    lanes = tuple(None if a is None else 0 for a in axes[:k])
    mapped = Rule(*(functools.partial(_mapped, f, lanes) for f in rule))
    return _attach_p.bind(*leaves, rule=mapped, tree=tree, n=n), [0] * n


def _mapped(f: Callable, lanes: tuple, theta, *rest):
    leaves, tree = jax.tree.flatten(theta)
    axes = (list(lanes),) + (0,) * len(rest)
    return jax.vmap(lambda leaves, *rest: f(jax.tree.unflatten(tree, leaves), *rest), axes)(leaves, *rest)


_attach_p.def_impl(_root_of)


_attach_p.def_abstract_eval(_root_of)


mlir.register_lowering(_attach_p, mlir.lower_fun(_root_of, multiple_results=True))


ad.primitive_jvps[_attach_p] = _jvp


batching.primitive_batchers[_attach_p] = _batch


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
