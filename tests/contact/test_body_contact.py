"""Contact between bodies: slopes, the Newton matrix, momenta, closed forms, energy, distances, files, wrong input."""

import dataclasses
import functools
import importlib
import itertools
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
    expected,
    generalised,
    instant,
    judged,
    leaf,
    random_point,
    still,
)
from helpers import DTYPE, FLOAT32, TOL, Case, assert_close, assert_refused, thorough
from stage_cases import SCHEMES, draw, library

import pbad_jax as pbad
from pbad_jax import Body, Geom, Joint, forces
from pbad_jax.contact.axis_gap import CROWN
from pbad_jax.contact.bodies import BodyContact
from pbad_jax.dynamics.point_forces import total_matrix, weighted
from pbad_jax.geometry import axes
from pbad_jax.kinematics import transforms
from pbad_jax.laws.force import of_force
from pbad_jax.laws.instant import Guide
from pbad_jax.laws.load import field_beyond, field_of, place, scaled
from pbad_jax.stage.sparse_loads import SparseLoads, end_of_step

G = 9.81
NAN = float("nan")

# --- slopes ----------------------------------------------------------------------------------------------

PAIRS = [("trunk", "shin"), ("cart", "thigh"), ("wheel", "trunk"), ("shin", "wheel")]


@functools.cache
def on_creature(**how) -> BodyContact:
    """Fat enough to touch: capsules, capsules, a sphere and a capsule, spheres."""
    how = {"stiffness": 20.0, "smoothing": 0.4, "damping": 0.6, "stick_speed": 0.3} | how
    force = forces.body_contact(creature(), PAIRS, **how)
    thin = jnp.asarray([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 0]], force.u.dtype)
    return fat(dataclasses.replace(force, u=force.u * thin[..., None]), [1.2, 1.5, 1.1, 1.4])


def fat(force: BodyContact, reach) -> BodyContact:
    """With r_a + r_b as given, (c,) m."""
    return dataclasses.replace(force, radius=leaf(reach)[:, None] * leaf([[0.375, 0.625]]))


def check_slopes(force: BodyContact, at, *, differences: bool = True) -> float:
    """All entries; the sum of all forces."""
    links = creature().topology.n_links
    out = judged(creature(), force, at)
    promised = expected(out["load"], links)
    for judge, tolerance in (("autodiff", TOL["autodiff"]), ("differences", TOL["difference"])):
        for part, J in out.get(judge, {}).items() if differences or judge == "autodiff" else ():
            for by, want in blocks(promised[part], links).items():
                if "u" not in part:
                    assert_close(blocks(J, links)[by], want, tolerance, f"{judge}: ∂{part}/∂{by}")
    assert_finite(out, "")
    return sum(float(jnp.abs(y).sum()) for k, y in acts(out["load"]).items() if k[0] != "u")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "turning"), [thorough(0, None), (1, (0.7, 0.4)), thorough(2, None)])
def test_slopes(seed, turning):
    assert check_slopes(on_creature(turning=turning), random_point(seed)) > 0.1


@pytest.mark.slow
def test_slopes_at_special_points():
    """At rest, from rest, apart, exactly touching, as deep as the smooth start ends: by autodiff, most are kinks."""
    at = random_point(5)
    rest = still(at.q)
    assert check_slopes(on_creature(), rest, differences=False) > 0.1
    check_slopes(on_creature(), dataclasses.replace(at, start=rest.start))
    assert check_slopes(fat(on_creature(), [1e-3] * 4), at) == 0.0
    for start, touching in ((at.start, at), (rest.start, rest)):
        here = dataclasses.replace(touching, start=start)
        reach = jnp.sum(on_creature().radius, axis=-1)
        for deep in (0.0, 0.4):
            for _ in range(20):  # the crown depends on the radii: a fixed point
                force = fat(on_creature(), reach)
                reach = jnp.abs(reach - force.depth(creature(), rest)) + deep
            assert np.abs(force.depth(creature(), rest) - deep).max() < 1e-4
            check_slopes(force, here, differences=False)


def test_force_is_minus_the_slope_of_its_potential():
    model, at = creature(), random_point(2)
    force = on_creature(damping=0.0, friction=0.0)
    assert forces.is_conservative(force) and not forces.is_conservative(on_creature())
    out = judged(model, force, at)
    assert out["potential"] > 0.1
    got, want = generalised(model, at.q, out["field"], jnp.zeros_like(at.v), out["slopes"][1])
    assert_close(got, want, 100 * TOL["autodiff"])


