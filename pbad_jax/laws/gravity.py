"""Gravity, and what carries a share of it."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load
from pbad_jax.math.small import matvec
from pbad_jax.model.model import Model, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Gravity:
    """Uniform gravity, `model.gravity` (m/s²): Q = −Σ_l g · ∫ρ P. Linear in T, so it has no curvature.

    Example:
        >>> [type(force).__name__ for force in model.forces]
        ['Gravity']
    """

    def load(self, model: Model, at: Instant) -> Load:
        """∂Q/∂T^l = −g [∫ρp; m]ᵀ."""
        return Load(field=-model.gravity[None, :, None] * model.second_moment[:, None, :, 3])

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """−Σ m g · com, J; zero at the world's origin."""
        return -jnp.sum(matvec(at.T, model.second_moment[:, :, 3]) @ model.gravity)

    def describe(self, model: Model) -> tuple[str, str]:
        """Everywhere."""
        return "Gravity", "all bodies"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GravityCompensation:
    """A share of the weight of some links, carried by a force against gravity; made by `gravity_compensation`.

    Example:
        >>> forces.gravity_compensation(model, {"link0": 1.0}).share
        Array([0., 1., 0., 0.], dtype=float64)
    """

    share: jax.Array  # (N,) 1: weightless

    def load(self, model: Model, at: Instant) -> Load:
        """∂Q/∂T^l = share g [∫ρp; m]ᵀ."""
        carried = self.share[:, None] * model.second_moment[:, :, 3]
        return Load(field=model.gravity[None, :, None] * carried[:, None])

    def potential(self, model: Model, at: Instant) -> jax.Array:
        """Σ share m g · com, J."""
        return jnp.sum((self.share[:, None] * matvec(at.T, model.second_moment[:, :, 3])) @ model.gravity)

    def describe(self, model: Model) -> tuple[str, str]:
        """Whom it carries."""
        return "GravityCompensation", f"{np.count_nonzero(np.asarray(self.share))} bodies"


def gravity_compensation(model: Model, share: Mapping[str, float]) -> GravityCompensation:
    """Carry a share of the weight of some bodies, {name: share}; 1 makes a body weightless, more lets it rise.

    Raises:
        ModelError: an unknown body, no finite number.

    Example:
        >>> light = pbad.with_forces(model, forces.gravity_compensation(model, {"link0": 1.0, "link1": 1.0}))
        >>> abs(round(float(pbad.potential_energy(light, state)), 6))
        0.0
    """
    check_model(model)
    out = np.zeros(model.topology.n_links)
    for name, x in share.items():
        link = model.topology.body_link[checks.known(name, model.body_names, "body of gravity_compensation")]
        out[link] = checks.number(x, f"gravity_compensation of body {name!r}")
    return GravityCompensation(checks.leaf(model.dtype)(out))
