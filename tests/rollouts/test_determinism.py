"""The same bits again: the same call twice, without caches, in other processes, with one thread (docs/batches.md)."""

import dataclasses
import functools
import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import thorough

import pbad_jax as pbad
from pbad_jax.step.options import without_dt

pytestmark = [pytest.mark.float64, pytest.mark.optimised]

OWN_BITS = """
import jax
jax.config.update("jax_enable_x64", {x64})
import test_determinism
print(test_determinism.bits({batched}))
"""
ONE_THREAD = {
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def bits(batched: bool) -> str:
    """A fingerprint of a swing of six links, 24 unknowns a step; of five of them side by side, two at a time."""
    model, options = pbad.chain(6), pbad.Options(0.02, "radau2")
    q = 1.0 + 0.1 * np.arange(5 * model.nq).reshape(5, -1) / model.nq
    states = jax.vmap(lambda q: pbad.make_state(model, q, jnp.cos(q)))(jnp.asarray(q, model.dtype))
    if batched:
        path, info = pbad.rollout_batch(model, states, None, 10, options, tile=2)
    else:
        path, info = pbad.rollout(model, jax.tree.map(lambda x: x[0], states), None, 10, options)
    assert np.all(info.status == 0)
    parts = (path.q, path.v, info.iterations, info.residual)
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in parts)).hexdigest()


def elsewhere(batched: bool, **environment: str) -> str:
    """The same in a new process."""
    code = OWN_BITS.format(x64=jax.config.jax_enable_x64, batched=batched)
    found = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)} | environment
    done = subprocess.run([sys.executable, "-c", code], env=found, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("batched", [thorough(False), True], ids=["rollout", "batch"])
def test_the_same_bits_again(batched):
    want = bits(batched)
    assert bits(batched) == want, "the same call"
    jax.clear_caches()
    assert bits(batched) == want, "compiled again"
    assert elsewhere(batched) == want, "in a new process"
    assert elsewhere(batched, **ONE_THREAD) == want, "with one thread"


@pytest.mark.thorough
@pytest.mark.slow
def test_another_dt_and_other_numbers_of_steps_compile_nothing():
    """One program for every dt, mass and number of steps, of rollouts and of a batch, and its steps are those of dt."""
    from pbad_jax.rollouts import batch, explicit, padded

    hinge = [pbad.Joint("hinge", (1, 0, 0), name="hip")]
    body = pbad.Body("b", 1.0, (0, 0, -1), np.eye(3) / 9, joints=hinge)
    model = pbad.build_model([body], actuators=[pbad.Actuator("hip")])
    state = pbad.make_state(model, q=0.3 * jnp.ones(model.nq, model.dtype) if model.nq == model.nv else model.q0)
    states = jax.tree.map(lambda x: jnp.stack([x] * 2), state)
    counts = []
    for dt, n in ((0.01, 3), (0.02, 1), (0.05, 15)):
        how = pbad.Options(dt=dt, scheme="radau1")
        model = dataclasses.replace(model, armature=model.armature + dt)
        u = jnp.ones((n, 1), model.dtype)
        alone, info = pbad.rollout(model, state, u, options=how, progress=False)
        many, _ = pbad.rollout_batch(model, states, u, options=how)
        plain, _ = pbad.newton_euler.rollout(model, state, n_steps=3, dt=dt)
        traced, _ = jax.jit(functools.partial(pbad.rollout, options=how, progress=False))(model, state, u)
        assert info.ok and info.status.shape == (n,) and many.q.shape == (2, n, 1) and alone.v.shape == (n, 1)
        np.testing.assert_allclose(plain.time, dt * np.arange(1, 4), rtol=1e-6)
        np.testing.assert_allclose(alone.time, dt * np.arange(1, n + 1), rtol=1e-6)
        np.testing.assert_allclose(many.time[1], alone.time, rtol=1e-6)
        np.testing.assert_allclose(many.q[0], alone.q, atol=1e-5)
        np.testing.assert_allclose(traced.q, alone.q, atol=1e-5)
        steps = padded.programs(without_dt(how)).steps
        counts.append([f._cache_size() for f in (steps, batch._rollout, explicit._rollout)])
    assert counts[0] == counts[1] == counts[2]


def test_a_progress_bar_goes_through_the_same_steps(monkeypatch):
    """It looks at pieces of a rollout, whose lengths follow the time they take."""
    from pbad_jax.rollouts import padded

    seen, model = [], pbad.chain(1, joint="hinge")
    monkeypatch.setattr(padded.report_progress, "show", lambda done, n, began: seen.append((done, n)))
    state, how = pbad.make_state(model, [1.0]), pbad.Options(dt=0.05, scheme="radau1")
    told, _ = pbad.rollout(model, state, n_steps=100, options=how, progress=True)
    quiet, _ = pbad.rollout(model, state, n_steps=100, options=how, progress=False)
    np.testing.assert_array_equal(told.q, quiet.q)
    assert seen[0] == (8, 100) and seen[-1] == (100, 100) and len(seen) > 2


@dataclasses.dataclass(frozen=True)
class Ramp:
    """A torque t − 4096 s on every joint."""

    couples_joints = False

    def load(self, model, at):
        return pbad.Load(tau=jnp.full(model.nv, at.time - 4096))


jax.tree_util.register_dataclass(Ramp, [], [])


@pytest.mark.slow
@pytest.mark.parametrize("explicit", [False, True], ids=["radau1", "explicit"])
def test_the_clock_goes_on_where_a_step_is_less_than_a_digit_of_it(explicit):
    """In single precision a step of 1e-4 s at 4096 s; a torque that grows with time shows what forces see of it."""
    n, dt = 2000, 1e-4
    link = pbad.Body("b", 1.0, inertia=np.eye(3), joints=[pbad.Joint("hinge")])
    model = pbad.with_forces(pbad.build_model([link], gravity=(0, 0, 0), dtype=np.float32), Ramp())
    step = pbad.newton_euler.make_step(dt) if explicit else pbad.make_step(pbad.Options(dt=dt, scheme="radau1"))

    def body(state, _):
        state, info = step(model, state)
        return state, info.status

    start = pbad.make_state(model, time=4096.0)
    end, status = jax.jit(lambda s: jax.lax.scan(body, s, None, n))(start)
    assert np.all(status == 0)
    assert abs(float(end.time) - 4096 - n * dt) < 4e-4  # its digits are 5e-4
    np.testing.assert_allclose(end.v, 0.5 * (n * dt) ** 2, rtol=0.02)
    if not explicit:
        options = pbad.Options(dt=dt, scheme="radau1")
        states = jax.tree.map(lambda x: x[None], end)
        for time in (
            pbad.rollout(model, end, n_steps=n, options=options, progress=False)[0].time,
            pbad.rollout_batch(model, states, n_steps=n, options=options)[0].time[0],
        ):
            assert abs(float(time[-1]) - 4096 - 2 * n * dt) < 4e-4
