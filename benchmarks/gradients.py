"""Reverse mode through a rollout beside the forward rollout: time, compile time, memory; with MJX, Brax and jaxsim.

    python benchmarks/gradients.py [--quick | --full] [--name gradients] [--out DIR]

The chain of 5, 10, 40 links (universal joints, 2 degrees of freedom each), float64, started straight and horizontal
with a small sideways swing. The loss is the sum of squares of the last joint angles; it is differentiated by the
initial velocity, a factor of all masses and gravity. Every engine runs in a process of its own, so that one that does
not finish compiling can be stopped; processes compile side by side, wait while another is timed, and repeats go round
all engines. On a busy machine read the CPU times. What an engine cannot do is written into its row as `failure`.
Rivals: pip install mujoco-mjx brax jaxsim.

Memory: `state_sizes_per_step` is the growth of the gradient program's temporary memory a step, in sizes of (q, v). The
rows "memory" compile the library's gradient program for 50, 100 and 200 steps and two iteration caps; nothing runs.
"""

import dataclasses
import functools
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import rivals
from common import compile_sums, run
from remotes import Remote

import pbad_jax as pbad

STEP_SIZES = {"pbad": (0.001, 0.02), "rival": (0.001,)}  # s; rivals cost the same at every dt
REPEATS, PATIENCE = 5, 15.0  # s for all repeats of one program
BUDGET = {"forward": 180.0, "gradient": 600.0}  # s for one compilation of one engine
OURS, RIVALS = ("radau1", "radau2"), ("mjx", "brax", "jaxsim")
LIMITED = {
    "mjx, joint limits": {},
    "mjx, joint limits, iterations=1": {"iterations": 1, "ls_iterations": 4},
}


def ours(scheme: str, n: int, **options) -> rivals.Engine:
    """The library as one Engine."""
    step = pbad.make_step(pbad.Options(0.001, scheme, **options))

    def changed(model, factor, gravity):
        g = jnp.array([0.0, 0.0, -1.0]) * gravity
        return dataclasses.replace(model, second_moment=factor * model.second_moment, gravity=g)

    model = pbad.chain(n)
    return rivals.Engine(
        model=model,
        nq=model.nq,
        dofs=model.nv,
        start=pbad.make_state,
        step=lambda model, s, dt: step(model, s, None, dt)[0],
        q=lambda s: s.q,
        v=lambda s: s.v,
        with_parameters=changed,
    )


def engine(name: str, n: int) -> rivals.Engine:
    if name in OURS:
        return ours(name, n)
    if name in LIMITED:
        return rivals.mjx(rivals.chain_mjcf(n, limited=True), **LIMITED[name])
    if name == "jaxsim":
        return rivals.jaxsim(n)
    return {"mjx": rivals.mjx, "brax": rivals.brax}[name](rivals.chain_mjcf(n))


def loss_of(e: rivals.Engine, steps: int):
    """((v0, factor of masses, gravity), dt) -> loss of a rollout, and the status of its last state.

    The model is closed over, as its users do: with joint axes that are not constants XLA recomputes MJX's products of
    quaternions in every fusion they reach, a thousand times slower forward (41 ms a step with 5 links).
    """

    def loss(parameters, dt):
        v, factor, gravity = parameters
        model = e.with_parameters(e.model, factor, gravity)
        q = jnp.zeros(e.dofs).at[0].set(jnp.pi / 2)
        state = e.start(model, q, v)
        state, _ = jax.lax.scan(lambda s, _: (e.step(model, s, dt), None), state, None, length=steps)
        return jnp.sum(e.q(state) ** 2), getattr(state, "status", jnp.int8(0))

    return loss


def parameters_of(e: rivals.Engine) -> tuple:
    v = np.zeros(e.dofs)
    v[1] = 0.2 * np.sqrt(2 * rivals.GRAVITY / e.dofs)
    return jnp.asarray(v), jnp.ones(()), jnp.asarray(rivals.GRAVITY)


def seconds() -> tuple[float, float]:
    """Seconds: wall, CPU of this process."""
    return time.perf_counter(), time.process_time()


def since(began: tuple[float, float]) -> tuple[float, ...]:
    return tuple(b - a for a, b in zip(began, seconds()))


def temporary_bytes(program) -> int:
    return program.memory_analysis().temp_size_in_bytes


