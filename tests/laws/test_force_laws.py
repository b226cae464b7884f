"""Every force by itself: slopes against autodiff and differences, potentials, corners, dissipation, wrong input."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# (what is refused is of the wrong type)

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from force_cases import (
    acts,
    assert_finite,
    blocks,
    creature,
    energy_of,
    expected,
    generalised,
    instant,
    judged,
    leaf,
    random_point,
    still,
)
from helpers import DTYPE, FLOAT32, TOL, Case, assert_close, assert_refused, changed, part, rotation_of
from stage_cases import SCHEMES, both, draw

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, Site, forces
from pbad_jax.geometry.surfaces import safe_norm, slopes
from pbad_jax.kinematics import manifold
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import place as points_at
from pbad_jax.model.model import Mesh

NAN, INF = float("nan"), float("inf")
tree_and_dense = jax.jit(both.__wrapped__, static_argnames="scheme")

# --- one model, and every force on it --------------------------------------------------------------------


def own(kind, **changes):
    """The model's own force of that name, changed."""
    force = next(f for f in creature().forces if forces.name_of(f) == kind)
    return changed(force, **{k: jnp.full_like(getattr(part(force, k), k), x) for k, x in changes.items()})


def coupling() -> forces.LineForce:
    """Knee and rail by a quartic, the hub held still."""
    rows, leaves = np.zeros((2, 2, creature().nv)), creature().topology.joints
    for n, pair in enumerate((("knee", "rail"), ("hub", None))):
        for k, name in enumerate(pair):
            rows[k, n] += sum(np.eye(creature().nv)[j.v] for j in leaves if j.name == name)
    one, other = (forces.Tendons(leaf(x), of="Joint") for x in rows)
    polynomial = leaf([[0, 0.7, 0.3, -0.2, 0.1], [0.0] * 5])
    spring = forces.Spring(leaf([3.0, 2.0]), leaf([0.0, 0.0]), leaf([0.5, 0.4]), conservative=False)
    return forces.LineForce(forces.Coupling(one, other, leaf([[0.2, -0.1], [0.0, 0.0]]), polynomial), spring)


def egg(P, parameters):
    """An ellipsoid's first-order distance."""
    size, level = parameters
    return level * (safe_norm(P / size) - 1.0)


HEIGHTS = 1.5 + 0.3 * np.random.default_rng(3).normal(size=(6, 7))
# each a surface that the creature's points are in and out of
SURFACES = {
    "half_space": lambda: forces.half_space((1, -2, 4), 0.5),
    "sphere": lambda: forces.sphere((0.5, 0.25, -0.25), 1.5),
    "capsule": lambda: forces.capsule((-1, -0.5, 0), (1, 1, 0.5), 1.0),
    "box": lambda: forces.box((0.27, 0, 0), (1.5, 1.25, 1.0), quaternion=(3, 1, -2, 1), round=0.5),
    "sharp box": lambda: forces.box((0.25, 0, 0), (1.5, 1.25, 1.0)),
    "height_field": lambda: forces.height_field(HEIGHTS - 1.5, origin=(-2.5, -3), spacing=(1.0, 1.25)),
    "SignedDistance": lambda: forces.SignedDistance(egg, (leaf([1.5, 2.0, 1.0]), leaf(1.25))),
}
BALLS = ([[0.0, 0, 0], [0, 0, 0]], [0.25, 0.0])  # two on the trunk's origin, a sphere and a point


def touching() -> forces.ContactPoints:
    model = creature()
    return forces.joined(
        forces.points_on(model, "trunk", BALLS[0], radius=BALLS[1], friction=0.7),
        forces.points_on(model, "shin", [0.2, -0.3, 0.1], radius=0.1, friction=0.5),
        forces.points_on(model, "wheel", [-0.2, 0.1, 0.3], friction=0.9),
    )


def touch(surface: str, **how) -> forces.Contact:
    how = {"stiffness": 20.0, "smoothing": 0.4, "damping": 0.6, "stick_speed": 0.3, "points": touching()} | how
    force = forces.contact(creature(), SURFACES[surface](), **how)
    return dataclasses.replace(force, half=8 * force.half)  # or most would be in the stop


@functools.partial(jax.tree_util.register_dataclass, data_fields=["u", "k"], meta_fields=["links"])
@dataclasses.dataclass(frozen=True)
class Magnet:
    """A user's ten lines: two points attract and brake one another by the place of a third, itself braked."""

    u: Any
    k: Any
    links: tuple

    def load(self, model, at):
        def law(P, V, k):
            d = P[0] - P[1]
            f = k * d / (1 + d @ d) ** 2 - 0.3 * k * (1 + P[2] @ P[2]) * (V[0] - V[1])
            return jnp.stack([f, -f, -0.2 * V[2] * (d @ d)])

        return forces.point_forces(at, self.links, self.u, law, self.k)


def magnet() -> Magnet:
    u = np.random.default_rng(4).normal(size=(2, 3, 4))
    u[..., 3] = 1
    link = creature().topology.body_link
    return Magnet(leaf(u), leaf([1.0, -0.5]), ((link[2], link[4], link[1]), (link[0], link[3], link[0])))


def law(name: str, part=None, **how):
    """A force of pbad.forces on the creature."""
    return lambda: getattr(forces, name)(creature(), *(() if part is None else part), **how)


TURNS = [
    Actuator("hip", gear=(1.0, -2.0, 0.5), gain=2.0, bias=(0.1, -1.5, -0.4)),
    Actuator("hip", "outer", gear=(0.5, 1.0, 2.0), bias=(0.2, -0.7, -0.3), in_parent=True),
    Actuator("float", gear=(1.0, 0.3, -0.5, 0.2, 0.7, -0.4), bias=(-0.3, -0.5, -0.2)),
    Actuator("float", "from outside", gear=(0, 1.0, 0, 0.2, 0.7, -0.4), bias=(1.0, -0.5, -0.2), in_parent=True),
]


def driven(joints, **changes) -> forces.LineForce:
    """Actuators of balls and free joints; the two controls of the creature serve all."""
    force = pbad.with_actuators(creature(), *(dataclasses.replace(a, **changes) for a in joints)).forces[-1]
    return changed(force, u_index=(0, 1, 1, 0)[: len(joints)])


GOAL = (0.3, *(x / 2 for x in (1.0, -1.0, 1.0, -1.0)), -0.1)  # of knee, hip and rail
DRIVE = {"kp": (2.0, 3.0, 1.5, 0.5, 4.0), "kd": (0.4, 0.7, 0.3), "target": GOAL}

