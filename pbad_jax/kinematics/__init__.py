"""Index tables of a tree, the manifold q ⊕ δ, the transforms T(q) and their screws, joints as a field."""
