"""Animations of a swimmer, the spider, gymnasium's ant and a quadruped, and one picture of all four.

    python examples/animations.py [--only NAME ...] [--out animations] [--strip docs/images/walks.png]

Writes NAME.html for each into the folder (open them in a browser), and the picture where --strip asks for it. All are
driven by rhythms: every joint follows its own sine, held by a spring and a damper; nothing is fed back from the body.
Needs the extras `viz` and `models`; ant and quadruped also gymnasium and example-robot-data, as the tests do.
"""

import argparse
import dataclasses
import functools
import importlib.util
import pathlib
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import spider_walk
import strip

import pbad_jax as pbad
from pbad_jax import forces, viz
from pbad_jax.dynamics.instant import instant_of

FPS = 20
RAMP = 0.5  # s, in which a rhythm comes in


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["middle", "swing", "phase", "rate", "stiffness", "damping"],
    meta_fields=["q_index", "v_index"],
)
@dataclasses.dataclass(frozen=True)
class Rhythm:
    """Springs and dampers that lead n joints along middle + swing sin(rate t + phase)."""

    middle: jax.Array  # (n,) rad
    swing: jax.Array  # (n,) rad
    phase: jax.Array  # (n,) rad
    rate: jax.Array  # () rad/s
    stiffness: jax.Array  # () N m/rad
    damping: jax.Array  # () N m s/rad
    q_index: tuple[int, ...]
    v_index: tuple[int, ...]

    def load(self, model: pbad.Model, at: pbad.Instant) -> pbad.Load:
        """The torques and their diagonal slopes."""
        q, v = np.asarray(self.q_index), np.asarray(self.v_index)
        grown = jnp.clip(at.time / RAMP, 0, 1)
        wanted = self.middle + grown * self.swing * jnp.sin(self.rate * at.time + self.phase)
        zero = jnp.zeros(model.nv, model.dtype)
        return pbad.Load(
            tau=zero.at[v].add(self.stiffness * (wanted - at.q[q]) - self.damping * at.v[v]),
            dtau_dq=zero.at[v].add(-self.stiffness),
            dtau_dv=zero.at[v].add(-self.damping),
        )


def rhythm(model: pbad.Model, lines: dict[str, tuple[float, float, float]], rate: float, stiffness: float,
           damping: float) -> Rhythm:  # fmt: skip
    """Joint name -> (middle, swing, phase), rad."""
    joints = {j.name: j for j in model.topology.joints}
    middle, swing, phase = jnp.asarray(list(lines.values()), model.dtype).T
    gains = {"rate": rate, "stiffness": stiffness, "damping": damping}
    return Rhythm(
        middle, swing, phase, **{k: jnp.asarray(x, model.dtype) for k, x in gains.items()},
        q_index=tuple(joints[n].q for n in lines), v_index=tuple(joints[n].v for n in lines),
    )  # fmt: skip


def posed(model: pbad.Model, law: Rhythm) -> np.ndarray:
    """q0 with the joints of a rhythm in their middles, and the lowest contact point on the ground."""
    q = np.array(model.q0)
    q[list(law.q_index)] = np.asarray(law.middle)
    touch = next(f for f in model.forces if isinstance(f, forces.Contact))
    instant = instant_of(model, pbad.make_state(model, q), jnp.zeros(model.nu, model.dtype))
    q[2] += float(jnp.max(touch.depth(model, instant)))
    return q


@dataclasses.dataclass(frozen=True)
class Show:
    """What is simulated, and how it is drawn."""

    model: pbad.Model
    state: pbad.State
    seconds: float
    period: float  # s
    dt: float = 0.02
    scheme: str = "radau1"
    controls: Any = None
    title: str = ""


def swimmer() -> Show:
    """A wave that travels down four links; water resists across them more than along."""
    model = pbad.swimmer()
    wave = {f"joint{i}": (0.0, 0.9, -1.6 * i) for i in range(1, 4)}
    law = rhythm(model, wave, rate=3.0, stiffness=2e3, damping=2e2)
    model = pbad.with_forces(model, law)
    return Show(model, pbad.make_state(model), 13.0, 2 * np.pi / 3, 0.05, "radau2", title="swimmer, 4 links in water")


def spider() -> Show:
    """The gait of spider_walk.py."""
    model, seconds, dt = spider_walk.servos(pbad.spider()), 4.0, 0.02
    controls = spider_walk.gait(dt * np.arange(1, round(seconds / dt) + 1))
    return Show(
        model, spider_walk.start(model), seconds, 0.6, controls=jnp.asarray(controls), title="spider, 12 motors"
    )