PULLS = [{"knee": 1.5, "rail": -0.5}, {"hub": 0.7, "rail": 1.2, "knee": -0.3}]


def pulled(**changes) -> forces.LineForce:
    """Actuators of tendons; the two controls of the creature serve them."""
    drives = [
        Actuator(PULLS[0], "first", gear=1.5, gain=2.0, bias=(0.1, -1.5, -0.4), **changes),
        Actuator(PULLS[1], "second", gear=-0.5, gain=3.0, bias=(0.0, -0.5, -0.2), **changes),
    ]
    return changed(pbad.with_actuators(creature(), *drives).forces[-1], u_index=(0, 1))


ROPES = [
    (
        Site("shin", (0.1, 0.2, 0)),
        Site(None, (1, 0.5, -0.5)),
        Site("cart", (0, 0, 0.1)),
        2.0,
        Site("trunk"),
        Site("wheel"),
    ),
    (Site("thigh", (0.3, 0, 0)), Site("cart")),
]


def hauled(target, **how) -> Any:
    """An actuator of a rope or a site; the two controls of the creature serve it."""
    drives = [Actuator(x, f"u{k}", gain=2.0, bias=(0.1, -1.5, -0.4), **how) for k, x in enumerate(target)]
    return changed(pbad.with_actuators(creature(), *drives).forces[-1], u_index=(1, 0)[: len(drives)])


JETS = [Site("shin", (0.1, 0.2, 0.3), (1, 0.2, 0.3, 0.4)), Site("trunk", (0, 0, 0.1))]
PUSH = {"gear": (1.0, 0.5, -0.3, 0.2, -0.4, 0.6)}
CUBIC = {"stiffness": (0.7, 0.4), "damping": (0.3, 0.2)}
BENT = {"stiffness": [[0.3, 0.5], [0.4, 0.2]], "rest": (0.2, -0.3)}
TENDON_LIMIT = {"range": [[-0.2, 0.1], [-INF, -0.3]], "stiffness": (3.0, 2.0), "width": 0.2}
QUARTIC = {"polynomial": (0.3, 0.7, 0.3, -0.2, 0.1), "offset": (0.2, -0.1), "stiffness": 3.0}
HELD = {"stiffness": 5.0, "damping": 0.8}
# name -> (how to make it, whether it is conservative)
FORCES = {
    "Gravity": (lambda: own("Gravity"), True),
    "JointSpring": (lambda: own("JointSpring"), True),
    "JointDamping": (lambda: own("JointDamping"), False),
    "JointFriction": (lambda: own("JointFriction"), False),
    "JointLimit": (lambda: own("JointLimit", width=0.2, damping=0.6), False),
    "BallSpring": (lambda: own("BallSpring"), True),
    "BallLimit": (lambda: own("BallLimit", width=0.2), False),
    "JointCoupling": (coupling, False),
    "JointActuation": (lambda: own("JointActuation"), False),
    "VectorActuation": (lambda: driven(TURNS), False),
    "VectorActuation, clipped": (lambda: driven(TURNS, control_range=(-1, 1), force_range=(-0.4, 0.9)), False),
    "PDDrive": (law("pd_drive", (["knee", "hip", "rail"],), **DRIVE), False),
    "PDDrive, clipped": (law("pd_drive", (["knee", "hip", "rail"],), **DRIVE, force_limit=(0.5, 0.8, 0.5)), False),
    "PDDrive, all": (law("pd_drive", (None, 2.0, 0.3)), False),
    "PDDrive, hinge": (law("pd_drive", ("knee", 2.0, 0.3)), False),
    "TendonSpring": (law("tendon_spring", (PULLS,), stiffness=2.0, rest=[[-0.1, 0.2], [0, 0]], damping=0.3), False),
    "TendonSpring, elastic": (law("tendon_spring", (PULLS[1],), stiffness=2.0, rest=0.1), True),
    "TendonFriction": (law("tendon_friction", (PULLS, (0.4, 0.7)), stick_speed=0.3), False),
    "TendonLimit": (law("tendon_limit", (PULLS,), **TENDON_LIMIT, damping=0.6), False),
    "TendonCoupling": (law("tendon_coupling", (PULLS[0], PULLS[1]), **QUARTIC, damping=0.5), False),
    "TendonCoupling, alone": (law("tendon_coupling", (PULLS[0],), **QUARTIC), True),
    "TendonActuation": (pulled, False),
    "TendonActuation, clipped": (lambda: pulled(control_range=(-1, 1), force_range=(-0.4, 0.9)), False),
    "SpatialTendonSpring": (law("tendon_spring", (ROPES,), stiffness=2.0, rest=0.3, damping=0.3), False),
    "SpatialTendonSpring, elastic": (law("tendon_spring", (ROPES[0],), stiffness=2.0, rest=0.5), True),
    "SpatialTendonLimit": (law("tendon_limit", (ROPES, [[0.3, 0.7], [-INF, 0.2]]), stiffness=3.0, width=0.2,
                               damping=0.6), False),
    "TendonPolynomial": (law("tendon_polynomial", (PULLS,), **CUBIC, rest=[[-0.1, 0.2]] * 2), False),
    "SpatialTendonPolynomial": (law("tendon_polynomial", (ROPES,), **CUBIC, rest=0.3), False),
    "SpatialTendonFriction": (law("tendon_friction", (ROPES, (0.4, 0.7)), stick_speed=0.3), False),
    "SpatialTendonCoupling": (law("tendon_coupling", (ROPES[0], ROPES[1]), **QUARTIC, damping=0.5), False),
    "SpatialTendonCoupling, alone": (law("tendon_coupling", (ROPES,), **QUARTIC), True),
    "SpatialTendonActuation": (lambda: hauled(ROPES, gear=1.5), False),
    "SpatialTendonActuation, clipped": (lambda: hauled(ROPES, force_range=(-1.3, 0.9)), False),
    "SiteActuation": (lambda: hauled(JETS, **PUSH), False),
    "SiteActuation, clipped": (lambda: hauled(JETS, **PUSH, control_range=(-1, 1), force_range=(-1, 0.9)), False),
    "GravityCompensation": (law("gravity_compensation", ({"shin": 0.7, "cart": 1.2},)), True),
    "JointPolynomial": (law("joint_polynomial", (["knee", "rail"],), damping=[[0.3, 0.2], [0.5, 0]], **BENT), False),
    "JointPolynomial, elastic": (law("joint_polynomial", (["knee", "rail"],), **BENT), True),
    "JointPolynomial, all": (law("joint_polynomial", (), damping=(0.3, 0.4)), False),
    "JointForce": (law("joint_force", (np.linspace(-2, 3, 12),)), False),
    "Drag": (lambda: forces.drag(0.8), False),
    "Fluid": (law("fluid", (2.0, 0.7)), False),
    "InertiaBoxes": (law("inertia_boxes", (1.2, 0.3)), False),
    "InertiaBoxes, wind": (law("inertia_boxes", (1.2, 0.3, (0.5, -1.0, 0.2))), False),
    **{f"Contact, {s}": (functools.partial(touch, s), False) for s in SURFACES},
    "Contact, elastic": (lambda: touch("sphere", damping=0.0, friction=0.0), True),
    "Contact, turning": (lambda: touch("sphere", turning=(0.7, 0.4)), False),
    "Contact, normal": (lambda: touch("sphere", friction=0.0), False),
    "PaperDrag": (lambda: forces.paper_drag(0.5), False),
    "PaperContact": (lambda: forces.paper_contact(creature(), 4.0, SURFACES["half_space"](), points=touching()), True),
    "PaperFriction": (lambda: forces.paper_friction(creature(), 0.7, SURFACES["sphere"](), points=touching()), False),
    "connect": (law("connect", ("shin", "wheel"), point=(0.1, 0.2, 0.3), **HELD), False),
    "connect, elastic": (law("connect", ("shin", "cart"), stiffness=5.0, damping=0.0, at="stages"), True),
    "connect, world": (law("connect", ("thigh",), **HELD), False),
    "weld": (law("weld", ("cart", "thigh"), lever=0.5, **HELD), False),
    "weld, world": (law("weld", ("shin",), lever=0.5, stiffness=5.0, damping=0.0), True),
    "Wrench, world": (law("wrench", ("shin", (1.0, 2, -1), (0.5, -0.3, 0.7))), False),
    "Wrench, body": (law("wrench", ("shin", (1.0, 2, -1), (0.5, -0.3, 0.7)), frame="body", point=(0.1, 0, 0)), False),
    "Magnet": (magnet, False),
}  # fmt: skip
made = functools.cache(lambda name: FORCES[name][0]())
named = pytest.mark.parametrize("name", FORCES)

