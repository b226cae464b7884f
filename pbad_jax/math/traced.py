"""Functions that JAX traces once. Knows no model."""

from collections.abc import Callable

import jax
from jax.extend.core import jaxpr_as_fun


def traced_once(f: Callable, *like) -> Callable:
    """f as the operations that it makes of arguments such as these, pytrees of arrays.

    JAX calls what stands in a loop, a branch or a rule for lanes anew wherever it stands (`jax.jit` remembers, but not
    from without such a rule to within it). f must not close over what is being traced.
    """
    operations, shapes = jax.make_jaxpr(f, return_shape=True)(*like)
    run, tree = jaxpr_as_fun(operations), jax.tree.structure(shapes)
    return lambda *args: jax.tree.unflatten(tree, run(*jax.tree.leaves(args)))
