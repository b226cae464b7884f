"""What every checked input goes through: numbers, vectors, ranges; one clear error each."""

import difflib
import math
import numbers
from collections.abc import Callable, Iterable

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import ModelError, OptionError


def vector(x, size: int, what: str, error: type[Exception] = ModelError) -> np.ndarray:
    """x as `size` finite float64 numbers."""
    x = array(x, what, f"{size} numbers", error)
    if x.shape != (size,):
        raise error(f"{what} has shape {x.shape}; wanted ({size},)")
    if not np.all(np.isfinite(x)):
        raise error(f"{what} is {x.tolist()}; every entry must be finite")
    return x


def of_model(model, name: str) -> np.ndarray:
    """An array of a model as float64 numpy, for what is made of its values once; inside jit too, if not traced."""
    return array(getattr(model, name), f"{name} of the model", "numbers")


def array(x, what: str, wanted: str, error: type[Exception] = ModelError) -> np.ndarray:
    """x as float64 numpy, of whatever shape."""
    not_traced(x, what)
    try:
        numbers_of = np.asarray(x, float)
        boolean = np.asarray(x).dtype == np.bool_  # True is 1 to numpy, and nobody's mass
    except (TypeError, ValueError):
        raise error(f"{what} is {x!r:.60}; wanted {wanted}") from None
    if boolean:
        raise error(f"{what} is {x!r:.60}; wanted {wanted}, no bool")
    return numbers_of


def each(x, count: int, what: str, least: float = 0.0) -> np.ndarray:
    """(count,) numbers ≥ least, of one for all or one for each."""
    x = table(x, (count,), what)
    for value in x[x < least][:1]:
        raise ModelError(f"{what} is {value:g}; it must be {'above' if least else 'at least'} zero")
    return x


def ranges(x, count: int, what: str) -> np.ndarray:
    """(n,2), low ≤ high; of one number, both."""
    x = array(x, what, "numbers")
    x = table(np.stack([x, x], axis=-1) if x.ndim == 0 else x, (count, 2), what, finite=False)
    for low, high in x[~(x[:, 0] <= x[:, 1])][:1]:
        raise ModelError(f"{what} is ({low:g}, {high:g}); low must not exceed high. Swap them.")
    return x


def table(x, shape: tuple[int, ...], what: str, finite: bool = True) -> np.ndarray:
    """Numbers of that shape, or one row of them for all."""
    x = array(x, what, "numbers")
    if x.shape not in (shape, shape[1:]):
        raise ModelError(f"{what} has shape {x.shape}; wanted {shape[1:]} for all, or {shape}")
    if finite and not np.all(np.isfinite(x)):
        raise ModelError(f"{what} is {x.tolist()!r:.60}; every entry must be finite")
    return np.broadcast_to(x, shape).copy()


def interval(x, what: str) -> tuple[float, float]:
    """(low, high), infinite for None."""
    if x is None:
        return -np.inf, np.inf
    given = array(x, what, "(low, high)")
    if given.shape != (2,):
        raise ModelError(f"{what} has shape {given.shape}; wanted (low, high)")
    low, high = given.tolist()
    if not low <= high:  # also catches NaN
        raise ModelError(f"{what} is ({low:g}, {high:g}); low must not exceed high. Swap them.")
    return low, high


def number(x, what: str) -> float:
    """x as one finite float."""
    not_traced(x, what)
    try:
        value = float(x)
    except (TypeError, ValueError):
        raise ModelError(f"{what} is {x!r:.60}; wanted one number") from None
    if isinstance(x, bool) or getattr(x, "dtype", float) == np.bool_:
        raise ModelError(f"{what} is {x!r:.60}; wanted one number, no bool")
    if not np.isfinite(value):
        raise ModelError(f"{what} is {value}; it must be finite")
    return value


def at_least_zero(x, what: str, why: str) -> float:
    """x as one finite float ≥ 0."""
    value = number(x, what)
    if value < 0:
        raise ModelError(f"{what} is {value:g}; it must be ≥ 0, {why}. Change its sign.")
    return value


def above_zero(x, what: str) -> float:
    """x as one finite float > 0."""
    value = number(x, what)
    if value <= 0:
        raise ModelError(f"{what} is {value:g}; it must be > 0")
    return value


def step_size(dt) -> float:
    """dt as one finite float > 0, s."""
    if isinstance(dt, bool) or not isinstance(dt, numbers.Real):
        raise OptionError(f"dt is {dt!r} ({type(dt).__name__}); it must be one number, s")
    if not (math.isfinite(dt) and float(dt) > 0):
        raise OptionError(f"dt is {dt}; it must be positive and finite, s")
    return float(dt)


def given_step_size(dt, default: float, dtype) -> jax.Array:
    """The dt () of one step as an array; None: the default. Values are looked at where they are known."""
    dt = default if dt is None else dt
    if jnp.shape(dt) != ():
        raise OptionError(f"dt has shape {jnp.shape(dt)}; it must be one number, s")
    if not isinstance(dt, jax.core.Tracer):
        dt = step_size(dt.item() if isinstance(dt, np.ndarray | jax.Array) else dt)
    return jnp.asarray(dt, dtype)


