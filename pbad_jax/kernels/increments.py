"""How far every link has come, and its screws, of many lanes: one loop from the roots outward, a lane a thread.

    ΔT^i = ΔT^p (L + ΔL)^i + T^p ΔL^i,   ΔL = L (J(z) − E)

as transforms.increments has it by pointer jumping: no transforms are subtracted, and its error is one rounding's.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.kernels.lanes import in_lanes, run
from pbad_jax.kernels.rows import cross, full, loop, matrix, put, tables, transform, vector
from pbad_jax.kinematics import transforms
from pbad_jax.kinematics.tree import tree
from pbad_jax.model.model import Model


def increments(model: Model, L: jax.Array, T: jax.Array, motion: jax.Array) -> tuple[jax.Array, jax.Array]:
    """ΔT (N,3,4), and the screws (nv,6) at T + ΔT, of one lane by JAX, of many by the kernel; not differentiable.

    Args:
        model: the model. L: (N,3,4) local transforms. T: (N,3,4) about any origin. motion: (N,3,4) J(z) − E.
    """
    n, nv = model.topology.n_links, model.nv

    def one(L, T, motion, axis, anchor):
        same = dataclasses.replace(model, axis=axis, anchor=anchor)
        dT = transforms.increments(same, L, motion)
        return [dT, transforms.with_screws(same, T + dT, L).s]

    def together(*arrays):
        t, link = tree(model.topology), tables(model.topology)
        given = (link.parent, link.link, t.dof_slide, t.dof_ball)
        return run(_kernel(n, nv), given, arrays, [(n, 3, 4), (nv, 6)], [(n + 1, 3, 4)])

    dT, s = in_lanes(one, together)(L, T, motion, model.axis, model.anchor)
    return dT, s


def _kernel(n: int, nv: int):
    def kernel(parent, link, slide, ball, L, T, motion, axis, anchor, dT, s, room):
        put(room, np.zeros((3, 4), object), n)  # the world stays

        def outward(l, _):
            p = parent[l]
            above = jnp.minimum(p, n - 1)

            # T^p turns what is told in the parent's frame; the world does not
            R = transform(T, above)[:, :3]
            turn = matrix(lambda i, k: jnp.where(p == n, float(i == k), R[i, k]), 3, 3)
            local = transform(L, l)
            moved = local[:, :3] @ transform(motion, l)
            come = transform(room, p)
            value = come[:, :3] @ (local + moved) + turn @ moved
            value[:, 3] = value[:, 3] + come[:, 3]
            for ref in (room, dT):
                put(ref, value, l)

        loop(0, n, outward, None)

        def screw(x, _):
            """A hinge's ω = R a, v = (T c) × ω; a slide's ω = 0, v = R a."""
            l = link[x]
            at = transform(T, l) + transform(dT, l)
            own = vector(axis, l)  # of a ball the axes of its frame
            for i in range(3):
                own[i] = jnp.where(ball[x] < 0, own[i], (ball[x] == i).astype(own[i].dtype))
            a, c = at[:, :3] @ own, at[:, :3] @ vector(anchor, l) + at[:, 3]
            round_ = cross(c, a)
            slides = slide[x] == 1
            for i in range(3):
                s[x, i] = full(jnp.where(slides, 0.0, a[i]))
                s[x, i + 3] = full(jnp.where(slides, a[i], round_[i]))

        loop(0, nv, screw, None)

    return kernel
