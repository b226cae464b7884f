"""What of a registered dataclass is the structure of a pytree, not an array: `dataclasses.field(metadata=STATIC)`."""

STATIC = {"static": True}
