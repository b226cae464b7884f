"""Many steps, many lanes."""
