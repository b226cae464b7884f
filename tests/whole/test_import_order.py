"""The house: every room imports only from those that the table gives it, and the core never imports the rim."""

import ast
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.float64

PACKAGE = pathlib.Path(__file__).parents[2] / "pbad_jax"

# room: what it may import beside itself, errors and checks; in the order of reading
ROOMS = {
    "version": "",
    "errors": "",
    "checks": "",
    "schemes": "",
    "compilation_cache": "",
    "math": "",
    "solver": "math",
    "model": "math",
    "kinematics": "math model",
    "atom": "math model kinematics",
    "geometry": "math model",
    "laws": "math model kinematics geometry",
    "contact": "math model kinematics geometry laws",
    "forces": "geometry laws contact",
    "builders": "math model kinematics geometry laws forces",
    "dynamics": "math model kinematics laws atom",
    "sensing": "math model kinematics geometry laws contact dynamics",
    "kernels": "math model kinematics laws atom",
    "stage": "math model kinematics laws atom dynamics kernels schemes solver",
    "step": "math model kinematics laws atom dynamics kernels schemes solver stage",
    "rollouts": "math model kinematics dynamics schemes solver stage step",
    "newton_euler": "dynamics rollouts",
    "analysis": "math model kinematics laws step rollouts",
    "importers": "math model kinematics atom geometry laws contact forces builders",
    "storage": "version model kinematics dynamics step rollouts",
    "envs": "math model kinematics laws contact builders dynamics sensing step rollouts importers",
    "control": "math model kinematics step analysis envs",
    "viz": "math model kinematics geometry contact builders dynamics sensing step rollouts storage",
    "cli": "compilation_cache model kinematics laws dynamics forces builders schemes step rollouts viz",
}
WITHOUT_ERRORS = {"math"}
RIM = ("importers", "storage", "envs", "control", "viz", "cli")
LEVELS = 12  # of rooms, one above the other


def files(room: str) -> list[pathlib.Path]:
    folder = PACKAGE / room
    return sorted(folder.glob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def imports(path: pathlib.Path) -> set[str]:
    """Rooms that a file imports, also inside functions; "" is the package itself."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {(a.name.split(".") + [""])[1] for a in node.names if a.name.split(".")[0] == "pbad_jax"}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            if node.module == "pbad_jax":
                found |= {a.name if a.name in ROOMS else "" for a in node.names}
            elif (node.module or "").startswith("pbad_jax."):
                found.add((node.module or "").split(".")[1])
    return found


def needs(room: str) -> set[str]:
    return set().union(*map(imports, files(room))) - {room}


def test_every_room_has_its_place():
    there = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert there - {"__init__", "__main__"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_room(room):
    given = set(ROOMS[room].split()) | ({"errors", "checks"} - {room} if room not in WITHOUT_ERRORS else set())
    above = set(list(ROOMS)[: list(ROOMS).index(room)]) | {"errors", "checks"}
    assert given <= above, f"{room}: {sorted(given - above)} stand below it"
    wrong = needs(room) - given - ({""} if room == "cli" else set())  # the command line is a user of the whole
    assert not wrong, f"{room} may not import {sorted(wrong)}"


def test_few_levels():
    level: dict[str, int] = {}
    for room in ROOMS:
        level[room] = 1 + max((level[r] for r in needs(room) if r in level), default=0)
    assert max(level.values()) <= LEVELS, level


def test_files_of_a_room_make_no_circle():
    for room in ROOMS:
        inside = {}
        for path in files(room):
            found = set()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"pbad_jax.{room}"):
                    parts = (node.module or "").split(".")[2:]
                    found |= {parts[0]} if parts else {a.name for a in node.names}
            inside[path.stem] = found - {"__init__"}
        inside.pop("__init__", None)  # a face
        while inside:
            free = [name for name, found in inside.items() if not found & set(inside)]
            assert free, f"{room}: {inside} import one another"
            for name in free:
                del inside[name]


def test_core_imports_no_heavy_package():
    """Hulls of meshes are scipy's, which comes with jax: it is imported by the function that wants one."""
    heavy = {"mujoco", "viser", "matplotlib", "gymnasium", "trimesh", "scipy", "pinocchio"}
    for room in set(ROOMS) - set(RIM):
        for node in (n for file in files(room) for n in ast.walk(ast.parse(file.read_text()))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            late = {"scipy"} if room == "geometry" and names == ["scipy.spatial"] and node.col_offset else set()
            assert not (heavy - late) & {n.split(".")[0] for n in names}, (room, names)


def test_import_is_light_and_touches_no_setting():
    code = """
import sys, jax
before = dict(jax.config.values)
import pbad_jax
assert dict(jax.config.values) == before, "jax.config was changed"
assert not jax.config.jax_enable_x64
heavy = {"mujoco", "viser", "matplotlib", "gymnasium", "trimesh", "scipy.spatial"} & set(sys.modules)
assert not heavy, heavy
from jax._src import xla_bridge
assert not xla_bridge._backends, "a device was initialised at import"
print("light")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0 and "light" in out.stdout, out.stderr[-2000:]


LOOPS = {"while_loop", "fori_loop", "scan", "cond", "switch", "platform_dependent"}
WITH_THEIR_OWN = {"math/loops.py", "rollouts/progress.py"}  # the latter's branch gives nothing
FACTORISED = set("solve inv eigh eig eigvals eigvalsh cholesky svd qr det slogdet lstsq pinv lu cho_factor".split())


def calls(path: pathlib.Path) -> set[str]:
    """Dotted names that a file uses, such as jnp.linalg.norm."""
    return {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}


def test_matrices_are_factored_in_math_alone():
    """Its routines are for one lane and for many; jaxlib's batched LAPACK may stop for ever (math/batched.py)."""
    for path in PACKAGE.rglob("*.py"):
        used = {
            name for name in calls(path) if "linalg." in name and name.split(".")[0] in ("jnp", "jax", "jsp", "lax")
        }
        used = {name for name in used if name.rsplit(".", 1)[1] in FACTORISED | {"lu", "lu_factor", "cho_factor"}}
        assert not used or path.parent.name == "math", f"{path.name}: {used}"


def test_loops_and_branches_are_those_of_math():
    """jax.lax's own do not keep to the types of jax.shard_map (math/loops.py); inside a kernel there is no mesh."""
    for path in PACKAGE.rglob("*.py"):
        used = {name for name in calls(path) if name.startswith(("jax.lax.", "lax.")) and name.split(".")[-1] in LOOPS}
        own = path.parent.name == "kernels" or str(path.relative_to(PACKAGE)) in WITH_THEIR_OWN
        assert not used or own, f"{path.name}: {used}"
