"""Random directions along the arrays of a pytree, and differences along them: what derivatives are judged by."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# as fractions of a direction: wide ones see little rounding, narrow ones seldom meet the corner of a one-sided law
STEP_SIZES = {"float64": (1e-3, 1e-4, 3e-5, 1e-5), "float32": (1e-1, 3e-2, 1e-2, 1e-3, 3e-4)}


# what changes by less than this part of the whole is judged as if it changed by that much: rounding is not a derivative
FLOOR = {"float64": 1e-3, "float32": 2e-2}


def named_arrays(tree: Any) -> dict[str, jax.Array]:
    """The floating-point arrays of a pytree that can be varied, by where they are."""
    found = {_name(tree, path): x for path, x in jax.tree_util.tree_leaves_with_path(tree)}
    return {name: x for name, x in found.items() if jnp.issubdtype(jnp.result_type(x), jnp.floating) and np.size(x)}


def replaced(tree: Any, arrays: dict[str, jax.Array]) -> Any:
    """The pytree with these of its arrays, by the names of `named_arrays`."""
    return jax.tree_util.tree_map_with_path(lambda path, x: arrays.get(_name(tree, path), x), tree)


def _name(tree: Any, path) -> str:
    """Like forces[2].stiffness of a model, q of a dictionary; a force says its class."""
    name = jax.tree_util.keystr(path)
    name = re.sub(r"\['(\w+)'\]", r"\1", name).removeprefix("model").removeprefix(".")
    force = re.match(r"forces\[(\d+)\]", name)
    model = tree.get("model") if isinstance(tree, dict) else tree
    if force and model is not None:
        kind = type(model.forces[int(force.group(1))]).__name__
        name = f"{force.group()} {kind}{name[force.end() :]}"
    return name


def directions(arrays: dict[str, jax.Array], seed: int = 0) -> dict[str, jax.Array]:
    """A random direction along every array, in proportion to its largest entry, or of size 1 where all are zero.

    Infinite entries stay. A second moment stays symmetric, and zero where it is zero.
    """
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(_direction(rng, name, np.asarray(x)), x.dtype) for name, x in arrays.items()}


def _direction(rng, name: str, x: np.ndarray) -> np.ndarray:
    sizes = np.abs(np.where(np.isfinite(x), x, 0.0))
    d = rng.normal(size=x.shape)
    if name == "second_moment":
        return 0.1 * (d + np.swapaxes(d, -1, -2)) * sizes
    return d * np.isfinite(x) * (np.max(sizes) or 1.0)


def difference(f: Callable[[Any], Any], x: Any, d: Any, width: float) -> np.ndarray:
    """The derivative of f (n,) at x along d, pytrees, of fourth order in the width; in float64."""

    def at(k: int) -> np.ndarray:
        return np.asarray(f(jax.tree.map(lambda a, b: a + k * width * b, x, d)), float)

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * width)


def noise_floor(value) -> float:
    """The floor of a change of this value."""
    value = np.asarray(value)
    return FLOOR[value.dtype.name] * float(np.max(np.abs(value), initial=0.0))


def of_all_step_sizes(f: Callable[[Any], Any], x: Any, d: Any) -> Iterator[np.ndarray]:
    """The differences of all STEP_SIZES, one after the other."""
    dtype = jnp.result_type(*jax.tree.leaves(x))
    return (difference(f, x, d, width) for width in STEP_SIZES[dtype.name])


def closest(
    found: Iterable[np.ndarray], claimed: np.ndarray, floor: float, enough: float = 0.0
) -> tuple[np.ndarray, float]:
    """The difference that the claimed derivative comes closest to, and how close that is; see `mismatch`.

    No more of them are looked at once one comes as close as `enough`.
    """
    best, error = claimed, float("inf")
    for y in found:
        e = mismatch(claimed, y, floor)
        if e < error or error == float("inf"):
            best, error = y, e
        if error <= enough:
            break
    return best, error


def mismatch(a: np.ndarray, b: np.ndarray, floor: float) -> float:
    """Max |a − b| over the larger of both plus the floor; infinite where something is not finite."""
    if not a.size:
        return 0.0
    size = float(max(np.max(np.abs(a)), np.max(np.abs(b)))) + floor
    worst = float(np.max(np.abs(a - b)))
    if worst == 0.0:
        return 0.0
    return worst / size if np.isfinite(size) and size > 0 else float("inf")
