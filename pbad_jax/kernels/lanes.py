"""How a kernel is run over lanes: their axis last, each value of a block of them one number a thread.

Kernels are loops over links and degrees of freedom; what lies in them are rows of LANES numbers. So a kernel's code is
as short as that of one lane, and its compile time does not depend on the size of a model.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl

from pbad_jax.math import loops

LANES = 128  # of a block: threads that run together
INTERPRETED = False  # tests on a CPU set it


def in_lanes(one: Callable, together: Callable) -> Callable:
    """`one` of a lane, and under vmap `together` of all: arrays with the lanes in front, or 1 where they share it.

    Both take arrays and return a list of them. Of vmaps in each other the lanes are laid side by side.
    """

    def side_by_side(*args):
        """The same by JAX."""
        count = max(map(len, args))
        shared = [len(x) < count for x in args]
        return jax.vmap(one, [None if s else 0 for s in shared])(*(x[0] if s else x for x, s in zip(args, shared)))

    @custom_vmap
    def lanes(*args):
        return together(*args) if INTERPRETED else loops.platform_dependent(*args, cuda=together, default=side_by_side)

    @lanes.def_vmap
    def _(axis_size, in_batched, *args):
        # (outer, lanes, ...), where either may be shared, to (outer lanes, ...)
        inner = max(x.shape[1] if batched else x.shape[0] for x, batched in zip(args, in_batched))

        def flat(x, batched):
            x = x if batched else x[None]
            if x.shape[:2] == (1, 1):
                return x[0]
            return jnp.broadcast_to(x, (axis_size, inner, *x.shape[2:])).reshape(-1, *x.shape[2:])

        out = lanes(*map(flat, args, in_batched))
        return [x.reshape(axis_size, inner, *x.shape[1:]) for x in out], [True] * len(out)

    @custom_vmap
    def alone(*args):
        return one(*args)

    @alone.def_vmap
    def _(axis_size, in_batched, *args):
        del axis_size
        out = lanes(*(x if batched else x[None] for x, batched in zip(args, in_batched)))
        return out, [True] * len(out)

    return alone


def run(
    kernel: Callable,
    tables: Sequence[np.ndarray],
    arrays: Sequence[jax.Array],
    out: Sequence[tuple],
    room: Sequence[tuple],
) -> list[jax.Array]:
    """The kernel's results, (lanes, *shape) of every one of `out`.

    Args:
        kernel: of refs: tables, arrays, results, and room to work in.
        tables: integers (k,) that all lanes read.
        arrays: (lanes,...), or (1,...) what all lanes share; in the kernel their lanes are last.
        out: the shapes of a lane's results. room: shapes, a lane.
    """
    lanes, dtype = max(len(x) for x in arrays), arrays[0].dtype
    blocks = -(-lanes // LANES)

    def last(x: jax.Array) -> jax.Array:
        """Lanes last, blocks of them filled up with zeros: nobody reads what becomes of those."""
        x = jnp.moveaxis(x, 0, -1)
        missing = 0 if x.shape[-1] == 1 else blocks * LANES - lanes
        return jnp.pad(x, (*((0, 0),) * (x.ndim - 1), (0, missing)))

    def block(shape: tuple) -> pl.BlockSpec:
        """One block of lanes of everything, or the same for all."""
        shared = shape[-1] == 1
        return pl.BlockSpec(
            (*shape[:-1], 1 if shared else LANES), lambda k: (*(0,) * (len(shape) - 1), 0 if shared else k)
        )

    from jax.experimental.pallas import triton  # where a kernel is made, and not before

    how = {"interpret": True} if INTERPRETED else {"compiler_params": triton.CompilerParams(num_warps=LANES // 32)}
    given = [last(x) for x in arrays]
    made = [jax.ShapeDtypeStruct((*shape, blocks * LANES), dtype) for shape in (*out, *room)]
    result = pl.pallas_call(
        kernel,
        grid=(blocks,),
        in_specs=[*(pl.BlockSpec(x.shape, lambda k: (0,)) for x in tables), *(block(x.shape) for x in given)],
        out_specs=[block(x.shape) for x in made],
        out_shape=made,
        **cast(Any, how),
    )(*(jnp.asarray(x, jnp.int32) for x in tables), *given)
    return [jnp.moveaxis(x, -1, 0)[:lanes] for x in result[: len(out)]]
