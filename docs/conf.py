"""The site: the Markdown of this repository as it lies there, notebooks as pages, and API pages from the docstrings.

    sphinx-build -W --keep-going -j auto -c docs . build/site

The source folder is the repository itself, so that every relative link works here and in the repository. Notebooks are
run, and shown with what they gave (executed.py); `-D pbad_run_notebooks=0` shows them without. Animations of the
gallery are taken from docs/gallery where `python examples/animations.py --out docs/gallery` has put them.
"""

import importlib
import pathlib
import re
import shutil
import sys
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import executed  # noqa: E402
from sphinx.ext.autodoc.mock import mock  # noqa: E402

import pbad_jax  # noqa: E402

project = "pbad_jax"
author = copyright = "The pbad_jax authors"
version = release = pbad_jax.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "docs/*.md", "docs/made/**",
]  # fmt: skip
exclude_patterns = [".*", "build", "dist", "benchmarks/runs", "benchmarks/results", "pbad_jax", "tests", "animations"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"pbad_jax {version}"
GALLERY = ROOT / "docs" / "gallery"
MADE = ROOT / "docs" / "made"  # by this file, at every build
PLAYED = MADE / "played"  # animations of notebooks
html_extra_path = [str(path) for path in (GALLERY, PLAYED) if path == PLAYED or path.is_dir()]
default_role = "code"
autodoc_typehints = "none"  # the docstrings say shapes and units
autodoc_member_order = "bysource"
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_mock_imports = ["brax", "gymnax"]  # in none of the extras
templates_path = ["templates"]
napoleon_custom_sections = ["Source"]
napoleon_use_rtype = False

SECTIONS = {
    "Begin": [
        "docs/start", "docs/howto", "docs/coming_from_mujoco", "docs/coming_from_brax", "docs/command_line",
        "docs/gallery",
    ],
    "Topics": [
        "docs/schemes", "docs/what_acts", "docs/environments", "docs/batches", "docs/gradients", "docs/mathematics",
        "docs/symbols", "docs/errors",
    ],
    "Measured": ["docs/benchmarks", "benchmarks/README"],
}  # fmt: skip
FIRST = ["docs/made/01_quickstart", "docs/made/07_your_robot"]  # of the notebooks; the others follow by number
# Pages of the API: public module, what it is, and where each name is found in it.
MODULES = {
    "pbad_jax": "Models, states, steps and rollouts",
    "pbad_jax.forces": "What a force is, and those that are here",
    "pbad_jax.envs": "Environments: tasks, resets, many lanes under a policy",
    "pbad_jax.envs.gymnasium": "Environments as Gymnasium's",
    "pbad_jax.envs.brax": "Environments as Brax's",
    "pbad_jax.envs.gymnax": "Environments as gymnax's",
    "pbad_jax.control": "Plans by iLQR and by sampling",
    "pbad_jax.newton_euler": "The paper's baseline: explicit integrators",
    "pbad_jax.viz": "Pictures",
    "pbad_jax.importers": "Models from files",
}
BEFORE = """
What stands before every example:

.. literalinclude:: ../before_examples.py
   :lines: 3-
"""


def public(module: str) -> list[str]:
    """The names that a module offers, each on one page: no submodules, no second names, nothing of pbad_jax again."""
    with mock(autodoc_mock_imports):
        made = importlib.import_module(module)
    offered = getattr(made, "__all__", None) or [x for x in vars(made) if not x.startswith("_")]
    known = set(pbad_jax.__all__) if module != "pbad_jax" else set()
    things = {x: getattr(made, x) for x in offered}
    return [
        x
        for x, thing in things.items()
        if callable(thing) and thing.__name__ == x and not (x in known and getattr(pbad_jax, x) is thing)
    ]


def write_api() -> None:
    """One page a module, and stubs of one page a name, which autosummary makes."""
    for module, said in MODULES.items():
        names = public(module)
        classes = [x for x in names if isinstance(getattr(sys.modules[module], x), type)]
        kinds = {"Classes": classes, "Functions": [x for x in names if x not in classes]}
        lines = [module, "=" * len(module), "", f"{said}.", "", f".. currentmodule:: {module}", ""]
        for kind, members in kinds.items():
            if members:
                lines += [kind, "-" * len(kind), "", ".. autosummary::", "   :toctree: api", "   :nosignatures:", ""]
                lines += [f"   {x}" for x in members] + [""]
        (MADE / f"{module}.rst").write_text("\n".join(lines) + BEFORE)


def toctrees(notebooks: list[str]) -> str:
    """What the front page lists; pages of docs/ that nobody has named come with the topics."""
    sections = {name: list(pages) for name, pages in SECTIONS.items()}
    named = {page for pages in sections.values() for page in pages}
    sections["Topics"] += sorted(p for x in (ROOT / "docs").glob("*.md") if (p := f"docs/{x.stem}") not in named)
    sections["Notebooks"] = sorted(notebooks, key=lambda x: (x not in FIRST, x))
    sections["API"] = [f"docs/made/{module}" for module in MODULES]
    sections["Project"] = ["CONTRIBUTING", "CHANGELOG"]
    order = ["Begin", "Notebooks", "Topics", "API", "Measured", "Project"]
    return "\n".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {name}", "", *sections[name], "```"]) for name in order
    )


def gallery() -> str:
    """The animations that are there, each in a frame."""
    files = sorted(p.name for p in GALLERY.glob("*.html"))
    frame = (
        '<iframe src="../{0}" loading="lazy" style="width: 100%; aspect-ratio: 3 / 2; border: 0" title="{0}"></iframe>'
    )
    shown = [f"## {name.removesuffix('.html')}\n\n{frame.format(name)}" for name in files]
    return "\n\n".join(shown) if files else "This build has no animations to play: `docs/gallery` was empty."


def read(app: Any, name: str, content: list[str]) -> None:
    """Notebooks are pages here; the front page has the tables of contents, the gallery what was made for it."""
    text = content[0]
    if not name.startswith("docs/made"):
        text = re.sub(r"\]\((?:\.\./)?notebooks/(\w+)\.py\)", r"](/docs/made/\1.md)", text)
    if name == root_doc:
        text += app.config.pbad_toctrees
    if name == "docs/gallery":
        text += "\n\n" + gallery() + "\n"
    content[0] = text


def plain(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """In the docstrings a bar is a norm, never a substitution of reStructuredText, and `s.` a unit, not item s."""
    lines[:] = [line if line.startswith("    ") else line.replace("|", r"\|") for line in lines]
    lines[:] = [re.sub(r"^(:\w+ [^:]+: )(\w\.(?: |$))", r"\1\\\2", line) for line in lines]


def prepare(app: Any, config: Any) -> None:
    """Write the pages that are made."""
    shutil.rmtree(MADE, ignore_errors=True)
    PLAYED.mkdir(parents=True)
    write_api()
    notebooks = executed.pages(MADE, PLAYED, bool(int(config.pbad_run_notebooks)))
    config.pbad_toctrees = toctrees([f"docs/made/{x}" for x in notebooks])


def finish(app: Any, exception: Exception | None) -> None:
    """The front page is found under the folder's own address too."""
    if exception is None and app.builder.format == "html":
        shutil.copy(pathlib.Path(app.outdir) / "README.html", pathlib.Path(app.outdir) / "index.html")


def setup(app: Any) -> None:
    """Of Sphinx."""
    app.add_config_value("pbad_toctrees", "", "env")
    app.add_config_value("pbad_run_notebooks", "1", "env")
    app.connect("config-inited", prepare, priority=100)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", plain)
    app.connect("build-finished", finish)
