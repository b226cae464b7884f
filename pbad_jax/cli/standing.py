"""How a robot of a file begins: at a keyframe, held by its servos or by drives, on a ground."""

import argparse
import re
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.cli.arguments import CallError
from pbad_jax.cli.models import is_built_in, start, starting_key
from pbad_jax.errors import ModelError
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.model import joints
from pbad_jax.model.model import Model
from pbad_jax.model.state import State

STIFF = 30.0  # rad/s: a held joint has the stiffness inertia · STIFF², and critical damping


class Beginning(NamedTuple):
    """What is simulated, and how that came about."""

    model: Model
    state: State
    control: np.ndarray  # (nu,)
    said: str  # one line


def begin(args: argparse.Namespace, model: Model) -> Beginning:
    """The model, its state and its control as the command line has it.

    Raises:
        CallError, StateError: see `start`; a ground where there is one, or nothing to stand on it.
    """
    key, state = starting_key(args, model), start(args, model)
    control, parts, aim = np.zeros(model.nu), [], np.asarray(state.q)
    if args.hold and key is None and args.q0 is None:
        aim, state, parts = _in_ranges(model, state)
    model, ground = _on_ground(args, model, state)
    given = model.keyframes[key].control if key is not None else None
    if given is not None:
        control = np.array(given)
    servos = _servos(model)
    if servos and (given is not None or key is not None or args.hold):
        rest, beyond = _holding(model, servos, aim)
        numbers = [u for u, _ in servos]
        if given is None:
            control[numbers] = rest[numbers]
        parts.append(f"held by its {len(servos)} position servo{'s' * (len(servos) > 1)}")
        if given is None and beyond:
            parts.append(f"{beyond} of them need more than their control range")
    elif given is not None and model.nu:
        parts.append("under the keyframe's control")
    if args.hold:
        model, held = _held(model, state, aim, {v for _, vs in servos for v in vs} | _loose(model))
        parts += [f"{held} degrees of freedom held by PD drives"] * bool(held)
    elif not parts and not is_built_in(args.model):
        parts.append("nothing holds it" + (" (--hold would)" if model.nv > 6 * _floats(model) else ""))
    outside = _outside(model, np.asarray(state.q))
    parts += [f"{outside} joint{'s' * (outside > 1)} outside the range"] * bool(outside)
    return Beginning(model, state, control, ", ".join([_where(args, key), *parts, *ground]))


def _outside(model: Model, q: np.ndarray) -> int:
    """How many hinges and slides are beyond the ends of their ranges."""
    return int(np.sum(np.abs(_within(model, q) - q) > 1e-6))


def _within(model: Model, q: np.ndarray) -> np.ndarray:
    """The pose (nq,) with hinges and slides at the nearest ends of their ranges, where they are beyond."""
    t, q = tree(model.topology), np.array(q)
    q[t.scalar_q] = np.clip(q[t.scalar_q], *forces.joint_ranges(model)[t.scalar_v].T)
    return q


def _in_ranges(model: Model, state: State) -> tuple[np.ndarray, State, list[str]]:
    """The reference pose within the joints' ranges, which is held; the State to begin with, and in words.

    What is in a loop begins where the loop closes, and goes to its range by itself.
    """
    q, tied = np.asarray(state.q), set().union(*_loops(model))
    aim = _within(model, q)
    free = np.array([j.q for j in model.topology.joints if j.nq == 1 and j.v not in tied], int)
    begun = q.copy()
    begun[free] = aim[free]
    moved = int(np.sum(begun != q))
    said = [f"{moved} joint{'s' * (moved > 1)} at the end of the range instead of beyond"] * bool(moved)
    return aim, pbad.make_state(model, begun, state.v), said


def _where(args: argparse.Namespace, key: str | None) -> str:
    if key is not None:
        return f"starts at key {key!r}"
    if args.q0 is not None:
        return "starts at --q0"
    return "starts at its own start" if is_built_in(args.model) else "starts at the file's reference pose"


