"""Forces over whole motions: no energy from contact, closed forms of rest, creep and drag, large steps, real robots.

Compiling is the cost of a JAX suite: `run` compiles once for each structure of a model and scheme, with dt traced.
"""

import dataclasses
import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow, thorough
from motions import Run, failed, run

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, forces
from pbad_jax.dynamics.instant import instant_of
from pbad_jax.kinematics import transforms

pytestmark = pytest.mark.float64

G = 9.81
STIFFNESSES = (1e3, 1e5, 1e7)
RADAU = ("radau1", "radau2", "radau3")


def rise(r: Run) -> float:
    """The largest rise of energy above what it was before, J."""
    return float((r.energy - np.minimum.accumulate(r.energy)).max())


# --- 1 and 11: contact makes no energy ---------------------------------------------------------------------


@functools.cache
def bodies() -> dict[str, pbad.Model]:
    inertia = {"ball": 0.4 * 0.01, "box": 0.2 / 3 * 0.1}
    shape = {"ball": Geom("sphere", (0.1,)), "box": Geom("box", (0.1, 0.1, 0.1))}
    return {
        k: pbad.build_model([Body(k, 1.0, inertia=np.eye(3) * I, joints=[Joint("free")], geoms=[shape[k]])])
        for k, I in inertia.items()
    }


FOOT = Geom("sphere", (0.05,))


def on_ground(name, stiffness=1e5, **how) -> pbad.Model:
    model = bodies()[name]
    return pbad.with_forces(model, forces.contact(model, stiffness=stiffness, **how))


TILTED = np.array([0.9, 0.3, -0.2, 0.1]) / np.sqrt(0.95)


def dropped(model, name):
    quaternion = [1, 0, 0, 0] if name == "ball" else TILTED
    return pbad.make_state(model, [0, 0, 0.5, *quaternion], [0.3, 0, 0, 0, 0, 0])


def check_drop(name, stiffness, dt, scheme, seconds, allowed=1e-3):
    model = on_ground(name, stiffness, damping=0.0, friction=0.5)
    r = run(model, dropped(model, name), dt, seconds, scheme)
    assert failed(r) == 0
    over = r.energy.max() / r.energy[0] - 1
    print(f"drop {name} k={stiffness:g} dt={dt} {scheme}: over the start {over:.2e}, rise {rise(r) / r.energy[0]:.2e}")
    assert over <= allowed
    return r


DROPS = []
for name, s, k, dt in itertools.product(("ball", "box"), RADAU, STIFFNESSES, (0.01, 0.05)):
    own = (name, s) in (("box", "radau2"), ("ball", "radau1")) and k == 1e5
    marks = [] if own else [pytest.mark.thorough]
    DROPS.append(pytest.param(name, s, k, dt, marks=marks))


@pytest.mark.slow
@pytest.mark.parametrize("name, scheme, stiffness, dt", DROPS)
def test_a_drop_makes_no_energy(name, scheme, stiffness, dt):
    """Without damping, so that what holds the energy down is the scheme; never 0.1 % above the start."""
    check_drop(name, stiffness, dt, scheme, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, scheme, stiffness, dt",
    [
        *(("ball", "radau1", k, 2e-3) for k in STIFFNESSES),
        *(("box", "radau2", k, 2e-3) for k in STIFFNESSES),
        *(thorough("ball", "radau1", k, 2e-4) for k in STIFFNESSES),
        *(thorough("box", "radau2", k, 2e-4) for k in STIFFNESSES),
        *(thorough("ball", s, k, dt) for s in ("radau2", "radau3") for k in STIFFNESSES for dt in (2e-3, 2e-4)),
        *(thorough("box", s, k, dt) for s in ("radau1", "radau3") for k in STIFFNESSES for dt in (2e-3, 2e-4)),
    ],
)
def test_a_drop_in_small_steps_makes_no_energy(name, scheme, stiffness, dt):
    """The same for the steps that resolve the contact, some or all of it."""
    check_drop(name, stiffness, dt, scheme, 1.0 if dt < 1e-3 else 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, dt",
    [thorough("variational", 0.05), thorough("variational", 0.01), *(thorough("dirk2", dt) for dt in (0.01, 0.05))],
)
def test_a_ball_comes_to_rest_with_the_other_schemes(scheme, dt):
    """Within 1 mm of the surface (it sinks 0.15 mm), no energy above the start by more than 0.1 %."""
    model = on_ground("ball", 1e5, friction=0.5)
    r = run(model, dropped(model, "ball"), dt, 4.0, scheme)
    last = r.q[-round(0.5 / dt) :, 2] - 0.1
    print(f"{scheme} dt={dt}: over {r.energy.max() / r.energy[0] - 1:.2e}, height {last.min():.2e} .. {last.max():.2e}")
    assert failed(r) == 0
    assert r.energy.max() <= r.energy[0] * (1 + 1e-3)
    assert np.abs(last).max() < 1e-3


@pytest.mark.parametrize("scheme", ["legendre2", "legendre3"])
def test_schemes_with_history_refuse_impulses(scheme):
    """legendre(2) took them once: of a ball that sank at 0.2 m/s after an impact it said that it rose at 0.66."""
    model = on_ground("ball")
    with pytest.raises(pbad.OptionError, match="Contact"):
        run(model, dropped(model, "ball"), 0.01, 0.1, scheme)