# --- one compilation for each force ----------------------------------------------------------------------


@named
def test_slopes(name):
    """All entries of ∂f/∂P, ∂f/∂V, ∂τ/∂q, ∂τ/∂v, and that nothing depends on anything else."""
    links, size = creature().topology.n_links, 0.0
    for seed in range(3):
        out = judged(creature(), made(name), random_point(seed))
        promised = expected(out["load"], links)
        size += sum(float(jnp.abs(y).sum()) for k, y in acts(out["load"]).items() if k[0] != "u")
        for judge, tolerance in (("autodiff", TOL["autodiff"]), ("differences", TOL["difference"])):
            for what, J in out.get(judge, {}).items():
                for by, want in blocks(promised[what], links).items():
                    assert_close(blocks(J, links)[by], want, tolerance, f"{judge}: ∂{what}/∂{by}, seed {seed}")
    assert size > 0.1, "the force never acted"


@named
def test_potentials(name):
    """A conservative force is minus the gradient of its potential, at any velocity; others with one, at rest, and
    drives of that with the control held.
    """
    model, force = creature(), made(name)
    assert forces.is_conservative(force) == FORCES[name][1]
    for seed in range(3):
        at = random_point(seed)
        held = dataclasses.replace(still(at.q), control=at.control)
        for here in [at] * forces.is_conservative(force) + [held] * (energy_of(force) is not None):
            out = judged(model, force, here)
            if "slopes" not in out:  # a drive whose work only a quadrature tells
                continue
            field = jnp.zeros_like(at.T) if out["field"] is None else out["field"]
            tau = jnp.zeros_like(at.v) if out["load"].tau is None else out["load"].tau
            got, want = generalised(model, here.q, field, tau, out["slopes"][1])
            assert_close(got, want, 100 * TOL["autodiff"], f"seed {seed}")


# --- corners ---------------------------------------------------------------------------------------------


def pose(joints: dict[str, Any]) -> np.ndarray:
    """q0 with these joints' entries replaced."""
    q = np.array(creature().q0, float)
    for joint in creature().topology.joints:
        if joint.name in joints:
            q[joint.q : joint.q + joint.nq] = joints[joint.name]
    return q


def turned(angle: float, axis=(0.6, 0.0, 0.8)) -> tuple[float, ...]:
    return np.cos(angle / 2), *(np.sin(angle / 2) * np.array(axis))


POSES = {
    "reference": {},  # no gap, balls at the identity
    "half turns": {"float": (0, 0, 0, 0, 0.6, 0, 0.8), "hip": (0, 1, 0, 0)},
    "almost the identity": {"float": (0, 0, 0, *turned(1e-9)), "hip": turned(1e-7)},
    "at the limits": {"hip": turned(0.5), "knee": 0.5, "rail": 0.25},
    "at the lower limit": {"hip": turned(-0.5), "knee": -0.25},
    "coupled": {"knee": 0.2, "rail": -0.1},  # no gap, at the middle of the polynomial
}


@named
def test_everything_is_finite_in_special_poses(name):
    """Forces, slopes, potentials and their gradients by every number: at rest, and moving from there and to there."""
    model, force, at = creature(), made(name), random_point(7)
    for what, joints in POSES.items():
        rest = still(pose(joints))
        for here in (
            rest,
            dataclasses.replace(rest, v=at.v, V=at.V),
            dataclasses.replace(rest, start=at.start),
            dataclasses.replace(at, start=rest.start),
        ):
            assert_finite(judged(model, force, here), what)


DRIVES = [name for name in FORCES if name.split(",")[0] in ("VectorActuation", "PDDrive", "JointSpring", "BallSpring")]


