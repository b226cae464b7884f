"""From MuJoCo's geoms and pairs to contact, with what stands still and between bodies.

MuJoCo's parameters are honoured as far as they mean the same here: friction coefficients, who touches whom, and how
soft a contact is (mujoco_softness.py); how fast it is damped is its own.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.contact.dispatch import MAX_CONTACTS, geoms_in_contact
from pbad_jax.contact.law import STICK
from pbad_jax.forces import Force, contact, joined
from pbad_jax.geometry import surfaces
from pbad_jax.geometry.points import ContactPoints, contact_points
from pbad_jax.importers.features import idle, refused
from pbad_jax.importers.mjcf import mujoco_module
from pbad_jax.importers.mujoco_bodies import Maker, joined_to, welded
from pbad_jax.importers.mujoco_softness import LEAST, USUAL, mixed, soft_ends, spring_time, with_end
from pbad_jax.model.model import Model

PLANE, HEIGHTS, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = range(8)
BENT = (ELLIPSOID, CYLINDER, MESH)  # against which a moving shape's points alone say little
LEAST_FRICTION = 0.01  # of which the edges of a pyramid are made; MuJoCo's own least, 1e-5, makes a wall
SOLID = (SPHERE, CAPSULE, BOX, *BENT)


def moved_from_outside(m, body_names: list[str], contact_off: bool) -> list[str]:
    """The mocap bodies that others touch, by name: a program could push by moving them.

    The others are marks without mechanics, or hold by a weld, whose target a program can move.
    """
    out, on = [], welded(m)[m.geom_bodyid]
    moving = np.flatnonzero(joined_to(m)[m.geom_bodyid] != 0)
    pairs = np.array([_ends_of(m, p) for p in range(m.npair)], int).reshape(-1, 2)
    for b in np.flatnonzero(m.body_mocapid >= 0):
        own = np.flatnonzero(on == b)
        named = pairs[np.isin(pairs, own).any(axis=1)].size
        if not contact_off and (named or any(_may_touch(m, int(g), moving).any() for g in own)):
            out.append(refused("mocap body", f" {body_names[b]!r} (others touch it; it stands still here)"))
    return out


def contacts(m, order: list[int], switched_off: bool) -> tuple[list[Maker], list[str]]:
    """Contact of the geoms that move with those that do not, one force for each of these, and with one another; losses.

    Args:
        m: mjModel. order: the geoms in the order of the model's geometry. switched_off: by the file's flags.
    """
    # the geoms that touch anything, at qpos0: those that stand still, and those that move
    mujoco = mujoco_module()
    if switched_off:
        return [], []
    touching = np.flatnonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0))
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    fixed = joined_to(m)[m.geom_bodyid[touching]] == 0
    still, moving = touching[fixed], touching[~fixed]

    # those that have an inside here, by their place in the model's geometry; what the file pairs itself
    solid = moving[np.isin(moving, order) & np.isin(m.geom_type[moving], SOLID)]
    place = {g: k for k, g in enumerate(order)}
    points: dict[int, ContactPoints] = {}  # of every shape, made once
    named = [_ends_of(m, p) for p in range(m.npair)]
    explicit = set(named)

    # every still geom as a surface that the moving ones meet by their points, one force for each
    held: list[tuple[int, int]] = []  # pairs with what stands still on a body that does
    makers: list[Maker] = []
    lost = []
    for g in still:
        partners = solid[_may_touch(m, g, solid)]
        partners = partners[[_in_order(g, h) not in explicit for h in partners]]
        if not partners.size:
            continue
        # points say little against a bent shape: as two shapes, where a body carries it
        if m.geom_type[g] in BENT and m.geom_bodyid[g] and g in place:
            held += [(int(g), int(h)) for h in partners]
            continue
        surface = _surface(m, d, g)
        if surface is None:
            kind = mujoco.mjtGeom(int(m.geom_type[g])).name.removeprefix("mjGEOM_").lower()
            lost.append(idle("contact with the", f" {kind} {_name(m, g)}"))
            continue
        # friction and softness of each pair, as MuJoCo mixes them
        on = [place[h] for h in partners]
        law = _laws_of_geoms(m, [(int(g), int(h)) for h in partners])
        makers.append(functools.partial(_contact, surface, on, law, points))

    # two shapes on bodies: the file's pairs by laws of their own, the others by those of their geoms
    chosen = [p for p, ends in enumerate(named) if _can_meet(m, ends, place)]
    pairs, masked = [named[p] for p in chosen], _pairs(m, solid, explicit)
    if pairs or masked or held:
        law = _joined_laws(_laws_of_pairs(m, chosen), _laws_of_geoms(m, masked + held))
        law = law._replace(time=law.time * _of_corners(m, pairs + masked + held))
        geoms = [(place[g], place[h]) for g, h in pairs + masked + held]
        makers.append(functools.partial(_between, geoms, law, MAX_CONTACTS + _overlapping(m)))

    # of two bodies what has no inside here is lost
    without = len(_pairs(m, moving, explicit)) - len(masked)
    if without:
        lost.append(idle("contact between bodies", f" ({without} pairs of geoms)"))

    # the file's other pairs: with a surface that stands still, or lost
    on_ground, left = _pairs_with_the_ground(m, d, [p for p in range(m.npair) if p not in chosen], place, points)
    if left:
        lost.append(idle("contact pairs", f" ({left})"))
    return makers + on_ground, lost


def _pairs_with_the_ground(m, d, pairs: list[int], place: dict[int, int], points: dict) -> tuple[list[Maker], int]:
    """Explicit pairs with a surface that stands still, one force for all of a surface; those left."""
    met: dict[int, list[int]] = {}
    geoms: dict[int, list[int]] = {}
    left = 0
    for p in pairs:
        ends = _ground_first(m, d, _ends_of(m, p), place)
        if ends is not None:
            met.setdefault(ends[0], []).append(p)
            geoms.setdefault(ends[0], []).append(place[ends[1]])
        else:
            left += _moves_at_all(m, _ends_of(m, p))
    makers: list[Maker] = [
        functools.partial(_contact, _surface(m, d, g), geoms[g], _laws_of_pairs(m, own), points)
        for g, own in met.items()
    ]
    return makers, left


def _ends_of(m, p: int) -> tuple[int, int]:
    """The geoms of an explicit pair."""
    return _in_order(m.pair_geom1[p], m.pair_geom2[p])


def _in_order(g, h) -> tuple[int, int]:
    return min(int(g), int(h)), max(int(g), int(h))


def _moves_at_all(m, ends: tuple[int, int]) -> bool:
    """Whether the geoms of a pair can move against one another."""
    on = joined_to(m)[m.geom_bodyid[np.array(ends)]]
    return bool(on[0] != on[1])


def _can_meet(m, ends: tuple[int, int], place: dict[int, int]) -> bool:
    """Whether both have an inside and are on two bodies that do not move as one."""
    g = np.array(ends)
    solid = np.isin(m.geom_type[g], SOLID) & (m.geom_bodyid[g] > 0)
    return bool(solid.all() and _moves_at_all(m, ends) and {*ends} <= place.keys())


def _ground_first(m, d, ends: tuple[int, int], place: dict[int, int]) -> tuple[int, int] | None:
    """Of an explicit pair the geom that stands still and has a surface, and that which meets it; None: no such."""
    still = joined_to(m)[m.geom_bodyid[np.array(ends)]] == 0
    if still.all() or not still.any():
        return None
    g, h = ends if still[0] else ends[::-1]
    meets = m.geom_type[h] in SOLID and h in place
    return (g, h) if meets and _surface(m, d, g) is not None else None


class _Laws(NamedTuple):
    """Of every pair: friction, that against turning (torsional, rolling) in m, time constant in s, the distance in m at
    which it begins, and the numbers of soft_ends.
    """

    friction: np.ndarray
    turning: np.ndarray
    time: np.ndarray
    margin: np.ndarray
    ends: np.ndarray


def _joined_laws(*parts: _Laws) -> _Laws:
    return _Laws(*(np.concatenate(x) for x in zip(*parts)))


def _laws_of_pairs(m, pairs: list[int]) -> _Laws:
    """Explicit pairs have their own."""
    friction, turning = _by_dimension(m.pair_dim[pairs], m.pair_friction[pairs][:, [0, 2, 3]])
    how = m.pair_solref[pairs], m.pair_solimp[pairs]
    felt = _felt(m, m.pair_geom1[pairs], m.pair_geom2[pairs], m.pair_dim[pairs], m.pair_friction[pairs][:, 0])
    margin = m.pair_margin[pairs] - _rule_of_margins()[1] * m.pair_gap[pairs]
    return _Laws(friction, turning, spring_time(m, *how), margin, soft_ends(m, *how, felt))


def _laws_of_geoms(m, pairs: list[tuple[int, int]]) -> _Laws:
    """The others mix those of their geoms."""
    g, h = np.array(pairs, int).reshape(-1, 2).T
    friction, turning, time, ends = _mixed(m, g, h)
    both, less = _rule_of_margins()
    margin = both(m.geom_margin[g], m.geom_margin[h])
    return _Laws(friction, turning, time, margin - less * both(m.geom_gap[g], m.geom_gap[h]), ends)


def _felt(m, g, h, condim: np.ndarray, friction: np.ndarray) -> np.ndarray:
    """The inertia (c,) kg that MuJoCo's contact of geoms g and h feels, all edges of a pyramid together."""
    weight = m.body_invweight0[:, 0]
    one = 1 / np.maximum(weight[m.geom_bodyid[g]] + weight[m.geom_bodyid[h]], LEAST)
    square = np.maximum(friction, LEAST_FRICTION) ** 2
    edges = (condim - 1) / (square * (1 + square))
    pyramid = m.opt.cone == mujoco_module().mjtCone.mjCONE_PYRAMIDAL
    return one * np.where(pyramid & (condim > 1), edges, 1.0)


