"""The duals that lead a solve: they bend its linear model, never its residual, and at rest they bend nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from force_cases import creature
from guide_cases import DT, case, evaluations, first, touching
from helpers import DTYPE, FLOAT32, assert_close, thorough

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.atom import operator
from pbad_jax.math.rotations import hat
from pbad_jax.stage import equation
from pbad_jax.stage.problem import problem_of
from pbad_jax.stage.start import step_start
from pbad_jax.step.options import resolve, scheme_of


@pytest.mark.thorough
@pytest.mark.parametrize("m, at", [thorough(1, "stages"), (2, "step")])
def test_a_guide_bends_the_linear_model_and_never_the_residual(m, at):
    model, scheme = touching(at), pbad.radau(m)
    bent = 0
    for seed in range(4):
        (plain, first, later), rest = evaluations(model, scheme, *case(model, scheme, seed))
        scale = float(jnp.max(jnp.abs(plain[0])))
        for r, modelled, J in (first, later, rest):
            np.testing.assert_allclose(r, plain[0], atol=(1e-5 if FLOAT32 else 1e-13) * scale)
            assert np.all(np.isfinite(modelled)) and np.all(np.isfinite(J))
        bent += bool(jnp.max(jnp.abs(first[1] - plain[0])) > 1e-3 * scale)
        bent += bool(jnp.max(jnp.abs(later[2] - plain[2])) > 1e-3 * jnp.max(jnp.abs(plain[2])))
        # where the duals have come to rest, the model is that of the laws themselves
        assert_close(rest[1], plain[0], 1e-3 if FLOAT32 else 1e-9)
        assert_close(rest[2], plain[2], 1e-3 if FLOAT32 else 1e-9)
    assert bent >= 4


def test_a_link_by_itself_gives_way_as_the_mass_matrix_says():
    model = touching("step")
    state, _, _ = case(model, pbad.radau(1))
    start = jax.jit(lambda s: step_start(model, s, jnp.zeros(model.nu, DTYPE)))(state)
    mobility, inertia = operator.mobility(model, start.frames, start.mass, start.factor)
    inverse = np.linalg.inv(np.asarray(start.mass, float))
    np.testing.assert_allclose(inertia, 1 / np.diag(inverse), rtol=1e-3 if FLOAT32 else 1e-10)
    link, P = model.topology.body_link[2], np.array([0.3, -0.2, 0.1])
    above = np.array([link in links for links in _below(model)])
    arm = np.hstack([-np.asarray(hat(jnp.asarray(P, DTYPE))), np.eye(3)])
    J = arm @ (np.asarray(start.frames.s, float) * above[:, None]).T
    want = J @ inverse @ J.T
    assert_close(arm @ np.asarray(mobility[link], float) @ arm.T, want, 1e-3 if FLOAT32 else 1e-10)


def _below(model):
    """The links that each degree of freedom moves."""
    t = model.topology
    chains = []
    for i in range(t.n_links):
        path, k = [], i
        while k >= 0:
            path.append(k)
            k = t.link_parent[k]
        chains.append(path)
    owner = [joint_link for joint_link, n in _owners(t) for _ in range(n)]
    return [[i for i, path in enumerate(chains) if own in path] for own in owner]


def _owners(t):
    """Every moving link in the order of its degrees of freedom, and how many they are."""
    sizes = {"hinge": 1, "slide": 1, "ball": 3, "fixed": 0}
    rows = sorted((v, i) for i, v in enumerate(t.link_v) if sizes[t.link_type[i]])
    return [(i, sizes[t.link_type[i]]) for _, i in rows]


@functools.partial(jax.jit, static_argnames=("scheme", "recurrence"))
def by(model, scheme, state, z, recurrence):
    start = step_start(model, state, jnp.zeros(model.nu, model.dtype), recurrence)
    eq = equation.collocation(model, scheme, jnp.asarray(DT, model.dtype), start, None)
    guide = first(model, start, scheme.m)
    r, t = eq.evaluate(model, start, z, 1.0, guide)
    dense = start.mass if recurrence != "sweeps" else None
    return r, eq.modelled(model, start, t, r), guide.free.inertia, guide.free.links, dense


@pytest.mark.slow
@pytest.mark.thorough
def test_by_sweeps_as_by_matrices():
    """The same residual; the inertia of each degree of freedom as if the others were held, so not less."""
    model, scheme = pbad.with_forces(creature(), forces.contact(creature(), friction=0.7)), pbad.radau(1)
    state, z, _ = case(model, scheme)
    r, _, inertia, _, mass = by(model, scheme, state, z, "parallel")
    swept, modelled, held, mobility, _ = by(model, scheme, state, z, "sweeps")
    assert_close(swept, r, 1e-4 if FLOAT32 else 1e-12)
    assert np.all(np.isfinite(modelled)) and np.all(np.isfinite(mobility))
    np.testing.assert_allclose(held, np.diag(mass), rtol=1e-3 if FLOAT32 else 1e-10)
    assert np.all(held >= (1 - 1e-4) * inertia)


def test_a_solve_that_begins_anew_takes_over_what_does_not_change():
    model = touching("step")
    options = pbad.Options(dt=DT, scheme="radau1")
    scheme, config = scheme_of(options), resolve(options, model)

    @jax.jit
    def begun(state):
        start = step_start(model, state, jnp.zeros(model.nu, model.dtype), "parallel")
        eq = equation.collocation(model, scheme, jnp.asarray(DT, model.dtype), start, None)
        problem = problem_of(model, scheme, config, start, eq, jnp.zeros((1, model.nv), model.dtype))
        return problem, problem.first_guide()

    problem, fresh = begun(pbad.make_state(model))
    assert fresh is not None
    led = fresh._replace(duals=jax.tree.map(lambda x: x + 1, fresh.duals), T=fresh.T + 1, trust=0.5 * fresh.trust)
    again = problem.first_guide(led)
    assert again.free is led.free  # no operation
    jax.tree.map(np.testing.assert_array_equal, again, fresh)
