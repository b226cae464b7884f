"""Animations of a chain, a swimmer, the spider, gymnasium's ant and humanoid, and a quadruped; one picture of all.

    python examples/animations.py [--only NAME ...] [--out animations] [--movie docs/images/motions.gif]

Writes NAME.html for each into the folder (open them in a browser), and the README's moving picture where --movie asks
for it. Swimmer, spider, ant and quadruped are driven by rhythms: every joint follows its own sine, held by a spring and
a damper; nothing is fed back from the body. Chain and humanoid fall. Needs the extras `viz` and `models`; ant, humanoid
and quadruped also gymnasium and example-robot-data, as the tests do.
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

import pbad_jax as pbad
from pbad_jax import forces, viz
from pbad_jax.dynamics.instant import instant_of
from pbad_jax.viz.video import save_moving

FPS = 20
SECONDS, MOVIE_FPS, PANEL, COLUMNS, COLORS = 3.6, 12.5, (264, 198), 3, 128  # of the moving picture
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
    begin: float = 0.0  # s, where the moving picture begins
    dt: float = 0.02
    scheme: str = "radau1"
    controls: Any = None
    title: str = ""


def chain() -> Show:
    """Ten links in steps of 50 ms, let go when they are level."""
    model = pbad.chain(10)
    state = pbad.make_state(model, q=[np.pi / 2] + 19 * [0.0], v=20 * [0.05])
    return Show(model, state, 8.0, dt=0.05, scheme="radau3", title="10 links, 50 ms a step, radau3")


def swimmer() -> Show:
    """A wave that travels down four links; water resists across them more than along."""
    model = pbad.swimmer()
    wave = {f"joint{i}": (0.0, 0.9, -1.6 * i) for i in range(1, 4)}
    law = rhythm(model, wave, rate=3.0, stiffness=2e3, damping=2e2)
    model = pbad.with_forces(model, law)
    return Show(model, pbad.make_state(model), 13.0, 4.0, 0.05, "radau2", title="swimmer, 50 ms, radau2")


def spider() -> Show:
    """The gait of spider_walk.py."""
    model, seconds, dt = spider_walk.servos(pbad.spider()), 4.0, 0.02
    controls = spider_walk.gait(dt * np.arange(1, round(seconds / dt) + 1))
    return Show(model, spider_walk.start(model), seconds, controls=jnp.asarray(controls), title="spider, 20 ms, radau1")


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
    return Show(model, pbad.make_state(model, posed(model, law)), 4.2, title="gymnasium's ant, 20 ms, radau1")


def humanoid() -> Show:
    """Gymnasium's humanoid, pushed and without control: a fall with contact of all its limbs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, _ = pbad.load(_folder("gymnasium") / "envs/mujoco/assets/humanoid.xml", unsupported="warn")
    state = pbad.make_state(model, v=np.eye(model.nv)[0] * 1.2)
    return Show(model, state, 3.6, controls=np.zeros((180, model.nu)), title="gymnasium's humanoid, 20 ms, radau1")


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
    return Show(model, pbad.make_state(model, posed(model, law)), 4.0, title="A1 from URDF, 20 ms, radau1")


SHOWS: dict[str, Callable[[], Show]] = {f.__name__: f for f in (chain, spider, quadruped, swimmer, ant, humanoid)}


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


def moment(traj: Any, show: Show) -> Any:
    """The part of a trajectory that the moving picture shows."""
    time = np.asarray(traj.time)
    part = (time > show.begin - 1e-9) & (time < show.begin + SECONDS + 2 * show.dt)
    return jax.tree.map(lambda x: np.asarray(x)[part], traj)


def draw_movie(played: list[tuple[Show, Any]], path: pathlib.Path) -> None:
    """All shows side by side, in the time that they take."""
    count = round(SECONDS * MOVIE_FPS)
    panels = [
        viz.images(show.model, moment(traj, show), fps=MOVIE_FPS, size=PANEL, title=show.title)[:count]
        for show, traj in played
    ]
    panels += [np.full_like(panels[0], 255)] * (-len(panels) % COLUMNS)
    rows = [np.concatenate(panels[k : k + COLUMNS], axis=2) for k in range(0, len(panels), COLUMNS)]
    save_moving(np.concatenate(rows, axis=1), path, MOVIE_FPS, COLORS)


def bar(done: int, of: int, what: str) -> None:
    """The progress of all shows, on stderr."""
    width = 24 * done // of
    print(f"\r{'█' * width}{'·' * (24 - width)} {done}/{of} {what:<28}", end="\n" * (done == of), file=sys.stderr)


def main() -> None:
    """Simulate, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SHOWS, default=list(SHOWS), metavar="NAME")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("animations"), help="folder for the HTML")
    parser.add_argument("--movie", type=pathlib.Path, help="GIF of all, side by side")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    played = []
    for k, name in enumerate(arguments.only):
        bar(k, len(arguments.only), f"{name}: simulating")
        show = SHOWS[name]()
        traj, info = play(show)
        path = arguments.out / f"{name}.html"
        viz.to_html(show.model, traj, path, fps=FPS, title=show.title)
        played.append((show, traj))
        x = np.asarray(traj.q[-1, :2] - show.state.q[:2])
        print(f"{name}: {info}; moved {x[0]:+.2f}, {x[1]:+.2f} m; {path} ({path.stat().st_size / 1e6:.2f} MB)")
    bar(len(arguments.only), len(arguments.only), "done")
    if arguments.movie:
        draw_movie(played, arguments.movie)
        print(f"{arguments.movie} ({arguments.movie.stat().st_size / 1e3:.0f} kB)")


if __name__ == "__main__":
    main()
