"""Ends that give way as MuJoCo's constraints do: against the oscillator they stand for, autodiff, and MuJoCo itself."""

import dataclasses
import functools
import importlib
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, slow, thorough

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.contact.dispatch import CONTACTS
from pbad_jax.errors import OptionError
from pbad_jax.kinematics import transforms
from pbad_jax.laws.instant import instant
from pbad_jax.laws.load import place
from pbad_jax.laws.soft_end import SoftEnd, has_inertia, in_step

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
DROPPED = """
<mujoco>
  <option timestep="0.002" cone="{cone}"/>
  <worldbody>
    <geom type="plane" size="5 5 1" friction="{mu}" {soft}/>
    <body pos="0 0 0.1"><freejoint/>
      <geom size="0.1" mass="2" friction="{mu}" contype="1" conaffinity="0" {soft}/></body>
    <body pos="1 0 0.1"><freejoint/>
      <geom type="box" size="0.2 0.1 0.1" mass="3" friction="{mu}" contype="1" conaffinity="0" {soft}/></body>
    <body pos="2 0 0.1"><freejoint/>
      <geom type="capsule" size="0.1" fromto="0 -.2 0 0 .2 0" mass="1" friction="{mu}" contype="1" conaffinity="0"
        {soft}/></body>
  </worldbody>
</mujoco>
"""
MEETING = """
<mujoco><worldbody>
  <geom type="plane" size="5 5 1"/>
  <body pos="0 0 0.09"><freejoint/><geom size="0.1"/></body>
  <body pos="0.01 0.17 0.1"><freejoint/><geom type="capsule" size="0.1" fromto="-.1 0 0 .1 0 0" condim="4"/></body>
  <body pos="0 0 0.28"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
</worldbody></mujoco>
"""
CASES = {
    "a blow": (0.5, 15.0, 0.0),
    "driven in": (0.5, 5.0, 1.0),
    "driven out": (0.62, 0.0, -1.0),
    "let go": (0.55, 0.0, 0.0),
}
SOLREFS = ("", 'solreflimit="0.05 0.4"', 'solreflimit="-3000 -40" solimplimit="0.8 0.9 0.001"')


def mujoco_module() -> Any:
    return importlib.import_module("mujoco")  # it has no types


def dropped(cone: str, mu: float, soft: str = "", step: float = 0.002) -> tuple[Any, Any, Any]:
    """The model here, and MuJoCo's model and data in steps of `step`, with one impedance, as here."""
    mujoco, text = mujoco_module(), DROPPED.format(cone=cone, mu=mu, soft=soft)
    m = mujoco.MjModel.from_xml_string(text)
    m.geom_solimp[:, 0], m.opt.timestep = m.geom_solimp[:, 1], step
    return pbad.load(text, constraints="MuJoCo", dtype=DTYPE), m, mujoco.MjData(m)


@functools.cache
def hinge(solref=""):
    return pbad.load(HINGE.format(solref=solref), constraints="MuJoCo", dtype=DTYPE)


def instants(model, elapsed, kick):
    """An instant of a step, some time after its start."""
    at = instant(model.q0, jnp.zeros(model.nv), jnp.zeros((4, 3, 4)), jnp.zeros((4, 3, 4)), 0.0, jnp.zeros(model.nu))
    return dataclasses.replace(at, elapsed=elapsed, kick=kick)


@pytest.mark.float64
def test_the_law_of_a_step_is_that_of_the_oscillator():
    """Pushed evenly, x is where many small steps of m x'' + d x' + k x = F are, overdamped, critical and swinging."""
    F, x_0, v_0, n, met = 40.0, 0.02, 1.5, 200_000, 0
    for T in (0.005, 0.0380, 2 / np.sqrt(2770.0), 0.4):
        for t in (0.0005, 0.01, 0.05, 0.3):
            end = SoftEnd(*(jnp.asarray([x]) for x in (2770.0, T, 1.0)))
            x, v, h = x_0, v_0, t / n
            for _ in range(n):
                v += h * (F - 2770.0 * (x + T * v))
                x += h * v
            started = jnp.asarray([x_0]), jnp.asarray([v_0])
            way, law, _ = in_step(end, lambda start, x=started: x, instants(hinge(), jnp.asarray(t), None))
            if float(way[0]) > 0:  # beyond the end by itself
                met += 1
                np.testing.assert_allclose(law.stiffness * (x - way - 0.5 * law.width), F, rtol=2e-3)
    assert met >= 12


