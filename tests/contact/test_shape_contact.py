"""Contact of convex shapes of bodies: distances, slopes, momenta, gradients, stacks, crowds, wrong input."""

import dataclasses
import functools
import importlib
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from force_cases import acts, assert_finite, blocks, creature, expected, instant, judged, leaf, random_point
from helpers import DTYPE, TOL, assert_close, assert_refused

import pbad_jax as pbad
from pbad_jax import Body, Geom, Joint, forces
from pbad_jax.contact.places import touching
from pbad_jax.contact.shapes import CORNERS
from pbad_jax.geometry import convex
from pbad_jax.geometry import convex_shapes as convex_shapes_module
from pbad_jax.geometry.convex_shapes import KINDS, convex_shapes, hull_points
from pbad_jax.kinematics import manifold
from pbad_jax.laws.load import place
from pbad_jax.math import rotations
from pbad_jax.model.model import Mesh

NAN = float("nan")
STONE = np.array(
    [[10, 0, -5], [-10, 2, -5], [0, 10, -5], [0, -9, -4], [1, 0, 12], [5, 5, 5], [-6, 4, 6]], float
) / 100  # fmt: skip
SIZES = {
    "sphere": (0.08,), "capsule": (0.05, 0.1), "box": (0.05, 0.08, 0.11), "cylinder": (0.07, 0.09),
    "ellipsoid": (0.05, 0.08, 0.12), "mesh": (0, 0, 0),
}  # fmt: skip
BOTH = list(itertools.combinations_with_replacement(KINDS, 2))
FLAT = [pair for pair in BOTH if not {*pair} & {"cylinder", "ellipsoid", "mesh"}]  # MuJoCo keeps meshes in float32


def geom(kind: str) -> Geom:
    return Geom(kind, SIZES[kind], mesh=Mesh(STONE, np.zeros((0, 3), int)) if kind == "mesh" else None)


# --- distances -------------------------------------------------------------------------------------------


@functools.cache
def zoo() -> pbad.Model:
    """One body of every kind."""
    return pbad.build_model(
        [Body(k, 1.0, inertia=np.eye(3), joints=[Joint("free")], geoms=[geom(k)]) for k in KINDS], dtype=DTYPE
    )


def shapes() -> dict[str, convex.Convex]:
    s = convex_shapes(zoo(), list(range(len(KINDS))))
    size = np.linalg.norm(s.points, axis=2).max(axis=1) + s.axes.max(axis=1) + s.radius
    return {k: convex.Convex(*(leaf(x[i]) for x in (s.points, s.axes, s.radius, size))) for i, k in enumerate(KINDS)}


def poses(rng, n: int, near: float, far: float):
    """Quaternions (n,4) and positions (n,3) m."""
    q, t = rng.normal(size=(n, 4)), rng.normal(size=(n, 3))
    t *= (rng.uniform(near, far, n) / np.linalg.norm(t, axis=1))[:, None]
    return q / np.linalg.norm(q, axis=1, keepdims=True), t


def all_pairs(rng, n: int, near: float, far: float, pairs=None):
    """A, B, their rotations and positions, of n poses of every pair; leading axis pairs × n."""
    own, pairs = shapes(), BOTH if pairs is None else pairs
    A, B = (jax.tree.map(lambda *x: jnp.repeat(jnp.stack(x), n, axis=0), *(own[p[k]] for p in pairs)) for k in range(2))
    q, t = poses(rng, n * len(pairs), near, far)
    return A, B, leaf(q), leaf(t)


@jax.jit
def found(A, B, q, t):
    """Normals and distances."""

    def one(A, B, q, t):
        R = rotations.rotation(q)
        n, _, _ = convex.search(A, B, R, t)
        return n, convex.separation(A, B, R, t, n)

    return jax.vmap(one)(A, B, q, t)


