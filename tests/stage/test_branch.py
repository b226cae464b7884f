"""Whether a matrix says that a root grows out of the start of the step."""

import jax.numpy as jnp
import numpy as np
import pytest
from judges import followed

import pbad_jax as pbad
from pbad_jax.kinematics import manifold
from pbad_jax.math import batched
from pbad_jax.schemes import NAMES
from pbad_jax.stage import branch


@pytest.mark.float64  # numbers that are nearly nothing
@pytest.mark.parametrize(
    "block, wanted",
    [
        ([[0.3, 1.0], [-1.0, 0.3]], True),
        ([[-0.05, 1.0], [-1.0, -0.05]], True),  # a pair that leans a little
        ([[-0.2, 1.0], [-1.0, -0.2]], False),  # and much
        ([[-0.05, 9.0], [0.0, 2.0]], False),  # one alone to the left: the root has turned back
        ([[-0.05, 9.0], [0.0, -0.02]], True),
    ],
    ids=["right", "leans", "left", "one alone", "two alone"],
)
def test_what_leans_to_the_right(block, wanted):
    P = np.diag([3.0, 2.0, 1.0, 5.0])
    P[1:3, 1:3] = block
    # not positive definite as it stands, so that its eigenvalues are asked for
    turn = np.eye(4) + 0.9 * np.triu(np.ones((4, 4)), 1)
    P = jnp.asarray(turn @ P @ np.linalg.inv(turn))
    D = jnp.asarray([[2.0, 0.5], [-4.5, 2.5]])
    J = jnp.tensordot(D, P.reshape(2, 2, 2, 2), axes=1).reshape(4, 4)
    model = pbad.chain(1, dtype=jnp.float64)  # two rates
    assert bool(branch.is_connected(model, batched.cholesky(jnp.eye(2)), D, J)) == wanted


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.float64
def test_a_chain_of_balls_that_starts_on_its_head():
    """radau(3) at 0.45 s has a root nearby with one real eigenvalue at -0.096, which is not where the chain goes."""
    inertia = np.diag([1 / 12, 1 / 12, 1e-3])

    def rod(name, parent):
        at, joint = (0, 0, 0 if parent is None else -1.0), pbad.Joint("ball", name=f"at {name}")
        return pbad.Body(name, 1.0, (0, 0, -0.5), inertia, parent, at, joints=[joint])

    model = pbad.build_model([rod("upper", None), rod("lower", "upper")], dtype=jnp.float64)
    q = [0.5374362515892084, 0.7990204130469929, -0.26461560108338616, -0.05203113178888215]
    q += [0.26658238353546543, 0.76617978385925, 0.17738332215105745, -0.5571692100399996]
    v = [-0.0018171149533479677, 0.04157104330119678, 0.01794667458675996]
    v += [-0.006638078414285427, 0.0072768151922139096, 0.012128985764166166]
    state, dt = pbad.make_state(model, q, v), 0.4531885147373919
    after, info = pbad.make_step(pbad.Options(dt=dt, scheme="radau3"))(model, state)
    wanted, by = followed(model, NAMES["radau3"](), state, dt, 300)
    assert by < 1e-9
    off = float(jnp.max(jnp.abs(manifold.difference(model, after.q, wanted))))
    assert int(info.status) != pbad.Status.CONVERGED or off < 1e-6
