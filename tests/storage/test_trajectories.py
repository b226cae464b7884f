"""Trajectories on disk: what goes in comes out, and nothing else is let in."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import tracemalloc
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax.dynamics.energy import CHUNK, energies_along

pytestmark = pytest.mark.float64

N_STEPS = 6


@pytest.fixture(scope="module")
def rolled():
    model = pbad.chain(2)
    state = pbad.make_state(model, q=[1.0, 0.2, 0.1, 0.0])
    traj, info = pbad.rollout(model, state, n_steps=N_STEPS, options=pbad.Options(dt=0.02))
    return model, traj, info


@pytest.fixture
def saved(rolled, tmp_path):
    path = tmp_path / "t.npz"
    pbad.save_trajectory(path, *rolled)
    return path


def test_round_trip(rolled, saved):
    model, traj, info = rolled
    back = pbad.load_trajectory(saved)
    for name in ("time", "q", "v"):
        np.testing.assert_array_equal(getattr(back, name), getattr(traj, name))
    for name in ("status", "iterations", "residual"):
        np.testing.assert_array_equal(getattr(back, name), getattr(info, name))
    for k in range(N_STEPS):
        poses = pbad.forward_kinematics(model, traj.q[k])
        state = pbad.make_state(model, traj.q[k], traj.v[k])
        energy = pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)
        close: Any = {"rtol": 100 * jnp.finfo(model.dtype).eps, "atol": 100 * jnp.finfo(model.dtype).eps}
        np.testing.assert_allclose(back.xpos[k], poses.position, **close)
        np.testing.assert_allclose(back.xmat[k], poses.rotation, **close)
        np.testing.assert_allclose(back.energy[k], energy, **close)


@pytest.mark.parametrize("count", [0, 1, N_STEPS, CHUNK + 1])
def test_energies_along_are_those_of_every_state(rolled, count):
    model, traj, _ = rolled
    path = [np.resize(x, (count, *x.shape[1:])) for x in (traj.time, traj.q, traj.v)]
    kinetic, potential = energies_along(model, *path)
    assert kinetic.shape == potential.shape == (count,)
    for k in {0, count // 2, count - 1} if count else ():
        state = pbad.make_state(model, path[1][k], path[2][k])
        close: Any = {"rtol": 100 * jnp.finfo(model.dtype).eps}
        np.testing.assert_allclose(kinetic[k], pbad.kinetic_energy(model, state), **close)
        np.testing.assert_allclose(potential[k], pbad.potential_energy(model, state), **close)


def test_keys_and_metadata(rolled, saved):
    model = rolled[0]
    with np.load(saved, allow_pickle=False) as file:
        assert set(file.files) == {
            "time", "q", "v", "xpos", "xmat", "energy", "status", "iterations", "residual", "metadata",
            "rest_time", "rest_time_rest", "rest_status", "rest_history", "rest_has_history", "rest_history_span",
        }  # fmt: skip
        metadata = json.loads(str(file["metadata"]))
    assert metadata["model"] == "chain:2"
    assert metadata["fingerprint"] == model.fingerprint
    assert metadata["body_names"] == ["link0", "link1"]
    assert metadata["joint_names"] == ["joint0", "joint1"]
    assert metadata["dtype"] == jnp.dtype(model.dtype).name
    assert metadata["version"] == pbad.__version__
    assert metadata["dt"] == pytest.approx(0.02, rel=1e-5)


def test_files_of_format_version_1(rolled, saved):
    """Without what a State has besides q, v and time: its states are new ones."""
    model, traj, _ = rolled
    with np.load(saved) as file:
        arrays = {k: x for k, x in file.items() if not k.startswith("rest_")}
    about = json.loads(str(arrays.pop("metadata"))) | {"format_version": 1}
    np.savez(saved, **arrays, metadata=np.array(json.dumps(about)))
    back = pbad.load_trajectory(saved)
    assert back.rest is None and back.activation is None
    states = pbad.states_of(model, back)
    np.testing.assert_array_equal(states.v, traj.v)
    assert not states.has_history.any()


def test_batch(rolled, tmp_path):
    model, traj, info = rolled
    twice = jax.tree.map(lambda x: jnp.stack([x, x]), (traj, info))
    pbad.save_trajectory(tmp_path / "b.npz", model, *twice)
    back = pbad.load_trajectory(tmp_path / "b.npz")
    assert back.q.shape == (2, N_STEPS, model.nq)
    assert back.xmat.shape == (2, N_STEPS, 2, 3, 3)
    np.testing.assert_array_equal(back.energy[0], back.energy[1])


def test_no_steps(rolled, tmp_path):
    model, traj, info = rolled
    none = jax.tree.map(lambda x: x[:0], (traj, info))
    pbad.save_trajectory(tmp_path / "n.npz", model, *none)
    back = pbad.load_trajectory(tmp_path / "n.npz")
    assert back.xpos.shape == (0, 2, 3)
    assert back.metadata["dt"] is None


def test_uneven_times_have_no_dt(rolled, tmp_path):
    model, traj, info = rolled
    uneven = traj._replace(time=traj.time**2)
    pbad.save_trajectory(tmp_path / "u.npz", model, uneven, info)
    assert pbad.load_trajectory(tmp_path / "u.npz").metadata["dt"] is None


def test_exactly_this_path_and_nothing_beside_it(rolled, tmp_path):
    pbad.save_trajectory(tmp_path / "no_suffix", *rolled)
    assert os.listdir(tmp_path) == ["no_suffix"]


def test_failed_write_keeps_the_old_file(rolled, saved, monkeypatch):
    before = saved.read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        pbad.save_trajectory(saved, *rolled)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, i: (t._replace(q=t.q[:, :3]), i), r"traj\.q has shape \(6, 3\).*\(T, 4\)"),
        (lambda t, i: (t._replace(v=t.v[1:]), i), r"traj\.v has shape \(5, 4\); wanted \(6, 4\)"),
        (
            lambda t, i: (t._replace(rest=t.rest | {"history": t.rest["history"][:2]}), i),
            r"traj\.rest_history has shape \(2, 4\); wanted \(6, 4\)",
        ),
        (
            lambda t, i: (t, dataclasses.replace(i, status=i.status[:2])),
            r"info\.status has shape \(2,\); wanted \(6,\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(rolled, tmp_path, change, message):
    model, traj, info = rolled
    with pytest.raises(pbad.StateError, match=message):
        pbad.save_trajectory(tmp_path / "x.npz", model, *change(traj, info))
    assert not os.listdir(tmp_path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.npz"):
        pbad.load_trajectory(tmp_path / "nowhere.npz")


def test_every_truncation_is_refused(saved):
    whole = saved.read_bytes()
    for size in [0, 1, 4, 100, len(whole) // 2, len(whole) - 1]:
        saved.write_bytes(whole[:size])
        with pytest.raises(OSError, match=r"t\.npz"):
            pbad.load_trajectory(saved)


def test_flipped_bit_is_refused(rolled, saved):
    whole = bytearray(saved.read_bytes())
    whole[whole.index(np.asarray(rolled[1].q).tobytes())] ^= 1
    saved.write_bytes(bytes(whole))
    with pytest.raises(OSError, match=r"t\.npz"):
        pbad.load_trajectory(saved)


def test_foreign_files_are_refused(saved):
    with np.load(saved) as file:
        arrays = dict(file)
    np.savez(saved, q=arrays["q"])
    with pytest.raises(OSError, match="an npz without time, v"):
        pbad.load_trajectory(saved)
    with open(saved, "wb") as file:
        np.save(file, arrays["q"])
    with pytest.raises(OSError, match="one array"):
        pbad.load_trajectory(saved)
    saved.write_text("time,q\n")
    with pytest.raises(OSError, match="not an npz"):
        pbad.load_trajectory(saved)
    with zipfile.ZipFile(saved, "w") as file:
        file.writestr("readme.txt", "hello")
    with pytest.raises(OSError, match="an npz without"):
        pbad.load_trajectory(saved)


class Bomb:
    """A pickle that leaves a trace when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickles_are_never_executed(saved, tmp_path):
    trace = str(tmp_path / "executed")
    with np.load(saved) as file:
        arrays = dict(file)
    arrays["energy"] = np.array([Bomb(trace)] * N_STEPS, dtype=object)
    np.savez(saved, **arrays)
    with pytest.raises(OSError, match="pickled"):
        pbad.load_trajectory(saved)
    arrays["energy"] = np.zeros(N_STEPS)
    arrays["metadata"] = np.array(Bomb(trace), dtype=object)
    np.savez(saved, **arrays)
    with pytest.raises(OSError, match="pickled"):
        pbad.load_trajectory(saved)
    assert not os.path.exists(trace)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("xmat", np.zeros((N_STEPS, 2, 9)), r"xmat .* wanted numbers of shape \(6, any, 3, 3\)"),
        ("v", np.zeros((3, 4)), r"v is float64 of shape \(3, 4\)"),
        ("energy", np.array(["a"] * N_STEPS), r"energy is <U1"),
        ("rest_history", np.zeros((N_STEPS, 3)), r"rest_history .* wanted numbers of shape \(6, 4\)"),
        ("rest_has_history", np.zeros(N_STEPS), r"rest_has_history is float64"),
        ("activation", np.zeros(N_STEPS), r"activation .* wanted numbers of shape \(6, any\)"),
        ("metadata", np.array("{"), "its metadata is"),
        ("metadata", np.array('{"format": "other", "format_version": 1}'), "'other'"),
        ("metadata", np.array('{"format": "pbad_jax trajectory", "format_version": 99}'), "version 99.*Update"),
    ],
)
def test_inconsistent_content_is_refused(saved, key, value, message):
    with np.load(saved) as file:
        arrays = dict(file) | {key: value}
    np.savez(saved, **arrays)
    with pytest.raises(OSError, match=message):
        pbad.load_trajectory(saved)


