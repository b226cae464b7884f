"""The animation in a real browser: `pytest -m browser`. Skipped, with the reason, where there is no Chromium."""

import io

import browser
import numpy as np
import pytest
from PIL import Image

import pbad_jax as pbad
from pbad_jax import viz

pytestmark = [
    pytest.mark.float64,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(browser.chromium() is None, reason="no Chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def animation(tmp_path_factory):
    model = pbad.chain(2)
    q = np.linspace([1.5, 0, 0, 0], [-1.5, 0.5, 1.0, 0], 200)
    path = tmp_path_factory.mktemp("html") / "a.html"
    viz.to_html(model, q, path, dt=0.05, title="chain & <b>radau2</b>")
    return path


def seen(page: browser.Page) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(page.picture())).convert("RGB"), float)


@pytest.mark.parametrize("width, height", [(1280, 800), (400, 700)])
def test_an_animation_plays_without_network_and_without_errors(animation, width, height):
    with browser.opened(animation, width, height) as page:
        page.wait(4)
        first = seen(page)
        page.wait(3)
        second = seen(page)
        title, mark = page.evaluate("document.title"), page.evaluate("document.getElementById('pbad-title').innerText")
    assert page.requests == [animation.as_uri()]
    assert not page.raised
    assert title == mark == "chain & <b>radau2</b>"
    # the part of the page that the scene fills, without the bar that tells the time
    scene = slice(0, min(height, width) - 80)
    assert first[scene].std() > 5  # something is seen
    assert np.abs(first - second)[scene].max(axis=-1).sum() > 255 * 100  # and moves


def test_a_broken_page_is_seen(tmp_path):
    path = tmp_path / "b.html"
    path.write_text('<html><img src="no.png"><script>throw new Error("x")</script>')
    with browser.opened(path) as page:
        page.wait(1)
    assert len(page.requests) == 2 and page.raised
