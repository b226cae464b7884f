"""What compiling costs, in time and memory, against the number of links; beside MJX, Brax and jaxsim.

    python benchmarks/compile_memory.py [--quick] [--full] [--name compile_memory] [--out DIR]

The chain of 5 to 100 links (universal joints), float64, one lane; "step" is one step, "rollout" a scan of 100 of them
that keeps q. Every engine and number of links has a process of its own, one at a time, without the cache of compiled
programs. `trace_s`: to trace and lower; `compile_s`: that and XLA; `cpu_s`: the CPU seconds of all this. `fusions`: the
kernels that XLA compiles, each in tens of milliseconds. `temporary_bytes`: what XLA wants for intermediate results of
the program; `process_mib`: the most that the process had resident, JAX and the engine included, `process_mib_before`
before anything was compiled. Who takes more than 100 s is stopped, and who takes more than half of it is not asked for
more links. Rivals: pip install mujoco-mjx brax jaxsim.
"""

import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import rivals
from common import compile_sums, run
from gradients import engine, ours, temporary_bytes
from remotes import Remote

LINKS, STEPS, PATIENCE = (5, 10, 20, 40, 100), 100, 100.0  # s
OURS = {"radau1": ("radau1", "dense"), "radau1 tree": ("radau1", "tree"), "radau2": ("radau2", "auto")}
IN_JAX = ("mjx", "brax", "jaxsim")


def resident() -> int:
    """The most this process has had since it began, MiB; 0 where there is no /proc."""
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024)


class Worker:
    """One engine with one number of links, in a process of its own."""

    def __init__(self, name: str, links: int):
        rivals.quiet()
        sys.setrecursionlimit(10000)
        jax.config.update("jax_enable_compilation_cache", False)
        if name in OURS:
            scheme, algebra = OURS[name]
            self.engine = ours(scheme, links, linear_solver=algebra)
        else:
            self.engine = engine(name, links)

    def compile(self, what: str) -> dict:
        e = self.engine
        q, v = (jnp.zeros(n) for n in (e.nq, e.dofs))
        state, before = jax.jit(lambda q, v: e.start(e.model, q, v))(q, v), resident()

        def step(state, dt):
            return e.step(e.model, state, dt)

        def rollout(state, dt):
            def one(s, _):
                s = step(s, dt)
                return s, e.q(s)

            return jax.lax.scan(one, state, None, length=STEPS)

        began, cpu = time.perf_counter(), time.process_time()
        lowered = jax.jit({"step": step, "rollout": rollout}[what]).lower(state, jnp.asarray(0.001))
        traced = time.perf_counter() - began
        program = lowered.compile()
        spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        return {
            "trace_s": round(traced, 2),
            "compile_s": round(spent, 2),
            "cpu_s": round(cpu, 2),
            "fusions": (program.as_text() or "").count(" fusion("),
            "temporary_bytes": temporary_bytes(program),
            "process_mib_before": before,
            "process_mib": resident(),
        }


gave_up: dict[tuple[str, str], str] = {}  # (engine, program): why it is not asked for more links


def measure(name: str, program: str, links: int) -> dict:
    row = {"engine": name, "program": program, "links": links}
    if (name, program) in gave_up:
        return row | {"failure": f"not tried: {gave_up[name, program]}"}
    remote, began = Remote(Worker, name, links), time.perf_counter()
    remote.ask("compile", program)
    found = remote.answer(PATIENCE)
    spent = time.perf_counter() - began
    remote.stop()
    if "failure" in found:
        gave_up[name, program] = f"{links} links: {found['failure']}"
    elif spent > PATIENCE / 2:
        gave_up[name, program] = f"{links} links took {spent:.0f} s"
    return row | found


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("radau1", "step", 2), ("mjx", "step", 2)]
    return [case for case in full() if case[1] == "step" and case[2] <= 10]


def full() -> list[tuple]:
    return [(name, program, n) for n in LINKS for name in (*OURS, *IN_JAX) for program in ("step", "rollout")]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(12, 4.2), layout="constrained")
    shown = (
        ("cpu_s", "time to compile, CPU s", "linear"),
        ("temporary_bytes", "temporary memory, bytes", "log"),
        ("process_mib", "process, MiB", "linear"),
    )
    for axes, (key, label, scale) in zip(figure.subplots(1, 3), shown):
        for name, mark in zip((*OURS, *IN_JAX), "osx^Dv"):
            for program, line in (("step", "-"), ("rollout", "--")):
                own = [r for r in rows if (r["engine"], r["program"]) == (name, program) and r.get(key)]
                how = {"color": "black" if name in OURS else "tab:gray", "marker": mark, "ms": 5, "lw": 1, "ls": line}
                if own:
                    axes.plot([r["links"] for r in own], [r[key] for r in own], label=f"{name}, {program}", **how)
        axes.set(xscale="log", yscale=scale, xlabel="links", ylabel=label, xticks=LINKS, xticklabels=LINKS)
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.minorticks_off()
        axes.grid(alpha=0.3, which="both")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), fontsize=8, ncols=6, loc="outside lower center")
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    compile_sums()
    run("compile_memory", __doc__, plan, measure, picture, full, steps=STEPS, patience_s=PATIENCE)


if __name__ == "__main__":
    main()
