"""The atom I(q_a, q_b) and all its derivatives, both twins, against the dense definition: all entries.

I is bilinear in the fields T, so its derivatives are contractions of those of T, which autodiff gives
(helpers.dense_jet). On two topologies the dense atom itself goes through autodiff as well.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    DTYPE,
    FEW,
    FLOAT32,
    NAMES,
    TOL,
    assert_close,
    cases,
    central_difference,
    dense_atom,
    dense_jet,
    error,
    many,
    random_model,
    random_q,
    slow,
    thorough,
)  # fmt: skip
from hypothesis import given

from pbad_jax.atom import parallel, serial
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.kinematics.tree import tree

TWINS = {"serial": serial, "parallel": parallel}


@jax.jit
def library(model, q_a, q_b, field):
    out = {}
    for name, twin in TWINS.items():
        f = transforms.frames(model, q_b)
        out[name] = {
            "I": twin.atom(model, q_a, q_b),
            "g": twin.atom_grad_b(model, q_a, q_b),
            "H_bb": twin.atom_hess_bb(model, q_a, q_b),
            "H_ab": twin.atom_hess_ab(model, q_a, q_b),
            "I of a field": twin.atom(model, field, q_b),
            "g of a field": twin.atom_grad_b(model, field, q_b),
            "H_bb of a field": twin.atom_hess_bb(model, field, q_b),
            "mass matrix": twin.mass_matrix(model, f),
            "mass matrix about another origin": twin.mass_matrix(
                model, transforms.frames(model, q_b, transforms.center_of_mass(model, f.T))
            ),
        }
    return out


def contract(model, jet_a, jet_b, field, prepare=np.asarray):
    """The dense definition: sums over bodies of <T_a M, ∂..T_b>. With prepare=np.abs, the size of the terms summed."""
    M = prepare(np.asarray(model.second_moment, float))
    (T_a, dT_a, _), (T_b, dT_b, ddT_b) = ([prepare(np.asarray(x, float)) for x in jet] for jet in (jet_a, jet_b))
    A, F = T_a @ M, prepare(np.asarray(field, float)) @ M
    mass = np.einsum("likx,lkj,lijy->xy", dT_b, M, dT_b, optimize=True) + np.diag(np.asarray(model.armature, float))
    return {
        "I": np.sum(A * T_b),
        "g": np.einsum("lij,lijx->x", A, dT_b),
        "H_bb": np.einsum("lij,lijxy->xy", A, ddT_b),
        "H_ab": np.einsum("likx,lkj,lijy->xy", dT_a, M, dT_b, optimize=True),
        "I of a field": np.sum(F * T_b),
        "g of a field": np.einsum("lij,lijx->x", F, dT_b),
        "H_bb of a field": np.einsum("lij,lijxy->xy", F, ddT_b),
        "mass matrix": mass,
        "mass matrix about another origin": mass,
    }


def check(case):
    model, rng = case.model, case.rng
    q_a, q_b = (jnp.asarray(random_q(model, rng, p), DTYPE) for p in (case.pose_a, case.pose_b))
    field = jnp.asarray(rng.normal(size=(model.topology.n_links, 3, 4)), DTYPE)
    jets = dense_jet(model, q_a), dense_jet(model, q_b)
    want = contract(model, *jets, field)
    # one hinge turned by 90° has H_ab = 0 = J cos 90°: errors are measured against the largest sum of |terms|
    size = {k: np.abs(x).max() for k, x in contract(model, *jets, field, np.abs).items()}
    got = library(model, q_a, q_b, field)
    got = {name: {k: np.asarray(x, float) for k, x in got[name].items()} for name in TWINS}

    def close(x, y, what, tolerance, name):
        assert x.shape == y.shape
        found = np.abs(x - y).max() / size[what]
        assert found <= tolerance, f"{name} {what}: {found:.3g} > {tolerance:.3g}"

    for what, value in want.items():
        for name in TWINS:
            close(got[name][what], value, what, TOL["autodiff"], name)
            if value.ndim == 2 and what != "H_ab":
                close(got[name][what], got[name][what].T, what, TOL["symmetric"], f"{name}, symmetry of")
        close(got["serial"][what], got["parallel"][what], what, TOL["twin"], "serial = parallel,")
    for name in TWINS:
        diagonal, exact = np.diag(got[name]["mass matrix"]), np.diag(want["mass matrix"])
        assert np.abs(diagonal / exact - 1).max() <= 100 * TOL["autodiff"], "each diagonal entry for itself"
        eigenvalues = np.linalg.eigvalsh(got[name]["mass matrix"])
        assert eigenvalues[0] > -TOL["twin"] * eigenvalues[-1]
        check_diagonal_blocks(model, got[name], want, size)


def check_diagonal_blocks(model, got, want, size):
    """The blocks j = i, which the paper's Alg. 3 doubles, link by link."""
    link = tree(model.topology).dof_link
    for l in np.unique(link):
        own = np.ix_(link == l, link == l)
        for what in ("H_ab", "H_bb", "mass matrix"):
            assert np.abs(got[what][own] - want[what][own]).max() <= TOL["autodiff"] * size[what], (l, what)


