"""A batch over all devices that there are, also of several processes.

    python examples/many_devices.py                                   # all devices of this process
    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/many_devices.py          # eight, of a CPU
    python examples/many_devices.py --coordinator localhost:9876 --processes 2 --process 0      # and beside it
    python examples/many_devices.py --coordinator localhost:9876 --processes 2 --process 1

Nothing of pbad_jax knows about devices: states whose lanes are spread over a mesh are enough.
"""

import argparse

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import pbad_jax as pbad


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinator", help="HOST:PORT of process 0, where there are several")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--steps", type=int, default=50)
    call = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if call.coordinator:
        jax.distributed.initialize(call.coordinator, call.processes, call.process)

    model, options = pbad.chain(2), pbad.Options(dt=0.02, scheme="radau1")
    mesh = jax.make_mesh((jax.device_count(),), ("lanes",), axis_types=(AxisType.Auto,))
    v = np.random.default_rng(0).normal(size=(call.lanes, model.nv))  # the same numbers in every process
    states = jax.vmap(lambda v: pbad.make_state(model, v=v))(v)
    states = jax.tree.map(lambda x: spread(x, NamedSharding(mesh, P("lanes"))), states)
    traj, info = pbad.rollout_batch(model, states, n_steps=call.steps, options=options)

    own = np.concatenate([np.asarray(s.data) for s in traj.q.addressable_shards])
    ok = all(np.all(np.asarray(s.data) == 0) for s in info.status.addressable_shards)
    print(f"process {jax.process_index()} of {jax.process_count()}: {len(own)} of {call.lanes} lanes on", end=" ")
    print(f"{jax.local_device_count()} devices, all solved: {ok}, sum of squares {np.sum(own**2):.12f}")


def spread(x: jax.Array, sharding: NamedSharding) -> jax.Array:
    """The array over all devices; every process hands in the lanes of its own."""
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


if __name__ == "__main__":
    main()
