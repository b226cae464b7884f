"""Pairs of bodies that may touch: by name, not rigidly joined, and of which mass."""

from collections.abc import Sequence

import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.kinematics.reference import carried
from pbad_jax.model.joints import FIXED
from pbad_jax.model.model import Model

SHARE = 0.05


def checked_pairs(model: Model, pairs, maker: str = "body_contact") -> list[tuple[int, int]]:
    """Pairs of names as pairs of body numbers; refused are pairs that cannot touch, and what is given twice."""
    out: list[tuple[int, int]] = []
    for pair in pairs:
        # two bodies by name
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ModelError(f"{maker}: {pair!r:.60} in pairs; each must be two names, ('thigh', 'shin')")
        i, j = (checks.known(name, model.body_names, f"body of {maker}") for name in pair)

        # each pair once, of bodies that joints can move against one another
        if i == j:
            raise ModelError(f"{maker}: body {pair[0]!r} with itself; give two bodies")
        if (i, j) in out or (j, i) in out:
            raise ModelError(f"{maker}: the pair {pair[0]!r}, {pair[1]!r} is there twice; give it once")
        if rigid_root(model, model.topology.body_link[i]) == rigid_root(model, model.topology.body_link[j]):
            raise ModelError(
                f"{maker}: {pair[0]!r} and {pair[1]!r} are rigidly joined and cannot touch; give bodies with a "
                "joint between them"
            )
        out.append((i, j))
    return out


def rigid_root(model: Model, link: int) -> int:
    """The link, or -1 for the world, that carries this one through fixed joints only."""
    t = model.topology
    while link >= 0 and t.link_type[link] == FIXED:
        link = t.link_parent[link]
    return link


def of_one_tree(model: Model, pairs: Sequence[tuple[int, int]]) -> tuple[bool, ...]:
    """Of every pair of links whether joints connect them, which may hold them deep in one another."""
    root = list(model.topology.link_parent)
    for i, p in enumerate(root):
        root[i] = root[p] if p >= 0 else i
    return tuple(root[a] == root[b] for a, b in pairs)


def lighter_masses(model: Model, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Of every pair of links the mass of the lighter side with all it carries, (c,) kg, but a share of the other's.

    Raises:
        ModelError: one carries none.
    """
    sides = {link: carried(model, link) for link in sorted({l for pair in pairs for l in pair})}
    mass = {link: np.inf if S is None else float(S[3, 3]) for link, S in sides.items()}
    for pair in pairs:
        if min(mass[l] for l in pair) <= 0:
            names = [model.body_names[model.topology.body_link.index(link)] for link in pair]
            raise ModelError(f"contact: {names[0]!r} or {names[1]!r} carries no mass; give it some, kg > 0")
    sides = np.array([[mass[l] for l in pair] for pair in pairs])
    return borne(np.min(sides, axis=1), np.where(np.isfinite(sides), sides, 0.0).max(axis=1))


def borne(own: np.ndarray, others: np.ndarray | float) -> np.ndarray:
    """What the contact of masses (c,) kg is made for, where others may lean on them: SHARE of these, if that is more.

    So a heavy thing sinks into a light one, and that into the ground, by no more than 1/SHARE of what its own does.
    """
    return np.maximum(own, SHARE * np.asarray(others))
