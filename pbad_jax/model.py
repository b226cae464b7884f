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
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from pbad_jax import joints
from pbad_jax.errors import ModelError, StateError, Status

# user joint -> its primitive joints, in the order in which they act, outermost first
JOINT_PRIMITIVES = {
    "fixed": (joints.FIXED,),
    "hinge": (joints.HINGE,),
    "slide": (joints.SLIDE,),
    "universal": (joints.HINGE, joints.HINGE),
    "ball": (joints.BALL,),
    "planar": (joints.SLIDE, joints.SLIDE, joints.HINGE),
    "free": (joints.SLIDE, joints.SLIDE, joints.SLIDE, joints.BALL),
}


def static(default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field that is tree structure, not an array."""
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={"static": True})
    return dataclasses.field(default=default, metadata={"static": True})


@dataclasses.dataclass(frozen=True)
class JointInfo:
    """Where a user's joint lies in q and v. `body` indexes the bodies; -1 never occurs."""

    name: str
    type: str
    body: int
    q: int  # first index in q
    nq: int
    v: int  # first index in v
    nv: int


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh for drawing: vertices (V,3) m, faces (F,3). Equal when its content is equal."""

    vertices: np.ndarray
    faces: np.ndarray

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        h = hashlib.sha256(np.ascontiguousarray(self.vertices).tobytes())
        h.update(np.ascontiguousarray(self.faces).tobytes())
        return h.hexdigest()

    def __hash__(self):
        return hash(self.digest)

    def __eq__(self, other):
        return isinstance(other, Mesh) and self.digest == other.digest


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


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["size", "position", "quaternion", "rgba", "friction"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class Geometry:
    """Shapes fixed to bodies, for drawing and contact; one row a geom, types in `Topology.geom_types`.

    Sizes follow MuJoCo: sphere (r,·,·), capsule and cylinder (r, half length, ·), box and ellipsoid
    half sizes, plane half sizes (0 = infinite), mesh unused. Positions m, quaternions (w,x,y,z), both in
    the body's frame.
    """

    size: jax.Array  # (G,3) m
    position: jax.Array  # (G,3) m
    quaternion: jax.Array  # (G,4)
    rgba: jax.Array  # (G,4)
    friction: jax.Array  # (G,3)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "placement", "axis", "anchor", "second_moment", "gravity", "armature",
        "joint_range", "friction_loss", "q0", "geometry", "forces",
    ],
    meta_fields=["topology"],
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class Model:
    """An articulated system: static topology, array parameters, and the forces that act in it.

    Every field but `topology` is an array leaf (or a pytree of them), so a model can be batched with
    `jax.vmap`, changed with `dataclasses.replace`, and differentiated.
    """

    topology: Topology
    placement: jax.Array  # (N,3,4) frame of link l in its parent at q = 0
    axis: jax.Array  # (N,3) unit axis of a hinge or slide in the link's frame, else zero
    anchor: jax.Array  # (N,3) m, the point of the link that its hinge or ball holds still
    second_moment: jax.Array  # (N,4,4) ∫ρ[p;1][p;1]ᵀ in the link's frame
    gravity: jax.Array  # (3,) m/s²
    armature: jax.Array  # (nv,) kg or kg m², added to the diagonal of the mass matrix
    joint_range: jax.Array  # (nv,2) rad or m, ±inf where free
    friction_loss: jax.Array  # (nv,) N or N m
    q0: jax.Array  # (nq,) reference configuration
    geometry: Geometry
    forces: tuple  # pytrees of forces.py, or the user's own

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


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["q", "v", "time", "status", "history", "has_history"],
    meta_fields=["fingerprint"],
)
@dataclasses.dataclass(frozen=True)
class State:
    """The whole state of one lane; nothing else is needed to go on from it.

    `history` is the configuration at the scheme's history node, for the schemes that have one
    (legendre); before the first step `has_history` is False and the scheme builds it from (q, v).
    """

    q: jax.Array  # (nq,)
    v: jax.Array  # (nv,)
    time: jax.Array  # () s
    status: jax.Array  # () int8, the Status of the last step
    history: jax.Array  # (nq,)
    has_history: jax.Array  # () bool
    fingerprint: str


def joint_layout(topology: Topology) -> str:
    """One line that says which joint owns which entries of q, for error messages."""
    parts = [f"{j.name}[{j.q}:{j.q + j.nq}]" for j in topology.joints if j.nq]
    shown = ", ".join(parts[:8]) + (f", ... ({len(parts)} joints)" if len(parts) > 8 else "")
    return shown or "no joints"


def quaternion_addresses(topology: Topology) -> tuple[int, ...]:
    """First index in q of every quaternion (ball and free joints)."""
    return tuple(q for q, t in zip(topology.link_q, topology.link_type) if t == joints.BALL)


def make_state(model: Model, q=None, v=None, *, time: float = 0.0) -> State:
    """A state from a configuration and a velocity.

    Args:
        model: the model.
        q: (nq,) rad, m or unit quaternions; default `model.q0`. Cast to the model's dtype.
        v: (nv,) rad/s or m/s; default zero.
        time: s.

    Returns:
        One State, the whole of it; use `jax.vmap` for a batch.

    Raises:
        StateError: wrong length, a batch where one state is expected, NaN or inf (named by joint), or a
            quaternion whose norm is off by more than 1e-3 (closer ones are normalised). Values are
            looked at only outside jit; inside, a bad state gives the status NONFINITE_INPUT.
    """
    q = _checked(model, model.q0 if q is None else q, "q", model.nq)
    v = _checked(model, jnp.zeros(model.nv, model.dtype) if v is None else v, "v", model.nv)
    for address in quaternion_addresses(model.topology):
        p = q[address : address + 4]
        norm = jnp.linalg.norm(p)
        if not isinstance(norm, jax.core.Tracer) and not abs(float(norm) - 1) <= 1e-3:
            joint = _joint_at(model.topology, address, "q")
            raise StateError(
                f"q of joint {joint!r}: quaternion {np.asarray(p).tolist()} has norm {float(norm):.6g}; "
                "it must be 1 within 1e-3. Normalise it; the order is (w, x, y, z)."
            )
        q = q.at[address : address + 4].set(p / norm)
    return State(
        q=q,
        v=v,
        time=jnp.asarray(time, model.dtype),
        status=jnp.asarray(int(Status.CONVERGED), jnp.int8),
        history=q,
        has_history=jnp.asarray(False),
        fingerprint=model.fingerprint,
    )


def _checked(model: Model, x, name: str, size: int) -> jax.Array:
    """X as an array of the model's dtype and the right length."""
    try:
        x = jnp.asarray(x)
        if not (jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)):
            raise TypeError
    except (TypeError, ValueError):
        raise StateError(f"{name} must be an array of {size} numbers; got {type(x).__name__} {x!r:.60}") from None
    if x.ndim == 2 and x.shape[1] == size:
        raise StateError(
            f"{name} has shape {x.shape}: it looks like a batch of {x.shape[0]} states. "
            "Use jax.vmap over make_state, or rollout_batch."
        )
    if x.shape != (size,):
        raise StateError(
            f"{name} has shape {x.shape}; model {model.topology.name!r} wants ({size},) because "
            f"n{name} = {size}: {joint_layout(model.topology)}"
        )
    if not isinstance(x, jax.core.Tracer):
        bad = np.flatnonzero(~np.isfinite(np.asarray(x)))
        if bad.size:
            joint = _joint_at(model.topology, int(bad[0]), name)
            raise StateError(
                f"{name}[{bad[0]}] of joint {joint!r} is {float(x[bad[0]])}; it must be finite. "
                "Find where the NaN or inf was made."
            )
    return x.astype(model.dtype)


def _joint_at(topology: Topology, index: int, name: str) -> str:
    """The name of the joint that owns entry `index` of q or v."""
    for j in topology.joints:
        first, count = (j.q, j.nq) if name == "q" else (j.v, j.nv)
        if first <= index < first + count:
            return j.name
    return "?"


def with_forces(model: Model, *forces) -> Model:
    """The model with more forces; nothing is replaced. Their numbers take the model's dtype.

    Raises:
        ModelError: something without the method `load` of forces/law.py, or a force that the model carries already.
    """
    for force in forces:
        if any(force is known for known in model.forces):
            raise ModelError(
                f"with_forces: this {type(force).__name__} is in the model already and would act twice; "
                "pass only the new forces"
            )
        if not callable(getattr(force, "load", None)):
            raise ModelError(
                f"with_forces: {force!r:.60} is no force; it needs a method load(model, at), see pbad_jax.forces.law"
            )

    def cast(x):
        return jnp.asarray(x, model.dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

    return dataclasses.replace(model, forces=model.forces + tuple(jax.tree.map(cast, f) for f in forces))
