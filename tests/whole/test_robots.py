"""Real robots: the URDFs of example-robot-data, and the MJCF files of gymnasium and dm_control.

A missing wheel fails these tests; it does not skip them.
"""

import importlib
import importlib.util
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from robot_files import example_robots, load_quietly, mjcfs, shadow_hand, urdfs

import pbad_jax as pbad
from pbad_jax.atom import parallel
from pbad_jax.importers import mjcf, nodes, roots, urdf
from pbad_jax.kinematics import transforms

mujoco: Any = importlib.import_module("mujoco")  # neither has types
pin: Any = importlib.import_module("pinocchio")
pytestmark = [pytest.mark.float64, pytest.mark.robots, pytest.mark.usefixtures("no_log_file")]


# what cannot be loaded at all, and why
BROKEN = {"ur3": "has no links"}
# with their meshes: a path that points to the disk of the one who wrote the file
STRAY_PATHS = {"romeo_laas_small": "/usr/Romeo/naoqi-sdk"}


def compiled_by_mujoco(path):
    """MuJoCo's own model of the cleaned URDF."""
    root = nodes.parse(path.read_bytes(), str(path), nodes.Budget())
    prepared = urdf.prepare(root, roots.Roots(path.parent), meshes=False)
    return mujoco.MjModel.from_xml_string(nodes.serialise(prepared.root)[0])


class Arrays:
    """Mass matrix and gravity from a model's arrays, by the plain sums and numpy; nothing is compiled."""

    def __init__(self, model, q):
        t = model.topology
        placement, axis, anchor = (np.asarray(x) for x in (model.placement, model.axis, model.anchor))
        self.M, self.g = np.asarray(model.second_moment), np.asarray(model.gravity)
        n = t.n_links
        self.T, self.moved_by = np.zeros((n, 4, 4)), [[] for _ in range(n)]
        self.screws = np.zeros((model.nv, 4, 4))
        for i, kind in enumerate(t.link_type):
            p = t.link_parent[i]
            L = np.vstack([placement[i], [0, 0, 0, 1]]) @ self._motion(kind, axis[i], anchor[i], q[t.link_q[i] :])
            self.T[i] = L if p < 0 else self.T[p] @ L
            self.moved_by[i] = [] if p < 0 else list(self.moved_by[p])
            for k, s in enumerate(self._local(kind, axis[i], anchor[i])):
                self.screws[t.link_v[i] + k] = self.T[i] @ s @ np.linalg.inv(self.T[i])
                self.moved_by[i].append(t.link_v[i] + k)
        self.link = list(t.body_link)

    @staticmethod
    def _motion(kind, axis, anchor, q):
        J = np.eye(4)
        if kind == "slide":
            J[:3, 3] = q[0] * axis
        elif kind in ("hinge", "ball"):
            p = q[:4] if kind == "ball" else [np.cos(q[0] / 2), *(np.sin(q[0] / 2) * axis)]
            R = np.zeros(9)
            mujoco.mju_quat2Mat(R, np.array(p))
            J[:3, :3] = R.reshape(3, 3)
            J[:3, 3] = anchor - J[:3, :3] @ anchor
        return J

    @staticmethod
    def _local(kind, axis, anchor):
        for a in {"ball": np.eye(3), "fixed": []}.get(kind, [axis]):
            s = np.zeros((4, 4))
            if kind == "slide":
                s[:3, 3] = a
            else:
                s[:3, :3] = [[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]]
                s[:3, 3] = -s[:3, :3] @ anchor
            yield s

    def mass_matrix(self, armature):
        M = np.diag(np.array(armature))
        for T, second, dofs in zip(self.T, self.M, self.moved_by):
            if dofs and second.any():
                s = self.screws[dofs]
                M[np.ix_(dofs, dofs)] += (s @ (T @ second @ T.T)).reshape(len(s), 16) @ s.reshape(len(s), 16).T
        return M

    def gravity_torque(self):
        """∂U/∂q, N m or N."""
        out = np.zeros(len(self.screws))
        for T, second, dofs in zip(self.T, self.M, self.moved_by):
            out[dofs] -= (self.screws[dofs] @ (T @ second[:, 3]))[:, :3] @ self.g
        return out

    def center_of_mass(self):
        return np.einsum("lij,lj->i", self.T, self.M[:, :, 3])[:3] / self.M[:, 3, 3].sum()


