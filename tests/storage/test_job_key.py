"""The key of a job differs wherever its numbers may, and is the same in every process; or the job is refused."""

import collections
import copy
import dataclasses
import enum
import functools
import importlib
import os
import subprocess
import sys
import threading
import types
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE
from model.test_leaves import anvil, bricks, machine

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.storage.job_key import job_key

pytestmark = pytest.mark.float64


def key(x: Any) -> str:
    return job_key(it=x)


def others(x: Any, name: str = ""):
    """(name, x with one part changed), of every part of dataclasses and tuples, down to numbers and text."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        for f in dataclasses.fields(x):
            for where, other in others(getattr(x, f.name), f"{name}.{f.name}"):
                there = copy.copy(x)
                object.__setattr__(there, f.name, other)  # past its checks: any change counts
                yield where, there
    elif isinstance(x, tuple) and x:
        for i in {0, len(x) // 2, len(x) - 1}:
            for where, other in others(x[i], f"{name}[{i}]"):
                entries = [*x[:i], other, *x[i + 1 :]]
                yield where, type(x)(*entries) if hasattr(x, "_fields") else tuple(entries)
        yield f"{name} length", (*x, x[-1])
    else:
        yield name, _another(x)


def _another(x: Any) -> Any:
    if isinstance(x, jax.Array | np.ndarray) and x.size:
        return np.concatenate([np.ravel(x)[:1] == 0, np.ravel(x)[1:]]).astype(x.dtype).reshape(x.shape)
    if isinstance(x, bool | np.bool_):
        return not x
    if isinstance(x, int | float | np.number):
        return x + 1
    return f"{x}'" if isinstance(x, str) else lambda *_: 7.0


def assert_told_apart(x: Any) -> int:
    """All of `others` have other keys, each its own; how many there are."""
    found = {"as it is": key(x)} | {name: key(other) for name, other in others(x)}
    same = {a: [b for b in found if found[b] == found[a] and b != a] for a in found}
    assert not any(same.values()), {a: b for a, b in same.items() if b}
    return len(found)


@pytest.mark.parametrize("made", [machine, anvil, bricks])
def test_every_part_of_every_force_counts(made):
    """Static fields too: frames, bodies, joints, `at`, links, signed distances."""
    for force in made().forces:
        n = assert_told_apart(force)
        assert n > len(jax.tree.leaves(force)), type(force)


def test_every_part_of_options_and_schemes_counts():
    for scheme in ("radau2", "dirk3", "legendre3", "variational"):
        assert_told_apart(pbad.Options(dt=0.01, scheme=scheme))
    assert key(pbad.legendre(2)) != key(pbad.legendre(2, start="linear"))
    assert key(pbad.Options(dt=0.01, scheme="radau1")) == key(pbad.Options(dt=0.01, scheme=pbad.radau(1)))


JOINT = pbad.Joint("hinge", (0, 0, 1), "h", (0.1, 0, 0), 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, (-1, 1), 0.03, 0.02, effort=3.0)
MOTOR = pbad.Actuator("h", "a", 2.0, 3.0, (0.1, 0.2, 0.3), (-1, 1), (-2, 2), False, 0.1, False, (-0.5, 0.5))
OTHER_JOINT = {"type": "slide", "axis": (0, 1, 0), "anchor": (0.2, 0, 0), "range": (-1, 2), "name": "other"}
OTHER_MOTOR = {
    "joint": {"h": 1.0}, "name": "b", "bias": (0.1, 0.2, 0.4), "control_range": (-1, 2), "force_range": (-1, 2),
    "in_parent": True, "time_constant": 0.2, "integrates": True, "activation_range": (-0.5, 0.6),
}  # fmt: skip
IDLE = {"effort"}  # for who reads it: no step does


def robot(joint: pbad.Joint = JOINT, motor: pbad.Actuator = MOTOR) -> pbad.Model:
    if joint.name != "h":
        motor = dataclasses.replace(motor, joint=joint.name)
    return pbad.build_model(
        [pbad.Body("b", 1.0, (0, 0, -0.5), np.eye(3), joints=[joint])], actuators=[motor], dtype=DTYPE
    )


def changed(x: Any, field: str, to: dict[str, Any]) -> Any:
    value = getattr(x, field)
    return dataclasses.replace(x, **{field: to.get(field, value + 0.05 if isinstance(value, float) else value)})


@pytest.mark.parametrize(("what", "to"), [(JOINT, OTHER_JOINT), (MOTOR, OTHER_MOTOR)], ids=["joint", "motor"])
def test_every_field_of_a_joint_and_of_an_actuator_counts(what, to):
    found = {"as it is": key(robot())}
    for f in dataclasses.fields(what):
        other = changed(what, f.name, to)
        if f.name == "integrates":  # or a filter
            other = dataclasses.replace(other, time_constant=None)
        elif f.name == "in_parent" or f.name in IDLE:  # of free joints
            continue
        found[f.name] = key(robot(other) if isinstance(other, pbad.Joint) else robot(motor=other))
    assert len(set(found.values())) == len(found), found


# --- policies -------------------------------------------------------------------------------------------

GAIN = 2.0


def doubled(x):
    return GAIN * x


def follows(state, gain=1.0):
    return gain * doubled(state.q)


@dataclasses.dataclass(frozen=True)
class Policy:
    gain: float
    law: Any = follows
    table: tuple[float, ...] = (1.0, 2.0)

    def __call__(self, state):
        return self.law(state, self.gain)


class Extended(Policy):
    """No dataclass of its own."""

    def __init__(self, gain, more):
        super().__init__(gain)
        object.__setattr__(self, "_more", more)


class Pair(NamedTuple):
    gain: float = 1.0

    def __call__(self, state):
        return self.gain * state.q


class OtherPair(NamedTuple):
    gain: float = 1.0

    def __call__(self, state):
        return -self.gain * state.q


class Plain:
    def __init__(self, gain):
        self.gain = gain

    @functools.cached_property
    def late(self):
        return 2 * self.gain

    def __call__(self, state):
        return self.gain * state.q


class Other(Plain):
    def __call__(self, state):
        return -self.gain * state.q


def closed_over(gain):
    return lambda state: gain * state.q


def test_policies():
    """By code, closure, defaults, numbers in partials, fields of objects, methods, and whether they are wrapped."""
    given = {
        "function": follows,
        "other function": doubled,
        "default": lambda state, gain=1.0: gain * state.q,
        "other default": lambda state, gain=2.0: gain * state.q,
        "constant": lambda state: 1.5 * state.q,
        "other constant": lambda state: 2.5 * state.q,
        "attribute": lambda state: 2.5 * state.v,
        "nested": lambda state: [1.0 * x for x in state.q],
        "other nested": lambda state: [3.0 * x for x in state.q],
        "closure": closed_over(1.0),
        "other closure": closed_over(2.0),
        "array in a closure": closed_over(jnp.ones(2)),
        "other array in a closure": closed_over(jnp.ones(3)),
        "jit of a closure": jax.jit(closed_over(1.0)),
        "jit of another": jax.jit(closed_over(2.0)),
        "vmap": jax.vmap(closed_over(1.0)),
        "other vmap": jax.vmap(closed_over(2.0)),
        "partial": functools.partial(follows, gain=1.0),
        "other partial": functools.partial(follows, gain=2.0),
        "pytree": jax.tree_util.Partial(follows, gain=jnp.asarray(1.0)),
        "other pytree": jax.tree_util.Partial(follows, gain=jnp.asarray(2.0)),
        "dataclass": Policy(1.0),
        "other number": Policy(2.0),
        "other law": Policy(1.0, closed_over),
        "other table": Policy(1.0, table=(1.0, 3.0)),
        "extended": Extended(1.0, 2.0),
        "extended otherwise": Extended(1.0, 3.0),
        "tuple": Pair(1.0),
        "other tuple": Pair(2.0),
        "tuple with another method": OtherPair(1.0),
        "object": Plain(1.0),
        "other object": Plain(2.0),
        "other class": Other(1.0),
        "method": Plain(1.0).__call__,
        "other method": Plain(2.0).__call__,
        "numbers": np.random.default_rng(0),
        "other numbers": np.random.default_rng(1),
        "random key": jax.random.key(0),
        "other random key": jax.random.key(1),
    }
    found = {name: key(x) for name, x in given.items()}
    assert len(set(found.values())) == len(found), found
    for again in (lambda: closed_over(1.0), lambda: Policy(1.0), lambda: Plain(1.0), lambda: jax.jit(closed_over(1.0))):
        assert key(again()) == key(again())
    assert key({"a": 1, "b": 2}) != key({"b": 2, "a": 1}) and key({1, 2}) == key({2, 1})
    assert key(1.0) != key(1) != key(True) and key((1, 2)) != key([1, 2]) and key(("ab",)) != key(("a", "b"))


def test_globals_and_classes_that_a_policy_names(monkeypatch):
    first, by_class = key(follows), key(Policy(1.0))
    monkeypatch.setitem(globals(), "GAIN", 3.0)
    assert key(follows) != first, "a global that a function of its own names"
    monkeypatch.undo()
    assert key(follows) == first
    used = Plain(1.0)
    assert used.late == 2 and key(used) == key(Plain(1.0)), "what is cached is no state"
    monkeypatch.setattr(Policy, "__call__", lambda self, state: -state.q)
    assert key(Policy(1.0)) != by_class


def held_by_its_class(held):
    class Holds:
        value = held
        _hidden: ClassVar = held

        def __call__(self, state):
            return state.q

    return Holds()


def with_attribute(held):
    def f(state):
        return f.gain * state.q  # pyright: ignore[reportFunctionMemberAccess]

    f.gain = held  # pyright: ignore[reportFunctionMemberAccess]
    return f


def enumerated(gain):
    Gains = enum.Enum("Gains", {"LOW": gain})
    return lambda state: Gains["LOW"].value * state.q


def test_what_a_class_or_a_function_holds():
    """Objects of every kind in a class body, attributes of functions, members of enumerations, what makes defaults."""
    values = {
        "dict": lambda g: {"k": g},
        "object": Plain,
        "partial": lambda g: functools.partial(follows, gain=g),
        "class": lambda g: type("Consts", (), {"k": g}),
        "default": lambda g: collections.defaultdict(lambda: g),
        "view": lambda g: types.MappingProxyType({"k": g}),
    }
    makers = {f"{name} in a class": lambda g, make=make: held_by_its_class(make(g)) for name, make in values.items()}
    makers |= {"attribute": with_attribute, "enumeration": enumerated}
    for name, make in makers.items():
        assert key(make(1.0)) == key(make(1.0)) != key(make(2.0)), name
    with pytest.raises(pbad.CheckpointError, match="lock"):
        key(held_by_its_class(threading.Lock()))


def test_what_meets_itself():
    loop: list = [1.0]
    loop.append(loop)
    other: list = [2.0]
    other.append(other)
    assert key(loop) != key(other)


@pytest.mark.parametrize("held", [threading.Lock, lambda: (i for i in "a"), lambda: sys.stderr, threading.local])
def test_what_cannot_be_told_apart_is_refused_by_name(held):
    with pytest.raises(pbad.CheckpointError, match=r"it.*\.hidden.*cannot tell from another") as error:
        key(dataclasses.make_dataclass("Holder", ["hidden"])(held()))
    assert "Partial" in str(error.value) and len(str(error.value)) < 400


USER = """
import dataclasses, functools, jax, jax.numpy as jnp, numpy as np
import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.storage.job_key import job_key
SIDES = {"left", "right", "up", "down"}
@functools.partial(jax.tree_util.register_dataclass, data_fields=["size"], meta_fields=["sides", "law"])
@dataclasses.dataclass(frozen=True)
class Push:
    size: jax.Array
    sides: frozenset
    law: object
    def load(self, model, at):
        return forces.Load(tau=self.law(self.size) * at.v)
