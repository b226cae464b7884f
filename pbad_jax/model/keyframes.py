"""Keyframes: named moments that a file gives, such as a robot's `home`."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from pbad_jax.errors import StateError, printable


@dataclasses.dataclass(frozen=True, eq=False)
class Keyframe:
    """One moment, as its file has it; numpy, float64 whatever the model's dtype.

    Attributes:
        q, v: (nq,), (nv,) in the model's layout.
        control: (nu,), one for each actuator; None where the file says nothing of it.
        time: s.
        activation: (na,), of the actuators that have one; None: zero.
    """

    q: np.ndarray
    v: np.ndarray
    control: np.ndarray | None = None
    time: float = 0.0
    activation: np.ndarray | None = None


class Keyframes(Mapping[str, Keyframe]):
    """Keyframes by name, in the order of the file. Read-only, and equal when the content is equal."""

    def __init__(self, items: Mapping[str, Keyframe] | None = None):
        self._items = {name: _frozen(key) for name, key in (items or {}).items()}

    def __getitem__(self, name: str) -> Keyframe:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def find(self, name: str, model: str) -> Keyframe:
        """The keyframe of this name.

        Raises:
            StateError: there is none; lists those of the model, whose name is `model`.
        """
        if name not in self._items:
            known = ", ".join(map(repr, list(self._items)[:8])) + (", ..." if len(self) > 8 else "")
            there = f"it has {known}" if known else "it has none; give q and v"
            raise StateError(printable(f"key={name!r}: model {model!r} has no keyframe of that name; {there}"))
        return self._items[name]

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        h = hashlib.sha256()
        for name, key in self._items.items():
            h.update(repr((name, key.time, key.control is None)).encode())
            for x in (key.q, key.v, key.control, key.activation):
                h.update(b"" if x is None else np.ascontiguousarray(x, float).tobytes())
        return h.hexdigest()

    def __hash__(self):
        return hash(self.digest)

    def __eq__(self, other):
        return isinstance(other, Keyframes) and self.digest == other.digest

    def __repr__(self) -> str:
        return f"Keyframes({', '.join(map(repr, self._items))})"


def _frozen(key: Keyframe) -> Keyframe:
    """The same with arrays of its own that nobody can write to."""
    given = {k: getattr(key, k) for k in ("q", "v", "control", "activation")}
    own = {k: None if x is None else np.array(x, float) for k, x in given.items()}
    for x in own.values():
        if x is not None:
            x.setflags(write=False)
    return dataclasses.replace(key, **own)


NO_KEYFRAMES = Keyframes()
