"""Contact, limits, equality constraints and fluid of files, against MuJoCo's own numbers."""

import dataclasses
import importlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, thorough
from mechanics import joint_acceleration
from mjcf import POLYNOMIALS
from robot_files import load_quietly, mjcfs, urdfs

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.cli import main
from pbad_jax.dynamics.instant import generalised_force
from pbad_jax.kinematics import transforms
from pbad_jax.laws.instant import instant

mujoco: Any = importlib.import_module("mujoco")  # it has no types
pytestmark = [pytest.mark.float64, pytest.mark.usefixtures("no_log_file")]
G = 9.81


def of_kind(model, *kinds):
    """Of these classes, or names of forces."""
    return [f for f in model.forces if type(f) in kinds or forces.name_of(f) in kinds]


def without(model, *kinds):
    out = of_kind(model, *kinds)
    return dataclasses.replace(model, forces=tuple(f for f in model.forces if not any(f is x for x in out)))


def random_state(m, rng):
    q = np.array(m.qpos0)
    mujoco.mj_integratePos(m, q, rng.normal(size=m.nv) * 0.6, 1.0)
    return q, rng.normal(size=m.nv) * 2


def names(found) -> list[str]:
    return [type(f).__name__ for f in found]


def at(model, q, v=None):
    """The Point of a state by itself."""
    q = jnp.asarray(q)
    v = jnp.zeros(model.nv) if v is None else jnp.asarray(v)
    T = transforms.transforms(model, q)
    return instant(
        q, v, T, transforms.velocity_field(model, transforms.frames(model, q), v), jnp.zeros(()), jnp.zeros(model.nu)
    )


# --- the motion of real files ------------------------------------------------------------------------------


@pytest.mark.robots
@pytest.mark.parametrize("name", ["half_cheetah", "ant", "humanoid", "swimmer"])
def test_acceleration_is_mujocos(name):
    """Without contact, limits and dry friction, whose laws are not MuJoCo's; the swimmer has its fluid."""
    path = mjcfs()[f"gymnasium/{name}"]
    model, report = load_quietly(path)
    assert not report.unsupported
    assert bool(of_kind(model, forces.InertiaBoxes)) == (name == "swimmer")
    assert of_kind(model, "JointLimit") and bool(of_kind(model, forces.Contact)) == (name != "swimmer")
    assert bool(of_kind(model, forces.BodyContact)) == (name == "humanoid")
    model = without(model, "JointLimit", forces.Contact, forces.BodyContact, "JointFriction")
    m = mujoco.MjModel.from_xml_path(str(path))
    bits = mujoco.mjtDisableBit
    m.opt.disableflags |= bits.mjDSBL_CONTACT | bits.mjDSBL_LIMIT | bits.mjDSBL_FRICTIONLOSS
    acceleration = jax.jit(lambda q, v, u: joint_acceleration(model, q, v, 0.0, u))
    rng = np.random.default_rng(0)
    for _ in range(5):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:] = random_state(m, rng)
        d.ctrl[:] = rng.normal(size=m.nu)
        mujoco.mj_forward(m, d)
        assert_close(acceleration(*map(jnp.asarray, (d.qpos, d.qvel, d.ctrl))), d.qacc, 1e-6)


# --- fluid -------------------------------------------------------------------------------------------------


def fluid_force(model, q, v):
    """(nv,) of the inertia boxes alone."""
    (boxes,) = of_kind(model, forces.InertiaBoxes)
    p = at(model, q, v)
    L = transforms.local_transforms(model, p.q)
    f = transforms.with_screws(model, transforms.shift(p.T, transforms.center_of_mass(model, p.T)), L)
    return generalised_force(model, f, boxes.load(model, p))


