"""A motion as pictures, drawn without a display: an array of them, or a GIF, APNG or MP4 file."""

import os
import pathlib
from typing import Any

import numpy as np

from pbad_jax.errors import OptionError
from pbad_jax.model.model import Model
from pbad_jax.storage.files import written_whole
from pbad_jax.viz.needs import need
from pbad_jax.viz.raster import pictures
from pbad_jax.viz.stage import Look, Stage, stage_of

FORMATS = (".gif", ".png", ".apng", ".mp4")
COLORS = 128  # of a GIF
INK = (34, 49, 74)


def images(
    model: Model,
    motion: Any,
    *,
    fps: float = 20,
    dt: float | None = None,
    layout: str = "grid",
    follow: bool | None = None,
    title: str | None = None,
    contact_forces: bool | float = False,
    size: tuple[int, int] = (640, 480),
) -> np.ndarray:
    """Pictures of a motion, (F, height, width, 3) uint8; half a second to a second of CPU each.

    Args:
        model, motion, fps, dt, layout, follow, title, contact_forces: as in `to_html`; an empty title writes none.
        size: pixels, width and height.

    Raises:
        StateError, OptionError, ImportError: as `to_html`; a size that is none.

    Example:
        >>> viz.images(arm, np.linspace([1.0, 0.0], [-1.0, 0.5], 3), fps=10, dt=0.1, size=(64, 48)).shape
        (3, 48, 64, 3)
    """
    width, height = _checked(size)
    stage = stage_of(model, motion, Look(fps, dt, layout, follow, title, contact_forces))
    return np.stack(list(_drawn(stage, width, height)))


def to_video(
    model: Model,
    motion: Any,
    path: str | os.PathLike,
    *,
    fps: float = 20,
    dt: float | None = None,
    layout: str = "grid",
    follow: bool | None = None,
    title: str | None = None,
    contact_forces: bool | float = False,
    size: tuple[int, int] = (640, 480),
) -> None:
    """Write a motion as a moving picture; no display and no browser are needed.

    Args:
        path: ends in .gif, .png or .apng (an animated PNG), or .mp4.
        model, motion, fps, dt, layout, follow, title, contact_forces, size: as in `images`.

    Raises:
        OptionError: a path that ends otherwise; what `images` refuses. ImportError: a package is missing.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     swing = np.linspace([1.0, 0.0], [-1.0, 0.5], 3)
        ...     viz.to_video(arm, swing, pathlib.Path(folder, "arm.gif"), dt=0.1, size=(64, 48))
        ...     pathlib.Path(folder, "arm.gif").read_bytes()[:3]
        b'GIF'
    """
    suffix = check_format(path)
    width, height = _checked(size)
    stage = stage_of(model, motion, Look(fps, dt, layout, follow, title, contact_forces))
    if suffix == ".mp4":
        writer = need("imageio.v2").get_writer(path, fps=fps, macro_block_size=2)
        with writer:
            for image in _drawn(stage, width, height):
                writer.append_data(image)
        return
    save_moving(_drawn(stage, width, height), path, fps)


def check_format(path: str | os.PathLike) -> str:
    """The suffix of a path, in small letters.

    Raises:
        OptionError: it names no moving picture. ImportError: what writes it is missing.
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise OptionError(f"{str(path)!r}: {suffix!r} is no format of a moving picture; end it in {', '.join(FORMATS)}")
    if suffix == ".mp4":
        for package in ("imageio.v2", "imageio_ffmpeg"):
            need(package)
    else:
        need("PIL.Image")
    return suffix


def save_moving(shown: Any, path: str | os.PathLike, fps: float, colors: int = COLORS) -> None:
    """Write pictures (height, width, 3) uint8, one after the other, as a GIF or an animated PNG that repeats."""
    Image = need("PIL.Image")
    gif = pathlib.Path(path).suffix.lower() == ".gif"
    frames = [Image.fromarray(x) for x in shown]
    if gif:
        frames = _few_colors(frames, colors)
    more = {"disposal": 1} if gif else {}
    with written_whole(path) as file:
        frames[0].save(
            file, format="GIF" if gif else "PNG", save_all=True, append_images=frames[1:], duration=1000 / fps, loop=0,
            optimize=True, **more,
        )  # fmt: skip


def _few_colors(frames: list, colors: int) -> list:
    """All in one palette, taken from eight of them, so that what stands still stays the same.

    Each shade counts by the root of how often it is there: a small robot has its colours, and the ground no bands.
    """
    Image = need("PIL.Image")
    some = [np.asarray(frames[k]).reshape(-1, 3) for k in np.unique(np.linspace(0, len(frames) - 1, 8).astype(int))]
    shades, count = np.unique(np.concatenate(some) // 4 * 4 + 2, axis=0, return_counts=True)
    weighed = np.repeat(shades.astype(np.uint8), np.ceil(np.sqrt(count)).astype(int), axis=0)
    palette = Image.fromarray(weighed[None]).quantize(colors, method=Image.Quantize.MEDIANCUT)
    return [x.quantize(palette=palette, dither=Image.Dither.NONE) for x in frames]


def _checked(size: Any) -> tuple[int, int]:
    width, height = (int(x) for x in size)
    if not (16 <= width <= 8192 and 16 <= height <= 8192):
        raise OptionError(f"size is {size}; a picture is 16 to 8192 pixels wide and high, for example (640, 480)")
    return width, height


def _drawn(stage: Stage, width: int, height: int):
    """The frames with their title."""
    Image, ImageDraw, ImageFont = (need(f"PIL.{name}") for name in ("Image", "ImageDraw", "ImageFont"))
    font = ImageFont.load_default(size=max(height // 26, 9))
    for x in pictures(stage, width, height):
        picture = Image.fromarray(x)
        ImageDraw.Draw(picture).text((height // 40, height // 60), stage.title, fill=INK, font=font)
        yield np.asarray(picture)
