"""JAX's switch of double precision may be turned at any time: no table and no program of before is left in the way."""

import os
import subprocess
import sys

import pytest
from helpers import thorough

pytestmark = [pytest.mark.float64, pytest.mark.slow]

SWITCHED = r"""
import sys
import jax, jax.numpy as jnp, numpy as np
import pbad_jax as pbad

how = pbad.Options(dt=0.05, scheme="radau1")

def found():
    # Angles after two steps of one lane and of two, and the slope of the last by the first rate.
    model = pbad.chain(2, joint="hinge")
    rates = jnp.asarray([[1.0, 0.3], [2.0, 0.1]], model.dtype)
    one = pbad.rollout(model, pbad.make_state(model, v=rates[0]), n_steps=2, options=how)[0].q
    states = jax.vmap(lambda v: pbad.make_state(model, v=v))(rates)
    many = pbad.rollout_batch(model, states, n_steps=2, options=how)[0].q
    end = lambda v: jnp.sum(pbad.rollout(model, pbad.make_state(model, v=v), n_steps=2, options=how)[0].q[-1])
    tree = pbad.make_step(pbad.Options(dt=0.05, scheme="radau1", linear_solver="tree"))
    swept = jax.jit(tree)(model, pbad.make_state(model, v=rates[0]))[0].q
    out = one, many, jax.grad(end)(rates[0]), swept
    assert all(x.dtype == model.dtype for x in out), [x.dtype for x in out]
    return model, [np.asarray(x) for x in out]

def switch(on):
    jax.config.update("jax_enable_x64", on)

first = sys.argv[1] == "64"
switch(first)
old, before = found()
switch(not first)
_, after = found()
with jax.enable_x64(first):
    _, again = found()
for a, b, c in zip(before, after, again):
    np.testing.assert_array_equal(a, c)
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert np.any(a != b)  # not the other's numbers
state = pbad.make_state(pbad.chain(2, joint="hinge"))
if first:  # a model of 64 bits, where JAX has none
    for f in (lambda: pbad.make_state(old), lambda: pbad.forward_kinematics(old, np.zeros(2)),
              lambda: pbad.rollout(old, state, n_steps=2, options=how)):
        try:
            f()
            raise SystemExit("computes in float64 without it")
        except pbad.ModelError as error:
            assert "jax_enable_x64" in str(error) and "float64" in str(error), error
else:  # one of 32 bits stays what it is
    assert pbad.make_state(old).q.dtype == np.float32
print("as ever")
"""


@pytest.mark.parametrize("first", ["32", thorough("64")])
def test_in_either_order(first):
    """Both precisions in one process: the numbers of each are those from before the switch, to the last bit."""
    env = os.environ | {"JAX_ENABLE_X64": "0", "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    done = subprocess.run([sys.executable, "-c", SWITCHED, first], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "as ever" in done.stdout