@pytest.mark.parametrize("kick", [None, 1.0, 0.1])
def test_at_rest_it_is_its_spring(kick):
    """Whatever the step."""
    end = SoftEnd(jnp.asarray([500.0]), jnp.asarray([0.04]), jnp.asarray([0.2]))
    for t in (1e-3, 0.02, 1.0):
        x = jnp.asarray([0.03])
        way, law, _ = in_step(end, lambda start, x=x: (x, 0 * x), instants(hinge(), jnp.asarray(t), kick))
        force = law.stiffness * (x - way - 0.5 * law.width)
        np.testing.assert_allclose(force, 15.0, rtol=1e-3 if FLOAT32 else 1e-9)


def mujoco_path(solref: str, q: float, v: float, u: float) -> np.ndarray:
    """q every 10 ms, by MuJoCo in steps of 0.02 ms."""
    mujoco = mujoco_module()
    m = mujoco.MjModel.from_xml_string(HINGE.format(solref=solref))
    d, path = mujoco.MjData(m), []
    if m.jnt_solref[0, 0] > 0:
        m.jnt_solref[0, 0] = max(m.jnt_solref[0, 0], 2 * m.opt.timestep)  # as of the file's step
    m.opt.timestep, d.qpos[0], d.qvel[0], d.ctrl[0] = 2e-5, q, v, u
    for _ in range(5):
        mujoco.mj_step(m, d, 500)
        path.append(float(d.qpos[0]))
    return np.array(path)


@functools.partial(jax.jit, static_argnames="scheme")
def paths(model, q, v, u, dt, scheme):
    """q, iterations and statuses (cases, STEPS): one program a scheme."""
    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme))

    def one(q, v, u):
        def body(state, _):
            after, info = step(model, state, u[None], dt)
            return after, (after.q[0], info.iterations, info.status)

        return jax.lax.scan(body, pbad.make_state(model, q[None], v[None]), None, length=STEPS)[1]

    return jax.vmap(one)(q, v, u)


STEPS = 500
HOW = [("radau1", 500, 3e-3, solref) for solref in SOLREFS] + [
    ("radau2", 500, 3e-3, ""),
    thorough("radau2", 20, 6e-3, ""),
    ("radau2", 5, 0.01, ""),
    thorough("dirk2", 500, 3e-3, ""),
    thorough("variational", 500, 3e-3, ""),
]


