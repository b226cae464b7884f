"""What is public multiplies with all bits of its factors, also under jit, vmap and grad: on accelerators too."""

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

import pbad_jax as pbad
from pbad_jax import forces

SCHEMES = ("radau1", "legendre2", "dirk2", "variational")


def products(jaxpr) -> list:
    """The precisions of all products, also of inner programs."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            found.append(eqn.params["precision"])
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)):
            if isinstance(value, Jaxpr | ClosedJaxpr):
                found += products(value.jaxpr if isinstance(value, ClosedJaxpr) else value)
    return found


def model_and_state(at="step"):
    model = pbad.chain(2, joint="ball")
    ground = forces.half_space((0.0, 0.0, 1.0), -1.0)
    model = pbad.with_forces(model, forces.contact(model, ground, friction=0.5, at=at))
    return model, pbad.make_state(model)


def check(f, *args):
    found = products(jax.make_jaxpr(f)(*args).jaxpr)
    highest = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)
    assert found and all(p == highest for p in found), [p for p in found if p != highest]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_step(scheme):
    model, state = model_and_state("stages" if scheme == "legendre2" else "step")
    step = pbad.make_step(pbad.Options(dt=0.01, scheme=scheme, on_failure="substep", account=True))
    check(step, model, state)


def end_of(model):
    step = jax.jit(pbad.make_step(pbad.Options(dt=0.01, scheme="radau1")))
    return lambda state: jnp.sum(step(model, state)[0].q)


def test_lanes_of_a_jitted_step():
    model, state = model_and_state()
    check(jax.vmap(end_of(model)), jax.tree.map(lambda x: x[None], state))


def test_gradient_of_a_jitted_step():
    model, state = model_and_state()
    check(jax.grad(end_of(model), allow_int=True), state)


def test_rollout_batch():
    model, state = model_and_state()
    states = jax.tree.map(lambda x: x[None], state)
    check(lambda s: pbad.rollout_batch(model, s, None, 2, pbad.Options(dt=0.01, scheme="radau1")), states)


def test_a_policy_keeps_its_own_precision():
    model, state = model_and_state()
    model = pbad.with_actuators(model, *pbad.motors(model))
    states = jax.tree.map(lambda x: x[None], state)
    weights = jnp.zeros((model.nu, model.nv))
    options = pbad.Options(dt=0.01, scheme="radau1")
    program = jax.make_jaxpr(lambda s: pbad.rollout_batch(model, s, lambda s: weights @ s.v, 2, options))(states)
    assert sum(p is None for p in products(program.jaxpr)) == 1  # where a step begins


@pytest.mark.parametrize("what", ["kinetic_energy", "potential_energy", "linear_momentum", "angular_momentum"])
def test_energies(what):
    model, state = model_and_state()
    f = getattr(pbad, what)
    program = jax.make_jaxpr(lambda s: f(model, s))(state)
    assert None not in products(program.jaxpr)


@pytest.mark.parametrize("what", ["acceleration", "inverse_dynamics", "mass_matrix", "make_step"])
def test_newton_euler(what):
    model, state = model_and_state()
    if what == "make_step":
        check(pbad.newton_euler.make_step(0.01), model, state)
    elif what == "mass_matrix":
        check(pbad.newton_euler.mass_matrix, model, state.q)
    elif what == "inverse_dynamics":
        check(pbad.newton_euler.inverse_dynamics, model, state, state.v)
    else:
        check(pbad.newton_euler.acceleration, model, state)
