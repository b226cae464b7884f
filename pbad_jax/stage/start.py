"""The start of a step: what is known at time k, and what forces are told of an instant within the step."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.atom import operator, sweeps
from pbad_jax.atom.operator import Operator
from pbad_jax.atom.sweeps import NewtonMatrix
from pbad_jax.kinematics import joint_field, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.kinematics.tree import on_dofs, tree
from pbad_jax.laws.force import nearby, stored
from pbad_jax.laws.instant import Instant, Start, instant
from pbad_jax.math import batched
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import small_sum, take
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.solver.dense import DenseMetric


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepStart:
    """Everything at the start of a step, time k."""

    q: jax.Array  # (nq,) q_k
    v: jax.Array  # (nv,) v_k
    L: jax.Array  # (N,3,4) local transforms
    frames: transforms.Frames  # about `origin`
    origin: jax.Array  # (N,3) m, the centre of mass of every link's tree
    V: Field  # rates
    mass: Operator  # the mass matrix
    factor: batched.CholeskyFactor | None  # of a dense mass matrix
    rounding: jax.Array  # () kg^½ m, of q and of the links' positions in the world, in the mass matrix; a constant
    stored: jax.Array  # (nforces,) J, what every force can give back; zero of those that are driven
    time: jax.Array
    control: jax.Array  # (nu,)
    near: tuple | None  # what every force found near
    driven: tuple[int, ...] = dataclasses.field(metadata=STATIC)  # forces whose work only a quadrature tells
    recurrence: str = dataclasses.field(metadata=STATIC)  # of atom/operator.py, for the whole step
    kick: float | None = dataclasses.field(default=None, metadata=STATIC)  # see Instant
    told: tuple[jax.Array, jax.Array] | None = None  # v (nv,) and V (N,3,4) that forces hear of instead of its own
    before: Instant | None = None  # see Instant


def step_start(
    model: Model, state: State | StepStart, control, recurrence: str = "parallel", kick: float | None = None
) -> StepStart:
    """What is constant during a step from `state` (its q, v and time); kick: see Instant."""
    L = transforms.local_transforms(model, state.q)
    T = operator.world_transforms(model, L, recurrence)
    origin = transforms.origins(model, T)
    f = transforms.with_screws(model, transforms.shift(T, origin), L)
    V = Field(transforms.velocity_field(model, f, state.v), joint_field.rate(model, state.v))
    mass = operator.mass(model, f, recurrence)
    factor = batched.cholesky(jax.lax.stop_gradient(mass)) if isinstance(mass, jax.Array) else None
    at = instant(state.q, state.v, T, V.T, state.time, control)
    near = nearby(model, at.start)
    each = stored(model, dataclasses.replace(at, start=at.start._replace(near=near)))
    U, driven = as_array(each, model.dtype), tuple(k for k, u in enumerate(each) if u is None)
    rounding, time = rounding_of(model, state.q, T, mass, factor), state.time
    return StepStart(
        state.q, state.v, L, f, origin, V, mass, factor, rounding, U, time, control, near, driven, recurrence, kick
    )


def as_array(each: list[jax.Array | None], dtype) -> jax.Array:
    """What every force has stored (nforces,) J, zero where there is None."""
    return jnp.stack([jnp.zeros((), dtype) if u is None else u for u in each]) if each else jnp.zeros(0, dtype)


def rounding_of(model: Model, q: jax.Array, T: jax.Array, mass: Operator, factor) -> jax.Array:
    """What rounding makes of q and of the positions in T (N,3,4), as a length in the mass matrix, () kg^½ m."""
    model, q, T, mass = jax.lax.stop_gradient((model, q, T, mass))
    turned = on_dofs(model, take(q, tree(model.topology).scalar_q), lambda: jnp.zeros((), q.dtype))
    far = jnp.sum(model.second_moment[:, 3, 3] * small_sum(T[..., 3] ** 2))
    length = metric_of(model, mass, factor).length(turned) if model.nv else jnp.zeros((), q.dtype)
    return jnp.finfo(q.dtype).eps * jnp.sqrt(far + length**2)


class SweepsMetric(NamedTuple):
    """What a DenseMetric is, of one stage, by sweeps through the tree."""

    model: Model
    mass: NewtonMatrix

    def norm(self, r: jax.Array) -> jax.Array:
        """√(rᵀ M⁻¹ r), ()."""
        return jnp.sqrt(jnp.maximum(sweeps.inverse_quadratic(self.model, self.mass, r), 0.0))  # a NaN stays

    def length(self, delta: jax.Array) -> jax.Array:
        """√(δᵀ M δ), ()."""
        return jnp.sqrt(jnp.maximum(sweeps.quadratic(self.model, self.mass, delta), 0.0))  # a NaN stays

    def slope(self, r: jax.Array, delta: jax.Array) -> jax.Array:
        """<r, δ>, ()."""
        return r @ delta

    def damped(self, J: NewtonMatrix, r: jax.Array, damping: jax.Array) -> tuple[NewtonMatrix, jax.Array]:
        """J + λ M and r."""
        return J._replace(c=J.c + damping, d=J.d + damping * self.model.armature), r

    def zeros(self, r: jax.Array, made: Callable) -> NewtonMatrix:
        """Zeros in the shapes of what would be `made`."""
        return jax.tree.map(lambda y: jnp.zeros(y.shape, r.dtype), jax.eval_shape(made))


def metric_of(
    model: Model, mass: Operator, factor: batched.CholeskyFactor | None, **how: Any
) -> DenseMetric | SweepsMetric:
    """What residuals and corrections are measured by, () kg^½ m: the mass matrix at time k. how: see DenseMetric."""
    if factor is not None:
        return DenseMetric(factor, **how)
    assert isinstance(mass, NewtonMatrix)
    return SweepsMetric(model, mass)


def instant_at(model: Model, start: StepStart, q, v, f: transforms.Frames, V, elapsed, dt) -> Instant:
    """An instant of the step, `elapsed` s after its start; f about its origin, V (N,3,4) the rates of f.T."""
    v_k, V_k = (start.v, start.V.T) if start.told is None else start.told
    begun = Start(start.q, v_k, transforms.shift(start.frames.T, -start.origin), V_k, start.near)
    T, time = transforms.shift(f.T, -start.origin), start.time + elapsed
    return Instant(q, v, T, V, time, start.control, begun, dt, elapsed=elapsed, kick=start.kick, before=start.before)


def first_instant(model: Model, start: StepStart, dt) -> Instant:
    """The start of the step itself."""
    at = instant_at(model, start, start.q, start.v, start.frames, start.V.T, jnp.zeros_like(dt), dt)
    return dataclasses.replace(at, time=start.time, elapsed=None, before=None)
