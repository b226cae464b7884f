"""What stands before the examples in the docstrings."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad
from pbad_jax import control, envs, forces, newton_euler, viz  # noqa: F401
from pbad_jax.dynamics.instant import instant_of

jax.config.update("jax_enable_x64", True)
model = pbad.chain(2)  # two links of 1 m and 1 kg on universal joints, hanging along −z at q = 0
state = pbad.make_state(model, q=[1.0, 0.0, 0.0, 0.0], v=[0.0, 0.5, 0.0, 0.0])
arm = pbad.chain(2, joint="hinge")  # the same on hinges about x
hand = pbad.with_sites(model, {"hand": pbad.Site("link1", (0, 0, -1)), "wall": pbad.Site(None, (0, 1, 0))})
bead = pbad.Body("bead", 1.0, inertia=0.004 * np.eye(3), position=(0, 0, 0.09), joints=[pbad.Joint("free")],
                 geoms=[pbad.Geom("sphere", (0.1, 0, 0))])  # fmt: skip
ball = pbad.build_model([bead], name="ball")  # 1 cm below its rest on a ground at z = 0
options = pbad.Options(dt=0.05)
felt = pbad.build_model([dataclasses.replace(bead, joints=[pbad.Joint("hinge", (1, 0, 0), damping=0.3, stiffness=2.0,
                                                                      friction_loss=0.1, range=(-1, 1))])])  # fmt: skip
at = instant_of(model, state, jnp.zeros(0))  # what a force is given, at one instant
env = envs.make("pendulum")
start = env.reset(jax.random.key(0))