def _floats(model: Model) -> int:
    """How many free joints there are."""
    return sum(j.type == "free" for j in model.topology.joints)


# --- held --------------------------------------------------------------------------------------------------


def _actuations(model: Model) -> list:
    """Those that have a length to pull to."""
    return [f for f in forces.actuators(model) if not isinstance(f.length, forces.Sites)]


def _affine(model: Model) -> list:
    """Of these the ones that may be position servos."""
    return [f for f in _actuations(model) if isinstance(f.law, forces.Actuation)]


def _servos(model: Model) -> list[tuple[int, list[int]]]:
    """Of every actuator that pulls back to a length, its control and the degrees of freedom that it acts on."""
    out = []
    for force in _affine(model):
        law, moves = force.law, force.length.dofs(model)
        for i in np.flatnonzero((np.asarray(law.gain) != 0) & (np.asarray(law.bias)[:, 1] < 0)):
            out.append((law.u_index[i], np.flatnonzero(moves[i]).tolist()))
    return sorted(out)


def _holding(model: Model, servos: list, q: np.ndarray) -> tuple[np.ndarray, int]:
    """Controls (nu,) for which the servos rest at q, and how many of them are beyond their control's range."""
    control, beyond = np.zeros(model.nu), 0
    wanted = {u for u, _ in servos}
    for force in _affine(model):
        law = force.law
        gain, bias, ends = (np.asarray(x, float) for x in (law.gain, law.bias, law.control_range))
        length = np.asarray(law.geared(force.length.value(model, jnp.asarray(q))), float)
        rest = -(bias[:, 0] + bias[:, 1] * length) / np.where(gain == 0, 1.0, gain)
        for i, u in enumerate(law.u_index):
            if u in wanted:
                control[u] = rest[i]
                beyond += bool(abs(rest[i] - np.clip(rest[i], *ends[i])) > 1e-6)
    return control, beyond


def _held(model: Model, state: State, aim: np.ndarray, served: set[int]) -> tuple[Model, int]:
    """The model with a PD drive at the pose `aim` (nq,) on every joint but free ones and those in `served`, of v."""
    which = [j for j in model.topology.joints if j.nv and j.type != "free" and not served & {*range(j.v, j.v + j.nv)}]
    if not which:
        return model, 0
    inertia = effective_inertia(model, np.asarray(state.q))
    feels = np.concatenate([inertia[j.v : j.v + j.nv] for j in which])
    target = np.concatenate([aim[j.q : j.q + j.nq] for j in which])
    names = [j.name for j in which]
    drive = forces.pd_drive(model, names, feels * STIFF**2, 2 * feels * STIFF, target=target)
    return pbad.with_forces(model, drive), len(feels)


def _loose(model: Model) -> set[int]:
    """The degrees of freedom that --hold leaves alone: a base that moves freely, and what others lead in a loop."""
    driven = {v for f in _actuations(model) for v in np.flatnonzero(f.length.dofs(model).any(axis=0)).tolist()}
    return _of_bases(model, driven) | _led_by_loops(model, driven)


def _of_bases(model: Model, driven: set[int]) -> set[int]:
    """Of bodies on the world that slide and that nothing drives, where others are driven: free joints by parts."""
    t, base = model.topology, set()
    for body, parent in enumerate(t.body_parent):
        joints_ = [j for j in t.joints if j.body == body]
        own = {v for j in joints_ for v in range(j.v, j.v + j.nv)}
        if parent < 0 and any(j.type == "slide" for j in joints_) and driven and not own & driven:
            base |= own
    return base


def _led_by_loops(model: Model, driven: set[int]) -> set[int]:
    """Of loops in which something is driven, what is not: held where the loop does not close, it would open it."""
    return set().union(*(loop - driven for loop in _loops(model) if loop & driven))


