"""`pbad-jax simulate MODEL` and `pbad-jax info MODEL`.

Exit code 0; 1 if a step failed; 2 for a wrong call or file, with one line on stderr. Everything is checked before
anything is simulated, and nothing is written unless --out, --html or --plot asks for it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

import jax

from pbad_jax.cli import info, simulate
from pbad_jax.cli.arguments import CallError, parse
from pbad_jax.errors import ModelError, OptionError, StateError

COMMANDS = {"simulate": simulate.run, "info": info.run}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's) and return its exit code."""
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        with _precision(args.float32):
            return COMMANDS[args.command](args)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\npbad-jax: interrupted", file=sys.stderr)
        return 130
    except (CallError, ModelError, OptionError, StateError, OSError, ImportError) as error:
        print(f"pbad-jax: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


@contextlib.contextmanager
def _precision(float32: bool) -> Iterator[None]:
    """Double precision for one command; models in single precision need no change of JAX's setting."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", before or not float32)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