@functools.cache
def _rule_of_margins() -> tuple[Callable, float]:
    """How the margins and gaps of two geoms make one, and whether the gap is taken off: this has changed with MuJoCo.

    So a pair of balls is asked, with margins of 1 and 2 m and a gap of 0.5 m.
    """
    mujoco = mujoco_module()
    ball = '<body><freejoint/><geom size="1" margin="{}" gap="{}"/></body>'
    text = f"<mujoco><worldbody>{ball.format(1, 0)}{ball.format(2, 0.5)}</worldbody></mujoco>"
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    begins = float(d.contact[0].includemargin)
    return (np.add if begins > 2.25 else np.maximum), (0.0 if begins in (2.0, 3.0) else 1.0)


def _of_corners(m, pairs: list[tuple[int, int]]) -> np.ndarray:
    """What τ (c,) is to be multiplied by where faces meet: there MuJoCo has a contact in each of four corners, of the
    half that two equal masses make together, and here the corners share the mass of one.
    """
    kinds = m.geom_type[np.array(pairs, int).reshape(-1, 2)]
    faces = ~(kinds == SPHERE).any(axis=1) & ~np.isin(kinds, (SPHERE, CAPSULE)).all(axis=1)
    return np.where(faces, np.sqrt(0.5), 1.0)


