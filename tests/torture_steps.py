"""Random steps of small systems, far too large ones too, and what independent mechanics says of those that converged.

One program for each system, scheme and precision; masses, stiffnesses, obstacles and gravity are numbers of its lanes.
A lane whose step has failed starts anew. What no judge can know of a lane (what a scheme errs by itself) is in
`judges.py`; how much of the energy at stake a step may add, in `allowed`.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import judges
import numpy as np
import torture_driven
from helpers import changed, part
from judges import Steps, Touching
from torture_system import Ends, R, System, rod, scaled, sizes, thrown

import pbad_jax as pbad
from pbad_jax import Body, Geom, Joint, forces
from pbad_jax.kinematics import manifold
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.force import acting
from pbad_jax.schemes import NAMES

LANES, ROUNDS = 1024, 3
FOLLOWED = 64  # lanes of every round whose root is followed
STRIDES = (50, 300, 3000)  # too long ones jump, too: friction at a contact has needed the last
STAYS = ("radau1", "radau2", "radau3")  # schemes that promise to add no energy
MOSTLY, OWN_ERROR = ("dirk2", "dirk3", "dirk4"), 0.101  # and those that add no more than a tenth of what is at stake
HILL, LITTLE = 0.101, 0.25  # and what radau1 may add in joints that turn by less than so many rad (docs/mathematics.md)
OWN, TURNED = 0.0101, 0.0905  # and what radau may add at all, and more where joints turn far
BLOW = 0.301  # of it, what a step may add that rolls over an edge or is blown against one (docs/mathematics.md)
SCHEMES = (*STAYS, *MOSTLY, "legendre2", "legendre3", "legendre4", "legendre5", "variational")
DTYPES = ("float64", "float32")
G = 9.81


# --- chains and loops ----------------------------------------------------------------------------------------


def of_joints(model: pbad.Model, s: Steps, loose: float) -> dict[str, np.ndarray]:
    t = tree(model.topology)
    return {"turned": judges.turns_too_far(s, t.scalar_v[t.hinge[t.scalar_links]], loose)}


def sprung(dtype, kind: str, n: int) -> System:
    """A chain with or without springs and weight."""
    rods = [rod(f"l{i}", f"l{i - 1}" if i else None, Joint(kind, name=f"j{i}", stiffness=1.0)) for i in range(n)]
    model = pbad.build_model(rods, dtype=dtype)

    def numbers(rng, n):
        return {"spring": rng.choice([0.0, 1.0, 30.0, 1e3], n), "weight": rng.choice([0.0, 1.0], n)}

    def lane(model, x):
        springs = tuple(scaled(f, x["spring"]) if part(f, "stiffness") else f for f in model.forces)
        return dataclasses.replace(model, forces=springs, gravity=model.gravity * x["weight"])

    def start(rng, n, _):
        return thrown(rng, n, model.nv, 3.0, 1.0)

    return System(model, numbers, lane, start, lambda s, x, e, loose: of_joints(model, s, loose), 0.01)


def loops(dtype) -> System:
    """Four bars closed by a ball-and-socket, welded, open, or nearly closed."""
    axis, I = (0.0, 1.0, 0.0), np.diag([1e-3, 1 / 12, 1 / 12])

    def bar(name, parent):
        at = (0 if parent is None else 1.0, 0, 0)
        return Body(name, 1.0, (0.5, 0, 0), I, parent, at, joints=[Joint("hinge", axis, name=f"at {name}")])

    bars = [bar("crank", None), bar("coupler", "crank"), bar("rocker", "coupler")]
    bare = pbad.build_model(bars, q0=[0.3, -0.9, 1.4], dtype=dtype)
    welded = forces.weld(bare, "rocker", point=(1, 0, 0), damping=0.0)
    model = pbad.with_forces(bare, forces.connect(bare, "rocker", point=(1, 0, 0), damping=0.0), welded)

    def numbers(rng, n):
        kind = rng.integers(0, 4, n)  # half of them connected
        strength = rng.choice([0.01, 1.0, 1.0, 100.0], n)
        return {"connect": strength * (kind < 2), "weld": strength * (kind == 2)}

    def lane(model, x):
        connect, weld = model.forces[-2:]
        both = scaled(connect, x["connect"]), scaled(weld, x["weld"])
        return dataclasses.replace(model, forces=(*model.forces[:-2], *both))

    def start(rng, n, _):
        away, v, dt = thrown(rng, n, model.nv, 0.5, 1.0)
        return away * rng.choice([0.0, 0.02], n)[:, None], v, dt

    return System(model, numbers, lane, start, lambda s, x, e, loose: of_joints(model, s, loose), 0.01)


def stopped(dtype) -> System:
    """Three hinges with ranges, dry friction, dampers and a medium that slows."""

    def joint(i):
        return Joint("hinge", (0, 1, 0), name=f"j{i}", damping=0.1, friction_loss=0.2, range=(-0.8, 0.8))

    rods = [rod(f"l{i}", f"l{i - 1}" if i else None, joint(i)) for i in range(3)]
    bare = pbad.build_model(rods, dtype=dtype)
    model = pbad.with_forces(bare, forces.drag(1.0))

    def numbers(rng, n):
        return {name: rng.choice([0.0, 1.0, 10.0], n) for name in ("damping", "friction", "drag")}

    def lane(model, x):
        def felt(f):
            name = {"JointDamping": "damping", "JointFriction": "friction", "Drag": "drag"}.get(pbad.forces.name_of(f))
            field = {"damping": "coefficient", "friction": "loss", "drag": "rate"}.get(name or "", "")
            return changed(f, **{field: getattr(part(f, field), field) * x[name]}) if name else f

        return dataclasses.replace(model, forces=tuple(map(felt, model.forces)))

    def start(rng, n, _):
        return thrown(rng, n, model.nv, 1.5, 0.5, 0.2)

    return System(model, numbers, lane, start, lambda s, x, e, loose: of_joints(model, s, loose), 0.01)


# --- bodies that fly, meet obstacles, lie on the ground ------------------------------------------------------


def rounded_box(half: np.ndarray, rim: np.ndarray, P: np.ndarray) -> np.ndarray:
    """The distance of points (..., n, 3) from n boxes at the origin, m."""
    y = np.abs(P) - (half - rim[:, None])
    return np.linalg.norm(np.maximum(y, 0), axis=-1) + np.minimum(y.max(-1), 0) - rim


SHAPES = np.array([[R, R, R], [R, R, R], [R, R, 2 * R], [50.0, 50.0, 1.0]])  # box, sphere, capsule, ground
RIMS = np.array([0.0, R, R, 0.0])
GROUND = 3


def shot(dtype) -> System:
    """A body of 0.1 m shot at a box, a sphere, a capsule, the ground; or a rotor far from all."""
    ball = Body("ball", 1.0, inertia=0.004 * np.eye(3), joints=[Joint("free")], geoms=[Geom("sphere", (R,))])
    bare = pbad.build_model([ball], dtype=dtype)
    model = pbad.with_forces(bare, forces.contact(bare, forces.box((0, 0, 0), (1, 1, 1))))

    def numbers(rng, n):
        kind = rng.integers(0, 5, n)  # 4: a rotor
        shape, free = np.minimum(kind, GROUND), (kind == 4)[:, None]
        spread = rng.uniform(0.01, 0.03, (n, 3)) * free + 0.004 * (1 - free)
        sorted_spread = np.sort(spread, axis=1)
        sorted_spread[:, 2] = np.minimum(sorted_spread[:, 2], 0.95 * (sorted_spread[:, 0] + sorted_spread[:, 1]))
        return {
            "kind": kind,
            "half": SHAPES[shape],
            "rim": RIMS[shape],
            "at": np.array([[0, 0, 0], [100.0, 0, 0]])[1 * free[:, 0]],
            "inertia": sorted_spread,
            "friction": rng.choice([0.0, 0.5, 1.0], n),
            "strength": rng.choice([0.1, 1.0, 10.0], n),
            "weight": np.where(kind == GROUND, 1.0, 0.0),
        }

    def lane(model, x):
        touch = scaled(model.forces[-1], x["strength"])
        surface = dataclasses.replace(touch.surface, half=x["half"], round=x["rim"], position=x["at"])
        touch = dataclasses.replace(touch, surface=surface, friction=x["friction"][None])
        I = x["inertia"]
        second = model.second_moment.at[-1].set(jnp.diag(jnp.concatenate([0.5 * jnp.sum(I) - I, jnp.ones(1, I.dtype)])))
        gravity = model.gravity * x["weight"]
        return dataclasses.replace(model, forces=(*model.forces[:-1], touch), second_moment=second, gravity=gravity)

    def start(rng, n, x):
        away, v, dt = thrown(rng, n, model.nv, 3.0, 1.0)
        kind, far = x["kind"], x["kind"] == 4
        way = rng.normal(size=(n, 3))
        way[kind == GROUND] = way[kind == GROUND] * [0.5, 0.5, 0] + [0, 0, 1]
        way /= np.linalg.norm(way, axis=1)[:, None]
        reach = np.where(kind == 2, 3 * R, 2.4 * R) + rng.uniform(0, R, n)
        from_ground = np.where(kind == GROUND, 1.0 + R + rng.choice([-0.002, 0.0, 0.1], n), 0)
        move = sizes(rng, n, 1e-3, 3.5 * R)
        speed = -(move / dt)[:, None] * (way + 0.2 * rng.normal(size=way.shape))
        place = np.where(
            (kind == GROUND)[:, None], way * [1, 1, 0] + from_ground[:, None] * [0, 0, 1], way * reach[:, None]
        )
        away[:, :3] = np.where(far[:, None], 0, place)
        v[:, :3] = np.where(far[:, None], v[:, :3], speed)
        return away, v, dt

    def judge(s, x, e, loose):
        turn = turns(s, slice(3, 6))
        a, b = e.q0[:, :3], e.q1[:, :3]
        free = x["kind"] == 4

        def distance(P):
            return rounded_box(x["half"], x["rim"], P - x["at"])

        t = Touching(np.zeros((1, 3)), R, x["friction"], x["kind"] == GROUND)
        found = {why: x & ~free for why, x in judges.wrong_wrench(s, t, turn, loose).items()}
        found["momentum"] = free & judges.changes_momentum(s, loose)
        found["spin"] = free & judges.changes_spin(s, turn, loose)
        found["went through"] = ~free & judges.goes_through(a, b, distance, R, 0.7)
        return found

    return System(model, numbers, lane, start, judge, BLOW, has_one_root=False)


def turns(s: Steps, rotation: slice) -> np.ndarray:
    """How far a body turns by the larger of its rates, (n,) rad."""
    return s.dt * np.maximum(judges.size(s.v0[:, rotation]), judges.size(s.v1[:, rotation]))


def lying(dtype) -> System:
    """A box that falls on the ground, slides, tips."""
    half = np.array([0.2, 0.15, 0.1])
    I = np.diag([half[1] ** 2 + half[2] ** 2, half[0] ** 2 + half[2] ** 2, half[0] ** 2 + half[1] ** 2]) / 3
    box = Body("box", 1.0, inertia=I, joints=[Joint("free")], geoms=[Geom("box", half)])
    bare = pbad.build_model([box], dtype=dtype)
    model = pbad.with_forces(bare, forces.contact(bare))
    points = np.asarray(model.forces[-1].u)[:, :3]

    def numbers(rng, n):
        return {"friction": rng.choice([0.0, 0.5, 1.0], n), "strength": rng.choice([0.1, 1.0, 10.0], n)}

    def lane(model, x):
        touch = scaled(model.forces[-1], x["strength"])
        friction = jnp.full_like(touch.friction, x["friction"])
        return dataclasses.replace(model, forces=(*model.forces[:-1], dataclasses.replace(touch, friction=friction)))

    def start(rng, n, _):
        away, v, dt = thrown(rng, n, model.nv, 1.0, 1.0, 0.2)
        flat = rng.random(n) < 0.5
        away[:, 3:] *= np.where(flat, 0.0, 1.0)[:, None]
        away[:, 2] = np.where(flat, half[2] + rng.choice([-1e-3, 0.0, 0.05], n), rng.uniform(0.2, 0.4, n))
        v[:, :3] = rng.normal(size=(n, 3)) * (sizes(rng, n, 1e-3, 0.5) / dt)[:, None]
        return away, v, dt

    def judge(s, x, e, loose):
        turn = turns(s, slice(3, 6))

        t = Touching(points, 0.0, x["friction"], np.ones(len(s.dt), bool))
        return judges.wrong_wrench(s, t, turn, loose)

    return System(model, numbers, lane, start, judge, BLOW, has_one_root=False)


def pair(dtype) -> System:
    """Two balls in space, shot at one another."""

    inertia = 0.004

    def ball(name):
        return Body(
            name, 1.0, inertia=inertia * np.eye(3), joints=[Joint("free", name=name)], geoms=[Geom("sphere", (R,))]
        )

    bare = pbad.build_model([ball("a"), ball("b")], gravity=(0, 0, 0), dtype=dtype)
    model = pbad.with_forces(bare, forces.body_contact(bare, [("a", "b")]))

    def numbers(rng, n):
        return {"friction": rng.choice([0.0, 0.5, 1.0], n), "strength": rng.choice([0.1, 1.0, 10.0], n)}

    def lane(model, x):
        touch = dataclasses.replace(scaled(model.forces[-1], x["strength"]), friction=x["friction"][None])
        return dataclasses.replace(model, forces=(*model.forces[:-1], touch))

    def start(rng, n, _):
        away, v, dt = thrown(rng, n, model.nv, 1.0, 1.0)
        way = rng.normal(size=(n, 3))
        way /= np.linalg.norm(way, axis=1)[:, None]
        away[:, :3], away[:, 6:9] = 0, way * (2 * R + rng.uniform(-0.01, 2 * R, n))[:, None]
        speed = -(sizes(rng, n, 1e-3, 3.5 * R) / dt)[:, None] * (way + 0.2 * rng.normal(size=way.shape))
        common = rng.normal(size=(n, 3)) * (0.1 / dt)[:, None]
        v[:, :3], v[:, 6:9] = common, common + speed
        return away, v, dt

    def judge(s, x, e, loose):
        turn = np.maximum(turns(s, slice(3, 6)), turns(s, slice(9, 12)))
        apart = s.dt[:, None] * np.c_[size_of(s.v0), size_of(s.v1)]
        # friction acts where the balls touched at the start of the step, which slides on with either
        pushed = s.mass / 2 * np.linalg.norm(s.v1[:, :3] - s.v0[:, :3], axis=1)
        own = inertia * sum(judges.size(v[:, r]) for v in (s.v0, s.v1) for r in (slice(3, 6), slice(9, 12)))
        relative = (e.q1[:, 7:10] - e.q1[:, :3]) - (e.q0[:, 7:10] - e.q0[:, :3])
        origin = np.zeros_like(relative)
        gap = e.q0[:, 7:10] - e.q0[:, :3]

        def distance(P):
            return np.linalg.norm(P, axis=-1) - R

        return {
            "momentum": judges.changes_momentum(s, loose),
            "spin": judges.changes_spin(s, turn, loose, 2 * pushed * apart.max(1) + turn**2 * own),
            "went through": judges.goes_through(origin + gap, gap + relative, distance, R, 0.7),
        }

    return System(model, numbers, lane, start, judge, BLOW, has_one_root=False)


def size_of(v: np.ndarray) -> np.ndarray:
    """How fast two balls move against one another, (n,) m/s."""
    return np.linalg.norm(v[:, 6:9] - v[:, :3], axis=1)


SYSTEMS: dict[str, Callable[[Any], System]] = {
    "chain": lambda dtype: sprung(dtype, "universal", 3),
    "chain of balls": lambda dtype: sprung(dtype, "ball", 2),
    "loops": loops,
    "stops": stopped,
    "shot at things": shot,
    "box on ground": lying,
    "two balls": pair,
    **torture_driven.SYSTEMS,
}


# --- running and judging -------------------------------------------------------------------------------------


class Programs(NamedTuple):
    """Of one system and scheme, for lanes."""

    begin: Callable  # numbers, away, v -> states
    step: Callable  # numbers, states, dt -> states, status, moved
    measure: Callable  # numbers, states -> Mechanics
    follow: Callable | None  # numbers, states, dt, strides -> q, correction


def programs(system: System, scheme: str) -> Programs:
    model, step = system.model, pbad.make_step(pbad.Options(dt=1.0, scheme=scheme))

    def begin(x, away, v):
        m = system.lane(model, x)
        return pbad.make_state(m, manifold.retract(m, m.q0, away), v)

    def one(x, state, dt):
        after, info = step(system.lane(model, x), state, x.get("u"), dt)
        return after, info.status, manifold.difference(model, state.q, after.q)

    def measure(x, state):
        found = judges.mechanics(system.lane(model, x), state)
        return found if system.drives is None else found._replace(U=found.U + system.drives(x, state.q))

    def follow(x, state, dt, strides):
        return judges.followed(system.lane(model, x), NAMES[scheme](), state, dt, strides, x.get("u"))

    follows = scheme in STAYS and model.dtype == np.float64
    followed = jax.jit(jax.vmap(follow, in_axes=(0, 0, 0, None))) if follows else None
    begin, one, measure = (jax.jit(jax.vmap(f)) for f in (begin, one, measure))
    return Programs(begin, one, measure, followed)


def cast(x, dtype) -> Any:
    """Floating arrays to another precision."""
    return jax.tree.map(lambda a: jnp.asarray(a, dtype) if jnp.issubdtype(jnp.asarray(a).dtype, jnp.floating) else a, x)


def rounds(system: System, scheme: str, lanes: int, count: int, seed: int) -> Iterator[tuple]:
    """(numbers, states before, states after, status, steps, ends, programs) of every round."""
    run, rng, dtype = programs(system, scheme), np.random.default_rng(seed), system.model.dtype
    numbers = system.numbers(rng, lanes)
    x = cast(numbers, dtype)
    state, dt = None, np.zeros(lanes)
    for _ in range(count):
        away, v, new_dt = system.start(rng, lanes, numbers)
        fresh = run.begin(x, *cast((away, v), dtype))
        if state is None:
            state, dt = fresh, new_dt
        else:
            bad = np.asarray(state.status) != 0
            state = jax.tree.map(
                lambda a, b, bad=bad: jnp.where(bad.reshape(-1, *[1] * (a.ndim - 1)), a, b), fresh, state
            )
            dt = np.where(bad, new_dt, dt)
        after, status, moved = run.step(x, state, jnp.asarray(dt, dtype))
        before, then = (jax.tree.map(lambda a: np.asarray(a, float), run.measure(x, s)) for s in (state, after))
        held = np.asarray(dt, dtype).astype(float)
        mass = np.full(lanes, float(np.asarray(system.model.second_moment)[:, 3, 3].sum()))
        down = mass[:, None] * np.array([0, 0, -G]) * numbers.get("weight", np.ones(lanes))[:, None]
        down = down * (np.linalg.norm(system.model.gravity) > 0)
        v0, v1, moved = (np.asarray(a, float) for a in (state.v, after.v, moved))
        yield numbers, state, after, np.asarray(status), Steps(held, mass, down, before, then, v0, v1, moved), run
        state = after


def judged(name: str, scheme: str, dtype: str, lanes: int = LANES, count: int = ROUNDS, seed: int = 0) -> dict:
    """How many steps converged, how many claims are false and why; the first of them."""
    begun, system = time.perf_counter(), SYSTEMS[name](np.dtype(dtype))
    loose = 1e-6 if dtype == "float64" else 2e-3
    row: dict[str, Any] = {"steps": 0, "converged": 0, "followed": 0, "lost": 0}
    false: dict[str, int] = {}
    gains, first = [-np.inf], None
    for k, (numbers, state, after, status, s, run) in enumerate(rounds(system, scheme, lanes, count, seed)):
        good = status == 0
        ends = Ends(*(np.asarray(x.q, float) for x in (state, after)))
        found = system.judge(s, numbers, ends, loose)
        gains.append(np.max(judges.gain(s), where=good, initial=-np.inf))
        if scheme in STAYS or scheme in MOSTLY:
            settles = scheme in MOSTLY and acting(system.model, "step")
            own = 0.0 if scheme in STAYS else BLOW if settles else OWN_ERROR
            allowed = np.maximum(may_add(system.model, scheme, s), max(system.allowed, own))
            found["energy"] = judges.makes_energy(s, allowed, loose, settles)
        if run.follow:
            few = np.flatnonzero(good)[:FOLLOWED]
            elsewhere, lost = other_roots(system, run, numbers, state, after, s.dt, few, dtype)
            row["followed"] += len(few) - lost
            row["lost"] += lost
            if system.has_one_root:
                found["another root"] = elsewhere
            else:
                row["elsewhere"] = row.get("elsewhere", 0) + int(elsewhere.sum())
        row["steps"] += len(status)
        row["converged"] += int(good.sum())
        for why, x in found.items():
            false[why] = false.get(why, 0) + int(np.sum(good & x))
            if first is None and np.any(good & x):
                lane = int(np.flatnonzero(good & x)[0])
                first = {"why": why, "seed": seed, "lane": lane, "round": k, "dt": float(s.dt[lane]),
                         "numbers": {n: np.asarray(a[lane]).tolist() for n, a in numbers.items()},
                         "q": ends.q0[lane].tolist(), "v": s.v0[lane].tolist()}  # fmt: skip
    gain = None if max(gains) == -np.inf else float(f"{max(gains):.3g}")
    return row | {"false": false, "largest_gain": gain, "first": first, "s": round(time.perf_counter() - begun, 1)}


def may_add(model: pbad.Model, scheme: str, s: Steps) -> np.ndarray:
    """What radau may add of what is at stake beyond nothing, (n,): where joints turn far, and radau(1) over a hill."""
    if scheme not in STAYS:
        return np.zeros(len(s.dt))
    t = tree(model.topology)
    hinges, balls = s.moved[:, t.scalar_v[t.hinge[t.scalar_links]]], s.moved[:, t.ball_v]
    turn = np.maximum(np.abs(hinges).max(axis=1, initial=0.0), judges.size(balls).max(axis=1, initial=0.0))
    if scheme != "radau1":
        return OWN + TURNED * np.minimum(turn, 1.0) ** 4
    alone = (turn < LITTLE) & ~np.any(s.moved[:, t.dof_slide] != 0, axis=1)
    return np.where(alone, HILL, OWN + TURNED * np.minimum(turn / LITTLE, 1.0))


def other_roots(system, run, numbers, state, after, dt, few, dtype) -> tuple[np.ndarray, int]:
    """Of the lanes `few`: whether many strides end elsewhere, (n,) bool; and how many strides lead nowhere."""
    other, n = np.zeros(len(dt), bool), len(dt)
    if not len(few):
        return other, 0
    at = np.resize(few, min(n, FOLLOWED))  # always as many: one program
    x, s, to = ({k: a[at] for k, a in numbers.items()}, *(jax.tree.map(lambda a: a[at], y) for y in (state, after)))
    near = 1e-6 if dtype == "float64" else 2e-2
    model = system.model

    def off(strides):
        q, by = run.follow(cast(x, model.dtype), s, jnp.asarray(dt[at], model.dtype), strides)
        apart = np.asarray(jax.vmap(functools.partial(manifold.difference, model))(q, to.q))
        scale = 1 + np.abs(np.asarray(to.q)).max(1)
        found = np.asarray(by) < near
        return found, found & ~(np.abs(apart).max(1) < 10 * near * scale)

    found, wrong = off(STRIDES[0])
    for strides in STRIDES[1:]:
        asked = wrong | ~found
        if not asked.any():
            break
        finer, still = off(strides)
        wrong, found = asked & still, np.where(asked, finer, found)
    other[at[wrong]] = True
    return other, int((~found)[: len(few)].sum())


def cases(quick: bool) -> list[tuple[str, str, str]]:
    """(system, scheme, dtype), those that users run first."""
    if quick:
        return [(x, s, "float64") for s in ("radau1", "radau2") for x in SYSTEMS]
    first = [(dtype, (scheme,)) for scheme in ("radau2", "radau1") for dtype in DTYPES]
    usual, rest = (
        ("dirk2", "radau3", "legendre2", "variational"),
        ("dirk3", "dirk4", "legendre3", "legendre4", "legendre5"),
    )
    plan = [*first, *((dtype, schemes) for schemes in (usual, rest) for dtype in DTYPES)]
    return [(x, s, dtype) for dtype, schemes in plan for s in schemes for x in SYSTEMS]
