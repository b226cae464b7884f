"""Whether the slopes that forces declare are those of what they do: by autodiff and by differences of `load`."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.analysis import finite_differences
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.laws.force import name_of
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.load import Load, NormalForce, PointForces, place
from pbad_jax.model.model import Model
from pbad_jax.model.state import State

BY = {"T": "positions", "V": "velocities", "q": "q", "v": "v"}


class Move(NamedTuple):
    """A change of an instant: T and V (N,3,4), q and v (nv,)."""

    T: jax.Array
    V: jax.Array
    q: jax.Array
    v: jax.Array


@dataclasses.dataclass(frozen=True)
class JacobianRow:
    """What one force does, along a random change of one kind of its arguments.

    declared: by the slopes in its Load. autodiff: of its `load`. difference: of its `load`. All three are projected on
    one random vector; `error` is that of the whole, relative, the worse of declared and autodiff.
    """

    name: str
    by: str
    declared: float
    autodiff: float
    difference: float
    error: float
    declared_ok: bool
    autodiff_ok: bool

    @property
    def ok(self) -> bool:
        """Whether both agree with the difference."""
        return self.declared_ok and self.autodiff_ok


def instant(model: Model, before: State, after: State, control: jax.Array, dt) -> Instant:
    """Where a force is evaluated at the end of a step."""
    f_0, f = transforms.frames(model, before.q), transforms.frames(model, after.q)
    start = Start(before.q, before.v, f_0.T, transforms.velocity_field(model, f_0, before.v))
    V = transforms.velocity_field(model, f, after.v)
    return Instant(after.q, after.v, f.T, V, after.time, control, start, jnp.asarray(dt, model.dtype))


def check(model: Model, instants: list[Instant], seed: int, tolerance: float) -> list[JacobianRow]:
    """A row for every force and each of BY of whose kind it depends, at the worst of the instants."""
    found: dict[tuple[int, str], JacobianRow] = {}
    for k, at in enumerate(instants):
        rng = np.random.default_rng([seed, k])
        whole = Move(*(jnp.asarray(rng.normal(size=x.shape), model.dtype) for x in (at.T, at.V, at.v, at.v)))
        zero = jax.tree.map(jnp.zeros_like, whole)
        for by in Move._fields:
            move = zero._replace(**{by: getattr(whole, by)})
            for i, row in enumerate(_rows(model, at, by, zero, move, tolerance, rng)):
                last = found.get((i, by))
                if last is None or row.error > last.error or not last.difference:
                    found[i, by] = row
    return [row for row in found.values() if row.declared or row.autodiff or row.difference or not row.ok]


def _rows(model: Model, at: Instant, by: str, zero: Move, move: Move, tolerance: float, rng) -> list[JacobianRow]:
    """A row for every force: what it does along `move`, a change of its arguments of one kind."""
    # what every force does, and its change along the move by autodiff and by its slopes
    values, autodiff, declared = ([np.asarray(x) for x in part] for part in _changes(model, at, zero, move))

    # differences of all forces together, with several step sizes
    ends = np.cumsum([len(x) for x in values])
    found = list(
        finite_differences.of_all_step_sizes(lambda m: np.concatenate(_changes(model, at, m, zero)[0]), zero, move)
    )
    out = []
    for i, (force, value, a, d, end) in enumerate(zip(model.forces, values, autodiff, declared, ends)):
        # the step size that comes closest counts: each has its own rounding and corners
        mine = [y[end - len(value) : end] for y in found]
        w, floor = rng.normal(size=value.shape), finite_differences.noise_floor(value)
        near, error_d = finite_differences.closest(mine, d, floor)
        _, error_a = finite_differences.closest(mine, a, floor)

        # one random projection of each to be read, and the error of the whole
        out.append(
            JacobianRow(
                name=f"forces[{i}] {name_of(force)}",
                by=BY[by],
                declared=float(w @ d),
                autodiff=float(w @ a),
                difference=float(w @ near),
                error=max(error_d, error_a),
                declared_ok=error_d <= tolerance,
                autodiff_ok=error_a <= tolerance,
            )
        )
    return out


@jax.jit
def _changes(model: Model, at: Instant, place_: Move, move: Move) -> tuple[list, list, list]:
    """Of every force, flat: what it does there, its derivative along the move by autodiff, and by its slopes."""

    def does(m: Move) -> list[jax.Array]:
        there = dataclasses.replace(at, T=at.T + m.T, V=at.V + m.V, q=manifold.retract(model, at.q, m.q), v=at.v + m.v)
        return [_flat(acts(f.load(model, there))) for f in model.forces]

    values, autodiff = jax.jvp(does, (place_,), (move,))
    return values, autodiff, [_flat(_promised(f.load(model, at), move)) for f in model.forces]


def _flat(parts: list[jax.Array]) -> jax.Array:
    return jnp.concatenate([jnp.ravel(x) for x in parts]) if parts else jnp.zeros(0)


def acts(load: Load) -> list[jax.Array]:
    """What a Load does, without its slopes."""
    parts = [x for x in (load.field, load.tau) if x is not None]
    for p in load.point_forces:
        parts += [p.force, p.u]
    return parts


def _promised(load: Load, m: Move) -> list[jax.Array]:
    """The change of `acts` that the slopes promise; what has none does not change."""
    parts = [] if load.field is None else [jnp.zeros_like(load.field)]
    if load.tau is not None:
        parts.append(_times(load.dtau_dq, m.q) + _times(load.dtau_dv, m.v))
    for p in load.point_forces:
        change = _pulled(p, p.df_dP, m.T) + _pulled(p, p.df_dV, m.V)
        parts += [change if p.normal is None else change + _by_normal(p, p.normal, m), jnp.zeros_like(p.u)]
    return parts


def _by_normal(p: PointForces, normal: NormalForce, m: Move) -> jax.Array:
    assert p.by_normal is not None
    by_T, by_V = (place(x, normal.point_links, normal.u) for x in (m.T, m.V))
    N = jnp.sum(normal.by_P * by_T + normal.by_V * by_V, axis=(1, 2))
    return N[:, None, None] * p.by_normal


def _times(slope: jax.Array | None, x: jax.Array) -> jax.Array:
    if slope is None:
        return jnp.zeros_like(x)
    return slope * x if slope.ndim == 1 else slope @ x


def _pulled(p: PointForces, slope: jax.Array | None, field: jax.Array) -> jax.Array:
    if slope is None:
        return jnp.zeros_like(p.force)
    return jnp.einsum("cnamb,cmb->cna", slope, place(field, p.point_links, p.u))
