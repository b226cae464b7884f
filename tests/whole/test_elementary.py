"""The systems of a first course: points, rods, rotors, springs, pendulums, by every scheme, solver and precision.

Those of more joints are in test_elementary_bodies.py, those that turn in space in test_elementary_tops.py, those that
touch in test_elementary_contact.py.

What has a closed form is compared with it, the rest with Runge and Kutta's formulas in steps of a tenth of a
millisecond, written here. All lanes of a test are one program: they have the same joints and differ in their numbers.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elementary import DT, ORDER, G, N, bound, many, options, reference, stacked

import pbad_jax as pbad

pytestmark = pytest.mark.float64  # both precisions are asked for by name


def grid(quick, slow) -> list:
    """Every scheme, solver and precision; thorough but for those named quick or slow."""
    out = []
    for scheme in ORDER:
        ways = [("lm", "dense")] + [("lm", "tree")] * (scheme.startswith("dirk") or scheme in ("radau1", "legendre2"))
        ways += [("lbfgs", "dense")] * (scheme in ("radau1", "radau2", "dirk3"))
        for solver, linear in ways:
            for dtype in ("float64", "float32")[: 1 if solver == "lbfgs" else 2]:  # optax mixes them where x64 is on
                way = (scheme, solver, linear, dtype)
                mark = () if way in quick else pytest.mark.slow if way in slow else pytest.mark.thorough
                out.append(pytest.param(*way, marks=mark))
    return out


# --- one slide -------------------------------------------------------------------------------------------


class Slide:
    """m x'' = −k (x − rest) − c x' − m g, of a point or a bead of inertia J; where it starts."""

    def __init__(self, x=0.0, v=0.0, m=1.0, k=0.0, c=0.0, rest=0.0, g=0.0, J=0.0):
        self.x, self.v, self.m, self.k, self.c, self.rest, self.g, self.J = x, v, m, k, c, rest, g, J

    def model(self, dtype):
        slide = pbad.Joint("slide", (0, 0, 1), stiffness=1.0, damping=1.0, spring_reference=self.rest)
        bead = pbad.Body("bead", self.m, inertia=self.J * np.eye(3), joints=[slide])
        model = pbad.build_model([bead], gravity=(0, 0, -self.g), dtype=dtype)
        gravity, spring, damping = model.forces
        spring = spring.changed(stiffness=self.k * spring.law.stiffness)
        damping = damping.changed(coefficient=self.c * damping.law.coefficient)
        return dataclasses.replace(model, forces=(gravity, spring, damping))

    def at(self, t):
        """x and v in closed form, and the largest distance and speed on the way."""
        if self.k == 0 and self.c == 0:
            x, v = self.x + self.v * t - 0.5 * self.g * t**2, self.v - self.g * t
        else:
            middle, d = self.rest - self.m * self.g / self.k, self.c / (2 * self.m)
            w, a = np.sqrt(self.k / self.m - d**2), self.x - middle
            b = (self.v + d * a) / w
            x = middle + np.exp(-d * t) * (a * np.cos(w * t) + b * np.sin(w * t))
            v = np.exp(-d * t) * ((b * w - d * a) * np.cos(w * t) - (a * w + d * b) * np.sin(w * t))
        return x, v


SLIDES = {
    "a point at rest": Slide(x=1.0),
    "a point that goes on": Slide(x=1.0, v=1.0),
    "a point that falls": Slide(g=G),
    "a point thrown up": Slide(v=2.0, g=G),
    "a mass on a spring": Slide(x=1.0, k=100.0),
    "from the origin": Slide(k=100.0, rest=0.3),
    "damped": Slide(x=1.0, k=100.0, c=2.0),
    "hanging still": Slide(x=0.7, k=100.0, rest=0.7 + G / 100.0, g=G),
    "far away": Slide(x=1000.0, v=1.0, g=G),
    "a bead of a millimetre": Slide(m=0.01, J=4e-11, g=G),
    "a bead that is shot": Slide(v=100.0, m=0.01, J=4e-11, g=G),
    "a mote of dust": Slide(m=1e-9, J=1e-21, v=0.1, k=1e-7, x=1e-3),
    "a heavy one": Slide(m=1e6, J=1e6, v=0.1, k=1e8, x=1.0),
}


def rounding(scheme: str, dtype: str, size: float) -> tuple[float, float]:
    """Of positions of this size, and what a scheme that reads rates off its rounded history makes of it."""
    history = scheme.startswith("legendre")  # and some amplify that
    ulp = (400 if history else 4) * np.finfo(dtype).eps * size
    return ulp, ulp / DT if history else 0.0


