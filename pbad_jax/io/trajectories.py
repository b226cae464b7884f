"""Trajectories."""


def save_trajectory(*a):
    """Placeholder."""


def load_trajectory(*a):
    """Placeholder."""
