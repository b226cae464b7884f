"""The continuous system at one instant: generalised forces, energies, and Newton–Euler dynamics."""
