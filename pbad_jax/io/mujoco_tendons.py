"""From MuJoCo's compiled model to forces along fixed tendons; spatial ones by name."""

import functools
from collections.abc import Callable

import numpy as np

from pbad_jax.builders.build_model import LIMIT_DAMPING, LIMIT_WIDTH
from pbad_jax.forces import Force, tendon_coupling, tendon_friction, tendon_limit, tendon_spring
from pbad_jax.io.mjcf import mujoco_module
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


def tendon(m, t: int, joint_names: list[str]) -> dict[str, float]:
    """A fixed tendon: {joint: coefficient}."""
    out: dict[str, float] = {}
    for j, c in zip(_wraps(m, m.wrap_objid, t), _wraps(m, m.wrap_prm, t)):
        out[joint_names[j]] = out.get(joint_names[j], 0.0) + float(c)
    return out


def tendons(m, tendon_names: list[str], joint_names: list[str], switches: set[str]) -> tuple[list[Maker], list[str]]:
    """Springs, dampers, dry friction and limits of the fixed tendons, one force for each kind; what is lost."""
    lost, fixed = [], []
    for t in range(m.ntendon):
        acts = [f for f in _ACTS if np.any(getattr(m, f"tendon_{f}", np.zeros(m.ntendon))[t])]
        if acts and not is_fixed(m, t):
            lost.append(f"tendon {tendon_names[t]!r} (spatial: {', '.join(acts)})")
            continue
        if any(f in _ELSE for f in acts):
            lost.append(f"tendon {tendon_names[t]!r} ({', '.join(f for f in acts if f in _ELSE)})")
        fixed.append(t)
    fixed = np.array([t for t in fixed if is_fixed(m, t)], int)
    rows = lambda which: [tendon(m, t, joint_names) for t in which]  # noqa: E731
    stiff = m.tendon_stiffness[fixed] * ("spring" not in switches)
    damped = m.tendon_damping[fixed] * ("damper" not in switches)
    makers: list[Maker] = []
    on = (stiff != 0) | (damped != 0)
    if on.any():
        how = {"stiffness": stiff[on], "rest": m.tendon_lengthspring[fixed[on]], "damping": damped[on]}
        makers.append(functools.partial(tendon_spring, tendons=rows(fixed[on]), **how))
    on = fixed[m.tendon_frictionloss[fixed] > 0]
    if on.size and "frictionloss" not in switches:
        makers.append(functools.partial(tendon_friction, tendons=rows(on), loss=m.tendon_frictionloss[on]))
    on = fixed[m.tendon_limited[fixed] != 0]
    if on.size and "limit" not in switches:
        k = _inertia(m, on) / np.array([_tau(m.tendon_solref_lim[t]) for t in on]) ** 2
        how = {"range": m.tendon_range[on], "stiffness": k, "width": LIMIT_WIDTH, "damping": LIMIT_DAMPING}
        makers.append(functools.partial(tendon_limit, tendons=rows(on), **how))
    return makers, lost


def may_be_coupled(m, e: int) -> bool:
    """Whether the tendons of equality constraint e are fixed ones."""
    return all(is_fixed(m, int(t)) for t in (m.eq_obj1id[e], m.eq_obj2id[e]) if t >= 0)


def couplings(m, rows: list[int], joint_names: list[str]) -> Maker:
    """The equality constraints `rows` between fixed tendons, or of one, with its length at qpos0 as MuJoCo has it."""
    a, b = m.eq_obj1id[rows], m.eq_obj2id[rows]
    inertia = _inertia(m, a)
    k = inertia / np.array([_tau(m.eq_solref[e]) for e in rows]) ** 2
    p = m.eq_data[rows, :5] * np.where((b < 0)[:, None], [1, 0, 0, 0, 0], 1)
    offset = np.stack([m.tendon_length0[a], np.where(b < 0, 0.0, m.tendon_length0[np.maximum(b, 0)])], axis=1)
    one = [tendon(m, t, joint_names) for t in a]
    other = [tendon(m, t if t >= 0 else first, joint_names) for first, t in zip(a, b)]
    return functools.partial(
        tendon_coupling, tendons=one, others=other, stiffness=k, damping=2 * np.sqrt(k * inertia), polynomial=p,
        offset=offset,
    )  # fmt: skip


def _inertia(m, which) -> np.ndarray:
    """What each tendon moves at qpos0, 1/(c M⁻¹ cᵀ)."""
    return 1.0 / np.maximum(m.tendon_invweight0[which], 1e-12)


def _tau(solref) -> float:
    """Time constant, s."""
    return float(solref[0]) if solref[0] > 0 else 1 / np.sqrt(max(-float(solref[0]), 1e-12))
