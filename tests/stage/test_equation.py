"""The stage equation: residual against a dense autodiff definition, matrix against the Jacobian of the residual.

The dense definition is design.md section 1, with every derivative by autodiff of helpers.dense_transforms. The
accelerations of the continuous system are judged by MuJoCo, from the same numbers written as MJCF.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    DTYPE,
    FLOAT32,
    POSES,
    TOL,
    Case,
    assert_close,
    changed,
    dense_jet,
    dense_transforms,
    error,
    many,
    random_model,
    random_q,
    slow,
    thorough,
)
from hypothesis import given
from hypothesis import strategies as st
from mechanics import joint_acceleration
from mjcf import mujoco, mujoco_model
from stage_cases import SCHEMES, ball_slices, draw, library, retracted

import pbad_jax as pbad
from pbad_jax.atom import operator
from pbad_jax.forces import BallSpring, actuators, is_actuator, name_of
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.laws.force import total_load
from pbad_jax.laws.instant import instant
from pbad_jax.stage.coasting import coasting
from pbad_jax.stage.start import step_start


def at_rest(model, q, v, u):
    """An instant for forces that do not ask for the links' rates."""
    T = transforms.transforms(model, q)
    return instant(q, v, T, jnp.zeros_like(T), jnp.zeros((), DTYPE), u)


def scalar_pairs(model):
    t = model.topology
    return [(x, d) for kind, x, d in zip(t.link_type, t.link_q, t.link_v) if kind in ("hinge", "slide")]


def log_rotation(p):
    """Rotation vector of a unit quaternion away from the identity, textbook."""
    p = jnp.where(p[0] < 0, -p, p)
    s = jnp.sqrt(jnp.sum(p[1:] ** 2))
    return 2 * jnp.arctan2(s, p[0]) * p[1:] / s


def conjugate_times(p, r):
    """p* ⊗ r."""
    a, u, b, v = p[0], -p[1:], r[0], r[1:]
    return jnp.concatenate([jnp.array([a * b - u @ v]), a * v + b * u + jnp.cross(u, v)])


def dense_quaternion_exp(w):
    """Taylor series, right to fourth order at w = 0."""
    n = w @ w
    return jnp.concatenate([jnp.array([1 - n / 8 + n * n / 384]), w * (0.5 - n / 48)])


def conjugate(p):
    return p * jnp.array([1.0, -1, -1, -1], p.dtype)


@jax.jit
def spring_torque(rest, p, stiffness):
    """−∂/∂δ ½ k |log(rest* ⊗ p ⊗ exp δ)|² at δ = 0, by autodiff of the energy."""
    here = conjugate(conjugate_times(rest, p))

    def energy(d):
        return 0.5 * stiffness * jnp.sum(log_rotation(conjugate_times(here, dense_quaternion_exp(d))) ** 2)

    return -jax.grad(energy)(jnp.zeros(3, p.dtype))


