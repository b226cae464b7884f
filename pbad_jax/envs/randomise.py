"""Domain randomisation: other masses, frictions, gains and delays for every lane."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from pbad_jax.checks import array
from pbad_jax.contact.dispatch import CONTACTS
from pbad_jax.envs.state import Params
from pbad_jax.errors import OptionError, TaskError
from pbad_jax.laws.drives import PDDrive
from pbad_jax.laws.force import name_of
from pbad_jax.laws.line_force import is_actuator
from pbad_jax.laws.line_laws import Actuation
from pbad_jax.model.model import Model


def randomised(
    params: Params,
    max_delay: int,
    key: jax.Array,
    *,
    mass: Sequence[float] = (0.8, 1.2),
    friction: Sequence[float] = (0.7, 1.3),
    gain: Sequence[float] = (0.9, 1.1),
    delay: Sequence[int] | None = None,
) -> Params:
    """Params drawn at random, each uniformly between two bounds. For many lanes: `jax.vmap(env.randomise)(keys)`.

    Args:
        params: what is changed. max_delay: of the environment.
        key: what is drawn.
        mass: factors of every body's mass, one each; its inertia goes with it, its centre of mass stays. The stiffness
            of contacts is that of the old mass.
        friction: one factor for all contacts.
        gain: factors of the actuators, gain and bias alike, and of PD drives, one each.
        delay: control steps, whole numbers, both bounds included; default 0 to max_delay.

    Raises:
        OptionError: no two bounds, negative ones, a delay beyond max_delay.
    """
    delay = (0, max_delay) if delay is None else delay
    bounds = {k: _bounds(x, k) for k, x in (("mass", mass), ("friction", friction), ("gain", gain), ("delay", delay))}
    if bounds["delay"][1] > max_delay or any(x != int(x) for x in bounds["delay"]):
        raise OptionError(f"delay is {delay}; it must be whole numbers up to {max_delay}: wrap(env, max_delay=...)")
    keys = jax.random.split(key, 4)
    model = _other_masses(params.model, keys[0], bounds["mass"])
    forces = [_other_friction(f, keys[1], bounds["friction"]) for f in model.forces]
    forces = [_other_gain(f, jax.random.fold_in(keys[2], i), bounds["gain"]) for i, f in enumerate(forces)]
    low, high = bounds["delay"]
    steps = jax.random.randint(keys[3], (), int(low), int(high) + 1, jnp.int32)
    return Params(dataclasses.replace(model, forces=tuple(forces)), steps)


def _bounds(x, name: str) -> tuple[float, float]:
    given = array(x, name, "(low, high)", OptionError)
    if given.shape != (2,) or not 0 <= given[0] <= given[1] or not given[1] < float("inf"):
        raise OptionError(f"{name} is {x!r:.60}; wanted (low, high), 0 ≤ low ≤ high")
    return float(given[0]), float(given[1])


def _factors(key: jax.Array, like: jax.Array, bounds: tuple[float, float], shape: tuple[int, ...]) -> jax.Array:
    return jax.random.uniform(key, shape, like.dtype, *bounds)


def _other_masses(model: Model, key: jax.Array, bounds: tuple[float, float]) -> Model:
    M = model.second_moment
    return dataclasses.replace(model, second_moment=M * _factors(key, M, bounds, (M.shape[0], 1, 1)))


def _other_friction(force, key: jax.Array, bounds: tuple[float, float]):
    if not isinstance(force, CONTACTS):
        return force
    return dataclasses.replace(force, friction=force.friction * _factors(key, force.friction, bounds, ()))


def _other_gain(force, key: jax.Array, bounds: tuple[float, float]):
    if isinstance(force, PDDrive):
        factor = _factors(key, force.kp, bounds, force.kp.shape)
        return dataclasses.replace(force, kp=force.kp * factor, kd=force.kd * factor)
    if not is_actuator(force) or bounds == (1.0, 1.0):
        return force
    if not isinstance(force.law, Actuation):
        raise TaskError(f"gain: {name_of(force)} is an actuator without gain and bias; leave its gain as it is")
    law, factor = force.law, _factors(key, force.law.gain, bounds, force.law.gain.shape)
    return dataclasses.replace(
        force, law=dataclasses.replace(law, gain=law.gain * factor, bias=law.bias * factor[:, None])
    )
