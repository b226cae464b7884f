"""What a residual and its matrix are made of."""

from typing import NamedTuple

import jax

from pbad_jax.kinematics.joint_field import Field, Slopes
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.laws.load import Load
from pbad_jax.stage.sparse_loads import SparseLoads


class StageTerms(NamedTuple):
    """What a residual and its matrix are made of, times dt²; leading axis m."""

    z: jax.Array  # (m,nq)
    frames: Frames
    A: jax.Array  # (m,N,3,4)
    joint_r: jax.Array  # (m,nv) what the joints add to the residual
    accel: Slopes
    rate: Slopes
    load: Load  # of every stage, times dt²; derivatives by rates times dt
    end: Load | None  # the same of what acts once a step, at its end
    impulse: jax.Array  # (m,) its weights
    sparse: SparseLoads  # what of it goes by parts
    curving: jax.Array  # (m,N,3,4) the field whose product with the curvature of T(q) the matrix has; mostly A
    beyond: Field | None  # what the next linear model has beside the residual: a field and (m,nv) in the joints
    duals: tuple  # of the forces, for the next StageGuide
