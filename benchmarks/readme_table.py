"""Writes the tables of pages in docs (PAGES) from the JSON of the benchmarks; by no hand.

    python benchmarks/readme_table.py          # rewrite the pages
    python benchmarks/readme_table.py --check  # exit 1 if it would change; results older than their code are listed

A table stands between the marks `<!-- begin: NAME -->` and `<!-- end: NAME -->`. To add one, write a function of the
JSON of results/NAME.json that returns its lines, put it into `TABLES`, and the two marks into a page.
"""

import argparse
import json
import pathlib
import re
import sys

RESULTS = pathlib.Path(__file__).parent / "results"
PAGES = [RESULTS.parent.parent / "docs" / f"{name}.md" for name in ("benchmarks", "environments", "robots", "schemes")]


def markdown(head: list[str], rows: list[list[str]], words: int) -> list[str]:
    """A table whose first `words` columns are words, the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def figure(x: float | None) -> str:
    """Two digits, more where they stand before the point."""
    return "–" if x is None else f"{x:.0f}" if abs(x) >= 9.95 else f"{x:.2g}"


def source(data: dict, name: str) -> str:
    where = data["environment"]
    return (
        f"Measured on {where['device']}, {where['cores']} shared cores, jax {where['versions']['jax']}, "
        f"commit {where['commit']}, {where['date']}, load {where['load'][0]:.1f}: `benchmarks/results/{name}.json`."
    )


def step_time(data: dict) -> list[str]:
    """One lane in double precision, a few sizes; and how compile time grows."""
    rows = [r for r in data["rows"] if (r["recurrence"], r["dtype"]) == ("parallel", "float64")]
    at = {(r["links"], r["scheme"]): r for r in rows if r["batch"] == 1}
    schemes = ("radau1", "radau2", "radau3")
    head = ["links", *(f"{s}, µs an iteration" for s in schemes), *(f"{s}, µs a step" for s in schemes)]
    table = []
    for n in sorted({links for links, _ in at}):
        own = [at[n, s] for s in schemes]
        table.append([str(n), *(figure(r[k]) for k in ("us_per_iteration", "us_per_step") for r in own)])
    compile_times = {r["links"]: r["compile_s"] for r in rows if r["scheme"] == "radau2" and r["compile_s"]}
    few, many = min(compile_times), max(n for n in compile_times if n <= 80)
    said = (
        f"One lane, float64, dt = {data['dt']} s. Compiling one jitted radau(2) step: {compile_times[few]:.1f} s at "
        f"{few} links, {compile_times[many]:.1f} s at {many} ({compile_times[many] / compile_times[few]:.2f} times)."
    )
    return [*markdown(head, table, 0), "", said]


def throughput(data: dict) -> list[str]:
    """Simulated seconds per second of the planar chain; engines that reached one at least, the quickest first."""
    every = [r for r in data["rows"] if r["case"] == "planar"]
    tight, rows = ([r for r in every if r["within"] == within] for within in (0.01, 0.1))
    lanes = sorted({r["lanes"] for r in rows})
    at = {(r["engine"], r["lanes"]): r.get("simulated_s_per_s") for r in rows}
    failed = {(r["engine"], r["lanes"]) for r in rows if r.get("failed_steps")}
    dt, fine = {r["engine"]: r["dt"] for r in rows}, {r["engine"]: r for r in tight}
    keep = [e for e in dt if (at[e, lanes[0]] or 0.0) >= 1.0]
    keep.sort(key=lambda e: -at[e, lanes[0]])

    def line(e: str) -> list[str]:
        within_1 = [str(fine[e]["dt"] or ""), figure(fine[e].get("simulated_s_per_s"))]
        return [e, *within_1, str(dt[e]), *(figure(at.get((e, n))) + "*" * ((e, n) in failed) for n in lanes)]

    count = [f"{n} lanes" if n > 1 else "1 lane" for n in lanes]
    rest = ", ".join(e for e in dt if e not in keep)
    said = (
        "Simulated seconds per second, each at the largest dt that keeps the energy of ten seconds within 1 % (left) "
        "or 10 % (rivals in JAX: at MuJoCo C's of that integrator). One lane has one thread, batches two. *: some "
        f"steps fail. Under one, or never within: {rest}."
    )
    head = ["engine", "1 %: dt, s", "1 lane", "10 %: dt, s", *count]
    return [*markdown(head, [line(e) for e in keep], 1), "", said]


def paper_time(data: dict) -> list[str]:
    """Milliseconds for ten seconds of motion; what fails or gains energy says so."""
    sizes = [dt for dt in sorted({r["dt"] for r in data["rows"]}) if dt in (0.001, 0.0025, 0.01, 0.02, 0.05, 0.1)]
    at = {(r["method"], r["dt"]): r for r in data["rows"]}

    def cell(row: dict) -> str:
        if not row["works"]:
            return "fails" if row["failed_steps"] else "gains"
        return f"{figure(1e3 * row['s'])} ({100 * max(row['loss'], 0):.0f} %)"

    methods = list(dict.fromkeys(r["method"] for r in data["rows"]))
    table = [[m.replace("_", " "), *(cell(at[m, dt]) for dt in sizes)] for m in methods]
    said = "Milliseconds for ten seconds of ten links (and the largest loss of energy); gains: over 10 % of energy."
    return [*markdown(["method", *(f"dt {dt:g} s" for dt in sizes)], table, 1), "", said]


def between(values: list[float]) -> str:
    return f"{min(values):.2g} to {max(values):.2g}"


def gradients(data: dict) -> list[str]:
    """The library's rows of 1000 steps in one sentence."""
    own = [r for r in data["rows"] if r["engine"] in ("radau1", "radau2") and r.get("steps") == 1000]
    links = [r["links"] for r in own]
    return [
        f"Exact gradients of 1000 steps take {between([r['ratio_cpu'] for r in own])} times the CPU time of the "
        f"forward rollout, and {between([r['state_sizes_per_step'] for r in own])} times (q, v) of memory a step "
        f"(radau(1) and radau(2), {min(links)} to {max(links)} links)."
    ]


