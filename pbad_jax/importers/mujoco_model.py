"""From MuJoCo's compiled model to the arguments of `build_model`, and what is lost on the way.

For MJCF and URDF alike. The model is read once, in float64.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pbad_jax.builders.actuators import Actuator
from pbad_jax.builders.descriptions import Body, Geom, Joint
from pbad_jax.forces import gravity_compensation, joint_polynomial
from pbad_jax.importers import left_over, mujoco_forces, mujoco_sensors, mujoco_sites, mujoco_tendons
from pbad_jax.importers.features import idle, refused
from pbad_jax.importers.mjcf import Inertial, mujoco_module
from pbad_jax.importers.mujoco_softness import spring_time, usual
from pbad_jax.importers.mujoco_tendons import poly
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.keyframes import Keyframe
from pbad_jax.model.model import Mesh

FREE, BALL = 0, 1  # MuJoCo's types of joints
SITE = 4  # of transmissions


@dataclasses.dataclass
class Converted:
    """The arguments of `build_model`, and what they leave out."""

    bodies: list[Body]
    arguments: dict[str, Any]
    unsupported: list[str]
    inactive: list[str]
    notes: list[str]
    forces: list[mujoco_forces.Maker]  # (model) -> force or forces, what needs the finished model


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
    names = _Names(m)
    switches = _disabled(m)
    driving = left_over.drop_what_drives(m, names)
    unread, in_part = left_over.unread(m, names, "contact" in switches)

    # geoms by body, the model's own or those of a URDF
    if shapes is None:
        geoms, order = _geoms(m)
    else:
        geoms, order = {i: shapes.get(names.mujoco_body(i), []) for i in range(m.nbody)}, []

    # bodies with their joints, and the actuators on them; a URDF's masses replace MuJoCo's copy
    actuators, lost = _actuators(m, names, switches)
    kept = [names.actuator.index(a.name) for a in actuators]
    soft = None if shapes is None else Joint.limit_time_constant  # a URDF says nothing of how soft its limits are
    bodies = [_body(m, i, names, switches, geoms.get(i, []), soft) for i in range(1, m.nbody)]
    if inertials is not None:
        own = [inertials[names.mujoco_body(i)] for i in range(1, m.nbody)]
        bodies = [dataclasses.replace(b, **x._asdict()) for b, x in zip(bodies, own)]

    # what else `build_model` takes
    seen, unseen = mujoco_sensors.sensors(m, names, {a.name for a in actuators})
    arguments = {
        "actuators": actuators,
        "gravity": np.zeros(3) if "gravity" in switches else np.array(m.opt.gravity),
        "q0": np.array(m.qpos0),
        "world_geoms": geoms.get(0, []),
        "keyframes": _keyframes(m, names, kept, has_control),
        "sites": mujoco_sites.sites(m, names),
        "sensors": seen,
    }

    # forces that need the finished model
    touch, no_touch = mujoco_forces.contacts(m, order, "contact" in switches)
    tied, untied = mujoco_forces.equalities(m, names, "equality" in switches)
    pulled, unpulled = mujoco_tendons.tendons(m, names, switches)
    wet, dry = mujoco_forces.fluids(m, {"spring", "damper"} <= switches)  # MuJoCo's way of switching it off

    # what would act and is lost, and what is merely not read
    unsupported = driving + untied + dry + unpulled + _unsupported(m, names, switches) + lost + unread
    made = touch + tied + wet + pulled + _passive(m, names, switches)
    return Converted(bodies, arguments, unsupported, _inactive(m, switches) + no_touch + unseen + in_part, [], made)


class _Names:
    """Unique names: the file's own, else body{i}, joint{i}, ..., i counted from 0 without the world.

    Actuators without one are called after the joint, tendon or site that they act on, the first of each.
    """

    def __init__(self, m):
        mujoco = mujoco_module()
        kind = mujoco.mjtObj

        def given(what, count):
            return [mujoco.mj_id2name(m, what, i) or "" for i in range(count)]

        self._given_bodies = given(kind.mjOBJ_BODY, m.nbody)
        self.body = [""] + _filled(self._given_bodies[1:], "body")
        self.joint = _filled(given(kind.mjOBJ_JOINT, m.njnt), "joint")
        self.key = _filled(given(kind.mjOBJ_KEY, m.nkey), "key")
        self.tendon = _filled(given(kind.mjOBJ_TENDON, m.ntendon), "tendon")
        self.site = _filled(given(kind.mjOBJ_SITE, m.nsite), "site")
        own = given(kind.mjOBJ_ACTUATOR, _count(m, "nactuator", m.nu))
        self.actuator = _filled(self._after_what_they_move(m, own), "actuator")
        self.sensor = _filled(given(kind.mjOBJ_SENSOR, m.nsensor), "sensor")

    def _after_what_they_move(self, m, own: list[str]) -> list[str]:
        kinds = mujoco_module().mjtTrn
        named = {
            int(kinds.mjTRN_JOINT): self.joint,
            int(kinds.mjTRN_JOINTINPARENT): self.joint,
            int(kinds.mjTRN_TENDON): self.tendon,
            int(kinds.mjTRN_SITE): self.site,
        }
        out = list(own)
        for i, name in enumerate(own):
            kind, target = int(m.actuator_trntype[i]), int(m.actuator_trnid[i, 0])
            if not name and kind in named and named[kind][target] not in out:
                out[i] = named[kind][target]
        return out

    def mujoco_body(self, i: int) -> str:
        return self._given_bodies[i]


def _filled(names: list[str], prefix: str) -> list[str]:
    taken = set(names)
    out = []
    for i, name in enumerate(names):
        name = name or f"{prefix}{i}"
        while not names[i] and name in taken:
            name += "_"
        taken.add(name)
        out.append(name)
    return out


def _count(m, field: str, default: int) -> int:
    return int(getattr(m, field, default))


def _disabled(m) -> set[str]:
    """Names of the option flags that are switched off."""
    mujoco = mujoco_module()
    stiff = {"limit", "frictionloss", "contact", "equality"}
    flags = stiff | {"gravity", "spring", "damper", "passive", "clampctrl", "actuation", "constraint"}
    bits = {f: getattr(mujoco.mjtDisableBit, f"mjDSBL_{f.upper()}", 0) for f in flags}
    off = {f for f, bit in bits.items() if m.opt.disableflags & int(bit)}
    return off | ({"spring", "damper"} if "passive" in off else set()) | (stiff if "constraint" in off else set())


def _body(m, i: int, names: _Names, switches: set[str], geoms: list[Geom], soft: float | None) -> Body:
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


def _joint(m, j: int, names: _Names, switches: set[str], soft: float | None) -> Joint:
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


def _actuators(m, names: _Names, switches: set[str]) -> tuple[list[Actuator], list[str]]:
    """Affine actuators on joints, tendons and sites; the others by name and reason."""
    # which joint each acts on, −1 for tendons and sites
    count = _count(m, "nactuator", m.nu)
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
    kind = _dynamics(m, a)
    if kind == "none":
        return {}
    bounds = _range(m.actuator_actlimited[a], m.actuator_actrange[a])
    how = {"integrates": True} if kind == "integrator" else {"time_constant": float(m.actuator_dynprm[a, 0])}
    return {"activation_range": bounds, **how}


def _dynamics(m, a: int) -> str:
    return mujoco_sites.word("mjtDyn", m.actuator_dyntype[a])


def _else(m, a: int, names: _Names) -> Any:
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
    if _dynamics(m, a) not in ("none", "integrator", "filter", "filterexact"):
        return refused("activation dynamics", f" ({_dynamics(m, a)})")
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


def _unsupported(m, names: _Names, switches: set[str]) -> list[str]:
    """Everything that would change the motion and that this library does not have."""
    out = []
    out += [refused("flex", f" {f}") for f in range(m.nflex)]
    out += mujoco_forces.moved_from_outside(m, names.body, "contact" in switches)
    held = [j for j in range(m.njnt) if m.jnt_actgravcomp[j] and m.jnt_actfrclimited[j] and np.any(m.body_gravcomp)]
    out += [refused("gravity compensation", f" through joint {names.joint[j]!r} with a force range") for j in held]
    bent = np.flatnonzero(poly(m, "jnt_stiffnesspoly", m.njnt).any(axis=1) & (m.jnt_type <= BALL))
    out += [refused("polynomial stiffness", f" of joint {names.joint[j]!r}") for j in bent]
    if _count(m, "nplastic", 0):
        out.append(refused("plasticity", f" ({m.nplastic} elements)"))
    out += left_over.bounded_from_afar(m, names)
    if "actuation" in switches or m.opt.disableactuator:
        out.append(refused("actuation switched off"))
    return out


def _passive(m, names: _Names, switches: set[str]) -> list[mujoco_forces.Maker]:
    """Gravity compensation, polynomial springs and dampers."""
    out: list[mujoco_forces.Maker] = []
    share = {names.body[b]: float(m.body_gravcomp[b]) for b in range(1, m.nbody) if m.body_gravcomp[b]}
    if share and not {"spring", "damper"} <= switches:  # MuJoCo's way of switching it off
        out.append(functools.partial(gravity_compensation, share=share))
    k = poly(m, "jnt_stiffnesspoly", m.njnt) * ((m.jnt_type > BALL) & ("spring" not in switches))[:, None]
    d = poly(m, "dof_dampingpoly", m.nv)[m.jnt_dofadr] * float("damper" not in switches)
    which = np.flatnonzero(k.any(axis=1) | d.any(axis=1))
    if which.size:
        rest, joints = m.qpos_spring[m.jnt_qposadr[which]], [names.joint[j] for j in which]
        how = {"stiffness": k[which], "damping": d[which], "rest": rest}
        out.append(functools.partial(joint_polynomial, joints=joints, **how))
    return out


def _keyframes(m, names: _Names, actuators: list[int], has_control: Sequence[bool]) -> dict[str, Keyframe]:
    """Those of the file, with the controls of these actuators."""
    out = {}
    for k, name in enumerate(names.key):
        control = np.array(m.key_ctrl[k])[actuators] if k >= len(has_control) or has_control[k] else None
        own = [m.actuator_actadr[a] for a in actuators if _dynamics(m, a) != "none"]
        act = np.array(m.key_act[k])[own] if own else None
        out[name] = Keyframe(np.array(m.key_qpos[k]), np.array(m.key_qvel[k]), control, float(m.key_time[k]), act)
    return out


def _inactive(m, switches: set[str]) -> list[str]:
    """What is known, but exerts no force."""
    count = m.neq - int(np.sum(m.eq_active0))
    out = [idle("equality constraints that start inactive", f" ({count})")] if count else []
    if "contact" in switches:
        return out
    if m.opt.enableflags & int(mujoco_module().mjtEnableBit.mjENBL_OVERRIDE):
        out.append(idle("contact override", " (o_solref, o_solimp, o_margin, o_friction)"))
    return out


# --- geoms -------------------------------------------------------------------------------------------------


def _geoms(m) -> tuple[dict[int, list[Geom]], list[int]]:
    """Geoms by body, and their numbers in the order of the model: by bodies, the world's last.

    Those of groups 3 to 5, which MuJoCo hides by default, get alpha 0. A height field is only a surface.
    """
    # a mesh is read once, however many geoms show it
    types = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: "mesh", 8: "mesh"}
    meshes: dict[int, Mesh] = {}
    out: dict[int, list[Geom]] = {}
    number: dict[int, list[int]] = {}
    for g in range(m.ngeom):
        # kinds without a shape here, as height fields, have no place in the order
        kind, mesh = types.get(int(m.geom_type[g])), None
        if kind is None:
            continue
        if kind == "mesh":
            k = int(m.geom_dataid[g])
            mesh = meshes[k] = meshes.get(k) or _mesh(m, k)
        # masks say here whether it touches anything; which pairs do is for mujoco_forces.contacts
        geom = Geom(
            type=kind,
            size=np.zeros(3) if mesh else np.maximum(m.geom_size[g], 0),
            position=np.array(m.geom_pos[g]),
            quaternion=np.array(m.geom_quat[g]),
            rgba=_colour(m, g),
            friction=np.array(m.geom_friction[g]),
            mesh=mesh,
            touches=bool(m.geom_contype[g] or m.geom_conaffinity[g]),
        )
        out.setdefault(int(m.geom_bodyid[g]), []).append(geom)
        number.setdefault(int(m.geom_bodyid[g]), []).append(g)

    # numbers in the order in which build_model lays out the geometry
    return out, [g for b in [*range(1, m.nbody), 0] for g in number.get(b, [])]


def _colour(m, g: int) -> np.ndarray:
    rgba, material = np.array(m.geom_rgba[g], float), int(m.geom_matid[g])
    if material >= 0 and np.array_equal(m.geom_rgba[g], np.array([0.5, 0.5, 0.5, 1], np.float32)):
        rgba = np.array(m.mat_rgba[material], float)
    if m.geom_group[g] >= 3:
        rgba[3] = 0
    return rgba


def _mesh(m, k: int) -> Mesh:
    v, f = int(m.mesh_vertadr[k]), int(m.mesh_faceadr[k])
    vertices = np.array(m.mesh_vert[v : v + m.mesh_vertnum[k]])
    return Mesh(vertices, np.array(m.mesh_face[f : f + m.mesh_facenum[k]]))
