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
# # Gradients: what is exact, what is not, what it costs
#
# A step solves equations r(x; θ) = 0 for its positions x. At the root dx = −(∂r/∂x)⁻¹ (∂r/∂θ) dθ, whatever way the root
# was found: that is the implicit function theorem, and the whole rule. No iteration is differentiated, and what reverse
# mode keeps does not depend on how many there were.
#
# Takes 118 s of CPU, most of it compiling. `PBAD_NOTEBOOK_FULL=1` in the environment looks at more steps, horizons and
# contacts, 435 s on busy cores; what that printed is kept in [full/03_gradients.txt](full/03_gradients.txt), and the
# numbers in the text are from there. Wall times depend on the machine.

# %%
import dataclasses
import os
import time

import jax

jax.config.update("jax_enable_x64", True)
SMALL = os.environ.get("PBAD_NOTEBOOK_SMALL") == "1"  # for a quick check of this notebook
FULL = os.environ.get("PBAD_NOTEBOOK_FULL") == "1"  # more of everything
jax.config.update("jax_disable_most_optimizations", not FULL)  # compiling is what takes the time

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, forces

# %% [markdown]
# ## 1. Exact
#
# Two rods swing for a second, a motor on the upper hinge. We ask how the height of the tip at the end depends on the
# start, on all controls, and on every array of the model at once.


# %%
def rods(n):
    """Rods of 1 m and 1 kg on hinges about x."""
    rod = np.diag([1 / 12, 1 / 12, 1e-3])
    bodies = [
        Body(
            f"rod{k}",
            1.0,
            com=(0, 0, -0.5),
            inertia=rod,
            parent=k - 1 if k else None,
            position=(0, 0, -1 if k else 0),
            joints=[Joint("hinge", (1, 0, 0), name=f"hinge{k}")],
            geoms=[Geom("capsule", (0.04, 0.5), (0, 0, -0.5))],
        )
        for k in range(n)
    ]
    return pbad.build_model(bodies, actuators=[Actuator("hinge0", name="motor")], name="rods")


model = rods(2)
options = pbad.Options(dt=0.02, scheme=pbad.radau(2), tolerance=1e-14)
STEPS = 10 if SMALL else 50
START = jnp.array([1.0, 0.5])


def height(model, q, controls):
    """Of the tip at the end, m; and how the rollout went."""
    traj, info = pbad.rollout(model, pbad.make_state(model, q), controls, options=options, progress=False)
    return -jnp.cos(traj.q[-1, 0]) - jnp.cos(traj.q[-1].sum()), info


controls = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, 1)))
value = jax.jit(lambda q: height(model, q, controls)[0])
print(f"the tip ends at {value(START):.6f} m")

# %%
gradient = jax.jit(jax.grad(height, argnums=(0, 1, 2), has_aux=True))
(by_model, by_q, by_controls), info = gradient(model, START, controls)
print(info)
print("by q:             ", by_q)
print("by armature:      ", by_model.armature)
print("by gravity:       ", by_model.gravity)
print("by the first and last control:", by_controls[0], by_controls[-1])

# %% [markdown]
# `by_model` is a model whose arrays are the derivatives. Here is the same number three ways: reverse, forward, and by
# central differences of many widths. A difference is wrong by its width squared where it is wide, and by rounding where
# it is narrow; its best is in the bottom of the V. The derivative has no width to choose.

# %%
push = jax.jit(lambda q: jax.jvp(lambda q: height(model, q, controls)[0], (q,), (jnp.array([1.0, 0.0]),))[1])
reverse, forward = float(by_q[0]), float(push(START))

widths = np.geomspace(1e-11, 1e-1, 31 if FULL else 11)
differences = np.array([(value(START.at[0].add(h)) - value(START.at[0].add(-h))) / (2 * h) for h in widths])
fourth = []
for h in widths:
    near, far = ((value(START.at[0].add(k * h)) - value(START.at[0].add(-k * h))) / (2 * k * h) for k in (1, 2))
    fourth.append((4 * near - far) / 3)

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
for y, label in ((differences, "central difference, two points"), (np.array(fourth), "four points")):
    ax.loglog(widths, np.maximum(np.abs(y / reverse - 1), 1e-17), ".-", label=label)
