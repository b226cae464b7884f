"""Every array of a model and of its forces moves a step: nothing that can be changed or learnt is a silent no-op."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, random_inertia, thorough

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, Site, forces
from pbad_jax.analysis.finite_differences import directions, named_arrays, replaced

pytestmark = pytest.mark.float64
CHANGE = 1e-3  # of the largest entry of an array
LEAST = 1e-9  # rad, m, rad/s or m/s: far above rounding
STEP = pbad.make_step(pbad.Options(dt=0.005, scheme="radau1"))


@jax.jit
def end(model: pbad.Model, v: jax.Array, control: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Configuration and velocity after a step from the model's own q0, and its status."""
    state, info = STEP(model, pbad.make_state(model, v=v), control)
    return jnp.concatenate([state.q, state.v]), info.status


TENDON = {"knee": 0.7, "rail": 1.3}
ROPE = (Site("shin", (0.1, 0, 0)), Site("cart", (0, 0.1, 0)), 2.0, Site("cart"), Site(None, (1, 1, 1)))


@functools.cache
def machine() -> pbad.Model:
    """All kinds of joints and every force but other surfaces; at q0 all of them act."""
    rng = np.random.default_rng(0)
    feel = {"stiffness": 2.0, "damping": 0.3, "friction_loss": 0.2, "stick_speed": 0.1, "armature": 0.05}

    def body(name, parent, position, *joints):
        geoms = [Geom("capsule", (0.2, 0.2), (0.02, 0, 0.01), rng.normal(size=4))]
        com, I = rng.normal(size=3) * 0.05, random_inertia(rng, 1.0) + 0.01 * np.eye(3)
        return Body(name, 1.0, com, I, parent, position, rng.normal(size=4), joints, geoms)

    bodies = [
        body("trunk", None, (0, 0, 0.25), Joint("free", name="float", spring_reference=(0, 0, 1, 1, 0, 0, 0), **feel)),
        body("thigh", 0, (0.3, 0, 0), Joint("ball", name="hip", anchor=(0.1, 0, 0), range=(0, 0.3),
                                            spring_reference=(1, 0, 0, 0), **feel)),
        body("shin", 1, (0, 0.3, 0), Joint("hinge", (0, 0.6, 0.8), "knee", (0.1, 0, 0), range=(-1, 0.2),
                                           spring_reference=-0.1, **feel)),
        body("cart", None, (2, 0, 0.15), Joint("slide", (0, 0.6, 0.8), "rail", range=(0.1, 1), **feel)),
        body("wheel", 3, (0.05, 0, 0.05), Joint("universal", name="hub", **feel)),
        body("puck", None, (4, 0, 0.25), Joint("planar", name="table", **feel)),
    ]  # fmt: skip
    clipped = {"control_range": (-0.5, 0.5), "bias": (0.1, -0.5, -0.2)}
    q0 = np.r_[0, 0, 0.25, 1, 0, 0, 0, np.cos(0.3), np.sin(0.3), 0, 0, 0.3, 0, 0.1, -0.2, 0, 0, 0.1]
    model = pbad.build_model(
        bodies,
        actuators=[
            Actuator("knee", gear=1.5, gain=2.0, **clipped),
            Actuator("rail", gear=0.5, gain=3.0, force_range=(-0.5, 0.5)),
            Actuator("hip", gear=(1, 2, 3), gain=2.0, **clipped),
            Actuator("float", gear=rng.normal(size=6), gain=2.0, in_parent=True, force_range=(-0.3, 0.3)),
            Actuator("table", gear=(1, 2, 3), **clipped),
            Actuator(TENDON, "tendon", gear=1.5, gain=2.0, **clipped),
            Actuator(TENDON, "weak", force_range=(-0.3, 0.3)),
            Actuator(Site("wheel", (0, 0, 0.1)), "jet", gear=rng.normal(size=6), gain=2.0, **clipped),
            Actuator(Site("shin"), "weak jet", gear=rng.normal(size=6), force_range=(-0.3, 0.3)),
            Actuator(ROPE, "winch", gear=1.5, gain=2.0, **clipped),
            Actuator(ROPE, "weak winch", force_range=(-0.3, 0.3)),
        ],
        q0=q0,
        dtype=DTYPE,
    )
    weak: dict[str, Any] = {"stiffness": 50.0, "damping": 2.0}
    return pbad.with_forces(
        model,
        forces.pd_drive(model, ["knee", "rail"], 5.0, 0.5, target=(0.0, 0.2), force_limit=(0.1, 100.0)),
        forces.joint_force(model, rng.normal(size=model.nv)),
        forces.tendon_spring(model, [TENDON] * 2, stiffness=5.0, rest=[[0.5, 0.7], [-0.7, -0.5]], damping=0.3),
        forces.tendon_friction(model, TENDON, 2.0, stick_speed=0.5),
        forces.tendon_limit(model, [TENDON] * 2, [[0.5, 9.0], [-9.0, -0.5]], stiffness=50.0, width=0.1),
        forces.tendon_coupling(model, TENDON, {"knee": 1.0}, polynomial=(0, 0.7, 0.3, -0.2, 0.1), offset=(0.2, -0.3),
                               stiffness=3.0, damping=0.5),
        forces.tendon_spring(model, [ROPE] * 2, stiffness=5.0, rest=[[0.1, 0.7], [9.0, 12.0]], damping=0.3),
        forces.tendon_limit(model, [ROPE] * 2, [[9.0, 12.0], [0, 0.5]], stiffness=50.0, width=0.1),
        forces.gravity_compensation(model, {"shin": 0.5}),
        forces.joint_polynomial(model, ["knee", "rail"], stiffness=(2.0, 3.0), damping=(0.2, 0.3), rest=(0.1, -0.2)),
        forces.connect(model, "wheel", "shin", **weak),
        forces.weld(model, "cart", "puck", **weak),
        forces.connect(model, "puck", **weak),
        forces.weld(model, "wheel", **weak),
        forces.contact(model, stiffness=500.0, stick_speed=0.1),
        forces.contact(model, stiffness=100.0, stick_speed=0.1, at="stages"),
        forces.body_contact(model, [("trunk", "thigh"), ("cart", "wheel")], stiffness=500.0, stick_speed=0.1),
        forces.wrench(model, "shin", (1, 2, 3), (0.3, 0.2, 0.1), frame="body"),
        forces.wrench(model, "wheel", (1, 2, 3), (0.3, 0.2, 0.1)),
        forces.drag(0.1),
        forces.fluid(model, 2.0, 1.0),
        forces.inertia_boxes(model, 10.0, 1.0, (1, 2, 3)),
        forces.paper_drag(0.01),
        forces.paper_contact(model, 100.0),
        forces.paper_friction(model, 10.0),
    )  # fmt: skip


