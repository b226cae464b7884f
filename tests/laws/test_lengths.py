"""A force is a law along a length: the same law along lengths that are equal does the same, and stiff ropes are led."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, Site, forces
from pbad_jax.dynamics.instant import generalised_force, instant_of
from pbad_jax.kinematics import transforms

pytestmark = pytest.mark.float64

HOOK, MASS = Site(None, (0, 0, 0)), Site("mass", (0, 0, 0))
ROPE, TWIN = (HOOK, MASS), {"z": -1.0}  # as long as the mass is low


@functools.cache
def bare() -> pbad.Model:
    """A mass of 2 kg that slides up and down below a hook."""
    return pbad.build_model([Body("mass", 2.0, inertia=0.02 * np.eye(3), joints=[Joint("slide", (0, 0, 1), name="z")])])


@functools.cache
def hung(target, stiffness: float) -> pbad.Model:
    """In a rope of half a metre, or a fixed tendon that is as long."""
    target = dict(target) if target != ROPE else target
    return pbad.with_forces(bare(), forces.tendon_limit(bare(), target, (-np.inf, 0.5), stiffness=stiffness))


@jax.jit
def fall(model, q, v):
    options = pbad.Options(dt=0.05, scheme="radau1")
    state = dataclasses.replace(pbad.make_state(model), q=q, v=v)
    traj, info = pbad.rollout(model, state, n_steps=30, options=options, progress=False)
    return traj.q[:, 0], info.iterations, info.status


@pytest.mark.parametrize("stiffness", [1e4, 1e6])
def test_a_mass_that_falls_into_a_stiff_rope_takes_no_more_iterations_than_into_its_twin(stiffness):
    """Where the rope was not led, it took up to 12, and 22 where others did; a length linear in q takes 2."""
    for z, v in ((-0.1, 0.0), (-0.3, -1.0), (-0.5, -3.0)):
        start = jnp.asarray([z]), jnp.asarray([v])
        q, iterations, status = fall(hung(ROPE, stiffness), *start)
        wanted, fewest, _ = fall(hung(tuple(TWIN.items()), stiffness), *start)
        assert not np.any(status) and iterations.max() <= fewest.max() <= 3
        np.testing.assert_allclose(q, wanted, rtol=0, atol=1e-8)
        assert q[-1] == pytest.approx(-0.5, abs=0.01)


def test_gradients_through_a_rope_are_those_of_its_twin():
    def end(stiffness, model):
        force = model.forces[-1].changed(stiffness=stiffness)
        q, *_ = fall(
            dataclasses.replace(model, forces=(*model.forces[:-1], force)), *(jnp.asarray([x]) for x in (-0.4, 0.0))
        )
        return q[8]

    slopes = [jax.grad(end)(jnp.asarray([1e4]), hung(target, 1e4)) for target in (ROPE, tuple(TWIN.items()))]
    assert abs(slopes[1][0]) > 1e-9
    np.testing.assert_allclose(*slopes, rtol=1e-6)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bushing:
    """A law of one's own: a spring with play, and a damper, where it is out of it."""

    stiffness: jax.Array
    play: jax.Array
    damping: jax.Array
    dissipates = True
    conservative = False

    def along(self, x: forces.Lengths, at: forces.Instant) -> forces.Along:
        out = x.value - jnp.clip(x.value, -self.play, self.play)
        on = (out != 0).astype(out.dtype)
        brake = self.damping * jnp.abs(out)  # which comes in: one that jumped would have no root where it does
        by_length = -self.stiffness * on - self.damping * jnp.sign(out) * x.rate
        return forces.Along(-self.stiffness * out - brake * x.rate, by_length, -brake)

    def energy(self, value: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(self.stiffness * jnp.maximum(jnp.abs(value) - self.play, 0.0) ** 2)


def one(x):
    return jnp.asarray([x])


def driven(model, target) -> forces.LineForce:
    more = pbad.with_actuators(model, Actuator(target, "u", gear=1.5, gain=2.0, bias=(0.1, -1.5, -0.4)))
    return more.forces[-1]


LAWS = {
    "spring": lambda m, t: forces.tendon_spring(m, t, stiffness=30.0, rest=(0.1, 0.3), damping=0.7),
    "polynomial": lambda m, t: forces.tendon_polynomial(m, t, stiffness=(3.0, 5.0), damping=(0.2, 0.1), rest=0.1),
    "friction": lambda m, t: forces.tendon_friction(m, t, 0.8, stick_speed=0.2),
    "limit": lambda m, t: forces.tendon_limit(m, t, (0.0, 0.35), stiffness=200.0, width=0.02),
    "coupling": lambda m, t: forces.tendon_coupling(m, t, t, stiffness=20.0, damping=0.5,
                                                    polynomial=(0.1, 0.3, 0.7, 0.2, 0.1)),
    "actuation": driven,
    "bushing": lambda m, t: forces.LineForce(forces.lengths(m, t), Bushing(one(30.0), one(0.1), one(0.3))),
}  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_a_law_does_the_same_along_a_path_and_along_a_joint(name):
    """Of equal lengths: the generalised force, and the energy where there is one."""
    model, both = bare(), [LAWS[name](bare(), target) for target in (ROPE, TWIN)]
    pushes = []
    for z, v in ((-0.6, 0.5), (-0.32, -2.0), (-0.05, 0.5)):
        here = instant_of(model, pbad.make_state(model, [z], [v]), jnp.asarray([0.7]))
        f = transforms.frames(model, here.q)
        along, twin = (float(generalised_force(model, f, force.load(model, here))[0]) for force in both)
        assert along == pytest.approx(twin, rel=1e-12, abs=1e-12)
        pushes.append(along)
        energies = [force.potential or force.held_potential for force in both]
        if energies[0] is not None:
            assert float(energies[0](model, here)) == pytest.approx(float(energies[1](model, here)), rel=1e-12)
    assert np.ptp(pushes) > 0.1


@pytest.mark.slow
def test_steps_with_all_laws_along_paths_are_those_along_joints():
    """Twenty steps: the same motion in as many iterations, so slopes, duals and what is modelled agree."""
    ends = []
    for target in (ROPE, TWIN):
        model = pbad.with_forces(bare(), *(make(bare(), target) for name, make in LAWS.items() if name != "actuation"))
        model = pbad.with_actuators(model, Actuator(target, "u", gear=1.5, gain=2.0, bias=(0.1, -1.5, -0.4)))
        controls = 20 * jnp.sin(jnp.arange(20.0))[:, None]
        options = pbad.Options(dt=0.05, scheme="radau1")
        traj, info = pbad.rollout(
            model, pbad.make_state(model, [-0.3], [-1.0]), controls, options=options, progress=False
        )
        assert info.ok, info
        ends.append((traj.q, info.iterations))
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=0, atol=1e-8)
    assert np.max(ends[0][1]) <= np.max(ends[1][1]) + 1 and np.ptp(ends[0][0]) > 0.05


