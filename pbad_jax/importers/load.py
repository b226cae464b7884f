"""`load`: an MJCF or URDF model, from a file or from text, through MuJoCo's compiler.

MuJoCo resolves defaults, frames, angles, shapes and inertias; what it compiled is read once into the arguments
of `build_model`, which checks it. Solver options of the file (timestep, integrator, ...) are not taken over, and
cameras, lights and textures have no physics: they are left out without a word. Keyframes, sites and sensors are
`model.keyframes`, `model.sites` and `model.sensors`.
"""

import contextlib
import dataclasses
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from pbad_jax.builders.build_model import build_model
from pbad_jax.checks import float_dtype
from pbad_jax.contact.dispatch import BETWEEN_BODIES
from pbad_jax.errors import (
    ModelError,
    ModelFileError,
    OptionError,
    UnsupportedFeatureError,
    UnsupportedFeatureWarning,
    printable,
)
from pbad_jax.importers import mjcf, mujoco_model, urdf
from pbad_jax.importers.features import idle
from pbad_jax.importers.mujoco_softness import as_in_mujoco, without_end
from pbad_jax.importers.safety import Budget, Node, Roots, cut, nearest, parse, read_bytes, serialise
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.model.model import Model

Source = str | os.PathLike[str]
Folders = Source | Iterable[Source]


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of the features of a file.

    Attributes:
        unsupported: left out, although the motion depends on them.
        inactive: carried or known, but without a force yet, such as limits of effort.
        notes: what was changed or dropped on the way, such as projected inertias and unreadable meshes.

    Example:
        >>> text = '<mujoco><worldbody><body><joint/><geom size="0.1"/></body></worldbody></mujoco>'
        >>> loaded, report = pbad.load(text, unsupported="warn")
        >>> print(report)
        everything in the file is honoured
    """

    unsupported: tuple[str, ...] = ()
    inactive: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = []
        for title, items in (("left out", self.unsupported), ("no force yet", self.inactive), ("notes", self.notes)):
            parts += [f"{title}:"] + [f"  - {x}" for x in items] if items else []
        return printable("\n".join(parts)) or "everything in the file is honoured"


@overload
def load(
    source: Source,
    *,
    floating_base: bool = False,
    unsupported: Literal["error"] = "error",
    package_dirs: Folders = (),
    body_contact: bool = True,
    constraints: Literal["spring", "MuJoCo"] = "spring",
    dtype: Any = None,
) -> Model: ...
@overload
def load(
    source: Source,
    *,
    floating_base: bool = False,
    unsupported: Literal["warn"],
    package_dirs: Folders = (),
    body_contact: bool = True,
    constraints: Literal["spring", "MuJoCo"] = "spring",
    dtype: Any = None,
) -> tuple[Model, LoadReport]: ...
def load(
    source,
    *,
    floating_base=False,
    unsupported="error",
    package_dirs=(),
    body_contact=True,
    constraints="spring",
    dtype=None,
):
    """A `Model` from an MJCF or URDF file.

    Args:
        source: path of the file (str or Path), or the XML text itself.
        floating_base: give the first root body a free joint, "floating_base"; URDF cannot say so itself.
        unsupported: "error" refuses a file with features that would change the motion and that are not there;
            "warn" leaves them out and returns a report.
        package_dirs: folders from which meshes and includes may be read, and in which the packages of `package://`
            are looked up, besides the model's own. Meshes may also lie in a usual folder beside that: `../meshes`;
            and `../` reaches the models and meshes of the package that the file is part of, a folder above it with
            package.xml, pyproject.toml, setup.py or `__init__.py`, or called assets.
        body_contact: whether bodies touch one another, as the file says. Where that does not matter, False makes
            steps cheaper and compiling quicker; the ground stays.
        constraints: how contact and the ends of joints and tendons push. "spring": by springs that give way as much
            under a weight. "MuJoCo": by MuJoCo's own law and the file's solref and solimp (`forces.SoftEnd`), so that
            blows are MuJoCo's too; of an MJCF file. Friction, balls and equalities are the same with both.
        dtype: float32 or float64, as in `build_model`.

    Returns:
        The model. With unsupported="warn", the pair (model, LoadReport).

    Raises:
        FileNotFoundError: no such file.
        ModelFileError: the file cannot be read or is wrong; the message has file:line where there is one.
        UnsupportedFeatureError: `.features` lists all that cannot be honoured.
        OptionError: for the other arguments.
        ImportError: MuJoCo is not installed.

    Example:
        >>> text = '''
        ... <mujoco>
        ...   <worldbody>
        ...     <body><joint axis="0 1 0"/><geom size="0.1" pos="0 0 -1"/></body>
        ...   </worldbody>
        ... </mujoco>
        ... '''
        >>> pbad.load(text)  # or the path of a file
        Model('model': 1 bodies, 1 joints, nq=1, nv=1, nu=0, float64)
    """
    if unsupported not in ("error", "warn"):
        raise OptionError(f"unsupported={unsupported!r}: choose 'error' or 'warn'")
    if not isinstance(body_contact, bool):
        raise OptionError(f"body_contact={body_contact!r}: choose True or False")
    if constraints not in ("spring", "MuJoCo"):
        raise OptionError(f"constraints={constraints!r}: choose 'spring' or 'MuJoCo'")
    how = unsupported == "warn", package_dirs, dtype, body_contact
    model, report, file = _load(source, floating_base, *how, soft_ends=constraints == "MuJoCo")
    if unsupported == "error":
        if report.notes:
            warnings.warn(printable(f"{file}: {_listed(report.notes)}"), stacklevel=2)
        return model
    if report.unsupported:
        text = f"{file}: loaded without {_listed(report.unsupported)}"
        warnings.warn(printable(text), UnsupportedFeatureWarning, stacklevel=2)
    return model, report


def _load(
    source,
    floating_base=False,
    lenient=True,
    package_dirs=(),
    dtype=None,
    body_contact=True,
    *,
    meshes=True,
    soft_ends=False,
) -> tuple[Model, LoadReport, str]:
    """The model, the report and the file's name; `meshes=False` leaves out those of a URDF.

    Raises:
        UnsupportedFeatureError: if there is anything unsupported and not `lenient`.
    """
    # options that do not fit, and a missing mujoco, are told before the file is read
    if isinstance(package_dirs, str | os.PathLike):
        package_dirs = (package_dirs,)
    float_dtype(dtype)
    mjcf.mujoco_module()

    # checked XML, MJCF or URDF, in the form that MuJoCo's compiler may see
    root, roots, budget = _read(source, package_dirs)
    if root.tag == "mujoco":
        prepared = mjcf.prepare(root, roots, budget)
    elif root.tag == "robot":
        if soft_ends:
            raise OptionError(
                f"{root.file}: constraints='MuJoCo' wants an MJCF file; a URDF does not say how soft its limits are"
            )
        prepared = urdf.prepare(root, roots, meshes=meshes)
    else:
        raise ModelFileError(
            f"{root.where}: the root element is <{cut(root.tag)}>; it must be <mujoco> (MJCF) or <robot> (URDF)"
        )

    # compile; a keyframe without controls shows zeros after that, so the file is asked for them
    if floating_base:
        _drop_keyframes(prepared)
    mj_model, messages = _compile(prepared, floating_base)
    has_control = ["ctrl" in n.attrib for n in prepared.root.walk() if n.tag == "key"]
    try:
        # read the compiled model once
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused by its name later
            converted = mujoco_model.convert(mj_model, prepared.shapes, has_control, prepared.inertials)
    except mjcf.mujoco_module().FatalError as e:
        raise ModelFileError(
            f"{root.file}: MuJoCo compiles it, but cannot compute with it at qpos0 ({cut(str(e))}): look for sizes and "
            "positions that are far too large"
        ) from None

    # what cannot act is an error, or a line of the report
    unsupported = tuple(prepared.unsupported + converted.unsupported)
    if unsupported and not lenient:
        raise _unsupported(root.file, unsupported)
    model = _build(root.file, prepared, converted, dtype, body_contact, soft_ends)
    if soft_ends:
        model = as_in_mujoco(mj_model, model)
    notes = tuple(prepared.notes + converted.notes + messages)
    return model, LoadReport(unsupported, model.topology.inactive, notes), root.file


def _drop_keyframes(prepared: mjcf.Prepared) -> None:
    """Those of a file do not know of the base that is to float."""
    given = sum(len(n.all("key")) for n in prepared.root.all("keyframe"))
    prepared.root.children = [n for n in prepared.root.children if n.tag != "keyframe"]
    if given:
        prepared.notes.append(f"keyframes ({given}): left out, they have no place for the base that floating_base adds")


def _read(source, package_dirs) -> tuple[Node, Roots, Budget]:
    """The parsed document, and the folders that it may use."""
    budget = Budget()
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<"):
        return parse(source.lstrip("\ufeff \t\r\n"), "<text>", budget), Roots(None, package_dirs), budget
    if not isinstance(source, str | os.PathLike):
        raise ModelFileError(f"source is {type(source).__name__}; give a path or XML text, of an MjSpec spec.to_xml()")
    path = Path(source)
    data = read_bytes(path, budget)
    path = path.resolve()
    return parse(data, str(path), budget), Roots(path.parent, package_dirs), budget


def _build(
    file: str, prepared: mjcf.Prepared, converted: mujoco_model.Converted, dtype, body_contact: bool, soft_ends: bool
) -> Model:
    inactive = prepared.inactive + converted.inactive
    name = prepared.name or (Path(file).stem if file != "<text>" else "model")
    try:
        with np.errstate(all="ignore"):
            model = build_model(converted.bodies, name=name, inactive=inactive, dtype=dtype, **converted.arguments)
            made = [make(model) for make in converted.forces]
            forces = [force for x in made for force in (x if isinstance(x, tuple) else (x,))]
            acting = [f for f in forces if body_contact or not isinstance(f, BETWEEN_BODIES)]
            acting = acting if soft_ends else list(map(without_end, acting))
            model = with_forces(model, *acting)
    except (ModelError, OptionError, np.linalg.LinAlgError, OverflowError) as e:
        raise ModelFileError(f"{file}: {e}") from e
    if len(acting) < len(forces):
        left_out = (*model.topology.inactive, idle("contact between bodies", " (body_contact=False)"))
        model = dataclasses.replace(model, topology=dataclasses.replace(model.topology, inactive=left_out))
    return model


def _listed(items: tuple[str, ...]) -> str:
    return "; ".join(items[:8]) + (
        f"; and {len(items) - 8} more (unsupported='warn' returns them all)" if len(items) > 8 else ""
    )


def _unsupported(file: str, features: tuple[str, ...], why: str = "") -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{file}: {len(features)} feature{'s' * (len(features) > 1)} of this model would change its motion and "
        f"cannot be honoured: {'; '.join(features)}.{why} Remove them, or pass unsupported='warn' to load "
        "without them.",
        features,
    )


# --- MuJoCo's compiler -------------------------------------------------------------------------------------


def _compile(prepared: mjcf.Prepared, floating_base: bool):
    """MjModel, and the compiler's warnings. Nothing is printed and no log file is written."""
    # one element a line, so that the compiler's line numbers lead back to the user's file
    mujoco = mjcf.mujoco_module()
    text, nodes = serialise(prepared.root)
    messages: list[str] = []
    try:
        with _captured(messages):
            spec = mujoco.MjSpec.from_string(text)
            spec.compiler.LRopt.mode = 0  # the length ranges of muscles, which cost a simulation each
            # what is added to the text: a floating base, joints of a URDF that follow others
            if floating_base:
                _add_free_joint(spec, prepared.root.file)
            for mimic in prepared.mimics:
                _add_mimic(spec, *mimic)
            mj_model = spec.compile()
        return mj_model, list(dict.fromkeys(messages))
    except ModelError:
        raise
    except (ValueError, RuntimeError, MemoryError, mujoco.FatalError, mujoco.UnexpectedError) as e:
        raise _explained(str(e), prepared, nodes) from None


