"""T(q), its first and second derivatives, increments, fields and the tangent space: all entries, on random trees."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    DTYPE,
    NAMES,
    TOL,
    assert_close,
    cases,
    central_difference,
    dense_jet,
    dense_transforms,
    error,
    many,
    move,
    random_model,
    random_q,
    slow,
    thorough,
)  # fmt: skip
from hypothesis import given
from mechanics import transforms_derivative, transforms_second_derivative

import pbad_jax as pbad
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.kinematics.tree import change_balls, on_dofs, tree

LIBRARY = {
    "T": lambda model, q: transforms.transforms(model, q),
    "serial": lambda model, q: transforms.transforms_serial(model, transforms.local_transforms(model, q)),
    "dT": transforms_derivative,
    "ddT": transforms_second_derivative,
    "screws": lambda model, q: transforms.joint_screws(model),
    "L": transforms.local_transforms,
}


@jax.jit
def library(model, q, v):
    out = {k: f(model, q) for k, f in LIBRARY.items()}
    f = transforms.frames(model, q)
    out["V"] = transforms.velocity_field(model, f, v)
    out["centripetal"] = transforms.centripetal_field(model, f, v)
    origin = transforms.center_of_mass(model, out["T"])
    shifted = transforms.frames(model, q, origin)
    out["V about another origin"] = transforms.velocity_field(model, shifted, v)
    out["centripetal about another origin"] = transforms.centripetal_field(model, shifted, v)
    return out


def come(model, q, z):
    """ΔT of an increment."""
    return transforms.increments(model, transforms.local_transforms(model, q), transforms.joint_motion(model, z))


@jax.jit
def moves(model, q_a, q_b, delta):
    z = manifold.increment_between(model, q_a, q_b)
    return {
        "z": z,
        "dT": come(model, q_a, z),
        "dT nothing": come(model, q_a, manifold.identity_increment(model)),
        "T_a": transforms.transforms(model, q_a),
        "T_b": transforms.transforms(model, q_b),
        "composed": manifold.compose_increment(model, q_a, z),
        "retracted": manifold.retract(model, q_a, delta),
        "retracted back": manifold.difference(model, q_a, manifold.retract(model, q_a, delta)),
        "difference": manifold.difference(model, q_a, q_b),
        "round trip": manifold.retract(model, q_a, manifold.difference(model, q_a, q_b)),
    }


def check_transforms(case):
    model, rng = case.model, case.rng
    q = jnp.asarray(random_q(model, rng, case.pose_a), DTYPE)
    v = jnp.asarray(rng.normal(size=model.nv), DTYPE)
    got = {k: np.asarray(x, float) for k, x in library(model, q, v).items()}
    T, dT, ddT = (np.asarray(x, float) for x in dense_jet(model, q))
    assert_close(got["T"], T, TOL["autodiff"], "T")
    assert_close(got["serial"], got["T"], TOL["twin"], "serial and parallel transforms")
    assert_close(got["dT"], np.moveaxis(dT, -1, 1), TOL["autodiff"], "∂T/∂q")
    want = np.moveaxis(ddT, (-2, -1), (1, 2))
    assert_close(got["ddT"], want, TOL["autodiff"], "∂²T/∂q²")
    assert_close(got["ddT"], np.swapaxes(got["ddT"], 1, 2), TOL["symmetric"], "∂²T/∂q² is symmetric")
    diagonal = np.arange(model.nv)
    assert_close(got["ddT"][:, diagonal, diagonal], want[:, diagonal, diagonal], TOL["autodiff"], "diagonal of ∂²T/∂q²")
    # the local derivative: ∂L/∂q_x = L σ_x is what ∂T/∂q_x is on the dof's own link
    link = tree(model.topology).dof_link
    own = np.einsum("xij,xjk->xik", got["T"][link][..., :3], got["screws"])
    assert_close(own, np.moveaxis(dT, -1, 1)[link, diagonal], TOL["autodiff"], "T σ")

    v = np.asarray(v, float)
    V, Gamma = dT @ v, ddT @ v @ v
    for what, want in (("V", V), ("centripetal", Gamma)):
        assert_close(got[what], want, TOL["autodiff"], what)
        # about the centre of mass, the field's translation is that of T about the same point: the same field
        assert_close(got[f"{what} about another origin"], want, TOL["autodiff"], f"{what} about another origin")


@pytest.mark.slow
@many(max_examples=100)
@given(case=cases())
def test_transforms_and_fields(case):
    check_transforms(case)


@pytest.mark.slow
@pytest.mark.thorough
@many(max_examples=500, derandomize=False)
@given(case=cases(NAMES))
def test_transforms_and_fields_long(case):
    check_transforms(case)


@pytest.mark.parametrize("topology", ["free", thorough("slides and hinges"), slow("many joints"), slow("massless")])
def test_transforms_by_central_differences(topology):
    """Also the retraction that the derivatives are taken along: q ⊕ δ by `retract`."""
    model, rng = random_model(topology, 5), np.random.default_rng(6)
    q = jnp.asarray(random_q(model, rng), DTYPE) * (1 if DTYPE == np.float64 else 0.1)
    q = manifold.retract(model, q, jnp.zeros(model.nv, DTYPE))
    h = 1e-3 if DTYPE == np.float64 else 3e-2
    got = library(model, q, jnp.zeros(model.nv, DTYPE))
    dT, ddT = np.asarray(got["dT"], float), np.asarray(got["ddT"], float)

    @jax.jit
    def along(delta):
        at = manifold.retract(model, q, delta)
        return transforms.transforms(model, at), transforms_derivative(model, at)

    fd = central_difference(lambda d: np.asarray(along(jnp.asarray(d, DTYPE))[0], float), model.nv, h)
    assert_close(np.moveaxis(dT, 1, -1), fd, TOL["difference"], "∂T/∂q")
    # second differences on the diagonal; off it, differences of ∂T/∂q are in other coordinates on a ball, but
    # their symmetric part is the same
    fd2 = central_difference(lambda d: np.asarray(along(jnp.asarray(d, DTYPE))[1], float), model.nv, h)
    fd2 = np.moveaxis(fd2, -1, 2)  # (N, x, moved, 3, 4): rotates the basis of a ball with it
    assert_close(ddT, 0.5 * (fd2 + np.swapaxes(fd2, 1, 2)), TOL["difference"], "∂²T/∂q²")


@pytest.mark.slow
@many(max_examples=100)
@given(case=cases())
def test_increments_and_retractions(case):
    model, rng = case.model, case.rng
    q_a, q_b = (jnp.asarray(random_q(model, rng, p), DTYPE) for p in (case.pose_a, case.pose_b))
    delta = rng.uniform(-1, 1, size=model.nv) * rng.choice([1.5, 1e-3, 1e-9])
    got = {k: np.asarray(x, float) for k, x in moves(model, q_a, q_b, jnp.asarray(delta, DTYPE)).items()}
    assert all(np.all(np.isfinite(x)) for x in got.values())
    scale = max(1.0, np.abs(got["T_a"]).max(), np.abs(got["T_b"]).max())
    assert np.abs(got["dT"] - (got["T_b"] - got["T_a"])).max() <= TOL["autodiff"] * scale, "increments"
    assert not np.any(got["dT nothing"]), "no motion is no increment"
    angles = max(1.0, np.abs(np.asarray(q_a)).max(), np.abs(np.asarray(q_b)).max())
    eps = float(np.finfo(DTYPE).eps)
    assert np.abs(got["composed"] - q_b).max() <= 8 * eps * angles, "q_a followed by z is q_b"
    assert np.abs(got["retracted"] - move(model, q_a, delta)).max() <= 8 * eps * angles, "⊕"
    assert np.abs(got["retracted back"] - delta).max() <= 16 * eps * angles, "⊖ after ⊕"
    round_trip = np.asarray(transforms.transforms(model, jnp.asarray(got["round trip"], DTYPE)), float)
    assert np.abs(round_trip - got["T_b"]).max() <= 50 * TOL["autodiff"] * scale, "⊕ after ⊖"
    assert np.abs(got["difference"][tree(model.topology).ball_v]).max(initial=0) <= np.pi * (1 + 4 * eps)


@jax.jit
def derivatives_at_zero(model, q):
    """Jacobians of ⊖ after ⊕ by both its arguments, and its second derivative, where nothing moves."""
    zero = jnp.zeros(model.nv, model.dtype)

    def there(a, b):
        return pbad.difference(model, pbad.retract(model, q, a), pbad.retract(model, q, b))

    first = jax.jacfwd(there, (0, 1))(zero, zero), jax.jacrev(there, (0, 1))(zero, zero)
    return first, jax.jacfwd(jax.grad(lambda b: jnp.sum(there(zero, b) ** 2) / 2))(zero)


@pytest.mark.slow
@many(max_examples=30)
@given(case=cases(("free", "many joints", "hinge chain")))
def test_the_tangent_space_is_smooth_where_nothing_moves(case):
    """∂(⊖ after ⊕) = ∓E by either end, forward and reverse, and ∂²½‖δ‖² = E: no guard has cut a derivative off."""
    q = jnp.asarray(random_q(case.model, case.rng, case.pose_a), DTYPE)
    first, second = derivatives_at_zero(case.model, q)
    eye = np.eye(case.model.nv)
    for by_a, by_b in first:
        assert np.abs(by_b - eye).max() <= TOL["autodiff"] and np.abs(by_a + eye).max() <= TOL["autodiff"]
    assert np.abs(second - eye).max() <= TOL["autodiff"]


def test_the_tangent_space_refuses_other_shapes():
    model = pbad.chain(2)
    with pytest.raises(pbad.StateError, match="delta has shape"):
        pbad.retract(model, model.q0, jnp.zeros(1, DTYPE))
    with pytest.raises(pbad.StateError, match="batch of 1.*jax.vmap"):
        pbad.difference(model, model.q0, model.q0[None])


@jax.jit
def tiny_increment(model, q, z):
    return come(model, q, z)


@jax.jit
def tiny_move(model, q, delta):
    z = manifold.retract(model, manifold.identity_increment(model), delta)
    subtracted = transforms.transforms(model, manifold.compose_increment(model, q, z)) - transforms.transforms(model, q)
    return (
        z,
        transforms.increments(model, transforms.local_transforms(model, q), transforms.joint_motion(model, z)),
        subtracted,
    )


SIZES = (1e-2, 1e-4, 1e-6, 1e-9, 1e-20)


@pytest.mark.float64
@pytest.mark.parametrize(
    "topology, size",
    [
        *itertools.product(("balls", "many joints"), SIZES),
        slow("twelve", 1e-6),
        *(thorough("twelve", size) for size in SIZES if size != 1e-6),
        *(thorough("hinge chain", size) for size in SIZES),
    ],
)
def test_float32_increments_do_not_cancel(topology, size):
    """In float32, ΔT for tiny z is right to rounding, where subtraction has lost everything."""
    model, rng = random_model(topology, 11), np.random.default_rng(12)
    q = random_q(model, rng)
    single = random_model(topology, 11, dtype=np.float32)
    # the same numbers in both precisions
    wide = jax.tree.map(lambda x: x.astype(jnp.float64), single)
    wide = dataclasses.replace(wide, axis=wide.axis / jnp.maximum(0.5, jnp.linalg.norm(wide.axis, axis=1))[:, None])
    q = jnp.asarray(q, jnp.float32)
    delta = jnp.asarray(size * rng.normal(size=model.nv), jnp.float32)
    z, got, subtracted = tiny_move(single, q, delta)
    assert got.dtype == jnp.float32
    q64, z64 = manifold.retract(wide, q.astype(jnp.float64), jnp.zeros(model.nv)), z.astype(jnp.float64)
    want = tiny_increment(wide, q64, z64)  # float64's own, judged against subtraction above
    if size <= 1e-6:
        delta = manifold.difference(wide, manifold.identity_increment(wide), z64)
        jet = dense_jet(wide, q64)
        assert_close(want, jet[1] @ delta + 0.5 * jet[2] @ delta @ delta, 1e-10, "float64 against its Taylor series")
    assert_close(got, want, 5e-6, f"float32 increments at |z| = {size}")
    if size <= 1e-4:
        assert error(subtracted, want) > 50 * error(got, want), "the test would not notice a subtraction"


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["three roots", "twelve", thorough("massless")])
def test_poses_are_those_of_the_bodies(topology):
    model, rng = random_model(topology, 3), np.random.default_rng(4)
    q = jnp.asarray(random_q(model, rng), DTYPE)
    poses = transforms.forward_kinematics(model, q)
    T = np.asarray(dense_transforms(model, q, jnp.zeros(model.nv, DTYPE)))[list(model.topology.body_link)]
    assert_close(poses.position, T[..., 3], TOL["autodiff"])
    assert_close(poses.rotation, T[..., :3], TOL["autodiff"])
    R = np.asarray(poses.rotation, float)
    assert_close(R @ np.swapaxes(R, 1, 2), np.broadcast_to(np.eye(3), R.shape), TOL["twin"] * 10)


def test_center_of_mass_and_total_mass():
    model, rng = random_model("twelve", 3), np.random.default_rng(4)
    q = jnp.asarray(random_q(model, rng), DTYPE)
    T, M = np.asarray(transforms.transforms(model, q), float), np.asarray(model.second_moment, float)
    mass = M[:, 3, 3]
    world = [T[l] @ np.append(M[l, :3, 3] / m, 1) if m else np.zeros(3) for l, m in enumerate(mass)]
    assert_close(transforms.total_mass(model), mass.sum(), TOL["autodiff"])
    assert_close(transforms.center_of_mass(model, jnp.asarray(T, DTYPE)), mass @ world / mass.sum(), TOL["autodiff"])


@pytest.mark.float64
def test_what_balls_have_takes_the_precision_of_the_rest():
    """A model in single precision beside numbers in double: no array widens on the way."""
    model = random_model("many joints", 3)
    t = tree(model.topology)
    scalar, balls = jnp.ones(len(t.scalar_v), jnp.float32), jnp.full(t.ball_v.shape, 2.0, jnp.float64)
    found = on_dofs(model, scalar, lambda: balls)
    assert t.balls.size and found.dtype == jnp.float32
    np.testing.assert_array_equal(np.asarray(found)[t.ball_v], 2.0)
    assert change_balls(model, found, lambda x: x + balls).dtype == jnp.float32