QUICK = {
    ("radau2", "lm", "dense", "float32"),
    ("dirk3", "lm", "dense", "float32"),
    ("legendre3", "lm", "dense", "float64"),
}
SLOW = {("dirk2", "lm", "tree", "float64")}


@pytest.mark.parametrize("scheme, solver, linear, dtype", grid(QUICK, SLOW))
def test_points_and_beads_on_a_slide(scheme, solver, linear, dtype):
    models = [case.model(dtype) for case in SLIDES.values()]
    states = [pbad.make_state(m, [case.x], [case.v]) for m, case in zip(models, SLIDES.values())]
    traj, info = many(options(scheme, solver, linear))(stacked(models), stacked(states))
    t = DT * np.arange(1, N + 1)
    for lane, (name, case) in enumerate(SLIDES.items()):
        status = np.asarray(info.status[lane])
        assert not status.any(), (name, int(status.argmax()), pbad.Status(int(status[status.argmax()])).name)
        assert np.isfinite(info.residual[lane]).all() and np.all(info.residual[lane] < 1e-3), name
        x, v = case.at(t)
        share = bound(scheme, solver, dtype)
        ulp, read_off = rounding(scheme, dtype, np.abs(x).max())
        moves, speed = np.ptp(np.append(x, case.x)), np.abs(np.append(v, case.v)).max()
        still = 1e-6 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(traj.q[lane, :, 0], x, rtol=0, atol=share * moves + N * ulp + still, err_msg=name)
        np.testing.assert_allclose(
            traj.v[lane, :, 0],
            v,
            rtol=0,
            atol=share * speed * 2 + N * ulp * np.sqrt(case.k / case.m) + read_off + N * still,
            err_msg=name,
        )


# --- one hinge -------------------------------------------------------------------------------------------


class Hinge:
    """J q'' = −m g l sin q: a rod, a point on a string or a rotor, its armature in J."""

    def __init__(self, q=0.0, v=0.0, m=1.0, l=0.0, inertia=0.0, armature=0.0, anchor=0.0):
        self.q, self.v, self.m, self.l, self.inertia, self.armature, self.anchor = q, v, m, l, inertia, armature, anchor

    def model(self, dtype):
        """Its centre of mass hangs by l, under a hinge that is `anchor` above its frame."""
        hinge = pbad.Joint("hinge", (1, 0, 0), anchor=(0, 0, self.anchor), armature=self.armature)
        at = (0, 0, self.anchor - self.l)
        body = pbad.Body("b", self.m, at, self.inertia * np.diag([1, 1, 0]), joints=[hinge])
        return pbad.build_model([body], dtype=dtype)

    def at(self):
        J = self.m * self.l**2 + self.inertia + self.armature
        return reference(
            lambda y: np.array([y[1], -self.m * G * self.l / J * np.sin(y[0])]), np.array([self.q, self.v])
        )


HINGES = {
    "a rod": Hinge(q=1.0, v=0.5, l=0.5, inertia=1 / 12),
    "a rod at rest": Hinge(l=0.5, inertia=1 / 12),
    "a point on a string": Hinge(q=1.5, l=1.0),
    "whose frame is the point": Hinge(q=1.5, l=1.0, anchor=1.0),
    "a rotor's armature": Hinge(q=1.0, v=5.0, armature=0.1),
    "a rotor at rest": Hinge(q=1.0, armature=0.1),
    "a small one": Hinge(q=0.4, l=0.06, m=0.01, inertia=1e-6),
    "geared": Hinge(q=1.0, l=0.5, armature=100.0),
}


QUICK_HINGES = {("radau2", "lm", "dense", "float32"), ("dirk3", "lm", "dense", "float64")}
SLOW_HINGES = {
    ("radau1", "lbfgs", "dense", "float64"),
    ("legendre3", "lm", "dense", "float64"),
    ("variational", "lm", "dense", "float64"),
}


