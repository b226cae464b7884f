"""What drives joints: against MuJoCo, by hand, at rest, in large steps, in the Newton matrix, under a derivative."""

import dataclasses
import functools
import importlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOAT32, TOL, Case, assert_close
from mechanics import joint_acceleration
from motions import failed, run
from stage_cases import SCHEMES, both, draw

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, forces
from pbad_jax.cli import main
from pbad_jax.kinematics import manifold
from pbad_jax.laws.force import total_load
from pbad_jax.laws.instant import instant
from pbad_jax.laws.load import Load
from pbad_jax.math import rotations

mujoco: Any = importlib.import_module("mujoco")  # it has no types
G = 9.81


def dtype_of(x, model) -> jax.Array:
    return jnp.asarray(np.asarray(x, float), model.dtype)


def drives(model) -> pbad.Model:
    """With nothing but actuators and drives."""
    kinds = (forces.PDDrive, forces.JointForce)
    own = (f for f in model.forces if forces.is_actuator(f) or isinstance(f, kinds))
    return dataclasses.replace(model, forces=tuple(own))


@jax.jit
def load_at(model, q, v, control) -> Load:
    T = jnp.zeros((model.topology.n_links, 3, 4), q.dtype)
    return total_load(model, instant(q, v, T, T, jnp.zeros((), q.dtype), control))


# --- MuJoCo's --------------------------------------------------------------------------------------------

TRUNK = """<mujoco><worldbody><body><freejoint name="float"/><geom size="0.1" pos="0.1 0.2 0"/>
  <body pos="1 0 0" euler="20 30 40"><joint name="hip" type="ball" pos="0.1 0 0"/><geom size="0.1" pos="0.2 0 0"/>
  <body pos="0 1 0"><joint name="knee" axis="1 2 3"/><geom size="0.1" pos="0 0 0.3"/></body></body></body></worldbody>
  <option><flag contact="disable"/></option><actuator>
  <general name="hip" joint="hip" gear="1 -2 3" gainprm="1.3" biastype="affine" biasprm="0.1 -2 -0.3"/>
  <motor joint="knee" gear="3"/>
  <general jointinparent="hip" gear="-1 2 0.5" biastype="affine" biasprm="0.2 -1 -0.7" forcerange="-1 1.5"/>
  <motor joint="hip" gear="0 1 0" ctrlrange="-0.5 0.5"/>
  <position joint="hip" gear="0 0 1" kp="30" kv="2"/>
  <velocity jointinparent="hip" gear="0 0 1" kv="3"/>
  <general joint="float" gear="1 2 3 -4 5 6" gainprm="2" biastype="affine" biasprm="0.1 -2 -0.3"/>
  <general jointinparent="float" gear="0 2 -3 4 5 -6" biastype="affine" biasprm="0.1 -2 -0.3" forcerange="-9 9"/>
  <position jointinparent="knee" kp="5"/></actuator></mujoco>"""


@pytest.mark.float64
def test_actuators_of_balls_and_free_joints_are_mujocos():
    """All rotations, beyond half a turn too: MuJoCo's qfrc_actuator to 1e-10, its acceleration to 1e-9."""
    m = mujoco.MjModel.from_xml_string(TRUNK)
    model = pbad.load(TRUNK)
    assert [forces.name_of(f) for f in model.forces] == ["Gravity", "JointActuation", "VectorActuation"]
    acceleration = jax.jit(lambda q, v, u: joint_acceleration(model, q, v, 0.0, u))
    rng, clipped = np.random.default_rng(0), set()
    for _ in range(20):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:], d.ctrl[:] = (rng.normal(size=n) for n in (m.nq, m.nv, m.nu))
        mujoco.mj_normalizeQuat(m, d.qpos)
        mujoco.mj_forward(m, d)
        args = [jnp.asarray(np.array(x)) for x in (d.qpos, d.qvel, d.ctrl)]
        assert_close(load_at(drives(model), *args).tau, d.qfrc_actuator, 1e-10)
        assert_close(acceleration(*args), d.qacc, 1e-9)
        clipped |= {float(d.actuator_force[2])}
    assert {-1.0, 1.5} < clipped


