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
# # Your robot
#
# Takes 82 s of CPU on two busy cores, most of it compiling.
#
# A robot with four legs, from its description to a walk: it loads, stands, trots, feels, and is differentiated.
# Numbers in the text are of the full run.
#
# Positions are in m and rad, times in s, forces in N. A configuration `q` and a velocity `v` have MuJoCo's layout.

# %%
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
from time import process_time

import jax

jax.config.update("jax_enable_x64", True)  # double precision; leave it out for single
jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner, runs slower
SMALL = os.environ.get("PBAD_NOTEBOOK_SMALL") == "1"  # for a quick check of this notebook

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import pbad_jax as pbad
from pbad_jax import forces, viz

# %% [markdown]
# ## 1. It loads
#
# This is MJCF, MuJoCo's language, written here as text; `pbad.load("robot.xml")` reads a file. A trunk floats; each leg
# is two hinges, two capsules and a round foot; a position servo bends every hinge. By the masks of the `default` the
# robot touches the floor, and its limbs do not touch one another.

# %%
LEG = """
  <body name="{name}_thigh" pos="{x} {y} 0">
    <joint name="{name}_hip" axis="0 1 0" range="-90 90"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.025" mass="0.4"/>
    <body name="{name}_shank" pos="0 0 -0.2">
      <joint name="{name}_knee" axis="0 1 0" range="-150 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.015" mass="0.2"/>
      <geom type="sphere" pos="0 0 -0.2" size="0.025" mass="0.05" rgba="0.9 0.5 0.1 1"/>
    </body>
  </body>"""
SERVOS = '<position joint="{name}_hip" kp="80" kv="2"/> <position joint="{name}_knee" kp="80" kv="2"/>'
LEGS = {"front_left": (0.2, 0.1), "front_right": (0.2, -0.1), "rear_left": (-0.2, 0.1), "rear_right": (-0.2, -0.1)}
DOG = f"""
<mujoco model="dog">
  <default>
    <geom contype="0" conaffinity="1" friction="0.8" rgba="0.35 0.5 0.7 1"/>
    <joint damping="0.2" armature="0.01"/>
  </default>
  <worldbody>
    <geom type="plane" size="5 5 0.1" contype="1" conaffinity="0"/>
    <body name="trunk" pos="0 0 0.355">
      <freejoint name="base"/>
      <geom type="capsule" fromto="-0.2 0 0 0.2 0 0" size="0.07" mass="4"/>
      <site name="imu"/>
      {"".join(LEG.format(name=name, x=x, y=y) for name, (x, y) in LEGS.items())}
    </body>
  </worldbody>
  <actuator> {" ".join(SERVOS.format(name=name) for name in LEGS)} </actuator>
  <sensor> <accelerometer name="felt" site="imu"/> <gyro name="turning" site="imu"/> </sensor>
  <keyframe>
    <key name="home" qpos="0 0 0.355  1 0 0 0  {4 * "0.6 -1.2 "}" ctrl="{4 * "0.6 -1.2 "}"/>
  </keyframe>
</mujoco>
"""

dog, report = pbad.load(DOG, unsupported="warn")
print(dog)
print(report)

# %% [markdown]
# With `unsupported="warn"` there is a report of what was left out; without it `load` returns the model alone, and a
# feature that it cannot honour is an error. Names are those of the file, and so are the forces that act:

# %%
print("bodies:   ", *dog.topology.body_names)
print("joints:   ", *[joint.name for joint in dog.topology.joints])
print("forces:   ", *[forces.name_of(force) for force in dog.forces])
print("sensors:  ", *dog.sensors)
print("keyframes:", *dog.keyframes)

# %%
start = pbad.make_state(dog, key="home")
plt.figure(figsize=(6, 4.5), layout="constrained")
plt.imshow(viz.images(dog, start.q[None], title="dog, at home")[0])
plt.axis("off")
plt.show()

# %% [markdown]
# ## 2. It stands
#
# The control is what the servos aim at. We give them the keyframe's for the whole time. Steps are of 0.02 s by
# `radau1`, the cheapest scheme.

# %%
options = pbad.Options(dt=0.02, scheme="radau1")
STEPS = 120 if SMALL else 200
home = jnp.asarray(dog.keyframes["home"].control)
began = process_time()
standing, info = jax.block_until_ready(pbad.rollout(dog, start, controls=jnp.tile(home, (STEPS, 1)), options=options))
print(f"{info}\n{process_time() - began:.1f} s of CPU")

# %% [markdown]
# All steps converged: that is what a step has to say of itself, and `info.assert_ok()` raises where one did not.
# Does it stand? The trunk has come to rest, and its feet carry its weight.

# %%
touch_along = jax.jit(jax.vmap(lambda state: pbad.contact_forces(dog, state)))  # (T, nbody, 6): torque, force
feet = [dog.topology.body_names.index(f"{name}_shank") for name in LEGS]

