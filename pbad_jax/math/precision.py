"""Products in the full precision of their factors. Knows no model.

On accelerators JAX rounds the factors of a float32 product, to 10 bits on NVIDIA's (TF32): enough for a network, not
for a mechanism. Of gymnasium's ant in float32 on an H100 999 of 1000 steps failed for it. Whatever is public and
multiplies therefore asks for all bits, while it is traced; a user's own products elsewhere stay as they are.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def all_bits():
    """A context in which what is traced multiplies with all bits of its factors."""
    return jax.default_matmul_precision("highest")


def with_all_bits(f: Callable[P, R]) -> Callable[P, R]:
    """The same function, traced with `all_bits`."""

    @functools.wraps(f)
    def precise(*args: P.args, **kwargs: P.kwargs) -> R:
        with all_bits():
            return f(*args, **kwargs)

    return precise