@pytest.mark.parametrize("dt", [0.01, 0.05])
@pytest.mark.parametrize("stiffness", STIFFNESSES)
@pytest.mark.parametrize(
    "name, scheme",
    [
        ("ball", "radau1"),
        slow("box", "radau2"),
        *(thorough("ball", s) for s in RADAU[1:]),
        *(thorough("box", s) for s in RADAU[::2]),
    ],
)
def test_resting_depth(name, scheme, stiffness, dt):
    """A point that bears all sinks 3/2 w, four that bear a quarter each sink w/√2, with w = mg/k the default width.

    And what lies still has no velocity, and its steps are found at once.

    Damping of 1 s/m lets a small motion die as exp(−χ g t/2): e⁻¹⁹ in 4 s.
    """
    model = on_ground(name, stiffness, friction=0.5)
    w = G / stiffness
    r = run(model, pbad.make_state(model, [0, 0, 0.1 + w, 1, 0, 0, 0]), dt, 4.0, scheme)
    want = 1.5 * w if name == "ball" else w / np.sqrt(2)
    got = 0.1 - r.q[-1, 2]
    print(f"rest {name} k={stiffness:g} dt={dt} {scheme}: {got / want - 1:.2e}")
    assert failed(r) == 0 and abs(got / want - 1) < 1e-3
    assert np.abs(r.v[-1]).max() < 1e-4 * G * dt
    assert r.iterations[-1] <= 3


@pytest.mark.parametrize("spin", [thorough(30.0), 50.0])
def test_a_spinning_ball_lands(spin):
    """1.5 and 2.5 rad in a step: it keeps its spin, and what it lands on does not take it for another."""
    model = on_ground("ball", 1e5, friction=0.5)
    r = run(model, pbad.make_state(model, [0, 0, 0.15, 1, 0, 0, 0], [0, 0, 0, 0, 0, spin]), 0.05, 2.0, "radau2")
    assert failed(r) == 0
    assert np.all(np.abs(r.v[:, 5] - spin) < 1e-6) and np.abs(r.v[-1, :5]).max() < 1e-6


def test_a_ball_that_spins_too_fast_says_so():
    """5 rad in a step are more than radau(2) counts: a step that ends well has the right spin, and none has another."""
    model = on_ground("ball", 1e5, friction=0.5)
    r = run(model, pbad.make_state(model, [0, 0, 0.15, 1, 0, 0, 0], [0, 0, 0, 0, 0, 100.0]), 0.05, 2.0, "radau2")
    assert np.all(np.abs(r.v[:, 5] - 100.0) < 1e-6)
    parts = pbad.make_step(pbad.Options(dt=0.05, scheme="radau2", on_failure="substep"))
    state = pbad.make_state(model, [0, 0, 0.1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 100.0])
    state, info = jax.jit(parts)(model, state)
    assert bool(info.ok) and abs(float(state.v[5]) - 100.0) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["radau1", "radau2", "radau3"])
def test_a_stiff_leg_stands_still(scheme):
    """10 kg held by a servo above a foot of 0.1 kg: both stop, though an impulse meets the foot alone.

    The servo settles in 0.1 s; 0.05 s is 50 times as long as the foot against its damper. It gives way by m g/kp.
    """
    up = [Joint("slide", axis=(0, 0, 1))]
    model = pbad.build_model(
        [
            Body("trunk", 10.0, inertia=np.eye(3), joints=up, position=(0, 0, 0.55)),
            Body("foot", 0.1, parent="trunk", inertia=np.eye(3) * 1e-4, position=(0, 0, -0.5), joints=up, geoms=[FOOT]),
        ]
    )
    leg = model.topology.joints[1].name
    model = pbad.with_forces(model, forces.contact(model), forces.pd_drive(model, leg, 1e4, 1e3))
    r = run(model, pbad.make_state(model, [0.1, 0.0]), 0.05, 3.0, scheme)
    print(f"leg {scheme}: v {r.v[-1]}")
    exact = scheme == "radau1"
    assert failed(r) == 0 and abs(r.q[-1, 1] / (10 * G / 1e4) - 1) < (1e-3 if exact else 0.2)
    assert np.abs(r.v[-1]).max() < (1e-6 if exact else 0.06 * G * 0.05)


@functools.cache
def bounce_errors(scheme: str) -> np.ndarray:
    """Relative errors of (contact time, speed after) for dt = contact time/10, /20, ... /160; mean of 4 phases."""
    k, m, v = 1e3, 1.0, 1.0
    want = np.pi * np.sqrt(m / k)
    ball = pbad.build_model(
        [Body("ball", m, inertia=np.eye(3) * 0.004, joints=[Joint("free")], geoms=[Geom("sphere", (0.1,))])],
        gravity=(0, 0, 0),
    )
    law = forces.contact(ball, stiffness=k, damping=0.0, friction=0.0, smoothing=1e-9, at="stages")
    model, errors = pbad.with_forces(ball, law), []
    for dt in want / 10 / 2.0 ** np.arange(5):
        found = []
        for phase in (0.1, 0.35, 0.6, 0.85):  # where in a step the ball arrives
            start = 0.1 + v * dt * (1 + phase)
            state = pbad.make_state(model, [0, 0, start, 1, 0, 0, 0], [0, 0, -v, 0, 0, 0])
            r = run(model, state, dt, 1.4 * want, scheme)
            assert failed(r) == 0 and r.q[-1, 2] > 0.1
            out = r.time[-1] - (r.q[-1, 2] - 0.1) / r.v[-1, 2]
            found.append([abs((out - dt * (1 + phase)) / want - 1), abs(r.v[-1, 2] / v - 1)])
        errors.append(np.mean(found, axis=0))
    return np.array(errors)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, last", [("radau1", 5e-2), thorough("radau2", 1e-4), thorough("radau3", 1e-4), thorough("dirk2", 1e-3)]
)
def test_a_resolved_bounce_is_that_of_a_spring(scheme, last):
    """Contact time π√(m/k), speed reversed, as dt → 0: over four halvings both errors fall all the time on the whole.

    The kink of the force limits what high orders gain, so an order is asked of radau1 only: 1 of
    the speed; the time of a damped half-swing is off by the square of what the damping is.
    """
    errors = bounce_errors(scheme)
    print(scheme, errors)
    assert np.all(errors[-1] < last)
    assert np.all(errors[2:] < errors[:-2])
    if scheme == "radau1":
        np.testing.assert_allclose(errors[-2] / errors[-1], [4, 2], rtol=0.05)