@pytest.mark.float64
def test_info_says_how_much_they_drive(capsys, tmp_path):
    (tmp_path / "m.xml").write_text(TRUNK)
    assert main(["info", str(tmp_path / "m.xml")]) == 0
    lines = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    for kind, n in (("JointActuation", 2), ("VectorActuation", 7)):
        assert [kind, f"by {n} actuators", "stage"] in lines


# --- in Python -------------------------------------------------------------------------------------------

UNIT = np.eye(3)


@functools.cache
def machine() -> pbad.Model:
    """A universal, a planar and a fixed joint, one actuator of its own."""
    bodies = [
        Body("a", 1.0, (0.1, 0.2, 0.3), UNIT, joints=[Joint("universal", name="u")]),
        Body("b", 1.0, (0.1, 0.2, 0.3), UNIT, "a", joints=[Joint("planar", name="p")]),
        Body("c", 1.0, (0.1, 0.2, 0.3), UNIT, "b", joints=[Joint("fixed", name="f")]),
    ]
    return pbad.build_model(bodies, actuators=[Actuator("p", "turn", gear=(0, 0, 2.0))])


def test_gears_of_universals_and_planars():
    """Force by hand; one hinge or slide by itself stays a diagonal, several become a block."""
    law: dict[str, Any] = {"gain": 1.5, "bias": (0.1, -2.0, -0.3)}
    model = pbad.with_actuators(
        machine(), Actuator("u", gear=(2.0, -1.0), **law), Actuator("p", gear=(0.0, 3.0, 0.0), **law)
    )
    assert model.topology.actuator_names == ("turn", "u_actuator", "p_actuator") and model.nu == 3
    rng = np.random.default_rng(1)
    q, v, u = (dtype_of(rng.normal(size=n), model) for n in (5, 5, 3))
    load = load_at(drives(model), q, v, u)
    gears = np.zeros((3, 5))
    gears[0, 4], gears[1, :2], gears[2, 3] = 2.0, (2.0, -1.0), 3.0
    servo = 0.1 - 2 * gears @ np.asarray(q) - 0.3 * gears @ np.asarray(v)
    f = np.array([1, 1.5, 1.5]) * u + np.array([0, 1, 1]) * servo
    assert_close(load.tau, f @ gears, 10 * TOL["twin"])
    assert_close(load.dtau_dq, -2 * gears[1:].T @ gears[1:], 10 * TOL["twin"])
    assert_close(load.dtau_dv, -0.3 * gears[1:].T @ gears[1:], 10 * TOL["twin"])
    alone = pbad.with_actuators(machine(), Actuator("p", gear=(0.0, 3.0, 0.0), **law))
    assert load_at(drives(alone), q, v, u[:2]).dtau_dq.shape == (5,)


def test_motors_take_the_generalised_force():
    """Without actuators, as a URDF comes; the same as a constant force of that size. Its states stay valid."""
    model = pbad.chain(2, joint="ball")
    tau = np.array([1.0, -2.0, 0.5, 0.3, 0.7, -0.4])
    moved = pbad.with_actuators(model, *pbad.motors(model))
    assert moved.nu == moved.nv == 6 and moved.fingerprint == model.fingerprint
    q, v = model.q0, jnp.zeros_like(model.armature)
    none = jnp.zeros(0, model.dtype)
    pushed = pbad.with_forces(model, forces.joint_force(model, tau))
    assert_close(load_at(drives(moved), q, v, dtype_of(tau, model)).tau, tau, TOL["twin"])
    assert_close(load_at(drives(pushed), q, v, none).tau, tau, TOL["twin"])
    one = pbad.motors(machine(), ["p", "u"])
    assert [a.name for a in one] == ["p_motor0", "p_motor1", "p_motor2", "u_motor0", "u_motor1"]
    assert [a.joint for a in pbad.motors(machine())] == ["u"] * 2 + ["p"] * 3  # what is fixed has none


# --- PD drives -------------------------------------------------------------------------------------------


@functools.cache
def arm() -> pbad.Model:
    """Two links of 1 kg and 1 m along x, on balls."""
    rod = np.diag([1e-3, 1 / 12, 1 / 12])
    return pbad.build_model([
        Body("upper", 1.0, (0.5, 0, 0), rod, joints=[Joint("ball", name="shoulder")]),
        Body("lower", 1.0, (0.5, 0, 0), rod, "upper", (1.0, 0, 0), joints=[Joint("ball", name="elbow")]),
    ])  # fmt: skip


