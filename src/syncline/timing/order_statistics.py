"""Expected order statistics E[X_{k:n}]: the k-th smallest of n independent draws.

This file may hold: pure functions of numbers and of `Distribution`s. It may not hold: random numbers, clocks or state.
"""

import math

from syncline.timing import distributions as kinds
from syncline.timing.distributions import Distribution


def order_statistic(distribution: Distribution, k: int, num: int) -> float:
    """E[X_{k:n}], the expected k-th smallest of n = num independent draws.

    Closed forms, exact but for rounding:
        uniform                   low + (high - low) k / (n + 1)
        exponential               mean (H_n - H_{n-k})
        shifted exponential       shift + scale (H_n - H_{n-k})
        Pareto, shape a           minimum G(n+1) G(n-k+1-1/a) / (G(n-k+1) G(n+1-1/a)), G the gamma function; finite if
                                  a > 1/(n-k+1), as every a > 1 is
    Any other distribution is an integral of its quantiles over the uniform's order statistic, which has a beta
    distribution.

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
        case kinds.Uniform(low=low, high=high):
            return low + (high - low) * k / (num + 1)
        case kinds.Exponential(mean=mean):
            return mean * last_reciprocals(k, num)
        case kinds.ShiftedExponential(shift=shift, scale=scale):
            return shift + scale * last_reciprocals(k, num)
        case kinds.Pareto(minimum=minimum, shape=shape):
            # The quotient of gamma functions as a product of k terms: differences of their logarithms lose digits.
            return minimum * math.exp(-math.fsum(math.log1p(-1.0 / (shape * i)) for i in range(num - k + 1, num + 1)))
    from scipy.stats import beta  # slow to import

    return float(beta(k, num - k + 1).expect(distribution.quantile))


def last_reciprocals(k: int, num: int) -> float:
    """H_n - H_{n-k} = 1/(n-k+1) + ... + 1/n, summed term by term: a difference would cancel for small k."""
    return math.fsum(1.0 / i for i in range(num - k + 1, num + 1))
