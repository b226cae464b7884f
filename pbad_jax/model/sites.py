"""Sites: frames of interest that are fixed to bodies, such as tool tips, feet and inertial units."""

import dataclasses

from pbad_jax.model.named import Named

VOLUMES = ("sphere", "capsule", "ellipsoid", "cylinder", "box")


@dataclasses.dataclass(frozen=True)
class Site:
    """A frame fixed to a body, or to the world; no step looks at it.

    Attributes:
        body: its name; None = the world.
        position, quaternion: in the body's frame, (3,) m and (w,x,y,z).
        volume: sphere, capsule, ellipsoid, cylinder or box, about the frame's origin: where a touch is felt.
        size: (3,) m, of the volume, as a geom's.

    Example:
        >>> sited = pbad.with_sites(model, {"elbow": pbad.Site("link1"), "tip": pbad.Site("link1", (0, 0, -1))})
        >>> sited.sites["tip"].position
        (0.0, 0.0, -1.0)
    """

    body: str | None
    position: tuple[float, ...] = (0.0, 0.0, 0.0)
    quaternion: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)
    volume: str = "sphere"
    size: tuple[float, ...] = (0.005, 0.005, 0.005)


NO_SITES: Named[Site] = Named("site")
