"""Bad inputs, with the row numbers of the scorecard: the right exception, and every named item in its message."""

# pyright: reportArgumentType=false, reportCallIssue=false
# (what is refused is of the wrong type)

import copy
import dataclasses
import inspect
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, ModelError, OptionError, Options, StateError, Status

I3 = np.eye(3)
NAN, INF = float("nan"), float("inf")


def arm(mass=1.0, inertia=I3, joint=None, second=None, actuators=(), **kwargs):
    """A hinge 'elbow' on body 'arm', and more as asked."""
    joint = joint or Joint("hinge", name="elbow")
    bodies = [Body("arm", mass, inertia=inertia, joints=[joint])]
    if second is not None:
        bodies.append(second)
    return pbad.build_model(bodies, actuators=actuators, **kwargs)


def hinge(**kwargs):
    return arm(joint=Joint("hinge", name="elbow", **kwargs))


MODEL = arm(
    second=Body("hand", 1.0, inertia=I3, parent=0, joints=[Joint("ball", name="wrist")]),
    actuators=[Actuator("elbow", name="motor", bias=(0, 0, 0))],
)
OTHER = arm(second=Body("foot", 1.0, inertia=I3, parent=0, joints=[Joint("ball", name="ankle")]))
STEP = jax.jit(pbad.make_step(Options(dt=0.01)))


PD = pbad.forces.pd_drive(MODEL, "elbow", 1, 1)


def changed(**arrays):
    return dataclasses.replace(MODEL, **arrays)


def in_jit(make):
    """Makes a force of a model whose masses and q0 are traced."""
    return jax.jit(lambda x: make(changed(second_moment=x * MODEL.second_moment, q0=x * MODEL.q0)).u)(1.0)


def child(**kwargs):
    return arm(second=Body("hand", 1.0, inertia=I3, **{"parent": 0, "joints": [Joint("hinge", name="w")], **kwargs}))


def collinear():
    """Two hinges in one line, and nothing between them."""
    return arm(0, 0 * I3, second=Body("hand", 1.0, inertia=I3, parent=0, joints=[Joint("hinge", name="w")]))


def rollout(**kwargs):
    kwargs = {"n_steps": 2, "options": Options(dt=0.01), "progress": False, **kwargs}
    return pbad.rollout(kwargs.pop("model", MODEL), kwargs.pop("state", pbad.make_state(MODEL)), **kwargs)


def rolled(controls, lanes=2):
    states = jax.tree.map(lambda x: jnp.stack([x] * 2)[:lanes], pbad.make_state(MODEL))
    return pbad.rollout_batch(MODEL, states, controls, 2, Options(dt=0.01))


def step_of(dt, step=None):
    step = step or pbad.make_step(Options(dt=0.01))
    return step(MODEL, pbad.make_state(MODEL), None, dt)


def q_of(*x):
    return pbad.make_state(MODEL, np.array(x, float))


def with_state(**arrays):
    return dataclasses.replace(pbad.make_state(MODEL), **{k: jnp.asarray(x) for k, x in arrays.items()})


def traced(make):
    """Calls make(tracer) inside jit."""
    return jax.jit(lambda x: make(x).second_moment)(jnp.asarray(1.0))


flat = np.diag([1.0, 1, 5])
lopsided = np.array([[2, 0.1, 0], [0, 2, 0], [0, 0, 2]])