def random_q(m, seed=1):
    q = np.array(m.qpos0)
    mujoco.mj_integratePos(m, q, np.random.default_rng(seed).normal(size=m.nv) * 0.6, 1.0)
    return q


def full_mass_matrix(m, d):
    """(nv,nv), by columns: mj_fullM takes other arguments in other versions."""
    M = np.zeros((m.nv, m.nv))
    for row, unit in zip(M, np.eye(m.nv)):
        mujoco.mj_mulM(m, d, row, unit)
    return M


def mujoco_numbers(m, q):
    d = mujoco.MjData(m)
    d.qpos[:] = q
    mujoco.mj_fwdPosition(m, d)
    mass = m.body_mass[1:].sum()
    return {
        "mass": mass,
        "com": (m.body_mass[1:] @ d.xipos[1:]) / mass,
        "position": np.array(d.xpos[1:]),
        "rotation": np.array(d.xmat[1:]).reshape(-1, 3, 3),
        "mass matrix": full_mass_matrix(m, d),
    }


def array_numbers(model, q):
    a = Arrays(model, q)
    T = a.T[a.link]
    return {
        "mass": a.M[:, 3, 3].sum(),
        "com": a.center_of_mass(),
        "position": T[:, :3, 3],
        "rotation": T[:, :3, :3],
        "mass matrix": a.mass_matrix(model.armature),
    }


def worst(ours, theirs, tolerance=1e-10):
    errors = {}
    for key, value in theirs.items():
        scale = max(np.abs(value).max(initial=0), 1e-300 if key == "mass matrix" else 1.0)
        errors[key] = np.abs(np.asarray(ours[key]) - value).max(initial=0) / scale
    assert max(errors.values()) < tolerance, errors
    return max(errors.values())


def test_the_wheel_has_its_69_robots():
    assert len(urdfs()) == 69


@pytest.mark.parametrize("name", urdfs() if example_robots().exists() else ["example-robot-data is missing"])
def test_urdf_is_mujocos(name):
    path = urdfs()[name]
    if name in BROKEN:
        with pytest.raises(pbad.ModelFileError, match=BROKEN[name]):
            load_quietly(path)
        return
    model, _ = load_quietly(path, meshes=False)
    m = compiled_by_mujoco(path)
    assert (model.nq, model.nv) == (m.nq, m.nv)
    q = random_q(m)
    worst(array_numbers(model, q), mujoco_numbers(m, q))


@pytest.mark.parametrize("name", ["a1", "panda", "talos_reduced", "romeo_small", "allegro_left_hand", "iris", "pr2"])
def test_urdf_through_the_library(name):
    """The same, by the library's own kinematics, with a floating base."""
    path = urdfs()[name]
    model, _ = load_quietly(path, meshes=False, floating_base=name != "pr2")
    spec = mujoco.MjSpec.from_string(
        nodes.serialise(
            urdf.prepare(
                nodes.parse(path.read_bytes(), "", nodes.Budget()), roots.Roots(path.parent), meshes=False
            ).root
        )[0]
    )
    if name != "pr2":
        spec.worldbody.first_body().add_freejoint()
    m = spec.compile()
    q = random_q(m)
    library_is_mujocos(model, m, q)


def library_is_mujocos(model, m, q):
    @jax.jit
    def numbers(model, q):
        T = transforms.transforms(model, q)
        poses = pbad.forward_kinematics(model, q)
        M = parallel.mass_matrix(model, transforms.frames(model, q))
        mass = transforms.total_mass(model)
        return mass, transforms.center_of_mass(model, T), poses.position, poses.rotation, M

    ours = dict(zip(("mass", "com", "position", "rotation", "mass matrix"), numbers(model, jnp.asarray(q))))
    worst(ours, mujoco_numbers(m, q))