def dense_residual(model, scheme, dt, q_k, v, q_h, q_stages, control, coast=None):
    """dt² r_i = <∂T(q_i), A_i> + armature a_i − dt² τ_i in numpy, with T and ∂T by autodiff (helpers); (m,nv).

    coast: of `coasting` (test_coasting.py), what the table has to say about T − w T_c instead of T.
    """
    jets = [[np.asarray(x, float) for x in dense_jet(model, q)[:2]] for q in (q_k, q_h, *q_stages)]
    (T_k, dT_k), (T_h, _) = jets[:2]
    M, armature = np.asarray(model.second_moment, float), np.asarray(model.armature, float)
    q_k, v, q_h = (np.asarray(x, float) for x in (q_k, v, q_h))
    q_stages = [np.asarray(q, float) for q in q_stages]
    stiffness, rest = stiffness_and_rest(model)
    dampers = next(f.law for f in model.forces if name_of(f) == "JointDamping")
    drives = next(iter(actuators(model)), None)
    history = (scheme.c, scheme.d) if scheme.has_history else ((0.0,) * scheme.m,) * 2
    gravity = np.zeros_like(T_k)
    for l in range(len(M)):  # ∂/∂T of −g · (T [∫ρp; m])
        gravity[l] = -np.outer(np.asarray(model.gravity, float), M[l, :, 3])
    out = []
    for i, q_i in enumerate(q_stages):
        field = sum(scheme.C[i][j] * (jet[0] - T_k) for j, jet in enumerate(jets[2:]))
        if coast is not None:
            field = field + less_table(scheme.C[i], scheme.e[i], coast.accel.T[i], coast.delta.T, coast.begun.T)
        field = (field + scheme.e[i] * dt * dT_k @ v + history[0][i] * (T_h - T_k)) @ M + dt**2 * gravity

        def table(weights, h, e, exact, i=i):
            """The scheme's table on the joint coordinates; a ball's rotation matrix projected on its tangent."""
            beyond = 0 * exact if coast is None else less_table(weights, e, exact, coast.delta.joint, coast.begun.joint)
            balls = beyond[len(scalar_pairs(model)) :].reshape(-1, 3, 3)
            value = np.zeros(model.nv)
            for x, y in scalar_pairs(model):
                value[y] = sum(w * (q[x] - q_k[x]) for w, q in zip(weights, q_stages)) + h * (q_h[x] - q_k[x])
                value[y] += e * dt * v[y]
            for ball, (x, y) in enumerate(ball_slices(model)):
                R_k = textbook_rotation(q_k[x : x + 4])
                relative = [R_k.T @ textbook_rotation(q[x : x + 4]) for q in (*q_stages, q_h)]
                total = sum(w * (R - np.eye(3)) for w, R in zip([*weights, h], relative))
                total = total + e * dt * np.cross(np.eye(3), v[y : y + 3]) + balls[ball]
                for k, unit in enumerate(np.eye(3)):  # ½ <R_i [e_k], Φ>
                    value[y + k] = 0.5 * np.sum(relative[i] @ np.cross(np.eye(3), unit) * total)
            return value

        exact = [np.zeros(len(scalar_pairs(model)) + 9 * len(ball_slices(model)))] * 2
        if coast is not None:
            exact = coast.rate.joint[i], coast.accel.joint[i]
        rate = table(scheme.D[i], history[1][i], 0.0, exact[0]) / dt
        tau = -np.asarray(dampers.coefficient, float) * rate
        for x, y in scalar_pairs(model):
            tau[y] -= stiffness[y] * (q_i[x] - rest[x])
        for x, y in ball_slices(model):
            args = (jnp.asarray(z, DTYPE) for z in (rest[x : x + 4], q_i[x : x + 4], stiffness[y]))
            tau[y : y + 3] += spring_torque(*args)
        if drives is not None:
            law = drives.law
            for k, (x, y) in enumerate(zip(drives.length.q_index, drives.length.v_index)):
                g, b = float(law.gear[k]), np.asarray(law.bias[k], float)
                force = float(law.gain[k] * control[k]) + b[0] + b[1] * g * q_i[x] + b[2] * g * rate[y]
                tau[y] += g * force
        accel = table(scheme.C[i], history[0][i], scheme.e[i], exact[1])
        out.append(np.einsum("lijx,lij->x", jets[2 + i][1], field) - dt**2 * tau + armature * accel)
    return np.stack(out)


def less_table(weights, e, exact, delta, begun):
    """What a motion has beyond what a table's row makes of it."""
    return exact - sum(w * x for w, x in zip(weights, delta)) - e * begun


def stiffness_and_rest(model) -> tuple[np.ndarray, np.ndarray]:
    """Of all springs, (nv,) and (nq,)."""
    k, rest = np.zeros(model.nv), np.zeros(model.nq)
    for f in model.forces:
        if name_of(f) == "JointSpring":
            k += np.asarray(f.law.stiffness)
            for x, y in scalar_pairs(model):
                rest[x] = f.law.rest[y]
        elif isinstance(f, BallSpring):
            for i, (x, y) in enumerate(ball_slices(model)):
                k[y : y + 3], rest[x : x + 4] = f.stiffness[i], f.rest[i]
    return k, rest


def textbook_rotation(p):
    w, u = p[0], p[1:]
    return (w * w - u @ u) * np.eye(3) + 2 * np.outer(u, u) + 2 * w * np.cross(np.eye(3), u)


def dense(model, scheme, dt, q, v, q_h, z, control):
    q_stages = [composed(model, q, z_i) for z_i in z]
    coast = None if scheme.has_history else jax.tree.map(np.asarray, coasting_of(model, scheme.nodes, q, v, dt))
    return dense_residual(model, scheme, float(dt), q, v, q_h, q_stages, control, coast)