carried = touch_along(pbad.states_of(dog, standing))[-1, feet, 5]
weight = float(pbad.total_mass(dog)) * 9.81
energy = pbad.kinetic_energy(dog, pbad.make_state(dog, standing.q[-1], standing.v[-1]))
print(
    f"height of the trunk: {start.q[2]:.4f} m at the start, {standing.q[-1, 2]:.4f} m at the end",
    f"kinetic energy at the end: {energy:.0e} J",
    f"the feet carry {np.array2string(np.asarray(carried), precision=2)} N: {carried.sum():.3f} N of {weight:.3f} N",
    sep="\n",
)

# %%
viz.show(dog, standing, contact_forces=True, height=360)

# %% [markdown]
# ## 3. It walks
#
# A trot without a look at the ground: the legs swing in diagonal pairs, by sines about the pose `home`. A knee bends
# while its hip swings forward.


# %%
def gait(hip, knee, hertz, time):
    """What the servos aim at, (T, nu), at times (T,); the sines begin within 0.4 s."""
    phase = 2 * jnp.pi * hertz * time
    swing = jnp.stack([-hip * jnp.sin(phase), -knee * jnp.cos(phase)], axis=-1)
    swing = swing * jnp.minimum(time / 0.4, 1.0)[:, None]
    return home + jnp.concatenate([swing, -swing, -swing, swing], axis=-1)


HIP, KNEE, HERTZ = 0.2, 0.3, 2.5  # rad, rad, strides a second
time = options.dt * jnp.arange(STEPS)
controls = gait(HIP, KNEE, HERTZ, time)
began = process_time()
walk, info = jax.block_until_ready(pbad.rollout(dog, start, controls=controls, options=options))
took = process_time() - began

LAST = 60 if SMALL else 100  # steps: whole strides


def speed(traj):
    """m/s forward, in the mean of the last strides."""
    return (traj.q[..., -1, 0] - traj.q[..., -1 - LAST, 0]) / (LAST * options.dt)


heights = walk.q[-LAST:, 2]
print(
    f"{info}\n{took:.1f} s of CPU",
    f"after {STEPS * options.dt:g} s: {walk.q[-1, 0]:.2f} m forward, {walk.q[-1, 1]:.2f} m aside",
    f"speed: {speed(walk):.2f} m/s; height of the trunk: {heights.min():.3f} to {heights.max():.3f} m",
    sep="\n",
)

# %% [markdown]
# That took less time, for nothing had to be compiled: other controls are other numbers of the same program.

# %%
viz.show(dog, walk, contact_forces=True, height=420)

# %%
walking = pbad.states_of(dog, walk)
pressed = touch_along(walking)[:, feet, 5]
figure, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
for k, name in enumerate(LEGS):
    pair = "C0" if name in ("front_left", "rear_right") else "C1"
    ax.plot(walk.time[-60:], pressed[-60:, k], pair + ("-" if "front" in name else ":"), label=name.replace("_", " "))
ax.set(xlabel="time (s)", ylabel="the ground's push upward (N)")
ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False)
plt.show()

# %% [markdown]
# The pairs strike in turn, each foot with up to twice the robot's weight. How fast is it where the ground is slippery?
# Friction is an array of a force of the model, so one program walks on four grounds: each lane has a model of its own.


# %%
def on_ground(factor):
    """The dog with other friction."""
    others = [
        dataclasses.replace(force, friction=factor * force.friction) if isinstance(force, forces.Contact) else force
        for force in dog.forces
    ]
    return dataclasses.replace(dog, forces=tuple(others))


factors = jnp.asarray([1.0, 0.5, 0.25, 0.125])
starts = jax.tree.map(lambda x: jnp.repeat(x[None], len(factors), 0), start)
if SMALL:  # one after the other: that program is there already
    runs = [pbad.rollout(on_ground(x), start, controls=controls, options=options) for x in factors]
    many, info = jax.tree.map(lambda *x: jnp.stack(x), *runs)
else:
    many, info = pbad.rollout_batch(jax.vmap(on_ground)(factors), starts, controls=controls, options=options)
upright = 1 - 2 * jnp.sum(many.q[:, -1, 4:6] ** 2, axis=-1)  # the trunk's own z axis, upward
lines = [
    f"friction {0.8 * factor:.1f}: {fast:5.2f} m/s, the trunk at {high:.2f} m in the end, upright {up:.2f}"
    for factor, fast, high, up in zip(factors, speed(many), many.q[:, -1, 2], upright)
]
print(info, *lines, sep="\n")

# %% [markdown]
# Half of the friction, or a quarter, does not make this gait slower. With an eighth it slips, falls and lies on its
# side, and no step failed for that.

# %%
viz.show(dog, many, height=420)

# %% [markdown]
# ## 4. It feels
#
# The file's sensors are read from a state. An accelerometer takes the acceleration that all forces make of the state,
# or one that is given: here the mean of each step.

