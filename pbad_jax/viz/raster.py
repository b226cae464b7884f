"""A small renderer without a display: triangles with a depth buffer, one sun, a chequered ground with shadows.

Everything is an array of pixels or triangles; triangles of about one size are filled together.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np

from pbad_jax.model.model import Mesh
from pbad_jax.viz.shapes import rotations
from pbad_jax.viz.stage import FIELD_OF_VIEW, Camera, Group, Plane, Stage, camera_of

FINE = 2  # samples a pixel, each way
MOST = 1 << 21  # samples that are looked at together
SKY = np.array([0.925, 0.941, 0.961], np.float32)
TILES = np.array([[0.87, 0.89, 0.92], [0.81, 0.84, 0.885]], np.float32)
SHADE = 0.72  # of the ground's light, where no sun comes
SUN = np.array([-0.35, -0.45, 0.82]) / np.linalg.norm([0.35, 0.45, 0.82])  # towards it, where z is up
AMBIENT, DIFFUSE, GLOSS = 0.52, 0.55, 0.16


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """A camera's axes and its samples."""

    camera: Camera
    axes: np.ndarray  # (3,3) rows: right, up, towards the eye
    focal: float  # samples
    width: int  # samples
    height: int
    sun: np.ndarray  # (3,) towards it

    def seen(self, points: np.ndarray) -> np.ndarray:
        """Points (...,3) m as sample column, row and distance before the eye (...,3)."""
        x, y, z = np.moveaxis((points - self.camera.position) @ self.axes.T, -1, 0)
        depth = -z
        safe = np.where(depth > 1e-9, depth, np.nan)
        return np.stack([self.width / 2 + self.focal * x / safe, self.height / 2 - self.focal * y / safe, depth], -1)


def pictures(stage: Stage, width: int, height: int) -> Iterator[np.ndarray]:
    """The frames of a stage, one after the other, (height, width, 3) uint8."""
    view = view_of(stage, width, height)
    for frame in range(stage.n_frames):
        image = _picture(stage, view, frame).reshape(height, FINE, width, FINE, 3).mean(axis=(1, 3))
        yield (255 * np.clip(image, 0, 1) + 0.5).astype(np.uint8)


def view_of(stage: Stage, width: int, height: int) -> View:
    """The camera of a picture of so many pixels."""
    camera = camera_of(stage, width / height)
    back = (camera.position - camera.look_at) / camera.distance
    right = np.cross(stage.up, back)
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(back, right), back])
    focal = 0.5 * FINE * height / math.tan(FIELD_OF_VIEW / 2)
    sun = SUN @ np.stack([right, np.cross(stage.up, right), stage.up])
    return View(camera, axes, focal, FINE * width, FINE * height, sun)


def _picture(stage: Stage, view: View, frame: int) -> np.ndarray:
    """One frame (height, width, 3) in [0, 1], all samples."""
    corners, normals, colors = (np.concatenate(x) for x in zip(*(_triangles(g, frame) for g in stage.groups)))
    image = np.broadcast_to(SKY, (view.height, view.width, 3)).copy()
    depth = np.full((view.height, view.width), np.inf)
    for plane in stage.planes:
        _draw_ground(image, depth, view, stage, plane, frame, corners)
    _draw(image.reshape(-1, 3), depth.reshape(-1), view, corners, normals, colors)
    return image


