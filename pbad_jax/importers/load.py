"""`load`: an MJCF or URDF model, from a file or from text, through MuJoCo's compiler.

MuJoCo resolves defaults, frames, angles, shapes and inertias; what it compiled is read once into the arguments
of `build_model`, which checks it. Solver options of the file (timestep, integrator, ...) are not taken over, and
cameras, lights and textures have no physics: they are left out without a word. Keyframes, sites and sensors are
`model.keyframes`, `model.sites` and `model.sensors`.
"""

import dataclasses
import os
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
    UnsupportedFeatureWarning,
    printable,
)
from pbad_jax.importers import mjcf, mujoco_model, urdf
from pbad_jax.importers.compiling import compiled
from pbad_jax.importers.features import idle
from pbad_jax.importers.mujoco_softness import as_in_mujoco, without_end
from pbad_jax.importers.nodes import Budget, Node, cut, parse, read_bytes
from pbad_jax.importers.report import LoadReport, listed, unsupported_by
from pbad_jax.importers.roots import Roots
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.model.model import Model

Source = str | os.PathLike[str]
Folders = Source | Iterable[Source]


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
    # what is left out is told: as notes, or as a report
    how = unsupported == "warn", package_dirs, dtype, body_contact
    model, report, file = _load(source, floating_base, *how, soft_ends=constraints == "MuJoCo")
    if unsupported == "error":
        if report.notes:
            warnings.warn(printable(f"{file}: {listed(report.notes)}"), stacklevel=2)
        return model
    if report.unsupported:
        text = f"{file}: loaded without {listed(report.unsupported)}"
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
    mj_model, messages = compiled(prepared, floating_base)
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
        raise unsupported_by(root.file, unsupported)
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
    # bodies first, then the forces that are made of the model that they are
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
    # contact that was left out on demand is said by the model itself
    if len(acting) < len(forces):
        left_out = (*model.topology.inactive, idle("contact between bodies", " (body_contact=False)"))
        model = dataclasses.replace(model, topology=dataclasses.replace(model.topology, inactive=left_out))
    return model
