"""The second moment of a body, M = ∫ρ [p;1][p;1]ᵀ dp, and how to get it.

M is a symmetric positive semidefinite (4,4) matrix in the body's frame:

    [ ∫ρ p pᵀ dp   ∫ρ p dp ]      kg m²   kg m
    [ ∫ρ pᵀ dp     ∫ρ dp   ]      kg m    kg

It is all that the inertial terms ever need to know about a body (paper, section 4, the matrix that
the paper precomputes). Inertia here always means the (3,3) rotational inertia about the centre of mass.
"""

import numpy as np


def second_moment(mass: float, com, inertia) -> np.ndarray:
    """M from mass (kg), centre of mass (3,) m, and rotational inertia (3,3) kg m² about it.

    ∫ρ r rᵀ = ½ tr(I) E − I for r measured from the centre of mass; then the parallel-axis shift.

    Returns:
        (4,4) array, in the frame in which `com` and `inertia` are written.
    """
    com, inertia = np.asarray(com, float), np.asarray(inertia, float)
    M = np.empty((4, 4))
    M[:3, :3] = central_moment(inertia) + mass * np.outer(com, com)
    M[:3, 3] = M[3, :3] = mass * com
    M[3, 3] = mass
    return M


def central_moment(inertia) -> np.ndarray:
    """∫ρ r rᵀ dr = ½ tr(I) E − I, (3,3) kg m². Its eigenvalues are ≥ 0 iff A + B ≥ C holds for I."""
    inertia = np.asarray(inertia, float)
    return 0.5 * np.trace(inertia) * np.eye(3) - inertia


def inertia_from_central_moment(moment) -> np.ndarray:
    """The inverse of `central_moment`: I = tr(∫ρ r rᵀ) E − ∫ρ r rᵀ."""
    moment = np.asarray(moment, float)
    return np.trace(moment) * np.eye(3) - moment


def solid_sphere(mass: float, radius: float) -> np.ndarray:
    """Rotational inertia (3,3) kg m² of a solid ball of radius m."""
    return 0.4 * mass * radius**2 * np.eye(3)


def solid_box(mass: float, half_sizes) -> np.ndarray:
    """Rotational inertia (3,3) kg m² of a solid box with the half sizes (3,) m."""
    x, y, z = np.square(np.asarray(half_sizes, float))
    return mass / 3 * np.diag([y + z, x + z, x + y])


def solid_ellipsoid(mass: float, semi_axes) -> np.ndarray:
    """Rotational inertia (3,3) kg m² of a solid ellipsoid with the semi-axes (3,) m."""
    x, y, z = np.square(np.asarray(semi_axes, float))
    return mass / 5 * np.diag([y + z, x + z, x + y])


def solid_cylinder(mass: float, radius: float, length: float) -> np.ndarray:
    """Rotational inertia (3,3) kg m² of a solid cylinder along z, radius and length in m."""
    side = mass * (3 * radius**2 + length**2) / 12
    return np.diag([side, side, 0.5 * mass * radius**2])


def solid_capsule(mass: float, radius: float, length: float) -> np.ndarray:
    """Rotational inertia (3,3) kg m² of a capsule along z; `length` (m) is that of its cylinder alone."""
    ball_volume, tube_volume = 4 / 3 * np.pi * radius**3, np.pi * radius**2 * length
    ball = mass * ball_volume / (ball_volume + tube_volume)
    I = solid_cylinder(mass - ball, radius, length)
    # two half balls, whose own centres lie 3/8 r beyond the ends of the cylinder
    side = 0.4 * ball * radius**2 + ball * (0.25 * length**2 + 0.375 * length * radius)
    return I + np.diag([side, side, 0.4 * ball * radius**2])
