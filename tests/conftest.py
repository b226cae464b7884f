"""Float64 by default; PBAD_TEST_FLOAT32=1 runs the same suite in float32 where it makes sense."""

import os
import pathlib

import jax
import pytest

FLOAT32 = os.environ.get("PBAD_TEST_FLOAT32") == "1"
jax.config.update("jax_enable_x64", not FLOAT32)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_configure(config):
    config.addinivalue_line("markers", "float64: needs float64; skipped in the float32 job")


def pytest_collection_modifyitems(config, items):
    if FLOAT32:
        for item in items:
            if item.get_closest_marker("float64"):
                item.add_marker(pytest.mark.skip(reason="needs float64"))


@pytest.fixture(autouse=True)
def _few_memory_maps():
    """Each compiled executable holds tens of memory maps, and Linux ends a process with more than 65530 of them."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
