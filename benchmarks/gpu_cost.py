"""What a step costs on a GPU, without having one: compiled for an H100, kernels and bytes counted.

    python benchmarks/gpu_cost.py [--quick] [--only TEXT] [--name gpu_cost] [--out DIR]

Wants XLA's compiler for CUDA, in an environment of its own (5.5 GB; no driver, no card):

    pip install "jax[cuda12]" && pip install -e ".[models,rl]" mujoco-mjx

Where that is missing, one row says so. Rows: a robot, precision and number of lanes; `schedule` is "step" (a vmapped
step) or "iteration" (a rollout_batch, whose pass is an iteration and what admits and retires lanes); `kernel` as in
Options. `pass_kernels` and `pass_kb`: of the body of the solver's loop, the kernels and what they read and write, kB a
lane; a branch that may be left out counts as taken, and of a kernel of Pallas its room counts, once. `step_kernels`,
`step_kb`: what is round that loop, begin and end of a step. `compile_s`: CPU seconds.

Two bounds from below of a pass, us a lane: `by_memory`, its bytes over the bandwidth, and `by_launches`, its kernels
times an assumed 2.5 us to start one. Neither knows caches, which hold what few lanes move.
"""

import functools
import os
import pathlib
import re
import sys
import time
from importlib.util import find_spec
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # where the arrays of the models are; what is compiled is for a GPU

import jax
import jax.numpy as jnp
from common import digits, run
from truth import BARKOUR, in_wheel

import pbad_jax as pbad

BANDWIDTH, LAUNCH = 3.35e12, 2.5e-6  # byte/s of an H100; s to start a kernel, assumed
LANES = (4096, 65536)
ROBOTS = (("chain", 0.05), ("ant", 0.05), ("humanoid", 0.02), ("spider", 0.05), ("quadruped", 0.02))
STEPS = 10  # of a rollout by iterations

# NVIDIA's numbers of an H100 SXM, as XLA reads them
H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84978434048
  shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""

# --- compiling for a card that is not there ---------------------------------------------------------------


@functools.cache
def card() -> Any:
    """Where arguments are said to be, so that XLA compiles for an H100."""
    import jax_plugins.xla_cuda12 as plugin  # pyright: ignore[reportMissingImports]
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    try:
        plugin.initialize()
    except Exception:  # it has been already, with whatever error JAX has for that
        pass
    there = topologies.get_topology_desc("h100", "cuda", topology="1x1x1", target_config=H100)
    return NamedSharding(Mesh(there.devices, ("device",)), PartitionSpec())


def compiled(function, *given) -> tuple[str, float]:
    """The optimised program of a function of such arguments, as text, and the CPU seconds that it took."""
    here, jax.default_backend = jax.default_backend, lambda: "gpu"  # what is chosen while tracing is chosen for one
    try:
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=card()), given)
        began = time.process_time()
        program = jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",)).compile()
        return program.as_text() or "", time.process_time() - began
    finally:
        jax.default_backend = here


# --- counting ---------------------------------------------------------------------------------------------

