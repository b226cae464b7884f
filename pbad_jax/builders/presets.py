"""Ready-made models: the chain, the swimmer and the spider of the paper."""

import numpy as np

from pbad_jax.builders.actuators import Actuator
from pbad_jax.builders.build_model import build_model
from pbad_jax.builders.descriptions import Body, Geom, Joint
from pbad_jax.checks import integer, one_of
from pbad_jax.errors import ModelError
from pbad_jax.forces import contact, fluid
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.model import inertia
from pbad_jax.model.model import Model

_X_TO_Z = (np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0)


def chain(n: int, *, joint: str = "universal", length: float = 1.0, mass: float = 1.0, radius: float = 0.05,
          gravity=(0.0, 0.0, -9.81), dtype=None) -> Model:  # fmt: skip
    """n capsule links in a row that hang along −z from the origin at q = 0.

    Args:
        n: number of links. joint: "universal" (hinge x, then hinge y), "hinge" (about x) or "ball".
        length, mass, radius: of each link; m, kg, m. Lists of n give every link its own.
        gravity: (3,) m/s². dtype: see build_model.

    Raises:
        ModelError: n < 1, an unknown joint, or a mass or size that is not positive.

    Example:
        >>> pbad.chain(3, joint="ball")
        Model('chain:3': 3 bodies, 3 joints, nq=12, nv=9, nu=0, float64)
    """
    # sizes and axes of the links
    n = integer(n, "chain: n", 1, ModelError)
    if joint not in ("universal", "hinge", "ball"):
        raise ModelError(f"chain: joint is {joint!r}; choose 'universal', 'hinge' or 'ball'")
    sizes = {k: _per_link(x, n, k) for k, x in (("length", length), ("mass", mass), ("radius", radius))}
    axis = {"universal": ((1, 0, 0), (0, 1, 0)), "hinge": (1, 0, 0), "ball": None}[joint]

    # capsules, each from the lower end of the one above, its mass centred halfway down
    bodies = []
    for i, (l, m, r) in enumerate(zip(sizes["length"], sizes["mass"], sizes["radius"])):
        bodies.append(
            Body(
                name=f"link{i}",
                parent=None if i == 0 else i - 1,
                position=(0, 0, 0 if i == 0 else -sizes["length"][i - 1]),
                mass=m,
                com=(0, 0, -l / 2),
                inertia=inertia.solid_capsule(m, r, l),
                joints=[Joint(joint, axis, name=f"joint{i}")],
                geoms=[Geom("capsule", (r, l / 2), (0, 0, -l / 2))],
            )
        )
    return build_model(bodies, gravity=gravity, name=f"chain:{n}", dtype=dtype)


def swimmer(
    n: int = 4,
    *,
    length: float = 1.0,
    radius: float = 0.1,
    density: float = 1000.0,
    water: tuple[float, float] | None = (200.0, 100.0),
    dtype=None,
) -> Model:
    """n capsule links floating in the horizontal plane, driven at the n − 1 hinges between them.

    The root is planar (slides x, y, hinge z), there is no gravity; links lie along −x. Controls are torques, N m.

    Args:
        n: number of links, ≥ 2. length, radius: m. density: kg/m³. dtype: see build_model.
        water: resistance across and along the links, N s/m² per metre (forces.fluid); None, no water.

    Example:
        >>> pbad.swimmer(3)
        Model('swimmer': 3 bodies, 3 joints, nq=5, nv=5, nu=2, float64)
    """
    # sizes, and the mass of a cylinder with half spheres at its ends
    n = integer(n, "swimmer: n", 2, ModelError)
    length, radius, density = (
        float(_per_link(x, 1, k)[0]) for k, x in (("length", length), ("radius", radius), ("density", density))
    )
    mass = density * np.pi * radius**2 * (length + 4 / 3 * radius)
    I = np.diag(np.roll(np.diag(inertia.solid_capsule(mass, radius, length)), 1))  # along x instead of z

    # the first link moves freely in the plane, the others turn on hinges with limits
    bodies = []
    for i in range(n):
        joint = (
            Joint("planar", name="root") if i == 0 else Joint("hinge", (0, 0, 1), name=f"joint{i}", range=(-1.75, 1.75))
        )
        bodies.append(
            Body(
                name=f"link{i}",
                parent=None if i == 0 else i - 1,
                position=(0 if i == 0 else -length, 0, 0),
                mass=mass,
                com=(-length / 2, 0, 0),
                inertia=I,
                joints=[joint],
                geoms=[Geom("capsule", (radius, length / 2), (-length / 2, 0, 0), _X_TO_Z)],
            )
        )

    # a torque at every hinge, and the water's resistance
    drives = [Actuator(f"joint{i}", name=f"motor{i}") for i in range(1, n)]
    model = build_model(bodies, actuators=drives, gravity=(0, 0, 0), name="swimmer", dtype=dtype)
    return model if water is None else with_forces(model, fluid(model, *water))


