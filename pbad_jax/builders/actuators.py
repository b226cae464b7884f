"""Actuators: what a control drives, described in Python and checked."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pbad_jax import checks
from pbad_jax.checks import interval, known, number, unique, vector
from pbad_jax.errors import ModelError
from pbad_jax.laws.balls import Gears
from pbad_jax.laws.drives import chosen
from pbad_jax.laws.lengths import Joints, Tendons
from pbad_jax.laws.line_force import LineForce
from pbad_jax.laws.line_laws import Actuation
from pbad_jax.laws.paths import Sites, checked_path, paths_of, points_of
from pbad_jax.laws.tendons import tendon_rows
from pbad_jax.model import activation as activations
from pbad_jax.model.joints import BALL, JOINTS, JointInfo
from pbad_jax.model.keyframes import Keyframe, Keyframes
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.sites import Site


@dataclasses.dataclass(frozen=True)
class Actuator:
    """force = clip(gain · clip(control) + bias · (1, length, speed)); the joint feels gear · force.

    With a `time_constant`, or where it `integrates`, the clipped control drives an activation, a state of its own,
    which takes its place (model/activation.py).

    MuJoCo's motor (gain 1, bias 0), position servo (gain kp, bias (0, −kp, −kv)), velocity servo and general
    affine actuator. length = gear · q, speed = gear · v; the length of a ball is gear · its rotation vector, that of a
    free joint is 0.

    Attributes:
        joint: its name; any but a fixed one. Or a fixed tendon, {joint: coefficient} of hinges and slides, whose
            length is the sum of coefficient · q. Or a spatial one, a tuple of sites, see `tendon_spring`. Or a
            Site, on which it acts like a rotor or a jet: it has no length.
        name: unique; default that of the joint and "_actuator"; for tendons and sites it must be given.
        gear: one number for a hinge, a slide or a tendon; else one for each degree of freedom: universal (2,), planar
            and ball (3,), free (6,). Of a Site (6,): force and torque in its axes.
        gain: force per control; N, or N m where the gear is a plain number of a hinge.
        bias: (3,) force, force per length, force per speed.
        control_range, force_range: (low, high), None = unlimited.
        in_parent: whether the gear of a ball, or of a free joint's rotation, is in the axes of the body's parent
            instead of its own (MuJoCo's jointinparent).
        time_constant: s, > 0, of a first-order filter of the control; None = no filter.
        integrates: whether the activation is the integral of the control over time instead.
        activation_range: (low, high) of the activation, None = unlimited.

    Example:
        >>> driven = pbad.with_actuators(arm, pbad.Actuator("joint0", name="lift", gear=5.0))
        >>> driven.nu
        1
    """

    joint: str | Mapping[str, float] | tuple | Site
    name: str = ""
    gear: Any = 1.0
    gain: float = 1.0
    bias: Any = (0.0, 0.0, 0.0)
    control_range: Any = None
    force_range: Any = None
    in_parent: bool = False
    time_constant: float | None = None
    integrates: bool = False
    activation_range: Any = None


def with_actuators(model: Model, *actuators: Actuator) -> Model:
    """The model with more actuators; their controls come after those that it has, and are zero in its keyframes.

    Args:
        model: from a file, from `build_model`, or any other.
        *actuators: as for `build_model`.

    Raises:
        ModelError: an unknown or fixed joint, a name that is taken, bad numbers.

    Example:
        >>> pbad.with_actuators(arm, pbad.Actuator("joint1", name="elbow", gear=10.0)).nu
        1
    """
    check_model(model)
    t = model.topology
    links = dict(zip(t.body_names, t.body_link))
    drives = [check_actuator(a, t.joints, links, model.sites) for a in actuators]
    names = t.actuator_names + tuple(d.name for d in drives)
    unique(list(names), "actuator")

    leaf = checks.leaf(model.dtype)
    more = tuple(actuation(drives, leaf, links, first=model.nu))
    topology = dataclasses.replace(t, actuator_names=names)
    keyframes = Keyframes({k: _with_more(key, drives) for k, key in model.keyframes.items()})
    states = activations.joined(model.activation, activation(drives, leaf, first=model.nu))
    more = {"forces": model.forces + more, "keyframes": keyframes, "activation": states}
    return dataclasses.replace(model, topology=topology, **more)


def _with_more(key: Keyframe, drives: Sequence["Drive"]) -> Keyframe:
    """A keyframe whose further controls and activations are zero."""
    count = {"control": len(drives), "activation": sum(d.activation is not None for d in drives)}
    given = {k: (getattr(key, k), n) for k, n in count.items()}
    return dataclasses.replace(key, **{k: np.r_[x, np.zeros(n)] for k, (x, n) in given.items() if x is not None})


def motors(model: Model, joints: str | Sequence[str] | None = None) -> list[Actuator]:
    """One motor for each degree of freedom: the control is the generalised force itself, N or N m, in the order of v.

    `with_actuators(model, *motors(model))` gives a model without actuators a control (nv,); a ball's three act about
    the axes of its body, a free joint's first three along those of the world. A joint with an effort, as those of
    a URDF, bounds its control by it.

    Args:
        model: the model.
        joints: a name or names, in the order that is wanted; default all that move but free joints, which have none.

    Raises:
        ModelError: an unknown or fixed joint.

    Example:
        >>> pbad.with_actuators(arm, *pbad.motors(arm)).nu
        2
    """
    check_model(model)
    out = []
    for joint in chosen(model, joints, "motors"):
        if joints is None and joint.type == "free":
            continue
        for k, gear in enumerate(np.eye(joint.nv)):
            single = joint.nv == 1
            name = f"{joint.name}_motor" if single else f"{joint.name}_motor{k}"
            bounds = None if joint.effort is None else (-joint.effort, joint.effort)
            out.append(Actuator(joint.name, name, gear=1.0 if single else gear, control_range=bounds))
    return out


FREE = (-np.inf, np.inf)


class Drive(NamedTuple):
    """A checked Actuator."""

    name: str
    joint: JointInfo | None  # None: of something else
    tendon: np.ndarray  # (nv,) coefficients of a fixed tendon; empty: of something else
    in_parent: bool
    gear: np.ndarray  # one entry a degree of freedom
    gain: float
    bias: np.ndarray
    control_range: tuple[float, float]
    force_range: tuple[float, float]
    activation: tuple[float, bool, tuple[float, float]] | None  # time constant, whether it integrates, range
    path: tuple = ()  # of a spatial tendon
    site: Site | None = None


def check_actuator(
    a: Actuator, joints: Sequence[JointInfo], links: Mapping[str, int], sites: Mapping[str, Site]
) -> Drive:
    """An actuator of one of these joints, or between these sites; `links` has that of every body.

    Raises:
        ModelError: no Actuator, an unknown or fixed joint, an unknown site or body, a gear of the wrong length, bad
            numbers.
    """
    if not isinstance(a, Actuator):
        raise ModelError(f"{a!r:.60} is no actuator; make one with Actuator(joint)")
    if not isinstance(a.joint, str):
        return _of_tendon_or_site(a, joints, links, sites)
    name = a.name or f"{a.joint}_actuator"
    where = f"actuator {name!r}"
    joint = joints[known(a.joint, [j.name for j in joints], f"joint of {where}")]
    if not joint.nv:
        raise ModelError(f"{where}: joint {a.joint!r} is fixed; give one that moves")
    what = f"gear of {where}"
    single = joint.nv == 1
    gear = [number(a.gear, what)] if single else vector(a.gear, joint.nv, f"{what} on the {joint.type} {joint.name!r}")
    return Drive(name, joint, np.zeros(0), bool(a.in_parent), np.asarray(gear), *_law_of(a, where))


def _of_tendon_or_site(a: Actuator, joints: Sequence[JointInfo], links, sites) -> Drive:
    """An actuator of a tendon or a site, checked likewise."""
    where, target = f"actuator {a.name!r}", a.joint
    if not a.name:
        raise ModelError(f"actuator of the tendon or site {target!r:.60} has no name; give it one: Actuator(_, name)")
    if isinstance(target, Site):
        if target.body is None:
            raise ModelError(f"{where}: its site is in the world, which nothing moves; give one on a body")
        checked_path((target, target), sites, links, where)
        gear, more = vector(a.gear, 6, f"gear of {where} on a site"), {"site": target}
    else:
        gear = np.asarray([number(a.gear, f"gear of {where}")])
        more = {"path": checked_path(target, sites, links, where)} if isinstance(target, tuple) else {}
    row = np.zeros(0) if more else tendon_rows(joints, target, where)[0]
    return Drive(a.name, None, row, False, gear, *_law_of(a, where), **more)


def _law_of(a: Actuator, where: str) -> tuple:
    """Gain, bias and ranges."""
    return (
        number(a.gain, f"gain of {where}"), vector(a.bias, 3, f"bias of {where}"),
        interval(a.control_range, f"control_range of {where}"), interval(a.force_range, f"force_range of {where}"),
        _activation_of(a, where),
    )  # fmt: skip


def _activation_of(a: Actuator, where: str) -> tuple[float, bool, tuple[float, float]] | None:
    """Time constant, whether it integrates, and the range of its activation; None where it has none."""
    if a.time_constant is not None and a.integrates:
        raise ModelError(f"{where} has a time_constant and integrates; give one of them")
    if a.time_constant is None and not a.integrates:
        if a.activation_range is not None:
            raise ModelError(f"{where} has an activation_range, but no time_constant, and it does not integrate")
        return None
    time = 1.0 if a.time_constant is None else checks.above_zero(a.time_constant, f"time_constant of {where}")
    return time, a.integrates, interval(a.activation_range, f"activation_range of {where}")


def activation(drives: Sequence[Drive], leaf: Callable, first: int = 0) -> activations.Activation | None:
    """The activations of these actuators, whose controls begin at `first`; None where there are none."""
    own = [(i, d, d.activation) for i, d in enumerate(drives) if d.activation is not None]
    if not own:
        return None
    return activations.Activation(
        time_constant=leaf([time for *_, (time, _, _) in own]),
        control_range=leaf([d.control_range for _, d, _ in own]),
        range=leaf([bounds for *_, (_, _, bounds) in own]),
        u_index=tuple(first + i for i, *_ in own),
        integrates=tuple(sums for *_, (_, sums, _) in own),
    )


def actuation(drives: Sequence[Drive], leaf: Callable, links: Mapping[str, int], first: int = 0) -> list:
    """The forces of these actuators, whose controls begin at `first`.

    leaf: (numbers, *shape) -> an array of the model's dtype. links: the link of every body.
    """
    # by what they act on: one dof of a joint, several, fixed tendons, spatial ones, sites
    alone, several, pulls, lines, jets = [], [], [], [], []
    for i, d in enumerate(drives):
        if d.joint is not None:
            k = _single(d, d.joint)
            (several if k is None else alone).append((i, d, d.joint, k))
        else:
            (jets if d.site is not None else lines if d.path else pulls).append((i, d))

    # one force for each of these: its lengths, and the affine law of Actuator along them
    def driven(length: Any, rows: list, geared: Sequence[float] | None) -> LineForce:
        u_index, gear = tuple(first + i for i, *_ in rows), None if geared is None else leaf(geared, len(rows))
        return LineForce(length, Actuation(gear, **_law([d for _, d, *_ in rows], leaf), u_index=u_index))

    # joints: one hinge or slide by its place in q and v, several dofs by a gear of six numbers
    out = []
    if alone:
        q, v = (tuple(getattr(j, x) + k for *_, j, k in alone) for x in "qv")
        out.append(driven(Joints(q, v), alone, [d.gear[k] for _, d, _, k in alone]))
    if several:
        gear = leaf([_places(d, j) for _, d, j, _ in several], len(several), 6)
        where = tuple((j.type, j.q, j.v, d.in_parent) for _, d, j, _ in several)
        out.append(driven(Gears(gear, where), several, None))

    # tendons: sums of joint coordinates, and paths through sites
    if pulls:
        out.append(driven(Tendons(leaf([d.tendon for _, d in pulls])), pulls, [d.gear[0] for _, d in pulls]))
    if lines:
        out.append(driven(paths_of([d.path for _, d in lines], links, leaf), lines, [d.gear[0] for _, d in lines]))

    # sites: force and torque in the site's axes
    if jets:
        u, gear = leaf([points_of(d.site) for _, d in jets]), leaf([d.gear for _, d in jets])
        out.append(driven(Sites(u, gear, tuple(links[d.site.body] for _, d in jets)), jets, None))
    return out


def _single(d: Drive, joint: JointInfo) -> int | None:
    """Which one hinge or slide of its joint it drives; None where it is not one."""
    moves = np.flatnonzero(d.gear)
    if joint.nv == 1:
        return 0
    return int(moves[0]) if BALL not in JOINTS[joint.type].primitives and len(moves) == 1 else None


def _places(d: Drive, joint: JointInfo) -> np.ndarray:
    """The gear in six places, a ball's in the last three."""
    alone = JOINTS[joint.type].primitives == (BALL,)
    return np.r_[np.zeros(3), d.gear] if alone else np.r_[d.gear, np.zeros(6 - len(d.gear))]


def _law(drives: Sequence[Drive], leaf: Callable) -> dict[str, Any]:
    n = len(drives)
    return {
        "gain": leaf([d.gain for d in drives], n),
        "bias": leaf([d.bias for d in drives], n, 3),
        "control_range": leaf([d.control_range if d.activation is None else FREE for d in drives], n, 2),
        "force_range": leaf([d.force_range for d in drives], n, 2),
    }
