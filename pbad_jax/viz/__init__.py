"""Pictures of a motion: an animation in one HTML file or a notebook cell, moving pictures, and an energy plot.

Needs `pip install "pbad_jax[viz]"`; viser, pillow and matplotlib are imported only when something is drawn.
"""

from pbad_jax.viz.animation import show as show
from pbad_jax.viz.animation import to_html as to_html
from pbad_jax.viz.energy_plot import plot_energy as plot_energy
from pbad_jax.viz.video import images as images
from pbad_jax.viz.video import to_video as to_video
