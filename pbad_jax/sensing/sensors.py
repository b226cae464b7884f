"""What the sensors of a model read at a state, in MuJoCo's terms.

One pure function of the state, the control and the joint acceleration. What only some sensors need is computed for
these alone. Contact is that of the state by itself: the penetrations and velocities at this instant.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.dynamics import energy, newton_euler
from pbad_jax.dynamics.instant import generalised_force, instant_of
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.laws.instant import Instant
from pbad_jax.laws.line_force import LineForce, actuators
from pbad_jax.laws.paths import paths
from pbad_jax.math import rotations
from pbad_jax.math.precision import with_all_bits
from pbad_jax.math.small import matmul, matvec, small_sum, transpose
from pbad_jax.model.joints import JointInfo
from pbad_jax.model.model import Model
from pbad_jax.model.sensors import KINDS, POSITIVE, Sensor
from pbad_jax.model.sites import Site
from pbad_jax.model.state import State, checked, driven
from pbad_jax.sensing.center_of_mass import carried_by, center_of_mass, center_of_mass_velocity
from pbad_jax.sensing.task_space import (
    Motion,
    Placed,
    Rates,
    joint_acceleration,
    motion,
    placed,
    rates_of,
    second_rates_of,
    transforms_of,
)
from pbad_jax.sensing.touch import felt, touches


@with_all_bits
def read_sensors(model: Model, state: State, control=None, acceleration=None) -> dict[str, jax.Array]:
    """What every sensor of the model reads, by its name.

    Args:
        model: with `model.sensors`, of its file or of `with_sensors`.
        state: q, v and time.
        control: (nu,) or None, zeros; for what actuators do.
        acceleration: (nv,) of the joints, for accelerometers, forces and torques. None: what all forces make of this
            state, `newton_euler.acceleration`; (after.v − before.v)/dt is what a step had in the mean.

    Returns:
        {name: (n,)} m, rad, m/s, rad/s, m/s², rad/s², N, N m, J, s, quaternions (w,x,y,z) with w ≥ 0. Positions and
        velocities of frames are in the axes of the world or of their reference; accelerometer, velocimeter, gyro,
        magnetometer, force and torque in their site's. Accelerations of frames have gravity against them, so that what
        rests reads g upwards. Force and torque are what the parent of the site's body exerts on it.

    Raises:
        StateError: shapes, dtypes, a state of another model (while tracing).

    Example:
        >>> sensors = {"tip": pbad.Sensor("framepos", of="hand"), "energy": pbad.Sensor("e_kinetic")}
        >>> seen = pbad.with_sensors(hand, sensors)
        >>> {name: x.round(3) for name, x in pbad.read_sensors(seen, pbad.make_state(seen)).items()}
        {'tip': Array([ 0.,  0., -2.], dtype=float64), 'energy': Array([0.], dtype=float64)}
    """
    given = None if acceleration is None else joint_acceleration(model, acceleration)
    found = _read(model, state, checked(model, state, control), given)
    return {name: found[name] for name in model.sensors}


@functools.partial(jax.jit, inline=True)
def _read(model: Model, state: State, control: jax.Array, acceleration: jax.Array | None) -> dict[str, jax.Array]:
    look = _Look(model, state, driven(model, state, control), acceleration)
    return {name: _within(s, READERS[s.kind](look, s)) for name, s in model.sensors.items()}


def _within(s: Sensor, x: jax.Array) -> jax.Array:
    """Cut off; always with an axis."""
    x = jnp.atleast_1d(x)
    if s.cutoff == np.inf:
        return x
    return jnp.minimum(x, s.cutoff) if s.kind in POSITIVE else jnp.clip(x, -s.cutoff, s.cutoff)


class _Look:
    """One moment of one model; everything is computed when it is first asked for."""

    def __init__(self, model: Model, state: State, control: jax.Array, acceleration):
        self.model, self.state, self.control, self._given = model, state, control, acceleration
        frames = [f for s in model.sensors.values() if KINDS[s.kind][0] == "frame" for f in (s.of, s.reference)]
        self._sites = tuple(dict.fromkeys(self.site(f) for f in frames if f is not None))

    def site(self, frame: str | Site) -> Site:
        return self.model.sites[frame] if isinstance(frame, str) else frame

    def place(self, frame: str | Site) -> int:
        """Its row in all that follows."""
        return self._sites.index(self.site(frame))

    @functools.cached_property
    def placed(self) -> Placed:
        return placed(self.model, self._sites)

    @functools.cached_property
    def motion(self) -> Motion:
        return motion(self.model, self.state)

    @functools.cached_property
    def X(self) -> jax.Array:
        """(n,3,4) of the frames, about the centre of mass."""
        return transforms_of(self.placed, self.motion.f.T, self.motion.world)

    @functools.cached_property
    def rates(self) -> Rates:
        return rates_of(self.placed, self.motion)

    @functools.cached_property
    def acceleration(self) -> jax.Array:
        if self._given is not None:
            return self._given
        return newton_euler.acceleration(self.model, self.state, self.control)

    @functools.cached_property
    def second_rates(self) -> Rates:
        """With gravity against them, as MuJoCo has them."""
        a = second_rates_of(self.model, self.placed, self.motion, self.state.v, self.acceleration)
        return a._replace(linear=a.linear - self.model.gravity[None])

    @functools.cached_property
    def wrenches(self) -> jax.Array:
        """(N,6) about the centre of mass: what a link and all that it carries get from its parent."""
        m, t = newton_euler.spatial_state(self.model, self.state, self.control), tree(self.model.topology)
        moves = jnp.asarray(t.dof_above_link.T, m.s.dtype)
        w = m.wrench + matvec(m.inertia, moves @ (m.s * self.acceleration[:, None]))
        return jnp.asarray(t.above, w.dtype) @ w

    @functools.cached_property
    def at(self) -> Instant:
        return instant_of(self.model, self.state, self.control)

    @functools.cached_property
    def touches(self) -> list:
        return touches(self.model, self.at)


Reader = Callable[[_Look, Sensor], jax.Array]


# --- frames --------------------------------------------------------------------------------------------------


def _seen(look: _Look, s: Sensor) -> tuple[int, jax.Array, jax.Array]:
    """The row of the frame, and of its reference the axes (3,3) and the origin (3,)."""
    if s.reference is None:
        return look.place(s.of), jnp.eye(3, dtype=look.model.dtype), -look.motion.origin
    X = look.X[look.place(s.reference)]
    return look.place(s.of), X[:, :3], X[:, 3]


def _position(look: _Look, s: Sensor) -> jax.Array:
    i, R, origin = _seen(look, s)
    return matvec(R.T, look.X[i, :, 3] - origin)


def _axis(k: int) -> Reader:
    def read(look: _Look, s: Sensor) -> jax.Array:
        i, R, _ = _seen(look, s)
        return matvec(R.T, look.X[i, :, k])

    return read


def _quaternion(look: _Look, s: Sensor) -> jax.Array:
    i, R, _ = _seen(look, s)
    return rotations.quaternion_of(matmul(R.T, look.X[i, :, :3]))


def _velocity(look: _Look, s: Sensor) -> jax.Array:
    """As seen from the reference, which moves and turns."""
    i, R, origin = _seen(look, s)
    v = look.rates.linear[i]
    if s.reference is not None:
        k = look.place(s.reference)
        v = v - look.rates.linear[k] - jnp.cross(look.rates.angular[k], look.X[i, :, 3] - origin)
    return matvec(R.T, v)


def _turning(look: _Look, s: Sensor) -> jax.Array:
    i, R, _ = _seen(look, s)
    w = look.rates.angular[i]
    return matvec(R.T, w if s.reference is None else w - look.rates.angular[look.place(s.reference)])


def _in_own_axes(what: Callable[[_Look, int], jax.Array]) -> Reader:
    def read(look: _Look, s: Sensor) -> jax.Array:
        i = look.place(s.of)
        return matvec(transpose(look.X[i, :, :3]), what(look, i))

    return read


def _wrench(look: _Look, i: int) -> jax.Array:
    link = int(look.placed.links[i])
    return jnp.sum(look.wrenches[_roots(look.model)], axis=0) if link == len(look.wrenches) else look.wrenches[link]


def _roots(model: Model) -> np.ndarray:
    return np.flatnonzero(np.array(model.topology.link_parent) < 0)


def _torque(look: _Look, i: int) -> jax.Array:
    w = _wrench(look, i)
    return w[:3] - jnp.cross(look.X[i, :, 3], w[3:])


def _magnetic(look: _Look, s: Sensor) -> jax.Array:
    field = jnp.asarray(s.field, look.model.dtype)
    return _in_own_axes(lambda *_: field)(look, s)


def _touch(look: _Look, s: Sensor) -> jax.Array:
    site = look.site(s.of)
    return felt(look.model, site, placed(look.model, (site,)), look.at, look.touches)


# --- joints, tendons, actuators ------------------------------------------------------------------------------


def _joint(look: _Look, s: Sensor) -> JointInfo:
    return next(j for j in look.model.topology.joints if j.name == s.of)


def _turned(look: _Look, s: Sensor) -> jax.Array:
    p = look.state.q[_joint(look, s).q :][:4]
    return jnp.where(p[:1] < 0, -p, p)


def _tendon(x: str, first: str) -> Reader:
    """Coefficients times q or v; of a spatial tendon its length or rate."""

    def read(look: _Look, s: Sensor) -> jax.Array:
        joints = {j.name: j for j in look.model.topology.joints}
        if any(isinstance(part, Site) for part in s.of):
            seen = paths(look.model, s.of, "a sensor").at(look.model, look.at)
            return (seen.value if x == "q" else seen.rate)[0]
        values = getattr(look.state, x)
        return sum((c * values[getattr(joints[name], first)] for name, c in s.of), jnp.zeros((), values.dtype))

    return read


def _actuator(what: Callable[[LineForce, _Look], jax.Array]) -> Reader:
    """What one actuator has, from the force that has it."""

    def read(look: _Look, s: Sensor) -> jax.Array:
        u = look.model.topology.actuator_names.index(s.of)
        force = next(f for f in actuators(look.model) if u in f.law.u_index)
        return what(force, look)[force.law.u_index.index(u)]

    return read


def _extent(force: LineForce, look: _Look) -> jax.Array:
    return force.law.geared(force.length.at(look.model, look.at).value)


def _speed(force: LineForce, look: _Look) -> jax.Array:
    return force.law.geared(force.length.at(look.model, look.at).rate)


def _push(force: LineForce, look: _Look) -> jax.Array:
    seen = force.length.at(look.model, look.at)
    return force.law.force(look.control, seen.value, seen.rate)


def _actuation(look: _Look, s: Sensor) -> jax.Array:
    return actuation(look.model, look.at)[_joint(look, s).v]


def actuation(model: Model, at: Instant) -> jax.Array:
    """(nv,) N m or N, the generalised force of all actuators: MuJoCo's qfrc_actuator."""
    total = jnp.zeros(model.nv, model.dtype)
    for force in actuators(model):
        load = force.load(model, at)
        if load.point_forces:  # on sites or along spatial tendons
            total = total + generalised_force(model, transforms.frames(model, at.q), load)
        elif load.tau is not None:
            total = total + load.tau
    return total


