"""The one-sided law along a gap, and friction across it: with the world, between bodies, between convex shapes."""