SIZES = {"f32": 4, "f64": 8, "s32": 4, "u32": 4, "s64": 8, "u64": 8, "pred": 1, "s8": 1, "u8": 1, "bf16": 2}
KERNELS = {"fusion", "dot", "custom-call", "copy", "reduce", "transpose", "gather", "scatter", "concatenate", "sort"}
KERNELS |= {"dynamic-slice", "dynamic-update-slice", "select-and-scatter", "convert", "add", "multiply", "select"}
OPERATION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)(.*)")
SHAPE = re.compile(r"\b(" + "|".join(SIZES) + r")\[([\d,]*)\]")
CALLED = re.compile(r"(?:to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
BODY = re.compile(r"body=%?([\w.\-]+)")


class Cost(NamedTuple):
    """Kernels, and bytes between them and memory."""

    kernels: int = 0
    moved: int = 0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(self.kernels + other.kernels, self.moved + other.moved)


class Computation(NamedTuple):
    """What a computation does itself, the others that it has as calls and branches, and the bodies of its loops."""

    own: Cost
    calls: list[str]
    loops: list[str]


def bytes_of(shape: str) -> int:
    total = 0
    for kind, sizes in SHAPE.findall(shape):
        count = 1
        for size in filter(None, sizes.split(",")):
            count *= int(size)
        total += count * SIZES[kind]
    return total


def read(program: str) -> tuple[dict[str, Computation], str]:
    """The computations of an optimised program by name, and the name of its entry."""
    found: dict[str, Computation] = {}
    entry = ""
    for block in re.split(r"\n(?=(?:ENTRY )?%?[\w.\-]+ \(.*\) -> .*\{\n)", program):
        head = re.match(r"(ENTRY )?%?([\w.\-]+) \(", block)
        if head is None:
            continue
        title = str(head.group(2))
        entry = title if head.group(1) else entry
        own, calls, inner, shapes = Cost(), [], [], {}
        for line in block.split("\n")[1:]:
            m = OPERATION.match(line)
            if m is None:
                continue
            name, shape, operation, operands, more = m.groups()
            shapes[name] = shape
            if operation in KERNELS:
                moved = bytes_of(shape) + sum(bytes_of(shapes.get(x, "")) for x in re.findall(r"%([\w.\-]+)", operands))
                own = own.plus(Cost(1, moved))
            elif operation == "while":
                inner += BODY.findall(more)
            elif operation in ("call", "conditional", "async-start"):
                calls += CALLED.findall(more)
                calls += [x.strip().lstrip("%") for each in BRANCHES.findall(more) for x in each.split(",")]
        found[title] = Computation(own, calls, inner)
    return found, entry


def whole(computations: dict[str, Computation], name: str) -> tuple[Cost, list[str]]:
    """Of a computation with all that it calls, and the bodies of the loops in these."""
    at = computations[name]
    total, inner = at.own, list(at.loops)
    for called in at.calls:
        if called in computations:
            cost, more = whole(computations, called)
            total, inner = total.plus(cost), inner + more
    return total, inner


def costs(program: str, schedule: str) -> tuple[Cost, Cost]:
    """A pass, the body of the solver's loop with the loops in it; and what is round that loop.

    Of steps that is all that is in no loop; of iterations the body of another loop, which admits and retires lanes.
    """
    computations, entry = read(program)

    def unrolled(name: str) -> Cost:
        cost, inner = whole(computations, name)
        return functools.reduce(Cost.plus, map(unrolled, inner), cost)

    def heaviest(names: list[str]) -> str:
        return max(names, key=lambda name: unrolled(name).moved)

    outside, bodies = whole(computations, entry)
    if schedule == "iteration":
        outside, bodies = whole(computations, heaviest(bodies))
    return unrolled(heaviest(bodies)), outside


# --- programs ---------------------------------------------------------------------------------------------


def robot(name: str, precision: str) -> pbad.Model:
    if name == "chain":
        return pbad.chain(10, dtype=jnp.dtype(precision))
    if name == "quadruped":
        return pbad.load(in_wheel("mujoco", BARKOUR), unsupported="warn", dtype=jnp.dtype(precision))[0]
    import environments

    return environments.robot(name, precision)


def measure(name: str, dt: float, scheme: str, precision: str, lanes: int, schedule: str, kernel: str) -> dict:
    row = {"robot": name, "dt": dt, "scheme": scheme, "precision": precision, "lanes": lanes, "schedule": schedule}
    row["kernel"] = kernel
    if find_spec("jax_plugins") is None or find_spec("jax_plugins.xla_cuda12") is None:
        return row | {"skipped": 'no compiler for CUDA here: pip install "jax[cuda12]" in an environment of its own'}
    model = robot(name, precision)
    options = pbad.Options(dt=dt, scheme=scheme, kernel=kernel)
    states = jax.eval_shape(jax.vmap(lambda v: pbad.make_state(model, v=v)), jnp.zeros((lanes, model.nv), model.dtype))
    controls = jax.ShapeDtypeStruct((lanes, *(() if schedule == "step" else (STEPS,)), model.nu), model.dtype)

    def program(states, controls):
        if schedule == "step":
            return jax.vmap(pbad.make_step(options), (None, 0, 0))(model, states, controls)
        return pbad.rollout_batch(model, states, controls, STEPS, options)

    text, seconds = compiled(program, states, controls)
    one, outside = costs(text, schedule)
    return row | {
        "pass_kernels": one.kernels,
        "pass_kb": digits(one.moved / lanes / 1e3),
        "step_kernels": outside.kernels,
        "step_kb": digits(outside.moved / lanes / 1e3),
        "by_memory": digits(1e6 * one.moved / lanes / BANDWIDTH),
        "by_launches": digits(1e6 * LAUNCH * one.kernels / lanes),
        "compile_s": digits(seconds),
    }


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("chain", 0.05, "radau1", "float32", 256, "step", "pallas")]
    every = [
        (name, dt, "radau1", precision, LANES[0], schedule)
        for name, dt in ROBOTS
        for precision in ("float32", "float64")
        for schedule in ("step", "iteration")
    ]
    every += [(name, dt, "radau1", "float32", LANES[1], "step") for name, dt in ROBOTS[:3]]
    every += [(name, dt, "radau2", "float32", LANES[0], "step") for name, dt in ROBOTS]
    return [(*case, kernel) for case in every for kernel in ("xla", "pallas")]


if __name__ == "__main__":
    sys.path.append(str(pathlib.Path(__file__).parent))
    run("gpu_cost", __doc__, plan, measure)
