"""Energies, momenta and gaps of a state."""

import jax
import jax.numpy as jnp

from pbad_jax import objectives
from pbad_jax.forces.law import total_potential
from pbad_jax.model import Model, State


def kinetic_energy(model: Model, state: State) -> jax.Array:
    """½ vᵀ mass_matrix v, J; armature included."""
    return objectives.kinetic_energy(model, state.q, state.v)


def potential_energy(model: Model, state: State) -> jax.Array:
    """Potential energy of all forces that have one (gravity, springs, contact), J; gravity's is zero at the origin."""
    return total_potential(model, objectives.instant_of(model, state, jnp.zeros(model.nu, model.dtype)))


def linear_momentum(model: Model, state: State) -> jax.Array:
    """Σ m ċ, (3,) kg m/s."""
    return objectives.momentum(model, state.q, state.v)[0]


def angular_momentum(model: Model, state: State) -> jax.Array:
    """∫ρ P × Ṗ about the world's origin, (3,) kg m²/s."""
    return objectives.momentum(model, state.q, state.v)[1]


def loop_gaps(model: Model, state: State) -> tuple[jax.Array, ...]:
    """By how much every attachment and joint coupling is open, in the order of `model.forces`.

    An attachment gives (c,3) for its pairs, m, or for pairs of directions about rad; a coupling (e,) rad or m.
    """
    at = objectives.instant_of(model, state, jnp.zeros(model.nu, model.dtype))
    return tuple(force.gap(model, at) for force in model.forces if hasattr(force, "gap"))
