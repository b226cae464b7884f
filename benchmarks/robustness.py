"""How many steps certify at the first try, and after the fallbacks, over ten seconds of a whipping chain.

Chains of universal joints released near horizontal. `first` counts steps that were solved whole; `all` those that
converged, in parts where need be (`on_failure="substep"`).
"""

import jax
import numpy as np
from common import run
from step_time import start_states

import pbad_jax as pbad

PLAN = [
    *((10, scheme, dt) for scheme in ("radau1", "radau2", "radau3", "dirk2") for dt in (0.01, 0.05, 0.1, 0.128)),
    *((10, "legendre3", dt) for dt in (0.01, 0.05, 0.128)),
    *((n, "radau2", dt) for n in (40, 100) for dt in (0.05, 0.128)),
    *((40, scheme, 0.05) for scheme in ("radau1", "dirk2", "radau3")),
]


def measure(links: int, scheme: str, dt: float, seconds: float) -> dict:
    model = pbad.chain(links)
    state = jax.tree.map(lambda x: x[0], start_states(model, links, 1))
    steps = round(seconds / dt)
    options = pbad.Options(dt, scheme, on_failure="substep", account=True)
    _, info = pbad.rollout(model, state, n_steps=steps, options=options, progress=False)
    status, parts = np.asarray(info.status), np.asarray(info.substeps)
    good = status == pbad.Status.CONVERGED
    return {
        "links": links,
        "scheme": scheme,
        "dt": dt,
        "steps": steps,
        "first": int((good & (parts == 1)).sum()),
        "all": int(good.sum()),
        "most_parts": int(parts.max()),
        "mean_iterations": round(float(np.asarray(info.iterations)[good].mean()), 2) if good.any() else None,
        "numerical_work_J": round(float(np.asarray(info.numerical_work)[good].sum()), 4),
        "scale_J": round(9.81 * links**2 / 2, 1),
    }


def plan(quick: bool) -> list[tuple]:
    return [(2, "radau1", 0.05, 0.5)] if quick else [(*row, 10.0) for row in PLAN]


def main() -> None:
    run("robustness", __doc__, plan, measure)


if __name__ == "__main__":
    main()
