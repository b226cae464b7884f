"""A film strip: moments of several motions, drawn by matplotlib as shaded solids with their shadows."""

import pathlib

import numpy as np

from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.viz.frames import frames_of
from pbad_jax.viz.shapes import shapes_of

MOMENTS, SPACING = 6, 7 / 6  # pictures, and periods from one to the next: six phases, and the way
HEIGHT = 0.8  # of a picture, over its width
COLORS = 96
LIGHT = np.array([0.35, -0.45, 0.82])  # towards the light
VIEW, FROM_ABOVE = np.array([0.37, -0.88, 0.4]), np.array([0.1, -0.6, 0.8])  # towards the eye
TILES = "#f4f5f7", "#e4e7ec"
SHADOW = "#c3c9d3"


def camera(toward: np.ndarray) -> np.ndarray:
    """Rows: right, up and towards the eye, unit vectors (3,3)."""
    back = toward / np.linalg.norm(toward)
    right = np.cross([0, 0, 1.0], back)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(back, right), back])


def solids(model, traj, period: float) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Times (MOMENTS,) s; at each the triangles (K,3,3) m; their colours (K,3)."""
    time = np.asarray(traj.time, float)
    wanted = time[0] + SPACING * period * np.arange(MOMENTS)
    shown = np.clip(np.searchsorted(time, wanted - 1e-9), 0, len(time) - 1)
    frames = frames_of(model, np.asarray(traj.q)[shown], 1.0, None)
    shapes = shapes_of(model)
    position, quaternion = (x[:, 0] for x in frames.poses(shapes))
    corners = [(np.asarray(s.mesh.vertices) * s.scale)[np.asarray(s.mesh.faces)] for s in shapes]
    colors = np.concatenate([np.tile(s.rgba[:3], (len(x), 1)) for s, x in zip(shapes, corners)])
    triangles = [
        np.concatenate([x @ rotation_numpy(u).T + p for x, p, u in zip(corners, position[f], quaternion[f])])
        for f in range(MOMENTS)
    ]
    return time[shown], triangles, colors


def draw(played: list, path: pathlib.Path) -> None:
    """One row for each (title, model, trajectory, period in s), MOMENTS pictures a row; a PNG of few colours."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    size = (12, 12 / MOMENTS * HEIGHT * len(played))
    figure, axes = plt.subplots(len(played), MOMENTS, figsize=size, squeeze=False)
    for row, (title, model, traj, period) in zip(axes, played):
        time, triangles, colors = solids(model, traj, period)
        swims = not np.any(np.asarray(model.gravity))
        eye = camera(FROM_ABOVE if swims else VIEW)
        floor = triangles[0][..., 2].min() if swims else 0.0
        centers = [(x.min(axis=(0, 1)) + x.max(axis=(0, 1))) / 2 for x in triangles]
        extent = np.max([np.abs((x - c) @ eye[:2].T).max(axis=(0, 1)) for x, c in zip(triangles, centers)], axis=0)
        reach = 1.15 * max(extent[0], extent[1] / HEIGHT)
        for axis, t, x, center in zip(row, time, triangles, centers):
            panel(axis, x, colors, center, eye, floor, reach)
            axis.text(0.03, 0.04, f"{t:.1f} s", transform=axis.transAxes, fontsize=8, color="#5a6270")
        row[0].text(0.03, 0.9, title, transform=row[0].transAxes, fontsize=9, weight="bold", color="#22314a")
    figure.subplots_adjust(0.002, 0.002, 0.998, 0.998, 0.012, 0.015)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def panel(axis, x, colors, center, eye, floor: float, reach: float) -> None:
    """One moment: tiles that stand still in the world, shadows, then the solids from the farthest to the nearest."""
    from matplotlib.collections import PolyCollection

    def seen(points):
        return (points - center) @ eye[:2].T

    half = np.array([reach, HEIGHT * reach])
    squares, checks = tiles(seen, center, floor, reach)
    axis.add_collection(PolyCollection(list(squares), facecolors=checks, edgecolors="none"))
    shadow = x - (x[..., 2:] - floor) * LIGHT / LIGHT[2]
    axis.add_collection(PolyCollection(seen(shadow), facecolors=SHADOW, edgecolors=SHADOW, linewidths=0.2))
    normal = np.cross(x[:, 1] - x[:, 0], x[:, 2] - x[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
    front = normal @ eye[2] > 0
    bright = 0.55 + 0.5 * np.clip(normal @ LIGHT / np.linalg.norm(LIGHT), 0, 1)
    order = np.argsort((x.mean(axis=1) @ eye[2])[front])
    shade = np.clip(colors * bright[:, None], 0, 1)[front][order]
    axis.add_collection(PolyCollection(seen(x[front][order]), facecolors=shade, edgecolors=shade, linewidths=0.3))
    axis.set(xlim=(-half[0], half[0]), ylim=(-half[1], half[1]), aspect="equal", xticks=[], yticks=[])
    axis.set_facecolor("white")
    for side in axis.spines.values():
        side.set_visible(False)


def tiles(seen, center, floor: float, reach: float) -> tuple[np.ndarray, list[str]]:
    """The squares of a chequered ground about the centre, seen (K,4,2), and their colours."""
    size = 10.0 ** np.floor(np.log10(reach)) / 2
    size *= 1 + (reach / size > 6)
    n = int(6 * reach / size)
    first = np.floor(center[:2] / size).astype(int)
    squares, colors = [], []
    for i in range(first[0] - n, first[0] + n):
        for j in range(first[1] - n, first[1] + n):
            corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
            squares.append([(size * a, size * b, floor) for a, b in corners])
            colors.append(TILES[(i + j) % 2])
    return seen(np.array(squares)), colors
