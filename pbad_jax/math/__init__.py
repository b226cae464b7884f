"""Small dense mathematics for one lane or many: products, rotations, twists, LU and Cholesky. Knows no model."""
