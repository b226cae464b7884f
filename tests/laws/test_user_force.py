"""A force of one's own: the documentation's lines, and energies alone."""

import dataclasses
import functools
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, TOL, Case, assert_close, thorough
from stage_cases import SCHEMES, draw, library

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.dynamics.instant import instant_of
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.laws import force as protocol

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "what_acts.md"


def snippet(mark: str = "force") -> dict[str, Any]:
    """What the page's example below that mark defines."""
    found = re.search(rf"<!-- {mark} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, f"docs/what_acts.md: no python block below <!-- {mark} -->"
    names: dict[str, Any] = {}
    exec(compile(found.group(1), str(PAGE), "exec"), names)
    return names


PAGE_NAMES = snippet()
matrices = jax.jit(library.__wrapped__, static_argnames=("scheme", "twin"))


def rolled(model, steps: int = 20, q=None):
    options = pbad.Options(dt=0.05, scheme=pbad.radau(1))
    return pbad.rollout(model, pbad.make_state(model, q), n_steps=steps, options=options, progress=False)


@jax.jit
def pulled(strength):
    """The last q, its derivative by the strength, and how the steps went."""

    def last(strength):
        force = dataclasses.replace(PAGE_NAMES["model"].forces[-1], strength=strength)
        traj, info = rolled(pbad.with_forces(pbad.chain(3), force))
        return traj.q[-1], info

    return jax.jvp(last, (strength,), (jnp.ones_like(strength),), has_aux=True)


@pytest.mark.slow
def test_it_acts_and_every_step_converges():
    """It draws the chain aside, which without it hangs at rest."""
    ends = []
    for strength in (20.0, 0.0):
        q, _, info = pulled(jnp.asarray(strength, DTYPE))
        info.assert_ok()
        assert float(jnp.mean(info.iterations)) < 6
        ends.append(float(jnp.abs(q).max()))
    assert ends[0] > 0.1 and ends[1] < 1e-6


@pytest.mark.float64
def test_the_derivative_of_a_rollout_by_its_strength():
    """jvp against central differences; finite and not zero."""
    h = 1e-2
    q = np.asarray([pulled(jnp.asarray(20.0 + k * h, DTYPE))[0] for k in (-2, -1, 1, 2)])
    got, want = np.asarray(pulled(jnp.asarray(20.0, DTYPE))[1]), (8 * (q[2] - q[1]) - q[3] + q[0]) / (12 * h)
    assert np.all(np.isfinite(got)) and np.abs(got).max() > 1e-4
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


# --- energies, nothing else --------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tether:
    """A point energy: its force is minus the gradient of one line, and `point_forces` differentiates that again."""

    strength: jax.Array

    def load(self, model, at):
        tips = jnp.asarray([[[0, 0, -1, 1], [0, 0, 0, 1]]], model.dtype)
        links = ((model.topology.body_link[-1], model.topology.body_link[0]),)

        def energy(P, strength):
            return strength * jnp.sum((P[0] - P[1]) ** 2) ** 2 / 4

        return forces.point_forces(at, links, tips, lambda P, V, k: -jax.grad(energy)(P, k), self.strength)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class JointEnergy:
    """An energy of all joints at once, U(q ⊕ δ): the torques and, if asked for, their slopes by autodiff."""

    strength: jax.Array
    sloped: bool = dataclasses.field(default=True, metadata={"static": True})

    def potential(self, model, at):
        return self.strength * jnp.sum(transforms.transforms(model, at.q)[..., 2, 3] ** 2) / 2

    def load(self, model, at):
        zero = jnp.zeros(model.nv, model.dtype)

        def moved(q, delta):
            return dataclasses.replace(at, q=manifold.retract(model, q, delta))

        def torque(delta):
            q = manifold.retract(model, at.q, delta)
            return -jax.grad(lambda d: self.potential(model, moved(q, d)))(zero)

        return pbad.Load(tau=torque(zero), dtau_dq=jax.jacfwd(torque)(zero) if self.sloped else None)


OWN = {
    "Magnet": (PAGE_NAMES["Magnet"], "radau2"),
    "Tether": (Tether, "radau1"),
    "JointEnergy": (JointEnergy, "radau1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Magnet", thorough("Tether"), thorough("JointEnergy")])
def test_newtons_matrix_equals_autodiff_of_the_residual(name):
    force, scheme = OWN[name]
    model, args = draw(Case("free", 3, "generic", "generic"), SCHEMES[scheme], 0.3)

    def judged(strength):
        own = pbad.with_forces(model, force(jnp.asarray(strength, DTYPE)))
        return matrices(own, SCHEMES[scheme], jnp.asarray(0.3, DTYPE), *args, "parallel")

    r, J, judge = judged(20.0)
    assert np.abs(np.asarray(r - judged(0.0)[0])).max() > 1e-3, "the force never acted"
    assert_close(J, judge, TOL["matrix"], name)


@pytest.mark.slow
@pytest.mark.float64
def test_torques_without_slopes_are_solved_too():
    """An incomplete Newton matrix costs iterations; the steps are the same."""
    ends, counts = [], []
    for sloped in (True, False):
        model = pbad.with_forces(pbad.chain(2), JointEnergy(jnp.asarray(5.0), sloped))
        traj, info = jax.jit(lambda m: rolled(m, q=[1.0, 0.3, -0.4, 0.1]))(model)
        info.assert_ok()
        ends.append(np.asarray(traj.q))
        counts.append(float(jnp.mean(info.iterations)))
    print("iterations with slopes, without", counts)
    assert_close(ends[1], ends[0], 1e-8)
    assert counts[1] > counts[0]


# --- what a force may be called ------------------------------------------------------------------------------


def own(**names):
    """A force without numbers that has these class attributes."""
    nothing = {"load": lambda self, model, at: pbad.Load()}
    return jax.tree_util.register_static(type("Own", (), nothing | names))()


def given(force):
    return pbad.with_forces(pbad.chain(1), force).forces[-1]


MISSPELT = {
    "conservativ": "conservative",
    "Conservative": "conservative",
    "duals": "dual",
    "Dual": "dual",
    "couple_joints": "couples_joints",
    "couplesJoints": "couples_joints",
    "At": "at",
    "potental": "potential",
    "potentials": "potential",
    "gaps": "gap",
    "depht": "depth",
    "pased": "passed",
    "descibe": "describe",
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_name_that_is_nearly_one_of_a_force_is_refused(name):
    with pytest.raises(pbad.ModelError) as e:
        given(own(**{name: False}))
    assert str(e.value) == (
        f"with_forces: {name!r} of this Own is no name of pbad_jax.forces.Force and has no effect; is "
        f"{MISSPELT[name]!r} meant? Write that, or call what is your own something else, such as _{name}"
    )


def test_so_are_fields_of_dataclasses_inherited_names_and_properties():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Elastic(Tether):
        conservativ: bool = dataclasses.field(default=False, metadata={"static": True})

    class Softer(Elastic):
        pass

    class Elastica(Tether):
        @property
        def potentialx(self):
            raise AssertionError("its value is not asked for")

    for kind in (Softer, Elastica):
        jax.tree_util.register_static(kind)
    for kind, name in ((Elastic, "conservativ"), (Softer, "conservativ"), (Elastica, "potentialx")):
        with pytest.raises(pbad.ModelError, match=f"'{name}' of this {kind.__name__} is no name of"):
            given(kind(jnp.asarray(1.0)))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Band:
    """A law of one's own, right; what follows is wrong with it."""

    k: Any

    def along(self, x, at):
        return forces.Along(-self.k * x.value, -self.k * jnp.ones_like(x.value))


def changed_law(**names):
    """A Band with other names, or without `along` where that is None."""
    kept = {} if names.get("along", 1) is None else {"along": Band.along}
    kind = type("Band", (), {**kept, **{k: x for k, x in names.items() if x is not None}})
    return jax.tree_util.register_static(kind)()


WRONG_LAWS = {
    "energy": (changed_law(engery=lambda self, x: 0.0), "'engery' of this Band is no name of a law"),
    "dissipates": (changed_law(dissipate=True), "is 'dissipates' meant?"),
    "no along": (changed_law(along=None), "JointBand: its law has no method along"),
    "one number": (Band(jnp.ones(1)), r"JointBand: k has shape \(1,\)"),
}
WRONG_ALONG = {
    "an array": (lambda self, x, at: -x.value, "JointBand: along of its law gave .*; it must be forces.Along"),
    "no instant": (lambda self, x: None, "JointBand: along.* of 6 lengths: .*positional argument"),
    "shapes": (lambda self, x, at: forces.Along(x.value * jnp.ones(2)), "JointBand: along.* of 6 lengths: .*shape"),
}


@pytest.mark.parametrize("name", WRONG_LAWS)
def test_a_law_that_is_wrong_is_refused_by_name(name):
    law, said = WRONG_LAWS[name]
    with pytest.raises(pbad.ModelError, match=said):
        pbad.with_forces(pbad.chain(3), forces.LineForce(forces.Joints(), law))


@pytest.mark.parametrize("name", WRONG_ALONG)
def test_a_law_that_gives_no_force_is_named(name):
    """When it is first asked, while a step is traced."""
    along, said = WRONG_ALONG[name]
    model = pbad.with_forces(pbad.chain(3), forces.LineForce(forces.Joints(), changed_law(along=along)))
    with pytest.raises(pbad.ModelError, match=said):
        jax.eval_shape(pbad.make_step(pbad.Options(0.1)), model, pbad.make_state(model))


WRONG_SURFACES = {
    "no pytree": (type("Hill", (), {"distance": lambda self, P: P[2]})(), "no pytree"),
    "a class": (type("Hill", (), {"distance": lambda self, P: P[2]}), "has no distance"),
    "words": (forces.SignedDistance(lambda P, p: P[2], "up"), "parameters is 'up'; wanted numbers"),
    "a vector": (forces.SignedDistance(lambda P, p: P[2:]), r"has shape \(1,\); it must be one number"),
    "two arguments": (forces.SignedDistance(lambda P: P[2]), "positional argument"),
    "thickness": (
        jax.tree_util.register_static(type("Hill", (), {"distance": lambda self, P: P[2], "thicknes": 1.0}))(),
        "'thicknes' of this Hill is no name of a surface",
    ),
}


@pytest.mark.parametrize("name", WRONG_SURFACES)
def test_a_surface_that_is_wrong_is_refused_by_name(name):
    surface, said = WRONG_SURFACES[name]
    model = pbad.chain(1)
    for make, of in ((forces.contact, "contact"), (lambda *x: forces.paper_contact(x[0], 1.0, x[1]), "paper_contact")):
        with pytest.raises(pbad.ModelError, match=said) as caught:
            make(model, surface)
        assert of in str(caught.value)


WRONG = {
    "at": (("stage", "Step", None, 1, ["step"], lambda self: "step"), "'stages' or 'step'"),
    "conservative": (("no", 0, None, lambda self: False), "True or False"),
    "couples_joints": (("blocks", 0.0), "True or False"),
    "potential": ((1.0, None), "a method potential(model, at)"),
    "gap": ((0.1,), "a method gap(model, at)"),
    "depth": (("deep",), "a method depth(model, at)"),
    "passed": ((False,), "a method passed(model, at)"),
    "dual": ((jnp.zeros(1),), "a method dual(model)"),
    "describe": (("Own",), "a method describe(model)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused_by_name(name):
    for value in WRONG[name][0]:
        force = own(**{name: value})
        with pytest.raises(pbad.ModelError) as e:
            given(force)
        shown = f"{getattr(force, name)!r:.60}"
        rule = f"it must be {WRONG[name][1]}, see pbad_jax.forces.Force"
        assert str(e.value) == f"with_forces: {name} of this Own is {shown}; {rule}"


def test_what_is_no_force_at_all_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Bare:
        load = Tether.load

    for wrong, said in (
        (object(), "is no force; it needs a method load"),
        (Tether, "Tether is a class; pass a force made of it, Tether"),
        (Bare(), "this Bare is no pytree; make it a frozen dataclass under @jax.tree_util.register_dataclass"),
    ):
        with pytest.raises(pbad.ModelError, match=said):
            given(wrong)


def test_right_names_and_names_of_ones_own_are_accepted():
    def answer(self, model, at):
        return jnp.zeros(())

    right = {"at": "step", "conservative": np.bool_(False), "couples_joints": False}
    right |= {
        "potential": answer,
        "gap": answer,
        "depth": answer,
        "passed": answer,
        "dual": lambda self, model: (),
        "describe": lambda self, model: ("Own", "all"),
    }
    names = (
        "strength",
        "act",
        "mat",
        "rate",
        "links",
        "map",
        "loads",
        "width",
        "joints",
        "describes_nothing",
        "_conservativ",
    )
    for force in (own(**right), own(**dict.fromkeys(names, 1))):
        assert given(force) is force


def test_what_holds_where_a_force_does_not_say():
    silent, model = own(), pbad.chain(1)
    assert protocol.acts_at(silent) == "stages"
    assert not protocol.is_conservative(silent) and protocol.is_conservative(own(potential=lambda self, m, at: 0.0))
    assert not hasattr(silent, "dual") and protocol.couples_joints(silent)
    assert protocol.description(silent, model) == ("Own", "")
    assert pbad.loop_gaps(pbad.with_forces(model, silent), pbad.make_state(model)) == ()


def test_every_force_of_the_library_passes_its_own_rules_and_describes_itself():
    from test_force_laws import FORCES, creature, made

    for name in FORCES:
        force = made(name)
        bare = dataclasses.replace(creature(), forces=())
        assert type(pbad.with_forces(bare, force).forces[0]) is type(force)
        label, extent = protocol.description(force, creature())
        assert label.startswith(forces.name_of(force))
        assert extent or type(force).__name__ in ("PaperDrag", "Magnet")


def test_the_pages_law_of_ones_own_acts_along_joints_and_says_its_energy():
    """Of the chain that it makes: minus the gradient of its energy, no force within its play; it runs."""
    names = snippet("law")
    model, law = names["model"], names["law"]
    force = model.forces[-1]
    assert force.name == "JointBushing" and forces.is_conservative(force)
    for q in ([0.05, -0.08, 0.1], [0.3, -0.2, 0.15]):
        load = force.load(model, instant_of(model, pbad.make_state(model, q), jnp.zeros(0)))
        np.testing.assert_allclose(load.tau, -jax.grad(law.energy)(jnp.asarray(q, model.dtype)), rtol=1e-4, atol=1e-5)
        assert np.any(load.tau) == (q[0] > 0.1)
    assert rolled(model, 20, [0.2, 0.0, -0.3])[1].ok


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["load_of"])
@dataclasses.dataclass(frozen=True)
class Misshapen:
    """What a user may get wrong about a Load."""

    load_of: object

    def load(self, model, at):
        return self.load_of(at)


@pytest.mark.parametrize(
    ("load_of", "words"),
    [
        (lambda at: forces.Load(tau=jnp.zeros(3)), ["Misshapen", "(3,)", "(4,)"]),
        (lambda at: forces.Load(tau=at.v, dtau_dv=jnp.zeros((4, 3))), ["Misshapen", "(4, 3)", "(4, 4)"]),
        (lambda at: forces.Load(field=jnp.zeros((4, 4, 4))), ["Misshapen", "(4, 3, 4)"]),
    ],
)
def test_a_load_that_does_not_fit_is_named(load_of, words):
    force = Misshapen(load_of)
    model = pbad.with_forces(pbad.chain(2), force)
    with pytest.raises(pbad.ModelError) as caught:
        jax.eval_shape(pbad.make_step(pbad.Options(0.1)), model, pbad.make_state(model))
    assert all(word in str(caught.value) for word in words), str(caught.value)
