"""The command line: its parser, and the checks of what it asks for."""

import argparse
import difflib
import math
import os
import re
import tempfile
from collections.abc import Sequence

import jax.numpy as jnp

import pbad_jax as pbad
from pbad_jax.model.model import Model
from pbad_jax.schemes import NAMES
from pbad_jax.step.options import Options

NUMERIC_OPTIONS = ("--q0", "--v0", "--dt", "--time", "--tolerance", "--max-iterations")


class CallError(ValueError):
    """The command line asks for something that cannot be."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line.

    Raises:
        CallError: an unknown or a missing argument, no number where one is wanted.
    """
    parser = _parser()
    args, rest = parser.parse_known_args(_join_negative(argv))
    if rest:
        known = [x for x in _option_names(parser) if x.startswith("--")]
        near = difflib.get_close_matches(rest[0].split("=")[0], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"see: pbad-jax {args.command} --help"
        raise CallError(f"{rest[0]!r} is no argument of pbad-jax {args.command}; {hint}")
    return args


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise CallError(f"{message}. See: {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    """The commands of `pbad-jax` and their arguments."""
    # the program itself
    parser = _Parser(prog="pbad-jax", description="Simulate articulated bodies.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pbad_jax {pbad.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    # the model, for both commands
    model = _Parser(add_help=False)
    model.add_argument("model", metavar="MODEL", help="an MJCF or URDF file, or chain:N, swimmer, spider")
    model.add_argument("--floating-base", action="store_true", help="let the root of a file float")
    model.add_argument(
        "--unsupported", choices=("error", "warn"), default="error", help="features of a file that are not there yet"
    )
    model.add_argument(
        "--package-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder besides the file's own from which it may take meshes and includes; more than once for more",
    )
    model.add_argument("--no-body-contact", action="store_true", help="bodies of a file do not touch one another")
    model.add_argument("--float32", action="store_true", help="single precision instead of double")

    # simulate: how steps are made
    simulate = commands.add_parser(
        "simulate", parents=[model], allow_abbrev=False, help="roll a model out",
        description="Roll a model out under one control and sum up how it went.",
    )  # fmt: skip
    add = simulate.add_argument
    add("--dt", type=float, default=0.05, metavar="S", help="step, seconds (default 0.05)")
    add("--time", type=float, default=10.0, metavar="S", help="how long, seconds (default 10)")
    add("--scheme", default="radau2", metavar="NAME", help=f"one of {', '.join(NAMES)} (default radau2)")
    add("--tolerance", type=float, metavar="X", help="of a step, as a fraction of the model's size")
    add("--accuracy", type=float, metavar="X", help="make each step in as many parts as keep its error below, rad")
    add("--max-iterations", type=int, default=60, metavar="N", help="that a step may take (default 60)")
    add("--on-failure", default="substep", metavar="POLICY", help="freeze or substep (default): parts of a failed step")

    # where it starts, and what holds and carries it
    add("--q0", metavar="A,B,..|FILE.npy", help="where it starts; chain:N starts horizontal")
    add("--v0", metavar="A,B,..|FILE.npy", help="how fast it starts; default at rest, chain:N with a small swing")
    add(
        "--key",
        metavar="NAME",
        help="the keyframe of the file where it starts; default home, or the first, if there is one",
    )
    add("--hold", action="store_true", help="hold the pose: by the file's position servos, else by PD drives")
    add(
        "--ground",
        action=argparse.BooleanOptionalAction,
        help="a plane below the lowest point; by default below a URDF that floats and touches nothing else",
    )

    # what is kept and what is written
    add("--no-cache", action="store_true", help="do not keep compiled programs in the user's cache folder")
    add("--out", metavar="FILE.npz", help="write the trajectory")
    add("--html", metavar="FILE.html", help="write an animation")
    add("--video", metavar="FILE.gif", help="write a moving picture (.gif, .png, .mp4), drawn without a display")
    add("--plot", metavar="FILE.png", help="write a plot of the energy")

    # info: the model alone
    commands.add_parser(
        "info", parents=[model], allow_abbrev=False, help="describe a model", description="Describe a model."
    )
    return parser


def _option_names(parser: argparse.ArgumentParser) -> list[str]:
    names = []
    for action in parser._actions:
        names += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                names += _option_names(sub)
    return names


def _join_negative(argv: Sequence[str]) -> list[str]:
    """`--q0 -1,0` as `--q0=-1,0`: argparse would take the value for an option."""
    out: list[str] = []
    for x in argv:
        if out and out[-1] in NUMERIC_OPTIONS and re.match(r"-(\d|\.\d|inf|nan)", x, re.IGNORECASE):
            out[-1] += f"={x}"
        else:
            out.append(x)
    return out


def options_of(args: argparse.Namespace, model: Model) -> tuple[Options, int]:
    """Checked options and the number of steps.

    Raises:
        CallError: a time or step that is none, more steps than fit into memory. OptionError: other wrong options.
    """
    # a time and a step that make a number of steps
    if not (math.isfinite(args.time) and args.time >= 0):
        raise CallError(
            f"--time is {args.time}; it must be zero or a positive number of seconds, for example --time 10"
        )
    if not (math.isfinite(args.dt) and args.dt > 0):
        raise CallError(f"--dt is {args.dt}; it must be a positive number of seconds, for example --dt 0.05")

    # other rules are those of Options; the account of work is for the summary
    options = Options(
        args.dt,
        args.scheme,
        tolerance=args.tolerance,
        max_iterations=args.max_iterations,
        on_failure=args.on_failure,
        accuracy=args.accuracy,
        account=True,
    )

    # the whole trajectory is kept in memory, of which it may take a quarter
    steps = round(args.time / args.dt)
    need = steps * (model.nq + model.nv + 8) * jnp.dtype(model.dtype).itemsize
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33
    if need > have / 4 or steps >= 2**31:
        raise CallError(
            f"--time {args.time:g} over --dt {args.dt:g} is {steps:.3g} steps, which take {need / 2**30:.3g} GiB; "
            f"a quarter of this machine's memory is {have / 2**32:.3g} GiB. Shorten --time or enlarge --dt."
        )
    return options, steps


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written, before any work is done.

    Raises:
        CallError: a folder, an input, or no right to write. OptionError: no picture format. ImportError: no packages.
    """
    # each output has a file of its own, which is no input either
    inputs = {os.path.realpath(x) for x in (args.model, args.q0, args.v0) if x}
    for option in ("out", "html", "video", "plot"):
        path = getattr(args, option)
        if path is None:
            continue
        place = os.path.realpath(path)
        if os.path.isdir(path) or not os.path.basename(path):
            raise CallError(f"--{option} {path!r} is a folder; name a file in it")
        if place in inputs:
            raise CallError(f"--{option} {path!r} is also an input or another output; choose another name")
        inputs.add(place)

        # try its folder by writing into it
        try:
            with tempfile.TemporaryFile(dir=os.path.dirname(place)):
                pass
        except OSError as error:
            reason = error.strerror or error
            raise CallError(
                f"--{option} {path!r} cannot be written ({reason}); choose a folder that is there"
            ) from None

    # the packages and formats of pictures, imported only where one is wanted
    if args.html or args.video or args.plot:
        from pbad_jax.viz import energy_plot, needs, video

        if args.html:
            needs.need("viser")
        if args.video:
            video.check_format(args.video)
        if args.plot:
            energy_plot.picture_format(args.plot)
