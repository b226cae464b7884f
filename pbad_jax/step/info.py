"""What every step says about how it ended: the certificate."""

import dataclasses
import functools
from typing import Any

import jax.core
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import Status, StepError
from pbad_jax.laws.force import name_of
from pbad_jax.math.pytree import STATIC
from pbad_jax.model.model import Model, Topology
from pbad_jax.stage.result import Figures, none_solved

WORST_GRADIENT = 1e-3  # relative error


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepInfo:
    """How a step ended. In a rollout every field has a leading axis of steps, under vmap one of lanes before it.

    Attributes:
        status: int8, a `Status`.
        iterations: int32, Levenberg–Marquardt or L-BFGS iterations, all attempts and stages together.
        residual: ‖L⁻¹ r‖ over √mass · length of the model, L the Cholesky factor of the mass matrix at the start of the
            step: the estimated position error as a fraction of the model's size.
        reached: fraction of dt up to which the equations could be solved; 1 where the step converged.
        damping: λ of the last iteration; 0 is Newton's method.
        substeps: 1, or into how many parts a step was divided (`on_failure="substep"`, `accuracy`).
        worst: int32, the degree of freedom that Newton's correction where the solve ended would move most, with either
            solver; `dofs[worst]` is its joint.
        grad_ok: whether derivatives pass through this step: it converged, without an accuracy in one piece, and where
            `condition` is known, that leaves three digits of them.
        error: the local error of q over the step, its largest coordinate: rad, and m over the model's typical length
            (or over the way it falls in a step, if that is more); of a step in parts the sum of theirs. An estimate,
            for radau(1) and radau(2) (docs/schemes.md); NaN for other schemes, and where a step failed.
        work: (..., nforces) J that each force did, or None; see Options.account.
        numerical_work: J, the change of kinetic energy that no force explains; negative where the scheme dissipates.
        condition: of the Newton matrix at the solution in the metric of the mass matrix, an estimate from below; the
            largest of the stages of dirk. None unless Options.condition.
        dofs: joint name of every degree of freedom. forces: name of every force.

    Example:
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, [1.0, 0.0]), n_steps=2, options=options)
        >>> info.ok
        Array(True, dtype=bool)
        >>> info.status == pbad.Status.CONVERGED
        Array([ True,  True], dtype=bool)
    """

    status: jax.Array
    iterations: jax.Array
    residual: jax.Array
    reached: jax.Array
    damping: jax.Array
    substeps: jax.Array
    worst: jax.Array
    grad_ok: jax.Array
    error: jax.Array
    work: jax.Array | None = None
    numerical_work: jax.Array | None = None
    condition: jax.Array | None = None
    dofs: tuple[str, ...] = dataclasses.field(default=(), metadata=STATIC)
    forces: tuple[str, ...] = dataclasses.field(default=(), metadata=STATIC)

    @property
    def ok(self) -> jax.Array:
        """Whether every step converged: () bool, or one for each lane under vmap."""
        status = jnp.asarray(self.status)
        return jnp.all(status == Status.CONVERGED, axis=-1) if status.ndim else status == Status.CONVERGED

    @property
    def first_bad_step(self) -> jax.Array:
        """Index of the first step that did not converge, −1 where all did: (), or one for each lane."""
        bad = jnp.atleast_1d(self.status) != Status.CONVERGED
        if not bad.shape[-1]:
            return jnp.full(bad.shape[:-1], -1, jnp.int32)
        return jnp.where(jnp.any(bad, -1), jnp.argmax(bad, -1), -1).astype(jnp.int32)

    def assert_ok(self) -> None:
        """Raise where a step failed, naming lane, step, joint, status and advice. Only outside jit.

        Raises:
            StepError: a step did not converge.
        """
        status = np.asarray(self.status)
        bad = np.argwhere(np.atleast_1d(status) != Status.CONVERGED)
        if not len(bad):
            return
        index = tuple(int(i) for i in (bad[0] if status.ndim else ()))
        code = Status(int(status[index]))
        more = f" ({len(bad)} of {status.size} steps are not CONVERGED)" if status.size > 1 else ""
        raise StepError(f"{self._place(index)}: {code.name}. {code.advice}{more}")

    def _place(self, index: tuple[int, ...]) -> str:
        """Lane, step, joint and figures of one entry, for a person."""
        where = [f"lane {', '.join(map(str, index[:-1]))}"] if len(index) > 1 else []
        where += [f"step {index[-1]}"] if index else ["the step"]
        worst = int(np.asarray(self.worst)[index])
        if worst < len(self.dofs):
            where.append(f"joint {self.dofs[worst]!r}")
        count, residual = int(np.asarray(self.iterations)[index]), float(np.asarray(self.residual)[index])
        reached, damping = float(np.asarray(self.reached)[index]), float(np.asarray(self.damping)[index])
        figures = f"{count} iterations, residual {residual:.2g}, λ {damping:.2g}, reached {reached:.3g} of dt"
        return f"{', '.join(where)} ({figures})"

    def __repr__(self) -> str:
        if not hasattr(self.status, "shape") or isinstance(self.status, jax.core.Tracer):
            return f"StepInfo(status={self.status!r}, ...)"
        # how many, and how each ended
        status = np.asarray(self.status)
        if not status.size:
            return "StepInfo(no steps)"
        counts = [(Status(int(c)).name, int(np.sum(status == c))) for c in np.unique(status)]
        codes = ", ".join(f"{n} {name}" for name, n in counts)
        solved = status == Status.CONVERGED
        parts = [
            f"{status.size} steps" + (f" in {status.size // status.shape[-1]} lanes" if status.ndim > 1 else ""),
            codes,
        ]
        # of those that were solved: iterations, residuals, errors
        if solved.any():
            iterations, residual = np.asarray(self.iterations)[solved], np.asarray(self.residual)[solved]
            parts.append(f"iterations {iterations.mean():.1f} (most {iterations.max()})")
            parts.append(f"residual ≤ {residual.max():.1g}")
            error = np.asarray(self.error)[solved]
            parts += [f"error about {error.max():.1g} at most"] if np.isfinite(error).all() else []
        # those in parts, and the first that failed
        divided = np.asarray(self.substeps) > 1
        if divided.any():
            parts.append(f"{int(divided.sum())} divided into up to {int(np.asarray(self.substeps).max())} substeps")
        if not solved.all():
            bad = np.argwhere(np.atleast_1d(~solved))[0]
            parts.append(f"first failure: {self._place(tuple(int(i) for i in (bad if status.ndim else ())))}")
        return f"StepInfo({'; '.join(parts)})"


