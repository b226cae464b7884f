"""The energies that L-BFGS minimises, and the roots it finds against Levenberg-Marquardt's."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, assert_close, random_model, random_q, slow, thorough
from mechanics import residual_and_matrix

import pbad_jax as pbad
from pbad_jax.forces import is_actuator, name_of
from pbad_jax.kinematics import manifold
from pbad_jax.model import joints
from pbad_jax.stage import equation
from pbad_jax.stage.start import step_start

S = pbad.Status

# --- the energy ------------------------------------------------------------------------------------------------


def conservative(topology, seed, armature):
    """Gravity and springs; armature "none" or "balls": the same on the three axes of a ball."""
    model = random_model(topology, seed, spread=1.0)
    forces = tuple(f for f in model.forces if not is_actuator(f) and name_of(f) != "JointDamping")
    t = model.topology
    values = np.zeros(model.nv)
    if armature == "balls":
        rng = np.random.default_rng(seed)
        for kind, first in zip(t.link_type, t.link_v):
            if kind != "fixed":
                values[first : first + joints.PRIMITIVES[kind]] = rng.uniform(0.5, 2)
    return dataclasses.replace(model, forces=forces, armature=jnp.asarray(values, DTYPE))


@functools.partial(jax.jit, static_argnames="scheme")
def energy_and_equation(model, scheme, dt, q, v, q_h, z):
    """Gradient and Hessian of the energy along z ⊕ δ by autodiff; residual and matrix; the energy's scale."""
    state = dataclasses.replace(pbad.make_state(model), q=q, v=v)
    s = step_start(model, state, jnp.zeros(model.nu, DTYPE))
    z_h = manifold.increment_between(model, q, q_h) if scheme.has_history else None
    eq = equation.collocation(model, scheme, dt, s, z_h)

    def energy(delta):
        return equation.energy(model, s, eq, manifold.retract(model, z, delta)[None])

    zero = jnp.zeros(model.nv, DTYPE)
    gradient = jax.grad(energy)
    return gradient(zero), jax.jacfwd(gradient)(zero), *residual_and_matrix(model, s, eq, z[None])


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, topology, armature",
    [
        *(("legendre2", "balls", "none"), ("legendre2", "balls", "balls")),
        *(thorough("legendre2", "free", "none"), thorough("legendre2", "free", "balls")),
        slow("radau1", "free", "balls"),
        *(thorough("radau1", *case) for case in (("balls", "none"), ("balls", "balls"), ("free", "none"))),
    ],
)
def test_residual_and_matrix_are_the_energys_derivatives(scheme, topology, armature):
    scheme = pbad.Options(dt=1.0, scheme=scheme).scheme
    for seed in range(4):
        model, rng = conservative(topology, seed, armature), np.random.default_rng([seed, 5])
        q = jnp.asarray(random_q(model, rng), DTYPE)
        v, d_h, d = (jnp.asarray(rng.normal(size=model.nv), DTYPE) for _ in range(3))
        z = manifold.retract(model, manifold.identity_increment(model), 0.4 * d)
        args = (model, scheme, jnp.asarray(0.3, DTYPE), q, v, manifold.retract(model, q, 0.1 * d_h), z)
        gradient, hessian, r, J = energy_and_equation(*args)
        tolerance = 1e-10 if not FLOAT32 else 1e-3
        assert_close(r, gradient, tolerance, f"gradient, seed {seed}")
        assert_close(J, hessian, tolerance, f"Hessian, seed {seed}")


# --- the same roots --------------------------------------------------------------------------------------------


def swinging():
    model = pbad.chain(4)
    return model, pbad.make_state(model, np.linspace(0.2, 1.0, 8), np.linspace(-1.5, 1.5, 8))


@functools.partial(jax.jit, static_argnames="options")
def stepped(options, model, state):
    return pbad.make_step(options)(model, state)


@pytest.mark.thorough
@pytest.mark.float64
@pytest.mark.parametrize(
    ("scheme", "objective"),
    [
        ("radau1", "energy"),
        ("radau1", "squared"),
        ("legendre2", "energy"),
        ("legendre2", "squared"),
        ("dirk2", "energy"),
        ("dirk2", "squared"),
        ("radau2", "squared"),
        ("legendre3", "squared"),
    ],
)
def test_lbfgs_finds_the_root_of_lm(scheme, objective):
    model, state = swinging()
    lm, info = stepped(pbad.Options(dt=0.02, scheme=scheme), model, state)
    assert info.status == 0
    options = pbad.Options(dt=0.02, scheme=scheme, solver="lbfgs", objective=objective, max_iterations=2000)
    found, info = stepped(options, model, state)
    print(scheme, objective, info, np.abs(found.q - lm.q).max(), np.abs(found.v - lm.v).max() * 0.02)
    assert info.status == 0 and info.iterations > 1 and info.residual <= 1e-7
    np.testing.assert_allclose(found.q, lm.q, atol=1e-6)
    np.testing.assert_allclose(found.v, lm.v, atol=1e-6 / 0.02)


