"""Pictures of a motion: an animation in one HTML file or a notebook cell, moving pictures, and an energy plot.

Needs `pip install "pbad_jax[viz]"`; viser, pillow and matplotlib are imported only when something is drawn.
"""

from pbad_jax.viz.animation import show, to_html
from pbad_jax.viz.energy_plot import plot_energy
from pbad_jax.viz.video import images, to_video

__all__ = ["images", "plot_energy", "show", "to_html", "to_video"]


def __dir__() -> list[str]:
    """What completion offers: the public names."""
    return __all__
