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
# # Quickstart
#
# Takes 44 s of CPU, most of it compiling.
#
# Build or load an articulated body, simulate it, and look at the motion.
#
# Positions are in m and rad, times in s, masses in kg. A configuration `q` and a velocity `v` have MuJoCo's layout.

# %%
import os

import jax

jax.config.update("jax_enable_x64", True)  # double precision; leave it out for single

import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad
from pbad_jax import viz

SMALL = os.environ.get("PBAD_NOTEBOOK_SMALL") == "1"  # for a quick check of this notebook
SECONDS = 1.0 if SMALL else 5.0

# %% [markdown]
# ## A chain
#
# Links of 1 m and 1 kg, joined by universal joints, hang along −z from the origin at `q = 0`. We lift the first one
# by a quarter turn, so that the chain starts straight and horizontal, and give it a small sideways swing.

# %%
chain = pbad.chain(3 if SMALL else 5)
q = jnp.zeros(chain.nq).at[0].set(jnp.pi / 2)
v = jnp.zeros(chain.nv).at[1].set(0.3)
state = pbad.make_state(chain, q, v)
chain

# %% [markdown]
# A rollout is one compiled loop. Every step says how it ended: `info.status` is 0 where it converged.

# %%
options = pbad.Options(dt=0.02, scheme=pbad.radau(2))
traj, info = pbad.rollout(chain, state, n_steps=round(SECONDS / options.dt), options=options)

print("steps that failed:    ", int(jnp.sum(info.status != pbad.Status.CONVERGED)))
print("iterations a step:    ", round(float(info.iterations.mean()), 2))
print("largest residual:     ", f"{float(info.residual.max()):.1e}")

# %%
viz.show(chain, traj)

# %% [markdown]
# The total energy is conserved by the chain; what is lost here is lost by the scheme, where the chain cracks like a
# whip. Halve `dt` and see it shrink.

# %%
viz.plot_energy(chain, traj, info=info)
# %% [markdown]
# ## A model of your own
#
# Bodies come parents first. This is a double pendulum of two bars: a hinge about x, then one about y.

# %%
width, length = 0.1, 0.8
inertia = np.diag([length**2 + width**2, length**2 + width**2, 2 * width**2]) / 12


def bar(name, parent, axis):
    return pbad.Body(
        name,
        mass=1.0,
        com=(0, 0, -length / 2),
        inertia=inertia,
        parent=parent,
        position=(0, 0, 0) if parent is None else (0, 0, -length),
        joints=[pbad.Joint("hinge", axis, name=f"{name}_hinge", damping=0.02)],
        geoms=[pbad.Geom("box", (width / 2, width / 2, length / 2), (0, 0, -length / 2))],
    )


pendulum = pbad.build_model([bar("upper", None, (1, 0, 0)), bar("lower", "upper", (0, 1, 0))], name="pendulum")
state = pbad.make_state(pendulum, q=[2.0, 1.0])
traj, info = pbad.rollout(pendulum, state, n_steps=round(SECONDS / options.dt), options=options)
viz.show(pendulum, traj, height=300)

# %% [markdown]
# ## A model from a file
#
# `pbad.load` reads MJCF and URDF, from a file or from text. Features that it cannot honour are an error, never
# dropped in silence.

# %%
MJCF = """
<mujoco model="cart">
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom type="box" size="0.2 0.1 0.05" mass="1" contype="0" conaffinity="0"/>
      <body name="pole">
        <joint name="pivot" type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.8" size="0.03" mass="0.2" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
cart = pbad.load(MJCF)
print(cart)
print("joints:", [j.name for j in cart.topology.joints])

# %% [markdown]
# ## Many at once
#
# A rollout is a pure function, so `jax.vmap` runs eight starts in one program: the pole falls from eight angles.

# %%
angles = jnp.linspace(0.05, 0.6, 8)


def fall(angle):
    state = pbad.make_state(cart, q=jnp.array([0.0, angle]))
    return pbad.rollout(cart, state, n_steps=round(SECONDS / options.dt), options=options)


trajs, infos = jax.jit(jax.vmap(fall))(angles)
print("q of all lanes:", trajs.q.shape, " all converged:", bool(jnp.all(infos.status == pbad.Status.CONVERGED)))

# %%
viz.show(cart, trajs, layout="overlay", height=300)

# %% [markdown]
# ## Keep it
#
# `save_trajectory` writes one npz with times, states, body poses and energies; `to_html` one file that needs no
# network. The command line does all of this too: `pbad-jax simulate chain:10 --out t.npz --html a.html`.

# %%
import pathlib
import tempfile

with tempfile.TemporaryDirectory() as folder:
    pbad.save_trajectory(pathlib.Path(folder) / "pendulum.npz", pendulum, traj, info)
    viz.to_html(pendulum, traj, pathlib.Path(folder) / "pendulum.html")
    saved = pbad.load_trajectory(pathlib.Path(folder) / "pendulum.npz")
    print({p.name: p.stat().st_size for p in pathlib.Path(folder).iterdir()})

print(saved.metadata)
print("the lower bar's hinge after the last step:", saved.xpos[-1, saved.metadata["body_names"].index("lower")], "m")
