"""Products in the full precision of their factors, and tables that outlive JAX's switch of it. Knows no model.

On accelerators JAX rounds the factors of a float32 product, to 10 bits on NVIDIA's (TF32): enough for a network, not
for a mechanism. Of gymnasium's ant in float32 on an H100 999 of 1000 steps failed for it. Whatever is public and
multiplies therefore asks for all bits, while it is traced; a user's own products elsewhere stay as they are.

And of a numpy array JAX remembers for as long as it lives, in traced code, whether it once took it for 32 or 64 bits.
Tables that are made once are therefore made once for each position of `jax_enable_x64`.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from pbad_jax.math.loops import varying_with

P = ParamSpec("P")
R = TypeVar("R")
KEPT = 256  # results of a function


def all_bits():
    """A context in which what is traced multiplies with all bits of its factors."""
    return jax.default_matmul_precision("highest")


def with_all_bits(f: Callable[P, R]) -> Callable[P, R]:
    """The same function, traced with `all_bits`, and with loops that vary over devices as its arguments do."""

    @functools.wraps(f)
    def precise(*args: P.args, **kwargs: P.kwargs) -> R:
        with all_bits(), varying_with((args, kwargs)):
            return f(*args, **kwargs)

    return precise


def made_once(f: Callable[P, R]) -> Callable[P, R]:
    """The same function of hashable arguments, whose results are kept: one of each for either position of x64."""
    kept = functools.lru_cache(maxsize=2 * KEPT)(lambda wide, *args, **kwargs: f(*args, **kwargs))

    @functools.wraps(f)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> R:
        return kept(jax.config.jax_enable_x64, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    return remembered
