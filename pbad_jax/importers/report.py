"""What became of the features of a file, and how it is told."""

import dataclasses

from pbad_jax.errors import (
    UnsupportedFeatureError,
    printable,
)


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of the features of a file.

    Attributes:
        unsupported: left out, although the motion depends on them.
        inactive: carried or known, but without a force yet, such as limits of effort.
        notes: what was changed or dropped on the way, such as projected inertias and unreadable meshes.

    Example:
        >>> text = '<mujoco><worldbody><body><joint/><geom size="0.1"/></body></worldbody></mujoco>'
        >>> loaded, report = pbad.load(text, unsupported="warn")
        >>> print(report)
        everything in the file is honoured
    """

    unsupported: tuple[str, ...] = ()
    inactive: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = []
        for title, items in (("left out", self.unsupported), ("no force yet", self.inactive), ("notes", self.notes)):
            parts += [f"{title}:"] + [f"  - {x}" for x in items] if items else []
        return printable("\n".join(parts)) or "everything in the file is honoured"


def listed(items: tuple[str, ...]) -> str:
    """The first eight, and how many more."""
    return "; ".join(items[:8]) + (
        f"; and {len(items) - 8} more (unsupported='warn' returns them all)" if len(items) > 8 else ""
    )


def unsupported_by(file: str, features: tuple[str, ...], why: str = "") -> UnsupportedFeatureError:
    """The error that names what of a file cannot act."""
    return UnsupportedFeatureError(
        f"{file}: {len(features)} feature{'s' * (len(features) > 1)} of this model would change its motion and "
        f"cannot be honoured: {'; '.join(features)}.{why} Remove them, or pass unsupported='warn' to load "
        "without them.",
        features,
    )
