"""A robot that holds a pose: by its own position servos, and by PD drives where it has none."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from pbad_jax import checks
from pbad_jax.forces import Attachment, Coupling, LineForce, Sites, actuators, joint_ranges, pd_drive
from pbad_jax.kinematics.reference import effective_inertia
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.line_laws import Actuation
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.model.model import Model, check_model
from pbad_jax.model.state import State, check_state, make_state

STIFF = 30.0  # rad/s: a held joint has the stiffness inertia · STIFF², and critical damping


def hold(model: Model, state: State | None = None) -> tuple[Model, State, np.ndarray]:
    """A model that holds the pose of a state, as `pbad-jax simulate --hold` begins.

    Position servos get the control for which they rest there. Every other joint gets a PD drive to it, of 30 rad/s with
    what it has to move; but for free joints, bases that slide with nothing to drive them, and what others lead in a
    loop. Hinges and slides beyond the ends of their ranges are taken to these; in a loop they begin where it closes.
    A control may be beyond its range, which clips it in a step: then the servo is too weak for this pose.

    Args:
        model: the model; its forces stay.
        state: the pose; default `make_state(model)`.

    Returns:
        The model with its drives, the state to begin with, and the controls (nu,), zero where there is no servo.

    Raises:
        ModelError: no Model, or one or a state that is traced. StateError: no state of it.

    Example:
        >>> held, begun, control = pbad.hold(arm, pbad.make_state(arm, [0.5, 0.2]))
        >>> traj, _ = pbad.rollout(held, begun, n_steps=50, options=pbad.Options(0.02), progress=False)
        >>> traj.q[-1].round(1)
        Array([0.5, 0.2], dtype=float64)
    """
    check_model(model)
    checks.not_traced(model, "the model")
    state = make_state(model) if state is None else state
    check_state(model, state)
    checks.not_traced(state, "the state")
    aim, state, _ = begun_in_ranges(model, state)
    servos = position_servos(model)
    control, _ = resting_controls(model, servos, aim)
    held, _ = with_drives(model, state, aim, servos)
    return held, state, control


# --- where it begins -----------------------------------------------------------------------------------------


def within_ranges(model: Model, q: np.ndarray) -> np.ndarray:
    """The pose (nq,) with hinges and slides at the nearest ends of their ranges, where they are beyond."""
    t, q = tree(model.topology), np.array(q)
    q[t.scalar_q] = np.clip(q[t.scalar_q], *joint_ranges(model)[t.scalar_v].T)
    return q


def begun_in_ranges(model: Model, state: State) -> tuple[np.ndarray, State, int]:
    """The pose within the joints' ranges (nq,), the State to begin with, and how many joints were moved for it.

    What is in a loop begins where the loop closes, and goes to its range by itself.
    """
    q, tied = np.asarray(state.q), set().union(*_loops(model))
    aim = within_ranges(model, q)
    free = np.array([j.q for j in model.topology.joints if j.nq == 1 and j.v not in tied], int)
    begun = q.copy()
    begun[free] = aim[free]
    moved = int(np.sum(begun != q))
    if moved:
        state = make_state(model, begun, state.v, time=state.time, activation=state.activation)
    return aim, state, moved


# --- by servos -----------------------------------------------------------------------------------------------


def position_servos(model: Model) -> list[tuple[int, list[int]]]:
    """Of every actuator that pulls back to a length, its control and the degrees of freedom that it acts on."""
    out = []
    for force in _affine(model):
        law, moves = force.law, force.length.dofs(model)
        for i in np.flatnonzero((np.asarray(law.gain) != 0) & (np.asarray(law.bias)[:, 1] < 0)):
            out.append((law.u_index[i], np.flatnonzero(moves[i]).tolist()))
    return sorted(out)


def resting_controls(model: Model, servos: Sequence, q: np.ndarray) -> tuple[np.ndarray, int]:
    """Controls (nu,) for which the servos rest at q, and how many of them are beyond their control's range."""
    control, beyond = np.zeros(model.nu), 0
    wanted = {u for u, _ in servos}
    for force in _affine(model):
        law = force.law
        gain, bias, ends = (np.asarray(x, float) for x in (law.gain, law.bias, law.control_range))
        length = np.asarray(law.geared(force.length.value(model, jnp.asarray(q))), float)
        rest = -(bias[:, 0] + bias[:, 1] * length) / np.where(gain == 0, 1.0, gain)
        for i, u in enumerate(law.u_index):
            if u in wanted:
                control[u] = rest[i]
                beyond += bool(abs(rest[i] - np.clip(rest[i], *ends[i])) > 1e-6)
    return control, beyond


def _actuations(model: Model) -> list[LineForce]:
    """Those that have a length to pull to."""
    return [f for f in actuators(model) if not isinstance(f.length, Sites)]


def _affine(model: Model) -> list[LineForce]:
    """Of these the ones that may be position servos."""
    return [f for f in _actuations(model) if isinstance(f.law, Actuation)]


# --- by drives -----------------------------------------------------------------------------------------------


def with_drives(model: Model, state: State, aim: np.ndarray, servos: Sequence) -> tuple[Model, int]:
    """The model with PD drives at the pose `aim` (nq,) on what neither servos nor others hold, and of how many dofs."""
    served = {v for _, moved in servos for v in moved} | _left_alone(model)
    which = [j for j in model.topology.joints if j.nv and j.type != "free" and not served & {*range(j.v, j.v + j.nv)}]
    if not which:
        return model, 0
    inertia = effective_inertia(model, np.asarray(state.q))
    feels = np.concatenate([inertia[j.v : j.v + j.nv] for j in which])
    target = np.concatenate([aim[j.q : j.q + j.nq] for j in which])
    names = [j.name for j in which]
    drive = pd_drive(model, names, feels * STIFF**2, 2 * feels * STIFF, target=target)
    return with_forces(model, drive), len(feels)


def _left_alone(model: Model) -> set[int]:
    """The degrees of freedom of a base that moves freely, and of what others lead in a loop."""
    driven = {v for f in _actuations(model) for v in np.flatnonzero(f.length.dofs(model).any(axis=0)).tolist()}
    return _of_bases(model, driven) | _led_by_loops(model, driven)


def _of_bases(model: Model, driven: set[int]) -> set[int]:
    """Of bodies on the world that slide and that nothing drives, where others are driven: free joints by parts."""
    t, base = model.topology, set()
    for body, parent in enumerate(t.body_parent):
        joints_ = [j for j in t.joints if j.body == body]
        own = {v for j in joints_ for v in range(j.v, j.v + j.nv)}
        if parent < 0 and any(j.type == "slide" for j in joints_) and driven and not own & driven:
            base |= own
    return base


def _led_by_loops(model: Model, driven: set[int]) -> set[int]:
    """Of loops in which something is driven, what is not: held where the loop does not close, it would open it."""
    return set().union(*(loop - driven for loop in _loops(model) if loop & driven))


def _loops(model: Model) -> list[set[int]]:
    """The degrees of freedom in every loop that attachments and couplings close."""
    above, loops = tree(model.topology).dof_above_link, []
    for f in model.forces:
        if isinstance(f, Attachment):
            loops += [{*np.flatnonzero(above[:, a] != above[:, b]).tolist()} for a, b in {*f.links}]
        elif isinstance(f, LineForce) and isinstance(f.length, Coupling):
            loops += [{*np.flatnonzero(row).tolist()} for row in f.length.dofs(model)]
    return loops