WET = """<mujoco><option density="{density}" viscosity="{viscosity}" wind="0.3 -0.2 0.5"/><worldbody>
  <body pos="0.1 0 1" quat="1 2 3 4"><freejoint/>
    <inertial pos="0.1 0.2 0.3" quat="{quat}" mass="{mass}" diaginertia="{inertia}"/>
    <body name="capsule" pos="0.3 0 0" euler="20 30 40"><joint axis="1 2 3"/>
      <geom type="capsule" fromto="0 0 0 0.2 0.3 0.4" size="0.05"/>
      <body name="welded" pos="0 0.3 0"><geom type="sphere" size="0.1"/></body></body>
  </body>
  <body name="still"><geom size="0.1"/></body>
</worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize("density, viscosity", [(1000.0, 0.0), (0.0, 2.0), thorough(1.2, 0.1)])
def test_fluid_is_mujocos(density, viscosity):
    """Also of a capsule and a sphere, whose equal moments leave the axes of the box open: MuJoCo's are taken.

    1e-9 of the largest force: rounding is about 1e-15, relative to forces that the centres' distance amplifies.
    """
    rng = np.random.default_rng(int(density) + int(viscosity))
    a, b = rng.uniform(0.1, 1, 2)
    moments = sorted([a, b, a + b - 0.1 * rng.uniform() * min(a, b)])  # A + B ≥ C
    quat = " ".join(map(repr, rng.normal(size=4).tolist()))
    text = WET.format(
        density=density, viscosity=viscosity, mass=rng.uniform(0.5, 5), inertia=" ".join(map(str, moments)), quat=quat
    )
    m = mujoco.MjModel.from_xml_string(text)
    model = pbad.load(text)
    for _ in range(3):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:] = random_state(m, rng)
        mujoco.mj_forward(m, d)
        assert np.abs(d.qfrc_passive).max() > 0
        assert_close(fluid_force(model, d.qpos, d.qvel), d.qfrc_passive, 1e-9)


def test_fluid_by_ellipsoids_is_refused_and_the_other_bodies_keep_theirs():
    text = re.sub('size="0.05"', 'size="0.05" fluidshape="ellipsoid"', WET).format(
        density=10, viscosity=1, mass=2, inertia="1 1 1", quat="1 0 0 0"
    )
    feature = "fluid by ellipsoids (1 geoms), density 10, viscosity 1"
    with pytest.raises(pbad.UnsupportedFeatureError) as e:
        pbad.load(text)
    assert e.value.features == (feature,)
    with pytest.warns(pbad.UnsupportedFeatureWarning):
        model, report = pbad.load(text, unsupported="warn")
    assert report.unsupported == (feature,)
    (boxes,) = of_kind(model, forces.InertiaBoxes)
    link = dict(zip(model.body_names, model.topology.body_link))
    assert set(boxes.links) == {link["body0"], link["welded"]}


def test_fluid_goes_with_the_passive_forces():
    """As in MuJoCo, it is switched off where springs and dampers both are."""
    passive = 'spring="disable" damper="disable"'
    if "mjDSBL_SPRING" not in dir(mujoco.mjtDisableBit):
        passive = 'passive="disable"'
    text = WET.format(density=10, viscosity=1, mass=2, inertia="1 1 1", quat="1 0 0 0")
    text = text.replace("<worldbody>", f"<option><flag {passive}/></option><worldbody>")
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    d.qvel[:] = 1
    mujoco.mj_forward(m, d)
    assert not d.qfrc_passive.any() and not of_kind(pbad.load(text), forces.InertiaBoxes)


# --- contact -----------------------------------------------------------------------------------------------

SURFACES = {
    "plane": 'type="plane" size="1 1 1" euler="10 20 30"',
    "sphere": 'type="sphere" size="0.7"',
    "capsule": 'type="capsule" size="0.4 0.6" euler="40 0 20"',
    "box": 'type="box" size="0.3 0.5 0.7" euler="0 50 10"',
    "cylinder": 'type="cylinder" size="0.3 0.5" euler="0 50 10"',
}


@pytest.mark.parametrize("kind", SURFACES)
def test_depth_is_mujocos(kind):
    """A sphere about a surface on a body that is welded to the world: MuJoCo's distance, to 1e-9 m."""
    surface = f'<body pos="0.1 0.2 0.3" euler="30 0 0"><body pos="0 0.1 0"><geom {SURFACES[kind]}/></body></body>'
    if kind == "cylinder":  # one on a body is a shape of it
        surface = f'<geom pos="0.1 0.2 0.3" {SURFACES[kind]}/>'
    text = (
        f'<mujoco><default><geom margin="9"/></default><worldbody>{surface}<body name="b"><freejoint/>'
        '<geom size="0.25" pos="0.05 0 0"/></body></worldbody></mujoco>'
    )
    m = mujoco.MjModel.from_xml_string(text)
    model = pbad.load(text)
    (found,) = of_kind(model, forces.Contact)
    assert found.links == (model.topology.body_link[model.body_names.index("b")],)
    rng = np.random.default_rng(3)
    checked = 0
    while checked < 10:
        q, _ = random_state(m, rng)
        q[:3] += rng.normal(size=3)
        d = mujoco.MjData(m)
        d.qpos[:] = q
        mujoco.mj_forward(m, d)
        if d.ncon != 1 or d.contact[0].dist < -0.25:  # with its centre inside, other faces may be nearer
            continue
        checked += 1
        pressed = d.contact[0].includemargin - d.contact[0].dist
        np.testing.assert_allclose(found.depth(model, at(model, q)), pressed, atol=1e-9)


def random_scene(rng) -> str:
    """Surfaces and balls, all overlapping, with random masks, priorities, friction and excluded bodies."""

    def settings():
        return (
            f'contype="{rng.integers(4)}" conaffinity="{rng.integers(4)}" priority="{rng.integers(2)}" '
            f'condim="{rng.choice([1, 3])}" friction="{rng.uniform(0.1, 2)}" solref="{rng.uniform(0.01, 0.1)} 1"'
        )

    still = "".join(f'<geom name="s{i}" size="0.5" {settings()}/>' for i in range(3))
    more = f'<body name="post"><geom name="s3" type="box" size="0.5 0.5 0.5" {settings()}/></body>'
    balls = "".join(f'<body name="b{i}"><freejoint/><geom size="0.2" {settings()}/></body>' for i in range(5))
    exclude = '<contact><exclude body1="post" body2="b0"/><exclude body1="b1" body2="world"/></contact>'
    return f"<mujoco><worldbody>{still}{more}{balls}</worldbody>{exclude}</mujoco>"


@pytest.mark.parametrize("seed", range(4))
def test_who_touches_whom_and_how_is_mujocos(seed):
    """MuJoCo's list of contacts, where everything overlaps: the pairs, also of moving bodies, and their friction."""
    text = random_scene(np.random.default_rng(seed))
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    wanted, between = {}, {}
    for c in d.contact:
        moving = m.body_weldid[m.geom_bodyid[c.geom]] != 0
        if moving.all():
            between[frozenset(m.body(m.geom_bodyid[c.geom[k]]).name for k in range(2))] = c.friction[0] * (c.dim > 1)
        else:
            s, b = c.geom[np.argsort(moving)]
            wanted.setdefault(m.geom(s).name, {})[m.body(m.geom_bodyid[b]).name] = c.friction[0] * (c.dim > 1)
    model = pbad.load(text)
    body = dict(zip(model.topology.body_link, model.body_names))
    found = of_kind(model, forces.Contact)
    ours = [{body[l]: float(mu) for l, mu in zip(f.links, f.friction)} for f in found]
    assert len(found) == len(wanted)
    for f, pairs, name in zip(found, ours, sorted(wanted)):
        assert names([f.surface]) == ["Box" if name == "s3" else "Sphere"]
        assert pairs.keys() == wanted[name].keys()
        for b in pairs:
            # MuJoCo raises a vanishing friction to 1e-5
            np.testing.assert_allclose(pairs[b], wanted[name][b], rtol=1e-12, atol=1e-12)
    met = of_kind(model, forces.BodyContact)
    ours = {frozenset(body[l] for l in ends): float(mu) for f in met for ends, mu in zip(f.links, f.friction)}
    assert ours.keys() == between.keys() and model.topology.inactive == ()
    for ends, mu in ours.items():
        np.testing.assert_allclose(mu, between[ends], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "law", ["0.02 1", "0.02 0.5", "0.05 1", "-10000 -200", "0.02 0", "0.001 1", ("0.03 1", "0.9 0.99 0.001")]
)
def test_contact_gives_way_as_mujocos(law):
    """A ball at rest on a plane sinks g τ² (times 3/2 where the law begins), as MuJoCo's does, within a factor of 2.3.

    One number stands for an impedance that grows with the depth; of a time constant taken as it is it was 14.
    """
    solref, solimp = (law, "0.9 0.95 0.001") if isinstance(law, str) else law
    how = f'solref="{solref}" solimp="{solimp}"'
    text = f"""<mujoco><worldbody><geom type="plane" size="1 1 1" {how}/>
      <body pos="0 0 0.1"><freejoint/><geom size="0.1" {how}/></body></worldbody></mujoco>"""
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)  # of a mixed format, in every step
    for _ in range(2000):
        mujoco.mj_step(m, d)
    mujoco.set_mju_user_warning(before)
    (found,) = of_kind(pbad.load(text), forces.Contact)
    sinks = 1.5 * G * float(pbad.load(text).second_moment[-1, 3, 3]) / float(found.stiffness[0])
    print(solref, "sinks", sinks, "MuJoCo's", 0.1 - d.qpos[2])
    assert 1 / 1.7 < sinks / (0.1 - d.qpos[2]) < 2.3


