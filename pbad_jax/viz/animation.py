"""An animation in the browser: one self-contained HTML file, or a notebook cell."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from pbad_jax.errors import OptionError
from pbad_jax.io.files import written_whole
from pbad_jax.model.model import Model
from pbad_jax.viz.frames import Frames, frames_of
from pbad_jax.viz.needs import need
from pbad_jax.viz.shapes import Shape, planes_of, shapes_of

FIELD_OF_VIEW = math.radians(45)
ASPECT = 1.4  # width over height of the picture, for the camera's distance
FOLLOW_BEYOND = 20  # sizes of the model that it may travel before the camera goes with it
FIRST_COLOR, LAST_COLOR = np.array([0.13, 0.35, 0.65]), np.array([0.93, 0.55, 0.14])  # of overlaid lanes


def to_html(
    model: Model,
    motion: Any,
    path: str | os.PathLike,
    *,
    fps: float = 30,
    dt: float | None = None,
    layout: str = "grid",
    follow: bool | None = None,
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
        follow: whether the view goes with the model's centre; None = where it travels far.

    Raises:
        StateError: shapes that do not fit the model, no rows, NaN or inf. OptionError: fps, dt or layout.
        ImportError: without `pip install "pbad_jax[viz]"`. OSError: the file cannot be written.
    """
    with _recording(model, motion, fps, dt, layout, follow) as scene:
        text = scene.as_html()
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
    height: int = 420,
) -> None:
    """Show an animation in a notebook cell, `height` pixels high; in a script, in the browser. See `to_html`."""
    with _recording(model, motion, fps, dt, layout, follow) as scene:
        scene.show(height=height)


@contextlib.contextmanager
def _recording(model: Model, motion: Any, fps: float, dt: float | None, layout: str, follow) -> Iterator[Any]:
    """A viser recording of the whole motion. Its server listens on a free local port while this lasts."""
    if layout not in ("grid", "overlay"):
        raise OptionError(f"layout is {layout!r}; choose 'grid' or 'overlay'")
    need("viser")
    frames = frames_of(model, motion, fps, dt)
    stage = _stage(model, frames, layout, follow)
    with _server() as server:
        _place_camera(server, stage)
        ground = _add_ground(server, model, stage)
        handles = [_add_group(server, k, group, stage) for k, group in enumerate(stage.groups)]
        scene = server.get_scene_serializer()
        for f in range(frames.position.shape[0]):
            if f:
                scene.insert_sleep(frames.seconds)
            for handle, group in zip(handles, stage.groups):
                if f and group.moves:
                    handle.batched_positions = group.position[f]
                    handle.batched_wxyzs = group.quaternion[f]
            if f and stage.follows:
                for handle, home in ground:
                    handle.position = home - stage.ground_shift[f]
        scene.insert_sleep(frames.seconds)
        yield scene


# --- what is drawn where ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class _Group:
    """All instances of one mesh: I = lanes × shapes."""

    shape: Shape  # the first one; its mesh is everybody's
    scale: np.ndarray  # (I,3)
    rgba: np.ndarray  # (I,4)
    position: np.ndarray  # (F,I,3) float32
    quaternion: np.ndarray  # (F,I,4) float32
    moves: bool


@dataclasses.dataclass(frozen=True, eq=False)
class _Stage:
    """The groups, and the box that the view must hold."""

    groups: list[_Group]
    frames: Frames
    reach: float  # m, of the largest moving shape about its own origin
    low: np.ndarray  # (3,) m
    high: np.ndarray  # (3,) m
    center: np.ndarray  # (F,3) m, what the view follows; zero where it stands still
    follows: bool
    ground_shift: np.ndarray  # (F,3) m, how the ground moves; a grid of ours stays at its depth below the model
    up: np.ndarray  # (3,) unit


def _stage(model: Model, frames: Frames, layout: str, follow: bool | None) -> _Stage:
    """Arrange the lanes, decide whether the view follows them, and group the shapes by mesh."""
    shapes = shapes_of(model)
    reach = np.array([s.radius for s in shapes])[:, None]
    position, quaternion = frames.poses(shapes)
    moving = [k for k, s in enumerate(shapes) if s.body >= 0] or list(range(len(shapes)))
    center = position[:, :, moving].mean(axis=(1, 2))
    size = np.ptp(position[0, 0, moving], axis=0).max() + 2 * reach[moving].max()
    if follow is None:
        follow = bool(np.ptp(center, axis=0).max() > FOLLOW_BEYOND * size)
    center = center * follow
    position = position - center[:, None, None]
    if layout == "grid":
        position = position + _grid(position[:, :, moving], reach[moving])[:, None]
    box = position[:, :, moving]
    up = _up(model)
    return _Stage(
        groups=_groups(shapes, position, quaternion, layout),
        frames=frames,
        reach=float(reach[moving].max()),
        low=(box - reach[moving]).min(axis=(0, 1, 2)),
        high=(box + reach[moving]).max(axis=(0, 1, 2)),
        center=center,
        follows=follow,
        ground_shift=center if planes_of(model) else center - np.outer(center @ up, up),
        up=up,
    )


