"""Pan & Manocha's collocation (their eq. HOC) for a planar double pendulum, in mpmath, straight from the paper.

Unit of time: the step. One polynomial of degree K runs through the K + 1 nodes (h, 0, α_1, …, α_{K−1} = 1), where
α_1, …, α_{K−2} are the roots of L_{K−2}(2α − 1) and h is the last interior node of the previous step (for K = 2
its start). Every point p of a body follows it, P̈(α_i) = Σ_n w_in P(node n)/dt², and at every new node

    ∫ρ (∂P(q_i)/∂q)ᵀ (P̈(α_i) + g ẑ) dp = 0.

Nothing here knows of the library: the plane is y, z; hinges turn about x; q = 0 hangs along −z.
"""

import dataclasses
import functools

from mpmath import cos, diff, findroot, legendre, lu_solve, matrix, mp, mpf, norm, pi, sin

DIGITS = 40


@dataclasses.dataclass(frozen=True)
class Link:
    """One link in its own frame, hinge at the origin, next hinge at (0, −length).

    length: m. mass: kg. com: (y, z) m. inertia: kg m² about the centre of mass, along the hinge.
    """

    length: str
    mass: str
    com: tuple[str, str]
    inertia: str


@dataclasses.dataclass(frozen=True)
class Params:
    """Two links and the strength of gravity in m/s²; decimals as text, so that they are exact."""

    upper: Link
    lower: Link
    gravity: str = "9.81"


def high_precision(f):
    @functools.wraps(f)
    def inside(*args, **kwargs):
        with mp.workdps(DIGITS):
            return f(*args, **kwargs)

    return inside


# --- the scheme ------------------------------------------------------------------------------------------


@functools.cache
@high_precision
def nodes(K):
    """(h, 0, α_1, …, α_{K−1}) in steps."""
    n = K - 2
    guesses = [(1 - cos(pi * (i + mpf(3) / 4) / (n + mpf(1) / 2))) / 2 for i in range(n)]
    inner = [findroot(lambda a: legendre(n, 2 * a - 1), guess) for guess in guesses]
    return (inner[-1] - 1 if inner else mpf(-1), mpf(0), *inner, mpf(1))


@functools.cache
@high_precision
def second_derivative(K):
    """Rows w_i, for α_1 … α_{K−1}: Σ_n w_in x_n = p″(α_i) for the polynomial p of degree K through the x_n."""
    t = nodes(K)
    powers = matrix([[x**d for x in t] for d in range(K + 1)])
    return [list(lu_solve(powers, matrix([d * (d - 1) * a ** max(d - 2, 0) for d in range(K + 1)]))) for a in t[2:]]


# --- the double pendulum ---------------------------------------------------------------------------------


def transforms(q, params):
    """(cos φ, sin φ, t_y, t_z) of both links, P = (c y − s z + t_y, s y + c z + t_z), and both ∂/∂q."""
    (q1, q2), l = q, mpf(params.upper.length)
    c1, s1, c2, s2 = cos(q1), sin(q1), cos(q1 + q2), sin(q1 + q2)
    T = [(c1, s1, 0, 0), (c2, s2, s1 * l, -c1 * l)]
    d1 = [(-s1, c1, 0, 0), (-s2, c2, c1 * l, s1 * l)]
    d2 = [(0, 0, 0, 0), (-s2, c2, 0, 0)]
    return T, (d1, d2)


def moments(link):
    """m, m·com_y, m·com_z, ∫ρ(y² + z²): all that ∫ρ dP·P̈ of a planar body needs."""
    m, (y, z) = mpf(link.mass), map(mpf, link.com)
    return m, m * y, m * z, mpf(link.inertia) + m * (y * y + z * z)


def work(d, a, link_moments):
    """∫ρ dP·P̈ for the variation d and the acceleration a of one link's (c, s, t_y, t_z)."""
    (dc, ds, dy, dz), (ac, as_, ay, az) = d, a
    m, my, mz, J = link_moments
    turning = J * (dc * ac + ds * as_)
    shifting = m * (dy * ay + dz * az)
    mixed = my * (dc * ay + ds * az + dy * ac + dz * as_) + mz * (dc * az - ds * ay + dz * ac - dy * as_)
    return turning + shifting + mixed