def controls(state):
    return jnp.sin(state.q[:1]) * len(SIDES)
def job():
    model = pbad.chain(2)
    push = Push(jnp.ones(()), frozenset(SIDES), lambda x: 2 * x)
    model = pbad.with_forces(model, push)
    ground = forces.SignedDistance(lambda P, p: P[2] - p, jnp.zeros(()))
    options, states = pbad.Options(dt=0.01), pbad.make_state(model)
    return job_key(model=model, ground=ground, controls=jax.jit(controls), options=options, states=states)
"""


@pytest.mark.slow
def test_another_process_finds_the_same_key(tmp_path, monkeypatch):
    """Which orders sets and numbers objects otherwise, and runs the user's module as its script."""
    (tmp_path / "of_user.py").write_text(USER + '\nif __name__ == "__main__":\n    print(job())\n')
    monkeypatch.syspath_prepend(tmp_path)
    here = importlib.import_module("of_user").job()
    x64 = str(int(jax.config.read("jax_enable_x64")))
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "JAX_ENABLE_X64": x64, "PYTHONPATH": os.pathsep.join(sys.path)}
        out = subprocess.run([sys.executable, tmp_path / "of_user.py"], env=env, capture_output=True, text=True)
        assert out.stdout.strip() == here, out.stderr


def test_the_frame_of_a_wrench():
    """As two models that share all arrays."""
    model = machine()
    world, body = (forces.wrench(model, "shin", (1, 2, 3), frame=frame) for frame in ("world", "body"))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(world), jax.tree.leaves(body), strict=True))
    assert key(pbad.with_forces(model, world)) != key(pbad.with_forces(model, body))
