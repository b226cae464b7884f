"""How a robot of a file begins: at a keyframe, held by its servos or by drives, on a ground."""

import argparse
import re
from typing import NamedTuple

import numpy as np

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.builders.hold import begun_in_ranges, position_servos, resting_controls, with_drives, within_ranges
from pbad_jax.cli.arguments import CallError
from pbad_jax.cli.models import is_built_in, start, starting_key
from pbad_jax.errors import ModelError
from pbad_jax.model.model import Model
from pbad_jax.model.state import State


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
    # the pose: where nobody chose it, held joints begin within their ranges
    key, state = starting_key(args, model), start(args, model)
    control, parts, aim = np.zeros(model.nu), [], np.asarray(state.q)
    if args.hold and key is None and args.q0 is None:
        aim, state, moved = begun_in_ranges(model, state)
        parts = [f"{moved} joint{'s' * (moved > 1)} at the end of the range instead of beyond"] * bool(moved)

    # the ground below it, and the control that a keyframe has
    model, ground = _on_ground(args, model, state)
    given = model.keyframes[key].control if key is not None else None
    if given is not None:
        control = np.array(given)

    # position servos rest at the pose under controls made for it, unless the keyframe gives others
    servos = position_servos(model)
    if servos and (given is not None or key is not None or args.hold):
        rest, beyond = resting_controls(model, servos, aim)
        numbers = [u for u, _ in servos]
        if given is None:
            control[numbers] = rest[numbers]
        parts.append(f"held by its {len(servos)} position servo{'s' * (len(servos) > 1)}")
        if given is None and beyond:
            parts.append(f"{beyond} of them need more than their control range")
    elif given is not None and model.nu:
        parts.append("under the keyframe's control")

    # PD drives for what no servo holds
    if args.hold:
        model, held = with_drives(model, state, aim, servos)
        parts += [f"{held} degrees of freedom held by PD drives"] * bool(held)
    elif not parts and not is_built_in(args.model):
        parts.append("nothing holds it" + (" (--hold would)" if model.nv > 6 * _floats(model) else ""))

    # say also what begins beyond its range
    q = np.asarray(state.q)
    outside = int(np.sum(np.abs(within_ranges(model, q) - q) > 1e-6))  # hinges and slides
    parts += [f"{outside} joint{'s' * (outside > 1)} outside the range"] * bool(outside)
    return Beginning(model, state, control, ", ".join([_where(args, key), *parts, *ground]))


def _where(args: argparse.Namespace, key: str | None) -> str:
    if key is not None:
        return f"starts at key {key!r}"
    if args.q0 is not None:
        return "starts at --q0"
    return "starts at its own start" if is_built_in(args.model) else "starts at the file's reference pose"


def _floats(model: Model) -> int:
    """How many free joints there are."""
    return sum(j.type == "free" for j in model.topology.joints)


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
