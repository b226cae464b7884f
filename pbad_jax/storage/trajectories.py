"""Trajectories on disk: one npz of plain arrays and a JSON line, never a pickle.

| key        | shape             |                                         |
|------------|-------------------|-----------------------------------------|
| time       | (T,)              | s                                       |
| q, v       | (T,nq), (T,nv)    | in the model's layout                   |
| xpos, xmat | (T,nbody,3[,3])   | body frames in the world, m             |
| energy     | (T,)              | kinetic + potential, J                  |
| status     | (T,)              | int8, `Status`                          |
| iterations | (T,)              | int32                                   |
| residual   | (T,)              | as in `StepInfo`                        |
| activation | (T,na)            | where actuators have one                |
| rest_NAME  | (T,...)           | `Trajectory.rest`                       |
| metadata   | ()                | JSON text                               |

A batch of lanes puts its axis before T everywhere. Files of format version 1 have neither activation nor rest.
"""

import dataclasses
import json
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.dynamics.energy import energies_along
from pbad_jax.errors import StateError
from pbad_jax.kinematics.transforms import forward_kinematics
from pbad_jax.model.model import Model
from pbad_jax.rollouts.states import check_trajectory
from pbad_jax.rollouts.trajectory import REST, Trajectory, as_arrays, from_arrays
from pbad_jax.step.info import StepInfo
from pbad_jax.storage.files import read_npz, written_whole
from pbad_jax.version import __version__

FORMAT = "pbad_jax trajectory"
FORMAT_VERSION = 2
CHUNK = 1024  # configurations whose poses are computed at once

# key -> axes after (T,); None is any length
TRAILING: dict[str, tuple[int | None, ...]] = {
    "time": (),
    "q": (None,),
    "v": (None,),
    "xpos": (None, 3),
    "xmat": (None, 3, 3),
    "energy": (),
    "status": (),
    "iterations": (),
    "residual": (),
}
ALSO: dict[str, tuple[int | None, ...]] = {  # where they are there
    "activation": (None,),
    **{f"rest_{name}": () for name in REST},
    "rest_history": (None,),
}


@dataclasses.dataclass(frozen=True, eq=False)
class SavedTrajectory:
    """What `load_trajectory` returns: the arrays of the table above (numpy), and the metadata as a dictionary.

    `activation` and `rest` are those of the Trajectory, so that `states_of` takes this too; None where it had none.
    `metadata` holds model, fingerprint, body_names, joint_names, dtype, version, and dt (s; None where the time
    steps differ).
    """

    time: np.ndarray
    q: np.ndarray
    v: np.ndarray
    xpos: np.ndarray
    xmat: np.ndarray
    energy: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    residual: np.ndarray
    metadata: dict[str, Any]
    activation: np.ndarray | None = None
    rest: dict[str, np.ndarray] | None = None


def save_trajectory(path: str | os.PathLike, model: Model, traj: Trajectory, info: StepInfo) -> None:
    """Write a rollout with its body poses and energies.

    The file appears whole or not at all, and exactly at `path`: no suffix is added.

    Args:
        path: where to write; an existing file is replaced.
        model: the model that was rolled out.
        traj, info: from `rollout`, (T, ...); or a batch of them, (B, T, ...).

    Raises:
        StateError: the trajectory does not fit the model, or `info` does not fit the trajectory.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pbad.save_trajectory(pathlib.Path(folder, "arm.npz"), arm, traj, info)
        ...     sorted(np.load(pathlib.Path(folder, "arm.npz")))[:3]
        ['energy', 'iterations', 'metadata']
    """
    # trajectory and info are of this model and of one another
    check_trajectory(model, traj, "traj")
    q, v, time = (np.asarray(x) for x in (traj.q, traj.v, traj.time))
    more = {k: np.asarray(x) for k, x in as_arrays(traj).items() if k in ALSO}
    _check_fits(model, q, v, time, info, more)

    # energies and body poses of every state, lanes and steps in a row
    lead = q.shape[:-1]
    flat = (time.reshape(-1), q.reshape(-1, model.nq), v.reshape(-1, model.nv))
    kinetic, potential = energies_along(model, *flat)
    position, rotation = _poses(model, jnp.asarray(flat[1], model.dtype))

    # one table of arrays, shaped as the trajectory is
    arrays = {
        "time": time,
        "q": q,
        "v": v,
        "xpos": np.asarray(position).reshape(*lead, model.n_bodies, 3),
        "xmat": np.asarray(rotation).reshape(*lead, model.n_bodies, 3, 3),
        "energy": np.asarray(kinetic + potential).reshape(lead),
        "status": np.asarray(info.status, np.int8),
        "iterations": np.asarray(info.iterations, np.int32),
        "residual": np.asarray(info.residual),
        **more,
        "metadata": np.array(json.dumps(_metadata(model, time))),
    }
    with written_whole(path) as file:
        np.savez(file, **arrays)


