"""Robots that people bring: which load without a flag, with everything acting, and whether their numbers are MuJoCo's.

Files of installed packages, and of what lies in the folder that the environment variable PBAD_ROBOTS names: packages
(`pip install --no-deps --target FOLDER gymnasium-robotics robosuite crazyflow mujoco-mjx`) and clones of repositories.
A model that is not there, or whose copy lacks files, is a row that says so, and is not counted.
"""

import dataclasses
import functools
import importlib
import importlib.util
import os
import pathlib
import re
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import run

import pbad_jax as pbad
from pbad_jax.importers import mjcf, mujoco_tendons, urdf
from pbad_jax.importers.compiling import compiled
from pbad_jax.importers.load import _read
from pbad_jax.importers.mujoco_names import Names
from pbad_jax.model.sensors import NO_SENSORS

MENAGERIE, ROBOSUITE, GYM_ROBOTICS = "mink/examples", "robosuite/models/assets", "gymnasium_robotics/envs/assets"
MODELS = {  # folder: files
    "gymnasium/envs/mujoco/assets": "ant half_cheetah hopper humanoid humanoidstandup inverted_double_pendulum "
    "inverted_pendulum pusher reacher swimmer walker2d walker2d_v5",
    "dm_control/suite": "acrobot ball_in_cup cartpole cheetah dog finger fish hopper humanoid humanoid_CMU manipulator "
    "pendulum point_mass quadruped reacher stacker swimmer walker",
    "mujoco/mjx/test_data": "humanoid/humanoid shadow_hand/scene_right barkour_v0/assets/barkour_v0_mjx actuator/arm26",
    "mujoco-repository/model": "car/car cube/cube_3x3x3 adhesion/active_adhesion",
    MENAGERIE: "aloha/scene boston_dynamics_spot/scene hello_robot_stretch_3/scene kuka_iiwa_14/scene "
    "leap_hand/scene_right shadow_hand/scene_right stanford_tidybot/scene ufactory_xarm7/scene unitree_g1/scene "
    "unitree_go1/scene unitree_h1/scene universal_robots_ur5e/scene wonik_allegro/scene_right",
    "dial-mpc/dial_mpc/models": "unitree_go2/mjx_scene_position unitree_go2/mjx_scene_force "
    "unitree_h1/mjx_scene_h1_walk wonik_allegro/scene_left",
    "loco-mujoco/loco_mujoco/environments/data": "atlas/atlas humanoid/humanoid_muscle humanoid/humanoid_torque "
    "quadrupeds/unitree_a1_torque talos/talos unitree_g1/g1 unitree_h1/h1",
    GYM_ROBOTICS: "adroit_hand/adroit_door adroit_hand/adroit_hammer fetch/pick_and_place hand/manipulate_block "
    "hand/reach kitchen_franka/kitchen_assets/kitchen_env_model",
    ROBOSUITE: "robots/panda/robot robots/sawyer/robot robots/iiwa/robot robots/gr1/robot robots/spot/robot",
    "crazyflow/drones": "cf2x_L250",
    "cassie-mujoco-sim/model": "cassie",
}
URDFS = "a1 alex_nub_hands allegro_left_hand anymal bolt laikago g1_29dof_rev_1_0 go2 iris panda pr2 simple_humanoid "
URDFS += "solo12 talos_reduced tiago ur5_robot"
mujoco: Any = importlib.import_module("mujoco")  # it has no types
STATES, ENOUGH, LEAST = 20, 1e-8, 1e-9
COMPARED = ("mass_matrix", "bias_force", "tendon_lengths", "tendon_moments")


def files() -> dict[str, pathlib.Path | None]:
    """Every model of the survey by name; None: it is not here."""
    found: dict[str, pathlib.Path | None] = {}
    for folder, names in MODELS.items():
        source, *rest = pathlib.PurePath(folder).parts
        for name in names.split():
            found[f"{source}/{name}"] = _in(source, [pathlib.Path(*rest, f"{name}.xml")])
    for name in URDFS.split():
        found[f"example-robot-data/{name}"] = _urdf(name)
    return found


def _in(source: str, paths: list[pathlib.Path]) -> pathlib.Path | None:
    """In an installed package, or in the folder of the others."""
    roots = [pathlib.Path(os.environ["PBAD_ROBOTS"]) / source] if "PBAD_ROBOTS" in os.environ else []
    spec = importlib.util.find_spec(source) if source.isidentifier() else None
    roots += [pathlib.Path(p) for p in (spec.submodule_search_locations or () if spec else ())]
    return next((r / p for r in roots for p in paths if (r / p).exists()), None)


@functools.cache
def _urdf_folder() -> pathlib.Path | None:
    """example-robot-data shares a prefix with pinocchio."""
    spec = importlib.util.find_spec("cmeel")
    for place in sys.path if spec else ():
        folder = pathlib.Path(place) / "cmeel.prefix/share/example-robot-data/robots"
        if folder.exists():
            return folder
    return None


def _urdf(name: str) -> pathlib.Path | None:
    folder = _urdf_folder()
    return next(iter(sorted(folder.rglob(f"{name}.urdf"))), None) if folder else None


