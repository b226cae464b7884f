"""Solves and Cholesky factors of a batch, all lanes side by side or one after another by LAPACK, against their size.

    python benchmarks/small_systems.py [--quick] [--name small_systems] [--out DIR]

32 lanes, float64, on a CPU: where `pbad_jax/math/batched.py` changes from one to the other. Cholesky factors come with
their inverses. The two ways take turns; the least of nine runs counts.
"""

import functools

import jax
import jax.numpy as jnp
from common import run, timed

from pbad_jax.math import batched

LANES, ROUNDS = 32, 3
SOLVE = {"side by side": batched._eliminated, "one by one": functools.partial(batched.in_turn, batched._solve)}
CHOLESKY = {
    "side by side": batched._cholesky_at_once,
    "one by one": functools.partial(batched.in_turn, batched._cholesky),
}


def measure(unknowns: int) -> list[dict]:
    A = jax.random.normal(jax.random.key(0), (LANES, unknowns, unknowns))
    b = jax.random.normal(jax.random.key(1), (LANES, unknowns))
    S = A @ jnp.swapaxes(A, 1, 2) + jnp.eye(unknowns)
    rows = []
    for what, ways, arguments in (("solve", SOLVE, (A, b)), ("cholesky", CHOLESKY, (S,))):
        calls = {way: jax.jit(f).lower(*arguments).compile() for way, f in ways.items()}
        seen = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, call in calls.items():
                seen[way].append(timed(call, *arguments, repeats=3)["least"])
        for way, seconds in seen.items():
            us = round(1e6 * min(seconds) / LANES, 2)
            rows.append({"what": what, "way": way, "unknowns": unknowns, "lanes": LANES, "us_per_lane": us})
    return rows


def plan(quick: bool) -> list[tuple]:
    return [(n,) for n in ((6,) if quick else (3, 6, 12, 20, 24, 30, 40, 60))]


if __name__ == "__main__":
    run("small_systems", __doc__, plan, measure, repeats=3 * ROUNDS, dtype="float64")
