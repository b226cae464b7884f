"""Rollouts that outlive their process: a batch in chunks of steps, each written when it is done.

A folder holds one npz a chunk, `steps_000000100_000000200.npz`:

| key          | shape                |                                                            |
|--------------|----------------------|------------------------------------------------------------|
| q, v, time   | (lanes, T, ...)      | as in Trajectory, activation too where it has one          |
| rest_NAME    | (lanes, T, ...)      | the arrays of Trajectory.rest                              |
| info_NAME    | (lanes, T, ...)      | the arrays of StepInfo                                     |
| end_NAME     | (lanes, ...)         | the State after the last step: what the next chunk needs   |
| metadata     | ()                   | JSON text: format, job, first, last, sha256 of the arrays  |

`job` is a hash of all that the numbers depend on, see storage/job_key.py. A
file appears whole or not at all; nothing in it is executed when it is read.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import CheckpointError, OptionError
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts import batch
from pbad_jax.rollouts.inputs import one_lane
from pbad_jax.rollouts.progress import report_progress
from pbad_jax.rollouts.trajectory import Trajectory, as_arrays, clock, from_arrays, row_of, trajectory_of
from pbad_jax.step.info import StepInfo, names
from pbad_jax.step.options import Options, looks_back
from pbad_jax.step.step import make_step
from pbad_jax.storage.files import read_npz, written_whole
from pbad_jax.storage.job_key import job_key

FORMAT = "pbad_jax long rollout"
FORMAT_VERSION = 2
NAME = re.compile(r"steps_(\d{9})_(\d{9})\.npz")


def long_rollout(
    folder: str | os.PathLike,
    model: Model,
    states: State,
    controls: Any = None,
    n_steps: int | None = None,
    options: Options | None = None,
    *,
    every: int,
    tile: int | None = None,
    schedule: str = "iteration",
    damaged: str = "raise",
    progress: bool | None = None,
) -> tuple[Trajectory, StepInfo]:
    """`rollout_batch` in chunks of `every` steps that are written to `folder`; the same call again goes on from there.

    Killed at any moment, also while it writes, it loses the chunk under way and no more, and ends with the same bits as
    if it had not been. A larger `n_steps` continues a job that is done.

    Args:
        folder: made where there is none; one job a folder.
        model, states, controls, n_steps, options, tile, schedule: as in rollout_batch. All of them but n_steps are what
            the job is, static fields and the code of policies too; see storage/job_key.py for what is not seen.
        every: steps of a chunk.
        damaged: what to do about a chunk that cannot be read: "raise", or "redo" it and what follows it.
        progress: a progress bar on stderr with steps of lanes a second; default None draws one on a terminal, when the
            job takes longer than two seconds.

    Returns:
        Trajectory and StepInfo of all steps, (lanes, T, ...), numpy arrays.

    Raises:
        CheckpointError: a file of `folder` is damaged, of another job or of another format; or something in the
            arguments cannot be told from another of its kind (a policy that holds a file, a lock).
        StateError, OptionError: as rollout_batch. Where a chunk cannot be written (a full disk) there is a warning, and
            it is tried again with the next one.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first = jax.vmap(lambda v: pbad.make_state(arm, v=v))(jnp.eye(2))
        ...     traj, info = pbad.long_rollout(folder, arm, first, n_steps=4, options=options, every=2)
        >>> traj.q.shape
        (2, 4, 2)
    """
    # all that could be wrong with the arguments is told before anything is written
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise OptionError(f"every is {every!r}; it must be an integer ≥ 1, the steps of a chunk")
    if damaged not in ("raise", "redo"):
        raise OptionError(f'damaged is {damaged!r}; it must be "raise" or "redo"')
    controls, n_steps = batch.checked(model, states, controls, n_steps, options)
    assert options is not None  # checked
    if n_steps < 1:
        raise OptionError(f"n_steps is {n_steps}; it must be ≥ 1 where something is to be written")

    # a place to write
    folder = pathlib.Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"{str(folder)!r} cannot be made ({error.strerror}); take another folder") from None

    # go on from the chunks of this job that are there, if any, and the state at their end
    job = job_key(model=model, states=states, controls=controls, options=options, tile=tile, schedule=schedule)
    chunks = _chunks_so_far(folder, job, n_steps, damaged, functools.partial(_one_step, model, states, options))
    done, unwritten, began, before = _length(chunks), [], time.monotonic(), _length(chunks)
    at = states if not chunks else _state_of(chunks[-1], model)

    # a chunk: so many steps of all lanes, written with what could not be written before
    while done < n_steps:
        last = min(done + every, n_steps)
        rows = batch.steps_of(controls, done, last)
        out = batch.run(model, at, rows, last - done, options, None, tile, schedule)
        chunk, at = _arrays(out, states, options.dt, done, last), out.ends
        unwritten.append((folder / f"steps_{done:09d}_{last:09d}.npz", chunk, done, last))
        unwritten = _write(unwritten, job)
        chunks.append(chunk)
        done = last
        if report_progress.wanted(progress):
            speed = (done - before) * states.q.shape[0] / (time.monotonic() - began)
            report_progress.show(done, n_steps, began, f"{speed:.3g} steps of lanes/s")
    return _joined(chunks, model, n_steps)


def _arrays(out: batch.Batch, begun: State, dt, first: int, last: int) -> dict[str, np.ndarray]:
    """Of the steps from `first` to before `last` of a job that has begun at these states."""
    made = out.trajectory
    fields = as_arrays(made._replace(time=clock(begun, dt, made.rest or {}, first, last)))
    fields |= {f"info_{k}": x for k, x in _fields(out.info).items()}
    fields |= {f"end_{k}": x for k, x in _fields(out.ends).items()}
    return {k: np.asarray(x) for k, x in fields.items()}


def _one_step(model: Model, states: State, options: Options) -> dict[str, jax.ShapeDtypeStruct]:
    """What the arrays of a chunk are, for one step of every lane: (lanes, ...), nothing is computed."""
    step, model = make_step(options), one_lane(model)

    def one(state):
        after, info = step(model, state)
        row, status = jax.tree.map(lambda x: x[None], (row_of(after, looks_back(options)), info.status))
        traj = trajectory_of(state, options.dt, row, status, 0, 1)
        return after, info, jax.tree.map(lambda x: x[0], traj)

    ends, info, traj = jax.eval_shape(jax.vmap(one), states)
    fields = as_arrays(traj)
    fields |= {f"info_{k}": x for k, x in _fields(info).items()}
    return fields | {f"end_{k}": x for k, x in _fields(ends).items()}


def _shapes(step: dict[str, jax.ShapeDtypeStruct], n: int) -> dict[str, tuple]:
    """The same of n steps: shapes and dtypes."""
    lengths = {k: () if k.startswith("end_") else (n,) for k in step}
    return {k: ((*x.shape[:1], *lengths[k], *x.shape[1:]), x.dtype) for k, x in step.items()}


def _fields(x: Any) -> dict[str, Any]:
    """The arrays of a dataclass by name."""
    values = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    return {k: v for k, v in values.items() if v is not None and not isinstance(v, str | tuple)}


def _state_of(chunk: dict[str, np.ndarray], model: Model) -> State:
    ends: dict[str, Any] = {k.removeprefix("end_"): jnp.asarray(x) for k, x in chunk.items() if k.startswith("end_")}
    return State(**ends, fingerprint=model.fingerprint)


def _length(chunks: list[dict[str, np.ndarray]]) -> int:
    return sum(c["q"].shape[1] for c in chunks)


def _joined(chunks: list[dict], model: Model, n_steps: int) -> tuple[Trajectory, StepInfo]:
    keys = [k for k in chunks[0] if not k.startswith("end_")]
    whole: dict[str, Any] = {k: np.concatenate([c[k] for c in chunks], axis=1)[:, :n_steps] for k in keys}
    fields: dict[str, Any] = {k.removeprefix("info_"): whole.pop(k) for k in list(whole) if k.startswith("info_")}
    fields |= names(model)
    return from_arrays(whole), StepInfo(**fields)


# --- files -----------------------------------------------------------------------------------------------


def _write(waiting: list[tuple], job: str) -> list[tuple]:
    """Write the chunks that wait, in order; those that could not be written."""
    for i, (path, chunk, first, last) in enumerate(waiting):
        about = {"format": FORMAT, "format_version": FORMAT_VERSION, "job": job, "first": first, "last": last}
        about["sha256"] = _digest(chunk)
        try:
            with written_whole(path) as file:
                np.savez(file, **chunk, metadata=np.array(json.dumps(about)))
        except OSError as error:
            warnings.warn(
                f"{str(path)!r} could not be written ({error}); the job goes on and tries again", stacklevel=3
            )
            return waiting[i:]
    return []


def _digest(chunk: dict[str, np.ndarray]) -> str:
    h = hashlib.sha256()
    for key in sorted(chunk):
        x = np.ascontiguousarray(chunk[key])
        h.update(f"{key} {x.dtype} {x.shape}".encode())
        h.update(x.tobytes())
    return h.hexdigest()


class _Foreign(CheckpointError):
    """A sound file of another job or a newer pbad_jax: never to be written over."""


def _chunks_so_far(
    folder: pathlib.Path, job: str, n_steps: int, damaged: str, step: Callable[[], dict]
) -> list[dict[str, np.ndarray]]:
    """The chunks of this job from the first step on, without a gap, until one that is missing or to be redone."""
    # the files by the step that they begin with
    found = {}
    for path in folder.iterdir():
        match = NAME.fullmatch(path.name)
        if match:
            found[int(match[1])] = path

    # each must begin where the last one ends; a damaged one ends the chain, or is an error
    chunks, done, wanted = [], 0, step() if found else {}
    while done in found and done < n_steps:
        try:
            chunk, last = _read(found[done], job, done, wanted)
        except CheckpointError as error:
            if damaged == "raise" or isinstance(error, _Foreign):
                raise
            warnings.warn(f"{error}; it is made again", stacklevel=3)
            break
        chunks.append(chunk)
        done = last
    return chunks


class _About(NamedTuple):
    """The metadata of a chunk."""

    format: str
    version: int
    job: str
    first: int
    last: int
    sha256: str


def _read(path: pathlib.Path, job: str, first: int, step: dict) -> tuple[dict[str, np.ndarray], int]:
    """The arrays of a chunk and the step that it ends with. `step`: see `_one_step`."""
    # the arrays, and what the file says of them
    remedy = 'remove it, or pass damaged="redo"'
    try:
        chunk = read_npz(path, "a chunk of a long rollout")
        about = _about(chunk.pop("metadata"))
    except Exception as error:  # OSErrors of the reader, and whatever json makes of a stranger's text
        raise CheckpointError(
            f"{str(path)!r} cannot be read ({type(error).__name__}: {error!s:.400}): {remedy}"
        ) from None

    # of another program, another version or another job: kept as it is, whatever `damaged` says
    if about.format != FORMAT or about.version > FORMAT_VERSION:
        raise _Foreign(
            f"{str(path)!r} is {about.format!r:.60}, format version {about.version}; this pbad_jax reads {FORMAT!r} up "
            f"to version {FORMAT_VERSION}: update pbad_jax, or take another folder"
        )
    if about.version < FORMAT_VERSION:
        raise _Foreign(
            f"{str(path)!r} has format version {about.version}, whose key does not say all that numbers depend on, so "
            f"that it may be of another job; this pbad_jax writes version {FORMAT_VERSION}: take another folder"
        )
    if about.job != job:
        raise _Foreign(
            f"{str(path)!r} is of another job: the model, forces, options, tile, schedule, first states or controls "
            "differ; take another folder, or the arguments of the first call"
        )

    # damaged: other bytes than were written
    if about.sha256 != _digest(chunk):
        raise CheckpointError(f"{str(path)!r}: its arrays do not match its checksum: {remedy}")

    # sound, but not those steps of these lanes
    n = about.last - about.first
    found = {k: (x.shape, x.dtype) for k, x in chunk.items()}
    if about.first != first or n < 1 or found != _shapes(step, n):
        raise CheckpointError(
            f"{str(path)!r}: steps {about.first} to {about.last} and its arrays are not those of a chunk from step "
            f"{first} on: {remedy}"
        )
    return chunk, about.last


def _about(text: np.ndarray) -> _About:
    x = json.loads(str(text[()]))
    version, first, last = (int(x[k]) for k in ("format_version", "first", "last"))
    return _About(str(x["format"]), version, str(x["job"]), first, last, str(x["sha256"]))
