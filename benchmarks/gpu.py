"""Every figure of a GPU in one command of nine minutes: correctness, batches, robots, MJX beside, a profile.

    python -m benchmarks --gpu [--quick] [--out DIR]          (or python benchmarks/gpu.py)

Groups of cases, a process each: all compile side by side, then one after another has the machine to itself. What is not
compiled in time has a row that says so. "correct": one step and 100 in both precisions against the CPU in float64, and
whether a repeat is bit-equal. "chain": steps a second of 10 links against lanes, by steps and by iterations. "robots":
control steps a second under random actions, as environments.py. "paper": ten steps of 100 trajectories against links,
and of chains of 10 links against trajectories, here and ("cpu4") on four cores of the same machine. "gradient": of 100
steps. "mjx": the same on the same device. Rows of step programs: `iterations`, mean, and of the slowest lane (by
iterations: the slowest step of a lane); `temporary_mib` of the program. Profiled ones: kernels a step, the share of
the time in which one ran, and those that took longest.

On a CPU it runs too (`--quick`: a rehearsal), without a profile.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import gzip
import importlib
import json
import multiprocessing
import os
import pathlib
import queue
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

BUDGET = 530.0  # s, of which at most COMPILING before anything is measured
COMPILING = 280.0
STEPS = 20  # that are timed
PAPER_STEPS, PAPER_DT = 10, 0.05
CORES = 4  # the paper's CPU


class Case(NamedTuple):
    """What is compiled and then timed. `make`: () -> (function, arguments), both made in the group's process."""

    row: dict
    make: Callable[[], tuple[Callable, tuple]]
    measure: Callable[[dict, Any, tuple], dict]


# --- cases -----------------------------------------------------------------------------------------------


def chain_states(model, links: int, lanes: int):
    from step_time import start_states

    return start_states(model, links, lanes)


def chain(links: int, lanes: int, dtype: str):
    import jax
    import jax.numpy as jnp

    import pbad_jax as pbad

    model = pbad.chain(links, dtype=jnp.dtype(dtype))
    step = pbad.make_step(pbad.Options(dt=PAPER_DT, scheme="radau1"))

    def program(states):
        after, info = jax.vmap(step, (None, 0))(model, states)
        return after, (info.iterations, info.status, info.substeps)

    return program, (chain_states(model, links, lanes),)


def batch(links: int, lanes: int, dtype: str, scheme: str = "radau1"):
    """By iterations."""
    import jax.numpy as jnp

    import pbad_jax as pbad

    model = pbad.chain(links, dtype=jnp.dtype(dtype))
    options = pbad.Options(dt=PAPER_DT, scheme=scheme)

    def program(states):
        _, info = pbad.rollout_batch(model, states, None, PAPER_STEPS, options, schedule="iteration")
        return info.iterations, info.status, info.substeps

    return program, (chain_states(model, links, lanes),)


def robot(name: str, dt: float, lanes: int, dtype: str, kernel: str):
    import environments
    import jax
    import jax.numpy as jnp

    import pbad_jax as pbad

    model = environments.robot(name, dtype)
    low, high = (jnp.asarray(x, model.dtype) for x in environments.ranges(model, name))
    states = environments.starts(model, name, lanes)
    options = pbad.Options(dt=dt, scheme=environments.SCHEME, on_failure="substep", kernel=kernel)
    step = pbad.make_step(options)

    def program(states, key):
        u = jax.random.uniform(key, (lanes, model.nu), model.dtype, low, high)
        after, info = jax.vmap(step, (None, 0, 0))(model, states, u)
        bad = (info.status != 0) | ~jnp.all(jnp.isfinite(after.v), axis=-1)
        pick = lambda a, b: jnp.where(bad.reshape(-1, *(1,) * (a.ndim - 1)), b, a)  # noqa: E731
        return jax.tree.map(pick, after, states), (info.iterations, info.status, info.substeps)

    return program, (states, jax.random.key(1))


