"""The pages say what the library says, and the examples do what they show."""

import doctest
import importlib
import inspect
import pathlib
import re

import matplotlib
import pytest

import pbad_jax as pbad
from pbad_jax import errors

matplotlib.use("Agg")
ROOT = pathlib.Path(__file__).parents[2]
ROOMS = ["pbad_jax", *(f"pbad_jax.{x}" for x in ("control", "envs", "forces", "io", "newton_euler", "viz"))]
NOT_RUN = {"show", "use_compilation_cache"}  # one opens a browser, the other changes JAX for every test after it
pytestmark = pytest.mark.float64


def public(room: str) -> dict:
    """What a room offers under its own name."""
    made = importlib.import_module(room)
    things = {x: getattr(made, x) for x in made.__all__}
    return {x: thing for x, thing in things.items() if getattr(thing, "__name__", None) == x and callable(thing)}


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


@pytest.mark.parametrize("room", ROOMS)
def test_completion_offers_the_public_names_alone(room):
    made = importlib.import_module(room)
    assert dir(made) == sorted(made.__all__)
    assert all(hasattr(made, x) for x in made.__all__)


def test_every_public_name_has_an_example_that_is_run():
    without = [
        f"{room}.{x}" for room in ROOMS for x, thing in public(room).items() if ">>> " not in (thing.__doc__ or "")
    ]
    assert without == []
    skipped = {x for room in ROOMS for x, thing in public(room).items() if "+SKIP" in thing.__doc__}
    assert skipped == NOT_RUN


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_examples(room, before_examples):
    parser, said = doctest.DocTestParser(), []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for name, thing in public(room).items():
        example = parser.get_doctest(inspect.getdoc(thing), dict(before_examples), name, None, 0)
        runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)
    assert runner.tries >= len(public(room)) - len(NOT_RUN)


@pytest.fixture(scope="module")
def before_examples() -> dict:
    """The names that examples speak of."""
    names: dict = {}
    exec((ROOT / "docs" / "before_examples.py").read_text(), names)
    return names


def test_every_marked_example_is_run_by_ci():
    marked = {str(p.relative_to(ROOT)) for p in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
              if "<!-- example -->" in p.read_text()}  # fmt: skip
    run = (ROOT / ".ci" / "run").read_text()
    assert marked <= set(re.findall(r"[\w/]+\.md", "\n".join(x for x in run.splitlines() if "examples " in x)))