def ant() -> Show:
    """Gymnasium's ant: hips to and fro, ankles up and down a quarter cycle later, diagonal legs together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, _ = pbad.load(_folder("gymnasium") / "envs/mujoco/assets/ant.xml", unsupported="warn")
    lines = {}
    for leg, (side, bend) in enumerate(((-1, 1), (-1, -1), (1, -1), (1, 1)), start=1):
        phase = np.pi * (leg % 2)
        lines[f"hip_{leg}"] = (0.0, 0.4 * side, phase)
        lines[f"ankle_{leg}"] = (0.9 * bend, -0.3 * bend, phase + np.pi / 2)
    law = rhythm(model, lines, rate=9.0, stiffness=15.0, damping=0.5)
    model = pbad.with_forces(model, law)
    return Show(model, pbad.make_state(model, posed(model, law)), 4.2, 2 * np.pi / 9, title="ant, MJCF")


def quadruped() -> Show:
    """Unitree's A1 trots: thighs to and fro, calves drawn in while they go forth; shapes instead of meshes."""
    files = _robots().glob("a1_description/urdf/a1.urdf")
    text = re.sub(r"<visual>.*?</visual>", "", next(files).read_text(), flags=re.DOTALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, _ = pbad.load(text, floating_base=True, unsupported="warn")
    lines = {}
    for leg in ("FR", "FL", "RR", "RL"):
        phase = np.pi * (leg in ("FR", "RL"))
        lines[f"{leg}_hip_joint"] = (0.0, 0.0, 0.0)
        lines[f"{leg}_thigh_joint"] = (0.8, 0.25, phase)
        lines[f"{leg}_calf_joint"] = (-1.6, 0.3, phase + np.pi / 2)
    law = rhythm(model, lines, rate=14.0, stiffness=150.0, damping=4.0)
    touch = forces.contact(model, friction=0.9)
    model = pbad.with_forces(model, touch, law)
    return Show(model, pbad.make_state(model, posed(model, law)), 4.0, 2 * np.pi / 14, title="quadruped, URDF")


SHOWS: dict[str, Callable[[], Show]] = {"swimmer": swimmer, "spider": spider, "ant": ant, "quadruped": quadruped}


def _folder(package: str) -> pathlib.Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f'{package} is not installed; the tests bring it: pip install "pbad_jax[test]"')
    return pathlib.Path(spec.submodule_search_locations[0])


def _robots() -> pathlib.Path:
    """The folder that the wheels of example-robot-data and pinocchio share."""
    return _folder("pinocchio").parents[3] / "share" / "example-robot-data" / "robots"


def play(show: Show):
    """Roll a show out, every step certified, in parts where need be. With a progress bar where it takes long."""
    options = pbad.Options(show.dt, show.scheme, on_failure="substep")
    steps = round(show.seconds / show.dt)
    traj, info = pbad.rollout(show.model, show.state, show.controls, n_steps=steps, options=options)
    info.assert_ok()
    return traj, info


def bar(done: int, of: int, what: str) -> None:
    """The progress of all shows, on stderr."""
    width = 24 * done // of
    print(f"\r{'█' * width}{'·' * (24 - width)} {done}/{of} {what:<28}", end="\n" * (done == of), file=sys.stderr)


def main() -> None:
    """Simulate, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SHOWS, default=list(SHOWS), metavar="NAME")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("animations"), help="folder for the HTML")
    parser.add_argument("--strip", type=pathlib.Path, help="PNG with six moments of each")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    played = []
    for k, name in enumerate(arguments.only):
        bar(k, len(arguments.only), f"{name}: simulating")
        show = SHOWS[name]()
        traj, info = play(show)
        path = arguments.out / f"{name}.html"
        viz.to_html(show.model, traj, path, fps=FPS)
        played.append((show.title, show.model, traj, show.period))
        x = np.asarray(traj.q[-1, :2] - show.state.q[:2])
        print(f"{name}: {info}; moved {x[0]:+.2f}, {x[1]:+.2f} m; {path} ({path.stat().st_size / 1e6:.2f} MB)")
    bar(len(arguments.only), len(arguments.only), "done")
    if arguments.strip:
        strip.draw(played, arguments.strip)
        print(f"{arguments.strip} ({arguments.strip.stat().st_size / 1e3:.0f} kB)")


if __name__ == "__main__":
    main()