def _grid(position: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Offsets (B,3) m that set the lanes side by side in x and y; positions are (F,B,G,3)."""
    lanes = position.shape[1]
    size = (position + reach).max(axis=(0, 1, 2)) - (position - reach).min(axis=(0, 1, 2))
    columns = math.ceil(math.sqrt(lanes))
    k = np.arange(lanes)
    cell = np.stack([k // columns, k % columns, np.zeros(lanes)], axis=1)
    cell[:, :2] -= cell[:, :2].mean(axis=0)
    return cell * 1.1 * size if lanes > 1 else np.zeros((1, 3))


def _groups(shapes: list[Shape], position: np.ndarray, quaternion: np.ndarray, layout: str) -> list[_Group]:
    n_frames, lanes = position.shape[:2]
    members: dict[Any, list[int]] = {}
    for k, s in enumerate(shapes):
        members.setdefault((s.mesh, s.body >= 0), []).append(k)
    groups = []
    for (_, moves), chosen in members.items():
        rgba = np.tile([shapes[k].rgba for k in chosen], (lanes, 1))
        if layout == "overlay" and lanes > 1 and moves:
            w = np.repeat(np.linspace(0, 1, lanes), len(chosen))[:, None]
            rgba[:, :3] = (1 - w) * FIRST_COLOR + w * LAST_COLOR
        p = position[:, :, chosen].reshape(n_frames, -1, 3).astype(np.float32)
        groups.append(
            _Group(
                shape=shapes[chosen[0]],
                scale=np.tile([shapes[k].scale for k in chosen], (lanes, 1)),
                rgba=rgba,
                position=p,
                quaternion=quaternion[:, :, chosen].reshape(n_frames, -1, 4).astype(np.float32),
                moves=moves or bool(np.ptp(p, axis=0).any()),
            )
        )
    return groups


def _up(model: Model) -> np.ndarray:
    """Against gravity; z without gravity."""
    g = np.asarray(model.gravity, float)
    size = np.linalg.norm(g)
    return -g / size if size > 0 else np.array([0.0, 0.0, 1.0])


# --- viser ------------------------------------------------------------------------------------------------


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


def _place_camera(server: Any, stage: _Stage) -> None:
    """Look at the whole motion from the side on which it is widest, as near as it stays in the picture."""
    up = stage.up
    half = (stage.high - stage.low) / 2
    side = np.eye(3)[np.argmin(half * (1 - np.abs(up)) + 1e9 * (np.abs(up) > 0.7))]
    back = _unit(side + 0.4 * np.cross(up, side) + 0.25 * up)
    right = _unit(np.cross(up, back))
    axes = np.stack([right, np.cross(back, right), back])
    points = np.concatenate([g.position.reshape(-1, 3) for g in stage.groups if g.shape.body >= 0] or [[stage.low]])
    center = axes.T @ ((points @ axes.T).max(axis=0) + (points @ axes.T).min(axis=0)) / 2
    x, y, depth = ((points - center) @ axes.T).T
    aside = np.maximum(np.abs(y), np.abs(x) / ASPECT) + stage.reach
    distance = max((depth + stage.reach + 1.1 * aside / math.tan(FIELD_OF_VIEW / 2)).max(), 1e-3)
    server.scene.set_up_direction(tuple(up))
    camera = server.initial_camera
    camera.fov = FIELD_OF_VIEW
    camera.near, camera.far = float(distance / 500), float(distance * 200)
    camera.look_at = tuple(center)
    camera.position = tuple(center + distance * back)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)


def _add_ground(server: Any, model: Model, stage: _Stage) -> list[tuple[Any, np.ndarray]]:
    """The model's planes, else a grid under the motion; each handle with its place in the world."""
    planes = planes_of(model)
    extent = float(np.linalg.norm(stage.high - stage.low))
    cell = 10.0 ** math.floor(math.log10(max(extent, 1e-6) / 2))
    handles = []
    for k, plane in enumerate(planes):
        p, u = (x[0, 0, 0] for x in stage.frames.poses([plane]))
        width, height = (2 * float(x) if x > 0 else 0.0 for x in plane.scale[:2])
        color = tuple(int(255 * c) for c in np.clip(plane.rgba[:3], 0, 1))
        handles.append((_grid_handle(server, f"/ground/{k}", p - stage.center[0], u, cell, extent, color,
                                     (width, height)), p))  # fmt: skip
    if not planes:
        below = stage.up * (np.minimum(stage.low @ stage.up, stage.high @ stage.up) - 0.02 * extent)
        up = stage.up
        u = np.array([1 + up[2], -up[1], up[0], 0.0]) if up[2] > -0.999 else np.array([0.0, 1.0, 0.0, 0.0])
        home = below + stage.ground_shift[0]
        handles.append((_grid_handle(server, "/ground/0", below, u / np.linalg.norm(u), cell, extent), home))
    return handles


def _grid_handle(server, name, position, wxyz, cell, extent, color=(255, 255, 255), size=(0.0, 0.0)):
    infinite = not all(size)
    width, height = (20 * extent, 20 * extent) if infinite else size
    return server.scene.add_grid(
        name, width=width, height=height, cell_size=cell, section_size=10 * cell, infinite_grid=infinite,
        fade_distance=12 * max(extent, cell), plane_color=color, plane_opacity=0.6, shadow_opacity=0.15,
        position=tuple(position), wxyz=tuple(wxyz),
    )  # fmt: skip


def _add_group(server: Any, k: int, group: _Group, stage: _Stage) -> Any:
    mesh = group.shape.mesh
    rgba = np.clip(group.rgba, 0, 1)
    return server.scene.add_batched_meshes_simple(
        f"/shapes/{k}",
        vertices=np.asarray(mesh.vertices, np.float32),
        faces=np.asarray(mesh.faces, np.uint32),
        batched_positions=group.position[0],
        batched_wxyzs=group.quaternion[0],
        batched_scales=group.scale.astype(np.float32),
        batched_colors=(255 * rgba[:, :3]).astype(np.uint8),
        batched_opacities=None if (rgba[:, 3] == 1).all() else rgba[:, 3].astype(np.float32),
        lod="off",
    )
