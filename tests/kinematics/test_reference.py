"""What moves with what at one configuration."""

import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax.atom.parallel import mass_matrix
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.reference import effective_inertia

pytestmark = pytest.mark.float64


def test_what_a_drive_has_to_move():
    """Below a hinge; in a tree that floats, or above it, if that is more."""
    fixed = effective_inertia(pbad.chain(2), np.zeros(4))
    assert fixed[0] > fixed[3] > 0
    spider = pbad.spider()
    feels = effective_inertia(spider, np.asarray(spider.q0, float))
    mass = np.asarray(spider.second_moment)[:, 3, 3].sum()
    assert feels[:3] == pytest.approx(mass)
    M = np.asarray(mass_matrix(spider, transforms.frames(spider, spider.q0)))
    assert np.all(feels[6:] > 0.999 * np.diag(M)[6:]) and feels[7] > 5 * M[7, 7]
