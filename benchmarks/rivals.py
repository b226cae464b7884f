"""Other simulators in JAX on the chain of `pbad.chain`, each as one Engine; imported when they are asked for."""

import dataclasses
import importlib
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

GRAVITY, RADIUS = 9.81, 0.05
MASSLESS = 1e-6  # kg and kg m², of what jaxsim needs between the two hinges of a universal joint


class Engine(NamedTuple):
    """What a benchmark needs of a simulator. `with_parameters` takes a factor of all masses and gravity, m/s² down."""

    model: Any
    nq: int
    dofs: int
    start: Callable  # (model, q, v) -> state
    step: Callable  # (model, state, dt) -> state
    q: Callable  # state -> joint angles
    v: Callable  # state -> joint rates
    with_parameters: Callable  # (model, factor (), gravity ()) -> model


def chain_mjcf(n: int, limited: bool = False, integrator: str = "Euler") -> str:
    """A chain of n capsules, 1 m and 1 kg each, universal joints between them; nothing touches."""
    sys.setrecursionlimit(10000)
    kind = 'limited="true" range="-2 2"' if limited else 'limited="false"'

    def link(i: int) -> str:
        if i == n:
            return ""
        joints = "".join(f'<joint type="hinge" axis="{axis}" {kind}/>' for axis in ("1 0 0", "0 1 0"))
        geom = f'<geom type="capsule" fromto="0 0 0 0 0 -1" size="{RADIUS}" mass="1"/>'
        return f'<body pos="0 0 {-1 if i else 0}">{joints}{geom}{link(i + 1)}</body>'

    return (
        '<mujoco><compiler angle="radian"/>'
        f'<option integrator="{integrator}" gravity="0 0 {-GRAVITY}"><flag contact="disable"/></option>'
        '<custom><numeric name="matrix_inv_iterations" data="0"/></custom>'
        f'<default><geom contype="0" conaffinity="0"/></default><worldbody>{link(0)}</worldbody></mujoco>'
    )


def chain_sdf(n: int) -> str:
    """The same as SDF, for jaxsim: a universal joint is two hinges with a nearly massless link between them."""
    mujoco: Any = importlib.import_module("mujoco")
    capsule = mujoco.MjModel.from_xml_string(chain_mjcf(1))
    across, along = np.max(capsule.body_inertia[1]), np.min(capsule.body_inertia[1])

    def inertial(mass: float, inertia, z: float) -> str:
        entries = zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), (*inertia, 0, 0, 0))
        body = "".join(f"<{k}>{x}</{k}>" for k, x in entries)
        return f"<inertial><pose>0 0 {z} 0 0 0</pose><mass>{mass}</mass><inertia>{body}</inertia></inertial>"

    def link(name: str, z: float, content: str) -> str:
        return f'<link name="{name}"><pose>0 0 {z} 0 0 0</pose>{content}</link>'

    def joint(name: str, parent: str, child: str, axis: str) -> str:
        free = "<limit><lower>-1e16</lower><upper>1e16</upper></limit>"
        still = ("spring_reference", "spring_stiffness", "damping", "friction")
        calm = "".join(f"<{k}>0</{k}>" for k in still)
        return (
            f'<joint name="{name}" type="revolute"><parent>{parent}</parent><child>{child}</child>'
            f"<axis><xyz>{axis}</xyz>{free}<dynamics>{calm}</dynamics></axis></joint>"
        )

    parts, parent = [link("base", 0, inertial(1.0, (1, 1, 1), 0))], "base"
    parts.append('<joint name="fix" type="fixed"><parent>world</parent><child>base</child></joint>')
    for i in range(n):
        parts.append(link(f"m{i:03d}", -i, inertial(MASSLESS, (MASSLESS,) * 3, 0)))
        parts.append(link(f"l{i:03d}", -i, inertial(1.0, (across, across, along), -0.5)))
        parts.append(joint(f"x{i:03d}", parent, f"m{i:03d}", "1 0 0"))
        parts.append(joint(f"y{i:03d}", f"m{i:03d}", f"l{i:03d}", "0 1 0"))
        parent = f"l{i:03d}"
    return f'<sdf version="1.10"><model name="chain">{"".join(parts)}</model></sdf>'


