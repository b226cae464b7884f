"""The derivative of a root, by the implicit function theorem, and of what has been found. Knows no physics.

At r(x; θ) = 0 a change dθ moves the root along the retraction by

    δ = −J⁻¹ (∂r/∂θ) dθ,   J = ∂r(x ⊕ δ; θ)/∂δ at δ = 0.

How the root was found plays no part: no loop is unrolled, and what has to be kept does not depend on iterations. The
rule is linear in dθ, so JAX transposes it for reverse mode; and since the root inside the rule carries the rule again,
it can be differentiated as often as J and r can.

`root` and `known` are a primitive of their own. With jax.custom_jvp second derivatives through jax.lax.scan would be
wrong without a word: what scan takes out of its loop is evaluated without the rule (JaxprTrace.process_custom_jvp_call,
jax 0.10).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from pbad_jax.math.precision import with_all_bits
from pbad_jax.solver.problem import Problem

KEPT = "root"  # the name of what reverse mode keeps of a solve, for jax.checkpoint policies

_found_p = Primitive("implicit_root")
_found_p.multiple_results = True


def root(problem: Problem, x: Any, good: jax.Array) -> Any:
    """The root x of a problem at h = 1, found in whatever way, as a function of all that the problem depends on.

    Where it is not `good` it has no derivative, and no matrix that could be singular is factored: so it touches no
    other lane.
    """
    return _found(_change_of_root, (problem, good), x)


def known(f: Callable, theta: Any, value: Any) -> Any:
    """f(θ), whose `value` has been found in another way, with the derivative of f: f is evaluated only for that."""
    return _found(functools.partial(_change_of_function, f), theta, value)


def _found(change: Callable, theta: Any, x: Any) -> Any:
    """x with the derivative `change`: (mapped, θ, x, dθ) -> dx, linear in dθ; `mapped(f, θ, ...)` is f of all lanes."""
    leaves, tree = jax.tree.flatten((theta, x))
    found = _found_p.bind(*leaves, change=change, tree=tree, n=len(jax.tree.leaves(x)), lanes=())
    return jax.tree.unflatten(jax.tree.structure(x), found)


def _change_of_root(mapped: Callable, theta, x, change):
    _, r = jax.jvp(lambda t: mapped(_residual, t, x), (theta,), (change,))
    delta = -mapped(_solve, theta, x, r)
    return jax.jvp(lambda d: mapped(_retract, theta, x, d), (jnp.zeros_like(delta),), (delta,))[1]


def _change_of_function(f: Callable, mapped: Callable, theta, x, change):
    return jax.jvp(lambda t: mapped(lambda t, _: f(t), t, x), (theta,), (change,))[1]


def _residual(theta, x):
    problem, _ = theta
    return problem.residual(x, 1.0)[0]


def _solve(theta, x, b):
    problem, good = theta
    return problem.solve_at_root(x, good, b)


def _retract(theta, x, delta):
    problem, _ = theta
    return problem.retract(x, delta)


def _mapped(lanes: tuple, f: Callable, theta, *rest):
    """`f` over the lanes that θ and the rest have; `lanes`: axes of θ's leaves in each vmap, the innermost first."""
    if not lanes:
        return f(theta, *rest)
    leaves, tree = jax.tree.flatten(theta)
    axes = (list(lanes[-1]),) + (0,) * len(rest)
    each = lambda leaves, *rest: _mapped(lanes[:-1], f, jax.tree.unflatten(tree, leaves), *rest)  # noqa: E731
    return jax.vmap(each, axes)(leaves, *rest)


def _found_of(*leaves, change, tree, n, lanes):
    """The last n leaves: those of x."""
    del change, tree, lanes
    return list(leaves[len(leaves) - n :])


@with_all_bits
def _jvp(leaves, tangents, *, change, tree, n, lanes):
    found = _found_p.bind(*leaves, change=change, tree=tree, n=n, lanes=lanes)
    theta, _ = jax.tree.unflatten(tree, leaves)
    x = jax.tree.unflatten(tree.children()[1], found)
    dtheta = [ad.instantiate_zeros(t) for t in tangents[: len(leaves) - n]]
    dtheta = jax.tree.unflatten(tree.children()[0], dtheta)
    return found, jax.tree.leaves(change(functools.partial(_mapped, lanes), theta, x, dtheta))


def _batch(leaves, axes, *, change, tree, n, lanes):
    """Lanes: the same with its functions mapped over them."""
    size = next(x.shape[a] for x, a in zip(leaves, axes) if a is not None)
    leaves = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(leaves, axes)]
    k = len(leaves) - n
    leaves[k:] = [jnp.broadcast_to(x, (size, *x.shape)) if a is None else x for x, a in zip(leaves[k:], axes[k:])]
    more = tuple(None if a is None else 0 for a in axes[:k])
    return _found_p.bind(*leaves, change=change, tree=tree, n=n, lanes=(*lanes, more)), [0] * n


_found_p.def_impl(_found_of)
_found_p.def_abstract_eval(_found_of)
mlir.register_lowering(_found_p, mlir.lower_fun(_found_of, multiple_results=True))
ad.primitive_jvps[_found_p] = _jvp
batching.primitive_batchers[_found_p] = _batch


def constant(x: Any, good: jax.Array, derivative: str) -> Any:
    """x where something failed: its derivative is "zero", or where not `good` "nan"."""
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
    """x without derivatives, marked as what reverse mode keeps."""
    return jax.tree.map(lambda leaf: checkpoint_name(jax.lax.stop_gradient(leaf), KEPT), x)


def checkpointed(step: Callable) -> Callable:
    """The same function; reverse mode keeps its arguments and what is marked by `keep`, and computes the rest again."""
    return jax.checkpoint(step, policy=jax.checkpoint_policies.save_only_these_names(KEPT))