GIVES = 0.95 * np.sqrt(0.075 / 0.925)  # of solref's time: what MuJoCo's default impedance (0.9 to 0.95) leaves of it


def test_time_constant_is_the_mean_of_mujocos_mixed_ones():
    text = """<mujoco><worldbody><geom name="low" type="plane" size="1 1 1" solref="0.04 1" solmix="3"/>
      <body><freejoint/><geom size="0.1" solref="0.08 1" solmix="1"/></body></worldbody></mujoco>"""
    model = pbad.load(text)
    (found,) = of_kind(model, forces.Contact)
    mass = float(model.second_moment[-1, 3, 3])
    np.testing.assert_allclose(found.stiffness, mass / (0.05 * GIVES) ** 2, rtol=1e-6)  # solref and solmix weigh 3 to 1


HILLS = """<mujoco><asset><hfield name="h" nrow="5" ncol="6" size="1 2 0.5 0.1" elevation="{elevation}"/></asset>
  <worldbody><geom name="hills" type="hfield" hfield="h" pos="0.1 0.2 0.3" {turn}/>
  <body><freejoint/><geom name="ball" size="0.1"/></body></worldbody></mujoco>"""


def hills(turn=""):
    elevation = np.random.default_rng(0).uniform(size=30)
    return HILLS.format(elevation=" ".join(map(str, elevation)), turn=turn)


def test_height_field_goes_through_mujocos_points():
    """A ray of MuJoCo's from above finds the ground at every grid point inside the rim; 1e-6 m: it holds float32."""
    m = mujoco.MjModel.from_xml_string(hills())
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    (found,) = of_kind(pbad.load(hills()), forces.Contact)
    heights = []
    for x in np.linspace(-1, 1, 6)[1:-1] + 0.1:
        for y in np.linspace(-2, 2, 5)[1:-1] + 0.2:
            hit = np.zeros(1, np.int32)
            length = mujoco.mj_ray(m, d, np.array([x, y, 5.0]), np.array([0, 0, -1.0]), None, 1, -1, hit)
            assert m.geom(hit[0]).name == "hills"
            heights.append(5 - length)
            assert abs(float(found.surface.distance(jnp.asarray([x, y, 5 - length])))) < 1e-6
    assert np.ptp(heights) > 0.3


@pytest.mark.parametrize(
    "scene, left",
    [
        (hills('euler="0 0 30"'), ["contact with the hfield 'hills'"]),
        ('<geom type="ellipsoid" size="1 1 2"/>BALL', ["contact with the ellipsoid 'geom0'"]),
        ("BALLBALL", []),
        ('<geom type="plane" size="1 1 1" contype="0" conaffinity="0"/>BALL', []),
    ],
)  # fmt: skip
def test_what_does_not_touch_is_named(scene, left):
    if not scene.startswith("<mujoco"):
        ball = "<body><freejoint/><geom size='0.1'/></body>"
        scene = f"<mujoco><worldbody>{scene.replace('BALL', ball)}</worldbody></mujoco>"
    model, report = pbad.load(scene, unsupported="warn")
    assert list(report.inactive) == left and not of_kind(model, forces.Contact)


def test_explicit_pairs_with_the_ground_act():
    """By their own friction and time constant, whatever the masks say, and once; what has no inside is named."""
    text = """<mujoco><worldbody><geom name="g" type="plane" size="1 1 1" {mask}/>
      <geom name="c" type="ellipsoid" size="1 1 2" contype="0" conaffinity="0"/>
      <body><freejoint/><geom name="b" size="0.1"/></body></worldbody>
      <contact><pair geom1="{with}" geom2="b" friction="0.3 0.3" solref="0.04 1"/></contact></mujoco>"""
    for mask in ('contype="0" conaffinity="0"', ""):
        model = pbad.load(text.format(**{"mask": mask, "with": "g"}))
        (found,) = of_kind(model, forces.Contact)
        assert model.topology.inactive == ()
        np.testing.assert_allclose(found.friction, 0.3)
        mass = float(model.second_moment[-1, 3, 3])
        np.testing.assert_allclose(found.stiffness, mass / (0.04 * GIVES) ** 2, rtol=1e-6)
    named = pbad.load(text.format(**{"mask": 'contype="0" conaffinity="0"', "with": "c"}))
    assert named.topology.inactive == ("contact pairs (1)",)


STANDS = """<mujoco><option timestep="0.001"/><worldbody><body pos="0 0 0.5">
  <geom type="cylinder" size="0.4 0.5"/><body pos="2 0 0"><geom type="ellipsoid" size="0.3 0.3 0.5"/></body></body>
  <body pos="0.2 0 1.099"><freejoint/><geom size="0.1"/></body>
  <body pos="2 0 1.099"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>"""


@pytest.mark.thorough
def test_what_stands_on_bodies_that_stand_still_rests_where_mujocos_does():
    """Balls on a cylinder and on the tip of an ellipsoid: within 1 mm."""
    model = pbad.load(STANDS)
    assert model.topology.inactive == () and names(of_kind(model, forces.ShapeContact)) == ["ShapeContact"]
    options = pbad.Options(0.02, "radau2")
    traj, info = pbad.rollout(model, pbad.make_state(model), n_steps=50, options=options, progress=False)
    assert not np.any(info.status)
    m = mujoco.MjModel.from_xml_string(STANDS)
    d = mujoco.MjData(m)
    for _ in range(1000):
        mujoco.mj_step(m, d)
    np.testing.assert_allclose(traj.q[-1, [2, 9]], d.qpos[[2, 9]], atol=1e-3)


