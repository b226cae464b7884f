"""The baseline: RNEA, CRBA, ABA against Pinocchio, MuJoCo and the library's own sweeps; the orders of its methods."""

import dataclasses
import importlib
import pathlib
import xml.etree.ElementTree as ET
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, thorough
from mechanics import joint_acceleration, mass_com_inertia
from scipy.integrate import solve_ivp

import pbad_jax as pbad
from pbad_jax import Body, Joint, forces
from pbad_jax.atom import operator
from pbad_jax.dynamics import newton_euler
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.rollouts import explicit

mujoco: Any = importlib.import_module("mujoco")
pin: Any = importlib.import_module("pinocchio")
EXACT = 1e-3 if FLOAT32 else 1e-10  # relative to the largest entry
ORDERS = {"forward_euler": 1, "semi_implicit_euler": 1, "rk2": 2, "rk3": 3, "rk4": 4}


def floating_tree() -> pbad.Model:
    """A floating body with a ball, a hinge and a slide, springs, armature and drag."""
    I = np.diag([0.2, 0.25, 0.3])
    soft = {"stiffness": 2.0, "damping": 0.3, "armature": 0.05}
    bodies = [
        Body("root", 2.0, (0.1, 0, 0.05), I, joints=[Joint("free")]),
        Body("arm", 1.0, (0, 0, -0.3), I / 4, "root", (0.2, 0.1, 0), joints=[Joint("ball", name="shoulder", **soft)]),
        Body("rod", 0.5, (0, 0, 0.1), I / 9, "arm", (0, 0, -0.5), joints=[Joint("slide", (0.6, 0, 0.8), **soft)]),
        Body("leg", 0.7, (0.2, 0, 0), I / 5, "root", (-0.2, 0, 0.1), joints=[Joint("hinge", (0, 0.6, 0.8), **soft)]),
    ]
    model = pbad.build_model(bodies, dtype=DTYPE)
    push = forces.wrench(model, "rod", force=(1.0, -2.0, 0.5), torque=(0.1, 0.2, -0.3))
    return pbad.with_forces(model, forces.drag(0.4), push)


def moving(model: pbad.Model, seed: int = 0) -> pbad.State:
    rng = np.random.default_rng(seed)
    q = manifold.retract(model, model.q0, jnp.asarray(0.5 * rng.normal(size=model.nv), model.dtype))
    return pbad.make_state(model, q, rng.normal(size=model.nv))


def close(ours, theirs, tolerance=EXACT):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.mark.parametrize("make", [floating_tree, lambda: pbad.chain(8, dtype=DTYPE)], ids=["tree", "chain"])
def test_the_three_agree_with_one_another_and_with_the_library(make):
    model = make()

    @jax.jit
    def all_of_them(s, more):
        wanted = joint_acceleration(model, s.q, s.v, 0.0, jnp.zeros(model.nu, model.dtype))
        M = operator.mass(model, transforms.frames(model, s.q))
        found = [newton_euler.acceleration(model, s, algorithm=a) for a in ("aba", "crba")]
        missing = newton_euler.inverse_dynamics(model, s, wanted + more)
        return [(newton_euler.mass_matrix(model, s.q), M), *((a, wanted) for a in found), (missing, M @ more)]

    for seed in range(5):
        more = jnp.asarray(np.random.default_rng(seed).normal(size=model.nv), model.dtype)
        for found, wanted in all_of_them(moving(model, seed), more):
            close(found, wanted)


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.robots
@pytest.mark.parametrize("name", ["ant", thorough("humanoid")])
def test_mujoco(name):
    """mj_inverse and qacc of gymnasium's robots in the air, without what MuJoCo adds to the smooth dynamics.

    Drag, dry friction and limits are laws of their own with tests of their own.
    """
    path = pathlib.Path(gymnasium.__file__).parent / "envs/mujoco/assets" / f"{name}.xml"
    tree = ET.fromstring(path.read_text().replace(' coordinate="local"', ""))
    for option in tree.iter("option"):
        for key in ("density", "viscosity"):
            option.attrib.pop(key, None)
    for joint in (j for j in tree.iter("joint") if "coef" not in j.attrib):  # those of tendons have one
        joint.attrib.pop("range", None)
        joint.set("limited", "false")
    text = ET.tostring(tree, encoding="unicode")
    model, m = pbad.load(text, body_contact=False), mujoco.MjModel.from_xml_string(text)
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    d, rng = mujoco.MjData(m), np.random.default_rng(4)
    mujoco.mj_integratePos(m, d.qpos, 0.6 * rng.normal(size=m.nv), 1.0)
    if model.topology.joints[0].type == "free":
        d.qpos[2] += 50.0  # no contact
    d.qvel[:], d.ctrl[:] = rng.normal(size=m.nv), 0.3 * rng.normal(size=m.nu)
    mujoco.mj_forward(m, d)
    state = pbad.make_state(model, d.qpos.copy(), d.qvel.copy())
    for algorithm in ("aba", "crba"):
        close(newton_euler.acceleration(model, state, jnp.asarray(d.ctrl), algorithm=algorithm), d.qacc)
    d.qacc[:] = rng.normal(size=m.nv)
    mujoco.mj_inverse(m, d)
    wanted = d.qfrc_inverse - d.qfrc_actuator
    close(newton_euler.inverse_dynamics(model, state, jnp.asarray(d.qacc), jnp.asarray(d.ctrl)), wanted)