@pytest.mark.slow
def test_newton_matrix():
    """Every entry against jacfwd of the residual: once a step and at the stages, with slip, in and out of contact."""
    size, scheme = 0.0, SCHEMES["radau2"]
    for seed in range(3):
        model, args = draw(Case("hinge chain", seed, "generic", "generic"), scheme, 0.4)
        rng = np.random.default_rng(seed)
        u = rng.normal(size=(3, 4, 4)) * 0.3
        u[..., 3] = [1, 0, 1, 0]
        u[2, 1] = 0
        numbers = (leaf(x) for x in ([20.0] * 3, [0.3] * 3, [0.2] * 3, [0.5] * 3, 0.3))
        links = ((0, 0, 3, 3), (2, 2, 0, 0), (1, 1, 3, 3))
        once = BodyContact(leaf(u), leaf([[1.0, 1.5], [2.0, 0.5], [0.1, 0.1]]), *numbers, links=links)
        both = pbad.with_forces(model, once, dataclasses.replace(once, at="stages"))
        r, J, judge = library(both, scheme, jnp.asarray(0.1, DTYPE), *args, "parallel")
        assert_close(J, judge, TOL["matrix"], f"seed {seed}")
        size += float(jnp.abs(r).max())
    assert size > 0


# --- the distance ----------------------------------------------------------------------------------------

AXES = {  # C_a, h_a, C_b, h_b and the distance; c² = CROWN for r_a + r_b = 1
    "spheres": ([[0, 0, 0], [0, 0, 0], [0, 3, 4], [0, 0, 0]], 5.0),
    "coincident spheres": ([[1, 2, 3], [0, 0, 0], [1, 2, 3], [0, 0, 0]], 0.0),
    "crossing": ([[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]], 0.0),
    "crossing apart": ([[0, 0, 0], [1, 0, 0], [0, 0, 2], [0, 1, 0]], 2.0),
    "parallel": ([[0, 0, 0], [1, 0, 0], [0, 0, 2], [1, 0, 0]], 2.0),
    "antiparallel, shifted": ([[0, 0, 0], [1, 0, 0], [1, 0, 2], [-1, 0, 0]], 2.0),
    "parallel, end to end": ([[0, 0, 0], [1, 0, 0], [3, 0, 0], [1, 0, 0]], 1.0),
    "the same": ([[0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]], 0.0),
    "a centre on an axis": ([[0.5, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]], 0.0),
    "a centre off an end": ([[1, 2, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]], 2.0),
    "ends": ([[0, 0, 0], [0, 0, 1], [0, 0, 4], [0, 0, 1]], 2.0),
}


@jax.jit
def with_gradients(P, soft):
    return axes.slopes(P, soft), jax.jacrev(axes.slopes, (0, 1))(P, soft)


@pytest.mark.parametrize("name", AXES)
def test_degenerate_axes(name):
    """Distances by hand, within the crown; forces without sum and moment; all finite, gradients by every number too."""
    points, distance = AXES[name]
    P, soft = leaf(points), leaf(CROWN)
    (d, n, hessian), slope = with_gradients(P, soft)
    assert_finite((d, n, hessian, slope), name)
    assert distance**2 - 1e-6 <= d**2 <= distance**2 + 2 * CROWN + 1e-6
    if "sphere" in name:
        assert_close(d, distance, 1e-6)
    if distance > 0:
        assert_close(np.linalg.norm(n[0]), 1.0, 1e-3)
        assert_close(hessian.reshape(12, 12), hessian.reshape(12, 12).T, TOL["autodiff"])
    assert_close(np.cross(P, n).sum(axis=0), np.zeros(3), 1e-5 if FLOAT32 else 1e-14)
    assert_close(n[0] + n[2], np.zeros(3), 0.0)


def test_parallel_capsules_touch_in_the_middle():
    """Of what they have beside one another."""
    P, soft = leaf(AXES["antiparallel, shifted"][0]), leaf(CROWN)
    np.testing.assert_allclose(axes.gap(P, soft)[2], [0.5, 0.5], atol=1e-3)


