"""The version, which files that are written carry."""

__version__ = "0.1.0"
