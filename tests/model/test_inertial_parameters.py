"""Ten unconstrained numbers a body: there and back, always physical, differentiable, refused where there are none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, assert_close, central_difference, random_inertia, random_model
from mechanics import mass_com_inertia

import pbad_jax as pbad
from pbad_jax import Body, Joint, ModelError
from pbad_jax.model import inertia

TIGHT = 2e-5 if FLOAT32 else 1e-12
EPS = float(np.finfo(DTYPE).eps)
there, back = jax.jit(pbad.inertial_parameters), jax.jit(pbad.with_inertial_parameters)


def bodies(model: pbad.Model) -> np.ndarray:
    return np.array(model.topology.body_link)


@pytest.mark.parametrize("topology", ["free", "universals", "many joints"])
def test_there_and_back(topology):
    """M to θ to M and to θ; links inside joints stay massless."""
    for seed in range(3):
        model = random_model(topology, seed)
        theta = there(model)
        again = back(model, theta)
        for got, want in zip(again.second_moment, model.second_moment):
            assert_close(got, want, TIGHT)
        assert_close(there(again), theta, 1e-2 if FLOAT32 else 1e-10)  # flat bodies are badly conditioned
        inside = np.setdiff1d(np.arange(model.topology.n_links), bodies(model))
        assert inside.size and not again.second_moment[inside].any()
        moved = back(model, theta + 1.0)
        assert not moved.second_moment[inside].any()


def test_what_they_mean():
    """½ log mass, the centre of mass, and a box's half sizes over √3 on the diagonal."""
    sizes, com = np.array([0.3, 0.5, 0.2]), (0.1, -0.2, 0.3)
    body = Body("b", 2.0, com, inertia.solid_box(2.0, sizes), joints=[Joint("free")])
    theta = pbad.inertial_parameters(pbad.build_model([body], dtype=DTYPE))[0]
    assert_close(theta, [0.5 * np.log(2), *np.log(sizes / 3**0.5), 0, 0, 0, *com], TIGHT)


def test_any_numbers_are_physical():
    """Masses > 0 and A + B > C for 200 random θ, which come back."""
    model = pbad.chain(2, dtype=DTYPE)
    theta = jnp.asarray(np.random.default_rng(0).normal(size=(100, 2, 10)), DTYPE)
    M = jax.jit(jax.vmap(lambda x: pbad.with_inertial_parameters(model, x).second_moment))(theta)
    M = np.asarray(M, float)[:, bodies(model)].reshape(-1, 4, 4)
    for m in M:
        mass, _, I = mass_com_inertia(m)
        assert mass > 0
        A, B, C = np.linalg.eigvalsh(I)
        assert A + B > C > 0
        # scaled to a unit diagonal, as Jacobi would: how far from singular
        d = 1 / np.sqrt(np.diag(m))
        assert np.linalg.eigvalsh(m * d * d[:, None])[0] > 4 * EPS
    lanes = jax.vmap(lambda x: pbad.inertial_parameters(pbad.with_inertial_parameters(model, x)))
    assert_close(jax.jit(lanes)(theta), theta, 1e-2 if FLOAT32 else 1e-10)


def test_some_bodies_by_name():
    model = random_model("free", 0)
    names = [model.body_names[2], model.body_names[0]]
    theta = pbad.inertial_parameters(model, names)
    assert np.array_equal(theta, pbad.inertial_parameters(model)[np.array([2, 0])])
    heavy = pbad.with_inertial_parameters(model, theta.at[:, 0].add(0.5 * np.log(2)), names)
    factor = heavy.second_moment[bodies(model), 3, 3] / model.second_moment[bodies(model), 3, 3]
    assert_close(factor, [2 if i in (0, 2) else 1 for i in range(model.n_bodies)], TIGHT)


@pytest.mark.float64
def test_derivatives():
    """Of the kinetic energy by θ, forward and reverse, against differences; of θ after M after θ, the identity."""
    model = random_model("free", 1)
    state = pbad.make_state(model, v=np.random.default_rng(1).normal(size=model.nv))
    theta = there(model)

    def energy(theta):
        return pbad.kinetic_energy(pbad.with_inertial_parameters(model, theta), state)

    value = jax.jit(energy)
    g = np.asarray(jax.jit(jax.grad(energy))(theta)).ravel()
    fd = central_difference(lambda d: np.asarray(value(theta + jnp.asarray(d.reshape(theta.shape)))), theta.size, 1e-3)
    assert_close(g, fd, 1e-9)
    assert_close(np.asarray(jax.jit(jax.jacfwd(energy))(theta)).ravel(), g, 1e-12)
    loop = jax.jit(jax.jacfwd(lambda x: pbad.inertial_parameters(pbad.with_inertial_parameters(model, x))))(theta)
    assert_close(loop.reshape(theta.size, -1), np.eye(theta.size), 1e-10)


def flat(name: str, spread) -> pbad.Model:
    """A body with mass only within the span of `spread`, turned, beside an ordinary one."""
    rng = np.random.default_rng(2)
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    central = Q @ np.diag(spread) @ Q.T
    bad = Body(name, 1.0, (0.3, 0.1, 0.2), inertia.inertia_from_central_moment(central), joints=[Joint("slide")])
    good = Body("good", 1.0, inertia=random_inertia(rng, 1.0), parent=name, joints=[Joint("hinge")])
    return pbad.build_model([bad, good], dtype=DTYPE)


@pytest.mark.parametrize(
    ("spread", "word"), [((0, 0, 0), "in a point"), ((0.02, 0, 0), "on a line"), ((0.02, 0.01, 0), "in a plane")]
)
def test_flat_bodies_are_refused_by_name(spread, word):
    model = flat("thin", spread)
    with pytest.raises(ModelError, match=f"body 'thin': its mass lies {word}"):
        pbad.inertial_parameters(model)
    theta = pbad.inertial_parameters(model, ["good"])
    again = pbad.with_inertial_parameters(model, theta, ["good"])
    assert_close(again.second_moment, model.second_moment, TIGHT)


def test_wrong_calls():
    massless = Body("ghost", 0.0, joints=[Joint("hinge", (1, 0, 0))])
    heavy = Body("real", 1.0, (0.1, 0, 0), np.eye(3), parent=0, joints=[Joint("hinge")])
    with pytest.raises(ModelError, match="body 'ghost' has mass 0 kg"):
        pbad.inertial_parameters(pbad.build_model([massless, heavy], dtype=DTYPE))
    model = pbad.chain(2, dtype=DTYPE)
    for given, message in ((["link7"], "no 'link7'"), ([2], "no 2"), ([True], "no True"), ([0, "link0"], "named once")):
        with pytest.raises(ModelError, match=message):
            pbad.inertial_parameters(model, given)
    with pytest.raises(ModelError, match=r"theta has shape \(10,\); wanted \(1, 10\)"):
        pbad.with_inertial_parameters(model, np.zeros(10), "link1")
