"""Random trees, the dense definition of the transforms, finite differences, and one tolerance table.

Compiling is the cost of a JAX suite, so there are ten fixed topologies and every number in them is random: models
of one topology share all jitted functions. The dense definition is written from the documentation of `Model`, not
from kinematics/transforms.py: a loop over the links, Rodrigues' formula, a power series for exp. Nothing
is vectorised.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import pbad_jax as pbad

FLOAT32 = jax.dtypes.canonicalize_dtype(float) == np.float32
DTYPE = np.float32 if FLOAT32 else np.float64

# reliability.md 2b; all relative to the largest entry
TOLERANCES = {
    "float64": {"autodiff": 1e-11, "difference": 1e-7, "twin": 1e-13, "symmetric": 1e-13, "matrix": 1e-10, "aba": 1e-9},
    "float32": {"autodiff": 2e-5, "difference": 5e-3, "twin": 1e-5, "symmetric": 2e-6, "matrix": 1e-4, "aba": 2e-2},
}
TOL = TOLERANCES[np.dtype(DTYPE).name]

CHECKS: Any = list(HealthCheck)
many = functools.partial(settings, deadline=None, derandomize=True, suppress_health_check=CHECKS)


def slow(*values):
    """Parameters that take more than a few seconds, most of them compiling."""
    return pytest.param(*values, marks=pytest.mark.slow)


def thorough(*values):
    """Parameters that CI has no time for."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def error(got, want) -> float:
    """max |got − want| / max |want|; NaN counts as infinite. Shapes must agree."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape, (got.shape, want.shape)
    if not got.size:
        return 0.0
    scale = np.abs(want).max()
    worst = np.abs(got - want).max() / (scale if scale > 0 else 1.0)
    return float(worst) if np.isfinite(worst) else np.inf


def assert_close(got, want, tolerance: float, what: str = "") -> None:
    found = error(got, want)
    assert found <= tolerance, f"{what}: relative error {found:.3g} > {tolerance:.3g}"


# --- random trees ----------------------------------------------------------------------------------------

# name -> bodies (parent, joints, massless?)
TOPOLOGIES = {
    "one hinge": [(None, ["hinge"])],
    "hinge chain": [(None, ["hinge"]), (0, ["hinge"]), (1, ["hinge"]), (2, ["hinge"])],
    "slides and hinges": [(None, ["slide"]), (0, ["hinge"]), (0, ["slide"]), (2, ["hinge"]), (2, ["hinge"])],
    "balls": [(None, ["ball"]), (0, ["ball"]), (0, ["ball"]), (2, ["ball"])],
    "free": [(None, ["free"]), (0, ["universal"]), (1, ["hinge"]), (0, ["ball"]), (3, ["slide"])],
    "three roots": [(None, ["planar"]), (None, ["free"]), (None, []), (0, ["hinge"]), (1, ["planar"]), (2, ["ball"])],
    "many joints": [(None, ["hinge", "slide"]), (0, ["slide", "ball"]), (1, ["hinge", "slide"]), (1, ["ball"])],
    "massless": [(None, ["hinge"], True), (0, ["slide"]), (1, [], True), (2, ["ball"], True), (3, ["hinge"]), (1, [])],
    "universals": [(None, ["universal"])] + [(i, ["universal"]) for i in range(5)],
    "twelve": [
        (None, ["free"]), (0, ["hinge"]), (1, ["universal"]), (0, ["ball"]), (3, []), (4, ["slide"]), 
        (0, ["hinge"], True), (6, ["ball"]), (None, ["planar"]), (8, ["hinge"]), (8, ["hinge", "slide"]), (10, []),
    ],
}  # fmt: skip
NAMES = list(TOPOLOGIES)
FEW = ("three roots", "many joints", "massless", "universals")  # together all that the others have


def random_inertia(rng, mass: float) -> np.ndarray:
    """A physical inertia: that of a random, possibly very flat, mass distribution."""
    A = rng.normal(size=(3, 3)) * 10.0 ** rng.uniform(-2, 0, size=3)
    S = mass * A @ A.T
    return np.trace(S) * np.eye(3) - S


def random_bodies(topology: str, rng, *, spread: float = 3.0) -> list[pbad.Body]:
    """Bodies with random numbers: masses over 10^±spread kg, skew axes, anchors, springs, dampers, armature."""
    bodies = []
    for i, (parent, kinds, *massless) in enumerate(TOPOLOGIES[topology]):
        mass = 0.0 if massless else 10.0 ** rng.uniform(-spread, spread)
        parts = []
        for k, kind in enumerate(kinds):
            a, b = rng.normal(size=(2, 3))
            pair = np.array([a / np.linalg.norm(a), b / np.linalg.norm(b)])
            axis = {"hinge": pair[0], "slide": pair[0], "universal": pair, "planar": pair}.get(kind)
            parts.append(
                pbad.Joint(
                    kind, axis, name=f"j{i}.{k}",
                    anchor=rng.normal(size=3) * 0.3 if kind in ("hinge", "universal", "ball") else (0, 0, 0),
                    reference=rng.normal() if kind in ("hinge", "slide") else 0.0,
                    damping=rng.uniform(0.1, 1), stiffness=rng.uniform(0.1, 10), armature=rng.uniform(0.01, 0.1),
                )
            )  # fmt: skip
        bodies.append(
            pbad.Body(
                f"b{i}", mass, np.zeros(3) if massless else rng.normal(size=3) * 0.3,
                np.zeros((3, 3)) if massless else random_inertia(rng, mass),
                parent, rng.uniform(-1, 1, 3), rng.normal(size=4), parts,
            )
        )  # fmt: skip
    return bodies


def random_actuators(bodies, rng) -> list[pbad.Actuator]:
    """A servo with gear on every hinge."""
    return [
        pbad.Actuator(j.name, gear=rng.uniform(0.5, 2), gain=rng.uniform(1, 5), bias=rng.normal(size=3))
        for b in bodies for j in b.joints if j.type == "hinge"
    ]  # fmt: skip


def random_model(topology: str, seed: int, *, spread: float = 3.0, dtype=None) -> pbad.Model:
    rng = np.random.default_rng(seed)
    bodies = random_bodies(topology, rng, spread=spread)
    gravity = rng.normal(size=3) * 5
    return pbad.build_model(
        bodies, actuators=random_actuators(bodies, rng), gravity=gravity, name=topology, dtype=dtype
    )


ANGLES = (0.0, np.pi, -np.pi, np.pi / 2, 2 * np.pi, 1e-9, 1e-300, 10 * np.pi, 1e-4)
POSES = ("generic", "special", "identity")


def random_q(model: pbad.Model, rng, pose: str = "generic") -> np.ndarray:
    """Angles to ±10π; `special` mixes in 0, π, 1e-9, 1e-300, ...; `identity` is q = 0 and unit quaternions."""
    q = np.zeros(model.nq)

    def angle() -> float:
        if pose == "special" and rng.uniform() < 0.7:
            return float(rng.choice(ANGLES))
        return rng.uniform(-10 * np.pi, 10 * np.pi)

    t = model.topology
    for kind, first in zip(t.link_type, t.link_q):
        if kind == "ball":
            axis = rng.normal(size=3)
            half = 0.5 * angle()
            q[first : first + 4] = [np.cos(half), *np.sin(half) * axis / np.linalg.norm(axis)]
            if pose == "identity":
                q[first : first + 4] = [1, 0, 0, 0]
        elif kind == "hinge" and pose != "identity":
            q[first] = angle()
        elif kind == "slide" and pose != "identity":
            q[first] = rng.normal()
    return q


@dataclasses.dataclass(frozen=True)
class Case:
    """What hypothesis draws: all numbers follow from the seed, so a failure is one line to repeat."""

    topology: str
    seed: int
    pose_a: str
    pose_b: str

    @property
    def model(self) -> pbad.Model:
        return random_model(self.topology, self.seed)

    @property
    def rng(self):
        return np.random.default_rng([self.seed, 1])


def cases(topologies=FEW):
    """A strategy of Cases."""
    poses = st.sampled_from(POSES)
    return st.builds(Case, st.sampled_from(topologies), st.integers(0, 2**32 - 1), poses, poses)


# --- the dense definition --------------------------------------------------------------------------------


def cross_matrix(a):
    """[a] with [a] b = a × b."""
    return jnp.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def exp_rotation(w):
    """exp [w] by its power series; exact derivatives of all orders ≤ 8 at w = 0, which is where it is used."""
    W, term, total = cross_matrix(w), jnp.eye(3), jnp.eye(3)
    for k in range(1, 9):
        term = term @ W / k
        total = total + term
    return total


def rotation_of(p):
    """The textbook matrix of a unit quaternion (w,x,y,z)."""
    w, x, y, z = p
    return jnp.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def rodrigues(axis, angle):
    """Rotation about a unit axis."""
    K = cross_matrix(axis)
    return jnp.eye(3) + jnp.sin(angle) * K + (1 - jnp.cos(angle)) * K @ K


def affine(R, p):
    return jnp.vstack([jnp.hstack([R, p[:, None]]), jnp.array([[0, 0, 0, 1.0]])])


def dense_transforms(model, q, delta):
    """T(q ⊕ δ) of every link, (N,3,4)."""
    t, T = model.topology, []
    for i, kind in enumerate(t.link_type):
        a, c, x, d = model.axis[i], model.anchor[i], t.link_q[i], t.link_v[i]
        R, p = jnp.eye(3), jnp.zeros(3)
        if kind == "slide":
            p = a * (q[x] + delta[d])
        if kind == "hinge":
            R = rodrigues(a, q[x] + delta[d])
        if kind == "ball":
            R = rotation_of(q[x : x + 4]) @ exp_rotation(delta[d : d + 3])
        J = affine(R, p + c - R @ c)
        L = jnp.vstack([model.placement[i], jnp.array([[0, 0, 0, 1.0]])]) @ J
        T.append(L if t.link_parent[i] < 0 else T[t.link_parent[i]] @ L)
    return jnp.stack(T)[:, :3]


def dense_atom(model, q_a, q_b, d_a, d_b):
    """I(q_a ⊕ δ_a, q_b ⊕ δ_b)."""
    T_a, T_b = dense_transforms(model, q_a, d_a), dense_transforms(model, q_b, d_b)
    return jnp.einsum("lij,ljk,lik->", T_a, model.second_moment, T_b)


@jax.jit
def dense_jet(model, q):
    """T, ∂T (nv last), ∂²T (nv, nv last) at q by autodiff in exponential coordinates."""
    zero = jnp.zeros(model.nv, model.dtype)
    T = functools.partial(dense_transforms, model, q)
    return T(zero), jax.jacfwd(T)(zero), jax.jacfwd(jax.jacfwd(T))(zero)


def retract_quaternion(p, w):
    """P ⊗ exp(w), numpy, float64."""
    angle = np.linalg.norm(w)
    r = np.array([np.cos(angle / 2), *(0.5 * np.sinc(angle / 2 / np.pi) * np.asarray(w, float))])
    a, u, b, v = p[0], np.asarray(p[1:], float), r[0], r[1:]
    return np.array([a * b - u @ v, *(a * v + b * u + np.cross(u, v))])


def move(model, q, delta) -> np.ndarray:
    """Q ⊕ δ in numpy float64, independent of kinematics.retract."""
    out, t = np.array(q, float), model.topology
    for kind, x, d in zip(t.link_type, t.link_q, t.link_v):
        if kind == "ball":
            out[x : x + 4] = retract_quaternion(out[x : x + 4], np.asarray(delta[d : d + 3], float))
        elif kind != "fixed":
            out[x] += delta[d]
    return out


def central_difference(f, n: int, h: float) -> np.ndarray:
    """∂f/∂δ at 0, fourth order, new axis last. f takes δ (n,) numpy."""
    columns = []
    for e in np.eye(n) * h:
        columns.append((8 * (f(e) - f(-e)) - (f(2 * e) - f(-2 * e))) / (12 * h))
    return np.stack(columns, axis=-1)


def assert_refused(call, words) -> None:
    """A ModelError whose text has all these words."""
    with pytest.raises(pbad.ModelError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def part(force, name: str):
    """What has the number of that name: the force, its law or its length; None: nothing has."""
    parts = (force, getattr(force, "law", None), getattr(force, "length", None))
    return next((x for x in parts if hasattr(x, name)), None)


def changed(force, **numbers):
    """The same with other numbers, wherever they are; itself where one of them is nowhere."""
    if any(part(force, name) is None for name in numbers):
        return force
    own = isinstance(force, pbad.forces.LineForce)
    return force.changed(**numbers) if own else dataclasses.replace(force, **numbers)


@functools.cache
def sprung_slide():
    body = pbad.Body("b", 2.0, inertia=np.eye(3), joints=[pbad.Joint("slide", (0, 0, 1), stiffness=1.0)])
    return pbad.build_model([body], gravity=(0, 0, 0))


def spring_constant(model, w2):
    """m = 2 kg; k = 2 w²."""
    springs = tuple(changed(f, stiffness=jnp.asarray([2 * w2], DTYPE)) for f in model.forces)
    return dataclasses.replace(model, forces=springs)
