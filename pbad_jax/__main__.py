"""`python -m pbad_jax`: the same as `pbad-jax`."""

import sys

from pbad_jax.cli import main

sys.exit(main())
