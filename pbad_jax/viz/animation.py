"""An animation in the browser: one self-contained HTML file, or a notebook cell."""

import contextlib
import html
import math
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from typing import Any

import numpy as np

from pbad_jax.math.rotations import z_to
from pbad_jax.model.model import Model
from pbad_jax.storage.files import written_whole
from pbad_jax.viz.needs import need
from pbad_jax.viz.shapes import rotations
from pbad_jax.viz.stage import FIELD_OF_VIEW, Group, Look, Plane, Stage, camera_of, stage_of

ASPECT = 1.2  # width over height of a picture that must still hold the whole motion
GROUND, LINES, SECTIONS = (221, 227, 235), (196, 205, 217), (160, 172, 190)  # light robots stand out from it
# A title; and on a screen that is higher than wide, a square picture, or the motion would not fit in it.
STYLE = """<style>
#root canvas[data-engine] { background: rgb(236, 240, 245); }
#pbad-title { position: fixed; top: 0; right: 0; z-index: 10; padding: 0.5em 0.8em; max-width: 80vw;
  font: 600 15px system-ui, sans-serif; color: #22314a; text-align: right; pointer-events: none; }
@media (max-aspect-ratio: 1/1) { #root > * { height: 100vw !important; min-height: 0 !important; }
  #pbad-title { top: 100vw; } }
</style>"""


def to_html(
    model: Model,
    motion: Any,
    path: str | os.PathLike,
    *,
    fps: float = 30,
    dt: float | None = None,
    layout: str = "grid",
    follow: bool | None = None,
    title: str | None = None,
    contact_forces: bool | float = False,
) -> None:
    """Write an animation as one HTML file that needs no network: play, scrub, orbit.

    Args:
        model: one model, for all lanes.
        motion: a Trajectory, or q of shape (T, nq); with a leading axis (B, ...) all lanes are drawn together.
        path: the file to write; an existing one is replaced.
        fps: display frames a second; joints turn at a constant rate in between.
        dt: s between the rows of a bare q; None shows one row a frame.
        layout: of a batch: "grid" sets the lanes side by side, "overlay" draws them in one place and colours them
            from blue (the first) to orange.
        follow: whether the view goes with the model's centre; None = where it travels farther than its size.
        title: written on the page; None = the model's name, and the step of a trajectory.
        contact_forces: draw what contact does to every body of a Trajectory, `pbad_jax.contact_forces`, as an arrow on
            the line where it acts: a number, m/N; True, the model's weight as long as the model is large, or shorter
            where an impact would not fit.

    Raises:
        StateError: shapes that do not fit the model, no rows, NaN or inf; contact forces of a bare q.
        OptionError: fps, dt, layout or contact_forces.
        ImportError: without `pip install "pbad_jax[viz]"`. OSError: the file cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     viz.to_html(arm, np.linspace([1.0, 0.0], [-1.0, 0.5], 20), pathlib.Path(folder, "arm.html"), dt=0.05)
        ...     pathlib.Path(folder, "arm.html").read_text()[:15]
        '<!doctype html>'
    """
    need("viser")
    text = _page(stage_of(model, motion, Look(fps, dt, layout, follow, title, contact_forces)))
    with written_whole(path, "w") as file:
        file.write(text)


def show(
    model: Model,
    motion: Any,
    *,
    fps: float = 30,
    dt: float | None = None,
    layout: str = "grid",
    follow: bool | None = None,
    title: str | None = None,
    contact_forces: bool | float = False,
    height: int = 420,
) -> None:
    """Show an animation in a notebook cell, `height` pixels high; in a script, in the browser. See `to_html`.

    Example:
        >>> viz.show(arm, np.linspace([1.0, 0.0], [-1.0, 0.5], 20), dt=0.05)  # doctest: +SKIP
    """
    need("viser")
    text = _page(stage_of(model, motion, Look(fps, dt, layout, follow, title, contact_forces)))
    if not _in_notebook(text, height):
        with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
            file.write(text)
        webbrowser.open("file://" + file.name)


def _in_notebook(text: str, height: int) -> bool:
    """Whether there is a notebook to show it."""
    try:
        shell, display = need("IPython.core.getipython"), need("IPython.display")
    except ImportError:
        return False
    if shell.get_ipython() is None:
        return False
    frame = f'<iframe srcdoc="{html.escape(text)}" width="100%" height="{height}" style="border:none"></iframe>'
    display.display(display.HTML(f'<div style="border:1px solid #ddd">{frame}</div>'))  # a bare iframe is warned about
    return True


