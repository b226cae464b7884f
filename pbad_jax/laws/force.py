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
at the start of the step, evaluated implicitly at its end with the mean rates of the step (radau(2) and radau(3): most
of it along the step); for what is stiff and one-sided (contact, limits), which inside a step longer than the
contact would let high orders make energy.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import ModelError, OptionError
from pbad_jax.math.pytree import STATIC
from pbad_jax.math.small import small_sum
from pbad_jax.model.model import Model, check_model

AT_A_TIME = 8  # places of a force that are looked at together, see `Parts`


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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PointForces:
    """Forces at c clusters of n points each; within a cluster every force may depend on every point.

    Attributes:
        links: the link of every cluster (c numbers), or of every point (c tuples of n numbers). Clusters on one link
            cost little and fit the O(N) solve; the others couple links.
        u: (c,n,4) points in their links' frames: (p, 1) m, or (p, 0) for a direction.
        force: (c,n,3) N.
        df_dP, df_dV: (c,n,3,n,3) N/m and N s/m, or None for zero.
        modelled: (c,n,3) N, what the next linear model has for `force`, or None for the same; see `Guide`.
        curving: (c,n,3) N, the force whose product with the curvature of P(q) the matrix has, or None for `force`.
        where: (c,n) instead of `links`, where only a step knows the links of its points; they couple links.
        by_normal, normal: (c,n,3) ∂F/∂N, and the normal forces N that these follow, as friction does; None: none.

    Example:
        >>> tip = jnp.array([[[0.0, 0.0, -1.0, 1.0]]])
        >>> (pull,) = forces.point_forces(at, (1,), tip, lambda P, V: -3.0 * V).point_forces
        >>> pull.force.shape, pull.df_dV[0, 0, :, 0, :]
        ((1, 1, 3), Array([[-3., -0., -0.],
               [-0., -3., -0.],
               [-0., -0., -3.]], dtype=float64))
    """

    links: tuple = dataclasses.field(metadata=STATIC)
    u: jax.Array
    force: jax.Array
    df_dP: jax.Array | None = None
    df_dV: jax.Array | None = None
    modelled: jax.Array | None = None
    curving: jax.Array | None = None
    where: jax.Array | None = None
    by_normal: jax.Array | None = None
    normal: "NormalForce | None" = None

    @property
    def couples(self) -> bool:
        """Whether its clusters join several links."""
        return self.where is not None or (bool(self.links) and not isinstance(self.links[0], int))

    @property
    def point_links(self) -> np.ndarray | jax.Array:
        """The link of every point, (c,n)."""
        return each_link(self.links, self.u) if self.where is None else self.where


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NormalForce:
    """How the normal forces N of c clusters follow their own k points, for what follows N: ∂F/∂P = ∂F/∂N ∂N/∂P."""

    links: tuple = dataclasses.field(metadata=STATIC)  # as of PointForces
    u: jax.Array  # (c,k,4)
    by_P: jax.Array  # (c,k,3) N/m
    by_V: jax.Array  # (c,k,3) N s/m
    where: jax.Array | None = None

    @property
    def point_links(self) -> np.ndarray | jax.Array:
        """The link of every point, (c,k)."""
        return each_link(self.links, self.u) if self.where is None else self.where


class Load(NamedTuple):
    """What a force adds; None where it has nothing to say.

    Example:
        >>> forces.Load(tau=jnp.array([0.0, -2.0]), dtau_dq=jnp.zeros(2)).tau
        Array([ 0., -2.], dtype=float64)
    """

    field: jax.Array | None = None  # (N,3,4) ∂Q/∂T
    tau: jax.Array | None = None  # (nv,) N or N m
    dtau_dq: jax.Array | None = None  # (nv,) or (nv,nv)
    dtau_dv: jax.Array | None = None  # (nv,) or (nv,nv)
    point_forces: tuple[PointForces, ...] = ()
    modelled_tau: jax.Array | None = None  # (nv,) what the next linear model has beside `tau`; None: nothing
    dual: Any = None  # what `at.guide.dual` will be at the next iterate; of total_load, those of all forces


