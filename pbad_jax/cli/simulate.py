"""`pbad-jax simulate`: compile, run, sum up, write."""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import jax
import numpy as np

import pbad_jax as pbad
from pbad_jax.cli.arguments import check_outputs, options_of
from pbad_jax.cli.models import idle_features, load_model
from pbad_jax.cli.standing import begin
from pbad_jax.cli.summary import Run, print_summary
from pbad_jax.compilation_cache import compilation_cache_in_use
from pbad_jax.errors import Status
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts import padded
from pbad_jax.rollouts.progress import report_progress
from pbad_jax.rollouts.trajectory import Trajectory
from pbad_jax.step.options import Options, scheme_of, without_dt

LEAST = 4096  # steps that a program has room for


def run(args: argparse.Namespace) -> int:
    """Simulate as the command line says; the exit code."""
    with _cache(args) as kept:
        model, lost = load_model(args)
        options, steps = options_of(args, model)
        check_outputs(args)
        model, state, control, said = begin(args, model)
        if options.tolerance is not None:  # whether the dtype resolves it is seen only in a trace
            jax.eval_shape(pbad.make_step(options), model, state)
        _say(kept)
        done = _roll_out(model, state, control, steps, options)
        print_summary(args, model, options, state, done, [said, *idle_features(model, lost)])
        _write(args, model, options, state, done)
    return int(bool(np.any(done.info.status != Status.CONVERGED)))


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _cache(args: argparse.Namespace) -> Iterator[str]:
    """Programs that an earlier run has compiled, unless they are not wanted; in words."""
    with contextlib.ExitStack() as stack:
        if args.no_cache:
            yield "compiled programs are not kept"
            return
        try:
            folder = stack.enter_context(compilation_cache_in_use())
        except OSError as error:
            yield f"compiled programs are not kept: {error}"
        else:
            yield f"compiled programs are kept in {folder} (--no-cache: not)"


def _roll_out(model: Model, state: State, control: np.ndarray, steps: int, options: Options) -> Run:
    """Compile, then run, saying so."""
    _say(f"{model!r}: compiling {steps} steps of {scheme_of(options).name} ... ", end="")
    began = time.perf_counter()
    with _interruptible():
        controls = np.broadcast_to(control, (steps, model.nu))
        program = padded.programs(without_dt(options)).steps
        arguments = padded.given(model, state, controls, steps, options, LEAST)
        compiled = program.lower(*arguments).compile()
        compile_time = time.perf_counter() - began
        _say(f"{compile_time:.1f} s")
        began = time.perf_counter()
        told = report_progress.wanted(None)
        done = padded.rolled_out(arguments, steps, options, told, compiled)
        traj, info = jax.tree.map(np.asarray, done)
        wall_time = time.perf_counter() - began
    return Run(traj, info, compile_time, wall_time)


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


def _write(args: argparse.Namespace, model: Model, options: Options, state: State, run: Run) -> None:
    """The files that were asked for; pictures begin with the initial state."""
    from pbad_jax import viz

    # the motion for pictures: the initial state, then the steps
    first = Trajectory(state.time, state.q, state.v)
    seen = run.traj._replace(activation=None, rest=None)
    traj = jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), first, seen)
    info = jax.tree.map(lambda x: np.concatenate([np.zeros_like(x[:1], shape=(1, *x.shape[1:])), x]), run.info)

    # what each option writes
    title = f"{model.topology.name}, {scheme_of(options).name}, dt = {options.dt:g} s"
    writers = {
        "out": lambda path: pbad.save_trajectory(path, model, run.traj, run.info),
        "html": lambda path: viz.to_html(model, traj, path, title=title),
        "video": lambda path: viz.to_video(model, traj, path, title=title),
        "plot": lambda path: viz.plot_energy(model, traj, path, info=info),
    }

    # those that were given, each with the size of its file
    for option, write in writers.items():
        path = getattr(args, option)
        if path is not None:
            write(path)
            print(f"{'wrote':<12}{path} ({os.path.getsize(path) / 1e6:.2f} MB)")
