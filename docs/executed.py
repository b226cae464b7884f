"""Notebooks as pages: run, with all that they print and draw. A notebook that fails, fails the build.

What a run gave is kept in build/notebooks under the hash of the notebook and of the package, so that only what has
changed runs again. PBAD_NOTEBOOK_SMALL and PBAD_NOTEBOOK_FULL in the environment mean what they mean to the notebooks.
"""

import base64
import concurrent.futures
import hashlib
import html
import os
import pathlib
import re
from typing import Any

import jupytext
import nbclient
import nbformat

ROOT = pathlib.Path(__file__).parents[1]
KEPT = ROOT / "build" / "notebooks"
AT_ONCE = 2
LONGEST = 1800  # s, of one cell: where something hangs
MODES = ("PBAD_NOTEBOOK_SMALL", "PBAD_NOTEBOOK_FULL")
FRAME = '<iframe src="../../{0}" loading="lazy" style="width: 100%; height: {1}px; border: 0" title="{0}"></iframe>'


def pages(made: pathlib.Path, played: pathlib.Path, run: bool) -> list[str]:
    """Write NAME.md of every notebook and its pictures to `made`, its animations to `played`; the names."""
    paths = sorted((ROOT / "notebooks").glob("*.py"))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(executed if run else jupytext.read, paths))
    for path, notebook in zip(paths, found):
        _write(path, notebook, made, played)
    return [path.stem for path in paths]


def executed(path: pathlib.Path) -> nbformat.NotebookNode:
    """The notebook with its outputs, from a run or from what an equal run gave.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    kept = KEPT / f"{path.stem}-{_fingerprint(path)}.ipynb"
    if kept.is_file():
        return nbformat.read(kept, as_version=4)
    notebook = nbformat.from_dict(jupytext.read(path))
    folder = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(notebook, timeout=LONGEST, kernel_name="python3", resources=folder).execute()
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(notebook, kept)
    return notebook


def _fingerprint(path: pathlib.Path) -> str:
    parts = [path.read_bytes(), *(os.environ.get(x, "").encode() for x in MODES)]
    parts += [x.read_bytes() for x in sorted((ROOT / "pbad_jax").rglob("*.py"))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _write(path: pathlib.Path, notebook: Any, made: pathlib.Path, played: pathlib.Path) -> None:
    """One page: text, code, and below each cell what it gave."""
    title, *rest = [cell for cell in notebook.cells if cell.source.strip()]
    note = f"This is [notebooks/{path.name}](../../notebooks/{path.name}); open it with Jupyter and jupytext."
    parts = [title.source, note]
    for k, cell in enumerate(rest):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        outputs = [_shown(x, f"{path.stem}-{k}-{i}", made, played) for i, x in enumerate(cell.get("outputs", []))]
        parts += filter(None, outputs)
    text = "\n\n".join(re.sub(r"\]\((\d\w+)\.py\)", r"](\1.md)", x) for x in parts)
    (made / f"{path.stem}.md").write_text(
        text.replace("](full/", "](../../notebooks/full/").replace("](../docs/", "](../") + "\n"
    )


def _shown(output: Any, name: str, made: pathlib.Path, played: pathlib.Path) -> str:
    """One output as Markdown: a picture, an animation in a frame, or text; nothing of what went to stderr."""
    if output.output_type == "stream":
        return _text(output.text) if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        (made / f"{name}.png").write_bytes(base64.b64decode(data["image/png"]))
        return f"![What the cell draws]({name}.png)"
    if frame := re.search(r'srcdoc="([^"]*)".*?height="(\d+)"', data.get("text/html", ""), re.DOTALL):
        (played / f"{name}.html").write_text(html.unescape(frame[1]))
        return FRAME.format(f"{name}.html", frame[2])
    return _text(data.get("text/plain", ""))


def _text(said: str) -> str:
    return f"```text\n{said.rstrip()}\n```" if said.strip() else ""
