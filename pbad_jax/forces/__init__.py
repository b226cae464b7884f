"""Forces: what a force is (force.py), and those that are here."""

from pbad_jax.forces.attachments import Anchor, Attachment, connect, weld
from pbad_jax.forces.balls import BallLimit, BallSpring, Gears
from pbad_jax.forces.body_contact import BodyContact, body_contact
from pbad_jax.forces.contact_between import contact_between
from pbad_jax.forces.contact_points import ContactPoints, contact_points, joined, points_on
from pbad_jax.forces.drives import JointForce, PDDrive, joint_force, pd_drive
from pbad_jax.forces.external import Wrench, wrench
from pbad_jax.forces.fluid_laws import Drag, Fluid, InertiaBoxes, drag, fluid, inertia_boxes
from pbad_jax.forces.force import (
    Force,
    Instant,
    Load,
    PointForces,
    Start,
    is_conservative,
    name_of,
    point_forces,
    total_load,
    total_potential,
)
from pbad_jax.forces.gravity import Gravity, GravityCompensation, gravity_compensation
from pbad_jax.forces.lengths import Coupling, Joints, Tendons
from pbad_jax.forces.line_force import LineForce, actuators, is_actuator, joint_ranges
from pbad_jax.forces.line_laws import Actuation, Damping, Friction, Limit, Polynomial, Spring
from pbad_jax.forces.paper import PaperContact, PaperDrag, paper_contact, paper_drag, paper_friction
from pbad_jax.forces.paths import Paths, Sites
from pbad_jax.forces.pulls import Along, Lengths
from pbad_jax.forces.shape_contact import ShapeContact
from pbad_jax.forces.surfaces import SignedDistance, box, capsule, half_space, height_field, sphere
from pbad_jax.forces.tendons import (
    joint_polynomial,
    spatial_tendon_limit,
    spatial_tendon_spring,
    tendon_coupling,
    tendon_friction,
    tendon_limit,
    tendon_polynomial,
    tendon_spring,
)
from pbad_jax.forces.world_contact import Contact, contact

__all__ = [
    "Actuation",
    "Along",
    "Anchor",
    "Attachment",
    "BallLimit",
    "BallSpring",
    "BodyContact",
    "Contact",
    "ContactPoints",
    "Coupling",
    "Damping",
    "Drag",
    "Fluid",
    "Force",
    "Friction",
    "Gears",
    "Gravity",
    "GravityCompensation",
    "InertiaBoxes",
    "Instant",
    "JointForce",
    "Joints",
    "Lengths",
    "Limit",
    "LineForce",
    "Load",
    "PDDrive",
    "PaperContact",
    "PaperDrag",
    "Paths",
    "PointForces",
    "Polynomial",
    "ShapeContact",
    "SignedDistance",
    "Sites",
    "Spring",
    "Start",
    "Tendons",
    "Wrench",
    "actuators",
    "body_contact",
    "box",
    "capsule",
    "connect",
    "contact",
    "contact_between",
    "contact_points",
    "drag",
    "fluid",
    "gravity_compensation",
    "half_space",
    "height_field",
    "inertia_boxes",
    "is_actuator",
    "is_conservative",
    "joined",
    "joint_force",
    "joint_polynomial",
    "joint_ranges",
    "name_of",
    "paper_contact",
    "paper_drag",
    "paper_friction",
    "pd_drive",
    "point_forces",
    "points_on",
    "spatial_tendon_limit",
    "spatial_tendon_spring",
    "sphere",
    "tendon_coupling",
    "tendon_friction",
    "tendon_limit",
    "tendon_polynomial",
    "tendon_spring",
    "total_load",
    "total_potential",
    "weld",
    "wrench",
]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
