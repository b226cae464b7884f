"""A creature for forces to act on, and what judges them: autodiff, differences, potentials."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import DTYPE, FLOAT32, random_inertia

import pbad_jax as pbad
from pbad_jax import Actuator, Body, Geom, Joint, forces
from pbad_jax.dynamics.instant import generalised_force
from pbad_jax.kinematics import manifold, transforms
from pbad_jax.laws.instant import Instant, Start
from pbad_jax.laws.load import field_of

INF = float("inf")


@functools.cache
def creature() -> pbad.Model:
    """All kinds of joints, a limited and a free ball, one-sided ranges, two roots; nv = 12, 8 links."""
    rng = np.random.default_rng(1)

    def body(name, parent, joint, mass):
        com = rng.normal(size=3) * 0.2
        place = (0.0, 0.0, 0.0) if parent is None else (0.5, 0.25, -0.5)
        geom = Geom("capsule", (0.1, 0.4), (0.1, 0, 0.2), rng.normal(size=4))
        return Body(name, mass, com, random_inertia(rng, mass), parent, place, joints=[joint], geoms=[geom])

    feel = {"stiffness": 2.0, "damping": 0.7, "friction_loss": 0.4, "stick_speed": 0.3}
    bodies = [
        body("trunk", None, Joint("free", name="float", **feel), 2.0),
        body("thigh", "trunk", Joint("ball", name="hip", anchor=(0.1, 0.2, 0.3), range=(0, 0.5), **feel), 1.0),
        body("shin", "thigh", Joint("hinge", (0.6, 0, 0.8), name="knee", range=(-0.25, 0.5), **feel), 0.5),
        body("cart", None, Joint("slide", (0, 0.6, 0.8), name="rail", range=(-INF, 0.25), **feel), 1.5),
        body("wheel", "cart", Joint("hinge", (1, 0, 0), name="hub"), 0.3),
    ]
    drives = [
        Actuator("knee", gear=1.5, gain=2.0, bias=(0.1, -1.5, -0.4), control_range=(-1, 1)),
        Actuator("rail", gear=0.5, gain=3.0, bias=(0.0, -0.5, -0.2), force_range=(-0.5, 0.5)),
    ]
    return pbad.build_model(bodies, actuators=drives, gravity=(1.0, -2.0, -9.0), dtype=DTYPE)


def leaf(x):
    return jnp.asarray(np.asarray(x, float), DTYPE)


@jax.jit
def instant(model, q, v, control, q_0, v_0) -> Instant:
    """At (q, v) in a step from (q_0, v_0) of a half second."""
    f, f_0 = transforms.frames(model, q), transforms.frames(model, q_0)
    start = Start(q_0, v_0, f_0.T, transforms.velocity_field(model, f_0, v_0))
    half = jnp.asarray(0.5, q.dtype)
    return Instant(q, v, f.T, transforms.velocity_field(model, f, v), half, control, start, half)


retract = jax.jit(manifold.retract)


def random_point(seed: int) -> Instant:
    """A state within about 1 rad and m of q0, and another before."""
    model, rng = creature(), np.random.default_rng([seed, 5])

    def some(size):
        return leaf(rng.normal(size=model.nv) * size)

    q, q_0 = (retract(model, model.q0, some(0.7)) for _ in range(2))
    return instant(model, q, some(1.0), leaf(rng.normal(size=model.nu)), q_0, some(1.0))


def still(q) -> Instant:
    """At rest at q, since the start of the step."""
    model = creature()
    zero = jnp.zeros(model.nv, DTYPE)
    return instant(model, leaf(q), zero, jnp.zeros(model.nu, DTYPE), leaf(q), zero)


def moved(model, at: Instant, x: jax.Array) -> Instant:
    """T + x_T, V + x_V, q ⊕ x_q, v + x_v for x (24 N + 2 nv,)."""
    n = at.T.size
    T, V, delta, w = jnp.split(x, [n, 2 * n, 2 * n + model.nv])
    T, V = at.T + T.reshape(at.T.shape), at.V + V.reshape(at.V.shape)
    return dataclasses.replace(at, T=T, V=V, q=manifold.retract(model, at.q, delta), v=at.v + w)


def acts(load: forces.Load) -> dict[str, jax.Array]:
    """What a Load does, without its slopes."""
    parts = {} if load.field is None else {"field": load.field}
    parts |= {} if load.tau is None else {"tau": load.tau}
    for i, p in enumerate(load.point_forces):
        parts |= {f"force {i}": p.force, f"u {i}": p.u}
    return parts


def energy_of(force):
    """What gives its potential, or as a drive that with its control held; None: nothing."""
    return getattr(force, "potential", None) or getattr(force, "held_potential", None)


@jax.jit
def judged(model, force, at: Instant) -> dict[str, Any]:
    """The Load, Jacobians of what it does by (T, V, q, v), differences, its potential, and gradients."""
    zero = jnp.zeros(2 * at.T.size + 2 * model.nv, at.T.dtype)

    def does(x):
        return acts(force.load(model, moved(model, at, x)))

    def total(force, x):
        return sum(jnp.sum(y) for y in acts(force.load(model, moved(model, at, x))).values())

    def energy(force, x):
        return energy_of(force)(model, moved(model, at, x))

    load = force.load(model, at)
    out = {"load": load, "autodiff": jax.jacfwd(does)(zero), "gradients": jax.grad(total, (0, 1))(force, zero)}
    out["field"] = field_of(load, model.topology.n_links)
    if not FLOAT32:
        h = 1e-3
        near = jax.vmap(jax.vmap(does))(jnp.asarray([-2, -1, 1, 2])[:, None, None] * h * jnp.eye(len(zero))[None])
        out["differences"] = {
            k: jnp.moveaxis(y[0] - 8 * y[1] + 8 * y[2] - y[3], 0, -1) / (12 * h) for k, y in near.items()
        }
    if energy_of(force) and energy_of(force)(model, at) is not None:
        out["potential"], out["slopes"] = jax.value_and_grad(energy, (0, 1))(force, zero)
    return out


@jax.jit
def generalised(model, q, field, tau, slope):
    """The generalised force, and minus the gradient along q ⊕ δ of a potential with that slope by (T, V, q, v)."""
    load = forces.Load(field=field, tau=tau)
    T, _, by_q, _ = jnp.split(slope, np.cumsum([field.size, field.size, model.nv]))
    by_T = jax.jacfwd(lambda delta: transforms.transforms(model, manifold.retract(model, q, delta)).ravel())(
        jnp.zeros_like(tau)
    )
    return generalised_force(model, transforms.frames(model, q), load), -by_q - T @ by_T


def expected(load: forces.Load, links: int) -> dict[str, np.ndarray]:
    """The Jacobians that the slopes of a Load promise; what has no slope does not change."""
    nv = creature().nv

    def wide(slope):
        return np.zeros((nv, nv)) if slope is None else np.diag(slope) if slope.ndim == 1 else np.asarray(slope)

    out = {k: np.zeros((*y.shape, 24 * links + 2 * nv)) for k, y in acts(load).items()}
    if load.tau is not None:
        out["tau"][:, 24 * links :] = np.hstack([wide(load.dtau_dq), wide(load.dtau_dv)])
    for i, p in enumerate(load.point_forces):
        where = np.eye(links)[p.point_links]  # (c,n,N)
        for k, slope in enumerate((p.df_dP, p.df_dV)):
            if slope is not None:  # ∂f/∂T^l_bj = ∂f/∂P_mb [m on l] u_mj
                J = np.einsum("cnamb,cml,cmj->cnalbj", slope, where, p.u)
                out[f"force {i}"][..., 12 * links * k : 12 * links * (k + 1)] = J.reshape(*p.force.shape, 12 * links)
        for k in range(2 if p.normal is not None else 0):  # ∂f/∂N ∂N/∂T^l_bj
            N, slope = p.normal, (p.normal.by_P, p.normal.by_V)[k]
            J = np.einsum("cna,cmb,cml,cmj->cnalbj", p.by_normal, slope, np.eye(links)[N.point_links], N.u)
            out[f"force {i}"][..., 12 * links * k : 12 * links * (k + 1)] += J.reshape(*p.force.shape, 12 * links)
    return out


def blocks(J: np.ndarray, links: int) -> dict[str, np.ndarray]:
    """The parts of a Jacobian by T, V, q and v."""
    nv = creature().nv
    edges = np.cumsum([12 * links, 12 * links, nv])
    return dict(zip("TVqv", np.split(np.asarray(J), edges, axis=-1)))


def assert_finite(out, what: str) -> None:
    for path, x in jax.tree_util.tree_leaves_with_path(out):
        assert np.all(np.isfinite(x)), f"{what}: {jax.tree_util.keystr(path)}"