def robot_batch(name: str, dt: float, lanes: int, dtype: str, kernel: str):
    """By iterations: random actions of PAPER_STEPS control steps."""
    import environments
    import jax
    import jax.numpy as jnp

    import pbad_jax as pbad

    model = environments.robot(name, dtype)
    low, high = (jnp.asarray(x, model.dtype) for x in environments.ranges(model, name))
    u = jax.random.uniform(jax.random.key(0), (lanes, PAPER_STEPS, model.nu), model.dtype, low, high)
    options = pbad.Options(dt=dt, scheme=environments.SCHEME, on_failure="substep", kernel=kernel)

    def program(states, u):
        _, info = pbad.rollout_batch(model, states, u, PAPER_STEPS, options, schedule="iteration")
        return info.iterations, info.status, info.substeps

    return program, (environments.starts(model, name, lanes), u)


def gradient(links: int, lanes: int, dtype: str):
    """Of the last configuration's square by the first velocity, 100 steps."""
    import dataclasses

    import jax
    import jax.numpy as jnp

    import pbad_jax as pbad

    model = pbad.chain(links, dtype=jnp.dtype(dtype))
    states = chain_states(model, links, lanes)

    def end(v, state):
        options = pbad.Options(dt=0.01, scheme="radau1")
        path, _ = pbad.rollout(model, dataclasses.replace(state, v=v), None, 100, options, progress=False)
        return jnp.sum(path.q[-1] ** 2)

    both = jax.vmap(jax.value_and_grad(end))
    return (lambda s: both(s.v, s)), (states,)


def mjx_chain(links: int, lanes: int, dt: float):
    import jax
    import jax.numpy as jnp
    import rivals

    engine = rivals.mjx(rivals.chain_mjcf(links))
    q = jnp.zeros((lanes, engine.dofs)).at[:, 0].set(jnp.pi / 2)
    v = 0.1 * jax.random.normal(jax.random.key(0), (lanes, engine.dofs))
    states = jax.vmap(lambda q, v: engine.start(engine.model, q, v))(q, v)
    return jax.vmap(lambda s: engine.step(engine.model, s, dt)), (states,)


def mjx_robot(name: str, dt: float, lanes: int):
    """A control step: as many of the file's own steps as fit."""
    import environments
    import jax
    import jax.numpy as jnp

    mujoco: Any = importlib.import_module("mujoco")
    mjx: Any = importlib.import_module("mujoco.mjx")
    m = mujoco.MjModel.from_xml_path(str(environments.xml(name)))
    model, held = mjx.put_model(m), max(1, round(dt / m.opt.timestep))
    begun = environments.starts(environments.robot(name, "float32"), name, lanes)
    data = jax.vmap(lambda q, v: mjx.make_data(model).replace(qpos=q, qvel=v))(begun.q, begun.v)
    low, high = (jnp.asarray(x, jnp.float32) for x in m.actuator_ctrlrange.T)

    def program(data, key):
        u = jax.random.uniform(key, (lanes, m.nu), jnp.float32, low, high)

        def one(d, u):
            return jax.lax.fori_loop(0, held, lambda _, d: mjx.step(model, d), d.replace(ctrl=u))

        return jax.vmap(one)(data, u)

    return program, (data, jax.random.key(1))


# --- measures --------------------------------------------------------------------------------------------


def figures(row: dict, iterations, status, substeps, seconds: float, steps: int) -> dict:
    import numpy as np
    from common import digits

    lanes, dt = row["lanes"], row["dt"]
    return row | {
        "ms_per_step": digits(1e3 * seconds / steps),
        "steps_per_s": digits(lanes * steps / seconds),
        "simulated_s_per_s": digits(lanes * steps * dt / seconds),
        "iterations": digits(float(np.mean(iterations))),
        "iterations_slowest_lane": digits(float(np.mean(np.max(iterations, axis=-1)))),
        "failed_share": digits(float(np.mean(np.asarray(status) != 0))),
        "parts_share": digits(float(np.mean(np.asarray(substeps) > 1))),
    }