def pinocchios(model: pbad.Model):
    """The same numbers as a model of Pinocchio, link by link."""
    p, joints = pin.Model(), {}
    assert not np.any(model.anchor)
    for i, (kind, up) in enumerate(zip(model.topology.link_type, model.topology.link_parent)):
        axis = np.array(model.axis[i])
        kinds = {"hinge": pin.JointModelRevoluteUnaligned, "slide": pin.JointModelPrismaticUnaligned}
        joint = pin.JointModelSpherical() if kind == "ball" else kinds[kind](axis)
        L = np.array(model.placement[i])
        joints[i] = p.addJoint(joints.get(up, 0), joint, pin.SE3(L[:, :3], L[:, 3]), f"link {i}")
        mass, com, inertia = mass_com_inertia(np.array(model.second_moment[i]))
        p.appendBodyToJoint(joints[i], pin.Inertia(mass, com, inertia), pin.SE3.Identity())
        v = p.joints[joints[i]].idx_v
        p.armature[v : v + p.joints[joints[i]].nv] = np.array(model.armature)[tree(model.topology).dof_link == i]
    p.gravity.linear = np.array(model.gravity)
    return p


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("make", [floating_tree, thorough(lambda: pbad.chain(8))], ids=["tree", "chain"])
def test_pinocchio(make):
    """RNEA, CRBA and ABA, under gravity alone."""
    model = make()
    model = dataclasses.replace(model, forces=tuple(f for f in model.forces if type(f).__name__ == "Gravity"))
    p = pinocchios(model)
    data, state = p.createData(), moving(model, 3)
    links = tree(model.topology).dof_link
    order = np.argsort(links, kind="stable")  # Pinocchio's degrees of freedom are in the order of the links
    q = np.zeros(p.nq)
    for i, joint in enumerate(list(p.joints)[1:]):
        own = np.array(state.q)[model.topology.link_q[i] :][: joint.nq]
        q[joint.idx_q : joint.idx_q + joint.nq] = np.roll(own, -1) if joint.nq == 4 else own
    v, a = np.array(state.v)[order], np.random.default_rng(1).normal(size=model.nv)
    M = pin.crba(p, data, q)
    M = np.triu(M) + np.triu(M, 1).T
    close(np.array(newton_euler.mass_matrix(model, state.q))[np.ix_(order, order)], M)
    ours = newton_euler.inverse_dynamics(model, state, jnp.zeros(model.nv).at[order].set(a))
    close(np.array(ours)[order], pin.rnea(p, data, q, v, a))
    for algorithm in ("aba", "crba"):
        close(
            np.array(newton_euler.acceleration(model, state, algorithm=algorithm))[order],
            pin.aba(p, data, q, v, np.zeros(p.nv)),
        )


def frozen_in_time(model: pbad.Model, start: pbad.State, end: float):
    """(q, v) at the end, by DOP853 on the increments of a joint layout without balls."""

    @jax.jit
    def rate(_, x):
        q, v = jnp.split(x, 2)
        return jnp.concatenate([v, newton_euler.acceleration(model, dataclasses.replace(start, q=q, v=v))])

    out = solve_ivp(rate, (0, end), np.concatenate([start.q, start.v]), "DOP853", rtol=1e-13, atol=1e-13)
    return np.split(out.y[:, -1], 2)


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("method", [m if m == "rk4" else thorough(m) for m in ORDERS])
def test_order(method):
    """rk4 against DOP853 on a chain; all on the floating tree, whose ball joints DOP853 does not know, against rk4."""
    for model in (pbad.chain(2), floating_tree()) if method == "rk4" else (floating_tree(),):
        start, end = moving(model), 0.32
        if model.nq == model.nv:
            wanted = frozen_in_time(model, start, end)
        else:
            path, _ = explicit.rollout(model, start, None, 512, dt=end / 512)
            wanted = path.q[-1], path.v[-1]
        errors = []
        for steps in (16, 32):
            path, info = explicit.rollout(model, start, None, 32, dt=end / steps, method=method)  # one program
            assert info.ok
            delta = manifold.difference(model, jnp.asarray(wanted[0]), path.q[steps - 1])
            errors.append(np.linalg.norm(np.concatenate([delta, path.v[steps - 1] - wanted[1]])))
        assert abs(np.log2(errors[0] / errors[1]) - ORDERS[method]) < 0.35, errors


