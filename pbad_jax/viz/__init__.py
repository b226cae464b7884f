"""Pictures of a motion: an animation in one HTML file or a notebook cell, and an energy plot.

Needs `pip install "pbad_jax[viz]"`; viser and matplotlib are imported only when something is drawn.
"""

from pbad_jax.viz.animation import show as show
from pbad_jax.viz.animation import to_html as to_html
from pbad_jax.viz.energy_plot import plot_energy as plot_energy