def header(text: str) -> bytes:
    """A file of one array that has this header."""
    data = text.encode()
    return b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data


@pytest.mark.parametrize(
    "content",
    [
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (400000000,), }"),  # far more than there is
        header("(" * 9000),  # RecursionError or MemoryError of Python's parser
        header("{'descr': '<f8', \n 'shape"),  # tokenize.TokenError
        header("{'descr': (), 'fortran_order': False, 'shape': (1,), }"),  # IndexError
    ],
    ids=["huge", "deep", "cut", "type"],
)
def test_headers_that_lie(saved, content):
    with zipfile.ZipFile(saved) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(saved, "w") as file:
        for name, data in (members | {"energy.npy": content}).items():
            file.writestr(name, data)
    with pytest.raises(OSError, match=r"t\.npz.*cannot be read as a trajectory"):
        pbad.load_trajectory(saved)


def test_a_bomb_is_refused_before_it_is_unpacked(saved):
    with np.load(saved) as file:
        arrays = dict(file)
    np.savez_compressed(saved, **(arrays | {"energy": np.zeros(30_000_000)}))
    assert saved.stat().st_size < 1e6
    tracemalloc.start()
    with pytest.raises(OSError, match="bytes hold arrays of 240"):
        pbad.load_trajectory(saved)
    assert tracemalloc.get_traced_memory()[1] < 1e7
    tracemalloc.stop()


