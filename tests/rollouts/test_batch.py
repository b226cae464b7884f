"""rollout_batch: the bits of the lanes' own rollouts, whatever the others do; queues, tiles, policies; bad input."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32, thorough

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, Status

pytestmark = [pytest.mark.float64, pytest.mark.optimised]

T = 12


@functools.cache
def limb() -> pbad.Model:
    """A driven hinge and a ball with a spring."""
    inertia = np.diag([2.0, 3.0, 4.0]) * 1e-2
    bodies = [
        Body("thigh", 1.0, (0.1, 0.0, -0.2), inertia, joints=[Joint("hinge", (0, 0.6, 0.8), name="hip", damping=0.1)]),
        Body("shin", 1.0, (0, 0.1, -0.2), inertia, "thigh", (0, 0, -0.4), joints=[Joint("ball", stiffness=2.0)]),
    ]
    return pbad.build_model(bodies, actuators=[Actuator("hip", gain=2.0)], dtype=DTYPE)


@functools.cache
def pendulum() -> pbad.Model:
    """A driven hinge: little to compile."""
    body = Body("b", 1.0, (0, 0, -1), np.eye(3) / 9, joints=[Joint("hinge", name="hip")])
    return pbad.build_model([body], actuators=[Actuator("hip")], dtype=DTYPE)


def states(n: int, model=pendulum) -> pbad.State:
    """Half of them gentle, half so quick that steps are hard and some fail."""
    rng = np.random.default_rng(0)
    speed = np.where(np.arange(n) % 2 == 0, 0.3, 60.0)[:, None]
    moves = jnp.asarray(rng.normal(size=(n, model().nv)), DTYPE)
    q = jax.vmap(lambda d: pbad.retract(model(), model().q0, d))(moves)
    v = jnp.asarray(speed * rng.normal(size=(n, model().nv)), DTYPE)
    return jax.vmap(lambda q, v: pbad.make_state(model(), q, v))(q, v)


def controls(n: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(5).normal(size=(n, T, 1)), DTYPE)


def options(scheme: str = "radau1", **more) -> pbad.Options:
    return pbad.Options(dt=0.05, scheme=scheme, max_iterations=30, **more)


def taken(tree, lanes):
    return jax.tree.map(lambda x: x[lanes], tree)


def assert_same(a, b) -> None:
    """Bit for bit: trajectories and infos."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_states_along_trajectories_of_one_lane_and_of_many():
    begun = states(6)
    many = pbad.Trajectory(*(x.reshape(2, 3, *x.shape[1:]) for x in (jnp.arange(6) * 0.1, begun.q, begun.v)))
    found = pbad.states_of(pendulum(), many)
    for i in np.ndindex(2, 3):
        one = pbad.make_state(pendulum(), many.q[i], many.v[i], time=float(many.time[i]))
        assert_same(jax.tree.map(lambda x: x[i], found), one)  # noqa: B023
    assert_same(pbad.states_of(pendulum(), taken(many, 0)), taken(found, 0))


@pytest.mark.parametrize(
    ("make", "scheme"),
    [
        (pendulum, "radau1"),
        thorough(pendulum, "dirk2"),
        thorough(limb, "radau2"),
        thorough(limb, "variational"),
        thorough(limb, "dirk3"),
        thorough(limb, "radau1"),
        thorough(limb, "legendre2"),
    ],
)
def test_equals_the_lanes_own_rollouts(make, scheme):
    """Bit for bit those of steps together, of lanes that end well or not; and to rounding those of vmap(rollout)."""
    model = make()
    start, u = states(16, make), controls(16)
    each = jax.jit(jax.vmap(lambda s, u: pbad.rollout(model, s, u, options=options(scheme), progress=False)))
    wanted = each(start, u)
    *got, report = pbad.rollout_batch(model, start, u, options=options(scheme), report=True)
    status = np.asarray(got[1].status)
    print(report, got[1])
    *together, steps = pbad.rollout_batch(model, start, u, options=options(scheme), schedule="step", report=True)
    assert_same(got, together)
    gentle = taken((wanted[0].q, wanted[1].status), slice(0, None, 2))
    np.testing.assert_allclose(got[0].q[::2], gentle[0], atol=1e-3 if FLOAT32 else 1e-9)
    np.testing.assert_array_equal(got[1].status[::2], gentle[1])
    assert report.rounds >= steps.rounds == T
    assert got[0].q.shape == (16, T, model.nq) and status.shape == (16, T)
    assert report.by == "iteration" and report.width == 16 and 0 < report.busy <= 1
    assert (status[::2] == Status.CONVERGED).all()
    if make is limb and not FLOAT32:
        assert (status == Status.FROZEN).any()
        end_at_once = scheme in ("legendre2", "variational")  # the wild lanes
        assert (status[1::2] == Status.CONVERGED).any() or end_at_once


