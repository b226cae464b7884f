"""What `pbad-jax simulate` says of a rollout."""

import argparse
import dataclasses

import jax.numpy as jnp
import numpy as np

from pbad_jax.dynamics.energy import energies_along
from pbad_jax.errors import Status, printable
from pbad_jax.kinematics import transforms
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.rollouts.trajectory import Trajectory
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options, scheme_of

MUCH = 0.02  # of the largest kinetic energy
STILL = 1e-3  # of what lifting the model by its own length takes: less kinetic energy is no motion to compare with


@dataclasses.dataclass(frozen=True)
class Run:
    """A rollout and what it cost."""

    traj: Trajectory
    info: StepInfo
    compile_time: float  # s
    wall_time: float  # s


def print_summary(
    args: argparse.Namespace, model: Model, options: Options, state: State, run: Run, remarks: list[str]
) -> None:
    """Print how a rollout from a state went; `remarks` come below the model."""
    # the model, and the steps that were asked for
    t, status, steps = model.topology, run.info.status, len(run.traj.time)
    span = steps * options.dt
    rows = [("model", f"{t.name}: {t.n_bodies} bodies, {t.nv} degrees of freedom, {jnp.dtype(model.dtype).name}")]
    rows += [("", x) for x in remarks]
    rows += [("steps", f"{steps} of {options.dt:g} s with {scheme_of(options).name}, {span:g} s in all")]
    if abs(span - args.time) > 1e-9 * max(span, args.time):
        rows += [("", f"--time {args.time:g} is no multiple of --dt {options.dt:g}; it was rounded to {span:g} s")]

    # how they ended
    rows += _failures(run, options.dt)
    divided = np.asarray(run.info.substeps) > 1
    if divided.any():
        hard, mean = (
            ("hard ", "") if options.accuracy is None else ("", f", {run.info.substeps.mean():.1f} in the mean")
        )
        rows += [("substeps", f"{divided.sum()} {hard}steps were made in parts, up to {run.info.substeps.max()}{mean}")]

    # what they took, and where the energy went
    if steps:
        change, peak = _energy_change(model, state, run.traj)
        solved = status != Status.FROZEN
        rows += [
            ("iterations", f"{run.info.iterations[solved].mean():.2f} a step, at most {run.info.iterations.max()}"),
            *_errors(np.asarray(run.info.error)),
            ("energy", change),
            *_accounts(run.info, peak, options),
        ]

    # how long it all took
    rate = f", {span / run.wall_time:.3g} simulated seconds a second" if steps else ""
    rows += [("wall time", f"{run.wall_time:.3g} s{rate}; compiling took {run.compile_time:.3g} s")]
    for name, text in rows:
        print(f"{name:<12}{printable(text)}")


def _failures(run: Run, dt: float) -> list[tuple[str, str]]:
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


def _errors(error: np.ndarray) -> list[tuple[str, str]]:
    """How far steps are from the motion, of the schemes that know it."""
    error = error[np.isfinite(error)]
    if not error.size:
        return []
    said = f"about {np.median(error):.2g} a step, at most {error.max():.2g}: rad, or m over the model's length"
    return [("error", said)]


def _accounts(info: StepInfo, peak: float, options: Options) -> list[tuple[str, str]]:
    """The work of every force, and what the scheme itself took or gave; advice where that is seen in a plot."""
    total = np.sum(np.asarray(info.work), axis=0)
    work = ", ".join(f"{name} {x:.4g} J" for name, x in zip(info.forces, total))
    numerical = float(np.sum(np.asarray(info.numerical_work)))
    rows = [("work", work)] if work else []
    rows.append(("", f"the scheme itself {'took' if numerical < 0 else 'gave'} {abs(numerical):.4g} J"))
    if abs(numerical) > MUCH * peak > 0:
        other = "" if scheme_of(options).name == "radau3" else ", or take --scheme radau3"
        rows.append(("", f"that is {abs(numerical) / peak:.0%} of the largest kinetic energy: halve --dt{other}"))
    return rows


def _energy_change(model: Model, state: State, traj: Trajectory) -> tuple[str, float]:
    """From the start to the end, also as a fraction of the largest kinetic energy; and this, J, 0 where all stood."""
    start = (state.time, state.q, state.v)
    path = (np.concatenate([np.asarray(a)[None], b]) for a, b in zip(start, (traj.time, traj.q, traj.v)))
    kinetic, potential = (np.asarray(x) for x in energies_along(model, *path))
    first, last = (kinetic + potential)[[0, -1]].tolist()
    lift = transforms.total_mass(model) * jnp.linalg.norm(model.gravity) * transforms.length_scale(model)
    change, peak = last - first, float(kinetic.max())
    peak = peak if peak > STILL * lift else 0.0
    share = f", {change / peak:+.2g} of the largest kinetic energy" if peak > 0 else ""
    return f"{first:.6g} J to {last:.6g} J, change {change:+.3g} J{share}", peak
