"""What a user says of a mechanism: bodies, their joints and shapes. Plain data, checked by build_model.py."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from pbad_jax.model.model import Mesh

GEOM_TYPES = ("plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
IDENTITY = (1.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Joint:
    """One joint of a body.

    Attributes:
        type: fixed, hinge, slide, universal, ball, planar or free.
        axis: hinge, slide: (3,). universal: (2,3), the outer axis first, default x then y. planar: (2,3), the
            two directions of sliding, default x and y; it turns about their normal. In the body's frame.
        anchor: (3,) m, the point of the body that the rotation holds still.
        reference: rad or m; the value of q at which the body sits at its `position` and `quaternion`.
        damping, stiffness, armature, friction_loss: one number for all its degrees of freedom, SI units. Dry friction
            is smooth below stick_speed.
        spring_reference: the q at which the spring is at rest; None = the configuration `q0`.
        range: (low, high) rad or m, None = free. Hinges, slides and universals; a ball's turn may reach `high` ≥ 0.
        limit_time_constant: s; the soft end of a range has the stiffness inertia/limit_time_constant², the inertia
            that the joint feels at q0.
        limit_width: rad or m over which that stiffness comes in.
        limit_damping: χ in s/rad or s/m; at a speed of 1/χ into its end the force doubles, a ball's has none.
        stick_speed: rad/s or m/s.
        effort: N m or N, the most that `motors` give each of its degrees of freedom; None = unlimited.

    Example:
        >>> knee = pbad.Joint("hinge", (0, 1, 0), name="knee", damping=0.1, range=(-2.0, 0.0))
        >>> knee.range
        (-2.0, 0.0)
    """

    type: str
    axis: Any = None
    name: str = ""
    anchor: Any = (0.0, 0.0, 0.0)
    reference: float = 0.0
    damping: float = 0.0
    stiffness: float = 0.0
    spring_reference: Any = None
    armature: float = 0.0
    friction_loss: float = 0.0
    range: Any = None
    limit_time_constant: float = 0.02
    limit_width: float = 0.01
    limit_damping: float = 1.0
    stick_speed: float = 1e-2
    effort: float | None = None


@dataclasses.dataclass(frozen=True)
class Geom:
    """A shape fixed to a body; sizes as in `model.Geometry`, pose in the body's frame.

    Example:
        >>> pbad.Geom("capsule", (0.05, 0.5), (0, 0, -0.5)).type
        'capsule'
    """

    type: str
    size: Any = (0.0, 0.0, 0.0)
    position: Any = (0.0, 0.0, 0.0)
    quaternion: Any = IDENTITY
    rgba: Any = (0.62, 0.66, 0.72, 1.0)
    friction: Any = (1.0, 0.005, 0.0001)
    mesh: Mesh | None = None
    touches: bool = True  # whether contact takes it, or it is only drawn


@dataclasses.dataclass(frozen=True)
class Body:
    """One rigid body.

    Attributes:
        name: unique.
        mass: kg. Zero is allowed where something massive hangs below.
        com: (3,) m, centre of mass in the body's frame.
        inertia: (3,3) kg m² about the centre of mass, in the body's axes.
        parent: name or index of an earlier body; None = the world.
        position, quaternion: the body's frame in its parent's at q = reference; (3,) m and (w,x,y,z).
        joints: what lets it move against its parent, outermost first; none = welded.
        geoms: its shapes.

    Example:
        >>> hinge = pbad.Joint("hinge", (1, 0, 0))
        >>> rod = pbad.Body("rod", 1.0, com=(0, 0, -0.5), inertia=np.diag([0.08, 0.08, 0.001]), joints=[hinge])
        >>> pbad.build_model([rod])
        Model('model': 1 bodies, 1 joints, nq=1, nv=1, nu=0, float64)
    """

    name: str
    mass: float = 0.0
    com: Any = (0.0, 0.0, 0.0)
    inertia: Any = ((0.0, 0.0, 0.0),) * 3
    parent: str | int | None = None
    position: Any = (0.0, 0.0, 0.0)
    quaternion: Any = IDENTITY
    joints: Sequence[Joint] = ()
    geoms: Sequence[Geom] = ()
