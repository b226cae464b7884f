"""Rollouts in chunks on disk: the same bits, whatever kills them; damaged and foreign files are refused by name."""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, thorough

import pbad_jax as pbad

pytestmark = [pytest.mark.float64, pytest.mark.optimised]

N, EVERY = 40, 10
BAD_NUMBERS = (None, "x", [], {}, 1e999, -1e999, float("nan"))


def job(scheme: str = "radau1", n_steps: int = N):
    model = pbad.chain(1, dtype=DTYPE)
    v = jnp.asarray(np.random.default_rng(0).normal(size=(3, model.nv)), DTYPE)
    states = jax.vmap(lambda v: pbad.make_state(model, v=v))(v)
    return model, states, None, n_steps, pbad.Options(dt=0.05, scheme=scheme)


def assert_same(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["radau1", thorough("legendre3")])
def test_chunks_are_the_whole(tmp_path, scheme):
    """Also when it is continued from a part, and when more steps are asked for."""
    whole = pbad.rollout_batch(*job(scheme))
    got = pbad.long_rollout(tmp_path, *job(scheme, 25), every=EVERY)
    assert got[0].q.shape[1] == 25
    assert sorted(p.name for p in tmp_path.iterdir())[-1] == "steps_000000020_000000025.npz"
    assert_same(pbad.long_rollout(tmp_path, *job(scheme), every=EVERY), whole)
    (tmp_path / "steps_000000010_000000020.npz").unlink()  # what follows is not trusted without it
    assert_same(pbad.long_rollout(tmp_path, *job(scheme), every=EVERY), whole)
    assert_same(pbad.long_rollout(tmp_path, *job(scheme, 15), every=EVERY)[0].q, whole[0].q[:, :15])


@pytest.mark.thorough
@pytest.mark.slow
def test_controls_and_policies(tmp_path):
    model = pbad.build_model(
        [pbad.Body("b", 1.0, (0, 0, -1), np.eye(3) / 9, joints=[pbad.Joint("hinge", name="j")])],
        actuators=[pbad.Actuator("j")],
        dtype=DTYPE,
    )
    states = jax.vmap(lambda v: pbad.make_state(model, v=v))(jnp.asarray([[0.1], [0.2]], DTYPE))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(2, 20, 1)), DTYPE)
    how = pbad.Options(dt=0.05, scheme="radau1")
    got = pbad.long_rollout(tmp_path / "a", model, states, u, None, how, every=10)
    assert_same(got, pbad.rollout_batch(model, states, u, None, how))
    with pytest.raises(pbad.CheckpointError, match="another job"):
        pbad.long_rollout(tmp_path / "a", model, states, -u, None, how, every=10)

    def policy(gain, state):
        return gain * state.q

    gain = jax.tree_util.Partial(policy, jnp.asarray(-2.0, DTYPE))
    assert_same(
        pbad.long_rollout(tmp_path / "b", model, states, gain, 20, how, every=10),
        pbad.rollout_batch(model, states, gain, 20, how),
    )


@pytest.mark.thorough
def test_activations_and_what_goes_on_from_a_trajectory(tmp_path):
    """Chunks keep all of a state, and the trajectory that they make has it for `states_of`."""
    joint = pbad.Joint("hinge", name="j")
    model = pbad.build_model(
        [pbad.Body("b", 1.0, (0, 0, -1), np.eye(3) / 9, joints=[joint])],
        actuators=[pbad.Actuator("j", gain=5.0, bias=(0, -5.0, -1.0), integrates=True)],
        dtype=DTYPE,
    )
    states = jax.vmap(lambda v: pbad.make_state(model, v=v, time=0.7))(jnp.asarray([[0.1], [0.2]], DTYPE))
    u, how = jnp.asarray(np.random.default_rng(0).normal(size=(2, 20, 1)), DTYPE), pbad.Options(dt=0.05)
    whole = pbad.rollout_batch(model, states, u, options=how)
    assert_same(pbad.long_rollout(tmp_path / "a", model, states, u, None, how, every=5), whole)
    half, _ = pbad.long_rollout(tmp_path / "b", model, states, u, 10, how, every=10)
    ends = jax.tree.map(lambda x: x[:, -1], pbad.states_of(model, half))
    rest, _ = pbad.long_rollout(tmp_path / "c", model, ends, u[:, 10:], None, how, every=10)
    assert_same(rest, jax.tree.map(lambda x: x[:, 10:], whole[0]))