def turn(axis, angle: float) -> np.ndarray:
    return np.r_[np.cos(angle / 2), np.sin(angle / 2) * np.asarray(axis, float)]


def product(p, r) -> np.ndarray:
    return np.asarray(rotations.quaternion_product(jnp.asarray(p), jnp.asarray(r)))


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("kp, dt, start", [(200.0, 0.05, "random"), (1e5, 0.1, "reference"), (1e5, 0.1, "random")])
def test_a_driven_arm_rests_where_drive_and_weight_balance(kp, dt, start):
    """kp d = m g l cos on both balls, out of the plane of the axes; stiff, at ω dt of 19, no step fails."""
    kd, pitch = 2 * np.sqrt(kp * 8 / 3), np.array([-0.4, 0.9])
    down = [turn((0, 1, 0), x) for x in pitch]
    target = np.r_[product(turn((0, 0, 1), 0.7), down[0]), down[1]]
    model = pbad.with_forces(arm(), forces.pd_drive(arm(), ["shoulder", "elbow"], kp, kd, target=target))
    rng = np.random.default_rng(2)
    q, v = (rng.normal(size=8), rng.normal(size=6)) if start == "random" else (np.array(model.q0), np.zeros(6))
    q = (q.reshape(2, 4) / np.linalg.norm(q.reshape(2, 4), axis=1)[:, None]).ravel()
    r = run(model, pbad.make_state(model, q, v), dt, 6.0 if kp > 1e3 else 20.0, "radau2")
    d = np.asarray(manifold.difference(model, jnp.asarray(target), jnp.asarray(r.q[-1]))).reshape(2, 3)
    level = np.cos(np.cumsum(pitch + d[:, 1]))  # reach of both links
    sag = G * np.array([1.5 * level[0] + 0.5 * level[1], 0.5 * level[1]]) / kp
    print(f"drive kp={kp:g} dt={dt} {start}: {failed(r)} failed of {len(r.q)}, d/sag − 1 {d[:, 1] / sag - 1}")
    assert failed(r) == 0
    np.testing.assert_allclose(d[:, 1], sag, rtol=1e-4)
    assert np.abs(d[:, ::2]).max() < 1e-4 * sag.max() and np.abs(r.v[-1]).max() < 1e-4


def test_a_clipped_drive_pushes_with_its_limit():
    drive = forces.pd_drive(arm(), "elbow", 100.0, 0.0, target=turn((0, 0.6, 0.8), 1.0), force_limit=70.0)
    model = dataclasses.replace(arm(), forces=(drive,))
    load = load_at(model, arm().q0, jnp.zeros_like(arm().armature), jnp.zeros(0, arm().dtype))
    assert_close(load.tau, [0, 0, 0, 0, 60, 70], 10 * TOL["twin"])
    slope = np.asarray(load.dtau_dq)
    assert slope.shape == (6, 6) and slope[4].any() and not slope[5].any() and not slope[:3].any()


def test_the_length_of_a_target_does_not_matter():
    """So that a learnt one need not stay a unit quaternion."""
    drive = forces.pd_drive(arm(), None, 3.0, 0.0, target=np.r_[turn((0, 0.6, 0.8), 1.0), turn((1, 0, 0), 1e-3)])
    q, v = arm().q0, jnp.zeros_like(arm().armature)
    loads = [
        load_at(dataclasses.replace(arm(), forces=(d,)), q, v, jnp.zeros(0, q.dtype))
        for d in (drive, dataclasses.replace(drive, target=1.5 * drive.target))
    ]
    assert_close(loads[1].tau, loads[0].tau, 1e-6 if FLOAT32 else 1e-9)
    assert_close(loads[1].dtau_dq, loads[0].dtau_dq, 1e-6 if FLOAT32 else 1e-9)


