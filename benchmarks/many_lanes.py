"""The paper's figures of batches: time and speed-up against links and against trajectories; and larger batches.

    python benchmarks/many_lanes.py [--quick | --full] [--name many_lanes_gpu] [--out DIR]

"links": 100 trajectories of 10 steps, N = 5 to 100 links. "lanes": 10 steps of N = 10 links, 100 to 5000 trajectories,
on an accelerator up to 65536. radau(1) (first order, dt = 0.05) and legendre(2) (the paper's K = 2), by iterations in
float64; `--full`, and every run on an accelerator: float32 too, and by steps. "mjx": the same chain by MJX
(dt = 0.001, where it is installed), on the same device. Chains start near horizontal, each a little different. Seconds
of compiling and of running apart; `simulated_s_per_s` is lanes · steps · dt a second.

The paper (two panels): a GPU is up to 6 times as quick as 4 cores, more so with more links and with more trajectories.
Here the lower panels show the speed-up over this machine's CPU, read from results/many_lanes.json, or on a CPU that of
a batch over one trajectory after another.
"""

import functools
import json
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import RESULTS, run, timed
from step_time import start_states

import pbad_jax as pbad

DT, STEPS = 0.05, 10
RIVAL_DT = 0.001


def row_of(what: str, engine: str, links: int, lanes: int, dtype, dt: float, **more) -> dict:
    return {
        "what": what,
        "engine": engine,
        "links": links,
        "lanes": lanes,
        "steps": STEPS,
        "dt": dt,
        "dtype": dtype,
        **more,
    }


def ours(what: str, scheme: str, links: int, lanes: int, dtype: str, by: str) -> dict:
    model = pbad.chain(links, dtype=dtype)
    states = start_states(model, links, lanes)
    options = pbad.Options(dt=DT, scheme=scheme)
    row = row_of(what, scheme, links, lanes, dtype, DT, by=by)
    call = functools.partial(pbad.rollout_batch, model, states, None, STEPS, options, schedule=by)
    began = time.perf_counter()
    try:
        _, info = jax.block_until_ready(call())
    except jax.errors.JaxRuntimeError as error:
        return row | {"failure": str(error).split("\n")[0][:200]}
    first = time.perf_counter() - began
    took = timed(call)["least"]
    return row | {
        "first_call_s": round(first, 2),
        "ms": round(1e3 * took, 3),
        "failed_lanes": int((np.asarray(info.status) != 0).any(axis=1).sum()),
        "mean_iterations": round(float(np.asarray(info.iterations).mean()), 2),
        "simulated_s_per_s": round(lanes * STEPS * DT / took, 1),
    }


def mjx(what: str, links: int, lanes: int) -> dict:
    """The same number of its own steps."""
    row = row_of(what, "mjx", links, lanes, "float32", RIVAL_DT)
    try:
        import rivals

        engine = rivals.mjx(rivals.chain_mjcf(links))
    except ImportError as error:
        return row | {"failure": f"not installed: {error}"}
    q = jnp.zeros((lanes, engine.dofs)).at[:, 0].set(jnp.pi / 2)
    v = 0.1 * jax.random.normal(jax.random.key(0), (lanes, engine.dofs))

    def one(q, v):
        start = engine.start(engine.model, q, v)
        end, _ = jax.lax.scan(lambda s, _: (engine.step(engine.model, s, RIVAL_DT), None), start, None, length=STEPS)
        return engine.q(end)

    began = time.perf_counter()
    call = jax.jit(jax.vmap(one))
    jax.block_until_ready(call(q, v))
    first = time.perf_counter() - began
    took = timed(call, q, v)["least"]
    return row | {
        "first_call_s": round(first, 2),
        "ms": round(1e3 * took, 3),
        "simulated_s_per_s": round(lanes * STEPS * RIVAL_DT / took, 1),
    }


def accelerated() -> bool:
    return jax.default_backend() != "cpu"


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(functools.partial(ours, "lanes", "radau1", 2, b, "float64", "iteration"),) for b in (1, 4)]
    if accelerated():
        return full()
    links, lanes = (5, 10, 20, 40), (100, 500, 1000)
    return batches(links, lanes, "float64", "iteration") + [(functools.partial(mjx, "lanes", 10, 100),)]


