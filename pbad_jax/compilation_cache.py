"""Compiled programs kept between processes, by JAX's persistent compilation cache."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import jax
from jax.experimental.compilation_cache import compilation_cache

FOLDER = "jax_compilation_cache_dir"
SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def default_folder() -> pathlib.Path:
    """`pbad_jax` in the user's cache folder: $XDG_CACHE_HOME, or ~/.cache."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "pbad_jax"


def use_compilation_cache(folder: str | os.PathLike | None = None) -> pathlib.Path:
    """Keep what JAX compiles from now on in a folder, and look there first: all programs of this process.

    A program that another process has compiled, with the same versions on the same kind of machine, then takes the time
    of tracing only. The library does this nowhere by itself; `pbad-jax simulate` does, unless told not to.

    Args:
        folder: made where it is missing; default `pbad_jax` in the user's cache folder. It grows; it may be deleted at
            any time.

    Returns:
        The folder.

    Raises:
        OSError: it cannot be made.

    Example:
        >>> pbad.use_compilation_cache("programs")  # doctest: +SKIP
    """
    path = default_folder() if folder is None else pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for name, value in SETTINGS.items():
        jax.config.update(name, value)
    jax.config.update(FOLDER, str(path))
    compilation_cache.reset_cache()  # or the folder of the first program that was compiled stays
    return path


@contextlib.contextmanager
def compilation_cache_in_use(folder: str | os.PathLike | None = None) -> Iterator[pathlib.Path]:
    """The same for a while; afterwards everything is as it was.

    Where JAX has been given a folder already, by its environment variable or its configuration, that one stays.
    """
    known = getattr(jax.config, FOLDER)
    if known:
        yield pathlib.Path(known)
        return
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    try:
        yield use_compilation_cache(folder)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        jax.config.update(FOLDER, None)
        compilation_cache.reset_cache()
