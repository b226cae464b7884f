"""What a force is: a small pytree with one method, `load`, evaluated at every stage of a step, or once a step.

`Force` names all that it may have besides; `with_forces` gives it to a model, and refuses a name that is nearly one of
these.

A Load has three kinds of entries, each with the derivatives that keep the Newton matrix exact:

* `point_forces`, forces at points of the links: f (N) and ∂f/∂P, ∂f/∂V by the points' positions and velocities. Because
  the transforms are affine, so is every point: P = T u with u = (p, 1) fixed in the link; u = (p, 0) is a direction.
* `tau` (nv,), forces in the joints, and their derivatives, each a diagonal (nv,) or a full (nv,nv) matrix; by q along
  q ⊕ δ (body-frame rotation vectors for ball and free joints).
* `field` (N,3,4), ∂Q/∂T^l where it does not depend on the state (gravity): the entrywise product with a virtual
  displacement δT is minus its work.

`point_forces` writes f and both derivatives from a law of a few points, by autodiff of that law alone.

Where in the step. "stages": at every stage, which keeps the scheme's order; for everything smooth. "step": one impulse
at the start of the step, evaluated implicitly at its end with the mean rates of the step; for what is stiff and
one-sided (contact, limits), which inside a step longer than the contact would let high orders make energy.
"""

import dataclasses
import difflib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import ModelError
from pbad_jax.math.small import small_sum
from pbad_jax.model.model import Model


class Start(NamedTuple):
    """The start of the step, time k."""

    q: jax.Array  # (nq,)
    v: jax.Array  # (nv,)
    T: jax.Array  # (N,3,4)
    V: jax.Array  # (N,3,4)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["q", "v", "T", "V", "time", "control", "start", "dt"],
    meta_fields=["regime"],
)
@dataclasses.dataclass(frozen=True)
class Instant:
    """Where a force is evaluated: one instant of one lane."""

    q: jax.Array  # (nq,) rad, m
    v: jax.Array  # (nv,) rad/s, m/s: the rates of the scheme at this stage, or the mean rates of the step
    T: jax.Array  # (N,3,4) world transforms of the links, m
    V: jax.Array  # (N,3,4) their rates
    time: jax.Array  # () s
    control: jax.Array  # (nu,)
    start: Start
    dt: jax.Array  # () s, the step
    regime: str = (
        "tangent"  # or "stick", "secant": how laws with kinks are wanted on the way to a root, see `has_kinks`
    )


def instant(q, v, T, V, time, control) -> Instant:
    """An Instant by itself, in no step: it is its own start, and dt is 1 s."""
    return Instant(q, v, T, V, time, control, Start(q, v, T, V), jnp.ones((), q.dtype))


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["u", "force", "df_dP", "df_dV"], meta_fields=["links"]
)
@dataclasses.dataclass(frozen=True)
class PointForces:
    """Forces at c clusters of n points each; within a cluster every force may depend on every point.

    Attributes:
        links: the link of every cluster (c numbers), or of every point (c tuples of n numbers). Clusters on one link
            cost little and fit the O(N) solve; the others couple links.
        u: (c,n,4) points in their links' frames: (p, 1) m, or (p, 0) for a direction.
        force: (c,n,3) N.
        df_dP, df_dV: (c,n,3,n,3) N/m and N s/m, or None for zero.
    """

    links: tuple
    u: jax.Array
    force: jax.Array
    df_dP: jax.Array | None = None
    df_dV: jax.Array | None = None

    @property
    def couples(self) -> bool:
        """Whether its clusters join several links."""
        return bool(self.links) and not isinstance(self.links[0], int)

    @property
    def point_links(self) -> np.ndarray:
        """The link of every point, (c,n)."""
        return each_link(self.links, self.u)


class Load(NamedTuple):
    """What a force adds; None where it has nothing to say."""

    field: jax.Array | None = None  # (N,3,4) ∂Q/∂T
    tau: jax.Array | None = None  # (nv,) N or N m
    dtau_dq: jax.Array | None = None  # (nv,) or (nv,nv)
    dtau_dv: jax.Array | None = None  # (nv,) or (nv,nv)
    point_forces: tuple[PointForces, ...] = ()


def place(T: jax.Array, links, u: jax.Array) -> jax.Array:
    """T u of points u (...,4) on links (...): positions (...,3), or with V for T their velocities."""
    return small_sum(T[np.asarray(links, int)] * u[..., None, :])


def each_link(links: tuple, u: jax.Array) -> np.ndarray:
    """The link of every point of u (c,n,4), from those of the clusters or of the points: (c,n)."""
    given = np.asarray(links, int)
    return given if given.ndim == 2 else np.broadcast_to(given[:, None], u.shape[:2])


