# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Motions on purpose
#
# Which forces bring a body where we want it? A rollout can be differentiated by all its controls at once, so an
# ordinary optimiser finds them. Three examples: a cart swings its pole up, an arm reaches a point, and a controller
# replans at every step.
#
# Takes 114 s of CPU, half of it compiling. `PBAD_NOTEBOOK_FULL=1` in the environment tries twenty starts in place of
# six, 174 s of CPU; [full/05_trajectory_optimisation.txt](full/05_trajectory_optimisation.txt) keeps what that printed.

# %%
import dataclasses
import os
import time

import jax

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("PBAD_NOTEBOOK_SMALL") == "1"  # for a quick check of this notebook
FULL = os.environ.get("PBAD_NOTEBOOK_FULL") == "1"  # more starts, more updates


def compile_quickly(quickly):
    """Where a program runs shortly, compiling is what takes the time."""
    jax.config.update("jax_disable_most_optimizations", (quickly and not FULL) or SMALL)


compile_quickly(True)

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, viz

# %% [markdown]
# ## 1. Swing up
#
# A motor pushes the cart by at most 10 N. The pole hangs at 0 and stands at π; nothing drives its hinge.


# %%
def cart_pole(pole_mass=0.2):
    cart = Body(
        "cart",
        1.0,
        inertia=0.01 * np.eye(3),
        joints=[Joint("slide", (1, 0, 0), name="rail", damping=0.1)],
        geoms=[Geom("box", (0.2, 0.1, 0.06))],
    )
    pole = Body(
        "pole",
        pole_mass,
        com=(0, 0, -0.5),
        inertia=pole_mass * np.diag([1 / 12, 1 / 12, 1e-3]),
        parent="cart",
        position=(0, -0.15, 0),
        joints=[Joint("hinge", (0, 1, 0), name="pivot", damping=0.002)],
        geoms=[Geom("capsule", (0.03, 0.5), (0, 0, -0.5))],
    )
    return pbad.build_model([cart, pole], actuators=[Actuator("rail", name="push", gear=10.0)], name="cart-pole")


cart = cart_pole()
options = pbad.Options(dt=0.05, scheme=pbad.radau(2))
STEPS = 60  # 3 s

# %% [markdown]
# The cost asks for an upright pole, at rest, near the origin, at the end; and for a little of each on the way. A
# control is tanh(w), so that no w asks for more than the motor has. Because cos does not count turns, it does not
# matter from which side the pole comes.


# %%
def swing_up(w, q, v):
    """The cost, and the motion."""
    u = jnp.tanh(w)
    traj, info = pbad.rollout(cart, pbad.make_state(cart, q, v), u[:, None], options=options, progress=False)
    below = 1 + jnp.cos(traj.q[:, 1])
    end = 10 * below[-1] + traj.q[-1, 0] ** 2 + 0.5 * jnp.sum(traj.v[-1] ** 2)
    return end + jnp.mean(below + 0.1 * traj.q[:, 0] ** 2 + 0.01 * u**2), (traj, info)


cost, (_, info) = jax.jit(swing_up)(jnp.zeros(STEPS), jnp.array([0.0, 0.3]), jnp.zeros(2))
print(f"without a force it costs {cost:.2f}; {info}")


# %% [markdown]
# Each start is random: the pole up to 1 rad from hanging, moving; the first forces are noise. `jax.vmap` optimises all
# of them in one program. An update is one rollout, its gradient by all 60 forces, and a step of Adam. A gradient is
# long where the motion is sensitive, so it is normalised first.

# %%
LANES, UPDATES = (20, 300) if FULL else (3, 30) if SMALL else (6, 200)
rng = np.random.default_rng(0)
q = jnp.asarray(rng.uniform((-0.5, -1.0), (0.5, 1.0), (LANES, 2)))
v = jnp.asarray(rng.uniform(-0.5, 0.5, (LANES, 2)))
w = jnp.asarray(rng.normal(0, 0.3, (LANES, STEPS)))
compile_quickly(False)
optimiser = optax.chain(optax.normalize_by_update_norm(), optax.adam(optax.cosine_decay_schedule(0.1, UPDATES)))