def spider(legs: int = 4, *, hips: str = "hinges", gravity=(0.0, 0.0, -9.81), ground: bool = True, dtype=None) -> Model:
    """A free ball with legs of two capsules each: hips of two hinges or a ball, hinged knees, a motor on every axis.

    At q0 the torso's centre is 0.75 m above the origin. Controls are in the order yaw, pitch, knee of every leg; with
    balls roll, pitch, yaw, knee, about the thigh's axes.

    Args:
        legs: ≥ 1. gravity: (3,) m/s². dtype: see build_model.
        hips: "hinges", yaw and pitch, or "balls", the paper's, which turn by up to 1 rad.
        ground: whether the plane z = 0 is there to stand on (forces.contact).

    Example:
        >>> pbad.spider(legs=6).nv
        24
    """
    # sizes in m, and a torso that floats
    legs = integer(legs, "spider: legs", 1, ModelError)
    one_of(hips, ("hinges", "balls"), "spider: hips")
    r, thigh, shin, thin = 0.25, 0.4, 0.6, 0.06
    bodies = [
        Body("torso", 10.0, inertia=inertia.solid_sphere(10.0, r), position=(0, 0, 0.75),
             joints=[Joint("free", name="root")], geoms=[Geom("sphere", (r,))])
    ]  # fmt: skip

    # legs in a circle about the vertical
    drives = []
    for k in range(legs):
        angle = 2 * np.pi * k / legs
        turn = (np.cos(angle / 2), 0, 0, np.sin(angle / 2))
        drop = (np.cos(0.6), 0, np.sin(0.6), 0)  # the shin points 1.2 rad down from the thigh

        # hips of two hinges, or balls as the paper has them
        hip = [Joint("hinge", (0, 0, 1), name=f"yaw{k}", damping=0.5, range=(-1.0, 1.0)),
               Joint("hinge", (0, 1, 0), name=f"pitch{k}", damping=0.5, range=(-1.0, 1.0))]  # fmt: skip
        if hips == "balls":
            hip = [Joint("ball", name=f"hip{k}", damping=0.5, range=(0.0, 1.0))]

        # thigh on the torso's surface and shin at the thigh's end, capsules along x
        for name, parent, l, m, position, quaternion, hinges in (
            (f"thigh{k}", "torso", thigh, 0.5, (r * np.cos(angle), r * np.sin(angle), 0), turn, hip),
            (f"shin{k}", f"thigh{k}", shin, 0.4, (thigh, 0, 0), drop,
             [Joint("hinge", (0, 1, 0), name=f"knee{k}", damping=0.5, range=(-1.0, 1.0))]),
        ):  # fmt: skip
            I = np.diag(np.roll(np.diag(inertia.solid_capsule(m, thin, l)), 1))
            bodies.append(
                Body(name, m, (l / 2, 0, 0), I, parent, position, quaternion, hinges,
                     [Geom("capsule", (thin, l / 2), (l / 2, 0, 0), _X_TO_Z)])
            )  # fmt: skip

        # a motor on every axis, in the order that a control has
        for axis, name in zip(np.eye(3), ("roll", "pitch", "yaw") if hips == "balls" else ()):
            drives.append(Actuator(f"hip{k}", name=f"{name}_motor{k}", gear=30.0 * axis, control_range=(-1, 1)))
        for joint in ("knee",) if hips == "balls" else ("yaw", "pitch", "knee"):
            drives.append(Actuator(f"{joint}{k}", name=f"{joint}_motor{k}", gear=30.0, control_range=(-1, 1)))

    # with the ground as a shape to be seen and as a contact
    model = build_model(
        bodies, actuators=drives, gravity=gravity, name="spider", dtype=dtype,
        world_geoms=[Geom("plane", (0, 0, 0.05), rgba=(0.85, 0.86, 0.88, 1.0))] if ground else [],
    )  # fmt: skip
    return with_forces(model, contact(model)) if ground else model


def _per_link(x, n: int, name: str) -> np.ndarray:
    try:
        values = np.asarray(x, float)
        values = np.full(n, values) if values.ndim == 0 else values.reshape(n)
    except (TypeError, ValueError):
        raise ModelError(f"{name} is {x!r:.60}; wanted one number or {n}") from None
    if not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ModelError(f"{name} is {x!r:.60}; it must be positive and finite")
    return values