def point_forces(at: Instant, links: tuple, u: jax.Array, law: Callable, *parameters) -> Load:
    """The Load of a law for clusters of points; its derivatives are autodiff of the law alone.

    Args:
        at: the instant.
        links: c links, or c tuples of n links.
        u: (c,n,4) points in their links' frames.
        law: (P (n,3) m, V (n,3) m/s, *parameters) -> forces (n,3) N, of one cluster.
        *parameters: arrays with a leading axis of clusters, or scalars.
    """
    where = each_link(links, u)
    P, V = place(at.T, where, u), place(at.V, where, u)
    axes = (0, 0, *(0 if jnp.ndim(p) else None for p in parameters))

    def with_slopes(P, V, *parameters):
        return law(P, V, *parameters), jax.jacfwd(law, (0, 1))(P, V, *parameters)

    force, (df_dP, df_dV) = jax.vmap(with_slopes, axes)(P, V, *parameters)
    return Load(point_forces=(PointForces(links, u, force, df_dP, df_dV),))


def total_load(model: Model, at: Instant, where: str | None = None) -> Load:
    """The sum of the model's forces that act at the "stages", or once a "step"; None, of all."""
    total = Load()
    for force in model.forces if where is None else acting(model, where):
        load = _of_right_shapes(model, force, force.load(model, at))
        sums = (_plus(a, b) for a, b in zip(total[:4], load[:4]))
        total = Load(*sums, point_forces=total.point_forces + load.point_forces)
    return total


def _of_right_shapes(model: Model, force: "Force", load: Load) -> Load:
    """The Load itself; what does not fit the model is named while tracing."""
    nv = model.nv
    parts = [("field", load.field, [(model.topology.n_links, 3, 4)]), ("tau", load.tau, [(nv,)])]
    parts += [(name, getattr(load, name), [(nv,), (nv, nv)]) for name in ("dtau_dq", "dtau_dv")]
    for k, p in enumerate(load.point_forces):
        c, n = p.u.shape[:2]
        shapes = {"u": (c, n, 4), "force": (c, n, 3), "df_dP": (c, n, 3, n, 3), "df_dV": (c, n, 3, n, 3)}
        parts += [(f"point_forces[{k}].{name}", getattr(p, name), [shape]) for name, shape in shapes.items()]
    for name, x, allowed in parts:
        if x is not None and jnp.shape(x) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise ModelError(f"load of {type(force).__name__}: {name} has shape {jnp.shape(x)}; wanted {wanted}")
    return load


def _plus(a: jax.Array | None, b: jax.Array | None) -> jax.Array | None:
    if a is None:
        return b
    if b is None:
        return a
    if (a.ndim, b.ndim) == (1, 2):  # a diagonal and a full matrix
        return jnp.diag(a) + b
    if (a.ndim, b.ndim) == (2, 1):
        return a + jnp.diag(b)
    return a + b


def field_of(load: Load, n_links: int) -> jax.Array | None:
    """All that a Load does to the links as one field (N,3,4): −Σ f ⊗ u beside its own."""
    field = load.field
    for p in load.point_forces:
        more = on_links(p.point_links, -p.force[..., :, None] * p.u[..., None, :], n_links)
        field = more if field is None else field + more
    return field


def on_links(links: np.ndarray, x: jax.Array, n_links: int) -> jax.Array:
    """The sum of x over each link, its leading axes those of `links`: (N,...). By a product: a scatter is slow."""
    hot = np.zeros((n_links, links.size))
    hot[links.ravel(), np.arange(links.size)] = 1
    return jnp.tensordot(jnp.asarray(hot, x.dtype), x.reshape(links.size, *x.shape[links.ndim :]), axes=1)


def total_potential(model: Model, at: Instant) -> jax.Array:
    """Potential energy of all forces that have one, J."""
    parts = [f.potential(model, at) for f in model.forces if hasattr(f, "potential")]
    return sum(parts, jnp.zeros((), model.dtype))


def gaps(model: Model, at: Instant) -> tuple[jax.Array, ...]:
    """The gaps of all forces that have some, in their order; see `Force`."""
    return tuple(f.gap(model, at) for f in model.forces if hasattr(f, "gap"))


# --- what a force may have -----------------------------------------------------------------------------------


class Force(Protocol):
    """A frozen dataclass registered as a pytree, with a method `load`; nothing is inherited.

    What else it may have, as class attributes, static fields, properties or methods of exactly these names:

        at: str = "stages"             or "step": one implicit impulse a step, see the module
        conservative: bool = True      whether the force is minus the gradient of its `potential`, no more
        has_kinks: bool = False        whether `load` answers `at.regime`
        couples_joints: bool = True    whether a full (nv,nv) slope joins joints; False: it is blocks of the balls
        potential(model, at)           () J: enters `potential_energy`; without it a force is not conservative
        gap(model, at)                 (c,3) or (e,), m or rad: by how much it is open, for `loop_gaps`
        depth(model, at)               (c,) m: how deep what it holds apart overlaps
        describe(model)                (its name, on how much of the model it acts), two strings for `pbad-jax info`
    """

    def load(self, model: Model, at: Instant) -> Load:
        """What it does at one instant."""
        ...