def batch(data: dict) -> list[str]:
    """By iterations in tiles beside vmap in one sentence."""
    tiled = [r for r in data["rows"] if r.get("by") == "iteration" and r["tile"] < r["lanes"]]
    even = [r["ratio_to_vmap"] for r in tiled if r["what"] == "even"]
    uneven = [r["ratio_to_vmap"] for r in tiled if r["what"] != "even"]
    return [
        f"`rollout_batch` in tiles of {tiled[0]['tile']} takes {between(uneven)} of the vmapped rollout's time where "
        f"lanes are uneven, and {even[0]:.2f} where they are even."
    ]


def work_precision(data: dict) -> list[str]:
    """Milliseconds for one second of motion that errs by no more than a level, the least of the runs that do."""
    rows = [r for r in data["rows"] if r.get("error") is not None and not r["failed_steps"]]
    cases = [c for c in ("chain", "arm", "beam") if any(r["case"] == c for r in rows)]
    columns = [(case, level) for case in cases for level in (1e-2, 1e-4, 1e-6)]

    def least(engine: str, case: str, level: float) -> float:
        own = [r["s"] for r in rows if (r["engine"], r["case"]) == (engine, case) and r["error"] <= level]
        return 1e3 * min(own, default=float("inf"))

    engines = list(dict.fromkeys(r["engine"] for r in data["rows"] if r["case"] in cases))
    table = [[least(e, *c) for c in columns] for e in engines]
    best = [min(column) for column in zip(*table)]

    def cell(ms: float, least: float) -> str:
        return "" if ms == float("inf") else f"**{figure(ms)}**" if ms == least else figure(ms)

    body = [
        [e.replace("_", " "), *map(cell, line, best)] for e, line in zip(engines, table) if min(line) < float("inf")
    ]
    said = (
        "Milliseconds of one thread for one second of motion within that error (rad) of the exact one; empty: not in "
        "half a second. chain: the ten links; arm: seven joints, stiff drives; beam: ten links, stiff springs."
    )
    return [*markdown(["engine", *(f"{case} {level:g}" for case, level in columns)], body, 1), "", said]