def load_trajectory(path: str | os.PathLike) -> SavedTrajectory:
    """Read what `save_trajectory` wrote. Nothing in the file is executed.

    Raises:
        FileNotFoundError: no such file.
        OSError: the file is cut short, pickled, compressed to less than it unpacks to, or something else than a
            trajectory; the message says what.

    Example:
        >>> import tempfile, pathlib
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pbad.save_trajectory(pathlib.Path(folder, "arm.npz"), arm, traj, info)
        ...     saved = pbad.load_trajectory(pathlib.Path(folder, "arm.npz"))
        >>> saved.xpos.shape
        (2, 2, 3)
        >>> saved.metadata["body_names"]
        ['link0', 'link1']
    """
    path = pathlib.Path(path)
    try:
        arrays = read_npz(path, "a trajectory", (*TRAILING, "metadata"), tuple(ALSO))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no trajectory file {str(path)!r}") from None
    metadata = _parse_metadata(path, arrays.pop("metadata"))
    for key, x in arrays.items():
        _check_shape(path, key, x, arrays["time"].shape, arrays["q"].shape)
    traj, own = from_arrays(arrays), {k: arrays[k] for k in TRAILING}
    return SavedTrajectory(**own, metadata=metadata, activation=traj.activation, rest=traj.rest)  # pyright: ignore


def _check_shape(path: pathlib.Path, key: str, x: np.ndarray, lead: tuple[int, ...], q: tuple[int, ...]) -> None:
    """Numbers of the shape that the tables say, `lead` before it; q: that of the configurations."""
    tail = (TRAILING | ALSO)[key]
    if key == "rest_history":
        tail = q[-1:]
    fits = len(x.shape) == len(lead) + len(tail) and x.shape[: len(lead)] == lead
    fits = fits and all(n in (None, s) for n, s in zip(tail, x.shape[len(lead) :]))
    kind = "b" if key == "rest_has_history" else "i" if key == "rest_status" else "fi"
    if x.dtype.kind not in kind or not fits:
        wanted = ", ".join(map(str, (*lead, *("any" if n is None else n for n in tail))))
        raise OSError(f"{str(path)!r}: {key} is {x.dtype} of shape {x.shape}; wanted numbers of shape ({wanted})")


@jax.jit
def _poses(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Body positions (T,nbody,3) m and rotations (T,nbody,3,3) of configurations (T,nq)."""

    def one(q):
        poses = forward_kinematics(model, q)
        return poses.position, poses.rotation

    return jax.lax.map(one, q, batch_size=min(CHUNK, max(1, len(q))))


def _check_fits(model: Model, q: np.ndarray, v: np.ndarray, time: np.ndarray, info: StepInfo, more: dict) -> None:
    """All arrays have the lanes, steps and sizes that q and the model say."""
    # q says whether there are lanes, and how many steps
    if q.ndim not in (2, 3) or q.shape[-1] != model.nq:
        raise StateError(
            f"traj.q has shape {q.shape}; model {model.topology.name!r} wants (T, {model.nq}), or (B, T, {model.nq}) "
            "for a batch of lanes"
        )

    # all else must have the same
    lead = q.shape[:-1]
    wanted = {"traj.v": (v, (*lead, model.nv)), "traj.time": (time, lead)}
    wanted |= {f"info.{k}": (np.asarray(getattr(info, k)), lead) for k in ("status", "iterations", "residual")}
    sizes = {"activation": (model.na,), "rest_history": (model.nq,)}
    wanted |= {f"traj.{k}": (x, (*lead, *sizes.get(k, ()))) for k, x in more.items()}
    for name, (x, shape) in wanted.items():
        if x.shape != shape:
            raise StateError(
                f"{name} has shape {x.shape}; wanted {shape} beside traj.q of shape {q.shape}. "
                "Pass traj and info of the same rollout."
            )


def _metadata(model: Model, time: np.ndarray) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "model": model.topology.name,
        "fingerprint": model.fingerprint,
        "body_names": list(model.body_names),
        "joint_names": [j.name for j in model.topology.joints],
        "dtype": jnp.dtype(model.dtype).name,
        "dt": _uniform_step(time),
    }


def _uniform_step(time: np.ndarray) -> float | None:
    """The step, s, where all are equal to what the dtype resolves; else None."""
    steps = np.diff(np.asarray(time, float), axis=-1)
    if not steps.size:
        return None
    slack = 4 * np.finfo(time.dtype).eps * np.abs(time).max()
    mean = steps.mean()
    return float(f"{mean:.12g}") if np.all(np.abs(steps - mean) <= slack) else None


def _parse_metadata(path: pathlib.Path, text: np.ndarray) -> dict[str, Any]:
    try:
        metadata = json.loads(str(text[()]))
        found = metadata["format"], int(metadata["format_version"])
    except Exception:  # whatever json and int make of a stranger's text
        raise OSError(f"{str(path)!r}: its metadata is {str(text)!r:.60}; wanted the JSON of save_trajectory") from None
    if found[0] != FORMAT or found[1] > FORMAT_VERSION:
        raise OSError(
            f"{str(path)!r} is {found[0]!r:.60}, format version {found[1]}; this pbad_jax reads {FORMAT!r} up to "
            f"version {FORMAT_VERSION}. Update pbad_jax, or write the file again."
        )
    return metadata