def test_friction_below_zero_is_an_error_of_the_file():
    text = """<mujoco><worldbody><geom type="plane" size="1 1 1" friction="-1"/>
      <body><freejoint/><geom size="0.1" friction="-1"/></body></worldbody></mujoco>"""
    with pytest.raises(pbad.ModelFileError, match="<text>: .*friction of contact is -1"):
        pbad.load(text)


@pytest.mark.parametrize("flag", ["contact", "constraint"])
def test_contact_that_is_switched_off(flag):
    text = f"""<mujoco><option><flag {flag}="disable"/></option><worldbody><geom type="plane" size="1 1 1"/>
      <body><freejoint/><geom size="0.1"/><body><joint range="-1 1" frictionloss="1"/><geom size="0.1"/></body></body>
      </worldbody></mujoco>"""
    model = pbad.load(text)
    assert not of_kind(model, forces.Contact) and not model.topology.inactive
    stiff = of_kind(model, "JointLimit", "JointFriction")
    assert len(stiff) == (2 if flag == "contact" else 0)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_ball_comes_to_rest_on_the_ground():
    """MuJoCo's default time constant of 0.02 s: the ground gives way by about g · (0.02 s)² = 4 mm."""
    text = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 0.15">
      <joint type="slide" axis="0 0 1"/><geom size="0.1"/></body></worldbody></mujoco>"""
    model = pbad.load(text)
    traj, info = pbad.rollout(model, pbad.make_state(model), n_steps=200, options=pbad.Options(dt=0.01), progress=False)
    info.assert_ok()
    assert -0.05 - 2 * G * 0.02**2 < float(traj.q[-1, 0]) < -0.05
    assert abs(float(traj.v[-1, 0])) < 1e-6
    assert np.ptp(traj.q[-50:, 0]) < 1e-6


# --- equality constraints ----------------------------------------------------------------------------------


def gaps(model, traj, force):
    """(n,...) after every step."""
    return np.asarray(jax.vmap(lambda q: force.gap(model, at(model, q)))(traj.q))


def second(model, q=None, v=None):
    """One second of radau(2) in steps of 0.01 s."""
    state = pbad.make_state(model, q, v)
    options = pbad.Options(dt=0.01, scheme=pbad.radau(2))
    traj, info = pbad.rollout(model, state, n_steps=100, options=options, progress=False)
    info.assert_ok()
    return traj


FOUR_BARS = """<mujoco><worldbody>
  <body name="left"><joint axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 -1" size="0.03" contype="0" conaffinity="0"/>
    <body name="bar" pos="0 0 -1"><joint axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 1 0 0" size="0.03" contype="0" conaffinity="0"/></body></body>
  <body name="right" pos="1 0 0"><joint axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 -1" size="0.03" contype="0" conaffinity="0"/></body>
</worldbody><equality><connect body1="bar" body2="right" anchor="1 0 0" solref="{tau} 1"/></equality></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.02, 0.005])
def test_four_bar_linkage(tau):
    """A parallelogram let go at 0.7 rad: it stays one, and swings as the rigid one does.

    The pin bears at most a few times the weight of what hangs on it, so its gap is below 5 g τ²; the angle follows the
    pendulum that the rigid linkage is to about gap/length.
    """
    model = pbad.load(FOUR_BARS.format(tau=tau))
    (pin,) = of_kind(model, forces.Attachment)
    start = np.array([0.7, -0.7, 0.7])
    traj = second(model, start)
    gap = np.linalg.norm(gaps(model, traj, pin), axis=-1).max()
    assert gap < 5 * G * tau**2, gap
    q = np.asarray(traj.q)
    assert np.abs(q[:, 0] - q[:, 2]).max() < 10 * G * tau**2 and np.abs(q[:, 0] + q[:, 1]).max() < 10 * G * tau**2
    assert np.ptp(q[:, 0]) > 0.5


WELDED = """<mujoco><default><geom contype="0" conaffinity="0"/></default><worldbody>
  <body name="a"><joint axis="0 1 0"/><geom type="box" size="0.3 0.05 0.05" pos="0.3 0 0"/>{nested}</body>{loose}
</worldbody>{equality}</mujoco>"""
LOOSE = '<body name="b" pos="0.7 0 0" euler="0 0 40"><freejoint/><geom type="box" size="0.1 0.2 0.05"/></body>'
TIP = '<geom type="box" size="0.1 0.2 0.05"/>'


@pytest.mark.thorough
def test_weld_is_a_rigid_joint():
    """A free body welded to a pendulum, against MuJoCo's pendulum with the same body as a part of it.

    The weld gives way by a few g τ², and turns by a few g τ² over the size of the tip, 0.1 m; the free tip hangs behind
    by as much, and the pendulum with it. It holds a frame without mass, and its point is far outside.
    """
    drop = G * 0.005**2
    weld = '<equality><weld body1="b" body2="f" anchor="3 0 0" solref="0.005 1"/></equality>'
    frame = '<body name="f" pos="0.7 0 0" euler="0 0 30"/>'
    model = pbad.load(WELDED.format(nested=frame, loose=LOOSE, equality=weld))
    (force,) = of_kind(model, forces.Attachment)
    traj = second(model)
    gap = np.linalg.norm(gaps(model, traj, force), axis=-1).max(axis=0)
    assert gap[0] < 5 * drop and gap[1:].max() < 5 * drop / 0.1, gap  # m, and about rad
    tip = f'<body name="b" pos="0.7 0 0" euler="0 0 40">{TIP}</body>'
    m = mujoco.MjModel.from_xml_string(WELDED.format(nested=tip, loose="", equality=""))
    m.opt.timestep, m.opt.integrator = 1e-3, mujoco.mjtIntegrator.mjINT_RK4
    d = mujoco.MjData(m)
    mujoco.mj_step(m, d, 1000)
    assert abs(d.qpos[0]) > 0.5
    assert abs(float(traj.q[-1, 0]) - d.qpos[0]) < 5 * drop / 0.1