@pytest.mark.parametrize("scheme, solver, linear, dtype", grid(QUICK_HINGES, SLOW_HINGES))
def test_rods_and_rotors_on_a_hinge(scheme, solver, linear, dtype):
    models = [case.model(dtype) for case in HINGES.values()]
    states = [pbad.make_state(m, [case.q], [case.v]) for m, case in zip(models, HINGES.values())]
    traj, info = many(options(scheme, solver, linear))(stacked(models), stacked(states))
    for lane, (name, case) in enumerate(HINGES.items()):
        assert not np.asarray(info.status[lane]).any(), (name, np.asarray(info.status[lane]))
        want, share = case.at(), 5 * bound(scheme, solver, dtype)
        for got, y, known in zip((traj.q, traj.v), want.T, rounding(scheme, dtype, np.abs(want[:, 0]).max())):
            atol = share * max(np.abs(y).max(), 1e-3) + known
            np.testing.assert_allclose(got[lane, :, 0], y, rtol=0, atol=atol, err_msg=name)


# --- where there is no root ------------------------------------------------------------------------------


def largest_turn_of_legendre3() -> float:
    """The fold of its equations for what turns freely about an axis, by ω dt = a; nodes −½, 0, ½, 1.

    At ½ they say that the end turns twice as far as the middle, y; at 1 then sin(a/2 + 2y) = 4 sin 2y − 5 sin y.
    """
    y = np.linspace(0, 1, 1_000_001)
    right = 4 * np.sin(2 * y) - 5 * np.sin(y)
    return float(np.max(2 * (np.arcsin(np.minimum(right, 1.0)) - 2 * y)[: np.argmax(right >= 1) or None]))


@pytest.mark.slow
def test_legendre3_has_no_root_beyond_its_fold():
    """So a step that fails there is no failure of the solver; in parts it is made."""
    fold, model = largest_turn_of_legendre3(), Hinge(inertia=0.1).model("float64")
    assert fold == pytest.approx(0.768, abs=1e-3)
    states = stacked([pbad.make_state(model, [0.0], [share * fold / 0.1]) for share in (0.5, 0.99, 1.01, 1.3)])
    for on_failure, good in (("freeze", [True, True, False, False]), ("substep", [True] * 4)):
        step = pbad.make_step(pbad.Options(0.1, "legendre3", on_failure=on_failure))
        _, info = jax.jit(jax.vmap(lambda s, step=step: step(model, s)))(states)
        assert (np.asarray(info.status) == pbad.Status.CONVERGED).tolist() == good


# --- none ------------------------------------------------------------------------------------------------


FIXED = pbad.Body("base", 2.0, position=(0, 0, 1), inertia=0.1 * np.eye(3))


def test_a_model_without_degrees_of_freedom_waits():
    """Its clock goes on and it keeps its energy; nothing is solved."""
    model = pbad.build_model([FIXED])
    state = pbad.make_state(model)
    assert float(pbad.potential_energy(model, state)) == pytest.approx(2 * G)
    traj, info = pbad.rollout(model, state, n_steps=3, options=options("radau2"))
    assert info.ok.all() and traj.q.shape == (3, 0)
    np.testing.assert_allclose(traj.time, DT * np.arange(1, 4))
    assert pbad.newton_euler.acceleration(model, state).shape == (0,)


@pytest.mark.slow
def test_a_model_without_degrees_of_freedom_waits_in_every_way():
    model = pbad.build_model([FIXED])
    state = pbad.make_state(model)
    for how in (
        options("dirk3"),
        options("legendre3"),
        options("variational"),
        options("radau1", "lbfgs"),
        pbad.Options(DT, "radau1", linear_solver="tree", on_failure="substep", account=True, condition=True),
    ):
        traj, info = pbad.rollout(model, state, n_steps=3, options=how)
        assert info.ok.all() and traj.q.shape == (3, 0)
    lanes = jax.vmap(lambda t: dataclasses.replace(state, time=t))(jnp.arange(3.0))
    traj, info = pbad.rollout_batch(model, lanes, n_steps=2, options=options("radau2"))
    assert info.ok.all() and traj.v.shape == (3, 2, 0)
    np.testing.assert_allclose(traj.time[:, -1], np.arange(3) + 2 * DT)
    assert pbad.check_gradients(model, state, n_steps=2, options=options("radau2")).ok
    assert pbad.linearize(model, state, options=options("radau2")).A.shape == (0, 0)
    assert pbad.newton_euler.rollout(model, state, n_steps=2, dt=DT)[1].ok.all()
    sites = pbad.with_sites(model, {"p": pbad.Site("base", (0, 0, 1.0))})
    seen = pbad.with_sensors(sites, {"a": pbad.Sensor("accelerometer", "p")})
    np.testing.assert_allclose(pbad.read_sensors(seen, pbad.make_state(seen))["a"], [0, 0, G])
