"""Loops and branches whose types also fit inside `jax.shard_map`. Knows no model.

There JAX keeps account of what differs between devices ("varies over" an axis of the mesh), and wants a loop to carry
the same kind in and out: a counter that begins as a constant and a state that follows from a device's own lanes do not
fit. So all that a loop carries, and all that a branch gives, is made to vary as the arguments of the function around it
do; everywhere else these are jax.lax's own.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.sharding import AxisType

NONE: frozenset = frozenset()
_around: contextvars.ContextVar[frozenset] = contextvars.ContextVar("axes that arguments vary over", default=NONE)


def inside() -> bool:
    """Whether it is traced for `jax.shard_map`."""
    mesh = jax.sharding.get_abstract_mesh()
    return not mesh.empty and any(kind == AxisType.Manual for kind in mesh.axis_types)


def axes_of(tree: Any) -> frozenset:
    """The axes of a mesh that any leaf varies over; none outside `jax.shard_map`."""
    found = NONE
    for x in jax.tree.leaves(tree) if inside() else ():
        if isinstance(x, jax.core.Tracer):
            kind = jax.typeof(x)
            found |= frozenset(kind.mat.varying if hasattr(kind, "mat") else getattr(kind, "vma", ()))
    return found


def as_varying(tree: Any, axes: frozenset) -> Any:
    """The same numbers, every leaf varying over these axes at least."""
    if not axes:
        return tree

    def one(x):
        missing = tuple(sorted(axes - axes_of(x), key=str))
        if not missing:
            return x
        return jax.lax.pcast(x, missing, to="varying") if hasattr(jax.lax, "pcast") else _pvary(x, missing)

    return jax.tree.map(one, tree)


_pvary: Any = getattr(jax.lax, "pvary", None)  # what it is called before jax 0.9


def alike(tree: Any) -> Any:
    """The same numbers, every leaf varying over what any of them does, or what the arguments around them do."""
    return as_varying(tree, _around.get() | axes_of(tree))


@contextlib.contextmanager
def varying_with(tree: Any):
    """A context in which loops carry what varies as these arguments do."""
    before = _around.set(_around.get() | axes_of(tree))
    try:
        yield
    finally:
        _around.reset(before)


def while_loop(go_on: Callable, body: Callable, start: Any) -> Any:
    """As jax.lax.while_loop."""
    axes = _around.get() | axes_of(start)
    return jax.lax.while_loop(go_on, lambda x: as_varying(body(x), axes), as_varying(start, axes))


def fori_loop(first: Any, last: Any, body: Callable, start: Any) -> Any:
    """As jax.lax.fori_loop."""
    axes = _around.get() | axes_of((first, last, start))
    return jax.lax.fori_loop(first, last, lambda i, x: as_varying(body(i, x), axes), as_varying(start, axes))


def scan(body: Callable, start: Any, rows: Any = None, length: int | None = None, reverse: bool = False) -> Any:
    """As jax.lax.scan."""
    axes = _around.get() | axes_of((start, rows))

    def one(carry, row):
        carry, out = body(carry, row)
        return as_varying(carry, axes), out

    return jax.lax.scan(one, as_varying(start, axes), rows, length, reverse)


def cond(wanted: jax.Array, yes: Callable, no: Callable, *operands: Any) -> Any:
    """As jax.lax.cond; inside shard_map both are computed, because there vmap's rule for it does not keep to the types.

    (It lets a branch's constants vary as `wanted` does, which the branch itself does again; jax 0.10.)
    """
    axes = _around.get() | axes_of((wanted, operands))
    if not axes:
        return jax.lax.cond(wanted, yes, no, *operands)
    return jax.tree.map(functools.partial(jnp.where, wanted), yes(*operands), no(*operands))


def instead(wanted: jax.Array, seldom: Callable, often: Callable, *operands: Any) -> Any:
    """As jax.lax.cond; inside shard_map `often` is always computed, and a loop of one round or none computes `seldom`.

    For what is not differentiated in reverse.
    """
    axes = _around.get() | axes_of((wanted, operands))
    if not axes:
        return jax.lax.cond(wanted, seldom, often, *operands)
    one = lambda _: (jnp.zeros((), bool), seldom(*operands))  # noqa: E731
    return while_loop(lambda x: x[0], one, as_varying((wanted, often(*operands)), axes))[1]


def platform_dependent(*operands: Any, default: Callable, **ways: Callable) -> Any:
    """As jax.lax.platform_dependent."""
    axes = _around.get() | axes_of(operands)
    ways = {name: _giving(f, axes) for name, f in ways.items()}
    return jax.lax.platform_dependent(*operands, default=_giving(default, axes), **ways)


def _giving(f: Callable, axes: frozenset) -> Callable:
    """f, whose results vary over the axes; f itself where there are none."""
    return (lambda *x: as_varying(f(*x), axes)) if axes else f
