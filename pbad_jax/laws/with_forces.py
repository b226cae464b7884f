"""Forces put into a model, each held against the protocol `Force` first: what is nearly one of its names is refused."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.checks import check_names, is_number
from pbad_jax.errors import ModelError
from pbad_jax.laws.force import FLAGS, METHODS, OPTIONAL, WHERE, Force, name_of
from pbad_jax.laws.line_force import LAW, LineForce
from pbad_jax.model.model import Model, check_model


def with_forces(model: Model, *forces: Force) -> Model:
    """The model with more forces; nothing is replaced. Their numbers take the model's dtype.

    Raises:
        ModelError: a force that the model carries already; what is no `Force`: a class, no pytree, without the method
            `load`, with a public name that is nearly one of its names, or with a value of the wrong type under one.

    Example:
        >>> damped = pbad.with_forces(model, forces.drag(0.1))
        >>> [type(force).__name__ for force in damped.forces]
        ['Gravity', 'Drag']
    """
    check_model(model)
    for force in forces:
        if any(force is known for known in model.forces):
            raise ModelError(
                f"with_forces: this {name_of(force)} is in the model already and would act twice; "
                "pass only the new forces"
            )
        _check_kind(force)
        check_names(force, OPTIONAL, "pbad_jax.forces.Force", "with_forces")
        _check_values(force)
        _check_leaves(force)
        if isinstance(force, LineForce):
            check_names(force.law, LAW, "a law, see pbad_jax.laws.line_laws,", f"with_forces, {force.name}")
            force.check(model)

    # numbers in the precision of the model
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
            f"with_forces: this {name_of(force)} is no pytree; make it a frozen dataclass under "
            "@jax.tree_util.register_dataclass"
        )


def _check_values(force) -> None:
    """Where, flags and methods are what `Force` says, where they are there."""
    given = {name: getattr(force, name) for name in OPTIONAL if hasattr(force, name)}
    for name, x in given.items():
        if name in METHODS and x is None and isinstance(getattr(type(force), name), property):
            continue
        fits, wanted = _rule(name, x)
        if not fits:
            raise ModelError(
                f"with_forces: {name} of this {name_of(force)} is {x!r:.60}; it must be {wanted}, "
                "see pbad_jax.forces.Force"
            )


def _check_leaves(force) -> None:
    """Numbers, all of them."""
    for path, x in jax.tree_util.tree_leaves_with_path(force):
        if not is_number(x):
            raise ModelError(
                f"with_forces: {jax.tree_util.keystr(path).lstrip('.')} of this {name_of(force)} is {x!r:.60}; "
                "every leaf must be a number or an array"
            )


def _rule(name: str, x: Any) -> tuple[bool, str]:
    """Whether a value fits its optional name, and what does."""
    if name == "at":
        return isinstance(x, str) and x in WHERE, "'stages' or 'step'"
    if name in FLAGS:
        return isinstance(x, bool | np.bool_), "True or False"
    return callable(x), f"a method {name}(model{', at' * (name not in ('describe', 'dual'))})"
