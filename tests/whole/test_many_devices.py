"""Batches over eight devices and two processes: the bits of one device. In processes of their own."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest
from helpers import thorough

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

IN_SHARD_MAP = r"""
import sys
import jax, jax.numpy as jnp, numpy as np, pytest
jax.config.update("jax_enable_x64", True)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import pbad_jax as pbad

model = pbad.chain(1, joint="hinge")
rates = jnp.arange(8.0)[:, None]
mesh = jax.make_mesh((1, 2), ("other", "lanes"), axis_types=(AxisType.Auto,) * 2)
how = pbad.Options(dt=0.05, scheme="radau1")

def as_one(f, *rows):
    # Each of two devices by itself, as shard_map is by default, and all lanes on one.
    split = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("lanes"), out_specs=P("lanes")))(*rows)
    for x, y in zip(jax.tree.leaves(split), jax.tree.leaves(jax.jit(f)(*rows)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-9)

def moved(options):
    step = pbad.make_step(options)
    return jax.vmap(lambda v: step(model, pbad.make_state(model, v=v)))

def rollout(v):
    return pbad.rollout(model, pbad.make_state(model, v=v), n_steps=3, options=how)[0].q

def linear(v):
    return pbad.linearize(model, pbad.make_state(model, v=v), options=how).A

def batch(v):
    states = jax.vmap(lambda v: pbad.make_state(model, v=v))(v)
    return pbad.rollout_batch(model, states, n_steps=3, options=how)[0].q

WAYS = {
    "step": lambda: as_one(moved(how), rates),
    "stages": lambda: as_one(moved(pbad.Options(dt=0.05, scheme="radau2")), rates),
    "history": lambda: as_one(moved(pbad.Options(dt=0.05, scheme="legendre2")), rates),
    "in turn": lambda: as_one(moved(pbad.Options(dt=0.05, scheme="dirk2")), rates),
    "variational": lambda: as_one(moved(pbad.Options(dt=0.05, scheme="variational")), rates),
    "L-BFGS": lambda: as_one(moved(pbad.Options(dt=0.05, scheme="radau1", solver="lbfgs")), rates),
    "in parts": lambda: as_one(moved(pbad.Options(dt=0.05, scheme="radau1", on_failure="substep")), rates),
    "two vmaps": lambda: as_one(lambda v: jax.vmap(jax.vmap(rollout))(v), rates.reshape(4, 2, 1)),
    "rollout_batch": lambda: as_one(batch, rates),
    "gradient": lambda: as_one(jax.vmap(jax.grad(lambda v: jnp.sum(rollout(v)[-1]))), rates),
    "linearize": lambda: as_one(jax.vmap(linear), rates),
}

def of_all():
    # Gradients by what all devices share are summed over them, within shard_map and through it.
    def total(scale, v):
        return jnp.sum(jax.vmap(lambda v: rollout(scale * v)[-1])(v) ** 2)
    want = jax.jit(jax.grad(total))(1.1, rates)
    how = {"mesh": mesh, "in_specs": (P(), P("lanes")), "out_specs": P()}
    within = jax.shard_map(jax.grad(total), **how)
    summed = jax.shard_map(lambda s, v: jax.lax.psum(total(s, v), "lanes"), **how)
    through = jax.grad(lambda s: summed(s, rates))
    np.testing.assert_allclose(jax.jit(within)(1.1, rates), want, rtol=1e-9)
    np.testing.assert_allclose(jax.jit(through)(1.1), want, rtol=1e-9)

def elsewhere():
    # pmap, in_shardings, a mesh that is set; and a mesh that JAX wants all places for is named.
    states = jax.vmap(lambda v: pbad.make_state(model, v=v))(rates)
    step = pbad.make_step(how)
    one = jax.vmap(lambda s: step(model, s)[0].q)
    want = jax.jit(one)(states)
    placed = NamedSharding(mesh, P("lanes"))
    np.testing.assert_allclose(jax.jit(one, in_shardings=placed)(states), want, atol=1e-9)
    pairs = jax.tree.map(lambda x: x.reshape(2, 4, *x.shape[1:]), states)
    np.testing.assert_allclose(jax.pmap(one)(pairs).reshape(8, 1), want, atol=1e-9)
    with jax.set_mesh(mesh):
        pbad.rollout_batch(model, states, n_steps=1, options=how)
    explicit = jax.make_mesh((2,), ("lanes",), axis_types=(AxisType.Explicit,))
    there = jax.device_put(states, NamedSharding(explicit, P("lanes")))
    np.testing.assert_allclose(pbad.rollout_batch(model, there, n_steps=1, options=how)[0].q[:, 0], want, atol=1e-9)
    with pytest.raises(pbad.StateError, match="Explicit.*AxisType.Auto"):
        jax.jit(one)(there)

def tasks():
    # A task, step by step and as lanes under a policy.
    env = pbad.envs.make("pendulum", dtype=jnp.float64)
    keys = jax.random.split(jax.random.key(0), 8)
    policy = lambda p, obs, key: (p * obs[-1:], None)
    as_one(lambda k: jax.vmap(lambda k: env.step(env.reset(k), jnp.zeros(1)).obs)(k), keys)
    as_one(lambda k: pbad.envs.unroll(env, policy, 0.1, jax.vmap(env.reset)(k), 2)[1].obs, keys)

WAYS |= {"of all": of_all, "elsewhere": elsewhere, "tasks": tasks}
for name in sys.argv[1:]:
    WAYS[name]()
print("as one")
"""


def run(*command: str, devices: int = 1) -> subprocess.Popen:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    return subprocess.Popen(
        [sys.executable, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err[-3000:]
    return out


@pytest.mark.thorough
def test_eight_devices():
    assert "as one" in ended(run("-c", ON_EIGHT, devices=8))


@pytest.mark.parametrize(
    "ways",
    [
        ("step", "rollout_batch", "two vmaps"),
        thorough(("gradient", "of all", "linearize")),
        thorough(("in turn", "variational", "elsewhere")),
        thorough(("stages", "history")),
        thorough(("L-BFGS", "in parts")),
        thorough(("tasks",)),
    ],
    ids=", ".join,
)
def test_inside_shard_map(ways):
    """As it is by default: JAX keeps account of what varies over the devices."""
    assert "as one" in ended(run("-c", IN_SHARD_MAP, *ways, devices=2))


@pytest.mark.thorough
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
