"""Stops: MuJoCo's own law of a joint's ends, against MuJoCo, autodiff and an account of energy."""

import dataclasses
import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32
from mechanics import residual_and_matrix

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.errors import ModelError, OptionError
from pbad_jax.kinematics import manifold
from pbad_jax.laws.force import instant
from pbad_jax.stage import equation
from pbad_jax.stage.start import step_start

HINGE = """
<mujoco>
  <compiler angle="degree"/>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody><body>
    <joint name="j" axis="0 1 0" range="-30 30" limited="true" armature="1" damping="1" {solref}/>
    <geom type="capsule" size="0.08" fromto="0 0 0 0.4 0 0" density="5"/>
  </body></worldbody>
  <actuator><motor joint="j" gear="150"/></actuator>
</mujoco>
"""
TWO = """
<mujoco>
  <worldbody><body>
    <joint name="lift" type="slide" axis="0 0 1" range="-0.2 0.1" limited="true"/>
    <geom size="0.1" mass="2"/>
    <body pos="0.3 0 0">
      <joint name="turn" axis="0 1 0" range="-40 20" limited="true" damping="0.1"/>
      <geom type="capsule" size="0.03" fromto="0 0 0 0.4 0 0" mass="0.5"/>
      <body pos="0.4 0 0"><joint name="ball" type="ball"/><geom size="0.05" pos="0.1 0 0" mass="0.3"/></body>
    </body>
  </body></worldbody>
</mujoco>
"""
CASES = {
    "a blow": (0.5, 15.0, 0.0),
    "driven in": (0.5, 5.0, 1.0),
    "driven out": (0.62, 0.0, -1.0),
    "let go": (0.55, 0.0, 0.0),
}


@functools.cache
def hinge(solref=""):
    return pbad.load(HINGE.format(solref=solref), limits="MuJoCo", dtype=DTYPE)


@functools.cache
def two():
    return pbad.load(TWO, limits="MuJoCo", dtype=DTYPE)


def mujoco_path(solref: str, q: float, v: float, u: float) -> np.ndarray:
    """q every 10 ms, by MuJoCo in steps of 0.02 ms."""
    mujoco: Any = importlib.import_module("mujoco")
    m = mujoco.MjModel.from_xml_string(HINGE.format(solref=solref))
    d, path = mujoco.MjData(m), []
    refsafe = max(m.jnt_solref[0, 0], 2 * m.opt.timestep)  # of the file's step, not of this one
    if m.jnt_solref[0, 0] > 0:
        m.jnt_solref[0, 0] = refsafe
    m.opt.timestep, d.qpos[0], d.qvel[0], d.ctrl[0] = 2e-5, q, v, u
    for _ in range(5):
        mujoco.mj_step(m, d, 500)
        path.append(float(d.qpos[0]))
    return np.array(path)


@functools.partial(jax.jit, static_argnames=("options", "n"))
def paths(model, q, v, u, options, n):
    """q (cases, 5) every 10 ms, iterations and statuses."""

    def one(q, v, u):
        state = pbad.make_state(model, q[None], v[None])
        traj, info = pbad.rollout(model, state, jnp.broadcast_to(u, (n, 1)), options=options)
        return traj.q[-n:, 0], info.iterations, info.status

    return jax.vmap(one)(q, v, u)


SOLREFS = ("", 'solreflimit="0.05 0.4"', 'solreflimit="-3000 -40" solimplimit="0.8 0.9 0.001"')
HOW = [("radau2", 500, 5e-4, solref) for solref in SOLREFS] + [("radau1", 500, 2e-3, ""), ("radau2", 5, 0.03, "")]


