"""Writes the README's tables from the JSON of the benchmarks; nothing in them is typed by hand.

python benchmarks/readme_table.py          # rewrite README.md
python benchmarks/readme_table.py --check  # exit 1 if it would change
"""

import argparse
import json
import sys

from common import RESULTS

README = RESULTS.parent.parent / "README.md"


def step_time() -> str:
    data = json.loads((RESULTS / "step_time.json").read_text())
    where = data["environment"]
    lines = [
        "| links | scheme | dtype | lanes | µs per iteration and lane | µs per step and lane | iterations per step |",
        "|---:|---|---|---:|---:|---:|---:|",
    ]
    for r in data["rows"]:
        if r["recurrence"] == "parallel":
            lines.append(
                f"| {r['links']} | {r['scheme']} | {r['dtype']} | {r['batch']} | {r['us_per_iteration']:.1f} "
                f"| {r['us_per_step']:.0f} | {r['iterations_per_step']:.1f} |"
            )
    same = [r for r in data["rows"] if (r["scheme"], r["recurrence"], r["dtype"]) == ("radau2", "parallel", "float64")]
    compile_times = {r["links"]: r["compile_s"] for r in same if r["compile_s"]}
    few, many = min(compile_times), max(n for n in compile_times if n <= 80)
    lines.append("")
    lines.append(
        f"Compiling one jitted radau(2) step: {compile_times[few]:.1f} s at {few} links, "
        f"{compile_times[many]:.1f} s at {many} ({compile_times[many] / compile_times[few]:.2f} times)."
    )
    versions = where["versions"]
    lines.append(
        f"Measured on {where['device']}, {where['cores']} shared cores, jax {versions['jax']}, "
        f"commit {where['commit']}, {where['date']}, load {where['load'][0]:.1f}: `benchmarks/results/step_time.json`."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = README.read_text()
    begin, end = "<!-- begin: step_time -->", "<!-- end: step_time -->"
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    new = f"{head}{begin}\n{step_time()}\n{end}{tail}"
    if arguments.check:
        sys.exit(new != text)
    README.write_text(new)


if __name__ == "__main__":
    main()