def _overlapping(m) -> int:
    """How many pairs of geoms touch at qpos0: in some files fingers and grippers always do."""
    mujoco = mujoco_module()
    d = mujoco.MjData(m)
    mujoco.mj_fwdPosition(m, d)
    return len({tuple(pair) for pair in d.contact.geom.tolist()})


def _between(geoms: list[tuple[int, int]], law: _Laws, most: int, model: Model) -> tuple[Force, ...]:
    how = {"margin": law.margin, "max_contacts": most, "unit": USUAL}
    made = geoms_in_contact(model, geoms, law.time, law.friction, law.turning, **how)
    return tuple(with_end(force, law.ends[own], checks.leaf(model.dtype)) for force, own in made)


def _may_touch(m, g: int, others: np.ndarray) -> np.ndarray:
    """By the masks and the excluded pairs of bodies."""
    masks = (m.geom_contype[g] & m.geom_conaffinity[others]) | (m.geom_contype[others] & m.geom_conaffinity[g])
    a, b = np.int64(m.geom_bodyid[g]), m.geom_bodyid[others].astype(np.int64)
    excluded = np.isin((np.minimum(a, b) << 16) + np.maximum(a, b), m.exclude_signature)
    return (masks != 0) & ~excluded


def _related(m, g: int, others: np.ndarray) -> np.ndarray:
    """Rigidly joined, or parent and child unless the file says otherwise: these do not touch."""
    above = joined_to(m)[m.body_parentid]
    i, j = joined_to(m)[m.geom_bodyid[g]], joined_to(m)[m.geom_bodyid[others]]
    near = m.opt.disableflags & int(mujoco_module().mjtDisableBit.mjDSBL_FILTERPARENT) == 0
    return (i == j) | (near & ((above[i] == j) | (above[j] == i)))


