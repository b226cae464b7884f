"""The stage equation: one residual for every scheme, and its Newton matrix.

Every scheme is linear in the bodies' transforms T^l and in the joints' own coordinates; both together are a Field.
With stages q_1..q_m and a table C, D (schemes.py),

    r_i = Σ_l <∂T^l(q_i)/∂q_i, A_i^l> + armature ∘ a_i − τ_i = 0
    A_i^l = (Σ_j C_ij ΔT_j^l + Y_i^l) M^l / dt² + ∂Q/∂T^l

where Y is known, made from the past: e_i dt V_k + c_i ΔT_h for a collocation, and what coasting.py adds to it. For
m = 1 this is the gradient of the paper's energy (eq. 5); for m > 1 the collocation equations (eq. 6). Its matrix has
the blocks

    J_ij = C_ij/dt² ∂²I(q_i,q_j)/∂q_i∂q_j + [i = j] Σ_l <∂²T^l, A_i^l> + joint terms.

Unknowns are increments z_j, from q_k, in the layout of q (a quaternion for balls). The residual is multiplied by
dt², so that it stays finite in float32. Second derivatives are taken in exponential coordinates about the iterate,
which makes the matrix of a conservative system symmetric; at a root every choice of coordinates gives the same.

Forces that act once a step (laws/force.py) change V_k by −dt F M⁻¹, F their field at the end of the step: their share
of A_i is −e_i F(q_m); step/closing_impulse.py divides it.

The equation is written for a step of length h dt, 0 < h ≤ 1 (solver/continuation.py follows its root from h = 0): what
is known is a polynomial in h, and h = 1 is the step itself.

Read next: solver/levenberg_marquardt.py.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from pbad_jax.atom import operator
from pbad_jax.atom.operator import KERNEL, Operator
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.laws.force import acting, total_load, total_potential
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, field_beyond, field_of, scaled
from pbad_jax.math import batched
from pbad_jax.math.small import computed_once, matmul
from pbad_jax.model.model import Model
from pbad_jax.schemes import Scheme
from pbad_jax.stage import by_kernel
from pbad_jax.stage import guide as guides
from pbad_jax.stage.coasting import coasting, less_collocation
from pbad_jax.stage.fields import StageFields, stages
from pbad_jax.stage.guide import StageGuide
from pbad_jax.stage.matrix import newton_matrix
from pbad_jax.stage.sparse_loads import SparseLoads, either, end_of_step
from pbad_jax.stage.start import StepStart, instant_at
from pbad_jax.stage.terms import StageTerms


class StageEquation(NamedTuple):
    """A table and the past: what one solve needs besides `StepStart`. Leading axis m; polynomials in h by power."""

    dt: jax.Array
    nodes: jax.Array  # (m,)
    C: jax.Array  # (m,m)
    D: jax.Array  # (m,m)
    accel: tuple[Field | None, ...]  # dt² A without the unknowns: Y
    rate: tuple[Field | None, ...]  # dt V without the unknowns
    impulse: jax.Array | None = None  # (m,) weights of the forces that act once a step; None: they do not
    coasts: jax.Array | None = None  # (n,) w dt v_k of hinges and slides, which the table does not describe
    coasting: tuple[Field, Field] | None = None  # w dt² A_c at the start and at the nodes; the error asks for it

    has_branches = True  # a root far from the start may be another than the one that grows out of it
    takes_guide = True  # its linear model may be made from duals

    def evaluate(
        self, model: Model, start: StepStart, z: jax.Array, h: Any = 1.0, guide: StageGuide | None = None
    ) -> tuple[jax.Array, StageTerms]:
        """(h dt)² r (m·nv,) at the increments z (m,nq), kg m² or kg, and the StageTerms of its matrix.

        `guide`: on the way to a root; r does not depend on it, its matrix and `beyond` do.
        """
        chex.assert_shape(z, (len(self.nodes), model.nq))
        t = _stage_terms(model, start, self, z, h, guide)
        return (_pullback(model, start, t, t.A, "force") + t.joint_r).reshape(-1), t

    def matrix(self, model: Model, start: StepStart, t: StageTerms) -> Operator:
        """(h dt)² J (m·nv, m·nv), kg m² or kg; for the sweeps as they take it, m = 1."""
        return newton_matrix(model, self.C, self.D, t, start.recurrence)

    def mobility(self, model: Model, start: StepStart) -> operator.Mobility:
        """Of the end of the step, under what acts once a step, or at the last stage."""
        push = jnp.eye(len(self.nodes), dtype=self.C.dtype)[-1] if self.impulse is None else self.impulse
        return guides.mobility(model, start, self.dt, jnp.abs(batched.solve(self.C, push)[-1]))

    def modelled(self, model: Model, start: StepStart, t: StageTerms, r: jax.Array) -> jax.Array:
        """The residual (m·nv,) that the next linear model has instead of r."""
        assert t.beyond is not None
        return r + (_pullback(model, start, t, t.beyond.T, "modelled") + t.beyond.joint).reshape(-1)


def collocation(model: Model, scheme: Scheme, dt, start: StepStart, z_h: jax.Array | None) -> StageEquation:
    """The StageEquation of radau and legendre; z_h (nq,) is the increment to the history node, where there is one."""
    dtype = start.q.dtype
    nodes, C, D, e = (jnp.asarray(x, dtype) for x in (scheme.nodes, scheme.C, scheme.D, scheme.e))
    if z_h is not None:
        dT = transforms.increments(model, start.L, transforms.joint_motion(model, z_h))
        past = Field(dT, joint_field.difference(model, z_h))
        return StageEquation(dt, nodes, C, D, (_outer(scheme.c, past),), (_outer(scheme.d, past),))

    # with coasting taken away, whose share is of the order of the table's own error
    on = _outer(scheme.e, jax.tree.map(lambda x: dt * x, start.V))
    coast = coasting(model, start, dt, nodes)
    accel, rate = less_collocation(coast, C, D, e)
    parts = (None, on, accel) if scheme.m == 1 else (None, on, None, accel)
    return StageEquation(dt, nodes, C, D, parts, (None, None, rate), -e, coast.angles, (coast.first, coast.accel))


def _outer(weights, field: Field) -> Field:
    """(m,) ⊗ field."""
    return jax.tree.map(lambda x: jnp.multiply.outer(jnp.asarray(weights, x.dtype), x), field)


def known_at(parts: tuple[Field | None, ...], h, like: Field) -> Field:
    """The polynomial Σ h^p parts_p."""
    terms = [jax.tree.map(lambda x, p=p: h**p * x, part) for p, part in enumerate(parts) if part is not None]
    return jax.tree.map(lambda *x: sum(x[1:], x[0]), *terms) if terms else jax.tree.map(jnp.zeros_like, like)


def _stage_terms(
    model: Model, start: StepStart, eq: StageEquation, z: jax.Array, h, guide: StageGuide | None
) -> StageTerms:
    # A = C δ + Y and V = D δ + R at the nodes, of the links and of the joints that are fields (eq. 5)
    dt, st = h * eq.dt, stages(model, start, z)
    Y, R = known_at(eq.accel, h, st.delta), known_at(eq.rate, h, st.delta)
    (A,) = computed_once(matmul(jnp.tensordot(eq.C, st.delta.T, axes=1) + Y.T, model.second_moment))
    rates, rate_slopes = joint_field.table(model, eq.D, z, st.delta.joint, R.joint)
    V = jnp.tensordot(eq.D, st.delta.T, axes=1) + R.T
    accel, accel_slopes = joint_field.table(model, eq.C, z, st.delta.joint, Y.joint)
    joint_r = model.armature[None] * accel

    # forces at the stages, and those once a step at its end, which act by the weights of `impulse`
    load = scaled(_loads(model, start, eq, st, rates / dt, V / dt, dt, guide), dt)
    end, impulse = None, jnp.zeros(len(eq.nodes), z.dtype) if eq.impulse is None else eq.impulse
    rare, duals = SparseLoads(), load.dual
    if eq.impulse is not None and acting(model, "step"):
        end, rare = end_terms(model, start, eq.nodes[-1], st, st.frames, dt, guide)
        duals = either(duals, end.dual)
    n_links = model.topology.n_links

    def plus(x: jax.Array, part: Callable[[Load], jax.Array | None], more: jax.Array | None = None) -> jax.Array:
        """x and a part of the loads at the stages, and by its weights of that at the end and `more`."""
        at_stages = jax.vmap(part, axis_size=len(eq.nodes))(load)
        x = x if at_stages is None else x + at_stages
        for at_end in (None if end is None else part(end), more):
            x = x if at_end is None else x + impulse.reshape(-1, *(1,) * (x.ndim - 1)) * at_end[None]
        return x

    # fields: what the links resist less what acts on them; the joints likewise
    laid_out = by_kernel.fields_of if start.recurrence == KERNEL else lambda load: load
    A = plus(A, lambda x: field_of(laid_out(x), n_links), rare.field)
    curving = plus(A, lambda x: field_beyond(laid_out(x), n_links, "curving"), rare.curving)
    zero = jnp.zeros_like(joint_r)
    joint_r = joint_r - plus(zero, lambda x: x.tau)
    # what duals model in the place of what acts, while a solve is led
    beyond = None
    if guide is not None:
        field = plus(jnp.zeros_like(A), lambda x: field_beyond(laid_out(x), n_links, "modelled"), rare.modelled)
        beyond = Field(field, -plus(zero, lambda x: x.modelled_tau))
    return StageTerms(
        z, st.frames, A, joint_r, accel_slopes, rate_slopes, load, end, impulse, rare, curving, beyond, duals
    )


def _loads(
    model: Model, start: StepStart, eq: StageEquation, st: StageFields, rates: jax.Array, V: jax.Array, dt, guide
) -> Load:
    """What acts at the stages, at every stage."""

    def one(z, v, f, V, elapsed, led):
        q = manifold.compose_increment(model, start.q, z)
        at = instant_at(model, start, q, v, f, V, elapsed, dt)
        return total_load(model, dataclasses.replace(at, guide=led), "stages")

    led = None if guide is None else guides.at_stages(model, guide, jnp.diag(eq.D) / dt, start.origin)
    return jax.vmap(one)(st.z, rates, st.frames, V, eq.nodes * dt, led)


def end_load(model: Model, start: StepStart, node, st: StageFields, dt) -> Load:
    """What acts once a step: at its end, with the mean rates of the step."""
    return total_load(model, end_instant(model, start, node, st, dt), "step")


def end_terms(model: Model, start: StepStart, node, st: StageFields, here, dt, guide) -> tuple[Load, SparseLoads]:
    """The same times dt², and apart from it what goes by parts, at the levers of the frames `here`."""
    led = None if guide is None else guides.at_end(guide, 1 / dt, start.origin)
    at = dataclasses.replace(end_instant(model, start, node, st, dt), guide=led)
    return end_of_step(model, at, here, jax.tree.map(lambda x: x[-1], st.frames), dt)


def end_instant(model: Model, start: StepStart, node, st: StageFields, dt) -> Instant:
    """The last of the stages, at time k + node dt, with the mean rates from k on."""
    z, dT, f = jax.tree.map(lambda x: x[-1], (st.z, st.delta.T, st.frames))
    v = manifold.difference(model, manifold.identity_increment(model), z) / dt
    return instant_at(model, start, manifold.compose_increment(model, start.q, z), v, f, dT / dt, node * dt, dt)


def _pullback(model: Model, start: StepStart, t: StageTerms, A: jax.Array, name: str) -> jax.Array:
    if start.recurrence == KERNEL:
        return by_kernel.pullback(model, t, A, name)
    return jax.vmap(lambda f, A_i: operator.pullback(model, f, A_i, start.recurrence))(t.frames, A)


def energy(model: Model, start: StepStart, eq: StageEquation, z: jax.Array, h: Any = 1.0) -> jax.Array:
    """(h dt)² times the energy, (), whose gradient is the residual of one stage: eq. (5) of the paper where Y is its.

    ½ C ‖ΔT‖²_M + <Y, ΔT>_M + (h dt)² Q, and the same for the armature (equal on the three axes of a ball). Every force
    must have a potential.
    """
    st, dt = stages(model, start, z), h * eq.dt
    Y = known_at(eq.accel, h, st.delta)
    at = end_instant(model, start, eq.nodes[-1], st, dt)
    weight = joint_field.weights(model, model.armature)
    inertial = jnp.sum(matmul(0.5 * eq.C[0, 0] * st.delta.T + Y.T, model.second_moment) * st.delta.T)
    joint = jnp.sum(weight[None] * (0.5 * eq.C[0, 0] * st.delta.joint + Y.joint) * st.delta.joint)
    return inertial + joint + dt**2 * (total_potential(model, at) - jnp.sum(start.stored))


def stage_rates(eq: StageEquation, st: StageFields) -> Field:
    """dt V_i of the stages."""
    return jax.tree.map(lambda x, y: jnp.tensordot(eq.D, x, axes=1) + y, st.delta, known_at(eq.rate, 1.0, st.delta))


def end_velocity(
    model: Model, start: StepStart, eq: StageEquation, st: StageFields
) -> tuple[jax.Array, transforms.Frames, Operator]:
    """The rate of the field at the end node, projected: v_{k+1} = mass⁻¹ ∂I(V_end, q_{k+1})/∂q_b.

    Returns:
        v (nv,), and the frames and the mass matrix at the end.
    """
    V, f = jax.tree.map(lambda x: x[-1], (stage_rates(eq, st), st.frames))
    mass = operator.mass(model, f, start.recurrence)
    p = operator.pullback(model, f, matmul(V.T, model.second_moment), start.recurrence)
    p = p + model.armature * joint_field.pullback(model, st.z[-1], V.joint)
    return operator.solve(model, mass, p) / eq.dt, f, mass