def full() -> list[tuple]:
    """All dtypes and schedules; on an accelerator more links and many more lanes."""
    links = (5, 10, 20, 40, 60, 80, 100) if accelerated() else (5, 10, 20, 40)
    lanes = (100, 500, 1000, 2000, 5000) if accelerated() else (100, 500, 1000)
    cases = []
    for dtype in ("float32", "float64"):
        for by in ("iteration", "step"):
            cases += batches(links, lanes, dtype, by)
            if accelerated() and dtype == "float32":
                more = (4096, 16384, 65536)
                cases += [(functools.partial(ours, "lanes", "radau1", 10, b, dtype, by),) for b in more]
    rival = lanes + (4096, 16384) if accelerated() else (100,)
    return cases + [(functools.partial(mjx, "lanes", 10, b),) for b in rival]


def batches(links: tuple[int, ...], lanes: tuple[int, ...], dtype: str, by: str) -> list[tuple]:
    """Both sweeps of both schemes; on a CPU with a single trajectory of each chain, for the speed-up."""
    one = () if accelerated() else (1,)
    sizes = [("links", n, b) for n in links for b in (*one, 100)] + [("lanes", 10, b) for b in (*one, *lanes)]
    return [(functools.partial(ours, w, s, n, b, dtype, by),) for s in ("radau1", "legendre2") for w, n, b in sizes]


def speedup(row: dict, rows: list[dict], elsewhere: list[dict]) -> float | None:
    """Over a CPU that runs the same, `elsewhere`; without it over one trajectory after another."""
    same = ("engine", "links", "dtype", "by") + (("lanes",) if elsewhere else ())
    kind = [row.get(k) for k in same]
    found = [r for r in elsewhere or rows if "ms" in r and [r.get(k) for k in same] == kind]
    found = found if elsewhere else [r for r in found if r["lanes"] == 1]
    if not found or (not elsewhere and row["lanes"] == 1):
        return None
    return found[0]["ms"] / row["ms"] * (1 if elsewhere else row["lanes"])


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.figure

    cpu = RESULTS / "many_lanes.json"
    elsewhere = json.loads(cpu.read_text())["rows"] if accelerated() and cpu.exists() else []
    figure = matplotlib.figure.Figure(figsize=(11, 7), layout="constrained")
    for axes, what, heading in zip(
        figure.subplots(2, 2, sharex="col").T, ("links", "lanes"), ("100 lanes", "10 links")
    ):
        done = [r for r in rows if r["what"] == what and "ms" in r and (what == "lanes" or r["lanes"] > 1)]
        for i, kind in enumerate(dict.fromkeys((r["engine"], r["dtype"], r.get("by")) for r in done)):
            own = sorted((r for r in done if (r["engine"], r["dtype"], r.get("by")) == kind), key=lambda r: r[what])
            style = {"ls": "-" if kind[2] == "iteration" else "--", "marker": "os^Dvx<>*"[i % 9], "ms": 5, "lw": 1}
            style |= {
                "color": str(0.08 * (i % 9)),
                "label": ", by ".join(f"{x}" for x in (" ".join(kind[:2]), kind[2]) if x),
            }
            axes[0].plot([r[what] for r in own], [r["ms"] for r in own], **style)
            gain = [(r[what], speedup(r, rows, elsewhere)) for r in own]
            gain = [(x, y) for x, y in gain if y is not None]
            if gain:
                axes[1].plot(*zip(*gain), **style)
        axes[0].set(title=heading, xscale="log", yscale="log", ylabel=f"ms for {STEPS} steps of all")
        axes[1].set(xlabel=what, ylabel="speed-up over a CPU" if elsewhere else "speed-up over one after another")
        axes[1].set_ylim(bottom=0)
        ticks = sorted({r[what] for r in done})
        axes[1].set_xticks(ticks, [str(x) for x in ticks])
        axes[1].minorticks_off()
        axes[1].axhline(1, color="tab:gray", lw=0.8)
        axes[0].legend(fontsize=7)
        for axis in axes:
            axis.grid(True, which="both", alpha=0.2)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    run("many_lanes", __doc__, plan, lambda case: case(), picture, full)


if __name__ == "__main__":
    main()