WHERE = ("stages", "step")
FLAGS = ("conservative", "has_kinks", "couples_joints")
METHODS = ("potential", "gap", "depth", "describe")
OPTIONAL = ("at", *FLAGS, *METHODS)


def acts_at(force: Force) -> str:
    """Where the force acts: at the "stages", or once a "step"."""
    return getattr(force, "at", "stages")


def is_conservative(force: Force) -> bool:
    """Whether the force is minus the gradient of its `potential`, no more."""
    return hasattr(force, "potential") and getattr(force, "conservative", True)


def has_kinks(force: Force) -> bool:
    """Whether the force answers `at.regime`: dry friction, whose slope does not tell of its middle."""
    return getattr(force, "has_kinks", False)


def couples_joints(force: Force) -> bool:
    """Whether a full (nv,nv) slope of the force joins joints; blocks of the balls do not."""
    return getattr(force, "couples_joints", True)


def description(force: Force, model: Model) -> tuple[str, str]:
    """The force's name, and on how much of the model it acts."""
    describe = getattr(force, "describe", None)
    return (type(force).__name__, "") if describe is None else describe(model)


def dofs(numbers) -> str:
    """How many of the numbers, one a degree of freedom, are not zero; in words."""
    return f"{np.count_nonzero(np.asarray(numbers))} degrees of freedom"


def acting(model: Model, where: str) -> list:
    """The forces that act at the stages, or once a step."""
    return [f for f in model.forces if acts_at(f) == where]


def with_forces(model: Model, *forces: Force) -> Model:
    """The model with more forces; nothing is replaced. Their numbers take the model's dtype.

    Raises:
        ModelError: a force that the model carries already; what is no `Force`: a class, no pytree, without the method
            `load`, with a public name that is nearly one of its names, or with a value of the wrong type under one.
    """
    for force in forces:
        if any(force is known for known in model.forces):
            raise ModelError(
                f"with_forces: this {type(force).__name__} is in the model already and would act twice; "
                "pass only the new forces"
            )
        _check_kind(force)
        _check_names(force)
        _check_values(force)

    def cast(x):
        return jnp.asarray(x, model.dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

    return dataclasses.replace(model, forces=model.forces + tuple(jax.tree.map(cast, f) for f in forces))


def _check_kind(force) -> None:
    """A pytree with a method `load`."""
    if isinstance(force, type):
        raise ModelError(f"with_forces: {force.__name__} is a class; pass a force made of it, {force.__name__}(...)")
    if not callable(getattr(force, "load", None)):
        raise ModelError(
            f"with_forces: {force!r:.60} is no force; it needs a method load(model, at), see pbad_jax.forces.Force"
        )
    if jax.tree_util.all_leaves([force]):
        raise ModelError(
            f"with_forces: this {type(force).__name__} is no pytree; make it a frozen dataclass under "
            "@jax.tree_util.register_dataclass"
        )


def _check_names(force) -> None:
    """No public name is nearly one of those of `Force`."""
    for name in dir(force):
        meant = "" if name.startswith("_") or name in OPTIONAL else _nearest(name)
        if meant:
            raise ModelError(
                f"with_forces: {name!r} of this {type(force).__name__} is no name of pbad_jax.forces.Force and has no "
                f"effect; is {meant!r} meant? Write that, or call what is your own something else, such as _{name}"
            )


def _nearest(name: str) -> str:
    """The optional name that this one nearly is, or ""; short names differ by their case alone."""
    near = difflib.get_close_matches(name.lower(), [x for x in OPTIONAL if len(x) > 2], 1, 0.8)
    return name.lower() if name.lower() in OPTIONAL else "".join(near)


def _check_values(force) -> None:
    """Where, flags and methods are what `Force` says, where they are there."""
    given = {name: getattr(force, name) for name in OPTIONAL if hasattr(force, name)}
    for name, x in given.items():
        fits, wanted = _rule(name, x)
        if not fits:
            raise ModelError(
                f"with_forces: {name} of this {type(force).__name__} is {x!r:.60}; it must be {wanted}, "
                "see pbad_jax.forces.Force"
            )


def _rule(name: str, x: Any) -> tuple[bool, str]:
    """Whether a value fits its optional name, and what does."""
    if name == "at":
        return isinstance(x, str) and x in WHERE, "'stages' or 'step'"
    if name in FLAGS:
        return isinstance(x, bool | np.bool_), "True or False"
    return callable(x), f"a method {name}(model{', at' * (name != 'describe')})"
