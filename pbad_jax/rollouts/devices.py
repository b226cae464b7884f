"""Lanes over several devices: where they are, and a loop of its own for each device."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from pbad_jax.errors import StateError


class Share(NamedTuple):
    """How lanes are spread over devices."""

    mesh: Any  # jax.sharding.Mesh
    axis: Any  # of the mesh, or axes

    @property
    def devices(self) -> int:
        """How many have lanes."""
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        return math.prod(self.mesh.shape[axis] for axis in axes)


def spread(tree: Any) -> Any:
    """The same arrays, the first axis of each spread over all devices: each then works on its own lanes.

    For states of `rollout_batch` and `envs.unroll`. A CPU is one device, and most of a batch runs on one core of it;
    `jax.config.update("jax_num_cpu_devices", 8)`, before anything else, makes it eight, which work side by side.

    Args:
        tree: a pytree of arrays with leading axes of lanes, as many as a multiple of the devices.

    Returns:
        The same pytree.

    Raises:
        StateError: an array without such an axis.

    Example:
        >>> states = jax.vmap(lambda v: pbad.make_state(arm, v=v))(jnp.eye(2))
        >>> traj, info = pbad.rollout_batch(arm, pbad.spread(states), n_steps=2, options=options)
    """
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        lanes = (*jnp.shape(x), 0)[0]
        if not lanes or lanes % jax.device_count():
            raise StateError(
                f"spread: {jax.tree_util.keystr(path) or 'the array'} has shape {jnp.shape(x)}; wanted a first axis of "
                f"lanes, a multiple of the {jax.device_count()} devices"
            )
    if jax.device_count() == 1:  # a mesh of one would spread to all that is computed with them, and be compiled anew
        return jax.tree.map(jnp.asarray, tree)
    mesh = jax.make_mesh((jax.device_count(),), ("lanes",), axis_types=(AxisType.Auto,))
    return jax.device_put(tree, NamedSharding(mesh, P("lanes")))


def share_of(q: jax.Array, what: str) -> Share | None:
    """Where the lanes of q (lanes,nq) are; None: there is one device alone, or it is not known (inside jit)."""
    if isinstance(q, jax.core.Tracer) or jax.device_count() == 1:
        return None
    s = getattr(q, "sharding", None)  # numpy's arrays have none
    if isinstance(s, SingleDeviceSharding):
        if not jax.sharding.get_abstract_mesh().empty:  # `jax.set_mesh`: JAX takes no other beside it
            return None
        # by a mesh of it alone, so that it computes what each of many would
        return Share(Mesh(list(s.device_set), ("lanes",), axis_types=(AxisType.Auto,)), "lanes")
    if not isinstance(s, NamedSharding) or s.is_fully_replicated:
        return None
    if not s.spec or s.spec[0] is None or any(axis is not None for axis in s.spec[1:]):
        raise StateError(f"{what} is spread over devices as {s.spec}; wanted P('lanes'), the first axis alone")
    return Share(s.mesh, s.spec[0])


def on_each_device(f: Callable, share: Share | None, lanes: tuple) -> Callable:
    """f, on every device by itself: none waits for another. All that it returns has lanes.

    lanes: for every argument a bool, or a pytree of them, whether its first axis is of lanes, of which each device has
    its own; else all have the whole.
    """
    if share is None:
        return f
    specs = jax.tree.map(lambda own: P(share.axis) if own else P(), lanes)
    return jax.shard_map(f, mesh=share.mesh, in_specs=specs, out_specs=P(share.axis), check_vma=False)


def together(tree: Any) -> Any:
    """The same arrays; where some are committed to the one device of all, as by jax.device_put, all are.

    What comes of a call is, if one of its arguments was: it would be compiled anew for what it has given.
    """
    arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
    if any(isinstance(x, jax.core.Tracer) for x in arrays):
        return tree
    committed = [x for x in arrays if x.committed]
    where = {device for x in committed for device in x.sharding.device_set}
    if len(committed) == len(arrays) or len(where) != 1:
        return tree
    (device,) = where
    return jax.tree.map(lambda x: jax.device_put(x, device) if isinstance(x, jax.Array) else x, tree)


def placed(share: Share | None, lanes: tuple, *arguments: Any) -> tuple:
    """The arguments of such an f where it wants them; they may have been on one of the devices."""
    if share is None:
        return together(arguments)
    where = jax.tree.map(lambda own: NamedSharding(share.mesh, P(share.axis) if own else P()), lanes)
    return tuple(map(jax.device_put, arguments, where))
