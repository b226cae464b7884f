"""Models and where they start: files, built-in ones, and numbers of the command line."""

import argparse
import difflib
import math
import os
import pathlib
import re
import warnings

import numpy as np

import pbad_jax as pbad
from pbad_jax.cli.arguments import CallError
from pbad_jax.errors import UnsupportedFeatureWarning
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, joint_layout

BUILT_IN = ("chain:10", "swimmer", "spider")
SWING = 0.2  # of sqrt(g / length): the sideways rate with which the chain starts


def load_model(args: argparse.Namespace) -> tuple[Model, list[str]]:
    """The model, and a line for every feature of its file that was left out.

    Raises:
        CallError: neither a file nor a built-in model. ModelFileError: a file that `pbad.load` refuses.
    """
    # a built-in model
    name, dtype = args.model, np.float32 if args.float32 else np.float64
    if name.startswith("chain"):
        number = re.fullmatch(r"chain:([1-9]\d*)", name)
        if number:
            return pbad.chain(int(number[1]), dtype=dtype), []
        if not os.path.exists(name):
            raise CallError(f"MODEL is {name!r}; after 'chain:' comes the number of links, at least 1: write chain:10")
    if name in ("swimmer", "spider"):
        return getattr(pbad, name)(dtype=dtype), []

    # a file, and the folders that it may take more from
    if not os.path.exists(name):
        raise CallError(f"MODEL {name!r} is neither a file nor one of {', '.join(BUILT_IN)}{_nearest_file(name)}")
    for folder in args.package_dir:
        if not os.path.isdir(folder):
            raise CallError(f"--package-dir {folder!r} is no folder{_nearest_file(folder)}")

    # loaded; what was left out is told by the summary, not by warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedFeatureWarning)  # the summary lists them
        loaded = pbad.load(
            pathlib.Path(name),
            floating_base=args.floating_base,
            unsupported=args.unsupported,
            package_dirs=args.package_dir,
            body_contact=not args.no_body_contact,
            dtype=dtype,
        )
    model, report = loaded if isinstance(loaded, tuple) else (loaded, None)
    return model, [f"left out: {x}" for x in getattr(report, "unsupported", ())]


def idle_features(model: Model, lost: list[str]) -> list[str]:
    """A line for every feature of its file that does not act: those that were lost, and those that are carried."""
    return lost + [f"carried, no force yet: {x}" for x in model.topology.inactive]


def is_built_in(name: str) -> bool:
    """Whether MODEL names no file."""
    return name in ("swimmer", "spider") or (name.startswith("chain:") and not os.path.exists(name))


def _nearest_file(name: str) -> str:
    folder = os.path.dirname(name)
    try:
        files = os.listdir(folder or ".")
    except OSError:
        return f"; there is no folder {folder!r}"
    near = difflib.get_close_matches(os.path.basename(name), [*files, *(() if folder else BUILT_IN)], 1, 0.7)
    return f"; did you mean {os.path.join(folder, near[0])!r}?" if near else "; check the path"


def starting_key(args: argparse.Namespace, model: Model) -> str | None:
    """The keyframe where it starts: that of --key, else `home`, else the first; None with --q0, or without keyframes.

    Raises:
        CallError: --key and --q0.
    """
    if args.key is not None:
        if args.q0 is not None:
            raise CallError(f"--key {args.key} and --q0 both say where it starts; give one of them")
        return args.key
    if args.q0 is not None or not model.keyframes:
        return None
    return "home" if "home" in model.keyframes else next(iter(model.keyframes))


def start(args: argparse.Namespace, model: Model) -> State:
    """The initial state: --q0 and --v0, a keyframe, or the model's own start.

    Raises:
        CallError: no numbers, or not as many as the model has. StateError: NaN, inf, a quaternion that is none, an
            unknown keyframe.
    """
    q, v = (_numbers(f"--{k}", getattr(args, k)) for k in ("q0", "v0"))
    if args.model.startswith("chain:") and model.topology.name == args.model:
        n = model.n_bodies
        if q is None:
            q = np.zeros(model.nq)
            q[0] = np.pi / 2
            if v is None:
                v = np.zeros(model.nv)
                v[1] = SWING * math.sqrt(float(-model.gravity[2]) / n)  # links are 1 m long
    for option, x, size in (("--q0", q, model.nq), ("--v0", v, model.nv)):
        if x is not None and x.shape != (size,):
            given = f"{x.size} numbers" if x.ndim == 1 else f"an array of shape {x.shape}"
            layout = joint_layout(model.topology, option[2])
            raise CallError(f"{option} has {given}; model {model.topology.name!r} wants {size}: {layout}")
    return pbad.make_state(model, q, v, key=starting_key(args, model))


def _numbers(option: str, text: str | None) -> np.ndarray | None:
    """Comma-separated numbers, or the array of an npy file."""
    if text is None:
        return None
    if text.endswith(".npy"):
        return _array_file(option, text)
    values = []
    for k, part in enumerate(text.split(",")):
        try:
            values.append(float(part))
        except ValueError:
            raise CallError(
                f"{option}: entry {k} is {part[:40]!r}; give numbers separated by commas, or a FILE.npy"
            ) from None
    return np.array(values)


def _array_file(option: str, path: str) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            array = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise CallError(f"{option}: there is no file {path!r}{_nearest_file(path)}") from None
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise CallError(
            f"{option}: {path!r} cannot be read as an npy array ({str(error).split('.')[0]}); write it with numpy.save"
        ) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        raise CallError(f"{option}: {path!r} holds no array of numbers; write one with numpy.save")
    return array