@pytest.mark.float64
@pytest.mark.parametrize(("scheme", "n", "within", "solref"), HOW)
def test_what_runs_into_an_end_moves_as_in_mujoco(scheme, n, within, solref, no_log_file):
    """In small steps as MuJoCo in small steps; in the file's own steps of 10 ms near it, and nothing fails."""
    q, v, u = (jnp.asarray(x, DTYPE) for x in np.transpose(list(CASES.values())))
    path, _, status = paths(hinge(solref), q, v, u, jnp.asarray(0.05 / n), scheme)
    assert np.all(np.asarray(status)[:, :n] == 0)
    for k, (name, case) in enumerate(CASES.items()):
        right = mujoco_path(solref, *case)
        off = np.abs(np.asarray(path)[k, n // 5 - 1 : n : n // 5] - right).max()
        assert off < within, (name, off)


@pytest.mark.float64
def test_one_large_step_into_an_end():
    """50 ms at once, in which the blow is over: where MuJoCo is then, in few iterations."""
    q, v, u = (jnp.asarray(x, DTYPE) for x in np.transpose(list(CASES.values())))
    path, iterations, status = (x[:, :1] for x in paths(hinge(), q, v, u, jnp.asarray(0.05), "radau2"))
    assert np.all(np.asarray(status) == 0) and np.max(iterations) <= 10
    right = np.array([mujoco_path("", *case)[-1] for case in CASES.values()])
    np.testing.assert_allclose(np.asarray(path)[:, -1], right, atol=0.03)


@pytest.mark.float64
@pytest.mark.parametrize(
    ("cone", "mu", "soft"),
    [
        ("pyramidal", 0.6, ""),
        slow("elliptic", 0.5, 'solref="0.05 1.2"'),
        thorough("pyramidal", 1.0, 'solimp="0.8 0.9 0.001"'),
    ],
)
def test_what_lies_lies_as_deep_as_in_mujoco(cone, mu, soft, no_log_file):
    """A ball and a capsule, dropped and left for a second; MuJoCo's impedance is taken at its greatest."""
    model, m, d = dropped(cone, mu, soft)
    mujoco_module().mj_step(m, d, 1000)
    traj, info = pbad.rollout(model, pbad.make_state(model), None, 300, pbad.Options(dt=0.01, scheme="radau1"))
    assert np.all(np.asarray(info.status) == 0)
    ours, theirs = (0.1 - np.asarray(q).reshape(3, 7)[:, 2] for q in (traj.q[-1], d.qpos))
    np.testing.assert_allclose(ours[[0, 2]], theirs[[0, 2]], rtol=0.05)


@pytest.mark.slow
@pytest.mark.float64
def test_a_ball_bounces_as_in_mujoco(no_log_file):
    """Thrown down at 3 m/s and 1 m/s along the ground: height, speed down and along every 10 ms, in small steps."""
    model, m, d = dropped("elliptic", 0.3, 'solref="0.04 0.5"', 2e-5)
    d.qvel[:3] = 1.0, 0.0, -3.0
    state = pbad.make_state(model, v=jnp.asarray(d.qvel, DTYPE))
    traj, info = pbad.rollout(model, state, None, 800, pbad.Options(dt=1e-4, scheme="radau1"))
    assert np.all(np.asarray(info.status) == 0)
    for k in range(8):
        mujoco_module().mj_step(m, d, 500)
        got = np.asarray(traj.q)[100 * (k + 1) - 1, [0, 2]]
        np.testing.assert_allclose(got[1], d.qpos[2], atol=5e-4)
        np.testing.assert_allclose(got[0], d.qpos[0], atol=5e-3)  # its friction is as soft as the ground


@pytest.mark.slow
@pytest.mark.float64
def test_a_derivative_through_a_blow():
    """Of q after four steps by the speed before them, and by the numbers of the end, against differences."""
    model = hinge()

    @jax.jit
    def end(v, inertia):
        (limit,) = (f for f in model.forces if forces.name_of(f) == "JointLimit")
        own = dataclasses.replace(limit.law.end, inertia=inertia * limit.law.end.inertia)
        changed = tuple(f.changed(end=own) if f is limit else f for f in model.forces)
        state = pbad.make_state(model, jnp.asarray([0.4]), v[None])
        options = pbad.Options(dt=0.01, scheme="radau2")
        traj, _ = pbad.rollout(dataclasses.replace(model, forces=changed), state, jnp.zeros((4, 1)), options=options)
        return traj.q[-1, 0]

    h, one = 1e-5, jnp.asarray(1.0)
    for v in (jnp.asarray(x) for x in (3.0, 9.0, 20.0)):
        by_v = (end(v + h, one) - end(v - h, one)) / (2 * h)
        by_inertia = (end(v, one + h) - end(v, one - h)) / (2 * h)
        np.testing.assert_allclose(jax.grad(end, (0, 1))(v, one), (by_v, by_inertia), rtol=1e-5, atol=1e-8)


@pytest.mark.thorough
def test_its_error_is_not_known():
    """Neither is one told, nor steps made by one."""
    model = hinge()
    _, info = pbad.make_step(pbad.Options(dt=0.01, scheme="radau1"))(model, pbad.make_state(model))
    assert np.isnan(info.error)
    with pytest.raises(OptionError, match="JointLimit has ends with an inertia.*accuracy=None"):
        pbad.make_step(pbad.Options(dt=0.01, scheme="radau2", accuracy=1e-2))(model, pbad.make_state(model))
    at_stages = tuple(f.changed(at="stages") if forces.name_of(f) == "JointLimit" else f for f in model.forces)
    with pytest.raises(OptionError, match="JointLimit: ends with an inertia .*at='step'"):
        other = dataclasses.replace(model, forces=at_stages)
        pbad.make_step(pbad.Options(dt=0.01, scheme="radau1"))(other, pbad.make_state(other))


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau1", thorough("radau2")])
@pytest.mark.parametrize("cone", ["pyramidal", thorough("elliptic")])
def test_what_is_thrown_makes_no_energy(scheme, cone):
    """A ball, a box and a capsule, thrown at the ground in steps of 1 to 50 ms: they come to rest, and never gain."""
    model = pbad.load(DROPPED.format(cone=cone, mu=0.7, soft=""), constraints="MuJoCo", dtype=DTYPE)
    rng, lanes = np.random.default_rng(1), 8
    v = jnp.asarray(rng.normal(size=(lanes, model.nv)) * 2.0)

    def run(v, dt):
        state = pbad.make_state(model, v=v)

        def body(state, _):
            step = pbad.make_step(pbad.Options(dt=0.05, scheme=scheme, on_failure="substep"))
            after, info = step(model, state, dt=dt)
            return after, (info.status, pbad.kinetic_energy(model, after) + pbad.potential_energy(model, after))

        first = pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)
        return first, *jax.lax.scan(body, state, length=24)[1]

    dts = jnp.asarray(rng.choice([0.001, 0.005, 0.02, 0.05], lanes))
    first, status, energy = jax.jit(jax.vmap(run))(v, dts)
    assert np.all(np.asarray(status) == 0)
    most = np.max(np.asarray(energy), axis=1)
    assert np.max((most - first) / (1 + np.abs(first))) < 0.02


def test_the_loader_says_what_it_wants():
    with pytest.raises(OptionError, match="constraints='soft': choose 'spring' or 'MuJoCo'"):
        pbad.load(HINGE.format(solref=""), constraints="soft")  # type: ignore[call-overload]
    urdf = '<robot name="r"><link name="a"/></robot>'
    with pytest.raises(OptionError, match="wants an MJCF file"):
        pbad.load(urdf, constraints="MuJoCo")
    (limit,) = (f for f in hinge().forces if forces.name_of(f) == "JointLimit")
    assert limit.law.end is not None and not forces.is_conservative(limit)
    plain = pbad.load(HINGE.format(solref=""))
    assert all(getattr(f.law, "end", None) is None for f in plain.forces if isinstance(f, forces.LineForce))


def test_what_a_law_of_ones_own_calls_an_end_is_none():
    own = types.SimpleNamespace(law=types.SimpleNamespace(end=3.0))
    assert not has_inertia(own) and not has_inertia(types.SimpleNamespace(end=jnp.ones(3)))
    assert [forces.name_of(f) for f in hinge().forces if has_inertia(f)] == ["JointLimit"]


@pytest.mark.float64
@pytest.mark.parametrize(("elapsed", "kick"), [(0.02, None), (0.02, 1.0), (None, None)])
def test_the_slopes_of_pyramids(elapsed, kick):
    """Against the ground, of round bodies and of others: all entries, by autodiff in random directions."""
    model = pbad.load(MEETING, constraints="MuJoCo", dtype=DTYPE)
    rng = np.random.default_rng(3)
    f = transforms.frames(model, model.q0)
    V = transforms.velocity_field(model, f, jnp.asarray(rng.normal(size=model.nv), DTYPE))
    at = dataclasses.replace(
        instant(model.q0, None, f.T, V, 0.0, None), elapsed=elapsed and jnp.asarray(elapsed), kick=kick
    )
    acted = set()
    for force in (f for f in model.forces if isinstance(f, CONTACTS)):
        near = jax.jit(force.near)(model, at.start) if hasattr(force, "near") else None
        at_near = dataclasses.replace(at, start=at.start._replace(near=near))

        @jax.jit
        def slopes(T, dT, force=force, at=at_near):
            def points(T):
                return force.load(model, dataclasses.replace(at, T=T)).point_forces

            return points(T), jax.jvp(lambda T: [x.force for x in points(T)], (T,), (dT,))[1]

        T = f.T + 0.01 * V
        assert force.pyramid
        for _ in range(4):
            dT = jnp.asarray(rng.normal(size=T.shape), DTYPE)
            for x, slope in zip(*slopes(T, dT)):
                if x.normal is None:
                    by_hand = jnp.einsum("ciajb,cjb->cia", x.df_dP, place(dT, x.point_links, x.u))
                else:  # what turns, under all edges together
                    N = jnp.sum(x.normal.by_P * place(dT, x.normal.point_links, x.normal.u), axis=(1, 2))
                    by_hand = x.by_normal * N[:, None, None]
                np.testing.assert_allclose(by_hand, slope, atol=1e-9 * float(jnp.max(jnp.abs(slope))))
                acted |= {(type(force).__name__, x.normal is not None)} if jnp.any(slope != 0) else set()
    assert acted >= {("Contact", False), ("Contact", True), ("BodyContact", False), ("ShapeContact", False)}


@pytest.mark.float64
def test_an_instant_by_itself_has_pyramids_as_they_rest():
    """In no step: all edges together push with k x on what moves as on what lies, and nothing rubs."""
    model = pbad.load(MEETING, constraints="MuJoCo", dtype=DTYPE)
    (ground,) = (f for f in model.forces if isinstance(f, forces.Contact))
    assert ground.end is not None
    for v in (jnp.zeros(model.nv, DTYPE), jnp.ones(model.nv, DTYPE)):
        state = pbad.make_state(model, v=v)
        force = np.sum(jax.jit(pbad.contact_forces)(model, state)[:, 3:], axis=0)
        f = transforms.frames(model, model.q0)
        deep = np.maximum(jax.jit(ground.depth)(model, instant(model.q0, v, f.T, f.T, 0.0, None)), 0.0)
        np.testing.assert_allclose(force, [0.0, 0.0, np.sum(deep * ground.end.stiffness)], rtol=0.01, atol=1e-6)


@pytest.mark.float64
def test_what_slides_is_slowed_and_pushed_away_as_in_mujoco(no_log_file):
    """A ball that lies, set going at 2 m/s: place and speed along the ground and up every 10 ms, in small steps."""
    model, m, d = dropped("pyramidal", 0.6, step=2e-5)
    d.qpos[2], d.qvel[0] = 0.099, 2.0
    state = pbad.make_state(model, jnp.asarray(d.qpos, DTYPE), jnp.asarray(d.qvel, DTYPE))
    traj, info = pbad.rollout(model, state, None, 800, pbad.Options(dt=1e-4, scheme="radau1"))
    assert np.all(np.asarray(info.status) == 0)
    highest = 0.0
    for k in range(8):
        mujoco_module().mj_step(m, d, 500)
        q, v = (np.asarray(x)[100 * (k + 1) - 1] for x in (traj.q, traj.v))
        np.testing.assert_allclose(q[[0, 2]], d.qpos[[0, 2]], atol=1e-3)
        np.testing.assert_allclose(v[[0, 2]], d.qvel[[0, 2]], atol=0.05)
        highest = max(highest, q[2])
    assert highest > 0.102  # and it does not only lie there
