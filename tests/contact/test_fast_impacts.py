"""What is small and fast does not go through what is thin, nor ends its lane; what cannot be carried is told."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import thorough

import pbad_jax as pbad
from pbad_jax import Body, Geom, Joint, forces
from pbad_jax.step import substeps
from pbad_jax.step.options import resolve

pytestmark = pytest.mark.float64

N = 8  # steps of which the first or the second hits
UNIT = 0.01  # m, what is shot; lanes are so many times as large
# m: radius; m/s; s; m: half the wall
LANES = np.array(list(itertools.product((0.001, 0.005, 0.05), (1.0, 5.0, 50.0), (0.002, 0.02), (0.001, 0.005))))


def shot(name: str, geom: Geom) -> Body:
    return Body(name, 0.01, inertia=np.eye(3) * 4e-7, joints=[Joint("free", name=name)], geoms=[geom])


BALL, CUBE = Geom("sphere", (UNIT,)), Geom("box", (UNIT,) * 3)
ROD = Geom("capsule", (UNIT, 2 * UNIT), quaternion=(1, 0, 1, 0))
WALL = (1.0, 1.0, 0.005)


@functools.partial(jax.jit, static_argnames=("scheme", "mode"))
def flown(model, q, v, dt, scheme: str, mode: str):
    """q, statuses, parts of N steps of every lane."""
    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme, on_failure=mode))

    def lane(model, q, v, dt):
        def body(state, _):
            after, info = step(model, state, dt=dt)
            return after, (after.q, after.v, info.status, info.substeps)

        return jax.lax.scan(body, pbad.make_state(model, q, v), None, length=N)[1]

    return jax.vmap(lane)(model, q, v, dt)


def in_lanes(model, change):
    """The model with its last force changed by (force, lane) in every lane."""
    own = [change(model.forces[-1], lane) for lane in LANES]
    models = [dataclasses.replace(model, forces=(*model.forces[:-1], force)) for force in own]
    return jax.tree.map(lambda *x: jnp.stack(x), *models)


def scaled(force, s):
    """A contact of bodies s times as large."""
    u = force.u.at[..., :3].multiply(s) if hasattr(force, "u") else None
    if u is None:
        return dataclasses.replace(force, points=force.points * s, axes=force.axes * s, radius=force.radius * s)
    sizes = {"half": force.half * s} if hasattr(force, "half") else {}
    return dataclasses.replace(force, u=u, radius=force.radius * s, **sizes)


def against(kind: str):
    """A model in lanes, and the height of what each lane hits."""
    geom, r, wall = CUBE if kind == "cube" else BALL, LANES[:, 0], LANES[:, 3]
    model = pbad.build_model([shot("a", geom)], gravity=(0, 0, -9.81) if kind == "plane" else (0, 0, 0))
    if kind in ("wall", "cube", "plane", "ball in the world"):
        surface = {"plane": forces.half_space(), "ball in the world": forces.sphere((0, 0, 0), 0.005)}
        model = pbad.with_forces(model, forces.contact(model, surface.get(kind, forces.box((0, 0, 0), WALL))))

        def change(force, lane):
            s, surface = lane[0] / UNIT, force.surface
            if kind in ("wall", "cube"):
                surface = dataclasses.replace(surface, half=jnp.array([1.0, 1.0, lane[3]]))
            if kind == "ball in the world":
                surface = dataclasses.replace(surface, radius=jnp.asarray(lane[3]))
            return dataclasses.replace(scaled(force, s), surface=surface)

        return in_lanes(model, change), 0 * r if kind == "plane" else wall
    geoms = {"balls": (BALL, BALL), "rods": (ROD, ROD), "ball and cube": (BALL, CUBE)}[kind]
    model = pbad.build_model([shot(n, g) for n, g in zip("ab", geoms)], gravity=(0, 0, 0))
    (force,) = forces.contact_between(model, [("a", "b")])
    return in_lanes(pbad.with_forces(model, force), lambda force, lane: scaled(force, lane[0] / UNIT)), r


@pytest.mark.parametrize(
    "kind, scheme",
    [
        ("wall", "radau1"),
        *(thorough(kind, "radau1") for kind in ("plane", "cube", "balls", "rods", "ball and cube")),
        *(thorough(kind, "radau2") for kind in ("wall", "balls", "ball in the world")),
    ],
)
def test_what_is_small_and_fast_is_stopped(kind, scheme):
    """1 mm to 5 cm, 1 to 50 m/s, 2 and 20 ms: all steps are made, in parts where needed, and nobody gets across."""
    models, top = against(kind)
    r, speed, dt, _ = LANES.T
    ahead = np.random.default_rng(0).uniform(size=len(r)) * speed * dt
    both = kind in ("balls", "rods", "ball and cube")
    q, v = np.zeros((len(r), 14 if both else 7)), np.zeros((len(r), 12 if both else 6))
    q[:, 3::7], q[:, 2], v[:, 2] = 1, top + r + ahead * (1.5 if both else 1), -speed
    if both:
        v[:, 8] = 0.5 * speed
    path, rates, status, parts = map(np.asarray, flown(models, *map(jnp.asarray, (q, v, dt)), scheme, "substep"))
    across = path[:, :, 2] - (path[:, :, 9] if both else 0.0)
    print(
        kind, scheme, "failed", np.count_nonzero(status), "parts", parts.max(), "nearest", (across / r[:, None]).min()
    )
    assert not status.any() and (parts.max() > 1 or kind in ("plane", "ball and cube"))  # a plane has no other side
    assert np.all(across > 0)
    energy = np.sum(rates[..., 2::6] ** 2, axis=-1)
    assert np.all(energy <= 1.01 * np.sum(v[:, 2::6] ** 2, axis=-1)[:, None] + 2 * 9.81 * (kind == "plane") * q[:, 2:3])


@pytest.mark.slow
@pytest.mark.thorough
def test_a_whole_step_through_a_wall_still_says_so():
    """Without parts no lane ends behind the wall with all its steps made, and the fast ones do fail."""
    models, top = against("wall")
    r, speed, dt, _ = LANES.T
    q, v = np.zeros((len(r), 7)), np.zeros((len(r), 6))
    q[:, 3], q[:, 2], v[:, 2] = 1, top + r + 0.3 * speed * dt, -speed
    path, _, status, _ = map(np.asarray, flown(models, *map(jnp.asarray, (q, v, dt)), "radau1", "freeze"))
    assert np.all(path[:, :, 2] > 0)
    told = (status == pbad.Status.BRANCH).any(axis=1)
    assert told[speed * dt > 0.9].all() and not told[(r == 0.05) & (speed == 1)].any()


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["radau1", "radau2"])
def test_a_blow_is_along_its_first_normal(scheme):
    """Two balls nearly head-on, 16 radii a step: at the end they lay side by side, pushed apart through one another.

    Along the normal of the first touch, 9.6 degrees off the way, the first keeps half of its velocity.
    """
    geom = Geom("sphere", (0.003,))
    bodies = [
        Body(n, 1e-4, inertia=4e-10 * np.eye(3), position=(0, y, 0), joints=[Joint("free", name=n)], geoms=[geom])
        for n, y in (("a", 0.0), ("b", 0.001))
    ]
    model = pbad.build_model(bodies, gravity=(0, 0, 0))
    model = pbad.with_forces(model, *forces.contact_between(model, [("a", "b")]))
    n = 64
    q = np.tile(np.asarray(model.q0), (n, 1))
    q[:, 0] = -0.03 - np.linspace(0, 0.05, n, endpoint=False)
    v = np.tile(np.r_[5.0, np.zeros(11)], (n, 1))
    for mode in ("freeze", "substep"):
        _, last, status, _ = flown(
            jax.tree.map(lambda x: jnp.stack([x] * n), model), q, v, np.full(n, 0.01), scheme, mode
        )
        good = np.all(np.asarray(status) == 0, axis=1)
        kept = np.asarray(last)[good, -1, 0]
        assert good.mean() > 0.95 if mode == "substep" else not np.any(kept > 3.1), (mode, good.mean(), kept)
    assert np.mean(kept > 3.1) < 0.2, kept  # parts of less than 20 degrees each


def test_parts_are_halved_to_the_limit_after_branch_alone():
    """The grid is exact: what is done and the next part make whole numbers, and the last one ends the step."""
    model = pbad.build_model([shot("a", BALL)])
    config = resolve(pbad.Options(dt=1.0, scheme="radau1"), model)
    state = pbad.make_state(model)
    for status, least in ((pbad.Status.BRANCH, 1), (pbad.Status.STALLED, substeps.LEAST)):
        rule = substeps.Rule(None, 1, 1.0, 64)
        p, lengths = substeps.none_yet(model, config, state, 1.0, rule), []
        info = dataclasses.replace(p.info, status=jnp.int8(status))
        while substeps.go_on(p, rule):
            lengths.append(int(p.length))
            p = substeps.joined(p, state, info, rule)
        assert lengths[0] == substeps.FINEST and lengths[-1] == least and np.all(np.diff(np.log2(lengths)) == -1)


# --- what cannot be carried ------------------------------------------------------------------------------------


@jax.jit
def pressed(model, pushes):
    """Statuses of 300 steps of 1 ms (lanes,300), where the model's wrenches are so many times as strong."""
    step = pbad.make_step(pbad.Options(dt=0.001, scheme="radau1"))

    def lane(push):
        own = (dataclasses.replace(f, force=push * f.force) if hasattr(f, "torque") else f for f in model.forces)
        pushed = dataclasses.replace(model, forces=tuple(own))

        def body(state, _):
            state, info = step(pushed, state)
            return state, info.status

        return jax.lax.scan(body, pbad.make_state(model), None, length=300)[1]

    return jax.vmap(lane)(pushes)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["cube on the ground", "balls", "cubes"])
def test_what_cannot_be_carried_says_so(kind):
    """A gram is held by 10 N/m a place, by which 2 N would press it through; the stop holds it, but not twenty tons."""
    light = {"mass": 1e-3, "inertia": np.eye(3) * 4e-8}
    geom = BALL if kind == "balls" else CUBE
    bodies = [dataclasses.replace(shot(n, geom), **light, position=(0, 0, z)) for n, z in zip("ab", (UNIT, 3 * UNIT))]
    if kind == "cube on the ground":
        model = pbad.build_model(bodies[:1])
        laws = (forces.contact(model), forces.wrench(model, "a", (0, 0, -1)))
    else:
        model = pbad.build_model(bodies, gravity=(0, 0, 0))
        pushes = (forces.wrench(model, "a", (0, 0, 1)), forces.wrench(model, "b", (0, 0, -1)))
        laws = (*forces.contact_between(model, [("a", "b")]), *pushes)
    status = np.asarray(pressed(pbad.with_forces(model, *laws), jnp.array([0.0, 0.02, 2.0, 2e5])))
    failed = [set(row[row != 0]) - {pbad.Status.FROZEN} for row in status]
    assert failed == [set(), set(), set(), {pbad.Status.BRANCH}], failed
