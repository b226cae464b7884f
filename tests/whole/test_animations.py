"""examples/animations.py: models move on as they should, and what is written is small and moves."""

import pathlib
import runpy
import struct
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytestmark = [pytest.mark.float64, pytest.mark.robots, pytest.mark.slow]

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
WAY = {"swimmer": 1.0, "spider": 0.9, "ant": 0.4, "quadruped": 1.5}  # m, at least


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return runpy.run_path(str(EXAMPLES / "animations.py"))
    finally:
        sys.path.remove(str(EXAMPLES))


def recording(path: pathlib.Path) -> dict[str, Any]:
    """The messages of a viser recording: 8 bytes, then zstd of a length, msgpack and buffers without doubles."""
    import base64
    import re

    import msgspec
    import zstandard

    found = re.search(r'__VISER_EMBED_DATA__="([^"]+)"', path.read_text())
    assert found, path
    data = zstandard.ZstdDecompressor().decompressobj().decompress(base64.b64decode(found.group(1))[8:])
    (size,) = struct.unpack("<Q", data[:8])
    return msgspec.msgpack.decode(data[8 : 8 + size])


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["swimmer", "spider", "ant", "quadruped"])
def test_it_moves_and_is_drawn(name, example, tmp_path):
    show = example["SHOWS"][name]()
    traj, info = example["play"](show)
    way = np.linalg.norm(np.asarray(traj.q[-1, :2] - show.state.q[:2]))
    print(name, info, f"{way:.2f} m")
    assert way > WAY[name] and np.all(np.isfinite(traj.q))

    page = tmp_path / f"{name}.html"
    example["viz"].to_html(show.model, traj, page, fps=example["FPS"])
    assert page.stat().st_size < 1e6
    changes = [m["updates"] for _, m in recording(page)["messages"] if "batched_positions" in m.get("updates", {})]
    assert len(changes) >= example["FPS"] * show.seconds - 2
    assert len({repr(x) for x in changes}) == len(changes)  # equal buffers would be one

    movie = tmp_path / "a.gif"
    example["draw_movie"].__globals__["SECONDS"] = 0.4
    example["draw_movie"]([(show, traj)], movie)
    with Image.open(movie) as picture:
        assert picture.size == (3 * 264, 198) and picture.n_frames == 5
        first = np.asarray(picture.convert("L"), int)
        picture.seek(4)
        assert (np.abs(np.asarray(picture.convert("L"), int) - first) > 20).sum() > 50