class Parts(NamedTuple):
    """A force of many places of which few act, as p forces of some of its places each; see `Force`."""

    load: Callable[[Any, Instant], Load]  # of one of `places`; its points couple links, and that is all it has
    places: Any  # arrays (p,...), what `load` needs of each
    act: jax.Array  # (p,) bool, whether it may do anything
    duals: Any  # arrays (p,...) of the guide's; `at` has those of one
    idle: Any  # arrays (p,...), what a Load that was not made leaves for them


def in_parts(x: jax.Array) -> jax.Array:
    """(c,...) as (p,c/p,...): AT_A_TIME of them, or all where they do not come out even."""
    some = AT_A_TIME if len(x) % AT_A_TIME == 0 else len(x)
    return x.reshape(-1, some, *x.shape[1:])


def place(T: jax.Array, links, u: jax.Array) -> jax.Array:
    """T u of points u (...,4) on links (...): positions (...,3), or with V for T their velocities."""
    links = links if isinstance(links, jax.Array) else np.asarray(links, int)
    return small_sum(T[links] * u[..., None, :])


def each_link(links: tuple | jax.Array, u: jax.Array) -> np.ndarray | jax.Array:
    """The link of every point of u (c,n,4), from those of the clusters or of the points: (c,n)."""
    if isinstance(links, jax.Array):
        return links
    given = np.asarray(links, int)
    return given if given.ndim == 2 else np.broadcast_to(given[:, None], u.shape[:2])


def point_forces(at: Instant, links: tuple, u: jax.Array, law: Callable, *parameters) -> Load:
    """The Load of a law for clusters of points; its derivatives are autodiff of the law alone.

    Args:
        at: the instant.
        links: c links, or c tuples of n links.
        u: (c,n,4) points in their links' frames.
        law: `(P (n,3) m, V (n,3) m/s, *parameters) -> forces (n,3) N`, of one cluster.
        *parameters: arrays with a leading axis of clusters, or scalars.

    Example:
        >>> tip = jnp.array([[[0.0, 0.0, -1.0, 1.0]]])
        >>> load = forces.point_forces(at, (1,), tip, lambda P, V, k: -k * P, 100.0)
        >>> load.point_forces[0].force.round(2)
        Array([[[ -0.  , -84.15,  54.03]]], dtype=float64)
    """
    where = each_link(links, u)
    P, V = place(at.T, where, u), place(at.V, where, u)
    axes = (0, 0, *(0 if jnp.ndim(p) else None for p in parameters))

    def with_slopes(P, V, *parameters):
        return law(P, V, *parameters), jax.jacfwd(law, (0, 1))(P, V, *parameters)

    force, (df_dP, df_dV) = jax.vmap(with_slopes, axes)(P, V, *parameters)
    return Load(point_forces=(PointForces(links, u, force, df_dP, df_dV),))


def total_load(model: Model, at: Instant, where: str | None = None) -> Load:
    """The sum of the model's forces that act at the "stages", or once a "step"; None, of all.

    On the way to a root, what goes by parts is left out of the latter (stage/sparse_loads.py has it).

    Example:
        >>> forces.total_load(model, at).field.shape
        (4, 3, 4)
    """
    check_model(model)
    total, duals = Load(), []
    for k, force in enumerate(model.forces):
        if (where is not None and acts_at(force) != where) or (at.guide is not None and goes_by_parts(force)):
            duals.append(None)
            continue
        load = _of_right_shapes(model, force, force.load(model, of_force(at, k)))
        sums = (sum_of(a, b) for a, b in zip(total[:4], load[:4]))
        extra = sum_of(total.modelled_tau, load.modelled_tau)
        total = Load(*sums, point_forces=total.point_forces + load.point_forces, modelled_tau=extra)
        duals.append(load.dual)
    return total._replace(dual=tuple(duals))