@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau1", thorough("legendre2"), thorough("dirk2")])
def test_lm_on_the_energy_finds_the_same_root(scheme):
    model, state = swinging()
    options = pbad.Options(dt=0.02, scheme=scheme)
    root, info = stepped(options, model, state)
    energy, by_energy = stepped(dataclasses.replace(options, objective="energy"), model, state)
    assert info.status == 0 and by_energy.status == 0
    np.testing.assert_allclose(energy.q, root.q, atol=1e-9)
    np.testing.assert_allclose(energy.v, root.v, atol=1e-9 / 0.02)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.float64
@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_the_energy_of_balls_leads_to_the_same_root(solver):
    """In exponential coordinates about the guess; the start turns, so that the chart is not the identity."""
    model = pbad.chain(4, joint="ball")
    rng = np.random.default_rng(8)
    q = manifold.retract(model, model.q0, jnp.asarray(rng.normal(size=model.nv) * 0.6))
    state = pbad.make_state(model, q, 2 * rng.normal(size=model.nv))
    root, info = stepped(pbad.Options(dt=0.05, scheme="radau1"), model, state)
    assert info.status == 0
    options = pbad.Options(dt=0.05, scheme="radau1", solver=solver, objective="energy", max_iterations=2000)
    found, info = stepped(options, model, state)
    assert info.status == 0, info
    error = np.abs(manifold.difference(model, root.q, found.q)).max()
    print(solver, int(info.iterations), error)
    assert error < (1e-9 if solver == "lm" else 1e-5)


@pytest.mark.slow
def test_auto_is_the_energy_or_else_the_squares():
    """A damped model has no energy; "auto" says so by taking the squares, and finds the root."""
    model = pbad.build_model(
        [pbad.Body("b", 1.0, (0, 0, -1), np.eye(3) / 9, joints=[pbad.Joint("hinge", damping=0.3)])]
    )
    state = pbad.make_state(model, [1.0], [0.5])
    lm, _ = stepped(pbad.Options(dt=0.05, scheme="radau1"), model, state)
    auto, info = stepped(pbad.Options(dt=0.05, scheme="radau1", solver="lbfgs"), model, state)
    squared, _ = stepped(pbad.Options(dt=0.05, scheme="radau1", solver="lbfgs", objective="squared"), model, state)
    assert info.status == 0
    np.testing.assert_array_equal(auto.q, squared.q)
    np.testing.assert_allclose(auto.q, lm.q, atol=1e-6 if not FLOAT32 else 1e-3)


@pytest.mark.slow
@pytest.mark.float64
def test_both_solvers_name_the_same_joint():
    """Of a step that fails: the loose joint that flies, not the stiff one that every gradient is about."""
    stiff, loose = pbad.Joint("hinge", name="stiff", stiffness=1e4), pbad.Joint("hinge", (1, 0, 0), name="loose")
    model = pbad.build_model([pbad.Body(j.name, 1.0, (0, 0, -1), np.eye(3) / 9, joints=[j]) for j in (stiff, loose)])
    state = pbad.make_state(model, v=[0.1, 15.0])
    for solver in ("lm", "lbfgs"):
        _, info = stepped(pbad.Options(dt=0.1, scheme="radau1", solver=solver, max_iterations=1), model, state)
        assert info.status == S.MAX_ITER and info.dofs[int(info.worst)] == "loose", (solver, info)


# --- what does not go together ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("squared", "lm", "root"), {"objective": "squared"}),
        (("root", "energy", "squared", "lm"), {"solver": "lbfgs", "objective": "root"}),
        (("energy", "radau2", "2", "dirk"), {"objective": "energy"}),
        (("energy", "radau3", "3"), {"objective": "energy", "solver": "lbfgs", "scheme": "radau3"}),
        (("energy", "legendre3"), {"objective": "energy", "scheme": pbad.legendre(3)}),
        (("variational", "lm"), {"solver": "lbfgs", "scheme": "variational"}),
        (("variational", "energy"), {"objective": "energy", "scheme": "variational"}),
        (("variational",), {"solver": "lbfgs", "objective": "squared", "scheme": "variational"}),
        (("solver", "'bfgs'", "did you mean 'lbfgs'"), {"solver": "bfgs"}),
        (("objective", "'enrgy'", "did you mean 'energy'"), {"objective": "enrgy"}),
        (("objective", "None"), {"objective": None}),
    ],
)
def test_bad_combinations_are_named(words, options):
    with pytest.raises(pbad.OptionError) as caught:
        pbad.Options(dt=0.1, **options)
    for word in words:
        assert word.lower() in str(caught.value).lower(), (word, str(caught.value))


@pytest.mark.parametrize("solver", ["lm", "lbfgs"])
def test_an_energy_needs_a_potential_of_every_force(solver):
    joint = pbad.Joint("hinge", damping=0.3)
    model = pbad.build_model([pbad.Body("b", 1.0, (0, 0, -1), np.eye(3) / 9, joints=[joint])])
    options = pbad.Options(dt=0.1, scheme="radau1", solver=solver, objective="energy")
    with pytest.raises(pbad.OptionError, match="energy.*JointDamping.*auto"):
        pbad.make_step(options)(model, pbad.make_state(model))
