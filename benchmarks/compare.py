"""Two runs of a benchmark beside each other: what became slower?

    python -m benchmarks compare OLD.json NEW.json [--tolerance 1.25] [--relative]

Rows are matched by what identifies them: every string in them and the numbers named in `IDENTITY`. Their times are
compared as ratios, over 1 where the new run is slower, rates such as `simulated_s_per_s` upside down. `--relative`
divides all ratios by their median, since another machine, or a busier one, is slower in everything; so a run that is
slower in everything is no regression there. Exit status 1 where a ratio is over the tolerance, where a row fails that
did not, or more steps fail, or the runs have no row in common. Memory is not compared.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys
from typing import Any, NamedTuple

IDENTITY = {
    "links", "dt", "lanes", "batch", "steps", "tile", "contacts", "friction", "states", "max_iterations", "tolerance",
    "span", "seconds", "order", "turn", "unknowns", "within", "seed", "repeat", "env_steps",
}  # fmt: skip
RATE = re.compile(r"_per_s(_median)?$")
TIME = re.compile(r"(^|_)((s|ms|us|seconds)((_median|_with\w*)?$|_per_(?!s(_median)?$))|(?<!_)(median|least)$)")
AMOUNT = {"simulated_s"}  # of motion, not of work


class Change(NamedTuple):
    ratio: float  # over 1: slower
    row: str
    figure: str
    old: float
    new: float


def name_of(row: dict) -> str:
    """What a row is about, in the order in which it was written."""
    kept = {k: v for k, v in row.items() if k in IDENTITY or (isinstance(v, str) and k != "failure")}
    return ", ".join(f"{k} {v}" for k, v in kept.items())


def named(rows: list[dict]) -> dict[str, dict]:
    """Rows by their names; repeats of a name get numbers."""
    out: dict[str, dict] = {}
    for row in rows:
        name, n = name_of(row), 2
        while name in out:
            name, n = f"{name_of(row)} #{n}", n + 1
        out[name] = row
    return out


def times(row: dict) -> dict[str, float]:
    """The measured times and rates of a row that are positive numbers."""
    found = {k: v for k, v in row.items() if (TIME.search(k) or RATE.search(k)) and k not in AMOUNT}
    return {k: v for k, v in found.items() if isinstance(v, int | float) and v > 0}


def changes(old: dict[str, dict], new: dict[str, dict]) -> list[Change]:
    """Of every time that both runs have, the worst first."""
    found = []
    for name in old.keys() & new.keys():
        before, after = times(old[name]), times(new[name])
        for figure in before.keys() & after.keys():
            a, b = before[figure], after[figure]
            found.append(Change(a / b if RATE.search(figure) else b / a, name, figure, a, b))
    return sorted(found, reverse=True)


def relative(found: list[Change]) -> list[Change]:
    middle = statistics.median(c.ratio for c in found) if found else 1.0
    return [c._replace(ratio=c.ratio / middle) for c in found]


def failing(old: dict[str, dict], new: dict[str, dict]) -> list[str]:
    """Rows that fail and did not, or of which more steps or lanes fail."""
    found = []
    for name in (n for n in old if n in new):
        if "failure" in new[name] and "failure" not in old[name]:
            found.append(f"{name}: {new[name]['failure']}")
        for k in (k for k in new[name] if k.startswith("failed_")):
            before, after = old[name].get(k), new[name][k]
            if before is not None and after is not None and after > before:
                found.append(f"{name}: {k} {before}, now {after}")
    return found


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """What is not the same in two environments."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = list(dict.fromkeys([*old, *new]))
        return [line for k in keys for line in differences(old.get(k), new.get(k), f"{path} {k}")]
    return [] if old == new else [f"{path.strip()}: {old} -> {new}"]


def setting(data: dict) -> dict:
    """Everything a file says apart from its rows; the load as one figure."""
    told = {k: v for k, v in data.items() if k not in ("rows", "environment")} | data.get("environment", {})
    return told | {"load": round(told["load"][0], 1)} if told.get("load") else told


def report(old: dict, new: dict, tolerance: float, by_median: bool) -> bool:
    """Print the comparison; True where there was something to compare, and nothing became worse."""
    before, after = named(old["rows"]), named(new["rows"])
    found = changes(before, after)
    if by_median:
        found = relative(found)
    for line in differences(setting(old), setting(new)):
        print("differs:", line)
    print(f"\n{'ratio':>7} {'old':>11} {'new':>11}  figure, row" + (", over the median ratio" if by_median else ""))
    for c in found:
        print(f"{c.ratio:7.2f} {c.old:11.5g} {c.new:11.5g}  {c.figure}: {c.row}" + " <--" * (c.ratio > tolerance))
    for what, names in (("vanished", before.keys() - after.keys()), ("new", after.keys() - before.keys())):
        for name in sorted(names):
            print(f"{what}: {name}")
    worse = failing(before, after)
    for line in worse:
        print("fails:", line)
    slower = sum(c.ratio > tolerance for c in found)
    print(f"\n{len(found)} times, {slower} over {tolerance:g}; {len(worse)} new failures")
    return bool(before.keys() & after.keys()) and not slower and not worse


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=1.25, help="the largest ratio that passes")
    parser.add_argument("--relative", action="store_true", help="divide ratios by their median")
    arguments = parser.parse_args(words)
    old, new = (json.loads(path.read_text()) for path in (arguments.old, arguments.new))
    return 0 if report(old, new, arguments.tolerance, arguments.relative) else 1


if __name__ == "__main__":
    sys.exit(main())
