"""One step of a model without degrees of freedom: time goes on, and nothing is to be solved."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage.problem import SolverConfig
from pbad_jax.stage.result import StepResult, none_solved
from pbad_jax.stage.start import StepStart
from pbad_jax.step.method import Leg, Method


class Solved(NamedTuple):
    """Stands for the continuation.State of a solve."""

    status: jax.Array  # () int8, RUNNING never
    iterations: jax.Array  # () int32


def begin(model: Model, scheme, config: SolverConfig, dt, start: StepStart, state: State, status, known=None) -> Leg:
    """There is one leg."""
    del model, scheme, config, dt, state, known
    return Leg((), start.v[None], status)


def solved(status: jax.Array) -> Solved:
    """At once; `status` other than RUNNING: passed through."""
    ended = jnp.where(status == lm.RUNNING, jnp.int8(Status.CONVERGED), status)
    return Solved(ended, jnp.zeros((), jnp.int32))


def end(model: Model, scheme, config: SolverConfig, start: StepStart, leg: Leg, found, known=None) -> StepResult:
    """The same for every scheme."""
    del scheme, leg, known
    none = none_solved(model.dtype)
    figures = none._replace(
        iterations=found.iterations,
        reached=jnp.where(found.status == Status.CONVERGED, jnp.ones_like(none.reached), none.reached),
        condition=jnp.full_like(none.condition, 1.0 if config.condition else jnp.nan),
    )
    work = jnp.zeros(len(model.forces) if config.account else 0, model.dtype)
    return StepResult(start.q, start.v, start.q, found.status, figures, work)


METHOD = Method(begin, None, end, lambda *_: None)