@pytest.mark.float64
@pytest.mark.parametrize(("scheme", "n", "within", "solref"), HOW)
def test_what_runs_into_an_end_moves_as_in_mujoco(scheme, n, within, solref, no_log_file):
    """In small steps as MuJoCo in small steps; in the file's own steps of 10 ms near it, and nothing fails."""
    q, v, u = (jnp.asarray(x, DTYPE) for x in np.transpose(list(CASES.values())))
    path, _, status = paths(hinge(solref), q, v, u, pbad.Options(dt=0.05 / n, scheme=scheme), n)
    assert np.all(np.asarray(status) == 0)
    for k, (name, case) in enumerate(CASES.items()):
        right = mujoco_path(solref, *case)
        off = np.abs(np.asarray(path)[k, n // 5 - 1 :: n // 5] - right).max()
        assert off < within, (name, off)


@pytest.mark.float64
def test_one_large_step_into_an_end():
    """50 ms at once, in which the blow is over: where MuJoCo is then, in few iterations."""
    q, v, u = (jnp.asarray(x, DTYPE) for x in np.transpose(list(CASES.values())))
    path, iterations, status = paths(hinge(), q, v, u, pbad.Options(dt=0.05, scheme="radau2"), 1)
    assert np.all(np.asarray(status) == 0) and np.max(iterations) <= 10
    right = np.array([mujoco_path("", *case)[-1] for case in CASES.values()])
    np.testing.assert_allclose(np.asarray(path)[:, -1], right, atol=0.025)


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("accuracy", [1e-3, 1e-5])
def test_an_accuracy_meets_the_end_in_time(accuracy):
    """Of 50 ms, against 5,000 even steps; a wrong acceleration at the start of a step makes parts without end."""
    q, v, u = (jnp.asarray(x, DTYPE) for x in np.transpose(list(CASES.values())))
    right, _, _ = paths(hinge(), q, v, u, pbad.Options(dt=1e-5, scheme="radau2"), 5000)
    path, _, status = paths(hinge(), q, v, u, pbad.Options(dt=0.05, scheme="radau2", accuracy=accuracy), 1)
    assert np.all(np.asarray(status) == 0)
    off = np.abs(np.asarray(path)[:, -1] - np.asarray(right)[:, -1])
    assert np.max(off) < 10 * accuracy, off


def draws(count=24):
    """States and stages about the ends of the slide and the hinge, entering and leaving them; a ball turns beside."""
    rng, model = np.random.default_rng(0), two()
    q = np.tile(np.asarray(model.q0), (count, 1))
    q[:, 0] = rng.choice([-0.2, 0.1], count) + 0.02 * rng.normal(size=count)
    q[:, 1] = rng.choice([-0.7, 0.35], count) + 0.05 * rng.normal(size=count)
    v = 2.0 * rng.normal(size=(count, model.nv))
    delta = np.array([0.03, 0.08, 0.3, 0.3, 0.3]) * rng.normal(size=(count, 2, model.nv))
    return jnp.asarray(q, DTYPE), jnp.asarray(v, DTYPE), jnp.asarray(delta, DTYPE)


def test_slopes_of_the_law_are_those_of_autodiff():
    """All entries of ∂τ/∂q, ∂τ/∂v, ∂τ/∂a, in states that enter, leave, press and are free."""
    model, (q, v, delta) = two(), draws()
    (stop,) = (f for f in model.forces if forces.name_of(f) == "JointStop")
    scalars = [0, 1]

    def tau(q, v, a, before):
        T = jnp.zeros((4, 3, 4), q.dtype)
        at = instant(q, v, T, T, jnp.zeros((), q.dtype), jnp.zeros(0, q.dtype))
        at = dataclasses.replace(at, start=at.start._replace(q=before), a=a)
        return stop.load(model, at)

    def both(q, v, a, before):
        load = tau(q, v, a, before)
        judge = jax.jacfwd(lambda q, v, a: tau(q, v, a, before).tau, (0, 1, 2))(q, v, a)
        return load, judge

    before = q.at[:, :2].add(-delta[:, 0, :2])
    a = 40.0 * delta[:, 1]
    load, (by_q, by_v, by_a) = jax.jit(jax.vmap(both))(q, v, a, before)
    assert np.count_nonzero(load.tau) > 10 and np.all(np.asarray(load.tau)[:, 2:] == 0)
    tight = 1e-4 if FLOAT32 else 1e-12
    for own, judge in ((load.dtau_dq, by_q[:, :, scalars]), (load.dtau_dv, by_v), (load.dtau_da, by_a)):
        own = jax.vmap(jnp.diag)(own)[..., : judge.shape[-1]]
        np.testing.assert_allclose(own, judge, rtol=tight, atol=tight * float(jnp.abs(judge).max()))


@pytest.mark.float64
def test_the_newton_matrix_has_them_at_every_stage():
    """Two stages, coupled by rates and accelerations, beside a ball: J against autodiff of the residual."""
    model, (q, v, delta) = two(), draws(8)
    scheme, dt = pbad.radau(2), 0.02

    def both(q, v, delta):
        start = step_start(model, pbad.make_state(model, q, v), jnp.zeros(0, q.dtype))
        eq, one = equation.collocation(model, scheme, jnp.asarray(dt), start, None), manifold.identity_increment(model)
        z = jax.vmap(lambda d: manifold.retract(model, one, d))(0.5 * delta)

        def r(d):
            moved = jax.vmap(lambda z, d: manifold.retract(model, z, d))(z, d.reshape(2, -1))
            return residual_and_matrix(model, start, eq, moved)[0]

        zero = jnp.zeros(2 * model.nv, q.dtype)
        return residual_and_matrix(model, start, eq, z)[1], jax.jacfwd(r)(zero)

    J, judge = jax.jit(jax.vmap(both))(q, v, delta)
    rows = np.ravel([[k, k + model.nv] for k in (0, 1)])  # of slide and hinge; a ball's own are of another chart
    J, judge = np.asarray(J)[:, rows], np.asarray(judge)[:, rows]
    np.testing.assert_allclose(J, judge, atol=1e-11 * np.abs(judge).max())


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau1", "radau2"])
def test_no_step_into_an_end_makes_energy(scheme):
    """A slide and a hinge fall and are thrown at their ends, 1 to 50 ms: what moves and lies there never gains."""
    model = two()
    rng, lanes = np.random.default_rng(1), 32
    q = np.tile(np.asarray(model.q0), (lanes, 1))
    q[:, 0], q[:, 1] = rng.uniform(-0.2, 0.1, lanes), rng.uniform(-0.7, 0.35, lanes)
    v = rng.normal(size=(lanes, model.nv)) * np.array([2.0, 5.0, 3.0, 3.0, 3.0])

    def run(q, v, dt):
        state = pbad.make_state(model, q, v)

        def body(state, _):
            after, info = pbad.make_step(pbad.Options(dt=0.05, scheme=scheme, on_failure="substep"))(
                model, state, dt=dt
            )
            return after, (info.status, pbad.kinetic_energy(model, after) + pbad.potential_energy(model, after))

        first = pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)
        return first, *jax.lax.scan(body, state, length=40)[1]

    dts = jnp.asarray(rng.choice([0.001, 0.005, 0.02, 0.05], lanes))
    first, status, energy = jax.jit(jax.vmap(run))(jnp.asarray(q), jnp.asarray(v), dts)
    assert np.all(np.asarray(status) == 0)
    most = np.maximum.accumulate(np.asarray(energy), axis=1)[:, -1]
    assert np.max((most - first) / (1 + np.abs(first))) < 0.02


@pytest.mark.slow
@pytest.mark.float64
def test_a_derivative_through_a_blow():
    """Of q after four steps by the speed before them, against differences."""
    model = hinge()

    @jax.jit
    def end(v):
        state = pbad.make_state(model, jnp.asarray([0.4]), v[None])
        traj, _ = pbad.rollout(model, state, jnp.zeros((4, 1)), options=pbad.Options(dt=0.01, scheme="radau2"))
        return traj.q[-1, 0]

    for v in (3.0, 9.0, 20.0):
        h = 1e-5
        differences = (end(jnp.asarray(v + h)) - end(jnp.asarray(v - h))) / (2 * h)
        for mode in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(mode(end)(jnp.asarray(v)), differences, rtol=1e-6)


def test_what_has_no_accelerations_refuses_it():
    model = hinge()
    state = pbad.make_state(model)
    for scheme in ("dirk2", "variational", "legendre2"):
        with pytest.raises(OptionError, match=r"JointStop follows accelerations.*use radau\(1\)"):
            pbad.make_step(pbad.Options(dt=0.01, scheme=scheme))(model, state)
    with pytest.raises(ModelError, match="JointStop follows accelerations"):
        pbad.newton_euler.acceleration(model, state)
    with pytest.raises(ModelError, match="JointCouplingStop.*no acceleration"):
        ends, numbers = jnp.array([[-1.0, 1.0]]), jnp.ones(1)
        length = forces.tendon_coupling(hinge(), {"j": 1.0}, {"j": 2.0}, stiffness=1.0).length
        length = dataclasses.replace(length, one=forces.Tendons(jnp.ones((1, 1)), "Joint"))
        forces.LineForce(length, forces.Stop(ends, numbers, numbers, numbers))


def test_the_loader_says_what_it_wants():
    with pytest.raises(OptionError, match="limits='soft': choose 'spring' or 'MuJoCo'"):
        pbad.load(HINGE.format(solref=""), limits="soft")  # type: ignore[call-overload]
    urdf = '<robot name="r"><link name="a"/></robot>'
    with pytest.raises(OptionError, match="wants an MJCF file"):
        pbad.load(urdf, limits="MuJoCo")
    assert "JointStop" in [forces.name_of(f) for f in hinge().forces]
    np.testing.assert_allclose(forces.joint_ranges(hinge()), np.deg2rad([[-30, 30]]), rtol=1e-6)