@pytest.mark.thorough
def test_equalities_with_what_does_not_move():
    """A weld to the world and a pin on a post without mass hold what would fall, within a few g τ²."""
    text = """<mujoco><worldbody><body name="post" pos="0 0 1"><body name="knob" pos="0 0.5 0"/></body>
      <body name="a" pos="0 0 2" euler="10 20 30"><freejoint/><geom size="0.1"/></body>
      <body name="b" pos="3 0 2"><freejoint/><geom size="0.1" pos="0.3 0 0"/></body></worldbody>
      <equality><weld body1="a"/><connect body1="b" body2="knob" anchor="0 0 0"/>
      <weld body1="post" body2="knob"/></equality></mujoco>"""
    model = pbad.load(text)
    held = of_kind(model, forces.Anchor, forces.Attachment)
    assert names(held) == ["Anchor", "Attachment"]  # nothing to hold between post and knob
    with pytest.raises(pbad.ModelError, match="neither side can move"):
        forces.connect(model, "post", "knob")
    q = np.asarray(second(model).q)
    drop = G * 0.02**2  # the default solref of 0.02 s
    assert np.abs(q[:, :7] - np.asarray(model.q0)[:7]).max() < 2.5 * drop
    assert np.linalg.norm(q[:, 7:10] - [3, 0, 2], axis=1).max() < 5 * drop
    assert np.abs(q[:, 10:14] - [1, 0, 0, 0]).max() > 0.3  # it swings about its pin


@pytest.mark.parametrize("ends", ['body1="a" body2="b"', 'body1="b" body2="a"', 'body1="b"'])
@pytest.mark.parametrize("kind", ["connect", "weld"])
def test_the_points_of_an_equality(kind, ends):
    """There is no gap at q0, and where the body is moved, the gap of a connection is MuJoCo's."""
    anchor = 'anchor="0.1 0.2 0.3"'
    equality = f"<equality><{kind} {ends} {anchor}/></equality>"
    text = WELDED.format(nested="", loose=LOOSE, equality=equality)
    model = pbad.load(text)
    (force,) = of_kind(model, forces.Attachment, forces.Anchor)
    np.testing.assert_allclose(force.gap(model, at(model, model.q0)), 0, atol=1e-12)
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    d.qpos[:] = random_state(m, np.random.default_rng(0))[0]
    mujoco.mj_forward(m, d)
    gap = np.asarray(force.gap(model, at(model, d.qpos)))
    assert np.abs(gap).max() > 0.1
    if kind == "connect":
        assert_close(np.linalg.norm(gap), np.linalg.norm(d.efc_pos[:3]), 1e-9)


COUPLED = """<mujoco><default><geom contype="0" conaffinity="0"/></default><worldbody>
  <body><joint name="one" axis="0 1 0" ref="10"/><geom size="0.05" pos="0.5 0 0"/></body>
  <body pos="0 1 0"><joint name="two" axis="0 1 0"/><geom size="0.1" pos="0.4 0 0"/></body>
  <body pos="0 2 0"><joint name="three" axis="0 1 0" ref="20"/><geom size="0.05" pos="0.5 0 0"/></body>
</worldbody><equality>
  <joint joint1="one" joint2="two" polycoef="0 0.5 0.2 0.1 0.05" solref="0.005 1"/>
  <joint joint1="three" polycoef="0.1 0 0 0 0" solref="0.005 1"/></equality></mujoco>"""


@pytest.mark.thorough
def test_joint_equality():
    """A quartic between two hinges and a constant: MuJoCo's own residual, which stays below 5 g τ²/length."""
    m = mujoco.MjModel.from_xml_string(COUPLED)
    model = pbad.load(COUPLED)
    (coupling,) = of_kind(model, "JointCouplingSpring")
    d = mujoco.MjData(m)
    for seed in range(3):
        d.qpos[:], _ = random_state(m, np.random.default_rng(seed))
        mujoco.mj_forward(m, d)
        assert_close(coupling.gap(model, at(model, d.qpos)), d.efc_pos[:2], 1e-12)
    start = np.array([np.radians(10), 0, np.radians(20) + 0.1])
    traj = second(model, start)
    assert np.abs(gaps(model, traj, coupling)).max() < 5 * G * 0.005**2 / 0.5
    assert np.ptp(np.asarray(traj.q)[:, 1]) > 1


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.robots
def test_mimic_of_the_panda():
    """The second finger follows the first while the arm falls: both slides agree to 5 g τ², τ = 0.02 s."""
    model, report = load_quietly(urdfs()["panda"], meshes=False)
    assert not any("mimic" in x for x in report.unsupported)
    (coupling,) = of_kind(model, "JointCouplingSpring")
    q = np.asarray(model.q0).copy()
    q[-2:] = 0.02
    traj = second(model, q, np.r_[np.zeros(model.nv - 2), 0.2, 0.2])
    fingers = np.asarray(traj.q)[:, -2:]
    assert np.abs(fingers[:, 0] - fingers[:, 1]).max() < 5 * G * 0.02**2
    assert np.ptp(fingers[:, 0]) > 0.01


def test_equalities_that_are_switched_off():
    text = FOUR_BARS.format(tau=0.02).replace("<worldbody>", '<option><flag equality="disable"/></option><worldbody>')
    assert not of_kind(pbad.load(text), forces.Attachment)
    text = FOUR_BARS.format(tau=0.02).replace("<connect", '<connect active="false"')
    model = pbad.load(text)
    assert not of_kind(model, forces.Attachment)
    assert model.topology.inactive == ("equality constraints that start inactive (1)",)


def test_a_weld_in_another_pose_is_refused():
    weld = '<equality><weld name="w" body1="a" body2="b" relpose="0.7 0 0 1 0 0 0"/></equality>'
    with pytest.raises(pbad.UnsupportedFeatureError) as e:
        pbad.load(WELDED.format(nested="", loose=LOOSE, equality=weld))
    assert e.value.features == ("equality 'w' (weld)",)
    assert of_kind(
        pbad.load(WELDED.format(nested="", loose=LOOSE.replace("40", "0"), equality=weld)), forces.Attachment
    )


# --- the command line --------------------------------------------------------------------------------------


