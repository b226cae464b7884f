"""The benchmarks' own machinery: comparing two runs, and that every script is listed; no benchmark is run."""

import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbad_jax as pbad

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as suite  # noqa: E402  the folder is no installed package
from benchmarks import compare  # noqa: E402

pytestmark = pytest.mark.float64

HELPERS = {
    "engines",
    "systems",
    "__main__",
    "common",
    "compare",
    "environment_rivals",
    "in_mujoco",
    "mujoco_lanes",
    "readme_table",
    "remotes",
    "rivals",
    "stale",
}
ROWS = [
    {"links": 5, "method": "a", "dt": 0.01, "s": 1.0, "iterations": 3.0, "failed_steps": 0},
    {"links": 10, "method": "a", "dt": 0.01, "s": 2.0, "simulated_s": 10.0, "simulated_s_per_s": 5.0},
    {"links": 20, "method": "a", "dt": 0.01, "us_per_step_median": 4.0, "failed_steps": 0},
]


def scripts() -> set[str]:
    return {path.stem for path in FOLDER.glob("*.py")} - HELPERS


@pytest.fixture
def compared(tmp_path, capsys):
    """(new rows, options) -> exit status and what was printed; the old rows are ROWS."""

    def call(rows, *options, device="one"):
        paths = [tmp_path / "old.json", tmp_path / "new.json"]
        for path, some, where in zip(paths, (ROWS, rows), ("one", device)):
            environment = {"device": where, "load": [0.5, 0, 0], "versions": {"jax": "1"}}
            path.write_text(json.dumps({"environment": environment, "dtype": "float64", "rows": some}))
        status = compare.main([*map(str, paths), *options])
        return status, capsys.readouterr().out

    return call


def changed(i: int, **figures) -> list[dict]:
    return [row | (figures if k == i else {}) for k, row in enumerate(ROWS)]


def test_the_same_run_passes(compared):
    status, out = compared(ROWS)
    assert status == 0 and "4 times, 0 over 1.25" in out and "differs" not in out


def test_a_slower_row_fails_and_comes_first(compared):
    status, out = compared(changed(2, us_per_step_median=6.0))
    first = out.split("figure, row\n")[1].splitlines()[0]
    assert status == 1 and first.split()[0] == "1.50" and "links 20, method a" in first and "<--" in first
    assert compared(changed(2, us_per_step_median=6.0), "--tolerance", "1.6")[0] == 0


def test_a_lower_rate_is_slower_and_a_higher_one_is_not(compared):
    assert compared(changed(1, simulated_s_per_s=2.5))[0] == 1
    assert compared(changed(1, simulated_s_per_s=50.0))[0] == 0


def test_what_is_no_time_is_not_compared(compared):
    assert compared(changed(0, iterations=30.0))[0] == 0
    assert compared(changed(1, simulated_s=100.0))[0] == 0


def test_relative_forgives_what_is_slower_in_everything(compared):
    slower = [{k: v * 2 if k in ("s", "us_per_step_median") else v for k, v in row.items()} for row in ROWS]
    slower[1]["simulated_s_per_s"] = 2.5
    assert compared(slower)[0] == 1
    assert compared(slower, "--relative")[0] == 0
    slower[0]["s"] = 4.0
    assert compared(slower, "--relative")[0] == 1


def test_failures_count(compared):
    status, out = compared(changed(0, failed_steps=2))
    assert status == 1 and "failed_steps 0, now 2" in out
    status, out = compared([*ROWS[:2], {"links": 20, "method": "a", "dt": 0.01, "failure": "too long"}])
    assert status == 1 and "too long" in out


def test_rows_that_went_or_came_are_named(compared):
    status, out = compared([*ROWS[:2], ROWS[2] | {"links": 40}])
    assert status == 0 and "vanished: links 20" in out and "new: links 40" in out
    assert compared([ROWS[2] | {"links": 40}])[0] == 1  # nothing was compared


def test_other_surroundings_are_told(compared):
    assert "device: one -> two" in compared(ROWS, device="two")[1]


def test_rows_with_one_name_are_kept_apart():
    assert list(compare.named([ROWS[0], ROWS[0]])) == ["links 5, method a, dt 0.01", "links 5, method a, dt 0.01 #2"]


@pytest.mark.parametrize("path", sorted((FOLDER / "results").glob("*.json")), ids=lambda p: p.stem)
def test_every_result_can_be_compared_with_itself(path, capsys):
    rows = json.loads(path.read_text())["rows"]
    assert not [name for name in compare.named(rows) if "#" in name], "rows that nothing tells apart"
    assert compare.main([str(path), str(path)]) == 0
    capsys.readouterr()


