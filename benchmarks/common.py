"""What every benchmark shares: where it ran, how it was timed, how it is written down."""

import argparse
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import jax

RESULTS = pathlib.Path(__file__).parent / "results"
OWN_SUMS = "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_DOT"


def compile_sums() -> None:
    """For comparisons, before JAX starts: XLA compiles every engine's sums instead of handing them to YNNPACK.

    jaxlib 0.10 hands over also sums of three numbers, on CPUs; we have our own sums (`pbad_jax/math/small.py`),
    the rivals do not.
    """
    if version("jaxlib").startswith("0.10."):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {OWN_SUMS}".strip()


def one_thread() -> None:
    """For one lane, before JAX makes an array: no thread pool, whose use costs more than it gains (one_thread.py)."""
    os.environ["PJRT_NPROC"] = "1"


def environment() -> dict:
    """Device, versions, commit, load: what a figure is worth nothing without."""
    versions = {}
    for package in ("jax", "jaxlib", "numpy", "optax", "mujoco", "mujoco-mjx", "gymnasium", "brax", "jaxsim", "cma"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    device = jax.devices()[0]
    return {
        "device": device.device_kind if device.platform != "cpu" else processor(),
        "platform": device.platform,
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "versions": versions,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "threads": os.environ.get("PJRT_NPROC", "one a core"),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def commit() -> str:
    """PBAD_COMMIT where the tree travels without its history, else git's own word."""
    try:
        git = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent
        )
        return os.environ.get("PBAD_COMMIT") or git.stdout.strip() or "unknown"
    except OSError:
        return os.environ.get("PBAD_COMMIT", "unknown")


def processor() -> str:
    try:
        lines = open("/proc/cpuinfo").read().splitlines()
        return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def timed(function, *args, repeats: int = 5, budget: float = 3.0) -> dict:
    """Wall seconds of calls that have been compiled and warmed: median, least, and how many."""
    jax.block_until_ready(function(*args))
    samples = []
    began = time.perf_counter()
    while len(samples) < repeats and (not samples or time.perf_counter() - began < budget):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        samples.append(time.perf_counter() - start)
    return {"median": statistics.median(samples), "least": min(samples), "repeats": len(samples)}


def compiled(function, *args):
    """The compiled function and the seconds that tracing, lowering and compiling took."""
    start = time.perf_counter()
    executable = jax.jit(function).lower(*args).compile()
    return executable, time.perf_counter() - start


def digits(x, count: int = 3) -> float | None:
    """A figure for JSON, which knows no NaN and no infinity: None."""
    return float(f"{x:.{count}g}") if math.isfinite(x) else None


def write(name: str, rows: list[dict], out: pathlib.Path = RESULTS, **more) -> pathlib.Path:
    """results/NAME.json with the environment and one row a measurement."""
    path = out / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), **more, "rows": rows}, indent=1) + "\n")
    return path


def run(
    name: str,
    doc: str | None,
    plan: Callable[[bool], list[tuple]],
    measure,
    picture=None,
    full: Callable[[], list[tuple]] | None = None,
    **more,
) -> None:
    """A benchmark's command line: `measure(*case)` for every case of `plan(quick)`, written after each, then drawn.

    measure: the row of a case, or a list of its rows.
    picture: (rows, path of the PNG, title). more: what else the JSON should say.
    full: the plan of `--full`, where that is longer than the usual one.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cases, seconds: does the script run?")
    if full:
        parser.add_argument("--full", action="store_true", help="every case; may take more than an hour")
    parser.add_argument("--name", default=name, help="of the files that are written")
    parser.add_argument("--only", default="", help="of the plan's cases those that name this, e.g. 3d; use with --name")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, help="folder to write to")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows: list[dict] = []
    if full and arguments.full:
        more["plan"], cases = "full", full()
    else:
        more["plan"], cases = "quick" if arguments.quick else "usual", plan(arguments.quick)
    if arguments.only:
        more["plan"] += f", only {arguments.only}"
    cases = [case for case in cases if arguments.only in repr(case)]
    path = write(arguments.name, rows, arguments.out, **more)
    for i, case in enumerate(cases):
        found = measure(*case)
        for row in found if isinstance(found, list) else [found]:
            rows.append(row)
            print(f"{i + 1}/{len(cases)}", {k: v for k, v in row.items() if not isinstance(v, list)}, flush=True)
        path = write(arguments.name, rows, arguments.out, **more)
    if picture is None:
        return
    os.environ["MPLBACKEND"] = "Agg"  # no window
    try:
        picture(rows, path.with_suffix(".png"), f"{path.stem}: {jax.devices()[0].device_kind}, jax {jax.__version__}")
    except ImportError:
        print("no matplotlib here: no picture")
