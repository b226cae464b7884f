"""From MuJoCo's actuators to ours: those affine in length and speed, with their activations; of the others why not."""

from typing import Any

import numpy as np

from pbad_jax.builders.actuators import Actuator
from pbad_jax.importers import mujoco_sites, mujoco_tendons
from pbad_jax.importers.features import refused
from pbad_jax.importers.mjcf import mujoco_module
from pbad_jax.importers.mujoco_names import Names, count_of

FREE, BALL = 0, 1  # MuJoCo's types of joints
SITE = 4  # of transmissions


def actuators(m, names: Names, switches: set[str]) -> tuple[list[Actuator], list[str]]:
    """Affine actuators on joints, tendons and sites; the others by name and reason."""
    # which joint each acts on, −1 for tendons and sites
    count = count_of(m, "nactuator", m.nu)
    drives, lost = [], []
    on_joint = [int(m.actuator_trnid[a, 0]) if m.actuator_trntype[a] <= 1 else -1 for a in range(count)]
    for a in range(count):
        # what is not affine is lost
        reason = _why_not(m, a)
        j = on_joint[a]
        force_range = _range(m.actuator_forcelimited[a], m.actuator_forcerange[a])
        # a bound on the force of the joint is one of its actuator, by the gear, if it has only this one
        if not reason and j >= 0 and m.jnt_type[j] > BALL and m.jnt_actfrclimited[j] and m.actuator_gear[a, 0]:
            bounds = np.sort(m.jnt_actfrcrange[j] / m.actuator_gear[a, 0])
            low, high = (-np.inf, np.inf) if force_range is None else force_range
            force_range = (max(low, bounds[0]), min(high, bounds[1]))
            if on_joint.count(j) > 1 or force_range[0] > force_range[1]:
                reason = refused("actuatorfrcrange", f" of joint {names.joint[j]!r}, which other actuators share")
        if reason:
            lost.append(f"actuator {names.actuator[a]!r}: {reason}")
            continue
        # the rest act: force = gain · u + bias · (1, length, speed), within their ranges
        unclamped = "clampctrl" in switches
        drives.append(
            Actuator(
                joint=names.joint[j] if j >= 0 else _else(m, a, names),
                name=names.actuator[a],
                gear=_gear(m, a, j),
                in_parent=int(m.actuator_trntype[a]) == 1,
                gain=float(m.actuator_gainprm[a, 0]),
                bias=np.array(m.actuator_biasprm[a, :3]) if m.actuator_biastype[a] == 1 else np.zeros(3),
                control_range=None if unclamped else _range(m.actuator_ctrllimited[a], m.actuator_ctrlrange[a]),
                force_range=force_range,
                **_activation(m, a),
            )
        )
    return drives, lost


def _range(limited, bounds) -> tuple[float, float] | None:
    return (float(bounds[0]), float(bounds[1])) if limited else None


def _activation(m, a: int) -> dict[str, Any]:
    """What an actuator has of a state of its own; MuJoCo's `filter` is its `filterexact` by Euler's steps."""
    kind = dynamics(m, a)
    if kind == "none":
        return {}
    bounds = _range(m.actuator_actlimited[a], m.actuator_actrange[a])
    how = {"integrates": True} if kind == "integrator" else {"time_constant": float(m.actuator_dynprm[a, 0])}
    return {"activation_range": bounds, **how}


def dynamics(m, a: int) -> str:
    """Of its activation, in MuJoCo's word."""
    return mujoco_sites.word("mjtDyn", m.actuator_dyntype[a])


def _else(m, a: int, names: Names) -> Any:
    """The tendon or the site of an actuator."""
    k = int(m.actuator_trnid[a, 0])
    return mujoco_sites.site(m, names, k) if m.actuator_trntype[a] == SITE else mujoco_tendons.tendon(m, k, names)


def _gear(m, a: int, j: int) -> Any:
    """As many numbers as the joint has degrees of freedom; six of a site."""
    size = {FREE: 6, BALL: 3}.get(m.jnt_type[j]) if j >= 0 else 6 * int(m.actuator_trntype[a] == SITE)
    return np.array(m.actuator_gear[a, :size]) if size else float(m.actuator_gear[a, 0])


def _why_not(m, a: int) -> str:
    """Why this actuator is not affine in length and speed of a joint, a tendon or a site; empty if it is."""
    mujoco = mujoco_module()

    def label(enum, value) -> str:
        return enum(int(value)).name.split("_", 1)[1].lower()

    # what it acts on
    if m.actuator_trntype[a] == int(mujoco.mjtTrn.mjTRN_TENDON):
        if mujoco_tendons.why_not(m, int(m.actuator_trnid[a, 0])):
            return refused("transmission", " through a tendon that wraps about shapes")
    elif m.actuator_trntype[a] == SITE:
        if m.actuator_trnid[a, 1] >= 0 or not m.site_bodyid[m.actuator_trnid[a, 0]]:
            return refused("transmission", " through a site of the world, or with a reference")
    elif m.actuator_trntype[a] > 1:
        return refused("transmission", f" through a {label(mujoco.mjtTrn, m.actuator_trntype[a])}")

    # its own state, and how the force follows from that: gain and bias must be affine
    if dynamics(m, a) not in ("none", "integrator", "filter", "filterexact"):
        return refused("activation dynamics", f" ({dynamics(m, a)})")
    if m.actuator_gaintype[a] != 0:
        return refused("gain type", f" {label(mujoco.mjtGain, m.actuator_gaintype[a])}")
    if m.actuator_biastype[a] > 1:
        return refused("bias type", f" {label(mujoco.mjtBias, m.actuator_biastype[a])}")
    if m.actuator_plugin[a] >= 0:
        return refused("plugin")

    # what newer versions of MuJoCo give actuators
    for field in ("actuator_delay", "actuator_damping", "actuator_dampingpoly", "actuator_armature"):
        if np.any(getattr(m, field, np.zeros(len(m.actuator_gear)))[a]):
            return refused("an actuator's own", f" {field.removeprefix('actuator_')}")
    if any(getattr(m, f, np.ones(len(m.actuator_gear)))[a] != 1 for f in ("actuator_ctrlnum", "actuator_outnum")):
        return refused("several controls or outputs")
    return ""