def of_force(at: Instant, k: int) -> Instant:
    """With what force k found near at the start of the step, and its dual, instead of what all did and have."""
    guide, near = at.guide, at.start.near
    if guide is not None:
        own = guide.dual[k]
        guide = None if own is None else guide._replace(dual=own)
    return dataclasses.replace(at, start=at.start._replace(near=None if near is None else near[k]), guide=guide)


def nearby(model: Model, start: Start) -> tuple:
    """Of every force what it finds near at the start of a step; None where it does not look."""
    return tuple(f.near(model, start) if offers(f, "near") else None for f in model.forces)


def first_duals(model: Model, where: str) -> tuple:
    """Of every force that acts there what it finds at the first iterate; None where it has no dual."""
    return tuple(f.dual(model) if acts_at(f) == where and offers(f, "dual") else None for f in model.forces)


def _of_right_shapes(model: Model, force: "Force", load: Load) -> Load:
    """The Load itself; what does not fit the model is named while tracing."""
    nv = model.nv
    parts = [("field", load.field, [(model.topology.n_links, 3, 4)]), ("tau", load.tau, [(nv,)])]
    parts += [("modelled_tau", load.modelled_tau, [(nv,)])]
    parts += [(name, getattr(load, name), [(nv,), (nv, nv)]) for name in ("dtau_dq", "dtau_dv")]
    for k, p in enumerate(load.point_forces):
        c, n = p.u.shape[:2]
        shapes = {"u": (c, n, 4), "df_dP": (c, n, 3, n, 3), "df_dV": (c, n, 3, n, 3)}
        shapes |= dict.fromkeys(("force", "modelled", "curving", "by_normal"), (c, n, 3))
        parts += [(f"point_forces[{k}].{name}", getattr(p, name), [shape]) for name, shape in shapes.items()]
    for name, x, allowed in parts:
        if x is not None and jnp.shape(x) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise ModelError(f"load of {name_of(force)}: {name} has shape {jnp.shape(x)}; wanted {wanted}")
    return load


def sum_of(a: jax.Array | None, b: jax.Array | None) -> jax.Array | None:
    """a + b of what there is; a diagonal and a full matrix are a full one."""
    if a is None:
        return b
    if b is None:
        return a
    if (a.ndim, b.ndim) == (1, 2):  # a diagonal and a full matrix
        return jnp.diag(a) + b
    if (a.ndim, b.ndim) == (2, 1):
        return a + jnp.diag(b)
    return a + b


def scaled(load: Load, dt) -> Load:
    """A Load times dt²; what is divided by a velocity, times dt."""

    def times(x, factor):
        return None if x is None else factor * x

    def pulled(p: PointForces) -> PointForces:
        forces = {name: times(getattr(p, name), dt**2) for name in ("force", "modelled", "curving", "df_dP")}
        N = p.normal and dataclasses.replace(p.normal, by_P=times(p.normal.by_P, dt**2), by_V=times(p.normal.by_V, dt))
        return dataclasses.replace(p, **forces, df_dV=times(p.df_dV, dt), normal=N)

    return Load(
        field=times(load.field, dt**2),
        tau=times(load.tau, dt**2),
        dtau_dq=times(load.dtau_dq, dt**2),
        dtau_dv=times(load.dtau_dv, dt),
        point_forces=tuple(map(pulled, load.point_forces)),
        modelled_tau=times(load.modelled_tau, dt**2),
        dual=load.dual,
    )


def field_of(load: Load, n_links: int) -> jax.Array | None:
    """All that a Load does to the links as one field (N,3,4): −Σ f ⊗ u beside its own."""
    field = load.field
    for p in load.point_forces:
        field = sum_of(field, _field(p, p.force, n_links))
    return field


def field_beyond(load: Load, n_links: int, name: str) -> jax.Array | None:
    """What `field_of` would have more if every point force were its `modelled` or `curving` one; None: nothing."""
    field = None
    for p in load.point_forces:
        other = getattr(p, name)
        field = field if other is None else sum_of(field, _field(p, other - p.force, n_links))
    return field


