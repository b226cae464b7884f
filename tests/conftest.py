"""Float64 by default; PBAD_TEST_FLOAT32=1 runs the same suite in float32 where it makes sense."""

import importlib
import os
import pathlib
import tempfile
from typing import Any

import jax
import pytest

# Compiling is what this suite spends its time on. So but for tests marked `optimised` programs are compiled with few
# optimisations, in less than half the time; they run four to eight times as long.
# What XLA does to loops, and the lines of Python that it is told with every operation, are a fifth of an ant's step.
LOOPS = ("invariant-code-motion", "constant-sinking", "trip-count-annotator")
FLAGS = [f"--xla_disable_hlo_passes=simplify-while-loops,{','.join(f'while-loop-{name}' for name in LOOPS)}"]
if jax.__version_info__ < (0, 11):  # later ones do not know the flag, and end the process
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([*FLAGS, os.environ.get("XLA_FLAGS", "")]).strip()
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # of processes that tests start
jax.config.update("jax_traceback_in_locations_limit", 0)
FLOAT32 = os.environ.get("PBAD_TEST_FLOAT32") == "1"
jax.config.update("jax_enable_x64", not FLOAT32)
jax.config.update("jax_numpy_rank_promotion", "raise")  # what broadcasts says so
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
os.environ.setdefault("XDG_CACHE_HOME", tempfile.mkdtemp(prefix="pbad_jax_tests_"))  # of command lines that are run


def pytest_configure(config):
    """Thorough tests run where they are asked for: by their mark, or by hand."""
    asked = config.option.markexpr
    if "thorough" not in asked and not any("::" in arg for arg in config.args):
        config.option.markexpr = f"({asked}) and not thorough" if asked else "not thorough"


def pytest_collection_modifyitems(items):
    for item in items:
        if FLOAT32 and item.get_closest_marker("float64"):
            item.add_marker(pytest.mark.skip(reason="needs float64"))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file run in one process: they share what is traced and compiled."""
    return importlib.import_module("xdist.scheduler").LoadFileScheduling(config, log)


@pytest.fixture(autouse=True)
def _as_marked(request):
    """Few optimisations, but for tests marked optimised; and no rank is promoted, but by the long tests' arithmetic."""
    mark = request.node.get_closest_marker
    jax.config.update("jax_disable_most_optimizations", mark("optimised") is None)
    own = mark("slow") is not None or mark("thorough") is not None
    jax.config.update("jax_numpy_rank_promotion", "allow" if own else "raise")


@pytest.fixture
def no_log_file():
    """MuJoCo, called directly, writes its warnings to MUJOCO_LOG.TXT."""
    mujoco: Any = importlib.import_module("mujoco")  # it has no types
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    yield
    mujoco.set_mju_user_warning(before)


@pytest.fixture(autouse=True)
def _few_memory_maps():
    """Each compiled executable holds tens of memory maps, and Linux ends a process with more than 65530 of them."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
