"""Real robots for five seconds: no failed step, and no energy out of nothing."""

import dataclasses

import jax
import numpy as np
import pytest
from robot_files import load_quietly, urdfs

import pbad_jax as pbad
from pbad_jax.cli import main

pytestmark = [pytest.mark.float64, pytest.mark.robots]

# file, floating base, step in s
ROBOTS = {"go2": (True, 0.02), "ur5_robot": (False, 0.02), "talos_reduced": (True, 0.02)}


def totals(model, q, v):
    """Total energies, J."""

    @jax.jit
    @jax.vmap
    def energies(q, v):
        state = pbad.make_state(model, q, v)
        return pbad.kinetic_energy(model, state) + pbad.potential_energy(model, state)

    return np.asarray(energies(q, v))


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ur5_robot", "go2", "talos_reduced"])
def test_five_seconds(name):
    """In the air without drives: it falls or swings from a random motion; friction and damping only take energy."""
    floating, dt = ROBOTS[name]
    model, _ = load_quietly(urdfs()[name], meshes=False, floating_base=floating)
    state = pbad.make_state(model, None, np.random.default_rng(1).normal(size=model.nv))
    options = pbad.Options(dt=dt, scheme=pbad.radau(2))
    traj, info = pbad.rollout(model, state, n_steps=round(5 / dt), options=options, progress=False)
    failed = np.flatnonzero(info.status)
    assert not failed.size, (name, failed[:5], np.asarray(info.status)[failed[:5]])
    assert np.all(np.isfinite(traj.q)) and np.mean(info.iterations) < 10  # of two solves, with limits or friction
    total = totals(model, *(np.concatenate([[a], b]) for a, b in ((state.q, traj.q), (state.v, traj.v))))
    rise = (total - np.minimum.accumulate(total)).max()
    scale = float(pbad.kinetic_energy(model, state))  # of the start: a fall would hide much
    assert rise <= 1e-3 * scale, f"{name}: energy rises by {rise / scale:.2g} of the kinetic energy at the start"


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("quarter", range(4))
def test_dirk_on_every_robot(quarter):
    """One second at 0.02 s from a random motion: every step of dirk(2) converges on every robot that loads.

    Without limits and dry friction, which act once a step and which dirk solves by a step of radau(2) first.
    """
    failed, simulated = {}, 0
    for name, path in sorted(urdfs().items())[quarter::4]:
        try:
            model, _ = load_quietly(path, meshes=False)
        except pbad.ModelError:
            continue  # test_robots.py knows which these are
        if not model.nv:
            continue
        model = dataclasses.replace(model, forces=tuple(f for f in model.forces if getattr(f, "at", "") != "step"))
        state = pbad.make_state(model, None, np.random.default_rng(1).normal(size=model.nv))
        options = pbad.Options(dt=0.02, scheme=pbad.dirk(2))
        _, info = pbad.rollout(model, state, n_steps=50, options=options, progress=False)
        simulated += 1
        print(name, model.nv, info)
        if not info.ok:
            failed[name] = repr(info)
    assert simulated >= 10 and not failed, failed


@pytest.mark.slow
def test_the_command_line_simulates_a_robot(capsys, tmp_path):
    out = tmp_path / "go2.npz"
    code = main(["simulate", str(urdfs()["go2"]), "--dt", "0.02", "--time", "0.1", "--out", str(out)])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert "failed" in printed.out and "5 of 0.02 s with radau2" in printed.out
    saved = pbad.load_trajectory(out)
    assert saved.q.shape == (5, 12) and not np.any(saved.status) and np.all(np.isfinite(saved.energy))


@pytest.mark.thorough
@pytest.mark.optimised
@pytest.mark.parametrize("name", ["go2", "a1"])
def test_a_held_robot_stands(name, capsys, tmp_path):
    """Five seconds on the ground that its URDF does not have, at the command line's own step: the base stays within
    2 cm, no step fails or is made in parts."""
    out = tmp_path / f"{name}.npz"
    code = main(["simulate", str(urdfs()[name]), "--floating-base", "--hold", "--time", "5", "--out", str(out)])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert "12 degrees of freedom held by PD drives" in printed.out and "on a ground at" in printed.out
    saved = pbad.load_trajectory(out)
    away = np.linalg.norm(saved.q[:, :3] - saved.q[0, :3], axis=1)
    assert not np.any(saved.status) and away.max() < 0.02, away.max()
    assert np.mean(saved.iterations) <= 10  # of two solves