@functools.partial(jax.jit, static_argnames="nodes")
def coasting_of(model, nodes, q, v, dt):
    start = step_start(model, pbad.make_state(model, q, v), jnp.zeros(model.nu, model.dtype))
    return coasting(model, start, dt, jnp.asarray(nodes, model.dtype))


composed = jax.jit(manifold.compose_increment)


def check(case, scheme, step, dt):
    model, (q, v, q_h, z, control) = draw(case, scheme, step)
    if case.pose_a != "generic" and not FLOAT32:  # the dense log of the springs is singular at their rest
        rest = jnp.asarray(stiffness_and_rest(model)[1], DTYPE)
        turned = np.asarray(retracted(model, rest, jnp.linspace(0.2, 0.4, model.nv, dtype=DTYPE)))
        balls = jnp.asarray([turned[x : x + 4] for x, _ in ball_slices(model)], DTYPE)
        alone = np.zeros(model.nv)
        for x, y in scalar_pairs(model):
            alone[y] = turned[x]
        rests = {"JointSpring": jnp.asarray(alone, DTYPE), "BallSpring": balls}
        forces = (changed(f, rest=rests[name_of(f)]) if name_of(f) in rests else f for f in model.forces)
        model = dataclasses.replace(model, forces=tuple(forces))
    dt = jnp.asarray(dt, DTYPE)
    r, J, judge = library(model, scheme, dt, q, v, q_h, z, control, "parallel")
    want = dense(model, scheme, dt, q, v, q_h, z, control).reshape(-1)
    # T − T_k of the dense definition cancels: rounding of |T|, not of the increment
    size = np.abs(np.asarray(judge)).max() * max(1.0, step)
    assert np.abs(np.asarray(r) - np.asarray(want)).max() <= TOL["matrix"] * max(size, np.abs(want).max()), "residual"
    assert_close(J, judge, TOL["matrix"], f"matrix, {scheme.name}")
    for i in range(scheme.m):  # blocks for themselves
        for j in range(scheme.m):
            block = (slice(i * model.nv, (i + 1) * model.nv), slice(j * model.nv, (j + 1) * model.nv))
            assert_close(J[block], judge[block], 100 * TOL["matrix"], f"block {i},{j}")
    return model, (dt, q, v, q_h, z, control), r, J


# one compilation a row; more in the slow tests
ROWS = (
    ("radau1", "free"), slow("radau2", "free"), thorough("radau2", "many joints"), ("radau3", "slides and hinges"),
    ("legendre2", "many joints"), thorough("legendre3", "free"),
)  # fmt: skip


@pytest.mark.parametrize("name, topology", ROWS)
@many(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    pose=st.sampled_from(POSES),
    step=st.sampled_from([0.01, 0.3, 2.0]),
    dt=st.sampled_from([1e-2, 0.1, 1.0]),
)
def test_residual_and_matrix(name, topology, seed, pose, step, dt):
    check(Case(topology, seed, pose, "generic"), SCHEMES[name], step, dt)


