"""What the engines are compared on: each a text of MuJoCo's, so that all load the same, and where it starts."""

import importlib
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np
import rivals


class System(NamedTuple):
    """A model and a start.

    xml: MJCF. q, v: the start. scale: J, what energy errors are divided by.
    links: of a chain without springs, which the library and jaxsim build themselves; 0 = only MJCF knows it.
    stiffness, damping: (nv,) of joint springs and drives about q = 0, for engines that have to be told.
    """

    name: str
    xml: str
    q: np.ndarray
    v: np.ndarray
    scale: float
    links: int = 0
    stiffness: np.ndarray | None = None
    damping: np.ndarray | None = None


def chain(links: int, swing: float = 0.0) -> System:
    """Universal joints, straight and horizontal, at rest or with a sideways swing in units of sqrt(g / L)."""
    q, v = np.zeros(2 * links), np.zeros(2 * links)
    q[0], v[1] = np.pi / 2, swing * np.sqrt(rivals.GRAVITY / links)
    xml = rivals.chain_mjcf(links)
    return System(f"chain:{links}", xml, q, v, links * rivals.GRAVITY * links / 2, links=links)


def row(joints: list[str], length: float, actuators: str = "") -> str:
    """Capsules of 1 kg in a row, along x at q = 0; `joints` is what every one of them turns by."""

    def link(i: int) -> str:
        if i == len(joints):
            return ""
        geom = f'<geom type="capsule" fromto="0 0 0 {length} 0 0" size="{rivals.RADIUS}" mass="1"/>'
        return f'<body pos="{length if i else 0} 0 0">{joints[i]}{geom}{link(i + 1)}</body>'

    return (
        '<mujoco><compiler angle="radian"/>'
        f'<option integrator="Euler" gravity="0 0 {-rivals.GRAVITY}"><flag contact="disable"/></option>'
        '<custom><numeric name="matrix_inv_iterations" data="0"/></custom>'
        f'<default><geom contype="0" conaffinity="0"/></default><worldbody>{link(0)}</worldbody>'
        f"<actuator>{actuators}</actuator></mujoco>"
    )


def arm(links: int = 7, kp: float = 1e4, kd: float = 100.0) -> System:
    """A horizontal arm of 0.3 m links, hinged about z and y in turn; drives take it from 0.3 rad a joint to q = 0."""
    joints = [f'<joint name="j{i}" axis="0 {i % 2} {1 - i % 2}"/>' for i in range(links)]
    drives = "".join(f'<position joint="j{i}" kp="{kp}" kv="{kd}"/>' for i in range(links))
    q, v, ones = np.full(links, 0.3), np.zeros(links), np.ones(links)
    scale = links * rivals.GRAVITY * 0.3 * links / 2
    return System(f"arm:{links}", row(joints, 0.3, drives), q, v, scale, stiffness=kp * ones, damping=kd * ones)


def beam(links: int = 10, stiffness: float = 1e5, damping: float = 100.0) -> System:
    """A horizontal chain of universal joints, bent against the springs that hold it straight, let go at rest."""
    two = "".join(f'<joint axis="{axis}" stiffness="{stiffness}" damping="{damping}"/>' for axis in ("0 1 0", "0 0 1"))
    q, v, ones = np.tile([0.1, 0.05], links), np.zeros(2 * links), np.ones(2 * links)
    scale = links * rivals.GRAVITY * links / 2
    xml = row([two] * links, 1.0)
    return System(f"beam:{links}", xml, q, v, scale, stiffness=stiffness * ones, damping=damping * ones)


def drop() -> System:
    """A box of 1 kg, tilted and sliding, falls 0.1 m on the ground."""
    xml = (
        '<mujoco><option integrator="Euler"/><worldbody><geom type="plane" size="0 0 1"/>'
        '<body pos="0 0 0.25"><freejoint/><geom type="box" size="0.1 0.15 0.05" mass="1"/></body></worldbody></mujoco>'
    )
    q, v = np.array([0, 0, 0.25, np.cos(0.15), np.sin(0.15), 0, 0]), np.array([1.0, 0, 0, 0, 0.5, 0])
    return System("drop", xml, q, v, rivals.GRAVITY * 0.25)


def robot(name: str) -> System:
    """A robot of gymnasium, or "a1", the quadruped of example-robot-data; they fall on the ground, no control."""
    xml = quadruped() if name == "a1" else gymnasium_xml(name)
    mujoco: Any = importlib.import_module("mujoco")
    m = mujoco.MjModel.from_xml_string(xml)
    q, v = m.qpos0.copy(), np.zeros(m.nv)
    low, high = m.jnt_range[m.jnt_limited == 1].T
    q[m.jnt_qposadr[m.jnt_limited == 1]] = np.where((low < 0) & (high > 0), 0.0, (low + high) / 2)  # within its range
    v[6:] = 0.5 * np.random.default_rng(0).normal(size=m.nv - 6)
    q[2] += 0.5 if name == "a1" else 0.0  # the URDF has its trunk in the ground
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = q, v
    mujoco.mj_forward(m, d)
    return System(name, xml, q, v, float(m.body_mass.sum() * rivals.GRAVITY * d.subtree_com[0, 2]))


def gymnasium_xml(name: str) -> str:
    gymnasium: Any = importlib.import_module("gymnasium")
    path = pathlib.Path(gymnasium.__file__).parent / f"envs/mujoco/assets/{name}.xml"
    return path.read_text().replace(' coordinate="local"', "")


def quadruped() -> str:
    """Unitree's A1: the URDF's shapes, a free joint and the ground."""
    mujoco: Any = importlib.import_module("mujoco")
    pinocchio: Any = importlib.import_module("pinocchio")
    folder = pathlib.Path(pinocchio.__file__).parents[4] / "share/example-robot-data/robots/a1_description/urdf"
    text = re.sub(r"<visual>.*?</visual>", "", (folder / "a1.urdf").read_text(), flags=re.DOTALL)
    spec = mujoco.MjSpec.from_string(text)
    spec.worldbody.bodies[0].add_freejoint()
    ground = spec.worldbody.add_geom()
    ground.type, ground.size = mujoco.mjtGeom.mjGEOM_PLANE, [0, 0, 1]
    spec.compile()
    return spec.to_xml()