SCENE = """<mujoco><worldbody><body name="a"><freejoint/><geom type="{}" size="0.1 0.4" pos="0.1 0 0" euler="20 30 0"/>
  </body><body name="b"><freejoint/><geom type="{}" size="0.2 0.7"/></body></worldbody></mujoco>"""


@jax.jit
def depths(model, force, at):
    return jax.vmap(lambda p: force.depth(model, p)[0])(at)


@jax.jit
def many_at_rest(model, q):
    """As Points, of configurations (n,nq)."""
    zero, none = jnp.zeros((len(q), model.nv)), jnp.zeros((len(q), 0))
    return jax.vmap(instant.__wrapped__, (None, 0, 0, 0, 0, 0))(model, q, zero, none, q, zero)


@pytest.mark.float64
@pytest.mark.parametrize("kinds", [("sphere", "sphere"), ("sphere", "capsule"), ("capsule", "capsule")])
def test_distance_is_mujocos(kinds):
    """Square of the distance of the axes: MuJoCo's, and from 0 to 2 c² of the crown; of spheres the same to 1e-12."""
    mujoco: Any = importlib.import_module("mujoco")
    m = mujoco.MjModel.from_xml_string(SCENE.format(*kinds))
    model, report = pbad.load(SCENE.format(*kinds), unsupported="warn")
    assert report.inactive == ()
    force, d = forces.body_contact(model, [("a", "b")]), mujoco.MjData(m)
    rng, q, wanted = np.random.default_rng(0), [], []
    for i in range(200):
        x = rng.normal(size=14) * 0.7
        if i % 4 == 0:
            x[10:14] = x[3:7] + rng.normal(size=4) * 10 ** rng.uniform(-9, -2)  # almost parallel, but for the euler
        x[3:7], x[10:14] = (x[k : k + 4] / np.linalg.norm(x[k : k + 4]) for k in (3, 10))
        d.qpos[:] = x
        mujoco.mj_kinematics(m, d)
        q.append(x)
        wanted.append(0.3 + mujoco.mj_geomDistance(m, d, 0, 1, 1e3, None))
    at = many_at_rest(model, leaf(q))
    found = 0.3 - np.asarray(depths(model, force, at))
    over = (found**2 - np.array(wanted) ** 2) / (CROWN * 0.3**2)
    slack = 1e-9
    assert over.min() > -slack and over.max() < 2 + slack
    if kinds == ("sphere", "sphere"):
        np.testing.assert_allclose(found, wanted, atol=1e-12)


# --- motions: one compilation for each structure and scheme ------------------------------------------------


def attempt(options):
    """Rows of states after n steps; dt is traced."""
    step = pbad.make_step(options)

    def rollout(model, state, dt, n):
        def body(state, _):
            state = step(model, state, dt=dt)[0]
            energy = pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)
            linear, angular = pbad.linear_momentum(model, state), pbad.angular_momentum(model, state)
            return state, {"q": state.q, "v": state.v, "energy": energy, "status": state.status,
                           "linear": linear, "angular": angular}  # fmt: skip

        return jax.lax.scan(body, state, None, length=n)[1]

    return rollout


def momenta(model, q, v):
    """Linear and angular, (3,) each."""
    state = pbad.make_state(model, q=q, v=v)
    return pbad.linear_momentum(model, state), pbad.angular_momentum(model, state)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _rollout(model, state, dt, n, options):
    return attempt(options)(model, state, dt, n)


CHUNK = 50