# --- 2 and 4: sliding and sticking -------------------------------------------------------------------------


def block_on(angle: float):
    """A box on a plane that falls off along x; the state has it at rest on it, as deep as it will sink."""
    normal = np.array([np.sin(angle), 0, np.cos(angle)])
    box = bodies()["box"]
    law = forces.contact(box, forces.half_space(normal), friction=0.5)
    model = pbad.with_forces(box, law)
    depth = float(law.width[0]) * np.sqrt(np.cos(angle) / 2)
    return model, [*(normal * (0.1 - depth)), np.cos(angle / 2), 0, np.sin(angle / 2), 0]


def along(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), 0, -np.sin(angle)])


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
@pytest.mark.parametrize("angle", [0.2, 0.4])
def test_a_block_creeps_below_the_friction_angle(angle, scheme, dt):
    """At s tan θ/√(μ² − tan² θ), whatever dt is."""
    model, q = block_on(angle)
    r = run(model, pbad.make_state(model, q), dt, 2.0, scheme)
    x = r.q[:, :3] @ along(angle)
    half = len(x) // 2
    speed = (x[-1] - x[half]) / (r.time[-1] - r.time[half])
    want = 1e-3 * np.tan(angle) / np.sqrt(0.25 - np.tan(angle) ** 2)
    print(f"creep {angle} dt={dt} {scheme}: {speed:.4e}, {speed / want - 1:.2e}")
    assert failed(r) == 0
    if angle == 0.2:
        assert 0 < speed <= 1e-3
    assert abs(speed / want - 1) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_a_block_slides_above_the_friction_angle(scheme, dt):
    """With the acceleration g (sin θ − μ cos θ), within 1 %."""
    angle = 0.6
    model, q = block_on(angle)
    r = run(model, pbad.make_state(model, q), dt, 2.0, scheme)
    v, half = r.v[:, :3] @ along(angle), len(r.v) // 2
    found = (v[-1] - v[half]) / (r.time[-1] - r.time[half])
    want = G * (np.sin(angle) - 0.5 * np.cos(angle))
    print(f"slide dt={dt} {scheme}: {found / want - 1:.2e}")
    assert failed(r) == 0 and abs(found / want - 1) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_stopping_distance(scheme):
    """v²/2μg: errors fall with dt, to less than 1 %."""
    speed, want = 2.0, 4.0 / (2 * 0.5 * G)
    model, q = block_on(0.0)
    errors = []
    for dt in (0.02, 0.01, 0.005, 0.0025):
        r = run(model, pbad.make_state(model, q, [speed, 0, 0, 0, 0, 0]), dt, 0.7, scheme)
        assert failed(r) == 0 and abs(r.v[-1, 0]) < 2e-3
        errors.append(abs(r.q[-1, 0] / want - 1))
    print("stop", scheme, errors)
    assert errors[-1] < 1e-2
    assert all(fine < max(coarse, 1e-4) for coarse, fine in zip(errors, errors[1:]))


# --- 3: drag -----------------------------------------------------------------------------------------------


def falling(law):
    model = pbad.with_forces(bodies()["ball"], law)
    return model, pbad.make_state(model, [0, 0, 0, 1, 0, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.2, 0.01])
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2", *map(thorough, ("radau3", "dirk2", "legendre2"))])
def test_terminal_velocity(scheme, dt):
    """g/c after 12 times 1/c (e⁻¹² is left), whatever dt is."""
    r = run(*falling(forces.drag(2.0)), dt, 6.0, scheme)
    speed = (r.q[-2, 2] - r.q[-1, 2]) / dt
    print(f"terminal {scheme} dt={dt}: {speed / (G / 2) - 1:.2e}")
    assert failed(r) == 0
    assert abs(speed / (G / 2) - 1) < 1e-2
    assert abs(-r.v[-1, 2] / (G / 2) - 1) < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, order",
    [
        ("radau2", 3),
        *(thorough(f"{s}{k}", o) for s, k, o in (("radau", 1, 1), ("radau", 3, 5), ("dirk", 2, 2), ("dirk", 3, 3))),
    ],
)
def test_a_fall_in_drag_has_the_schemes_order(scheme, order):
    """v = g/c (1 − e^(−ct)) at 1 s; c dt = 0.2 and 0.1 is small enough for the order to be 0.3 of what it is."""
    model, state = falling(forces.drag(2.0))
    want = -G / 2 * (1 - np.exp(-2.0))
    errors = [abs(run(model, state, dt, 1.0, scheme).v[-1, 2] - want) for dt in (0.1, 0.05)]
    found = np.log2(errors[0] / errors[1])
    print("order", scheme, found, errors)
    assert abs(found - order) < 0.3


