"""What becomes of what turns: wheels that nothing holds or that a motor drives, and a body that flips; float64.

    python benchmarks/rotation.py [--quick] [--name rotation] [--out DIR]

`wheel`: a wheel on an axle that nothing drives, `turn` rad a step: `lost`, the share of its speed that 50 steps take.
`motor`: the same wheel under a constant torque that would raise its speed by 0.1 % in a step: `gained`, what a step
gains of what it should. `nut`: Dzhanibekov's, free, moments of inertia 1, 2 and 3, at 5 rad/s about the second axis and
0.01 about the first, 10 s: `flips_off`, the largest relative error of the times of its flips, which scipy's integrator
has at 1e-11; `spin_off`, the largest relative change of its angular momentum; `energy_off` of its energy.
A row with `status` failed there, with that code.
"""

import jax
import jax.numpy as jnp
import numpy as np
from common import digits, run
from scipy.integrate import solve_ivp

import pbad_jax as pbad
from pbad_jax import Body, Joint, Status

SCHEMES = ("radau1", "radau2", "radau3", "dirk2", "dirk3", "dirk4")
TURNS = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0)  # rad a step
INERTIA, DT, STEPS = 0.005, 0.02, 50
NUT = np.array([0.01, 5.0, 0.0])


def failed(info) -> dict | None:
    """The first status that is no CONVERGED, or None."""
    bad = np.flatnonzero(np.asarray(info.status) != Status.CONVERGED)
    return {"status": Status(int(info.status[bad[0]])).name} if len(bad) else None


def wheel(scheme: str) -> list[dict]:
    body = Body("wheel", 1.0, inertia=INERTIA * np.eye(3), joints=[Joint("hinge", (0, 1, 0), name="axle")])
    model = pbad.build_model([body], gravity=(0, 0, 0))
    model, options, rows = pbad.with_actuators(model, *pbad.motors(model)), pbad.Options(dt=DT, scheme=scheme), []
    for turn in TURNS:
        v, more = turn / DT, 1e-3 * turn / DT
        for case, steps, torque in (("wheel", STEPS, 0.0), ("motor", 1, INERTIA * more / DT)):
            controls = np.full((steps, 1), torque)
            traj, info = pbad.rollout(model, pbad.make_state(model, v=[v]), controls, n_steps=steps, options=options)
            end = float(traj.v[-1, 0])
            figure = {"lost": digits(1 - end / v)} if case == "wheel" else {"gained": digits((end - v) / more)}
            rows.append({"case": case, "scheme": scheme, "turn": turn} | (failed(info) or figure))
    return rows


def nut(scheme: str) -> list[dict]:
    """Dzhanibekov's."""

    def euler(_, w):
        return np.array([-w[1] * w[2], w[2] * w[0], -w[0] * w[1] / 3])

    def flips(_, w):
        return w[1]

    right = solve_ivp(euler, (0, 10), NUT, "DOP853", rtol=1e-11, atol=1e-11, events=flips).t_events[0]
    body, rows = Body("nut", 1.0, inertia=np.diag([1.0, 2.0, 3.0]), joints=[Joint("free")]), []
    model = pbad.build_model([body], gravity=(0, 0, 0))
    for dt in (0.02, 0.05):
        state, n = pbad.make_state(model, v=[0, 0, 0, *NUT]), round(10 / dt)
        traj, info = pbad.rollout(model, state, n_steps=n, options=pbad.Options(dt=dt, scheme=scheme))
        row = {"case": "nut", "scheme": scheme, "dt": dt}
        if status := failed(info):
            rows.append(row | status)
            continue
        states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state, pbad.states_of(model, traj))
        L = np.asarray(jax.vmap(lambda s: pbad.angular_momentum(model, s))(states))
        T = np.asarray(jax.vmap(lambda s: pbad.kinetic_energy(model, s))(states))
        w = np.asarray(states.v[:, 4])
        k = np.flatnonzero(np.diff(np.sign(w)))
        times = dt * (k + w[k] / (w[k] - w[k + 1]))
        same = len(times) == len(right)
        row |= {
            "flips_off": digits(np.abs(times / right - 1).max()) if same else None,
            "flips": [digits(t) for t in times],
        }
        row |= {"spin_off": digits(np.linalg.norm(L - L[0], axis=1).max() / np.linalg.norm(L[0]))}
        rows.append(row | {"energy_off": digits(np.abs(T / T[0] - 1).max()), "right": [digits(t) for t in right]})
    return rows


CASES = {"wheel": wheel, "nut": nut}


def plan(quick: bool) -> list[tuple]:
    return [(case, scheme) for case in CASES for scheme in (SCHEMES[:1] if quick else SCHEMES)]


def picture(rows: list[dict], path, title: str) -> None:
    """What a motor's torque does to a wheel, by how far it turns in a step."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.6))
    for scheme in dict.fromkeys(r["scheme"] for r in rows):
        own = [(r["turn"], r["gained"]) for r in rows if r["scheme"] == scheme and "gained" in r]
        axis.plot(*zip(*own), "o-", markersize=3, label=scheme)
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_xlabel("rad that the wheel turns in a step")
    axis.set_ylabel("what it gains of what it should")
    axis.set_ylim(0, 1.2)
    axis.legend(fontsize=8)
    axis.set_title(title, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    run(
        "rotation",
        __doc__,
        plan,
        lambda case, scheme: CASES[case](scheme),
        picture,
        dtype="float64",
        dt_s=DT,
        steps=STEPS,
    )


if __name__ == "__main__":
    main()