class Worker:
    """One engine in a process of its own: compiles two programs and times them when asked."""

    def __init__(self, name: str, n: int):
        rivals.quiet()
        jax.config.update("jax_enable_compilation_cache", False)
        self.engine = engine(name, n)
        self.parameters = parameters_of(self.engine)
        self.programs: dict = {}

    def compile(self, kind: str, steps: int) -> dict:
        loss = loss_of(self.engine, steps)
        function = loss if kind == "forward" else jax.value_and_grad(loss, has_aux=True)
        began = seconds()
        program = jax.jit(function).lower(self.parameters, jnp.asarray(0.001)).compile()
        wall, cpu = since(began)
        self.programs[kind] = program
        known = {"compile_s": round(wall, 1), "compile_cpu_s": round(cpu, 1)}
        return known | {"temporary_bytes": temporary_bytes(program)}

    def time(self, kind: str, dt: float) -> dict:
        began = seconds()
        out = jax.block_until_ready(self.programs[kind](self.parameters, jnp.asarray(dt)))
        wall, cpu = since(began)
        return {"ms": 1e3 * wall, "cpu_ms": 1e3 * cpu, "status": int(jax.tree.leaves(out)[1])}

    def check(self, dt: float, h: float = 1e-6) -> dict:
        """The gradient along one direction against a central difference of the engine's own rollout."""
        rng = np.random.default_rng(1)
        along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), self.parameters)

        def at(h):
            moved = jax.tree.map(lambda x, d: x + h * d, self.parameters, along)
            return float(self.programs["forward"](moved, jnp.asarray(dt))[0])

        _, gradient = self.programs["gradient"](self.parameters, jnp.asarray(dt))
        slope = sum(float(jnp.vdot(g, d)) for g, d in zip(gradient, along))
        difference = (at(h) - at(-h)) / (2 * h)
        return {"difference_error": abs(slope - difference) / abs(difference)}


failed_before: dict[str, str] = {}  # engines that did not finish a smaller size


def measure(links: int, lengths: tuple[int, ...], names: tuple[str, ...]) -> list[dict]:
    """Rows of all engines for one number of links."""
    rows = [{"engine": n, "links": links, "failure": failed_before[n]} for n in names if n in failed_before]
    remotes = [Remote(Worker, n, links) for n in names if n not in failed_before]
    growth: dict = {r.name: [] for r in remotes}
    for steps in lengths:
        made = {r.name: {"engine": r.name, "links": links, "dofs": 2 * links, "steps": steps} for r in remotes}
        for kind in ("forward", "gradient"):
            for remote in remotes:
                remote.ask("compile", kind, steps)
            for remote in remotes:
                found = remote.answer(BUDGET[kind])
                made[remote.name] |= {k if k == "failure" else f"{kind}_{k}": x for k, x in found.items()}
        rows += timings(remotes, made, growth)
    for remote in remotes:
        remote.stop()
        if remote.failure.startswith("nothing within"):
            failed_before[remote.name] = f"not tried: {links} links, {remote.failure}"
    return rows


def timings(remotes: list[Remote], made: dict, growth: dict) -> list[dict]:
    """Rows of one number of steps, with times; repeats go round the engines."""
    rows = []
    for remote in remotes:
        row = made[remote.name]
        for dt in STEP_SIZES["pbad" if remote.name in OURS else "rival"]:
            rows.append((remote, dt, {**row, "dt": dt}, {"forward": [], "gradient": []}))
        if not remote.failure:
            growth[remote.name].append((row["steps"], row["gradient_temporary_bytes"]))
    for _ in range(REPEATS + 1):  # the first warms up
        for remote, dt, _, samples in rows:
            for kind, seen in samples.items():
                if remote.failure or sum(s["ms"] for s in seen) > 1e3 * PATIENCE:
                    continue
                remote.ask("time", kind, dt)
                found = remote.answer()
                if not remote.failure:
                    seen.append(found)
    return [finished(remote, dt, row, samples, growth[remote.name]) for remote, dt, row, samples in rows]


