"""From MuJoCo's compiled model to sites."""

import numpy as np

from pbad_jax.importers.mjcf import mujoco_module
from pbad_jax.model.sites import VOLUMES, Site


def sites(m, names) -> dict[str, Site]:
    """All sites of the file; those that are meshes have the volume of a sphere."""
    return {name: site(m, names, k) for k, name in enumerate(names.site)}


def site(m, names, k: int) -> Site:
    """Site k."""
    volume = word("mjtGeom", m.site_type[k])
    return Site(
        names.body[m.site_bodyid[k]] or None,
        tuple(m.site_pos[k].tolist()),
        tuple(m.site_quat[k].tolist()),
        volume if volume in VOLUMES else "sphere",
        tuple(np.maximum(m.site_size[k], 0.0).tolist()),
    )


def word(enum: str, value) -> str:
    """What MuJoCo calls it: mjSENS_TOUCH is touch."""
    return getattr(mujoco_module(), enum)(int(value)).name.split("_", 1)[1].lower()
