"""From plain descriptions of bodies, joints and shapes to a checked Model; the paper's own models."""
