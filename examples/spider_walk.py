"""The spider walks: a scripted gait, four feet on straight paths, through the twelve motors.

    python examples/spider_walk.py [--seconds 5] [--scheme radau1] [--html spider.html]

Nothing is fed back from the torso: the gait is one array of joint angles, (steps, 12), computed beforehand. The motors
follow it as position servos, whose springs and dampers are solved with the step.
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import pbad_jax as pbad
from pbad_jax import forces, viz

LEGS, HIP, THIGH, SHIN, DROP, FOOT = 4, 0.25, 0.4, 0.6, 1.2, 0.06  # of pbad.spider(): m, m, m, rad, m
OFFSETS = (0.0, 0.5, 0.0, 0.5)  # of a cycle: opposite legs go together


def servos(model: pbad.Model, stiffness: float = 400.0, damping: float = 12.0) -> pbad.Model:
    """The model with position servos for motors: controls are angles, rad, and torques keep to the motors' limits.

    Args:
        model: with hinges driven by motors. stiffness: N m/rad. damping: N m s/rad.
    """

    def servo(f):
        gear = f.law.gear
        n, most = len(gear), jnp.abs(gear)[:, None] * f.law.control_range
        bias = jnp.tile(jnp.asarray([0.0, -stiffness, -damping], gear.dtype), (n, 1))
        free = jnp.tile(jnp.asarray([-jnp.inf, jnp.inf], gear.dtype), (n, 1))
        one = jnp.ones(n, gear.dtype)
        return f.changed(gear=one, gain=-bias[:, 1], bias=bias, control_range=free, force_range=most)

    drives = (servo(f) if forces.is_actuator(f) else f for f in model.forces)
    return dataclasses.replace(model, forces=tuple(drives))


def leg_angles(foot: np.ndarray) -> np.ndarray:
    """Yaw, pitch and knee (...,3) rad that put the end of a leg at `foot` (...,3) m, seen from its hip, x outwards."""
    x, y, z = np.moveaxis(foot, -1, 0)
    out, reach = np.hypot(x, y), np.sqrt(x**2 + y**2 + z**2)
    at_hip = np.arccos((THIGH**2 + reach**2 - SHIN**2) / (2 * THIGH * reach))
    at_knee = np.arccos((THIGH**2 + SHIN**2 - reach**2) / (2 * THIGH * SHIN))
    return np.stack([np.arctan2(y, x), np.arctan2(-z, out) - at_hip, np.pi - at_knee - DROP], axis=-1)


def gait(
    time: np.ndarray,
    *,
    height: float = 0.55,
    stance: float = 0.62,
    period: float = 0.6,
    stride: float = 0.16,
    lift: float = 0.06,
    duty: float = 0.6,
    heading: float = 0.0,
) -> np.ndarray:
    """The angles of all motors at the times, (T,12) rad: yaw, pitch, knee of every leg.

    A foot on the ground goes back at a constant speed for `duty` of the period, and forth through the air in the rest.
    The stride grows from zero over the first period.

    Args:
        time: (T,) s. height: of the torso's centre, m. stance: from there to a foot, level, m.
        period: s. stride: m that a foot goes back. lift: m. duty: above ½. heading: rad from x.
    """
    legs = 2 * np.pi * np.arange(LEGS) / LEGS
    phase = (time[:, None] / period + np.asarray(OFFSETS)) % 1.0
    air = np.clip((phase - duty) / (1 - duty), 0, 1)
    along = np.where(phase < duty, 0.5 - phase / duty, air - 0.5 - np.sin(2 * np.pi * air) / (2 * np.pi))
    grown = np.clip(time / period, 0, 1)[:, None]
    step = stride * grown * along
    toward = heading - legs  # the heading, seen from each leg
    foot = np.stack(
        [
            stance - HIP + step * np.cos(toward),
            step * np.sin(toward),
            FOOT - height + lift * grown * np.sin(np.pi * air) ** 2,
        ],
        axis=-1,
    )
    return leg_angles(foot).reshape(len(time), -1)


def start(model: pbad.Model, height: float = 0.55, stance: float = 0.62) -> pbad.State:
    """At rest, its feet on the ground."""
    q = np.array(model.q0)
    q[2] = height
    q[7:] = np.tile(leg_angles(np.array([stance - HIP, 0.0, FOOT - height])), LEGS)
    return pbad.make_state(model, q)


def upright(q) -> np.ndarray:
    """The torso's own up axis along z, of configurations (...,18): 1 upright, 0 on its side."""
    q = np.asarray(q)
    return 1 - 2 * (q[..., 4] ** 2 + q[..., 5] ** 2)


def walk(seconds: float = 5.0, dt: float = 0.02, scheme: str = "radau1", on_failure: str = "freeze", **how):
    """The model, its trajectory and info; `how` is the gait's."""
    model = servos(pbad.spider())
    where = {k: how[k] for k in ("height", "stance") if k in how}
    angles = jnp.asarray(gait(dt * np.arange(1, round(seconds / dt) + 1), **how), model.dtype)
    options = pbad.Options(dt=dt, scheme=scheme, on_failure=on_failure)
    traj, info = pbad.rollout(model, start(model, **where), angles, options=options)
    return model, traj, info


def main() -> None:
    """Walk, say how far, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--dt", type=float, default=0.02)
    parser.add_argument("--scheme", default="radau1")
    parser.add_argument("--html", metavar="FILE", help="write an animation")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    model, traj, info = walk(arguments.seconds, arguments.dt, arguments.scheme, on_failure="substep")
    x, y, z = np.asarray(traj.q[-1, :3])
    print(info)
    print(
        f"walked {x:.2f} m in {arguments.seconds:g} s, {y:+.3f} m aside; {z:.2f} m high, up {upright(traj.q).min():.3f}"
    )
    if arguments.html:
        viz.to_html(model, traj, arguments.html)


if __name__ == "__main__":
    main()
