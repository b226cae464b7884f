"""The survey of robots that people bring: what benchmarks/results/survey.json says, is so.

CI looks at a fifth of the models that are installed here, by a seed that is printed; PBAD_SURVEY_SEED repeats it.
"""

import importlib
import json
import os
import pathlib
import random
import sys
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.float64, pytest.mark.robots, pytest.mark.usefixtures("no_log_file")]
FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
SAVED = json.loads((FOLDER / "results" / "survey.json").read_text())["rows"]
SAME = ("nv", "nu", "loads", "everything_acts", "refused", "inactive")


@pytest.fixture
def survey(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("survey")
    for name in ("survey", "common"):
        sys.modules.pop(name, None)


def test_most_robots_load_and_most_of_these_with_everything_acting():
    """95 % without a flag, 70 % with everything acting; numbers of all that load are MuJoCo's, those of tendons too."""
    rows = [r for r in SAVED if r["here"]]
    assert len(rows) >= 73
    assert np.mean([r["loads"] for r in rows]) >= 0.95
    assert np.mean([r["everything_acts"] for r in rows]) >= 0.70
    assert all(r["agrees"] for r in rows if r["loads"])
    assert sum(r["tendons"] for r in rows if r["loads"]) >= 100


def assert_as_saved(survey, names: list[str]) -> None:
    saved, found = {r["model"]: r for r in SAVED}, {name: survey.measure(name) for name in names}
    for name in names:
        assert {k: found[name].get(k) for k in SAME} == {k: saved[name].get(k) for k in SAME}, name
        assert found[name]["agrees"], found[name]


def installed(survey) -> list[str]:
    """Those that are here and are no incomplete copies."""
    here = survey.files()
    return [r["model"] for r in SAVED if r["here"] and here.get(r["model"]) is not None and "nv" in r]


@pytest.mark.slow
def test_a_fifth_of_the_survey(survey, capsys):
    seed = int(os.environ.get("PBAD_SURVEY_SEED", random.SystemRandom().randrange(10**6)))
    with capsys.disabled():
        print(f"PBAD_SURVEY_SEED={seed}")
    names = installed(survey)
    assert len(names) >= 40
    assert_as_saved(survey, random.Random(seed).sample(names, len(names) // 5))


@pytest.mark.slow
@pytest.mark.thorough
def test_all_of_the_survey(survey):
    assert_as_saved(survey, installed(survey))
