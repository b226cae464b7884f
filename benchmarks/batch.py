"""Batches: by iterations against by steps, and what a lane costs in a batch.

    python benchmarks/batch.py [--quick] [--name batch] [--out DIR]

"uneven": chains of 10 links, radau(1), dt = 0.05, half of them gentle (0.3 rad/s), half whipping; rows say how uneven
the iterations are. "even": all gentle. "contact": boxes on a plane, half of them dropped from high above, so that their
strikes come at other times. Each is run by the jitted vmapped rollout, and by rollout_batch by iterations and by steps,
whole and with tiles; in turn, so that ratios mean something.

"lanes": microseconds a lane and step against the number of lanes, all near horizontal, radau(1) and radau(2).

"sick": gentle chains, one in a hundred replaced by NaN or by a chain that turns at 1e4 rad/s; time beside the same
batch without those, and whether the healthy lanes have the same bits. "memory": the most that a process of its own
has resident.
"""

import dataclasses
import functools
import multiprocessing
import pathlib
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import run
from step_time import start_states

import pbad_jax as pbad
from pbad_jax import Body, Geom, Joint, forces

REPEATS = 2


def chains(lanes: int, whipping: bool):
    """Half of them with speeds that whip, or none."""
    model, rng = pbad.chain(10), np.random.default_rng(0)
    size = np.where((np.arange(lanes) % 2 == 0) | (not whipping), 0.3, 1.2)[:, None]
    q, v = (jnp.asarray(size * rng.normal(size=(lanes, n))) for n in (model.nq, model.nv))
    return model, jax.vmap(lambda q, v: pbad.make_state(model, q, v))(q, v)


def boxes(lanes: int):
    """Boxes of 1 kg over a plane with friction, the even ones at rest on it, the others at 0.2 to 2 m above."""
    box = Body("box", 1.0, inertia=np.eye(3) * 0.01, joints=[Joint("free")], geoms=[Geom("box", (0.1, 0.1, 0.1))])
    model = pbad.build_model([box])
    ground = forces.half_space((0.0, 0.0, 1.0), 0.0)
    model = pbad.with_forces(model, forces.contact(model, ground, friction=0.5, time_constant=0.02))
    rng = np.random.default_rng(0)
    high = np.where(np.arange(lanes) % 2 == 0, 0.1, rng.uniform(0.2, 2.0, lanes))
    turn = np.where(np.arange(lanes) % 2 == 0, 0.0, 1.0)[:, None] * rng.normal(size=(lanes, 3))

    def state(z, w):
        q = pbad.retract(model, model.q0, jnp.zeros(model.nv).at[2].set(z).at[3:].set(0.3 * w))
        return pbad.make_state(model, q, jnp.zeros(model.nv).at[3:].set(w))

    return model, jax.vmap(state)(jnp.asarray(high), jnp.asarray(turn))


CASES = {
    "even": functools.partial(chains, whipping=False),
    "uneven": functools.partial(chains, whipping=True),
    "contact": boxes,
}


