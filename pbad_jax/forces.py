"""Forces: what a force is, the laws along lengths, contact, and the surfaces and points that it is made of."""

from pbad_jax.contact.bodies import BodyContact, body_contact
from pbad_jax.contact.dispatch import contact_between
from pbad_jax.contact.shapes import ShapeContact
from pbad_jax.contact.world import Contact, contact
from pbad_jax.geometry.points import ContactPoints, contact_points, joined, points_on
from pbad_jax.geometry.surfaces import SignedDistance, box, capsule, half_space, height_field, safe_norm, sphere
from pbad_jax.laws.attachments import Anchor, Attachment, connect, weld
from pbad_jax.laws.balls import BallLimit, BallSpring, Gears
from pbad_jax.laws.drives import JointForce, PDDrive, joint_force, pd_drive
from pbad_jax.laws.fluid import Drag, Fluid, InertiaBoxes, drag, fluid, inertia_boxes
from pbad_jax.laws.force import Force, is_conservative, name_of, total_load, total_potential
from pbad_jax.laws.gravity import Gravity, GravityCompensation, gravity_compensation
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.lengths import Coupling, Joints, Tendons
from pbad_jax.laws.line_force import LineForce, actuators, is_actuator, joint_ranges
from pbad_jax.laws.line_laws import Actuation, Damping, Friction, Limit, Polynomial, Spring
from pbad_jax.laws.load import Load, PointForces, point_forces
from pbad_jax.laws.paper import PaperContact, PaperDrag, paper_contact, paper_drag, paper_friction
from pbad_jax.laws.paths import Paths, Sites
from pbad_jax.laws.pulls import Along, Lengths
from pbad_jax.laws.soft_end import SoftEnd
from pbad_jax.laws.tendons import (
    joint_polynomial,
    lengths,
    spatial_tendon_limit,
    spatial_tendon_spring,
    tendon_coupling,
    tendon_friction,
    tendon_limit,
    tendon_polynomial,
    tendon_spring,
)
from pbad_jax.laws.wrench import Wrench, wrench

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
    "SoftEnd",
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
    "lengths",
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
    "safe_norm",
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