LONG = ("twelve", "balls", "three roots", "massless", "many joints")
KEPT = [("radau2", "three roots"), ("radau2", "massless")]  # in CI


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, topology",
    [
        *KEPT,
        *(thorough(*case) for case in itertools.product(SCHEMES, LONG) if case not in KEPT),
    ],
)
@many(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), pose=st.sampled_from(POSES), step=st.sampled_from([0.01, 0.3, 2.0]))
def test_residual_and_matrix_long(name, topology, seed, pose, step):
    check(Case(topology, seed, pose, "generic"), SCHEMES[name], step, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name, topology", [("radau2", "free"), thorough("legendre2", "many joints")])
def test_twins_agree(name, topology):
    scheme = SCHEMES[name]
    for seed in range(4):
        model, (q, v, q_h, z, control) = draw(Case(topology, seed, "special", "generic"), scheme, 0.3)
        args = (model, scheme, jnp.asarray(0.1, DTYPE), q, v, q_h, z, control)
        r, J, _ = library(*args, "parallel")
        r_serial, J_serial, _ = library(*args, "serial")
        assert_close(J_serial, J, TOL["twin"] * 10)
        assert np.abs(np.asarray(r) - np.asarray(r_serial)).max() <= TOL["twin"] * 10 * max(
            np.abs(np.asarray(J)).max(), np.abs(np.asarray(r)).max()
        )


@pytest.mark.parametrize("name", ["radau1", pytest.param("legendre2", marks=pytest.mark.slow)])
def test_matrix_of_a_conservative_one_stage_step_is_symmetric(name):
    """Without damping and velocity servos, on joints without armature: the Hessian of the paper's energy."""
    scheme = SCHEMES[name]
    model, (q, v, q_h, z, control) = draw(Case("free", 5, "generic", "generic"), scheme, 0.4)
    springs = tuple(f for f in model.forces if not is_actuator(f) and name_of(f) != "JointDamping")
    model = dataclasses.replace(model, forces=springs, armature=jnp.zeros_like(model.armature))
    _, J, judge = library(model, scheme, jnp.asarray(0.3, DTYPE), q, v, q_h, z, control, "parallel")
    assert_close(J, judge, TOL["matrix"])
    assert_close(J, J.T, TOL["symmetric"])


@jax.jit
def load_and_slopes(model, q, v, u):
    def at(delta, w):
        x = manifold.retract(model, q, delta)
        return total_load(model, at_rest(model, x, v + w, u))

    zero = jnp.zeros(model.nv, DTYPE)
    load = at(zero, zero)
    return load, jax.jacfwd(lambda d: at(d, zero).tau)(zero), jax.jacfwd(lambda w: at(zero, w).tau)(zero)


@pytest.mark.parametrize("pose", ["generic", "identity", "rest", "tiny", "half turn"])
@pytest.mark.parametrize("topology", ["free"])
def test_force_derivatives(topology, pose):
    """∂τ/∂q along q ⊕ δ and ∂τ/∂v against jacfwd; at a spring's rest and a half turn from it too."""
    model, rng = random_model(topology, 77), np.random.default_rng(78)
    rest = jnp.asarray(stiffness_and_rest(model)[1], DTYPE)
    q = jnp.asarray(random_q(model, rng), DTYPE)
    turn = {"rest": 0.0, "tiny": 1e-9, "half turn": np.pi * (1 - 1e-6)}.get(pose)
    if turn is not None:
        direction = np.zeros(model.nv)
        for _, y in ball_slices(model):
            axis = rng.normal(size=3)
            direction[y : y + 3] = axis / np.linalg.norm(axis)
        q = manifold.retract(model, rest, jnp.asarray(turn * direction, DTYPE))
    if pose == "identity":
        q = jnp.asarray(random_q(model, rng, "identity"), DTYPE)
    v, u = jnp.asarray(rng.normal(size=model.nv), DTYPE), jnp.asarray(rng.normal(size=model.nu), DTYPE)

    load, by_q, by_v = load_and_slopes(model, q, v, u)

    def full(d):
        return np.diag(d) if d.ndim == 1 else d

    assert load.tau is not None and np.all(np.isfinite(load.tau))
    tolerance = 1e-3 if FLOAT32 else (1e-8 if pose == "half turn" else 1e-12)  # autodiff of log near π is the rough one
    assert_close(full(load.dtau_dq), by_q, tolerance, "∂τ/∂q")
    assert_close(full(load.dtau_dv), by_v, TOL["autodiff"], "∂τ/∂v")


def test_clipped_actuators_have_no_slope():
    body = pbad.Body("b", 1.0, inertia=np.eye(3), joints=[pbad.Joint("hinge", name="h")])
    drive = pbad.Actuator("h", gear=2.0, gain=3.0, bias=(0.5, -1.0, -0.2), control_range=(-1, 1), force_range=(-2, 2))
    model = pbad.build_model([body], actuators=[drive])

    @jax.jit
    def load(q, v, u):
        x, w, c = (jnp.asarray([y], DTYPE) for y in (q, v, u))
        return total_load(model, at_rest(model, x, w, c))

    # by hand: f = 3 clip(u) + 0.5 − 1·(2q) − 0.2·(2v), τ = 2 clip(f)
    inside = load(0.7, 0.1, 0.2)
    assert_close(inside.tau, [2 * (0.6 + 0.5 - 1.4 - 0.04)], 1e-6)
    assert_close(inside.dtau_dq, [-4.0], 1e-6)
    assert_close(inside.dtau_dv, [-0.8], 1e-6)
    clipped = load(0.0, 0.0, 1e30)
    assert_close(clipped.tau, [4.0], 1e-6)
    assert_close(clipped.dtau_dq, [0.0], 0.0)
    assert_close(clipped.dtau_dv, [0.0], 0.0)


# --- the continuous system: MuJoCo is the judge -----------------------------------------------------------


@jax.jit
def continuous(model, q, v, u):
    zero = jnp.zeros((), q.dtype)
    poses = transforms.forward_kinematics(model, q)
    mass = operator.mass(model, transforms.frames(model, q))
    state = dataclasses.replace(pbad.make_state(model), q=q, v=v)
    return {
        "qacc": joint_acceleration(model, q, v, zero, u),
        "serial": joint_acceleration(model, q, v, zero, u, "serial"),
        "mass": mass,
        "energy": pbad.kinetic_energy(model, state),
        "momentum": (pbad.linear_momentum(model, state), pbad.angular_momentum(model, state)),
        "poses": poses,
    }


@pytest.mark.parametrize(
    "topology",
    [
        "slides and hinges",
        "balls",
        "free",
        *(thorough("one hinge"), thorough("hinge chain"), slow("universals")),
    ],
)
def test_acceleration_against_mujoco(topology):
    worst = 0.0
    for seed in range(5):
        model, mj = mujoco_model(topology, seed)
        data, rng = mujoco.MjData(mj), np.random.default_rng(seed)
        q, v, u = random_q(model, rng), rng.normal(size=model.nv), rng.normal(size=model.nu)
        if FLOAT32:
            q = random_q(model, rng, "identity")
        q, v, u = (jnp.asarray(x, DTYPE) for x in (q, v, u))
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, v, u
        mujoco.mj_forward(mj, data)
        full = np.zeros((mj.nv, mj.nv))
        mujoco.mj_fullM(mj, data, full) if mujoco.mj_versionString() >= "4" else mujoco.mj_fullM(mj, full, data.qM)
        mujoco.mj_energyVel(mj, data)
        mujoco.mj_subtreeVel(mj, data)
        got = continuous(model, q, v, u)
        assert_close(got["poses"].position, data.xpos[1:], TOL["aba"] / 10, "body positions")
        assert_close(got["poses"].rotation, data.xmat[1:].reshape(-1, 3, 3), TOL["aba"] / 10, "body rotations")
        assert_close(got["mass"], full, TOL["aba"] / 10, "mass matrix")
        assert_close(got["energy"], data.energy[1], TOL["aba"] / 10, "kinetic energy")
        assert_close(got["momentum"][0], data.subtree_linvel[0] * mj.body_subtreemass[0], TOL["aba"], "momentum")
        # accelerations in the norm of the mass matrix: light links on heavy ones are ill-conditioned
        gap = np.asarray(got["qacc"], float) - data.qacc_smooth
        energy = np.sqrt(gap @ full @ gap / (data.qacc_smooth @ full @ data.qacc_smooth))
        worst = max(worst, energy)
        assert energy <= TOL["aba"], f"acceleration: {energy:.3g}"
        assert error(got["serial"], got["qacc"]) <= TOL["aba"]
    assert worst > 0


def test_lagrange_equations_of_a_branched_tree():
    """d/dt ∂K/∂v − ∂K/∂q = −∂U/∂q + τ by autodiff of the kinetic energy; scalar joints only, massless links too."""
    topology = "slides and hinges"
    model, rng = random_model(topology, 91, spread=1), np.random.default_rng(92)
    q, v = jnp.asarray(0.3 * random_q(model, rng), DTYPE), jnp.asarray(rng.normal(size=model.nv), DTYPE)
    u = jnp.asarray(rng.normal(size=model.nu), DTYPE)
    zero = jnp.zeros(model.nv, DTYPE)

    def kinetic(q, v):
        V = jax.jacfwd(lambda d: dense_transforms(model, q, d))(zero) @ v
        return 0.5 * jnp.sum((V @ model.second_moment) * V) + 0.5 * model.armature @ v**2

    def potential(q):
        first = dense_transforms(model, q, zero) @ model.second_moment[:, :, 3:]
        return -jnp.sum(first[..., 0] @ model.gravity)

    @jax.jit
    def lagrange():
        mass = jax.hessian(kinetic, 1)(q, v)
        coriolis = jax.jacfwd(jax.grad(kinetic, 1), 0)(q, v) @ v - jax.grad(kinetic, 0)(q, v)
        tau = total_load(model, at_rest(model, q, v, u)).tau
        return mass, jnp.linalg.solve(mass, tau - jax.grad(potential)(q) - coriolis)

    mass, want = lagrange()
    got = continuous(model, q, v, u)
    assert_close(got["mass"], mass, TOL["autodiff"], "mass matrix")
    assert_close(got["qacc"], want, TOL["aba"], "acceleration")