def is_step_size(dt: jax.Array) -> jax.Array:
    """The same of a traced dt, () bool."""
    return jnp.isfinite(dt) & (dt > 0)


def unit_quaternion(p, what: str, error: type[Exception] = ModelError) -> None:
    """p (4,) has length 1, within 1e-3."""
    norm = float(np.linalg.norm(p))
    if not abs(norm - 1) <= 1e-3:  # also catches NaN
        raise error(
            f"{what}: quaternion {np.asarray(p).tolist()} has norm {norm:.6g}; it must be 1 within 1e-3. Normalise it; "
            "the order is (w, x, y, z)."
        )


def is_number(x) -> bool:
    """Whether a leaf is a number or an array of some."""
    return isinstance(x, jax.Array | np.ndarray | np.generic | numbers.Number) and (
        jnp.issubdtype(jnp.result_type(x), np.number) or jnp.issubdtype(jnp.result_type(x), np.bool_)
    )


def integer(x, what: str, least: int, error: type[Exception] = OptionError) -> int:
    """x as an int ≥ `least`; no bool, no float."""
    if isinstance(x, bool) or not isinstance(x, numbers.Integral) or x < least:
        raise error(f"{what} is {x!r:.60}; it must be an integer ≥ {least}")
    return int(x)


def one_of(x, allowed: tuple[str, ...], what: str, error: type[Exception] = ModelError) -> str:
    """x, one of the words."""
    if not isinstance(x, str) or x not in allowed:
        raise error(f"{what} is {x!r:.60}; choose one of {', '.join(map(repr, allowed))}.{did_you_mean(x, allowed)}")
    return x


def did_you_mean(x, known: Iterable[str]) -> str:
    """`" Did you mean 'radau1'?"`, or nothing."""
    near = difflib.get_close_matches(str(x), known, 1, cutoff=0.4)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_names(x, names: tuple[str, ...], protocol: str, where: str) -> None:
    """No public name of x is nearly one of those of the protocol, which would have no effect."""
    long = [name for name in names if len(name) > 2]
    for name in dir(x):
        if name.startswith("_") or name in names:
            continue
        near = [name.lower()] if name.lower() in names else difflib.get_close_matches(name.lower(), long, 1, 0.8)
        if near:
            raise ModelError(
                f"{where}: {name!r} of this {type(x).__name__} is no name of {protocol} and has no effect; is "
                f"{near[0]!r} meant? Write that, or call what is your own something else, such as _{name}"
            )


def known(name, names, what: str) -> int:
    """The index of a name."""
    names = list(names)
    if name not in names:
        raise ModelError(f"{what}: there is no {name!r}; known: {', '.join(map(str, names[:8])) or 'none'}")
    return names.index(name)


def unique(names: list[str], what: str) -> None:
    """No name twice, none empty."""
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise ModelError(f"{what} {i} has the name {name!r}; it must be a non-empty string")
        if name in seen:
            raise ModelError(f"two {what}s are called {name!r}: number {seen[name]} and number {i}. Rename one.")
        seen[name] = i


def leaf(dtype) -> Callable[..., jax.Array]:
    """What makes the arrays of a model: of its dtype, and of the shape that may be given after the numbers."""

    def made(x, *shape: int) -> jax.Array:
        not_traced(x, "an array of a model or of a force")
        x = np.asarray(x, float)
        return jnp.asarray(x.reshape(shape) if shape else x, dtype)

    return made


def not_traced(x, what: str) -> None:
    """Values are looked at, so they must be there."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x)):
        raise ModelError(
            f"{what} is traced: models and forces are built outside jit, vmap and grad, because their values are "
            "checked. Build the model once and trace its arrays, e.g. dataclasses.replace(model, second_moment=...)."
        )


def all_of(given, kind: type, what: str) -> list:
    """Given as a list, each of one kind."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ModelError(f"{what} is {type(given).__name__} {given!r:.60}; give a list of {kind.__name__}")
    out = list(given)
    for i, x in enumerate(out):
        if not isinstance(x, kind):
            raise ModelError(f"{what}[{i}] is {type(x).__name__} {x!r:.60}; it must be a {kind.__name__}")
    return out


def float_dtype(dtype) -> np.dtype:
    """Float32 or float64, as asked for; default the larger one that JAX has enabled."""
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    asked = dtype if dtype is not None else (np.float64 if x64 else np.float32)
    try:
        dtype = np.dtype(asked)
    except TypeError:
        raise OptionError(f"dtype {asked!r:.60} is not float32 or float64") from None
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise OptionError(f"dtype {dtype} is not float32 or float64")
    if dtype == np.float64 and not x64:
        raise OptionError(
            "dtype float64 was asked for, but JAX has it switched off: call jax.config.update('jax_enable_x64', True) "
            "before anything else, or set JAX_ENABLE_X64=1"
        )
    return dtype
