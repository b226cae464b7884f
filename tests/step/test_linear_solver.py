"""Steps by tree sweeps equal steps by dense factorisation; so do the residual and the matrix they start from."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, TOL, Case, assert_close, thorough
from motions import free_tree, moving
from stage_cases import SCHEMES, both, draw

import pbad_jax as pbad
from pbad_jax.step import options


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, topology", [("radau1", "free"), ("radau1", "many joints"), thorough("legendre2", "balls")]
)
def test_residual_and_matrix_equal_the_dense_ones(name, topology):
    """With springs, dampers, servos and armature, also on balls."""
    for seed in range(5):
        model, (q, v, q_h, z, control) = draw(Case(topology, seed, "generic", "generic"), SCHEMES[name], 0.4)
        r, J, r_tree, J_tree, x = both(model, SCHEMES[name], jnp.asarray(0.1, DTYPE), q, v, q_h, z, control)
        assert_close(r_tree, r, 10 * TOL["twin"])
        assert_close(J_tree, J, 10 * TOL["twin"])
        if not FLOAT32:
            assert_close(x, np.linalg.solve(J, r), 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "which, scheme",
    [
        *(thorough("tree", s) for s in ("radau1", "dirk2", "legendre2")),
        *(thorough("chain", s) for s in ("radau1", "dirk2", "legendre2")),
    ],
)
def test_steps_equal_the_dense_ones(which, scheme):
    model = free_tree() if which == "tree" else pbad.chain(12)
    ends = []
    for linear_solver in ("dense", "tree"):
        options = pbad.Options(dt=0.02, scheme=scheme, linear_solver=linear_solver)
        traj, info = pbad.rollout(model, moving(model), n_steps=10, options=options)
        info.assert_ok()
        ends.append(traj.q[-1])
    np.testing.assert_allclose(*ends, atol=1e-3 if FLOAT32 else 1e-8)


@pytest.mark.thorough
def test_many_lanes():
    model = pbad.chain(8)
    step = pbad.make_step(pbad.Options(dt=0.05, scheme="radau1", linear_solver="tree"))
    angles = jnp.asarray(np.random.default_rng(5).uniform(-1.5, 1.5, (64, model.nq)), DTYPE)
    states, info = jax.jit(jax.vmap(lambda q: step(model, pbad.make_state(model, q))))(angles)
    assert np.all(info.status == pbad.Status.CONVERGED) and np.all(np.isfinite(states.q))


def test_auto_takes_the_tree_for_large_models_and_says_where_it_cannot():
    def dense(model, **how):
        return options.resolve(pbad.Options(dt=0.1, **how), model).recurrence == "parallel"

    small, large = pbad.chain(2), pbad.chain(options.LARGE // 2)
    assert dense(small, scheme="radau1") and not dense(large, scheme="radau1")
    assert dense(large, scheme="radau2") and dense(large, scheme="variational")
    for bad in (dict(scheme="radau2"), dict(scheme="variational"), dict(scheme="radau1", recurrence="serial")):
        with pytest.raises(pbad.OptionError, match="linear_solver 'tree'"):
            pbad.Options(dt=0.1, linear_solver="tree", **bad)


def test_loops_are_not_for_the_tree_solve(monkeypatch):
    """A force that couples links is refused by linear_solver='tree', and makes "auto" take matrices."""
    monkeypatch.setattr(options, "LARGE", 1)
    chain = pbad.chain(3, joint="hinge")
    loop = pbad.with_forces(chain, pbad.forces.connect(chain, "link0", "link2"))
    state = pbad.make_state(loop)
    with pytest.raises(pbad.OptionError, match="'tree', but Attachment couples links"):
        jax.eval_shape(pbad.make_step(pbad.Options(dt=0.01, scheme="radau1", linear_solver="tree")), loop, state)
    words = [options.resolve(pbad.Options(dt=0.01, scheme="radau1"), m).recurrence for m in (chain, loop)]
    assert words == ["sweeps", "parallel"]


@pytest.mark.slow
@pytest.mark.parametrize("linear_solver", ["dense", thorough("tree")])
def test_a_mass_matrix_that_is_not_positive_definite_is_no_success(linear_solver):
    """Masses of the wrong sign, of all links or one, or an armature; and a total mass that is negative."""
    model = pbad.chain(3, joint="hinge")
    S, armature = model.second_moment, model.armature
    wrong = [(S, armature), (-S, armature), (S.at[1].multiply(-5), armature), (S, armature - 50)]
    wrong = [*wrong, (-1e-3 * S, armature + 50)]  # positive definite, but no residual can be measured in it
    step = pbad.make_step(pbad.Options(dt=0.01, scheme="radau1", linear_solver=linear_solver))

    def one(S, armature, v, gravity):
        changed = dataclasses.replace(model, second_moment=S, armature=armature, gravity=gravity)
        return step(changed, pbad.make_state(model, v=v))

    moments, armatures = (jnp.stack(x) for x in zip(*wrong))
    for v, gravity in ((jnp.ones(3, DTYPE), model.gravity), (jnp.zeros(3, DTYPE), 0 * model.gravity)):
        state, info = jax.jit(jax.vmap(one, (0, 0, None, None)))(moments, armatures, v, gravity)
        np.testing.assert_array_equal(np.asarray(info.status) == pbad.Status.CONVERGED, [1, 0, 0, 0, 0])
        assert np.all(np.asarray(info.status)[1:4] == pbad.Status.NONFINITE_EVAL)
        np.testing.assert_array_equal(state.q[1:], np.zeros((4, 3)))