@many(max_examples=80)
@given(case=cases())
def test_atom_and_all_derivatives(case):
    check(case)


@pytest.mark.slow
@pytest.mark.thorough
@many(max_examples=1000, derandomize=False)
@given(case=cases(NAMES))
def test_atom_and_all_derivatives_long(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["balls", "many joints"])
def test_atom_against_autodiff_of_itself(topology):
    """Every second derivative of the ten-line atom, straight through autodiff."""
    model, rng = random_model(topology, 8), np.random.default_rng(9)
    q_a, q_b = (jnp.asarray(random_q(model, rng), DTYPE) for _ in range(2))
    zero = jnp.zeros(model.nv, DTYPE)
    I = functools.partial(dense_atom, model, q_a, q_b)
    want = jax.jit(lambda: (I(zero, zero), jax.grad(I, 1)(zero, zero), jax.hessian(I, (0, 1))(zero, zero)))()
    field = jnp.zeros((model.topology.n_links, 3, 4), DTYPE)
    for name in TWINS:
        got, swap = library(model, q_a, q_b, field)[name], library(model, q_b, q_a, field)[name]
        assert_close(got["I"], want[0], TOL["autodiff"])
        assert_close(got["g"], want[1], TOL["autodiff"])
        assert_close(got["H_bb"], want[2][1][1], TOL["autodiff"])
        assert_close(got["H_ab"], want[2][0][1], TOL["autodiff"])
        assert_close(swap["H_bb"], want[2][0][0], TOL["autodiff"], "by q_a")


@pytest.mark.parametrize("topology", ["free", thorough("slides and hinges"), slow("many joints"), slow("massless")])
def test_atom_by_central_differences(topology):
    model, rng = random_model(topology, 21, spread=1), np.random.default_rng(22)
    q_a, q_b = (jnp.asarray(random_q(model, rng, "special"), DTYPE) for _ in range(2))
    if FLOAT32:
        q_a, q_b = (manifold.retract(model, manifold.identity_increment(model), jnp.asarray(x, DTYPE))
                    for x in rng.normal(size=(2, model.nv)))  # fmt: skip
    h = 1e-3 if not FLOAT32 else 5e-2
    twin = parallel

    @jax.jit
    def along(d_a, d_b):
        a, b = manifold.retract(model, q_a, d_a), manifold.retract(model, q_b, d_b)
        return twin.atom(model, a, b), twin.atom_grad_b(model, a, b)

    zero = np.zeros(model.nv)

    def f(d_a, d_b, k):
        return np.asarray(along(jnp.asarray(d_a, DTYPE), jnp.asarray(d_b, DTYPE))[k], float)

    g = central_difference(lambda d: f(zero, d, 0), model.nv, h)
    got = library(model, q_a, q_b, transforms.transforms(model, q_a))["parallel"]
    assert_close(got["g"], g, TOL["difference"], "gradient")
    ab = central_difference(lambda d: f(d, zero, 1), model.nv, h)  # (b, a)
    assert_close(got["H_ab"], ab.T, TOL["difference"], "mixed")
    bb = central_difference(lambda d: f(zero, d, 1), model.nv, h)  # its frame turns with a ball
    assert_close(got["H_bb"], 0.5 * (bb + bb.T), TOL["difference"], "second")


