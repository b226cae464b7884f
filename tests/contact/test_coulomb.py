"""Friction by all of the normal force of the same step: exact in a blow, however long the step is."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, assert_close, thorough

import pbad_jax as pbad
from pbad_jax import Body, Geom, Joint, forces
from pbad_jax.contact.coulomb import sliding

G = 9.81
MU, FALL, DT = (
    x.reshape(-1) for x in np.meshgrid([0.2, 0.5, 1.0], [1.0, 3.0, 8.0], [1e-3, 5e-3, 2e-2, 5e-2], indexing="ij")
)
WAYS = {
    "ball": [
        Joint("slide", (1, 0, 0), name="x"),
        Joint("slide", (0, 1, 0), name="y"),
        Joint("slide", (0, 0, 1), name="z"),
    ],
    "box": [
        Joint("slide", (1, 0, 0), name="x"),
        Joint("slide", (0, 1, 0), name="y"),
        Joint("slide", (0, 0, 1), name="z"),
    ],
}
GEOMS = {"ball": Geom("sphere", (0.1,)), "box": Geom("box", (0.1, 0.1, 0.1))}


@functools.cache
def landings(shape: str, scheme: str, n_steps: int = 12):
    """v of lanes, before and after every step, of what cannot turn and comes down obliquely."""
    body = Body("b", 1.0, inertia=0.004 * np.eye(3), joints=WAYS[shape], geoms=[GEOMS[shape]])
    bare = pbad.build_model([body], dtype=DTYPE)
    touch = forces.contact(bare)
    step = pbad.make_step(pbad.Options(dt=0.01, scheme=scheme))
    state = pbad.make_state(bare)

    @jax.jit
    @jax.vmap
    def lane(mu, fall, dt):
        model = dataclasses.replace(
            bare, forces=(*bare.forces, dataclasses.replace(touch, friction=mu + 0 * touch.friction))
        )
        away = mu * (fall + G * n_steps * dt) + 1.0  # so fast that it slides on
        v = jnp.stack([0.8 * away, 0.6 * away, -fall])
        begun = dataclasses.replace(
            state, q=jnp.zeros(3, v.dtype).at[2].set(0.1 + 1.5 * dt * fall), v=v, history=state.q
        )

        def one(s, _):
            s, info = step(model, s, dt=dt)
            return s, (s.v, info.status)

        return v, *jax.lax.scan(one, begun, None, length=n_steps)[1]

    return [np.asarray(x, float) for x in lane(*(jnp.asarray(x, DTYPE) for x in (MU, FALL, DT)))]


@pytest.mark.parametrize(
    "shape, scheme", [thorough("ball", "radau1"), ("box", "radau1"), *(thorough(x, "radau2") for x in ("ball", "box"))]
)
def test_what_lands_obliquely_is_slowed_by_coulombs_law(shape, scheme):
    """The tangential speed falls by μ times what the ground has given along its normal, in every step and direction."""
    v0, v, status = landings(shape, scheme)
    assert not status.any()
    given = v[:, :, 2] - v0[:, None, 2] + G * DT[:, None] * np.arange(1, 13)  # of the ground, m/s
    assert np.all(given[:, -1] > 0.5 * FALL), "they have landed"
    slowed = np.linalg.norm(v0[:, None, :2] - v[:, :, :2], axis=-1)
    assert_close(slowed, MU[:, None] * given, 1e-3 if DTYPE == jnp.float64 else 3e-3)
    assert_close(v[..., 0] * 0.6, v[..., 1] * 0.8, 1e-4)


def test_the_velocity_at_which_friction_would_have_it_slide():
    """Its equation, from where it sticks to where it slides, for all grips."""
    grip, size = (x.reshape(-1) for x in np.meshgrid(np.logspace(-8, 4, 40), np.r_[0, np.logspace(-9, 3, 80)]))
    bend = np.outer(np.logspace(-8, 4, 40), [0.9, 0.99, 0.999, 1, 1.001, 1.01, 1.1]).reshape(-1)
    grip, size = np.r_[grip, np.repeat(np.logspace(-8, 4, 40), 7)], np.r_[size, bend]
    s = jnp.full(len(grip), 1e-3, DTYPE)
    target = jnp.asarray(np.c_[0.6 * size, 0.8 * size, 0 * size], DTYPE)
    omega = np.asarray(sliding(target, jnp.asarray(grip, DTYPE), s), float)
    r = np.linalg.norm(omega, axis=1)
    eps = float(jnp.finfo(DTYPE).eps)
    assert np.all(np.abs(r + grip * r / np.sqrt(r**2 + 1e-6) - size) <= 100 * eps * (size + 1e-12))


@pytest.mark.slow
@pytest.mark.float64
@pytest.mark.parametrize("scheme", ["radau1", "radau2"])
def test_a_rod_that_friction_jams(scheme):
    """A leg that is pushed along steeply is caught by its own friction, and is not lost: Painlevé's case."""
    leg = Body("leg", 1.0, (0, 0, -0.5), np.diag([1 / 12, 1 / 12, 1e-3]), joints=[Joint("slide", (1, 0, 0), name="x"),
               Joint("hinge", (0, 1, 0), name="h")], geoms=[Geom("sphere", (0.02,), (0, 0, -1.0))])  # fmt: skip
    bare = pbad.build_model([leg], dtype=DTYPE)
    ground = forces.half_space(offset=-0.96)
    model = pbad.with_forces(bare, forces.contact(bare, ground, friction=1.5))
    state = pbad.make_state(model, [0.0, 0.3], [-3.0, 0.0])
    _, info = pbad.rollout(model, state, n_steps=40, options=pbad.Options(dt=0.02, scheme=scheme))
    assert bool(info.ok), info
