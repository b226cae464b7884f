"""`build_model`: layout, references, second moments, and changes of description that change nothing."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, TOL, TOPOLOGIES, assert_close, random_bodies, random_inertia, random_model, random_q
from mechanics import joint_acceleration, mass_com_inertia

import pbad_jax as pbad
from pbad_jax import Body, Joint
from pbad_jax.atom.parallel import mass_matrix
from pbad_jax.kinematics import transforms
from pbad_jax.model import inertia
from pbad_jax.model.keyframes import Keyframe

pytestmark = pytest.mark.float64

I3 = np.eye(3)


@jax.jit
def seen(model, q, v):
    """Mass matrix, acceleration and poses."""
    zero = jnp.zeros((), q.dtype)
    qacc = joint_acceleration(model, q, v, zero, jnp.zeros(model.nu, q.dtype))
    poses = transforms.forward_kinematics(model, q)
    return mass_matrix(model, transforms.frames(model, q)), qacc, poses


def test_second_moment_by_sampling():
    """M = Σ m [p;1][p;1]ᵀ of point masses, against their mass, centre of mass and inertia by the textbook."""
    rng = np.random.default_rng(0)
    p, m = rng.normal(size=(50, 3)), rng.uniform(0.1, 2, 50)
    com = m @ p / m.sum()
    r = p - com
    I = sum(w * (x @ x * I3 - np.outer(x, x)) for w, x in zip(m, r))
    homogeneous = np.c_[p, np.ones(50)]
    M = homogeneous.T @ (m[:, None] * homogeneous)
    assert_close(inertia.second_moment(m.sum(), com, I), M, 1e-14)
    mass, back_com, back_I = mass_com_inertia(M)
    assert_close([mass, *back_com, *np.ravel(back_I)], [m.sum(), *com, *np.ravel(I)], 1e-13)
    assert_close(inertia.inertia_from_central_moment(inertia.central_moment(I)), I, 1e-14)


def monte_carlo(inside, half, n=400_000):
    """Inertia of a unit-mass solid by sampling its bounding box."""
    p = np.random.default_rng(1).uniform(-1, 1, (n, 3)) * half
    p = p[inside(p)]
    return np.mean(np.sum(p**2, 1)) * I3 - p.T @ p / len(p)


@pytest.mark.parametrize(
    "I, inside, half",
    [
        (inertia.solid_sphere(1.0, 0.7), lambda p: np.sum(p**2, 1) < 0.49, (0.7, 0.7, 0.7)),
        (inertia.solid_box(1.0, (0.3, 0.5, 1.0)), lambda p: p[:, 0] < 9, (0.3, 0.5, 1.0)),
        (
            inertia.solid_ellipsoid(1.0, (0.3, 0.5, 1.0)),
            lambda p: np.sum((p / [0.3, 0.5, 1.0]) ** 2, 1) < 1,
            (0.3, 0.5, 1.0),
        ),
        (inertia.solid_cylinder(1.0, 0.5, 2.0), lambda p: np.sum(p[:, :2] ** 2, 1) < 0.25, (0.5, 0.5, 1.0)),
        (
            inertia.solid_capsule(1.0, 0.5, 2.0),
            lambda p: np.sum(p[:, :2] ** 2, 1) + np.maximum(np.abs(p[:, 2]) - 1, 0) ** 2 < 0.25,
            (0.5, 0.5, 1.5),
        ),
    ],
)
def test_solids(I, inside, half):
    assert_close(I, monte_carlo(inside, np.array(half)), 0.01)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_layout(topology):
    model = random_model(topology, 0)
    sizes = {"fixed": (0, 0), "hinge": (1, 1), "slide": (1, 1), "universal": (2, 2), "planar": (3, 3), "ball": (4, 3)}
    sizes["free"] = (7, 6)
    kinds = [k for _, joints, *_ in TOPOLOGIES[topology] for k in joints]
    assert (model.nq, model.nv) == tuple(np.sum([sizes[k] for k in kinds], axis=0))
    assert model.body_names == tuple(f"b{i}" for i in range(len(TOPOLOGIES[topology])))
    assert [j.type for j in model.topology.joints] == kinds
    assert all(x.dtype == DTYPE for x in jax.tree.leaves(model))
    assert all(p < i for i, p in enumerate(model.topology.link_parent))
    hash(model.topology)


def test_at_its_reference_a_body_sits_where_it_was_put():
    """Positions and quaternions compose by the textbook at q = q0, with references, anchors and several joints."""
    bodies = random_bodies("many joints", np.random.default_rng(3))
    model = pbad.build_model(bodies)
    poses = transforms.forward_kinematics(model, model.q0)
    world = []
    for b, R, p in zip(bodies, poses.rotation, poses.position):
        w, *u = np.asarray(b.quaternion) / np.linalg.norm(b.quaternion)
        U = np.cross(I3, u)
        own = np.eye(4)
        own[:3, :3], own[:3, 3] = I3 + 2 * w * U + 2 * U @ U, b.position
        world.append(own if b.parent is None else world[int(b.parent)] @ own)
        assert_close(R, world[-1][:3, :3], TOL["twin"] * 10)
        assert_close(p, world[-1][:3, 3], TOL["twin"] * 10)


def test_springs_rest_at_q0_by_default():
    joints = [Joint("hinge", name="h", stiffness=2.0, reference=0.4)]
    model = pbad.build_model([Body("b", 1, inertia=I3, joints=joints)], gravity=(0, 0, 0))
    at_rest = seen(model, jnp.asarray([0.4], DTYPE), jnp.zeros(1, DTYPE))[1]
    pulled = seen(model, jnp.asarray([0.9], DTYPE), jnp.zeros(1, DTYPE))[1]
    assert_close(at_rest, [0.0], 1e-6)
    assert_close(pulled, [-2.0 * 0.5], 1e-6)


def test_free_joint_starts_at_the_pose_of_its_body():
    body = Body("b", 1, inertia=I3, position=(1, 2, 3), quaternion=(0, 0, 2, 0), joints=[Joint("free")])
    model = pbad.build_model([body])
    assert_close(model.q0, [1, 2, 3, 0, 0, 1, 0], 1e-6)
    poses = transforms.forward_kinematics(model, jnp.asarray([4, 5, 6, 1, 0, 0, 0], DTYPE))
    assert_close(poses.position[0], [4, 5, 6], 1e-6)  # q is the world pose itself
    assert_close(poses.rotation[0], I3, 1e-6)


def test_parent_by_name_or_index():
    bodies = random_bodies("free", np.random.default_rng(5))
    named = [dataclasses.replace(b, parent=None if b.parent is None else f"b{b.parent}") for b in bodies]
    one, two = pbad.build_model(bodies), pbad.build_model(named)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two)):
        np.testing.assert_array_equal(a, b)


# --- reliability.md C11: the same mechanism said in another way -------------------------------------------


def test_a_body_split_into_two_welded_halves():
    rng = np.random.default_rng(7)
    m1, m2, c1, c2 = 1.3, 0.4, rng.normal(size=3), rng.normal(size=3)
    I1, I2 = random_inertia(rng, m1), random_inertia(rng, m2)
    M = inertia.second_moment(m1, c1, I1) + inertia.second_moment(m2, c2, I2)
    mass, com, I = mass_com_inertia(M)
    joints = [Joint("universal", name="u", anchor=(0.1, 0.2, 0.3))]
    whole = pbad.build_model([Body("a", mass, com, I, joints=joints), Body("tip", 1, inertia=I3, parent=0,
                              joints=[Joint("ball", name="b")], position=(0, 0, 1))])  # fmt: skip
    shift = np.array([0.3, -0.2, 0.5])
    halves = pbad.build_model([
        Body("a", m1, c1, I1, joints=joints), Body("a2", m2, c2 - shift, I2, parent=0, position=shift),
        Body("tip", 1, inertia=I3, parent="a", joints=[Joint("ball", name="b")], position=(0, 0, 1)),
    ])  # fmt: skip
    q, v = jnp.asarray(random_q(whole, rng, "generic") * 0.1, DTYPE), jnp.asarray(rng.normal(size=5), DTYPE)
    q = q.at[2:].set(q[2:] / jnp.linalg.norm(q[2:]))
    for a, b in zip(seen(whole, q, v)[:2], seen(halves, q, v)[:2]):
        assert_close(a, b, 100 * TOL["autodiff"])


@pytest.mark.parametrize(
    "compound, primitives", [("universal", ["hinge"] * 2), ("planar", ["slide", "slide", "hinge"])]
)
def test_compound_joints_are_their_primitives(compound, primitives):
    rng = np.random.default_rng(8)
    axes = ((1, 0, 0), (0, 1, 0))
    each = [*axes, (0, 0, 1)][: len(primitives)]
    shared: dict[str, Any] = dict(mass=1.0, com=(0.1, 0.2, 0.3), inertia=random_inertia(rng, 1.0), position=(1, 2, 3))
    parts = [Joint(k, a, name=f"p{i}", anchor=(0.1, 0, 0) if k == "hinge" else (0, 0, 0))
             for i, (k, a) in enumerate(zip(primitives, each))]  # fmt: skip
    one = pbad.build_model([Body("b", joints=[Joint(compound, axes, name="j", anchor=(0.1, 0, 0))], **shared)])
    two = pbad.build_model([Body("b", joints=parts, **shared)])
    q, v = (jnp.asarray(x, DTYPE) for x in rng.normal(size=(2, len(primitives))))
    for a, b in zip(jax.tree.leaves(seen(one, q, v)), jax.tree.leaves(seen(two, q, v))):
        assert_close(a, b, TOL["twin"] * 10)


def test_a_locked_axis_makes_a_universal_a_hinge():
    """The locked axis carries a huge armature: the other moves as a hinge would."""
    shared: dict[str, Any] = dict(mass=1.0, com=(0.1, 0.2, -0.5), inertia=np.diag([1.0, 2.0, 2.5]))
    model = pbad.build_model([Body("b", joints=[Joint("universal", name="u")], **shared)])
    model = dataclasses.replace(model, armature=jnp.asarray([0.0, 1e12], DTYPE))
    single = pbad.build_model([Body("b", joints=[Joint("hinge", (1, 0, 0), name="h")], **shared)])
    one = seen(model, jnp.asarray([0.7, 0.0], DTYPE), jnp.asarray([1.1, 0.0], DTYPE))[1]
    two = seen(single, jnp.asarray([0.7], DTYPE), jnp.asarray([1.1], DTYPE))[1]
    assert_close(one[:1], two, 1e-5 if DTYPE == np.float32 else 1e-10)


def test_order_of_the_bodies_does_not_matter():
    bodies = random_bodies("free", np.random.default_rng(9), spread=1)
    # 3 and 4 (a ball and its slide) go before 1 and 2
    order = [0, 3, 4, 1, 2]
    again = [dataclasses.replace(bodies[i], parent=None if bodies[i].parent is None else f"b{bodies[i].parent}")
             for i in order]  # fmt: skip
    one, two = pbad.build_model(bodies), pbad.build_model(again)
    rng = np.random.default_rng(10)
    q = random_q(one, rng, "generic")
    v = rng.normal(size=one.nv)
    places = {j.name: j for j in two.topology.joints}
    q2, v2, move = np.zeros_like(q), np.zeros_like(v), np.zeros(one.nv, int)
    for j in one.topology.joints:
        k = places[j.name]
        q2[k.q : k.q + k.nq], v2[k.v : k.v + k.nv] = q[j.q : j.q + j.nq], v[j.v : j.v + j.nv]
        move[j.v : j.v + j.nv] = np.arange(k.v, k.v + k.nv)
    mass, qacc, _ = seen(one, jnp.asarray(q, DTYPE), jnp.asarray(v, DTYPE))
    mass2, qacc2, _ = seen(two, jnp.asarray(q2, DTYPE), jnp.asarray(v2, DTYPE))
    assert_close(np.asarray(mass2)[np.ix_(move, move)], mass, TOL["twin"] * 10)
    assert_close(np.asarray(qacc2)[move], qacc, TOL["aba"])


def test_chain_hangs_and_weighs():
    model = pbad.chain(3)
    poses = transforms.forward_kinematics(model, jnp.zeros(model.nq, DTYPE))
    assert_close(poses.position, [[0, 0, 0], [0, 0, -1], [0, 0, -2]], 1e-6)
    assert float(transforms.total_mass(model)) == pytest.approx(3)
    state = pbad.make_state(model)
    assert float(pbad.potential_energy(model, state)) == pytest.approx(-9.81 * 4.5, rel=1e-5)
    # a half-turned first hinge stands it up
    up = pbad.make_state(model, jnp.zeros(model.nq, DTYPE).at[0].set(np.pi))
    assert float(pbad.potential_energy(model, up)) == pytest.approx(9.81 * 4.5, rel=1e-5)


def test_geometry_is_no_array_but_compared_by_content():
    """Models of equal shapes stack; a step is compiled anew for others."""
    one, two, other = (pbad.build_model([Body("b", 1, inertia=I3, joints=[Joint("hinge")],
                       geoms=[pbad.Geom("sphere", r)])]) for r in (0.1, 0.1, 0.2))  # fmt: skip
    assert one.geometry == two.geometry != other.geometry and hash(one.geometry) == hash(two.geometry)
    assert not any("geometry" in jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(one))
    other = dataclasses.replace(other, geometry=one.geometry)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), one, two, other)
    assert stacked.gravity.shape == (3, 3) and stacked.geometry is one.geometry
    with pytest.raises(ValueError, match="read-only"):
        one.geometry.size[0, 0] = 0.3


def test_keyframes_are_no_arrays_but_compared_by_content():
    """Equal ones share programs; what they hold cannot be changed, and further actuators get zero controls."""
    body = Body("b", 1, inertia=I3, joints=[Joint("hinge", name="pin")])

    def made(q):
        key = Keyframe(np.array([q]), np.zeros(1), np.array([0.25]), 2.0)
        drive = pbad.Actuator("pin")
        return pbad.build_model([body], actuators=[drive], keyframes={"up": key, "bare": Keyframe(key.q, key.v)})

    one, two, other = made(0.5), made(0.5), made(0.6)
    assert one.keyframes == two.keyframes != other.keyframes and hash(one.keyframes) == hash(two.keyframes)
    structure = [jax.tree.structure(m) for m in (one, two, other)]
    assert structure[0] == structure[1] != structure[2] and jax.tree.leaves(one.keyframes) == [one.keyframes]
    assert list(one.keyframes) == ["up", "bare"] and "down" not in one.keyframes and not pbad.chain(1).keyframes
    with pytest.raises(ValueError, match="read-only"):
        one.keyframes["up"].q[0] = 0.3
    state = pbad.make_state(one, key="up")
    assert (float(state.q[0]), float(state.time)) == (0.5, 2.0)
    assert float(jax.jit(lambda m: pbad.make_state(m, v=[3.0], key="up", time=1.0))(one).time) == 1.0
    more = pbad.with_actuators(one, pbad.Actuator("pin", "again")).keyframes
    np.testing.assert_array_equal(more["up"].control, [0.25, 0.0])
    assert more["bare"].control is None
    with pytest.raises(pbad.ModelError, match=r"v of keyframe 'k' has shape \(2,\); wanted \(1,\)"):
        pbad.build_model([body], keyframes={"k": Keyframe(np.zeros(1), np.zeros(2))})


def test_fingerprint_names_the_tree_and_only_the_tree():
    a, b = random_model("free", 1), random_model("free", 2)
    assert a.fingerprint == b.fingerprint != random_model("balls", 1).fingerprint
    assert a.topology == b.topology and hash(a.topology) == hash(b.topology)
