"""What a model carries by name beside its arrays: sites and sensors."""

import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import TypeVar

from pbad_jax.errors import ModelError, printable

T = TypeVar("T")


class Named(Mapping[str, T]):
    """Things of one kind by name, in the order of the file. Read-only, hashable, and equal when the content is equal.

    Its things are frozen dataclasses of plain Python values, whose `repr` has every digit.
    """

    def __init__(self, kind: str, items: Mapping[str, T] | None = None):
        self._kind, self._items = kind, dict(items or {})

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def find(self, name: str, what: str) -> T:
        """The one of this name; `what` asks for it.

        Raises:
            ModelError: there is none; lists those that are there.
        """
        if name not in self._items:
            known = ", ".join(map(repr, list(self._items)[:8])) + (", ..." if len(self) > 8 else "")
            raise ModelError(printable(f"{what}: there is no {self._kind} {name!r}; known: {known or 'none'}"))
        return self._items[name]

    def plus(self, more: Mapping[str, T]) -> "Named[T]":
        """With some more after these.

        Raises:
            ModelError: a name that is empty or taken.
        """
        for name in more:
            if not isinstance(name, str) or not name:
                raise ModelError(f"{self._kind} {name!r:.60}: its name must be a non-empty string")
            if name in self._items:
                raise ModelError(printable(f"two {self._kind}s are called {name!r}. Rename one."))
        return Named(self._kind, {**self._items, **more})

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(repr(list(self._items.items())).encode()).hexdigest()

    def __hash__(self):
        return hash(self.digest)

    def __eq__(self, other):
        return isinstance(other, Named) and self.digest == other.digest

    def __repr__(self) -> str:
        return f"{self._kind}s({', '.join(map(repr, self._items))})"