def test_info_lists_the_forces(capsys, tmp_path):
    text = FOUR_BARS.format(tau=0.02).replace(' contype="0" conaffinity="0"', "", 1)
    text = text.replace("<worldbody>", '<worldbody><geom type="plane" size="1 1 1" pos="0 0 -3"/>')
    text = text.replace('<joint axis="0 1 0"/>', '<joint axis="0 1 0" range="-90 90" damping="1"/>', 1)
    path = tmp_path / "m.xml"
    path.write_text(text)
    assert main(["info", str(path)]) == 0
    lines = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    first = lines.index(["force", "acts on", "once a"])
    assert lines[first + 1 : first + 6] == [
        ["Gravity", "all bodies", "stage"],
        ["JointDamping", "1 degrees of freedom", "stage"],
        ["JointLimit", "1 degrees of freedom", "step"],
        ["Contact with a Plane", "2 points", "step"],
        ["Attachment", "bar and right", "stage"],
    ]


def test_many_connections_are_read_soon(monkeypatch):
    """The poses of all bodies were computed anew, operation by operation, three times for each of them."""
    calls, usual = [], transforms.transforms
    monkeypatch.setattr(transforms, "transforms", lambda *given: calls.append(1) or usual(*given))
    n = 200
    geom = '<geom type="sphere" size=".1"/>'
    bodies = [f'<body name="b{i}" pos="{i} 0 0"><joint type="hinge" axis="0 1 0"/>{geom}</body>' for i in range(n + 1)]
    ties = [f'<connect body1="b{i}" body2="b{i + 1}" anchor="0.5 0 0"/>' for i in range(n)]
    text = f"<worldbody>{''.join(bodies)}</worldbody><equality>{''.join(ties)}</equality>"
    model = pbad.load(f"<mujoco>{text}</mujoco>")
    assert len(calls) <= 3  # while it is traced
    assert len(of_kind(model, forces.Attachment)) == n


# --- fixed tendons -----------------------------------------------------------------------------------------

TENDONS = """<mujoco><compiler angle="radian"/><option gravity="0 0 0"/><worldbody>
  <body name="a" pos="0 0 1"><joint name="ja" axis="0 1 0" ref="0.3"/><geom size="0.1" pos="0.2 0 0"/>
    <body name="b" pos="0 0 0.5"><joint name="jb" type="slide" axis="0 1 1"/><geom size="0.1"/>
      <body name="c" pos="0 0 0.5"><joint name="jc" axis="1 0 0"/><geom size="0.1" pos="0 0.2 0"/></body></body></body>
</worldbody>
<tendon>
  <fixed name="t"><joint joint="ja" coef="1.5"/><joint joint="jb" coef="-2"/></fixed>
  <fixed name="s"><joint joint="jc" coef="0.7"/><joint joint="ja" coef="0.4"/></fixed>
  <fixed name="spring" stiffness="30" damping="2" springlength="0.1 0.3"><joint joint="ja" coef="1.5"/>
    <joint joint="jb" coef="-2"/></fixed>
  <fixed name="brake" frictionloss="0.7"><joint joint="jb" coef="2"/><joint joint="jc" coef="-0.5"/></fixed>
  <fixed name="end" range="-0.2 0.4"><joint joint="ja" coef="1"/><joint joint="jc" coef="1"/></fixed>
</tendon>
<actuator><motor name="m" joint="ja"/><general name="u" tendon="t" gear="1.3" gainprm="2" biastype="affine"
  biasprm="0.1 -3 -0.5" ctrlrange="-1 1" forcerange="-2 2"/><motor name="n" joint="jc"/></actuator>
<equality><tendon tendon1="t" tendon2="s" polycoef="0.1 0.8 -0.3 0.2 0.1"/>
  <tendon tendon1="s" polycoef="0.2"/></equality>
</mujoco>"""


def test_tendons_are_mujocos():
    """Passive force and actuators in the joints; of constraints the Jacobian and by how much they are open."""
    m = mujoco.MjModel.from_xml_string(TENDONS)
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    model = pbad.load(TENDONS)
    assert model.topology.actuator_names == ("m", "u", "n")  # the controls are in the file's order
    kinds = ("TendonSpring", "TendonFriction", "TendonLimit", "TendonCouplingSpring", "TendonActuation")
    force = {forces.name_of(f): f for f in model.forces}
    rng, ends = np.random.default_rng(0), 0

    @jax.jit
    def ours(q, v, u):
        here = dataclasses.replace(at(model, q, v), control=u)
        return {k: force[k].load(model, here).tau for k in kinds}, force["TendonCouplingSpring"].gap(model, here)

    for _ in range(6):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:] = random_state(m, rng)
        d.ctrl[:] = rng.normal(size=m.nu)
        mujoco.mj_forward(m, d)
        tau, gap = ours(jnp.asarray(d.qpos), jnp.asarray(d.qvel), jnp.asarray(d.ctrl))
        assert_close(tau["TendonSpring"], d.qfrc_passive, 1e-9)
        assert_close(tau["TendonActuation"] + np.array([d.ctrl[0], 0, d.ctrl[2]]), d.qfrc_actuator, 1e-9)
        J, kind = d.efc_J.reshape(-1, m.nv)[: d.nefc], d.efc_type[: d.nefc]
        equality, brake, end = (
            np.flatnonzero(kind == int(getattr(mujoco.mjtConstraint, f"mjCNSTR_{k}")))
            for k in ("EQUALITY", "FRICTION_TENDON", "LIMIT_TENDON")
        )
        assert_close(gap, d.efc_pos[equality], 1e-9)
        coupling = force["TendonCouplingSpring"].law
        velocity = J[equality] @ d.qvel
        assert_close(
            tau["TendonCouplingSpring"], -(coupling.stiffness * gap + coupling.damping * velocity) @ J[equality], 1e-9
        )
        assert_close(force["TendonFriction"].length.coefficient, J[brake], 1e-9)
        assert_close(force["TendonFriction"].law.loss, d.efc_frictionloss[brake], 1e-9)
        pushes = np.asarray(tau["TendonLimit"]) @ J[end].T
        assert np.all(pushes >= 0) and (len(end) or not np.any(tau["TendonLimit"])) and np.all(d.efc_pos[end] < 0)
        ends += len(end)
    assert ends >= 2