@pytest.mark.thorough
@pytest.mark.float64
def test_gains_and_targets_can_be_learnt():
    """The derivative of a step by gains and target, against differences of lanes of a batch."""
    rng = np.random.default_rng(3)
    drive = forces.pd_drive(arm(), ["shoulder", "elbow"], 40.0, 5.0, target=[0.8, 0.6, 0, 0, 1, 0, 0, 0])
    model = dataclasses.replace(arm(), forces=(arm().forces[0], drive))
    step, state = pbad.make_step(pbad.Options(dt=0.05, scheme="radau1")), pbad.make_state(model, None, np.ones(6))
    way = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)) * jnp.isfinite(x), drive)
    drive, way = (dataclasses.replace(d, force_limit=jnp.full(6, x)) for d, x in ((drive, 1e3), (way, 0.0)))

    def end(h):
        changed = jax.tree.map(lambda x, y: x + h * y, drive, way)
        after, _ = step(dataclasses.replace(model, forces=(model.forces[0], changed)), state)
        return jnp.concatenate([after.q, after.v])

    _, slope = jax.jit(lambda h: jax.jvp(end, (h,), (jnp.ones(()),)))(jnp.zeros(()))
    h = 1e-3
    ends = jax.jit(jax.vmap(end))(jnp.asarray([-2 * h, -h, h, 2 * h]))
    assert_close(slope, (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h), 1e-7)
    assert np.abs(slope).min() > 1e-6


# --- in the Newton matrix --------------------------------------------------------------------------------


def test_tree_residual_and_matrix_equal_the_dense_ones():
    """Actuators and drives of balls; each makes a difference."""
    scheme, dt = SCHEMES["radau1"], jnp.asarray(0.1, jnp.result_type(float))
    model, (q, v, q_h, z, _) = draw(Case("balls", 4, "generic", "generic"), scheme, 0.4)
    law: dict[str, Any] = {"gain": 30.0, "bias": (5.0, -40.0, -9.0)}
    model = pbad.with_actuators(
        model, Actuator("j1.0", gear=(1, -2, 3), **law), Actuator("j3.0", gear=(2, 1, 1), in_parent=True, **law)
    )
    model = pbad.with_forces(model, forces.pd_drive(model, ["j0.0", "j2.0"], 50.0, 7.0))
    r, J, r_tree, J_tree, x = jax.jit(both.__wrapped__, static_argnames="scheme")(
        model, scheme, dt, q, v, q_h, z, dtype_of([0.5, -1], model)
    )
    assert_close(r_tree, r, 10 * TOL["twin"])
    assert_close(J_tree, J, 10 * TOL["twin"])
    if not FLOAT32:
        assert_close(x, np.linalg.solve(J, r), 1e-10)


# --- actuators with a state of their own ------------------------------------------------------------------

LAGGING = """<mujoco><option gravity="0 0 0" timestep="0.0001" integrator="implicitfast"/><worldbody>
  <body><joint name="a" axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 1 0 0" size=".05" contype="0"/>
  <body pos="1 0 0"><joint name="b" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 1 0 0" size=".05"/></body></body>
  </worldbody><actuator>
  <general name="slow" joint="a" dyntype="filterexact" dynprm="{}" gainprm="20" ctrlrange="-1 1" ctrllimited="true"/>
  <motor joint="b" gear="2"/><intvelocity name="sum" joint="b" kp="50" actrange="-1 .2"/></actuator>
  <keyframe><key name="begun" qpos=".1 .2" act=".5 .1" ctrl="3 .5 .4"/></keyframe></mujoco>"""


@functools.cache
def lagging() -> tuple[pbad.Model, pbad.State]:
    model = pbad.load(LAGGING.format(0.3))
    return model, pbad.make_state(model, key="begun")


CONTROL = (3.0, 0.5, 0.4)


@functools.partial(jax.jit, static_argnames="n")
def lagged(model, state, u, dt, n: int):
    step = pbad.make_step(pbad.Options(0.1, "radau2", on_failure="substep"))
    return jax.lax.scan(lambda s, _: step(model, s, u, dt), state, length=n)


