"""Inertia from ten unconstrained numbers a body, so that gradient steps never leave what is physical.

Rucker & Wensing, "Smooth Parameterization of Rigid-Body Inertia", IEEE RA-L 7 (2022): the second moment, which is the
pseudo-inertia, is positive definite exactly if it has a factorisation M = U Uᵀ with

               [ e^d1  s12   s13   t1 ]
    U = e^α ·  [  0    e^d2  s23   t2 ]        θ = (α, d1, d2, d3, s12, s23, s13, t1, t2, t3)
               [  0     0    e^d3  t3 ]
               [  0     0     0    1  ]

so e^2α is the mass (kg), t the centre of mass (m) in the body's frame, and the upper left block the triangular root of
the mass distribution's covariance about it: e^d1, e^d2, e^d3 and s12, s23, s13 are lengths (m).
"""

import dataclasses

import jax.core
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import ModelError
from pbad_jax.math.small import matmul, transpose
from pbad_jax.model.model import Model, check_model

SIZE = 10  # numbers a body


def inertial_parameters(model: Model, bodies=None) -> jax.Array:
    """Mass, centre of mass and inertia of bodies as unconstrained numbers, by log-Cholesky of the second moment.

    Differentiable; the inverse of `with_inertial_parameters`. A body whose mass lies in a point, on a line or in a
    plane has no finite parameters, nor has a massless one: name the others in `bodies`.

    Args:
        model: the model.
        bodies: names or indices; default all, in the order of `model.body_names`.

    Returns:
        (n,10): ½ log(mass / 1 kg); three logarithms of lengths; three lengths, m; the centre of mass, m. In the body's
        frame; see the module for the formula.

    Raises:
        ModelError: an unknown or repeated body, or one without finite parameters (outside jit; inside, they are NaN or
            −inf).

    Example:
        >>> pbad.inertial_parameters(model, ["link0"]).shape
        (1, 10)
    """
    check_model(model)
    which = _indices(model, bodies)
    M = model.second_moment[np.array(model.topology.body_link)[which]]
    _check_extended(model, which, M)
    return _parameters(M)


def with_inertial_parameters(model: Model, theta, bodies=None) -> Model:
    """The model with other masses, centres of mass and inertias; any finite θ is physical. Differentiable.

    What was worked out from the inertia when the model was built keeps its numbers: the stiffness of joint limits and
    of contacts, the sizes of inertia boxes. A massless link inside a universal, planar or free joint stays massless.

    Args:
        model: the model.
        theta: (n,10), see `inertial_parameters`.
        bodies: names or indices, n of them; default all, in the order of `model.body_names`.

    Returns:
        The model with those second moments.

    Raises:
        ModelError: an unknown or repeated body, or theta of another shape.

    Example:
        >>> theta = pbad.inertial_parameters(model, ["link1"])
        >>> heavier = pbad.with_inertial_parameters(model, theta.at[0, 0].add(np.log(2) / 2), ["link1"])
        >>> round(float(pbad.total_mass(heavier)), 6)
        3.0
    """
    check_model(model)
    which = _indices(model, bodies)
    theta = jnp.asarray(theta, model.dtype)
    if theta.shape != (len(which), SIZE):
        raise ModelError(
            f"theta has shape {theta.shape}; wanted ({len(which)}, {SIZE}), a row for each of the bodies "
            f"{', '.join(model.body_names[i] for i in which[:8])}"
        )
    links = np.array(model.topology.body_link)[which]
    return dataclasses.replace(model, second_moment=model.second_moment.at[links].set(_second_moment(theta)))


def _second_moment(theta: jax.Array) -> jax.Array:
    """M = U Uᵀ, (n,4,4) of θ (n,10)."""
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = jnp.moveaxis(theta, -1, 0)
    o, one = jnp.zeros_like(alpha), jnp.ones_like(alpha)
    rows = [[jnp.exp(d1), s12, s13, t1], [o, jnp.exp(d2), s23, t2], [o, o, jnp.exp(d3), t3], [o, o, o, one]]
    U = jnp.exp(alpha)[:, None, None] * jnp.moveaxis(jnp.array(rows), (0, 1), (-2, -1))
    return matmul(U, transpose(U))


def _parameters(M: jax.Array) -> jax.Array:
    """θ (n,10) of M (n,4,4): the factorisation from the last column on, written out."""
    mass = M[:, 3, 3]
    t = M[:, :3, 3] / mass[:, None]
    C = M[:, :3, :3] / mass[:, None, None] - t[:, :, None] * t[:, None, :]  # covariance, m²
    d3 = jnp.sqrt(C[:, 2, 2])
    s13, s23 = C[:, 0, 2] / d3, C[:, 1, 2] / d3
    d2 = jnp.sqrt(C[:, 1, 1] - s23**2)
    s12 = (C[:, 0, 1] - s13 * s23) / d2
    d1 = jnp.sqrt(C[:, 0, 0] - s12**2 - s13**2)
    logs = [0.5 * jnp.log(mass), jnp.log(d1), jnp.log(d2), jnp.log(d3)]
    return jnp.concatenate([jnp.stack([*logs, s12, s23, s13], axis=-1), t], axis=-1)


def _indices(model: Model, bodies) -> list[int]:
    """Indices of bodies given by name or index."""
    if bodies is None:
        return list(range(model.n_bodies))
    given = [bodies] if isinstance(bodies, str) else list(bodies)
    which = [_index(model, b) for b in given]
    if len(set(which)) < len(which):
        raise ModelError(f"bodies are {given}; each may be named once")
    return which


def _index(model: Model, body) -> int:
    if isinstance(body, str) and body in model.body_names:
        return model.body_names.index(body)
    if isinstance(body, int | np.integer) and not isinstance(body, bool) and 0 <= body < model.n_bodies:
        return int(body)
    known = ", ".join(model.body_names[:8])
    raise ModelError(f"bodies: there is no {body!r}; known: {known}, or an index in 0..{model.n_bodies - 1}")


def _check_extended(model: Model, which: list[int], M) -> None:
    """Refuse bodies without mass, or whose mass has no extent in some direction; values are looked at outside jit."""
    if isinstance(M, jax.core.Tracer):
        return
    for i, m in zip(which, np.asarray(M, float)):
        # α = ½ log mass of the header
        if not m[3, 3] > 0:
            raise ModelError(
                f"body {model.body_names[i]!r} has mass {m[3, 3]:g} kg, whose logarithm would be a parameter; it must "
                "be > 0. Name the other bodies in bodies=[...]."
            )

        # d1, d2, d3 are logarithms too: every direction has an extent, beyond rounding
        t = m[:3, 3] / m[3, 3]
        spread = np.linalg.eigvalsh(m[:3, :3] / m[3, 3] - np.outer(t, t))
        noise = 16 * float(jnp.finfo(model.dtype).eps) * np.trace(m[:3, :3]) / m[3, 3]
        if not spread[0] > noise:
            # how many directions are left says what the mass lies in
            shape = "in a point", "on a line", "in a plane"
            flat = shape[int(np.sum(spread > noise))]
            raise ModelError(
                f"body {model.body_names[i]!r}: its mass lies {flat} (mean squares {spread.tolist()} m² along its "
                "principal axes; each must be > 0 to have a logarithm). Give it some thickness, or name the other "
                "bodies in bodies=[...]."
            )
