"""Every scheme has its order with every smooth force that depends on velocities, whatever it joins."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from force_cases import creature, random_point
from test_force_laws import made

import pbad_jax as pbad
from pbad_jax import forces
from pbad_jax.kinematics import manifold

pytestmark = pytest.mark.float64

SECONDS = 0.2
ARMATURE = 0.3  # kg m², kg
FINE = 160  # steps of radau3, whose error is then far below that of all others
# scheme -> steps, enough for the asymptote and off rounding
STEPS = {"radau2": 20, "radau3": 5, "dirk2": 40, "dirk3": 40, "dirk4": 20, "variational": 40}
# what each program has: forces that act on one link or one degree of freedom, that join joints, that join links
ALONE = [
    *("JointDamping", "JointActuation", "PDDrive, all", "JointPolynomial", "SiteActuation"),
    *("Drag", "Fluid", "InertiaBoxes, wind", "connect, world", "weld, world"),
]
JOINTS = ["VectorActuation", "TendonCoupling", "TendonActuation", "TendonSpring, elastic"]
LINKS = ["SpatialTendonSpring, elastic", "SpatialTendonActuation", "SpatialTendonCoupling", "connect", "weld", "Magnet"]
GROUPS = {"alone": ALONE, "joints": JOINTS, "links": LINKS}


@functools.partial(jax.tree_util.register_dataclass, data_fields=["force", "weight"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Weighted:
    """So much of a force."""

    force: Any
    weight: Any

    def load(self, model, at) -> forces.Load:
        load, w = self.force.load(model, at), self.weight

        def times(x):
            return None if x is None else w * x

        def point(p: forces.PointForces) -> forces.PointForces:
            return dataclasses.replace(p, **{k: times(getattr(p, k)) for k in ("force", "df_dP", "df_dV", "by_normal")})

        slopes = {k: times(getattr(load, k)) for k in ("field", "tau", "dtau_dq", "dtau_dv")}
        return load._replace(**slopes, point_forces=tuple(map(point, load.point_forces)))


def ends(group: str, scheme: str, n: int):
    """q and v after SECONDS in n steps with each force of a group, and how many steps failed; a lane each."""
    at = random_point(0)
    model = dataclasses.replace(
        creature(), armature=jnp.full(creature().nv, ARMATURE)
    )  # or a damper is stiff for the shin
    return rolled(model, tuple(map(made, GROUPS[group])), at.q, at.v, at.control, scheme, n)


@functools.partial(jax.jit, static_argnames="scheme")
def rolled(model, some: tuple, q, v, control, scheme: str, n: jax.Array):
    """The same of that model with each of some forces."""
    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme, tolerance=1e-13))

    def lane(weights: jax.Array):
        own = dataclasses.replace(model, forces=tuple(map(Weighted, some, weights)))

        def body(_, carry):
            state, failed = carry
            state, info = step(own, state, control, SECONDS / n)
            return state, failed + ~info.ok

        state = dataclasses.replace(pbad.make_state(creature()), q=q, v=v, history=q)
        state, failed = jax.lax.fori_loop(0, n, body, (state, jnp.zeros((), int)))
        return state.q, state.v, failed

    return jax.vmap(lane)(jnp.eye(len(some)))


@functools.cache
def truth(group: str):
    return ends(group, "radau3", FINE)


CASES = [(group, scheme) for scheme in STEPS for group in GROUPS]


def errors(group: str, scheme: str, n: int) -> np.ndarray:
    """Largest error of q and of v with every force, (2, forces)."""
    (q, v, failed), (q_1, v_1, failed_1) = ends(group, scheme, n), truth(group)
    assert not failed.any() and not failed_1.any()
    off = jax.vmap(functools.partial(manifold.difference, creature()))(q_1, q)
    return np.stack([np.abs(off).max(axis=1), np.abs(v - v_1).max(axis=1)])


@pytest.mark.thorough
@pytest.mark.parametrize("group, scheme", CASES)
def test_order_with_every_force(group, scheme):
    n = STEPS[scheme]
    found = [errors(group, scheme, k) for k in (n, 2 * n)]
    orders, wanted = np.log2(found[0] / found[1]), pbad.Options(dt=1.0, scheme=scheme).scheme.order
    for k, name in enumerate(GROUPS[group]):
        print(scheme, name, "orders", orders[:, k], "errors", found[1][:, k])
    smooth = [3 if "InertiaBoxes" in name else 9 for name in GROUPS[group]]  # v|v| has a kink where an axis turns round
    assert np.all(orders > np.minimum(wanted, smooth) - 0.25), dict(zip(GROUPS[group], orders.T))


def rods(damping: float) -> tuple[pbad.Model, pbad.State]:
    """Two pendulums, their ends joined by a damper and nothing else that depends on velocities."""
    I = np.diag([0.084, 0.084, 0.002])
    bodies = [
        pbad.Body(n, 1.0, (0, 0, -0.5), I, position=(0, k, 0), joints=[pbad.Joint("hinge", (1, 0, 0), name=n)])
        for k, n in enumerate("ab")
    ]
    model = pbad.build_model(bodies)
    tips = {"point": (0, 0, -1), "other_point": (0, 0, -1)}
    held = forces.connect(model, "a", "b", **tips, stiffness=30.0, damping=damping)
    model = pbad.with_forces(model, held)
    return model, pbad.make_state(model, [0.6, -0.4], [3.0, -5.0])


@functools.partial(jax.jit, static_argnames="scheme")
def pulled(model, state, scheme: str, seconds, n):
    """q, v after n steps, and whether none failed."""
    step = pbad.make_step(pbad.Options(dt=1.0, scheme=scheme, tolerance=1e-13))

    def body(_, carry):
        state, good = carry
        state, info = step(model, state, None, seconds / n)
        return state, good & info.ok

    state, good = jax.lax.fori_loop(0, n, body, (state, jnp.ones((), bool)))
    return jnp.concatenate([state.q, state.v]), good


@pytest.mark.parametrize("scheme", ["dirk3", "variational", pytest.param("dirk4", marks=pytest.mark.slow)])
def test_a_damper_that_joins_two_links(scheme):
    """Alone it costs no order; and in dirk, whose stages are implicit, it may be as stiff as a rod."""
    model, state = rods(3.0)
    fine = pulled(model, state, scheme, 0.4, 2560)[0]
    ends = [pulled(model, state, scheme, 0.4, n) for n in (80, 160)]
    e = [np.abs(end - fine).max() for end, _ in ends]
    assert all(good for _, good in ends)
    assert np.log2(e[0] / e[1]) > pbad.Options(dt=1.0, scheme=scheme).scheme.order - 0.2, e
    if scheme != "variational":
        end, good = pulled(*rods(1e6), scheme, 1.0, 100)
        assert good and np.abs(end[2:]).max() < 5 and abs(end[2] - end[3]) < 1e-2, end
