"""The report on derivatives: silent where they are right, and naming the force or the array where they are not."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DTYPE, FLOAT32

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Joint, forces
from pbad_jax.analysis import finite_differences, force_jacobians

pytestmark = pytest.mark.float64

HOW = pbad.Options(dt=0.02, scheme="radau1")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tether:
    """A stiffening pull of the last body to the origin, with faults that arrays switch on: one compilation for all."""

    strength: Any
    slope_error: Any  # the declared df_dP is so much too large
    deaf: Any  # 1: its strength is hidden from autodiff

    def load(self, model, at):
        strength = (1 - self.deaf) * self.strength + self.deaf * jax.lax.stop_gradient(self.strength)
        tip = jnp.asarray([[[0.1, 0.2, -0.3, 1.0]]], model.dtype)

        def law(P, V, k):
            return -k * P * (1 + jnp.sum(P * P)) - 0.1 * k * V

        load = forces.point_forces(at, model.topology.body_link[-1:], tip, law, strength)
        (p,) = load.point_forces
        assert p.df_dP is not None
        return load._replace(point_forces=(dataclasses.replace(p, df_dP=p.df_dP * (1 + self.slope_error)),))


def tethered(slope_error: float = 0.0, deaf: float = 0.0) -> pbad.Model:
    """A ball and a driven hinge, damped, and the force."""
    bodies = [
        Body("arm", 1.0, (0, 0, -0.2), np.diag([2, 3, 4]) * 1e-1, joints=[Joint("ball", damping=0.2)]),
        Body("hand", 0.5, (0.1, 0, 0), np.eye(3) * 0.1, 0, (0, 0, -0.5), joints=[Joint("hinge", (0, 1, 0), "wrist")]),
    ]
    model = pbad.build_model(bodies, actuators=[Actuator("wrist", gain=2.0, bias=(0, -1, 0))], dtype=DTYPE)
    return pbad.with_forces(model, Tether(5.0, slope_error, deaf))


def wrong(report) -> list[str]:
    return [row.name for row in report.rows if not row.ok]


@pytest.mark.thorough
def test_right_derivatives():
    """Every array has its row; all agree; the report says so."""
    report = pbad.check_gradients(tethered(), options=HOW)
    print(report)
    report.assert_ok()
    assert report.ok and not report.suspects and str(report).startswith("OK: 3 steps of 0.02 s")
    rows = {row.name: row for row in report.rows}
    assert {"q", "v", "time", "controls", "dt", "second_moment", "gravity", "armature", "axis"} <= rows.keys()
    tether = f"forces[{len(tethered().forces) - 1}] Tether.strength"
    for name in ("q", "v", "controls", "dt", "second_moment", "gravity", tether):
        row = rows[name]
        assert abs(row.difference) > 1e-6, name
        assert row.forward == pytest.approx(row.reverse, rel=1e-3 if FLOAT32 else 1e-9)
    assert {(row.name.split()[-1], row.by) for row in report.slopes} >= {
        ("Tether", "positions"), ("Tether", "velocities"), ("JointDamping", "v"), ("JointActuation", "q"),
    }  # fmt: skip


@pytest.mark.slow
def test_a_wrong_slope_is_found_and_its_force_named():
    report = pbad.check_gradients(tethered(slope_error=1e-3), options=HOW)
    assert not report.ok and [name.split()[-1] for name in report.suspects] == ["Tether"]
    (bad,) = [row for row in report.slopes if not row.ok]
    assert bad.by == "positions" and not bad.declared_ok and bad.autodiff_ok
    assert bad.declared == pytest.approx(bad.difference * (1 + 1e-3))
    assert {"q", "v", "gravity"} <= set(wrong(report)), "Newton's matrix enters every derivative"
    with pytest.raises(pbad.GradientError, match="Tether: the slopes in the Load"):
        report.assert_ok()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_hidden_parameter_is_found():
    """Its slopes are right, and the row of the parameter is not."""
    report = pbad.check_gradients(tethered(deaf=1.0), options=HOW)
    assert not report.ok and not report.suspects
    assert [name.split()[-1] for name in wrong(report)] == ["Tether.strength"]
    with pytest.raises(pbad.GradientError, match=r"stop_gradient(.|\n)*Tether.strength .* WRONG"):
        report.assert_ok()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Careless:
    """A field that depends on the state, and torques: one without slopes, or with autodiff cut off."""

    kind: str = dataclasses.field(metadata={"static": True})

    def load(self, model, at):
        if self.kind == "field":
            return pbad.Load(field=jnp.zeros_like(at.T).at[0].set(at.T[0] ** 2))
        tau = -(at.q**3) - 2.0 * at.v
        if self.kind == "cut":
            tau = jax.lax.stop_gradient(tau)
        if self.kind == "no slopes":
            return pbad.Load(tau=tau)
        if self.kind == "matrix":
            return pbad.Load(
                tau=tau, dtau_dq=jnp.diag(-3 * at.q**2), dtau_dv=-2.0 * jnp.eye(model.nv, dtype=model.dtype)
            )
        return pbad.Load(tau=tau, dtau_dq=-3 * at.q**2, dtau_dv=-2.0 * jnp.ones_like(at.v))


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        ("right", {}),
        ("matrix", {}),
        ("field", {"positions": "slope"}),
        ("no slopes", {"q": "slope", "v": "slope"}),
        ("cut", {"q": "autodiff", "v": "autodiff"}),
    ],
)
def test_slopes_by_themselves(kind, faults):
    model = pbad.with_forces(pbad.chain(1, dtype=DTYPE), Careless(kind))
    state = pbad.make_state(model, [0.5, -0.4], [0.3, 0.7])
    at = force_jacobians.instant(model, state, state, jnp.zeros(0, DTYPE), 0.1)
    rows = force_jacobians.check(model, [at], 0, 5e-2 if FLOAT32 else 1e-9)
    found = {row.by: "autodiff" if row.declared_ok else "slope" for row in rows if not row.ok}
    assert found == faults


@pytest.mark.thorough
def test_a_step_that_fails_is_said():
    """No motion, no derivative, and not OK."""
    model = tethered()
    state = dataclasses.replace(pbad.make_state(model), status=jnp.int8(pbad.Status.STALLED))
    report = pbad.check_gradients(model, state, options=HOW)
    assert not report.ok and not report.steps_ok
    assert "Not every step was solved whole" in str(report) and "FROZEN" in str(report)


def test_names_and_directions():
    model = tethered()
    arrays = finite_differences.named_arrays({"model": model, "q": model.q0})
    assert {"q", "q0", "second_moment", "forces[3] Tether.strength"} <= arrays.keys()
    d = finite_differences.directions(arrays)
    M = d["second_moment"]
    assert np.array_equal(M, np.swapaxes(M, 1, 2)) and all(np.all(np.isfinite(x)) for x in d.values())
    moved = finite_differences.replaced({"model": model, "q": model.q0}, {"gravity": jnp.ones(3, DTYPE)})
    assert np.all(moved["model"].gravity == 1) and np.array_equal(moved["q"], model.q0)


def test_wrong_calls():
    with pytest.raises(pbad.OptionError, match="check_gradients needs options"):
        pbad.check_gradients(tethered(), options=0.02)  # type: ignore[arg-type]
    with pytest.raises(pbad.OptionError, match="n_steps is 0"):
        pbad.check_gradients(tethered(), options=HOW, n_steps=0)
