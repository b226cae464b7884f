"""The trees of helpers.py written as MJCF: MuJoCo is the independent judge of poses, masses and accelerations."""

import importlib
from typing import Any

import numpy as np
from helpers import DTYPE, random_actuators, random_bodies

import pbad_jax as pbad

mujoco: Any = importlib.import_module("mujoco")  # has no types
POLYNOMIALS = tuple(int(n) for n in mujoco.__version__.split(".")[:2]) >= (3, 7)  # whether MuJoCo has such springs


def numbers(x) -> str:
    return " ".join(f"{y:.17g}" for y in np.ravel(x))


def joint_xml(joint: pbad.Joint) -> list[str]:
    common = f'stiffness="{joint.stiffness:.17g}" damping="{joint.damping:.17g}" armature="{joint.armature:.17g}"'
    ref = f'ref="{joint.reference:.17g}" springref="{joint.reference:.17g}"'
    name, anchor = joint.name, f'pos="{numbers(joint.anchor)}"'
    if joint.type == "free":
        return [f'<joint name="{name}" type="free" {common}/>']
    if joint.type == "ball":
        return [f'<joint name="{name}" type="ball" {anchor} {common}/>']
    if joint.type in ("hinge", "slide"):
        place = anchor if joint.type == "hinge" else ""
        return [f'<joint name="{name}" type="{joint.type}" axis="{numbers(joint.axis)}" {place} {ref} {common}/>']
    a, b = joint.axis
    kinds = {
        "universal": [("hinge", a), ("hinge", b)],
        "planar": [("slide", a), ("slide", b), ("hinge", np.cross(a, b))],
    }[joint.type]
    return [
        f'<joint name="{name}.{k}" type="{kind}" axis="{numbers(axis)}" {anchor if kind == "hinge" else ""} {common}/>'
        for k, (kind, axis) in enumerate(kinds)
    ]


def to_mjcf(bodies, actuators, gravity) -> str:
    """MJCF text of Python bodies; quaternions are written as given (MuJoCo normalises)."""
    children: dict = {}
    for i, b in enumerate(bodies):
        children.setdefault(b.parent, []).append(i)

    def element(i: int) -> str:
        b = bodies[i]
        I = np.asarray(b.inertia)
        six = numbers([I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]])
        lines = [f'<body name="{b.name}" pos="{numbers(b.position)}" quat="{numbers(b.quaternion)}">']
        lines.append(f'<inertial pos="{numbers(b.com)}" mass="{b.mass:.17g}" fullinertia="{six}"/>')
        for j in b.joints:
            lines += joint_xml(j)
        return "\n".join([*lines, *(element(c) for c in children.get(i, [])), "</body>"])

    drives = "\n".join(
        f'<general name="{a.joint}_a" joint="{a.joint}" gear="{a.gear:.17g}" gainprm="{a.gain:.17g}" biastype="affine" '
        f'biasprm="{numbers(a.bias)}"/>'
        for a in actuators
    )
    return (
        f'<mujoco><compiler angle="radian" autolimits="false"/><option gravity="{numbers(gravity)}"/>'
        f"<worldbody>{''.join(element(i) for i in children[None])}</worldbody><actuator>{drives}</actuator></mujoco>"
    )


def mujoco_model(topology: str, seed: int, *, spread: float = 1.0):
    """The same random tree twice: ours through build_model, MuJoCo's through XML."""
    rng = np.random.default_rng(seed)
    bodies = random_bodies(topology, rng, spread=spread)
    actuators, gravity = random_actuators(bodies, rng), rng.normal(size=3) * 5
    model = pbad.build_model(bodies, actuators=actuators, gravity=gravity, name=topology, dtype=DTYPE)
    return model, mujoco.MjModel.from_xml_string(to_mjcf(bodies, actuators, gravity))