def rotation(data: dict) -> list[str]:
    """What wheels lose and gain by how far they turn in a step, and a body's flips."""
    rows, shown = data["rows"], (0.2, 0.5, 1.0, 2.0, 3.0)
    head = [
        "scheme",
        *(f"turns by {turn:g}" for turn in shown),
        "flips off by",
        "spin off by",
        "flips at 50 ms",
    ]
    table = []
    for scheme in dict.fromkeys(r["scheme"] for r in rows):
        own = [r for r in rows if r["scheme"] == scheme]
        gained = {r["turn"]: r.get("gained", r.get("status")) for r in own if r["case"] == "motor"}
        nuts = [next(r for r in own if r["case"] == "nut" and r["dt"] == dt) for dt in (0.02, 0.05)]
        cells = [x if isinstance(x, str) else f"{100 * x:.0f} %" for x in (gained[turn] for turn in shown)]
        cells += [percent(nuts[0], "flips_off"), percent(nuts[0], "spin_off"), percent(nuts[1], "flips_off")]
        table.append([scheme, *cells])
    lost = [r["lost"] for r in rows if r["case"] == "wheel" and "lost" in r]
    off = [f"{r['scheme']} at {r['turn']:g} rad" for r in rows if r["case"] == "wheel" and "status" in r]
    fails = f" (but fails: {', '.join(off)})" if off else ""
    said = (
        f"A wheel that nothing drives loses at most {max(map(abs, lost)):.0e} of its speed in {data['steps']} steps, "
        f"by every scheme, at 0.1 to 3 rad a step{fails}. Columns 2 to 6: what a wheel gains by a motor in a step, of "
        "what it should, by the radians that it turns in the step. Then Dzhanibekov's nut, which flips end for end, "
        "for 10 s at 20 ms and 50 ms (0.1 and 0.25 rad a step): how far off the times of its flips and its angular "
        "momentum are."
    )
    return [*markdown(head, table, 1), "", said]


def error(data: dict) -> list[str]:
    """In how many lanes `info.error` is right within a factor of three, and how large the error is."""
    rows = {(r["system"], r["scheme"], r["dt"]): r for r in data["rows"]}
    names, schemes, steps = (list(dict.fromkeys(key[k] for key in rows)) for k in range(3))
    columns = [(scheme, dt) for scheme in schemes for dt in steps]

    def cell(row: dict) -> str:
        return f"{row['true']:.0e}: {100 * row['close']:.0f} %"

    head = ["error: right within 3", *(f"{scheme}, {1e3 * dt:g} ms" for scheme, dt in columns)]
    said = (
        f"The median of the local error of one step of {data['lanes']} typical states (rad, or m over the model's "
        "length), and in how many of them `info.error` is right within a factor of 3. chain: five links, thrown. arm: "
        "seven joints, stiff servos. ball, box: thrown so that they may land within the step. The robots move."
    )
    return [*markdown(head, [[n, *(cell(rows[n, *c]) for c in columns)] for n in names], 1), "", said]


