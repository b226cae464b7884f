"""What the suite has no time for, counted: `python -m tests.torture` (hours; `--quick`: minutes). Not run by CI.

steps: random states of small systems with every scheme that claims something of them, at steps far too large; every
CONVERGED step is judged by mechanics that knows nothing of the solver: energy that no force explains, momenta of what
is free, joints that turn further than their rates say, balls that went through things. files, archives: mutants, to
which only our own errors are an answer. kills: `kill -9` of a long rollout. memory: one step again and again.

Counts go to benchmarks/results/torture.json, with what is needed to see each false claim again.
"""

import argparse
import pathlib
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "io")]

import pbad_jax as pbad  # noqa: E402
from benchmarks import common  # noqa: E402
from pbad_jax import Body, Geom, Joint, forces  # noqa: E402
from pbad_jax.kinematics import manifold, transforms  # noqa: E402

STEPS = 4  # of every lane
GAIN = 0.3  # of the energy at stake, a converged step that adds more is false: blows may (docs/mathematics.md)
SOME = 0.05  # what is counted apart: schemes' own errors, at steps of a radian and more
STAYS = ("radau1", "radau2", "radau3")  # schemes that promise to add none
SCHEMES = (*STAYS, "dirk2", "legendre2", "legendre3", "variational")


class System(NamedTuple):
    """A model and what holds of it."""

    model: pbad.Model
    fastest: float  # rad or m that a joint may move in a step
    is_free: bool = False  # no force at all: momenta stay


def free(inertia: list[float]) -> pbad.Model:
    """A ball of 0.1 m in space."""
    ball = Body("ball", 1.0, inertia=np.diag(inertia), joints=[Joint("free")], geoms=[Geom("sphere", size=(0.1,))])
    return pbad.build_model([ball], gravity=(0, 0, 0))


def four_bar(law: Callable, **how) -> pbad.Model:
    axis = (0.0, 1.0, 0.0)

    def bar(name, parent, position, joint):
        joints = [Joint("hinge", axis, name=joint)]
        return Body(name, 1.0, (0.5, 0, 0), np.diag([1e-3, 1 / 12, 1 / 12]), parent, position, joints=joints)

    bars = [bar("crank", None, (0, 0, 0), "a"), bar("coupler", "crank", (1, 0, 0), "b")]
    model = pbad.build_model([*bars, bar("rocker", "coupler", (1, 0, 0), "c")], q0=[0.3, -0.9, 1.4])
    return pbad.with_forces(model, law(model, "rocker", point=(1, 0, 0), **how))


def systems() -> dict[str, System]:
    """By name; few topologies, so that there is little to compile."""
    chain, balls = pbad.chain(3), pbad.chain(2, joint="ball")
    ball, rotor = free([0.004] * 3), free([0.01, 0.02, 0.029])
    sphere = forces.contact(ball, forces.sphere((0, 0, 0), 0.1), friction=0.0)
    box = forces.contact(ball, forces.box((0, 0, 0), (0.1, 0.1, 0.1)), friction=0.5)
    return {
        "chain": System(chain, 3.0),
        "chain of balls": System(balls, 3.0),
        "four bars": System(four_bar(forces.connect), 0.5),
        "free rotor": System(rotor, 3.0, is_free=True),
        "ball at a sphere": System(pbad.with_forces(ball, sphere), 0.3),
        "ball at a box": System(pbad.with_forces(ball, box), 0.3),
    }


