"""Energies, momenta and gaps of a state."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.dynamics.instant import instant_of
from pbad_jax.kinematics import transforms
from pbad_jax.laws.force import gaps, total_potential
from pbad_jax.math import rotations
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.small import matmul, matvec, transpose
from pbad_jax.model.model import Model
from pbad_jax.model.state import State, check_state, make_state

CHUNK = 1024  # states of a trajectory whose energies are computed at once


@with_all_bits
def kinetic_energy(model: Model, state: State) -> jax.Array:
    """½ Σ tr(V M Vᵀ) + ½ armature v² = ½ vᵀ mass_matrix v, J.

    Example:
        >>> round(float(pbad.kinetic_energy(model, state)), 3)
        0.336
    """
    check_state(model, state)
    return kinetic_of(model, transforms.velocity_field(model, transforms.frames(model, state.q), state.v), state.v)


def kinetic_of(model: Model, V: jax.Array, v: jax.Array) -> jax.Array:
    """The same of the links' velocity field V (N,3,4) and the joints' rates v (nv,)."""
    return 0.5 * jnp.sum(matmul(V, model.second_moment) * V) + 0.5 * jnp.sum(model.armature * v**2)


@with_all_bits
def potential_energy(model: Model, state: State) -> jax.Array:
    """Potential energy of all forces that have one (gravity, springs, contact), J; gravity's is zero at the origin.

    Example:
        >>> round(float(pbad.potential_energy(model, state)), 3)
        -10.601
    """
    check_state(model, state)
    return _potential(model, state)


@functools.partial(jax.jit, inline=True)  # called by itself, hundreds of small programs take longer to compile
def _potential(model: Model, state: State) -> jax.Array:
    return total_potential(model, instant_of(model, state, jnp.zeros(model.nu, model.dtype)))


def energies_along(model: Model, time: Any, q: Any, v: Any) -> tuple[jax.Array, jax.Array]:
    """Kinetic and potential energy along a trajectory, each (T,) J; compiled for the next power of two of T.

    Args:
        model: the model.
        time: (T,) s.
        q, v: (T,nq) rad or m and (T,nv) rad/s or m/s, in the model's layout. All are cast to the model's dtype.
    """
    n = len(time)
    more = (1 << max(0, n - 1).bit_length()) - n if n else 0
    rows = [np.asarray(x) for x in (time, q, v)]
    rows = [np.concatenate([x, np.broadcast_to(x[-1:], (more, *x.shape[1:]))]) if more else x for x in rows]
    kinetic, potential = _energies(model, *rows)
    return kinetic[:n], potential[:n]


@jax.jit
def _energies(model: Model, time: jax.Array, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    def one(x) -> tuple[jax.Array, jax.Array]:
        time, q, v = x
        state = make_state(model, q, v, time=time)
        return kinetic_energy(model, state), potential_energy(model, state)

    return jax.lax.map(one, (time, q, v), batch_size=min(CHUNK, max(1, len(time))))


@with_all_bits
def linear_momentum(model: Model, state: State) -> jax.Array:
    """Σ m ċ, (3,) kg m/s.

    Example:
        >>> pbad.linear_momentum(model, state).round(3)
        Array([-1.,  0.,  0.], dtype=float64)
    """
    check_state(model, state)
    V = transforms.velocity_field(model, transforms.frames(model, state.q), state.v)
    return jnp.sum(matvec(V, model.second_moment[:, :, 3]), axis=0)


@with_all_bits
def angular_momentum(model: Model, state: State) -> jax.Array:
    """∫ρ P × Ṗ about the world's origin, (3,) kg m²/s.

    Example:
        >>> pbad.angular_momentum(model, state).round(3)
        Array([0.   , 0.727, 1.132], dtype=float64)
    """
    check_state(model, state)
    f = transforms.frames(model, state.q)
    V = transforms.velocity_field(model, f, state.v)
    return rotations.vee(jnp.sum(matmul(matmul(V, model.second_moment), transpose(f.T)), axis=0))


@with_all_bits
def loop_gaps(model: Model, state: State) -> tuple[jax.Array, ...]:
    """By how much every attachment and joint coupling is open, in the order of `model.forces`.

    An attachment gives (c,3) for its pairs, m, or for pairs of directions about rad; a coupling (e,) rad or m.

    Example:
        >>> closed = pbad.with_forces(model, forces.connect(model, "link1", point=(0, 0, -1)))
        >>> pbad.loop_gaps(closed, state)[0].round(3)
        Array([[0.   , 1.683, 0.919]], dtype=float64)
    """
    check_state(model, state)
    return gaps(model, instant_of(model, state, jnp.zeros(model.nu, model.dtype)))
