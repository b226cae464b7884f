"""The engines that are compared, each a worker for a process of its own (`remotes.Remote`): MuJoCo C, JAX, ours.

All are made from a name and a System. `path` gives the states a run passes through; `run` the seconds of a whole run of
one lane, compiled once for all step sizes; `time` those of a batch as a user would write it.
"""

import functools
import importlib
import os
import re
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rivals
from systems import System

import pbad_jax as pbad
from pbad_jax.dynamics import newton_euler
from pbad_jax.rollouts import explicit

SAMPLES, PATIENCE = 200, 3.0  # moments of a path; s for one run of a rival in JAX
COMPILED = ("mjx", "brax", "jaxsim")


def worker_of(name: str):
    library = name.split()[0]
    if library in COMPILED:
        return InJax
    return {"mujoco": Mujoco, "pinocchio": Pinocchio}.get(library, Ours)


def strides(dt: float, span: float, samples: int) -> tuple[int, int]:
    """How many samples a path has, and the steps between them."""
    steps = round(span / dt)
    each = max(1, steps // samples)
    return steps // each, each


def stacked(states: list[tuple], **more) -> dict:
    return {"q": np.stack([np.asarray(s[0]) for s in states]), "v": np.stack([np.asarray(s[1]) for s in states])} | more


class Mujoco:
    """MuJoCo C, its batches by its own threads."""

    def __init__(self, name: str, system: System):
        mujoco: Any = importlib.import_module("mujoco")
        mujoco.set_mju_user_warning(lambda text: None)  # of what is not finite: the states tell
        self.mujoco, self.model = mujoco, mujoco.MjModel.from_xml_string(system.xml)
        self.model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{name.split()[1].upper()}")
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET

    def at(self, q, v, dt: float):
        m, d = self.model, self.mujoco.MjData(self.model)
        m.opt.timestep, d.qpos[:], d.qvel[:] = dt, q, v
        return m, d

    def compile(self, lanes: int, dt: float) -> dict:
        return {}

    def path(self, q, v, dt: float, span: float, samples: int = SAMPLES, patience: float = np.inf) -> dict:
        (m, d), (count, each), out = self.at(q, v, dt), strides(dt, span, samples), []
        began = time.perf_counter()
        while len(out) < count and time.perf_counter() - began < patience:
            self.mujoco.mj_step(m, d, nstep=each)
            out.append((d.qpos.copy(), d.qvel.copy()))
        return stacked(out, finished=len(out) == count)

    def run(self, q, v, dt: float, span: float) -> dict:
        m, d = self.at(q, v, dt)
        began = time.perf_counter()
        self.mujoco.mj_step(m, d, nstep=round(span / dt))
        return {"s": time.perf_counter() - began}

    def energies(self, q, v) -> np.ndarray:
        """Of states (T,nq), (T,nv), in J; NaN where they are not finite."""
        m, d = self.model, self.mujoco.MjData(self.model)
        m.opt.enableflags |= self.mujoco.mjtEnableBit.mjENBL_ENERGY
        out = np.full(len(q), np.nan)
        for i in np.flatnonzero(np.isfinite(q).all(1) & np.isfinite(v).all(1)):
            d.qpos[:], d.qvel[:] = q[i], v[i]
            self.mujoco.mj_forward(m, d)
            out[i] = d.energy.sum()
        return out

    def acceleration(self, q, v) -> dict:
        m, d = self.at(q, v, 0.001)
        self.mujoco.mj_forward(m, d)
        return {"acceleration": d.qacc.copy()}

    def apart(self, q, others) -> np.ndarray:
        """The largest entry of q ⊖ other of every state, rad and m."""
        out, d = np.zeros(len(q)), np.zeros(self.model.nv)
        for i, (a, b) in enumerate(zip(q, others)):
            self.mujoco.mj_differentiatePos(self.model, d, 1.0, b, a)
            out[i] = np.max(np.abs(d))
        return out

    def time(self, q, v, dt: float, span: float, patience: float = np.inf) -> dict:
        rollout: Any = importlib.import_module("mujoco.rollout")
        threads = min(2, len(q))
        m, d = self.model, self.mujoco.MjData(self.model)
        m.opt.timestep = dt
        what = self.mujoco.mjtState.mjSTATE_FULLPHYSICS
        starts = np.zeros((len(q), self.mujoco.mj_stateSize(m, what)))
        for d.qpos[:], d.qvel[:], row in zip(q, v, starts):
            self.mujoco.mj_getState(m, d, row, what)
        datas, steps = [self.mujoco.MjData(m) for _ in range(threads)], round(span / dt)
        with rollout.Rollout(nthread=threads) as pool:
            began = time.perf_counter()
            states, _ = pool.rollout(m, datas, starts, None, nstep=steps)
            s = time.perf_counter() - began
        end = states[:, -1, 1 : 1 + m.nq]  # after the time
        return {
            "s": s,
            "simulated_s": steps * dt * len(q),
            "finite": bool(np.isfinite(states[:, -1]).all()),
            "end": end,
        }


class Pinocchio:
    """ABA and RK4, looped in Python; joint springs and drives are added as torques. Hinges only."""

    def __init__(self, name: str, system: System):
        pin: Any = importlib.import_module("pinocchio")
        self.pin, self.model = pin, tree_of_hinges(pin, Mujoco("mujoco Euler", system).model)
        self.data, zero = self.model.createData(), np.zeros(self.model.nv)
        self.stiffness = zero if system.stiffness is None else system.stiffness
        self.damping = zero if system.damping is None else system.damping

    def compile(self, lanes: int, dt: float) -> dict:
        return {}

    def rate(self, q, v) -> np.ndarray:
        return self.pin.aba(self.model, self.data, q, v, -self.stiffness * q - self.damping * v)

    def acceleration(self, q, v) -> dict:
        return {"acceleration": self.rate(q, v).copy()}

    def advance(self, q, v, dt: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        for _ in range(steps):
            a = self.rate(q, v)
            v2 = v + dt / 2 * a
            b = self.rate(q + dt / 2 * v, v2)
            v3 = v + dt / 2 * b
            c = self.rate(q + dt / 2 * v2, v3)
            v4 = v + dt * c
            d = self.rate(q + dt * v3, v4)
            q, v = q + dt / 6 * (v + 2 * v2 + 2 * v3 + v4), v + dt / 6 * (a + 2 * b + 2 * c + d)
        return q, v

    def path(self, q, v, dt: float, span: float, samples: int = SAMPLES, patience: float = np.inf) -> dict:
        (count, each), out = strides(dt, span, samples), []
        began = time.perf_counter()
        while len(out) < count and time.perf_counter() - began < patience:
            q, v = self.advance(q, v, dt, each)
            out.append((q, v))
        return stacked(out, finished=len(out) == count)

    def run(self, q, v, dt: float, span: float) -> dict:
        """And the seconds that its calls of ABA alone would take."""
        steps, none = round(span / dt), np.zeros(len(v))
        began = time.perf_counter()
        self.advance(q, v, dt, steps)
        s, began = time.perf_counter() - began, time.perf_counter()
        for _ in range(4 * steps):
            self.pin.aba(self.model, self.data, q, v, none)
        return {"s": s, "s_aba": time.perf_counter() - began}


def tree_of_hinges(pin, m):
    """Pinocchio's model of a compiled MuJoCo model whose bodies have one hinge or two, at their origins."""

    def rotation(quaternion) -> np.ndarray:
        return pin.Quaternion(*quaternion).toRotationMatrix()

    model, joints = pin.Model(), [0]
    model.gravity.linear = m.opt.gravity.copy()
    for b in range(1, m.nbody):
        axes = [m.jnt_axis[m.body_jntadr[b] + i].copy() for i in range(m.body_jntnum[b])]
        kind = pin.JointModelUniversal(*axes) if len(axes) == 2 else pin.JointModelRevoluteUnaligned(*axes)
        place = pin.SE3(rotation(m.body_quat[b]), m.body_pos[b].copy())
        joints.append(model.addJoint(joints[m.body_parentid[b]], kind, place, f"joint{b}"))
        R = rotation(m.body_iquat[b])
        inertia = pin.Inertia(m.body_mass[b], m.body_ipos[b].copy(), R @ np.diag(m.body_inertia[b]) @ R.T)
        model.appendBodyToJoint(joints[b], inertia, pin.SE3.Identity())
    return model


class InJax:
    """A rival in JAX: the model closed over, as its users do; the step size and the number of steps are arguments."""

    def __init__(self, name: str, system: System):
        rivals.quiet()
        library, integrator = name.split()
        if library == "jaxsim":
            if not system.links:
                raise ValueError("jaxsim is given the chain without springs only")
            self.engine = rivals.jaxsim(system.links, integrator)
        elif library == "brax":
            self.engine = rivals.brax(re.sub(r'integrator="\w+"', 'integrator="Euler"', system.xml))
        else:
            mujoco: Any = importlib.import_module("mujoco")
            kind = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
            self.engine = rivals.mjx(system.xml, integrator=kind)
        self.programs: dict[int, Any] = {}
        self.start = jax.jit(jax.vmap(lambda q, v: self.engine.start(self.engine.model, q, v)))

    def compile(self, lanes: int, dt: float) -> dict:
        e = self.engine

        def whole(states, dt, steps):
            return jax.lax.fori_loop(0, steps, lambda _, s: jax.vmap(lambda x: e.step(e.model, x, dt))(s), states)

        began = time.perf_counter()
        q, v = (jnp.zeros((lanes, n)) for n in (e.nq, e.dofs))
        lowered = jax.jit(whole).lower(self.start(q, v), jnp.asarray(0.001), 1)
        self.programs[lanes] = lowered.compile()
        return {"compile_s": round(time.perf_counter() - began, 1)}

    def path(self, q, v, dt: float, span: float, samples: int = SAMPLES, patience: float = 5 * PATIENCE) -> dict:
        e, s, out = self.engine, self.start(q[None], v[None]), []
        count, each = strides(dt, span, samples)
        began = time.perf_counter()
        while len(out) < count and time.perf_counter() - began < patience:
            s = self.programs[1](s, jnp.asarray(dt), each)
            one = jax.tree.map(lambda x: x[0], s)
            out.append((np.asarray(e.q(one)), np.asarray(e.v(one))))
        return stacked(out, finished=len(out) == count)

    def run(self, q, v, dt: float, span: float) -> dict:
        s = self.start(q[None], v[None])
        began = time.perf_counter()
        jax.block_until_ready(self.programs[1](s, jnp.asarray(dt), round(span / dt)))
        return {"s": time.perf_counter() - began}

    def time(self, q, v, dt: float, span: float, patience: float = PATIENCE) -> dict:
        """Its cost does not depend on the state, so a part of the span will do where it takes too long."""
        program, states = self.programs[len(q)], self.start(q, v)

        def run(steps: int):
            began = time.perf_counter()
            end = jax.block_until_ready(program(states, jnp.asarray(dt), steps))
            return time.perf_counter() - began, end

        s, steps = run(1)[0], round(span / dt)
        if patience < np.inf:
            steps = int(np.clip(patience / s, 1, steps))
        s, end = run(steps)
        q = np.asarray(jax.vmap(self.engine.q)(end))
        return {"s": s, "simulated_s": steps * dt * len(q), "finite": bool(np.isfinite(q).all()), "end": q}


class Ours:
    """The library: rollout for one lane, rollout_batch for more; its explicit baseline. Whole trajectories are kept.

    Names are a scheme, a scheme and "substep" (see Options.on_failure), or "newton_euler" and a method.
    """

    def __init__(self, name: str, system: System):
        jax.config.update("jax_enable_x64", True)
        if "PJRT_NPROC" not in os.environ:
            jax.config.update("jax_num_cpu_devices", os.cpu_count())
        warnings.filterwarnings("ignore")
        self.scheme, _, self.method = name.partition(" ")
        self.model = pbad.chain(system.links) if system.links else pbad.load(system.xml, unsupported="warn")[0]
        self.options = functools.partial(pbad.Options, scheme=self.scheme, on_failure=self.method or "freeze")
        if self.scheme == "newton_euler":
            step = explicit.make_step(0.001, self.method)
        else:
            step = pbad.make_step(self.options(0.001))

        def advance(s, dt, steps):
            def one(_, c):
                s, bad = c
                s, info = step(self.model, s, None, dt)
                return s, bad + ~info.ok

            return jax.lax.fori_loop(0, steps, one, (s, 0))

        self.advance = jax.jit(advance)
        self.states = jax.jit(jax.vmap(lambda q, v: pbad.make_state(self.model, q, v)))

    def call(self, lanes: int, states, dt: float, steps: int):
        if lanes > 1 and lanes % jax.device_count() == 0:
            states = pbad.spread(states)
        alone = jax.tree.map(lambda x: x[0], states) if lanes == 1 else None
        if self.scheme == "newton_euler":
            if alone is None:
                return self.many(states, dt, steps)
            return explicit.rollout(self.model, alone, None, steps, dt=dt, method=self.method)
        options = self.options(dt)
        if alone is None:
            return pbad.rollout_batch(self.model, states, None, steps, options)
        return pbad.rollout(self.model, alone, None, steps, options, progress=False)

    @functools.cached_property
    def many(self):
        """The baseline's rollouts of all lanes side by side."""

        def whole(states, dt, steps):
            return jax.vmap(lambda s: explicit.rollout(self.model, s, None, steps, dt=dt, method=self.method))(states)

        return jax.jit(whole, static_argnums=(1, 2))

    def state(self, q, v) -> pbad.State:
        return pbad.make_state(self.model, *(None if x is None else jnp.asarray(x) for x in (q, v)))

    def compile(self, lanes: int, dt: float) -> dict:
        """What `path` and `run` need; `time` compiles as it goes."""
        began = time.perf_counter()
        if lanes == 1:
            self.advance(self.state(None, None), dt, 0)
        return {"compile_s": round(time.perf_counter() - began, 1)} if lanes == 1 else {}

    def path(self, q, v, dt: float, span: float, samples: int = SAMPLES, patience: float = np.inf) -> dict:
        s, out, failed = self.state(q, v), [], 0
        count, each = strides(dt, span, samples)
        self.advance(s, dt, 0)  # compiles
        began = time.perf_counter()
        while len(out) < count and time.perf_counter() - began < patience:
            s, bad = self.advance(s, dt, each)
            failed += int(bad)
            out.append((np.asarray(s.q), np.asarray(s.v)))
        return stacked(out, finished=len(out) == count, failed_steps=failed)

    def run(self, q, v, dt: float, span: float) -> dict:
        s = self.state(q, v)
        began = time.perf_counter()
        _, failed = jax.block_until_ready(self.advance(s, dt, round(span / dt)))
        return {"s": time.perf_counter() - began, "failed_steps": int(failed)}

    def acceleration(self, q, v) -> dict:
        return {"acceleration": np.asarray(jax.jit(newton_euler.acceleration)(self.model, self.state(q, v)))}

    def time(self, q, v, dt: float, span: float, patience: float = np.inf) -> dict:
        states, steps = self.states(jnp.asarray(q), jnp.asarray(v)), round(span / dt)
        began = time.perf_counter()
        trajectory, info = jax.block_until_ready(self.call(len(q), states, dt, steps))
        s, path = time.perf_counter() - began, np.asarray(trajectory.q)
        return {
            "s": s,
            "simulated_s": steps * dt * len(q),
            "finite": bool(np.isfinite(path).all()),
            "failed_steps": int(np.sum(np.asarray(info.status) != 0)),
            "iterations": round(float(np.mean(np.asarray(info.iterations))), 2),
            "end": path[..., -1, :].reshape(len(q), -1),
        }
