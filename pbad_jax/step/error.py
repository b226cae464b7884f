"""How far a step of radau(1) or radau(2) is from the motion, without another solve: its local error.

The end of such a step is a sum of the accelerations at its stages, with weights w that its table gives:

    T_{k+1} = T_k + dt V_k + dt² Σ_i w_i A_i.

The acceleration A_0 at the start is no part of it. With A_0 there is a sum that is exact for accelerations of one
degree more in time, with weights w + δ, so that

    d = dt² (δ_0 A_0 + Σ_i δ_i A_i),

tested at the end of the step, is what the step leaves out to leading order: −½ A dt² of radau(1), Ä dt⁴/72 of radau(2).
A_i is what the forces at the stages make; coasting (stage/coasting.py), which the step has exactly, is taken away.

What acts once a step is known by its impulse dt F, which the step gives to q with the weight p. A force that changes
from F_0 at the start of the step in a straight line, and has this impulse, gives F_0/6 + F/3; so d gains
dt² (F_0/6 + (1/3 − p) F). Where a foot lands F_0 is zero.

Stiff forces take most of it back: a spring and a damper, x = ω dt and y = dt/τ up to 20, divide it by about 1 + y + x²
in steps of radau(1), and by 1 + y/2 + y²/4 + x²/2 in those of radau(2) (one-off, by the exact motion). What is met
within the step has less time to do so. The error is B⁻¹ d, and of radau(2)

    B = M + D/2 + D M⁻¹ D/4 + S/2 + (K − D − S)/40,   D = −dt ∂τ/∂v,   S = −dt² ∂τ/∂q

of the forces at the stages, at the start of the step, and K what all forces add to the Newton matrix at its end. The
share of K is fitted, one-off, to robots and landing balls; benchmarks/error.py measures what comes of it.

Read next: step.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import operator
from pbad_jax.atom.operator import Operator
from pbad_jax.atom.sweeps import NewtonMatrix
from pbad_jax.dynamics.instant import acceleration_field, damped, damping_of, generalised_force
from pbad_jax.kinematics import joint_field, manifold, transforms
from pbad_jax.kinematics.joint_field import Field
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import acting, total_load
from pbad_jax.laws.load import Load, scaled
from pbad_jax.laws.soft_end import has_inertia
from pbad_jax.math import batched
from pbad_jax.math.small import matmul
from pbad_jax.model.model import Model
from pbad_jax.schemes import Scheme
from pbad_jax.stage import equation
from pbad_jax.stage import guide as guides
from pbad_jax.stage.equation import StageEquation
from pbad_jax.stage.fields import StageFields
from pbad_jax.stage.problem import length_of
from pbad_jax.stage.start import StepStart, first_instant

MET = 1 / 40  # of the stiffness of what is met within the step


def local_error(
    model: Model,
    scheme: Scheme,
    start: StepStart,
    eq: StageEquation,
    st: StageFields,
    pushes: Load | None,
    mass: Operator,
    J: Operator | None,
) -> jax.Array:
    """Of q at the end of a step, its largest coordinate, (): rad, and m over the model's length; NaN of other schemes,
    and of ends with an inertia, whose force at an instant depends on accelerations.

    Args:
        eq, st: the equation and its stages at the root. pushes: what acts once a step, at its end; None: nothing does.
        mass, J: at the end, and at the root; J None: not known.
    """
    weights = missing(scheme)
    if not weights or any(map(has_inertia, model.forces)):
        return jnp.full((), jnp.nan, st.z.dtype)
    model, start, eq, st, mass, J = jax.lax.stop_gradient((model, start, eq, st, mass, J))
    first, each = jnp.asarray(weights[0], st.z.dtype), jnp.asarray(weights[1:], st.z.dtype)

    # dt² A at the start and at the stages, less coasting
    load = _at_start(model, start, eq.dt, "stages")
    begun, A = _acceleration(model, start, eq.dt, load), _accelerations(eq, st)
    assert eq.coasting is not None
    begun, A = jax.tree.map(jnp.subtract, (begun, A), eq.coasting)

    # what the step leaves out, tested at its end
    left = jax.tree.map(lambda a, b: first * a + jnp.tensordot(each, b, axes=1), begun, A)
    frames, z = jax.tree.map(lambda x: x[-1], (st.frames, st.z))
    d = operator.pullback(model, frames, matmul(left.T, model.second_moment), start.recurrence)
    d = d + model.armature * joint_field.pullback(model, z, left.joint)
    if pushes is not None:
        d = d + _of_impulse(model, scheme, start, eq, pushes, each)

    # what of it the forces leave, and its largest coordinate
    mass = _answering(model, start, eq, load, mass, J)
    e = jnp.abs(operator.solve(model, mass, d))
    return jnp.max(jnp.where(tree(model.topology).dof_slide, e / length_of(model, eq.dt), e))


def _answering(
    model: Model, start: StepStart, eq: StageEquation, load: Load, mass: Operator, J: Operator | None
) -> Operator:
    """B; for the sweeps, which are of radau(1), M + K = J."""
    if isinstance(mass, NewtonMatrix):
        return mass if J is None else J

    # what acts all along the step: D + S, and more of D where there are several stages
    M, felt = start.mass, guides.felt_mass(model, start, scaled(load, eq.dt))
    assert isinstance(M, jax.Array) and isinstance(felt, jax.Array)
    B, damping = mass + (felt - M), damping_of(model, start.frames, load, eq.dt)
    if len(eq.nodes) > 1:
        B = mass + 0.5 * (felt - M)
        if damping is not None:
            D = damped(model, start.frames, jnp.zeros_like(M), damping)
            assert isinstance(D, jax.Array)
            B = B + 0.25 * D @ batched.solve(M, D)

    # and what is met in it; of forces that act at the stages it is not known when
    if not isinstance(J, jax.Array) or not acting(model, "step"):
        return B
    return B + MET * (J[-model.nv :, -model.nv :] - eq.C[-1, -1] * mass - (felt - M))


def missing(scheme: Scheme) -> tuple[float, ...]:
    """δ (1+m,) on the start and the nodes; () of a scheme that has a history, or that leaves nothing out there."""
    if scheme.has_history:
        return ()
    nodes = np.array((0.0, *scheme.nodes))
    k = np.arange(len(nodes))
    exact = np.linalg.solve(np.vander(nodes, increasing=True).T, 1 / ((k + 1) * (k + 2)))
    left = exact - np.array((0.0, *_positions(scheme)))
    return () if np.allclose(left, 0.0, atol=1e-12) else tuple(left.tolist())


def _positions(scheme: Scheme) -> np.ndarray:
    """w (m,)."""
    return np.linalg.inv(np.array(scheme.C))[-1]


def _at_start(model: Model, start: StepStart, dt, where: str) -> Load:
    """What acts there, at the stages or once a step, as it is at the start."""
    return total_load(model, first_instant(model, start, dt), where)


def _acceleration(model: Model, start: StepStart, dt, load: Load) -> Field:
    """dt² A_0, under the forces that act at the stages."""
    inertial = matmul(transforms.centripetal_field(model, start.frames, start.v), model.second_moment)
    tau = generalised_force(model, start.frames, load, inertial, recurrence=start.recurrence)
    a, identity = operator.solve(model, start.mass, tau), manifold.identity_increment(model)
    A = acceleration_field(model, start.frames, identity, start.v, a)
    return jax.tree.map(lambda x: dt**2 * x, A)


def _accelerations(eq: StageEquation, st: StageFields) -> Field:
    """dt² A_i, under what acts at the stages and what acts once a step."""
    known = equation.known_at(eq.accel, 1.0, st.delta)
    return jax.tree.map(lambda x, y: jnp.tensordot(eq.C, x, axes=1) + y, st.delta, known)


def _of_impulse(
    model: Model, scheme: Scheme, start: StepStart, eq: StageEquation, pushes: Load, each: jax.Array
) -> jax.Array:
    """dt² (F_0/6 + (1/3 − p) F) (nv,), less F's share of the accelerations at the stages."""
    loads = _at_start(model, start, eq.dt, "step"), pushes
    F_0, F = (generalised_force(model, start.frames, x, recurrence=start.recurrence) for x in loads)
    assert eq.impulse is not None
    p = jnp.asarray(_positions(scheme), F.dtype) @ eq.impulse
    return eq.dt**2 * (F_0 / 6 + (1 / 3 - p - each @ eq.impulse) * F)