def test_the_papers_drag_doubles_when_dt_halves():
    """Its documented slip (docs/mathematics.md): at the end of a fall 2D v/dt = g, so v = g dt/2D."""
    model, state = falling(forces.paper_drag(0.1))
    speeds = [-run(model, state, dt, 150 * dt, "radau1").v[-1, 2] for dt in (0.2, 0.1, 0.05)]
    np.testing.assert_allclose(speeds, G * np.array([0.2, 0.1, 0.05]) / 0.2, rtol=1e-6)
    np.testing.assert_allclose([speeds[0] / speeds[1], speeds[1] / speeds[2]], 2, rtol=1e-6)


# --- 5 and 6: joints ---------------------------------------------------------------------------------------

MASS, ARM = 1.0, 0.5


def pendulum(joint: str = "hinge", axis=(0, -1, 0), **how) -> pbad.Model:
    """A point-like mass at the end of an arm along x at q = 0; a hinge about −y lifts it, its weight has 4.9 N m."""
    body = Body("arm", MASS, (ARM, 0, 0), np.eye(3) * 1e-2, joints=[Joint(joint, axis, **how)])
    return pbad.build_model([body])


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.01, 0.05])
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_joint_friction_holds(scheme, dt):
    """Held against τ < f it creeps at s τ/√(f² − τ²); near the level τ = m g l cos q changes by 1e-4 only."""
    f, s, tau = 6.0, 1e-3, MASS * G * ARM
    model = pendulum(friction_loss=f, stick_speed=s)
    r = run(model, pbad.make_state(model), dt, 2.0, scheme)
    half = len(r.q) // 2
    speed = -(r.q[-1, 0] - r.q[half, 0]) / (r.time[-1] - r.time[half])
    want = s * tau / np.sqrt(f**2 - tau**2)
    print(f"hold {scheme} dt={dt}: {speed / want - 1:.2e}")
    assert failed(r) == 0 and abs(speed / want - 1) < 1e-2


def test_joint_friction_brings_a_pendulum_to_a_stop():
    """It takes f for every radian of the way: the energy lost is f ∫|dq|; it stops where the weight cannot drive."""
    f = 0.5
    model = pendulum(friction_loss=f, stick_speed=1e-3)
    r = run(model, pbad.make_state(model), 0.005, 10.0, "radau2")
    way, lost = np.abs(np.diff(r.q[:, 0])).sum(), r.energy[0] - r.energy[-1]
    print("swing", lost / (f * way) - 1, r.q[-1, 0] + np.pi / 2, r.v[-1, 0], rise(r))
    assert failed(r) == 0
    assert abs(lost / (f * way) - 1) < 1e-2
    assert way > np.pi and abs(np.sin(r.q[-1, 0] + np.pi / 2)) < f / (MASS * G * ARM)
    assert np.abs(r.v[-100:, 0]).max() < 1e-2
    assert rise(r) < 1e-3 * lost


def resting_excess(k: float, w: float, weight) -> float:
    """x of k ramp(x) = weight(x), beyond the smooth start."""
    x = 0.0
    for _ in range(50):
        x = weight(x) / k + w / 2
    assert x > w
    return x


def flight(dt: float, angle: float) -> float:
    """Relative change of the weight's moment over the parabola of height a dt²/8, on average 2/3 of it, in a step."""
    return MASS * G * ARM * np.cos(angle) / (MASS * ARM**2 + 1e-2) * dt**2 / 12 * np.tan(angle)


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.005, 0.02, 0.05])
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2", thorough("radau3")])
def test_an_arm_falls_on_its_limit(scheme, dt):
    """It rests where k (x − w/2) = m g l cos(q); its energy is never above the start by 0.1 % of what it fell.

    radau(2) and radau(3) let it fly by gravity inside a step, after the impulse: see `flight`.
    """
    model = pendulum(range=(-0.5, 2.0))
    limit = next(f.law for f in model.forces if forces.name_of(f) == "JointLimit")
    r = run(model, pbad.make_state(model, [1.0]), dt, 5.0, scheme)
    k, w = float(limit.stiffness[0]), float(limit.width[0])
    x = resting_excess(k, w, lambda x: MASS * G * ARM * np.cos(-0.5 - x))
    got = -0.5 - r.q[-1, 0]
    fall = r.energy[0] - r.energy[-1]
    print(f"limit {scheme} dt={dt}: x {x:.4f} {got / x - 1:.2e}, rise {rise(r) / fall:.2e}")
    assert failed(r) == 0 and abs(got / x - 1) < (1e-6 if scheme == "radau1" else 1e-6 + flight(dt, 0.5 + x))
    assert r.energy.max() <= r.energy[0] + 1e-3 * fall


