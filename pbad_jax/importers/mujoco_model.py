"""From MuJoCo's compiled model to the arguments of `build_model`, and what is lost on the way.

For MJCF and URDF alike. The model is read once, in float64.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pbad_jax.builders.descriptions import Body, Geom, Joint
from pbad_jax.forces import gravity_compensation, joint_polynomial
from pbad_jax.importers import (
    left_over,
    mujoco_contact,
    mujoco_equalities,
    mujoco_fluid,
    mujoco_sensors,
    mujoco_sites,
    mujoco_tendons,
)
from pbad_jax.importers.features import idle, refused
from pbad_jax.importers.mjcf import Inertial, mujoco_module
from pbad_jax.importers.mujoco_actuators import actuators, dynamics
from pbad_jax.importers.mujoco_bodies import Maker
from pbad_jax.importers.mujoco_geoms import geoms_of
from pbad_jax.importers.mujoco_names import Names, count_of
from pbad_jax.importers.mujoco_softness import spring_time, usual
from pbad_jax.importers.mujoco_tendons import poly
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.keyframes import Keyframe

FREE, BALL = 0, 1  # MuJoCo's types of joints


@dataclasses.dataclass
class Converted:
    """The arguments of `build_model`, and what they leave out."""

    bodies: list[Body]
    arguments: dict[str, Any]
    unsupported: list[str]
    inactive: list[str]
    notes: list[str]
    forces: list[Maker]  # (model) -> force or forces, what needs the finished model


def convert(
    m,
    shapes: dict[str, list[Geom]] | None = None,
    has_control: Sequence[bool] = (),
    inertials: dict[str, Inertial] | None = None,
) -> Converted:
    """Read a compiled mjModel, once, in float64.

    Args:
        m: mujoco.MjModel.
        shapes: geoms by body name, to take instead of the model's own.
        has_control: of every keyframe whether the file gives it one.
        inertials: by body name, to take instead of the model's own.
    """
    # first what is changed or not read at all
    names = Names(m)
    switches = _disabled(m)
    driving = left_over.drop_what_drives(m, names)
    unread, in_part = left_over.unread(m, names, "contact" in switches)

    # geoms by body, the model's own or those of a URDF
    if shapes is None:
        geoms, order = geoms_of(m)
    else:
        geoms, order = {i: shapes.get(names.mujoco_body(i), []) for i in range(m.nbody)}, []

    # bodies with their joints, and the actuators on them; a URDF's masses replace MuJoCo's copy
    drives, lost = actuators(m, names, switches)
    kept = [names.actuator.index(a.name) for a in drives]
    soft = None if shapes is None else Joint.limit_time_constant  # a URDF says nothing of how soft its limits are
    bodies = [_body(m, i, names, switches, geoms.get(i, []), soft) for i in range(1, m.nbody)]
    if inertials is not None:
        own = [inertials[names.mujoco_body(i)] for i in range(1, m.nbody)]
        bodies = [dataclasses.replace(b, **x._asdict()) for b, x in zip(bodies, own)]

    # what else `build_model` takes
    seen, unseen = mujoco_sensors.sensors(m, names, {a.name for a in drives})
    arguments = {
        "actuators": drives,
        "gravity": np.zeros(3) if "gravity" in switches else np.array(m.opt.gravity),
        "q0": np.array(m.qpos0),
        "world_geoms": geoms.get(0, []),
        "keyframes": _keyframes(m, names, kept, has_control),
        "sites": mujoco_sites.sites(m, names),
        "sensors": seen,
    }

    # forces that need the finished model
    touch, no_touch = mujoco_contact.contacts(m, order, "contact" in switches)
    tied, untied = mujoco_equalities.equalities(m, names, "equality" in switches)
    pulled, unpulled = mujoco_tendons.tendons(m, names, switches)
    wet, dry = mujoco_fluid.fluids(m, {"spring", "damper"} <= switches)  # MuJoCo's way of switching it off

    # what would act and is lost, and what is merely not read
    unsupported = driving + untied + dry + unpulled + _unsupported(m, names, switches) + lost + unread
    made = touch + tied + wet + pulled + _passive(m, names, switches)
    return Converted(bodies, arguments, unsupported, _inactive(m, switches) + no_touch + unseen + in_part, [], made)


def _disabled(m) -> set[str]:
    """Names of the option flags that are switched off."""
    mujoco = mujoco_module()
    stiff = {"limit", "frictionloss", "contact", "equality"}
    flags = stiff | {"gravity", "spring", "damper", "passive", "clampctrl", "actuation", "constraint"}
    bits = {f: getattr(mujoco.mjtDisableBit, f"mjDSBL_{f.upper()}", 0) for f in flags}
    off = {f for f, bit in bits.items() if m.opt.disableflags & int(bit)}
    return off | ({"spring", "damper"} if "passive" in off else set()) | (stiff if "constraint" in off else set())


def _body(m, i: int, names: Names, switches: set[str], geoms: list[Geom], soft: float | None) -> Body:
    first, count = int(m.body_jntadr[i]), int(m.body_jntnum[i])
    R = rotation_numpy(m.body_iquat[i])
    I = R @ np.diag(m.body_inertia[i]) @ R.T
    parent = int(m.body_parentid[i])
    return Body(
        name=names.body[i],
        mass=float(m.body_mass[i]),
        com=np.array(m.body_ipos[i]),
        inertia=0.5 * (I + I.T),
        parent=None if parent == 0 else parent - 1,
        position=np.array(m.body_pos[i]),
        quaternion=np.array(m.body_quat[i]),
        joints=[_joint(m, j, names, switches, soft) for j in range(first, first + count)],
        geoms=geoms,
    )


def _joint(m, j: int, names: Names, switches: set[str], soft: float | None) -> Joint:
    """Joint j of the compiled model; `soft`: s, the time constant of its limits, or None for MuJoCo's."""
    # its place in q and v; the degrees of freedom of one joint share their numbers
    kind = ("free", "ball", "slide", "hinge")[m.jnt_type[j]]
    scalar = kind in ("slide", "hinge")
    q, v = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
    width = {"free": 7, "ball": 4}.get(kind, 1)
    stiffness = 0.0 if "spring" in switches else float(m.jnt_stiffness[j])
    limited = bool(m.jnt_limited[j]) and kind != "free" and "limit" not in switches
    how_soft = _softness(m, j, v, turns=kind != "slide") if soft is None else {"limit_time_constant": soft}

    # what the file switches off is zero from the start
    return Joint(
        type=kind,
        name=names.joint[j],
        axis=np.array(m.jnt_axis[j]) if scalar else None,
        anchor=np.zeros(3) if kind == "free" else np.array(m.jnt_pos[j]),
        reference=float(m.qpos0[q]) if scalar else 0.0,
        stiffness=stiffness,
        spring_reference=np.array(m.qpos_spring[q : q + width]) if stiffness else None,
        damping=0.0 if "damper" in switches else float(m.dof_damping[v]),
        armature=float(m.dof_armature[v]),
        friction_loss=0.0 if "frictionloss" in switches else float(m.dof_frictionloss[v]),
        range=_within_margin(m, j, kind) if limited else None,
        **how_soft,
        effort=_effort(m, j) if scalar else None,
    )