agree = abs(forward / reverse - 1)
ax.axhline(max(agree, 1e-17), color="black", linestyle="--", label="forward mode")
ax.set(xlabel="width of the difference (rad)", ylabel="relative distance from reverse mode")
ax.grid(alpha=0.3)
ax.legend()
plt.show()
best = min(np.abs(np.array(fourth) / reverse - 1).min(), np.abs(differences / reverse - 1).min())
print(f"forward and reverse differ by {agree:.1e}, the best of {2 * len(widths)} differences by {best:.1e}")
assert agree < 1e-11 and best < 1e-6

# %% [markdown]
# Derivatives go through `vmap`, and lanes do not mix: the gradient of a batch is the batch of the gradients.

# %%
starts = START + jnp.array([[0.0, 0.0], [0.3, -0.2], [-0.5, 1.0]])
if FULL:
    heights = jax.vmap(lambda q: height(model, q, controls)[0])
    of_batch = jax.jit(jax.grad(lambda q: heights(q).sum()))(starts)
    one_by_one = jnp.stack([gradient(model, q, controls)[0][1] for q in starts])
    print("grad of vmap − grad one by one:", f"{np.abs(of_batch - one_by_one).max():.1e}")
    assert np.abs(of_batch - one_by_one).max() < 1e-10

# %% [markdown]
# ## 2. The step as a matrix
#
# For control one often wants the whole Jacobian of a step: `linearize` gives A and B of δx' = A δx + B δu from one
# factorisation. x = (δq, δv) lives in the tangent space, so A is square even where q holds quaternions. The product of
# the A along a rollout is its derivative:

# %%
chained, state = jnp.eye(4), pbad.make_state(model, START)
for u in controls:
    A, B, state, _ = pbad.linearize(model, state, u, options)
    chained = A @ chained
tip = jnp.array([jnp.sin(state.q[0]) + jnp.sin(state.q.sum()), jnp.sin(state.q.sum()), 0, 0])
print("A of the last step\n", np.asarray(A).round(4), "\nB", np.asarray(B).ravel().round(6))
print("by chained A:", (tip @ chained)[:2], "  by reverse mode:", by_q)
assert np.allclose((tip @ chained)[:2], by_q, rtol=1e-9)

# %% [markdown]
# ## 3. What is not exact, and how a step says so
#
# - **A failed step** has no root, so it has no derivative. Its lane keeps the last good state, which is a constant: the
#   derivative is zero. With `Options(failed_gradient="nan")` it is NaN, for those who would rather stop.
# - **A step made in parts** (`on_failure="substep"`) has the derivative of a failed one.
#
# Look at `info.grad_ok` before you trust a gradient. Here the second of two lanes is spun so fast that variational()
# finds no root:

# %%
rod = rods(1)


def spin(failed_gradient):
    """The derivative of the angle after three steps by the start, and info, of two lanes."""
    how = pbad.Options(dt=0.1, scheme=pbad.variational(), failed_gradient=failed_gradient, max_iterations=50)

    def angle(q, v):
        traj, info = pbad.rollout(rod, pbad.make_state(rod, q, v), n_steps=3, options=how, progress=False)
        return traj.q[-1, 0], info

    return jax.jit(jax.vmap(jax.jacfwd(angle, has_aux=True)))(jnp.zeros((2, 1)), jnp.array([[1.0], [35.0]]))


for choice in ("zero", "nan") if FULL else ("nan",):
    slope, info = spin(choice)
    print(f"failed_gradient={choice!r}: {np.asarray(slope).ravel()}  status {info.status.tolist()}")
    print("  grad_ok", info.grad_ok.tolist())

# %% [markdown]
# The lane that works is not touched by its neighbour. A root can also be there and be nearly double: then the matrix of
# the theorem is nearly singular and the derivative is large, not wrong. `Options(condition=True)` estimates its
# condition number in every step, from below, at the cost of some solves:

# %%
how = dataclasses.replace(options, tolerance=None, condition=True)
if FULL:
    _, info = pbad.rollout(model, pbad.make_state(model, START), controls, options=how)
    print(f"condition of Newton's matrix: {float(info.condition.min()):.3g} to {float(info.condition.max()):.3g}")

# %% [markdown]
# ## 4. Check your own
#
# Forces of your own bring their own slopes, and a wrong one makes wrong gradients (and slow steps) without a message.
# `check_gradients` compares all of them with differences. This magnet turns the rod to where sin 2q = 0; in its slope
# we have forgotten a factor of two, a typical slip:


# %%
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Magnet:
    strength: jax.Array  # N m

    def load(self, model, at):
        return pbad.Load(tau=-self.strength * jnp.sin(2 * at.q), dtau_dq=-self.strength * jnp.cos(2 * at.q))


