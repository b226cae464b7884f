"""`Options(accuracy=)`: as many parts of a step as its error needs, and the derivative of those that were taken."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import thorough

import pbad_jax as pbad
from pbad_jax import Status, envs
from pbad_jax.kinematics.transforms import length_scale
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import at_stages
from pbad_jax.step import substeps
from pbad_jax.step.options import resolve

pytestmark = pytest.mark.float64
LANES, DT = 8, 0.05
BALL = (
    '<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.5"/><body pos="0 0 0.2"><freejoint/>'
    '<geom type="sphere" size="0.1" mass="1" friction="0.5"/></body></worldbody></mujoco>'
)


@functools.cache
def swinging():
    """Three links, thrown."""
    model, rng = pbad.chain(3, dtype=jnp.float64), np.random.default_rng(0)
    return model, lanes(model, rng.uniform(-1, 1, (LANES, model.nq)), 5 * rng.normal(size=(LANES, model.nv)))


@functools.cache
def landing():
    """A ball that lands obliquely within the step, or does not."""
    model, rng = pbad.load(BALL, dtype=jnp.float64), np.random.default_rng(1)
    q, v = np.tile(np.asarray(model.q0), (LANES, 1)), rng.normal(size=(LANES, 6))
    v[:, 2] = -rng.uniform(1, 4, LANES)
    q[:, 2] = 0.1 - v[:, 2] * DT * rng.uniform(0, 1.2, LANES)
    return model, lanes(model, q, v)


def lanes(model, q, v):
    return jax.vmap(lambda q, v: pbad.make_state(model, q, v))(jnp.asarray(q), jnp.asarray(v))


@functools.cache
def stepped(accuracy, scheme="radau2", max_parts=64):
    """One step of many lanes, compiled once for a model."""
    step = pbad.make_step(pbad.Options(dt=DT, scheme=scheme, accuracy=accuracy, max_parts=max_parts))
    return jax.jit(jax.vmap(step, in_axes=(None, 0)))


@jax.jit
def truth(model, begun):
    """The same in 256 even parts, with all forces at the stages."""
    model = dataclasses.replace(model, forces=tuple(map(at_stages, model.forces)))
    step = pbad.make_step(pbad.Options(dt=DT / 256, scheme="radau2"))
    return jax.vmap(lambda s: jax.lax.scan(lambda s, _: step(model, s), s, None, length=256))(begun)


def distance(model, a, b):
    """In the norm of `info.error`."""
    far = np.abs(jax.vmap(lambda a, b: pbad.difference(model, a, b))(a, b))
    far[:, tree(model.topology).dof_slide] /= float(length_scale(model))
    return far.max(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("system", [swinging, thorough(landing)])
def test_what_is_asked_is_kept(system):
    """More parts for more, and the error is within a factor of three of what was asked."""
    model, begun = system()
    right, fine = truth(model, begun)
    assert bool(fine.ok.all())
    before = np.ones(LANES)
    for accuracy in (3e-2, 3e-3):
        after, info = stepped(accuracy)(model, begun)
        far, parts = distance(model, after.q, right.q), np.asarray(info.substeps)
        print(system.__name__, accuracy, (far / accuracy).round(2), parts, np.asarray(info.iterations))
        assert bool(info.ok.all()) and bool(info.grad_ok.all())
        assert np.all(np.asarray(info.error) <= 2 * accuracy)
        assert np.all(far < 3 * accuracy)
        assert np.all(parts >= before) if system is swinging else parts.mean() > before.mean()
        assert np.allclose(after.time, DT, rtol=0, atol=1e-15)
        before = parts
    assert before.max() > 2 and before.min() < before.max()


@pytest.mark.slow
def test_a_step_that_is_accurate_is_that_of_no_accuracy():
    """Where it takes no more iterations than a part has."""
    model, begun = swinging()
    plain, told = jax.jit(jax.vmap(pbad.make_step(pbad.Options(dt=DT, scheme="radau2")), in_axes=(None, 0)))(
        model, begun
    )
    after, info = stepped(10.0)(model, begun)
    easy = np.asarray(told.iterations) < 10
    assert easy.sum() >= LANES // 2 and np.all(np.asarray(info.substeps)[easy] == 1)
    assert np.array_equal(after.q[easy], plain.q[easy]) and np.array_equal(after.v[easy], plain.v[easy])
    assert np.array_equal(np.asarray(info.iterations)[easy], told.iterations[easy])


@pytest.mark.thorough
@pytest.mark.slow
def test_rollouts_by_iterations_take_the_same_parts():
    model, begun = landing()
    options = pbad.Options(dt=DT, scheme="radau2", accuracy=3e-3)
    path, info = pbad.rollout_batch(model, begun, n_steps=3, options=options)
    own, told = jax.vmap(lambda s: pbad.rollout(model, s, n_steps=3, options=options))(begun)
    assert bool(info.ok.all()) and bool(told.ok.all()) and int(info.substeps.max()) > 2
    assert np.array_equal(info.substeps, told.substeps)
    assert np.abs(path.q - own.q).max() < 1e-8


@pytest.mark.slow
def test_too_many_parts_are_told():
    """The lane keeps its last good state, and those that need fewer do not notice."""
    model, begun = swinging()
    after, info = stepped(3e-3, max_parts=2)(model, begun)
    few = np.asarray(stepped(3e-3)(model, begun)[1].substeps) <= 2
    status = np.asarray(info.status)
    assert few.any() and not few.all()
    assert np.all(status[few] == Status.CONVERGED) and np.all(status[~few] == Status.INACCURATE)
    assert np.array_equal(after.q[~few], begun.q[~few]) and np.array_equal(after.time[~few], begun.time[~few])
    assert np.isnan(np.asarray(info.error)[~few]).all() and not np.asarray(info.grad_ok)[~few].any()
    _, then = stepped(3e-3, max_parts=2)(model, after)
    assert np.all(np.asarray(then.status)[~few] == Status.FROZEN)


@pytest.mark.slow
@pytest.mark.parametrize("system", [swinging, thorough(landing)])
def test_derivatives_are_those_of_the_parts(system):
    """By q, v and the masses, forward and reverse, against differences; of all lanes at once, as of each alone."""
    model, begun = system()
    step = pbad.make_step(pbad.Options(dt=DT, scheme="radau2", accuracy=3e-3, account=True))

    def after(theta, state):
        dq, dv, mass = theta
        own = dataclasses.replace(model, second_moment=mass * model.second_moment)
        q = pbad.retract(model, state.q, dq)
        end, info = step(own, dataclasses.replace(state, q=q, v=state.v + dv))
        far = pbad.difference(model, jax.lax.stop_gradient(end.q), end.q)
        return jnp.concatenate([far, end.v, info.work]), (info.substeps, end)

    at = jnp.zeros(model.nv), jnp.zeros(model.nv), jnp.ones(())
    each = jax.jit(jax.vmap(jax.jacfwd(after, has_aux=True), (None, 0)))
    J, (parts, _) = each(at, begun)
    R, _ = jax.jit(jax.vmap(jax.jacrev(after, has_aux=True), (None, 0)))(at, begun)
    J, R = (np.concatenate([x if x.ndim == 3 else x[..., None] for x in tree], axis=-1) for tree in (J, R))
    assert parts.max() > 2 and np.abs(J - R).max() < 1e-9 * np.abs(J).max()

    # differences, small beside what a blow bends them by and what the parts are rounded to
    value = jax.jit(jax.vmap(after, (None, 0)))
    flat, back = jax.flatten_util.ravel_pytree(at)
    (_, (_, middle)), worst, h = value(at, begun), np.zeros(LANES), 1e-7

    def from_middle(theta):
        y, (_, end) = value(theta, begun)
        far = jax.vmap(lambda a, b: pbad.difference(model, a, b))(middle.q, end.q)
        return np.concatenate([far, np.asarray(y)[:, model.nv :]], axis=1)

    for k in range(len(flat)):
        up, down = (from_middle(back(flat.at[k].add(s * h))) for s in (1, -1))
        worst = np.maximum(worst, np.abs((up - down) / (2 * h) - J[:, :, k]).max(axis=1))
    relative = worst / np.abs(J).max(axis=(1, 2))
    print(system.__name__, np.asarray(parts), relative)
    assert np.all(relative < 1e-6)


@pytest.mark.thorough
@pytest.mark.slow
def test_environments_take_it():
    env = envs.make("swimmer", options=pbad.Options(dt=0.05, scheme="radau2", accuracy=1e-6))
    starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4))
    actions = jax.random.uniform(jax.random.key(1), (4, 5, env.action_size), minval=-1.0)
    ends, rows = envs.unroll(env, actions, None, starts, 5)
    assert int(ends.metrics.failed.sum()) == 0
    assert int(rows.info["substeps"].max()) > 1


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"accuracy": 0.0}, ["accuracy", "0.0", "positive"]),
        ({"accuracy": float("nan")}, ["accuracy", "nan"]),
        ({"accuracy": "fine"}, ["accuracy", "'fine'"]),
        ({"accuracy": 1e-3, "scheme": "dirk2"}, ["accuracy", "dirk2", "radau(2)"]),
        ({"accuracy": 1e-3, "scheme": "radau3"}, ["accuracy", "radau3", "radau(2)"]),
        ({"accuracy": 1e-3, "scheme": "legendre3"}, ["accuracy", "legendre3"]),
        ({"accuracy": 1e-3, "max_parts": 0}, ["max_parts", "0"]),
    ],
)
def test_bad_input_is_named(changes, words):
    with pytest.raises(pbad.OptionError) as told:
        pbad.Options(**{"dt": DT, "scheme": "radau2", **changes})
    assert all(word in str(told.value) for word in words), told.value


def test_less_than_the_solve_resolves_is_refused():
    model = pbad.chain(2, dtype=jnp.float32)
    with pytest.raises(pbad.OptionError, match="tolerance of the solve"):
        pbad.rollout(model, pbad.make_state(model), n_steps=1, options=pbad.Options(DT, "radau2", accuracy=1e-6))


def test_a_step_begins_with_what_the_last_one_ended_with():
    """Twice the last part of the step before; the whole where there was none, or where that was easy."""
    model, rule = pbad.chain(1, dtype=jnp.float64), substeps.Rule(1e-3, 3, 2 / 3, 64)
    config, state = resolve(pbad.Options(DT, "radau2", accuracy=1e-3), model), pbad.make_state(model)

    def first(last: float, known: bool = True) -> float:
        before = dataclasses.replace(state, has_history=jnp.asarray(known), history_span=jnp.asarray(last * 2 / 3 * DT))
        return int(substeps.none_yet(model, config, before, jnp.asarray(DT), rule).length) / substeps.FINEST

    assert first(1 / 16) == 1 / 8 and first(1 / 3) == 1 / 2  # of 2/3 no sliver is left
    assert first(1.0) == first(0.6) == first(2.0) == first(0.0) == first(1 / 16, known=False) == 1.0


def test_parts_make_the_step_and_share_what_is_asked():
    """Of a smooth error, C h⁴: all of dt is made, no part is a sliver, and half of what is allowed is aimed at."""
    model, rule = pbad.chain(1, dtype=jnp.float64), substeps.Rule(1e-3, 3, 2 / 3, 64)
    config, state = resolve(pbad.Options(DT, "radau2", accuracy=1e-3), model), pbad.make_state(model)
    begun = substeps.none_yet(model, config, state, DT, rule)
    join = jax.jit(lambda p, info: substeps.joined(p, state, info, rule))
    for C in (1e-9, 1e-3, 1.0, 10.0):
        p, lengths = begun, []
        while bool(substeps.go_on(p, rule)):
            error = C * (int(p.length) / substeps.FINEST) ** 4
            info = dataclasses.replace(p.info, status=jnp.int8(0), error=jnp.asarray(error), grad_ok=jnp.ones((), bool))
            before, p = p, join(p, info)
            if int(p.done) > int(before.done):
                lengths.append(int(p.done) - int(before.done))
        assert sum(lengths) == substeps.FINEST and len(lengths) == int(p.info.substeps)
        assert float(p.info.error) <= 2e-3 and min(lengths) * 4 >= max(lengths) / 2
        smooth = (C / 1e-3) ** (1 / 3)  # even parts whose errors sum up to what is asked
        assert len(lengths) <= np.ceil(2 * smooth) + 3, (C, lengths)