def _softness(m, j: int, v: int, *, turns: bool) -> dict[str, float]:
    """Of the ends of its range, and of its dry friction."""
    ends, dry = (m.jnt_solref[j], m.jnt_solimp[j]), (m.dof_solref[v], m.dof_solimp[v])
    time, rubs = (float(spring_time(m, *x)[0]) for x in (ends, dry))
    end, slow = usual(time, turns=turns), usual(rubs, turns=turns)["stick_speed"]
    own = {"limit_width": end["width"], "limit_damping": end["damping"], "stick_speed": slow}
    return {"limit_time_constant": time} | {name: float(x) for name, x in own.items()}


def _within_margin(m, j: int, kind: str) -> tuple[float, float]:
    """The range of a joint, whose ends begin to act a margin before them, at most near its middle."""
    low, high = map(float, m.jnt_range[j])
    margin = min(float(m.jnt_margin[j]), 0.49 * (high - low))
    return (low, high - margin) if kind == "ball" else (low + margin, high - margin)


def _effort(m, j: int) -> float | None:
    """What both directions of a joint have, of an actuatorfrcrange or a URDF's effort."""
    effort = float(min(-m.jnt_actfrcrange[j, 0], m.jnt_actfrcrange[j, 1]))
    return effort if m.jnt_actfrclimited[j] and effort > 0 else None


