"""What is learnt in how long: the trainers of `examples`, with their curves.

    python benchmarks/training.py [--quick] [--only TEXT] [--name training] [--out DIR]

`paper_swimmer`: CMA-ES (examples/train_swimmer_cma.py, the package cma), the paper's 2 million steps.
A row is a run with one seed; its `curve` has a point an iteration, times are without compiling, in one thread.
`failed`: steps of the simulation that had no certificate. The machine's load is in `environment`; CPU seconds grow
with it too, for two cores share their caches.
"""

import importlib
import pathlib
import sys
from typing import Any

import common

common.one_thread()

import jax  # noqa: E402  after the word about threads

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))


def rounded(row: dict) -> dict:
    return {k: common.digits(x, 4) if isinstance(x, float) else x for k, x in row.items()}


def swimmer(seed: int, iterations: int, steps: int) -> dict:
    cma: Any = importlib.import_module("train_swimmer_cma")
    curve, best = cma.train(seed, iterations, steps)
    last = curve[-1]
    return {
        "task": "paper_swimmer", "trainer": "CMA-ES", "seed": seed, "precision": "float32",
        "env_steps": last["env_steps"],
        "best_m_s": common.digits(max(r["best_m"] for r in curve) / (0.05 * steps)),
        "failed": sum(r["failed"] for r in curve), "cpu_s": common.digits(last["cpu_s"]),
        "wall_s": common.digits(last["wall_s"]), "best": [common.digits(x, 6) for x in best],
        "curve": [rounded(r) for r in curve],
    }  # fmt: skip


def measure(task: str, seed: int, *size) -> dict:
    jax.config.update("jax_enable_x64", False)
    return {"paper_swimmer": swimmer}[task](seed, *size)


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("paper_swimmer", 0, 2, 20)]
    return [("paper_swimmer", seed, 100, 1000) for seed in range(3)]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    tasks = list(dict.fromkeys(r["task"] for r in rows))
    fig, axes = plt.subplots(1, len(tasks), figsize=(5 * len(tasks), 3.5), squeeze=False)
    for ax, task in zip(axes[0], tasks):
        for r in (r for r in rows if r["task"] == task):
            x = [p["env_steps"] / 1e6 for p in r["curve"]]
            figure = "median_m" if "median_m" in r["curve"][0] else "m_s"
            ax.plot(x, [p[figure] for p in r["curve"]], label=f"seed {r['seed']}, {r['cpu_s']:.0f} s of CPU")
            ax.set(
                title=f"{task}, {r['trainer']}",
                xlabel="million steps",
                ylabel="m, median" if "median" in figure else "m/s",
            )
        ax.legend()
    fig.suptitle(title, fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main() -> None:
    common.run("training", __doc__, plan, measure, picture, threads="1")


if __name__ == "__main__":
    main()
