"""What the importer leaves of a compiled model: numbers that would create energy, and attributes read in part.

Whatever MuJoCo lets act and nothing here reads is named, where it is not what MuJoCo has by default. `attributes.py` is
the table of all attributes.
"""

import numpy as np

from pbad_jax.importers.features import idle, refused
from pbad_jax.importers.mjcf import mujoco_module

SHAPE = (0.001, 0.5, 2.0)  # of solimp: width, midpoint, power
SOLREF, SOLIMP = (0.02, 1.0), (0.9, 0.95, *SHAPE)
BELOW_ZERO = {  # attribute: the fields of joints, their degrees of freedom, and tendons
    "damping": ("dof_damping", "dof_dampingpoly", "tendon_damping", "tendon_dampingpoly"),
    "friction": ("dof_frictionloss", "tendon_frictionloss"),
    "stiffness": ("jnt_stiffness", "tendon_stiffness"),
    "armature": ("dof_armature",),
}


def drop_what_drives(m, names) -> list[str]:
    """Set numbers below zero that would create energy to 0, in the mjModel; by name what was."""
    out = []
    for words, fields in BELOW_ZERO.items():
        for field in fields:
            values = _of(m, field)
            for k in np.flatnonzero((values < 0).any(axis=tuple(range(1, values.ndim)))):
                kind = field.split("_")[0]
                owner = names.tendon[k] if kind == "tendon" else names.joint[m.dof_jntid[k] if kind == "dof" else k]
                text = f" of {'tendon' if kind == 'tendon' else 'joint'} {owner!r} is {np.min(values[k]):g}"
                out.append(refused(words, f"{text}; below 0 energy is created"))
                values[k] = np.maximum(values[k], 0)
    return list(dict.fromkeys(out))


def unread(m, names, contact_off: bool) -> tuple[list[str], list[str]]:
    """What is refused, and what is carried, of attributes that are not read or read in part."""
    # geoms that stick or whose surface moves would push differently: refused
    no, idly = [], []
    sticky = (
        0 if contact_off else int(np.count_nonzero(_of(m, "geom_adhesion")) + np.count_nonzero(_of(m, "pair_adhesion")))
    )
    moving = 0 if contact_off else int(np.count_nonzero(_of(m, "geom_surfacevel").any(axis=-1)))
    no += [refused("adhesion", f" ({sticky} geoms or pairs)")] * bool(sticky)
    no += [refused("moving surfaces", f" ({moving} geoms)")] * bool(moving)

    # carried with less: friction that differs along two directions, where condim lets it act
    mu, dim = m.pair_friction, m.pair_dim
    two = ((mu[:, 0] != mu[:, 1]) & (dim > 1)) | ((mu[:, 3] != mu[:, 4]) & (dim > 5))
    if two.any() and not contact_off:
        idly.append(idle("friction in two directions", f" ({two.sum()} contact pairs; the first acts in both)"))

    # activations that act a step early, of actuators that have one
    early = np.flatnonzero(_of(m, "actuator_actearly") & (m.actuator_dyntype != 0))
    if early.size:
        idly.append(idle("actearly", " of " + _listed([names.actuator[a] for a in early])))

    # attributes of constraints of which only some numbers are read
    parts = [text for text in (*_softness(m, contact_off), *_others(m, contact_off)) if text]
    if parts:
        idly.append(idle("read in part", ": " + "; ".join(parts)))
    return no, idly


def _of(m, field: str) -> np.ndarray:
    """A field, zeros where this MuJoCo has it not."""
    return getattr(m, field, np.zeros((0, 1)))


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:6])) + ", ..." * (len(names) > 6)


def _softness(m, contact_off: bool) -> list[str]:
    """solref, of which only the softness acts, and solimp, of which only the first two numbers do, of what is soft."""
    # of all soft constraints that act: solref, solimp
    touching = (m.geom_contype != 0) | (m.geom_conaffinity != 0)
    soft = {
        "joints": (m.jnt_solref, m.jnt_solimp, m.jnt_limited != 0),
        "tendons": (m.tendon_solref_lim, m.tendon_solimp_lim, m.tendon_limited != 0),
        "equalities": (m.eq_solref, m.eq_solimp, m.eq_active0 != 0),
    }
    if not contact_off:
        soft["geoms"] = (m.geom_solref, m.geom_solimp, touching)
        soft["pairs"] = (m.pair_solref, m.pair_solimp, np.full(m.npair, True))

    # said where damping is not critical, or the impedance grows otherwise than by default
    out = []
    for owner, (ref, imp, acts) in soft.items():
        damped = acts & ~_critical(ref)
        bent = acts & (imp[:, 0] != imp[:, 1]) & ~np.isclose(imp[:, 2:], SHAPE).all(axis=1)
        out += [f"solref of {damped.sum()} {owner}, without its damping"] * bool(damped.any())
        out += [f"solimp of {bent.sum()} {owner}, 2 of 5 numbers"] * bool(bent.any())
    return out