@jax.jit
@jax.vmap
def update(w, memory, q, v):
    """One update of one start; also the cost and the motion before it."""
    (cost, motion), slope = jax.value_and_grad(swing_up, has_aux=True)(w, q, v)
    change, memory = optimiser.update(slope, memory)
    return optax.apply_updates(w, change), memory, cost, motion


memory, costs, first = jax.vmap(optimiser.init)(w), [], None
begun = time.perf_counter()
for _ in range(UPDATES):
    used = w
    w, memory, cost, (traj, info) = update(w, memory, q, v)
    costs.append(np.asarray(cost))
    first = traj if first is None else first
print(f"{time.perf_counter() - begun:.0f} s, compiling included;", info)

# %% [markdown]
# Solved is within 0.1 rad of upright, slower than 0.3 rad/s and 0.3 m/s, and within 0.5 m of the origin, after 3 s.

# %%
tilt = np.abs(np.asarray(traj.q[:, -1, 1]) % (2 * np.pi) - np.pi)
speed, away = np.abs(traj.v[:, -1]).max(axis=1), np.abs(traj.q[:, -1, 0])
solved = (tilt < 0.1) & (speed < 0.3) & (away < 0.5)
print(f"{solved.sum()} of {LANES} solved; worst tilt {tilt.max():.3f} rad,", end=" ")
print(f"speed {speed.max():.3f}, away {away.max():.3f} m")
assert info.ok.all() and np.mean(costs[-1]) < 0.5 * np.mean(costs[0])
assert SMALL or solved.sum() >= LANES - 1

# %%
seconds = options.dt * np.arange(1, STEPS + 1)
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
left.semilogy(costs, color="tab:blue", alpha=0.5)
left.set(xlabel="update", ylabel="cost", title="every start")
middle.plot(seconds, np.asarray(traj.q[..., 1]).T / np.pi, color="tab:orange", alpha=0.6)
middle.set(xlabel="time (s)", ylabel="angle of the pole / π", title="hanging is even, upright is odd")
right.step(seconds, 10 * np.tanh(np.asarray(used)).T, color="tab:green", alpha=0.4)
right.set(xlabel="time (s)", ylabel="force on the cart (N)")
for ax in (left, middle, right):
    ax.grid(alpha=0.3)
plt.show()

# %%
viz.show(cart, traj.q[:6], dt=options.dt, height=380)

# %% [markdown]
# Before the first update the same starts did this:

# %%
viz.show(cart, first.q[:6], dt=options.dt, height=380)

# %% [markdown]
# ## 2. Reach
#
# The same idea with another cost: an arm of three hinges brings its tip to a point within a second, and stops there.
# The tip's place is `forward_kinematics`, which JAX differentiates too. Torques are in units of 40 N m.

# %%
compile_quickly(True)
TARGET = np.array([0.55, 0.35, 0.75])
reach = []
for name, length, axis in (("base", 0.3, (0, 0, 1)), ("upper", 0.5, (0, 1, 0)), ("lower", 0.5, (0, 1, 0))):
    reach.append(
        Body(
            name,
            mass=2.0,
            com=(0, 0, length / 2),
            inertia=2.0 * np.diag([length**2 / 12 + 1e-3, length**2 / 12 + 1e-3, 2e-3]),
            parent=reach[-1].name if reach else None,
            position=(0, 0, 2 * reach[-1].com[2]) if reach else (0, 0, 0),
            joints=[Joint("hinge", axis, name=f"{name}_joint", damping=0.5, armature=0.05)],
            geoms=[Geom("capsule", (0.05, length / 2), (0, 0, length / 2))],
        )
    )
goal = Geom("sphere", (0.06, 0, 0), TARGET, rgba=(0.9, 0.3, 0.2, 1.0), touches=False)
arm = pbad.build_model(
    reach, actuators=[Actuator(f"{b.name}_joint", gear=40.0) for b in reach], world_geoms=[goal], name="arm"
)
quick = pbad.Options(dt=0.04)


def tip(q):
    """Where the end of the last link is, m."""
    poses = pbad.forward_kinematics(arm, q)
    return poses.position[-1] + 0.5 * poses.rotation[-1][:, 2]