def stepping(row: dict, program, arguments: tuple, profiled: bool = False) -> dict:
    """STEPS steps from the start, each with the next key where it takes one."""
    import jax
    import numpy as np

    states, key = arguments[0], arguments[1:]
    keys = jax.random.split(key[0], STEPS + 1) if key else [None] * (STEPS + 1)
    call = lambda s, k: program(s, k) if key else program(s)  # noqa: E731
    jax.block_until_ready(call(states, keys[0]))
    out, spent, first = [], [], states
    for k in keys[1:]:
        began = time.perf_counter()
        states, found = jax.block_until_ready(call(states, k))
        spent.append(time.perf_counter() - began)
        out.append([np.asarray(x) for x in found])
    iterations, status, substeps = (np.stack(x) for x in zip(*out))
    row = figures(row, iterations, status, substeps, sum(spent), STEPS)
    return row | profile(lambda: call(first, keys[0]), profiled)


def calling(row: dict, program, arguments: tuple) -> dict:
    """Whole calls of PAPER_STEPS steps."""
    import numpy as np
    from common import timed

    iterations, status, substeps = (np.asarray(x) for x in program(*arguments))
    return figures(row, iterations, status, substeps, timed(program, *arguments, repeats=3)["least"], PAPER_STEPS)


def backwards(row: dict, program, arguments: tuple) -> dict:
    import jax.numpy as jnp
    from common import digits, timed

    finite = bool(jnp.all(jnp.isfinite(program(*arguments)[1])))
    seconds = timed(program, *arguments, repeats=3)["least"]
    return row | {"s": digits(seconds), "steps_per_s": digits(100 * row["lanes"] / seconds), "finite": finite}


def rival(row: dict, program, arguments: tuple) -> dict:
    import jax
    import jax.numpy as jnp
    from common import digits

    state, key = arguments[0], arguments[1:]
    jax.block_until_ready(program(*arguments))
    began = time.perf_counter()
    for _ in range(STEPS):
        state = program(state, *key)
    jax.block_until_ready(state)
    seconds = (time.perf_counter() - began) / STEPS
    finite = all(
        bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.floating)
    )
    lanes = row["lanes"]
    more = {"steps_per_s": digits(lanes / seconds), "simulated_s_per_s": digits(lanes * row["dt"] / seconds)}
    return row | {"ms_per_step": digits(1e3 * seconds), "finite": finite} | more


def profile(call: Callable, wanted: bool) -> dict:
    """Kernels of one call: how many, the share of the time in which one ran, the ten that took longest."""
    import jax
    from common import digits

    if not wanted or jax.default_backend() == "cpu":
        return {}
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        (trace,) = pathlib.Path(folder).glob("**/*.trace.json.gz")
        events = json.load(gzip.open(trace))["traceEvents"]
    named = lambda what: {  # noqa: E731
        (e["pid"], e.get("tid")): e["args"]["name"] for e in events if e.get("name") == what
    }
    devices = {pid for (pid, _), name in named("process_name").items() if "GPU" in name}
    streams = {place for place, name in named("thread_name").items() if place[0] in devices and "Stream" in name}
    kernels = [e for e in events if e.get("ph") == "X" and (e["pid"], e["tid"]) in streams]
    spent, count = Counter(), Counter(e["name"] for e in kernels)
    for e in kernels:
        spent[e["name"]] += e["dur"]
    busy = sum(spent.values())
    span = max(e["ts"] + e["dur"] for e in kernels) - min(e["ts"] for e in kernels)
    return {
        "kernels": len(kernels),
        "kernels_ms": digits(busy / 1e3),
        "busy_share": digits(busy / span),
        "longest": [[name[:60], count[name], digits(us / 1e3)] for name, us in spent.most_common(10)],
    }


# --- correctness -----------------------------------------------------------------------------------------

SIZES = ("float64", "float32")
CHECKED = (("chain:5:ball", "radau2"), ("spider", "radau1"), ("ant", "radau1"))


def path(name: str, scheme: str, dtype: str, device: str, kernel: str, lanes: int = 32, steps: int = 100):
    """Of all lanes 0.01 s a step, q after each of them."""
    import environments
    import jax
    import jax.numpy as jnp
    import numpy as np

    import pbad_jax as pbad

    with jax.default_device(jax.devices(device)[0]):
        if name.startswith("chain"):
            model = pbad.chain(5, joint="ball" if name.endswith("ball") else "universal", dtype=jnp.dtype(dtype))
            states = chain_states(model, 5, lanes) if not name.endswith("ball") else None
        else:
            model, states = environments.robot(name, dtype), None
        if states is None:
            v = jnp.asarray(0.5 * np.random.default_rng(0).normal(size=(lanes, model.nv)), model.dtype)
            states = jax.vmap(lambda v: pbad.make_state(model, None, v))(v)
        options = pbad.Options(dt=0.01, scheme=scheme, kernel=kernel)

        def program(states):
            paths, info = jax.vmap(lambda s: pbad.rollout(model, s, None, steps, options, progress=False))(states)
            return paths.q, info.status

        return program, (jax.device_put(states, jax.devices(device)[0]),)


