"""The stages of a step at one iterate: how far the field of every link has come from q_k, and its frames."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom.operator import KERNEL
from pbad_jax.kernels.increments import increments
from pbad_jax.kinematics import joint_field, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.math.small import computed_once
from pbad_jax.math.spatial import tangent_compose
from pbad_jax.model.model import Model
from pbad_jax.stage.start import StepStart


class StageFields(NamedTuple):
    """All stages at one iterate; leading axis m."""

    z: jax.Array  # (m,nq)
    delta: Field  # from q_k
    frames: transforms.Frames


def stages(model: Model, start: StepStart, z: jax.Array) -> StageFields:
    """ΔT and frames of the stages at the increments z (m,nq)."""
    motion = jax.vmap(lambda z_j: transforms.joint_motion(model, z_j))(z)
    joint = jax.vmap(lambda z_j: joint_field.difference(model, z_j))(z)
    T, L = start.frames.T[None], start.L[None] + tangent_compose(start.L, motion)
    if start.recurrence == KERNEL:
        each = [increments(model, start.L, start.frames.T, x) for x in motion]
        dT, s = (jnp.stack(x) for x in zip(*each))
        return StageFields(z, Field(dT, joint), transforms.Frames(T + dT, L, s))
    dT = jax.vmap(lambda x: transforms.increments(model, start.L, x))(motion)
    dT, L = computed_once(dT, L)
    f = jax.vmap(lambda T, L_j: transforms.with_screws(model, T, L_j))(T + dT, L)
    return StageFields(z, Field(dT, joint), transforms.Frames(*computed_once(*f)))