@pytest.mark.slow
@pytest.mark.parametrize("dt", [thorough(0.005), 0.02, 0.05])
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2", thorough("radau3")])
def test_a_ball_joint_falls_on_its_limit(scheme, dt):
    """The same for the angle of the whole rotation; its limit has no damping, so the joint has some, in flight too."""
    model = pendulum("ball", None, range=(0, 0.5), damping=0.5)
    limit = next(f for f in model.forces if isinstance(f, forces.BallLimit))
    r = run(model, pbad.make_state(model), dt, 8.0, scheme)
    k, w = float(limit.stiffness[0]), float(limit.width[0])
    x = resting_excess(k, w, lambda x: MASS * G * ARM * np.cos(0.5 + x))
    got = 2 * np.arctan2(np.linalg.norm(r.q[-1, 1:]), r.q[-1, 0]) - 0.5
    fall = r.energy[0] - r.energy[-1]
    print(f"ball limit {scheme} dt={dt}: x {x:.4f} {got / x - 1:.2e}, rise {rise(r) / fall:.2e}")
    assert failed(r) == 0 and abs(got / x - 1) < (1e-6 if scheme == "radau1" else 1e-2)
    assert r.energy.max() <= r.energy[0] + 1e-3 * fall


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_stiff_servos_at_large_steps(scheme):
    """Four links under servos of 1e5 N m/rad at 0.1 s: ω dt is 7. They end where servo and weight are in balance."""
    kp, n = 1e5, 4
    kv = 2 * np.sqrt(kp * 64 / 3)  # critical for the stretched arm about its root
    arm = pbad.build_model(
        [
            Body(f"link{i}", 1.0, (0.5, 0, 0), np.diag([1e-3, 1 / 12, 1 / 12]), None if i == 0 else i - 1,
                 (0 if i == 0 else 1.0, 0, 0), joints=[Joint("hinge", (0, 1, 0), name=f"joint{i}")])
            for i in range(n)
        ],
        actuators=[Actuator(f"joint{i}", gain=kp, bias=(0, -kp, -kv)) for i in range(n)],
    )  # fmt: skip
    target = np.array([0.5, -1.0, 0.8, 0.7])
    r = run(arm, pbad.make_state(arm), 0.1, 5.0, scheme, target)
    angle = np.cumsum(r.q[-1])
    reach = np.cos(angle)  # of every link, level
    arms = [sum(reach[i:j].sum() + reach[j] / 2 for j in range(i, n)) for i in range(n)]  # of the weights beyond
    sag = G * np.array(arms) / kp
    print("servo", scheme, r.q[-1] - target, sag)
    assert failed(r) == 0
    np.testing.assert_allclose(r.q[-1] - target, sag, atol=1e-6)  # 1e-3 of the sag
    assert np.abs(r.v[-1]).max() < 1e-4


# --- what goes through ---------------------------------------------------------------------------------------

SHAPES = [((0.1, 0.1, 0.1), 0.0), ((0.1, 0.1, 0.1), 0.1), ((0.1, 0.1, 0.2), 0.1)]  # box, sphere, capsule: half, round
LANES = 360


@functools.cache
def many_balls(scheme):
    """Of LANES balls of 0.1 m in a plane, each against its own rounded box: 30 steps of their own dt."""
    joint = Joint("planar", [(1, 0, 0), (0, 0, 1)])
    ball = Body("ball", 1.0, inertia=np.eye(3) * 0.004, joints=[joint], geoms=[Geom("sphere", (0.1,))])
    model, step = pbad.build_model([ball]), pbad.make_step(pbad.Options(dt=1.0, scheme=scheme))
    touching = forces.contact(model, forces.box((0, 0, 0), (1, 1, 1)))

    def one(gravity, half, round, friction, q, v, dt):
        surface = dataclasses.replace(touching.surface, half=half, round=round)
        force = dataclasses.replace(touching, surface=surface, friction=friction[None])
        lane = dataclasses.replace(pbad.with_forces(model, force), gravity=gravity)

        def body(state, _):
            after, info = step(lane, state, dt=dt)
            energy = pbad.kinetic_energy(lane, after) + pbad.potential_energy(lane, after)
            return after, (after.q, energy, info.status)

        state = pbad.make_state(lane, q, v)
        energy = pbad.kinetic_energy(lane, state) + pbad.potential_energy(lane, state)
        q, energies, status = jax.lax.scan(body, state, None, length=30)[1]
        return q, jnp.concatenate([energy[None], energies]), status

    return jax.jit(jax.vmap(one))