def nothing_yet(model: Model, account: bool, condition: bool) -> StepInfo:
    """Of no step: every figure zero, those of an account and a condition where they are asked for."""
    figures = none_solved(model.dtype)
    return StepInfo(
        status=jnp.zeros((), jnp.int8),
        substeps=figures.iterations,
        grad_ok=jnp.zeros((), bool),
        work=jnp.zeros(len(model.forces), model.dtype) if account else None,
        numerical_work=figures.residual if account else None,
        **reported(model, figures, condition),
    )


def reported(model: Model, figures: Figures, condition: bool) -> dict[str, Any]:
    """Fields of a StepInfo: figures, the condition where it is asked for, and names."""
    return {**figures._asdict(), **({} if condition else {"condition": None}), **names(model)}


def names(model: Model) -> dict[str, tuple[str, ...]]:
    """The names that every StepInfo of this model carries."""
    return {"dofs": _dof_names(model.topology), "forces": tuple(name_of(f) for f in model.forces)}


def has_gradient(status: jax.Array, condition: jax.Array) -> jax.Array:
    """Whether derivatives pass: () bool. `condition`: NaN where it is not known."""
    lost = condition * jnp.finfo(condition.dtype).eps > WORST_GRADIENT
    return (status == Status.CONVERGED) & ~lost


@functools.lru_cache(maxsize=256)
def _dof_names(topology: Topology) -> tuple[str, ...]:
    """The joint of every degree of freedom."""
    names = [""] * topology.nv
    for joint in topology.joints:
        names[joint.v : joint.v + joint.nv] = [joint.name] * joint.nv
    return tuple(names)
