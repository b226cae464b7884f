"""Elementary systems of two joints and more, by scheme, solver and precision.

Two points on a spring or over a pulley, a cart with a pole, two rods, a four-bar linkage. What has a closed form is
compared with it, the rest with Runge and Kutta's formulas for the textbook's equations. The lanes of a system are one
program.
"""

import functools

import numpy as np
import pytest
from elementary import (
    DT,
    ORDER,
    G,
    Lane,
    N,
    bound,
    cells,
    compare,
    many,
    options,
    reference,
    stacked,
    three_are_three_times_one,
)

import pbad_jax as pbad
from pbad_jax import forces

pytestmark = pytest.mark.float64  # both precisions are asked for by name

TIMES = DT * np.arange(1, N + 1)
SCHEMES = [s for s in ORDER if s not in ("legendre4", "legendre5")]


# --- two points on slides, tied ------------------------------------------------------------------------------


def tied(m1, m2, w, sign, g=0.0, q=(0.0, 0.0), v=(0.0, 0.0)) -> Lane:
    """Two points whose x₁ + sign·x₂ is held at zero by a spring that swings with w rad/s.

    sign = −1: a spring from one to the other. sign = 1: a rope over a pulley.
    """
    k, mass = w**2 / (1 / m1 + 1 / m2), np.array([m1, m2])

    def model(dtype):
        bodies = [pbad.Body(n, m, joints=[pbad.Joint("slide", (0, 0, 1), name=n)]) for n, m in (("a", m1), ("b", m2))]
        free = pbad.build_model(bodies, gravity=(0, 0, -g), dtype=dtype)
        return pbad.with_forces(free, forces.tendon_coupling(free, {"a": 1.0, "b": sign}, stiffness=k))

    def at():
        """The stretch s swings about its mean; the tension k s pulls on both; m₁ x₁ − sign m₂ x₂ falls freely."""
        t, row = TIMES, np.array([1.0, sign])
        mean = -g * (1 + sign) / w**2
        s, rate = row @ q - mean, row @ v
        stretch = mean + s * np.cos(w * t) + rate / w * np.sin(w * t)
        speed = -s * w * np.sin(w * t) + rate * np.cos(w * t)
        other = mass * np.array([1.0, -sign])
        fall = other @ q + other @ v * t - 0.5 * g * other.sum() * t**2
        back = np.linalg.inv(np.stack([row, other])).T
        return np.c_[stretch, fall] @ back, np.c_[speed, other @ v - g * other.sum() * t] @ back

    return Lane(model, list(q), list(v), at)


def hung(m1, m2, w, v=0.0) -> Lane:
    """The same over a pulley, where the rope already bears the weights: then both fall with (m₁−m₂)g/(m₁+m₂)."""
    tension = 2 * m1 * m2 * G / (m1 + m2)
    stretch = tension / (w**2 / (1 / m1 + 1 / m2))
    return tied(m1, m2, w, 1.0, G, (-stretch / 2, -stretch / 2), (v, -v))


PAIRS = {
    "two points on a spring": tied(1.0, 2.0, 10.0, -1.0, q=(0.2, 0.0)),
    "that fly": tied(1.0, 1.0, 10.0, -1.0, q=(0.1, -0.1), v=(1.0, 0.5)),
    "side by side": tied(1.0, 1.0, 10.0, -1.0, v=(1.0, 1.0)),  # straight on, which is the first guess, to the bit
    "at rest": tied(1.0, 1.0, 10.0, -1.0),
    "a heavy and a light one": tied(100.0, 0.1, 10.0, -1.0, v=(0.0, 1.0)),
    "a pulley in balance": hung(1.0, 1.0, 100.0),
    "a pulley in balance that moves": hung(1.0, 1.0, 100.0, v=1.0),
    "a pulley": hung(2.0, 1.0, 100.0),
    "a pulley that is lifted": hung(1.0, 3.0, 50.0, v=-2.0),
    "a pulley with a soft rope": tied(2.0, 1.0, 10.0, 1.0, G),
}


