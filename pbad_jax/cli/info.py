"""`pbad-jax info`: tables of what a model is made of."""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from pbad_jax.cli.models import idle_features, load_model
from pbad_jax.errors import printable
from pbad_jax.forces import joint_ranges
from pbad_jax.kinematics.transforms import total_mass
from pbad_jax.laws.force import acts_at, description
from pbad_jax.model.model import Model


def run(args: argparse.Namespace) -> int:
    """Describe a model; the exit code."""
    # the model as a whole
    model, lost = load_model(args)
    t = model.topology
    mass = np.asarray(model.second_moment)[:, 3, 3]
    gravity = " ".join(f"{float(x):g}" for x in model.gravity)
    print(f"{printable(t.name)}: {t.n_bodies} bodies, {len(t.joints)} joints, nq {t.nq}, nv {t.nv}, nu {t.nu}")
    print(f"total mass {float(total_mass(model)):.6g} kg, gravity {gravity} m/s^2, fingerprint {model.fingerprint}")

    # bodies, and joints with their entries in q and v
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

    # what has a name: actuators, keyframes, sites, sensors
    _table(("actuator",), [(n,) for n in t.actuator_names])
    _table(
        ("keyframe", "time (s)", "control"),
        [(n, f"{k.time:g}", "no" if k.control is None else "yes") for n, k in model.keyframes.items()],
    )
    _table(("site", "body"), [(n, s.body or "world") for n, s in model.sites.items()])
    _table(("sensor", "kind"), [(n, s.kind) for n, s in model.sensors.items()])

    # forces that act, and features of the file that do not
    _table(("force", "acts on", "once a"), [_force(model, f) for f in model.forces])
    _table(("features that do not act",), [(x,) for x in idle_features(model, lost)])
    return 0


def _force(model: Model, force: Any) -> tuple[str, str, str]:
    """Its name, on how much it acts, and when."""
    return *description(force, model), acts_at(force).removesuffix("s")


def _span(first: int, count: int) -> str:
    return f"{first}:{first + count}" if count else "-"


def _range(model: Model, joint: Any) -> str:
    own = joint_ranges(model)[joint.v : joint.v + joint.nv]
    return ", ".join(f"{a:.4g} to {b:.4g}" for a, b in own) if np.isfinite(own).any() else "free"


def _table(head: Sequence[str], rows: list[tuple[str, ...]]) -> None:
    if not rows:
        return
    lines = [tuple(map(printable, row)) for row in (head, *rows)]
    width = [max(len(line[k]) for line in lines) for k in range(len(head))]
    print()
    for row in lines:
        print("  ".join(x.ljust(w) for x, w in zip(row, width)).rstrip())
