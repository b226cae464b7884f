"""Cost of a step and Newton iterations against the number of contacts.

    python benchmarks/contact.py [--quick] [--name contact] [--out DIR]

A plate (one free body, 6 degrees of freedom) and a snake (16 boxes, 21) with 0 to 64 points under them, all of which
touch the ground when they lie flat. They rest, slide at 2 m/s, and are dropped from 0.3 m, tilted and spinning; one
second at dt = 0.02, with friction and without (μ = 0). Each row says how many points were pressed in after a step
(`active`, mean and most), the iterations of the steps, how many failed or were made in parts, and microseconds for a
step and for an iteration. Iterations do not depend on the machine, nor on its load; times do.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from common import compiled, run, timed

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.dynamics.instant import instant_of

DT, STEPS = 0.02, 50
COUNTS = (0, 1, 4, 8, 16, 32, 50, 64)
MOTIONS = ("rest", "slide", "drop")
HALF = 0.05  # m, half the height of a box
LINKS, LENGTH = 16, 0.2


def box(mass: float, sides) -> np.ndarray:
    """The inertia of a box of these half sides, m, about its centre."""
    x, y, z = np.square(sides)
    return mass / 3 * np.diag([y + z, z + x, x + y])


def plate(n: int) -> tuple[pbad.Model, forces.ContactPoints | None]:
    """One free body with n points spread evenly over a disc of 0.5 m below it."""
    body = pbad.Body("plate", 10.0, inertia=box(10.0, (0.5, 0.5, HALF)), joints=[pbad.Joint("free")])
    model = pbad.build_model([body], name="plate")
    k = np.arange(n)
    r, angle = 0.5 * np.sqrt((k + 0.5) / max(n, 1)), k * np.pi * (3 - np.sqrt(5))
    points = np.c_[r * np.cos(angle), r * np.sin(angle), np.full(n, -HALF)]
    return model, forces.points_on(model, "plate", points) if n else None


def snake(n: int) -> tuple[pbad.Model, forces.ContactPoints | None]:
    """Boxes in a row along x, hinged about y and z in turn, with n of their 64 lower corners."""
    sides = (LENGTH / 2, 0.06, HALF)
    bodies = [
        pbad.Body(
            f"box{i}", 0.5, inertia=box(0.5, sides), parent=i - 1 if i else None,
            position=(LENGTH if i else 0.0, 0, 0),
            joints=[pbad.Joint("hinge", (0, i % 2, 1 - i % 2), anchor=(-LENGTH / 2, 0, 0), stiffness=20.0, damping=0.5)
                    if i else pbad.Joint("free")],
        )
        for i in range(LINKS)
    ]  # fmt: skip
    model = pbad.build_model(bodies, name="snake")
    corners = np.array([[a * sides[0], b * sides[1], -HALF] for a, b in ((-1, -1), (1, 1), (1, -1), (-1, 1))])
    chosen = np.linspace(0, 4 * LINKS - 1, n).round().astype(int)
    parts = [forces.points_on(model, f"box{k // 4}", corners[k % 4]) for k in chosen]
    return model, forces.joined(*parts) if parts else None


def depths(model: pbad.Model, law: forces.Contact | None, q: jax.Array) -> jax.Array:
    """How deep every point is in the ground, (c,) m."""
    state = pbad.make_state(model, q)
    return jnp.zeros(1) if law is None else law.depth(model, instant_of(model, state, jnp.zeros(0, q.dtype)))


def start(model: pbad.Model, law: forces.Contact | None, motion: str) -> pbad.State:
    """Flat on the ground at rest or sliding, or tilted with its lowest point 0.3 m above."""
    q, v = np.array(model.q0), np.zeros(model.nv)
    q[2] = HALF
    if motion == "slide":
        v[0], v[5] = 2.0, 0.5
    if motion == "drop":
        q[3:7] = np.cos(0.1), np.sin(0.1) * 0.6, np.sin(0.1) * 0.8, 0.0
        v[:6] = 0.5, 0.2, 0.0, 0.5, -0.3, 1.0
        q[2] += 0.3 + float(jnp.max(depths(model, law, jnp.asarray(q))))
    return pbad.make_state(model, q, v)


def active(model: pbad.Model, law: forces.Contact | None, traj) -> np.ndarray:
    """How many points are pressed in after every step."""
    return np.asarray(jnp.sum(jax.jit(jax.vmap(lambda q: depths(model, law, q)))(traj.q) > 0, axis=1))


def measure(kind: str, contacts: int, scheme: str, motions) -> list[dict]:
    """All motions of one model, which share one compilation."""
    bare, points = {"plate": plate, "snake": snake}[kind](contacts)
    law = None if points is None else forces.contact(bare, points=points)
    options = pbad.Options(DT, scheme, on_failure="substep")

    def roll(model, state):
        return pbad.rollout(model, state, n_steps=STEPS, options=options, progress=False)

    executable, compile_s, rows = None, 0.0, []
    for motion, friction in motions:
        now = None if law is None else dataclasses.replace(law, friction=jnp.full_like(law.friction, friction))
        model = bare if now is None else pbad.with_forces(bare, now)
        state = start(model, now, motion)
        if executable is None:
            executable, compile_s = compiled(roll, model, state)
        traj, info = executable(model, state)
        seconds = timed(executable, model, state)
        pressed, iterations = active(model, now, traj), np.asarray(info.iterations)
        rows.append(
            {
                "model": kind,
                "dofs": model.nv,
                "contacts": contacts,
                "scheme": scheme,
                "motion": motion,
                "friction": friction,
                "active_mean": round(float(pressed.mean()), 2),
                "active_most": int(pressed.max()),
                "iterations_mean": round(float(iterations.mean()), 2),
                "iterations_median": float(np.median(iterations)),
                "iterations_most": int(iterations.max()),
                "failed_steps": int(jnp.sum(info.status != 0)),
                "steps_in_parts": int(jnp.sum(info.substeps > 1)),
                "us_per_step": round(1e6 * seconds["least"] / STEPS, 1),
                "us_per_step_median": round(1e6 * seconds["median"] / STEPS, 1),
                "us_per_iteration": round(1e6 * seconds["least"] / max(int(iterations.sum()), 1), 2),
                "compile_s": round(compile_s, 2),
            }
        )
    return rows


def plan(quick: bool) -> list[tuple]:
    motions = tuple((m, friction) for m in MOTIONS for friction in (0.8, 0.0))
    if quick:
        return [("plate", 4, "radau1", motions[:1])]
    return [(kind, n, s, motions) for kind in ("plate", "snake") for s in ("radau1", "radau2") for n in COUNTS]


def picture(rows: list[dict], path: pathlib.Path, title: str) -> None:
    import matplotlib.pyplot as plt

    kinds = [k for k in ("plate", "snake") if any(r["model"] == k for r in rows)]
    figure, axes = plt.subplots(2, len(kinds), figsize=(5.2 * len(kinds), 7), squeeze=False, sharex=True)
    color = dict(zip(MOTIONS, ("#215aa6", "#ed8c24", "black")))
    for (top, bottom), kind in zip(axes.T, kinds):
        for scheme, line in (("radau1", "-"), ("radau2", "--")):
            for motion in MOTIONS:
                for friction, mark in ((0.8, "o"), (0.0, "x")):
                    keep = [
                        r for r in rows
                        if (r["model"], r["scheme"], r["motion"], r["friction"]) == (kind, scheme, motion, friction)
                    ]  # fmt: skip
                    x = [r["contacts"] for r in keep]
                    how = {"color": color[motion], "ls": line, "marker": mark, "ms": 4, "lw": 1}
                    label = f"{scheme}, {motion}, μ = {friction:g}" if keep else None
                    top.plot(x, [r["iterations_mean"] for r in keep], label=label, **how)
                    if mark == "o":
                        bottom.plot(x, [r["us_per_step"] for r in keep], **how)
        top.axhline(12, color="tab:gray", lw=0.8, ls=":", label="goal with 50 contacts")
        top.set(title=f"{kind}, {next(r['dofs'] for r in rows if r['model'] == kind)} degrees of freedom")
        top.set(ylabel="iterations a step, mean", yscale="log")
        bottom.set(xlabel="contacts", ylabel="time a step, µs (μ = 0.8)", yscale="log")
        top.grid(True, which="both", alpha=0.2)
        bottom.grid(True, which="both", alpha=0.2)
    axes[0, 0].legend(fontsize=7, ncols=2)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    run("contact", __doc__, plan, measure, picture, dt=DT, steps=STEPS)


if __name__ == "__main__":
    main()