def to_reach(w):
    u = jnp.tanh(w)
    traj, info = pbad.rollout(arm, pbad.make_state(arm, [0.0, 0.4, 0.8]), u, options=quick, progress=False)
    miss = jnp.sum((tip(traj.q[-1]) - TARGET) ** 2)
    return 20 * miss + 0.05 * jnp.sum(traj.v[-1] ** 2) + 0.01 * jnp.mean(u**2), (traj, info, jnp.sqrt(miss))


@jax.jit
def improve_reach(w, memory):
    (_, motion), slope = jax.value_and_grad(to_reach, has_aux=True)(w)
    change, memory = adam.update(slope, memory)
    return optax.apply_updates(w, change), memory, motion


n = 300 if FULL else 30 if SMALL else 150
adam = optax.adam(optax.cosine_decay_schedule(0.1, n))
w, misses = jnp.zeros((25, 3)), []
memory = adam.init(w)
for _ in range(n):
    w, memory, (reached, info, miss) = improve_reach(w, memory)
    misses.append(float(miss))
info.assert_ok()
print(f"miss {1000 * misses[0]:.0f} mm before, {1000 * misses[-1]:.1f} mm after {n} updates;", end=" ")
print(f"fastest joint at the end {np.abs(reached.v[-1]).max():.3f} rad/s")
assert misses[-1] < (0.2 if SMALL else 0.005)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
left.semilogy(1000 * np.array(misses))
left.set(xlabel="update", ylabel="distance of the tip from the target (mm)")
right.plot(reached.time, reached.q, label=["base", "upper", "lower"])
right.set(xlabel="time (s)", ylabel="q (rad)")
right.legend()
for ax in (left, right):
    ax.grid(alpha=0.3)
plt.show()

# %%
viz.show(arm, reached, height=380)

# %% [markdown]
# ## 3. Plan again at every step
#
# The forces of section 1 are right for that cart only. Here the real pole is 25 % heavier than the model says, and gets
# a push after the swing. Played blindly, the plan fails. A controller that looks at the state and plans again holds it.
#
# It is iLQR: `linearize` gives the state at the end of a step with A and B of δx' = A δx + B δu, one factorisation for
# all columns; a Riccati sweep backward gives feed-forward k and gains K; a rollout with both is the better plan. The
# cost is the distance to the plan of section 1, then to standing still. Per step of the plant there is one iteration,
# started from the last plan, shifted by one.

# %%
HORIZON = 10 if SMALL else 20
Q = jnp.diag(jnp.array([1.0, 2.0, 0.1, 0.1]))  # of cart, pole and their velocities
Q_END, R = 10 * Q, 0.05 * jnp.eye(1)
step = pbad.make_step(options)


def offset(state, aim):
    """x − aim, (4,). With balls in the model this would be `difference`."""
    return jnp.concatenate([state.q, state.v]) - aim


@jax.jit
def replan(state, u, aims):
    """One iteration of iLQR: better forces u (H,1), for aims (H + 1,4)."""

    def ahead(state, inputs):
        u, aim = inputs
        A, B, after, _ = pbad.linearize(cart, state, u, options)
        return after, (A, B, offset(state, aim))

    last, (A, B, x) = jax.lax.scan(ahead, state, (u, aims[:-1]))

    def backward(value, inputs):
        P, p = value  # the cost to go is ½ δᵀPδ + pᵀδ
        A, B, x, u = inputs
        Q_u, Q_x = R @ u + B.T @ p, Q @ x + A.T @ p
        H_uu, H_ux = R + B.T @ P @ B, B.T @ P @ A
        k, K = -jnp.linalg.solve(H_uu, Q_u), -jnp.linalg.solve(H_uu, H_ux)
        return (Q + A.T @ P @ A + H_ux.T @ K, Q_x + H_ux.T @ k), (k, K)

    _, (k, K) = jax.lax.scan(backward, (Q_END, Q_END @ offset(last, aims[-1])), (A, B, x, u), reverse=True)

    def along(share):
        """The cost and the forces with that share of k."""

        def one(state, inputs):
            u, k, K, x, aim = inputs
            now = offset(state, aim)
            u = jnp.clip(u + share * k + K @ (now - x), -1, 1)
            return step(cart, state, u)[0], (u, now @ Q @ now + u @ R @ u)

        end, (new, costs) = jax.lax.scan(one, state, (u, k, K, x, aims[:-1]))
        end = offset(end, aims[-1])
        return jnp.sum(costs) + end @ Q_END @ end, new

    cost, new = jax.vmap(along)(jnp.array([1.0, 0.5, 0.2, 0.0]))
    return new[jnp.argmin(cost)]


