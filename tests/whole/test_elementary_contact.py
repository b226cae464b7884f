"""Elementary systems that touch, by scheme, solver and precision: a block, a disc, a dropped ball, a collision.

Schemes with history refuse contact. The rest make it one impulse a step, which is first order: what is said here is off
by about a step of what a contact does. With dirk and variational all of it is at the start of a step, so what rests has
v = −g dt/2.
"""

from typing import NamedTuple

import numpy as np
import pytest
from elementary import DT, G, N, cells, many, options, stacked, three_are_three_times_one

import pbad_jax as pbad
from pbad_jax import forces

pytestmark = pytest.mark.float64  # both precisions are asked for by name

SCHEMES = ("radau1", "radau2", "radau3", "dirk2", "dirk3", "dirk4", "variational")
MU, R = 0.5, 0.1
LAIN = -0.00069367  # m, where a block has come to rest
SINK = 2e-3  # m: bodies sink by g · (10 ms)² = 1 mm where they rest
PLANAR = pbad.Joint("planar", ((1, 0, 0), (0, 0, 1)))  # q is x, z and the turn about −y


class Start(NamedTuple):
    q: tuple = (0.0, 0.0, 0.0)
    v: tuple = (0.0, 0.0, 0.0)


def on_the_ground(geom, inertia, dtype):
    """A body of a kilogram that lies at q = 0 on a plane."""
    body = pbad.Body("b", 1.0, inertia=inertia * np.eye(3), joints=[PLANAR], geoms=[geom])
    return pbad.with_ground(pbad.build_model([body], dtype=dtype), friction=MU)


# --- what they do --------------------------------------------------------------------------------------------


def block(dtype):
    return on_the_ground(pbad.Geom("box", (R, R, 0.05)), 1 / 3 * (R**2 + 0.05**2), dtype)


BLOCKS = {
    "at rest": Start(q=(0.0, LAIN, 0.0)),
    "slides": Start(q=(0.0, LAIN, 0.0), v=(1.0, 0.0, 0.0)),
    "slides back": Start(q=(0.0, LAIN, 0.0), v=(-2.0, 0.0, 0.0)),
    "is put down": Start(q=(0.0, 0.01, 0.0)),
}


def resting(scheme):
    """The upward velocity of what rests."""
    return 0.0 if scheme.startswith("radau") else -0.5 * G * DT


def judge_block(name, start, q, v, scheme):
    """It stops after v²/(2 μ g), to within a step of its way, and does not turn."""
    speed = start.v[0]
    way = speed * abs(speed) / (2 * MU * G)
    assert abs(q[-1, 0] - way) < 0.03 * abs(way) + abs(speed) * DT + 1e-5, name
    assert np.abs(v[-1] - [0, resting(scheme), 0]).max() < 5e-3 and np.abs(q[:, 2]).max() < 0.02, name
    moving = abs(speed) - MU * G * DT * np.arange(1, N + 1)
    np.testing.assert_allclose(np.abs(v[:, 0]), np.maximum(moving, 0), rtol=0, atol=0.05 * abs(speed) + 5e-3)
    assert q[:, 1].min() > -SINK, name


def disc(dtype):
    return on_the_ground(pbad.Geom("sphere", (R, 0, 0)), 0.5 * R**2, dtype)


DISCS = {
    "at rest": Start(),
    "rolls": Start(v=(1.0, 0.0, -1.0 / R)),
    "thrown without spin": Start(v=(1.0, 0.0, 0.0)),
    "put down with spin": Start(v=(0.0, 0.0, -10.0)),
    "dropped": Start(q=(0.0, 0.1, 0.0)),
    "dropped with spin": Start(q=(0.0, 0.05, 0.0), v=(0.0, 0.0, 5.0)),
    "thrown up": Start(v=(0.5, 1.0, 0.0)),
}


def judge_disc(name, start, q, v, scheme):
    """m v + J ω/r is kept by what pushes where it touches, so it rolls with v = (v₀ − J ω₀/(m r))/(1 + J/(m r²))."""
    rolling = (start.v[0] - 0.5 * R * start.v[2]) / 1.5
    near = (0.1 if scheme == "radau1" else 0.03) * max(abs(rolling), 0.1)  # radau(1) damps what turns
    assert abs(v[-1, 0] - rolling) < near, (name, v[-1, 0], rolling)
    assert abs(v[-1, 0] + R * v[-1, 2]) < near, (name, v[-1])
    assert q[:, 1].min() > -0.03 and abs(q[-1, 1]) < SINK and abs(v[-1, 1] - resting(scheme)) < 0.02, name


def judge_energy(name, start, q, v, inertia, scheme):
    """Never more than at the start, but for the speed at which what rests is said to fall."""
    energy = 0.5 * (v[:, 0] ** 2 + v[:, 1] ** 2 + inertia * v[:, 2] ** 2) + G * q[:, 1]
    first = 0.5 * (start.v[0] ** 2 + start.v[1] ** 2 + inertia * start.v[2] ** 2) + G * start.q[1]
    falling = 2 * resting(scheme) ** 2  # ½ m (g dt)²
    assert energy.max() < first + falling + 1e-4 + 1e-5 * first, (name, energy.max() - first)


