"""The atom I(q_a, q_b) and its derivatives: the paper's Algorithms 1-3, 4-6, and O(N) sweeps."""
