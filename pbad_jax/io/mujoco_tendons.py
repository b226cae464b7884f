"""From MuJoCo's compiled model to forces along tendons, fixed or straight between sites; others by name."""

import functools
from collections.abc import Callable

import numpy as np

from pbad_jax.builders.build_model import LIMIT_DAMPING, LIMIT_WIDTH
from pbad_jax.forces import (
    Force,
    tendon_coupling,
    tendon_friction,
    tendon_limit,
    tendon_spring,
)
from pbad_jax.io.features import refused
from pbad_jax.io.mjcf import mujoco_module
from pbad_jax.io.mujoco_sites import site
from pbad_jax.io.mujoco_softness import spring_time
from pbad_jax.model.model import Model

Maker = Callable[[Model], Force]
_ELSE = ("armature", "stiffnesspoly", "dampingpoly", "actfrclimited", "springyield")  # that is not there
_ACTS = ("stiffness", "damping", "frictionloss", "limited", *_ELSE)


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
        spatial = not is_fixed(m, t)
        no = [f for f in acts if f in _ELSE or False]
        if acts and why_not(m, t):
            lost.append(refused("tendon", f" {names.tendon[t]!r} ({why_not(m, t)}: {', '.join(acts)})"))
            continue
        if no:
            lost.append(refused("tendon", f" {names.tendon[t]!r} ({'spatial: ' * spatial}{', '.join(no)})"))
        if not why_not(m, t):
            (straight if spatial else fixed).append(t)
    makers = [maker for which in (fixed, straight) for maker in _laws(m, np.array(which, int), names, switches)]
    return makers, lost


def _laws(m, which: np.ndarray, names, switches: set[str]) -> list[Maker]:
    """Springs with dampers, limits and dry friction, of either kind of tendons."""
    makers: list[Maker] = []
    stiff = m.tendon_stiffness[which] * ("spring" not in switches)
    damped = m.tendon_damping[which] * ("damper" not in switches)
    on = (stiff != 0) | (damped != 0)
    if on.any():
        how = {"stiffness": stiff[on], "rest": m.tendon_lengthspring[which[on]], "damping": damped[on]}
        makers.append(functools.partial(tendon_spring, tendons=[tendon(m, t, names) for t in which[on]], **how))
    on = which[m.tendon_limited[which] != 0]
    if on.size and "limit" not in switches:
        k = _inertia(m, on) / spring_time(m, m.tendon_solref_lim[on], m.tendon_solimp_lim[on]) ** 2
        margin = np.minimum(m.tendon_margin[on], 0.49 * np.diff(m.tendon_range[on])[:, 0])  # the ends act so far before
        bounds = m.tendon_range[on] + margin[:, None] * [1, -1]
        how = {"range": bounds, "stiffness": k, "width": LIMIT_WIDTH, "damping": LIMIT_DAMPING}
        makers.append(functools.partial(tendon_limit, tendons=[tendon(m, t, names) for t in on], **how))
    on = which[m.tendon_frictionloss[which] > 0]
    if on.size and "frictionloss" not in switches:
        rows = [tendon(m, t, names) for t in on]
        makers.append(functools.partial(tendon_friction, tendons=rows, loss=m.tendon_frictionloss[on]))
    return makers


def may_be_coupled(m, e: int) -> bool:
    """Whether the tendons of equality constraint e are fixed ones."""
    return all(is_fixed(m, int(t)) for t in (m.eq_obj1id[e], m.eq_obj2id[e]) if t >= 0)


def couplings(m, rows: list[int], names) -> Maker:
    """The equality constraints `rows` between fixed tendons, or of one, with its length at qpos0 as MuJoCo has it."""
    a, b = m.eq_obj1id[rows], m.eq_obj2id[rows]
    inertia = _inertia(m, a)
    k = inertia / spring_time(m, m.eq_solref[rows], m.eq_solimp[rows]) ** 2
    p = m.eq_data[rows, :5] * np.where((b < 0)[:, None], [1, 0, 0, 0, 0], 1)
    offset = np.stack([m.tendon_length0[a], np.where(b < 0, 0.0, m.tendon_length0[np.maximum(b, 0)])], axis=1)
    one = [coefficients(m, t, names) for t in a]
    other = [coefficients(m, t if t >= 0 else first, names) for first, t in zip(a, b)]
    return functools.partial(
        tendon_coupling, tendons=one, others=other, stiffness=k, damping=2 * np.sqrt(k * inertia), polynomial=p,
        offset=offset,
    )  # fmt: skip


def _inertia(m, which) -> np.ndarray:
    """What each tendon moves at qpos0, 1/(c M⁻¹ cᵀ)."""
    return 1.0 / np.maximum(m.tendon_invweight0[which], 1e-12)
