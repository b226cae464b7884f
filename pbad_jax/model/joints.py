"""The joints of users, and the four primitive ones that they are made of: fixed, hinge, slide, ball.

Universal = two hinges, planar = two slides and a hinge, free = three slides and a ball, with massless links between.
Every primitive satisfies

    L(q ⊕ δ) = L(q) J(δ),      J(δ) = exp(Σ δ_x σ_x),

with constant (3,4) screws σ_x in the link's own frame. So ∂L/∂q_x = L σ_x and, in exponential
coordinates about q, ∂²L/∂q_x∂q_y = L (σ_x σ_y + σ_y σ_x)/2: no chart, no singular angle.
"""

import dataclasses
from typing import NamedTuple

FIXED, HINGE, SLIDE, BALL = "fixed", "hinge", "slide", "ball"
PRIMITIVES = {FIXED: 0, HINGE: 1, SLIDE: 1, BALL: 3}  # name -> degrees of freedom


class JointKind(NamedTuple):
    """A joint of users.

    primitives: what it is made of, in the order in which they act, outermost first: hinges and slides, then at most
    one ball. axes: how the user gives their axes: "none"; "one" for all; "two", one for each; "plane", two directions
    of sliding, whose normal is the third axis; "world", those of the world.
    """

    primitives: tuple[str, ...]
    axes: str


JOINTS = {
    "fixed": JointKind((FIXED,), "none"),
    "hinge": JointKind((HINGE,), "one"),
    "slide": JointKind((SLIDE,), "one"),
    "universal": JointKind((HINGE, HINGE), "two"),
    "ball": JointKind((BALL,), "none"),
    "planar": JointKind((SLIDE, SLIDE, HINGE), "plane"),
    "free": JointKind((SLIDE, SLIDE, SLIDE, BALL), "world"),
}


@dataclasses.dataclass(frozen=True)
class JointInfo:
    """Where a user's joint lies in q and v. `body` indexes the bodies; -1 never occurs."""

    name: str
    type: str
    body: int
    q: int  # first index in q
    nq: int
    v: int  # first index in v
    nv: int
    effort: float | None = None  # N m or N, what `motors` give at most
