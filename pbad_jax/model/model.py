"""What is simulated: `Topology` (static, hashable), `Model` (arrays) and `State` (arrays).

Bodies are what the user named; links are what the recurrences walk over. Every link carries at most one
primitive joint (joints.py), so a universal joint puts one massless link before its body and a free joint
three. The links are ordered so that parents come first; the world is index -1.

q and v have MuJoCo's `qpos`/`qvel` layout and meaning: free joint = world position (m) + unit quaternion
(w,x,y,z) | world linear velocity (m/s) + body angular velocity (rad/s); ball = quaternion | body angular
velocity; hinge rad | rad/s; slide m | m/s.
"""

import dataclasses
import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.checks import is_number
from pbad_jax.errors import ModelError
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.activation import Activation
from pbad_jax.model.joints import JointInfo
from pbad_jax.model.keyframes import NO_KEYFRAMES, Keyframes
from pbad_jax.model.named import Named
from pbad_jax.model.sensors import NO_SENSORS, Sensor
from pbad_jax.model.sites import NO_SITES, Site


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh for drawing: vertices (V,3) m, faces (F,3). Equal when its content is equal."""

    vertices: np.ndarray
    faces: np.ndarray

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return _digest(self.vertices, self.faces)

    def __hash__(self):
        return hash(self.digest)

    def __eq__(self, other):
        return isinstance(other, Mesh) and self.digest == other.digest


def _digest(*arrays: np.ndarray) -> str:
    h = hashlib.sha256()
    for x in arrays:
        h.update(np.ascontiguousarray(x).tobytes())
    return h.hexdigest()


@dataclasses.dataclass(frozen=True)
class Topology:
    """Everything about a model that decides the shape of a computation. Hashable.

    `link_type[l]` is one of joints.PRIMITIVES; `link_q[l]`, `link_v[l]` are its first indices in q and v
    (-1 for a fixed link). `body_link[b]` is the link that carries body b's frame.
    """

    name: str
    body_names: tuple[str, ...]
    body_parent: tuple[int, ...]
    body_link: tuple[int, ...]
    link_parent: tuple[int, ...]
    link_type: tuple[str, ...]
    link_q: tuple[int, ...]
    link_v: tuple[int, ...]
    joints: tuple[JointInfo, ...]
    actuator_names: tuple[str, ...] = ()
    geom_types: tuple[str, ...] = ()
    geom_bodies: tuple[int, ...] = ()  # -1 is the world
    geom_meshes: tuple[Mesh | None, ...] = ()
    geom_touches: tuple[bool, ...] = ()
    inactive: tuple[str, ...] = ()  # features that are carried but have no force yet

    @functools.cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that name the tree: bodies, joints and their order."""
        key = (self.body_names, self.body_parent, self.link_parent, self.link_type, self.joints)
        return hashlib.sha256(repr(key).encode()).hexdigest()[:12]

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.fingerprint, self.name, self.actuator_names, self.geom_types, self.geom_meshes))

    def __hash__(self):
        return self._hash

    @property
    def n_links(self) -> int:
        """Links, the world excluded."""
        return len(self.link_parent)

    @property
    def n_bodies(self) -> int:
        """Bodies, the world excluded."""
        return len(self.body_names)

    @functools.cached_property
    def nq(self) -> int:
        """Length of q."""
        return sum(j.nq for j in self.joints)

    @functools.cached_property
    def nv(self) -> int:
        """Length of v."""
        return sum(j.nv for j in self.joints)

    @property
    def nu(self) -> int:
        """Number of actuators."""
        return len(self.actuator_names)


