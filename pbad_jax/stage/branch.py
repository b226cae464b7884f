"""Whether a root is the one that grows out of the start of the step: tests of what was found, not ways to find it."""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.dynamics.energy import kinetic_of
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import acts_at, offers, passed, stored
from pbad_jax.laws.instant import Instant
from pbad_jax.math import batched, rotations
from pbad_jax.math.batched import cond_if_any
from pbad_jax.math.small import take
from pbad_jax.model.model import Model
from pbad_jax.stage import equation
from pbad_jax.stage.fields import StageFields, stages
from pbad_jax.stage.start import StepStart, as_array, first_instant, instant_at
from pbad_jax.stage.work import power

LARGE_TURN = 0.5  # rad a step from which roots may be so near one another that no matrix tells them apart
LEANING = 0.1  # how far to the left of the axis a pair of eigenvalues may be; inertia alone has 2 ± 1.4i (radau(2))
LITTLE_TURN = 0.25  # rad a step
BLOW = 0.3  # of the energy at stake, what a step may add where forces act once a step (docs/mathematics.md, section 4)
BALANCED = 1e-6  # of all energy there is, in which the account of a step may be off by the solver's tolerance
LONGEST_TURN = 2 * np.pi  # rad a step; beyond, how many turns there were is a guess


def is_connected(model: Model, metric: batched.CholeskyFactor | None, D: jax.Array, J) -> jax.Array:
    """Whether a root can be the one that grows out of dt = 0, by its matrix: a necessary condition, () bool.

    It refuses what runs from an unstable equilibrium by more than e in a step where one configuration is unknown, by
    more than e^2.4 where several are: there the root is on the other side.

    One unknown configuration: J has to be positive definite (its symmetric part; that is, the root minimises the
    energy). Several: (D ⊗ mass)⁻¹ J has to have all its eigenvalues to the right of the imaginary axis. At dt = 0 it is
    D⁻¹C ⊗ 1, for radau D itself, with a spring D + (ω dt)² D⁻¹: to the right for all schemes that there are. Other
    roots are saddles and maxima, with eigenvalues to the left: often two, which the sign of det J does not tell.

    Args:
        metric: of the mass matrix; None where J is for the sweeps. D: (m,m), rate weights of the scheme.
    """
    if metric is None or J.shape[0] == model.nv:
        return operator.is_positive_definite(model, J)
    m, nv = len(D), model.nv
    table = batched.solve(D, jnp.eye(m, dtype=D.dtype))  # not inv: LAPACK, side by side, may wait for ever
    P = jnp.tensordot(table, J.reshape(m, nv, m, nv), axes=1).reshape(J.shape)
    weights = jnp.repeat(jnp.abs(table[-1]), nv)  # radau's quadrature weights, but any that are positive would do
    sure = operator.is_positive_definite(model, weights[:, None] * P)  # by Lyapunov's theorem; one factorisation
    return cond_if_any(~sure, lambda P, inverse: jnp.ones((), bool), _leans_to_the_right, P, metric.inverse)


def _leans_to_the_right(P: jax.Array, inverse: jax.Array) -> jax.Array:
    """Of (D⁻¹ ⊗ 1) J, measured in the mass matrix by the inverse of its factor."""
    nv = len(inverse)
    m = len(P) // nv
    P = jnp.einsum("ax,ixjy,by->iajb", inverse, P.reshape(m, nv, m, nv), inverse).reshape(P.shape)
    left = jnp.round(batched.eigenvalues_to_the_left(P))

    # one alone crosses the axis where the root turns back; a pair may cross it on the way to the root, but not by much
    pairs = (left > 0) & (left % 2 == 0) | jnp.isnan(left)
    return jnp.where(pairs, cond_if_any(pairs, lambda P: jnp.zeros((), bool), _leans_a_little, P), left == 0)


def _leans_a_little(P: jax.Array) -> jax.Array:
    return batched.eigenvalues_to_the_left(P + LEANING * jnp.eye(len(P), dtype=P.dtype)) < 0.5


def counts_turns(model: Model, z: jax.Array, coasted: jax.Array | None) -> jax.Array:
    """Whether every hinge turns by less than half a turn from node to node, () bool, of the stages z (m,nq).

    The transforms that the scheme joins do not change with a whole turn, so that beyond this the count is a guess.
    coasted: (m,n) what of the coordinates of hinges and slides the scheme does not describe (coasting.py).
    """
    t = tree(model.topology)
    described = z[:, t.scalar_q] if coasted is None else z[:, t.scalar_q] - coasted
    return jnp.all(jnp.abs(jnp.diff(described[:, t.hinge[t.scalar_links]], axis=0, prepend=0.0)) < jnp.pi)


def is_continuous(model: Model, dt, v_old: jax.Array, z: jax.Array, v_new: jax.Array) -> jax.Array:
    """Whether no joint has turned further than its rates before and after can explain, () bool; z (nq,), v (nv,).

    The mean of both rates has to make less than a turn. A hinge may turn by that mean, plus half of each, plus half a
    turn; a ball likewise, plus a quarter of one, as far as its rotation (at most half a turn) can tell. A slide is not
    asked, because positions are not periodic and a far root would have a large residual energy.
    """
    t = tree(model.topology)
    mean, slack = 0.5 * dt * (v_old + v_new), 0.5 * jnp.abs(dt) * (jnp.abs(v_old) + jnp.abs(v_new))
    hinge, dofs = t.scalar_q[t.hinge[t.scalar_links]], t.scalar_v[t.hinge[t.scalar_links]]
    smooth = ~jnp.any(jnp.abs(z[hinge] - mean[dofs]) > slack[dofs] + jnp.pi)
    smooth &= ~jnp.any(jnp.abs(mean[dofs]) >= LONGEST_TURN)
    if t.balls.size:
        p = rotations.quaternion_product(rotations.quaternion_exp(-take(mean, t.ball_v)), take(z, t.ball_q))
        angle = jnp.linalg.norm(rotations.quaternion_log(p), axis=-1)
        smooth &= ~jnp.any(angle > jnp.linalg.norm(take(slack, t.ball_v), axis=-1) + jnp.pi / 2)
        smooth &= ~jnp.any(jnp.linalg.norm(take(mean, t.ball_v), axis=-1) >= LONGEST_TURN)
    return smooth