if FULL:  # it compiles many programs
    report = pbad.check_gradients(pbad.with_forces(rod, Magnet(jnp.asarray(3.0))), options=pbad.Options(dt=0.02))
    print(report)
    assert report.suspects and not report.ok

# %% [markdown]
# The first table names the cause: `declared` is half of what it should be. The second shows what it does to derivatives
# of a rollout: an error of some 0.2 %, small enough to be overlooked.

# %% [markdown]
# ## 5. Chaos
#
# A derivative can be exact and useless. Two rods let go from high up are chaotic: a change of the start grows like
# exp(λ t), and so does the gradient. The right picture is the landscape that an optimiser would have to walk in: smooth
# for a short horizon, a mountain range for a long one. There the gradient is the true slope of the next few
# micrometres, and says nothing about the way down.

# %%
SECONDS = 2.0 if SMALL else 20.0
SEEN = 5.0 if FULL else min(SECONDS, 2.5)  # s, of the landscape


def sensitivity(dt):
    """‖∂(q,v)/∂q₀‖ over time from q₀ = (2.2, 0.3), forward."""
    how = pbad.Options(dt=dt, scheme=pbad.radau(2))

    def run(q):
        traj, info = pbad.rollout(
            model, pbad.make_state(model, q), n_steps=round(SECONDS / dt), options=how, progress=False
        )
        return jnp.concatenate([traj.q, traj.v], axis=1), (traj, info)

    J, (traj, info) = jax.jit(jax.jacfwd(run, has_aux=True))(jnp.array([2.2, 0.3]))
    info.assert_ok()
    return traj.time, jnp.linalg.norm(J, axis=(1, 2))


figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.5), layout="constrained")
for dt, color in ((0.01, "tab:blue"), (0.05, "tab:orange"), (0.1, "tab:red")):
    if not FULL and dt != (0.1 if SMALL else 0.05):
        continue
    at, size = sensitivity(dt)
    left.semilogy(at, size, color=color, label=f"dt = {dt} s")
    late = at > 0.25 * SECONDS
    rate = np.polyfit(at[late], np.log(size[late]), 1)[0]
    print(f"dt = {dt} s: after {SECONDS:g} s the derivative is {float(size[-1]):.1e}; it grows by exp({rate:.2f} t)")
left.set(xlabel="horizon (s)", ylabel="norm of the derivative by the start")
left.legend()

landscape = pbad.Options(dt=0.02, scheme=pbad.radau(2))


@jax.jit
@jax.vmap
def tips(q):
    traj, _ = pbad.rollout(model, pbad.make_state(model, q), n_steps=round(SEEN / 0.02), options=landscape)
    return -jnp.cos(traj.q[:, 0]) - jnp.cos(traj.q.sum(axis=1))


scan = np.linspace(2.0, 2.4, 400 if FULL else 5 if SMALL else 100)
found = tips(jnp.stack([scan, np.full_like(scan, 0.3)], axis=1))
for seconds in (1.0, 2.5, 5.0) if FULL else (1.0, SEEN):
    right.plot(scan, found[:, round(seconds / 0.02) - 1], linewidth=0.8, label=f"after {seconds:g} s")
right.set(xlabel="first angle at the start (rad)", ylabel="height of the tip (m)")
right.legend()
for ax in (left, right):
    ax.grid(alpha=0.3)
plt.show()

# %% [markdown]
# With dt = 0.01 s the derivative grows by exp(1.3 t), to 1e14 after 20 s: a start known to a micrometre says nothing
# about the end. Large steps look tamer, and are: at dt = 0.1 s the scheme takes so much energy out that the rods soon
# swing without chaos. That is a property of the computed motion, whose exact derivative this is, and not of the rods.
#
# So keep horizons short where motions are violent: a second or two here; or plan again and again, as
# [05_trajectory_optimisation](05_trajectory_optimisation.py) does; or take many short pieces of data in place of one
# long piece (multiple shooting).

# %% [markdown]
# ## 6. A bounce
#
# A ball of 1 kg falls from 0.5 m on soft ground and bounces. The gradient of its height by the height from which it
# falls goes through the contact. The ground is a smooth law, so the derivative exists; how stiff it is says how closely
# the derivative is that of a hard bounce.