# row, call, exception, words of its message
RAISES = [
    ("1", lambda: arm(mass=0, inertia=0 * I3), ModelError, ["'arm'", "'elbow'", "armature"]),
    ("1", lambda: arm(joint=Joint("slide", name="rail"), mass=0), ModelError, ["'arm'", "'rail'", "mass"]),
    ("2", lambda: arm(mass=-2.5), ModelError, ["'arm'", "-2.5", "≥ 0"]),
    ("3", lambda: arm(mass=NAN), ModelError, ["'arm'", "nan", "finite"]),
    ("3", lambda: arm(mass=INF), ModelError, ["'arm'", "inf", "finite"]),
    ("3", lambda: arm(mass="heavy"), ModelError, ["'arm'", "heavy", "number"]),
    ("4", lambda: arm(inertia=lopsided), ModelError, ["'arm'", "symmetric", "0.1", "[0,1]", "[1,0]"]),
    ("5", lambda: arm(inertia=np.diag([-1.0, 2, 2])), ModelError, ["'arm'", "-1", "negative"]),
    ("6", lambda: arm(inertia=flat), ModelError, ["'arm'", "5.0", "by 3", "project"]),
    ("7", lambda: arm(inertia=[1, 1, 1]), ModelError, ["'arm'", "(3,)", "(3, 3)", "xx"]),
    ("7", lambda: arm(inertia=np.ones(6)), ModelError, ["'arm'", "(6,)", "(3, 3)"]),
    ("7", lambda: arm(inertia=I3 * NAN), ModelError, ["'arm'", "NaN"]),
    ("7", lambda: arm(inertia="round"), ModelError, ["'arm'", "round"]),
    ("8", lambda: hinge(axis=(0, 0, 0)), ModelError, ["'elbow'", "zero"]),
    ("8", lambda: hinge(axis=(0, NAN, 0)), ModelError, ["'elbow'", "nan"]),
    ("8", lambda: hinge(axis=(0, 1)), ModelError, ["'elbow'", "(2,)", "(3,)"]),
    ("8", lambda: arm(joint=Joint("universal", (1, 0, 0), name="u")), ModelError, ["'u'", "(3,)", "(2, 3)"]),
    ("8", lambda: arm(joint=Joint("universal", "xy", name="u")), ModelError, ["'u'", "xy"]),
    ("10", lambda: arm(joint=Joint("universal", ((1, 0, 0), (2, 0, 0)), name="u")), ModelError,
     ["'u'", "parallel", "angle"]),
    ("10", lambda: arm(joint=Joint("planar", ((1, 0, 0), (-1, 0, 0)), name="p")), ModelError, ["'p'", "parallel"]),
    ("11", lambda: child(quaternion=(0, 0, 0, 0)), ModelError, ["'hand'", "quaternion", "zero"]),
    ("11", lambda: child(quaternion=(1, 0, 0)), ModelError, ["'hand'", "(3,)", "(4,)"]),
    ("12", lambda: q_of(0, 1.1, 0, 0, 0), StateError, ["'wrist'", "1.1", "1e-3"]),
    ("12", lambda: q_of(0, 0, 0, 0, 0), StateError, ["'wrist'", "norm 0"]),
    ("13", lambda: child(parent=7), ModelError, ["'hand'", "7", "0..1"]),
    ("13", lambda: child(parent=-3), ModelError, ["'hand'", "-3"]),
    ("13", lambda: child(parent="shoulder"), ModelError, ["'hand'", "'shoulder'", "arm"]),
    ("13", lambda: child(parent=0.5), ModelError, ["'hand'", "0.5"]),
    ("13", lambda: pbad.build_model([Body("a", 1, inertia=I3, parent=1), Body("b", 1, inertia=I3)]), ModelError,
     ["'a'", "'b'", "index 1", "first"]),
    ("14", lambda: child(parent="hand"), ModelError, ["cycle", "hand -> hand"]),
    ("14", lambda: pbad.build_model([Body("a", 1, inertia=I3, parent="b"), Body("b", 1, inertia=I3, parent="a")]),
     ModelError, ["cycle", "a -> b -> a"]),
    ("16", lambda: pbad.build_model([]), ModelError, ["no bodies"]),
    ("17", lambda: pbad.build_model([Body("a", 1, inertia=I3)] * 2), ModelError, ["'a'", "0", "1"]),
    ("17", lambda: child(joints=[Joint("hinge", name="elbow")]), ModelError, ["'elbow'", "0", "1"]),
    ("17", lambda: arm(actuators=[Actuator("elbow")] * 2), ModelError, ["'elbow_actuator'", "0", "1"]),
    ("17", lambda: pbad.build_model([Body("", 1, inertia=I3)]), ModelError, ["name"]),
    ("18", lambda: child(joints=[Joint("free", name="f")]), ModelError, ["'f'", "'hand'", "free", "world"]),
    ("18", lambda: child(joints=[Joint("screw", name="s")]), ModelError, ["'s'", "'screw'", "hinge"]),
    ("20", lambda: hinge(range=(1, -1)), ModelError, ["'elbow'", "1", "-1", "low"]),
    ("20", lambda: hinge(range=(NAN, 1)), ModelError, ["'elbow'", "nan"]),
    ("20", lambda: hinge(range=(0, 1, 2)), ModelError, ["'elbow'", "range", "(3,)"]),
    ("20", lambda: arm(actuators=[Actuator("elbow", control_range=(1, -1))]), ModelError, ["control_range", "1", "-1"]),
    ("20", lambda: arm(actuators=[Actuator("elbow", force_range=5)]), ModelError, ["force_range", "elbow"]),
    ("21", lambda: hinge(stiffness=-1), ModelError, ["stiffness", "'elbow'", "-1", "≥ 0"]),
    ("21", lambda: hinge(damping=-0.5), ModelError, ["damping", "'elbow'", "-0.5"]),
    ("21", lambda: hinge(armature=-0.5), ModelError, ["armature", "'elbow'", "-0.5"]),
    ("21", lambda: hinge(friction_loss=-0.5), ModelError, ["friction_loss", "'elbow'", "-0.5"]),
    ("21", lambda: hinge(damping=NAN), ModelError, ["damping", "'elbow'", "nan"]),
    ("21", lambda: hinge(stiffness=1, spring_reference=INF), ModelError, ["spring_reference", "'elbow'", "inf"]),
    ("21", lambda: hinge(stiffness=1, spring_reference=(1, 2)), ModelError, ["spring_reference", "'elbow'", "2"]),
    ("22", lambda: arm(gravity=(0, 0, NAN)), OptionError, ["gravity", "nan"]),
    ("22", lambda: arm(gravity=(0, -9.81)), OptionError, ["gravity", "(2,)", "(3,)"]),
    ("22", lambda: arm(gravity="down"), OptionError, ["gravity", "down"]),
    ("23", lambda: Options(dt=0), OptionError, ["dt", "0", "positive"]),
    ("23", lambda: Options(dt=-0.1), OptionError, ["dt", "-0.1", "positive"]),
    ("23", lambda: Options(dt=NAN), OptionError, ["dt", "nan"]),
    ("23", lambda: Options(dt=INF), OptionError, ["dt", "inf", "finite"]),
    ("23", lambda: step_of(-0.01), OptionError, ["dt", "-0.01", "positive"]),
    ("23", lambda: step_of(0), OptionError, ["dt", "0", "positive"]),
    ("23", lambda: step_of(jnp.asarray(NAN)), OptionError, ["dt", "nan", "finite"]),
    ("23", lambda: step_of(np.float32(INF)), OptionError, ["dt", "inf", "finite"]),
    ("23", lambda: step_of(np.ones(2)), OptionError, ["dt", "(2,)", "one number"]),
    ("23", lambda: step_of("fast"), OptionError, ["dt", "'fast'", "number"]),
    ("23", lambda: step_of(-0.01, pbad.newton_euler.make_step(0.01)), OptionError, ["dt", "-0.01", "positive"]),
    ("24", lambda: Options(dt=[0.1]), OptionError, ["dt", "[0.1]", "list"]),
    ("24", lambda: Options(dt=True), OptionError, ["dt", "bool"]),
    ("25", lambda: pbad.legendre(2.5), OptionError, ["2.5"]),
    ("25", lambda: pbad.legendre("3"), OptionError, ["'3'"]),
    ("25", lambda: pbad.legendre(1), OptionError, ["1", "K"]),
    ("25", lambda: pbad.legendre(6), OptionError, ["6", "K"]),
    ("25", lambda: pbad.legendre(2, start="warm"), OptionError, ["'warm'", "matched"]),
    ("25", lambda: pbad.radau(4), OptionError, ["4", "1, 2 or 3"]),
    ("25", lambda: pbad.radau("2"), OptionError, ["'2'", "1, 2 or 3"]),
    ("25", lambda: pbad.radau([2]), OptionError, ["[2]", "1, 2 or 3"]),
    ("25", lambda: Options(dt=0.1, scheme="radua2"), OptionError, ["'radua2'", "'radau2'"]),
    ("25", lambda: Options(dt=0.1, scheme=2), OptionError, ["scheme", "2", "radau"]),
    ("26", lambda: Options(dt=0.1, tolerance=0), OptionError, ["tolerance", "0", "positive"]),
    ("26", lambda: Options(dt=0.1, tolerance=-1e-3), OptionError, ["tolerance", "-0.001"]),
    ("26", lambda: Options(dt=0.1, tolerance=NAN), OptionError, ["tolerance", "nan"]),
    ("26", lambda: rollout(options=Options(dt=0.1, tolerance=1e-30)), OptionError, ["1e-30", "smallest", "float"]),
    ("27", lambda: Options(dt=0.1, max_iterations=0), OptionError, ["max_iterations", "0", "≥ 1"]),
    ("27", lambda: Options(dt=0.1, max_iterations=-3), OptionError, ["max_iterations", "-3"]),
    ("27", lambda: Options(dt=0.1, max_iterations=2.5), OptionError, ["max_iterations", "2.5", "integer"]),
    ("28", lambda: Options(dt=0.1, solver="ml"), OptionError, ["solver", "'ml'", "Did you mean 'lm'"]),
    ("28", lambda: Options(dt=0.1, on_failure="freez"), OptionError, ["on_failure", "'freeze'"]),
    ("28", lambda: Options(dt=0.1, linear_solver="dens"), OptionError, ["linear_solver", "'dense'"]),
    ("28", lambda: Options(dt=0.1, recurrence="paralel"), OptionError, ["recurrence", "'parallel'"]),
    ("29", lambda: arm(dtype=np.int32), OptionError, ["int32", "float64"]),
    ("30", lambda: STEP(MODEL, with_state(q=np.zeros(5, np.float16))), StateError, ["q", "float16", "make_state"]),
    ("31", lambda: q_of(0, 0), StateError, ["(2,)", "(5,)", "nq = 5", "elbow[0:1]", "wrist[1:5]"]),
    ("31", lambda: pbad.make_state(MODEL, v=np.zeros(5)), StateError, ["(5,)", "(4,)", "nv = 4"]),
    ("31", lambda: pbad.make_state(MODEL, "zero"), StateError, ["q", "'zero'", "5"]),
    ("31", lambda: STEP(MODEL, with_state(v=np.zeros(3, DTYPE))), StateError, ["v", "(3,)", "(4,)"]),
    ("32", lambda: pbad.make_state(MODEL, np.zeros((7, 5))), StateError, ["(7, 5)", "batch", "vmap"]),
    ("32", lambda: rollout(state=with_state(q=np.zeros((7, 5), DTYPE))), StateError, ["(7, 5)", "batch", "vmap"]),
    ("34", lambda: q_of(NAN, 1, 0, 0, 0), StateError, ["'elbow'", "nan", "q[0]"]),
    ("34", lambda: pbad.make_state(MODEL, v=[0, INF, 0, 0]), StateError, ["'wrist'", "inf", "v[1]"]),
    ("36", lambda: STEP(MODEL, pbad.make_state(MODEL), jnp.zeros(3)), StateError, ["(3,)", "(1,)", "motor"]),
    ("36", lambda: rollout(controls=np.zeros((2, 3))), StateError, ["(2, 3)", "(T, 1)"]),
    ("39", lambda: rollout(controls=np.zeros((3, 1)), n_steps=9), StateError, ["3", "9"]),
    ("41", lambda: STEP(MODEL, pbad.make_state(OTHER)), StateError, [MODEL.fingerprint, OTHER.fingerprint]),
    ("41", lambda: pbad.rollout(MODEL, pbad.make_state(OTHER), n_steps=1, options=Options(dt=0.1)), StateError,
     [MODEL.fingerprint, OTHER.fingerprint]),
    ("53", lambda: traced(lambda x: arm(mass=x)), ModelError, ["mass", "'arm'", "traced", "replace"]),
    ("53", lambda: traced(lambda x: arm(inertia=x * I3)), ModelError, ["inertia", "traced"]),
    ("53", lambda: traced(lambda x: hinge(damping=x)), ModelError, ["damping", "'elbow'", "traced"]),
    ("53", lambda: traced(lambda x: hinge(range=(0, x))), ModelError, ["range", "'elbow'", "traced"]),
    ("53", lambda: traced(lambda x: hinge(spring_reference=x)), ModelError, ["spring_reference", "'elbow'", "traced"]),
    ("53", lambda: traced(lambda x: arm(joint=Joint("universal", x * np.eye(2, 3), name="u"))), ModelError,
     ["axis", "'u'", "traced"]),
    ("53", lambda: traced(lambda x: arm(actuators=[Actuator("elbow", gear=x)])), ModelError, ["gear", "traced"]),
    ("53", lambda: traced(lambda x: arm(world_geoms=[Geom("sphere", (x,))])), ModelError, ["size", "traced"]),
    ("55", lambda: arm(world_geoms=[Geom("plane", quaternion=(0, 0, 0, 0))]), ModelError, ["plane", "world", "zero"]),
    ("55", lambda: arm(world_geoms=[Geom("cube")]), ModelError, ["'cube'", "box"]),
    ("55", lambda: arm(world_geoms=[Geom("sphere", (-1,))]), ModelError, ["sphere", "-1", "≥ 0"]),
    ("55", lambda: arm(actuators=[Actuator("elbo")]), ModelError, ["'elbo'", "elbow"]),
    ("56", lambda: rollout(n_steps=-1), OptionError, ["n_steps", "-1"]),
    ("56", lambda: rollout(n_steps=1.5), OptionError, ["n_steps", "1.5"]),
    ("56", lambda: rollout(n_steps=None), OptionError, ["n_steps"]),
    ("56", lambda: rollout(options=None), OptionError, ["options"]),
    ("1", collinear, ModelError, ["'arm'", "'elbow'", "let go", "one line", "armature"]),
    ("1", lambda: arm(mass=1e-310, inertia=1e-312 * I3), ModelError, ["'arm'", "'elbow'", "1e-312"]),
    ("1", lambda: arm(mass=1e-41, inertia=1e-41 * I3, dtype=np.float32), ModelError, ["'arm'", "'elbow'", "1e-41"]),
    ("1", lambda: arm(mass=0, inertia=0 * I3, joint=Joint("hinge", armature=1)), ModelError,
     ["add up to 0 kg", "'arm'"]),
    ("36", lambda: rollout(controls="fast"), StateError, ["controls", "'fast'", "numbers"]),
    ("36", lambda: rollout(controls=np.zeros((2, 3))), StateError, ["(2, 3)", "(T, 1)", "motor"]),
    ("36", lambda: rolled(np.zeros((2, 3))), StateError, ["(2, 3)", "(T, 1)", "motor"]),
    ("36", lambda: rolled(lambda state: jnp.zeros(3)), StateError, ["(3,)", "(1,)", "motor"]),
    ("56", lambda: rolled(None, lanes=0), StateError, ["(0, 5)", "lanes ≥ 1"]),
    ("52", lambda: STEP(changed(gravity=None), pbad.make_state(MODEL)), ModelError, ["gravity", "None", "(3,)"]),
    ("52", lambda: pbad.make_step(Options(dt=0.01))(changed(second_moment="heavy"), pbad.make_state(MODEL)), ModelError,
     ["second_moment", "'heavy'", "(2, 4, 4)"]),
    ("52", lambda: rollout(model=changed(q0=[1, 2, 3])), ModelError, ["q0", "[1, 2, 3]", "(5,)"]),
    ("52", lambda: rollout(model=changed(armature=np.zeros(3))), ModelError, ["armature", "(3,)", "(4,)"]),
    ("52", lambda: rollout(model=changed(forces=(pbad.forces.drag("a lot"),))), ModelError, ["rate", "'a lot'"]),
    ("52", lambda: rollout(model=changed(forces=(dataclasses.replace(PD, kp="stiff"),))), ModelError,
     ["forces[0].kp", "'stiff'"]),
    ("52", lambda: pbad.with_forces(MODEL, dataclasses.replace(PD, kp="stiff")), ModelError,
     ["kp", "PDDrive", "'stiff'"]),
    ("21", lambda: pbad.forces.pd_drive(MODEL, None, [1, 2, -3, 4], 1), ModelError, ["kp", "'wrist'", "-3", "≥ 0"]),
    ("21", lambda: pbad.forces.pd_drive(MODEL, None, 1, np.ones(3)), ModelError,
     ["kd", "(3,)", "1 of 'elbow', 3 of 'wrist'"]),
    ("21", lambda: pbad.forces.pd_drive(MODEL, None, 1, 1, target=[0, NAN, 0, 0, 0]), ModelError,
     ["target", "'wrist'", "nan"]),
    ("21", lambda: pbad.forces.pd_drive(MODEL, None, 1, 1, target=[0, 1]), ModelError,
     ["target", "(2,)", "4 of 'wrist'"]),
    *(("53", lambda make=make: in_jit(make), ModelError, ["traced", "outside jit"]) for make in (
        lambda m: pbad.forces.contact(m, points=pbad.forces.points_on(m, "hand", (0, 0, 0))),
        lambda m: pbad.forces.connect(m, "hand"),
        lambda m: pbad.forces.wrench(m, "hand", force=(1, 0, 0)),
        lambda m: pbad.forces.pd_drive(m, None, 1, 1),
        lambda m: pbad.forces.inertia_boxes(m, 1, 1),
    )),
    ("-", lambda: pbad.make_step(0.05), OptionError, ["Options", "float"]),
    ("16", lambda: pbad.build_model(None), ModelError, ["bodies", "NoneType", "list of Body"]),
    ("16", lambda: pbad.build_model("arm"), ModelError, ["bodies", "'arm'", "list of Body"]),
    ("16", lambda: pbad.build_model([None]), ModelError, ["bodies[0]", "NoneType", "Body"]),
    ("18", lambda: child(joints="hinge"), ModelError, ["joints of body 'hand'", "'hinge'", "Joint"]),
    ("18", lambda: child(joints=Joint("hinge")), ModelError, ["joints of body 'hand'", "list of Joint"]),
    ("55", lambda: child(geoms=["sphere"]), ModelError, ["geoms of body 'hand'[0]", "'sphere'", "Geom"]),
    ("55", lambda: arm(world_geoms="plane"), ModelError, ["world_geoms", "'plane'", "list of Geom"]),
    ("55", lambda: arm(actuators=["elbow"]), ModelError, ["actuators[0]", "'elbow'", "Actuator"]),
    ("29", lambda: arm(dtype="float65"), OptionError, ["'float65'", "float64"]),
    ("34", lambda: pbad.make_state(MODEL, time=NAN), StateError, ["time", "nan", "finite"]),
    ("34", lambda: pbad.make_state(MODEL, time="now"), StateError, ["time", "'now'", "number"]),
    ("41", lambda: pbad.make_state(None), ModelError, ["model", "NoneType", "Model"]),
    ("41", lambda: STEP(None, pbad.make_state(MODEL)), ModelError, ["model", "NoneType", "build_model"]),
    ("41", lambda: STEP(pbad.make_state(MODEL), MODEL), ModelError, ["model", "State", "build_model"]),
    ("-", lambda: pbad.chain(2, length=[1.0]), ModelError, ["length", "[1.0]", "2"]),
    ("-", lambda: pbad.chain(0), ModelError, ["0", "≥ 1"]),
    ("-", lambda: pbad.chain(3, mass=-1), ModelError, ["mass", "-1"]),
    ("-", lambda: arm(q0=[1, 2, 3]), ModelError, ["q0", "(3,)", "(1,)"]),
    ("-", lambda: arm(fix_inertia="yes"), OptionError, ["fix_inertia", "'yes'", "project"]),
]  # fmt: skip


