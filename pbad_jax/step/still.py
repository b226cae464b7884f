"""One step of a model without degrees of freedom: time goes on, and nothing is to be solved."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.errors import Status
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.stage.problem import SolverConfig
from pbad_jax.stage.result import Roots, StepResult
from pbad_jax.stage.start import StepStart
from pbad_jax.step.leg import Leg, Method


class Solved(NamedTuple):
    """Stands for the continuation.State of a solve."""

    status: jax.Array  # () int8, RUNNING never
    iterations: jax.Array  # () int32


def step(model: Model, scheme, config: SolverConfig, dt, start: StepStart, state: State, status, known=None):
    """The StepResult of no motion."""
    del dt, state, known
    return end(model, scheme, config, start, Leg((), start.v[None], status), solved(status))


def begin(model: Model, scheme, config: SolverConfig, dt, start: StepStart, state: State, status) -> Leg:
    """There is one leg."""
    del model, scheme, config, dt, state
    return Leg((), start.v[None], status)


def solved(status: jax.Array) -> Solved:
    """At once; `status` other than RUNNING: passed through."""
    ended = jnp.where(status == lm.RUNNING, jnp.int8(Status.CONVERGED), status)
    return Solved(ended, jnp.zeros((), jnp.int32))


def end(model: Model, scheme, config: SolverConfig, start: StepStart, leg: Leg, found) -> StepResult:
    """The same for every scheme."""
    del scheme, leg
    zero = jnp.zeros((), model.dtype)
    return StepResult(
        z=start.q,
        v=start.v,
        history=start.q,
        status=found.status,
        iterations=found.iterations,
        residual=zero,
        reached=jnp.where(found.status == Status.CONVERGED, jnp.ones_like(zero), zero),
        damping=zero,
        worst=jnp.zeros((), jnp.int32),
        work=jnp.zeros(len(model.forces) if config.account else 0, model.dtype),
        condition=jnp.ones_like(zero) if config.condition else jnp.full_like(zero, jnp.nan),
        roots=Roots(),
    )


def _nothing_to_solve(*_):
    raise AssertionError("a model without degrees of freedom has no problem")


METHOD = Method(begin, _nothing_to_solve, end)
