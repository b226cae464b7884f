"""What a picture shows: shapes grouped by mesh at every frame, lanes side by side, the view, the ground."""

import dataclasses
import math
from typing import Any

import numpy as np

from pbad_jax.contact.world import Contact
from pbad_jax.errors import OptionError
from pbad_jax.geometry.surfaces import Plane as HalfSpace
from pbad_jax.math.rotations import z_to
from pbad_jax.model.model import Model
from pbad_jax.viz.arrows import SHOWN, Arrows, arrows_of
from pbad_jax.viz.frames import Frames, frames_of
from pbad_jax.viz.shapes import Shape, arrow, outermost, planes_of, rotations, shapes_of

FIELD_OF_VIEW = math.radians(40)
FOLLOW_BEYOND = 1.5  # sizes of the model that it may travel before the camera goes with it
CALM = 0.8  # s over which the followed centre is averaged, so that the view does not bob with every step
ROW = 4  # lanes that stand in one row; more make a square
FIRST_COLOR, LAST_COLOR = np.array([0.13, 0.35, 0.65]), np.array([0.93, 0.55, 0.14])  # of overlaid lanes
LAYOUTS = ("grid", "overlay")
ARROW = np.array([0.85, 0.13, 0.1, 1.0])
SLENDER = 0.5  # of an arrow's width; its head is a fifth of that wide


