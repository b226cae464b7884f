"""Sites and sensors of a model, checked once: what they name exists, what they measure has a meaning there."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from pbad_jax.checks import above_zero, known, number, one_of, vector
from pbad_jax.errors import ModelError
from pbad_jax.laws.paths import checked_path
from pbad_jax.laws.tendons import tendon_rows
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.sensors import KINDS, RELATIVE, Sensor
from pbad_jax.model.sites import VOLUMES, Site

JOINTS_OF = {"ballquat": ("ball",), "ballangvel": ("ball",)}  # of the other kinds: hinges and slides


def with_sites(model: Model, sites: Mapping[str, Site]) -> Model:
    """The model with more sites: `with_sites(model, {"tip": Site("hand", (0, 0, 0.1))})`.

    Args:
        model: from a file, from `build_model`, or any other.
        sites: by name.

    Raises:
        ModelError: a name that is taken, an unknown body or volume, bad numbers.

    Example:
        >>> pbad.with_sites(model, {"tip": pbad.Site("link1", (0, 0, -1))}).sites["tip"].body
        'link1'
    """
    check_model(model)
    checked = {name: _site(model, site, f"site {name!r}") for name, site in sites.items()}
    return dataclasses.replace(model, sites=model.sites.plus(checked))


def with_sensors(model: Model, sensors: Mapping[str, Sensor]) -> Model:
    """The model with more sensors: `with_sensors(model, {"gyro": Sensor("gyro", "imu")})`; see `read_sensors`.

    Args:
        model: with the sites that they are on.
        sensors: by name.

    Raises:
        ModelError: a name that is taken, an unknown kind, site, joint, actuator or body, bad numbers.

    Example:
        >>> pbad.with_sensors(model, {"lift": pbad.Sensor("subtreecom")}).sensors["lift"].kind
        'subtreecom'
    """
    check_model(model)
    checked = {name: _sensor(model, sensor, f"sensor {name!r}") for name, sensor in sensors.items()}
    return dataclasses.replace(model, sensors=model.sensors.plus(checked))


def _site(model: Model, site: Any, where: str) -> Site:
    """A site, checked, of plain floats and with a quaternion of length 1."""
    # on a body of this model, or in the world
    if not isinstance(site, Site):
        raise ModelError(f"{where} is {site!r:.60}; make one with Site(body, position)")
    if site.body is not None:
        known(site.body, model.body_names, f"body of {where}")

    # every quaternion but zero has a direction
    p = vector(site.quaternion, 4, f"quaternion of {where}")
    norm = float(np.linalg.norm(p))
    if not norm > 0:
        raise ModelError(f"quaternion of {where} is zero; it must have a direction, (1, 0, 0, 0) for no rotation")

    # the volume in which a touch is felt
    size = vector(site.size, 3, f"size of {where}")
    if np.any(size < 0):
        raise ModelError(f"size of {where} is {size.tolist()}; all must be ≥ 0")
    return Site(
        site.body,
        tuple(vector(site.position, 3, f"position of {where}").tolist()),
        tuple((p / norm).tolist()),
        one_of(site.volume, VOLUMES, f"volume of {where}"),
        tuple(size.tolist()),
    )


def _sensor(model: Model, s: Any, where: str) -> Sensor:
    """A sensor, checked, of plain values."""
    if not isinstance(s, Sensor):
        raise ModelError(f"{where} is {s!r:.60}; make one with Sensor(kind, of)")
    one_of(s.kind, tuple(KINDS), f"kind of {where}")
    if s.reference is not None and s.kind not in RELATIVE:
        raise ModelError(f"{where}: a {s.kind} has no reference; leave it out. Those that have: {', '.join(RELATIVE)}")
    cutoff = float("inf") if s.cutoff == float("inf") else above_zero(number(s.cutoff, "cutoff"), f"cutoff of {where}")
    reference = None if s.reference is None else _frame(model, s.reference, f"reference of {where}")
    field = tuple(vector(s.field, 3, f"field of {where}").tolist())
    return Sensor(s.kind, _looked_at(model, s, where), reference, cutoff, field)


def _looked_at(model: Model, s: Sensor, where: str) -> Any:
    """What the sensor is of, checked: a frame, tendon, joint, actuator or body of the model, or nothing."""
    # a frame: the name of a site, or a Site itself
    target, what = KINDS[s.kind][0], f"{s.kind} of {where}"
    if target == "frame":
        return _frame(model, s.of, what)

    # a tendon: a path through sites, or coefficients of hinges and slides
    if target == "tendon":
        if isinstance(s.of, tuple) and any(isinstance(x, str | Site) for x in s.of):
            return checked_path(s.of, model.sites, dict(zip(model.body_names, model.topology.body_link)), what)
        tendon = s.of if isinstance(s.of, Mapping) else _pairs(s.of)
        tendon_rows(model.topology.joints, tendon, what)
        return tuple((name, float(c)) for name, c in tendon.items())

    # a joint, of a type that this kind of sensor can read; else an actuator, a body or nothing
    if target == "joint":
        joints = model.topology.joints
        joint = joints[known(s.of, [j.name for j in joints], what)]
        allowed = JOINTS_OF.get(s.kind, ("hinge", "slide"))
        if joint.type not in allowed:
            raise ModelError(f"{what}: joint {joint.name!r} is of type {joint.type}; wanted {' or '.join(allowed)}")
    elif target == "actuator":
        known(s.of, model.topology.actuator_names, what)
    elif target == "body":
        if s.of is not None:
            known(s.of, model.body_names, what)
    elif s.of is not None:
        raise ModelError(f"{what} is of {s.of!r:.60}; it is of nothing: leave it out")
    return s.of


def _pairs(x: Any) -> dict:
    """A tendon that was checked before; else nothing."""
    return dict(x) if isinstance(x, tuple) and all(isinstance(p, tuple) and len(p) == 2 for p in x) else {}


def _frame(model: Model, frame: Any, what: str) -> str | Site:
    """The name of a site, or a Site of plain floats."""
    if isinstance(frame, Site):
        return _site(model, frame, f"the Site of {what}")
    if not isinstance(frame, str):
        raise ModelError(f"{what}: {frame!r:.60} is no frame; give the name of a site, or Site(body)")
    model.sites.find(frame, what)
    return frame