@functools.cache
def anvil() -> pbad.Model:
    """A body whose points lie in the ground of every kind."""
    model = pbad.build_model([Body("b", 1.0, inertia=np.eye(3) * 0.1, joints=[Joint("free")])], dtype=DTYPE)
    heights = np.random.default_rng(1).normal(size=(5, 5)) * 0.01
    grounds = [
        forces.sphere((0, 0.02, -0.98), 1.0),
        forces.capsule((-1, 0, -0.25), (1, 0.1, -0.2), 0.25),
        forces.box((-0.05, 0, -0.2), (0.1, 0.5, 0.2), quaternion=(20, 1, 0, 0), round=0.02),  # at an edge
        forces.height_field(heights, origin=(-0.5, -0.4), spacing=(0.2, 0.3)),
        forces.SignedDistance(lambda P, p: p[0] * P[2] + p[1] * P[0] ** 2 - p[2], jnp.asarray([1.0, 2.0, 0.02])),
    ]
    points = forces.points_on(model, "b", [(0.06, 0.05, 0.01), (0.05, 0.04, -0.01)], radius=0.05)
    laws = [forces.contact(model, ground, points=points, stiffness=200.0, stick_speed=0.1) for ground in grounds]
    return pbad.with_forces(model, *laws)


@functools.cache
def bricks() -> pbad.Model:
    """A box, and a cylinder that has sunk into its side."""
    half, lying = Geom("box", (0.1, 0.1, 0.1)), Geom("cylinder", (0.1, 0.1), quaternion=(0.9, 0.1, 0.4, 0.2))
    inertia = {"inertia": np.eye(3) * 0.1, "joints": [Joint("free")]}
    bodies = [Body("box", 1.0, geoms=[half], **inertia)]
    bodies.append(Body("can", 1.0, position=(0.19, 0.02, 0.03), geoms=[lying], **inertia))
    model = pbad.build_model(bodies, dtype=DTYPE)
    return pbad.with_forces(model, *forces.contact_between(model, [("box", "can")], stiffness=500.0, stick_speed=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("make", [thorough(machine), thorough(anvil), bricks])
def test_every_array_moves_a_step(make):
    model, rng = make(), np.random.default_rng(2)
    v = jnp.asarray(rng.normal(size=model.nv), DTYPE)
    control = jnp.full(model.nu, 1.0, DTYPE)
    start, status = end(model, v, control)
    assert status == pbad.Status.CONVERGED
    arrays, idle = named_arrays(model), {}
    for name, d in directions(arrays).items():
        if name.endswith(".half") and "surface" not in name:
            continue  # of a contact: acts where a body is at its middle in the ground, see test_fast_impacts.py
        there, status = end(replaced(model, {name: arrays[name] + CHANGE * d}), v, control)
        moved = float(jnp.max(jnp.abs(there - start)))
        if status != pbad.Status.CONVERGED or not moved > LEAST:
            idle[name] = (pbad.Status(int(status)).name, moved)
    assert not idle


@pytest.mark.parametrize("make", [machine, anvil, bricks])
def test_every_leaf_is_an_array_of_numbers(make):
    """Choices and indices are static; nothing else is differentiated, stacked or cast by mistake."""
    model = make()
    for path, x in jax.tree_util.tree_leaves_with_path(model):
        assert x.dtype == DTYPE and x.size, jax.tree_util.keystr(path)
    assert len(named_arrays(model)) == len(jax.tree.leaves(model))


def test_every_force_is_looked_at():
    """All kinds that the library has."""
    kinds = {x for x in vars(forces).values() if isinstance(x, type) and hasattr(x, "load")} - {forces.Force}
    assert kinds == {type(f) for make in (machine, anvil, bricks) for f in make().forces}
