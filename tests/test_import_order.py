"""The layers: a core module imports only from modules above it, and never the rim."""

import ast
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "pbad_jax"

# a core module imports only what stands above it
WITHOUT_PHYSICS = [
    "errors", "checks", "progress", "lanes", "schemes", "levenberg_marquardt", "continuation", "lbfgs", "implicit",
    "differences", "short_sums",
]  # fmt: skip
PHYSICS = [
    "inertia", "joints", "model", "log_cholesky", "kinematics", "atom", "atom_parallel", "forces", "actuators",
    "build", "builders",
]  # fmt: skip
STEPS = [
    "joint_fields",
    "pulls",
    "tree_solve",
    "dynamics",
    "objectives",
    "energy",
    "branch",
    "accounts",
    "solving",
    "options",
    "step_info",
    "impulses",
    "step_collocation",
    "step_dirk",
    "step_variational",
    "substeps",
    "attempt",
    "stepping",
    "newton_euler",
    "batch_by_iterations",
    "batch",
    "linearization",
    "force_slopes",
    "gradient_check",
]
ORDER = WITHOUT_PHYSICS + PHYSICS + STEPS
RIM = {"io", "viz", "envs", "cli", "__main__"}


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


def files(module: str) -> list[pathlib.Path]:
    """Of a module, or of a package of modules (forces)."""
    folder = PACKAGE / module
    return sorted(folder.glob("*.py")) if folder.is_dir() else [PACKAGE / f"{module}.py"]


MODULES = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
CORE = sorted(MODULES - RIM - {"__init__"})


def test_every_core_module_has_its_place():
    assert sorted(ORDER) == CORE


@pytest.mark.parametrize("module", ORDER)
def test_layer(module):
    above = set(ORDER[: ORDER.index(module)])
    if module in PHYSICS:
        above -= set(WITHOUT_PHYSICS) - {"errors", "checks", "short_sums"}
    wrong = set().union(*map(imports, files(module))) - {module} - above
    assert not wrong, f"{module} may not import {sorted(wrong)}"


def test_core_modules_import_no_heavy_package():
    heavy = {"mujoco", "viser", "matplotlib", "gymnasium", "trimesh", "scipy", "pinocchio"}
    for module in CORE:
        for node in (n for file in files(module) for n in ast.walk(ast.parse(file.read_text()))):
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
