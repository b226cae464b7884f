"""Forces: what a force is (force.py), and those that are here."""

from pbad_jax.forces.attachments import Anchor, Attachment, connect, weld
from pbad_jax.forces.body_contact import BodyContact, body_contact
from pbad_jax.forces.contact_between import contact_between
from pbad_jax.forces.contact_points import ContactPoints, contact_points, joined, points_on
from pbad_jax.forces.drives import Actuation, JointForce, PDDrive, VectorActuation, joint_force, pd_drive
from pbad_jax.forces.external import Wrench, wrench
from pbad_jax.forces.fluid_laws import Drag, Fluid, InertiaBoxes, drag, fluid, inertia_boxes
from pbad_jax.forces.force import (
    Force,
    Instant,
    Load,
    PointForces,
    Start,
    is_conservative,
    point_forces,
    total_load,
    total_potential,
)
from pbad_jax.forces.joint_laws import Gravity, JointCoupling, JointDamping, JointFriction, JointLimit, JointSpring
from pbad_jax.forces.paper import PaperContact, PaperDrag, paper_contact, paper_drag, paper_friction
from pbad_jax.forces.passive import GravityCompensation, JointPolynomial, gravity_compensation, joint_polynomial
from pbad_jax.forces.shape_contact import ShapeContact
from pbad_jax.forces.site_actuation import SiteActuation
from pbad_jax.forces.spatial_tendons import (
    SpatialTendonActuation,
    SpatialTendonLimit,
    SpatialTendonSpring,
    spatial_tendon_limit,
    spatial_tendon_spring,
)
from pbad_jax.forces.surfaces import SignedDistance, box, capsule, half_space, height_field, sphere
from pbad_jax.forces.tendons import (
    TendonActuation,
    TendonCoupling,
    TendonFriction,
    TendonLimit,
    TendonSpring,
    tendon_coupling,
    tendon_friction,
    tendon_limit,
    tendon_spring,
)
from pbad_jax.forces.world_contact import Contact, contact

__all__ = [
    "Actuation",
    "Anchor",
    "Attachment",
    "BodyContact",
    "Contact",
    "ContactPoints",
    "Drag",
    "Fluid",
    "Force",
    "Gravity",
    "GravityCompensation",
    "InertiaBoxes",
    "Instant",
    "JointCoupling",
    "JointDamping",
    "JointForce",
    "JointFriction",
    "JointLimit",
    "JointPolynomial",
    "JointSpring",
    "Load",
    "PDDrive",
    "PaperContact",
    "PaperDrag",
    "PointForces",
    "ShapeContact",
    "SignedDistance",
    "SiteActuation",
    "SpatialTendonActuation",
    "SpatialTendonLimit",
    "SpatialTendonSpring",
    "Start",
    "TendonActuation",
    "TendonCoupling",
    "TendonFriction",
    "TendonLimit",
    "TendonSpring",
    "VectorActuation",
    "Wrench",
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
    "is_conservative",
    "joined",
    "joint_force",
    "joint_polynomial",
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
    "tendon_spring",
    "total_load",
    "total_potential",
    "weld",
    "wrench",
]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