def _triangles(group: Group, frame: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners (K,3,3) m, normals at them (K,3,3), and colours (K,3) of all instances of a mesh."""
    mesh = group.shape.mesh
    faces, normals = np.asarray(mesh.faces), _normals(mesh)
    if group.shape.body < 0 and not len(faces):
        return np.zeros((0, 3, 3)), np.zeros((0, 3, 3)), np.zeros((0, 3))
    turn = rotations(group.quaternion[frame])  # (I,3,3)
    scale = group.scale_at(frame)[:, None]
    x = np.einsum("iab,ivb->iva", turn, np.asarray(mesh.vertices)[None] * scale) + group.position[frame][:, None]
    n = np.einsum("iab,ivb->iva", turn, normals[None] / np.where(scale == 0, 1, scale))
    n /= np.linalg.norm(n, axis=-1, keepdims=True) + 1e-12
    visible = group.rgba[:, 3] > 0
    colors = np.repeat(group.rgba[visible, :3], len(faces), axis=0)
    return x[visible][:, faces].reshape(-1, 3, 3), n[visible][:, faces].reshape(-1, 3, 3), colors


@functools.lru_cache(maxsize=256)
def _normals(mesh: Mesh) -> np.ndarray:
    """Outward normals (V,3) at the vertices; vertices at one place share one where faces meet at a blunt angle."""
    vertices, faces = np.asarray(mesh.vertices, float), np.asarray(mesh.faces)
    x, y, z = vertices[faces].transpose(1, 0, 2)
    flat = np.cross(y - x, z - x)
    normals = np.zeros_like(vertices)
    for k in range(3):
        np.add.at(normals, faces[:, k], flat)
    return normals / (np.linalg.norm(normals, axis=1, keepdims=True) + 1e-30)


def _draw(image, depth, view: View, corners, normals, colors) -> None:
    """Fill what faces the eye, the nearest on top."""
    center = corners.mean(axis=1)
    facing = np.einsum("ki,ki->k", np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]),
                       view.camera.position - center) > 0  # fmt: skip
    corners, normals, colors = corners[facing], normals[facing], colors[facing]
    light = _light(view, corners, normals)  # (K,3,2)
    where, near, owner, weight = _samples(view, view.seen(corners))
    np.minimum.at(depth, where, near)
    first = near <= depth[where]
    where, owner, weight = where[first], owner[first], weight[first]
    lit = np.einsum("sc,scl->sl", weight, light[owner])
    image[where] = colors[owner] * lit[:, :1] + lit[:, 1:]


def _light(view: View, corners: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """How bright corners (K,3,3) are, (K,3,2): of their own colour, and of the sun's on top."""
    toward = view.camera.position - corners
    half = toward / np.linalg.norm(toward, axis=-1, keepdims=True) + view.sun
    half /= np.linalg.norm(half, axis=-1, keepdims=True)
    diffuse = AMBIENT + 0.1 * normals[..., 2] + DIFFUSE * np.clip(normals @ view.sun, 0, 1)
    gloss = GLOSS * np.clip(np.sum(normals * half, axis=-1), 0, 1) ** 24
    return np.stack([diffuse, gloss], axis=-1)


def _samples(view: View, seen: np.ndarray):
    """The samples inside triangles (K,3,3) of column, row, distance.

    Returns:
        Their index in the picture (S,), distance (S,), triangle (S,) and barycentric weights (S,3), perspective right.
    """
    x, y, z = seen[..., 0], seen[..., 1], seen[..., 2]
    good = np.isfinite(seen).all(axis=(1, 2)) & (z > view.camera.distance / 200).all(axis=1)
    low = np.stack([np.clip(np.floor(a.min(axis=1)), 0, n) for a, n in ((x, view.width), (y, view.height))], 1)
    high = np.stack([np.clip(np.ceil(a.max(axis=1)), 0, n) for a, n in ((x, view.width), (y, view.height))], 1)
    with np.errstate(invalid="ignore"):
        size = np.where(good, (high - low).max(axis=1), 0)
        wide = np.where((size > 0) & ((high - low).min(axis=1) > 0), 2 ** np.ceil(np.log2(np.maximum(size, 1))), 0)
    parts = [(np.zeros(0, int), np.zeros(0), np.zeros(0, int), np.zeros((0, 3)))]
    for w in np.unique(wide[wide > 0]).astype(int):
        members = np.flatnonzero(wide == w)
        for some in np.array_split(members, math.ceil(len(members) * w * w / MOST)):
            parts.append(_inside(view, x[some], y[some], z[some], low[some].astype(int), w, some))
    return tuple(np.concatenate(a) for a in zip(*parts))


def _inside(view: View, x, y, z, low, w: int, names):
    """As `_samples`, of triangles whose boxes in the picture, from `low` on, are no wider than w samples."""
    # the samples of each box, and twice the signed area of its triangle in the picture
    px = (low[:, :1] + np.arange(w))[:, None, :] + 0.5
    py = (low[:, 1:] + np.arange(w))[:, :, None] + 0.5
    area = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 0]) - (x[:, 2] - x[:, 0]) * (y[:, 1] - y[:, 0])
    seen = (np.abs(area) >= 1e-12)[:, None, None]  # not edge-on
    area = np.where(seen, area[:, None, None], 1.0)

    # barycentric weights by edge functions; inside, none of the three is negative
    def edge(a: int, b: int):
        xa, ya, xb, yb = (v[:, None, None] for v in (x[:, a], y[:, a], x[:, b], y[:, b]))
        return ((xb - xa) * (py - ya) - (px - xa) * (yb - ya)) / area

    b0, b1 = edge(1, 2), edge(2, 0)
    b2 = 1 - b0 - b1
    inside = seen & (b0 >= 0) & (b1 >= 0) & (b2 >= 0) & (px < view.width) & (py < view.height)

    # perspective: 1/z, and what is divided by z, is linear in the picture
    k, row, column = np.nonzero(inside)
    weight = np.stack([b0[inside], b1[inside], b2[inside]], axis=1) / z[k]
    near = 1 / weight.sum(axis=1)
    where = (low[k, 1] + row) * view.width + low[k, 0] + column
    return where, near, names[k], weight * near[:, None]