# %% [markdown]
# The plan to follow is that of the solved start nearest to hanging; after it, standing still at the origin, in the turn
# in which the pole ended.

# %%
best = int(np.argmin(np.abs(q[:, 1]) + 10 * ~solved))
plan_u = jnp.tanh(used[best])[:, None]
plan_x = jnp.concatenate([traj.q[best], traj.v[best]], axis=1)
upright = np.pi * (2 * np.floor(np.asarray(plan_x[-1, 1]) / (2 * np.pi)) + 1)
aims = jnp.concatenate([jnp.r_[q[best], v[best]][None], plan_x, jnp.tile(jnp.array([0.0, upright, 0, 0]), (100, 1))])
plan_u = jnp.concatenate([plan_u, jnp.zeros((100, 1))])

real, PUSHED = cart_pole(pole_mass=0.25), 75
TOTAL = 20 if SMALL else 120
real_step = jax.jit(step)


def drive(replanning):
    """q (T,2) and forces of the real cart."""
    state, u, motion, forces, seconds = pbad.make_state(real, q[best], v[best]), plan_u[:HORIZON], [], [], []
    for i in range(TOTAL):
        if replanning:
            begun = time.perf_counter()
            u = jax.block_until_ready(replan(state, u, aims[i : i + HORIZON + 1]))
            seconds.append(time.perf_counter() - begun)
        force = u[0] if replanning else plan_u[i]
        state, info = real_step(real, state, force)
        assert info.ok, info
        if i == PUSHED:
            state = dataclasses.replace(state, v=state.v.at[1].add(1.5))
        u = jnp.concatenate([u[1:], plan_u[i + HORIZON : i + HORIZON + 1]])
        motion.append(state.q)
        forces.append(10 * float(force[0]))
    if replanning and FULL:  # optimised
        print(f"a replan takes {1000 * np.median(seconds):.1f} ms of the {1000 * options.dt:.0f} ms of a step")
    return jnp.stack(motion), np.array(forces)


held, forces = drive(replanning=True)
blind, _ = drive(replanning=False)
print(
    f"angle from upright at the end: {held[-1, 1] - upright:.4f} rad replanned, {blind[-1, 1] - upright:.2f} rad blind"
)
assert SMALL or abs(held[-1, 1] - upright) < 0.02

# %%
seconds = options.dt * np.arange(1, TOTAL + 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
left.plot(seconds, aims[1 : TOTAL + 1, 1] / np.pi, "--", color="gray", label="plan")
left.plot(seconds, held[:, 1] / np.pi, color="tab:blue", label="replanned")
left.plot(seconds, blind[:, 1] / np.pi, color="tab:red", label="blind")
left.axvline(options.dt * (PUSHED + 1), color="gray", linewidth=0.8)
left.set(
    xlabel="time (s)", ylabel="angle of the pole / π", title="the vertical line is the push", xlim=(0, seconds[-1])
)
left.legend()
right.step(seconds, 10 * plan_u[:TOTAL, 0], "--", color="gray", label="plan")
right.step(seconds, forces, color="tab:blue", label="replanned")
right.set(xlabel="time (s)", ylabel="force on the cart (N)")
right.legend()
for ax in (left, right):
    ax.grid(alpha=0.3)
plt.show()

# %%
viz.show(real, jnp.stack([held, blind]), dt=options.dt, height=380)

# %% [markdown]
# iLQR needs a plan to start from here: from hanging, with no plan at all, this quadratic cost has a minimum in which
# the cart stands still and the pole hangs. The random starts of section 1 are what finds the swing.