def mjx(xml: str, **options) -> Engine:
    """MuJoCo's own port; `options` of its solver."""
    mujoco: Any = importlib.import_module("mujoco")
    X: Any = importlib.import_module("mujoco.mjx")
    m = mujoco.MjModel.from_xml_string(xml)
    for name, value in options.items():
        setattr(m.opt, name, value)
    data = X.make_data(m)

    def changed(model, factor, gravity):
        g = jnp.array([0.0, 0.0, -1.0]) * gravity
        masses = {"body_mass": factor * model.body_mass, "body_inertia": factor * model.body_inertia}
        return model.tree_replace({**masses, "opt.gravity": g})

    return Engine(
        model=X.put_model(m),
        nq=m.nq,
        dofs=m.nv,
        start=lambda model, q, v: data.replace(qpos=q, qvel=v),
        step=lambda model, s, dt: X.step(model.tree_replace({"opt.timestep": dt}), s),
        q=lambda s: s.qpos,
        v=lambda s: s.qvel,
        with_parameters=changed,
    )


def brax(xml: str) -> Engine:
    """The generalized pipeline; `chain_mjcf` asks for the exact inverse of the mass matrix (the default one is off by
    20 % in energy)."""
    pipeline: Any = importlib.import_module("brax.generalized.pipeline")
    mjcf: Any = importlib.import_module("brax.io.mjcf")
    system = mjcf.loads(xml)

    def changed(model, factor, gravity):
        inertia = model.link.inertia
        inertia = inertia.replace(mass=factor * inertia.mass, i=factor * inertia.i)
        model = model.replace(link=model.link.replace(inertia=inertia))
        g = jnp.array([0.0, 0.0, -1.0]) * gravity
        return model.tree_replace({"gravity": g, "opt.gravity": g})

    def step(model, s, dt):
        return pipeline.step(model.tree_replace({"opt.timestep": dt}), s, jnp.zeros(model.act_size()))

    return Engine(
        system, system.q_size(), system.qd_size(), pipeline.init, step, lambda s: s.q, lambda s: s.qd, changed
    )


def jaxsim(n: int, integrator: str = "SemiImplicitEuler") -> Engine:
    """A chain on a fixed base."""
    js: Any = importlib.import_module("jaxsim.api")
    logging.disable(logging.WARNING)
    kind = getattr(js.model.IntegratorType, integrator)
    model = js.model.JaxSimModel.build_from_model_description(
        chain_sdf(n), time_step=0.001, integrator=kind, is_urdf=False, gravity=GRAVITY
    )
    order = np.array([2 * int(name[1:]) + (name[0] == "y") for name in model.joint_names()])

    def start(model, q, v):
        return js.data.JaxSimModelData.build(model=model, joint_positions=q[order], joint_velocities=v[order])

    def changed(model, factor, gravity):
        known = model.kin_dyn_parameters
        links = known.link_parameters
        links = dataclasses.replace(links, mass=factor * links.mass, inertia_elements=factor * links.inertia_elements)
        known = dataclasses.replace(known, link_parameters=links)
        del gravity  # static in jaxsim: no derivative
        return dataclasses.replace(model, kin_dyn_parameters=known)

    return Engine(
        model=model,
        nq=model.dofs(),
        dofs=model.dofs(),
        start=start,
        step=lambda model, s, dt: js.model.step(dataclasses.replace(model, time_step=dt), s),
        q=lambda s: s.joint_positions[np.argsort(order)],
        v=lambda s: s.joint_velocities[np.argsort(order)],
        with_parameters=changed,
    )


def quiet() -> None:
    """Float64, and no warnings about what is not installed."""
    warnings.filterwarnings("ignore")
    jax.config.update("jax_enable_x64", True)