@dataclasses.dataclass(frozen=True)
class Look:
    """How a motion is shown; see `viz.to_html`."""

    fps: float
    dt: float | None = None
    layout: str = "grid"
    follow: bool | None = None
    title: str | None = None
    contact_forces: bool | float = False


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """All instances of one mesh: I = lanes × shapes."""

    shape: Shape  # the first one; its mesh is everybody's
    scale: np.ndarray  # (I,3)
    rgba: np.ndarray  # (I,4)
    position: np.ndarray  # (F,I,3) float32
    quaternion: np.ndarray  # (F,I,4) float32
    moves: bool
    length: np.ndarray | None = None  # (F,I) that multiplies the scale along z, nothing where it is 0; None: 1.
    # What is shorter than SLENDER of its width is thinner too, or it would be a plate.

    def scale_at(self, frame: int) -> np.ndarray:
        """(I,3)."""
        if self.length is None:
            return self.scale
        length = self.length[frame][:, None]
        slim = np.minimum(1.0, length / (SLENDER * self.scale[:, :1]))
        return np.where(length > 0, self.scale * np.concatenate([slim, slim, length], axis=1), 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Plane:
    """A ground, endless as it acts; a grid of ours below what has none."""

    position: np.ndarray  # (F,3) m, a point of it
    quaternion: np.ndarray  # (4,) that turns z to its normal
    rgb: np.ndarray | None  # (3,) of the model; None: the picture chooses


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """The groups and grounds, as the view that follows them sees them, and the box that it must hold."""

    title: str
    seconds: float  # between two frames
    groups: list[Group]
    planes: list[Plane]
    reach: float  # m, of the largest moving shape about its own origin
    low: np.ndarray  # (3,) m
    high: np.ndarray  # (3,) m
    follows: bool
    rows: int  # of lanes, one behind the other
    up: np.ndarray  # (3,) unit

    @property
    def n_frames(self) -> int:
        """How many pictures there are."""
        return self.groups[0].position.shape[0]

    @property
    def extent(self) -> float:
        """m, across the box."""
        return max(float(np.linalg.norm(self.high - self.low)), 1e-6)


@dataclasses.dataclass(frozen=True, eq=False)
class Camera:
    """Where the picture is taken from."""

    position: np.ndarray  # (3,) m
    look_at: np.ndarray  # (3,) m
    up: np.ndarray  # (3,) unit
    distance: float  # m


def stage_of(model: Model, motion: Any, look: Look) -> Stage:
    """Pose the model at all display frames, arrange the lanes, and decide whether the view goes with them.

    Raises:
        StateError, OptionError: see `viz.to_html`.
    """
    if look.layout not in LAYOUTS:
        raise OptionError(f"layout is {look.layout!r}; choose 'grid' or 'overlay'")

    # poses of all shapes at the times that are shown
    frames = frames_of(model, motion, look.fps, look.dt)
    shapes = shapes_of(model)
    reach = np.array([s.radius for s in shapes])[:, None]
    position, quaternion = frames.poses(shapes)

    # the size of one lane by what moves in it, and arrows in proportion
    moving = [k for k, s in enumerate(shapes) if s.body >= 0] or list(range(len(shapes)))
    center = position[:, :, moving].mean(axis=(1, 2))
    size = _size(position[:, :, moving], float(reach[moving].max()))
    arrows = arrows_of(model, motion, frames, look.contact_forces, size, shapes)

    # the view goes along with a motion that travels, but not with every bob of it
    follow = _travels(center, size) if look.follow is None else look.follow
    center = _calm(center, frames.seconds) * follow
    move, rows = -center[:, None, None], 1

    # lanes side by side
    if look.layout == "grid":
        offset, rows = _grid(position[:, :, moving] + move, reach[moving])
        move = move + offset[:, None]
    position = position + move

    # the box of the whole motion, for the camera and for a ground below it
    up = _up(model)
    low, high = _box([shapes[k] for k in moving], position[:, :, moving], quaternion[:, :, moving])
    return Stage(
        title=_title(model, motion) if look.title is None else look.title,
        seconds=frames.seconds,
        groups=_groups(shapes, position, quaternion, look.layout) + _arrows(arrows, move),
        planes=_planes(model, frames, center) or _touched(model, center) or [_below(low, high, up, center)],
        reach=float(reach[moving].max()),
        low=low,
        high=high,
        follows=follow,
        rows=rows,
        up=up,
    )


def camera_of(stage: Stage, aspect: float) -> Camera:
    """Look at the whole motion from the side on which it is widest, as near as it stays in the picture.

    Args:
        stage: what is shown. aspect: width over height of the picture.
    """
    up = stage.up
    half = (stage.high - stage.low) / 2
    side = np.eye(3)[np.argmin(half * (1 - np.abs(up)) + 1e9 * (np.abs(up) > 0.7))]
    back = _unit(side + 0.4 * np.cross(up, side) + (0.3 if stage.rows == 1 else 0.8) * up)
    right = _unit(np.cross(up, back))
    axes = np.stack([right, np.cross(back, right), back])
    points = np.concatenate([_ends(g) for g in stage.groups if g.shape.body >= 0] or [[stage.low]])
    center = axes.T @ ((points @ axes.T).max(axis=0) + (points @ axes.T).min(axis=0)) / 2
    x, y, depth = ((points - center) @ axes.T).T
    aside = np.maximum(np.abs(y), np.abs(x) / aspect) + stage.reach
    distance = float(max((depth + stage.reach + 1.15 * aside / math.tan(FIELD_OF_VIEW / 2)).max(), 1e-3))
    return Camera(center + distance * back, center, up, distance)


def _ends(group: Group) -> np.ndarray:
    """Where its instances ever are (K,3) m, with the tips of what has a length."""
    if group.length is None:
        return group.position.reshape(-1, 3)
    tips = group.position + rotations(group.quaternion)[..., 2] * group.length[..., None]
    return np.concatenate([group.position.reshape(-1, 3), tips.reshape(-1, 3)])


def _title(model: Model, motion: Any) -> str:
    """The model's name, and the step of a trajectory whose steps are all alike."""
    time = np.asarray(getattr(motion, "time", np.zeros(0)), float)
    steps = np.diff(time.reshape(-1, time.shape[-1])[0]) if time.size else np.zeros(0)
    even = steps.size > 1 and np.allclose(steps, steps[0], rtol=1e-3)
    return model.topology.name + (f", steps of {steps[0]:.4g} s" if even else "")


def _size(position: np.ndarray, reach: float) -> float:
    """m, of a lane whose shapes, no larger than `reach`, are at (F,B,M,3)."""
    return float(np.median(np.ptp(position, axis=2).max(axis=(1, 2))) + 2 * reach)


def _travels(center: np.ndarray, size: float) -> bool:
    """Whether the centre (F,3) goes farther than FOLLOW_BEYOND sizes of the model."""
    return bool(np.ptp(center, axis=0).max() > FOLLOW_BEYOND * size)


def _calm(center: np.ndarray, seconds: float) -> np.ndarray:
    """A path (F,3) averaged over CALM, and drawn on in a straight line beyond its ends."""
    half = min(int(CALM / seconds / 2), len(center) - 1)
    if half < 1:
        return center
    padded = np.pad(center, ((half, half), (0, 0)), mode="reflect", reflect_type="odd")
    sums = np.cumsum(np.concatenate([np.zeros((1, 3)), padded]), axis=0)
    width = 2 * half + 1
    return (sums[width:] - sums[:-width]) / width


def _box(shapes: list[Shape], position: np.ndarray, quaternion: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The box that holds the shapes at all poses (F,B,G,3), (F,B,G,4), by their outermost vertices; (3,), (3,) m."""
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for k, shape in enumerate(shapes):
        vertices = outermost(shape.mesh) * shape.scale
        turned = np.einsum("...ij,vj->...vi", rotations(quaternion[:, :, k]), vertices)
        points = position[:, :, k, None] + turned
        low, high = np.minimum(low, points.min(axis=(0, 1, 2))), np.maximum(high, points.max(axis=(0, 1, 2)))
    return low, high


def _grid(position: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, int]:
    """Offsets (B,3) m that set the lanes side by side, and how many rows they make; positions are (F,B,G,3).

    A row goes along the horizontal axis in which a lane is widest, from where it is looked at.
    """
    lanes = position.shape[1]
    if lanes == 1:
        return np.zeros((1, 3)), 1
    size = (position + reach).max(axis=(0, 1, 2)) - (position - reach).min(axis=(0, 1, 2))
    columns = lanes if lanes <= ROW else math.ceil(math.sqrt(lanes))
    k, along = np.arange(lanes), int(size[1] > size[0])
    cell = np.zeros((lanes, 3))
    cell[:, along], cell[:, 1 - along] = k % columns, -(k // columns)
    return 1.1 * size * (cell - cell.mean(axis=0)), math.ceil(lanes / columns)


def _groups(shapes: list[Shape], position: np.ndarray, quaternion: np.ndarray, layout: str) -> list[Group]:
    """The shapes at poses (F,B,G,3), (F,B,G,4), one group for each mesh."""
    # shapes of one mesh are drawn together, those of the world apart
    n_frames, lanes = position.shape[:2]
    members: dict[Any, list[int]] = {}
    for k, s in enumerate(shapes):
        members.setdefault((s.mesh, s.body >= 0), []).append(k)
    groups = []
    for (_, moves), chosen in members.items():
        # lanes laid over one another go from the first colour to the last
        rgba = np.tile([shapes[k].rgba for k in chosen], (lanes, 1))
        if layout == "overlay" and lanes > 1 and moves:
            w = np.repeat(np.linspace(0, 1, lanes), len(chosen))[:, None]
            rgba[:, :3] = (1 - w) * FIRST_COLOR + w * LAST_COLOR

        # instances in the order of lanes, then shapes
        p = position[:, :, chosen].reshape(n_frames, -1, 3).astype(np.float32)
        groups.append(
            Group(
                shape=shapes[chosen[0]],
                scale=np.tile([shapes[k].scale for k in chosen], (lanes, 1)),
                rgba=np.clip(rgba, 0, 1),
                position=p,
                quaternion=quaternion[:, :, chosen].reshape(n_frames, -1, 4).astype(np.float32),
                moves=moves or bool(np.ptp(p, axis=0).any()),
            )
        )
    return groups


def _arrows(arrows: Arrows | None, move: np.ndarray) -> list[Group]:
    """The arrows of all bodies that contact ever acts on, moved as their lanes are."""
    if arrows is None:
        return []

    # the bodies whose arrow is ever long enough to be seen
    length = arrows.scale * np.linalg.norm(arrows.along, axis=-1)  # (F,B,N)
    seen = length.max(axis=0) > SHOWN * length.max(initial=0.0)  # (B,N)
    if not seen.any():
        return []

    # one mesh for all of them, turned and stretched at every frame
    length, along = length[:, seen], arrows.along[:, seen]
    count = length.shape[1]
    return [
        Group(
            shape=Shape(0, arrow(), np.ones(3), np.zeros(3), np.array([1.0, 0, 0, 0]), ARROW),
            scale=np.tile([arrows.width, arrows.width, 1.0], (count, 1)),
            rgba=np.tile(ARROW, (count, 1)),
            position=(arrows.start + move)[:, seen].astype(np.float32),
            quaternion=_z_to_all(along).astype(np.float32),
            moves=True,
            length=np.where(length > SHOWN * length.max(), length, 0.0),
        )
    ]


def _z_to_all(x: np.ndarray) -> np.ndarray:
    """The quaternions (F,I,4) of the shortest turns from z to vectors (F,I,3); of zeros, of none."""
    size = np.linalg.norm(x, axis=-1, keepdims=True)
    u = np.where(size > 0, x / np.where(size > 0, size, 1.0), [0.0, 0.0, 1.0])
    return np.apply_along_axis(z_to, -1, u)


def _planes(model: Model, frames: Frames, center: np.ndarray) -> list[Plane]:
    """The model's own; a file gives them a size, which is only how large it would draw them."""
    planes = []
    for plane in planes_of(model):
        p, u = (x[0, 0, 0] for x in frames.poses([plane]))
        planes.append(Plane(p - center, u, np.clip(plane.rgba[:3], 0, 1)))
    return planes


def _touched(model: Model, center: np.ndarray) -> list[Plane]:
    """The planes on which the model's contacts act, where no shape shows them."""
    surfaces = [f.surface for f in model.forces if isinstance(f, Contact) and isinstance(f.surface, HalfSpace)]
    normals = [(np.asarray(s.normal, float), float(s.offset)) for s in surfaces]
    distinct = {tuple(np.round([*n, d], 9)): (n, d) for n, d in normals}
    return [Plane(n * d - center, z_to(n), None) for n, d in distinct.values()]


def _below(low: np.ndarray, high: np.ndarray, up: np.ndarray, center: np.ndarray) -> Plane:
    """A ground under the whole motion, that goes by sideways where the view follows."""
    extent = float(np.linalg.norm(high - low))
    home = up * (np.minimum(low @ up, high @ up) - 0.02 * extent)
    return Plane(home - center + np.outer(center @ up, up), z_to(up), None)


def _up(model: Model) -> np.ndarray:
    """Against gravity; z without gravity."""
    g = np.asarray(model.gravity, float)
    size = np.linalg.norm(g)
    return -g / size if size > 0 else np.array([0.0, 0.0, 1.0])


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)