@pytest.mark.parametrize("metadata", ["[" * 100_000, "[]", "1", '{"format": 1, "format_version": 1e999}'])
def test_metadata_that_is_none(saved, metadata):
    with np.load(saved) as file:
        arrays = dict(file) | {"metadata": np.array(metadata)}
    np.savez(saved, **arrays)
    with pytest.raises(OSError, match=r"t\.npz.*its metadata is"):
        pbad.load_trajectory(saved)


def test_names_that_are_too_long(tmp_path):
    with pytest.raises(OSError, match="cannot be opened: File name too long"):
        pbad.load_trajectory(tmp_path / ("x" * 300))


def test_what_a_killed_process_left_is_removed(rolled, tmp_path):
    """And nothing else: not what a living one is writing, nor what another machine is."""
    code = f"""
import os, signal
from pbad_jax.storage.files import written_whole
with written_whole({str(tmp_path / "t.npz")!r}) as file:
    file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    (left,) = tmp_path.iterdir()
    alive = tmp_path / f".pbad-{socket.gethostname()}-{os.getppid()}-abc.part"
    elsewhere = tmp_path / left.name.replace(socket.gethostname(), "elsewhere")
    alive.touch()
    elsewhere.touch()
    pbad.save_trajectory(tmp_path / "t.npz", *rolled)
    assert {p.name for p in tmp_path.iterdir()} == {"t.npz", alive.name, elsewhere.name}