def starts(system: System, name: str, lanes: int, seed: int) -> tuple[Any, jax.Array, jax.Array]:
    """States, steps dt (lanes,) s; of half of the lanes joints move little."""
    model, rng = system.model, np.random.default_rng(seed)
    dt = np.geomspace(1e-3, 1.0, lanes)[rng.permutation(lanes)]
    move = np.exp(rng.uniform(np.log(1e-3), np.log(system.fastest), (lanes, 1)))
    v = rng.normal(size=(lanes, model.nv)) * move / dt[:, None]
    away = rng.normal(size=(lanes, model.nv)) * (0.02 if name == "four bars" else 1.0)
    if name.startswith("ball at"):  # shot at it
        way = rng.normal(size=(lanes, 3))
        way /= np.linalg.norm(way, axis=1)[:, None]
        away[:, :3], v[:, :3] = 0.35 * way, -move / dt[:, None] * (way + 0.1 * rng.normal(size=way.shape))
    q = jax.vmap(lambda d: manifold.retract(model, model.q0, d))(jnp.asarray(away, model.dtype))
    return jax.vmap(lambda q, v: pbad.make_state(model, q, v))(q, jnp.asarray(v, model.dtype)), v, jnp.asarray(dt)


def judged(system: System, scheme: str, name: str, lanes: int, seed: int) -> dict:
    """How many steps converged, how many claims are false and why; the first of them."""
    model = system.model
    state, _, dt = starts(system, name, lanes, seed)
    dt = dt.astype(model.dtype)
    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme, linear_solver="auto"))

    def figures(s):
        T, U = pbad.kinetic_energy(model, s), pbad.potential_energy(model, s)
        return T, U, pbad.linear_momentum(model, s), pbad.angular_momentum(model, s)

    @jax.jit
    @jax.vmap
    def run(state, dt):
        def one(s, _):
            after, info = step(model, s, None, dt)
            moved = manifold.difference(model, s.q, after.q)
            return after, (figures(s), figures(after), info.status, moved, dt * s.v, dt * after.v, s.q, s.v)

        return jax.lax.scan(one, state, None, length=STEPS)[1]

    (T0, U0, P0, L0), (T1, U1, P1, L1), status, moved, by_old, by_new, q, v = jax.tree.map(np.asarray, run(state, dt))
    good, loose = status == 0, 1e-3 if model.dtype == np.float32 else 1e-6
    false, some = {}, None
    if scheme in STAYS:
        size = T0 + np.abs(U1 - U0) + float(transforms.total_mass(model)) * 1e-3
        gain = (T1 + U1 - T0 - U0) / size
        false["energy"], some = gain > GAIN, int(np.sum(good & (gain > SOME)))
    if system.is_free:
        false["momentum"] = np.linalg.norm(P1 - P0, axis=-1) > loose * (1e-3 + np.linalg.norm(P0, axis=-1))
        grown = np.linalg.norm(L1, axis=-1) > (1 + GAIN) * np.linalg.norm(L0, axis=-1) + loose
        false["angular momentum"] = grown
    if model.nq == model.nv:  # hinges
        apart = np.abs(moved - (by_old + by_new) / 2) > (np.abs(by_old) + np.abs(by_new)) / 2 + np.pi * (1 + loose)
        false["turned"] = np.any(apart, axis=-1)
    if name.startswith("ball at"):  # both ends outside, and the middle of the way within a third of the reach
        a, b = q[..., :3], q[..., :3] + moved[..., :3]
        nearest = np.min([np.linalg.norm(a + f * (b - a), axis=-1) for f in np.linspace(0, 1, 51)], axis=0)
        ends = np.minimum(np.linalg.norm(a, axis=-1), np.linalg.norm(b, axis=-1))
        false["went through"] = (ends > 0.2) & (nearest < 0.06)
    rows = {why: int(np.sum(good & x)) for why, x in false.items()}
    worst = next(((why, *np.argwhere(good & x)[0]) for why, x in false.items() if np.any(good & x)), None)
    first = None
    if worst is not None:
        why, lane, k = worst
        first = {"why": why, "lane": int(lane), "step": int(k), "dt": float(dt[lane]), "q": q[lane, k].tolist(),
                 "v": v[lane, k].tolist()}  # fmt: skip
    return {"steps": status.size, "converged": int(good.sum()), "false": rows, "gain_some": some, "first": first}


