"""The blocks of the Newton matrix that go through the tree, of many lanes: a lane a thread, loops over links and dofs.

    J_xy = c ∂²I(q_a,q_b)/∂q_a,x ∂q_b,y + Σ_l <∂²T^l/∂q_x∂q_y, A^l> − Σ_points (∂P/∂q_x)ᵀ S ∂P/∂q_y

in the letters of atom/sweeps.py, whose header has the formulas: every link has one form on twists, E_l (6,6), from
which its points take aᵀ S a (dynamics/point_forces.py), and the wrench w of b_l = A^l (T^l)ᵀ; a force f at u adds
−f ⊗ u to A^l. Both are summed up the tree as in Algorithms 2 and 3; then x on or above the link of y gives
s_x · (E_y s_y + Λ_y s_y).
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.atom import parallel
from pbad_jax.kernels.lanes import LANES, in_lanes, run
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
from pbad_jax.kinematics.transforms import Frames
from pbad_jax.laws.load import Load, PointForces, arms, field_of, on_links
from pbad_jax.model.model import Model


class Points(NamedTuple):
    """Forces at points of one link each, which points of that link decide: of c clusters, n and k points."""

    links: np.ndarray  # (c,)
    u: jax.Array  # (c,n,4) where they act
    by: jax.Array  # (c,k,4) what they depend on
    S: jax.Array  # (c,n,3,k,3) N/m, times dt²


class Curvature(NamedTuple):
    """What the curvature of T(q) is multiplied by."""

    A: jax.Array  # (N,3,4)
    forces: list[Forces]


def tree_matrix(
    model: Model, T: tuple, s: tuple, c: jax.Array, curvature: Curvature | None, points: list[Points]
) -> jax.Array:
    """J (nv,nv) as above, kg m² or kg, of one lane by JAX, of many by the kernel; not differentiable.

    Args:
        model: the model. T, s: transforms (N,3,4) and screws (nv,6) at q_a and q_b. c: ().
        curvature: where a is b. points: the points' forces.
    """
    given, shape = jax.tree.flatten((curvature, points))
    moves = [not isinstance(x, np.ndarray) for x in given]  # the others are links

    def one(M, T_a, T_b, s_a, s_b, c, *more):
        rest = iter(more)
        curvature, points = shape.unflatten(next(rest) if moved else x for x, moved in zip(given, moves))
        return [by_jax(dataclasses.replace(model, second_moment=M), (T_a, T_b), (s_a, s_b), c[0], curvature, points)]

    def together(*arrays):
        n, nv = model.topology.n_links, model.nv
        links = [x for x, moved in zip(given, moves) if not moved]
        room = [(n + 1, 36), (n + 1, 6)]
        return run(_kernel(n, nv, curvature, points), (*tables(model.topology), *links), arrays, [(nv, nv)], room)

    arrays = (x for x, moved in zip(given, moves) if moved)
    return in_lanes(one, together)(model.second_moment, *T, *s, c[None], *arrays)[0]


def by_jax(
    model: Model, T: tuple, s: tuple, c: jax.Array, curvature: Curvature | None, points: list[Points]
) -> jax.Array:
    """The same of one lane, as atom/parallel.py has it."""
    f_a, f_b = (Frames(T[k], T[k], s[k]) for k in (0, 1))  # local transforms are not asked for
    n, J = model.topology.n_links, c * parallel.mixed_hess(model, f_a, f_b)
    if curvature is not None:
        J = J + parallel.pullback_hess(model, f_a, with_forces(curvature.A, curvature.forces))
    for p in points:
        a, b = (arms(x, np.repeat(p.links[:, None], u.shape[1], 1), u) for x, u in ((T[0], p.u), (T[1], p.by)))
        form = jnp.einsum("cnai,cnakb,ckbj->cij", a, p.S, b)
        J = J - parallel.twist_form(model, f_a, f_b, on_links(p.links, form, n))
    return J


def with_forces(A: jax.Array, forces: list[Forces]) -> jax.Array:
    """The field A (N,3,4) and −f ⊗ u of the forces."""
    points = (PointForces(tuple(x.links.tolist()), x.u[:, None], x.force[:, None]) for x in forces)
    field = field_of(Load(A, point_forces=tuple(points)), len(A))
    assert field is not None
    return field


# --- the kernel ------------------------------------------------------------------------------------------


def _kernel(n: int, nv: int, curvature: Curvature | None, points: list[Points]):
    """For n links and nv dofs; of the others the shapes are asked."""
    forces = [] if curvature is None else curvature.forces
    curved = curvature is not None

    def kernel(*refs):
        # in the order of tree_matrix: tables, links, arrays; results and room
        take = iter(refs)
        t = Tables(*(next(take) for _ in Tables._fields))
        links = [next(take) for _ in (*forces, *points)]
        M, T_a, T_b, s_a, s_b, c = (next(take) for _ in range(6))
        A = next(take) if curved else None
        acting = [Forces(x, next(take), next(take)) for x in links[: len(forces)]]
        moved = [Points(x, next(take), next(take), next(take)) for x in links[len(forces) :]]
        J, E, w = take

        # E_l and w of every link, of its forces and of its points, summed up the tree
        loop(0, n, lambda l, _: _form(l, M, T_a, T_b, c, A, E, w), None)
        for x in acting:
            loop(0, len(x.links), lambda k, _, x=x: _force(k, x, T_a, E, w), None)
        for x in moved:
            loop(0, len(x.links), lambda k, _, x=x: _cluster(k, x, T_a, T_b, E), None)
        sum_inward(t.parent, n, E, *((w,) if curved else ()))

        # J, zero where neither is above the other
        zero = jnp.zeros(LANES, J.dtype)
        loop(0, nv, lambda x, _: loop(0, nv, lambda y, _: J.__setitem__((x, y), zero), None), None)
        loop(0, nv, lambda y, _: _column(y, t, s_a, s_b, E, w if curved else None, J), None)

    return kernel


def _form(l, M, T_a, T_b, c, A, E, w) -> None:
    """E_l by G = c T_a M T_bᵀ and b = A T_bᵀ, and the wrench w of b."""
    a, b, factor = transform(T_a, l), transform(T_b, l), c[0, :]
    m = matrix(lambda i, j: factor * M[l, i, j, :], 4, 4)
    a_m = a @ m
    G, g, h = a_m @ b.T, a_m[:, 3], m[3] @ b.T
    if A is not None:
        field = transform(A, l)
        B = field @ b.T
        put(w, wrench(B, field[:, 3]), l)
        G, g, h = G - 0.5 * (B + B.T), g - 0.5 * field[:, 3], h - 0.5 * field[:, 3]
    put(E, _on_twists(G, g, h, m[3, 3]), l)


def _on_twists(G: np.ndarray, g: np.ndarray, h: np.ndarray, mass) -> np.ndarray:
    """The form (6,6) of tr(ν̂_a [G, g; hᵀ, mass] ν̂_bᵀ): tr(G) E − Gᵀ, [g]; −[h], mass E."""
    out, trace = np.zeros((6, 6), object), G[0, 0] + G[1, 1] + G[2, 2]
    out[:3, :3] = -G.T
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        out[i, i], out[i + 3, i + 3] = out[i, i] + trace, mass
        out[k, j + 3], out[j, k + 3] = g[i], -g[i]
        out[k + 3, j], out[j + 3, k] = -h[i], h[i]
    return out


def _force(k, x: Forces, T, E, w) -> None:
    """Of one force: b = −f (P, u₄)ᵀ."""
    l, force, last = x.links[k], vector(x.force, k), matrix(lambda: x.u[k, 3, :])
    P = transform(T, l) @ vector(x.u, k)
    Q, half = np.outer(force, P), 0.5 * force * last
    add(E, _on_twists(0.5 * (Q + Q.T), half, half, 0.0), l)
    add(w, -np.concatenate([cross(P, force), force * last]), l)


def _cluster(k, x: Points, T_a, T_b, E) -> None:
    """Of one cluster: less aᵀ S a, the arms a = [−[P], u₄ E]."""
    l, (_, u, by, S) = x.links[k], x
    place = lambda T, u, i: (transform(T, l) @ vector(u, k, i), matrix(lambda: u[k, i, 3, :]))  # noqa: E731
    deciding = [place(T_b, by, q) for q in range(by.shape[1])]
    for i in range(u.shape[1]):
        # S a, whose rows turn by P × S_x and move by u₄ S_x
        slopes = [matrix(lambda x, y, q=q: S[k, i, x, q, y, :], 3, 3) for q in range(by.shape[1])]  # noqa: B023
        rows = [np.concatenate([cross(P, S_q.T).T, S_q * last], axis=1) for S_q, (P, last) in zip(slopes, deciding)]
        rows = functools.reduce(np.add, rows)
        P, last = place(T_a, u, i)
        add(E, -np.concatenate([cross(P, rows), rows * last]), l)


def _column(y, t: Tables, s_a, s_b, E, w, J) -> None:
    """What is on or above the link of dof y, and its mirror."""
    l, a, b = t.link[y], vector(s_a, y), vector(s_b, y)
    E_y = matrix(lambda i, j: E[l, 6 * i + j, :], 6, 6)
    right, left = E_y @ b, E_y.T @ a

    def beside(k, _):
        x = t.beside[k]
        J[x, y] = full(vector(s_a, x) @ right)

    loop(t.beside_from[y], t.beside_from[y + 1], beside, None)
    if w is not None:  # Λ_y s_y, which on one link cancels
        turn, force = np.split(vector(w, l), 2)
        more = 0.5 * np.concatenate([cross(a[:3], turn) + cross(a[3:], force), cross(a[:3], force)])
        right, left = right + more, left + more

    def above(k, _):
        x = t.above[k]
        J[x, y] = full(vector(s_a, x) @ right)
        J[y, x] = full(left @ vector(s_b, x))

    loop(t.above_from[y], t.above_from[y + 1], above, None)