def _loops(model: Model) -> list[set[int]]:
    """The degrees of freedom in every loop that attachments and couplings close."""
    above, loops = tree(model.topology).dof_above_link, []
    for f in model.forces:
        if isinstance(f, forces.Attachment):
            loops += [{*np.flatnonzero(above[:, a] != above[:, b]).tolist()} for a, b in {*f.links}]
        elif isinstance(f, forces.LineForce) and isinstance(f.length, forces.Coupling):
            loops += [{*np.flatnonzero(row).tolist()} for row in f.length.dofs(model)]
    return loops


def effective_inertia(model: Model, q: np.ndarray) -> np.ndarray:
    """What a drive of each degree of freedom has to move, alone, at q: (nv,) kg m² or kg.

    All that hangs below it. In a tree that floats, what is above it too, if that is more: with its foot on the ground
    a leg carries the trunk. A ball's three are its largest.
    """
    t, index = model.topology, tree(model.topology)
    T = np.asarray(transforms.transforms(model, jnp.asarray(q)), float)
    square = np.concatenate([T, np.broadcast_to([0, 0, 0, 1.0], (len(T), 1, 4))], axis=1)
    moment = square @ np.asarray(model.second_moment, float) @ square.swapaxes(1, 2)
    floating = {j.v for j in t.joints if j.type == "free"}
    out = np.zeros(model.nv)
    for link, (kind, v) in enumerate(zip(t.link_type, t.link_v)):
        if kind == joints.FIXED:
            continue
        below = index.above[link]
        root = next(i for i in np.flatnonzero(index.above[:, link]) if t.link_parent[i] < 0)
        sides = [moment[below].sum(axis=0)]
        if t.link_v[root] in floating:
            sides.append(moment[index.above[root] & ~below].sum(axis=0))
        point = T[link, :, :3] @ np.asarray(model.anchor[link], float) + T[link, :, 3]
        axis = T[link, :, :3] @ np.asarray(model.axis[link], float)
        out[v : v + joints.PRIMITIVES[kind]] = max(_about(S, kind, point, axis) for S in sides)
    return out + np.asarray(model.armature, float)


def _about(S: np.ndarray, kind: str, point: np.ndarray, axis: np.ndarray) -> float:
    """Mass (slide), or moment of inertia about an axis through a point, of a second moment (4,4)."""
    if kind == joints.SLIDE:
        return float(S[3, 3])
    C = S[:3, :3] - np.outer(S[:3, 3], point) - np.outer(point, S[:3, 3]) + S[3, 3] * np.outer(point, point)
    I = np.trace(C) * np.eye(3) - C
    return float(axis @ I @ axis) if kind == joints.HINGE else float(np.linalg.eigvalsh(I)[-1])


# --- on a ground -------------------------------------------------------------------------------------------


def _on_ground(args: argparse.Namespace, model: Model, state: State) -> tuple[Model, list[str]]:
    """The model on a ground that touches its lowest point, where one is wanted, and in words."""
    wanted, falls = args.ground, _falls(model) and not is_built_in(args.model)
    if wanted is None:
        wanted = falls and _is_urdf(args.model)
    if not wanted:
        hint = " (--ground adds a plane)" if args.ground is None else ""
        return model, [f"nothing is below it{hint}"] * falls
    try:
        model = pbad.with_ground(model, state)
    except ModelError as e:
        if args.ground is None:
            return model, ["without a ground: it " + re.sub(r".*?model '.*?' |; leave.*", "", str(e))]
        raise CallError(str(e).replace("with_ground", "--ground")) from e
    up = -np.asarray(model.gravity, float)
    return model, [f"on a ground at {model.geometry.position[-1] @ up / np.linalg.norm(up):.3g} m"]


def _falls(model: Model) -> bool:
    """Whether it floats and touches nothing that stands still."""
    return bool(_floats(model)) and not any(isinstance(f, forces.Contact) for f in model.forces)


def _is_urdf(path: str) -> bool:
    with open(path, "rb") as file:
        return re.search(rb"<robot[\s>]", file.read()) is not None
