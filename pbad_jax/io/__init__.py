"""Files: models (MJCF, URDF) and trajectories."""

from pbad_jax.io.load import LoadReport as LoadReport
from pbad_jax.io.load import load as load
from pbad_jax.io.trajectories import load_trajectory as load_trajectory
from pbad_jax.io.trajectories import save_trajectory as save_trajectory