@pytest.mark.parametrize("name", DRIVES)
def test_slopes_of_drives_in_special_poses(name):
    """At no rotation, almost none, and at what they drive to, moving; clipped in some, not clipped in some."""
    model, at, links = creature(), random_point(9), creature().topology.n_links
    poses = {k: x for k, x in POSES.items() if k != "half turns"} | {"goal": {"hip": GOAL[1:5], "knee": GOAL[0]}}
    open_part = []
    for what, joints in poses.items():
        for v in (np.zeros(model.nv), at.v):
            q = leaf(pose(joints))
            here = instant(model, q, leaf(v), at.control, q, leaf(v))
            out = judged(model, made(name), here)
            promised = expected(out["load"], links)["tau"]
            assert_close(out["autodiff"]["tau"], promised, TOL["autodiff"], what)
            if "differences" in out:
                assert_close(out["differences"]["tau"], promised, TOL["difference"], what)
            if "clipped" in name:
                free = judged(model, made(name.removesuffix(", clipped")), here)["load"].dtau_dv
                open_part.append(np.abs(out["load"].dtau_dv).sum() / np.abs(free).sum())
    assert "clipped" not in name or min(open_part) < 0.9 and max(open_part) > 0.1, open_part


def corners(surface: str) -> list[tuple[Any, float | None]]:
    """Places of the trunk's origin and their distance: on the surface, at 0.25 m, off it, at its middle and edges."""
    if surface == "half_space":
        n = np.array([1, -2, 4]) / 21**0.5
        return [(d * n, d - 0.5) for d in (0.5, 0.75, -4.0, 2.0)]
    if surface == "sphere":
        return [((0.5, 0.25, z - 0.25), abs(z) - 1.5) for z in (1.5, 1.75, 0.0, -3.0)]
    if surface == "capsule":
        across, middle = np.array([0.6, -0.8, 0.0]), np.array([0.0, 0.25, 0.25])
        places: list = [(middle + d * across, d - 1.0) for d in (1.0, 1.25, 0.0, 4.0)]
        return [*places, ((-1, -0.5, 0), -1.0), ((1, 1, 0.5), -1.0), ((1, 1, 5.5), 4.0)]
    if "box" in surface:
        corner = 0.75**0.5 - 0.5 if surface == "box" else 0.0
        inside = [((0, 0, 0), -1.0), ((1, 0.75, 0.5), -0.5)]
        places = [((1.5, 0, 0), 0.0), ((0, 0, -1.25), 0.25), ((1.5, 1.25, 1.0), corner), ((0, 5.25, 0), 4.0), *inside]
        block = SURFACES[surface]()
        return [(block.position + block.rotation @ np.array(y), d) for y, d in places]
    if surface == "height_field":  # knots, its rim and corner; deep; beyond
        knots = [((x, y, HEIGHTS[i, j] - 1.5), 0.0) for x, y, i, j in ((-0.5, 0.75, 2, 3), (-2.5, 2, 0, 4))]
        return [*knots, ((2.5, 4.5, HEIGHTS[5, 6] - 1.5), 0.0), ((0.1, 0.2, -4.0), None), ((99, -99, 9.0), None)]
    if surface == "SignedDistance":
        return [((0, 0, 1), 0.0), ((0, 0, 1.2), 0.25), ((0, 0, 0), -1.25), ((0, 4, 0), 1.25)]
    raise KeyError(f"a new surface {surface!r} wants its corners here: places, and by hand their distance")


@jax.jit
def depths(model, force, at):
    return force.depth(model, at)


def soft_start(x, width):
    """0, then a parabola as far as `width`, then a line of slope 1."""
    return np.where(x < width, np.maximum(x, 0) ** 2 / (2 * width), x - width / 2)


@pytest.mark.parametrize("surface", SURFACES)
def test_contact_at_the_corners_of_a_surface(surface):
    """A sphere of 0.25 m and a point there: depths by hand, no force off the surface, the law's at rest, all finite."""
    model, force, moving = creature(), made(f"Contact, {surface}"), random_point(8)
    for place, distance in corners(surface):
        rest = still(pose({"float": (*place, *turned(0.4))}))
        out = judged(model, force, rest)
        for here in (dataclasses.replace(rest, v=moving.v, V=moving.V), dataclasses.replace(rest, start=moving.start)):
            assert_finite(judged(model, force, here), f"{place}")
        assert_finite(out, f"{place}")
        depth = np.asarray(depths(model, force, rest), float)[:2]
        if distance is not None:
            assert np.abs(depth - (np.array(BALLS[1]) - distance)).max() < 1e2 * np.finfo(DTYPE).eps, place
        normal, friction = (np.linalg.norm(p.force[:2, 0], axis=-1) for p in out["load"].point_forces)
        assert not friction.any()  # no slip
        assert not normal[depth < -1e-4].any()
        ramp = soft_start(depth, 0.4)
        if force.room is not None:
            room = np.asarray(force.room, float)[:2]
            ramp = ramp + 1e4 * np.maximum(depth - room / 2, 0) ** 2 / (room / 4)
        if surface in ("height_field", "SignedDistance"):  # distances of first order
            assert np.all(normal[np.abs(depth) < 1e-6] < 1e-6)
        else:
            # several directions are as near where the gradient is no unit vector
            n = slopes(SURFACES[surface](), jnp.asarray(place, DTYPE)[None])[1]
            middle = bool(jnp.linalg.norm(n) < 0.99)
            assert np.all(normal <= 20 * ramp * (1 + 1e-4) + 1e-9)
            assert middle or np.all(normal >= 20 * ramp * (1 - 1e-4) - 1e-9), place


# --- dissipation -----------------------------------------------------------------------------------------


@jax.jit
def many_points(model, delta, v) -> Instant:
    """2k displacements from q0 and velocities as k Points."""
    half, q = len(delta) // 2, jax.vmap(lambda d: manifold.retract(model, model.q0, d))(delta)
    none = jnp.zeros((half, model.nu), q.dtype)
    return jax.vmap(functools.partial(instant.__wrapped__, model))(q[:half], v[:half], none, q[half:], v[half:])


@functools.cache
def crowd(n: int = 200) -> Instant:
    model, rng = creature(), np.random.default_rng(11)
    return many_points(model, *(leaf(rng.normal(size=(2 * n, model.nv)) * s) for s in (0.7, 2.0)))


@jax.jit
def powers(model, force, points: Instant) -> list[jax.Array]:
    """The power of every part of a force less that of the same part at zero velocity, each (n,) W."""

    def one(at):
        load = force.load(model, at)
        rest = force.load(model, dataclasses.replace(at, v=0 * at.v, V=0 * at.V))
        pairs = zip(load.point_forces, rest.point_forces)
        out = [jnp.sum((a.force - b.force) * points_at(at.V, a.point_links, a.u)) for a, b in pairs]
        return out if load.tau is None else [*out, (load.tau - rest.tau) @ at.v]

    return jax.vmap(one)(points)


