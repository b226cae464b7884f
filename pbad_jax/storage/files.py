"""Files that appear whole or not at all, and npz files of strangers: no pickles, and no more memory than bytes."""

import contextlib
import math
import os
import pathlib
import re
import socket
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

_PART = re.compile(r"\.pbad-(.+)-(\d+)-\w+\.part")  # of which machine and process


@contextlib.contextmanager
def written_whole(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """A file that replaces `path` when the block ends well, and leaves no trace when it does not.

    What a process that was killed has left in the folder is removed by the next one that writes there.
    """
    # beside the file itself, to be renamed in one go; named by process, so that orphans are found
    path = pathlib.Path(path)
    _remove_orphans(path.parent)
    with tempfile.NamedTemporaryFile(
        mode,
        dir=path.parent,
        prefix=f".pbad-{socket.gethostname()}-{os.getpid()}-",
        suffix=".part",
        delete=False,
        encoding=None if "b" in mode else "utf-8",
    ) as file:
        try:
            # the bytes are on the disk before the name is: whoever looks finds the old file or the new one
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, _mode_of(path))
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _remove_orphans(folder: pathlib.Path) -> None:
    """Unfinished files of processes of this machine that are no more."""
    if os.name != "posix":  # elsewhere a process cannot be asked for without harm
        return
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            found = _PART.fullmatch(file.name)
            if found and found[1] == socket.gethostname() and not _is_running(int(found[2])):
                file.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _mode_of(path: pathlib.Path) -> int:
    """Permissions of the file that is replaced, or those that the umask gives a new one."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def read_npz(
    path: pathlib.Path, what: str, names: Sequence[str] = (), also: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Arrays of an npz of strangers: those of `names`, all where there are none.

    Args:
        path: of the file. what: it should be, for messages. names: of the arrays that are wanted. also: of those that
            are read where they are there.

    Raises:
        OSError: says what is wrong with the file.
    """
    try:
        # one array, too few arrays, or more numbers than bytes: told before any array is read
        with open(path, "rb") as raw:
            if raw.read(6) == b"\x93NUMPY":
                raise OSError(f"{str(path)!r} is one array (npy), not {what} (npz): use numpy.load for it")
            held = _check_sizes(raw)
            missing = [k for k in names if k not in held]
            if missing:
                raise OSError(
                    f"{str(path)!r} is an npz without {', '.join(missing)}, so not {what}; it holds "
                    f"{', '.join(map(repr, held[:8])) or 'nothing'}"
                )
            # only what is wanted is read, and no pickles, which could run anything
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                wanted = [*names, *(k for k in also if k in held)] if names else file.files
                return {k: file[k] for k in wanted}
    except OSError as error:
        # messages of our own, without errno, pass as they are; the system's get the path
        if error.errno is None or isinstance(error, FileNotFoundError):
            raise
        raise OSError(error.errno, f"{str(path)!r} cannot be opened: {error.strerror}") from None
    except Exception as error:  # whatever zipfile, zlib, numpy and the parser of its headers make of a foreign file
        raise OSError(
            f"{str(path)!r} cannot be read as {what}: it is cut short, pickled, or not an npz "
            f"({type(error).__name__}: {str(error).split('.')[0]:.200})"
        ) from None


def _check_sizes(raw: IO[bytes]) -> list[str]:
    """The names of the arrays of an npz, none of which takes more memory than the file has bytes for it.

    Raises:
        ValueError: one does. And whatever a damaged file makes zipfile and numpy raise.
    """
    size, names = raw.seek(0, os.SEEK_END), []
    with zipfile.ZipFile(raw) as archive:
        members = archive.infolist()
        unpacked = sum(m.file_size for m in members)
        if unpacked > size:
            raise ValueError(f"{size} bytes hold arrays of {unpacked}: write it with numpy.savez, not compressed")
        for member in members:
            names.append(member.filename.removesuffix(".npy"))
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    _check_header(file, member.file_size)
    return names


def _check_header(file: IO[bytes], size: int) -> None:
    """The array that a member announces fits into its bytes."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"an array announces the shape {shape!r:.60}, but has {size} bytes")
