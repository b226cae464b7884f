"""The paper's batches, and larger ones: for an accelerator; on a CPU the smaller cases, to compare with.

    python benchmarks/many_lanes.py [--quick] [--name many_lanes_gpu] [--out DIR]

"links": 100 trajectories of 10 steps, N = 5 to 100 links. "lanes": 10 steps of N = 10 links, 100 to 5000 trajectories,
on an accelerator up to 65536. radau(1) (first order, dt = 0.05) and legendre(2) (the paper's K = 2), float32 and
float64, by iterations and by steps. "mjx": the same chain by MJX (dt = 0.001, where it is installed), on the same
device. Chains start near horizontal, each a little different. Seconds of compiling and of running apart;
`simulated_s_per_s` is lanes · steps · dt a second.
"""

import functools
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import run, timed
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


def plan(quick: bool) -> list[tuple]:
    accelerator = jax.default_backend() != "cpu"
    if quick:
        return [(functools.partial(ours, "links", "radau1", 2, 4, "float64", "iteration"),)]
    links = (5, 10, 20, 40, 60, 80, 100) if accelerator else (5, 10, 20, 40)
    lanes = (100, 500, 1000, 2000, 5000) if accelerator else (100, 500, 1000)
    cases = []
    for dtype in ("float32", "float64"):
        for by in ("iteration", "step"):
            for scheme in ("radau1", "legendre2"):
                cases += [functools.partial(ours, "links", scheme, n, 100, dtype, by) for n in links]
                cases += [functools.partial(ours, "lanes", scheme, 10, b, dtype, by) for b in lanes]
            if accelerator and dtype == "float32":
                cases += [functools.partial(ours, "lanes", "radau1", 10, b, dtype, by) for b in (4096, 16384, 65536)]
    cases += [functools.partial(mjx, "lanes", 10, b) for b in (lanes + (4096, 16384) if accelerator else (100,))]
    return [(case,) for case in cases]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    for axis, what, key in ((axes[0], "links", "links"), (axes[1], "lanes", "lanes")):
        done = [r for r in rows if r["what"] == what and "ms" in r]
        for i, kind in enumerate(dict.fromkeys((r["engine"], r["dtype"], r.get("by")) for r in done)):
            own = sorted((r for r in done if (r["engine"], r["dtype"], r.get("by")) == kind), key=lambda r: r[key])
            style = {"ls": "-" if kind[2] == "iteration" else "--", "marker": "os^Dvx<>*"[i % 9], "ms": 4, "lw": 1}
            label = ", ".join(str(x) for x in kind if x)
            axis.plot([r[key] for r in own], [r["ms"] for r in own], color=str(0.08 * (i % 9)), label=label, **style)
        axis.set(xscale="log", yscale="log", xlabel=what, ylabel=f"ms for {STEPS} steps")
        axis.grid(True, which="both", alpha=0.2)
        axis.legend(fontsize=6)
    axes[0].set_title("100 trajectories")
    axes[1].set_title("10 links")
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    run("many_lanes", __doc__, plan, lambda case: case(), picture)


if __name__ == "__main__":
    main()
