"""From MuJoCo's compiled model to forces along tendons, fixed or straight between sites; others by name."""

import functools
from typing import Any

import numpy as np

from pbad_jax import checks
from pbad_jax.forces import Force, tendon_coupling, tendon_friction, tendon_limit, tendon_polynomial, tendon_spring
from pbad_jax.importers.features import refused
from pbad_jax.importers.mjcf import mujoco_module
from pbad_jax.importers.mujoco_bodies import Maker
from pbad_jax.importers.mujoco_sites import site
from pbad_jax.importers.mujoco_softness import soft_ends, spring_time, usual, with_end
from pbad_jax.model.model import Model

_ELSE = ("armature", "actfrclimited", "springyield")  # that is not there
_ACTS = ("stiffness", "damping", "stiffnesspoly", "dampingpoly", "frictionloss", "limited", *_ELSE)


def is_fixed(m, t: int) -> bool:
    """Whether tendon t is a sum of joint coordinates."""
    return bool(np.all(_wraps(m, m.wrap_type, t) == int(mujoco_module().mjtWrap.mjWRAP_JOINT)))


def _wraps(m, field, t: int) -> np.ndarray:
    first = int(m.tendon_adr[t])
    return field[first : first + int(m.tendon_num[t])]


def why_not(m, t: int) -> str:
    """Why tendon t is neither fixed nor straight between sites; empty if it is."""
    wrap = mujoco_module().mjtWrap
    straight = np.isin(_wraps(m, m.wrap_type, t), [int(wrap.mjWRAP_SITE), int(wrap.mjWRAP_PULLEY)]).all()
    return "" if straight or is_fixed(m, t) else "it wraps about shapes"


def tendon(m, t: int, names) -> dict[str, float] | tuple:
    """A fixed tendon, {joint: coefficient}, or the path of a spatial one."""
    return coefficients(m, t, names) if is_fixed(m, t) else path(m, t, names)


def coefficients(m, t: int, names) -> dict[str, float]:
    """Of a fixed tendon, by joint."""
    out: dict[str, float] = {}
    for j, c in zip(_wraps(m, m.wrap_objid, t), _wraps(m, m.wrap_prm, t)):
        out[names.joint[j]] = out.get(names.joint[j], 0.0) + float(c)
    return out


def path(m, t: int, names) -> tuple:
    """Sites and divisors of pulleys, of a spatial tendon."""
    pulley = int(mujoco_module().mjtWrap.mjWRAP_PULLEY)
    parts = zip(*(_wraps(m, x, t) for x in (m.wrap_type, m.wrap_objid, m.wrap_prm)))
    return tuple(float(p) if kind == pulley else site(m, names, int(k)) for kind, k, p in parts)


def tendons(m, names, switches: set[str]) -> tuple[list[Maker], list[str]]:
    """Springs, dampers, dry friction and limits of the tendons, one force for each kind; what is lost."""
    lost, fixed, straight = [], [], []
    for t in range(m.ntendon):
        acts = [f for f in _ACTS if np.any(getattr(m, f"tendon_{f}", np.zeros(m.ntendon))[t])]
        no = [f for f in acts if f in _ELSE]
        if acts and why_not(m, t):
            lost.append(refused("tendon", f" {names.tendon[t]!r} ({why_not(m, t)}: {', '.join(acts)})"))
            continue
        if no:
            lost.append(refused("tendon", f" {names.tendon[t]!r} ({', '.join(no)})"))
        if not why_not(m, t):
            (fixed if is_fixed(m, t) else straight).append(t)
    makers = [maker for which in (fixed, straight) for maker in _laws(m, np.array(which, int), names, switches)]
    return makers, lost


