"""Lengths made from names, checked: fixed tendons of joints, and paths straight between sites."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.forces.lengths import Paths
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.joints import JointInfo
from pbad_jax.model.model import Model
from pbad_jax.model.sites import Site

Tendon = Mapping[str, float]  # joint -> coefficient
Path = Sequence[Any]  # names of sites or Sites; a number begins a branch beyond a pulley of that divisor


def tendon_rows(joints: Sequence[JointInfo], tendons, what: str) -> np.ndarray:
    """Coefficients (m,nv) of one tendon or m.

    Raises:
        ModelError: no {joint: coefficient}, an unknown joint, one that is neither hinge nor slide, no finite number.
    """
    tendons = [tendons] if isinstance(tendons, Mapping) else tendons
    if not isinstance(tendons, list | tuple) or not tendons:
        raise ModelError(f"tendons of {what} are {tendons!r:.60}; wanted {{joint: coefficient}}, or a list of them")
    rows = np.zeros((len(tendons), sum(j.nv for j in joints)))
    for row, tendon in zip(rows, tendons):
        if not isinstance(tendon, Mapping) or not tendon:
            raise ModelError(f"tendon of {what} is {tendon!r:.60}; wanted {{joint: coefficient}} of at least one joint")
        for name, c in tendon.items():
            joint = joints[checks.known(name, [j.name for j in joints], f"joint in a tendon of {what}")]
            if joint.type not in ("hinge", "slide"):
                raise ModelError(
                    f"tendon of {what}: joint {name!r} is of type {joint.type}; a tendon is of hinges and slides"
                )
            row[joint.v] = checks.number(c, f"coefficient of joint {name!r} in a tendon of {what}")
    return rows


def paths(model: Model, tendons: Path | Sequence[Path], what: str) -> Paths:
    """Where tendons of a model run."""
    t = model.topology
    one = isinstance(tendons, tuple) and not isinstance(tendons[0] if tendons else None, tuple)
    given = [tendons] if one else tendons
    if not isinstance(given, list | tuple) or not given:
        raise ModelError(f"tendons of {what} are {tendons!r:.60}; wanted a tuple of sites, or a list of such tuples")
    links = dict(zip(t.body_names, t.body_link))
    return paths_of([checked_path(p, model.sites, links, what) for p in given], links, checks.leaf(model.dtype))


def checked_path(path: Any, sites: Mapping[str, Site], links: Mapping[str, int], what: str) -> tuple:
    """A path as Sites and divisors.

    Raises:
        ModelError: see `tendon_spring`.
    """
    if not isinstance(path, tuple) or not path:
        raise ModelError(f"tendon of {what} is {path!r:.60}; wanted a tuple of sites, ('hand', 'wall')")
    out, run = [], 0
    for item in path:
        if isinstance(item, numbers.Real) and not isinstance(item, bool):
            out.append(checks.above_zero(item, f"divisor of a pulley in a tendon of {what}"))
            if run == 1:
                raise ModelError(f"tendon of {what}: a branch has only one site; give it two or more")
            run = 0
            continue
        site = item
        if isinstance(item, str):
            checks.known(item, sites, f"site in a tendon of {what}")
            site = sites[item]
        if not isinstance(site, Site):
            raise ModelError(f"tendon of {what}: {item!r:.60} is no site; give a name, a Site, or a pulley's divisor")
        if site.body is not None:
            checks.known(site.body, links, f"body of a site in a tendon of {what}")
        checks.vector(site.position, 3, f"position of a site in a tendon of {what}")
        out.append(site)
        run += 1
    if run < 2:
        raise ModelError(f"tendon of {what}: {'it' if run == len(out) else 'a branch'} has fewer than two sites")
    return tuple(out)


def paths_of(checked: Sequence[tuple], links: Mapping[str, int], leaf: Callable) -> Paths:
    """Of checked paths."""
    rows = [_row(path, links) for path in checked]
    n = max(len(points) for points, *_ in rows)
    u, weight, on, still = [], [], [], []
    for points, w, l, s in rows:
        more = n - len(points)
        u.append(points + [points[-1]] * more)
        weight.append(w + [0.0] * more)
        on.append(tuple(l + [l[-1]] * more))
        still.append(tuple(s + [s[-1]] * more))
    return Paths(leaf(u), leaf(weight), tuple(on), tuple(still))


def _row(path: tuple, links: Mapping[str, int]) -> tuple[list, list[float], list[int], list[bool]]:
    """Points, weights of the pieces between them, links, and whether they are in the world."""
    points, weights, on, still, divisor, joined = [], [], [], [], 1.0, False
    for item in path:
        if not isinstance(item, Site):
            divisor, joined = item, False
            continue
        if points:
            weights.append(1.0 / divisor if joined else 0.0)
        points.append([*item.position, 1.0])
        on.append(0 if item.body is None else links[item.body])
        still.append(item.body is None)
        joined = True
    return points, weights, on, still


def points_of(site: Site) -> np.ndarray:
    """(4,4) the origin of a site and its axes, in its body's frame."""
    axes = np.c_[rotation_numpy(site.quaternion).T, np.zeros(3)]
    return np.r_[np.r_[site.position, 1.0][None], axes]
