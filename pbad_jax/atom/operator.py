"""The mass matrix and the pullback of fields, by dense matrices or by sweeps in O(N): the one choice among the twins.

`how`, wherever it stands: `twin`, which of the recurrences, and `dense`, whether (nv,nv) matrices are wanted.
"""

import jax

from pbad_jax.atom import parallel, serial, sweeps
from pbad_jax.kinematics import transforms
from pbad_jax.math import batched
from pbad_jax.model.model import Model

TWINS = {"parallel": parallel, "serial": serial}


Mass = jax.Array | sweeps.NewtonMatrix  # the mass matrix (nv,nv), or what the sweeps take for it


def mass(model: Model, f: transforms.Frames, *, twin: str = "parallel", dense: bool = True) -> Mass:
    """The mass matrix at frames f, armature included."""
    return TWINS[twin].mass_matrix(model, f) if dense else sweeps.mass(model, f)


def solve(model: Model, M: Mass, b: jax.Array) -> jax.Array:
    """M⁻¹ b (nv,)."""
    return sweeps.solve(model, M, b) if isinstance(M, sweeps.NewtonMatrix) else batched.solve(M, b)


def times(model: Model, M: Mass, x: jax.Array) -> jax.Array:
    """M x (nv,)."""
    return sweeps.multiply(model, M, x) if isinstance(M, sweeps.NewtonMatrix) else M @ x


def pullback(
    model: Model, f: transforms.Frames, A: jax.Array, *, twin: str = "parallel", dense: bool = True
) -> jax.Array:
    """Σ_l <∂T^l/∂q_x, A^l> (nv,): Alg. 4, by masks (quick for few links) or by sweeps (O(N))."""
    return TWINS[twin].pullback(model, f, A) if dense else sweeps.pullback(model, f, A)
