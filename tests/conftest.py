"""Float64 by default; PBAD_TEST_FLOAT32=1 runs the same suite in float32 where it makes sense."""

import fnmatch
import os
import pathlib

import jax
import pytest

# Compiling is what this suite spends its time on. So but for OPTIMISED programs are compiled with few optimisations, in
# less than half the time; they run four to eight times as long.
if jax.__version_info__ < (0, 11):  # later ones do not know the flag, and end the process
    os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {os.environ.get('XLA_FLAGS', '')}".strip()
FLOAT32 = os.environ.get("PBAD_TEST_FLOAT32") == "1"
jax.config.update("jax_enable_x64", not FLOAT32)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_configure(config):
    config.addinivalue_line("markers", "float64: needs float64; skipped in the float32 job")


# Files whose tests say nothing new in single precision: files, the command line, pictures, names, tables, schedules
SAME_IN_FLOAT32 = (
    "animations", "batch", "benchmarks", "build_model", "check_gradients", "cli", "determinism", "hostile_files",
    "import_order", "load", "long_rollouts", "paper_fidelity", "robots", "robots_simulate", "schemes", "swing_up",
    "trajectories", "viz",
)  # fmt: skip
# Tests whose programs run longer than they compile, and those that compare bits or iterations of two programs
OPTIMISED = [
    "test_batch.py*",
    "test_certificates.py::test_no_silent_failures*",
    "test_continuation.py*",
    "test_determinism.py*",
    "test_levenberg_marquardt.py*",
    "test_long_rollouts.py*",
    "test_orders.py::test_variational_energy_of_a_long_chain_is_bounded*",
    "test_orders.py::test_variational_keeps_momenta*",
    "test_swing_up.py*",
]
# What CI runs in more schemes, more random trees or longer than its hour has room for. All of it: pytest -m thorough
THOROUGH = [
    "test_animations.py::*[[]ant]",
    "test_animations.py::*[[]quadruped]",
    "test_animations.py::*[[]spider]",
    "test_atom.py::test_atom_and_all_derivatives_long",
    "test_batch.py::test_equals_the_lanes_own_rollouts[[]limb-legendre2]",
    "test_batch.py::test_equals_the_lanes_own_rollouts[[]limb-radau1]",
    "test_body_contact.py::test_links_that_collide_make_no_energy[[]0.001-radau1]",
    "test_body_contact.py::test_links_that_collide_make_no_energy[[]0.005-radau2]",
    "test_body_contact.py::test_links_that_collide_make_no_energy[[]0.02-radau2]",
    "test_body_contact.py::test_momenta_of_large_steps[[]radau1]",
    "test_body_contact.py::test_parallel_capsules_meet[[]0.005-radau2]",
    "test_certificates.py::test_no_silent_failures[[]*-6-lm]",
    "test_certificates.py::test_no_silent_failures[[]*-lbfgs]",
    "test_certificates.py::test_no_silent_failures[[]dirk2-1-lm]",
    "test_certificates.py::test_no_silent_failures[[]dirk2-400-lm]",
    "test_certificates.py::test_no_silent_failures[[]legendre3-*-lm]",
    "test_certificates.py::test_no_silent_failures[[]radau2-1-lm]",
    "test_determinism.py::test_the_same_bits_again[[]rollout]",
    "test_dynamics.py::test_a_fast_rotor_is_never_sent_backwards[[]dirk2]",
    "test_dynamics.py::test_free_fall_and_linear_momentum[[]scheme[023]]",
    "test_dynamics.py::test_order_of_accuracy_on_a_spatial_chain[[]scheme[023]-*",
    "test_dynamics.py::test_small_steps_tend_to_the_joint_acceleration[[]scheme[12]]",
    "test_dynamics.py::test_ten_link_chain_takes_big_steps[[]0.05]",
    "test_dynamics.py::test_ten_link_chain_takes_big_steps[[]0.1]",
    "test_force_physics.py::test_a_ball_comes_to_rest_with_the_other_schemes[[]dirk2-*",
    "test_force_physics.py::test_a_ball_joint_falls_on_its_limit[[]radau[13]-*",
    "test_force_physics.py::test_a_block_creeps_below_the_friction_angle[[]*-radau1-*",
    "test_force_physics.py::test_a_drop_in_small_steps_makes_no_energy[[]*-radau3-*-0.0002]",
    "test_force_physics.py::test_a_drop_in_small_steps_makes_no_energy[[]ball-radau2-*-0.0002]",
    "test_force_physics.py::test_a_drop_makes_no_energy[[]ball-radau3-*",
    "test_force_physics.py::test_a_drop_makes_no_energy[[]box-radau3-*",
    "test_force_physics.py::test_a_fall_in_drag_has_the_schemes_order[[]dirk3-*",
    "test_force_physics.py::test_a_resolved_bounce_is_that_of_a_spring[[]dirk2-*",
    "test_force_physics.py::test_a_resolved_bounce_is_that_of_a_spring[[]radau2-0.0001]",
    "test_force_physics.py::test_a_resolved_bounce_is_that_of_a_spring[[]radau3-*",
    "test_force_physics.py::test_an_arm_falls_on_its_limit[[]radau3-*",
    "test_force_physics.py::test_ant_falls[[]radau2-*",
    "test_force_physics.py::test_go2_stands[[]radau2]",
    "test_force_physics.py::test_humanoid_falls[[]radau2-*",
    "test_force_physics.py::test_resting_depth[[]ball-radau3-*",
    "test_force_physics.py::test_terminal_velocity[[]dirk2-*",
    "test_force_physics.py::test_terminal_velocity[[]legendre2-*",
    "test_force_physics.py::test_terminal_velocity[[]radau[13]-*",
    "test_force_physics.py::test_two_chains_welded[[]radau1]",
    "test_force_physics.py::test_wrench[[]dirk2-*",
    "test_force_physics.py::test_wrench[[]radau1-*",
    "test_force_physics.py::test_wrench[[]radau3-*",
    "test_gradients.py::test_gradients_of_rollouts[[]dirk2-*",
    "test_gradients.py::test_gradients_of_rollouts[[]dirk4-*",
    "test_gradients.py::test_gradients_of_rollouts[[]legendre[2345]-*",
    "test_gradients.py::test_gradients_of_rollouts[[]radau1-100-*",
    "test_gradients.py::test_gradients_of_rollouts[[]radau2-100-limb]",
    "test_gradients.py::test_gradients_of_rollouts[[]radau3-*",
    "test_gradients.py::test_gradients_of_rollouts[[]variational-*",
    "test_gradients.py::test_second_derivatives[[]limb-*",
    "test_hostile_files.py::test_fuzz_long*",
    "test_kinematics.py::test_transforms_and_fields_long",
    "test_lbfgs.py::test_lbfgs_finds_the_root_of_lm[[]dirk*",
    "test_lbfgs.py::test_lbfgs_finds_the_root_of_lm[[]radau*",
    "test_lbfgs.py::test_residual_and_matrix_are_the_energys_derivatives[[]legendre2-free-none]",
    "test_linear_solver.py::*[[]*-legendre2]",
    "test_linear_solver.py::test_residual_and_matrix_equal_the_dense_ones[[]legendre2-*",
    "test_linear_solver.py::test_steps_equal_the_dense_ones[[]tree-dirk2]",
    "test_linearize.py::*[[]dirk2]",
    "test_linearize.py::*[[]legendre3]",
    "test_long_rollouts.py::test_chunks_are_the_whole[[]legendre3]",
    "test_long_rollouts.py::test_kill_minus_nine[[]20]",
    "test_objectives.py::test_residual_and_matrix_long[[]legendre*",
    "test_objectives.py::test_residual_and_matrix_long[[]radau2-twelve]",
    "test_objectives.py::test_residual_and_matrix_long[[]radau[13]-*",
    "test_orders.py::test_order_on_a_branched_tree[[]ball-dirk[34]]",
    "test_orders.py::test_order_on_a_branched_tree[[]ball-legendre3]",
    "test_orders.py::test_order_on_a_branched_tree[[]ball-legendre[45]]",
    "test_orders.py::test_order_on_a_branched_tree[[]ball-radau[13]]",
    "test_orders.py::test_order_on_a_branched_tree[[]free-dirk3]",
    "test_orders.py::test_order_on_a_branched_tree[[]free-dirk[24]]",
    "test_orders.py::test_order_on_a_branched_tree[[]free-legendre*",
    "test_orders.py::test_order_on_a_branched_tree[[]free-radau*",
    "test_orders.py::test_order_on_a_branched_tree_with_a_damped_ball[[]dirk4]",
    "test_orders.py::test_order_on_a_branched_tree_with_a_damped_ball[[]variational]",
    "test_orders.py::test_order_on_a_spatial_chain[[]legendre*",
    "test_orders.py::test_variational_energy_of_a_long_chain_is_bounded[[]0.00025-*",
    "test_paper_fidelity.py::test_oscillator_companion_matrix[[][35]]",
    "test_paper_fidelity.py::test_steps_solve_the_papers_equations[[][45]]",
    "test_robots_simulate.py::test_dirk_on_every_robot*",
    "test_spider.py::test_it_walks_on[[]radau1-*-0.01]",
    "test_spider.py::test_it_walks_on[[]radau2-*",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        same = item.path.stem.removeprefix("test_") in SAME_IN_FLOAT32
        if FLOAT32 and (same or item.get_closest_marker("float64")):
            item.add_marker(pytest.mark.skip(reason="needs float64"))
        if any(fnmatch.fnmatch(item.nodeid, f"*{p}") for p in THOROUGH):
            item.add_marker(pytest.mark.thorough)
    if "thorough" not in config.option.markexpr and not any("::" in a for a in config.args):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("thorough")])
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


@pytest.fixture(autouse=True)
def _compiles_quickly(request):
    """Few optimisations, but for OPTIMISED."""
    optimised = any(fnmatch.fnmatch(request.node.nodeid, f"*{pattern}") for pattern in OPTIMISED)
    jax.config.update("jax_disable_most_optimizations", not optimised)


@pytest.fixture(autouse=True)
def _few_memory_maps():
    """Each compiled executable holds tens of memory maps, and Linux ends a process with more than 65530 of them."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
