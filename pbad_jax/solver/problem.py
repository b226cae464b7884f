"""What the solvers solve: a square system r(x; h) = 0 on a manifold, for 0 < h ≤ 1. Knows no physics.

A Problem is a frozen dataclass registered as a pytree: what it depends on are its leaves, choices are static. So it can
be an operand of a branch, be carried, batched and stripped of derivatives, and it is its own θ in the derivative of its
root. Unknowns x are any pytree; δ (n,) is a step in their tangent space, n that of the residual.
"""

from typing import Any, Protocol

import jax


class Metric(Protocol):
    """What a problem's vectors (n,) are measured by; see dense.py."""

    def norm(self, r: jax.Array) -> jax.Array:
        """Of a residual, ()."""
        ...

    def length(self, delta: jax.Array) -> jax.Array:
        """Of a correction, (), in the unit of `norm`."""
        ...

    def slope(self, r: jax.Array, delta: jax.Array) -> jax.Array:
        """r along δ, (): negative where δ leads to a root, as far as a change of coordinates of r makes it so."""
        ...

    def damped(self, J: Any, r: jax.Array, damping: jax.Array) -> tuple[Any, jax.Array]:
        """The system A, b whose solution is minus the step of Levenberg and Marquardt with λ = damping > 0."""
        ...


class Problem(Protocol):
    """A family of square systems whose root at h = 1 is wanted, and whose root at h → 0 is trivial."""

    @property
    def follows_from_zero(self) -> bool:
        """Whether the root at h = 1 can be followed from h = 0; else only h = 1 makes sense. Static."""
        ...

    @property
    def metric(self) -> Metric:
        """Of residuals and corrections; for L-BFGS a DenseMetric."""
        ...

    @property
    def max_correction(self) -> jax.Array:
        """(b,) the largest |δ| that a linear model of each unknown can be trusted with, inf where any; n = k b."""
        ...

    def residual(self, x: Any, h: Any, guide: Any = None) -> tuple[jax.Array, Any]:
        """r (n,), which does not depend on the guide, and the terms that its linear model is made of."""
        ...

    def zeros(self, x: Any) -> tuple[jax.Array, Any]:
        """As many zeros as a residual and a matrix have, in the same pytrees; x: any point."""
        ...

    def matrix(self, terms: Any) -> Any:
        """J = ∂r(x ⊕ δ)/∂δ at δ = 0, an (n,n) array or whatever `solve` understands."""
        ...

    def retract(self, x: Any, delta: jax.Array) -> Any:
        """x ⊕ δ."""
        ...

    # laws that must not be linearised where a trial happens to be have duals; all of them are the guide

    def first_guide(self, old: Any = None) -> Any:
        """Before the first iterate; None (static): the problem has no duals, all laws are linearised at x.

        old: a guide of the same problem, from which what does not change is taken.
        """
        ...

    def next_guide(self, guide: Any, terms: Any, delta: jax.Array, trust: jax.Array) -> Any:
        """After an iterate with these terms, from which the step δ is made; trust () in tangents, from 1 to 0."""
        ...

    @property
    def asks_twice(self) -> bool:
        """Whether a root that `is_on_branch` refuses is asked of again, by the matrix of `second_guide`. Static."""
        ...

    def second_guide(self, guide: Any, again: jax.Array) -> Any:
        """The guide, and where `again` () bool one that makes another linear model at the root that is refused."""
        ...

    def modelled(self, terms: Any, r: jax.Array) -> jax.Array:
        """The residual of the linear model at x (n,): r itself at a root, and where there is no guide."""
        ...

    def solve(self, J: Any, b: jax.Array) -> jax.Array:
        """J⁻¹ b (n,)."""
        ...

    def solve_at_root(self, x: Any, good: jax.Array, b: jax.Array) -> jax.Array:
        """J⁻¹ b (n,) at the root x for h = 1, differentiable; where x is not `good`, anything finite."""
        ...

    def way(self, x: Any) -> jax.Array:
        """How far x is from the root at h = 0, () in its unit: roughly, it only measures what is small."""
        ...

    def merit(self, x: Any, h: Any) -> jax.Array | None:
        """What must fall, (), where r is its gradient; None (static): the norm of r."""
        ...

    def guess(self, x_done: Any, h_done: Any, h: Any) -> Any:
        """x at h, extrapolated from the root at h_done; x_done = None (static) or h_done = 0: none is known yet."""
        ...

    def goes_far(self) -> jax.Array:
        """Whether the plain guess at h = 1 is so far from h = 0 that laws with kinks may lead astray; () bool."""
        ...

    def is_on_branch(
        self, h: Any, attempt: Any, J: Any, asked: jax.Array, again: jax.Array | None, on_the_way: jax.Array
    ) -> jax.Array:
        """Whether a root is the one that grows out of h = 0, as far as can be told where it is `asked`; () bool.

        attempt: the SolveState that found it at h, with its x, and whether Newton's method `leaps`.
        J: what it is told by. again: where it was refused before, and J is another; None: never (not `asks_twice`).
        on_the_way: whether the guess was from the root at a smaller h, or for one.
        """
        ...

    def in_chart(self, covector: jax.Array, delta: jax.Array) -> jax.Array:
        """A covector (n,) at x ⊕ δ by δ itself, for L-BFGS: Jrᵀ, Jr the right Jacobian of the retraction."""
        ...
