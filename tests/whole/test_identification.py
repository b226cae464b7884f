"""Identification: masses, centres of mass and damping of an arm out of a noisy motion."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, forces

pytestmark = [pytest.mark.slow, pytest.mark.float64]
DT, STEPS, NOISE = 0.02, 100, 0.01
BODIES, JOINTS = ("elbow", "tool"), (1, 3)  # whose mass and centre of mass, and where whose damping, is sought
HEIGHT = 9  # the column of z of the centre of mass in inertial parameters

#          name        length mass  com z damping axis
LINKS = [
    ("base", 0.16, 4.0, 0.10, 0.6, (0, 0, 1)),
    ("shoulder", 0.20, 4.0, 0.06, 0.6, (0, 1, 0)),
    ("upper", 0.20, 3.0, 0.13, 0.4, (0, 0, 1)),
    ("elbow", 0.20, 2.7, 0.07, 0.4, (0, 1, 0)),
    ("forearm", 0.20, 1.7, 0.10, 0.2, (0, 0, 1)),
    ("wrist", 0.10, 1.8, 0.05, 0.2, (0, 1, 0)),
    ("tool", 0.12, 1.0, 0.08, 0.1, (0, 0, 1)),
]


@functools.cache
def arm() -> pbad.Model:
    """Seven hinges, upright at q = 0, a motor on each."""
    bodies, below = [], 0.0
    for k, (name, length, mass, height, damping, axis) in enumerate(LINKS):
        joint = Joint("hinge", axis, name=f"joint{k}", damping=damping, armature=0.02)
        com = (0.02 if k % 2 else -0.015, 0.01 * (k % 3 - 1), height)
        inertia = mass * np.diag([length**2 / 8 + 1e-3, length**2 / 8 + 1e-3, 3e-3])
        bodies.append(Body(name, mass, com, inertia, k - 1 if k else None, (0, 0, below), joints=[joint]))
        below = length
    return pbad.build_model(bodies, actuators=[Actuator(f"joint{k}") for k in range(7)], name="arm")


def with_parameters(p) -> pbad.Model:
    """The arm with p (6,): two log masses, two heights of the centre of mass (m), two log dampings."""
    model = arm()
    theta = pbad.inertial_parameters(model, BODIES).at[:, 0].set(p[:2] / 2).at[:, HEIGHT].set(p[2:4])
    model = pbad.with_inertial_parameters(model, theta, BODIES)

    def damped(force):
        if forces.name_of(force) != "JointDamping":
            return force
        return force.changed(coefficient=force.law.coefficient.at[jnp.array(JOINTS)].set(jnp.exp(p[4:])))

    return dataclasses.replace(model, forces=tuple(damped(f) for f in model.forces))


def physical(p) -> np.ndarray:
    """kg, m, N m s/rad."""
    return np.r_[np.exp(p[:2]), p[2:4], np.exp(p[4:])]


def torques() -> np.ndarray:
    """(T,7) N m: sines of seven frequencies."""
    t = DT * np.arange(STEPS)[:, None]
    frequency, size = [0.9, 0.6, 1.1, 1.3, 1.7, 1.9, 2.3], [6, 15, 6, 8, 2, 2, 1]
    return size * np.sin(2 * np.pi * t * frequency + np.arange(7))


def motion(p):
    """q and v of 2 s (T,14), twice: once to be differentiated, once as it is; and all statuses."""
    state = pbad.make_state(arm(), [0.3, 2.2, 0.2, 0.9, 0.1, -0.7, 0.2])
    traj, info = pbad.rollout(with_parameters(p), state, torques(), options=pbad.Options(dt=DT), progress=False)
    x = jnp.concatenate([traj.q, traj.v], axis=1)
    return x, (x, info.status)


def fit(slopes, data, scale, p, iterations: int = 20):
    """Levenberg–Marquardt. slopes: p -> (∂x/∂p, (x, status)). Returns p and the mean square of the residual."""

    def at(p):
        J, (x, status) = slopes(p)
        assert np.all(status == pbad.Status.CONVERGED)
        r = ((np.asarray(x) - data) / scale).ravel()
        return np.asarray(J / scale[:, None]).reshape(r.size, -1), r

    (J, r), damping = at(p), 1e-2
    for _ in range(iterations):
        M = J.T @ J
        change = -np.linalg.solve(M + damping * np.diag(np.diag(M)), J.T @ r)
        J_new, r_new = at(p + change)
        if r_new @ r_new < r @ r:
            p, J, r, damping = p + change, J_new, r_new, damping / 10
        else:
            damping *= 10
        if np.abs(change).max() < 1e-7:
            break
    return p, r @ r / r.size


def test_six_parameters_of_an_arm_out_of_a_noisy_motion():
    """Noise of 1 % of every channel's deviation, 2 s at 50 Hz; 6 parameters within 1 %, from starts up to 50 % off."""
    theta = np.asarray(pbad.inertial_parameters(arm(), BODIES))
    true = np.r_[2 * theta[:, 0], theta[:, HEIGHT], np.log([LINKS[j][4] for j in JOINTS])]
    slopes = jax.jit(jax.jacfwd(motion, has_aux=True))
    _, (exact, _) = slopes(true)
    exact, errors = np.asarray(exact), []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        scale = NOISE * exact.std(axis=0)
        data = exact + scale * rng.normal(size=exact.shape)
        off = rng.uniform(0.6, 1.5, 6)
        start = np.r_[true[:2] + np.log(off[:2]), true[2:4] * off[2:4], true[4:] + np.log(off[4:])]
        found, misfit = fit(slopes, data, scale, start)
        errors.append(100 * (physical(found) / physical(true) - 1))
        print(f"errors (%): {np.round(errors[-1], 2)}, misfit {misfit:.2f}")
        assert 0.9 < misfit < 1.1
    assert np.abs(errors).max() < 1