def fly(scheme, gravity, shapes, friction, q, v, dt):
    """What `many_balls` makes of lanes given as arrays."""
    half, round = (np.array(x, float) for x in zip(*shapes))
    down = np.tile([0, 0, -gravity], (LANES, 1))
    return [np.asarray(x) for x in many_balls(scheme)(*map(jnp.asarray, (down, half, round, friction, q, v, dt)))]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_what_goes_through_is_not_converged(scheme):
    """Balls shot at things of their own size, up to 2.5 times as far a step as both reach.

    Then no step that is kept makes much energy, and none goes straight through: 0.06 m is 0.3 of the reach.
    """
    cases = list(itertools.product(SHAPES, np.linspace(0.02, 0.5, 12), (0, 0.02, 0.05, 0.08, 0.15), (0.01, 0.05)))
    shapes, (moves, offsets, dt) = [x[0] for x in cases], np.array([x[1:] for x in cases]).T
    rng = np.random.default_rng(1)
    start = -0.21 - rng.uniform(size=LANES) * moves
    q, v = np.stack([start, offsets, 0 * dt], 1), np.stack([moves / dt, 0 * dt, 0 * dt], 1)
    friction = rng.choice([0.0, 0.5], LANES)
    path, energy, status = fly(scheme, 0.0, shapes, friction, q, v, dt)

    good = status == 0
    gain = np.where(good, np.diff(energy, axis=1), 0.0) / energy[:, :1]
    ways = np.concatenate([q[:, None], path], axis=1)[..., :2]
    along = ways[:, :-1, None] + np.linspace(0, 1, 101)[:, None] * np.diff(ways, axis=1)[:, :, None]
    half, rim = np.array([half for half, _ in shapes])[:, ::2], np.array([round for _, round in shapes])
    y = np.abs(along) - (half - rim[:, None])[:, None, None]
    deep = 0.1 + rim[:, None, None] - np.linalg.norm(np.maximum(y, 0), axis=-1) - np.minimum(y.max(-1), 0)
    cut = np.where(good, deep.max(-1) - np.maximum(np.maximum(deep[..., 0], deep[..., -1]), 0), 0.0)
    told = np.any(status == pbad.Status.BRANCH, axis=1)
    gaining = np.count_nonzero((gain > 0.01).any(1))
    print(
        f"{told.sum()} of {LANES} lanes told; {gaining} gain, at most {gain.max():.3f}; cut at most {cut.max():.3f} m"
    )
    assert not np.any(told[moves < 0.05])
    assert gaining <= 0.05 * LANES and gain.max() < 0.3 and cut.max() < 0.06


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["dirk2", "radau2"])
def test_a_box_that_falls_comes_to_rest(scheme):
    """And no step is taken for one that makes energy: what is at stake goes to nothing, not so what falls in a step."""
    half = np.array([0.2, 0.15, 0.1])
    inertia = np.diag((half**2).sum() - half**2) / 3
    box = Body("box", 1.0, inertia=inertia, joints=[Joint("free")], geoms=[Geom("box", half)])
    bare = pbad.build_model([box])
    model = pbad.with_forces(bare, forces.contact(bare))
    q, v = np.array(model.q0), np.array([0.3, 0, 0, 0, 1.0, 0])
    q[2] = 0.12
    path, info = pbad.rollout(model, pbad.make_state(model, q, v), n_steps=200, options=pbad.Options(0.005, scheme))
    assert not np.any(info.status)
    assert np.abs(path.v[-1]).max() < 0.03  # dirk reports −g dt/2 of what rests


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_what_rolls_slides_and_grazes_is_converged(scheme):
    """On a box with sharp and round edges and over them, by dt of 5 to 50 ms, and past one that is just touched."""
    rng = np.random.default_rng(2)
    dt, friction = rng.choice([0.005, 0.01, 0.02, 0.05], LANES), rng.choice([0.0, 0.5, 1.0], LANES)
    shapes = [((0.5, 0.5, 0.1), (0.0, 0.02)[k % 2]) for k in range(LANES)]
    x, speed, spin = rng.uniform(-0.55, 0.5, LANES), rng.uniform(-1, 1, LANES), rng.choice([0, 5.0], LANES)
    over = np.maximum(np.abs(x) - 0.5, 0)
    height = 0.1 + np.sqrt(0.01 - over**2) - rng.choice([0, 0.001], LANES)
    q, v = np.stack([x, height, 0 * x], 1), np.stack([speed, 0 * x, spin], 1)
    _, _, status = fly(scheme, G, shapes, friction, q, v, dt)
    assert not np.any(status)

    across = np.stack([0 * x - 1, np.full(LANES, 0.1999), 0 * x], 1)
    _, _, status = fly(scheme, 0.0, shapes, friction, across, np.stack([30 * speed, 0 * x, spin], 1), dt)
    assert not np.any(status)


# --- 7 and 8: robots ---------------------------------------------------------------------------------------


@functools.cache
def gym(name: str) -> pbad.Model:
    from robot_files import GYMNASIUM, package

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pbad.load(package("gymnasium") / GYMNASIUM / f"{name}.xml", unsupported="warn")[0]


def check_fall(name, dt, scheme, height=None):
    model = gym(name)
    assert any(isinstance(f, forces.Contact) for f in model.forces)
    q = np.array(model.q0)
    q[2] = q[2] if height is None else height
    r = run(model, pbad.make_state(model, q), dt, 3.0, scheme)
    print(
        f"{name} dt={dt} {scheme}: failed {failed(r)}/{len(r.q)}, rise {rise(r) / r.energy[0]:.2e}, z {r.q[-1, 2]:.3f}"
    )
    assert np.all(np.isfinite(r.q))
    assert failed(r) <= (0 if scheme == "radau1" else 1e-3 * len(r.q))
    assert rise(r) <= 1e-3 * r.energy[0]
    assert r.q[-1, 2] < q[2] - 0.1 and r.energy[-1] < r.energy[0]


@pytest.mark.slow
@pytest.mark.robots
@pytest.mark.parametrize(
    "scheme, dt", [thorough("radau1", 0.05), thorough("radau1", 0.02), *(thorough("radau2", dt) for dt in (0.02, 0.05))]
)
def test_ant_falls(scheme, dt):
    check_fall("ant", dt, scheme, 1.0)


@pytest.mark.robots
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["radau1", "radau2"])
def test_ant_falls_in_small_steps(scheme):
    check_fall("ant", 0.002, scheme, 1.0)


@pytest.mark.robots
@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.01, 0.02])
@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["radau1", "radau2"])
def test_humanoid_falls(scheme, dt):
    check_fall("humanoid", dt, scheme)


