"""From MuJoCo's compiled model to forces: contact with what does not move, equality constraints, fluid.

A force needs the finished model, so every function here returns makers, (model) -> force, and what it leaves out.
MuJoCo's contact and constraint parameters are honoured as far as they mean the same here: friction coefficients, time
constants, who touches whom. Its impedances, margins and damping ratios are its own.
"""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from pbad_jax import atom_parallel, kinematics
from pbad_jax.forces import (
    JointCoupling,
    connect,
    contact,
    contact_points,
    inertia_boxes,
    joined,
    surfaces,
    weld,
)
from pbad_jax.forces.touching_points import ContactPoints
from pbad_jax.io.mjcf import mujoco_module, rotation
from pbad_jax.model import Model

Maker = Callable[[Model], object]
PLANE, HEIGHTS, SPHERE, CAPSULE, BOX = 0, 1, 2, 3, 6


def contacts(m, order: list[int], switched_off: bool) -> tuple[list[Maker], list[str]]:
    """Contact of the geoms that move with those that do not, one force for each of these; and what is left out.

    Args:
        m: mjModel. order: the geoms in the order of the model's geometry. switched_off: by the file's flags.
    """
    mujoco = mujoco_module()
    touching = [g for g in range(m.ngeom) if m.geom_contype[g] or m.geom_conaffinity[g]]
    if switched_off or not touching:
        return [], []
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    still = [g for g in touching if m.body_weldid[m.geom_bodyid[g]] == 0]
    moving = [g for g in touching if m.body_weldid[m.geom_bodyid[g]] != 0]
    makers: list[Maker] = []
    lost = []
    for g in still:
        partners = [h for h in moving if _may_touch(m, g, h) and h in order]
        if not partners:
            continue
        surface = _surface(m, d, g)
        if surface is None:
            kind = mujoco.mjtGeom(int(m.geom_type[g])).name.removeprefix("mjGEOM_").lower()
            lost.append(f"contact with the {kind} {_name(m, g)}")
            continue
        settings = [_mixed(m, g, h) for h in partners]
        makers.append(functools.partial(_contact, surface, [order.index(h) for h in partners], settings))
    pairs = sum(
        _may_touch(m, a, b) and m.geom_bodyid[a] != m.geom_bodyid[b] and not _related(m, a, b)
        for i, a in enumerate(moving)
        for b in moving[i + 1 :]
    )
    if pairs:
        lost.append(f"contact between bodies ({pairs} pairs of geoms)")
    if m.npair:
        lost.append(f"contact pairs ({m.npair})")
    return makers, lost


def _may_touch(m, g: int, h: int) -> bool:
    return bool((m.geom_contype[g] & m.geom_conaffinity[h]) | (m.geom_contype[h] & m.geom_conaffinity[g]))


def _related(m, a: int, b: int) -> bool:
    """Parent and child do not touch."""
    i, j = (int(m.body_weldid[m.geom_bodyid[g]]) for g in (a, b))
    return i == j or m.body_weldid[m.body_parentid[i]] == j or m.body_weldid[m.body_parentid[j]] == i


def _name(m, g: int) -> str:
    mujoco = mujoco_module()
    return repr(mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_GEOM, g) or f"geom{g}")


def _mixed(m, g: int, h: int) -> tuple[float, float]:
    """Friction and time constant of a pair, by MuJoCo's rules."""
    first = g if m.geom_priority[g] >= m.geom_priority[h] else h
    slippery = max(m.geom_condim[g], m.geom_condim[h]) == 1
    if m.geom_priority[g] != m.geom_priority[h]:
        friction, tau = m.geom_friction[first, 0], m.geom_solref[first, 0]
        slippery = m.geom_condim[first] == 1
    else:
        friction = max(m.geom_friction[g, 0], m.geom_friction[h, 0])
        weight = m.geom_solmix[g] / max(m.geom_solmix[g] + m.geom_solmix[h], 1e-15)
        tau = weight * m.geom_solref[g, 0] + (1 - weight) * m.geom_solref[h, 0]
    return 0.0 if slippery else float(friction), float(tau) if tau > 0 else 0.02


def _surface(m, d, g: int):
    """A geom that does not move as a surface, or None."""
    centre, R, size, kind = d.geom_xpos[g], d.geom_xmat[g].reshape(3, 3), m.geom_size[g], int(m.geom_type[g])
    if kind == PLANE:
        return surfaces.half_space(R[:, 2], float(R[:, 2] @ centre))
    if kind == SPHERE:
        return surfaces.sphere(centre, float(size[0]))
    if kind == CAPSULE:
        return surfaces.capsule(centre - size[1] * R[:, 2], centre + size[1] * R[:, 2], float(size[0]))
    if kind == BOX:
        return surfaces.Block(*(jnp.asarray(x) for x in (centre, R, size, 0.0)))
    if kind == HEIGHTS and np.allclose(R, np.eye(3)):
        k = int(m.geom_dataid[g])
        rows, columns = int(m.hfield_nrow[k]), int(m.hfield_ncol[k])
        first, (x, y, z, _) = int(m.hfield_adr[k]), m.hfield_size[k]
        heights = m.hfield_data[first : first + rows * columns].reshape(rows, columns).T * z + centre[2]
        spacing = (2 * x / (columns - 1), 2 * y / (rows - 1))
        return surfaces.height_field(heights, origin=(centre[0] - x, centre[1] - y), spacing=spacing)
    return None


