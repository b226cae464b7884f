"""Whether a root is the one that grows out of the start of the step: tests of what was found, not ways to find it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.dynamics.energy import kinetic_of
from pbad_jax.forces.force import acting, makes_no_energy, passed, total_potential
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.math import batched, rotations
from pbad_jax.math.batched import cond_if_any
from pbad_jax.model.model import Model
from pbad_jax.stage import equation
from pbad_jax.stage.equation import StageFields
from pbad_jax.stage.start import StepStart, instant_at

# rad a step from which a root's matrix is looked at. Below, what stands on its head at a large dt may look like a fold:
# where one configuration is unknown what grows by e in a step, where several are by e^2.4
LARGE_TURN = 0.5
LEANING = 0.1  # how far to the left of the axis an eigenvalue may be, where inertia alone has 2 ± 1.4i (radau(2))
GAINING_TURN = 0.25  # rad a step from which the energy is looked at
BLOW = 0.3  # of the energy at stake, what a step may add where forces act once a step (docs/mathematics.md, section 4)
BALANCED = 1e-6  # of all energy there is, in which the account of a step may be off by the solver's tolerance
LONGEST_TURN = 2 * np.pi  # rad a step; beyond, how many turns there were is a guess


def turns_far(model: Model, z: jax.Array) -> jax.Array:
    """Whether a root z (m,nq) has turned some joint by so much that it may not be connected, () bool."""
    return _largest_turn(model, z) >= LARGE_TURN


def is_connected(model: Model, metric: batched.CholeskyFactor | None, D: jax.Array, J) -> jax.Array:
    """Whether a root can be the one that grows out of dt = 0, by its matrix: a necessary condition, () bool.

    One unknown configuration: J has to be positive definite (its symmetric part; that is, the root minimises the
    energy). Several: (D ⊗ mass)⁻¹ J has to have all its eigenvalues to the right of the imaginary axis. At dt = 0 it is
    D⁻¹C ⊗ 1, for radau D itself, with a spring D + (ω dt)² D⁻¹: to the right for all schemes that there are. Other
    roots are saddles and maxima, with eigenvalues to the left: often two, which the sign of det J does not tell.

    Args:
        metric: of the mass matrix; None where J is for the sweeps. D: (m,m), rate weights of the scheme.
    """
    if metric is None or J.shape[0] == model.nv:
        return operator.is_positive_definite(model, J)
    m, inverse = len(D), metric.inverse
    blocks = jnp.einsum("ax,ixjy,by->iajb", inverse, J.reshape(m, model.nv, m, model.nv), inverse)
    table = batched.solve(D, jnp.eye(m, dtype=D.dtype))  # not inv: LAPACK, side by side, may wait for ever
    P = jnp.tensordot(table, blocks, axes=1).reshape(J.shape)
    weights = jnp.repeat(jnp.abs(table[-1]), model.nv)  # radau's quadrature weights, but any that are positive would do
    sure = operator.is_positive_definite(model, weights[:, None] * P)  # by Lyapunov's theorem; one factorisation
    return cond_if_any(~sure, lambda P: jnp.ones((), bool), _leans_to_the_right, P)


def _leans_to_the_right(P: jax.Array) -> jax.Array:
    return batched.eigenvalues_to_the_left(P + LEANING * jnp.eye(len(P), dtype=P.dtype)) < 0.5


def counts_turns(model: Model, z: jax.Array) -> jax.Array:
    """Whether every hinge turns by less than half a turn from node to node, () bool, of the stages z (m,nq).

    The transforms that the scheme joins do not change with a whole turn, so that beyond this the count is a guess.
    """
    t = tree(model.topology)
    angles = z[:, t.scalar_q[t.hinge[t.scalar_links]]]
    return jnp.all(jnp.abs(jnp.diff(angles, axis=0, prepend=0.0)) < jnp.pi)


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
        p = rotations.quaternion_product(rotations.quaternion_exp(-mean[t.ball_v]), z[t.ball_q])
        angle = jnp.linalg.norm(rotations.quaternion_log(p), axis=-1)
        smooth &= ~jnp.any(angle > jnp.linalg.norm(slack[t.ball_v], axis=-1) + jnp.pi / 2)
        smooth &= ~jnp.any(jnp.linalg.norm(mean[t.ball_v], axis=-1) >= LONGEST_TURN)
    return smooth


def passes_through(model: Model, dt, start: StepStart, z: jax.Array) -> jax.Array:
    """Whether a force says that in a step to the increment z (nq,) something went through something, () bool."""
    if not any(hasattr(f, "passed") for f in model.forces):
        return jnp.zeros((), bool)
    model, dt, start, z = jax.lax.stop_gradient((model, dt, start, z))
    st = equation.stages(model, start, z[None])
    f, dT = jax.tree.map(lambda x: x[0], (st.frames, st.delta.T))
    v = manifold.difference(model, manifold.identity_increment(model), z) / dt
    q = manifold.compose_increment(model, start.q, z)
    return passed(model, instant_at(model, start, q, v, f, dT / dt, start.time + dt, dt))


def adds_energy(
    model: Model, start: StepStart, dt, st: StageFields, v: jax.Array, own_error: float, always: bool = False
) -> jax.Array:
    """Whether a step ends with energy that no force explains, beyond the scheme's `own_error` of that at stake.

    Asked `always`, or where a joint turns, or would in the next step, or something may be blown against. Minima of
    other wells, and in steps that are far too large even the root that grows out of the start, have many times the
    energy; their matrix does not tell. Models with forces that may drive are not asked:
    the work of a stiff servo is known too badly. () bool, of the stages and of v (nv,) at the end.
    """
    if not all(map(makes_no_energy, model.forces)):
        return jnp.zeros((), bool)
    once = jax.lax.stop_gradient((model, start, dt, st, v))
    blown = bool(acting(model, "step"))
    gains = functools.partial(_adds_energy, BLOW if blown else own_error, always and blown)
    if always:
        return gains(*once)
    rates = jnp.where(tree(model.topology).dof_slide, 0.0, jnp.abs(v))
    turns = jnp.maximum(_largest_turn(model, st.z), jnp.max(rates) * dt)
    asked = (turns > GAINING_TURN) | any(hasattr(f, "passed") for f in model.forces)
    return cond_if_any(asked, lambda *_: jnp.zeros((), bool), gains, *once)


def _adds_energy(
    share: float, settles: bool, model: Model, start: StepStart, dt, st: StageFields, v: jax.Array
) -> jax.Array:
    at = equation.end_instant(model, start, 1.0, st, dt)
    U, f = total_potential(model, at), jax.tree.map(lambda x: x[-1], st.frames)
    T_0, T_1 = kinetic_of(model, start.V.T, start.v), kinetic_of(model, transforms.velocity_field(model, f, v), v)
    unknown = max(BALANCED, 100 * float(jnp.finfo(v.dtype).eps)) * (T_1 + jnp.abs(U) + jnp.abs(start.potential))
    stake = T_0 + jnp.abs(U - start.potential)
    if settles:  # stages in turn come to rest on contact to what they fall in a step
        stake = stake + 0.5 * transforms.total_mass(model) * jnp.sum((model.gravity * dt) ** 2)
    return T_1 + U - T_0 - start.potential > share * stake + unknown


def _largest_turn(model: Model, z: jax.Array) -> jax.Array:
    """The largest angle (rad) that a hinge or ball has turned, of z (m,nq)."""
    t = tree(model.topology)
    turns = [jnp.zeros(1, z.dtype), jnp.abs(z[:, t.scalar_q[t.hinge[t.scalar_links]]]).reshape(-1)]
    if t.balls.size:
        turns.append(jnp.linalg.norm(rotations.quaternion_log(z[:, t.ball_q]), axis=-1).reshape(-1))
    return jnp.max(jnp.concatenate(turns))