@pytest.mark.robots
@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["radau1", "radau2"])
def test_go2_stands(scheme):
    """Ten seconds at 0.02 s on its feet: springs and dampers in its joints hold it."""
    from robot_files import load_quietly, urdfs

    go2, _ = load_quietly(urdfs()["go2"], floating_base=True)
    q, legs, rest = np.array(go2.q0), np.zeros(go2.nv), np.zeros(go2.nv)
    for joint in go2.topology.joints:
        if joint.type == "hinge":
            legs[joint.v] = 1
            q[joint.q] = rest[joint.v] = {"hip": 0.0, "thigh": 0.8, "calf": -1.5}[joint.name.split("_")[1]]
    assert legs.sum() == 12
    law = forces.contact(go2, friction=0.8)
    held = forces.Spring(jnp.asarray(300.0 * legs), jnp.asarray(rest), jnp.asarray(10.0 * legs), conservative=False)
    model = pbad.with_forces(go2, law, forces.LineForce(forces.Joints(), held))

    def lowest(q):
        state = pbad.make_state(model, q)
        return -float(jnp.max(law.depth(model, instant_of(model, state, jnp.zeros(0)))))

    q[2] -= lowest(q)
    r = run(model, pbad.make_state(model, q), 0.02, 10.0, scheme)
    tilt = 2 * np.arcsin(np.linalg.norm(r.q[:, 4:6], axis=1))
    print(f"go2 {scheme}: failed {failed(r)}, z {q[2]:.4f} -> {r.q[:, 2].min():.4f} .. {r.q[-1, 2]:.4f}")
    assert failed(r) == 0
    assert np.abs(r.q[:, 2] - q[2]).max() < 0.03 and tilt.max() < 0.1
    assert np.ptp(r.q[-50:, 2]) < 1e-4


# --- 9: swimming -------------------------------------------------------------------------------------------


def swum(law):
    """The path of the centre of mass of a swimmer under a travelling wave of torques, (n+1,2) m, and the run.

    Springs and dampers in the joints keep them off their limits.
    """
    model = pbad.swimmer(4, water=None)
    hinges = jnp.asarray([0.0, 0, 0, 1, 1, 1])
    own = forces.Spring(WAVE[3] * hinges, model.q0, 0.1 * WAVE[3] * hinges, conservative=False)
    model = pbad.with_forces(model, forces.LineForce(forces.Joints(), own))
    model = model if law is None else pbad.with_forces(model, law(model))
    dt, seconds = 0.05, 20.0
    t = dt * np.arange(round(seconds / dt))
    u = WAVE[0] * WAVE[3] * np.sin(WAVE[1] * t[:, None] - WAVE[2] * np.arange(3))
    r = run(model, pbad.make_state(model), dt, seconds, "radau2", u)
    assert failed(r) == 0
    mean = jax.jit(jax.vmap(lambda q: _center(model, q)))(jnp.asarray(r.q))
    return np.asarray(mean)[:, :2], r


WAVE = (1.5, 6.0, 1.6, 1e4)  # rad, rad/s, rad from joint to joint, N m/rad


def _center(model, q):

    return transforms.center_of_mass(model, transforms.transforms(model, q))


@pytest.mark.slow
def test_a_swimmer_swims_where_drag_has_a_direction():
    path, r = swum(lambda model: forces.fluid(model, normal=2.0, tangential=1.0))
    print("swum", path[-1] - path[0], np.abs(r.q[:, 3:]).max())
    assert np.linalg.norm(path[-1] - path[0]) > 1.0


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(
    "law",
    [lambda m: forces.drag(0.1), lambda m: forces.fluid(m, normal=0.0, tangential=0.0)],
    ids=["drag", "nothing"],
)
def test_a_swimmer_stays_where_drag_has_none(law):
    """The centre of mass of what starts from rest does not move; 4e-9 m is 400 steps of solves to 1e-11."""
    path, r = swum(law)
    print("stayed", np.abs(path - path[0]).max(), np.abs(r.q[:, 3:]).max())
    assert np.abs(r.q[:, 3:]).max() > 0.1  # it does move its joints
    assert np.abs(path - path[0]).max() < 4e-9


# --- 10: loops and wrenches --------------------------------------------------------------------------------


def gaps(model, law, r: Run) -> np.ndarray:
    """Of every row, (n+1,c) m."""

    @jax.jit
    @jax.vmap
    def of(q, v):
        state = pbad.make_state(model, q, v)
        return jnp.linalg.norm(law.gap(model, instant_of(model, state, jnp.zeros(0))), axis=-1)

    return np.asarray(of(r.q, r.v))


def bar(name, parent, position, joint, length=1.0):
    return Body(name, 1.0, (length / 2, 0, 0), np.diag([1e-3, 1 / 12, 1 / 12]), parent, position, joints=[joint])


def four_bar_linkage():
    y = (0, 1, 0)
    return pbad.build_model(
        [
            bar("crank", None, (0, 0, 0), Joint("hinge", y, name="a")),
            bar("coupler", "crank", (1, 0, 0), Joint("hinge", y, name="b")),
            bar("rocker", "coupler", (1, 0, 0), Joint("hinge", y, name="c")),
        ],
        q0=[0.3, -0.9, 1.4],
    )


