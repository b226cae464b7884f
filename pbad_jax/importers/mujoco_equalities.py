"""From MuJoCo's equality constraints to stiff springs: connections, welds, couplings of joints and tendons."""

import dataclasses
import functools

import jax
import numpy as np

from pbad_jax import checks
from pbad_jax.atom import parallel
from pbad_jax.forces import Force, Tendons, connect, weld
from pbad_jax.importers import mujoco_tendons
from pbad_jax.importers.features import refused
from pbad_jax.importers.mjcf import mujoco_module
from pbad_jax.importers.mujoco_bodies import Maker, joined_to, welded
from pbad_jax.importers.mujoco_softness import spring_time
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.reference import carried, reference_transforms
from pbad_jax.laws.tendons import coupled
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.model import Model


def equalities(m, names, switched_off: bool) -> tuple[list[Maker], list[str]]:
    """Connections, welds and equalities of joints and tendons that start active; the others by name."""
    # those that start active, by kind
    mujoco = mujoco_module()
    if switched_off:
        return [], []
    makers: list[Maker] = []
    lost, joint, tendon = [], [], []
    for e in range(m.neq):
        if not m.eq_active0[e]:
            continue
        kind = mujoco.mjtEq(int(m.eq_type[e])).name.removeprefix("mjEQ_").lower()
        name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_EQUALITY, e) or e
        on_bodies = int(m.eq_objtype[e]) == int(mujoco.mjtObj.mjOBJ_BODY)

        # joints and tendons are gathered, so that one force serves all of a kind
        if kind == "joint":
            joint.append(e)
        elif kind == "tendon":
            why = mujoco_tendons.why_not_coupled(m, e)
            if why:
                lost.append(refused("equality", f" {name!r} ({why})"))
            else:
                tendon.append(e)
        elif kind in ("connect", "weld") and on_bodies and _is_met(m, e, kind):
            # points and poses of two bodies, each a force of its own
            if joined_to(m)[m.eq_obj1id[e]] == joined_to(m)[m.eq_obj2id[e]]:
                continue  # of what cannot move apart
            make = _connect if kind == "connect" else _weld
            makers.append(functools.partial(make, *_ends(m, e, kind, names.body), _tau(m, e)))
        else:
            lost.append(refused("equality", f" {name!r} ({kind})"))

    # all couplings of joints as one force, those of tendons as one for either kind
    if joint:
        makers.append(functools.partial(_couplings, _coupling_data(m, joint)))
    return makers + mujoco_tendons.couplings(m, tendon, names), lost


def _is_met(m, e: int, kind: str) -> bool:
    """Whether a weld holds the pose of qpos0, which is the one that is held here."""
    if kind == "connect":
        return True
    mujoco = mujoco_module()
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
    R_a, R_b = (d.xmat[i].reshape(3, 3) for i in (a, b))
    wanted_position, wanted = m.eq_data[e, 3:6], rotation_numpy(m.eq_data[e, 6:10])
    anchor = m.eq_data[e, :3]  # in the frame of the second body
    there = R_a.T @ (d.xpos[b] + R_b @ anchor - d.xpos[a])
    return bool(np.allclose(R_a.T @ R_b, wanted, atol=1e-6) and np.allclose(there, wanted_position, atol=1e-6))


def _tau(m, e: int) -> float:
    return float(spring_time(m, m.eq_solref[e], m.eq_solimp[e])[0])


def _ends(m, e: int, kind: str, names: list[str]) -> tuple:
    """Body, other body (None: the world), and of a connection the point of each."""
    a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
    p, q = m.eq_data[e, :3], m.eq_data[e, 3:6]
    a, p = _in_world(m, a, p)
    b, q = _in_world(m, b, q)
    found = (names[a], names[b] if b else None, p, q) if a else (names[b], None, q, p)
    return found if kind == "connect" else found[:2]


def _in_world(m, body: int, point: np.ndarray) -> tuple[int, np.ndarray]:
    """A point of a mocap body as one of the world, where it stands at qpos0; of others as it is."""
    if m.body_mocapid[welded(m)[body]] < 0:
        return body, point
    mujoco = mujoco_module()
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    return 0, d.xpos[body] + d.xmat[body].reshape(3, 3) @ point


def _connect(body: str, other: str | None, point, other_point, tau: float, model: Model):
    return connect(model, body, other, point=point, other_point=other_point, time_constant=tau)


def _weld(body: str, other: str | None, tau: float, model: Model):
    """At the centre of mass of the lighter side, with its radius of gyration as the lever: all stiffness is 1/τ²."""
    t = model.topology
    link = t.body_link[t.body_names.index(body)]
    sides = [link] if other is None else [link, t.body_link[t.body_names.index(other)]]
    moments = [S for S in (carried(model, l) for l in sides) if S is not None]
    S = min(moments, key=lambda S: S[3, 3])
    centre, spread = S[:3, 3] / S[3, 3], np.trace(S[:3, :3]) / S[3, 3]
    places = reference_transforms(model)
    T = places[link]
    least = 1e-3 * (np.linalg.norm(np.ptp(places[:, :, 3], axis=0)) or 1.0)  # of the model's size
    lever = max(np.sqrt(max(spread - centre @ centre, 0.0)), least)
    return weld(model, body, other, point=T[:, :3].T @ (centre - T[:, 3]), lever=lever, time_constant=tau)


def _coupling_data(m, rows: list[int]) -> dict:
    q, v, offset, time = [], [], [], []
    for e in rows:
        a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        q.append((int(m.jnt_qposadr[a]), int(m.jnt_qposadr[b]) if b >= 0 else -1))
        v.append((int(m.jnt_dofadr[a]), int(m.jnt_dofadr[b]) if b >= 0 else -1))
        offset.append((m.qpos0[q[-1][0]], m.qpos0[q[-1][1]] if b >= 0 else 0.0))
        time.append(_tau(m, e))
    return {"q": tuple(q), "v": tuple(v), "offset": offset, "polynomial": m.eq_data[rows, :5], "time": time}


def _couplings(data: dict, model: Model) -> Force:
    inertia = 1.0 / np.maximum(np.asarray(_inverse_inertia(model)), 1e-12)
    k = np.array([inertia[v[0]] for v in data["v"]]) / np.array(data["time"]) ** 2
    damping = 2 * np.sqrt(k * np.array([inertia[v[0]] for v in data["v"]]))

    leaf = checks.leaf(model.dtype)
    rows = np.eye(model.nv + 1)[np.array(data["v"]), :-1]  # (n,2,nv), zero where there is no second joint
    one, other = (Tendons(leaf(rows[:, i]), of="Joint") for i in range(2))
    how = {"offset": data["offset"], "polynomial": data["polynomial"], "stiffness": k, "damping": damping}
    return coupled(one, other, leaf=leaf, **how)


def _inverse_inertia(model: Model):
    """The diagonal of the inverse of the mass matrix at q0."""
    mass = _mass_at_q0(dataclasses.replace(model, forces=()))
    return np.diag(np.linalg.inv(np.asarray(mass, float)))


@jax.jit
def _mass_at_q0(model: Model) -> jax.Array:
    return parallel.mass_matrix(model, transforms.frames(model, model.q0))
