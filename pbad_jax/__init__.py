"""pbad_jax: articulated bodies by position-based time integration, in JAX.

Pan & Manocha, "Time Integrating Articulated Body Dynamics Using Position-Based Collocation Methods". Everything here
is a pure function of pytrees; nothing runs at import, and no JAX setting is touched.

Examples in docstrings speak of `model = pbad.chain(2)`, a `state` of it, `options = pbad.Options(dt=0.05)` and the
like; docs/before_examples.py has all that stands before them.
"""

from pbad_jax import control, envs, forces, newton_euler, viz
from pbad_jax.analysis.gradient_check import GradientReport, check_gradients
from pbad_jax.analysis.linearize import Linearization, linearize
from pbad_jax.builders.actuators import Actuator, motors, with_actuators
from pbad_jax.builders.build_model import build_model
from pbad_jax.builders.descriptions import Body, Geom, Joint
from pbad_jax.builders.ground import with_ground
from pbad_jax.builders.hold import hold
from pbad_jax.builders.presets import chain, spider, swimmer
from pbad_jax.builders.sites import with_sensors, with_sites
from pbad_jax.compilation_cache import use_compilation_cache
from pbad_jax.dynamics.energy import angular_momentum, kinetic_energy, linear_momentum, loop_gaps, potential_energy
from pbad_jax.errors import (
    CheckpointError,
    GradientError,
    ModelError,
    ModelFileError,
    OptionError,
    StateError,
    Status,
    StepError,
    TaskError,
    UnsupportedFeatureError,
    UnsupportedFeatureWarning,
)
from pbad_jax.forces import Instant, Load
from pbad_jax.importers import load
from pbad_jax.kinematics.manifold import difference, retract
from pbad_jax.kinematics.transforms import Poses, forward_kinematics
from pbad_jax.laws.with_forces import with_forces
from pbad_jax.model.inertial_parameters import inertial_parameters, with_inertial_parameters
from pbad_jax.model.model import Model
from pbad_jax.model.sensors import Sensor
from pbad_jax.model.sites import Site
from pbad_jax.model.state import State, make_state
from pbad_jax.rollouts.batch import Schedule, rollout_batch
from pbad_jax.rollouts.devices import spread
from pbad_jax.rollouts.rollout import rollout
from pbad_jax.rollouts.states import states_of
from pbad_jax.rollouts.trajectory import Trajectory
from pbad_jax.schemes import Dirk, Scheme, Variational, dirk, legendre, radau, variational
from pbad_jax.sensing.center_of_mass import (
    center_of_mass,
    center_of_mass_jacobian,
    center_of_mass_velocity,
    centroidal_momentum_matrix,
    total_mass,
)
from pbad_jax.sensing.sensors import read_sensors
from pbad_jax.sensing.task_space import (
    Jacobian,
    Rates,
    body_accelerations,
    body_jacobian,
    body_velocities,
    site_accelerations,
    site_jacobian,
    site_poses,
    site_velocities,
)
from pbad_jax.sensing.touch import contact_forces
from pbad_jax.step.info import StepInfo
from pbad_jax.step.options import Options
from pbad_jax.step.step import make_step
from pbad_jax.storage import load_trajectory, long_rollout, save_trajectory
from pbad_jax.version import __version__

__all__ = [
    "Actuator",
    "Body",
    "CheckpointError",
    "Dirk",
    "Geom",
    "GradientError",
    "GradientReport",
    "Instant",
    "Jacobian",
    "Joint",
    "Linearization",
    "Load",
    "Model",
    "ModelError",
    "ModelFileError",
    "OptionError",
    "Options",
    "Poses",
    "Rates",
    "Schedule",
    "Scheme",
    "Sensor",
    "Site",
    "State",
    "StateError",
    "Status",
    "StepError",
    "StepInfo",
    "TaskError",
    "Trajectory",
    "UnsupportedFeatureError",
    "UnsupportedFeatureWarning",
    "Variational",
    "__version__",
    "angular_momentum",
    "body_accelerations",
    "body_jacobian",
    "body_velocities",
    "build_model",
    "center_of_mass",
    "center_of_mass_jacobian",
    "center_of_mass_velocity",
    "centroidal_momentum_matrix",
    "chain",
    "check_gradients",
    "contact_forces",
    "control",
    "difference",
    "dirk",
    "envs",
    "forces",
    "forward_kinematics",
    "hold",
    "inertial_parameters",
    "kinetic_energy",
    "legendre",
    "linear_momentum",
    "linearize",
    "load",
    "load_trajectory",
    "long_rollout",
    "loop_gaps",
    "make_state",
    "make_step",
    "motors",
    "newton_euler",
    "potential_energy",
    "radau",
    "read_sensors",
    "retract",
    "rollout",
    "rollout_batch",
    "save_trajectory",
    "site_accelerations",
    "site_jacobian",
    "site_poses",
    "site_velocities",
    "spider",
    "spread",
    "states_of",
    "swimmer",
    "total_mass",
    "use_compilation_cache",
    "variational",
    "viz",
    "with_actuators",
    "with_forces",
    "with_ground",
    "with_inertial_parameters",
    "with_sensors",
    "with_sites",
]


def __dir__() -> list[str]:
    """What completion offers: the public names, not the rooms behind them."""
    return __all__