def _laws(m, which: np.ndarray, names, switches: set[str]) -> list[Maker]:
    """Springs with dampers, also of higher degree, limits and dry friction, of either kind of tendons."""
    # stiffness and damping, each with its terms of second and third degree
    makers: list[Maker] = []
    springs, dampers = float("spring" not in switches), float("damper" not in switches)
    linear = springs * m.tendon_stiffness[which], dampers * m.tendon_damping[which]
    higher = (
        springs * poly(m, "tendon_stiffnesspoly", m.ntendon)[which],
        dampers * poly(m, "tendon_dampingpoly", m.ntendon)[which],
    )

    # one force for the linear terms, one for the higher ones, along the tendons that have any
    for make, (stiff, damped) in ((tendon_spring, linear), (tendon_polynomial, higher)):
        on = np.c_[stiff, damped].any(axis=1)
        if on.any():
            how = {"stiffness": stiff[on], "rest": m.tendon_lengthspring[which[on]], "damping": damped[on]}
            makers.append(functools.partial(make, tendons=[tendon(m, t, names) for t in which[on]], **how))

    # limits: stiffness inertia/τ'² (mujoco_softness.py), from a margin before the ends on
    on = which[m.tendon_limited[which] != 0]
    if on.size and "limit" not in switches:
        time = spring_time(m, m.tendon_solref_lim[on], m.tendon_solimp_lim[on])
        end = usual(time, turns=False)
        margin = np.minimum(m.tendon_margin[on], 0.49 * np.diff(m.tendon_range[on])[:, 0])  # the ends act so far before
        bounds = m.tendon_range[on] + margin[:, None] * [1, -1]
        how = {"range": bounds, "stiffness": _inertia(m, on) / time**2}
        how |= {name: end[name] for name in ("width", "damping")}
        ends = soft_ends(m, m.tendon_solref_lim[on], m.tendon_solimp_lim[on], _inertia(m, on))
        makers.append(functools.partial(_limit, ends, tendons=[tendon(m, t, names) for t in on], **how))

    # dry friction
    on = which[m.tendon_frictionloss[which] > 0]
    if on.size and "frictionloss" not in switches:
        rows = [tendon(m, t, names) for t in on]
        time = spring_time(m, m.tendon_solref_fri[on], m.tendon_solimp_fri[on])
        dry = {"loss": m.tendon_frictionloss[on], "stick_speed": usual(time, turns=False)["stick_speed"]}
        makers.append(functools.partial(tendon_friction, tendons=rows, **dry))
    return makers


def _limit(ends: np.ndarray, model: Model, **how: Any) -> Force:
    """With MuJoCo's own ends beside the springs."""
    return with_end(tendon_limit(model, **how), ends, checks.leaf(model.dtype))


def poly(m, field: str, count: int) -> np.ndarray:
    """Numbers of second and third degree (count,2), zeros where this MuJoCo has them not."""
    return getattr(m, field, np.zeros((count, 2)))


def why_not_coupled(m, e: int) -> str:
    """Why the tendons of equality constraint e cannot be coupled; empty if they can."""
    both = [int(t) for t in (m.eq_obj1id[e], m.eq_obj2id[e]) if t >= 0]
    if any(why_not(m, t) for t in both):
        return "tendon that wraps about shapes"
    return "" if len({is_fixed(m, t) for t in both}) == 1 else "a fixed tendon and a spatial one"


def couplings(m, rows: list[int], names) -> list[Maker]:
    """The equality constraints `rows` between tendons of a kind, or of one: fixed ones, and spatial ones."""
    fixed = [e for e in rows if is_fixed(m, int(m.eq_obj1id[e]))]
    return [_couplings(m, some, names) for some in (fixed, [e for e in rows if e not in fixed]) if some]


def _couplings(m, rows: list[int], names) -> Maker:
    """Those of one kind, with the lengths at qpos0 as MuJoCo has it."""
    a, b = m.eq_obj1id[rows], m.eq_obj2id[rows]
    inertia = _inertia(m, a)
    k = inertia / spring_time(m, m.eq_solref[rows], m.eq_solimp[rows]) ** 2
    p = m.eq_data[rows, :5] * np.where((b < 0)[:, None], [1, 0, 0, 0, 0], 1)
    offset = np.stack([m.tendon_length0[a], np.where(b < 0, 0.0, m.tendon_length0[np.maximum(b, 0)])], axis=1)
    one = [tendon(m, t, names) for t in a]
    other = [tendon(m, t if t >= 0 else first, names) for first, t in zip(a, b)]
    return functools.partial(
        tendon_coupling, tendons=one, others=other, stiffness=k, damping=2 * np.sqrt(k * inertia), polynomial=p,
        offset=offset,
    )  # fmt: skip


def _inertia(m, which) -> np.ndarray:
    """What each tendon moves at qpos0, 1/(c M⁻¹ cᵀ)."""
    return 1.0 / np.maximum(m.tendon_invweight0[which], 1e-12)