@pytest.mark.parametrize("row, call, exception, words", RAISES, ids=[f"{i}-row{r[0]}" for i, r in enumerate(RAISES)])
def test_refused_with_a_message(row, call, exception, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(exception) as caught:
            call()
    assert type(caught.value) is exception, f"row {row}: {type(caught.value)}"
    message = str(caught.value)
    missing = [w for w in words if w not in message]
    assert not missing, f"row {row}: {missing} not in {message!r}"


@pytest.mark.float64
@pytest.mark.parametrize("K", [3, 4, 5])
def test_row_25_orders_that_do_not_exist_yet(K):
    try:
        scheme = pbad.legendre(K)
    except OptionError as e:
        assert str(K) in str(e)
    else:
        assert scheme.m == K - 1


def test_row_6_projection_on_request():
    with pytest.warns(UserWarning, match="'arm'.*projected"):
        model = arm(inertia=flat, fix_inertia="project")
    M = np.asarray(model.second_moment[0])
    assert np.linalg.eigvalsh(M)[0] > -1e-6


def test_row_9_axis_is_normalised_with_a_warning():
    with pytest.warns(UserWarning, match="'elbow'.*length 2"):
        model = hinge(axis=(0, 0, 2))
    np.testing.assert_allclose(model.axis[0], [0, 0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hinge(axis=(0, 0, 1.0005))


def test_row_12_quaternion_is_normalised_when_close():
    q = np.asarray(q_of(0.1, 1.0005, 0, 0, 0).q)
    np.testing.assert_allclose(np.linalg.norm(q[1:]), 1, rtol=1e-6)


def test_row_16_two_roots():
    model = pbad.build_model([Body(n, 1, inertia=I3, joints=[Joint("hinge", name=n)]) for n in "ab"])
    assert model.topology.link_parent == (-1, -1)


def test_row_24_integer_dt():
    assert Options(dt=1).dt == 1.0 and isinstance(Options(dt=np.float32(0.5)).dt, float)


@pytest.mark.skipif(not FLOAT32, reason="only where x64 is off")
def test_row_29_float64_is_never_silently_float32():
    with pytest.raises(OptionError, match="jax_enable_x64"):
        arm(dtype=np.float64)


def test_row_30_and_33_states_are_cast_to_the_model():
    state = pbad.make_state(MODEL, np.array([1, 1, 0, 0, 0]), np.zeros(4, np.float16))
    assert state.q.dtype == state.v.dtype == MODEL.dtype and float(state.q[0]) == 1


# --- what happens inside jit is a status -------------------------------------------------------------------

BATCH = jax.jit(jax.vmap(pbad.make_step(Options(dt=0.01)), in_axes=(0, 0, 0, 0)))


def lanes(n=4):
    rng = np.random.default_rng(0)
    model = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), MODEL)
    state = jax.vmap(lambda v: pbad.make_state(MODEL, v=v))(jnp.asarray(rng.normal(size=(n, 4)), DTYPE))
    return model, state, jnp.asarray(rng.normal(size=(n, 1)), DTYPE), jnp.full(n, 0.01, DTYPE)


def poison(x, lane, value=NAN):
    return x.at[(lane,) + (0,) * (x.ndim - 1)].set(value)


@pytest.mark.parametrize(
    "row, what, value",
    [
        *(("35", "q", NAN), ("35", "v", NAN), ("37", "control", NAN)),
        *(("52", "mass", NAN), ("52", "gravity", NAN), ("52", "armature", NAN)),
        *(("23", "dt", x) for x in (NAN, INF, 0.0, -0.01)),
    ],
)
def test_a_bad_lane_gets_a_status_and_no_other_lane_changes(row, what, value):
    model, state, control, dt = lanes()
    good, good_info = BATCH(model, state, control, dt)
    assert np.all(np.asarray(good_info.status) == Status.CONVERGED)
    before = state
    if what == "control":
        control = poison(control, 2)
    elif what == "dt":
        dt = poison(dt, 2, value)
    elif what in ("q", "v"):
        state = dataclasses.replace(state, **{what: poison(getattr(state, what), 2)})
    else:
        field = "second_moment" if what == "mass" else what
        model = dataclasses.replace(model, **{field: poison(getattr(model, field), 2)})
    bad, info = BATCH(model, state, control, dt)
    assert int(info.status[2]) == Status.NONFINITE_INPUT, (row, what, info.status)
    healthy = np.array([0, 1, 3])
    for a, b in zip(jax.tree.leaves((good, good_info)), jax.tree.leaves((bad, info))):
        np.testing.assert_array_equal(np.asarray(a)[healthy], np.asarray(b)[healthy])
    if what not in ("q", "v"):  # the last good state is kept
        np.testing.assert_array_equal(bad.q[2], before.q[2])
        np.testing.assert_array_equal(bad.v[2], before.v[2])
        np.testing.assert_array_equal(bad.time[2], before.time[2])
    again, info = BATCH(*lanes()[:1], bad, *lanes()[2:])
    assert int(info.status[2]) == Status.FROZEN


@pytest.mark.parametrize("value", [1e30, -1e30, INF])
def test_row_38_enormous_control(value):
    state, info = STEP(MODEL, pbad.make_state(MODEL), jnp.asarray([value], DTYPE))
    assert np.all(np.isfinite(state.q)) and np.all(np.isfinite(state.v))
    if not np.isfinite(value):
        assert int(info.status) != Status.CONVERGED


def test_row_54_copies():
    state = pbad.make_state(MODEL)
    for twin in (copy.deepcopy(MODEL), pickle.loads(pickle.dumps(MODEL))):
        assert twin.topology == MODEL.topology and hash(twin.topology) == hash(MODEL.topology)
        assert STEP(twin, state, jnp.zeros(1, DTYPE))[1].status == Status.CONVERGED
        for a, b in zip(jax.tree.leaves(twin), jax.tree.leaves(MODEL)):
            np.testing.assert_array_equal(a, b)
    assert pickle.loads(pickle.dumps(state)).fingerprint == MODEL.fingerprint
    assert pickle.loads(pickle.dumps(Options(dt=0.1))) == Options(dt=0.1)
    doubled = jax.tree.map(lambda x: 2 * x, MODEL)
    assert float(doubled.gravity[2]) == pytest.approx(-2 * 9.81)


def test_row_56_no_steps_no_lanes():
    traj, info = rollout(n_steps=0)
    assert traj.q.shape == (0, 5) and traj.v.shape == (0, 4) and traj.time.shape == (0,) and info.status.shape == (0,)
    assert traj.q.dtype == MODEL.dtype and info.status.dtype == np.int8
    empty = jax.tree.map(lambda x: x[:0], lanes())
    state, info = BATCH(*empty)
    assert state.q.shape == (0, 5) and info.status.shape == (0,)


def test_every_status_has_advice():
    for status in Status:
        assert status.advice.endswith(".") and status.advice.count(". ") == 0


def of_a_model():
    """Every public function whose first argument is a model, and as many arguments as it wants beside."""
    for room in (pbad, pbad.forces):
        for name in room.__all__:
            f = getattr(room, name)
            given = list(inspect.signature(f).parameters.values()) if inspect.isfunction(f) else []
            if given and given[0].name == "model":
                wanted = [p for p in given[1:] if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
                words = [p.name for p in wanted if p.kind is p.KEYWORD_ONLY]
                yield pytest.param(f, len(wanted) - len(words), words, id=name)


@pytest.mark.parametrize("f, others, words", list(of_a_model()))
def test_what_wants_a_model_says_so(f, others, words):
    options = dict.fromkeys(words, Options(dt=0.01))
    if f in (pbad.rollout, pbad.rollout_batch, pbad.linearize):
        options["options"] = Options(dt=0.01)
    with pytest.raises((ModelError, StateError), match="the model is NoneType None; give"):
        f(None, *[None] * others, **options)


@pytest.mark.parametrize(
    "make, named",
    [
        (lambda: arm(mass=True), "mass"),
        (lambda: arm(mass=np.True_), "mass"),
        (lambda: pbad.forces.contact(pbad.chain(1), friction=True), "friction of contact"),
    ],
)
def test_true_is_no_number(make, named):
    with pytest.raises(ModelError, match=f"{named}.*True.*no bool"):
        make()


def test_more_steps_than_can_be_counted():
    state = pbad.make_state(MODEL)
    with pytest.raises(OptionError, match="n_steps is 10000000000000; .*long_rollout"):
        pbad.rollout(MODEL, state, n_steps=10**13, options=Options(dt=0.01))
