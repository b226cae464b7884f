"""Elementary systems that turn in space: balls, discs, tops and gyroscopes on a ball joint, by scheme and precision.

Euler's equations, in Runge and Kutta's steps, say what they do; where there is a closed form it says whether those are
right. The lanes are one program.
"""

import functools

import numpy as np
import pytest
from elementary import DT, ORDER, G, N, cells, compare, options, reference, three_are_three_times_one

import pbad_jax as pbad

pytestmark = pytest.mark.float64  # both precisions are asked for by name

TIMES = DT * np.arange(1, N + 1)
SCHEMES = [s for s in ORDER if s not in ("legendre4", "legendre5")]


def turned(p, x):
    """x (3,) by the unit quaternion p (w,x,y,z)."""
    u = p[1:]
    return x + 2 * np.cross(u, np.cross(u, x) + p[0] * x)


class Top:
    """A symmetric body on a ball joint, its centre of mass l up its axis; A about the joint, C about its axis.

    What it does, `at`, is that of Euler's equations in its own axes.
    """

    def __init__(self, tilt=0.0, w=(0.0, 0.0, 0.0), A=0.03, C=0.02, m=1.0, l=0.0, g=G):
        self.q, self.v = [np.cos(tilt / 2), 0.0, np.sin(tilt / 2), 0.0], list(w)
        self.A, self.C, self.m, self.l, self.g = A, C, m, l, g

    def model(self, dtype):
        about = self.A - self.m * self.l**2
        inertia = np.diag([about, about, self.C])
        body = pbad.Body("top", self.m, (0, 0, self.l), inertia, joints=[pbad.Joint("ball")])
        return pbad.build_model([body], gravity=(0, 0, -self.g), dtype=dtype)

    @functools.cached_property
    def _at(self):
        J, c = np.array([self.A, self.A, self.C]), np.array([0, 0, self.l])

        def rate(y):
            p, w = y[:4], y[4:]
            weight = turned(p * [1, -1, -1, -1], np.array([0, 0, -self.m * self.g]))
            turn = 0.5 * np.r_[-p[1:] @ w, p[0] * w + np.cross(p[1:], w)]
            return np.r_[turn, (np.cross(J * w, w) + np.cross(c, weight)) / J]

        y = reference(rate, np.r_[self.q, self.v], 10)
        return y[:, :4], y[:, 4:]

    def at(self):
        return self._at


def steady(spin, C=0.02, m=1.0, l=0.05) -> Top:
    """A gyroscope with a level axis, that goes round with m g l/(C spin)."""
    return Top(np.pi / 2, (-m * G * l / (C * spin), 0.0, spin), 0.03, C, m, l)


TOPS = {
    "a ball at rest": Top(C=0.03),
    "a ball that spins": Top(0.3, (1.0, 2.0, 3.0), C=0.03),
    "a disc about its axis": Top(0.3, (0.0, 0.0, 8.0), A=0.01, C=0.02),
    "a free top, flat": Top(0.3, (2.0, 0.0, 5.0), A=0.011, C=0.02),
    "a free top, long": Top(0.3, (2.0, 1.0, 5.0), A=0.03, C=0.005),
    "hanging still": Top(np.pi, l=0.1),
    "a gyroscope": steady(8.0),
    "a top that nods": Top(0.5, (0.0, 0.0, 8.0), l=0.05),
    "a pendulum without spin": Top(2.5, l=0.1),
    "without gravity": Top(0.5, (0.0, 2.0, 0.0), l=0.1, g=0.0),
}


def axes(q):
    """(n,3) of the body's axis."""
    return np.array([turned(p, np.array([0, 0, 1.0])) for p in np.asarray(q, float)])


@pytest.mark.parametrize("name", ["a free top, flat", "a free top, long"])
def test_euler_equations_turn_a_free_axis_about_the_angular_momentum(name):
    """By |L|/A, and the angular velocity in the body by (A − C)/A of its spin."""
    top = TOPS[name]
    q, v = top.at()
    L = turned(np.array(top.q), np.array([top.A, top.A, top.C]) * top.v)
    size, axis = np.linalg.norm(L), axes([top.q])[0]
    half = 0.5 * size / top.A * TIMES
    round_L = np.c_[np.cos(half), np.sin(half)[:, None] * L / size]
    np.testing.assert_allclose(axes(q), [turned(p, axis) for p in round_L], atol=1e-9)
    along = (top.v[0] + 1j * top.v[1]) * np.exp(-1j * (top.A - top.C) / top.A * top.v[2] * TIMES)
    np.testing.assert_allclose(v, np.c_[along.real, along.imag, np.full(N, top.v[2])], atol=1e-9)


def test_euler_equations_keep_a_level_gyroscope_level():
    q, _ = TOPS["a gyroscope"].at()
    angle = G * 0.05 / (0.02 * 8.0) * TIMES
    np.testing.assert_allclose(axes(q), np.c_[np.cos(angle), np.sin(angle), 0 * angle], atol=1e-9)


# --- all of them ---------------------------------------------------------------------------------------------


QUICK = {("tops", "radau2", "dense", "float64")}


@pytest.mark.parametrize("system, scheme, linear, dtype", cells(["tops"], SCHEMES, QUICK, ()))
def test_tops_turn_as_euler_says(system, scheme, linear, dtype):
    compare(TOPS, scheme, linear, dtype, turns=True)


@pytest.mark.thorough
def test_three_tops_are_three_times_one():
    lane = TOPS["a top that nods"]
    model = lane.model("float32")
    states = [pbad.make_state(model, lane.q, np.multiply(share, lane.v)) for share in (0.0, 0.5, 1.0)]
    three_are_three_times_one(model, states, options("dirk3"), 2e-4)