# --- what bodies carry, energies -----------------------------------------------------------------------------


def _momentum(look: _Look, s: Sensor) -> jax.Array:
    """Angular, of a body and all that it carries about their centre of mass."""
    m, model = look.motion, look.model
    weight = jnp.asarray(carried_by(model, s.of), model.dtype)
    h = weight @ matvec(newton_euler.spatial_inertia(model, m.f.T), m.twist)
    M = model.second_moment * weight[:, None, None]
    centre = jnp.sum(small_sum(m.f.T * M[:, None, :, 3]), axis=0) / jnp.sum(M[:, 3, 3])
    return h[:3] - jnp.cross(centre, h[3:])


READERS: dict[str, Reader] = {
    "touch": _touch,
    "accelerometer": _in_own_axes(lambda look, i: look.second_rates.linear[i]),
    "velocimeter": _in_own_axes(lambda look, i: look.rates.linear[i]),
    "gyro": _in_own_axes(lambda look, i: look.rates.angular[i]),
    "force": _in_own_axes(lambda look, i: _wrench(look, i)[3:]),
    "torque": _in_own_axes(_torque),
    "magnetometer": _magnetic,
    "framepos": _position,
    "framequat": _quaternion,
    "framexaxis": _axis(0),
    "frameyaxis": _axis(1),
    "framezaxis": _axis(2),
    "framelinvel": _velocity,
    "frameangvel": _turning,
    "framelinacc": lambda look, s: look.second_rates.linear[look.place(s.of)],
    "frameangacc": lambda look, s: look.second_rates.angular[look.place(s.of)],
    "jointpos": lambda look, s: look.state.q[_joint(look, s).q],
    "jointvel": lambda look, s: look.state.v[_joint(look, s).v],
    "jointactuatorfrc": _actuation,
    "ballquat": _turned,
    "ballangvel": lambda look, s: look.state.v[_joint(look, s).v :][:3],
    "tendonpos": _tendon("q", "q"),
    "tendonvel": _tendon("v", "v"),
    "actuatorpos": _actuator(_extent),
    "actuatorvel": _actuator(_speed),
    "actuatorfrc": _actuator(_push),
    "subtreecom": lambda look, s: center_of_mass(look.model, look.state, s.of),
    "subtreelinvel": lambda look, s: center_of_mass_velocity(look.model, look.state, s.of),
    "subtreeangmom": _momentum,
    "e_potential": lambda look, s: energy.potential_energy(look.model, look.state),
    "e_kinetic": lambda look, s: energy.kinetic_energy(look.model, look.state),
    "clock": lambda look, s: look.state.time,
}