def residual(K, dt, history, q_k, new, params):
    """The K − 1 collocation equations, two numbers each, of the configurations `new` at the nodes α_1 … 1."""
    links = [moments(params.upper), moments(params.lower)]
    at = [transforms(q, params) for q in (history, q_k, *new)]
    g = mpf(params.gravity)
    out = []
    for w, (_, variations) in zip(second_derivative(K), at[2:]):
        for d in variations:
            r = mpf(0)
            for b, link in enumerate(links):
                a = [sum(w_n * T[b][x] for w_n, (T, _) in zip(w, at)) / dt**2 for x in range(4)]
                a[3] += g  # P̈ + g ẑ: gravity is an upward acceleration
                r += work(d[b], a, link)
            out.append(r)
    return out


def exact(q):
    return tuple(mpf(x) for x in q)


@high_precision
def reference_steps(K, dt, q0, v0, n_steps, params):
    """n_steps of the scheme from its literal start, history = q0 + h dt v0.

    Returns:
        The configurations at the ends of the steps, and after each step its history: the configuration at its
        last interior node, or for K = 2 at its start.
    """
    dt, q, v = mpf(dt), exact(q0), exact(v0)
    h, _, *alphas = nodes(K)
    history = tuple(x + h * dt * u for x, u in zip(q, v))
    ends, histories = [], []
    for _ in range(n_steps):
        rate = [(b - a) / (-h) for a, b in zip(history, q)]
        guess = [x + a * u for a in alphas for x, u in zip(q, rate)]

        def equations(*x, history=history, q=q):
            return residual(K, dt, history, q, list(zip(x[::2], x[1::2])), params)

        x = findroot(equations, guess, tol=mpf(10) ** -30)
        assert norm(equations(*x)) < mpf(10) ** -30
        new = list(zip(x[::2], x[1::2]))
        history, q = (new[-2] if K > 2 else q), new[-1]
        ends.append(q)
        histories.append(history)
    return ends, histories


@high_precision
def particle_residual(K, dt, history, q_k, new, params):
    """`residual` once more, for each link split into two particles of the same mass, centre and inertia.

    P is followed particle by particle and differentiated numerically, so the only thing shared with `residual` is
    the table of nodes.
    """
    particles = []
    for b, link in enumerate((params.upper, params.lower)):
        m, (y, z) = mpf(link.mass), map(mpf, link.com)
        arm = mp.sqrt(mpf(link.inertia) / m)
        particles += [(b, m / 2, y, z + arm), (b, m / 2, y, z - arm)]

    def position(q1, q2, b, y, z):
        def turn(angle, y, z):
            return cos(angle) * y - sin(angle) * z, sin(angle) * y + cos(angle) * z

        if b == 0:
            return turn(q1, y, z)
        y, z = turn(q2, y, z)
        return turn(q1, y, z - mpf(params.upper.length))

    def acceleration(w, b, y, z, axis):
        return sum(c * position(*q, b, y, z)[axis] for c, q in zip(w, path)) / mpf(dt) ** 2

    def slope(q, dof, b, y, z, axis):
        return diff(lambda q1, q2: position(q1, q2, b, y, z)[axis], tuple(q), dof)

    path = [history, q_k, *new]
    up = (mpf(0), mpf(params.gravity))
    return [
        sum(
            m * slope(q, dof, b, y, z, axis) * (acceleration(w, b, y, z, axis) + up[axis])
            for b, m, y, z in particles
            for axis in (0, 1)
        )
        for w, q in zip(second_derivative(K), new)
        for dof in ((1, 0), (0, 1))
    ]


# --- the oscillator --------------------------------------------------------------------------------------


@high_precision
def companion_matrix(K, w2dt2):
    """(history, q_k) ↦ (new history, q_{k+1}) for x″ = −w² x: p″(α_i) = −(w dt)² x_i at every new node."""
    rows = second_derivative(K)
    left = matrix([row[2:] for row in rows]) + mpf(w2dt2) * mp.eye(K - 1)
    columns = [lu_solve(left, matrix([-row[n] for row in rows])) for n in (0, 1)]
    new_history = [0, 1] if K == 2 else [x[K - 3] for x in columns]
    return matrix([new_history, [x[K - 2] for x in columns]])
