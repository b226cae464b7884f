"""What every benchmark shares: where it ran, how it was timed, how it is written down."""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version

import jax

RESULTS = pathlib.Path(__file__).parent / "results"


def environment() -> dict:
    """Device, versions, commit, load: what a figure is worth nothing without."""
    versions = {}
    for package in ("jax", "jaxlib", "numpy", "mujoco"):
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


def write(name: str, rows: list[dict], out: pathlib.Path | None = None, **more) -> pathlib.Path:
    """results/NAME.json with the environment and one row a measurement."""
    path = (out or RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), **more, "rows": rows}, indent=1) + "\n")
    return path
