"""Contact of all shapes of chosen bodies with one another: which force takes which pair."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pbad_jax import checks
from pbad_jax.contact.bodies import BodyContact, geom_contact
from pbad_jax.contact.pairs import checked_pairs
from pbad_jax.contact.shapes import CORNERS, ShapeContact, convex_contact
from pbad_jax.contact.world import Contact
from pbad_jax.errors import ModelError
from pbad_jax.geometry.convex_shapes import KINDS, ROUND
from pbad_jax.model.model import Model, check_model

MAX_CONTACTS = 32
BETWEEN_BODIES = (BodyContact, ShapeContact)
CONTACTS = (Contact, *BETWEEN_BODIES)  # what touches, whatever it is


def contact_between(
    model: Model,
    pairs: Sequence[tuple[str, str]],
    *,
    max_contacts: int = MAX_CONTACTS,
    margin: float = 0.0,
    stiffness: float | None = None,
    time_constant: float = 0.01,
    smoothing: float | None = None,
    damping: float | None = None,
    friction: float | None = None,
    stick_speed: float | None = None,
    turning: Any = None,
) -> tuple[BodyContact | ShapeContact, ...]:
    """All shapes of chosen pairs of bodies against one another: `with_forces(model, *contact_between(model, pairs))`.

    Spheres and capsules meet as in `body_contact`; boxes, cylinders, ellipsoids and the hulls of meshes as the module
    shapes.py says, in one place with a sphere and in up to four with all others.

    Args:
        model: the model; its masses set the stiffness.
        pairs: names of bodies, every pair once.
        max_contacts: in how many places shapes may touch at a time, of each force, and how many pairs are looked at:
            the nearest at the start of a step. A step at whose end others overlap is BRANCH.
        margin: m at which they begin to touch.
        stiffness, time_constant, smoothing, damping, friction, stick_speed, turning: as in `body_contact`; the four
            places of a pair share its stiffness.

    Returns:
        One to three forces.

    Raises:
        ModelError: unknown bodies, bodies without shapes that touch, bodies that cannot move against one another, no
            pairs or the same twice, negative or zero values, flat meshes.

    Example:
        >>> laws = forces.contact_between(model, [("link0", "link1")])
        >>> [type(law).__name__ for law in laws]
        ['BodyContact']
    """
    check_model(model)
    if not pairs:
        raise ModelError("contact_between: pairs is empty; give pairs of names, [('thigh', 'shin')]")
    geoms = [
        (i, j)
        for first, second in checked_pairs(model, pairs, "contact_between")
        for i in _shapes_of(model, first)
        for j in _shapes_of(model, second)
    ]
    checks.at_least_zero(margin, "margin of contact_between", "or they would overlap first")
    tau = checks.above_zero(time_constant, "time_constant of contact_between")
    mu = None if friction is None else checks.number(friction, "friction of contact_between")
    how = {"stiffness": stiffness, "smoothing": smoothing, "damping": damping, "stick_speed": stick_speed}
    made = geoms_in_contact(model, geoms, tau, mu, turning, margin=margin, max_contacts=max_contacts, **how)
    return tuple(force for force, _ in made)


def geoms_in_contact(
    model: Model,
    geoms: Sequence[tuple[int, int]],
    tau,
    friction: Any = None,
    turning: Any = None,
    *,
    margin: Any = 0.0,
    max_contacts: int = MAX_CONTACTS,
    **how: Any,
) -> list[tuple[BodyContact | ShapeContact, np.ndarray]]:
    """The same for c pairs of shapes by their places in the model's geometry, and which of the pairs each has.

    tau, friction and margin are () or (c,), turning (2,) or (c,2).
    """
    if not isinstance(max_contacts, int) or isinstance(max_contacts, bool) or max_contacts < 1:
        raise ModelError(f"max_contacts of contact is {max_contacts!r}; it must be an integer ≥ 1")
    # round shapes have axes, others planes; a sphere meets a shape in one place, two shapes in several
    kinds, one = model.topology.geom_types, np.ones(len(geoms))
    round_ = np.array([[kinds[g] in ROUND for g in pair] for pair in geoms]).all(axis=1)
    with_sphere = np.array(["sphere" in (kinds[i], kinds[j]) for i, j in geoms]) & ~round_
    out = []
    for some, places in ((round_, 0), (with_sphere, 1), (~round_ & ~with_sphere, CORNERS)):
        k = np.flatnonzero(some)
        if not k.size:
            continue
        # the numbers of these pairs
        own = [geoms[int(x)] for x in k]
        mu = None if friction is None else (friction * one)[k]
        same = {"margin": (margin * one)[k], "max_contacts": max_contacts, **how}
        same["turning"] = None if turning is None else (turning * one[:, None])[k]
        if places:
            out.append((convex_contact(model, own, (tau * one)[k], mu, places=places, **same), k))
        else:
            out.append((geom_contact(model, own, (tau * one)[k], mu, **same), k))
    return out


def _shapes_of(model: Model, body: int) -> list[int]:
    """The shapes of a body that touch and have an inside, by their places in the geometry."""
    t = model.topology
    own = [i for i, b in enumerate(t.geom_bodies) if b == body and t.geom_touches[i] and t.geom_types[i] in KINDS]
    if not own:
        raise ModelError(
            f"contact_between: body {t.body_names[body]!r} has no shape that could touch; give it a Geom of the kind "
            f"{', '.join(KINDS)}"
        )
    return own
