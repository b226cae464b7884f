"""From MuJoCo's geoms and meshes to ours."""

import numpy as np

from pbad_jax.builders.descriptions import Geom
from pbad_jax.model.model import Mesh


def geoms_of(m) -> tuple[dict[int, list[Geom]], list[int]]:
    """Geoms by body, and their numbers in the order of the model: by bodies, the world's last.

    Those of groups 3 to 5, which MuJoCo hides by default, get alpha 0. A height field is only a surface.
    """
    # a mesh is read once, however many geoms show it
    types = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: "mesh", 8: "mesh"}
    meshes: dict[int, Mesh] = {}
    out: dict[int, list[Geom]] = {}
    number: dict[int, list[int]] = {}
    for g in range(m.ngeom):
        # kinds without a shape here, as height fields, have no place in the order
        kind, mesh = types.get(int(m.geom_type[g])), None
        if kind is None:
            continue
        if kind == "mesh":
            k = int(m.geom_dataid[g])
            mesh = meshes[k] = meshes.get(k) or _mesh(m, k)
        # masks say here whether it touches anything; which pairs do is for mujoco_contact.contacts
        geom = Geom(
            type=kind,
            size=np.zeros(3) if mesh else np.maximum(m.geom_size[g], 0),
            position=np.array(m.geom_pos[g]),
            quaternion=np.array(m.geom_quat[g]),
            rgba=_colour(m, g),
            friction=np.array(m.geom_friction[g]),
            mesh=mesh,
            touches=bool(m.geom_contype[g] or m.geom_conaffinity[g]),
        )
        out.setdefault(int(m.geom_bodyid[g]), []).append(geom)
        number.setdefault(int(m.geom_bodyid[g]), []).append(g)

    # numbers in the order in which build_model lays out the geometry
    return out, [g for b in [*range(1, m.nbody), 0] for g in number.get(b, [])]


def _colour(m, g: int) -> np.ndarray:
    rgba, material = np.array(m.geom_rgba[g], float), int(m.geom_matid[g])
    if material >= 0 and np.array_equal(m.geom_rgba[g], np.array([0.5, 0.5, 0.5, 1], np.float32)):
        rgba = np.array(m.mat_rgba[material], float)
    if m.geom_group[g] >= 3:
        rgba[3] = 0
    return rgba


def _mesh(m, k: int) -> Mesh:
    v, f = int(m.mesh_vertadr[k]), int(m.mesh_faceadr[k])
    vertices = np.array(m.mesh_vert[v : v + m.mesh_vertnum[k]])
    return Mesh(vertices, np.array(m.mesh_face[f : f + m.mesh_facenum[k]]))