@many(max_examples=40)
@given(case=cases())
def test_identities(case):
    """Independent of the dense definition."""
    model, rng = case.model, case.rng
    q_a, q_b = (jnp.asarray(random_q(model, rng, p), DTYPE) for p in (case.pose_a, case.pose_b))
    T_a, T_b = dense_jet(model, q_a)[0], dense_jet(model, q_b)[0]
    one, other = library(model, q_a, q_b, T_a), library(model, q_b, q_a, T_a)  # "I of a field" there is I(a,a)
    same = library(model, q_b, q_b, T_b)
    for name in TWINS:
        a, b, c = one[name], other[name], same[name]
        # I(a,b) may nearly vanish; √(I(a,a) I(b,b)) bounds it (Cauchy–Schwarz)
        bound = np.sqrt(float(b["I of a field"]) * float(c["I"]))
        assert float(c["I"]) >= 0 and abs(float(a["I"])) <= bound * (1 + TOL["autodiff"])
        assert abs(float(a["I"]) - float(b["I"])) <= TOL["autodiff"] * bound, "I(a,b) = I(b,a)"
        largest = np.sqrt(np.abs(b["mass matrix"]).max() * np.abs(c["mass matrix"]).max())
        assert np.abs(np.asarray(a["H_ab"]) - np.asarray(b["H_ab"]).T).max() <= TOL["autodiff"] * largest
        for what in ("I", "g", "H_bb"):
            scale = max(bound, np.abs(np.asarray(a[what])).max())
            assert np.abs(np.asarray(a[what]) - np.asarray(a[f"{what} of a field"])).max() <= TOL["autodiff"] * scale
        # the mass matrix is the mixed Hessian at a = b
        inertial = np.asarray(c["mass matrix"], float) - np.diag(np.asarray(model.armature, float))
        scale = np.abs(np.asarray(c["mass matrix"])).max()
        assert np.abs(inertial - np.asarray(c["H_ab"])).max() <= TOL["twin"] * scale


@pytest.mark.parametrize("topology", ["balls", thorough("slides and hinges"), slow("three roots")])
def test_second_derivative_of_the_diagonal(topology):
    """∂²/∂q² of I(q,q) is 2 (H_bb + H_ab), in exponential coordinates."""
    model, rng = random_model(topology, 31), np.random.default_rng(32)
    q = jnp.asarray(random_q(model, rng), DTYPE)
    zero = jnp.zeros(model.nv, DTYPE)
    want = jax.jit(jax.hessian(lambda d: dense_atom(model, q, q, d, d)))(zero)
    for same in library(model, q, q, jnp.zeros((model.topology.n_links, 3, 4), DTYPE)).values():
        got = 2 * (same["H_bb"] + same["H_ab"])
        # for a free root this nearly cancels: measure against its parts
        scale = np.abs(np.asarray(same["H_ab"])).max()
        assert np.abs(np.asarray(got) - np.asarray(want)).max() <= TOL["autodiff"] * scale


@pytest.mark.slow
@pytest.mark.parametrize("topology", [t if t in FEW else thorough(t) for t in NAMES])
def test_rotating_the_world_changes_nothing(topology):
    model, rng = random_model(topology, 41), np.random.default_rng(42)
    q_a, q_b = (jnp.asarray(random_q(model, rng), DTYPE) for _ in range(2))
    R, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    R = R * np.sign(np.linalg.det(R))
    roots = np.array(model.topology.link_parent) < 0
    turned = jnp.where(roots[:, None, None], jnp.asarray(R, DTYPE) @ model.placement, model.placement)
    other = dataclasses.replace(model, placement=turned)
    field = jnp.zeros((model.topology.n_links, 3, 4), DTYPE)
    one, two, at_a, at_b = (library(*args, field) for args in (
        (model, q_a, q_b), (other, q_a, q_b), (model, q_a, q_a), (model, q_b, q_b)))  # fmt: skip
    for name in TWINS:
        bound = np.sqrt(float(at_a[name]["I"]) * float(at_b[name]["I"]))
        assert abs(float(one[name]["I"]) - float(two[name]["I"])) <= TOL["autodiff"] * bound
        for what in ("g", "H_ab", "H_bb", "mass matrix"):
            assert_close(one[name][what], two[name][what], TOL["autodiff"], what)


def test_the_tests_notice_the_slips_of_the_paper():
    """Doubled diagonal blocks (Alg. 3) and one triangle only (Alg. 2) are far above every tolerance used here."""
    model, rng = random_model("balls", 51), np.random.default_rng(52)
    q_a, q_b = (jnp.asarray(random_q(model, rng), DTYPE) for _ in range(2))
    got = library(model, q_a, q_b, transforms.transforms(model, q_a))["parallel"]
    H_ab, H_bb = np.array(got["H_ab"], float), np.array(got["H_bb"], float)
    link = tree(model.topology).dof_link
    doubled = np.where(link[:, None] == link[None], 2 * H_ab, H_ab)
    assert error(doubled, H_ab) > 0.01
    assert error(np.triu(H_bb), H_bb) > 0.01
