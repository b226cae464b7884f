"""Single beside double precision: one step, and ten seconds of energy.

    python benchmarks/float32.py [--quick] [--name float32] [--out DIR]

"step": 64 states (rounded to single precision) that the ten-link chain passes through in ten seconds of radau(2) at
0.05 s; from each one step in both precisions. `q`: largest difference over the largest |q| of the state, `v` likewise;
median and worst of the states that both precisions solved.
"energy": ten seconds at 0.0025 s from the horizontal with a small sideways swing; gain, loss and the energy at the end
in both precisions, as fractions of m g L / 2, computed in double precision.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from common import run

import pbad_jax as pbad

SCHEMES = ("radau1", "radau2", "dirk2", "legendre3", "variational")
SIZES = (0.001, 0.01, 0.1)  # s


def start(model):
    q, v = np.zeros(model.nq), np.zeros(model.nv)
    q[0], v[1] = np.pi / 2, 0.2 * np.sqrt(9.81 / model.n_bodies)
    return pbad.make_state(model, q, v)


@functools.cache
def passed(links: int, count: int):
    model = pbad.chain(links, dtype=jnp.float64)
    path, _ = pbad.rollout(model, start(model), None, 200, pbad.Options(0.05))
    pick = np.random.default_rng(0).choice(200, count, replace=False)
    return np.asarray(path.q, np.float32)[pick], np.asarray(path.v, np.float32)[pick]


def one_step(scheme: str, dt: float, links: int = 10, count: int = 64) -> dict:
    q, v = passed(links, count)
    ends, infos = [], []
    for dtype in (jnp.float64, jnp.float32):
        model, step = pbad.chain(links, dtype=dtype), pbad.make_step(pbad.Options(dt, scheme))
        many = jax.jit(jax.vmap(lambda q, v, m=model, step=step: step(m, pbad.make_state(m, q, v))))
        state, info = many(jnp.asarray(q, dtype), jnp.asarray(v, dtype))
        ends.append((np.float64(state.q), np.float64(state.v)))
        infos.append(info)
    both = np.logical_and(*(np.asarray(i.status) == 0 for i in infos))
    row = {"what": "step", "scheme": scheme, "dt": dt, "states": count}
    row |= {f"solved_{n}": int((np.asarray(i.status) == 0).sum()) for n, i in zip(("64", "32"), infos)}
    row |= {f"iterations_{n}": float(np.mean(np.asarray(i.iterations)[both])) for n, i in zip(("64", "32"), infos)}
    for name, exact, single in zip("qv", *ends):
        error = np.abs(single - exact).max(axis=1)[both] / np.abs(exact).max(axis=1)[both]
        row |= {f"{name}_median": float(f"{np.median(error):.2g}"), f"{name}_worst": float(f"{error.max():.2g}")}
    return row


def energies(scheme: str, dt: float = 0.0025, links: int = 10, span: float = 10.0) -> dict:
    exact = pbad.chain(links, dtype=jnp.float64)

    def energy(q, v):
        s = pbad.make_state(exact, q, v)
        return pbad.kinetic_energy(exact, s) + pbad.potential_energy(exact, s)

    row, scale = {"what": "energy", "scheme": scheme, "dt": dt}, links * 9.81 * links / 2
    first = float(energy(start(exact).q, start(exact).v))
    for name, dtype in (("64", jnp.float64), ("32", jnp.float32)):
        model = pbad.chain(links, dtype=dtype)
        path, info = pbad.rollout(model, start(model), None, round(span / dt), pbad.Options(dt, scheme))
        change = (np.asarray(jax.vmap(energy)(path.q, path.v)) - first) / scale
        row |= {f"failed_{name}": int(np.sum(np.asarray(info.status) != 0))}
        row |= {f"gain_{name}": float(f"{change.max():.3g}"), f"loss_{name}": float(f"{-change.min():.3g}")}
        row |= {f"end_{name}": float(f"{change[-1]:.3g}"), f"largest_{name}": float(f"{np.abs(change).max():.3g}")}
    row["ratio"] = round(row["largest_32"] / row["largest_64"], 2)
    return row


def plan(quick: bool) -> list[tuple]:
    if quick:
        return [(functools.partial(one_step, "radau1", 0.01, 2, 4),)]
    cases = [functools.partial(one_step, scheme, dt) for scheme in SCHEMES for dt in SIZES]
    return [(case,) for case in cases + [functools.partial(energies, s) for s in ("radau1", "radau2", "dirk2")]]


def main() -> None:
    run("float32", __doc__, plan, lambda case: case())


if __name__ == "__main__":
    main()