def schedules(case: str, lanes: int, steps: int, tiles: tuple[int, ...], dt: float) -> list[dict]:
    """All ways to run a case, in turn."""
    model, states = CASES[case](lanes)
    options = pbad.Options(dt=dt, scheme="radau1")
    vmapped = jax.jit(jax.vmap(lambda s: pbad.rollout(model, s, None, steps, options, progress=False)))
    ways: dict[tuple[str, int], Callable[[], Any]] = {("vmap", lanes): lambda: (*vmapped(states), None)}
    for by in ("iteration", "step"):
        for tile in (lanes, *tiles):
            ways[by, tile] = functools.partial(
                pbad.rollout_batch, model, states, None, steps, options, tile=tile, schedule=by, report=True
            )
    compiling, samples, out = {}, {way: [] for way in ways}, {}
    for way, call in ways.items():
        began = time.perf_counter()
        out[way] = jax.block_until_ready(call())
        compiling[way] = time.perf_counter() - began
    for _ in range(REPEATS):
        for way, call in ways.items():
            began = time.perf_counter()
            jax.block_until_ready(call())
            samples[way].append(time.perf_counter() - began)
    _, info, _ = out["vmap", lanes]
    count = np.asarray(info.iterations) + 1.0
    common = {
        "what": case, "lanes": lanes, "steps": steps, "dt": dt,
        "failed_lanes": int((np.asarray(info.status) != 0).any(axis=1).sum()),
        "mean_iterations": round(float(count.mean()), 2),
        "mean_of_slowest_lane_in_each_step": round(float(count.max(axis=0).mean()), 2),
    }  # fmt: skip
    base = min(samples["vmap", lanes])
    rows = []
    for (by, tile), times in samples.items():
        row = common | {"by": by, "tile": tile, "first_call_s": round(compiling[by, tile], 2)}
        row |= {"least_s": round(min(times), 4), "median_s": round(statistics.median(times), 4)}
        row |= {
            "ratio_to_vmap": round(min(times) / base, 3),
            "us_per_lane_and_step": round(1e6 * min(times) / lanes / steps, 1),
        }
        schedule = out[by, tile][2]
        if schedule is not None and schedule.busy is not None:
            row |= {
                "busy": round(float(schedule.busy), 3),
                "passes": int(schedule.passes),
                "rounds": int(schedule.rounds),
            }
        rows.append(row)
    return rows


def cost_of_a_lane(scheme: str, lanes: tuple[int, ...], steps: int) -> list[dict]:
    """By the default schedule."""
    model, options = pbad.chain(10), pbad.Options(dt=0.05, scheme=scheme)
    calls = {}
    for n in lanes:
        calls[n] = functools.partial(pbad.rollout_batch, model, start_states(model, 10, n), None, steps, options)
        jax.block_until_ready(calls[n]())
    samples = {n: [] for n in lanes}
    for _ in range(REPEATS):
        for n, call in calls.items():
            began = time.perf_counter()
            jax.block_until_ready(call())
            samples[n].append(time.perf_counter() - began)
    each = {n: 1e6 * min(t) / n / steps for n, t in samples.items()}
    return [
        {
            "what": "lanes", "scheme": scheme, "lanes": n, "steps": steps, "dt": 0.05,
            "us_per_lane_and_step": round(us, 1), "ratio_to_one_lane": round(us / each[lanes[0]], 3),
            "simulated_s_per_s": round(0.05e6 / us, 1),
        }
        for n, us in each.items()
    ]  # fmt: skip


def sick(lanes: int, steps: int) -> dict:
    """A batch with pathological lanes beside the same without them."""
    model, states = chains(lanes, False)
    options = pbad.Options(dt=0.02, scheme="radau1")
    ill = np.arange(lanes) % 100 == 50
    fast = 1e4 * np.random.default_rng(1).normal(size=(lanes, model.nv))
    wrong = np.where(np.arange(lanes)[:, None] % 200 == 50, np.nan, fast)
    mixed = dataclasses.replace(states, v=jnp.where(jnp.asarray(ill)[:, None], wrong, states.v))
    well = jax.tree.map(lambda x: x[~ill], states)
    samples, out = {"all": [], "well": []}, {}
    for _ in range(REPEATS + 1):
        for name, given in (("all", mixed), ("well", well)):
            began = time.perf_counter()
            out[name] = jax.block_until_ready(pbad.rollout_batch(model, given, None, steps, options))
            samples[name].append(time.perf_counter() - began)
    same = all(
        np.array_equal(np.asarray(a)[~ill], np.asarray(b))
        for a, b in zip(out["all"][0], out["well"][0])
    )  # fmt: skip
    least = {name: min(s[1:]) for name, s in samples.items()}
    status = np.asarray(out["all"][1].status)
    return {
        "what": "sick", "lanes": lanes, "steps": steps, "dt": 0.02, "sick_lanes": int(ill.sum()),
        "failed_lanes": int((status != 0).any(axis=1).sum()), "healthy_bits_equal": same,
        "s": round(least["all"], 3), "s_without": round(least["well"], 3),
        "ratio": round(least["all"] / least["well"], 3),
    }  # fmt: skip