def truth(data: dict) -> list[str]:
    """The error of a control step and its CPU time, for some engines of all."""
    rows = {(r["robot"], r["engine"]): r for r in data["rows"]}
    ours = ["radau1 in 1", "radau2 in 1", "radau2 in 8", "radau2 to 0.01", "radau2 to 0.001"]

    def cell(row: dict | None) -> str:
        return "–" if row is None else f"{row['error']:.2g}, {figure(row['cpu_us'])} µs"

    def theirs(robot: str) -> list[str]:
        steps = [r for (name, engine), r in rows.items() if name == robot and engine.startswith("MuJoCo")]
        files = steps[len(steps) // 2] if steps else None  # the file's own step is the middle one
        return [cell(files), "–" if files is None else f"{files['laws']:.2g}"]

    table = []
    for robot, dt in dict.fromkeys((r["robot"], r["dt"]) for r in data["rows"]):
        name = f"{robot.replace('_', ' ')}, {1e3 * dt:g} ms"
        table.append([name, *(cell(rows.get((robot, engine))) for engine in ours), *theirs(robot)])
    kept = [r["kept"] for r in data["rows"] if r["engine"] in ours[3:]]
    said = (
        f"Median error of q after one control step of {data['lanes']} typical states under random actions (rad, or m "
        "over the model's length), each engine against a much finer step of its own; CPU time of a control step in one "
        f"thread. An accuracy was kept within three times in {100 * min(kept):.0f} to {100 * max(kept):.0f} % of the "
        "lanes. The last column is how far the fine steps of the two engines are apart: their laws of contact, "
        "friction and limits."
    )
    head = ["error, CPU time", *(e.replace("radau", "radau(").replace(" ", ") ", 1) for e in ours)]
    return [*markdown([*head, "MuJoCo C, the file's steps", "laws"], table, 1), "", said]


def percent(row: dict, key: str) -> str:
    """A share, or why there is none."""
    return row.get("status", "–") if row.get(key) is None else f"{100 * row[key]:.1g} %"


def stability(data: dict) -> list[str]:
    """The largest step sizes, ms, up to which all steps succeed and energy stays within 1 and 10 %."""
    rows = [r for r in data["rows"] if "all_smaller" in r]
    systems = list(dict.fromkeys(r["system"] for r in rows))
    at = {(r["engine"], r["system"]): r["all_smaller"] for r in rows}
    open_ends = {(r["engine"], r["system"]) for r in data["rows"] if "dt" in r and r["level"] is None}

    def cell(engine: str, system: str) -> str:
        if (engine, system) not in at:
            return ""
        none = "?" if (engine, system) in open_ends else "none"
        known = (at[engine, system][k] for k in ("1 %", "10 %"))
        return " / ".join(none if dt is None else f"{1e3 * dt:g}" for dt in known)

    engines = list(dict.fromkeys(r["engine"] for r in rows))
    table = [[e.replace("_", " "), *(cell(e, name) for name in systems)] for e in engines]
    said = (
        "Largest dt, ms, at which (and at every smaller one tried, down to 0.5) ten seconds have no failed step and "
        "keep the energy within 1 % / 10 %. Robots fall and lie, so they may lose it, but not gain it. ?: not at those "
        "tried, and smaller ones took too long."
    )
    return [*markdown(["engine", *systems], table, 1), "", said]


def one_thread(data: dict) -> list[str]:
    """What the thread pool costs one lane, in one sentence."""
    rows = [r for r in data["rows"] if "ratio" in r and r["engine"].startswith(("radau", "dirk"))]
    least, most = (f"{pick(r['ratio'] for r in rows):.2f}" for pick in (min, max))
    names = ", ".join(r["engine"] for r in rows)
    return [
        f"One trajectory is too small for XLA's thread pool: on a CPU with a thread a core its steps take {least} to "
        f"{most} times as long as with one ({names}, {rows[0]['links']} links). `PJRT_NPROC=1` in the environment, "
        "before JAX starts, gives it one; batches want all."
    ]


def gpu(data: dict) -> list[str]:
    """Steps a second on a GPU, and how much quicker than four cores."""
    rows = [r for r in data["rows"] if r.get("what") in ("chain", "robots") and "steps_per_s" in r]

    def name(r: dict) -> str:
        what = r.get("model", "chain of 10").replace("_", " ")
        return f"{what}, {1e3 * r['dt']:g} ms, {r['engine']}{', by iterations' if r.get('by') == 'iteration' else ''}"

    kinds = list(dict.fromkeys((name(r), r["dtype"]) for r in rows))
    lanes = (1, 1024, 4096, 65536)
    at = {(name(r), r["dtype"], r["lanes"]): r["simulated_s_per_s"] for r in rows}
    body = [[what, dtype, *(figure(at.get((what, dtype, n))) for n in lanes)] for what, dtype in kinds]
    paper = {(r["links"], r["lanes"], r["device"]): r["ms_per_step"] for r in data["rows"] if r.get("what") == "paper"
             and r["engine"] == "radau1" and "ms_per_step" in r}  # fmt: skip
    gains = [ms / paper[n, b, "gpu"] for (n, b, device), ms in paper.items() if device == "cpu4"]
    worst = max(r["after_1_step"] for r in data["rows"] if r.get("dtype") == "float32" and "after_1_step" in r)
    said = (
        "Simulated seconds per second against lanes; robots under random actions, one step a control step (MJX: the "
        f"file's own steps). Batches in float64 are {min(gains):.0f} to {max(gains):.0f} times as quick as on four "
        "cores of the same machine (the paper: 3 to 6). One float32 step differs by at most "
        f"{worst:.0e} in q from a CPU's in float64."
    )
    return [*markdown(["", "", *map(str, lanes)], body, 2), "", said]


def gpu_cost(data: dict) -> list[str]:
    """What a pass of the solver and the rest of a step are on a GPU, counted without one."""
    table = [
        [
            f"{r['robot']}, {1e3 * r['dt']:g} ms, {r['scheme']}, {r['precision']}, by {r['schedule']}s",
            r["kernel"],
            str(r["lanes"]),
            *(figure(r[k]) for k in ("pass_kernels", "pass_kb", "step_kernels", "step_kb")),
            *(figure(1e3 * r[k]) for k in ("by_memory", "by_launches")),
            figure(r["compile_s"]),
        ]
        for r in data["rows"]
        if "skipped" not in r
    ]
    head = ["", "kernel", "lanes", "kernels a pass", "kB a lane", "kernels besides", "kB a lane", "ns a lane by memory"]
    head += ["by launches", "compile, CPU s"]
    said = (
        "Compiled for an H100 on a machine without one (`python -m benchmarks gpu_cost`): a pass of the solver, with "
        "all its branches, and what a step has besides; and two bounds from below of a pass, by the bytes that go "
        "between kernels and memory and by starting the kernels, an assumed 2.5 µs each. `pallas`: with "
        '`Options(kernel="pallas")`.'
    )
    return [*markdown(head, table, 2), "", said]


def environments(data: dict) -> list[str]:
    """Control steps per CPU second beside MuJoCo C's, and of other simulators in JAX."""
    rows = [r for r in data["rows"] if "failure" not in r]
    theirs = {(r["robot"], r["dt"], r["lanes"]): r["per_cpu_s"] for r in rows if r["engine"].startswith("mujoco")}

    def line(r: dict) -> list[str]:
        known = theirs.get((r["robot"], r["dt"], r["lanes"])) if r["precision"] == "float64" else None
        own = [r["per_cpu_s"], known, r["iterations_mean"], r["iterations_p99"], r["compile_cpu_s"]]
        return [r["robot"].replace("_", " "), f"{r['dt']:g}", str(r["lanes"]), r["precision"], *map(figure, own)]

    own = [r for r in rows if r["engine"].startswith("pbad")]
    head = ["robot", "dt, s", "lanes", "precision", "ours", "MuJoCo C", "iterations", "99 %", "compiling, CPU s"]
    worst = max(r["failed_share"] for r in own)
    said = (
        "Control steps per CPU second under random actions of the whole range, radau(1) with one step a control step, "
        f"MuJoCo C with the file's own steps. Share of our steps that failed: at most {100 * worst:.2g} %."
    )
    kinds = ["robot", "lanes", "simulator", "control steps per CPU s", "penetration, mm", "99 %", "drift of a step"]
    beside = {(r["robot"], r["dt"], r["lanes"]) for r in rows if r["engine"].startswith(("brax", "mjx"))}
    others = [r for r in rows if (r["robot"], r["dt"], r["lanes"]) in beside and r["precision"] == "float32"]
    table = [
        [r["robot"].replace("_", " "), str(r["lanes"]), r["engine"].replace("pbad", "ours,")]
        + [figure(r[k]) for k in ("per_cpu_s", "penetration_mm", "penetration_mm_p99", "drift")]
        for r in others
    ]
    beyond = (
        "Single precision, 0.05 s a control step. MJX runs the same file, Brax its own environments of these names, "
        "with their masses and steps. Drift: the median error of one control step beside the same simulator with steps "
        "16 times smaller, the largest of its coordinates, m and rad."
    )
    return [*markdown(head, [line(r) for r in own], 1), "", said, "", *markdown(kinds, table, 3), "", beyond]


def survey(data: dict) -> list[str]:
    """How many robots of each source load, and what the others lack."""
    rows = [r for r in data["rows"] if r["here"]]
    head = ["from", "models", "load without a flag", "with everything acting", "numbers are MuJoCo's"]
    keys, table = ("loads", "everything_acts", "agrees"), []
    sources = list(dict.fromkeys(r["model"].split("/")[0] for r in rows))
    for source_, own in [*((s, [r for r in rows if r["model"].startswith(f"{s}/")]) for s in sources), ("all", rows)]:
        table.append([source_, str(len(own)), *(str(sum(bool(r.get(k)) for r in own)) for k in keys)])
    shares = [f"{100 * sum(bool(r.get(k)) for r in rows) / len(rows):.0f} %" for k in keys]
    table.append(["", "", *shares])
    lost = [f"`{r['model']}` ({r['refused'][0][:90]})" for r in rows if not r["loads"]]
    away = sum(not r["here"] for r in data["rows"])
    pulled = [r for r in rows if r.get("tendons")]
    worst = max(max(r["tendon_lengths"], r["tendon_moments"]) for r in pulled)
    said = f"Not loaded: {'; '.join(lost)}. Not counted, because the copies lack files: {away}. "
    said += f"Of {sum(r['tendons'] for r in pulled)} tendons that do not wrap, in {len(pulled)} models, lengths and "
    return [*markdown(head, table, 1), "", said + f"moments are MuJoCo's to {worst:.0e}."]


def standing(data: dict) -> list[str]:
    """How robots stand."""
    head = ["robot", "dof", "base moves, mm", "iterations a step", "steps in parts", "failed", "× real time"]
    table = []
    for r in (r for r in data["rows"] if r["here"]):
        moves = figure(None if r["base_moves_m"] is None else 1000 * r["base_moves_m"])
        numbers = [figure(r["iterations_a_step"]), f"{100 * r['in_parts']:.0f} %", str(r["failed_steps"])]
        table.append([r["robot"], str(r["nv"]), moves, *numbers, figure(r["times_real_time"])])
    return [*markdown(head, table, 1), ""]


def torture(data: dict) -> list[str]:
    """Claims of CONVERGED that independent mechanics re-checked, thousands of steps and how many are false."""
    rows = [r for r in data["rows"] if r["part"] == "steps" and "converged" in r]
    systems, schemes = (list(dict.fromkeys(r[k] for r in rows)) for k in ("system", "scheme"))

    def cell(system: str, scheme: str) -> str:
        own = [r for r in rows if (r["system"], r["scheme"]) == (system, scheme)]
        false = sum(sum(r["false"].values()) for r in own)
        return f"{sum(r['converged'] for r in own) / 1e3:.1f}" + (f" ({false})" if false else "") if own else ""

    kinds: dict[str, int] = {}
    for r in rows:
        for kind, n in r["false"].items():
            kinds[kind] = kinds.get(kind, 0) + n
    false = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n) or "none"
    steps, good, followed = (sum(r[k] for r in rows) for k in ("steps", "converged", "followed"))
    elsewhere = sum(r.get("elsewhere", 0) for r in rows)
    said = (
        f"Of {steps:,} steps, many of them far too large, {good:,} CONVERGED; the roots of {followed:,} were followed "
        "in many strides from a step of no length. Thousands of claims in single and double precision (in brackets: "
        f"false ones); by kind: {false}. Where bodies meet things {elsewhere} of the roots followed were others, by "
        "all laws as good (docs/mathematics.md, section 3). Empty: not run or refused."
    )
    table = [[system, *(cell(system, scheme) for scheme in schemes)] for system in systems]
    return [*markdown(["", *schemes], table, 1), "", said, *_other_parts(data)]