def measure(name: str) -> dict:
    path = files()[name]
    if path is None:
        return {"model": name, "here": False, "why": "not installed"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, said = _by_mujoco(path)
        row = {"model": name, "here": True, "urdf": path.suffix == ".urdf", "mujoco_loads": plain is not None}
        try:
            model, report = pbad.load(path, unsupported="warn")
        except (pbad.ModelError, FileNotFoundError) as e:
            if plain is None and "No such file" in f"{said}{e}" or "no such file" in f"{e}":
                return row | {"here": False, "why": f"incomplete copy: {_short(e)}"}
            return row | {"loads": False, "everything_acts": False, "refused": [_short(e)]}
        row |= {"nv": model.nv, "nu": model.nu, "loads": not report.unsupported}
        inactive = [x for x in report.inactive if not x.startswith("read in part")]  # MuJoCo's finer points of softness
        row |= {"everything_acts": not report.unsupported and not inactive}
        row |= {"refused": list(report.unsupported), "inactive": inactive}
        row |= agreement(model, _cleaned(path) if plain is None or row["urdf"] else plain)
    return row


def _by_mujoco(path: pathlib.Path) -> tuple[Any, str]:
    try:
        return mujoco.MjModel.from_xml_path(str(path)), ""
    except ValueError as e:
        return None, str(e)


def _cleaned(path: pathlib.Path) -> Any:
    """MuJoCo's model of a file that it does not read by itself."""
    root, roots, budget = _read(path, ())
    prepared = (urdf if root.tag == "robot" else mjcf).prepare(root, roots, *([budget] if root.tag == "mujoco" else []))
    return compiled(prepared, False)[0]


def _short(e: Exception) -> str:
    """One line, without the folders of this machine."""
    return re.sub(r"(?<![.\w])/(?:[^\s:'/]+/)+", "", re.sub(r"\s+", " ", str(e)))[:200]


def agreement(model: pbad.Model, m: Any) -> dict:
    """The largest differences at random states, over MuJoCo's largest entries, of mass matrix, bias force, and of
    lengths and moments of tendons that do not wrap.

    A URDF is compared with what MuJoCo makes of the cleaned file: by itself it reads few of them.
    """
    if (model.nq, model.nv) != (m.nq, m.nv) or not m.nv:
        return {"tendons": 0} | dict.fromkeys(COMPARED) | {"agrees": (model.nq, model.nv) == (m.nq, m.nv)}
    rng = np.random.default_rng(1)
    q, v = np.tile(m.qpos0, (STATES, 1)), rng.normal(size=(STATES, m.nv))
    for row in q:
        mujoco.mj_integratePos(m, row, rng.normal(size=m.nv) * 0.6, 1.0)
    straight = [t for t in range(m.ntendon) if not mujoco_tendons.why_not(m, t)]
    theirs = [_numbers(m, straight, *state) for state in zip(q, v)]
    ours = _numbers_of(model, m, straight)(jnp.asarray(q), jnp.asarray(v))
    worst = {k: _apart(x, np.array(y)) for k, x, y in zip(COMPARED, ours, zip(*theirs))}
    return {"tendons": len(straight)} | worst | {"agrees": max(x or 0.0 for x in worst.values()) < ENOUGH}


def _apart(ours: jax.Array, theirs: np.ndarray) -> float | None:
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), LEAST)) if theirs.size else None


def _numbers_of(model: pbad.Model, m: Any, tendons: list[int]):
    bare = dataclasses.replace(model, forces=tuple(f for f in model.forces if isinstance(f, pbad.forces.Gravity)))
    paths = [mujoco_tendons.tendon(m, t, Names(m)) for t in tendons]
    seen = {f"{x} {k}": pbad.Sensor(f"tendon{x}", of=path) for k, path in enumerate(paths) for x in ("pos", "vel")}
    watched = pbad.with_sensors(dataclasses.replace(bare, sensors=NO_SENSORS), seen)

    def extents(x, q, v):
        read = pbad.read_sensors(watched, pbad.make_state(watched, q, v))
        return jnp.stack([read[f"{x} {k}"].reshape(()) for k in range(len(paths))])

    def numbers(q, v):
        still = jnp.zeros_like(v)
        bias = pbad.newton_euler.inverse_dynamics(bare, pbad.make_state(bare, q, v), still)
        out = pbad.newton_euler.mass_matrix(bare, q), bias
        if not paths:
            return *out, jnp.zeros(0), jnp.zeros((0, model.nv))
        return *out, extents("pos", q, v), jax.vmap(lambda e: extents("vel", q, e))(jnp.eye(model.nv)).T

    return jax.jit(jax.vmap(numbers))


def _numbers(m: Any, tendons: list[int], q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mass matrix; the force that holds against gravity and inertia; lengths of tendons and how joints change them."""
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = q, v
    mujoco.mj_forward(m, d)
    M = np.zeros((m.nv, m.nv))
    for row, unit in zip(M, np.eye(m.nv)):
        mujoco.mj_mulM(m, d, row, unit)
    moments = np.zeros((m.ntendon, m.nv))
    if m.ntendon:
        mujoco.mju_sparse2dense(moments, d.ten_J, m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind)
    return M, np.array(d.qfrc_bias), d.ten_length[tendons], moments[tendons]


def plan(quick: bool) -> list[tuple]:
    names = list(files())
    return [(name,) for name in (names[:2] if quick else names)]


def main() -> None:
    run("survey", __doc__, plan, measure, states=STATES, enough=ENOUGH)


if __name__ == "__main__":
    main()