# %%
def ball(time_constant):
    """A ball on a vertical slide above the ground; its contact acts at the stages, so that small steps resolve it."""
    body = Body(
        "ball",
        1.0,
        inertia=0.004 * np.eye(3),
        joints=[Joint("slide", (0, 0, 1), name="height")],
        geoms=[Geom("sphere", (0.1, 0, 0))],
    )
    model = pbad.build_model([body])
    return pbad.with_forces(
        model, forces.contact(model, friction=0.0, time_constant=time_constant, damping=0.0, at="stages")
    )


FALL = 0.4 if SMALL else 0.8  # s


def bounce(time_constant, dt):
    """Times, heights, and the derivative of each by the first."""
    model, how = ball(time_constant), pbad.Options(dt=dt, scheme=pbad.radau(2))

    def run(z):
        state = pbad.make_state(model, z[None])
        traj, info = pbad.rollout(model, state, n_steps=round(FALL / dt), options=how, progress=False)
        return traj.q[:, 0], (traj, info)

    slope, (traj, info) = jax.jit(jax.jacfwd(run, has_aux=True))(jnp.asarray(0.6))
    info.assert_ok()
    return traj.time, traj.q[:, 0], slope


figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.5), layout="constrained")
for time_constant, dt, color in ((0.02, 2e-3, "tab:blue"), (0.005, 2e-3, "tab:red"), (0.005, 2e-4, "tab:green")):
    if not FULL and time_constant < 0.02:
        continue
    at, z, slope = bounce(time_constant, dt)
    label = f"time constant {time_constant} s, dt = {dt} s"
    left.plot(at, z, color=color, label=label)
    right.plot(at, slope, color=color, label=label)
    rate = np.polyfit(at[-20:], slope[-20:], 1)[0]
    print(f"{label}: after the bounce the derivative grows by {rate:.2f} a second")
fall = np.sqrt(2 * 0.5 / 9.81)
print(f"hard ground: {2 / fall:.2f}")
at = np.linspace(0, FALL, 400)
right.plot(at, np.where(at < fall, 1.0, 2 * at / fall - 3.0), "--", color="black", linewidth=0.8, label="hard ground")
left.set(xlabel="time (s)", ylabel="height of the centre (m)")
right.set(xlabel="time (s)", ylabel="∂ height / ∂ first height")
for ax in (left, right):
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# All three derivatives (two of them of the full run) are those of the computed motion, to ten digits. On soft
# ground, which the steps resolve, that is nearly the derivative of a hard bounce. On stiff ground the heights are
# right and the derivative is not: where within a step the ball touches makes a tiny difference to its speed, which
# changes with every few millimetres of height. For dt = 0.002 s the derivative of the velocity after 0.5 s jumps
# between −48 and 11.6 as the ball is let go from 0.59 to 0.61 m; its mean is 6.0, that of hard ground 6.26. Smaller
# steps help slowly. So for optimisation make contacts soft, as soft as the task allows, or average over starts.

# %% [markdown]
# ## 7. Cost
#
# Reverse mode runs forward once, keeps little of each step, and comes back. Best of some repeats, one lane:


# %%
def seconds(f, *args, repeats=3 if SMALL else 20):
    jax.block_until_ready(f(*args))
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(f(*args))
        taken.append(time.perf_counter() - begun)
    return min(taken)


def cost(n, steps):
    """Seconds forward, and of the gradient by start and controls; bytes that the gradient needs."""
    model, how = pbad.chain(n, joint="hinge"), pbad.Options(dt=0.01, scheme=pbad.radau(2))

    def last(q, v):
        traj, _ = pbad.rollout(model, pbad.make_state(model, q, v), n_steps=steps, options=how, progress=False)
        return jnp.sum(traj.q[-1] ** 2)

    args = (jnp.full(n, 0.3), jnp.zeros(n))
    plain, slope = jax.jit(last), jax.jit(jax.grad(last, argnums=(0, 1)))
    bytes_kept = slope.lower(*args).compile().memory_analysis().temp_size_in_bytes
    return seconds(plain, *args), seconds(slope, *args), bytes_kept


print("links  steps   forward (ms)   gradient (ms)   ratio   memory (kB)")
for n, steps in ((2, 100), (2, 400), (5, 100)) if FULL else ():  # optimised, as all is there
    forward, backward, kept = cost(n, steps)
    print(f"{n:5} {steps:6} {1e3 * forward:14.2f} {1e3 * backward:15.2f} {backward / forward:7.2f} {kept / 1e3:13.1f}")