def test_the_closed_form_of_the_pulley_is_the_textbook_one():
    lane = hung(2.0, 1.0, 100.0)
    q, v = lane.at()
    np.testing.assert_allclose(v[:, 0], -(2.0 - 1.0) / 3.0 * G * TIMES)
    np.testing.assert_allclose(v[:, 0], -v[:, 1])


# --- a cart with a pole, two rods ----------------------------------------------------------------------------


def swung(rates, q, v, model) -> Lane:
    """Runge and Kutta's trajectory of M(q) q'' = f(q, v) with two unknowns; rates gives M and f."""

    def rate(y):
        M, f = rates(y[:2], y[2:])
        return np.append(y[2:], np.linalg.solve(M, f))

    @functools.cache
    def at():
        y = reference(rate, np.array([*q, *v], float), 10)
        return y[:, :2], y[:, 2:]

    return Lane(model, list(q), list(v), at)


def cart_pole(q, v, M=1.0, m=0.3, l=0.5, J=0.0) -> Lane:
    """x of the cart, and the angle of the pole from hanging down."""

    def rates(q, v):
        s, c = np.sin(q[1]), np.cos(q[1])
        return [[M + m, m * l * c], [m * l * c, J + m * l**2]], [m * l * s * v[1] ** 2, -m * G * l * s]

    def model(dtype):
        cart = pbad.Body("cart", M, joints=[pbad.Joint("slide", (1, 0, 0))])
        hinge = pbad.Joint("hinge", (0, -1, 0))
        pole = pbad.Body("pole", m, (0, 0, -l), J * np.diag([1, 1, 0]), parent="cart", joints=[hinge])
        return pbad.build_model([cart, pole], dtype=dtype)

    return swung(rates, q, v, model)


CARTS = {
    "at rest": cart_pole((0.0, 0.0), (0.0, 0.0)),
    "balanced": cart_pole((0.5, np.pi), (0.0, 0.0)),
    "falls over": cart_pole((0.0, 2.5), (0.0, 0.0)),
    "moves": cart_pole((0.0, 1.0), (1.0, -2.0)),
    "a rod on a light cart": cart_pole((0.0, 1.5), (0.0, 0.0), M=0.1, J=0.025),
    "a heavy cart that goes on": cart_pole((-1.0, 0.3), (2.0, 0.0), M=100.0, l=1.0),
}


def two_rods(q, v, m=1.0, l=1.0) -> Lane:
    """Equal thin rods, the second on the first's end; the angle of the first from hanging, and between both."""

    def rates(q, v):
        a, b = q[0], q[0] + q[1]  # from the vertical, with the textbook's M and f of (a, b)
        w, u = v[0], v[0] + v[1]
        M = m * l**2 * np.array([[4 / 3, np.cos(a - b) / 2], [np.cos(a - b) / 2, 1 / 3]])
        f = m * l**2 / 2 * np.sin(a - b) * np.array([-(u**2), w**2])
        f = f - m * G * l * np.array([1.5 * np.sin(a), 0.5 * np.sin(b)])
        return M @ np.array([[1, 0], [1, 1]]), f

    def model(dtype):
        def rod(name, parent=None):
            where, inertia = (0, 0, -l if parent else 0), m * l**2 / 12 * np.diag([1, 1, 0])
            return pbad.Body(name, m, (0, 0, -l / 2), inertia, parent, where, joints=[pbad.Joint("hinge", (0, 1, 0))])

        return pbad.build_model([rod("a"), rod("b", "a")], dtype=dtype)

    return swung(rates, q, v, model)


RODS = {
    "at rest": two_rods((0.0, 0.0), (0.0, 0.0)),
    "let go": two_rods((1.0, 0.0), (0.0, 0.0)),
    "bent": two_rods((0.5, -1.5), (1.0, 2.0)),
    "short": two_rods((0.1, 0.1), (0.0, 0.0), l=0.5),
}


# --- all of them ---------------------------------------------------------------------------------------------


SYSTEMS = {"pairs": PAIRS, "carts": CARTS, "rods": RODS}
QUICK = {("pairs", "radau2", "dense", "float32")}
SLOW = {("carts", "variational", "dense", "float64")}


