"""What one lane costs with one thread of XLA, and with one a core; the library, Brax and jaxsim, float64.

    python benchmarks/one_thread.py [--quick | --full] [--name one_thread] [--out DIR]

A chain of 10 links starts straight, horizontal and at rest, and takes steps of 0.001 s, all in one call. Every engine
has two processes, one of them with PJRT_NPROC=1 (`remotes.Remote`); while one is timed all others wait, repeats go
round, the least counts. XLA compiles all engines' sums (`common.compile_sums`). Rivals: pip install brax jaxsim.
"""

import functools
import sys

import systems
from common import compile_sums, digits, run
from engines import worker_of
from remotes import Remote, compile_all

ENGINES = (
    "radau1",
    "radau2",
    "radau3",
    "dirk4",
    "newton_euler semi_implicit_euler",
    "newton_euler rk4",
    "brax Euler",
    "jaxsim SemiImplicitEuler",
    "jaxsim RungeKutta4",
)
USUAL = ("radau1", "radau2", "radau3", "newton_euler rk4", "brax Euler", "jaxsim RungeKutta4")
STEPS, DT, REPEATS, COMPILING = 200, 0.001, 7, 200.0  # steps a run, s, rounds, s for one compilation


def measure(links: int, names: tuple[str, ...], repeats: int) -> list[dict]:
    system, span = systems.chain(links), STEPS * DT
    remotes = {(n, threads): Remote(worker_of(n), n, system, threads=threads) for n in names for threads in (1, None)}
    least: dict[tuple, float] = {}
    compile_all(list(remotes.values()), 1, DT, COMPILING)
    for _ in range(repeats + 1):  # the first warms up
        for key, remote in remotes.items():
            remote.ask("run", system.q, system.v, DT, span)
            found = remote.answer()
            if not remote.failure:
                least[key] = min(found["s"], least.get(key, float("inf")))
    rows = []
    for n in names:
        row = {"links": links, "dt": DT, "engine": n}
        failure = remotes[n, 1].failure or remotes[n, None].failure
        if failure:
            row["failure"] = failure
        else:
            one, every = (1e6 * least[n, threads] / STEPS for threads in (1, None))
            row |= {"us_one_thread": digits(one), "us_all_threads": digits(every), "ratio": digits(every / one)}
        rows.append(row)
    for remote in remotes.values():
        remote.stop()
    return rows


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(functools.partial(measure, 2, ("newton_euler semi_implicit_euler",), 1),)]
    return [(functools.partial(measure, 10, USUAL, REPEATS),)]


def full() -> list[tuple]:
    return [(functools.partial(measure, 10, ENGINES, REPEATS),)]


def main() -> None:
    sys.setrecursionlimit(10000)
    compile_sums()
    run("one_thread", __doc__, plan, lambda case: case(), None, full, repeats=REPEATS, steps=STEPS, dtype="float64")


if __name__ == "__main__":
    main()
