"""The energy of a step: asked of every one that converges, by slides and without, driven and not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import thorough

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, Site, forces
from pbad_jax.kinematics import manifold
from pbad_jax.stage.branch import largest_turn, turns_little

pytestmark = pytest.mark.float64


def bead() -> pbad.Model:
    """A point on a rail with a spring to a point beside it: two wells, a hill between."""
    one = Body("bead", 1.0, inertia=0.01 * np.eye(3), joints=[Joint("slide", (1, 0, 0), name="x")])
    model = pbad.build_model([one], gravity=(0, 0, 0))
    path = (Site("bead"), Site(None, (0, 0.3, 0)))
    return pbad.with_forces(model, forces.tendon_spring(model, path, stiffness=1000.0, rest=0.5))


def lanes(model, scheme, q, v, dt, control=None):
    """q, v and status after one step of every lane."""
    step = pbad.make_step(pbad.Options(1.0, scheme))

    def one(q, v, dt):
        after, info = step(model, pbad.make_state(model, q=q, v=v), control, dt)
        return after.q, after.v, info.status

    return map(np.asarray, jax.jit(jax.vmap(one))(q, v, dt))


@pytest.mark.parametrize("scheme", ["radau1", "radau2", thorough("radau3")])
def test_a_bead_never_climbs_a_hill_by_itself(scheme):
    """Of 2,000 such beads 238 and 164 had gained more than a hundredth, CONVERGED."""
    rng, n = np.random.default_rng(5), 2000
    x, dt = rng.uniform(-0.8, 0.8, n), np.exp(rng.uniform(np.log(2e-3), np.log(0.2), n))
    v = rng.choice([0.0, 1.0], n) * rng.normal(size=n) * np.exp(rng.uniform(np.log(1e-2), 0, n)) / dt
    q_1, v_1, status = lanes(bead(), scheme, x[:, None], v[:, None], dt)

    def well(x):
        return 500 * (np.hypot(x, 0.3) - 0.5) ** 2

    gain = well(q_1[:, 0]) + 0.5 * v_1[:, 0] ** 2 - well(x) - 0.5 * v**2
    stake = 0.5 * v**2 + np.abs(well(q_1[:, 0]) - well(x))
    good = status == pbad.Status.CONVERGED
    assert np.all(gain[good] <= 0.01 * stake[good] + 1e-3) and np.mean(good) > 0.85


def rod(name, parent):
    inertia = np.diag([0.084, 0.084, 0.002])
    at = (0, 0, -1.0 if parent else 0)
    return Body(name, 1.0, (0, 0, -0.5), inertia, parent, at, joints=[Joint("hinge", (1, 0, 0), name=name)])


DRIVES = {
    "a motor": {"actuators": [Actuator("a", name="m")]},
    "a weak servo": {"actuators": [Actuator("a", name="s", gain=1.0, bias=(0, -1.0, -0.1))]},
    "a weak motor at its limit": {"actuators": [Actuator("a", name="l", gain=9.0, force_range=(-0.1, 0.1))]},
    "a PD drive": {"forces": lambda m: forces.pd_drive(m, "a", kp=1.0, kd=0.1)},
    "a torque": {"forces": lambda m: forces.joint_force(m, [0.1, 0.0])},
    "a push": {"forces": lambda m: forces.wrench(m, "b", force=(0, 0.1, 0), frame="body")},
    "a cable": {"actuators": [Actuator({"a": 1.0, "b": -1.0}, name="c")]},
    "a winch": {"actuators": [Actuator((Site("b", (0, 0, -1)), Site(None, (0, 3, 0))), name="w")]},
}


def over_stretched(drives) -> pbad.Model:
    """An arm that a stiff tie has drawn out, with these drives."""
    actuators = [a for what in drives for a in DRIVES[what].get("actuators", ())]
    model = pbad.build_model([rod("a", None), rod("b", "a")], actuators=actuators)
    model = pbad.with_forces(model, forces.connect(model, "b", point=(0, 0, -1), other_point=(0, 1.0, -1.0)))
    return pbad.with_forces(model, *(DRIVES[what]["forces"](model) for what in drives if "forces" in DRIVES[what]))


def refused(model, scheme) -> int:
    """How many of 128 steps from rest end otherwise than CONVERGED; those that do make no energy."""
    rng, n = np.random.default_rng(1), 128
    q, dt = rng.uniform(-0.9, 1.2, (n, 2)), np.exp(rng.uniform(np.log(5e-3), np.log(0.05), n))
    q_1, v_1, status = lanes(model, scheme, q, np.zeros_like(q), dt, jnp.full(model.nu, 0.3))
    energy = jax.jit(jax.vmap(lambda q, v: total(model, q, v)))
    before, after = (np.asarray(energy(*x)) for x in ((q, np.zeros_like(q)), (q_1, v_1)))
    good, share = status == pbad.Status.CONVERGED, 0.1 if scheme.startswith("dirk") else 0.01
    assert np.all((after - before)[good] <= share * np.abs(before)[good] + 4.0)  # 4 J: of the drives
    return int((~good).sum())


@pytest.mark.parametrize("scheme", ["radau2", thorough("radau1"), thorough("dirk3")])
def test_what_drives_does_not_hide_what_nothing_explains(scheme):
    """A step that made 467 J was CONVERGED, once the arm had a motor, with control 0 too."""
    alone, driven = (refused(over_stretched(drives), scheme) for drives in ((), tuple(DRIVES)))
    assert alone > 0 and abs(driven - alone) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n in ("a motor", "a cable") else thorough(n) for n in DRIVES])
def test_no_drive_hides_what_nothing_explains(name):
    assert refused(over_stretched([name]), "radau2") > 0


def total(model, q, v):
    state = pbad.make_state(model, q=q, v=v)
    return pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)


def test_what_drives_may_drive():
    """From rest, hard: motors, torques, pushes and servos do the work that they do, and no step is refused for it."""
    strong = {
        "a motor": {"actuators": [Actuator("a", name="m", gear=200.0)]},
        "a servo": {"actuators": [Actuator("a", name="m", gain=2e3, bias=(0, -2e3, -100.0), force_range=(-80, 80))]},
        "a torque": {"forces": lambda m: forces.joint_force(m, [60.0, 5.0])},
        "a push": {"forces": lambda m: forces.wrench(m, "b", force=(0, 40.0, 0), frame="body")},
    }
    for name, what in strong.items():
        model = pbad.build_model([rod("a", None), rod("b", "a")], actuators=what.get("actuators", ()))
        model = pbad.with_forces(model, what["forces"](model)) if "forces" in what else model
        u = jnp.full((10, model.nu), 0.3)
        _, info = pbad.rollout(model, pbad.make_state(model), u, 10, pbad.Options(0.02))
        assert bool(info.ok.all()), (name, info)


def test_a_drive_that_pushes_along_its_speed_is_not_bounded():
    """No two ends tell its work: its steps are not asked, and are not refused."""
    model = pbad.build_model([rod("a", None)], actuators=[Actuator("a", name="m", bias=(0, 0, 0.5))])
    _, info = pbad.rollout(model, pbad.make_state(model, v=[1.0]), n_steps=10, options=pbad.Options(0.02))
    assert bool(info.ok.all())


def test_variational_beyond_its_stability_says_so():
    """ω dt = 10 on a slide grew from 1e-3 m to 3e36 m in 20 steps, CONVERGED; stable steps are not refused."""
    slide = Joint("slide", (1, 0, 0), name="x", stiffness=100.0, spring_reference=0.0)
    model = pbad.build_model([Body("b", 1.0, inertia=0.01 * np.eye(3), joints=[slide])], gravity=(0, 0, 0))
    phase = np.linspace(0, 2 * np.pi, 40)
    for w_dt, fine in ((1.9, True), (3.0, False), (10.0, False)):
        first = jax.vmap(lambda p, m=model: pbad.make_state(m, q=[jnp.cos(p)], v=[10 * jnp.sin(p)]))(jnp.asarray(phase))
        traj, info = pbad.rollout_batch(model, first, n_steps=20, options=pbad.Options(w_dt / 10, "variational"))
        assert np.all(np.asarray(info.ok) == fine), w_dt
        assert np.abs(traj.q).max() < (4.0 if fine else 1e4)


@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2", thorough("dirk2"), thorough("variational")])
def test_what_stands_on_its_head_may_stand_there(scheme):
    """Upright to the last bit it stays, in steps in which it might have fallen; one that leans goes where it leans."""
    model = pbad.build_model([rod("a", None)])
    q = np.pi - np.array([0.0, 1e-3, 0.02, 0.02])[:, None]
    v = np.array([0.0, 0.0, 0.0, 0.05])[:, None]
    for dt in (0.05, 0.3, 0.5, 0.8):
        q_1, _, status = lanes(model, scheme, q, v, np.full(4, dt))
        lean = np.pi - q_1[:, 0]
        assert status[0] == 0 and abs(lean[0]) < 1e-9
        assert np.all((lean > -1e-12) | (status != 0)), (dt, lean, status)


@pytest.mark.thorough
def test_a_wider_margin_is_for_steps_that_are_blown():
    """What acts once a step, but not here, allows nothing: ground far below the bead of two wells."""
    model = bead()
    ball = forces.points_on(model, "bead", (0, 0, 0), radius=0.01)
    far = pbad.with_forces(model, forces.contact(model, forces.half_space(offset=-100.0), points=ball))
    rng, n = np.random.default_rng(5), 300
    x, dt = rng.uniform(-0.8, 0.8, n), np.exp(rng.uniform(np.log(2e-2), np.log(0.2), n))
    v = rng.normal(size=n) * 0.5 / dt
    _, _, alone = lanes(model, "radau1", x[:, None], v[:, None], dt)
    _, _, beside = lanes(far, "radau1", x[:, None], v[:, None], dt)
    assert (alone != 0).sum() > 10 and np.mean(alone != beside) < 0.05


def test_a_ball_turns_by_its_whole_rotation_vector():
    """Three parts of 0.4 rad are 0.69 rad: far, for the tests of a root, where no part is."""
    model = pbad.chain(2, joint="ball")
    moved = jnp.asarray([[0.4, 0.4, 0.4, 0.0, 0.0, 0.1]])
    assert abs(float(largest_turn(model, moved)) - 0.4 * np.sqrt(3)) < 1e-12
    z = manifold.retract(model, manifold.identity_increment(model), 0.6 * moved[0])  # 0.42 rad, of 0.24 in each part
    assert not turns_little(model, z)


@pytest.mark.thorough
def test_a_drive_of_a_ball_is_its_spring():
    """Without damping: the same steps are refused. By dirk(4) they had 6 times the energy, CONVERGED, by the drive."""
    rng, n, k = np.random.default_rng(0), 128, 900.0
    bodies = [ball_and_rod(x) for x in (0.0, k)]
    driven, sprung = (pbad.build_model(b, gravity=(0, 0, 0)) for b in bodies)
    driven = pbad.with_forces(driven, forces.pd_drive(driven, "b", k, 0.0))
    q = jax.vmap(lambda w: manifold.retract(driven, driven.q0, w))(jnp.asarray(rng.uniform(-1.0, 1.0, (n, 6))))
    v, dt = np.zeros((n, 6)), np.exp(rng.uniform(np.log(0.02), np.log(0.2), n))
    found = [[*lanes(model, "dirk4", q, v, dt)][2] for model in (driven, sprung)]
    assert (found[1] != 0).sum() > 10
    np.testing.assert_array_equal(*found)
    uneven = pbad.with_forces(driven, forces.pd_drive(driven, "c", [1.0, 2.0, 3.0], 0.0)).forces[-1]
    assert driven.forces[-1].even and not uneven.even


def ball_and_rod(stiffness):
    shape = {"mass": 0.7, "com": (0, 0, -0.3), "inertia": np.diag([0.05, 0.06, 0.02])}
    joints = [pbad.Joint("ball", name=name, stiffness=x) for name, x in (("b", stiffness), ("c", 0.0))]
    first = pbad.Body("b", joints=joints[:1], **shape)
    return [first, pbad.Body("c", parent="b", position=(0, 0, -0.6), joints=joints[1:], **shape)]


@pytest.mark.parametrize("drive", ["servos", thorough("PD drive")])
def test_stiff_drives_of_balls_may_bring_them_to_rest(drive):
    """Only quadratures tell of their work; of that at the stages little is left where a step ends at the target."""
    model, rng, n = pbad.chain(2, joint="ball"), np.random.default_rng(0), 128
    turned, v, dt = rng.uniform(-0.8, 0.8, (n, 6)), rng.normal(size=(n, 6)), np.full(n, 0.1)
    if drive == "servos":
        law = {"gain": 0.0, "bias": (0, -1e5, -1e3)}
        axes = [(i, k) for i in range(2) for k in range(3)]
        servos = [Actuator(f"joint{i}", name=f"{i}{k}", gear=np.eye(3)[k], **law) for i, k in axes]
        model = pbad.with_actuators(model, *servos)
    else:
        model = pbad.with_forces(model, forces.pd_drive(model, None, 1e5, 1e3))
    q = jax.vmap(lambda w: manifold.retract(model, model.q0, w))(jnp.asarray(turned))
    *_, status = lanes(model, "radau1", q, v, dt, jnp.zeros(model.nu))
    assert not status.any()
