"""All benchmarks, one after the other, each in a process of its own.

    python -m benchmarks                    # the plan of about an hour on two cores
    python -m benchmarks --full             # everything, hours
    python -m benchmarks --gpu              # all figures of a GPU, nine minutes; with --quick a rehearsal
    python -m benchmarks --quick            # does every script run? Two at a time, so its figures mean nothing
    python -m benchmarks gpu_cost rotation  # these, each with its own usual plan and without a limit
    python -m benchmarks --list
    python -m benchmarks compare OLD.json NEW.json

Files go to `--out`, by default benchmarks/runs, which git ignores: what is worth keeping is copied to
benchmarks/results. The last table, also in plan.json, says what ran, how long, and what it wrote; exit status 1 where
one failed or took more than its budget. Engines that are not installed are rows that say so, in the files of the
scripts that want them.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).parent
RIVALS = ("mjx", "brax", "jaxsim")


class Script(NamedTuple):
    """A benchmark. `minutes`: of the plan of an hour, on two quiet cores; stopped after three times as many."""

    name: str
    minutes: float
    wants: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # what makes the plan of an hour shorter than the script's own
    left_out: str = ""  # of the plan of an hour


SCRIPTS = (
    Script("step_time", 4.5, (), (), "20 and 80 links, radau2 and radau3 of long chains, 1024 lanes, lanes of radau3"),
    Script("linear_solver", 1.7),
    Script("small_systems", 0.5),
    Script("pass_time", 0.5, (), ("--only", "'radau2', 0.02"), "radau(1), the ant, a lane of many"),
    Script("optimisers", 1.7),
    Script("robustness", 1.5, (), ("--only", "0.128"), "step sizes below 0.128 s"),
    Script("float32", 1.2, (), ("--only", "radau2"), "all schemes but radau(2)"),
    Script("paper_scaling", 1.7, (), (), "20, 40, 60, 80, 400 and 1000 links"),
    Script("paper_time", 2.1, (), (), "0.0005, 0.005 and 0.02 s"),
    Script("paper_energy", 0.6, (), ("--only", ">, 10, "), "100 links"),
    Script("contact", 5, (), ("--only", "plate"), "the snake"),
    Script("environments", 3, ("gymnasium",), ("--only", "spider"), "gymnasium's robots, lanes 1 and 1024"),
    Script("batch", 7.2, (), ("--only", "uneven"), "even batches, contact, sick lanes, memory, cost of a lane"),
    Script("gradients", 4.5, RIVALS, (), "rivals with 1000 steps or 10 links, 40 links, joint limits, memory"),
    Script("throughput", 5.2, (*RIVALS, "gymnasium"), (), "batches, the swing in three dimensions, the ant"),
    Script("work_precision", 3.8, RIVALS, ("--only", "'arm'"), "the chain, the beam, the drop, 128 chains"),
    Script("stability", 1.5, (), ("--only", "'chain:10'"), "40 and 100 links, the robots"),
    Script("rotation", 0.5, (), ("--only", "radau2"), "all schemes but radau(2)"),
    Script("error", 0.5, ("gymnasium",), ("--only", "'chain'"), "all systems but the chain"),
    Script("truth", 1.7, ("gymnasium",), ("--quick",), "all but a rehearsal"),
    Script("compile_memory", 2.4, RIVALS, (), "20 links and more, rollouts"),
    Script("many_lanes", 9, ("mjx",), (), "single precision, by steps"),
    Script("one_thread", 1.8, RIVALS[1:], (), "dirk4 and semi-implicit Euler"),
    Script("survey", 0.5, ("gymnasium",), ("--only", "gymnasium/"), "all but gymnasium's robots"),
    Script("standing", 1, (), ("--quick",), "all but a rehearsal"),
    Script("training", 0.5, ("cma",), ("--quick",), "all but a rehearsal"),
    Script("unroll", 0.5, (), ("--quick",), "all but a rehearsal"),
    Script("gpu_cost", 0.1, ("jax_plugins.xla_cuda12",), ("--quick",), "all but a chain"),
    Script("gpu", 1, ("mjx", "gymnasium"), ("--quick",), "all but a rehearsal of --gpu"),
)
QUICK_BUDGET, QUICK_JOBS = 170.0, 2  # s a script


class Outcome(NamedTuple):
    name: str
    seconds: float
    status: str  # "ok" or what went wrong
    files: list[str]


def installed(engine: str) -> bool:
    """Whether an engine can be imported, without doing so."""
    try:
        return importlib.util.find_spec("mujoco.mjx" if engine == "mjx" else engine) is not None
    except ModuleNotFoundError:
        return False


def command(script: Script, quick: bool, full: bool) -> list[str]:
    """What this plan adds to the script's own command line."""
    if quick:
        return ["--quick"]
    if full:
        return ["--full"] if script.left_out and not script.arguments else []
    return list(script.arguments)