def move(model, q, v, dt, seconds, scheme) -> dict[str, np.ndarray]:
    """States after every step, in pieces so that all lengths are one compilation."""
    options, state, rows = pbad.Options(dt=1.0, scheme=scheme), pbad.make_state(model, q, v), []
    n = round(seconds / dt)
    for _ in range(-(-n // CHUNK)):
        row = _rollout(model, state, jnp.asarray(dt), CHUNK, options)
        state = pbad.make_state(model, row["q"][-1], row["v"][-1])
        rows.append(jax.tree.map(np.asarray, row))
    out = {k: np.concatenate([r[k] for r in rows])[:n] for k in rows[0]}
    assert not out["status"].any(), f"{np.count_nonzero(out['status'])} steps failed"
    return out


@functools.cache
def two(kind: str = "planar", mass: float = 1.0) -> pbad.Model:
    """Capsules of 0.1 m along z, free to move in the plane of x and z, or in space; no gravity."""
    axis = [(1, 0, 0), (0, 0, 1)] if kind == "planar" else None
    inertia = np.diag([0.02, 0.02, 0.004])
    bodies = [
        Body(name, mass, inertia=mass * inertia, joints=[Joint(kind, axis)], geoms=[Geom("capsule", (0.1, 0.2))])
        for name in "ab"
    ]
    return pbad.build_model(bodies, gravity=(0, 0, 0))


def meeting(kind="planar", *, spheres=False, friction=0.5, damping=1.0, **how) -> pbad.Model:
    """`two` that touch; all in one structure, whatever the numbers."""
    force = forces.body_contact(two(kind), [("a", "b")], **how)
    one = jnp.ones_like(force.damping)
    ends = jnp.asarray([1.0, 0, 1, 0] if spheres else [1.0] * 4)[None, :, None]
    force = dataclasses.replace(force, friction=friction * one, damping=damping * one, u=force.u * ends)
    return pbad.with_forces(two(kind), force)


@pytest.mark.thorough
@pytest.mark.float64
def test_momenta_are_conserved():
    """Two capsules tumble into one another in space, with damping: linear and angular, to 1e-9.

    By the variational scheme, which keeps both where forces have no sum and no moment. Friction has a moment of what
    its two points move apart along the normal in a step: 2e-4 of the momentum.
    """
    q = [0, 0, 0, 1, 0, 0, 0, 0.35, 0.1, 0.15, 0.8, 0.3, -0.4, 0.33]
    q[10:14] = (np.array(q[10:14]) / np.linalg.norm(q[10:14])).tolist()
    v = [0.5, 0.1, 0, 0.3, -0.5, 0.2, -1.0, 0, 0.2, 0.5, 1.0, -0.4]
    for friction in (0.0, 0.5):
        model = meeting("free", friction=friction, stiffness=1e3, smoothing=1e-2, at="stages")
        r = move(model, q, v, 4e-3, 0.4, "variational")
        assert np.linalg.norm(r["v"][-1, :3] - v[:3]) > 0.3  # they met
        start = momenta(two("free"), q, v)
        linear, angular = (np.abs(r[k] - np.asarray(x)).max() for k, x in zip(("linear", "angular"), start))
        print(f"drift {linear:.1e}, {angular:.1e} of {np.linalg.norm(start[0]):.2g}, {np.linalg.norm(start[1]):.2g}")
        assert linear < 1e-9 and angular < (2e-4 if friction else 1e-9)


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_momenta_of_large_steps(scheme):
    """Once a step: the linear one to 1e-9 in any step; the angular one is the scheme's, its error falls with dt."""
    drift = []
    for dt in (0.02, 0.01, 0.005):
        q, v = [0, 0, 0, 0.5, 0.15, 0.4], [1.0, 0, 0, -1, 0, 1]
        r = move(meeting(), q, v, dt, 0.5, scheme)
        start = momenta(two(), q, v)[1]
        assert r["v"][-1, 0] < 0.5
        assert np.abs(r["linear"] - r["linear"][0]).max() < 1e-9
        drift.append(np.abs(r["angular"] - start).max())
    print(scheme, "angular drift", drift)
    assert drift[-1] < 0.4 * drift[0]


@pytest.mark.float64
@pytest.mark.slow
def test_equal_spheres_exchange_their_velocities():
    """Head on, elastic, resolved: the error falls with dt; the force's kink holds the order down."""
    model = meeting(spheres=True, friction=0.0, damping=0.0, stiffness=1e3, smoothing=1e-9, at="stages")
    errors = []
    for dt in (4e-3, 2e-3, 1e-3, 5e-4):
        r = move(model, [0, 0, 0, 0.2103, 0, 0], [1.0, 0, 0, 0, 0, 0], dt, 0.1, "radau2")
        errors.append(np.abs(r["v"][-1] - [0, 0, 0, 1, 0, 0]).max())
    print("exchange", errors)
    assert errors[-1] < 1e-4 and errors[-1] < 0.1 * errors[0]


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize(
    "dt, scheme",
    [
        *(thorough(dt, "radau1") for dt in (0.005, 0.02, 0.05)),
        thorough(0.005, "radau2"),
        (0.02, "radau2"),
        (0.05, "radau2"),
    ],
)
def test_parallel_capsules_meet(dt, scheme):
    """Flat or almost: every step is solved, no energy is made, and where all is even nothing turns."""
    for angle in (0.0, 1e-9, 1e-3):
        r = move(meeting(), [0, 0, 0, 0.33, 0, angle], [0.5, 0, 0, -0.5, 0, 0], dt, 0.5, scheme)
        assert r["energy"].max() <= 0.25 * (1 + 1e-9)
        assert r["v"][-1, 0] <= 0.01 and r["v"][-1, 3] >= -0.01
        assert angle or np.abs(r["q"][:, [2, 5]]).max() < 1e-9


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_spheres_that_pass_one_another_are_told(scheme):
    """Up to 2.5 times their reach a step: never on the other side, never with more energy, unless the step says so."""
    dt, options, told = 0.05, pbad.Options(dt=1.0, scheme=scheme), []
    for far, offset, friction in itertools.product((0.05, 0.1, 0.22, 0.3, 0.4, 0.5), (0.0, 0.05), (0.0, 0.5)):
        gap = np.sqrt(0.04 - offset**2) + 0.01
        state = pbad.make_state(two(), [0, 0, 0, gap, offset, 0], [far / dt, 0, 0, 0, 0, 0])
        model = meeting(spheres=True, friction=friction)
        r = jax.tree.map(np.asarray, _rollout(model, state, jnp.asarray(dt), CHUNK, options))
        good, start = r["status"] == 0, 0.5 * (far / dt) ** 2
        told.append(pbad.Status.BRANCH in r["status"])
        assert not told[-1] or far > 0.1
        assert np.all(r["energy"][good] <= 1.01 * start), (far, offset, friction, r["energy"][good].max() / start)
        assert np.all((r["q"][:, 3] > r["q"][:, 0])[good]) or offset, (far, offset, friction)
    print(f"{sum(told)} of {len(told)} told")


@pytest.mark.float64
def test_friction_turns_the_other():
    """A spinning sphere against one at rest: the other turns back, as gears do.

    Angular momentum, by the order of the scheme: 1e-3 of it at dt = 1 ms.
    """
    model = meeting(spheres=True)
    r = move(model, [0, 0, 0, 0.21, 0, 0], [0.5, 0, 10.0, -0.5, 0, 0], 1e-3, 0.1, "radau2")
    spin = r["v"][-1, [2, 5]]
    drift = np.abs(r["angular"] - [0, -0.2, 0]).max()  # planar joints turn about x × z
    print("spin", spin, "drift", drift)
    assert 0 < spin[0] < 9.5 and abs(spin[1] - (spin[0] - 10)) < 1e-4  # like gears, but for their turn in a step
    assert drift < 1e-3 * 0.2


def wheels() -> pbad.Model:
    """Two spheres on fixed hinges about y, pressed together by 1 mm; radii 0.1 and 0.2 m."""
    bodies = [
        Body(name, 1.0, inertia=np.eye(3) * I, position=(x, 0, 0), joints=[Joint("hinge", (0, 1, 0))],
             geoms=[Geom("sphere", (r,))])
        for name, x, r, I in (("a", 0.0, 0.1, 0.01), ("b", 0.299, 0.2, 0.03))
    ]  # fmt: skip
    model = pbad.build_model(bodies, gravity=(0, 0, 0))
    return pbad.with_forces(model, forces.body_contact(model, [("a", "b")], stick_speed=1e-5))


@pytest.mark.float64
@pytest.mark.thorough
@pytest.mark.parametrize("dt", [0.002, 0.01])
def test_friction_wheels(dt):
    """They end rolling on one another: ω_a r_a = −ω_b r_b, I_a Δω_a/r_a = I_b Δω_b/r_b about the common point."""
    r = move(wheels(), [0, 0], [2.0, 0], dt, 0.5, "radau2")
    a, b = 0.0995, 0.1995  # they meet in the middle of the overlap
    end = 2 / (1 + 0.03 * a**2 / (0.01 * b**2))
    np.testing.assert_allclose(r["v"][-1], [end, -end * a / b], rtol=1e-4)


@functools.cache
def stack() -> pbad.Model:
    """A ball on a ball on the ground, guided."""
    bodies = [
        Body(name, 1.0, inertia=np.eye(3) * 0.004, position=(0, 0, z), joints=[Joint("slide", (0, 0, 1))],
             geoms=[Geom("sphere", (0.1,))])
        for name, z in (("low", 0.1), ("high", 0.3))
    ]  # fmt: skip
    model = pbad.build_model(bodies)
    low = forces.contact_points(model).only("low")
    ground, between = forces.contact(model, points=low), forces.body_contact(model, [("low", "high")])
    return pbad.with_forces(model, ground, between)


@pytest.mark.float64
@pytest.mark.slow
@pytest.mark.parametrize("dt", [thorough(0.01), 0.05])
def test_a_stack_rests_at_its_depth(dt):
    """k (δ − w/2) bears one weight between the balls and two on the ground: 3/2 w and 5/2 w, w = mg/k."""
    w = G * 0.01**2
    r = move(stack(), [0.0, 0.0], [0.0, 0.0], dt, 5.0, "radau1")
    np.testing.assert_allclose(r["q"][-1], [-2.5 * w, -4 * w], rtol=1e-4)


@functools.cache
def folding() -> pbad.Model:
    """A double pendulum whose tip meets the upper link where it folds."""
    rod = Geom("capsule", (0.05, 0.2), (0, 0, -0.5))
    bodies = [
        Body("upper", 1.0, (0, 0, -0.5), np.eye(3) * 0.08, joints=[Joint("hinge", (0, 1, 0))], geoms=[rod]),
        Body("lower", 0.7, (0, 0, -0.4), np.eye(3) * 0.03, "upper", (0, 0, -1), joints=[Joint("hinge", (0, 1, 0))],
             geoms=[Geom("sphere", (0.1,), (0, 0, -0.6))]),
    ]  # fmt: skip
    model = pbad.build_model(bodies)
    force = forces.body_contact(model, [("upper", "lower")])
    return pbad.with_forces(model, dataclasses.replace(force, damping=0 * force.damping))


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize(
    "dt, scheme",
    [
        *(thorough(1e-3, "radau1"), *(thorough(dt, "radau1") for dt in (0.005, 0.02, 0.05))),
        *(thorough(1e-3, "radau2"), thorough(0.005, "radau2"), thorough(0.02, "radau2"), thorough(0.05, "radau2")),
    ],
)
def test_links_that_collide_make_no_energy(dt, scheme):
    """The tip is thrown on the upper link: never 0.1 % of m g l above the start."""
    model = folding()
    for speed in (2.0, 6.0):
        q, v = [1.5, 2.5], [0.0, speed]
        r = move(model, q, v, dt, 2.0, scheme)
        state = pbad.make_state(model, q, v)
        start = float(pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state))
        bend = np.abs((r["q"][:, 1] + np.pi) % (2 * np.pi) - np.pi).max()
        print(f"fold {scheme} dt={dt}: over {r['energy'].max() - start:.1e} J, bent to {bend:.2f} rad")
        assert r["energy"].max() <= start + 1e-3 * G
        assert 2.5 < bend < 3.1  # it met


# --- the force in a model --------------------------------------------------------------------------------


def test_forces_have_no_sum_and_no_moment():
    model = creature()
    for seed in range(3):
        at = random_point(seed)
        here = instant(model, at.q, at.v, at.control, at.q, at.v)  # friction acts where they touch at the start
        for p in judged(model, on_creature(), here)["load"].point_forces:
            P = place(here.T, p.point_links, p.u)
            scale = float(jnp.abs(p.force).max()) + 1e-9
            point = p.u[..., 3:]
            assert np.abs(jnp.sum(point * p.force, axis=1)).max() < 100 * np.finfo(DTYPE).eps * scale
            assert np.abs(jnp.sum(jnp.cross(P, p.force), axis=1)).max() < 100 * np.finfo(DTYPE).eps * scale


def test_defaults():
    """All pairs of shapes, the lighter side's mass, the larger friction."""
    geoms = [Geom("sphere", (0.1,), friction=(0.3, 0, 0)), Geom("capsule", (0.1, 0.2), friction=(0.8, 0, 0))]
    drawn = Geom("sphere", (0.3,), touches=False)
    bodies = [
        Body("a", 2.0, inertia=np.eye(3), joints=[Joint("free")], geoms=[*geoms, drawn, Geom("box", (1, 1, 1))]),
        Body("hand", 0.5, inertia=np.eye(3), parent="a", joints=[Joint("hinge")], geoms=geoms[:1]),
        Body("b", 3.0, inertia=np.eye(3), joints=[Joint("ball")], geoms=geoms[:1]),
        Body("post", geoms=geoms[:1]),
    ]
    model = pbad.build_model(bodies)
    force = forces.body_contact(model, [("a", "b"), ("hand", "b"), ("post", "b")])
    assert_close(force.stiffness, np.array([2.5, 2.5, 0.5, 3.0]) / 0.01**2, 1e-6)
    assert_close(force.width, [G * 0.01**2] * 4, 1e-6)
    assert_close(force.friction, [0.3, 0.8, 0.3, 0.3], 1e-6)


PAIRED = """<mujoco><default><geom contype="{mask}" conaffinity="{mask}" size="0.1 0.2"/></default><worldbody>
  <geom name="ground" type="plane" size="1 1 1" contype="0" conaffinity="0"/>
  <body><freejoint/><geom name="a" type="capsule"/></body>
  <body pos="0.5 0 0"><freejoint/><geom name="b" pos="0 0 0.1"/><geom name="box" type="box" size="1 1 1"/></body>
  </worldbody><contact><pair geom1="a" geom2="b" friction="0.6 0.6 0 0 0" solref="0.05 1"/>
  <pair geom1="box" geom2="a"/><pair geom1="a" geom2="ground"/><pair geom1="b" geom2="ground"/></contact></mujoco>"""


@pytest.mark.parametrize("mask", [0, 1])
def test_files_bring_their_pairs(mask):
    """Of bodies that move, once, and as stiff as MuJoCo's are at rest; that with the ground is contact with it."""
    model, report = pbad.load(PAIRED.format(mask=mask), unsupported="warn", dtype=DTYPE)
    (force,) = [f for f in model.forces if isinstance(f, BodyContact)]
    mass = np.asarray(model.second_moment[:, 3, 3], float)
    k = max(mass[mass > 0].min(), mass.max() / 20) / (0.05**2 * 0.95**2 * 0.075 / 0.925)
    assert_close(force.stiffness, [k], 1e-5)
    assert_close(force.friction, [0.6], 1e-6)
    assert_close(force.radius, [[0.1, 0.1]], 1e-6)
    (crate,) = [f for f in model.forces if isinstance(f, forces.ShapeContact)]
    assert len(crate.pairs) == 1 and not report.inactive
    *_, ground = [f for f in model.forces if isinstance(f, forces.Contact)]
    assert ground.links[:2] == (3, 3) and set(ground.links[2:]) == {7}, "one force for all that meet a surface"


def test_files_whose_contact_is_switched_off_bring_none():
    text = PAIRED.format(mask=1).replace("<default>", '<option><flag contact="disable"/></option><default>')
    assert not [f for f in pbad.load(text).forces if isinstance(f, BodyContact)]


# --- wrong input -----------------------------------------------------------------------------------------


@functools.cache
def fixed() -> pbad.Model:
    ball = [Geom("sphere", (0.1,))]
    return pbad.build_model(
        [
            Body("arm", 1.0, inertia=np.eye(3), joints=[Joint("hinge")], geoms=ball),
            Body("cap", 1.0, inertia=np.eye(3), parent="arm", position=(0, 0, 1), geoms=ball),
            Body("crate", 1.0, inertia=np.eye(3), joints=[Joint("free")], geoms=[Geom("box", (1, 1, 1))]),
            Body("bare", 1.0, inertia=np.eye(3), joints=[Joint("free")]),
            Body("pole", geoms=ball),
            Body("post", geoms=ball),
        ]
    )


def between(*pairs, **how):
    return lambda: forces.body_contact(fixed(), list(pairs), **how)


AB: Any = ("arm", "pole")
REFUSED = [
    (between(), ["body_contact", "pairs is empty"]),
    (between(("arm", "tail")), ["body of body_contact", "'tail'", "arm"]),
    (between(("arm", None)), ["body of body_contact", "None"]),
    (between("arm"), ["body_contact", "'arm'", "two names"]),
    (between(("arm", "cap", "pole")), ["body_contact", "'cap'", "two names"]),
    (between(("arm", "arm")), ["body_contact", "'arm'", "itself"]),
    (between(AB, ("pole", "arm")), ["body_contact", "'pole'", "'arm'", "twice"]),
    (between(("arm", "cap")), ["body_contact", "'arm'", "'cap'", "rigidly"]),
    (between(("pole", "post")), ["body_contact", "'pole'", "'post'", "rigidly"]),
    (between(("arm", "crate")), ["body_contact", "'crate'", "no sphere or capsule", "box"]),
    (between(("bare", "arm")), ["body_contact", "'bare'", "no shapes", "Geom"]),
    (between(AB, stiffness=0), ["stiffness of body_contact", "0", "> 0"]),
    (between(AB, stiffness=NAN), ["stiffness of body_contact", "nan"]),
    (between(AB, time_constant=-1), ["time_constant of body_contact", "-1"]),
    (between(AB, smoothing=0), ["smoothing of body_contact", "0"]),
    (between(AB, damping=-1.5), ["damping of body_contact", "-1.5"]),
    (between(AB, friction=-0.25), ["friction of body_contact", "-0.25"]),
    (between(AB, friction="rough"), ["friction of body_contact", "rough"]),
    (between(AB, stick_speed=0), ["stick_speed of body_contact", "0"]),
    (between(AB, at="sometimes"), ["at of body_contact", "'sometimes'", "'stages'"]),
]


@pytest.mark.parametrize("call, words", REFUSED, ids=[" ".join(w) for _, w in REFUSED])
def test_wrong_input_is_refused_by_name_and_value(call, words):
    assert_refused(call, words)


# --- pairs that are left out ---------------------------------------------------------------------------------


@pytest.mark.float64
@pytest.mark.parametrize(("shape", "row"), [(("sphere", (0.1,)), 4), thorough(("box", (0.1, 0.09, 0.1)), 3)])
def test_what_does_not_act_is_left_out_and_nothing_else(shape, row):
    """Seven bodies, 21 pairs, 16 at a time, of which those of a row may act: the sums are those of all."""
    geom = [Geom(*shape)]
    names = [f"body{k}" for k in range(7)]
    bodies = [Body(name, 1.0, inertia=0.004 * np.eye(3), joints=[Joint("free")], geoms=geom) for name in names]
    model = pbad.build_model(bodies, dtype=DTYPE)
    pairs = list(itertools.combinations(names, 2))
    (force,) = forces.contact_between(model, pairs, max_contacts=16, friction=0.7)
    model = dataclasses.replace(model, forces=(force,))
    rng = np.random.default_rng(0)
    q = np.asarray(model.q0).copy().reshape(7, 7)
    q[:, :3] = [(0.16 * k, 0, 0) for k in range(row)] + [(0, 3.0 * k, 5) for k in range(7 - row)]
    q, v = leaf(q.reshape(-1)), leaf(0.1 * rng.normal(size=model.nv))
    at, f = instant(model, q, v, jnp.zeros(0, DTYPE), q, v), transforms.frames(model, q)
    at = dataclasses.replace(at, start=at.start._replace(near=(force.near(model, at.start),)))
    unit = jnp.tile(jnp.eye(6, dtype=DTYPE)[None], (7, 1, 1))
    zero, duals = jnp.zeros((7, 3), DTYPE), (force.dual(model),)
    at = dataclasses.replace(at, guide=Guide(duals, at.T, leaf(20.0), leaf(1.0), unit, jnp.ones(model.nv, DTYPE), zero))
    acts = np.asarray(force.by_parts(model, of_force(at, 0)).act)
    assert acts[0] and not acts[-1]

    dt = leaf(0.05)
    every = scaled(force.load(model, of_force(at, 0)), dt)
    rest, few = end_of_step(model, at, jax.tree.map(lambda x: x[None], f), f, dt)
    assert rest.point_forces == ()
    assert few.field is not None and float(jnp.abs(few.field).max()) > 0
    links = model.topology.n_links
    slope = total_matrix(model, f, f, list(every.point_forces), weighted(every, 1.0))
    whole = SparseLoads(
        field_of(every, links), *(field_beyond(every, links, x) for x in ("curving", "modelled")), slope[None]
    )
    for name, a, b in zip(SparseLoads._fields, few, whole, strict=True):
        assert_close(a, b, TOL["autodiff"], name)
    for a, b in zip(rest.dual[0][0], every.dual[0], strict=True):
        assert_close(a, b, TOL["autodiff"], "tangents")
