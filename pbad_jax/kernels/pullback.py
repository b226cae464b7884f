"""The residual's sums over the tree, of many lanes: Algorithm 1 without its scan, a lane a thread.

    r_x = Σ_l <∂T^l/∂q_x, A^l> − Σ_points f · ∂P/∂q_x = s_x · w_x,   w_x the wrench of Σ_{l below x} A^l (T^l)ᵀ

where a force f at P = T^l u has the wrench −(P × f, u₄ f).
"""

import functools

import jax
import numpy as np

from pbad_jax.atom import parallel
from pbad_jax.kernels.lanes import in_lanes, run
from pbad_jax.kernels.rows import (
    Forces,
    Tables,
    add,
    cross,
    full,
    loop,
    matrix,
    put,
    sum_inward,
    tables,
    transform,
    vector,
    wrench,
)
from pbad_jax.kernels.tree_matrix import with_forces
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.model.model import Model


def pullback(model: Model, T: jax.Array, s: jax.Array, A: jax.Array, forces: list[Forces]) -> jax.Array:
    """r (nv,) as above, N m or N, of one lane by JAX, of many by the kernel; not differentiable.

    Args:
        model: the model. T: (N,3,4). s: (nv,6). A: (N,3,4). forces: at points.
    """
    links = [x.links for x in forces]

    def one(T, s, A, *more):
        each = [Forces(x, *more[2 * k : 2 * k + 2]) for k, x in enumerate(links)]
        return [parallel.pullback(model, Frames(T, T, s), with_forces(A, each))]

    def together(*arrays):
        n, nv = model.topology.n_links, model.nv
        return run(_kernel(n, nv, links), (*tables(model.topology), *links), arrays, [(nv,)], [(n + 1, 6)])

    return in_lanes(one, together)(T, s, A, *(a for x in forces for a in x[1:]))[0]


def _kernel(n: int, nv: int, links: list[np.ndarray]):
    def kernel(*refs):
        take = iter(refs)
        t = Tables(*(next(take) for _ in Tables._fields))
        on = [next(take) for _ in links]
        T, s, A = (next(take) for _ in range(3))
        acting = [Forces(x, next(take), next(take)) for x in on]
        r, w = take

        def of_field(l, _):
            field = transform(A, l)
            put(w, wrench(field @ transform(T, l).T, field[:, 3]), l)

        loop(0, n, of_field, None)

        def of_force(k, _, x: Forces) -> None:
            P, last = transform(T, x.links[k]) @ vector(x.u, k), matrix(lambda: x.u[k, 3, :])
            add(w, -np.concatenate([cross(P, vector(x.force, k)), vector(x.force, k) * last]), x.links[k])

        for x in acting:
            loop(0, len(x.links), functools.partial(of_force, x=x), None)

        sum_inward(t.parent, n, w)

        def dof(x, _):
            r[x] = full(vector(s, x) @ vector(w, t.link[x]))

        loop(0, nv, dof, None)

    return kernel