@pytest.mark.parametrize("name", urdfs() if example_robots().exists() else ["example-robot-data is missing"])
def test_urdf_is_pinocchios(name):
    """Gravity and mass matrix against a reader that shares no code with MuJoCo, relative to the largest entry.

    Both agree to 1e-6. A link lighter than 1e-5 kg, or with an inertia that no body has, is changed on purpose and
    noted; robots with such a note keep their gravity, but their mass matrix may differ by 1 %.
    """
    if name in BROKEN:
        return
    model, report = load_quietly(urdfs()[name], meshes=False)
    p = pin.buildModelFromUrdf(str(urdfs()[name]))
    if model.nv == 0:
        assert p.nv == 0
        return
    assert p.nv == model.nv
    data = p.createData()
    q = np.random.default_rng(2).uniform(-1, 1, model.nq)
    pin_q, order = pin.neutral(p), []
    for joint in model.topology.joints:
        k = p.joints[p.getJointId(joint.name)]
        pin_q[k.idx_q : k.idx_q + k.nq] = q[joint.q] if k.nq == 1 else [np.cos(q[joint.q]), np.sin(q[joint.q])]
        order.append(k.idx_v)
    ours = Arrays(model, q)
    gravity = pin.computeGeneralizedGravity(p, data, pin_q)[order]
    M = pin.crba(p, data, pin_q)
    M = (np.triu(M) + np.triu(M, 1).T)[np.ix_(order, order)]
    np.testing.assert_allclose(ours.gravity_torque(), gravity, atol=1e-6 * max(np.abs(gravity).max(), 1e-6), rtol=0)
    changed = any("inertia" in note for note in report.notes)
    # Pinocchio's URDF reader takes no armature, and neither does ours
    np.testing.assert_allclose(
        ours.mass_matrix(model.armature), M, atol=(1e-2 if changed else 1e-6) * np.abs(M).max(), rtol=0
    )


@pytest.mark.parametrize("name", ["go2", "panda", "talos_reduced", "g1_29dof_rev_1_0", "romeo_laas_small"])
def test_urdf_with_meshes(name):
    if name in STRAY_PATHS:
        with pytest.raises(pbad.ModelFileError, match=STRAY_PATHS[name]):
            load_quietly(urdfs()[name])
        return
    model, _ = load_quietly(urdfs()[name])
    assert any(m is not None for m in model.topology.geom_meshes) or name in ("go2", "panda")
    assert len(model.topology.geom_types) > 5


def test_collision_meshes_are_read_where_there_is_nothing_else_to_touch_with():
    """Of 21 robots: they fell through any ground. Where a robot has spheres or boxes too, its meshes are left out."""
    for name, touching in (("solo12", {"mesh"}), ("g1_29dof_rev_1_0", {"sphere", "cylinder"})):
        t = load_quietly(urdfs()[name])[0].topology
        assert {k for k, touches in zip(t.geom_types, t.geom_touches) if touches} == touching, name


@pytest.mark.slow
@pytest.mark.parametrize("name", urdfs() if example_robots().exists() else [])
def test_every_urdf_with_meshes(name):
    refused = BROKEN | STRAY_PATHS
    if name in refused:
        with pytest.raises(pbad.ModelFileError, match=refused[name]):
            load_quietly(urdfs()[name])
        return
    load_quietly(urdfs()[name])


# --- MJCF --------------------------------------------------------------------------------------------------


def test_the_wheels_have_their_models():
    assert sum(k.startswith("gymnasium") for k in mjcfs()) >= 14
    assert sum(k.startswith("dm_control") for k in mjcfs()) >= 18