@functools.cache
def four_bar(scheme):
    """A crank, a coupler and a rocker whose end is held at a point of the world swing for 5 s at 0.02 s.

    The forces in the loop are some 30 N, a spring of mass/time_constant² = 1 kg/(5 ms)² or more gives way by 1 mm or
    less; 5 mm bounds what the swings add.
    """
    linkage = four_bar_linkage()
    law = forces.connect(linkage, "rocker", point=(1, 0, 0))
    model = pbad.with_forces(linkage, law)
    r = run(model, pbad.make_state(model), 0.02, 5.0, scheme)
    gap = gaps(model, law, r)
    assert failed(r) == 0 and np.ptp(r.q, axis=0).max() > 0.5
    return gap, r.energy


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_four_bar_stays_closed(scheme):
    assert four_bar(scheme)[0].max() < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_four_bar_makes_no_energy(scheme):
    """Never 0.1 % above the start."""
    energy = four_bar(scheme)[1]
    assert energy.max() <= energy[0] + 1e-3 * abs(energy[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "at", "most"),
    [
        ("radau2", "stages", 1e-3),
        thorough("radau2", "step", 1.0),
        thorough("radau3", "step", 1.0),
        thorough("radau1", "step", 0.01),
    ],
)
def test_a_fast_loop_makes_no_energy(scheme, at, most):
    """Four bars at up to 25 rad/s, steps of 5 to 50 ms: the share that a converged step adds to the energy.

    32 of 3097 with one impulse a step, and two at the stages, added up to 777 times the energy: roots at which a bar
    has swung through by 1 to 4 rad. What is left of an impulse a step is the scheme's own error.
    """
    linkage = four_bar_linkage()
    model = pbad.with_forces(linkage, forces.connect(linkage, "rocker", point=(1, 0, 0), at=at))
    rng = np.random.default_rng(0)
    v = rng.normal(size=(100, 3)) * rng.uniform(1, 15, size=(100, 1))
    dt = np.repeat([0.005, 0.01, 0.02, 0.03, 0.05], 20)
    step = pbad.make_step(pbad.Options(1.0, scheme))

    def energy(s):
        return pbad.kinetic_energy(model, s) + pbad.potential_energy(model, s)

    @jax.jit
    @jax.vmap
    def lanes(v, dt):
        def one(before, _):
            after, info = step(model, before, None, dt)
            return after, ((energy(after) - energy(before)) / (energy(before) + 45), info.status)

        return jax.lax.scan(one, pbad.make_state(model, v=v), None, length=40)[1]

    gain, status = map(np.asarray, lanes(v, dt))
    good = status == 0
    print(scheme, at, "CONVERGED", good.sum(), "largest gain", gain[good].max())
    assert gain[good].max() < most
    assert good.sum() > (3800 if at == "stages" else 2400) and np.all(good[dt == 0.005])


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["radau1", "radau2"])
def test_two_chains_welded(scheme):
    """Two arms from two points of the world, welded at their ends: an arch that bears its weight for 5 s."""
    y = (0, 1, 0)
    arms = pbad.build_model(
        [
            bar("left0", None, (0, 0, 0), Joint("hinge", y, name="l0")),
            bar("left1", "left0", (1, 0, 0), Joint("hinge", y, name="l1")),
            bar("right0", None, (3, 0, 0), Joint("hinge", y, name="r0")),
            bar("right1", "right0", (1, 0, 0), Joint("hinge", y, name="r1")),
        ],
        q0=[ARCH[0], ARCH[1], np.pi - ARCH[0], -ARCH[1]],
    )
    law = forces.weld(arms, "left1", "right1", point=(1, 0, 0))
    model = pbad.with_forces(arms, law)
    r = run(model, pbad.make_state(model, None, [0.5, -0.5, 0.5, 0.5]), 0.02, 5.0, scheme)
    gap = gaps(model, law, r)
    print(f"weld {scheme}: gap {gap.max(axis=0)}, end {gap[-1]}, rise {rise(r):.2e} E0 {r.energy[0]:.3f}")
    assert failed(r) == 0
    assert gap[:, 0].max() < 1e-2 and gap[:, 1:].max() < 0.1
    assert r.energy.max() <= r.energy[0] + 1e-3 * abs(r.energy[0])


ARCH = (0.7, -1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme, order", [("radau1", 1), ("radau2", 3), ("radau3", 5), ("dirk2", 2)])
def test_wrench(scheme, order):
    """A force: v = F t/m of the centre of mass, exactly. A torque in the body's frame, principal axis: ω = τ t/I.

    What turns is exact only to the scheme's order, since the transforms are interpolated; 1e-9 is for the solves.
    """
    inertia = np.diag([0.02, 0.03, 0.04])
    body = pbad.build_model([Body("brick", 2.0, (0.1, 0.2, 0.3), inertia, joints=[Joint("free")])], gravity=(0, 0, 0))
    start = pbad.make_state(body, [0, 0, 0, *TILTED])
    turned, errors = forces.wrench(body, "brick", torque=(0, 0, 0.02), frame="body"), []
    pushed = pbad.with_forces(
        body, dataclasses.replace(turned, force=jnp.array([1.0, -2.0, 3.0]), torque=jnp.zeros(3), frame="world")
    )
    r = run(pushed, start, 0.05, 1.0, scheme)
    np.testing.assert_allclose(r.v[-1], [0.5, -1.0, 1.5, 0, 0, 0], atol=1e-9)
    for dt in (0.1, 0.05):
        r = run(pbad.with_forces(body, turned), start, dt, 1.0, scheme)
        errors.append(np.abs(r.v[-1, 3:] - [0, 0, 0.5]).max())
    print("wrench", scheme, errors)
    assert errors[1] < 2e-3 and errors[1] < errors[0] / 2**order * 1.2 + 1e-9
