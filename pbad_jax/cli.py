"""`pbad-jax simulate MODEL` and `pbad-jax info MODEL`.

Exit code 0; 1 if a step failed; 2 for a wrong call or file, with one line on stderr. Everything is checked before
anything is simulated, and nothing is written unless --out, --html or --plot asks for it.
"""

import argparse
import contextlib
import dataclasses
import difflib
import math
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad
from pbad_jax.errors import ModelError, OptionError, StateError, Status, UnsupportedFeatureWarning
from pbad_jax.forces import JointLimit
from pbad_jax.kinematics.transforms import total_mass
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts.rollout import Trajectory
from pbad_jax.schemes import NAMES
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options

BUILT_IN = ("chain:10", "swimmer", "spider")
SWING = 0.2  # of sqrt(g / length): the sideways rate with which the chain starts
NUMERIC_OPTIONS = ("--q0", "--v0", "--dt", "--time", "--tolerance", "--max-iterations")


class CallError(ValueError):
    """The command line asks for something that cannot be."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's) and return its exit code."""
    try:
        args = _parse(sys.argv[1:] if argv is None else argv)
        with _precision(args.float32):
            return args.run(args)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\npbad-jax: interrupted", file=sys.stderr)
        return 130
    except (CallError, ModelError, OptionError, StateError, OSError, ImportError) as error:
        print(f"pbad-jax: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


# --- the command line -------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise CallError(f"{message}. See: {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pbad-jax", description="Simulate articulated bodies.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pbad_jax {pbad.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    model = _Parser(add_help=False)
    model.add_argument("model", metavar="MODEL", help="an MJCF or URDF file, or chain:N, swimmer, spider")
    model.add_argument("--floating-base", action="store_true", help="let the root of a file float")
    model.add_argument(
        "--unsupported", choices=("error", "warn"), default="error", help="features of a file that are not there yet"
    )
    model.add_argument("--float32", action="store_true", help="single precision instead of double")

    simulate = commands.add_parser(
        "simulate", parents=[model], allow_abbrev=False, help="roll a model out",
        description="Roll a model out without controls and sum up how it went.",
    )  # fmt: skip
    add = simulate.add_argument
    add("--dt", type=float, default=0.05, metavar="S", help="step, seconds (default 0.05)")
    add("--time", type=float, default=10.0, metavar="S", help="how long, seconds (default 10)")
    add("--scheme", default="radau2", metavar="NAME", help=f"one of {', '.join(NAMES)} (default radau2)")
    add("--tolerance", type=float, metavar="X", help="of a step, as a fraction of the model's size")
    add("--max-iterations", type=int, default=60, metavar="N", help="that a step may take (default 60)")
    add("--on-failure", default="substep", metavar="POLICY", help="freeze or substep (default): parts of a failed step")
    add("--q0", metavar="A,B,..|FILE.npy", help="where it starts; chain:N starts horizontal")
    add("--v0", metavar="A,B,..|FILE.npy", help="how fast it starts; default at rest, chain:N with a small swing")
    add("--out", metavar="FILE.npz", help="write the trajectory")
    add("--html", metavar="FILE.html", help="write an animation")
    add("--plot", metavar="FILE.png", help="write a plot of the energy")
    simulate.set_defaults(run=_simulate)

    info = commands.add_parser(
        "info", parents=[model], allow_abbrev=False, help="describe a model", description="Describe a model."
    )
    info.set_defaults(run=_info)
    return parser


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    args, rest = parser.parse_known_args(_join_negative(argv))
    if rest:
        known = [x for x in _option_names(parser) if x.startswith("--")]
        near = difflib.get_close_matches(rest[0].split("=")[0], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"see: pbad-jax {args.command} --help"
        raise CallError(f"{rest[0]!r} is no argument of pbad-jax {args.command}; {hint}")
    return args


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


@contextlib.contextmanager
def _precision(float32: bool) -> Iterator[None]:
    """Double precision for one command; models in single precision need no change of JAX's setting."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", before or not float32)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


# --- models and starts ------------------------------------------------------------------------------------


def _load(args: argparse.Namespace) -> tuple[Model, list[str]]:
    """The model, and a line for every feature of its file that does not act."""
    name, dtype = args.model, np.float32 if args.float32 else np.float64
    if name.startswith("chain"):
        number = re.fullmatch(r"chain:([1-9]\d*)", name)
        if number:
            return pbad.chain(int(number[1]), dtype=dtype), []
        if not os.path.exists(name):
            raise CallError(f"MODEL is {name!r}; after 'chain:' comes the number of links, at least 1: write chain:10")
    if name in ("swimmer", "spider"):
        return getattr(pbad, name)(dtype=dtype), []
    if not os.path.exists(name):
        raise CallError(f"MODEL {name!r} is neither a file nor one of {', '.join(BUILT_IN)}{_nearest_file(name)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedFeatureWarning)  # the summary lists them
        loaded = pbad.load(
            pathlib.Path(name), floating_base=args.floating_base, unsupported=args.unsupported, dtype=dtype
        )
    model, report = loaded if isinstance(loaded, tuple) else (loaded, None)
    idle = [f"left out: {x}" for x in getattr(report, "unsupported", ())]
    return model, idle + [f"carried, no force yet: {x}" for x in model.topology.inactive]


def _nearest_file(name: str) -> str:
    folder = os.path.dirname(name)
    try:
        files = os.listdir(folder or ".")
    except OSError:
        return f"; there is no folder {folder!r}"
    near = difflib.get_close_matches(os.path.basename(name), [*files, *(() if folder else BUILT_IN)], 1, 0.7)
    return f"; did you mean {os.path.join(folder, near[0])!r}?" if near else "; check the path"


def _start(args: argparse.Namespace, model: Model) -> State:
    """The initial state: --q0 and --v0, or the model's own start."""
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
            raise CallError(
                f"{option} has {given}; model {model.topology.name!r} wants {size}: {_layout(model, option[2])}"
            )
    return pbad.make_state(model, q, v)


def _layout(model: Model, which: str) -> str:
    """Which joint owns which entries of q or v."""
    spans = [(j.name, getattr(j, which), getattr(j, f"n{which}")) for j in model.topology.joints]
    parts = [f"{name}[{first}:{first + n}]" for name, first, n in spans if n]
    return ", ".join(parts[:8]) + (f", ... ({len(parts)} joints)" if len(parts) > 8 else "")


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


def _options(args: argparse.Namespace, model: Model) -> tuple[Options, int]:
    """Checked options and the number of steps."""
    if not (math.isfinite(args.time) and args.time >= 0):
        raise CallError(
            f"--time is {args.time}; it must be zero or a positive number of seconds, for example --time 10"
        )
    if not (math.isfinite(args.dt) and args.dt > 0):
        raise CallError(f"--dt is {args.dt}; it must be a positive number of seconds, for example --dt 0.05")
    options = Options(
        args.dt,
        args.scheme,
        tolerance=args.tolerance,
        max_iterations=args.max_iterations,
        on_failure=args.on_failure,
        account=True,
    )
    steps = round(args.time / args.dt)
    need = steps * (model.nq + model.nv + 8) * jnp.dtype(model.dtype).itemsize
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33
    if need > have / 4 or steps >= 2**31:
        raise CallError(
            f"--time {args.time:g} over --dt {args.dt:g} is {steps:.3g} steps, which take {need / 2**30:.3g} GiB; "
            f"a quarter of this machine's memory is {have / 2**32:.3g} GiB. Shorten --time or enlarge --dt."
        )
    return options, steps


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written, before any work is done."""
    inputs = {os.path.realpath(x) for x in (args.model, args.q0, args.v0) if x}
    for option in ("out", "html", "plot"):
        path = getattr(args, option)
        if path is None:
            continue
        place = os.path.realpath(path)
        if os.path.isdir(path) or not os.path.basename(path):
            raise CallError(f"--{option} {path!r} is a folder; name a file in it")
        if place in inputs:
            raise CallError(f"--{option} {path!r} is also an input or another output; choose another name")
        inputs.add(place)
        try:
            with tempfile.TemporaryFile(dir=os.path.dirname(place)):
                pass
        except OSError as error:
            reason = error.strerror or error
            raise CallError(
                f"--{option} {path!r} cannot be written ({reason}); choose a folder that is there"
            ) from None
    if args.html or args.plot:
        from pbad_jax.viz import energy_plot, needs

        if args.html:
            needs.need("viser")
        if args.plot:
            energy_plot.picture_format(args.plot)


# --- simulate ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Run:
    """A rollout and what it cost."""

    traj: Trajectory
    info: StepInfo
    compile_time: float  # s
    wall_time: float  # s


def _simulate(args: argparse.Namespace) -> int:
    model, idle = _load(args)
    options, steps = _options(args, model)
    state = _start(args, model)
    _check_outputs(args)
    if options.tolerance is not None:  # whether the dtype resolves it is seen only in a trace
        jax.eval_shape(pbad.make_step(options), model, state)
    run = _roll_out(model, state, steps, options)
    _print_summary(args, model, options, state, run, idle)
    _write(args, model, state, run)
    return int(bool(np.any(run.info.status != Status.CONVERGED)))


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def _roll_out(model: Model, state: State, steps: int, options: Options) -> _Run:
    """Compile, then run, saying so."""

    def roll(model, state):
        return pbad.rollout(model, state, n_steps=steps, options=options)

    assert not isinstance(options.scheme, str)
    _say(f"{model!r}: compiling {steps} steps of {options.scheme.name} ... ", end="")
    began = time.perf_counter()
    with _interruptible():
        compiled = jax.jit(roll).lower(model, state).compile()
        compile_time = time.perf_counter() - began
        _say(f"{compile_time:.1f} s")
        began = time.perf_counter()
        traj, info = jax.block_until_ready(compiled(model, state))
        wall_time = time.perf_counter() - began
    traj, info = jax.tree.map(np.asarray, (traj, info))
    return _Run(traj, info, compile_time, wall_time)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once: Python would see it only after the compiled loop. Nothing is half written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_summary(args, model: Model, options: Options, state: State, run: _Run, idle: list[str]) -> None:
    t, status, steps = model.topology, run.info.status, len(run.traj.time)
    assert not isinstance(options.scheme, str)
    span = steps * options.dt
    rows = [("model", f"{t.name}: {t.n_bodies} bodies, {t.nv} degrees of freedom, {jnp.dtype(model.dtype).name}")]
    rows += [("", x) for x in idle]
    rows += [("steps", f"{steps} of {options.dt:g} s with {options.scheme.name}, {span:g} s in all")]
    if abs(span - args.time) > 1e-9 * max(span, args.time):
        rows += [("", f"--time {args.time:g} is no multiple of --dt {options.dt:g}; it was rounded to {span:g} s")]
    rows += _failures(run, options.dt)
    divided = np.asarray(run.info.substeps) > 1
    if divided.any():
        rows += [("substeps", f"{divided.sum()} hard steps were made in parts, up to {run.info.substeps.max()}")]
    if steps:
        solved = status != Status.FROZEN
        rows += [
            ("iterations", f"{run.info.iterations[solved].mean():.2f} a step, at most {run.info.iterations.max()}"),
            ("energy", _energy_change(model, state, run.traj)),
            *_accounts(run.info),
        ]
    rate = f", {span / run.wall_time:.3g} simulated seconds a second" if steps else ""
    rows += [("wall time", f"{run.wall_time:.3g} s{rate}; compiling took {run.compile_time:.3g} s")]
    for name, text in rows:
        print(f"{name:<12}{text}")


def _failures(run: _Run, dt: float) -> list[tuple[str, str]]:
    """How many steps failed, the first of them, and each code with its advice."""
    status = run.info.status
    bad = np.flatnonzero(status != Status.CONVERGED)
    if not bad.size:
        return [("failed", "none")]
    first = int(bad[0])
    rows = [("failed", f"{bad.size} of {len(status)} steps, the first at step {first + 1} (to {(first + 1) * dt:g} s)")]
    for code, count in zip(*np.unique(status[bad], return_counts=True)):
        rows.append(("", f"{count} {Status(code).name}: {Status(code).advice}"))
    return rows


def _accounts(info: StepInfo) -> list[tuple[str, str]]:
    """The work of every force, and what the scheme itself took or gave."""
    total = np.sum(np.asarray(info.work), axis=0)
    work = ", ".join(f"{name} {x:.4g} J" for name, x in zip(info.forces, total))
    numerical = float(np.sum(np.asarray(info.numerical_work)))
    rows = [("work", work)] if work else []
    return [*rows, ("", f"the scheme itself {'took' if numerical < 0 else 'gave'} {abs(numerical):.4g} J")]


def _energy_change(model: Model, state: State, traj: Trajectory) -> str:
    """From the start to the end, and as a fraction of the largest kinetic energy."""

    @jax.jit
    def energies(q, v, t):
        return jax.lax.map(lambda x: _kinetic_and_total(model, *x), (q, v, t), batch_size=min(1024, len(traj.time)))

    kinetic, total = (np.asarray(x) for x in energies(traj.q, traj.v, traj.time))
    first_kinetic, first = (float(x) for x in jax.jit(_kinetic_and_total)(model, state.q, state.v, state.time))
    change, peak = float(total[-1]) - first, max(float(kinetic.max()), first_kinetic)
    share = f", {change / peak:+.2g} of the largest kinetic energy" if peak > 0 else ""
    return f"{first:.6g} J to {total[-1]:.6g} J, change {change:+.3g} J{share}"


def _kinetic_and_total(model: Model, q, v, t) -> tuple[jax.Array, jax.Array]:
    state = pbad.make_state(model, q, v, time=t)
    kinetic = pbad.kinetic_energy(model, state)
    return kinetic, kinetic + pbad.potential_energy(model, state)


def _write(args: argparse.Namespace, model: Model, state: State, run: _Run) -> None:
    """The files that were asked for; pictures begin with the initial state."""
    from pbad_jax import viz

    start = Trajectory(state.time, state.q, state.v)
    traj = jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), start, run.traj)
    info = jax.tree.map(lambda x: np.concatenate([np.zeros_like(x[:1], shape=(1, *x.shape[1:])), x]), run.info)
    writers = {
        "out": lambda path: pbad.save_trajectory(path, model, run.traj, run.info),
        "html": lambda path: viz.to_html(model, traj, path),
        "plot": lambda path: viz.plot_energy(model, traj, path, info=info),
    }
    for option, write in writers.items():
        path = getattr(args, option)
        if path is not None:
            write(path)
            print(f"{'wrote':<12}{path} ({os.path.getsize(path) / 1e6:.2f} MB)")


# --- info -------------------------------------------------------------------------------------------------


def _info(args: argparse.Namespace) -> int:
    model, idle = _load(args)
    t = model.topology
    mass = np.asarray(model.second_moment)[:, 3, 3]
    gravity = " ".join(f"{float(x):g}" for x in model.gravity)
    print(f"{t.name}: {t.n_bodies} bodies, {len(t.joints)} joints, nq {t.nq}, nv {t.nv}, nu {t.nu}")
    print(f"total mass {float(total_mass(model)):.6g} kg, gravity {gravity} m/s^2, fingerprint {model.fingerprint}")
    _table(
        ("body", "parent", "mass (kg)"),
        [(n, "world" if p < 0 else t.body_names[p], f"{mass[l]:.6g}")
         for n, p, l in zip(t.body_names, t.body_parent, t.body_link)],
    )  # fmt: skip
    _table(
        ("joint", "type", "body", "q", "v", "range (rad or m)"),
        [(j.name, j.type, t.body_names[j.body], _span(j.q, j.nq), _span(j.v, j.nv), _range(model, j))
         for j in t.joints],
    )  # fmt: skip
    _table(("actuator",), [(n,) for n in t.actuator_names])
    _table(("force", "acts on", "once a"), [_force(model, f) for f in model.forces])
    _table(("features that do not act",), [(x,) for x in idle])
    return 0


# what says where a joint force acts
_DOFS = {
    "JointSpring": "stiffness", "JointDamping": "coefficient", "JointFriction": "loss", "JointLimit": "range",
    "JointForce": "tau", "PDDrive": "kp",
}  # fmt: skip


def _force(model: Model, force: Any) -> tuple[str, str, str]:
    """Its name, on how much it acts, and when."""
    name, surface = type(force).__name__, getattr(force, "surface", None)
    links: Any = getattr(force, "links", ())
    extent = "all bodies" if name in ("Gravity", "Drag") else ""
    if name in _DOFS:
        x = np.asarray(getattr(force, _DOFS[name]))
        count = np.sum(np.isfinite(x).any(axis=-1) if x.ndim == 2 else x != 0)
        extent = f"{count + 3 * np.isfinite(getattr(force, 'angle', ())).sum()} degrees of freedom"
    elif hasattr(force, "u_index"):
        extent = f"by {len(force.u_index)} actuators"
    elif hasattr(force, "v_index"):
        extent = f"{len(force.v_index)} joints"
    elif name in ("Attachment", "Anchor"):
        body = dict(zip(model.topology.body_link, model.topology.body_names))
        extent = " and ".join(body.get(l, "?") for l in np.atleast_1d(links[0])) + " and the world" * (name == "Anchor")
    elif links:
        extent = f"{len(links)} {'bodies' if name == 'InertiaBoxes' else 'points'}"
    label = name if surface is None else f"{name} with a {type(surface).__name__}"
    return label, extent, "step" if getattr(force, "at", "") == "step" else "stage"


def _span(first: int, count: int) -> str:
    return f"{first}:{first + count}" if count else "-"


def _range(model: Model, joint: Any) -> str:
    for limit in (f for f in model.forces if isinstance(f, JointLimit)):
        own = limit.bounds(model)[joint.v : joint.v + joint.nv]
        if np.isfinite(own).any():
            return ", ".join(f"{a:.4g} to {b:.4g}" for a, b in own)
    return "free"


def _table(head: Sequence[str], rows: list[tuple[str, ...]]) -> None:
    if not rows:
        return
    width = [max(len(r[k]) for r in [tuple(head), *rows]) for k in range(len(head))]
    print()
    for row in (head, *rows):
        print("  ".join(x.ljust(w) for x, w in zip(row, width)).rstrip())