def _contact(surface, geoms: list[int], settings: list[tuple[float, float]], model: Model):
    parts = [contact_points(model, geoms=[g]) for g in geoms]
    count = [len(p.links) for p in parts]
    points = joined(*parts)
    friction = np.repeat([mu for mu, _ in settings], count)
    points = ContactPoints(points.links, points.position, points.radius, friction, points.names)
    return contact(model, surface, points=points, time_constant=float(np.mean([tau for _, tau in settings])))


# --- equality constraints ----------------------------------------------------------------------------------


def equalities(m, body_names: list[str]) -> tuple[list[Maker], list[str]]:
    """Connections, welds and joint equalities that start active; the others by name."""
    mujoco = mujoco_module()
    makers: list[Maker] = []
    lost, joint = [], []
    for e in range(m.neq):
        if not m.eq_active0[e]:
            continue
        kind = mujoco.mjtEq(int(m.eq_type[e])).name.removeprefix("mjEQ_").lower()
        name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_EQUALITY, e) or e
        on_bodies = int(m.eq_objtype[e]) == int(mujoco.mjtObj.mjOBJ_BODY)
        if kind == "joint":
            joint.append(e)
        elif kind in ("connect", "weld") and on_bodies and _is_met(m, e, kind):
            makers.append(functools.partial(_attachment, kind, *_ends(m, e, kind, body_names), _tau(m, e)))
        else:
            lost.append(f"equality {name!r} ({kind})")
    if joint:
        makers.append(functools.partial(_couplings, _coupling_data(m, joint)))
    return makers, lost


def _is_met(m, e: int, kind: str) -> bool:
    """Whether a weld holds the pose of qpos0, which is the one that is held here."""
    if kind == "connect":
        return True
    mujoco = mujoco_module()
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
    R_a, R_b = (d.xmat[i].reshape(3, 3) for i in (a, b))
    wanted_position, wanted = m.eq_data[e, 3:6], rotation(m.eq_data[e, 6:10])
    anchor = m.eq_data[e, :3]  # in the frame of the second body
    there = R_a.T @ (d.xpos[b] + R_b @ anchor - d.xpos[a])
    return bool(np.allclose(R_a.T @ R_b, wanted, atol=1e-6) and np.allclose(there, wanted_position, atol=1e-6))


def _tau(m, e: int) -> float:
    tau = float(m.eq_solref[e, 0])
    return tau if tau > 0 else 1 / np.sqrt(max(-tau, 1e-12))


def _ends(m, e: int, kind: str, names: list[str]) -> tuple:
    """Body, other body (None: the world), and a point of each; a weld's other point is where the first is at q0."""
    a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
    if kind == "weld":
        return (names[b], names[a] if a else None, m.eq_data[e, :3], None) if b else (names[a], None, np.zeros(3), None)
    p, q = m.eq_data[e, :3], m.eq_data[e, 3:6]
    return (names[a], names[b] if b else None, p, q) if a else (names[b], None, q, p)


def _attachment(kind: str, body: str, other: str | None, point, other_point, tau: float, model: Model):
    make = connect if kind == "connect" else weld
    return make(model, body, other, point=point, other_point=other_point, time_constant=tau)


def _coupling_data(m, rows: list[int]) -> dict:
    q, v, offset, time = [], [], [], []
    for e in rows:
        a, b = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        q.append((int(m.jnt_qposadr[a]), int(m.jnt_qposadr[b]) if b >= 0 else -1))
        v.append((int(m.jnt_dofadr[a]), int(m.jnt_dofadr[b]) if b >= 0 else -1))
        offset.append((m.qpos0[q[-1][0]], m.qpos0[q[-1][1]] if b >= 0 else 0.0))
        time.append(_tau(m, e))
    return {"q": tuple(q), "v": tuple(v), "offset": offset, "polynomial": m.eq_data[rows, :5], "time": time}


def _couplings(data: dict, model: Model) -> JointCoupling:
    inertia = 1.0 / np.maximum(np.asarray(_inverse_inertia(model)), 1e-12)
    k = np.array([inertia[v[0]] for v in data["v"]]) / np.array(data["time"]) ** 2
    damping = 2 * np.sqrt(k * np.array([inertia[v[0]] for v in data["v"]]))

    def leaf(x):
        return jnp.asarray(np.asarray(x, float), model.dtype)

    return JointCoupling(leaf(data["offset"]), leaf(data["polynomial"]), leaf(k), leaf(damping), data["q"], data["v"])


def _inverse_inertia(model: Model):
    """The diagonal of the inverse of the mass matrix at q0."""
    mass = atom_parallel.mass_matrix(model, kinematics.frames(model, model.q0))
    return np.diag(np.linalg.inv(np.asarray(mass, float)))


# --- fluid -------------------------------------------------------------------------------------------------


def fluids(m) -> tuple[list[Maker], list[str]]:
    """MuJoCo's inertia boxes; its ellipsoids by name."""
    density, viscosity = float(m.opt.density), float(m.opt.viscosity)
    if not density and not viscosity:
        return [], []
    own = [g for g in range(m.ngeom) if m.geom_fluid[g, 0] > 0]
    if own:
        return [], [f"fluid by ellipsoids ({len(own)} geoms), density {density:g}, viscosity {viscosity:g}"]
    return [lambda model: inertia_boxes(model, density, viscosity, np.array(m.opt.wind))], []