def finished(remote: Remote, dt: float, row: dict, samples: dict, growth: list) -> dict:
    """The row with its times, the check of the gradient, and the memory a step since the shorter rollout."""
    if remote.failure:
        return row | {"failure": remote.failure}
    for kind, seen in samples.items():
        seen = seen[1:] or seen
        for unit in ("ms", "cpu_ms"):
            row[f"{kind}_{unit}"] = round(min(s[unit] for s in seen), 3)
            row[f"{kind}_{unit}_median"] = round(statistics.median(s[unit] for s in seen), 3)
        row["repeats"] = len(seen)
    row["ratio"] = round(row["gradient_ms"] / row["forward_ms"], 2)
    row["ratio_cpu"] = round(row["gradient_cpu_ms"] / row["forward_cpu_ms"], 2)
    row["last_status"] = samples["forward"][0]["status"]
    if len(growth) > 1:
        (a, first), (b, last) = growth[0], growth[-1]
        row |= per_step((last - first) / (b - a), row["dofs"])
    if row["steps"] <= 100 and dt == 0.001:
        remote.ask("check", dt)
        row |= remote.answer()
    return row


def per_step(bytes_per_step: float, dofs: int) -> dict:
    states = bytes_per_step / (2 * dofs * 8)
    return {"bytes_per_step": round(bytes_per_step, 1), "state_sizes_per_step": round(states, 2)}


def memory(links: int, scheme: str, caps: tuple[int, ...], lengths: tuple[int, ...]) -> list[dict]:
    """Temporary memory of the library's gradient program; compiled only."""
    rows = []
    for cap in caps:
        e = ours(scheme, links, max_iterations=cap)
        at = {}
        for steps in lengths:
            program = jax.jit(jax.value_and_grad(loss_of(e, steps), has_aux=True))
            compiled = program.lower(parameters_of(e), jnp.asarray(0.001)).compile()
            at[steps] = temporary_bytes(compiled)
        rows.append({"engine": scheme, "what": "memory", "links": links, "max_iterations": cap, "temporary_bytes": at})
        rows[-1] |= per_step((at[lengths[-1]] - at[lengths[0]]) / (lengths[-1] - lengths[0]), e.dofs)
    return rows


def plan(quick: bool) -> list[tuple]:
    """The usual plan; `full` is what the table of docs/benchmarks.md comes from."""
    if quick:
        return [(functools.partial(measure, 2, (5,), ("radau1",)),)]
    cases = [functools.partial(measure, 5, (100,), OURS + RIVALS), functools.partial(measure, 10, (100, 1000), OURS)]
    return [(case,) for case in cases]


def full() -> list[tuple]:
    cases = [functools.partial(measure, n, (100, 1000), OURS + RIVALS) for n in (5, 10, 40)]
    cases.append(functools.partial(measure, 5, (10,), tuple(LIMITED)))
    cases += [functools.partial(memory, 10, scheme, (20, 400), (50, 100, 200)) for scheme in OURS]
    return [(case,) for case in cases]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4))
    for name, mark in zip(OURS + RIVALS, ("o", "s", "^", "D", "v")):
        for dt, line in ((0.001, "-"), (0.02, "--")):
            keep = [r for r in rows if r["engine"] == name and r.get("dt") == dt and "ratio" in r]
            if not keep:
                continue
            how = {"ls": line, "marker": mark, "ms": 5, "lw": 1, "color": "black" if name in OURS else "tab:gray"}
            how |= {"label": f"{name}, dt = {dt}" if name in OURS else name, "mfc": "white" if line == "--" else None}
            for axis, steps, key in ((axes[0], 1000, "gradient_cpu_ms"), (axes[1], 1000, "ratio_cpu")):
                own = [r for r in keep if r["steps"] == steps]
                axis.plot([r["links"] for r in own], [r[key] for r in own], **how)
            own = [r for r in keep if "state_sizes_per_step" in r]
            axes[2].plot([r["links"] for r in own], [r["state_sizes_per_step"] for r in own], **how)
    axes[0].set(title="value and gradient, 1000 steps", ylabel="CPU time, ms", yscale="log")
    axes[1].set(title="beside the forward rollout", ylabel="CPU time, ratio", yscale="log")
    axes[2].set(title="memory of reverse mode a step", ylabel="sizes of (q, v)", yscale="log")
    axes[1].axhline(2.5, color="black", lw=0.8, ls=":")
    axes[2].axhline(4.0, color="black", lw=0.8, ls=":")
    for axis in axes:
        axis.set(xlabel="links (2 degrees of freedom each)", xscale="log", xlim=(4, 50), xticks=[5, 10, 40])
        axis.get_xaxis().set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.grid(True, which="both", alpha=0.2)
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, ncols=7, loc="lower center", frameon=False)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    compile_sums()
    run("gradients", __doc__, plan, lambda case: case(), picture, full, repeats=REPEATS, compile_budget_s=BUDGET)


if __name__ == "__main__":
    main()