LOSSES = [
    "JointDamping", "JointFriction", "JointLimit", "JointCoupling", "SpatialTendonFriction", "TendonPolynomial",
    "Drag", "Fluid", "InertiaBoxes", "connect", "connect, world", "weld",
    *(f"Contact, {s}" for s in SURFACES if s != "sharp box"),
]  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_do_no_positive_work(name):
    for power in powers(creature(), made(name), crowd()):
        assert power.max() <= 1e-6 * np.abs(power).max() and power.min() < -1e-3


def test_the_papers_drag_opposes_the_displacement():
    at = random_point(3)
    (p,) = judged(creature(), made("PaperDrag"), at)["load"].point_forces
    change = np.asarray(at.T) - np.asarray(at.start.T)
    gone = np.einsum("...aj,...j->...a", change[p.point_links], p.u)
    want = -2 * 0.5 / 0.5**2 * np.einsum("lai,lij,laj->", change, creature().second_moment, change)  # −2 D ∫ρ ΔP²/dt²
    assert_close(np.sum(p.force * gone), want, TOL["autodiff"])


def test_a_wrench_has_its_force_and_its_torque():
    """Also turning with the body; about the point where it acts."""
    at, link = random_point(4), creature().topology.body_link[2]
    for name in ("Wrench, world", "Wrench, body"):
        force = made(name)
        (p,) = judged(creature(), force, at)["load"].point_forces
        R = np.asarray(at.T)[link, :, :3] if force.frame == "body" else np.eye(3)
        arms = np.r_[np.zeros((1, 3)), np.asarray(at.T)[link, :, :3].T]  # about the point itself; three directions
        assert p.links == (link,)
        assert_close(p.force[0, 0], R @ [1, 2, -1], 10 * TOL["autodiff"])
        assert_close(np.sum(np.cross(arms, p.force[0]), axis=0), R @ [0.5, -0.3, 0.7], 10 * TOL["autodiff"])


# --- wrong input -----------------------------------------------------------------------------------------


def on(function: str, *args, **how):
    return lambda: getattr(forces, function)(creature(), *args, **how)


def one_body(**joint):
    return pbad.build_model([Body("arm", 1.0, inertia=np.eye(3), joints=[Joint(name="elbow", **joint)])])


def fixed():
    joints = [[Joint("hinge", name="elbow")], [Joint("fixed", name="weld")]]
    return pbad.build_model([Body(str(i), 1.0, inertia=np.eye(3), joints=j) for i, j in enumerate(joints)])


def nowhere():
    return forces.ContactPoints((), np.zeros((0, 3)), np.zeros(0), np.zeros(0))


def on_link(link: int):
    return forces.ContactPoints((link,), np.zeros((1, 3)), np.zeros(1), np.ones(1))