def _field(p: PointForces, force: jax.Array, n_links: int) -> jax.Array:
    """−Σ f ⊗ u over the points of each link."""
    return on_links(p.point_links, -force[..., :, None] * p.u[..., None, :], n_links)


def on_links(links: np.ndarray | jax.Array, x: jax.Array, n_links: int) -> jax.Array:
    """The sum of x over each link, its leading axes those of `links`: (N,...). By a product: a scatter is slow."""
    return jnp.tensordot(_hot(links, n_links, x), x.reshape(links.size, *x.shape[links.ndim :]), axes=1)


def _hot(links: np.ndarray | jax.Array, n_links: int, like: jax.Array) -> jax.Array:
    """(N, points), 1 where a point is on a link."""
    return jnp.asarray(np.arange(n_links)[:, None] == links.reshape(1, -1), like.dtype)


def total_potential(model: Model, at: Instant) -> jax.Array:
    """Potential energy of all forces that have one, J.

    Example:
        >>> round(float(forces.total_potential(model, at)), 3)
        -10.601
    """
    check_model(model)
    parts = [f.potential(model, of_force(at, k)) for k, f in enumerate(model.forces) if offers(f, "potential")]
    return sum(parts, jnp.zeros((), model.dtype))


def stored(model: Model, at: Instant) -> list[jax.Array | None]:
    """Of every force what it can give back, () J, the control and the time standing still; see `Force.held_potential`.

    Zero of what only takes energy, infinite where no two ends tell its work; None (static): only a quadrature does.
    """
    return [_stored(f, model, of_force(at, k)) for k, f in enumerate(model.forces)]


def _stored(force: Any, model: Model, at: Instant) -> jax.Array | None:
    if makes_no_energy(force):
        return force.potential(model, at) if offers(force, "potential") else jnp.zeros((), model.dtype)
    return force.held_potential(model, at) if offers(force, "held_potential") else None


def gaps(model: Model, at: Instant) -> tuple[jax.Array, ...]:
    """The gaps of all forces that have some, in their order; see `Force`."""
    return tuple(f.gap(model, at) for f in model.forces if offers(f, "gap"))


def passed(model: Model, at: Instant) -> jax.Array:
    """Whether a force says that in the step that ends here something went through something, () bool."""
    parts = [f.passed(model, of_force(at, k)) for k, f in enumerate(model.forces) if offers(f, "passed")]
    return jnp.any(jnp.stack([jnp.zeros((), bool), *parts]))


# --- what a force may have -----------------------------------------------------------------------------------


class Force(Protocol):
    """A frozen dataclass registered as a pytree, with a method `load`; nothing is inherited.

    What else it may have, as class attributes, static fields, properties or methods of exactly these names::

        at: str = "stages"             or "step": one implicit impulse a step, see the module
        conservative: bool = True      whether the force is minus the gradient of its `potential`, no more
        dissipates: bool = False       whether what it does beside its potential, if it has one, only takes energy
        couples_joints: bool = True    whether a full (nv,nv) slope joins joints; False: it is blocks of the balls
        potential(model, at)           () J: enters `potential_energy`; without it a force is not conservative
        held_potential(model, at)      () J: of a drive, what its work is the fall of, or less, while control and time
                                       stand still; inf where it is not so. Without it a step knows that work by a
                                       quadrature alone. None (static): as without
        gap(model, at)                 (c,3) or (e,), m or rad: by how much it is open, for `loop_gaps`
        depth(model, at)               (c,) m: how deep what it holds apart overlaps
        passed(model, at)              () bool, at the end of a step: what it holds apart went through one another
        near(model, start)             arrays: found once at the Start of a step, then in `at.start.near`; where that
                                       is None, at an instant by itself, a force has to look for it
        dual(model)                    arrays: what `load` finds in `at.guide.dual` at the first iterate of a solve
        by_parts(model, at)            its Parts, at "step" and with a dual: on the way to a root `load` is not asked,
                                       but of those parts that may act
        describe(model)                (its name, on how much of the model it acts), two strings for `pbad-jax info`
        name: str                      what reports call it; otherwise the name of its class

    A method may be a property, which is None where there is none.

    Example:
        >>> @jax.tree_util.register_dataclass
        ... @dataclasses.dataclass(frozen=True)
        ... class Cubic:
        ...     strength: jax.Array
        ...     def load(self, model, at):
        ...         return forces.Load(tau=-self.strength * at.q**3, dtau_dq=-3 * self.strength * at.q**2)
        >>> springy = pbad.with_forces(model, Cubic(jnp.asarray(5.0)))
        >>> forces.total_load(springy, at).tau
        Array([-5., -0., -0., -0.], dtype=float64)
    """

    def load(self, model: Model, at: Instant) -> Load:
        """What it does at one instant."""
        ...


