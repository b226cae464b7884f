"""A plan by iLQR: the task is approximated along the last plan, linear in its steps and quadratic in its rewards.

Steps are `linearize`d exactly at their root, so they may be as long as the integrator's; rewards are differentiated
twice and made concave. Bounds of the actions are kept by projected Newton steps in every backward step (Tassa,
Mansard, Todorov 2014). The forward pass halves the change until the plan is better.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbad_jax.analysis.linearize import linearize
from pbad_jax.checks import integer
from pbad_jax.control.mppi import checked_plan
from pbad_jax.envs.env import Env
from pbad_jax.envs.episode import rewarded
from pbad_jax.envs.state import EnvState, Params
from pbad_jax.envs.task import Transition
from pbad_jax.errors import OptionError, Status
from pbad_jax.kinematics import manifold
from pbad_jax.math import batched, loops
from pbad_jax.model.model import Model
from pbad_jax.model.state import State
from pbad_jax.step.options import scheme_of
from pbad_jax.step.step import make_step

SHORTEST = 0.5**7  # of the change that the approximation asks for
PROJECTIONS = 4  # Newton steps of the bounded problem of one backward step


class Plan(NamedTuple):
    """actions: (T, na). gains: (T, na, 2nv), by which an action answers (δq, δv) from the plan. states: State (T, ...)
    before each action. total: () the sum of rewards. iterations: () int32. improved: () bool, whether any helped.

    Example:
        >>> plan = control.ilqr(env, start, jnp.zeros((5, 1)), iterations=2)
        >>> plan.actions.shape, plan.gains.shape
        ((5, 1), (5, 1, 2))
    """

    actions: jax.Array
    gains: jax.Array
    states: State
    total: jax.Array
    iterations: jax.Array
    improved: jax.Array


class _Search(NamedTuple):
    plan: Plan
    damping: jax.Array
    again: jax.Array  # () bool


def ilqr(
    env: Env,
    state: EnvState,
    actions: Any,
    *,
    iterations: int = 50,
    params: Params | None = None,
    tolerance: float = 1e-4,
) -> Plan:
    """A locally best plan of T control steps from `state`.

    Locally: where a reward has a kink, as that of an angle that wraps, plans stay on their side of it. Ends
    (`terminated`) are not known to it, and delays neither. For control call it again at every step with few iterations,
    from `shifted(actions)`.

    Args:
        env: without autoreset and repeated actions; of a scheme without history. state: of one lane.
        actions: (T, na) to begin with.
        iterations: at most so many. tolerance: the relative gain below which it stops.
        params: the model; default the environment's.

    Raises:
        TaskError: a state that is not one lane, actions that do not fit. OptionError: other rules, a history.

    Example:
        >>> plan = control.ilqr(env, start, jnp.zeros((5, 1)), iterations=2)
        >>> int(plan.iterations)
        2
    """
    actions = checked_plan(env, state, actions, "ilqr")
    if env.rules.repeat > 1 or env.rules.max_delay > 0:
        raise OptionError("ilqr: env repeats or delays actions; wanted one with repeat=1 and max_delay=0")
    if scheme_of(env.rules.options).has_history:
        raise OptionError(f"ilqr: {scheme_of(env.rules.options).name} keeps a history; take radau, dirk or variational")
    iterations, params = integer(iterations, "iterations", 1), env.checked(params)
    if params.model.na:
        raise OptionError(
            f"ilqr: model {params.model.topology.name!r} has {params.model.na} actuators with an activation, a state "
            "that its gains do not look at; take mppi, or actuators without time_constant and integrates"
        )
    low, high = (jnp.asarray(x, actions.dtype) for x in env.action_bounds)
    return _ilqr(env, params, state, jnp.clip(actions, low[None], high[None]), jnp.asarray(tolerance), iterations)


@functools.partial(jax.jit, static_argnames="env")
def _ilqr(env: Env, params: Params, state: EnvState, actions: jax.Array, tolerance, iterations) -> Plan:
    # the first plan: the given actions, rolled out without gains
    model, T = params.model, len(actions)
    low, high = (jnp.asarray(x, actions.dtype) for x in env.action_bounds)
    none = jnp.zeros((T, len(low), 2 * model.nv), actions.dtype)
    forward = functools.partial(_forward, env, model, state)
    states, taken, total = forward(actions, none, jnp.zeros_like(actions), None, jnp.zeros((), actions.dtype))
    first = Plan(taken, none, states, total, jnp.zeros((), jnp.int32), jnp.zeros((), bool))

    def improve(s: _Search) -> _Search:
        # the task along the plan to second order, and from it a change and gains
        plan = s.plan
        terms = jax.vmap(functools.partial(_approximated, env, model, state.goal))(plan.states, plan.actions)
        change, gains = _backward(terms, plan.actions, low, high, s.damping)

        # line search: halve the change until the plan is better, or the change very short
        def half(x):
            length = 0.5 * x[0]
            return length, forward(plan.actions, gains, change, plan.states, length)

        tried = jnp.asarray(2.0, actions.dtype), (plan.states, plan.actions, jnp.full_like(plan.total, -jnp.inf))
        short = lambda x: (x[0] > SHORTEST) & ~(x[1][2] > plan.total)  # noqa: E731
        states, taken, total = loops.while_loop(short, half, tried)[1]

        # less damping after a better plan, more where none was found
        better = total > plan.total
        enough = (total - plan.total) > tolerance * jnp.abs(plan.total)
        damping = jnp.where(better, 0.3 * s.damping, 10 * s.damping)
        new = Plan(taken, gains, states, total, plan.iterations, jnp.ones((), bool))
        plan = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, plan)

        # go on while plans gain enough, or while more damping may help
        again = jnp.where(better, enough, damping < 1e6)
        return _Search(plan._replace(iterations=plan.iterations + 1), jnp.maximum(damping, 1e-8), again)

    # until the gain is small or the iterations are used up
    start = _Search(first, jnp.asarray(1e-3, actions.dtype), jnp.ones((), bool))
    return loops.while_loop(lambda s: s.again & (s.plan.iterations < iterations), improve, start).plan


def _forward(env: Env, model: Model, start: EnvState, actions, gains, change, along: State | None, length):
    """States before each action, the actions, and the sum of rewards; −inf where a step fails.

    The actions are those of the plan, changed by `length` times `change`, and by the gains.
    """
    # the task's step, reward and bounds of actions
    task, step = env.task, make_step(env.rules.options)
    low, high = (jnp.asarray(x, actions.dtype) for x in env.action_bounds)
    dt = jnp.asarray(env.rules.options.dt, model.dtype)

    def body(sim: State, x):
        action, K, k, planned = x

        # the plan's action, its change, and its answer to how far the state is off the plan
        if planned is not None:
            away = jnp.concatenate([manifold.difference(model, planned.q, sim.q), sim.v - planned.v])
            action = action + length * k + K @ away

        # one step within the bounds; one that fails makes the plan's total −∞
        action = jnp.clip(action, low, high)
        control = task.control(model, action)
        after, _ = step(model, sim, control, None)
        reward, _ = rewarded(task, Transition(model, sim, after, action, control, dt, start.goal))
        return after, (sim, action, jnp.where(after.status == Status.CONVERGED, reward, -jnp.inf))

    _, (states, taken, rewards) = loops.scan(body, start.sim, (actions, gains, change, along))
    return states, taken, jnp.sum(rewards)


def _approximated(env: Env, model: Model, goal, sim: State, action: jax.Array):
    """Of one step A (n,n) and B (n,na), and of its reward the gradient (n+na,) and the Hessian, made concave."""
    # A and B of the step, B by the actions that its control is made of
    task, nv = env.task, model.nv
    control, by_action = task.control(model, action), jax.jacfwd(lambda a: task.control(model, a))(action)
    step = linearize(model, sim, control, env.rules.options)
    B = step.B @ by_action
    dt = jnp.asarray(env.rules.options.dt, model.dtype)

    AB = jnp.concatenate([step.A, B], axis=1)

    # the reward of y = (δq, δv, δu), the state after the step to first order
    def moved(s: State, x: jax.Array) -> State:
        return dataclasses.replace(s, q=manifold.retract(model, s.q, x[:nv]), v=s.v + x[nv:])

    def reward(y: jax.Array) -> jax.Array:
        before, u, after = moved(sim, y[: 2 * nv]), action + y[2 * nv :], moved(step.state, AB @ y)
        return rewarded(task, Transition(model, before, after, u, task.control(model, u), dt, goal))[0]

    # its gradient and Hessian at the plan, of which the concave part is kept
    zero = jnp.zeros(2 * nv + len(action), model.dtype)
    gradient, hessian = jax.grad(reward)(zero), jax.hessian(reward)(zero)
    return step.A, B, gradient, -batched.positive_part(-hessian)


def _backward(terms, actions: jax.Array, low, high, damping):
    """Changes (T, na) and gains (T, na, n) from the last step to the first."""
    n = terms[0].shape[-1]

    def body(value, x):
        A, B, gradient, hessian, action = x
        v, V = value
        AB = jnp.concatenate([A, B], axis=1)
        q, Q = gradient + v @ AB, hessian + AB.T @ V @ AB
        Qu, Quu, Qux = q[n:], Q[n:, n:] - damping * jnp.eye(len(action), dtype=Q.dtype), Q[n:, :n]
        k, K = _bounded(-Qu, -Quu, -Qux, low - action, high - action)
        v = q[:n] + K.T @ (Q[n:, n:] @ k + Qu) + Qux.T @ k
        V = Q[:n, :n] + K.T @ Q[n:, n:] @ K + K.T @ Qux + Qux.T @ K
        return (v, 0.5 * (V + V.T)), (k, K)

    zero = jnp.zeros(n, actions.dtype), jnp.zeros((n, n), actions.dtype)
    return loops.scan(body, zero, (*terms, actions), reverse=True)[1]


def _bounded(g: jax.Array, H: jax.Array, G: jax.Array, low: jax.Array, high: jax.Array):
    """The k (m,) that makes g k + ½ k H k least within bounds, and K (m,n) = −H⁻¹ G where no bound holds."""
    eye = jnp.eye(len(g), dtype=g.dtype)

    # an entry is held where it is at a bound and the slope pushes it beyond; else it is free
    def free_of(k):
        slope = g + H @ k
        return ~(((k <= low) & (slope > 0)) | ((k >= high) & (slope < 0)))

    # projected Newton step: solve for the free entries, then clip
    def newton(k, _):
        free = free_of(k).astype(g.dtype)
        both = free[:, None] * free[None]
        step = batched.solve(both * H + (1 - free)[:, None] * eye, -free * (g + H @ k))
        return jnp.clip(k + step, low, high), None

    k, _ = loops.scan(newton, jnp.clip(jnp.zeros_like(g), low, high), length=PROJECTIONS)

    # gains of the free entries; those that are held do not answer the state
    free = free_of(k).astype(g.dtype)
    both = free[:, None] * free[None]
    return k, -batched.solve(both * H + (1 - free)[:, None] * eye, free[:, None] * G)