REFUSED = [
    (on("contact", stiffness=-5), ["stiffness of contact", "-5", "> 0"]),
    (on("contact", stiffness=NAN), ["stiffness of contact", "nan"]),
    (on("contact", time_constant=0), ["time_constant of contact", "0"]),
    (on("contact", smoothing=0), ["smoothing", "0"]),
    (on("contact", damping=-1.5), ["damping of contact", "-1.5"]),
    (on("contact", friction=-0.25), ["friction of contact", "-0.25"]),
    (on("contact", friction=NAN), ["friction of contact", "nan"]),
    (on("contact", friction="rough"), ["friction of contact", "rough"]),
    (on("contact", stick_speed=0), ["stick_speed of contact", "0"]),
    (on("contact", at="sometimes"), ["at of contact", "'sometimes'", "'step'", "'stages'"]),
    (on("contact", points=nowhere()), ["contact", "no points", "geoms"]),
    (on("contact", points=on_link(99)), ["contact", "link 99", "0 to 7"]),
    (on("contact", points=on_link(-1)), ["contact", "link -1"]),
    (lambda: forces.contact(one_body(type="hinge")), ["contact", "no points", "geoms"]),
    (on("contact", 3), ["surface of contact", "3", "distance", "half_space"]),
    (on("contact", "ground"), ["surface of contact", "'ground'", "distance"]),
    (on("contact", points=[(0, 0, 0)]), ["points of contact", "[(0, 0, 0)]", "points_on"]),
    (on("contact_points", geoms=[99]), ["geoms of contact_points", "99", "0 to 4"]),
    (on("contact_points", geoms=[0, -1]), ["geoms of contact_points", "-1", "0 to 4"]),
    (on("contact_points", geoms=[1.5]), ["geoms of contact_points", "1.5"]),
    (on("contact_points", geoms=7), ["geoms of contact_points", "7", "list"]),
    (lambda: forces.contact_points(one_body(type="hinge"), geoms=[0]), ["geoms of contact_points", "0", "none"]),
    (lambda: forces.joined(), ["joined", "nothing", "ContactPoints"]),
    (lambda: forces.joined(touching(), "shin"), ["argument 1 of joined", "'shin'", "points_on"]),
    (on("points_on", "tail", (0, 0, 0)), ["contact point", "'tail'", "trunk"]),
    (on("points_on", "shin", (0, 0)), ["'shin'", "(1, 2)"]),
    (on("points_on", "shin", (0, 0, NAN)), ["'shin'", "finite"]),
    (on("points_on", "shin", (0, 0, 0), radius=-0.5), ["radius", "'shin'", "-0.5"]),
    (on("points_on", "shin", (0, 0, 0), radius=INF), ["radius", "'shin'", "inf"]),
    (on("points_on", "shin", (0, 0, 0), radius=(1, 2)), ["radius", "'shin'", "[1.0, 2.0]"]),
    (on("points_on", "shin", (0, 0, 0), friction=-0.5), ["friction", "'shin'", "-0.5"]),
    (on("contact_points", mesh_points=3), ["mesh_points", "3", "4"]),
    (on("contact_points", mesh_points=8.0), ["mesh_points", "8.0", "integer"]),
    (lambda: forces.contact_points(creature()).only("tail"), ["'tail'", "contact points"]),
    (lambda: forces.half_space((0, 0, 0)), ["normal of the half-space", "zero"]),
    (lambda: forces.half_space((0, NAN, 1)), ["normal of the half-space", "nan"]),
    (lambda: forces.half_space(offset=NAN), ["offset of the half-space", "nan"]),
    (lambda: forces.sphere((0, 0, 0), -2), ["radius of the sphere", "-2"]),
    (lambda: forces.sphere((0, 0), 1), ["center of the sphere", "(2,)"]),
    (lambda: forces.capsule((0, 0, 0), (0, 0, 1), 0), ["radius of the capsule", "0"]),
    (lambda: forces.capsule((0, 0, 0), (0, NAN, 1), 1), ["end of the capsule", "nan"]),
    (lambda: forces.box((0, 0, 0), (1, 0, 1)), ["box", "0.0", "> 0"]),
    (lambda: forces.box((0, 0, 0), (1, 0.5, 1), round=0.75), ["box", "0.5", "round 0.75"]),
    (lambda: forces.box((0, 0, 0), (1, 0.5, 1), round=-0.25), ["box", "round -0.25"]),
    (lambda: forces.box((0, 0, 0), (1, 1, 1), quaternion=(0, 0, 0, 0)), ["quaternion of the box", "zero"]),
    (lambda: forces.height_field(np.zeros((3, 9))), ["height field", "(3, 9)", "4 by 4"]),
    (lambda: forces.height_field(np.full((4, 4), NAN)), ["height field", "finite"]),
    (lambda: forces.height_field(np.zeros((4, 4)), spacing=(1, -2)), ["height field", "-2"]),
    (lambda: forces.drag(-0.5), ["rate of drag", "-0.5"]),
    (lambda: forces.drag(NAN), ["rate of drag", "nan"]),
    (on("fluid", -2.0), ["normal of fluid", "-2"]),
    (on("fluid", 2.0, -1.0), ["tangential of fluid", "-1"]),
    (on("fluid", bodies=["tail"]), ["fluid", "'tail'"]),
    (lambda: forces.fluid(one_body(type="hinge")), ["fluid", "no capsule or cylinder", "arm"]),
    (on("inertia_boxes", -1.0, 0.0), ["density of the fluid", "-1"]),
    (on("inertia_boxes", 1.0, -2.0), ["viscosity of the fluid", "-2"]),
    (on("inertia_boxes", 1.0, 0.0, (0, NAN, 0)), ["wind", "nan"]),
    (lambda: forces.paper_drag(-1), ["D of paper_drag", "-1"]),
    (on("paper_contact", 0.0), ["D1 of paper_contact", "0"]),
    (on("paper_friction", -2.0), ["D2 of paper_friction", "-2"]),
    (on("paper_contact", 1.0, points=nowhere()), ["contact", "no points"]),
    (on("connect", "tail"), ["body of connect", "'tail'", "trunk"]),
    (on("connect", "shin", "tail"), ["body of connect", "'tail'"]),
    (on("connect", None, "shin"), ["body of connect", "None"]),
    (on("connect", "shin", "shin"), ["connect", "'shin'", "itself"]),
    (on("weld", "shin", "shin"), ["weld", "'shin'", "itself"]),
    (on("connect", "shin", stiffness=-3), ["stiffness of connect", "-3"]),
    (on("connect", "shin", damping=-3), ["damping of connect", "-3"]),
    (on("connect", "shin", time_constant=0), ["time_constant of connect", "0"]),
    (on("connect", "shin", at="never"), ["at of connect", "'never'"]),
    (on("connect", "shin", lever=1), ["option of connect", "'lever'"]),
    (on("connect", "shin", point=(0, 0, NAN)), ["point of connect", "nan"]),
    (on("connect", "shin", other_point=(0, 0)), ["other_point of connect", "(2,)"]),
    (on("weld", "shin", lever=0), ["lever of the weld", "0"]),
    (on("weld", "shin", "cart", stiffness=NAN), ["stiffness of weld", "nan"]),
    (on("wrench", "tail"), ["body of the wrench", "'tail'"]),
    (on("wrench", "shin", frame="camera"), ["frame of the wrench", "'camera'", "'body'"]),
    (on("wrench", "shin", (0, NAN, 0)), ["force of the wrench", "nan"]),
    (on("wrench", "shin", torque=(0, 1)), ["torque of the wrench", "(2,)"]),
    (on("wrench", "shin", point="hip"), ["point of the wrench", "hip"]),
    (on("pd_drive", "tail", 1.0, 1.0), ["joint of pd_drive", "'tail'", "hip"]),
    (on("pd_drive", ["knee", "hip", "knee"], 1.0, 1.0), ["joint of pd_drive", "'knee'", "twice"]),
    (on("pd_drive", [], 1.0, 1.0), ["joints of pd_drive", "[]", "name"]),
    (on("pd_drive", 3, 1.0, 1.0), ["joints of pd_drive", "3", "name"]),
    (on("pd_drive", "knee", -2.0, 1.0), ["kp of pd_drive", "-2.0", "≥ 0"]),
    (on("pd_drive", "knee", 2.0, (1.0, 2.0)), ["kd of pd_drive", "(2,)", "(1,)"]),
    (on("pd_drive", ["knee", "hip"], 2.0, (1.0, NAN)), ["kd of pd_drive", "nan", "finite"]),
    (on("pd_drive", ["knee", "hip"], "stiff", 1.0), ["kp of pd_drive", "stiff"]),
    (on("pd_drive", "hip", 2.0, 1.0, force_limit=-3.0), ["force_limit of pd_drive", "-3.0", "≥ 0"]),
    (on("pd_drive", "hip", 2.0, 1.0, target=(0, 0, 0)), ["target of pd_drive", "(3,)", "(4,)"]),
    (on("pd_drive", "hip", 2.0, 1.0, target=(1, 0, 1, 0)), ["target of pd_drive", "'hip'", "norm 1.41421"]),
    (on("pd_drive", "knee", 2.0, 1.0, target=NAN), ["target of pd_drive", "nan"]),
    (lambda: forces.pd_drive(one_body(type="hinge"), "elbow", 1, np.ones((1, 1))), ["kd of pd_drive", "(1, 1)"]),
    (lambda: pbad.motors(fixed(), "weld"), ["joint of motors", "'weld'", "fixed"]),
    (lambda: pbad.with_actuators(fixed(), Actuator("weld")), ["'weld_actuator'", "'weld'", "fixed"]),
    (lambda: pbad.with_actuators(creature(), "knee"), ["'knee'", "Actuator(joint)"]),
    (lambda: pbad.with_actuators(creature(), Actuator("tail")), ["joint of actuator", "'tail'", "hip"]),
    (lambda: pbad.with_actuators(creature(), Actuator("knee")), ["two actuators", "'knee_actuator'"]),
    (lambda: pbad.with_actuators(creature(), Actuator("hip")), ["gear of actuator", "ball 'hip'", "(3,)"]),
    (lambda: pbad.with_actuators(creature(), Actuator("hip", gear=(1, NAN, 0))), ["gear of actuator", "nan"]),
    (lambda: pbad.with_actuators(creature(), Actuator("float", gear=(1, 0, 0))), ["free 'float'", "(3,)", "(6,)"]),
    (lambda: pbad.with_actuators(creature(), Actuator("hub", gear=(1, 0, 0))), ["gear of actuator 'hub_actuator'"]),
    (on("tendon_spring", {"knie": 1.0}), ["tendon_spring", "knie", "knee"]),
    (on("tendon_spring", {"hip": 1.0}), ["tendon_spring", "'hip'", "ball", "hinges and slides"]),
    (on("tendon_spring", {"knee": NAN}), ["coefficient of joint 'knee'", "nan"]),
    (on("tendon_spring", []), ["tendons of tendon_spring", "[]", "{joint: coefficient}"]),
    (on("tendon_spring", [{}]), ["tendon of tendon_spring", "at least one joint"]),
    (on("tendon_spring", PULLS, stiffness=-1.0), ["stiffness of tendon_spring", "-1", "at least zero"]),
    (on("tendon_spring", PULLS, damping=[1.0] * 3), ["damping of tendon_spring", "(3,)", "(2,)"]),
    (on("tendon_spring", PULLS, rest=[[1.0, 0.0], [0, 0]]), ["rest of tendon_spring", "(1, 0)", "Swap"]),
    (on("tendon_friction", PULLS, 1.0, stick_speed=0.0), ["stick_speed of tendon_friction", "above zero"]),
    (on("tendon_limit", PULLS, (0, NAN), stiffness=1.0), ["range of tendon_limit", "nan"]),
    (on("tendon_coupling", PULLS, PULLS[:1], stiffness=1.0), ["2 tendons and 1 others"]),
    (on("tendon_coupling", PULLS, stiffness=1.0, polynomial=(1, 2)), ["polynomial of tendon_coupling", "(2,)", "(5,)"]),
    (lambda: pbad.with_actuators(creature(), Actuator({"knee": 1.0})), ["actuator of the tendon", "knee", "no name"]),
    (lambda: pbad.with_actuators(creature(), Actuator({"hip": 1.0}, "a")), ["actuator 'a'", "'hip'", "ball"]),
    (on("tendon_spring", ("a", "b")), ["site in a tendon of tendon_spring", "'a'", "none"]),
    (on("tendon_spring", (JETS[0],)), ["tendon of tendon_spring", "fewer than two"]),
    (on("tendon_spring", (*JETS, 2.0, JETS[0])), ["a branch", "fewer than two"]),
    (on("tendon_spring", (*JETS, 0.0, *JETS)), ["divisor of a pulley", "0", "> 0"]),
    (on("tendon_spring", (Site("tail"), JETS[0])), ["body of a site", "'tail'", "trunk"]),
    (on("tendon_spring", (JETS[0], None)), ["None", "is no site"]),
    (on("tendon_spring", []), ["tendons of tendon_spring", "[]", "tuple of sites"]),
    (on("tendon_spring", ROPES, stiffness=-1.0), ["stiffness of tendon_spring", "-1", "at least zero"]),
    (on("tendon_spring", ROPES, rest=[1.0] * 3), ["rest of tendon_spring", "(3,)", "(2, 2)"]),
    (on("tendon_limit", ROPES, (1.0, 0.5), stiffness=1.0), ["range of tendon_limit", "Swap"]),
    (on("tendon_limit", ROPES, (0, NAN), stiffness=1.0), ["range of tendon_limit", "nan"]),
    (on("tendon_limit", ROPES, (0, 1), stiffness=1.0, width=0), ["width of tendon_limit", "above"]),
    (lambda: pbad.with_actuators(creature(), Actuator(JETS[0])), ["no name", "tendon or site"]),
    (lambda: pbad.with_actuators(creature(), Actuator(JETS[0], "a")), ["gear of actuator 'a' on a site", "(6,)"]),
    (lambda: pbad.with_actuators(creature(), Actuator(Site(None), "a", **PUSH)), ["actuator 'a'", "in the world"]),
    (lambda: pbad.with_actuators(creature(), Actuator(("x", "y"), "a")), ["site in a tendon of actuator 'a'", "'x'"]),
    (on("gravity_compensation", {"tail": 1.0}), ["body of gravity_compensation", "'tail'", "trunk"]),
    (on("gravity_compensation", {"shin": NAN}), ["gravity_compensation of body 'shin'", "nan"]),
    (on("joint_polynomial", "knee", damping=(-1.0, 0)), ["damping of joint_polynomial", "-1", "≥ 0"]),
    (on("joint_polynomial", "hip", stiffness=(1.0, 0)), ["stiffness of joint_polynomial", "'hip'", "ball"]),
    (on("joint_polynomial", ["knee", "rail"], stiffness=[1.0]), ["stiffness of joint_polynomial", "(2, 2)"]),
    (on("joint_polynomial", "knee", rest=(1.0, 2.0)), ["rest of joint_polynomial", "(2,)", "(1,)"]),
    (on("joint_force", (1.0, 2.0)), ["tau of joint_force", "(2,)", "(12,)"]),
    (on("joint_force", np.full(12, NAN)), ["tau of joint_force", "nan"]),
    (lambda: one_body(type="hinge", range=(1, -2)), ["range", "'elbow'", "(1, -2)"]),
    (lambda: one_body(type="ball", range=(-1, 0)), ["range", "'elbow'", "(-1, 0)", "ball"]),
    (lambda: one_body(type="hinge", limit_time_constant=0), ["limit_time_constant", "'elbow'", "0"]),
    (lambda: one_body(type="hinge", stick_speed=-1), ["stick_speed", "'elbow'", "-1"]),
    (lambda: one_body(type="hinge", friction_loss=-0.5), ["friction_loss", "'elbow'", "-0.5"]),
    (lambda: one_body(type="hinge", stiffness=NAN), ["stiffness", "'elbow'", "nan"]),
    (lambda: pbad.with_forces(creature(), "wind"), ["with_forces", "'wind'", "load"]),
    (lambda: (lambda m: pbad.with_forces(m, m.forces[0]))(creature()), ["with_forces", "already", "twice"]),
    (lambda: pbad.with_forces(creature(), forces.drag(1.0), None), ["with_forces", "None", "load"]),
]  # fmt: skip


