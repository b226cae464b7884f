"""From MuJoCo's density and viscosity to the drag of inertia boxes."""

import functools

import numpy as np

from pbad_jax import checks
from pbad_jax.forces import InertiaBoxes
from pbad_jax.importers.features import refused
from pbad_jax.importers.mujoco_bodies import Maker, joined_to
from pbad_jax.math.rotations import rotation_numpy
from pbad_jax.model.model import Model


def fluids(m, switched_off: bool) -> tuple[list[Maker], list[str]]:
    """MuJoCo's inertia boxes; its ellipsoids by name."""
    density, viscosity = float(m.opt.density), float(m.opt.viscosity)
    if switched_off or (not density and not viscosity):
        return [], []
    own = np.flatnonzero(m.geom_fluid[:, 0] > 0)
    bodies = np.flatnonzero((joined_to(m) != 0) & (m.body_mass > 0))
    bodies = np.setdiff1d(bodies, m.geom_bodyid[own])
    how = f" ({len(own)} geoms), density {density:g}, viscosity {viscosity:g}"
    lost = [refused("fluid by ellipsoids", how)] if own.size else []
    return [functools.partial(_boxes, m, bodies)] if bodies.size else [], lost


def _boxes(m, bodies: np.ndarray, model: Model) -> InertiaBoxes:
    """With MuJoCo's own axes: where principal moments are equal, `inertia_boxes` would choose others."""
    mass, moments = m.body_mass[bodies, None], m.body_inertia[bodies]
    size = np.sqrt(6 * np.maximum(moments.sum(axis=1, keepdims=True) - 2 * moments, 0) / mass)
    u = [np.r_[np.r_[m.body_ipos[b], 1.0][None], np.c_[rotation_numpy(m.body_iquat[b]).T, np.zeros(3)]] for b in bodies]
    links = tuple(model.topology.body_link[b - 1] for b in bodies)

    leaf = checks.leaf(model.dtype)
    return InertiaBoxes(leaf(u), leaf(size), leaf(m.opt.density), leaf(m.opt.viscosity), leaf(m.opt.wind), links)