@pytest.mark.slow
@pytest.mark.float64
def test_it_tends_to_where_the_library_does():
    """The same model, half a second: rk4 and radau(3) in small steps."""
    model = floating_tree()
    start = moving(model)
    theirs, _ = explicit.rollout(model, start, None, 500, dt=0.001)
    ours, info = pbad.rollout(model, start, None, 50, pbad.Options(0.01, "radau3"))
    assert info.ok
    np.testing.assert_allclose(ours.q[-1], theirs.q[-1], atol=1e-6)
    np.testing.assert_allclose(ours.v[-1], theirs.v[-1], atol=1e-5)


@pytest.mark.slow
def test_batches_and_gradients():
    model = pbad.chain(2, dtype=DTYPE)
    step = explicit.make_step(0.01, "rk3", algorithm="aba")
    starts = jax.vmap(lambda v: pbad.make_state(model, v=v))(
        jnp.asarray(np.random.default_rng(0).normal(size=(5, model.nv)), DTYPE)
    )
    both, info = jax.jit(jax.vmap(step, (None, 0)))(model, starts)
    assert info.ok.all()
    one = jax.jit(step)
    for i in range(5):
        alone, _ = one(model, jax.tree.map(lambda x, i=i: x[i], starts))
        np.testing.assert_allclose(both.q[i], alone.q, atol=1e-6 if FLOAT32 else 1e-14)

    def end(mass):
        heavy = dataclasses.replace(model, second_moment=mass * model.second_moment, armature=0.1 + model.armature)
        return jnp.sum(step(heavy, jax.tree.map(lambda x: x[0], starts))[0].v ** 2)

    h = 1e-2 if FLOAT32 else 1e-5
    value = jax.jit(end)
    wanted = (value(1 + h) - value(1 - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(end))(1.0), wanted, rtol=5e-2 if FLOAT32 else 1e-6)


def test_what_blows_up_is_kept_and_said():
    """Forward Euler at 0.2 s: the last good state stays, the step says NONFINITE_EVAL, later ones FROZEN."""
    model = pbad.chain(5, dtype=DTYPE)
    state = pbad.make_state(model, q=0.5 * np.ones(model.nq), v=np.ones(model.nv))
    path, info = explicit.rollout(model, state, None, 200, dt=0.2, method="forward_euler")
    bad = int(info.first_bad_step)
    assert 0 < bad < 199
    assert np.isfinite(path.q).all() and np.isfinite(path.v).all()
    assert info.status[bad] == pbad.Status.NONFINITE_EVAL and (info.status[bad + 1 :] == pbad.Status.FROZEN).all()
    clock = path.rest["time"]
    assert (path.q[bad:] == path.q[bad - 1 : bad]).all() and clock[-1] == clock[bad - 1]
    with pytest.raises(pbad.StepError, match="NONFINITE_EVAL"):
        info.assert_ok()
    sick = dataclasses.replace(state, v=state.v.at[0].set(jnp.nan))
    _, info = explicit.make_step(0.01)(model, sick)
    assert info.status == pbad.Status.NONFINITE_INPUT


def test_bad_calls():
    model = pbad.chain(2, dtype=DTYPE)
    state = pbad.make_state(model)
    for call, words in (
        (lambda: explicit.make_step(-1.0), "dt is -1.0; it must be positive"),
        (lambda: explicit.make_step(0.1, "rk5"), "method is 'rk5'; choose one of 'forward_euler'"),
        (lambda: explicit.make_step(0.1, algorithm="rnea"), "algorithm is 'rnea'"),
        (lambda: newton_euler.acceleration(model, state, algorithm="lu"), "algorithm is 'lu'"),
        (lambda: explicit.rollout(model, state, dt=0.1), "n_steps"),
    ):
        with pytest.raises(pbad.OptionError, match=words):
            call()
    with pytest.raises(pbad.StateError, match=r"acceleration has shape \(3,\)"):
        newton_euler.inverse_dynamics(model, state, jnp.zeros(3))
    with pytest.raises(pbad.StateError, match="fingerprint"):
        newton_euler.acceleration(pbad.chain(3, dtype=DTYPE), state)
