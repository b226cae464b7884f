"""Batches over eight devices and two processes: the bits of one device. In processes of their own."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "many_devices.py"
pytestmark = [pytest.mark.float64, pytest.mark.slow]

ON_EIGHT = r"""
import jax, jax.numpy as jnp, numpy as np, pytest
jax.config.update("jax_enable_x64", True)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import pbad_jax as pbad
from pbad_jax.math.batched import cholesky, solve

assert jax.device_count() == 8
mesh = jax.make_mesh((8,), ("lanes",), axis_types=(AxisType.Auto,))
body = pbad.Body("b", 1.0, (0, 0, -1), np.eye(3) / 9, joints=[pbad.Joint("hinge", name="j")])
model = pbad.build_model([body], actuators=[pbad.Actuator("j")])
rng = np.random.default_rng(0)
states = jax.vmap(lambda v: pbad.make_state(model, v=v))(jnp.asarray(20 * rng.normal(size=(32, 1))))
u = jnp.asarray(rng.normal(size=(32, 10, 1)))
how = pbad.Options(dt=0.05, scheme="radau1")
lanes = NamedSharding(mesh, P("lanes"))
spread = jax.device_put(states, lanes)
for schedule in ("iteration", "step"):
    alone = pbad.rollout_batch(model, states, u, options=how, tile=4, schedule=schedule)
    for controls in (u, jax.device_put(u, lanes)):
        *got, report = pbad.rollout_batch(model, spread, controls, options=how, schedule=schedule, report=True)
        assert got[0].q.sharding.is_equivalent_to(lanes, 3) and report.width == 4
        for x, y in zip(jax.tree.leaves(tuple(got)), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(x, y)
each = jax.jit(jax.vmap(lambda s, u: pbad.rollout(model, s, u, options=how, progress=False)))(spread, u)
assert each[0].q.sharding.is_equivalent_to(lanes, 3)
np.testing.assert_allclose(each[0].q, alone[0].q, atol=1e-10)
A = jax.device_put(jnp.tile(4 * jnp.eye(30) + 1, (32, 1, 1)), lanes)
for x in (jax.jit(jax.vmap(solve))(A, A[..., 0]), *jax.jit(jax.vmap(cholesky))(A)):
    assert x.sharding.is_equivalent_to(lanes, x.ndim)
several = pbad.chain(3)  # whose systems go to LAPACK one after another
states = jax.vmap(lambda v: pbad.make_state(several, v=v))(jnp.asarray(5 * rng.normal(size=(32, 6))))
how = pbad.Options(dt=0.02, scheme="radau2")
alone, one = (pbad.rollout_batch(several, s, None, 5, how, tile=4) for s in (states, pbad.spread(states)))
assert one[0].q.sharding.is_equivalent_to(lanes, 3)
for x, y in zip(jax.tree.leaves(alone[0]), jax.tree.leaves(one[0]), strict=True):
    np.testing.assert_array_equal(x, y)
for x, y in zip(jax.tree.leaves(alone[1]), jax.tree.leaves(one[1]), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-12)
env = pbad.envs.make("pendulum")
starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 16))
params = jax.vmap(env.randomise)(jax.random.split(jax.random.key(1), 16))
policy = lambda p, obs, key: (p[:1] * obs[-1:], None)
many = jnp.linspace(-1, 1, 16, dtype=starts.obs.dtype)[:, None]
for more, p in (({}, many[3]), ({"params": params}, many[3]), ({"population": True}, many)):
    alone, one = (pbad.envs.unroll(env, policy, p, s, 5, tile=2, **more) for s in (starts, pbad.spread(starts)))
    assert one[1].obs.sharding.is_equivalent_to(lanes, 3)
    for x, y in zip(jax.tree.leaves(alone[1]), jax.tree.leaves(one[1]), strict=True):
        np.testing.assert_array_equal(x, y)
actions = jnp.zeros((16, 5, 1), starts.obs.dtype)
for schedule in ("iteration", "step"):
    rows = pbad.envs.unroll(env, actions, None, pbad.spread(starts), 5, schedule=schedule)[1]
    np.testing.assert_allclose(rows.obs, pbad.envs.unroll(env, actions, None, starts, 5)[1].obs, atol=1e-5)
with pytest.raises(pbad.StateError, match=r"spread: \.q has shape \(9, 6\)"):
    pbad.spread(jax.tree.map(lambda x: x[:9], states))
states = jax.vmap(lambda v: pbad.make_state(model, v=v))(jnp.zeros((32, 1)))
how = pbad.Options(dt=0.05, scheme="radau1")
with pytest.raises(pbad.OptionError, match="queue"):
    pbad.rollout_batch(model, spread, None, 3, how, queue=states)
print("as one")
"""


def run(*command: str, devices: int = 1) -> subprocess.Popen:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    return subprocess.Popen(
        [sys.executable, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    return out


def test_eight_devices():
    assert "as one" in ended(run("-c", ON_EIGHT, devices=8))


def test_two_processes():
    """The example, alone and as two processes that meet on localhost: the same lanes."""
    alone = ended(run(str(EXAMPLE), "--steps", "10"))
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    at = ("--coordinator", f"localhost:{port}", "--processes", "2", "--steps", "10")
    both = [run(str(EXAMPLE), *at, "--process", str(i)) for i in (0, 1)]
    lines = [ended(process) for process in both]
    assert all("32 of 64 lanes" in line and "all solved: True" in line for line in lines), lines

    def total(text: str) -> float:
        found = re.search(r"sum of squares ([\d.]+)", text)
        assert found, text
        return float(found[1])

    assert abs(sum(map(total, lines)) - total(alone)) < 1e-9
