"""The paper's stage equations for one step: residual, matrix, first guesses, and whether a root is physical."""
