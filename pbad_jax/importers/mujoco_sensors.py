"""From MuJoCo's compiled model to sensors. None of them changes the motion."""

from collections import Counter
from typing import Any

import numpy as np

from pbad_jax.importers import mujoco_tendons
from pbad_jax.importers.features import idle
from pbad_jax.importers.mujoco_sites import word
from pbad_jax.model.sensors import KINDS, Sensor
from pbad_jax.model.sites import Site

RENAMED = {"jointactfrc": "jointactuatorfrc"}  # MuJoCo's enumeration and its files differ


def sensors(m, names, actuators: set[str]) -> tuple[dict[str, Sensor], list[str]]:
    """The sensors that can be read, and the others, counted by reason.

    Args:
        m: mjModel. names: of everything in it. actuators: the names of those that the model gets.
    """
    found, lost = {}, Counter()
    for k, name in enumerate(names.sensor):
        kind = word("mjtSensor", m.sensor_type[k])
        kind = RENAMED.get(kind, kind)
        made = _sensor(m, names, actuators, k, kind)
        if isinstance(made, str):
            lost[made] += 1
        else:
            found[name] = made
    listed = ", ".join(f"{reason} ({count})" for reason, count in sorted(lost.items()))
    return found, [idle("sensors that are not read", f": {listed}")] if lost else []


def _sensor(m, names, actuators: set[str], k: int, kind: str) -> Sensor | str:
    """A sensor, or why not."""
    # kinds that are known, read without delay
    if kind not in KINDS:
        return kind
    if any(np.any(getattr(m, f"sensor_{f}", np.zeros(m.nsensor))[k]) for f in ("delay", "interval")):
        return f"{kind} with a delay"

    # what it is of, and in whose frame; what has no counterpart here is the reason
    target = _target(m, names, int(m.sensor_objtype[k]), int(m.sensor_objid[k]), KINDS[kind][0])
    reference = None
    if int(m.sensor_refid[k]) >= 0:
        reference = _frame(m, names, int(m.sensor_reftype[k]), int(m.sensor_refid[k]))
        if reference is None:
            return f"{kind} from a camera that moves"
    if target is None and KINDS[kind][0] in ("frame", "tendon"):
        return f"{kind} of a " + ("tendon that wraps" if KINDS[kind][0] == "tendon" else "camera that moves")
    if KINDS[kind][0] == "actuator" and target not in actuators:
        return f"{kind} of an actuator that is left out"

    # a cutoff clips real and positive numbers, no directions or quaternions
    bounded = word("mjtDataType", m.sensor_datatype[k]) in ("real", "positive") and m.sensor_cutoff[k] > 0
    field = tuple(m.opt.magnetic.tolist())
    return Sensor(kind, target, reference, float(m.sensor_cutoff[k]) if bounded else np.inf, field)


def _target(m, names, kind: int, i: int, target: str) -> Any:
    """What a sensor is of; None: nothing, or nothing that is known here."""
    if target == "frame":
        return _frame(m, names, kind, i)
    if target == "tendon":
        return mujoco_tendons.tendon(m, i, names) if mujoco_tendons.why_not(m, i) == "" else None
    if target == "body":
        return names.body[i] or None
    return {"joint": names.joint, "actuator": names.actuator}[target][i] if target else None


def _frame(m, names, kind: int, i: int) -> str | Site | None:
    """A site's name, or the frame of a body, its inertia, a shape, or a camera that stands still on its body."""
    what = word("mjtObj", kind)
    if what == "site":
        return names.site[i]
    if what == "camera" and m.cam_mode[i] != 0:
        return None
    if what == "xbody":
        return Site(names.body[i] or None)
    body, position, quaternion = {
        "body": lambda: (i, m.body_ipos[i], m.body_iquat[i]),
        "geom": lambda: (m.geom_bodyid[i], m.geom_pos[i], m.geom_quat[i]),
        "camera": lambda: (m.cam_bodyid[i], m.cam_pos[i], m.cam_quat[i]),
    }[what]()
    return Site(names.body[body] or None, tuple(position.tolist()), tuple(quaternion.tolist()))