@pytest.mark.parametrize("call, words", REFUSED, ids=[" ".join(w) for _, w in REFUSED])
def test_wrong_input_is_refused_by_name_and_value(call, words):
    assert_refused(call, words)


# --- the points of the shapes ----------------------------------------------------------------------------

VERTICES = np.random.default_rng(6).normal(size=(200, 3))
SHAPES = {
    "sphere": Geom("sphere", (0.3,), friction=(0.4, 0, 0)),
    "capsule": Geom("capsule", (0.2, 0.7)),
    "box": Geom("box", (0.1, 0.2, 0.3)),
    "cylinder": Geom("cylinder", (0.2, 0.5)),
    "ellipsoid": Geom("ellipsoid", (0.1, 0.2, 0.4)),
    "mesh": Geom("mesh", mesh=Mesh(VERTICES, np.array([[0, 1, 2]]))),
    "plane": Geom("plane", (1, 1, 0.1)),
    "drawn": Geom("box", (1, 1, 1), touches=False),
}
PLACE, TURN = np.array([0.5, -1.0, 2.0]), np.array([0.5, 0.1, -0.7, 0.5])


@functools.cache
def shapes() -> pbad.Model:
    """One body of each shape, all at the same skew place of their bodies; the bodies turn about a hinge."""

    def body(name, geom):
        geom = dataclasses.replace(geom, position=PLACE, quaternion=TURN)
        return Body(name, 1.0, inertia=np.eye(3), joints=[Joint("hinge")], geoms=[geom])

    return pbad.build_model([body(*item) for item in SHAPES.items()], dtype=DTYPE)


