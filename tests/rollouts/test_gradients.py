"""Derivatives through steps and rollouts: against differences of the rollout itself, and against one another."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, thorough
from mechanics import joint_acceleration
from scipy.integrate import solve_ivp

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, forces
from pbad_jax.kinematics.tree import tree

DT = 0.02
TOL = {"twin": 1e-3 if FLOAT32 else 1e-11, "second": 1e-5}
SOLVED = {} if FLOAT32 else {"tolerance": 1e-14}


@functools.cache
def creature(touching: bool) -> pbad.Model:
    """Every joint type, every leaf of a model; `touching`: on the ground, at a limit, with dry friction, in a loop."""
    geoms = [Geom("capsule", (0.1, 0.2))]

    def body(name, parent, joint, geoms=()):
        inertia = np.diag([2.0, 3.0, 4.0]) * 1e-2
        place = (0.1, 0.05, -0.15)
        return Body(name, 1.0, (0.02, 0.01, -0.05), inertia, parent, place, (1, 0.1, 0.2, 0.0), [joint], geoms)

    soft = {"stiffness": 3.0, "damping": 0.3, "armature": 0.02}
    end = {"range": (-0.5, 0.1), "friction_loss": 0.1, "stick_speed": 0.3, "limit_time_constant": 0.05}
    end = end if touching else {}
    bodies = [
        body("torso", None, Joint("free", name="root"), geoms),
        body("thigh", "torso", Joint("universal", ((1, 0, 0), (0, 0.6, 0.8)), name="hip", **soft)),
        body("shin", "thigh", Joint("hinge", (0, 1, 0), name="knee", anchor=(0, 0, 0.1), reference=0.2, **soft, **end)),
        body("arm", "torso", Joint("ball", name="shoulder", **soft), geoms),
        body("hand", "arm", Joint("slide", (0.6, 0, 0.8), name="wrist", **soft)),
    ]
    drives = [
        Actuator("knee", gear=1.5, gain=4.0, bias=(0.1, -4.0, -0.2), control_range=(-1, 1)),
        Actuator("wrist", gear=0.8, gain=2.0),
    ]
    model = pbad.build_model(bodies, actuators=drives, gravity=(0.3, -0.2, -9.0), name="creature", dtype=DTYPE)
    more = [
        forces.drag(0.3),
        forces.fluid(model, normal=0.4, tangential=0.1),
        forces.wrench(model, "hand", force=(0.5, 0.2, 0.1), torque=(0.1, 0.0, -0.1)),
    ]
    if touching:
        ground = forces.half_space((0.1, 0.0, 1.0), -0.4)
        more += [
            forces.contact(model, ground, friction=0.6, stick_speed=0.1, time_constant=0.03),
            forces.connect(model, "hand", "shin", other_point=(0.0, 0.1, 0.0), stiffness=40.0, damping=1.0),
        ]
    return pbad.with_forces(model, *more)


@functools.cache
def limb(touching: bool = False) -> pbad.Model:
    """A driven hinge and a ball, with springs and drag: little to compile. `touching`: it slides on the ground."""
    inertia = np.diag([2.0, 3.0, 4.0]) * 1e-2
    soft = {"stiffness": 3.0, "damping": 0.3, "armature": 0.02}
    bodies = [
        Body("thigh", 1.0, (0.1, 0.0, -0.2), inertia, joints=[Joint("hinge", (0, 0.6, 0.8), name="hip", **soft)]),
        Body(
            "shin", 1.0, (0.0, 0.1, -0.2), inertia, "thigh", (0, 0, -0.4), joints=[Joint("ball", name="knee", **soft)],
            geoms=[Geom("capsule", (0.05, 0.2), position=(0, 0, -0.2))] if touching else [],
        ),
    ]  # fmt: skip
    drives = [Actuator("hip", gear=1.5, gain=4.0, bias=(0.1, -4.0, -0.2), control_range=(-1, 1))]
    model = pbad.build_model(bodies, actuators=drives, gravity=(0.3, -0.2, -9.0), name="limb", dtype=DTYPE)
    model = pbad.with_forces(model, forces.drag(0.3))
    if not touching:
        return model
    ground = forces.half_space((0.1, 0.0, 1.0), -0.79)
    return pbad.with_forces(model, forces.contact(model, ground, friction=0.6, stick_speed=0.1, time_constant=0.05))


MODELS = {
    "touching": lambda: creature(True),
    "free": lambda: creature(False),
    "limb": limb,
    "limb on the ground": lambda: limb(touching=True),
}


def start(model: pbad.Model, seed: int = 0) -> pbad.State:
    """A random pose, a free base near the ground, moving."""
    rng = np.random.default_rng(seed)
    q = np.asarray(model.q0, float) + 0.2 * rng.normal(size=model.nq)
    if model.topology.joints[0].type == "free":
        q[:3] = 0.0, 0.0, -0.1
    balls = tree(model.topology).ball_q
    q[balls] /= np.linalg.norm(q[balls], axis=-1, keepdims=True)
    return pbad.make_state(model, q=q, v=0.5 * rng.normal(size=model.nv))


CASES = [
    thorough("radau1", 10, "touching"), thorough("radau2", 100, "limb on the ground"),
    thorough("radau1", 1, "limb"), thorough("radau2", 10, "touching"),
    *(thorough(s, 10, "limb") for s in ("radau3", "dirk2", "dirk4", "variational")),
    *(thorough(f"legendre{K}", 10, "limb") for K in (2, 3, 4, 5)),
    *(thorough(s, 100, "limb") for s in ("radau1", "radau2", "radau3", "dirk2", "dirk4", "variational", "legendre3")),
    *(thorough(s, 100, "limb on the ground") for s in ("radau1", "radau3", "dirk2", "dirk4", "variational")),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "n_steps", "which"), CASES)
def test_gradients_of_rollouts(scheme, n_steps, which):
    """By every array of the model, its forces, the state, controls and dt: against differences, forward, reverse."""
    model = MODELS[which]()
    controls = 0.3 * np.random.default_rng(0).normal(size=(n_steps, model.nu))
    report = pbad.check_gradients(model, start(model), controls, options=pbad.Options(dt=DT, scheme=scheme))
    print(report)
    report.assert_ok()
    for row in report.rows:
        stiff = 1000 if which == "touching" else 1  # it lies in the stop
        assert abs(row.forward - row.reverse) <= stiff * TOL["twin"] * (abs(row.forward) + 1), row


def pendulums(n_steps: int, failed: str = "zero"):
    """(model, q, v (nv,)) -> the sum of squares of q at the end, and grad_ok of every step."""
    step = pbad.make_step(pbad.Options(dt=0.05, scheme="radau1", failed_gradient=failed, **SOLVED))

    def end(model, q, v):
        state = dataclasses.replace(pbad.make_state(model), q=q, v=v, history=q)
        state, info = jax.lax.scan(lambda s, _: step(model, s), state, None, length=n_steps)
        return jnp.sum(state.q**2), info.grad_ok

    return end


@pytest.mark.slow
def test_one_poisoned_lane_leaves_the_others_alone():
    """64 lanes, one of them NaN: it passes zeros, on request NaN; the others pass the same bits as without it."""
    model = pbad.chain(2, dtype=DTYPE)
    rng = np.random.default_rng(0)
    v = jnp.asarray(rng.normal(size=(64, model.nv)), DTYPE)
    q = jnp.broadcast_to(model.q0, (64, model.nq))
    sick = v.at[17, 0].set(jnp.nan)
    for failed in ("zero", "nan"):
        end = pendulums(3, failed)
        gradient = jax.jit(jax.vmap(jax.grad(end, (1, 2), has_aux=True), (None, 0, 0)))
        (q_well, v_well), ok = gradient(model, q, v)
        (q_sick, v_sick), ok_sick = gradient(model, q, sick)
        others = np.arange(64) != 17
        assert ok.all() and ok_sick[others].all() and not ok_sick[17].any()
        for well, ill in ((q_well, q_sick), (v_well, v_sick)):
            np.testing.assert_array_equal(well[others], ill[others])
        for ill in (q_sick, v_sick):
            assert np.all(np.isnan(ill[17]) if failed == "nan" else ill[17] == 0)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.float64
def test_gradient_of_a_batch_is_the_batch_of_gradients():
    model, end = pbad.chain(2, dtype=DTYPE), pendulums(3)
    v = jnp.asarray(np.random.default_rng(1).normal(size=(5, model.nv)), DTYPE)
    each = jax.jit(jax.vmap(jax.grad(lambda v: end(model, model.q0, v)[0])))(v)
    whole = jax.jit(jax.grad(lambda v: jnp.sum(jax.vmap(lambda v: end(model, model.q0, v)[0])(v))))(v)
    np.testing.assert_allclose(each, whole, rtol=0, atol=1e-6 if FLOAT32 else 1e-14)


@pytest.mark.float64
@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "scheme"), [("hinges", "radau1"), thorough("limb", "radau2"), thorough("limb", "legendre3")]
)
def test_second_derivatives(which, scheme):
    """Hessian times vector of a scanned rollout, reverse over reverse and forward over reverse."""
    model, options = limb() if which == "limb" else stiff_chain(3.0), pbad.Options(dt=DT, scheme=scheme, **SOLVED)
    state = start(model)
    v, d = state.v, jnp.asarray(np.random.default_rng(3).normal(size=model.nv), DTYPE)

    def gradient(v):
        def end(v):
            return jnp.sum(pbad.rollout(model, dataclasses.replace(state, v=v), None, 4, options)[0].q[-1] ** 4)

        return jax.grad(end)(v)

    first = jax.jit(gradient)
    h = 1e-3
    wanted = (8 * (first(v + h * d) - first(v - h * d)) - (first(v + 2 * h * d) - first(v - 2 * h * d))) / (12 * h)
    forward = jax.jit(lambda v: jax.jvp(gradient, (v,), (d,))[1])(v)
    reverse = jax.jit(jax.grad(lambda v: gradient(v) @ d))(v)
    size = np.max(np.abs(wanted))
    np.testing.assert_allclose(forward, wanted, rtol=0, atol=TOL["second"] * size)
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-10 * size)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["radau2", *map(thorough, ("radau1", "dirk2", "legendre3", "variational"))])
def test_reverse_mode_solves_nothing_again(scheme):
    """It has the loops of the rollout itself: nothing is compiled, the program is read."""
    model = pbad.chain(2, dtype=DTYPE)
    state, options = pbad.make_state(model), pbad.Options(dt=0.05, scheme=scheme)

    def end(v):
        return jnp.sum(pbad.rollout(model, dataclasses.replace(state, v=v), None, 3, options)[0].q[-1])

    forward, reverse = (str(jax.make_jaxpr(f)(state.v)).count(" while[") for f in (end, jax.grad(end)))
    assert reverse == forward > 0


def stiff_chain(stiffness: float) -> pbad.Model:
    """Two hinges, the second one sprung."""
    bodies = [Body("a", 1.0, (0, 0, -0.5), np.eye(3) * 0.1, joints=[Joint("hinge", (0, 1, 0))])]
    sprung = Joint("hinge", (1, 0, 0), stiffness=stiffness)
    bodies += [Body("b", 1.0, (0, 0, -0.5), np.eye(3) * 0.1, "a", (0, 0, -1), joints=[sprung])]
    return pbad.build_model(bodies, dtype=DTYPE)


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau2", thorough("radau1"), thorough("dirk2")])
def test_condition(scheme):
    """Of a sprung joint k dt² over its inertia, from below; where it leaves no digits the gradient is not ok."""
    step = jax.jit(pbad.make_step(pbad.Options(dt=0.05, scheme=scheme, condition=True)))
    for stiffness, ok in ((1e6, True), (1e17, False)):
        model = stiff_chain(stiffness)
        state, info = step(model, pbad.make_state(model, v=[0.1, 0.0]))
        assert info.ok and bool(info.grad_ok) == ok
        ratio = stiffness * 0.05**2 / 0.35  # inertia of the second hinge about 0.35 kg m²
        assert 0.02 * ratio < info.condition < 10 * ratio


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize(
    ("scheme", "order"), [("radau2", 3), *map(thorough, ("radau1", "dirk2", "variational"), (1, 2, 2))]
)
def test_gradients_converge_to_those_of_the_continuous_system(scheme, order):
    """By v and the second moments, against the variational equations of the accelerations, by DOP853."""
    model, end_time = pbad.chain(2, dtype=DTYPE), 0.4
    rng = np.random.default_rng(5)
    v = jnp.asarray(rng.normal(size=model.nv), DTYPE)
    dv = jnp.asarray(rng.normal(size=model.nv), DTYPE)
    change = dataclasses.replace(jax.tree.map(jnp.zeros_like, model), second_moment=0.3 * model.second_moment)
    change = dataclasses.replace(change, second_moment=change.second_moment.at[1:].multiply(-0.5))

    def flow(model, x):
        q, v = jnp.split(x, 2)
        return jnp.concatenate([v, joint_acceleration(model, q, v, 0.0, jnp.zeros(0, DTYPE))])

    both = jax.jit(lambda x, d: jnp.concatenate(jax.jvp(flow, (model, x), (change, d))))
    start, n = np.concatenate([model.q0, v, 0 * v, dv]), 2 * model.nv
    exact = solve_ivp(
        lambda _, y: np.asarray(both(y[:n], y[n:])), (0, end_time), start, "DOP853", rtol=1e-12, atol=1e-12
    )

    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme, tolerance=1e-14))

    def run(model, v, dt, n_steps):
        state = pbad.make_state(model)
        state = dataclasses.replace(state, v=v)
        state = jax.lax.fori_loop(0, n_steps, lambda _, s: step(model, s, dt=dt)[0], state)
        return jnp.concatenate([state.q, state.v])

    push = jax.jit(lambda dt, k: jax.jvp(lambda m, v: run(m, v, dt, k), (model, v), (change, dv))[1])
    errors = [np.linalg.norm(push(end_time / k, k) - exact.y[n:, -1]) for k in (8, 16, 32)]
    print(errors, np.log2(np.divide(errors[:-1], errors[1:])))
    assert np.log2(errors[1] / errors[2]) > order - 0.3