@pytest.mark.thorough
def test_hard_steps_are_made_in_parts():
    """By iterations as step by step; and a step that fails in parts too keeps its lane where it was."""
    start, u = states(16), controls(16)
    parts = dataclasses.replace(options("radau2", on_failure="substep"), max_iterations=2)
    (path, info), (other, steps) = (
        pbad.rollout_batch(pendulum(), start, u, options=parts, schedule=by) for by in ("iteration", "step")
    )
    assert (np.asarray(info.substeps) > 1).any() and (np.asarray(info.substeps) == 1).any()
    for x, y in zip(jax.tree.leaves(info), jax.tree.leaves(steps)):
        np.testing.assert_allclose(x, y, atol=1e-9)
    np.testing.assert_allclose(path.q, other.q, atol=1e-9)
    alone, _ = pbad.rollout_batch(pendulum(), start, u, options=dataclasses.replace(parts, on_failure="freeze"))
    assert np.abs(alone.q - path.q).max() > 0.1, "without parts lanes freeze"


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme, links, width", [("radau1", 39, 16), ("radau1", 40, 1), ("radau2", 20, 1), ("dirk4", 20, 16)]
)
def test_on_a_cpu_large_systems_go_one_after_another(scheme, links, width):
    model = pbad.chain(links, dtype=DTYPE)
    still = jax.vmap(lambda q: pbad.make_state(model, q))(jnp.tile(model.q0, (33, 1)))
    widths = []

    def noted(still):
        *_, report = pbad.rollout_batch(model, still, n_steps=2, options=options(scheme), report=True)
        widths.append(report.width)

    jax.eval_shape(noted, still)
    assert widths == [width]


@pytest.mark.thorough
@pytest.mark.slow
def test_with_a_tile_the_others_do_not_matter():
    """The same bits alone, in batches of any size and order, and from the queue."""
    start, u, how = states(11), controls(11), options()
    whole = pbad.rollout_batch(pendulum(), start, u, options=how, tile=4)
    order = np.random.default_rng(1).permutation(11)
    assert_same(taken(whole, order), pbad.rollout_batch(pendulum(), taken(start, order), u[order], options=how, tile=4))
    assert_same(
        taken(whole, slice(3, 6)),
        pbad.rollout_batch(pendulum(), taken(start, slice(3, 6)), u[3:6], options=how, tile=4),
    )
    first, rest = taken(start, slice(0, 5)), taken(start, slice(5, 11))
    assert_same(whole, pbad.rollout_batch(pendulum(), first, u, options=how, queue=rest, tile=4))
    *queued, report = pbad.rollout_batch(pendulum(), first, u, options=how, queue=rest, report=True)
    assert report.width == 5
    np.testing.assert_array_equal(queued[1].status, whole[1].status)


@pytest.mark.slow
def test_sick_lanes_leave_the_others_alone():
    start, how = states(16), options()
    sick = dataclasses.replace(start, v=start.v.at[jnp.asarray([2, 9])].set(jnp.nan))
    well = np.setdiff1d(np.arange(16), [2, 9])
    a, b = (pbad.rollout_batch(pendulum(), s, None, T, how) for s in (start, sick))
    assert_same(taken(a, well), taken(b, well))
    np.testing.assert_array_equal(b[1].status[2], [Status.NONFINITE_INPUT] + (T - 1) * [Status.FROZEN])


@pytest.mark.parametrize("scheme", [thorough("radau1"), thorough("dirk2")])
def test_l_bfgs_is_solved_at_a_time(scheme):
    """As step by step, with no iteration between; and a lane of a tile as without the others."""
    start, u = states(6), controls(6)
    how = dataclasses.replace(options(scheme), solver="lbfgs", max_iterations=200)
    *got, report = pbad.rollout_batch(pendulum(), start, u, options=how, tile=4, report=True)
    assert report.by == "iteration" and report.passes == 0 and (got[1].iterations[::2] > 0).all()
    each = jax.jit(jax.vmap(lambda s, u: pbad.rollout(pendulum(), s, u, options=how, progress=False)))
    wanted = each(start, u)
    np.testing.assert_allclose(got[0].q[::2], wanted[0].q[::2], atol=1e-4 if FLOAT32 else 1e-7)
    np.testing.assert_array_equal(got[1].status[::2], wanted[1].status[::2])
    assert_same(
        taken(tuple(got), slice(4, 6)),
        pbad.rollout_batch(pendulum(), taken(start, slice(4, 6)), u[4:], options=how, tile=4),
    )


@pytest.mark.slow
def test_policies():
    """Of the lane's own state, with parameters; the same as the controls that it gives."""
    start, how = states(4), options()

    def policy(gain, state):
        return gain * (state.q[:1] - 0.1 * state.time)

    closed = pbad.rollout_batch(pendulum(), start, jax.tree_util.Partial(policy, jnp.asarray(-3.0, DTYPE)), T, how)
    before = jnp.concatenate([start.q[:, None], closed[0].q[:, :-1]], axis=1)
    time = jnp.concatenate([start.time[:, None], closed[0].time[:, :-1]], axis=1)
    u = -3.0 * (before[..., :1] - 0.1 * time[..., None])
    np.testing.assert_allclose(closed[0].q, pbad.rollout_batch(pendulum(), start, u, options=how)[0].q, atol=1e-4)
    row = controls(4)[0]
    shared = pbad.rollout_batch(pendulum(), start, row, options=how)
    assert_same(shared, pbad.rollout_batch(pendulum(), start, jnp.stack(4 * [row]), options=how))
    assert np.abs(closed[0].q - shared[0].q).max() > 1e-2


