"""Energy over time, legible in black and white."""

import os
import pathlib
from typing import Any

import numpy as np

from pbad_jax.dynamics.energy import energies_along
from pbad_jax.errors import OptionError, StateError, Status
from pbad_jax.model.model import Model
from pbad_jax.rollouts.states import check_trajectory
from pbad_jax.step.info import StepInfo
from pbad_jax.storage.files import written_whole
from pbad_jax.viz.needs import need


def plot_energy(
    model: Model,
    traj: Any,
    path: str | os.PathLike | None = None,
    ax: Any = None,
    *,
    info: StepInfo | None = None,
) -> Any:
    """Kinetic, potential and total energy of one lane over time.

    Args:
        model: the model that was rolled out.
        traj: a Trajectory with q of shape (T, nq); take one lane of a batch.
        path: also save the figure there; its suffix names the format (png, pdf, svg).
        ax: matplotlib axes to draw into; default a new figure.
        info: of the rollout; failed steps are marked with crosses, and with Options(account=True) what the scheme
            itself took or gave is drawn from the initial energy on, where forces without a potential did the rest.

    Returns:
        The matplotlib axes.

    Raises:
        StateError: shapes that do not fit. OptionError: a path whose suffix names no picture format.
        ImportError: without `pip install "pbad_jax[viz]"`. OSError: the file cannot be written.

    Example:
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> viz.plot_energy(arm, traj).get_ylabel()
        'energy (J)'
    """
    # one lane of this model, and a format that can be written
    check_trajectory(model, traj, "traj")
    q, v, time = np.asarray(traj.q), np.asarray(traj.v), np.asarray(traj.time)
    if q.ndim != 2 or q.shape[1] != model.nq:
        raise StateError(
            f"traj.q has shape {q.shape}; plot_energy wants (T, {model.nq}), one lane of model "
            f"{model.topology.name!r}. Take one lane of a batch: jax.tree.map(lambda x: x[0], traj)"
        )
    if info is not None and np.shape(info.status) != time.shape:
        raise StateError(f"info.status has shape {np.shape(info.status)}; wanted {time.shape}, as traj.time")
    if path is not None:
        picture_format(path)

    # the energies, told apart by their dashes
    ax = ax if ax is not None else _new_axes(path)
    kinetic, potential = (np.asarray(x) for x in energies_along(model, time, q, v))
    total = kinetic + potential
    ax.plot(time, kinetic, "--", color="tab:orange", label="kinetic")
    ax.plot(time, potential, ":", color="tab:blue", label="potential")
    ax.plot(time, total, "-", color="black", label="total")

    # the work of the scheme itself, where it can be told from the total
    if info is not None and info.numerical_work is not None:
        taken = np.cumsum(np.asarray(info.numerical_work))
        numerical = total[0] + taken - taken[0]
        if np.abs(numerical - total).max() > 0.01 * np.ptp(np.stack([kinetic, potential, total])):
            ax.plot(time, numerical, "-.", color="tab:red", lw=1, label="scheme alone")

    # failed steps
    if info is not None:
        failed = np.asarray(info.status) != Status.CONVERGED
        if failed.any():
            ax.plot(time[failed], total[failed], "x", color="tab:red", label=f"failed steps ({failed.sum()})")

    # labels, a legend above the picture, and the file
    ax.set(xlabel="time (s)", ylabel="energy (J)")
    ax.set_title(model.topology.name, loc="left")
    ax.grid(alpha=0.3)
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, frameon=False)
    if path is not None:
        with written_whole(path) as file:
            ax.figure.savefig(file, format=picture_format(path), dpi=150)
    return ax


def picture_format(path: str | os.PathLike) -> str:
    """The format that the suffix of a path names.

    Raises:
        OptionError: matplotlib cannot write it.
    """
    known = need("matplotlib.backend_bases").FigureCanvasBase.get_supported_filetypes()
    suffix = pathlib.Path(path).suffix.lstrip(".").lower()
    if suffix not in known:
        raise OptionError(f"{str(path)!r}: the suffix {suffix!r} names no picture format; end it in .png, .pdf or .svg")
    return suffix


def _new_axes(path) -> Any:
    """Axes of a new figure; one for a file alone needs no window system and is not kept by pyplot."""
    size = {"figsize": (7, 4), "layout": "constrained"}
    if path is None:
        return need("matplotlib.pyplot").figure(**size).subplots()
    return need("matplotlib.figure").Figure(**size).subplots()
