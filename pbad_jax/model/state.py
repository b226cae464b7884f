"""The state of one lane, how to make one, and the one check of a state and a control."""

import dataclasses

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from pbad_jax.checks import is_number, unit_quaternion
from pbad_jax.errors import StateError, Status
from pbad_jax.math.pytree import STATIC
from pbad_jax.model import joints
from pbad_jax.model.model import Model, Topology, check_arrays, check_model


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The whole state of one lane; nothing else is needed to go on from it.

    `history` is the configuration at the scheme's history node, for the schemes that have one
    (legendre); before the first step `has_history` is False and the scheme builds it from (q, v).
    A history belongs to the step that left it. Where the next step needs another span (another dt
    or scheme), or q or v are no longer those that it led to (a kick by `dataclasses.replace`), it
    is built from (q, v) again. One that is put in by hand is taken as it is while `history_span`
    is 0, as `make_state` leaves it. `activation` is that of the actuators that have one; None in
    models without.

    Example:
        >>> state.q
        Array([1., 0., 0., 0.], dtype=float64)
        >>> moved = dataclasses.replace(state, v=state.v.at[0].add(1.0))
        >>> moved.v
        Array([1. , 0.5, 0. , 0. ], dtype=float64)
    """

    q: jax.Array  # (nq,)
    v: jax.Array  # (nv,)
    time: jax.Array  # () s
    time_rest: jax.Array  # () s, what rounding took from `time`: small steps add up at late times too
    status: jax.Array  # () int8, the Status of the last step
    history: jax.Array  # (nq,)
    has_history: jax.Array  # () bool
    history_span: jax.Array  # () s, from the history to q; 0: whatever the next step needs
    history_q: jax.Array  # (nq,) the q, and
    history_v: jax.Array  # (nv,) the v that the last step of a scheme with history led to
    fingerprint: str = dataclasses.field(metadata=STATIC)
    activation: jax.Array | None = None  # (na,)


def joint_layout(topology: Topology, name: str = "q") -> str:
    """One line that says which joint owns which entries of "q", or "v", for error messages."""
    spans = [(j.name, j.q, j.nq) if name == "q" else (j.name, j.v, j.nv) for j in topology.joints]
    parts = [f"{joint}[{first}:{first + count}]" for joint, first, count in spans if count]
    shown = ", ".join(parts[:8]) + (f", ... ({len(parts)} joints)" if len(parts) > 8 else "")
    return shown or "no joints"


def one_each(model: Model) -> str:
    """What a control consists of, for error messages."""
    names = model.topology.actuator_names
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} actuators)" if len(names) > 8 else "")
    return f"one for each actuator: {shown or 'none'}"


def quaternion_addresses(topology: Topology) -> tuple[int, ...]:
    """First index in q of every quaternion (ball and free joints)."""
    return tuple(q for q, t in zip(topology.link_q, topology.link_type) if t == joints.BALL)


def make_state(model: Model, q=None, v=None, *, key: str | None = None, time=None, activation=None) -> State:
    """A state from a configuration and a velocity.

    Args:
        model: the model.
        q: (nq,) rad, m or unit quaternions; default `model.q0`. Cast to the model's dtype.
        v: (nv,) rad/s or m/s; default zero.
        key: a name in `model.keyframes`, whose q, v, time and activation are the defaults instead.
        time: s, default 0.
        activation: (na,), of actuators with a filter or an integrator; default zero.

    Returns:
        One State, the whole of it; use `jax.vmap` for a batch.

    Raises:
        StateError: an unknown keyframe, wrong length, a batch where one state is expected, NaN or inf (named by
            joint), or a quaternion whose norm is off by more than 1e-3 (closer ones are normalised). Values are
            looked at only outside jit; inside, a bad state gives the status NONFINITE_INPUT. ModelError: no Model.

    Example:
        >>> pbad.make_state(model, q=[1.0, 0.0, 0.0, 0.0]).v
        Array([0., 0., 0., 0.], dtype=float64)
    """
    # defaults: the reference configuration at rest, or the keyframe's q, v, time and activation
    check_model(model)
    first_q, first_v, first_time, first_a = model.q0, jnp.zeros(model.nv, model.dtype), 0.0, None
    if key is not None:
        found = model.keyframes.find(key, model.topology.name)
        first_q, first_v, first_time, first_a = found.q, found.v, found.time, found.activation

    # the right lengths, and finite where values are known
    q = _checked(model, first_q if q is None else q, "q")
    v = _checked(model, first_v if v is None else v, "v")

    # quaternions, near length 1 where values are known, get exactly that
    for address in quaternion_addresses(model.topology):
        p = q[address : address + 4]
        if not isinstance(p, jax.core.Tracer):
            unit_quaternion(p, f"q of joint {_joint_at(model.topology, address, 'q')!r}", StateError)
        q = q.at[address : address + 4].set(p / jnp.linalg.norm(p))

    # as after a step that converged here, and without a history
    return State(
        q=q,
        v=v,
        time=_moment(first_time if time is None else time, model.dtype),
        time_rest=jnp.zeros((), model.dtype),
        status=jnp.asarray(int(Status.CONVERGED), jnp.int8),
        history=q,
        has_history=jnp.asarray(False),
        history_span=jnp.zeros((), model.dtype),
        history_q=q,
        history_v=v,
        fingerprint=model.fingerprint,
        activation=_activation(model, first_a if activation is None else activation),
    )


def _activation(model: Model, a) -> jax.Array | None:
    """(na,), by default zeros; None where there is none."""
    if model.na or a is not None:
        a = _checked(model, jnp.zeros(model.na, model.dtype) if a is None else a, "activation")
    return a if model.na else None


def driven(model: Model, state: State, control: jax.Array, dt=None) -> jax.Array:
    """The control (nu,) that actuators act by: of those with an activation this one, or its mean over dt () s."""
    if model.activation is None or state.activation is None:
        return control
    a = state.activation if dt is None else model.activation.mean(state.activation, control, dt)
    return model.activation.put(a, control)


def activated(model: Model, state: State, control: jax.Array, dt) -> dict[str, jax.Array]:
    """`activation` of a state after dt () s under the control (nu,); nothing where there is none."""
    if model.activation is None or state.activation is None:
        return {}
    return {"activation": model.activation.after(state.activation, control, dt)}


def _moment(time, dtype) -> jax.Array:
    """A time () s, finite where it is known."""
    try:
        t = jnp.asarray(time, dtype)
    except (TypeError, ValueError):
        raise StateError(f"time is {type(time).__name__} {time!r:.60}; it must be one number, s") from None
    if not isinstance(t, jax.core.Tracer) and not (t.shape == () and bool(jnp.isfinite(t))):
        raise StateError(f"time is {time!r:.60}; it must be one finite number, s")
    return t


def led_to(state: State, q: jax.Array, v: jax.Array) -> State:
    """The state at (q, v) as if the step that left its history had led there: moved for a derivative, not kicked."""
    history_q = jnp.where(state.history_q == state.q, q, state.history_q)
    history_v = jnp.where(state.history_v == state.v, v, state.history_v)
    return dataclasses.replace(state, q=q, v=v, history_q=history_q, history_v=history_v)


def later(state: State, dt) -> dict[str, jax.Array]:
    """`time` and `time_rest` of a state after dt () s: their sum is exact but for the rounding of the rest.

    The two-sum of Knuth, TAOCP 2, 4.2.2. In float32 a step of 1e-4 s is less than half a digit of 4096 s.
    """
    step = state.time_rest + dt
    time = state.time + step
    taken = time - state.time
    return {"time": time, "time_rest": (state.time - (time - taken)) + (step - taken)}


def times(state: State, dt, first: int, last: int) -> jax.Array:
    """After each of the steps from `first` to before `last` that began at `state`, (..., last − first) s."""
    elapsed = jnp.asarray(dt, state.q.dtype) * jnp.arange(first + 1, last + 1, dtype=state.q.dtype)
    elapsed = jnp.broadcast_to(elapsed, (*state.time.shape, last - first))
    return state.time[..., None] + (state.time_rest[..., None] + elapsed)


def _checked(model: Model, x, kind: str) -> jax.Array:
    """x as `row_of` has it, its numbers finite where they are known."""
    x = row_of(model, x, kind)
    if not isinstance(x, jax.core.Tracer):
        bad = np.flatnonzero(~np.isfinite(np.asarray(x)))
        if bad.size:
            owner = _owner_of(model, int(bad[0]), kind)
            raise StateError(
                f"{kind}[{bad[0]}] of {owner} is {float(x[bad[0]])}; it must be finite. "
                "Find where the NaN or inf was made."
            )
    return x


def row_of(model: Model, x, kind: str, name: str | None = None) -> jax.Array:
    """One row of numbers as an array of the model's dtype; its length is checked while tracing.

    Args:
        model: the model.
        x: what was given for it.
        kind: "q", "v", "control" or "activation": what it is to the model, which decides its length.
        name: in messages, where it is called otherwise.

    Raises:
        StateError: no numbers, another length, a batch. ModelError: no Model.
    """
    # the length that such a row has in this model
    check_model(model)
    name, size = name or kind, {"q": model.nq, "v": model.nv, "control": model.nu, "activation": model.na}[kind]

    # real numbers; booleans and complex numbers are none
    try:
        x = jnp.asarray(x)
        if not (jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)):
            raise TypeError
    except (TypeError, ValueError):
        raise StateError(f"{name} must be an array of {size} numbers; got {type(x).__name__} {x!r:.60}") from None

    # one row, and not many of them
    if x.ndim == 2 and x.shape[1] == size:
        raise StateError(
            f"{name} has shape {x.shape}: it looks like a batch of {x.shape[0]}, and one is wanted. Use jax.vmap, or "
            "rollout_batch for states"
        )
    if x.shape != (size,):
        raise StateError(
            f"{name} has shape {x.shape}; model {model.topology.name!r} wants {_wanted(model, kind, size)}"
        )
    return x.astype(model.dtype)


def _wanted(model: Model, kind: str, size: int) -> str:
    """A length and why, for error messages."""
    if kind == "control":
        return f"({size},), {one_each(model)}"
    if kind != "activation":
        return f"({size},) because n{kind} = {size}: {joint_layout(model.topology, kind)}"
    law, names = model.activation, model.topology.actuator_names
    shown = ", ".join(names[k] for k in (law.u_index[:8] if law else ())) or "none"
    return f"({size},), one for each actuator with a filter or an integrator: {shown}"


def _owner_of(model: Model, index: int, name: str) -> str:
    """The joint or the actuator that owns entry `index`."""
    if name != "activation":
        return f"joint {_joint_at(model.topology, index, name)!r}"
    assert model.activation is not None
    return f"actuator {model.topology.actuator_names[model.activation.u_index[index]]!r}"


def _joint_at(topology: Topology, index: int, name: str) -> str:
    """The name of the joint that owns entry `index` of q or v."""
    for j in topology.joints:
        first, count = (j.q, j.nq) if name == "q" else (j.v, j.nv)
        if first <= index < first + count:
            return j.name
    return "?"


def check_state(model: Model, state: State, name: str = "state", *, lanes: bool = False) -> None:
    """Refuse what is no State of this model, with a leading axis where there are `lanes`; values are not looked at.

    Raises:
        StateError: no State, one of another model, shapes, dtypes. ModelError: see `check_arrays`.
    """
    # a State, and of this tree
    check_arrays(model)
    if not isinstance(state, State):
        kind = f"a State{' with an axis of lanes' if lanes else ''}"
        raise StateError(f"{name} is {type(state).__name__}; wanted {kind}: make it with make_state(model, q, v)")
    if state.fingerprint != model.fingerprint:
        raise StateError(
            f"{name} belongs to a model with fingerprint {state.fingerprint}, but this model has {model.fingerprint}: "
            "make it with make_state(model, q, v)"
        )

    # activations where actuators have one, and only there
    if (state.activation is None) != (model.na == 0):
        raise StateError(
            f"{name}.activation is {'missing' if model.na else 'given'}, but model {model.topology.name!r} has "
            f"{model.na} actuators with a filter or an integrator: make it with make_state(model, q, v)"
        )

    # arrays of the model's sizes and dtype, each with as many lanes as q
    count = state.q.shape[0] if lanes and getattr(state.q, "ndim", 0) == 2 else 0
    parts = [("q", state.q, model.nq), ("v", state.v, model.nv)]
    parts += [] if state.activation is None else [("activation", state.activation, model.na)]
    past = (("history", model.nq), ("history_q", model.nq), ("history_v", model.nv))
    parts += [(key, getattr(state, key), size) for key, size in past]
    for key, x, size in parts:
        if not isinstance(x, jax.Array | np.ndarray):
            raise StateError(f"{name}.{key} is {type(x).__name__} {x!r:.60}; wanted an array: make it with make_state")
        if x.shape != ((count, size) if lanes else (size,)) or (lanes and not count):
            wanted = f"(lanes, {size}), lanes ≥ 1" if lanes else f"({size},)"
            raise StateError(f"{name}.{key} has shape {x.shape}; wanted {wanted}: {_shape_hint(x, size, lanes)}")
        if x.dtype != model.dtype:
            raise StateError(f"{name}.{key} is {x.dtype} but the model is {model.dtype}: make_state casts to it")

    # one number of each of the rest
    for key in ("time", "time_rest", "history_span", "has_history", "status"):
        x, wanted = getattr(state, key), (count,) if lanes else ()
        if not is_number(x) or np.shape(x) != wanted:
            given = f"has shape {np.shape(x)}" if is_number(x) else f"is {type(x).__name__} {x!r:.60}"
            raise StateError(f"{name}.{key} {given}; wanted {wanted or 'one number'}: make it with make_state")

    # one lane under vmap: not on a mesh whose axes are Explicit
    if not lanes:
        _check_mesh(state.q, name)


def _check_mesh(x: jax.Array, name: str) -> None:
    """Lanes under vmap are not on a mesh of Explicit axes: there JAX wants to be told the place of every result."""
    kinds = getattr(getattr(jax.typeof(x).sharding, "mesh", None), "axis_types", ())
    mapped = hasattr(x, "batch_dim")
    if mapped and any(kind == AxisType.Explicit for kind in kinds):
        raise StateError(
            f"{name} is one lane of many on a mesh whose axes are Explicit: make the mesh with "
            "axis_types=(AxisType.Auto, ...), or use rollout_batch, envs.unroll or jax.shard_map"
        )


def _shape_hint(x: jax.Array | np.ndarray, size: int, lanes: bool) -> str:
    if lanes:
        return "one state: use rollout, or give it an axis of lanes" if x.ndim == 1 else "make them by jax.vmap"
    batch = x.ndim > 1 and x.shape[-1] == size
    return "it looks like a batch: use jax.vmap or rollout_batch" if batch else "make it with make_state"


def checked(model: Model, state: State, control) -> jax.Array:
    """The control (nu,) as an array, None as zeros; control and state are looked at while tracing."""
    check_state(model, state)
    if control is None:
        return jnp.zeros(model.nu, model.dtype)
    return row_of(model, control, "control")