def _other_parts(data: dict) -> list[str]:
    """What else of the torture script has run."""
    parts = {r["part"]: r["result"] for r in data["rows"] if "result" in r}
    words = {
        "files": "{files:,} mutants of model files: our own errors, or {loaded:,} models.",
        "archives": "{archives:,} mutants of archives: {refused:,} refused by name, {read:,} read as they were.",
        "kills": "{kills} times `kill -9` of a long rollout: it goes on to the same bits.",
        "memory": "{steps:,} steps: {mib_after_a_tenth:.0f} MiB after a tenth, {mib_at_the_end:.0f} MiB at the end.",
    }
    return [text.format(**parts[name]) for name, text in words.items() if name in parts]


def training(data: dict) -> list[str]:
    """A row for each way to train a task, its seeds side by side."""
    kinds: dict[tuple, list[dict]] = {}
    for r in data["rows"]:
        how = [r.get(k, usual) for k, usual in (("in", "here"), ("repeat", 1), ("constraints", "spring"))]
        kinds.setdefault((r["task"], r["trainer"], *how, r.get("scheme") or "", r["env_steps"]), []).append(r)

    def side_by_side(rows: list[dict], judge: str, name: str = "m_s") -> str:
        return ", ".join(figure(r[judge][name]) for r in rows if r.get(judge)) or "–"

    table = []
    for (task, trainer, place, repeat, law, scheme, steps), rows in sorted(kinds.items()):
        own = ", ".join(figure(r["best_m_s"]) for r in rows) if "best_m_s" in rows[0] else side_by_side(rows, "judged")
        where = f"{repeat} steps an action" if repeat > 1 else "one step an action"
        where = where.replace("steps", f"steps of {scheme}") if scheme else where
        where = "MuJoCo" if place == "MuJoCo" else f"{where}, MuJoCo's constraints" if law == "MuJoCo" else where
        parts = f"{sum(r['divided'] for r in rows)}" if "divided" in rows[0] else "–"
        spent = ", ".join(figure(r["cpu_s"]) for r in rows)
        fine, there = side_by_side(rows, "in_small_steps"), side_by_side(rows, "in_mujoco")
        stays = side_by_side(rows, "in_mujoco", "steps")
        failed = str(sum(r.get("failed", 0) for r in rows)) if place != "MuJoCo" else "–"
        table.append([task, trainer, where, f"{steps:,}", spent, own, fine, there, stays, failed, parts])
    head = ["task", "trainer", "trained in", "control steps", "CPU s", "m/s", "in five steps an action", "in MuJoCo"]
    head += ["steps of 200 there", "failed", "in parts"]
    said = "Seeds side by side, as many as were run, without noise, from fresh starts. "
    said += "One thread, float32, 128 lanes of PPO and the policy gradient; compiling is left out. "
    said += "In MuJoCo: 16 episodes, by `in_mujoco.py`; the older rows, with springs, in gymnasium's environment."
    return [*markdown(head, table, 3), "", said]