def _pairs(m, geoms: np.ndarray, named: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which of these touch one another, besides those that the file names."""
    out = []
    for k, g in enumerate(geoms):
        rest = geoms[k + 1 :]
        touch = rest[_may_touch(m, g, rest) & ~_related(m, g, rest)]
        out += [(int(g), int(h)) for h in touch if (int(g), int(h)) not in named]
    return out


def _name(m, g: int) -> str:
    mujoco = mujoco_module()
    return repr(mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_GEOM, g) or f"geom{g}")


def _mixed(m, g, others: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Friction, against turning too, time constant (s) and soft_ends of g with the others by MuJoCo's rules: priority,
    else max and mix.
    """
    ahead = np.where(m.geom_priority[g] >= m.geom_priority[others], g, others)
    level = m.geom_priority[g] == m.geom_priority[others]
    condim = np.where(level, np.maximum(m.geom_condim[g], m.geom_condim[others]), m.geom_condim[ahead])
    mu, mix, ref, imp = m.geom_friction, m.geom_solmix, m.geom_solref, m.geom_solimp
    friction = np.where(level[:, None], np.maximum(mu[g], mu[others]), mu[ahead])
    weight = (mix[g] + 1e-15) / (mix[g] + mix[others] + 2e-15)
    share = np.where(level, weight, (ahead == g) * 1.0)
    solref = np.where(level[:, None], mixed(ref[g], ref[others], share), ref[ahead])
    solimp = share[:, None] * imp[g] + (1 - share)[:, None] * imp[others]
    ends = soft_ends(m, solref, solimp, _felt(m, g, others, condim, friction[:, 0]))
    return *_by_dimension(condim, friction), spring_time(m, solref, solimp), ends


def _by_dimension(condim: np.ndarray, friction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of sliding, torsional, rolling friction (c,3) what condim (c,) lets act: on sliding (c,), on turning (c,2)."""
    acts = np.array([[d > 1, d > 3, d > 5] for d in condim]).reshape(-1, 3)
    return (acts * friction)[:, 0], (acts * friction)[:, 1:]


def _surface(m, d, g: int):
    """A geom that does not move as a surface, or None."""
    # its pose at qpos0, half sizes in m
    centre, R, size, kind = d.geom_xpos[g], d.geom_xmat[g].reshape(3, 3), m.geom_size[g], int(m.geom_type[g])
    if kind == PLANE:
        return surfaces.half_space(R[:, 2], float(R[:, 2] @ centre))
    if kind == SPHERE:
        return surfaces.sphere(centre, float(size[0]))
    if kind == CAPSULE:
        return surfaces.capsule(centre - size[1] * R[:, 2], centre + size[1] * R[:, 2], float(size[0]))
    if kind == CYLINDER:
        return surfaces.Cylinder(*(jnp.asarray(x) for x in (centre, R[:, 2], size[0], size[1])))
    if kind == BOX:
        return surfaces.Box(*(jnp.asarray(x) for x in (centre, R, size, 0.0)))

    # heights over a grid along the world's axes; MuJoCo's rows run along y, its columns along x
    if kind == HEIGHTS and np.allclose(R, np.eye(3)):
        k = int(m.geom_dataid[g])
        rows, columns = int(m.hfield_nrow[k]), int(m.hfield_ncol[k])
        if min(rows, columns) < 4:
            return None
        first, (x, y, z, _) = int(m.hfield_adr[k]), m.hfield_size[k]
        heights = m.hfield_data[first : first + rows * columns].reshape(rows, columns).T * z + centre[2]
        spacing = (2 * x / (columns - 1), 2 * y / (rows - 1))
        return surfaces.height_field(heights, origin=(centre[0] - x, centre[1] - y), spacing=spacing)
    return None


def _contact(surface, geoms: list[int], law: _Laws, points: dict[int, ContactPoints], model: Model):
    """The points of shapes against a surface, each shape with its own law; a margin makes its points larger."""
    for g in geoms:
        points[g] = points[g] if g in points else contact_points(model, geoms=[g])
    all_points = joined(*(points[g] for g in geoms))
    counts = [len(points[g].links) for g in geoms]
    friction, turning, time, margin, ends = (np.repeat(x, counts, axis=0) for x in law)
    radius = np.maximum(all_points.radius + margin, 0)
    held = dataclasses.replace(all_points, friction=friction, radius=radius)
    made = contact(model, surface, points=held, turning=turning, time_constant=1.0)
    leaf = checks.leaf(model.dtype)
    k, width, slow = (np.asarray(x, float) for x in (made.stiffness, made.width, STICK * np.mean(time) / USUAL))
    laws = {"stiffness": k / time**2, "width": width * time**2, "damping": USUAL / time, "stick_speed": slow}
    return with_end(dataclasses.replace(made, **{name: leaf(x) for name, x in laws.items()}), ends, leaf)