WHERE = ("stages", "step")
FLAGS = ("conservative", "dissipates", "couples_joints")
METHODS = ("potential", "held_potential", "gap", "depth", "passed", "near", "dual", "by_parts", "describe")
OPTIONAL = ("at", *FLAGS, *METHODS)


def offers(force: Any, name: str) -> bool:
    """Whether it has something of that name, which is not None."""
    return getattr(force, name, None) is not None


def name_of(force: Any) -> str:
    """What reports call it: its `name`, a str, or else that of its class.

    Example:
        >>> [forces.name_of(force) for force in felt.forces]
        ['Gravity', 'JointSpring', 'JointDamping', 'JointFriction', 'JointLimit']
    """
    name = getattr(force, "name", None)
    return name if isinstance(name, str) else type(force).__name__


def acts_at(force: Force) -> str:
    """Where the force acts: at the "stages", or once a "step"."""
    return getattr(force, "at", "stages")


def at_stages(force: Any) -> Any:
    """The same force at every stage.

    Raises:
        OptionError: it acts once a step, and has no field `at` that says so.
    """
    if acts_at(force) == "stages":
        return force
    fields = getattr(force, "__dataclass_fields__", ())
    if "at" in fields:
        return dataclasses.replace(force, at="stages")
    if "law" in fields:
        return dataclasses.replace(force, law=at_stages(force.law))
    raise OptionError(
        f"force {name_of(force)} acts once a step, and with an accuracy all forces act at the stages: give it a field "
        "`at` that can be 'stages', or use accuracy=None"
    )


def goes_by_parts(force: Force) -> bool:
    """Whether on the way to a root only those of its places are asked that may act."""
    return offers(force, "by_parts") and acts_at(force) == "step"


def is_conservative(force: Force) -> bool:
    """Whether the force is minus the gradient of its `potential`, no more.

    Example:
        >>> spring = forces.joint_polynomial(arm, stiffness=(0.0, 2.0))
        >>> forces.is_conservative(spring), forces.is_conservative(forces.drag(0.1))
        (True, False)
    """
    return offers(force, "potential") and getattr(force, "conservative", True)


def makes_no_energy(force: Force) -> bool:
    """Whether a force adds nothing to the energy beside what its `potential` gives back."""
    return is_conservative(force) or getattr(force, "dissipates", False)


def couples_joints(force: Force) -> bool:
    """Whether a full (nv,nv) slope of the force joins joints; blocks of the balls do not."""
    return getattr(force, "couples_joints", True)


def description(force: Force, model: Model) -> tuple[str, str]:
    """The force's name, and on how much of the model it acts."""
    describe = getattr(force, "describe", None)
    return (name_of(force), "") if describe is None else describe(model)


def dofs(numbers) -> str:
    """How many of the numbers, one a degree of freedom, are not zero; in words."""
    return f"{np.count_nonzero(np.asarray(numbers))} degrees of freedom"


def acting(model: Model, where: str) -> list:
    """The forces that act at the stages, or once a step."""
    return [f for f in model.forces if acts_at(f) == where]