@dataclasses.dataclass(frozen=True)
class Muscle:
    """An actuator's law that lacks what others ask of it."""

    u_index: tuple

    def along(self, x, at):
        return forces.Along(at.control[:1])


def test_an_actuator_of_ones_own_has_what_is_asked_of_actuators():
    with pytest.raises(pbad.ModelError, match="JointMuscle is an actuator.* needs control_range, geared, force"):
        forces.LineForce(forces.Joints(), Muscle((0,)))


def test_an_end_along_what_has_no_length_is_refused():
    jet = pbad.with_actuators(bare(), Actuator(MASS, "jet", gear=(0, 0, 1, 0, 0, 0))).forces[-1]
    with pytest.raises(pbad.ModelError, match="SiteLimit: Sites have a rate but no length, .* Limit needs"):
        forces.LineForce(jet.length, LAWS["limit"](bare(), TWIN).law)


def test_a_law_fits_its_lengths():
    """What has too few numbers would be broadcast, and a ball has no coordinate for an energy."""
    model, balls = pbad.chain(3, joint="hinge"), pbad.chain(2, joint="ball")
    with pytest.raises(pbad.ModelError, match=r"JointSpring: stiffness has shape \(1,\), and there are 3 degrees"):
        pbad.with_forces(model, forces.LineForce(forces.Joints(), forces.Spring(one(3.0), jnp.zeros(3))))
    for rest in (0.0, 0.3):
        spring = forces.Spring(jnp.full(6, 5.0), jnp.full(6, rest))
        with pytest.raises(pbad.ModelError, match="balls and free joints have none; give Joints"):
            pbad.with_forces(balls, forces.LineForce(forces.Joints(), spring))
    pbad.with_forces(balls, forces.joint_polynomial(balls, damping=(0.1, 0.0)))  # of rates alone