@contextlib.contextmanager
def _captured(messages: list[str]):
    """Collect the warnings of MuJoCo, by Python or by its own handler."""
    mujoco = mjcf.mujoco_module()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: messages.append(str(text)))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        messages += [str(w.message) for w in caught]
    finally:
        mujoco.set_mju_user_warning(before)


def _add_free_joint(spec, file: str) -> None:
    base = spec.worldbody.first_body()
    if base is None:
        raise ModelFileError(f"{file}: floating_base=True needs a body, and the model has none")
    if base.joints:
        raise ModelFileError(
            f"{file}: floating_base=True: the first body {base.name!r} already has the joint "
            f"{base.joints[0].name!r}; load without it"
        )
    name = "floating_base"
    while any(joint.name == name for joint in spec.joints):
        name += "_"
    base.add_freejoint(name=name)


def _add_mimic(spec, joint: str, leader: str, multiplier: float, offset: float) -> None:
    mujoco = mjcf.mujoco_module()
    equality = spec.add_equality(type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT)
    equality.name1, equality.name2 = joint, leader
    equality.data[:5] = [offset, multiplier if leader else 0.0, 0, 0, 0]


def _explained(text: str, prepared: mjcf.Prepared, nodes: list[Node]) -> ModelFileError:
    """MuJoCo's message with the line of the user's file, and the nearest word that exists."""
    # the element that the compiler complains of, by its line
    lines = [int(k) for k in re.findall(r"line (\d+)", text)]
    node = nodes[lines[-1] - 1] if lines and 0 < lines[-1] <= len(nodes) else prepared.root
    where = node.where if lines else prepared.root.file

    # its message without prefixes that say nothing
    message = re.sub(r"^(XML )?Error: ", "", text.split("\nElement")[0]).strip()
    message = re.sub(r"^(Schema violation|Error): ", "", message)

    # a word that is not known: with the nearest one that is
    if "unrecognized attribute" in text:
        word = (re.findall(r"attribute: '([^']*)'", text) or [""])[0]
        return ModelFileError(
            f"{where}: <{node.tag}> has no attribute {cut(word)!r}{nearest(word, mjcf.vocabulary().get(node.tag, ()))}"
        )
    if "unrecognized element" in text:
        features = tuple(mjcf.unknown_elements(prepared.root)) or (f"element <{cut(node.tag)}> ({where})",)
        near = nearest(node.tag, mjcf.vocabulary())
        return UnsupportedFeatureError(
            f"{where}: <{cut(node.tag)}> is not known here{near}; all such: {'; '.join(features)}", features
        )

    # else what was left out may be the reason, or a name that nothing has
    if prepared.unsupported:
        return _unsupported(prepared.root.file, tuple(prepared.unsupported), f" (MuJoCo: {cut(message, 200)}.)")
    return ModelFileError(f"{where}: <{node.tag}>: {cut(message, 400)}{_missing_name(message, nodes)}")


def _missing_name(message: str, nodes: list[Node]) -> str:
    """A hint where the message quotes a name that no element has."""
    if not re.search(r"unknown|not found|unrecognized|missing|invalid", message):
        return ""
    names = {
        n.attrib[k] for n in nodes for k in ("name", "class") if k in n.attrib and (k == "name" or n.tag == "default")
    }
    for word in re.findall(r"'([^']+)'", message):
        if word not in names:
            return nearest(word, names)
    return ""
