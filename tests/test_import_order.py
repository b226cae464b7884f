"""The layers of design.md section 10: a core module imports only from layers above it, and never the rim."""

import ast
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "pbad_jax"

# a module may import what stands in the same set of "allowed"; everything listed is core
ALLOWED = {
    "errors": set(),
    "inertia": set(),
    "joints": set(),
    "model": {"errors", "joints", "inertia"},
    "kinematics": {"joints", "model", "errors"},
    "atom": {"joints", "model", "kinematics"},
    "atom_parallel": {"joints", "model", "kinematics"},
    "forces": {"joints", "model", "kinematics", "errors", "atom", "atom_parallel"},
    "build": {"errors", "inertia", "joints", "model", "forces"},
    "builders": {"errors", "inertia", "joints", "model", "forces", "build"},
    "schemes": {"errors"},
    "lanes": set(),
    "levenberg_marquardt": {"errors", "lanes"},
    "continuation": {"errors", "lanes", "levenberg_marquardt"},
    "lbfgs": {"errors"},
    "joint_fields": {"joints", "model", "kinematics"},
    "step_info": {"errors"},
    "tree_solve": {"joints", "model", "kinematics", "atom_parallel"},
    "implicit": {"errors"},
    "progress": set(),
    "objectives": {
        "errors",
        "joints",
        "model",
        "kinematics",
        "atom",
        "atom_parallel",
        "forces",
        "schemes",
        "lanes",
        "joint_fields",
        "tree_solve",
    },
    "newton_euler": {"errors", "joints", "model", "kinematics", "forces"},
    "energy": {"errors", "joints", "model", "kinematics", "forces", "objectives"},
}
RIM = {"io", "viz", "envs", "cli", "__main__"}
BELOW = {
    "methods": {"stepping", "batch"},
    "stepping": {"batch"},
    "batch": set(),
}  # may import all of the core but these


def imports(path: pathlib.Path) -> set[str]:
    """First-level pbad_jax modules that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("pbad_jax.")}
            assert not any(a.name == "pbad_jax" for a in node.names), f"{path.name}: import pbad_jax, a cycle"
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            if node.module == "pbad_jax":
                found |= {a.name for a in node.names}
            elif (node.module or "").startswith("pbad_jax."):
                found.add((node.module or "").split(".")[1])
    return found


CORE = sorted(p.stem for p in PACKAGE.glob("*.py") if p.stem not in RIM and p.stem != "__init__")


@pytest.mark.parametrize("module", CORE)
def test_layer(module):
    found = imports(PACKAGE / f"{module}.py") - {module}
    assert not found & RIM, f"{module} imports the rim: {found & RIM}"
    if module in BELOW:
        assert not found & BELOW[module], f"{module} imports what comes after it: {found & BELOW[module]}"
        return
    if module not in ALLOWED:  # a module born after this table: no cycles with stepping, at least
        assert not found & set(BELOW), f"{module} is not in the table of layers; it imports {found}"
        return
    assert found <= ALLOWED[module], f"{module} may not import {sorted(found - ALLOWED[module])}"


def test_the_table_is_a_partial_order():
    order, left = [], dict(ALLOWED)
    while left:
        ready = [m for m, needs in left.items() if needs <= set(order)]
        assert ready, f"a cycle among {sorted(left)}"
        order += ready
        left = {m: n for m, n in left.items() if m not in ready}


def test_core_modules_import_no_heavy_package():
    heavy = {"mujoco", "viser", "matplotlib", "gymnasium", "trimesh", "scipy", "pinocchio"}
    for module in CORE:
        tree = ast.parse((PACKAGE / f"{module}.py").read_text())
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not heavy & {n.split(".")[0] for n in names}, (module, names)


def test_import_is_light_and_touches_no_setting():
    code = """
import sys, jax
before = dict(jax.config.values)
import pbad_jax
assert dict(jax.config.values) == before, "jax.config was changed"
assert not jax.config.jax_enable_x64
heavy = {"mujoco", "viser", "matplotlib", "gymnasium", "trimesh"} & set(sys.modules)
assert not heavy, heavy
from jax._src import xla_bridge
assert not xla_bridge._backends, "a device was initialised at import"
print("light")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0 and "light" in out.stdout, out.stderr[-2000:]
