"""What leads Newton's method through laws with kinks: the duals of the forces, and where the links were expected.

The laws are in forces/one_sided.py and forces/regularised.py; docs/mathematics.md tells how they go together.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.forces.force import Guide, acts_at, first_duals, offers
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.model.model import Model


class StageGuide(NamedTuple):
    """The forces' Guide in the equations of m stages; duals with a leading axis m but for what acts once a step."""

    duals: tuple  # of every force, None where it has none
    T: jax.Array  # (m,N,3,4) m, about the step's origin
    trust: jax.Array  # ()
    free: operator.Mobility  # at the start of the step


def has_duals(model: Model, once: bool) -> bool:
    """Whether a force has that acts at the stages or, if that is there, once a step."""
    return any(offers(f, "dual") and (once or acts_at(f) == "stages") for f in model.forces)


def first(model: Model, m: int, once: bool, T: jax.Array, free: operator.Mobility) -> StageGuide:
    """Before the first iterate; T (N,3,4) at the start of the step."""
    duals = jax.tree.map(lambda x: jnp.broadcast_to(x, (m, *x.shape)), first_duals(model, "stages"))
    if once:
        duals = tuple(a if b is None else b for a, b in zip(duals, first_duals(model, "step")))
    return StageGuide(duals, jnp.broadcast_to(T, (m, *T.shape)), jnp.ones((), T.dtype), free)


def after(model: Model, guide: StageGuide, duals: tuple, f: Frames, delta: jax.Array, trust: jax.Array) -> StageGuide:
    """After an iterate at the frames f of m stages, from which the step δ (m·nv,) is made."""
    T = jax.vmap(lambda f, d: f.T + transforms.velocity_field(model, f, d))(f, delta.reshape(len(f.T), -1))
    return guide._replace(duals=duals, T=T, trust=trust)


def at_stages(model: Model, guide: StageGuide, rates: jax.Array, origin: jax.Array) -> Guide:
    """Of the forces at the stages, leading axis m; rates (m,) 1/s as in Guide."""
    duals = tuple(d if acts_at(f) == "stages" else None for f, d in zip(model.forces, guide.duals))
    return jax.vmap(lambda d, T, rate: _at(guide, d, T, rate, origin))(duals, guide.T, rates)


def at_end(guide: StageGuide, rate: Any, origin: jax.Array) -> Guide:
    """Of the forces that act once a step."""
    return _at(guide, guide.duals, guide.T[-1], rate, origin)


def _at(guide: StageGuide, duals: tuple, T: jax.Array, rate: Any, origin: jax.Array) -> Guide:
    return Guide(duals, transforms.shift(T, -origin), rate, guide.trust, *guide.free, origin)
