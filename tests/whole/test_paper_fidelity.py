"""legendre(K) against the paper's equations, solved a second time in 40 digits by paper_reference.py."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import paper_reference as paper
import pytest
from helpers import DTYPE, assert_close, spring_constant, sprung_slide, thorough
from mpmath import legendre as legendre_polynomial
from mpmath import mp, mpf

import pbad_jax as pbad

pytestmark = pytest.mark.float64

ORDERS = [2, 3, 4, 5]
PARAMS = paper.Params(
    paper.Link(length="1.0", mass="1.3", com=("0.05", "-0.45"), inertia="0.11"),
    paper.Link(length="0.8", mass="0.7", com=("-0.03", "-0.35"), inertia="0.06"),
)
DT, N_STEPS = "0.02", 10
STARTS = {"swing": (("1.1", "-0.6"), ("0.8", "2.5")), "whirl": (("3.0", "0.2"), ("-4.0", "9.0"))}
SWEEP = [1e-2, 0.1, 0.5, 1, 4, 10, 25, 100, 1e3, 1e4, 1e6, 1e8]


def floats(rows):
    return np.array([[float(x) for x in row] for row in rows])


# --- the reference itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("K", ORDERS)
def test_reference_nodes_and_weights(K):
    """L_{K−2}(2α − 1) = 0 at the interior nodes; p″(α_i) is exact for 1, t, …, t^K."""
    with mp.workdps(paper.DIGITS):
        h, start, *alphas = paper.nodes(K)
        assert len(alphas) == K - 1 and start == 0 < alphas[0] and alphas[-1] == 1
        assert h == (alphas[-2] - 1 if K > 2 else -1)
        assert all(abs(legendre_polynomial(K - 2, 2 * a - 1)) < mpf(10) ** -36 for a in alphas[:-1])
        for d in range(K + 1):
            for a, row in zip(alphas, paper.second_derivative(K)):
                exact = d * (d - 1) * a ** max(d - 2, 0)
                assert abs(sum(w * t**d for w, t in zip(row, paper.nodes(K))) - exact) < mpf(10) ** -33


@pytest.mark.parametrize("K", ORDERS)
def test_reference_integral_is_the_sum_over_particles(K):
    """∫ρ ∂Pᵀ(P̈ + g ẑ) by moments = the same particle by particle, at arbitrary configurations."""
    with mp.workdps(paper.DIGITS):
        x = [(mpf(11 - 3 * i) / 10, mpf(i * i - 6) / 10) for i in range(K + 1)]
        args = (K, mpf(DT), x[0], x[1], x[2:], PARAMS)
        by_moments, by_particles = paper.residual(*args), paper.particle_residual(*args)
        assert max(map(abs, by_moments)) > 1
        assert max(abs(a - b) for a, b in zip(by_moments, by_particles)) < mpf(10) ** -30


# --- the double pendulum ---------------------------------------------------------------------------------


@functools.cache
def double_pendulum():
    """PARAMS in three dimensions, hinges about x; moments off the plane are arbitrary, the motion ignores them."""

    def body(name, link, parent=None, z=0.0):
        i = float(link.inertia)
        inertia = [[i, 0.01 * i, 0], [0.01 * i, 0.9 * i, 0.05 * i], [0, 0.05 * i, 0.3 * i]]
        com, hinge = (0.07, *map(float, link.com)), pbad.Joint("hinge", (1, 0, 0))
        return pbad.Body(name, float(link.mass), com, inertia, parent, (0, 0, z), joints=[hinge])

    upper, lower = body("u", PARAMS.upper), body("l", PARAMS.lower, "u", -float(PARAMS.upper.length))
    return pbad.build_model([upper, lower], gravity=(0, 0, -float(PARAMS.gravity)))


@pytest.mark.filterwarnings("ignore:legendre:UserWarning")  # K = 4, 5 warn that they are unstable
@pytest.mark.parametrize("K", [2, 3, thorough(4), thorough(5)])
def test_steps_solve_the_papers_equations(K):
    """The ends of ten steps, from two starts; every step after the first also needs the right history."""
    options = pbad.Options(dt=float(DT), scheme=pbad.legendre(K, start="linear"), tolerance=1e-13)
    for name, start in STARTS.items():
        ends = floats(paper.reference_steps(K, DT, *start, N_STEPS, PARAMS)[0])
        state = pbad.make_state(double_pendulum(), *floats(start))
        traj, info = pbad.rollout(double_pendulum(), state, n_steps=N_STEPS, options=options)
        assert (np.array(info.status) == pbad.Status.CONVERGED).all(), (K, name, info)
        assert np.abs(traj.q - ends).max() <= 1e-9, (K, name, traj.q - ends)
        assert np.abs(ends[-1] - ends[0]).max() > 0.1  # it moved


def test_the_comparison_would_notice_another_scheme():
    """Two steps of neighbouring orders differ by far more than 1e-9."""
    steps = {K: floats(paper.reference_steps(K, DT, *STARTS["swing"], 2, PARAMS)[0])[-1] for K in ORDERS}
    assert all(np.abs(steps[K] - steps[K + 1]).max() > 1e-5 for K in ORDERS[:-1]), steps


# --- the oscillator --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:legendre:UserWarning")
@pytest.mark.parametrize("K", [2, thorough(3), 4, thorough(5)])
def test_oscillator_companion_matrix(K):
    """(history, q_k) ↦ (new history, q_{k+1}), every entry, from soft to stiff; dt = 1."""
    step = jax.jit(pbad.make_step(pbad.Options(dt=1.0, scheme=pbad.legendre(K), tolerance=1e-13)))
    for w2dt2 in SWEEP:
        model, columns = spring_constant(sprung_slide(), w2dt2), []
        for history, q in np.eye(2):
            state = pbad.make_state(model, [q])
            state = dataclasses.replace(state, history=jnp.asarray([history], DTYPE), has_history=jnp.asarray(True))
            new, info = step(model, state)
            assert int(info.status) == pbad.Status.CONVERGED, (K, w2dt2, info)
            columns.append([float(new.history[0]), float(new.q[0])])
        assert_close(np.array(columns).T, floats(paper.companion_matrix(K, w2dt2).tolist()), 1e-9, f"{K}, {w2dt2:g}")
