"""Every public function that takes a model with a state, a configuration or a control refuses what is not of it."""

import dataclasses
import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, Sensor, Site

ROOMS = ["pbad_jax", *(f"pbad_jax.{x}" for x in ("control", "envs", "forces", "importers", "newton_euler", "viz"))]
STATES = {"state", "states"}
ROWS = {"q": 2, "q_a": 2, "q_b": 2, "v": 2, "delta": 2, "control": 1, "acceleration": 2, "activation": 1}
MOTIONS = {"trajectory", "traj", "motion"}
TABLES = {"controls": 1}


def arm(name: str) -> pbad.Model:
    """Two hinges and a motor that is filtered."""
    bodies = [
        Body(f"{name}1", 1.0, inertia=np.eye(3), joints=[Joint("hinge", name=f"{name}j")]),
        Body(f"{name}2", 1.0, (0, 0, -1), np.eye(3), f"{name}1", (0, 0, -1), joints=[Joint("hinge", name=f"{name}k")]),
    ]
    model = pbad.build_model(bodies, actuators=[Actuator(f"{name}j", time_constant=0.1)], name=name, dtype=DTYPE)
    model = pbad.with_sites(model, {"tip": Site(f"{name}2")})
    return pbad.with_sensors(model, {"place": Sensor("framepos", of="tip")})


MODEL, OTHER = arm("a"), arm("b")
STATE = pbad.make_state(MODEL)
MANY = jax.tree.map(lambda x: jnp.stack([x, x]), STATE)
NEEDED = {
    "body": "a2", "site": "tip", "options": pbad.Options(dt=0.01), "n_steps": 1, "dt": 0.01, "every": 1,
    "path": "never.npz", "folder": "never", "info": None, "q": np.zeros(2), "q_a": np.zeros(2), "q_b": np.zeros(2),
    "delta": np.zeros(2), "acceleration": np.zeros(2), "state": STATE, "states": MANY,
}  # fmt: skip


def takers() -> dict[str, tuple]:
    """{name: (function, the parameter that is looked at)} of all public functions of a model."""
    found = {}
    for room in ROOMS:
        made = importlib.import_module(room)
        for name in made.__all__:
            f = getattr(made, name)
            if inspect.isfunction(f) and "model" in (given := inspect.signature(f).parameters):
                for which in sorted(given.keys() & (STATES | ROWS.keys() | MOTIONS | TABLES.keys())):
                    found[f"{room}.{name}({which})"] = (f, which)
    return found


def bad(which: str) -> dict:
    """What is not of the model."""
    rows = lambda n: pbad.Trajectory(jnp.zeros(3, DTYPE), jnp.zeros((3, n), DTYPE), jnp.zeros((3, n), DTYPE))  # noqa: E731
    if which in STATES:
        fits, wrong = (MANY, STATE) if which == "states" else (STATE, MANY)
        lanes = (2,) if which == "states" else ()
        return {
            "another model's": dataclasses.replace(fits, fingerprint=OTHER.fingerprint),
            "one for many": wrong,
            "none": 3.0,
            "a configuration": np.zeros(2),
            "too long": dataclasses.replace(fits, q=jnp.zeros((*lanes, 3), DTYPE)),
            "too short": dataclasses.replace(fits, v=jnp.zeros((*lanes, 1), DTYPE)),
            "integers": dataclasses.replace(fits, q=jnp.zeros((*lanes, 2), int)),
            "a list": dataclasses.replace(fits, v=[0.0, 0.0]),
            "no activation": dataclasses.replace(fits, activation=None),
        }
    if which in MOTIONS:
        return {"too long": rows(3), "too short": rows(1), "none": 3.0}
    size = {**ROWS, **TABLES}[which]
    ahead = (1,) if which in TABLES else ()
    return {
        "too long": np.zeros((*ahead, size + 1)),
        "too short": np.zeros((*ahead, size - 1)),
        "a batch": np.zeros((3, 4, 5, size) if which in TABLES else (3, size)),
        "complex numbers": np.zeros((*ahead, size), complex),
        "bools": np.zeros((*ahead, size), bool),
        "words": "zero",
        "no numbers": [object()] * size,
    }