@pytest.mark.float64
@pytest.mark.parametrize("n", [60, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.thorough])])
def test_distances_and_normals_are_mujocos(n):
    """Of all pairs of kinds: apart to 1e-5 m and 1e-3 rad (1e-12 m those whose distance is exact in MuJoCo);
    where they overlap by up to 5 mm to 2e-6 m, which is MuJoCo's own tolerance. Of those that overlap by more than 1 mm
    one in a hundred may be held by a plane along which they overlap more than they must (convex.py).
    """
    mujoco: Any = importlib.import_module("mujoco")
    bodies = "".join(
        f'<body><freejoint/><geom name="{side}{k}" type="{k}" '
        + ('mesh="stone"/></body>' if k == "mesh" else f'size="{" ".join(map(str, SIZES[k]))}"/></body>')
        for side in "ab"
        for k in KINDS
    )
    stone = f'<asset><mesh name="stone" vertex="{" ".join(map(str, STONE.ravel()))}"/></asset>'
    m = mujoco.MjModel.from_xml_string(f"<mujoco>{stone}<worldbody>{bodies}</worldbody></mujoco>")
    d = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    A, B, q, t = all_pairs(rng, n, 0.1, 0.25)
    normals, distances = map(np.asarray, found(A, B, q, t))
    seen, deeper = np.zeros(2, int), 0
    for i, (p, r) in enumerate(zip(np.asarray(q), np.asarray(t))):
        kinds = BOTH[i // n]
        ends = [m.geom(side + k).id for side, k in zip("ab", kinds)]
        for g, pose in zip(ends, ([*r, *p], [0, 0, 0, 1, 0, 0, 0])):
            d.qpos[7 * (m.geom_bodyid[g] - 1) :][:7] = pose
        mujoco.mj_kinematics(m, d)
        line = np.zeros(6)
        wanted = mujoco.mj_geomDistance(m, d, ends[1], ends[0], 1.0, line)
        exact = kinds in FLAT
        if wanted > 1e-3:
            seen[0] += 1
            assert abs(distances[i] - wanted) < (1e-12 if exact else 1e-5), (kinds, wanted, distances[i])
            along = (line[3:] - line[:3]) / wanted
            assert np.linalg.norm(np.cross(along, normals[i])) < (1e-6 if exact else 1e-3), kinds
            assert along @ normals[i] > 0
        elif wanted > -5e-3:
            seen[1] += 1
            missed = distances[i] - wanted < -2e-6 and wanted < -1e-3
            deeper += missed
            assert missed or -2e-6 < distances[i] - wanted < 1e-5, (
                kinds,
                wanted,
                distances[i],
            )  # MuJoCo's may be deeper
    print("apart, overlapping", seen, "of these deeper than they must", deeper)
    assert deeper <= seen[1] // 100
    assert seen[0] > 5 * n and seen[1] > 0.8 * n


# --- slopes ----------------------------------------------------------------------------------------------


@jax.jit
def places_of(x, A, B, q):
    """What a force takes of a pair: the normal, the places across it, how far they are apart; by a turn and t (6,)."""

    def one(x, A, B, q):
        R = rotations.rotation(rotations.quaternion_product(q, rotations.quaternion_exp(x[:3])))
        o = touching(A, B, R, x[3:], places=CORNERS)
        m = R.T @ o.n[0]
        apart = jnp.sum(o.n * (o.on_a @ R.T + x[None, 3:] - o.on_b), axis=1) - o.reach
        return jnp.concatenate([o.n[0], (o.on_a - (o.on_a @ m)[:, None] * m[None]).ravel(), apart])

    return jax.vmap(one)(x, A, B, q)


@jax.jit
def along(x, dx, A, B, q):
    return jax.jvp(lambda x: places_of(x, A, B, q), (x,), (dx,))[1]


@pytest.mark.slow
@pytest.mark.float64
def test_places_have_derivatives():
    """Against differences to 1e-6, where these agree with smaller ones: nearly everywhere."""
    rng, h = np.random.default_rng(1), 1e-5
    A, B, q, t = all_pairs(rng, 12, 0.1, 0.18)
    x, dx = np.concatenate([np.zeros((len(t), 3)), t], axis=1), rng.normal(size=(len(t), 6))
    slope = np.asarray(along(leaf(x), leaf(dx), A, B, q))

    def difference(h):
        a, b, c, d = (np.asarray(places_of(leaf(x + k * h * dx), A, B, q)) for k in (-2, -1, 1, 2))
        return (a - 8 * b + 8 * c - d) / (12 * h)

    wanted, nearer = difference(h), difference(h / 4)
    size = 1e-3 + np.abs(wanted).max(axis=1)
    smooth = np.abs(wanted - nearer).max(axis=1) < 1e-6 * size
    error = np.abs(slope - wanted).max(axis=1) / size
    assert smooth.mean() > 0.9
    assert error[smooth].max() < 1e-6, [(BOTH[i // 12], error[i]) for i in np.flatnonzero(smooth & (error > 1e-6))]


PAIRS = [("trunk", "shin"), ("cart", "thigh"), ("wheel", "trunk"), ("shin", "wheel")]


@functools.cache
def on_creature() -> forces.ShapeContact:
    """Bricks and pills about the links of the creature, large enough to touch."""
    model = creature()
    bricks = [Geom("box", (0.5, 0.7, 0.4)), Geom("ellipsoid", (0.6, 0.9, 0.7))]
    bodies = [
        Body(name, 1.0, inertia=np.eye(3), joints=[Joint("free")], geoms=[bricks[k % 2]])
        for k, name in enumerate(model.body_names)
    ]
    other = pbad.build_model(bodies, dtype=DTYPE)
    how = {"stiffness": 20.0, "smoothing": 0.4, "damping": 0.6, "stick_speed": 0.3, "turning": (0.7, 0.4)}
    (force,) = forces.contact_between(other, PAIRS, **how)
    assert isinstance(force, forces.ShapeContact)
    by_name = [other.body_names[other.topology.body_link.index(l)] for l in force.links]
    links = tuple(model.topology.body_link[model.body_names.index(n)] for n in by_name)
    return dataclasses.replace(force, links=links)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_slopes(seed):
    """All entries, by autodiff and differences; the planes are those at the start of the step."""
    links = creature().topology.n_links
    out = judged(creature(), on_creature(), random_point(seed))
    promised = expected(out["load"], links)
    for judge, tolerance in (("autodiff", TOL["autodiff"]), ("differences", TOL["difference"])):
        for part, J in out.get(judge, {}).items():
            for by, want in blocks(promised[part], links).items():
                if "u" not in part:
                    assert_close(blocks(J, links)[by], want, tolerance, f"{judge}: ∂{part}/∂{by}")
    assert_finite(out, "")
    assert sum(float(jnp.abs(y).sum()) for k, y in acts(out["load"]).items() if k[0] != "u") > 0.1


@pytest.mark.slow
def test_forces_have_no_sum_and_no_moment():
    for seed in range(2):
        at = random_point(seed)
        here = instant(creature(), at.q, at.v, at.control, at.q, at.v)  # friction acts where they touch at the start
        for p in judged(creature(), on_creature(), here)["load"].point_forces:
            P = place(here.T, p.point_links, p.u)
            scale = float(jnp.abs(p.force).max()) * (1 + float(jnp.abs(P).max()))
            point = p.u[..., 3:]
            assert np.abs(jnp.sum(point * p.force, axis=1)).max() < 100 * np.finfo(DTYPE).eps * scale
            assert np.abs(jnp.sum(jnp.cross(P, p.force), axis=1)).max() < 100 * np.finfo(DTYPE).eps * scale


# --- motions: one compilation ----------------------------------------------------------------------------

STACK = """<mujoco><worldbody><geom type="box" size="1 1 0.1" pos="0 0 -0.1" contype="0" conaffinity="0"/>
  <body name="table" pos="0 0 -0.1"><joint type="slide" axis="0 0 1" damping="1e6"/>
    <geom type="box" size="1 1 0.1" mass="1"/></body>
  <body name="low" pos="0 0 0.052"><freejoint/><geom type="box" size="0.1 0.1 0.05" mass="1"/></body>
  <body name="middle" pos="0.03 0 0.155" euler="0 0 20"><freejoint/>
    <geom type="box" size="0.1 0.1 0.05" mass="1"/></body>
  <body name="top" pos="0 0.05 0.26"><freejoint/><geom type="cylinder" size="0.08 0.05" mass="0.8"/></body>
  </worldbody></mujoco>"""


@functools.cache
def stack() -> pbad.Model:
    return pbad.load(STACK)


STEP = pbad.make_step(pbad.Options(dt=0.02))


@functools.partial(jax.jit, static_argnums=2)
def run(model, state, n):
    """States after each of n steps."""

    def body(state, _):
        state, info = STEP(model, state)
        energy = pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)
        rows = {"q": state.q, "v": state.v, "energy": energy, "iterations": info.iterations, "status": state.status}
        return state, rows | {"substeps": info.substeps, "linear": pbad.linear_momentum(model, state)}

    return jax.lax.scan(body, state, None, length=n)


N = 50


def rows(model, state, chunks: int = 1) -> dict[str, np.ndarray]:
    out = []
    for _ in range(chunks):
        state, r = run(model, state, N)
        out.append(jax.tree.map(np.asarray, r))
    return {k: np.concatenate([r[k] for r in out]) for k in out[0]}


@pytest.mark.float64
@pytest.mark.thorough
def test_a_stack_stands_as_in_mujoco():
    """Two boxes and a cylinder on a table at dt 0.02: no step in parts, no energy, at rest, and within 2 mm of MuJoCo's
    poses."""
    model = stack()
    state = pbad.make_state(model)
    start = float(pbad.potential_energy(model, state))
    r = rows(model, state, 3)
    assert not r["status"].any() and r["substeps"].max() == 1
    assert r["energy"].max() <= start + 1e-6
    assert np.abs(r["v"][-1]).max() < 1e-3
    assert np.mean(r["iterations"][50:]) < 15
    mujoco: Any = importlib.import_module("mujoco")
    m = mujoco.MjModel.from_xml_string(STACK)
    d = mujoco.MjData(m)
    for _ in range(round(3 / m.opt.timestep)):
        mujoco.mj_step(m, d)
    places = (q[1:].reshape(3, 7)[:, :3] - [0, 0, q[0]] for q in (r["q"][-1], d.qpos))
    assert np.abs(np.subtract(*places)).max() < 2e-3


@pytest.mark.float64
@pytest.mark.thorough
def test_ten_boxes_on_one_another_stand_as_in_mujoco():
    """For 10 s at dt 0.02: no step in parts, none that gains energy, at rest, within 2 mm of where MuJoCo's rest.

    On ground as soft as a contact of forces.contact() they would bend it until they fall, as any tower on a bog.
    """
    box = '<body pos="0 0 {}"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>'
    tower = "".join(box.format(0.1 + 0.2 * k) for k in range(10))
    text = f'<mujoco><worldbody><geom type="plane" size="5 5 1"/>{tower}</worldbody></mujoco>'
    model = pbad.load(text)
    start = pbad.make_state(model)
    options = pbad.Options(dt=0.02, scheme="radau1", on_failure="freeze")
    states, info = pbad.rollout(model, start, n_steps=500, options=options)
    assert info.ok and np.max(info.iterations) < 20 and np.mean(info.iterations) < 5

    def energy(q, v):
        s = pbad.make_state(model, q, v)
        return pbad.kinetic_energy(model, s) + pbad.potential_energy(model, s)

    energies = jax.vmap(energy)(jnp.r_[start.q[None], states.q], jnp.r_[start.v[None], states.v])
    assert np.diff(energies).max() < 1e-9
    assert np.abs(states.v[-1]).max() < 1e-9
    mujoco: Any = importlib.import_module("mujoco")
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    for _ in range(round(10 / m.opt.timestep)):
        mujoco.mj_step(m, d)
    apart = (np.asarray(states.q[-1]) - d.qpos).reshape(10, 7)[:, :3]
    print("mm from MuJoCo's", 1e3 * np.abs(apart).max(axis=1))
    assert np.abs(apart).max() < 2e-3


@pytest.mark.float64
@pytest.mark.thorough
def test_bricks_that_meet_keep_their_momentum():
    """Without gravity and far from the table, at 3 m/s and with spin: momentum to 1e-11 kg m/s, energy falls."""
    model = dataclasses.replace(stack(), gravity=jnp.zeros(3))
    q = np.array(model.q0)
    q[1:4], q[8:11], q[15:18] = (0, 0, 2), (0.35, 0.05, 2.03), (0.8, 0, 1.97)
    v = np.zeros(model.nv)
    v[1:4], v[7:10], v[13:16] = (3, 0, 0), (0, 0, 0), (-3, 0, 0)
    v[4:7], v[16:19] = (1, 2, 3), (2, -1, 4)
    state = pbad.make_state(model, q=q, v=v)
    before = np.asarray(pbad.linear_momentum(model, state))
    energy = float(pbad.kinetic_energy(model, state))
    r = rows(model, state)
    assert not r["status"].any()
    assert np.abs(r["linear"] - before).max() < 1e-11
    assert r["energy"].max() < energy * (1 + 1e-9) and r["energy"][-1] < 0.9 * energy  # they met


@pytest.mark.float64
@pytest.mark.thorough
def test_a_step_in_contact_has_its_derivative():
    """By q, v and friction against differences, to 1e-6, of the stack leaning and sliding."""
    model = stack()
    rng = np.random.default_rng(0)
    state, _ = run(model, pbad.make_state(model), N)
    q, v = np.array(state.q), rng.normal(size=model.nv) * 0.1
    v[0] = 0
    dq, dv = rng.normal(size=model.nv), rng.normal(size=model.nv)

    def after(model, h):
        q_h = manifold.retract(model, jnp.asarray(q), h * jnp.asarray(dq))
        state = pbad.make_state(model, q=q_h, v=jnp.asarray(v) + h * jnp.asarray(dv))
        new, _ = STEP(model, state)
        return jnp.concatenate([new.q, new.v])

    moved = jax.jit(lambda model, h: jax.jvp(lambda h: after(model, h), (h,), (1.0,)))
    h = 3e-7
    slope = moved(model, 0.0)[1]
    a, b, c, d = (np.asarray(moved(model, k * h)[0]) for k in (-2, -1, 1, 2))
    assert_close(slope, (a - 8 * b + 8 * c - d) / (12 * h), 1e-6)


# --- how many at a time ----------------------------------------------------------------------------------


def row_of_crates(**how):
    """Three crates side by side, each deep in the next."""
    bodies = [
        Body(n, 1.0, inertia=np.eye(3), joints=[Joint("free")], geoms=[Geom("box", (0.1, 0.1, 0.1))]) for n in "abc"
    ]
    model = pbad.build_model(bodies, dtype=DTYPE)
    return model, forces.contact_between(model, [("a", "b"), ("b", "c"), ("a", "c")], **how)[0]


@pytest.mark.thorough
def test_more_pairs_than_may_touch_are_told():
    """The nearest are taken; a step at whose end another overlaps says so."""
    q = np.zeros((3, 7))
    q[:, 3], q[:, 0] = 1, (0, 0.19, 0.5)
    still = jax.jit(lambda force, at: (force.depth(None, at) > 0, force.passed(model, at)))
    model, _ = row_of_crates()
    for most, apart in itertools.product((CORNERS, 32), (True, False)):
        force = row_of_crates(max_contacts=most)[1]
        q[2, 0] = 0.5 if apart else 0.385
        at = instant(
            model, leaf(q.ravel()), jnp.zeros(18, DTYPE), jnp.zeros(0, DTYPE), leaf(q.ravel()), jnp.zeros(18, DTYPE)
        )
        deep, passed = still(force, at)
        assert int(jnp.sum(deep)) == CORNERS * (1 if apart else 2)
        assert bool(passed) == (most == CORNERS and not apart)


# --- files -----------------------------------------------------------------------------------------------


def test_margins_of_files_are_mujocos():
    mujoco: Any = importlib.import_module("mujoco")
    text = """<mujoco><worldbody><body><freejoint/>
      <geom type="box" size="0.1 0.1 0.1" margin="0.03" gap="0.01"/></body>
      <body pos="0 0 0.21"><freejoint/><geom type="box" size="0.1 0.1 0.1" margin="0.02"/></body>
      </worldbody></mujoco>"""
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    (force,) = [f for f in pbad.load(text).forces if isinstance(f, forces.ShapeContact)]
    assert_close(force.margin, [d.contact[0].includemargin], 1e-6)


# --- wrong input -----------------------------------------------------------------------------------------


def on_a_ball(n: int, seed: int = 0) -> np.ndarray:
    """Directions (n,3)."""
    x = np.random.default_rng(seed).normal(size=(n, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def lacking(vertices: np.ndarray, kept: np.ndarray) -> float:
    """By how much (m) the hull of the kept points falls short of that of all, at most."""
    ways = on_a_ball(20000, seed=1).T
    return float(np.max((vertices @ ways).max(axis=0) - (kept @ ways).max(axis=0)))


CUBE = np.array(list(itertools.product((-1, 1), repeat=3)), float)


@pytest.mark.parametrize("size", [(1, 1, 1), (1, 0.3, 1e-3), (1e-6, 1e-6, 1)])
def test_a_hull_of_few_corners_is_exact(size):
    """Of a box with a thousand points inside and on its faces, of a polytope in which every corner is repeated."""
    rng = np.random.default_rng(0)
    inside, faces = rng.uniform(-0.9, 0.9, (1000, 3)), rng.uniform(-0.9, 0.9, (600, 3))
    faces[np.arange(600), np.arange(600) % 3] = np.sign(faces[np.arange(600), np.arange(600) % 3])
    found = hull_points(np.concatenate([inside, CUBE, faces, CUBE]) * size, "b")
    assert {*map(tuple, found)} == {*map(tuple, CUBE * size)}
    stone = on_a_ball(48)
    found = hull_points(np.repeat(stone, 7, axis=0) * size, "b")
    assert {*map(tuple, found)} == {*map(tuple, stone * size)}


@pytest.mark.parametrize(
    "size, most",  # what 48 points of the hull's extremes in 4096 directions, far from one another, lacked
    [
        ((1, 1, 1), 0.092),
        ((1, 0.7, 0.1), 0.051),
        ((1, 0.7, 0.01), 0.0091),
        ((1, 0.7, 1e-4), 0.0071),
        ((1, 0.02, 0.02), 0.006),
    ],
)
def test_a_hull_of_many_corners_is_kept_nearly_whole(size, most):
    """A ball, flat ellipsoids, a needle: no worse than a search in 4096 directions, which misses flat rims."""
    vertices = on_a_ball(2000) * size
    found = hull_points(vertices, "b")
    assert 40 <= len(found) <= 48 and {*map(tuple, found)} <= {*map(tuple, vertices)}
    assert lacking(vertices, found) <= most


def test_a_corner_that_hardly_stands_out_is_kept_where_there_is_room():
    vertices = np.concatenate([CUBE, [[0, 0, 1 + 1e-5]], np.random.default_rng(0).uniform(-0.9, 0.9, (100, 3))])
    assert (0, 0, 1 + 1e-5) in {*map(tuple, hull_points(vertices, "b"))}


@pytest.mark.parametrize(
    "vertices", [CUBE[:3], CUBE * (1, 1, 0), CUBE * (0, 0, 1), np.ones((60, 3)), CUBE * (1, 1, 1e-11)]
)
def test_a_mesh_without_a_volume_has_no_hull(vertices):
    """A triangle, a plate, a needle, one point, a plate of rounding's thickness."""
    with pytest.raises(pbad.ModelError, match="the mesh on body 'b' is flat"):
        hull_points(np.repeat(vertices, 9, axis=0), "b")


def test_a_mesh_of_many_shapes_is_looked_at_once(monkeypatch):
    looked = []
    monkeypatch.setattr(convex_shapes_module, "hull_points", lambda v, body: looked.append(body) or v)
    same = [Body(f"b{k}", 1.0, inertia=np.eye(3), joints=[Joint("free")], geoms=[geom("mesh")]) for k in range(3)]
    assert convex_shapes(pbad.build_model(same), [0, 1, 2]).points.shape == (3, len(STONE), 3)
    assert looked == ["b0"]


@functools.cache
def scene() -> pbad.Model:
    plate = Mesh(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], float), np.zeros((0, 3), int))
    crate = [Geom("box", (0.1, 0.1, 0.1))]
    free = [Joint("free")]
    return pbad.build_model(
        [
            Body("crate", 1.0, inertia=np.eye(3), joints=free, geoms=crate),
            Body("lid", 1.0, inertia=np.eye(3), parent="crate", geoms=crate),
            Body("bare", 1.0, inertia=np.eye(3), joints=free),
            Body("plate", 1.0, inertia=np.eye(3), joints=free, geoms=[Geom("mesh", (0, 0, 0), mesh=plate)]),
            Body("post", geoms=crate),
            Body("pole", geoms=crate),
        ]
    )


def between(*pairs, **how):
    return lambda: forces.contact_between(scene(), list(pairs), **how)


CP: Any = ("crate", "post")
REFUSED = [
    (between(), ["contact_between", "pairs is empty"]),
    (between(("crate", "tail")), ["body of contact_between", "'tail'"]),
    (between(("crate", "crate")), ["contact_between", "'crate'", "itself"]),
    (between(CP, ("post", "crate")), ["contact_between", "'post'", "twice"]),
    (between(("crate", "lid")), ["contact_between", "'crate'", "'lid'", "rigidly"]),
    (between(("post", "pole")), ["contact_between", "'post'", "rigidly"]),
    (between(("crate", "bare")), ["contact_between", "'bare'", "no shape", "box"]),
    (between(("crate", "plate")), ["mesh", "'plate'", "flat"]),
    (between(CP, max_contacts=0), ["max_contacts", "0", "≥ 1"]),
    (between(CP, max_contacts=2.5), ["max_contacts", "2.5"]),
    (between(CP, margin=-0.1), ["margin of contact_between", "-0.1"]),
    (between(CP, stiffness=0), ["stiffness of contact_between", "> 0"]),
    (between(CP, time_constant=-1), ["time_constant of contact_between", "-1"]),
    (between(CP, damping=-1.5), ["damping of contact_between", "-1.5"]),
    (between(CP, friction=-0.25), ["friction of contact_between", "-0.25"]),
    (between(CP, stick_speed=NAN), ["stick_speed of contact_between", "nan"]),
]


@pytest.mark.parametrize("call, words", REFUSED, ids=[" ".join(w) for _, w in REFUSED])
def test_wrong_input_is_refused_by_name_and_value(call, words):
    assert_refused(call, words)
