"""The pages say what the library says."""

import inspect
import pathlib
import re

import pytest

import pbad_jax as pbad
from pbad_jax import errors

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.float64


def test_the_index_of_statuses_and_exceptions_is_whole():
    text = (ROOT / "docs" / "errors.md").read_text()
    for status in pbad.Status:
        assert f"| {status.value} | `{status.name}` | {status.advice} |" in text
    classes = inspect.getmembers(errors, lambda x: inspect.isclass(x) and issubclass(x, BaseException))
    for name, made in classes:
        bases = [b.__name__ for b in made.__mro__[1:] if issubclass(b, BaseException)]
        assert f"| `{name}` | {bases[0]} |" in text, name
    assert len(re.findall(r"^\| `\w+` \|", text, re.MULTILINE)) == len(classes)


def test_the_readme_is_short_and_its_links_are_there():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert len(links) > 10
    assert [x for x in links if not (ROOT / x).exists()] == []


def test_completion_offers_the_public_names_alone():
    assert dir(pbad) == sorted(pbad.__all__)
    assert all(hasattr(pbad, x) for x in pbad.__all__)


def test_every_marked_example_is_run_by_ci():
    marked = {str(p.relative_to(ROOT)) for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
              if "<!-- example -->" in p.read_text()}  # fmt: skip
    run = (ROOT / ".ci" / "run").read_text()
    assert marked <= set(re.findall(r"[\w/]+\.md", "\n".join(x for x in run.splitlines() if "examples " in x)))