def surroundings(out: pathlib.Path, quick: bool) -> dict[str, str]:
    """Where scripts only have to run: less optimisation, and they share what was compiled; else no cache at all."""
    found = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, (str(HERE.parent), os.getenv("PYTHONPATH")))))
    found["JAX_ENABLE_COMPILATION_CACHE"] = str(quick).lower()
    if quick:
        found.setdefault("JAX_COMPILATION_CACHE_DIR", str(out / "cache"))
        found |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        found["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
    return found


def stop(process: subprocess.Popen) -> None:
    """The script and the engines it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(script: Script, arguments: list[str], out: pathlib.Path, budget: float, quick: bool) -> Outcome:
    """One script; what it prints goes to NAME.log."""
    words = [sys.executable, str(HERE / f"{script.name}.py"), *arguments, "--out", str(out)]
    log, began, at = out / f"{script.name}.log", time.perf_counter(), time.time()
    with log.open("w") as file:
        process = subprocess.Popen(
            words, stdout=file, stderr=subprocess.STDOUT, env=surroundings(out, quick), start_new_session=True
        )
        try:
            code = process.wait(budget)
            status = "ok" if code == 0 else f"failed: exit status {code}"
        except subprocess.TimeoutExpired:
            status = f"failed: more than {budget:.0f} s"
            stop(process)
        except BaseException:  # an interrupt ends what was started
            stop(process)
            raise
    written = (out / f"{script.name}{ending}" for ending in (".json", ".png"))
    files = [path.name for path in written if path.exists() and path.stat().st_mtime >= at - 1]
    if status == "ok" and not files:
        status = "failed: wrote nothing"
    print(f"{script.name}: {status}, {time.perf_counter() - began:.0f} s", flush=True)
    if status != "ok":
        print(*log.read_text().splitlines()[-15:], sep="\n", flush=True)
    return Outcome(script.name, time.perf_counter() - began, status, files)


def listing() -> None:
    print(f"{'script':18} {'minutes':>7}  left out of the plan of an hour")
    for s in SCRIPTS:
        print(f"{s.name:18} {s.minutes:7g}  {s.left_out}")
    print(f"{'together':18} {sum(s.minutes for s in SCRIPTS):7g}")


def table(outcomes: list[Outcome], out: pathlib.Path) -> None:
    print(f"\n{'script':18} {'seconds':>7}  files in {out}")
    for o in outcomes:
        print(f"{o.name:18} {o.seconds:7.0f}  {o.status}: {', '.join(o.files) or 'none'}")
    print(f"{'together':18} {sum(o.seconds for o in outcomes):7.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="SCRIPT", help="these, with their own plans and without a limit")
    parser.add_argument("--quick", action="store_true", help="small cases: does every script run?")
    parser.add_argument("--full", action="store_true", help="every case of every script, and no budget")
    parser.add_argument("--gpu", action="store_true", help="only gpu.py, whole")
    parser.add_argument("--only", default="", help="scripts whose names have this")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "runs", help="folder to write to")
    parser.add_argument("--list", action="store_true", help="the scripts, their minutes, what is left out")
    arguments = parser.parse_args()
    if arguments.list:
        listing()
        return 0
    chosen = [s for s in SCRIPTS if arguments.only in s.name]
    if arguments.gpu:
        chosen = [s._replace(minutes=9 / 3, arguments=()) for s in SCRIPTS if s.name == "gpu"]
    if arguments.names:
        unknown = set(arguments.names) - {s.name for s in SCRIPTS}
        if unknown:
            parser.error(f"there is no script {min(unknown)!r}; see --list")
        chosen = [s._replace(minutes=float("inf"), arguments=()) for s in SCRIPTS if s.name in arguments.names]
    if not chosen:
        parser.error(f"no script is named like {arguments.only!r}")
    for s in chosen:
        missing = [engine for engine in s.wants if not installed(engine)]
        if missing:
            print(f"{s.name}: not installed here, and rows that say so: {', '.join(missing)}")
    out, quick = arguments.out.resolve(), arguments.quick
    out.mkdir(parents=True, exist_ok=True)

    def one(s: Script) -> Outcome:
        budget = QUICK_BUDGET if quick else float("inf") if arguments.full else 180 * s.minutes
        return run(s, command(s, quick, arguments.full), out, min(budget, 1e6), quick)

    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(QUICK_JOBS if quick else 1) as pool:
        outcomes = list(pool.map(one, chosen))
    seconds = time.perf_counter() - began
    table(outcomes, out)
    print(f"{'at the clock':18} {seconds:7.0f}")
    from benchmarks import common  # JAX and its start, of which --list has no need

    plan = "quick" if quick else "full" if arguments.full else "usual"
    rows = [o._replace(seconds=round(o.seconds, 1))._asdict() for o in outcomes]
    common.write("plan", rows, out, plan=plan, seconds=round(seconds, 1))
    return int(any(o.status != "ok" for o in outcomes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        from benchmarks import compare

        sys.exit(compare.main(sys.argv[2:]))
    sys.exit(main())