def unroll(data: dict) -> list[str]:
    """What a control step of the ant costs in a batch, and what compiling takes."""
    table = [
        [r["by"], str(r["lanes"]), figure(r.get("us_a_step")), str(r.get("failed", "–")), figure(r["compile_cpu_s"])]
        for r in data["rows"]
    ]
    return [*markdown(["by", "lanes", "µs a control step", "failed", "compile, CPU s"], table, 1), ""]


TABLES = {
    "unroll": unroll,
    "training": training,
    "torture": torture,
    "environments": environments,
    "gpu": gpu,
    "gpu_cost": gpu_cost,
    "step_time": step_time,
    "throughput": throughput,
    "paper_time": paper_time,
    "gradients": gradients,
    "batch": batch,
    "work_precision": work_precision,
    "one_thread": one_thread,
    "rotation": rotation,
    "error": error,
    "truth": truth,
    "stability": stability,
    "survey": survey,
    "standing": standing,
}


def gathered(name: str) -> dict:
    """results/NAME.json, or the rows of all NAME_*.json with the environment of the newest."""
    one = RESULTS / f"{name}.json"
    every = [
        json.loads(file.read_text()) for file in ([one] if one.exists() else sorted(RESULTS.glob(f"{name}_*.json")))
    ]
    newest = max(every, key=lambda data: data["environment"]["date"])
    return newest | {"rows": [row for data in every for row in data["rows"]]}


def filled(text: str) -> str:
    """The page with every marked table as the results have it now."""
    for name in re.findall(r"<!-- begin: (\w+) -->", text):
        data = gathered(name)
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        head, rest = text.split(begin)
        _, tail = rest.split(end)
        where = name if (RESULTS / f"{name}.json").exists() else f"{name}_*"
        text = "\n".join([head + begin, *TABLES[name](data), source(data, where), end + tail])
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    texts = {page: page.read_text() for page in PAGES}
    new = {page: filled(text) for page, text in texts.items()}
    if arguments.check:
        sys.exit(new != texts)
    for page, text in new.items():
        page.write_text(text)


if __name__ == "__main__":
    main()
