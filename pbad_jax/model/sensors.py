"""Sensors: what is to be read of a state, by MuJoCo's names. `sensing/sensors.py` reads them."""

import dataclasses
import math
from typing import Any

from pbad_jax.model.named import Named
from pbad_jax.model.sites import Site

# kind: what it looks at, and how many numbers it gives
KINDS: dict[str, tuple[str, int]] = {
    "touch": ("frame", 1),
    "accelerometer": ("frame", 3),
    "velocimeter": ("frame", 3),
    "gyro": ("frame", 3),
    "force": ("frame", 3),
    "torque": ("frame", 3),
    "magnetometer": ("frame", 3),
    "framepos": ("frame", 3),
    "framequat": ("frame", 4),
    "framexaxis": ("frame", 3),
    "frameyaxis": ("frame", 3),
    "framezaxis": ("frame", 3),
    "framelinvel": ("frame", 3),
    "frameangvel": ("frame", 3),
    "framelinacc": ("frame", 3),
    "frameangacc": ("frame", 3),
    "jointpos": ("joint", 1),
    "jointvel": ("joint", 1),
    "jointactuatorfrc": ("joint", 1),
    "ballquat": ("joint", 4),
    "ballangvel": ("joint", 3),
    "tendonpos": ("tendon", 1),
    "tendonvel": ("tendon", 1),
    "actuatorpos": ("actuator", 1),
    "actuatorvel": ("actuator", 1),
    "actuatorfrc": ("actuator", 1),
    "subtreecom": ("body", 3),
    "subtreelinvel": ("body", 3),
    "subtreeangmom": ("body", 3),
    "e_potential": ("", 1),
    "e_kinetic": ("", 1),
    "clock": ("", 1),
}
# kinds that may be seen from a moving frame
RELATIVE = ("framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis", "framelinvel", "frameangvel")
POSITIVE = ("touch",)  # cut off at one end only


@dataclasses.dataclass(frozen=True)
class Sensor:
    """One sensor.

    Attributes:
        kind: one of KINDS.
        of: what it looks at. A frame: the name of a site of the model, or a Site; Site("foot") is the body's own frame.
            A joint (hinge or slide; ball), an actuator or a body (with all that it carries; None: all): its name. A
            tendon: {joint: coefficient}, or a tuple of sites. None for energies and the clock.
        reference: the frame from which a frame is seen, a site's name or a Site; None = the world.
        cutoff: what it gives stays within −cutoff and cutoff (`touch`: below it).
        field: (3,) of a magnetometer, what it measures, in the world's axes.

    Example:
        >>> seen = pbad.with_sensors(hand, {"tip": pbad.Sensor("framepos", of="hand")})
        >>> pbad.read_sensors(seen, pbad.make_state(seen))["tip"]
        Array([ 0.,  0., -2.], dtype=float64)
    """

    kind: str
    of: Any = None
    reference: str | Site | None = None
    cutoff: float = math.inf
    field: tuple[float, ...] = (0.0, -0.5, 0.0)


NO_SENSORS: Named[Sensor] = Named("sensor")