@pytest.mark.slow
def test_damaged_and_foreign_files(tmp_path):
    whole = pbad.long_rollout(tmp_path, *job(), every=EVERY)
    path = tmp_path / "steps_000000020_000000030.npz"
    good = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)

    def tampered(**change):
        np.savez(path, **(arrays | change))
        return path.read_bytes()

    about = json.loads(str(arrays["metadata"][()]))
    newer = np.array(json.dumps(about | {"format_version": 99}))
    for content, words in (
        (good[: len(good) // 2], "cannot be read"),
        (b"", "cannot be read"),
        (tampered(q=arrays["q"] + 1e-12), "checksum"),
        (tampered(metadata=np.array("nonsense")), "cannot be read"),
        (tampered(metadata=np.array(["an object", None], object)), "cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(pbad.CheckpointError, match=words) as error:
            pbad.long_rollout(tmp_path, *job(), every=EVERY)
        assert path.name in str(error.value)
        with pytest.warns(UserWarning, match="made again"):
            assert_same(pbad.long_rollout(tmp_path, *job(), every=EVERY, damaged="redo"), whole)
    with pytest.raises(pbad.CheckpointError, match="another job"):
        pbad.long_rollout(tmp_path, *job("radau2"), every=EVERY, damaged="redo")
    path.write_bytes(tampered(metadata=newer))
    with pytest.raises(pbad.CheckpointError, match="version 99"):
        pbad.long_rollout(tmp_path, *job(), every=EVERY, damaged="redo")
    path.write_bytes(tampered(metadata=np.array(json.dumps(about | {"format_version": 1}))))
    with pytest.raises(pbad.CheckpointError, match="may be of another job.*another folder"):
        pbad.long_rollout(tmp_path, *job(), every=EVERY, damaged="redo")


@pytest.mark.thorough
def test_metadata_and_arrays_of_a_stranger(tmp_path):
    """Forged or mangled, whatever they are: a CheckpointError, and never a loop that does not end."""
    from pbad_jax.storage import long_rollouts

    pbad.long_rollout(tmp_path, *job(), every=EVERY)
    path = tmp_path / "steps_000000020_000000030.npz"
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays.pop("metadata")[()]))

    def forged(arrays=arrays, **change):
        honest = about | {"sha256": long_rollouts._digest(arrays)}
        np.savez(path, **arrays, metadata=np.array(json.dumps(honest | change)))

    def mangled(text):
        np.savez(path, **arrays, metadata=np.array(text))

    def without(key):
        return {k: x for k, x in arrays.items() if k != key}

    cases = [
        *(functools.partial(mangled, x) for x in ("[]", "1", "{}", "null", "[" * 100_000)),
        *(functools.partial(mangled, json.dumps({k: x for k, x in about.items() if k != key})) for key in about),
        *(functools.partial(forged, **{key: x}) for key in ("format_version", "first", "last") for x in BAD_NUMBERS),
        functools.partial(forged, last=20),
        functools.partial(forged, {k: x if k.startswith("end_") else x[:, :0] for k, x in arrays.items()}, last=20),
        *(functools.partial(forged, without(key)) for key in ("q", "time", "end_v", "info_status")),
        functools.partial(forged, arrays | {"end_q": arrays["end_q"][:1]}),
        functools.partial(forged, arrays | {"q": arrays["q"].astype(np.float16)}),
        functools.partial(forged, arrays | {"more": arrays["q"]}),
    ]
    for case in cases:
        case()
        with pytest.raises(pbad.CheckpointError) as error:
            pbad.long_rollout(tmp_path, *job(), every=EVERY)
        assert path.name in str(error.value) and 'damaged="redo"' in str(error.value), str(error.value)
        assert len(str(error.value)) < 1000
    with pytest.raises(pbad.CheckpointError, match="File name too long"):
        pbad.long_rollout(tmp_path / ("x" * 300), *job(), every=EVERY)


@pytest.mark.slow
def test_a_full_disk_costs_nothing_but_a_warning(tmp_path, monkeypatch):
    from pbad_jax.storage import long_rollouts

    write, tries = long_rollouts.written_whole, []

    def full(path):
        tries.append(path)
        if len(tries) in (2, 3):
            raise OSError(28, "No space left on device")
        return write(path)

    monkeypatch.setattr(long_rollouts, "written_whole", full)
    with pytest.warns(UserWarning, match="No space left"):
        got = pbad.long_rollout(tmp_path, *job(), every=EVERY)
    assert len(list(tmp_path.iterdir())) == N // EVERY
    assert_same(got, pbad.rollout_batch(*job()))


@pytest.mark.parametrize(
    ("change", "words"), [({"every": 0}, "every is 0"), ({"every": 5, "damaged": "hope"}, "'hope'"), ({"n": 0}, "≥ 1")]
)
def test_bad_input(tmp_path, change, words):
    n = change.pop("n", N)
    with pytest.raises(pbad.OptionError, match=words):
        pbad.long_rollout(tmp_path, *job(n_steps=n), **({"every": EVERY} | change))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, thorough(20)])
def test_kill_minus_nine(tmp_path, kills):
    """At random moments, some of them while it writes: it goes on, loses a chunk at most, and ends with the bits."""
    code = f"""
import os, sys, time
sys.path = {sys.path!r}
import jax
jax.config.update("jax_enable_x64", {jax.config.read("jax_enable_x64")})
jax.config.update("jax_compilation_cache_dir", {jax.config.jax_compilation_cache_dir!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
from test_long_rollouts import job
import pbad_jax as pbad
from pbad_jax.storage import long_rollouts
write = long_rollouts.np.savez
def slowly(file, **arrays):  # half of it, a while, then the rest
    write(file, **arrays); n = file.tell(); file.truncate(n // 2); file.flush(); time.sleep(0.05)
    file.seek(0); write(file, **arrays)
long_rollouts.np.savez = slowly
print("ready", flush=True)
pbad.long_rollout({str(tmp_path / "run")!r}, *job(n_steps=1200), every=10)
"""
    rng, last = random.Random(0), 0
    for i in range(kills + 1):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        if i < kills:
            time.sleep(1.0 + 1.5 * rng.random())
            process.send_signal(signal.SIGKILL)
        code_of = process.wait()
        done = [int(p.name[16:25]) for p in (tmp_path / "run").glob("steps_*.npz")]
        assert max(done, default=0) >= last
        last = max(done, default=0)
    assert code_of == 0 and last == 1200
    assert_same(
        pbad.long_rollout(tmp_path / "run", *job(n_steps=1200), every=10), pbad.rollout_batch(*job(n_steps=1200))
    )
