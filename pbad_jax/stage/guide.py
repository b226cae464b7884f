"""What leads Newton's method through laws with kinks: the duals of the forces, and where the links were expected.

The laws are in laws/one_sided.py and laws/smoothing.py; docs/mathematics.md tells how they go together.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.dynamics import point_forces
from pbad_jax.kinematics import joint_field, transforms
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.laws.force import acts_at, first_duals, offers, total_load
from pbad_jax.laws.instant import Guide
from pbad_jax.laws.load import Load, scaled, sum_of
from pbad_jax.math import batched
from pbad_jax.model.model import Model
from pbad_jax.stage.start import StepStart, first_instant


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


def mobility(model: Model, start: StepStart, dt: jax.Array, share: jax.Array | float) -> operator.Mobility:
    """How freely everything moves in a step of dt, under what is not led: by M + dt D + dt² K at its start.

    So a light foot on a stiff drive is heavy. share: of dt² M⁻¹ F, how far a force F moves it in the step.
    """
    # what is not led, without the pairs that others have found near
    f, own = start.frames, tuple(force for force in model.forces if not offers(force, "dual"))
    bare = dataclasses.replace(model, forces=own)
    at = first_instant(bare, start, dt)
    load = scaled(total_load(bare, dataclasses.replace(at, start=at.start._replace(near=None))), dt)

    felt = felt_mass(model, start, load)
    if felt is start.mass:
        return _shared(operator.mobility(model, f, start.mass, start.factor), share)
    return mobility_of(model, start, felt, share)


def felt_mass(model: Model, start: StepStart, load: Load) -> operator.Operator:
    """M − ∂(dt² F)/∂δ at the start, of a load times dt²; for the sweeps without what couples links. M: no slopes."""
    f, parts, slopes = start.frames, list(load.point_forces), point_forces.weighted(load, 1.0)
    joints = sum_of(load.dtau_dq, load.dtau_dv)
    if joints is None and all(S is None for S in slopes):
        return start.mass

    # −(dt D + dt² K) of joints, of points on one link, of points on several
    joints = jnp.zeros_like(model.armature) if joints is None else joints
    alone = [(p, S) for p, S in zip(parts, slopes) if not p.couples]
    links = point_forces.total_link_form(model, f, f, [p for p, _ in alone], [S for _, S in alone])
    for p, S in zip(parts, slopes):
        if p.couples and S is not None and start.factor is not None:
            joints = joint_field.as_matrix(joints) + point_forces.coupled_matrix(model, f, f, p, S)
    return operator.plus(model, f, start.mass, -joints, None if links is None else -links)


def mobility_of(model: Model, start: StepStart, felt: operator.Operator, share: jax.Array | float) -> operator.Mobility:
    """By a mass matrix that is felt; where that is not positive definite, by the mass matrix."""
    factor = None
    if isinstance(felt, jax.Array):
        factor = batched.cholesky(0.5 * (felt + felt.T))
        good = jnp.all(jnp.isfinite(factor.inverse))
        factor = jax.tree.map(lambda a, b: jnp.where(good, a, b), factor, start.factor)
    return _shared(operator.mobility(model, start.frames, felt, factor), share)


def _shared(free: operator.Mobility, share: jax.Array | float) -> operator.Mobility:
    return operator.Mobility(share * free.links, free.inertia / share)


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
