"""Problems without physics for the solver's tests: plain functions as a solver.problem.Problem."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from helpers import DTYPE

from pbad_jax.math.batched import CholeskyFactor
from pbad_jax.solver import levenberg_marquardt as lm
from pbad_jax.solver.dense import DenseMetric


def metric_of(factor) -> DenseMetric:
    """Lengths in the metric of a factor."""
    factor = jnp.asarray(factor, DTYPE)
    return DenseMetric(CholeskyFactor(factor, jnp.linalg.inv(factor)))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["metric", "max_correction", "data"],
    meta_fields=["evaluate", "jacobian", "plus", "first", "guided", "believes", "follows_from_zero"],
)
@dataclasses.dataclass(frozen=True)
class Toy:
    """evaluate: (x, h, *data) -> r, terms. jacobian: terms -> J, by default the terms themselves. plus: (x, δ) -> x.

    first: (x_done, h_done, h) -> x. guided: the dual before the first iterate, and (x, dual, trust) -> r, J, dual.
    believes: J -> whether a root is on its branch; where it is not, J is asked of again without trust.
    `data` may be traced.
    """

    evaluate: Callable
    metric: DenseMetric
    jacobian: Callable = lambda terms: terms
    plus: Callable = lambda x, delta: x + delta
    first: Callable | None = None
    guided: tuple[Callable, Callable] | None = None
    believes: Callable | None = None
    follows_from_zero: bool = True
    max_correction: Any = dataclasses.field(default_factory=lambda: jnp.full(1, jnp.inf, DTYPE))
    data: tuple = ()

    def first_guide(self, old=None):
        return None if self.guided is None else (self.guided[0](), jnp.ones((), DTYPE))

    @property
    def asks_twice(self):
        return self.believes is not None

    def second_guide(self, guide, again):
        dual, trust = guide
        return dual, jnp.where(again, 0.0, trust)

    def next_guide(self, guide, terms, delta, trust):
        return terms[1], trust

    def residual(self, x, h, guide=None):
        if guide is None:
            r, terms = self.evaluate(x, h, *self.data)
            return r, (terms if self.guided is None else (terms, None))
        assert self.guided is not None
        r, *terms = self.guided[1](x, *guide)
        return r, tuple(terms)

    def zeros(self, x):
        def both(x):
            r, terms = self.residual(x, 1.0, self.first_guide())
            return r, self.matrix(terms)

        return jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), jax.eval_shape(both, x))

    def modelled(self, terms, r):
        return r

    def matrix(self, terms):
        return self.jacobian(terms if self.guided is None else terms[0])

    def retract(self, x, delta):
        return self.plus(x, delta)

    def solve(self, J, b):
        return jnp.linalg.solve(J, b)

    def way(self, x):
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(x)))

    def merit(self, x, h):
        return None

    def guess(self, x_done, h_done, h):
        assert self.first is not None
        return self.first(x_done, h_done, h)

    def goes_far(self):
        return jnp.ones((), bool)

    def is_on_branch(self, h, attempt, J, asked, again, on_the_way):
        return jnp.ones((), bool) if self.believes is None else self.believes(J)


def toy(residual, factor=None, n=None, **options) -> Toy:
    """On plain vectors, with the Jacobian by autodiff; residual: x -> r."""
    factor = jnp.eye(n, dtype=DTYPE) if factor is None else factor
    return Toy(lambda x, h: (residual(x), jax.jacfwd(residual)(x)), metric_of(factor), **options)


def iterate(problem, settings, s):
    """One iteration at h = 1."""
    return lm.iterate(problem, 1.0, settings, s)[0]


def solve(problem, settings, x, *, status=lm.RUNNING):
    """Levenberg–Marquardt alone, at h = 1, until it is no longer RUNNING."""
    s = lm.init(problem, x, status=status)
    return jax.lax.while_loop(lambda s: s.status == lm.RUNNING, lambda s: iterate(problem, settings, s), s)