def comparing(row: dict, program, arguments: tuple) -> dict:
    import numpy as np

    (q, status), (again, _) = program(*arguments), program(*arguments)
    failed, same = int(np.sum(np.asarray(status) != 0)), bool(np.array_equal(q, again))
    return row | {"q": np.asarray(q), "failed_steps": failed, "repeat_bit_equal": same}


def compared(rows: list[dict]) -> list[dict]:
    """Differences from the CPU in float64 instead of the paths themselves."""
    import numpy as np
    from common import digits

    judge = lambda r: r["device"] == "cpu" and r["dtype"] == "float64"  # noqa: E731
    reference = {(r["model"], r["scheme"]): r["q"] for r in rows if judge(r) and "q" in r}
    out = []
    for r in rows:
        q, there = r.pop("q", None), reference.get((r["model"], r["scheme"]))
        if q is not None and there is not None:
            gap = np.abs(q - there).max(axis=-1)
            r |= {"after_1_step": digits(gap[:, 0].max()), "after_100_steps": digits(gap[:, -1].max())}
            r |= {"after_100_steps_median": digits(float(np.median(gap[:, -1])))}
        if not judge(r) or "failure" in r:
            out.append(r)
    return out


# --- groups ----------------------------------------------------------------------------------------------


def chain_case(lanes: int, dtype: str, by: str, links: int = 10) -> Case:
    row = {"what": "chain", "engine": "radau1", "links": links, "lanes": lanes, "dt": PAPER_DT, "dtype": dtype}
    row["by"] = by
    if by == "iteration":
        return Case(row, functools.partial(batch, links, lanes, dtype), calling)
    measure = functools.partial(stepping, profiled=lanes == 4096)
    return Case(row, functools.partial(chain, links, lanes, dtype), measure)


def robot_case(name: str, dt: float, lanes: int, dtype: str, by: str = "step", kernel: str = "xla") -> Case:
    engine = "radau1" if kernel == "xla" else f"radau1, {kernel}"
    row = {"what": "robots", "engine": engine, "model": name, "lanes": lanes, "dt": dt, "dtype": dtype, "by": by}
    if by == "iteration":
        return Case(row, functools.partial(robot_batch, name, dt, lanes, dtype, kernel), calling)
    measure = functools.partial(stepping, profiled=lanes == 4096)
    return Case(row, functools.partial(robot, name, dt, lanes, dtype, kernel), measure)


def paper_case(links: int, lanes: int, scheme: str, where: str) -> Case:
    row = {"what": "paper", "engine": scheme, "links": links, "lanes": lanes, "dt": PAPER_DT, "dtype": "float64"}
    return Case(row | {"device": where}, functools.partial(batch, links, lanes, "float64", scheme), calling)


def check_case(name: str, scheme: str, dtype: str, device: str, kernel: str = "xla") -> Case:
    row = {"what": "correct", "model": name, "scheme": scheme, "dtype": dtype, "device": device}
    row |= {} if kernel == "xla" else {"kernel": kernel}
    return Case(row, functools.partial(path, name, scheme, dtype, device, kernel), comparing)


def gradient_case(lanes: int, dtype: str) -> Case:
    row = {"what": "gradient", "engine": "radau1", "links": 10, "lanes": lanes, "dt": 0.01, "dtype": dtype}
    return Case(row, functools.partial(gradient, 10, lanes, dtype), backwards)


def rival_case(lanes: int, name: str = "", dt: float = 0.001) -> Case:
    row = {"what": "robots" if name else "chain", "engine": "mjx", "lanes": lanes, "dt": dt, "dtype": "float32"}
    if name:
        return Case(row | {"model": name}, functools.partial(mjx_robot, name, dt, lanes), rival)
    return Case(row | {"links": 10}, functools.partial(mjx_chain, 10, lanes, dt), rival)


