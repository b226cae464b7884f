"""A ground under a model that has none, such as a URDF."""

import dataclasses
import re

import numpy as np

from pbad_jax import checks
from pbad_jax.builders.descriptions import Geom
from pbad_jax.errors import ModelError
from pbad_jax.forces import contact, half_space
from pbad_jax.geometry.points import contact_points
from pbad_jax.kinematics import transforms
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.math.rotations import z_to
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State


def with_ground(model: Model, state: State | None = None, *, height: float | None = None, friction=None) -> Model:
    """The model on a plane across gravity, which its shapes touch and which is drawn.

    Args:
        model: without a plane of its own.
        state: the plane goes through the lowest point that it has there; default `make_state(model)`.
        height: m, of the plane along the upward direction, instead.
        friction: μ; default what the shapes have, as in `forces.contact`, which is what is added.

    Raises:
        ModelError: a plane is there, nothing could touch it, or no direction is down.

    Example:
        >>> brick = dataclasses.replace(bead, geoms=[pbad.Geom("box", (0.1, 0.1, 0.1))])
        >>> lying = pbad.with_ground(pbad.build_model([brick]))
        >>> [type(force).__name__ for force in lying.forces], lying.geometry.position[-1, 2].round(2)
        (['Gravity', 'Contact'], np.float64(-0.01))
    """
    # no second ground, and none that nothing could fall on
    check_model(model)
    t, g = model.topology, np.asarray(model.gravity, float)
    if any(k == "plane" and b < 0 and x for k, b, x in zip(t.geom_types, t.geom_bodies, t.geom_touches)):
        raise ModelError(f"with_ground: model {t.name!r} has a plane of its own to stand on; leave with_ground out")
    points = contact_points(model)
    if not points.links or not g.any():
        why = "no shapes that could touch" if g.any() else "no gravity, so no direction is down"
        raise ModelError(f"with_ground: model {t.name!r} has {why}; leave with_ground out")

    # across gravity, through the lowest point of what can touch
    up = -g / np.linalg.norm(g)
    if height is None:
        q = model.q0 if state is None else state.q
        T = np.asarray(transforms.transforms(model, q), float)[list(points.links)]
        height = float(((T @ np.c_[points.position, np.ones(len(T))][..., None])[..., 0] @ up - points.radius).min())
    height = checks.number(height, "height of with_ground")

    # the contact acts, the plane among the shapes is drawn
    more = {} if friction is None else {"friction": friction}
    touch = contact(model, half_space(up, height), points=points, **more)
    return with_forces(_with_plane(model, up, height), touch)


def _with_plane(model: Model, up: np.ndarray, height: float) -> Model:
    """The model with an infinite plane to be drawn; the report of what does not act no longer misses one."""
    t, g, plane = model.topology, model.geometry, Geom("plane")
    rows = {"size": plane.size, "position": height * up, "quaternion": z_to(up), "rgba": plane.rgba}
    rows["friction"] = plane.friction
    geometry = type(g)(**{k: np.concatenate([getattr(g, k), np.asarray(x, float)[None]]) for k, x in rows.items()})
    t = dataclasses.replace(
        t,
        geom_types=(*t.geom_types, "plane"),
        geom_bodies=(*t.geom_bodies, -1),
        geom_meshes=(*t.geom_meshes, None),
        geom_touches=(*t.geom_touches, True),
        inactive=tuple(re.sub(r"^contact \(.*no ground.*", "contact between bodies", x) for x in t.inactive),
    )
    return dataclasses.replace(model, topology=t, geometry=geometry)
