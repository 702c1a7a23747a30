"""Several looks at growing data: at which level, so that all of them together err with a given probability.

This file may hold: pure functions of numbers. It may not hold: I/O, clocks or random numbers.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import scipy  # whose parts are imported where they are first used
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pocock_level(alpha: float, sizes: Sequence[int]) -> float:
    """The constant level for the p-values of several looks at growing data that keeps the overall error at alpha.

    A study that stops at the first look with p <= level errs with probability alpha. With p-values of Student's
    one-sided test the level is exact for normal differences of unknown variance. Exact binomial tests err less, being
    discrete.

    Args:
        alpha: overall error probability, in (0, 0.5].
        sizes: pairs at each look, growing by 3 or more from 3 or more.

    Returns:
        In [alpha / looks, alpha], to 4e-5, and to 1e-6 where sizes grow by 5 or more; held up to 500 pairs.

    Source: Pocock, Group Sequential Methods, 1977; the recursion is that of Armitage, McPherson and Rowe, Repeated
    Significance Tests on Accumulating Data, 1969; with Student's test, Jennison and Turnbull, Exact Calculations for
    Sequential t, chi-squared and F Tests, 1991.
    """
    if not 0.0 < alpha <= 0.5:
        raise ValueError(f"alpha must be in (0, 0.5], got {alpha}")
    if not sizes or any(n - m < 3 for m, n in pairwise((0, *sizes))):
        raise ValueError(f"pocock_level: sizes must grow by 3 or more from 3 or more, got {list(sizes)}")
    if len(sizes) == 1:
        return alpha

    def excess(level: float) -> float:
        return _overall_error(level, sizes) - alpha

    least_level = alpha / len(sizes)  # errs with at most alpha, however the looks depend on each other
    if excess(least_level) >= 0.0:  # by the error of the integration
        return least_level
    return float(scipy.optimize.brentq(excess, least_level, alpha, xtol=1e-8))


def _overall_error(level: float, sizes: Sequence[int]) -> float:
    """The probability that one of the looks is beyond its limit: 1 less the mass that stays within them all.

    From look to look goes the angle x with t = sqrt(n - 1) tan(x), t Student's statistic of n normal differences of
    mean 0.
    """
    num = math.ceil(32.0 / min(math.sqrt(1.0 - m / n) for m, n in pairwise(sizes)))  # least width of a transition

    def within(n: int) -> tuple[Array, Array]:
        return _nodes(-_limit(1e-12, n), _limit(level, n), num)

    points, weights = within(sizes[0])
    mass = weights * _density(points, sizes[0])
    for m, n in pairwise(sizes):
        old = points
        points, weights = within(n)
        mass = weights * (_transition(points[:, None], old, m, n) @ mass)
    return 1.0 - float(mass.sum())


def _limit(tail: float, n: int) -> float:
    """The angle that n differences are beyond with probability `tail`."""
    return math.atan(-float(scipy.special.stdtrit(n - 1, tail)) / math.sqrt(n - 1))


def _density(x: Array, n: int) -> Array:
    """Of the angle of n differences."""
    return np.asarray(np.cos(x) ** (n - 2) / scipy.special.beta(0.5, (n - 1) / 2))


def _transition(new: Array, old: Array, m: int, n: int) -> Array:
    """The density of the angle of n differences where that of the first m is known.

    sin(x) is sum / sqrt(n * sum of squares). It is a Markov chain: the differences over the root of their sum of
    squares are uniform on a sphere, whatever that sum. With g^2 and b^2 the shares in the sum of squares after n
    differences of the first m and of the others' mean, Dirichlet(m/2, 1/2, (n-m-1)/2) with the rest,
    sin(new) = sqrt(m/n) sin(old) g + sqrt(1 - m/n) b.
    """
    fresh, rest = 1.0 - m / n, n - m - 2
    known, target = math.sqrt(m / n) * np.sin(old), np.sin(new)
    # The density of (g, b), 2 c g^(m-1) (1 - g^2 - b^2)^((rest-1)/2), along the line of b for (old, new): there
    # fresh (1 - g^2 - b^2) = square (half^2 - (g - middle)^2), which g = middle + half sin(u) makes a cosine.
    # Below g = 0 there is no mass.
    square = fresh + known**2
    middle = known * target / square
    half = np.sqrt(np.maximum(0.0, middle**2 + (fresh - target**2) / square))
    points, weights = _nodes(-math.pi / 2, math.pi / 2, 32 + 4 * math.isqrt(n))  # a peak of width 1 / sqrt(n)
    g = np.maximum(0.0, middle[..., None] + half[..., None] * np.sin(points))
    integral = g ** (m - 1) @ (weights * np.cos(points) ** rest)
    log_c = scipy.special.gammaln([n / 2, m / 2, 0.5, (n - m - 1) / 2]) @ (1, -1, -1, -1)
    factor = 2.0 * math.exp(log_c) * (square / fresh) ** ((rest - 1) / 2) * half**rest / math.sqrt(fresh)
    return np.asarray(factor * integral * np.cos(new))


def _nodes(low: float, high: float, num: int) -> tuple[Array, Array]:
    """Points and weights of Gauss-Legendre quadrature."""
    points, weights = _gauss(num)
    half = (high - low) / 2.0
    return low + half * (points + 1.0), half * weights


@cache
def _gauss(num: int) -> tuple[Array, Array]:
    """On [-1, 1]. One level asks for the same few numbers of points again and again."""
    points, weights = np.polynomial.legendre.leggauss(num)
    return points, weights
