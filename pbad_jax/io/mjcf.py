"""MJCF before MuJoCo's compiler (includes, paths, numbers), and the compiled model after it.

`prepare` makes the text safe to compile: nothing that the compiler then opens has not been checked. `convert`
reads a compiled mjModel, from MJCF or URDF alike, into the arguments of `build_model`, and says what is lost.
"""

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from pbad_jax.build import Actuator, Body, Geom, Joint
from pbad_jax.errors import ModelFileError, UnsupportedFeatureError
from pbad_jax.io.safety import MAX_BODIES, MAX_BYTES, MAX_ELEMENTS, Budget, Node, Roots, cut, numbers, parse, read_bytes
from pbad_jax.model import Mesh

MAX_INCLUDES = 16  # deep
MAX_EXPANDED_DEPTH = 512
# dropped before compiling: they have no physics, and may open files or reserve memory
_DROPPED = {"size", "texture", "skin", "custom", "layer"}
_NUMERIC = frozenset(
    """pos quat axisangle xyaxes zaxis euler fromto size mass density diaginertia fullinertia axis range ref springref
    damping stiffness armature frictionloss margin gear ctrlrange forcerange actrange lengthrange actuatorfrcrange
    kp kv gainprm biasprm dynprm dampratio timeconst area diameter gravity timestep viscosity wind magnetic rgba
    friction solref solimp solreflimit solimplimit solreffriction solimpfriction boundmass boundinertia settotalmass
    inertiagrouprange springdamper springlength coef gravcomp condim contype conaffinity group user scale refpos
    refquat vertex normal face polycoef relpose qpos qvel ctrl act mpos mquat delay cranklength gap solmix
    fluidcoef fitscale count offset spacing radius""".split()
)
_FILE_ATTRIBUTES = ("file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")


@dataclasses.dataclass
class Prepared:
    """A document ready for MuJoCo's compiler, and what is already known of it."""

    root: Node
    name: str
    unsupported: list[str] = dataclasses.field(default_factory=list)
    inactive: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    shapes: dict[str, list[Geom]] | None = None  # URDF: the geoms of each link


def prepare(root: Node, roots: Roots, budget: Budget) -> Prepared:
    """Inline the includes, drop what has no physics, and check numbers, paths and sizes.

    Raises:
        ModelFileError: with file:line.
        UnsupportedFeatureError: for models attached from other files.
    """
    _inline(root, roots, budget, (root.file,), 0)
    attached = [f"{n.where}: <{n.tag}>" for n in root.walk() if n.tag in ("attach", "model")]
    if attached:
        raise UnsupportedFeatureError(
            "models attached from other files are not read: " + "; ".join(attached) + ". Write the combined file with "
            "MuJoCo (MjSpec.to_xml) and load that.",
            tuple(attached),
        )
    _check_paths(root, roots)
    _drop(root)
    _check_expansion(root)
    for node in root.walk():
        for name in node.attrib if node.tag != "flag" else ():  # <flag gravity="disable"/>
            if name in _NUMERIC:
                numbers(node, name)
    plugins = [
        f"plugin {n.attrib.get('plugin', n.attrib.get('instance', ''))!r} ({n.where})"
        for n in root.walk()
        if n.tag == "plugin"
    ]
    return Prepared(root, root.attrib.get("model", ""), unsupported=plugins)


def _inline(node: Node, roots: Roots, budget: Budget, files: tuple[str, ...], depth: int) -> None:
    """Put the children of included files where the <include> stands."""
    if depth > MAX_EXPANDED_DEPTH:
        raise ModelFileError(f"{node.where}: elements are nested more than {MAX_EXPANDED_DEPTH} deep after <include>")
    children = []
    for child in node.children:
        if child.tag == "include":
            included, chain = _included(child, roots, budget, files)
            _inline(included, roots, budget, chain, depth)
            children.extend(included.children)
        else:
            _inline(child, roots, budget, files, depth + 1)
            children.append(child)
    node.children = children


