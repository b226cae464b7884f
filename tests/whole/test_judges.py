"""The judges of `python -m tests.torture` judged: steps that are right pass, falsified ones are flagged, each kind."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import judges
import numpy as np
import pytest
import torture_steps
from judges import Mechanics, Steps, Touching

import pbad_jax as pbad
from pbad_jax.kinematics import manifold
from pbad_jax.schemes import NAMES

pytestmark = pytest.mark.float64

N, M, R, INERTIA, MU, DT, G = 32, 1.5, 0.1, 0.006, 0.5, 0.01, 9.81
LOOSE = 1e-6  # as in double precision


def body(v, w, z, U) -> Mechanics:
    """Of a ball with the velocities v, w (n,3), the height z (n,)."""
    T = 0.5 * M * np.sum(v**2, -1) + 0.5 * INERTIA * np.sum(w**2, -1)
    return Mechanics(T, U + M * 9.81 * z, M * v, INERTIA * w, np.c_[0 * z, 0 * z, z])


def landing() -> tuple[Steps, Touching]:
    """A sliding ball is stopped by the ground, and turned by its friction; nothing bounces."""
    rng = np.random.default_rng(0)
    v0 = np.c_[rng.normal(size=(N, 2)), -rng.uniform(0.5, 2, N)]
    w0, z0 = rng.normal(size=(N, 3)), np.full(N, R - 1e-3)
    slip = v0 + np.cross(w0, [0, 0, -R])
    slip[:, 2] = 0
    most = np.linalg.norm(slip, axis=1) / (1 / M + R**2 / INERTIA)
    J = (
        -slip
        / np.linalg.norm(slip, axis=1)[:, None]
        * np.minimum(0.9 * most, 0.99 * MU * M * (G * DT - v0[:, 2]))[:, None]
    )
    J[:, 2] = -M * v0[:, 2] + M * 9.81 * DT
    weight = np.tile([0, 0, -M * 9.81], (N, 1))
    v1, w1 = v0 + (J + weight * DT) / M, w0 + np.cross([0, 0, -R], J * [1, 1, 0]) / INERTIA
    steps = Steps(np.full(N, DT), np.full(N, M), weight, body(v0, w0, z0, 0), body(v1, w1, z0, 0), v0, v1, DT * v1)
    return steps, Touching(np.zeros((1, 3)), R, np.full(N, MU), np.ones(N, bool))


def after(s: Steps, **changes) -> Steps:
    return s._replace(after=s.after._replace(**changes))


def test_what_contact_gives():
    steps, touching = landing()
    turn = np.linalg.norm(steps.before.L, axis=1) / INERTIA * DT
    P, L, T = steps.after.P, steps.after.L, steps.after.T

    def verdict(s):
        found = judges.wrong_wrench(s, touching, 0 * turn, LOOSE) | {"energy": judges.makes_energy(s, 0.01, LOOSE)}
        return {why for why, x in found.items() if x.all()}, {why for why, x in found.items() if x.any()}

    assert verdict(steps) == (set(), set())
    false = {
        "energy": after(steps, T=T + 1.05 * steps.before.T - T),
        "pulled": after(steps, P=steps.before.P + [0, 0, -1.0]),
        "cone": after(steps, P=P + [4.0, 0, 0]),
        "balance": after(steps, L=steps.before.L),  # friction without its moment
        "moment": after(steps, L=L + [0, 0, 0.5]),  # out of nothing
    }
    for why, s in false.items():
        assert why in verdict(s)[0], why


@pytest.mark.parametrize("by", [1.01, 0.99, -1.0])
def test_momenta_that_nothing_has_changed(by):
    """One per cent more, less, and turned round; linear of any step, angular of one that turns little."""
    rng = np.random.default_rng(1)
    v, w, z = rng.normal(size=(N, 3)), rng.normal(size=(N, 3)), rng.normal(size=N)
    same = body(v, w, z, 0)
    steps = Steps(np.full(N, DT), np.full(N, M), np.zeros((N, 3)), same, same, v, v, DT * v)
    turn = DT * np.linalg.norm(w, axis=1)
    assert turn.max() < 0.05
    assert not judges.changes_momentum(steps, LOOSE).any() and not judges.changes_spin(steps, turn, LOOSE).any()
    assert judges.changes_momentum(after(steps, P=by * same.P), LOOSE).all()
    assert judges.changes_spin(after(steps, L=by * same.L), turn, LOOSE).all()
    assert not judges.changes_spin(after(steps, L=0.5 * same.L), turn + 1, LOOSE).any()  # radau(1) does so
    assert judges.changes_spin(after(steps, L=1.5 * same.L), turn + 1, LOOSE).all()


def test_energy_that_comes_from_nowhere():
    """Five per cent of what there was; a fall is no gain."""
    rng = np.random.default_rng(2)
    v, w, z = rng.normal(size=(N, 3)), rng.normal(size=(N, 3)), rng.normal(size=N)
    same = body(v, w, z, 3.0)
    steps = Steps(np.full(N, DT), np.full(N, M), np.zeros((N, 3)), same, same, v, v, DT * v)
    assert not judges.makes_energy(steps, 0.01, LOOSE).any()
    assert not judges.makes_energy(after(steps, T=same.T + 5, U=same.U - 5), 0.01, LOOSE).any()
    assert judges.makes_energy(after(steps, T=1.05 * same.T), 0.01, LOOSE).all()
    assert judges.makes_energy(after(steps, U=same.U + 0.05 * same.T), 0.01, LOOSE).all()


def test_a_wall_between():
    """A ball of 0.1 m on both sides of a box; beside it; into it and out again is what contact does."""
    half, rim = np.tile([0.1, 1.0, 1.0], (N, 1)), np.zeros(N)
    distance = functools.partial(torture_steps.rounded_box, half, rim)
    rng = np.random.default_rng(3)
    y = rng.uniform(-0.5, 0.5, (N, 2))
    left, right = np.c_[np.full(N, -0.25), y], np.c_[np.full(N, 0.3), y]
    assert judges.goes_through(left, right, distance, R, 0.7).all()
    assert not judges.goes_through(left, left + [0.1, 0.3, 0], distance, R, 0.7).any()
    assert not judges.goes_through(left + [0, 1.6, 0], right + [0, 1.6, 0], distance, R, 0.7).any()


def test_hinges_that_turn_further_than_their_rates():
    v = np.array([[1.0, -2.0]])
    none = Mechanics(*(np.zeros((1, *x)) for x in ((), (), (3,), (3,), (3,))))
    hinges = np.array([0, 1])

    def verdict(moved, rate):
        s = Steps(np.ones(1), np.ones(1), np.zeros((1, 3)), none, none, v, v * rate, np.array([moved]))
        return judges.turns_too_far(s, hinges, LOOSE)[0]

    assert not verdict([0.8, -1.5], 0.5)
    assert verdict([0.8 + 2 * np.pi, -1.5], 0.5) and verdict([0.8, 4.0], 0.5) and verdict([8.0, -16.0], 10.0)


@pytest.mark.parametrize("scheme", ["radau1"])
def test_a_root_of_another_branch(scheme):
    """A rotor at v rad a step: radau(1) has the roots v, which grows out of the start, and v + π."""
    joint = pbad.Joint("hinge", (1, 0, 0))
    rod = pbad.Body("rod", 1.0, com=(0, 0, -0.5), inertia=0.1 * np.eye(3), joints=[joint])
    model = pbad.build_model([rod], gravity=(0, 0, 0))
    speeds = jnp.arange(0.25, 6.2, 0.5)
    states = jax.vmap(lambda v: pbad.make_state(model, [0.0], v[None]))(speeds)
    follow = functools.partial(judges.followed, model, NAMES[scheme]())
    q, by = jax.jit(jax.vmap(lambda s: follow(s, 1.0, 50)))(states)
    np.testing.assert_allclose(q[:, 0], speeds, atol=1e-9)
    assert np.all(np.asarray(by) < 1e-9)
    for claim, is_right in ((speeds, True), (speeds + np.pi, False)):
        assert np.all((np.abs(np.asarray(q[:, 0]) - claim) < 1e-5) == is_right)


@pytest.mark.thorough
def test_true_steps_pass_and_falsified_ones_do_not():
    """Two balls that meet, or miss: what the library claims, and the same with a lie of each kind."""
    system = torture_steps.SYSTEMS["two balls"](np.dtype("float64"))
    numbers, state, end, status, s, run = next(torture_steps.rounds(system, "radau1", 64, 1, 7))
    good = (status == 0) & (torture_steps.turns(s, slice(3, 6)) < 0.05) & (torture_steps.turns(s, slice(9, 12)) < 0.05)
    assert good.sum() > 16

    def verdict(end):
        b = jax.tree.map(np.asarray, run.measure(torture_steps.cast(numbers, system.model.dtype), end))
        moved = jax.vmap(lambda a, b: manifold.difference(system.model, a, b))(state.q, end.q)
        told = s._replace(after=b, v1=np.asarray(end.v), moved=np.asarray(moved))
        found = system.judge(told, numbers, torture_steps.Ends(np.asarray(state.q), np.asarray(end.q)), LOOSE)
        return found | {"energy": judges.makes_energy(told, system.allowed, LOOSE)}

    assert not any(np.any(good & x) for x in verdict(end).values())
    faster = dataclasses.replace(end, v=end.v.at[:, :3].multiply(1.01))
    assert np.all(verdict(faster)["momentum"][good])
    back = dataclasses.replace(end, v=-end.v)
    assert np.all(verdict(back)["momentum"][good])
    across = 2 * (state.q[:, :3] - state.q[:, 7:10])  # to the other side of the first
    through = dataclasses.replace(end, q=end.q.at[:, 7:10].set(state.q[:, 7:10] + across))
    assert np.all(verdict(through)["went through"][good])
    hot = dataclasses.replace(end, v=end.v.at[:, :3].add(2 * state.v[:, :3]).at[:, 6:9].add(-2 * state.v[:, :3]))
    assert np.any(verdict(hot)["energy"][good])
