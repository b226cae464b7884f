"""A force of one's own: the README's lines, and energies alone."""

import dataclasses
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, TOL, Case, assert_close
from stage_cases import SCHEMES, draw, library

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.kinematics import manifold, transforms

README = pathlib.Path(__file__).parents[2] / "README.md"


def snippet() -> dict[str, Any]:
    """What the README's example of a force defines."""
    found = re.search(r"<!-- force -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found, "README.md: no python block below <!-- force -->"
    names: dict[str, Any] = {}
    exec(compile(found.group(1), str(README), "exec"), names)
    return names


README_NAMES = snippet()
matrices = jax.jit(library.__wrapped__, static_argnames=("scheme", "twin"))


def rolled(model, steps: int = 20, q=None):
    options = pbad.Options(dt=0.05, scheme=pbad.radau(1))
    return pbad.rollout(model, pbad.make_state(model, q), n_steps=steps, options=options, progress=False)


@jax.jit
def pulled(strength):
    """The last q, its derivative by the strength, and how the steps went."""

    def last(strength):
        force = dataclasses.replace(README_NAMES["model"].forces[-1], strength=strength)
        traj, info = rolled(pbad.with_forces(pbad.chain(3), force))
        return traj.q[-1], info

    return jax.jvp(last, (strength,), (jnp.ones_like(strength),), has_aux=True)


def test_it_acts_and_every_step_converges():
    """It draws the chain aside, which without it hangs at rest."""
    ends = []
    for strength in (20.0, 0.0):
        q, _, info = pulled(jnp.asarray(strength, DTYPE))
        info.assert_ok()
        assert float(jnp.mean(info.iterations)) < 6
        ends.append(float(jnp.abs(q).max()))
    assert ends[0] > 0.1 and ends[1] < 1e-6


@pytest.mark.float64
def test_the_derivative_of_a_rollout_by_its_strength():
    """jvp against central differences; finite and not zero."""
    h = 1e-2
    q = np.asarray([pulled(jnp.asarray(20.0 + k * h, DTYPE))[0] for k in (-2, -1, 1, 2)])
    got, want = np.asarray(pulled(jnp.asarray(20.0, DTYPE))[1]), (8 * (q[2] - q[1]) - q[3] + q[0]) / (12 * h)
    assert np.all(np.isfinite(got)) and np.abs(got).max() > 1e-4
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


# --- energies, nothing else --------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tether:
    """A point energy: its force is minus the gradient of one line, and `point_forces` differentiates that again."""

    strength: jax.Array

    def load(self, model, at):
        tips = jnp.asarray([[[0, 0, -1, 1], [0, 0, 0, 1]]], model.dtype)
        links = ((model.topology.body_link[-1], model.topology.body_link[0]),)

        def energy(P, strength):
            return strength * jnp.sum((P[0] - P[1]) ** 2) ** 2 / 4

        return forces.point_forces(at, links, tips, lambda P, V, k: -jax.grad(energy)(P, k), self.strength)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointEnergy:
    """An energy of all joints at once, U(q ⊕ δ): the torques and, if asked for, their slopes by autodiff."""

    strength: jax.Array
    sloped: bool = dataclasses.field(default=True, metadata={"static": True})

    def potential(self, model, at):
        return self.strength * jnp.sum(transforms.transforms(model, at.q)[..., 2, 3] ** 2) / 2

    def load(self, model, at):
        zero = jnp.zeros(model.nv, model.dtype)

        def moved(q, delta):
            return dataclasses.replace(at, q=manifold.retract(model, q, delta))

        def torque(delta):
            q = manifold.retract(model, at.q, delta)
            return -jax.grad(lambda d: self.potential(model, moved(q, d)))(zero)

        return pbad.Load(tau=torque(zero), dtau_dq=jax.jacfwd(torque)(zero) if self.sloped else None)


OWN = {
    "Magnet": (README_NAMES["Magnet"], "radau2"),
    "Tether": (Tether, "radau1"),
    "JointEnergy": (JointEnergy, "radau1"),
}


@pytest.mark.parametrize("name", ["Magnet", "Tether", pytest.param("JointEnergy", marks=pytest.mark.slow)])
def test_newtons_matrix_equals_autodiff_of_the_residual(name):
    force, scheme = OWN[name]
    model, args = draw(Case("free", 3, "generic", "generic"), SCHEMES[scheme], 0.3)

    def judged(strength):
        own = pbad.with_forces(model, force(jnp.asarray(strength, DTYPE)))
        return matrices(own, SCHEMES[scheme], jnp.asarray(0.3, DTYPE), *args, "parallel")

    r, J, judge = judged(20.0)
    assert np.abs(np.asarray(r - judged(0.0)[0])).max() > 1e-3, "the force never acted"
    assert_close(J, judge, TOL["matrix"], name)


@pytest.mark.float64
def test_torques_without_slopes_are_solved_too():
    """An incomplete Newton matrix costs iterations; the steps are the same."""
    ends, counts = [], []
    for sloped in (True, False):
        model = pbad.with_forces(pbad.chain(2), JointEnergy(jnp.asarray(5.0), sloped))
        traj, info = jax.jit(lambda m: rolled(m, q=[1.0, 0.3, -0.4, 0.1]))(model)
        info.assert_ok()
        ends.append(np.asarray(traj.q))
        counts.append(float(jnp.mean(info.iterations)))
    print("iterations with slopes, without", counts)
    assert_close(ends[1], ends[0], 1e-8)
    assert counts[1] > counts[0]
