"""When a force is asked: one instant of one lane, the start of its step, and what a solve has learnt on its way."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.math.pytree import STATIC


class Guide(NamedTuple):
    """What a solve has learnt on its way, for forces with a `dual`. The forces themselves do not depend on it, only
    the linear model that is solved next: where their laws are linearised (one_sided.py, smoothing.py).
    """

    dual: Any  # of this force: what its Load left at the last iterate, at first `Force.dual`
    T: jax.Array  # (N,3,4) m, where the last linear model expected the links
    rate: jax.Array  # () 1/s, by how much V follows T from iterate to iterate
    trust: jax.Array  # () in tangents, 1, and the less, the more in secants
    mobility: jax.Array  # (N,6,6) twist of every link by a unit wrench on it, about its origin at the start of the step
    inertia: jax.Array  # (nv,) kg m² or kg, of every degree of freedom alone
    origin: jax.Array  # (N,3) m


class Start(NamedTuple):
    """The start of the step, time k.

    Example:
        >>> at.start.q, at.dt
        (Array([1., 0., 0., 0.], dtype=float64), Array(1., dtype=float64))
    """

    q: jax.Array  # (nq,)
    v: jax.Array  # (nv,)
    T: jax.Array  # (N,3,4)
    V: jax.Array  # (N,3,4)
    near: Any = None  # of a force: what it found near then, see `Force.near`; of all: a tuple; None: not looked for


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Instant:
    """Where a force is evaluated: one instant of one lane.

    Example:
        >>> at.q, at.time
        (Array([1., 0., 0., 0.], dtype=float64), Array(0., dtype=float64))
    """

    q: jax.Array  # (nq,) rad, m
    v: jax.Array  # (nv,) rad/s, m/s: the rates of the scheme at this stage, or the mean rates of the step
    T: jax.Array  # (N,3,4) world transforms of the links, m
    V: jax.Array  # (N,3,4) their rates
    time: jax.Array  # () s
    control: jax.Array  # (nu,)
    start: Start
    dt: jax.Array  # () s, the step
    guide: Guide | None = None  # on the way to a root; in total_load, its `dual` has those of all forces
    elapsed: jax.Array | None = None  # () s since the start of the step; None: that itself, or in no step
    kick: float | None = dataclasses.field(default=None, metadata=STATIC)  # the share of dt F that acts as a blow at
    # the start of the step, where no more of it acts; None: all along the step
    before: "Instant | None" = None  # of a blow at the end of a step: that end, before it


def instant(q, v, T, V, time, control) -> Instant:
    """An Instant by itself, in no step: it is its own start, and dt is 1 s."""
    return Instant(q, v, T, V, time, control, Start(q, v, T, V), jnp.ones((), q.dtype))