def passes_through(model: Model, dt, start: StepStart, z: jax.Array) -> jax.Array:
    """Whether a force says that in a step to the increment z (nq,) something went through something, () bool."""
    if not any(offers(f, "passed") for f in model.forces):
        return jnp.zeros((), bool)
    model, dt, start, z = jax.lax.stop_gradient((model, dt, start, z))
    st = stages(model, start, z[None])
    f, dT = jax.tree.map(lambda x: x[0], (st.frames, st.delta.T))
    v = manifold.difference(model, manifold.identity_increment(model), z) / dt
    q = manifold.compose_increment(model, start.q, z)
    return passed(model, instant_at(model, start, q, v, f, dT / dt, dt, dt))


def largest_turn(model: Model, moved: jax.Array) -> jax.Array:
    """The largest angle, () rad, that a hinge or ball has turned in displacements (m,nv)."""
    t = tree(model.topology)
    turns = [jnp.zeros(1, moved.dtype), jnp.abs(moved[:, t.scalar_v[t.hinge[t.scalar_links]]]).reshape(-1)]
    if t.balls.size:
        turns.append(jnp.linalg.norm(moved[:, t.ball_v], axis=-1).reshape(-1))
    return jnp.max(jnp.concatenate(turns))


def turns_little(model: Model, z: jax.Array) -> jax.Array:
    """Whether all that moves are hinges and balls, each by less than LITTLE_TURN, () bool, of the increment z (nq,)."""
    moved = manifold.difference(model, manifold.identity_increment(model), z)
    slides = jnp.any(moved[tree(model.topology).dof_slide] != 0)
    return ~slides & (largest_turn(model, moved[None]) < LITTLE_TURN)


def adds_energy(
    model: Model, start: StepStart, dt, st: StageFields, v: jax.Array, work: jax.Array, own_error, settles: bool
) -> jax.Array:
    """Whether a step ends with energy that no force explains, beyond the scheme's `own_error` of that at stake.

    Asked of every step: minima of other wells, and in steps that are far too large even the root that grows out of the
    start, have many times the energy, and neither how far a joint goes nor their matrix tells. () bool.

    Args:
        st: the stages. v: (nv,) at the end. work: (nforces,) J of the forces that are driven.
        settles: whether what a free fall gains in the step is at stake too, where a force acts once a step.
    """
    model, start, dt, st, v, work = jax.lax.stop_gradient((model, start, dt, st, v, work))

    # the energy at both ends, each with what the forces can give back there
    f = jax.tree.map(lambda x: x[-1], st.frames)
    ended = equation.end_instant(model, start, 1.0, st, dt)
    U_0, U_1 = start.stored, as_array(stored(model, ended), v.dtype)
    told = jnp.all(jnp.isfinite(U_0) & jnp.isfinite(U_1))
    U_0, U_1 = (jnp.where(told, U, 0.0) for U in (U_0, U_1))
    T_0, T_1 = kinetic_of(model, start.V.T, start.v), kinetic_of(model, transforms.velocity_field(model, f, v), v)
    freed, driven = jnp.sum(U_0) - jnp.sum(U_1), _driven(model, start, ended, st, work)
    gain = T_1 - T_0 - freed - driven

    # what is at stake in the step, and what rounding and the solver's tolerance leave unknown
    unknown = max(BALANCED, 100 * float(jnp.finfo(v.dtype).eps)) * (T_1 + jnp.sum(jnp.abs(U_0)) + jnp.sum(jnp.abs(U_1)))
    stake = T_0 + jnp.abs(freed) + jnp.abs(driven)
    once = np.array([acts_at(force) == "step" for force in model.forces], bool)
    if not once.any():
        return told & (gain > own_error * stake + unknown)
    blown = jnp.any((U_0 > 0) & once) | jnp.any((U_1 > 0) & once)
    fall = 0.5 * transforms.total_mass(model) * jnp.sum((model.gravity * dt) ** 2) if settles else 0.0
    return told & (gain > jnp.where(blown, BLOW * (stake + fall), own_error * stake) + unknown)


def _driven(model: Model, start: StepStart, ended: Instant, st: StageFields, work: jax.Array) -> jax.Array:
    """The most that the forces which only quadratures tell of can have done, () J: by the stages, or by both ends.

    At the stages a stiff servo that comes to rest in a step has done next to nothing; the mean force of both ends,
    times the way, has all that a linear spring gives.
    """
    if not start.driven:
        return jnp.zeros((), work.dtype)
    which, last = np.array(start.driven), jax.tree.map(lambda x: x[-1], st)
    way = manifold.difference(model, manifold.identity_increment(model), last.z), last.delta.T
    begun = first_instant(model, start, ended.dt)
    mean = sum(power(model, at, "stages", start.driven, way) for at in (begun, ended)) / 2
    at_stages = np.array([acts_at(model.forces[k]) == "stages" for k in which])
    return jnp.sum(jnp.where(at_stages, jnp.maximum(work, mean)[which], work[which]))
