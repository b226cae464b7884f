"""The pages say what the library says, and the examples do what they show."""

import doctest
import importlib
import importlib.util
import inspect
import pathlib
import re

import matplotlib
import pytest

import pbad_jax as pbad
from pbad_jax import errors

matplotlib.use("Agg")
ROOT = pathlib.Path(__file__).parents[2]
ROOMS = ["pbad_jax", *(f"pbad_jax.{x}" for x in ("control", "envs", "forces", "importers", "newton_euler", "viz"))]
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
    assert marked <= set(re.findall(r"[\w/]+\.md", run[run.index("for pages in") : run.index("examples $pages")]))


def tool(path: str):
    """A script of this repository as a module."""
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_that_lead_nowhere_are_found(tmp_path):
    style = '<link href="_static/a.css"><a id="here"></a>'
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "a.css").write_text("")
    good = '<a href="b.html#here"></a><a href="#here"></a><a href="https://x.org/none"></a>'
    bad = '<a href="c.html"></a><a href="b.html#there"></a><img src="d.png">'
    (tmp_path / "a.html").write_text(style + good + bad)
    (tmp_path / "b.html").write_text(style)
    assert tool("docs/links.py").broken(tmp_path) == ["a.html: b.html#there", "a.html: c.html", "a.html: d.png"]


def test_notes_of_a_release_are_its_section_of_the_changelog():
    section = tool(".ci/changelog.py").section
    text = "# Changelog\n\n## 0.2.0 (unreleased)\n\n- a\n\n## 0.1.0 (2026-12-01)\n\n- b\n- c\n"
    assert section("0.1.0", text) == "- b\n- c\n"
    for version, why in (("0.2.0", "unreleased"), ("0.3.0", "no section")):
        with pytest.raises(ValueError, match=why):
            section(version, text)


def test_a_result_is_older_than_code_and_not_than_words():
    stale = tool("benchmarks/stale.py")
    old = 'def f(x):\n    """Words."""\n    return x  # more\n'
    assert stale._code(old) == stale._code('"""A page."""\ndef f(x):\n    """Other words."""\n    return x\n')
    assert stale._code(old) != stale._code(old.replace("return x", "return -x"))
    found = {str(p.relative_to(ROOT)) for p in stale.imported(stale.script_of("step_time"))}
    assert {"benchmarks/step_time.py", "benchmarks/common.py", "pbad_jax/stage/equation.py"} <= found
    assert not any(x.startswith(("pbad_jax/viz", "pbad_jax/io")) for x in found)
    assert stale.script_of("throughput_full").stem == "throughput" and stale.script_of("nothing") is None
    assert isinstance(stale.verdict("HEAD", stale.script_of("step_time")), list)
    assert "no ancestor" in stale.verdict("0" * 40, stale.script_of("step_time"))