@pytest.mark.slow
def test_an_end_of_a_tendon_and_a_coupling_hold():
    """A pull of 0.2 N m ends within 2 % of the range; two fingers that a coupling ties close alike."""
    fingers = "".join(
        f'<body name="f{k}" pos="{k} 0 0"><joint name="j{k}" axis="0 1 0" damping="0.05"/>'
        f'<geom size="0.1" pos="0 0 {k + 1}"/></body>'
        for k in range(2)
    )
    text = f"""<mujoco><compiler angle="radian"/><option gravity="0 0 0"/><default><geom mass="0.1" contype="0"
      conaffinity="0"/></default><worldbody>{fingers}</worldbody><tendon>
      <fixed name="a"><joint joint="j0" coef="1"/></fixed><fixed name="b"><joint joint="j1" coef="1"/></fixed>
      <fixed name="grasp" range="-1 1.5"><joint joint="j0" coef="0.5"/><joint joint="j1" coef="0.5"/></fixed></tendon>
      <equality><tendon tendon1="b" tendon2="a" polycoef="0 1 0 0 0"/></equality>
      <actuator><motor name="close" tendon="grasp"/></actuator></mujoco>"""
    model = pbad.load(text)
    options = pbad.Options(dt=0.05)
    controls = jnp.full((100, 1), 0.2)
    traj, info = pbad.rollout(model, pbad.make_state(model), controls, options=options, progress=False)
    assert info.ok, info
    assert abs(traj.q[-1, 0] - traj.q[-1, 1]) < 2e-3
    assert traj.q[-1].mean() == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize(("share", "joint", "acts"), [
    ("0.5", "", True), ("-1", "", False), ("0.5", 'actuatorgravcomp="true"', False),
])  # fmt: skip
def test_gravity_is_compensated_where_mujoco_does(share, joint, acts):
    """Not where no share is above 0, nor through joints that are to do it by actuators and have none; it is named."""
    body = f'<body name="b" gravcomp="{share}"><joint axis="0 1 0" {joint}/><geom size="0.1" pos="0.3 0 0"/></body>'
    text = f"<mujoco><worldbody>{body}</worldbody></mujoco>"
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    model = pbad.load(text)
    ours = pbad.newton_euler.acceleration(model, pbad.make_state(model))
    np.testing.assert_allclose(ours, d.qacc, rtol=1e-5)
    named = any("gravity compensation" in x for x in model.topology.inactive)
    assert named != acts


DRONE = """<mujoco><compiler angle="radian"/><option gravity="0.3 -1 -8"/><worldbody>
  <site name="hook" pos="0.5 0 2"/>
  <body name="drone" pos="0 0 1" gravcomp="0.6"><freejoint name="float"/>
    <geom type="box" size="0.2 0.1 0.05" pos="0.01 0 0"/>
    <site name="rotor" pos="0.2 0.1 0" euler="0.1 0.2 0"/><site name="eye" pos="0 0.1 -0.05"/>
    <body name="arm" pos="0 0 -0.1" gravcomp="1.5">
      <joint name="bend" axis="0 1 0" stiffness="2 3 5" damping="0.1 0.3 0.2" springref="0.3"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/><site name="wrist" pos="0.3 0 0"/>
      <body name="hand" pos="0.3 0 0"><joint name="turn" type="ball" damping="0.1 0.2 0.3"/>
        <geom size="0.05" pos="0.1 0 0.02"/><site name="tip" pos="0.1 0.02 0"/></body></body></body>
</worldbody>
<tendon>
  <spatial name="rope" stiffness="30" damping="2" springlength="0.1 0.9">
    <site site="hook"/><site site="eye"/><site site="tip"/></spatial>
  <spatial name="tackle" stiffness="20" springlength="0.2">
    <site site="hook"/><site site="wrist"/><pulley divisor="2"/><site site="eye"/><site site="tip"/>
    <pulley divisor="3"/><site site="rotor"/><site site="wrist"/><site site="tip"/></spatial>
  <spatial name="leash" range="0 0.5"><site site="wrist"/><site site="hook"/></spatial>
</tendon>
<actuator>
  <general name="lift" site="rotor" gear="0.1 0.2 3 0.03 -0.02 0.1" gainprm="2" biastype="affine"
    biasprm="0.3 5 -0.4" ctrlrange="-1 1"/>
  <motor name="bender" joint="bend"/>
  <general name="winch" tendon="tackle" gear="1.5" gainprm="3" biastype="affine" biasprm="0.2 -1 -0.1"
    forcerange="-4 4"/>
</actuator>
<sensor><tendonpos name="a" tendon="tackle"/><tendonvel name="b" tendon="tackle"/><tendonpos name="c" tendon="rope"/>
  <actuatorpos name="d" actuator="winch"/><actuatorvel name="e" actuator="winch"/>
  <actuatorfrc name="f" actuator="winch"/><actuatorpos name="g" actuator="lift"/>
  <actuatorvel name="h" actuator="lift"/><actuatorfrc name="i" actuator="lift"/>
  <jointactuatorfrc name="j" joint="bend"/></sensor></mujoco>"""


DRONE = DRONE if POLYNOMIALS else DRONE.replace("2 3 5", "2").replace("0.1 0.3 0.2", "0.1")


@pytest.mark.slow
def test_what_flies_and_hangs_is_mujocos():
    """Gravity compensation, polynomial springs, rotors on sites, ropes and pulleys between sites; nothing is taut."""
    m, model = mujoco.MjModel.from_xml_string(DRONE), pbad.load(DRONE)
    assert not model.topology.inactive and model.topology.actuator_names == ("lift", "bender", "winch")
    free = without(model, "SpatialTendonLimit")
    (leash,), rng, ends = of_kind(model, "SpatialTendonLimit"), np.random.default_rng(0), 0

    @jax.jit
    def ours(q, v, u):
        state = pbad.make_state(free, q, v)
        push = generalised_force(model, transforms.frames(model, q), leash.load(model, at(model, q)))
        return pbad.newton_euler.acceleration(free, state, u), pbad.read_sensors(free, state, u), push

    for _ in range(6):
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:] = random_state(m, rng)
        d.ctrl[:] = rng.normal(size=m.nu)
        mujoco.mj_forward(m, d)
        acceleration, read, push = ours(jnp.asarray(d.qpos), jnp.asarray(d.qvel), jnp.asarray(d.ctrl))
        assert_close(acceleration, d.qacc_smooth, 1e-9)
        assert_close(np.concatenate([read[s] for s in model.sensors]), d.sensordata, 1e-9)
        moment = np.zeros((m.ntendon, m.nv))
        mujoco.mju_sparse2dense(moment, d.ten_J, m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind)
        taut = d.ten_length[2] > 0.5
        along = np.asarray(push) @ moment[2] / (moment[2] @ moment[2])
        np.testing.assert_allclose(push, along * moment[2], atol=1e-9 * (1 + abs(along)))
        assert (along < 0) == taut and (taut or along == 0)
        ends += taut
    assert ends >= 2


