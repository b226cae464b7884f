"""CONTRIBUTING's three recipes, each followed once: a scheme, a force, a joint."""

import dataclasses
import functools
import importlib
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax import schemes
from pbad_jax.model import joints

CONTRIBUTING = (pathlib.Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
pytestmark = pytest.mark.float64


def swing(n: int, dt: float, scheme, model=None):
    model = pbad.chain(2) if model is None else model
    state = pbad.make_state(model, v=0.5 * jnp.arange(1, model.nv + 1))
    return pbad.rollout(model, state, n_steps=n, options=pbad.Options(dt, scheme))


# --- a scheme ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_scheme_is_a_row(monkeypatch):
    """Nodes 1/2 and 1: a collocation of order two, known by its name as soon as it is in the table."""
    monkeypatch.setitem(schemes.NAMES, "halves", lambda: schemes.projected("halves", 2, (0.5, 1.0)))
    ends = [swing(n, 0.2 / n, "halves")[0].q[-1] for n in (32, 64)]
    exact, info = swing(64, 0.2 / 64, "radau3")
    errors = [float(jnp.linalg.norm(q - exact.q[-1])) for q in ends]
    assert bool(info.ok) and 3.5 < errors[0] / errors[1] < 4.5, errors


# --- a force ----------------------------------------------------------------------------------------------
# begin: force


@functools.partial(jax.tree_util.register_dataclass, data_fields=["stiffness"], meta_fields=["links"])
@dataclasses.dataclass(frozen=True)
class Torsion:
    """A spring that turns two links into one another's axes: Q = ½ k Σ_i ‖R_a e_i − R_b e_i‖²/2 = k (1 − cos θ)."""

    stiffness: jax.Array  # () N m
    links: tuple[tuple[int, int], ...]  # three times the same pair, for three axes

    def load(self, model: pbad.Model, at: pbad.Instant) -> pbad.Load:
        axes = jnp.concatenate([jnp.eye(3, dtype=model.dtype), jnp.zeros((3, 1), model.dtype)], axis=1)
        pairs = jnp.broadcast_to(axes[:, None], (3, 2, 4))  # (e, 0): directions, not points
        return pbad.forces.point_forces(at, self.links, pairs, _aligning, self.stiffness)

    def potential(self, model: pbad.Model, at: pbad.Instant) -> jax.Array:
        a, b = (at.T[k][:, :3] for k in self.links[0])
        return 0.25 * self.stiffness * jnp.sum((a - b) ** 2)


def _aligning(P: jax.Array, V: jax.Array, stiffness: jax.Array) -> jax.Array:
    pull = 0.5 * stiffness * (P[1] - P[0])
    return jnp.stack([pull, -pull])


def torsion(model: pbad.Model, body: str, other: str, stiffness: float) -> Torsion:
    """Between two bodies; stiffness N m."""
    pair = tuple(model.topology.body_link[model.body_names.index(name)] for name in (body, other))
    return Torsion(jnp.asarray(stiffness, model.dtype), (pair,) * 3)


# end: force
@pytest.mark.slow
def test_a_force_is_a_small_pytree():
    """Two hinges about x and a torsion spring: the torque is k sin θ, its slopes are exact, energy is kept."""
    bare = pbad.chain(2, joint="hinge", gravity=(0, 0, 0))
    model = pbad.with_forces(bare, torsion(bare, "link0", "link1", 30.0))
    state = pbad.make_state(model, q=[0.3, 0.8], v=[0.5, -0.2])
    tau = pbad.newton_euler.inverse_dynamics(model, state, jnp.zeros(2))
    bias = pbad.newton_euler.inverse_dynamics(bare, state, jnp.zeros(2))
    np.testing.assert_allclose(tau - bias, [0.0, 30.0 * np.sin(0.8)], atol=1e-12)
    pbad.check_gradients(model, state, options=pbad.Options(0.01), n_steps=2).assert_ok()
    traj, info = pbad.rollout(model, state, n_steps=100, options=pbad.Options(0.01, "radau3"))
    ends = [s for s in (state, pbad.make_state(model, traj.q[-1], traj.v[-1]))]
    energy = [float(pbad.kinetic_energy(model, s) + pbad.potential_energy(model, s)) for s in ends]
    assert bool(info.ok) and abs(energy[1] - energy[0]) < 1e-4 * energy[0]


def test_the_force_is_as_short_as_the_recipe_says():
    text = pathlib.Path(__file__).read_text()
    lines = text[text.index("# begin: force\n") : text.rindex("# end: force\n")].strip().splitlines()
    assert len([line for line in lines if line.strip()]) < 40


# --- a joint ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_joint_is_a_row(monkeypatch):
    """A cylindrical joint slides along and turns about one axis: MuJoCo has it as two joints."""
    monkeypatch.setitem(joints.JOINTS, "cylindrical", joints.JointKind(("slide", "hinge"), "one"))
    axis = np.array([1.0, 2.0, 2.0]) / 3
    body = pbad.Body("b", 2.0, (0.3, 0.1, 0), np.diag([0.1, 0.2, 0.25]), joints=[pbad.Joint("cylindrical", axis, "c")])
    model = pbad.build_model([body])
    assert (model.nq, model.nv) == (2, 2)
    mujoco = importlib.import_module("mujoco")
    joint = '<joint type="{}" axis="1 2 2"/>'
    inertial = '<inertial pos="0.3 0.1 0" mass="2" diaginertia="0.1 0.2 0.25"/>'
    xml = (
        f"<mujoco><worldbody><body>{joint.format('slide')}{joint.format('hinge')}{inertial}</body></worldbody></mujoco>"
    )
    m = mujoco.MjModel.from_xml_string(xml)
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = (0.4, 0.7), (0.3, -1.1)
    mujoco.mj_forward(m, d)
    state = pbad.make_state(model, q=d.qpos, v=d.qvel)
    np.testing.assert_allclose(pbad.newton_euler.acceleration(model, state), d.qacc, rtol=1e-9)
    _, info = swing(20, 0.01, "radau2", model)
    assert bool(info.ok)


# --- the page itself --------------------------------------------------------------------------------------


def test_the_readers_path_is_there_and_short():
    """At most ten files and 1,850 lines beside the docstrings' examples and comments; each names the next."""
    part = CONTRIBUTING[CONTRIBUTING.index("## The reader's path") :]
    path = [line.split("`")[1] for line in part[: part.index("\n## ", 3)].splitlines() if line.startswith("1. `")]
    package = pathlib.Path(pbad.__file__).parent
    texts = [(package / name).read_text() for name in path]
    read = [re.sub(r"\n+ +Example:\n.*?(?=\n +\"\"\")", "", text, flags=re.DOTALL) for text in texts]
    read = [re.sub(r"^ +#.*\n", "", text, flags=re.MULTILINE) for text in read]
    assert 5 <= len(path) <= 10 and sum(text.count("\n") for text in read) <= 1850
    for text, name, after in zip(texts, path, path[1:]):
        assert f"Read next: {after}" in text, f"{name} does not name {after}"
