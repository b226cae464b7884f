"""External forces and torques on a named body."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.errors import ModelError
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.load import Load, point_forces
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.model import Model, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Wrench:
    """A force and a torque on one body, in the world's axes or turning with the body; leaves, so they can be learnt.

    Example:
        >>> push = forces.wrench(model, "link1", force=(0, 1, 0))
        >>> harder = dataclasses.replace(push, force=3 * push.force)
        >>> harder.force
        Array([0., 3., 0.], dtype=float64)
    """

    u: jax.Array  # (1,4,4) the point (p, 1) and three directions (e, 0)
    force: jax.Array  # (3,) N
    torque: jax.Array  # (3,) N m
    links: tuple[int] = dataclasses.field(metadata=STATIC)
    frame: str = dataclasses.field(default="world", metadata=STATIC)
    at: str = dataclasses.field(default="stages", metadata=STATIC)

    def load(self, model: Model, at: Instant) -> Load:
        """The torque as a couple at three directions e: Σ e × (½ τ × e) = τ."""
        return point_forces(at, self.links, self.u, self._law)

    def describe(self, model: Model) -> tuple[str, str]:
        """At one point."""
        return "Wrench", f"{len(self.links)} points"

    def _law(self, P: jax.Array, V: jax.Array) -> jax.Array:
        R = P[1:].T if self.frame == "body" else jnp.eye(3, dtype=P.dtype)
        return jnp.concatenate([(R @ self.force)[None], 0.5 * jnp.cross(R @ self.torque, P[1:])])


def wrench(
    model: Model, body: str, force=(0.0, 0.0, 0.0), torque=(0.0, 0.0, 0.0), *, point=None, frame: str = "world"
) -> Wrench:
    """A constant force (3,) N at a point of a body, and a torque (3,) N m.

    Args:
        model: the model. body: its name. force, torque: in the axes of `frame`, "world" or "body".
        point: (3,) m in the body's frame; default its centre of mass.

    Raises:
        ModelError: an unknown body or frame, bad numbers.

    Example:
        >>> windy = pbad.with_forces(ball, forces.wrench(ball, "bead", force=(2, 0, 0)))
        >>> newton_euler.acceleration(windy, pbad.make_state(windy))[:3].round(3)
        Array([ 2.  ,  0.  , -9.81], dtype=float64)
    """
    check_model(model)
    link = model.topology.body_link[checks.known(body, model.body_names, "body of the wrench")]
    M = checks.of_model(model, "second_moment")[link]
    centre = M[:3, 3] / M[3, 3] if M[3, 3] > 0 else np.zeros(3)
    p = centre if point is None else checks.vector(point, 3, "point of the wrench", ModelError)
    u = np.r_[np.r_[p, 1.0][None], np.c_[np.eye(3), np.zeros(3)]][None]

    leaf = checks.leaf(model.dtype)
    f = checks.vector(force, 3, "force of the wrench", ModelError)
    tau = checks.vector(torque, 3, "torque of the wrench", ModelError)
    return Wrench(leaf(u), leaf(f), leaf(tau), (link,), checks.one_of(frame, ("world", "body"), "frame of the wrench"))