@pytest.mark.float64
def test_filters_and_integrators_are_mujocos():
    """Its states and its motion: the activation to 1e-12 whatever the step, the motion to second order."""
    model, state = lagging()
    u, errors = jnp.asarray(CONTROL), []
    for n in (50, 100):
        end, _ = lagged(model, state, u, 1 / n, 100)
        m = mujoco.MjModel.from_xml_string(LAGGING.format(0.3))
        d = mujoco.MjData(m)
        mujoco.mj_resetDataKeyframe(m, d, 0)
        for _ in range(10000 * 100 // n):
            mujoco.mj_step(m, d)
        assert_close(end.activation, d.act, 1e-12)
        errors.append(float(np.abs(end.q - d.qpos).max()))
    assert errors[1] < 4e-4, errors


@pytest.mark.float64
def test_an_activation_does_not_know_how_the_time_is_cut():
    model, state = lagging()
    u = jnp.asarray(CONTROL)
    ends = [lagged(model, state, u, dt, 100)[0] for dt in (0.001, 0.002)]
    for end, time in zip(ends, (0.1, 0.2)):
        assert_close(end.activation, [1 - 0.5 * np.exp(-time / 0.3), min(0.1 + 0.4 * time, 0.2)], 1e-12)
    explicit = jax.jit(lambda s: pbad.newton_euler.make_step(0.1)(model, s, u))(state)[0]
    assert_close(explicit.activation, ends[0].activation, 1e-12)


@pytest.mark.float64
def test_a_filter_has_the_work_of_its_mean():
    """What is booked as the actuators' work, and what the step gained, meet."""
    model, state = lagging()
    step = jax.jit(pbad.make_step(pbad.Options(0.01, "radau2", account=True)))
    _, info = step(model, state, jnp.asarray(CONTROL))
    assert abs(float(info.numerical_work)) < 1e-3 * float(jnp.abs(info.work).max())


@pytest.mark.thorough
@pytest.mark.float64
def test_gradients_go_through_activations():
    model, state = lagging()
    u = jnp.asarray([[0.3, 0.1, 0.2]] * 3)
    report = pbad.check_gradients(model, state, u, options=pbad.Options(0.02, "radau2"))
    report.assert_ok()
    assert {"activation", "activation.time_constant"} <= {row.name for row in report.rows}


@pytest.mark.thorough
@pytest.mark.float64
def test_activations_are_kept_where_states_are(tmp_path):
    """Side by side, in files, and in what is linearised; a model without any has no leaf for them."""
    model, state = lagging()
    states = jax.vmap(lambda a: dataclasses.replace(state, activation=a))(jnp.asarray([[0.5, 0.1], [-0.2, 0.0]]))
    u = jnp.broadcast_to(jnp.asarray(CONTROL), (20, 3))
    options = pbad.Options(0.02, "radau2")
    batch, _ = pbad.rollout_batch(model, states, u, options=options)
    one, _ = pbad.rollout(model, state, u, options=options, progress=False)
    assert_close(batch.q[0], one.q, 1e-10)
    pbad.long_rollout(tmp_path, model, states, u[:10], options=options, every=5)
    kept, _ = pbad.long_rollout(tmp_path, model, states, u[:10], options=options, every=5)
    assert_close(kept.q, batch.q[:, :10], 1e-10)
    A = pbad.linearize(model, state, u[0], options).A
    assert A.shape == (6, 6)
    assert_close(A[4:, 4:], np.diag([np.exp(-0.02 / 0.3), 1.0]), 1e-12)
    plain = pbad.chain(2)
    assert plain.activation is None and pbad.make_state(plain).activation is None


@pytest.mark.float64
def test_bad_filters_are_named(tmp_path):
    for time in (0, -0.3):
        (tmp_path / "m.xml").write_text(LAGGING.format(time))
        with pytest.raises(pbad.ModelFileError, match=r"time_constant of actuator 'slow' is .* must be > 0"):
            pbad.load(tmp_path / "m.xml")
    chain = pbad.chain(1, joint="hinge")
    joint = chain.topology.joints[0].name
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(pbad.ModelError, match="time_constant of actuator"):
            pbad.with_actuators(chain, Actuator(joint, time_constant=bad))
    with pytest.raises(pbad.ModelError, match="give one of them"):
        pbad.with_actuators(chain, Actuator(joint, time_constant=1.0, integrates=True))
    with pytest.raises(pbad.ModelError, match="activation_range, but"):
        pbad.with_actuators(chain, Actuator(joint, activation_range=(0, 1)))
    model, state = lagging()
    with pytest.raises(pbad.StateError, match=r"activation has shape \(3,\); .* wants \(2,\).*slow, sum"):
        pbad.make_state(model, activation=np.zeros(3))
    with pytest.raises(pbad.StateError, match="activation.1. of actuator 'sum' is nan"):
        pbad.make_state(model, activation=[0.0, np.nan])
    with pytest.raises(pbad.StateError, match="activation is missing"):
        pbad.make_step(pbad.Options(0.1))(model, dataclasses.replace(state, activation=None))