def _critical(ref: np.ndarray) -> np.ndarray:
    """Which rows of solref (n,2) are damped critically, as all is here."""
    first, second = ref.T
    direct = np.isclose(-second, 2 * np.sqrt(np.maximum(-first, 0)), rtol=1e-3)
    return np.where(first > 0, np.isclose(second, 1, rtol=1e-3), direct)


def _others(m, contact_off: bool) -> list[str]:
    """Attributes that only say how MuJoCo's solver goes about it, of what acts."""
    # dry friction with a softness of its own; welds that weigh turning otherwise than moving
    weld = int(mujoco_module().mjtEq.mjEQ_WELD)
    torque = (m.eq_type == weld) & (m.eq_active0 != 0) & (m.eq_data[:, 10] != 1)
    dry = [
        (m.dof_frictionloss, m.dof_solref, m.dof_solimp, "degrees of freedom"),
        (m.tendon_frictionloss, m.tendon_solref_fri, m.tendon_solimp_fri, "tendons"),
    ]
    out = []
    for loss, ref, imp, owner in dry:
        own = (loss > 0) & ~(np.isclose(ref, SOLREF).all(axis=1) & np.isclose(imp, SOLIMP).all(axis=1))
        out.append(f"solreffriction and solimpfriction of {own.sum()} {owner}, not read" if own.any() else "")
    out.append(f"torquescale of {torque.sum()} welds, not read" if torque.any() else "")

    # keyframes may move mocap bodies, which stand still here
    mocap = np.flatnonzero(m.body_mocapid >= 0)
    place, turn = (x[mocap].ravel() for x in (m.body_pos, m.body_quat))  # in the order of mocapid
    moved = mocap.size and not (np.isclose(m.key_mpos, place).all() and np.isclose(m.key_mquat, turn).all())
    out.append("mpos and mquat of keyframes, not read" if moved else "")

    # of contact: softness along the tangents, and its ratio to that along the normal
    if not contact_off:
        own = m.pair_solreffriction.any(axis=1)
        out.append(f"solreffriction of {own.sum()} pairs, not read" if own.any() else "")
        touching = m.npair or ((m.geom_contype != 0) | (m.geom_conaffinity != 0)).any()
        out.append(f"impratio {m.opt.impratio:g}, not read" if m.opt.impratio != 1 and touching else "")
    return out


def bounded_from_afar(m, names) -> list[str]:
    """Joints whose actuatorfrcrange bounds what tendons or sites pull them with, which here nothing does."""
    # which joints bound what all actuators together pull them with
    mujoco = mujoco_module()
    joints = np.flatnonzero(m.jnt_actfrclimited)
    if not joints.size:
        return []

    # a site pulls all joints above its body; a tendon its own joints, or those above its sites
    pulled: set[int] = set()
    for a in range(len(m.actuator_trntype)):
        kind, k = int(m.actuator_trntype[a]), int(m.actuator_trnid[a, 0])
        if kind == int(mujoco.mjtTrn.mjTRN_SITE):
            pulled |= _above(m, int(m.site_bodyid[k]))
        elif kind == int(mujoco.mjtTrn.mjTRN_TENDON):
            rows = range(int(m.tendon_adr[k]), int(m.tendon_adr[k] + m.tendon_num[k]))
            for w in rows:
                what, i = int(m.wrap_type[w]), int(m.wrap_objid[w])
                pulled |= {i} if what == int(mujoco.mjtWrap.mjWRAP_JOINT) else set()
                pulled |= _above(m, int(m.site_bodyid[i])) if what == int(mujoco.mjtWrap.mjWRAP_SITE) else set()

    # where these meet, the bound is lost
    held = [names.joint[j] for j in joints if j in pulled]
    return [refused("actuatorfrcrange", f" of joint {name!r}, which tendons or sites pull") for name in held]


def _above(m, body: int) -> set[int]:
    """The joints that move a body."""
    out: set[int] = set()
    while body:
        out |= set(range(int(m.body_jntadr[body]), int(m.body_jntadr[body] + m.body_jntnum[body])))
        body = int(m.body_parentid[body])
    return out
