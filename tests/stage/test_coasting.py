"""Coasting: its rates are its derivatives, it is how free bodies move, and steps that take it away keep what turns.

The judges are differences in time, scipy's integrator on Euler's equations, and closed forms.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOAT32, random_model, random_q, slow, thorough
from scipy.integrate import solve_ivp

import pbad_jax as pbad
from pbad_jax import Body, Joint
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.kinematics.turning import turning
from pbad_jax.stage import coasting
from pbad_jax.stage.start import step_start

FREE = ["radau1", "radau2", "dirk2", *map(thorough, ("radau3", "dirk3", "dirk4"))]
RNG = np.random.default_rng(0)


def started(model, q, v):
    return step_start(model, pbad.make_state(model, q, v), jnp.zeros(model.nu, model.dtype))


def box(**how):
    """1, 2 and 3 kg m² about its axes, its centre of mass beside the joint."""
    body = Body("box", 1.0, inertia=np.diag([1.0, 2.0, 3.0]), joints=[Joint("free")], **how)
    return pbad.build_model([body], gravity=(0, 0, 0))


@pytest.mark.float64
@pytest.mark.parametrize("topology", ["free", "balls", "three roots", "slides and hinges", "many joints"])
def test_rates_are_derivatives(topology):
    """Of w T_c by time, all entries, in steps of 1e-4 dt about each node; T_c begins with q_k and v_k."""
    model = random_model(topology, 5)
    q, v = random_q(model, RNG), 0.7 * RNG.normal(size=model.nv)
    nodes, h = np.array([0.3, 0.8, 1.0]), 1e-4
    times = jnp.asarray(np.concatenate([nodes, nodes - h, nodes + h, [1e-9]]))
    c = jax.tree.map(np.asarray, jax.jit(lambda s: coasting.coasting(model, s, 1.0, times))(started(model, q, v)))
    for x, dx, ddx in zip(c.delta, c.rate, c.accel):
        here, before, after = x[:3], x[3:6], x[6:9]
        size = 1 + np.abs(ddx).max()
        assert np.abs((after - before) / (2 * h) - dx[:3]).max() < 1e-5 * size
        assert np.abs((after - 2 * here + before) / h**2 - ddx[:3]).max() < 1e-4 * size
    for x, V in zip(c.rate, c.begun):
        assert np.abs(x[-1] - V).max() < 1e-6 * (1 + np.abs(V).max())


@pytest.mark.float64
def test_a_body_that_turns_freely_turns_as_euler_says():
    """Its centre of mass, beside its joint, goes straight on, and its rotation is that of scipy's integrator."""
    model, w = box(com=(0.3, -0.2, 0.5)), np.array([0.2, -0.3, 0.25])
    q, v = np.array([1.0, 2, 3, 0.5, 0.5, -0.5, 0.5]), np.array([0.3, 0.1, -0.2, *w])
    I = np.diag([1.0, 2.0, 3.0])

    def euler(_, y):
        R, w = y[:9].reshape(3, 3), y[9:]
        W = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        return np.concatenate([(R @ W).ravel(), np.linalg.solve(I, np.cross(I @ w, w))])

    start = started(model, q, v)
    R = np.asarray(start.frames.T[-1, :, :3])
    right = solve_ivp(euler, (0, 1), np.concatenate([R.ravel(), w]), "DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    c = coasting.coasting(model, start, 1.0, jnp.array([1.0]))
    assert np.abs(R + np.asarray(c.delta.T[0, -1, :, :3]) - right[:9].reshape(3, 3)).max() < 2e-7
    com = np.array([0.3, -0.2, 0.5, 1.0])
    assert np.abs(np.asarray(c.delta.T[0, -1] @ com - c.begun.T[-1] @ com)).max() < 1e-12
    assert np.abs(np.asarray(c.accel.T[0, -1] @ com)).max() < 1e-12


@pytest.mark.float64
def test_which_trees_turn_freely():
    """A free joint, a ball at the root; not a ball below a hinge, nor one beside other links."""
    spider, tops = pbad.spider(), pbad.chain(3, joint="ball")
    assert turning(spider.topology).floats.tolist() == [True] and turning(spider.topology).of_tree.all()
    assert turning(tops.topology).floats.tolist() == [False] and len(turning(pbad.chain(2).topology).balls) == 0
    planar = [Joint("slide", axis=(1, 0, 0)), Joint("slide", axis=(0, 0, 1)), Joint("ball")]
    assert not len(turning(pbad.build_model([Body("a", 1.0, inertia=np.eye(3), joints=planar)]).topology).balls)
    arm = [Body("a", 1.0, inertia=np.eye(3), joints=[Joint("hinge", (1, 0, 0))])]
    arm += [Body("b", 1.0, parent="a", inertia=np.eye(3), joints=[Joint("ball")])]
    assert not len(turning(pbad.build_model(arm).topology).balls)


@pytest.mark.float64
def test_the_share_is_what_joints_hold():
    """1 of wheels and free bodies, of two trees each its own; by the dense definition of ρ on a chain."""
    wheel = Body("wheel", 1.0, com=(0.1, 0, 0), inertia=np.eye(3), joints=[Joint("hinge", (0, 0, 1))])
    rods = [
        Body(f"rod{i}", 1.0, com=(0, 0, -0.5), inertia=0.1 * np.eye(3), parent=f"rod{i - 1}" if i else None,
             position=(0, 0, -1.0 if i else 0), joints=[Joint("hinge", (1, 0, 0))])
        for i in range(2)
    ]  # fmt: skip
    model = pbad.build_model([wheel, *rods], gravity=(0, 0, 0))
    start = started(model, [0.2, 0.5, -1.0], [3.0, 1.0, -2.0])

    def of(start):
        f = start.frames
        return coasting.share(model, start, transforms.centripetal_field(model, f, start.v), jnp.zeros(3))

    # ∂T/∂q by autodiff, T'' along the rates
    def T(d):
        return transforms.transforms(model, start.q + d)

    dT, M = np.asarray(jax.jacfwd(T)(jnp.zeros(3))), np.asarray(model.second_moment)
    accel = np.asarray(jax.jvp(lambda d: jax.jvp(T, (d,), (start.v,))[1], (jnp.zeros(3),), (start.v,))[1])
    last = tree(model.topology).of_root[-1]
    b = np.einsum("lijx,lij->x", dT[last], accel[last] @ M[last])[1:]
    mass = np.einsum("lijx,lijy->xy", dT[last], np.einsum("lijy,ljk->liky", dT[last], M[last]))[1:, 1:]
    rho = b @ np.linalg.solve(mass, b) / np.sum((accel[last] @ M[last]) * accel[last])
    w = np.asarray(of(start))
    assert abs(w[0] - 1) < 1e-12 and abs(w[1] - 1 / (1 + (rho / coasting.HELD) ** 2)) < 1e-12
    assert 0.05 < rho < 1


@pytest.mark.parametrize("scheme", FREE)
def test_a_wheel_keeps_its_speed(scheme):
    """1 rad a step for 50 steps, its centre of mass beside its axle, alone and on a cart that nothing drives."""
    axle = Joint("hinge", (0, 1, 0))
    wheel = Body("wheel", 1.0, com=(0, 0, 0.05), inertia=0.005 * np.eye(3), joints=[axle])
    cart = Body("cart", 5.0, inertia=np.eye(3), joints=[Joint("slide", axis=(1, 0, 0))])
    on_cart = dataclasses.replace(wheel, parent="cart", com=(0, 0, 0))
    for bodies, v in (([wheel], [50.0]), ([cart, on_cart], [2.0, 50.0])):
        model = pbad.build_model(bodies, gravity=(0, 0, 0))
        traj, info = pbad.rollout(
            model, pbad.make_state(model, v=v), n_steps=50, options=pbad.Options(dt=0.02, scheme=scheme)
        )
        assert bool(info.ok.all())
        assert np.abs(np.asarray(traj.v) / np.array(v) - 1).max() < (2e-5 if FLOAT32 else 1e-10)
        assert abs(float(traj.q[-1, -1]) - 50.0) < (2e-3 if FLOAT32 else 1e-8)


@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau1", "radau2", *map(thorough, ("radau3", "dirk2", "dirk3", "dirk4"))])
def test_a_wing_nut_flips_when_it_should(scheme):
    """Dzhanibekov's, at 0.1 rad a step for 100 steps of its flips: energy, angular momentum, and the times of two."""
    model = box(com=(0.1, 0.2, -0.1))
    v = np.array([0.3, 0, 0, 0.01, 5.0, 0.0])
    state = pbad.make_state(model, v=v)
    traj, info = pbad.rollout(model, state, n_steps=500, options=pbad.Options(dt=0.02, scheme=scheme))
    assert bool(info.ok.all())

    # Euler's equations in small steps
    def euler(_, w):
        return np.array([-w[1] * w[2], w[2] * w[0], -w[0] * w[1] / 3])

    def flips(_, w):
        return w[1]

    right = solve_ivp(euler, (0, 10), v[3:], "DOP853", rtol=1e-11, atol=1e-11, events=flips).t_events[0]
    w = np.asarray(traj.v[:, 4])
    k = np.flatnonzero(np.diff(np.sign(w)))
    found = 0.02 * (k + 1 + w[k] / (w[k] - w[k + 1]))
    assert len(found) == len(right) == 2 and np.abs(found / right - 1).max() < 0.005

    def kept(q, v):
        s = dataclasses.replace(state, q=q, v=v)
        return pbad.angular_momentum(model, s), pbad.linear_momentum(model, s), pbad.kinetic_energy(model, s)

    # about the centre of mass
    L, P, T = (np.asarray(x) for x in jax.vmap(kept)(traj.q, traj.v))
    L0, P0, T0 = (np.asarray(x) for x in kept(state.q, state.v))
    assert np.abs(L - L0).max() < 1e-6 * np.abs(L0).max() * 10
    assert np.abs(P - P0).max() < 1e-9 and np.abs(T / T0 - 1).max() < 1e-6


@pytest.mark.float64
@pytest.mark.parametrize("scheme", [thorough("radau1"), "radau2"])
def test_chains_do_not_gain_by_it(scheme):
    """From rest, 2 s in steps of 50 ms: never more than it began with, by 0.1 % of what there is."""
    model = pbad.chain(5, dtype=jnp.float64)
    tilts = np.linspace(0.6, 2.4, 16)
    q = np.stack([tilts, 0.1 * np.ones(16), *np.zeros((model.nq - 2, 16))], axis=1)
    states = jax.vmap(lambda q: pbad.make_state(model, q))(jnp.asarray(q))
    traj, info = pbad.rollout_batch(model, states, n_steps=40, options=pbad.Options(dt=0.05, scheme=scheme))
    assert bool(info.ok.all())

    def energy(q, v):
        s = pbad.make_state(model, q, v)
        return pbad.kinetic_energy(model, s) + pbad.potential_energy(model, s)

    E = np.asarray(jax.vmap(jax.vmap(energy))(traj.q, traj.v))
    E0 = np.asarray(jax.vmap(energy)(states.q, states.v))
    assert np.max(E - E0[:, None]) < 1e-3 * 9.81 * 5 * 2.5


@pytest.mark.parametrize("scheme", [slow("radau2"), thorough("dirk2")])
def test_gradients_of_what_coasts(scheme):
    """Of a free body's flight and a chain's swing, by the start, against differences."""
    for model in (box(com=(0.1, 0, 0)), pbad.chain(2)):
        q, v = jnp.asarray(random_q(model, RNG), model.dtype), jnp.asarray(RNG.normal(size=model.nv), model.dtype)
        report = pbad.check_gradients(model, pbad.make_state(model, q, v), options=pbad.Options(dt=0.1, scheme=scheme))
        assert report.ok, str(report)