def memory_of(lanes: int, steps: int, pipe) -> None:
    jax.config.update("jax_enable_x64", True)
    model, states = chains(lanes, False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    _, info = jax.block_until_ready(pbad.rollout_batch(model, states, None, steps, pbad.Options(0.02, "radau1")))
    seconds, most = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = lanes * steps * (model.nq + model.nv) * 8
    pipe.send({
        "what": "memory", "lanes": lanes, "steps": steps, "dt": 0.02, "failed_steps": int(np.sum(info.status != 0)),
        "mib_before": round(before / 1024), "mib_most": round(most / 1024), "mib_of_results": round(results / 2**20),
        "s_with_compilation": round(seconds, 1),
    })  # fmt: skip


def memory(lanes: int, steps: int) -> dict:
    """In a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=memory_of, args=(lanes, steps, there))
    process.start()
    there.close()
    row = here.recv()
    process.join()
    return row


def plan(quick: bool) -> list[tuple]:
    if quick:
        cases = [functools.partial(cost_of_a_lane, "radau1", (2,), 3)]
    else:
        cases = [functools.partial(schedules, "even", 128, 20, (32,), 0.02)]
        cases += [functools.partial(schedules, "uneven", 128, 20, (32,), dt) for dt in (0.02, 0.05)]
        cases += [functools.partial(schedules, "contact", 128, 50, (32,), 0.02)]
        cases += [functools.partial(sick, 4096, 10), functools.partial(memory, 65536, 2)]
        cases += [functools.partial(cost_of_a_lane, scheme, (1, 16, 128, 1024), 20) for scheme in ("radau1", "radau2")]
    return [(case,) for case in cases]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    runs = [r for r in rows if "by" in r]
    cases = list(dict.fromkeys((r["what"], r["dt"]) for r in runs))
    ways = list(dict.fromkeys((r["by"], r["tile"]) for r in runs))
    shades = {"vmap": "black", "iteration": "tab:blue", "step": "lightgray"}
    hatches = dict(zip(sorted({tile for _, tile in ways}, reverse=True), ("", "//", "xx", "..")))
    for i, (by, tile) in enumerate(ways):
        own = {(r["what"], r["dt"]): r["ratio_to_vmap"] for r in runs if (r["by"], r["tile"]) == (by, tile)}
        x = [j + (i - len(ways) / 2) * 0.11 for j, case in enumerate(cases) if case in own]
        label = by if by == "vmap" else f"by {by}, tile {tile}"
        left.bar(
            x, list(own.values()), 0.1, color=shades[by], hatch=hatches[tile], label=label, edgecolor="black", lw=0.4
        )
    left.set_xticks(range(len(cases)), [f"{what}\ndt = {dt}" for what, dt in cases])
    left.axhline(0.7, color="black", lw=0.8, ls=":")
    left.set(ylabel="time beside the vmapped rollout")
    left.legend(fontsize=7)
    for scheme, mark in (("radau1", "o-"), ("radau2", "s--")):
        own = [r for r in rows if r.get("scheme") == scheme]
        right.plot(
            [r["lanes"] for r in own], [r["us_per_lane_and_step"] for r in own], mark, color="black", label=scheme
        )
    if any(r["what"] == "lanes" for r in rows):
        right.set(
            xscale="log", yscale="log", xlabel="lanes", ylabel="µs a lane and step", title="10 links, dt = 0.05 s"
        )
        right.grid(True, which="both", alpha=0.2)
        right.legend()
    else:
        right.set_axis_off()
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    run("batch", __doc__, plan, lambda case: case(), picture, repeats=REPEATS)


if __name__ == "__main__":
    main()
