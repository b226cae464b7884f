"""Files: models (MJCF, URDF), trajectories, and rollouts that outlive their process."""

from pbad_jax.io.load import LoadReport as LoadReport
from pbad_jax.io.load import load as load
from pbad_jax.io.long_rollouts import long_rollout as long_rollout
from pbad_jax.io.trajectories import load_trajectory as load_trajectory
from pbad_jax.io.trajectories import save_trajectory as save_trajectory