@dataclasses.dataclass(frozen=True, eq=False)
class Geometry:
    """Shapes fixed to bodies, for drawing and for making contact; one row a geom, types in `Topology.geom_types`.

    No step looks at it: contact and drag take theirs when they are made. Numpy, float64 whatever the model's dtype.
    Equal when its content is equal.

    Sizes follow MuJoCo: sphere (r,·,·), capsule and cylinder (r, half length, ·), box and ellipsoid
    half sizes, plane half sizes (0 = infinite), mesh unused. Positions m, quaternions (w,x,y,z), both in
    the body's frame.
    """

    size: np.ndarray  # (G,3) m
    position: np.ndarray  # (G,3) m
    quaternion: np.ndarray  # (G,4)
    rgba: np.ndarray  # (G,4)
    friction: np.ndarray  # (G,3)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return _digest(self.size, self.position, self.quaternion, self.rgba, self.friction)

    def __hash__(self):
        return hash(self.digest)

    def __eq__(self, other):
        return isinstance(other, Geometry) and self.digest == other.digest


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Model:
    """An articulated system: array parameters and the forces that act in it, static topology, geometry and names.

    Every other field is an array leaf (or a pytree of them) that a step depends on, so a model can be batched with
    `jax.vmap`, changed with `dataclasses.replace`, and differentiated. Models that are stacked must share one geometry
    (and keyframes, sites and sensors): `dataclasses.replace(m, geometry=first.geometry)`.

    Example:
        >>> model
        Model('chain:2': 2 bodies, 2 joints, nq=4, nv=4, nu=0, float64)
        >>> model.nq, model.nv, model.body_names
        (4, 4, ('link0', 'link1'))
        >>> heavier = dataclasses.replace(model, second_moment=2 * model.second_moment)
        >>> float(pbad.total_mass(heavier))
        4.0
    """

    topology: Topology = dataclasses.field(metadata=STATIC)
    placement: jax.Array  # (N,3,4) frame of link l in its parent at q = 0
    axis: jax.Array  # (N,3) unit axis of a hinge or slide in the link's frame, else zero
    anchor: jax.Array  # (N,3) m, the point of the link that its hinge or ball holds still
    second_moment: jax.Array  # (N,4,4) ∫ρ[p;1][p;1]ᵀ in the link's frame
    gravity: jax.Array  # (3,) m/s²
    armature: jax.Array  # (nv,) kg or kg m², added to the diagonal of the mass matrix
    q0: jax.Array  # (nq,) reference configuration
    geometry: Geometry = dataclasses.field(metadata=STATIC)
    forces: tuple  # pytrees of pbad_jax.forces, or the user's own
    # of its file, by name; no step looks at them
    keyframes: Keyframes = dataclasses.field(default=NO_KEYFRAMES, metadata=STATIC)
    sites: Named[Site] = dataclasses.field(default=NO_SITES, metadata=STATIC)  # likewise
    sensors: Named[Sensor] = dataclasses.field(default=NO_SENSORS, metadata=STATIC)  # likewise
    activation: Activation | None = None  # of actuators with a state of their own

    @property
    def nq(self) -> int:
        """Length of q."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Length of v: the degrees of freedom."""
        return self.topology.nv

    @property
    def nu(self) -> int:
        """Length of a control: the actuators."""
        return self.topology.nu

    @property
    def na(self) -> int:
        """How many actuators have a state of their own, `State.activation`."""
        return 0 if self.activation is None else self.activation.size

    @property
    def n_bodies(self) -> int:
        """Bodies, the world excluded."""
        return self.topology.n_bodies

    @property
    def body_names(self) -> tuple[str, ...]:
        """Names in the order of the file or of `build_model`."""
        return self.topology.body_names

    @property
    def fingerprint(self) -> str:
        """Names the tree; a state knows the fingerprint of its model."""
        return self.topology.fingerprint

    @property
    def dtype(self):
        """The floating-point type of all arrays."""
        return self.second_moment.dtype

    def __repr__(self) -> str:
        t = self.topology
        return (
            f"Model({t.name!r}: {t.n_bodies} bodies, {len(t.joints)} joints, nq={t.nq}, nv={t.nv}, "
            f"nu={t.nu}, {jnp.dtype(self.dtype).name})"
        )


def check_model(model: Model) -> None:
    """That it is one, and that JAX still has its precision.

    Raises:
        ModelError: what it is instead.
    """
    if not isinstance(model, Model):
        raise ModelError(f"the model is {type(model).__name__} {model!r:.60}; give a Model, of build_model or load")
    has_64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    if not has_64 and getattr(model.second_moment, "dtype", None) == np.float64:
        raise ModelError(
            f"model {model.topology.name!r} is float64, but JAX has that switched off: call "
            "jax.config.update('jax_enable_x64', True) again, or build the model anew, which makes it float32"
        )


def check_arrays(model: Model) -> None:
    """Refuse a model whose arrays are none, or not of its topology's shapes; `dataclasses.replace` takes anything.

    Raises:
        ModelError: naming the field.
    """
    # a Model, and the shapes that its topology asks for
    check_model(model)
    t = model.topology
    n = t.n_links
    shapes = {
        "placement": (n, 3, 4),
        "axis": (n, 3),
        "anchor": (n, 3),
        "second_moment": (n, 4, 4),
        "gravity": (3,),
        "armature": (t.nv,),
        "q0": (t.nq,),
    }

    # the model's own arrays
    for name, shape in shapes.items():
        x = getattr(model, name)
        if not isinstance(x, jax.Array | np.ndarray) or x.shape != shape:
            given = f"has shape {x.shape}" if isinstance(x, jax.Array | np.ndarray) else f"is {x!r:.60}"
            raise ModelError(f"{name} of model {t.name!r} {given}; it must be an array of shape {shape}")

    # forces have shapes of their own, but nothing in them may be other than numbers
    for path, x in jax.tree_util.tree_leaves_with_path(model.forces):
        if not is_number(x):
            where = f"forces{jax.tree_util.keystr(path)}"
            raise ModelError(
                f"{where} of model {t.name!r} is {x!r:.60}; every leaf of a force must be a number or an array"
            )