@pytest.mark.slow
@pytest.mark.thorough
def test_two_humanoids_in_a_tangle_come_to_rest():
    """gymnasium's, one begun inside the other, 10 s at 0.02: no step fails or is made in parts, none gains energy;
    once they are out of one another nothing is deeper than 2 mm in anything, by MuJoCo's distances.
    """
    path = str(mjcfs()["gymnasium/humanoid"])
    spec, other = mujoco.MjSpec.from_file(path), mujoco.MjSpec.from_file(path)
    frame = spec.worldbody.add_frame(pos=[0.25, 0.1, 0.4], euler=[0, 0, 170])
    frame.attach_body(other.body("torso"), "other_", "")
    m = spec.compile()
    model = load_quietly(spec.to_xml())[0]
    start = pbad.make_state(model)
    options = pbad.Options(dt=0.02, scheme="radau1", on_failure="substep")
    states, info = pbad.rollout(model, start, n_steps=500, options=options)
    print(info, "iterations", np.mean(info.iterations))
    assert info.ok and np.max(info.substeps) == 1 and np.mean(info.iterations) < 10

    def energy(q, v):
        s = pbad.make_state(model, q, v)
        return pbad.kinetic_energy(model, s) + pbad.potential_energy(model, s)

    energies = jax.vmap(energy)(jnp.r_[start.q[None], states.q], jnp.r_[start.v[None], states.v])
    assert np.diff(energies).max() < 1e-9 and np.abs(states.v[-1]).max() < 0.01
    d, overlaps = mujoco.MjData(m), []
    for q in np.asarray(states.q)[10::10]:
        d.qpos[:] = q
        mujoco.mj_forward(m, d)
        overlaps.append(-float(d.contact.dist.min()) if d.ncon else 0.0)
    print("deepest", max(overlaps))
    assert max(overlaps) < 2e-3


@pytest.mark.thorough
def test_a_ball_lies_in_the_shadow_hand():
    """Fingers half closed by their servos, 10 s at 0.02: no step fails, nothing is deeper than 1 mm in anything, and
    the ball ends within 0.5 mm of where it does by MuJoCo's steps of 0.002. 153 pairs of shapes could touch.
    """
    path = str(shadow_hand())
    model, report = load_quietly(path)
    assert not report.unsupported and all(x.startswith("read in part") for x in report.inactive)
    m = mujoco.MjModel.from_xml_path(path)
    d = mujoco.MjData(m)
    ball = m.joint(m.body("object").jntadr[0]).qposadr[0]
    d.qpos[ball : ball + 3] = 0.33, 0, 0.06  # m, a centimetre above the palm
    curled = {"J3": 0.785, "J2": 0.785, "J1": 0.39}  # rad, of four fingers
    thumb = {"rh_A_THJ4": 1.2, "rh_A_THJ1": 0.6}
    names = [m.actuator(i).name for i in range(m.nu)]
    d.ctrl[:] = [thumb.get(n, 0) if "TH" in n or "WR" in n else curled.get(n[-2:], 0) for n in names]
    controls = jnp.tile(jnp.asarray(d.ctrl), (500, 1))
    start = pbad.make_state(model, d.qpos)
    options = pbad.Options(dt=0.02, scheme="radau2", on_failure="substep")
    states, info = pbad.rollout(model, start, controls=controls, options=options)
    print(info, "iterations", np.mean(info.iterations), "in parts", np.sum(info.substeps > 1))
    assert info.ok and np.sum(info.substeps > 1) <= 5 and np.mean(info.iterations) < 8

    for _ in range(round(10 / m.opt.timestep)):
        mujoco.mj_step(m, d)
    theirs = d.qpos[ball : ball + 3].copy()
    apart = np.linalg.norm(states.q[-1, ball : ball + 3] - theirs)
    overlaps = []
    for q in np.asarray(states.q):
        d.qpos[:] = q
        mujoco.mj_forward(m, d)
        overlaps.append(-float(d.contact.dist.min()) if d.ncon else 0.0)
    print("apart", apart, "deepest", max(overlaps))
    assert apart < 5e-4 and max(overlaps) < 1e-3 and d.ncon >= 3


@pytest.mark.parametrize("name", mjcfs())
def test_mjcf_is_mujocos(name):
    if name == "dm_control/lqr":  # its bodies are added by a program
        with pytest.raises(pbad.ModelFileError, match="no bodies"):
            load_quietly(mjcfs()[name])
        return
    model, report = load_quietly(mjcfs()[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = mujoco.MjModel.from_xml_path(str(mjcfs()[name]))
    assert (model.nq, model.nv, model.n_bodies) == (m.nq, m.nv, m.nbody - 1)
    assert model.nu == m.nu and model.na == m.na
    assert not report.unsupported
    q = random_q(m)
    worst(array_numbers(model, q), mujoco_numbers(m, q))


def test_the_vocabulary_of_mjcf_is_read():
    words = mjcf.vocabulary()
    assert {"axis", "ref", "springref"} <= words["joint"] and "fromto" in words["geom"] and len(words) > 60
