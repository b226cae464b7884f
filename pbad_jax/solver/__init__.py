"""Roots r(x; h) = 0 on a manifold: Levenberg–Marquardt, L-BFGS, continuation, derivatives. Knows no physics."""