TAKERS = takers()


def call(f, which: str, x):
    """f with x for that parameter, and what else it needs."""
    given = {"model": MODEL}
    for name, p in inspect.signature(f).parameters.items():
        if (
            name != "model"
            and name in NEEDED
            and (p.default is inspect.Parameter.empty or name in ("options", "n_steps"))
        ):
            given[name] = NEEDED[name]
    if which == "controls":
        given.pop("n_steps", None)
    if f.__name__ == "to_video":
        given["path"] = "never.gif"
    return f(**(given | {which: x}))


def test_there_are_many():
    names = {x.split("(")[0].rsplit(".", 1)[1] for x in TAKERS}
    assert {"kinetic_energy", "loop_gaps", "forward_kinematics", "mass_matrix", "rollout_batch", "retract"} <= names


@pytest.mark.parametrize("name", TAKERS)
def test_what_is_not_of_the_model_is_refused(name):
    f, which = TAKERS[name]
    for what, x in bad(which).items():
        with pytest.raises((pbad.StateError, pbad.ModelError)) as caught:
            call(f, which, x)
            pytest.fail(f"{name} takes what is {what}")
        assert len(str(caught.value)) > 30, f"{what}: {caught.value}"


@pytest.mark.parametrize("made", [pbad.make_step(pbad.Options(dt=0.01)), pbad.newton_euler.make_step(0.01)])
def test_so_do_steps(made):
    for which in ("state", "control"):
        for what, x in bad(which).items():
            with pytest.raises((pbad.StateError, pbad.ModelError)):
                made(MODEL, **({"state": STATE} | {which: x}))
                pytest.fail(f"a step takes a {which} that is {what}")


WRONG = {
    "time": (jnp.zeros(3), "x"), "time_rest": (None,), "history": (jnp.zeros(7), [0.0, 0.0]),
    "history_v": (jnp.zeros(1),),
    "has_history": (jnp.zeros(3, bool),), "history_span": ("0.1",), "status": (jnp.zeros(3, jnp.int8),),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_every_part_of_a_state_is_looked_at(name):
    """By steps, rollouts, derivatives and energies alike; JAX's own errors came of them, or answers."""
    how = pbad.Options(dt=0.01)
    for x in WRONG[name]:
        state = dataclasses.replace(STATE, **{name: x})
        for ask in (
            lambda s: pbad.make_step(how)(MODEL, s),
            lambda s: pbad.rollout(MODEL, s, n_steps=1, options=how),
            lambda s: pbad.linearize(MODEL, s, None, how),
            lambda s: pbad.potential_energy(MODEL, s),
        ):
            with pytest.raises(pbad.StateError, match=f"state.{name} "):
                ask(state)
        with pytest.raises(pbad.StateError, match=f"{name} "):
            pbad.rollout_batch(MODEL, dataclasses.replace(MANY, **{name: x}), n_steps=1, options=how)
    with pytest.raises(pbad.StateError, match="q is list"):
        pbad.rollout_batch(MODEL, dataclasses.replace(MANY, q=[[0.0, 0.0]] * 2), n_steps=1, options=how)


def test_under_vmap_one_is_one_and_inside_jit_too():
    """Checks are of shapes, so they hold where values are not known."""
    energies = jax.vmap(lambda s: pbad.kinetic_energy(MODEL, s))(MANY)
    assert energies.shape == (2,)
    with pytest.raises(pbad.StateError, match="batch"):
        jax.jit(lambda s: pbad.kinetic_energy(MODEL, s))(MANY)
    with pytest.raises(pbad.StateError, match=r"q has shape \(3,\)"):
        jax.jit(lambda q: pbad.forward_kinematics(MODEL, q))(jnp.zeros(3, DTYPE))


def test_numbers_of_another_kind_are_cast():
    """A configuration in integers, lists or another precision is the same configuration."""
    want = pbad.forward_kinematics(MODEL, jnp.asarray([1.0, 2.0], DTYPE)).position
    for q in ([1, 2], np.array([1, 2]), np.array([1.0, 2.0], np.float32), (1.0, 2.0)):
        got = pbad.forward_kinematics(MODEL, q).position
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
