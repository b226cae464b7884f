"""MuJoCo's compiler: in silence, its warnings collected, its errors with the line of the user's file."""

import contextlib
import re
import warnings

from pbad_jax.errors import (
    ModelError,
    ModelFileError,
    UnsupportedFeatureError,
)
from pbad_jax.importers import mjcf
from pbad_jax.importers.nodes import Node, cut, nearest, serialise
from pbad_jax.importers.report import unsupported_by


def compiled(prepared: mjcf.Prepared, floating_base: bool):
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
        return unsupported_by(prepared.root.file, tuple(prepared.unsupported), f" (MuJoCo: {cut(message, 200)}.)")
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
