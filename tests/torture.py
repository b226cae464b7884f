"""What the suite has no time for, counted: `python -m tests.torture` (hours; `--quick`: minutes). Not run by CI.

steps: random states of small systems with every scheme, in both precisions, at steps far too large too; every CONVERGED
step is judged by mechanics that knows nothing of the solver (torture_steps.py, judges.py). files, archives: mutants, to
which only our own errors are an answer. kills: `kill -9` of a long rollout. memory: one step again and again.

Counts go to benchmarks/results/torture.json after every program and part, with what is needed to see the first false
claim of each again; `--resume` goes on with what is missing there. The commit and the date are those of the last write.
"""

import argparse
import json
import pathlib
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / room) for room in ("", "importers", "storage"))]

import torture_steps  # noqa: E402

import pbad_jax as pbad  # noqa: E402
from benchmarks import common  # noqa: E402


def steps(quick: bool) -> dict[str, Callable[[], dict]]:
    """Of every system with every scheme in both precisions, one row each."""
    lanes, rounds = (256, 2) if quick else (torture_steps.LANES, torture_steps.ROUNDS)
    rows = {}
    for k, case in enumerate(torture_steps.cases(quick)):
        rows[" ".join(case)] = lambda k=k, case=case: of_steps(case, lanes, rounds, k)
    return rows


def of_steps(case: tuple[str, str, str], lanes: int, rounds: int, seed: int) -> dict:
    row: dict[str, Any] = dict(zip(("system", "scheme", "dtype"), case))
    try:
        row |= torture_steps.judged(*case, lanes, rounds, seed)
    except pbad.OptionError as e:  # a scheme that the system's forces cannot have
        row["refused"] = str(e)
    jax.clear_caches()
    return row


def files(quick: bool) -> dict:
    """Mutants of model files: they load, or are refused by a ModelFileError; anything else ends this."""
    from test_hostile_files import MJCF, URDF, fuzz

    n, begun = 500 if quick else 15_000, time.process_time()
    loaded = sum(fuzz(text, range(10_000, 10_000 + n)) for text in (MJCF, URDF))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"files": 2 * n, "loaded": loaded, "cpu_s": time.process_time() - begun, "memory_gib": used}


def archives(quick: bool) -> dict:
    """Mutants of a saved trajectory: an error that names the file, or what was saved."""
    n, rng = 300 if quick else 10_000, random.Random(0)
    model = pbad.chain(2)
    states, info = pbad.rollout(model, pbad.make_state(model), n_steps=5, options=pbad.Options(dt=0.1))
    counts = {"archives": n, "read": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "a.npz"
        pbad.save_trajectory(path, model, states, info)
        whole = path.read_bytes()
        honest = pbad.load_trajectory(path)
        for _ in range(n):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            if rng.random() < 0.2:
                del data[rng.randrange(len(data)) :]
            path.write_bytes(data)
            try:
                read = pbad.load_trajectory(path)
                for name in ("time", "q", "v", "status"):
                    np.testing.assert_array_equal(getattr(read, name), getattr(honest, name))
                counts["read"] += 1
            except (OSError, pbad.ModelError) as e:
                assert str(path) in str(e), e
                counts["refused"] += 1
    return counts


def kills(quick: bool) -> dict:
    from test_long_rollouts import test_kill_minus_nine

    n = 4 if quick else 100
    with tempfile.TemporaryDirectory() as folder:
        test_kill_minus_nine(pathlib.Path(folder), n)
    return {"kills": n}


def memory(quick: bool) -> dict:
    """MiB that a process holds before and after so many calls of one step."""
    n, model = 10_000 if quick else 1_000_000, pbad.chain(2)
    step, state = jax.jit(pbad.make_step(pbad.Options(dt=0.01))), pbad.make_state(model)

    def held() -> float:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    before = 0.0
    for k in range(n):
        state, _ = step(model, state)
        if k == n // 10:
            before = held()
    return {"steps": n, "mib_after_a_tenth": before, "mib_at_the_end": held(), "status": int(state.status)}


PARTS: dict[str, Callable[[bool], Any]] = {f.__name__: f for f in (steps, files, archives, kills, memory)}


def work(parts: list[str], quick: bool) -> Iterator[tuple[dict, Callable[[], dict]]]:
    """What names a row, and how it is made."""
    for part in parts:
        if part == "steps":
            yield from (({"part": part, "case": case}, row) for case, row in steps(quick).items())
        else:
            yield {"part": part}, lambda part=part: {"result": PARTS[part](quick)}


def false_claims(rows: list[dict]) -> int:
    return sum(sum(row.get("false", {}).values()) for row in rows)


def bar(done: int, of: int, seconds: float) -> str:
    """How far, and how long yet."""
    share, minutes = done / of, seconds / 60
    return f"[{'#' * round(20 * share):20}] {done}/{of}, {minutes:.0f} min, {minutes * (1 / share - 1):.0f} to go"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    arguments.add_argument("--quick", action="store_true", help="minutes instead of hours")
    arguments.add_argument("--resume", action="store_true", help="keep the rows that the file has, make the others")
    arguments.add_argument("--out", type=pathlib.Path, default=common.RESULTS)
    given = arguments.parse_args()
    wrong = [p for p in given.parts if p not in PARTS]
    if wrong:
        arguments.error(f"there is no part {wrong[0]!r}; there are {', '.join(PARTS)}")
    jax.config.update("jax_enable_x64", True)  # single precision is that of the models
    path, rows = given.out / "torture.json", []
    if given.resume and path.exists():
        rows = json.loads(path.read_text())["rows"]
    known = [{k: row[k] for k in ("part", "case") if k in row} for row in rows]
    todo = [(name, make) for name, make in work(given.parts or list(PARTS), given.quick) if name not in known]
    begun = time.perf_counter()
    for k, (name, make) in enumerate(todo):
        rows.append(name | make())
        common.write("torture", rows, given.out, quick=given.quick)
        shown = {key: x for key, x in rows[-1].items() if key not in ("first", "part", "system", "scheme", "dtype")}
        print(bar(k + 1, len(todo), time.perf_counter() - begun), shown, flush=True)
    print(f"{path}: {false_claims(rows)} false claims")
    sys.exit(bool(false_claims(rows)))


if __name__ == "__main__":
    main()