def test_every_script_is_in_the_plan_and_in_the_table():
    in_table = set(re.findall(r"^\| `(\w+)\.py` \|", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert {s.name for s in suite.SCRIPTS} == scripts()
    assert in_table - HELPERS == scripts()


PROGRAM = """
HloModule jit_f

%fused (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  ROOT %m = f32[8,4]{1,0} multiply(%p, %p)
}

%rare (q: f32[8,4]) -> f32[8,4] {
  %q = f32[8,4]{1,0} parameter(0)
  ROOT %twice = f32[8,4]{1,0} fusion(%q), kind=kLoop, calls=%fused
}

%same (s: f32[8,4]) -> f32[8,4] {
  ROOT %s = f32[8,4]{1,0} parameter(0)
}

%body (t: (f32[8,4])) -> (f32[8,4]) {
  %t = (f32[8,4]{1,0}) parameter(0)
  %x = f32[8,4]{1,0} get-tuple-element(%t), index=0
  %y = f32[8,4]{1,0} fusion(%x), kind=kLoop, calls=%fused, metadata={op_name="y"}
  %z = f32[8,4]{1,0} conditional(%i, %y, %y), branch_computations={%rare, %same}
  ROOT %out = (f32[8,4]{1,0}) tuple(%z)
}

%go_on (u: (f32[8,4])) -> pred[] {
  %u = (f32[8,4]{1,0}) parameter(0)
  ROOT %more = pred[] fusion(%u), kind=kLoop, calls=%fused
}

ENTRY %main (a: f32[8,4]) -> f32[8,4] {
  %a = f32[8,4]{1,0} parameter(0)
  %b = f32[8,4]{1,0} copy(%a)
  %w = (f32[8,4]{1,0}) while(%b), condition=%go_on, body=%body
  ROOT %c = f32[8,4]{1,0} get-tuple-element(%w), index=0
}
"""


def test_kernels_and_bytes_of_a_program_are_counted(monkeypatch):
    """A pass is a loop's body with its branches; what a kernel consists of is not counted again."""
    monkeypatch.syspath_prepend(str(FOLDER))
    count = importlib.import_module("gpu_cost")
    one, outside = count.costs(PROGRAM, "step")
    assert one == count.Cost(2, 2 * 2 * 128) and outside == count.Cost(1, 2 * 128)


def test_the_plan_takes_about_an_hour():
    assert sum(s.minutes for s in suite.SCRIPTS) < 66


def test_a_policy_is_judged_in_mujoco(monkeypatch):
    """A half-cheetah that does nothing: as fast, and as rewarded, as MuJoCo's own steps say."""
    monkeypatch.syspath_prepend(str(FOLDER))
    judge, training, mujoco = map(importlib.import_module, ("in_mujoco", "training", "mujoco"))
    task, (text, _) = pbad.envs.make("half_cheetah").task, training.mujoco_file("half_cheetah")
    m = mujoco.MjModel.from_xml_string(text)
    found = judge.judged(task, m, lambda obs: jnp.zeros(6), 3, 2, episodes=2)
    speeds = []
    for k in range(2):
        state = task.start(task.model, jax.random.split(jax.random.key(3000 + k))[0])
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:], m.opt.timestep = state.q, state.v, 0.005
        mujoco.mj_step(m, d, 30)
        speeds.append((d.qpos[0] - float(state.q[0])) / 0.15)
    assert found["m_s"] == pytest.approx(np.mean(speeds), rel=1e-5)
    assert found["reward"] == pytest.approx(found["m_s"], rel=1e-5)  # no effort is paid for
    assert found["steps"] == 3


def test_the_tables_say_what_the_results_say():
    words = [sys.executable, str(FOLDER / "readme_table.py"), "--check"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"python benchmarks/readme_table.py\n{done.stdout}{done.stderr}"


def test_a_speed_up_is_over_a_cpu_or_over_one_lane_after_another(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    speedup = importlib.import_module("many_lanes").speedup
    kind = {"engine": "radau1", "links": 10, "dtype": "float64", "by": "iteration"}
    one, many, other = ({**kind, "lanes": n, "ms": ms} for n, ms in ((1, 4.0), (100, 200.0), (50, 1.0)))
    rows = [one, many, other, {**one, "links": 20, "ms": 9.0}]
    assert speedup(many, rows, []) == 2.0 and speedup(one, rows, []) is None
    assert speedup(many, [one], [{**many, "ms": 600.0}, {**other, "ms": 7.0}]) == 3.0
    assert speedup(many, rows, [{**many, "dtype": "float32"}]) is None