@pytest.mark.parametrize("system, scheme, linear, dtype", cells(SYSTEMS, SCHEMES, QUICK, SLOW, ("carts", "rods")))
def test_they_move_as_they_should(system, scheme, linear, dtype):
    compare(SYSTEMS[system], scheme, linear, dtype)


@pytest.mark.thorough
def test_three_carts_are_three_times_one():
    lane = CARTS["moves"]
    model = lane.model("float64")
    states = [pbad.make_state(model, lane.q, np.multiply(share, lane.v)) for share in (0.0, 0.5, 1.0)]
    three_are_three_times_one(model, states, options("radau2"), 1e-9)


# --- a loop --------------------------------------------------------------------------------------------------


def four_bar(dtype, a=0.5, m=1.0):
    """A parallelogram: two rods hang from the ceiling and carry the ends of a third."""
    hinge, inertia = [pbad.Joint("hinge", (0, 1, 0))], m * a**2 / 12
    rod = {"com": (0, 0, -a / 2), "inertia": inertia * np.diag([1, 1, 0]), "joints": hinge}
    left = pbad.Body("left", m, **rod)
    right = pbad.Body("right", m, position=(a, 0, 0), **rod)
    level = pbad.Body("level", m, (a / 2, 0, 0), inertia * np.diag([0, 1, 1]), "left", (0, 0, -a), joints=hinge)
    tree = pbad.build_model([left, level, right], dtype=dtype)
    return pbad.with_forces(tree, forces.connect(tree, "level", "right", point=(a, 0, 0), other_point=(0, 0, -a)))


@pytest.mark.parametrize(
    "scheme, dtype",
    [
        pytest.param("radau2", "float64", marks=pytest.mark.slow),
        pytest.param("dirk3", "float64", marks=pytest.mark.thorough),
        pytest.param("radau3", "float32", marks=pytest.mark.thorough),
        pytest.param("radau1", "float64", marks=pytest.mark.thorough),
        pytest.param("dirk2", "float32", marks=pytest.mark.thorough),
        pytest.param("dirk4", "float64", marks=pytest.mark.thorough),
        pytest.param("legendre3", "float64", marks=pytest.mark.thorough),
    ],
)
def test_a_parallelogram_swings_as_one_pendulum(scheme, dtype):
    """(2/3 + 1) m a² q'' = −2 m g a sin q: two rods about their ends, and the third, which never turns."""
    a, model = 0.5, four_bar(dtype)
    starts = [(0.0, 0.0), (0.8, 0.0), (0.3, 2.0)]
    states = [pbad.make_state(model, [q, -q, q], [v, -v, v]) for q, v in starts]
    traj, info = many(options(scheme))(stacked([model] * 3), stacked(states))
    assert not np.asarray(info.status).any()
    signs = np.array([1, -1, 1])
    want = reference(lambda y: np.array([y[1], -2 * G / (5 / 3 * a) * np.sin(y[0])]), np.array(starts).T, 10)
    soft = 5 * G * 0.005**2 / a  # the connection's time constant is 5 ms
    share = 5 * bound(scheme, "lm", dtype)
    for i in range(3):
        q, v = np.asarray(traj.q[i], float), np.asarray(traj.v[i], float)
        for x, y, near in ((q, want[:, 0, i], soft), (v, want[:, 1, i], G * 0.005 / a)):
            np.testing.assert_allclose(x, y[:, None] * signs, rtol=0, atol=share * np.ptp(y) + near)
        turned = q[:, 0] + q[:, 1]  # of the level rod
        right = np.sin(q[:, 2]) - np.sin(q[:, 0]) + np.cos(turned) - 1
        gap = a * np.hypot(right, np.cos(q[:, 0]) - np.cos(q[:, 2]) + np.sin(turned))
        assert gap.max() < 1e-3
        energy = 5 / 6 * a**2 * v[:, 0] ** 2 - 2 * G * a * np.cos(q[:, 0])
        assert np.ptp(energy) < (share + 0.01) * 2 * G * a
