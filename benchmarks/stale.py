"""Which results are older than the code that they measure: printed, and no reason to fail.

    python benchmarks/stale.py            # one line a file of results/
    python benchmarks/stale.py --files    # with the files that have changed

What a script measures is itself and all that it imports, directly or not, of benchmarks/, examples/ and the rooms of
the package; of the rim (files, tasks, pictures, command line) only rooms that scripts name. A file has changed when its
code has: docstrings and comments do not count. A commit that is no ancestor of this one is named, for its figures are
of no code that is here.
"""

import argparse
import ast
import functools
import json
import pathlib
import re
import subprocess
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RIM = ("importers", "storage", "viz", "cli", "envs", "control", "analysis")
NAMED = re.compile(r"\b(?:pbad|pbad_jax)\.(\w+)")
# what `pbad_jax` offers itself, and the room that it is from
OFFERED = {"load": "importers", "long_rollout": "storage", "linearize": "analysis", "check_gradients": "analysis"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true")
    arguments = parser.parse_args()
    for path in sorted(RESULTS.glob("*.json")):
        where = json.loads(path.read_text())["environment"]
        script = script_of(path.stem)
        said = verdict(where["commit"], script)
        print(f"{path.stem:22} {where['date']} {where['commit']:9} {said if isinstance(said, str) else summary(said)}")
        if arguments.files and not isinstance(said, str):
            for name in said:
                print(f"    {name}")


def script_of(stem: str) -> pathlib.Path | None:
    """The script of a result: the longest name that its own begins with."""
    scripts = {p.stem: p for p in (*(ROOT / "benchmarks").glob("*.py"), ROOT / "tests" / "torture.py")}
    names = [x for x in scripts if stem == x or stem.startswith(x + "_")]
    return scripts[max(names, key=len)] if names else None


def verdict(commit: str, script: pathlib.Path | None) -> str | list[str]:
    """The files (sorted) whose code has changed since, or what is wrong with the result."""
    if script is None:
        return "no script of that name is here any more"
    commit, with_changes = commit.rstrip("+"), commit.endswith("+")
    if _git("merge-base", "--is-ancestor", commit, "HEAD").returncode:
        return "its commit is no ancestor of this one"
    if with_changes:
        return "measured with changes that no commit has"
    files = sorted(str(p.relative_to(ROOT)) for p in imported(script))
    touched = _git("diff", "--name-only", commit, "--", *files).stdout.split()
    return [x for x in touched if _code(_git("show", f"{commit}:{x}").stdout) != _code((ROOT / x).read_text())]


def summary(changed: list[str]) -> str:
    """How many files, and their rooms."""
    if not changed:
        return "as the code is now"
    rooms = sorted({x.split("/")[1] for x in changed if x.count("/") > 1})
    own = [x for x in changed if not x.startswith("pbad_jax/")]
    shown = rooms[:4] + ["..."] * (len(rooms) > 4) + own[:2]
    return f"older than {len(changed)} files: {', '.join(shown or changed[:3])}"


def imported(script: pathlib.Path) -> set[pathlib.Path]:
    """The files of this repository that a script runs."""
    scripts = _reached(script, lambda path: not path.is_relative_to(ROOT / "pbad_jax"))
    named = {x for path in scripts for x in NAMED.findall(path.read_text())}
    left_out = set(RIM) - named - {OFFERED.get(x, "") for x in named}
    return scripts | _reached(script, lambda path: _room(path) not in left_out)


def _reached(script: pathlib.Path, wanted: Callable[[pathlib.Path], bool]) -> set[pathlib.Path]:
    """From import to import, through files that are wanted."""
    seen, todo = set(), [script]
    while todo:
        path = todo.pop()
        if path not in seen and wanted(path):
            seen.add(path)
            todo += [p for x in _imports(path) if (p := _file(x))]
    return seen


@functools.cache
def _imports(path: pathlib.Path) -> tuple[str, ...]:
    """Modules, and what may be one: names that are imported from somewhere."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [x.name for x in node.names]
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{x.name}" for x in node.names)]
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module" and node.args:
            found += [x.value for x in node.args[:1] if isinstance(x, ast.Constant)]
    return tuple(found)


@functools.cache
def _file(module: str) -> pathlib.Path | None:
    """Where it is, if it is here."""
    bases = [folder.joinpath(*module.split(".")) for folder in (ROOT, ROOT / "benchmarks", ROOT / "examples")]
    return next((p for x in bases for p in (x.with_suffix(".py"), x / "__init__.py") if p.is_file()), None)


def _room(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "pbad_jax" and len(parts) > 2 else ""


@functools.cache
def _code(text: str) -> str:
    """Without docstrings, comments and layout; text that is no Python as it is."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    for node in ast.walk(tree):
        match getattr(node, "body", None):
            case [ast.Expr(ast.Constant()), *rest]:
                node.body = rest  # pyright: ignore
    return ast.dump(tree)


def _git(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False)


if __name__ == "__main__":
    main()
