"""The spider of examples/spider_walk.py stands and walks."""

import importlib.util
import pathlib

import numpy as np
import pytest

import pbad_jax as pbad

pytestmark = pytest.mark.float64

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "spider_walk.py"


def example():
    spec = importlib.util.spec_from_file_location("spider_walk", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


spider_walk = example()
STILL = {"stride": 0.0, "lift": 0.0}


def walked(seconds: float, **how) -> np.ndarray:
    """Every configuration, (T,19), of a walk without a failed step."""
    _, traj, info = spider_walk.walk(seconds, **how)
    q = np.asarray(traj.q)
    print(how, info, "from", q[0, :3], "to", q[-1, :3], "upright", spider_walk.upright(q).min())
    info.assert_ok()
    return q


def test_feet_are_where_the_angles_put_them():
    """The angles of a leg against forward kinematics, for feet all round the hip."""
    model = pbad.spider()
    rng = np.random.default_rng(0)
    feet = np.c_[rng.uniform(0.3, 0.6, 20), rng.uniform(-0.3, 0.3, 20), rng.uniform(-0.6, -0.3, 20)]
    for foot, angles in zip(feet, spider_walk.leg_angles(feet)):
        q = np.array(model.q0)
        q[:3], q[7:10] = 0, angles
        poses = pbad.forward_kinematics(model, q)
        shin = model.body_names.index("shin0")
        tip = np.asarray(poses.position[shin] + poses.rotation[shin] @ np.array([spider_walk.SHIN, 0, 0]))
        np.testing.assert_allclose(tip - [spider_walk.HIP, 0, 0], foot, atol=1e-12)


def test_the_gait_keeps_to_the_joints_and_repeats():
    """Within ±1 rad, the same in every period; without a stride it stands still."""
    time = np.arange(0, 3, 0.01)
    angles = spider_walk.gait(time, period=0.5)
    assert angles.shape == (300, 12) and np.abs(angles).max() < 1
    np.testing.assert_allclose(angles[100:150], angles[150:200], atol=1e-12)
    standing = spider_walk.gait(time, **STILL)
    np.testing.assert_allclose(standing, np.broadcast_to(standing[0], standing.shape), atol=1e-12)


@pytest.mark.slow
@pytest.mark.thorough
def test_it_stands():
    """Two seconds; its weight presses it down at first, then it keeps its height."""
    q = walked(2.0, **STILL)
    settled = q[25:]
    assert np.ptp(settled[:, 2]) < 1e-3 and abs(q[-1, 2] - spider_walk.start(pbad.spider()).q[2]) < 0.01
    assert np.abs(q[:, :2]).max() < 1e-3 and spider_walk.upright(q).min() > 0.999


def check_walk(q, least: float):
    assert q[-1, 0] > least and np.abs(q[:, 1]).max() < 0.05
    assert spider_walk.upright(q).min() > 0.9 and q[:, 2].min() > 0.5


@pytest.mark.slow
def test_it_walks():
    check_walk(walked(2.0), 0.3)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "scheme, on_failure, dt",
    [("radau1", "freeze", 0.02), ("radau1", "freeze", 0.01), ("radau2", "substep", 0.02)],
)
def test_it_walks_on(scheme, on_failure, dt):
    """1.4 m in small steps and with radau(2), 1.0 m with radau(1) in large ones."""
    check_walk(walked(6.0, dt=dt, scheme=scheme, on_failure=on_failure), 0.9)