def _unsupported(m, names: Names, switches: set[str]) -> list[str]:
    """Everything that would change the motion and that this library does not have."""
    out = []
    out += [refused("flex", f" {f}") for f in range(m.nflex)]
    out += mujoco_contact.moved_from_outside(m, names.body, "contact" in switches)
    held = [j for j in range(m.njnt) if m.jnt_actgravcomp[j] and m.jnt_actfrclimited[j] and np.any(m.body_gravcomp)]
    out += [refused("gravity compensation", f" through joint {names.joint[j]!r} with a force range") for j in held]
    if not m.nu and np.any(m.body_gravcomp > 0) and m.jnt_actgravcomp.any() and not m.jnt_actgravcomp.all():
        out.append(refused("gravity compensation", " through joints without an actuator, and others"))
    bent = np.flatnonzero(poly(m, "jnt_stiffnesspoly", m.njnt).any(axis=1) & (m.jnt_type <= BALL))
    out += [refused("polynomial stiffness", f" of joint {names.joint[j]!r}") for j in bent]
    if count_of(m, "nplastic", 0):
        out.append(refused("plasticity", f" ({m.nplastic} elements)"))
    out += left_over.bounded_from_afar(m, names)
    if "actuation" in switches or m.opt.disableactuator:
        out.append(refused("actuation switched off"))
    return out


def _passive(m, names: Names, switches: set[str]) -> list[Maker]:
    """Gravity compensation, polynomial springs and dampers."""
    out: list[Maker] = []
    share = {names.body[b]: float(m.body_gravcomp[b]) for b in range(1, m.nbody) if m.body_gravcomp[b]}
    if share and not _without_gravcomp(m) and not {"spring", "damper"} <= switches:  # MuJoCo's way of switching it off
        out.append(functools.partial(gravity_compensation, share=share))
    k = poly(m, "jnt_stiffnesspoly", m.njnt) * ((m.jnt_type > BALL) & ("spring" not in switches))[:, None]
    d = poly(m, "dof_dampingpoly", m.nv)[m.jnt_dofadr] * float("damper" not in switches)
    which = np.flatnonzero(k.any(axis=1) | d.any(axis=1))
    if which.size:
        rest, joints = m.qpos_spring[m.jnt_qposadr[which]], [names.joint[j] for j in which]
        how = {"stiffness": k[which], "damping": d[which], "rest": rest}
        out.append(functools.partial(joint_polynomial, joints=joints, **how))
    return out


def _without_gravcomp(m) -> str:
    """Why MuJoCo compensates no gravity, although a body asks for it; empty if it does.

    It does where one share is above 0, and through the joints whose actuators are to do it where there is an actuator.
    """
    through = m.jnt_actgravcomp.astype(bool)
    if not np.any(m.body_gravcomp) or np.all(m.body_gravcomp <= 0):
        return "none above 0" if np.any(m.body_gravcomp) else ""
    return "through joints without an actuator" if not m.nu and through.all() else ""


def _keyframes(m, names: Names, actuators: list[int], has_control: Sequence[bool]) -> dict[str, Keyframe]:
    """Those of the file, with the controls of these actuators."""
    out = {}
    for k, name in enumerate(names.key):
        control = np.array(m.key_ctrl[k])[actuators] if k >= len(has_control) or has_control[k] else None
        own = [m.actuator_actadr[a] for a in actuators if dynamics(m, a) != "none"]
        act = np.array(m.key_act[k])[own] if own else None
        out[name] = Keyframe(np.array(m.key_qpos[k]), np.array(m.key_qvel[k]), control, float(m.key_time[k]), act)
    return out


def _inactive(m, switches: set[str]) -> list[str]:
    """What is known, but exerts no force."""
    count = m.neq - int(np.sum(m.eq_active0))
    out = [idle("equality constraints that start inactive", f" ({count})")] if count else []
    why = _without_gravcomp(m)
    out += [idle("gravity compensation", f" ({why})")] if why else []
    if "contact" in switches:
        return out
    if m.opt.enableflags & int(mujoco_module().mjtEnableBit.mjENBL_OVERRIDE):
        out.append(idle("contact override", " (o_solref, o_solimp, o_margin, o_friction)"))
    return out