def _included(node: Node, roots: Roots, budget: Budget, files: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    written = node.attrib.get("file", "")
    if not written:
        raise ModelFileError(f"{node.where}: <include> needs file=")
    path = roots.resolve(written, node)
    if not path.exists():
        path = roots.resolve(written, node, Path(files[-1]).parent) if roots.folder else path
    if str(path) in files:
        cycle = files[files.index(str(path)) :] + (str(path),)
        raise ModelFileError(f"{node.where}: <include> goes in a cycle: " + " -> ".join(Path(f).name for f in cycle))
    if len(files) > MAX_INCLUDES:
        raise ModelFileError(f"{node.where}: <include> is nested more than {MAX_INCLUDES} deep; that is the limit")
    if not path.exists():
        raise ModelFileError(f"{node.where}: included file {cut(written, 200)!r} does not exist")
    return parse(read_bytes(path, budget), str(path), budget), files + (str(path),)


def _check_paths(root: Node, roots: Roots) -> None:
    """Replace every path by the absolute one that was checked, so that the compiler opens nothing else."""
    settings: dict[str, str] = {}
    for compiler in root.all("compiler"):
        settings.update(compiler.attrib)
    for node in root.walk():
        if node.tag == "compiler":
            for key in ("meshdir", "texturedir", "assetdir", "strippath"):
                node.attrib.pop(key, None)
        for key in _FILE_ATTRIBUTES:
            if node.attrib.get(key):
                path = _asset(node, key, settings, roots)
                if node.tag not in _DROPPED:
                    _check_file(path, node, key)
                    node.attrib.setdefault("name", Path(node.attrib[key]).stem)
                    node.attrib[key] = str(path)


def _asset(node: Node, key: str, settings: dict[str, str], roots: Roots) -> Path:
    written = node.attrib[key]
    folder = settings.get("texturedir" if node.tag == "texture" else "meshdir", settings.get("assetdir", ""))
    if settings.get("strippath") == "true":
        return roots.resolve(str(Path(folder) / Path(written).name), node)
    return roots.resolve(written if re.match(r"\w+:", written) else str(Path(folder) / written), node)


def _check_file(path: Path, node: Node, key: str) -> None:
    """Refuse files that are missing, huge, or shorter than they announce."""
    what = f"{node.where}: {key}={cut(node.attrib[key], 200)!r} of <{node.tag}>"
    if not path.is_file():
        raise ModelFileError(f"{what}: no such file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ModelFileError(f"{what}: {size >> 20} MB; the limit is {MAX_BYTES >> 20} MB")
    if path.suffix.lower() == ".stl":
        with path.open("rb") as f:
            head = f.read(84)
        if head[:5] != b"solid" and (size < 84 or size < 84 + 50 * int.from_bytes(head[80:84], "little")):
            raise ModelFileError(f"{what}: {size} bytes cannot hold the triangles that the file announces")


def _drop(root: Node) -> None:
    for node in root.walk():
        node.children = [c for c in node.children if c.tag not in _DROPPED]
        if node.tag in ("material", "light"):
            node.attrib.pop("texture", None)


def _check_expansion(root: Node) -> None:
    """Refuse counts that multiply into more than the limits."""
    bodies = 0
    stack = [(root, 1)]
    total = 0
    while stack:
        node, factor = stack.pop()
        if node.tag in ("replicate", "composite", "flexcomp") and "count" in node.attrib:
            for x in numbers(node, "count"):
                factor *= max(1.0, abs(x))
        total += factor
        bodies += factor if node.tag in ("body", "composite", "flexcomp") else 0
        if total > MAX_ELEMENTS or bodies > MAX_BODIES:
            raise ModelFileError(
                f"{node.where}: <{node.tag}>: the model has more than {MAX_BODIES} bodies or "
                f"{MAX_ELEMENTS} elements; that is the limit"
            )
        stack.extend((c, factor) for c in node.children)


# --- what a file may say -----------------------------------------------------------------------------------


@functools.cache
def vocabulary() -> dict[str, set[str]]:
    """The attributes of every MJCF element that this MuJoCo knows; elements of one name are merged."""
    import mujoco

    words: dict[str, set[str]] = {"include": {"file"}}
    tag = ""
    for line in mujoco.mj_printSchema(False, False).splitlines():
        found = re.match(r" *(\S+) \(\S+\)(.*)", line)
        if found:
            tag = found[1]
            line = found[2]
        words.setdefault(tag, set()).update(line.replace("|", " ").split())
    return words


def unknown_elements(root: Node) -> list[str]:
    """`<tag> (file:line)` for all tags that no MJCF element has."""
    known = vocabulary().keys() | {"body", "frame", "worldbody", "replicate", "composite", "freejoint", "default"}
    return [f"element <{cut(n.tag)}> ({n.where})" for n in root.walk() if n.tag not in known]


# --- from the compiled model -------------------------------------------------------------------------------


@dataclasses.dataclass
class Converted:
    """The arguments of `build_model`, and what they leave out."""

    bodies: list[Body]
    arguments: dict[str, Any]
    unsupported: list[str]
    inactive: list[str]
    notes: list[str]


def convert(m, shapes: dict[str, list[Geom]] | None = None) -> Converted:
    """Read a compiled mjModel, once, in float64.

    Args:
        m: mujoco.MjModel.
        shapes: geoms by body name, to take instead of the model's own.
    """
    names = _Names(m)
    switches = _disabled(m)
    if shapes is None:
        geoms, notes = _geoms(m)
    else:
        geoms, notes = {i: shapes.get(names.mujoco_body(i), []) for i in range(m.nbody)}, []
    actuators, lost = _actuators(m, names, switches)
    bodies = [_body(m, i, names, switches, geoms.get(i, [])) for i in range(1, m.nbody)]
    arguments = {
        "actuators": actuators,
        "gravity": np.zeros(3) if "gravity" in switches else np.array(m.opt.gravity),
        "q0": np.array(m.qpos0),
        "world_geoms": geoms.get(0, []),
    }
    return Converted(bodies, arguments, _unsupported(m, names, switches) + lost, _inactive(m, names), notes)


class _Names:
    """Unique names: the file's own, else body{i}, joint{i}, actuator{i}, i counted from 0 without the world."""

    def __init__(self, m):
        import mujoco

        kind = mujoco.mjtObj

        def given(what, count):
            return [mujoco.mj_id2name(m, what, i) or "" for i in range(count)]

        self._given_bodies = given(kind.mjOBJ_BODY, m.nbody)
        self.body = [""] + _filled(self._given_bodies[1:], "body")
        self.joint = _filled(given(kind.mjOBJ_JOINT, m.njnt), "joint")
        self.actuator = _filled(given(kind.mjOBJ_ACTUATOR, _count(m, "nactuator", m.nu)), "actuator")
        self.equality = given(kind.mjOBJ_EQUALITY, m.neq)
        self.tendon = given(kind.mjOBJ_TENDON, m.ntendon)

    def mujoco_body(self, i: int) -> str:
        return self._given_bodies[i]


def _filled(names: list[str], prefix: str) -> list[str]:
    taken = set(names)
    out = []
    for i, name in enumerate(names):
        name = name or f"{prefix}{i}"
        while not names[i] and name in taken:
            name += "_"
        taken.add(name)
        out.append(name)
    return out


def _count(m, field: str, default: int) -> int:
    return int(getattr(m, field, default))


def _disabled(m) -> set[str]:
    """Names of the option flags that are switched off."""
    import mujoco

    flags = {"gravity", "spring", "damper", "passive", "limit", "frictionloss", "clampctrl", "actuation"}
    bits = {f: getattr(mujoco.mjtDisableBit, f"mjDSBL_{f.upper()}", 0) for f in flags}
    off = {f for f, bit in bits.items() if m.opt.disableflags & int(bit)}
    return off | ({"spring", "damper"} if "passive" in off else set())


def _body(m, i: int, names: _Names, switches: set[str], geoms: list[Geom]) -> Body:
    first, count = int(m.body_jntadr[i]), int(m.body_jntnum[i])
    R = _rotation(m.body_iquat[i])
    I = R @ np.diag(m.body_inertia[i]) @ R.T
    parent = int(m.body_parentid[i])
    return Body(
        name=names.body[i],
        mass=float(m.body_mass[i]),
        com=np.array(m.body_ipos[i]),
        inertia=0.5 * (I + I.T),
        parent=None if parent == 0 else parent - 1,
        position=np.array(m.body_pos[i]),
        quaternion=np.array(m.body_quat[i]),
        joints=[_joint(m, j, names, switches) for j in range(first, first + count)],
        geoms=geoms,
    )


def _joint(m, j: int, names: _Names, switches: set[str]) -> Joint:
    kind = ("free", "ball", "slide", "hinge")[m.jnt_type[j]]
    scalar = kind in ("slide", "hinge")
    q, v = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
    width = {"free": 7, "ball": 4}.get(kind, 1)
    stiffness = 0.0 if "spring" in switches else float(m.jnt_stiffness[j])
    limited = bool(m.jnt_limited[j]) and scalar and "limit" not in switches
    return Joint(
        type=kind,
        name=names.joint[j],
        axis=np.array(m.jnt_axis[j]) if scalar else None,
        anchor=np.zeros(3) if kind == "free" else np.array(m.jnt_pos[j]),
        reference=float(m.qpos0[q]) if scalar else 0.0,
        stiffness=stiffness,
        spring_reference=np.array(m.qpos_spring[q : q + width]) if stiffness else None,
        damping=0.0 if "damper" in switches else float(m.dof_damping[v]),
        armature=float(m.dof_armature[v]),
        friction_loss=0.0 if "frictionloss" in switches else float(m.dof_frictionloss[v]),
        range=tuple(map(float, m.jnt_range[j])) if limited else None,
    )


def _actuators(m, names: _Names, switches: set[str]) -> tuple[list[Actuator], list[str]]:
    """Affine actuators on hinges and slides; the others by name and reason."""
    count = _count(m, "nactuator", m.nu)
    drives, lost = [], []
    on_joint = [int(m.actuator_trnid[a, 0]) if m.actuator_trntype[a] <= 1 else -1 for a in range(count)]
    for a in range(count):
        reason = _why_not(m, a)
        j = on_joint[a]
        force_range = _range(m.actuator_forcelimited[a], m.actuator_forcerange[a])
        if not reason and m.jnt_actfrclimited[j] and m.actuator_gear[a, 0]:
            bounds = np.sort(m.jnt_actfrcrange[j] / m.actuator_gear[a, 0])
            low, high = (-np.inf, np.inf) if force_range is None else force_range
            force_range = (max(low, bounds[0]), min(high, bounds[1]))
            if on_joint.count(j) > 1 or force_range[0] > force_range[1]:
                reason = f"actuatorfrcrange of joint {names.joint[j]!r}, which other actuators share"
        if reason:
            lost.append(f"actuator {names.actuator[a]!r}: {reason}")
            continue
        unclamped = "clampctrl" in switches
        drives.append(
            Actuator(
                joint=names.joint[j],
                name=names.actuator[a],
                gear=float(m.actuator_gear[a, 0]),
                gain=float(m.actuator_gainprm[a, 0]),
                bias=np.array(m.actuator_biasprm[a, :3]) if m.actuator_biastype[a] == 1 else np.zeros(3),
                control_range=None if unclamped else _range(m.actuator_ctrllimited[a], m.actuator_ctrlrange[a]),
                force_range=force_range,
            )
        )
    return drives, lost


def _range(limited, bounds) -> tuple[float, float] | None:
    return (float(bounds[0]), float(bounds[1])) if limited else None


def _why_not(m, a: int) -> str:
    """Why this actuator is not affine in a hinge's or slide's q and v; empty if it is."""
    import mujoco

    def label(enum, value) -> str:
        return enum(int(value)).name.split("_", 1)[1].lower()

    if m.actuator_trntype[a] > 1:
        return f"transmission through a {label(mujoco.mjtTrn, m.actuator_trntype[a])}"
    if m.jnt_type[m.actuator_trnid[a, 0]] not in (2, 3):
        return f"drives a {('free', 'ball')[m.jnt_type[m.actuator_trnid[a, 0]]]} joint"
    if m.actuator_dyntype[a] != 0:
        return f"activation dynamics ({label(mujoco.mjtDyn, m.actuator_dyntype[a])})"
    if m.actuator_gaintype[a] != 0:
        return f"gain type {label(mujoco.mjtGain, m.actuator_gaintype[a])}"
    if m.actuator_biastype[a] > 1:
        return f"bias type {label(mujoco.mjtBias, m.actuator_biastype[a])}"
    if m.actuator_plugin[a] >= 0:
        return "plugin"
    for field in ("actuator_delay", "actuator_damping", "actuator_dampingpoly", "actuator_armature"):
        if np.any(getattr(m, field, np.zeros(len(m.actuator_gear)))[a]):
            return field.removeprefix("actuator_")
    if any(getattr(m, f, np.ones(len(m.actuator_gear)))[a] != 1 for f in ("actuator_ctrlnum", "actuator_outnum")):
        return "several controls or outputs"
    return ""


def _unsupported(m, names: _Names, switches: set[str]) -> list[str]:
    """Everything that would change the motion and that this library does not have."""
    import mujoco

    out = []
    for e in range(m.neq):
        if m.eq_active0[e]:
            kind = mujoco.mjtEq(int(m.eq_type[e])).name.removeprefix("mjEQ_").lower()
            out.append(f"equality {names.equality[e] or e!r} ({kind})")
    for t in range(m.ntendon):
        acts = [
            f
            for f in ("stiffness", "damping", "frictionloss", "limited", "armature")
            if np.any(getattr(m, f"tendon_{f}")[t])
        ]
        acts += [
            f for f in ("stiffnesspoly", "dampingpoly") if np.any(getattr(m, f"tendon_{f}", np.zeros(m.ntendon))[t])
        ]
        if acts:
            out.append(f"tendon {names.tendon[t] or t!r} ({', '.join(acts)})")
    out += [f"flex {f}" for f in range(m.nflex)]
    out += [f"mocap body {names.body[b]!r}" for b in range(1, m.nbody) if m.body_mocapid[b] >= 0]
    out += [f"gravity compensation of body {names.body[b]!r}" for b in range(1, m.nbody) if m.body_gravcomp[b]]
    out += [
        f"polynomial stiffness of joint {names.joint[j]!r}"
        for j in range(m.njnt)
        if np.any(_poly(m, "jnt_stiffnesspoly", m.njnt)[j])
    ]
    dofs = [j for j in range(m.njnt) if np.any(_poly(m, "dof_dampingpoly", m.nv)[m.jnt_dofadr[j]])]
    out += [f"polynomial damping of joint {names.joint[j]!r}" for j in dofs]
    if _count(m, "nplastic", 0):
        out.append(f"plasticity ({m.nplastic} elements)")
    for field in ("density", "viscosity"):
        if getattr(m.opt, field):
            out.append(f"fluid {field} {getattr(m.opt, field):g}")
    if (m.opt.density or m.opt.viscosity) and np.any(m.opt.wind):
        out.append(f"wind {np.array(m.opt.wind).tolist()}")
    if "actuation" in switches or m.opt.disableactuator:
        out.append("actuation switched off")
    return out


def _poly(m, field: str, count: int) -> np.ndarray:
    return getattr(m, field, np.zeros((count, 1)))


def _inactive(m, names: _Names) -> list[str]:
    """What is carried, or known, but exerts no force yet."""
    out = []
    touching = int(np.sum((m.geom_contype != 0) | (m.geom_conaffinity != 0)))
    if touching or m.npair:
        out.append(f"contact ({touching} geoms{f', {m.npair} pairs' if m.npair else ''})")
    out += [f"range of ball joint {names.joint[j]!r}" for j in range(m.njnt) if m.jnt_limited[j] and m.jnt_type[j] == 1]
    idle = m.neq - int(np.sum(m.eq_active0))
    if idle:
        out.append(f"equality constraints that start inactive ({idle})")
    return out


# --- geoms -------------------------------------------------------------------------------------------------


def _geoms(m) -> tuple[dict[int, list[Geom]], list[str]]:
    """Geoms by body. Those of groups 3 to 5, which MuJoCo hides by default, get alpha 0."""
    types = {0: "plane", 2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box", 7: "mesh", 8: "mesh"}
    meshes: dict[int, Mesh] = {}
    out: dict[int, list[Geom]] = {}
    dropped = 0
    for g in range(m.ngeom):
        kind, mesh = types.get(int(m.geom_type[g])), None
        if kind is None:  # height fields
            dropped += 1
            continue
        if kind == "mesh":
            k = int(m.geom_dataid[g])
            mesh = meshes[k] = meshes.get(k) or _mesh(m, k)
        geom = Geom(
            type=kind,
            size=np.zeros(3) if mesh else np.maximum(m.geom_size[g], 0),
            position=np.array(m.geom_pos[g]),
            quaternion=np.array(m.geom_quat[g]),
            rgba=_colour(m, g),
            friction=np.array(m.geom_friction[g]),
            mesh=mesh,
        )
        out.setdefault(int(m.geom_bodyid[g]), []).append(geom)
    return out, [f"{dropped} height-field geoms are not carried"] if dropped else []


def _colour(m, g: int) -> np.ndarray:
    rgba, material = np.array(m.geom_rgba[g], float), int(m.geom_matid[g])
    if material >= 0 and np.array_equal(m.geom_rgba[g], np.float32([0.5, 0.5, 0.5, 1])):
        rgba = np.array(m.mat_rgba[material], float)
    if m.geom_group[g] >= 3:
        rgba[3] = 0
    return rgba


def _mesh(m, k: int) -> Mesh:
    v, f = int(m.mesh_vertadr[k]), int(m.mesh_faceadr[k])
    vertices = np.array(m.mesh_vert[v : v + m.mesh_vertnum[k]])
    return Mesh(vertices, np.array(m.mesh_face[f : f + m.mesh_facenum[k]]))


def _rotation(p) -> np.ndarray:
    """The rotation matrix (3,3) of a unit quaternion (w,x,y,z), numpy."""
    w, x, y, z = np.asarray(p, float) / np.linalg.norm(p)
    return np.array(
        [
            [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
        ]
    )
