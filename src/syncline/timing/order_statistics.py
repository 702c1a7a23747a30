"""Expected order statistics E[X_{k:n}]: the k-th smallest of n independent draws.

This file may hold: pure functions of numbers and of `Distribution`s. It may not hold: random numbers, clocks or state.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
from scipy.special import betainc, betaincinv, betaln, gammainccinv, gammaincinv, log_ndtr, ndtr, ndtri

from syncline.timing import distributions as kinds
from syncline.timing.distributions import Distribution


def harmonic(num: int) -> float:
    """H_n = 1 + 1/2 + ... + 1/n for n = num >= 0; H_0 = 0.

    Raises:
        ValueError: num is negative.
    """
    if num < 0:
        raise ValueError(f"harmonic: num must be >= 0, got {num}")
    return last_reciprocals(num, num)


def order_statistic(distribution: Distribution, k: int, num: int) -> float:
    """E[X_{k:n}], the expected k-th smallest of n = num independent draws.

    Closed forms, exact but for rounding:
        constant c                c
        uniform                   low + (high - low) k / (n + 1)
        exponential               mean (H_n - H_{n-k})
        shifted exponential       shift + scale (H_n - H_{n-k})
        Pareto, shape a           minimum G(n+1) G(n-k+1-1/a) / (G(n-k+1) G(n+1-1/a)), G the gamma function; finite if
                                  a > 1/(n-k+1), as every a > 1 is
        empirical, v_1 <= .. <= v_m   v_1 + sum over j < m of (v_{j+1} - v_j) P(Binomial(n, j/m) < k): drawn with
                                  replacement
        occasional                sum over j of P(Binomial(n, probability) = j) E[X_{k-n+j:j}] of the source
    Normal (its cut at 0 included), log-normal, Weibull and gamma are integrals over the standard normal's order
    statistic, by adaptive quadrature: relative error about 1e-10 for n up to 10^6. So is any other distribution,
    through its quantile function; jumps and far tails lose digits, and scipy warns of it.

    Args:
        distribution: of one draw.
        k: rank, 1 (smallest) .. num.
        num: draws, n >= 1.

    Returns:
        In the unit of the distribution.

    Raises:
        ValueError: k or num out of range.

    Source: adasync.txt, appendix B.1 (exponential); David and Nagaraja, Order Statistics, 3rd edition, chapters 2 to 4.
    """
    if not 1 <= k <= num:
        raise ValueError(f"order_statistic: k must be in 1 .. num, got k = {k} and num = {num}")
    match distribution:
        case kinds.Constant(value=value):
            return value
        case kinds.Uniform(low=low, high=high):
            return low + (high - low) * k / (num + 1)
        case kinds.Exponential(mean=mean):
            return mean * last_reciprocals(k, num)
        case kinds.ShiftedExponential(shift=shift, scale=scale):
            return shift + scale * last_reciprocals(k, num)
        case kinds.Pareto(minimum=minimum, shape=shape):
            # The quotient of gamma functions as a product of k terms: differences of their logarithms lose digits.
            return minimum * math.exp(-math.fsum(math.log1p(-1.0 / (shape * i)) for i in range(num - k + 1, num + 1)))
        case kinds.Empirical(sample=sample):
            above = np.arange(len(sample) - 1, 0, -1) / len(sample)  # shares of the sample above v_1, .., v_{m-1}
            return float(sample[0] + np.diff(sample) @ betainc(num - k + 1, k, above))
        case kinds.Occasional(probability=probability, source=source):
            return _occasional(probability, source, k, num)
    return _integrated(distribution, k, num)


def _integrated(distribution: Distribution, k: int, num: int) -> float:
    """`order_statistic` where there is no closed form: the integral over the standard normal's."""
    match distribution:
        case kinds.Normal(mean=mean, std=std):
            cut = (-mean / std,) if std > 0 else ()
            return _normal_expectation(lambda z: max(0.0, mean + std * z), k, num, cut)
        case kinds.LogNormal(median=median, sigma=sigma):
            return median * _normal_expectation(lambda z: math.exp(sigma * z), k, num)
        case kinds.Weibull(scale=scale, shape=shape):
            return scale * _normal_expectation(lambda z: (-log_ndtr(-z)) ** (1.0 / shape), k, num)
        case kinds.Gamma(shape=shape, scale=scale):  # each half from its own tail, or digits are lost
            return scale * _normal_expectation(
                lambda z: float(gammaincinv(shape, ndtr(z)) if z < 0 else gammainccinv(shape, ndtr(-z))), k, num
            )
    largest = np.nextafter(1.0, 0.0)  # quantiles are defined below 1
    return _normal_expectation(
        lambda z: float(distribution.quantile(np.array([min(ndtr(z), largest)], dtype=np.float64))[0]), k, num
    )


def last_reciprocals(k: int, num: int) -> float:
    """H_n - H_{n-k} = 1/(n-k+1) + ... + 1/n, summed term by term: a difference would cancel for small k."""
    return math.fsum(1.0 / i for i in range(num - k + 1, num + 1))


def _occasional(probability: float, source: Distribution, k: int, num: int) -> float:
    """With j of n draws from the source, the others are 0 and come first: the k-th is the source's (k-n+j)-th of j."""
    from scipy.stats import binom

    drawn = range(num - k + 1, num + 1)
    weights = binom.pmf(drawn, num, probability)
    return math.fsum(
        weight * order_statistic(source, k - num + j, j)
        for j, weight in zip(drawn, weights, strict=True)
        if weight > 1e-18  # the others are lost in rounding
    )


TAILS = np.array([1e-100, 1e-50, 1e-25, 1e-12, 1e-6, 1e-3, 0.1])  # mass of Z_{k:n} beyond the points of a split


def _normal_expectation(of: Callable[[float], float], k: int, num: int, kinks: Iterable[float] = ()) -> float:
    """E[of(Z_{k:n})] for n = num standard normals, by adaptive quadrature between quantiles of Z_{k:n}.

    In the normal score z neither tail is lost in rounding, as the upper one is in u = Phi(z) near 1. The outermost
    1e-100 of the mass on either side is left out, which leaves room for an `of` that grows like exp(10 z).
    """
    from scipy.integrate import quad  # slow to import

    low_points, high_points = ndtri(betaincinv(k, num - k + 1, TAILS)), -ndtri(betaincinv(num - k + 1, k, TAILS))
    points = sorted([*low_points, *high_points, *(z for z in kinks if low_points[0] < z < high_points[0])])
    log_factor = -betaln(k, num - k + 1) - 0.5 * math.log(2.0 * math.pi)

    def density(z: float) -> float:
        return math.exp(log_factor + (k - 1) * log_ndtr(z) + (num - k) * log_ndtr(-z) - 0.5 * z * z)

    def integral(integrand: Callable[[float], float]) -> float:
        inner = points[1:-1]
        return float(quad(integrand, points[0], points[-1], points=inner, epsabs=0.0, epsrel=1e-11, limit=500)[0])

    # The density's own integral is 1, but for the rounding of its factor: 1e-11 for n = 10,000.
    return integral(lambda z: of(z) * density(z)) / integral(density)