def _draw_ground(image, depth, view: View, stage: Stage, plane: Plane, frame: int, corners: np.ndarray) -> None:
    """Tiles that stand still in the world, paler with distance, and the shadows of all triangles.

    A pixel has one colour of tiles, averaged over what it sees; only shadows are as fine as the samples.
    """
    # the plane's axes, and the eye from a point on it
    turn = rotations(plane.quaternion).astype(np.float32)
    origin, normal = plane.position[frame].astype(np.float32), turn[:, 2]
    eye = view.camera.position.astype(np.float32) - origin

    # how far along its ray each pixel sees the plane, if it does
    ray = _rays(view).astype(np.float32)
    fall = -(ray @ normal)
    seen = fall * np.sign(eye @ normal) > 1e-3
    near = np.where(seen, eye @ normal / np.where(seen, fall, 1), np.inf)

    # paler with distance, and the tiles averaged over what a pixel sees of them
    far = np.clip(near / (6 * view.camera.distance), 0, 1)[..., None] ** 0.7
    size = _tile(stage.extent)
    blur = FINE * near[seen] / (view.focal * size) / np.maximum(np.abs(fall[seen]), 0.05) ** 0.5  # tiles in a pixel
    even = np.zeros_like(near)
    even[seen] = _even((eye + near[seen][:, None] * ray[seen]) @ turn[:, :2] / size, blur[:, None])

    # colours in the sun and in shadow
    tiles = TILES if plane.rgb is None else 0.75 * TILES + 0.25 * plane.rgb
    color = (1 - far) * (tiles[0] + even[..., None] * (tiles[1] - tiles[0])) + far * SKY
    shaded = (1 - (1 - SHADE) * (1 - far)) * color

    # paint the samples that are nearer than what has been drawn there
    dark = _in_shadow(view, origin, normal, corners)
    for part in ((slice(a, None, FINE), slice(b, None, FINE)) for a in range(FINE) for b in range(FINE)):
        closer = near < depth[part]
        np.copyto(image[part], color, where=closer[..., None])
        np.copyto(image[part], shaded, where=(closer & dark[part])[..., None])
        np.copyto(depth[part], near, where=closer)


def _rays(view: View) -> np.ndarray:
    """From the eye through the middle of every pixel, one long towards the scene; (height, width, 3) of pixels."""
    x = (FINE * np.arange(view.width // FINE) + FINE / 2 - view.width / 2) / view.focal
    y = (FINE * np.arange(view.height // FINE) + FINE / 2 - view.height / 2) / view.focal
    return x[None, :, None] * view.axes[0] - y[:, None, None] * view.axes[1] - view.axes[2]


def _even(at: np.ndarray, blur: np.ndarray) -> np.ndarray:
    """The share of even tiles about points (K,2) in tiles, in squares of the side blur (K,1)."""

    def saw(x):
        return np.abs((0.5 * x) % 1.0 - 0.5)

    side = 2 * (saw(at - 0.5 * blur) - saw(at + 0.5 * blur)) / blur
    return 0.5 - 0.5 * side[:, 0] * side[:, 1]


def _in_shadow(view: View, origin, normal, corners: np.ndarray) -> np.ndarray:
    """Which samples of a plane see no sun."""
    above = (corners - origin) @ normal
    cast = corners - (above / (view.sun @ normal))[..., None] * view.sun if abs(view.sun @ normal) > 0.1 else corners
    where = _samples(view, view.seen(cast[(above > 0).any(axis=1)]))[0]
    dark = np.zeros(view.height * view.width, bool)
    dark[where] = True
    return dark.reshape(view.height, view.width)


def _tile(extent: float) -> float:
    """m, of a tile: 1, 2 or 5 of a decimal unit, about an eighth of what is shown."""
    unit = 10.0 ** math.floor(math.log10(extent / 8))
    return next(k * unit for k in (1, 2, 5, 10) if k * unit >= extent / 8)