def groups(device: str, quick: bool) -> dict[str, list[Case]]:
    """By process; the first are measured first."""
    if quick:  # without MJX, which takes minutes to compile
        two = [chain_case(2, "float64", by, links=2) for by in ("step", "iteration")]
        checks = [check_case("chain:5:ball", "radau2", dtype, "cpu") for dtype in ("float64", "float32")]
        return {"correct": checks, "chain": two, "cpu4": [paper_case(2, 2, "radau1", "cpu4")]}
    sizes = (("float64", "cpu"), *((dtype, device) for dtype in SIZES))
    many = [(10, 100), (20, 100), (40, 100), (10, 1000)]
    return {
        "correct": [check_case(*case, *size) for case in CHECKED for size in sizes],
        "ant": [robot_case("ant", 0.05, b, "float32") for b in (4096, 65536)],
        "ant by iterations": [robot_case("ant", 0.05, b, "float32", "iteration") for b in (4096,)],
        "kernels, correct": [check_case(*case, size, device, "pallas") for case in CHECKED for size in SIZES],
        "kernels": [robot_case("ant", 0.05, b, "float32", kernel="pallas") for b in (4096, 65536)]
        + [robot_case("humanoid", 0.02, 4096, "float32", kernel="pallas")],
        "robots": [robot_case("humanoid", 0.02, 4096, "float32"), robot_case("spider", 0.05, 4096, "float32")],
        "chain": [chain_case(b, "float32", "step") for b in (1, 64, 1024, 4096, 65536)]
        + [chain_case(4096, "float32", "iteration")],
        "chain, float64": [chain_case(b, "float64", "step") for b in (1, 4096, 65536)]
        + [gradient_case(1024, "float32")],
        "mjx": [rival_case(b) for b in (4096, 65536)] + [rival_case(4096, "ant", 0.05)],
        "paper": [paper_case(n, b, "radau1", "gpu") for n, b in many]
        + [paper_case(n, 100, "legendre2", "gpu") for n in (10, 40)],
        "cpu4": [paper_case(n, b, "radau1", "cpu4") for n, b in many],
    }


