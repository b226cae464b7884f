"""Robots that stand: `pbad-jax simulate ROBOT --hold` for five seconds, at the command line's own options.

How far the base goes from where it began, iterations a step, steps that were made in parts, and the CPU time of
one thread. Files as in survey.py.
"""

import time

from common import one_thread, run

one_thread()

import jax  # noqa: E402  its threads are counted when it starts
import numpy as np  # noqa: E402
from survey import files  # noqa: E402

import pbad_jax as pbad  # noqa: E402
from pbad_jax.cli.arguments import options_of, parse  # noqa: E402
from pbad_jax.cli.models import load_model  # noqa: E402
from pbad_jax.cli.standing import begin  # noqa: E402
from pbad_jax.rollouts import padded  # noqa: E402
from pbad_jax.step.options import without_dt  # noqa: E402

ROBOTS = (
    *("example-robot-data/go2", "example-robot-data/a1", "example-robot-data/g1_29dof_rev_1_0"),
    *("example-robot-data/anymal", "example-robot-data/solo12", "example-robot-data/laikago"),
    *("mink/unitree_g1/scene", "mink/unitree_h1/scene", "mink/boston_dynamics_spot/scene"),
    "dial-mpc/unitree_go2/mjx_scene_position",
    *("mujoco/barkour_v0/assets/barkour_v0_mjx", "cassie-mujoco-sim/cassie"),
)
SECONDS, DT = 5.0, 0.05


def measure(name: str, dt: float, seconds: float) -> dict:
    path = files().get(name)
    row = {"robot": name, "dt": dt, "seconds": seconds}
    if path is None:
        return row | {"here": False}
    floats = ["--floating-base"] if path.suffix == ".urdf" else []
    given = ["simulate", str(path), "--hold", "--unsupported", "warn", "--dt", str(dt), "--time", str(seconds), *floats]
    args = parse(given)
    model, _ = load_model(args)
    options, steps = options_of(args, model)
    model, state, control, said = begin(args, model)
    began = time.perf_counter()
    controls = np.broadcast_to(control, (steps, model.nu))
    arguments = padded.given(model, state, controls, steps, options)
    program = padded.programs(without_dt(options)).steps.lower(*arguments).compile()
    compiling = time.perf_counter() - began
    began = time.process_time()
    traj, info = jax.block_until_ready(padded.rolled_out(arguments, steps, options, False, program))
    busy = time.process_time() - began
    return row | {"here": True, "nv": model.nv, "begins": said} | figures(model, state, traj, info, seconds / busy) | {
        "compile_s": round(compiling, 1)
    }  # fmt: skip


def figures(model: pbad.Model, state: pbad.State, traj, info, real_time: float) -> dict:
    where = jax.jit(jax.vmap(lambda q: pbad.forward_kinematics(model, q).position[0]))
    away = np.linalg.norm(np.asarray(where(traj.q) - where(state.q[None])), axis=1)  # of the first body
    parts = np.asarray(info.substeps)
    last = pbad.make_state(model, traj.q[-1], traj.v[-1], time=float(traj.time[-1]))
    gaps = [float(np.abs(g).max()) for g in pbad.loop_gaps(model, last) if np.size(g)]
    return {
        "base_moves_m": round(float(away.max()), 5),
        "base_ends_m": round(float(away[-1]), 5),
        "iterations_a_step": round(float(np.mean(info.iterations)), 2),
        "in_parts": round(float(np.mean(parts > 1)), 4),
        "failed_steps": int(np.count_nonzero(info.status)),
        "times_real_time": round(real_time, 2),
        "loops_open_m": max(gaps) if gaps else None,
    }


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [("example-robot-data/go2", DT, 0.2)]
    return [(name, DT, SECONDS) for name in ROBOTS]


def main() -> None:
    run("standing", __doc__, plan, measure)


if __name__ == "__main__":
    main()