def steps(quick: bool) -> list[dict]:
    """Of every system with every scheme, in the precision that JAX is in."""
    lanes, names, rows = (256, ("radau1", "radau2"), []) if quick else (1000, SCHEMES, [])
    for (name, system), scheme in ((x, s) for x in systems().items() for s in names):
        row = {"system": name, "scheme": scheme, "dtype": str(system.model.dtype)}
        try:
            row |= judged(system, scheme, name, lanes, seed=len(rows))
        except pbad.OptionError as e:  # a scheme that the system's forces cannot have
            row["refused"] = str(e)
        rows.append(row)
        print(row, flush=True)
    return rows


def files(quick: bool) -> dict:
    """Mutants of model files: they load, or are refused by a ModelFileError; anything else ends this."""
    from test_hostile_files import MJCF, URDF, fuzz

    n, begun = 500 if quick else 15_000, time.process_time()
    loaded = sum(fuzz(text, range(10_000, 10_000 + n)) for text in (MJCF, URDF))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"files": 2 * n, "loaded": loaded, "cpu_s": time.process_time() - begun, "memory_gib": used}


def archives(quick: bool) -> dict:
    """Mutants of a saved trajectory: an error that names the file, or what was saved."""
    n, rng = 300 if quick else 10_000, random.Random(0)
    model = pbad.chain(2)
    states, info = pbad.rollout(model, pbad.make_state(model), n_steps=5, options=pbad.Options(dt=0.1))
    counts = {"archives": n, "read": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "a.npz"
        pbad.save_trajectory(path, model, states, info)
        whole = path.read_bytes()
        honest = pbad.load_trajectory(path)
        for _ in range(n):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            if rng.random() < 0.2:
                del data[rng.randrange(len(data)) :]
            path.write_bytes(data)
            try:
                read = pbad.load_trajectory(path)
                for name in ("time", "q", "v", "status"):
                    np.testing.assert_array_equal(getattr(read, name), getattr(honest, name))
                counts["read"] += 1
            except (OSError, pbad.ModelError) as e:
                assert str(path) in str(e), e
                counts["refused"] += 1
    return counts


def kills(quick: bool) -> dict:
    from test_long_rollouts import test_kill_minus_nine

    n = 4 if quick else 100
    with tempfile.TemporaryDirectory() as folder:
        test_kill_minus_nine(pathlib.Path(folder), n)
    return {"kills": n}


def memory(quick: bool) -> dict:
    """MiB that a process holds before and after so many calls of one step."""
    n, model = 10_000 if quick else 1_000_000, pbad.chain(2)
    step, state = jax.jit(pbad.make_step(pbad.Options(dt=0.01))), pbad.make_state(model)

    def held() -> float:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    before = 0.0
    for k in range(n):
        state, _ = step(model, state)
        if k == n // 10:
            before = held()
    return {"steps": n, "mib_after_a_tenth": before, "mib_at_the_end": held(), "status": int(state.status)}


PARTS: dict[str, Callable[[bool], Any]] = {f.__name__: f for f in (steps, files, archives, kills, memory)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    arguments.add_argument("--quick", action="store_true", help="minutes instead of hours")
    arguments.add_argument("--float32", action="store_true")
    arguments.add_argument("--out", type=pathlib.Path, default=common.RESULTS)
    given = arguments.parse_args()
    wrong = [p for p in given.parts if p not in PARTS]
    if wrong:
        arguments.error(f"there is no part {wrong[0]!r}; there are {', '.join(PARTS)}")
    jax.config.update("jax_enable_x64", not given.float32)
    found = {name: PARTS[name](given.quick) for name in given.parts or PARTS}
    rows = [{"part": name, "result": x} for name, x in found.items()]
    print(common.write("torture32" if given.float32 else "torture", rows, given.out, quick=given.quick))
    false = sum(sum(row.get("false", {}).values()) for row in found.get("steps", []))
    print(f"{false} false claims")
    sys.exit(bool(false))


if __name__ == "__main__":
    main()