# %%
dv = jnp.diff(walking.v, axis=0) / options.dt
read = jax.jit(jax.vmap(lambda state, u, a: pbad.read_sensors(dog, state, u, a)))(
    jax.tree.map(lambda x: x[1:], walking), controls[1:], dv
)
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.5), layout="constrained")
for axis, colour, felt, turning in zip("xyz", ("C0", "C1", "C2"), read["felt"].T, read["turning"].T):
    left.plot(walk.time[1:], felt, colour, label=axis)
    right.plot(walk.time[1:], turning, colour, label=axis)
left.set(xlabel="time (s)", ylabel="accelerometer (m/s²)")
right.set(xlabel="time (s)", ylabel="gyro (rad/s)")
right.legend()
plt.show()
print("mean of the accelerometer over whole strides:", read["felt"][-LAST:].mean(axis=0).round(2), "m/s²")

# %% [markdown]
# Every strike is felt, in the end by about 40 m/s². In the mean it reads about 9.81 upward, what it reads at rest.

# %% [markdown]
# ## 5. A URDF
#
# A URDF says nothing of a ground, a free base or actuators; three lines give it all of them, and drives that hold its
# pose. `motors` makes a control of two torques, which are zero here.

# %%
BASE = """<link name="{0}"><inertial><origin xyz="0 0 {1}"/><mass value="{2}"/>
  <inertia ixx="{3}" iyy="{3}" izz="{3}" ixy="0" ixz="0" iyz="0"/></inertial>
  <collision><origin xyz="0 0 {1}"/><geometry><box size="{4}"/></geometry></collision></link>"""
JOINT = """<joint name="{0}_hip" type="revolute"><parent link="trunk"/><child link="{0}"/><origin xyz="0 {1} 0"/>
  <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="40" velocity="10"/></joint>"""
URDF = f"""<robot name="stool">
  {BASE.format("trunk", 0, 3, 0.03, "0.3 0.16 0.1")}
  {BASE.format("left", -0.15, 0.5, 0.004, "0.2 0.03 0.3")} {JOINT.format("left", 0.1)}
  {BASE.format("right", -0.15, 0.5, 0.004, "0.2 0.03 0.3")} {JOINT.format("right", -0.1)}
</robot>"""

stool = pbad.with_ground(pbad.load(URDF, floating_base=True))
stool = pbad.with_actuators(stool, *pbad.motors(stool))
stool = pbad.with_forces(stool, forces.pd_drive(stool, ["left_hip", "right_hip"], kp=200.0, kd=5.0))
print(stool)
if not SMALL:  # another robot is another program
    traj, info = pbad.rollout(stool, pbad.make_state(stool), n_steps=50, options=options)
    print(f"{info}\nthe trunk moves {1e3 * jnp.abs(traj.q[-1, :3] - stool.q0[:3]).max():.2f} mm")

# %% [markdown]
# The command line does the same with a file:
#
# ```sh
# pbad-jax info stool.urdf --floating-base
# pbad-jax simulate stool.urdf --floating-base --hold --dt 0.02 --time 2 --scheme radau1 --html stool.html
# ```
#
# The first says what the file is made of and what of it does not act:

# %%
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "stool.urdf")
    path.write_text(URDF)
    command = [sys.executable, "-m", "pbad_jax", "info", str(path), "--floating-base"]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

# %% [markdown]
# ## 6. It is differentiated
#
# By how much does the walk get longer if the hips swing farther, the knees bend more, the legs go quicker? We start
# in the middle of the walk, take one stride of 20 steps, and compare reverse mode with central difference quotients:
# contact is stiff, so these need small differences.

# %%
middle = jax.tree.map(lambda x: x[STEPS // 2 - 1], walking)
STRIDE = 10 if SMALL else 20


def distance(p):
    """m forward, by hip, knee and frequency."""
    hip, knee, hertz = p
    aims = gait(hip, knee, hertz, middle.time + options.dt * jnp.arange(STRIDE))
    traj, info = pbad.rollout(dog, middle, controls=aims, options=options)
    return traj.q[-1, 0] - middle.q[0], info


with_gradient = jax.jit(jax.value_and_grad(distance, has_aux=True))
p = jnp.asarray([HIP, KNEE, HERTZ])
(far, info), gradient = with_gradient(p)
lines = []
for k, name in enumerate(("hip, m/rad", "knee, m/rad", "frequency, m/Hz")):
    wide, narrow = (
        (with_gradient(p.at[k].add(h))[0][0] - with_gradient(p.at[k].add(-h))[0][0]) / (2 * h) for h in (1e-4, 1e-6)
    )
    lines.append(f"by {name:16} gradient {gradient[k]:.6f}   quotients {wide:.6f} by 1e-4, {narrow:.6f} by 1e-6")
print(
    f"{far:.3f} m in {STRIDE} steps; derivatives pass through all of them: {bool(info.grad_ok.all())}", *lines, sep="\n"
)

# %% [markdown]
# ## Where next
#
# Forces, joints, contact, and what of a file acts: [what acts](../docs/what_acts.md). Sites, Jacobians, the centre of
# mass: [what a controller needs](../docs/robots.md). A task with rewards, of your robot:
# [environments](../docs/environments.md). Plans: [motions on purpose](05_trajectory_optimisation.py).