LINES = """<mujoco><compiler angle="radian"/><option gravity="0 0 0"/><worldbody>
  <site name="hook" pos="0.5 0 2"/>
  <body name="a" pos="0 0 1"><joint name="ja" axis="0 1 0"/><geom size="0.1" pos="0.2 0 0"/>
    <site name="s" pos="0.3 0 0.1"/>
    <body name="b" pos="0 0 0.5"><joint name="jb" type="slide" axis="0 1 1"/><geom size="0.1"/>
      <site name="r" pos="0 0.2 0"/>
      <body name="c" pos="0 0 0.5"><joint name="jc" type="ball"/><geom size="0.1" pos="0 0.2 0"/>
        <site name="t" pos="0.1 0.3 0"/></body></body></body>
</worldbody>
<tendon>
  <spatial name="bow" stiffness="2 3 5" damping="0.1 0.3 0.2" springlength="0.4 0.6">
    <site site="hook"/><site site="s"/><site site="t"/></spatial>
  <fixed name="bent" stiffness="0 4 6" damping="0 0.2 0.4" springlength="0.1"><joint joint="ja" coef="1.5"/>
    <joint joint="jb" coef="-2"/></fixed>
  <spatial name="brake" frictionloss="0.7"><site site="hook"/><site site="r"/><pulley divisor="2"/><site site="s"/>
    <site site="t"/></spatial>
  <spatial name="one"><site site="hook"/><site site="t"/></spatial>
  <spatial name="two"><site site="s"/><site site="r"/><site site="t"/></spatial>
</tendon>
<equality><tendon tendon1="one" tendon2="two" polycoef="0.1 0.7 0.3 -0.2 0.1"/>
  <tendon tendon1="two" polycoef="0.05 0 0 0 0"/></equality></mujoco>"""
LINES = LINES if POLYNOMIALS else re.sub(r'(stiffness|damping)="([0-9.]+) [0-9. ]+"', r'\1="\2"', LINES)


def test_dry_friction_couplings_and_polynomials_of_straight_tendons_are_mujocos():
    """The gaps and the forces along MuJoCo's own moments; friction is by their rates."""
    m, model = mujoco.MjModel.from_xml_string(LINES), pbad.load(LINES)
    assert not model.topology.inactive
    force = {forces.name_of(f): f for f in model.forces}
    passive = [f for f in model.forces if "Spring" in forces.name_of(f) or "Polynomial" in forces.name_of(f)]
    passive = [f for f in passive if "Coupling" not in forces.name_of(f)]
    brake, coupling = force["SpatialTendonFriction"], force["SpatialTendonCouplingSpring"]

    @jax.jit
    def ours(q, v):
        here, f = at(model, q, v), transforms.frames(model, q)
        push = [sum(generalised_force(model, f, x.load(model, here)) for x in some)
                for some in (passive, [brake], [coupling])]  # fmt: skip
        return push, coupling.gap(model, here)

    for seed in range(4):
        d, (q, v) = mujoco.MjData(m), random_state(m, np.random.default_rng(seed))
        d.qpos[:], d.qvel[:] = q, v
        mujoco.mj_forward(m, d)
        (push, slowed, tied), gap = ours(jnp.asarray(d.qpos), jnp.asarray(d.qvel))
        assert_close(push, d.qfrc_passive, 1e-9)
        J, kind = d.efc_J.reshape(-1, m.nv)[: d.nefc], d.efc_type[: d.nefc]
        equality, dry = (
            kind == int(getattr(mujoco.mjtConstraint, f"mjCNSTR_{k}")) for k in ("EQUALITY", "FRICTION_TENDON")
        )
        speed = J[dry] @ d.qvel
        assert_close(slowed, -0.7 * speed / np.sqrt(speed**2 + np.asarray(brake.law.stick_speed) ** 2) @ J[dry], 1e-9)
        assert_close(gap, d.efc_pos[equality], 1e-9)
        held = coupling.law.stiffness * gap + coupling.law.damping * (J[equality] @ d.qvel)
        assert_close(tied, -np.asarray(held) @ J[equality], 1e-9)


def test_tendons_that_wrap_are_named():
    site = '<site name="p" pos="1 0 0"/><geom name="drum" type="cylinder" size="0.1 0.1" pos="1 1 0"/>'
    text = TENDONS.replace("<worldbody>", f"<worldbody>{site}")
    text = text.replace('<geom size="0.1" pos="0 0.2 0"/>', '<geom size="0.1" pos="0 0.2 0"/><site name="r"/>')
    wrapped = '<site site="p"/><geom geom="drum"/><site site="r"/>'
    spatial = f'<spatial name="w" stiffness="2">{wrapped}</spatial><spatial name="v" frictionloss="2">'
    spatial += '<site site="p"/><site site="r"/></spatial>'
    text = text.replace("</tendon>", f"{spatial}</tendon>").replace(
        "</actuator>", '<motor name="x" tendon="w"/></actuator>'
    )
    text = text.replace("</equality>", '<tendon name="e" tendon1="w"/></equality>')
    with pytest.raises(pbad.UnsupportedFeatureError) as e:
        pbad.load(text)
    assert e.value.features == (
        "equality 'e' (tendon that wraps about shapes)",
        "tendon 'w' (it wraps about shapes: stiffness)",
        "actuator 'x': transmission through a tendon that wraps about shapes",
    )


def test_flags_of_the_file_switch_tendons_off():
    off = '<flag spring="disable" damper="disable" limit="disable" frictionloss="disable"/>'
    if "mjDSBL_SPRING" not in dir(mujoco.mjtDisableBit):
        off = off.replace('spring="disable" damper="disable"', 'passive="disable"')
    text = TENDONS.replace('<option gravity="0 0 0"/>', f"<option>{off}</option>")
    kinds = {forces.name_of(f) for f in pbad.load(text).forces}
    assert {k for k in kinds if k.startswith("Tendon")} == {"TendonCouplingSpring", "TendonActuation"}
