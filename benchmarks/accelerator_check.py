"""Does another device give the CPU's answer? One step and 100 steps, both precisions, lanes under vmap.

    python benchmarks/accelerator_check.py [--quick] [--out DIR]

Each row compares the default device with the CPU in float64, run in the same process: the largest difference in q after
one step and after 100, the statuses, and whether a repeat is bit-equal.
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from common import RESULTS, write

import pbad_jax as pbad

MODELS = {
    "chain:5": lambda dtype: pbad.chain(5, dtype=dtype),
    "chain:5:ball": lambda dtype: pbad.chain(5, joint="ball", dtype=dtype),
    "spider": lambda dtype: pbad.spider(dtype=dtype),
}


def run(make, dtype, device, scheme: str, lanes: int = 32):
    with jax.default_device(device):
        model = make(dtype)
        rng = np.random.default_rng(0)
        v = jnp.asarray(0.5 * rng.normal(size=(lanes, model.nv)), model.dtype)
        states = jax.vmap(lambda v: pbad.make_state(model, None, v))(v)
        options = pbad.Options(dt=0.01, scheme=scheme)
        f = jax.jit(jax.vmap(lambda s: pbad.rollout(model, s, n_steps=100, options=options)))
        (first, info), (second, _) = f(states), f(states)
        return np.asarray(first.q), np.asarray(info.status), bool(jnp.array_equal(first.q, second.q))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="one model, one scheme, one dtype")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    device, cpu = jax.devices()[0], jax.devices("cpu")[0]
    rows = []
    for name, make in list(MODELS.items())[: 1 if arguments.quick else None]:
        for scheme in ("radau1",) if arguments.quick else ("radau1", "radau2"):
            reference, _, _ = run(make, np.float64, cpu, scheme)
            for dtype in (np.float64,) if arguments.quick else (np.float64, np.float32):
                q, status, repeats = run(make, dtype, device, scheme)
                gap = np.abs(q - reference)
                rows.append(
                    {
                        "model": name,
                        "scheme": scheme,
                        "dtype": np.dtype(dtype).name,
                        "lanes": len(q),
                        "after_1_step": float(gap[:, 0].max()),
                        "after_100_steps": float(gap[:, -1].max()),
                        "failed_steps": int((status != 0).sum()),
                        "repeat_bit_equal": repeats,
                    }
                )
                print(rows[-1], flush=True)
                write("accelerator_check", rows, arguments.out)


if __name__ == "__main__":
    main()