def points_of(body: str, **how) -> tuple[np.ndarray, forces.ContactPoints]:
    """In the shape's own frame, and all there is to say about them."""
    points = forces.contact_points(shapes(), **how).only(body)
    R = np.asarray(rotation_of(TURN / np.linalg.norm(TURN)), float)
    return (points.position - PLACE) @ R, points


def test_points_lie_on_the_shapes():
    """Their number, radius, link and friction, and the equation of the surface."""
    where = {name: points_of(name) for name in ("sphere", "capsule", "box", "cylinder", "ellipsoid")}
    count = {"sphere": 1, "capsule": 2, "box": 8, "cylinder": 16, "ellipsoid": 26}
    small = 1e-6 if FLOAT32 else 1e-14
    for name, (local, points) in where.items():
        link = shapes().topology.body_link[shapes().body_names.index(name)]
        assert points.links == (link,) * count[name] and points.names == (name,) * count[name]
        assert len(np.unique(local.round(5), axis=0)) == count[name]
        np.testing.assert_allclose(points.radius, {"sphere": 0.3, "capsule": 0.2}.get(name, 0.0), rtol=small)
        np.testing.assert_allclose(points.friction, 0.4 if name == "sphere" else 1.0, rtol=small)
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=10 * small)
    close(where["sphere"][0], np.zeros((1, 3)))
    close(where["capsule"][0], [[0, 0, 0.7], [0, 0, -0.7]])
    close(np.abs(where["box"][0]), np.tile([0.1, 0.2, 0.3], (8, 1)))
    rim = where["cylinder"][0]
    close(np.hypot(rim[:, 0], rim[:, 1]), 0.2)
    close(np.abs(rim[:, 2]), 0.5)
    close(np.sum((where["ellipsoid"][0] / [0.1, 0.2, 0.4]) ** 2, axis=1), 1.0)


@pytest.mark.parametrize("most", [4, 32, 300])
def test_meshes_are_thinned_to_vertices_far_apart(most):
    """No vertex is farther from all chosen ones than these are from one another."""
    local, _ = points_of("mesh", mesh_points=most)
    assert len(local) == min(most, len(VERTICES))
    apart = np.linalg.norm(local[:, None] - VERTICES[None], axis=-1)
    assert apart.min(axis=1).max() < (1e-5 if FLOAT32 else 1e-12)
    between = np.linalg.norm(local[:, None] - local[None], axis=-1) + 1e9 * np.eye(len(local))
    assert between.min() >= apart.min(axis=0).max() * (1 - 1e-5)


def test_points_of_some_bodies_or_shapes_only():
    everything = forces.contact_points(shapes())
    assert set(everything.names) == set(SHAPES) - {"plane", "drawn"}
    some = everything.only("box", "sphere")
    assert some.names == ("sphere",) + ("box",) * 8 and len(some.links) == len(some.position) == len(some.radius) == 9
    assert forces.contact_points(shapes(), geoms=[1, 7]).names == ("capsule",) * 2 + ("drawn",) * 8


# --- in the Newton matrix --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["free", "balls"])
def test_tree_residual_and_matrix_equal_the_dense_ones(topology):
    """With contact once a step and at the stages, fluid and drag; each makes a difference."""
    scheme, dt = SCHEMES["radau1"], jnp.asarray(0.1, DTYPE)
    for seed in range(3):
        model, (q, v, q_h, z, control) = draw(Case(topology, seed, "generic", "generic"), scheme, 0.4)
        rng, links = np.random.default_rng(seed), model.topology.n_links
        points = forces.joined(
            forces.points_on(model, "b1", rng.normal(size=(2, 3)), radius=0.2, friction=0.6),
            forces.points_on(model, "b3", rng.normal(size=3)),
        )
        axis = rng.normal(size=(2, 3, 4))
        axis[:, 2] /= np.linalg.norm(axis[:, 2, :3], axis=-1)[:, None, None][:, 0]
        axis[..., 3] = [1, 1, 0]
        more = [
            forces.contact(model, forces.half_space((1, 2, 3), 3.0), points=points, at="step"),
            forces.contact(model, forces.sphere((0, 0, 0), 4.0), points=points, at="stages"),
            forces.Fluid(leaf(axis), leaf([1.0, 0.5]), leaf(20.0), leaf(8.0), (links - 1, links - 2)),
            forces.drag(3.0),
        ]
        args = (scheme, dt, q, v, q_h, z, control)
        r, J, r_tree, J_tree, x = tree_and_dense(pbad.with_forces(model, *more), *args)
        assert_close(r_tree, r, 10 * TOL["twin"])
        assert_close(J_tree, J, 10 * TOL["twin"])
        if not FLOAT32:  # backward: the stop makes J stiff
            assert np.all(np.abs(J @ x - r) < 1e-12 * (np.abs(J) @ np.abs(x) + np.abs(r)))
