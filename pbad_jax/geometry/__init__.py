"""Shapes and how far they are apart: surfaces of the world, axes, convex shapes, points of a model. No forces."""