@pytest.mark.slow
def test_every_lane_has_a_model_of_its_own():
    """As vmapped rollouts of these models, by either schedule, also where lanes wait; half a batch is refused."""
    start, u, how = states(6), controls(6), options()
    gravity = jnp.asarray(-np.linspace(1, 20, 6)[:, None] * [0, 0, 1], DTYPE)
    models = jax.vmap(lambda g: dataclasses.replace(pendulum(), gravity=g))(gravity)
    each = jax.vmap(lambda m, s, u: pbad.rollout(m, s, u, options=how, progress=False))
    wanted = each(models, start, u)[0].q[::2]
    got = pbad.rollout_batch(models, start, u, options=how)
    np.testing.assert_allclose(got[0].q[::2], wanted, atol=1e-3 if FLOAT32 else 1e-9)
    assert_same(got, pbad.rollout_batch(models, start, u, options=how, schedule="step"))
    tiled = pbad.rollout_batch(models, start, u, options=how, tile=4)
    np.testing.assert_allclose(tiled[0].q[::2], wanted, atol=1e-3 if FLOAT32 else 1e-9)
    np.testing.assert_array_equal(tiled[1].status[::2], 0)
    in_part = dataclasses.replace(pendulum(), gravity=gravity)
    with pytest.raises(pbad.ModelError, match=r"model.placement has shape \(1, 3, 4\).*6 lanes"):
        pbad.rollout_batch(in_part, start, u, options=how)
    with pytest.raises(pbad.ModelError, match="for 6 lanes, but there are 3"):
        pbad.rollout_batch(models, taken(start, slice(3)), u[:3], options=how)


def test_no_steps():
    traj, info = pbad.rollout_batch(pendulum(), states(3), None, 0, options())
    assert traj.q.shape == (3, 0, pendulum().nq) and info.status.shape == (3, 0)


@pytest.mark.thorough
def test_forward_derivatives():
    """Those of the rollouts; reverse mode is refused by JAX, not wrong."""
    model, how = pendulum(), options()
    v = jnp.asarray([[0.5], [1.5]], DTYPE)

    def end(v, by_batch):
        start = jax.vmap(lambda v: pbad.make_state(model, None, v))(v)
        if by_batch:
            return pbad.rollout_batch(model, start, None, 3, how)[0].q[:, -1]
        return jax.vmap(lambda s: pbad.rollout(model, s, None, 3, how, progress=False)[0].q[-1])(start)

    got, wanted = (
        jax.jvp(functools.partial(end, by_batch=by_batch), (v,), (jnp.ones_like(v),))[1] for by_batch in (True, False)
    )
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(got, wanted, atol=1e-4 if FLOAT32 else 1e-10)
    with pytest.raises(ValueError, match="[Rr]everse"):
        jax.grad(lambda v: jnp.sum(end(v, True)))(v)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"options": None}, pbad.OptionError, "Options"),
        ({"n_steps": None}, pbad.OptionError, "n_steps"),
        ({"n_steps": -1}, pbad.OptionError, "-1"),
        ({"tile": 0}, pbad.OptionError, "tile is 0"),
        ({"schedule": "fast"}, pbad.OptionError, "'fast'"),
        ({"states": "one"}, pbad.StateError, "use rollout"),
        ({"states": None}, pbad.StateError, "NoneType"),
        ({"states": "other"}, pbad.StateError, "fingerprint"),
        ({"controls": np.zeros((3, T, 1))}, pbad.StateError, "3 lanes"),
        ({"controls": np.zeros((2, T, 4))}, pbad.StateError, r"\(2, 12, 4\)"),
        ({"controls": np.zeros((2, 3, 1))}, pbad.StateError, "cover 3 steps"),
        ({"controls": lambda state: jnp.zeros(3)}, pbad.StateError, "policy returns shape"),
        ({"queue": "one"}, pbad.StateError, "queue"),
    ],
)
def test_bad_input(change, error, words):
    other = pbad.chain(2, dtype=DTYPE)
    known = {
        "one": pbad.make_state(pendulum()),
        "other": jax.vmap(lambda v: pbad.make_state(other, None, v))(jnp.zeros((2, 4), DTYPE)),
    }
    given = {"states": states(2), "controls": None, "n_steps": T, "options": options()} | change
    given = {k: known.get(x, x) if isinstance(x, str) else x for k, x in given.items()}
    with pytest.raises(error, match=words):
        pbad.rollout_batch(pendulum(), **given)
