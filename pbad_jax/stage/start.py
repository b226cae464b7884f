"""The start of a step: what is known at time k, and what forces are told of an instant within the step."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.atom.operator import Operator
from pbad_jax.forces.force import Instant, Start, instant, nearby, stored
from pbad_jax.kinematics import joint_field, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.math import batched
from pbad_jax.model.model import Model
from pbad_jax.model.state import State


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["q", "v", "L", "frames", "origin", "V", "mass", "metric", "stored", "time", "control", "near"],
    meta_fields=["driven", "recurrence"],
)
@dataclasses.dataclass(frozen=True)
class StepStart:
    """Everything at the start of a step, time k."""

    q: jax.Array  # (nq,) q_k
    v: jax.Array  # (nv,) v_k
    L: jax.Array  # (N,3,4) local transforms
    frames: transforms.Frames  # about `origin`
    origin: jax.Array  # (3,) m, the centre of mass
    V: Field  # rates
    mass: Operator  # the mass matrix
    metric: batched.CholeskyFactor | None  # of a dense mass matrix
    stored: jax.Array  # (nforces,) J, what every force can give back; zero of those that are driven
    time: jax.Array
    control: jax.Array  # (nu,)
    near: tuple | None  # what every force found near
    driven: tuple[int, ...]  # forces whose work only a quadrature tells
    recurrence: str  # of atom/operator.py, for the whole step


def step_start(model: Model, state: State | StepStart, control, recurrence: str = "parallel") -> StepStart:
    """What is constant during a step from `state` (its q, v and time)."""
    L = transforms.local_transforms(model, state.q)
    T = operator.world_transforms(model, L, recurrence)
    origin = transforms.center_of_mass(model, T)
    f = transforms.with_screws(model, transforms.shift(T, origin), L)
    V = Field(transforms.velocity_field(model, f, state.v), joint_field.rate(model, state.v))
    mass = operator.mass(model, f, recurrence)
    metric = batched.cholesky(jax.lax.stop_gradient(mass)) if isinstance(mass, jax.Array) else None
    at = instant(state.q, state.v, T, V.T, state.time, control)
    near = nearby(model, at.start)
    each = stored(model, dataclasses.replace(at, start=at.start._replace(near=near)))
    U, driven = as_array(each, model.dtype), tuple(k for k, u in enumerate(each) if u is None)
    return StepStart(state.q, state.v, L, f, origin, V, mass, metric, U, state.time, control, near, driven, recurrence)


def as_array(each: list[jax.Array | None], dtype) -> jax.Array:
    """What every force has stored (nforces,) J, zero where there is None."""
    return jnp.stack([jnp.zeros((), dtype) if u is None else u for u in each]) if each else jnp.zeros(0, dtype)


def instant_at(model: Model, start: StepStart, q, v, f: transforms.Frames, V, time, dt) -> Instant:
    """An instant of the step; f about its origin, V (N,3,4) the rates of f.T."""
    begun = Start(start.q, start.v, transforms.shift(start.frames.T, -start.origin), start.V.T, start.near)
    return Instant(q, v, transforms.shift(f.T, -start.origin), V, time, start.control, begun, dt)