def _page(stage: Stage) -> str:
    """The whole motion as HTML. Its server listens on a free local port while it is made."""
    with _server() as server:
        # the scene at the first frame
        _light(server, stage)
        _place_camera(server, stage)
        ground = [_add_plane(server, k, plane, stage) for k, plane in enumerate(stage.planes)]
        handles = [_add_group(server, k, group) for k, group in enumerate(stage.groups)]

        # record what moves at the other frames, with a pause before each
        scene = server.get_scene_serializer()
        for f in range(stage.n_frames):
            if f:
                scene.insert_sleep(stage.seconds)
            for handle, group in zip(handles, stage.groups):
                if f and group.moves:
                    handle.batched_positions = group.position[f]
                    handle.batched_wxyzs = group.quaternion[f]
                    if group.length is not None:
                        handle.batched_scales = group.scale_at(f).astype(np.float32)

            # where the view follows the motion, the ground moves past it
            if f and stage.follows:
                for handle, plane in zip(ground, stage.planes):
                    handle.position = tuple(plane.position[f])

        # let the last frame be seen as long as the others
        scene.insert_sleep(stage.seconds)
        return _titled(scene.as_html(), stage.title)


def _titled(text: str, title: str) -> str:
    """The page under a name of its own."""
    title = html.escape(title)
    start, end = text.index("<title>"), text.index("</title>")
    text = f"{text[:start]}<title>{title}{text[end:]}"
    at = text.rindex("</body>")
    return f'{text[:at]}{STYLE}<div id="pbad-title">{title}</div>{text[at:]}'


@contextlib.contextmanager
def _server() -> Iterator[Any]:
    """A silent viser server on a free port of this machine only."""
    viser, rich = need("viser"), need("rich")
    console = rich.get_console()
    loud, console.quiet = console.quiet, True  # viser prints its address even when verbose=False
    try:
        server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
    finally:
        console.quiet = loud
    try:
        yield server
    finally:
        console.quiet = True
        server.stop()
        console.quiet = loud


def _light(server: Any, stage: Stage) -> None:
    """Less light than viser's own, under which colours pale; a sun that throws shadows."""
    scene = server.scene
    scene.set_up_direction(tuple(stage.up))
    scene.configure_default_lights(False)
    scene.configure_environment_map(None)
    scene.add_light_hemisphere("/sky", sky_color=(255, 255, 255), ground_color=(170, 165, 160), intensity=1.7)
    sun = stage.extent * rotations(z_to(stage.up)) @ [0.4, -0.5, 1.0]
    scene.add_light_directional("/sun", intensity=1.4, cast_shadow=True, position=tuple(sun))


def _place_camera(server: Any, stage: Stage) -> None:
    view, camera = camera_of(stage, ASPECT), server.initial_camera
    camera.fov = FIELD_OF_VIEW
    camera.near, camera.far = view.distance / 500, view.distance * 200
    camera.look_at = tuple(view.look_at)
    camera.position = tuple(view.position)


def _add_plane(server: Any, k: int, plane: Plane, stage: Stage) -> Any:
    cell = 10.0 ** math.floor(math.log10(stage.extent / 2))
    color = GROUND if plane.rgb is None else tuple(int(255 * c) for c in 0.7 * np.array(GROUND) / 255 + 0.3 * plane.rgb)
    return server.scene.add_grid(
        f"/ground/{k}", width=20 * stage.extent, height=20 * stage.extent, cell_size=cell, section_size=10 * cell,
        infinite_grid=True, fade_distance=12 * max(stage.extent, cell), plane_color=color, plane_opacity=1.0,
        cell_color=LINES, section_color=SECTIONS, shadow_opacity=0.3, position=tuple(plane.position[0]),
        wxyz=tuple(plane.quaternion),
    )  # fmt: skip


def _add_group(server: Any, k: int, group: Group) -> Any:
    mesh, rgba = group.shape.mesh, group.rgba
    return server.scene.add_batched_meshes_simple(
        f"/shapes/{k}",
        vertices=np.asarray(mesh.vertices, np.float32),
        faces=np.asarray(mesh.faces, np.uint32),
        batched_positions=group.position[0],
        batched_wxyzs=group.quaternion[0],
        batched_scales=group.scale_at(0).astype(np.float32),
        batched_colors=(255 * rgba[:, :3]).astype(np.uint8),
        batched_opacities=None if (rgba[:, 3] == 1).all() else rgba[:, 3].astype(np.float32),
        lod="off",
    )