def of_group(name: str, device: str, quick: bool, compiled, turn, rows, began: float) -> None:
    """In a process of its own: compile all, wait for the others, measure one at a time."""
    if name == "cpu4":
        os.environ["JAX_PLATFORMS"] = "cpu"
        cores = sorted(os.sched_getaffinity(0))[:CORES]
        os.sched_setaffinity(0, cores)
        os.environ["PJRT_NPROC"] = str(len(cores))
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    here = pathlib.Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent)]
    import jax
    from common import digits

    jax.config.update("jax_enable_x64", name != "mjx")  # MJX computes in float32 only without

    def program_of(case: Case):
        try:
            function, arguments = case.make()
            start = time.perf_counter()
            lowered = jax.jit(function).lower(*arguments)
            middle = time.perf_counter()
            program = lowered.compile()
            spent = {"lowering_s": digits(middle - start), "compile_s": digits(time.perf_counter() - middle)}
            memory = program.memory_analysis()
            if memory is not None:
                spent["temporary_mib"] = digits(memory.temp_size_in_bytes / 2**20)
            return case.row | spent, program, arguments
        except Exception as error:  # a rival that is not there, or what XLA cannot compile: a row says so
            return case.row | {"failure": f"{type(error).__name__}: {error}".splitlines()[0][:200]}, None, ()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = {pool.submit(program_of, case): case for case in groups(device, quick)[name]}
        left = max(1.0, COMPILING - (time.time() - began))
        done, late = concurrent.futures.wait(waiting, timeout=left)
        for future in late:
            future.cancel()
            rows.put(waiting[future].row | {"failure": f"not compiled after {COMPILING:.0f} s"})
        compiled.release()
        with turn:
            for future in (f for f in waiting if f in done):
                row, program, arguments = future.result()
                measure = waiting[future].measure
                try:
                    rows.put(row if program is None else measure(row, program, arguments))
                except Exception as error:
                    rows.put(row | {"failure": f"{type(error).__name__}: {error}".splitlines()[0][:200]})
        rows.put({"group": name})
        rows.close()
        rows.join_thread()
        os._exit(0)  # not after what is still being compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cases: does the script run?")
    parser.add_argument("--only", default="", help="groups whose names have this")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results")
    arguments = parser.parse_args()
    began = time.time()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    from common import write

    device = jax.default_backend()
    spawn = multiprocessing.get_context("spawn")
    rows_of: Any = spawn.Queue()
    compiled, names = spawn.Semaphore(0), [n for n in groups(device, arguments.quick) if arguments.only in n]
    turns = {name: spawn.Lock() for name in names}
    for turn in turns.values():
        turn.acquire()
    processes = {
        name: spawn.Process(
            target=of_group, args=(name, device, arguments.quick, compiled, turns[name], rows_of, began), daemon=True
        )
        for name in names
    }
    for process in processes.values():
        process.start()
    for _ in names:
        compiled.acquire(timeout=max(1.0, COMPILING + 20 - (time.time() - began)))
    print(f"compiled after {time.time() - began:.0f} s", flush=True)
    rows: list[dict] = []
    for name in names:
        turns[name].release()
        own, ended = [], False
        while not ended and time.time() - began < BUDGET and processes[name].is_alive() or not rows_of.empty():
            with contextlib.suppress(queue.Empty):
                row = rows_of.get(timeout=1.0)
                ended |= row.get("group") == name
                own += [row] if "what" in row else []
        own = compared(own) if name == "correct" else own
        for row in own:
            print({k: v for k, v in row.items() if k != "longest"}, flush=True)
        rows += own
        if not ended:
            rows.append({"group": name, "failure": f"ended early, or more than {BUDGET:.0f} s"})
        write("gpu", rows, arguments.out, seconds=round(time.time() - began))
    for process in processes.values():
        process.kill()
    with contextlib.suppress(ImportError):
        picture(rows, arguments.out / "gpu.png", jax.devices()[0].device_kind)


# --- picture ---------------------------------------------------------------------------------------------


def picture(rows: list[dict], path: pathlib.Path, device: str) -> None:
    os.environ["MPLBACKEND"] = "Agg"
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(12, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    good = [r for r in rows if "steps_per_s" in r or "ms_per_step" in r]
    lines(left, [r for r in good if r["what"] == "chain"], "lanes", "simulated_s_per_s", ("engine", "dtype", "by"))
    left.set(title="chain of 10 links", ylabel="simulated s per s")
    robots = [r for r in good if r["what"] == "robots"]
    names = [f"{r['model']} {r['dt']:g} s, {r['lanes']}\n{r['engine']} {r.get('by', '')}" for r in robots]
    colours = ["C3" if r["engine"] == "mjx" else "C0" for r in robots]
    middle.barh(names, [r["steps_per_s"] for r in robots], color=colours)
    middle.set(title="robots, random actions", xlabel="control steps per s")
    middle.invert_yaxis()
    middle.tick_params(axis="y", labelsize=7)
    paper = [r for r in good if r["what"] == "paper" and r["lanes"] == 100]
    lines(right, paper, "links", "ms_per_step", ("engine", "device"))
    links = sorted({r["links"] for r in paper})
    right.set(title="100 chains, float64", ylabel="ms a step of all", xscale="linear", xticks=links)
    figure.suptitle(device, fontsize=9)
    figure.savefig(path, dpi=110)


def lines(axes, rows: list[dict], x: str, y: str, keys: tuple[str, ...]) -> None:
    for i, kind in enumerate(dict.fromkeys(tuple(r.get(k, "") for k in keys) for r in rows)):
        own = sorted((r for r in rows if tuple(r.get(k, "") for k in keys) == kind), key=lambda r: r[x])
        name, mark = ", ".join(filter(None, kind)), "os^Dvx<>"[i % 8] + "-"
        axes.plot([r[x] for r in own], [r[y] for r in own], mark, label=name)
    axes.set(xscale="log", yscale="log", xlabel=x)
    axes.grid(alpha=0.3)
    if rows:
        axes.legend(fontsize=7)


if __name__ == "__main__":
    main()