GROUND = {
    "block": (block, BLOCKS, judge_block, 1 / 3 * (R**2 + 0.05**2)),
    "disc": (disc, DISCS, judge_disc, 0.5 * R**2),
}
QUICK = {("disc", "radau2", "dense", "float64")}


@pytest.mark.parametrize("system, scheme, linear, dtype", cells(GROUND, SCHEMES, QUICK, ()))
def test_they_slide_roll_and_fall_on_the_ground(system, scheme, linear, dtype):
    make, starts, judge, inertia = GROUND[system]
    model = make(dtype)
    states = [pbad.make_state(model, s.q, s.v) for s in starts.values()]
    traj, info = many(options(scheme, linear=linear))(stacked([model] * len(states)), stacked(states))
    for i, (name, start) in enumerate(starts.items()):
        status = np.asarray(info.status[i])
        assert not status.any(), (name, status)
        q, v = np.asarray(traj.q[i], float), np.asarray(traj.v[i], float)
        judge(name, start, q, v, scheme)
        judge_energy(name, start, q, v, inertia, scheme)


# --- two balls on a line -------------------------------------------------------------------------------------


def balls(dtype, m1, m2):
    """Two balls of 0.1 m on one line."""
    made = [
        pbad.Body(name, m, joints=[pbad.Joint("slide", (1, 0, 0), name=name)], geoms=[pbad.Geom("sphere", (R, 0, 0))])
        for name, m in (("a", m1), ("b", m2))
    ]
    model = pbad.build_model(made, gravity=(0, 0, 0), dtype=dtype)
    return pbad.with_forces(model, forces.body_contact(model, [("a", "b")]))


BALLS = {  # both masses, then where and how fast
    "head on": (1.0, 1.0, (0.0, 0.4), (1.0, -1.0)),
    "one at rest": (1.0, 1.0, (0.0, 0.3), (1.0, 0.0)),
    "a heavy one": (10.0, 1.0, (0.0, 0.3), (1.0, 0.0)),
    "a light one": (1.0, 10.0, (0.0, 0.3), (1.0, 0.0)),
    "never meet": (1.0, 2.0, (0.0, 0.5), (-1.0, 0.5)),
    "both at rest": (1.0, 2.0, (0.0, 0.5), (0.0, 0.0)),
}


@pytest.mark.parametrize("system, scheme, linear, dtype", cells(["balls"], SCHEMES, (), (), trees=()))
def test_balls_that_collide_keep_their_momentum(system, scheme, linear, dtype):
    models = [balls(dtype, m1, m2) for m1, m2, _, _ in BALLS.values()]
    states = [pbad.make_state(model, q, v) for model, (_, _, q, v) in zip(models, BALLS.values())]
    traj, info = many(options(scheme))(stacked(models), stacked(states))
    eps = 1e-10 if dtype == "float64" else 1e-4
    for i, (name, (m1, m2, q0, v0)) in enumerate(BALLS.items()):
        assert not np.asarray(info.status[i]).any(), (name, np.asarray(info.status[i]))
        q, v, m = np.asarray(traj.q[i], float), np.asarray(traj.v[i], float), np.array([m1, m2])
        np.testing.assert_allclose(v @ m, np.dot(v0, m), rtol=0, atol=eps * m.sum(), err_msg=name)
        energy = 0.5 * v**2 @ m
        assert energy.max() < 0.5 * np.dot(m, np.square(v0)) * (1 + eps) + eps, name
        assert v[-1, 1] - v[-1, 0] > -eps * 10, (name, v[-1])  # they part, or go on together
        assert np.min(q[:, 1] - q[:, 0]) > 2 * R - 0.02, (name, np.min(q[:, 1] - q[:, 0]))
        if name in ("never meet", "both at rest"):
            np.testing.assert_allclose(q[-1], np.add(q0, np.multiply(v0, N * DT)), rtol=0, atol=10 * eps)


@pytest.mark.thorough
def test_three_discs_are_three_times_one():
    model = disc("float64")
    states = [pbad.make_state(model, s.q, s.v) for s in list(DISCS.values())[2:5]]
    three_are_three_times_one(model, states, options("radau2"), 1e-7)


@pytest.mark.parametrize("make", [block, disc, lambda dtype: balls(dtype, 1.0, 1.0)], ids=["block", "disc", "balls"])
def test_schemes_with_history_refuse_what_touches(make):
    model = make("float64")
    for scheme in ("legendre2", "legendre3"):
        with pytest.raises(pbad.OptionError, match="act once a step"):
            pbad.rollout(model, pbad.make_state(model), n_steps=1, options=options(scheme))
